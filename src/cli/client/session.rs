//! One run of the client: a manager with one runtime, the loop that drives it, and the person at the
//! terminal, if there is one.

use std::io::IsTerminal as _;
use std::time::Duration;

use super::super::serve::start;
use super::super::{CommandResult, Exit, Failure, say};
use super::servers::{self, Chosen};
use super::terminal::Terminal;
use crate::clock::Now;
use crate::codec::shared_text::SharedText;
use crate::diagnostic::Level;
use crate::gate::{Gate, Passage, Policy, ToolCall};
use crate::ids::{CallId, RuntimeId, TicketId, WireId};
use crate::io::EventLoop;
use crate::io::system::OsEntropy;
use crate::limits::Limits;
use crate::manager::Prefix;
use crate::manager::catalog::{PagedList, Tool};
use crate::manager::diagnostic::ServerDiagnostic;
use crate::manager::error::{FailureKind, UpstreamError};
use crate::manager::server_config::{ServerConfig, ServerKey};
use crate::manager::{Manager, ManagerOutput, Options, ServerState, Settings};

/// Who servers are told we are.
fn identity() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(r#"{{"name":"drawspan","title":"drawspan","version":"{version}"}}"#)
}

/// See the module page.
pub(super) struct Session {
    events: EventLoop,
    manager: Manager,
    terminal: Terminal,
    gate: Gate,
    runtime: RuntimeId,
    /// What has gone wrong beside what was asked for.
    pub(super) diagnostics: Vec<ServerDiagnostic>,
    /// The servers, and how long connecting to each may take.
    servers: Vec<(ServerKey, Duration)>,
    /// Diagnostics are printed as they come.
    loud: bool,
    /// Errors that were not printed yet: as a rule the command ends with the same words.
    unsaid: Vec<String>,
    limits: Limits,
}

impl Session {
    /// A session with these servers. `loud`: diagnostics go to stderr as they come.
    pub(super) fn new(
        servers: Vec<ServerConfig>,
        limits: &Limits,
        prefix: Prefix,
        loud: bool,
    ) -> Result<Self, Failure> {
        let mut events = start(EventLoop::new(limits))?;
        start(events.watch_signals())?;
        super::super::guard::set_up(&mut events);
        let now = events.now();
        let terminal = Terminal::new(
            std::io::stdin().is_terminal(),
            std::io::stderr().is_terminal(),
        );
        // What cannot be put to anyone is not offered.
        let capabilities = match terminal.can_ask() {
            true => r#"{"elicitation":{"form":{}}}"#,
            false => "{}",
        };
        let settings = Settings {
            identity: identity(),
            capabilities: capabilities.to_owned(),
            limits: limits.clone(),
        };
        let times = servers.iter();
        let times = times.map(|config| (config.key.clone(), config.times.connect));
        let times = times.collect();
        let mut manager = Manager::new(settings, Box::new(OsEntropy::new()), WireId(1));
        manager.set_servers(now, servers);
        let runtime = manager.open_runtime(now, prefix).map_err(|limit| {
            Failure::new(Exit::Limit, format!("too many runtimes, limit {limit}"))
        })?;
        Ok(Self {
            events,
            manager,
            terminal,
            gate: Gate::new(Policy::Open, limits),
            runtime,
            diagnostics: Vec::new(),
            servers: times,
            loud,
            unsaid: Vec::new(),
            limits: limits.clone(),
        })
    }

    pub(super) fn now(&self) -> Now {
        self.events.now()
    }

    pub(super) const fn manager(&self) -> &Manager {
        &self.manager
    }

    pub(super) const fn runtime(&self) -> RuntimeId {
        self.runtime
    }

    /// A session with one server, which says what there is to say of its record.
    pub(super) fn with_one(chosen: Chosen, loud: bool) -> Result<Self, Failure> {
        let Chosen {
            server,
            limits,
            remarks,
        } = chosen;
        let mut session = Self::new(vec![server], &limits, Prefix::Never, loud)?;
        remarks.into_iter().for_each(|remark| session.note(remark));
        Ok(session)
    }

    /// Connects to every server, once, and waits until each has said what it has, or why not. One that is too
    /// busy and says when to come back is waited for, within its time to connect.
    pub(super) fn connect(&mut self) -> Result<(), Failure> {
        let since = self.now();
        self.manager.try_connect(since, self.runtime);
        self.terminal.wait_for(since, "connecting");
        loop {
            if self.manager.is_settled(self.runtime) {
                let busy = self.due_again(since);
                if busy.is_empty() {
                    break;
                }
                for key in &busy {
                    self.forget_failure(key);
                    self.manager.keep_trying(self.now(), self.runtime, key);
                }
            }
            self.turn()?;
            while let Some(output) = self.manager.poll_output() {
                self.hear(output);
            }
        }
        self.terminal.done();
        Ok(())
    }

    /// What went wrong with a server is told of the last try only.
    fn forget_failure(&mut self, key: &ServerKey) {
        let is_gone = |one: &ServerDiagnostic| one.level == Level::Error && one.server == *key;
        for one in self.diagnostics.iter().filter(|one| is_gone(one)) {
            self.unsaid.retain(|line| *line != one.message);
        }
        self.diagnostics.retain(|one| !is_gone(one));
    }

    /// The busy servers whose next try begins before their time to connect, which began at `since`, is over.
    fn due_again(&self, since: Now) -> Vec<ServerKey> {
        let servers = self.servers.iter().filter(|(key, limit)| {
            let (state, error) = self.manager.state(self.runtime, key);
            let busy = error.is_some_and(|error| error.kind == FailureKind::Unavailable);
            let end = since.after(*limit);
            busy && matches!(state, ServerState::Resting { until } if until < end)
        });
        servers.map(|(key, _)| key.clone()).collect()
    }

    /// The tools of a server, in its order.
    pub(super) fn tools_of(&self, key: &ServerKey) -> impl Iterator<Item = &Tool> {
        let catalog = self.manager.catalog(self.runtime);
        let tools = catalog.and_then(|catalog| catalog.tools_of(key));
        tools.into_iter().flatten().map(|(_, tool)| &**tool)
    }

    /// Says of each schema that cannot be used that it checks nothing.
    pub(super) fn check_schemas(&mut self) {
        let catalog = self.manager.catalog(self.runtime);
        let found = catalog.into_iter().flat_map(|catalog| catalog.tools());
        let said: Vec<ServerDiagnostic> = found
            .flat_map(|(_, found)| {
                let remarks = found.tool.unchecked(&self.limits);
                remarks.into_iter().map(|remark| remark.of(found.server))
            })
            .collect();
        for diagnostic in said {
            self.note(diagnostic);
        }
    }

    /// Calls a tool by its shown name.
    pub(super) fn call(&mut self, tool: &str, arguments: String) -> Result<SharedText, Failure> {
        let call = ToolCall {
            id: CallId(1),
            tool: tool.into(),
            arguments: arguments.into(),
            caller: "drawspan".into(),
            wants_progress: true,
            ..ToolCall::default()
        };
        let options = Options {
            validate: true,
            wants_progress: true,
            ..Options::default()
        };
        let (now, runtime) = (self.now(), self.runtime);
        match self.gate.admit(now, call) {
            Passage::Open(call) => {
                let ticket = self.manager.call(now, runtime, call, options);
                self.wait(ticket, tool)
            }
            Passage::Ask(..) | Passage::Refused(_) => {
                Err(Failure::new(Exit::Failed, "the call was refused"))
            }
        }
    }

    /// A request of a server, and its answer.
    pub(super) fn request(
        &mut self,
        key: &ServerKey,
        method: &str,
        params: Option<&str>,
    ) -> Result<SharedText, Failure> {
        let options = Options {
            wants_progress: true,
            ..Options::default()
        };
        let (now, runtime) = (self.now(), self.runtime);
        let ticket = self
            .manager
            .request(now, runtime, key, (method, params), options);
        self.wait(ticket, method)
    }

    /// All entries of a list of a server, as one raw array.
    pub(super) fn list(&mut self, key: &ServerKey, list: PagedList) -> Result<SharedText, Failure> {
        let (now, runtime) = (self.now(), self.runtime);
        let ticket = self.manager.list(now, runtime, key, list);
        self.wait(ticket, "the list")
    }

    /// Ends all servers and waits until nothing of them is left, in bounded time and whatever signals come.
    /// What was printed is out by then.
    pub(super) fn end(mut self, outcome: CommandResult) -> CommandResult {
        self.terminal.done();
        let repeated = |line: &&String| matches!(&outcome, Err(failure) if failure.repeats(line));
        for line in self.unsaid.iter().filter(|line| !repeated(line)) {
            say(&format!("error: {line}"));
        }
        let now = self.now();
        self.manager.close(now);
        while !self.manager.is_gone() {
            if self
                .events
                .turn(&mut [&mut self.manager, &mut self.terminal])
                .is_err()
            {
                break;
            }
        }
        outcome
    }

    fn wait(&mut self, ticket: TicketId, what: &str) -> Result<SharedText, Failure> {
        let now = self.now();
        self.terminal.wait_for(now, what);
        loop {
            let mut answer = None;
            // What is said beside the answer comes after it.
            while let Some(output) = self.manager.poll_output() {
                if let ManagerOutput::Answer {
                    ticket: of,
                    outcome,
                } = output
                {
                    if of == ticket {
                        answer = Some(outcome);
                    }
                } else {
                    self.hear(output);
                }
            }
            if let Some(outcome) = answer {
                self.terminal.done();
                return outcome.map_err(|error| Failure::upstream(*error));
            }
            self.turn()?;
        }
    }

    fn turn(&mut self) -> Result<(), Failure> {
        start(
            self.events
                .turn(&mut [&mut self.manager, &mut self.terminal]),
        )?;
        if self.events.take_signal().is_some() {
            return Err(Failure::new(Exit::Failed, "interrupted"));
        }
        while let Some((question, answer)) = self.terminal.poll_answer() {
            let now = self.now();
            self.manager.answer(now, question, Ok(&answer));
        }
        Ok(())
    }

    fn hear(&mut self, output: ManagerOutput) {
        match output {
            ManagerOutput::Diagnostic { diagnostic, .. } => {
                self.note(diagnostic);
            }
            ManagerOutput::Progress { params, .. } => self.terminal.progress(&params),
            ManagerOutput::Question {
                id,
                server,
                method,
                params,
                ..
            } => self
                .terminal
                .ask(id, server.as_str(), &method, params.as_deref()),
            ManagerOutput::QuestionGone(id) => self.terminal.forget(id),
            ManagerOutput::Notification {
                server,
                method,
                params,
                ..
            } => log::info!(
                "server {}: {method} {}",
                server.as_str(),
                params.as_deref().unwrap_or_default()
            ),
            ManagerOutput::Answer { .. }
            | ManagerOutput::CatalogChanged(_)
            | ManagerOutput::ListChanged { .. }
            | ManagerOutput::Subscribed { .. }
            | ManagerOutput::StateChanged { .. } => {}
        }
    }

    /// Keeps a diagnostic, and says it where that is wanted. What comes again and again, as noise does, is one
    /// with a count.
    pub(super) fn note(&mut self, mut diagnostic: ServerDiagnostic) {
        // People and logs see the message alone.
        if !diagnostic.message.starts_with("server ") {
            let server = servers::shown(&diagnostic.server);
            diagnostic.message = format!("server {server}: {}", diagnostic.message);
        }
        let same = |old: &&mut ServerDiagnostic| {
            old.count.is_some()
                && old.code == diagnostic.code
                && old.server == diagnostic.server
                && old.tool == diagnostic.tool
        };
        if let Some(old) = self.diagnostics.iter_mut().find(same) {
            old.count = old
                .count
                .map(|count| count.saturating_add(diagnostic.count.unwrap_or(1)));
            return;
        }
        if self.loud && diagnostic.level == Level::Error {
            self.unsaid.push(diagnostic.message.clone());
        } else if self.loud {
            self.terminal.clear();
            let level = diagnostic.level.as_str();
            say(&format!("{level}: {}", diagnostic.message));
        }
        self.diagnostics.push(diagnostic);
    }

    /// Says what was kept so far, but for what keeps a whole server from being used.
    pub(super) fn say_remarks(&mut self) {
        for one in &self.diagnostics {
            if one.level != Level::Error || one.tool.is_some() {
                say(&format!("{}: {}", one.level.as_str(), one.message));
            }
        }
    }

    /// Why a server that was connected to cannot be used.
    pub(super) fn failure_of(&self, key: &ServerKey) -> Option<UpstreamError> {
        self.manager.state(self.runtime, key).1.cloned()
    }
}
