//! A hub and the world around it, in virtual time: clients on lines, on a socket and over HTTP, programs that are functions,
//! and whoever embeds the hub.
//!
//! What the hub asks of the loop is done at once, until it asks for nothing more. Servers read what is flushed for
//! them, and so does a client of [`World::line`]; what waits for any other client leaves when a test takes it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Hub, HubConfig, HubEvent, ServerIdentity, UpstreamConfig};
use crate::clock::{Now, Uptime};
use crate::entropy::Seeded;
use crate::ids::{CallId, WireId};
use crate::limits::Limits;
use crate::link::{Driven, ExitReport, FaultKind, IoEvent, IoFault, IoRequest, OpenSpec};
use crate::manager::Prefix;
use crate::manager::entry::read_servers;
use crate::manager::server_config::ServerConfig;

/// When a world begins.
const START: Now = Now {
    up: Uptime::from_millis(1_000),
    unix_ms: 5_000,
};

/// The handshake of a client that can do nothing.
pub(in crate::hub) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
pub(in crate::hub) const INITIALIZED: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// What stands in the params of a stateless client that can do nothing.
pub(in crate::hub) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// What a program answers to a method and its params.
type Script = Box<dyn FnMut(&str, &Value) -> Reply>;

/// What becomes of a request to a server.
pub(in crate::hub) enum Reply {
    Result(Value),
    /// The raw text of a result.
    Raw(String),
    Error(i64),
    /// A result, so many milliseconds later.
    Late(u64, Value),
    /// Nothing, until the test says so by [`World::reply`].
    Silence,
}

impl Reply {
    /// A result comes so many milliseconds later.
    pub(in crate::hub) fn late(self, ms: u64) -> Self {
        if let Self::Result(result) = self {
            return Self::Late(ms, result);
        }
        self
    }

    /// The members of the answer, raw, and after how many milliseconds it comes.
    fn shown(self) -> Option<(u64, String)> {
        let error = |code| json!({"code": code, "message": "no"});
        Some(match self {
            Self::Result(result) => (0, format!(r#""result":{result}"#)),
            Self::Raw(result) => (0, format!(r#""result":{result}"#)),
            Self::Late(ms, result) => (ms, format!(r#""result":{result}"#)),
            Self::Error(code) => (0, format!(r#""error":{}"#, error(code))),
            Self::Silence => return None,
        })
    }
}

/// A line that a server got.
#[derive(Debug)]
pub(in crate::hub) struct Heard {
    pub(in crate::hub) wire: WireId,
    pub(in crate::hub) program: String,
    pub(in crate::hub) raw: String,
    pub(in crate::hub) message: Value,
}

/// A request that a server has not answered.
struct Open {
    wire: WireId,
    method: String,
    id: Value,
}

/// See the module page.
pub(in crate::hub) struct World {
    pub(in crate::hub) hub: Hub,
    pub(in crate::hub) now: Now,
    listener: WireId,
    socket: WireId,
    scripts: BTreeMap<String, Script>,
    /// Programs that run, by their wires.
    running: BTreeMap<WireId, String>,
    /// How often any program was started.
    pub(in crate::hub) starts: usize,
    open: Vec<Open>,
    /// What servers will say, and when; the second number keeps the order.
    agenda: BTreeMap<(Uptime, usize), (WireId, String)>,
    turns: usize,
    /// What servers got.
    pub(in crate::hub) heard: Vec<Heard>,
    /// Clients that read at once, and the lines they got.
    lines: BTreeSet<WireId>,
    pub(in crate::hub) said: Vec<(WireId, String)>,
    /// Lines for the person who runs us.
    pub(in crate::hub) diagnostics: Vec<String>,
    /// Whatever else the embedding program was told.
    pub(in crate::hub) events: Vec<HubEvent>,
}

/// The servers of a configuration, each with more members of its record. The program of `NAME` is `NAME`.
pub(in crate::hub) fn records(servers: &[(&str, Value)]) -> Vec<ServerConfig> {
    let map: Vec<(String, String)> = servers
        .iter()
        .map(|(name, more)| {
            let mut entry = more.clone();
            entry["command"] = (*name).into();
            ((*name).to_owned(), entry.to_string())
        })
        .collect();
    let read = read_servers(&map, &BTreeMap::new(), &Limits::DEFAULT);
    read.into_iter()
        .map(|one| one.outcome.expect("a usable record"))
        .collect()
}

/// A hub in front of these servers.
pub(in crate::hub) fn span(servers: &[(&str, Value)], limits: Limits) -> HubConfig {
    HubConfig {
        limits,
        identity: ServerIdentity::span(),
        upstream: Some(UpstreamConfig {
            servers: records(servers),
            prefix: Prefix::Auto,
        }),
        ..HubConfig::default()
    }
}

/// The bytes of a request over HTTP.
pub(in crate::hub) fn http_request(verb: &str, headers: &str, body: &str) -> String {
    format!(
        "{verb} /mcp HTTP/1.1\r\nHost: 127.0.0.1:8808\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

impl World {
    pub(in crate::hub) fn new(config: HubConfig) -> Self {
        let mut hub = Hub::new(config, Box::new(Seeded::new(1)), START);
        let listener = hub.listen_http("127.0.0.1", 8808);
        let socket = hub.listen_unix("/run/x".into());
        let mut world = Self {
            hub,
            now: START,
            listener,
            socket,
            scripts: BTreeMap::new(),
            running: BTreeMap::new(),
            starts: 0,
            open: Vec::new(),
            agenda: BTreeMap::new(),
            turns: 0,
            heard: Vec::new(),
            lines: BTreeSet::new(),
            said: Vec::new(),
            diagnostics: Vec::new(),
            events: Vec::new(),
        };
        world.settle();
        world
    }
}

/// Clients.
impl World {
    /// A client on a line. It reads at once: see [`World::said`](Self#structfield.said).
    pub(in crate::hub) fn line(&mut self) -> WireId {
        let wire = self.hub.serve_adopted(self.now);
        self.lines.insert(wire);
        self.settle();
        wire
    }

    /// A client of this user on the Unix socket.
    pub(in crate::hub) fn user(&mut self, uid: u32) -> WireId {
        let peer = format!("unix:uid={uid},pid=2");
        let wire = self.hub.handle_accept(self.now, self.socket, &peer);
        wire.expect("room")
    }

    /// A line of a client or a server.
    pub(in crate::hub) fn say(&mut self, wire: WireId, line: &str) {
        self.tell(wire, IoEvent::Bytes(format!("{line}\n").as_bytes()));
    }

    /// The same; what makes it a message of JSON-RPC is added.
    pub(in crate::hub) fn send(&mut self, wire: WireId, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        self.say(wire, &message.to_string());
    }

    /// A connection for HTTP.
    pub(in crate::hub) fn connect(&mut self) -> WireId {
        let (now, listener) = (self.now, self.listener);
        let wire = self.hub.handle_accept(now, listener, "127.0.0.1:5");
        wire.expect("a wire")
    }

    /// Whether there is no connection to be had.
    pub(in crate::hub) fn is_shut(&mut self) -> bool {
        let (now, listener) = (self.now, self.listener);
        self.hub
            .handle_accept(now, listener, "127.0.0.1:6")
            .is_none()
    }

    pub(in crate::hub) fn http(&mut self, wire: WireId, verb: &str, headers: &str, body: &str) {
        let request = http_request(verb, headers, body);
        self.tell(wire, IoEvent::Bytes(request.as_bytes()));
    }

    /// A message over HTTP, and what came of it at once.
    pub(in crate::hub) fn post(&mut self, wire: WireId, headers: &str, body: &str) -> String {
        self.http(wire, "POST", headers, body);
        self.take(wire)
    }

    /// A session over HTTP: the headers that name it. What the client says to the answer is left out.
    pub(in crate::hub) fn open_session(&mut self, wire: WireId, hello: &str) -> String {
        let answer = self.post(wire, "", hello).to_ascii_lowercase();
        let (_, rest) = answer.split_once("mcp-session-id: ").expect("a session");
        let id = &rest[..rest.find('\r').expect("an end of line")];
        format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-11-25\r\n")
    }

    /// A session that has begun.
    pub(in crate::hub) fn session(&mut self, wire: WireId, hello: &str) -> String {
        let headers = self.open_session(wire, hello);
        self.post(wire, &headers, INITIALIZED);
        headers
    }

    /// What waits to leave on a wire.
    pub(in crate::hub) fn written(&mut self, wire: WireId) -> String {
        let out = self.hub.outgoing(wire).expect("a wire of the hub");
        String::from_utf8(out.pending().to_vec()).expect("UTF-8")
    }

    /// All of it leaves.
    pub(in crate::hub) fn take(&mut self, wire: WireId) -> String {
        let text = self.leave(wire);
        self.settle();
        text
    }

    fn leave(&mut self, wire: WireId) -> String {
        let text = self.written(wire);
        let out = self.hub.outgoing(wire).expect("a wire of the hub");
        out.advance(text.len());
        self.hub.handle_io(self.now, wire, IoEvent::Drained);
        text
    }
}

/// Servers.
impl World {
    /// What a program does from now on, also where it runs already.
    pub(in crate::hub) fn play(
        &mut self,
        program: &str,
        script: impl FnMut(&str, &Value) -> Reply + 'static,
    ) {
        self.scripts.insert(program.to_owned(), Box::new(script));
    }

    /// There is no such program any more, for whoever starts it.
    pub(in crate::hub) fn remove_program(&mut self, program: &str) {
        self.scripts.remove(program);
    }

    /// Those that run, the newest last.
    pub(in crate::hub) fn servers(&self) -> Vec<WireId> {
        self.running.keys().copied().collect()
    }

    /// The newest of them.
    #[track_caller]
    pub(in crate::hub) fn server(&self) -> WireId {
        let newest = self.running.last_key_value();
        *newest.expect("a server was started").0
    }

    /// A server answers what it was asked and left open, by a raw result.
    #[track_caller]
    pub(in crate::hub) fn reply(&mut self, method: &str, result: &str) {
        let at = self.open.iter().position(|open| open.method == method);
        let Open { wire, id, .. } = self.open.remove(at.expect("it was asked"));
        self.say(
            wire,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        );
    }

    /// Each start of a program says something unasked.
    pub(in crate::hub) fn notify(&mut self, program: &str, method: &str) {
        for wire in self.servers() {
            if self.running[&wire] == program {
                self.send(wire, json!({ "method": method }));
            }
        }
    }

    /// A server ends.
    pub(in crate::hub) fn end(&mut self, wire: WireId, report: ExitReport) {
        self.exit(wire, report);
        self.settle();
    }

    /// How often the servers were asked or told this.
    pub(in crate::hub) fn times_heard(&self, method: &str) -> usize {
        let of = |heard: &&Heard| heard.message["method"] == method;
        self.heard.iter().filter(of).count()
    }

    fn start(&mut self, wire: WireId, program: String) {
        if !self.scripts.contains_key(&program) {
            let fault = IoFault {
                kind: FaultKind::Unreachable,
                message: "no such program".to_owned(),
            };
            return self.hub.handle_io(self.now, wire, IoEvent::Failed(fault));
        }
        self.starts += 1;
        self.running.insert(wire, program);
        self.hub.handle_io(self.now, wire, IoEvent::Opened);
    }

    fn exit(&mut self, wire: WireId, report: ExitReport) {
        if self.running.remove(&wire).is_some() {
            self.open.retain(|open| open.wire != wire);
            self.hub.handle_io(self.now, wire, IoEvent::Exited(report));
            self.hub.handle_io(self.now, wire, IoEvent::Eof);
        }
    }

    /// A server reads.
    fn read(&mut self, wire: WireId) {
        let program = self.running[&wire].clone();
        for raw in self.leave(wire).lines() {
            let message: Value = serde_json::from_str(raw).expect("we write JSON");
            if let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) {
                let script = self.scripts.get_mut(&program).expect("a script");
                match script(method, &message["params"]).shown() {
                    Some((ms, answer)) => {
                        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{answer}}}\n");
                        let at = self.now.after(Duration::from_millis(ms));
                        self.turns += 1;
                        self.agenda.insert((at, self.turns), (wire, line));
                    }
                    None => self.open.push(Open {
                        wire,
                        method: method.to_owned(),
                        id: id.clone(),
                    }),
                }
            }
            self.heard.push(Heard {
                wire,
                program: program.clone(),
                raw: raw.to_owned(),
                message,
            });
        }
    }
}

/// The program around the hub.
impl World {
    /// The calls that have come for it, and that it has not been told of before.
    pub(in crate::hub) fn calls(&mut self) -> Vec<CallId> {
        self.settle();
        let mut calls = Vec::new();
        self.events.retain(|event| {
            if let HubEvent::Local(request) = event {
                calls.push(request.call);
            }
            !matches!(event, HubEvent::Local(_))
        });
        calls
    }

    pub(in crate::hub) fn is_finished(&self) -> bool {
        let mut events = self.events.iter();
        events.any(|event| matches!(event, HubEvent::Finished(_)))
    }

    /// How much of a limit is in use, and the most that ever was.
    #[track_caller]
    pub(in crate::hub) fn usage(&self, limit: &str) -> (usize, Option<usize>) {
        let usage = self.hub.usage();
        let of = usage.iter().find(|usage| usage.name == limit);
        let of = of.unwrap_or_else(|| panic!("no {limit}"));
        (of.now, of.peak)
    }
}

/// The loop.
impl World {
    /// Something happens on a wire.
    pub(in crate::hub) fn tell(&mut self, wire: WireId, event: IoEvent<'_>) {
        self.hub.handle_io(self.now, wire, event);
        self.settle();
    }

    /// Time passes, from one thing that happens to the next.
    pub(in crate::hub) fn wait(&mut self, ms: u64) {
        let end = self.now.after(Duration::from_millis(ms));
        self.settle();
        for _ in 0..100_000 {
            let due = self.hub.next_deadline().map(|due| due.at);
            let planned = self.agenda.keys().next().map(|(at, _)| *at);
            let next = due.into_iter().chain(planned).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                return self.move_to(end);
            };
            self.move_to(next.max(self.now.up));
            self.settle();
            self.hub.handle_timeout(self.now);
            self.settle();
        }
        panic!("it spins at {}", self.now.up);
    }

    fn move_to(&mut self, up: Uptime) {
        let since = up.since(START.up).as_millis();
        self.now = Now {
            up,
            unix_ms: START.unix_ms + i64::try_from(since).expect("a test is short"),
        };
    }

    /// Does what is wanted until nothing is, and nothing is due to be said.
    pub(in crate::hub) fn settle(&mut self) {
        loop {
            while let Some(request) = self.hub.poll_io() {
                self.serve(request);
            }
            let due = self.agenda.first_entry();
            let Some(due) = due.filter(|entry| entry.key().0 <= self.now.up) else {
                break;
            };
            let (wire, line) = due.remove();
            if self.running.contains_key(&wire) {
                let bytes = IoEvent::Bytes(line.as_bytes());
                self.hub.handle_io(self.now, wire, bytes);
            }
        }
        while let Some(event) = self.hub.poll_event() {
            if let HubEvent::Diagnostic(line) = event {
                self.diagnostics.push(line.message);
            } else {
                self.events.push(event);
            }
        }
    }

    fn serve(&mut self, request: IoRequest) {
        match request {
            IoRequest::Open(wire, OpenSpec::Child(spec)) => self.start(wire, spec.program),
            IoRequest::Flush(wire) if self.running.contains_key(&wire) => self.read(wire),
            IoRequest::Flush(wire) if self.lines.contains(&wire) => {
                let text = self.leave(wire);
                let lines = text.lines().map(|line| (wire, line.to_owned()));
                self.said.extend(lines);
            }
            IoRequest::CloseWrite(wire) | IoRequest::Signal(wire, _) => {
                self.exit(wire, ExitReport::Code(0));
            }
            IoRequest::Close(wire) => {
                self.running.remove(&wire);
            }
            IoRequest::Open(..)
            | IoRequest::Flush(_)
            | IoRequest::PauseReads(..)
            | IoRequest::Finish(_)
            | IoRequest::Append(_) => {}
        }
    }
}
