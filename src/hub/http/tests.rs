//! HTTP through a whole hub, in memory: streams that can be resumed, and what becomes of floods.

mod edges;

use std::time::Duration;

use crate::hub::rig::{INITIALIZE, INITIALIZED, World, http_request};
use crate::hub::{HubConfig, HubEvent, LocalConfig};
use crate::ids::{CallId, WireId};
use crate::limits::Limits;
use crate::link::{Driven, FaultKind, IoEvent, IoFault};
use crate::local::{LocalReply, Registry, Resource, TaskStart, TaskSupport, Tool};
use crate::protocol::server::Changing;

const CALL: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","arguments":{}}}"#;

/// A world with the tool `slow` and the resource `a:b`.
fn world() -> World {
    limited(Limits::default())
}

fn limited(limits: Limits) -> World {
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
    World::new(HubConfig {
        limits,
        local: Some(LocalConfig {
            registry,
            state_key: [1; 32],
        }),
        ..HubConfig::default()
    })
}

impl World {
    /// The call of the tool, once its answer has become a stream; with the id of the last event.
    fn call_slowly(&mut self, wire: WireId, session: &str) -> (CallId, String) {
        self.http(wire, "POST", session, CALL);
        self.wait(1_000);
        let begun = self.take(wire);
        let id = begun
            .lines()
            .filter_map(|line| line.strip_prefix("id: "))
            .next_back();
        let id = id.unwrap_or_else(|| panic!("no priming event in {begun}"));
        let [call] = self.calls()[..] else {
            panic!("the tool was not called");
        };
        (call, id.to_owned())
    }

    fn resume(&mut self, session: &str, last: &str) -> String {
        let wire = self.connect();
        let headers = format!("{session}Last-Event-ID: {last}\r\n");
        self.http(wire, "GET", &headers, "");
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
        let mut world = world();
        let wire = world.connect();
        let session = world.open_session(wire, INITIALIZE);
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
    let mut world = world();
    let first = world.connect();
    let (a, b) = (
        world.open_session(first, INITIALIZE),
        world.open_session(first, INITIALIZE),
    );
    let kept = world.connect();
    let ask = |world: &mut World, headers: &str, id: u32| {
        let ping = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let alone = world.connect();
        let answers = [kept, alone].map(|wire| {
            world.http(wire, "POST", headers, &ping);
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
    world.http(first, "DELETE", &a, "");
    assert!(world.take(first).starts_with("HTTP/1.1 204"));
    assert_eq!(
        ask(&mut world, &a, 1),
        "HTTP/1.1 404",
        "its session has ended"
    );
    let c = world.open_session(first, INITIALIZE);
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
    let mut world = world();
    // Its body is under way when the end begins; a connection between two requests is closed then.
    let wire = world.connect();
    let body = message(2, listen, r#""notifications":{},"#);
    let request = http_request("POST", &headers(listen), &body);
    let head = &request[..request.len() - body.len()];
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
    let mut world = world();
    let wire = world.connect();
    let session = world.open_session(wire, INITIALIZE);
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
    world.http(wire, "POST", &session, changed);
    assert!(world.take(wire).starts_with("HTTP/1.1 202"));
    world.http(wire, "POST", &session, CALL);
    let mut told = Vec::new();
    for event in world.events.drain(..) {
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
    let mut world = world();
    let (caller, listener) = (world.connect(), world.connect());
    let (headers, body) = modern(1, "tools/call", "slow", r#""name":"slow","arguments":{}"#);
    world.http(caller, "POST", &headers, &body);
    let [call] = world.calls()[..] else {
        panic!("the tool was not called");
    };
    let now = world.now;
    world
        .hub
        .resolve_local(now, call, LocalReply::Task(TaskStart::default()));
    let made = world.take(caller);
    let (_, rest) = made.split_once(r#""taskId":""#).expect("a task");
    let task = rest[..rest.find('"').expect("its end")].to_owned();

    let filter = format!(r#""notifications":{{"taskIds":["{task}"]}}"#);
    let (headers, body) = modern(2, "subscriptions/listen", "", &filter);
    world.http(listener, "POST", &headers, &body);
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
    world.http(late, "POST", &headers, &body);
    let said = world.take(late);
    let (first, second) = said.split_once("notifications/tasks").expect("both");
    assert!(
        first.contains("acknowledged") && second.contains("at last"),
        "{said}"
    );
}

#[test]
fn nothing_is_left_of_exchanges_that_end_otherwise_than_by_an_answer() {
    let mut world = world();
    let wire = world.connect();
    let session = world.open_session(wire, INITIALIZE);
    // One listener takes the place of the other.
    let listeners = [(); 3].map(|()| {
        let listener = world.connect();
        world.http(listener, "GET", &session, "");
        assert!(world.take(listener).starts_with("HTTP/1.1 200"));
        listener
    });
    // The stream is let go early, and nobody comes back for it before its connection is closed.
    let (call, id) = world.call_slowly(wire, &session);
    let now = world.now;
    world.hub.with_local(now, |desk| desk.close_stream(call));
    assert!(world.take(wire).ends_with("0\r\n\r\n"));
    for wire in listeners.into_iter().chain([wire]) {
        world.tell(wire, IoEvent::WriteClosed);
    }
    let front = &world.hub.http;
    let [open] = front.exchanges.values().collect::<Vec<_>>()[..] else {
        panic!("{:?}", front.exchanges);
    };
    let (peer, stream) = open.peer.zip(open.stream).expect("a stream of a session");
    assert_eq!(front.sessions.carrier(peer, stream), None);
    let answer = LocalReply::text("at last");
    world.hub.resolve_local(now, call, answer);
    assert!(world.resume(&session, &id).contains("at last"));
    assert!(world.hub.http.exchanges.is_empty());
}
