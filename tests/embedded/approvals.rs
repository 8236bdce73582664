//! Asking people and deciding.

use std::time::Duration;

use drawspan::embedded::{ApprovalKind, EmbeddedEvent, Question};
use drawspan::limits::Limits;
use serde_json::{Value, json};

use crate::world::{World, config, message_of};

fn exec(id: &str, more: Value) -> Value {
    let mut params = json!({"id": id, "command": "ls", "host": "gateway", "twoPhase": true});
    for (name, value) in more.as_object().expect("object") {
        params[name] = value.clone();
    }
    params
}

#[test]
fn exec_approvals_go_as_recorded() {
    let mut world = World::new();
    // Two connections of one device: the bridge, and whoever asks.
    let (bridge, asker) = (world.join(1), world.join(1));
    let params = exec(
        "appr-exec-1",
        json!({"cwd": "/srv", "ask": "on-miss", "sessionKey": "agent:main:main", "turnSourceChannel": "telegram", "turnSourceTo": "100", "timeoutMs": 60_000}),
    );
    let asked = world.ask(asker, "exec.approval.request", params);
    let accepted = world
        .response(asker, &asked)
        .expect("answered")
        .expect("accepted");
    assert_eq!(
        (&accepted["status"], &accepted["id"]),
        (&json!("accepted"), &json!("appr-exec-1"))
    );
    let requested = world.events(bridge, "exec.approval.requested");
    assert_eq!(requested.len(), 1);
    assert_eq!(
        requested[0],
        json!({
            "id": "appr-exec-1",
            "request": {
                "command": "ls", "systemRunBinding": null, "systemRunPlan": null, "cwd": "/srv",
                "nodeId": null, "host": "gateway", "security": null, "ask": "on-miss",
                "warningText": null,
                "commandAnalysis": {"commandCount": 1, "nestedCommandCount": 0, "riskKinds": [], "warningLines": []},
                "allowedDecisions": ["allow-once", "allow-always", "deny"], "agentId": "main",
                "resolvedPath": null, "sessionKey": "agent:main:main",
                "turnSourceChannel": "telegram", "turnSourceTo": "100",
                "turnSourceAccountId": null, "turnSourceThreadId": null,
            },
            "createdAtMs": world.now.unix_ms, "expiresAtMs": world.now.unix_ms + 60_000,
        })
    );
    assert_eq!(
        world.events(asker, "exec.approval.requested"),
        [Value::Null; 0],
        "it knows already"
    );
    let list = world.call(bridge, "exec.approval.list", json!({}));
    assert_eq!(list, Ok(json!([requested[0]])));

    let mut resolve = |method: &str, id: &str, decision: &str| {
        world.call(bridge, method, json!({"id": id, "decision": decision}))
    };
    let ok = Ok(json!({"ok": true}));
    let refused = resolve("plugin.approval.resolve", "appr-exec-1", "allow-once");
    assert_eq!(message_of(&refused), "unknown or expired approval id");
    assert_eq!(
        refused.expect_err("refused")["details"]["reason"],
        "APPROVAL_NOT_FOUND"
    );
    assert_eq!(
        resolve("exec.approval.resolve", "appr-exec-1", "allow-once"),
        ok
    );
    assert_eq!(
        resolve("exec.approval.resolve", "appr-exec-1", "allow-once"),
        ok,
        "a repetition"
    );
    let refused = resolve("exec.approval.resolve", "appr-exec-1", "deny");
    assert_eq!(message_of(&refused), "approval already resolved");
    assert_eq!(
        refused.expect_err("refused")["details"],
        json!({"reason": "APPROVAL_ALREADY_RESOLVED"})
    );
    assert_eq!(
        message_of(&resolve("exec.approval.resolve", "x", "maybe")),
        "invalid decision"
    );

    let resolved = world.events(asker, "exec.approval.resolved");
    assert_eq!(resolved.len(), 1);
    assert_eq!(resolved[0]["request"], requested[0]["request"]);
    assert_eq!(
        (&resolved[0]["decision"], &resolved[0]["resolvedBy"]),
        (&json!("allow-once"), &json!("Test"))
    );
    assert_eq!(world.events(bridge, "exec.approval.resolved").len(), 1);
    let decided = world
        .response(asker, &asked)
        .expect("the second answer")
        .expect("decided");
    assert_eq!(
        (&decided["id"], &decided["decision"]),
        (&json!("appr-exec-1"), &json!("allow-once"))
    );
}

#[test]
fn the_resolved_event_comes_before_the_answer() {
    let mut world = World::new();
    let (bridge, asker) = (world.join(1), world.join(1));
    world.ask(asker, "exec.approval.request", exec("a", json!({})));
    world.clients[bridge].texts.clear();
    world.ask(
        bridge,
        "exec.approval.resolve",
        json!({"id": "a", "decision": "deny"}),
    );
    let order: Vec<_> = world.clients[bridge]
        .texts
        .iter()
        .map(|t| &t["type"])
        .collect();
    assert_eq!(order, ["event", "res"]);
}

#[test]
fn exec_decisions_are_limited_by_policy_and_prefixes_are_unique() {
    let mut world = World::new();
    let (bridge, asker) = (world.join(1), world.join(1));
    world.ask(
        asker,
        "exec.approval.request",
        exec("appr-2", json!({"ask": "always"})),
    );
    let requested = world.events(bridge, "exec.approval.requested");
    assert_eq!(
        requested[0]["request"]["allowedDecisions"],
        json!(["allow-once", "deny"])
    );
    let resolve = |world: &mut World, id: &str, decision: &str| {
        world.call(
            bridge,
            "exec.approval.resolve",
            json!({"id": id, "decision": decision}),
        )
    };
    let refused = resolve(&mut world, "appr-2", "allow-always");
    assert_eq!(
        message_of(&refused),
        "allow-always is unavailable because the effective policy requires approval every time"
    );
    assert_eq!(
        refused.expect_err("refused")["details"]["reason"],
        "APPROVAL_ALLOW_ALWAYS_UNAVAILABLE"
    );
    world.ask(asker, "exec.approval.request", exec("appr-3", json!({})));
    let refused = resolve(&mut world, "appr", "deny");
    assert_eq!(
        message_of(&refused),
        "ambiguous approval id prefix; use the full id"
    );
    resolve(&mut world, "appr-3", "deny").expect("resolved");
    resolve(&mut world, "appr", "deny").expect("only one is left");
    assert_eq!(
        world.events(bridge, "exec.approval.resolved")[1]["id"],
        "appr-2"
    );
    for (params, why) in [
        (
            exec("plugin:x", json!({})),
            "approval ids starting with plugin: are reserved",
        ),
        (exec("y", json!({"command": " "})), "command is required"),
    ] {
        assert_eq!(
            message_of(&world.call(asker, "exec.approval.request", params)),
            why
        );
    }
    world.ask(asker, "exec.approval.request", exec("z", json!({})));
    let refused = world.call(asker, "exec.approval.request", exec("z", json!({})));
    assert_eq!(message_of(&refused), "approval id already pending");
}

#[test]
fn an_expired_approval_is_gone_without_an_event() {
    let mut world = World::new();
    let (bridge, asker) = (world.join(1), world.join(1));
    let asked = world.ask(
        asker,
        "exec.approval.request",
        exec("a", json!({"timeoutMs": 3_000})),
    );
    world
        .response(asker, &asked)
        .expect("answered")
        .expect("accepted");
    let waits = world.ask(bridge, "exec.approval.waitDecision", json!({"id": "a"}));
    world.wait(Duration::from_millis(2_999));
    assert_eq!(
        world
            .call(bridge, "exec.approval.list", json!({}))
            .expect("list")[0]["id"],
        "a"
    );
    world.events(bridge, "exec.approval.requested");
    world.wait(Duration::from_millis(1));
    assert_eq!(
        world.call(bridge, "exec.approval.list", json!({})),
        Ok(json!([]))
    );
    let refused = world.call(
        bridge,
        "exec.approval.resolve",
        json!({"id": "a", "decision": "deny"}),
    );
    assert_eq!(message_of(&refused), "unknown or expired approval id");
    for (client, id) in [(asker, asked), (bridge, waits)] {
        let lapsed = world
            .response(client, &id)
            .expect("answered")
            .expect("no decision");
        assert_eq!(lapsed["decision"], Value::Null);
    }
    assert!(
        world.clients[bridge].texts.is_empty(),
        "{:?}",
        world.clients[bridge].texts
    );
    assert!(world.told().contains(&EmbeddedEvent::ApprovalExpired {
        kind: ApprovalKind::Exec,
        id: "a".to_owned()
    }));
}

#[test]
fn plugin_approvals_go_as_recorded() {
    let mut world = World::new();
    let (bridge, asker) = (world.join(1), world.join(1));
    let params = json!({
        "pluginId": "demo", "title": "Send a mail", "description": "It wants to", "severity": "warning",
        "toolName": "mail_send", "toolCallId": "tc-1", "sessionKey": "agent:main:main", "timeoutMs": 9_999_999,
        "allowedDecisions": ["deny", "allow-once", "sing"], "twoPhase": true
    });
    world
        .call(asker, "plugin.approval.request", params)
        .expect("accepted");
    let requested = world.events(bridge, "plugin.approval.requested").remove(0);
    let id = requested["id"].as_str().expect("id").to_owned();
    assert!(id.starts_with("plugin:"), "{id}");
    assert_eq!(
        requested["expiresAtMs"],
        world.now.unix_ms + 600_000,
        "ten minutes at most"
    );
    assert_eq!(
        requested["request"],
        json!({
            "allowedDecisions": ["allow-once", "deny"], "pluginId": "demo", "title": "Send a mail",
            "description": "It wants to", "severity": "warning", "toolName": "mail_send",
            "toolCallId": "tc-1", "agentId": "main", "sessionKey": "agent:main:main",
            "turnSourceChannel": null, "turnSourceTo": null, "turnSourceAccountId": null,
            "turnSourceThreadId": null,
        })
    );
    let resolve = |decision: &str| json!({"id": id, "decision": decision});
    let refused = world.call(bridge, "plugin.approval.resolve", resolve("allow-always"));
    assert_eq!(
        message_of(&refused),
        "allow-always is unavailable for this plugin approval"
    );
    let details = &refused.expect_err("refused")["details"];
    assert_eq!(details["allowedDecisions"], json!(["allow-once", "deny"]));
    assert_eq!(
        world.call(bridge, "plugin.approval.list", json!({})),
        Ok(json!([requested]))
    );
    let resolved = world.call(bridge, "plugin.approval.resolve", resolve("deny"));
    assert_eq!(resolved, Ok(json!({"ok": true})));
    let event = world.events(bridge, "plugin.approval.resolved").remove(0);
    assert_eq!(
        (&event["id"], &event["decision"]),
        (&json!(id), &json!("deny"))
    );
    assert_eq!(
        world.call(bridge, "plugin.approval.list", json!({})),
        Ok(json!([]))
    );
    let known = world
        .call(bridge, "plugin.approval.waitDecision", json!({"id": id}))
        .expect("known");
    assert_eq!(known["decision"], "deny");
}

#[test]
fn an_approval_is_seen_by_its_device_by_admins_and_when_the_gateway_asks_by_all() {
    let mut world = World::new();
    let (mine, other) = (world.join(1), world.join(2));
    let admin = world.join_with(3, &["operator.admin"]);
    let reader = world.join_with(4, &["operator.read"]);
    let asker = world.join(1);
    world.ask(asker, "exec.approval.request", exec("a", json!({})));
    let heard = |world: &mut World| -> Vec<usize> {
        let clients = [mine, other, admin, reader];
        clients
            .map(|client| world.events(client, "exec.approval.requested").len())
            .to_vec()
    };
    assert_eq!(heard(&mut world), [1, 0, 1, 0]);
    assert_eq!(
        world.call(other, "exec.approval.list", json!({})),
        Ok(json!([]))
    );
    let deny = json!({"id": "a", "decision": "deny"});
    let refused = world.call(other, "exec.approval.resolve", deny.clone());
    assert_eq!(message_of(&refused), "unknown or expired approval id");
    let refused = world.call(other, "exec.approval.waitDecision", json!({"id": "a"}));
    assert_eq!(message_of(&refused), "approval expired or not found");
    let refused = world.call(reader, "exec.approval.resolve", deny);
    assert_eq!(message_of(&refused), "missing scope: operator.approvals");

    let question = Question {
        kind: ApprovalKind::Exec,
        subject: "rm -rf /srv/demo".to_owned(),
        description: String::new(),
        session_key: Some("main".to_owned()),
        timeout: None,
    };
    let id = world
        .gateway
        .request_approval(world.now, &question)
        .expect("asked");
    world.pump();
    assert_eq!(heard(&mut world), [1, 1, 1, 0]);
    let listed = world
        .call(other, "exec.approval.list", json!({}))
        .expect("list");
    assert_eq!(listed[0]["request"]["command"], "rm -rf /srv/demo");
    assert_eq!(listed[0]["request"]["sessionKey"], "agent:main:main");
    let resolved = world.call(
        other,
        "exec.approval.resolve",
        json!({"id": id, "decision": "deny"}),
    );
    assert_eq!(resolved, Ok(json!({"ok": true})));
}

#[test]
fn waiting_requests_and_pending_approvals_are_bounded() {
    let limits = Limits {
        requests_open_max: 2,
        approvals_pending_max: 3,
        ..Limits::default()
    };
    let mut world = World::with(config(), limits);
    let (me, other) = (world.join(1), world.join(1));
    for id in ["a", "b"] {
        world.ask(
            me,
            "exec.approval.request",
            exec(id, json!({"twoPhase": false})),
        );
    }
    let refused = world.call(me, "exec.approval.request", exec("c", json!({})));
    let full = "too many requests wait for a decision (requests_open_max 2, found 2)";
    assert_eq!(message_of(&refused), full);
    let refused = world.call(me, "exec.approval.waitDecision", json!({"id": "a"}));
    assert_eq!(message_of(&refused), full);
    world
        .call(other, "exec.approval.request", exec("d", json!({})))
        .expect("accepted");
    let refused = world.call(other, "exec.approval.request", exec("e", json!({})));
    let full = "too many approvals wait (approvals_pending_max 3, found 3)";
    assert_eq!(message_of(&refused), full);
    world
        .call(
            other,
            "exec.approval.resolve",
            json!({"id": "a", "decision": "deny"}),
        )
        .expect("resolved");
    let decided = world.clients[me]
        .texts
        .iter()
        .filter(|t| t["payload"]["decision"] == "deny");
    assert_eq!(decided.filter(|t| t["type"] == "res").count(), 1);
    let long = exec("f", json!({"command": "x".repeat(17_000)}));
    assert!(
        message_of(&world.call(me, "exec.approval.request", long)).contains("at most 16384 bytes")
    );
}

#[test]
fn what_the_gateway_asks_in_its_own_name_is_seen_by_every_device() {
    let mut world = World::new();
    let (bridge, asker) = (world.join(1), world.join(2));
    world.ask(asker, "exec.approval.request", exec("a", json!({})));
    assert_eq!(
        world.events(bridge, "exec.approval.requested").len(),
        0,
        "another device"
    );
    world.ask(asker, "drawspan.ask", exec("b", json!({})));
    let seen = world.events(bridge, "exec.approval.requested");
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0]["id"], "b");
}
