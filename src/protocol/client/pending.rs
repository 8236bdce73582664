//! Requests that wait for their answers: ids, time limits, progress, taking back.
//!
//! | state  | input                         | next   | what happens                                       |
//! |--------|-------------------------------|--------|----------------------------------------------------|
//! | –      | request                       | Sent   | it leaves                                          |
//! | –      | request, too many are open    | –      | Response: busy                                     |
//! | Sent   | an answer                     | –      | Response                                           |
//! | Sent   | a result that wants input     | Asking | Questions; see `questions`                         |
//! | Sent   | the end of its stream (HTTP)  | –      | Response                                           |
//! | Sent   | its time limit, or cancel     | –      | taken back on the wire, Response                   |
//! | Sent   | progress, `total` is given    | Sent   | the time limit starts over, up to the total        |
//! | Sent   | its time limit, a question of the server is open | Sent | the time limit starts over, up to a person's time |
//! | Asking | the last answer               | Sent   | it leaves again, with the answers and a new id     |
//! | Asking | a person's time, or cancel    | –      | QuestionGone for each, Response                    |
//! | any    | the link is gone              | –      | Response                                           |
//!
//! Taking back: a message in the handshake revisions and on lines; over HTTP the stream is closed, which in
//! the stateless era is all of it.
//!
//! Source: Spec 2025-11-25 basic/utilities/cancellation and progress; 2026-07-28 basic/patterns/cancellation.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::compose::{self, Params, Retry};
use super::fault::{CallFault, RemoteError};
use super::peer::{ClientPeer, PeerOutput, Stage, read_id};
use super::questions::Asking;
use super::{Carrier, Dialect, OutgoingKind, RequestEnd};
use crate::clock::{Agenda, Deadline, Now, Uptime};
use crate::codec::json_object::JsonObject;
use crate::codec::scan::Text;
use crate::codec::shared_text::SharedText;
use crate::ids::{IdMap, UpstreamRequestId};
use crate::protocol::message::{META_CLIENT_CAPABILITIES, member};

/// The extension whose results are of type `task`.
const TASKS: &str = "io.modelcontextprotocol/tasks";

/// The capabilities of a client that knows that extension, and nothing else.
pub const KNOWS_TASKS: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// Methods that may be answered by a wish for input. Spec: 2026-07-28 basic/patterns/mrtr.
const MAY_WANT_INPUT: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

/// Requests that are remembered after they were taken back: as many as may be open by default.
const TAKEN_BACK_MAX: usize = 256;

/// One request, as a caller makes it.
#[derive(Clone, Debug)]
pub struct RequestSpec<'a> {
    /// What is asked.
    pub method: Cow<'static, str>,
    /// A raw object. Its bytes are passed on as they are, except for keys of `_meta` that belong to the
    /// conversation.
    pub params: Option<&'a str>,
    /// A value in `params`, as the very same bytes, that nothing of the conversation is in: the arguments of a
    /// call. It is not looked into. `None`, or other bytes, say nothing.
    pub opaque: Option<&'a str>,
    /// How long it may take.
    pub timeout: Duration,
    /// When given, progress starts the time limit over, until this much time has passed in all. The server is
    /// then asked for progress in any case.
    pub total: Option<Duration>,
    /// Whether the caller wants [`PeerOutput::Progress`]; a progress token of its own says so too.
    pub wants_progress: bool,
    /// Headers of this request alone, as [`OutgoingKind::Request`] has them.
    pub headers: Vec<(Box<str>, Box<str>)>,
    /// Hand a result that wants input through, instead of asking. The capabilities in the caller's `_meta`,
    /// if there are any, then take the place of ours.
    pub raw_questions: bool,
    /// What the client of this request has declared, a raw object, in place of
    /// [`PeerConfig::capabilities`](super::peer::PeerConfig::capabilities). Of effect in the stateless era,
    /// where each request says it.
    pub capabilities: Option<&'a str>,
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) caller: UpstreamRequestId,
    method: Cow<'static, str>,
    /// Kept where it may have to be sent again.
    params: Option<Box<str>>,
    headers: Vec<(Box<str>, Box<str>)>,
    timeout: Duration,
    total: Option<Duration>,
    asks_progress: bool,
    tells_progress: bool,
    /// The caller's own progress token, raw.
    token: Option<Box<str>>,
    raw_questions: bool,
    /// In place of those of the conversation.
    pub(super) capabilities: Option<Box<str>>,
    takes_tasks: bool,
    deadline: Uptime,
    /// The latest that progress can move the deadline to.
    total_by: Uptime,
    /// The same for open questions.
    held_by: Uptime,
    /// How often it has been asked for input.
    pub(super) rounds: usize,
}

impl Call {
    /// The time during which a person was thinking does not count.
    pub(super) fn resume(&mut self, now: Now, waited: Duration, patience: Duration) {
        self.total_by = self.total_by.after(waited);
        self.restart(now, patience);
    }

    fn restart(&mut self, now: Now, patience: Duration) {
        self.deadline = now.after(self.timeout).min(self.total_by);
        self.held_by = self.deadline.after(patience);
    }

    fn timed_out(&self) -> CallFault {
        match self.total {
            Some(limit) if self.deadline >= self.total_by => CallFault::TimedOut {
                what: "request in all",
                limit,
            },
            _ => CallFault::TimedOut {
                what: "request",
                limit: self.timeout,
            },
        }
    }
}

/// All requests under way.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// By their id on the wire.
    sent: IdMap<UpstreamRequestId, Call>,
    /// The deadline of each that is sent.
    due: Agenda<UpstreamRequestId>,
    /// Those that wait for answers to the server's questions, by the caller's id.
    pub(super) asking: BTreeMap<UpstreamRequestId, Asking>,
    /// Those taken back last, by their id on the wire: what still comes for them crossed our word, and is no
    /// sign that anything is wrong.
    taken_back: VecDeque<UpstreamRequestId>,
}

impl Pending {
    fn insert_sent(&mut self, wire: UpstreamRequestId, call: Call) {
        self.due.add(call.deadline, wire);
        self.sent.insert(wire, call);
    }

    fn remove_sent(&mut self, wire: UpstreamRequestId) -> Option<Call> {
        let call = self.sent.remove(&wire)?;
        self.due.remove(call.deadline, wire);
        Some(call)
    }

    fn remember_taken_back(&mut self, wire: UpstreamRequestId) {
        if self.taken_back.len() >= TAKEN_BACK_MAX {
            self.taken_back.pop_front();
        }
        self.taken_back.push_back(wire);
    }

    /// Whether this is the answer to a request that was taken back. Each has one at most.
    pub(super) fn is_late(&mut self, wire: UpstreamRequestId) -> bool {
        let found = self.taken_back.iter().position(|id| *id == wire);
        found.is_some_and(|at| self.taken_back.remove(at).is_some())
    }

    pub(super) fn len(&self) -> usize {
        self.sent.len() + self.asking.len()
    }

    pub(super) fn is_sent(&self, wire: UpstreamRequestId) -> bool {
        self.sent.contains_key(&wire)
    }

    /// Whose request this is on the wire.
    pub(super) fn caller_of(&self, wire: UpstreamRequestId) -> Option<UpstreamRequestId> {
        self.sent.get(&wire).map(|call| call.caller)
    }

    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let sent = self.due.first().map(|(at, _)| at);
        let asking = self.asking.values().map(|asking| asking.by).min();
        Deadline::earlier(
            sent.map(|at| Deadline::new(at, "request")),
            asking.map(|at| Deadline::new(at, "answers to questions")),
        )
    }

    fn wire_of(&self, caller: UpstreamRequestId) -> Option<UpstreamRequestId> {
        let same = self.sent.get(&caller).filter(|call| call.caller == caller);
        same.map(|_| caller).or_else(|| {
            let mut all = self.sent.iter();
            all.find(|(_, call)| call.caller == caller)
                .map(|(wire, _)| *wire)
        })
    }
}

impl ClientPeer {
    /// Makes a request. `id` is the caller's name for it and, the first time it is sent, its id on the wire;
    /// it must be new. Answered by exactly one [`PeerOutput::Response`], perhaps at once.
    pub fn request(&mut self, now: Now, id: UpstreamRequestId, spec: RequestSpec<'_>) {
        match self.new_call(now, id, spec) {
            Ok((call, params)) => self.send_call(id, call, &params, None),
            Err(fault) => self.respond(id, Err(fault)),
        }
    }

    fn new_call<'a>(
        &mut self,
        now: Now,
        id: UpstreamRequestId,
        spec: RequestSpec<'a>,
    ) -> Result<(Call, Params<'a>), CallFault> {
        let revision = match (&self.stage, &self.facts) {
            (Stage::Ready, Some(facts)) => facts.revision,
            (Stage::Over(why), _) => return Err(CallFault::Closed(why.clone())),
            (Stage::Ready | Stage::Opening, _) => {
                let why = "the conversation is not open yet";
                return Err(CallFault::Closed(why.to_owned()));
            }
        };
        let (value, limit) = (
            self.calls.len(),
            self.config.limits.upstream_requests_open_max,
        );
        if value >= limit {
            return Err(CallFault::Busy { value, limit });
        }
        if self.calls.is_sent(id) || self.calls.asking.contains_key(&id) {
            let why = format!("request id {id} is in use");
            return Err(CallFault::Violation(why));
        }
        let Some(params) = Params::read(spec.params, spec.opaque) else {
            let why = "params must be an object";
            return Err(CallFault::Violation(why.to_owned()));
        };
        // A caller of a handshake revision means something else by it.
        if params.has_state() && spec.raw_questions && !revision.is_stateless() {
            return Err(CallFault::ForeignState(revision));
        }
        let may_repeat = revision.is_stateless()
            && !spec.raw_questions
            && MAY_WANT_INPUT.contains(&&*spec.method);
        let token = params.token();
        let mut call = Call {
            caller: id,
            takes_tasks: self.declares_tasks(&spec, &params),
            method: spec.method,
            params: spec.params.filter(|_| may_repeat).map(Box::from),
            headers: spec.headers,
            timeout: spec.timeout,
            total: spec.total,
            asks_progress: spec.wants_progress || spec.total.is_some() || token.is_some(),
            tells_progress: spec.wants_progress || token.is_some(),
            token: token.map(Box::from),
            raw_questions: spec.raw_questions,
            capabilities: spec.capabilities.map(Box::from),
            deadline: now.up,
            total_by: spec.total.map_or(far_future(), |total| now.after(total)),
            held_by: now.up,
            rounds: 0,
        };
        call.restart(now, self.config.limits.request_state_ttl);
        Ok((call, params))
    }

    fn declares_tasks(&self, spec: &RequestSpec<'_>, params: &Params<'_>) -> bool {
        let meta = params.meta().filter(|_| spec.raw_questions);
        let own = meta.and_then(|meta| member(meta, META_CLIENT_CAPABILITIES));
        match own.or(spec.capabilities) {
            Some(capabilities) => names_tasks(capabilities),
            None => self.takes_tasks,
        }
    }

    /// Sends a request, for the first time or with answers.
    pub(super) fn send_call(
        &mut self,
        wire: UpstreamRequestId,
        call: Call,
        params: &Params<'_>,
        retry: Option<Retry<'_>>,
    ) {
        let dialect = self.dialect();
        let buffer = std::mem::take(&mut self.spare);
        let mut add = self.additions(dialect, call.raw_questions);
        if let (Some(stateless), Some(capabilities)) = (&mut add.stateless, &call.capabilities) {
            stateless.capabilities = capabilities;
        }
        add.token = call.asks_progress.then_some(wire);
        add.retry = retry;
        let body = compose::request(buffer, wire, &call.method, params, &add);
        let by_header = self.config.carrier == Carrier::Http && is_stateless(dialect);
        let kind = OutgoingKind::Request {
            id: wire,
            method: call.method.clone(),
            name: by_header.then(|| params.name(&call.method)).flatten(),
            headers: call.headers.clone(),
        };
        self.calls.insert_sent(wire, call);
        self.send(kind, dialect, body);
    }

    /// Sends a request again, with the answers it needs.
    pub(super) fn send_call_again(&mut self, call: Call, retry: Retry<'_>) {
        match self.own_id() {
            Some(wire) => {
                let raw = call.params.clone();
                let params = Params::read(raw.as_deref(), None).unwrap_or_default();
                self.send_call(wire, call, &params, Some(retry));
            }
            None => {
                let why = "out of request ids";
                self.respond(call.caller, Err(CallFault::Violation(why.to_owned())));
            }
        }
    }

    /// Takes a request back: its answer is [`CallFault::Cancelled`]. Unknown ids are ignored.
    pub fn cancel(&mut self, _now: Now, id: UpstreamRequestId, reason: &str) {
        if let Some(asking) = self.calls.asking.remove(&id) {
            self.questions_of_call_gone(&asking);
            return self.respond(id, Err(CallFault::Cancelled));
        }
        if let Some(wire) = self.calls.wire_of(id) {
            self.calls.remove_sent(wire);
            self.take_back(wire, reason);
            self.respond(id, Err(CallFault::Cancelled));
        }
    }

    /// Tells the server that no answer is wanted any more.
    pub(super) fn take_back(&mut self, wire: UpstreamRequestId, reason: &str) {
        let closes = self.config.carrier == Carrier::Http
            && self
                .facts
                .as_ref()
                .is_some_and(|facts| facts.revision.disconnect_cancels());
        if !closes {
            let mut params = JsonObject::new();
            params.raw("requestId", &wire.to_string());
            params.text("reason", reason);
            self.send_notification("notifications/cancelled", Some(&params.end()));
        }
        self.calls.remember_taken_back(wire);
        self.forget(wire);
    }

    pub(super) fn respond(
        &mut self,
        id: UpstreamRequestId,
        outcome: Result<SharedText, CallFault>,
    ) {
        self.push(PeerOutput::Response { id, outcome });
    }

    pub(super) fn call_answered(
        &mut self,
        now: Now,
        wire: UpstreamRequestId,
        outcome: Result<SharedText, RemoteError>,
    ) {
        let Some(call) = self.calls.remove_sent(wire) else {
            return;
        };
        let result = match outcome {
            Ok(result) => result,
            Err(error) => return self.respond(call.caller, Err(error.into())),
        };
        if !result.starts_with('{') {
            let why = format!("result of {} is no object", call.method);
            return self.respond(call.caller, Err(CallFault::Violation(why)));
        }
        let kind = match self.is_stateless() {
            true => member(&result, "resultType"),
            false => None,
        };
        let Some(kind) = kind else {
            return self.respond(call.caller, Ok(result));
        };
        let kind = Text::of_value(kind);
        let is = |name| kind.is_some_and(|kind| kind.is(name));
        if is("complete")
            || (is("input_required") && call.raw_questions)
            || (is("task") && call.takes_tasks)
        {
            return self.respond(call.caller, Ok(result));
        }
        if is("input_required") && MAY_WANT_INPUT.contains(&&*call.method) {
            return self.ask(now, call, &result);
        }
        let shown = kind.map_or_else(|| "no string".to_owned(), super::peer::shown);
        let why = format!("result of {} has the type {shown}", call.method);
        self.respond(call.caller, Err(CallFault::Violation(why)));
    }

    /// HTTP: nothing more comes for a request. A JSON-RPC error in the body is its answer, unless the status
    /// is about who asks, or how often.
    pub(super) fn call_ended(&mut self, wire: UpstreamRequestId, end: RequestEnd) {
        let Some(call) = self.calls.remove_sent(wire) else {
            return;
        };
        let fault = match &end {
            RequestEnd::Status(status)
                if !matches!(status.status, 401 | 407 | 429 | 503)
                    && status.challenge.is_none()
                    && status.retry_after_ms.is_none() =>
            {
                RemoteError::in_body(status, &self.scan_limits).map(CallFault::from)
            }
            RequestEnd::Status(_)
            | RequestEnd::NotSent(_)
            | RequestEnd::SessionLost { .. }
            | RequestEnd::SessionDoubtful(_)
            | RequestEnd::NotReading { .. }
            | RequestEnd::Accepted
            | RequestEnd::ContentType { .. }
            | RequestEnd::Broken(_)
            | RequestEnd::TooLarge { .. }
            | RequestEnd::Redirect { .. } => None,
        };
        self.respond(call.caller, Err(fault.unwrap_or(CallFault::End(end))));
    }

    /// What came for a request is no answer, and there will be no other.
    pub(super) fn call_violated(&mut self, wire: UpstreamRequestId, why: &str) {
        if let Some(call) = self.calls.remove_sent(wire) {
            self.forget(wire);
            self.respond(call.caller, Err(CallFault::Violation(why.to_owned())));
        }
    }

    pub(super) fn calls_closed(&mut self, why: &str) {
        let calls = std::mem::take(&mut self.calls);
        let mut sent: Vec<_> = calls
            .sent
            .iter()
            .map(|(wire, call)| (*wire, call.caller))
            .collect();
        sent.sort_unstable();
        let sent = sent.into_iter().map(|(_, caller)| caller);
        for caller in sent.chain(calls.asking.into_keys()) {
            self.respond(caller, Err(CallFault::Closed(why.to_owned())));
        }
    }

    pub(super) fn progress(&mut self, now: Now, params: Option<&str>, raw: &[u8]) {
        let token = params.and_then(|params| member(params, "progressToken"));
        let wire = token.and_then(read_id).map(|(wire, _)| wire);
        if wire.is_some_and(|wire| self.calls.taken_back.contains(&wire)) {
            return log::debug!("progress of a request that was taken back");
        }
        let Pending { sent, due, .. } = &mut self.calls;
        let call = wire.and_then(|wire| Some((wire, sent.get_mut(&wire)?)));
        let call = call.filter(|(_, call)| call.asks_progress);
        let (Some(params), Some((wire, call))) = (params, call) else {
            return self.noise("progress of no request that is open", raw);
        };
        if call.total.is_some() {
            let before = call.deadline;
            call.restart(now, self.config.limits.request_state_ttl);
            due.change(wire, Some(before), Some(call.deadline));
        }
        if call.tells_progress {
            let params = match &call.token {
                Some(token) => compose::with_token(params, token),
                None => params.into(),
            };
            let id = call.caller;
            self.push(PeerOutput::Progress { id, params });
        }
    }

    pub(super) fn calls_timeout(&mut self, now: Now) {
        let due = |at: Uptime| at <= now.up;
        while let Some(wire) = self.calls.due.first_due(now.up) {
            let held = self.questions.hold(wire);
            let Pending {
                sent, due: agenda, ..
            } = &mut self.calls;
            let Some(call) = sent.get_mut(&wire) else {
                return;
            };
            if held && call.deadline < call.held_by && !due(call.total_by) {
                let most = call.held_by.min(call.total_by);
                let before = call.deadline;
                call.deadline = now.after(call.timeout).min(most);
                agenda.change(wire, Some(before), Some(call.deadline));
                if !due(call.deadline) {
                    continue;
                }
            }
            let (id, fault) = (call.caller, call.timed_out());
            self.calls.remove_sent(wire);
            self.take_back(wire, &fault.to_string());
            self.respond(id, Err(fault));
        }
        let asking = self.calls.asking.iter();
        let late: Vec<_> = asking
            .filter(|(_, asking)| due(asking.by))
            .map(|(caller, _)| *caller)
            .collect();
        for caller in late {
            if let Some(asking) = self.calls.asking.remove(&caller) {
                self.questions_of_call_gone(&asking);
                let limit = self.config.limits.request_state_ttl;
                let what = "answers to the server's questions";
                self.respond(caller, Err(CallFault::TimedOut { what, limit }));
            }
        }
    }
}

/// Whether a raw `ClientCapabilities` says that results may be tasks.
pub(super) fn names_tasks(capabilities: &str) -> bool {
    let extensions = member(capabilities, "extensions");
    extensions.is_some_and(|extensions| member(extensions, TASKS).is_some())
}

const fn is_stateless(dialect: Dialect) -> bool {
    match dialect {
        Dialect::Stateless(_) => true,
        Dialect::Handshake | Dialect::Session(_) => false,
    }
}

fn far_future() -> Uptime {
    Uptime::from_start(Duration::MAX)
}
