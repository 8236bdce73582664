//! What the audit log is told of calls: one line when it is decided about one, and one when it has ended.
//!
//! | state of a call | input                       | next    | line                          |
//! |-----------------|-----------------------------|---------|-------------------------------|
//! | –               | it is shown to the gate     | Asked   | –                             |
//! | Asked           | the gate lets it pass       | Running | `decision` allow              |
//! | Asked           | the gate does not           | Denied  | `decision` deny               |
//! | Asked, Running  | its answer                  | –       | `call` ok, isError or error   |
//! | Denied          | its answer                  | –       | `call` refused                |
//! | any             | nobody wants the answer     | –       | `call` cancelled              |
//!
//! Where the log is required, a call that has passed waits until the program says that its line is written
//! ([`Hub::audit_written`]); so nothing runs that is not on record.
//!
//! Numbers and digests of the lines are the program's: see [`Chain`](crate::audit::Chain).

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use super::Hub;
use crate::audit::{Decided, Outcome, Subject, write_decision, write_outcome, write_subject};
use crate::clock::{Now, Uptime};
use crate::gate::{Decision, GatedCall, Refused, ToolCall};
use crate::ids::CallId;
use crate::limits::Limits;
use crate::protocol::message::{ToolResult, member};
use crate::protocol::server::Answer;
use crate::secret::Quoted;

/// Buffers of calls that have ended, kept for the next ones: enough for clients that call in turn.
const SPARE_MAX: usize = 16;

/// One call that has not ended.
#[derive(Debug)]
struct Open {
    since: Uptime,
    /// What its lines have in common.
    subject: Vec<u8>,
    denied: bool,
}

/// See the module page.
#[derive(Debug)]
pub(super) struct Trail {
    required: bool,
    bytes_max: usize,
    open: BTreeMap<CallId, Open>,
    lines: Vec<u8>,
    /// Lines that were dropped because nobody took the others.
    lost: u64,
    /// Calls whose lines are to be written first.
    held: VecDeque<GatedCall>,
    spare: Vec<Vec<u8>>,
    /// Who decided, written out.
    by: String,
    /// What the program has not been able to write, as it said last, and the most it ever said.
    unwritten: (usize, usize),
}

impl Trail {
    fn new(required: bool, limits: &Limits) -> Self {
        Self {
            required,
            bytes_max: limits.audit_queue_bytes_max,
            open: BTreeMap::new(),
            lines: Vec::new(),
            lost: 0,
            held: VecDeque::new(),
            spare: Vec::new(),
            by: String::new(),
            unwritten: (0, 0),
        }
    }

    /// A call is about to be shown to the gate.
    pub(super) fn begin(&mut self, now: Now, call: &ToolCall) {
        let mut subject = self.spare.pop().unwrap_or_default();
        subject.clear();
        write_subject(
            &mut subject,
            &Subject {
                call: call.id,
                caller: &call.caller,
                principal: &call.principal,
                server: &call.server,
                tool: &call.tool,
                arguments: &call.arguments,
            },
        );
        self.open.insert(
            call.id,
            Open {
                since: now.up,
                subject,
                denied: false,
            },
        );
    }

    /// Whether the line is kept: there is room for it.
    fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let before = self.lines.len();
        write(&mut self.lines);
        let fits = self.lines.len() <= self.bytes_max;
        if !fits {
            self.lines.truncate(before);
            self.lost += 1;
        }
        fits
    }

    /// It was decided about a call, which goes on with these arguments. Says whether that is kept.
    fn decided(
        &mut self,
        now: Now,
        (call, arguments): (CallId, &str),
        allowed: bool,
        decision: &Decision,
    ) -> bool {
        let Some(mut open) = self.open.remove(&call) else {
            return true;
        };
        open.denied = !allowed;
        let mut by = std::mem::take(&mut self.by);
        by.clear();
        // A string takes everything.
        let _ = write!(by, "{}", decision.by);
        let approval = decision.approval.as_ref().map(ToString::to_string);
        let decided = Decided {
            allowed,
            by: &by,
            approval: approval.as_deref(),
            rule: decision.rule,
            replaced: decision.replaced.then_some(arguments),
        };
        let kept = self.write(|lines| write_decision(lines, now.unix_ms, &open.subject, decided));
        self.by = by;
        self.open.insert(call, open);
        kept
    }

    /// A call has ended.
    pub(super) fn ended(&mut self, now: Now, call: CallId, outcome: impl FnOnce() -> Outcome) {
        let Some(open) = self.open.remove(&call) else {
            return;
        };
        let outcome = match (open.denied, outcome()) {
            (true, Outcome::IsError) => Outcome::Refused,
            (_, outcome) => outcome,
        };
        let lasted = now.up.since(open.since);
        self.write(|lines| write_outcome(lines, now.unix_ms, &open.subject, outcome, lasted));
        if self.spare.len() < SPARE_MAX {
            self.spare.push(open.subject);
        }
    }

    /// Bytes that wait to be written, and the most there were.
    pub(super) fn unwritten(&self) -> (usize, usize) {
        let (now, peak) = self.unwritten;
        (now + self.lines.len(), peak.max(now + self.lines.len()))
    }
}

/// What an answer says of how a call went.
fn outcome_of(answer: &Answer<'_>) -> Outcome {
    match answer {
        Answer::Error(error) => Outcome::Error(i64::from(error.code.number())),
        Answer::Passed(raw) => {
            let code = member(raw, "code").and_then(|code| code.parse().ok());
            Outcome::Error(code.unwrap_or(-32_603))
        }
        Answer::Result(result) | Answer::Plain(result) | Answer::List(result) => {
            match member(result, "isError") {
                Some("true") => Outcome::IsError,
                Some(_) | None => Outcome::Ok,
            }
        }
        Answer::Typed(..) => Outcome::Ok,
    }
}

impl Hub {
    /// Keeps an audit log from now on. After each turn [`Hub::take_audit`] has its lines, and then
    /// [`Hub::audit_written`] wants to know whether they could be kept. With `required` a call waits for that
    /// before it runs, and is refused when its line was not written.
    pub fn keep_audit(&mut self, required: bool) {
        self.trail = Some(Trail::new(required, &self.limits));
    }

    /// Appends the lines that came together to `lines`, to be numbered and written by a
    /// [`Chain`](crate::audit::Chain): one after the other, each with a line feed. Gives how many were dropped
    /// because more than `audit_queue_bytes_max` waited.
    pub fn take_audit(&mut self, lines: &mut Vec<u8>) -> u64 {
        let Some(trail) = &mut self.trail else {
            return 0;
        };
        lines.extend_from_slice(&trail.lines);
        trail.lines.clear();
        std::mem::take(&mut trail.lost)
    }

    /// Whether what was taken is written by now: if not, why. `waiting` are the bytes that still wait for it.
    pub fn audit_written(&mut self, now: Now, written: Result<(), &str>, waiting: usize) {
        let Some(trail) = &mut self.trail else { return };
        trail.unwritten = (waiting, trail.unwritten.1.max(waiting));
        if trail.held.is_empty() {
            return;
        }
        for gated in std::mem::take(&mut trail.held) {
            // It may have been taken back meanwhile.
            if self.ledger.entry(gated.id()).is_none() {
                continue;
            }
            match written {
                Ok(()) => self.run(now, gated),
                Err(why) => self.refuse_unrecorded(now, gated.id(), why),
            }
        }
        self.settle(now);
    }

    /// The gate has let a call pass.
    pub(super) fn permit(&mut self, now: Now, gated: GatedCall) {
        let Some(trail) = &mut self.trail else {
            return self.run(now, gated);
        };
        let of = (gated.id(), gated.arguments());
        let kept = trail.decided(now, of, true, gated.decision());
        match (trail.required, kept) {
            (false, _) => self.run(now, gated),
            (true, true) => trail.held.push_back(gated),
            (true, false) => {
                let limit = trail.bytes_max;
                let why = format!("more than {limit} bytes wait, limit audit_queue_bytes_max");
                self.refuse_unrecorded(now, gated.id(), &why);
            }
        }
    }

    /// The gate does not let a call pass.
    pub(super) fn refuse(&mut self, now: Now, refused: &Refused) {
        let Refused {
            call,
            reason,
            decision,
        } = refused;
        if let Some(trail) = &mut self.trail {
            trail.decided(now, (call.id, &call.arguments), false, decision);
        }
        self.answer_unrun(now, call.id, reason);
    }

    fn refuse_unrecorded(&mut self, now: Now, call: CallId, why: &str) {
        if let Some(open) = self
            .trail
            .as_mut()
            .and_then(|trail| trail.open.get_mut(&call))
        {
            open.denied = true;
        }
        let text = format!(
            "tool call refused: the audit log cannot be written ({})",
            Quoted(why)
        );
        self.answer_unrun(now, call, &text);
    }

    /// The answer of a call that was never given to anyone.
    fn answer_unrun(&mut self, now: Now, call: CallId, reason: &str) {
        if let Some(local) = &mut self.local {
            local.cancel(call);
        }
        self.answer(now, call, &ToolResult::error(reason));
    }

    /// The one answer of a call, or of another request in the ledger.
    pub(super) fn conclude(&mut self, now: Now, call: CallId, answer: Answer<'_>) {
        let Some(entry) = self.ledger.close(call) else {
            return;
        };
        if let Some(trail) = &mut self.trail {
            trail.ended(now, call, || outcome_of(&answer));
        }
        if let Some(side) = &mut self.upstream {
            side.questions.forget_call(call);
        }
        self.respond(now, entry.peer, entry.key, answer);
    }

    /// Nobody wants the answer of a call any more.
    pub(super) fn drop_call(&mut self, now: Now, call: CallId) {
        let Some(entry) = self.ledger.close(call) else {
            return;
        };
        if let Some(trail) = &mut self.trail {
            trail.ended(now, call, || Outcome::Cancelled);
        }
        self.stop_work(now, call, entry.place);
    }

    /// Everything has ended: what has got no answer gets none.
    pub(super) fn end_audit(&mut self, now: Now) {
        let Some(trail) = &mut self.trail else { return };
        trail.held.clear();
        let open: Vec<CallId> = trail.open.keys().copied().collect();
        for call in open {
            trail.ended(now, call, || Outcome::Cancelled);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Decider;
    use crate::protocol::error::{ErrorCode, RpcError};

    fn call(id: u64) -> ToolCall {
        ToolCall {
            id: CallId(id),
            tool: "add".into(),
            arguments: r#"{"secret":"arguments"}"#.into(),
            server: "notes".into(),
            caller: "tester".into(),
            ..ToolCall::default()
        }
    }

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: 0,
        }
    }

    fn allow(trail: &mut Trail, id: u64) -> bool {
        trail.decided(at(0), (CallId(id), ""), true, &Decision::default())
    }

    fn trail() -> Trail {
        Trail::new(false, &Limits::DEFAULT)
    }

    /// The lines, from their events on.
    fn said(trail: &mut Trail) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut trail.lines)).expect("text");
        assert!(!text.contains("secret"), "{text}");
        let event = |line: &str| {
            line.split_once(r#""event":"#)
                .expect("an event")
                .1
                .to_owned()
        };
        text.lines().map(event).collect()
    }

    #[test]
    fn each_call_has_one_line_for_its_decision_and_one_for_its_end() {
        let mut trail = trail();
        trail.begin(at(1_000), &call(1));
        let rule = Decision {
            by: Decider::Rule,
            approval: Some(Decider::Person("unix:7".into())),
            rule: Some(2),
            replaced: true,
        };
        assert!(trail.decided(at(1_000), (CallId(1), "{}"), true, &rule));
        trail.ended(at(1_012), CallId(1), || Outcome::Ok);
        trail.ended(at(1_013), CallId(1), || Outcome::Cancelled);
        let said = said(&mut trail);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with(r#""decision","call":"1","caller":"tester","#));
        let replaced = crate::crypto::hex(&crate::crypto::sha256(b"{}"));
        let end = format!(
            r#""decision":"allow","by":"rule","approval":"person (unix:7)","rule":2,"replaced":"{replaced}""#
        );
        assert!(said[0].ends_with(&end), "{said:?}");
        assert!(said[1].ends_with(r#""outcome":"ok","durationMs":12"#));
        assert!(trail.open.is_empty());
    }

    #[test]
    fn a_refused_call_has_the_outcome_refused_and_a_cancelled_one_cancelled() {
        let mut trail = trail();
        for (id, outcome) in [(1, Outcome::IsError), (2, Outcome::Cancelled)] {
            trail.begin(at(0), &call(id));
            trail.decided(at(0), (CallId(id), ""), false, &Decision::default());
            trail.ended(at(0), CallId(id), || outcome);
        }
        let said = said(&mut trail);
        assert!(said[1].contains(r#""outcome":"refused""#), "{said:?}");
        assert!(said[3].contains(r#""outcome":"cancelled""#), "{said:?}");
    }

    #[test]
    fn requests_that_are_no_tool_calls_have_no_lines() {
        let mut trail = trail();
        trail.ended(at(0), CallId(1), || panic!("nobody looks at it"));
        assert!(allow(&mut trail, 1));
        assert_eq!(said(&mut trail), Vec::<String>::new());
    }

    #[test]
    fn audit_queue_bytes_max() {
        let mut limits = Limits::DEFAULT;
        limits.audit_queue_bytes_max = 1_000;
        let mut trail = Trail::new(true, &limits);
        let mut kept = 0;
        for id in 1..=10 {
            trail.begin(at(0), &call(id));
            kept += usize::from(allow(&mut trail, id));
        }
        assert!(trail.lines.len() <= 1_000);
        assert_eq!(said(&mut trail).len(), kept);
        assert_eq!(trail.lost, 10 - kept as u64);
        assert!(allow(&mut trail, 1), "room again");
    }

    #[test]
    fn answers_say_how_a_call_went() {
        let error = RpcError::new(ErrorCode::InvalidParams, "no");
        for (answer, outcome) in [
            (Answer::Result(r#"{"content":[]}"#), Outcome::Ok),
            (
                Answer::Result(r#"{"content":[{"isError":true}],"isError":false}"#),
                Outcome::Ok,
            ),
            (
                Answer::Plain(r#"{"content":[],"isError":true}"#),
                Outcome::IsError,
            ),
            (Answer::Typed("input_required", "{}"), Outcome::Ok),
            (Answer::Error(&error), Outcome::Error(-32_602)),
            (
                Answer::Passed(r#"{"code":-1,"message":"x"}"#),
                Outcome::Error(-1),
            ),
        ] {
            assert_eq!(outcome_of(&answer), outcome, "{answer:?}");
        }
    }
}
