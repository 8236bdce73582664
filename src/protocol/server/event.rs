//! What a peer and the one behind it say to each other: events and answers, and the keys that tie them.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::codec::shared_text::SharedText;
use crate::protocol::error::RpcError;
use crate::protocol::message::LogLevel;
use crate::protocol::revision::Revision;
use crate::protocol::topic::Topic;

/// Names one open request of one peer, for whoever answers it. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey(pub(super) u64);

impl crate::ids::Key for RequestKey {
    fn number(self) -> u64 {
        self.0
    }
}

/// Names one request of ours to the client. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskKey(pub(super) u64);

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

/// What the one behind a peer has to act on.
#[derive(Debug)]
pub enum ServerEvent {
    /// A request to answer by [`ServerPeer::respond`](super::ServerPeer::respond), exactly once, unless it is
    /// cancelled before.
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
    /// A client wants to know what the server is and has: to be answered by
    /// [`ServerPeer::introduce`](super::ServerPeer::introduce), or refused by
    /// [`ServerPeer::refuse_opening`](super::ServerPeer::refuse_opening). Only with
    /// [`ServerConfig::awaits_introduction`](super::ServerConfig::awaits_introduction).
    Opens(RequestKey),
    /// A client of the handshake era subscribes to a resource, or takes that back: to be answered by
    /// [`ServerPeer::respond`](super::ServerPeer::respond), after
    /// [`ServerPeer::set_subscribed`](super::ServerPeer::set_subscribed) where it is granted. Only with
    /// [`ServerConfig::relays_subscriptions`](super::ServerConfig::relays_subscriptions).
    Subscribes {
        /// The request.
        key: RequestKey,
        /// The resource.
        uri: String,
        /// Whether it is not taken back.
        on: bool,
    },
    /// A listen stream is to tell of these topics as well. It begins with
    /// [`ServerPeer::begin_listening`](super::ServerPeer::begin_listening), or is refused by
    /// [`ServerPeer::respond`](super::ServerPeer::respond). Only with
    /// [`ServerConfig::relays_subscriptions`](super::ServerConfig::relays_subscriptions).
    Listens {
        /// The stream.
        key: RequestKey,
        /// The topics, each once; at least one.
        topics: BTreeSet<Topic>,
        /// `clientCapabilities` of the request, a raw object.
        client_capabilities: Box<str>,
    },
    /// A client of the handshake era has said which log messages it wants.
    LogLevel(LogLevel),
    /// A listen stream is to tell of tasks as well. It begins with
    /// [`ServerPeer::listen_to_tasks`](super::ServerPeer::listen_to_tasks), which says of which, or is
    /// refused by [`ServerPeer::respond`](super::ServerPeer::respond). Only without
    /// [`ServerConfig::relays_subscriptions`](super::ServerConfig::relays_subscriptions).
    ListenTasks {
        /// The stream.
        key: RequestKey,
        /// The tasks, each once.
        tasks: BTreeSet<String>,
        /// `clientCapabilities` of the request, a raw object.
        client_capabilities: Box<str>,
    },
    /// The client has answered [`ServerPeer::ask`](super::ServerPeer::ask).
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
    /// Whether [`ServerPeer::progress`](super::ServerPeer::progress) will reach the client.
    pub wants_progress: bool,
    /// Of a modern request that wants log messages: from which severity on.
    pub log_level: Option<LogLevel>,
    /// `clientCapabilities` of a modern request, a raw object; of a session see
    /// [`ServerPeer::client_capabilities`](super::ServerPeer::client_capabilities).
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
