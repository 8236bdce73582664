//! `drawspan status`: what the files say, with nothing connected.

use serde_json::{Value, json};

use super::servers::{Shop, document};

#[test]
fn every_server_is_there_in_file_order_and_none_is_started() {
    let shop = Shop::new("status");
    let servers = r#"{"mcpServers": {
        "z": {"command": "./server", "args": ["--api-key", "hidden", "x"], "toolFilter": {"include": ["a*"]},
              "supportsParallelToolCalls": true},
        "b off": {"url": "http://h/mcp?token=hidden", "enabled": false},
        "a": {"url": "http://h/sse", "transport": "sse", "auth": "oauth", "requestTimeoutMs": 1500,
              "headers": {"Authorization": "Bearer hidden"}},
        "bad": {"baseUrl": "http://h/mcp"},
        "lost": {"command": "x", "env": {"K": "${NOT_SET}"}},
        "sock": {"url": "unix:/run/s"}
    }}"#;
    shop.home.write("drawspan.json", servers);
    let finished = shop
        .home
        .run(&["status", "--json"])
        .expect_code(0)
        .expect_silence();
    assert!(!finished.stdout.join("").contains("hidden"));
    let found = document(&finished);
    assert_eq!(found["path"], "drawspan.json");
    let servers = found["servers"].as_array().unwrap();
    let rows: [(&str, bool, bool, &str); 6] = [
        ("z", true, true, "idle"),
        ("b off", false, false, "disabled"),
        ("a", true, true, "idle"),
        ("bad", true, false, "failed"),
        ("lost", true, false, "failed"),
        ("sock", true, true, "idle"),
    ];
    assert_eq!(servers.len(), rows.len());
    for (server, (name, enabled, ok, state)) in servers.iter().zip(rows) {
        let expected = json!([name, true, enabled, ok, state]);
        let members = ["name", "configured", "enabled", "ok", "state"];
        let found: Vec<&Value> = members.iter().map(|member| &server[member]).collect();
        assert_eq!(json!(found), expected);
    }
    let z = &servers[0];
    assert_eq!(z["launch"], "./server --api-key *** x");
    assert_eq!(z["transport"], "stdio");
    assert_eq!(z["toolFilter"], json!({"include": ["a*"]}));
    assert_eq!(z["supportsParallelToolCalls"], true);
    assert_eq!(
        (&z["requestTimeoutMs"], &z["connectionTimeoutMs"]),
        (&60_000.into(), &30_000.into())
    );
    assert_eq!(servers[1]["launch"], "http://h/mcp?token=***");
    let a = &servers[2];
    assert_eq!(
        (&a["transport"], &a["auth"], &a["requestTimeoutMs"]),
        (&"sse".into(), &"oauth".into(), &1_500.into())
    );
    let why = servers[3]["lastError"].as_str().unwrap();
    assert_eq!(why, "url is missing (found baseUrl): rename it to url");
    assert_eq!(servers[5]["transport"], "unix");

    let finished = shop.home.run(&["status"]).expect_code(0).expect_silence();
    assert_eq!(
        finished.stdout[..4],
        [
            "- z: stdio tool-filtered parallel ./server --api-key *** x",
            "- b off: disabled",
            "- a: sse oauth http://h/sse",
            "- bad: invalid: url is missing (found baseUrl): rename it to url",
        ]
    );
    let one = document(&shop.home.run(&["status", "bad", "--json"]).expect_code(0));
    assert_eq!(one["servers"].as_array().unwrap().len(), 1);
    assert_eq!(shop.heard(), Vec::<String>::new());
}

#[test]
fn without_a_file_there_is_nothing_and_a_hint() {
    let shop = Shop::new("status-none");
    let finished = shop.home.run(&["status"]).expect_code(0);
    assert_eq!(finished.stdout, Vec::<String>::new());
    finished.expect_stderr(&["hint: no servers are configured here; --config names a file"]);
    let finished = shop
        .home
        .run(&["status", "--json"])
        .expect_code(0)
        .expect_silence();
    assert_eq!(document(&finished), json!({"servers": []}));
}
