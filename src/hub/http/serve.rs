//! What happens to a message once the head of its exchange is accepted: which era it is of, which peer serves
//! it, whose buffer it is in, and what waits for an answer.

use std::string::FromUtf8Error;

use super::connections::KnownHead;
use super::exchange::{ExchangeRef, Purpose};
use super::front::HttpFront;
use super::peers::PeerKind;
use super::refusals;
use super::sessions::Sessions;
use crate::clock::Now;
use crate::codec::scan::{Envelope, ScanError, Scanned, Text};
use crate::codec::shared_text::SharedText;
use crate::entropy::Entropy;
use crate::ids::PeerId;
use crate::link::http_rules::{
    HttpRefusal, ParamHeader, Principal, RoutingPlaces, TRACE_HEADERS, VersionHeader, check_delete,
    check_modern_headers, check_param_headers, session_id, version_header,
};
use crate::link::http_server::HttpHead;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::member;
use crate::protocol::server::{RequestKey, Scope, check_modern_meta};

/// Who serves a message.
#[derive(Clone, Copy, Debug)]
pub(in crate::hub) struct Served {
    pub(in crate::hub) peer: PeerId,
    pub(in crate::hub) scope: Scope,
}

/// Why nobody does.
#[derive(Debug)]
pub(in crate::hub) enum Unserved {
    /// By the transport's rules.
    Refused(HttpRefusal),
    /// By the protocol's: an error with the id of the request.
    Error(Option<String>, RpcError),
    /// The exchange is gone already.
    Gone,
}

impl From<HttpRefusal> for Unserved {
    fn from(refusal: HttpRefusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Up to this size a buffer is not too big for any message. No limit: it decides about a copy.
const ROOMY_BYTES: usize = 16 * 1024;

impl HttpFront {
    /// Decides the era of a message and who serves it. `mint` makes the number of a new peer, and
    /// `param_headers` knows which headers repeat arguments of a tool.
    pub(in crate::hub) fn admit<'t>(
        &mut self,
        now: Now,
        exchange: ExchangeRef,
        scanned: &Result<Scanned<'_>, ScanError>,
        mint: impl FnOnce() -> PeerId,
        param_headers: impl FnOnce(Option<PeerId>, &str) -> &'t [ParamHeader],
        entropy: &mut dyn Entropy,
    ) -> Result<Served, Unserved> {
        let open = self.exchanges.get(&exchange).ok_or(Unserved::Gone)?;
        if let Purpose::LegacyPost(peer) = open.purpose {
            return Ok(Served {
                peer,
                scope: Scope::default(),
            });
        }
        let head = open.head.as_deref().ok_or(Unserved::Gone)?;
        let envelope = match scanned {
            Ok(Scanned::One(envelope)) => Some(envelope),
            Ok(Scanned::Batch(_) | Scanned::Other) | Err(_) => None,
        };
        let known = self.connections.known(exchange.wire, head);
        let version = match known {
            Some(known) => known.version(head),
            None => VersionHeader::of(head),
        };
        let modern = envelope.is_some_and(|envelope| is_modern(envelope, version));
        if let (true, Some(envelope)) = (modern, envelope) {
            let stateless = self.peers.stateless_of(open.principal);
            let routing = known.and_then(|known| known.routing);
            check_headers(head, routing, envelope, |tool| {
                param_headers(stateless, tool)
            })
            .map_err(|error| Unserved::Error(envelope.id.usable().map(str::to_owned), error))?;
            let principal = open.principal;
            let peer = stateless.unwrap_or_else(|| {
                let id = mint();
                self.peers.add(id, PeerKind::Stateless, principal);
                id
            });
            let scope = exchange.scope();
            self.assign(exchange, peer);
            return Ok(Served { peer, scope });
        }
        if let Err(error) = scanned {
            // What is no JSON names no session that could say so.
            if !error.is_json() && head.field("mcp-session-id").is_none() {
                let code = ErrorCode::ParseError.number();
                return Err(refusals::json_error(400, code, &error.to_string()).into());
            }
        }
        let initialize = envelope.is_some_and(|e| e.method.is_some_and(|m| m.is("initialize")));
        let peer = if initialize {
            self.open_session(now, exchange, mint(), entropy)?
        } else {
            version.of_session()?;
            self.find_session(now, exchange, known)?
        };
        self.assign(exchange, peer);
        Ok(Served {
            peer,
            scope: Scope::default(),
        })
    }

    /// The message was served as far as that goes at once. What has no answer to come is accepted; the
    /// rest waits for it, at first without a stream.
    pub(in crate::hub) fn after_message(&mut self, now: Now, exchange: ExchangeRef) {
        let Some(open) = self.exchanges.get(&exchange) else {
            return;
        };
        let waits = !open.open.is_empty();
        if waits && !matches!(open.purpose, Purpose::LegacyPost(_)) {
            return self.wait_for_start(now, exchange);
        }
        if open.sse {
            return;
        }
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            connection.http.respond(now, exchange.id, 202, &[], b"");
        }
        self.forget(now, exchange);
        self.touch(exchange.wire);
    }

    /// A message is going to be served: whoever keeps a part of it shares the buffer it came in. Bytes that
    /// are no text come back.
    pub(in crate::hub) fn share(
        &mut self,
        exchange: ExchangeRef,
        body: Vec<u8>,
    ) -> Result<SharedText, FromUtf8Error> {
        let text = String::from_utf8(body)?;
        let message = if text.capacity() > ROOMY_BYTES.max(4 * text.len()) {
            // It may wait for long, in a buffer that was made for a long one.
            let copy = self.texts.copy(&text);
            self.recycle(exchange, text.into_bytes());
            copy
        } else {
            self.messages.lend(text)
        };
        if let Some(open) = self.exchanges.get_mut(&exchange) {
            open.message = Some(message.clone());
        }
        Ok(message)
    }

    /// The message was served as far as that goes at once. Its buffer is used again, here or by the last
    /// who keeps a part of it.
    pub(in crate::hub) fn unshare(&mut self, exchange: ExchangeRef, message: SharedText) {
        if let Some(buffer) = self.messages.take_back(message) {
            self.recycle(exchange, buffer.into_bytes());
        }
    }

    /// A buffer that a message came in.
    pub(in crate::hub) fn recycle(&mut self, exchange: ExchangeRef, body: Vec<u8>) {
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            connection.http.recycle(body);
        }
    }

    /// Nobody serves a message: says why.
    pub(in crate::hub) fn decline(&mut self, now: Now, exchange: ExchangeRef, why: Unserved) {
        match why {
            Unserved::Refused(refusal) => self.refuse(now, exchange, &refusal),
            Unserved::Gone => {}
            Unserved::Error(id, error) => {
                let mut body = Vec::new();
                let code = error.code.number();
                crate::codec::jsonrpc::write_error(
                    &mut body,
                    id.as_deref(),
                    code,
                    &error.message,
                    error.data.as_deref(),
                );
                let body = String::from_utf8(body).unwrap_or_default();
                self.refuse(now, exchange, &refusals::json(400, body));
            }
        }
    }

    /// A request of this exchange is open.
    pub(in crate::hub) fn bind(&mut self, peer: PeerId, key: RequestKey, exchange: ExchangeRef) {
        if let Some(open) = self.exchanges.get_mut(&exchange) {
            open.open.insert(key);
            self.routes.insert((peer, key), exchange);
        }
    }

    /// The trace context that an open request came with.
    pub(in crate::hub) fn trace_of(
        &self,
        peer: PeerId,
        key: RequestKey,
    ) -> Vec<(Box<str>, Box<str>)> {
        let Some(head) = self
            .routes
            .get(&(peer, key))
            .and_then(|exchange| self.exchanges.get(exchange)?.head.as_ref())
        else {
            return Vec::new();
        };
        let field = |name: &'static str| {
            let value = head.field(name)?;
            Some((name.into(), value.into()))
        };
        TRACE_HEADERS.into_iter().filter_map(field).collect()
    }

    /// A request was cancelled: its exchange waits for one answer less.
    pub(in crate::hub) fn unbind(&mut self, now: Now, peer: PeerId, key: RequestKey) {
        let Some(exchange) = self.routes.remove(&(peer, key)) else {
            return;
        };
        let Some(open) = self.exchanges.get_mut(&exchange) else {
            return;
        };
        open.open.remove(key);
        if !open.open.is_empty() || open.gone || matches!(open.purpose, Purpose::Stream) {
            return;
        }
        if open.sse {
            self.finish_stream(now, exchange);
        } else {
            self.after_message(now, exchange);
        }
    }

    /// The handshake of this request fails: its answer announces no session. Says whether it would have.
    pub(in crate::hub) fn retract_session(&mut self, peer: PeerId, key: RequestKey) -> bool {
        let exchange = self.routes.get(&(peer, key));
        let open = exchange.and_then(|exchange| self.exchanges.get_mut(exchange));
        open.is_some_and(|open| open.announces.take().is_some())
    }

    fn assign(&mut self, exchange: ExchangeRef, peer: PeerId) {
        if let Some(open) = self.exchanges.get_mut(&exchange) {
            open.peer = Some(peer);
        }
    }

    fn open_session(
        &mut self,
        now: Now,
        exchange: ExchangeRef,
        id: PeerId,
        entropy: &mut dyn Entropy,
    ) -> Result<PeerId, Unserved> {
        let open = self.exchanges.get_mut(&exchange).ok_or(Unserved::Gone)?;
        let session = self
            .sessions
            .open(now, id, open.principal.as_str(), entropy)
            .map_err(|error| refusals::no_session(&error))?;
        open.announces = Some(session);
        self.peers.add(id, PeerKind::Session, open.principal);
        Ok(id)
    }

    fn find_session(
        &mut self,
        now: Now,
        exchange: ExchangeRef,
        known: Option<KnownHead>,
    ) -> Result<PeerId, Unserved> {
        if let Some(place) = known.and_then(|known| known.session) {
            let found = self.sessions.find_at(now, place);
            return Ok(found.ok_or_else(refusals::unknown_session)?);
        }
        let open = self.exchanges.get(&exchange).ok_or(Unserved::Gone)?;
        let head = open.head.as_deref().ok_or(Unserved::Gone)?;
        let peer = session_of(&mut self.sessions, now, head, open.principal)?;
        let place = self.sessions.place_of(peer);
        self.connections
            .remember_session(exchange.wire, known, place);
        Ok(peer)
    }

    pub(super) fn delete_session(
        &mut self,
        now: Now,
        exchange: ExchangeRef,
        head: &HttpHead,
        principal: Principal,
    ) -> Result<(), HttpRefusal> {
        check_delete(head)?;
        session_of(&mut self.sessions, now, head, principal)?;
        let id = session_id(head)?.unwrap_or_default();
        if let Some(ended) = self.sessions.close(id, principal.as_str()) {
            self.end_peer(now, ended);
        }
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            connection.http.respond(now, exchange.id, 204, &[], b"");
        }
        Ok(())
    }
}

/// The session that a request names, which counts as a sign of life.
pub(super) fn session_of(
    sessions: &mut Sessions,
    now: Now,
    head: &HttpHead,
    principal: Principal,
) -> Result<PeerId, HttpRefusal> {
    let id = session_id(head)?
        .ok_or_else(|| refusals::json_error(400, -32600, "header Mcp-Session-Id is missing"))?;
    sessions
        .find(now, id, principal.as_str())
        .ok_or_else(refusals::unknown_session)
}

/// Design: era of a request.
fn is_modern(envelope: &Envelope<'_>, version: VersionHeader<'_>) -> bool {
    let of_method = match envelope.method.map(|method| method.decode()).as_deref() {
        Some("server/discover" | "subscriptions/listen") => true,
        Some("initialize") => false,
        Some(_) | None => matches!(version, VersionHeader::Modern(_)),
    };
    of_method || envelope.request_meta.is_modern()
}

fn check_headers<'t>(
    head: &HttpHead,
    routing: Option<RoutingPlaces>,
    envelope: &Envelope<'_>,
    param_headers: impl FnOnce(&str) -> &'t [ParamHeader],
) -> Result<(), RpcError> {
    let Some(method) = envelope.method else {
        return Ok(());
    };
    // Only requests carry them; a notification has nothing to route.
    if envelope.id.usable().is_none() {
        return Ok(());
    }
    let method = method.decode();
    let task = || {
        let id = envelope
            .params
            .and_then(|params| member(params, "taskId"))?;
        Text::of_value(id).map(|id| id.decode())
    };
    let name = match &*method {
        "tools/call" | "prompts/get" => envelope.name.map(|name| name.decode()),
        "resources/read" => envelope.uri.map(|uri| uri.decode()),
        method if method.starts_with("tasks/") => task(),
        _ => None,
    };
    let meta = &envelope.request_meta;
    let version = meta
        .protocol_version
        .and_then(Text::of_value)
        .map(|version| version.decode());
    let (name, version) = (name.as_deref(), version.as_deref());
    let agree = routing.is_some_and(|places| places.agree(head, &method, name, version));
    if !agree {
        version_header(head)?;
    }
    // A version that both name and we do not speak is told by the metadata check, with what we speak.
    if let Err(error) = check_modern_meta(meta) {
        if error.code != ErrorCode::UnsupportedProtocolVersion {
            return Err(error);
        }
    }
    let headers = match (&*method, name) {
        ("tools/call", Some(name)) => param_headers(name),
        _ => &[][..],
    };
    let arguments = envelope.arguments;
    if agree {
        check_param_headers(head, arguments, headers)
    } else {
        check_modern_headers(head, &method, name, version, arguments, headers)
    }
}
