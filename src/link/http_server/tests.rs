//! The state table of the module, walked row by row.

mod answers;
mod limits;
mod time;

use std::collections::BTreeSet;

use super::*;
use crate::clock::Uptime;
use crate::link::{FaultKind, IoFault};

const WIRE: WireId = WireId(7);

fn at(ms: u64) -> Now {
    Now {
        up: Uptime::from_millis(ms),
        unix_ms: 784_111_777_000,
    }
}

/// A connection, what it asked and told, and what it sent.
struct Rig {
    connection: HttpConnection,
    now: u64,
    log: Vec<String>,
    sent: Vec<u8>,
    /// Whether flushed bytes leave.
    reading: bool,
}

impl Rig {
    fn with(limits: &Limits) -> Self {
        Self {
            connection: HttpConnection::new(WIRE, limits, at(0)),
            now: 0,
            log: Vec::new(),
            sent: Vec::new(),
            reading: true,
        }
    }

    fn new() -> Self {
        Self::with(&limits())
    }

    /// What the loop does after every input.
    fn drain(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            self.log.push(match event {
                HttpEvent::Head { exchange, head } => {
                    format!("{exchange} head {} {}", head.method(), head.target())
                }
                HttpEvent::Body { exchange, body } => {
                    format!("{exchange} body {}", String::from_utf8_lossy(&body))
                }
                HttpEvent::Gone { exchange } => format!("{exchange} gone"),
                HttpEvent::Closed => "closed".to_owned(),
            });
        }
        let mut flush = false;
        while let Some(request) = self.connection.poll_io() {
            self.log.push(match request {
                IoRequest::Flush(wire) => {
                    assert_eq!(wire, WIRE);
                    flush = true;
                    continue;
                }
                IoRequest::PauseReads(_, true) => "pause".to_owned(),
                IoRequest::PauseReads(_, false) => "resume".to_owned(),
                IoRequest::Finish(_) => "finish".to_owned(),
                IoRequest::Close(_) => "close".to_owned(),
                other @ (IoRequest::Open(..)
                | IoRequest::CloseWrite(_)
                | IoRequest::Signal(..)
                | IoRequest::Append(_)) => panic!("asked for {other:?}"),
            });
        }
        let due = self.connection.next_deadline();
        assert!(due.is_none_or(|due| due.at > at(self.now).up), "{due:?}");
        let pending = !self.connection.outgoing().is_empty();
        assert!(flush || !pending || !self.reading, "nobody asked to flush");
        if self.reading && pending {
            let pending = self.connection.outgoing().pending();
            self.sent.extend_from_slice(pending);
            self.connection.outgoing().clear();
            self.connection.handle_io(at(self.now), IoEvent::Drained);
            self.drain();
        }
    }

    fn hear(&mut self, event: IoEvent<'_>) {
        self.connection.handle_io(at(self.now), event);
        self.drain();
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.hear(IoEvent::Bytes(bytes));
    }

    fn end(&mut self) {
        self.hear(IoEvent::Eof);
    }

    /// Everything that waits leaves.
    fn let_leave(&mut self) {
        self.connection.outgoing().clear();
        self.hear(IoEvent::Drained);
    }

    fn fault(&mut self) {
        self.hear(IoEvent::Failed(IoFault {
            kind: FaultKind::Broken,
            message: "reset".to_owned(),
        }));
    }

    fn tick(&mut self, ms: u64) {
        self.now = ms;
        self.connection.handle_timeout(at(ms));
        self.drain();
    }

    fn accept(&mut self, exchange: u32) {
        self.connection.accept(at(self.now), ExchangeId(exchange));
        self.drain();
    }

    fn answer(&mut self, exchange: u32) {
        let now = at(self.now);
        self.connection
            .respond(now, ExchangeId(exchange), 202, &[], b"");
        self.drain();
    }

    fn stream(&mut self, exchange: u32) {
        let now = at(self.now);
        self.connection.start_sse(now, ExchangeId(exchange), &[]);
        self.drain();
    }

    fn close_after(&mut self) {
        self.connection.close_after();
        self.drain();
    }

    fn abort(&mut self) {
        self.connection.abort();
        self.drain();
    }

    fn state(&self) -> &'static str {
        match self.connection.phase {
            Phase::Head => "Head",
            Phase::Deciding(_) => "Deciding",
            Phase::Body(_) => "Body",
            Phase::Done => "Done",
            Phase::Leaving => "Leaving",
            Phase::Closed => "Closed",
        }
    }

    /// The status lines sent, or about to be.
    fn statuses(&mut self) -> Vec<String> {
        let mut all = self.sent.clone();
        all.extend_from_slice(self.connection.outgoing().pending());
        let text = String::from_utf8_lossy(&all);
        let lines = text.split("HTTP/1.1 ").skip(1);
        lines.map(|line| line[..3].to_owned()).collect()
    }

    fn sent(&self) -> String {
        String::from_utf8_lossy(&self.sent).into_owned()
    }

    fn forget(mut self) -> Self {
        self.log.clear();
        self.sent.clear();
        self
    }
}

fn limits() -> Limits {
    Limits {
        message_bytes_max: 100,
        ..Limits::default()
    }
}

const GET: &[u8] = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n";
const LAST_GET: &[u8] = b"GET /b HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
const POST: &[u8] = b"POST /c HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n";
const LAST_POST: &[u8] =
    b"POST /d HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 4\r\n\r\n";
const CHUNKED: &[u8] = b"POST /e HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";

fn rig(bytes: &[u8], accepted: u32) -> Rig {
    let mut rig = Rig::new();
    for request in bytes.split_inclusive(|b| *b == b'|') {
        rig.bytes(request.strip_suffix(b"|").unwrap_or(request));
    }
    for exchange in 0..accepted {
        rig.accept(exchange);
    }
    rig.forget()
}

fn head() -> Rig {
    Rig::new()
}

/// One answer is open.
fn waiting() -> Rig {
    rig(GET, 1)
}

fn deciding_get() -> Rig {
    rig(GET, 0)
}

fn deciding_last_get() -> Rig {
    rig(LAST_GET, 0)
}

fn deciding_post() -> Rig {
    rig(POST, 0)
}

fn body() -> Rig {
    rig(POST, 1)
}

fn last_body() -> Rig {
    rig(LAST_POST, 1)
}

fn chunked() -> Rig {
    rig(CHUNKED, 1)
}

fn done() -> Rig {
    rig(LAST_GET, 1)
}

fn leaving() -> Rig {
    let mut rig = done();
    rig.reading = false;
    rig.answer(0);
    rig.forget()
}

fn closed() -> Rig {
    let mut rig = head();
    rig.end();
    rig.forget()
}

/// One transition: state, input and next state as in the module's table, how to get there, what to
/// do, what is asked and told then, and the statuses sent.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    fn() -> Rig,
    fn(&mut Rig),
    &'static [&'static str],
    &'static [&'static str],
);

/// The connection ended in good order; a request could not be read before; the wire is no good.
const FINISHED: &[&str] = &["closed", "finish"];
const FAILED: &[&str] = &["0 gone", "closed", "finish"];
const CLOSED: &[&str] = &["closed", "close"];
const GONE: &[&str] = &["0 gone", "closed", "close"];

#[rustfmt::skip]
const TABLE: &[Row] = &[
    ("Head", "part of a head", "Head", head, |r| r.bytes(b"GET / HT"), &[], &[]),
    ("Head", "a head", "Deciding", head, |r| r.bytes(GET), &["0 head GET /a"], &[]),
    ("Head", "a head", "Deciding", waiting, |r| r.bytes(POST), &["1 head POST /c"], &[]),
    ("Head", "a bad head", "Leaving", head, |r| r.bytes(b"\x16\x03\x01"), &[], &["400"]),
    ("Head", "a bad head", "Leaving", head, |r| r.bytes(b"GET / HTTP/1.1\r\n\r\n"), &[],
        &["400"]),
    ("Head", "a bad head", "Leaving", head,
        |r| r.bytes(b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n"), &[], &["413"]),
    ("Head", "a bad head behind open answers", "Done", waiting, |r| r.bytes(b"\0"), &[], &[]),
    ("Head", "a late head", "Leaving", head, |r| { r.bytes(b"G"); r.tick(10_000); }, &[],
        &["408"]),
    ("Head", "no head in time", "Closed", head, |r| r.tick(10_000), CLOSED, &[]),
    ("Head", "end, amid a head", "Leaving", head, |r| { r.bytes(b"G"); r.end(); }, &[], &["400"]),
    ("Head", "end, answers are open", "Done", waiting, Rig::end, &[], &[]),
    ("Head", "end, an answer is leaving", "Leaving", waiting, |r| { r.answer(0); r.end(); }, &[],
        &["202"]),
    ("Head", "end", "Closed", head, Rig::end, CLOSED, &[]),
    ("Head", "`close_after`", "Closed", head, Rig::close_after, FINISHED, &[]),
    ("Head", "`close_after`, open answers", "Done", waiting, Rig::close_after, &[], &[]),
    ("Deciding", "`accept`, a body", "Body", deciding_post, |r| r.accept(0), &[], &[]),
    ("Deciding", "`accept`, no body", "Head", deciding_get, |r| r.accept(0), &["0 body "], &[]),
    ("Deciding", "`accept`, no body, last", "Done", deciding_last_get, |r| r.accept(0),
        &["0 body "], &[]),
    ("Deciding", "answer, a body", "Leaving", deciding_post, |r| r.answer(0), &[], &["202"]),
    ("Deciding", "answer, no body", "Head", deciding_get, |r| r.answer(0), &[], &["202"]),
    ("Deciding", "answer, no body, last", "Leaving", deciding_last_get, |r| r.answer(0), &[],
        &["202"]),
    ("Deciding", "stream, a body", "Done", deciding_post, |r| r.stream(0), &[], &["200"]),
    ("Deciding", "bytes", "Deciding", deciding_post, |r| r.bytes(b"x"), &["pause"], &[]),
    ("Deciding", "end", "Deciding", deciding_post, Rig::end, &[], &[]),
    ("Body", "content", "Body", body, |r| r.bytes(b"abc"), &[], &[]),
    ("Body", "end of the body", "Head", body, |r| r.bytes(b"abcd"), &["0 body abcd"], &[]),
    ("Body", "end of the body", "Head", chunked, |r| r.bytes(b"1\r\na\r\n0\r\n\r\n"),
        &["0 body a"], &[]),
    ("Body", "end of the body, last", "Done", last_body, |r| r.bytes(b"abcd"), &["0 body abcd"],
        &[]),
    ("Body", "a bad, long, cut or late body", "Leaving", chunked, |r| r.bytes(b"x"), &["0 gone"],
        &["400"]),
    ("Body", "a bad, long, cut or late body", "Leaving", chunked, |r| r.bytes(b"65\r\n"),
        &["0 gone"], &["413"]),
    ("Body", "a bad, long, cut or late body", "Leaving", body,
        |r| { r.bytes(b"a"); r.end(); }, &["0 gone"], &["400"]),
    ("Body", "a bad, long, cut or late body", "Leaving", body, |r| r.tick(30_000), &["0 gone"],
        &["408"]),
    ("Body", "answer", "Leaving", body, |r| r.answer(0), &[], &["202"]),
    ("Done", "bytes", "Done", done, |r| r.bytes(GET), &[], &[]),
    ("Done", "end", "Done", done, |r| { r.end(); r.tick(10); }, &[], &["100"]),
    ("Done", "last answer", "Leaving", done, |r| r.answer(0), &[], &["202"]),
    ("Leaving", "bytes", "Leaving", leaving, |r| r.bytes(GET), &[], &["202"]),
    ("Leaving", "end", "Leaving", leaving, Rig::end, &[], &["202"]),
    ("Leaving", "all has left", "Closed", leaving, Rig::let_leave, FINISHED, &[]),
    ("any but Closed", "the client takes no more", "Closed", head,
        |r| r.hear(IoEvent::WriteClosed), CLOSED, &[]),
    ("any but Closed", "the client takes no more", "Closed", waiting,
        |r| r.hear(IoEvent::WriteClosed), GONE, &[]),
    ("any but Closed", "the client takes no more", "Closed", deciding_post,
        |r| r.hear(IoEvent::WriteClosed), GONE, &[]),
    ("any but Closed", "the client takes no more", "Closed", body,
        |r| r.hear(IoEvent::WriteClosed), GONE, &[]),
    ("any but Closed", "the client takes no more", "Closed", done,
        |r| r.hear(IoEvent::WriteClosed), GONE, &[]),
    ("any but Closed", "the client takes no more", "Closed", leaving,
        |r| r.hear(IoEvent::WriteClosed), CLOSED, &[]),
    ("any but Closed", "nothing leaves for too long", "Closed", leaving, |r| r.tick(30_000),
        CLOSED, &[]),
    ("any but Closed", "nothing leaves for too long", "Closed", waiting,
        |r| { r.stream(0); r.tick(30_000); }, GONE, &[]),
    ("any but Closed", "`Failed`", "Closed", head, Rig::fault, &["closed"], &[]),
    ("any but Closed", "`Failed`", "Closed", body, Rig::fault, &["0 gone", "closed"], &[]),
    ("any but Closed", "`Failed`", "Closed", done, Rig::fault, &["0 gone", "closed"], &[]),
    ("any but Closed", "`Failed`", "Closed", leaving, Rig::fault, &["closed"], &[]),
    ("any but Closed", "`abort`", "Closed", head, Rig::abort, CLOSED, &[]),
    ("any but Closed", "`abort`", "Closed", waiting, Rig::abort, GONE, &[]),
    ("any but Closed", "`abort`", "Closed", leaving, Rig::abort, CLOSED, &[]),
    ("Closed", "anything", "Closed", closed, everything, &[], &[]),
];

fn everything(rig: &mut Rig) {
    rig.hear(IoEvent::Opened);
    rig.bytes(POST);
    rig.hear(IoEvent::Drained);
    rig.hear(IoEvent::WriteClosed);
    rig.end();
    rig.fault();
    rig.tick(1_000_000);
    rig.accept(0);
    rig.answer(0);
    rig.stream(0);
    rig.close_after();
    rig.abort();
    assert!(rig.connection.outgoing().is_empty());
    assert!(rig.connection.is_closed());
}

#[test]
fn the_table_is_what_happens() {
    for (state, input, next, start, act, output, statuses) in TABLE {
        let mut rig = start();
        rig.reading = false;
        if *state != "any but Closed" {
            assert_eq!(rig.state(), *state, "the start of {state} | {input}");
        }
        act(&mut rig);
        assert_eq!(rig.log, *output, "{state} | {input}");
        assert_eq!(rig.statuses(), *statuses, "{state} | {input}");
        assert_eq!(rig.state(), *next, "{state} | {input}");
        if *next == "Closed" {
            assert!(rig.connection.outgoing().is_empty(), "{state} | {input}");
            assert_eq!(rig.connection.next_deadline(), None, "{state} | {input}");
        }
    }
}

#[test]
fn the_table_walked_is_the_table_documented() {
    let documented: BTreeSet<Vec<&str>> = include_str!("../http_server.rs")
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
