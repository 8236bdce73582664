//! HTTP through a whole hub, in memory: streams that can be resumed, and what becomes of floods.

mod edges;

use std::time::Duration;

use crate::clock::{Now, Uptime};
use crate::entropy::Seeded;
use crate::hub::{Hub, HubConfig, HubEvent, LocalConfig};
use crate::ids::{CallId, WireId};
use crate::limits::Limits;
use crate::link::{Driven, FaultKind, IoEvent, IoFault};
use crate::local::{LocalReply, Registry, Resource, TaskStart, TaskSupport, Tool};
use crate::protocol::server::Changing;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{}}}"#;

struct World {
    hub: Hub,
    listener: WireId,
    now: Now,
}

impl World {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let now = Now {
            up: Uptime::ZERO,
            unix_ms: 0,
        };
        let mut registry = Registry::new();
        registry.declare_changing(Changing {
            tools: true,
            ..Changing::default()
        });
        let slow = Tool::new("slow", "Takes its time", r#"{"type":"object"}"#);
        let slow = slow.tasks(TaskSupport::Optional);
        registry.add_tool(slow).expect("a good tool");
        let text = Resource::new("a:b", "b");
        registry.add_resource(text).expect("a good resource");
        let config = HubConfig {
            limits,
            local: Some(LocalConfig {
                registry,
                state_key: [1; 32],
            }),
            ..HubConfig::default()
        };
        let mut hub = Hub::new(config, Box::new(Seeded::new(1)), now);
        let listener = hub.listen_http("127.0.0.1", 8808);
        Self { hub, listener, now }
    }

    fn connect(&mut self) -> WireId {
        let wire = self
            .hub
            .handle_accept(self.now, self.listener, "127.0.0.1:5");
        wire.expect("a wire")
    }

    fn tell(&mut self, wire: WireId, event: IoEvent<'_>) {
        self.hub.handle_io(self.now, wire, event);
        while self.hub.poll_io().is_some() {}
    }

    fn send(&mut self, wire: WireId, method: &str, headers: &str, body: &str) {
        let head = format!(
            "{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1:8808\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.tell(wire, IoEvent::Bytes(head.as_bytes()));
    }

    /// What waits to leave on a wire.
    fn written(&mut self, wire: WireId) -> String {
        let out = self.hub.outgoing(wire).expect("a wire of the hub");
        String::from_utf8(out.pending().to_vec()).expect("UTF-8")
    }

    /// All of it leaves.
    fn take(&mut self, wire: WireId) -> String {
        let text = self.written(wire);
        self.hub.outgoing(wire).expect("a wire").advance(text.len());
        self.tell(wire, IoEvent::Drained);
        text
    }

    fn wait(&mut self, ms: u64) {
        self.now = Now {
            up: self.now.after(Duration::from_millis(ms)),
            unix_ms: self.now.unix_ms,
        };
        self.hub.handle_timeout(self.now);
        while self.hub.poll_io().is_some() {}
    }

    fn open_session(&mut self, wire: WireId) -> String {
        self.send(wire, "POST", "", INITIALIZE);
        let answer = self.take(wire).to_ascii_lowercase();
        let (_, rest) = answer.split_once("mcp-session-id: ").expect("a session");
        let id = &rest[..rest.find('\r').expect("an end of line")];
        format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-11-25\r\n")
    }

    /// The call of the tool, once its answer has become a stream; with the id of the last event.
    fn call_slowly(&mut self, wire: WireId, session: &str) -> (CallId, String) {
        self.send(wire, "POST", session, CALL);
        self.wait(1_000);
        let begun = self.take(wire);
        let id = begun
            .lines()
            .filter_map(|line| line.strip_prefix("id: "))
            .next_back();
        let id = id.unwrap_or_else(|| panic!("no priming event in {begun}"));
        while let Some(event) = self.hub.poll_event() {
            if let HubEvent::Local(request) = event {
                return (request.call, id.to_owned());
            }
        }
        panic!("the tool was not called");
    }

    fn resume(&mut self, session: &str, last: &str) -> String {
        let wire = self.connect();
        let headers = format!("{session}Last-Event-ID: {last}\r\n");
        self.send(wire, "GET", &headers, "");
        self.written(wire)
    }
}

#[test]
fn an_answer_that_has_left_is_not_kept_and_one_that_went_down_is() {
    let reset = || IoFault {
        kind: FaultKind::Broken,
        message: "connection reset by peer".to_owned(),
    };
    // Broken between the answer and its last byte, in both ways that a wire can tell it; or not at all.
    for (broken, kept) in [(None, false), (Some(true), true), (Some(false), true)] {
        let mut world = World::new();
        let wire = world.connect();
        let session = world.open_session(wire);
        let (call, id) = world.call_slowly(wire, &session);
        world
            .hub
            .resolve_local(world.now, call, LocalReply::text("at last"));
        assert!(world.written(wire).contains("at last"));
        match broken {
            None => {
                world.take(wire);
            }
            Some(true) => world.tell(wire, IoEvent::Failed(reset())),
            Some(false) => world.tell(wire, IoEvent::WriteClosed),
        }
        let resumed = world.resume(&session, &id);
        assert!(resumed.starts_with("HTTP/1.1 200"), "{resumed}");
        assert_eq!(resumed.contains("at last"), kept, "{broken:?}: {resumed}");
    }
}

#[test]
fn a_head_that_is_repeated_is_answered_as_on_a_connection_of_its_own() {
    let mut world = World::new();
    let first = world.connect();
    let (a, b) = (world.open_session(first), world.open_session(first));
    let kept = world.connect();
    let ask = |world: &mut World, headers: &str, id: u32| {
        let ping = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let alone = world.connect();
        let answers = [kept, alone].map(|wire| {
            world.send(wire, "POST", headers, &ping);
            world.take(wire)
        });
        assert_eq!(answers[0], answers[1], "{headers}{ping}");
        let [answer, _] = answers;
        answer[..12].to_owned()
    };
    let unknown = "Mcp-Session-Id: 00000000000000000000000000000000\r\n";
    let strange = format!("{a}X: y\r\n").replace("2025-11-25", "2025-11-26");
    for headers in [
        &*a, &a, &b, unknown, unknown, &strange, &strange, "", "", &a, &b, &b,
    ] {
        let good = headers == a || headers == b;
        for id in [1, 2, 10, 1_000] {
            let status = ask(&mut world, headers, id);
            assert_eq!(status == "HTTP/1.1 200", good, "{headers}: {status}");
        }
    }
    assert_eq!(ask(&mut world, &a, 1), "HTTP/1.1 200");
    world.send(first, "DELETE", &a, "");
    assert!(world.take(first).starts_with("HTTP/1.1 204"));
    assert_eq!(
        ask(&mut world, &a, 1),
        "HTTP/1.1 404",
        "its session has ended"
    );
    let c = world.open_session(first);
    assert_eq!(
        ask(&mut world, &a, 1),
        "HTTP/1.1 404",
        "another one has its place"
    );
    assert_eq!(ask(&mut world, &c, 1), "HTTP/1.1 200");
}

#[test]
fn a_listen_stream_opened_during_the_end_is_ended_too() {
    let headers =
        |method: &str| format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n");
    let message = |id: u32, method: &str, params: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params}"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
        )
    };
    let listen = "subscriptions/listen";
    let mut world = World::new();
    // Its body is under way when the end begins; a connection between two requests is closed then.
    let wire = world.connect();
    let body = message(2, listen, r#""notifications":{},"#);
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:8808\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{}Content-Length: {}\r\n\r\n",
        headers(listen),
        body.len()
    );
    world.tell(wire, IoEvent::Bytes(head.as_bytes()));
    world.hub.shutdown(world.now);
    world.tell(wire, IoEvent::Bytes(body.as_bytes()));
    let said = world.written(wire);
    assert!(said.contains("200 OK"), "{said}");
    let result = r#""id":2,"result":"#;
    assert_eq!(said.matches(result).count(), 1, "{said}");
    assert!(said.ends_with("0\r\n\r\n"), "{said}");
}

#[test]
fn what_a_client_tells_names_the_client_of_its_calls() {
    let mut world = World::new();
    let wire = world.connect();
    let session = world.open_session(wire);
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
    world.send(wire, "POST", &session, changed);
    assert!(world.take(wire).starts_with("HTTP/1.1 202"));
    world.send(wire, "POST", &session, CALL);
    let mut told = Vec::new();
    while let Some(event) = world.hub.poll_event() {
        if let HubEvent::ClientNotification { client, method, .. } = event {
            told.push((client, method));
        } else if let HubEvent::Local(request) = event {
            told.push((request.context.client, "call".to_owned()));
        }
    }
    let methods: Vec<&str> = told.iter().map(|(_, method)| method.as_str()).collect();
    assert_eq!(methods, ["notifications/roots/list_changed", "call"]);
    assert_eq!(told[0].0, told[1].0);
}

/// A stateless request with the capability for tasks.
fn modern(id: u32, method: &str, name: &str, params: &str) -> (String, String) {
    let name = match name {
        "" => String::new(),
        name => format!("Mcp-Name: {name}\r\n"),
    };
    let headers = format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{name}");
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{params},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{"extensions":{{"io.modelcontextprotocol/tasks":{{}}}}}}}}}}}}"#
    );
    (headers, body)
}

#[test]
fn a_listen_stream_tells_of_a_task_over_http() {
    let mut world = World::new();
    let (caller, listener) = (world.connect(), world.connect());
    let (headers, body) = modern(1, "tools/call", "slow", r#""name":"slow","arguments":{}"#);
    world.send(caller, "POST", &headers, &body);
    let Some(HubEvent::Local(request)) = world.hub.poll_event() else {
        panic!("the tool was not called");
    };
    let (call, now) = (request.call, world.now);
    world
        .hub
        .resolve_local(now, call, LocalReply::Task(TaskStart::default()));
    let made = world.take(caller);
    let (_, rest) = made.split_once(r#""taskId":""#).expect("a task");
    let task = rest[..rest.find('"').expect("its end")].to_owned();

    let filter = format!(r#""notifications":{{"taskIds":["{task}"]}}"#);
    let (headers, body) = modern(2, "subscriptions/listen", "", &filter);
    world.send(listener, "POST", &headers, &body);
    let begun = world.take(listener);
    assert!(
        begun.contains(&format!(r#""notifications":{{"taskIds":["{task}"]}}"#)),
        "{begun}"
    );
    world
        .hub
        .resolve_local(now, call, LocalReply::text("at last"));
    let told = world.take(listener);
    for part in [
        "notifications/tasks",
        &task,
        r#""status":"completed""#,
        "at last",
    ] {
        assert_eq!(told.matches(part).count(), 1, "{part} in {told}");
    }

    // Whoever comes when all is over is told so at once, for nothing else will ever come.
    let late = world.connect();
    world.send(late, "POST", &headers, &body);
    let said = world.take(late);
    let (first, second) = said.split_once("notifications/tasks").expect("both");
    assert!(
        first.contains("acknowledged") && second.contains("at last"),
        "{said}"
    );
}
