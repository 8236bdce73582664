//! `serve` in front of a Gateway that is another process: refused, absent, late, shared.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::deserted::until_refused;
use crate::world::{
    HELLO, Home, PATIENCE, Process, TOKEN, TOKEN_FILE, expect_words, is_private, text,
};

#[test]
fn wrong_credentials_end_it_with_the_calls_answered_and_one_line() {
    let home = Home::new("refused");
    let gateway = home.gateway();
    home.write("wrong", "not the token");
    let rows: [(&[&str], &[&str]); 3] = [
        (
            &["--token-file", "wrong"],
            &["token mismatch", "--token-file FILE"],
        ),
        (
            &["--password-file", "wrong"],
            &["token missing", "--token-file FILE"],
        ),
        (&[], &["token missing", "--token-file FILE"]),
    ];
    for (flags, words) in rows {
        let args = [&["serve", "--gateway", &gateway.url], flags].concat();
        let mut serve = Process::serve(&mut home.drawspan(&args));
        // Its stdin stays open.
        serve.send(HELLO);
        let call = serve.begin("conversations_list", "{}");
        serve.answer(0);
        let result = serve.answer(call)["result"].take();
        assert_eq!(result["isError"], true, "{result}");
        expect_words(text(&result), words);
        let refused = format!(
            "error: gateway {} refused the connection: unauthorized: ",
            gateway.url
        );
        let finished = serve.end().expect_code(3);
        finished.expect_stderr(words).expect_stderr(&[&refused]);

        // The same for a command that asks something.
        let args = [&["gateway", "post", "--url", &gateway.url, "hello"], flags].concat();
        home.run(&args)
            .expect_code(3)
            .expect_stderr(words)
            .expect_stderr(&[&refused]);
    }
}

#[test]
fn a_token_on_the_command_line_works_and_is_warned_about() {
    let home = Home::new("inline");
    let gateway = home.gateway();
    let args = ["serve", "--gateway", &gateway.url, "--token", TOKEN];
    let mut serve = Process::serve(&mut home.drawspan(&args));
    serve.hello();
    let result = serve.call("conversations_list", "{}");
    expect_words(text(&result), &["conversations: 0"]);
    let words = [
        "warning: --token can be seen in process listings",
        "--token-file",
    ];
    let finished = serve.finish().expect_code(0).expect_stderr(&words);
    assert!(!finished.stderr[0].contains(TOKEN));

    // From the environment it is no warning. The Gateway's URL must come from there, too.
    let mut command = home.drawspan(&["serve"]);
    command
        .env("OPENCLAW_GATEWAY_URL", &gateway.url)
        .env("OPENCLAW_GATEWAY_TOKEN", TOKEN);
    let mut serve = Process::serve(&mut command);
    serve.hello();
    let result = serve.call("conversations_list", "{}");
    expect_words(text(&result), &["conversations: 0"]);
    serve.finish().expect_code(0).expect_silence();

    // The device token that it was given meanwhile is enough by itself.
    let mut serve = Process::serve(&mut home.drawspan(&["serve", "--gateway", &gateway.url]));
    serve.hello();
    let result = serve.call("conversations_list", "{}");
    expect_words(text(&result), &["conversations: 0"]);
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn a_gateway_that_comes_up_late_is_waited_for() {
    let home = Home::new("late");
    // Three steps: 20, 40, 50 ms.
    home.write(
        "drawspan.json",
        r#"{"limits":{"reconnect_first_interval_ms":20,"reconnect_most_interval_ms":50,
                      "gateway_ready_timeout_ms":60}}"#,
    );
    home.write("token", TOKEN);
    let stand_in = TcpListener::bind("127.0.0.3:0").unwrap();
    let url = format!("ws://{}", stand_in.local_addr().unwrap());
    let args = ["serve", "--gateway", &url, TOKEN_FILE[0], TOKEN_FILE[1]];
    let mut serve = Process::serve(&mut home.drawspan(&args));
    serve.hello();
    for _ in 0..10 {
        turn_away(&stand_in.accept().unwrap().0);
    }
    let result = serve.call("conversations_list", "{}");
    assert_eq!(result["isError"], true, "{result}");
    expect_words(
        text(&result),
        &["gateway not connected: ", "HTTP status 503"],
    );
    let address = stand_in.local_addr().unwrap();
    drop(stand_in);
    until_refused(|| TcpStream::connect(address));

    let _gateway = home.gateway_at(&url);
    loop {
        let result = serve.call("conversations_list", "{}");
        if result["isError"] != true {
            expect_words(text(&result), &["conversations: 0"]);
            break;
        }
    }
    let finished = serve.finish().expect_code(0);
    let told: Vec<&String> = finished
        .stderr
        .iter()
        .filter(|line| line.contains("HTTP status 503"))
        .collect();
    assert_eq!(
        told.len(),
        3,
        "one line for each step of the back-off: {:#?}",
        finished.stderr
    );
    expect_words(
        told[0],
        &["warning: cannot reach gateway", &url, "next try in 1 s"],
    );
}

/// Answers an upgrade with 503.
fn turn_away(mut client: &TcpStream) {
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let answer = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";
    client.write_all(answer.as_bytes()).unwrap();
}

#[test]
fn what_needs_no_gateway_is_answered_without_one() {
    let home = Home::new("without");
    home.write(
        "drawspan.json",
        r#"{"limits":{"gateway_ready_timeout_ms":50}}"#,
    );
    let mut serve = Process::serve(&mut home.drawspan(&["serve", "--gateway", "ws://127.0.0.1:1"]));
    serve.hello();
    let list = serve.request("tools/list", "{}");
    assert_eq!(
        serve.answer(list)["result"]["tools"]
            .as_array()
            .map(Vec::len),
        Some(9)
    );
    for tool in ["events_poll", "permissions_list_open"] {
        let result = serve.call(tool, "{}");
        assert_ne!(result["isError"], true, "{tool}: {result}");
    }
    for (tool, arguments) in [
        ("conversations_list", "{}"),
        ("messages_send", r#"{"session_key":"a","text":"b"}"#),
        (
            "permissions_respond",
            r#"{"kind":"exec","id":"x","decision":"deny"}"#,
        ),
    ] {
        let result = serve.call(tool, arguments);
        assert_eq!(result["isError"], true, "{tool}: {result}");
        expect_words(
            text(&result),
            &["gateway not connected", "connection refused"],
        );
    }
    let finished = serve.finish().expect_code(0);
    let words = [
        "warning: cannot reach gateway ws://127.0.0.1:1: ",
        "connection refused",
    ];
    expect_words(&finished.stderr[0], &words);
}

#[test]
fn a_gateway_that_is_killed_and_restarted_is_found_again() {
    let home = Home::new("restart");
    home.write(
        "drawspan.json",
        r#"{"limits":{"reconnect_first_interval_ms":20}}"#,
    );
    let mut gateway = home.gateway_at("ws://127.0.0.2:0");
    let post = |text: &str| {
        home.run(&[
            "gateway",
            "post",
            "--store",
            "store",
            "--session",
            "main",
            text,
        ])
        .expect_code(0);
    };
    let mut serve = home.serve(&gateway);
    serve.meet();
    let waiting = serve.begin("events_wait", "{}");
    serve.sync();
    post("before the fall");
    let event = serve.answer(waiting)["result"].take();
    expect_words(&event.to_string(), &["before the fall"]);

    let waiting = serve.begin("events_wait", r#"{"after_cursor":1}"#);
    serve.sync();
    gateway.process.signal(Signal::KILL);
    gateway.process.wait();
    // Its note is still there, but nobody answers.
    let post_to_nobody = home.run(&["gateway", "post", "--store", "store", "anybody?"]);
    post_to_nobody
        .expect_code(4)
        .expect_stderr(&["error: cannot reach gateway", "refused"]);

    let _again = home.gateway_at(&gateway.url);
    let gap = serve.answer(waiting)["result"]["structuredContent"]["event"].take();
    assert_eq!(
        (&gap["type"], &gap["cursor"]),
        (&"gap".into(), &2.into()),
        "{gap}"
    );
    post("after the rise");
    let waiting = serve.begin("events_wait", r#"{"after_cursor":2}"#);
    let event = serve.answer(waiting)["result"].take();
    expect_words(&event.to_string(), &["after the rise"]);
    let messages = serve.call("messages_read", r#"{"session_key":"agent:main:main"}"#);
    expect_words(
        &messages.to_string(),
        &["before the fall", "after the rise"],
    );
    let list = serve.call("conversations_list", "{}");
    expect_words(text(&list), &["conversations: 1"]);

    let finished = serve.finish().expect_code(0);
    expect_words(
        &finished.stderr[0],
        &["warning: lost gateway", &gateway.url, "next try in"],
    );
}

#[test]
fn several_at_once_in_one_new_home_share_the_device_and_nothing_else() {
    let home = Home::new("several");
    let gateway = home.gateway();
    let mut serves: Vec<Process> = (0..4).map(|_| home.serve(&gateway)).collect();
    for serve in &mut serves {
        serve.hello();
        expect_words(
            text(&serve.call("conversations_list", "{}")),
            &["conversations: 0"],
        );
    }
    let post = home.run(&["gateway", "post", "--store", "store", "for all"]);
    post.expect_code(0);
    for mut serve in serves {
        let event = serve.call("events_wait", "{}");
        expect_words(&event.to_string(), &["for all"]);
        serve.finish().expect_code(0).expect_silence();
    }
    let identity = home.path(".openclaw/identity");
    let mut files: Vec<String> = std::fs::read_dir(&identity)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, ["device-auth.json", "device.json"]);
    for file in files {
        assert!(is_private(&identity.join(&file)), "{file}");
        let text = std::fs::read_to_string(identity.join(file)).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["version"], 1);
    }
}

#[test]
fn a_client_that_asked_for_log_messages_hears_of_the_gateway_too() {
    let home = Home::new("log");
    home.write(
        "drawspan.json",
        r#"{"limits":{"reconnect_first_interval_ms":20}}"#,
    );
    let mut gateway = home.gateway();
    let mut serve = home.serve(&gateway);
    serve.hello();
    let set = serve.request("logging/setLevel", r#"{"level":"info"}"#);
    serve.answer(set);
    serve.call("conversations_list", "{}");
    gateway.process.signal(Signal::KILL);
    let lost = serve.message("a log message", |message| {
        message["params"]["level"] == "warning"
    });
    expect_words(&lost.to_string(), &["lost gateway", &gateway.url]);
    gateway.process.wait();
    serve.finish().expect_code(0);
}
