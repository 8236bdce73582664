//! The manager in virtual time, in a world of made-up servers: programs behind wires that open, read, speak,
//! hang and die as each test wants it. There is no process, no clock and no thread.

mod calls;
mod config;
mod connect;
mod edges;
mod ending;
mod http;
mod left;
mod questions;
mod shared;
mod storm;
mod wishes;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::catalog::PagedList;
use super::diagnostic::ServerDiagnostic;
use super::entry::read_servers;
use super::error::UpstreamError;
use super::*;
use crate::entropy::Seeded;
use crate::gate::{Gate, Passage, Policy, ToolCall};
use crate::ids::CallId;
use crate::link::{Driven, ExitReport, FaultKind, IoEvent, IoFault, OpenSpec, Signal};
use crate::protocol::client::peer::ListKind;

/// What a server got.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    pub(super) method: String,
    pub(super) id: Value,
    pub(super) params: Value,
    /// The whole message.
    pub(super) message: Value,
    /// Which start of the program this is, from 1.
    pub(super) start: usize,
}

/// What a server does about it.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Say(String),
    Stderr(String),
    /// The rest happens so many milliseconds later.
    Wait(u64),
    Exit(i32),
    /// Ends its output, and goes on.
    Eof,
}

type Script = Box<dyn FnMut(&Heard) -> Vec<Act>>;

/// How a program behaves beside its answers.
pub(super) struct Manners {
    /// Milliseconds until its wire is open; `None`: neither open nor failed, ever.
    pub(super) opens_after: Option<u64>,
    /// It cannot be started.
    pub(super) missing: bool,
    pub(super) reads: bool,
    pub(super) ends_with_input: bool,
    pub(super) heeds_term: bool,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            opens_after: Some(0),
            missing: false,
            reads: true,
            ends_with_input: true,
            heeds_term: true,
        }
    }
}

struct Program {
    script: Script,
    manners: Manners,
    starts: usize,
}

/// A wire that is open, or about to be.
struct Wire {
    program: String,
    start: usize,
    input: Vec<u8>,
    alive: bool,
    eof: bool,
}

enum Event {
    Opened,
    Failed,
    Bytes(Vec<u8>),
    Stderr(Vec<u8>),
    Drained,
    Eof,
    /// It is about to end.
    Dies(ExitReport),
    Exited(ExitReport),
}

/// What has been done to a program, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Done {
    Started,
    InputClosed,
    Term,
    Kill,
    LetGo,
}

pub(super) struct World {
    pub(super) manager: Manager,
    pub(super) ms: u64,
    gate: Gate,
    calls: CallId,
    programs: BTreeMap<String, Program>,
    wires: BTreeMap<WireId, Wire>,
    /// What happens when; the second number keeps the order.
    agenda: BTreeMap<(u64, u64), (WireId, Event)>,
    turns: u64,
    /// Everything that servers got, with the program's name.
    pub(super) heard: Vec<(String, Heard)>,
    pub(super) done: Vec<(u64, String, Done)>,
    pub(super) told: Vec<ManagerOutput>,
    answers: BTreeMap<TicketId, Result<String, UpstreamError>>,
    /// HTTP: answers by path; `None` leaves the request open.
    http: Option<http::Site>,
    ids: BTreeSet<u64>,
}

pub(super) fn key(name: &str) -> ServerKey {
    ServerKey(name.into())
}

/// The records of a configuration.
pub(super) fn records(map: &[(&str, &str)], limits: &Limits) -> Vec<ServerConfig> {
    let map: Vec<(String, String)> = map
        .iter()
        .map(|(key, entry)| ((*key).to_owned(), (*entry).to_owned()))
        .collect();
    let read = read_servers(&map, &BTreeMap::new(), limits);
    read.into_iter()
        .map(|one| one.outcome.expect("a usable record"))
        .collect()
}

/// A message of a server.
pub(super) fn say(message: Value) -> Act {
    Act::Say(format!("{message}\n"))
}

pub(super) fn result(heard: &Heard, result: Value) -> Act {
    say(json!({"jsonrpc": "2.0", "id": heard.id, "result": result}))
}

pub(super) fn error(heard: &Heard, code: i64, message: &str) -> Act {
    say(json!({"jsonrpc": "2.0", "id": heard.id, "error": {"code": code, "message": message}}))
}

/// What a server with a handshake and these tools answers.
pub(super) fn legacy(heard: &Heard, tools: &[&str]) -> Vec<Act> {
    match heard.method.as_str() {
        "initialize" => vec![result(
            heard,
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "prompts": {}},
                   "serverInfo": {"name": "s", "version": "1"}}),
        )],
        "tools/list" => {
            let tools: Vec<Value> = tools
                .iter()
                .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
                .collect();
            vec![result(heard, json!({"tools": tools}))]
        }
        "tools/call" => vec![result(
            heard,
            json!({"content": [{"type": "text", "text": heard.params["name"]}]}),
        )],
        "prompts/list" => vec![result(heard, json!({"prompts": [{"name": "p"}]}))],
        _ if heard.id.is_null() => Vec::new(),
        _ => vec![error(heard, -32601, "method not found")],
    }
}

impl World {
    /// With a server `NAME` for each of these, played by the program `NAME`.
    pub(super) fn new(servers: &[&str]) -> Self {
        Self::with(servers, Limits::default())
    }

    pub(super) fn with(servers: &[&str], limits: Limits) -> Self {
        let settings = Settings {
            identity: r#"{"name":"test","version":"1"}"#.to_owned(),
            capabilities: r#"{"sampling":{}}"#.to_owned(),
            limits: limits.clone(),
        };
        let manager = Manager::new(settings, Box::new(Seeded::new(7)), WireId(1));
        let mut world = Self {
            manager,
            ms: 1_000,
            gate: Gate::new(Policy::Open, &limits),
            calls: CallId(1),
            programs: BTreeMap::new(),
            wires: BTreeMap::new(),
            agenda: BTreeMap::new(),
            turns: 0,
            heard: Vec::new(),
            done: Vec::new(),
            told: Vec::new(),
            answers: BTreeMap::new(),
            http: None,
            ids: BTreeSet::new(),
        };
        let entries: Vec<(&str, String)> = servers
            .iter()
            .map(|name| (*name, format!(r#"{{"command":"{name}"}}"#)))
            .collect();
        let map: Vec<(&str, &str)> = entries
            .iter()
            .map(|(name, entry)| (*name, entry.as_str()))
            .collect();
        for name in servers {
            world.server(name, |heard| legacy(heard, &["t"]));
        }
        world.configure(&map);
        world
    }

    pub(super) fn configure(&mut self, map: &[(&str, &str)]) {
        let servers = records(map, &self.manager.limits.clone());
        self.manager.set_servers(self.now(), servers);
        self.drain();
    }

    /// How a program answers from now on, also where it runs already.
    pub(super) fn server(&mut self, name: &str, script: impl FnMut(&Heard) -> Vec<Act> + 'static) {
        let script: Script = Box::new(script);
        match self.programs.get_mut(name) {
            Some(program) => program.script = script,
            None => {
                let program = Program {
                    script,
                    manners: Manners::default(),
                    starts: 0,
                };
                self.programs.insert(name.to_owned(), program);
            }
        }
    }

    pub(super) fn manners(&mut self, name: &str) -> &mut Manners {
        &mut self.programs.get_mut(name).expect("a program").manners
    }

    pub(super) fn starts(&self, name: &str) -> usize {
        self.programs[name].starts
    }

    pub(super) fn now(&self) -> Now {
        Now {
            up: Uptime::from_millis(self.ms),
            unix_ms: 0,
        }
    }

    pub(super) fn open(&mut self) -> RuntimeId {
        self.open_with(Prefix::Always)
    }

    pub(super) fn open_with(&mut self, prefix: Prefix) -> RuntimeId {
        let now = self.now();
        let id = self.manager.open_runtime(now, prefix).expect("room");
        self.drain();
        id
    }

    /// A runtime that is connected to everything.
    pub(super) fn connected(&mut self) -> RuntimeId {
        let id = self.open();
        self.connect(id);
        id
    }

    pub(super) fn connect(&mut self, id: RuntimeId) {
        self.manager.connect(self.now(), id);
        self.run(0);
    }

    pub(super) fn call(&mut self, id: RuntimeId, tool: &str) -> TicketId {
        self.call_with(id, tool, "{}", Options::default())
    }

    pub(super) fn call_with(
        &mut self,
        id: RuntimeId,
        tool: &str,
        arguments: &str,
        options: Options,
    ) -> TicketId {
        self.calls = self.calls.next();
        let call = ToolCall {
            id: self.calls,
            tool: tool.into(),
            arguments: arguments.into(),
            caller: "test".into(),
            wants_progress: false,
            ..ToolCall::default()
        };
        let Passage::Open(call) = self.gate.admit(self.now(), call) else {
            panic!("the gate is open");
        };
        let ticket = self.manager.call(self.now(), id, call, options);
        self.drain();
        ticket
    }

    pub(super) fn request(&mut self, id: RuntimeId, server: &str, method: &str) -> TicketId {
        let now = self.now();
        let options = Options::default();
        let ticket = self
            .manager
            .request(now, id, &key(server), (method, None), options);
        self.drain();
        ticket
    }

    pub(super) fn cancel(&mut self, ticket: TicketId) {
        self.manager.cancel(self.now(), ticket, "enough");
        self.drain();
    }

    pub(super) fn close_runtime(&mut self, id: RuntimeId) {
        self.manager.close_runtime(self.now(), id);
        self.drain();
    }

    pub(super) fn close(&mut self) {
        self.manager.close(self.now());
        self.drain();
    }

    /// Time passes.
    pub(super) fn run(&mut self, ms: u64) {
        let end = self.ms + ms;
        let mut turns = 0;
        self.drain();
        loop {
            let due = self.manager.next_deadline().map(|due| {
                // Virtual time has whole milliseconds.
                let at = due.at.as_millis();
                at.saturating_add(u64::from(Uptime::from_millis(at) < due.at))
            });
            let event = self.agenda.keys().next().map(|(at, _)| *at);
            let next = match (due, event) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (one, other) => one.or(other),
            };
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.ms = self.ms.max(next);
            while let Some(entry) = self.agenda.first_entry() {
                if entry.key().0 > self.ms {
                    break;
                }
                let (wire, event) = entry.remove();
                self.deliver(wire, event);
            }
            self.manager.handle_timeout(self.now());
            self.drain();
            turns += 1;
            assert!(turns < 1_000_000, "it spins at {} ms", self.ms);
        }
        self.ms = end;
    }

    fn deliver(&mut self, wire: WireId, event: Event) {
        let now = self.now();
        if !self.wires.contains_key(&wire) {
            return;
        }
        let manager = &mut self.manager;
        match event {
            Event::Opened => manager.handle_io(now, wire, IoEvent::Opened),
            Event::Failed => {
                self.wires.remove(&wire);
                let fault = IoFault {
                    kind: FaultKind::Unreachable,
                    message: "no such program".to_owned(),
                };
                manager.handle_io(now, wire, IoEvent::Failed(fault));
            }
            Event::Bytes(bytes) => manager.handle_io(now, wire, IoEvent::Bytes(&bytes)),
            Event::Stderr(bytes) => manager.handle_io(now, wire, IoEvent::StderrBytes(&bytes)),
            Event::Drained => manager.handle_io(now, wire, IoEvent::Drained),
            Event::Eof => {
                if let Some(one) = self.wires.get_mut(&wire) {
                    if std::mem::replace(&mut one.eof, true) {
                        return;
                    }
                }
                manager.handle_io(now, wire, IoEvent::Eof);
            }
            Event::Dies(report) => self.exit(wire, report),
            Event::Exited(report) => manager.handle_io(now, wire, IoEvent::Exited(report)),
        }
        self.take();
    }

    /// After this no deadline is due: what the loop relies on.
    pub(super) fn drain(&mut self) {
        self.take();
        let due = self.manager.next_deadline();
        assert!(
            due.is_none_or(|due| due.at > self.now().up),
            "{due:?} is due at {} ms",
            self.ms
        );
    }

    fn take(&mut self) {
        while let Some(request) = self.manager.poll_io() {
            self.obey(request);
        }
        while let Some(output) = self.manager.poll_output() {
            if let ManagerOutput::Answer { ticket, outcome } = output {
                let outcome = outcome
                    .map(|result| result.to_string())
                    .map_err(|error| *error);
                let twice = self.answers.insert(ticket, outcome);
                assert!(twice.is_none(), "ticket {ticket} was answered twice");
            } else {
                self.told.push(output);
            }
        }
    }

    fn plan(&mut self, after: u64, wire: WireId, event: Event) {
        self.turns += 1;
        self.agenda
            .insert((self.ms + after, self.turns), (wire, event));
    }

    fn note(&mut self, wire: WireId, done: Done) {
        let program = self.wires[&wire].program.clone();
        self.done.push((self.ms, program, done));
    }

    fn obey(&mut self, request: IoRequest) {
        match request {
            IoRequest::Open(wire, OpenSpec::Child(spec)) => {
                let program = self
                    .programs
                    .get_mut(&spec.program)
                    .unwrap_or_else(|| panic!("nobody plays {}", spec.program));
                program.starts += 1;
                let start = program.starts;
                let (missing, after) = (program.manners.missing, program.manners.opens_after);
                let one = Wire {
                    program: spec.program,
                    start,
                    input: Vec::new(),
                    alive: true,
                    eof: false,
                };
                assert!(self.wires.insert(wire, one).is_none(), "wire {wire} is new");
                self.note(wire, Done::Started);
                match after {
                    Some(after) if missing => self.plan(after, wire, Event::Failed),
                    Some(after) => self.plan(after, wire, Event::Opened),
                    None => {}
                }
            }
            IoRequest::Open(wire, OpenSpec::Tcp { .. }) => {
                let one = Wire {
                    program: String::new(),
                    start: 1,
                    input: Vec::new(),
                    alive: true,
                    eof: false,
                };
                assert!(self.wires.insert(wire, one).is_none(), "wire {wire} is new");
                self.plan(0, wire, Event::Opened);
            }
            IoRequest::Open(_, other) => panic!("{other:?} is not of this world"),
            IoRequest::Flush(wire) => self.flush(wire),
            IoRequest::CloseWrite(wire) => {
                self.note(wire, Done::InputClosed);
                let program = self.wires[&wire].program.clone();
                let ends = self
                    .programs
                    .get(&program)
                    .is_none_or(|program| program.manners.ends_with_input);
                if ends {
                    self.exit(wire, ExitReport::Code(0));
                }
            }
            IoRequest::Signal(wire, signal) => {
                let program = self.wires[&wire].program.clone();
                match signal {
                    Signal::Term => {
                        self.note(wire, Done::Term);
                        if self.programs[&program].manners.heeds_term {
                            self.exit(wire, ExitReport::Signal(15));
                        }
                    }
                    Signal::Kill => {
                        self.note(wire, Done::Kill);
                        self.exit(wire, ExitReport::Signal(9));
                    }
                }
            }
            IoRequest::Close(wire) | IoRequest::Finish(wire) => {
                self.note(wire, Done::LetGo);
                self.wires.remove(&wire).expect("a wire is let go once");
            }
            IoRequest::PauseReads(..) | IoRequest::Append(_) => {}
        }
    }

    /// A program ends, with what it has said before.
    fn exit(&mut self, wire: WireId, report: ExitReport) {
        let Some(one) = self.wires.get_mut(&wire) else {
            return;
        };
        if std::mem::replace(&mut one.alive, false) {
            self.plan(0, wire, Event::Exited(report));
            self.plan(0, wire, Event::Eof);
        }
    }

    /// Kills every process of a program.
    pub(super) fn kill(&mut self, name: &str) {
        let of: Vec<WireId> = self
            .wires
            .iter()
            .filter(|(_, wire)| wire.program == name && wire.alive)
            .map(|(wire, _)| *wire)
            .collect();
        for wire in of {
            self.exit(wire, ExitReport::Signal(9));
        }
        self.run(0);
    }

    /// A program says something unasked.
    pub(super) fn speak(&mut self, name: &str, message: Value) {
        self.speak_raw(name, &format!("{message}\n"));
    }

    pub(super) fn speak_raw(&mut self, name: &str, text: &str) {
        let of: Vec<WireId> = self
            .wires
            .iter()
            .filter(|(_, wire)| wire.program == name && wire.alive)
            .map(|(wire, _)| *wire)
            .collect();
        for wire in of {
            self.plan(0, wire, Event::Bytes(text.as_bytes().to_vec()));
        }
        self.run(0);
    }

    fn flush(&mut self, wire: WireId) {
        let Some(one) = self.wires.get_mut(&wire) else {
            panic!("flush of wire {wire}, which is not open");
        };
        let program = self.programs.get(&one.program);
        if program.is_some_and(|program| !program.manners.reads) {
            return;
        }
        let out = self.manager.outgoing(wire).expect("a wire it knows");
        one.input.extend_from_slice(out.pending());
        let all = out.len();
        out.advance(all);
        if one.program.is_empty() {
            return self.serve(wire);
        }
        if !one.alive {
            return;
        }
        self.plan(0, wire, Event::Drained);
        self.read(wire);
    }

    fn read(&mut self, wire: WireId) {
        while let Some(one) = self.wires.get_mut(&wire).filter(|one| one.alive) {
            let Some(end) = one.input.iter().position(|byte| *byte == b'\n') else {
                return;
            };
            let line: Vec<u8> = one.input.drain(..=end).collect();
            let message: Value = serde_json::from_slice(&line).expect("we write JSON");
            let heard = Heard {
                method: message["method"].as_str().unwrap_or_default().to_owned(),
                id: message["id"].clone(),
                params: message["params"].clone(),
                message: message.clone(),
                start: one.start,
            };
            let name = one.program.clone();
            if let (Some(id), true) = (heard.id.as_u64(), message.get("method").is_some()) {
                assert!(self.ids.insert(id), "request id {id} is used twice");
            }
            self.heard.push((name.clone(), heard.clone()));
            let program = self.programs.get_mut(&name).expect("a program");
            let acts = (program.script)(&heard);
            self.play(wire, acts);
        }
    }

    fn play(&mut self, wire: WireId, acts: Vec<Act>) {
        let mut after = 0;
        for act in acts {
            match act {
                Act::Wait(ms) => after += ms,
                Act::Say(text) => self.plan(after, wire, Event::Bytes(text.into_bytes())),
                Act::Stderr(text) => self.plan(after, wire, Event::Stderr(text.into_bytes())),
                Act::Eof => self.plan(after, wire, Event::Eof),
                Act::Exit(code) => self.plan(after, wire, Event::Dies(ExitReport::Code(code))),
            }
        }
    }

    /// What came of a ticket.
    pub(super) fn answer(&self, ticket: TicketId) -> Option<&Result<String, UpstreamError>> {
        self.answers.get(&ticket)
    }

    pub(super) fn ok(&self, ticket: TicketId) -> &str {
        match self.answer(ticket) {
            Some(Ok(result)) => result,
            other => panic!("{ticket}: {other:?}"),
        }
    }

    pub(super) fn failure(&self, ticket: TicketId) -> &UpstreamError {
        match self.answer(ticket) {
            Some(Err(error)) => error,
            other => panic!("{ticket}: {other:?}"),
        }
    }

    pub(super) fn state(&self, id: RuntimeId, name: &str) -> ServerState {
        self.manager.state(id, &key(name)).0
    }

    /// How often a server got this.
    pub(super) fn count(&self, name: &str, method: &str) -> usize {
        self.methods(name).filter(|of| *of == method).count()
    }

    pub(super) fn methods(&self, name: &str) -> impl Iterator<Item = &str> {
        self.heard
            .iter()
            .filter(move |(program, _)| program == name)
            .map(|(_, heard)| heard.method.as_str())
    }

    pub(super) fn tools(&self, id: RuntimeId) -> Vec<String> {
        let catalog = self.manager.catalog(id).expect("a runtime");
        catalog.tools().map(|(name, _)| name.to_owned()).collect()
    }

    pub(super) fn diagnostics(&self, id: RuntimeId) -> Vec<&ServerDiagnostic> {
        self.told
            .iter()
            .filter_map(|output| {
                let ManagerOutput::Diagnostic {
                    runtime,
                    diagnostic,
                } = output
                else {
                    return None;
                };
                (*runtime == id).then_some(diagnostic)
            })
            .collect()
    }

    /// Processes that have been started and not let go.
    pub(super) fn running(&self) -> usize {
        self.wires.len()
    }
}
