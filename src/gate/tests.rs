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
        "{\"tool\":\"messages_send\",\"arguments\":{\"text\":\"hi\"},\"server\":\"openclaw\",\"caller\":\"tester\",\"principal\":\"stdio\",\"callId\":\"1\"}\n"
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
fn allow() -> Verdict {
    Verdict::Allow { arguments: None }
}

fn replace(arguments: &str) -> Verdict {
    Verdict::Allow {
        arguments: Some(arguments.into()),
    }
}

fn hold_action(timeout_ms: u64) -> Action {
    Action::Hold {
        title: Some("Send it?".to_owned()),
        description: None,
        timeout: Some(Duration::from_millis(timeout_ms)),
    }
}

fn ruled(policy: Policy, rules: Vec<RuleSpec>, hook: HookScope) -> Gate {
    let mut gate = gate(policy);
    let spec = RulesSpec {
        rules,
        hook,
        ..RulesSpec::default()
    };
    let rules = Rules::compile(spec, &Limits::DEFAULT).expect("good rules");
    gate.set_rules(rules).expect("a hook for them");
    gate
}

fn rule(schema: Option<&str>, action: Action) -> RuleSpec {
    RuleSpec {
        arguments: schema.map(str::to_owned),
        action,
        ..RuleSpec::default()
    }
}

fn id_of(gate: &Gate) -> String {
    gate.held().next().expect("a held call").id.clone()
}

#[track_caller]
fn opened(passage: Option<Passage>) -> GatedCall {
    match passage {
        Some(Passage::Open(call)) => call,
        other => panic!("not open: {other:?}"),
    }
}

#[track_caller]
fn refused(passage: Option<Passage>) -> Refused {
    match passage {
        Some(Passage::Refused(refused)) => refused,
        other => panic!("not refused: {other:?}"),
    }
}

#[track_caller]
fn asks_hook(passage: Option<Passage>) {
    let asks = matches!(passage, Some(Passage::Ask(_, Question::Hook { .. })));
    assert!(asks, "the hook is not asked: {passage:?}");
}

#[test]
fn a_rule_that_refuses_asks_nobody() {
    let deny = Action::Deny {
        reason: Some("not on a Monday".to_owned()),
    };
    let mut gate = ruled(Policy::Hook, vec![rule(None, deny)], HookScope::All);
    let no = refused(Some(gate.admit(at(0), call(1))));
    assert_eq!(no.reason, "tool call refused: not on a Monday");
    assert_eq!((no.decision.by, no.decision.rule), (Decider::Rule, Some(0)));
    assert_eq!(no.call.id, CallId(1));
    assert_eq!(gate.poll_hold(), None);
}

#[test]
fn the_hook_is_asked_about_all_or_about_those_a_rule_names() {
    let named = RuleSpec {
        tools: vec!["messages_*".to_owned()],
        action: Action::Hook,
        ..RuleSpec::default()
    };
    let other = ToolCall {
        tool: "events_poll".into(),
        ..call(2)
    };
    let mut all = ruled(Policy::Hook, vec![named.clone()], HookScope::All);
    asks_hook(Some(all.admit(at(0), call(1))));
    asks_hook(Some(all.admit(at(0), other.clone())));
    let mut some = ruled(Policy::Hook, vec![named.clone()], HookScope::Ruled);
    asks_hook(Some(some.admit(at(0), call(1))));
    let passed = opened(Some(some.admit(at(0), other)));
    assert_eq!(passed.decision(), &Decision::default());
    let spec = RulesSpec {
        rules: vec![RuleSpec::default(), named],
        ..RulesSpec::default()
    };
    let rules = Rules::compile(spec, &Limits::DEFAULT).expect("good");
    let error = gate(Policy::Open).set_rules(rules).expect_err("no hook");
    assert!(
        error.to_string().starts_with("rules[1].action: hook "),
        "{error}"
    );
}

#[test]
fn a_held_call_is_shown_and_answered_by_its_id_once() {
    let mut gate = ruled(
        Policy::Open,
        vec![rule(None, hold_action(500))],
        HookScope::All,
    );
    assert!(gate.wants_tag());
    gate.set_tag("7f".to_owned());
    let Passage::Ask(_, Question::Person { title, .. }) = gate.admit(at(5), call(1)) else {
        panic!("nobody is asked")
    };
    assert_eq!(title, "Send it?");
    let held = gate.held().next().expect("held").clone();
    assert_eq!((&*held.id, held.call), ("hold-7f-1", CallId(1)));
    assert_eq!((held.rule, held.expires_at_ms), (Some(0), 500));
    assert_eq!(&*held.arguments, r#"{"text":"hi"}"#);
    assert_eq!(gate.poll_hold(), Some(HoldEvent::Opened(held)));
    assert_eq!(
        gate.answer("hold-7f-2", Answer::AllowOnce, "me", None)
            .err(),
        Some(NotHeld)
    );
    let (passage, kept) = gate
        .answer("hold-7f-1", Answer::AllowOnce, "unix:7", None)
        .expect("it is held");
    assert!(kept);
    let passed = opened(Some(passage));
    let person = Decider::Person("unix:7".into());
    assert_eq!(passed.decision().by, person);
    assert_eq!(passed.decision().approval, Some(person));
    let end = HoldEnd::Answered(Answer::AllowOnce, "unix:7".to_owned());
    let id = "hold-7f-1".to_owned();
    assert_eq!(gate.poll_hold(), Some(HoldEvent::Closed { id, end }));
    assert!(gate.answer("hold-7f-1", Answer::Deny, "me", None).is_err());
    assert_eq!(gate.next_deadline(), None);
}

#[test]
fn a_no_and_silence_refuse_and_say_so() {
    let mut gate = ruled(
        Policy::Open,
        vec![rule(None, hold_action(500))],
        HookScope::All,
    );
    for id in 1..=2 {
        let _ = gate.admit(at(0), call(id));
    }
    let first = id_of(&gate);
    let no = gate.answer(&first, Answer::Deny, "unix:7", Some("too\nlate"));
    let no = refused(no.ok().map(|(passage, _)| passage));
    assert_eq!(
        no.reason,
        "tool call refused: denied by unix:7: too\\u{a}late"
    );
    assert!(gate.poll_expired(at(499)).is_none());
    let no = refused(gate.poll_expired(at(500)));
    assert_eq!((no.call.id, no.decision.by), (CallId(2), Decider::Timeout));
    assert_eq!(no.decision.rule, Some(0));
    assert!(gate.poll_expired(at(500)).is_none());
    let ends = std::iter::from_fn(|| gate.poll_hold())
        .filter(|event| matches!(event, HoldEvent::Closed { .. }));
    assert_eq!(ends.count(), 2);
}

#[test]
fn whoever_is_cancelled_in_whatever_state_leaves_nothing() {
    for policy in [Policy::Open, Policy::Hook, Policy::Embedder] {
        let mut gate = ruled(policy, vec![rule(None, hold_action(500))], HookScope::All);
        let _ = gate.admit(at(0), call(1));
        let id = id_of(&gate);
        gate.cancel(CallId(1));
        let _ = gate.poll_hold();
        let end = HoldEnd::Cancelled;
        let closed = HoldEvent::Closed {
            id: id.clone(),
            end,
        };
        assert_eq!(gate.poll_hold(), Some(closed));
        assert!(gate.answer(&id, Answer::AllowOnce, "me", None).is_err());
        assert_eq!((gate.held().count(), gate.next_deadline()), (0, None));
    }
}

#[test]
fn the_hook_is_asked_after_the_person() {
    let mut gate = ruled(
        Policy::Hook,
        vec![rule(None, hold_action(500))],
        HookScope::All,
    );
    let _ = gate.admit(at(0), call(1));
    let id = id_of(&gate);
    let (passage, _) = gate
        .answer(&id, Answer::AllowOnce, "me", None)
        .expect("held");
    asks_hook(Some(passage));
    assert_eq!(gate.held().count(), 0);
    let passed = opened(gate.resolve(at(1), CallId(1), allow()));
    assert_eq!(passed.decision().by, Decider::Hook);
    let approval = passed.decision().approval.clone();
    assert_eq!(approval, Some(Decider::Person("me".into())));
}

#[test]
fn always_spares_the_next_question_and_nothing_else() {
    let hold = rule(None, hold_action(500));
    let mut gate = ruled(Policy::Hook, vec![hold], HookScope::All);
    let _ = gate.admit(at(0), call(1));
    let id = id_of(&gate);
    gate.answer(&id, Answer::AllowAlways, "me", None)
        .expect("held");
    gate.cancel(CallId(1));
    // The hook is asked all the same, and its own question for a person is spared, too.
    asks_hook(Some(gate.admit(at(0), call(2))));
    let hold = read_hook_output(br#"{"requireApproval":{"title":"Sure?"}}"#);
    let passed = opened(gate.resolve(at(0), CallId(2), hold));
    assert_eq!(passed.decision().approval, Some(Decider::Always));
    // Another tool, server, caller or principal is another matter.
    let others: [fn(&mut ToolCall); 4] = [
        |call| call.tool = "x".into(),
        |call| call.server = "x".into(),
        |call| call.caller = "x".into(),
        |call| call.principal = "x".into(),
    ];
    for (i, change) in (3..).zip(others) {
        let mut other = call(i);
        change(&mut other);
        let _ = gate.admit(at(0), other);
        assert!(gate.is_held(CallId(i)), "{i}");
    }
}

#[test]
fn approvals_always_max() {
    let limits = Limits {
        approvals_always_max: 1,
        ..Limits::DEFAULT
    };
    let mut gate = Gate::new(Policy::Open, &limits);
    let spec = RulesSpec {
        rules: vec![rule(None, hold_action(500))],
        ..RulesSpec::default()
    };
    gate.set_rules(Rules::compile(spec, &limits).expect("good"))
        .expect("no hook in it");
    for (id, room) in [(1, true), (2, false)] {
        let other = ToolCall {
            tool: format!("tool {id}").into(),
            ..call(id)
        };
        let _ = gate.admit(at(0), other);
        let (passage, kept) = gate
            .answer(&id_of(&gate), Answer::AllowAlways, "me", None)
            .expect("held");
        opened(Some(passage));
        assert_eq!(kept, room);
    }
}

#[test]
fn rules_hold_for_the_arguments_that_the_hook_made() {
    let evil = r#"{"properties":{"text":{"const":"evil"}},"required":["text"]}"#;
    let odd = r#"{"properties":{"text":{"const":"odd"}},"required":["text"]}"#;
    let rules = vec![
        rule(Some(evil), Action::Deny { reason: None }),
        rule(Some(odd), hold_action(500)),
    ];
    let mut gate = ruled(Policy::Hook, rules, HookScope::All);
    for id in 1..=4 {
        asks_hook(Some(gate.admit(at(0), call(id))));
    }
    let no = refused(gate.resolve(at(0), CallId(1), replace(r#"{"text":"evil"}"#)));
    assert_eq!((no.decision.by, no.decision.rule), (Decider::Rule, Some(0)));
    let yes = opened(gate.resolve(at(0), CallId(2), replace(r#"{"text":"good"}"#)));
    assert_eq!(
        (&yes.decision().by, yes.decision().replaced),
        (&Decider::Hook, true)
    );
    // A person is asked about what the hook made of it, and then the call runs.
    let passage = gate.resolve(at(0), CallId(3), replace(r#"{"text":"odd"}"#));
    assert!(matches!(
        passage,
        Some(Passage::Ask(_, Question::Person { .. }))
    ));
    let (passage, _) = gate
        .answer(&id_of(&gate), Answer::AllowOnce, "me", None)
        .expect("held");
    assert_eq!(opened(Some(passage)).arguments(), r#"{"text":"odd"}"#);
    let hold = read_hook_output(br#"{"params":{"text":"evil"},"requireApproval":{}}"#);
    let no = refused(gate.resolve(at(0), CallId(4), hold));
    assert_eq!(no.decision.rule, Some(0));
}

#[test]
fn the_embedding_program_answers_a_rule_that_holds_and_is_not_asked_twice() {
    let mut gate = ruled(
        Policy::Embedder,
        vec![rule(None, hold_action(500))],
        HookScope::All,
    );
    for id in 1..=2 {
        let asked = gate.admit(at(0), call(id));
        assert!(matches!(asked, Passage::Ask(_, Question::Person { .. })));
    }
    let passed = opened(gate.resolve(at(0), CallId(1), allow()));
    assert_eq!(passed.decision().approval, Some(Decider::Embedder));
    // Somebody else may be quicker.
    let (passage, _) = gate
        .answer(&id_of(&gate), Answer::AllowOnce, "me", None)
        .expect("held");
    opened(Some(passage));
}

#[test]
fn a_changed_rule_leaves_those_that_wait_alone() {
    let mut gate = ruled(
        Policy::Open,
        vec![rule(None, hold_action(500))],
        HookScope::All,
    );
    let _ = gate.admit(at(0), call(1));
    gate.set_rules(Rules::default()).expect("nothing in it");
    opened(Some(gate.admit(at(0), call(2))));
    let id = id_of(&gate);
    assert!(gate.answer(&id, Answer::AllowOnce, "me", None).is_ok());
}
