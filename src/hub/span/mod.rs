//! The side of upstream servers: their tools for our clients, each client with a runtime of its own.
//!
//! A line client, an HTTP session, and all stateless requests of one caller are one runtime each. With one
//! server and nothing beside it, requests go to it as they are; else see `lists`.

mod calls;
mod lists;
mod notices;
mod opening;
mod questions;
mod subscriptions;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::lists::{Lists, Parked, Search};
use self::notices::Notice;
use self::opening::Openings;
pub(super) use self::questions::Questions;
use self::questions::{Asking, EVERYTHING};
pub(in crate::hub) use self::subscriptions::Subscribing;
use self::subscriptions::Subscriptions;
use self::tasks::Tasks;
use super::Hub;
use crate::clock::Now;
use crate::codec::shared_text::SharedText;
use crate::diagnostic::{Diagnostic, Subject};
use crate::entropy::Entropy;
use crate::ids::{CallId, IdMap, PeerId, RuntimeId, TicketId, WireId};
use crate::limits::Limits;
use crate::link::Driven as _;
use crate::manager::lock::LockRule;
use crate::manager::server_config::{ServerConfig, ServerKey};
use crate::manager::{Manager, ManagerOutput, Prefix, Settings};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::LogLevel;

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
    runtimes: IdMap<PeerId, RuntimeId>,
    clients: BTreeMap<RuntimeId, PeerId>,
    tickets: IdMap<TicketId, CallId>,
    calls: IdMap<CallId, TicketId>,
    /// Nothing is offered beside the servers.
    alone: bool,
    lists: Lists,
    /// Requests that wait until it is known what the servers have. Bounded by what clients may have open.
    parked: Vec<Parked>,
    /// Resources that are looked for at one server after the other.
    searches: BTreeMap<CallId, Search>,
    /// What clients without a runtime have declared.
    declared: BTreeMap<PeerId, SharedText>,
    pub(in crate::hub) questions: Questions,
    pub(in crate::hub) openings: Openings,
    subscriptions: Subscriptions,
    tasks: Tasks,
    /// Levels of `logging/setLevel` that a server is being asked for.
    levels: BTreeMap<CallId, LogLevel>,
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
        questions: Questions,
        limits: &Limits,
        entropy: Box<dyn Entropy>,
        alone: bool,
        now: Now,
    ) -> Self {
        let settings = Settings {
            identity,
            capabilities: EVERYTHING.to_owned(),
            limits: limits.clone(),
        };
        let mut manager = Manager::new(settings, entropy, FIRST_WIRE);
        manager.set_servers(now, config.servers);
        Self {
            manager,
            prefix: config.prefix,
            runtimes: IdMap::new(),
            clients: BTreeMap::new(),
            tickets: IdMap::new(),
            calls: IdMap::new(),
            alone,
            lists: Lists::new(limits),
            parked: Vec::new(),
            searches: BTreeMap::new(),
            declared: BTreeMap::new(),
            questions,
            openings: Openings::default(),
            subscriptions: Subscriptions::default(),
            tasks: Tasks::new(limits),
            levels: BTreeMap::new(),
        }
    }

    /// The runtime of a client, made when it has none.
    fn runtime_of(&mut self, now: Now, peer: PeerId) -> Result<RuntimeId, RpcError> {
        if let Some(runtime) = self.runtimes.get(&peer) {
            return Ok(*runtime);
        }
        let made = match self.declared.remove(&peer) {
            Some(capabilities) => {
                let capabilities = capabilities.to_string();
                self.manager.open_runtime_as(now, self.prefix, capabilities)
            }
            None => self.manager.open_runtime(now, self.prefix),
        };
        let made = made.map_err(|limit| {
            let text = format!("busy: {limit} runtimes are open, limit {limit} (runtimes_max)");
            RpcError::new(ErrorCode::InternalError, text)
        })?;
        self.runtimes.insert(peer, made);
        self.clients.insert(made, peer);
        if self.leaves_tools() {
            self.manager.leave_tools(now, made, true);
        }
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
        self.parked.retain(|parked| !parked.is_of(peer));
        self.declared.remove(&peer);
        let runtime = self.runtimes.get(&peer).copied();
        self.subscriptions.close_client(peer, runtime);
        if let Some(runtime) = self.runtimes.remove(&peer) {
            self.lists.forget(runtime);
            self.tasks.forget(runtime);
            self.clients.remove(&runtime);
            self.questions.forget_runtime(runtime);
            self.manager.close_runtime(now, runtime);
        }
    }
}

impl Hub {
    /// What a client of the handshake era has declared is told to its servers. A client that says it with each
    /// request has servers that are told everything there is.
    pub(super) fn declare_client(&mut self, peer: PeerId) {
        let side = self.upstream.as_ref();
        if side.is_none_or(|side| side.runtimes.contains_key(&peer)) {
            return;
        }
        let of_peer = self.peer(peer);
        let shaken = of_peer.filter(|peer| peer.negotiated().is_some());
        let declared = shaken.map(|peer| peer.client_capabilities().cloned());
        if let (Some(declared), Some(side)) = (declared, &mut self.upstream) {
            side.declare(peer, declared.unwrap_or(SharedText::fixed("{}")));
        }
    }

    pub(in crate::hub) fn upstream_timeout(&mut self, now: Now) {
        if let Some(side) = &mut self.upstream {
            side.manager.handle_timeout(now);
        }
        self.questions_timeout(now);
    }

    #[inline(never)]
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
        moved |= self.put_held(now);
        if let Some(side) = &mut self.upstream {
            while let Some(request) = side.manager.poll_io() {
                self.io.push_back(request);
            }
        }
        moved |= self.place_subscriptions(now);
        moved | self.serve_settled(now) | self.tell_due_changes(now) | self.judge_openings(now)
    }

    fn route_upstream_output(&mut self, now: Now, output: ManagerOutput) {
        match output {
            ManagerOutput::Answer { ticket, outcome } => {
                if let Some(outcome) = self.take_walk(now, ticket, outcome) {
                    self.answer_upstream(now, ticket, outcome);
                }
            }
            ManagerOutput::Progress { ticket, params } => {
                self.progress_of_upstream(now, ticket, &params);
            }
            ManagerOutput::CatalogChanged(runtime) => {
                self.route_list_change(now, runtime, None);
            }
            ManagerOutput::ListChanged {
                runtime,
                server,
                list,
            } => self.route_list_change(now, runtime, Some((&server, list))),
            ManagerOutput::StateChanged { runtime, server } => {
                if let Some(side) = &mut self.upstream {
                    side.server_moved(now, runtime, &server);
                }
                self.server_is_ready(now, runtime);
                self.judge_openings(now);
            }
            ManagerOutput::Diagnostic { diagnostic, .. } => self.diagnose(Diagnostic::new(
                diagnostic.level,
                Subject::Upstream,
                diagnostic.message,
            )),
            ManagerOutput::Question {
                id,
                runtime,
                server,
                method,
                params,
                ticket,
            } => {
                let asking = Asking {
                    id,
                    runtime,
                    server,
                    method,
                    params,
                    ticket,
                };
                self.put_question(now, asking);
            }
            ManagerOutput::QuestionGone(question) => self.question_gone(now, question),
            ManagerOutput::Notification {
                runtime,
                server,
                method,
                params,
                ..
            } if &*method == "notifications/elicitation/complete" => {
                self.elicitation_complete(now, runtime, &server, params.as_deref());
            }
            ManagerOutput::Notification {
                runtime,
                server,
                method,
                params,
                ticket,
            } => {
                let notice = Notice {
                    runtime,
                    server,
                    method,
                    params,
                    ticket,
                };
                self.route_notice(now, notice);
            }
            ManagerOutput::Subscribed {
                runtime,
                server,
                topic,
                outcome,
            } => self.subscribed(now, runtime, &server, &topic, outcome),
        }
    }

    /// Which tools of the servers may be used, from now on: those that are as they were locked.
    pub fn set_lock(&mut self, now: Now, lock: Option<LockRule>) {
        if let Some(side) = &mut self.upstream {
            side.manager.set_lock(now, lock);
            side.servers_changed(now);
        }
        self.settle(now);
    }

    /// The servers there are, from now on: what a configuration says that was read again.
    pub fn set_servers(&mut self, now: Now, servers: Vec<ServerConfig>) {
        if let Some(side) = &mut self.upstream {
            side.manager.set_servers(now, servers);
            side.servers_changed(now);
        }
        self.choose_server();
        self.settle(now);
    }
}
