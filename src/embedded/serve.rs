//! From what a connection hears to what it is answered.
//!
//! A text is a frame, a frame is `connect` or a method, and a method leads to an answer now or to
//! one that waits for somebody's decision. Every request gets one answer; one that said `twoPhase`
//! gets two.

use serde_json::value::RawValue;

use super::connection::{Connection, Heard};
use super::frame::RequestFrame;
use super::journal::ApprovalKind;
use super::params::Params;
use super::refusal::Refusal;
use super::rpc::{self, Answer, Desk};
use super::{EmbeddedEvent, EmbeddedGateway, Waiting, connect, hello};
use crate::clock::Now;
use crate::entropy::uuid_v4;
use crate::ids::WireId;

impl EmbeddedGateway {
    /// Reads what all connections have heard; what one says may be news for the others.
    pub(super) fn settle(&mut self, now: Now) {
        loop {
            let wires: Vec<_> = self.connections.keys().copied().collect();
            let mut heard_any = false;
            for wire in wires {
                while let Some(heard) = self
                    .connections
                    .get_mut(&wire)
                    .and_then(Connection::poll_heard)
                {
                    heard_any = true;
                    self.heard(now, wire, heard);
                }
            }
            if !heard_any {
                return;
            }
        }
    }

    fn heard(&mut self, now: Now, wire: WireId, heard: Heard) {
        match heard {
            Heard::Up => {
                let nonce = uuid_v4(&mut *self.entropy);
                if let Some(connection) = self.connections.get_mut(&wire) {
                    connection.challenge(now, nonce);
                }
            }
            Heard::Text(text) => self.text(now, wire, &text),
            Heard::Closed { why, served } => {
                self.waiting.retain(|waiting| waiting.wire != wire);
                let Some(mut connection) = self.connections.remove(&wire) else {
                    return;
                };
                while let Some(request) = connection.poll_io() {
                    self.requests.push_back(request);
                }
                let peer = connection.peer;
                self.tell(if served {
                    EmbeddedEvent::ClientGone { peer, why }
                } else {
                    EmbeddedEvent::ClientRefused { peer, why }
                });
            }
        }
    }

    fn text(&mut self, now: Now, wire: WireId, text: &str) {
        let Some(connection) = self.connections.get_mut(&wire) else {
            return;
        };
        let frame = RequestFrame::read(text, self.limits.id_bytes_max);
        match (frame, connection.client().is_some()) {
            (Ok(frame), true) => self.request(now, wire, &frame.id, &frame.method, frame.params),
            (Ok(frame), false) => self.connect(now, wire, &frame),
            (Err(id), true) => {
                let refusal = Refusal::invalid("invalid request frame");
                connection.respond(id.as_deref().unwrap_or("invalid"), &Err(refusal));
            }
            (Err(_), false) => connection.close(now, 1008, "invalid request frame"),
        }
    }

    fn connect(&mut self, now: Now, wire: WireId, frame: &RequestFrame<'_>) {
        let Some(connection) = self.connections.get_mut(&wire) else {
            return;
        };
        let Some(nonce) = connection.nonce().map(str::to_owned) else {
            return; // On its way out.
        };
        let admitted = if frame.method == "connect" {
            Params::read("connect", frame.params)
                .map_err(Into::into)
                .and_then(|params| {
                    let (store, entropy) = (&mut self.store, &mut *self.entropy);
                    connect::admit(
                        store,
                        &self.config.credentials,
                        &nonce,
                        &params,
                        now,
                        entropy,
                    )
                })
        } else {
            Err(Refusal::invalid("invalid handshake: first request must be connect").into())
        };
        match admitted {
            Ok(client) => {
                let conn_id = uuid_v4(&mut *self.entropy);
                let tick = self.config.tick_interval;
                let hello = hello::hello(&self.store, &client, &conn_id, tick, &self.limits, now);
                let event = EmbeddedEvent::ClientConnected {
                    name: client.name.clone(),
                    device: client.device.clone(),
                    peer: connection.peer.clone(),
                };
                connection.welcome(now, &frame.id, hello, client, tick, &self.limits);
                self.tell(event);
            }
            Err(turned) => {
                let reason = turned.refusal.message.clone();
                connection.respond(&frame.id, &Err(turned.refusal));
                connection.close(now, turned.close_code, &reason);
            }
        }
    }

    fn request(
        &mut self,
        now: Now,
        wire: WireId,
        id: &str,
        method: &str,
        params: Option<&RawValue>,
    ) {
        let Some(caller) = self.connections.get(&wire).and_then(Connection::caller) else {
            return;
        };
        let mut desk = Desk {
            store: &mut self.store,
            entropy: &mut *self.entropy,
            limits: &self.limits,
            store_label: self.config.store_label(),
            now,
            caller,
            waiting: self.waiting.iter().filter(|w| w.wire == wire).count(),
        };
        let outcome = match rpc::call(&mut desk, method, params) {
            Ok(outcome) => outcome,
            Err(refusal) => return self.respond(wire, id, &Err(refusal)),
        };
        for news in outcome.news.iter().filter(|news| news.before_answer()) {
            self.spread(now, news, Some(wire));
        }
        if let (Some(subscribed), Some(connection)) =
            (outcome.subscribe, self.connections.get_mut(&wire))
        {
            connection.set_subscribed(subscribed);
        }
        match outcome.answer {
            Answer::Now(payload) => self.respond(wire, id, &Ok(payload)),
            Answer::Decided {
                kind,
                id: approval,
                accepted,
            } => self.wait(wire, id, kind, approval, accepted),
        }
        for news in outcome.news.iter().filter(|news| !news.before_answer()) {
            self.spread(now, news, Some(wire));
        }
    }

    /// Keeps a request open until somebody decides.
    fn wait(
        &mut self,
        wire: WireId,
        request: &str,
        kind: ApprovalKind,
        id: String,
        accepted: Option<String>,
    ) {
        if let Some(accepted) = accepted {
            self.respond(wire, request, &Ok(accepted));
        }
        self.waiting.push(Waiting {
            wire,
            request: request.to_owned(),
            kind,
            id,
        });
    }

    /// Answers those who wait for this approval; `None` when its time ran out.
    pub(super) fn decided(&mut self, kind: ApprovalKind, id: &str, payload: &str) {
        let is_meant = |waiting: &Waiting| waiting.kind == kind && waiting.id == id;
        let (meant, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(is_meant);
        self.waiting = others;
        for waiting in meant {
            self.respond(waiting.wire, &waiting.request, &Ok(payload.to_owned()));
        }
    }

    pub(super) fn respond(&mut self, wire: WireId, id: &str, outcome: &Result<String, Refusal>) {
        if let Some(connection) = self.connections.get_mut(&wire) {
            connection.respond(id, outcome);
        }
    }
}
