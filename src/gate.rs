//! The gate: the before-tool-call seam, and the only maker of a [`GatedCall`].
//!
//! Every tool call passes here, whoever makes it and wherever it ends. Executors accept a [`GatedCall`]
//! and nothing else; its one field is private to this file, so a way around the gate does not compile.
//! A decision may take time (a hook program, a person): then the gate answers [`Passage::Ask`], and the
//! verdict is a later input. There are no callbacks.
//!
//! Rules come first, then a person, then the hook: what a rule refuses nobody is asked about, and the hook is
//! asked about what a person has allowed. "Asked" below is by the policy: nobody (`Open`), the hook program, or
//! the embedding program.
//!
//! | state of a call  | input                                | next     | output                          |
//! |------------------|--------------------------------------|----------|---------------------------------|
//! | –                | admit, a rule refuses                | –        | [`Passage::Refused`]            |
//! | –                | admit, the rules let pass, `Open`    | –        | [`Passage::Open`]               |
//! | –                | admit, the rules let pass            | Hook, Embedder | [`Question`]              |
//! | –                | admit, a rule holds                  | Person   | [`Question::Person`], deadline  |
//! | –                | the same, a person said "always"     | as if the rules let pass | as there        |
//! | Person           | yes; the hook was not asked yet      | Hook     | [`Question::Hook`]              |
//! | Person           | yes, otherwise                       | –        | [`Passage::Open`]               |
//! | Hook, Embedder   | verdict allow                        | –        | [`Passage::Open`]               |
//! | Hook             | the same, with other arguments       | as the rules say of them | as there; no second hook |
//! | Hook, Embedder   | verdict hold, nobody said "always"   | Person   | [`Question::Person`], deadline  |
//! | any              | no, or too late                      | –        | [`Passage::Refused`]            |
//! | any              | cancelled                            | –        | nothing                         |
//!
//! What becomes of a call in state Person is told by [`Gate::poll_hold`], however it ends.
//!
//! Source: openclaw-serve §4 (before-tool-call seam), with refusals marked as errors and failures closed;
//! design (hooks.beforeToolCall). Never: runs a program, reads a clock.

mod decision;
mod hold;
mod hook;
mod rules;

use std::collections::BTreeMap;
use std::time::Duration;

pub use self::decision::{Decider, Decision, Refused};
pub use self::hold::{Answer, HeldCall, Hold, HoldEnd, HoldEvent};
use self::hold::{Held, Holds, denied};
use self::hook::hook_input;
pub use self::hook::read_hook_output;
use self::rules::Effect;
pub use self::rules::{Action, HookScope, RuleError, RuleSpec, Rules, RulesSpec};
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

/// A call that has passed the gate. Executors take nothing else, and only this file can make one: the gate
/// hands it out,
///
/// ```
/// use drawspan::gate::{GatedCall, Passage};
///
/// fn passed(passage: Passage) -> Option<GatedCall> {
///     match passage {
///         Passage::Open(call) => Some(call),
///         Passage::Ask(..) | Passage::Refused(..) => None,
///     }
/// }
/// ```
///
/// nobody else makes one, with or without what it is made of,
///
/// ```compile_fail
/// use drawspan::gate::{Decision, GatedCall, ToolCall};
///
/// fn made(call: ToolCall, decision: Decision) -> GatedCall {
///     GatedCall(call, decision)
/// }
/// ```
///
/// it is not changed behind the gate,
///
/// ```compile_fail
/// fn changed(call: &mut drawspan::gate::GatedCall, other: drawspan::gate::ToolCall) {
///     call.0 = other;
/// }
/// ```
///
/// and it is run once: whoever takes it has it, and there is no other.
///
/// ```compile_fail
/// fn doubled(call: drawspan::gate::GatedCall) -> [drawspan::gate::GatedCall; 2] {
///     [call.clone(), call]
/// }
/// ```
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
        if let Some(params) = self.0.params.as_ref().filter(|_| name == &*self.0.tool) {
            return params.clone();
        }
        let mut quoted = String::with_capacity(name.len() + 2);
        write_string(&mut quoted, name);
        match &self.0.params {
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

/// Who decides about calls that the rules let pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Nobody: they pass.
    #[default]
    Open,
    /// A program.
    Hook,
    /// The embedding program.
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

/// An answer that nothing was done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotHeld;

impl std::fmt::Display for NotHeld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("unknown or expired approval id")
    }
}

impl std::error::Error for NotHeld {}

/// Who is being asked about a waiting call.
#[derive(Debug)]
enum Stage {
    Hook,
    /// The embedding program, whenever it likes.
    Embedder,
    Person(Box<Held>),
}

#[derive(Debug)]
struct Waiting {
    call: ToolCall,
    stage: Stage,
    decision: Decision,
}

/// The gate. One per hub.
#[derive(Debug)]
pub struct Gate {
    policy: Policy,
    rules: Rules,
    hold_timeout: Duration,
    waiting: BTreeMap<CallId, Waiting>,
    holds: Holds,
}

impl Gate {
    /// A gate without rules. The number of waiting calls is bounded by the requests clients may have open.
    #[must_use]
    pub fn new(policy: Policy, limits: &Limits) -> Self {
        Self {
            policy,
            rules: Rules::default(),
            hold_timeout: limits.hold_timeout,
            waiting: BTreeMap::new(),
            holds: Holds::new(limits.approvals_always_max),
        }
    }

    /// The rules that hold from now on. Calls that wait already go on as they began; answers "allow always"
    /// stay.
    ///
    /// # Errors
    /// When a rule asks the hook and there is none. The rules of before stay in force then.
    pub fn set_rules(&mut self, rules: Rules) -> Result<(), RuleError> {
        let has_hook = self.policy == Policy::Hook;
        self.set_rules_and_hook(rules, has_hook)
    }

    /// The same, and whether there is a hook program from now on. A call that is held to be shown to the hook
    /// afterwards passes without one that is gone. Where the embedding program decides there is no hook.
    ///
    /// # Errors
    /// As [`Gate::set_rules`]; everything stays as it was then.
    pub fn set_rules_and_hook(&mut self, rules: Rules, has_hook: bool) -> Result<(), RuleError> {
        let policy = match (&self.policy, has_hook) {
            (Policy::Embedder, _) => Policy::Embedder,
            (Policy::Open | Policy::Hook, true) => Policy::Hook,
            (Policy::Open | Policy::Hook, false) => Policy::Open,
        };
        if let (Policy::Open, Some(rule)) = (&policy, rules.first_hook()) {
            return Err(RuleError {
                key: format!("rules[{rule}].action"),
                why: "hook asks the before-tool-call hook, and none is configured".to_owned(),
            });
        }
        self.rules = rules;
        self.policy = policy;
        Ok(())
    }

    /// Whether calls may come to wait for a person, and ids for that have no tag yet.
    #[must_use]
    pub fn wants_tag(&self) -> bool {
        let may_hold = self.policy != Policy::Open || !self.rules.is_empty();
        may_hold && self.holds.tag.is_none()
    }

    /// What makes ids of held calls differ from those of another process.
    pub fn set_tag(&mut self, tag: String) {
        self.holds.tag = Some(tag);
    }

    /// A call arrives.
    pub fn admit(&mut self, now: Now, call: ToolCall) -> Passage {
        let waiting = Waiting {
            call,
            stage: Stage::Hook,
            decision: Decision::default(),
        };
        if self.rules.is_empty() && self.policy == Policy::Open {
            return waiting.open();
        }
        self.rule(now, waiting, true)
    }

    /// Holds a call against the rules, then asks whoever else is to be asked: the hook too, unless it has
    /// been asked already.
    fn rule(&mut self, now: Now, mut waiting: Waiting, may_ask: bool) -> Passage {
        let ruling = self.rules.judge(&waiting.call);
        waiting.decision.rule = ruling.rule;
        let by_rules = match ruling.rule {
            Some(_) => Decider::Rule,
            None => Decider::Default,
        };
        let asks = |hook: bool| may_ask && (hook || self.rules.hook == HookScope::All);
        match ruling.effect {
            Effect::Refuse(reason) => {
                waiting.decision.by = by_rules;
                Passage::Refused(waiting.refuse(reason))
            }
            Effect::Pass { hook } => {
                if may_ask {
                    waiting.decision.by = by_rules;
                }
                if asks(hook) {
                    self.ask(waiting)
                } else {
                    waiting.open()
                }
            }
            Effect::Hold { .. } if self.holds.covers(&waiting.call) => {
                waiting.decision.approval = Some(Decider::Always);
                waiting.decision.by = Decider::Always;
                if asks(false) {
                    self.ask(waiting)
                } else {
                    waiting.open()
                }
            }
            Effect::Hold {
                title,
                description,
                timeout,
            } => {
                let hold = Hold {
                    arguments: None,
                    title: title.unwrap_or_default().to_owned(),
                    description: description.unwrap_or_default().to_owned(),
                    timeout,
                };
                let then_hook = asks(false);
                self.hold(now, waiting, &hold, ruling.rule, then_hook)
            }
        }
    }

    /// Asks the hook or the embedding program, where there is one.
    fn ask(&mut self, mut waiting: Waiting) -> Passage {
        let question = match self.policy {
            Policy::Open => return waiting.open(),
            Policy::Hook => {
                waiting.stage = Stage::Hook;
                Question::Hook {
                    input: hook_input(&waiting.call),
                }
            }
            Policy::Embedder => {
                waiting.stage = Stage::Embedder;
                Question::Person {
                    title: format!("call of {}", Quoted(&waiting.call.tool)),
                    description: String::new(),
                }
            }
        };
        self.wait(waiting, question)
    }

    fn hold(
        &mut self,
        now: Now,
        mut waiting: Waiting,
        hold: &Hold,
        rule: Option<usize>,
        then_hook: bool,
    ) -> Passage {
        let limit = hold.timeout.unwrap_or(self.hold_timeout);
        let shown = HeldCall {
            rule,
            ..self.holds.show(now, &waiting.call, hold, limit)
        };
        let question = Question::Person {
            title: shown.title.clone(),
            description: shown.description.clone(),
        };
        let opened = HoldEvent::Opened(shown.clone());
        self.holds.events.push_back(opened);
        waiting.stage = Stage::Person(Box::new(Held {
            shown,
            until: now.after(limit),
            limit,
            // The embedding program is asked by the very same question.
            then_hook: then_hook && self.policy == Policy::Hook,
        }));
        self.wait(waiting, question)
    }

    fn wait(&mut self, waiting: Waiting, question: Question) -> Passage {
        let id = waiting.call.id;
        self.waiting.insert(id, waiting);
        Passage::Ask(id, question)
    }

    /// The verdict of the hook or the embedding program on a waiting call. `None` when no such call waits: it
    /// was cancelled or came too late.
    ///
    /// The rules are asked again about arguments that were replaced: they hold for what reaches the tool.
    pub fn resolve(&mut self, now: Now, call: CallId, verdict: Verdict) -> Option<Passage> {
        let mut waiting = self.take(call, |shown| {
            let by = "the embedding program".to_owned();
            let answer = match verdict {
                Verdict::Allow { .. } => Answer::AllowOnce,
                Verdict::Deny { .. } => Answer::Deny,
                Verdict::Hold(_) => return (shown, HoldEnd::Cancelled),
            };
            (shown, HoldEnd::Answered(answer, by))
        })?;
        let then_hook = waiting.then_hook();
        waiting.decision.by = match &waiting.stage {
            Stage::Hook => Decider::Hook,
            Stage::Embedder => Decider::Embedder,
            Stage::Person(_) => {
                waiting.decision.approval = Some(Decider::Embedder);
                Decider::Embedder
            }
        };
        Some(match verdict {
            Verdict::Deny { reason } => Passage::Refused(waiting.refuse(reason)),
            Verdict::Allow { arguments: None } if then_hook => self.ask(waiting),
            Verdict::Allow { arguments: None } => waiting.open(),
            Verdict::Allow {
                arguments: Some(arguments),
            } => {
                waiting.replace(arguments);
                match waiting.stage {
                    Stage::Hook => self.rule(now, waiting, false),
                    // Who gave them allows them.
                    Stage::Embedder | Stage::Person(_) => match self.refusal(&mut waiting) {
                        Some(reason) => Passage::Refused(waiting.refuse(reason)),
                        None if then_hook => self.ask(waiting),
                        None => waiting.open(),
                    },
                }
            }
            Verdict::Hold(mut hold) => {
                if let Some(arguments) = hold.arguments.take() {
                    waiting.replace(arguments);
                    if let Some(reason) = self.refusal(&mut waiting) {
                        return Some(Passage::Refused(waiting.refuse(reason)));
                    }
                }
                if self.holds.covers(&waiting.call) {
                    waiting.decision.approval = Some(Decider::Always);
                    return Some(waiting.open());
                }
                self.hold(now, waiting, &hold, None, then_hook)
            }
        })
    }

    /// Why the rules refuse a call with the arguments it has now.
    fn refusal(&self, waiting: &mut Waiting) -> Option<String> {
        let ruling = self.rules.judge(&waiting.call);
        let Effect::Refuse(reason) = ruling.effect else {
            return None;
        };
        waiting.decision.by = Decider::Rule;
        waiting.decision.rule = ruling.rule;
        Some(reason)
    }

    /// A person's answer about a held call. `by` says who, for logs and the caller; `reason` goes with a "no".
    /// The flag says whether "allow always" is kept; when there is no room for it, it counts once.
    ///
    /// # Errors
    /// When no call is held by this id: it was answered, cancelled or came too late.
    pub fn answer(
        &mut self,
        id: &str,
        answer: Answer,
        by: &str,
        reason: Option<&str>,
    ) -> Result<(Passage, bool), NotHeld> {
        let call = self.held_by(id).ok_or(NotHeld)?.call;
        let end = HoldEnd::Answered(answer, by.to_owned());
        let taken = self.take(call, |shown| (shown, end));
        let mut waiting = taken.ok_or(NotHeld)?;
        let person = Decider::Person(by.into());
        waiting.decision.approval = Some(person.clone());
        waiting.decision.by = person;
        let kept = match answer {
            Answer::Deny => {
                let reason = denied(by, reason);
                return Ok((Passage::Refused(waiting.refuse(reason)), true));
            }
            Answer::AllowOnce => true,
            Answer::AllowAlways => self.holds.keep(&waiting.call),
        };
        let passage = if waiting.then_hook() {
            self.ask(waiting)
        } else {
            waiting.open()
        };
        Ok((passage, kept))
    }

    /// The caller is gone or no longer wants the call.
    pub fn cancel(&mut self, call: CallId) {
        self.take(call, |shown| (shown, HoldEnd::Cancelled));
    }

    /// The next call whose time is up: it is refused. Call until `None`.
    pub fn poll_expired(&mut self, now: Now) -> Option<Passage> {
        let due = |waiting: &Waiting| waiting.until().is_some_and(|at| at <= now.up);
        let (&call, _) = self.waiting.iter().find(|(_, waiting)| due(waiting))?;
        let mut waiting = self.take(call, |shown| (shown, HoldEnd::Expired))?;
        let limit_ms = match &waiting.stage {
            Stage::Person(held) => held.limit.as_millis(),
            Stage::Hook | Stage::Embedder => return None,
        };
        waiting.decision.by = Decider::Timeout;
        let reason = format!("tool call refused: nobody approved it within {limit_ms} ms");
        Some(Passage::Refused(waiting.refuse(reason)))
    }

    /// When [`Gate::poll_expired`] has something.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        let at = self.waiting.values().filter_map(Waiting::until).min()?;
        Some(Deadline::new(at, "held call expires"))
    }

    /// What became of calls that wait for a person. Drained to `None` after every input.
    pub fn poll_hold(&mut self) -> Option<HoldEvent> {
        self.holds.events.pop_front()
    }

    /// The calls that wait for a person, oldest first.
    pub fn held(&self) -> impl Iterator<Item = &HeldCall> {
        self.waiting.values().filter_map(Waiting::shown)
    }

    /// The call that is held by an id.
    #[must_use]
    pub fn held_by(&self, id: &str) -> Option<&HeldCall> {
        self.held().find(|held| held.id == id)
    }

    /// Whether a person is being asked about this call.
    #[must_use]
    pub fn is_held(&self, call: CallId) -> bool {
        self.waiting
            .get(&call)
            .is_some_and(|waiting| matches!(waiting.stage, Stage::Person(_) | Stage::Embedder))
    }

    /// Takes a call out; if it was held, `ended` makes of its id how that ended.
    fn take(
        &mut self,
        call: CallId,
        ended: impl FnOnce(String) -> (String, HoldEnd),
    ) -> Option<Waiting> {
        let waiting = self.waiting.remove(&call)?;
        if let Some(shown) = waiting.shown() {
            let (id, end) = ended(shown.id.clone());
            self.holds.events.push_back(HoldEvent::Closed { id, end });
        }
        Some(waiting)
    }
}

impl Waiting {
    const fn until(&self) -> Option<Uptime> {
        match &self.stage {
            Stage::Person(held) => Some(held.until),
            Stage::Hook | Stage::Embedder => None,
        }
    }

    const fn shown(&self) -> Option<&HeldCall> {
        match &self.stage {
            Stage::Person(held) => Some(&held.shown),
            Stage::Hook | Stage::Embedder => None,
        }
    }

    fn then_hook(&self) -> bool {
        matches!(&self.stage, Stage::Person(held) if held.then_hook)
    }

    fn replace(&mut self, arguments: Box<str>) {
        self.call.replace_arguments(arguments);
        self.decision.replaced = true;
    }

    fn open(self) -> Passage {
        Passage::Open(GatedCall(self.call, self.decision))
    }

    fn refuse(self, reason: String) -> Refused {
        Refused {
            call: self.call,
            reason,
            decision: self.decision,
        }
    }
}

#[cfg(test)]
mod tests;
