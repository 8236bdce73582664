//! The side of upstream servers: their tools for our clients, each client with a runtime of its own.
//!
//! A line client, an HTTP session, and all stateless requests of one caller are one runtime each. What a
//! client asks before its runtime knows the tools waits until every server has said what it has, or has
//! failed. With one server and nothing beside it, every other request goes to it as it is.

mod calls;
mod lists;

use std::collections::BTreeMap;

use super::{Hub, LIMITS_METHOD};
use crate::clock::Now;
use crate::diagnostic::{Diagnostic, Subject};
use crate::entropy::Entropy;
use crate::ids::{CallId, PeerId, RuntimeId, TicketId, WireId};
use crate::limits::Limits;
use crate::link::Driven as _;
use crate::manager::server_config::{ServerConfig, ServerKey};
use crate::manager::{Manager, ManagerOutput, Prefix, Settings};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::server::{Answer, List, RequestKey, ServerRequest};

/// Wires from here on are the manager's; the hub's own stay below.
pub(in crate::hub) const FIRST_WIRE: WireId = WireId(1 << 31);

/// The upstream servers of a hub.
#[derive(Debug)]
pub struct UpstreamConfig {
    /// The servers.
    pub servers: Vec<ServerConfig>,
    /// How their tools are shown.
    pub prefix: Prefix,
}

/// See the module page.
pub(in crate::hub) struct UpstreamSide {
    pub(in crate::hub) manager: Manager,
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
    pub(in crate::hub) fn new(
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
    pub(in crate::hub) fn close_client(&mut self, now: Now, peer: PeerId) {
        self.parked.retain(|(of, _)| *of != peer);
        if let Some(runtime) = self.runtimes.remove(&peer) {
            self.clients.remove(&runtime);
            self.manager.close_runtime(now, runtime);
        }
    }
}

impl Hub {
    /// Takes a request that concerns upstream servers; gives back one that does not.
    pub(in crate::hub) fn route_upstream(
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
    pub(in crate::hub) fn drop_parked(&mut self, peer: PeerId, key: RequestKey) -> bool {
        let Some(side) = &mut self.upstream else {
            return false;
        };
        let before = side.parked.len();
        side.parked
            .retain(|(of, request)| *of != peer || request.key != key);
        side.parked.len() != before
    }

    pub(in crate::hub) fn step_upstream(&mut self, now: Now) -> bool {
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
                self.answer_upstream(now, ticket, outcome);
            }
            ManagerOutput::Progress { ticket, params } => {
                self.progress_of_upstream(now, ticket, &params);
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

    /// The servers there are, from now on: what a configuration says that was read again.
    pub fn set_servers(&mut self, now: Now, servers: Vec<ServerConfig>) {
        if let Some(side) = &mut self.upstream {
            side.manager.set_servers(now, servers);
        }
        self.settle(now);
    }
}
