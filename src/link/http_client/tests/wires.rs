//! Connections: kept, stale, slow, refused, behind a proxy.

use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::http_client::HttpProxy;
use crate::link::http_client::rig::*;
use crate::link::{FaultKind, IoEvent};
use crate::protocol::revision::Revision;
use crate::secret::Secret;

const URL: &str = "http://127.0.0.1:8900/mcp";

fn result(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

/// A link with one kept connection.
fn kept() -> Rig<crate::link::http_client::HttpLink> {
    let mut rig = http_rig();
    rig.start();
    rig.send(request(1, "server/discover", MODERN));
    let got = rig.next();
    rig.json(&got, "", &result(1));
    rig.news();
    rig
}

#[test]
fn one_request_at_a_time_and_the_warmest_connection_first() {
    let mut rig = kept();
    for id in 2..5 {
        rig.send(request(id, "tools/call", MODERN));
    }
    let got: Vec<Got> = std::mem::take(&mut rig.got).into();
    let wires: Vec<u32> = got.iter().map(|got| got.wire.0).collect();
    assert_eq!(wires, [1, 2, 3]);
    for (got, id) in got.iter().zip(2..) {
        rig.json(got, "", &result(id));
    }
    rig.send(request(9, "tools/call", MODERN));
    assert_eq!(rig.next().wire, WireId(3));
}

#[test]
fn heads_that_differ_in_their_length_only_have_each_their_own() {
    let mut rig = kept();
    for (id, text) in [(2, "ab"), (3, "cd"), (4, "efgh"), (5, "i")] {
        rig.send(request(id, "tools/call", MODERN));
        let got = rig.next();
        assert_eq!(got.wire, WireId(1), "the connection is still good");
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"t":"{text}"}}}}"#);
        rig.json(&got, "", &body);
        assert_eq!(rig.news(), [format!("message {id} {body}")]);
    }
    // These have no body, whatever they say its length is.
    for (id, length) in [(6, "0"), (7, "9")] {
        rig.send(request(id, "tools/call", MODERN));
        let got = rig.next();
        assert_eq!(got.wire, WireId(1), "the connection is still good");
        let answer = format!("HTTP/1.1 204 No Content\r\nContent-Length: {length}\r\n\r\n");
        rig.bytes(got.wire, answer.as_bytes());
        assert_eq!(rig.news(), [format!("end {id} accepted")]);
    }
}

#[test]
fn so_many_are_kept_so_long() {
    let limits = Limits {
        pool_connections_max: 2,
        ..Limits::default()
    };
    let mut rig = http_rig_with(target(URL), &limits);
    rig.start();
    for id in 1..=4 {
        rig.send(request(id, "tools/call", MODERN));
    }
    for id in 1..=4 {
        rig.now += 1;
        let got = rig.next();
        rig.json(&got, "", &result(id));
    }
    let open = |rig: &Rig<_>| (1..=4).filter(|n| !rig.is_gone(WireId(*n))).count();
    assert_eq!(open(&rig), 2);
    assert!(rig.is_gone(WireId(1)) && rig.is_gone(WireId(2)));
    rig.pass_to(30_002);
    assert_eq!(open(&rig), 2);
    rig.pass_to(30_003);
    assert!(rig.is_gone(WireId(3)));
    rig.pass_to(30_004);
    assert_eq!(open(&rig), 0);
    assert_eq!(rig.link.next_deadline(), None);
}

#[test]
fn a_life_that_the_server_states_is_not_used_to_its_end() {
    let mut rig = http_rig();
    rig.start();
    rig.send(request(1, "tools/call", MODERN));
    let got = rig.next();
    rig.json(&got, "Keep-Alive: timeout=5\r\n", &result(1));
    rig.pass_to(3_999);
    assert!(!rig.is_gone(got.wire));
    rig.pass_to(4_000);
    assert!(rig.is_gone(got.wire));
}

#[test]
fn a_kept_connection_that_ends_or_speaks_is_dropped() {
    let mut rig = kept();
    rig.end(WireId(1));
    assert!(rig.is_gone(WireId(1)));
    let mut rig = kept();
    rig.bytes(WireId(1), b"HTTP/1.1 408 Request Timeout\r\n\r\n");
    assert!(rig.is_gone(WireId(1)));
    let mut rig = kept();
    rig.hear(WireId(1), IoEvent::WriteClosed);
    assert!(rig.is_gone(WireId(1)));
    rig.send(request(2, "tools/call", MODERN));
    assert_eq!(rig.next().wire, WireId(2));
}

#[test]
fn what_provably_did_not_leave_is_sent_once_more() {
    let mut rig = kept();
    rig.reads = false;
    rig.send(request(2, "tools/call", MODERN));
    rig.end(WireId(1));
    rig.reads = true;
    rig.leave(WireId(2));
    let got = rig.next();
    assert_eq!(got.wire, WireId(2));
    rig.json(&got, "", &result(2));
    assert_eq!(rig.news(), [format!("message 2 {}", result(2))]);

    // Once: the second connection is no kept one, and its end is told.
    let mut rig = kept();
    rig.reads = false;
    rig.send(request(2, "tools/call", MODERN));
    rig.end(WireId(1));
    rig.end(WireId(2));
    let why = "server ended the connection before its answer";
    assert_eq!(
        rig.news(),
        [format!("end 2 not sent: 127.0.0.1:8900: {why}")]
    );
}

#[test]
fn what_may_have_left_is_not_sent_again() {
    let mut rig = kept();
    rig.send(request(2, "tools/call", MODERN));
    rig.next();
    rig.end(WireId(1));
    let why = "end 2 broken: 127.0.0.1:8900: server ended the connection before its answer";
    assert_eq!(rig.news(), [why]);
    assert!(
        rig.got.is_empty() && rig.asked.len() == 2,
        "{:?}",
        rig.asked
    );

    let mut rig = kept();
    rig.send(request(2, "tools/call", MODERN));
    rig.fail(WireId(1), FaultKind::Broken, "connection reset by peer");
    assert_eq!(rig.news(), ["end 2 broken: connection reset by peer"]);

    // The loop drops what waits before it tells that nobody reads: that proves nothing.
    let mut rig = kept();
    rig.reads = false;
    rig.send(request(2, "tools/call", MODERN));
    if let Some(out) = rig.link.outgoing(WireId(1)) {
        out.clear();
    }
    rig.hear(WireId(1), IoEvent::WriteClosed);
    rig.end(WireId(1));
    assert!(rig.news()[0].starts_with("end 2 broken"));

    // Part of it has left.
    let mut rig = kept();
    rig.reads = false;
    rig.send(request(2, "tools/call", MODERN));
    if let Some(out) = rig.link.outgoing(WireId(1)) {
        out.advance(1);
    }
    rig.end(WireId(1));
    assert!(rig.news()[0].starts_with("end 2 broken"));
}

#[test]
fn what_is_the_same_twice_as_once_is_sent_again() {
    let mut rig = http_rig();
    in_session(&mut rig, Revision::V2025_06_18);
    rig.close();
    let first = rig.next();
    rig.end(first.wire);
    let second = rig.next();
    assert_eq!(second.method, "DELETE");
    assert_ne!(first.wire, second.wire);
    rig.end(second.wire);
    assert!(rig.got.is_empty());
    assert_eq!(rig.news(), ["closed connection closed"]);
}

#[test]
fn an_answer_may_come_before_the_request_has_left() {
    let mut rig = kept();
    rig.reads = false;
    rig.send(request(2, "tools/call", MODERN));
    let answer = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
    rig.bytes(WireId(1), answer.as_bytes());
    assert_eq!(rig.news(), ["end 2 status 413"]);
    assert!(
        rig.is_gone(WireId(1)),
        "what is left of the request would be another one"
    );
}

#[test]
fn a_server_that_cannot_be_reached_got_nothing() {
    let mut rig = http_rig();
    rig.opens = false;
    rig.start();
    rig.send(request(1, "server/discover", MODERN));
    rig.fail(
        WireId(1),
        FaultKind::Unreachable,
        "cannot connect to h:1: refused",
    );
    assert_eq!(
        rig.news(),
        ["up", "end 1 not sent: cannot connect to h:1: refused"]
    );
}

#[test]
fn a_head_that_has_begun_must_end() {
    let mut rig = http_rig();
    rig.start();
    rig.send(request(1, "tools/call", MODERN));
    let got = rig.next();
    // An answer may take as long as the call does.
    rig.pass_to(50_000);
    rig.bytes(got.wire, b"HTTP/1.1 200 OK\r\n");
    rig.pass_to(59_999);
    rig.bytes(got.wire, b"A: b\r\n");
    assert_eq!(rig.news(), ["up"]);
    rig.pass_to(60_000);
    let end = "end 1 broken: 127.0.0.1:8900: head of the answer timed out after 10000 ms";
    assert_eq!(rig.news(), [end]);
    assert!(rig.is_gone(got.wire));
}

#[test]
fn a_server_that_does_not_read_is_found_out() {
    let mut rig = http_rig();
    rig.reads = false;
    rig.start();
    rig.send(request(1, "tools/call", MODERN));
    rig.pass_to(29_000);
    if let Some(out) = rig.link.outgoing(WireId(1)) {
        out.advance(10);
    }
    rig.pass_to(29_001);
    rig.pass_to(59_000);
    assert_eq!(rig.news(), ["up"]);
    rig.pass_to(59_001);
    let told = rig.news();
    assert!(told[0].starts_with("end 1 broken: 127.0.0.1:8900: server is not reading: "));
    assert!(told[0].ends_with("bytes queued for 30000 ms"), "{told:?}");
}

#[test]
fn a_body_over_the_limit_ends_that_request_only() {
    let limits = Limits {
        upstream_message_bytes_max: 60,
        ..Limits::default()
    };
    let ok = |id| format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{id}");
    let long = "x".repeat(61);
    for (answer, value) in [
        (
            ok("Content-Length: 10000000000\r\n\r\n"),
            10_000_000_000_usize,
        ),
        (ok(&format!("Content-Length: 61\r\n\r\n{long}")), 61),
        (
            ok(&format!("Transfer-Encoding: chunked\r\n\r\n3d\r\n{long}")),
            61,
        ),
        (ok(&format!("\r\n{long}")), 61),
    ] {
        let mut rig = http_rig_with(target(URL), &limits);
        rig.start();
        rig.send(request(7, "tools/call", MODERN));
        rig.send(request(8, "tools/call", MODERN));
        let (seven, eight) = (rig.next(), rig.next());
        rig.bytes(seven.wire, answer.as_bytes());
        rig.json(&eight, "", &result(8));
        let told = [
            "up".to_owned(),
            format!("end 7 too large {value} of 60"),
            format!("message 8 {}", result(8)),
        ];
        assert_eq!(rig.news(), told);
        assert!(rig.is_gone(seven.wire));
    }
    let exact = format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":{{"a":"{}"}}}}"#,
        "x".repeat(18)
    );
    assert_eq!(exact.len(), 60);
    let mut rig = http_rig_with(target(URL), &limits);
    rig.start();
    rig.send(request(7, "tools/call", MODERN));
    let got = rig.next();
    rig.json(&got, "", &exact);
    assert_eq!(rig.news()[1], format!("message 7 {exact}"));
}

#[test]
fn a_refusal_is_kept_as_far_as_it_is_told() {
    let mut rig = http_rig();
    rig.start();
    rig.send(request(7, "tools/call", MODERN));
    let got = rig.next();
    let page = "x".repeat(16 * 1024 + 1);
    let answer = format!("HTTP/1.1 500 X\r\nContent-Length: 999999999999\r\n\r\n{page}");
    rig.bytes(got.wire, answer.as_bytes());
    let told = rig.news();
    assert_eq!(told[1].len(), "end 7 status 500 ".len() + 16 * 1024);
    assert!(rig.is_gone(got.wire));
}

fn proxied(url: &str, credentials: bool) -> Rig<crate::link::http_client::HttpLink> {
    let mut target = target(url);
    target.proxy = Some(HttpProxy {
        host: "proxy".to_owned(),
        port: 3128,
        credentials: credentials.then(|| Secret::new("me:pw".to_owned())),
    });
    let mut rig = http_rig_with(target, &Limits::default());
    rig.start();
    rig.send(request(7, "tools/call", MODERN));
    rig
}

#[test]
fn a_proxy_is_asked_for_a_tunnel() {
    for cut in [false, true] {
        let mut rig = proxied("http://h/mcp", true);
        rig.cut = cut;
        let connect = rig.next();
        assert_eq!(connect.shown(), "CONNECT h:80 ");
        assert_eq!(connect.field("proxy-authorization"), Some("Basic bWU6cHc="));
        assert!(
            !connect.fields.has("authorization"),
            "that is for the server"
        );
        rig.bytes(
            connect.wire,
            b"HTTP/1.1 200 Established\r\nContent-Length: 3\r\n\r\n",
        );
        let got = rig.next();
        assert_eq!((got.target.as_str(), got.wire), ("/mcp", connect.wire));
        assert!(
            !got.fields.has("proxy-authorization"),
            "that is for the proxy"
        );
        rig.json(&got, "", &result(7));
        rig.send(request(8, "tools/call", MODERN));
        assert_eq!(rig.next().wire, connect.wire, "the tunnel is kept");
        assert_eq!(rig.asked, ["open 1 proxy 3128"]);
    }
}

#[test]
fn tls_begins_within_the_tunnel() {
    let mut rig = proxied("https://[::1]/mcp", false);
    let connect = rig.next();
    assert_eq!(connect.shown(), "CONNECT [::1]:443 ");
    rig.opens = false;
    rig.bytes(connect.wire, b"HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(rig.asked, ["open 1 proxy 3128", "open 1 ::1 443 tls"]);
    assert!(rig.got.is_empty());
    rig.hear(connect.wire, IoEvent::Opened);
    assert_eq!(rig.next().target, "/mcp");

    let mut rig = proxied("https://h/mcp", false);
    let connect = rig.next();
    rig.opens = false;
    rig.bytes(connect.wire, b"HTTP/1.1 200 OK\r\n\r\n");
    rig.fail(
        connect.wire,
        FaultKind::Tls,
        "cannot connect to h:443 with TLS: no",
    );
    assert_eq!(
        rig.news()[1],
        "end 7 not sent: cannot connect to h:443 with TLS: no"
    );
}

#[test]
fn a_proxy_that_refuses_is_named() {
    let mut rig = proxied("https://h/mcp", false);
    let connect = rig.next();
    rig.bytes(
        connect.wire,
        b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
    );
    let why = "proxy proxy:3128 refused a tunnel to h:443 with HTTP status 407";
    assert_eq!(rig.news()[1], format!("end 7 not sent: h: {why}"));
    assert!(rig.is_gone(connect.wire));
    let mut rig = proxied("https://h/mcp", false);
    let connect = rig.next();
    rig.end(connect.wire);
    assert_eq!(
        rig.news()[1],
        "end 7 not sent: h: proxy ended the connection"
    );
}

#[test]
fn https_is_opened_with_tls() {
    let mut rig = http_rig_with(target("https://h/mcp"), &Limits::default());
    rig.start();
    rig.send(request(7, "tools/call", MODERN));
    assert_eq!(rig.asked, ["open 1 h 443 tls"]);
    assert_eq!(rig.next().field("host"), Some("h"));
}

#[test]
fn an_answer_that_is_not_utf8_is_told_as_that() {
    let mut rig = http_rig();
    rig.start();
    rig.send(request(7, "tools/call", MODERN));
    let got = rig.next();
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n";
    rig.bytes(got.wire, &[&head[..], b"{\"\xff\""].concat());
    let told = [
        "up",
        "unreadable 7 not UTF-8",
        "end 7 broken: unreadable answer: not UTF-8 at byte 2",
    ];
    assert_eq!(rig.news(), told);
}
