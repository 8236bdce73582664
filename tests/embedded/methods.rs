//! Reading conversations and adding messages.

use std::time::Duration;

use drawspan::limits::Limits;
use serde_json::{Value, json};

use crate::world::{World, config, message_of, post};

#[test]
fn a_message_is_posted_listed_read_and_told() {
    let mut world = World::new();
    let (ada, bob) = (world.join(1), world.join(2));
    let params = json!({
        "sessionKey": "agent:main:Room", "role": "user", "text": "hello there", "channel": "Slack",
        "to": "channel:C1", "threadId": 17, "displayName": "#room"
    });
    let posted = world.call(ada, "drawspan.post", params).expect("posted");
    assert_eq!(posted["sessionKey"], "agent:main:room");
    assert_eq!(posted["messageSeq"], 1);

    let params = json!({"limit": 50, "includeDerivedTitles": true, "includeLastMessage": true});
    let list = world.call(ada, "sessions.list", params).expect("listed");
    assert_eq!(
        (&list["count"], &list["totalCount"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        (&list["hasMore"], &list["nextOffset"]),
        (&json!(false), &Value::Null)
    );
    assert_eq!(list["path"], "/store");
    let row = &list["sessions"][0];
    let route = json!({"channel": "slack", "to": "channel:C1", "threadId": "17"});
    assert_eq!(row["deliveryContext"], route);
    assert_eq!(
        (&row["lastChannel"], &row["lastTo"]),
        (&json!("slack"), &json!("channel:C1"))
    );
    assert_eq!(row["derivedTitle"], "#room");
    assert_eq!(row["lastMessagePreview"], "hello there");
    assert_eq!(row["updatedAt"], world.now.unix_ms);

    let got = world
        .call(ada, "sessions.get", json!({"key": "room"}))
        .expect("read");
    let message = &got["messages"][0];
    assert_eq!(
        (&message["role"], &message["content"]),
        (&json!("user"), &json!("hello there"))
    );
    assert_eq!(message["__openclaw"]["id"], posted["messageId"]);
    assert_eq!(
        message["__openclaw"]["recordTimestampMs"],
        world.now.unix_ms
    );

    for client in [ada, bob] {
        let events = world.events(client, "session.message");
        assert_eq!(events.len(), 1, "each subscriber hears it once");
        let event = &events[0];
        assert_eq!(event["sessionKey"], "agent:main:room");
        assert_eq!(
            (&event["messageId"], &event["messageSeq"]),
            (&posted["messageId"], &json!(1))
        );
        assert_eq!(event["message"]["content"], "hello there");
        assert_eq!(event["session"]["key"], "agent:main:room");
        for (name, value) in event["session"].as_object().expect("row") {
            if name != "key" {
                assert_eq!(&event[name], value, "{name} stands beside the row too");
            }
        }
    }
}

#[test]
fn lists_are_newest_first_paged_and_filtered() {
    let mut world = World::new();
    let me = world.join(1);
    for key in ["a", "b", "c"] {
        post(&mut world, me, key, "x");
        world.wait(Duration::from_secs(60));
    }
    post(&mut world, me, "a", "again");
    let mut list = |params: Value| world.call(me, "sessions.list", params).expect("listed");
    let keys = |list: &Value| -> Vec<String> {
        let rows = list["sessions"].as_array().expect("rows");
        rows.iter()
            .map(|row| row["key"].as_str().expect("key")[11..].to_owned())
            .collect()
    };
    assert_eq!(keys(&list(json!({}))), ["a", "c", "b"]);
    let page = list(json!({"limit": 2}));
    assert_eq!(
        (keys(&page), &page["nextOffset"]),
        (vec!["a".into(), "c".into()], &json!(2))
    );
    assert_eq!(
        (&page["hasMore"], &page["totalCount"]),
        (&json!(true), &json!(3))
    );
    let page = list(json!({"limit": 2, "offset": 2}));
    assert_eq!(
        (keys(&page), &page["nextOffset"]),
        (vec!["b".into()], &Value::Null)
    );
    assert_eq!(keys(&list(json!({"offset": 9}))), [""; 0]);
    assert_eq!(keys(&list(json!({"search": "MAIN:B"}))), ["b"]);
    assert_eq!(keys(&list(json!({"activeMinutes": 1}))), ["a", "c"]);
    assert_eq!(keys(&list(json!({"agentId": "other"}))), [""; 0]);
    assert_eq!(keys(&list(json!({"spawnedBy": "x"}))), [""; 0]);
    let row = &list(json!({"limit": 1}))["sessions"][0];
    assert!(row.get("derivedTitle").is_none() && row.get("lastMessagePreview").is_none());
}

#[test]
fn closed_parameters_are_refused_by_name() {
    let mut world = World::new();
    let me = world.join_with(1, &["operator.admin"]);
    let cases = [
        (
            "sessions.list",
            json!({"limt": 1}),
            "at root: unexpected property 'limt'",
        ),
        (
            "sessions.list",
            json!({"limit": 0}),
            "at /limit: must be >= 1",
        ),
        (
            "sessions.list",
            json!({"limit": 1.5}),
            "at /limit: must be integer",
        ),
        (
            "sessions.list",
            json!({"offset": -1}),
            "at /offset: must not be negative",
        ),
        (
            "sessions.list",
            json!({"search": 1}),
            "at /search: must be string",
        ),
        (
            "sessions.list",
            json!({"includeLastMessage": "y"}),
            "at /includeLastMessage: must be boolean",
        ),
        ("sessions.list", json!([]), "must be object"),
        (
            "sessions.describe",
            json!({}),
            "must have required property 'key'",
        ),
        (
            "sessions.describe",
            json!({"key": " "}),
            "must have required property 'key'",
        ),
        (
            "sessions.get",
            json!({"key": "a", "limit": 0}),
            "at /limit: must be >= 1",
        ),
        (
            "sessions.subscribe",
            json!({"x": 1}),
            "at root: unexpected property 'x'",
        ),
        (
            "send",
            json!({"to": "1", "message": "m"}),
            "must have required property 'idempotencyKey'",
        ),
        (
            "send",
            json!({"message": "m", "idempotencyKey": "k"}),
            "must have required property 'to'",
        ),
        (
            "send",
            json!({"to": "1", "idempotencyKey": "k"}),
            "must have required property 'message'",
        ),
        (
            "send",
            json!({"to": "1", "message": "m", "idempotencyKey": "k", "threadId": 7}),
            "at /threadId: must be string",
        ),
        (
            "chat.send",
            json!({"sessionKey": "a", "message": "m"}),
            "must have required property 'idempotencyKey'",
        ),
        (
            "chat.inject",
            json!({"sessionKey": "a"}),
            "must have required property 'message'",
        ),
        (
            "drawspan.post",
            json!({"sessionKey": "a", "text": "t", "role": "tool"}),
            "at /role: must be user or assistant",
        ),
        (
            "exec.approval.resolve",
            json!({"id": "a"}),
            "must have required property 'decision'",
        ),
        (
            "plugin.approval.request",
            json!({"description": "d"}),
            "must have required property 'title'",
        ),
    ];
    for (method, params, why) in cases {
        let refused = world.call(me, method, params.clone());
        assert_eq!(
            message_of(&refused),
            format!("invalid {method} params: {why}"),
            "{params}"
        );
        assert_eq!(refused.expect_err("refused")["code"], "INVALID_REQUEST");
    }
    let refused = world.call(me, "sessions.preview", json!({}));
    assert_eq!(message_of(&refused), "unknown method: sessions.preview");
    assert!(
        world.journal.windows(9).all(|w| w != b"\"message\""),
        "nothing was changed"
    );
}

#[test]
fn describe_and_get_know_aliases_and_the_unknown() {
    let mut world = World::new();
    let me = world.join(1);
    for n in 1..=3 {
        post(&mut world, me, "main", &n.to_string());
    }
    let params = json!({"key": " Main ", "includeDerivedTitles": true, "includeLastMessage": true});
    let row = world
        .call(me, "sessions.describe", params)
        .expect("described");
    assert_eq!(row["session"]["key"], "agent:main:main");
    assert_eq!(
        (
            &row["session"]["derivedTitle"],
            &row["session"]["lastMessagePreview"]
        ),
        (&json!("1"), &json!("3"))
    );
    let unknown = world.call(me, "sessions.describe", json!({"key": "nope"}));
    assert_eq!(unknown, Ok(json!({"session": null})));

    let got = world
        .call(me, "sessions.get", json!({"key": "main", "limit": 2.9}))
        .expect("read");
    let said: Vec<_> = got["messages"]
        .as_array()
        .expect("list")
        .iter()
        .map(|m| &m["content"])
        .collect();
    assert_eq!(said, ["2", "3"], "the last ones, oldest first");
    assert_eq!(got["messages"][0]["__openclaw"]["seq"], 2);
    let unknown = world.call(me, "sessions.get", json!({"key": "nope", "limit": 20}));
    assert_eq!(unknown, Ok(json!({"messages": []})));
}

#[test]
fn only_subscribers_hear_messages() {
    let mut world = World::new();
    let (me, other) = (world.join(1), world.join(2));
    let params = world.call(other, "sessions.unsubscribe", json!({}));
    assert_eq!(params, Ok(json!({"subscribed": false})));
    post(&mut world, me, "a", "x");
    assert_eq!(world.events(other, "session.message"), [Value::Null; 0]);
    assert_eq!(world.events(me, "session.message").len(), 1);
}

#[test]
fn a_reply_stays_below_what_a_client_accepts() {
    let limits = Limits {
        gateway_message_bytes_max: 64 * 1024 + 1_000,
        ..Limits::default()
    };
    let mut world = World::with(config(), limits);
    let me = world.join(1);
    for n in 0..10 {
        post(&mut world, me, "a", &format!("{n}{}", "x".repeat(300)));
        post(&mut world, me, &format!("k{n}"), "x");
    }
    let got = world
        .call(me, "sessions.get", json!({"key": "a"}))
        .expect("read");
    let messages = got["messages"].as_array().expect("list");
    assert_eq!(messages.len(), 2, "as many of the newest as fit");
    assert!(
        messages[1]["content"]
            .as_str()
            .expect("text")
            .starts_with('9')
    );
    let list = world
        .call(me, "sessions.list", json!({"limit": 50}))
        .expect("listed");
    let count = list["count"].as_u64().expect("count");
    assert!((1..11).contains(&count), "{count}");
    assert_eq!(
        (&list["hasMore"], &list["nextOffset"]),
        (&json!(true), &json!(count))
    );
}

#[test]
fn send_mirrors_once_and_answers_the_repetition() {
    let mut world = World::new();
    let me = world.join(1);
    post(&mut world, me, "agent:main:telegram:1", "hi");
    world.clients[me].texts.clear();
    let params = json!({
        "to": "100", "channel": "telegram", "accountId": "default", "message": "reply",
        "sessionKey": "agent:main:telegram:1", "idempotencyKey": "k1"
    });
    let id = world.ask(me, "send", params.clone());
    assert_eq!(
        world.clients[me].texts[0]["type"], "res",
        "the answer is first"
    );
    let sent = world.response(me, &id).expect("answered").expect("sent");
    assert_eq!(
        (&sent["runId"], &sent["channel"]),
        (&json!("k1"), &json!("telegram"))
    );
    let events = world.events(me, "session.message");
    let message = &events[0]["message"];
    assert_eq!(
        (&message["role"], &message["model"]),
        (&json!("assistant"), &json!("delivery-mirror"))
    );
    assert_eq!(
        message["content"],
        json!([{"type": "text", "text": "reply"}])
    );
    assert_eq!(
        (&message["idempotencyKey"], &events[0]["messageId"]),
        (&json!("k1"), &sent["messageId"])
    );

    world.wait(Duration::from_millis(5 * 60_000 - 1));
    world.restart();
    let me = world.join(1);
    assert_eq!(
        world.call(me, "send", params.clone()),
        Ok(sent.clone()),
        "after a restart too"
    );
    assert_eq!(world.events(me, "session.message"), [Value::Null; 0]);
    world.wait(Duration::from_millis(1));
    let later = world.call(me, "send", params).expect("sent");
    assert_ne!(
        later["messageId"], sent["messageId"],
        "five minutes later it is another message"
    );
}

#[test]
fn send_finds_its_session_by_route() {
    let mut world = World::new();
    let me = world.join(1);
    let params = json!({"sessionKey": "a", "text": "x", "channel": "telegram", "to": "7"});
    world.call(me, "drawspan.post", params).expect("posted");
    let mut send = |params: Value| world.call(me, "send", params);
    send(json!({"to": "7", "channel": "Telegram", "message": "m", "idempotencyKey": "1"}))
        .expect("sent");
    send(json!({"to": "8", "channel": "telegram", "message": "m", "idempotencyKey": "2"}))
        .expect("sent");
    let sent = send(json!({"to": "7", "sessionKey": "a", "message": "m", "idempotencyKey": "3"}));
    assert_eq!(
        sent.expect("sent")["channel"],
        "telegram",
        "the stored channel"
    );
    let refused =
        send(json!({"to": "7", "sessionKey": "new", "message": "m", "idempotencyKey": "4"}));
    assert_eq!(
        message_of(&refused),
        "channel is required: the session has no route"
    );
    let events = world.events(me, "session.message");
    let keys: Vec<_> = events
        .iter()
        .map(|e| e["sessionKey"].as_str().expect("key"))
        .collect();
    let new = "agent:main:telegram:direct:8";
    assert_eq!(keys, ["agent:main:a", "agent:main:a", new, "agent:main:a"]);
    assert_eq!(events[2]["lastTo"], "8");
}

#[test]
fn chat_methods_speak_for_user_and_agent() {
    let mut world = World::new();
    let (me, admin) = (world.join(1), world.join_with(2, &["operator.admin"]));
    let params =
        json!({"sessionKey": "main", "message": "live", "idempotencyKey": "k", "deliver": false});
    let started = json!({"runId": "k", "status": "started"});
    assert_eq!(
        world.call(me, "chat.send", params.clone()),
        Ok(started.clone())
    );
    assert_eq!(
        world.call(me, "chat.send", params),
        Ok(started),
        "and no second message"
    );
    let refused = world.call(
        me,
        "chat.inject",
        json!({"sessionKey": "main", "message": "n"}),
    );
    assert_eq!(message_of(&refused), "missing scope: operator.admin");
    let params = json!({"sessionKey": "main", "message": "An operator note", "label": "note"});
    let injected = world.call(admin, "chat.inject", params).expect("injected");
    let refused = world.call(
        admin,
        "chat.inject",
        json!({"sessionKey": "x", "message": "n"}),
    );
    assert_eq!(message_of(&refused), "session not found");

    let events = world.events(me, "session.message");
    assert_eq!(events.len(), 2);
    assert_eq!(
        (
            &events[0]["message"]["role"],
            &events[0]["message"]["content"]
        ),
        (&json!("user"), &json!("live"))
    );
    assert_eq!(events[0]["message"]["idempotencyKey"], "k:user");
    assert!(
        events[0].get("lastChannel").is_none(),
        "nobody gave it a route"
    );
    assert_eq!(events[1]["messageId"], injected["messageId"]);
    let note = json!([{"type": "text", "text": "[note]\n\nAn operator note"}]);
    assert_eq!(
        (
            &events[1]["message"]["content"],
            &events[1]["message"]["model"]
        ),
        (&note, &json!("gateway-injected"))
    );
}

#[test]
fn posts_carry_blocks_and_change_routes() {
    let mut world = World::new();
    let me = world.join(1);
    post(&mut world, me, "a", "first");
    // A client may format its JSON; the journal keeps one line for each record.
    let content = "[{\"type\":\"text\",\n\"text\":\"pic\"},\r\n{\"type\":\"image\",\"data\":1.0}]";
    let frame = format!(
        r#"{{"type":"req","id":"x","method":"drawspan.post","params":{{"sessionKey":"a","content":{content},"to":"new"}}}}"#
    );
    world.say(me, &frame);
    let posted = world.response(me, "x").expect("answered").expect("posted");
    assert_eq!(posted["messageSeq"], 2);
    let refused = world.call(me, "drawspan.post", json!({"sessionKey": "a"}));
    assert_eq!(message_of(&refused), "drawspan.post needs text or content");
    let params = json!({"sessionKey": "a", "content": "text"});
    assert!(
        message_of(&world.call(me, "drawspan.post", params))
            .ends_with("at /content: must be array")
    );
    world.restart();
    let me = world.join(1);
    let got = world
        .call(me, "sessions.get", json!({"key": "a"}))
        .expect("read");
    assert_eq!(
        got["messages"][1]["content"],
        serde_json::from_str::<Value>(content).expect("JSON")
    );
    let row = world
        .call(me, "sessions.describe", json!({"key": "a"}))
        .expect("described");
    let route = json!({"channel": "embedded", "to": "new"});
    assert_eq!(
        row["session"]["deliveryContext"], route,
        "the default channel, the given receiver"
    );
    assert_eq!(world.gateway.replay().damaged, 0);
}

#[test]
fn posts_with_a_key_are_made_once() {
    let mut world = World::new();
    let me = world.join(1);
    let params = json!({"sessionKey": "a", "text": "x", "idempotencyKey": "k"});
    let first = world
        .call(me, "drawspan.post", params.clone())
        .expect("posted");
    assert_eq!(world.call(me, "drawspan.post", params), Ok(first));
    assert_eq!(world.events(me, "session.message").len(), 1);
}

#[test]
fn limits_of_messages_and_conversations_are_named() {
    let limits = Limits {
        message_bytes_max: 10,
        embedded_sessions_max: 2,
        ..Limits::default()
    };
    let mut world = World::with(config(), limits);
    let me = world.join(1);
    post(&mut world, me, "a", "12345678");
    let refused = world.call(
        me,
        "drawspan.post",
        json!({"sessionKey": "a", "text": "123456789"}),
    );
    assert_eq!(
        message_of(&refused),
        "the message is too long (message_bytes_max 10, found 11)"
    );
    post(&mut world, me, "b", "x");
    let refused = world.call(me, "drawspan.post", json!({"sessionKey": "c", "text": "x"}));
    let full = "no room for another conversation (embedded_sessions_max 2, found 2)";
    assert_eq!(message_of(&refused), full);
    assert_eq!(refused.expect_err("refused")["code"], "UNAVAILABLE");
    post(&mut world, me, "a", "still");
}
