//! The audit log of `drawspan serve`, and `drawspan audit verify`.

use std::collections::BTreeMap;
use std::path::Path;

use drawspan::crypto::{hex, sha256};
use rustix::process::Signal;
use serde_json::Value;

use crate::client::servers::{Shop, document};
use crate::world::{Finished, Home, Process, expect_words, is_private, text, until};

const TOOLS: &str = r#"[{"name":"add","inputSchema":{"type":"object"}}]"#;

/// A server whose only tool does what its argument says: nothing for ever, fail, refuse, or answer.
const CALL: &str = r#"case $line in
  *silence*) continue;;
  *failure*) answer '"error":{"code":-32050,"message":"no"}'; continue;;
  *complaint*) answer '"result":{"content":[],"isError":true}'; continue;;
esac"#;

fn shop(test: &str) -> Shop {
    let shop = Shop::new(test).with("TOOLS", TOOLS).with("CALL", CALL);
    let servers = serde_json::json!({"notes": shop.entry()});
    shop.home.write(
        "drawspan.json",
        &serde_json::json!({ "mcpServers": servers }).to_string(),
    );
    shop
}

/// `drawspan serve` with a log.
fn serve(home: &Home, more: &[&str]) -> Process {
    let mut args = vec!["serve", "--audit", "log"];
    args.extend(more);
    let mut process = Process::serve(&mut home.drawspan(&args));
    process.hello();
    process
}

fn lines(home: &Home, name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(home.path(name)).unwrap_or_default();
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    text.lines().map(parse).collect()
}

/// The log is there with this many lines: a line is written in the turn of its answer, not before it.
#[track_caller]
fn expect_lines(home: &Home, count: usize) -> Vec<Value> {
    until("lines", || match lines(home, "log") {
        found if found.len() == count => Ok(()),
        found => Err(format!("{found:#?}")),
    });
    lines(home, "log")
}

#[track_caller]
fn expect_whole(home: &Home, files: &[&str]) -> Value {
    let mut args = vec!["audit", "verify", "--json"];
    args.extend(files);
    let report = document(&home.run(&args).expect_code(0).expect_silence());
    assert_eq!(report["ok"], true, "{report}");
    report
}

/// Each call that was shown to the gate has one end, and not before its decision.
#[track_caller]
fn expect_one_end_each(lines: &[Value]) {
    let mut calls: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for line in lines {
        if let Some(call) = line["call"].as_str() {
            let event = line["event"].as_str().unwrap();
            calls.entry(call.to_owned()).or_default().push(event);
        }
    }
    for (call, events) in calls {
        assert_eq!(events, ["decision", "call"], "call {call}");
    }
}

#[test]
fn each_call_leaves_its_decision_and_its_end() {
    let shop = shop("audit-lines");
    let mut serve = serve(&shop.home, &[]);
    for arguments in [
        r#"{ "password": "hunter2" }"#,
        r#"{"do":"failure"}"#,
        r#"{"do":"complaint"}"#,
    ] {
        let id = serve.begin("add", arguments);
        serve.answer(id);
    }
    let id = serve.begin("add", r#"{"do":"silence"}"#);
    serve.send(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    ));
    serve.sync();
    let lines = expect_lines(&shop.home, 9);
    assert_eq!(lines[0]["event"], "start");
    expect_one_end_each(&lines);
    let first = &lines[1];
    let digest = hex(&sha256(br#"{ "password": "hunter2" }"#));
    for (member, value) in [
        ("event", "decision"),
        ("caller", "tester"),
        ("principal", "stdio"),
        ("by", "default"),
        ("server", "notes"),
        ("tool", "add"),
        ("arguments", &digest),
        ("decision", "allow"),
    ] {
        assert_eq!(first[member], value, "{member} in {first}");
    }
    assert!(first["call"].is_string());
    let time = first["time"].as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    let ends = lines.iter().filter(|line| line["event"] == "call");
    let ends: Vec<&Value> = ends.collect();
    let outcomes: Vec<&str> = ends
        .iter()
        .filter_map(|line| line["outcome"].as_str())
        .collect();
    assert_eq!(outcomes, ["ok", "error", "isError", "cancelled"]);
    assert_eq!(ends[1]["code"], -32050);
    assert!(ends.iter().all(|line| line["durationMs"].is_u64()));
    serve.finish().expect_code(0).expect_silence();
    let text = std::fs::read_to_string(shop.home.path("log")).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("password"));
    assert!(is_private(&shop.home.path("log")));
    let report = expect_whole(&shop.home, &["log"]);
    assert_eq!((&report["lines"], &report["last"]), (&9.into(), &9.into()));
    let said = shop.home.run(&["audit", "verify", "log"]).expect_code(0);
    expect_words(
        &said.stdout[0],
        &["whole: 9 lines", report["hash"].as_str().unwrap()],
    );
}

#[test]
fn who_decided_is_on_record() {
    let shop = shop("audit-hook");
    let hook = r#"case $(cat) in
      *forbidden*) echo '{"block":true,"blockReason":"secret reason"}';;
      *) echo '{"params":{"other":1}}';; esac"#;
    let config = serde_json::json!({
        "mcpServers": {"notes": shop.entry()},
        "hooks": {"beforeToolCall": {"command": ["sh", "-c", hook]}},
    });
    shop.home.write("drawspan.json", &config.to_string());
    let mut serve = serve(&shop.home, &[]);
    assert_ne!(serve.call("add", r#"{"x":1}"#)["isError"], true);
    assert_eq!(serve.call("add", r#"{"say":"forbidden"}"#)["isError"], true);
    let lines = expect_lines(&shop.home, 5);
    expect_one_end_each(&lines);
    assert_eq!(
        (&lines[1]["decision"], &lines[1]["by"]),
        (&"allow".into(), &"hook".into())
    );
    assert_eq!(lines[1]["arguments"], hex(&sha256(br#"{"x":1}"#)));
    assert_eq!(lines[1]["replaced"], hex(&sha256(br#"{"other":1}"#)));
    assert_eq!(
        (&lines[3]["decision"], &lines[3]["by"]),
        (&"deny".into(), &"hook".into())
    );
    assert_eq!(lines[4]["outcome"], "refused");
    assert!(!format!("{lines:?}").contains("secret reason"));
    serve.finish().expect_code(0).expect_silence();
    expect_whole(&shop.home, &["log"]);
}

/// What is under way when everything ends has its line all the same.
#[test]
fn the_end_of_everything_ends_each_call() {
    for signal in [Signal::TERM, Signal::INT] {
        let shop = shop(&format!("audit-end-{}", signal.as_raw()));
        let mut serve = serve(&shop.home, &[]);
        serve.begin("add", r#"{"do":"silence"}"#);
        serve.begin("add", r#"{"do":"silence"}"#);
        expect_lines(&shop.home, 3);
        serve.signal(signal);
        serve.signal(signal);
        let _ = serve.end();
        let lines = lines(&shop.home, "log");
        assert_eq!(lines.len(), 5, "{lines:#?}");
        expect_one_end_each(&lines);
        expect_whole(&shop.home, &["log"]);
    }
}

#[test]
fn a_file_is_continued_after_a_restart_and_after_a_crash() {
    let shop = shop("audit-restart");
    let home = &shop.home;
    for _ in 0..2 {
        let mut serve = serve(home, &[]);
        serve.call("add", "{}");
        serve.finish().expect_code(0).expect_silence();
    }
    assert_eq!(lines(home, "log").len(), 6);
    expect_whole(home, &["log"]);
    // Killed: whatever is whole in the file stays so.
    let mut killed = serve(home, &[]);
    killed.call("add", "{}");
    expect_lines(home, 9);
    killed.signal(Signal::KILL);
    let _ = killed.end();
    // Cut off in the middle of a line.
    let mut text = std::fs::read_to_string(home.path("log")).unwrap();
    text.truncate(text.len() - 40);
    home.write("log", &text);
    let torn = home.run(&["audit", "verify", "log"]).expect_code(6);
    torn.expect_stderr(&["error: log: line 9: torn: it is cut off"]);
    let mut serve = serve(home, &[]);
    serve.call("add", "{}");
    let finished = serve.finish().expect_code(0);
    finished.expect_stderr(&["warning: audit log log: its last line was cut off after"]);
    let report = expect_whole(home, &["log"]);
    assert_eq!((&report["torn"], &report["last"]), (&1.into(), &12.into()));
    let words = home.run(&["audit", "verify", "log"]).expect_code(0);
    expect_words(&words.stdout[0], &["1 of them cut off by a crash"]);
}

/// A log with two calls, whole.
fn written(test: &str) -> (Shop, Vec<String>) {
    let shop = shop(test);
    let mut serve = serve(&shop.home, &[]);
    serve.call("add", "{}");
    serve.call("add", "{}");
    serve.finish().expect_code(0).expect_silence();
    let text = std::fs::read_to_string(shop.home.path("log")).unwrap();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 5);
    (shop, lines)
}

#[test]
fn what_was_done_to_a_log_is_found() {
    let (shop, lines) = written("audit-verify");
    let home = &shop.home;
    let verify = |lines: &[String]| {
        home.write("other", &format!("{}\n", lines.join("\n")));
        home.run(&["audit", "verify", "other"])
    };
    let found = |lines: &[String], words: &str| {
        verify(lines)
            .expect_code(6)
            .expect_stderr(&[&format!("error: other: {words}")]);
    };
    verify(&lines).expect_code(0).expect_silence();
    let mut changed = lines.clone();
    changed[2] = changed[2].replace("tester", "nobody");
    found(&changed, "line 3: changed: ");
    found(
        &[&lines[..1], &lines[2..]].concat(),
        "line 2: removed: it has number 3; number 2 is missing",
    );
    found(&lines[1..], "line 1: removed: ");
    let mut doubled = lines.clone();
    doubled.insert(2, lines[1].clone());
    found(&doubled, "line 3: inserted: ");
    let mut moved = lines.clone();
    moved.swap(1, 2);
    found(
        &moved,
        "line 2: reordered: number 2 belongs here; it is line 3",
    );
    let mut other = lines.clone();
    other.insert(4, "hello".to_owned());
    found(&other, "line 5: not-a-line: ");
    other[4] = "x".repeat(100_000);
    found(&other, "line 5: not-a-line: ");
    // For scripts.
    home.write("other", &changed.join("\n"));
    let finished = home
        .run(&["audit", "verify", "--json", "other"])
        .expect_code(6);
    let report = document(&finished.expect_silence());
    assert_eq!(report["ok"], false);
    let fault = &report["fault"];
    let expected = (&"other".into(), &3.into(), &"changed".into());
    assert_eq!((&fault["file"], &fault["line"], &fault["kind"]), expected);
    // A cut end is found by who noted a hash.
    let hash = |line: &str| line[line.len() - 66..line.len() - 2].to_owned();
    let holds = |lines: &[String], hash: &str| {
        home.write("other", &format!("{}\n", lines.join("\n")));
        home.run(&["audit", "verify", "--holds", hash, "other"])
    };
    holds(&lines, &hash(&lines[4]))
        .expect_code(0)
        .expect_silence();
    holds(&lines[..4], &hash(&lines[4]))
        .expect_code(6)
        .expect_stderr(&["no line has the hash"]);
    holds(&lines, "abc")
        .expect_code(2)
        .expect_stderr(&["64 hexadecimal digits"]);
    let missing = home.run(&["audit", "verify", "nowhere"]).expect_code(1);
    missing.expect_stderr(&["error: cannot read nowhere: "]);
}

#[test]
fn a_rotated_log_is_one_chain() {
    let shop = shop("audit-rotation");
    let home = &shop.home;
    let mut serve = serve(home, &[]);
    serve.call("add", "{}");
    expect_lines(home, 3);
    std::fs::rename(home.path("log"), home.path("log.1")).unwrap();
    serve.signal(Signal::HUP);
    // There at once, so that the chain goes on even if nothing is called any more.
    let continued = expect_lines(home, 1);
    assert_eq!(
        (&continued[0]["event"], &continued[0]["seq"]),
        (&"continued".into(), &4.into())
    );
    assert_eq!(continued[0]["prev"], lines(home, "log.1")[2]["hash"]);
    serve.call("add", "{}");
    expect_lines(home, 3);
    // Not moved: nothing happens.
    serve.signal(Signal::HUP);
    serve.call("add", "{}");
    expect_lines(home, 5);
    // Copied and emptied.
    std::fs::copy(home.path("log"), home.path("log.2")).unwrap();
    std::fs::File::create(home.path("log")).unwrap();
    serve.call("add", "{}");
    assert_eq!(expect_lines(home, 3)[0]["event"], "continued");
    serve.finish().expect_code(0);
    let report = expect_whole(home, &["log.1", "log.2", "log"]);
    assert_eq!((&report["first"], &report["last"]), (&1.into(), &11.into()));
    assert_eq!(expect_whole(home, &["log.2"])["first"], 4);
    let gap = home
        .run(&["audit", "verify", "log.1", "log"])
        .expect_code(6);
    gap.expect_stderr(&[
        "error: log: line 1: removed: ",
        "number 4 of the file before",
    ]);
}

#[test]
fn a_log_that_the_configuration_moves_is_one_chain() {
    let shop = shop("audit-moved");
    let home = &shop.home;
    let servers = serde_json::json!({"notes": shop.entry()});
    let configure = |audit: Value| {
        let config = serde_json::json!({"mcpServers": servers, "audit": audit});
        home.write("drawspan.json", &config.to_string());
    };
    configure(serde_json::json!({"file": "log.1"}));
    let mut serve = Process::serve(&mut home.drawspan(&["serve"]));
    serve.hello();
    serve.call("add", "{}");
    until("lines", || match lines(home, "log.1").len() {
        3 => Ok(()),
        n => Err(n.to_string()),
    });
    configure(serde_json::json!({"file": "log"}));
    assert_eq!(expect_lines(home, 1)[0]["event"], "continued");
    serve.call("add", "{}");
    expect_lines(home, 3);
    // What cannot be opened is not moved to, and what takes a restart is said.
    configure(serde_json::json!({"file": "no/log"}));
    let warning = serve.stderr.expect("a warning");
    let words = ["warning: audit log", "no/log", "lines go to", "as before"];
    expect_words(&warning, &words);
    configure(serde_json::json!({"file": "log", "required": true}));
    expect_words(&serve.stderr.expect("a warning"), &["takes a restart"]);
    serve.call("add", "{}");
    expect_lines(home, 5);
    serve.finish().expect_code(0);
    expect_whole(home, &["log.1", "log"]);
}

#[test]
fn a_deleted_log_is_said_and_made_anew() {
    let shop = shop("audit-deleted");
    let mut serve = serve(&shop.home, &[]);
    serve.call("add", "{}");
    expect_lines(&shop.home, 3);
    std::fs::remove_file(shop.home.path("log")).unwrap();
    serve.call("add", "{}");
    let lines = expect_lines(&shop.home, 3);
    assert_eq!(
        (&lines[0]["event"], &lines[0]["seq"]),
        (&"continued".into(), &4.into())
    );
    let finished = serve.finish().expect_code(0);
    finished.expect_stderr(&["warning: audit log log was deleted"]);
    expect_whole(&shop.home, &["log"]);
}

/// Puts a link to `target` where the log is to be.
fn link(home: &Home, target: &Path) {
    let _ = std::fs::remove_file(home.path("log"));
    std::os::unix::fs::symlink(target, home.path("log")).unwrap();
}

#[test]
fn a_full_disk_costs_no_call_and_is_said_once() {
    let shop = shop("audit-full");
    link(&shop.home, Path::new("/dev/full"));
    let mut serve = serve(&shop.home, &[]);
    for _ in 0..20 {
        assert_ne!(serve.call("add", "{}")["isError"], true);
    }
    let finished = serve.finish().expect_code(0);
    assert_eq!(finished.stderr.len(), 2, "{:?}", finished.stderr);
    expect_words(
        &finished.stderr[0],
        &[
            "error: audit log log cannot be written: no space left on device",
            "1 lines wait",
        ],
    );
    expect_words(
        &finished.stderr[1],
        &["no space left on device", "its last 41 lines are lost"],
    );
}

#[test]
fn what_could_not_be_written_is_written_when_it_can_be() {
    let shop = shop("audit-again");
    let home = &shop.home;
    let config = std::fs::read_to_string(home.path("drawspan.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["limits"] = serde_json::json!({"audit_queue_bytes_max": 4_000});
    home.write("drawspan.json", &config.to_string());
    link(home, Path::new("/dev/full"));
    let mut serve = serve(home, &[]);
    for _ in 0..20 {
        assert_ne!(serve.call("add", "{}")["isError"], true);
    }
    link(home, &home.path("real"));
    assert_ne!(serve.call("add", "{}")["isError"], true);
    until("the log", || match lines(home, "real").len() {
        0 => Err("nothing".to_owned()),
        _ => Ok(()),
    });
    let finished = serve.finish().expect_code(0);
    expect_words(&finished.stderr[1], &["was moved away"]);
    expect_words(&finished.stderr[2], &["is written again"]);
    let lines = lines(home, "real");
    let lost = lines.iter().find(|line| line["event"] == "lost").unwrap();
    let kept = lines.iter().filter(|line| line["call"].is_string()).count();
    assert_eq!(
        kept as u64 + lost["lines"].as_u64().unwrap(),
        42,
        "{lines:#?}"
    );
    assert!(kept >= 6, "{kept}");
    expect_whole(home, &["real"]);
}

#[test]
fn a_required_log_refuses_calls_until_it_can_be_written() {
    let shop = shop("audit-required");
    let home = &shop.home;
    link(home, Path::new("/dev/full"));
    let mut serve = serve(home, &["--audit-required"]);
    for _ in 0..3 {
        let result = serve.call("add", "{}");
        assert_eq!(result["isError"], true);
        let words = [
            "tool call refused: the audit log cannot be written",
            "no space left on device",
        ];
        expect_words(text(&result), &words);
    }
    let list = serve.request("tools/list", "{}");
    assert!(
        serve.answer(list)["result"]["tools"].is_array(),
        "the rest is served"
    );
    assert_eq!(shop.heard_times("tools/call"), 0, "nothing has run");
    link(home, &home.path("real"));
    for _ in 0..3 {
        assert_ne!(serve.call("add", "{}")["isError"], true);
    }
    assert_eq!(shop.heard_times("tools/call"), 3);
    let _ = serve.finish().expect_code(0);
    let lines = lines(home, "real");
    expect_one_end_each(&lines);
    let outcomes: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["outcome"].as_str())
        .collect();
    assert_eq!(
        outcomes,
        ["refused", "refused", "refused", "ok", "ok", "ok"]
    );
    expect_whole(home, &["real"]);
}

/// The line is in the file before the server hears of the call.
#[test]
fn nothing_runs_that_is_not_on_record() {
    let shop = Shop::new("audit-order")
        .with("TOOLS", TOOLS)
        .with("CALL", r#"cp "$HOME/log" "$HOME/seen""#);
    let config = serde_json::json!({
        "mcpServers": {"notes": shop.entry()},
        "audit": {"file": "log", "required": true, "sync": true},
    });
    shop.home.write("drawspan.json", &config.to_string());
    let mut serve = Process::serve(&mut shop.home.drawspan(&["serve"]));
    serve.hello();
    assert_ne!(serve.call("add", "{}")["isError"], true);
    let seen = lines(&shop.home, "seen");
    assert_eq!(seen.last().unwrap()["event"], "decision", "{seen:?}");
    serve.finish().expect_code(0).expect_silence();
    expect_whole(&shop.home, &["log"]);
}

#[test]
fn a_file_that_is_no_log_or_belongs_to_another_process_is_left_alone() {
    let shop = shop("audit-others");
    let home = &shop.home;
    home.write("log", "my diary\nand more\n");
    let mut first = serve(home, &[]);
    assert_ne!(first.call("add", "{}")["isError"], true);
    let _ = first.finish().expect_code(0);
    assert_eq!(
        std::fs::read_to_string(home.path("log")).unwrap(),
        "my diary\nand more\n"
    );
    std::fs::remove_file(home.path("log")).unwrap();
    let mut first = serve(home, &[]);
    first.call("add", "{}");
    let mut second = serve(home, &["--audit-required"]);
    let refused = second.call("add", "{}");
    expect_words(text(&refused), &["another process writes to it"]);
    first.finish().expect_code(0).expect_silence();
    // Free now.
    assert_ne!(second.call("add", "{}")["isError"], true);
    let _ = second.finish().expect_code(0);
    expect_whole(home, &["log"]);
}

#[test]
fn a_required_log_needs_a_file() {
    let home = Home::new("audit-usage");
    let refused: Finished = home.run(&["serve", "--audit-required"]);
    refused.expect_code(2).expect_stderr(&["give --audit FILE"]);
}
