//! The server's side of one MCP conversation, whatever carries it.
//!
//! Bytes of one message go in; answers that the protocol itself gives leave at once through the
//! [`MessageSink`], everything else comes out as a [`ServerEvent`] and is answered later by
//! [`ServerPeer::respond`]. Both eras live side by side: each request is served by the rules of the
//! revision it belongs to.
//!
//! | what comes in                       | era of the request | what happens                              |
//! |-------------------------------------|--------------------|-------------------------------------------|
//! | `initialize`                        | legacy             | answered; the session has a revision      |
//! | the same, of a server yet to be met | legacy             | [`ServerEvent::Opens`], stays open        |
//! | `notifications/initialized`         | legacy             | held notifications leave, in order        |
//! | `ping`, `logging/setLevel`          | legacy             | answered                                  |
//! | `server/discover`                   | modern             | answered                                  |
//! | the same, of a server yet to be met | modern             | [`ServerEvent::Opens`], stays open        |
//! | `subscriptions/listen`              | modern             | acknowledged; open until cancelled or end |
//! | `resources/subscribe`, `…/unsubscribe` | legacy          | answered, or [`ServerEvent::Subscribes`]  |
//! | a method of the other era           | either             | -32601                                    |
//! | any other request                   | either             | [`ServerEvent::Request`], stays open      |
//! | `notifications/cancelled`           | either             | the request is gone: no answer            |
//! | an array                            | 2025-03-26         | its members, answered as one array        |
//! | an array                            | any other          | -32600                                    |
//! | no JSON / no message                | –                  | -32700 / -32600, next message served      |
//!
//! A request id is in use from its arrival to its answer; a second request with it is refused.
//!
//! Here is what comes in. `legacy` and `modern` serve the requests of each era, `introduction` is the
//! handshake and the discovery; `outgoing` and `relayed` are what goes out; `open` are the requests in
//! between, `batch` those of one array. `config` and `event` are what the owner of a peer says and hears.
//!
//! Who stands between a client and a server of its own says so in [`ServerConfig::awaits_introduction`] and
//! [`ServerConfig::relays_subscriptions`]: what only that server knows is then asked of the owner first.
//!
//! Source: mcp-eras §2-§5; Spec: 2025-11-25 basic/lifecycle, 2026-07-28 basic/versioning and
//! basic/patterns/subscriptions.

mod batch;
mod config;
mod event;
mod introduction;
mod legacy;
mod modern;
mod open;
mod outgoing;
mod own;
mod relayed;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use self::batch::Batch;
pub use self::config::{Changing, List, ServerConfig};
pub use self::event::{
    Answer, AskKey, RequestKey, Scope, ServerEvent, ServerRequest, Tally, Whose,
};
use self::modern::ModernResult;
pub use self::modern::check_modern_meta;
use self::open::{Asked, Listening, Open};
use self::own::Own;
use crate::codec::jsonrpc::{self, Message, Outcome, Reason};
use crate::codec::scan::{
    Envelope, IdField, ScanError, ScanLimits, Scanned, Text, readable_id, scan,
};
use crate::codec::shared_text::SharedText;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::LogLevel;
use crate::protocol::revision::Revision;
use crate::protocol::{Lane, MessageSink};
use crate::secret::Quoted;

/// One request as it came in.
#[derive(Clone, Copy)]
struct Facts<'a> {
    scope: Scope,
    id: &'a str,
    method: &'a str,
    /// What else it says.
    envelope: &'a Envelope<'a>,
    batch: Option<u32>,
}

/// The server's side of one conversation. See the module page for what it answers by itself.
#[derive(Debug)]
pub struct ServerPeer {
    config: Arc<ServerConfig>,
    scan_limits: ScanLimits,
    negotiated: Option<Revision>,
    initialized: bool,
    /// The `initialize` that waits for [`ServerPeer::introduce`], and whether `notifications/initialized` has
    /// come meanwhile.
    opening: Option<(RequestKey, bool)>,
    /// It has made a request of the stateless era.
    speaks_modern: bool,
    client: SharedText,
    client_capabilities: Option<SharedText>,
    log_level: Option<LogLevel>,
    /// Resources a legacy client has subscribed to.
    resources: BTreeSet<String>,
    open: Vec<Open>,
    next_key: u64,
    asked: Vec<Asked>,
    next_ask: u64,
    batches: Vec<Batch>,
    next_batch: u32,
    held: VecDeque<(Cow<'static, str>, Option<String>)>,
    events: VecDeque<ServerEvent>,
    tally: Tally,
}

impl ServerPeer {
    /// A peer that has heard nothing yet.
    #[must_use]
    pub fn new(config: Arc<ServerConfig>) -> Self {
        Self {
            scan_limits: ScanLimits::from(&config.limits),
            config,
            negotiated: None,
            initialized: false,
            opening: None,
            speaks_modern: false,
            client: SharedText::default(),
            client_capabilities: None,
            log_level: None,
            resources: BTreeSet::new(),
            open: Vec::new(),
            next_key: 0,
            asked: Vec::new(),
            next_ask: 1,
            batches: Vec::new(),
            next_batch: 0,
            held: VecDeque::new(),
            events: VecDeque::new(),
            tally: Tally::default(),
        }
    }

    /// What went wrong so far.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// The name the client gave itself; empty before it did.
    #[must_use]
    pub const fn client_name(&self) -> &SharedText {
        &self.client
    }

    /// The revision of the handshake; `None` before it.
    #[must_use]
    pub const fn negotiated(&self) -> Option<Revision> {
        self.negotiated
    }

    /// `capabilities` of the handshake, a raw object.
    #[must_use]
    pub const fn client_capabilities(&self) -> Option<&SharedText> {
        self.client_capabilities.as_ref()
    }

    /// The next thing to act on. Drained to `None` after each call that takes a message.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Takes one message, as framed by the transport.
    pub fn handle_message(&mut self, scope: Scope, bytes: &[u8], sink: &mut dyn MessageSink) {
        let scanned = scan(bytes, &self.scan_limits);
        self.handle_scanned(scope, bytes, &scanned, sink);
    }

    /// Takes one message that the transport had to look into; `bytes` are the whole of it.
    pub fn handle_scanned(
        &mut self,
        scope: Scope,
        bytes: &[u8],
        scanned: &Result<Scanned<'_>, ScanError>,
        sink: &mut dyn MessageSink,
    ) {
        match scanned {
            Ok(Scanned::One(envelope)) => self.handle_envelope(scope, envelope, None, sink),
            Ok(Scanned::Batch(members)) => self.handle_batch(scope, members, sink),
            Ok(Scanned::Other) => {
                let error = RpcError::new(ErrorCode::InvalidRequest, "a message is a JSON object");
                self.refuse(None, &error, None, sink);
            }
            Err(error) => {
                let (code, id) = if error.is_json() {
                    (
                        ErrorCode::InvalidRequest,
                        readable_id(bytes, &self.scan_limits),
                    )
                } else {
                    (ErrorCode::ParseError, None)
                };
                self.refuse(id, &RpcError::new(code, error.to_string()), None, sink);
            }
        }
    }

    /// A message was longer than `limit` bytes and was skipped; `head` is how it began.
    pub fn handle_oversized(&mut self, head: &[u8], limit: usize, sink: &mut dyn MessageSink) {
        let error = RpcError::new(
            ErrorCode::InvalidRequest,
            format!("message too large: more than the limit of {limit} bytes"),
        );
        let id = readable_id(head, &self.scan_limits);
        self.refuse(id, &error, None, sink);
    }

    fn handle_envelope(
        &mut self,
        scope: Scope,
        envelope: &Envelope<'_>,
        batch: Option<u32>,
        sink: &mut dyn MessageSink,
    ) {
        match jsonrpc::classify(envelope) {
            Ok(Message::Request { id, method }) => {
                let facts = Facts {
                    scope,
                    id,
                    method: &method.decode(),
                    envelope,
                    batch,
                };
                self.handle_request(facts, sink);
            }
            Ok(Message::Notification { method }) => {
                self.handle_notification(scope, method, envelope, sink);
            }
            Ok(Message::Response { id, outcome }) => self.handle_response(id, outcome),
            Err(invalid) if invalid.is_response => self.tally.unexpected_responses += 1,
            Err(invalid) => {
                let limit = self.config.limits.id_bytes_max;
                let text = match envelope.id {
                    IdField::Unusable(raw) if invalid.reason == Reason::Id && raw.len() > limit => {
                        let bytes = raw.len();
                        format!("id is too long: {bytes} bytes, limit {limit} (id_bytes_max)")
                    }
                    IdField::Usable(_) | IdField::Unusable(_) | IdField::Null | IdField::Absent => {
                        invalid.to_string()
                    }
                };
                let error = RpcError::new(ErrorCode::InvalidRequest, text);
                self.refuse(invalid.id, &error, batch, sink);
            }
        }
    }

    fn handle_request(&mut self, facts: Facts<'_>, sink: &mut dyn MessageSink) {
        let Facts {
            scope,
            id,
            method,
            envelope,
            batch,
        } = facts;
        let meta = &envelope.request_meta;
        let same = |open: &Open| open.scope == scope && open.id.is(id);
        if self.open.iter().any(same) {
            let reason = format!("request id {} is in use", Quoted(id));
            let error = RpcError::new(ErrorCode::InvalidRequest, reason);
            return self.answer_now(id, batch, Err(error), sink);
        }
        let modern =
            meta.is_modern() || matches!(method, "server/discover" | "subscriptions/listen");
        let outcome = match (modern, batch) {
            (false, _) => self.legacy_request(facts, sink),
            (true, None) => self.modern_request(facts, sink),
            (true, Some(_)) => Err(RpcError::new(
                ErrorCode::InvalidRequest,
                "a 2026-07-28 request cannot stand in a batch",
            )),
        };
        match outcome {
            Ok(Served::Later) => {}
            Ok(Served::Now(result)) => self.answer_now(id, batch, Ok(&result), sink),
            Ok(Served::Modern(result, ttl)) => {
                let result = ModernResult {
                    kind: "complete",
                    result: &result,
                    own: Own::of(&result),
                    ttl_ms: ttl,
                };
                self.emit_modern(Lane::Reply, id, result, sink);
            }
            Err(error) => self.answer_now(id, batch, Err(error), sink),
        }
    }

    fn forward(
        &mut self,
        facts: Facts<'_>,
        revision: Revision,
        log_level: Option<LogLevel>,
        sink: &mut dyn MessageSink,
    ) -> Result<Served, RpcError> {
        self.check_room(facts.scope)?;
        let key = self.remember(facts, revision, log_level, None);
        let envelope = facts.envelope;
        // The one copy; everything else is a part of it.
        let params = envelope.params.map(|params| sink.keep(params));
        let part = |text: &str| match (&params, envelope.params) {
            (Some(copy), Some(original)) => copy.part(original, text),
            _ => text.into(),
        };
        self.events.push_back(ServerEvent::Request(ServerRequest {
            key,
            method: method_name(facts.method),
            name: envelope.name.map(|name| part(&name.decode())),
            arguments: envelope.arguments.map(part),
            revision,
            wants_progress: envelope.request_meta.progress_token.is_some(),
            log_level,
            client_capabilities: envelope.request_meta.client_capabilities.map(part),
            params,
        }));
        Ok(Served::Later)
    }

    fn handle_notification(
        &mut self,
        scope: Scope,
        method: Text<'_>,
        envelope: &Envelope<'_>,
        sink: &mut dyn MessageSink,
    ) {
        if method.is("notifications/initialized") {
            self.handle_initialized(sink);
        } else if method.is("notifications/cancelled") {
            self.cancel(scope, envelope.params, sink);
        } else {
            self.events.push_back(ServerEvent::Notification {
                method: method.decode().into_owned(),
                params: envelope.params.map(Box::from),
            });
        }
    }

    fn handle_response(&mut self, id: IdField<'_>, outcome: Outcome<'_>) {
        let key = id.usable().and_then(|raw| raw.parse().ok()).map(AskKey);
        let Some(at) = self.asked.iter().position(|asked| Some(asked.key) == key) else {
            self.tally.unexpected_responses += 1;
            return;
        };
        let Asked { key: ask, .. } = self.asked.swap_remove(at);
        let outcome = match outcome {
            Outcome::Result(result) => Ok(Box::from(result)),
            Outcome::Error(error) => Err(Box::from(error)),
        };
        self.events
            .push_back(ServerEvent::Answered { ask, outcome });
    }
}

enum Served {
    /// The request is open; its answer comes by [`ServerPeer::respond`].
    Later,
    /// A result of the handshake era.
    Now(Cow<'static, str>),
    /// A result of the stateless era, and how long it may be kept.
    Modern(String, Option<u64>),
}

/// The name of a method, without an allocation for those that come often.
fn method_name(method: &str) -> Cow<'static, str> {
    Cow::Borrowed(match method {
        "tools/call" => "tools/call",
        "tools/list" => "tools/list",
        "resources/read" => "resources/read",
        "resources/list" => "resources/list",
        "resources/templates/list" => "resources/templates/list",
        "prompts/get" => "prompts/get",
        "prompts/list" => "prompts/list",
        "completion/complete" => "completion/complete",
        other => return Cow::Owned(other.to_owned()),
    })
}
