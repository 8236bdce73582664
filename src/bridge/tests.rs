//! The bridge as a whole, driven by hand on a virtual clock.

use std::time::Duration;

use super::*;
use crate::clock::Uptime;
use crate::entropy::Seeded;
use crate::gate::ToolCall;

/// A bridge, its clock, and what it has put out so far by kind.
pub(super) struct Rig {
    pub(super) bridge: Bridge,
    entropy: Seeded,
    pub(super) now: Now,
    calls: u64,
    pub(super) answers: Vec<(CallId, String)>,
    pub(super) requests: VecDeque<(Ticket, &'static str, String)>,
    pub(super) notes: VecDeque<(&'static str, String)>,
    pub(super) progress: Vec<(CallId, u64, Option<u64>)>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// Wall clock of the rig when its uptime is zero.
const UNIX_MS: i64 = 1_796_026_000_000;

impl Rig {
    pub(super) fn new(limits: &Limits, mode: ChannelMode) -> Self {
        Self {
            bridge: Bridge::new(limits, mode, true),
            entropy: Seeded::new(1),
            now: Now {
                up: Uptime::ZERO,
                unix_ms: UNIX_MS,
            },
            calls: 0,
            answers: Vec::new(),
            requests: VecDeque::new(),
            notes: VecDeque::new(),
            progress: Vec::new(),
            diagnostics: Vec::new(),
        }
    }

    /// A rig whose link is ready and whose approvals have been listed.
    pub(super) fn ready(limits: &Limits) -> Self {
        let mut rig = Self::new(limits, ChannelMode::Auto);
        rig.bridge.handle_ready(rig.now, true);
        rig.drain();
        rig.answer_lists();
        rig
    }

    pub(super) fn drain(&mut self) {
        while let Some(output) = self.bridge.poll() {
            match output {
                BridgeOutput::Answer { call, result } => {
                    let json = result.as_json().to_owned();
                    serde_json::from_str::<&RawValue>(&json).expect("results are JSON");
                    self.answers.push((call, json));
                }
                BridgeOutput::Request {
                    ticket,
                    method,
                    params,
                } => self.requests.push_back((ticket, method, params)),
                BridgeOutput::Notify { method, params } => self.notes.push_back((method, params)),
                BridgeOutput::Progress {
                    call,
                    progress,
                    total,
                    ..
                } => self.progress.push((call, progress, total)),
                BridgeOutput::Diagnostic(diagnostic) => self.diagnostics.push(diagnostic),
            }
        }
    }

    /// Moves the clock, stopping at each deadline on the way.
    pub(super) fn advance_to(&mut self, up: Uptime) {
        while let Some(deadline) = self.bridge.next_deadline().filter(|due| due.at <= up) {
            self.set_clock(deadline.at.max(self.now.up));
            self.bridge.handle_timeout(self.now);
            self.drain();
            let next = self.bridge.next_deadline();
            assert!(
                next.is_none_or(|next| next.at > self.now.up),
                "{next:?} is still due"
            );
        }
        self.set_clock(up);
    }

    pub(super) fn advance(&mut self, ms: u64) {
        self.advance_to(self.now.after(Duration::from_millis(ms)));
    }

    fn set_clock(&mut self, up: Uptime) {
        let passed = i64::try_from(up.since(self.now.up).as_millis()).expect("small");
        self.now = Now {
            up,
            unix_ms: self.now.unix_ms + passed,
        };
    }

    pub(super) fn call_as(&mut self, id: CallId, tool: &str, arguments: &str, progress: bool) {
        let call = GatedCall::for_tests(ToolCall {
            id,
            tool: tool.to_owned(),
            arguments: arguments.into(),
            caller: "test".to_owned(),
            wants_progress: progress,
        });
        self.bridge.call(self.now, call, &mut self.entropy);
        self.drain();
    }

    pub(super) fn call(&mut self, tool: &str, arguments: &str) -> CallId {
        self.calls += 1;
        self.call_as(CallId(self.calls), tool, arguments, false);
        CallId(self.calls)
    }

    /// The one answer of a call; `None` while there is none.
    pub(super) fn answer(&mut self, call: CallId) -> Option<String> {
        let at = self.answers.iter().position(|(of, _)| *of == call)?;
        let (_, json) = self.answers.remove(at);
        let more = self.answers.iter().any(|(of, _)| *of == call);
        assert!(!more, "call {call} was answered twice");
        Some(json)
    }

    /// Calls and returns the answer, which must come at once.
    pub(super) fn now(&mut self, tool: &str, arguments: &str) -> String {
        let call = self.call(tool, arguments);
        self.answer(call).expect("an immediate answer")
    }

    pub(super) fn event(&mut self, name: &str, payload: &str) {
        let raw = RawValue::from_string(payload.to_owned()).expect("test input is JSON");
        self.bridge.handle_event(self.now, name, Some(raw));
        self.drain();
    }

    pub(super) fn message(&mut self, session: &str, role: &str, text: &str) {
        self.event(
            "session.message",
            &format!(
                "{{\"sessionKey\":\"{session}\",\"message\":{{\"role\":\"{role}\",\"content\":\"{text}\"}}}}"
            ),
        );
    }

    /// The oldest request that is still open.
    pub(super) fn request(&mut self) -> (Ticket, &'static str, String) {
        self.requests.pop_front().expect("a request")
    }

    pub(super) fn respond(&mut self, ticket: Ticket, payload: &str) {
        let raw = RawValue::from_string(payload.to_owned()).expect("test input is JSON");
        self.bridge.handle_response(self.now, ticket, Ok(raw));
        self.drain();
    }

    pub(super) fn fail(&mut self, ticket: Ticket, error: GatewayError) {
        self.bridge.handle_response(self.now, ticket, Err(error));
        self.drain();
    }

    /// Answers the two list requests that follow each `handle_ready`.
    pub(super) fn answer_lists(&mut self) {
        for method in ["exec.approval.list", "plugin.approval.list"] {
            let (ticket, asked, params) = self.request();
            assert_eq!((asked, &*params), (method, "{}"));
            self.respond(ticket, "[]");
        }
    }

    pub(super) fn prompt(&mut self, code: &str) {
        let params = format!(
            "{{\"request_id\":\"{code}\",\"tool_name\":\"Bash\",\"description\":\"d\",\"input_preview\":\"p\"}}"
        );
        self.bridge.handle_notification(
            self.now,
            "notifications/claude/channel/permission_request",
            Some(&params),
        );
        self.drain();
    }

    fn warnings(&mut self) -> Vec<String> {
        let all = std::mem::take(&mut self.diagnostics);
        all.into_iter()
            .filter(|diagnostic| diagnostic.level == Level::Warning)
            .map(|diagnostic| diagnostic.message)
            .collect()
    }
}

fn text_result(text: &str) -> String {
    ToolResult::text(text).as_json().to_owned()
}

fn error_result(text: &str) -> String {
    ToolResult::error(text).as_json().to_owned()
}

const TIMEOUT: &str =
    r#"{"content":[{"type":"text","text":"timeout"}],"structuredContent":{"event":null}}"#;

fn remote(message: &str) -> GatewayError {
    GatewayError::Remote {
        code: "INVALID_REQUEST".to_owned(),
        message: message.to_owned(),
        details: None,
    }
}

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
fn the_first_connection_leaves_no_gap() {
    let mut rig = Rig::new(&Limits::DEFAULT, ChannelMode::Auto);
    rig.bridge.handle_lost(rig.now, "connection refused");
    rig.bridge.handle_ready(rig.now, true);
    rig.drain();
    assert!(rig.now("events_poll", "{}").contains("events: 0"));
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
fn a_prompt_is_answered_by_a_user_of_the_session_that_saw_it() {
    let mut rig = Rig::new(&Limits::DEFAULT, ChannelMode::Off);
    rig.prompt("abcde");
    assert!(rig.diagnostics[0].message.contains("abcde"), "verbose");
    assert!(rig.now("events_poll", "{}").contains(
        r#"{"cursor":1,"type":"claude_permission_request","requestId":"abcde","toolName":"Bash","description":"d","inputPreview":"p"}"#
    ));
    rig.message("s1", "assistant", "may I? yes abcde / no abcde");
    rig.message("s2", "user", "yes abcde");
    rig.message("s1", "assistant", "yes abcde");
    assert!(rig.notes.is_empty());
    let warnings = rig.warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("session s2") && warnings[0].contains("shown in session s1"));
    assert!(warnings[1].contains("role is assistant"), "{warnings:?}");
    rig.message("s1", "user", "No  ABCDE");
    let (method, params) = rig.notes.pop_front().expect("the answer");
    assert_eq!(method, "notifications/claude/channel/permission");
    assert_eq!(params, r#"{"request_id":"abcde","behavior":"deny"}"#);
    assert!(rig.warnings().is_empty());
    let poll = rig.now("events_poll", "{}");
    assert!(
        poll.contains("events: 4"),
        "the answer is not queued, the others are: {poll}"
    );
    rig.message("s1", "user", "no abcde");
    assert!(rig.notes.is_empty(), "a code works once");
}

#[test]
fn a_prompt_nobody_was_shown_is_answered_by_any_user_with_a_warning() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.prompt("abcde");
    rig.message("s9", "user", "yes abcde");
    assert_eq!(
        rig.notes[0].1,
        r#"{"request_id":"abcde","behavior":"allow"}"#
    );
    let warnings = rig.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].contains("s9"),
        "{warnings:?}"
    );
}

#[test]
fn sending_a_code_announces_the_prompt_in_the_canonical_session() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.prompt("abcde");
    rig.call(
        "messages_send",
        r#"{"session_key":"main","text":"reply yes ABCDE"}"#,
    );
    let (ticket, ..) = rig.request();
    rig.respond(
        ticket,
        r#"{"session":{"key":"agent:main:main","lastChannel":"c","lastTo":"t"}}"#,
    );
    rig.message("main", "user", "yes abcde");
    assert!(rig.notes.is_empty());
    rig.message("agent:main:main", "user", "yes abcde");
    assert_eq!(rig.notes.len(), 1);
}

#[test]
fn a_code_in_a_later_block_is_an_announcement_too() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.prompt("abcde");
    rig.event("session.message", r#"{"sessionKey":"s1","message":{"role":"assistant","content":[{"type":"thinking"},{"type":"text","text":"code abcde"}]}}"#);
    rig.message("s2", "user", "yes abcde");
    assert!(rig.notes.is_empty());
}

#[test]
fn prompts_that_lack_a_string_are_ignored() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    let method = "notifications/claude/channel/permission_request";
    for params in [
        None,
        Some("null"),
        Some("[]"),
        Some(r#"{"request_id":"abcde","tool_name":"Bash"}"#),
        Some(r#"{"request_id":"abcde","tool_name":"Bash","description":"d","input_preview":null}"#),
    ] {
        rig.bridge.handle_notification(rig.now, method, params);
    }
    rig.bridge
        .handle_notification(rig.now, "notifications/initialized", None);
    rig.drain();
    assert!(rig.now("events_poll", "{}").contains("events: 0"));
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
    rig.bridge.close(rig.now);
    rig.drain();
    assert_eq!(rig.answer(wait).as_deref(), Some(TIMEOUT));
    for (call, text) in [
        (
            list,
            "bridge closed before the gateway answered sessions.list",
        ),
        (
            send,
            "bridge closed before the gateway answered send; the message may have been sent",
        ),
        (held, "bridge closed before the gateway was connected"),
    ] {
        assert_eq!(rig.answer(call), Some(error_result(text)));
    }
    rig.respond(list_ticket, r#"{"sessions":[]}"#);
    rig.bridge.handle_ready(rig.now, false);
    rig.message("s", "user", "x");
    rig.prompt("abcde");
    rig.bridge.close(rig.now);
    rig.drain();
    assert!(rig.answers.is_empty() && rig.notes.is_empty());
    assert_eq!(
        rig.now("events_poll", "{}"),
        error_result("bridge is closed")
    );
    assert_eq!(rig.bridge.next_deadline(), None);
    assert_ne!(text_result("x"), error_result("x"));
}
