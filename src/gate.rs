//! The gate: the before-tool-call seam, and the only maker of a [`GatedCall`].
//!
//! Every tool call passes here, whoever makes it and wherever it ends. Executors accept a [`GatedCall`]
//! and nothing else; its one field is private to this file, so a way around the gate does not compile.
//! A decision may take time (a hook program, a person): then the gate answers [`Passage::Ask`], and the
//! verdict is a later input. There are no callbacks.
//!
//! | state of a call | input                      | next    | output                              |
//! |-----------------|----------------------------|---------|-------------------------------------|
//! | –               | admit, policy `Open`       | –       | [`Passage::Open`]                   |
//! | –               | admit, policy `Hook`       | Hook    | [`Question::Hook`]                  |
//! | –               | admit, policy `Embedder`   | Person  | [`Question::Person`]                |
//! | Hook            | verdict allow              | –       | [`Passage::Open`]                   |
//! | Hook            | verdict hold               | Person  | [`Question::Person`], with deadline |
//! | Person          | verdict allow              | –       | [`Passage::Open`]                   |
//! | Hook, Person    | verdict deny, or too late  | –       | [`Passage::Refused`]                |
//! | Hook, Person    | cancelled                  | –       | nothing                             |
//!
//! Source: openclaw-serve §4 (before-tool-call seam), with refusals marked as errors and failures closed;
//! design (hooks.beforeToolCall). Never: runs a program, reads a clock, looks into arguments.

mod decision;
mod hook;

use std::collections::BTreeMap;
use std::time::Duration;

pub use self::decision::{Decider, Decision, Refused};
use self::hook::hook_input;
pub use self::hook::read_hook_output;
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::json_text::write_string;
use crate::codec::shared_text::SharedText;
use crate::codec::splice::with_member;
use crate::ids::CallId;
use crate::limits::Limits;
use crate::secret::Quoted;

/// A tool call as a client made it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// Its number in the ledger.
    pub id: CallId,
    /// The exposed name of the tool.
    pub tool: SharedText,
    /// The arguments: a raw JSON object, `{}` when the client sent none.
    pub arguments: SharedText,
    /// The whole `params` these come from, a raw JSON object, for whoever passes the call on as it came; `None`
    /// for a call that is nobody's message.
    pub params: Option<SharedText>,
    /// The server the tool belongs to, for hooks and logs.
    pub server: SharedText,
    /// Who calls: the name the client gave itself. Nobody has checked it.
    pub caller: SharedText,
    /// Who calls, as far as it is known for sure: the way it came in and what was shown there. `stdio`,
    /// `adopted` (a wire of the embedding program), `unix:UID`, `bearer`, `http` (no token was asked for); empty
    /// for calls of the program itself.
    pub principal: SharedText,
    /// Whether the client asked for progress notifications.
    pub wants_progress: bool,
}

impl ToolCall {
    /// Somebody has changed the arguments: the whole of them.
    fn replace_arguments(&mut self, arguments: Box<str>) {
        if let Some(params) = &self.params {
            self.params = Some(with_member(params, "arguments", &arguments).into());
        }
        self.arguments = arguments.into();
    }
}

/// A call that has passed the gate. Executors take nothing else, and only this file can make one.
#[derive(Debug)]
pub struct GatedCall(ToolCall, Decision);

impl GatedCall {
    /// Its number in the ledger.
    #[must_use]
    pub const fn id(&self) -> CallId {
        self.0.id
    }

    /// The exposed name of the tool.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.0.tool
    }

    /// The arguments, possibly replaced by a hook: a raw JSON object.
    #[must_use]
    pub fn arguments(&self) -> &str {
        &self.0.arguments
    }

    /// `params` for a server that knows the tool as `name`: the bytes that came, but for the name where that
    /// is another, and for the arguments where a hook has replaced them.
    #[must_use]
    pub fn params_for(&self, name: &str) -> SharedText {
        let mut quoted = String::with_capacity(name.len() + 2);
        write_string(&mut quoted, name);
        match &self.0.params {
            Some(params) if name == &*self.0.tool => params.clone(),
            Some(params) => with_member(params, "name", &quoted).into(),
            None => format!(r#"{{"name":{quoted},"arguments":{}}}"#, self.arguments()).into(),
        }
    }

    /// Whether the client asked for progress notifications.
    #[must_use]
    pub const fn wants_progress(&self) -> bool {
        self.0.wants_progress
    }

    /// The call, with the arguments it runs with.
    #[must_use]
    pub const fn call(&self) -> &ToolCall {
        &self.0
    }

    /// Who let it pass.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.1
    }
}

/// Who decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Nobody: every call passes.
    #[default]
    Open,
    /// A program, asked for each call.
    Hook,
    /// The embedding program, asked for each call.
    Embedder,
}

/// What was decided about one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may pass; with these arguments (a raw JSON object, the whole of them) when some are given.
    Allow {
        /// Replacement for the arguments.
        arguments: Option<Box<str>>,
    },
    /// It may not, and the caller is told why.
    Deny {
        /// One line for the caller.
        reason: String,
    },
    /// A person must decide.
    Hold(Hold),
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Replacement for the arguments, should the answer be yes.
    pub arguments: Option<Box<str>>,
    /// Heading.
    pub title: String,
    /// Text below it.
    pub description: String,
    /// How long to wait for the answer; `None` means `hold_timeout`.
    pub timeout: Option<Duration>,
}

/// Who has to be asked about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The hook program, with this JSON object on its stdin.
    Hook {
        /// What it reads.
        input: String,
    },
    /// A person, or the embedding program.
    Person {
        /// Heading.
        title: String,
        /// Text below it.
        description: String,
    },
}

/// What the gate says of a call.
#[derive(Debug)]
pub enum Passage {
    /// It may run.
    Open(GatedCall),
    /// Someone must be asked; answer by [`Gate::resolve`].
    Ask(CallId, Question),
    /// It may not run.
    Refused(Refused),
}

#[derive(Debug)]
struct Waiting {
    call: ToolCall,
    person: bool,
    until: Option<(Uptime, Duration)>,
}

/// The gate. One per hub.
#[derive(Debug)]
pub struct Gate {
    policy: Policy,
    hold_timeout: Duration,
    waiting: BTreeMap<CallId, Waiting>,
}

impl Gate {
    /// A gate with one policy. The number of waiting calls is bounded by the requests clients may have open.
    #[must_use]
    pub const fn new(policy: Policy, limits: &Limits) -> Self {
        Self {
            policy,
            hold_timeout: limits.hold_timeout,
            waiting: BTreeMap::new(),
        }
    }

    /// A call arrives.
    pub fn admit(&mut self, _now: Now, call: ToolCall) -> Passage {
        match self.policy {
            Policy::Open => Passage::Open(GatedCall(call, Decision::default())),
            Policy::Hook => {
                let question = Question::Hook {
                    input: hook_input(&call),
                };
                self.wait(call, false, None, question)
            }
            Policy::Embedder => {
                let question = Question::Person {
                    title: format!("call of {}", Quoted(&call.tool)),
                    description: String::new(),
                };
                self.wait(call, true, None, question)
            }
        }
    }

    /// The verdict on a waiting call. `None` when no such call waits: it was cancelled or came too late.
    pub fn resolve(&mut self, now: Now, call: CallId, verdict: Verdict) -> Option<Passage> {
        let mut waiting = self.waiting.remove(&call)?;
        let mut decision = Decision {
            by: match self.policy {
                Policy::Open => Decider::Default,
                Policy::Hook if waiting.person => Decider::Person("".into()),
                Policy::Hook => Decider::Hook,
                Policy::Embedder => Decider::Embedder,
            },
            ..Decision::default()
        };
        Some(match verdict {
            Verdict::Allow { arguments } => {
                if let Some(arguments) = arguments {
                    waiting.call.replace_arguments(arguments);
                    decision.replaced = true;
                }
                Passage::Open(GatedCall(waiting.call, decision))
            }
            Verdict::Deny { reason } => Passage::Refused(Refused {
                call: waiting.call,
                reason,
                decision,
            }),
            Verdict::Hold(hold) => {
                if let Some(arguments) = hold.arguments {
                    waiting.call.replace_arguments(arguments);
                }
                let timeout = hold.timeout.unwrap_or(self.hold_timeout);
                let question = Question::Person {
                    title: hold.title,
                    description: hold.description,
                };
                self.wait(
                    waiting.call,
                    true,
                    Some((now.after(timeout), timeout)),
                    question,
                )
            }
        })
    }

    /// The caller is gone or no longer wants the call.
    pub fn cancel(&mut self, call: CallId) {
        self.waiting.remove(&call);
    }

    /// The next call whose time is up: it is refused. Call until `None`.
    pub fn poll_expired(&mut self, now: Now) -> Option<Passage> {
        let due = |waiting: &Waiting| waiting.until.is_some_and(|(at, _)| at <= now.up);
        let (&call, waiting) = self.waiting.iter().find(|(_, waiting)| due(waiting))?;
        let limit_ms = waiting.until.map_or(0, |(_, limit)| limit.as_millis());
        let waiting = self.waiting.remove(&call)?;
        Some(Passage::Refused(Refused {
            call: waiting.call,
            reason: format!("tool call refused: nobody approved it within {limit_ms} ms"),
            decision: Decision {
                by: Decider::Timeout,
                ..Decision::default()
            },
        }))
    }

    /// When [`Gate::poll_expired`] has something.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        let at = self
            .waiting
            .values()
            .filter_map(|waiting| waiting.until)
            .map(|(at, _)| at)
            .min()?;
        Some(Deadline::new(at, "held call expires"))
    }

    /// Whether a person is being asked about this call.
    #[must_use]
    pub fn is_held(&self, call: CallId) -> bool {
        self.waiting
            .get(&call)
            .is_some_and(|waiting| waiting.person)
    }

    fn wait(
        &mut self,
        call: ToolCall,
        person: bool,
        until: Option<(Uptime, Duration)>,
        question: Question,
    ) -> Passage {
        let id = call.id;
        self.waiting.insert(
            id,
            Waiting {
                call,
                person,
                until,
            },
        );
        Passage::Ask(id, question)
    }
}

#[cfg(test)]
mod tests;
