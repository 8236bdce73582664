//! A hub and the world around it, in virtual time: clients on lines, on a socket and over HTTP, programs that are
//! functions, and whoever embeds the hub.
//!
//! What the hub asks of the loop is done at once, until it asks for nothing more. Servers read what is flushed for
//! them, and so does a client of [`World::line`]; what waits for any other client leaves when a test takes it.

mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

pub(super) use self::servers::{Heard, Reply, records};
use self::servers::{Open, Script};
use super::{Hub, HubConfig, HubEvent, ServerIdentity, UpstreamConfig};
use crate::clock::{Now, Uptime};
use crate::entropy::Seeded;
use crate::ids::{CallId, WireId};
use crate::limits::Limits;
use crate::link::{Driven, ExitReport, IoEvent, IoRequest, OpenSpec};
use crate::manager::Prefix;

/// When a world begins.
const START: Now = Now {
    up: Uptime::from_millis(1_000),
    unix_ms: 5_000,
};

/// The handshake of a client that can do nothing.
pub(super) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
pub(super) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// What stands in the params of a stateless client that can do nothing.
pub(super) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// See the module page.
pub(super) struct World {
    pub(super) hub: Hub,
    pub(super) now: Now,
    listener: WireId,
    socket: WireId,
    scripts: BTreeMap<String, Script>,
    /// Programs that run, by their wires.
    running: BTreeMap<WireId, String>,
    /// How often any program was started.
    pub(super) starts: usize,
    open: Vec<Open>,
    /// What servers will say, and when; the second number keeps the order.
    agenda: BTreeMap<(Uptime, usize), (WireId, String)>,
    turns: usize,
    /// What servers got.
    pub(super) heard: Vec<Heard>,
    /// Clients that read at once, and the lines they got.
    lines: BTreeSet<WireId>,
    pub(super) said: Vec<(WireId, String)>,
    /// Lines for the person who runs us.
    pub(super) diagnostics: Vec<String>,
    /// Whatever else the embedding program was told.
    pub(super) events: Vec<HubEvent>,
}

/// A hub in front of these servers.
pub(super) fn span(servers: &[(&str, Value)], limits: Limits) -> HubConfig {
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
pub(super) fn http_request(verb: &str, headers: &str, body: &str) -> String {
    format!(
        "{verb} /mcp HTTP/1.1\r\nHost: 127.0.0.1:8808\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

impl World {
    pub(super) fn new(config: HubConfig) -> Self {
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
    pub(super) fn line(&mut self) -> WireId {
        let wire = self.hub.serve_adopted(self.now);
        self.lines.insert(wire);
        self.settle();
        wire
    }

    /// A client of this user on the Unix socket.
    pub(super) fn user(&mut self, uid: u32) -> WireId {
        let peer = format!("unix:uid={uid},pid=2");
        let wire = self.hub.handle_accept(self.now, self.socket, &peer);
        wire.expect("room")
    }

    /// A line of a client or a server.
    pub(super) fn say(&mut self, wire: WireId, line: &str) {
        self.tell(wire, IoEvent::Bytes(format!("{line}\n").as_bytes()));
    }

    /// The same; what makes it a message of JSON-RPC is added.
    pub(super) fn send(&mut self, wire: WireId, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        self.say(wire, &message.to_string());
    }

    /// A connection for HTTP.
    pub(super) fn connect(&mut self) -> WireId {
        let (now, listener) = (self.now, self.listener);
        let wire = self.hub.handle_accept(now, listener, "127.0.0.1:5");
        wire.expect("a wire")
    }

    /// Whether there is no connection to be had.
    pub(super) fn is_shut(&mut self) -> bool {
        let (now, listener) = (self.now, self.listener);
        self.hub
            .handle_accept(now, listener, "127.0.0.1:6")
            .is_none()
    }

    pub(super) fn http(&mut self, wire: WireId, verb: &str, headers: &str, body: &str) {
        let request = http_request(verb, headers, body);
        self.tell(wire, IoEvent::Bytes(request.as_bytes()));
    }

    /// A message over HTTP, and what came of it at once.
    pub(super) fn post(&mut self, wire: WireId, headers: &str, body: &str) -> String {
        self.http(wire, "POST", headers, body);
        self.take(wire)
    }

    /// A session over HTTP: the headers that name it. What the client says to the answer is left out.
    pub(super) fn open_session(&mut self, wire: WireId, hello: &str) -> String {
        let answer = self.post(wire, "", hello).to_ascii_lowercase();
        let (_, rest) = answer.split_once("mcp-session-id: ").expect("a session");
        let id = &rest[..rest.find('\r').expect("an end of line")];
        format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-11-25\r\n")
    }

    /// A session that has begun.
    pub(super) fn session(&mut self, wire: WireId, hello: &str) -> String {
        let headers = self.open_session(wire, hello);
        self.post(wire, &headers, INITIALIZED);
        headers
    }

    /// What waits to leave on a wire.
    pub(super) fn written(&mut self, wire: WireId) -> String {
        let out = self.hub.outgoing(wire).expect("a wire of the hub");
        String::from_utf8(out.pending().to_vec()).expect("UTF-8")
    }

    /// All of it leaves.
    pub(super) fn take(&mut self, wire: WireId) -> String {
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

/// The program around the hub.
impl World {
    /// The calls that have come for it, and that it has not been told of before.
    pub(super) fn calls(&mut self) -> Vec<CallId> {
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

    pub(super) fn is_finished(&self) -> bool {
        let mut events = self.events.iter();
        events.any(|event| matches!(event, HubEvent::Finished(_)))
    }

    /// How much of a limit is in use, and the most that ever was.
    #[track_caller]
    pub(super) fn usage(&self, limit: &str) -> (usize, Option<usize>) {
        let usage = self.hub.usage();
        let of = usage.iter().find(|usage| usage.name == limit);
        let of = of.unwrap_or_else(|| panic!("no {limit}"));
        (of.now, of.peak)
    }
}

/// The loop.
impl World {
    /// Something happens on a wire.
    pub(super) fn tell(&mut self, wire: WireId, event: IoEvent<'_>) {
        self.hub.handle_io(self.now, wire, event);
        self.settle();
    }

    /// Time passes, from one thing that happens to the next.
    pub(super) fn wait(&mut self, ms: u64) {
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
    pub(super) fn settle(&mut self) {
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
