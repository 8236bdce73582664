//! Subscriptions and log levels: what a connection is told of what its runtimes want.

use super::*;
use crate::protocol::message::LogLevel;
use crate::protocol::topic::Topic;

/// A server of the handshake revisions that can be subscribed to.
fn server(heard: &Heard) -> Vec<Act> {
    match heard.method.as_str() {
        "initialize" => vec![result(
            heard,
            json!({"protocolVersion": "2025-11-25",
                   "capabilities": {"tools": {}, "logging": {}, "resources": {"subscribe": true}},
                   "serverInfo": {"name": "s", "version": "1"}}),
        )],
        "resources/subscribe" if heard.params["uri"] == "no" => vec![error(heard, -32002, "none")],
        "resources/subscribe" | "resources/unsubscribe" | "logging/setLevel" => {
            vec![result(heard, json!({}))]
        }
        _ => legacy(heard, &["t"]),
    }
}

fn world(record: &str) -> World {
    let mut world = World::new(&["a"]);
    world.server("a", server);
    world.configure(&[("a", record)]);
    world
}

fn subscribe(world: &mut World, id: RuntimeId, uris: &[&str]) {
    let topics = uris.iter().map(|uri| Topic::Resource((*uri).to_owned()));
    listen(world, id, topics.collect());
}

fn listen(world: &mut World, id: RuntimeId, topics: BTreeSet<Topic>) {
    let now = world.now();
    world.manager.set_subscriptions(now, id, &key("a"), topics);
    world.run(0);
}

/// What was said of subscriptions since the last time: runtime, resource, and whether it is granted.
fn said(world: &mut World) -> Vec<(RuntimeId, String, bool)> {
    let told = std::mem::take(&mut world.told);
    let of = |output: ManagerOutput| {
        let ManagerOutput::Subscribed {
            runtime,
            topic,
            outcome,
            ..
        } = output
        else {
            return None;
        };
        let name = topic.resource().or(topic.task());
        Some((runtime, name?.to_owned(), outcome.is_ok()))
    };
    told.into_iter().filter_map(of).collect()
}

/// How often the server was sent this, and with which `uri` or `level` the last time.
fn heard(world: &World, method: &str) -> (usize, Value) {
    let of = |(_, heard): &&(String, Heard)| heard.method == method;
    let all: Vec<_> = world.heard.iter().filter(of).collect();
    let last = all.last().map(|(_, heard)| heard.params.clone());
    (all.len(), last.unwrap_or_default())
}

#[test]
fn runtimes_of_one_connection_share_a_subscription() {
    let mut world = world(r#"{"command":"a","isolation":"shared"}"#);
    let (first, second) = (world.open(), world.open());
    // It is connected to for that.
    subscribe(&mut world, first, &["u"]);
    assert_eq!(said(&mut world), [(first, "u".to_owned(), true)]);
    subscribe(&mut world, second, &["u", "v"]);
    let mut told = said(&mut world);
    told.sort();
    let expected = ["u", "v"].map(|uri| (second, uri.to_owned(), true));
    assert_eq!(told, expected);
    assert_eq!(heard(&world, "resources/subscribe").0, 2);
    subscribe(&mut world, first, &[]);
    assert_eq!(heard(&world, "resources/unsubscribe").0, 0);
    world.close_runtime(second);
    world.run(0);
    assert_eq!(world.running(), 1, "the first one has it still");
    assert_eq!(heard(&world, "resources/unsubscribe").0, 2);
}

#[test]
fn a_refused_resource_is_wanted_no_more() {
    let mut world = world(r#"{"command":"a"}"#);
    let id = world.open();
    subscribe(&mut world, id, &["no", "u"]);
    let mut told = said(&mut world);
    told.sort();
    assert_eq!(
        told,
        [(id, "no".to_owned(), false), (id, "u".to_owned(), true)]
    );
    world.kill("a");
    world.run(60_000);
    assert_eq!(world.starts("a"), 2);
    assert_eq!(
        heard(&world, "resources/subscribe"),
        (3, json!({"uri": "u"}))
    );
    let updates = world.told.iter().filter(|output| {
        matches!(output, ManagerOutput::Notification { method, .. }
            if &**method == "notifications/resources/updated")
    });
    assert_eq!(updates.count(), 1, "one may have been missed");
}

#[test]
fn a_server_that_cannot_be_reached_refuses_by_its_failure() {
    let mut world = world(r#"{"command":"a"}"#);
    world.manners("a").missing = true;
    let id = world.open();
    subscribe(&mut world, id, &["u"]);
    assert_eq!(said(&mut world), [(id, "u".to_owned(), false)]);
    let starts = world.starts("a");
    world.run(600_000);
    assert_eq!(world.starts("a"), starts, "nobody wants it any more");
}

#[test]
fn a_subscription_keeps_its_server_and_moves_to_the_next_record() {
    let mut world = world(r#"{"command":"a"}"#);
    let id = world.open();
    subscribe(&mut world, id, &["u"]);
    world.run(3_600_000);
    assert_eq!((world.starts("a"), world.running()), (1, 1));
    world.configure(&[("a", r#"{"command":"a","args":["x"]}"#)]);
    world.run(0);
    assert_eq!((world.starts("a"), world.running()), (2, 1));
    assert_eq!(heard(&world, "resources/subscribe").0, 2);
    subscribe(&mut world, id, &[]);
    world.run(3_600_000);
    assert_eq!(world.running(), 0, "now it is idle");
}

#[test]
fn the_lowest_log_level_that_anybody_wants_is_told_and_told_again() {
    let mut world = world(r#"{"command":"a","isolation":"shared"}"#);
    let (first, second) = (world.connected(), world.connected());
    let now = world.now();
    world.manager.set_log_level(now, first, LogLevel::Error);
    world.manager.want_logs(now, second, LogLevel::Info);
    world.manager.want_logs(now, second, LogLevel::Warning);
    world.run(0);
    assert_eq!(
        heard(&world, "logging/setLevel"),
        (2, json!({"level": "info"}))
    );
    world.kill("a");
    world.request(first, "a", "prompts/list");
    world.run(0);
    assert_eq!(
        heard(&world, "logging/setLevel"),
        (3, json!({"level": "info"}))
    );
}

#[test]
fn what_is_told_while_a_server_is_connected_to_is_held() {
    let mut world = World::with(
        &["a"],
        Limits {
            notifications_held_max: 2,
            ..Limits::default()
        },
    );
    world.manners("a").opens_after = Some(100);
    let id = world.open();
    let now = world.now();
    world.manager.connect(now, id);
    for n in 0..3 {
        let params = format!(r#"{{"n":{n}}}"#);
        world
            .manager
            .notify(now, id, &key("a"), "notifications/x", Some(&params));
    }
    world.run(200);
    assert_eq!(heard(&world, "notifications/x"), (2, json!({"n": 2})));
}
