//! `logging/setLevel`: answered by the server of a client, where that is its own.

use serde_json::{Value, json};

use super::hesitant;
use crate::hub::rig::{INITIALIZE, INITIALIZED, Reply, World, records, span};
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::ExitReport;

const FACTS: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"them","version":"1"}}"#;

/// A server that has log messages, and no level but `error` and `info`.
fn server(method: &str, params: &Value) -> Reply {
    match (method, params["level"].as_str()) {
        ("initialize", _) => Reply::Raw(FACTS.to_owned()),
        ("logging/setLevel", Some("error" | "info")) => Reply::Raw("{ }".to_owned()),
        ("logging/setLevel", _) => Reply::Error(-32602),
        _ => hesitant(method, params),
    }
}

/// One that has none.
fn mute(method: &str, params: &Value) -> Reply {
    match method {
        "initialize" => Reply::Raw(super::FACTS.to_owned()),
        "logging/setLevel" => Reply::Error(-32601),
        _ => hesitant(method, params),
    }
}

fn world(record: Value, script: fn(&str, &Value) -> Reply) -> World {
    let mut world = World::new(span(&[("s", record)], Limits::default()));
    world.play("s", script);
    world
}

fn session(world: &mut World) -> WireId {
    let client = world.line();
    world.say(client, INITIALIZE);
    world.say(client, INITIALIZED);
    world.said.clear();
    client
}

fn set_level(world: &mut World, client: WireId, params: &str) -> String {
    world.say(
        client,
        &format!(r#"{{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{params}}}"#),
    );
    let (_, line) = world.said.pop().expect("an answer");
    line
}

/// How many log messages of this level reach which clients.
fn hear(world: &mut World, level: &str) -> Vec<WireId> {
    let params = json!({"level": level, "data": 1});
    let message = json!({"method": "notifications/message", "params": params});
    world.send(world.server(), message);
    let said = std::mem::take(&mut world.said);
    said.into_iter().map(|(wire, _)| wire).collect()
}

/// What the servers were asked last, and how often.
fn levels(world: &World) -> (usize, String) {
    let of = world.heard.iter();
    let of = of.filter(|heard| heard.message["method"] == "logging/setLevel");
    let all: Vec<_> = of.collect();
    let last = all.last().map(|heard| heard.raw.clone());
    (all.len(), last.unwrap_or_default())
}

#[test]
fn a_server_of_its_own_is_asked_and_its_answer_is_passed_on() {
    let mut world = world(json!({}), server);
    let client = session(&mut world);
    assert_eq!(
        set_level(&mut world, client, r#"{ "level":"error", "x":1.0 }"#),
        r#"{"jsonrpc":"2.0","id":1,"result":{ }}"#
    );
    let (times, raw) = levels(&world);
    assert!(
        raw.contains(r#""params":{ "level":"error", "x":1.0 }"#),
        "{raw}"
    );
    assert_eq!(times, 1);
    assert_eq!(hear(&mut world, "info"), []);
    // What is refused changes nothing.
    let refused = set_level(&mut world, client, r#"{"level":"loud"}"#);
    assert!(
        refused.contains(r#""error":{"code":-32602,"message":"no"}"#),
        "{refused}"
    );
    set_level(&mut world, client, r#"{"level":"debug"}"#);
    assert_eq!(hear(&mut world, "info"), []);
    assert_eq!(hear(&mut world, "error"), [client]);
    // The next connection is told what was granted, once.
    world.end(world.server(), ExitReport::Code(1));
    world.send(client, json!({"id": 2, "method": "vendor/x"}));
    let (times, raw) = levels(&world);
    assert!(raw.contains(r#""params":{"level":"error"}"#), "{raw}");
    assert_eq!((times, world.starts), (4, 2));
}

#[test]
fn a_server_without_log_messages_says_so_itself() {
    let mut world = world(json!({}), mute);
    let client = session(&mut world);
    let refused = set_level(&mut world, client, r#"{"level":"info"}"#);
    assert!(refused.contains(r#""error":{"code":-32601"#), "{refused}");
    assert_eq!(levels(&world).0, 1);
}

#[test]
fn clients_of_a_shared_server_have_a_level_each() {
    let mut world = world(json!({"isolation": "shared"}), server);
    let (one, two) = (session(&mut world), session(&mut world));
    let answer = set_level(&mut world, one, r#"{"level":"error"}"#);
    assert_eq!(answer, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    set_level(&mut world, two, r#"{"level":"info"}"#);
    assert_eq!(hear(&mut world, "info"), [two]);
    let (_, raw) = levels(&world);
    assert!(raw.contains(r#""level":"info""#), "{raw}");
}

#[test]
fn a_second_server_makes_the_level_ours() {
    let mut world = world(json!({}), server);
    let client = session(&mut world);
    let now = world.now;
    let two = records(&[("s", json!({})), ("t", json!({}))]);
    world.hub.set_servers(now, two);
    world.settle();
    let before = levels(&world).0;
    let answer = set_level(&mut world, client, r#"{"level":"info"}"#);
    assert_eq!(answer, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(
        levels(&world).0,
        before + 1,
        "the server that is there is told"
    );
    let bad = set_level(&mut world, client, r#"{"level":"loud"}"#);
    assert!(bad.contains("-32602"), "{bad}");
}
