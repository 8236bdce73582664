//! The connections of the door: who is connected, what was found out about each, and which of them want
//! something from the loop.
//!
//! There may be ten thousand of them, and a turn is about one: nothing here looks at all of them in a turn.
//! Those that may want something are on a list, and the deadlines are in an index.

use std::collections::{BTreeSet, VecDeque};

use super::sessions::{Carrier, SessionPlace, StreamId};
use crate::clock::{Deadline, Now, Uptime};
use crate::ids::{IdMap, PeerId, WireId};
use crate::limits::Limits;
use crate::link::IoRequest;
use crate::link::http_rules::{Accepts, Principal, RoutingPlaces, VersionHeader};
use crate::link::http_server::{ExchangeId, HeadSerial, HttpConnection, HttpHead};

/// See the module page.
#[derive(Debug, Default)]
pub(super) struct Connections {
    /// Boxed, for the map has room for more of them.
    by_wire: IdMap<WireId, Box<Connection>>,
    /// The most there were at a time.
    peak: usize,
    /// Wires whose connections may want something from the loop.
    dirty: Vec<WireId>,
    /// What is due when, one entry a connection at most.
    timers: BTreeSet<(Uptime, WireId)>,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) http: HttpConnection,
    /// The deadline that the timer index knows.
    armed: Option<Uptime>,
    /// One too many: it is told so, and nothing else.
    pub(super) surplus: bool,
    /// Answered streams whose last bytes have not all left yet.
    pub(super) settling: Vec<(PeerId, StreamId, Carrier)>,
    /// Exchanges whose streams were ended early, and which may still be open. All others have their answer,
    /// or are told as gone, before the connection is.
    pub(super) released: Vec<ExchangeId>,
    /// What its last good head of a message said. Boxed, for an idle connection knows none.
    known: Option<Box<KnownHead>>,
}

/// What was found out about the head of a message to `/mcp`. It holds for every head with this serial, for
/// the checks look at nothing else but the head, and not at its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownHead {
    serial: HeadSerial,
    pub(super) principal: Principal,
    pub(super) accepts: Accepts,
    version: Option<VersionHeader<'static>>,
    pub(super) routing: Option<RoutingPlaces>,
    /// The session that it names. Whether that still lives is another question.
    pub(super) session: Option<SessionPlace>,
}

impl Connections {
    /// Someone connected. Past the limit it is marked as one too many.
    pub(super) fn accept(&mut self, now: Now, wire: WireId, limits: &Limits) {
        let http = HttpConnection::new(wire, limits, now);
        let surplus = self.by_wire.len() >= limits.connections_max;
        let connection = Connection {
            http,
            armed: None,
            surplus,
            settling: Vec::new(),
            released: Vec::new(),
            known: None,
        };
        self.by_wire.insert(wire, Box::new(connection));
        self.peak = self.peak.max(self.by_wire.len());
        self.touch(wire);
    }

    pub(super) fn len(&self) -> usize {
        self.by_wire.len()
    }

    pub(super) const fn peak(&self) -> usize {
        self.peak
    }

    pub(super) fn get(&self, wire: &WireId) -> Option<&Connection> {
        self.by_wire.get(wire).map(|connection| &**connection)
    }

    pub(super) fn get_mut(&mut self, wire: &WireId) -> Option<&mut Connection> {
        self.by_wire
            .get_mut(wire)
            .map(|connection| &mut **connection)
    }

    /// It is no more.
    pub(super) fn remove(&mut self, wire: WireId) -> Option<Box<Connection>> {
        let over = self.by_wire.remove(&wire)?;
        if let Some(at) = over.armed {
            self.timers.remove(&(at, wire));
        }
        Some(over)
    }

    /// None of them reads another request.
    pub(super) fn close_after(&mut self) {
        for (wire, connection) in self.by_wire.iter_mut() {
            connection.http.close_after();
            self.dirty.push(*wire);
        }
    }

    /// Whether all that was written has left.
    pub(super) fn is_drained(&mut self) -> bool {
        self.by_wire
            .values_mut()
            .all(|connection| connection.http.outgoing().is_empty())
    }

    /// A connection may want something from the loop.
    pub(super) fn touch(&mut self, wire: WireId) {
        // What happens in one turn happens to one connection, as a rule.
        if self.dirty.last() != Some(&wire) {
            self.dirty.push(wire);
        }
    }

    /// Hands over what connections want from the loop.
    pub(super) fn collect_requests(&mut self, io: &mut VecDeque<IoRequest>) {
        while let Some(wire) = self.dirty.pop() {
            let Some(connection) = self.by_wire.get_mut(&wire) else {
                continue;
            };
            while let Some(request) = connection.http.poll_io() {
                io.push_back(request);
            }
            let deadline = connection.http.next_deadline().map(|deadline| deadline.at);
            // A later deadline needs no new entry: the earlier one finds it when it fires.
            if let Some(at) = deadline.filter(|at| connection.armed.is_none_or(|armed| *at < armed))
            {
                if let Some(armed) = connection.armed.replace(at) {
                    self.timers.remove(&(armed, wire));
                }
                self.timers.insert((at, wire));
            }
        }
    }

    /// Tells one connection whose time has come, and which: it may have something to say then.
    pub(super) fn handle_timeout(&mut self, now: Now) -> Option<WireId> {
        while let Some((at, wire)) = self.timers.first().copied().filter(|(at, _)| *at <= now.up) {
            self.timers.remove(&(at, wire));
            if let Some(connection) = self.by_wire.get_mut(&wire) {
                connection.armed = None;
                // The buffers that a head could repeat may be given up now; it is found out again.
                connection.known = None;
                connection.http.handle_timeout(now);
                return Some(wire);
            }
        }
        None
    }

    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        self.timers
            .first()
            .map(|(at, _)| Deadline::new(*at, "connection"))
    }

    /// What the connection knows of this head.
    pub(super) fn known(&self, wire: WireId, head: &HttpHead) -> Option<KnownHead> {
        let known = self.by_wire.get(&wire)?.known.as_deref()?;
        (known.serial == head.serial()).then_some(*known)
    }

    /// A good head: what it says need not be found out again.
    pub(super) fn remember(&mut self, wire: WireId, known: KnownHead) {
        if let Some(connection) = self.by_wire.get_mut(&wire) {
            match &mut connection.known {
                Some(place) => **place = known,
                None => connection.known = Some(Box::new(known)),
            }
        }
    }

    /// The head that is known so names this session.
    pub(super) fn remember_session(
        &mut self,
        wire: WireId,
        known: Option<KnownHead>,
        session: Option<SessionPlace>,
    ) {
        let of_wire = self.by_wire.get_mut(&wire);
        let of_wire = of_wire.and_then(|connection| connection.known.as_deref_mut());
        if let (Some(of_wire), Some(known)) = (of_wire, known) {
            if of_wire.serial == known.serial {
                of_wire.session = session;
            }
        }
    }
}

impl Connection {
    /// Whether nothing follows from it that an answer has left: so it is between two requests.
    pub(super) fn is_drained_unmoved(&mut self, now: Now) -> bool {
        self.settling.is_empty() && self.http.is_drained_unmoved(now)
    }
}

impl KnownHead {
    pub(super) fn new(head: &HttpHead, principal: Principal, accepts: Accepts) -> Self {
        Self {
            serial: head.serial(),
            principal,
            accepts,
            version: VersionHeader::of(head).without_text(),
            routing: RoutingPlaces::of(head),
            session: None,
        }
    }

    /// What the version header says.
    pub(super) fn version(self, head: &HttpHead) -> VersionHeader<'_> {
        self.version.unwrap_or_else(|| VersionHeader::of(head))
    }
}
