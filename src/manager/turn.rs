//! One input of a manager: the upstream that it concerns handles it, what that says is routed, and what it
//! wants of the loop is handed on.

use super::Manager;
use super::runtime::UpstreamId;
use super::upstream::{Turn, Upstream};
use crate::clock::{Deadline, Now};
use crate::codec::outbuf::OutBuf;
use crate::ids::WireId;
use crate::link::{Driven, IoEvent, IoRequest};

impl Manager {
    /// Lets one upstream handle something, and hears what it has to say.
    pub(super) fn with(
        &mut self,
        now: Now,
        id: UpstreamId,
        handle: impl FnOnce(&mut Upstream, &mut Turn<'_>),
    ) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        let mut turn = Turn {
            now,
            wires: &mut self.wires,
            ids: &mut self.next_request,
            entropy: &mut *self.entropy,
        };
        handle(&mut slot.upstream, &mut turn);
        self.settle(now, id);
    }

    /// Takes everything an upstream has to say.
    fn settle(&mut self, now: Now, id: UpstreamId) {
        while let Some(output) = self
            .slots
            .get_mut(&id)
            .and_then(|slot| slot.upstream.poll_output())
        {
            self.route(now, id, output);
        }
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        while let Some(request) = slot.upstream.poll_io() {
            match &request {
                IoRequest::Open(wire, _) => {
                    self.wires_of.insert(*wire, id);
                }
                IoRequest::Close(wire) | IoRequest::Finish(wire) => {
                    self.wires_of.remove(wire);
                }
                IoRequest::Flush(_)
                | IoRequest::PauseReads(..)
                | IoRequest::CloseWrite(_)
                | IoRequest::Signal(..)
                | IoRequest::Append(_) => {}
            }
            self.io.push_back(request);
        }
        if slot.upstream.is_gone() {
            if let Some(due) = slot.due {
                self.timers.remove(&(due, id));
            }
            self.slots.remove(&id);
            self.wires_of.retain(|_, of| *of != id);
            return;
        }
        let due = slot.upstream.next_deadline().map(|deadline| deadline.at);
        if due != slot.due {
            if let Some(old) = slot.due.take() {
                self.timers.remove(&(old, id));
            }
            slot.due = due;
            self.timers.extend(due.map(|at| (at, id)));
        }
    }
}

impl Driven for Manager {
    fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>) {
        let Some(id) = self.wires_of.get(&wire).copied() else {
            return;
        };
        if matches!(event, IoEvent::Drained) {
            // One in two inputs under load. What has left moves no message, and no time forward: a timer that
            // is too early then finds nothing due.
            if let Some(slot) = self.slots.get_mut(&id) {
                slot.upstream.handle_drained(now, wire, &mut self.wires);
            }
            return;
        }
        if matches!(event, IoEvent::Failed(_)) {
            self.wires_of.remove(&wire);
        }
        self.with(now, id, |one, turn| one.handle_io(turn, wire, event));
    }

    fn handle_timeout(&mut self, now: Now) {
        let due: Vec<UpstreamId> = self
            .timers
            .iter()
            .take_while(|(at, _)| *at <= now.up)
            .map(|(_, id)| *id)
            .collect();
        for id in due {
            self.with(now, id, Upstream::handle_timeout);
        }
        self.rest_idle(now);
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        self.io.pop_front()
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let timer = self
            .timers
            .first()
            .map(|(at, _)| Deadline::new(*at, "an upstream server"));
        let idle = self
            .idle
            .first()
            .map(|(at, _)| Deadline::new(*at, "idle runtime"));
        Deadline::earlier(timer, idle)
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        let id = self.wires_of.get(&wire)?;
        self.slots.get_mut(id)?.upstream.outgoing(wire)
    }
}
