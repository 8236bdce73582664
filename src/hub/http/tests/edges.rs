//! Floods, and every limit of the HTTP door at its edge: what it allows passes, the next one is told the
//! limit and its value, and when one has gone there is room again.

use super::*;
use crate::link::IoRequest;

/// A call with this id.
fn call(id: u32) -> String {
    CALL.replace(r#""id":1"#, &format!(r#""id":{id}"#))
}

#[track_caller]
fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

#[test]
fn connections_max_and_connections_surplus_max() {
    let mut world = limited(Limits {
        connections_max: 2,
        connections_surplus_max: 1,
        ..Limits::default()
    });
    let (one, two) = (world.connect(), world.connect());
    for wire in [one, two] {
        says(&world.post(wire, "", INITIALIZE), &["200 OK"]);
    }
    let surplus = world.connect();
    let refused = world.post(surplus, "", INITIALIZE);
    let busy = "busy: 2 connections are open, limit 2 (connections_max)";
    says(
        &refused,
        &[
            "HTTP/1.1 503",
            "Retry-After: 1\r\n",
            "Connection: close",
            busy,
        ],
    );
    // It has gone; while another of its kind is here, the next one is closed without a word.
    let another = world.connect();
    assert!(world.is_shut());
    says(&world.post(one, "", INITIALIZE), &["200 OK"]);
    world.tell(two, IoEvent::WriteClosed);
    world.tell(another, IoEvent::WriteClosed);
    let next = world.connect();
    says(&world.post(next, "", INITIALIZE), &["200 OK"]);
}

#[test]
fn sessions_max() {
    let mut world = limited(Limits {
        sessions_max: 2,
        ..Limits::default()
    });
    let wire = world.connect();
    let first = world.open_session(wire, INITIALIZE);
    let _second = world.open_session(wire, INITIALIZE);
    let refused = world.post(wire, "", INITIALIZE);
    let busy = "too many sessions: 2 are open, limit 2 (sessions_max)";
    says(
        &refused,
        &["HTTP/1.1 503", "Retry-After: 60\r\n", busy, "-32603"],
    );
    // The pair of 2024-11-05 takes a session, too.
    let stream = world.connect();
    let head = "GET /sse HTTP/1.1\r\nHost: 127.0.0.1:8808\r\nAccept: text/event-stream\r\n\r\n";
    world.tell(stream, IoEvent::Bytes(head.as_bytes()));
    says(&world.take(stream), &["HTTP/1.1 503", busy]);
    // Who is in is served, also without a session.
    says(
        &world.post(wire, &first, r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#),
        &["200 OK"],
    );
    let (headers, body) = modern(4, "tools/list", "", r#""x":1"#);
    says(&world.post(wire, &headers, &body), &["200 OK"]);
    world.http(wire, "DELETE", &first, "");
    says(&world.take(wire), &["HTTP/1.1 204"]);
    world.open_session(wire, INITIALIZE);
}

#[test]
fn requests_open_max() {
    let mut world = limited(Limits {
        requests_open_max: 2,
        ..Limits::default()
    });
    let wire = world.connect();
    let session = world.open_session(wire, INITIALIZE);
    let other = world.open_session(wire, INITIALIZE);
    let wires: Vec<WireId> = (0..5).map(|_| world.connect()).collect();
    assert_eq!(world.post(wires[0], &session, &call(10)), "");
    assert_eq!(world.post(wires[1], &session, &call(11)), "");
    let refused = world.post(wires[2], &session, &call(12));
    let busy = "busy: 2 requests are open, limit 2 (requests_open_max)";
    says(&refused, &[r#""id":12,"error":{"code":-32603"#, busy]);
    assert_eq!(
        world.post(wires[3], &other, &call(10)),
        "",
        "another client's are its own"
    );
    let calls = world.calls();
    assert_eq!(calls.len(), 3);
    let now = world.now;
    world
        .hub
        .resolve_local(now, calls[0], LocalReply::text("done"));
    says(&world.take(wires[0]), &[r#""id":10,"result""#]);
    assert_eq!(
        world.post(wires[2], &session, &call(13)),
        "",
        "there is room again"
    );
}

#[test]
fn calls_open_max() {
    let mut world = limited(Limits {
        calls_open_max: 3,
        ..Limits::default()
    });
    let wires: Vec<WireId> = (0..6).map(|_| world.connect()).collect();
    let session = world.open_session(wires[0], INITIALIZE);
    assert_eq!(world.post(wires[0], &session, &call(1)), "");
    let slow = |id| modern(id, "tools/call", "slow", r#""name":"slow","arguments":{}"#);
    let read = |id| modern(id, "resources/read", "a:b", r#""uri":"a:b""#);
    let (headers, body) = slow(2);
    assert_eq!(world.post(wires[1], &headers, &body), "");
    let (headers, body) = read(3);
    assert_eq!(world.post(wires[2], &headers, &body), "");
    let busy = "busy: 3 calls are open, limit 3 (calls_open_max)";
    for (headers, body) in [slow(4), read(5)] {
        says(
            &world.post(wires[3], &headers, &body),
            &["\"error\":{\"code\":-32603", busy],
        );
    }
    says(
        &world.post(wires[4], &session, &call(6)),
        &[r#""id":6,"error""#, busy],
    );
    // A client that goes away makes room.
    world.tell(wires[1], IoEvent::WriteClosed);
    let (headers, body) = slow(7);
    assert_eq!(world.post(wires[3], &headers, &body), "");
    assert_eq!(world.hub.open_calls(), 3);
}

#[test]
fn streams_per_session_max() {
    let mut world = limited(Limits {
        streams_per_session_max: 2,
        ..Limits::default()
    });
    let wire = world.connect();
    let session = world.open_session(wire, INITIALIZE);
    let wires: Vec<WireId> = (0..3).map(|_| world.connect()).collect();
    for (id, wire) in (20..).zip(&wires) {
        world.http(*wire, "POST", &session, &call(id));
    }
    world.wait(1_000);
    let begun: Vec<String> = wires.iter().map(|wire| world.take(*wire)).collect();
    let resumable: Vec<bool> = begun.iter().map(|text| text.contains("\nid: ")).collect();
    assert_eq!(resumable, [true, true, false], "{begun:?}");
    let calls = world.calls();
    let now = world.now;
    for call in &calls {
        world
            .hub
            .resolve_local(now, *call, LocalReply::text("done"));
    }
    for wire in &wires {
        says(&world.take(*wire), &["done"]);
    }
    // Fetched streams are forgotten: there is room again.
    world.http(wires[2], "POST", &session, &call(30));
    world.wait(1_000);
    says(&world.take(wires[2]), &["\nid: "]);
}

#[test]
fn pipelined_requests_max() {
    let mut world = limited(Limits {
        pipelined_requests_max: 2,
        ..Limits::default()
    });
    let wire = world.connect();
    let session = world.open_session(wire, INITIALIZE);
    let request = |id| http_request("POST", &session, &call(id));
    let mut first = None;
    for (requests, asked, pauses) in [(1..2, 1, false), (2..3, 1, false), (3..5, 0, true)] {
        let bytes: String = requests.map(request).collect();
        let now = world.now;
        world
            .hub
            .handle_io(now, wire, IoEvent::Bytes(bytes.as_bytes()));
        let mut paused = false;
        while let Some(request) = world.hub.poll_io() {
            paused |= matches!(request, IoRequest::PauseReads(of, true) if of == wire);
        }
        let calls = world.calls();
        assert_eq!((calls.len(), paused), (asked, pauses), "{bytes}");
        first = first.or(calls.first().copied());
    }
    let (now, first) = (world.now, first.expect("the first call"));
    world
        .hub
        .resolve_local(now, first, LocalReply::text("done"));
    says(&world.take(wire), &[r#""id":1,"result""#]);
    assert_eq!(world.calls().len(), 1, "one answer, one request more");
}

#[test]
fn stream_start_interval_and_sse_keepalive_interval_and_sse_retry_interval() {
    let mut world = limited(Limits {
        stream_start_interval: Duration::from_millis(300),
        sse_keepalive_interval: Duration::from_millis(1_000),
        sse_retry_interval: Duration::from_millis(70),
        ..Limits::default()
    });
    let wire = world.connect();
    let session = world.open_session(wire, INITIALIZE);
    world.http(wire, "POST", &session, CALL);
    world.wait(299);
    assert_eq!(world.take(wire), "", "it may still be plain JSON");
    world.wait(1);
    says(&world.take(wire), &["text/event-stream", "\nretry: 70\n"]);
    world.wait(999);
    assert_eq!(world.take(wire), "");
    for _ in 0..3 {
        world.wait(1);
        says(&world.take(wire), &[": keep-alive\n"]);
        world.wait(999);
        assert_eq!(world.take(wire), "");
    }
}

#[test]
fn session_idle_ttl() {
    let mut world = limited(Limits {
        session_idle_ttl: Duration::from_millis(500),
        ..Limits::default()
    });
    let wire = world.connect();
    let session = world.open_session(wire, INITIALIZE);
    let ping = r#"{"jsonrpc":"2.0","id":3,"method":"ping"}"#;
    world.wait(499);
    says(&world.post(wire, &session, ping), &["200 OK"]);
    world.wait(500);
    says(
        &world.post(wire, &session, ping),
        &["HTTP/1.1 404", "session not found"],
    );
}

#[test]
fn sse_replay_events_max() {
    let mut world = limited(Limits {
        sse_replay_events_max: 2,
        ..Limits::default()
    });
    let wire = world.connect();
    let session = world.open_session(wire, INITIALIZE);
    world.post(wire, &session, INITIALIZED);
    let now = world.now;
    for _ in 0..3 {
        world.hub.with_local(now, |local| {
            local.list_changed(crate::protocol::server::List::Tools)
        });
    }
    let replayed = world.resume(&session, "0-0");
    assert_eq!(replayed.matches("list_changed").count(), 2, "{replayed}");
    says(&replayed, &["id: 0-2\n", "id: 0-3\n"]);
    world.settle();
    let lines = &world.diagnostics;
    assert_eq!(lines.len(), 1, "{lines:?}");
    says(
        &lines[0],
        &["1 events are kept no more", "sse_replay_events_max is 2"],
    );
}

#[test]
fn what_is_in_use_is_counted_when_somebody_asks() {
    let mut world = world();
    let wires: Vec<WireId> = (0..3).map(|_| world.connect()).collect();
    let session = world.open_session(wires[0], INITIALIZE);
    world.open_session(wires[0], INITIALIZE);
    world.http(wires[0], "POST", &session, &call(1));
    world.http(wires[0], "POST", &session, &call(2));
    world.http(wires[1], "POST", &session, &call(3));
    world.wait(1_000);
    for (name, used) in [
        ("connections_max", (3, Some(3))),
        ("sessions_max", (2, Some(2))),
        ("requests_open_max", (3, None)),
        ("calls_open_max", (3, Some(3))),
        ("pipelined_requests_max", (2, None)),
        // The second one of a connection streams as well: it waits for the first to end.
        ("streams_per_session_max", (3, None)),
        ("sse_replay_total_bytes_max", (0, None)),
    ] {
        assert_eq!(world.usage(name), used, "{name}");
    }
    let names = Limits::DEFAULT.entries();
    for usage in world.hub.usage() {
        let known = names.iter().any(|entry| entry.name == usage.name);
        assert!(known, "no limit is called {}", usage.name);
    }
    world.http(wires[2], "DELETE", &session, "");
    world.tell(wires[1], IoEvent::WriteClosed);
    assert_eq!(world.usage("sessions_max"), (1, Some(2)));
    assert_eq!(world.usage("calls_open_max"), (0, Some(3)));
    assert_eq!(world.usage("connections_max").1, Some(3));
}
