//! The rows of the state table of an upstream, and how many servers begin.

use super::*;
use crate::manager::error::{FailureKind, Phase};

#[test]
fn an_idle_server_is_connected_to_at_its_first_use() {
    let mut world = World::new(&["a"]);
    let runtime = world.open();
    world.run(3_600_000);
    assert_eq!(world.starts("a"), 0, "nobody has needed it");
    assert_eq!(world.state(runtime, "a"), ServerState::Idle);

    let ticket = world.request(runtime, "a", "prompts/list");
    assert_eq!(world.state(runtime, "a"), ServerState::Opening);
    world.run(0);

    assert!(world.ok(ticket).contains("\"p\""));
    assert_eq!(world.state(runtime, "a"), ServerState::Ready);
    assert_eq!(world.tools(runtime), ["a__t"], "listed by the way");
    assert_eq!(world.starts("a"), 1);
}

#[test]
fn servers_connect_side_by_side_and_each_has_its_own_time() {
    let mut world = World::new(&["a", "b", "c", "silent", "stuck"]);
    world.server("silent", |_| Vec::new());
    world.manners("stuck").opens_after = None;
    let runtime = world.open();
    world.connect(runtime);

    assert_eq!(world.tools(runtime), ["a__t", "b__t", "c__t"], "at once");
    assert!(!world.manager.is_settled(runtime));
    let quick = world.call(runtime, "b__t");
    world.run(0);
    world.ok(quick);

    world.run(29_999);
    assert!(!world.manager.is_settled(runtime));
    world.run(1);
    assert!(world.manager.is_settled(runtime));
    assert_eq!(world.tools(runtime), ["a__t", "b__t", "c__t"]);
    let told = world.diagnostics(runtime);
    let told: Vec<_> = told
        .iter()
        .map(|one| (one.server.as_str(), one.phase, one.retry_in_ms.is_some()))
        .collect();
    assert_eq!(
        told,
        [
            ("silent", Phase::Initialize, true),
            ("stuck", Phase::Connect, true)
        ]
    );
}

#[test]
fn a_failed_start_is_told_with_all_that_is_known_and_tried_again() {
    let mut world = World::new(&["a", "b"]);
    world.server("b", |heard| match heard.method.as_str() {
        "server/discover" => vec![error(heard, -32601, "no")],
        _ => vec![Act::Stderr("no KEY in env\n".to_owned()), Act::Exit(3)],
    });
    let runtime = world.connected();

    let ticket = world.request(runtime, "b", "prompts/list");
    let error = world.failure(ticket);
    assert_eq!(
        (error.phase, error.facts.exit_code),
        (Phase::Initialize, Some(3))
    );
    assert!(error.message.contains("no KEY in env"), "{error}");
    assert!(error.message.contains("retry after"), "{error}");
    let told = world.diagnostics(runtime);
    let [one] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!((one.server.as_str(), one.phase), ("b", Phase::Initialize));
    assert!(
        one.message.contains("exited with code 3"),
        "{}",
        one.message
    );
    assert!(one.message.contains("no KEY in env"), "{}", one.message);
    let first = one.retry_in_ms.expect("the next try");
    assert!((800..=1_200).contains(&first), "{first}");

    // Each wait is longer, and it is never given up.
    world.run(130_000);
    let starts = world.starts("b");
    assert!((7..=9).contains(&starts), "{starts} starts in 130 s");
    world.server("b", |heard| legacy(heard, &["t"]));
    world.run(36_001);
    assert_eq!(world.tools(runtime), ["a__t", "b__t"]);
    assert!(world.manager.state(runtime, &key("b")).1.is_none());
}

#[test]
fn a_server_that_nobody_wants_is_tried_at_its_next_use_only() {
    let mut world = World::new(&["a"]);
    world.manners("a").missing = true;
    let runtime = world.open();
    let first = world.request(runtime, "a", "prompts/list");
    world.run(0);
    let error = world.failure(first);
    assert_eq!(
        (error.kind, error.phase),
        (FailureKind::Unreachable, Phase::Spawn)
    );

    // While it rests there is an error at once, and no process.
    let second = world.request(runtime, "a", "prompts/list");
    assert!(
        world
            .failure(second)
            .facts
            .retry_in_ms
            .is_some_and(|ms| ms > 0)
    );
    assert!(matches!(
        world.state(runtime, "a"),
        ServerState::Resting { .. }
    ));
    world.run(60_000);
    assert_eq!(world.starts("a"), 1, "nobody asked");

    world.manners("a").missing = false;
    let third = world.request(runtime, "a", "prompts/list");
    world.run(0);
    world.ok(third);
    assert_eq!(world.starts("a"), 2);
}

#[test]
fn all_who_wait_for_one_start_share_it_and_its_error() {
    let mut world = World::new(&["a"]);
    world.manners("a").opens_after = Some(500);
    world.manners("a").missing = true;
    let runtime = world.open();
    let tickets: Vec<TicketId> = (0..8)
        .map(|_| world.request(runtime, "a", "prompts/list"))
        .collect();
    world.run(500);
    let first = world.failure(tickets[0]).clone();
    for ticket in tickets {
        assert_eq!(*world.failure(ticket), first);
    }
    assert_eq!(world.starts("a"), 1);

    // One failed start is not eight failed requests: there is back-off, and no pause.
    world.manners("a").missing = false;
    world.run(1_300);
    let next = world.request(runtime, "a", "prompts/list");
    world.run(500);
    world.ok(next);
}

#[test]
fn a_server_that_dies_of_the_probe_is_given_the_handshake_at_once() {
    let mut world = World::new(&["a"]);
    world.server("a", |heard| match heard.method.as_str() {
        "server/discover" => vec![Act::Exit(1)],
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.open();
    let ticket = world.request(runtime, "a", "prompts/list");
    world.run(0);
    world.ok(ticket);
    assert_eq!(world.starts("a"), 2);
    assert!(world.diagnostics(runtime).is_empty(), "nothing has failed");
    let began: Vec<&str> = world.methods("a").take(2).collect();
    assert_eq!(began, ["server/discover", "initialize"]);

    // It is remembered, over failures too.
    world.manners("a").missing = true;
    world.kill("a");
    let failed = world.request(runtime, "a", "prompts/list");
    world.run(0);
    world.failure(failed);
    world.manners("a").missing = false;
    world.run(2_000);
    let ticket = world.request(runtime, "a", "prompts/list");
    world.run(0);
    world.ok(ticket);
    assert_eq!(world.count("a", "server/discover"), 1);
}

#[test]
fn a_server_that_always_dies_is_not_started_over_and_over() {
    let mut world = World::new(&["a"]);
    world.server("a", |_| vec![Act::Exit(1)]);
    let runtime = world.open();
    let ticket = world.request(runtime, "a", "prompts/list");
    world.run(0);
    assert_eq!(world.starts("a"), 2, "one with the probe, one without");
    assert_eq!(world.failure(ticket).phase, Phase::Initialize);
    assert_eq!(world.diagnostics(runtime).len(), 1);

    // Who has chosen an era has chosen.
    for protocol in ["modern", "legacy"] {
        let mut world = World::new(&["a"]);
        world.server("a", |_| vec![Act::Exit(1)]);
        world.configure(&[(
            "a",
            &format!(r#"{{"command":"a","protocol":"{protocol}"}}"#),
        )]);
        let runtime = world.open();
        world.request(runtime, "a", "prompts/list");
        world.run(0);
        assert_eq!(world.starts("a"), 1, "{protocol}");
    }
}

#[test]
fn after_a_death_the_next_use_starts_it_again() {
    let mut world = World::new(&["a"]);
    let runtime = world.connected();
    world.kill("a");
    assert_eq!(world.state(runtime, "a"), ServerState::Idle);
    assert_eq!(world.tools(runtime), ["a__t"], "the catalog stays");

    let ticket = world.call(runtime, "a__t");
    world.run(0);
    world.ok(ticket);
    assert_eq!(world.starts("a"), 2);
    assert_eq!(
        world.count("a", "server/discover"),
        1,
        "its era is remembered"
    );
}

#[test]
fn a_server_that_keeps_dying_is_waited_for_and_calls_wait_with_it() {
    let mut world = World::new(&["a"]);
    let runtime = world.connected();
    world.kill("a");
    let ticket = world.call(runtime, "a__t");
    world.run(0);
    world.ok(ticket);
    world.kill("a");
    assert!(matches!(
        world.state(runtime, "a"),
        ServerState::Resting { .. }
    ));

    let waits = world.call(runtime, "a__t");
    world.run(1_000);
    assert!(world.answer(waits).is_none(), "neither sent nor refused");
    world.run(1_500);
    world.ok(waits);
    assert_eq!(world.starts("a"), 3);

    // Good service, and the next death is the first again.
    world.run(10_000);
    world.kill("a");
    let ticket = world.call(runtime, "a__t");
    world.run(0);
    world.ok(ticket);
}

#[test]
fn a_process_is_not_started_while_the_one_before_it_still_runs() {
    let mut world = World::new(&["a"]);
    let runtime = world.connected();
    world.manners("a").ends_with_input = false;
    world.server("a", |heard| match heard.method.as_str() {
        "tools/call" => vec![Act::Eof],
        _ => legacy(heard, &["t"]),
    });
    let lost = world.call(runtime, "a__t");
    world.run(100);
    assert!(world.failure(lost).message.contains("closed its output"));
    let next = world.request(runtime, "a", "prompts/list");
    world.run(800);
    assert_eq!((world.starts("a"), world.running()), (1, 1));
    world.run(200);
    world.ok(next);
    assert_eq!((world.starts("a"), world.running()), (2, 1));
}

/// Connects to a server with these capabilities, and gives what it has heard and shows.
fn listed_with(capabilities: &'static str, knows_tools: bool) -> (usize, Vec<String>, World) {
    let mut world = World::new(&["a"]);
    world.server("a", move |heard| match heard.method.as_str() {
        "initialize" => {
            let capabilities: serde_json::Value = serde_json::from_str(capabilities).expect("JSON");
            vec![result(
                heard,
                json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {}}),
            )]
        }
        "tools/list" if !knows_tools => vec![error(heard, -32601, "no such method")],
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.connected();
    assert!(world.manager.is_settled(runtime));
    assert!(world.manager.state(runtime, &key("a")).1.is_none());
    let catalog = world.manager.catalog(runtime).expect("a runtime");
    assert!(
        catalog.tools_of(&key("a")).is_some(),
        "what it has is known"
    );
    (world.count("a", "tools/list"), world.tools(runtime), world)
}

#[test]
fn a_server_that_declares_other_things_is_not_asked_for_tools() {
    let (asked, shown, _) = listed_with(r#"{"prompts":{}}"#, true);
    assert_eq!((asked, shown.len()), (0, 0));
}

#[test]
fn a_server_that_declares_nothing_is_asked_and_may_say_no() {
    let (asked, shown, _) = listed_with("{}", true);
    assert_eq!((asked, shown), (1, vec!["a__t".to_owned()]));
    let (asked, shown, _) = listed_with("{}", false);
    assert_eq!((asked, shown.len()), (1, 0));
}

#[test]
fn tools_that_a_new_version_no_longer_has_are_gone() {
    let mut world = World::new(&["a"]);
    world.server("a", |heard| match (heard.method.as_str(), heard.start) {
        ("tools/list", 1) => legacy(heard, &["old", "kept"]),
        _ => legacy(heard, &["kept"]),
    });
    let runtime = world.connected();
    assert_eq!(world.tools(runtime), ["a__kept", "a__old"]);
    world.told.clear();
    world.kill("a");
    let ticket = world.call(runtime, "a__kept");
    world.run(0);
    world.ok(ticket);
    assert_eq!(world.tools(runtime), ["a__kept"]);
    let changes = |world: &World| {
        let told = world.told.iter();
        told.filter(|one| matches!(one, ManagerOutput::CatalogChanged(_)))
            .count()
    };
    assert_eq!(changes(&world), 1);
    world.kill("a");
    world.run(11_000);
    world.request(runtime, "a", "prompts/list");
    world.run(5_000);
    assert_eq!(changes(&world), 1, "the same list is no change");
}
