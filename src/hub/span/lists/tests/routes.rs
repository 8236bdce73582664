//! Where prompts, resources and completions go, and what is offered beside the servers.

use super::*;
use crate::ids::CallId;
use crate::local::{LocalReply, Prompt, Resource, Template, Tool};

/// A server with these lists that has only these resources.
fn strict(
    name: &'static str,
    lists: Value,
    has: &'static [&'static str],
) -> impl FnMut(&str, &Value) -> Reply + 'static {
    move |method, params| match method {
        "resources/read" => {
            let uri = params["uri"].as_str().unwrap_or_default();
            match has.contains(&uri) {
                true => Reply::Result(json!({"by": name})),
                false => Reply::Error(-32002),
            }
        }
        _ => offers(name, &lists, method, params),
    }
}

fn read(world: &mut Listing, uri: &str) -> Value {
    world.ask("resources/read", &json!({ "uri": uri }).to_string())
}

#[test]
fn a_prompt_goes_to_its_server_under_its_own_name() {
    let mut world = Listing::new(&[("a", json!({})), ("b", json!({}))]);
    for name in ["a", "b"] {
        world.play(
            name,
            server(name, json!({"prompts": prompts(&["p q", "r"])})),
        );
    }
    // Nobody has listed them yet.
    let params = r#"{ "arguments":{"x":"\u00e9"}, "name" : "b__p-q","_meta":{"v":1.0} }"#;
    let got = world.ask("prompts/get", params);
    assert_eq!(got["result"]["by"], "b");
    assert_eq!(
        world.last_params("b", "prompts/get"),
        params.replace("b__p-q", "p q")
    );
    assert_eq!(
        world.list("prompts/list"),
        ["a__p-q", "a__r", "b__p-q", "b__r"]
    );

    let completed = world.ask(
        "completion/complete",
        r#"{"ref":{"type":"ref/prompt", "name":"a__r"},"argument":{"name":"n","value":"v"}}"#,
    );
    assert_eq!(completed["result"]["by"], "a");
    assert_eq!(
        world.last_params("a", "completion/complete"),
        r#"{"ref":{"type":"ref/prompt", "name":"r"},"argument":{"name":"n","value":"v"}}"#
    );
    for name in ["r", "c__r", "a__x"] {
        let unknown = world.ask("prompts/get", &json!({ "name": name }).to_string());
        assert_eq!(unknown["error"]["code"], -32602, "{name}");
        assert_eq!(
            unknown["error"]["message"],
            format!("Unknown prompt: {name}")
        );
    }
    let nameless = world.ask("prompts/get", "{}");
    assert_eq!(nameless["error"]["code"], -32602);
}

#[test]
fn names_do_not_depend_on_who_was_there_first() {
    let mut seen = Vec::new();
    for slow in ["a", "a__b"] {
        let mut world = Listing::new(&[("a", json!({})), ("a__b", json!({}))]);
        for name in ["a", "a__b"] {
            let lists = json!({"prompts": prompts(&["c", "b__c", "C"])});
            let mut script = server(name, lists);
            world.play(name, move |method, params| {
                let is_slow = name == slow && method == "prompts/list";
                script(method, params).late(if is_slow { 1_000 } else { 0 })
            });
        }
        let id = world.begin("prompts/list", "{}");
        world.wait(1_000);
        let answer = world.answer(id).expect("the list");
        seen.push(ids(&serde_json::from_str(&answer).expect("JSON")));
    }
    assert_eq!(seen[0], seen[1]);
    let different: std::collections::BTreeSet<&String> = seen[0].iter().collect();
    assert_eq!(different.len(), 6, "{:?}", seen[0]);
}

#[test]
fn a_resource_is_read_from_whoever_has_it() {
    let servers = [("a", json!({})), ("b", json!({})), ("c", json!({}))];
    let mut world = Listing::new(&servers);
    let both = resources(&["x:both", "a:1"]);
    world.play(
        "a",
        strict("a", json!({ "resources": both }), &["x:both", "a:1"]),
    );
    let lists = json!({
        "resources": resources(&["x:both", "b:1"]),
        "resourceTemplates": templates(&["t://{id}/b", "d://{t}{?q}"]),
    });
    world.play(
        "b",
        strict("b", lists, &["x:both", "b:1", "t://7/b", "d://t?q=1"]),
    );
    let lists = json!({"resourceTemplates": templates(&["t://{+id}"])});
    world.play("c", strict("c", lists, &["t://7/b", "t://8/c", "u:hidden"]));

    for (uri, by) in [
        ("a:1", "a"),
        ("b:1", "b"),
        ("x:both", "a"),
        ("t://7/b", "b"),
        ("t://8/c", "c"),
        ("d://t?q=1", "b"),
    ] {
        assert_eq!(read(&mut world, uri)["result"]["by"], by, "{uri}");
    }
    assert_eq!(
        world.count("a", "resources/read"),
        2,
        "nobody else was asked"
    );
    let same = world.diagnostics.iter();
    let same: Vec<&String> = same.filter(|one| one.contains("both have")).collect();
    assert_eq!(same.len(), 1, "{:?}", world.diagnostics);
    assert!(same[0].contains("a and b both have x:both"), "{same:?}");
    assert_eq!(world.list("resources/list"), ["x:both", "a:1", "b:1"]);

    // In nobody's list: each is asked, the first time.
    assert_eq!(read(&mut world, "u:hidden")["result"]["by"], "c");
    assert_eq!(world.count("a", "resources/read"), 3);
    assert_eq!(read(&mut world, "u:hidden")["result"]["by"], "c");
    assert_eq!(world.count("a", "resources/read"), 3, "it is known by now");
    let unknown = read(&mut world, "u:nobody");
    assert_eq!(unknown["error"]["code"], -32002);
    assert_eq!(
        unknown["error"]["message"],
        "Resource not found: u:nobody; 3 servers were asked"
    );
    assert_eq!(unknown["error"]["data"]["uri"], "u:nobody");

    let completed = world.ask(
        "completion/complete",
        r#"{"ref":{"type":"ref/resource","uri":"t://{+id}"},"argument":{"name":"id","value":""}}"#,
    );
    assert_eq!(completed["result"]["by"], "c");
}

#[test]
fn the_only_server_with_resources_answers_for_all_of_them() {
    let mut world = Listing::new(&[("a", json!({})), ("b", json!({}))]);
    world.play("a", |method, params| match method {
        "initialize" => Reply::Result(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "a", "version": "1"},
        })),
        _ => offers("a", &json!({}), method, params),
    });
    world.play("b", strict("b", json!({}), &["u:1"]));
    assert_eq!(read(&mut world, "u:1")["result"]["by"], "b");
    let unknown = read(&mut world, "u:2");
    assert_eq!(unknown["error"]["code"], -32002);
    assert_eq!(unknown["error"]["message"], "no", "its own words");
    assert_eq!(world.count("a", "resources/read"), 0);
}

#[test]
fn a_search_that_is_taken_back_ends() {
    let mut world = Listing::new(&[("a", json!({})), ("b", json!({}))]);
    world.play("a", |method, params| match method {
        "resources/read" => Reply::Silence,
        _ => offers("a", &json!({}), method, params),
    });
    world.play("b", server("b", json!({})));
    let id = world.begin("resources/read", r#"{"uri":"u:1"}"#);
    assert_eq!(world.count("a", "resources/read"), 1);
    world.write(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    ));
    assert_eq!(world.count("a", "notifications/cancelled"), 1);
    world.wait(100_000);
    assert_eq!(world.answer(id), None);
    assert_eq!(world.count("b", "resources/read"), 0);
    assert_eq!(world.hub.open_calls(), 0);
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    let schema = r#"{"type":"object"}"#;
    for name in ["mine", "t"] {
        let tool = Tool::new(name, "", schema);
        registry.add_tool(tool).expect("a good tool");
    }
    registry
        .add_prompt(Prompt::new("p", ""))
        .expect("a good prompt");
    registry
        .add_resource(Resource::new("x:both", "r"))
        .expect("a good resource");
    registry
        .add_template(Template::new("l://{id}", "t"))
        .expect("a good template");
    registry.declare_completions();
    registry
}

/// The request that the program is asked.
fn asked(world: &mut Listing) -> Option<(CallId, String)> {
    world.events.drain(..).find_map(|event| {
        let HubEvent::Local(request) = event else {
            return None;
        };
        Some((request.call, request.kind.method().to_owned()))
    })
}

#[test]
fn what_the_program_offers_stands_before_the_servers_and_wins() {
    let servers = [("a", json!({})), ("b", json!({}))];
    for servers in [&servers[..1], &servers[..]] {
        let limits = Limits {
            list_page_entries_max: 3,
            ..Limits::default()
        };
        let mut world = Listing::with(servers, Prefix::Auto, Some(registry()), limits);
        for name in ["a", "b"] {
            let lists = json!({
                "tools": tools(&["t", "u"]),
                "prompts": prompts(&["p", "q"]),
                "resources": resources(&["x:both", "x:1"]),
            });
            world.play(name, server(name, lists));
        }
        let one = servers.len() == 1;
        let first = world.ask("tools/list", "{}");
        let (u, q) = if one { ("u", "q") } else { ("a__u", "a__q") };
        assert_eq!(ids(&first), ["mine", "t", "a__t"]);
        let cursor = json!({"cursor": first["result"]["nextCursor"]});
        let second = ids(&world.ask("tools/list", &cursor.to_string()));
        assert_eq!(second[0], u);
        assert_eq!(world.list("prompts/list")[..3], ["p", "a__p", q]);
        assert_eq!(world.list("resources/list"), ["x:both", "x:1"]);
        assert_eq!(world.list("resources/templates/list"), ["l://{id}"]);

        for (method, params, server) in [
            ("tools/call", json!({"name": "a__t"}), Some("a")),
            ("tools/call", json!({"name": u}), Some("a")),
            ("tools/call", json!({"name": "t"}), None),
            ("prompts/get", json!({"name": "a__p"}), Some("a")),
            ("prompts/get", json!({"name": q}), Some("a")),
            ("prompts/get", json!({"name": "p"}), None),
            ("resources/read", json!({"uri": "x:1"}), Some("a")),
            ("resources/read", json!({"uri": "x:both"}), None),
            ("resources/read", json!({"uri": "l://7"}), None),
            (
                "completion/complete",
                json!({
                    "ref": {"type": "ref/prompt", "name": "p"},
                    "argument": {"name": "n", "value": ""},
                }),
                None,
            ),
        ] {
            let id = world.begin(method, &params.to_string());
            if let Some(server) = server {
                let answer = world.answer(id).expect("an answer");
                assert!(answer.contains(&format!(r#""by":"{server}""#)), "{answer}");
                continue;
            }
            let (call, of) = asked(&mut world).expect("the program is asked");
            assert_eq!(of, method);
            let now = world.now;
            world
                .hub
                .resolve_local(now, call, LocalReply::Result(r#"{"by":"me"}"#.to_owned()));
            world.wait(0);
            let answer = world.answer(id).expect("an answer");
            assert!(answer.contains(r#""by":"me""#), "{answer}");
        }
        let unknown = world.ask("tools/call", r#"{"name":"nobody"}"#);
        assert_eq!(unknown["error"]["code"], -32602);
    }
}

#[test]
fn a_name_that_the_program_takes_later_is_its_own() {
    let mut world = Listing::with(
        &[("a", json!({}))],
        Prefix::Auto,
        Some(registry()),
        Limits::default(),
    );
    let lists = json!({"tools": tools(&["u", "v"]), "prompts": prompts(&["q"])});
    world.play("a", server("a", lists));
    assert_eq!(world.list("tools/list"), ["mine", "t", "u", "v"]);
    assert_eq!(world.list("prompts/list"), ["p", "q"]);
    let now = world.now;
    world.hub.with_local(now, |local| {
        let registry = local.registry_mut();
        let tool = Tool::new("u", "", r#"{"type":"object"}"#);
        registry.add_tool(tool).expect("a good tool");
        registry
            .add_prompt(Prompt::new("q", ""))
            .expect("a good prompt");
    });
    let mut tools = world.list("tools/list");
    assert_eq!(tools[..3], ["mine", "t", "u"]);
    tools.sort();
    assert_eq!(tools, ["a__u", "mine", "t", "u", "v"]);
    assert_eq!(world.list("prompts/list"), ["p", "q", "a__q"]);
}

#[test]
fn a_subscription_waits_until_it_is_known_whose_the_resource_is() {
    let mut world = Listing::new(&[("a", json!({})), ("b", json!({}))]);
    for (name, uri) in [("a", "x:a"), ("b", "x:b")] {
        let lists = json!({"resources": [{"uri": uri, "name": uri}]});
        world.play(name, move |method, params| match method {
            "initialize" => Reply::Result(json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {"resources": {"subscribe": true}},
                "serverInfo": {"name": name, "version": "1"},
            })),
            "resources/subscribe" => Reply::Result(json!({})),
            _ => offers(name, &lists, method, params),
        });
    }
    // The first thing that is asked: nobody has listed anything yet.
    let granted = world.ask("resources/subscribe", r#"{"uri":"x:b"}"#);
    assert_eq!(granted["result"], json!({}), "{granted}");
    assert_eq!(world.count("a", "resources/subscribe"), 0);
    assert_eq!(world.count("b", "resources/subscribe"), 1);
    let nobodys = world.ask("resources/subscribe", r#"{"uri":"x:c"}"#);
    assert_eq!(nobodys["error"]["code"], -32002, "{nobodys}");
}
