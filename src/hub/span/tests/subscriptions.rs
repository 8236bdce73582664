//! Subscriptions to resources: the answer is the server's own.

use serde_json::{Value, json};

use super::{FACTS, hesitant};
use crate::hub::rig::{INITIALIZE, INITIALIZED, META, Reply, World, span};
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::ExitReport;

/// A server of the handshake revisions that knows resources beginning with `a:`, and one that it leaves open.
fn server(method: &str, params: &Value) -> Reply {
    let uri = params["uri"].as_str().unwrap_or_default();
    match method {
        "initialize" => Reply::Raw(FACTS.to_owned()),
        "resources/subscribe" if uri == "open:" => Reply::Silence,
        "resources/subscribe" if !uri.starts_with("a:") => Reply::Error(-32002),
        "resources/subscribe" | "resources/unsubscribe" => Reply::Result(json!({})),
        _ => hesitant(method, params),
    }
}

fn world(record: &Value) -> World {
    let mut world = World::new(span(&[("s", record.clone())], Limits::default()));
    world.play("s", server);
    world
}

fn session(world: &mut World) -> WireId {
    let client = world.line();
    world.say(client, INITIALIZE);
    world.say(client, INITIALIZED);
    world.said.clear();
    client
}

/// What comes of a request at once, if anything.
fn ask(world: &mut World, client: WireId, method: &str, uri: &str) -> Option<Value> {
    let params = json!({ "uri": uri });
    world.send(
        client,
        json!({"id": uri, "method": method, "params": params}),
    );
    answer(world, client)
}

fn answer(world: &mut World, client: WireId) -> Option<Value> {
    let said = std::mem::take(&mut world.said);
    let mut of = said.into_iter().filter(|(wire, _)| *wire == client);
    let (_, line) = of.next()?;
    Some(serde_json::from_str(&line).expect("JSON"))
}

/// Whether a client hears of an update.
fn hears(world: &mut World, client: WireId, uri: &str) -> bool {
    let updated = json!({"method": "notifications/resources/updated", "params": {"uri": uri}});
    world.send(world.server(), updated);
    let heard = answer(world, client).is_some();
    world.said.clear();
    heard
}

#[test]
fn a_refusal_is_passed_on_and_leaves_nobody_subscribed() {
    let mut world = world(&json!({"isolation": "shared"}));
    let (one, two) = (session(&mut world), session(&mut world));
    let refused = ask(&mut world, one, "resources/subscribe", "b:1").expect("an answer");
    assert_eq!(refused["error"], json!({"code": -32002, "message": "no"}));
    assert!(!hears(&mut world, one, "b:1"));
    // Asked again, it is asked of the server again.
    ask(&mut world, one, "resources/subscribe", "b:1");
    assert_eq!(world.times_heard("resources/subscribe"), 2);
    assert_eq!(world.times_heard("resources/unsubscribe"), 0);
    // What another client has is granted at once.
    for client in [one, two] {
        let granted = ask(&mut world, client, "resources/subscribe", "a:1");
        assert_eq!(granted.expect("an answer")["result"], json!({}));
    }
    assert_eq!(world.times_heard("resources/subscribe"), 3);
    assert!(hears(&mut world, two, "a:1"));
    ask(&mut world, one, "resources/unsubscribe", "a:1");
    assert_eq!(world.times_heard("resources/unsubscribe"), 0);
    assert!(hears(&mut world, two, "a:1"));
    assert!(!hears(&mut world, one, "a:1"));
}

#[test]
fn a_server_that_says_nothing_or_is_gone_is_what_the_client_is_told() {
    let mut world = world(&json!({"timeout": 3}));
    let client = session(&mut world);
    assert_eq!(
        ask(&mut world, client, "resources/subscribe", "open:"),
        None
    );
    world.wait(2_999);
    assert_eq!(answer(&mut world, client), None);
    world.wait(1);
    let late = answer(&mut world, client).expect("an answer in time");
    let why = late["error"]["message"].as_str().unwrap_or_default();
    assert!(
        why.contains("resources/subscribe timed out after 3000 ms"),
        "{why}"
    );
    world.remove_program("s");
    world.end(world.server(), ExitReport::Code(1));
    let gone = ask(&mut world, client, "resources/subscribe", "a:1").expect("an answer");
    let why = gone["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("no such program"), "{why}");
}

#[test]
fn a_listen_stream_leaves_out_what_an_older_server_refuses() {
    let mut world = world(&json!({}));
    let client = world.line();
    let filter = r#""notifications":{"resourceSubscriptions":["a:1","b:1"]}"#;
    let listen = format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{{{filter},{META}}}}}"#
    );
    world.say(client, &listen);
    let acknowledged = answer(&mut world, client).expect("an acknowledgment");
    assert_eq!(
        acknowledged["params"]["notifications"],
        json!({"resourceSubscriptions": ["a:1"]})
    );
    assert!(hears(&mut world, client, "a:1"));
    assert!(!hears(&mut world, client, "b:1"));
}
