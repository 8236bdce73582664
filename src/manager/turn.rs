//! What a manager does with one input: which upstream it concerns, and what follows from it.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::manager::catalog::{Tool, ToolSet, drift};
use crate::manager::lock::Judged;
use crate::manager::naming::SEPARATOR;
use crate::manager::server_config::Transport;
use crate::manager::upstream::Listed;
use crate::protocol::message::member;

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

    fn route(&mut self, now: Now, id: UpstreamId, output: UpstreamOutput) {
        let Some(slot) = self.slots.get(&id) else {
            return;
        };
        let key = slot.key.clone();
        let owners: Vec<RuntimeId> = slot.owners.iter().copied().collect();
        match output {
            UpstreamOutput::Answer { ticket, outcome } => self.conclude(now, ticket, outcome),
            UpstreamOutput::Progress { ticket, params } => {
                if let Some(known) = self.tickets.get(&ticket) {
                    let runtime = known.runtime;
                    self.outputs
                        .push_back(ManagerOutput::Progress { ticket, params });
                    self.touch(now, runtime);
                }
            }
            UpstreamOutput::Notification {
                method,
                params,
                ticket,
            } => {
                for runtime in self.concerned(&owners, ticket) {
                    self.outputs.push_back(ManagerOutput::Notification {
                        runtime,
                        server: key.clone(),
                        method: method.clone(),
                        params: params.clone(),
                        ticket,
                    });
                }
            }
            UpstreamOutput::Question {
                id: question,
                method,
                params,
                ticket,
            } => {
                // A shared server's question that belongs to no call has no one it could be put to.
                let Some(runtime) = self.one_concerned(&owners, ticket) else {
                    if let Some(slot) = self.slots.get_mut(&id) {
                        if !std::mem::replace(&mut slot.asks_nobody, true) {
                            let diagnostic = explain::question_of_no_call(&key, &method);
                            self.tell(&owners[..owners.len().min(1)], &diagnostic);
                        }
                    }
                    let refusal = explain::nobody_to_ask();
                    return self.with(now, id, |one, turn| {
                        one.answer(turn, question, Err(refusal))
                    });
                };
                let asked = self.next_question;
                self.next_question = asked.next();
                let of = Asked {
                    upstream: id,
                    question,
                    runtime,
                };
                self.questions.insert(asked, of);
                if let Some(runtime) = self.runtimes.get_mut(&runtime) {
                    runtime.questions += 1;
                }
                self.outputs.push_back(ManagerOutput::Question {
                    id: asked,
                    runtime,
                    server: key,
                    method,
                    params,
                    ticket,
                });
            }
            UpstreamOutput::QuestionGone(question) => {
                let asked = self
                    .questions
                    .iter()
                    .find(|(_, of)| of.upstream == id && of.question == question)
                    .map(|(asked, _)| *asked);
                if let Some(asked) = asked {
                    self.question_over(now, asked);
                    self.outputs.push_back(ManagerOutput::QuestionGone(asked));
                }
            }
            UpstreamOutput::Tools(outcome) => self.publish(now, id, &owners, outcome),
            UpstreamOutput::Subscribed { uri, outcome } => {
                self.route_subscribed(now, &key, &owners, &uri, &outcome);
            }
            UpstreamOutput::ListChanged(list) => {
                for runtime in owners {
                    self.outputs.push_back(ManagerOutput::ListChanged {
                        runtime,
                        server: key.clone(),
                        list,
                    });
                }
            }
            UpstreamOutput::StateChanged => {
                for runtime in &owners {
                    self.outputs.push_back(ManagerOutput::StateChanged {
                        runtime: *runtime,
                        server: key.clone(),
                    });
                }
                self.reconsider(now, &owners);
            }
            UpstreamOutput::ConnectFailed(error) => {
                self.tell(&owners, &explain::diagnostic(&error));
                self.reconsider(now, &owners);
            }
            UpstreamOutput::Noise(noise) => {
                let is_process = matches!(slot.upstream.config().transport, Transport::Stdio(_));
                let mut diagnostic = explain::noise(&key, is_process, &noise.why, &noise.sample);
                diagnostic.count = Some(noise.count);
                self.tell(&owners, &diagnostic);
            }
            UpstreamOutput::Diagnostic(diagnostic) => self.tell(&owners, &diagnostic),
        }
    }

    /// A question waits no more.
    pub(super) fn question_over(&mut self, now: Now, question: QuestionId) -> Option<Asked> {
        let asked = self.questions.remove(&question)?;
        if let Some(runtime) = self.runtimes.get_mut(&asked.runtime) {
            runtime.questions = runtime.questions.saturating_sub(1);
        }
        self.touch(now, asked.runtime);
        Some(asked)
    }

    fn tell(&mut self, owners: &[RuntimeId], diagnostic: &ServerDiagnostic) {
        for runtime in owners {
            self.outputs.push_back(ManagerOutput::Diagnostic {
                runtime: *runtime,
                diagnostic: diagnostic.clone(),
            });
        }
    }

    fn concerned(&self, owners: &[RuntimeId], ticket: Option<TicketId>) -> Vec<RuntimeId> {
        match ticket.and_then(|ticket| self.tickets.get(&ticket)) {
            Some(known) => vec![known.runtime],
            None => owners.to_vec(),
        }
    }

    fn one_concerned(&self, owners: &[RuntimeId], ticket: Option<TicketId>) -> Option<RuntimeId> {
        match *self.concerned(owners, ticket) {
            [only] => Some(only),
            _ => None,
        }
    }

    /// A server has said what tools it has, or could not.
    fn publish(
        &mut self,
        now: Now,
        id: UpstreamId,
        owners: &[RuntimeId],
        outcome: Result<Listed, UpstreamError>,
    ) {
        match outcome {
            Ok(listed) => {
                let set = ToolSet::read(&listed.entries, listed.mirrored, &self.limits);
                if let Some(slot) = self.slots.get_mut(&id) {
                    slot.offer = Some(Offer {
                        tools: set.tools.into_iter().map(Arc::new).collect(),
                        remarks: set.remarks,
                    });
                }
                for owner in owners {
                    self.show(*owner, id);
                }
            }
            Err(error) => self.tell(owners, &explain::diagnostic(&error)),
        }
        self.reconsider(now, owners);
    }

    /// Puts what a server offers into the catalog of a runtime, and says what there is to say of it.
    fn show(&mut self, id: RuntimeId, upstream: UpstreamId) {
        let Some(slot) = self.slots.get(&upstream) else {
            return;
        };
        let key = slot.key.clone();
        let remarks = match &slot.offer {
            Some(offer) if self.is_of(id, upstream, &key) => offer.remarks.clone(),
            Some(_) | None => return,
        };
        let said = remarks.into_iter().map(|remark| remark.of(&key));
        let said = said.map(|diagnostic| ManagerOutput::Diagnostic {
            runtime: id,
            diagnostic,
        });
        self.outputs.extend(said);
        self.show_again(id, upstream);
    }

    /// Whether a connection is the one of a runtime to a server that there still is.
    fn is_of(&self, id: RuntimeId, upstream: UpstreamId, key: &ServerKey) -> bool {
        let runtime = self.runtimes.get(&id);
        let of_runtime = runtime.and_then(|runtime| runtime.upstreams.get(key));
        of_runtime == Some(&upstream) && self.servers.contains_key(key)
    }

    /// Puts what a server offers into the catalog of a runtime, unless it has another connection to that
    /// server by now.
    pub(super) fn show_again(&mut self, id: RuntimeId, upstream: UpstreamId) {
        let Some(slot) = self.slots.get(&upstream) else {
            return;
        };
        let key = slot.key.clone();
        if !self.is_of(id, upstream, &key) {
            return;
        }
        let (Some(offer), Some(config)) = (&slot.offer, self.servers.get(&key)) else {
            return;
        };
        let tools = offer.tools.clone();
        let shows = |name: &str| config.filter.shows(name);
        let judged = self
            .lock
            .as_ref()
            .map(|lock| lock.judge(&key, &tools, shows));
        let one = self.servers.len() == 1;
        let Some(runtime) = self.runtimes.get_mut(&id) else {
            return;
        };
        let prefixed = runtime.prefixes(&key, one);
        let names = |own: &[&str]| match prefixed {
            true => runtime.names.name_tools(&key, own),
            false => runtime.names.name_reserved(&key, own),
        };
        let before = runtime.catalog.generation();
        let walk = runtime.catalog.begin(&key);
        let refusal = |tool: &str| judged.as_ref().and_then(|judged| judged.refusal(tool));
        let difference = runtime
            .catalog
            .publish(&key, walk, tools, shows, refusal, names);
        let changed = runtime.catalog.generation() != before;
        let drift = difference.and_then(|difference| drift(&key, &difference));
        let said = self.unsaid_drift(&key, judged);
        let said = said.into_iter().chain(drift);
        self.outputs
            .extend(said.map(|diagnostic| ManagerOutput::Diagnostic {
                runtime: id,
                diagnostic,
            }));
        if changed {
            self.outputs.push_back(ManagerOutput::CatalogChanged(id));
        }
    }

    /// What the lock says of a listing and was not said of the one before: each session lists for itself.
    fn unsaid_drift(&mut self, key: &ServerKey, judged: Option<Judged>) -> Vec<ServerDiagnostic> {
        let Some(judged) = judged else {
            return Vec::new();
        };
        let messages = judged.said.iter().map(|one| one.message.clone());
        let before = self.drift_said.insert(key.clone(), messages.collect());
        let before = before.unwrap_or_default();
        let mut said = judged.said;
        said.retain(|one| !before.contains(&one.message));
        said
    }

    /// Calls that did not know where to go may know now.
    pub(super) fn reconsider(&mut self, now: Now, owners: &[RuntimeId]) {
        for id in owners {
            let Some(runtime) = self.runtimes.get_mut(id) else {
                continue;
            };
            for call in std::mem::take(&mut runtime.undecided) {
                self.decide(now, *id, call);
            }
        }
    }

    /// Sends a call on its way, keeps it while its tool is not known, or says that there is no such tool.
    pub(super) fn decide(&mut self, now: Now, id: RuntimeId, call: Undecided) {
        if let Some(error) = self.refusal(id, &call) {
            return self.answer_ticket(call.ticket, Err(error));
        }
        if self.find(id, &call).is_none() {
            self.connect(now, id);
        }
        let Some((key, tool)) = self.find(id, &call) else {
            let settling = self.slots_of(id).any(|slot| slot.upstream.is_settling());
            let only = self.only_server().filter(|_| call.options.unlisted);
            if let (false, Some(key)) = (settling, only) {
                return self.submit_unlisted(now, id, &key, call);
            }
            let error = match settling {
                true => self.wait_for_catalog(id, call),
                false => Some((call.ticket, self.unknown_tool(id, call.call.tool()))),
            };
            if let Some((ticket, error)) = error {
                self.answer_ticket(ticket, Err(error));
            }
            return;
        };
        if call.options.validate {
            let unchecked = tool.unchecked(&self.limits);
            self.outputs.extend(
                unchecked
                    .into_iter()
                    .map(|remark| ManagerOutput::Diagnostic {
                        runtime: id,
                        diagnostic: remark.of(&key),
                    }),
            );
            let problems = match tool.input_check(&self.limits) {
                Ok(schema) => schema.check(call.call.arguments()).err(),
                Err(_) => None,
            };
            if let Some(problems) = problems {
                let error = explain::arguments(&key, tool.name(), &problems);
                return self.answer_ticket(call.ticket, Err(error));
            }
        }
        let work = Work::Call {
            params: call.call.params_for(tool.name()),
            headers: tool.header_values(Some(call.call.arguments())),
        };
        if let Some(known) = self.tickets.get_mut(&call.ticket) {
            known.checked = call.options.validate.then_some((key.clone(), tool));
        }
        self.submit(
            now,
            id,
            &key,
            Job::new(Some(call.ticket), work, call.options),
        );
    }

    fn only_server(&self) -> Option<ServerKey> {
        let mut keys = self.servers.keys();
        let only = keys.next().filter(|_| keys.next().is_none());
        only.cloned()
    }

    /// Sends a call to a server that was not asked for this tool, or has not said that it has it.
    fn submit_unlisted(&mut self, now: Now, id: RuntimeId, key: &ServerKey, call: Undecided) {
        let work = Work::Call {
            params: call.call.params_for(call.call.tool()),
            headers: Vec::new(),
        };
        let job = Job::new(Some(call.ticket), work, call.options);
        self.submit(now, id, key, job);
    }

    /// The tool that a call means.
    fn find(&self, id: RuntimeId, call: &Undecided) -> Option<(ServerKey, Arc<Tool>)> {
        let found = self.runtimes.get(&id)?.catalog.find(call.call.tool())?;
        Some((found.server.clone(), Arc::clone(found.tool)))
    }

    /// Why the tool of a call may not be used, when that is so: it may have changed while the call waited.
    fn refusal(&self, id: RuntimeId, call: &Undecided) -> Option<UpstreamError> {
        let (key, why) = self.runtimes.get(&id)?.catalog.refusal(call.call.tool())?;
        Some(explain::refused(key, why))
    }

    /// Keeps a call until it is known where it goes. Gives it back with an error when too many wait already.
    fn wait_for_catalog(
        &mut self,
        id: RuntimeId,
        call: Undecided,
    ) -> Option<(TicketId, UpstreamError)> {
        let limit = self.limits.upstream_requests_open_max;
        let runtime = self.runtimes.get_mut(&id)?;
        let value = runtime.undecided.len();
        if value >= limit {
            return Some((call.ticket, explain::waiting_too_many(value, limit)));
        }
        runtime.undecided.push(call);
        None
    }

    /// Every server has said what it has, or cannot. The failure of the only server it could be of is the
    /// reason; of several, all are named.
    fn unknown_tool(&self, id: RuntimeId, tool: &str) -> UpstreamError {
        let missing = self.unready(id);
        let names = self.runtimes.get(&id).map(|runtime| &runtime.names);
        let of_this = |key: &ServerKey| {
            let safe = names.and_then(|names| names.server(key));
            let rest = safe.and_then(|safe| tool.strip_prefix(safe));
            self.servers.len() == 1 || rest.is_some_and(|rest| rest.starts_with(SEPARATOR))
        };
        let culprit = missing.iter().find(|(key, _)| of_this(key));
        match culprit {
            Some((_, Some(error))) => (*error).clone(),
            Some((_, None)) | None => {
                let mut keys = self.servers.keys();
                let only = keys.next().filter(|_| keys.next().is_none());
                explain::unknown_tool(tool, only, &missing)
            }
        }
    }

    /// Gives a job to a server of a runtime.
    pub(super) fn submit(&mut self, now: Now, id: RuntimeId, key: &ServerKey, job: Job) {
        let ticket = job.ticket;
        let known = self.slot_of(id, key).is_some();
        let Some(upstream) = self.upstream_of(id, key) else {
            if let Some(ticket) = ticket {
                let error = match self.runtimes.contains_key(&id) {
                    true => explain::unknown_server(key),
                    false => explain::no_runtime(),
                };
                self.answer_ticket(ticket, Err(error));
            }
            return;
        };
        if !known {
            self.renew_wishes(now, upstream);
        }
        if let Some(known) = ticket.and_then(|ticket| self.tickets.get_mut(&ticket)) {
            known.upstream = Some(upstream);
        }
        let mut refused = None;
        self.with(now, upstream, |one, turn| {
            refused = one.submit(turn, job).err()
        });
        if let (Some(ticket), Some(error)) = (ticket, refused) {
            self.conclude(now, ticket, Err(error));
        }
    }

    /// Answers a ticket, and has the result checked first where that was asked for.
    fn conclude(&mut self, now: Now, ticket: TicketId, outcome: Result<Box<str>, UpstreamError>) {
        let Some(known) = self.tickets.get(&ticket) else {
            return;
        };
        let runtime = known.runtime;
        let outcome = match (outcome, known.checked.clone()) {
            (Ok(result), Some((key, tool))) => self.checked(runtime, &key, &tool, result),
            (outcome, _) => outcome,
        };
        self.answer_ticket(ticket, outcome);
        self.touch(now, runtime);
    }

    /// The result of a call, checked against the tool's output schema. One that says nothing of what the
    /// schema speaks of is passed on: the tool has run.
    fn checked(
        &mut self,
        runtime: RuntimeId,
        key: &ServerKey,
        tool: &Tool,
        result: Box<str>,
    ) -> Result<Box<str>, UpstreamError> {
        let Some(Ok(schema)) = tool.output_check(&self.limits) else {
            return Ok(result);
        };
        if member(&result, "isError") == Some("true") {
            return Ok(result);
        }
        let Some(structured) = member(&result, "structuredContent") else {
            let diagnostic = explain::no_structured_content(key, tool.name());
            self.outputs.push_back(ManagerOutput::Diagnostic {
                runtime,
                diagnostic,
            });
            return Ok(result);
        };
        match schema.check(structured) {
            Ok(()) => Ok(result),
            Err(problems) => Err(explain::result(key, tool.name(), &problems)),
        }
    }

    pub(super) fn answer_ticket(
        &mut self,
        ticket: TicketId,
        outcome: Result<Box<str>, UpstreamError>,
    ) {
        let Some(known) = self.tickets.remove(&ticket) else {
            return;
        };
        if let Some(runtime) = self.runtimes.get_mut(&known.runtime) {
            runtime.open.remove(&ticket);
        }
        self.outputs.push_back(ManagerOutput::Answer {
            ticket,
            outcome: outcome.map_err(Box::new),
        });
    }

    pub(super) fn mint_ticket(&mut self, now: Now, id: RuntimeId) -> TicketId {
        let ticket = self.next_ticket;
        self.next_ticket = ticket.next();
        let known = Ticket {
            runtime: id,
            upstream: None,
            checked: None,
        };
        self.tickets.insert(ticket, known);
        if let Some(runtime) = self.runtimes.get_mut(&id) {
            runtime.open.insert(ticket);
        }
        self.touch(now, id);
        ticket
    }

    /// The connection of a runtime to a server, made when there is none.
    pub(super) fn upstream_of(&mut self, id: RuntimeId, key: &ServerKey) -> Option<UpstreamId> {
        let config = self.servers.get(key)?;
        let runtime = self.runtimes.get_mut(&id)?;
        if let Some(upstream) = runtime.upstreams.get(key) {
            return Some(*upstream);
        }
        let left = runtime.tools_left;
        let shared = match config.isolation {
            Isolation::Shared => self.shared.get(key).copied(),
            Isolation::Session => None,
        };
        let upstream = shared.unwrap_or_else(|| {
            let made = self.next_upstream;
            self.next_upstream = UpstreamId(made.0 + 1);
            // What one session has declared is not true of another.
            let mut face = self.face.clone();
            if let (Isolation::Session, Some(of_client)) = (config.isolation, &runtime.capabilities)
            {
                face.capabilities.clone_from(of_client);
            }
            let slot = Slot {
                upstream: Upstream::new(config.clone(), left, &self.limits, face),
                key: key.clone(),
                owners: BTreeSet::new(),
                due: None,
                offer: None,
                asks_nobody: false,
            };
            self.slots.insert(made, slot);
            made
        });
        if config.isolation == Isolation::Shared {
            self.shared.insert(key.clone(), upstream);
        }
        runtime.upstreams.insert(key.clone(), upstream);
        if let Some(slot) = self.slots.get_mut(&upstream) {
            slot.owners.insert(id);
        }
        // One that others have already had may have said what it offers.
        self.show(id, upstream);
        Some(upstream)
    }

    /// Takes a connection out of every runtime: the next use of the server makes another. Gives who was
    /// connected to a server that there still is.
    pub(super) fn detach(&mut self, id: UpstreamId) -> Vec<(RuntimeId, ServerKey)> {
        let Some(slot) = self.slots.get(&id) else {
            return Vec::new();
        };
        let gone = !self.servers.contains_key(&slot.key);
        let mut connected = Vec::new();
        for owner in &slot.owners {
            let Some(runtime) = self.runtimes.get_mut(owner) else {
                continue;
            };
            if runtime.upstreams.get(&slot.key) != Some(&id) {
                continue;
            }
            runtime.upstreams.remove(&slot.key);
            if gone {
                let before = runtime.catalog.generation();
                runtime.catalog.remove(&slot.key);
                if runtime.catalog.generation() != before {
                    self.outputs
                        .push_back(ManagerOutput::CatalogChanged(*owner));
                }
            } else if slot.upstream.state() != ServerState::Idle {
                connected.push((*owner, slot.key.clone()));
            }
        }
        if self.shared.get(&slot.key) == Some(&id) {
            self.shared.remove(&slot.key);
        }
        connected
    }

    pub(super) fn slot_of(&self, id: RuntimeId, key: &ServerKey) -> Option<&Slot> {
        let upstream = self.runtimes.get(&id)?.upstreams.get(key)?;
        self.slots.get(upstream)
    }

    pub(super) fn slots_of(&self, id: RuntimeId) -> impl Iterator<Item = &Slot> {
        let runtime = self.runtimes.get(&id);
        let upstreams = runtime
            .into_iter()
            .flat_map(|runtime| runtime.upstreams.values());
        upstreams.filter_map(|upstream| self.slots.get(upstream))
    }

    /// Servers of a runtime that are not ready, or have not said what tools they have, and why.
    fn unready(&self, id: RuntimeId) -> Vec<(&ServerKey, Option<&UpstreamError>)> {
        self.slots_of(id)
            .filter(|slot| {
                let fault = slot.upstream.last_error();
                slot.upstream.state() != ServerState::Ready || fault.is_some()
            })
            .map(|slot| (&slot.key, slot.upstream.last_error()))
            .collect()
    }

    /// A runtime was used just now.
    pub(super) fn touch(&mut self, now: Now, id: RuntimeId) {
        let Some(runtime) = self.runtimes.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut runtime.last_used, now.up);
        self.idle.remove(&(self.idle_at(before), id));
        self.idle.insert((self.idle_at(now.up), id));
    }

    /// When a runtime that was used then has been idle for long enough: never, where the limit is 0.
    pub(super) fn idle_at(&self, last_used: Uptime) -> Uptime {
        let ttl = self.limits.runtime_idle_ttl;
        last_used.after(if ttl.is_zero() { Duration::MAX } else { ttl })
    }

    /// Lets go of the connections of runtimes that nobody has used for long enough. A runtime that is in
    /// use is looked at again later.
    fn rest_idle(&mut self, now: Now) {
        while let Some((at, id)) = self.idle.first().copied().filter(|(at, _)| *at <= now.up) {
            self.idle.remove(&(at, id));
            let Some(runtime) = self.runtimes.get_mut(&id) else {
                continue;
            };
            if !runtime.is_idle() {
                self.touch(now, id);
                continue;
            }
            runtime.wants_all = false;
            let upstreams: Vec<UpstreamId> = runtime.upstreams.values().copied().collect();
            for upstream in upstreams {
                if self.nobody_uses(now, upstream) {
                    self.with(now, upstream, Upstream::rest);
                }
            }
        }
    }

    /// Whether every runtime that has this connection has been idle for long enough.
    fn nobody_uses(&self, now: Now, id: UpstreamId) -> bool {
        self.slots.get(&id).is_some_and(|slot| {
            slot.owners
                .iter()
                .filter_map(|owner| self.runtimes.get(owner))
                .all(|runtime| runtime.is_idle() && self.idle_at(runtime.last_used) <= now.up)
        })
    }
}

/// `params` of a call.
impl Driven for Manager {
    fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>) {
        let Some(id) = self.wires_of.get(&wire).copied() else {
            return;
        };
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
