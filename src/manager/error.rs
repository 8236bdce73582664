//! Why something asked of an upstream server did not happen, in the words and members of the command
//! line's contract.

use crate::codec::json_object::JsonObject;
use crate::codec::json_text::write_string;
use crate::manager::server_config::ServerKey;
use crate::protocol::client::peer::RemoteError;

/// The part of the work in which something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading its record.
    Config,
    /// Starting its process.
    Spawn,
    /// Opening a connection.
    Connect,
    /// `server/discover`.
    Discover,
    /// `initialize`.
    Initialize,
    /// Walking a list.
    List,
    /// A request.
    Call,
    /// Ending it.
    Close,
}

impl Phase {
    /// The word in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Spawn => "spawn",
            Self::Connect => "connect",
            Self::Discover => "discover",
            Self::Initialize => "initialize",
            Self::List => "list",
            Self::Call => "call",
            Self::Close => "close",
        }
    }
}

/// What kind of failure it was; decides exit codes, retries and the failure pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The record cannot be used.
    Config,
    /// Nobody there: no such program, refused, no answer at all.
    Unreachable,
    /// 401, or 403 with a challenge.
    Authorization,
    /// A time limit.
    TimedOut,
    /// A size or count limit.
    Limit,
    /// The peer broke the protocol, or speaks none of our revisions.
    Protocol,
    /// The server died or hung up.
    Closed,
    /// The server answered with a JSON-RPC error.
    Remote,
    /// The server needs an answer of the client, which refused it or has not declared that it gives such
    /// answers. The error that says so stands in [`Facts::rpc`].
    Unanswered,
    /// The arguments do not match the tool's schema, or there is no such tool; nothing was sent.
    Arguments,
    /// The server says it has too much to do (429, 503), or is paused after failures.
    Unavailable,
    /// The runtime or the manager was ended.
    Disposed,
    /// The caller took it back.
    Cancelled,
    /// Anything else.
    Other,
}

/// A failure, as every caller is told: one line and what is known beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamError {
    /// Whose.
    pub server: ServerKey,
    /// In which part of the work.
    pub phase: Phase,
    /// What kind.
    pub kind: FailureKind,
    /// One line that names the server, the limit and the value; secrets masked, foreign text escaped.
    pub message: String,
    /// The facts in it, as data.
    pub facts: Box<Facts>,
}

/// The members of `error.data`. Source: the command line's contract (errors).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The JSON-RPC error the server sent.
    pub rpc: Option<RemoteError>,
    /// `exitCode`.
    pub exit_code: Option<i32>,
    /// `signal`, by name.
    pub signal: Option<String>,
    /// `stderr`: the tail, escaped.
    pub stderr: Option<String>,
    /// `status` of HTTP.
    pub status: Option<u16>,
    /// `contentType`.
    pub content_type: Option<String>,
    /// `body`: at most 200 bytes, escaped.
    pub body: Option<String>,
    /// `limit`.
    pub limit: Option<u64>,
    /// `value`.
    pub value: Option<u64>,
    /// `retryInMs`.
    pub retry_in_ms: Option<u64>,
    /// `supported` protocol versions.
    pub supported: Vec<String>,
    /// `challenge`: name and value pairs of `WWW-Authenticate`.
    pub challenge: Vec<(String, String)>,
    /// It provably never ran.
    pub never_ran: bool,
}

impl UpstreamError {
    /// A failure about which nothing else is known.
    #[must_use]
    pub fn new(server: &ServerKey, phase: Phase, kind: FailureKind, message: String) -> Self {
        Self {
            server: server.clone(),
            phase,
            kind,
            message,
            facts: Box::default(),
        }
    }

    /// The JSON-RPC code: the server's own, else "internal error".
    #[must_use]
    pub fn code(&self) -> i64 {
        match (&self.facts.rpc, self.kind) {
            (Some(error), _) => error.code,
            (None, FailureKind::Arguments) => -32602,
            (None, _) => -32603,
        }
    }

    /// `error.data`, as one raw JSON object.
    #[must_use]
    pub fn data(&self) -> String {
        let mut data = JsonObject::new();
        data.text("server", self.server.as_str());
        data.text("phase", self.phase.as_str());
        let facts = &self.facts;
        data.number("exitCode", facts.exit_code.map(i64::from));
        data.maybe_text("signal", facts.signal.as_deref());
        data.maybe_text("stderr", facts.stderr.as_deref());
        data.number("status", facts.status.map(i64::from));
        data.maybe_text("contentType", facts.content_type.as_deref());
        data.maybe_text("body", facts.body.as_deref());
        data.count("limit", facts.limit);
        data.count("value", facts.value);
        data.count("retryInMs", facts.retry_in_ms);
        if !facts.supported.is_empty() {
            let mut list = String::from("[");
            for (i, version) in facts.supported.iter().enumerate() {
                if i > 0 {
                    list.push(',');
                }
                write_string(&mut list, version);
            }
            list.push(']');
            data.raw("supported", &list);
        }
        if !facts.challenge.is_empty() {
            let mut challenge = JsonObject::new();
            for (name, value) in &facts.challenge {
                challenge.text(name, value);
            }
            data.raw("challenge", &challenge.end());
        }
        if let Some(own) = facts.rpc.as_ref().and_then(|error| error.data.as_ref()) {
            data.raw("error", own);
        }
        data.end()
    }
}

impl std::fmt::Display for UpstreamError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for UpstreamError {}
