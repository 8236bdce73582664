//! Where each tool call is. One table answers it, and cancel, disconnect, progress and answer all go
//! through it, so that a call gets exactly one answer whatever happens around it.

use crate::ids::{CallId, NewestMap, PeerId};
use crate::protocol::server::RequestKey;

/// Who is at work on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Someone is being asked whether it may run.
    Gate,
    /// The channel bridge runs it.
    Bridge,
    /// The embedding program answers it.
    Local,
    /// The embedding program reads a resource for it.
    Reading,
    /// An upstream server answers another request than a call or a read.
    UpstreamOther,
    /// An upstream server runs it.
    Upstream,
    /// An upstream server lists or reads for it: what clients may keep for a while.
    UpstreamRead,
    /// An upstream server runs it and waits for an answer of the client, which has been told so and is to
    /// come back with it: no request of the client is open.
    Parked,
    /// It is no call: a client waits to be told of the server behind us, which is being met.
    Opening,
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The client that waits for the answer.
    pub peer: PeerId,
    /// Its request.
    pub key: RequestKey,
    /// Who is at work.
    pub place: Place,
}

/// The table. Its size is bounded by the requests that clients may have open.
#[derive(Debug, Default)]
pub struct Ledger {
    calls: NewestMap<CallId, Entry>,
    next: CallId,
    peak: usize,
}

impl Ledger {
    /// Enters a call that is about to be shown to the gate.
    pub fn open(&mut self, peer: PeerId, key: RequestKey) -> CallId {
        self.next = self.next.next();
        self.calls.insert(
            self.next,
            Entry {
                peer,
                key,
                place: Place::Gate,
            },
        );
        self.peak = self.peak.max(self.calls.len());
        self.next
    }

    /// The most calls that were open at once.
    #[must_use]
    pub const fn peak(&self) -> usize {
        self.peak
    }

    /// The call went on. Unknown calls are ignored.
    pub fn moved(&mut self, call: CallId, place: Place) {
        if let Some(entry) = self.calls.get_mut(&call) {
            entry.place = place;
        }
    }

    /// The client of a parked call has come back with this request.
    pub fn resumed(&mut self, call: CallId, key: RequestKey, place: Place) {
        if let Some(entry) = self.calls.get_mut(&call) {
            (entry.key, entry.place) = (key, place);
        }
    }

    /// The call has its answer, or nobody wants one: takes it off the table. Only where both are told to the
    /// audit log: `Hub::conclude` and `Hub::drop_call`.
    pub(super) fn close(&mut self, call: CallId) -> Option<Entry> {
        self.calls.remove(&call)
    }

    /// Where a call is.
    #[must_use]
    pub fn entry(&self, call: CallId) -> Option<Entry> {
        self.calls.get(&call).copied()
    }

    /// The call behind a request.
    #[must_use]
    pub fn find(&self, peer: PeerId, key: RequestKey) -> Option<CallId> {
        let mut calls = self.calls.iter();
        calls
            .find(|(_, entry)| entry.peer == peer && entry.key == key)
            .map(|(call, _)| *call)
    }

    /// The calls of one client, oldest first.
    #[must_use]
    pub fn of_peer(&self, peer: PeerId) -> Vec<CallId> {
        self.in_order(|entry| entry.peer == peer)
    }

    /// The calls at one place, oldest first.
    #[must_use]
    pub fn at(&self, place: Place) -> Vec<CallId> {
        self.in_order(|entry| entry.place == place)
    }

    fn in_order(&self, is: impl Fn(&Entry) -> bool) -> Vec<CallId> {
        let found = self.calls.iter().filter(|(_, entry)| is(entry));
        let mut calls: Vec<CallId> = found.map(|(call, _)| *call).collect();
        calls.sort_unstable();
        calls
    }

    /// How many calls are open.
    #[must_use]
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether no call is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}
