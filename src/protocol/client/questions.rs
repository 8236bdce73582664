//! What a server wants to know of us: by requests of its own, or by results that want input.
//!
//! | what comes                                   | revision    | what happens                                |
//! |----------------------------------------------|-------------|---------------------------------------------|
//! | any request                                  | not known: `server/discover` is open | -32601             |
//! | `ping`                                       | handshake   | answered at once, in the handshake too      |
//! | a feature we declared                        | handshake   | Question; the answer leaves when it is given |
//! | the same, and too many are open              | handshake   | -32603, busy                                |
//! | a second request with an id that is open     | handshake   | -32600                                      |
//! | any other request                            | handshake   | -32601; Undeclared, where a capability is missing |
//! | any request                                  | 2026-07-28  | Noise: there are none                       |
//! | `input_required` with questions              | 2026-07-28  | Questions; the request leaves again when all are answered |
//! | `input_required` without questions           | 2026-07-28  | the request leaves again at once            |
//! | the same, too often, or of nothing           | 2026-07-28  | Response: a violation                       |
//! | the same, of what the request's client has not declared | 2026-07-28 | Response: undeclared          |
//! | an error for an answer                       | 2026-07-28  | Response: that error; the other questions are gone |
//!
//! Source: Spec 2025-11-25 client/*; 2026-07-28 basic/patterns/mrtr.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::OutgoingKind;
use super::compose::Retry;
use super::fault::{CallFault, RemoteError};
use super::peer::{ClientPeer, PeerOutput, read_id, shown};
use super::pending::Call;
use crate::clock::{Now, Uptime};
use crate::codec::jsonrpc::{self, RequestId};
use crate::codec::scan::{Envelope, Text, members};
use crate::ids::{QuestionId, UpstreamRequestId};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::member;
use crate::secret::Quoted;

/// Methods of questions, and the capability that allows each.
const FEATURES: [(&str, &str); 3] = [
    ("sampling/createMessage", "sampling"),
    ("elicitation/create", "elicitation"),
    ("roots/list", "roots"),
];

/// The question and the capability it needs; `None` for what is no question.
fn feature_of(method: Text<'_>) -> Option<(&'static str, &'static str)> {
    FEATURES.into_iter().find(|(name, _)| method.is(name))
}

/// Whether a raw capabilities object has a feature.
fn declares(capabilities: &str, feature: &str) -> bool {
    member(capabilities, feature).is_some_and(|raw| raw.starts_with('{'))
}

/// All questions that are open.
#[derive(Debug, Default)]
pub(super) struct Questions {
    open: BTreeMap<QuestionId, Question>,
    last: QuestionId,
    /// What was refused because it is not declared, and told.
    undeclared: BTreeSet<&'static str>,
}

#[derive(Debug)]
enum Question {
    /// A request of the server.
    Wire {
        id: RequestId,
        /// The request of ours on whose stream it came.
        on: Option<UpstreamRequestId>,
    },
    /// Part of the input that a request of ours needs; the caller's id of that.
    Input(UpstreamRequestId),
}

impl Questions {
    fn open(&mut self, question: Question) -> QuestionId {
        self.last = self.last.next();
        self.open.insert(self.last, question);
        self.last
    }

    /// Whether the server may be waiting for us, rather than we for it, in this request.
    pub(super) fn hold(&self, wire: UpstreamRequestId) -> bool {
        self.open.values().any(|question| match question {
            Question::Wire { on, .. } => on.is_none_or(|on| on == wire),
            Question::Input(_) => false,
        })
    }

    fn of_server(&self, id: &RequestId) -> Option<QuestionId> {
        let mut all = self.open.iter();
        let found = all.find(|(_, question)| match question {
            Question::Wire { id: open, .. } => open == id,
            Question::Input(_) => false,
        });
        found.map(|(key, _)| *key)
    }
}

/// A request that waits for its input.
#[derive(Debug)]
pub(super) struct Asking {
    call: Call,
    since: Uptime,
    /// When it is given up.
    pub(super) by: Uptime,
    /// `requestState`, raw.
    state: Option<Box<str>>,
    inputs: Vec<Input>,
}

#[derive(Debug)]
struct Input {
    question: QuestionId,
    /// The server's key for it, as spelled between its quotes.
    key: Box<str>,
    /// The raw result.
    answer: Option<Box<str>>,
}

/// One member of `inputRequests`.
struct Wanted<'a> {
    key: Text<'a>,
    method: &'static str,
    params: Option<&'a str>,
}

impl ClientPeer {
    pub(super) fn server_request(
        &mut self,
        id: &str,
        method: Text<'_>,
        envelope: &Envelope<'_>,
        on: Option<UpstreamRequestId>,
    ) {
        let facts = self.facts.as_ref();
        if facts.is_some_and(|facts| !facts.revision.server_may_ask()) {
            let why = format!(
                "request of the server in a stateless revision: {}",
                shown(method)
            );
            return self.noise(&why, envelope.raw.as_bytes());
        }
        // Whether a server may ask at all is not known yet: nothing is granted.
        if facts.is_none() && self.opening.is_probing() {
            let error = RpcError::method_not_found(&method.decode());
            return self.answer_server(id, Err(&error));
        }
        if method.is("ping") {
            return self.answer_server(id, Ok("{}"));
        }
        let found = feature_of(method);
        let declared = |(_, feature): &(&str, &str)| declares(&self.config.capabilities, feature);
        let Some((name, _)) = found.filter(declared) else {
            let error = RpcError::method_not_found(&method.decode());
            self.answer_server(id, Err(&error));
            if let Some((method, _)) = found {
                if self.questions.undeclared.insert(method) {
                    self.push(PeerOutput::Undeclared { method });
                }
            }
            return;
        };
        let key = RequestId::from_raw(id);
        if self.questions.of_server(&key).is_some() {
            let why = format!("request id {} is in use", Quoted(id));
            let error = RpcError::new(ErrorCode::InvalidRequest, why);
            return self.answer_server(id, Err(&error));
        }
        let (value, limit) = self.open_questions();
        if value >= limit {
            let why = format!("busy: {value} requests are open, limit {limit}");
            let error = RpcError::new(ErrorCode::InternalError, why);
            return self.answer_server(id, Err(&error));
        }
        let question = self.questions.open(Question::Wire { id: key, on });
        self.push(PeerOutput::Question {
            id: question,
            method: name.into(),
            params: envelope.params.map(Box::from),
            on: on.and_then(|on| self.calls.caller_of(on)),
        });
    }

    /// How many questions are open, and how many may be.
    fn open_questions(&self) -> (usize, usize) {
        let limit = self.config.limits.upstream_questions_open_max;
        (self.questions.open.len(), limit)
    }

    fn answer_server(&mut self, id: &str, outcome: Result<&str, &RpcError>) {
        let mut body = Vec::new();
        match outcome {
            Ok(result) => jsonrpc::write_result(&mut body, id, result),
            Err(error) => jsonrpc::write_error(
                &mut body,
                Some(id),
                error.code.number(),
                &error.message,
                error.data.as_deref(),
            ),
        }
        self.send(OutgoingKind::Answer, self.dialect(), body);
    }

    /// Answers a question: a raw result object, or why there is none. A question that is gone is ignored.
    pub fn answer(&mut self, now: Now, id: QuestionId, outcome: Result<&str, RpcError>) {
        match self.questions.open.remove(&id) {
            Some(Question::Wire { id, .. }) => {
                self.answer_server(id.raw(), outcome.as_ref().copied());
            }
            Some(Question::Input(caller)) => self.input_given(now, caller, id, outcome),
            None => {}
        }
    }

    /// `notifications/cancelled` of the server.
    pub(super) fn server_cancelled(&mut self, now: Now, params: Option<&str>, raw: &[u8]) {
        let Some(id) = params.and_then(|params| member(params, "requestId")) else {
            return self.noise("notifications/cancelled without requestId", raw);
        };
        if self.is_stateless() {
            let stream = read_id(id);
            if !stream.is_some_and(|(stream, _)| self.listen_cancelled(now, stream)) {
                self.noise("notifications/cancelled for no listen stream", raw);
            }
            return;
        }
        // A request that was answered meanwhile is no longer known: that is no fault.
        if let Some(question) = self.questions.of_server(&RequestId::from_raw(id)) {
            self.questions.open.remove(&question);
            self.push(PeerOutput::QuestionGone(question));
        }
    }

    /// The link is gone.
    pub(super) fn questions_gone(&mut self) {
        for question in std::mem::take(&mut self.questions.open).into_keys() {
            self.push(PeerOutput::QuestionGone(question));
        }
    }

    pub(super) fn questions_of_call_gone(&mut self, asking: &Asking) {
        for input in &asking.inputs {
            if self.questions.open.remove(&input.question).is_some() {
                self.push(PeerOutput::QuestionGone(input.question));
            }
        }
    }

    /// A request of ours needs input.
    pub(super) fn ask(&mut self, now: Now, mut call: Call, result: &str) {
        call.rounds += 1;
        let wanted = match self.read_wanted(&call, result) {
            Ok(wanted) => wanted,
            Err(fault) => return self.respond(call.caller, Err(fault)),
        };
        let state = member(result, "requestState");
        let patience = self.config.limits.request_state_ttl;
        if wanted.is_empty() {
            call.resume(now, Duration::ZERO, patience);
            let retry = Retry {
                responses: None,
                state,
            };
            return self.send_call_again(call, retry);
        }
        let caller = call.caller;
        let mut asking = Asking {
            call,
            since: now.up,
            by: now.after(patience),
            state: state.map(Box::from),
            inputs: Vec::with_capacity(wanted.len()),
        };
        for Wanted {
            key,
            method,
            params,
        } in wanted
        {
            let question = self.questions.open(Question::Input(caller));
            asking.inputs.push(Input {
                question,
                key: key.raw().into(),
                answer: None,
            });
            self.push(PeerOutput::Question {
                id: question,
                method: method.into(),
                params: params.map(Box::from),
                on: Some(caller),
            });
        }
        self.calls.asking.insert(caller, asking);
    }

    fn read_wanted<'a>(&self, call: &Call, result: &'a str) -> Result<Vec<Wanted<'a>>, CallFault> {
        let violation = |why: String| Err(CallFault::Violation(why));
        let limits = &self.config.limits;
        let capabilities = call.capabilities.as_deref();
        let capabilities = capabilities.unwrap_or(&self.config.capabilities);
        if call.rounds > limits.input_rounds_max {
            let limit = limits.input_rounds_max;
            return violation(format!(
                "server asks for input again and again, limit {limit}"
            ));
        }
        let state = member(result, "requestState");
        if state.is_some_and(|raw| !raw.starts_with('"')) {
            return violation("requestState must be a string".to_owned());
        }
        let requests = member(result, "inputRequests");
        match requests {
            None if state.is_none() => {
                return violation("server wants input, but does not say which".to_owned());
            }
            Some(raw) if !raw.starts_with('{') => {
                return violation("inputRequests must be an object".to_owned());
            }
            None | Some(_) => {}
        }
        let mut wanted: Vec<Wanted<'a>> = Vec::new();
        for (key, request) in requests.into_iter().flat_map(members) {
            let method = member(request, "method").and_then(Text::of_value);
            let Some((name, feature)) = method.and_then(feature_of) else {
                let method = method.map_or_else(String::new, shown);
                return violation(format!("server asks for what we did not offer: {method}"));
            };
            if !declares(capabilities, feature) {
                return Err(CallFault::Undeclared {
                    method: name,
                    feature,
                });
            }
            let params = member(request, "params");
            if params.is_some_and(|raw| !raw.starts_with('{')) {
                return violation(format!("params of {name} must be an object"));
            }
            if wanted.iter().any(|earlier| earlier.key == key) {
                return violation(format!("two questions are called {}", shown(key)));
            }
            wanted.push(Wanted {
                key,
                method: name,
                params,
            });
            let limit = limits.input_requests_max;
            if wanted.len() > limit {
                return violation(format!("server asks more than {limit} questions at once"));
            }
        }
        let (open, limit) = self.open_questions();
        let value = open + wanted.len();
        if value > limit {
            return Err(CallFault::Busy { value, limit });
        }
        Ok(wanted)
    }

    fn input_given(
        &mut self,
        now: Now,
        caller: UpstreamRequestId,
        id: QuestionId,
        outcome: Result<&str, RpcError>,
    ) {
        let Some(asking) = self.calls.asking.get_mut(&caller) else {
            return;
        };
        let fault = match outcome {
            Ok(result) => {
                let mut inputs = asking.inputs.iter_mut();
                if let Some(input) = inputs.find(|input| input.question == id) {
                    input.answer = Some(result.into());
                }
                None
            }
            Err(error) => Some(CallFault::Refused(RemoteError {
                code: error.code.number().into(),
                message: error.message,
                data: error.data.map(Into::into),
                raw: None,
            })),
        };
        if fault.is_none() && asking.inputs.iter().any(|input| input.answer.is_none()) {
            return;
        }
        let Some(asking) = self.calls.asking.remove(&caller) else {
            return;
        };
        if let Some(fault) = fault {
            self.questions_of_call_gone(&asking);
            return self.respond(caller, Err(fault));
        }
        let mut responses = String::from("{");
        for input in &asking.inputs {
            if responses.len() > 1 {
                responses.push(',');
            }
            let answer = input.answer.as_deref().unwrap_or("{}");
            responses.push_str(&format!("\"{}\":{answer}", input.key));
        }
        responses.push('}');
        let Asking {
            mut call,
            since,
            state,
            ..
        } = asking;
        let patience = self.config.limits.request_state_ttl;
        call.resume(now, now.up.since(since), patience);
        let retry = Retry {
            responses: Some(&responses),
            state: state.as_deref(),
        };
        self.send_call_again(call, retry);
    }
}
