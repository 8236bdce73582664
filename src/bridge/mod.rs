//! The channel bridge: OpenClaw conversations, events and approvals as MCP tools.
//!
//! One plain machine between the hub, which brings calls and takes answers, and the Gateway session,
//! which brings events and answers requests. Calls answered from memory (`events_poll`,
//! `permissions_list_open`, an `events_wait` with something queued) are answered in the same turn.
//!
//! | state | tool call that needs the Gateway | `handle_ready` | `handle_lost` | `close` |
//! |---|---|---|---|---|
//! | never ready | held, see [`steps`] | → ready; held calls go out; approvals are listed | – | → closed |
//! | ready | asked | – | → lost, with the reason | → closed |
//! | lost | held; `permissions_respond` asked at once | → ready, as above; a gap event is queued | the first reason stays | → closed |
//! | closed | refused | – | – | – |
//!
//! | Gateway event | queue | tables | notification |
//! |---|---|---|---|
//! | `session.message` that answers a prompt | – | prompt goes | `…/channel/permission` |
//! | `session.message`, other | `message` | prompts may be announced | `…/channel`, for role `user` with a route, unless mode `off` |
//! | `exec.approval.*`, `plugin.approval.*` | `…_requested`, `…_resolved` | approval comes, goes | – |
//! | anything else | – | – | – |
//!
//! Source: OpenClaw `openclaw-serve` §3.3 to §3.7. Events that cannot be read are counted, reported now
//! and then, and skipped.

mod approvals;
mod conversation;
mod permissions;
mod queue;
mod raw_json;
mod steps;
mod tools;
mod waiters;

use std::collections::{BTreeSet, VecDeque};

use serde_json::value::RawValue;

use self::approvals::{Approvals, Kind, NoId};
use self::conversation::{Incoming, write_member};
use self::permissions::{NotTheirs, Permissions, Verdict};
use self::queue::{Event, EventQueue, Scope};
use self::raw_json::{elements, is_object, is_string, members, string};
use self::steps::{Asker, Next, Steps};
use self::tools::{Ask, Invocation, TOOLS};
use self::waiters::{Waiters, Wish};
use crate::clock::{Deadline, Now};
use crate::codec::json_text::write_string;
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::entropy::Entropy;
use crate::gate::GatedCall;
use crate::gateway::session::GatewayError;
use crate::ids::CallId;
use crate::limits::Limits;
use crate::protocol::message::ToolResult;
use crate::secret::Quoted;

pub use self::tools::{ToolDef, not_found};

/// What the bridge does with chat messages beside queueing them. OpenClaw: `--claude-channel-mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelMode {
    /// As `On`.
    #[default]
    Auto,
    /// Messages of users are announced to the client as `notifications/claude/channel`, and the two
    /// capabilities are declared.
    On,
    /// They are not. Permission prompts work all the same.
    Off,
}

impl ChannelMode {
    /// Whether messages are announced and the capabilities declared.
    #[must_use]
    pub const fn announces(self) -> bool {
        match self {
            Self::Auto | Self::On => true,
            Self::Off => false,
        }
    }
}

/// One open request of the bridge to the Gateway. Minted by the bridge, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What the bridge wants done. Drained to `None` after every input.
#[derive(Debug)]
pub enum BridgeOutput {
    /// The one answer to a call.
    Answer {
        /// The call.
        call: CallId,
        /// Its result.
        result: ToolResult,
    },
    /// A request to the Gateway. Its outcome comes back by [`Bridge::handle_response`].
    Request {
        /// To name it by.
        ticket: Ticket,
        /// Method.
        method: &'static str,
        /// A raw JSON object.
        params: String,
    },
    /// A notification to the client.
    Notify {
        /// Method.
        method: &'static str,
        /// A raw JSON object.
        params: String,
    },
    /// Progress of a call, for a client that asked for it.
    Progress {
        /// The call.
        call: CallId,
        /// Milliseconds waited; rises from report to report.
        progress: u64,
        /// Milliseconds it will wait at most.
        total: Option<u64>,
        /// For a person.
        message: String,
    },
    /// Something to tell the person who runs us.
    Diagnostic(Diagnostic),
}

/// State of the link, as the bridge sees it.
#[derive(Debug)]
enum Link {
    NeverReady,
    Ready,
    Lost { why: String },
    Closed,
}

/// The bridge. See the module for its states.
#[derive(Debug)]
pub struct Bridge {
    mode: ChannelMode,
    verbose: bool,
    link: Link,
    queue: EventQueue,
    waiters: Waiters,
    approvals: Approvals,
    permissions: Permissions,
    steps: Steps,
    /// Events that could not be read, ever.
    malformed: u64,
    /// Evictions of approvals and of prompts that have been looked at.
    evictions_seen: (u64, u64),
    /// List methods whose failure has been reported.
    list_faults: BTreeSet<&'static str>,
    outputs: VecDeque<BridgeOutput>,
}

/// Whether the `n`th of something is worth a line: the first, and each power of two.
const fn is_worth_a_line(n: u64) -> bool {
    n.is_power_of_two()
}

impl Bridge {
    /// A bridge whose link has never been ready. `verbose` adds a line for each permission prompt.
    #[must_use]
    pub fn new(limits: &Limits, mode: ChannelMode, verbose: bool) -> Self {
        Self {
            mode,
            verbose,
            link: Link::NeverReady,
            queue: EventQueue::new(limits),
            waiters: Waiters::new(limits),
            approvals: Approvals::new(limits),
            permissions: Permissions::new(limits),
            steps: Steps::new(limits),
            malformed: 0,
            evictions_seen: (0, 0),
            list_faults: BTreeSet::new(),
            outputs: VecDeque::new(),
        }
    }

    /// The tools, in the order of OpenClaw's list.
    #[must_use]
    pub fn tool_list() -> &'static [ToolDef] {
        &TOOLS
    }

    /// Whether a call of this tool belongs here.
    #[must_use]
    pub fn owns(tool: &str) -> bool {
        TOOLS.iter().any(|def| def.name == tool)
    }

    /// A call has passed the gate. It gets exactly one [`BridgeOutput::Answer`], unless it is cancelled.
    pub fn call(&mut self, now: Now, call: GatedCall, entropy: &mut dyn Entropy) {
        let id = call.id();
        let invocation = match tools::read(call.tool(), call.arguments()) {
            Ok(invocation) => invocation,
            Err(text) => return self.answer(id, ToolResult::error(&text)),
        };
        if matches!(self.link, Link::Closed) {
            return self.answer(id, ToolResult::error("bridge is closed"));
        }
        match invocation {
            Invocation::Ask(ask) => self.ask(now, id, ask, entropy),
            Invocation::Poll {
                after,
                session,
                limit,
            } => {
                let result = poll_result(&self.queue, after, session.as_deref(), limit);
                self.answer(id, result);
            }
            Invocation::Wait {
                after,
                session,
                timeout,
            } => {
                let wish = Wish {
                    after,
                    session,
                    timeout,
                    dropped: self.queue.dropped(after),
                };
                self.wait(now, id, wish, call.wants_progress());
            }
            Invocation::ListOpen => {
                self.approvals.expire(now);
                let mut json = String::from("{\"approvals\":");
                self.approvals.write(&mut json);
                json.push('}');
                let text = format!("approvals: {}", self.approvals.len());
                self.answer(id, ToolResult::structured(&text, &json));
            }
        }
    }

    fn ask(&mut self, now: Now, id: CallId, ask: Ask, entropy: &mut dyn Entropy) {
        let may_wait = !matches!(ask, Ask::Respond { .. });
        let request = match steps::begin(ask, entropy) {
            Ok(request) => request,
            Err(result) => return self.answer(id, result),
        };
        let done = if may_wait && !matches!(self.link, Link::Ready) {
            self.steps.hold(now, id, request)
        } else {
            self.steps
                .ask(id, request)
                .map(|output| self.outputs.push_back(output))
        };
        if let Err(error) = done {
            self.answer(id, ToolResult::error(&error.to_string()));
        }
    }

    fn wait(&mut self, now: Now, id: CallId, wish: Wish, wants_progress: bool) {
        let first = self.queue.after(wish.after, wish.session.as_deref()).next();
        if let Some(event) = first {
            let result = event_result(Some(event), wish.dropped);
            self.answer(id, result);
        } else if let Err(error) = self.waiters.add(now, id, wish, wants_progress) {
            self.answer(id, ToolResult::error(&error.to_string()));
        }
    }

    /// Nobody wants the answer of this call any more. Unknown calls are ignored.
    pub fn cancel(&mut self, call: CallId) {
        let _ = self.waiters.cancel(call) || self.steps.cancel(call);
    }

    /// The link got ready, for the first time or again.
    pub fn handle_ready(&mut self, now: Now, first: bool) {
        let why = match std::mem::replace(&mut self.link, Link::Ready) {
            Link::NeverReady => (!first).then(|| "unknown".to_owned()),
            Link::Lost { why } => Some(why),
            Link::Ready => return,
            Link::Closed => {
                self.link = Link::Closed;
                return;
            }
        };
        if let Some(why) = why {
            self.queue_gap(&why);
        }
        self.outputs.extend(self.steps.release());
        self.approvals.expire(now);
        for kind in [Kind::Exec, Kind::Plugin] {
            let request = self.steps.ask_approvals(kind, self.approvals.mark());
            self.outputs.push_back(request);
        }
    }

    /// The link is lost, or could not be made again. `why` is in words for a person. Requests that were
    /// open are answered by the session, not from here.
    pub fn handle_lost(&mut self, _now: Now, why: &str) {
        if matches!(self.link, Link::Ready) {
            self.link = Link::Lost {
                why: why.to_owned(),
            };
        }
    }

    fn queue_gap(&mut self, why: &str) {
        let reason = format!(
            "gateway connection lost: {}; events between were not delivered",
            Quoted(why)
        );
        let event = self.queue.push(Scope::All, reason.len() + 32, |json| {
            json.push_str("\"type\":\"gap\"");
            write_member(json, "reason", Some(&reason));
        });
        wake(&mut self.waiters, &mut self.outputs, event);
    }

    /// The Gateway sent an event. Those we do not know are ignored.
    pub fn handle_event(&mut self, now: Now, name: &str, payload: Option<Box<RawValue>>) {
        if matches!(self.link, Link::Closed) {
            return;
        }
        let payload = payload.as_deref();
        match name {
            "session.message" => self.handle_message(payload),
            "exec.approval.requested" => {
                self.handle_approval(
                    now,
                    name,
                    payload,
                    "exec_approval_requested",
                    Some(Kind::Exec),
                );
            }
            "plugin.approval.requested" => {
                self.handle_approval(
                    now,
                    name,
                    payload,
                    "plugin_approval_requested",
                    Some(Kind::Plugin),
                );
            }
            "exec.approval.resolved" => {
                self.handle_approval(now, name, payload, "exec_approval_resolved", None);
            }
            "plugin.approval.resolved" => {
                self.handle_approval(now, name, payload, "plugin_approval_resolved", None);
            }
            _ => {}
        }
    }

    fn handle_message(&mut self, payload: Option<&RawValue>) {
        let message = match Incoming::read(payload) {
            Ok(message) => message,
            Err(what) => return self.malformed("session.message", what),
        };
        if !self.permissions.is_empty() && self.settles_prompt(&message) {
            return;
        }
        let raw = payload.map_or("{}", RawValue::get);
        let scope = Scope::Session((&*message.session_key).into());
        let event = self.queue.push(scope, raw.len() + 512, |json| {
            write_message(json, &message, raw)
        });
        // The notification goes out before the answers, as in the recordings.
        if self.mode.announces() && message.role.as_deref() == Some("user") {
            self.outputs.extend(channel_notification(&message));
        }
        wake(&mut self.waiters, &mut self.outputs, event);
    }

    /// Whether the message answered a pending prompt, and so is no message for anybody else. OpenClaw
    /// does not queue such a message either.
    fn settles_prompt(&mut self, message: &Incoming<'_>) -> bool {
        let session = &*message.session_key;
        let text = message.text.and_then(string).unwrap_or_default();
        let settled = match self
            .permissions
            .message(session, message.role.as_deref(), &text)
        {
            Verdict::Ordinary => false,
            Verdict::Answered {
                code,
                allow,
                announced,
            } => {
                let behavior = if allow { "allow" } else { "deny" };
                self.outputs.push_back(BridgeOutput::Notify {
                    method: "notifications/claude/channel/permission",
                    params: format!("{{\"request_id\":\"{code}\",\"behavior\":\"{behavior}\"}}"),
                });
                if !announced {
                    self.warn(format!(
                        "permission prompt {code} was answered ({behavior}) from session {}, though no \
                         session had been shown its code",
                        Quoted(session)
                    ));
                }
                true
            }
            Verdict::NotTheirs { code, why } => {
                let why = match why {
                    NotTheirs::Role => {
                        let role = message.role.as_deref().unwrap_or("absent");
                        format!("its role is {}, not user", Quoted(role))
                    }
                    NotTheirs::AnnouncedIn(other) => {
                        format!("the prompt was shown in session {}", Quoted(&other))
                    }
                };
                self.warn(format!(
                    "a message in session {} does not answer permission prompt {code}: {why}",
                    Quoted(session)
                ));
                false
            }
        };
        if message.role.as_deref() == Some("assistant") {
            for text in message.texts().into_iter().filter_map(string) {
                self.permissions.announced(session, &text);
            }
        }
        settled
    }

    fn handle_approval(
        &mut self,
        now: Now,
        name: &str,
        payload: Option<&RawValue>,
        kind_of_event: &str,
        requested: Option<Kind>,
    ) {
        let payload = payload.filter(|raw| raw.get() != "null");
        if payload.is_some_and(|raw| !is_object(raw)) {
            return self.malformed(name, "the payload is no object");
        }
        let tracked = match (payload, requested) {
            (Some(raw), Some(kind)) => self.approvals.requested(now, kind, raw),
            (Some(raw), None) => self.approvals.resolved(raw),
            (None, _) => Err(NoId),
        };
        if tracked == Err(NoId) {
            self.malformed(name, "there is no id");
        }
        self.report_evictions();
        // Queued all the same: clients of OpenClaw see such an event, too.
        let raw = payload.map_or("{}", RawValue::get);
        let event = self.queue.push(Scope::Unscoped, raw.len() + 64, |json| {
            json.push_str("\"type\":\"");
            json.push_str(kind_of_event);
            json.push_str("\",\"raw\":");
            json.push_str(raw);
        });
        wake(&mut self.waiters, &mut self.outputs, event);
    }

    fn report_evictions(&mut self) {
        let now = (self.approvals.evicted(), self.permissions.evicted());
        let before = std::mem::replace(&mut self.evictions_seen, now);
        for (what, before, now) in [
            ("approvals", before.0, now.0),
            ("permission prompts", before.1, now.1),
        ] {
            if now > before && is_worth_a_line(now) {
                self.warn(format!(
                    "more pending {what} than approvals_pending_max allows: the oldest was forgotten, \
                     {now} so far"
                ));
            }
        }
    }

    fn malformed(&mut self, name: &str, what: &str) {
        self.malformed += 1;
        let count = self.malformed;
        if is_worth_a_line(count) {
            self.warn(format!(
                "gateway event {name} cannot be used: {what} ({count} such events so far)"
            ));
        }
    }

    /// The Gateway answered, or will not. Outcomes of calls that were cancelled are dropped.
    pub fn handle_response(
        &mut self,
        now: Now,
        ticket: Ticket,
        outcome: Result<Box<RawValue>, GatewayError>,
    ) {
        match (self.steps.answered(ticket), outcome) {
            (None, _) => {}
            (Some(Asker::Call { call, step, method }), Ok(payload)) => {
                match steps::advance(step, method, &payload) {
                    Next::Answer(result) => self.answer(call, result),
                    Next::Send {
                        request,
                        session_key,
                        text,
                    } => {
                        if let Some(text) = string(&text) {
                            self.permissions.announced(&session_key, &text);
                        }
                        let output = self.steps.go_on(call, request);
                        self.outputs.push_back(output);
                    }
                }
            }
            (Some(Asker::Call { call, .. }), Err(error)) => {
                self.answer(call, ToolResult::error(&error.to_string()));
            }
            (Some(Asker::Approvals { kind, mark }), Ok(payload)) => {
                self.merge_approvals(now, kind, mark, &payload);
            }
            (Some(Asker::Approvals { kind, .. }), Err(error)) => match error {
                GatewayError::Remote { .. }
                | GatewayError::TimedOut { .. }
                | GatewayError::Busy { .. }
                | GatewayError::TooLarge { .. } => {
                    let text = error.to_string();
                    self.list_fault(kind, &format!("{}", Quoted(&text)));
                }
                // The next link asks again.
                GatewayError::NotConnected { .. } | GatewayError::Closed { .. } => {}
            },
        }
    }

    fn merge_approvals(&mut self, now: Now, kind: Kind, mark: u64, payload: &RawValue) {
        let Some(list) = elements(payload) else {
            return self.list_fault(kind, "the answer is no list");
        };
        let unreadable = self.approvals.listed(now, kind, mark, &list);
        if unreadable > 0 {
            self.list_fault(kind, &format!("{unreadable} entries have no id"));
        }
        self.report_evictions();
    }

    fn list_fault(&mut self, kind: Kind, what: &str) {
        let method = kind.list_method();
        if self.list_faults.insert(method) {
            self.warn(format!(
                "{method} failed: {what}; approvals from before the connection may be missing"
            ));
        }
    }

    /// The client sent a notification. Those we do not know are ignored; a permission prompt that lacks
    /// one of its four strings is ignored, too, as in OpenClaw.
    pub fn handle_notification(&mut self, now: Now, method: &str, params: Option<&str>) {
        if method != "notifications/claude/channel/permission_request"
            || matches!(self.link, Link::Closed)
        {
            return;
        }
        let names = ["request_id", "tool_name", "description", "input_preview"];
        let found = members(params.unwrap_or("null"), names);
        let Ok([Some(id), Some(tool), Some(description), Some(preview)]) = found else {
            return;
        };
        if ![id, tool, description, preview].into_iter().all(is_string) {
            return;
        }
        let request_id = string(id).unwrap_or_default();
        self.permissions.requested(now, &request_id);
        self.report_evictions();
        if self.verbose {
            let message = format!("pending Claude permission {}", Quoted(&request_id));
            self.diagnose(Level::Info, message);
        }
        let event = self.queue.push(Scope::Unscoped, 256, |json| {
            json.push_str("\"type\":\"claude_permission_request\"");
            for (name, value) in [
                ("requestId", id),
                ("toolName", tool),
                ("description", description),
                ("inputPreview", preview),
            ] {
                write_raw(json, name, value.get());
            }
        });
        wake(&mut self.waiters, &mut self.outputs, event);
    }

    /// Time passed. Early or repeated calls are harmless.
    pub fn handle_timeout(&mut self, now: Now) {
        for done in self.waiters.expire(now) {
            self.answer(done.call, event_result(None, done.dropped));
        }
        for report in self.waiters.reports(now) {
            let ms =
                |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            self.outputs.push_back(BridgeOutput::Progress {
                call: report.call,
                progress: ms(report.waited),
                total: Some(ms(report.timeout)),
                message: format!(
                    "no event yet after {} of {} s",
                    report.waited.as_secs(),
                    report.timeout.as_secs()
                ),
            });
        }
        self.approvals.expire(now);
        self.permissions.expire(now);
        self.outputs.extend(self.steps.release_due(now));
    }

    /// When [`Bridge::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        [
            self.waiters.next_deadline(),
            self.approvals.next_deadline(),
            self.permissions.next_deadline(),
            self.steps.next_deadline(),
        ]
        .into_iter()
        .fold(None, Deadline::earlier)
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<BridgeOutput> {
        self.outputs.pop_front()
    }

    /// The client of this call will make no more: if the call waits for an event it is answered `timeout`
    /// now, for the event may never come. Any other call goes on. OpenClaw does so at the end of its stdin.
    pub fn end_wait(&mut self, call: CallId) {
        if let Some(done) = self.waiters.end(call) {
            self.answer(done.call, event_result(None, done.dropped));
        }
    }

    /// Ends the bridge: waiting calls are answered `timeout`, calls that need the Gateway with an error that
    /// says `why`, later ones are refused.
    pub fn close(&mut self, why: &str) {
        self.link = Link::Closed;
        for done in self.waiters.close() {
            self.answer(done.call, event_result(None, done.dropped));
        }
        for (call, text) in self.steps.close(why) {
            self.answer(call, ToolResult::error(&text));
        }
    }

    fn answer(&mut self, call: CallId, result: ToolResult) {
        self.outputs
            .push_back(BridgeOutput::Answer { call, result });
    }

    fn warn(&mut self, message: String) {
        self.diagnose(Level::Warning, message);
    }

    fn diagnose(&mut self, level: Level, message: String) {
        let diagnostic = Diagnostic::new(level, Subject::Bridge, message);
        self.outputs.push_back(BridgeOutput::Diagnostic(diagnostic));
    }
}

/// Answers every waiter that `event` is for.
fn wake(waiters: &mut Waiters, outputs: &mut VecDeque<BridgeOutput>, event: &Event) {
    for done in waiters.wake(event) {
        outputs.push_back(BridgeOutput::Answer {
            call: done.call,
            result: event_result(Some(event), done.dropped),
        });
    }
}

/// The result of `events_wait`. `dropped` is only there when something is gone, so that an ordinary
/// answer is that of OpenClaw.
fn event_result(event: Option<&Event>, dropped: u64) -> ToolResult {
    let text = event.map_or_else(
        || "timeout".to_owned(),
        |event| format!("event {}", event.cursor),
    );
    let mut json = String::from("{\"event\":");
    json.push_str(event.map_or("null", |event| &event.json));
    if dropped > 0 {
        write_raw(&mut json, "dropped", &dropped.to_string());
    }
    json.push('}');
    ToolResult::structured(&text, &json)
}

/// The result of `events_poll`: OpenClaw's members, then ours.
fn poll_result(queue: &EventQueue, after: u64, session: Option<&str>, limit: usize) -> ToolResult {
    let mut json = String::from("{\"events\":[");
    let (mut count, mut next_cursor) = (0_usize, after);
    for event in queue.after(after, session).take(limit) {
        json.push_str(if count == 0 { "" } else { "," });
        json.push_str(&event.json);
        count += 1;
        next_cursor = event.cursor.0;
    }
    json.push(']');
    write_raw(&mut json, "next_cursor", &next_cursor.to_string());
    write_raw(&mut json, "dropped", &queue.dropped(after).to_string());
    write_raw(&mut json, "oldest_cursor", &queue.oldest().to_string());
    json.push('}');
    ToolResult::structured(&format!("events: {count}"), &json)
}

/// Appends `,"name":` and a raw JSON value.
fn write_raw(json: &mut String, name: &str, raw: &str) {
    json.push_str(",\"");
    json.push_str(name);
    json.push_str("\":");
    json.push_str(raw);
}

/// Writes the members of a `message` event behind its cursor.
fn write_message(json: &mut String, message: &Incoming<'_>, raw: &str) {
    json.push_str("\"type\":\"message\"");
    write_member(json, "sessionKey", Some(&message.session_key));
    if let Some(conversation) = &message.conversation {
        json.push_str(",\"conversation\":");
        conversation.write(json);
    }
    write_member(json, "messageId", message.message_id.as_deref());
    if let Some(seq) = message.message_seq {
        write_raw(json, "messageSeq", seq.get());
    }
    write_member(json, "role", message.role.as_deref());
    if let Some(text) = message.text {
        write_raw(json, "text", text.get());
    }
    write_raw(json, "raw", raw);
}

/// The notification of a message; none without a route. All values of `meta` are strings: the client
/// drops others in silence.
fn channel_notification(message: &Incoming<'_>) -> Option<BridgeOutput> {
    let conversation = message.conversation.as_ref()?;
    let mut params = String::from("{\"content\":");
    params.push_str(message.text.map_or("\"[non-text message]\"", RawValue::get));
    params.push_str(",\"meta\":{\"session_key\":");
    write_string(&mut params, &message.session_key);
    write_member(&mut params, "channel", Some(&conversation.channel));
    write_member(&mut params, "to", Some(&conversation.to));
    let account = conversation.account_id.as_deref().unwrap_or_default();
    write_member(&mut params, "account_id", Some(account));
    let thread = conversation.thread_id_as_string();
    write_raw(
        &mut params,
        "thread_id",
        thread.as_deref().unwrap_or("\"\""),
    );
    let id = message.message_id.as_deref().unwrap_or_default();
    write_member(&mut params, "message_id", Some(id));
    params.push_str("}}");
    Some(BridgeOutput::Notify {
        method: "notifications/claude/channel",
        params,
    })
}

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod replay_tests;
#[cfg(test)]
mod tests;
