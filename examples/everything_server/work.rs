//! The tools that take time. The library hands each call over and waits for nothing: the answer is given
//! when it is there.
//!
//! `Work` holds what is to be done later. The loop asks it, as any machine, when it wants to be woken; after
//! each turn the program carries out what [`Work::poll`] gives.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use drawspan::clock::{Deadline, Now, Uptime};
use drawspan::codec::outbuf::OutBuf;
use drawspan::ids::{CallId, WireId};
use drawspan::link::{Driven, IoEvent, IoRequest};
use drawspan::local::{
    InputRequest, Local, LocalKind, LocalReply, LocalRequest, Registry, TaskStart, Tool,
};
use drawspan::protocol::error::{ErrorCode, RpcError};
use drawspan::protocol::message::{LogLevel, member};
use drawspan::protocol::server::List;

use crate::samples::{FORM_NAME, NOTHING};

/// Between two log messages or reports of progress.
const STEP: Duration = Duration::from_millis(50);
/// How long a client has to come back for an answer whose stream was ended.
const AWAY: Duration = Duration::from_millis(100);
/// How long the jobs take.
const JOB: Duration = Duration::from_secs(1);
/// Longest computation that is done.
const SECONDS_MAX: f64 = 3600.0;

/// One thing to say to the library.
#[derive(Debug)]
pub(crate) enum Action {
    /// The answer to a call.
    Reply(CallId, LocalReply),
    /// Anything beside answers.
    Tell(Tell),
}

/// What a tool can say beside its answer.
#[derive(Debug)]
pub(crate) enum Tell {
    /// How far a call is, of a hundred.
    Progress(CallId, u64),
    /// A log message in the service of a call.
    Log(CallId, &'static str),
    /// End the stream of a call.
    CloseStream(CallId),
    /// A list has changed.
    ListChanged(List),
    /// A resource has changed.
    ResourceUpdated(&'static str),
}

impl Tell {
    /// Says it.
    pub(crate) fn tell(self, now: Now, local: &mut Local) {
        match self {
            Self::Progress(call, progress) => {
                let message = format!("{progress} of 100");
                local.progress(now, call, progress, Some(100), &message);
            }
            Self::Log(call, text) => {
                local.log(call, LogLevel::Info, "everything", &format!("\"{text}\""));
            }
            Self::CloseStream(call) => local.close_stream(call),
            Self::ListChanged(list) => {
                if list == List::Tools {
                    come_or_go(local.registry_mut());
                }
                local.list_changed(list);
            }
            Self::ResourceUpdated(uri) => local.resource_updated(uri),
        }
    }
}

/// The one tool that is there every other time.
fn come_or_go(registry: &mut Registry) {
    const NAME: &str = "test_comes_and_goes";
    if !registry.remove_tool(NAME) {
        let tool = Tool::new(NAME, "Is there every other time", NOTHING);
        // It was not there, so its name is free.
        let _ = registry.add_tool(tool.answered_by(|_| LocalReply::text("I am here.")));
    }
}

/// What is to be done, now and later.
#[derive(Debug, Default)]
pub(crate) struct Work {
    later: BTreeMap<(Uptime, u64), (CallId, Action)>,
    /// Calls of `test_hold` that wait.
    held: BTreeSet<CallId>,
    /// How many of them were taken back.
    let_go: u64,
    next: u64,
    actions: VecDeque<Action>,
}

impl Work {
    /// Takes a request that no closure answers.
    pub(crate) fn handle(&mut self, now: Now, request: &LocalRequest) {
        let call = request.call;
        let LocalKind::Tool { name, .. } = &request.kind else {
            return self.reply(call, complete(&request.kind));
        };
        match &**name {
            "test_tool_with_logging" => {
                self.tell(Tell::Log(call, "Tool execution started"));
                self.tell_later(now, STEP, call, Tell::Log(call, "Tool processing data"));
                let done = LocalReply::text("Tool with logging executed successfully");
                self.tell_later(
                    now,
                    2 * STEP,
                    call,
                    Tell::Log(call, "Tool execution completed"),
                );
                self.reply_later(now, 2 * STEP, call, done);
            }
            "test_tool_with_progress" => {
                self.tell(Tell::Progress(call, 0));
                self.tell_later(now, STEP, call, Tell::Progress(call, 50));
                self.tell_later(now, 2 * STEP, call, Tell::Progress(call, 100));
                let done = LocalReply::text("Tool with progress executed successfully");
                self.reply_later(now, 2 * STEP, call, done);
            }
            "test_logging_tool" => {
                self.tell(Tell::Log(call, "The tool was called"));
                self.reply(call, LocalReply::text("Logged."));
            }
            "test_reconnection" => {
                self.tell(Tell::CloseStream(call));
                let done = LocalReply::text("Reconnection test completed successfully");
                self.reply_later(now, AWAY, call, done);
            }
            "test_hold" => {
                self.held.insert(call);
                self.tell(Tell::Progress(call, 1));
            }
            "test_held" => {
                let (waiting, gone) = (self.held.len(), self.let_go);
                let text = format!("{waiting} wait, {gone} were taken back");
                let value = format!(r#"{{"waiting":{waiting},"takenBack":{gone}}}"#);
                self.reply(call, LocalReply::structured(&text, &value));
            }
            "test_trigger_tool_change" => self.change(call, Tell::ListChanged(List::Tools)),
            "test_trigger_prompt_change" => self.change(call, Tell::ListChanged(List::Prompts)),
            "test_trigger_resource_change" => {
                self.change(call, Tell::ListChanged(List::Resources));
            }
            "test_trigger_resource_update" => {
                self.change(call, Tell::ResourceUpdated("test://watched-resource"));
            }
            "slow_compute" => self.compute(now, request),
            "failing_job" => {
                self.job(now, request, LocalReply::failed("This job always fails"));
            }
            "protocol_error_job" => {
                let error = RpcError::new(ErrorCode::InternalError, "the job came to grief");
                self.job(now, request, LocalReply::Error(error));
            }
            "confirm_delete" => self.confirm_delete(request),
            "multi_input" => self.multi_input(request),
            "test_tool_with_task" => self.ask_then_work(now, request),
            other => self.reply(
                call,
                LocalReply::failed(&format!("{other} is not done yet")),
            ),
        }
    }

    /// Nobody waits for this call any more.
    pub(crate) fn cancel(&mut self, call: CallId) {
        self.later.retain(|_, (of, _)| *of != call);
        self.let_go += u64::from(self.held.remove(&call));
    }

    /// The next thing to say.
    pub(crate) fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn tell(&mut self, tell: Tell) {
        self.actions.push_back(Action::Tell(tell));
    }

    fn tell_later(&mut self, now: Now, after: Duration, call: CallId, tell: Tell) {
        self.later(now, after, call, Action::Tell(tell));
    }

    fn reply_later(&mut self, now: Now, after: Duration, call: CallId, reply: LocalReply) {
        self.later(now, after, call, Action::Reply(call, reply));
    }

    fn later(&mut self, now: Now, after: Duration, call: CallId, action: Action) {
        self.later
            .insert((now.after(after), self.next), (call, action));
        self.next += 1;
    }

    fn reply(&mut self, call: CallId, reply: LocalReply) {
        self.actions.push_back(Action::Reply(call, reply));
    }

    fn change(&mut self, call: CallId, change: Tell) {
        self.tell(change);
        self.reply(call, LocalReply::text("Done."));
    }

    /// Goes on as a task where that is possible: the call is answered with the task, and its reply, later,
    /// is the outcome of the task.
    fn go_on_as_task(&mut self, request: &LocalRequest) {
        if request.context.may_be_task {
            let start = TaskStart {
                poll_interval: Some(Duration::from_millis(200)),
                ..TaskStart::default()
            };
            self.reply(request.call, LocalReply::Task(start));
        }
    }

    fn job(&mut self, now: Now, request: &LocalRequest, outcome: LocalReply) {
        self.go_on_as_task(request);
        let call = request.call;
        self.reply_later(now, JOB, call, outcome);
    }

    fn compute(&mut self, now: Now, request: &LocalRequest) {
        let seconds = request
            .kind
            .argument("seconds")
            .and_then(|raw| raw.parse().ok());
        let Some(seconds) = seconds.filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds)) else {
            let error = format!("seconds must be a number from 0 to {SECONDS_MAX}");
            return self.reply(request.call, LocalReply::failed(&error));
        };
        let label = request.kind.argument_text("label").unwrap_or_default();
        let done = LocalReply::text(&format!("Computed {label} in {seconds} s"));
        if seconds > 0.0 {
            self.go_on_as_task(request);
        }
        let call = request.call;
        let time = Duration::from_secs_f64(seconds);
        self.reply_later(now, time, call, done);
    }

    fn confirm_delete(&mut self, request: &LocalRequest) {
        let file = request.kind.argument_text("filename").unwrap_or_default();
        let reply = match request.context.input("confirm") {
            None => {
                const FORM: &str = r#"{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}"#;
                self.go_on_as_task(request);
                let message = format!("Really delete {file}?");
                LocalReply::ask([InputRequest::form("confirm", &message, FORM)])
            }
            Some(_) => {
                let content = request.context.accepted("confirm").unwrap_or("{}");
                match member(content, "confirm") {
                    Some("true") => LocalReply::text(&format!("Deleted {file}")),
                    _ => LocalReply::text(&format!("Kept {file}")),
                }
            }
        };
        self.reply(request.call, reply);
    }

    fn multi_input(&mut self, request: &LocalRequest) {
        let context = &request.context;
        let reply = match (context.input("first"), context.input("second")) {
            (Some(first), Some(second)) => LocalReply::text(&format!("{first} and {second}")),
            _ => {
                self.go_on_as_task(request);
                LocalReply::ask([
                    InputRequest::form("first", "What is the first name?", FORM_NAME),
                    InputRequest::form("second", "What is the second name?", FORM_NAME),
                ])
            }
        };
        self.reply(request.call, reply);
    }

    /// What a task must know before it begins is asked while there is no task yet.
    fn ask_then_work(&mut self, now: Now, request: &LocalRequest) {
        match request.context.accepted_text("user_name", "name") {
            Some(name) => {
                self.job(now, request, LocalReply::text(&format!("Hello, {name}!")));
            }
            None => {
                let name = InputRequest::form("user_name", "What is your name?", FORM_NAME);
                self.reply(request.call, LocalReply::ask([name]));
            }
        }
    }
}

/// Completes any argument from a list of words.
fn complete(kind: &LocalKind) -> LocalReply {
    const WORDS: [&str; 4] = ["paris", "party", "test-one", "test-two"];
    let begun = kind.argument_text("value").unwrap_or_default();
    let fitting = WORDS.iter().filter(|word| word.starts_with(&begun));
    LocalReply::completion(&fitting.collect::<Vec<_>>())
}

impl Driven for Work {
    fn handle_io(&mut self, _now: Now, _wire: WireId, _event: IoEvent<'_>) {}

    fn handle_timeout(&mut self, now: Now) {
        while let Some(first) = self.later.first_entry() {
            if first.key().0 > now.up {
                break;
            }
            let (_, action) = first.remove();
            self.actions.push_back(action);
        }
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        None
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let ((at, _), _) = self.later.first_key_value()?;
        Some(Deadline::new(*at, "a tool has something to say"))
    }

    fn outgoing(&mut self, _wire: WireId) -> Option<&mut OutBuf> {
        None
    }
}
