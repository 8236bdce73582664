//! Calls that the gate holds: what clients see, and what is said to the Gateway.

use super::*;
use crate::gate::{HeldCall, HoldEnd};

const OURS: &str = "hold-7f-9";

fn held(now: Now) -> HeldCall {
    HeldCall {
        id: OURS.to_owned(),
        call: CallId(9),
        tool: "mail__send".into(),
        arguments: r#"{"to":"ada","password":"hunter2hunter2"}"#.into(),
        server: "mail".into(),
        caller: "claude".into(),
        principal: "stdio".into(),
        title: "Send it?".to_owned(),
        description: String::new(),
        rule: Some(0),
        created_at_ms: now.unix_ms,
        expires_at_ms: now.unix_ms + 90_000,
    }
}

/// What the Gateway is asked to show, without the times.
const REQUEST: &str = r#"{"pluginId":"drawspan","title":"Send it?","description":"mail__send of mail, called by claude (stdio)\narguments: {\"to\":\"ada\",\"password\":\"***\"}","severity":"warning","toolName":"mail__send","toolCallId":"9""#;

const THEIRS: &str = r#"{"id":"plugin:1","decision":"allow-always","resolvedBy":"Ada","ts":1}"#;

impl Rig {
    fn open_hold(&mut self) {
        let held = held(self.now);
        self.bridge.handle_hold_opened(self.now, &held);
        self.drain();
    }

    fn close_hold(&mut self, end: &HoldEnd) {
        self.bridge.handle_hold_closed(self.now, OURS, end);
        self.drain();
    }

    fn answered_elsewhere(&mut self, answer: Answer) {
        self.close_hold(&HoldEnd::Answered(answer, "unix:1".to_owned()));
    }

    /// A hold that the Gateway shows.
    fn accepted() -> Self {
        let mut rig = Self::ready(&Limits::DEFAULT);
        rig.open_hold();
        rig.accept();
        rig
    }

    fn accept(&mut self) {
        let (ticket, method, _) = self.request();
        assert_eq!(method, "plugin.approval.request");
        self.respond(ticket, r#"{"status":"accepted","id":"plugin:1"}"#);
    }

    fn expect_request(&mut self, method: &str, params: &str) -> Ticket {
        let (ticket, asked, given) = self.request();
        assert_eq!((asked, &*given), (method, params));
        ticket
    }

    fn list(&mut self) -> String {
        self.now("permissions_list_open", "{}")
    }
}

fn decided(rig: &mut Rig) -> Option<(Option<CallId>, &'static str, String)> {
    let (call, id, answer, by) = rig.decisions.pop()?;
    assert_eq!(id, OURS);
    Some((call, answer, by))
}

#[test]
fn a_held_call_is_an_approval_to_clients_and_a_request_to_the_gateway() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.open_hold();
    let params = format!(r#"{REQUEST},"timeoutMs":90000,"twoPhase":true}}"#);
    rig.expect_request("plugin.approval.request", &params);
    let record = format!(
        r#""id":"{OURS}","request":{REQUEST}}},"createdAtMs":{UNIX_MS},"expiresAtMs":{}"#,
        UNIX_MS + 90_000
    );
    let list = rig.list();
    let row = format!(r#"{{"approvals":[{{"kind":"plugin",{record}}}]}}"#);
    assert!(list.contains(&row), "{list}\n{row}");
    let poll = rig.now("events_poll", "{}");
    let event = format!(r#"{{"cursor":1,"type":"plugin_approval_requested","raw":{{{record}}}}}"#);
    assert!(poll.contains(&event), "{poll}\n{event}");
    rig.answered_elsewhere(Answer::Deny);
    assert!(rig.list().contains("\"approvals\":[]"));
    let poll = rig.now("events_poll", r#"{"after_cursor":1}"#);
    let event = format!(
        r#""raw":{{"id":"{OURS}","decision":"deny","resolvedBy":"unix:1","ts":{UNIX_MS},"request":{REQUEST}}}}}"#
    );
    assert!(poll.contains(&event), "{poll}\n{event}");
}

#[test]
fn an_answer_at_the_gateway_decides_and_is_told_once() {
    let mut rig = Rig::accepted();
    rig.event("plugin.approval.resolved", THEIRS);
    assert_eq!(
        decided(&mut rig),
        Some((None, "allow-always", "Ada, gateway".to_owned()))
    );
    rig.answered_elsewhere(Answer::AllowAlways);
    assert!(rig.requests.is_empty(), "it knows");
    let poll = rig.now("events_poll", "{}");
    assert_eq!(
        poll.matches("plugin_approval_resolved").count(),
        1,
        "{poll}"
    );
    rig.event("plugin.approval.resolved", THEIRS);
    assert_eq!(decided(&mut rig), None);
}

#[test]
fn the_gateway_is_told_what_was_decided_elsewhere() {
    let rows = [
        (
            HoldEnd::Answered(Answer::AllowOnce, "x".to_owned()),
            Some("allow-once"),
        ),
        (
            HoldEnd::Answered(Answer::Deny, "x".to_owned()),
            Some("deny"),
        ),
        (HoldEnd::Cancelled, Some("deny")),
        (HoldEnd::Expired, None),
    ];
    for (end, told) in rows {
        let mut rig = Rig::accepted();
        rig.close_hold(&end);
        if let Some(decision) = told {
            let params = format!(r#"{{"id":"plugin:1","decision":"{decision}"}}"#);
            let ticket = rig.expect_request("plugin.approval.resolve", &params);
            // The Gateway tells everybody, us too, and then answers.
            let before = rig.now("events_poll", "{}");
            rig.event("plugin.approval.resolved", THEIRS);
            assert_eq!(rig.now("events_poll", "{}"), before, "no news");
            rig.respond(ticket, r#"{"ok":true}"#);
            assert!(rig.bridge.holds.told.is_empty());
        }
        assert!(
            rig.requests.is_empty() && rig.decisions.is_empty(),
            "{end:?}"
        );
        // The same before it was accepted.
        let mut rig = Rig::ready(&Limits::DEFAULT);
        rig.open_hold();
        rig.close_hold(&end);
        rig.accept();
        assert_eq!(rig.requests.len(), usize::from(told.is_some()), "{end:?}");
        assert!(rig.bridge.holds.holds.is_empty());
    }
}

#[test]
fn a_decision_that_overtakes_the_acceptance_counts() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    rig.open_hold();
    rig.event("plugin.approval.resolved", THEIRS);
    assert_eq!(decided(&mut rig), None, "it may be anybody's");
    rig.accept();
    assert_eq!(
        decided(&mut rig),
        Some((None, "allow-always", "Ada, gateway".to_owned()))
    );
}

#[test]
fn what_was_missed_while_the_link_was_lost_is_asked() {
    let mut rig = Rig::accepted();
    rig.bridge.handle_lost(rig.now, "gone");
    rig.bridge.handle_ready(rig.now, false);
    rig.drain();
    let (ticket, ..) = rig.request();
    rig.respond(ticket, "[]");
    let (ticket, ..) = rig.request();
    let listed = r#"[{"id":"plugin:1","request":{}},{"id":"plugin:2","request":{}}]"#;
    rig.respond(ticket, listed);
    let list = rig.list();
    assert!(list.contains(OURS) && list.contains("plugin:2"), "{list}");
    assert!(
        !list.contains("plugin:1"),
        "the same one by another name: {list}"
    );
    let params = r#"{"id":"plugin:1"}"#;
    let ticket = rig.expect_request("plugin.approval.waitDecision", params);
    rig.respond(ticket, r#"{"id":"plugin:1","decision":"deny"}"#);
    assert_eq!(
        decided(&mut rig),
        Some((None, "deny", "gateway".to_owned()))
    );
}

#[test]
fn a_hold_that_the_gateway_did_not_hear_of_is_shown_when_it_is_there() {
    let mut rig = Rig::new(&Limits::DEFAULT, ChannelMode::Auto);
    rig.open_hold();
    assert!(rig.requests.is_empty() && rig.list().contains(OURS));
    rig.advance(30_000);
    for again in [false, true] {
        rig.bridge.handle_ready(rig.now, !again);
        rig.drain();
        rig.answer_lists();
        let params = format!(r#"{REQUEST},"timeoutMs":60000,"twoPhase":true}}"#);
        let ticket = rig.expect_request("plugin.approval.request", &params);
        rig.bridge.handle_lost(rig.now, "gone");
        let message = "gone".to_owned();
        rig.fail(ticket, GatewayError::Closed { message });
    }
    assert!(rig.diagnostics.is_empty() && rig.list().contains(OURS));
}

#[test]
fn a_gateway_that_shows_nothing_is_told_of_once_and_the_call_waits_on() {
    let refused = GatewayError::Remote {
        code: "INVALID_REQUEST".to_owned(),
        message: "missing scope".to_owned(),
        details: None,
    };
    for (refusal, words) in [(Some(refused), "missing scope"), (None, "nobody to ask")] {
        let mut rig = Rig::ready(&Limits::DEFAULT);
        for _ in 0..2 {
            rig.open_hold();
            let (ticket, ..) = rig.request();
            match &refusal {
                Some(error) => rig.fail(ticket, error.clone()),
                None => rig.respond(ticket, r#"{"id":"plugin:1","decision":null}"#),
            }
            assert!(rig.list().contains(OURS) && rig.decisions.is_empty());
            rig.close_hold(&HoldEnd::Cancelled);
            assert!(rig.requests.is_empty());
        }
        assert_eq!(rig.diagnostics.len(), 1);
        let message = &rig.diagnostics[0].message;
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn permissions_respond_decides_by_either_id() {
    for id in [OURS, "plugin:1"] {
        let mut rig = Rig::accepted();
        let arguments = format!(r#"{{"kind":"plugin","id":"{id}","decision":"allow-once"}}"#);
        let call = rig.call("permissions_respond", &arguments);
        assert_eq!(
            decided(&mut rig),
            Some((Some(call), "allow-once", String::new()))
        );
        assert!(rig.requests.is_empty() && rig.answer(call).is_none());
        let other = arguments.replace("\"plugin\"", "\"exec\"");
        rig.call("permissions_respond", &other);
        assert_eq!(rig.request().1, "exec.approval.resolve");
        rig.answered_elsewhere(Answer::AllowOnce);
        rig.requests.clear();
        rig.call("permissions_respond", &arguments);
        assert_eq!(
            rig.request().1,
            "plugin.approval.resolve",
            "it is over here"
        );
    }
}

#[test]
fn long_texts_are_cut_to_what_the_gateway_takes() {
    let mut rig = Rig::ready(&Limits::DEFAULT);
    let long = HeldCall {
        title: "\u{1f600}".repeat(80),
        description: "d".repeat(1_000),
        arguments: format!(r#"{{"a":"{}"}}"#, "x".repeat(1_000)).into(),
        expires_at_ms: rig.now.unix_ms + 3_600_000,
        ..held(rig.now)
    };
    rig.bridge.handle_hold_opened(rig.now, &long);
    rig.drain();
    let (.., params) = rig.request();
    let params: serde_json::Value = serde_json::from_str(&params).expect("JSON");
    let units = |name: &str| params[name].as_str().expect("text").encode_utf16().count();
    assert!(
        units("title") <= 80 && units("description") <= 256,
        "{params}"
    );
    let description = params["description"].as_str().expect("text");
    assert!(
        description.contains("\narguments: {\"a\":\"xxx"),
        "{description}"
    );
    assert_eq!(params["timeoutMs"], 600_000);
}
