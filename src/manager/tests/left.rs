//! Tools that are left to the one who uses the runtime, and names that are not ours to give.

use super::*;

fn unlisted() -> Options {
    Options {
        unlisted: true,
        ..Options::default()
    }
}

/// A runtime whose only server is asked for its tools by nobody but its user.
fn left(world: &mut World) -> RuntimeId {
    let runtime = world.open_with(Prefix::Auto);
    world.manager.leave_tools(world.now(), runtime, true);
    runtime
}

#[test]
fn tools_that_are_left_are_not_fetched_and_can_be_called() {
    let mut world = World::new(&["a"]);
    let runtime = left(&mut world);
    world.connect(runtime);
    assert_eq!(world.state(runtime, "a"), ServerState::Ready);
    assert_eq!(world.count("a", "tools/list"), 0);

    let ticket = world.call_with(runtime, "whatever", "{}", unlisted());
    world.run(0);
    assert!(world.ok(ticket).contains("whatever"));

    // The user of the runtime is told of changes, and asks.
    world.speak(
        "a",
        json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}),
    );
    world.run(1_000);
    assert_eq!(world.count("a", "tools/list"), 0);
    let told = world.told.iter().any(|told| {
        matches!(
            told,
            ManagerOutput::ListChanged {
                list: ListKind::Tools,
                ..
            }
        )
    });
    assert!(told, "{:?}", world.told);
}

#[test]
fn a_call_starts_a_server_whose_tools_are_left() {
    let mut world = World::new(&["a"]);
    let runtime = left(&mut world);
    let ticket = world.call_with(runtime, "t", "{}", unlisted());
    world.run(0);
    assert!(world.ok(ticket).contains("\"t\""));
    assert_eq!(world.count("a", "tools/list"), 0);
}

#[test]
fn what_was_left_is_fetched_once_it_is_needed() {
    let mut world = World::new(&["a"]);
    let runtime = left(&mut world);
    world.connect(runtime);
    world.manager.leave_tools(world.now(), runtime, false);
    assert!(world.manager.is_settling(runtime, &key("a")));
    world.run(0);
    assert_eq!(world.tools(runtime), ["t"]);
    let ticket = world.call(runtime, "u");
    world.run(0);
    assert_eq!(world.failure(ticket).code(), -32_602, "nothing was sent");
    assert_eq!(world.count("a", "tools/call"), 0);
    let ticket = world.call_with(runtime, "u", "{}", unlisted());
    world.run(0);
    assert!(world.ok(ticket).contains("\"u\""));
}

#[test]
fn reserved_names_are_given_to_nobody() {
    for prefix in [Prefix::Auto, Prefix::Never, Prefix::Always] {
        let mut world = World::new(&["a"]);
        world.server("a", |heard| legacy(heard, &["T", "u"]));
        world.manager.reserve(["t", "a__u"]);
        let runtime = world.open_with(prefix);
        world.connect(runtime);
        let (expected, taken) = match prefix {
            Prefix::Always => (["a__T", "a__u-2"], "a__T"),
            Prefix::Auto | Prefix::Never => (["a__T", "u"], "u"),
        };
        assert_eq!(world.tools(runtime), expected);
        // Somebody takes a name that one of them has.
        world.manager.reserve([taken]);
        world.drain();
        let tools = world.tools(runtime);
        assert_eq!(tools.len(), 2);
        assert!(!tools.iter().any(|tool| tool == taken), "{tools:?}");
        let renamed = world.told.iter();
        let renamed = renamed.filter(|told| matches!(told, ManagerOutput::CatalogChanged(_)));
        assert_eq!(renamed.count(), 2, "listed, and renamed");
    }
}
