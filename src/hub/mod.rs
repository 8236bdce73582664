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
//! An embedding program drives the hub like any [`Driven`](crate::link::Driven) machine and drains
//! [`Hub::poll_event`] beside it; questions it gets there are answered by [`Hub::resolve_gate`]. Rules of
//! the gate are given by [`Hub::set_rules`], before the first client is let in.
//!
//! | file | has |
//! |---|---|
//! | `config`, `event` | what an embedding program says and hears |
//! | `wires` | the hub as its loop sees it: whose each wire is |
//! | `doors`, `socket_door`, `http` | the ways in for clients |
//! | `route`, `ledger` | the way of a call, and where each one is |
//! | `hooks`, `approvals`, `waits`, `audit` | who decides about a call, and what is told of it |
//! | `gateway_side`, `local_side`, `plugins`, `span` | who runs it: the Gateway, this program, a command, other servers |
//! | `capabilities`, `usage`, `ending` | what clients are told that we can do; limits in use; how all of it ends |

mod approvals;
mod audit;
mod capabilities;
mod config;
mod doors;
mod ending;
mod event;
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
mod waits;
mod wires;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub use self::approvals::{APPROVALS_LIST_METHOD, APPROVALS_RESOLVE_METHOD};
use self::audit::Trail;
use self::capabilities::{channel_tools, server_config};
pub use self::config::{GatewayConfig, HookConfig, HubConfig, HubPolicy, ServerIdentity};
use self::doors::LineClient;
pub use self::event::{HubEvent, Outcome};
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
use self::waits::Waits;
use self::wires::Owner;
use crate::bridge::Bridge;
use crate::clock::{Now, Uptime};
use crate::codec::shared_text::SharedText;
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::entropy::{Entropy, Seeded};
use crate::gate::{Gate, Policy, Verdict};
use crate::gateway::session::GatewaySession;
use crate::ids::{CallId, IdMap, PeerId, WireId};
use crate::limits::Limits;
use crate::link::IoRequest;
use crate::link::command::CommandRun;
use crate::link::stdio_host::StdioHost;
pub use crate::manager::entry::PluginTool;
use crate::protocol::server::ServerConfig;

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
    waits: Waits,
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
            waits: Waits::default(),
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

    const fn mint_peer(&mut self) -> PeerId {
        let peer = self.next_peer;
        self.next_peer = peer.next();
        peer
    }

    /// Routes until every child is empty. Steps stay functions of their own, and those of children that most
    /// hubs do not have are asked for first: this runs for each event, and what they need is not put ready
    /// for nothing.
    fn settle(&mut self, now: Now) {
        for _ in 0..self.limits.turn_steps_max {
            let moved = (self.gateway.is_some() && self.step_gateway(now))
                | self.step_bridge(now)
                | (!self.hooks.is_empty() && self.step_hooks(now))
                | self.step_holds(now)
                | (self.plugins.are_running() && self.step_plugins(now))
                | self.step_local(now)
                | (self.upstream.is_some() && self.step_upstream(now))
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

#[cfg(test)]
mod rig;
