//! The beginning of a conversation with a client that has one server behind us and nothing beside it: the
//! client is told what that server is and has, as if it were connected to it.
//!
//! | what is waited for            | input                                  | what the client gets                 |
//! |-------------------------------|----------------------------------------|--------------------------------------|
//! | –                             | `initialize`, `server/discover`, a listen stream | nothing yet; the server is connected to |
//! | the server, being met         | it is ready                            | its serverInfo, instructions, capabilities |
//! | the server, being met         | it failed                              | an error: server, exit, stderr, next try |
//! | the server, being met         | its connect timeout                    | an error: the limit                  |
//! | the server, being met         | there are several servers now          | what the hub says of itself          |
//! | –                             | the server is ready again, and another | `list_changed` of all its lists      |
//!
//! What a client that is connected cannot be told: other serverInfo, instructions or capabilities. A handshake
//! has them once, and `server/discover` is not asked again. Of lists it hears that they changed, also where the
//! server does not say that it tells of that; what it asks for and the server no longer has is answered by
//! the server.
//!
//! Each hop has a revision of its own: the one that this client asked for is answered here, whatever is
//! spoken to the server.
//!
//! Source: design (serverInfo of one upstream), Spec 2025-11-25 basic/lifecycle, 2026-07-28 server/discover.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Deadline, Now, Uptime};
use crate::codec::scan::members;
use crate::hub::Hub;
use crate::hub::ledger::Place;
use crate::ids::{CallId, PeerId, RuntimeId};
use crate::local::TASKS_EXTENSION;
use crate::manager::error::UpstreamError;
use crate::manager::server_config::ServerKey;
use crate::protocol::client::peer::ServerFacts;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::member;
use crate::protocol::server::{Changing, List, RequestKey, ServerConfig};
use crate::secret::Quoted;

/// Clients that wait to be told of their server.
#[derive(Debug, Default)]
pub(in crate::hub) struct Openings {
    waiting: Vec<Waiting>,
    /// What was made last of what a server says of itself: servers of one kind say the same.
    last: Option<Known>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    call: CallId,
    runtime: RuntimeId,
    until: Uptime,
    limit: Duration,
}

#[derive(Debug)]
struct Known {
    facts: ServerFacts,
    shared: bool,
    config: Arc<ServerConfig>,
}

impl Openings {
    /// Nobody waits for this one any more.
    pub(in crate::hub) fn forget(&mut self, call: CallId) {
        self.waiting.retain(|waiting| waiting.call != call);
    }

    pub(in crate::hub) fn next_deadline(&self) -> Option<Deadline> {
        let first = self.waiting.iter().map(|waiting| waiting.until).min();
        first.map(|at| Deadline::new(at, "an upstream server to be met"))
    }

    /// What clients are told of a server, made of what we say else.
    fn introduction(
        &mut self,
        facts: &ServerFacts,
        shared: bool,
        base: &ServerConfig,
    ) -> Arc<ServerConfig> {
        let same = |known: &&Known| known.facts == *facts && known.shared == shared;
        if let Some(known) = self.last.as_ref().filter(same) {
            return Arc::clone(&known.config);
        }
        let mut config = introduce(facts, base);
        // Of a shared server each of its clients has a level of its own.
        config.relays_log_level = !shared && !facts.revision.is_stateless();
        let config = Arc::new(config);
        self.last = Some(Known {
            facts: facts.clone(),
            shared,
            config: Arc::clone(&config),
        });
        config
    }
}

/// What a server has said of itself, for clients of both eras.
fn introduce(facts: &ServerFacts, base: &ServerConfig) -> ServerConfig {
    let of = |list: &str, name: &str| {
        let feature = member(&facts.capabilities, list);
        feature.and_then(|feature| member(feature, name)) == Some("true")
    };
    let server_info = facts.server_info.as_deref();
    ServerConfig {
        server_info: server_info.unwrap_or(&base.server_info).to_owned(),
        capabilities: facts.capabilities.to_string(),
        modern_capabilities: modern_capabilities(facts),
        instructions: facts.instructions.as_deref().map(str::to_owned),
        changing: Changing {
            tools: of("tools", "listChanged"),
            prompts: of("prompts", "listChanged"),
            resources: of("resources", "listChanged"),
        },
        resource_updates: of("resources", "subscribe"),
        task_updates: has_tasks(facts),
        relays_log_level: false,
        awaits_introduction: false,
        relays_subscriptions: true,
        cache_ttl_ms: base.cache_ttl_ms,
        limits: base.limits.clone(),
    }
}

/// Whether a server has tasks that can be listened to.
pub(super) fn has_tasks(facts: &ServerFacts) -> bool {
    let extensions = member(&facts.capabilities, "extensions");
    let tasks = extensions.and_then(|extensions| member(extensions, TASKS_EXTENSION));
    facts.revision.is_stateless() && tasks.is_some()
}

/// The capabilities of a server for clients of the stateless era. Those of a handshake revision stay as they
/// are but for `tasks`: that era has no such feature, and another one of that name.
fn modern_capabilities(facts: &ServerFacts) -> String {
    let raw = &*facts.capabilities;
    if facts.revision.is_stateless() || member(raw, "tasks").is_none() {
        return raw.to_owned();
    }
    let kept = members(raw).filter(|(name, _)| !name.is("tasks"));
    let kept: Vec<String> = kept
        .map(|(name, value)| format!("\"{}\":{value}", name.raw()))
        .collect();
    format!("{{{}}}", kept.join(","))
}

impl Hub {
    /// The one server that our clients see as if they were connected to it.
    pub(in crate::hub) fn server_alone(&self) -> Option<ServerKey> {
        let beside = self.gateway.is_some() || self.local.is_some();
        let side = self.upstream.as_ref().filter(|_| !beside)?;
        side.only_server()
    }

    /// Decides what new clients are told at first: nothing, where there is one server that knows better.
    pub(in crate::hub) fn choose_server(&mut self) {
        let unmet = self.server_alone().is_some();
        if self.server.awaits_introduction != unmet {
            let mut server = ServerConfig::clone(&self.server_of_several);
            server.awaits_introduction = unmet;
            self.server = Arc::new(server);
            self.http.set_server(Arc::clone(&self.server));
        }
    }

    /// A client wants to know what the server is.
    pub(in crate::hub) fn open_server(&mut self, now: Now, peer: PeerId, key: RequestKey) {
        let Some(server) = self.server_alone() else {
            let config = Arc::clone(&self.server);
            return self.introduce(now, peer, key, config);
        };
        if let Err(error) = self.check_room() {
            return self.refuse_opening(now, peer, key, &error);
        }
        self.declare_client(peer);
        let Some(side) = &mut self.upstream else {
            return;
        };
        let runtime = match side.runtime_of(now, peer) {
            Ok(runtime) => runtime,
            Err(error) => return self.refuse_opening(now, peer, key, &error),
        };
        let call = self.ledger.open(peer, key);
        self.ledger.moved(call, Place::Opening);
        let config = side.manager.servers().find(|config| config.key == server);
        let limit = config.map_or(self.limits.connect_timeout, |config| config.times.connect);
        side.openings.waiting.push(Waiting {
            call,
            runtime,
            until: now.after(limit),
            limit,
        });
        side.manager.try_connect(now, runtime);
        self.judge_openings(now);
    }

    /// Answers those whose server has been met, or cannot be. Says whether there were any.
    pub(in crate::hub) fn judge_openings(&mut self, now: Now) -> bool {
        let Some(side) = &mut self.upstream else {
            return false;
        };
        if side.openings.waiting.is_empty() {
            return false;
        }
        let waiting = side.openings.waiting.clone();
        let mut moved = false;
        for one in waiting {
            moved |= self.judge_opening(now, one);
        }
        moved
    }

    fn judge_opening(&mut self, now: Now, one: Waiting) -> bool {
        let only = self.server_alone();
        let Some(side) = &mut self.upstream else {
            return false;
        };
        let met = match &only {
            None => Ok(Some(Arc::clone(&self.server))),
            Some(key) => {
                let shared = side.is_shared(key);
                let openings = &mut side.openings;
                let met = side.manager.met(now, one.runtime, key);
                met.map(|facts| {
                    facts.map(|facts| openings.introduction(facts, shared, &self.server))
                })
            }
        };
        let outcome = match met {
            Ok(Some(config)) => Ok(config),
            Ok(None) if one.until > now.up => return false,
            Ok(None) => Err(not_in_time(only.as_ref(), one.limit)),
            Err(error) => Err(failed(&error)),
        };
        side.openings.forget(one.call);
        let Some(entry) = self.ledger.close(one.call) else {
            return true;
        };
        match outcome {
            Ok(config) => self.introduce(now, entry.peer, entry.key, config),
            Err(error) => self.refuse_opening(now, entry.peer, entry.key, &error),
        }
        true
    }

    fn introduce(&mut self, now: Now, peer: PeerId, key: RequestKey, config: Arc<ServerConfig>) {
        self.with_peer(now, peer, |peer, sink| peer.introduce(key, config, sink));
        self.route_events_of(now, peer);
    }

    /// The server of a client cannot be met.
    pub(in crate::hub) fn refuse_opening(
        &mut self,
        now: Now,
        peer: PeerId,
        key: RequestKey,
        error: &RpcError,
    ) {
        let retracted = self.http.retract_session(peer, key);
        self.with_peer(now, peer, |peer, sink| {
            peer.refuse_opening(key, error, sink)
        });
        if retracted {
            self.http.end_session(now, peer);
        }
    }

    /// A client that waits for its server gets an error instead.
    pub(in crate::hub) fn refuse_openings(&mut self, now: Now, why: &str) {
        for call in self.ledger.at(Place::Opening) {
            self.refuse_opening_call(now, call, why);
        }
    }

    /// The same for one.
    pub(in crate::hub) fn refuse_opening_call(&mut self, now: Now, call: CallId, why: &str) {
        if let Some(side) = &mut self.upstream {
            side.openings.forget(call);
        }
        if let Some(entry) = self.ledger.close(call) {
            let error = RpcError::new(ErrorCode::InternalError, why);
            self.refuse_opening(now, entry.peer, entry.key, &error);
        }
    }

    /// The server of a client is ready, perhaps for the second time: the client hears of lists that may be
    /// others now.
    pub(super) fn server_is_ready(&mut self, now: Now, runtime: RuntimeId) {
        let Some(key) = self.server_alone() else {
            return;
        };
        let Some(side) = &mut self.upstream else {
            return;
        };
        let Some(peer) = side.clients.get(&runtime).copied() else {
            return;
        };
        let shared = side.is_shared(&key);
        let openings = &mut side.openings;
        let Ok(Some(facts)) = side.manager.met(now, runtime, &key) else {
            return;
        };
        let config = openings.introduction(facts, shared, &self.server);
        let Some(before) = self.peer(peer).map(|peer| Arc::clone(peer.server())) else {
            return;
        };
        if before.awaits_introduction {
            self.with_peer(now, peer, |peer, _| peer.set_server(config));
            return;
        }
        if Arc::ptr_eq(&before, &config) || before.capabilities == config.capabilities {
            self.with_peer(now, peer, |peer, _| peer.set_server(config));
            return;
        }
        let has = |config: &ServerConfig, list: &str| member(&config.capabilities, list).is_some();
        self.with_peer(now, peer, |peer, sink| {
            peer.set_server(Arc::clone(&config));
            for (list, feature) in [
                (List::Tools, "tools"),
                (List::Prompts, "prompts"),
                (List::Resources, "resources"),
            ] {
                if has(&before, feature) || has(&config, feature) {
                    peer.list_is_another(list, sink);
                }
            }
        });
    }
}

/// What a client is told of a server that cannot be reached.
pub(super) fn failed(error: &UpstreamError) -> RpcError {
    RpcError {
        code: ErrorCode::InternalError,
        message: error.message.clone(),
        data: Some(error.data()),
    }
}

fn not_in_time(server: Option<&ServerKey>, limit: Duration) -> RpcError {
    let name = Quoted(server.map_or("", ServerKey::as_str));
    let limit = limit.as_millis();
    let text = format!("server {name}: connect timed out after {limit} ms (connectionTimeoutMs)");
    RpcError::new(ErrorCode::InternalError, text)
}
