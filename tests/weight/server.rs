//! A hub with one tool, `echo`, and a client in memory that talks to it: the loop is played by the test.
#![allow(
    dead_code,
    reason = "each of the tests and benches uses its part of it"
)]

use std::time::Duration;

use drawspan::clock::{Now, Uptime};
use drawspan::entropy::Seeded;
use drawspan::hub::{Hub, HubConfig, HubEvent, LocalConfig, ServerIdentity};
use drawspan::ids::WireId;
use drawspan::limits::Limits;
use drawspan::link::{Driven, IoEvent};
use drawspan::local::{LocalReply, Registry, Tool};

const SCHEMA: &str = r#"{"type":"object","properties":{"text":{"type":"string"}}}"#;

/// The configuration of a hub that has `echo` (answers in place), `copy` (a closure that makes its answer)
/// and `later` (the program is asked).
pub(crate) fn config(limits: Limits) -> HubConfig {
    let mut registry = Registry::new();
    let echo =
        Tool::new("echo", "Answers with its text", SCHEMA).answered_in_place(|call, answer| {
            match call.argument_text("text") {
                Some(text) => answer.same_text(text),
                None => answer.failed(),
            }
        });
    registry.add_tool(echo).expect("a good tool");
    let copy = Tool::new("copy", "The same, by a copy", SCHEMA).answered_by(|request| {
        LocalReply::text(&request.kind.argument_text("text").unwrap_or_default())
    });
    registry.add_tool(copy).expect("a good tool");
    let later = Tool::new("later", "Answers when it is told to", SCHEMA);
    registry.add_tool(later).expect("a good tool");
    HubConfig {
        limits,
        identity: ServerIdentity {
            name: "echo".to_owned(),
            version: "1".to_owned(),
            ..ServerIdentity::default()
        },
        local: Some(LocalConfig {
            registry,
            state_key: [1; 32],
        }),
        ..HubConfig::default()
    }
}

/// The hub, and the time.
pub(crate) struct Server {
    pub(crate) hub: Hub,
    pub(crate) now: Now,
    listener: WireId,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::with(Limits::default())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        let now = Now {
            up: Uptime::ZERO,
            unix_ms: 1_800_000_000_000,
        };
        let mut hub = Hub::new(config(limits), Box::new(Seeded::new(7)), now);
        let listener = hub.listen_http("127.0.0.1", 80);
        while hub.poll_io().is_some() {}
        Self { hub, now, listener }
    }

    /// One more HTTP connection.
    pub(crate) fn connect(&mut self) -> WireId {
        let wire = self.hub.handle_accept(self.now, self.listener, "peer");
        wire.expect("room for one more")
    }

    /// The client of a connection goes away.
    pub(crate) fn disconnect(&mut self, wire: WireId) {
        self.hub.handle_io(self.now, wire, IoEvent::Eof);
        while self.hub.poll_io().is_some() {}
    }

    /// Time passes.
    pub(crate) fn wait(&mut self, time: Duration) {
        self.now.up = self.now.up.after(time);
        self.hub.handle_timeout(self.now);
        while self.hub.poll_io().is_some() {}
    }

    /// Bytes arrive; the program answers `later`.
    pub(crate) fn tell(&mut self, wire: WireId, bytes: &[u8]) {
        self.hub.handle_io(self.now, wire, IoEvent::Bytes(bytes));
        while let Some(event) = self.hub.poll_event() {
            if let HubEvent::Local(request) = event {
                let reply = LocalReply::text("later");
                self.hub.resolve_local(self.now, request.call, reply);
            }
        }
        while self.hub.poll_io().is_some() {}
    }

    /// Bytes arrive, and what is written leaves: how much, and whether `wanted` is in it.
    pub(crate) fn exchange(&mut self, wire: WireId, bytes: &[u8], wanted: &[u8]) -> bool {
        self.tell(wire, bytes);
        let out = self.hub.outgoing(wire).expect("an open wire");
        let found = memchr::memmem::find(out.pending(), wanted).is_some();
        let length = out.len();
        out.advance(length);
        self.hub.handle_io(self.now, wire, IoEvent::Drained);
        while self.hub.poll_io().is_some() {}
        found
    }

    /// What is answered, as text.
    pub(crate) fn ask(&mut self, wire: WireId, bytes: &[u8]) -> String {
        self.tell(wire, bytes);
        let out = self.hub.outgoing(wire).expect("an open wire");
        let text = String::from_utf8(out.pending().to_vec()).expect("text");
        out.advance(text.len());
        self.hub.handle_io(self.now, wire, IoEvent::Drained);
        while self.hub.poll_io().is_some() {}
        text
    }

    /// Opens a session of 2025-11-25 on a connection; the field that names it.
    pub(crate) fn open_session(&mut self, wire: WireId) -> String {
        let answer = self.ask(wire, post("", INITIALIZE).as_bytes());
        let (_, rest) = answer.split_once("Mcp-Session-Id: ").expect("a session");
        let id = rest.split("\r\n").next().expect("a line");
        let field = format!("Mcp-Session-Id: {id}\r\n");
        let done = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let answer = self.ask(wire, post(&field, done).as_bytes());
        assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
        field
    }
}

pub(crate) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"client","version":"1"}}}"#;

/// A POST to `/mcp` with these further fields.
pub(crate) fn post(fields: &str, body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A call of the handshake era.
pub(crate) fn call(tool: &str, id: &str, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{{"text":"{text}"}}}}}}"#
    )
}

/// A call of 2026-07-28.
pub(crate) fn modern_call(tool: &str, id: &str, text: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}},"io.modelcontextprotocol/clientInfo":{{"name":"client","version":"1"}}}},"name":"{tool}","arguments":{{"text":"{text}"}}}}}}"#
    )
}

/// The fields that repeat a [`modern_call`].
pub(crate) fn modern_fields(tool: &str) -> String {
    format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n")
}
