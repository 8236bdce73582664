//! Commands that tell something and end: limits, version, completions, help, demo.

use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::Value;

use crate::world::{Home, Process, expect_words};

#[test]
fn limits_tell_name_value_unit_and_reason() {
    let home = Home::new("limits");
    let rows = limits(&home, &[]);
    assert!(rows.len() > 30, "{} limits", rows.len());
    let table = home.run(&["limits"]).expect_code(0).expect_silence();
    assert_eq!(table.stdout.len(), rows.len());
    for (row, line) in rows.iter().zip(&table.stdout) {
        let member = |name: &str| {
            row[name]
                .as_str()
                .unwrap_or_else(|| panic!("{name}: {row}"))
        };
        assert_eq!(row["value"], row["default"], "{row}");
        assert!(
            row["value"].as_u64().is_some_and(|value| value > 0),
            "{row}"
        );
        assert!(
            member("why").ends_with('.') && !member("name").contains(' '),
            "{row}"
        );
        let value = format!("{} {}", row["value"], member("unit"));
        expect_words(line, &[member("name"), &value, member("why")]);
    }

    home.write(
        "drawspan.json",
        "// here\n{limits: {waiters_max: 7, hook_timeout_ms: 1234}}",
    );
    home.write("other.json", r#"{"limits":{"waiters_max":8}}"#);
    let changed = |rows: &[Value]| -> Vec<(String, u64)> {
        let changed = rows.iter().filter(|row| row["value"] != row["default"]);
        let short = |row: &Value| {
            (
                row["name"].as_str().unwrap().to_owned(),
                row["value"].as_u64().unwrap(),
            )
        };
        changed.map(short).collect()
    };
    let own = |name: &str, value| (name.to_owned(), value);
    assert_eq!(
        changed(&limits(&home, &[])),
        [own("waiters_max", 7), own("hook_timeout_ms", 1_234)]
    );
    assert_eq!(
        changed(&limits(&home, &["--config", "other.json"])),
        [own("waiters_max", 8)]
    );
}

fn limits(home: &Home, more: &[&str]) -> Vec<Value> {
    let finished = home.run(&[&["limits", "--json"], more].concat());
    let finished = finished.expect_code(0).expect_silence();
    let document: Value = serde_json::from_str(&finished.stdout.join("\n")).unwrap();
    document["limits"].as_array().unwrap().clone()
}

#[test]
fn a_limit_that_is_set_is_in_force() {
    let home = Home::new("in-force");
    home.write(
        "limits.json",
        r#"{"limits":{"waiters_max":1,"message_bytes_max":2000}}"#,
    );
    let args = [&crate::world::EMBEDDED[..], &["--config", "limits.json"]].concat();
    let mut serve = Process::serve(&mut home.drawspan(&args));
    serve.hello();
    serve.begin("events_wait", "{}");
    let refused = serve.call("events_wait", "{}");
    expect_words(&refused.to_string(), &["waiters_max"]);
    serve.send(&"x".repeat(2_001));
    let error = serve.message("an error", |message| message["error"].is_object());
    expect_words(&error.to_string(), &["2000"]);
    serve.finish().expect_code(0);
}

#[test]
fn version() {
    let home = Home::new("version");
    let line = format!("drawspan {}", env!("CARGO_PKG_VERSION"));
    for args in [["version"], ["--version"], ["-V"]] {
        let finished = home.run(&args).expect_code(0).expect_silence();
        assert_eq!(finished.stdout, [&*line]);
    }
    let finished = home
        .run(&["version", "--json"])
        .expect_code(0)
        .expect_silence();
    let document: Value = serde_json::from_str(&finished.stdout.join("")).unwrap();
    assert_eq!(document["name"], "drawspan");
    assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
    let revisions = document["revisions"].as_array().unwrap();
    assert_eq!(revisions.first(), Some(&"2026-07-28".into()));
    assert_eq!(revisions.last(), Some(&"2024-11-05".into()));
}

#[test]
fn completions_and_help_name_every_command() {
    const COMMANDS: [&str; 14] = [
        "serve",
        "approvals",
        "gateway",
        "demo",
        "list",
        "call",
        "read",
        "prompt",
        "probe",
        "status",
        "doctor",
        "limits",
        "completions",
        "version",
    ];
    let home = Home::new("completions");
    for shell in ["bash", "zsh", "fish"] {
        let script = home
            .run(&["completions", shell])
            .expect_code(0)
            .expect_silence();
        let script = script.stdout.join("\n");
        expect_words(&script, &COMMANDS);
        expect_words(&script, &["drawspan", "claude-channel-mode", "token-file"]);
        expect_words(&script, &["connect-timeout", "import"]);
    }
    let help = home.run(&["--help"]).expect_code(0).expect_silence();
    expect_words(&help.stdout.join("\n"), &COMMANDS);
    for command in COMMANDS {
        let help = home
            .run(&[command, "--help"])
            .expect_code(0)
            .expect_silence();
        expect_words(&help.stdout.join("\n"), &["Usage: drawspan", command]);
    }
}

#[test]
fn a_reader_that_has_heard_enough_is_no_failure() {
    let home = Home::new("enough");
    for args in [
        &["limits"][..],
        &["version"],
        &["completions", "bash"],
        &["demo"],
    ] {
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        drop(theirs);
        let mut command = home.drawspan(args);
        let finished = Process::start(command.stdout(ours)).finish();
        finished.expect_code(0).expect_silence();
    }
}

#[test]
fn the_demo_shows_what_crosses_and_leaves_nothing() {
    let home = Home::new("demo");
    let demo = home.run(&["demo"]).expect_code(0).expect_silence();
    let shown = demo.stdout.join("\n");
    let crossed = [
        r#"client ▶ bridge  {"jsonrpc":"2.0","id":1,"method":"initialize""#,
        r#"bridge ◀ gateway {"type":"event","event":"connect.challenge""#,
        r#"bridge ▶ gateway {"type":"req","id":"1","method":"connect""#,
        r#""method":"sessions.subscribe""#,
        "conversations_list",
        "conversations: 2",
        r#"{"type":"event","event":"session.message""#,
        "exec.approval.requested",
        "permissions_respond",
    ];
    expect_words(&shown, &crossed);
    assert!(!shown.contains(r#""token":""#), "the demo shows its token");
    let facts = [
        "listed conversations",
        "received a live message",
        "saw the approval",
        "answered the approval",
    ];
    let end = &demo.stdout[demo.stdout.len() - 5..];
    assert_eq!(&end[..4], &facts);
    assert!(
        end[4].starts_with("done in ") && end[4].ends_with(" KiB resident"),
        "{}",
        end[4]
    );
    assert_eq!(home.listing(), Vec::<String>::new(), "files");
    home.expect_processes(0);
}

#[test]
fn the_demo_needs_no_home_and_heeds_no_settings() {
    let home = Home::new("demo-bare");
    home.write("drawspan.json", "not even JSON5");
    let mut command = home.drawspan(&["demo"]);
    command
        .env_remove("HOME")
        .env("OPENCLAW_GATEWAY_URL", "ws://example.com");
    let demo = Process::start(&mut command).finish();
    let demo = demo.expect_code(0).expect_silence();
    expect_words(&demo.stdout.join("\n"), &["answered the approval"]);
    assert_eq!(home.listing(), ["drawspan.json"]);
}
