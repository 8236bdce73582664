//! The hub: composes the machines and is the only place where a message passes from one to another.
//!
//! ```text
//! downstream peers ──ServerEvent──▶ ledger ─▶ gate ─▶ GatedCall ─▶ bridge ──▶ gateway session ──▶ WebSocket
//!        ▲                                                           │               │
//!        └──────────── answer, notification, progress ◀──────────────┴── event ◀─────┘
//! ```
//!
//! One input comes in, every child that was touched is drained, each output is routed at once and may
//! touch other children; a turn ends when all are empty. Children never call up and never meet.
//!
//! An embedding program drives the hub like any [`Driven`] machine and drains [`Hub::poll_event`] beside
//! it; questions it gets there are answered by [`Hub::resolve_gate`]. Rules of the gate are given by
//! [`Hub::set_rules`], before the first client is let in.

mod approvals;
mod audit;
mod doors;
mod ending;
pub mod gateway_call;
mod gateway_side;
mod gateway_wire;
mod hooks;
mod http;
pub mod ledger;
mod local_side;
mod plugins;
mod route;
mod socket_door;
mod span;
mod usage;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use self::approvals::{APPROVALS_LIST_METHOD, APPROVALS_RESOLVE_METHOD};
use self::audit::Trail;
use self::doors::LineClient;
use self::gateway_side::GatewaySide;
use self::gateway_wire::GatewayWire;
pub use self::http::HttpConfig;
use self::http::HttpFront;
use self::ledger::Ledger;
pub use self::local_side::LocalConfig;
use self::local_side::LocalSide;
use self::plugins::Plugins;
use self::socket_door::SocketDoor;
pub use self::span::UpstreamConfig;
use self::span::{Questions, UpstreamSide};
pub use self::usage::{LIMITS_METHOD, Usage};
use crate::bridge::{Bridge, ChannelMode};
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::json_text::write_string;
use crate::codec::outbuf::OutBuf;
use crate::codec::shared_text::SharedText;
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::entropy::{Entropy, Seeded};
use crate::gate::{Gate, Policy, Verdict};
use crate::gateway::identity::StoredToken;
use crate::gateway::session::{GatewaySession, Refusal, SessionConfig};
use crate::ids::{CallId, IdMap, PeerId, WireId};
use crate::limits::Limits;
use crate::link::command::CommandRun;
use crate::link::http_rules::AccessRules;
use crate::link::stdio_host::StdioHost;
use crate::link::websocket::ConnectSpec;
use crate::link::{ChildSpec, Driven, IoEvent, IoRequest};
use crate::local::{LocalRequest, TASKS_EXTENSION};
pub use crate::manager::entry::PluginTool;
use crate::protocol::server::{Changing, ServerConfig};

/// What a hub is made of.
#[derive(Debug)]
pub struct HubConfig {
    /// Every bound.
    pub limits: Limits,
    /// What clients are told about us.
    pub identity: ServerIdentity,
    /// The Gateway to bridge, and who we are to it; `None` for a hub without channel tools.
    pub gateway: Option<GatewayConfig>,
    /// What the embedding program offers itself.
    pub local: Option<LocalConfig>,
    /// Tools that are commands, beside what the program offers itself. One whose name is taken is left out, with
    /// a diagnostic.
    pub plugins: Vec<PluginTool>,
    /// Servers whose tools, resources and prompts are offered beside the channel tools and what the program
    /// offers itself. Of two things with one name those of the channel and of the program keep it, and a
    /// server's is shown as `server__name`.
    pub upstream: Option<UpstreamConfig>,
    /// Whether conversations are announced to Claude as channel messages.
    pub channel_mode: ChannelMode,
    /// Say more on stderr.
    pub verbose: bool,
    /// Who decides about calls.
    pub policy: HubPolicy,
    /// How HTTP is served, on the addresses given to [`Hub::listen_http`].
    pub http: HttpConfig,
    /// Whether [`HubEvent::GatewayFrame`] tells what crosses the Gateway wire. It holds credentials.
    pub tap: bool,
}

impl Default for HubConfig {
    /// Nothing is offered, everybody may call it, and HTTP is for this machine.
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            identity: ServerIdentity::default(),
            gateway: None,
            local: None,
            plugins: Vec::new(),
            upstream: None,
            channel_mode: ChannelMode::default(),
            verbose: false,
            policy: HubPolicy::default(),
            http: HttpConfig {
                rules: AccessRules::loopback(),
            },
            tap: false,
        }
    }
}

/// `serverInfo`, and guidance for models. Spec: 2025-11-25 schema (Implementation).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerIdentity {
    /// Name for programs.
    pub name: String,
    /// Name for people.
    pub title: Option<String>,
    /// Version.
    pub version: String,
    /// How to use what is offered.
    pub instructions: Option<String>,
}

impl ServerIdentity {
    /// Who the bridge of an OpenClaw Gateway says it is: a drop-in keeps the name.
    #[must_use]
    pub fn bridge() -> Self {
        Self {
            name: "openclaw".to_owned(),
            title: Some("drawspan".to_owned()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instructions: None,
        }
    }

    /// Who a span of MCP servers says it is.
    #[must_use]
    pub fn span() -> Self {
        Self {
            name: "drawspan".to_owned(),
            ..Self::bridge()
        }
    }

    fn as_json(&self) -> String {
        let mut json = String::from(r#"{"name":"#);
        write_string(&mut json, &self.name);
        if let Some(title) = &self.title {
            json.push_str(r#","title":"#);
            write_string(&mut json, title);
        }
        json.push_str(r#","version":"#);
        write_string(&mut json, &self.version);
        json.push('}');
        json
    }
}

/// Where the Gateway is and how to introduce ourselves.
#[derive(Debug)]
pub struct GatewayConfig {
    /// Where to connect.
    pub connect: ConnectSpec,
    /// Identity, credentials and limits.
    pub session: SessionConfig,
}

/// Who decides about tool calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HubPolicy {
    /// Every call passes.
    #[default]
    Open,
    /// This program is asked. Design: hooks.beforeToolCall.
    Hook(HookConfig),
    /// The embedding program is asked by [`HubEvent::GateAsked`].
    Embedder,
}

/// The before-tool-call hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookConfig {
    /// Program, arguments and environment.
    pub command: ChildSpec,
    /// How long it may take; `None` means `hook_timeout`.
    pub timeout: Option<Duration>,
}

/// What the embedding program is told.
#[derive(Debug)]
pub enum HubEvent {
    /// A call waits for a verdict: answer by [`Hub::resolve_gate`]. One that waits for a person is among
    /// [`Hub::held_calls`], too, and somebody else may answer it first.
    GateAsked {
        /// The call.
        call: CallId,
        /// Heading.
        title: String,
        /// Text below it.
        description: String,
    },
    /// A request for the embedding program: answer by [`Hub::resolve_local`].
    Local(LocalRequest),
    /// Nobody wants the answer of this call any more.
    LocalCancelled(CallId),
    /// A client told something that is no answer: `notifications/roots/list_changed`, progress of what it was
    /// asked, or whatever else it calls so. What the protocol itself needs (`initialized`, `cancelled`) is seen
    /// to and not told.
    ClientNotification {
        /// Which client, as in [`crate::local::Context::client`].
        client: PeerId,
        /// The method.
        method: String,
        /// `params`, a raw object from outside.
        params: Option<Box<str>>,
    },
    /// One line for the person who runs us.
    Diagnostic(Diagnostic),
    /// One frame crossed the Gateway wire; only with [`HubConfig::tap`].
    GatewayFrame {
        /// Whether it came from the Gateway.
        received: bool,
        /// The frame as it is: the first ones hold credentials.
        text: String,
    },
    /// An address cannot be listened on, or not any more. The other doors stay open: the program decides
    /// whether it goes on, and tells the person who runs it.
    ListenFailed {
        /// What the system said.
        message: String,
    },
    /// The Gateway gave us a device token to keep.
    StoreToken(StoredToken),
    /// The kept device token is no good any more.
    ForgetToken,
    /// Everything is answered and flushed; the program may end.
    Finished(Outcome),
}

/// How the hub's work ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client ended its input, or went away.
    ClientDone,
    /// Our own input or output failed (a full disk, say); a diagnostic told how.
    ClientFailed,
    /// [`Hub::shutdown`] was called.
    Stopped,
    /// The Gateway refused us at the start.
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Lines(PeerId),
    Http,
    /// Of a Unix socket.
    Listener,
    Gateway,
    Hook(CallId),
    Plugin(CallId),
}

/// See the module page.
pub struct Hub {
    limits: Limits,
    /// What clients are told at first, and what where there are several servers behind us.
    server: Arc<ServerConfig>,
    server_of_several: Arc<ServerConfig>,
    /// The channel tools, as `tools/list` has them, where there is a Gateway.
    channel_tools: Vec<String>,
    hook: Option<HookConfig>,
    tap: bool,
    entropy: Box<dyn Entropy>,
    next_wire: WireId,
    next_peer: PeerId,
    wires: IdMap<WireId, Owner>,
    /// Clients on line wires.
    lines: BTreeMap<PeerId, LineClient>,
    /// Clients over HTTP.
    http: HttpFront,
    /// How line clients come in.
    sockets: SocketDoor,
    /// Those of the line clients whose links may want something from the loop.
    dirty: Vec<PeerId>,
    /// Those of the line clients that will say no more.
    leaving: BTreeSet<PeerId>,
    gateway: Option<GatewaySide>,
    local: Option<LocalSide>,
    plugins: Plugins,
    upstream: Option<UpstreamSide>,
    bridge: Bridge,
    gate: Gate,
    hooks: BTreeMap<CallId, CommandRun>,
    ledger: Ledger,
    /// What the audit log is told, when one is kept.
    trail: Option<Trail>,
    io: VecDeque<IoRequest>,
    events: VecDeque<HubEvent>,
    ending: Option<(Outcome, Uptime)>,
    /// The end waits for what the Gateway was asked, until then.
    winding_down: Option<Uptime>,
    finished: bool,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub")
            .field("lines", &self.lines.len())
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

impl Hub {
    /// A hub that starts to connect to its Gateway and has no client yet.
    #[must_use]
    pub fn new(config: HubConfig, mut entropy: Box<dyn Entropy>, now: Now) -> Self {
        let HubConfig {
            limits,
            identity,
            gateway,
            local,
            plugins,
            upstream,
            channel_mode,
            verbose,
            policy,
            http,
            tap,
        } = config;
        let (policy, hook) = match policy {
            HubPolicy::Open => (Policy::Open, None),
            HubPolicy::Hook(hook) => (Policy::Hook, Some(hook)),
            HubPolicy::Embedder => (Policy::Embedder, None),
        };
        let server_of_several = Arc::new(server_config(
            &identity,
            gateway.is_some().then_some(channel_mode),
            local.as_ref(),
            !plugins.is_empty(),
            upstream.as_ref(),
            &limits,
        ));
        let server = Arc::clone(&server_of_several);
        let upstream = upstream.map(|config| {
            // It needs chance for the jitter of its waits only.
            let mut seed = [0; 8];
            entropy.fill(&mut seed);
            let jitter = Box::new(Seeded::new(u64::from_le_bytes(seed)));
            let state_key = local.as_ref().map(|local| local.state_key);
            let questions = Questions::new(state_key, &limits, &mut *entropy);
            let alone = gateway.is_none() && local.is_none() && plugins.is_empty();
            let named = identity.as_json();
            UpstreamSide::new(config, named, questions, &limits, jitter, alone, now)
        });
        let mut hub = Self {
            http: HttpFront::new(http, server.clone(), &limits),
            server,
            server_of_several,
            channel_tools: gateway
                .as_ref()
                .map(|_| channel_tools())
                .unwrap_or_default(),
            hook,
            tap,
            entropy,
            next_wire: WireId::default(),
            next_peer: PeerId::default(),
            wires: IdMap::new(),
            lines: BTreeMap::new(),
            sockets: SocketDoor::default(),
            dirty: Vec::new(),
            leaving: BTreeSet::new(),
            gateway: gateway.map(|gateway| GatewaySide {
                session: GatewaySession::new(gateway.session, now),
                wire: GatewayWire::new(gateway.connect, &limits),
                tickets: BTreeMap::new(),
            }),
            local: local.map(|config| LocalSide::new(config, &limits)),
            plugins: Plugins::default(),
            upstream,
            bridge: Bridge::new(&limits, channel_mode, verbose),
            gate: Gate::new(policy, &limits),
            hooks: BTreeMap::new(),
            ledger: Ledger::default(),
            trail: None,
            io: VecDeque::new(),
            events: VecDeque::new(),
            ending: None,
            winding_down: None,
            finished: false,
            limits,
        };
        hub.offer_plugins(plugins);
        hub.reserve_names(now);
        hub.choose_server();
        hub.settle(now);
        hub
    }

    /// Serves our own stdin and stdout.
    pub fn serve_stdio(&mut self, now: Now) -> PeerId {
        let wire = self.mint_wire();
        let id = self.add_line_client(
            StdioHost::open(wire, &self.limits),
            false,
            SharedText::fixed("stdio"),
        );
        self.settle(now);
        id
    }

    /// Serves a client on a wire that the loop was given already open; the caller hands the wire over.
    pub fn serve_adopted(&mut self, now: Now) -> WireId {
        let wire = self.mint_wire();
        self.add_line_client(
            StdioHost::adopted(wire, &self.limits),
            false,
            SharedText::fixed("adopted"),
        );
        self.settle(now);
        wire
    }

    /// Serves HTTP on an address literal; port 0 lets the system choose. Gives the wire of the listener, to
    /// ask the loop which port it got.
    pub fn listen_http(&mut self, host: &str, port: u16) -> WireId {
        let wire = self.mint_wire();
        self.wires.insert(wire, Owner::Http);
        let request = self.http.listen(wire, host.to_owned(), port);
        self.io.push_back(request);
        wire
    }

    /// The next thing the embedding program should know. Drained to `None` after each turn.
    pub fn poll_event(&mut self) -> Option<HubEvent> {
        self.events.pop_front()
    }

    /// The verdict on a call that [`HubEvent::GateAsked`] named. A call that is gone is ignored.
    pub fn resolve_gate(&mut self, now: Now, call: CallId, verdict: Verdict) {
        if let Some(passage) = self.gate.resolve(now, call, verdict) {
            self.route_passage(now, passage);
        }
        self.settle(now);
    }

    /// Ends the work: open calls are answered, what is answered leaves, then [`HubEvent::Finished`] comes,
    /// after `shutdown_timeout` at the latest. What the Gateway was asked it may still answer for
    /// three quarters of that; a second call of this waits for it no longer.
    pub fn shutdown(&mut self, now: Now) {
        self.end(now, Outcome::Stopped);
        self.settle(now);
    }

    /// Calls that wait for an answer.
    #[must_use]
    pub fn open_calls(&self) -> usize {
        self.ledger.len()
    }

    const fn mint_wire(&mut self) -> WireId {
        let wire = self.next_wire;
        self.next_wire = wire.next();
        wire
    }

    const fn mint_peer(&mut self) -> PeerId {
        let peer = self.next_peer;
        self.next_peer = peer.next();
        peer
    }

    /// Routes until every child is empty.
    fn settle(&mut self, now: Now) {
        for _ in 0..self.limits.turn_steps_max {
            let moved = self.step_gateway(now)
                | self.step_bridge(now)
                | self.step_hooks(now)
                | self.step_holds(now)
                | self.step_plugins(now)
                | self.step_local(now)
                | self.step_upstream(now)
                | self.step_http(now);
            if !moved && !self.finish_if_done(now) {
                self.collect_requests();
                return;
            }
        }
        self.diagnose(Diagnostic::new(
            Level::Error,
            Subject::Bridge,
            format!(
                "one turn took more than {} steps, limit turn_steps_max; this is a bug",
                self.limits.turn_steps_max
            ),
        ));
    }
}

fn channel_tools() -> Vec<String> {
    let raw = |tool: &crate::bridge::ToolDef| {
        let mut json = String::new();
        tool.write_json(&mut json, tool.name);
        json
    };
    Bridge::tool_list().iter().map(raw).collect()
}

/// What peers say of the hub: channel tools with a Gateway, and what the embedding program offers.
fn server_config(
    identity: &ServerIdentity,
    bridge: Option<ChannelMode>,
    local: Option<&LocalConfig>,
    has_plugins: bool,
    upstream: Option<&UpstreamConfig>,
    limits: &Limits,
) -> ServerConfig {
    let mut legacy = Vec::new();
    let mut modern = Vec::new();
    let mut changing = Changing::default();
    if let Some(mode) = bridge {
        if mode.announces() {
            legacy.push(
                r#""experimental":{"claude/channel":{},"claude/channel/permission":{}}"#.to_owned(),
            );
        }
        changing.tools = true;
    }
    let offered = local.map(|local| local.registry.capabilities());
    if let Some(offered) = &offered {
        legacy.push(offered.legacy.clone());
        modern.push(offered.modern.clone());
        changing.tools |= offered.changing.tools;
        changing.prompts = offered.changing.prompts;
        changing.resources = offered.changing.resources;
    }
    let declares = |members: &[String], name: &str| {
        members
            .iter()
            .any(|members| members.contains(&format!("\"{name}\":")))
    };
    // Nobody waits for servers to say what they have: they may have all of it.
    if upstream.is_some() {
        changing = Changing::ALL;
        let all = r#""tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"completions":{},"logging":{}"#.to_owned();
        let tasks = offered.as_ref().is_some_and(|all| all.task_updates);
        let tasks = tasks.then(|| format!(r#""extensions":{{"{TASKS_EXTENSION}":{{}}}}"#));
        let bridge = legacy
            .drain(..)
            .filter(|members| members.contains("claude/"));
        legacy = bridge.chain([all.clone()]).collect();
        modern = tasks.into_iter().chain([all]).collect();
    }
    changing.tools |= has_plugins;
    if bridge.is_some() || upstream.is_some() || has_plugins {
        for members in [&mut legacy, &mut modern] {
            if !declares(members, "tools") {
                members.push(r#""tools":{"listChanged":true}"#.to_owned());
            }
        }
        if !declares(&legacy, "logging") {
            legacy.push(r#""logging":{}"#.to_owned());
        }
    }
    let object = |members: Vec<String>| {
        let members: Vec<String> = members
            .into_iter()
            .filter(|members| !members.is_empty())
            .collect();
        format!("{{{}}}", members.join(","))
    };
    ServerConfig {
        server_info: identity.as_json(),
        capabilities: object(legacy),
        modern_capabilities: object(modern),
        instructions: identity.instructions.as_deref().map(json_string),
        resource_updates: upstream.is_some()
            || offered
                .as_ref()
                .is_some_and(|offered| offered.resource_updates),
        task_updates: offered.is_some_and(|offered| offered.task_updates),
        changing,
        awaits_introduction: false,
        relays_subscriptions: upstream.is_some(),
        cache_ttl_ms: 300_000,
        limits: limits.clone(),
    }
}

fn json_string(text: &str) -> String {
    let mut json = String::new();
    write_string(&mut json, text);
    json
}

impl Driven for Hub {
    fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>) {
        if wire >= span::FIRST_WIRE {
            if let Some(side) = &mut self.upstream {
                side.manager.handle_io(now, wire, event);
            }
            return self.settle(now);
        }
        match self.wires.get(&wire).copied() {
            Some(Owner::Lines(peer)) => self.handle_lines(now, peer, event),
            Some(Owner::Http) => {
                // One in two inputs under load, and nobody waits for it.
                let drained = matches!(event, IoEvent::Drained) && self.ending.is_none();
                if drained && self.http.is_drained_unmoved(now, wire) {
                    return;
                }
                self.handle_http(now, wire, event);
            }
            Some(Owner::Listener) => {
                if let IoEvent::Failed(fault) = event {
                    self.listen_failed(wire, fault);
                }
            }
            Some(Owner::Gateway) => {
                if let Some(gateway) = &mut self.gateway {
                    gateway.wire.handle_io(now, event);
                }
            }
            Some(Owner::Hook(call)) => {
                if let Some(run) = self.hooks.get_mut(&call) {
                    run.handle_io(now, event);
                }
            }
            Some(Owner::Plugin(call)) => {
                if let Some(run) = self.plugins.run_mut(call) {
                    run.handle_io(now, event);
                }
            }
            None => {}
        }
        self.settle(now);
    }

    fn handle_accept(&mut self, now: Now, listener: WireId, peer: &str) -> Option<WireId> {
        if self.ending.is_none() && self.sockets.is_listener(listener) {
            return Some(self.accept_socket(now, peer));
        }
        // Some more than the limit get in, to be told so.
        if self.ending.is_some() || !self.http.is_listener(listener) || self.http.is_packed() {
            return None;
        }
        let wire = self.mint_wire();
        self.wires.insert(wire, Owner::Http);
        self.http.accept(now, wire);
        self.settle(now);
        Some(wire)
    }

    fn handle_timeout(&mut self, now: Now) {
        while let Some(refused) = self.gate.poll_expired(now) {
            self.route_passage(now, refused);
        }
        for run in self.hooks.values_mut() {
            run.handle_timeout(now);
        }
        self.plugins.handle_timeout(now);
        if let Some(gateway) = &mut self.gateway {
            gateway.wire.handle_timeout(now);
            gateway.session.handle_timeout(now, &mut *self.entropy);
        }
        if let Some(local) = &mut self.local {
            local.desk.handle_timeout(now);
        }
        self.upstream_timeout(now);
        self.bridge.handle_timeout(now);
        self.http.handle_timeout(now);
        self.hurry_ended_clients(now);
        self.settle(now);
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        let request = self.io.pop_front();
        if request.is_none() {
            self.sockets.requests_are_done();
        }
        request
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let fixed = [
            self.ending_deadline(),
            self.http.next_deadline(),
            self.gateway
                .as_ref()
                .and_then(|gateway| gateway.wire.next_deadline()),
            self.gateway
                .as_ref()
                .and_then(|gateway| gateway.session.next_deadline()),
            self.local
                .as_ref()
                .and_then(|local| local.desk.next_deadline()),
            self.upstream.as_ref().and_then(UpstreamSide::next_deadline),
            self.plugins.next_deadline(),
            self.upstream
                .as_ref()
                .and_then(|side| side.openings.next_deadline()),
            self.bridge.next_deadline(),
            self.gate.next_deadline(),
        ];
        let hooks = self.hooks.values().map(CommandRun::next_deadline);
        fixed.into_iter().chain(hooks).fold(None, Deadline::earlier)
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        if wire >= span::FIRST_WIRE {
            return self.upstream.as_mut()?.manager.outgoing(wire);
        }
        let Some(owner) = self.wires.get(&wire) else {
            return self.sockets.outgoing(wire);
        };
        match owner {
            Owner::Listener => None,
            Owner::Lines(peer) => self
                .lines
                .get_mut(peer)
                .map(|client| client.link.outgoing()),
            Owner::Http => self.http.outgoing(wire),
            Owner::Gateway => self
                .gateway
                .as_mut()
                .and_then(|gateway| gateway.wire.outgoing(wire)),
            Owner::Hook(call) => self.hooks.get_mut(call).map(CommandRun::outgoing),
            Owner::Plugin(call) => self.plugins.run_mut(*call).map(CommandRun::outgoing),
        }
    }
}
