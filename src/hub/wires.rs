//! The hub as its loop sees it: whose each wire is, and what becomes of what happens there.

use super::Hub;
use super::span;
use crate::clock::{Deadline, Now};
use crate::codec::outbuf::OutBuf;
use crate::ids::{CallId, PeerId, WireId};
use crate::link::command::CommandRun;
use crate::link::{Driven, IoEvent, IoRequest};

/// Whose a wire is. Those of upstream servers are known by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Lines(PeerId),
    Http,
    /// Of a Unix socket.
    Listener,
    Gateway,
    Hook(CallId),
    Plugin(CallId),
}

impl Hub {
    pub(super) const fn mint_wire(&mut self) -> WireId {
        let wire = self.next_wire;
        self.next_wire = wire.next();
        wire
    }
}

impl Driven for Hub {
    fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>) {
        // One in two inputs under load, and nobody waits for it.
        let drained = matches!(event, IoEvent::Drained) && self.ending.is_none();
        if wire >= span::FIRST_WIRE {
            if let Some(side) = &mut self.upstream {
                side.manager.handle_io(now, wire, event);
                if drained && side.manager.is_quiet() {
                    return;
                }
            }
            return self.settle(now);
        }
        match self.wires.get(&wire).copied() {
            Some(Owner::Lines(peer)) if drained && self.is_unmoved_by_drain(peer) => return,
            Some(Owner::Lines(peer)) => self.handle_lines(now, peer, event),
            Some(Owner::Http) => {
                if drained && self.http.is_drained_unmoved(now, wire) {
                    return;
                }
                self.handle_http(now, wire, event);
            }
            Some(Owner::Listener) => {
                if let IoEvent::Failed(fault) = event {
                    self.listen_failed(wire, fault);
                }
            }
            Some(Owner::Gateway) => {
                if let Some(gateway) = &mut self.gateway {
                    gateway.wire.handle_io(now, event);
                }
            }
            Some(Owner::Hook(call)) => {
                if let Some(run) = self.hooks.get_mut(&call) {
                    run.handle_io(now, event);
                }
            }
            Some(Owner::Plugin(call)) => {
                if let Some(run) = self.plugins.run_mut(call) {
                    run.handle_io(now, event);
                }
            }
            None => {}
        }
        self.settle(now);
    }

    fn handle_accept(&mut self, now: Now, listener: WireId, peer: &str) -> Option<WireId> {
        if self.ending.is_none() && self.sockets.is_listener(listener) {
            return Some(self.accept_socket(now, peer));
        }
        // Some more than the limit get in, to be told so.
        if self.ending.is_some() || !self.http.is_listener(listener) || self.http.is_packed() {
            return None;
        }
        let wire = self.mint_wire();
        self.wires.insert(wire, Owner::Http);
        self.http.accept(now, wire);
        self.settle(now);
        Some(wire)
    }

    fn handle_timeout(&mut self, now: Now) {
        while let Some(refused) = self.gate.poll_expired(now) {
            self.route_passage(now, refused);
        }
        self.handle_waits_timeout(now);
        for run in self.hooks.values_mut() {
            run.handle_timeout(now);
        }
        self.plugins.handle_timeout(now);
        if let Some(gateway) = &mut self.gateway {
            gateway.wire.handle_timeout(now);
            gateway.session.handle_timeout(now, &mut *self.entropy);
        }
        if let Some(local) = &mut self.local {
            local.desk.handle_timeout(now);
        }
        self.upstream_timeout(now);
        self.bridge.handle_timeout(now);
        self.http.handle_timeout(now);
        self.hurry_ended_clients(now);
        self.settle(now);
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        let request = self.io.pop_front();
        if request.is_none() {
            self.sockets.requests_are_done();
        }
        request
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let mut first = Deadline::earlier(self.ending_deadline(), self.http.next_deadline());
        if let Some(gateway) = &self.gateway {
            first = Deadline::earlier(first, gateway.wire.next_deadline());
            first = Deadline::earlier(first, gateway.session.next_deadline());
        }
        if let Some(local) = &self.local {
            first = Deadline::earlier(first, local.desk.next_deadline());
        }
        if let Some(side) = &self.upstream {
            first = Deadline::earlier(first, side.next_deadline());
            first = Deadline::earlier(first, side.openings.next_deadline());
        }
        first = Deadline::earlier(first, self.plugins.next_deadline());
        first = Deadline::earlier(first, self.bridge.next_deadline());
        first = Deadline::earlier(first, self.gate.next_deadline());
        first = Deadline::earlier(first, self.waits.next_deadline());
        let hooks = self.hooks.values().map(CommandRun::next_deadline);
        hooks.fold(first, Deadline::earlier)
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        if wire >= span::FIRST_WIRE {
            return self.upstream.as_mut()?.manager.outgoing(wire);
        }
        let Some(owner) = self.wires.get(&wire) else {
            return self.sockets.outgoing(wire);
        };
        match owner {
            Owner::Listener => None,
            Owner::Lines(peer) => self
                .lines
                .get_mut(peer)
                .map(|client| client.link.outgoing()),
            Owner::Http => self.http.outgoing(wire),
            Owner::Gateway => self
                .gateway
                .as_mut()
                .and_then(|gateway| gateway.wire.outgoing(wire)),
            Owner::Hook(call) => self.hooks.get_mut(call).map(CommandRun::outgoing),
            Owner::Plugin(call) => self.plugins.run_mut(*call).map(CommandRun::outgoing),
        }
    }
}
