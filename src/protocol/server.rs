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
//! | `notifications/initialized`         | legacy             | held notifications leave, in order        |
//! | `ping`, `logging/setLevel`          | legacy             | answered                                  |
//! | `server/discover`                   | modern             | answered                                  |
//! | `subscriptions/listen`              | modern             | acknowledged; open until cancelled or end |
//! | a method of the other era           | either             | -32601                                    |
//! | any other request                   | either             | [`ServerEvent::Request`], stays open      |
//! | `notifications/cancelled`           | either             | the request is gone: no answer            |
//! | an array                            | 2025-03-26         | its members, answered as one array        |
//! | an array                            | any other          | -32600                                    |
//! | no JSON / no message                | –                  | -32700 / -32600, next message served      |
//!
//! A request id is in use from its arrival to its answer; a second request with it is refused.
//!
//! Source: mcp-eras §2-§5; Spec: 2025-11-25 basic/lifecycle, 2026-07-28 basic/versioning and
//! basic/patterns/subscriptions.

mod batch;
mod modern;
mod outgoing;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::codec::json_text::write_string;
use crate::codec::jsonrpc::{self, Message, RequestId};
use crate::codec::scan::{Envelope, ScanLimits, Scanned, Text, readable_id, scan};
use crate::limits::Limits;
use crate::protocol::MessageSink;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{LogLevel, RequestMeta, member, string_member};
use crate::protocol::revision::Revision;
use crate::secret::Quoted;

/// Names one open request of one peer, for whoever answers it. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey(u64);

/// What a peer tells its clients about itself. The JSON texts are complete objects.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// `serverInfo`.
    pub server_info: String,
    /// `capabilities` of the handshake revisions.
    pub capabilities: String,
    /// `capabilities` of 2026-07-28.
    pub modern_capabilities: String,
    /// Guidance for models, where there is some.
    pub instructions: Option<String>,
    /// Lists that may change, and so may be listened to.
    pub changing: Changing,
    /// How long a modern client may keep lists and the discovery, in milliseconds.
    pub cache_ttl_ms: u64,
    /// What a progress token may be asked for, how many requests may be open, how deep JSON may nest.
    pub limits: Limits,
}

/// Which lists may change in the life of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changing {
    /// `tools/list`.
    pub tools: bool,
    /// `prompts/list`.
    pub prompts: bool,
    /// `resources/list`.
    pub resources: bool,
}

/// A list that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list`.
    Resources,
}

impl List {
    const fn method(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources => "notifications/resources/list_changed",
        }
    }

    const fn of(self, changing: Changing) -> bool {
        match self {
            Self::Tools => changing.tools,
            Self::Prompts => changing.prompts,
            Self::Resources => changing.resources,
        }
    }
}

/// What the one behind a peer has to act on.
#[derive(Debug)]
pub enum ServerEvent {
    /// A request to answer by [`ServerPeer::respond`], exactly once, unless it is cancelled before.
    Request(ServerRequest),
    /// A notification that is not the protocol's own business.
    Notification {
        /// Its method.
        method: String,
        /// Its `params`, a raw JSON object.
        params: Option<Box<str>>,
    },
    /// The client no longer wants this answer; the key is dead.
    Cancelled(RequestKey),
}

/// One request that someone behind the peer answers.
#[derive(Debug)]
pub struct ServerRequest {
    /// For the answer.
    pub key: RequestKey,
    /// Its method.
    pub method: String,
    /// Its `params`, a raw JSON object.
    pub params: Option<Box<str>>,
    /// The revision whose rules apply.
    pub revision: Revision,
    /// Whether [`ServerPeer::progress`] will reach the client.
    pub wants_progress: bool,
}

/// An answer to a request.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// A result: a raw JSON object without `resultType` and `_meta`; the peer adds what a revision needs.
    Result(&'a str),
    /// The same for a list, which modern clients may keep for a while.
    List(&'a str),
    /// An error.
    Error(&'a RpcError),
}

/// Why a message was not served; counted, and told to the client where the transport allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages that were no JSON or no JSON-RPC.
    pub unreadable: u64,
    /// Responses to nothing we asked.
    pub unexpected_responses: u64,
    /// Notifications dropped because the client had not finished its handshake and too many waited.
    pub notifications_dropped: u64,
}

#[derive(Debug)]
struct Open {
    key: RequestKey,
    id: RequestId,
    revision: Revision,
    progress_token: Option<Box<str>>,
    batch: Option<u32>,
    listening: Option<Changing>,
    progress: u64,
}

#[derive(Debug)]
struct Batch {
    number: u32,
    /// Answers still to come; the reader of the array counts as one.
    waiting: usize,
    answers: Vec<u8>,
}

/// The server's side of one conversation. See the module page for what it answers by itself.
#[derive(Debug)]
pub struct ServerPeer {
    config: ServerConfig,
    scan_limits: ScanLimits,
    negotiated: Option<Revision>,
    initialized: bool,
    client: String,
    log_level: Option<LogLevel>,
    open: Vec<Open>,
    next_key: u64,
    batches: Vec<Batch>,
    next_batch: u32,
    held: VecDeque<(&'static str, String)>,
    events: VecDeque<ServerEvent>,
    tally: Tally,
}

impl ServerPeer {
    /// A peer that has heard nothing yet.
    #[must_use]
    pub fn new(config: ServerConfig) -> Self {
        Self {
            scan_limits: ScanLimits::from(&config.limits),
            config,
            negotiated: None,
            initialized: false,
            client: String::new(),
            log_level: None,
            open: Vec::new(),
            next_key: 0,
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

    /// How many requests wait for an answer, listen streams left out.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.open
            .iter()
            .filter(|open| open.listening.is_none())
            .count()
    }

    /// The name the client gave itself; empty before it did.
    #[must_use]
    pub fn client_name(&self) -> &str {
        &self.client
    }

    /// The next thing to act on. Drained to `None` after each call that takes a message.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Takes one message, as framed by the transport.
    pub fn handle_message(&mut self, bytes: &[u8], sink: &mut dyn MessageSink) {
        match scan(bytes, &self.scan_limits) {
            Ok(Scanned::One(envelope)) => self.handle_envelope(envelope, None, sink),
            Ok(Scanned::Batch(members)) => self.handle_batch(&members, sink),
            Ok(Scanned::Other) => {
                let error = RpcError::new(ErrorCode::InvalidRequest, "a message is a JSON object");
                self.refuse(None, &error, None, sink);
            }
            Err(error) => {
                let code = if error.is_json() {
                    ErrorCode::InvalidRequest
                } else {
                    ErrorCode::ParseError
                };
                let id = if error.is_json() {
                    readable_id(bytes, &self.scan_limits)
                } else {
                    None
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
        envelope: Envelope<'_>,
        batch: Option<u32>,
        sink: &mut dyn MessageSink,
    ) {
        match jsonrpc::classify(envelope) {
            Ok(Message::Request {
                id,
                method,
                envelope,
            }) => self.handle_request(id, method, &envelope, batch, sink),
            Ok(Message::Notification { method, envelope }) => {
                self.handle_notification(method, &envelope, sink)
            }
            Ok(Message::Response { .. }) => self.tally.unexpected_responses += 1,
            Err(invalid) if invalid.is_response => self.tally.unexpected_responses += 1,
            Err(invalid) => {
                let error = RpcError::new(ErrorCode::InvalidRequest, invalid.to_string());
                self.refuse(invalid.id, &error, batch, sink);
            }
        }
    }

    fn handle_request(
        &mut self,
        id: &str,
        method: Text<'_>,
        envelope: &Envelope<'_>,
        batch: Option<u32>,
        sink: &mut dyn MessageSink,
    ) {
        let id = RequestId::from_raw(id);
        if self.open.iter().any(|open| open.id == id) {
            let error = RpcError::new(
                ErrorCode::InvalidRequest,
                format!("request id {} is in use", Quoted(id.raw())),
            );
            return self.answer_now(&id, batch, Err(error), sink);
        }
        let meta = RequestMeta::read(envelope.meta);
        let modern =
            meta.is_modern() || method.is("server/discover") || method.is("subscriptions/listen");
        let outcome = if modern {
            if batch.is_some() {
                Err(RpcError::new(
                    ErrorCode::InvalidRequest,
                    "a 2026-07-28 request cannot stand in a batch",
                ))
            } else {
                self.modern_request(&id, method, envelope, meta, sink)
            }
        } else {
            self.legacy_request(&id, method, envelope, meta, batch)
        };
        match outcome {
            Ok(Served::Later) => {}
            Ok(Served::Now(result)) => self.answer_now(&id, batch, Ok(&result), sink),
            Ok(Served::Modern(result, ttl)) => self.emit_modern(&id, &result, ttl, sink),
            Err(error) => self.answer_now(&id, batch, Err(error), sink),
        }
    }

    fn legacy_request(
        &mut self,
        id: &RequestId,
        method: Text<'_>,
        envelope: &Envelope<'_>,
        meta: RequestMeta<'_>,
        batch: Option<u32>,
    ) -> Result<Served, RpcError> {
        if method.is("initialize") {
            if batch.is_some() {
                return Err(RpcError::new(
                    ErrorCode::InvalidRequest,
                    "initialize cannot stand in a batch",
                ));
            }
            return self.initialize(envelope.params).map(Served::Now);
        }
        if method.is("ping") {
            return Ok(Served::Now("{}".to_owned()));
        }
        if method.is("logging/setLevel") {
            let level = envelope.params.and_then(|params| member(params, "level"));
            self.log_level = Some(LogLevel::read(level)?);
            return Ok(Served::Now("{}".to_owned()));
        }
        let revision = self.negotiated.unwrap_or(Revision::V2025_11_25);
        self.forward(id, method, envelope, revision, meta, batch)
    }

    fn initialize(&mut self, params: Option<&str>) -> Result<String, RpcError> {
        let asked = params.and_then(|params| member(params, "protocolVersion"));
        let asked = string_member("protocolVersion", asked)?;
        let revision = Revision::negotiate(&asked);
        self.negotiated = Some(revision);
        self.client = params
            .and_then(|params| member(params, "clientInfo"))
            .filter(|info| info.starts_with('{'))
            .and_then(|info| member(info, "name"))
            .and_then(Text::of_value)
            .map(|name| Quoted(&name.decode()).to_string())
            .unwrap_or_default();
        let mut result = format!(
            r#"{{"protocolVersion":"{revision}","capabilities":{},"serverInfo":{}"#,
            self.config.capabilities, self.config.server_info
        );
        if let Some(instructions) = &self.config.instructions {
            result.push_str(r#","instructions":"#);
            write_string(&mut result, instructions);
        }
        result.push('}');
        Ok(result)
    }

    fn forward(
        &mut self,
        id: &RequestId,
        method: Text<'_>,
        envelope: &Envelope<'_>,
        revision: Revision,
        meta: RequestMeta<'_>,
        batch: Option<u32>,
    ) -> Result<Served, RpcError> {
        let limit = self.config.limits.requests_open_max;
        if self.open_requests() >= limit {
            return Err(RpcError::new(
                ErrorCode::InternalError,
                format!("busy: {limit} requests are open, limit {limit}"),
            ));
        }
        let key = self.remember(id, revision, meta, batch, None);
        self.events.push_back(ServerEvent::Request(ServerRequest {
            key,
            method: method.decode().into_owned(),
            params: envelope.params.map(Box::from),
            revision,
            wants_progress: meta.progress_token.is_some(),
        }));
        Ok(Served::Later)
    }

    fn remember(
        &mut self,
        id: &RequestId,
        revision: Revision,
        meta: RequestMeta<'_>,
        batch: Option<u32>,
        listening: Option<Changing>,
    ) -> RequestKey {
        let key = RequestKey(self.next_key);
        self.next_key += 1;
        self.open.push(Open {
            key,
            id: id.clone(),
            revision,
            progress_token: meta
                .progress_token
                .filter(|token| is_progress_token(token))
                .map(Box::from),
            batch,
            listening,
            progress: 0,
        });
        if let Some(batch) =
            batch.and_then(|number| self.batches.iter_mut().find(|b| b.number == number))
        {
            batch.waiting += 1;
        }
        key
    }

    fn handle_notification(
        &mut self,
        method: Text<'_>,
        envelope: &Envelope<'_>,
        sink: &mut dyn MessageSink,
    ) {
        if method.is("notifications/initialized") {
            self.initialized = true;
            for (method, params) in std::mem::take(&mut self.held) {
                jsonrpc::write_notification(sink.begin(None), method, Some(&params));
                sink.commit();
            }
        } else if method.is("notifications/cancelled") {
            self.cancel(envelope.params, sink);
        } else {
            self.events.push_back(ServerEvent::Notification {
                method: method.decode().into_owned(),
                params: envelope.params.map(Box::from),
            });
        }
    }

    fn cancel(&mut self, params: Option<&str>, sink: &mut dyn MessageSink) {
        let Some(raw) = params.and_then(|params| member(params, "requestId")) else {
            return;
        };
        let id = RequestId::from_raw(raw);
        let Some(at) = self.open.iter().position(|open| open.id == id) else {
            return;
        };
        let open = self.open.swap_remove(at);
        if open.listening.is_none() {
            self.events.push_back(ServerEvent::Cancelled(open.key));
        }
        if let Some(number) = open.batch {
            self.batch_answered(number, sink);
        }
    }
}

enum Served {
    /// The request is open; its answer comes by [`ServerPeer::respond`].
    Later,
    /// A result of the handshake era.
    Now(String),
    /// A result of the stateless era, and how long it may be kept.
    Modern(String, Option<u64>),
}

/// A progress token is a string or a number that we echo; anything else is no token.
fn is_progress_token(raw: &str) -> bool {
    raw.len() <= 256 && raw.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
}
