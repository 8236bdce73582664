//! Limits of the manager, at their edges.

use std::time::Duration;

use super::*;
use crate::manager::error::FailureKind;

fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

#[test]
fn runtimes_max() {
    let mut world = World::with(&["a"], limits(|limits| limits.runtimes_max = 2));
    let (first, _) = (world.open(), world.open());
    let now = world.now();
    assert_eq!(world.manager.open_runtime(now, Prefix::Auto), Err(2));
    world.close_runtime(first);
    world.open();
}

#[test]
fn upstream_requests_open_max() {
    let mut world = World::with(
        &["a"],
        limits(|limits| limits.upstream_requests_open_max = 3),
    );
    world.server("a", |heard| match heard.method.as_str() {
        "tools/call" => [vec![Act::Wait(10)], legacy(heard, &["t"])].concat(),
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.connected();
    // One is sent, two wait behind it.
    let taken = [(); 3].map(|()| world.call(runtime, "a__t"));
    let refused = world.call(runtime, "a__t");
    let error = world.failure(refused);
    assert_eq!(error.kind, FailureKind::Limit);
    assert_eq!((error.facts.value, error.facts.limit), (Some(3), Some(3)));
    world.run(30);
    for ticket in taken {
        world.ok(ticket);
    }
    let next = world.call(runtime, "a__t");
    world.run(10);
    world.ok(next);
}

#[test]
fn upstream_requests_open_max_of_calls_that_wait_for_a_catalog() {
    let mut world = World::with(
        &["a"],
        limits(|limits| limits.upstream_requests_open_max = 2),
    );
    world.manners("a").opens_after = Some(10);
    let runtime = world.open();
    let taken = [(); 2].map(|()| world.call(runtime, "a__t"));
    let refused = world.call(runtime, "a__t");
    let error = world.failure(refused);
    assert_eq!(
        (error.kind, error.facts.limit),
        (FailureKind::Limit, Some(2))
    );
    world.run(10);
    for ticket in taken {
        world.ok(ticket);
    }
}

#[test]
fn upstream_out_bytes_max_fails_what_does_not_fit_and_nothing_else() {
    let mut world = World::new(&["a"]);
    world.configure(&[(
        "a",
        r#"{"command":"a","supportsParallelToolCalls":true,"writeQueueBytes":4096}"#,
    )]);
    let runtime = world.connected();
    world.manners("a").reads = false;
    let arguments = format!(r#"{{"x":"{}"}}"#, "x".repeat(1_000));
    let tickets: Vec<TicketId> = (0..255)
        .map(|_| world.call_with(runtime, "a__t", &arguments, Options::default()))
        .collect();
    let kept = tickets.iter().filter(|of| world.answer(**of).is_none());
    assert_eq!(kept.count(), 3);
    let error = world.failure(tickets[3]);
    assert!(error.message.contains("server is not reading"), "{error}");
    assert_eq!(error.facts.limit, Some(4_096));
}

#[test]
fn many_that_waited_may_fail_at_once() {
    // They all leave in one turn, and each is answered in it.
    let mut world = World::new(&["a"]);
    world.configure(&[(
        "a",
        r#"{"command":"a","supportsParallelToolCalls":true,"writeQueueBytes":4096}"#,
    )]);
    let runtime = world.connected();
    world.kill("a");
    world.manners("a").opens_after = Some(10);
    let arguments = format!(r#"{{"x":"{}"}}"#, "x".repeat(5_000));
    let tickets: Vec<TicketId> = (0..255)
        .map(|_| world.call_with(runtime, "a__t", &arguments, Options::default()))
        .collect();
    world.run(10);
    for ticket in tickets {
        assert_eq!(world.failure(ticket).kind, FailureKind::Limit);
    }
}

#[test]
fn list_timeout_is_for_all_pages_together() {
    let mut world = World::new(&["a"]);
    world.server("a", |heard| match heard.method.as_str() {
        "prompts/list" => {
            let next = heard.id.to_string();
            vec![
                Act::Wait(3_000),
                result(heard, json!({"prompts": [], "nextCursor": next})),
            ]
        }
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.connected();
    let now = world.now();
    let ticket = world
        .manager
        .list(now, runtime, &key("a"), PagedList::Prompts);
    world.run(9_999);
    assert!(world.answer(ticket).is_none());
    world.run(1);
    assert_eq!(world.failure(ticket).kind, FailureKind::TimedOut);
}

#[test]
fn request_timeout() {
    let mut world = World::with(
        &["a"],
        limits(|limits| limits.request_timeout = Duration::from_secs(5)),
    );
    world.server("a", |heard| match heard.method.as_str() {
        "tools/call" => Vec::new(),
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.connected();
    let (long, short) = (
        world.call(runtime, "a__t"),
        world.request(runtime, "a", "resources/list"),
    );
    world.run(4_999);
    assert!(world.answer(long).is_none());
    assert_eq!(world.failure(short).kind, FailureKind::Remote);
    world.run(1);
    assert_eq!(world.failure(long).facts.limit, Some(5_000));
}

#[test]
fn request_total_timeout_bounds_what_progress_may_extend() {
    let mut world = World::new(&["a"]);
    world.configure(&[(
        "a",
        r#"{"command":"a","requestTimeoutMs":1000,"resetTimeoutOnProgress":true,"maxTotalTimeoutMs":2500}"#,
    )]);
    world.server("a", |heard| match heard.method.as_str() {
        "tools/call" => (0..10)
            .flat_map(|at| {
                let token = heard.params["_meta"]["progressToken"].clone();
                [
                    Act::Wait(900),
                    say(json!({"jsonrpc": "2.0", "method": "notifications/progress",
                        "params": {"progressToken": token, "progress": at}})),
                ]
            })
            .collect(),
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.connected();
    let ticket = world.call(runtime, "a__t");
    world.run(2_499);
    assert!(world.answer(ticket).is_none());
    world.run(1);
    assert_eq!(world.failure(ticket).facts.limit, Some(2_500));
}

#[test]
fn failure_pause_after_and_failure_pause() {
    let mut world = World::with(
        &["a"],
        limits(|limits| {
            limits.failure_pause_after = 2;
            limits.failure_pause = Duration::from_secs(5);
        }),
    );
    world.server("a", |heard| match heard.method.as_str() {
        "tools/call" => vec![error(heard, -32000, "broken")],
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.connected();
    for kind in [
        FailureKind::Remote,
        FailureKind::Remote,
        FailureKind::Unavailable,
    ] {
        let ticket = world.call(runtime, "a__t");
        world.run(0);
        assert_eq!(world.failure(ticket).kind, kind);
    }
    world.run(5_000);
    let ticket = world.call(runtime, "a__t");
    world.run(0);
    assert_eq!(world.failure(ticket).kind, FailureKind::Remote);
}

#[test]
fn upstream_questions_open_max() {
    let mut world = World::with(
        &["a"],
        limits(|limits| limits.upstream_questions_open_max = 2),
    );
    world.connected();
    for id in 1..=3 {
        world.speak(
            "a",
            json!({"jsonrpc": "2.0", "id": id, "method": "sampling/createMessage", "params": {}}),
        );
    }
    assert_eq!(world.manager.questions.len(), 2);
    let refused: Vec<&Value> = world
        .heard
        .iter()
        .filter(|(_, heard)| heard.message.get("error").is_some())
        .map(|(_, heard)| &heard.id)
        .collect();
    assert_eq!(refused, [&json!(3)]);
}

#[test]
fn discover_timeout() {
    let mut world = World::new(&["a"]);
    world.server("a", |heard| match heard.method.as_str() {
        "server/discover" => Vec::new(),
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.connected();
    world.run(4_999);
    assert_eq!(world.count("a", "initialize"), 0);
    world.run(1);
    assert_eq!(world.tools(runtime), ["a__t"]);
}

#[test]
fn list_bytes_max() {
    let entry = json!({"name": "t", "inputSchema": {"type": "object"}}).to_string();
    for (room, shown) in [(2 * entry.len(), 2), (2 * entry.len() - 1, 1)] {
        let mut world = World::with(&["a"], limits(|limits| limits.list_bytes_max = room));
        world.server("a", |heard| legacy(heard, &["t", "u"]));
        let runtime = world.connected();
        assert_eq!(world.tools(runtime).len(), shown);
        assert_eq!(world.diagnostics(runtime).len(), 2 - shown);
    }
}

#[test]
fn list_changed_quiet_interval() {
    let mut world = World::new(&["a"]);
    world.connected();
    world.speak(
        "a",
        json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
    );
    world.run(99);
    assert_eq!(world.count("a", "tools/list"), 1);
    world.run(1);
    assert_eq!(world.count("a", "tools/list"), 2);
}
