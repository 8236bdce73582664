//! A wire: what the loop keeps for one [`WireId`](crate::ids::WireId), and how bytes pass through
//! it.
//!
//! | state      | input                    | next       | the machine hears            |
//! |------------|--------------------------|------------|------------------------------|
//! | Resolving  | addresses                | Connecting |                              |
//! | Resolving  | no address               | gone       | Failed(Resolve)              |
//! | Connecting | connected, no TLS        | Open       | Opened                       |
//! | Connecting | connected, TLS           | Open       | Opened after the handshake   |
//! | Connecting | refused, next address    | Connecting |                              |
//! | Connecting | refused, no address left | gone       | Failed(Unreachable)          |
//! | Open       | bytes, end, broken       | Open, gone | Bytes, Eof, Failed(Broken)   |
//! | Listening  | connection               | Listening  | `handle_accept`              |
//! | any        | cannot be opened         | Failed     |                              |
//! | Failed     | next turn                | gone       | Failed                       |
//! | any        | `IoRequest::Close`       | gone       |                              |
//! | Open       | `IoRequest::Finish`      | gone       | (see `finishing`)            |

use std::io;

use rustix::io::Errno;

use super::connect::{Connecting, Target};
use super::descriptor::Descriptor;
use super::fault::{exhausted, fault, words};
use super::kernel::Kernel;
use super::listener::Listening;
use super::tls::TlsSession;
use crate::codec::outbuf::OutBuf;
use crate::link::{FaultKind, IoFault};

/// One wire of one machine.
#[derive(Debug)]
pub(super) struct Wire {
    /// How messages call the other end.
    pub(super) label: String,
    pub(super) state: State,
    /// The machine does not want bytes now.
    pub(super) paused: bool,
    /// The machine has asked to end our direction once everything has left.
    pub(super) close_write: bool,
    /// Stands in the flush list.
    pub(super) dirty: bool,
    /// Stands in the ready list for its input.
    pub(super) queued_input: bool,
    /// Stands in the ready list for its stderr.
    pub(super) queued_stderr: bool,
}

#[derive(Debug)]
pub(super) enum State {
    Resolving(Target),
    Connecting(Box<Connecting>),
    Listening(Box<Listening>),
    Open(Box<Open>),
    /// The machine has not heard of it yet.
    Failed(IoFault),
}

/// Which descriptor of a wire an event or a read is about. A socket has one for both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Both,
    Input,
    Output,
    Stderr,
}

/// An open wire.
#[derive(Debug)]
pub(super) struct Open {
    /// Where bytes come from; of a socket also where they go.
    input: Option<Descriptor>,
    /// Where bytes go, when that is another descriptor.
    output: Option<Descriptor>,
    stderr: Option<Descriptor>,
    duplex: bool,
    pub(super) tls: Option<Box<TlsSession>>,
    /// The machine knows that it is open. Until then nothing else is told of it.
    pub(super) told: bool,
    pub(super) read_open: bool,
    pub(super) write_open: bool,
    /// The poll has seen that nobody reads our output any more.
    pub(super) output_hung: bool,
    /// The last flush left something behind, so the machine waits for `Drained`.
    pub(super) undrained: bool,
    /// The number of the child behind it.
    pub(super) child: Option<usize>,
}

/// What a read found.
#[derive(Debug)]
pub(super) enum Got {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing now.
    Dry,
    /// The end.
    Eof,
}

/// What a flush came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// Nothing is left.
    All,
    /// The descriptor takes no more now; the poll will tell.
    Blocked,
    /// There is more and there may be room, but others are to have their turn.
    More,
}

impl Wire {
    pub(super) const fn new(label: String, state: State) -> Self {
        Self {
            label,
            state,
            paused: false,
            close_write: false,
            dirty: false,
            queued_input: false,
            queued_stderr: false,
        }
    }

    /// The flag that says it stands in the ready list for `side`.
    pub(super) const fn queued(&mut self, side: Side) -> &mut bool {
        match side {
            Side::Both | Side::Input | Side::Output => &mut self.queued_input,
            Side::Stderr => &mut self.queued_stderr,
        }
    }

    /// Doubts what the poll has said so far of `side`: the next read finds out.
    pub(super) fn look_again(&mut self, side: Side) {
        if let Some(descriptor) = self.open().and_then(|open| open.side(side)) {
            descriptor.readable = true;
        }
    }

    pub(super) fn open(&mut self) -> Option<&mut Open> {
        match &mut self.state {
            State::Open(open) => Some(open),
            State::Resolving(_) | State::Connecting(_) | State::Listening(_) | State::Failed(_) => {
                None
            }
        }
    }

    /// Takes up what the poll says of one side. Returns whether to read and whether to write.
    pub(super) fn note(&mut self, event: &mio::event::Event, side: Side) -> (bool, bool) {
        let paused = self.paused;
        match &mut self.state {
            State::Resolving(_) | State::Failed(_) => (false, false),
            // While it rests or is paused the readiness is not lost: the queue is looked at
            // afterwards.
            State::Listening(listening) => (!paused && listening.resting_until.is_none(), false),
            State::Connecting(connecting) => {
                connecting.socket.note(event);
                (true, false)
            }
            State::Open(open) => {
                let waits = open.undrained || !open.told || self.close_write;
                let waits = waits || open.tls.as_ref().is_some_and(|tls| tls.wants_write());
                let Some(descriptor) = open.side(side) else {
                    return (false, false);
                };
                descriptor.note(event);
                let (readable, writable) = (descriptor.readable, descriptor.writable);
                if side == Side::Output && event.is_write_closed() {
                    open.output_hung = true;
                    return (false, open.write_open);
                }
                let read = match side {
                    Side::Output => false,
                    Side::Stderr => readable,
                    Side::Both | Side::Input => readable && !(paused && open.told),
                };
                (read, writable && waits)
            }
        }
    }

    /// The fault of an open wire, or of its TLS handshake.
    pub(super) fn broken(&self, what: &str, error: &io::Error) -> IoFault {
        let shaking = matches!(&self.state, State::Open(open) if open.tls.is_some() && !open.told);
        if shaking && !exhausted(error) {
            IoFault {
                kind: FaultKind::Tls,
                message: format!(
                    "cannot connect to {} with TLS: {}",
                    self.label,
                    words(error)
                ),
            }
        } else {
            fault(FaultKind::Broken, what, error)
        }
    }
}

impl Open {
    /// A socket.
    pub(super) fn duplex(socket: Descriptor) -> Self {
        Self {
            duplex: true,
            ..Self::pair(socket, None, None)
        }
    }

    /// An input and an output, and perhaps a second input.
    pub(super) fn pair(
        input: Descriptor,
        output: Option<Descriptor>,
        stderr: Option<Descriptor>,
    ) -> Self {
        Self {
            input: Some(input),
            output,
            stderr,
            duplex: false,
            tls: None,
            told: true,
            read_open: true,
            write_open: true,
            output_hung: false,
            undrained: false,
            child: None,
        }
    }

    /// Whether it waits for the machine to hear `Opened`, with nothing to do in between. (A TLS
    /// handshake has something to do.)
    pub(super) fn awaits_notice(&self) -> bool {
        !self.told && self.tls.is_none()
    }

    pub(super) fn side(&mut self, side: Side) -> Option<&mut Descriptor> {
        match side {
            Side::Both | Side::Input => self.input.as_mut(),
            Side::Output if self.duplex => self.input.as_mut(),
            Side::Output => self.output.as_mut(),
            Side::Stderr => self.stderr.as_mut(),
        }
    }

    /// Whether one descriptor carries both directions.
    pub(super) const fn is_socket(&self) -> bool {
        self.duplex
    }

    /// Its descriptors and what they are for.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = (Side, &Descriptor)> {
        let input = if self.duplex { Side::Both } else { Side::Input };
        [
            (input, &self.input),
            (Side::Output, &self.output),
            (Side::Stderr, &self.stderr),
        ]
        .into_iter()
        .filter_map(|(side, descriptor)| Some((side, descriptor.as_ref()?)))
    }

    /// Its descriptors, for taking it apart.
    pub(super) fn into_descriptors(self) -> impl Iterator<Item = Descriptor> {
        [self.input, self.output, self.stderr].into_iter().flatten()
    }

    /// Whether a read of `side` may find something.
    pub(super) fn may_read(&mut self, side: Side) -> bool {
        let plaintext = self.tls.as_ref().is_some_and(|tls| tls.has_plaintext());
        match side {
            Side::Stderr => self.stderr.as_ref().is_some_and(|d| d.readable),
            Side::Both | Side::Input | Side::Output => {
                self.read_open && (plaintext || self.input.as_ref().is_some_and(|d| d.readable))
            }
        }
    }

    /// Whether its input is still open and may keep us waiting.
    pub(super) fn waits_for_input(&self) -> bool {
        self.read_open && self.input.as_ref().is_some_and(|d| !d.always_ready())
    }

    /// Reads once from `side` into `into`.
    pub(super) fn read(&mut self, kernel: &Kernel, side: Side, into: &mut [u8]) -> io::Result<Got> {
        let found = match (side, &mut self.tls) {
            (Side::Both | Side::Input | Side::Output, Some(tls)) => {
                let Some(socket) = &mut self.input else {
                    return Ok(Got::Dry);
                };
                return tls.read(kernel, socket, into);
            }
            (Side::Both | Side::Input | Side::Output, None) => &mut self.input,
            (Side::Stderr, _) => &mut self.stderr,
        };
        match found {
            Some(found) if found.readable => match found.read(kernel, into) {
                Ok(0) => Ok(Got::Eof),
                Ok(n) => Ok(Got::Bytes(n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(Got::Dry),
                Err(e) => Err(e),
            },
            Some(_) | None => Ok(Got::Dry),
        }
    }

    /// Writes from `out` until it is empty, the descriptor is full, or `bytes_max` are gone.
    pub(super) fn write(
        &mut self,
        kernel: &Kernel,
        out: &mut OutBuf,
        bytes_max: usize,
    ) -> io::Result<Flushed> {
        let descriptor = if self.duplex {
            &mut self.input
        } else {
            &mut self.output
        };
        let Some(descriptor) = descriptor.as_mut().filter(|_| !self.output_hung) else {
            return Err(Errno::PIPE.into());
        };
        if let Some(tls) = &mut self.tls {
            return tls.write(kernel, descriptor, out, bytes_max);
        }
        let mut left = bytes_max;
        while !out.is_empty() {
            if !descriptor.writable {
                return Ok(Flushed::Blocked);
            }
            if left == 0 {
                return Ok(Flushed::More);
            }
            match descriptor.write(kernel, out.pending()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    out.advance(n);
                    left = left.saturating_sub(n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Flushed::All)
    }

    /// Ends our direction: everything has left. `Blocked` while a TLS farewell waits for room.
    pub(super) fn finish_write(&mut self, kernel: &Kernel) -> io::Result<Flushed> {
        if let (Some(tls), Some(socket)) = (&mut self.tls, &mut self.input) {
            tls.close();
            let flushed = tls.write(kernel, socket, &mut OutBuf::new(), usize::MAX)?;
            if flushed != Flushed::All {
                return Ok(flushed);
            }
        }
        self.drop_output(kernel);
        Ok(Flushed::All)
    }

    /// Lets go of the direction towards the peer; of a socket by shutting it down.
    pub(super) fn drop_output(&mut self, kernel: &Kernel) {
        self.write_open = false;
        self.undrained = false;
        if self.duplex {
            if let Some(socket) = &self.input {
                // Fails when the peer is gone already, which ends the direction as well.
                let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
            }
        } else if let Some(output) = self.output.take() {
            output.deregister(kernel.registry());
        }
    }

    /// Lets go of an input that has ended.
    pub(super) fn drop_input(&mut self, kernel: &Kernel, side: Side) {
        let ended = match side {
            Side::Stderr => self.stderr.take(),
            Side::Both | Side::Input | Side::Output => {
                self.read_open = false;
                if self.duplex { None } else { self.input.take() }
            }
        };
        if let Some(ended) = ended {
            ended.deregister(kernel.registry());
        }
    }
}
