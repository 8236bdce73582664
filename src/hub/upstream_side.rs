//! The side of upstream servers: their tools for our clients, each client with a runtime of its own.
//!
//! A line client, an HTTP session, and all stateless requests of one caller are one runtime each. What a
//! client asks before its runtime knows the tools waits until every server has said what it has, or has
//! failed. With one server and nothing beside it, every other request goes to it as it is.

use std::collections::BTreeMap;

use super::ledger::Place;
use super::{Hub, LIMITS_METHOD};
use crate::clock::Now;
use crate::codec::json_text::write_string;
use crate::codec::scan::members;
use crate::diagnostic::{Diagnostic, Subject};
use crate::entropy::Entropy;
use crate::gate::GatedCall;
use crate::ids::{CallId, PeerId, RuntimeId, TicketId, WireId};
use crate::limits::Limits;
use crate::link::Driven as _;
use crate::manager::error::{FailureKind, UpstreamError};
use crate::manager::server_config::{ServerConfig, ServerKey};
use crate::manager::{Manager, ManagerOutput, Options, Prefix, Settings};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::ToolResult;
use crate::protocol::server::{Answer, List, RequestKey, ServerRequest};

/// Wires from here on are the manager's; the hub's own stay below.
pub(super) const FIRST_WIRE: WireId = WireId(1 << 31);

/// The upstream servers of a hub.
#[derive(Debug)]
pub struct UpstreamConfig {
    /// The servers.
    pub servers: Vec<ServerConfig>,
    /// How their tools are shown.
    pub prefix: Prefix,
}

/// See the module page.
pub(super) struct UpstreamSide {
    pub(super) manager: Manager,
    prefix: Prefix,
    runtimes: BTreeMap<PeerId, RuntimeId>,
    clients: BTreeMap<RuntimeId, PeerId>,
    tickets: BTreeMap<TicketId, CallId>,
    calls: BTreeMap<CallId, TicketId>,
    /// Requests that wait for the tools to be known. Bounded by what clients may have open.
    parked: Vec<(PeerId, ServerRequest)>,
}

impl std::fmt::Debug for UpstreamSide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamSide")
            .field("runtimes", &self.runtimes.len())
            .finish_non_exhaustive()
    }
}

impl UpstreamSide {
    pub(super) fn new(
        config: UpstreamConfig,
        identity: String,
        limits: &Limits,
        entropy: Box<dyn Entropy>,
        now: Now,
    ) -> Self {
        let settings = Settings {
            identity,
            capabilities: "{}".to_owned(),
            limits: limits.clone(),
        };
        let mut manager = Manager::new(settings, entropy, FIRST_WIRE);
        manager.set_servers(now, config.servers);
        Self {
            manager,
            prefix: config.prefix,
            runtimes: BTreeMap::new(),
            clients: BTreeMap::new(),
            tickets: BTreeMap::new(),
            calls: BTreeMap::new(),
            parked: Vec::new(),
        }
    }

    /// The runtime of a client, made when it has none.
    fn runtime_of(&mut self, now: Now, peer: PeerId) -> Result<RuntimeId, RpcError> {
        if let Some(runtime) = self.runtimes.get(&peer) {
            return Ok(*runtime);
        }
        let made = self
            .manager
            .open_runtime(now, self.prefix)
            .map_err(|limit| {
                let text = format!("busy: {limit} runtimes are open, limit {limit} (runtimes_max)");
                RpcError::new(ErrorCode::InternalError, text)
            })?;
        self.runtimes.insert(peer, made);
        self.clients.insert(made, peer);
        Ok(made)
    }

    /// The one server there is, when there is one.
    fn only_server(&self) -> Option<ServerKey> {
        let mut servers = self.manager.servers();
        match (servers.next(), servers.next()) {
            (Some(only), None) => Some(only.key.clone()),
            _ => None,
        }
    }

    /// A client is gone.
    pub(super) fn close_client(&mut self, now: Now, peer: PeerId) {
        self.parked.retain(|(of, _)| *of != peer);
        if let Some(runtime) = self.runtimes.remove(&peer) {
            self.clients.remove(&runtime);
            self.manager.close_runtime(now, runtime);
        }
    }

    /// Nobody wants the answer of a call any more.
    pub(super) fn cancel(&mut self, now: Now, call: CallId) {
        if let Some(ticket) = self.calls.remove(&call) {
            self.tickets.remove(&ticket);
            self.manager.cancel(now, ticket, "the client took it back");
        }
    }

    /// The server that offers a tool, by its shown name, to a client.
    fn server_of(&self, peer: PeerId, tool: &str) -> Option<ServerKey> {
        let runtime = self.runtimes.get(&peer)?;
        let found = self.manager.catalog(*runtime)?.find(tool)?;
        Some(found.server.clone())
    }

    /// The tools of a client's runtime, each as its server describes it, under its shown name.
    fn append_tools(&self, peer: PeerId, out: &mut String) {
        let Some(runtime) = self.runtimes.get(&peer) else {
            return;
        };
        for (shown, found) in self
            .manager
            .catalog(*runtime)
            .into_iter()
            .flat_map(|one| one.tools())
        {
            if !out.ends_with('[') {
                out.push(',');
            }
            append_renamed(out, found.tool.raw(), found.tool.name(), shown);
        }
    }
}

/// A tool under another name; every other byte of it stays.
fn append_renamed(out: &mut String, raw: &str, name: &str, shown: &str) {
    let value = members(raw)
        .filter(|(key, _)| key.is("name"))
        .map(|(_, value)| value)
        .last();
    let Some(value) = value.filter(|_| name != shown) else {
        return out.push_str(raw);
    };
    let from = (value.as_ptr() as usize).saturating_sub(raw.as_ptr() as usize);
    out.push_str(&raw[..from]);
    write_string(out, shown);
    out.push_str(&raw[from + value.len()..]);
}

impl Hub {
    /// Takes a request that concerns upstream servers; gives back one that does not.
    pub(super) fn route_upstream(
        &mut self,
        now: Now,
        peer: PeerId,
        request: ServerRequest,
    ) -> Option<ServerRequest> {
        let alone = self.gateway.is_none() && self.local.is_none();
        let Some(side) = &mut self.upstream else {
            return Some(request);
        };
        let is_list = &*request.method == "tools/list";
        let is_call = &*request.method == "tools/call";
        if &*request.method == LIMITS_METHOD || (!is_list && !is_call && !alone) {
            return Some(request);
        }
        let runtime = match side.runtime_of(now, peer) {
            Ok(runtime) => runtime,
            Err(error) => {
                self.respond(now, peer, request.key, Answer::Error(&error));
                return None;
            }
        };
        if is_list || is_call {
            side.manager.connect(now, runtime);
            if side.manager.is_settled(runtime) {
                return self.serve_parked(now, peer, request);
            }
            side.parked.push((peer, request));
        } else {
            self.pass_through(now, peer, runtime, &request);
        }
        None
    }

    /// Serves a request that needed to know the tools; gives back a call of somebody else's tool.
    fn serve_parked(
        &mut self,
        now: Now,
        peer: PeerId,
        request: ServerRequest,
    ) -> Option<ServerRequest> {
        let side = self.upstream.as_ref()?;
        if &*request.method == "tools/call" {
            return Some(request);
        }
        let mut list = String::from(r#"{"tools":["#);
        if self.gateway.is_some() {
            let ours = self
                .tools
                .trim_start_matches(r#"{"tools":["#)
                .trim_end_matches("]}");
            list.push_str(ours);
        }
        side.append_tools(peer, &mut list);
        list.push_str("]}");
        self.respond(now, peer, request.key, Answer::List(&list));
        None
    }

    /// Requests whose runtime knows its tools by now.
    fn serve_settled(&mut self, now: Now) -> bool {
        let Some(side) = &mut self.upstream else {
            return false;
        };
        let settled = |side: &UpstreamSide, peer: &PeerId| {
            side.runtimes
                .get(peer)
                .is_none_or(|id| side.manager.is_settled(*id))
        };
        let (ready, parked) = std::mem::take(&mut side.parked)
            .into_iter()
            .partition::<Vec<_>, _>(|(peer, _)| settled(side, peer));
        side.parked = parked;
        let moved = !ready.is_empty();
        for (peer, request) in ready {
            if let Some(call) = self.serve_parked(now, peer, request) {
                self.route_known_request(now, peer, call);
            }
        }
        moved
    }

    /// A parked request is taken back. Says whether there was one.
    pub(super) fn drop_parked(&mut self, peer: PeerId, key: RequestKey) -> bool {
        let Some(side) = &mut self.upstream else {
            return false;
        };
        let before = side.parked.len();
        side.parked
            .retain(|(of, request)| *of != peer || request.key != key);
        side.parked.len() != before
    }

    /// Which server a tool is of, for the gate, and whether it is upstream at all.
    pub(super) fn upstream_server_of(&self, peer: PeerId, tool: &str) -> Option<ServerKey> {
        self.upstream.as_ref()?.server_of(peer, tool)
    }

    /// A call has passed the gate.
    pub(super) fn call_upstream(&mut self, now: Now, gated: GatedCall) {
        let Some(entry) = self.ledger.entry(gated.id()) else {
            return;
        };
        self.ledger.moved(gated.id(), Place::Upstream);
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
            wants_progress: gated.wants_progress(),
            ..Options::default()
        };
        let call = gated.id();
        let ticket = side.manager.call(now, runtime, gated, options);
        side.tickets.insert(ticket, call);
        side.calls.insert(call, ticket);
    }

    /// With one server and nothing beside it, what is asked of us is asked of it.
    fn pass_through(
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
        if let Err(error) = self.check_room() {
            return self.respond(now, peer, request.key, Answer::Error(&error));
        }
        let call = self.ledger.open(peer, request.key);
        self.ledger.moved(call, Place::Upstream);
        let Some(side) = &mut self.upstream else {
            return;
        };
        let options = Options {
            wants_progress: request.wants_progress,
            ..Options::default()
        };
        let asked = (&*request.method, request.params.as_deref());
        let ticket = side.manager.request(now, runtime, &key, asked, options);
        side.tickets.insert(ticket, call);
        side.calls.insert(call, ticket);
    }

    pub(super) fn step_upstream(&mut self, now: Now) -> bool {
        let mut moved = false;
        while let Some(output) = self
            .upstream
            .as_mut()
            .and_then(|side| side.manager.poll_output())
        {
            moved = true;
            self.route_upstream_output(now, output);
        }
        if let Some(side) = &mut self.upstream {
            while let Some(request) = side.manager.poll_io() {
                self.io.push_back(request);
            }
        }
        moved | self.serve_settled(now)
    }

    fn route_upstream_output(&mut self, now: Now, output: ManagerOutput) {
        match output {
            ManagerOutput::Answer { ticket, outcome } => {
                let Some(side) = &mut self.upstream else {
                    return;
                };
                let Some(call) = side.tickets.remove(&ticket) else {
                    return;
                };
                side.calls.remove(&call);
                let Some(entry) = self.ledger.close(call) else {
                    return;
                };
                match outcome {
                    Ok(result) => self.respond(now, entry.peer, entry.key, Answer::Result(&result)),
                    Err(error) => self.respond_failure(now, entry.peer, entry.key, &error),
                }
            }
            ManagerOutput::Progress { ticket, params } => {
                let side = self.upstream.as_ref();
                let Some(call) = side.and_then(|side| side.tickets.get(&ticket)) else {
                    return;
                };
                self.of_call(now, *call, |peer, key, sink| {
                    peer.pass_progress(key, &params, sink)
                });
            }
            ManagerOutput::CatalogChanged(runtime) => {
                let side = self.upstream.as_ref();
                let Some(peer) = side.and_then(|side| side.clients.get(&runtime)) else {
                    return;
                };
                self.with_peer(now, *peer, |peer, sink| {
                    peer.list_changed(List::Tools, sink)
                });
            }
            ManagerOutput::Diagnostic { diagnostic, .. } => self.diagnose(Diagnostic::new(
                diagnostic.level,
                Subject::Upstream,
                diagnostic.message,
            )),
            // No client is asked: none was declared to be there to answer.
            ManagerOutput::Question { .. }
            | ManagerOutput::QuestionGone(_)
            | ManagerOutput::Notification { .. }
            | ManagerOutput::ListChanged { .. }
            | ManagerOutput::StateChanged { .. } => {}
        }
    }

    /// What a server answered with an error is passed on as one; everything else is a result that says what
    /// happened, so that a model can act on it.
    fn respond_failure(&mut self, now: Now, peer: PeerId, key: RequestKey, error: &UpstreamError) {
        let code = i32::try_from(error.code()).unwrap_or(-32_603);
        let refusal = match (&error.facts.rpc, error.kind) {
            (Some(remote), FailureKind::Remote) => Some(RpcError {
                code: ErrorCode::Upstream(code),
                message: remote.message.clone(),
                data: remote.data.as_deref().map(str::to_owned),
            }),
            (_, FailureKind::Arguments) => Some(RpcError {
                code: ErrorCode::InvalidParams,
                message: error.message.clone(),
                data: Some(error.data()),
            }),
            _ => None,
        };
        if let Some(refusal) = refusal {
            return self.respond(now, peer, key, Answer::Error(&refusal));
        }
        let result = ToolResult::error(&error.message);
        self.respond(now, peer, key, Answer::Result(result.as_json()));
    }

    /// The servers there are, from now on: what a configuration says that was read again.
    pub fn set_servers(&mut self, now: Now, servers: Vec<ServerConfig>) {
        if let Some(side) = &mut self.upstream {
            side.manager.set_servers(now, servers);
        }
        self.settle(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_renamed_and_nothing_else_of_it_changes() {
        let raw = r#"{ "x":{"name":"inner"}, "name" : "a\u0062", "n":1.0 }"#;
        let mut out = String::new();
        append_renamed(&mut out, raw, "ab", "s__ab");
        assert_eq!(
            out,
            r#"{ "x":{"name":"inner"}, "name" : "s__ab", "n":1.0 }"#
        );
        let mut same = String::new();
        append_renamed(&mut same, raw, "ab", "ab");
        assert_eq!(same, raw);
    }
}
