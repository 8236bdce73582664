//! The Gateway's side: a session, the wire below it, and whose requests are open there.

use std::collections::BTreeMap;

use super::gateway_wire::{GatewayWire, WireEvent};
use super::{Hub, HubEvent, Outcome, Owner};
use crate::bridge::Ticket;
use crate::clock::Now;
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::gateway::session::{GatewaySession, SessionOutput};
use crate::ids::GatewayRequestId;

/// See the module page.
#[derive(Debug)]
pub(super) struct GatewaySide {
    pub(super) session: GatewaySession,
    pub(super) wire: GatewayWire,
    /// Which request of the bridge each request to the Gateway is.
    pub(super) tickets: BTreeMap<GatewayRequestId, Ticket>,
}

impl Hub {
    #[inline(never)]
    pub(super) fn step_gateway(&mut self, now: Now) -> bool {
        let mut moved = false;
        let Some(GatewaySide { session, wire, .. }) = &mut self.gateway else {
            return false;
        };
        while let Some(event) = wire.poll_event() {
            moved = true;
            if let (WireEvent::Text(text), true) = (&event, self.tap) {
                let text = text.clone();
                self.events.push_back(HubEvent::GatewayFrame {
                    received: true,
                    text,
                });
            }
            event.tell(session, now, &mut *self.entropy);
        }
        while let Some(output) = self
            .gateway
            .as_mut()
            .and_then(|gateway| gateway.session.poll())
        {
            moved = true;
            self.route_session_output(now, output);
        }
        if let Some(gateway) = &mut self.gateway {
            while let Some(request) = gateway.wire.poll_io() {
                self.io.push_back(request);
            }
        }
        moved
    }

    fn route_session_output(&mut self, now: Now, output: SessionOutput) {
        let next_wire = self.next_wire;
        let Some(gateway) = &mut self.gateway else {
            return;
        };
        match output {
            SessionOutput::Open => {
                self.next_wire = next_wire.next();
                self.wires.retain(|_, owner| *owner != Owner::Gateway);
                self.wires.insert(next_wire, Owner::Gateway);
                self.bridge.handle_connecting(gateway.session.trouble());
                gateway.wire.open(next_wire, &mut *self.entropy, now);
            }
            SessionOutput::Send(text) => {
                let sent = gateway.wire.send_text(&text);
                if sent.is_err() {
                    gateway.wire.abort();
                }
                if self.tap {
                    self.events.push_back(HubEvent::GatewayFrame {
                        received: false,
                        text,
                    });
                }
                if let Err(full) = sent {
                    let message = format!("gateway is not reading: {full}");
                    self.diagnose(Diagnostic::new(Level::Warning, Subject::Gateway, message));
                }
            }
            SessionOutput::Close { code, reason } => gateway.wire.close(now, code, &reason),
            SessionOutput::Abort => gateway.wire.abort(),
            SessionOutput::HelloAccepted => gateway.wire.hello_accepted(),
            SessionOutput::Ready { first } => self.bridge.handle_ready(now, first),
            SessionOutput::Lost { why, .. } => self.bridge.handle_lost(now, &why),
            SessionOutput::Refused(refusal) => self.end(now, Outcome::Refused(refusal)),
            SessionOutput::Response { id, outcome } => {
                if let Some(ticket) = gateway.tickets.remove(&id) {
                    self.bridge.handle_response(now, ticket, outcome);
                }
            }
            SessionOutput::Event { name, payload } => self.bridge.handle_event(now, &name, payload),
            SessionOutput::StoreToken(token) => self.events.push_back(HubEvent::StoreToken(token)),
            SessionOutput::ForgetToken => self.events.push_back(HubEvent::ForgetToken),
            SessionOutput::Diagnostic(diagnostic) => self.diagnose(diagnostic),
        }
    }
}
