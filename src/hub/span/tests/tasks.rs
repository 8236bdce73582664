//! Tasks of stateless servers: heard of on the listen streams of those who asked.

use serde_json::{Value, json};

use crate::hub::rig::{Reply, World, span};
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::ExitReport;

/// What stands in the params of a client that knows tasks.
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;

/// A stateless server with tasks that leaves its listen streams open.
fn server(method: &str, params: &Value) -> Reply {
    let id = &params["taskId"];
    Reply::Result(match method {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
            "ttlMs": 0, "cacheScope": "private",
        }),
        "tools/list" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "tools": [{"name": "slow", "inputSchema": {"type": "object"}}],
        }),
        "tasks/get" => json!({"resultType": "complete", "taskId": id, "status": "completed"}),
        _ => return Reply::Silence,
    })
}

fn world() -> (World, WireId) {
    let mut world = World::new(span(&[("s", json!({}))], Limits::default()));
    world.play("s", server);
    let client = world.line();
    (world, client)
}

fn listen(world: &mut World, client: WireId, id: u32, tasks: &str) {
    let filter = format!(r#""notifications":{{"taskIds":{tasks}}}"#);
    let listen = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{{filter},{META}}}}}"#
    );
    world.say(client, &listen);
}

/// The last listen request of ours.
fn listened(world: &World) -> (WireId, &Value) {
    let mut heard = world.heard.iter().rev();
    let of = heard.find(|heard| heard.message["method"] == "subscriptions/listen");
    let of = of.expect("a listen request");
    (of.wire, &of.message)
}

/// The server says what it tells of.
fn acknowledge(world: &mut World, tasks: Value) {
    let (wire, asked) = listened(world);
    let params = json!({
        "_meta": {"io.modelcontextprotocol/subscriptionId": asked["id"]},
        "notifications": {"taskIds": tasks},
    });
    let method = "notifications/subscriptions/acknowledged";
    world.send(wire, json!({"method": method, "params": params}));
}

/// The server tells of a task, with these further members.
fn tell(world: &mut World, task: &str, more: &str) {
    let (wire, asked) = listened(world);
    let meta = format!(
        r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{},"v":1.0}}"#,
        asked["id"]
    );
    world.say(
        wire,
        &format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/tasks","params":{{"taskId":"{task}",{more},{meta}}}}}"#
        ),
    );
}

/// What the client has got since the last time.
fn said(world: &mut World) -> Vec<String> {
    let said = std::mem::take(&mut world.said);
    said.into_iter().map(|(_, line)| line).collect()
}

#[test]
fn what_becomes_of_a_task_reaches_who_listens_to_it() {
    let (mut world, client) = world();
    listen(&mut world, client, 7, r#"["t1","other"]"#);
    let (_, asked) = listened(&world);
    let params = &asked["params"];
    let filter = json!({"taskIds": ["other", "t1"]});
    assert_eq!(params["notifications"], filter);
    let declared = &params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert!(declared["extensions"]["io.modelcontextprotocol/tasks"].is_object());
    tell(&mut world, "t1", r#""status":"working","n":1e0"#);
    assert_eq!(said(&mut world), [""; 0], "nothing before it is granted");
    acknowledge(&mut world, json!(["t1"]));
    let notification = |method: &str, params: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{{params}}}}}"#)
    };
    let of = r#""io.modelcontextprotocol/subscriptionId":7"#;
    assert_eq!(
        said(&mut world),
        [
            notification(
                "subscriptions/acknowledged",
                &format!(r#""_meta":{{{of}}},"notifications":{{"taskIds":["t1"]}}"#)
            ),
            notification(
                "tasks",
                &format!(r#""taskId":"t1","status":"working","n":1e0,"_meta":{{"v":1.0,{of}}}"#)
            ),
        ]
    );
    tell(&mut world, "other", r#""status":"working""#);
    assert_eq!(said(&mut world), [""; 0], "it was not granted");
    let listens = world.times_heard("subscriptions/listen");
    // Another stream hears of it as well, and is told at once what has become of it.
    listen(&mut world, client, 8, r#"["t1"]"#);
    let again = said(&mut world);
    assert!(again[0].contains(r#""taskIds":["t1"]"#), "{again:?}");
    let told = again.iter().filter(|line| line.contains("completed"));
    assert_eq!(told.count(), 2, "{again:?}");
    assert_eq!(world.times_heard("subscriptions/listen"), listens);
    tell(&mut world, "t1", r#""status":"input_required""#);
    let both = said(&mut world);
    for id in [7, 8] {
        let of = format!(r#"subscriptionId":{id}"#);
        assert!(both.iter().any(|line| line.contains(&of)), "{both:?}");
    }
    // When nobody listens, the server's stream ends too.
    for (id, ended) in [(7, 0), (8, 1)] {
        let before = world.times_heard("notifications/cancelled");
        let params = json!({ "requestId": id });
        let cancelled = json!({"method": "notifications/cancelled", "params": params});
        world.send(client, cancelled);
        let heard = world.times_heard("notifications/cancelled") - before;
        assert_eq!(heard.min(1), ended, "{id}");
    }
}

#[test]
fn a_task_is_asked_for_when_its_server_was_away() {
    let (mut world, client) = world();
    listen(&mut world, client, 7, r#"["t1"]"#);
    acknowledge(&mut world, json!(["t1"]));
    let server = world.server();
    world.end(server, ExitReport::Code(1));
    world.wait(5_000);
    said(&mut world);
    acknowledge(&mut world, json!(["t1"]));
    let told = said(&mut world);
    assert_eq!(world.times_heard("tasks/get"), 1);
    assert_eq!(
        told,
        [
            r#"{"jsonrpc":"2.0","method":"notifications/tasks","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7},"status":"completed","taskId":"t1"}}"#
        ]
    );
}

#[test]
fn who_does_not_know_tasks_cannot_listen_to_them() {
    let (mut world, client) = world();
    let plain = crate::hub::rig::META;
    let filter = r#""notifications":{"taskIds":["t1"]}"#;
    world.say(
        client,
        &format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{{{filter},{plain}}}}}"#
        ),
    );
    let told = said(&mut world);
    assert!(told[0].contains(r#""code":-32021"#), "{told:?}");
    assert_eq!(world.times_heard("subscriptions/listen"), 0);
}

#[test]
fn a_server_that_does_not_tell_of_tasks_is_not_waited_for() {
    let (mut world, client) = world();
    listen(&mut world, client, 7, r#"["t1"]"#);
    acknowledge(&mut world, json!([]));
    let told = said(&mut world);
    assert!(told[0].contains(r#""notifications":{}"#), "{told:?}");
    assert_eq!(world.times_heard("notifications/cancelled"), 1);
}
