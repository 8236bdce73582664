//! Cases that people's reports led to, each named after its case, through a whole hub in memory.
//!
//! `protocol-fixtures/http/f*.jsonl`: `head` is the lines of a request, `{host}` our own address; it goes
//! over a connection of its own, and `statuses` are those of what comes back. `code` is that of the JSON-RPC
//! error, `says` a part of the body. `e12`: a request and the `headers` it must carry, or a `bad` annotation.

use std::time::Duration;

use drawspan::clock::{Now, Uptime};
use drawspan::codec::sse::{EventReader, SseEvent};
use drawspan::entropy::Seeded;
use drawspan::hub::{Hub, HubConfig, HubEvent, LocalConfig};
use drawspan::ids::{CallId, WireId};
use drawspan::limits::Limits;
use drawspan::link::http_rules::param_headers;
use drawspan::link::{Driven, IoEvent};
use drawspan::local::{LocalReply, Registry, Tool};
use drawspan::protocol::server::{Changing, List};
use serde_json::{Value, json};

const HOST: &str = "127.0.0.1:8808";
const STANDARD: &str =
    "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"0"}}}"#;
const SLEEP: &str = r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"sleep","arguments":{"ms":5000}}}"#;

struct World {
    hub: Hub,
    listener: WireId,
    now: Now,
}

impl World {
    fn new(limits: Limits, schema: &str) -> Self {
        let now = Now {
            up: Uptime::ZERO,
            unix_ms: 0,
        };
        let mut registry = Registry::new();
        registry.declare_changing(Changing {
            tools: true,
            ..Changing::default()
        });
        for (name, schema) in [("sleep", r#"{"type":"object"}"#), ("q", schema)] {
            registry
                .add_tool(Tool::new(name, name, schema))
                .expect("a good tool");
        }
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

    fn usual() -> Self {
        Self::new(Limits::default(), r#"{"type":"object"}"#)
    }

    fn connect(&mut self) -> WireId {
        let wire = self
            .hub
            .handle_accept(self.now, self.listener, "127.0.0.1:5");
        wire.expect("room")
    }

    fn tell(&mut self, wire: WireId, event: IoEvent<'_>) {
        self.hub.handle_io(self.now, wire, event);
        while self.hub.poll_io().is_some() {}
    }

    /// What has come back on a wire, which leaves.
    fn take(&mut self, wire: WireId) -> String {
        let Some(out) = self.hub.outgoing(wire) else {
            return String::new();
        };
        let text = String::from_utf8(out.pending().to_vec()).expect("UTF-8");
        out.advance(text.len());
        self.tell(wire, IoEvent::Drained);
        text
    }

    fn send(&mut self, wire: WireId, head: &str, body: &str) -> String {
        let head = head.replace("{host}", HOST);
        let length = if body.is_empty() {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let request = format!("{head}{length}\r\n{body}");
        self.hub
            .handle_io(self.now, wire, IoEvent::Bytes(request.as_bytes()));
        let said = self.take(wire);
        while self.hub.poll_io().is_some() {}
        said
    }

    fn post(&mut self, wire: WireId, headers: &str, body: &str) -> String {
        let head = format!("POST /mcp HTTP/1.1\r\nHost: {{host}}\r\n{STANDARD}{headers}");
        self.send(wire, &head, body)
    }

    fn wait(&mut self, ms: u64) {
        self.now.up = self.now.after(Duration::from_millis(ms));
        self.hub.handle_timeout(self.now);
        while self.hub.poll_io().is_some() {}
    }

    /// A session's header.
    fn session(&mut self) -> String {
        let wire = self.connect();
        let said = self.post(wire, "", INITIALIZE);
        let id = field(&said, "mcp-session-id").expect("a session");
        let session = format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-06-18\r\n");
        self.post(
            wire,
            &session,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        session
    }

    fn get(&mut self, headers: &str) -> (WireId, String) {
        let wire = self.connect();
        let head = format!(
            "GET /mcp HTTP/1.1\r\nHost: {{host}}\r\nAccept: text/event-stream\r\n{headers}"
        );
        let said = self.send(wire, &head, "");
        (wire, said)
    }

    /// The call that waits for the program, and the calls that nobody wants any more.
    fn events(&mut self) -> (Option<CallId>, Vec<CallId>) {
        let (mut asked, mut cancelled) = (None, Vec::new());
        while let Some(event) = self.hub.poll_event() {
            if let HubEvent::Local(request) = event {
                asked = Some(request.call);
            } else if let HubEvent::LocalCancelled(call) = event {
                cancelled.push(call);
            }
        }
        (asked, cancelled)
    }
}

fn field(said: &str, name: &str) -> Option<String> {
    let mut lines = said.lines().take_while(|line| !line.is_empty());
    lines.find_map(|line| {
        let (found, value) = line.split_once(": ")?;
        found.eq_ignore_ascii_case(name).then(|| value.to_owned())
    })
}

/// The events of a chunked stream: names, ids and data.
fn stream(said: &str) -> Vec<(String, String, String)> {
    let (_, body) = said.split_once("\r\n\r\n").expect("a head");
    let mut text = String::new();
    let mut rest = body;
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).expect("a size");
        text.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    let mut reader = EventReader::new(65_536);
    let mut input = text.as_bytes();
    let mut events = Vec::new();
    while let Some(event) = reader.next(&mut input) {
        let SseEvent::Event { name, data } = event else {
            panic!("an oversized event");
        };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        let (name, data) = (text(name), text(data));
        let id = text(reader.last_event_id());
        events.push((name, id, data));
    }
    assert!(
        !reader.is_amid_event(),
        "an event without its end in {text:?}"
    );
    assert!(
        !text.contains('\r'),
        "every line ends by LF alone: {text:?}"
    );
    events
}

fn replay(fixture: &str, least: usize) {
    let mut cases = 0;
    for line in fixture.lines().skip(1) {
        let case: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let name = &case["case"];
        let mut head = String::new();
        for line in case["head"].as_array().expect("lines") {
            match line.as_str() {
                Some(line) => head.push_str(line),
                None => {
                    let times =
                        usize::try_from(line["times"].as_u64().expect("times")).expect("small");
                    head.push_str(line["after"].as_str().expect("a text"));
                    head.push_str(&line["repeat"].as_str().expect("a text").repeat(times));
                }
            }
            head.push_str("\r\n");
        }
        let mut world = World::usual();
        let wire = world.connect();
        let said = world.send(wire, &head, case["body"].as_str().unwrap_or(""));
        let statuses = said
            .lines()
            .filter_map(|line| line.strip_prefix("HTTP/1.1 "));
        let statuses: Vec<u64> = statuses
            .map(|line| line[..3].parse().expect("a status"))
            .collect();
        assert_eq!(json!(statuses), case["statuses"], "{name}: {said}");
        let (_, body) = said.rsplit_once("\r\n\r\n").expect("a body");
        if *statuses.last().expect("one") == 403 {
            let body: Value = serde_json::from_str(body).expect("a JSON-RPC error");
            assert!(
                body["error"].is_object() && body.get("id").is_none(),
                "{name}: {body}"
            );
            assert_eq!(world.events().0, None);
        }
        if let Some(code) = case["code"].as_i64() {
            let body: Value = serde_json::from_str(body).expect("a JSON-RPC error");
            assert_eq!(body["error"]["code"], code, "{name}");
        }
        if let Some(says) = case["says"].as_str() {
            assert!(body.contains(says), "{name}: {body}");
        }
        cases += 1;
    }
    assert!(cases >= least, "{cases} cases");
}

#[test]
fn f01_origin_host() {
    replay(
        include_str!("../../protocol-fixtures/http/f01-origin-host.jsonl"),
        11,
    );
}

#[test]
fn f02_content_type_in() {
    replay(
        include_str!("../../protocol-fixtures/http/f02-content-type-in.jsonl"),
        14,
    );
}

/// A second stream takes the place of the first; a message goes to one; a stream alone keeps no session.
#[test]
fn f03_second_get() {
    let limits = Limits {
        session_idle_ttl: Duration::from_millis(3_000),
        sse_keepalive_interval: Duration::from_millis(500),
        ..Limits::default()
    };
    let mut world = World::new(limits, r#"{"type":"object"}"#);
    let session = world.session();
    let (first, said) = world.get(&session);
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert_eq!(field(&said, "x-accel-buffering").as_deref(), Some("no"));
    let (second, said) = world.get(&session);
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    let now = world.now;
    world
        .hub
        .with_local(now, |local| local.list_changed(List::Tools));
    let heard = [world.take(first), world.take(second)];
    let times = heard
        .each_ref()
        .map(|text| text.matches("list_changed").count());
    assert_eq!(times, [0, 1], "{heard:?}");
    for _ in 0..5 {
        world.wait(500);
        assert!(world.take(second).contains(": keep-alive\n"));
    }
    // Both connections vanish without a word: after its time the session is gone, the hub is not.
    world.wait(499);
    let wire = world.connect();
    let ping = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;
    assert!(world.post(wire, &session, ping).starts_with("HTTP/1.1 200"));
    for _ in 0..6 {
        world.wait(500);
    }
    assert!(world.post(wire, &session, ping).starts_with("HTTP/1.1 404"));
    world.session();
}

/// To 2026-07-28 a client that goes away cancels; before, the work goes on and its answer can be fetched.
#[test]
fn f04_client_gone() {
    let mut world = World::usual();
    let wire = world.connect();
    let headers =
        "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: sleep\r\n";
    let body = SLEEP.replace(
        r#""arguments""#,
        r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"arguments""#,
    );
    world.post(wire, headers, &body);
    let call = world.events().0.expect("it is called");
    world.wait(200);
    world.tell(wire, IoEvent::WriteClosed);
    assert_eq!(world.events().1, [call], "told at once");
    let now = world.now;
    world.hub.resolve_local(now, call, LocalReply::text("late"));
    assert!(world.events().0.is_none() && world.hub.open_calls() == 0);

    let session = world.session();
    let wire = world.connect();
    world.post(wire, &session, SLEEP);
    let call = world.events().0.expect("it is called");
    // The stream, with something to resume after.
    world.wait(1_000);
    let begun = world.take(wire);
    let (_, id, _) = stream(&begun).pop().expect("a priming event");
    world.tell(wire, IoEvent::WriteClosed);
    assert_eq!(world.events().1, [], "no cancellation");
    let now = world.now;
    world.hub.resolve_local(now, call, LocalReply::text("late"));
    let (_, said) = world.get(&format!("{session}Last-Event-ID: {id}\r\n"));
    assert!(said.contains("late"), "{said}");

    // One that has ended its direction may still read, or be gone: its answer leaves, and can be fetched too.
    let wire = world.connect();
    world.post(wire, &session, SLEEP);
    let call = world.events().0.expect("it is called");
    world.wait(1_000);
    let (_, id, _) = stream(&world.take(wire)).pop().expect("a priming event");
    world.tell(wire, IoEvent::Eof);
    let now = world.now;
    world
        .hub
        .resolve_local(now, call, LocalReply::text("doubtful"));
    assert!(world.take(wire).contains("doubtful"));
    let (_, said) = world.get(&format!("{session}Last-Event-ID: {id}\r\n"));
    assert!(said.contains("doubtful"), "{said}");

    // Without a stream there are no ids: the answer goes nowhere, and nobody minds.
    let wire = world.connect();
    world.post(wire, &session, SLEEP);
    let call = world.events().0.expect("it is called");
    world.tell(wire, IoEvent::WriteClosed);
    world
        .hub
        .resolve_local(now, call, LocalReply::text("later"));
    let wire = world.connect();
    let ping = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;
    assert!(world.post(wire, &session, ping).starts_with("HTTP/1.1 200"));
}

/// The listener's part: what a client sends beside the protocol's own is neither heeded nor sent back.
#[test]
fn f06_header_hygiene() {
    let mut world = World::usual();
    let odd = "Authorization: Bearer inbound\r\nCookie: a=b\r\nProxy-Authorization: Basic eA==\r\n\
               Mcp-Session-Id: 0123456789abcdef0123456789abcdef\r\nLast-Event-ID: 7\r\n\
               X-Forwarded-Proto: https\r\nForwarded: proto=https\r\nX-Api-Key: inbound-key\r\n\
               traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\n";
    let headers = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\n";
    let body = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let wire = world.connect();
    let plain = world.post(wire, headers, body);
    let wire = world.connect();
    let said = world.post(wire, &format!("{headers}{odd}"), body);
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    assert_eq!(said, plain, "the answer is the same");
    assert_eq!(field(&said, "mcp-session-id"), None, "stateless");
}

/// The writing side: of several lines of data and of comments nothing but events comes to the other end.
#[test]
fn d01_d02_d07_what_we_stream_is_plain_events() {
    let mut world = World::usual();
    let session = world.session();
    let wire = world.connect();
    world.post(wire, &session, SLEEP);
    let call = world.events().0.expect("it is called");
    world.wait(600);
    let mut said = world.take(wire);
    // A comment between two events, and line breaks in a text.
    world.wait(15_000);
    let now = world.now;
    world
        .hub
        .resolve_local(now, call, LocalReply::text("a\r\nb\rc\nd"));
    said.push_str(&world.take(wire));
    assert!(said.contains(": keep-alive"), "{said}");
    let events = stream(&said);
    let names: Vec<&str> = events.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["message", "message"]);
    let answer: Value = serde_json::from_str(&events[1].2).expect("one line of JSON");
    assert_eq!(answer["result"]["content"][0]["text"], "a\r\nb\rc\nd");
}

/// The priming event has an id and no data, our `retry` is digits, and the last event has its blank line.
#[test]
fn d03_d04_d05_priming_retry_and_the_end() {
    let mut world = World::usual();
    let session = world.session();
    let wire = world.connect();
    world.post(wire, &session, SLEEP);
    let call = world.events().0.expect("it is called");
    world.wait(600);
    let now = world.now;
    world.hub.resolve_local(now, call, LocalReply::text("done"));
    let said = world.take(wire);
    assert!(
        said.contains("\nretry: 1000\n") && said.ends_with("\n\n\r\n0\r\n\r\n"),
        "{said}"
    );
    let events = stream(&said);
    let ids: Vec<(&str, bool)> = events
        .iter()
        .map(|(_, id, data)| (id.as_str(), data.is_empty()))
        .collect();
    assert_eq!(ids, [("1-0", true), ("1-1", false)]);
}

/// The endpoint of the 2024-11-05 pair is a path of our own: no client can be led elsewhere by it.
#[test]
fn d06_legacy_endpoint() {
    let mut world = World::usual();
    let wire = world.connect();
    let said = world.send(
        wire,
        "GET /sse HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n",
        "",
    );
    let events = stream(&said);
    let (name, _, endpoint) = &events[0];
    assert_eq!((events.len(), name.as_str()), (1, "endpoint"));
    assert!(endpoint.starts_with("/messages?sessionId="), "{endpoint}");
    let post = world.connect();
    let head = format!("POST {endpoint} HTTP/1.1\r\nHost: {{host}}\r\n{STANDARD}");
    assert!(
        world
            .send(post, &head, INITIALIZE)
            .starts_with("HTTP/1.1 202")
    );
    let after = format!("x\r\n\r\n{}", world.take(wire));
    assert!(
        stream(&after)[0]
            .2
            .contains("\"protocolVersion\":\"2025-06-18\"")
    );
}

/// What the headers of a request repeat must agree with its body, however it is spelled.
#[test]
fn e12_routing_headers() {
    let fixture = include_str!("../../protocol-fixtures/http/e12-routing-headers.jsonl");
    let (mut calls, mut bad) = (0, 0);
    for line in fixture.lines().skip(1) {
        let case: Value = serde_json::from_str(line).expect("JSON");
        if let Some(annotation) = case.get("bad") {
            let mut property = annotation.clone();
            if property.get("type").is_none() {
                property["type"] = json!("string");
            }
            let schema = json!({"type": "object", "properties": {"p": property}}).to_string();
            assert!(param_headers(&schema, 64).is_err(), "{schema}");
            bad += 1;
            continue;
        }
        let schema = case
            .get("schema")
            .map_or_else(|| r#"{"type":"object"}"#.to_owned(), Value::to_string);
        let mut body =
            json!({"jsonrpc": "2.0", "id": 1, "method": case["method"], "params": case["params"]});
        body["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body = body.to_string();
        let mut headers: Vec<(String, String)> = case["headers"]
            .as_object()
            .expect("headers")
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().expect("a text").to_owned()))
            .collect();
        // The tools of parameters are listed without what every request carries.
        let has = |headers: &[(String, String)], name: &str| {
            headers.iter().any(|(found, _)| found == name)
        };
        for (name, value) in [
            ("Mcp-Method", &case["method"]),
            ("Mcp-Name", &case["params"]["name"]),
        ] {
            if let (false, Some(value)) = (has(&headers, name), value.as_str()) {
                headers.push((name.to_owned(), value.to_owned()));
            }
        }
        let ask = |headers: &[(String, String)]| {
            let mut text = "MCP-Protocol-Version: 2026-07-28\r\n".to_owned();
            for (name, value) in headers {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
            let mut world = World::new(Limits::default(), &schema);
            let wire = world.connect();
            let said = world.post(wire, &text, &body);
            said.contains("-32020")
        };
        assert!(!ask(&headers), "{headers:?} of {body}");
        for at in 0..headers.len() {
            let mut changed = headers.clone();
            changed[at].1 = "other".to_owned();
            assert!(ask(&changed), "{changed:?} of {body}");
            changed.remove(at);
            assert!(ask(&changed), "{changed:?} of {body}");
        }
        for name in case["absent"].as_array().into_iter().flatten() {
            let mut more = headers.clone();
            more.push((name.as_str().expect("a name").to_owned(), "x".to_owned()));
            // Nothing in the body says so. Of a method that has no name nobody looks at one.
            let told = ask(&more);
            assert_eq!(told, name != "Mcp-Name", "{more:?} of {body}");
        }
        calls += 1;
    }
    assert_eq!((calls, bad), (8, 5));
}
