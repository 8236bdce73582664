//! Where the messages of a peer go on HTTP: an answer as JSON while nothing was said before, an event of
//! the exchange's stream otherwise, or the session's store while nobody listens.

use super::exchange::ExchangeRef;
use super::front::HttpFront;
use super::peers::PeerKind;
use super::sessions::StreamId;
use crate::clock::Now;
use crate::codec::shared_text::SharedText;
use crate::ids::PeerId;
use crate::protocol::error::ErrorCode;
use crate::protocol::server::{RequestKey, ServerPeer};
use crate::protocol::{Lane, MessageSink};

/// What is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    /// A JSON answer, in place.
    Json(ExchangeRef),
    /// An event, in place.
    Event { exchange: ExchangeRef, last: bool },
    /// An answer with a status of its own, or the event of a stream that can be resumed: copied at the end.
    Copied(Target),
    /// Nobody gets it.
    Nowhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Status(ExchangeRef, u16),
    Stored { stream: StreamId, last: bool },
}

/// The sink of one peer, while it speaks.
struct HttpSink<'a> {
    front: &'a mut HttpFront,
    now: Now,
    peer: PeerId,
    kind: PeerKind,
    reply: Option<ExchangeRef>,
    writing: Writing,
    error: Option<ErrorCode>,
    answered: Option<RequestKey>,
}

impl HttpFront {
    /// Speaks to a peer; `reply` is the exchange whose message it is answering.
    pub(in crate::hub) fn with_peer<R>(
        &mut self,
        now: Now,
        id: PeerId,
        reply: Option<ExchangeRef>,
        speak: impl FnOnce(&mut ServerPeer, &mut dyn MessageSink) -> R,
    ) -> Option<R> {
        let (mut peer, kind) = self.peers.take(id)?;
        let mut sink = HttpSink {
            front: self,
            now,
            peer: id,
            kind,
            reply,
            writing: Writing::Nowhere,
            error: None,
            answered: None,
        };
        let spoken = speak(&mut peer, &mut sink);
        self.peers.put_back(id, peer);
        Some(spoken)
    }
}

impl HttpSink<'_> {
    fn choose(&mut self, lane: Lane) -> Writing {
        let error = self.error.take();
        self.answered = None;
        if let PeerKind::Legacy(exchange) = self.kind {
            return if self.is_open(exchange) {
                Writing::Event {
                    exchange,
                    last: false,
                }
            } else {
                Writing::Nowhere
            };
        }
        match lane {
            Lane::Session => stored(StreamId::STANDALONE, false),
            Lane::Reply => match self.reply {
                Some(exchange) => self.answer(exchange, error, true),
                None => Writing::Nowhere,
            },
            Lane::Request(key) => match self.exchange_of(key) {
                Some(exchange) => {
                    self.front.start_stream(self.now, exchange);
                    self.event(exchange, false)
                }
                None => Writing::Nowhere,
            },
            Lane::Answer(key) => {
                let Some(exchange) = self.exchange_of(key) else {
                    return Writing::Nowhere;
                };
                self.answered = Some(key);
                self.front.routes.remove(&(self.peer, key));
                let open = self.front.exchanges.get_mut(&exchange);
                let last = open.is_none_or(|open| {
                    open.open.remove(key);
                    open.open.is_empty()
                });
                self.answer(exchange, error, last)
            }
        }
    }

    /// The exchange of a request; a request that is being opened belongs to the one being read.
    fn exchange_of(&mut self, key: RequestKey) -> Option<ExchangeRef> {
        let known = self.front.routes.get(&(self.peer, key)).copied();
        if known.is_none() {
            let exchange = self.reply?;
            self.front.bind(self.peer, key, exchange);
            return Some(exchange);
        }
        known
    }

    fn is_open(&self, exchange: ExchangeRef) -> bool {
        self.front
            .exchanges
            .get(&exchange)
            .is_some_and(|open| !open.gone)
    }

    fn answer(&mut self, exchange: ExchangeRef, error: Option<ErrorCode>, last: bool) -> Writing {
        let Some(open) = self.front.exchanges.get(&exchange) else {
            return Writing::Nowhere;
        };
        if open.sse {
            return self.event(exchange, last);
        }
        if open.gone {
            return Writing::Nowhere;
        }
        let modern = self.kind == PeerKind::Stateless;
        let status = error.map_or(200, |code| status_of(code, modern, self.answered.is_some()));
        if status == 200 {
            Writing::Json(exchange)
        } else {
            Writing::Copied(Target::Status(exchange, status))
        }
    }

    fn event(&mut self, exchange: ExchangeRef, last: bool) -> Writing {
        let Some(open) = self.front.exchanges.get(&exchange) else {
            return Writing::Nowhere;
        };
        match open.stream {
            Some(stream) => stored(stream, last),
            None if open.gone => Writing::Nowhere,
            None => Writing::Event { exchange, last },
        }
    }

    fn deliver(&mut self, target: Target) {
        let payload = std::mem::take(&mut self.front.scratch);
        match target {
            Target::Status(exchange, status) => {
                if let Some(connection) = self.front.connections.get_mut(&exchange.wire) {
                    let headers = [("Content-Type", "application/json")];
                    connection
                        .http
                        .respond(self.now, exchange.id, status, &headers, &payload);
                }
                self.front.forget(self.now, exchange);
                self.front.touch(exchange.wire);
            }
            Target::Stored { stream, last } => {
                let id = self.front.sessions.record(self.peer, stream, &payload);
                let carrier = self.front.sessions.carrier(self.peer, stream);
                let exchange = carrier.map(ExchangeRef::of_carrier);
                if let (Some(exchange), Some(id)) = (exchange, id) {
                    if let Some(connection) = self.front.connections.get_mut(&exchange.wire) {
                        let out = connection
                            .http
                            .begin_event(exchange.id, None, Some(&id.text()));
                        out.extend_from_slice(&payload);
                        connection.http.commit_event(self.now, exchange.id);
                    }
                    self.front.touch(exchange.wire);
                }
                if last {
                    self.front.sessions.finish(self.peer, stream);
                    if let Some(exchange) = exchange {
                        self.front.finish_stream(self.now, exchange);
                    }
                }
            }
        }
        self.front.scratch = payload;
    }
}

impl MessageSink for HttpSink<'_> {
    fn begin(&mut self, lane: Lane) -> &mut Vec<u8> {
        self.writing = self.choose(lane);
        self.front.scratch.clear();
        match self.writing {
            Writing::Json(exchange) => {
                let open = self.front.exchanges.get(&exchange);
                let announces = open.and_then(|open| open.announces.as_ref());
                match self.front.connections.get_mut(&exchange.wire) {
                    Some(connection) => match announces {
                        Some(id) => connection
                            .http
                            .begin_json(exchange.id, &[("Mcp-Session-Id", id.as_str())]),
                        None => connection.http.begin_json(exchange.id, &[]),
                    },
                    None => &mut self.front.scratch,
                }
            }
            Writing::Event { exchange, .. } => {
                let name = matches!(self.kind, PeerKind::Legacy(_)).then_some("message");
                match self.front.connections.get_mut(&exchange.wire) {
                    Some(connection) => connection.http.begin_event(exchange.id, name, None),
                    None => &mut self.front.scratch,
                }
            }
            Writing::Copied(_) | Writing::Nowhere => &mut self.front.scratch,
        }
    }

    fn commit(&mut self) {
        match std::mem::replace(&mut self.writing, Writing::Nowhere) {
            Writing::Json(exchange) => {
                if let Some(connection) = self.front.connections.get_mut(&exchange.wire) {
                    connection.http.commit_json(self.now, exchange.id);
                }
                self.front.forget(self.now, exchange);
                self.front.touch(exchange.wire);
            }
            Writing::Event { exchange, last } => {
                if let Some(connection) = self.front.connections.get_mut(&exchange.wire) {
                    connection.http.commit_event(self.now, exchange.id);
                }
                if last {
                    self.front.finish_stream(self.now, exchange);
                }
                self.front.touch(exchange.wire);
            }
            Writing::Copied(target) => self.deliver(target),
            Writing::Nowhere => {}
        }
    }

    fn rollback(&mut self) {
        self.writing = Writing::Nowhere;
    }

    fn keep(&mut self, text: &str) -> SharedText {
        let open = self
            .reply
            .and_then(|reply| self.front.exchanges.get(&reply));
        match open.and_then(|open| open.message.as_ref()) {
            Some(message) => message.part(message, text),
            None => text.into(),
        }
    }

    fn note_error(&mut self, code: ErrorCode) {
        self.error = Some(code);
    }
}

const fn stored(stream: StreamId, last: bool) -> Writing {
    Writing::Copied(Target::Stored { stream, last })
}

/// The HTTP status of an error. The handshake revisions have one for what is no message; 2026-07-28 has
/// some for single errors. Spec: 2026-07-28 basic/transports/streamable-http.
const fn status_of(code: ErrorCode, modern: bool, was_open: bool) -> u16 {
    match code {
        ErrorCode::ParseError | ErrorCode::InvalidRequest => 400,
        ErrorCode::MethodNotFound if modern => 404,
        ErrorCode::HeaderMismatch
        | ErrorCode::MissingClientCapability
        | ErrorCode::UnsupportedProtocolVersion => 400,
        // Spec: these numbers mean the same whoever gives them.
        ErrorCode::Upstream(-32_601) if modern => 404,
        ErrorCode::Upstream(-32_022..=-32_020) if modern => 400,
        // Before the request was anybody's: its metadata is wrong. Afterwards it is an answer like others.
        ErrorCode::InvalidParams if modern && !was_open => 400,
        ErrorCode::MethodNotFound
        | ErrorCode::InvalidParams
        | ErrorCode::InternalError
        | ErrorCode::ResourceNotFound
        | ErrorCode::Upstream(_) => 200,
    }
}
