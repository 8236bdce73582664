//! A request's way: from a client to the gate, from the gate to whoever runs the call, and back.

use std::borrow::Cow;

use super::approvals::is_private;
use super::ledger::Place;
use super::local_side::Facts;
use super::span::Subscribing;
use super::{Hub, HubEvent, Owner};
use crate::bridge::{Bridge, BridgeOutput};
use crate::clock::Now;
use crate::codec::shared_text::SharedText;
use crate::gate::{Decider, Decision, GatedCall, Passage, Question, Refused, ToolCall};
use crate::ids::{CallId, PeerId};
use crate::link::command::{Bounds, CommandRun};
use crate::manager::catalog::PagedList;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{CallParams, ToolResult};
use crate::protocol::server::{Answer, RequestKey, ServerEvent, ServerPeer, ServerRequest};
use crate::secret::Quoted;

impl Hub {
    pub(super) fn route_server_event(&mut self, now: Now, peer: PeerId, event: ServerEvent) {
        match event {
            ServerEvent::Request(request) => self.route_request(now, peer, request),
            ServerEvent::Opens(key) => self.open_server(now, peer, key),
            ServerEvent::Subscribes { key, uri, on } => {
                let asked = Subscribing { key, uri };
                self.route_subscription(now, peer, asked, on);
            }
            ServerEvent::Listens {
                key,
                topics,
                client_capabilities,
            } => self.route_listening(now, peer, key, topics, &client_capabilities),
            ServerEvent::LogLevel(level) => self.route_log_level(now, peer, level),
            ServerEvent::Notification { method, params } => {
                self.bridge
                    .handle_notification(now, &method, params.as_deref());
                self.tell_servers(now, peer, &method, params.as_deref());
                self.events.push_back(HubEvent::ClientNotification {
                    client: peer,
                    method,
                    params,
                });
            }
            ServerEvent::Cancelled(key) => {
                if self.drop_parked(peer, key) {
                    return;
                }
                if let Some(call) = self.ledger.find(peer, key) {
                    self.drop_call(now, call);
                }
                self.subscription_gone(now, peer, key);
            }
            ServerEvent::ListenTasks {
                key,
                tasks,
                client_capabilities,
            } => self.listen_to_tasks(now, peer, key, tasks, &client_capabilities),
            ServerEvent::Answered { ask, outcome } => {
                self.route_client_answer(now, peer, ask, outcome);
            }
        }
    }

    fn route_request(&mut self, now: Now, peer: PeerId, request: ServerRequest) {
        if let Some(request) = self.route_upstream(now, peer, request) {
            self.route_known_request(now, peer, request);
        }
    }

    /// A request that is not to wait for upstream servers.
    pub(super) fn route_known_request(&mut self, now: Now, peer: PeerId, request: ServerRequest) {
        match &*request.method {
            "tools/list" if self.gateway.is_some() => {
                self.serve_own_list(now, peer, PagedList::Tools, &request);
            }
            method if is_private(method) && self.may_see_limits(peer) => {
                self.serve_private(now, peer, &request);
            }
            "logging/setLevel" if !request.revision.is_stateless() => {
                self.set_own_level(now, peer, &request);
            }
            "tools/call" => {
                let (key, facts) = (request.key, self.facts_of(peer, &request));
                match tool_call(request) {
                    Ok(call) => self.route_call(now, peer, key, call, facts),
                    Err(error) => self.respond(now, peer, key, Answer::Error(&error)),
                }
            }
            _ => {
                let (key, method) = (request.key, request.method.clone());
                let facts = self.facts_of(peer, &request);
                self.route_query(now, peer, key, &method, facts);
            }
        }
    }

    /// What is known of a request beside its method.
    pub(super) fn facts_of(&self, peer: PeerId, request: &ServerRequest) -> Facts {
        let of_session = || self.peer(peer)?.client_capabilities().cloned();
        Facts {
            client: peer,
            revision: request.revision,
            client_capabilities: request
                .client_capabilities
                .clone()
                .or_else(of_session)
                .unwrap_or(SharedText::fixed("{}")),
            principal: self.http.principal_of(peer),
            wants_progress: request.wants_progress,
            params: request.params.clone(),
        }
    }

    fn route_call(
        &mut self,
        now: Now,
        peer: PeerId,
        key: RequestKey,
        mut call: ToolCall,
        facts: Facts,
    ) {
        let ours = self.is_bridged(&call.tool);
        let local = !ours
            && self
                .local
                .as_ref()
                .is_some_and(|local| local.desk.owns(&call.tool));
        let upstream = match ours || local {
            true => None,
            false => self.upstream_server_of(peer, &call.tool),
        };
        let locked_out = match (ours || local, &upstream) {
            (false, None) => self.locked_out(peer, &call.tool),
            _ => None,
        };
        if !ours && !local && upstream.is_none() && locked_out.is_none() {
            // The channel tools keep OpenClaw's way of saying so. Spec: -32602 for everybody else.
            if self.gateway.is_some() {
                let result = ToolResult::error(&crate::bridge::not_found(&call.tool));
                return self.respond(now, peer, key, Answer::Result(result.as_json()));
            }
            let text = format!("Unknown tool: {}", Quoted(&call.tool));
            let error = RpcError::new(ErrorCode::InvalidParams, text);
            return self.respond(now, peer, key, Answer::Error(&error));
        }
        let foreign = upstream
            .as_ref()
            .and_then(|server| self.foreign_state(peer, server, &facts));
        if let Some(error) = foreign {
            return self.respond(now, peer, key, Answer::Error(&error));
        }
        if let Err(error) = self.check_room() {
            return self.respond(now, peer, key, Answer::Error(&error));
        }
        call.id = self.ledger.open(peer, key);
        if upstream.is_some() {
            self.remember_asker(call.id, Cow::Borrowed("tools/call"), &facts);
        }
        let of_upstream = upstream.as_ref();
        call.server = match of_upstream.or(locked_out.as_ref().map(|(server, _)| server)) {
            Some(server) => server.0.clone(),
            None if ours => SharedText::fixed("openclaw"),
            None => SharedText::fixed("local"),
        };
        let caller = self.peer(peer).map(ServerPeer::client_name);
        call.caller = caller.cloned().unwrap_or_default();
        call.principal = self.principal(peer);
        if let (true, Some(side)) = (local && !ours, &mut self.local) {
            side.remember(call.id, facts);
        }
        if let Some(trail) = &mut self.trail {
            trail.begin(now, &call);
        }
        if let Some((_, reason)) = locked_out {
            let decision = Decision {
                by: Decider::Lock,
                ..Decision::default()
            };
            return self.refuse(
                now,
                &Refused {
                    call,
                    reason,
                    decision,
                },
            );
        }
        self.tag_holds();
        let passage = self.gate.admit(now, call);
        self.route_passage(now, passage);
    }

    /// Whether one more call may be opened.
    pub(super) fn check_room(&self) -> Result<(), RpcError> {
        let limit = self.limits.calls_open_max;
        let text = if self.ending.is_some() {
            "drawspan is shutting down".to_owned()
        } else if self.ledger.len() >= limit {
            format!("busy: {limit} calls are open, limit {limit} (calls_open_max)")
        } else {
            return Ok(());
        };
        Err(RpcError::new(ErrorCode::InternalError, text))
    }

    pub(super) fn route_passage(&mut self, now: Now, passage: Passage) {
        match passage {
            Passage::Open(gated) => self.permit(now, gated),
            Passage::Refused(refused) => self.refuse(now, &refused),
            Passage::Ask(call, Question::Person { title, description }) => {
                self.events.push_back(HubEvent::GateAsked {
                    call,
                    title,
                    description,
                });
            }
            Passage::Ask(call, Question::Hook { input }) => {
                let Some(hook) = &self.hook else { return };
                let usual = (self.limits.hook_timeout, "hook_timeout_ms");
                let bounds = Bounds {
                    timeout: hook.timeout.map_or(usual, |time| (time, "timeoutMs")),
                    output_bytes_max: (self.limits.hook_output_bytes_max, "hook_output_bytes_max"),
                };
                let command = hook.command.clone();
                let wire = self.mint_wire();
                self.wires.insert(wire, Owner::Hook(call));
                self.hooks
                    .insert(call, CommandRun::new(wire, command, &input, bounds, now));
            }
        }
    }

    /// Runs a call that has passed.
    pub(super) fn run(&mut self, now: Now, gated: GatedCall) {
        if self.answer_in_place(now, &gated) {
            return;
        }
        if let Some(local) = &mut self.local {
            if local.remembers(gated.id()) {
                self.ledger.moved(gated.id(), Place::Local);
                return local.call(now, &gated);
            }
        }
        if !self.is_bridged(gated.tool()) && self.upstream.is_some() {
            return self.call_upstream(now, gated);
        }
        self.ledger.moved(gated.id(), Place::Bridge);
        self.bridge.call(now, gated, &mut *self.entropy);
    }

    pub(super) fn is_bridged(&self, tool: &str) -> bool {
        self.gateway.is_some() && Bridge::owns(tool)
    }

    pub(super) fn stop_work(&mut self, now: Now, call: CallId, place: Place) {
        if let Some(local) = &mut self.local {
            local.cancel(call);
        }
        if self.upstream.is_some() {
            self.end_questions_of(now, call, "the client took its call back");
        }
        match place {
            Place::Gate => {
                self.gate.cancel(call);
                self.drop_hook(call);
            }
            Place::Bridge => self.bridge.cancel(call),
            Place::Local | Place::Reading => {}
            Place::Opening => {
                if let Some(side) = &mut self.upstream {
                    side.openings.forget(call);
                }
            }
            Place::Upstream | Place::UpstreamRead | Place::UpstreamOther | Place::Parked => {}
        }
        if let Some(side) = &mut self.upstream {
            side.cancel(now, call);
        }
    }

    #[inline(never)]
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
                    if let Some(gateway) = &mut self.gateway {
                        let id = gateway.session.request(now, method, &params);
                        gateway.tickets.insert(id, ticket);
                    }
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
                BridgeOutput::Decide {
                    call,
                    id,
                    answer,
                    by,
                } => self.decide_for_bridge(now, call, &id, (answer, &by)),
                BridgeOutput::Diagnostic(diagnostic) => self.diagnose(diagnostic),
            }
        }
        moved
    }

    pub(super) fn answer(&mut self, now: Now, call: CallId, result: &ToolResult) {
        self.conclude(now, call, Answer::Result(result.as_json()));
    }
}

/// The call that a request asks for.
fn tool_call(request: ServerRequest) -> Result<ToolCall, RpcError> {
    let params = request.params;
    let (tool, arguments) = match (request.name, request.arguments) {
        (Some(name), None) => (name, SharedText::fixed("{}")),
        (Some(name), Some(object)) if object.starts_with('{') => (name, object),
        // Refused, in most cases; this says why.
        _ => {
            let CallParams { name, arguments } = CallParams::read(params.as_deref())?;
            (name.as_ref().into(), arguments.unwrap_or("{}").into())
        }
    };
    Ok(ToolCall {
        tool,
        arguments,
        params,
        wants_progress: request.wants_progress,
        ..ToolCall::default()
    })
}
