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
    pub(super) fn step_gateway(&mut self, now: Now) -> bool {
        let mut moved = false;
        let GatewaySide { session, wire, .. } = &mut self.gateway;
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
        while let Some(output) = self.gateway.session.poll() {
            moved = true;
            self.route_session_output(now, output);
        }
        while let Some(request) = self.gateway.wire.poll_io() {
            self.io.push_back(request);
        }
        moved
    }

    pub(super) fn route_session_output(&mut self, now: Now, output: SessionOutput) {
        match output {
            SessionOutput::Open => {
                self.wires.retain(|_, owner| *owner != Owner::Gateway);
                let wire = self.mint_wire();
                self.wires.insert(wire, Owner::Gateway);
                self.gateway.wire.open(wire, &mut *self.entropy, now);
            }
            SessionOutput::Send(text) => {
                if self.tap {
                    let text = text.clone();
                    self.events.push_back(HubEvent::GatewayFrame {
                        received: false,
                        text,
                    });
                }
                if let Err(full) = self.gateway.wire.send_text(&text) {
                    let message = format!("gateway is not reading: {full}");
                    self.diagnose(Diagnostic::new(Level::Warning, Subject::Gateway, message));
                    self.gateway.wire.abort();
                }
            }
            SessionOutput::Close { code, reason } => self.gateway.wire.close(now, code, &reason),
            SessionOutput::Abort => self.gateway.wire.abort(),
            SessionOutput::HelloAccepted => self.gateway.wire.hello_accepted(),
            SessionOutput::Ready { first } => self.bridge.handle_ready(now, first),
            SessionOutput::Lost { why, .. } => self.bridge.handle_lost(now, &why),
            SessionOutput::Refused(refusal) => self.end(now, Outcome::Refused(refusal)),
            SessionOutput::Response { id, outcome } => {
                if let Some(ticket) = self.gateway.tickets.remove(&id) {
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
