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
    server_with(&["t1"], method, params)
}

/// The same; it makes a task of each call, the first of these, which are all that it knows.
fn server_with(tasks: &[&str], method: &str, params: &Value) -> Reply {
    let id = &params["taskId"];
    let known = id.as_str().is_none_or(|id| tasks.contains(&id));
    if !known {
        return Reply::Error(-32602);
    }
    Reply::Result(match method {
        "tools/call" => json!({"resultType": "task", "taskId": tasks[0], "status": "working"}),
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}, "resources": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
            "ttlMs": 0, "cacheScope": "private",
        }),
        "tools/list" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "tools": [{"name": "slow", "inputSchema": {"type": "object"}}],
        }),
        "resources/list" => json!({"resultType": "complete", "resources": []}),
        "resources/templates/list" => json!({"resultType": "complete", "resourceTemplates": []}),
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

/// A client of two servers, `a` with the tasks `one` and `both`, `b` with `two`, `both` and `more`.
fn several() -> (World, WireId) {
    let servers = [("a", json!({})), ("b", json!({}))];
    let mut world = World::new(span(&servers, Limits::default()));
    world.play("a", |method, params| {
        server_with(&["one", "both"], method, params)
    });
    world.play("b", |method, params| {
        server_with(&["two", "both", "more"], method, params)
    });
    let client = world.line();
    (world, client)
}

fn ask(world: &mut World, client: WireId, method: &str, members: &str) -> Value {
    let request =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{members},{META}}}}}"#);
    world.say(client, &request);
    let said = said(world);
    serde_json::from_str(said.last().expect("an answer")).expect("JSON")
}

/// The programs that were asked this, in order.
fn asked<'a>(world: &'a World, method: &str) -> Vec<&'a str> {
    let of = world.heard.iter();
    let of = of.filter(|heard| heard.message["method"] == method);
    of.map(|heard| heard.program.as_str()).collect()
}

#[test]
fn of_several_servers_the_one_whose_call_made_a_task_is_asked() {
    let (mut world, client) = several();
    let discovered = ask(&mut world, client, "server/discover", r#""x":1"#);
    let extensions = &discovered["result"]["capabilities"]["extensions"];
    assert!(extensions["io.modelcontextprotocol/tasks"].is_object());
    for (tool, task) in [("a__slow", "one"), ("b__slow", "two")] {
        let call = format!(r#""name":"{tool}","arguments":{{}}"#);
        let made = ask(&mut world, client, "tools/call", &call);
        assert_eq!(made["result"]["taskId"], task, "{made}");
    }
    for (id, method) in [(2, "tasks/get"), (3, "tasks/update"), (4, "tasks/cancel")] {
        let request = r#""taskId":"two","inputResponses":{}"#;
        world.say(
            client,
            &format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{request},{META}}}}}"#
            ),
        );
        assert_eq!(asked(&world, method), ["b"]);
    }
    said(&mut world);
    // Each tells of its own; what is nobody's is left out.
    listen(&mut world, client, 7, r#"["one","two","none"]"#);
    let told = world.diagnostics.iter().find(|line| line.contains("none"));
    assert!(told.is_some_and(|line| line.contains("not listened to")));
    let listens = world.heard.iter();
    let listens = listens.filter(|heard| heard.message["method"] == "subscriptions/listen");
    let filters: Vec<_> = listens
        .map(|heard| {
            let filter = &heard.message["params"]["notifications"]["taskIds"];
            (
                heard.program.clone(),
                heard.wire,
                heard.message["id"].clone(),
                filter[0].clone(),
            )
        })
        .collect();
    let whose = filters.iter().map(|(who, .., task)| (&**who, task.clone()));
    let whose: Vec<_> = whose.collect();
    assert_eq!(whose, [("a", json!("one")), ("b", json!("two"))]);
    for (_, wire, id, task) in &filters {
        let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
        let params = json!({"_meta": meta, "notifications": {"taskIds": [task]}});
        let method = "notifications/subscriptions/acknowledged";
        world.send(*wire, json!({"method": method, "params": params}));
    }
    let begun = said(&mut world);
    assert!(begun[0].contains(r#""taskIds":["one","two"]"#), "{begun:?}");
    for (at, heard) in [(0, 0), (1, 1)] {
        let (_, wire, id, _) = &filters[at];
        let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
        let params = json!({"_meta": meta, "taskId": "two", "status": "working"});
        world.send(
            *wire,
            json!({"method": "notifications/tasks", "params": params}),
        );
        assert_eq!(said(&mut world).len(), heard, "only its own server's");
    }
}

#[test]
fn a_task_that_nobody_is_known_to_have_made_is_looked_for() {
    let (mut world, client) = several();
    let got = ask(&mut world, client, "tasks/get", r#""taskId":"more""#);
    assert_eq!(got["result"]["taskId"], "more", "{got}");
    assert_eq!(asked(&world, "tasks/get"), ["a", "b"]);
    // From then on it is known.
    ask(&mut world, client, "tasks/get", r#""taskId":"more""#);
    assert_eq!(asked(&world, "tasks/get"), ["a", "b", "b"]);
    let none = ask(&mut world, client, "tasks/get", r#""taskId":"none""#);
    assert_eq!(none["error"]["code"], -32602, "{none}");
    let why = none["error"]["message"].as_str().unwrap_or_default();
    assert!(why.contains("2 servers were asked"), "{why}");
    // One that cannot say may have it.
    world.play("a", |_, _| Reply::Error(-32000));
    let doubt = ask(&mut world, client, "tasks/get", r#""taskId":"none""#);
    assert_eq!(doubt["error"]["code"], -32000, "{doubt}");
    let wrong = ask(&mut world, client, "tasks/get", r#""taskId":1"#);
    assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
}

#[test]
fn of_two_servers_that_use_one_id_it_is_the_last_one_s() {
    let (mut world, client) = several();
    for name in ["a", "b"] {
        world.play(name, |method, params| {
            server_with(&["both"], method, params)
        });
        let call = format!(r#""name":"{name}__slow","arguments":{{}}"#);
        ask(&mut world, client, "tools/call", &call);
    }
    let said = world.diagnostics.iter();
    assert_eq!(
        said.filter(|line| line.contains("both have made")).count(),
        1
    );
    ask(&mut world, client, "tasks/get", r#""taskId":"both""#);
    assert_eq!(asked(&world, "tasks/get"), ["b"]);
}

#[test]
fn a_task_of_nobody_is_told_of_once_whatever_else_is_waited_for() {
    let (mut world, client) = several();
    ask(&mut world, client, "tasks/get", r#""taskId":"more""#);
    let filter = r#""notifications":{"taskIds":["none"],"resourceSubscriptions":["x:1"]}"#;
    world.say(
        client,
        &format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{{{filter},{META}}}}}"#
        ),
    );
    let told = said(&mut world);
    assert!(told[0].contains(r#""notifications":{}"#), "{told:?}");
    let said = world.diagnostics.iter();
    assert_eq!(said.filter(|line| line.contains("none")).count(), 1);
}
