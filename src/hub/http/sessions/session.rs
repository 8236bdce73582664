//! One session: its streams, and the events that are kept of them.
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
//! `sse_replay_bytes_max` is not kept, and pushes no other out.

use super::replay::{Bounds, EventId, ReplayLog, Spare, StreamId};
use crate::ids::PeerId;

/// Names the HTTP exchange that carries a stream to its client. The front chooses the number and never
/// uses it again, so that the late end of one exchange cannot be taken for the end of its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::hub::http) struct Carrier(pub u64);

/// A session that is no more, with the exchanges that still carry its streams: they are to be ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::hub::http) struct Ended {
    /// Whose session it was.
    pub(in crate::hub::http) peer: PeerId,
    /// What is attached, by stream.
    pub(in crate::hub::http) carriers: Vec<(StreamId, Carrier)>,
}

/// One stream of events. See the module page.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    pub(super) carrier: Option<Carrier>,
    pub(super) finished: bool,
    /// `n` of the last event.
    pub(super) last: u64,
    /// `n` of the last event a carrier was given.
    pub(super) sent: u64,
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

    pub(super) fn waits(&self) -> bool {
        self.finished && self.carrier.is_none()
    }
}

/// One session. See the module page.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u128,
    pub(super) peer: PeerId,
    pub(super) principal: Box<str>,
    /// By id, the standalone one first and always there.
    pub(super) streams: Vec<Stream>,
    pub(super) next_stream: StreamId,
    pub(super) log: ReplayLog,
    /// What of the log is in the sum of all sessions.
    pub(super) counted: usize,
    pub(super) dropped: u64,
}

impl Session {
    /// A session with its standalone stream, that nothing carries.
    pub(super) fn new(id: u128, peer: PeerId, principal: &str) -> Self {
        Self {
            id,
            peer,
            principal: principal.into(),
            streams: vec![Stream::new(StreamId::STANDALONE, None)],
            next_stream: StreamId(1),
            log: ReplayLog::default(),
            counted: 0,
            dropped: 0,
        }
    }

    /// One more stream, for the answer of a POST; `None` when as many as may be are open.
    pub(super) fn open_stream(
        &mut self,
        carrier: Carrier,
        streams_max: usize,
        spare: &mut Spare,
    ) -> Option<StreamId> {
        // Numbers may run out only after four thousand million streams; such a session is full, too.
        let next = self.next_stream.0.checked_add(1);
        let (Some(next), true) = (next, self.make_room(streams_max, spare)) else {
            return None;
        };
        let id = std::mem::replace(&mut self.next_stream, StreamId(next));
        self.streams.push(Stream::new(id, Some(carrier)));
        Some(id)
    }

    fn place(&self, stream: StreamId) -> Option<usize> {
        self.streams
            .binary_search_by_key(&stream, |stream| stream.id)
            .ok()
    }

    pub(super) fn stream_mut(&mut self, stream: StreamId) -> Option<&mut Stream> {
        let place = self.place(stream)?;
        self.streams.get_mut(place)
    }

    pub(super) fn stream(&self, stream: StreamId) -> Option<&Stream> {
        self.streams.get(self.place(stream)?)
    }

    /// Whether somebody waits for an answer on an open connection.
    pub(super) fn is_busy(&self) -> bool {
        let mut answers = self.streams.iter().skip(1);
        answers.any(|stream| stream.carrier.is_some())
    }

    pub(super) fn record(
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
    pub(super) fn note_dropped(&mut self, id: EventId) {
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

    pub(super) fn forget(&mut self, stream: StreamId, spare: &mut Spare) {
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
    pub(super) fn forget_if_empty(&mut self, stream: StreamId, spare: &mut Spare) {
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

    pub(super) fn ended(self, spare: &mut Spare) -> Ended {
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
