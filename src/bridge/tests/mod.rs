//! The bridge as a whole, driven by hand on a virtual clock.

mod calls;
mod events;
mod holds;
mod model;
mod odd_values;
mod prompts;

use std::time::Duration;

use super::*;
use crate::clock::Uptime;
use crate::entropy::Seeded;
use crate::gate::{Gate, Passage, Policy, ToolCall};

/// A bridge, its clock, and what it has put out so far by kind.
struct Rig {
    bridge: Bridge,
    entropy: Seeded,
    now: Now,
    calls: u64,
    answers: Vec<(CallId, String)>,
    requests: VecDeque<(Ticket, &'static str, String)>,
    notes: VecDeque<(&'static str, String)>,
    progress: Vec<(CallId, u64, Option<u64>)>,
    diagnostics: Vec<Diagnostic>,
    /// Answers about held calls: the call that brought it, our id, the answer, who.
    decisions: Vec<(Option<CallId>, String, &'static str, String)>,
}

/// Wall clock of the rig when its uptime is zero.
const UNIX_MS: i64 = 1_796_026_000_000;

impl Rig {
    fn new(limits: &Limits, mode: ChannelMode) -> Self {
        Self {
            bridge: Bridge::new(limits, mode, true),
            entropy: Seeded::new(1),
            now: Now {
                up: Uptime::ZERO,
                unix_ms: UNIX_MS,
            },
            calls: 0,
            answers: Vec::new(),
            requests: VecDeque::new(),
            notes: VecDeque::new(),
            progress: Vec::new(),
            diagnostics: Vec::new(),
            decisions: Vec::new(),
        }
    }

    /// A rig whose link is ready and whose approvals have been listed.
    fn ready(limits: &Limits) -> Self {
        let mut rig = Self::new(limits, ChannelMode::Auto);
        rig.bridge.handle_ready(rig.now, true);
        rig.drain();
        rig.answer_lists();
        rig
    }

    fn drain(&mut self) {
        while let Some(output) = self.bridge.poll() {
            match output {
                BridgeOutput::Answer { call, result } => {
                    let json = result.as_json().to_owned();
                    serde_json::from_str::<&RawValue>(&json).expect("results are JSON");
                    self.answers.push((call, json));
                }
                BridgeOutput::Request {
                    ticket,
                    method,
                    params,
                } => self.requests.push_back((ticket, method, params)),
                BridgeOutput::Notify { method, params } => self.notes.push_back((method, params)),
                BridgeOutput::Progress {
                    call,
                    progress,
                    total,
                    ..
                } => self.progress.push((call, progress, total)),
                BridgeOutput::Decide {
                    call,
                    id,
                    answer,
                    by,
                } => self.decisions.push((call, id, answer.as_str(), by)),
                BridgeOutput::Diagnostic(diagnostic) => self.diagnostics.push(diagnostic),
            }
        }
    }

    /// Moves the clock, stopping at each deadline on the way.
    fn advance_to(&mut self, up: Uptime) {
        while let Some(deadline) = self.bridge.next_deadline().filter(|due| due.at <= up) {
            self.set_clock(deadline.at.max(self.now.up));
            self.bridge.handle_timeout(self.now);
            self.drain();
            let next = self.bridge.next_deadline();
            assert!(
                next.is_none_or(|next| next.at > self.now.up),
                "{next:?} is still due"
            );
        }
        self.set_clock(up);
    }

    fn advance(&mut self, ms: u64) {
        self.advance_to(self.now.after(Duration::from_millis(ms)));
    }

    fn set_clock(&mut self, up: Uptime) {
        let passed = i64::try_from(up.since(self.now.up).as_millis()).expect("small");
        self.now = Now {
            up,
            unix_ms: self.now.unix_ms + passed,
        };
    }

    fn call_as(&mut self, id: CallId, tool: &str, arguments: &str, progress: bool) {
        let passage = Gate::new(Policy::Open, &Limits::DEFAULT).admit(
            self.now,
            ToolCall {
                id,
                tool: tool.into(),
                arguments: arguments.into(),
                server: "openclaw".into(),
                caller: "test".into(),
                wants_progress: progress,
                ..ToolCall::default()
            },
        );
        let Passage::Open(call) = passage else {
            panic!("an open gate lets everything pass")
        };
        self.bridge.call(self.now, call, &mut self.entropy);
        self.drain();
    }

    fn call(&mut self, tool: &str, arguments: &str) -> CallId {
        self.calls += 1;
        self.call_as(CallId(self.calls), tool, arguments, false);
        CallId(self.calls)
    }

    /// The one answer of a call; `None` while there is none.
    fn answer(&mut self, call: CallId) -> Option<String> {
        let at = self.answers.iter().position(|(of, _)| *of == call)?;
        let (_, json) = self.answers.remove(at);
        let more = self.answers.iter().any(|(of, _)| *of == call);
        assert!(!more, "call {call} was answered twice");
        Some(json)
    }

    /// Calls and returns the answer, which must come at once.
    fn now(&mut self, tool: &str, arguments: &str) -> String {
        let call = self.call(tool, arguments);
        self.answer(call).expect("an immediate answer")
    }

    fn event(&mut self, name: &str, payload: &str) {
        let raw = RawValue::from_string(payload.to_owned()).expect("test input is JSON");
        self.bridge.handle_event(self.now, name, Some(raw));
        self.drain();
    }

    fn message(&mut self, session: &str, role: &str, text: &str) {
        self.event(
            "session.message",
            &format!(
                "{{\"sessionKey\":\"{session}\",\"message\":{{\"role\":\"{role}\",\"content\":\"{text}\"}}}}"
            ),
        );
    }

    /// The oldest request that is still open.
    fn request(&mut self) -> (Ticket, &'static str, String) {
        self.requests.pop_front().expect("a request")
    }

    fn respond(&mut self, ticket: Ticket, payload: &str) {
        let raw = RawValue::from_string(payload.to_owned()).expect("test input is JSON");
        self.bridge.handle_response(self.now, ticket, Ok(raw));
        self.drain();
    }

    fn fail(&mut self, ticket: Ticket, error: GatewayError) {
        self.bridge.handle_response(self.now, ticket, Err(error));
        self.drain();
    }

    /// Answers the two list requests that follow each `handle_ready`.
    fn answer_lists(&mut self) {
        for method in ["exec.approval.list", "plugin.approval.list"] {
            let (ticket, asked, params) = self.request();
            assert_eq!((asked, &*params), (method, "{}"));
            self.respond(ticket, "[]");
        }
    }

    fn prompt(&mut self, code: &str) {
        let params = format!(
            "{{\"request_id\":\"{code}\",\"tool_name\":\"Bash\",\"description\":\"d\",\"input_preview\":\"p\"}}"
        );
        self.bridge.handle_notification(
            self.now,
            "notifications/claude/channel/permission_request",
            Some(&params),
        );
        self.drain();
    }

    fn warnings(&mut self) -> Vec<String> {
        let all = std::mem::take(&mut self.diagnostics);
        all.into_iter()
            .filter(|diagnostic| diagnostic.level == Level::Warning)
            .map(|diagnostic| diagnostic.message)
            .collect()
    }
}

fn text_result(text: &str) -> String {
    ToolResult::text(text).as_json().to_owned()
}

fn error_result(text: &str) -> String {
    ToolResult::error(text).as_json().to_owned()
}

const TIMEOUT: &str =
    r#"{"content":[{"type":"text","text":"timeout"}],"structuredContent":{"event":null}}"#;

fn remote(message: &str) -> GatewayError {
    GatewayError::Remote {
        code: "INVALID_REQUEST".to_owned(),
        message: message.to_owned(),
        details: None,
    }
}
