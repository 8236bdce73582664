//! What passes between the desk, the program that answers, and the hub.

use std::sync::Arc;
use std::time::Duration;

use crate::codec::json_text::write_string;
use crate::codec::scan::{Text, text_member};
use crate::ids::{CallId, PeerId};
use crate::local::coerce::coerce;
use crate::local::feature::{Feature, declares};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{LogLevel, ToolResult, member};
use crate::protocol::revision::Revision;
use crate::protocol::server::List;

/// What the hub knows of a request beside its method. Borrowed: the desk copies what it keeps.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts<'a> {
    /// The client, as the hub numbers them.
    pub client: PeerId,
    /// The revision whose rules apply.
    pub revision: Revision,
    /// Who asks, as the transport made sure of it; empty where it did not. Request states and tasks belong
    /// to one principal.
    pub principal: &'a str,
    /// The client's capabilities, a raw object: those of the request in the stateless era, those of the
    /// handshake before it.
    pub client_capabilities: &'a str,
    /// Whether progress reaches the client.
    pub wants_progress: bool,
    /// `params` as the client sent them.
    pub params: Option<&'a str>,
}

/// One request for the program, which answers it by [`Local::resolve`](super::Local::resolve) whenever it
/// is ready. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LocalRequest {
    /// Names the request in the answer. When a client has been asked something, the same call comes again
    /// with its answers in [`Context::inputs`]; a stateless client comes back with a new call.
    pub call: CallId,
    /// What is wanted.
    pub kind: LocalKind,
    /// Under which circumstances.
    pub context: Context,
}

/// What a client wants. Raw JSON where a member is not text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalKind {
    /// `tools/call`. The arguments are not checked against the tool's schema.
    Tool {
        /// A name of the registry.
        name: Arc<str>,
        /// A raw object, `{}` when the client sent none.
        arguments: Arc<str>,
    },
    /// `resources/read`.
    ReadResource {
        /// The whole URI.
        uri: Arc<str>,
        /// The template of the registry that it matches; `None` for a listed resource.
        template: Option<Arc<str>>,
    },
    /// `prompts/get`.
    GetPrompt {
        /// A name of the registry.
        name: Arc<str>,
        /// A raw object with at least the required members, `{}` when the client sent none.
        arguments: Arc<str>,
    },
    /// `completion/complete`.
    Complete {
        /// `ref`, a raw object that names a prompt or a resource template of the registry.
        reference: Arc<str>,
        /// `argument`, a raw object.
        argument: Arc<str>,
        /// `context`, a raw object.
        context: Option<Arc<str>>,
    },
}

impl LocalKind {
    /// The method on the wire.
    #[must_use]
    pub const fn method(&self) -> &'static str {
        match self {
            Self::Tool { .. } => "tools/call",
            Self::ReadResource { .. } => "resources/read",
            Self::GetPrompt { .. } => "prompts/get",
            Self::Complete { .. } => "completion/complete",
        }
    }

    /// The name of the tool or prompt, the URI of the resource, or the raw reference.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Tool { name, .. } | Self::GetPrompt { name, .. } => name,
            Self::ReadResource { uri, .. } => uri,
            Self::Complete { reference, .. } => reference,
        }
    }

    /// The raw arguments; `{}` for a resource.
    #[must_use]
    pub fn arguments(&self) -> &str {
        match self {
            Self::Tool { arguments, .. } | Self::GetPrompt { arguments, .. } => arguments,
            Self::ReadResource { .. } => "{}",
            Self::Complete { argument, .. } => argument,
        }
    }

    /// The raw value of one argument.
    #[must_use]
    pub fn argument(&self, name: &str) -> Option<&str> {
        member(self.arguments(), name)
    }

    /// The text of one argument; `None` when it is missing or no string.
    #[must_use]
    pub fn argument_text(&self, name: &str) -> Option<String> {
        Some(text_member(self.arguments(), name)?.decode().into_owned())
    }

    /// Whether a stateless client may be answered "input required". Spec: 2026-07-28 basic/patterns/mrtr
    /// (Supported Requests).
    pub(super) const fn may_need_input(&self) -> bool {
        match self {
            Self::Tool { .. } | Self::ReadResource { .. } | Self::GetPrompt { .. } => true,
            Self::Complete { .. } => false,
        }
    }
}

/// The circumstances of a request.
#[derive(Clone, Debug)]
pub struct Context {
    /// The client: the same one as of its notifications. Stateless clients with one principal are one.
    pub client: PeerId,
    /// The revision whose rules apply. Seldom of interest: the desk knows what each one needs.
    pub revision: Revision,
    /// A raw object. Ask [`Context::offers`] first.
    pub client_capabilities: Arc<str>,
    /// Whether progress reaches the client.
    pub wants_progress: bool,
    /// The client's answers to the last [`LocalReply::NeedInput`]: a raw object by key. They come from
    /// outside and may be of any shape, or be there although nothing was asked.
    pub inputs: Option<Arc<str>>,
    /// What the last [`LocalReply::NeedInput`] stored, unaltered.
    pub state: Option<Arc<str>>,
    /// Whether [`LocalReply::Task`] is allowed: the tool was registered for it and the client takes it.
    pub may_be_task: bool,
}

impl Context {
    /// Whether the client can be asked this.
    #[must_use]
    pub fn offers(&self, feature: Feature) -> bool {
        declares(&self.client_capabilities, feature)
    }

    /// The client's answer to the question `key`, a raw object.
    #[must_use]
    pub fn input(&self, key: &str) -> Option<&str> {
        member(self.inputs.as_deref()?, key)
    }

    /// What a person filled in when asked `key`, a raw object; `None` when they were not asked, declined or
    /// dismissed it.
    #[must_use]
    pub fn accepted(&self, key: &str) -> Option<&str> {
        let answer = self.input(key)?;
        let accepted = Text::of_value(member(answer, "action")?)?.is("accept");
        let content = member(answer, "content").filter(|raw| raw.starts_with('{'));
        accepted.then(|| content.unwrap_or("{}"))
    }

    /// The text of one field of [`Context::accepted`].
    #[must_use]
    pub fn accepted_text(&self, key: &str, field: &str) -> Option<String> {
        let value = member(self.accepted(key)?, field)?;
        Some(Text::of_value(value)?.decode().into_owned())
    }
}

/// The program's answer to a [`LocalRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalReply {
    /// Done. A raw object of the kind the method asks for.
    Result(String),
    /// Refused, as a JSON-RPC error. What a tool could not do is rather a result, see
    /// [`LocalReply::failed`].
    Error(RpcError),
    /// The client must be asked first. The request comes again with the answers; nothing of this round is
    /// remembered but `state`.
    NeedInput {
        /// What to ask, each under a key of its own.
        requests: Vec<InputRequest>,
        /// To be given back. A stateless client can read it, and cannot change it unnoticed; but it may come
        /// without, or with an older one of the same request: a tool looks at both, answers and state.
        state: Option<String>,
    },
    /// The tool goes on as a task: the client is told so, and the same call is resolved once more by what
    /// comes of it. Only where [`Context::may_be_task`].
    Task(TaskStart),
}

impl LocalReply {
    /// A tool's result: one text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        ToolResult::text(text).into()
    }

    /// A tool's result: what went wrong, for the model to read.
    #[must_use]
    pub fn failed(text: &str) -> Self {
        ToolResult::error(text).into()
    }

    /// A tool's result: structured content, a raw JSON value (an object before 2026-07-28), and its text for
    /// clients that do not know it.
    #[must_use]
    pub fn structured(text: &str, structured: &str) -> Self {
        ToolResult::structured(text, structured).into()
    }

    /// A tool's result, made of whatever a tool gives: JSON of any kind, or no JSON at all. An array of objects
    /// is its content, an object with `content` keeps `isError`, `structuredContent` and `_meta`, and everything
    /// else becomes text, numbers with the digits they have. Plugin commands are answered so.
    ///
    /// Source: openclaw-serve §4 (result coercion).
    #[must_use]
    pub fn coerced(given: &[u8]) -> Self {
        Self::Result(coerce(given))
    }

    /// Bad arguments of a prompt or a resource, as a JSON-RPC error.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Error(RpcError::new(ErrorCode::InvalidParams, message))
    }

    /// A question to the client, with nothing to remember.
    #[must_use]
    pub fn ask(requests: impl IntoIterator<Item = InputRequest>) -> Self {
        Self::NeedInput {
            requests: requests.into_iter().collect(),
            state: None,
        }
    }

    /// A question to the client, and what to give back with its answer.
    #[must_use]
    pub fn ask_with(
        requests: impl IntoIterator<Item = InputRequest>,
        state: impl Into<String>,
    ) -> Self {
        Self::NeedInput {
            requests: requests.into_iter().collect(),
            state: Some(state.into()),
        }
    }
}

impl From<ToolResult> for LocalReply {
    fn from(result: ToolResult) -> Self {
        Self::Result(result.into_json())
    }
}

/// How a task begins. Spec: extension io.modelcontextprotocol/tasks (Task).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskStart {
    /// For a person.
    pub status_message: Option<String>,
    /// Life of the task from now on, result included; `None` and more than `task_ttl` mean `task_ttl`.
    pub ttl: Option<Duration>,
    /// How often the client should ask; `None` means `task_poll_interval`.
    pub poll_interval: Option<Duration>,
}

/// What a client can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A person: `elicitation/create`.
    Elicitation,
    /// A model: `sampling/createMessage`.
    Sampling,
    /// The client itself: `roots/list`.
    Roots,
}

impl InputKind {
    /// The method on the wire.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation/create",
            Self::Sampling => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }
}

/// One question to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRequest {
    /// Names the answer. Unique among the questions of one round.
    pub key: String,
    /// Whom to ask.
    pub kind: InputKind,
    /// `params`: a raw object.
    pub params: String,
}

impl InputRequest {
    /// A form for a person; `requested_schema` is a raw object schema with flat members.
    /// Spec: 2025-11-25 client/elicitation (Form Mode).
    #[must_use]
    pub fn form(key: &str, message: &str, requested_schema: &str) -> Self {
        let mut params = String::from(r#"{"message":"#);
        write_string(&mut params, message);
        params.push_str(r#","requestedSchema":"#);
        params.push_str(requested_schema);
        params.push('}');
        Self {
            key: key.to_owned(),
            kind: InputKind::Elicitation,
            params,
        }
    }

    /// A page for a person to open, away from the client: for what a client must not see.
    /// Spec: 2025-11-25 client/elicitation (URL Mode).
    #[must_use]
    pub fn url(key: &str, message: &str, url: &str) -> Self {
        let mut params = String::from(r#"{"mode":"url","message":"#);
        write_string(&mut params, message);
        params.push_str(r#","url":"#);
        write_string(&mut params, url);
        params.push('}');
        Self {
            key: key.to_owned(),
            kind: InputKind::Elicitation,
            params,
        }
    }

    /// A question to the client's model; `params` as in the method. Spec: 2025-11-25 client/sampling.
    #[must_use]
    pub fn sampling(key: &str, params: impl Into<String>) -> Self {
        Self {
            key: key.to_owned(),
            kind: InputKind::Sampling,
            params: params.into(),
        }
    }

    /// A question to the client's model: one message of the user.
    #[must_use]
    pub fn sample_text(key: &str, text: &str, tokens_max: u32) -> Self {
        let mut params =
            String::from(r#"{"messages":[{"role":"user","content":{"type":"text","text":"#);
        write_string(&mut params, text);
        params.push_str(&format!(r#"}}}}],"maxTokens":{tokens_max}}}"#));
        Self::sampling(key, params)
    }

    /// The client's roots. Spec: 2025-11-25 client/roots.
    #[must_use]
    pub fn roots(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            kind: InputKind::Roots,
            params: "{}".to_owned(),
        }
    }

    /// What the client must have declared to be asked this.
    pub(super) fn needs(&self) -> Feature {
        let needed = Feature::needed_by(self.kind.method(), &self.params);
        needed.expect("every kind is a question")
    }

    /// Appends `"key":{"method":…,"params":…}` with `key` in place of its own.
    pub(super) fn write_member(&self, out: &mut String, key: &str) {
        write_string(out, key);
        out.push_str(r#":{"method":""#);
        out.push_str(self.kind.method());
        out.push_str(r#"","params":"#);
        out.push_str(&self.params);
        out.push('}');
    }
}

/// What the desk wants done. Drained to `None` after every input.
#[derive(Debug)]
pub enum LocalOutput {
    /// For the program: answer this.
    Ask(LocalRequest),
    /// For the program: nobody wants the answer of this call any more.
    Cancelled(CallId),
    /// Ask a client of the handshake era, in the service of its open request; its answer comes back by
    /// [`Local::handle_answer`](super::Local::handle_answer).
    AskClient {
        /// The call in whose service it is.
        call: CallId,
        /// To name the answer by.
        key: String,
        /// The method.
        method: &'static str,
        /// Its `params`, a raw object.
        params: String,
    },
    /// The one answer to a call.
    Answer {
        /// The call.
        call: CallId,
        /// Its answer.
        answer: LocalAnswer,
    },
    /// How far a call is, for a client that asked for that.
    Progress {
        /// The call.
        call: CallId,
        /// Rises from report to report.
        progress: u64,
        /// What it will be in the end, where that is known.
        total: Option<u64>,
        /// For a person.
        message: String,
    },
    /// A log message in the service of a call.
    Log {
        /// The call.
        call: CallId,
        /// Its severity.
        level: LogLevel,
        /// Which part of the program speaks.
        logger: String,
        /// A raw JSON value.
        data: String,
    },
    /// End the stream on which the answer of this call would come, so that the client has to fetch it:
    /// handshake era over HTTP only, of no effect elsewhere. Spec: 2025-11-25 basic/transports (a server
    /// may close the stream before it has answered).
    CloseStream {
        /// The call. It stays open.
        call: CallId,
    },
    /// A notification to the client of this call.
    NotifyClient {
        /// The call.
        call: CallId,
        /// The method.
        method: &'static str,
        /// Its `params`, a raw object.
        params: String,
    },
    /// A list has changed: tell everyone who may know.
    ListChanged(List),
    /// A resource has changed: tell everyone who subscribed to it.
    ResourceUpdated(String),
    /// A task has changed: those who listen to it may be told, see [`Local::task`](super::Local::task).
    TaskChanged {
        /// The task.
        task: String,
    },
}

/// The answer to a call, in the words of [`Answer`](crate::protocol::server::Answer).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalAnswer {
    /// A result: a raw object; `resultType` is added where the client's revision has it.
    Result(String),
    /// The same where the result has no member beside its content: it need not be looked through.
    Plain(String),
    /// A result of this type, for the stateless era: `input_required`, `task`, or `complete` with members
    /// that only this era has.
    Typed(&'static str, String),
    /// An error.
    Error(RpcError),
}
