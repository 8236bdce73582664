//! One call, from the asking to its one answer.

use super::*;
use crate::manager::error::FailureKind;

/// Answers everything but calls.
fn silent(heard: &Heard) -> Vec<Act> {
    match heard.method.as_str() {
        "tools/call" => Vec::new(),
        _ => legacy(heard, &["t", "u"]),
    }
}

fn slow(heard: &Heard, ms: u64) -> Vec<Act> {
    match heard.method.as_str() {
        "tools/call" => [vec![Act::Wait(ms)], legacy(heard, &["t"])].concat(),
        _ => legacy(heard, &["t"]),
    }
}

#[test]
fn calls_wait_for_each_other_unless_the_record_allows_it() {
    for (record, seconds) in [
        (r#"{"command":"a"}"#, 3),
        (r#"{"command":"a","supportsParallelToolCalls":true}"#, 1),
    ] {
        let mut world = World::new(&["a"]);
        world.configure(&[("a", record)]);
        world.server("a", |heard| slow(heard, 1_000));
        let runtime = world.connected();
        let tickets = [(); 3].map(|()| world.call(runtime, "a__t"));
        let beside = world.request(runtime, "a", "prompts/list");
        world.run(0);
        world.ok(beside);
        world.run(seconds * 1_000 - 1);
        assert!(world.answer(tickets[2]).is_none(), "{record}");
        world.run(1);
        for ticket in tickets {
            world.ok(ticket);
        }
    }
}

#[test]
fn what_is_cancelled_is_taken_back_and_a_late_answer_is_harmless() {
    let mut world = World::new(&["a"]);
    world.server("a", |heard| slow(heard, 1_000));
    let runtime = world.connected();
    let (first, second, third) = (
        world.call(runtime, "a__t"),
        world.call(runtime, "a__t"),
        world.call(runtime, "a__t"),
    );
    world.cancel(first);
    world.cancel(third);
    world.run(5_000);
    assert!(world.answer(first).is_none() && world.answer(third).is_none());
    world.ok(second);
    assert_eq!(world.count("a", "tools/call"), 2, "the third never left");
    let (_, told) = world
        .heard
        .iter()
        .find(|(_, heard)| heard.method == "notifications/cancelled")
        .expect("taken back");
    let (_, sent) = world
        .heard
        .iter()
        .find(|(_, heard)| heard.method == "tools/call")
        .expect("sent");
    assert_eq!(told.params["requestId"], sent.id);
    assert_eq!(told.params["reason"], "enough");
    assert_eq!(world.state(runtime, "a"), ServerState::Ready);
}

#[test]
fn time_limits_count_as_failures_and_the_pause_says_when_it_ends() {
    let mut world = World::new(&["a"]);
    world.configure(&[("a", r#"{"command":"a","requestTimeoutMs":20000}"#)]);
    world.server("a", silent);
    let runtime = world.connected();
    for _ in 0..3 {
        let ticket = world.call(runtime, "a__t");
        world.run(20_000);
        let error = world.failure(ticket);
        assert_eq!(
            (error.kind, error.facts.limit),
            (FailureKind::TimedOut, Some(20_000))
        );
    }
    // From the end of the last failure, though each took 20 s.
    let paused = world.call(runtime, "a__t");
    let error = world.failure(paused);
    assert_eq!(error.kind, FailureKind::Unavailable);
    assert_eq!(error.facts.retry_in_ms, Some(60_000));
    assert!(error.message.contains("retry after 60 s"), "{error}");
    let told = world.diagnostics(runtime);
    assert!(told.iter().any(|one| one.code == Some("paused")));
    world.run(59_999);
    let early = world.call(runtime, "a__t");
    assert!(world.failure(early).message.contains("retry after 1 s"));

    // One goes first and finds out; the others are told to come back.
    world.run(1);
    world.server("a", |heard| slow(heard, 10));
    let (probe, other) = (world.call(runtime, "a__t"), world.call(runtime, "a__t"));
    world.failure(other);
    world.run(10);
    world.ok(probe);
    let after = world.call(runtime, "a__t");
    world.run(10);
    world.ok(after);
}

#[test]
fn a_death_is_one_error_for_what_was_open_and_nothing_is_sent_twice() {
    let mut world = World::new(&["a"]);
    world.server("a", |heard| match (heard.method.as_str(), heard.start) {
        ("tools/call", 1) => vec![
            Act::Stderr("oops\n".to_owned()),
            Act::Wait(50),
            Act::Exit(9),
        ],
        ("prompts/list", 1) => Vec::new(),
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.connected();
    let ran = world.call(runtime, "a__t");
    let waits = world.call(runtime, "a__t");
    let beside = world.request(runtime, "a", "prompts/list");
    world.run(50);
    for ticket in [ran, beside] {
        let error = world.failure(ticket);
        assert_eq!(
            (error.kind, error.facts.exit_code),
            (FailureKind::Closed, Some(9))
        );
        assert!(error.message.contains("oops"), "{error}");
        assert!(!error.facts.never_ran);
    }
    world.run(1_000);
    world.ok(waits);
    assert_eq!(world.count("a", "tools/call"), 2, "one each");
    assert_eq!(world.count("a", "prompts/list"), 1);
    assert_eq!(world.starts("a"), 2);
}

#[test]
fn a_death_with_many_calls_open_is_one_failure() {
    let mut world = World::new(&["a"]);
    world.configure(&[("a", r#"{"command":"a","supportsParallelToolCalls":true}"#)]);
    world.server("a", silent);
    let runtime = world.connected();
    let lost: Vec<TicketId> = (0..10).map(|_| world.call(runtime, "a__t")).collect();
    world.kill("a");
    for ticket in lost {
        assert_eq!(
            world.failure(ticket).facts.signal.as_deref(),
            Some("SIGKILL")
        );
    }
    world.server("a", |heard| legacy(heard, &["t"]));
    let next = world.call(runtime, "a__t");
    world.run(0);
    world.ok(next);
}

#[test]
fn a_name_that_is_not_known_yet_waits_for_every_server() {
    let mut world = World::new(&["a", "b"]);
    world.manners("b").opens_after = Some(5_000);
    let runtime = world.open();
    let ticket = world.call(runtime, "b__t");
    let unknown = world.call(runtime, "typo");
    let cancelled = world.call(runtime, "b__t");
    world.cancel(cancelled);
    world.run(4_999);
    assert!(world.answer(ticket).is_none() && world.answer(unknown).is_none());
    world.run(1);
    world.ok(ticket);
    let error = world.failure(unknown);
    assert_eq!(error.kind, FailureKind::Arguments);
    assert_eq!(error.message, "unknown tool typo");
    assert_eq!(world.count("b", "tools/call"), 1);
}

#[test]
fn an_unknown_tool_names_the_servers_it_could_have_been_of() {
    let mut world = World::new(&["a", "b", "c"]);
    world.manners("b").missing = true;
    world.manners("c").missing = true;
    let runtime = world.connected();
    let unknown = world.call(runtime, "typo");
    let error = world.failure(unknown);
    assert_eq!(error.kind, FailureKind::Arguments);
    for part in [
        "unknown tool typo",
        "available: b (",
        ", c (",
        "no such program",
    ] {
        assert!(error.message.contains(part), "{error}");
    }
    assert!(!error.message.contains(" a ("), "{error}");
    // Whose it was is clear here.
    let of_b = world.call(runtime, "b__t");
    let error = world.failure(of_b);
    assert_eq!(
        (error.kind, error.server.as_str()),
        (FailureKind::Unreachable, "b")
    );
    // One that is there has no such tool, whatever the others are.
    let of_a = world.call(runtime, "a__no");
    assert_eq!(world.failure(of_a).kind, FailureKind::Arguments);
}

#[test]
fn the_failure_of_the_only_server_is_the_reason() {
    let mut world = World::new(&["a"]);
    world.manners("a").missing = true;
    let runtime = world.open_with(Prefix::Auto);
    let ticket = world.call(runtime, "t");
    world.run(0);
    assert_eq!(world.failure(ticket).kind, FailureKind::Unreachable);
}

#[test]
fn arguments_are_checked_before_and_results_after() {
    let mut world = World::new(&["a"]);
    let answer = std::rc::Rc::new(std::cell::RefCell::new(json!({})));
    let given = std::rc::Rc::clone(&answer);
    world.server("a", move |heard| match heard.method.as_str() {
        "tools/list" => vec![result(
            heard,
            json!({"tools": [{
                "name": "t",
                "inputSchema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
                "outputSchema": {"type": "object", "required": ["sum"]},
            }]}),
        )],
        "tools/call" => vec![result(heard, given.borrow().clone())],
        _ => legacy(heard, &[]),
    });
    let runtime = world.connected();
    let checked = Options {
        validate: true,
        ..Options::default()
    };

    let wrong = world.call_with(runtime, "a__t", r#"{"n":"x"}"#, checked.clone());
    let error = world.failure(wrong);
    assert_eq!(
        (error.kind, error.facts.never_ran),
        (FailureKind::Arguments, true)
    );
    assert_eq!(world.count("a", "tools/call"), 0, "nothing was sent");

    let rows = [
        (
            json!({"content": [], "structuredContent": {"sum": 1}}),
            None,
        ),
        (
            json!({"content": [], "structuredContent": {}}),
            Some(FailureKind::Protocol),
        ),
        (json!({"content": [], "isError": true}), None),
        (json!({"content": []}), None),
    ];
    for (given, kind) in rows {
        *answer.borrow_mut() = given.clone();
        let ticket = world.call_with(runtime, "a__t", r#"{"n":1}"#, checked.clone());
        world.run(0);
        match kind {
            None => drop(world.ok(ticket).to_owned()),
            Some(kind) => assert_eq!(world.failure(ticket).kind, kind, "{given}"),
        }
    }
    let told = world.diagnostics(runtime);
    let without = told
        .iter()
        .filter(|one| one.code == Some("no-structured-content"));
    assert_eq!(without.count(), 1);

    // Unless it is asked for nothing is looked at.
    let passed = world.call_with(runtime, "a__t", r#"{"n":"x"}"#, Options::default());
    world.run(0);
    world.ok(passed);
}

#[test]
fn questions_of_a_server_are_put_and_answered() {
    let mut world = World::new(&["a"]);
    world.server("a", |heard| match heard.method.as_str() {
        "tools/call" => vec![say(json!({
            "jsonrpc": "2.0", "id": "q1", "method": "sampling/createMessage", "params": {"maxTokens": 5},
        }))],
        "" => vec![say(json!({"jsonrpc": "2.0", "id": 0, "result": heard.message["result"]}))],
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.connected();
    world.call(runtime, "a__t");
    world.run(0);
    let asked = questions(&world);
    let [(id, of, method)] = asked.as_slice() else {
        panic!("{asked:?}");
    };
    assert_eq!((*of, method.as_str()), (runtime, "sampling/createMessage"));
    world
        .manager
        .answer(world.now(), *id, Ok(r#"{"model":"m"}"#));
    world.manager.answer(world.now(), *id, Ok(r#"{"twice":1}"#));
    world.drain();
    world.run(0);
    let answers: Vec<&Value> = world
        .heard
        .iter()
        .filter(|(_, heard)| heard.id == "q1")
        .map(|(_, heard)| &heard.message["result"])
        .collect();
    assert_eq!(answers, [&json!({"model": "m"})]);
}

fn questions(world: &World) -> Vec<(QuestionId, RuntimeId, String)> {
    let told = world.told.iter().filter_map(|output| {
        let ManagerOutput::Question {
            id,
            runtime,
            method,
            ..
        } = output
        else {
            return None;
        };
        Some((*id, *runtime, method.to_string()))
    });
    told.collect()
}

fn gone(world: &World) -> usize {
    let told = world.told.iter();
    told.filter(|output| matches!(output, ManagerOutput::QuestionGone(_)))
        .count()
}

#[test]
fn a_question_ends_with_its_server_and_with_its_runtime() {
    for death in [true, false] {
        let mut world = World::new(&["a"]);
        world.server("a", silent);
        let runtime = world.connected();
        world.speak(
            "a",
            json!({"jsonrpc": "2.0", "id": 5, "method": "sampling/createMessage", "params": {}}),
        );
        let asked = questions(&world);
        assert_eq!(asked.len(), 1);
        match death {
            true => world.kill("a"),
            false => world.close_runtime(runtime),
        }
        assert_eq!(gone(&world), 1, "death: {death}");
        assert!(world.manager.questions.is_empty());
        // Its answer comes late and concerns nobody.
        world.manager.answer(world.now(), asked[0].0, Ok("{}"));
        world.run(5_000);
    }
}

#[test]
fn a_thousand_lines_of_noise_are_one_thing_to_be_told_of() {
    let mut world = World::new(&["a"]);
    let runtime = world.connected();
    world.speak_raw("a", &"starting up\n".repeat(1_000));
    let told = world.diagnostics(runtime);
    let [one] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!((one.code, one.count), (Some("stdout-noise"), Some(1_000)));
    assert_eq!(one.sample.as_deref(), Some("starting up"));
    let ticket = world.call(runtime, "a__t");
    world.run(0);
    world.ok(ticket);
}

#[test]
fn all_pages_of_a_list_are_one_answer() {
    let mut world = World::new(&["a"]);
    world.server("a", |heard| {
        match (heard.method.as_str(), heard.params["cursor"].as_str()) {
            ("prompts/list", None) => {
                vec![result(
                    heard,
                    json!({"prompts": [{"name": "p"}], "nextCursor": "2"}),
                )]
            }
            ("prompts/list", Some("2")) => vec![result(heard, json!({"prompts": [{"name": "q"}]}))],
            _ => legacy(heard, &["t"]),
        }
    });
    let runtime = world.connected();
    let now = world.now();
    let ticket = world
        .manager
        .list(now, runtime, &key("a"), PagedList::Prompts);
    world.run(0);
    assert_eq!(world.ok(ticket), r#"[{"name":"p"},{"name":"q"}]"#);
}

#[test]
fn a_change_of_the_tools_leads_to_one_listing() {
    let mut world = World::new(&["a"]);
    let runtime = world.connected();
    world.server("a", |heard| legacy(heard, &["t", "new"]));
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    for _ in 0..5 {
        world.speak("a", changed.clone());
    }
    world.run(100);
    assert_eq!(world.tools(runtime), ["a__new", "a__t"]);
    assert_eq!(world.count("a", "tools/list"), 2);
}

#[test]
fn tools_call_goes_through_the_gate_only() {
    let mut world = World::new(&["a"]);
    let runtime = world.connected();
    let ticket = world.request(runtime, "a", "tools/call");
    assert!(world.failure(ticket).message.contains("gate"));
    let unknown = world.request(runtime, "z", "prompts/list");
    assert_eq!(world.failure(unknown).kind, FailureKind::Config);
}

#[test]
fn progress_reaches_its_ticket() {
    let mut world = World::new(&["a"]);
    world.server("a", |heard| match heard.method.as_str() {
        "tools/call" => vec![
            say(json!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": heard.params["_meta"]["progressToken"], "progress": 1}})),
            Act::Wait(10),
            result(heard, json!({"content": []})),
        ],
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.connected();
    let options = Options {
        wants_progress: true,
        ..Options::default()
    };
    let ticket = world.call_with(runtime, "a__t", "{}", options);
    world.run(10);
    world.ok(ticket);
    let told = world.told.iter();
    let of = |output: &&ManagerOutput| matches!(output, ManagerOutput::Progress { ticket: of, .. } if *of == ticket);
    assert_eq!(told.filter(of).count(), 1);
}

#[test]
fn calls_that_are_passed_on_overlap_unless_the_record_forbids_it() {
    for (more, bridged, sent) in [
        ("", false, 1),
        ("", true, 2),
        (r#","supportsParallelToolCalls":false"#, true, 1),
        (r#","supportsParallelToolCalls":true"#, false, 2),
    ] {
        let mut world = World::new(&["a"]);
        world.configure(&[("a", &format!(r#"{{"command":"a"{more}}}"#))]);
        world.server("a", silent);
        let runtime = world.connected();
        for _ in 0..2 {
            let options = Options {
                bridged,
                ..Options::default()
            };
            world.call_with(runtime, "a__t", "{}", options);
        }
        world.run(1);
        let calls = world.heard.iter();
        let calls = calls.filter(|(_, heard)| heard.method == "tools/call");
        assert_eq!(calls.count(), sent, "{more} {bridged}");
    }
}
