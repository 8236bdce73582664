//! Calls that go on after their answer: the store behind `tasks/get`, `tasks/update` and `tasks/cancel`.
//!
//! | status         | input                    | next           | what the desk does            |
//! |----------------|--------------------------|----------------|-------------------------------|
//! | –              | create                   | working        | answers the call "task"       |
//! | working        | ask                      | input required | –                             |
//! | working        | finish with a result     | completed      | –                             |
//! | working        | finish with an error     | failed         | –                             |
//! | input required | the last answer          | working        | asks the program again        |
//! | not finished   | cancel                   | cancelled      | tells the program             |
//! | not finished   | its life is over         | gone           | tells the program             |
//! | finished       | its life is over, or too many are kept | gone | –                       |
//!
//! A task belongs to the principal that made it; to anyone else it does not exist.
//! Source: extension io.modelcontextprotocol/tasks (SEP-2663).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::clock::{Deadline, Now, Uptime};
use crate::codec::json_text::write_string;
use crate::codec::scan::members;
use crate::ids::CallId;
use crate::limits::Limits;
use crate::local::call::{InputRequest, TaskStart};
use crate::local::iso_time::write_iso_time;
use crate::protocol::error::RpcError;

/// Where a task is.
#[derive(Debug)]
enum Status {
    Working,
    InputRequired,
    /// A raw result.
    Completed(String),
    Failed(RpcError),
    Cancelled,
}

impl Status {
    const fn name(&self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::Completed(_) => "completed",
            Self::Failed(_) => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    const fn is_finished(&self) -> bool {
        match self {
            Self::Working | Self::InputRequired => false,
            Self::Completed(_) | Self::Failed(_) | Self::Cancelled => true,
        }
    }

    /// What its outcome takes. Unit: bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Completed(result) => result.len(),
            Self::Failed(error) => error.message.len() + error.data.as_ref().map_or(0, String::len),
            Self::Working | Self::InputRequired | Self::Cancelled => 0,
        }
    }
}

#[derive(Debug)]
struct Task {
    call: CallId,
    principal: Box<str>,
    status: Status,
    message: Option<String>,
    created_unix_ms: i64,
    updated_unix_ms: i64,
    ttl: Duration,
    poll_interval: Duration,
    until: Uptime,
    /// Every key that was ever shown: none means two questions in the life of a task.
    keys: BTreeSet<String>,
    /// Questions without an answer, with the keys under which they are shown.
    pending: Vec<(String, InputRequest)>,
    /// Answers of this round, by the program's keys.
    answers: Vec<(String, Box<str>)>,
}

/// All tasks.
#[derive(Debug)]
pub(super) struct Tasks {
    limits: Limits,
    tasks: BTreeMap<String, Task>,
    by_end: BTreeSet<(Uptime, String)>,
    /// Finished ones, the first to finish in front.
    finished: VecDeque<String>,
    result_bytes: usize,
}

impl Tasks {
    pub(super) const fn new(limits: Limits) -> Self {
        Self {
            limits,
            tasks: BTreeMap::new(),
            by_end: BTreeSet::new(),
            finished: VecDeque::new(),
            result_bytes: 0,
        }
    }

    /// Keeps a new task, which is working; `false` when too many are unfinished.
    pub(super) fn create(
        &mut self,
        now: Now,
        id: &str,
        call: CallId,
        principal: &str,
        start: TaskStart,
    ) -> bool {
        while self.tasks.len() >= self.limits.tasks_max {
            let Some(oldest) = self.finished.pop_front() else {
                return false;
            };
            self.remove(&oldest);
        }
        let most = self.limits.task_ttl;
        let ttl = start.ttl.unwrap_or(most).min(most);
        let until = now.after(ttl);
        self.by_end.insert((until, id.to_owned()));
        let task = Task {
            call,
            principal: principal.into(),
            status: Status::Working,
            message: start.status_message,
            created_unix_ms: now.unix_ms,
            updated_unix_ms: now.unix_ms,
            ttl,
            poll_interval: start
                .poll_interval
                .unwrap_or(self.limits.task_poll_interval),
            until,
            keys: BTreeSet::new(),
            pending: Vec::new(),
            answers: Vec::new(),
        };
        self.tasks.insert(id.to_owned(), task);
        true
    }

    /// Whether this principal has such a task.
    pub(super) fn has(&self, id: &str, principal: &str) -> bool {
        self.tasks
            .get(id)
            .is_some_and(|task| &*task.principal == principal)
    }

    /// How many tasks are kept, and the bytes of their results.
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.tasks.len(), self.result_bytes)
    }

    /// Whether it is finished, or gone.
    pub(super) fn has_ended(&self, id: &str) -> bool {
        self.tasks
            .get(id)
            .is_none_or(|task| task.status.is_finished())
    }

    /// The task without what its status adds, for the answer to the call that made it: a raw object.
    pub(super) fn brief(&self, id: &str) -> Option<String> {
        let mut json = self.write_brief(id)?;
        json.push('}');
        Some(json)
    }

    /// The task in full, a raw object.
    pub(super) fn detail(&self, id: &str) -> Option<String> {
        let mut json = self.write_brief(id)?;
        let task = self.tasks.get(id)?;
        match &task.status {
            Status::Working | Status::Cancelled => {}
            Status::InputRequired => {
                json.push_str(r#","inputRequests":{"#);
                for (i, (key, request)) in task.pending.iter().enumerate() {
                    json.push_str(if i == 0 { "" } else { "," });
                    request.write_member(&mut json, key);
                }
                json.push('}');
            }
            Status::Completed(result) => {
                json.push_str(r#","result":"#);
                json.push_str(result);
            }
            Status::Failed(error) => {
                let code = error.code.number();
                json.push_str(&format!(r#","error":{{"code":{code},"message":"#));
                write_string(&mut json, &error.message);
                if let Some(data) = &error.data {
                    json.push_str(r#","data":"#);
                    json.push_str(data);
                }
                json.push('}');
            }
        }
        json.push('}');
        Some(json)
    }

    fn write_brief(&self, id: &str) -> Option<String> {
        let task = self.tasks.get(id)?;
        let mut json = String::from(r#"{"taskId":"#);
        write_string(&mut json, id);
        json.push_str(&format!(r#","status":"{}""#, task.status.name()));
        if let Some(message) = &task.message {
            json.push_str(r#","statusMessage":"#);
            write_string(&mut json, message);
        }
        json.push_str(r#","createdAt":""#);
        write_iso_time(&mut json, task.created_unix_ms);
        json.push_str(r#"","lastUpdatedAt":""#);
        write_iso_time(&mut json, task.updated_unix_ms);
        let (ttl, interval) = (task.ttl.as_millis(), task.poll_interval.as_millis().max(1));
        json.push_str(&format!(r#"","ttlMs":{ttl},"pollIntervalMs":{interval}"#));
        Some(json)
    }

    /// Says what a task is doing.
    pub(super) fn describe(&mut self, now: Now, id: &str, message: String) {
        if let Some(task) = self.unfinished(id) {
            task.message = Some(message);
            task.updated_unix_ms = now.unix_ms;
        }
    }

    /// The program wants to know something. Keys that were shown before get a number behind.
    pub(super) fn ask(&mut self, now: Now, id: &str, requests: Vec<InputRequest>) {
        let Some(task) = self.unfinished(id) else {
            return;
        };
        task.answers.clear();
        task.pending.clear();
        for request in requests {
            let mut key = request.key.clone();
            let mut number = 1;
            while !task.keys.insert(key.clone()) {
                number += 1;
                key = format!("{}-{number}", request.key);
            }
            task.pending.push((key, request));
        }
        task.status = Status::InputRequired;
        task.updated_unix_ms = now.unix_ms;
    }

    /// Takes what of the raw object `responses` answers an open question. When it was the last one: the
    /// call to go on with, and all answers of this round as a raw object by the program's keys.
    pub(super) fn answer(
        &mut self,
        now: Now,
        id: &str,
        responses: &str,
    ) -> Option<(CallId, String)> {
        let task = self.unfinished(id)?;
        for (key, value) in members(responses) {
            let open = task.pending.iter().position(|(shown, _)| key.is(shown));
            if let (Some(at), true) = (open, value.starts_with('{')) {
                let (_, request) = task.pending.remove(at);
                task.answers.push((request.key, value.into()));
                task.updated_unix_ms = now.unix_ms;
            }
        }
        let is_last = task.pending.is_empty() && matches!(task.status, Status::InputRequired);
        if !is_last {
            return None;
        }
        task.status = Status::Working;
        Some((task.call, write_inputs(&std::mem::take(&mut task.answers))))
    }

    /// The work is done.
    pub(super) fn finish(&mut self, now: Now, id: &str, outcome: Result<String, RpcError>) {
        let message = outcome.as_ref().err().map(|error| error.message.clone());
        let status = match outcome {
            Ok(result) => Status::Completed(result),
            Err(error) => Status::Failed(error),
        };
        let bytes = status.bytes();
        if self.end(now, id, status, message) {
            self.result_bytes += bytes;
        }
        while self.result_bytes > self.limits.task_results_bytes_max && self.finished.len() > 1 {
            if let Some(oldest) = self.finished.pop_front() {
                self.remove(&oldest);
            }
        }
    }

    /// The client wants no more of it: the call to stop, unless the task was finished before.
    pub(super) fn cancel(&mut self, now: Now, id: &str) -> Option<CallId> {
        let call = self.unfinished(id)?.call;
        self.end(now, id, Status::Cancelled, None);
        Some(call)
    }

    fn end(&mut self, now: Now, id: &str, status: Status, message: Option<String>) -> bool {
        let Some(task) = self.unfinished(id) else {
            return false;
        };
        task.status = status;
        task.pending.clear();
        task.answers.clear();
        task.message = message;
        task.updated_unix_ms = now.unix_ms;
        self.finished.push_back(id.to_owned());
        true
    }

    /// Forgets the tasks whose life is over: the calls that were still at work, to stop them.
    pub(super) fn expire(&mut self, now: Now) -> Vec<CallId> {
        let mut stopped = Vec::new();
        while let Some((until, id)) = self.by_end.first().cloned() {
            if until > now.up {
                break;
            }
            if let Some(call) = self.unfinished(&id).map(|task| task.call) {
                stopped.push(call);
            }
            self.finished.retain(|finished| *finished != id);
            self.remove(&id);
        }
        stopped
    }

    /// When [`Tasks::expire`] has something.
    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let (until, _) = self.by_end.first()?;
        Some(Deadline::new(*until, "task expires"))
    }

    fn unfinished(&mut self, id: &str) -> Option<&mut Task> {
        let task = self.tasks.get_mut(id)?;
        (!task.status.is_finished()).then_some(task)
    }

    /// Takes a task out of everything but `finished`.
    fn remove(&mut self, id: &str) {
        let Some(task) = self.tasks.remove(id) else {
            return;
        };
        self.by_end.remove(&(task.until, id.to_owned()));
        self.result_bytes -= task.status.bytes();
    }
}

/// Answers as a raw object by key.
pub(super) fn write_inputs(answers: &[(String, Box<str>)]) -> String {
    let mut json = String::from("{");
    for (i, (key, value)) in answers.iter().enumerate() {
        json.push_str(if i == 0 { "" } else { "," });
        write_string(&mut json, key);
        json.push(':');
        json.push_str(value);
    }
    json.push('}');
    json
}
