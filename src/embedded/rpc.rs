//! Which methods there are, who may call them, and what a call leads to.
//!
//! A handler reads its parameters, changes the store through records and returns an [`Outcome`]; it
//! never sees a connection. What other clients hear of it is [`News`], which the machine spreads.
//!
//! Source: openclaw-serve §1.8; scopes as OpenClaw gives them.

use serde_json::value::RawValue;

use super::approvals::Approval;
use super::journal::{ApprovalKind, Decision};
use super::params::Params;
use super::refusal::Refusal;
use super::store::Store;
use super::{approval_rpc, message_rpc, session_rpc};
use crate::clock::Now;
use crate::entropy::Entropy;
use crate::limits::Limits;

/// A right that a client asked for when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Read,
    Write,
    Approvals,
    Admin,
}

impl Scope {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "operator.read",
            Self::Write => "operator.write",
            Self::Approvals => "operator.approvals",
            Self::Admin => "operator.admin",
        }
    }

    /// Whether `held` includes this right: admin includes all, write includes read.
    pub(super) fn is_held(self, held: &[String]) -> bool {
        let has = |scope: Self| held.iter().any(|s| s == scope.as_str());
        has(self) || has(Self::Admin) || (self == Self::Read && has(Self::Write))
    }
}

/// Who calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller<'a> {
    /// Device id; `None` for the program itself.
    pub(super) device: Option<&'a str>,
    /// Name for people.
    pub(super) name: Option<&'a str>,
    /// Rights asked for at `connect`.
    pub(super) scopes: &'a [String],
}

impl Caller<'_> {
    /// Whether this caller may see and decide `approval`. Source: openclaw-serve §1.7. What the
    /// Gateway itself asks is for everybody: it has no device of its own.
    pub(super) fn sees(&self, approval: &Approval) -> bool {
        match &approval.device {
            None => true,
            Some(requester) => {
                Scope::Admin.is_held(self.scopes) || self.device == Some(requester.as_str())
            }
        }
    }
}

/// Everything a handler works with.
pub(super) struct Desk<'a> {
    pub(super) store: &'a mut Store,
    pub(super) entropy: &'a mut dyn Entropy,
    pub(super) limits: &'a Limits,
    /// Where the store is, for `sessions.list`.
    pub(super) store_label: &'a str,
    pub(super) now: Now,
    pub(super) caller: Caller<'a>,
    /// Requests of this connection that wait for a decision.
    pub(super) waiting: usize,
}

impl Desk<'_> {
    /// Whether one more request may wait for a decision.
    ///
    /// # Errors
    /// The refusal to send back.
    pub(super) fn check_waiting(&self) -> Result<(), Refusal> {
        let (most, found) = (self.limits.requests_open_max, self.waiting);
        if found < most {
            return Ok(());
        }
        Err(Refusal::unavailable(format!(
            "too many requests wait for a decision (requests_open_max {most}, found {found})"
        )))
    }
}

/// What others are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// A message was added; told to subscribers.
    Message { key: String, seq: u64 },
    /// Somebody must decide; told to those who may see it, not to the connection that asked.
    Requested { kind: ApprovalKind, id: String },
    /// Somebody decided; told to those who may see it.
    Resolved {
        kind: ApprovalKind,
        id: String,
        decision: Decision,
        by: Option<String>,
    },
}

impl News {
    /// Whether it leaves before the answer to the request that caused it. Source: openclaw-serve
    /// §1.2.
    pub(super) const fn before_answer(&self) -> bool {
        match self {
            Self::Message { .. } => false,
            Self::Requested { .. } | Self::Resolved { .. } => true,
        }
    }
}

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// This payload, a raw JSON value.
    Now(String),
    /// Whatever is decided about this approval; before that `accepted`, when it is given.
    Decided {
        kind: ApprovalKind,
        id: String,
        accepted: Option<String>,
    },
}

/// What a call leads to.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) answer: Answer,
    pub(super) news: Vec<News>,
    /// Whether the connection's subscription to all sessions begins or ends.
    pub(super) subscribe: Option<bool>,
}

impl Outcome {
    /// An answer and nothing else.
    pub(super) fn answer(payload: impl Into<String>) -> Self {
        Self {
            answer: Answer::Now(payload.into()),
            news: Vec::new(),
            subscribe: None,
        }
    }

    /// The same and something to tell.
    pub(super) fn with_news(mut self, news: News) -> Self {
        self.news.push(news);
        self
    }
}

type Handler = fn(&mut Desk<'_>, &Params<'_>) -> Result<Outcome, Refusal>;

struct Method {
    name: &'static str,
    scope: Scope,
    handler: Handler,
}

const fn method(name: &'static str, scope: Scope, handler: Handler) -> Method {
    Method {
        name,
        scope,
        handler,
    }
}

/// All methods after `connect`.
const METHODS: [Method; 19] = [
    method("sessions.subscribe", Scope::Read, session_rpc::subscribe),
    method(
        "sessions.unsubscribe",
        Scope::Read,
        session_rpc::unsubscribe,
    ),
    method("sessions.list", Scope::Read, session_rpc::list),
    method("sessions.describe", Scope::Read, session_rpc::describe),
    method("sessions.get", Scope::Read, session_rpc::get),
    method("send", Scope::Write, message_rpc::send),
    method("chat.send", Scope::Write, message_rpc::chat_send),
    method("chat.inject", Scope::Admin, message_rpc::chat_inject),
    method("drawspan.post", Scope::Write, message_rpc::post),
    method("drawspan.ask", Scope::Approvals, approval_rpc::ask_everyone),
    method(
        "exec.approval.request",
        Scope::Approvals,
        approval_rpc::exec_request,
    ),
    method(
        "exec.approval.waitDecision",
        Scope::Approvals,
        approval_rpc::exec_wait,
    ),
    method(
        "exec.approval.resolve",
        Scope::Approvals,
        approval_rpc::exec_resolve,
    ),
    method(
        "exec.approval.list",
        Scope::Approvals,
        approval_rpc::exec_list,
    ),
    method(
        "plugin.approval.request",
        Scope::Approvals,
        approval_rpc::plugin_request,
    ),
    method(
        "plugin.approval.waitDecision",
        Scope::Approvals,
        approval_rpc::plugin_wait,
    ),
    method(
        "plugin.approval.resolve",
        Scope::Approvals,
        approval_rpc::plugin_resolve,
    ),
    method(
        "plugin.approval.list",
        Scope::Approvals,
        approval_rpc::plugin_list,
    ),
    method("health", Scope::Read, session_rpc::health),
];

/// Events a client may get, for the hello.
pub(super) const EVENTS: [&str; 8] = [
    "connect.challenge",
    "session.message",
    "tick",
    "shutdown",
    "exec.approval.requested",
    "exec.approval.resolved",
    "plugin.approval.requested",
    "plugin.approval.resolved",
];

/// Names of all methods after `connect`, for the hello.
pub(super) fn method_names() -> impl Iterator<Item = &'static str> {
    METHODS.iter().map(|method| method.name)
}

/// Serves one request.
///
/// # Errors
/// The refusal to send back.
pub(super) fn call(
    desk: &mut Desk<'_>,
    name: &str,
    params: Option<&RawValue>,
) -> Result<Outcome, Refusal> {
    let Some(method) = METHODS.iter().find(|method| method.name == name) else {
        return Err(Refusal::invalid(format!(
            "unknown method: {}",
            crate::secret::Quoted(name)
        )));
    };
    if !method.scope.is_held(desk.caller.scopes) {
        return Err(Refusal::invalid(format!(
            "missing scope: {}",
            method.scope.as_str()
        )));
    }
    let params = Params::read(method.name, params)?;
    (method.handler)(desk, &params)
}
