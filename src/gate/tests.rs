//! The gate.

use super::*;

fn gate(policy: Policy) -> Gate {
    Gate::new(policy, &Limits::default())
}

fn call(id: u64) -> ToolCall {
    ToolCall {
        id: CallId(id),
        tool: "messages_send".into(),
        arguments: r#"{"text":"hi"}"#.into(),
        params: None,
        server: "openclaw".into(),
        caller: "tester".into(),
        principal: "stdio".into(),
        wants_progress: false,
    }
}

fn at(ms: u64) -> Now {
    Now {
        up: Uptime::from_millis(ms),
        unix_ms: 0,
    }
}

#[test]
fn an_open_gate_lets_everything_pass() {
    let Passage::Open(passed) = gate(Policy::Open).admit(at(0), call(1)) else {
        panic!("not open")
    };
    assert_eq!((passed.id(), passed.tool()), (CallId(1), "messages_send"));
    assert_eq!(passed.arguments(), r#"{"text":"hi"}"#);
}

#[test]
fn the_hook_is_told_everything_and_its_verdict_is_final() {
    let mut gate = gate(Policy::Hook);
    let Passage::Ask(CallId(1), Question::Hook { input }) = gate.admit(at(0), call(1)) else {
        panic!("the hook is not asked")
    };
    assert_eq!(
        input,
        "{\"tool\":\"messages_send\",\"arguments\":{\"text\":\"hi\"},\"server\":\"openclaw\",\"caller\":\"tester\",\"callId\":\"1\"}\n"
    );
    let allow = Verdict::Allow {
        arguments: Some(r#"{"text":"bye"}"#.into()),
    };
    let Some(Passage::Open(passed)) = gate.resolve(at(0), CallId(1), allow.clone()) else {
        panic!("not open")
    };
    assert_eq!(
        passed.arguments(),
        r#"{"text":"bye"}"#,
        "params replace, they do not merge"
    );
    assert!(
        gate.resolve(at(0), CallId(1), allow).is_none(),
        "one verdict per call"
    );
}

#[test]
fn a_held_call_is_refused_at_its_deadline_and_not_before() {
    let mut gate = gate(Policy::Hook);
    let _ = gate.admit(at(0), call(1));
    let hold = read_hook_output(br#"{"requireApproval":{"title":"Sure?","timeoutMs":500}}"#);
    let Some(Passage::Ask(_, Question::Person { title, .. })) =
        gate.resolve(at(0), CallId(1), hold)
    else {
        panic!("nobody is asked")
    };
    assert_eq!(title, "Sure?");
    assert!(gate.is_held(CallId(1)));
    assert_eq!(
        gate.next_deadline().map(|d| d.at),
        Some(Uptime::from_millis(500))
    );
    assert!(gate.poll_expired(at(499)).is_none());
    let Some(Passage::Refused(Refused { reason, .. })) = gate.poll_expired(at(500)) else {
        panic!("still waiting")
    };
    assert!(reason.contains("500 ms"), "{reason}");
    assert!(
        gate.resolve(at(500), CallId(1), Verdict::Allow { arguments: None })
            .is_none()
    );
}

#[test]
fn a_cancelled_call_never_passes() {
    let mut gate = gate(Policy::Embedder);
    let _ = gate.admit(at(0), call(1));
    gate.cancel(CallId(1));
    assert!(
        gate.resolve(at(0), CallId(1), Verdict::Allow { arguments: None })
            .is_none()
    );
}

#[test]
fn hook_output_that_is_not_understood_denies() {
    for bad in [
        "",
        "null",
        "[]",
        "{",
        "{\"block\":1}",
        "{\"params\":[1]}",
        "{} {}",
        "ok",
    ] {
        let verdict = read_hook_output(bad.as_bytes());
        let Verdict::Deny { reason } = verdict else {
            panic!("{bad:?} passed: {verdict:?}")
        };
        assert!(reason.contains("hook failed"), "{reason}");
    }
    assert_eq!(
        read_hook_output(b"{}\n"),
        Verdict::Allow { arguments: None }
    );
    assert_eq!(
        read_hook_output(br#"{"block":true,"blockReason":"no","params":{}}"#),
        Verdict::Deny {
            reason: "no".to_owned()
        }
    );
    assert_eq!(
        read_hook_output(br#"{"params":{"a":1.0}}"#),
        Verdict::Allow {
            arguments: Some(r#"{"a":1.0}"#.into())
        }
    );
}

#[test]
fn params_go_on_as_they_came_but_for_name_and_arguments() {
    let raw = r#"{ "task":{"ttl":1.0},"name" : "messages_send", "arguments":{"text":"hi"}, "_meta":{"v":1e2} }"#;
    let mut one = call(1);
    one.params = Some(raw.into());
    let Passage::Open(passed) = gate(Policy::Open).admit(at(0), one.clone()) else {
        panic!("not open")
    };
    assert_eq!(&*passed.params_for("messages_send"), raw);
    let renamed = raw.replace("\"messages_send\"", "\"send\"");
    assert_eq!(&*passed.params_for("send"), renamed);

    let mut gate = gate(Policy::Hook);
    let _ = gate.admit(at(0), one);
    let allow = Verdict::Allow {
        arguments: Some(r#"{"text":"bye"}"#.into()),
    };
    let Some(Passage::Open(passed)) = gate.resolve(at(0), CallId(1), allow) else {
        panic!("not open")
    };
    assert_eq!(&*passed.params_for("send"), renamed.replace("hi", "bye"));

    let Passage::Open(passed) = self::gate(Policy::Open).admit(at(0), call(2)) else {
        panic!("not open")
    };
    assert_eq!(
        &*passed.params_for("s"),
        r#"{"name":"s","arguments":{"text":"hi"}}"#
    );
}
