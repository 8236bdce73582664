//! Clients of one server over HTTP and on a line, in virtual time: how conversations begin, and what is told
//! without being asked.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::UpstreamConfig;
use crate::clock::{Now, Uptime};
use crate::entropy::Seeded;
use crate::hub::{Hub, HubConfig, HubEvent, ServerIdentity};
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::{Driven, ExitReport, IoEvent, IoRequest, OpenSpec};
use crate::manager::Prefix;
use crate::manager::entry::read_servers;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
const FACTS: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true}},"serverInfo":{"name":"them","version":"1"}}"#;
const MODERN: &str = "MCP-Protocol-Version: 2026-07-28\r\n";
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// One server of the handshake revisions that answers what it is told to, and clients.
struct World {
    hub: Hub,
    listener: WireId,
    now: Now,
    /// The processes that run.
    servers: Vec<WireId>,
    starts: usize,
    /// What was asked of the server and is not answered: method, and its id.
    asked: Vec<(String, Value)>,
    heard: Vec<Value>,
    /// Results by method; what has none is left open.
    answers: BTreeMap<&'static str, &'static str>,
    finished: bool,
}

impl World {
    fn new() -> Self {
        let now = Now {
            up: Uptime::from_millis(1_000),
            unix_ms: 0,
        };
        let map = [("s".to_owned(), r#"{"command":"s"}"#.to_owned())];
        let read = read_servers(&map, &BTreeMap::new(), &Limits::DEFAULT);
        let servers = read.into_iter().map(|one| one.outcome.expect("usable"));
        let config = HubConfig {
            limits: Limits::default(),
            identity: ServerIdentity::span(),
            upstream: Some(UpstreamConfig {
                servers: servers.collect(),
                prefix: Prefix::Auto,
            }),
            ..HubConfig::default()
        };
        let mut hub = Hub::new(config, Box::new(Seeded::new(1)), now);
        let listener = hub.listen_http("127.0.0.1", 8808);
        let mut world = Self {
            hub,
            listener,
            now,
            servers: Vec::new(),
            starts: 0,
            asked: Vec::new(),
            heard: Vec::new(),
            answers: BTreeMap::new(),
            finished: false,
        };
        world.answers.insert("tools/list", r#"{"tools":[]}"#);
        world.drain();
        world
    }

    /// The same with a server that answers the handshake.
    fn ready() -> Self {
        let mut world = Self::new();
        world.answers.insert("initialize", FACTS);
        world
    }

    fn connect(&mut self) -> WireId {
        let wire = self
            .hub
            .handle_accept(self.now, self.listener, "127.0.0.1:5");
        wire.expect("a wire")
    }

    fn tell(&mut self, wire: WireId, event: IoEvent<'_>) {
        self.hub.handle_io(self.now, wire, event);
        self.drain();
    }

    fn http(&mut self, wire: WireId, method: &str, headers: &str, body: &str) {
        let head = format!(
            "{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1:8808\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.tell(wire, IoEvent::Bytes(head.as_bytes()));
    }

    /// What has left for a client since the last time.
    fn take(&mut self, wire: WireId) -> String {
        let Some(out) = self.hub.outgoing(wire) else {
            return String::new();
        };
        let text = String::from_utf8(out.pending().to_vec()).expect("UTF-8");
        out.advance(text.len());
        self.tell(wire, IoEvent::Drained);
        text
    }

    /// The server says something.
    fn say(&mut self, line: &str) {
        let server = *self.servers.last().expect("a server");
        self.tell(server, IoEvent::Bytes(format!("{line}\n").as_bytes()));
    }

    /// The server answers what was asked of it, by a raw result.
    #[track_caller]
    fn reply(&mut self, method: &str, result: &str) {
        let at = self.asked.iter().position(|(asked, _)| asked == method);
        let (_, id) = self.asked.remove(at.expect("it was asked"));
        self.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
        ));
    }

    fn wait(&mut self, ms: u64) {
        let end = self.now.after(Duration::from_millis(ms));
        while let Some(due) = self.hub.next_deadline().filter(|due| due.at <= end) {
            self.now.up = self.now.up.max(due.at);
            self.hub.handle_timeout(self.now);
            self.drain();
        }
        self.now.up = end;
    }

    fn drain(&mut self) {
        while let Some(request) = self.hub.poll_io() {
            match request {
                IoRequest::Open(wire, OpenSpec::Child(_)) => {
                    self.starts += 1;
                    self.servers.push(wire);
                    self.hub.handle_io(self.now, wire, IoEvent::Opened);
                }
                IoRequest::Flush(wire) if self.servers.contains(&wire) => self.read(wire),
                IoRequest::CloseWrite(wire) | IoRequest::Signal(wire, _)
                    if self.servers.contains(&wire) =>
                {
                    self.servers.retain(|of| *of != wire);
                    self.asked.clear();
                    let report = ExitReport::Code(0);
                    self.hub.handle_io(self.now, wire, IoEvent::Exited(report));
                    self.hub.handle_io(self.now, wire, IoEvent::Eof);
                }
                IoRequest::Open(..)
                | IoRequest::Flush(_)
                | IoRequest::PauseReads(..)
                | IoRequest::CloseWrite(_)
                | IoRequest::Close(_)
                | IoRequest::Finish(_)
                | IoRequest::Signal(..)
                | IoRequest::Append(_) => {}
            }
        }
        while let Some(event) = self.hub.poll_event() {
            self.finished |= matches!(event, HubEvent::Finished(_));
        }
    }

    fn read(&mut self, wire: WireId) {
        let Some(out) = self.hub.outgoing(wire) else {
            return;
        };
        let text = String::from_utf8(out.pending().to_vec()).expect("UTF-8");
        out.advance(text.len());
        self.hub.handle_io(self.now, wire, IoEvent::Drained);
        for line in text.lines() {
            let message: Value = serde_json::from_str(line).expect("JSON");
            self.heard.push(message.clone());
            let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else {
                continue;
            };
            let answer = match (method, self.answers.get(method)) {
                ("server/discover", _) => r#""error":{"code":-32601,"message":"no"}"#.to_owned(),
                (_, Some(result)) => format!("\"result\":{result}"),
                (_, None) => {
                    self.asked.push((method.to_owned(), id.clone()));
                    continue;
                }
            };
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{answer}}}\n");
            self.hub
                .handle_io(self.now, wire, IoEvent::Bytes(line.as_bytes()));
        }
    }

    fn sessions(&self) -> usize {
        let usage = self.hub.usage();
        let of = usage.iter().find(|usage| usage.name == "sessions_max");
        of.expect("it is counted").now
    }

    fn heard_times(&self, method: &str) -> usize {
        let of = |message: &&Value| message["method"] == method;
        self.heard.iter().filter(of).count()
    }

    /// A session, and the headers of its requests.
    fn session(&mut self, wire: WireId) -> String {
        self.http(wire, "POST", "", INITIALIZE);
        let answer = self.take(wire).to_ascii_lowercase();
        let (_, rest) = answer.split_once("mcp-session-id: ").expect("a session");
        let id = &rest[..rest.find('\r').expect("an end of line")];
        let headers = format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
        let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        self.http(wire, "POST", &headers, initialized);
        self.take(wire);
        headers
    }
}

#[test]
fn a_handshake_waits_without_a_stream_for_as_long_as_it_takes() {
    let mut world = World::new();
    let wire = world.connect();
    world.http(wire, "POST", "", INITIALIZE);
    world.wait(29_000);
    assert_eq!(
        world.take(wire),
        "",
        "no stream, for its head would name a session"
    );
    world.reply("initialize", FACTS);
    let answer = world.take(wire);
    assert!(
        answer.contains("Content-Type: application/json"),
        "{answer}"
    );
    assert!(answer.contains("Mcp-Session-Id: "), "{answer}");
    assert!(
        answer.contains(r#""serverInfo":{"name":"them","version":"1"}"#),
        "{answer}"
    );
    assert_eq!(world.sessions(), 1);
}

#[test]
fn the_time_to_connect_is_the_end_of_a_handshake_and_of_its_session() {
    let mut world = World::new();
    let wire = world.connect();
    world.http(wire, "POST", "", INITIALIZE);
    assert_eq!(world.sessions(), 1);
    world.wait(30_000);
    let answer = world.take(wire);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("timed out after 30000 ms"), "{answer}");
    assert!(!answer.contains("Mcp-Session-Id"), "{answer}");
    assert_eq!((world.sessions(), world.servers.len()), (0, 0));
    assert_eq!(world.hub.open_calls(), 0);
    // The next one is no worse off for it.
    world.answers.insert("initialize", FACTS);
    world.session(wire);
    assert_eq!((world.sessions(), world.starts), (1, 2));
}

#[test]
fn a_client_that_leaves_before_its_answer_leaves_nothing() {
    let mut world = World::new();
    let wire = world.connect();
    world.http(wire, "POST", "", INITIALIZE);
    world.tell(wire, IoEvent::Eof);
    world.tell(wire, IoEvent::WriteClosed);
    assert_eq!((world.sessions(), world.servers.len()), (0, 0));
    assert_eq!(world.hub.open_calls(), 0);
}

#[test]
fn stateless_clients_of_one_caller_meet_the_server_once_and_hear_how_long_it_rests() {
    let mut world = World::new();
    let discover = |id: u32| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"server/discover","params":{{{META}}}}}"#)
    };
    let headers = format!("{MODERN}Mcp-Method: server/discover\r\n");
    let (one, two) = (world.connect(), world.connect());
    world.http(one, "POST", &headers, &discover(1));
    world.http(two, "POST", &headers, &discover(1));
    let server = world.servers[0];
    world.tell(server, IoEvent::StderrBytes(b"no luck\n"));
    world.servers.clear();
    world.asked.clear();
    world.tell(server, IoEvent::Exited(ExitReport::Code(3)));
    world.tell(server, IoEvent::Eof);
    for wire in [one, two] {
        let answer = world.take(wire);
        for word in ["-32603", "exited with code 3", "no luck", "retry after"] {
            assert!(answer.contains(word), "no {word:?} in {answer}");
        }
    }
    assert_eq!(world.starts, 1);
    // Within the rest nobody starts it.
    world.http(one, "POST", &headers, &discover(2));
    assert!(world.take(one).contains("retry after"));
    assert_eq!(world.starts, 1);
    world.wait(60_000);
    world.answers.insert("initialize", FACTS);
    world.http(one, "POST", &headers, &discover(3));
    assert!(world.take(one).contains(r#"serverInfo":{"name":"them""#));
    world.http(two, "POST", &headers, &discover(3));
    assert!(world.take(two).contains(r#"serverInfo":{"name":"them""#));
    assert_eq!(world.starts, 2);
}

#[test]
fn the_end_of_the_hub_and_of_the_input_answer_a_handshake() {
    for stops in [true, false] {
        let mut world = World::new();
        let client = world.hub.serve_adopted(world.now);
        world.tell(client, IoEvent::Bytes(format!("{INITIALIZE}\n").as_bytes()));
        let why = if stops {
            world.hub.shutdown(world.now);
            world.drain();
            "drawspan is shutting down"
        } else {
            world.tell(client, IoEvent::Eof);
            assert_eq!(world.take(client), "", "there is time");
            world.wait(10_000);
            "input_ended_timeout_ms"
        };
        let answer = world.take(client);
        assert!(
            answer.contains(r#""id":1,"error":{"code":-32603"#),
            "{answer}"
        );
        assert!(answer.contains(why), "{answer}");
        assert_eq!(world.hub.open_calls(), 0);
        world.wait(10_000);
        if stops {
            assert!(world.finished);
        }
    }
}

#[test]
fn a_session_hears_on_its_own_stream_what_belongs_to_no_request() {
    let mut world = World::ready();
    let wire = world.connect();
    let headers = world.session(wire);
    let stream = world.connect();
    let get = headers.clone();
    world.http(stream, "GET", &get, "");
    world.take(stream);
    let notice = r#"{"jsonrpc":"2.0","method":"vendor/x","params":{ "n":1.0 }}"#;
    world.say(notice);
    let heard = world.take(stream);
    assert!(heard.contains(&format!("data: {notice}\n")), "{heard}");
    // One that does not read is left alone.
    let long = format!(
        r#"{{"jsonrpc":"2.0","method":"vendor/x","params":{{"t":"{}"}}}}"#,
        "x".repeat(100_000)
    );
    for _ in 0..40 {
        world.say(&long);
    }
    let heard = world.take(stream).len();
    let limit = Limits::DEFAULT.out_high_bytes;
    assert!(heard > limit && heard < limit + 300_000, "{heard} bytes");
}

#[test]
fn a_listen_stream_over_http_is_subscribed_while_it_is_open() {
    let mut world = World::ready();
    let wire = world.connect();
    let listen = |id: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{"notifications":{{"resourceSubscriptions":["a:1"]}},{META}}}}}"#
        )
    };
    let headers = format!("{MODERN}Mcp-Method: subscriptions/listen\r\n");
    world.http(wire, "POST", &headers, &listen(7));
    let updated = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1","n":1.0}}"#;
    world.say(updated);
    assert!(
        !world.take(wire).contains("data: {"),
        "nothing before it is granted"
    );
    world.reply("resources/subscribe", "{}");
    let begun = world.take(wire);
    let acknowledged = begun
        .find("subscriptions/acknowledged")
        .expect("acknowledged");
    let held = begun.find(r#""n":1.0"#).expect("what was held");
    assert!(acknowledged < held, "{begun}");
    assert!(begun.contains(r#"subscriptionId":7"#), "{begun}");
    // A second one is granted at once, and the first one's end is not its own.
    let other = world.connect();
    world.http(other, "POST", &headers, &listen(8));
    assert!(world.take(other).contains("subscriptions/acknowledged"));
    assert_eq!(world.heard_times("resources/subscribe"), 1);
    world.tell(wire, IoEvent::Eof);
    world.tell(wire, IoEvent::WriteClosed);
    world.say(updated);
    assert!(world.take(other).contains(r#"subscriptionId":8"#));
    assert_eq!(world.heard_times("resources/unsubscribe"), 0);
    // Nobody is idle who listens, and reads what keeps the stream alive.
    for _ in 0..120 {
        world.wait(10_000);
        world.take(other);
    }
    assert_eq!((world.starts, world.servers.len()), (1, 1));
    world.tell(other, IoEvent::Eof);
    world.tell(other, IoEvent::WriteClosed);
    assert_eq!(world.heard_times("resources/unsubscribe"), 1);
    assert_eq!(
        world.heard.last().expect("it")["params"],
        json!({"uri": "a:1"})
    );
}
