//! Clients of one server over HTTP and on a line, in virtual time: how conversations begin, and what is told
//! without being asked.

mod levels;
mod subscriptions;
mod tasks;

use serde_json::{Value, json};

use crate::hub::rig::{INITIALIZE, META, Reply, World, span};
use crate::limits::Limits;
use crate::link::{ExitReport, IoEvent};

const FACTS: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"resources":{"subscribe":true}},"serverInfo":{"name":"them","version":"1"}}"#;
const MODERN: &str = "MCP-Protocol-Version: 2026-07-28\r\n";

/// A server of the handshake revisions that leaves everything open, the handshake too.
fn hesitant(method: &str, _: &Value) -> Reply {
    match method {
        "server/discover" => Reply::Error(-32601),
        "tools/list" => Reply::Raw(r#"{"tools":[]}"#.to_owned()),
        _ => Reply::Silence,
    }
}

/// The same; it answers the handshake.
fn ready(method: &str, params: &Value) -> Reply {
    match method {
        "initialize" => Reply::Raw(FACTS.to_owned()),
        _ => hesitant(method, params),
    }
}

/// A world with one server.
fn with(script: fn(&str, &Value) -> Reply) -> World {
    let mut world = World::new(span(&[("s", json!({}))], Limits::default()));
    world.play("s", script);
    world
}

fn sessions(world: &World) -> usize {
    world.usage("sessions_max").0
}

#[test]
fn a_handshake_waits_without_a_stream_for_as_long_as_it_takes() {
    let mut world = with(hesitant);
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
    assert_eq!(sessions(&world), 1);
}

#[test]
fn the_time_to_connect_is_the_end_of_a_handshake_and_of_its_session() {
    let mut world = with(hesitant);
    let wire = world.connect();
    world.http(wire, "POST", "", INITIALIZE);
    assert_eq!(sessions(&world), 1);
    world.wait(30_000);
    let answer = world.take(wire);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("timed out after 30000 ms"), "{answer}");
    assert!(!answer.contains("Mcp-Session-Id"), "{answer}");
    assert_eq!((sessions(&world), world.servers().len()), (0, 0));
    assert_eq!(world.hub.open_calls(), 0);
    // The next one is no worse off for it.
    world.play("s", ready);
    world.session(wire, INITIALIZE);
    assert_eq!((sessions(&world), world.starts), (1, 2));
}

#[test]
fn a_client_that_leaves_before_its_answer_leaves_nothing() {
    let mut world = with(hesitant);
    let wire = world.connect();
    world.http(wire, "POST", "", INITIALIZE);
    world.tell(wire, IoEvent::Eof);
    world.tell(wire, IoEvent::WriteClosed);
    assert_eq!((sessions(&world), world.servers().len()), (0, 0));
    assert_eq!(world.hub.open_calls(), 0);
}

#[test]
fn stateless_clients_of_one_caller_meet_the_server_once_and_hear_how_long_it_rests() {
    let mut world = with(hesitant);
    let discover = |id: u32| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"server/discover","params":{{{META}}}}}"#)
    };
    let headers = format!("{MODERN}Mcp-Method: server/discover\r\n");
    let (one, two) = (world.connect(), world.connect());
    world.http(one, "POST", &headers, &discover(1));
    world.http(two, "POST", &headers, &discover(1));
    let server = world.server();
    world.tell(server, IoEvent::StderrBytes(b"no luck\n"));
    world.end(server, ExitReport::Code(3));
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
    world.play("s", ready);
    world.http(one, "POST", &headers, &discover(3));
    assert!(world.take(one).contains(r#"serverInfo":{"name":"them""#));
    world.http(two, "POST", &headers, &discover(3));
    assert!(world.take(two).contains(r#"serverInfo":{"name":"them""#));
    assert_eq!(world.starts, 2);
}

#[test]
fn the_end_of_the_hub_and_of_the_input_answer_a_handshake() {
    for stops in [true, false] {
        let mut world = with(hesitant);
        let client = world.hub.serve_adopted(world.now);
        world.say(client, &INITIALIZE.replace(r#""id":0"#, r#""id":1"#));
        let why = if stops {
            world.hub.shutdown(world.now);
            world.settle();
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
            assert!(world.is_finished());
        }
    }
}

#[test]
fn a_session_hears_on_its_own_stream_what_belongs_to_no_request() {
    let mut world = with(ready);
    let wire = world.connect();
    let headers = world.session(wire, INITIALIZE);
    let stream = world.connect();
    let get = headers.clone();
    world.http(stream, "GET", &get, "");
    world.take(stream);
    let notice = r#"{"jsonrpc":"2.0","method":"vendor/x","params":{ "n":1.0 }}"#;
    world.say(world.server(), notice);
    let heard = world.take(stream);
    assert!(heard.contains(&format!("data: {notice}\n")), "{heard}");
    // One that does not read is left alone.
    let long = format!(
        r#"{{"jsonrpc":"2.0","method":"vendor/x","params":{{"t":"{}"}}}}"#,
        "x".repeat(100_000)
    );
    for _ in 0..40 {
        world.say(world.server(), &long);
    }
    let heard = world.take(stream).len();
    let limit = Limits::DEFAULT.out_high_bytes;
    assert!(heard > limit && heard < limit + 300_000, "{heard} bytes");
}

#[test]
fn a_listen_stream_over_http_is_subscribed_while_it_is_open() {
    let mut world = with(ready);
    let wire = world.connect();
    let listen = |id: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{"notifications":{{"resourceSubscriptions":["a:1"]}},{META}}}}}"#
        )
    };
    let headers = format!("{MODERN}Mcp-Method: subscriptions/listen\r\n");
    world.http(wire, "POST", &headers, &listen(7));
    let updated = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1","n":1.0}}"#;
    world.say(world.server(), updated);
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
    assert_eq!(world.times_heard("resources/subscribe"), 1);
    world.tell(wire, IoEvent::Eof);
    world.tell(wire, IoEvent::WriteClosed);
    world.say(world.server(), updated);
    assert!(world.take(other).contains(r#"subscriptionId":8"#));
    assert_eq!(world.times_heard("resources/unsubscribe"), 0);
    // Nobody is idle who listens, and reads what keeps the stream alive.
    for _ in 0..120 {
        world.wait(10_000);
        world.take(other);
    }
    assert_eq!((world.starts, world.servers().len()), (1, 1));
    world.tell(other, IoEvent::Eof);
    world.tell(other, IoEvent::WriteClosed);
    assert_eq!(world.times_heard("resources/unsubscribe"), 1);
    assert_eq!(
        world.heard.last().expect("it").message["params"],
        json!({"uri": "a:1"})
    );
}
