//! Where servers come from: files, their shapes, and other programs.

use serde_json::{Value, json};

use super::servers::{Shop, document, error};
use crate::world::Home;

#[track_caller]
fn names(home: &Home, args: &[&str]) -> Vec<String> {
    let finished = home.run(&[&["status", "--json"], args].concat());
    let document = document(&finished.expect_code(0).expect_silence());
    let servers = document["servers"].as_array().unwrap().clone();
    let name = |one: Value| one["name"].as_str().unwrap().to_owned();
    servers.into_iter().map(name).collect()
}

fn one(name: &str) -> String {
    json!({"mcpServers": {name: {"command": "x"}}}).to_string()
}

#[test]
fn the_first_file_there_is_counts() {
    let home = Home::new("config-discovery");
    assert_eq!(names(&home, &[]), Vec::<String>::new());
    home.write(".mcp.json", &one("shared"));
    assert_eq!(names(&home, &[]), ["shared"]);
    home.write("drawspan.json", &one("ours"));
    assert_eq!(names(&home, &[]), ["ours"]);
    home.write("other.json", &one("named"));
    assert_eq!(names(&home, &["--config", "other.json"]), ["named"]);
    let status = document(&home.run(&["status", "--json", "--config", "other.json"]));
    assert_eq!(status["path"], "other.json");
    for command in [
        &["status", "--json"][..],
        &["list", "x", "--json"],
        &["probe", "--json"],
    ] {
        let args = [command, &["--config", "nowhere.json"]].concat();
        let finished = home.run(&args).expect_code(2);
        assert!(
            error(&finished)["message"]
                .to_string()
                .contains("nowhere.json")
        );
    }
}

#[test]
fn each_shape_is_understood_and_called() {
    let tools = r#"[{"name":"t","inputSchema":{"type":"object"}}]"#;
    let shop = Shop::new("config-shapes").with("TOOLS", tools);
    let entry = shop.entry();
    for shape in [
        json!({"mcpServers": {"a b": entry}}),
        json!({"servers": {"a b": entry}, "inputs": []}),
        json!({"mcp": {"servers": {"a b": entry}}, "gateway": {}}),
    ] {
        shop.home.write("drawspan.json", &shape.to_string());
        let finished = shop
            .home
            .run(&["list", "a b"])
            .expect_code(0)
            .expect_silence();
        assert_eq!(finished.stdout, ["t"]);
    }
}

#[test]
fn servers_of_other_programs_are_read_on_request() {
    let home = Home::new("config-import");
    let file = |path: &str, text: &str| {
        let path = home.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let claw = json!({"mcp": {"servers": {"claw": {"command": "x"}}}}).to_string();
    file(".openclaw/openclaw.json", &claw);
    file(".claude.json", &one("claude"));
    file(
        ".vscode/mcp.json",
        &json!({"servers": {"code": {"command": "x"}}}).to_string(),
    );
    file(".cursor/mcp.json", &one("cursor"));
    file(
        ".codex/config.toml",
        "[mcp_servers.codex]\ncommand = \"x\"\n",
    );
    let rows = [
        ("openclaw", "claw"),
        ("claude", "claude"),
        ("vscode", "code"),
        ("cursor", "cursor"),
        ("codex", "codex"),
    ];
    for (program, name) in rows {
        assert_eq!(names(&home, &["--import", program]), [name]);
    }
    assert_eq!(names(&home, &[]), Vec::<String>::new(), "on request only");
    let finished = home.run(&["status", "--import", "emacs"]).expect_code(2);
    assert!(
        finished
            .stderr
            .join("\n")
            .contains("openclaw, claude, vscode, cursor, codex")
    );
    let both = ["status", "--import", "codex", "--config", "x"];
    home.run(&both).expect_code(2);
    // It works where a server is used, too.
    let finished = home
        .run(&["list", "codex", "--import", "codex", "--json"])
        .expect_code(4);
    assert_eq!(error(&finished)["data"]["server"], "codex");
}

#[test]
fn names_are_keys_byte_for_byte() {
    let shop = Shop::new("config-names");
    let file = json!({"mcpServers": {"Server": shop.entry(), "off": {"command": "x", "disabled": true},
        "bad": {"url": "ftp://h"}, "lost": {"command": "${NOT_SET}"}}});
    shop.home.write("drawspan.json", &file.to_string());
    shop.home.run(&["list", "Server"]).expect_code(0);
    for args in [
        &["list", "server"][..],
        &["call", "server", "t"],
        &["read", "server", "a:b"],
        &["prompt", "server", "p"],
        &["probe", "server"],
        &["status", "server"],
        &["doctor", "server"],
    ] {
        let finished = shop.home.run(args).expect_code(2);
        assert_eq!(finished.stdout, Vec::<String>::new());
        finished.expect_stderr(&[
            "error: no server is called server",
            "drawspan.json",
            "drawspan status",
        ]);
    }
    let rows = [
        ("off", "server off: disabled in the configuration"),
        ("bad", "server bad: url must begin with http://"),
        ("lost", "server lost: command needs the variable NOT_SET"),
    ];
    for (name, why) in rows {
        let finished = shop.home.run(&["list", name, "--json"]).expect_code(1);
        let error = error(&finished);
        assert!(
            error["message"].as_str().unwrap().starts_with(why),
            "{error}"
        );
        assert_eq!(error["data"], json!({"server": name, "phase": "config"}));
    }
}

#[test]
fn what_has_no_effect_is_told() {
    let shop = Shop::new("config-warnings");
    let mut entry = shop.entry();
    entry["env"]["LD_PRELOAD"] = "x".into();
    shop.home.write(
        "drawspan.json",
        &json!({"mcpServers": {"s": entry}}).to_string(),
    );
    let finished = shop.home.run(&["list", "s"]).expect_code(0);
    finished.expect_stderr(&["warning: server s: env.LD_PRELOAD"]);
    for (args, at) in [(["list", "s", "--json"], 0), (["probe", "s", "--json"], 0)] {
        let finished = shop.home.run(&args).expect_code(0).expect_silence();
        let said = &document(&finished)["diagnostics"][at];
        assert_eq!(
            (&said["phase"], &said["level"]),
            (&"config".into(), &"warning".into())
        );
    }
}

#[test]
fn limits_of_the_file_hold() {
    let shop = Shop::new("config-limits").with("CALL", "sleep 1000");
    let shop = shop.with("TOOLS", r#"[{"name":"t","inputSchema":{"type":"object"}}]"#);
    let file = json!({"mcpServers": {"s": shop.entry()}, "limits": {"request_timeout_ms": 120}});
    shop.home.write("drawspan.json", &file.to_string());
    let finished = shop.home.run(&["call", "s", "t"]).expect_code(124);
    finished.expect_stderr(&["timed out after 120 ms"]);
    shop.home
        .write("drawspan.json", r#"{"limits":{"nonsense":1}}"#);
    shop.home
        .run(&["status"])
        .expect_code(2)
        .expect_stderr(&["nonsense"]);
}
