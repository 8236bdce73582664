//! What HTTP servers answer: e01, e02, e04, e05, e08, e10.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::era::in_era;
use crate::http::{Got, Peer};
use crate::world::{ERAS, PROMPT, Run, World, case, expect_words, serve, serve_variant};

/// Runs `list` on a server.
#[track_caller]
fn list(world: &World, era: &str, peer: &Peer) -> Run {
    world.run(&["list", &peer.url(), "--protocol", era, "--json"])
}

/// Runs `call … echo` on a server.
#[track_caller]
fn call(world: &World, era: &str, peer: &Peer) -> Run {
    world.run(&["call", &peer.url(), "echo", "--protocol", era, "--json"])
}

fn variants(input: &Value) -> Vec<(usize, Value)> {
    input["variants"]
        .as_array()
        .unwrap()
        .iter()
        .cloned()
        .enumerate()
        .collect()
}

fn note(variant: &Value) -> &str {
    variant["note"].as_str().unwrap()
}

#[test]
fn e01_notification_answers() {
    let world = World::new("e01");
    let input = &case("e01-notification-answers")["input"];
    for (n, variant) in variants(input) {
        let peer = serve_variant(input, n);
        let run = list(&world, "legacy", &peer).expect_prompt().expect_code(0);
        assert_eq!(run.tools(), ["echo"], "{variant}");
        assert!(run.diagnostics().len() <= 1, "{}: {run:?}", note(&variant));
        assert_eq!(
            peer.posts("notifications/initialized").len(),
            1,
            "{variant}"
        );
        let connections = peer.got().iter().map(|request| request.connection).max();
        assert!(
            connections <= Some(2),
            "{}: {:#?}",
            note(&variant),
            peer.got()
        );
    }
    // A refusal fails the connect.
    for status in [
        "400 Bad Request",
        "403 Forbidden",
        "500 Internal Server Error",
    ] {
        let mut input = input.clone();
        let head = format!("HTTP/1.1 {status}\r\n");
        let variant = json!({"when": {"rpc": "notifications/initialized"}, "head": head});
        input["variants"] = json!([variant]);
        let peer = serve_variant(&input, 0);
        let run = list(&world, "legacy", &peer)
            .expect_prompt()
            .expect_failure();
        let error = run.expect_error(&[&status[..3]]);
        let number: u64 = status[..3].parse().unwrap();
        assert_eq!(error["data"]["status"], number, "{error}");
    }
}

#[test]
fn e02_content_types() {
    let world = World::new("e02");
    for era in ERAS {
        let input = in_era(era, &case("e02-content-types")["input"]);
        for (n, variant) in variants(&input) {
            let peer = serve_variant(&input, n);
            let run = list(&world, era, &peer).expect_prompt();
            let what = format!("{era}, {}: {run:#?}", note(&variant));
            match variant["expect"].as_str().unwrap() {
                "works" => {
                    assert_eq!(run.expect_code(0).tools(), ["echo"]);
                }
                "works with a diagnostic" => {
                    let run = run.expect_code(0);
                    assert_eq!(run.tools(), ["echo"]);
                    run.expect_diagnostic("127.0.0.1", &["no Content-Type"]);
                }
                "fails" => {
                    assert_eq!(run.code, 6, "{what}");
                    run.error();
                    match note(&variant) {
                        "HTML login page" => {
                            let error = run.expect_error(&["200", "text/html", "Sign in"]);
                            assert_eq!(error["data"]["status"], 200, "{error}");
                            let found = error["data"]["contentType"].as_str().unwrap();
                            expect_words(found, &["text/html"]);
                            let body = error["data"]["body"].as_str().unwrap();
                            assert!(body.len() <= 200, "{body}");
                        }
                        "JSON type, HTML body" => {
                            run.expect_error(&["<html>"]);
                        }
                        _ => {}
                    }
                }
                other => panic!("{other}"),
            }
            assert_eq!(peer.posts("tools/list").len(), 1, "sent once: {what}");
            for request in peer.got().iter().filter(|request| request.verb == "POST") {
                assert_eq!(request.field("content-type"), Some("application/json"));
                let accept = request.field("accept");
                assert_eq!(accept, Some("application/json, text/event-stream"));
            }
        }
    }
}

#[test]
fn e02_a_body_in_an_error_is_short_and_escaped() {
    let world = World::new("e02-body");
    let mut input = case("e02-content-types")["input"].clone();
    let body = format!("\u{1b}[31mred{}", "x".repeat(5_000));
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n";
    input["variants"] = json!([{"when": {"rpc": "tools/list"}, "head": head, "body": [body]}]);
    let peer = serve_variant(&input, 0);
    let run = list(&world, "legacy", &peer).expect_prompt().expect_code(6);
    let error = run.error();
    assert!(!run.stderr.contains('\u{1b}'), "{run:?}");
    assert!(!error.to_string().contains(&"x".repeat(201)), "{error}");
    expect_words(error["data"]["body"].as_str().unwrap(), &["red"]);
}

#[test]
fn e04_400_unknown_session() {
    let world = World::new("e04");
    let input = &case("e04-400-unknown-session")["input"];
    for (n, variant) in variants(input) {
        let peer = serve_variant(input, n);
        let run = call(&world, "legacy", &peer)
            .expect_prompt()
            .expect_failure();
        let words = match note(&variant) {
            "200 SSE with an error that has no id" => "Session not found",
            "410" => "410",
            _ => "No valid session ID provided",
        };
        run.expect_error(&[words]);
        assert_eq!(peer.posts("tools/call").len(), 1, "{}", note(&variant));
    }
}

#[test]
fn e05_get_not_offered() {
    let world = World::new("e05");
    let input = &case("e05-get-not-offered")["input"];
    for (n, variant) in variants(input) {
        let peer = serve_variant(input, n);
        let run = call(&world, "legacy", &peer).expect_prompt().expect_code(0);
        assert_eq!(run.text(), "done");
        let got = peer.got();
        let gets = peer.gets();
        assert!(gets.len() <= 1, "{}: {gets:#?}", note(&variant));
        let first = |fits: &dyn Fn(&Got) -> bool| got.iter().position(fits);
        let hello = first(&|request| request.method() == "initialize");
        let get = first(&|request| request.verb == "GET");
        assert!(get.is_none() || hello < get, "{got:#?}");
    }
    let peer = serve(&in_era("modern", input));
    assert_eq!(call(&world, "modern", &peer).expect_code(0).text(), "done");
    assert_eq!(
        peer.gets().len(),
        0,
        "there is no such stream in 2026-07-28"
    );
}

#[test]
fn e08_wire_oddities() {
    let world = World::new("e08");
    for era in ERAS {
        let input = in_era(era, &case("e08-wire-oddities")["input"]);
        for (n, variant) in variants(&input) {
            let peer = serve_variant(&input, n);
            let run = list(&world, era, &peer).expect_prompt();
            let got = peer.got();
            let at = got
                .iter()
                .position(|request| request.method() == "tools/list")
                .unwrap();
            let after = &got[at + 1..];
            match variant["expect"].as_str() {
                None => {
                    assert_eq!(run.expect_code(0).tools(), ["echo"], "{}", note(&variant));
                    if era == "legacy" {
                        let session = |request: &Got| request.field("mcp-session-id") == Some("S1");
                        assert!(after.iter().all(session), "{}: {after:#?}", note(&variant));
                        assert!(after.iter().any(|request| request.verb == "DELETE"));
                    }
                }
                Some(_) => {
                    let run = run.expect_failure();
                    run.error();
                    let same = |request: &Got| request.connection == got[at].connection;
                    // What is only unreadable leaves the connection as it was.
                    let reusable = note(&variant).starts_with("gzip");
                    let reused = after.iter().any(same) && !reusable;
                    assert!(!reused, "{}: {after:#?}", note(&variant));
                    assert_eq!(peer.posts("tools/list").len(), 1);
                    if note(&variant).starts_with("gzip") {
                        run.expect_error(&["gzip"]);
                    }
                }
            }
        }
    }
}

#[test]
fn e08_too_many_interim_answers() {
    let world = World::new("e08-interim");
    let mut input = case("e08-wire-oddities")["input"].clone();
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
    let answer = input["variants"][0]["body"].clone();
    let final_head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    for (interims, works) in [(10, true), (11, false)] {
        let head = format!("{}{final_head}", interim.repeat(interims));
        let when = json!({"rpc": "tools/list"});
        input["variants"] = json!([{"when": when, "head": head, "body": answer}]);
        let peer = serve_variant(&input, 0);
        let run = list(&world, "legacy", &peer).expect_prompt();
        assert_eq!(run.code == 0, works, "{interims}: {run:?}");
    }
}

#[test]
fn e10_overload() {
    let world = World::new("e10");
    for era in ERAS {
        let input = in_era(era, &case("e10-overload")["input"]);
        let peer = serve(&input);
        let run = call(&world, era, &peer).expect_failure();
        assert!(run.took < PROMPT, "{run:?}");
        let error = run.expect_error(&["429", "retry after 2 s"]);
        assert_eq!(error["data"]["status"], 429, "{error}");
        let retry = error["data"]["retryInMs"].as_u64().unwrap();
        assert!((1_000..=2_000).contains(&retry), "{error}");
        assert_eq!(peer.posts("tools/call").len(), 1, "not repeated");
        expect_spaced(&peer, era, Duration::from_secs(1));
    }
}

#[test]
fn e10_a_date_says_when() {
    let world = World::new("e10-date");
    let mut input = case("e10-overload")["input"].clone();
    // A date has whole seconds: at least one is left of two.
    let date = http_date(SystemTime::now() + Duration::from_secs(3));
    let head = format!("HTTP/1.1 503 Service Unavailable\r\nRetry-After: {date}\r\n");
    input["exchanges"][0]["head"] = head.into();
    input["exchanges"][0]["limit"] = 1.into();
    let peer = serve(&input);
    let run = list(&world, "legacy", &peer).expect_prompt().expect_code(0);
    assert_eq!(run.tools(), ["echo"]);
    assert!(run.took >= Duration::from_secs(1), "{run:?}");
    assert_eq!(peer.posts("initialize").len(), 2);
}

/// The attempts to connect kept this distance, and the last of them worked.
#[track_caller]
fn expect_spaced(peer: &Peer, era: &str, distance: Duration) {
    let hello = if era == "modern" {
        "server/discover"
    } else {
        "initialize"
    };
    let attempts = peer.posts(hello);
    assert_eq!(attempts.len(), 3, "{attempts:#?}");
    for pair in attempts.windows(2) {
        assert!(pair[1].at - pair[0].at >= distance, "{attempts:#?}");
    }
}

/// RFC 9110 §5.6.7: IMF-fixdate.
fn http_date(time: SystemTime) -> String {
    let seconds = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][days as usize % 7];
    let leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let names = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(' ');
    let lengths = [
        31,
        28 + u64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    let mut month = "";
    for (name, length) in names.zip(lengths) {
        month = name;
        if day < length {
            break;
        }
        day -= length;
    }
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    let day = day + 1;
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

#[test]
fn dates_are_spelled_as_http_wants() {
    let at = |seconds| http_date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    assert_eq!(at(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(at(951_827_696), "Tue, 29 Feb 2000 12:34:56 GMT");
}
