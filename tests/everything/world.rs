//! One client on a wire of lines, and everything behind it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drawspan::clock::{Now, Uptime};
use drawspan::entropy::Seeded;
use drawspan::gate::{Gate, Passage, Policy, ToolCall};
use drawspan::ids::{CallId, PeerId};
use drawspan::limits::Limits;
use drawspan::link::Driven;
use drawspan::local::{CallFacts, Local, LocalAnswer, LocalOutput};
use drawspan::protocol::message::CallParams;
use drawspan::protocol::server::{
    Answer, AskKey, RequestKey, Scope, ServerConfig, ServerEvent, ServerPeer, ServerRequest, Whose,
};
use drawspan::protocol::{Lane, MessageSink};
use serde_json::{Value, json};

use crate::offers;
use crate::work::{Action, Work};

#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
    lines: Vec<Value>,
}

impl MessageSink for Lines {
    fn begin(&mut self, _lane: Lane) -> &mut Vec<u8> {
        self.buffer.clear();
        &mut self.buffer
    }

    fn commit(&mut self) {
        let message = serde_json::from_slice(&self.buffer).expect("a message is JSON");
        self.lines.push(message);
    }

    fn rollback(&mut self) {}
}

/// A client, and the server it talks to.
pub(crate) struct World {
    now: Now,
    peer: ServerPeer,
    sink: Lines,
    gate: Gate,
    pub(crate) local: Local,
    work: Work,
    entropy: Seeded,
    calls: BTreeMap<CallId, RequestKey>,
    asks: BTreeMap<AskKey, (CallId, String)>,
    last_call: CallId,
    next_id: u64,
    pub(crate) closed_streams: usize,
}

impl World {
    pub(crate) fn new() -> Self {
        let limits = Limits::default();
        let local = Local::new(
            offers::registry().expect("good definitions"),
            [1; 32],
            &limits,
        );
        let capabilities = local.capabilities();
        let config = ServerConfig {
            server_info: r#"{"name":"everything","version":"1"}"#.to_owned(),
            capabilities: format!("{{{}}}", capabilities.legacy),
            modern_capabilities: format!("{{{}}}", capabilities.modern),
            instructions: None,
            changing: capabilities.changing,
            resource_updates: capabilities.resource_updates,
            task_updates: capabilities.task_updates,
            relays_log_level: false,
            awaits_introduction: false,
            relays_subscriptions: false,
            cache_ttl_ms: 1_000,
            limits: limits.clone(),
        };
        Self {
            now: Now {
                up: Uptime::from_millis(1),
                unix_ms: 1_785_196_800_000,
            },
            peer: ServerPeer::new(Arc::new(config)),
            sink: Lines::default(),
            gate: Gate::new(Policy::Open, &limits),
            local,
            work: Work::default(),
            entropy: Seeded::new(1),
            calls: BTreeMap::new(),
            asks: BTreeMap::new(),
            last_call: CallId(0),
            next_id: 0,
            closed_streams: 0,
        }
    }

    /// A world whose client has shaken hands.
    pub(crate) fn with_client(revision: &str, capabilities: Value) -> Self {
        let mut world = Self::new();
        let client = json!({"name": "c", "version": "0"});
        let params = json!({"protocolVersion": revision, "capabilities": capabilities, "clientInfo": client});
        world.request("initialize", params).expect("a session");
        world.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        world
    }

    /// Sends a message; what comes back at once.
    pub(crate) fn say(&mut self, message: Value) -> Vec<Value> {
        let bytes = message.to_string();
        self.peer
            .handle_message(Scope::default(), bytes.as_bytes(), &mut self.sink);
        self.settle();
        std::mem::take(&mut self.sink.lines)
    }

    /// Sends a request and waits for its answer; everything that came until then.
    pub(crate) fn all(&mut self, method: &str, params: Value) -> Vec<Value> {
        self.next_id += 1;
        let id = self.next_id;
        let mut seen =
            self.say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        while !seen
            .iter()
            .any(|message| message["id"] == id && message.get("method").is_none())
        {
            seen.extend(self.wait());
        }
        seen
    }

    /// Sends a request and waits for its answer: its result, or its error object.
    pub(crate) fn request(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let seen = self.all(method, params);
        let answer = seen.last().expect("an answer").clone();
        match (answer.get("result"), answer.get("error")) {
            (Some(result), None) => Ok(result.clone()),
            (None, Some(error)) => Err(error.clone()),
            _ => panic!("no answer: {answer}"),
        }
    }

    /// The same in the stateless era.
    pub(crate) fn modern(
        &mut self,
        method: &str,
        params: Value,
        capabilities: Value,
    ) -> Result<Value, Value> {
        self.request(method, with_meta(params, capabilities))
    }

    /// Lets time pass up to the next thing that is due.
    pub(crate) fn wait(&mut self) -> Vec<Value> {
        let deadline = self.work.next_deadline().expect("nothing will ever happen");
        self.pass(deadline.at.since(self.now.up));
        std::mem::take(&mut self.sink.lines)
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now.up = self.now.after(time);
        self.now.unix_ms += i64::try_from(time.as_millis()).expect("a short time");
        self.work.handle_timeout(self.now);
        self.local.handle_timeout(self.now);
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            if let Some(event) = self.peer.poll_event() {
                self.route_event(event);
            } else if let Some(output) = self.local.poll() {
                self.route_output(output);
            } else if let Some(action) = self.work.poll() {
                match action {
                    Action::Reply(call, reply) => {
                        self.local.resolve(self.now, call, reply, &mut self.entropy);
                    }
                    Action::Tell(tell) => tell.tell(self.now, &mut self.local),
                }
            } else {
                return;
            }
        }
    }

    fn route_event(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Request(request) => self.route_request(request),
            ServerEvent::Notification { .. } | ServerEvent::LogLevel(_) => {}
            ServerEvent::Opens(_)
            | ServerEvent::Subscribes { .. }
            | ServerEvent::Listens { .. } => {
                panic!("nobody is behind this peer: {event:?}")
            }
            ServerEvent::Cancelled(key) => {
                let call = self.calls.iter().find(|(_, open)| **open == key);
                if let Some(call) = call.map(|(call, _)| *call) {
                    self.calls.remove(&call);
                    self.local.cancel(call);
                }
            }
            ServerEvent::ListenTasks {
                key,
                tasks,
                client_capabilities,
            } => match self.local.grant_tasks(tasks, "", &client_capabilities) {
                Ok(tasks) => self.peer.listen_to_tasks(key, tasks, &mut self.sink),
                Err(error) => self
                    .peer
                    .respond(key, Answer::Error(&error), &mut self.sink),
            },
            ServerEvent::Answered { ask, outcome } => {
                let (call, key) = self.asks.remove(&ask).expect("it was asked");
                self.local.handle_answer(self.now, call, &key, outcome);
            }
        }
    }

    fn route_request(&mut self, request: ServerRequest) {
        if request.method.ends_with("/list") {
            match self.local.list(&request.method, request.params.as_deref()) {
                Ok(list) => self
                    .peer
                    .respond(request.key, Answer::List(&list), &mut self.sink),
                Err(error) => self
                    .peer
                    .respond(request.key, Answer::Error(&error), &mut self.sink),
            }
            return;
        }
        let call = self.last_call.next();
        self.last_call = call;
        self.calls.insert(call, request.key);
        let of_session = self.peer.client_capabilities().map_or("{}", |own| own);
        let facts = CallFacts {
            client: PeerId(0),
            revision: request.revision,
            principal: "",
            client_capabilities: request.client_capabilities.as_deref().unwrap_or(of_session),
            wants_progress: request.wants_progress,
            params: request.params.as_deref(),
        };
        if request.method != "tools/call" {
            return self.local.query(self.now, call, &request.method, facts);
        }
        let params = CallParams::read(facts.params).expect("good parameters");
        let passage = self.gate.admit(
            self.now,
            ToolCall {
                id: call,
                tool: params.name.as_ref().into(),
                arguments: params.arguments.unwrap_or("{}").into(),
                server: "everything".into(),
                wants_progress: request.wants_progress,
                ..ToolCall::default()
            },
        );
        let Passage::Open(gated) = passage else {
            panic!("the gate is open")
        };
        self.local.call(self.now, &gated, facts);
    }

    fn route_output(&mut self, output: LocalOutput) {
        let sink = &mut self.sink;
        let key = |call: &CallId| self.calls.get(call).copied();
        match output {
            LocalOutput::Ask(request) => self.work.handle(self.now, &request),
            LocalOutput::Cancelled(call) => self.work.cancel(call),
            LocalOutput::AskClient {
                call,
                key: name,
                method,
                params,
            } => {
                let key = key(&call).expect("an open call");
                let ask = self
                    .peer
                    .ask(Whose::Request(key), method, Some(&params), sink);
                self.asks.insert(ask.expect("handshake era"), (call, name));
            }
            LocalOutput::Answer { call, answer } => {
                let key = self
                    .calls
                    .remove(&call)
                    .expect("one answer to an open call");
                let answer = match &answer {
                    LocalAnswer::Result(result) => Answer::Result(result),
                    LocalAnswer::Plain(result) => Answer::Plain(result),
                    LocalAnswer::Typed(kind, result) => Answer::Typed(kind, result),
                    LocalAnswer::Error(error) => Answer::Error(error),
                };
                self.peer.respond(key, answer, sink);
            }
            LocalOutput::Progress {
                call,
                progress,
                total,
                message,
            } => {
                let key = key(&call).expect("an open call");
                self.peer.progress(key, progress, total, &message, sink);
            }
            LocalOutput::Log {
                call,
                level,
                logger,
                data,
            } => {
                let key = key(&call).expect("an open call");
                self.peer.log_for(key, level, &logger, &data, sink);
            }
            LocalOutput::CloseStream { .. } => self.closed_streams += 1,
            LocalOutput::NotifyClient { method, params, .. } => {
                self.peer.notify(method, params, sink);
            }
            LocalOutput::ListChanged(list) => self.peer.list_changed(list, sink),
            LocalOutput::ResourceUpdated(uri) => self.peer.resource_updated(&uri, sink),
            LocalOutput::TaskChanged { task } => {
                let streams: Vec<_> = self.peer.listening_to_task(&task).collect();
                let state = self.local.task(&task, "").expect("a task of ours");
                for key in streams {
                    self.peer.task_changed(key, &task, &state, sink);
                }
            }
        }
    }
}

/// `params` with what every stateless request carries.
pub(crate) fn with_meta(mut params: Value, capabilities: Value) -> Value {
    let meta = &mut params["_meta"];
    meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
    meta["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    params
}

/// `params` of a tool call.
pub(crate) fn tool(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

/// The text of the first block of a tool's result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().expect("a text")
}

/// The methods of messages, in order; answers are empty.
pub(crate) fn methods(messages: &[Value]) -> Vec<&str> {
    let method = |message| Value::get(message, "method").and_then(Value::as_str);
    messages
        .iter()
        .map(|message| method(message).unwrap_or(""))
        .collect()
}
