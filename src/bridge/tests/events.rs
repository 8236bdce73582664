//! Events: into the queue, to readers and waiters, and what is told of those that are lost or
//! unusable.

use super::*;

#[test]
fn a_message_becomes_an_event_with_the_gateways_own_bytes() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    let payload = r#"{ "sessionKey":" s1 ","message":{"role":"user","content":[{"type":"text","text":"\u00e9 \ud83d"},{"type":"text","text":"later"}]},"messageId":" m1 ","messageSeq":1.0,"lastChannel":"Telegram","lastTo":"1","lastAccountId":"","lastThreadId":17.50,"big":12345678901234567890123 }"#;
    rig.event("session.message", payload);
    let event = format!(
        r#"{{"cursor":1,"type":"message","sessionKey":"s1","conversation":{{"sessionKey":"s1","channel":"telegram","to":"1","threadId":17.50,"updatedAt":null}},"messageId":"m1","messageSeq":1.0,"role":"user","text":"\u00e9 \ud83d","raw":{payload}}}"#
    );
    let expected = format!(
        r#"{{"content":[{{"type":"text","text":"event 1"}}],"structuredContent":{{"event":{event}}}}}"#
    );
    let wait = rig.call("events_wait", "{}");
    let answer = rig
        .answers
        .iter()
        .find(|(call, _)| *call == wait)
        .expect("answered");
    assert_eq!(answer.1, expected);
    let (method, params) = rig
        .notes
        .pop_front()
        .expect("a user message with a route is announced");
    assert_eq!(method, "notifications/claude/channel");
    assert_eq!(
        params,
        r#"{"content":"\u00e9 \ud83d","meta":{"session_key":"s1","channel":"telegram","to":"1","account_id":"","thread_id":"17.50","message_id":"m1"}}"#
    );
}

#[test]
fn only_user_messages_with_a_route_are_announced_and_only_when_the_mode_says_so() {
    let routed = r#"{"sessionKey":"s","message":{"role":"ROLE","content":CONTENT},"lastChannel":"c","lastTo":"t"}"#;
    let payload =
        |role: &str, content: &str| routed.replace("ROLE", role).replace("CONTENT", content);
    for (mode, role, content, announced) in [
        (ChannelMode::Auto, "user", "\"hi\"", Some("\"hi\"")),
        (ChannelMode::On, "user", "\"\"", Some("\"\"")),
        (
            ChannelMode::Auto,
            "user",
            "[{\"type\":\"image\"}]",
            Some("\"[non-text message]\""),
        ),
        (ChannelMode::Auto, "assistant", "\"hi\"", None),
        (ChannelMode::Auto, "User", "\"hi\"", None),
        (ChannelMode::Off, "user", "\"hi\"", None),
    ] {
        let mut rig = Rig::new(&Limits::DEFAULT, mode);
        rig.event("session.message", &payload(role, content));
        let content = rig.notes.pop_front().map(|(_, params)| params);
        let expected = announced.map(|text| format!("{{\"content\":{text},\"meta\":"));
        match (content, expected) {
            (Some(params), Some(start)) => assert!(params.starts_with(&start), "{params}"),
            (params, expected) => assert_eq!(params, expected, "{mode:?} {role} {announced:?}"),
        }
        assert!(
            rig.now("events_poll", "{}").contains("events: 1"),
            "queued in any case"
        );
    }
    let mut rig = Rig::new(&Limits::DEFAULT, ChannelMode::Auto);
    rig.message("no route", "user", "hi");
    assert!(rig.notes.is_empty());
}

#[test]
fn an_overflow_is_told() {
    let mut rig = Rig::ready(&Limits {
        events_queued_max: 3,
        ..Limits::DEFAULT
    });
    for i in 1..=5 {
        rig.message("s", "user", &i.to_string());
    }
    let poll = rig.now("events_poll", r#"{"after_cursor":1,"limit":2}"#);
    assert!(
        poll.ends_with(r#""next_cursor":4,"dropped":1,"oldest_cursor":3}}"#),
        "{poll}"
    );
    let wait = rig.now("events_wait", r#"{"after_cursor":0}"#);
    assert!(
        wait.contains("event 3") && wait.ends_with(r#","dropped":2}}"#),
        "{wait}"
    );
    let whole = rig.now("events_wait", r#"{"after_cursor":2}"#);
    assert!(!whole.contains("dropped"), "{whole}");
    let parked = rig.call("events_wait", r#"{"session_key":"other"}"#);
    rig.message("other", "user", "x");
    let parked = rig.answer(parked).expect("woken");
    assert!(
        parked.ends_with(r#","dropped":2}}"#),
        "as many as when it asked: {parked}"
    );
}

#[test]
fn a_cursor_from_the_future_gets_no_old_event() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.message("s", "user", "old");
    let wait = rig.call(
        "events_wait",
        r#"{"after_cursor":999999999,"timeout_ms":100}"#,
    );
    rig.message("s", "user", "newer, but not in that future");
    let poll = rig.now("events_poll", r#"{"after_cursor":999999999}"#);
    assert!(
        poll.contains(r#""events":[],"next_cursor":999999999"#),
        "{poll}"
    );
    rig.advance(100);
    assert_eq!(rig.answer(wait).as_deref(), Some(TIMEOUT));
}

#[test]
fn a_reconnect_leaves_a_gap_that_no_filter_hides() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    let filtered = rig.call("events_wait", r#"{"session_key":"s"}"#);
    rig.bridge
        .handle_lost(rig.now, "gateway closed (1012): service restart");
    rig.bridge.handle_lost(rig.now, "connection refused");
    rig.drain();
    assert!(rig.answers.is_empty(), "the gap is told when it is over");
    rig.bridge.handle_ready(rig.now, false);
    rig.drain();
    let gap = r#"{"cursor":1,"type":"gap","reason":"gateway connection lost: gateway closed (1012): service restart; events between were not delivered"}"#;
    let woken = rig.answer(filtered).expect("woken by the gap");
    assert!(woken.contains(gap), "{woken}");
    let poll = rig.now("events_poll", r#"{"session_key":"s"}"#);
    assert!(poll.contains(gap), "{poll}");
    rig.bridge.handle_ready(rig.now, false);
    rig.drain();
    assert!(
        rig.now("events_poll", "{}").contains("events: 1"),
        "ready twice is one gap"
    );
}

#[test]
fn a_gap_stands_before_the_events_of_the_new_connection() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.message("s", "user", "one");
    rig.bridge.handle_lost(rig.now, "cut");
    rig.bridge.handle_connecting("cut");
    rig.message("s", "user", "early");
    rig.bridge.handle_connecting("not subscribed");
    rig.message("s", "user", "early again");
    rig.message("s", "user", "and more");
    rig.bridge.handle_ready(rig.now, false);
    rig.drain();
    rig.message("s", "user", "last");
    let poll = rig.now("events_poll", "{}");
    let kinds: Vec<_> = poll.split("\"type\":\"").skip(2).collect();
    let kinds: Vec<_> = kinds.iter().map(|rest| &rest[..3]).collect();
    assert_eq!(
        kinds,
        ["mes", "gap", "mes", "gap", "mes", "mes", "mes"],
        "{poll}"
    );
    assert!(poll.contains("lost: not subscribed;"), "{poll}");
}

#[test]
fn a_first_connection_that_broke_after_events_leaves_a_gap() {
    let mut rig = Rig::new(&Limits::DEFAULT, ChannelMode::Auto);
    rig.message("s", "user", "early");
    rig.bridge.handle_connecting("cut");
    rig.bridge.handle_connecting("connection refused");
    rig.bridge.handle_ready(rig.now, true);
    rig.drain();
    let poll = rig.now("events_poll", "{}");
    assert!(poll.contains("lost: cut;"), "{poll}");
    assert!(poll.contains("events: 2"), "{poll}");
}

#[test]
fn the_first_connection_leaves_no_gap() {
    let mut rig = Rig::new(&Limits::DEFAULT, ChannelMode::Auto);
    rig.bridge.handle_lost(rig.now, "connection refused");
    rig.bridge.handle_ready(rig.now, true);
    rig.drain();
    assert!(rig.now("events_poll", "{}").contains("events: 0"));
}

#[test]
fn an_approval_expires_on_time_without_an_event() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    let expires = UNIX_MS + 3_000;
    rig.event(
        "exec.approval.requested",
        &format!("{{\"id\":\"a\",\"expiresAtMs\":{expires}}}"),
    );
    rig.advance(2_999);
    assert!(
        rig.now("permissions_list_open", "{}")
            .contains("approvals: 1")
    );
    let due = rig.bridge.next_deadline().expect("the expiry");
    assert_eq!(
        due,
        Deadline::new(Uptime::from_millis(3_000), "an approval expires")
    );
    rig.advance(1);
    assert!(
        rig.now("permissions_list_open", "{}")
            .contains("approvals: 0")
    );
    assert!(rig.now("events_poll", "{}").contains("events: 1"));
}

#[test]
fn evictions_are_reported_now_and_then() {
    let mut rig = Rig::ready(&Limits {
        approvals_pending_max: 1,
        ..Limits::DEFAULT
    });
    for i in 0..6 {
        rig.event("exec.approval.requested", &format!("{{\"id\":\"{i}\"}}"));
    }
    let warnings = rig.warnings();
    assert_eq!(warnings.len(), 3, "1, 2 and 4 of 5: {warnings:?}");
    assert!(
        warnings[0].contains("approvals_pending_max"),
        "{warnings:?}"
    );
    for code in ["aaaaa", "bbbbb"] {
        rig.prompt(code);
    }
    assert_eq!(rig.warnings().len(), 1);
}

#[test]
fn malformed_events_are_counted_and_skipped() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.bridge.handle_event(rig.now, "session.message", None);
    let deep = format!(
        "{{\"sessionKey\":{}1{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    for payload in [
        "null",
        "1",
        "[]",
        "\"s\"",
        "{}",
        r#"{"sessionKey":7}"#,
        r#"{"sessionKey":" "}"#,
        &deep,
    ] {
        rig.event("session.message", payload);
    }
    rig.event("exec.approval.requested", "[1]");
    rig.event("no.such.event", "null");
    assert!(rig.now("events_poll", "{}").contains("events: 0"));
    let warnings = rig.warnings();
    assert_eq!(warnings.len(), 4, "1, 2, 4 and 8 of 10: {warnings:?}");
    assert!(
        warnings[3].contains("(8 such events so far)"),
        "{warnings:?}"
    );
}

#[test]
fn odd_members_of_a_message_cost_only_themselves() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    for message in [
        "null",
        "\"x\"",
        "[[]]",
        r#"{"role":3,"content":{"a":1}}"#,
        r#"{"content":[]}"#,
    ] {
        rig.event(
            "session.message",
            &format!("{{\"sessionKey\":\"s\",\"message\":{message},\"messageId\":1,\"messageSeq\":\"1\"}}"),
        );
    }
    let poll = rig.now("events_poll", "{}");
    assert!(poll.contains("events: 5"), "{poll}");
    assert_eq!(
        poll.matches(r#""type":"message","sessionKey":"s","raw":{"#)
            .count(),
        5,
        "{poll}"
    );
    assert!(rig.warnings().is_empty());
}

#[test]
fn an_approval_event_without_an_id_is_queued_but_not_tracked() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.bridge
        .handle_event(rig.now, "plugin.approval.resolved", None);
    rig.event("exec.approval.requested", r#"{"id":3}"#);
    let poll = rig.now("events_poll", "{}");
    assert!(
        poll.contains(r#"{"cursor":1,"type":"plugin_approval_resolved","raw":{}}"#),
        "{poll}"
    );
    assert!(
        poll.contains(r#"{"cursor":2,"type":"exec_approval_requested","raw":{"id":3}}"#),
        "{poll}"
    );
    assert!(
        rig.now("permissions_list_open", "{}")
            .contains("approvals: 0")
    );
    assert_eq!(rig.warnings().len(), 2);
}

#[test]
fn a_session_filter_hides_approvals_even_of_that_session() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    let wait = rig.call("events_wait", r#"{"session_key":" s "}"#);
    rig.event(
        "exec.approval.requested",
        r#"{"id":"a","request":{"sessionKey":"s"}}"#,
    );
    assert_eq!(rig.answer(wait), None);
    rig.message("s", "user", "x");
    assert!(rig.answer(wait).expect("woken").contains("event 2"));
    let poll = rig.now("events_poll", r#"{"session_key":" ","limit":1}"#);
    assert!(
        poll.contains("exec_approval_requested"),
        "a blank filter is none: {poll}"
    );
    let poll = rig.now("events_poll", r#"{"session_key":"zz","after_cursor":1}"#);
    assert!(
        poll.contains(r#""next_cursor":1,"#),
        "no match does not advance: {poll}"
    );
}
