//! Clients whose calls wait for a person: those that asked for progress are told that, at once and from time to
//! time. Clients give up on a call of which they hear nothing, many after a minute, and a person may take
//! longer.
//!
//! | a held call | input                         | next   | what leaves                             |
//! |-------------|-------------------------------|--------|-----------------------------------------|
//! | –           | it waits, progress is wanted  | told   | progress: what it waits for             |
//! | told        | its time is over              | told   | the same, a little more                 |
//! | told        | answered, expired, cancelled  | –      | nothing                                 |
//!
//! The numbers are such that the server's own rise above them: see [`ServerPeer::waits`].
//!
//! Source: Spec 2025-11-25 basic/utilities/progress and basic/lifecycle (timeouts may be reset by progress);
//! 2026-07-28 basic/patterns/progress.
//!
//! [`ServerPeer::waits`]: crate::protocol::server::ServerPeer::waits

use std::collections::BTreeMap;

use super::Hub;
use crate::clock::{Deadline, Now, Uptime};
use crate::gate::HeldCall;

/// When a client is told again, by the id of its held call.
#[derive(Debug, Default)]
pub(super) struct Waits(BTreeMap<String, Uptime>);

impl Waits {
    pub(super) fn over(&mut self, id: &str) {
        self.0.remove(id);
    }

    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let first = self.0.values().min()?;
        Some(Deadline::new(*first, "word of a held call"))
    }
}

impl Hub {
    pub(super) fn handle_waits_timeout(&mut self, now: Now) {
        let waits = self.waits.0.iter();
        let due = waits.filter(|(_, at)| **at <= now.up);
        let due: Vec<String> = due.map(|(id, _)| id.clone()).collect();
        for id in due {
            self.tell_wait(now, &id);
        }
    }

    /// Tells the client of a call that it waits, if that is so.
    pub(super) fn tell_wait(&mut self, now: Now, id: &str) {
        let held = self.gate.held_by(id);
        let told = held.map(|HeldCall { call, title, .. }| {
            let text = format!("waiting for approval: {title}");
            (*call, text)
        });
        let entry = told.and_then(|(call, text)| Some((self.ledger.entry(call)?, text)));
        let told = entry.and_then(|(entry, text)| {
            self.with_peer(now, entry.peer, |peer, sink| {
                peer.waits(entry.key, &text, sink)
            })
        });
        match told {
            Some(true) => {
                let again = now.after(self.limits.hold_progress_interval);
                self.waits.0.insert(id.to_owned(), again);
            }
            Some(false) | None => self.waits.over(id),
        }
    }
}
