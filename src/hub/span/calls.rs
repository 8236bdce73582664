//! Calls and other requests on their way to an upstream server, and what comes back.

use super::UpstreamSide;
use crate::clock::Now;
use crate::codec::shared_text::SharedText;
use crate::gate::GatedCall;
use crate::hub::Hub;
use crate::hub::ledger::Place;
use crate::ids::{CallId, PeerId, RuntimeId, TicketId};
use crate::link::http_rules::ParamHeader;
use crate::manager::Options;
use crate::manager::error::{FailureKind, UpstreamError};
use crate::manager::server_config::{Isolation, ServerKey};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{LogLevel, ToolResult, member};
use crate::protocol::server::{Answer, ServerPeer, ServerRequest};

impl UpstreamSide {
    /// Nobody wants the answer of a call any more.
    pub(in crate::hub) fn cancel(&mut self, now: Now, call: CallId) {
        self.questions.forget_call(call);
        if let Some(ticket) = self.calls.remove(&call) {
            self.tickets.remove(&ticket);
            self.manager.cancel(now, ticket, "the client took it back");
        }
        self.tasks.forget_call(call);
        self.searches.remove(&call);
        self.levels.remove(&call);
    }

    /// The headers that repeat arguments of a tool, as far as it is known to a client's runtime.
    pub(in crate::hub) fn headers_of(&self, peer: PeerId, tool: &str) -> &[ParamHeader] {
        let runtime = self.runtimes.get(&peer);
        let found = runtime.and_then(|id| self.manager.catalog(*id)?.find(tool));
        found.map_or(&[], |found| found.tool.headers())
    }

    /// How a call is to be made for its client: one that knows results that want input gets them as they are.
    fn options_of(&self, call: CallId, server: Option<&ServerKey>, declared: &str) -> Options {
        if let Some(capabilities) = self.questions.declared_with(call) {
            return Options {
                raw_questions: true,
                capabilities: Some((**capabilities).into()),
                ..Options::default()
            };
        }
        let is_shared = server.is_some_and(|server| self.is_shared(server));
        Options {
            capabilities: is_shared.then(|| declared.into()),
            ..Options::default()
        }
    }

    /// Whether all clients have one connection to a server.
    pub(super) fn is_shared(&self, server: &ServerKey) -> bool {
        let mut servers = self.manager.servers();
        servers.any(|config| config.key == *server && config.isolation == Isolation::Shared)
    }

    /// The server that offers a tool, by its shown name, to a client.
    fn server_of(&self, peer: PeerId, tool: &str) -> Option<ServerKey> {
        let runtime = self.runtimes.get(&peer)?;
        let found = self.manager.catalog(*runtime)?.find(tool);
        match found {
            Some(found) => Some(found.server.clone()),
            None if self.leaves_tools() => self.only_server(),
            None => None,
        }
    }
}

impl Hub {
    /// Which server a tool is of, for the gate, and whether it is upstream at all.
    pub(in crate::hub) fn upstream_server_of(&self, peer: PeerId, tool: &str) -> Option<ServerKey> {
        self.upstream.as_ref()?.server_of(peer, tool)
    }

    /// Whose tool this is and why it may not be used, when that is so: it is not as it was locked.
    pub(in crate::hub) fn locked_out(
        &self,
        peer: PeerId,
        tool: &str,
    ) -> Option<(ServerKey, String)> {
        let side = self.upstream.as_ref()?;
        let runtime = side.runtimes.get(&peer)?;
        let (server, why) = side.manager.catalog(*runtime)?.refusal(tool)?;
        Some((server.clone(), why.to_owned()))
    }

    /// A call has passed the gate.
    pub(in crate::hub) fn call_upstream(&mut self, now: Now, gated: GatedCall) {
        let Some(entry) = self.ledger.entry(gated.id()) else {
            return;
        };
        self.ledger.moved(gated.id(), Place::Upstream);
        let declared = self.declared_by(entry.peer);
        let Some(side) = &mut self.upstream else {
            return;
        };
        let Some(runtime) = side.runtimes.get(&entry.peer).copied() else {
            return;
        };
        let server = side.server_of(entry.peer, gated.tool());
        let validate = side
            .manager
            .servers()
            .any(|config| Some(&config.key) == server.as_ref() && config.validate_calls);
        let options = Options {
            validate,
            unlisted: side.leaves_tools(),
            wants_progress: gated.wants_progress(),
            // The client says what it does at once: a call that hangs costs that call.
            bridged: true,
            headers: self.http.trace_of(entry.peer, entry.key),
            ..side.options_of(gated.id(), server.as_ref(), &declared)
        };
        let call = gated.id();
        side.may_become_task(call, server.as_ref());
        let ticket = side.manager.call(now, runtime, gated, options);
        side.tickets.insert(ticket, call);
        side.calls.insert(call, ticket);
    }

    /// What a client of the handshake era has declared.
    fn declared_by(&self, peer: PeerId) -> SharedText {
        let declared = self.peer(peer).and_then(ServerPeer::client_capabilities);
        declared.cloned().unwrap_or(SharedText::fixed("{}"))
    }

    /// With one server and nothing beside it, what is asked of us is asked of it.
    pub(super) fn pass_through(
        &mut self,
        now: Now,
        peer: PeerId,
        runtime: RuntimeId,
        request: &ServerRequest,
    ) {
        let only = self.upstream.as_ref().and_then(UpstreamSide::only_server);
        let Some(key) = only else {
            let error = RpcError::method_not_found(&request.method);
            return self.respond(now, peer, request.key, Answer::Error(&error));
        };
        let call = self.ask_server(now, peer, runtime, &key, request, request.params.clone());
        if &*request.method == "logging/setLevel" {
            let level = request.params.as_deref();
            let level = LogLevel::read(level.and_then(|params| member(params, "level")));
            if let (Some(call), Ok(level), Some(side)) = (call, level, &mut self.upstream) {
                side.levels.insert(call, level);
            }
        }
    }

    /// Sends a request that is no tool call to a server, with these params in place of its own. Gives the call
    /// that it is from now on; `None` when there is no room for one, which the client is told.
    pub(super) fn ask_server(
        &mut self,
        now: Now,
        peer: PeerId,
        runtime: RuntimeId,
        server: &ServerKey,
        request: &ServerRequest,
        params: Option<SharedText>,
    ) -> Option<CallId> {
        if let Err(error) = self.check_room() {
            self.respond(now, peer, request.key, Answer::Error(&error));
            return None;
        }
        let call = self.ledger.open(peer, request.key);
        let facts = self.facts_of(peer, request);
        self.remember_asker(call, request.method.clone(), &facts);
        let is_read = request.method.ends_with("/list") || request.method == "resources/read";
        let place = match is_read {
            true => Place::UpstreamRead,
            false => Place::UpstreamOther,
        };
        self.ledger.moved(call, place);
        self.send_request(now, call, runtime, (server, request), params.as_deref());
        Some(call)
    }

    /// The same for a call that it is already.
    pub(super) fn send_request(
        &mut self,
        now: Now,
        call: CallId,
        runtime: RuntimeId,
        (server, request): (&ServerKey, &ServerRequest),
        params: Option<&str>,
    ) {
        let Some(entry) = self.ledger.entry(call) else {
            return;
        };
        let declared = self.declared_by(entry.peer);
        let Some(side) = &mut self.upstream else {
            return;
        };
        let options = Options {
            wants_progress: request.wants_progress,
            bridged: true,
            headers: self.http.trace_of(entry.peer, entry.key),
            ..side.options_of(call, Some(server), &declared)
        };
        let asked = (&*request.method, params);
        let ticket = side.manager.request(now, runtime, server, asked, options);
        side.tickets.insert(ticket, call);
        side.calls.insert(call, ticket);
    }

    pub(super) fn answer_upstream(
        &mut self,
        now: Now,
        ticket: TicketId,
        outcome: Result<SharedText, Box<UpstreamError>>,
    ) {
        let Some(side) = &mut self.upstream else {
            return;
        };
        let Some(call) = side.tickets.remove(&ticket) else {
            return;
        };
        side.calls.remove(&call);
        // Nobody waits for what another server may have.
        if side.questions.is_parked(call) {
            side.searches.remove(&call);
        }
        self.end_questions_of(now, call, "the call it was for is over");
        self.learn_task(call, outcome.as_deref().ok());
        let error = outcome.as_ref().err().map(|error| &**error);
        if self.search_on(now, call, error) {
            return;
        }
        let Some(side) = &mut self.upstream else {
            return;
        };
        if let Some(outcome) = side.questions.keep(call, outcome) {
            self.finish_upstream(now, call, outcome);
        }
    }

    /// What has come of a call goes to its client, which waits for it.
    pub(super) fn finish_upstream(
        &mut self,
        now: Now,
        call: CallId,
        outcome: Result<SharedText, Box<UpstreamError>>,
    ) {
        let Some(entry) = self.ledger.entry(call) else {
            return;
        };
        self.level_answered(now, call, entry.peer, outcome.is_ok());
        match outcome {
            Ok(result) if entry.place == Place::UpstreamRead => {
                self.conclude(now, call, Answer::List(&result));
            }
            Ok(result) => self.conclude(now, call, Answer::Result(&result)),
            Err(error) => self.conclude_failure(now, call, entry.place, &error),
        }
    }

    pub(super) fn progress_of_upstream(&mut self, now: Now, ticket: TicketId, params: &str) {
        let side = self.upstream.as_ref();
        let Some(call) = side.and_then(|side| side.tickets.get(&ticket)) else {
            return;
        };
        self.of_call(now, *call, |peer, key, sink| {
            peer.pass_progress(key, params, sink)
        });
    }

    /// What a server answered with an error is passed on as one; everything else is, of a tool call, a result
    /// that says what happened, so that a model can act on it.
    pub(super) fn conclude_failure(
        &mut self,
        now: Now,
        call: CallId,
        place: Place,
        error: &UpstreamError,
    ) {
        let refusal = match (&error.facts.rpc, error.kind) {
            // These speak of the hop between the server and us, which is not the client's.
            (Some(remote), FailureKind::Remote) if is_of_the_hop(remote.code) => Some(RpcError {
                code: ErrorCode::InternalError,
                message: error.message.clone(),
                data: Some(error.data()),
            }),
            (Some(remote), FailureKind::Remote) => {
                if let Some(raw) = &remote.raw {
                    return self.conclude(now, call, Answer::Passed(raw));
                }
                Some(RpcError {
                    code: ErrorCode::Upstream(i32::try_from(remote.code).unwrap_or(-32_603)),
                    message: remote.message.clone(),
                    data: remote.data.as_deref().map(str::to_owned),
                })
            }
            (Some(refused), FailureKind::Unanswered) => Some(RpcError {
                code: ErrorCode::Upstream(i32::try_from(refused.code).unwrap_or(-32_603)),
                message: self.with_eras(call, error),
                data: refused.data.as_deref().map(str::to_owned),
            }),
            (_, FailureKind::Arguments) => Some(RpcError {
                code: ErrorCode::InvalidParams,
                message: error.message.clone(),
                data: Some(error.data()),
            }),
            _ if place != Place::Upstream => Some(RpcError {
                code: ErrorCode::InternalError,
                message: error.message.clone(),
                data: Some(error.data()),
            }),
            _ => None,
        };
        if let Some(refusal) = refusal {
            return self.conclude(now, call, Answer::Error(&refusal));
        }
        let result = ToolResult::error(&error.message);
        self.conclude(now, call, Answer::Result(result.as_json()));
    }

    /// The message of an error that comes of what only one side speaks.
    fn with_eras(&self, call: CallId, error: &UpstreamError) -> String {
        let side = self.upstream.as_ref();
        let Some(peer) = self.ledger.entry(call).map(|entry| entry.peer) else {
            return error.message.clone();
        };
        let facts = side.and_then(|side| {
            let runtime = side.runtimes.get(&peer)?;
            side.manager.facts(*runtime, &error.server)
        });
        let client = self.peer(peer).and_then(ServerPeer::negotiated);
        match (facts, client) {
            (Some(facts), Some(client)) => format!(
                "{} (the server speaks {}, the client {client})",
                error.message, facts.revision
            ),
            (Some(_) | None, _) => error.message.clone(),
        }
    }
}

/// Whether an error of a server is about headers or the revision of our own request to it.
fn is_of_the_hop(code: i64) -> bool {
    [
        ErrorCode::HeaderMismatch,
        ErrorCode::UnsupportedProtocolVersion,
    ]
    .into_iter()
    .any(|of_the_hop| i64::from(of_the_hop.number()) == code)
}
