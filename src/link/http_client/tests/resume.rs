//! Streams that are cut: the ones of requests and the one of the session.

use crate::link::FaultKind;
use crate::link::http_client::HttpLink;
use crate::link::http_client::rig::*;
use crate::protocol::client::Dialect;
use crate::protocol::revision::Revision;

const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;
const RESULT: &str = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
const NOTHING: [&str; 0] = [];

/// A session with request 7 on its way.
fn called() -> (Rig<HttpLink>, Got) {
    let mut rig = http_rig();
    in_session(&mut rig, Revision::V2025_06_18);
    rig.send(request(7, "tools/call", LEGACY));
    let got = rig.next();
    (rig, got)
}

fn cut(rig: &mut Rig<HttpLink>, to: &Got, events: &str) {
    rig.stream(to, events);
    rig.end(to.wire);
}

#[test]
fn a_cut_stream_is_resumed_after_exactly_the_wait_that_was_asked_for() {
    for cut_up in [false, true] {
        let (mut rig, got) = called();
        rig.cut = cut_up;
        rig.now = 1_000;
        cut(&mut rig, &got, "id: p/0\nretry: 500\ndata:\n\n");
        assert_eq!(rig.news(), ["resuming 7 stream ended before the answer"]);
        rig.pass_to(1_499);
        assert!(rig.got.is_empty());
        rig.pass_to(1_500);
        let get = rig.next();
        assert_eq!(get.shown(), "GET /mcp ");
        assert_eq!(get.field("last-event-id"), Some("p/0"));
        assert_eq!(get.field("mcp-session-id"), Some("S1"));
        rig.stream(&get, &format!("data: {RESULT}\n\n"));
        assert_eq!(rig.news(), [format!("message 7 {RESULT}")]);
    }
}

#[test]
fn a_server_that_keeps_cutting_is_asked_three_times() {
    let (mut rig, got) = called();
    let events = format!("id: p/0\nretry: 50\ndata:\n\nid: p/1\ndata: {NOTE}\n\n");
    cut(&mut rig, &got, &events);
    let mut gets = 0;
    for at in [50, 100, 150, 200, 10_000] {
        rig.pass_to(at);
        while let Some(get) = rig.got.pop_front() {
            assert_eq!(get.field("last-event-id"), Some("p/1"));
            assert_eq!(rig.now, 50 * (gets + 1));
            gets += 1;
            cut(&mut rig, &get, ": nothing yet\n\n");
        }
    }
    assert_eq!(gets, 3);
    let told = rig.news();
    let notes = told.iter().filter(|told| told.starts_with("message"));
    assert_eq!(notes.count(), 1, "{told:?}");
    let end = "end 7 broken: stream could not be resumed, 3 tries: stream ended before the answer";
    assert_eq!(told.last().map(String::as_str), Some(end));
}

#[test]
fn progress_makes_the_count_begin_again() {
    let (mut rig, got) = called();
    cut(&mut rig, &got, "id: 0\nretry: 50\ndata:\n\n");
    for n in 1..10_u64 {
        rig.pass_to(50 * n);
        let get = rig.next();
        cut(&mut rig, &get, &format!("id: {n}\ndata:\n\n"));
    }
    assert!(rig.news().iter().all(|told| told.starts_with("resuming")));
}

#[test]
fn without_an_event_id_and_in_the_stateless_era_nothing_is_resumed() {
    let end = ["end 7 broken: stream ended before the answer"];
    let (mut rig, got) = called();
    cut(&mut rig, &got, "retry: 50\ndata:\n\n");
    assert_eq!(rig.news(), end);
    rig.pass_to(60_000);
    assert!(rig.got.is_empty());

    let mut rig = http_rig();
    rig.start();
    rig.send(request(7, "tools/call", MODERN));
    let got = rig.next();
    cut(&mut rig, &got, "id: 1\nretry: 50\ndata:\n\n");
    assert_eq!(rig.news()[1..], end);
    rig.pass_to(60_000);
    assert!(rig.got.is_empty());
}

#[test]
fn an_id_that_cannot_be_sent_is_none() {
    for id in ["é", "a\tb", " a ", &"x".repeat(5_000)] {
        let (mut rig, got) = called();
        cut(&mut rig, &got, &format!("id:{id}\nretry: 50\ndata:\n\n"));
        let sent = id == " a ";
        let told = rig.news();
        if sent {
            // One blank behind the colon does not belong to it, the one at the end does.
            assert!(told[0].starts_with("end 7 broken"), "{told:?}");
        }
        rig.pass_to(1_000);
        assert!(rig.got.is_empty(), "{id:?}");
    }
}

#[test]
fn an_empty_id_takes_back_the_one_before() {
    let (mut rig, got) = called();
    cut(&mut rig, &got, "id: 5\ndata:\n\nid:\ndata:\n\n");
    assert_eq!(rig.news(), ["end 7 broken: stream ended before the answer"]);
}

#[test]
fn a_wait_is_bounded_both_ways_and_one_second_by_default() {
    for (field, wait) in [
        ("", 1_000),
        ("retry: 12a\nretry: -5\nretry: 1.5\nretry:\n", 1_000),
        ("retry: 1500\n", 1_500),
        ("retry: 0\n", 10),
        ("retry: 999999999999\n", 30_000),
    ] {
        let (mut rig, got) = called();
        cut(&mut rig, &got, &format!("{field}id: 1\ndata:\n\n"));
        rig.pass_to(wait - 1);
        assert!(rig.got.is_empty(), "{field:?}");
        rig.pass_to(wait);
        assert_eq!(rig.next().field("last-event-id"), Some("1"), "{field:?}");
    }
}

#[test]
fn what_a_get_can_meet() {
    let asked = || {
        let (mut rig, got) = called();
        cut(&mut rig, &got, "id: 1\nretry: 50\ndata:\n\n");
        rig.news();
        rig.pass_to(50);
        let get = rig.next();
        (rig, get)
    };
    let (mut rig, get) = asked();
    rig.status(&get, "404 Not Found");
    assert_eq!(rig.news(), ["end 7 session lost 404"]);

    let (mut rig, get) = asked();
    rig.status(&get, "405 Method Not Allowed");
    let end = "end 7 broken: stream could not be resumed: HTTP status 405";
    assert_eq!(rig.news(), [end]);

    // A server that restarts refuses for a while: the waits grow.
    let (mut rig, get) = asked();
    rig.status(&get, "503 Service Unavailable");
    let again = ["resuming 7 stream could not be resumed: HTTP status 503"];
    assert_eq!(rig.news(), again);
    rig.pass_to(2_049);
    assert!(rig.got.is_empty());
    rig.pass_to(2_050);
    assert_eq!(rig.next().field("last-event-id"), Some("1"));
}

#[test]
fn a_connection_that_cannot_be_opened_counts_as_a_try() {
    let (mut rig, got) = called();
    cut(&mut rig, &got, "id: 1\nretry: 50\ndata:\n\n");
    rig.opens = false;
    // The connection of the GET that was refused is kept; it goes first.
    rig.end(crate::ids::WireId(1));
    rig.news();
    for at in [50, 2_050, 6_050] {
        rig.pass_to(at);
        let opened = rig.asked.last().expect("an open").clone();
        let wire: u32 = opened
            .split(' ')
            .nth(1)
            .and_then(|n| n.parse().ok())
            .expect("a wire");
        let wire = crate::ids::WireId(wire);
        rig.fail(wire, FaultKind::Unreachable, "cannot connect to h: refused");
    }
    let told = rig.news();
    let end = "end 7 broken: stream could not be resumed, 3 tries: cannot connect to h: refused";
    assert_eq!(told.last().map(String::as_str), Some(end), "{told:?}");
}

#[test]
fn a_broken_wire_is_a_cut_too() {
    let (mut rig, got) = called();
    rig.stream(&got, "id: 1\nretry: 50\ndata:\n\n");
    rig.fail(got.wire, FaultKind::Broken, "connection reset by peer");
    let told = ["resuming 7 stream ended before the answer: connection reset by peer"];
    assert_eq!(rig.news(), told);
    rig.forget(7);
    rig.pass_to(1_000);
    assert!(rig.got.is_empty(), "nobody waits for it any more");
    assert_eq!(rig.news(), NOTHING);
}

#[test]
fn an_event_over_the_limit_costs_that_event_only() {
    let limits = crate::limits::Limits {
        upstream_message_bytes_max: 100,
        ..crate::limits::Limits::default()
    };
    let long = format!("data: {}\n\n", "x".repeat(200));
    for cut_up in [false, true] {
        let mut rig = http_rig_with(target("http://127.0.0.1:8900/mcp"), &limits);
        in_session(&mut rig, Revision::V2025_06_18);
        rig.send(request(7, "tools/call", LEGACY));
        let got = rig.next();
        rig.cut = cut_up;
        rig.stream(&got, &format!("id: 1\n{long}data: {RESULT}\n\n"));
        let too_large = "unreadable 7 message too large: 101 bytes, limit 100";
        assert_eq!(
            rig.news(),
            [too_large.to_owned(), format!("message 7 {RESULT}")]
        );
        // Perhaps it was the answer: it would be too long again.
        rig.send(request(8, "tools/call", LEGACY));
        let got = rig.next();
        rig.stream(&got, &format!("id: 1\n{long}"));
        rig.end(got.wire);
        let told = [
            "unreadable 8 message too large: 101 bytes, limit 100",
            "end 8 too large 101 of 100",
        ];
        assert_eq!(rig.news(), told);
    }
}

/// A session whose stream is open.
fn listening(events: &str) -> (Rig<HttpLink>, Got) {
    let mut rig = http_rig();
    with_stream_asked(&mut rig, Revision::V2025_06_18);
    let get = rig.next();
    rig.stream(&get, events);
    (rig, get)
}

#[test]
fn the_stream_of_a_session_is_taken_up_behind_its_last_event() {
    let (mut rig, get) = listening(&format!("id: 1\nretry: 1500\ndata: {NOTE}\n\n"));
    assert_eq!(rig.news(), [format!("message - {NOTE}")]);
    rig.end(get.wire);
    rig.pass_to(1_499);
    assert!(rig.got.is_empty());
    rig.pass_to(1_500);
    let get = rig.next();
    assert_eq!(get.field("last-event-id"), Some("1"));
    rig.stream(&get, &format!("data: {NOTE}\n\n"));
    assert_eq!(rig.news(), [format!("message - {NOTE}")]);
}

#[test]
fn a_stream_that_brings_nothing_is_asked_for_less_and_less_often() {
    let (mut rig, get) = listening("");
    rig.end(get.wire);
    let mut at = Vec::new();
    let mut ms = 0;
    while ms < 100_000 {
        ms += 500;
        rig.pass_to(ms);
        while let Some(get) = rig.got.pop_front() {
            at.push(ms);
            cut(&mut rig, &get, ": hello\n\n");
        }
    }
    assert_eq!(at, [1_000, 3_000, 7_000, 15_000, 31_000, 61_000, 91_000]);
    assert_eq!(rig.news(), NOTHING);
}

#[test]
fn a_stream_with_service_is_asked_for_again_at_once() {
    let (mut rig, mut get) = listening("");
    let mut ms = 0;
    for _ in 0..5 {
        ms += 10_000;
        rig.pass_to(ms);
        rig.end(get.wire);
        ms += 1_000;
        rig.pass_to(ms);
        get = rig.next();
        rig.stream(&get, "");
    }
}

#[test]
fn a_server_that_is_busy_is_left_alone_as_long_as_it_asks() {
    let mut rig = http_rig();
    with_stream_asked(&mut rig, Revision::V2025_06_18);
    let get = rig.next();
    let busy = "HTTP/1.1 503 Busy\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n";
    rig.bytes(get.wire, busy.as_bytes());
    rig.pass_to(4_999);
    assert!(rig.got.is_empty());
    rig.pass_to(5_000);
    let get = rig.next();
    rig.stream(&get, "");
    // What another request hears counts for the stream too.
    rig.send(request(7, "tools/call", LEGACY));
    let got = rig.next();
    let busy = "HTTP/1.1 429 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n";
    rig.bytes(got.wire, busy.as_bytes());
    rig.end(get.wire);
    rig.pass_to(11_999);
    assert!(rig.got.is_empty());
    rig.pass_to(12_000);
    assert_eq!(rig.next().method, "GET");
    assert_eq!(rig.news(), ["end 7 status 429 retry=7000"]);
}

#[test]
fn a_stream_that_never_begins_is_in_nobodys_way() {
    let mut rig = http_rig();
    with_stream_asked(&mut rig, Revision::V2025_06_18);
    let get = rig.next();
    rig.pass_to(300_000);
    rig.send(request(7, "tools/list", LEGACY));
    let got = rig.next();
    assert_ne!(got.wire, get.wire);
    rig.json(&got, "", RESULT);
    assert_eq!(rig.news(), [format!("message 7 {RESULT}")]);
}

#[test]
fn a_new_handshake_ends_the_stream_of_the_old_session() {
    let (mut rig, get) = listening("");
    rig.send(request(9, "initialize", Dialect::Handshake));
    assert!(rig.is_gone(get.wire));
    let got = rig.next();
    assert!(!got.fields.has("mcp-session-id"));
    assert!(!got.fields.has("mcp-protocol-version"));
}
