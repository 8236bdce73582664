//! `drawspan doctor`: every row of what it looks for.

use serde_json::{Value, json};

use super::servers::{Shop, document};
use crate::world::Finished;

fn doctor(shop: &Shop, servers: &Value, args: &[&str]) -> Finished {
    let file = json!({"mcpServers": servers}).to_string();
    shop.home.write("drawspan.json", &file);
    shop.home.run(&[&["doctor", "--json"], args].concat())
}

#[test]
fn each_mistake_is_named_with_its_fix() {
    let shop = Shop::new("doctor");
    shop.home.write("plain", "no program");
    let plain = shop.home.path("plain");
    let (warning, error) = ("warning", "error");
    let rows: [(Value, &str, &str); 14] = [
        (
            json!({"command": "true", "enabled": false}),
            warning,
            "disabled",
        ),
        (
            json!({"url": "http://h", "transport": "ws"}),
            error,
            "transport ws is not supported",
        ),
        (
            json!({"baseUrl": "http://h"}),
            error,
            "url is missing (found baseUrl)",
        ),
        (
            json!({"command": "no-such-program-at-all"}),
            error,
            "command no-such-program-at-all is not found",
        ),
        (json!({"command": plain}), error, "is not executable"),
        (
            json!({"command": "true", "cwd": "/no/such/folder"}),
            error,
            "cwd /no/such/folder is no directory",
        ),
        (
            json!({"url": "https://h", "auth": "oauth"}),
            warning,
            "nobody has signed in",
        ),
        (
            json!({"url": "https://h", "auth": "oauth", "headers": {"authorization": "$X"}}),
            warning,
            "headers.Authorization",
        ),
        (
            json!({"url": "https://h", "sslVerify": false}),
            warning,
            "sslVerify is off",
        ),
        (
            json!({"url": "https://h", "clientCert": "/no/c.pem", "clientKey": "/no/k.pem"}),
            error,
            "/no/c.pem is no file",
        ),
        (
            json!({"url": "https://h", "headers": {"X-Api-Key": "abcdef"}}),
            warning,
            "headers.X-Api-Key holds a secret in clear",
        ),
        (
            json!({"command": "true", "env": {"AWS_SECRET_ACCESS_KEY": "abcdef"}}),
            warning,
            "env.AWS_SECRET_ACCESS_KEY",
        ),
        (
            json!({"command": "true", "toolFilter": {}}),
            warning,
            "toolFilter has neither include nor exclude",
        ),
        (
            json!({"command": "${NOT_SET}"}),
            error,
            "needs the variable NOT_SET",
        ),
    ];
    for (entry, level, words) in rows {
        let finished = doctor(&shop, &json!({"s": entry}), &[]);
        let code = if level == error { 1 } else { 0 };
        let finished = finished.expect_code(code).expect_silence();
        assert!(!finished.stdout.join("").contains("abcdef"), "{entry}");
        let found = document(&finished);
        assert_eq!(found["path"], "drawspan.json");
        assert_eq!(found["ok"], level != error, "{entry}");
        let server = &found["servers"][0];
        assert_eq!(
            (&server["name"], &server["ok"]),
            (&"s".into(), &(level != error).into())
        );
        let issues = server["issues"].as_array().unwrap();
        let fits = |issue: &&Value| issue["message"].as_str().unwrap().contains(words);
        let issue = issues.iter().find(fits);
        let issue = issue.unwrap_or_else(|| panic!("no {words:?} for {entry}: {issues:#?}"));
        assert_eq!(issue["level"], level, "{entry}");
    }
}

#[test]
fn placeholders_are_no_secrets_in_clear() {
    let shop = Shop::new("doctor-clean");
    let entry = json!({"command": "true", "env": {"B_SECRET": "${HOME}", "API_TOKEN": "$X"}});
    let finished = doctor(&shop, &json!({"s": entry}), &[]).expect_code(0);
    assert_eq!(document(&finished)["servers"][0]["issues"], json!([]));
    let finished = shop.home.run(&["doctor"]).expect_code(0).expect_silence();
    assert_eq!(finished.stdout, ["- s: ok"]);
}

#[test]
fn a_probe_tries_those_without_errors() {
    let shop = Shop::new("doctor-probe")
        .with("TOOLS", r#"[{"name":"t","inputSchema":{"type":"object"}}]"#);
    let bad = json!({"command": shop.home.path("server"), "env": {"BEFORE": "exit 3"}});
    let servers = json!({"good": shop.entry(), "bad": bad, "static": {"command": "/no/such"}});
    doctor(&shop, &servers, &[]).expect_code(1);
    assert_eq!(
        shop.heard(),
        Vec::<String>::new(),
        "nothing is started without --probe"
    );
    let finished = doctor(&shop, &servers, &["--probe"])
        .expect_code(1)
        .expect_silence();
    let found = document(&finished);
    let ok: Vec<&Value> = found["servers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["ok"])
        .collect();
    assert_eq!(ok, [false, true, false]);
    let said = found["servers"][0]["issues"][0]["message"]
        .as_str()
        .unwrap();
    assert!(said.contains("server bad: exited with code 3"), "{said}");
    doctor(&shop, &servers, &["good", "--probe"]).expect_code(0);
    shop.home.expect_processes(0);
}

#[test]
fn its_report_is_out_before_servers_are_made_to_end() {
    let shop = Shop::new("doctor-flush").with("AFTER", "cp \"$HOME/out\" \"$HOME/at-the-end\"");
    let file = json!({"mcpServers": {"s": shop.entry()}}).to_string();
    shop.home.write("drawspan.json", &file);
    let mut command = shop.home.shell(r#"exec "$@" >out"#, &["doctor", "--probe"]);
    crate::world::Process::start(&mut command)
        .finish()
        .expect_code(0);
    let seen = std::fs::read_to_string(shop.home.path("at-the-end")).unwrap();
    assert_eq!(seen, "- s: ok\n");
}
