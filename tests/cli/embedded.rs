//! The embedded Gateway: its line, its note, its store, and the commands that talk to it.

use std::io::Write;

use rustix::process::Signal;
use serde_json::Value;

use crate::world::{EMBEDDED, Home, Process, TOKEN, TOKEN_FILE, expect_words, is_private, text};

const NOTE: &str = "store/endpoint.json";

/// `drawspan gateway post` to the Gateway that runs on the store.
#[track_caller]
fn post(home: &Home, flags: &[&str], text: &str) -> Value {
    let args = [&["gateway", "post", "--store", "store"], flags, &[text]].concat();
    let posted = home.run(&args).expect_code(0).expect_silence();
    serde_json::from_str(&posted.stdout.join("\n")).unwrap()
}

#[test]
fn one_line_tells_how_to_connect() {
    let home = Home::new("line");
    let args = [
        "gateway",
        "--listen",
        "ws://127.0.0.1:0",
        "--store",
        "store",
    ];
    let mut gateway = Process::start(&mut home.drawspan(&args));
    let line = gateway.stdout.expect("the Gateway's line");
    let words: Vec<&str> = line.split(' ').collect();
    let ["gateway", url, "store", "store", "token", token] = words[..] else {
        panic!("{line}");
    };
    assert!(is_private(&home.path(NOTE)));
    let note = std::fs::read_to_string(home.path(NOTE)).unwrap();
    let note: Value = serde_json::from_str(&note).unwrap();
    assert_eq!((&note["url"], &note["token"]), (&url.into(), &token.into()));

    home.write("token", token);
    let args = ["serve", "--gateway", url, TOKEN_FILE[0], TOKEN_FILE[1]];
    let mut serve = Process::serve(&mut home.drawspan(&args));
    serve.meet();
    serve.finish().expect_code(0).expect_silence();

    gateway.signal(Signal::TERM);
    let finished = gateway.end().expect_code(0);
    assert_eq!(finished.stdout, [line], "one line");
    assert!(
        finished
            .stderr
            .iter()
            .all(|line| line.starts_with("gateway: "))
    );
    assert!(!home.path(NOTE).exists());

    // A token of one's own is not repeated.
    let gateway = home.gateway();
    gateway.process.signal(Signal::INT);
    let finished = gateway.process.end().expect_code(0);
    assert_eq!(
        finished.stdout,
        [format!("gateway {} store store", gateway.url)]
    );
    assert!(!finished.stderr.join("\n").contains(TOKEN));
}

#[test]
fn a_post_reaches_whoever_waits() {
    let home = Home::new("post");
    let mut serve = home.serve_embedded();
    serve.meet();
    let waiting = serve.begin("events_wait", r#"{"timeout_ms":300000}"#);
    serve.sync();
    let posted = post(&home, &[], "are you there?");
    assert_eq!(posted["sessionKey"], "agent:main:main");
    let event = serve.answer(waiting)["result"]["structuredContent"]["event"].take();
    assert_eq!(event["type"], "message", "{event}");
    assert_eq!(event["messageId"], posted["messageId"], "{event}");
    assert_eq!(
        (&event["role"], &event["text"]),
        (&"user".into(), &"are you there?".into())
    );
    // Announced to Claude as well.
    let announced = serve.message("the announcement", |message| {
        message["method"] == "notifications/claude/channel"
    });
    assert_eq!(announced["params"]["content"], "are you there?");

    let flags = [
        "--session",
        "agent:main:new",
        "--role",
        "assistant",
        "--channel",
        "telegram",
    ];
    post(&home, &[&flags[..], &["--to", "ada"]].concat(), "I am");
    let event =
        serve.call("events_wait", r#"{"after_cursor":1}"#)["structuredContent"]["event"].take();
    assert_eq!(
        (&event["role"], &event["text"]),
        (&"assistant".into(), &"I am".into())
    );
    let result = serve.call("conversation_get", r#"{"session_key":"agent:main:new"}"#);
    let conversation = &result["structuredContent"]["conversation"];
    assert_eq!(
        (&conversation["channel"], &conversation["to"]),
        (&"telegram".into(), &"ada".into())
    );

    // And what is sent from here is there.
    let sent = serve.call(
        "messages_send",
        r#"{"session_key":"agent:main:new","text":"and you?"}"#,
    );
    assert_ne!(sent["isError"], true, "{sent}");
    let read = serve.call("messages_read", r#"{"session_key":"agent:main:new"}"#);
    expect_words(&read.to_string(), &["I am", "and you?"]);
    serve.finish().expect_code(0).expect_silence();
    assert!(!home.path(NOTE).exists());
}

#[test]
fn a_question_waits_for_the_decision() {
    let home = Home::new("ask");
    let mut serve = home.serve_embedded();
    serve.meet();
    for (cursor, decision) in [(0, "allow-once"), (2, "allow-always"), (4, "deny")] {
        let args = ["gateway", "ask", "--store", "store", "make clean"];
        let asked = Process::start(&mut home.drawspan(&args));
        let wait = format!(r#"{{"after_cursor":{cursor}}}"#);
        let event = serve.call("events_wait", &wait)["structuredContent"]["event"].take();
        assert_eq!(event["type"], "exec_approval_requested", "{event}");
        let open = serve.call("permissions_list_open", "{}")["structuredContent"].take();
        expect_words(&open.to_string(), &["make clean"]);
        let id = &event["raw"]["id"];
        let respond = format!(r#"{{"kind":"exec","id":{id},"decision":"{decision}"}}"#);
        let result = serve.call("permissions_respond", &respond);
        expect_words(text(&result), &["approval resolved"]);
        let finished = asked.finish().expect_code(0).expect_silence();
        let answer: Value = serde_json::from_str(&finished.stdout.join("\n")).unwrap();
        assert_eq!((&answer["id"], &answer["decision"]), (id, &decision.into()));
        let wait = format!(r#"{{"after_cursor":{}}}"#, cursor + 1);
        let event = serve.call("events_wait", &wait)["structuredContent"]["event"].take();
        assert_eq!(event["type"], "exec_approval_resolved", "{event}");
    }
    // Nobody decides.
    let args = [
        "gateway",
        "ask",
        "--store",
        "store",
        "--timeout",
        "50",
        "make clean",
    ];
    let finished = home.run(&args).expect_code(124);
    let answer: Value = serde_json::from_str(&finished.stdout.join("\n")).unwrap();
    assert_eq!(answer["decision"], Value::Null);
    expect_words(
        &finished.stderr.join("\n"),
        &["error: nobody decided within 50 ms"],
    );
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn a_question_whose_gateway_dies_is_an_error() {
    let home = Home::new("ask-dies");
    let mut serve = home.serve_embedded();
    serve.meet();
    let asked = Process::start(&mut home.drawspan(&["gateway", "ask", "--store", "store", "x"]));
    serve.call("events_wait", "{}");
    serve.signal(Signal::KILL);
    serve.wait();
    let finished = asked.finish();
    assert!(
        [Some(1), Some(4)].contains(&finished.status.code()),
        "{}",
        finished.status
    );
    finished.expect_stderr(&["error: ", "gateway"]);
}

#[test]
fn conversations_survive_every_end() {
    let home = Home::new("survive");
    let read = r#"{"session_key":"agent:main:kept"}"#;
    for (round, signal) in [Signal::KILL, Signal::TERM, Signal::KILL]
        .into_iter()
        .enumerate()
    {
        let mut serve = home.serve_embedded();
        serve.meet();
        let text = format!("round {round}");
        post(&home, &["--session", "agent:main:kept"], &text);
        let messages = serve.call("messages_read", read);
        let all: Vec<String> = (0..=round).map(|round| format!("round {round}")).collect();
        let all: Vec<&str> = all.iter().map(|text| &**text).collect();
        expect_words(&messages.to_string(), &all);
        // The samples were posted once, not at each start.
        let list = serve.call("conversations_list", "{}");
        expect_words(super::world::text(&list), &["conversations: 3"]);
        serve.signal(signal);
        let finished = serve.end();
        assert_eq!(finished.status.code().is_none(), signal == Signal::KILL);
        assert_eq!(home.path(NOTE).exists(), signal == Signal::KILL);
    }
}

#[test]
fn a_record_cut_by_a_crash_is_told_and_the_rest_is_there() {
    let home = Home::new("torn");
    let mut serve = home.serve_embedded();
    serve.hello();
    post(&home, &[], "whole");
    serve.finish().expect_code(0);
    let journal = home.path("store/journal");
    assert!(is_private(&journal));
    let mut file = std::fs::File::options()
        .append(true)
        .open(&journal)
        .unwrap();
    file.write_all(br#"{"message":{"key":"agent:main:ma"#)
        .unwrap();
    drop(file);

    let mut serve = home.serve_embedded();
    serve.hello();
    let messages = serve.call("messages_read", r#"{"session_key":"agent:main:main"}"#);
    expect_words(&messages.to_string(), &["whole"]);
    serve
        .finish()
        .expect_code(0)
        .expect_stderr(&["warning: store: "]);
    home.run(&EMBEDDED).expect_code(0).expect_silence();
}

#[test]
fn a_store_that_is_full_refuses_changes_and_serves_the_rest() {
    let home = Home::new("store-full");
    home.write(
        "drawspan.json",
        r#"{"limits":{"reconnect_first_interval_ms":20}}"#,
    );
    // A file may not grow past a few KiB.
    let script = r#"trap "" XFSZ; ulimit -f 8; exec "$@""#;
    let mut serve = Process::serve(&mut home.shell(script, &EMBEDDED));
    serve.meet();
    let long = "x".repeat(1_000);
    let args = ["gateway", "post", "--store", "store", &long];
    let mut kept = 0;
    while home.run(&args).status.success() {
        kept += 1;
        assert!(kept < 50, "it never fills up");
    }
    let refused = home.run(&args).expect_code(1);
    refused.expect_stderr(&["error: the store cannot be written", "file too large"]);
    // What is there can be read, and after a restart it is what was accepted.
    let read = r#"{"session_key":"agent:main:main"}"#;
    expect_words(&serve.call("messages_read", read).to_string(), &[&long]);
    let finished = serve.finish().expect_code(0);
    let words = [
        "error: gateway: the store cannot be written",
        "file too large",
    ];
    expect_words(&finished.stderr[0], &words);
    let mut serve = home.serve_embedded();
    serve.meet();
    let messages = serve.call("messages_read", read)["structuredContent"]["messages"].take();
    assert_eq!(messages.as_array().map(Vec::len), Some(kept));
    home.run(&args).expect_code(0);
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn a_store_belongs_to_one_process_at_a_time() {
    let home = Home::new("lock");
    let mut serve = home.serve_embedded();
    serve.hello();
    let note = std::fs::read_to_string(home.path(NOTE)).unwrap();
    let gateway = [
        "gateway",
        "--listen",
        "ws://127.0.0.1:0",
        "--store",
        "store",
    ];
    for args in [&EMBEDDED[..], &gateway] {
        let refused = home.run(args).expect_code(1);
        assert_eq!(refused.stdout, Vec::<String>::new());
        refused.expect_stderr(&[
            "error: store store is in use by another process",
            "directory",
        ]);
    }
    assert_eq!(
        std::fs::read_to_string(home.path(NOTE)).unwrap(),
        note,
        "the note stays its owner's"
    );
    post(&home, &[], "still here");

    // Another store is another Gateway.
    let other = ["serve", "--gateway", "embedded", "--store", "other"];
    let mut second = Process::serve(&mut home.drawspan(&other));
    second.hello();
    serve.finish().expect_code(0).expect_silence();
    second.finish().expect_code(0).expect_silence();
}

#[test]
fn a_place_to_listen_or_to_store_that_cannot_be_had_is_named() {
    let home = Home::new("places");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let listen = format!("ws://{address}");
    let failed = home
        .run(&["gateway", "--listen", &listen, "--store", "store"])
        .expect_code(1);
    failed.expect_stderr(&[
        "error: cannot listen on",
        &address,
        "address already in use",
    ]);
    assert!(!home.path(NOTE).exists());

    home.write("file", "");
    for args in [
        ["serve", "--gateway", "embedded"],
        ["gateway", "--listen", "ws://127.0.0.1:0"],
    ] {
        let args = [&args[..], &["--store", "file/store"]].concat();
        home.run(&args)
            .expect_code(1)
            .expect_stderr(&["error: ", "file/store"]);
    }
    let nobody = home
        .run(&["gateway", "post", "--store", "nowhere", "x"])
        .expect_code(4);
    nobody.expect_stderr(&["error: no gateway runs on the store nowhere"]);
}

#[test]
fn the_usual_store_is_found_by_all_commands() {
    let home = Home::new("usual");
    for (variable, store) in [
        (None, ".local/state/drawspan/gateway"),
        (Some("XDG_STATE_HOME"), "state/drawspan/gateway"),
    ] {
        let command = |args: &[&str]| {
            let mut command = home.drawspan(args);
            if let Some(variable) = variable {
                command.env(variable, home.path("state"));
            }
            command
        };
        let mut serve = Process::serve(&mut command(&["serve", "--gateway", "embedded"]));
        serve.meet();
        assert!(home.path(store).join("journal").exists(), "{store}");
        Process::start(&mut command(&["gateway", "post", "found"]))
            .finish()
            .expect_code(0);
        let event = serve.call("events_wait", "{}");
        expect_words(&event.to_string(), &["found"]);
        serve.finish().expect_code(0).expect_silence();
    }
}
