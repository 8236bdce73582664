//! Sessions of the revisions before 2026-07-28, and their resumable event streams.
//!
//! A session is found by its id *and* the principal that opened it; a stranger with the right id gets
//! the same answer as for an unknown one, and does not keep the session alive.
//!
//! | session | request of its client, or `touch` | a POST stream is attached | the last of them is detached | idle for `session_idle_ttl` | `close` |
//! |---|---|---|---|---|---|
//! | idle | idle, time starts over | busy | - | gone | gone |
//! | busy | busy | busy | idle, time starts | - | gone |
//!
//! An answer somebody waits for on an open connection is no idleness. The standalone stream alone is:
//! it does not keep a session alive. A call whose client vanished does not either.
//!
//! | stream | `record` | `finish` | `attach` | `detach`, lost | `detach`, clean | bounds |
//! |---|---|---|---|---|---|---|
//! | attached | kept | closing | attached, the other displaced | detached | detached | - |
//! | detached | kept | waiting; gone when it keeps nothing | attached | - | - | - |
//! | closing | refused | - | closing, the other displaced | waiting; gone when it keeps nothing | gone | - |
//! | waiting | refused | - | closing | - | - | gone with its last kept event, or for a new stream |
//!
//! The standalone stream never finishes. At most `streams_per_session_max` others exist; the oldest
//! waiting one makes room for a new one. Events are kept after they were sent, because nobody knows what
//! arrived; the oldest event of the session goes first when a bound is reached. One longer than
//! `sse_replay_bytes_max` is not kept, and pushes no other out. All sessions together keep
//! `sse_replay_total_bytes_max`; past it the session that has longest recorded nothing loses its oldest
//! events, for its client is the least likely to come back.
//!
//! Source: Spec 2025-11-25 basic/transports#session-management, #resumability-and-redelivery.
//! Never: reads a clock, knows a connection, looks into a payload.

mod idle;
mod replay;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::clock::{Deadline, Now, Uptime};
use crate::crypto::hex;
use crate::entropy::Entropy;
use crate::ids::PeerId;
use crate::limits::Limits;

use idle::IdleOrder;
use replay::{Bounds, ReplayLog, Spare};

pub(in crate::hub::http) use replay::{EventId, Replay, StreamId};

/// Longest time a full store tells a client to wait: sessions are closed by their clients, too. No limit:
/// it is advice, and nothing happens when it is over.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// Shortest: the header counts in seconds, and 0 invites a loop.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

/// `Mcp-Session-Id`: 128 random bits as 32 lower-case hexadecimal digits. It finds a session and proves
/// nothing; still it is not for logs, so `Debug` shows its beginning only.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::hub::http) struct McpSessionId(String);

impl McpSessionId {
    /// The id as it stands in the header.
    #[must_use]
    pub(in crate::hub::http) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for McpSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "McpSessionId({}…)", self.0.get(..8).unwrap_or_default())
    }
}

/// Names the HTTP exchange that carries a stream to its client. The front chooses the number and never
/// uses it again, so that the late end of one exchange cannot be taken for the end of its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::hub::http) struct Carrier(pub u64);

/// How a carrier left its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hub::http) enum Parting {
    /// Everything that was written has left, and the response was finished by us.
    Clean,
    /// The connection went away; nobody knows what arrived.
    Lost,
}

/// What became of [`Sessions::attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hub::http) enum Attach {
    /// The stream has this carrier and had none.
    Attached,
    /// The stream has this carrier now; the one it had gets no more events and is to be ended.
    Displaced(Carrier),
    /// No such session or stream.
    NoStream,
}

/// A session that is no more, with the exchanges that still carry its streams: they are to be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::hub::http) struct Ended {
    /// Whose session it was.
    pub(in crate::hub::http) peer: PeerId,
    /// What is attached, by stream.
    pub(in crate::hub::http) carriers: Vec<(StreamId, Carrier)>,
}

/// Why there is no new session or stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(in crate::hub::http) enum SessionError {
    /// As many sessions as may be are open. HTTP 503 with `Retry-After`.
    SessionsFull {
        /// `sessions_max`.
        limit: usize,
        /// When one may have ended.
        retry_after: Duration,
    },
    /// As many streams as may be wait for their answer in this session. HTTP 503 with `Retry-After`.
    StreamsFull {
        /// `streams_per_session_max`.
        limit: usize,
    },
    /// This peer has no session, or has it no more.
    NoSession,
    /// This peer has a session already: a mistake of the caller.
    PeerTaken,
    /// The random source gave an id that is in use: it is broken.
    IdTaken,
}

impl SessionError {
    /// Value of `Retry-After`, whole seconds; `None` when waiting does not help.
    #[must_use]
    pub(in crate::hub::http) fn retry_after_s(&self) -> Option<u64> {
        let wait = match self {
            Self::SessionsFull { retry_after, .. } => *retry_after,
            Self::StreamsFull { .. } => RETRY_AFTER_MIN,
            Self::NoSession | Self::PeerTaken | Self::IdTaken => return None,
        };
        let up = u64::from(wait.subsec_nanos() > 0);
        Some(wait.as_secs().saturating_add(up))
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = self.retry_after_s().unwrap_or_default();
        match self {
            Self::SessionsFull { limit, .. } => write!(
                f,
                "too many sessions: {limit} are open, limit {limit} (sessions_max); \
                 try again in {again} s"
            ),
            Self::StreamsFull { limit } => write!(
                f,
                "too many open streams: {limit} of this session wait for an answer, \
                 limit {limit} (streams_per_session_max); try again in {again} s"
            ),
            Self::NoSession => f.write_str("the session has ended"),
            Self::PeerTaken => f.write_str("the client has a session already"),
            Self::IdTaken => f.write_str("the random source repeats itself: session id in use"),
        }
    }
}

impl std::error::Error for SessionError {}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    carrier: Option<Carrier>,
    finished: bool,
    /// `n` of the last event.
    last: u64,
    /// `n` of the last event a carrier was given.
    sent: u64,
}

impl Stream {
    const fn new(id: StreamId, carrier: Option<Carrier>) -> Self {
        Self {
            id,
            carrier,
            finished: false,
            last: 0,
            sent: 0,
        }
    }

    fn waits(&self) -> bool {
        self.finished && self.carrier.is_none()
    }
}

#[derive(Debug)]
struct Session {
    id: u128,
    peer: PeerId,
    principal: Box<str>,
    /// By id, the standalone one first and always there.
    streams: Vec<Stream>,
    next_stream: StreamId,
    log: ReplayLog,
    /// What of the log is in the sum of all sessions.
    counted: usize,
    dropped: u64,
}

impl Session {
    fn place(&self, stream: StreamId) -> Option<usize> {
        self.streams
            .binary_search_by_key(&stream, |stream| stream.id)
            .ok()
    }

    fn stream_mut(&mut self, stream: StreamId) -> Option<&mut Stream> {
        let place = self.place(stream)?;
        self.streams.get_mut(place)
    }

    fn stream(&self, stream: StreamId) -> Option<&Stream> {
        self.streams.get(self.place(stream)?)
    }

    /// Whether somebody waits for an answer on an open connection.
    fn is_busy(&self) -> bool {
        let mut answers = self.streams.iter().skip(1);
        answers.any(|stream| stream.carrier.is_some())
    }

    fn record(
        &mut self,
        stream: StreamId,
        payload: &[u8],
        bounds: Bounds,
        spare: &mut Spare,
    ) -> Option<EventId> {
        let of = self.stream_mut(stream).filter(|of| !of.finished)?;
        of.last = of.last.checked_add(1)?;
        let id = EventId { stream, n: of.last };
        if of.carrier.is_some() {
            of.sent = of.last;
        }
        if !ReplayLog::admits(payload.len(), bounds) {
            self.note_dropped(id);
            return Some(id);
        }
        while !self.log.fits(payload.len(), bounds) {
            let oldest = self.log.drop_oldest(spare)?;
            self.note_dropped(oldest);
        }
        self.log.push(id, payload, spare);
        Some(id)
    }

    /// The event is kept no more: counts it when no carrier was ever given it, and forgets its stream
    /// when that was all there was to come.
    fn note_dropped(&mut self, id: EventId) {
        let Some(place) = self.place(id.stream) else {
            return;
        };
        let of = &self.streams[place];
        if id.n > of.sent {
            self.dropped = self.dropped.saturating_add(1);
        }
        if of.waits() && !self.log.holds(id.stream) {
            self.streams.remove(place);
        }
    }

    fn forget(&mut self, stream: StreamId, spare: &mut Spare) {
        if let Some(place) = self.place(stream) {
            self.streams.remove(place);
            self.log.forget(stream, spare);
        }
        let used = self.streams.len();
        if self.streams.capacity() > 4 * used.max(2) {
            self.streams.shrink_to(2 * used);
        }
    }

    /// Forgets a stream that has nothing to give to a client that comes back.
    fn forget_if_empty(&mut self, stream: StreamId, spare: &mut Spare) {
        let waits = self.stream(stream).is_some_and(Stream::waits);
        if waits && !self.log.holds(stream) {
            self.forget(stream, spare);
        }
    }

    /// Makes room for one more stream; whether there is some.
    fn make_room(&mut self, streams_max: usize, spare: &mut Spare) -> bool {
        if self.streams.len() <= streams_max {
            return true;
        }
        let Some(oldest) = self.streams.iter().find(|stream| stream.waits()) else {
            return false;
        };
        let (id, sent) = (oldest.id, oldest.sent);
        let never_sent = self.log.count_after(EventId {
            stream: id,
            n: sent,
        });
        self.dropped = self.dropped.saturating_add(never_sent);
        self.forget(id, spare);
        true
    }

    fn ended(self, spare: &mut Spare) -> Ended {
        let streams = self.streams.iter();
        let attached = streams.filter_map(|stream| Some((stream.id, stream.carrier?)));
        let carriers = attached.collect();
        self.log.clear(spare);
        Ended {
            peer: self.peer,
            carriers,
        }
    }
}

/// How much of the limits is in use. Of one session: by the one with the most.
#[derive(Clone, Copy, Debug)]
pub(in crate::hub::http) struct SessionUsage {
    /// The most sessions that were open at once.
    pub(in crate::hub::http) peak: usize,
    /// Streams of one session, the standalone one left out.
    pub(in crate::hub::http) streams: usize,
    /// Events kept by one session.
    pub(in crate::hub::http) events: usize,
    /// Bytes of events kept by one session.
    pub(in crate::hub::http) bytes: usize,
    /// Bytes of events kept by all.
    pub(in crate::hub::http) total_bytes: usize,
}

/// Where a session is. A slot may be used again, but not for the same peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hub::http) struct SessionPlace {
    slot: u32,
    peer: PeerId,
}

/// All sessions. One lookup, no walk over them, whatever is done.
#[derive(Debug)]
pub(in crate::hub::http) struct Sessions {
    slots: Vec<Option<Session>>,
    unused: Vec<u32>,
    by_id: BTreeMap<u128, u32>,
    by_peer: BTreeMap<PeerId, u32>,
    idle: IdleOrder,
    /// Sessions that keep events, by their latest one.
    recorded: IdleOrder,
    spare: Spare,
    /// Of the events of all sessions.
    replay_bytes: usize,
    replay_bytes_max: usize,
    sessions_max: usize,
    peak: usize,
    streams_max: usize,
    idle_ttl: Duration,
    bounds: Bounds,
}

impl Sessions {
    /// No sessions.
    #[must_use]
    pub(in crate::hub::http) const fn new(limits: &Limits) -> Self {
        Self {
            slots: Vec::new(),
            unused: Vec::new(),
            by_id: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            idle: IdleOrder::new(),
            recorded: IdleOrder::new(),
            spare: Spare::new(),
            replay_bytes: 0,
            replay_bytes_max: limits.sse_replay_total_bytes_max,
            sessions_max: limits.sessions_max,
            peak: 0,
            streams_max: limits.streams_per_session_max,
            idle_ttl: limits.session_idle_ttl,
            bounds: Bounds {
                events_max: limits.sse_replay_events_max,
                bytes_max: if limits.sse_replay_bytes_max < limits.sse_replay_total_bytes_max {
                    limits.sse_replay_bytes_max
                } else {
                    limits.sse_replay_total_bytes_max
                },
            },
        }
    }

    /// How many sessions are open.
    #[must_use]
    pub(in crate::hub::http) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// How much of the limits is in use: looks at every session.
    pub(in crate::hub::http) fn usage(&self) -> SessionUsage {
        let sessions = || self.slots.iter().flatten();
        let most = |of: fn(&Session) -> usize| sessions().map(of).max().unwrap_or(0);
        SessionUsage {
            peak: self.peak,
            streams: most(|session| session.streams.len() - 1),
            events: most(|session| session.log.len()),
            bytes: most(|session| session.log.bytes()),
            total_bytes: self.replay_bytes,
        }
    }

    /// Whether none is open.
    #[must_use]
    #[cfg(test)]
    pub(in crate::hub::http) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Opens a session for a peer that has none, bound to `principal`.
    ///
    /// # Errors
    /// [`SessionError::SessionsFull`] at `sessions_max`; what is due is to be taken out first
    /// ([`Sessions::expire`]). [`SessionError::PeerTaken`] when the peer has one,
    /// [`SessionError::IdTaken`] with a broken random source.
    pub(in crate::hub::http) fn open(
        &mut self,
        now: Now,
        peer: PeerId,
        principal: &str,
        entropy: &mut dyn Entropy,
    ) -> Result<McpSessionId, SessionError> {
        if self.len() >= self.sessions_max {
            return Err(SessionError::SessionsFull {
                limit: self.sessions_max,
                retry_after: self.retry_after(now),
            });
        }
        if self.by_peer.contains_key(&peer) {
            return Err(SessionError::PeerTaken);
        }
        let mut random = [0; 16];
        entropy.fill(&mut random);
        let id = u128::from_be_bytes(random);
        if self.by_id.contains_key(&id) {
            return Err(SessionError::IdTaken);
        }
        let session = Session {
            id,
            peer,
            principal: principal.into(),
            streams: vec![Stream::new(StreamId::STANDALONE, None)],
            next_stream: StreamId(1),
            log: ReplayLog::default(),
            counted: 0,
            dropped: 0,
        };
        let slot = self.store(session);
        self.by_id.insert(id, slot);
        self.by_peer.insert(peer, slot);
        self.idle.push(slot, now.up);
        self.peak = self.peak.max(self.len());
        Ok(McpSessionId(hex(&random)))
    }

    fn store(&mut self, session: Session) -> u32 {
        if let Some(slot) = self.unused.pop() {
            self.slots[index(slot)] = Some(session);
            return slot;
        }
        self.slots.push(Some(session));
        u32::try_from(self.slots.len() - 1).expect("sessions_max sessions fit into memory")
    }

    fn retry_after(&self, now: Now) -> Duration {
        let next = self.next_deadline();
        let wait = next.map_or(RETRY_AFTER_MAX, |next| next.at.since(now.up));
        wait.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX)
    }

    /// The peer behind a session id of a request, which counts as a sign of life. `None` alike when the
    /// id is unknown, malformed, of another principal, or its session is past its time: HTTP 404.
    pub(in crate::hub::http) fn find(
        &mut self,
        now: Now,
        id: &str,
        principal: &str,
    ) -> Option<PeerId> {
        let (slot, peer) = self.look_up(id, principal)?;
        self.refresh(now, slot).then_some(peer)
    }

    /// Where the session of a peer is, to find it again without its id.
    pub(in crate::hub::http) fn place_of(&self, peer: PeerId) -> Option<SessionPlace> {
        let slot = *self.by_peer.get(&peer)?;
        Some(SessionPlace { slot, peer })
    }

    /// As [`find`](Self::find), for the id and principal that once found the session at this place.
    pub(in crate::hub::http) fn find_at(
        &mut self,
        now: Now,
        place: SessionPlace,
    ) -> Option<PeerId> {
        let SessionPlace { slot, peer } = place;
        let session = self.slots.get(index(slot))?.as_ref()?;
        (session.peer == peer && self.refresh(now, slot)).then_some(peer)
    }

    fn look_up(&self, id: &str, principal: &str) -> Option<(u32, PeerId)> {
        let slot = *self.by_id.get(&read_id(id)?)?;
        let session = self.slots.get(index(slot))?.as_ref()?;
        (*session.principal == *principal).then_some((slot, session.peer))
    }

    /// Starts the idle time over; whether the session still lives.
    fn refresh(&mut self, now: Now, slot: u32) -> bool {
        let Some(since) = self.idle.since(slot) else {
            return true;
        };
        let alive = since.after(self.idle_ttl) > now.up;
        if alive {
            self.idle.push(slot, now.up);
        }
        alive
    }

    /// Ends a session because its client asked for it (DELETE). `None` as in [`Sessions::find`].
    pub(in crate::hub::http) fn close(&mut self, id: &str, principal: &str) -> Option<Ended> {
        let (_, peer) = self.look_up(id, principal)?;
        self.remove(peer)
    }

    /// Ends the session of a peer, whoever wants it. `None` when it has none.
    pub(in crate::hub::http) fn remove(&mut self, peer: PeerId) -> Option<Ended> {
        let slot = self.by_peer.remove(&peer)?;
        let session = self.slots.get_mut(index(slot))?.take()?;
        self.by_id.remove(&session.id);
        self.idle.remove(slot);
        self.recorded.remove(slot);
        self.replay_bytes -= session.counted;
        self.unused.push(slot);
        Some(session.ended(&mut self.spare))
    }

    /// Takes out the sessions whose time is up, longest idle first.
    pub(in crate::hub::http) fn expire(&mut self, now: Now) -> Vec<Ended> {
        let mut ended = Vec::new();
        while let Some((slot, since)) = self.idle.longest() {
            if since.after(self.idle_ttl) > now.up {
                break;
            }
            self.idle.remove(slot);
            let session = self.slots.get(index(slot)).and_then(Option::as_ref);
            let peer = session.map(|session| session.peer);
            ended.extend(peer.and_then(|peer| self.remove(peer)));
        }
        ended
    }

    /// When [`Sessions::expire`] has something to do.
    #[must_use]
    pub(in crate::hub::http) fn next_deadline(&self) -> Option<Deadline> {
        let (_, since) = self.idle.longest()?;
        Some(Deadline::new(
            since.after(self.idle_ttl),
            "an HTTP session is idle",
        ))
    }

    /// A stream for the answer of a POST, carried by that POST's exchange.
    ///
    /// # Errors
    /// [`SessionError::StreamsFull`] when as many as may be are open, [`SessionError::NoSession`].
    pub(in crate::hub::http) fn new_stream(
        &mut self,
        peer: PeerId,
        carrier: Carrier,
    ) -> Result<StreamId, SessionError> {
        let streams_max = self.streams_max;
        let (session, slot, spare) = self.parts(peer).ok_or(SessionError::NoSession)?;
        // Numbers may run out only after four thousand million streams; such a session is full, too.
        let next = session.next_stream.0.checked_add(1);
        let (Some(next), true) = (next, session.make_room(streams_max, spare)) else {
            return Err(SessionError::StreamsFull { limit: streams_max });
        };
        let id = std::mem::replace(&mut session.next_stream, StreamId(next));
        session.streams.push(Stream::new(id, Some(carrier)));
        self.idle.remove(slot);
        self.count(slot);
        Ok(id)
    }

    /// Brings the sum of all events up to date after those of one session may have changed.
    fn count(&mut self, slot: u32) {
        let Some(Some(session)) = self.slots.get_mut(index(slot)) else {
            return;
        };
        let before = std::mem::replace(&mut session.counted, session.log.bytes());
        self.replay_bytes = self.replay_bytes - before + session.counted;
        if session.log.is_empty() {
            self.recorded.remove(slot);
        }
    }

    /// Drops events until all sessions together keep no more than they may.
    fn keep_to_the_sum(&mut self) {
        while self.replay_bytes > self.replay_bytes_max {
            let Some((slot, _)) = self.recorded.longest() else {
                return;
            };
            if let Some(Some(session)) = self.slots.get_mut(index(slot)) {
                if let Some(oldest) = session.log.drop_oldest(&mut self.spare) {
                    session.note_dropped(oldest);
                }
            }
            self.count(slot);
        }
    }

    fn parts(&mut self, peer: PeerId) -> Option<(&mut Session, u32, &mut Spare)> {
        let slot = *self.by_peer.get(&peer)?;
        let session = self.slots.get_mut(index(slot))?.as_mut()?;
        Some((session, slot, &mut self.spare))
    }

    fn session(&self, peer: PeerId) -> Option<&Session> {
        let slot = *self.by_peer.get(&peer)?;
        self.slots.get(index(slot))?.as_ref()
    }

    /// What carries a stream now; whoever records an event writes it there.
    #[must_use]
    pub(in crate::hub::http) fn carrier(&self, peer: PeerId, stream: StreamId) -> Option<Carrier> {
        self.session(peer)?.stream(stream)?.carrier
    }

    /// Gives a stream to the exchange of a GET. What is due is to be read first
    /// ([`Sessions::replay_after`], [`Sessions::replay_unsent`]): from here on it counts as sent.
    pub(in crate::hub::http) fn attach(
        &mut self,
        peer: PeerId,
        stream: StreamId,
        carrier: Carrier,
    ) -> Attach {
        let Some((session, slot, _)) = self.parts(peer) else {
            return Attach::NoStream;
        };
        let Some(of) = session.stream_mut(stream) else {
            return Attach::NoStream;
        };
        of.sent = of.last;
        let before = of.carrier.replace(carrier);
        if session.is_busy() {
            self.idle.remove(slot);
        }
        before.map_or(Attach::Attached, Attach::Displaced)
    }

    /// The exchange carries the stream no more. Nothing happens when another one has taken over.
    pub(in crate::hub::http) fn detach(
        &mut self,
        now: Now,
        peer: PeerId,
        stream: StreamId,
        carrier: Carrier,
        parting: Parting,
    ) {
        let Some((session, slot, spare)) = self.parts(peer) else {
            return;
        };
        let was_busy = session.is_busy();
        let Some(of) = session.stream_mut(stream) else {
            return;
        };
        if of.carrier != Some(carrier) {
            return;
        }
        of.carrier = None;
        match parting {
            Parting::Clean if of.finished => session.forget(stream, spare),
            Parting::Clean | Parting::Lost => session.forget_if_empty(stream, spare),
        }
        if was_busy && !session.is_busy() {
            self.idle.push(slot, now.up);
        }
        self.count(slot);
    }

    /// Nothing will come after the last event: the request is answered, or nobody wants the answer. The
    /// standalone stream has no such end.
    pub(in crate::hub::http) fn finish(&mut self, peer: PeerId, stream: StreamId) {
        let Some((session, _, spare)) = self.parts(peer) else {
            return;
        };
        if stream == StreamId::STANDALONE {
            return;
        }
        // Only a stream that keeps nothing can be forgotten here: the sum stays.
        if let Some(of) = session.stream_mut(stream) {
            of.finished = true;
            session.forget_if_empty(stream, spare);
        }
    }

    /// The next event of a stream: gives its id and keeps the payload for a client that comes back.
    /// `None` when there is no such stream, or it is finished.
    pub(in crate::hub::http) fn record(
        &mut self,
        peer: PeerId,
        stream: StreamId,
        payload: &[u8],
    ) -> Option<EventId> {
        let bounds = self.bounds;
        let (session, slot, spare) = self.parts(peer)?;
        let id = session.record(stream, payload, bounds, spare);
        if id.is_some() {
            // The order is all that counts; equal times keep it.
            self.recorded.push(slot, Uptime::ZERO);
        }
        self.count(slot);
        self.keep_to_the_sum();
        id
    }

    /// What a client missed that shows `Last-Event-ID`: the later events of the same stream, which the
    /// caller then attaches. `None` when the id is malformed or this session never gave it, or the
    /// stream is forgotten: nothing is replayed.
    #[must_use]
    pub(in crate::hub::http) fn replay_after(
        &self,
        peer: PeerId,
        last_event_id: &str,
    ) -> Option<Replay<'_>> {
        let after = EventId::parse(last_event_id)?;
        let session = self.session(peer)?;
        let of = session.stream(after.stream)?;
        (after.n <= of.last).then(|| Replay::new(&session.log, after, of.last, of.finished))
    }

    /// The events of a stream that no carrier was given, for a GET without `Last-Event-ID` and for the
    /// position its priming event carries. `None` when there is no such stream.
    #[must_use]
    pub(in crate::hub::http) fn replay_unsent(
        &self,
        peer: PeerId,
        stream: StreamId,
    ) -> Option<Replay<'_>> {
        let session = self.session(peer)?;
        let of = session.stream(stream)?;
        let after = EventId { stream, n: of.sent };
        Some(Replay::new(&session.log, after, of.last, of.finished))
    }

    /// How many events were dropped before a carrier was given them, since this was asked last.
    pub(in crate::hub::http) fn take_dropped(&mut self, peer: PeerId) -> u64 {
        let session = self.parts(peer).map(|(session, ..)| session);
        session.map_or(0, |session| std::mem::take(&mut session.dropped))
    }
}

fn index(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

/// Reads the one spelling of an id that is ever given out.
fn read_id(text: &str) -> Option<u128> {
    if text.len() != 32 {
        return None;
    }
    text.bytes().try_fold(0, |id: u128, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(id << 4 | u128::from(digit))
    })
}
