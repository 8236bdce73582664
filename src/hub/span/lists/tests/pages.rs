//! One server as it is, and pages of merged lists.

use std::cell::RefCell;
use std::rc::Rc;

use super::*;

#[test]
fn the_pages_of_one_server_go_through_as_they_are() {
    // Case f08: our own cursors would be others.
    let mut world = Listing::new(&[("s", json!({}))]);
    world.play("s", |method, params| match method {
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => {
            match params["cursor"].as_str() {
                None => Reply::Raw(format!(
                    r#"{{ "{}":[{{"name":"p1", "n":1.0}}],"nextCursor":"k:8", "x":[ ] }}"#,
                    method.split('/').next().expect("a word")
                )),
                Some("k:8") => Reply::Raw(r#"{"tools":[{"name":"p2"}]}"#.to_owned()),
                Some(_) => Reply::Error(-32602),
            }
        }
        _ => offers("s", &json!({}), method, params),
    });
    for list in ["tools", "prompts", "resources"] {
        let method = format!("{list}/list");
        let first = world.ask_raw(&method, r#"{"_meta":{"a":1e2}, "limit":3.0,"x":[null]}"#);
        let page =
            format!(r#"{{ "{list}":[{{"name":"p1", "n":1.0}}],"nextCursor":"k:8", "x":[ ] }}"#);
        assert!(first.ends_with(&format!(r#""result":{page}}}"#)), "{first}");
        let params = world.last_params("s", &method);
        assert_eq!(params, r#"{"_meta":{"a":1e2}, "limit":3.0,"x":[null]}"#);
        let second = world.ask_raw(&method, r#"{"cursor":"k:8"}"#);
        assert!(second.contains("p2"), "{second}");
        assert_eq!(world.last_params("s", &method), r#"{"cursor":"k:8"}"#);
        let third = world.ask(&method, r#"{"cursor":"bogus"}"#);
        assert_eq!(third["error"]["code"], -32602);
        assert_eq!(world.count("s", &method), 3, "nobody else asked");
    }
    // What the tools are is not known here, and they can be called.
    let called = world.ask("tools/call", r#"{"name":"p2","arguments":{}}"#);
    assert_eq!(called["result"]["by"], "s");
    assert_eq!(world.count("s", "tools/list"), 3);
    assert_eq!(world.diagnostics, [""; 0]);
}

#[test]
fn one_server_with_a_filter_or_a_prefix_has_lists_of_ours() {
    let lists = json!({"tools": tools(&["a", "b"]), "prompts": prompts(&["p"])});
    let filter = json!({"toolFilter": {"exclude": ["b"]}});
    for (record, prefix, tools, prompts) in [
        (filter.clone(), Prefix::Auto, vec!["a"], vec!["p"]),
        (
            json!({}),
            Prefix::Always,
            vec!["s__a", "s__b"],
            vec!["s__p"],
        ),
        (filter, Prefix::Never, vec!["a"], vec!["p"]),
    ] {
        let mut world = Listing::with(&[("s", record)], prefix, None, Limits::default());
        world.play("s", server("s", lists.clone()));
        assert_eq!(world.list("tools/list"), tools);
        assert_eq!(world.list("prompts/list"), prompts);
        for list in ["tools", "prompts"] {
            let page = world.ask(&format!("{list}/list"), r#"{"cursor":"bogus"}"#);
            let passed = list == "prompts" && prefix != Prefix::Always;
            assert_eq!(page.get("error").is_none(), passed, "{list} {prefix:?}");
        }
        let got = world.ask("prompts/get", &json!({"name": prompts[0]}).to_string());
        assert_eq!(got["result"]["by"], "s");
        assert_eq!(world.last_params("s", "prompts/get"), r#"{"name":"p"}"#);
        let hidden = world.ask("tools/call", r#"{"name":"b"}"#);
        assert_eq!(hidden["error"]["code"], -32602);
        assert_eq!(world.count("s", "tools/call"), 0);
    }
}

/// All pages of a list.
fn walk(
    world: &mut Listing,
    method: &str,
    between: &mut dyn FnMut(&mut Listing),
) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut params = json!({});
    while pages.len() < 20 {
        let page = world.ask(method, &params.to_string());
        pages.push(ids(&page));
        match page["result"].get("nextCursor") {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => break,
        }
        between(world);
    }
    pages
}

fn small_pages() -> Limits {
    Limits {
        list_page_entries_max: 2,
        ..Limits::default()
    }
}

#[test]
fn merged_pages_neither_repeat_nor_lose_what_did_not_change() {
    type Lists = Rc<RefCell<Value>>;
    let play = |name: &'static str, lists: &Lists| {
        let lists = Rc::clone(lists);
        move |method: &str, params: &Value| offers(name, &lists.borrow(), method, params)
    };
    for method in ["tools/list", "prompts/list", "resources/list"] {
        let list = method.split('/').next().expect("a word");
        let offer = |names: &[&str]| match list {
            "tools" => json!({ list: tools(names) }),
            "prompts" => json!({ list: prompts(names) }),
            _ => json!({ list: resources(names) }),
        };
        let servers = [("a", json!({})), ("b", json!({}))];
        let mut world = Listing::with(&servers, Prefix::Auto, None, small_pages());
        let a: Lists = Rc::new(RefCell::new(offer(&["a:1", "a:2", "a:3", "a:4", "a:5"])));
        world.play("a", play("a", &a));
        world.play("b", server("b", offer(&["b:1", "b:2"])));
        let all = walk(&mut world, method, &mut |_| {});
        let sizes: Vec<usize> = all.iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 2, 2, 1]);
        let before: Vec<String> = all.concat();

        // After the first page the list is another: some are gone, one is new, and the order is another.
        let mut changed = false;
        let pages = walk(&mut world, method, &mut |world| {
            if !std::mem::replace(&mut changed, true) {
                *a.borrow_mut() = offer(&["a:9", "a:5", "a:4", "a:1"]);
                world.notify("a", &format!("notifications/{list}/list_changed"));
                world.wait(1_000);
            }
        });
        let after = pages.concat();
        let kept: Vec<&String> = before
            .iter()
            .filter(|id| !id.ends_with('2') && !id.ends_with('3') || id.starts_with('b'))
            .collect();
        for id in kept {
            let times = after.iter().filter(|other| *other == id).count();
            assert_eq!(times, 1, "{method} {id} in {after:?}");
        }
        let new = after.iter().filter(|id| id.ends_with('9')).count();
        assert_eq!(new, 1, "what is new is at the end of its part: {after:?}");
        let bogus = world.ask(method, r#"{"cursor":"bogus"}"#);
        assert_eq!(bogus["error"]["code"], -32602);
    }
}

#[test]
fn a_cursor_survives_the_loss_of_its_server() {
    let servers = [("a", json!({})), ("b", json!({})), ("c", json!({}))];
    let mut world = Listing::with(&servers, Prefix::Auto, None, small_pages());
    for name in ["a", "b", "c"] {
        world.play(name, server(name, json!({"tools": tools(&["x", "y"])})));
    }
    let mut lost = false;
    let pages = walk(&mut world, "tools/list", &mut |world| {
        if !std::mem::replace(&mut lost, true) {
            world.configure(&[("b", json!({})), ("c", json!({}))]);
        }
    });
    let all: Vec<String> = pages.concat();
    assert_eq!(all, ["a__x", "a__y", "b__x", "b__y", "c__x", "c__y"]);
}

#[test]
fn entries_of_a_merged_list_are_the_bytes_that_came() {
    let raw = r#"{ "description" : "\u00e9\/","uri":"a:1", "size":12345678901234567890, "_meta":{"v":1e2} }"#;
    let mut world = Listing::new(&[("a", json!({})), ("b", json!({}))]);
    world.play("a", move |method, params| match method {
        "resources/list" => Reply::Raw(format!(r#"{{"resources":[ {raw} ],"_meta":{{}}}}"#)),
        _ => offers("a", &json!({}), method, params),
    });
    world.play("b", server("b", json!({"resources": resources(&["b:1"])})));
    let list = world.ask_raw("resources/list", "{}");
    assert!(list.contains(raw), "{list}");
    assert_eq!(world.list("resources/list"), ["a:1", "b:1"]);
}
