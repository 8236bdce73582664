//! Idle times, leases, and the end of runtimes and of the manager.

use std::time::Duration;

use super::*;
use crate::manager::error::FailureKind;

const TTL: u64 = 600_000;

#[test]
fn an_idle_runtime_lets_go_of_its_servers_and_finds_them_again() {
    let mut world = World::new(&["a"]);
    let runtime = world.connected();
    world.run(TTL - 1);
    assert_eq!(world.state(runtime, "a"), ServerState::Ready);
    world.run(1);
    assert_eq!(world.state(runtime, "a"), ServerState::Idle);
    assert_eq!(world.running(), 0);
    assert_eq!(world.tools(runtime), ["a__t"]);

    let ticket = world.call(runtime, "a__t");
    world.run(0);
    world.ok(ticket);
    assert_eq!(world.starts("a"), 2);
    world.run(TTL);
    assert_eq!(world.running(), 0, "and again");
}

#[test]
fn use_puts_the_end_off() {
    let mut world = World::new(&["a"]);
    let runtime = world.connected();
    for _ in 0..5 {
        world.run(TTL - 1);
        world.call(runtime, "a__t");
    }
    assert_eq!(world.starts("a"), 1);
}

#[test]
fn a_call_in_flight_is_activity() {
    let limits = Limits {
        request_timeout: Duration::from_secs(10_000),
        ..Limits::default()
    };
    let mut world = World::with(&["a"], limits);
    world.server("a", |heard| match heard.method.as_str() {
        "tools/call" => vec![Act::Wait(5 * TTL), result(heard, json!({"content": []}))],
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.connected();
    let ticket = world.call(runtime, "a__t");
    world.run(5 * TTL);
    world.ok(ticket);
    world.run(TTL - 1);
    assert_eq!(world.running(), 1, "its end was the last use");
    world.run(1);
    assert_eq!(world.running(), 0);
}

#[test]
fn a_lease_keeps_it() {
    let mut world = World::new(&["a"]);
    let runtime = world.connected();
    let now = world.now();
    world.manager.lease(now, runtime);
    world.manager.lease(now, runtime);
    world.run(5 * TTL);
    let now = world.now();
    world.manager.release(now, runtime);
    world.run(5 * TTL);
    assert_eq!(world.running(), 1, "one lease is left");
    let now = world.now();
    world.manager.release(now, runtime);
    world.run(TTL);
    assert_eq!(world.running(), 0);
    // One too many is no harm.
    let now = world.now();
    world.manager.release(now, runtime);
    world.manager.lease(now, runtime);
    world.call(runtime, "a__t");
    world.run(2 * TTL);
    assert_eq!(world.running(), 1);
}

#[test]
fn a_time_to_live_of_zero_is_for_ever() {
    let limits = Limits {
        runtime_idle_ttl: Duration::ZERO,
        ..Limits::default()
    };
    let mut world = World::with(&["a"], limits);
    let _ = world.connected();
    world.run(1_000 * TTL);
    assert_eq!(world.running(), 1);
}

#[test]
fn a_rest_in_the_middle_of_a_listing_leaves_nothing_behind() {
    let limits = Limits {
        runtime_idle_ttl: Duration::from_secs(2),
        ..Limits::default()
    };
    let mut world = World::with(&["a"], limits);
    world.server("a", |heard| match (heard.method.as_str(), heard.start) {
        ("tools/list", 1) => Vec::new(),
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.connected();
    assert!(!world.manager.is_settled(runtime));
    world.run(2_000);
    assert_eq!(world.state(runtime, "a"), ServerState::Idle);
    assert!(world.manager.is_settled(runtime));

    let ticket = world.call(runtime, "a__t");
    world.run(0);
    world.ok(ticket);
}

#[test]
fn closing_answers_everything_at_once_and_ends_everything_in_time() {
    let mut world = World::new(&["a", "opening", "deaf"]);
    world.server("a", |heard| match heard.method.as_str() {
        "tools/call" => Vec::new(),
        _ => legacy(heard, &["t"]),
    });
    world.manners("opening").opens_after = None;
    world.manners("opening").ends_with_input = false;
    world.manners("opening").heeds_term = false;
    world.manners("deaf").ends_with_input = false;
    world.manners("deaf").heeds_term = false;
    let runtime = world.connected();
    let other = world.connected();
    let tickets = [
        world.call(runtime, "a__t"),
        world.call(runtime, "a__t"),
        world.request(runtime, "opening", "prompts/list"),
        world.call(runtime, "no-such-tool"),
        world.call(other, "a__t"),
    ];
    world.run(0);
    assert!(tickets.iter().all(|ticket| world.answer(*ticket).is_none()));

    world.close();
    let first = world.failure(tickets[0]).clone();
    assert_eq!(first.kind, FailureKind::Disposed);
    for ticket in tickets {
        assert_eq!(*world.failure(ticket), first, "one clear error for all");
    }
    assert!(!world.manager.is_gone());
    // Two grace intervals, and half a second for the kernel.
    world.run(2_500);
    assert!(world.manager.is_gone());
    assert_eq!((world.running(), world.manager.next_deadline()), (0, None));
    let deaf: Vec<&Done> = world
        .done
        .iter()
        .filter(|(_, name, _)| name == "deaf")
        .map(|(_, _, done)| done)
        .collect();
    // One for each runtime.
    assert_eq!(deaf.iter().filter(|done| ***done == Done::Kill).count(), 2);
    assert_eq!(
        deaf.iter().filter(|done| ***done == Done::Term).count() % 2,
        0
    );
}

#[test]
fn after_the_end_every_call_has_the_same_error() {
    let mut world = World::new(&["a"]);
    let runtime = world.connected();
    world.close_runtime(runtime);
    let list = world
        .manager
        .list(world.now(), runtime, &key("a"), PagedList::Tools);
    let tickets = [
        list,
        world.call(runtime, "a__t"),
        world.request(runtime, "a", "prompts/list"),
        world.request(runtime, "nobody", "prompts/list"),
    ];
    for ticket in tickets {
        let error = world.failure(ticket);
        assert_eq!(error.kind, FailureKind::Disposed, "{error}");
        assert_eq!(error.message, "the session was ended");
    }
    world.run(10_000);
    assert_eq!(world.running(), 0);
    assert!(world.manager.catalog(runtime).is_none());

    world.close();
    assert!(world.manager.is_gone());
    let now = world.now();
    assert!(world.manager.open_runtime(now, Prefix::Auto).is_err());
    let ticket = world.call(runtime, "a__t");
    assert_eq!(world.failure(ticket).message, "the session was ended");
}

#[test]
fn one_runtime_ends_and_the_others_do_not() {
    let mut world = World::new(&["a"]);
    let (one, other) = (world.connected(), world.connected());
    assert_eq!(world.running(), 2, "each has its own");
    world.close_runtime(one);
    world.run(3_000);
    assert_eq!(world.running(), 1);
    let ticket = world.call(other, "a__t");
    world.run(0);
    world.ok(ticket);
    world.close_runtime(one);
}
