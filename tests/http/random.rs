//! Seeded clients and owners: requests of all kinds, cut anywhere, answered in any order and manner, by
//! fits and starts. Whatever happens, answers leave in order, once, whole, and nobody is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use drawspan::clock::{Now, Uptime};
use drawspan::entropy::Seeded;
use drawspan::ids::WireId;
use drawspan::limits::Limits;
use drawspan::link::http_server::{ExchangeId, HttpConnection, HttpEvent};
use drawspan::link::{IoEvent, IoRequest};

use crate::player::answers;

/// How far an owner is with an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Told,
    Accepted,
    Whole,
    Streaming,
}

struct Sim {
    random: Seeded,
    connection: HttpConnection,
    now: u64,
    open: BTreeMap<ExchangeId, (Stage, String)>,
    /// The targets that were answered, by exchange.
    answered: BTreeMap<ExchangeId, String>,
    gone: BTreeSet<ExchangeId>,
    told: Vec<ExchangeId>,
    output: Vec<u8>,
    closed: bool,
    wire_gone: bool,
}

impl Sim {
    fn new(seed: u64) -> Self {
        let limits = Limits {
            pipelined_requests_max: 4,
            message_bytes_max: 2_000,
            out_high_bytes: 600,
            out_low_bytes: 200,
            ..Limits::DEFAULT
        };
        Self {
            random: Seeded::new(seed),
            connection: HttpConnection::new(WireId(1), &limits, at(0)),
            now: 0,
            open: BTreeMap::new(),
            answered: BTreeMap::new(),
            gone: BTreeSet::new(),
            told: Vec::new(),
            output: Vec::new(),
            closed: false,
            wire_gone: false,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.random.below(n as u64)).expect("small")
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// Requests, most of them good, numbered by their targets.
    fn stream(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 0..1 + self.below(12) {
            let version = if self.one_in(10) { "1.0" } else { "1.1" };
            let body = "b".repeat(self.below(40) * self.below(40));
            let close = [
                "Connection: close\r\n",
                "Connection: keep-alive\r\n",
                "",
                "",
            ];
            let close = close[if self.one_in(6) { self.below(2) } else { 2 }];
            let expect = if self.one_in(8) {
                "Expect: 100-continue\r\n"
            } else {
                ""
            };
            let head = format!("POST /{number} HTTP/{version}\r\nHost: h\r\n{close}{expect}");
            let request = match self.below(if version == "1.0" { 2 } else { 3 }) {
                0 => format!("{head}\r\n"),
                1 => format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()),
                _ => {
                    let mut request = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
                    let size = 1 + self.below(300);
                    for chunk in body.as_bytes().chunks(size) {
                        let chunk = String::from_utf8_lossy(chunk);
                        request.push_str(&format!("{:x};e\r\n{chunk}\r\n", chunk.len()));
                    }
                    request + "0\r\n\r\n"
                }
            };
            bytes.extend_from_slice(request.as_bytes());
        }
        if self.one_in(5) {
            let place = self.below(bytes.len());
            bytes[place] = [0, b'\n', b'\r', b' ', b':', b'0', 0xff][self.below(7)];
        }
        if self.one_in(5) {
            bytes.truncate(self.below(bytes.len()));
        }
        bytes
    }

    fn drain(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            assert!(!self.closed, "{event:?} behind the last event");
            match event {
                HttpEvent::Head { exchange, head } => {
                    assert!(self.told.last().is_none_or(|last| *last < exchange));
                    self.told.push(exchange);
                    self.open
                        .insert(exchange, (Stage::Told, head.target().to_owned()));
                    if self.one_in(2) {
                        self.connection.recycle_head(head);
                    }
                }
                HttpEvent::Body { exchange, body } => {
                    assert!(body.len() <= 2_000);
                    let (stage, _) = self.open.get_mut(&exchange).expect("it was accepted");
                    assert_eq!(*stage, Stage::Accepted);
                    *stage = Stage::Whole;
                    if self.one_in(2) {
                        self.connection.recycle(body);
                    }
                }
                HttpEvent::Gone { exchange } => {
                    assert!(self.open.remove(&exchange).is_some(), "it was open");
                    assert!(self.gone.insert(exchange));
                }
                HttpEvent::Closed => self.closed = true,
            }
        }
        while let Some(request) = self.connection.poll_io() {
            match request {
                IoRequest::Finish(_) | IoRequest::Close(_) => self.wire_gone = true,
                IoRequest::Flush(_) | IoRequest::PauseReads(..) => {}
                IoRequest::Open(..)
                | IoRequest::CloseWrite(_)
                | IoRequest::Signal(..)
                | IoRequest::Append(_) => panic!("asked for {request:?}"),
            }
        }
        let due = self.connection.next_deadline();
        assert!(due.is_none_or(|due| due.at > at(self.now).up), "{due:?}");
    }

    /// Something leaves, or all of it.
    fn send(&mut self, all: bool) {
        let pending = self.connection.outgoing().len();
        if pending == 0 {
            return;
        }
        let n = if all {
            pending
        } else {
            1 + self.below(pending)
        };
        let out = self.connection.outgoing();
        self.output.extend_from_slice(&out.pending()[..n]);
        out.advance(n);
        if n == pending {
            self.connection.handle_io(at(self.now), IoEvent::Drained);
        }
        self.drain();
    }

    /// The owner does something with one of its exchanges.
    fn act(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let place = self.below(self.open.len());
        let (exchange, (stage, target)) = self.open.iter().nth(place).expect("one of them");
        let (exchange, stage, target) = (*exchange, *stage, target.clone());
        let now = at(self.now);
        match (stage, self.below(6)) {
            (Stage::Told, 1..) => {
                self.connection.accept(now, exchange);
                if let Some((stage, _)) = self.open.get_mut(&exchange) {
                    *stage = Stage::Accepted;
                }
            }
            (Stage::Accepted, 1..) => {}
            (Stage::Streaming, 0..3) => {
                let event = self.connection.begin_event(exchange, Some("message"), None);
                event.extend_from_slice(target.as_bytes());
                self.connection.commit_event(now, exchange);
                self.connection.finish_sse(now, exchange);
                self.end(exchange, target);
            }
            (Stage::Streaming, _) => self.connection.sse_comment(now, exchange, b"alive"),
            (Stage::Whole, 0) => {
                self.connection
                    .begin_json(exchange, &[])
                    .extend_from_slice(b"forgotten");
            }
            (Stage::Whole, 1) => {
                self.connection.start_sse(now, exchange, &[]);
                self.open.insert(exchange, (Stage::Streaming, target));
            }
            (Stage::Whole, 2..4) => {
                let answer = self.connection.begin_json(exchange, &[]);
                answer.extend_from_slice(target.as_bytes());
                self.connection.commit_json(now, exchange);
                self.end(exchange, target);
            }
            (Stage::Told | Stage::Accepted | Stage::Whole, _) => {
                self.connection
                    .respond(now, exchange, 200, &[], target.as_bytes());
                self.end(exchange, target);
            }
        }
        self.drain();
    }

    fn end(&mut self, exchange: ExchangeId, target: String) {
        self.open.remove(&exchange);
        self.answered.insert(exchange, target);
    }

    fn run(mut self) {
        let stream = self.stream();
        let mut rest = stream.as_slice();
        let mut steps = 0;
        while !rest.is_empty() && !self.closed {
            steps += 1;
            match self.below(4) {
                0 => {
                    let most = [3, 60, 5_000][self.below(3)];
                    let (piece, after) = rest.split_at((1 + self.below(most)).min(rest.len()));
                    rest = after;
                    self.connection
                        .handle_io(at(self.now), IoEvent::Bytes(piece));
                    self.drain();
                }
                1 => self.act(),
                2 => {
                    let all = self.one_in(2);
                    self.send(all);
                }
                _ if self.one_in(3) => {
                    self.now += self.random.below(300);
                    self.connection.handle_timeout(at(self.now));
                    self.drain();
                }
                _ => {}
            }
            assert!(steps < 100_000, "no progress");
        }
        let broken = self.one_in(8);
        self.connection.handle_io(
            at(self.now),
            if broken {
                IoEvent::WriteClosed
            } else {
                IoEvent::Eof
            },
        );
        self.drain();
        for _ in 0..10_000 {
            if self.closed {
                break;
            }
            self.act();
            self.send(true);
        }
        assert!(
            self.closed && self.wire_gone,
            "all is answered, so the end has come"
        );
        assert!(self.open.is_empty(), "{:?} are forgotten", self.open);
        let told: BTreeSet<_> = self.told.iter().copied().collect();
        let answered: BTreeSet<_> = self.answered.keys().copied().collect();
        assert!(answered.is_disjoint(&self.gone));
        assert_eq!(told, &answered | &self.gone);
        if broken {
            return;
        }
        // What left is the answers in order, and at the end perhaps a refusal.
        let mut left = answers(&self.output, &[]);
        left.retain(|(status, _)| *status != 100);
        let expected: Vec<&String> = self.answered.values().collect();
        let refused = left.len() > expected.len();
        assert!(left.len() <= expected.len() + 1);
        for ((status, body), target) in left.iter().zip(&expected) {
            assert_eq!((*status, body), (200, *target));
        }
        assert_eq!(left.len() - usize::from(refused), expected.len());
        assert!(!refused || left.last().is_some_and(|(status, _)| *status >= 400));
        assert!(
            refused || self.gone.is_empty(),
            "only a fault takes an exchange away"
        );
    }
}

fn at(ms: u64) -> Now {
    Now {
        up: Uptime::from_millis(ms),
        unix_ms: 784_111_777_000,
    }
}

#[test]
fn whatever_happens_every_exchange_has_one_outcome() {
    for seed in 0..2_000 {
        let caught = std::panic::catch_unwind(|| Sim::new(seed).run());
        assert!(caught.is_ok(), "seed {seed}");
    }
}
