//! What is known of each server, when it is fetched, and what clients are told of changes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::*;
use crate::hub::PluginTool;
use crate::manager::server_config::StdioTransport;

fn three() -> Listing {
    let mut world = Listing::new(&[("a", json!({})), ("b", json!({})), ("c", json!({}))]);
    for name in ["a", "b", "c"] {
        let uri = format!("{name}:1");
        let lists = json!({
            "tools": tools(&["t"]),
            "prompts": prompts(&["p"]),
            "resources": resources(&[uri.as_str()]),
        });
        world.play(name, server(name, lists));
    }
    world
}

const LISTS: [(&str, [&str; 3]); 3] = [
    ("tools/list", ["a__t", "b__t", "c__t"]),
    ("prompts/list", ["a__p", "b__p", "c__p"]),
    ("resources/list", ["a:1", "b:1", "c:1"]),
];

#[test]
fn each_list_is_fetched_once_and_again_after_a_change() {
    let mut world = three();
    for (method, all) in LISTS {
        for _ in 0..3 {
            assert_eq!(world.list(method), all);
        }
        assert_eq!(world.count("b", method), 1, "{method}");
    }
    assert_eq!(
        world.count("b", "resources/templates/list"),
        0,
        "never wanted"
    );
    world.notify("b", "notifications/prompts/list_changed");
    assert_eq!(world.told("notifications/prompts/list_changed"), 1);
    assert_eq!(world.list("prompts/list"), LISTS[1].1);
    assert_eq!(world.count("b", "prompts/list"), 2);
    assert_eq!(world.count("a", "prompts/list"), 1);
    world.wait(1_000);
    assert_eq!(world.told("list_changed"), 0, "it was told already");
}

#[test]
fn a_server_that_tells_of_no_changes_is_asked_each_time() {
    let mut world = three();
    let lists = Rc::new(RefCell::new(json!({"prompts": prompts(&["p"])})));
    let offered = Rc::clone(&lists);
    world.play("b", move |method, params| match method {
        "initialize" => Reply::Result(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}, "prompts": {}},
            "serverInfo": {"name": "b", "version": "1"},
        })),
        _ => offers("b", &offered.borrow(), method, params),
    });
    assert_eq!(world.list("prompts/list"), ["a__p", "b__p", "c__p"]);
    *lists.borrow_mut() = json!({"prompts": prompts(&["p", "q"])});
    assert_eq!(world.list("prompts/list"), ["a__p", "b__p", "b__q", "c__p"]);
    assert_eq!(world.count("a", "prompts/list"), 1);
    // One that nobody has listed yet is found as well.
    *lists.borrow_mut() = json!({"prompts": prompts(&["p", "q", "r"])});
    let got = world.ask("prompts/get", r#"{"name":"b__r"}"#);
    assert_eq!(got["result"]["by"], "b");
    let some = json!({"tools": tools(&["t", "u"])});
    assert_eq!(world.list("tools/list"), ["a__t", "c__t"]);
    *lists.borrow_mut() = some;
    assert_eq!(world.list("tools/list"), ["a__t", "b__t", "b__u", "c__t"]);
    assert_eq!(world.count("a", "tools/list"), 1);
    assert_eq!(world.list("resources/list"), ["a:1", "c:1"]);
    assert_eq!(world.count("b", "resources/list"), 0, "it says it has none");
}

#[test]
fn a_broken_server_costs_its_own_entries_and_one_diagnostic() {
    for (method, all) in LISTS {
        let mut world = three();
        world.play("b", move |asked, params| match asked {
            _ if asked == method => Reply::Error(-32603),
            _ => offers("b", &json!({}), asked, params),
        });
        for _ in 0..3 {
            assert_eq!(world.list(method), [all[0], all[2]], "{method}");
        }
        assert_eq!(world.diagnostics.len(), 1, "{:?}", world.diagnostics);
        assert!(world.diagnostics[0].contains("server b"));
        // It is back, and clients are told.
        if method != "tools/list" {
            let lists = json!({"prompts": prompts(&["p"]), "resources": resources(&["b:1"])});
            world.play("b", server("b", lists));
            assert_eq!(world.list(method), all);
        }
    }
}

#[test]
fn a_server_that_cannot_be_started_costs_its_own_entries() {
    for (method, all) in LISTS {
        let mut world = three();
        world.remove_program("b");
        assert_eq!(world.list(method), [all[0], all[2]]);
        let told = world
            .diagnostics
            .iter()
            .filter(|one| one.contains("server b"));
        assert_eq!(told.count(), 1, "{:?}", world.diagnostics);
        world.wait(500);
        world.told("list_changed");
        let lists = json!({
            "tools": tools(&["t"]),
            "prompts": prompts(&["p"]),
            "resources": resources(&["b:1"]),
        });
        world.play("b", server("b", lists));
        world.wait(10_000);
        let changed = format!("notifications/{method}_changed");
        assert_eq!(world.told(&changed), 1, "it is there now");
        assert_eq!(world.list(method), all);
    }
}

#[test]
fn a_slow_server_holds_a_list_up_for_its_list_limit_at_most() {
    for (method, all) in LISTS {
        let record = json!({"listTimeoutMs": 2_000});
        let mut world = Listing::new(&[("a", json!({})), ("b", record.clone()), ("c", json!({}))]);
        let lists = |name: &str| {
            json!({
                "tools": tools(&["t"]),
                "prompts": prompts(&["p"]),
                "resources": resources(&[&format!("{name}:1")]),
            })
        };
        world.play("a", server("a", lists("a")));
        world.play("c", server("c", lists("c")));
        let of_b = lists("b");
        world.play("b", move |asked, params| {
            {
                let reply = offers("b", &of_b, asked, params);
                // It takes long to start.
                reply.late(if asked == "initialize" { 5_000 } else { 0 })
            }
        });
        let id = world.begin(method, "{}");
        world.wait(1_999);
        assert_eq!(world.answer(id), None);
        world.wait(1);
        let answer = world.answer(id).expect("the list limit is over");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(ids(&answer), [all[0], all[2]], "{method}");
        // What is known does not wait.
        let called = world.ask("tools/call", r#"{"name":"a__t"}"#);
        assert_eq!(called["result"]["by"], "a");
        world.told("list_changed");
        world.wait(4_000);
        let changed = format!("notifications/{method}_changed");
        assert_eq!(world.told(&changed), 1, "{method}");
        assert_eq!(world.list(method), all);
    }
}

#[test]
fn a_storm_of_changes_is_a_few() {
    let mut world = three();
    world.list("resources/list");
    for _ in 0..200 {
        world.notify("b", "notifications/resources/list_changed");
    }
    world.wait(1_000);
    let told = world.told("notifications/resources/list_changed");
    assert!((1..=2).contains(&told), "{told}");
    assert_eq!(world.count("b", "resources/list"), 1, "nobody wants it");
}

#[test]
fn a_new_configuration_is_a_change() {
    let mut world = three();
    for (method, all) in LISTS {
        assert_eq!(world.list(method), all);
    }
    world.told("list_changed");
    world.configure(&[("a", json!({})), ("c", json!({}))]);
    world.wait(1_000);
    for list in ["tools", "prompts", "resources"] {
        let told = world.told(&format!("notifications/{list}/list_changed"));
        assert_eq!(told, 1, "{list}");
    }
    for (method, all) in LISTS {
        assert_eq!(world.list(method), [all[0], all[2]]);
    }
    world.configure(&[("a", json!({})), ("b", json!({})), ("c", json!({}))]);
    world.wait(1_000);
    for list in ["tools", "prompts", "resources"] {
        let told = world.told(&format!("notifications/{list}/list_changed"));
        assert_eq!(told, 1, "{list}");
    }
}

#[test]
fn a_command_of_ours_ends_the_transparency() {
    let mut world = Listing::new(&[("a", json!({}))]);
    let lists = json!({"tools": tools(&["t", "u"])});
    world.play("a", server("a", lists));
    assert_eq!(world.list("tools/list"), ["t", "u"]);
    assert_eq!(world.count("a", "tools/list"), 1, "only the client asks");
    let plugin = PluginTool {
        name: "u".to_owned(),
        description: String::new(),
        input_schema: r#"{"type":"object"}"#.to_owned(),
        program: StdioTransport {
            command: "true".to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
        },
        timeout: None,
        output_bytes_max: None,
        validate: false,
    };
    let now = world.now;
    world.hub.set_plugin_tools(now, vec![plugin]);
    world.wait(0);
    assert!(world.told("notifications/tools/list_changed") > 0);
    assert_eq!(world.list("tools/list"), ["u", "t", "a__u"]);
    let called = world.ask("tools/call", r#"{"name":"a__u"}"#);
    assert_eq!(called["result"]["by"], "a");
}

#[test]
fn one_server_more_ends_the_transparency() {
    let mut world = Listing::new(&[("a", json!({}))]);
    let lists = json!({"tools": tools(&["t"]), "prompts": prompts(&["p"])});
    world.play("a", server("a", lists.clone()));
    world.play("b", server("b", lists));
    assert_eq!(world.list("tools/list"), ["t"]);
    assert_eq!(world.list("prompts/list"), ["p"]);
    world.configure(&[("a", json!({})), ("b", json!({}))]);
    assert_eq!(
        world.list("tools/list"),
        ["t", "b__t"],
        "a name given stays"
    );
    assert_eq!(world.list("prompts/list"), ["p", "b__p"]);
    let called = world.ask("tools/call", r#"{"name":"t"}"#);
    assert_eq!(called["result"]["by"], "a");
    let unknown = world.ask("tools/call", r#"{"name":"u"}"#);
    assert_eq!(unknown["error"]["code"], -32602);
}

#[test]
fn a_listen_stream_is_told_of_the_lists_it_asked_for() {
    let mut world = three();
    let flags = r#"{"promptsListChanged":true,"resourcesListChanged":true}"#;
    let params = format!(r#"{{"notifications":{flags},{META}}}"#);
    world.begin("subscriptions/listen", &params);
    assert_eq!(
        world.told(&format!(r#""notifications":{flags}"#)),
        1,
        "granted"
    );
    let list = world.ask("prompts/list", &format!("{{{META}}}"));
    assert_eq!(ids(&list), LISTS[1].1);
    assert_eq!(list["result"]["resultType"], "complete");
    world.wait(500);
    world.told("list_changed");
    for (kind, told) in [("prompts", 1), ("resources", 1), ("tools", 0)] {
        world.notify("b", &format!("notifications/{kind}/list_changed"));
        world.wait(500);
        let of_stream =
            format!(r#""method":"notifications/{kind}/list_changed","params":{{"_meta""#);
        assert_eq!(world.told(&of_stream), told, "{kind}");
    }
}
