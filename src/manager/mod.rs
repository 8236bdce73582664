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
//! | `wishes` | subscriptions and log levels |
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

use self::catalog::{Catalog, ListWalk, PagedList};
use self::connections::Slot;
use self::diagnostic::ServerDiagnostic;
use self::error::UpstreamError;
pub use self::job::Options;
use self::job::{Job, Work};
use self::lock::LockRule;
use self::questions::Asked;
pub use self::runtime::Prefix;
use self::runtime::{Reserved, Runtime, Undecided, UpstreamId};
use self::server_config::{ServerConfig, ServerKey};
use self::tickets::Ticket;
pub use self::upstream::ServerState;
use self::upstream::{Face, Upstream};
use crate::clock::{Now, Uptime};
use crate::entropy::Entropy;
use crate::gate::GatedCall;
use crate::ids::{QuestionId, RuntimeId, TicketId, UpstreamRequestId, WireId, WireMint};
use crate::limits::Limits;
use crate::link::IoRequest;
use crate::protocol::client::peer::{ListKind, ServerFacts};

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

/// What a manager tells its owner.
#[derive(Debug)]
pub enum ManagerOutput {
    /// The one answer to a ticket: the raw result; for a list, the array of all its entries.
    Answer {
        /// Whose.
        ticket: TicketId,
        /// What came of it.
        outcome: Result<Box<str>, Box<UpstreamError>>,
    },
    /// Progress of a ticket that asked for it: raw params of the notification, with the caller's token
    /// where it had given one.
    Progress {
        /// Whose.
        ticket: TicketId,
        /// Raw params.
        params: Box<str>,
    },
    /// A notification of a server: a log message, an updated resource, or anything we do not know.
    Notification {
        /// In which runtime.
        runtime: RuntimeId,
        /// Of which server.
        server: ServerKey,
        /// Its method.
        method: Box<str>,
        /// Its params, raw.
        params: Option<Box<str>>,
        /// For which piece of work, when it came on its stream.
        ticket: Option<TicketId>,
    },
    /// A server asks for sampling, elicitation or roots; answer by [`Manager::answer`].
    Question {
        /// To answer with.
        id: QuestionId,
        /// In which runtime.
        runtime: RuntimeId,
        /// Of which server.
        server: ServerKey,
        /// `sampling/createMessage`, `elicitation/create`, `roots/list`.
        method: Box<str>,
        /// Its params, raw.
        params: Option<Box<str>>,
        /// For which piece of work, when that is known.
        ticket: Option<TicketId>,
    },
    /// The server no longer wants to know.
    QuestionGone(QuestionId),
    /// The tools of a runtime are others now.
    CatalogChanged(RuntimeId),
    /// A resource of [`Manager::set_subscriptions`] is subscribed to, or cannot be: then it is not among them
    /// any more.
    Subscribed {
        /// In which runtime.
        runtime: RuntimeId,
        /// Of which server.
        server: ServerKey,
        /// Which resource.
        uri: Box<str>,
        /// Why not.
        outcome: Result<(), Box<UpstreamError>>,
    },
    /// A list of a server has changed: of resources or prompts, or of tools that are
    /// [left](Manager::leave_tools).
    ListChanged {
        /// In which runtime.
        runtime: RuntimeId,
        /// Of which server.
        server: ServerKey,
        /// Which list.
        list: ListKind,
    },
    /// A server is in another state now.
    StateChanged {
        /// In which runtime.
        runtime: RuntimeId,
        /// Which server.
        server: ServerKey,
    },
    /// Something a person should know of.
    Diagnostic {
        /// In which runtime.
        runtime: RuntimeId,
        /// What.
        diagnostic: ServerDiagnostic,
    },
}

/// See the module page.
pub struct Manager {
    limits: Limits,
    face: Face,
    entropy: Box<dyn Entropy>,
    servers: BTreeMap<ServerKey, ServerConfig>,
    runtimes: BTreeMap<RuntimeId, Runtime>,
    slots: BTreeMap<UpstreamId, Slot>,
    shared: BTreeMap<ServerKey, UpstreamId>,
    reserved: Reserved,
    tickets: BTreeMap<TicketId, Ticket>,
    questions: BTreeMap<QuestionId, Asked>,
    wires: WireMint,
    wires_of: BTreeMap<WireId, UpstreamId>,
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
            tickets: BTreeMap::new(),
            questions: BTreeMap::new(),
            wires: WireMint::starting_at(first_wire),
            wires_of: BTreeMap::new(),
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

    /// Which tools may be shown, from now on: those that are as they were locked. What is known already is
    /// looked at again.
    pub fn set_lock(&mut self, now: Now, lock: Option<LockRule>) {
        self.lock = lock;
        self.drift_said.clear();
        let shown: Vec<(RuntimeId, UpstreamId)> = self
            .slots
            .iter()
            .flat_map(|(id, slot)| slot.owners.iter().map(|owner| (*owner, *id)))
            .collect();
        for (owner, upstream) in shown {
            self.show_again(owner, upstream);
        }
        let runtimes: Vec<RuntimeId> = self.runtimes.keys().copied().collect();
        self.reconsider(now, &runtimes);
    }

    /// Whether the lock in force is for this server.
    #[must_use]
    pub fn is_locked(&self, key: &ServerKey) -> bool {
        self.lock.as_ref().is_some_and(|lock| lock.is_for(key))
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
            self.idle.remove(&(self.idle_at(runtime.last_used), id));
        }
        for upstream in left {
            self.renew_wishes(now, upstream);
        }
    }

    /// Keeps a runtime's connections although nothing of it is open, until [`Manager::release`].
    pub fn lease(&mut self, now: Now, id: RuntimeId) {
        self.change_leases(now, id, 1);
    }

    /// Takes back one [`Manager::lease`].
    pub fn release(&mut self, now: Now, id: RuntimeId) {
        self.change_leases(now, id, -1);
    }

    fn change_leases(&mut self, now: Now, id: RuntimeId, by: i32) {
        if let Some(runtime) = self.runtimes.get_mut(&id) {
            runtime.leases = runtime.leases.saturating_add_signed(by);
        }
        self.touch(now, id);
    }

    /// Connects a runtime to all servers, side by side, and keeps trying those that fail.
    pub fn connect(&mut self, now: Now, id: RuntimeId) {
        if let Some(runtime) = self.runtimes.get_mut(&id) {
            runtime.wants_all = true;
        }
        self.connect_to_all(now, id, true);
        self.touch(now, id);
    }

    /// The same, each server once: [`Manager::is_settled`] comes in bounded time, however many of them fail.
    pub fn try_connect(&mut self, now: Now, id: RuntimeId) {
        self.connect_to_all(now, id, false);
        self.touch(now, id);
    }

    /// Goes on trying to connect to one server of a runtime, at the times that are due.
    pub fn keep_trying(&mut self, now: Now, id: RuntimeId, key: &ServerKey) {
        self.connect_to(now, id, key, true);
    }

    fn connect_to_all(&mut self, now: Now, id: RuntimeId, keep_trying: bool) {
        let keys: Vec<ServerKey> = self.servers.keys().cloned().collect();
        for key in keys {
            self.connect_to(now, id, &key, keep_trying);
        }
    }

    fn connect_to(&mut self, now: Now, id: RuntimeId, key: &ServerKey, keep_trying: bool) {
        let known = self.slot_of(id, key).is_some();
        if let Some(upstream) = self.upstream_of(id, key) {
            if !known {
                self.renew_wishes(now, upstream);
            }
            let leave = self.runtimes.get(&id).is_some_and(|of| of.tools_left);
            self.with(now, upstream, |one, turn| {
                if !leave {
                    one.leave_tools(turn, false);
                }
                one.connect(turn, keep_trying);
            });
        }
    }

    /// Whether each server of a runtime that was asked to connect has done so and said what tools it has,
    /// or has failed.
    #[must_use]
    pub fn is_settled(&self, id: RuntimeId) -> bool {
        self.runtimes.get(&id).is_none_or(|runtime| {
            runtime
                .upstreams
                .values()
                .filter_map(|upstream| self.slots.get(upstream))
                .all(|slot| !slot.upstream.is_settling())
        })
    }

    /// Whether one server of a runtime is still being connected to, or asked for its tools.
    #[must_use]
    pub fn is_settling(&self, id: RuntimeId, key: &ServerKey) -> bool {
        self.slot_of(id, key)
            .is_some_and(|slot| slot.upstream.is_settling())
    }

    /// Names of tools that are shown beside those of the servers: none of theirs is shown under one of them,
    /// in whatever case. A tool that was gets another name; one that was renamed for a name that is free again
    /// keeps its own.
    pub fn reserve<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let reserved = naming::reserved_names(names);
        if reserved == self.reserved.tools {
            return;
        }
        self.reserved.tools = reserved;
        let runtimes: Vec<RuntimeId> = self.runtimes.keys().copied().collect();
        for id in runtimes {
            let Some(runtime) = self.runtimes.get_mut(&id) else {
                continue;
            };
            runtime.names.reserve(self.reserved.tools.clone());
            let taken: BTreeSet<ServerKey> = runtime
                .catalog
                .tools()
                .filter(|(name, _)| self.reserved.tools.contains(&name.to_ascii_lowercase()))
                .map(|(_, found)| found.server.clone())
                .collect();
            for key in taken {
                if let Some(upstream) = self.runtimes[&id].upstreams.get(&key).copied() {
                    self.show_again(id, upstream);
                }
            }
        }
    }

    /// The same for prompts, which are the owner's to list: they get their names by [`Manager::name_prompts`].
    pub fn reserve_prompts<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let reserved = naming::reserved_names(names);
        if reserved == self.reserved.prompts {
            return;
        }
        for runtime in self.runtimes.values_mut() {
            runtime.prompt_names.reserve(reserved.clone());
        }
        self.reserved.prompts = reserved;
    }

    /// The names under which the prompts that a server lists are shown in a runtime, in their order: by the
    /// rules of tools.
    pub fn name_prompts(&mut self, id: RuntimeId, key: &ServerKey, own: &[&str]) -> Vec<String> {
        let prefixed = self.prefixes(id, key);
        match self.runtimes.get_mut(&id) {
            Some(runtime) if prefixed => runtime.prompt_names.name_tools(key, own),
            Some(runtime) => runtime.prompt_names.name_reserved(key, own),
            None => own.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// Whether tools and prompts of a server have its name in front in this runtime. Decided when it is asked
    /// first, for good.
    pub fn prefixes(&mut self, id: RuntimeId, key: &ServerKey) -> bool {
        let one = self.servers.len() == 1;
        let runtime = self.runtimes.get_mut(&id);
        runtime.is_some_and(|runtime| runtime.prefixes(key, one))
    }

    /// Leaves it to the user of a runtime to ask for the tools of its only server, as for anything else: they
    /// are not fetched when it is connected to; calls want [`Options::unlisted`] then. Where calls need to know
    /// the tools (arguments in headers) they are fetched all the same. `false`: they are fetched again, those
    /// that were left now.
    pub fn leave_tools(&mut self, now: Now, id: RuntimeId, leave: bool) {
        let Some(runtime) = self.runtimes.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut runtime.tools_left, leave) == leave {
            return;
        }
        for upstream in runtime.upstreams.clone().into_values() {
            self.with(now, upstream, |one, turn| one.leave_tools(turn, leave));
        }
    }

    /// Asks a server for its tools again, if it is connected to and is not being asked.
    pub fn list_tools_again(&mut self, now: Now, id: RuntimeId, key: &ServerKey) {
        let of = self.runtimes.get(&id);
        if let Some(upstream) = of.and_then(|of| of.upstreams.get(key).copied()) {
            self.with(now, upstream, |one, turn| {
                if !one.is_settling() {
                    one.list_tools(turn);
                }
            });
        }
    }

    /// The tools of a runtime, as far as they are known.
    #[must_use]
    pub fn catalog(&self, id: RuntimeId) -> Option<&Catalog> {
        self.runtimes.get(&id).map(|runtime| &runtime.catalog)
    }

    /// How a server is doing in a runtime, and why it is not better.
    #[must_use]
    pub fn state(&self, id: RuntimeId, key: &ServerKey) -> (ServerState, Option<&UpstreamError>) {
        match self.slot_of(id, key) {
            Some(slot) => (slot.upstream.state(), slot.upstream.last_error()),
            None => (ServerState::Idle, None),
        }
    }

    /// What a server says of itself in a runtime, once it is ready; `None` while it is being connected to, or
    /// not asked for.
    ///
    /// # Errors
    /// Why it is not, and how long it is left alone.
    pub fn met(
        &self,
        now: Now,
        id: RuntimeId,
        key: &ServerKey,
    ) -> Result<Option<&ServerFacts>, UpstreamError> {
        match self.slot_of(id, key) {
            Some(slot) => slot.upstream.met(now),
            None => Ok(None),
        }
    }

    /// What a server said of itself in a runtime; while it is connected.
    #[must_use]
    pub fn facts(&self, id: RuntimeId, key: &ServerKey) -> Option<&ServerFacts> {
        self.slot_of(id, key).and_then(|slot| slot.upstream.facts())
    }

    /// Calls a tool by its shown name. Waits, where the name is not known yet, until every server has
    /// said what it has. Design: every call has passed the gate.
    pub fn call(&mut self, now: Now, id: RuntimeId, call: GatedCall, options: Options) -> TicketId {
        let ticket = self.mint_ticket(now, id);
        if !self.runtimes.contains_key(&id) {
            self.answer_ticket(ticket, Err(explain::no_runtime()));
            return ticket;
        }
        self.decide(
            now,
            id,
            Undecided {
                ticket,
                call,
                options,
            },
        );
        ticket
    }

    /// Asks anything of a server but a tool call.
    pub fn request(
        &mut self,
        now: Now,
        id: RuntimeId,
        key: &ServerKey,
        (method, params): (&str, Option<&str>),
        options: Options,
    ) -> TicketId {
        let ticket = self.mint_ticket(now, id);
        if method == "tools/call" {
            let error = explain::not_gated(key);
            self.answer_ticket(ticket, Err(error));
            return ticket;
        }
        let work = Work::Request {
            method: method.into(),
            params: params.map(Into::into),
        };
        self.submit(now, id, key, Job::new(Some(ticket), work, options));
        ticket
    }

    /// Fetches all pages of a list of a server; the answer is the array of its entries as they came.
    pub fn list(&mut self, now: Now, id: RuntimeId, key: &ServerKey, list: PagedList) -> TicketId {
        let ticket = self.mint_ticket(now, id);
        let walk = ListWalk::new(key, list, &self.limits);
        let work = Work::List { walk, page: None };
        self.submit(
            now,
            id,
            key,
            Job::new(Some(ticket), work, Options::default()),
        );
        ticket
    }

    /// Sends a notification to a server that is connected.
    pub fn notify(
        &mut self,
        now: Now,
        id: RuntimeId,
        key: &ServerKey,
        method: &str,
        params: Option<&str>,
    ) {
        if let Some(upstream) = self
            .runtimes
            .get(&id)
            .and_then(|r| r.upstreams.get(key).copied())
        {
            self.with(now, upstream, |one, turn| one.notify(turn, method, params));
        }
    }

    /// Nobody waits for this ticket any more: the server is told, and there is no answer.
    pub fn cancel(&mut self, now: Now, ticket: TicketId, reason: &str) {
        let Some(known) = self.tickets.remove(&ticket) else {
            return;
        };
        if let Some(runtime) = self.runtimes.get_mut(&known.runtime) {
            runtime.open.remove(&ticket);
            runtime.undecided.retain(|call| call.ticket != ticket);
        }
        if let Some(upstream) = known.upstream {
            self.with(now, upstream, |one, turn| one.cancel(turn, ticket, reason));
        }
        self.touch(now, known.runtime);
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

    /// The next thing to tell its owner.
    pub fn poll_output(&mut self) -> Option<ManagerOutput> {
        self.outputs.pop_front()
    }
}

#[cfg(test)]
mod tests;
