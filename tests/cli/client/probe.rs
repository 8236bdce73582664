//! `drawspan probe`: every server asked for, side by side.

use serde_json::{Value, json};

use super::failures::canned;
use super::servers::{Shop, document, everything};
use crate::world::{Finished, expect_words};

const TOOLS: &str = r#"[{"name":"b","inputSchema":{"type":"object"}},{"name":"a.x","inputSchema":{"type":"object"}}]"#;

fn shop(test: &str) -> Shop {
    Shop::new(test).with("TOOLS", TOOLS)
}

fn probe(shop: &Shop, servers: &Value, args: &[&str]) -> Finished {
    let file = json!({"mcpServers": servers}).to_string();
    shop.home.write("drawspan.json", &file);
    shop.home.run(&[&["probe"], args].concat())
}

#[test]
fn a_server_that_is_well_shows_what_it_has() {
    let shop = shop("probe-well");
    let finished = probe(&shop, &json!({"s": shop.entry()}), &["--json"]);
    let document = document(&finished.expect_code(0).expect_silence());
    expect_words(document["generatedAt"].as_str().unwrap(), &["T", "Z"]);
    let s = &document["servers"]["s"];
    assert_eq!((&s["ok"], &s["state"]), (&true.into(), &"ready".into()));
    assert_eq!(
        (&s["transport"], &s["protocolVersion"]),
        (&"stdio".into(), &"2025-06-18".into())
    );
    assert_eq!(
        (&s["tools"], &s["toolNames"]),
        (&2.into(), &json!(["b", "a.x"]))
    );
    assert_eq!(
        (&s["filteredTools"], &s["requestTimeoutMs"]),
        (&0.into(), &60_000.into())
    );
    assert!(s["launch"].as_str().unwrap().ends_with("/server"));
    assert_eq!(s["resources"], Value::Null, "absent, not false");
    assert_eq!(document["tools"], json!(["s__a-x", "s__b"]));
    assert_eq!(document["diagnostics"], json!([]));
    let finished = probe(&shop, &json!({"s": shop.entry()}), &[])
        .expect_code(0)
        .expect_silence();
    assert_eq!(finished.stdout, ["- s: 2 tools (2025-06-18)"]);
}

#[test]
fn one_bad_server_costs_one_server() {
    let shop = shop("probe-mixed");
    let refusing = canned(
        "HTTP/1.1 401 No\r\nContent-Length: 0\r\nConnection: close\r\nWWW-Authenticate: Bearer\r\n\r\n",
    );
    let servers = json!({
        "z good": shop.entry(), "gone": {"command": "/no/such/server"}, "broken": {"url": "nope"},
        "off": {"command": "x", "enabled": false}, "auth": {"url": refusing},
        "unlisted": {"command": shop.home.path("server"),
            "env": {"LISTED": "\"error\":{\"code\":-32603,\"message\":\"out of order\"}"}},
    });
    let finished = probe(&shop, &servers, &["--json"]).expect_code(1);
    let document = document(&finished.expect_silence());
    let states: Vec<(&str, bool, &str)> = [
        ("z good", true, "ready"),
        ("gone", false, "failed"),
        ("broken", false, "failed"),
        ("off", false, "disabled"),
        ("auth", false, "auth"),
        ("unlisted", false, "failed"),
    ]
    .into();
    assert_eq!(document["servers"].as_object().unwrap().len(), states.len());
    for (name, ok, state) in states {
        let server = &document["servers"][name];
        assert_eq!(
            (&server["ok"], &server["state"]),
            (&ok.into(), &state.into()),
            "{name}"
        );
        assert_eq!(server["tools"], if ok { 2 } else { 0 }, "{name}");
    }
    let said = document["diagnostics"].as_array().unwrap();
    let mut whose: Vec<_> = said
        .iter()
        .map(|one| one["serverName"].as_str().unwrap())
        .collect();
    whose.sort_unstable();
    assert_eq!(
        whose,
        ["auth", "broken", "gone", "unlisted"],
        "one each: {said:#?}"
    );
    assert!(said.iter().all(|one| one["level"] == "error"));

    let finished = probe(&shop, &servers, &[]).expect_code(1);
    assert_eq!(finished.stdout.len(), 6);
    assert_eq!(finished.stdout[3], "- off: disabled");
    assert_eq!(finished.stdout[5], "- z good: 2 tools (2025-06-18)");
    for at in [0, 1, 2, 4] {
        assert!(
            finished.stdout[at].starts_with("! "),
            "{}",
            finished.stdout[at]
        );
    }
    finished.expect_silence();
}

#[test]
fn one_name_gives_that_servers_code() {
    let shop = shop("probe-codes");
    let servers = json!({"gone": {"command": "/no/such/server"}, "good": shop.entry(),
        "off": {"command": "x", "enabled": false}, "bad": {}});
    for (args, code) in [
        (&["gone"][..], 4),
        (&["good"], 0),
        (&["off"], 1),
        (&["bad"], 1),
        (&["gone", "good"], 1),
        (&["good", "off"], 0),
        (&[], 1),
    ] {
        probe(&shop, &servers, args).expect_code(code);
        probe(&shop, &servers, &[args, &["--json"]].concat()).expect_code(code);
    }
    // Without a name there is no one server, though there be but one.
    let gone = json!({"gone": {"command": "/no/such/server"}});
    probe(&shop, &gone, &[]).expect_code(1);
    let off = json!({"off": {"command": "x", "enabled": false}});
    probe(&shop, &off, &[]).expect_code(0);
    probe(&shop, &json!({}), &[])
        .expect_code(0)
        .expect_stderr(&["hint: no servers"]);
}

#[test]
fn failures_do_not_come_again_while_others_are_slow() {
    let shop = shop("probe-slow").with(
        "BEFORE",
        "while [ ! -e \"$HOME/tried\" ]; do sleep 0.1; done; sleep 3",
    );
    let gone = r#"#!/bin/sh
echo once >> "$HOME/tries"; : > "$HOME/tried"; exit 1"#;
    shop.home.write("gone", gone);
    super::servers::make_executable(&shop.home.path("gone"));
    let servers = json!({"slow": shop.entry(), "gone": {
        // In auto it would be started again, for the older handshake.
        "command": shop.home.path("gone"), "protocol": "legacy"}});
    let finished = probe(&shop, &servers, &["--json"]).expect_code(1);
    assert_eq!(
        document(&finished)["diagnostics"].as_array().unwrap().len(),
        1
    );
    let tries = std::fs::read_to_string(shop.home.path("tries")).unwrap();
    assert_eq!(tries, "once\n");
}

#[test]
fn a_target_needs_no_file() {
    let shop = shop("probe-target");
    let finished = shop
        .home
        .run(&["probe", "--json", "--", &everything()])
        .expect_code(0);
    let document = document(&finished.expect_silence());
    let server = &document["servers"]["everything_server"];
    assert_eq!(
        (&server["resources"], &server["prompts"]),
        (&true.into(), &true.into())
    );
    assert_eq!(server["listChanged"]["tools"], true);
    shop.home
        .run(&["probe", "http://127.0.0.1:1/mcp"])
        .expect_code(4);
}
