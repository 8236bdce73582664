//! Calls: answered from memory, held, asked, cancelled, refused, closed.

use super::*;

#[test]
fn it_owns_the_nine_tools_and_no_other() {
    assert_eq!(Bridge::tool_list().len(), 9);
    for def in Bridge::tool_list() {
        assert!(Bridge::owns(def.name), "{}", def.name);
    }
    assert!(!Bridge::owns("events_pol") && !Bridge::owns(""));
    let answer = Rig::ready(&Limits::DEFAULT).now("no_such_tool", "{}");
    assert_eq!(
        answer,
        error_result("MCP error -32602: Tool no_such_tool not found")
    );
}

#[test]
fn memory_tools_answer_without_a_gateway() {
    let mut rig = Rig::new(&Limits::DEFAULT, ChannelMode::Auto);
    assert_eq!(
        rig.now("events_poll", r#"{"after_cursor":7}"#),
        r#"{"content":[{"type":"text","text":"events: 0"}],"structuredContent":{"events":[],"next_cursor":7,"dropped":0,"oldest_cursor":0}}"#
    );
    assert_eq!(
        rig.now("permissions_list_open", "{}"),
        r#"{"content":[{"type":"text","text":"approvals: 0"}],"structuredContent":{"approvals":[]}}"#
    );
    let wait = rig.call("events_wait", r#"{"timeout_ms":1}"#);
    rig.advance(1);
    assert_eq!(rig.answer(wait).as_deref(), Some(TIMEOUT));
}

#[test]
fn a_waiting_call_reports_progress_and_an_ordinary_timeout() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.call_as(CallId(1), "events_wait", r#"{"timeout_ms":30000}"#, true);
    rig.advance(29_999);
    let total = Some(30_000);
    assert_eq!(
        rig.progress,
        [(CallId(1), 10_000, total), (CallId(1), 20_000, total)]
    );
    rig.advance(1);
    assert_eq!(rig.progress.len(), 2, "no progress with the answer");
    assert_eq!(rig.answer(CallId(1)).as_deref(), Some(TIMEOUT));
    assert_eq!(rig.bridge.next_deadline(), None);
}

#[test]
fn one_waiter_too_many_is_refused_by_name() {
    let mut rig = Rig::ready(&Limits {
        waiters_max: 1,
        ..Limits::DEFAULT
    });
    let first = rig.call("events_wait", "{}");
    let refused = rig.now("events_wait", "{}");
    assert!(
        refused.contains("waiters_max") && refused.contains("isError"),
        "{refused}"
    );
    rig.bridge.cancel(first);
    let second = rig.call("events_wait", "{}");
    rig.message("s", "user", "x");
    assert!(rig.answer(second).is_some());
    assert!(rig.answers.is_empty(), "the cancelled call gets nothing");
}

#[test]
fn calls_are_held_until_the_link_is_ready_and_go_out_in_order() {
    let mut rig = Rig::new(&Limits::DEFAULT, ChannelMode::Auto);
    rig.call("conversations_list", "{}");
    rig.call("messages_read", r#"{"session_key":"s"}"#);
    let gone = rig.call("conversation_get", r#"{"session_key":"gone"}"#);
    rig.bridge.cancel(gone);
    assert!(rig.requests.is_empty());
    rig.bridge.handle_ready(rig.now, true);
    rig.drain();
    let methods: Vec<_> = rig.requests.iter().map(|(_, method, _)| *method).collect();
    let lists = ["exec.approval.list", "plugin.approval.list"];
    assert_eq!(
        methods,
        ["sessions.list", "sessions.get", lists[0], lists[1]]
    );
}

#[test]
fn a_call_held_too_long_is_asked_all_the_same_to_get_the_reason() {
    let mut rig = Rig::new(&Limits::DEFAULT, ChannelMode::Auto);
    let call = rig.call("conversations_list", "{}");
    rig.advance(100);
    rig.call("conversation_get", r#"{"session_key":"s"}"#);
    rig.advance(4_399);
    assert!(rig.requests.is_empty());
    rig.advance(1);
    assert_eq!(rig.requests.len(), 1, "the younger call waits on");
    let (ticket, method, _) = rig.request();
    assert_eq!(method, "sessions.list");
    let message = "gateway not connected: connection refused, next try in 3 s".to_owned();
    rig.fail(
        ticket,
        GatewayError::NotConnected {
            message: message.clone(),
        },
    );
    assert_eq!(rig.answer(call), Some(error_result(&message)));
    rig.advance(100);
    assert_eq!(rig.request().1, "sessions.describe");
}

#[test]
fn permissions_respond_is_never_held() {
    let mut rig = Rig::new(&Limits::DEFAULT, ChannelMode::Auto);
    rig.call(
        "permissions_respond",
        r#"{"kind":"plugin","id":" x\ud800","decision":"deny"}"#,
    );
    let (_, method, params) = rig.request();
    assert_eq!(method, "plugin.approval.resolve");
    assert_eq!(
        params, r#"{"id":" x\ud800","decision":"deny"}"#,
        "the id as given"
    );
}

#[test]
fn one_call_too_many_for_the_gateway_is_refused_by_name() {
    for ready in [true, false] {
        let mut rig = Rig::new(
            &Limits {
                gateway_requests_max: 3,
                ..Limits::DEFAULT
            },
            ChannelMode::Auto,
        );
        if ready {
            rig.bridge.handle_ready(rig.now, true);
            rig.drain();
            rig.answer_lists();
        }
        for _ in 0..3 {
            let call = rig.call("conversations_list", "{}");
            assert_eq!(rig.answer(call), None, "there is room");
        }
        let refused = rig.now("conversations_list", "{}");
        assert!(
            refused.contains("limit 3 (gateway_requests_max)"),
            "{refused}"
        );
        rig.bridge.cancel(CallId(1));
        let call = rig.call("conversations_list", "{}");
        assert_eq!(rig.answer(call), None, "there is room again");
    }
}

#[test]
fn sending_describes_first_and_sends_once_with_the_text_unchanged() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    let call = rig.call(
        "messages_send",
        r#"{"session_key":" main ","text":" tabs\t\u00e9\ud800 "}"#,
    );
    let (ticket, method, params) = rig.request();
    assert_eq!(method, "sessions.describe");
    assert_eq!(
        params,
        r#"{"key":"main","includeDerivedTitles":true,"includeLastMessage":true}"#
    );
    rig.respond(ticket, r#"{"session":{"key":"agent:main:main","lastChannel":"Slack","lastTo":"C1","deliveryContext":{"threadId":17}}}"#);
    let (ticket, method, params) = rig.request();
    assert_eq!(method, "send");
    let key = params
        .split('"')
        .rev()
        .nth(1)
        .expect("the last string")
        .to_owned();
    assert_eq!(key.len(), 36);
    assert_eq!(
        params,
        format!(
            r#"{{"to":"C1","channel":"slack","threadId":"17","message":" tabs\t\u00e9\ud800 ","sessionKey":"agent:main:main","idempotencyKey":"{key}"}}"#
        )
    );
    let message = "gateway closed (1012): service restart".to_owned();
    rig.fail(
        ticket,
        GatewayError::Closed {
            message: message.clone(),
        },
    );
    assert_eq!(rig.answer(call), Some(error_result(&message)));
    assert!(rig.requests.is_empty(), "never sent again");

    rig.call("messages_send", r#"{"session_key":"main","text":"t"}"#);
    let (ticket, ..) = rig.request();
    rig.respond(
        ticket,
        r#"{"session":{"key":"k","lastChannel":"c","lastTo":"t"}}"#,
    );
    assert!(
        !rig.request().2.contains(&key),
        "another message has another key"
    );
}

#[test]
fn sending_needs_a_route_and_a_cancelled_call_sends_nothing() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    let blank = rig.now("messages_send", r#"{"session_key":" ","text":"t"}"#);
    assert_eq!(blank, error_result("Conversation not found for session  "));
    for payload in [
        r#"{"session":null}"#,
        r#"{"session":{"key":"s"}}"#,
        "null",
        "[]",
        "{}",
    ] {
        let call = rig.call("messages_send", r#"{"session_key":"s","text":"t"}"#);
        let (ticket, ..) = rig.request();
        rig.respond(ticket, payload);
        let expected = error_result("Conversation not found for session s");
        assert_eq!(rig.answer(call), Some(expected), "{payload}");
    }
    let call = rig.call("messages_send", r#"{"session_key":"s","text":"t"}"#);
    let (ticket, ..) = rig.request();
    rig.bridge.cancel(call);
    rig.respond(
        ticket,
        r#"{"session":{"key":"s","lastChannel":"c","lastTo":"t"}}"#,
    );
    assert!(rig.requests.is_empty() && rig.answers.is_empty());
}

#[test]
fn a_late_answer_of_a_cancelled_call_is_dropped() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    let call = rig.call("conversations_list", "{}");
    rig.bridge.cancel(call);
    rig.bridge.cancel(CallId(77));
    let (ticket, ..) = rig.request();
    rig.respond(ticket, r#"{"sessions":[]}"#);
    rig.respond(ticket, r#"{"sessions":[]}"#);
    rig.respond(Ticket(999), "1");
    assert!(rig.answers.is_empty());
}

#[test]
fn one_odd_row_costs_that_row_and_an_odd_answer_is_named() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    for (payload, expected) in [
        (
            r#"{"sessions":[1,null,{"key":5},{"key":"s","lastChannel":"c","lastTo":"t","origin":7}]}"#,
            "conversations: 1\\n",
        ),
        (r#"{"sessions":null}"#, "conversations: 0\\n"),
        ("{}", "conversations: 0\\n"),
        (
            r#"{"sessions":{}}"#,
            "gateway answered sessions.list with sessions that are no list",
        ),
        (
            "null",
            "gateway answered sessions.list with a payload that is no object",
        ),
        (
            r#"{"sessions":[],"sessions":[]}"#,
            "gateway answered sessions.list with a payload that cannot be read",
        ),
    ] {
        let call = rig.call("conversations_list", "{}");
        let (ticket, ..) = rig.request();
        rig.respond(ticket, payload);
        let answer = rig.answer(call).expect("answered");
        assert!(answer.contains(expected), "{payload}: {answer}");
        assert_eq!(
            answer.contains("isError"),
            expected.contains("gateway"),
            "{answer}"
        );
    }
}

#[test]
fn the_gateways_message_is_the_error_text() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    let call = rig.call(
        "permissions_respond",
        r#"{"kind":"exec","id":"x","decision":"deny"}"#,
    );
    let (ticket, method, _) = rig.request();
    assert_eq!(method, "exec.approval.resolve");
    rig.fail(ticket, remote("unknown or expired approval id"));
    assert_eq!(
        rig.answer(call),
        Some(error_result("unknown or expired approval id"))
    );
}

#[test]
fn approvals_are_listed_after_each_connect_without_events() {
    let mut rig = Rig::new(&Limits::DEFAULT, ChannelMode::Auto);
    rig.bridge.handle_ready(rig.now, true);
    rig.drain();
    let (exec, ..) = rig.request();
    let (plugin, ..) = rig.request();
    rig.event("exec.approval.requested", r#"{"id":"while asking"}"#);
    rig.respond(
        exec,
        r#"[{"id":"a","request":{"command":"ls"},"createdAtMs":1}]"#,
    );
    rig.respond(plugin, r#"[{"id":"plugin:b"},{"noid":1}]"#);
    let list = rig.now("permissions_list_open", "{}");
    assert!(list.contains("approvals: 3"), "{list}");
    assert!(
        list.contains(r#"{"kind":"exec","id":"a","request":{"command":"ls"},"createdAtMs":1}"#),
        "{list}"
    );
    assert!(
        list.contains(r#"{"kind":"plugin","id":"plugin:b"}"#),
        "{list}"
    );
    assert!(
        rig.now("events_poll", "{}").contains("events: 1"),
        "only the one pushed to us"
    );
    assert_eq!(rig.warnings().len(), 1, "the entry without an id");

    rig.bridge.handle_lost(rig.now, "cut");
    rig.bridge.handle_ready(rig.now, false);
    rig.drain();
    rig.answer_lists();
    assert!(
        rig.now("permissions_list_open", "{}")
            .contains("approvals: 0"),
        "decided meanwhile"
    );
}

#[test]
fn a_list_method_that_fails_is_reported_once_and_a_lost_link_is_not() {
    let mut rig = Rig::new(&Limits::DEFAULT, ChannelMode::Auto);
    for round in 0..3 {
        rig.bridge.handle_ready(rig.now, round == 0);
        rig.drain();
        let (exec, ..) = rig.request();
        rig.fail(exec, remote("unknown method: exec.approval.list"));
        let (plugin, ..) = rig.request();
        let message = "gateway closed (1006): ".to_owned();
        rig.fail(plugin, GatewayError::Closed { message });
        rig.bridge.handle_lost(rig.now, "cut");
    }
    let warnings = rig.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("unknown method"), "{warnings:?}");
}

#[test]
fn a_client_that_has_ended_its_input_waits_for_answers_but_not_for_events() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    let wait = rig.call("events_wait", "{}");
    let list = rig.call("conversations_list", "{}");
    rig.bridge.end_wait(wait);
    rig.bridge.end_wait(list);
    rig.drain();
    assert_eq!(rig.answer(wait).as_deref(), Some(TIMEOUT));
    assert_eq!(rig.answer(list), None);
    let (ticket, ..) = rig.request();
    rig.respond(ticket, r#"{"sessions":[]}"#);
    assert!(rig.answer(list).is_some());
}

#[test]
fn closing_answers_everything_once() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    let wait = rig.call("events_wait", "{}");
    let list = rig.call("conversations_list", "{}");
    let send = rig.call("messages_send", r#"{"session_key":"s","text":"t"}"#);
    let (list_ticket, ..) = rig.request();
    let (describe, ..) = rig.request();
    rig.respond(
        describe,
        r#"{"session":{"key":"s","lastChannel":"c","lastTo":"t"}}"#,
    );
    rig.bridge.handle_lost(rig.now, "cut");
    let held = rig.call("messages_read", r#"{"session_key":"s"}"#);
    rig.bridge.close("over");
    rig.drain();
    assert_eq!(rig.answer(wait).as_deref(), Some(TIMEOUT));
    for (call, text) in [
        (list, "over; the gateway had not answered sessions.list"),
        (
            send,
            "over; the gateway had not answered send; the message may have been sent",
        ),
        (held, "over"),
    ] {
        assert_eq!(rig.answer(call), Some(error_result(text)));
    }
    rig.respond(list_ticket, r#"{"sessions":[]}"#);
    rig.bridge.handle_ready(rig.now, false);
    rig.message("s", "user", "x");
    rig.prompt("abcde");
    rig.bridge.close("over");
    rig.drain();
    assert!(rig.answers.is_empty() && rig.notes.is_empty());
    assert_eq!(
        rig.now("events_poll", "{}"),
        error_result("bridge is closed")
    );
    assert_eq!(rig.bridge.next_deadline(), None);
    assert_ne!(text_result("x"), error_result("x"));
}
