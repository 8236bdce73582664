//! The client and our own server side, in one memory.

use std::collections::BTreeMap;

use crate::clock::{Now, Uptime};
use crate::ids::{WireId, WireMint};
use crate::limits::Limits;
use crate::link::http_client::rig::{MODERN, UNIX_MS, request, target};
use crate::link::http_client::{HttpBounds, HttpLink};
use crate::link::http_server::{HttpConnection, HttpEvent};
use crate::link::upstream::UpstreamEvent;
use crate::link::{IoEvent, IoRequest};

/// A server that answers request `n` with JSON when `n` is even and with a stream when it is odd.
struct Pair {
    link: HttpLink,
    mint: WireMint,
    servers: BTreeMap<WireId, HttpConnection>,
    opened: u32,
    answers: Vec<String>,
    /// Bytes that go over at once.
    piece: usize,
}

fn now() -> Now {
    Now {
        up: Uptime::from_millis(5),
        unix_ms: UNIX_MS,
    }
}

impl Pair {
    fn new(piece: usize) -> Self {
        let limits = Limits::default();
        let mut pair = Self {
            link: HttpLink::new(
                target("http://127.0.0.1:1/mcp"),
                HttpBounds::from(&limits),
                &limits,
            ),
            mint: WireMint::default(),
            servers: BTreeMap::new(),
            opened: 0,
            answers: Vec::new(),
            piece,
        };
        pair.link.start(now(), &mut pair.mint);
        pair
    }

    fn ask(&mut self, id: u64) {
        let message = request(id, "tools/call", MODERN);
        self.link
            .send(now(), &message, &mut self.mint)
            .expect("room");
        while self.turn() {}
    }

    /// Moves what there is to move; false when nothing was.
    fn turn(&mut self) -> bool {
        let mut moved = false;
        while let Some(event) = self.link.poll_event() {
            match event {
                UpstreamEvent::Message { text, .. } => self.answers.push(text.to_string()),
                UpstreamEvent::Up => {}
                other @ (UpstreamEvent::Unreadable { .. }
                | UpstreamEvent::RequestEnded { .. }
                | UpstreamEvent::Resuming { .. }
                | UpstreamEvent::Remark { .. }
                | UpstreamEvent::Ending(_)
                | UpstreamEvent::Closed(_)) => self.answers.push(format!("{other:?}")),
            }
        }
        while let Some(request) = self.link.poll_io() {
            moved = true;
            match request {
                IoRequest::Open(wire, _) => {
                    self.opened += 1;
                    let server = HttpConnection::new(wire, &Limits::default(), now());
                    self.servers.insert(wire, server);
                    let event = IoEvent::Opened;
                    self.link.handle_io(now(), wire, event, &mut self.mint);
                }
                IoRequest::Close(wire) => {
                    self.servers.remove(&wire);
                }
                IoRequest::Flush(_) => {}
                other @ (IoRequest::PauseReads(..)
                | IoRequest::CloseWrite(_)
                | IoRequest::Finish(_)
                | IoRequest::Signal(..)
                | IoRequest::Append(_)) => panic!("asked for {other:?}"),
            }
        }
        let wires: Vec<WireId> = self.servers.keys().copied().collect();
        for wire in wires {
            moved |= self.carry(wire);
        }
        moved
    }

    fn carry(&mut self, wire: WireId) -> bool {
        let Some(server) = self.servers.get_mut(&wire) else {
            return false;
        };
        let mut moved = false;
        if let Some(out) = self.link.outgoing(wire) {
            for piece in out.pending().chunks(self.piece) {
                moved = true;
                server.handle_io(now(), IoEvent::Bytes(piece));
                serve(server);
            }
            out.clear();
        }
        if moved {
            let event = IoEvent::Drained;
            self.link.handle_io(now(), wire, event, &mut self.mint);
        }
        let bytes = server.outgoing().pending().to_vec();
        server.outgoing().clear();
        for piece in bytes.chunks(self.piece) {
            moved = true;
            let event = IoEvent::Bytes(piece);
            self.link.handle_io(now(), wire, event, &mut self.mint);
        }
        moved
    }
}

fn serve(server: &mut HttpConnection) {
    while let Some(event) = server.poll_event() {
        match event {
            HttpEvent::Head { exchange, .. } => server.accept(now(), exchange),
            HttpEvent::Body { exchange, body } => {
                let text = String::from_utf8_lossy(&body).into_owned();
                let id = text
                    .split("\"id\":")
                    .nth(1)
                    .and_then(|rest| rest.split(',').next());
                let id: u64 = id.and_then(|id| id.parse().ok()).expect("an id");
                let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"n":{id}}}}}"#);
                if id % 2 == 0 {
                    let out = server.begin_json(exchange, &[]);
                    out.extend_from_slice(answer.as_bytes());
                    server.commit_json(now(), exchange);
                } else {
                    server.start_sse(now(), exchange, &[]);
                    server.sse_comment(now(), exchange, b"hello");
                    let out = server.begin_event(exchange, None, Some("1"));
                    out.extend_from_slice(answer.as_bytes());
                    server.commit_event(now(), exchange);
                    server.finish_sse(now(), exchange);
                }
            }
            HttpEvent::Gone { .. } | HttpEvent::Closed => {}
        }
    }
    while server.poll_io().is_some() {}
}

#[test]
fn our_server_side_is_understood_on_one_connection() {
    for piece in [1, 7, 1_000_000] {
        let mut pair = Pair::new(piece);
        for id in 1..=20 {
            pair.ask(id);
        }
        let answer = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"n":{id}}}}}"#);
        let wanted: Vec<String> = (1..=20).map(answer).collect();
        assert_eq!(pair.answers, wanted);
        assert_eq!(pair.opened, 1, "the connection is kept, JSON or stream");
    }
}
