//! A small world around one hub, on virtual time: a client on its line wire, and the far end of its
//! Gateway wire behind real WebSocket framing. Bytes travel in chunks that a seed may cut and delay.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part of it"
)]

pub mod client_player;
pub mod pattern;
pub mod player;

use std::collections::VecDeque;
use std::time::Duration;

use drawspan::bridge::ChannelMode;
use drawspan::clock::{Now, Uptime};
use drawspan::entropy::{Entropy, Seeded};
use drawspan::gate::Verdict;
use drawspan::gateway::endpoint::Credentials;
use drawspan::gateway::identity::{DeviceIdentity, StoredToken};
use drawspan::gateway::session::SessionConfig;
use drawspan::hub::{GatewayConfig, Hub, HubConfig, HubEvent, HubPolicy, Outcome, ServerIdentity};
use drawspan::ids::{CallId, WireId};
use drawspan::limits::Limits;
use drawspan::link::websocket::{ConnectSpec, WebSocketLink, WsLinkEvent};
use drawspan::link::{
    ChildSpec, Driven, ExitReport, FaultKind, IoEvent, IoFault, IoRequest, OpenSpec,
};
use drawspan::secret::Secret;

/// The wall clock of the world shows this when its uptime is zero.
pub const EPOCH_MS: i64 = 1_796_000_000_000;

/// How bytes travel.
#[derive(Clone, Debug, Default)]
pub struct Travel {
    /// The longest delay of one chunk, in milliseconds.
    pub delay_ms: u64,
    /// Whether chunks are cut at random.
    pub cut: bool,
}

/// What a world starts with.
pub struct Setup {
    pub limits: Limits,
    pub mode: ChannelMode,
    pub policy: HubPolicy,
    pub travel: Travel,
    pub seed: u64,
    /// Whether the Gateway accepts connections at the start.
    pub gateway_up: bool,
    pub token: Option<&'static str>,
    pub password: Option<&'static str>,
    /// What the Gateway gave this device earlier.
    pub stored_token: Option<&'static str>,
    pub verbose: bool,
    /// Whether [`World::turns`] are kept, the frames of the Gateway wire among them.
    pub record: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            mode: ChannelMode::Auto,
            policy: HubPolicy::Open,
            travel: Travel::default(),
            seed: 1,
            gateway_up: true,
            token: Some("TOKEN"),
            password: None,
            stored_token: None,
            verbose: false,
            record: false,
        }
    }
}

fn secret(text: &str) -> Secret<String> {
    Secret::new(text.to_owned())
}

/// One direction of a wire: chunks under way, with the moment of their arrival. An empty chunk is its end.
#[derive(Default)]
struct Pipe {
    chunks: VecDeque<(Uptime, Vec<u8>)>,
    last_at: Uptime,
}

impl Pipe {
    fn send(&mut self, now: Now, bytes: &[u8], travel: &Travel, seed: &mut Seeded) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let size = match travel.cut {
                true => 1 + usize::try_from(seed.below(rest.len() as u64)).expect("below a length"),
                false => rest.len(),
            };
            let delay = seed.below(travel.delay_ms + 1);
            let at = now.after(Duration::from_millis(delay)).max(self.last_at);
            self.last_at = at;
            self.chunks.push_back((at, rest[..size].to_vec()));
            rest = &rest[size..];
        }
    }

    /// Ends the direction, behind everything that is under way.
    fn end(&mut self, now: Now) {
        let at = now.up.max(self.last_at);
        self.chunks.push_back((at, Vec::new()));
    }

    fn len(&self) -> usize {
        self.chunks.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    fn receive(&mut self, now: Now) -> Option<Vec<u8>> {
        self.chunks.front().filter(|(at, _)| *at <= now.up)?;
        self.chunks.pop_front().map(|(_, bytes)| bytes)
    }

    fn next(&self) -> Option<Uptime> {
        self.chunks.front().map(|(at, _)| *at)
    }
}

/// What happened at the Gateway's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarEvent {
    /// The bridge connected and upgraded.
    Up,
    /// It sent this frame.
    Text(String),
    /// The connection is over.
    Closed(String),
}

struct Far {
    wire: WireId,
    link: WebSocketLink,
    to_hub: Pipe,
    from_hub: Pipe,
    /// The hub has ended its direction; told to the far end when all bytes are there.
    hub_ends: bool,
    /// The same for the far end's direction.
    far_ends: bool,
    /// Whether the far end hears nothing: the upgrade request is not answered.
    deaf: bool,
}

/// How connections to the Gateway are met while it is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// They are accepted and upgraded.
    Open,
    /// They are accepted, and then nothing is said.
    Deaf,
    /// They are accepted, and the upgrade is refused.
    Refusing,
    /// Nobody answers.
    Silent,
}

/// What a turn of the hub began with.
#[derive(Debug)]
pub enum Input {
    /// Bytes from the client.
    ClientBytes(Vec<u8>),
    /// The client has ended its input.
    ClientEnd,
    /// The client takes no more.
    ClientGone,
    /// Anything else: the Gateway, a child, time, a person.
    Other,
}

/// One input of the hub, and what it wrote before the next one. In order, they are all that happened.
#[derive(Debug)]
pub struct Turn {
    pub at: Uptime,
    pub input: Input,
    /// What it wrote for the client.
    pub wrote: Vec<u8>,
    /// Bytes that waited for the client before it.
    pub backlog_before: usize,
    /// Frames on the Gateway wire; true for those that came from there.
    pub frames: Vec<(bool, String)>,
    /// How often the hub had tried to connect.
    pub connects: usize,
}

/// What a child does: given how it was started and what it read, what it prints and how it ends. `None` is
/// a child that hangs.
pub type Child = Box<dyn FnMut(&ChildSpec, &str) -> Option<(String, ExitReport)>>;

/// See the module page.
pub struct World {
    pub hub: Hub,
    pub now: Now,
    seed: Seeded,
    travel: Travel,
    client_wire: Option<WireId>,
    client_paused: bool,
    /// Bytes the client may still take; `None` is all.
    pub client_appetite: Option<usize>,
    to_hub: Pipe,
    from_hub: Pipe,
    client_buffer: Vec<u8>,
    /// Lines the client received and nobody has looked at yet.
    pub client_lines: VecDeque<String>,
    far: Option<Far>,
    /// Whether connections to the Gateway are accepted.
    pub gateway_up: bool,
    /// When the hub tried to connect.
    pub connects: Vec<Uptime>,
    /// What came to the Gateway's end and nobody has looked at yet.
    pub far_events: VecDeque<FarEvent>,
    /// Lines for stderr.
    pub diagnostics: VecDeque<String>,
    /// Everything else the hub told its program.
    pub hub_events: VecDeque<HubEvent>,
    pub finished: Option<Outcome>,
    child: Option<Child>,
    children: Vec<(WireId, ChildSpec, String)>,
    /// Children that were sent a signal.
    pub signals: usize,
    /// The most bytes that ever waited to leave towards the client.
    pub client_backlog_max: usize,
    /// The same towards the Gateway.
    pub gateway_backlog_max: usize,
    /// Every turn of the hub nobody has looked at yet, with [`Setup::record`].
    pub turns: VecDeque<Turn>,
    record: bool,
    /// Bytes that wait for the client and stand in a turn already.
    client_backlog: usize,
    /// How connections are met while the Gateway is up.
    pub gateway_door: Door,
    /// Bytes the Gateway may still take; `None` is all.
    pub gateway_appetite: Option<usize>,
    /// The longest time that a child takes.
    pub child_delay_ms: u64,
    child_ends: VecDeque<(Uptime, WireId, String, ExitReport)>,
}

impl World {
    pub fn new(setup: Setup) -> Self {
        let now = Now {
            up: Uptime::ZERO,
            unix_ms: EPOCH_MS,
        };
        let config = HubConfig {
            identity: ServerIdentity::bridge(),
            gateway: Some(GatewayConfig {
                connect: ConnectSpec {
                    host: "127.0.0.1".to_owned(),
                    port: 18_789,
                    path: "/".to_owned(),
                    tls: None,
                },
                session: SessionConfig {
                    url_for_log: "ws://127.0.0.1:18789".to_owned(),
                    loopback: true,
                    identity: DeviceIdentity::generate(&mut Seeded::new(setup.seed ^ 0x5eed)),
                    credentials: Credentials {
                        token: setup.token.map(secret),
                        password: setup.password.map(secret),
                    },
                    stored_token: setup.stored_token.map(|token| StoredToken {
                        token: secret(token),
                        role: "operator".to_owned(),
                        scopes: Vec::new(),
                        updated_at_ms: EPOCH_MS - 1,
                    }),
                    platform: "linux",
                    limits: setup.limits.clone(),
                },
            }),
            channel_mode: setup.mode,
            verbose: setup.verbose,
            policy: setup.policy,
            tap: setup.record,
            limits: setup.limits,
            ..HubConfig::default()
        };
        let entropy: Box<dyn Entropy> = Box::new(Seeded::new(setup.seed));
        let mut world = Self {
            hub: Hub::new(config, entropy, now),
            now,
            seed: Seeded::new(setup.seed.wrapping_mul(31)),
            travel: setup.travel,
            client_wire: None,
            client_paused: false,
            client_appetite: None,
            to_hub: Pipe::default(),
            from_hub: Pipe::default(),
            client_buffer: Vec::new(),
            client_lines: VecDeque::new(),
            far: None,
            gateway_up: setup.gateway_up,
            connects: Vec::new(),
            far_events: VecDeque::new(),
            diagnostics: VecDeque::new(),
            hub_events: VecDeque::new(),
            finished: None,
            child: None,
            children: Vec::new(),
            signals: 0,
            client_backlog_max: 0,
            gateway_backlog_max: 0,
            turns: VecDeque::new(),
            record: setup.record,
            client_backlog: 0,
            gateway_door: Door::Open,
            gateway_appetite: None,
            child_delay_ms: 0,
            child_ends: VecDeque::new(),
        };
        world.hub.serve_stdio(now);
        world.settle();
        world
    }

    /// What children do from now on.
    pub fn on_child(&mut self, child: Child) {
        self.child = Some(child);
    }

    /// The client writes one line.
    pub fn client_says(&mut self, line: &str) {
        self.client_writes(format!("{line}\n").as_bytes());
    }

    /// The client writes bytes.
    pub fn client_writes(&mut self, bytes: &[u8]) {
        self.to_hub
            .send(self.now, bytes, &self.travel, &mut self.seed);
        self.settle();
    }

    /// The client ends its input, behind everything that is under way.
    pub fn client_will_end(&mut self) {
        self.to_hub.end(self.now);
        self.settle();
    }

    /// Bytes of the client that are under way.
    pub fn client_bytes_under_way(&self) -> usize {
        self.to_hub.len()
    }

    /// The client ends its input; bytes under way arrive before that.
    pub fn client_ends(&mut self) {
        while let (Some(at), false) = (self.to_hub.next(), self.client_paused) {
            self.move_to(at);
        }
        if let Some(wire) = self.client_wire {
            self.tell(wire, IoEvent::Eof);
        }
        self.settle();
    }

    /// The client goes away: nothing is read any more.
    pub fn client_vanishes(&mut self) {
        if let Some(wire) = self.client_wire {
            self.tell(wire, IoEvent::WriteClosed);
        }
        self.settle();
    }

    /// The client's wire breaks, in both directions.
    pub fn client_breaks(&mut self) {
        if let Some(wire) = self.client_wire {
            let message = "connection reset by peer".to_owned();
            let kind = FaultKind::Broken;
            self.tell(wire, IoEvent::Failed(IoFault { kind, message }));
            self.client_wire = None;
        }
        self.settle();
    }

    /// The Gateway's end takes no more and says nothing of it.
    pub fn gateway_takes_no_more(&mut self) {
        if let Some(wire) = self.far.as_ref().map(|far| far.wire) {
            self.tell(wire, IoEvent::WriteClosed);
        }
        self.settle();
    }

    /// The Gateway's end sends no more and says nothing of it.
    pub fn gateway_ends(&mut self) {
        if let Some(far) = &mut self.far {
            far.far_ends = true;
        }
        self.settle();
    }

    /// A person decides about a call that the hub asked about.
    pub fn person_answers(&mut self, call: CallId, verdict: Verdict) {
        self.hub.resolve_gate(self.now, call, verdict);
        self.look(Input::Other);
        self.settle();
    }

    /// The program wants to end.
    pub fn shut_down(&mut self) {
        self.hub.shutdown(self.now);
        self.look(Input::Other);
        self.settle();
    }

    /// The client takes so many more bytes, or all.
    pub fn client_reads(&mut self, bytes: Option<usize>) {
        self.client_appetite = bytes;
        self.settle();
    }

    /// Children that have not been let go of.
    pub fn children_running(&self) -> usize {
        self.children.len()
    }

    /// Whether the hub has stopped to read from the client.
    pub fn client_is_paused(&self) -> bool {
        self.client_paused
    }

    /// Whether there is a connection, as far as the Gateway's end knows.
    pub fn is_connected(&self) -> bool {
        self.far.is_some()
    }

    /// The Gateway sends one frame.
    pub fn gateway_says(&mut self, text: &str) {
        if let Some(far) = &mut self.far {
            far.link.send_text(text).expect("the test sends little");
        }
        self.settle();
    }

    /// The Gateway closes the connection.
    pub fn gateway_closes(&mut self, code: u16, reason: &str) {
        self.gateway_closes_with(Some(code), reason);
    }

    /// The same, perhaps without a code.
    pub fn gateway_closes_with(&mut self, code: Option<u16>, reason: &str) {
        if let Some(far) = &mut self.far {
            far.link.close(self.now, code, reason);
        }
        self.settle();
    }

    /// Of the bytes under way from the Gateway this many arrive, then the connection is cut.
    pub fn gateway_cut_after(&mut self, bytes: usize) {
        let mut left = bytes;
        while let Some(far) = self.far.as_mut().filter(|_| left > 0) {
            let Some((_, mut chunk)) = far.to_hub.chunks.pop_front() else {
                break;
            };
            chunk.truncate(left);
            left -= chunk.len();
            let wire = far.wire;
            if !chunk.is_empty() {
                self.tell(wire, IoEvent::Bytes(&chunk));
                self.drain_hub();
            }
        }
        self.gateway_cut();
    }

    /// Bytes under way from the Gateway.
    pub fn gateway_bytes_under_way(&self) -> usize {
        self.far.as_ref().map_or(0, |far| far.to_hub.len())
    }

    /// How bytes travel from now on.
    pub fn set_travel(&mut self, travel: Travel) {
        self.travel = travel;
    }

    /// The connection to the Gateway is cut, without a word.
    pub fn gateway_cut(&mut self) {
        if let Some(far) = self.far.take() {
            let message = "connection reset by peer".to_owned();
            let fault = IoFault {
                kind: FaultKind::Broken,
                message,
            };
            self.tell(far.wire, IoEvent::Failed(fault));
        }
        self.settle();
    }

    /// Raw bytes from the Gateway's end, past all framing.
    pub fn gateway_writes(&mut self, bytes: &[u8]) {
        if let Some(far) = &mut self.far {
            far.to_hub
                .send(self.now, bytes, &self.travel, &mut self.seed);
        }
        self.settle();
    }

    /// The machine sleeps: time passes and nothing happens, then bytes are told before any deadline.
    pub fn stall(&mut self, ms: u64) {
        self.now = self.at(self.now.after(Duration::from_millis(ms)));
        self.settle();
        self.move_to(self.now.up);
    }

    /// Time passes; everything that is due happens, in order.
    pub fn advance(&mut self, ms: u64) {
        self.advance_to(self.now.up.as_millis() + ms);
    }

    /// Time passes until `ms` after the start.
    pub fn advance_to(&mut self, ms: u64) {
        self.advance_to_moment(Uptime::from_millis(ms));
    }

    /// Time passes until this moment.
    pub fn advance_to_moment(&mut self, end: Uptime) {
        while let Some(next) = self.next_moment().filter(|next| *next <= end) {
            self.move_to(next);
        }
        self.move_to(end);
    }

    /// The next moment at which something happens by itself.
    pub fn next_moment(&self) -> Option<Uptime> {
        let hub = self.hub.next_deadline().map(|deadline| deadline.at);
        let hears = self.client_wire.is_some() && !self.client_paused;
        let to_hub = self.to_hub.next().filter(|_| hears);
        let child = self.child_ends.iter().map(|(at, ..)| *at).min();
        let mut moments = vec![hub, to_hub, self.from_hub.next(), child];
        if let Some(far) = &self.far {
            let deadline = far.link.next_deadline().map(|deadline| deadline.at);
            moments.extend([far.to_hub.next(), far.from_hub.next(), deadline]);
        }
        moments
            .into_iter()
            .flatten()
            .min()
            .map(|at| at.max(self.now.up))
    }

    /// Both clocks at this moment, which is not in the past.
    fn at(&self, up: Uptime) -> Now {
        // Whole milliseconds of both clocks pass together, however finely time is cut.
        let passed = up.as_millis() - self.now.up.as_millis();
        let passed = i64::try_from(passed).expect("short tests");
        let unix_ms = self.now.unix_ms + passed;
        Now { up, unix_ms }
    }

    fn move_to(&mut self, at: Uptime) {
        let at = at.max(self.now.up);
        self.now = self.at(at);
        if self
            .hub
            .next_deadline()
            .is_some_and(|deadline| deadline.at <= at)
        {
            self.hub.handle_timeout(self.now);
            self.look(Input::Other);
        }
        if let Some(far) = &mut self.far {
            far.link.handle_timeout(self.now);
        }
        self.settle();
        let due = self
            .hub
            .next_deadline()
            .filter(|deadline| deadline.at <= at);
        assert_eq!(due, None, "no deadline is due after a drain");
    }

    /// Moves bytes until nothing moves at this moment.
    pub fn settle(&mut self) {
        for _ in 0..1_000_000 {
            let moved = self.drain_hub() | self.carry_client() | self.carry_gateway();
            if !(moved | self.end_children()) {
                return;
            }
        }
        panic!("the world does not come to rest");
    }

    fn drain_hub(&mut self) -> bool {
        let mut moved = false;
        while let Some(request) = self.hub.poll_io() {
            moved = true;
            self.execute(request);
        }
        moved
    }

    /// Tells the hub what happened on a wire.
    fn tell(&mut self, wire: WireId, event: IoEvent<'_>) {
        let of_client = self.record && self.client_wire == Some(wire);
        let input = match &event {
            IoEvent::Bytes(bytes) if of_client => Input::ClientBytes(bytes.to_vec()),
            IoEvent::Eof if of_client => Input::ClientEnd,
            IoEvent::WriteClosed | IoEvent::Failed(_) if of_client => Input::ClientGone,
            IoEvent::Opened
            | IoEvent::Bytes(_)
            | IoEvent::StderrBytes(_)
            | IoEvent::Eof
            | IoEvent::WriteClosed
            | IoEvent::Drained
            | IoEvent::Exited(_)
            | IoEvent::Failed(_) => Input::Other,
        };
        self.hub.handle_io(self.now, wire, event);
        self.look(input);
    }

    /// Takes what the hub has to say after an input.
    fn look(&mut self, input: Input) {
        let mut frames = Vec::new();
        while let Some(event) = self.hub.poll_event() {
            match event {
                HubEvent::Diagnostic(line) => self.diagnostics.push_back(line.to_string()),
                HubEvent::Finished(outcome) => {
                    assert_eq!(self.finished, None, "finished once");
                    self.finished = Some(outcome);
                }
                HubEvent::GatewayFrame { received, text } => frames.push((received, text)),
                HubEvent::GateAsked { .. }
                | HubEvent::ListenFailed { .. }
                | HubEvent::Local(_)
                | HubEvent::LocalCancelled(_)
                | HubEvent::ClientNotification { .. }
                | HubEvent::StoreToken(_)
                | HubEvent::ForgetToken => {
                    self.hub_events.push_back(event);
                }
            }
        }
        if !self.record {
            return;
        }
        let before = self.client_backlog;
        let wire = self.client_wire;
        let out = wire.and_then(|wire| self.hub.outgoing(wire));
        let wrote = out.map_or_else(Vec::new, |out| {
            let known = self.client_backlog.min(out.len());
            self.client_backlog = out.len();
            out.pending()[known..].to_vec()
        });
        self.client_backlog_max = self.client_backlog_max.max(self.client_backlog);
        if matches!(input, Input::Other) && wrote.is_empty() && frames.is_empty() {
            return;
        }
        self.turns.push_back(Turn {
            at: self.now.up,
            input,
            wrote,
            backlog_before: before,
            frames,
            connects: self.connects.len(),
        });
    }

    fn execute(&mut self, request: IoRequest) {
        match request {
            IoRequest::Open(wire, spec) => self.open(wire, spec),
            IoRequest::Flush(wire) => self.take_child_input(wire),
            IoRequest::CloseWrite(wire) => match &mut self.far {
                Some(far) if far.wire == wire => far.hub_ends = true,
                Some(_) | None => self.run_child(wire),
            },
            IoRequest::PauseReads(wire, pause) => {
                if self.client_wire == Some(wire) {
                    self.client_paused = pause;
                }
            }
            IoRequest::Close(wire) | IoRequest::Finish(wire) => self.close(wire),
            IoRequest::Signal(..) => self.signals += 1,
            IoRequest::Append(_) => panic!("the hub keeps no journal"),
        }
    }

    fn open(&mut self, wire: WireId, spec: OpenSpec) {
        match spec {
            OpenSpec::HostStdio => {
                self.client_wire = Some(wire);
                self.tell(wire, IoEvent::Opened);
            }
            OpenSpec::Tcp { host, port, .. } => {
                self.connects.push(self.now.up);
                if self.gateway_door == Door::Silent {
                    return;
                }
                if !self.gateway_up {
                    let message = format!("{host}:{port}: connection refused");
                    let fault = IoFault {
                        kind: FaultKind::Unreachable,
                        message,
                    };
                    return self.tell(wire, IoEvent::Failed(fault));
                }
                self.far = Some(Far {
                    wire,
                    link: WebSocketLink::server(WireId(0), &Limits::default(), self.now),
                    to_hub: Pipe::default(),
                    from_hub: Pipe::default(),
                    hub_ends: false,
                    far_ends: false,
                    deaf: self.gateway_door != Door::Open,
                });
                if self.gateway_door == Door::Refusing {
                    let refusal = b"HTTP/1.1 503 Unavailable\r\nContent-Length: 5\r\n\r\nlater";
                    if let Some(far) = &mut self.far {
                        far.to_hub
                            .send(self.now, refusal, &self.travel, &mut self.seed);
                    }
                }
                self.tell(wire, IoEvent::Opened);
            }
            OpenSpec::Child(spec) => {
                self.children.push((wire, spec, String::new()));
                self.tell(wire, IoEvent::Opened);
            }
            OpenSpec::HostStdin => panic!("the hub takes stdout too"),
            OpenSpec::Unix { .. } => panic!("the hub connects to no Unix socket"),
            OpenSpec::Listen { .. } | OpenSpec::ListenUnix { .. } => {
                panic!("the hub does not listen")
            }
        }
    }

    fn close(&mut self, wire: WireId) {
        if self.client_wire == Some(wire) {
            self.client_wire = None;
            self.client_backlog = 0;
        }
        self.children.retain(|(child, ..)| *child != wire);
        if let Some(mut far) = self.far.take_if(|far| far.wire == wire) {
            // What the hub sent before it closed has left.
            while let Some((_, bytes)) = far.from_hub.chunks.pop_front().filter(|_| !far.deaf) {
                far.link.handle_io(self.now, IoEvent::Bytes(&bytes));
            }
            far.link.handle_io(self.now, IoEvent::Eof);
            self.collect_far(&mut far);
        }
    }

    fn take_child_input(&mut self, wire: WireId) {
        let Some((_, _, input)) = self.children.iter_mut().find(|(child, ..)| *child == wire)
        else {
            return;
        };
        if let Some(out) = self.hub.outgoing(wire) {
            input.push_str(std::str::from_utf8(out.pending()).expect("JSON"));
            out.advance(usize::MAX / 2);
        }
    }

    fn run_child(&mut self, wire: WireId) {
        let of_wire = self.children.iter().find(|(child, ..)| *child == wire);
        let (Some((_, spec, input)), Some(child)) = (of_wire, &mut self.child) else {
            return;
        };
        let Some((printed, exit)) = child(spec, input) else {
            return;
        };
        let delay = match self.child_delay_ms {
            0 => 0,
            longest => self.seed.below(longest + 1),
        };
        let at = self.now.after(Duration::from_millis(delay));
        self.child_ends.push_back((at, wire, printed, exit));
    }

    fn end_children(&mut self) -> bool {
        let due = |(at, ..): &(Uptime, WireId, String, ExitReport)| *at <= self.now.up;
        let Some(at) = self.child_ends.iter().position(due) else {
            return false;
        };
        let Some((_, wire, printed, exit)) = self.child_ends.remove(at) else {
            return false;
        };
        if self.children.iter().any(|(child, ..)| *child == wire) {
            if !printed.is_empty() {
                self.tell(wire, IoEvent::Bytes(printed.as_bytes()));
            }
            self.tell(wire, IoEvent::Eof);
            self.tell(wire, IoEvent::Exited(exit));
        }
        true
    }

    fn carry_client(&mut self) -> bool {
        let Some(wire) = self.client_wire else {
            return self.collect_client();
        };
        let mut moved = false;
        if let Some(out) = self.hub.outgoing(wire).filter(|out| !out.is_empty()) {
            self.client_backlog_max = self.client_backlog_max.max(out.len());
            let size = self.client_appetite.unwrap_or(usize::MAX).min(out.len());
            self.from_hub.send(
                self.now,
                &out.pending()[..size],
                &self.travel,
                &mut self.seed,
            );
            out.advance(size);
            moved = size > 0;
            let drained = out.is_empty();
            self.client_backlog = self.client_backlog.saturating_sub(size);
            if let Some(appetite) = &mut self.client_appetite {
                *appetite -= size;
            }
            if drained {
                self.tell(wire, IoEvent::Drained);
                // The hub may be done with the client now.
                self.collect_client();
                return true;
            }
        }
        moved |= self.collect_client();
        if self.client_paused {
            return moved;
        }
        // One chunk at a time, so that a pause takes effect before the next.
        if let Some(bytes) = self.to_hub.receive(self.now) {
            match &*bytes {
                [] => self.tell(wire, IoEvent::Eof),
                bytes => self.tell(wire, IoEvent::Bytes(bytes)),
            }
            moved = true;
        }
        moved
    }

    fn collect_client(&mut self) -> bool {
        let mut moved = false;
        while let Some(bytes) = self.from_hub.receive(self.now) {
            self.client_buffer.extend_from_slice(&bytes);
            moved = true;
        }
        while let Some(end) = self.client_buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.client_buffer.drain(..=end).collect();
            let line = String::from_utf8(line).expect("what the hub writes is UTF-8");
            self.client_lines.push_back(line.trim_end().to_owned());
        }
        moved
    }

    fn carry_gateway(&mut self) -> bool {
        let Some(mut far) = self.far.take() else {
            return false;
        };
        let mut moved = false;
        if let Some(out) = self.hub.outgoing(far.wire).filter(|out| !out.is_empty()) {
            self.gateway_backlog_max = self.gateway_backlog_max.max(out.len());
            let size = self.gateway_appetite.unwrap_or(usize::MAX).min(out.len());
            let bytes = &out.pending()[..size];
            far.from_hub
                .send(self.now, bytes, &self.travel, &mut self.seed);
            out.advance(size);
            moved = size > 0;
            let drained = out.is_empty();
            if let Some(appetite) = &mut self.gateway_appetite {
                *appetite -= size;
            }
            if drained {
                self.tell(far.wire, IoEvent::Drained);
            }
        }
        while let Some(bytes) = far.from_hub.receive(self.now) {
            if !far.deaf {
                far.link.handle_io(self.now, IoEvent::Bytes(&bytes));
            }
            moved = true;
        }
        if far.hub_ends && far.from_hub.next().is_none() {
            far.hub_ends = false;
            far.link.handle_io(self.now, IoEvent::Eof);
            moved = true;
        }
        moved |= self.collect_far(&mut far);
        let mut over = false;
        while let Some(request) = far.link.poll_io() {
            over |= matches!(request, IoRequest::Close(_));
            far.far_ends |= matches!(request, IoRequest::CloseWrite(_));
            moved = true;
        }
        let out = far.link.outgoing();
        if !out.is_empty() {
            far.to_hub
                .send(self.now, out.pending(), &self.travel, &mut self.seed);
            out.advance(usize::MAX / 2);
            moved = true;
        }
        // One chunk at a time, so that what the hub wants done is done before the next.
        if let Some(bytes) = far.to_hub.receive(self.now) {
            self.tell(far.wire, IoEvent::Bytes(&bytes));
            moved = true;
        }
        if over {
            // The last bytes are not lost; the connection may be gone for the hub when they come.
            while let Some((_, bytes)) = far.to_hub.chunks.pop_front() {
                self.tell(far.wire, IoEvent::Bytes(&bytes));
                self.drain_hub();
            }
            self.tell(far.wire, IoEvent::Eof);
            return true;
        }
        if far.far_ends && far.to_hub.next().is_none() {
            far.far_ends = false;
            self.tell(far.wire, IoEvent::Eof);
            moved = true;
        }
        self.far = Some(far);
        moved
    }

    fn collect_far(&mut self, far: &mut Far) -> bool {
        let mut moved = false;
        while let Some(event) = far.link.poll_event() {
            moved = true;
            self.far_events.push_back(match event {
                WsLinkEvent::Up => FarEvent::Up,
                WsLinkEvent::Text(text) => FarEvent::Text(text),
                WsLinkEvent::Closed(reason) => FarEvent::Closed(reason.to_string()),
            });
        }
        moved
    }
}
