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
//! it; questions it gets there are answered by [`Hub::resolve_gate`].

pub mod gateway_call;
mod gateway_wire;
pub mod ledger;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::bridge::{Bridge, BridgeOutput, ChannelMode, Ticket};
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::json_text::write_string;
use crate::codec::lines::LineEvent;
use crate::codec::outbuf::OutBuf;
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::entropy::Entropy;
use crate::gate::{Gate, Passage, Policy, Question, ToolCall, Verdict, read_hook_output};
use crate::gateway::identity::StoredToken;
use crate::gateway::session::{GatewaySession, Refusal, SessionConfig, SessionOutput};
use crate::hub::gateway_wire::{GatewayWire, WireEvent};
use crate::hub::ledger::{Ledger, Place};
use crate::ids::{CallId, GatewayRequestId, PeerId, WireId};
use crate::limits::Limits;
use crate::link::command::CommandRun;
use crate::link::stdio_host::StdioHost;
use crate::link::websocket::ConnectSpec;
use crate::link::{ChildSpec, Driven, IoEvent, IoRequest};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{CallParams, LogLevel, ToolResult};
use crate::protocol::server::{
    Answer, Changing, RequestKey, Scope, ServerConfig, ServerEvent, ServerPeer, ServerRequest,
};

/// What a hub is made of.
#[derive(Debug)]
pub struct HubConfig {
    /// Every bound.
    pub limits: Limits,
    /// Version in `serverInfo`.
    pub version: &'static str,
    /// The Gateway to bridge, and who we are to it.
    pub gateway: GatewayConfig,
    /// Whether conversations are announced to Claude as channel messages.
    pub channel_mode: ChannelMode,
    /// Say more on stderr.
    pub verbose: bool,
    /// Who decides about calls.
    pub policy: HubPolicy,
    /// Whether [`HubEvent::GatewayFrame`] tells what crosses the Gateway wire. It holds credentials.
    pub tap: bool,
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
    /// A call waits for a verdict: answer by [`Hub::resolve_gate`].
    GateAsked {
        /// The call.
        call: CallId,
        /// Heading.
        title: String,
        /// Text below it.
        description: String,
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
    Downstream(PeerId),
    Gateway,
    Hook(CallId),
}

#[derive(Debug)]
struct Downstream {
    link: StdioHost,
    peer: ServerPeer,
    closing: bool,
    /// The input has ended: until when answers may take to be found, then to leave.
    leave_by: Option<Uptime>,
    failed: bool,
    notifications_dropped: u64,
}

#[derive(Debug)]
struct GatewaySide {
    session: GatewaySession,
    wire: GatewayWire,
    tickets: BTreeMap<GatewayRequestId, Ticket>,
}

/// See the module page.
pub struct Hub {
    limits: Limits,
    server: Arc<ServerConfig>,
    /// The result of `tools/list`.
    tools: String,
    hook: Option<HookConfig>,
    tap: bool,
    entropy: Box<dyn Entropy>,
    next_wire: WireId,
    next_peer: PeerId,
    wires: BTreeMap<WireId, Owner>,
    peers: BTreeMap<PeerId, Downstream>,
    gateway: GatewaySide,
    bridge: Bridge,
    gate: Gate,
    hooks: BTreeMap<CallId, CommandRun>,
    ledger: Ledger,
    io: VecDeque<IoRequest>,
    events: VecDeque<HubEvent>,
    ending: Option<(Outcome, Uptime)>,
    finished: bool,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub")
            .field("peers", &self.peers.len())
            .field("ledger", &self.ledger)
            .finish_non_exhaustive()
    }
}

impl Hub {
    /// A hub that starts to connect to its Gateway and has no client yet.
    #[must_use]
    pub fn new(config: HubConfig, entropy: Box<dyn Entropy>, now: Now) -> Self {
        let HubConfig {
            limits,
            version,
            gateway,
            channel_mode,
            verbose,
            policy,
            tap,
        } = config;
        let (policy, hook) = match policy {
            HubPolicy::Open => (Policy::Open, None),
            HubPolicy::Hook(hook) => (Policy::Hook, Some(hook)),
            HubPolicy::Embedder => (Policy::Embedder, None),
        };
        let mut hub = Self {
            server: Arc::new(server_config(version, channel_mode, &limits)),
            tools: tool_list(),
            hook,
            tap,
            entropy,
            next_wire: WireId::default(),
            next_peer: PeerId::default(),
            wires: BTreeMap::new(),
            peers: BTreeMap::new(),
            gateway: GatewaySide {
                session: GatewaySession::new(gateway.session, now),
                wire: GatewayWire::new(gateway.connect, &limits),
                tickets: BTreeMap::new(),
            },
            bridge: Bridge::new(&limits, channel_mode, verbose),
            gate: Gate::new(policy, &limits),
            hooks: BTreeMap::new(),
            ledger: Ledger::default(),
            io: VecDeque::new(),
            events: VecDeque::new(),
            ending: None,
            finished: false,
            limits,
        };
        hub.settle(now);
        hub
    }

    /// Serves our own stdin and stdout.
    pub fn serve_stdio(&mut self, now: Now) -> PeerId {
        let wire = self.mint_wire();
        let link = StdioHost::open(wire, &self.limits);
        self.add_peer(now, link)
    }

    /// Serves a client on a wire that the loop was given already open; the caller hands the wire over.
    pub fn serve_adopted(&mut self, now: Now) -> WireId {
        let wire = self.mint_wire();
        let link = StdioHost::adopted(wire, &self.limits);
        self.add_peer(now, link);
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
    /// after `shutdown_timeout` at the latest.
    pub fn shutdown(&mut self, now: Now) {
        self.end(now, Outcome::Stopped);
        self.settle(now);
    }

    /// Calls that wait for an answer.
    #[must_use]
    pub fn open_calls(&self) -> usize {
        self.ledger.len()
    }

    fn add_peer(&mut self, now: Now, link: StdioHost) -> PeerId {
        let id = self.next_peer;
        self.next_peer = id.next();
        self.wires.insert(link.wire(), Owner::Downstream(id));
        let peer = ServerPeer::new(self.server.clone());
        self.peers.insert(
            id,
            Downstream {
                link,
                peer,
                closing: false,
                leave_by: None,
                failed: false,
                notifications_dropped: 0,
            },
        );
        self.settle(now);
        id
    }

    const fn mint_wire(&mut self) -> WireId {
        let wire = self.next_wire;
        self.next_wire = wire.next();
        wire
    }

    fn end(&mut self, now: Now, outcome: Outcome) {
        if self.ending.is_some() {
            return;
        }
        let why = match &outcome {
            Outcome::Refused(refusal) => refusal.to_string(),
            Outcome::ClientDone | Outcome::ClientFailed | Outcome::Stopped => {
                "drawspan is shutting down".to_owned()
            }
        };
        self.ending = Some((outcome, now.after(self.limits.shutdown_timeout)));
        self.bridge.close(&why);
        for (call, mut run) in std::mem::take(&mut self.hooks) {
            run.abandon();
            while let Some(request) = run.poll_io() {
                self.io.push_back(request);
            }
            self.wires.retain(|_, owner| *owner != Owner::Hook(call));
        }
        for peer in self.peers.keys().copied().collect::<Vec<_>>() {
            for call in self.ledger.of_peer(peer) {
                if self
                    .ledger
                    .entry(call)
                    .is_some_and(|entry| entry.place == Place::Gate)
                {
                    self.gate.cancel(call);
                    self.answer(call, &ToolResult::error(&why));
                }
            }
        }
        self.gateway.session.shutdown(now);
    }

    /// Routes until every child is empty.
    fn settle(&mut self, now: Now) {
        for _ in 0..self.limits.turn_steps_max {
            let moved = self.step_peers(now)
                | self.step_gateway(now)
                | self.step_bridge(now)
                | self.step_hooks(now);
            if !moved && !self.finish_if_done(now) {
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

    fn step_peers(&mut self, now: Now) -> bool {
        let mut moved = false;
        for id in self.peers.keys().copied().collect::<Vec<_>>() {
            while let Some(event) = self
                .peers
                .get_mut(&id)
                .and_then(|down| down.peer.poll_event())
            {
                moved = true;
                self.route_server_event(now, id, event);
            }
        }
        moved
    }

    fn route_server_event(&mut self, now: Now, peer: PeerId, event: ServerEvent) {
        match event {
            ServerEvent::Request(request) => self.route_request(now, peer, request),
            ServerEvent::Notification { method, params } => {
                self.bridge
                    .handle_notification(now, &method, params.as_deref());
            }
            ServerEvent::Cancelled(key) => {
                if let Some(call) = self.ledger.find(peer, key) {
                    self.drop_call(call);
                }
            }
            // Nothing behind us asks clients anything yet.
            ServerEvent::Answered { .. } => {}
        }
    }

    fn route_request(&mut self, now: Now, peer: PeerId, request: ServerRequest) {
        let ServerRequest {
            key,
            method,
            params,
            wants_progress,
            ..
        } = request;
        match &*method {
            "tools/list" => {
                if let Some(down) = self.peers.get_mut(&peer) {
                    down.peer
                        .respond(key, Answer::List(&self.tools), down.link.sink());
                }
            }
            "tools/call" => match CallParams::read(params.as_deref()) {
                Ok(call) => self.route_call(now, peer, key, &call, wants_progress),
                Err(error) => self.respond(peer, key, Answer::Error(&error)),
            },
            other => self.respond(peer, key, Answer::Error(&RpcError::method_not_found(other))),
        }
    }

    fn route_call(
        &mut self,
        now: Now,
        peer: PeerId,
        key: RequestKey,
        params: &CallParams<'_>,
        wants_progress: bool,
    ) {
        if !Bridge::owns(&params.name) {
            let result = ToolResult::error(&crate::bridge::not_found(&params.name));
            return self.respond(peer, key, Answer::Result(result.as_json()));
        }
        if self.ending.is_some() {
            let error = RpcError::new(ErrorCode::InternalError, "drawspan is shutting down");
            return self.respond(peer, key, Answer::Error(&error));
        }
        let caller = self
            .peers
            .get(&peer)
            .map_or("", |down| down.peer.client_name())
            .to_owned();
        let call = ToolCall {
            id: self.ledger.open(peer, key),
            tool: params.name.clone().into_owned(),
            arguments: params.arguments.unwrap_or("{}").into(),
            server: "openclaw",
            caller,
            wants_progress,
        };
        let passage = self.gate.admit(call);
        self.route_passage(now, passage);
    }

    fn route_passage(&mut self, now: Now, passage: Passage) {
        match passage {
            Passage::Open(gated) => {
                self.ledger.moved(gated.id(), Place::Bridge);
                self.bridge.call(now, gated, &mut *self.entropy);
            }
            Passage::Refused(call, reason) => self.answer(call, &ToolResult::error(&reason)),
            Passage::Ask(call, Question::Person { title, description }) => {
                self.events.push_back(HubEvent::GateAsked {
                    call,
                    title,
                    description,
                });
            }
            Passage::Ask(call, Question::Hook { input }) => {
                let Some(hook) = &self.hook else { return };
                let timeout = hook.timeout.unwrap_or(self.limits.hook_timeout);
                let command = hook.command.clone();
                let wire = self.mint_wire();
                self.wires.insert(wire, Owner::Hook(call));
                self.hooks.insert(
                    call,
                    CommandRun::new(wire, command, &input, timeout, &self.limits, now),
                );
            }
        }
    }

    fn step_hooks(&mut self, now: Now) -> bool {
        let mut over = Vec::new();
        for (call, run) in &mut self.hooks {
            while let Some(request) = run.poll_io() {
                self.io.push_back(request);
            }
            if let Some(outcome) = run.poll_outcome() {
                over.push((*call, outcome));
            }
        }
        let moved = !over.is_empty();
        for (call, outcome) in over {
            self.drop_hook(call);
            let verdict = match outcome {
                Ok(printed) => read_hook_output(&printed),
                Err(why) => Verdict::Deny {
                    reason: format!("tool call refused: the before-tool-call hook failed: {why}"),
                },
            };
            if let Some(passage) = self.gate.resolve(now, call, verdict) {
                self.route_passage(now, passage);
            }
        }
        moved
    }

    fn drop_hook(&mut self, call: CallId) {
        if let Some(mut run) = self.hooks.remove(&call) {
            run.abandon();
            while let Some(request) = run.poll_io() {
                self.io.push_back(request);
            }
            self.wires.retain(|_, owner| *owner != Owner::Hook(call));
        }
    }

    /// Nobody wants the answer of a call any more.
    fn drop_call(&mut self, call: CallId) {
        if let Some(entry) = self.ledger.close(call) {
            self.stop_work(call, entry.place);
        }
    }

    fn stop_work(&mut self, call: CallId, place: Place) {
        match place {
            Place::Gate => {
                self.gate.cancel(call);
                self.drop_hook(call);
            }
            Place::Bridge => self.bridge.cancel(call),
        }
    }

    /// A client that has ended its input waits for us to end: what has no answer by now gets an error, and
    /// what has not left by then is dropped with its client.
    fn hurry_ended_peers(&mut self, now: Now) {
        let due = |down: &Downstream| down.leave_by.is_some_and(|at| at <= now.up);
        let due = self.peers.iter().filter(|(_, down)| due(down));
        let limit = self.limits.shutdown_timeout;
        let text = format!(
            "no answer within {} ms after the end of input, limit shutdown_timeout_ms; it may have been done",
            limit.as_millis()
        );
        for id in due.map(|(id, _)| *id).collect::<Vec<_>>() {
            let calls = self.ledger.of_peer(id);
            if let Some(down) = self.peers.get_mut(&id) {
                down.leave_by = Some(now.after(limit));
                if calls.is_empty() {
                    down.link.handle_write_closed();
                }
            }
            for call in calls {
                if let Some(entry) = self.ledger.entry(call) {
                    self.stop_work(call, entry.place);
                    self.answer(call, &ToolResult::error(&text));
                }
            }
        }
    }

    fn step_bridge(&mut self, now: Now) -> bool {
        let mut moved = false;
        while let Some(output) = self.bridge.poll() {
            moved = true;
            match output {
                BridgeOutput::Answer { call, result } => self.answer(call, &result),
                BridgeOutput::Request {
                    ticket,
                    method,
                    params,
                } => {
                    let id = self.gateway.session.request(now, method, &params);
                    self.gateway.tickets.insert(id, ticket);
                }
                BridgeOutput::Notify { method, params } => self.notify_all(method, &params),
                BridgeOutput::Progress {
                    call,
                    progress,
                    total,
                    message,
                } => {
                    if let Some(entry) = self.ledger.entry(call) {
                        if let Some(down) = self.peers.get_mut(&entry.peer) {
                            down.peer.progress(
                                entry.key,
                                progress,
                                total,
                                &message,
                                down.link.sink(),
                            );
                        }
                    }
                }
                BridgeOutput::Diagnostic(diagnostic) => self.diagnose(diagnostic),
            }
        }
        moved
    }

    fn notify_all(&mut self, method: &'static str, params: &str) {
        for down in self.peers.values_mut().filter(|down| !down.closing) {
            if down.link.is_backed_up() {
                down.notifications_dropped += 1;
            } else {
                down.peer
                    .notify(method, params.to_owned(), down.link.sink());
            }
        }
    }

    fn answer(&mut self, call: CallId, result: &ToolResult) {
        if let Some(entry) = self.ledger.close(call) {
            self.respond(entry.peer, entry.key, Answer::Result(result.as_json()));
        }
    }

    fn respond(&mut self, peer: PeerId, key: RequestKey, answer: Answer<'_>) {
        if let Some(down) = self.peers.get_mut(&peer) {
            down.peer.respond(key, answer, down.link.sink());
        }
    }

    fn step_gateway(&mut self, now: Now) -> bool {
        let mut moved = false;
        let GatewaySide { session, wire, .. } = &mut self.gateway;
        while let Some(event) = wire.poll_event() {
            moved = true;
            if let (WireEvent::Text(text), true) = (&event, self.tap) {
                let text = text.clone();
                self.events.push_back(HubEvent::GatewayFrame {
                    received: true,
                    text,
                });
            }
            event.tell(session, now, &mut *self.entropy);
        }
        while let Some(output) = self.gateway.session.poll() {
            moved = true;
            self.route_session_output(now, output);
        }
        while let Some(request) = self.gateway.wire.poll_io() {
            self.io.push_back(request);
        }
        moved
    }

    fn route_session_output(&mut self, now: Now, output: SessionOutput) {
        match output {
            SessionOutput::Open => {
                self.wires.retain(|_, owner| *owner != Owner::Gateway);
                let wire = self.mint_wire();
                self.wires.insert(wire, Owner::Gateway);
                self.gateway.wire.open(wire, &mut *self.entropy, now);
            }
            SessionOutput::Send(text) => {
                if self.tap {
                    let text = text.clone();
                    self.events.push_back(HubEvent::GatewayFrame {
                        received: false,
                        text,
                    });
                }
                if let Err(full) = self.gateway.wire.send_text(&text) {
                    let message = format!("gateway is not reading: {full}");
                    self.diagnose(Diagnostic::new(Level::Warning, Subject::Gateway, message));
                    self.gateway.wire.abort();
                }
            }
            SessionOutput::Close { code, reason } => self.gateway.wire.close(now, code, &reason),
            SessionOutput::Abort => self.gateway.wire.abort(),
            SessionOutput::HelloAccepted => self.gateway.wire.hello_accepted(),
            SessionOutput::Ready { first } => self.bridge.handle_ready(now, first),
            SessionOutput::Lost { why, .. } => self.bridge.handle_lost(now, &why),
            SessionOutput::Refused(refusal) => self.end(now, Outcome::Refused(refusal)),
            SessionOutput::Response { id, outcome } => {
                if let Some(ticket) = self.gateway.tickets.remove(&id) {
                    self.bridge.handle_response(now, ticket, outcome);
                }
            }
            SessionOutput::Event { name, payload } => self.bridge.handle_event(now, &name, payload),
            SessionOutput::StoreToken(token) => self.events.push_back(HubEvent::StoreToken(token)),
            SessionOutput::ForgetToken => self.events.push_back(HubEvent::ForgetToken),
            SessionOutput::Diagnostic(diagnostic) => self.diagnose(diagnostic),
        }
    }

    /// Tells the person who runs us, and clients that asked for log messages.
    fn diagnose(&mut self, diagnostic: Diagnostic) {
        let level = match diagnostic.level {
            Level::Info => LogLevel::Info,
            Level::Warning => LogLevel::Warning,
            Level::Error => LogLevel::Error,
        };
        for down in self
            .peers
            .values_mut()
            .filter(|down| !down.link.is_backed_up())
        {
            let mut data = String::new();
            write_string(&mut data, &diagnostic.message);
            down.peer.log(level, "drawspan", &data, down.link.sink());
        }
        self.events.push_back(HubEvent::Diagnostic(diagnostic));
    }

    /// A client that has ended its input gets its last answers, and then the hub is done with it.
    /// Says whether anything moved.
    fn finish_if_done(&mut self, now: Now) -> bool {
        let stopping = self.ending.is_some();
        let too_late = self.ending.as_ref().is_some_and(|(_, at)| *at <= now.up);
        let mut left = Vec::new();
        for (id, down) in &mut self.peers {
            if !(down.link.has_ended() || stopping) {
                continue;
            }
            if down.peer.open_requests() == 0 && !down.closing {
                down.closing = true;
                down.peer.end_subscriptions(down.link.sink());
            }
            if down.link.is_gone() || too_late || (down.closing && down.link.outgoing().is_empty())
            {
                left.push(*id);
            }
        }
        let mut moved = !left.is_empty();
        for id in left {
            for call in self.ledger.of_peer(id) {
                self.drop_call(call);
            }
            let mut outcome = Outcome::ClientDone;
            if let Some(down) = self.peers.remove(&id) {
                self.wires.remove(&down.link.wire());
                self.io.push_back(IoRequest::Close(down.link.wire()));
                if down.failed {
                    outcome = Outcome::ClientFailed;
                }
            }
            if self.peers.is_empty() {
                self.end(now, outcome);
            }
        }
        if let (Some((outcome, _)), false) = (&self.ending, self.finished) {
            if self.peers.is_empty() && (!self.gateway.wire.is_open() || too_late) {
                self.finished = true;
                self.events.push_back(HubEvent::Finished(outcome.clone()));
                moved = true;
            }
        }
        moved
    }
}

fn tool_list() -> String {
    let mut json = String::from(r#"{"tools":["#);
    for (i, tool) in Bridge::tool_list().iter().enumerate() {
        if i > 0 {
            json.push(',');
        }
        tool.write_json(&mut json, tool.name);
    }
    json.push_str("]}");
    json
}

fn server_config(version: &str, mode: ChannelMode, limits: &Limits) -> ServerConfig {
    let channel = if mode.announces() {
        r#""experimental":{"claude/channel":{},"claude/channel/permission":{}},"#
    } else {
        ""
    };
    ServerConfig {
        server_info: format!(r#"{{"name":"openclaw","title":"drawspan","version":"{version}"}}"#),
        capabilities: format!(r#"{{{channel}"tools":{{"listChanged":true}},"logging":{{}}}}"#),
        modern_capabilities: r#"{"tools":{"listChanged":true}}"#.to_owned(),
        instructions: None,
        resource_updates: false,
        changing: Changing {
            tools: true,
            prompts: false,
            resources: false,
        },
        cache_ttl_ms: 300_000,
        limits: limits.clone(),
    }
}

impl Driven for Hub {
    fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>) {
        match self.wires.get(&wire).copied() {
            Some(Owner::Downstream(peer)) => self.handle_downstream(now, peer, event),
            Some(Owner::Gateway) => self.gateway.wire.handle_io(now, event),
            Some(Owner::Hook(call)) => {
                if let Some(run) = self.hooks.get_mut(&call) {
                    run.handle_io(now, event);
                }
            }
            None => {}
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Now) {
        while let Some(refused) = self.gate.poll_expired(now) {
            self.route_passage(now, refused);
        }
        for run in self.hooks.values_mut() {
            run.handle_timeout(now);
        }
        self.gateway.wire.handle_timeout(now);
        self.gateway.session.handle_timeout(now, &mut *self.entropy);
        self.bridge.handle_timeout(now);
        self.hurry_ended_peers(now);
        self.settle(now);
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        if let Some(request) = self.io.pop_front() {
            return Some(request);
        }
        if let Some(request) = self.gateway.wire.poll_io() {
            return Some(request);
        }
        self.peers.values_mut().find_map(|down| down.link.poll_io())
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let ending = match &self.ending {
            Some((_, at)) if !self.finished => Some(Deadline::new(*at, "shutdown limit")),
            _ => None,
        };
        let link = self.gateway.wire.next_deadline();
        let fixed = [
            ending,
            link,
            self.gateway.session.next_deadline(),
            self.bridge.next_deadline(),
            self.gate.next_deadline(),
        ];
        let hooks = self.hooks.values().map(CommandRun::next_deadline);
        let ended = self.peers.values().filter_map(|down| down.leave_by);
        let ended = ended.map(|at| Some(Deadline::new(at, "answers after the end of input")));
        let all = fixed.into_iter().chain(hooks).chain(ended);
        all.fold(None, Deadline::earlier)
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        match self.wires.get(&wire)? {
            Owner::Downstream(peer) => self.peers.get_mut(peer).map(|down| down.link.outgoing()),
            Owner::Gateway => self.gateway.wire.outgoing(wire),
            Owner::Hook(call) => self.hooks.get_mut(call).map(CommandRun::outgoing),
        }
    }
}

impl Hub {
    fn handle_downstream(&mut self, now: Now, id: PeerId, event: IoEvent<'_>) {
        let Some(down) = self.peers.get_mut(&id) else {
            return;
        };
        let Downstream { link, peer, failed, .. } = down;
        let mut read = |line: LineEvent<'_>, sink: &mut dyn crate::protocol::MessageSink| match line
        {
            LineEvent::Line(bytes) => peer.handle_message(Scope::default(), bytes, sink),
            LineEvent::Oversized { head, limit } => peer.handle_oversized(head, limit, sink),
        };
        match event {
            IoEvent::Bytes(bytes) => link.handle_bytes(bytes, read),
            IoEvent::Eof => {
                link.handle_eof(&mut read);
                down.leave_by = Some(now.after(self.limits.shutdown_timeout));
                self.step_peers(now);
                // The client waits for what it asked, but not for events that may never come.
                for call in self.ledger.of_peer(id) {
                    self.bridge.end_wait(call);
                }
            }
            IoEvent::WriteClosed => link.handle_write_closed(),
            IoEvent::Failed(fault) => {
                link.handle_write_closed();
                *failed = true;
                self.diagnose(Diagnostic::new(
                    Level::Error,
                    Subject::Downstream,
                    fault.message,
                ));
            }
            IoEvent::Opened | IoEvent::Drained | IoEvent::StderrBytes(_) | IoEvent::Exited(_) => {}
        }
    }
}
