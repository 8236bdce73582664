//! A link against scripted servers, in virtual time.

use super::*;
use crate::link::http_client::rig::*;
use crate::protocol::revision::Revision;

const OLD: Dialect = Dialect::Session(Revision::V2024_11_05);
const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/message"}"#;

fn rig() -> Rig<SseLink> {
    rig_with(&Limits::default())
}

fn rig_with(limits: &Limits) -> Rig<SseLink> {
    let target = target("http://127.0.0.1:8900/base/sse?k=1");
    Rig::new(SseLink::new(target, HttpBounds::from(limits), limits))
}

/// A link that is up, and the GET it came from.
fn up(rig: &mut Rig<SseLink>) -> Got {
    rig.start();
    let get = rig.next();
    rig.stream(&get, "event: endpoint\ndata: /m\n\n");
    assert_eq!(rig.news(), ["up"]);
    get
}

#[test]
fn the_endpoint_is_of_this_origin_or_none() {
    let early = format!("data: {NOTE}\n\n");
    let refused = |shown: &str, why: &str| {
        format!(
            "closed endpoint {shown} of the event stream of http://127.0.0.1:8900 is not used: {why}"
        )
    };
    let foreign = "it is of another origin, http://";
    let table = [
        ("messages?session=abc\n", Ok("/base/messages?session=abc")),
        ("/m?s=1\r\n", Ok("/m?s=1")),
        ("http://127.0.0.1:8900/abs\n", Ok("/abs")),
        (
            "http://127.0.0.1:8901/m?token=x\n",
            Err(refused(
                "http://127.0.0.1:8901/m",
                &format!("{foreign}127.0.0.1:8901"),
            )),
        ),
        (
            "//localhost:8900/m\n",
            Err(refused(
                "//localhost:8900/m",
                &format!("{foreign}localhost:8900"),
            )),
        ),
        (
            "http://me:pw@127.0.0.1:8900/m\n",
            Err(refused("http://127.0.0.1:8900/m", "it has a user name")),
        ),
        (
            "file:///made/up/hosts\n",
            Err(refused(
                "file:///made/up/hosts",
                "URL scheme file is not supported; expected ws, wss, http or https",
            )),
        ),
    ];
    for (data, wanted) in table {
        let end = if data.ends_with("\r\n") { "\r\n" } else { "\n" };
        for cut in [false, true] {
            let mut rig = rig();
            rig.start();
            let get = rig.next();
            assert_eq!(get.shown(), "GET /base/sse?k=1 ");
            assert_eq!(get.field("accept"), Some("text/event-stream"));
            assert_eq!(get.field("authorization"), Some("Bearer made"));
            rig.cut = cut;
            rig.stream(
                &get,
                &format!("{early}event: endpoint{end}data: {data}{end}"),
            );
            match &wanted {
                Ok(endpoint) => {
                    assert_eq!(rig.news(), ["up"], "{data:?}");
                    rig.send(request(1, "initialize", Dialect::Handshake));
                    let post = rig.next();
                    assert_eq!((post.method.as_str(), &*post.target), ("POST", *endpoint));
                    assert_eq!(post.field("authorization"), Some("Bearer made"));
                    assert_ne!(post.wire, get.wire);
                }
                Err(closed) => {
                    assert_eq!(rig.news(), [closed.as_str()]);
                    assert!(rig.is_gone(get.wire));
                    assert_eq!(rig.asked, ["open 1 127.0.0.1 8900", "close 1"]);
                }
            }
        }
    }
}

#[test]
fn a_later_endpoint_moves_nothing() {
    let mut rig = rig();
    let get = up(&mut rig);
    let elsewhere = "event: endpoint\ndata: http://127.0.0.1:8901/m2\n\n";
    rig.bytes(get.wire, elsewhere.as_bytes());
    rig.bytes(get.wire, b"event: endpoint\ndata: /m2\n\n");
    rig.send(request(1, "initialize", Dialect::Handshake));
    assert_eq!(rig.next().target, "/m");
    assert_eq!(rig.news(), Vec::<String>::new());
}

#[test]
fn answers_come_as_events() {
    for cut in [false, true] {
        let mut rig = rig();
        rig.cut = cut;
        let get = up(&mut rig);
        rig.send(request(7, "tools/list", OLD));
        let post = rig.next();
        rig.status(&post, "202 Accepted");
        assert_eq!(rig.news(), Vec::<String>::new());
        let result = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        let events = format!(": hi\n\nevent: message\ndata: {result}\n\nevent: x\ndata: y\n\n");
        rig.bytes(get.wire, events.as_bytes());
        assert_eq!(rig.news(), [format!("message - {result}")]);
        rig.send(request(8, "tools/list", OLD));
        assert_eq!(
            rig.next().wire,
            post.wire,
            "the connection of a POST is kept"
        );
        rig.bytes(get.wire, b"data: \xff\n\n");
        assert_eq!(rig.news(), ["unreadable - not UTF-8"]);
    }
}

#[test]
fn a_post_that_is_refused_ends_that_request() {
    let mut rig = rig();
    up(&mut rig);
    rig.send(request(7, "tools/list", OLD));
    let post = rig.next();
    let answer = "HTTP/1.1 400 No\r\nRetry-After: 1\r\nContent-Length: 3\r\n\r\nbad";
    rig.bytes(post.wire, answer.as_bytes());
    assert_eq!(rig.news(), ["end 7 status 400 retry=1000 bad"]);
    rig.send(request(8, "tools/list", OLD));
    let post = rig.next();
    rig.end(post.wire);
    assert!(rig.news()[0].starts_with("end 8 broken"));
    rig.send(request(9, "tools/list", OLD));
    let post = rig.next();
    let answer = "HTTP/1.1 307 X\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n";
    rig.bytes(post.wire, answer.as_bytes());
    assert!(
        rig.news()[0].starts_with("end 9 redirect http://127.0.0.1:8900/m to http://elsewhere/")
    );
    rig.send(request(10, "tools/list", OLD));
    let post = rig.next();
    rig.forget(10);
    rig.status(&post, "500 Oops");
    assert_eq!(rig.news(), Vec::<String>::new());
}

#[test]
fn a_post_may_be_answered_with_a_body_of_any_kind() {
    let mut rig = rig();
    up(&mut rig);
    for id in 1..4 {
        rig.send(request(id, "tools/list", OLD));
    }
    let (one, two, three) = (rig.next(), rig.next(), rig.next());
    rig.json(&one, "", r#""Accepted""#);
    rig.bytes(
        two.wire,
        b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nAccepted",
    );
    rig.stream(&three, "data: x\n\n");
    rig.now += 1_000;
    rig.pass_to(1_000);
    assert_eq!(rig.news(), Vec::<String>::new());
    assert!(!rig.is_gone(one.wire) && !rig.is_gone(two.wire) && rig.is_gone(three.wire));
}

#[test]
fn the_session_ends_with_its_stream() {
    let lost = "closed session was lost, safe to retry: event stream";
    let mut rig = rig();
    let get = up(&mut rig);
    rig.send(request(7, "tools/list", OLD));
    rig.end(get.wire);
    assert_eq!(rig.news(), [format!("{lost} ended")]);
    assert!(rig.is_gone(WireId(2)));
    rig.pass_to(100_000);
    assert_eq!(rig.got.len(), 1, "nothing is opened again");
}

#[test]
fn what_is_no_stream_is_told() {
    let asked = || {
        let mut rig = rig();
        rig.start();
        let get = rig.next();
        (rig, get)
    };
    let (mut rig, get) = asked();
    rig.bytes(
        get.wire,
        b"HTTP/1.1 401 No\r\nWWW-Authenticate: Bearer\r\nContent-Length: 4\r\n\r\nauth",
    );
    let told = ["closed event stream was answered with HTTP status 401: auth"];
    assert_eq!(rig.news(), told);

    let (mut rig, get) = asked();
    rig.json(&get, "", "{}");
    let told = ["closed event stream was answered with application/json"];
    assert_eq!(rig.news(), told);

    let (mut rig, get) = asked();
    rig.stream(&get, ": hello\n\n");
    rig.end(get.wire);
    assert_eq!(rig.news(), ["closed event stream ended"]);

    let mut rig = self::rig();
    rig.opens = false;
    rig.start();
    rig.fail(
        WireId(1),
        FaultKind::Unreachable,
        "cannot connect to h:1: refused",
    );
    assert_eq!(rig.news(), ["closed cannot connect to h:1: refused"]);
}

#[test]
fn messages_wait_until_the_session_has_begun() {
    let mut rig = rig();
    up(&mut rig);
    rig.send(notification("notifications/initialized", OLD));
    rig.send(request(2, "tools/list", OLD));
    let initialized = rig.next();
    assert!(rig.got.is_empty());
    rig.status(&initialized, "202 Accepted");
    assert!(rig.next().body.contains("tools/list"));

    let mut rig = self::rig();
    up(&mut rig);
    rig.send(notification("notifications/initialized", OLD));
    let initialized = rig.next();
    rig.status(&initialized, "404 Not Found");
    let told = ["closed notifications/initialized was answered with HTTP status 404"];
    assert_eq!(rig.news(), told);
}

#[test]
fn what_waits_and_what_comes_is_bounded() {
    let limits = Limits {
        upstream_out_bytes_max: 1_000,
        upstream_message_bytes_max: 100,
        ..Limits::default()
    };
    let mut rig = rig_with(&limits);
    let get = up(&mut rig);
    let mut big = request(8, "tools/call", OLD);
    big.body.resize(1_001, b' ');
    let full = rig.try_send(big).expect_err("too much");
    assert_eq!((full.value, full.limit), (1_001, 1_000));
    let events = format!("data: {}\n\ndata: {NOTE}\n\n", "x".repeat(200));
    rig.bytes(get.wire, events.as_bytes());
    let told = [
        "unreadable - message too large: 101 bytes, limit 100".to_owned(),
        format!("message - {NOTE}"),
    ];
    assert_eq!(rig.news(), told);
}

#[test]
fn the_end_is_immediate_and_last_words_leave() {
    let mut rig = rig();
    let get = up(&mut rig);
    rig.send(notification("notifications/a", OLD));
    let first = rig.next();
    rig.status(&first, "202 Accepted");
    rig.reads = false;
    rig.send(notification("notifications/cancelled", OLD));
    rig.close();
    assert!(rig.next().body.contains("notifications/cancelled"));
    assert!(rig.is_gone(get.wire));
    assert_eq!(rig.news(), ["closed connection closed"]);
    rig.close();
    assert_eq!(rig.link.next_deadline(), None);
}
