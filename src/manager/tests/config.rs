//! Another configuration while the manager runs, and what stays as it was.

use super::*;

const A: (&str, &str) = ("a", r#"{"command":"a"}"#);
const B: (&str, &str) = ("b", r#"{"command":"b"}"#);
const B_CHANGED: (&str, &str) = ("b", r#"{"command":"b","args":["--new"]}"#);

#[test]
fn only_what_changed_is_started_again() {
    let mut world = World::new(&["a", "b"]);
    let runtime = world.connected();
    world.configure(&[B, A]);
    world.configure(&[("b", r#"{"args":[],"command":"b"}"#), A]);
    world.run(0);
    assert_eq!(
        (world.starts("a"), world.starts("b")),
        (1, 1),
        "the same records"
    );

    world.configure(&[A, B_CHANGED]);
    world.run(0);
    assert_eq!((world.starts("a"), world.starts("b")), (1, 2));
    assert_eq!(world.running(), 2, "the old one had nothing open");
    assert_eq!(world.tools(runtime), ["a__t", "b__t"]);
}

#[test]
fn a_changed_server_ends_when_its_calls_have() {
    let mut world = World::new(&["a", "b"]);
    world.server("b", |heard| match (heard.method.as_str(), heard.start) {
        ("tools/call", 1) => [vec![Act::Wait(5_000)], legacy(heard, &["t"])].concat(),
        _ => legacy(heard, &["t"]),
    });
    let runtime = world.connected();
    let (open, waits) = (world.call(runtime, "b__t"), world.call(runtime, "b__t"));
    world.configure(&[A, B_CHANGED]);
    let new = world.call(runtime, "b__t");
    world.run(0);
    world.ok(new);
    assert_eq!(world.running(), 3);
    world.run(10_000);
    world.ok(open);
    world.ok(waits);
    assert_eq!(world.running(), 2);
    let of_old = world
        .heard
        .iter()
        .filter(|(name, heard)| name == "b" && heard.method == "tools/call" && heard.start == 1);
    assert_eq!(of_old.count(), 2);
}

#[test]
fn cancelling_its_last_call_ends_a_retired_server() {
    let mut world = World::new(&["a"]);
    let runtime = world.connected();
    world.kill("a");
    let ticket = world.call(runtime, "a__t");
    world.run(0);
    world.ok(ticket);
    world.kill("a");
    // It rests, and this waits for it.
    let waits = world.call(runtime, "a__t");
    world.configure(&[]);
    assert_eq!(world.manager.slots.len(), 1);
    world.cancel(waits);
    assert!(world.manager.slots.is_empty());
}

#[test]
fn a_removed_server_takes_its_tools_along() {
    let mut world = World::new(&["a", "b"]);
    world.manners("b").opens_after = Some(10_000);
    let runtime = world.connected();
    let waits = world.call(runtime, "b__t");
    let unknown = world.call(runtime, "typo");
    world.configure(&[A]);
    assert_eq!(world.failure(waits).message, "server a: unknown tool b__t");
    world.failure(unknown);
    assert_eq!(world.tools(runtime), ["a__t"]);
    world.configure(&[]);
    assert_eq!(world.tools(runtime), [""; 0]);
    world.run(5_000);
    assert_eq!((world.running(), world.manager.slots.len()), (0, 0));
    let gone = world.request(runtime, "a", "prompts/list");
    assert!(world.failure(gone).message.contains("no server is called"));
}

#[test]
fn what_an_old_connection_lists_late_is_not_shown() {
    let mut world = World::new(&["a", "b"]);
    world.server("b", |heard| match (heard.method.as_str(), heard.start) {
        ("tools/list", 1) => [vec![Act::Wait(1_000)], legacy(heard, &["old"])].concat(),
        ("prompts/list", 1) => [vec![Act::Wait(2_000)], legacy(heard, &[])].concat(),
        _ => legacy(heard, &["new"]),
    });
    let runtime = world.connected();
    let holds = world.request(runtime, "b", "prompts/list");
    world.configure(&[A, B_CHANGED]);
    world.run(0);
    assert_eq!(world.tools(runtime), ["a__t", "b__new"]);
    world.run(3_000);
    world.ok(holds);
    assert_eq!(world.tools(runtime), ["a__t", "b__new"]);
}

#[test]
fn who_is_connected_to_all_is_connected_to_new_ones() {
    let mut world = World::new(&["a", "b"]);
    world.configure(&[A]);
    let runtime = world.connected();
    let other = world.open();
    world.configure(&[A, B]);
    world.run(0);
    assert_eq!(world.tools(runtime), ["a__t", "b__t"]);
    assert_eq!(world.tools(other), [""; 0], "it has asked for nothing");
    assert_eq!(world.starts("b"), 1);
}

#[test]
fn names_stay_whatever_the_configuration_does() {
    let mut world = World::new(&["a", "b"]);
    world.configure(&[A]);
    let auto = world.open_with(Prefix::Auto);
    world.connect(auto);
    assert_eq!(world.tools(auto), ["t"], "one server: its own names");

    world.configure(&[A, B]);
    world.run(0);
    assert_eq!(world.tools(auto), ["b__t", "t"]);
    world.kill("a");
    let ticket = world.call(auto, "t");
    world.run(0);
    world.ok(ticket);
    assert_eq!(
        world.tools(auto),
        ["b__t", "t"],
        "listed anew, named as before"
    );
    world.configure(&[B]);
    world.run(0);
    assert_eq!(world.tools(auto), ["b__t"]);

    let fresh = world.open_with(Prefix::Auto);
    world.connect(fresh);
    assert_eq!(world.tools(fresh), ["t"]);
    let never = world.open_with(Prefix::Never);
    world.configure(&[A, B]);
    world.connect(never);
    assert_eq!(world.tools(never), ["t"], "the first of two is reached");
}

#[test]
fn numbers_in_names_do_not_depend_on_who_is_first() {
    let mut named = Vec::new();
    for slow in ["a b", "a-b"] {
        let mut world = World::new(&["x"]);
        world.server("a b", |heard| legacy(heard, &["t.u", "t-u"]));
        world.server("a-b", |heard| legacy(heard, &["t"]));
        world.manners(slow).opens_after = Some(1_000);
        world.configure(&[
            ("a-b", r#"{"command":"a-b"}"#),
            ("a b", r#"{"command":"a b"}"#),
        ]);
        let runtime = world.connected();
        world.run(1_000);
        world.kill("a b");
        world.request(runtime, "a b", "prompts/list");
        world.run(0);
        named.push(world.tools(runtime));
    }
    assert_eq!(named[0], named[1]);
    assert_eq!(named[0], ["a-b-2__t", "a-b__t-u", "a-b__t-u-2"]);
}
