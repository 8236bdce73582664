//! The client runtime: many upstream MCP servers, each behind one record of configuration, isolated by
//! session, connected on demand and side by side, kept while they are used and brought back when they die.
//!
//! A [`Manager`] holds *runtimes*, one per session. Each has connections of its own to every server whose
//! record does not say `shared`, and sees one list of tools under names that are safe and stay. Everything
//! asked of it gets a [`TicketId`] and exactly one [`ManagerOutput::Answer`]. It is a
//! [`Driven`](crate::link::Driven): an [`EventLoop`](crate::io::EventLoop) drives it, or a program's own loop.
//!
//! | happening                | what the manager does                                               |
//! |--------------------------|---------------------------------------------------------------------|
//! | first use of a server    | connects; the caller waits, bounded by the connect limit            |
//! | a server fails to start  | one diagnostic, back-off, tried again; the others are not delayed   |
//! | a server dies            | what was open gets one error; the next use starts it again          |
//! | a runtime lies idle      | its connections end; the next use opens them again                  |
//! | a record changes         | that server's connection ends when its calls have; others stay      |
//! | the manager is closed    | every call gets an answer, every process ends; bounded              |
//!
//! # With the loop of this library
//!
//! ```no_run
//! use drawspan::ids::WireId;
//! use drawspan::io::{EventLoop, system::OsEntropy};
//! use drawspan::limits::Limits;
//! use drawspan::manager::catalog::PagedList;
//! use drawspan::manager::entry::read_servers;
//! use drawspan::manager::{Manager, ManagerOutput, Prefix, Settings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let limits = Limits::default();
//! let mut events = EventLoop::new(&limits)?;
//! let settings = Settings {
//!     identity: r#"{"name":"my-program","version":"1.0"}"#.to_owned(),
//!     capabilities: "{}".to_owned(),
//!     limits: limits.clone(),
//! };
//! let mut manager = Manager::new(settings, Box::new(OsEntropy::new()), WireId(1));
//!
//! let entry = r#"{"command":"npx","args":["-y","@modelcontextprotocol/server-everything"]}"#;
//! let env = std::env::vars().collect();
//! let read = read_servers(&[("all".to_owned(), entry.to_owned())], &env, &limits);
//! let servers: Vec<_> = read.into_iter().filter_map(|one| one.outcome.ok()).collect();
//! let key = servers[0].key.clone();
//! let now = events.now();
//! manager.set_servers(now, servers);
//!
//! let runtime = manager.open_runtime(now, Prefix::Auto).map_err(|limit| format!("limit {limit}"))?;
//! let ticket = manager.list(now, runtime, &key, PagedList::Tools);
//! 'waiting: loop {
//!     events.turn(&mut [&mut manager])?;
//!     while let Some(output) = manager.poll_output() {
//!         if let ManagerOutput::Answer { ticket: of, outcome } = output {
//!             if of == ticket {
//!                 println!("{outcome:?}");
//!                 break 'waiting;
//!             }
//!         }
//!     }
//! }
//! // In good order: no process is left.
//! manager.close(events.now());
//! while !manager.is_gone() {
//!     events.turn(&mut [&mut manager])?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A tool is called by [`Manager::call`], with what a [`Gate`](crate::gate::Gate) has let pass;
//! `examples/everything_client.rs` does that too, and answers questions.
//!
//! # With a loop of one's own
//!
//! Nothing here starts a process or reads a clock: it says what it wants, and is told what happened. Here
//! the world is a function that answers lines; in a program it is whatever runs its descriptors.
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use drawspan::clock::Now;
//! use drawspan::entropy::Seeded;
//! use drawspan::ids::WireId;
//! use drawspan::limits::Limits;
//! use drawspan::link::{Driven, IoEvent, IoRequest, OpenSpec};
//! use drawspan::manager::catalog::PagedList;
//! use drawspan::manager::entry::read_servers;
//! use drawspan::manager::{Manager, ManagerOutput, Prefix, Settings};
//!
//! /// The far side: a server with one prompt.
//! fn server(line: &str) -> Option<String> {
//!     let id = line.split(r#""id":"#).nth(1)?.split([',', '}']).next()?;
//!     let result = if line.contains(r#""method":"initialize""#) {
//!         r#"{"protocolVersion":"2025-11-25","capabilities":{"prompts":{}},"serverInfo":{"name":"s","version":"1"}}"#
//!     } else if line.contains(r#""method":"prompts/list""#) {
//!         r#"{"prompts":[{"name":"greet"}]}"#
//!     } else {
//!         let error = r#"{"code":-32601,"message":"method not found"}"#;
//!         return Some(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{error}}}\n"));
//!     };
//!     Some(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n"))
//! }
//!
//! let limits = Limits::default();
//! let settings = Settings {
//!     identity: r#"{"name":"my-program","version":"1.0"}"#.to_owned(),
//!     capabilities: "{}".to_owned(),
//!     limits: limits.clone(),
//! };
//! let mut manager = Manager::new(settings, Box::new(Seeded::new(1)), WireId(1));
//! let map = [("notes".to_owned(), r#"{"command":"notes-server"}"#.to_owned())];
//! let read = read_servers(&map, &BTreeMap::new(), &limits);
//! let servers: Vec<_> = read.into_iter().filter_map(|one| one.outcome.ok()).collect();
//! let key = servers[0].key.clone();
//!
//! let now = Now::default(); // a reading of both clocks, taken anew in each turn
//! manager.set_servers(now, servers);
//! let runtime = manager.open_runtime(now, Prefix::Auto).expect("the first of many");
//! let ticket = manager.list(now, runtime, &key, PagedList::Prompts);
//!
//! let mut answer = None;
//! while answer.is_none() {
//!     // One turn: do what is wanted, tell what happened, hear what came of it. A real loop then waits for
//!     // its descriptors, until `next_deadline` at the latest, and calls `handle_timeout`.
//!     let Some(request) = manager.poll_io() else {
//!         break;
//!     };
//!     match request {
//!         IoRequest::Open(wire, OpenSpec::Child(spec)) => {
//!             assert_eq!(spec.program, "notes-server"); // to be started
//!             manager.handle_io(now, wire, IoEvent::Opened);
//!         }
//!         IoRequest::Flush(wire) => {
//!             let out = manager.outgoing(wire).expect("a wire it has asked for");
//!             let written = String::from_utf8_lossy(out.pending()).into_owned();
//!             out.advance(written.len());
//!             for line in written.lines().filter_map(server) {
//!                 manager.handle_io(now, wire, IoEvent::Bytes(line.as_bytes()));
//!             }
//!         }
//!         other => panic!("not in this conversation: {other:?}"),
//!     }
//!     while let Some(output) = manager.poll_output() {
//!         if let ManagerOutput::Answer { ticket: of, outcome } = output {
//!             assert_eq!(of, ticket);
//!             answer = Some(outcome);
//!         }
//!     }
//! }
//! assert_eq!(answer, Some(Ok(r#"[{"name":"greet"}]"#.into())));
//! ```
//!
//! # Where it is
//!
//! | file | has |
//! |---|---|
//! | `turn`, `routing` | one input of the manager; whom it tells of what an upstream says |
//! | `calls`, `tickets`, `questions` | what is asked of servers, and what they ask |
//! | `connections`, `idle` | which runtime is connected to what, and for how long |
//! | `showing`, `naming`, [`catalog`], [`filter`], [`lock`] | which tools a runtime is shown, and under which names |
//! | `wishes`, `output` | subscriptions and log levels; what the owner is told |
//! | `upstream`, `job`, [`health`] | one connection to one server |
//! | [`entry`], [`server_config`] and what they name | the record of one server |
//!
//! Source: openclaw-client (all of it, with the changes of its §9). Never: reads a file, a clock or the
//! environment.

mod calls;
pub mod catalog;
mod connections;
pub mod diagnostic;
pub mod entry;
pub mod environment;
pub mod error;
mod explain;
pub mod filter;
pub mod fingerprint;
pub mod health;
mod idle;
mod job;
pub mod lock;
pub mod naming;
mod output;
pub mod placeholder;
pub mod proxy;
mod questions;
mod routing;
mod runtime;
pub mod server_config;
mod showing;
mod tickets;
mod turn;
mod upstream;
mod wishes;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::connections::Slot;
pub use self::job::Options;
use self::lock::LockRule;
pub use self::output::ManagerOutput;
use self::questions::Asked;
pub use self::runtime::Prefix;
use self::runtime::{Reserved, Runtime, UpstreamId};
use self::server_config::{ServerConfig, ServerKey};
use self::tickets::Ticket;
pub use self::upstream::ServerState;
use self::upstream::{Face, Upstream};
use crate::clock::{Now, Uptime};
use crate::entropy::Entropy;
use crate::ids::{IdMap, QuestionId, RuntimeId, TicketId, UpstreamRequestId, WireId, WireMint};
use crate::limits::Limits;
use crate::link::IoRequest;

/// How a manager presents itself.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The `Implementation` object servers are told, raw JSON.
    pub identity: String,
    /// The `ClientCapabilities` object servers are told, raw JSON. A server is asked for nothing and asks
    /// nothing that is not in it.
    pub capabilities: String,
    /// Bounds and waiting times.
    pub limits: Limits,
}

/// See the module page.
pub struct Manager {
    limits: Limits,
    face: Face,
    entropy: Box<dyn Entropy>,
    servers: BTreeMap<ServerKey, ServerConfig>,
    runtimes: BTreeMap<RuntimeId, Runtime>,
    /// Boxed: a node of the map has room for eleven, and a slot is 6 KiB.
    slots: BTreeMap<UpstreamId, Box<Slot>>,
    shared: BTreeMap<ServerKey, UpstreamId>,
    reserved: Reserved,
    tickets: IdMap<TicketId, Ticket>,
    questions: BTreeMap<QuestionId, Asked>,
    wires: WireMint,
    wires_of: IdMap<WireId, UpstreamId>,
    timers: BTreeSet<(Uptime, UpstreamId)>,
    idle: BTreeSet<(Uptime, RuntimeId)>,
    next_runtime: RuntimeId,
    next_upstream: UpstreamId,
    next_ticket: TicketId,
    next_question: QuestionId,
    next_request: UpstreamRequestId,
    closed: bool,
    lock: Option<LockRule>,
    /// What was said of each server's last listing, so that it is said once.
    drift_said: BTreeMap<ServerKey, BTreeSet<String>>,
    outputs: VecDeque<ManagerOutput>,
    io: VecDeque<IoRequest>,
}

/// Servers and sessions: what there is, from the beginning to the end.
impl Manager {
    /// A manager that knows no server yet. `first_wire` is the first wire it may name: a program whose
    /// machine holds more than a manager keeps the rest for itself.
    #[must_use]
    pub fn new(settings: Settings, entropy: Box<dyn Entropy>, first_wire: WireId) -> Self {
        Self {
            limits: settings.limits,
            face: Face {
                identity: settings.identity,
                capabilities: settings.capabilities,
            },
            entropy,
            servers: BTreeMap::new(),
            runtimes: BTreeMap::new(),
            slots: BTreeMap::new(),
            shared: BTreeMap::new(),
            reserved: Reserved::default(),
            tickets: IdMap::new(),
            questions: BTreeMap::new(),
            wires: WireMint::starting_at(first_wire),
            wires_of: IdMap::new(),
            timers: BTreeSet::new(),
            idle: BTreeSet::new(),
            next_runtime: RuntimeId(1),
            next_upstream: UpstreamId(1),
            next_ticket: TicketId(1),
            next_question: QuestionId(1),
            next_request: UpstreamRequestId(1),
            closed: false,
            lock: None,
            drift_said: BTreeMap::new(),
            outputs: VecDeque::new(),
            io: VecDeque::new(),
        }
    }

    /// The servers there are, from now on. A server whose fingerprint is the same keeps its connections;
    /// one that is another or gone takes no new calls and ends when its last call has. Where one that is
    /// another was connected to, it is again; a runtime that is connected to all is connected to new ones too.
    pub fn set_servers(&mut self, now: Now, servers: Vec<ServerConfig>) {
        let new: BTreeMap<_, _> = servers
            .into_iter()
            .map(|server| (server.key.clone(), server))
            .collect();
        let old = std::mem::replace(&mut self.servers, new);
        let same = |key: &ServerKey| match (old.get(key), self.servers.get(key)) {
            (Some(old), Some(new)) => old.fingerprint == new.fingerprint,
            (None, _) | (_, None) => false,
        };
        let changed: Vec<UpstreamId> = self
            .slots
            .iter()
            .filter(|(_, slot)| !same(&slot.key))
            .map(|(id, _)| *id)
            .collect();
        for runtime in self.runtimes.values_mut() {
            runtime.name_servers(self.servers.keys());
        }
        let mut again = Vec::new();
        for id in changed {
            again.extend(self.detach(id));
            self.with(now, id, Upstream::retire);
        }
        for (runtime, key) in again {
            self.connect_to(now, runtime, &key, true);
        }
        let runtimes: Vec<RuntimeId> = self.runtimes.keys().copied().collect();
        for id in &runtimes {
            if self
                .runtimes
                .get(id)
                .is_some_and(|runtime| runtime.wants_all)
            {
                self.connect_to_all(now, *id, true);
            }
        }
        self.reconsider(now, &runtimes);
    }

    /// The servers there are, in the order of their keys.
    pub fn servers(&self) -> impl Iterator<Item = &ServerConfig> {
        self.servers.values()
    }

    /// A new session. Nothing is connected until something is asked of it.
    ///
    /// # Errors
    /// The limit, when there are `runtimes_max` already.
    pub fn open_runtime(&mut self, now: Now, prefix: Prefix) -> Result<RuntimeId, usize> {
        self.open(now, prefix, None)
    }

    /// A new session of a client that has declared `capabilities`, a raw object: its own servers are told
    /// those. Shared servers are told what [`Settings`] says, and what a question of theirs needs is for
    /// whoever answers it to know.
    ///
    /// # Errors
    /// As [`Manager::open_runtime`].
    pub fn open_runtime_as(
        &mut self,
        now: Now,
        prefix: Prefix,
        capabilities: String,
    ) -> Result<RuntimeId, usize> {
        self.open(now, prefix, Some(capabilities))
    }

    fn open(
        &mut self,
        now: Now,
        prefix: Prefix,
        capabilities: Option<String>,
    ) -> Result<RuntimeId, usize> {
        if self.runtimes.len() >= self.limits.runtimes_max || self.closed {
            return Err(self.limits.runtimes_max);
        }
        let id = self.next_runtime;
        self.next_runtime = id.next();
        let mut runtime = Runtime::new(prefix, &self.reserved, self.limits.tools_max, now.up);
        runtime.capabilities = capabilities;
        runtime.name_servers(self.servers.keys());
        self.runtimes.insert(id, runtime);
        self.touch(now, id);
        Ok(id)
    }

    /// Ends a session: its open tickets are answered, its connections end.
    pub fn close_runtime(&mut self, now: Now, id: RuntimeId) {
        let Some(runtime) = self.runtimes.get_mut(&id) else {
            return;
        };
        runtime.undecided.clear();
        let upstreams: Vec<UpstreamId> = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.owners.contains(&id))
            .map(|(upstream, _)| *upstream)
            .collect();
        let open: Vec<TicketId> = runtime.open.iter().copied().collect();
        for ticket in &open {
            self.answer_ticket(*ticket, Err(explain::no_runtime()));
        }
        self.withdraw_questions(now, id);
        let mut left = Vec::new();
        for upstream in upstreams {
            let Some(slot) = self.slots.get_mut(&upstream) else {
                continue;
            };
            slot.owners.remove(&id);
            if !slot.owners.is_empty() {
                left.push(upstream);
            }
            if slot.owners.is_empty() {
                let key = slot.key.clone();
                if self.shared.get(&key) == Some(&upstream) {
                    self.shared.remove(&key);
                }
                self.with(now, upstream, Upstream::close);
            } else {
                for ticket in &open {
                    self.with(now, upstream, |one, turn| {
                        one.cancel(turn, *ticket, "session ended")
                    });
                }
            }
        }
        if let Some(runtime) = self.runtimes.remove(&id) {
            if let Some(at) = runtime.look_at {
                self.idle.remove(&(at, id));
            }
        }
        for upstream in left {
            self.renew_wishes(now, upstream);
        }
    }

    /// Ends everything: every ticket is answered, every process ends, in bounded time. The loop is turned
    /// until [`Manager::is_gone`].
    pub fn close(&mut self, now: Now) {
        self.closed = true;
        let runtimes: Vec<RuntimeId> = self.runtimes.keys().copied().collect();
        for id in runtimes {
            self.close_runtime(now, id);
        }
        let upstreams: Vec<UpstreamId> = self.slots.keys().copied().collect();
        for id in upstreams {
            self.with(now, id, Upstream::close);
        }
    }

    /// It was closed, and nothing it had started is left.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.closed && self.slots.is_empty()
    }

    /// Nothing waits to be told or to be done.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.outputs.is_empty() && self.io.is_empty()
    }

    /// The next thing to tell its owner.
    pub fn poll_output(&mut self) -> Option<ManagerOutput> {
        self.outputs.pop_front()
    }
}

#[cfg(test)]
mod tests;
