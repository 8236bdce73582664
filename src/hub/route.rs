//! A request's way: from a client to the gate, from the gate to whoever runs the call, and back.

use super::ledger::Place;
use super::{Hub, HubEvent, Owner};
use crate::bridge::{Bridge, BridgeOutput};
use crate::clock::Now;
use crate::gate::{Passage, Question, ToolCall};
use crate::ids::{CallId, PeerId};
use crate::link::command::CommandRun;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{CallParams, ToolResult};
use crate::protocol::server::{Answer, RequestKey, ServerEvent, ServerRequest};

impl Hub {
    pub(super) fn route_server_event(&mut self, now: Now, peer: PeerId, event: ServerEvent) {
        match event {
            ServerEvent::Request(request) => self.route_request(now, peer, request),
            ServerEvent::Notification { method, params } => {
                self.bridge
                    .handle_notification(now, &method, params.as_deref());
            }
            ServerEvent::Cancelled(key) => {
                if let Some(call) = self.ledger.find(peer, key) {
                    self.drop_call(call);
                }
            }
            // Nothing behind us asks clients anything yet.
            ServerEvent::Answered { .. } => {}
        }
    }

    pub(super) fn route_request(&mut self, now: Now, peer: PeerId, request: ServerRequest) {
        let ServerRequest {
            key,
            method,
            params,
            wants_progress,
            ..
        } = request;
        match &*method {
            "tools/list" => {
                let tools = std::mem::take(&mut self.tools);
                self.respond(now, peer, key, Answer::List(&tools));
                self.tools = tools;
            }
            "tools/call" => match CallParams::read(params.as_deref()) {
                Ok(call) => self.route_call(now, peer, key, &call, wants_progress),
                Err(error) => self.respond(now, peer, key, Answer::Error(&error)),
            },
            other => self.respond(
                now,
                peer,
                key,
                Answer::Error(&RpcError::method_not_found(other)),
            ),
        }
    }

    pub(super) fn route_call(
        &mut self,
        now: Now,
        peer: PeerId,
        key: RequestKey,
        params: &CallParams<'_>,
        wants_progress: bool,
    ) {
        if !Bridge::owns(&params.name) {
            let result = ToolResult::error(&crate::bridge::not_found(&params.name));
            return self.respond(now, peer, key, Answer::Result(result.as_json()));
        }
        if self.ending.is_some() {
            let error = RpcError::new(ErrorCode::InternalError, "drawspan is shutting down");
            return self.respond(now, peer, key, Answer::Error(&error));
        }
        let caller = self.with_peer(now, peer, |peer, _| peer.client_name().to_owned());
        let call = ToolCall {
            id: self.ledger.open(peer, key),
            tool: params.name.clone().into_owned(),
            arguments: params.arguments.unwrap_or("{}").into(),
            server: "openclaw",
            caller: caller.unwrap_or_default(),
            wants_progress,
        };
        let passage = self.gate.admit(call);
        self.route_passage(now, passage);
    }

    pub(super) fn route_passage(&mut self, now: Now, passage: Passage) {
        match passage {
            Passage::Open(gated) => {
                self.ledger.moved(gated.id(), Place::Bridge);
                self.bridge.call(now, gated, &mut *self.entropy);
            }
            Passage::Refused(call, reason) => self.answer(now, call, &ToolResult::error(&reason)),
            Passage::Ask(call, Question::Person { title, description }) => {
                self.events.push_back(HubEvent::GateAsked {
                    call,
                    title,
                    description,
                });
            }
            Passage::Ask(call, Question::Hook { input }) => {
                let Some(hook) = &self.hook else { return };
                let timeout = hook.timeout.unwrap_or(self.limits.hook_timeout);
                let command = hook.command.clone();
                let wire = self.mint_wire();
                self.wires.insert(wire, Owner::Hook(call));
                self.hooks.insert(
                    call,
                    CommandRun::new(wire, command, &input, timeout, &self.limits, now),
                );
            }
        }
    }

    /// Nobody wants the answer of a call any more.
    pub(super) fn drop_call(&mut self, call: CallId) {
        if let Some(entry) = self.ledger.close(call) {
            self.stop_work(call, entry.place);
        }
    }

    pub(super) fn stop_work(&mut self, call: CallId, place: Place) {
        match place {
            Place::Gate => {
                self.gate.cancel(call);
                self.drop_hook(call);
            }
            Place::Bridge => self.bridge.cancel(call),
        }
    }

    pub(super) fn step_bridge(&mut self, now: Now) -> bool {
        let mut moved = false;
        while let Some(output) = self.bridge.poll() {
            moved = true;
            match output {
                BridgeOutput::Answer { call, result } => self.answer(now, call, &result),
                BridgeOutput::Request {
                    ticket,
                    method,
                    params,
                } => {
                    let id = self.gateway.session.request(now, method, &params);
                    self.gateway.tickets.insert(id, ticket);
                }
                BridgeOutput::Notify { method, params } => self.notify_all(now, method, &params),
                BridgeOutput::Progress {
                    call,
                    progress,
                    total,
                    message,
                } => {
                    if let Some(entry) = self.ledger.entry(call) {
                        self.with_peer(now, entry.peer, |peer, sink| {
                            peer.progress(entry.key, progress, total, &message, sink);
                        });
                    }
                }
                BridgeOutput::Diagnostic(diagnostic) => self.diagnose(diagnostic),
            }
        }
        moved
    }

    pub(super) fn answer(&mut self, now: Now, call: CallId, result: &ToolResult) {
        if let Some(entry) = self.ledger.close(call) {
            self.respond(now, entry.peer, entry.key, Answer::Result(result.as_json()));
        }
    }
}
