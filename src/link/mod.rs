//! Between bytes and messages: what a machine hears from the loop, and what it asks of it.
//!
//! A *wire* is one descriptor pair of the outside world. Machines never own one: they mint a [`WireId`],
//! ask the loop to open it ([`IoRequest::Open`]) and then exchange [`IoEvent`]s and bytes. One machine
//! that the loop drives is a [`Driven`]; the contract of driving it is on that trait.

pub mod command;
pub mod http_client;
pub mod http_rules;
pub mod http_server;
mod line_frames;
pub mod sse_client;
mod stderr_tail;
pub mod stdio_child;
pub mod stdio_host;
pub mod unix_link;
pub mod upstream;
pub mod upstream_link;
pub mod websocket;

use std::path::PathBuf;

use crate::clock::{Deadline, Now};
use crate::codec::outbuf::OutBuf;
use crate::ids::WireId;

/// What happened on a wire.
#[derive(Debug)]
pub enum IoEvent<'a> {
    /// The wire is open: connected (TLS included), or the child runs. Comes before anything else of the
    /// wire. What was written before it leaves after it.
    Opened,
    /// Bytes arrived. Never empty; never more than `turn_bytes_max` a turn.
    Bytes(&'a [u8]),
    /// A child wrote to its stderr.
    StderrBytes(&'a [u8]),
    /// The peer will send no more. Everything before it was delivered.
    Eof,
    /// The peer takes no more (broken pipe, reset). What was pending is dropped, and so is what is
    /// flushed later. A pipe tells this without a write; the other direction goes on.
    WriteClosed,
    /// Everything that was pending has been handed to the operating system.
    Drained,
    /// A child ended. Bytes of its output may still follow; see [`IoEvent::Eof`]. Until
    /// [`IoRequest::Close`] its group can still be signalled.
    Exited(ExitReport),
    /// The wire could not be opened, or broke. Nothing follows.
    Failed(IoFault),
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReport {
    /// It returned this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

impl std::fmt::Display for ExitReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exited with code {code}"),
            Self::Signal(9) => f.write_str("killed by SIGKILL"),
            Self::Signal(15) => f.write_str("killed by SIGTERM"),
            Self::Signal(11) => f.write_str("killed by SIGSEGV"),
            Self::Signal(6) => f.write_str("killed by SIGABRT"),
            Self::Signal(n) => write!(f, "killed by signal {n}"),
        }
    }
}

/// Why a wire could not be opened or went away, in words for a person: lower case, names the address or
/// program, quotes the operating system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoFault {
    /// What kind of fault; decides exit codes and retries.
    pub kind: FaultKind,
    /// One line.
    pub message: String,
}

/// Kinds of [`IoFault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The name has no address.
    Resolve,
    /// Nobody answers there: refused, unreachable, no such file or program.
    Unreachable,
    /// The TLS handshake or its certificate failed.
    Tls,
    /// An established wire broke.
    Broken,
    /// Our own process has no descriptor, memory or permission left for it.
    Exhausted,
}

/// What the loop is asked to do.
#[derive(Debug)]
pub enum IoRequest {
    /// Open a wire. Ends in [`IoEvent::Opened`] or [`IoEvent::Failed`]; for a listener in nothing but
    /// [`Driven::handle_accept`] calls, or `Failed`.
    ///
    /// Of an open TCP wire without TLS, [`OpenSpec::Tcp`] with TLS starts the handshake with that host on
    /// the connection as it is: the way through a proxy's tunnel. [`IoEvent::Opened`] comes again, or
    /// [`IoEvent::Failed`].
    Open(WireId, OpenSpec),
    /// Bytes wait in [`Driven::outgoing`] of this wire.
    Flush(WireId),
    /// Stop (true) or resume (false) reading from this wire. A child's stderr is read all the same.
    /// Of a listener: accepting; who connects meanwhile waits.
    PauseReads(WireId, bool),
    /// Send what is pending, then end our direction (a child's stdin, a socket's write side). What is
    /// flushed later is dropped.
    CloseWrite(WireId),
    /// Let go of the wire at once. No event follows. A child that still runs is killed with its group,
    /// and with whatever else it has started where the loop has guardians; who wants it to end in good
    /// order signals it before. A listener that is
    /// closed resets who still waits to be accepted, removes its socket file, and leaves the
    /// connections it has accepted as they are. A socket that is closed before all of the peer's bytes
    /// were read may take back the last answer (TCP resets it); [`IoRequest::Finish`] does not.
    Close(WireId),
    /// Let go of the wire in good order: the loop takes over what is pending, sends it, ends our
    /// direction, drops what the peer still sends, and closes at the peer's end, after `finish_timeout`
    /// at the latest. For the machine the wire is gone at once; no event follows. Of a wire that is not
    /// open this is [`IoRequest::Close`]. Source: RFC 9112 §9.6.
    Finish(WireId),
    /// Signal the process group of a child, and whoever has left it where the loop has guardians.
    Signal(WireId, Signal),
    /// Append to the machine's journal file before anything is flushed. The loop reports a failure by
    /// [`Driven::handle_journal_fault`].
    Append(Vec<u8>),
}

/// Signals a machine may send to a child's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Please end.
    Term,
    /// End.
    Kill,
}

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenSpec {
    /// Our own stdin and stdout.
    HostStdio,
    /// Our own stdin alone; stdout stays with the program.
    HostStdin,
    /// TCP to a host name or address literal; with TLS when `tls` is given.
    Tcp {
        /// Name or address, with brackets or without.
        host: String,
        /// Port.
        port: u16,
        /// TLS settings.
        tls: Option<TlsSpec>,
    },
    /// The Unix socket of a program on this host.
    Unix {
        /// Its file.
        path: PathBuf,
    },
    /// Wait for TCP connections.
    Listen {
        /// Address literal to bind, with brackets or without.
        host: String,
        /// Port; 0 lets the system choose (the loop can be asked which it chose).
        port: u16,
    },
    /// Wait for connections of our own user and of root on a Unix socket; others are closed with a log
    /// line. Its file has mode 0600 and goes with the listener. The file that a dead process left there
    /// is replaced; a live one is a fault.
    ListenUnix {
        /// The file to make.
        path: PathBuf,
    },
    /// A program with pipes on its three standard descriptors, in a process group of its own.
    Child(ChildSpec),
}

/// TLS towards a server. The default trusts the system's authorities and shows no certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSpec {
    /// PEM file with certificate authorities to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM files with our own certificate chain and its key, for servers that ask who we are.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Take any certificate. Only where a configuration says `sslVerify: false` in so many words.
    pub insecure: bool,
}

/// A program to start. No shell is involved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildSpec {
    /// Program, looked up in PATH.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment.
    pub env: Vec<(String, String)>,
    /// The directory it starts in; ours when `None`.
    pub cwd: Option<PathBuf>,
}

/// A machine that the loop drives.
///
/// # Contract
///
/// 1. The loop calls one `handle_*`.
/// 2. It then drains [`poll_io`](Driven::poll_io) to `None` and flushes the wires named there. After that
///    no deadline of the machine is due.
/// 3. It waits until readiness or [`next_deadline`](Driven::next_deadline), whichever is first.
///
/// Early or repeated [`handle_timeout`](Driven::handle_timeout) calls are harmless. Within one turn bytes
/// are delivered before the exit and close events of the same wire. After [`IoRequest::Close`],
/// [`IoRequest::Finish`] or [`IoEvent::Failed`] a wire is never mentioned again.
pub trait Driven {
    /// Something happened on a wire.
    fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>);

    /// Someone connected to a listener. The wire that is returned is open from the start. `None`
    /// refuses and closes the connection, which the peer sees as a reset.
    ///
    /// A machine that has enough connections says so and remembers nothing: it returns a wire, puts its
    /// answer into [`outgoing`](Driven::outgoing) and asks for [`IoRequest::Finish`]. Or it stops
    /// accepting, by [`IoRequest::PauseReads`] of the listener.
    ///
    /// `peer` is for logs: `127.0.0.1:40312`, `unix:uid=1000,pid=4242`.
    fn handle_accept(&mut self, now: Now, listener: WireId, peer: &str) -> Option<WireId> {
        let _ = (now, listener, peer);
        None
    }

    /// The journal could not be written. Told before anything is flushed; of the records appended since
    /// the machine was last drained, the one that failed and all after it are not in the file.
    fn handle_journal_fault(&mut self, now: Now, fault: IoFault) {
        let _ = (now, fault);
    }

    /// Time passed.
    fn handle_timeout(&mut self, now: Now);

    /// The next thing the loop is to do.
    fn poll_io(&mut self) -> Option<IoRequest>;

    /// When to call [`handle_timeout`](Driven::handle_timeout) at the latest.
    fn next_deadline(&self) -> Option<Deadline>;

    /// The bytes that wait to leave on a wire; `None` for a wire the machine does not know.
    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf>;
}
