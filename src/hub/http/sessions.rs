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
//! All sessions together keep `sse_replay_total_bytes_max` of events; past it the session that has longest
//! recorded nothing loses its oldest events, for its client is the least likely to come back. What becomes of
//! the streams of one session is [`session`]'s.
//!
//! Source: Spec 2025-11-25 basic/transports#session-management, #resumability-and-redelivery.
//! Never: reads a clock, knows a connection, looks into a payload.

mod error;
mod id;
mod idle;
mod replay;
mod session;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::clock::{Deadline, Now, Uptime};
use crate::entropy::Entropy;
use crate::ids::PeerId;
use crate::limits::Limits;

use error::RETRY_AFTER_MIN;
use id::read_id;
use idle::IdleOrder;
use replay::{Bounds, Spare};
use session::Session;

pub(in crate::hub::http) use error::SessionError;
pub(in crate::hub::http) use id::McpSessionId;
pub(in crate::hub::http) use replay::{EventId, Replay, StreamId};
pub(in crate::hub::http) use session::{Carrier, Ended};

/// Longest time a full store tells a client to wait: sessions are closed by their clients, too. No limit:
/// it is advice, and nothing happens when it is over.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
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
        let slot = self.store(Session::new(id, peer, principal));
        self.by_id.insert(id, slot);
        self.by_peer.insert(peer, slot);
        self.idle.push(slot, now.up);
        self.peak = self.peak.max(self.len());
        Ok(McpSessionId::of(random))
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
        let id = session
            .open_stream(carrier, streams_max, spare)
            .ok_or(SessionError::StreamsFull { limit: streams_max })?;
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
