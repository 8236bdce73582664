//! What a client waits for.

use super::{Client, Fault, Line, Step, What};
use crate::clock::{Deadline, Now};
use crate::ids::{WireId, WireMint};
use crate::link::http_client::wire::Due;

impl Client {
    /// Sees to what is due. Call until `None`.
    pub(crate) fn expire(&mut self, now: Now, wires: &mut WireMint) -> Option<Step<'static>> {
        for id in self.wires() {
            if let Some(line) = self.lines.get_mut(&id) {
                line.wire.look(now);
            }
            self.note_due(id);
        }
        while let Some(id) = self.due.first_due(now.up) {
            let line = self.lines.get(&id)?;
            let until = line.job.as_ref().and_then(|job| job.until);
            let due = match until {
                Some(until) if until <= now.up => None,
                Some(_) | None => line.wire.due(),
            };
            let step = match due {
                Some(Due::Idle(_)) => {
                    self.drop_wire(id, false);
                    None
                }
                Some(Due::Head(_)) => {
                    let limit = self.limits.header_timeout.as_millis();
                    let why = format!("head of the answer timed out after {limit} ms");
                    self.lose(now, id, why, false, wires)
                }
                Some(Due::Stalled(_)) => {
                    let queued = self.lines.get(&id).map_or(0, |line| line.wire.out.len());
                    let limit = self.limits.write_stall_timeout.as_millis();
                    let why =
                        format!("server is not reading: {queued} bytes queued for {limit} ms");
                    self.lose(now, id, why, false, wires)
                }
                None => self.drop_wire(id, false).map(|job| {
                    let why = format!("{}: no end of the answer in time", self.label());
                    let (exchange, what) = (job.exchange, What::Failed(Fault::Broken(why)));
                    Step { exchange, what }
                }),
            };
            if step.is_some() {
                return step;
            }
        }
        None
    }

    pub(crate) fn next_deadline(&self) -> Option<Deadline> {
        debug_assert_eq!(
            self.due.first().map(|(at, _)| at),
            self.lines
                .values()
                .filter_map(|line| line.deadline())
                .map(|due| due.at)
                .min(),
            "a change of what a connection waits for was not noted"
        );
        let (_, id) = self.due.first()?;
        self.lines.get(&id)?.deadline()
    }

    /// Brings the agenda up to date with what a connection waits for now.
    pub(super) fn note_due(&mut self, id: WireId) {
        if let Some(line) = self.lines.get_mut(&id) {
            let due = line.deadline().map(|deadline| deadline.at);
            let before = std::mem::replace(&mut line.due, due);
            self.due.change(id, before, due);
        }
    }
}

impl Line {
    fn deadline(&self) -> Option<Deadline> {
        let due = self.wire.due();
        let due = due.map(|due| Deadline::new(due.at(), due.why()));
        let until = self.job.as_ref().and_then(|job| job.until);
        let until = until.map(|at| Deadline::new(at, "end of an answer"));
        Deadline::earlier(due, until)
    }
}
