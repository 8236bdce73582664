//! Event streams that are primed, cut, resumed or sent elsewhere: d03, d04, d05, d06, e09.

use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::era::in_era;
use crate::http::{Got, Peer};
use crate::world::{ERAS, PROMPT, Run, World, case, merge, serve};

/// The bytes of a stream of a case, all of them text.
fn stream(id: &str, n: usize) -> String {
    let mut text = String::new();
    for chunk in case(id)["input"]["streams"][n]["chunks"]
        .as_array()
        .unwrap()
    {
        let b64 = chunk.as_str().unwrap();
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(b64)
            .unwrap();
        text.push_str(&String::from_utf8(bytes).unwrap());
    }
    text
}

/// The stream as the answer to request `{{id}}`, with a result that a tool can give.
fn answering(stream: &str) -> String {
    let result = r#"{"resultType":"complete","content":[{"type":"text","text":"mine"}]}"#;
    stream
        .replace(r#""id":1,"#, r#""id":{{id}},"#)
        .replace(r#"{"ok":1}"#, result)
}

/// The exchanges of a server that has `echo`, with these in front.
fn with(first: Vec<Value>) -> Value {
    let mut input = case("e05-get-not-offered")["input"].clone();
    let rest = input["exchanges"].as_array_mut().unwrap();
    rest.splice(0..0, first);
    input
}

/// An event stream that ends after these bytes.
fn events(when: Value, body: &str) -> Value {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n";
    json!({"when": when, "head": head, "auto_length": false, "body": [body], "close": true})
}

/// Runs `call … echo` with these keys of a configuration.
#[track_caller]
fn call(world: &World, era: &str, peer: &Peer, more: Value) -> Run {
    let mut entry = json!({"type": "http", "url": peer.url(), "protocol": era});
    merge(&mut entry, more);
    let config = world.config(json!({"s": entry}));
    world.run(&["call", "s", "echo", "--config", &config, "--json"])
}

/// The GETs that go on where a stream was cut.
fn resumptions(peer: &Peer) -> Vec<Got> {
    let mut gets = peer.gets();
    gets.retain(|get| get.field("last-event-id").is_some());
    gets
}

#[test]
fn d03_priming_and_ids() {
    let world = World::new("d03");
    for n in 0..3 {
        let body = answering(&stream("d03-priming-and-ids", n));
        let peer = serve(&with(vec![events(json!({"rpc": "tools/call"}), &body)]));
        let run = call(&world, "legacy", &peer, json!({}));
        assert_eq!(
            run.expect_prompt().expect_code(0).text(),
            "mine",
            "stream {n}"
        );
        assert_eq!(resumptions(&peer).len(), 0, "stream {n} was answered");
    }

    // Cut before the answer, each stream shows which id was the last.
    for (n, last) in [(0, "s1/1"), (1, "s1/1"), (2, "s1/5")] {
        let whole = answering(&stream("d03-priming-and-ids", n));
        let without_answer: String = whole
            .split_inclusive('\n')
            .filter(|line| !line.contains("{{id}}"))
            .collect();
        // The last event of the third stream takes the id back.
        let cut = without_answer.split("id:\n").next().unwrap();
        let get = json!({"verb": "GET", "header_is": {"last-event-id": last}});
        let peer = serve(&with(vec![
            events(json!({"rpc": "tools/call"}), cut),
            events(get, ": nothing yet\n\n"),
        ]));
        let run = call(&world, "legacy", &peer, json!({"resumeAttempts": 1}));
        let resumed = resumptions(&peer);
        assert!(!resumed.is_empty(), "stream {n}: {run:?}");
        assert_eq!(resumed[0].field("last-event-id"), Some(last), "stream {n}");
        assert_eq!(resumed[0].field("mcp-session-id"), Some("S1"));
    }

    // With the id taken back there is nothing to go on from.
    let whole = stream("d03-priming-and-ids", 2);
    let reset = whole.split_once("\n\n").unwrap().1;
    assert!(reset.contains("id:\n"), "{reset}");
    let peer = serve(&with(vec![events(json!({"rpc": "tools/call"}), reset)]));
    let run = call(&world, "legacy", &peer, json!({}));
    run.expect_prompt()
        .expect_failure()
        .expect_error(&["stream ended"]);
    assert_eq!(resumptions(&peer).len(), 0);
}

#[test]
fn d03_a_resumed_stream_brings_the_answer() {
    let world = World::new("d03-answer");
    let cut = "id: s1/0\nretry: 50\ndata:\n\n";
    // Where a GET has no id of its own, the answer is known by what we see in the call.
    let peer = serve(&with(vec![events(json!({"rpc": "tools/call"}), cut)]));
    call(&world, "legacy", &peer, json!({"resumeAttempts": 1})).expect_failure();
    let id = peer.posts("tools/call")[0].message["id"].to_string();
    let answer = answering(&stream("d03-priming-and-ids", 0)).replace("{{id}}", &id);
    let get = json!({"verb": "GET", "header_is": {"last-event-id": "s1/0"}});
    let peer = serve(&with(vec![
        events(json!({"rpc": "tools/call"}), cut),
        events(get, &answer),
    ]));
    let run = call(&world, "legacy", &peer, json!({}));
    assert_eq!(run.expect_prompt().expect_code(0).text(), "mine");
    assert_eq!(resumptions(&peer).len(), 1);
    let (sent, back) = (&peer.posts("tools/call")[0], &resumptions(&peer)[0]);
    assert!(back.at - sent.at >= Duration::from_millis(50));
}

#[test]
fn d04_retry_field() {
    let world = World::new("d04");
    let waited = |n: usize, keys: Value| {
        let body = stream("d04-retry-field", n);
        let peer = serve(&with(vec![events(json!({"rpc": "tools/call"}), &body)]));
        let run = call(&world, "legacy", &peer, keys);
        let sent = peer.posts("tools/call")[0].at;
        let back = resumptions(&peer).first().map(|get| get.at - sent);
        (run, back)
    };
    let once = json!({"resumeAttempts": 1});
    let (run, back) = waited(0, once.clone());
    assert!(run.expect_failure().took < PROMPT);
    assert!(back.unwrap() >= Duration::from_millis(1_500), "{back:?}");

    let (run, back) = waited(1, once);
    assert!(run.expect_failure().took < PROMPT);
    assert!(
        back.unwrap() >= Duration::from_secs(1),
        "the default: {back:?}"
    );

    // 31 years are cut to 30 s, which the call does not wait for.
    let (run, back) = waited(2, json!({"requestTimeoutMs": 1_500}));
    run.expect_code(124);
    assert_eq!(back, None);

    // A clean end without an id is nothing to go on from.
    let (run, back) = waited(3, json!({}));
    run.expect_prompt()
        .expect_failure()
        .expect_error(&["stream ended"]);
    assert_eq!(back, None);
}

#[test]
fn d04_a_stream_that_keeps_ending_is_not_hammered() {
    let world = World::new("d04-get");
    let body = stream("d04-retry-field", 3);
    let slow = json!({
        "when": {"rpc": "tools/call"}, "gap_ms": 2_500, "auto_length": false, "close": true,
        "head": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n",
        "body": [answering(stream("d05-truncated-at-eof", 3).as_str())]});
    let peer = serve(&with(vec![slow, events(json!({"verb": "GET"}), &body)]));
    let run = call(&world, "legacy", &peer, json!({}));
    assert_eq!(run.expect_prompt().expect_code(0).text(), "mine");
    let gets = peer.gets();
    assert!(gets.len() <= 3, "{gets:#?}");
    for pair in gets.windows(2) {
        assert!(
            pair[1].at - pair[0].at >= Duration::from_secs(1),
            "{gets:#?}"
        );
    }
}

#[test]
fn d05_truncated_at_eof() {
    let world = World::new("d05");
    for era in ERAS {
        for n in 0..4 {
            let body = answering(&stream("d05-truncated-at-eof", n));
            let input = with(vec![events(json!({"rpc": "tools/call"}), &body)]);
            let peer = serve(&in_era(era, &input));
            let run = call(&world, era, &peer, json!({})).expect_prompt();
            match n {
                // Complete but for its blank line: taken or refused, never waited for.
                0 if run.code == 0 => assert_eq!(run.text(), "mine"),
                0..=2 => drop(run.expect_failure().expect_error(&["s", "stream ended"])),
                _ => assert_eq!(run.expect_code(0).text(), "mine"),
            }
            assert_eq!(peer.posts("tools/call").len(), 1, "{era}, stream {n}");
        }
    }
}

/// The exchanges of the 2024-11-05 pair: `opening` down the stream at `/base/sse`, answers after
/// it.
fn pair(opening: &str, post: &str) -> Value {
    let say = |method: &str, result: Value| {
        let event = format!(r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{result}}}"#);
        json!({
            "when": {"verb": "POST", "target": post, "rpc": method},
            "head": "HTTP/1.1 202 Accepted\r\n", "body": ["Accepted"],
            "push": [format!("event: message\ndata: {event}\n\n")]})
    };
    let info = json!({"name": "made-peer", "version": "0.1"});
    let tool = json!({"name": "echo", "inputSchema": {"type": "object"}});
    json!({"exchanges": [
        {"when": {"verb": "GET", "target": "/base/sse?k=1"}, "stream": true, "hold_ms": 60_000,
         "head": "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n",
         "auto_length": false, "body": [opening]},
        say("initialize", json!({"protocolVersion": "2024-11-05", "serverInfo": info,
                                 "capabilities": {"tools": {}}})),
        say("tools/list", json!({"tools": [tool]})),
        {"when": {"verb": "POST", "target": post}, "head": "HTTP/1.1 202 Accepted\r\n"}]})
}

#[test]
fn d06_legacy_endpoint() {
    let case = case("d06-legacy-endpoint");
    for (n, variant) in case["input"]["streams"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate()
    {
        let world = World::new(&format!("d06-{n}"));
        // Whoever else is named: it must never hear of us.
        let other = serve(&json!({"exchanges": []}));
        let opening = stream("d06-legacy-endpoint", n)
            .replace("8900", "{{port}}")
            .replace("8901", &other.port().to_string());
        let want = variant["want_endpoint"].as_str();
        let post = want.map(|url| url.strip_prefix("http://127.0.0.1:8900").unwrap());
        let peer = serve(&pair(&opening, post.unwrap_or("/none")));
        let url = format!("http://127.0.0.1:{}/base/sse?k=1", peer.port());
        let headers = &case["input"]["configured_headers"];
        let entry = json!({"url": url, "transport": "sse", "headers": headers});
        let config = world.config(json!({"s": entry}));
        let run = world
            .run(&["list", "s", "--config", &config, "--json"])
            .expect_prompt();
        let note = variant["note"].as_str().unwrap();
        assert_eq!(other.got().len(), 0, "{note}: {:#?}", other.got());
        let posts: Vec<Got> = peer
            .got()
            .into_iter()
            .filter(|r| r.verb == "POST")
            .collect();
        if want.is_some() {
            assert_eq!(run.expect_code(0).tools(), ["echo"], "{note}");
            assert!(
                posts.iter().all(|r| Some(r.target.as_str()) == post),
                "{note}: {posts:#?}"
            );
            for request in peer.got() {
                assert_eq!(request.field("x-api-key"), Some("made"), "{request:?}");
                assert_eq!(
                    request.field("authorization"),
                    Some("Bearer made"),
                    "{request:?}"
                );
            }
        } else {
            let run = run.expect_failure();
            let own = format!("127.0.0.1:{}", peer.port());
            let named = match note {
                "other origin" => format!("127.0.0.1:{}", other.port()),
                "scheme-relative other host" => format!("localhost:{}", peer.port()),
                _ => "file:".to_owned(),
            };
            run.expect_error(&["s", &own, &named]);
            assert_eq!(posts.len(), 0, "{note}: {posts:#?}");
        }
    }
}

#[test]
fn e09_resume() {
    let world = World::new("e09");
    let input = &case("e09-resume")["input"];
    let attempts = json!({"resumeAttempts": input["settings"]["resume_attempts"]});
    let peer = serve(input);
    let run = call(&world, "legacy", &peer, attempts.clone());
    run.expect_prompt()
        .expect_failure()
        .expect_error(&["s", "could not be resumed"]);
    let gets = resumptions(&peer);
    assert_eq!(gets.len(), 3, "{gets:#?}");
    for get in &gets {
        assert_eq!(get.field("last-event-id"), Some("p/1"));
        assert_eq!(get.field("mcp-session-id"), Some("S1"));
    }
    let cut = peer.posts("tools/call")[0].at;
    assert!(gets[0].at - cut >= Duration::from_millis(50));
    assert_eq!(peer.posts("tools/call").len(), 1);

    // Without an id there is nothing to go on from.
    let mut nameless = input.clone();
    for part in nameless["exchanges"][0]["body"].as_array_mut().unwrap() {
        let text = part
            .as_str()
            .unwrap()
            .split_once('\n')
            .unwrap()
            .1
            .to_owned();
        *part = text.into();
    }
    let peer = serve(&nameless);
    let run = call(&world, "legacy", &peer, attempts.clone());
    run.expect_prompt()
        .expect_failure()
        .expect_error(&["s", "stream ended"]);
    assert_eq!(resumptions(&peer).len(), 0);

    let peer = serve(&in_era("modern", input));
    let run = call(&world, "modern", &peer, attempts);
    run.expect_prompt()
        .expect_failure()
        .expect_error(&["s", "stream ended"]);
    assert_eq!(peer.gets().len(), 0, "nothing is resumed in 2026-07-28");
}
