//! The side of local tools: what the embedding program answers itself, by polling.

use std::collections::{BTreeMap, BTreeSet};

use super::doors::Clients;
use super::ledger::Place;
use super::{Hub, HubEvent};
use crate::audit::Outcome;
use crate::clock::Now;
use crate::codec::shared_text::SharedText;
use crate::gate::GatedCall;
use crate::ids::{CallId, NewestMap, PeerId};
use crate::link::http_rules::{ParamHeader, Principal, param_headers};
use crate::local::{CallFacts, Local, LocalAnswer, LocalOutput, LocalReply, Registry};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::revision::Revision;
use crate::protocol::server::{Answer, AskKey, RequestKey, Whose};

/// What the embedding program offers.
#[derive(Debug)]
pub struct LocalConfig {
    /// Tools, resources, prompts.
    pub registry: Registry,
    /// Seals the states of requests that take several rounds. Instances that share it can serve each
    /// other's rounds. Unit: 32 random bytes.
    pub state_key: [u8; 32],
}

/// See the module page.
#[derive(Debug)]
pub(super) struct LocalSide {
    pub(super) desk: Local,
    /// What is known of each call that the gate or the desk has.
    facts: NewestMap<CallId, Facts>,
    /// Which question of which call each request to a client is.
    asked: BTreeMap<(PeerId, AskKey), (CallId, String)>,
    /// Headers that repeat arguments, by tool.
    param_headers: BTreeMap<String, Vec<ParamHeader>>,
    param_headers_max: usize,
}

/// What the hub knows of a request beside its method.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) client: PeerId,
    pub(super) revision: Revision,
    /// Of a client over HTTP.
    pub(super) principal: Option<Principal>,
    pub(super) client_capabilities: SharedText,
    pub(super) wants_progress: bool,
    pub(super) params: Option<SharedText>,
}

/// A client on a line has no name but itself.
fn name_of(principal: Option<&Principal>) -> &str {
    principal.map_or("", Principal::as_str)
}

impl Facts {
    fn borrowed(&self) -> CallFacts<'_> {
        CallFacts {
            client: self.client,
            revision: self.revision,
            principal: name_of(self.principal.as_ref()),
            client_capabilities: &self.client_capabilities,
            wants_progress: self.wants_progress,
            params: self.params.as_deref(),
        }
    }
}

impl LocalSide {
    pub(super) fn new(config: LocalConfig, limits: &crate::limits::Limits) -> Self {
        let LocalConfig {
            registry,
            state_key,
        } = config;
        let mut side = Self {
            desk: Local::new(registry, state_key, limits),
            facts: NewestMap::new(),
            asked: BTreeMap::new(),
            param_headers: BTreeMap::new(),
            param_headers_max: limits.param_headers_max,
        };
        side.read_headers();
        side
    }

    /// Which headers the tools have; after a change of the registry.
    pub(super) fn read_headers(&mut self) {
        let tools = self
            .desk
            .registry()
            .tool_names()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        self.param_headers.clear();
        for tool in tools {
            let schema = self.desk.registry().input_schema(&tool).unwrap_or("{}");
            // A tool whose headers make no sense has none; its clients leave it out.
            let headers = param_headers(schema, self.param_headers_max).unwrap_or_default();
            if !headers.is_empty() {
                self.param_headers.insert(tool, headers);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn forget_headers(&mut self) {
        self.param_headers.clear();
    }

    pub(super) fn headers_of(&self, tool: &str) -> &[ParamHeader] {
        self.param_headers.get(tool).map_or(&[], Vec::as_slice)
    }

    pub(super) fn remember(&mut self, call: CallId, facts: Facts) {
        self.facts.insert(call, facts);
    }

    /// Whether a call was [remembered](Self::remember) and has no answer.
    pub(super) fn remembers(&self, call: CallId) -> bool {
        self.facts.contains_key(&call)
    }

    pub(super) fn cancel(&mut self, call: CallId) {
        self.facts.remove(&call);
        self.asked.retain(|_, (of, _)| *of != call);
        self.desk.cancel(call);
    }

    /// A call has passed the gate.
    pub(super) fn call(&mut self, now: Now, gated: &GatedCall) {
        if let Some(facts) = self.facts.get(&gated.id()) {
            self.desk.call(now, gated, facts.borrowed());
        }
    }

    pub(super) fn query(&mut self, now: Now, call: CallId, method: &str, facts: Facts) {
        self.desk.query(now, call, method, facts.borrowed());
        self.facts.insert(call, facts);
    }
}

impl Hub {
    /// Answers a [`HubEvent::Local`]. A call that is gone is ignored.
    pub fn resolve_local(&mut self, now: Now, call: CallId, reply: LocalReply) {
        if let Some(local) = &mut self.local {
            local.desk.resolve(now, call, reply, &mut *self.entropy);
        }
        self.settle(now);
    }

    /// Does something with the desk of local tools: progress, log messages, changes of a list. `None`
    /// without one.
    pub fn with_local<R>(&mut self, now: Now, work: impl FnOnce(&mut Local) -> R) -> Option<R> {
        let local = self.local.as_mut()?;
        let done = work(&mut local.desk);
        if local.desk.take_registry_lent() {
            local.read_headers();
            self.reserve_names(now);
        }
        self.settle(now);
        Some(done)
    }

    /// A request that is no tool call.
    pub(super) fn route_query(
        &mut self,
        now: Now,
        peer: PeerId,
        key: RequestKey,
        method: &str,
        facts: Facts,
    ) {
        let Some(local) = &mut self.local else {
            let error = RpcError::method_not_found(method);
            return self.respond(now, peer, key, Answer::Error(&error));
        };
        if method.ends_with("/list") {
            let page = local.desk.list(method, facts.params.as_deref());
            let page = page.map(std::borrow::Cow::into_owned);
            return match page {
                Ok(page) => self.respond(now, peer, key, Answer::List(&page)),
                Err(error) => self.respond(now, peer, key, Answer::Error(&error)),
            };
        }
        if let Err(error) = self.check_room() {
            return self.respond(now, peer, key, Answer::Error(&error));
        }
        let Some(local) = &mut self.local else { return };
        let call = self.ledger.open(peer, key);
        self.ledger.moved(
            call,
            if method == "resources/read" {
                Place::Reading
            } else {
                Place::Local
            },
        );
        local.query(now, call, method, facts);
    }

    /// A client of the handshake era has answered a question.
    pub(super) fn route_client_answer(
        &mut self,
        now: Now,
        peer: PeerId,
        ask: AskKey,
        outcome: Result<Box<str>, Box<str>>,
    ) {
        let Some(outcome) = self.answer_server(now, peer, ask, outcome) else {
            return;
        };
        let Some(local) = &mut self.local else { return };
        if let Some((call, key)) = local.asked.remove(&(peer, ask)) {
            local.desk.handle_answer(now, call, &key, outcome);
        }
    }

    #[inline(never)]
    pub(super) fn step_local(&mut self, now: Now) -> bool {
        let mut moved = false;
        while let Some(output) = self.local.as_mut().and_then(|local| local.desk.poll()) {
            moved = true;
            self.route_local_output(now, output);
        }
        moved
    }

    fn route_local_output(&mut self, now: Now, output: LocalOutput) {
        match output {
            LocalOutput::Ask(request) if self.plugins.owns(&request.kind) => {
                self.run_plugin(now, request);
            }
            LocalOutput::Ask(request) => self.events.push_back(HubEvent::Local(request)),
            LocalOutput::Cancelled(call) => {
                if !self.drop_plugin(call) {
                    self.events.push_back(HubEvent::LocalCancelled(call));
                }
            }
            LocalOutput::AskClient {
                call,
                key,
                method,
                params,
            } => {
                let entry = self.ledger.entry(call);
                let ask = entry.and_then(|entry| {
                    self.with_peer(now, entry.peer, |peer, sink| {
                        peer.ask(Whose::Request(entry.key), method, Some(&params), sink)
                    })
                    .flatten()
                    .map(|ask| (entry.peer, ask))
                });
                let Some(local) = &mut self.local else { return };
                match ask {
                    Some(ask) => {
                        local.asked.insert(ask, (call, key));
                    }
                    None => {
                        let error =
                            RpcError::new(ErrorCode::InternalError, "the client cannot be asked");
                        let error = format!(
                            r#"{{"code":{},"message":"{}"}}"#,
                            error.code.number(),
                            error.message
                        );
                        local.desk.handle_answer(now, call, &key, Err(error.into()));
                    }
                }
            }
            LocalOutput::Answer { call, answer } => {
                self.answer_local(now, call, &answer);
                if let Some(local) = &mut self.local {
                    local.desk.recycle(answer);
                }
            }
            LocalOutput::Progress {
                call,
                progress,
                total,
                message,
            } => {
                self.of_call(now, call, |peer, key, sink| {
                    peer.progress(key, progress, total, &message, sink)
                });
            }
            LocalOutput::Log {
                call,
                level,
                logger,
                data,
            } => {
                self.of_call(now, call, |peer, key, sink| {
                    peer.log_for(key, level, &logger, &data, sink)
                });
            }
            LocalOutput::CloseStream { call } => {
                if let Some(entry) = self.ledger.entry(call) {
                    self.http.release_stream(now, entry.peer, entry.key);
                }
            }
            LocalOutput::NotifyClient {
                call,
                method,
                params,
            } => {
                self.of_call(now, call, |peer, _, sink| peer.notify(method, params, sink));
            }
            LocalOutput::ListChanged(list) => {
                for id in self.all_peers() {
                    self.with_peer(now, id, |peer, sink| peer.list_changed(list, sink));
                }
            }
            LocalOutput::ResourceUpdated(uri) => {
                for id in self.all_peers() {
                    self.with_peer(now, id, |peer, sink| peer.resource_updated(&uri, sink));
                }
            }
            LocalOutput::TaskChanged { task } => {
                for id in self.all_peers() {
                    self.tell_of_task(now, id, &task);
                }
            }
        }
    }

    /// A client wants to listen to tasks: those that are its own.
    pub(super) fn listen_to_tasks(
        &mut self,
        now: Now,
        peer: PeerId,
        key: RequestKey,
        tasks: BTreeSet<String>,
        client_capabilities: &str,
    ) {
        let Some(local) = &self.local else { return };
        let principal = self.http.principal_of(peer);
        let principal = name_of(principal.as_ref());
        let granted = local
            .desk
            .grant_tasks(tasks, principal, client_capabilities);
        let tasks = match granted {
            Ok(tasks) => tasks,
            Err(error) => return self.respond(now, peer, key, Answer::Error(&error)),
        };
        self.with_peer(now, peer, |peer, sink| {
            peer.listen_to_tasks(key, tasks.clone(), sink)
        });
        self.tell_of_ended_tasks(now, peer, key, tasks.iter().map(String::as_str));
    }

    /// Tells a stream that has begun of those of its tasks that have ended: they change no more, and their
    /// listener would wait for ever.
    pub(super) fn tell_of_ended_tasks<'a>(
        &mut self,
        now: Now,
        peer: PeerId,
        key: RequestKey,
        tasks: impl Iterator<Item = &'a str>,
    ) {
        let Some(local) = &self.local else { return };
        let ended = |task: &&str| local.desk.task_has_ended(task);
        let ended: Vec<&str> = tasks.filter(ended).collect();
        for task in ended {
            self.tell_stream_of_task(now, peer, key, task);
        }
    }

    /// Whether a task is one of the program, made for this client.
    pub(super) fn is_own_task(&self, peer: PeerId, task: &str) -> bool {
        let principal = self.http.principal_of(peer);
        let name = name_of(principal.as_ref());
        let local = self.local.as_ref();
        local.is_some_and(|local| local.desk.task(task, name).is_some())
    }

    fn tell_of_task(&mut self, now: Now, peer: PeerId, task: &str) {
        for key in self.listening_to_task(peer, task) {
            self.tell_stream_of_task(now, peer, key, task);
        }
    }

    /// The streams of a client that are to hear of a task. A client that does not read is left out: it may ask
    /// for the task whenever it likes.
    pub(super) fn listening_to_task(&self, peer: PeerId, task: &str) -> Vec<RequestKey> {
        let backed_up = |key: &RequestKey| match self.lines.get(&peer) {
            Some(client) => client.link.is_backed_up(),
            None => self.http.is_backed_up(peer, *key),
        };
        let of_peer = self.peer(peer).into_iter();
        let streams = of_peer.flat_map(|peer| peer.listening_to_task(task));
        streams.filter(|key| !backed_up(key)).collect()
    }

    fn tell_stream_of_task(&mut self, now: Now, peer: PeerId, key: RequestKey, task: &str) {
        let Some(local) = &self.local else { return };
        let principal = self.http.principal_of(peer);
        if let Some(state) = local.desk.task(task, name_of(principal.as_ref())) {
            self.with_peer(now, peer, |peer, sink| {
                peer.task_changed(key, task, &state, sink);
            });
        }
    }

    /// Runs a call of a tool that answers within the turn: from the bytes of the call into those of the
    /// answer. False for any other tool.
    pub(super) fn answer_in_place(&mut self, now: Now, gated: &GatedCall) -> bool {
        let call = gated.id();
        let Some(LocalSide { desk, facts, .. }) = &mut self.local else {
            return false;
        };
        let Some(revision) = facts.get(&call).map(|facts| facts.revision) else {
            return false;
        };
        let Some(write) = desk.in_place(gated, revision) else {
            return false;
        };
        facts.remove(&call);
        let Some(entry) = self.ledger.close(call) else {
            return true;
        };
        let clients = Clients {
            lines: &mut self.lines,
            http: &mut self.http,
            dirty: &mut self.dirty,
        };
        let mut outcome = Outcome::Ok;
        clients.speak(now, entry.peer, |peer, sink| {
            peer.respond_in_place(entry.key, sink, |out| {
                if write(out) {
                    outcome = Outcome::IsError;
                }
            });
        });
        if let Some(trail) = &mut self.trail {
            trail.ended(now, call, || outcome);
        }
        true
    }

    fn answer_local(&mut self, now: Now, call: CallId, answer: &LocalAnswer) {
        if let Some(local) = &mut self.local {
            local.facts.remove(&call);
            local.asked.retain(|_, (of, _)| *of != call);
        }
        let Some(entry) = self.ledger.entry(call) else {
            return;
        };
        let answer = match answer {
            // What was read may be kept for a while, like lists.
            LocalAnswer::Result(result) if entry.place == Place::Reading => Answer::List(result),
            LocalAnswer::Result(result) => Answer::Result(result),
            LocalAnswer::Plain(result) => Answer::Plain(result),
            LocalAnswer::Typed(kind, result) => Answer::Typed(kind, result),
            LocalAnswer::Error(error) => Answer::Error(error),
        };
        self.conclude(now, call, answer);
    }
}
