//! `protocol-fixtures/codec/http_client`: answers and what becomes of them, whole and byte by byte.

use serde_json::{Value, json};

use crate::link::http_client::rig::*;
use crate::protocol::client::Dialect;
use crate::protocol::revision::Revision;

#[test]
fn answers() {
    let fixture = include_str!("../../../../protocol-fixtures/codec/http_client/answers.jsonl");
    let mut lines = fixture.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    });
    lines.next().expect("a header");
    let (mut cases, mut wrong) = (0, Vec::new());
    for case in lines {
        cases += 1;
        for cut in [false, true] {
            let found = play(&case, cut);
            if found != case["expect"] {
                wrong.push(format!("{} (cut: {cut}): {found}", case["case"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases > 30, "the fixture holds cases");
}

/// What the link tells, whether the connection is used again, and what the server is asked for in the next
/// hundred seconds.
fn play(case: &Value, cut: bool) -> Value {
    let mut rig = http_rig();
    let to = case["to"].as_str().expect("what is answered");
    match to {
        "notifications/initialized" => {
            rig.start();
            rig.send(request(1, "initialize", Dialect::Handshake));
            let asked = rig.next();
            let body = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
            rig.json(&asked, "Mcp-Session-Id: S1\r\n", body);
            rig.send(notification(to, LEGACY));
            rig.news();
        }
        "GET" => with_stream_asked(&mut rig, Revision::V2025_06_18),
        _ => {
            let revision = case["revision"].as_str().unwrap_or("2025-06-18");
            let revision = Revision::parse(revision).expect("a revision");
            in_session(&mut rig, revision);
            rig.send(request(7, to, Dialect::Session(revision)));
        }
    }
    let asked = rig.next();
    rig.cut = cut;
    rig.bytes(
        asked.wire,
        case["answer"].as_str().expect("an answer").as_bytes(),
    );
    if case["close"] == true {
        rig.end(asked.wire);
    }
    rig.cut = false;
    let told = rig.news();
    let kept = !rig.is_gone(asked.wire);
    let wires_before = rig.asked.len();
    if told.iter().any(|told| told.starts_with("closed")) {
        return json!({"told": told, "kept": kept, "asks": ""});
    }
    // The stream that a request was answered on, and that goes on, is not waited for.
    rig.send(request(8, "tools/list", LEGACY));
    let reused = rig.got.iter().any(|got| got.wire == asked.wire);
    let free = kept && case["ends_late"] != true;
    assert_eq!(
        free,
        reused,
        "{}: {:?}",
        case["case"],
        &rig.asked[wires_before..]
    );
    let mut asks = Vec::new();
    for round in 0..4 {
        while let Some(got) = rig.got.pop_front() {
            asks.push(got.method.clone());
            if got.method == "POST" {
                assert_eq!(got.field("mcp-session-id"), Some("S1"), "{}", case["case"]);
                assert!(got.body.contains("\"id\":8"), "{}", got.shown());
                rig.json(&got, "", r#"{"jsonrpc":"2.0","id":8,"result":{}}"#);
            } else {
                rig.status(&got, "405 Method Not Allowed");
            }
        }
        if case["ends_late"] == true && round == 2 {
            assert!(rig.is_gone(asked.wire), "{} is still open", asked.wire);
        }
        rig.pass_to(round * 30_000);
    }
    json!({"told": told, "kept": kept, "asks": asks.join(" ")})
}
