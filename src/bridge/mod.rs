//! The channel bridge: OpenClaw conversations, events and approvals as MCP tools.
//!
//! One plain machine between the hub, which brings calls and takes answers, and the Gateway
//! session, which brings events and answers requests. Calls answered from memory (`events_poll`,
//! `permissions_list_open`, an `events_wait` with something queued) are answered in the same turn.
//!
//! | state | tool call that needs the Gateway | `handle_ready` | `handle_lost` | `close` |
//! |---|---|---|---|---|
//! | down | held, see `steps`; `permissions_respond` asked at once | → ready; held calls go out; approvals are listed | the first reason stays | → closed |
//! | ready | asked | – | → down, with the reason | → closed |
//! | closed | refused | – | – | – |
//!
//! A gap event tells where events may be missing: after a loss it stands before the first event of the
//! new connection, which may come before that connection is ready, and else at `handle_ready`. A connection
//! that brought events and never got ready is a loss too; `handle_connecting` tells that it is over.
//!
//! | Gateway event | queue | tables | notification |
//! |---|---|---|---|
//! | `session.message` that answers a prompt | – | prompt goes | `…/channel/permission` |
//! | `session.message`, other | `message` | prompts may be announced | `…/channel`, for role `user` with a route, unless mode `off` |
//! | `exec.approval.*`, `plugin.approval.*` | `…_requested`, `…_resolved` | approval comes, goes | – |
//! | anything else | – | – | – |
//!
//! Calls that the gate holds for a person stand among the approvals, as plugin approvals; see `holds`.
//!
//! Source: OpenClaw `openclaw-serve` §3.3 to §3.7. Events that cannot be read are counted, reported
//! now and then, and skipped.

mod approvals;
mod conversation;
mod events;
mod holds;
mod permissions;
mod queue;
mod raw_json;
mod steps;
mod tools;
mod waiters;

use std::collections::{BTreeSet, VecDeque};

use serde_json::value::RawValue;

use self::approvals::{Approvals, Kind};
use self::holds::Holds;
pub use self::holds::responded;
use self::permissions::Permissions;
use self::queue::{Event, EventQueue, event_result};
use self::raw_json::{elements, string};
use self::steps::{Asker, Next, Steps};
use self::tools::{Ask, Invocation, TOOLS};
use self::waiters::{Waiters, Wish};
use crate::clock::{Deadline, Now};
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::entropy::Entropy;
use crate::gate::{Answer, GatedCall};
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
    /// Somebody answered about a call that the gate holds.
    Decide {
        /// The call of `permissions_respond` by which it came, which gets the outcome by [`responded`]; `None`:
        /// it came from the Gateway.
        call: Option<CallId>,
        /// Our id of the held call.
        id: String,
        /// What was answered.
        answer: Answer,
        /// Who answered at the Gateway. Text from outside.
        by: String,
    },
    /// Something to tell the person who runs us.
    Diagnostic(Diagnostic),
}

/// How much of its limits a bridge uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeUsage {
    /// Events kept for polling.
    pub events: usize,
    /// Their length. Unit: bytes.
    pub event_bytes: usize,
    /// Calls that wait for an event.
    pub waiters: usize,
    /// Approvals, or permission prompts when they are more.
    pub approvals: usize,
}

/// State of the link, as the bridge sees it.
#[derive(Debug)]
enum Link {
    Down {
        /// Why events may be missing before the next one.
        gap: Option<String>,
        /// Whether events came over the connection that is being made.
        early: bool,
    },
    Ready,
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
    holds: Holds,
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

/// Whether a count that rose from `before` to `now` is worth a line: it does at one and at each
/// power of two, so that a flood of faults makes no flood of lines.
const fn is_worth_a_line(before: u64, now: u64) -> bool {
    now > before && (before == 0 || now.ilog2() > before.ilog2())
}

impl Bridge {
    /// A bridge whose link has never been ready. `verbose` adds a line for each permission prompt.
    #[must_use]
    pub fn new(limits: &Limits, mode: ChannelMode, verbose: bool) -> Self {
        Self {
            mode,
            verbose,
            link: Link::Down {
                gap: None,
                early: false,
            },
            queue: EventQueue::new(limits),
            waiters: Waiters::new(limits),
            approvals: Approvals::new(limits),
            holds: Holds::default(),
            permissions: Permissions::new(limits),
            steps: Steps::new(limits),
            malformed: 0,
            evictions_seen: (0, 0),
            list_faults: BTreeSet::new(),
            outputs: VecDeque::new(),
        }
    }

    /// How much of its limits is in use.
    #[must_use]
    pub fn usage(&self) -> BridgeUsage {
        let (events, event_bytes) = self.queue.kept();
        BridgeUsage {
            events,
            event_bytes,
            waiters: self.waiters.len(),
            approvals: self.approvals.len().max(self.permissions.len()),
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

    /// A call has passed the gate. It gets exactly one [`BridgeOutput::Answer`], unless it is
    /// cancelled.
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
                let result = self.queue.poll(after, session.as_deref(), limit);
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
        if let Ask::Respond {
            kind: Kind::Plugin,
            id: approval,
            decision,
        } = &ask
        {
            if self.respond_to_hold(id, approval, decision) {
                return;
            }
        }
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
            Link::Down { gap: None, early } if !first && !early => Some("unknown".to_owned()),
            Link::Down { gap, .. } => gap,
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
        self.show_holds(now);
    }

    /// The link is lost, or could not be made again. `why` is in words for a person. Requests that
    /// were open are answered by the session, not from here.
    pub fn handle_lost(&mut self, _now: Now, why: &str) {
        if matches!(self.link, Link::Ready) {
            self.link = Link::Down {
                gap: Some(why.to_owned()),
                early: false,
            };
        }
    }

    /// A new connection is about to be made, the one before being over. `why` is in words for a person.
    pub fn handle_connecting(&mut self, why: &str) {
        if let Link::Down { gap, early } = &mut self.link {
            if std::mem::take(early) {
                *gap = Some(why.to_owned());
            }
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
            (Some(Asker::Hold { id, step }), outcome) => self.hold_answered(&id, step, outcome),
            (Some(Asker::Approvals { kind, mark }), Ok(payload)) => {
                self.merge_approvals(now, kind, mark, &payload);
            }
            (Some(Asker::Approvals { kind, .. }), Err(error)) => {
                // Without a link the question is asked again when there is one.
                let link_is_gone = matches!(
                    error,
                    GatewayError::NotConnected { .. } | GatewayError::Closed { .. }
                );
                if !link_is_gone {
                    let text = error.to_string();
                    self.list_fault(kind, &Quoted(&text).to_string());
                }
            }
        }
    }

    fn merge_approvals(&mut self, now: Now, kind: Kind, mark: u64, payload: &RawValue) {
        let Some(list) = elements(payload) else {
            return self.list_fault(kind, "the answer is no list");
        };
        let holds = &self.holds;
        let is_ours = |id: &str| holds.is_theirs(id);
        let unreadable = self.approvals.listed(now, kind, mark, &list, is_ours);
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
        let (waiters, approvals) = (self.waiters.next_deadline(), self.approvals.next_deadline());
        let (permissions, steps) = (self.permissions.next_deadline(), self.steps.next_deadline());
        let first = Deadline::earlier(waiters, approvals);
        Deadline::earlier(first, Deadline::earlier(permissions, steps))
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

    /// The end has begun: waiting calls are answered `timeout`, calls that have not been sent to the Gateway
    /// with an error that says `why`. Those that have been go on until [`Bridge::close`].
    pub fn wind_down(&mut self, why: &str) {
        for done in self.waiters.close() {
            self.answer(done.call, event_result(None, done.dropped));
        }
        for (call, text) in self.steps.close_held(why) {
            self.answer(call, ToolResult::error(&text));
        }
    }

    /// Ends the bridge: waiting calls are answered `timeout`, calls that need the Gateway with an error that
    /// says `why`, later ones are refused.
    pub fn close(&mut self, why: &str) {
        self.link = Link::Closed;
        self.wind_down(why);
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

#[cfg(test)]
mod tests;
