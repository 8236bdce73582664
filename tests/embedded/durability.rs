//! What survives, what is lost, and what nothing can break.

use std::time::Duration;

use drawspan::embedded::{
    ApprovalKind, EmbeddedEvent, EmbeddedGateway, OpenError, Post, Question, Role,
};
use drawspan::entropy::Seeded;
use drawspan::link::{Driven, FaultKind, IoFault};
use serde_json::{Value, json};

use crate::world::{SCOPES, World, config, message_of, post};

/// A Gateway with some of everything in it.
fn lived_in() -> (World, usize) {
    let mut world = World::new();
    let me = world.join(1);
    post(&mut world, me, "a", "one");
    let params = json!({
        "sessionKey": "b", "role": "assistant", "text": "two", "channel": "slack", "to": "C1", "displayName": "#b"
    });
    world.call(me, "drawspan.post", params).expect("posted");
    for id in ["pending", "decided"] {
        let params = json!({"id": id, "command": "ls", "twoPhase": true, "timeoutMs": 60_000});
        world
            .call(me, "exec.approval.request", params)
            .expect("accepted");
    }
    let params = json!({"id": "decided", "decision": "allow-once"});
    world
        .call(me, "exec.approval.resolve", params)
        .expect("resolved");
    post(&mut world, me, "a", "three");
    (world, me)
}

/// Everything a client can read.
fn readable(world: &mut World, me: usize) -> Vec<Value> {
    let params = json!({"includeDerivedTitles": true, "includeLastMessage": true});
    let mut list = world.call(me, "sessions.list", params).expect("listed");
    list["ts"] = Value::Null;
    let a = world
        .call(me, "sessions.get", json!({"key": "a"}))
        .expect("read");
    let b = world
        .call(me, "sessions.get", json!({"key": "b"}))
        .expect("read");
    let approvals = world
        .call(me, "exec.approval.list", json!({}))
        .expect("list");
    vec![list, a, b, approvals]
}

#[test]
fn all_of_it_survives_a_kill() {
    let (mut world, me) = lived_in();
    let before = readable(&mut world, me);
    world.restart();
    assert_eq!(
        (
            world.gateway.replay().damaged,
            world.gateway.replay().cut_bytes
        ),
        (0, 0)
    );
    let me = world.join(1);
    assert_eq!(readable(&mut world, me), before);
    let again = json!({"id": "decided", "decision": "allow-once"});
    assert_eq!(
        world.call(me, "exec.approval.resolve", again),
        Ok(json!({"ok": true}))
    );
    let other = json!({"id": "decided", "decision": "deny"});
    let refused = world.call(me, "exec.approval.resolve", other);
    assert_eq!(message_of(&refused), "approval already resolved");
    let posted = post(&mut world, me, "a", "four");
    assert_eq!(posted["messageSeq"], 3, "the numbers go on");
    world.wait(Duration::from_secs(60));
    assert_eq!(
        world.call(me, "exec.approval.list", json!({})),
        Ok(json!([])),
        "time goes on too"
    );
}

#[test]
fn a_journal_cut_at_any_byte_still_opens_and_loses_at_most_the_last_record() {
    let (world, _) = lived_in();
    let journal = world.journal.clone();
    for end in 0..=journal.len() {
        let gateway = EmbeddedGateway::open(
            config(),
            &world.limits,
            Box::new(Seeded::new(3)),
            world.now,
            &journal[..end],
        );
        let found = gateway.expect("opens").replay();
        let whole = journal[..end].iter().filter(|byte| **byte == b'\n').count();
        assert!(
            found.applied >= u64::try_from(whole).expect("small"),
            "cut at {end}: {found}"
        );
        assert_eq!(found.damaged, 0, "cut at {end}: {found}");
    }
}

#[test]
fn what_was_acknowledged_is_in_the_journal() {
    // The kill comes right after the answer left: `World` has only what was appended before.
    let mut world = World::new();
    for n in 0..20 {
        let me = world.join(1);
        let text = n.to_string();
        post(&mut world, me, "a", &text);
        world.restart();
        let me = world.join(1);
        let got = world
            .call(me, "sessions.get", json!({"key": "a", "limit": 1}))
            .expect("read");
        assert_eq!(got["messages"][0]["content"], text);
    }
}

#[test]
fn a_store_of_another_version_is_refused() {
    let mut world = World::new();
    let me = world.join(1);
    post(&mut world, me, "a", "x");
    let body = br#"{"store":{"version":2,"atMs":0}}"#;
    let sum = drawspan::crypto::hex(&drawspan::crypto::sha256(body)[..4]);
    let mut line = format!(r#"{{"sum":"{sum}","record":"#).into_bytes();
    line.extend_from_slice(body);
    line.extend_from_slice(b"}\n");
    let entropy = Box::new(Seeded::new(1));
    let opened = EmbeddedGateway::open(config(), &world.limits, entropy, world.now, &line);
    let error = opened.map(|_| ()).expect_err("another version");
    assert_eq!(error, OpenError::Version { found: 2 });
    assert_eq!(
        error.to_string(),
        "the store has version 2 (this program reads 1)"
    );
}

#[test]
fn a_full_disk_cuts_clients_and_leaves_reading() {
    let (mut world, me) = lived_in();
    let before = readable(&mut world, me);
    let fault = IoFault {
        kind: FaultKind::Exhausted,
        message: "no space left on device".to_owned(),
    };
    world.told();
    world.gateway.handle_journal_fault(world.now, fault);
    world.pump();
    assert_ne!(
        world.clients[me].closed, None,
        "nobody keeps an answer that may be lost"
    );
    let told = world.told().pop().expect("told").to_string();
    assert!(told.contains("no space left on device"), "{told}");
    let me = world.join(1);
    assert_eq!(readable(&mut world, me), before);
    let refused = world.call(me, "drawspan.post", json!({"sessionKey": "a", "text": "x"}));
    assert!(
        message_of(&refused).contains("no space left on device"),
        "{refused:?}"
    );
    assert_eq!(refused.expect_err("refused")["code"], "UNAVAILABLE");
}

#[test]
fn the_program_itself_posts_asks_and_seeds() {
    let mut world = World::new();
    world.gateway.post_samples(world.now).expect("posted");
    world.gateway.post_samples(world.now).expect("once");
    world.pump();
    let me = world.join(1);
    let list = world.call(me, "sessions.list", json!({})).expect("listed");
    assert_eq!(list["count"], 2);
    for row in list["sessions"].as_array().expect("rows") {
        assert!(
            row["deliveryContext"]["to"].is_string(),
            "a sample can be answered: {row}"
        );
    }
    world.told();
    let said = Post {
        session_key: "main".to_owned(),
        role: Role::User,
        text: "hello \u{1b}[2J".to_owned(),
        ..Post::default()
    };
    let posted = world
        .gateway
        .post_message(world.now, &said)
        .expect("posted");
    world.pump();
    assert_eq!(
        (posted.session_key.as_str(), posted.message_seq),
        ("agent:main:main", 1)
    );
    let event = world.events(me, "session.message").remove(0);
    assert_eq!(
        (&event["lastChannel"], &event["lastTo"]),
        (&json!("embedded"), &json!("main"))
    );
    let question = Question {
        kind: ApprovalKind::Plugin,
        subject: "Send a mail".to_owned(),
        description: "to Ada".to_owned(),
        session_key: None,
        timeout: None,
    };
    let id = world
        .gateway
        .request_approval(world.now, &question)
        .expect("asked");
    world.pump();
    let asked = world.events(me, "plugin.approval.requested").remove(0);
    assert_eq!(
        (&asked["id"], &asked["request"]["description"]),
        (&json!(id), &json!("to Ada"))
    );
    world
        .call(
            me,
            "plugin.approval.resolve",
            json!({"id": "plugin:", "decision": "deny"}),
        )
        .expect("resolved");
    let told: Vec<_> = world.told().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "message in agent:main:main from user: hello \\u{1b}[2J".to_owned(),
            format!("plugin approval requested: {id}"),
            format!("plugin approval resolved: {id} deny by Test"),
        ]
    );
}

#[test]
fn events_nobody_polls_are_bounded() {
    let mut world = World::new();
    let me = world.join(1);
    for _ in 0..1_100 {
        post(&mut world, me, "a", "x");
    }
    let told = world.told();
    assert_eq!(told.len(), 1_000);
    assert!(
        matches!(told[0], EmbeddedEvent::MessagePosted { .. }),
        "the oldest went"
    );
}

#[test]
fn no_frame_and_no_journal_makes_it_panic_and_every_request_is_answered_once() {
    let methods = [
        "sessions.list",
        "sessions.get",
        "sessions.describe",
        "send",
        "chat.send",
        "chat.inject",
        "drawspan.post",
        "exec.approval.request",
        "exec.approval.resolve",
        "plugin.approval.request",
        "exec.approval.list",
        "plugin.approval.resolve",
        "nonsense",
    ];
    let names = [
        "key",
        "sessionKey",
        "limit",
        "message",
        "text",
        "idempotencyKey",
        "to",
        "channel",
        "id",
        "decision",
        "command",
        "title",
        "description",
        "twoPhase",
        "content",
        "search",
        "x",
    ];
    let values = [
        json!(null),
        json!(0),
        json!(-1),
        json!(1e300),
        json!(18_446_744_073_709_551_615_u64),
        json!(""),
        json!("a"),
        json!("deny"),
        json!([]),
        json!([1]),
        json!({}),
        json!(true),
        json!("\u{0}\u{2028}"),
        json!("x".repeat(2_000)),
    ];
    let mut world = World::new();
    let me = world.join_with(1, &["operator.admin"]);
    let mut random = Seeded::new(42);
    let mut pick = |n: usize| usize::try_from(random.below(n as u64)).expect("small");
    for round in 0..3_000 {
        let mut params = json!({});
        for _ in 0..pick(5) {
            params[names[pick(names.len())]] = values[pick(values.len())].clone();
        }
        // Waiting for a decision is the one answer that may come later.
        params["twoPhase"] = json!(true);
        let method = methods[pick(methods.len())];
        let id = world.ask(me, method, params.clone());
        assert!(
            world.response(me, &id).is_some(),
            "round {round}: {method} {params}"
        );
        assert!(
            world.response(me, &id).is_none(),
            "round {round}: {method} answered twice"
        );
        world.clients[me].texts.clear();
    }
    let journal = world.journal.clone();
    for round in 0..100 {
        let mut bytes = journal.clone();
        for _ in 0..=pick(20) {
            let at = pick(bytes.len());
            match pick(3) {
                0 => bytes[at] ^= 1 << pick(8),
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b'\n'),
            }
        }
        world.journal = bytes;
        world.restart();
        assert!(
            world.gateway.replay().damaged <= 60,
            "round {round}: {}",
            world.gateway.replay()
        );
        let me = world.join_with(1, &SCOPES);
        world.call(me, "sessions.list", json!({})).expect("listed");
    }
}
