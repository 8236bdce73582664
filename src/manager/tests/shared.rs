//! One connection for several runtimes.

use super::*;

const SHARED: &str = r#"{"command":"a","isolation":"shared"}"#;

fn world() -> World {
    let mut world = World::new(&["a"]);
    world.configure(&[("a", SHARED)]);
    world
}

#[test]
fn a_runtime_that_joins_later_sees_the_tools_too() {
    let mut world = world();
    let first = world.connected();
    let second = world.open_with(Prefix::Never);
    world.connect(second);
    assert_eq!(world.starts("a"), 1);
    assert_eq!(world.tools(first), ["a__t"]);
    assert_eq!(world.tools(second), ["t"], "by its own way of naming");
    assert_eq!(world.count("a", "tools/list"), 1);

    // By its first call alone.
    let third = world.open();
    let ticket = world.call(third, "a__t");
    world.run(0);
    world.ok(ticket);

    // And all of them see what is listed after a death.
    world.server("a", |heard| legacy(heard, &["t", "u"]));
    world.kill("a");
    world.request(first, "a", "prompts/list");
    world.run(0);
    assert_eq!(world.tools(second), ["t", "u"]);
    assert_eq!(world.tools(third), ["a__t", "a__u"]);
}

#[test]
fn a_question_that_belongs_to_no_call_is_refused_where_several_could_be_meant() {
    let mut world = world();
    let first = world.connected();
    let question =
        json!({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {}});
    world.speak("a", question.clone());
    let asked = |world: &World| {
        let told = world.told.iter();
        told.filter(|output| matches!(output, ManagerOutput::Question { .. }))
            .count()
    };
    assert_eq!(asked(&world), 1, "there is only one it can be for");

    let second = world.connected();
    let mut other = question;
    other["id"] = json!(2);
    world.speak("a", other);
    assert_eq!(asked(&world), 1);
    let refused = |world: &World, id: u64| {
        let mut heard = world.heard.iter();
        heard.any(|(_, heard)| heard.id == id && heard.message.get("error").is_some())
    };
    assert!(refused(&world, 2));

    // The one who was asked goes away, the server stays and is told.
    assert!(!refused(&world, 1));
    world.close_runtime(first);
    world.run(0);
    assert!(refused(&world, 1));
    let ticket = world.call(second, "a__t");
    world.run(0);
    world.ok(ticket);
}

#[test]
fn it_ends_with_the_last_of_them() {
    let mut world = world();
    world.server("a", |heard| match heard.method.as_str() {
        "tools/call" => [vec![Act::Wait(1_000)], legacy(heard, &["t"])].concat(),
        _ => legacy(heard, &["t"]),
    });
    let (first, second) = (world.connected(), world.connected());
    let (lost, kept) = (world.call(first, "a__t"), world.call(second, "a__t"));
    world.close_runtime(first);
    assert_eq!(world.failure(lost).message, "the session was ended");
    assert_eq!(world.count("a", "notifications/cancelled"), 1);
    world.run(2_000);
    world.ok(kept);
    assert_eq!(world.running(), 1);
    world.close_runtime(second);
    world.run(0);
    assert_eq!(world.running(), 0);
    assert!(world.manager.shared.is_empty());
}

#[test]
fn it_rests_when_all_of_them_are_idle() {
    let mut world = world();
    let (_, second) = (world.connected(), world.connected());
    world.run(400_000);
    world.call(second, "a__t");
    world.run(400_000);
    assert_eq!(world.running(), 1, "one of them has used it");
    world.run(200_000);
    assert_eq!(world.running(), 0);
}

#[test]
fn a_changed_record_gives_all_of_them_one_new_connection() {
    let mut world = world();
    let (first, second) = (world.connected(), world.connected());
    world.configure(&[("a", r#"{"command":"a","isolation":"shared","args":["x"]}"#)]);
    world.run(0);
    assert_eq!((world.starts("a"), world.running()), (2, 1));
    world.configure(&[("a", r#"{"command":"a"}"#)]);
    world.run(0);
    assert_eq!((world.starts("a"), world.running()), (4, 2), "one each");
    for runtime in [first, second] {
        let ticket = world.call(runtime, "a__t");
        world.run(0);
        world.ok(ticket);
    }
}
