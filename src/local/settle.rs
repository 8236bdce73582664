//! What becomes of a program's answer, and of a client's answer to a question.

use super::call::{InputRequest, LocalAnswer, LocalKind, LocalOutput, LocalReply};
use super::feature::{Feature, declares};
use super::tasks::write_inputs;
use super::{CallFacts, Local, Open, Stage, TaskStart, input_object};
use crate::clock::Now;
use crate::codec::json_text::write_string;
use crate::codec::scan::{Text, validate};
use crate::entropy::{Entropy, uuid_v4};
use crate::ids::CallId;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{ToolResult, member, string_member};
use crate::protocol::revision::Revision;
use crate::secret::Quoted;

impl Local {
    pub(super) fn settle(
        &mut self,
        now: Now,
        call: CallId,
        reply: LocalReply,
        entropy: Option<&mut dyn Entropy>,
    ) {
        let Some(open) = self.open.get(&call) else {
            return;
        };
        let is_more = matches!(reply, LocalReply::NeedInput { .. } | LocalReply::Task(_));
        if is_more && matches!(open.stage, Stage::Client(_)) {
            return;
        }
        if let Err(what) = self.check(open, &reply) {
            let name = Quoted(open.request.kind.name());
            let error = RpcError::new(ErrorCode::InternalError, format!("{name} {what}"));
            return self.finish(now, call, Err(error));
        }
        match (reply, entropy) {
            (LocalReply::Result(result), _) => self.finish(now, call, Ok(result)),
            (LocalReply::Error(error), _) => self.finish(now, call, Err(error)),
            (LocalReply::NeedInput { requests, state }, _) => {
                self.need_input(now, call, requests, state);
            }
            (LocalReply::Task(start), Some(entropy)) => {
                self.start_task(now, call, uuid_v4(entropy), start);
            }
            (LocalReply::Task(_), None) => {
                self.fail(now, call, "a closure cannot start a task");
            }
        }
    }

    /// What is wrong with a program's answer, in words that go behind its name: nothing of it reaches a
    /// client then.
    fn check(&self, open: &Open, reply: &LocalReply) -> Result<(), String> {
        let is_object = |raw: &str| {
            raw.trim_ascii_start().starts_with('{')
                && validate(raw.as_bytes(), self.limits.json_depth_max).is_ok()
        };
        match reply {
            LocalReply::Result(result) if is_object(result) => Ok(()),
            LocalReply::Result(_) => Err("answered with something that is no JSON object".into()),
            LocalReply::Error(error) => match &error.data {
                Some(data) if validate(data.as_bytes(), self.limits.json_depth_max).is_err() => {
                    Err("answered with an error whose data is no JSON".into())
                }
                _ => Ok(()),
            },
            LocalReply::Task(_) if open.task().is_some() => Err("is a task already".into()),
            LocalReply::Task(_) if !open.request.context.may_be_task => {
                Err("wants to be a task, but may not".into())
            }
            LocalReply::Task(_) => Ok(()),
            LocalReply::NeedInput { requests, state } => {
                let (count, limit) = (requests.len(), self.limits.input_requests_max);
                let bytes = state.as_ref().map_or(0, String::len);
                let bytes_max = self.limits.request_state_bytes_max;
                let mut keys: Vec<&str> = requests.iter().map(|one| &*one.key).collect();
                keys.sort_unstable();
                keys.dedup();
                if !open.request.kind.may_need_input() {
                    Err("asks the client something, which a completion cannot".into())
                } else if count == 0 && (state.is_none() || open.task().is_some()) {
                    Err("needs input, but asks for nothing".into())
                } else if count > limit {
                    Err(format!(
                        "asks {count} things at once, limit input_requests_max {limit}"
                    ))
                } else if keys.len() < count {
                    Err("asks two things under one key".into())
                } else if bytes > bytes_max {
                    Err(format!(
                        "stores {bytes} bytes, limit request_state_bytes_max {bytes_max}"
                    ))
                } else if open.rounds >= self.limits.input_rounds_max {
                    let most = self.limits.input_rounds_max;
                    Err(format!(
                        "asks again and again, limit input_rounds_max {most}"
                    ))
                } else if !requests.iter().all(|one| is_object(&one.params)) {
                    Err("asks with params that are no JSON object".into())
                } else {
                    Ok(())
                }
            }
        }
    }

    /// The call, or the task it goes on as, has its outcome.
    pub(super) fn finish(&mut self, now: Now, call: CallId, outcome: Result<String, RpcError>) {
        let Some(open) = self.open.remove(&call) else {
            return;
        };
        if let Stage::Task(task) = open.stage {
            self.tasks.finish(now, &task, outcome);
            self.outputs.push_back(LocalOutput::TaskChanged { task });
            return;
        }
        let stateless = open.request.context.revision.is_stateless();
        let answer = match (outcome, &open.request.kind) {
            (Err(error), _) => LocalAnswer::Error(error),
            (Ok(result), LocalKind::ReadResource { .. }) if stateless => {
                LocalAnswer::Typed("complete", with_cache_hints(result))
            }
            (Ok(result), _) => LocalAnswer::Result(result),
        };
        self.outputs.push_back(LocalOutput::Answer { call, answer });
    }

    /// The call cannot be done, for a reason outside of the program: a tool says so in its result.
    pub(super) fn fail(&mut self, now: Now, call: CallId, why: &str) {
        let Some(open) = self.open.get(&call) else {
            return;
        };
        let outcome = match &open.request.kind {
            LocalKind::Tool { .. } => Ok(ToolResult::error(why).as_json().to_owned()),
            LocalKind::ReadResource { .. }
            | LocalKind::GetPrompt { .. }
            | LocalKind::Complete { .. } => Err(RpcError::new(ErrorCode::InternalError, why)),
        };
        self.finish(now, call, outcome);
    }

    /// Answers a call that never was opened.
    pub(super) fn refuse(&mut self, call: CallId, error: RpcError) {
        let answer = LocalAnswer::Error(error);
        self.outputs.push_back(LocalOutput::Answer { call, answer });
    }

    /// Answers the call of a tool that needs what the client does not offer.
    pub(super) fn refuse_tool(
        &mut self,
        call: CallId,
        tool: &str,
        revision: Revision,
        needs: Feature,
    ) {
        if revision.is_stateless() {
            return self.refuse(call, needs.missing());
        }
        let result = ToolResult::error(&undeclared(tool, needs));
        let answer = LocalAnswer::Result(result.as_json().to_owned());
        self.outputs.push_back(LocalOutput::Answer { call, answer });
    }

    fn need_input(
        &mut self,
        now: Now,
        call: CallId,
        requests: Vec<InputRequest>,
        state: Option<String>,
    ) {
        let Some(open) = self.open.get_mut(&call) else {
            return;
        };
        open.rounds += 1;
        let context = &open.request.context;
        let mut needed = requests.iter().map(InputRequest::needs);
        let missing = needed.find(|feature| !context.offers(*feature));
        let stateless = context.revision.is_stateless();
        match missing {
            Some(feature) if stateless => return self.finish(now, call, Err(feature.missing())),
            Some(feature) => {
                let why = undeclared(open.request.kind.name(), feature);
                return self.fail(now, call, &why);
            }
            None => {}
        }
        if let Some(task) = open.task().cloned() {
            open.request.context.state = state.map(Into::into);
            self.tasks.ask(now, &task, requests);
            self.outputs.push_back(LocalOutput::TaskChanged { task });
        } else if stateless {
            self.ask_by_result(now, call, &requests, state.as_deref());
        } else {
            open.request.context.state = state.map(Into::into);
            self.ask_by_request(now, call, requests);
        }
    }

    /// Answers "input required": the client comes back with a new call.
    fn ask_by_result(
        &mut self,
        now: Now,
        call: CallId,
        requests: &[InputRequest],
        state: Option<&str>,
    ) {
        let Some(open) = self.open.remove(&call) else {
            return;
        };
        let mut result = String::from("{");
        if !requests.is_empty() {
            result.push_str(r#""inputRequests":{"#);
            for (i, request) in requests.iter().enumerate() {
                result.push_str(if i == 0 { "" } else { "," });
                request.write_member(&mut result, &request.key);
            }
            result.push('}');
        }
        if state.is_some() {
            let ttl = i64::try_from(self.limits.request_state_ttl.as_millis());
            let expires = now.unix_ms.saturating_add(ttl.unwrap_or(i64::MAX));
            let sealed = self.key.seal(open.binding(), expires, state);
            result.push_str(if requests.is_empty() { "" } else { "," });
            result.push_str(&format!(r#""requestState":"{sealed}""#));
        }
        result.push('}');
        let answer = LocalAnswer::Typed("input_required", result);
        self.outputs.push_back(LocalOutput::Answer { call, answer });
    }

    /// Asks a client of the handshake era; with nothing to ask the program goes on at once.
    fn ask_by_request(&mut self, now: Now, call: CallId, requests: Vec<InputRequest>) {
        let mut keys = Vec::new();
        for request in requests {
            keys.push((request.key.clone(), None));
            let method = request.kind.method();
            let (key, params) = (request.key.clone(), legacy_params(call, request));
            self.outputs.push_back(LocalOutput::AskClient {
                call,
                key,
                method,
                params,
            });
        }
        if let Some(open) = self.open.get_mut(&call) {
            open.stage = Stage::Client(keys);
        }
        self.go_on_when_answered(now, call);
    }

    pub(super) fn client_answered(
        &mut self,
        now: Now,
        call: CallId,
        key: &str,
        outcome: Result<Box<str>, Box<str>>,
    ) {
        let Some(open) = self.open.get_mut(&call) else {
            return;
        };
        let Stage::Client(keys) = &mut open.stage else {
            return;
        };
        let Some((_, slot)) = keys.iter_mut().find(|(asked, _)| asked == key) else {
            return;
        };
        match outcome {
            Ok(result) => {
                *slot = Some(result);
                self.go_on_when_answered(now, call);
            }
            Err(error) => {
                let text = member(&error, "message").and_then(Text::of_value);
                let text = text.map_or_else(|| (*error).into(), |text| text.decode());
                let why = format!(
                    "the client did not answer {}: {}",
                    Quoted(key),
                    Quoted(&text)
                );
                self.outputs.push_back(LocalOutput::Cancelled(call));
                self.fail(now, call, &why);
            }
        }
    }

    fn go_on_when_answered(&mut self, now: Now, call: CallId) {
        let Some(open) = self.open.get_mut(&call) else {
            return;
        };
        let Stage::Client(keys) = &mut open.stage else {
            return;
        };
        if keys.iter().any(|(_, answer)| answer.is_none()) {
            return;
        }
        let answers: Vec<(String, Box<str>)> = std::mem::take(keys)
            .into_iter()
            .filter_map(|(key, answer)| Some((key, answer?)))
            .collect();
        open.stage = Stage::Asked;
        self.go_on(now, call, &write_inputs(&answers));
    }

    /// Puts the request to the program once more, with what it wanted to know.
    fn go_on(&mut self, now: Now, call: CallId, inputs: &str) {
        if let Some(open) = self.open.get_mut(&call) {
            open.request.context.inputs = Some(inputs.into());
            let request = open.request.clone();
            self.put(now, request);
        }
    }

    fn start_task(&mut self, now: Now, call: CallId, id: String, start: TaskStart) {
        let Some(open) = self.open.get_mut(&call) else {
            return;
        };
        if !self.tasks.create(now, &id, call, &open.principal, start) {
            let limit = self.limits.tasks_max;
            let why = format!("busy: {limit} tasks are not finished, limit tasks_max {limit}");
            self.outputs.push_back(LocalOutput::Cancelled(call));
            return self.finish(now, call, Err(RpcError::new(ErrorCode::InternalError, why)));
        }
        let context = &mut open.request.context;
        (context.inputs, context.state) = (None, None);
        (context.may_be_task, context.wants_progress) = (false, false);
        open.rounds = 0;
        let brief = self.tasks.brief(&id).unwrap_or_default();
        open.stage = Stage::Task(id);
        let answer = LocalAnswer::Typed("task", brief);
        self.outputs.push_back(LocalOutput::Answer { call, answer });
    }

    /// `tasks/get`, `tasks/update` and `tasks/cancel`: the result.
    pub(super) fn task_request(
        &mut self,
        now: Now,
        method: &str,
        facts: CallFacts<'_>,
    ) -> Result<String, RpcError> {
        if !declares(facts.client_capabilities, Feature::Tasks) {
            return Err(Feature::Tasks.missing());
        }
        let given = |name| facts.params.and_then(|params| member(params, name));
        let id = string_member("taskId", given("taskId"))?;
        if !self.tasks.has(&id, facts.principal) {
            let error = format!("Task not found: {}", Quoted(&id));
            return Err(RpcError::new(ErrorCode::InvalidParams, error));
        }
        match method {
            "tasks/update" => {
                let responses = input_object(given("inputResponses").unwrap_or("null"))?;
                if let Some((call, inputs)) = self.tasks.answer(now, &id, responses) {
                    let task = id.into_owned();
                    self.outputs.push_back(LocalOutput::TaskChanged { task });
                    self.go_on(now, call, &inputs);
                }
                Ok("{}".to_owned())
            }
            "tasks/cancel" => {
                if let Some(call) = self.tasks.cancel(now, &id) {
                    self.open.remove(&call);
                    let task = id.into_owned();
                    self.outputs.push_back(LocalOutput::Cancelled(call));
                    self.outputs.push_back(LocalOutput::TaskChanged { task });
                }
                Ok("{}".to_owned())
            }
            _ => Ok(self.tasks.detail(&id).unwrap_or_default()),
        }
    }
}

fn undeclared(name: &str, needs: Feature) -> String {
    format!(
        "{} needs the client capability {}, which this client did not declare",
        Quoted(name),
        needs.name()
    )
}

/// The id by which a client of 2025-11-25 knows a page to open.
pub(super) fn elicitation_id(call: CallId, key: &str) -> String {
    format!("{call}-{key}")
}

/// `params` for a client of the handshake era, which wants an id with each page.
fn legacy_params(call: CallId, request: InputRequest) -> String {
    let is_page = request.needs() == Feature::ElicitationUrl;
    let InputRequest { key, params, .. } = request;
    let open = params.trim_end().strip_suffix('}');
    match open {
        Some(open) if is_page && member(&params, "elicitationId").is_none() => {
            let mut params = format!(r#"{open},"elicitationId":"#);
            write_string(&mut params, &elicitation_id(call, &key));
            params.push('}');
            params
        }
        Some(_) | None => params,
    }
}

/// What the stateless era wants on a resource: nobody may keep it, unless the program says otherwise.
/// Spec: 2026-07-28 server/utilities/caching.
fn with_cache_hints(result: String) -> String {
    if member(&result, "ttlMs").is_some() {
        return result;
    }
    let inner = result.trim().trim_start_matches('{').trim_start();
    let separator = if inner == "}" { "" } else { "," };
    format!(r#"{{"ttlMs":0,"cacheScope":"private"{separator}{inner}"#)
}
