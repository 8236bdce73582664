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
//! Who stands between a client and a server of its own says so in [`ServerConfig::awaits_introduction`] and
//! [`ServerConfig::relays_subscriptions`]: what only that server knows is then asked of the owner first.
//!
//! Source: mcp-eras §2-§5; Spec: 2025-11-25 basic/lifecycle, 2026-07-28 basic/versioning and
//! basic/patterns/subscriptions.

mod batch;
mod introduction;
mod modern;
mod outgoing;
mod own;
mod relayed;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use self::batch::Batch;
use self::modern::ModernResult;
pub use self::modern::check_modern_meta;
use self::own::Own;
use crate::codec::jsonrpc::{self, Message, Outcome, Reason, RequestId};
use crate::codec::scan::{
    Envelope, IdField, ScanError, ScanLimits, Scanned, Text, readable_id, scan,
};
use crate::codec::shared_text::SharedText;
use crate::limits::Limits;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{LogLevel, RequestMeta, member, string_member};
use crate::protocol::revision::Revision;
use crate::protocol::{Lane, MessageSink};
use crate::secret::Quoted;

/// Names one open request of one peer, for whoever answers it. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey(u64);

impl crate::ids::Key for RequestKey {
    fn number(self) -> u64 {
        self.0
    }
}

/// Names one request of ours to the client. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskKey(u64);

/// What a request of ours to the client is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// This open request of the client: asked on its stream, and of no interest after its answer.
    Request(RequestKey),
    /// The session; asked on the stream of a request that is open, if one is given, else on its own.
    Session(Option<RequestKey>),
}

/// Whose request ids these are: ids are unique within a scope. A session is one scope; of stateless HTTP
/// each exchange is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope(pub u64);

/// What peers tell their clients about the server. The JSON texts are complete objects.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// `serverInfo`.
    pub server_info: String,
    /// `capabilities` of the handshake revisions.
    pub capabilities: String,
    /// `capabilities` of 2026-07-28.
    pub modern_capabilities: String,
    /// Guidance for models, where there is some: a JSON string, as it is written.
    pub instructions: Option<String>,
    /// Lists that may change, and so may be listened to.
    pub changing: Changing,
    /// Whether clients may subscribe to single resources.
    pub resource_updates: bool,
    /// Whether clients may listen to tasks. Spec: extension io.modelcontextprotocol/tasks.
    pub task_updates: bool,
    /// Whether the server is yet to be met: what it is and has is asked by [`ServerEvent::Opens`] and told by
    /// [`ServerPeer::introduce`]. Everything above is then taken for possible and told to nobody.
    pub awaits_introduction: bool,
    /// Whether the owner grants subscriptions to resources, for it has to ask elsewhere:
    /// [`ServerEvent::Subscribes`] and [`ServerEvent::Listens`].
    pub relays_subscriptions: bool,
    /// How long a modern client may keep lists and the discovery, in milliseconds.
    pub cache_ttl_ms: u64,
    /// The limits in force.
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

impl Changing {
    /// All of them.
    pub const ALL: Self = Self {
        tools: true,
        prompts: true,
        resources: true,
    };
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
    /// A client wants to know what the server is and has: to be answered by [`ServerPeer::introduce`], or
    /// refused by [`ServerPeer::refuse_opening`]. Only with [`ServerConfig::awaits_introduction`].
    Opens(RequestKey),
    /// A client of the handshake era subscribes to a resource, or takes that back: to be answered by
    /// [`ServerPeer::respond`], after [`ServerPeer::set_subscribed`] where it is granted. Only with
    /// [`ServerConfig::relays_subscriptions`].
    Subscribes {
        /// The request.
        key: RequestKey,
        /// The resource.
        uri: String,
        /// Whether it is not taken back.
        on: bool,
    },
    /// A listen stream is to tell of these resources as well. It begins with
    /// [`ServerPeer::begin_listening`]. Only with [`ServerConfig::relays_subscriptions`].
    Listens {
        /// The stream.
        key: RequestKey,
        /// The resources, each once; at least one.
        uris: BTreeSet<String>,
    },
    /// A client of the handshake era has said which log messages it wants.
    LogLevel(LogLevel),
    /// A listen stream is to tell of tasks as well. It begins with [`ServerPeer::listen_to_tasks`], which says
    /// of which, or is refused by [`ServerPeer::respond`].
    ListenTasks {
        /// The stream.
        key: RequestKey,
        /// The tasks, each once.
        tasks: BTreeSet<String>,
        /// `clientCapabilities` of the request, a raw object.
        client_capabilities: Box<str>,
    },
    /// The client has answered [`ServerPeer::ask`].
    Answered {
        /// What was asked.
        ask: AskKey,
        /// The raw result, or the raw error object.
        outcome: Result<Box<str>, Box<str>>,
    },
}

/// One request that someone behind the peer answers.
#[derive(Debug)]
pub struct ServerRequest {
    /// For the answer.
    pub key: RequestKey,
    /// Its method.
    pub method: Cow<'static, str>,
    /// Its `params`, a raw JSON object.
    pub params: Option<SharedText>,
    /// `params.name`, decoded, when it is a string.
    pub name: Option<SharedText>,
    /// The raw `params.arguments`, of whatever kind.
    pub arguments: Option<SharedText>,
    /// The revision whose rules apply.
    pub revision: Revision,
    /// Whether [`ServerPeer::progress`] will reach the client.
    pub wants_progress: bool,
    /// Of a modern request that wants log messages: from which severity on.
    pub log_level: Option<LogLevel>,
    /// `clientCapabilities` of a modern request, a raw object; of a session see
    /// [`ServerPeer::client_capabilities`].
    pub client_capabilities: Option<SharedText>,
}

/// An answer to a request.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// A result: a raw JSON object. The peer adds what a revision needs: `resultType`, what a list says of its
    /// life, our member of `_meta`. A result that says these itself keeps its own.
    Result(&'a str),
    /// The same where it is known that the result says none of these itself: it is not looked through.
    Plain(&'a str),
    /// The same for a list, which modern clients may keep for a while.
    List(&'a str),
    /// A result of another type than `complete`; only for requests of the stateless era.
    Typed(&'a str, &'a str),
    /// An error.
    Error(&'a RpcError),
    /// The error of somebody else: a raw error object that is passed on as it is, but for a code that the
    /// revision of the request has no more.
    Passed(&'a str),
}

/// What was not served, counted.
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
    scope: Scope,
    id: RequestId,
    revision: Revision,
    progress_token: Option<Box<str>>,
    /// The last progress told.
    progress: Option<u64>,
    /// Of a modern request that wants log messages.
    log_level: Option<LogLevel>,
    batch: Option<u32>,
    /// Boxed, for most requests are none of these.
    listening: Option<Box<Listening>>,
}

/// What a listen stream was granted.
#[derive(Debug, Default)]
struct Listening {
    lists: Changing,
    resources: BTreeSet<String>,
    tasks: BTreeSet<String>,
    /// It was acknowledged, which comes before everything else.
    begun: bool,
    /// What happened before it had begun: lists that changed, and updates of resources with their raw params.
    lists_held: Vec<List>,
    updates_held: VecDeque<(String, Box<str>)>,
}

/// A request of ours that the client has not answered.
#[derive(Debug)]
struct Asked {
    key: AskKey,
    /// The client's request in whose service it is.
    of: Option<RequestKey>,
}

/// One request as it came in.
#[derive(Clone, Copy)]
struct Facts<'a> {
    scope: Scope,
    id: &'a str,
    method: Text<'a>,
    params: Option<&'a str>,
    name: Option<Text<'a>>,
    arguments: Option<&'a str>,
    meta: RequestMeta<'a>,
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

    /// How many requests wait for an answer, listen streams left out.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.open
            .iter()
            .filter(|open| open.listening.is_none())
            .count()
    }

    /// How many requests and listen streams the scope with the most of each has open, and how many resources
    /// one client or stream is subscribed to.
    #[must_use]
    pub fn open_of_fullest_scope(&self) -> (usize, usize, usize) {
        let mut scopes: BTreeMap<Scope, (usize, usize)> = BTreeMap::new();
        let mut subscribed = self.resources.len();
        for open in &self.open {
            let (requests, listens) = scopes.entry(open.scope).or_default();
            match &open.listening {
                Some(listening) => {
                    *listens += 1;
                    subscribed = subscribed.max(listening.resources.len());
                }
                None => *requests += 1,
            }
        }
        let most = |of: fn(&(usize, usize)) -> usize| scopes.values().map(of).max().unwrap_or(0);
        (most(|of| of.0), most(|of| of.1), subscribed)
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
        self.handle_scanned(scope, bytes, scanned, sink);
    }

    /// Takes one message that the transport had to look into; `bytes` are the whole of it.
    pub fn handle_scanned(
        &mut self,
        scope: Scope,
        bytes: &[u8],
        scanned: Result<Scanned<'_>, ScanError>,
        sink: &mut dyn MessageSink,
    ) {
        match scanned {
            Ok(Scanned::One(envelope)) => self.handle_envelope(scope, envelope, None, sink),
            Ok(Scanned::Batch(members)) => self.handle_batch(scope, &members, sink),
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

    /// The exchange of this scope is gone, and with it everything that was open there. Spec: 2026-07-28
    /// basic/transports/streamable-http (a disconnect cancels).
    pub fn abandon(&mut self, scope: Scope) {
        let (gone, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|open| open.scope == scope);
        self.open = open;
        for open in gone {
            self.forget(&open);
        }
    }

    fn handle_envelope(
        &mut self,
        scope: Scope,
        envelope: Envelope<'_>,
        batch: Option<u32>,
        sink: &mut dyn MessageSink,
    ) {
        match jsonrpc::classify(envelope) {
            Ok(Message::Request {
                id,
                method,
                envelope,
            }) => {
                let meta = envelope.request_meta;
                self.handle_request(
                    Facts {
                        scope,
                        id,
                        method,
                        params: envelope.params,
                        name: envelope.name,
                        arguments: envelope.arguments,
                        meta,
                        batch,
                    },
                    sink,
                );
            }
            Ok(Message::Notification { method, envelope }) => {
                self.handle_notification(scope, method, &envelope, sink);
            }
            Ok(Message::Response { id, outcome, .. }) => self.handle_response(id, outcome),
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
            meta,
            batch,
            ..
        } = facts;
        let known = RequestId::from_raw(id);
        if self
            .open
            .iter()
            .any(|open| open.scope == scope && open.id == known)
        {
            let reason = format!("request id {} is in use", Quoted(id));
            let error = RpcError::new(ErrorCode::InvalidRequest, reason);
            return self.answer_now(id, batch, Err(error), sink);
        }
        let modern =
            meta.is_modern() || method.is("server/discover") || method.is("subscriptions/listen");
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

    fn legacy_request(
        &mut self,
        facts: Facts<'_>,
        sink: &mut dyn MessageSink,
    ) -> Result<Served, RpcError> {
        const EMPTY: Served = Served::Now(Cow::Borrowed("{}"));
        let method = facts.method;
        if method.is("initialize") {
            if facts.batch.is_some() {
                return Err(RpcError::new(
                    ErrorCode::InvalidRequest,
                    "initialize cannot stand in a batch",
                ));
            }
            return self.initialize(facts);
        }
        if method.is("ping") {
            return Ok(EMPTY);
        }
        if method.is("logging/setLevel") {
            let level = facts.params.and_then(|params| member(params, "level"));
            let level = LogLevel::read(level)?;
            self.log_level = Some(level);
            self.events.push_back(ServerEvent::LogLevel(level));
            return Ok(EMPTY);
        }
        let subscribes = method.is("resources/subscribe");
        if self.config.resource_updates && (subscribes || method.is("resources/unsubscribe")) {
            let uri = uri_of(facts.params)?;
            if subscribes {
                self.check_subscription(&uri)?;
            }
            if self.config.relays_subscriptions {
                return self.relay_subscription(facts, uri.into_owned(), subscribes);
            }
            self.set_subscribed(&uri, subscribes);
            return Ok(EMPTY);
        }
        let revision = self.negotiated.unwrap_or(Revision::V2025_11_25);
        self.forward(facts, revision, None, sink)
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
        // The one copy; everything else is a part of it.
        let params = facts.params.map(|params| sink.keep(params));
        let part = |text: &str| match (&params, facts.params) {
            (Some(copy), Some(original)) => copy.part(original, text),
            _ => text.into(),
        };
        self.events.push_back(ServerEvent::Request(ServerRequest {
            key,
            method: method_name(facts.method),
            name: facts.name.map(|name| part(&name.decode())),
            arguments: facts.arguments.map(part),
            revision,
            wants_progress: facts.meta.progress_token.is_some(),
            log_level,
            client_capabilities: facts.meta.client_capabilities.map(part),
            params,
        }));
        Ok(Served::Later)
    }

    /// Whether one more request may be open in a scope.
    fn check_room(&self, scope: Scope) -> Result<(), RpcError> {
        let limit = self.config.limits.requests_open_max;
        let of_scope = |open: &&Open| open.listening.is_none() && open.scope == scope;
        if self.open.iter().filter(of_scope).count() < limit {
            return Ok(());
        }
        Err(RpcError::new(
            ErrorCode::InternalError,
            format!("busy: {limit} requests are open, limit {limit} (requests_open_max)"),
        ))
    }

    fn remember(
        &mut self,
        facts: Facts<'_>,
        revision: Revision,
        log_level: Option<LogLevel>,
        listening: Option<Box<Listening>>,
    ) -> RequestKey {
        let key = RequestKey(self.next_key);
        self.next_key += 1;
        let token = facts
            .meta
            .progress_token
            .filter(|token| token.len() <= self.config.limits.id_bytes_max)
            .filter(|token| is_progress_token(token));
        self.open.push(Open {
            key,
            scope: facts.scope,
            id: RequestId::from_raw(facts.id),
            revision,
            progress_token: token.map(Box::from),
            progress: None,
            log_level,
            batch: facts.batch,
            listening,
        });
        if let Some(batch) = self.batch(facts.batch) {
            batch.expect_one_more();
        }
        key
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

    fn cancel(&mut self, scope: Scope, params: Option<&str>, sink: &mut dyn MessageSink) {
        let Some(raw) = params.and_then(|params| member(params, "requestId")) else {
            return;
        };
        let id = RequestId::from_raw(raw);
        let this = |open: &Open| open.scope == scope && open.id == id;
        let Some(at) = self.open.iter().position(this) else {
            return;
        };
        let open = self.open.swap_remove(at);
        self.forget(&open);
        self.batch_answered(open.batch, Lane::Answer(open.key), sink);
    }

    /// An open request is gone without an answer.
    fn forget(&mut self, open: &Open) {
        self.asked.retain(|asked| asked.of != Some(open.key));
        // The one behind us never knew of a listen stream, but the transport may.
        self.events.push_back(ServerEvent::Cancelled(open.key));
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
fn method_name(method: Text<'_>) -> Cow<'static, str> {
    const OFTEN: [&str; 8] = [
        "tools/call",
        "tools/list",
        "resources/read",
        "resources/list",
        "resources/templates/list",
        "prompts/get",
        "prompts/list",
        "completion/complete",
    ];
    match OFTEN.into_iter().find(|name| method.is(name)) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(method.decode().into_owned()),
    }
}

fn uri_of(params: Option<&str>) -> Result<Cow<'_, str>, RpcError> {
    string_member("uri", params.and_then(|params| member(params, "uri")))
}

/// A progress token is a string or a number that we echo; anything else is no token.
fn is_progress_token(raw: &str) -> bool {
    raw.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
}
