//! Calls of stateless clients at servers that ask by requests: such a call is answered `input_required`, waits
//! at its server, and is found again by the retry.
//!
//! | a call is | input                                | next    | output                                    |
//! |-----------|--------------------------------------|---------|-------------------------------------------|
//! | Open      | questions, at the end of a turn      | Parked  | `input_required` with all of them         |
//! | Open      | the server's result                  | –       | the answer                                |
//! | Parked    | a further question                   | Parked  | kept for the next retry                   |
//! | Parked    | the server's result                  | Parked  | kept for the next retry                   |
//! | Parked    | a retry, all answers are there       | Open    | the answers to the server                 |
//! | Parked    | a retry, some are missing            | Parked  | answers that came; `input_required` again |
//! | Parked    | a retry, a result is kept            | –       | the answer                                |
//! | Parked    | a retry that is not of this round    | Parked  | -32602 to that retry                      |
//! | Parked    | its time is over, or the end comes   | –       | errors and a cancellation to the server   |
//!
//! A parked call stands in the ledger like any other; only the request of its client is answered. The gate has
//! seen it once: a retry starts nothing, it brings an answer to what is running.
//!
//! The state that the client carries names this instance in clear and the call under seal, bound to who asks,
//! to method, name and arguments. A process runs in one place, so another instance can say no more than that.

use std::borrow::Cow;

use super::{Asking, Due, Hub, Question, Questions, Stage, unix_after};
use crate::clock::{Now, Uptime};
use crate::codec::scan::Text;
use crate::codec::shared_text::SharedText;
use crate::hub::ledger::Place;
use crate::hub::local_side::Facts;
use crate::ids::{CallId, PeerId, QuestionId};
use crate::link::http_rules::Principal;
use crate::local::Binding;
use crate::manager::error::UpstreamError;
use crate::manager::server_config::ServerKey;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{ToolResult, may_have, member};
use crate::protocol::server::{Answer, ServerRequest};

/// Methods that may be answered by a wish for input. Spec: 2026-07-28 basic/patterns/mrtr.
const MAY_WAIT: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

/// How states of ours begin.
const MARK: &str = "drawspan.";

/// A call of a stateless client.
#[derive(Debug)]
pub(super) struct Asker {
    peer: PeerId,
    principal: Option<Principal>,
    method: Cow<'static, str>,
    params: Option<SharedText>,
    /// Those of its last request. Spec: 2026-07-28 basic/patterns/mrtr.
    pub(super) capabilities: SharedText,
    /// How often its client was asked.
    rounds: usize,
    /// Questions that it has had.
    numbers: u32,
    pub(super) held: Vec<Held>,
    parked: Option<Parked>,
}

/// A question for the client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) question: QuestionId,
    number: u32,
    /// The client knows of it.
    put: bool,
}

#[derive(Debug)]
struct Parked {
    by: Uptime,
    outcome: Option<Outcome>,
}

type Outcome = Result<SharedText, Box<UpstreamError>>;

impl Held {
    /// The key of a question in `inputRequests`.
    fn key(self) -> String {
        format!("q{}", self.number)
    }
}

/// To which request a state belongs.
fn binding<'a>(
    principal: Option<&'a Principal>,
    method: &'a str,
    name: &'a str,
    params: Option<&'a str>,
) -> Binding<'a> {
    let arguments = params.and_then(|params| member(params, "arguments"));
    Binding {
        principal: principal.map_or("", Principal::as_str),
        method,
        name,
        arguments: arguments.unwrap_or("{}"),
    }
}

/// The tool, prompt or resource that a request means.
fn name_in<'a>(method: &str, params: Option<&'a str>) -> Cow<'a, str> {
    let key = match method {
        "resources/read" => "uri",
        _ => "name",
    };
    let value = params.and_then(|params| member(params, key));
    let text = value.and_then(Text::of_value);
    text.map_or(Cow::Borrowed(""), |text| text.decode())
}

/// `params.requestState`.
fn state_in(params: Option<&str>) -> Option<Cow<'_, str>> {
    let params = params.filter(|params| may_have(params, &["requestState"]))?;
    let raw = member(params, "requestState")?;
    Some(Text::of_value(raw)?.decode())
}

fn refused(why: &str) -> RpcError {
    RpcError::new(
        ErrorCode::InvalidParams,
        format!("params.requestState {why}"),
    )
}

impl Questions {
    fn seal(&self, now: Now, call: CallId, asker: &Asker) -> String {
        let params = asker.params.as_deref();
        let name = name_in(&asker.method, params);
        let binding = binding(asker.principal.as_ref(), &asker.method, &name, params);
        let expires = unix_after(now, self.limits.request_state_ttl);
        let state = format!("{call}.{}", asker.rounds);
        let sealed = self.key.seal(binding, expires, Some(&state));
        format!("{MARK}{}.{sealed}", self.instance)
    }

    /// The call that a retry is for, when it waits for this retry.
    fn unseal(
        &self,
        now: Now,
        peer: PeerId,
        principal: Option<&Principal>,
        request: &ServerRequest,
        sealed: &str,
    ) -> Result<CallId, RpcError> {
        let params = request.params.as_deref();
        let name = name_in(&request.method, params);
        let binding = binding(principal, &request.method, &name, params);
        let state = self.key.open(binding, now.unix_ms, sealed)?;
        let state = state.as_deref().and_then(|state| state.split_once('.'));
        let parsed = state.and_then(|(call, round)| {
            Some((CallId(call.parse().ok()?), round.parse::<usize>().ok()?))
        });
        let waits = |(call, round): &(CallId, usize)| {
            self.askers.get(call).is_some_and(|asker| {
                asker.peer == peer && asker.parked.is_some() && asker.rounds == *round
            })
        };
        let found = parsed.filter(waits).map(|(call, _)| call);
        found.ok_or_else(|| refused("is of a call that is over or has gone on; start over"))
    }

    pub(super) fn parked_of(&self, peer: PeerId) -> Vec<CallId> {
        let askers = self.askers.iter();
        let parked = askers.filter(|(_, asker)| asker.peer == peer && asker.parked.is_some());
        parked.map(|(call, _)| *call).collect()
    }

    pub(in crate::hub::span) fn is_parked(&self, call: CallId) -> bool {
        self.askers
            .get(&call)
            .is_some_and(|asker| asker.parked.is_some())
    }

    fn park(&mut self, call: CallId, by: Uptime) {
        if let Some(asker) = self.askers.get_mut(&call) {
            let outcome = None;
            asker.parked = Some(Parked { by, outcome });
            self.due.insert((by, Due::Parked(call)));
            self.parked += 1;
            self.parked_peak = self.parked_peak.max(self.parked);
        }
    }

    /// The client is back, or the call is over. Gives what was kept for it.
    fn unpark(&mut self, call: CallId) -> Option<Outcome> {
        let parked = self.askers.get_mut(&call)?.parked.take()?;
        self.due.remove(&(parked.by, Due::Parked(call)));
        self.parked -= 1;
        let bytes = parked.outcome.as_ref().map_or(0, bytes_of);
        self.kept_bytes -= bytes;
        parked.outcome
    }

    /// A call has its answer, or nobody wants one. Its questions were ended before.
    pub(in crate::hub) fn forget_call(&mut self, call: CallId) {
        if !self.askers.is_empty() {
            self.unpark(call);
            self.fresh.remove(&call);
            self.askers.remove(&call);
        }
    }

    /// What a call asks by, when its client is a stateless one: the capabilities of the request.
    pub(in crate::hub::span) fn declared_with(&self, call: CallId) -> Option<&SharedText> {
        self.askers.get(&call).map(|asker| &asker.capabilities)
    }

    /// Keeps what came for a parked call; gives it back when its client waits for it.
    pub(in crate::hub::span) fn keep(&mut self, call: CallId, outcome: Outcome) -> Option<Outcome> {
        let Some(asker) = self.askers.get_mut(&call) else {
            return Some(outcome);
        };
        let Some(parked) = &mut asker.parked else {
            return Some(outcome);
        };
        let (bytes, limit) = (bytes_of(&outcome), self.limits.parked_bytes_max);
        let value = self.kept_bytes.saturating_add(bytes);
        let outcome = match value > limit {
            true => Ok(ToolResult::error(&format!(
                "the result came while nobody waited for it and could not be kept: {value} bytes, \
                 limit {limit} (parked_bytes_max)"
            ))
            .into_json()
            .into()),
            false => outcome,
        };
        self.kept_bytes = self.kept_bytes.saturating_add(bytes_of(&outcome));
        parked.outcome = Some(outcome);
        None
    }
}

fn bytes_of(outcome: &Outcome) -> usize {
    match outcome {
        Ok(result) => result.len(),
        Err(error) => error.message.len(),
    }
}

impl Hub {
    /// A request of a stateless client is about to go to a server, which may ask by requests.
    pub(in crate::hub) fn remember_asker(
        &mut self,
        call: CallId,
        method: Cow<'static, str>,
        facts: &Facts,
    ) {
        let Some(side) = &mut self.upstream else {
            return;
        };
        if !facts.revision.is_stateless() {
            return;
        }
        let asker = Asker {
            peer: facts.client,
            principal: facts.principal,
            method,
            params: facts.params.clone(),
            capabilities: facts.client_capabilities.clone(),
            rounds: 0,
            numbers: 0,
            held: Vec::new(),
            parked: None,
        };
        side.questions.askers.insert(call, asker);
    }

    /// A question for a stateless client.
    pub(super) fn hold_question(&mut self, now: Now, call: CallId, asking: Asking) {
        let Some(side) = &mut self.upstream else {
            return;
        };
        let questions = &mut side.questions;
        let Some(asker) = questions.askers.get_mut(&call) else {
            return;
        };
        let limits = &questions.limits;
        let why = if !MAY_WAIT.contains(&&*asker.method) {
            let method = &asker.method;
            Some(format!(
                "{method} of a client of 2026-07-28 cannot wait for an answer"
            ))
        } else if asker.rounds >= limits.input_rounds_max {
            let limit = limits.input_rounds_max;
            Some(format!(
                "its call has asked {limit} times, limit {limit} (input_rounds_max)"
            ))
        } else if asker.parked.is_none() && questions.parked >= limits.parked_calls_max {
            let limit = limits.parked_calls_max;
            Some(format!(
                "busy: {limit} calls wait for their clients, limit {limit} (parked_calls_max)"
            ))
        } else {
            None
        };
        if let Some(why) = why {
            let error = RpcError::new(ErrorCode::InternalError, why.clone());
            return self.refuse_question(now, asking, error, &why);
        }
        asker.numbers += 1;
        let (id, number) = (asking.id, asker.numbers);
        asker.held.push(Held {
            question: id,
            number,
            put: false,
        });
        if asker.parked.is_none() {
            questions.fresh.insert(call);
        }
        let question = Question {
            asking,
            call: Some(call),
            stage: Stage::Held { number },
        };
        questions.open.insert(id, question);
    }

    /// Answers the requests of clients that have something to be asked: the turn is over, so questions that
    /// came together are put together. Says whether anything moved.
    pub(in crate::hub::span) fn put_held(&mut self, now: Now) -> bool {
        let Some(side) = &mut self.upstream else {
            return false;
        };
        if side.questions.fresh.is_empty() {
            return false;
        }
        let fresh = std::mem::take(&mut side.questions.fresh);
        let mut moved = false;
        for call in fresh {
            moved |= self.require_input(now, call);
        }
        moved
    }

    fn require_input(&mut self, now: Now, call: CallId) -> bool {
        let (Some(side), Some(entry)) = (&mut self.upstream, self.ledger.entry(call)) else {
            return false;
        };
        let questions = &mut side.questions;
        let most = questions.limits.input_requests_max;
        let Some(asker) = questions.askers.get_mut(&call) else {
            return false;
        };
        if asker.held.is_empty() || asker.parked.is_some() {
            return false;
        }
        asker.rounds += 1;
        let mut result = String::from(r#"{"inputRequests":{"#);
        for (i, held) in asker.held.iter_mut().take(most).enumerate() {
            let Some(question) = questions.open.get(&held.question) else {
                continue;
            };
            held.put = true;
            let (key, method) = (held.key(), &question.asking.method);
            let comma = if i == 0 { "" } else { "," };
            result.push_str(&format!(r#"{comma}"{key}":{{"method":"{method}""#));
            if let Some(params) = &question.asking.params {
                result.push_str(r#","params":"#);
                result.push_str(params);
            }
            result.push('}');
        }
        let Some(asker) = questions.askers.get(&call) else {
            return false;
        };
        let state = questions.seal(now, call, asker);
        result.push_str(&format!(r#"}},"requestState":"{state}"}}"#));
        let by = now.after(questions.limits.request_state_ttl);
        questions.park(call, by);
        self.ledger.moved(call, Place::Parked);
        let answer = Answer::Typed("input_required", &result);
        self.respond(now, entry.peer, entry.key, answer);
        true
    }

    /// Takes a request that brings answers for a call that is parked here; gives back any other.
    pub(in crate::hub) fn resume_parked(
        &mut self,
        now: Now,
        peer: PeerId,
        request: ServerRequest,
    ) -> Option<ServerRequest> {
        let Some(side) = &self.upstream else {
            return Some(request);
        };
        if !request.revision.is_stateless() || !MAY_WAIT.contains(&&*request.method) {
            return Some(request);
        }
        let state = state_in(request.params.as_deref()).map(Cow::into_owned);
        let ours = state
            .as_deref()
            .and_then(|state| state.strip_prefix(MARK)?.split_once('.'));
        let Some((_, sealed)) = ours.filter(|(instance, _)| *instance == side.questions.instance)
        else {
            return Some(request);
        };
        let principal = self.http.principal_of(peer);
        let found = side
            .questions
            .unseal(now, peer, principal.as_ref(), &request, sealed);
        let responses = request.params.as_deref();
        let responses = responses.and_then(|params| member(params, "inputResponses"));
        let responses = responses.filter(|raw| *raw != "null");
        let found = found.and_then(|call| match responses {
            Some(raw) if !raw.starts_with('{') => Err(RpcError::new(
                ErrorCode::InvalidParams,
                "params.inputResponses must be an object",
            )),
            _ => Ok(call),
        });
        match found {
            Ok(call) => self.resume(now, call, &request, responses.unwrap_or("{}")),
            Err(error) => self.respond(now, peer, request.key, Answer::Error(&error)),
        }
        None
    }

    fn resume(&mut self, now: Now, call: CallId, request: &ServerRequest, responses: &str) {
        let Some(side) = &mut self.upstream else {
            return;
        };
        let outcome = side.questions.unpark(call);
        let Some(asker) = side.questions.askers.get_mut(&call) else {
            return;
        };
        if let Some(capabilities) = &request.client_capabilities {
            asker.capabilities = capabilities.clone();
        }
        let place = match &*asker.method {
            "resources/read" => Place::UpstreamRead,
            "prompts/get" => Place::UpstreamOther,
            _ => Place::Upstream,
        };
        let put: Vec<Held> = asker.held.iter().filter(|held| held.put).copied().collect();
        self.ledger.resumed(call, request.key, place);
        for held in put {
            let answer = member(responses, &held.key()).filter(|raw| raw.starts_with('{'));
            if let Some(answer) = answer {
                side.questions.take(held.question);
                side.manager.answer(now, held.question, Ok(answer));
            }
        }
        if let Some(outcome) = outcome {
            return self.finish_upstream(now, call, outcome);
        }
        let asks_more = side.questions.askers.get(&call);
        if asks_more.is_some_and(|asker| !asker.held.is_empty()) {
            side.questions.fresh.insert(call);
        }
    }

    /// Why a call with a state cannot go to a server of the handshake era: that era has no states, so it is
    /// one of a bridge's, and not one of ours.
    pub(in crate::hub) fn foreign_state(
        &self,
        peer: PeerId,
        server: &ServerKey,
        facts: &Facts,
    ) -> Option<RpcError> {
        if !facts.revision.is_stateless() {
            return None;
        }
        let state = state_in(facts.params.as_deref())?;
        let side = self.upstream.as_ref()?;
        let known = side.manager.facts(*side.runtimes.get(&peer)?, server)?;
        if known.revision.is_stateless() {
            return None;
        }
        Some(match state.strip_prefix(MARK) {
            Some(_) => refused(
                "is of a call that waits at another instance of this bridge: send it there, or start over",
            ),
            None => refused("is not one of ours for this request"),
        })
    }

    /// Lets go of calls whose clients are not waiting: the end has come.
    pub(in crate::hub) fn drop_parked_calls(&mut self, now: Now, why: &str) {
        for call in self.ledger.at(Place::Parked) {
            self.end_questions_of(now, call, why);
            self.drop_call(now, call);
        }
    }
}
