//! The library API for servers: an embedding program offers tools, resources and prompts, and answers what
//! clients want of them by polling.
//!
//! The program fills a [`Registry`]. What it can answer at once it gives as closures
//! ([`Offer::answered_by`]); for everything else it gets a [`LocalRequest`] and calls [`Local::resolve`]
//! whenever it is ready. A tool is written once for all revisions: it says what it needs to know
//! ([`LocalReply::NeedInput`]), and the desk asks a client of the handshake era by requests and a stateless one
//! by "input required", so that in both cases the request comes again with [`Context::inputs`].
//!
//! | a call is | input                            | next   | output                                  |
//! |-----------|----------------------------------|--------|-----------------------------------------|
//! | –         | call, query                      | Asked  | `Ask` (or a closure answers)            |
//! | Asked     | result, error                    | –      | `Answer`                                |
//! | Asked     | need input, stateless client     | –      | `Answer`, "input_required"              |
//! | Asked     | need input, handshake era        | Client | `AskClient` for each question           |
//! | Asked     | need input that no client offers | –      | `Answer`, an error that names it        |
//! | Client    | the last answer of the client    | Asked  | `Ask`, with inputs                      |
//! | Client    | an error from the client         | –      | `Answer`, an error; `Cancelled`         |
//! | Asked     | task                             | Task   | `Answer`, "task"                        |
//! | Task      | result, error, need input        | see `tasks` | `TaskChanged`                      |
//! | Task      | all that the task needs to know  | Task   | `Ask`, with inputs                      |
//! | Task      | `tasks/cancel`, end of its life  | –      | `Cancelled`, `TaskChanged`              |
//! | any but Task | cancel                        | –      | `Cancelled`                             |
//!
//! Source: mcp-eras §4-§6; Spec: 2025-11-25 server/*, 2026-07-28 basic/patterns/mrtr.
//! Never: checks arguments against a schema, remembers a stateless client between two rounds.

mod call;
mod coerce;
mod content;
mod feature;
mod in_place;
mod iso_time;
mod offer;
mod registry;
mod request_state;
mod settle;
mod shelf;
mod tasks;
mod template;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub use self::call::{
    CallFacts, Context, InputKind, InputRequest, LocalAnswer, LocalKind, LocalOutput, LocalReply,
    LocalRequest, TaskStart,
};
pub use self::content::{Content, ResourceContents, Role};
pub use self::feature::{Feature, TASKS_EXTENSION, declares};
pub use self::in_place::{InPlaceCall, TextAnswer};
pub use self::offer::{
    OfPrompt, OfResource, OfTemplate, OfTool, Offer, Prompt, RegistryError, Resource, TaskSupport,
    Template, Tool,
};
pub use self::registry::{Capabilities, Registry};
pub use self::request_state::STATE_KEY_BYTES;
pub(crate) use self::request_state::{Binding, StateKey};
use self::tasks::Tasks;
pub use self::template::match_template;
use crate::clock::{Deadline, Now};
use crate::codec::json_text::write_string;
use crate::codec::scan::validate;
use crate::entropy::Entropy;
use crate::gate::GatedCall;
use crate::ids::CallId;
use crate::limits::Limits;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{CallParams, LogLevel, member, string_member};
use crate::protocol::revision::Revision;
use crate::protocol::server::List;
use crate::secret::Quoted;

/// Where the answer to a call is.
#[derive(Debug)]
enum Stage {
    /// The program is at work.
    Asked,
    /// A client of the handshake era is being asked: keys in order, with the answers so far.
    Client(Vec<(String, Option<Box<str>>)>),
    /// The call has its answer and goes on as this task.
    Task(String),
}

/// A call that the program has not answered for good.
#[derive(Debug)]
struct Open {
    request: LocalRequest,
    stage: Stage,
    principal: Box<str>,
    /// The arguments as the client sent them, where the gate let others pass.
    arguments: Option<Arc<str>>,
    rounds: usize,
}

impl Open {
    fn binding(&self) -> Binding<'_> {
        Binding {
            principal: &self.principal,
            method: self.request.kind.method(),
            name: self.request.kind.name(),
            arguments: self
                .arguments
                .as_deref()
                .unwrap_or_else(|| self.request.kind.arguments()),
        }
    }

    const fn task(&self) -> Option<&String> {
        match &self.stage {
            Stage::Task(id) => Some(id),
            Stage::Asked | Stage::Client(_) => None,
        }
    }
}

/// The desk. See the module page.
#[derive(Debug)]
pub struct Local {
    registry: Registry,
    /// Somebody was given the registry to change it.
    registry_lent: bool,
    key: StateKey,
    limits: Limits,
    open: BTreeMap<CallId, Open>,
    tasks: Tasks,
    outputs: VecDeque<LocalOutput>,
    /// For the next answer in place.
    spare: String,
}

impl Local {
    /// A desk for what is in the registry. `state_key` signs request states: random, secret, and the same in
    /// all instances between which a client may be moved.
    #[must_use]
    pub fn new(registry: Registry, state_key: [u8; STATE_KEY_BYTES], limits: &Limits) -> Self {
        Self {
            registry,
            registry_lent: false,
            key: StateKey::new(state_key),
            limits: limits.clone(),
            open: BTreeMap::new(),
            tasks: Tasks::new(limits.clone()),
            outputs: VecDeque::new(),
            spare: String::new(),
        }
    }

    /// What is offered.
    #[must_use]
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What is offered, to change it. Say [`Local::list_changed`] afterwards.
    pub const fn registry_mut(&mut self) -> &mut Registry {
        self.registry_lent = true;
        &mut self.registry
    }

    /// Whether the registry may have changed since this was asked last.
    pub(crate) fn take_registry_lent(&mut self) -> bool {
        std::mem::take(&mut self.registry_lent)
    }

    /// What the server's capabilities have to say.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.registry.capabilities()
    }

    /// Whether a call of this tool belongs here.
    #[must_use]
    pub fn owns(&self, tool: &str) -> bool {
        self.registry.tools.find(tool).is_some()
    }

    /// How to answer a call that has passed the gate, when its tool [answers in
    /// place](Offer::answered_in_place): appends the members of its result, which say nothing of what the
    /// peer adds ([`ServerPeer::respond_in_place`](crate::protocol::server::ServerPeer::respond_in_place)),
    /// and says whether the tool has failed.
    pub fn in_place<'a>(
        &'a mut self,
        call: &'a GatedCall,
        revision: Revision,
    ) -> Option<impl FnOnce(&mut Vec<u8>) -> bool + 'a> {
        let tool = self.registry.tools.find_mut(call.tool())?;
        let in_place = tool.kind.in_place.as_mut()?;
        let call = InPlaceCall {
            arguments: call.arguments(),
            revision,
        };
        Some(move |out: &mut Vec<u8>| in_place.append_members(call, out))
    }

    /// The result of a list request, for [`Answer::List`](crate::protocol::server::Answer::List): the same
    /// for every revision, in pages.
    ///
    /// # Errors
    /// A cursor that is none of ours (-32602); a list that this server does not have (-32601).
    pub fn list(&mut self, method: &str, params: Option<&str>) -> Result<Cow<'_, str>, RpcError> {
        let cursor = params.and_then(|params| member(params, "cursor"));
        let (registry, limits) = (&mut self.registry, &self.limits);
        match method {
            "tools/list" if registry.has_tools() => registry.tools.page(cursor, limits),
            "prompts/list" if registry.has_prompts() => registry.prompts.page(cursor, limits),
            "resources/list" if registry.has_resources() => registry.resources.page(cursor, limits),
            "resources/templates/list" if registry.has_resources() => {
                registry.templates.page(cursor, limits)
            }
            _ => Err(RpcError::method_not_found(method)),
        }
    }

    /// A tool call has passed the gate. It gets exactly one [`LocalOutput::Answer`], unless it is cancelled.
    pub fn call(&mut self, now: Now, call: &GatedCall, facts: CallFacts<'_>) {
        if let Some(in_place) = self
            .registry
            .tools
            .find_mut(call.tool())
            .and_then(|tool| tool.kind.in_place.as_mut())
        {
            let mut result = std::mem::take(&mut self.spare);
            let (arguments, revision) = (call.arguments(), facts.revision);
            let in_place_call = InPlaceCall {
                arguments,
                revision,
            };
            in_place.answer(in_place_call, &mut result);
            let (call, answer) = (call.id(), LocalAnswer::Plain(result));
            return self.outputs.push_back(LocalOutput::Answer { call, answer });
        }
        let Some((name, tool)) = self.registry.tools.find(call.tool()) else {
            let error = format!("Unknown tool: {}", Quoted(call.tool()));
            return self.refuse(call.id(), RpcError::new(ErrorCode::InvalidParams, error));
        };
        let (name, support) = (name.clone(), tool.kind.tasks);
        let takes_tasks =
            facts.revision.is_stateless() && declares(facts.client_capabilities, Feature::Tasks);
        if support == TaskSupport::Required && !takes_tasks {
            return self.refuse_tool(call.id(), &name, facts.revision, Feature::Tasks);
        }
        let kind = LocalKind::Tool {
            name,
            arguments: call.arguments().into(),
        };
        let as_sent = CallParams::read(facts.params)
            .ok()
            .map(|params| params.arguments.unwrap_or("{}"))
            .filter(|arguments| *arguments != call.arguments())
            .map(Arc::from);
        let may_be_task = takes_tasks && support != TaskSupport::Never;
        self.begin(now, call.id(), kind, as_sent, may_be_task, facts);
    }

    /// Any other request: `resources/read`, `prompts/get`, `completion/complete`, `tasks/*`. It gets exactly
    /// one [`LocalOutput::Answer`], unless it is cancelled.
    pub fn query(&mut self, now: Now, call: CallId, method: &str, facts: CallFacts<'_>) {
        let done = match method {
            "resources/read" if self.registry.has_resources() => self.read_resource(facts),
            "prompts/get" if self.registry.has_prompts() => self.read_prompt(facts),
            "completion/complete" if self.registry.completions => self.read_completion(facts),
            "tasks/get" | "tasks/update" | "tasks/cancel"
                if facts.revision.is_stateless() && self.registry.has_tasks() =>
            {
                let answer = match self.task_request(now, method, facts) {
                    Ok(result) => LocalAnswer::Result(result),
                    Err(error) => LocalAnswer::Error(error),
                };
                return self.outputs.push_back(LocalOutput::Answer { call, answer });
            }
            _ => Err(RpcError::method_not_found(method)),
        };
        match done {
            Ok(kind) => self.begin(now, call, kind, None, false, facts),
            Err(error) => self.refuse(call, error),
        }
    }

    fn read_resource(&self, facts: CallFacts<'_>) -> Result<LocalKind, RpcError> {
        let uri = string_member("uri", facts.params.and_then(|params| member(params, "uri")))?;
        if let Some((uri, _)) = self.registry.resources.find(&uri) {
            let uri = uri.clone();
            return Ok(LocalKind::ReadResource {
                uri,
                template: None,
            });
        }
        match self.registry.template_of(&uri) {
            Some(template) => Ok(LocalKind::ReadResource {
                uri: uri.as_ref().into(),
                template: Some(template.clone()),
            }),
            None => Err(unknown_resource(facts.revision, &uri)),
        }
    }

    fn read_prompt(&self, facts: CallFacts<'_>) -> Result<LocalKind, RpcError> {
        let params = CallParams::read(facts.params)?;
        let Some((name, prompt)) = self.registry.prompts.find(&params.name) else {
            let error = format!("Unknown prompt: {}", Quoted(&params.name));
            return Err(RpcError::new(ErrorCode::InvalidParams, error));
        };
        let arguments = params.arguments.unwrap_or("{}");
        for required in &prompt.kind.required {
            if member(arguments, required).is_none() {
                let error = format!("params.arguments.{required} is missing");
                return Err(RpcError::new(ErrorCode::InvalidParams, error));
            }
        }
        Ok(LocalKind::GetPrompt {
            name: name.clone(),
            arguments: arguments.into(),
        })
    }

    fn read_completion(&self, facts: CallFacts<'_>) -> Result<LocalKind, RpcError> {
        let object = |name| {
            let raw = facts.params.and_then(|params| member(params, name));
            raw.filter(|raw| raw.starts_with('{'))
        };
        let invalid = |error| RpcError::new(ErrorCode::InvalidParams, error);
        let needed = |name: &str| invalid(format!("params.{name} must be an object"));
        let reference = object("ref").ok_or_else(|| needed("ref"))?;
        let argument = object("argument").ok_or_else(|| needed("argument"))?;
        self.registry.knows_reference(reference).map_err(invalid)?;
        for name in ["name", "value"] {
            string_member(&format!("argument.{name}"), member(argument, name))?;
        }
        Ok(LocalKind::Complete {
            reference: reference.into(),
            argument: argument.into(),
            context: object("context").map(Arc::from),
        })
    }

    /// Opens a request and asks for its answer.
    fn begin(
        &mut self,
        now: Now,
        call: CallId,
        kind: LocalKind,
        arguments: Option<Arc<str>>,
        may_be_task: bool,
        facts: CallFacts<'_>,
    ) {
        let mut open = Open {
            request: LocalRequest {
                call,
                kind,
                context: Context {
                    client: facts.client,
                    revision: facts.revision,
                    client_capabilities: facts.client_capabilities.into(),
                    wants_progress: facts.wants_progress,
                    inputs: None,
                    state: None,
                    may_be_task,
                },
            },
            stage: Stage::Asked,
            principal: facts.principal.into(),
            arguments,
            rounds: 0,
        };
        if facts.revision.is_stateless() && open.request.kind.may_need_input() {
            if let Err(error) = self.take_retry(now, &mut open, facts.params) {
                return self.refuse(call, error);
            }
        }
        let request = open.request.clone();
        self.open.insert(call, open);
        self.put(now, request);
    }

    /// Reads what a stateless client brings back from the round before. Spec: 2026-07-28
    /// basic/patterns/mrtr (Server Requirements 4, Error Handling).
    fn take_retry(&self, now: Now, open: &mut Open, params: Option<&str>) -> Result<(), RpcError> {
        let given = |name| {
            let raw = params.and_then(|params| member(params, name));
            raw.filter(|raw| *raw != "null")
        };
        let inputs = given("inputResponses").map(input_object).transpose()?;
        let state = match given("requestState") {
            None => None,
            Some(raw) => {
                let sealed = string_member("requestState", Some(raw))?;
                self.key.open(open.binding(), now.unix_ms, &sealed)?
            }
        };
        open.request.context.inputs = inputs.map(Arc::from);
        open.request.context.state = state.map(Arc::from);
        Ok(())
    }

    /// Has a closure answer, or the program.
    fn put(&mut self, now: Now, request: LocalRequest) {
        let registry = &mut self.registry;
        let handler = match &request.kind {
            LocalKind::Tool { name, .. } => registry
                .tools
                .find_mut(name)
                .and_then(|tool| tool.handler.as_mut()),
            LocalKind::ReadResource {
                template: Some(name),
                ..
            } => registry
                .templates
                .find_mut(name)
                .and_then(|template| template.handler.as_mut()),
            LocalKind::ReadResource { uri, .. } => registry
                .resources
                .find_mut(uri)
                .and_then(|resource| resource.handler.as_mut()),
            LocalKind::GetPrompt { name, .. } => registry
                .prompts
                .find_mut(name)
                .and_then(|prompt| prompt.handler.as_mut()),
            LocalKind::Complete { .. } => None,
        };
        match handler {
            Some(handler) => {
                let reply = handler.answer(&request);
                self.settle(now, request.call, reply, None);
            }
            None => self.outputs.push_back(LocalOutput::Ask(request)),
        }
    }

    /// The program's answer. A call that is gone is ignored, and so is a second question while the first is
    /// with the client. `entropy` names tasks.
    pub fn resolve(
        &mut self,
        now: Now,
        call: CallId,
        reply: LocalReply,
        entropy: &mut dyn Entropy,
    ) {
        self.settle(now, call, reply, Some(entropy));
    }

    /// A client of the handshake era has answered [`LocalOutput::AskClient`]: the raw result, or the raw error
    /// object. What nobody waits for any more is ignored.
    pub fn handle_answer(
        &mut self,
        now: Now,
        call: CallId,
        key: &str,
        outcome: Result<Box<str>, Box<str>>,
    ) {
        self.client_answered(now, call, key, outcome);
    }

    /// Nobody wants the answer of this call any more. A call that is gone, or goes on as a task, is left alone.
    pub fn cancel(&mut self, call: CallId) {
        if self
            .open
            .get(&call)
            .is_some_and(|open| open.task().is_none())
        {
            self.open.remove(&call);
            self.outputs.push_back(LocalOutput::Cancelled(call));
        }
    }

    /// Ends the desk: every open call is answered with an error that says `why`.
    pub fn close(&mut self, now: Now, why: &str) {
        for call in self.open.keys().copied().collect::<Vec<_>>() {
            self.outputs.push_back(LocalOutput::Cancelled(call));
            self.fail(now, call, why);
        }
    }

    /// Says how far a call is; of a task, what it is doing. `progress` rises from report to report.
    pub fn progress(
        &mut self,
        now: Now,
        call: CallId,
        progress: u64,
        total: Option<u64>,
        message: &str,
    ) {
        let Some(open) = self.open.get(&call) else {
            return;
        };
        if let Some(task) = open.task().cloned() {
            self.tasks.describe(now, &task, message.to_owned());
            self.outputs.push_back(LocalOutput::TaskChanged { task });
        } else if open.request.context.wants_progress {
            self.outputs.push_back(LocalOutput::Progress {
                call,
                progress,
                total,
                message: message.to_owned(),
            });
        }
    }

    /// Sends a log message in the service of a call, to a client that wants such; `data` is a raw JSON value.
    /// Tasks have none.
    pub fn log(&mut self, call: CallId, level: LogLevel, logger: &str, data: &str) {
        let is_json = validate(data.as_bytes(), self.limits.json_depth_max).is_ok();
        let open = self.open.get(&call);
        if is_json && open.is_some_and(|open| open.task().is_none()) {
            self.outputs.push_back(LocalOutput::Log {
                call,
                level,
                logger: logger.to_owned(),
                data: data.to_owned(),
            });
        }
    }

    /// Ends the stream on which the answer of a call would come: see [`LocalOutput::CloseStream`].
    pub fn close_stream(&mut self, call: CallId) {
        let open = self.open.get(&call);
        if open.is_some_and(|open| open.task().is_none()) {
            self.outputs.push_back(LocalOutput::CloseStream { call });
        }
    }

    /// Tells a client of the handshake era that what a person had to do on the page of [`InputRequest::url`]
    /// is done; `call` is still open. Spec: 2025-11-25 client/elicitation (Completion Notifications).
    pub fn complete_elicitation(&mut self, call: CallId, key: &str) {
        let open = self.open.get(&call);
        if open.is_some_and(|open| !open.request.context.revision.is_stateless()) {
            let mut params = String::from(r#"{"elicitationId":"#);
            write_string(&mut params, &settle::elicitation_id(call, key));
            params.push('}');
            self.outputs.push_back(LocalOutput::NotifyClient {
                call,
                method: "notifications/elicitation/complete",
                params,
            });
        }
    }

    /// Tells everyone that a list has changed.
    pub fn list_changed(&mut self, list: List) {
        self.outputs.push_back(LocalOutput::ListChanged(list));
    }

    /// Tells everyone who subscribed to it that a resource has changed.
    pub fn resource_updated(&mut self, uri: &str) {
        let uri = uri.to_owned();
        self.outputs.push_back(LocalOutput::ResourceUpdated(uri));
    }

    /// The state of a task, for `notifications/tasks`: a raw object. `None` when this principal has no such
    /// task.
    #[must_use]
    pub fn task(&self, task: &str, principal: &str) -> Option<String> {
        let visible = self.tasks.has(task, principal);
        visible.then(|| self.tasks.detail(task)).flatten()
    }

    /// Of these tasks the ones that this principal has, for a client that wants to listen to them.
    ///
    /// # Errors
    /// The client did not declare that it knows tasks. Spec: extension io.modelcontextprotocol/tasks.
    pub fn grant_tasks(
        &self,
        mut tasks: BTreeSet<String>,
        principal: &str,
        client_capabilities: &str,
    ) -> Result<BTreeSet<String>, RpcError> {
        if !declares(client_capabilities, Feature::Tasks) {
            return Err(Feature::Tasks.missing());
        }
        tasks.retain(|task| self.tasks.has(task, principal));
        Ok(tasks)
    }

    /// Whether nothing more will become of a task.
    #[must_use]
    pub fn task_has_ended(&self, task: &str) -> bool {
        self.tasks.has_ended(task)
    }

    /// How many tasks are kept, and the bytes of their results.
    #[must_use]
    pub fn tasks_kept(&self) -> (usize, usize) {
        self.tasks.kept()
    }

    /// Calls and tasks that are not done.
    #[must_use]
    pub fn open_calls(&self) -> usize {
        self.open.len()
    }

    /// Time passed. Early or repeated calls are harmless.
    pub fn handle_timeout(&mut self, now: Now) {
        for call in self.tasks.expire(now) {
            self.open.remove(&call);
            self.outputs.push_back(LocalOutput::Cancelled(call));
        }
    }

    /// When [`Local::handle_timeout`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        self.tasks.next_deadline()
    }

    /// Gives back an answer that has left, so that the next one needs no allocation.
    pub fn recycle(&mut self, answer: LocalAnswer) {
        if let LocalAnswer::Plain(text) = answer {
            let kept = self.spare.capacity()..=self.limits.text_buffer_bytes_max;
            if kept.contains(&text.capacity()) {
                self.spare = text;
            }
        }
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<LocalOutput> {
        self.outputs.pop_front()
    }
}

/// There is no such resource, in the words of each era.
pub(crate) fn unknown_resource(revision: Revision, uri: &str) -> RpcError {
    let mut data = String::from(r#"{"uri":"#);
    write_string(&mut data, uri);
    data.push('}');
    RpcError {
        code: if revision.has_resource_not_found() {
            ErrorCode::ResourceNotFound
        } else {
            ErrorCode::InvalidParams
        },
        message: format!("Resource not found: {}", Quoted(uri)),
        data: Some(data),
    }
}

/// `inputResponses`, when it is an object.
fn input_object(raw: &str) -> Result<&str, RpcError> {
    if raw.starts_with('{') {
        return Ok(raw);
    }
    Err(RpcError::new(
        ErrorCode::InvalidParams,
        format!(
            "params.inputResponses must be an object (found {})",
            Quoted(raw)
        ),
    ))
}
