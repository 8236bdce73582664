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

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::clock::{Deadline, Now, Uptime};
use crate::codec::json_text::write_string;
use crate::codec::object::from_object;
use crate::codec::shared_text::SharedText;
use crate::codec::splice::with_member;
use crate::ids::CallId;
use crate::limits::Limits;
use crate::secret::Quoted;

/// A tool call as a client made it.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Who calls: the name the client gave itself, for hooks and logs.
    pub caller: SharedText,
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
pub struct GatedCall(ToolCall);

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
    /// It may not run; the reason is for the caller.
    Refused(CallId, String),
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
    pub fn admit(&mut self, call: ToolCall) -> Passage {
        match self.policy {
            Policy::Open => Passage::Open(GatedCall(call)),
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
        Some(match verdict {
            Verdict::Allow { arguments } => {
                if let Some(arguments) = arguments {
                    waiting.call.replace_arguments(arguments);
                }
                Passage::Open(GatedCall(waiting.call))
            }
            Verdict::Deny { reason } => Passage::Refused(call, reason),
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
        self.waiting.remove(&call);
        Some(Passage::Refused(
            call,
            format!("tool call refused: nobody approved it within {limit_ms} ms"),
        ))
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

/// What the hook program reads. Design: hooks.beforeToolCall.
fn hook_input(call: &ToolCall) -> String {
    let mut json = String::with_capacity(call.arguments.len() + 128);
    json.push_str(r#"{"tool":"#);
    write_string(&mut json, &call.tool);
    json.push_str(r#","arguments":"#);
    json.push_str(&call.arguments);
    json.push_str(r#","server":"#);
    write_string(&mut json, &call.server);
    json.push_str(r#","caller":"#);
    write_string(&mut json, &call.caller);
    json.push_str(&format!(r#","callId":"{}"}}"#, call.id));
    json.push('\n');
    json
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HookOutput<'a> {
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(default)]
    block: bool,
    block_reason: Option<String>,
    #[serde(borrow)]
    require_approval: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HookHold {
    #[serde(default)]
    title: String,
    #[serde(default)]
    description: String,
    timeout_ms: Option<u64>,
}

/// Reads what the hook printed. Anything that is not understood denies.
#[must_use]
pub fn read_hook_output(printed: &[u8]) -> Verdict {
    let failed = |why: String| Verdict::Deny {
        reason: format!("tool call refused: the before-tool-call hook failed: {why}"),
    };
    let Ok(printed) = std::str::from_utf8(printed) else {
        return failed("its output is not UTF-8".to_owned());
    };
    let output: HookOutput<'_> = match from_object(printed) {
        Ok(output) => output,
        Err(error) => return failed(format!("its output is not understood ({error})")),
    };
    if output.block {
        let reason = output
            .block_reason
            .filter(|reason| !reason.trim().is_empty());
        return Verdict::Deny {
            reason: reason
                .unwrap_or_else(|| "tool call blocked by the before-tool-call hook".to_owned()),
        };
    }
    let arguments = match output.params.map(RawValue::get) {
        None => None,
        Some(object) if object.starts_with('{') => Some(Box::from(object)),
        Some(other) => {
            return failed(format!(
                "params must be an object (found {})",
                Quoted(other)
            ));
        }
    };
    match output.require_approval.map(|raw| read_hold(raw.get())) {
        None => Verdict::Allow { arguments },
        Some(Ok(hold)) => Verdict::Hold(Hold {
            arguments,
            title: hold.title,
            description: hold.description,
            timeout: hold.timeout_ms.map(Duration::from_millis),
        }),
        Some(Err(why)) => failed(why),
    }
}

fn read_hold(raw: &str) -> Result<HookHold, String> {
    from_object(raw).map_err(|error| format!("requireApproval is not understood ({error})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(policy: Policy) -> Gate {
        Gate::new(policy, &Limits::default())
    }

    fn call(id: u64) -> ToolCall {
        ToolCall {
            id: CallId(id),
            tool: "messages_send".into(),
            arguments: r#"{"text":"hi"}"#.into(),
            params: None,
            server: "openclaw".into(),
            caller: "tester".into(),
            wants_progress: false,
        }
    }

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: 0,
        }
    }

    #[test]
    fn an_open_gate_lets_everything_pass() {
        let Passage::Open(passed) = gate(Policy::Open).admit(call(1)) else {
            panic!("not open")
        };
        assert_eq!((passed.id(), passed.tool()), (CallId(1), "messages_send"));
        assert_eq!(passed.arguments(), r#"{"text":"hi"}"#);
    }

    #[test]
    fn the_hook_is_told_everything_and_its_verdict_is_final() {
        let mut gate = gate(Policy::Hook);
        let Passage::Ask(CallId(1), Question::Hook { input }) = gate.admit(call(1)) else {
            panic!("the hook is not asked")
        };
        assert_eq!(
            input,
            "{\"tool\":\"messages_send\",\"arguments\":{\"text\":\"hi\"},\"server\":\"openclaw\",\"caller\":\"tester\",\"callId\":\"1\"}\n"
        );
        let allow = Verdict::Allow {
            arguments: Some(r#"{"text":"bye"}"#.into()),
        };
        let Some(Passage::Open(passed)) = gate.resolve(at(0), CallId(1), allow.clone()) else {
            panic!("not open")
        };
        assert_eq!(
            passed.arguments(),
            r#"{"text":"bye"}"#,
            "params replace, they do not merge"
        );
        assert!(
            gate.resolve(at(0), CallId(1), allow).is_none(),
            "one verdict per call"
        );
    }

    #[test]
    fn params_go_on_as_they_came_but_for_name_and_arguments() {
        let raw = r#"{ "task":{"ttl":1.0},"name" : "messages_send", "arguments":{"text":"hi"}, "_meta":{"v":1e2} }"#;
        let mut one = call(1);
        one.params = Some(raw.into());
        let Passage::Open(passed) = gate(Policy::Open).admit(one.clone()) else {
            panic!("not open")
        };
        assert_eq!(&*passed.params_for("messages_send"), raw);
        let renamed = raw.replace("\"messages_send\"", "\"send\"");
        assert_eq!(&*passed.params_for("send"), renamed);

        let mut gate = gate(Policy::Hook);
        let _ = gate.admit(one);
        let allow = Verdict::Allow {
            arguments: Some(r#"{"text":"bye"}"#.into()),
        };
        let Some(Passage::Open(passed)) = gate.resolve(at(0), CallId(1), allow) else {
            panic!("not open")
        };
        assert_eq!(&*passed.params_for("send"), renamed.replace("hi", "bye"));

        let Passage::Open(passed) = self::gate(Policy::Open).admit(call(2)) else {
            panic!("not open")
        };
        assert_eq!(
            &*passed.params_for("s"),
            r#"{"name":"s","arguments":{"text":"hi"}}"#
        );
    }

    #[test]
    fn a_held_call_is_refused_at_its_deadline_and_not_before() {
        let mut gate = gate(Policy::Hook);
        let _ = gate.admit(call(1));
        let hold = read_hook_output(br#"{"requireApproval":{"title":"Sure?","timeoutMs":500}}"#);
        let Some(Passage::Ask(_, Question::Person { title, .. })) =
            gate.resolve(at(0), CallId(1), hold)
        else {
            panic!("nobody is asked")
        };
        assert_eq!(title, "Sure?");
        assert!(gate.is_held(CallId(1)));
        assert_eq!(
            gate.next_deadline().map(|d| d.at),
            Some(Uptime::from_millis(500))
        );
        assert!(gate.poll_expired(at(499)).is_none());
        let Some(Passage::Refused(CallId(1), reason)) = gate.poll_expired(at(500)) else {
            panic!("still waiting")
        };
        assert!(reason.contains("500 ms"), "{reason}");
        assert!(
            gate.resolve(at(500), CallId(1), Verdict::Allow { arguments: None })
                .is_none()
        );
    }

    #[test]
    fn a_cancelled_call_never_passes() {
        let mut gate = gate(Policy::Embedder);
        let _ = gate.admit(call(1));
        gate.cancel(CallId(1));
        assert!(
            gate.resolve(at(0), CallId(1), Verdict::Allow { arguments: None })
                .is_none()
        );
    }

    #[test]
    fn hook_output_that_is_not_understood_denies() {
        for bad in [
            "",
            "null",
            "[]",
            "{",
            "{\"block\":1}",
            "{\"params\":[1]}",
            "{} {}",
            "ok",
        ] {
            let verdict = read_hook_output(bad.as_bytes());
            let Verdict::Deny { reason } = verdict else {
                panic!("{bad:?} passed: {verdict:?}")
            };
            assert!(reason.contains("hook failed"), "{reason}");
        }
        assert_eq!(
            read_hook_output(b"{}\n"),
            Verdict::Allow { arguments: None }
        );
        assert_eq!(
            read_hook_output(br#"{"block":true,"blockReason":"no","params":{}}"#),
            Verdict::Deny {
                reason: "no".to_owned()
            }
        );
        assert_eq!(
            read_hook_output(br#"{"params":{"a":1.0}}"#),
            Verdict::Allow {
                arguments: Some(r#"{"a":1.0}"#.into())
            }
        );
    }
}
