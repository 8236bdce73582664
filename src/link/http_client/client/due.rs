//! What a client waits for.

use super::{Client, Fault, Line, Step, What};
use crate::clock::{Deadline, Now};
use crate::ids::WireMint;
use crate::link::http_client::wire::Due;

impl Client {
    /// Sees to what is due. Call until `None`.
    pub(crate) fn expire(&mut self, now: Now, wires: &mut WireMint) -> Option<Step<'static>> {
        self.lines.values_mut().for_each(|line| line.wire.look(now));
        loop {
            let due = self.lines.iter().find_map(|(id, line)| {
                let until = line.job.as_ref().and_then(|job| job.until);
                if until.is_some_and(|until| until <= now.up) {
                    return Some((*id, None));
                }
                let due = line.wire.due().filter(|due| due.at() <= now.up)?;
                Some((*id, Some(due)))
            });
            let (id, due) = due?;
            match due {
                Some(Due::Idle(_)) => {
                    self.drop_wire(id, false);
                }
                Some(Due::Head(_)) => {
                    let limit = self.limits.header_timeout.as_millis();
                    let why = format!("head of the answer timed out after {limit} ms");
                    return self.lose(now, id, why, false, wires);
                }
                Some(Due::Stalled(_)) => {
                    let queued = self.lines.get(&id).map_or(0, |line| line.wire.out.len());
                    let limit = self.limits.write_stall_timeout.as_millis();
                    let why =
                        format!("server is not reading: {queued} bytes queued for {limit} ms");
                    return self.lose(now, id, why, false, wires);
                }
                None => {
                    let Some(job) = self.drop_wire(id, false) else {
                        continue;
                    };
                    let why = format!("{}: no end of the answer in time", self.label());
                    return Some(Step {
                        exchange: job.exchange,
                        what: What::Failed(Fault::Broken(why)),
                    });
                }
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Deadline> {
        let of = |line: &Line| {
            let due = line
                .wire
                .due()
                .map(|due| Deadline::new(due.at(), due.why()));
            let until = line.job.as_ref().and_then(|job| job.until);
            let until = until.map(|at| Deadline::new(at, "end of an answer"));
            Deadline::earlier(due, until)
        };
        self.lines.values().filter_map(of).min()
    }
}
