//! The event loop: the only place with descriptors, processes, threads and clocks.
//!
//! It drives machines that implement [`Driven`]. One turn is:
//!
//! 1. drain every machine's requests, then write what they left (the program may have spoken to
//!    them);
//! 2. wait for readiness, a deadline, a signal or another thread;
//! 3. hear in this order: openings, bytes and ends, exits, due deadlines, and drain after each; what then
//!    waits on the very wire that was heard is written at once;
//! 4. write once for every other wire that has something to send, and get on with those that only have
//!    their last bytes to send.
//!
//! Readiness is edge-triggered: a descriptor is registered once and remembers what the poll said. A
//! wire is read until it is dry or has had `turn_bytes_max`; then it waits in the ready list for
//! the next turn, which does not sleep. A steady exchange costs one wait, one read and one write
//! and allocates nothing.

pub mod append_file;
mod child;
mod connect;
mod descriptor;
mod dispatch;
mod fault;
mod file_watch;
mod finishing;
#[cfg(target_os = "linux")]
mod guardian;
#[cfg(all(target_os = "linux", feature = "cli"))]
pub mod guardian_process;
mod host_stdio;
pub mod identity_files;
pub mod journal;
mod kernel;
mod listener;
mod opening;
mod requests;
mod resolver;
mod rlimit;
mod signals;
pub mod system;
mod table;
#[cfg_attr(not(feature = "tls"), path = "tls_absent.rs")]
mod tls;
mod transfer;
mod unix_socket;
mod wire;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Token, Waker};

use self::child::ChildProcess;
use self::file_watch::FileWatch;
use self::finishing::Finishing;
use self::journal::Journal;
use self::kernel::Kernel;
pub use self::kernel::SystemCalls;
use self::resolver::Resolver;
pub use self::signals::HostSignal;
use self::signals::HostSignals;
use self::system::SystemClock;
use self::table::Table;
use self::tls::TlsConfigs;
use self::wire::{Open, Side, State, Wire};
use crate::clock::{Deadline, Now, Uptime};
use crate::ids::{self, WireId};
use crate::limits::Limits;
use crate::link::{Driven, IoFault};

/// A wire of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    machine: usize,
    wire: WireId,
}

impl ids::Key for Key {
    fn number(self) -> u64 {
        (self.machine, self.wire).number()
    }
}

/// What a token of the poll stands for.
#[derive(Clone, Copy, Debug)]
enum Source {
    Wire(Key, Side),
    Child(usize),
    Finishing(usize, Side),
}

/// A waiting time of the loop's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// Accept again after the descriptors had run out.
    Accept(Key),
    /// This address has been silent for long enough.
    Connect(Key),
    /// Ask whether a child has ended, where no pidfd says so.
    Child(usize),
    /// A connection on its last bytes has had its time.
    Finish(usize),
}

/// A wait for the world.
struct Sleep {
    /// `None`: for as long as it takes.
    until: Option<Uptime>,
    why: &'static str,
}

/// Readiness events taken from the kernel at once; the rest come in the next turn. No limit: nothing is
/// refused or lost by it.
const EVENTS_MAX: usize = 256;

/// The size of the read buffer, at most; `turn_bytes_max` makes it smaller. A pipe of ours holds four of it.
const READ_BYTES_MAX: usize = 256 * 1024;

/// Turns in which stdin is still read after our parent has ended; more than a pipe can hold.
const LAST_READS_MAX: u32 = 16;

/// Tokens below this are the loop's own.
const FIRST_TOKEN: usize = 16;
const WAKER: Token = Token(0);
const SIGNALS: Token = Token(1);
const PARENT: Token = Token(2);
const FILE: Token = Token(3);

/// How long the groups killed at the end may take to be reaped. They are gone at once unless a
/// process hangs in the kernel, and then nobody can wait for it.
const REAP_TIMEOUT: Duration = Duration::from_millis(500);

/// The event loop. It knows machines by their place in the slice given to
/// [`turn`](EventLoop::turn), so that order must not change while wires are open.
///
/// Dropping it closes all wires, kills all children with their groups and reaps them. With a guardian
/// (see [`set_guardian`](EventLoop::set_guardian)) that includes whoever has left its group.
pub struct EventLoop {
    kernel: Kernel,
    events: Events,
    clock: SystemClock,
    turn_bytes_max: usize,
    turn_accepts_max: usize,
    accept_pause_interval: Duration,
    finish_timeout: Duration,
    finishing_max: usize,
    /// The one read buffer; whoever keeps bytes copies them.
    buffer: Vec<u8>,
    wires: Table<Key, Wire>,
    sources: Table<usize, Source>,
    /// The last token or number given away; none is used twice.
    last_number: usize,
    /// Children by number, until they are reaped.
    children: BTreeMap<usize, ChildProcess>,
    children_max: usize,
    #[cfg(target_os = "linux")]
    guardians: Option<guardian::Guardians>,
    /// Connections on their last bytes by number, so the oldest comes first.
    finishing: BTreeMap<usize, Finishing>,
    finishing_ready: VecDeque<usize>,
    /// Wires with something to read, and a second list to take turns with.
    ready: Vec<(Key, Side)>,
    reading: Vec<(Key, Side)>,
    /// Wires with something to write, and a second list to take turns with.
    dirty: Vec<Key>,
    flushing: Vec<Key>,
    /// Children that may have ended.
    ended: Vec<usize>,
    /// Wires whose machine is to hear in the next turn that they are open, or why not.
    notices: VecDeque<Key>,
    /// A machine was told something before the wait, so the program may have something to do.
    told_early: bool,
    alarms: BTreeSet<(Uptime, Alarm)>,
    journals: BTreeMap<usize, Journal>,
    /// A journal's fault that its machine has not heard yet.
    journal_faults: BTreeMap<usize, IoFault>,
    resolver: Resolver,
    tls: TlsConfigs,
    /// The wire that holds stdin and stdout.
    host: Option<Key>,
    host_taken: bool,
    parent: Option<OwnedFd>,
    /// Our parent has ended: in how many turns stdin is still read.
    last_reads: Option<u32>,
    signals: Option<HostSignals>,
    signals_seen: VecDeque<HostSignal>,
    file: Option<FileWatch>,
}

impl EventLoop {
    /// An idle loop. Its clock starts now. The process may have as many descriptors afterwards as
    /// the system lets it have; programs that the loop starts get the limit that was in force.
    ///
    /// # Errors
    /// When the system has no descriptors left.
    pub fn new(limits: &Limits) -> io::Result<Self> {
        rlimit::raise();
        let kernel = Kernel::new()?;
        let waker = Arc::new(Waker::new(kernel.registry(), WAKER)?);
        Ok(Self {
            kernel,
            events: Events::with_capacity(EVENTS_MAX),
            clock: SystemClock::new(),
            turn_bytes_max: limits.turn_bytes_max,
            turn_accepts_max: limits.turn_accepts_max,
            accept_pause_interval: limits.accept_pause_interval,
            finish_timeout: limits.finish_timeout,
            finishing_max: limits.finishing_max,
            buffer: vec![0; limits.turn_bytes_max.min(READ_BYTES_MAX)],
            wires: Table::new(),
            sources: Table::new(),
            last_number: FIRST_TOKEN,
            children: BTreeMap::new(),
            children_max: limits.children_max,
            #[cfg(target_os = "linux")]
            guardians: None,
            finishing: BTreeMap::new(),
            finishing_ready: VecDeque::new(),
            ready: Vec::with_capacity(EVENTS_MAX),
            reading: Vec::with_capacity(EVENTS_MAX),
            dirty: Vec::with_capacity(EVENTS_MAX),
            flushing: Vec::with_capacity(EVENTS_MAX),
            ended: Vec::new(),
            notices: VecDeque::new(),
            told_early: false,
            alarms: BTreeSet::new(),
            journals: BTreeMap::new(),
            journal_faults: BTreeMap::new(),
            resolver: Resolver::new(waker),
            tls: TlsConfigs::default(),
            host: None,
            host_taken: false,
            parent: None,
            last_reads: None,
            signals: None,
            signals_seen: VecDeque::new(),
            file: None,
        })
    }

    /// The present.
    #[must_use]
    pub fn now(&self) -> Now {
        self.clock.now()
    }

    /// How many descriptors this process may have at once: the budget of connections (one each),
    /// children (four each) and a few dozen of our own. Accepting pauses when it is used up.
    #[must_use]
    pub fn descriptors_max(&self) -> usize {
        rlimit::descriptors_max()
    }

    /// What to say of a limit on descriptors under which the configured limits cannot all be reached
    /// at once; `None` when there are enough. For the start of a program.
    #[must_use]
    pub fn descriptor_shortage(&self, limits: &Limits) -> Option<String> {
        let budget = rlimit::budget(limits.connections_max, limits.children_max);
        let found = self.descriptors_max();
        (found < budget).then(|| {
            format!(
                "this process may have {found} descriptors, and connections_max {} with \
                 children_max {} may need {budget}",
                limits.connections_max, limits.children_max
            )
        })
    }

    /// From now on every program that is started gets a guardian: `program`, run with `args` and the
    /// name of what it guards, has to call `guardian_process::run` (feature `cli`) before anything else,
    /// as `drawspan guard` does. It starts the program, ends whatever that leaves behind, and outlives
    /// this process for as long as it takes. `/proc/self/exe` names the running program even after its
    /// file was replaced.
    ///
    /// Linux only; elsewhere, and without a call of this, only a program's own process group is
    /// ended, and nothing is when this process is killed.
    pub fn set_guardian(&mut self, program: impl Into<std::path::PathBuf>, args: Vec<String>) {
        let program = program.into();
        #[cfg(target_os = "linux")]
        {
            self.guardians = Some(guardian::Guardians { program, args });
        }
        #[cfg(not(target_os = "linux"))]
        drop((program, args));
    }

    /// The calls made so far, by which a test can say what steady work costs.
    #[must_use]
    pub fn system_calls(&self) -> SystemCalls {
        self.kernel.calls()
    }

    /// How many connections are on their last bytes, see
    /// [`IoRequest::Finish`](crate::link::IoRequest::Finish). Dropping the loop cuts them off: a
    /// program that ends turns on until there are none, which takes `finish_timeout` at most.
    #[must_use]
    pub fn finishing(&self) -> usize {
        self.finishing.len()
    }

    /// Does what the machines ask, without waiting for anything. A listener has its port afterwards.
    pub fn settle(&mut self, machines: &mut [&mut dyn Driven]) {
        let now = self.clock.now();
        self.told_early = false;
        for machine in 0..machines.len() {
            self.drain(machines, machine, now);
        }
        self.flush(machines, now);
    }

    /// One turn; returns after the first thing that happened. Call it until the program is done,
    /// always with the same machines in the same order.
    ///
    /// # Errors
    /// When the poll itself fails, which no peer can cause.
    pub fn turn(&mut self, machines: &mut [&mut dyn Driven]) -> io::Result<()> {
        self.settle(machines);
        let sleep = self.sleep(machines);
        let timeout = sleep.until.map(|until| until.since(self.clock.up()));
        match self.kernel.wait(&mut self.events, timeout) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }

        let now = self.clock.now();
        if self.events.is_empty() && timeout != Some(Duration::ZERO) {
            log::trace!("{}: woken for: {}", now.up, sleep.why);
        }
        self.dispatch(machines, now);
        // Before that time only what happened just now can have made anything due, and the next wait, which
        // is none then, finds it.
        if sleep.until.is_some_and(|until| until <= now.up) {
            self.ring_deadlines(machines, now);
        }
        self.flush(machines, now);
        Ok(())
    }

    /// Gives `stream` to the machine as an open wire. Without more it is simply there, as an
    /// accepted connection is; a machine that asks to open this wire hears `Opened`, whatever it
    /// asked for.
    ///
    /// # Errors
    /// When the stream cannot be put into the poll.
    pub fn adopt(&mut self, machine: usize, wire: WireId, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let key = Key { machine, wire };
        let token = self.token(Source::Wire(key, Side::Both));
        let registered = connect::register_unix(self.kernel.registry(), token, stream.into());
        let socket = registered.inspect_err(|_| self.forget(token))?;
        let open = State::Open(Box::new(Open::duplex(socket)));
        self.wires
            .insert(key, Wire::new("local socket".to_owned(), open));
        Ok(())
    }

    /// Gives the machine the file that its [`IoRequest::Append`](crate::link::IoRequest::Append)s
    /// go to.
    pub fn set_journal(&mut self, machine: usize, journal: Journal) {
        self.journals.insert(machine, journal);
    }

    /// The port a listener was given; `None` while it is not bound, and for a Unix socket.
    #[must_use]
    pub fn local_port(&self, machine: usize, wire: WireId) -> Option<u16> {
        match &self.wires.get(&Key { machine, wire })?.state {
            State::Listening(listening) => listening.port(),
            State::Resolving(_) | State::Connecting(_) | State::Open(_) | State::Failed(_) => None,
        }
    }

    /// From now on SIGTERM, SIGINT and SIGHUP are read by [`take_signal`](EventLoop::take_signal)
    /// instead of ending the process. One that was ignored when the process started (`nohup`, a
    /// background job of a script) stays ignored. Without the feature `cli` this does nothing.
    ///
    /// # Errors
    /// When the system has no descriptors left.
    pub fn watch_signals(&mut self) -> io::Result<()> {
        if self.signals.is_none() {
            self.signals = HostSignals::watch(self.kernel.registry(), SIGNALS)?;
        }
        Ok(())
    }

    /// From now on [`HostSignal::FileChanged`] tells when this file is written, replaced or removed. One file
    /// at a time. Systems without inotify tell nothing.
    ///
    /// # Errors
    /// When its directory is not there, or the system has no descriptors left.
    pub fn watch_file(&mut self, path: &std::path::Path) -> io::Result<()> {
        let mut watch = match self.file.take() {
            Some(watch) => watch,
            None => FileWatch::new(self.kernel.registry(), FILE)?,
        };
        let watched = watch.watch(path);
        self.file = Some(watch);
        watched
    }

    /// The next signal that came; ask after each turn.
    pub fn take_signal(&mut self) -> Option<HostSignal> {
        self.signals_seen.pop_front()
    }

    /// From now on the end of our parent process is the end of stdin, even when another process
    /// still holds the pipe open. (A file as stdin ends by itself.) Does nothing for an orphan
    /// (parent 1), and on systems without pidfds.
    ///
    /// # Errors
    /// When the system has no descriptors left.
    pub fn watch_parent(&mut self) -> io::Result<()> {
        let Some(parent) = rustix::process::getppid() else {
            return Ok(());
        };
        if self.parent.is_some() || parent.as_raw_nonzero().get() == 1 {
            return Ok(());
        }
        let Some(pidfd) = child::pidfd(parent) else {
            return Ok(());
        };
        let source = &mut mio::unix::SourceFd(&std::os::fd::AsRawFd::as_raw_fd(&pidfd));
        let interest = mio::Interest::READABLE;
        self.kernel.registry().register(source, PARENT, interest)?;
        self.parent = Some(pidfd);
        // It may have ended before the pidfd was there; the number was a stranger's then.
        if rustix::process::getppid() != Some(parent) {
            self.last_reads = Some(LAST_READS_MAX);
        }
        Ok(())
    }

    /// How long to wait, and what for.
    fn sleep(&self, machines: &[&mut dyn Driven]) -> Sleep {
        let lists = self.ready.len() + self.dirty.len() + self.notices.len();
        let lists = lists + self.finishing_ready.len() + self.ended.len();
        if lists > 0 || self.told_early || self.stdin_is_over() {
            return Sleep {
                until: Some(Uptime::ZERO),
                why: "unfinished work",
            };
        }
        let alarm = self.alarms.first().map(|(at, alarm)| {
            let why = match alarm {
                Alarm::Accept(_) => "accept again",
                Alarm::Connect(_) => "next address",
                Alarm::Child(_) => "child exit tick",
                Alarm::Finish(_) => "last bytes",
            };
            Deadline::new(*at, why)
        });
        let first = machines
            .iter()
            .map(|machine| machine.next_deadline())
            .fold(alarm, Deadline::earlier);
        Sleep {
            until: first.map(|first| first.at),
            why: first.map_or("readiness", |first| first.why),
        }
    }

    /// A number that was never used before.
    fn number(&mut self) -> usize {
        self.last_number += 1;
        self.last_number
    }

    /// A token for `source`.
    fn token(&mut self, source: Source) -> Token {
        let number = self.number();
        self.sources.insert(number, source);
        Token(number)
    }

    fn forget(&mut self, token: Token) {
        self.sources.remove(&token.0);
    }
}

impl Drop for EventLoop {
    fn drop(&mut self) {
        for child in self.children.values_mut() {
            child.kill();
        }
        let until = self.clock.up().after(REAP_TIMEOUT);
        loop {
            self.children.retain(|_, child| !child.try_reap());
            let left = until.since(self.clock.up());
            if self.children.is_empty() || left.is_zero() {
                return;
            }
            // The pidfds wake us; where there are none, a short wait does.
            let wait = left.min(Duration::from_millis(10));
            if self.kernel.wait(&mut self.events, Some(wait)).is_err() {
                return;
            }
        }
    }
}

impl std::fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLoop")
            .field("wires", &self.wires.len())
            .field("children", &self.children.len())
            .finish_non_exhaustive()
    }
}
