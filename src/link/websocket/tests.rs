//! The state table of the module, walked row by row.

use std::collections::BTreeSet;

use super::refusal::REFUSAL_BODY_BYTES_MAX;
use super::*;
use crate::clock::Uptime;
use crate::codec::websocket::upgrade::accept_key;
use crate::entropy::Seeded;

const WIRE: WireId = WireId(7);

fn at(ms: u64) -> Now {
    Now {
        up: Uptime::from_millis(ms),
        unix_ms: 0,
    }
}

/// A connection in some state, and what it asked and told since `forget`.
struct Rig {
    link: WebSocketLink,
    log: Vec<String>,
    sent: Vec<u8>,
    /// Whether flushed bytes leave.
    reading: bool,
}

impl Rig {
    fn new(link: WebSocketLink) -> Self {
        Self {
            link,
            log: Vec::new(),
            sent: Vec::new(),
            reading: true,
        }
    }

    fn drain(&mut self) {
        while let Some(event) = self.link.poll_event() {
            self.log.push(match event {
                WsLinkEvent::Up => "up".to_owned(),
                WsLinkEvent::Text(text) => format!("text {text}"),
                WsLinkEvent::Closed(reason) => format!("closed: {reason}"),
            });
        }
        while let Some(request) = self.link.poll_io() {
            self.log.push(match request {
                IoRequest::Open(wire, OpenSpec::Tcp { host, port, .. }) => {
                    assert_eq!(wire, WIRE);
                    format!("open {host} {port}")
                }
                IoRequest::Flush(_) => "flush".to_owned(),
                IoRequest::CloseWrite(_) => "close write".to_owned(),
                IoRequest::Close(_) => "close".to_owned(),
                other @ (IoRequest::Open(..)
                | IoRequest::PauseReads(..)
                | IoRequest::Finish(_)
                | IoRequest::Signal(..)
                | IoRequest::Append(_)) => panic!("asked for {other:?}"),
            });
        }
        if self.reading {
            self.sent.extend_from_slice(self.link.outgoing().pending());
            self.link.outgoing().clear();
        }
    }

    fn hear(&mut self, event: IoEvent<'_>) {
        self.link.handle_io(at(10), event);
        self.drain();
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.hear(IoEvent::Bytes(bytes));
    }

    fn fault(&mut self) {
        self.hear(IoEvent::Failed(IoFault {
            kind: FaultKind::Unreachable,
            message: "h:80 refused".to_owned(),
        }));
    }

    fn tick(&mut self, ms: u64) {
        self.link.handle_timeout(at(ms));
        self.drain();
    }

    fn close(&mut self) {
        self.link.close(at(10), Some(1000), "bye");
        self.drain();
    }

    fn state(&self) -> &'static str {
        match self.link.state {
            State::Opening(_) => "Opening",
            State::Upgrading(..) => "Upgrading",
            State::Refused(_) => "Refused",
            State::Accepting(_) => "Accepting",
            State::Open(_) => "Open",
            State::Closing(_) => "Closing",
            State::Leaving { .. } => "Leaving",
            State::Closed => "Closed",
        }
    }

    fn forget(mut self) -> Self {
        self.log.clear();
        self.sent.clear();
        self
    }

    /// The 101 that answers our request.
    fn answer(&self) -> Vec<u8> {
        let request = String::from_utf8_lossy(&self.sent).into_owned();
        let key = request
            .split("Sec-WebSocket-Key: ")
            .nth(1)
            .expect("a key")
            .trim_end();
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n",
            accept_key(key)
        )
        .into_bytes()
    }
}

fn limits() -> Limits {
    Limits {
        gateway_out_bytes_max: 100,
        ..Limits::default()
    }
}

fn spec() -> ConnectSpec {
    ConnectSpec {
        host: "h".to_owned(),
        port: 80,
        path: "/".to_owned(),
        tls: None,
    }
}

fn client(spec: ConnectSpec) -> Rig {
    Rig::new(WebSocketLink::client(
        WIRE,
        spec,
        &limits(),
        &mut Seeded::new(1),
        at(0),
    ))
}

fn opening() -> Rig {
    let mut rig = client(spec());
    rig.drain();
    assert_eq!(rig.log, ["open h 80"]);
    rig.forget()
}

fn upgrading() -> Rig {
    let mut rig = opening();
    rig.hear(IoEvent::Opened);
    rig.log.clear();
    rig
}

fn refused() -> Rig {
    let mut rig = upgrading();
    rig.bytes(b"HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\n\r\n");
    rig.forget()
}

fn accepting() -> Rig {
    Rig::new(WebSocketLink::server(WIRE, &limits(), at(0)))
}

fn open() -> Rig {
    let mut rig = upgrading();
    let answer = rig.answer();
    rig.bytes(&answer);
    rig.forget()
}

fn closing() -> Rig {
    let mut rig = open();
    rig.close();
    rig.forget()
}

fn closing_unread() -> Rig {
    let mut rig = open();
    rig.reading = false;
    rig.close();
    rig.forget()
}

fn leaving() -> Rig {
    let mut rig = open();
    rig.bytes(b"\x88\x02\x03\xe8");
    rig.forget()
}

fn leaving_unread() -> Rig {
    let mut rig = open();
    rig.reading = false;
    rig.bytes(b"\x88\x02\x03\xe8");
    rig.forget()
}

fn closed() -> Rig {
    let mut rig = leaving();
    rig.hear(IoEvent::Eof);
    rig.forget()
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\
    Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// One transition: state, input and next state as in the module's table, how to get there, what to
/// do, and what is asked and told then.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    fn() -> Rig,
    fn(&mut Rig),
    &'static [&'static str],
);

const LOCAL: &[&str] = &["closed: closed by us", "close"];
const LATE: &[&str] = &[
    "closed: websocket upgrade timed out after 15000 ms",
    "close",
];
const EARLY_END: &[&str] = &[
    "closed: connection dropped before the websocket upgrade",
    "close",
];
const DROPPED: &[&str] = &["closed: connection dropped", "close"];
const FAULT: &[&str] = &["closed: h:80 refused"];
const PEER: &[&str] = &["closed: closed by the peer with code 1000", "close"];
const NOT_FOUND: &[&str] = &[
    "closed: upgrade was answered with HTTP status 404: no",
    "close",
];
const ANSWERED: &[&str] = &["flush", "close write"];

#[rustfmt::skip]
const TABLE: &[Row] = &[
    ("Opening", "`Opened`", "Upgrading", opening, |r| r.hear(IoEvent::Opened), &["flush"]),
    ("Opening", "`Failed`", "Closed", opening, Rig::fault, FAULT),
    ("Opening", "`close`", "Closed", opening, Rig::close, LOCAL),
    ("Opening", "deadline", "Closed", opening, |r| r.tick(15_000),
        &["closed: connecting timed out after 15000 ms", "close"]),
    ("Upgrading", "part of an answer", "Upgrading", upgrading, |r| r.bytes(b"HTTP/1.1 1"), &[]),
    ("Upgrading", "interim answer (1xx)", "Upgrading", upgrading,
        |r| r.bytes(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"), &[]),
    ("Upgrading", "good 101", "Open", upgrading,
        |r| r.bytes(&[&r.answer()[..], b"\x81\x01A"].concat()), &["up", "text A"]),
    ("Upgrading", "good 101", "Open", upgrading,
        |r| r.bytes(&[b"HTTP/1.1 100 \r\n\r\n", &r.answer()[..]].concat()), &["up"]),
    ("Upgrading", "bad 101", "Closed", upgrading, |r| r.bytes(b"HTTP/1.1 101 Yes\r\n\r\n"),
        &["closed: upgrade was answered with a wrong or missing Upgrade", "close"]),
    ("Upgrading", "not HTTP", "Closed", upgrading, |r| r.bytes(b"SSH-2.0-x\r\n"),
        &["closed: upgrade was not answered properly: not HTTP/1.1", "close"]),
    ("Upgrading", "other answer", "Refused", upgrading,
        |r| r.bytes(b"HTTP/1.1 404 Not Found\r\n\r\nno"), &[]),
    ("Upgrading", "end or fault", "Closed", upgrading, |r| r.hear(IoEvent::Eof), EARLY_END),
    ("Upgrading", "end or fault", "Closed", upgrading, |r| r.hear(IoEvent::WriteClosed),
        EARLY_END),
    ("Upgrading", "end or fault", "Closed", upgrading, Rig::fault, FAULT),
    ("Upgrading", "`close`", "Closed", upgrading, Rig::close, LOCAL),
    ("Upgrading", "deadline", "Closed", upgrading, |r| r.tick(15_000), LATE),
    ("Refused", "part of a body", "Refused", refused, |r| r.bytes(b"no"), &[]),
    ("Refused", "enough of a body", "Closed", refused, |r| r.bytes(b"no      HTTP/1.1"),
        NOT_FOUND),
    ("Refused", "end, fault or deadline", "Closed", refused,
        |r| { r.bytes(b"no"); r.hear(IoEvent::Eof); }, NOT_FOUND),
    ("Refused", "end, fault or deadline", "Closed", refused,
        |r| { r.bytes(b"no"); r.tick(1_010); }, NOT_FOUND),
    ("Refused", "end, fault or deadline", "Closed", refused,
        |r| { r.bytes(b"no"); r.fault(); }, &[NOT_FOUND[0]]),
    ("Refused", "`close`", "Closed", refused, Rig::close, LOCAL),
    ("Accepting", "part of a request", "Accepting", accepting, |r| r.bytes(&REQUEST[..50]), &[]),
    ("Accepting", "good request", "Open", accepting, |r| r.bytes(REQUEST), &["up", "flush"]),
    ("Accepting", "bad request", "Leaving", accepting, |r| r.bytes(b"\x16\x03\x01"), ANSWERED),
    ("Accepting", "bad request", "Leaving", accepting,
        |r| r.bytes(b"POST / HTTP/1.1\r\nHost: h\r\n\r\n"), ANSWERED),
    ("Accepting", "end or fault", "Closed", accepting, |r| r.hear(IoEvent::Eof), EARLY_END),
    ("Accepting", "end or fault", "Closed", accepting, Rig::fault, FAULT),
    ("Accepting", "`close`", "Closed", accepting, Rig::close, LOCAL),
    ("Accepting", "deadline", "Closed", accepting, |r| r.tick(15_000), LATE),
    ("Open", "text message", "Open", open, |r| r.bytes(b"\x81\x01A\x81\x01B"),
        &["text A", "text B"]),
    ("Open", "ping", "Open", open, |r| r.bytes(b"\x89\x00"), &["flush"]),
    ("Open", "close frame", "Leaving", open, |r| r.bytes(b"\x81\x01A\x88\x02\x03\xe8"),
        &["text A", "flush", "close write"]),
    ("Open", "bad frame", "Leaving", open, |r| r.bytes(b"\x81\x01A\x83\x00"),
        &["text A", "flush", "close write"]),
    ("Open", "`close`", "Closing", open, Rig::close, &["flush"]),
    ("Open", "end or fault", "Closed", open, |r| r.hear(IoEvent::Eof), DROPPED),
    ("Open", "end or fault", "Closed", open, |r| r.hear(IoEvent::WriteClosed), DROPPED),
    ("Open", "end or fault", "Closed", open, Rig::fault, FAULT),
    ("Closing", "text message", "Closing", closing, |r| r.bytes(b"\x81\x01A"), &[]),
    ("Closing", "close frame, ours has left", "Closed", closing,
        |r| r.bytes(b"\x81\x01A\x88\x02\x03\xe8"), LOCAL),
    ("Closing", "close frame, ours waits", "Leaving", closing_unread,
        |r| r.bytes(b"\x88\x02\x03\xe8"), &["close write"]),
    ("Closing", "bad frame", "Closed", closing, |r| r.bytes(b"\x83\x00"), LOCAL),
    ("Closing", "end, fault or deadline", "Closed", closing, |r| r.hear(IoEvent::Eof), LOCAL),
    ("Closing", "end, fault or deadline", "Closed", closing, Rig::fault, &[LOCAL[0]]),
    ("Closing", "end, fault or deadline", "Closed", closing_unread, |r| r.tick(1_010), LOCAL),
    ("Closing", "end, fault or deadline", "Closed", closing, |r| r.tick(1_010), LOCAL),
    ("Leaving", "bytes", "Leaving", leaving, |r| r.bytes(b"\x81\x01A"), &[]),
    ("Leaving", "end, bytes of ours wait", "Leaving", leaving_unread, |r| r.hear(IoEvent::Eof),
        &[]),
    ("Leaving", "end, fault or deadline", "Closed", leaving_unread,
        |r| { r.hear(IoEvent::Eof); r.link.outgoing().clear(); r.hear(IoEvent::Drained); }, PEER),
    ("Leaving", "end, fault or deadline", "Closed", leaving_unread,
        |r| r.hear(IoEvent::WriteClosed), PEER),
    ("Leaving", "end, fault or deadline", "Closed", leaving, |r| r.hear(IoEvent::Eof), PEER),
    ("Leaving", "end, fault or deadline", "Closed", leaving, Rig::fault, &[PEER[0]]),
    ("Leaving", "end, fault or deadline", "Closed", leaving, |r| r.tick(1_010), PEER),
    ("any but Closed", "`abort`", "Closed", opening, abort, LOCAL),
    ("any but Closed", "`abort`", "Closed", upgrading, abort, LOCAL),
    ("any but Closed", "`abort`", "Closed", refused, abort, LOCAL),
    ("any but Closed", "`abort`", "Closed", accepting, abort, LOCAL),
    ("any but Closed", "`abort`", "Closed", open, abort, LOCAL),
    ("any but Closed", "`abort`", "Closed", closing, abort, LOCAL),
    ("any but Closed", "`abort`", "Closed", leaving, abort, LOCAL),
    ("Closed", "anything", "Closed", closed, everything, &[]),
];

fn abort(rig: &mut Rig) {
    rig.link.abort();
    rig.drain();
}

fn everything(rig: &mut Rig) {
    rig.hear(IoEvent::Opened);
    rig.bytes(b"\x81\x01A");
    rig.hear(IoEvent::Drained);
    rig.hear(IoEvent::WriteClosed);
    rig.hear(IoEvent::Eof);
    rig.fault();
    rig.tick(1_000_000);
    rig.close();
    rig.link.ping();
    assert_eq!(rig.link.send_text("late"), Ok(()));
    abort(rig);
    assert!(rig.link.outgoing().is_empty());
}

#[test]
fn the_table_is_what_happens() {
    for (state, input, next, start, act, output) in TABLE {
        let mut rig = start();
        if *state != "any but Closed" {
            assert_eq!(rig.state(), *state, "the start of {state} | {input}");
        }
        act(&mut rig);
        assert_eq!(rig.log, *output, "{state} | {input}");
        assert_eq!(rig.state(), *next, "{state} | {input}");
        if *next == "Closed" {
            assert!(rig.link.outgoing().is_empty(), "{state} | {input}");
        }
        let waits = rig.link.next_deadline().is_some();
        assert_eq!(
            waits,
            !["Open", "Closed"].contains(next),
            "{state} | {input}"
        );
    }
}

#[test]
fn the_table_walked_is_the_table_documented() {
    let documented: BTreeSet<Vec<&str>> = include_str!("../websocket.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! | "))
        .map(|row| row.split('|').map(str::trim).take(3).collect())
        .filter(|row: &Vec<&str>| row[0] != "state")
        .collect();
    let walked = TABLE
        .iter()
        .map(|(state, input, next, ..)| vec![*state, *input, *next])
        .collect();
    assert_eq!(documented, walked);
}

/// The loop drains between inputs; should it not, nothing is lost and the order is kept.
#[test]
fn what_arrived_is_told_before_the_end() {
    for end in [IoEvent::Eof, IoEvent::WriteClosed] {
        let mut rig = open();
        rig.link
            .handle_io(at(10), IoEvent::Bytes(b"\x81\x01A\x81\x01B"));
        rig.hear(end);
        assert_eq!(rig.log[..2], ["text A", "text B"]);
        assert_eq!(rig.log[2..], *DROPPED);
    }
    let mut rig = open();
    rig.link
        .handle_io(at(10), IoEvent::Bytes(b"\x81\x01A\x88\x02\x03\xe8"));
    rig.fault();
    assert_eq!(rig.log, ["text A", PEER[0]]);
}

#[test]
fn limits_of_time_hold_to_the_millisecond() {
    let starts: [(fn() -> Rig, u64); 6] = [
        (opening, 15_000),
        (upgrading, 15_000),
        (accepting, 15_000),
        (refused, 1_010),
        (closing, 1_010),
        (leaving, 1_010),
    ];
    for (start, due) in starts {
        let mut rig = start();
        let deadline = rig.link.next_deadline().expect("a deadline");
        assert_eq!(deadline.at, Uptime::from_millis(due), "{}", rig.state());
        rig.tick(due - 1);
        assert_eq!(rig.log, [""; 0], "{} ended early", rig.state());
        rig.tick(due);
        assert_eq!(rig.state(), "Closed");
        rig.tick(due);
        assert_eq!(rig.log.len(), 2, "closed once: {:?}", rig.log);
    }
}

#[test]
fn a_wire_that_was_not_asked_for_yet_is_not_closed() {
    let mut rig = client(spec());
    abort(&mut rig);
    assert_eq!(rig.log, ["closed: closed by us"]);

    let path = "/a b".to_owned();
    let mut rig = client(ConnectSpec { path, ..spec() });
    rig.drain();
    let why = "closed: cannot ask h: start line holds a byte that HTTP does not allow";
    assert_eq!(rig.log, [why]);
    assert_eq!(rig.link.next_deadline(), None);
}

#[test]
fn a_peer_that_does_not_read_fills_the_buffer_to_its_limit() {
    let mut rig = open();
    rig.reading = false;
    let text = |len: usize| "x".repeat(len - FRAME_HEAD_BYTES_MAX);
    let full = |value| Full { limit: 100, value };
    assert_eq!(rig.link.send_text(&text(101)), Err(full(101)));
    assert!(rig.link.outgoing().is_empty());
    assert_eq!(rig.link.send_text(&text(100)), Ok(()));
    let waiting = rig.link.outgoing().len();
    let value = waiting + FRAME_HEAD_BYTES_MAX;
    assert_eq!(rig.link.send_text(""), Err(full(value)));
    assert_eq!(rig.link.outgoing().len(), waiting);
    let words = format!("peer is not reading: {value} bytes queued, limit 100");
    assert_eq!(full(value).to_string(), words);
}

#[test]
fn a_pong_that_was_held_back_leaves_when_there_is_room() {
    let mut rig = open();
    rig.reading = false;
    rig.link.outgoing().tail().resize(70_000, 0);
    rig.bytes(b"\x89\x01A");
    assert_eq!(rig.log, [""; 0], "no room, no pong");
    rig.link.outgoing().clear();
    rig.hear(IoEvent::Drained);
    assert_eq!(rig.log, ["flush"]);
    assert_eq!(rig.link.outgoing().len(), 2 + 4 + 1);
}

#[test]
fn refusals_show_the_start_of_their_body() {
    let told = |answer: &[u8]| {
        let mut rig = upgrading();
        rig.bytes(answer);
        rig.hear(IoEvent::Eof);
        let shown = rig.log[0].strip_prefix("closed: upgrade was answered with HTTP status ");
        shown.expect("a refusal").to_owned()
    };
    let chunked = |body: &str| {
        let head = "HTTP/1.1 502 Bad\r\nTransfer-Encoding: chunked\r\n\r\n";
        told(format!("{head}{body}").as_bytes())
    };
    assert_eq!(told(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"), "401");
    assert_eq!(told(b"HTTP/1.1 301 Moved\r\nLocation: /x\r\n\r\n"), "301");
    assert_eq!(chunked("3\r\nbad\r\n0\r\n\r\n"), "502: bad");
    assert_eq!(chunked("3"), "502");
    assert_eq!(chunked("x\r\nbad"), "502: bad");
    assert_eq!(
        told(b"HTTP/1.1 503 Busy\r\n\r\n\x1b[2J\xff"),
        "503: \\u{1b}[2J\u{fffd}"
    );

    let mut rig = upgrading();
    rig.bytes(b"HTTP/1.1 500 Bad\r\n\r\n");
    rig.bytes(&[b'x'; REFUSAL_BODY_BYTES_MAX - 1]);
    assert_eq!(rig.state(), "Refused");
    rig.bytes(b"xyz");
    assert_eq!(rig.state(), "Closed");
}

#[test]
fn close_codes_are_told_as_an_application_sees_them() {
    let peer = |code, reason: &str| CloseReason::Peer {
        code,
        reason: reason.to_owned(),
    };
    assert_eq!(peer(Some(1012), "").code(), Some(1012));
    assert_eq!(peer(None, "").code(), Some(1005));
    assert_eq!(peer(None, "").to_string(), "closed by the peer");
    assert_eq!(dropped("connection dropped").code(), Some(1006));
    assert_eq!(CloseReason::Local.code(), None);
    let loud = peer(Some(1008), "\u{1b}[2J").to_string();
    assert_eq!(loud, "closed by the peer with code 1008: \\u{1b}[2J");
}
