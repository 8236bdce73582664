//! Tasks that servers have made of our clients' calls: whose each of them is.
//!
//! | a request for a task         | of one server | of several                                               |
//! |------------------------------|---------------|----------------------------------------------------------|
//! | `tasks/get`, update, cancel  | goes to it    | goes to whose call made it, or that was found to have it |
//! | the same, made by none known | –             | each with tasks in turn, by key, until one has it        |
//! | a listen stream              | goes to it    | as the first; else to the only one with tasks, or nobody |
//!
//! An id is the server's own and passes as it is. Of two servers that use one id, it is the last one's: that is
//! told once.
//!
//! Source: extension io.modelcontextprotocol/tasks.

use std::collections::{BTreeMap, VecDeque};

use super::UpstreamSide;
use super::opening::has_tasks;
use crate::clock::Now;
use crate::codec::scan::Text;
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::hub::Hub;
use crate::ids::{CallId, PeerId, RuntimeId};
use crate::limits::Limits;
use crate::local::{Feature, declares};
use crate::manager::server_config::ServerKey;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::member;
use crate::protocol::server::{Answer, ServerRequest};
use crate::protocol::topic::Topic;
use crate::secret::Quoted;

/// See the module page.
#[derive(Debug)]
pub(super) struct Tasks {
    owners: BTreeMap<(RuntimeId, Box<str>), ServerKey>,
    /// The same, the oldest first.
    order: VecDeque<(RuntimeId, Box<str>)>,
    /// Calls that may be answered by a task, and at which server each is.
    calls: BTreeMap<CallId, ServerKey>,
    /// How many are known; the oldest goes first.
    max: usize,
    /// That two servers use one id was told.
    told: bool,
}

impl Tasks {
    pub(super) const fn new(limits: &Limits) -> Self {
        Self {
            owners: BTreeMap::new(),
            order: VecDeque::new(),
            calls: BTreeMap::new(),
            max: limits.tasks_max,
            told: false,
        }
    }

    /// Nobody waits for a call any more.
    pub(super) fn forget_call(&mut self, call: CallId) {
        self.calls.remove(&call);
    }

    pub(super) fn forget(&mut self, runtime: RuntimeId) {
        self.owners.retain(|(of, _), _| *of != runtime);
        self.order.retain(|(of, _)| *of != runtime);
    }

    /// A server has this task. Gives the one that it was thought to be of, where that is another.
    pub(super) fn remember(
        &mut self,
        runtime: RuntimeId,
        id: &str,
        server: ServerKey,
    ) -> Option<ServerKey> {
        let key = (runtime, Box::from(id));
        if !self.owners.contains_key(&key) {
            if self.order.len() >= self.max {
                if let Some(oldest) = self.order.pop_front() {
                    self.owners.remove(&oldest);
                }
            }
            self.order.push_back(key.clone());
        }
        let before = self.owners.insert(key.clone(), server);
        before.filter(|before| self.owners.get(&key) != Some(before))
    }
}

/// `taskId` of a request or a result.
fn task_in(object: Option<&str>) -> Option<String> {
    let id = member(object?, "taskId").and_then(Text::of_value)?;
    Some(id.decode().into_owned())
}

/// Whether a request is for a task of the stateless era; the one of 2025-11-25 has others under the same names.
pub(super) fn is_for_task(request: &ServerRequest) -> bool {
    let methods = ["tasks/get", "tasks/update", "tasks/cancel"];
    request.revision.is_stateless() && methods.contains(&&*request.method)
}

impl UpstreamSide {
    /// A call is on its way to one of several servers, which may make a task of it.
    pub(super) fn may_become_task(&mut self, call: CallId, server: Option<&ServerKey>) {
        let several = self.manager.servers().nth(1).is_some();
        let declared = self.questions.declared_with(call).filter(|_| several);
        if declared.is_some_and(|declared| declares(declared, Feature::Tasks)) {
            if let Some(server) = server {
                self.tasks.calls.insert(call, server.clone());
            }
        }
    }

    /// The servers that may have tasks, by key.
    pub(super) fn with_tasks(&self, runtime: RuntimeId) -> VecDeque<ServerKey> {
        let servers = self.manager.servers().map(|config| &config.key);
        let may = |key: &&ServerKey| {
            let facts = self.manager.facts(runtime, key);
            facts.is_none_or(has_tasks)
        };
        servers.filter(may).cloned().collect()
    }

    /// The server whose task this is, where that is known.
    fn owner_of_task(&self, runtime: RuntimeId, id: &str) -> Option<ServerKey> {
        let key = (runtime, Box::from(id));
        let owner = self.tasks.owners.get(&key).cloned();
        owner.or_else(|| self.only_server())
    }
}

impl Hub {
    /// Whether a request is for a task of the program.
    pub(super) fn is_for_own_task(&self, peer: PeerId, request: &ServerRequest) -> bool {
        let id = task_in(request.params.as_deref());
        id.is_some_and(|id| self.is_own_task(peer, &id))
    }

    /// The server at which a task can be listened to.
    pub(super) fn server_of_task(&mut self, runtime: RuntimeId, id: &str) -> Option<ServerKey> {
        let side = self.upstream.as_ref()?;
        if let Some(owner) = side.owner_of_task(runtime, id) {
            return Some(owner);
        }
        let mut having = side.with_tasks(runtime);
        if having.len() > 1 {
            let message = format!(
                "task {} is not listened to: it is not known which of {} servers has it; tasks/get finds it",
                Quoted(id),
                having.len()
            );
            let warning = Diagnostic::new(Level::Warning, Subject::Upstream, message);
            self.diagnose(warning);
            return None;
        }
        having.pop_front()
    }

    /// A request for a task of one of several servers.
    pub(super) fn serve_task(
        &mut self,
        now: Now,
        peer: PeerId,
        runtime: RuntimeId,
        request: ServerRequest,
    ) {
        let declared = request.client_capabilities.as_deref().unwrap_or("{}");
        if !declares(declared, Feature::Tasks) {
            let error = Feature::Tasks.missing();
            return self.respond(now, peer, request.key, Answer::Error(&error));
        }
        let Some(id) = task_in(request.params.as_deref()) else {
            let error = RpcError::new(
                ErrorCode::InvalidParams,
                "params.taskId is missing, or no string",
            );
            return self.respond(now, peer, request.key, Answer::Error(&error));
        };
        let side = self.upstream.as_ref();
        match side.and_then(|side| side.owner_of_task(runtime, &id)) {
            Some(server) => {
                let params = request.params.clone();
                self.ask_server(now, peer, runtime, &server, &request, params);
            }
            None => self.search(now, peer, runtime, request, Topic::Task(id)),
        }
    }

    /// A call has its result: if that is a task, its server is known from now on.
    pub(super) fn learn_task(&mut self, call: CallId, result: Option<&str>) {
        let Some(side) = &mut self.upstream else {
            return;
        };
        let Some(server) = side.tasks.calls.remove(&call) else {
            return;
        };
        let kind = result.and_then(|result| member(result, "resultType"));
        let is_task = kind.and_then(Text::of_value);
        let entry = self.ledger.entry(call);
        let runtime = entry.and_then(|entry| side.runtimes.get(&entry.peer).copied());
        let (Some(id), Some(runtime)) = (task_in(result), runtime) else {
            return;
        };
        if !is_task.is_some_and(|kind| kind.is("task")) {
            return;
        }
        let other = side.tasks.remember(runtime, &id, server.clone());
        let Some(other) = other.filter(|_| !std::mem::replace(&mut side.tasks.told, true)) else {
            return;
        };
        let message = format!(
            "servers {} and {} both have made a task {}: it is the last one's",
            Quoted(other.as_str()),
            Quoted(server.as_str()),
            Quoted(&id)
        );
        self.diagnose(Diagnostic::new(Level::Warning, Subject::Upstream, message));
    }
}

/// Nobody has this task.
pub(super) fn unknown_task(id: &str) -> RpcError {
    let text = format!("Unknown task: {}", Quoted(id));
    RpcError::new(ErrorCode::InvalidParams, text)
}
