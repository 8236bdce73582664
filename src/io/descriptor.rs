//! One file descriptor in the poll: reads and writes that never block, whoever shares it.
//!
//! `SIGPIPE` is ignored, as Rust programs start: a write nobody reads is an error, not the end.
//!
//! `O_NONBLOCK` belongs to the open file description, which a descriptor we were given shares with
//! whoever gave it to us: set there, a shell finds its terminal in non-blocking mode after we are
//! gone. So there are six manners of going about it, one variant of [`Manner`] each.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{RecvFlags, SendFlags};

use super::kernel::Kernel;

/// How to keep a call from blocking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// The open file description is ours alone and in non-blocking mode.
    Own,
    /// The same for a socket, whose own calls for bytes cost less than those of files.
    OwnSocket,
    /// The same for a Unix socket, which has room again, and says so, whenever the peer reads. The
    /// poll hears of it while a write waits, else each answer that is read would wake us.
    OwnUnix,
    /// A socket that others may hold too: each call says `MSG_DONTWAIT`.
    SharedSocket,
    /// A blocking pipe or terminal that could not be opened anew (no `/proc`, another user's): one
    /// call for each time the poll says ready, then the poll is asked again. A read of something
    /// readable returns what is there; a write of [`ASKED_WRITE_BYTES`] to something writable fits.
    Asked,
    /// A file or device that the poll refuses because it is always ready.
    AlwaysReady,
}

/// What the kernel promises to take from a writable pipe without blocking. POSIX: `PIPE_BUF` of
/// Linux.
const ASKED_WRITE_BYTES: usize = 4_096;

/// A descriptor, registered with the poll for as long as it lives in a wire.
#[derive(Debug)]
pub(super) struct Descriptor {
    fd: OwnedFd,
    manner: Manner,
    interest: Interest,
    token: Token,
    /// Whether a read that fills less than it could means that nothing is left. Holds for byte
    /// streams in the kernel's memory; not for terminals (a line a read) and packet-wise
    /// descriptors.
    short_read_empties: bool,
    /// The poll has seen the peer's end: a short read no longer stands for "nothing left", because
    /// no further edge announces the end.
    peer_done: bool,
    /// A read may find something.
    pub(super) readable: bool,
    /// A write may find room.
    pub(super) writable: bool,
}

/// Whether [`Descriptor::read`] may stop at a short read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShortRead {
    /// A short read has emptied it.
    Empties,
    /// Only `EAGAIN` says that nothing is left.
    SaysNothing,
}

impl Descriptor {
    /// Takes `fd` over and registers it. What the poll refuses as always ready becomes
    /// [`Manner::AlwaysReady`].
    pub(super) fn register(
        registry: &Registry,
        token: Token,
        fd: OwnedFd,
        manner: Manner,
        short_read: ShortRead,
        interest: Interest,
    ) -> io::Result<Self> {
        let mut manner = manner;
        match registry.register(&mut SourceFd(&fd.as_raw_fd()), token, interest) {
            Ok(()) => {}
            // epoll says EPERM and kqueue EINVAL for what never makes anyone wait.
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::PERM | Errno::INVAL)) => {
                manner = Manner::AlwaysReady;
            }
            Err(e) => return Err(e),
        }
        Ok(Self {
            fd,
            manner,
            interest,
            token,
            short_read_empties: short_read == ShortRead::Empties,
            peer_done: false,
            readable: manner == Manner::AlwaysReady,
            // Most descriptors start writable; the first write finds out.
            writable: manner != Manner::Asked,
        })
    }

    /// Ends the registration; closing alone would not end it while others share the description.
    pub(super) fn deregister(self, registry: &Registry) {
        if self.manner != Manner::AlwaysReady {
            // Fails only for a descriptor that is not registered, which is what is asked for.
            let _ = registry.deregister(&mut SourceFd(&self.fd.as_raw_fd()));
        }
    }

    pub(super) const fn token(&self) -> Token {
        self.token
    }

    /// Whether it ends by itself without ever making anyone wait.
    pub(super) fn always_ready(&self) -> bool {
        self.manner == Manner::AlwaysReady
    }

    /// Notes what the poll said.
    pub(super) fn note(&mut self, event: &mio::event::Event) {
        let broken = event.is_error() || event.is_read_closed() || event.is_write_closed();
        self.readable |= event.is_readable() || broken;
        self.writable |= event.is_writable() || broken;
        self.peer_done |= broken;
    }

    /// Reads once; `Ok(0)` is the end. `WouldBlock` clears `readable`, and so does a short read
    /// where it can.
    pub(super) fn read(&mut self, kernel: &Kernel, into: &mut [u8]) -> io::Result<usize> {
        let asked = into.len();
        let fd = &self.fd;
        let got = retry_on_intr(|| {
            kernel.count_read();
            let flags = match self.manner {
                Manner::OwnSocket | Manner::OwnUnix => RecvFlags::empty(),
                Manner::SharedSocket => RecvFlags::DONTWAIT,
                Manner::Own | Manner::Asked | Manner::AlwaysReady => {
                    return rustix::io::read(fd, &mut *into);
                }
            };
            rustix::net::recv(fd, &mut *into, flags).map(|(n, _)| n)
        });
        match got {
            Ok(_) if self.manner == Manner::Asked => {
                self.readable = false;
                self.ask_again(kernel)?;
            }
            Ok(n) if n < asked && self.short_read_empties && !self.peer_done => {
                self.readable = false;
            }
            Err(Errno::AGAIN) => self.readable = false,
            Ok(_) | Err(_) => {}
        }
        Ok(got?)
    }

    /// Writes once; `WouldBlock` clears `writable`.
    pub(super) fn write(&mut self, kernel: &Kernel, bytes: &[u8]) -> io::Result<usize> {
        let fd = &self.fd;
        let put = retry_on_intr(|| {
            kernel.count_write();
            match self.manner {
                Manner::OwnSocket | Manner::OwnUnix => {
                    rustix::net::send(fd, bytes, SendFlags::empty())
                }
                Manner::SharedSocket => rustix::net::send(fd, bytes, SendFlags::DONTWAIT),
                Manner::Own | Manner::AlwaysReady => rustix::io::write(fd, bytes),
                Manner::Asked => {
                    rustix::io::write(fd, &bytes[..bytes.len().min(ASKED_WRITE_BYTES)])
                }
            }
        });
        match put {
            Ok(_) if self.manner == Manner::Asked => {
                self.writable = false;
                self.ask_again(kernel)?;
            }
            Err(Errno::AGAIN) => {
                self.writable = false;
                self.wait_for_room(kernel, true)?;
            }
            Ok(n) if n == bytes.len() => self.wait_for_room(kernel, false)?,
            Ok(_) | Err(_) => {}
        }
        Ok(put?)
    }

    /// Whether the poll is to tell of room, where that is not for ever.
    fn wait_for_room(&mut self, kernel: &Kernel, wait: bool) -> io::Result<()> {
        if self.manner != Manner::OwnUnix || self.interest.is_writable() == wait {
            return Ok(());
        }
        self.interest = if wait {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        self.ask_again(kernel)
    }

    /// An edge-triggered poll repeats what it knows when the registration is renewed.
    fn ask_again(&self, kernel: &Kernel) -> io::Result<()> {
        kernel.registry().reregister(
            &mut SourceFd(&self.fd.as_raw_fd()),
            self.token,
            self.interest,
        )
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mio::Events;
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    fn wait(kernel: &mut Kernel, descriptor: &mut Descriptor) -> bool {
        let mut events = Events::with_capacity(8);
        let patience = Some(Duration::from_secs(30));
        kernel.wait(&mut events, patience).expect("the poll works");
        for event in &events {
            descriptor.note(event);
        }
        !events.is_empty()
    }

    /// Registers a blocking descriptor as one that could not be opened anew.
    fn asked(kernel: &Kernel, fd: OwnedFd, interest: Interest) -> Descriptor {
        let (manner, short) = (Manner::Asked, ShortRead::Empties);
        Descriptor::register(kernel.registry(), Token(0), fd, manner, short, interest)
            .expect("a pipe can be polled")
    }

    #[test]
    fn a_blocking_pipe_is_read_without_blocking() {
        let mut kernel = Kernel::new().expect("a poll");
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let mut reader = asked(&kernel, reader, Interest::READABLE);
        assert!(!reader.readable, "nobody has said so yet");
        rustix::io::write(&writer, b"abcdef").expect("room");
        let (mut got, mut piece) = (Vec::new(), [0; 4]);
        while got.len() < 6 {
            assert!(wait(&mut kernel, &mut reader) && reader.readable);
            let n = reader.read(&kernel, &mut piece).expect("bytes");
            got.extend_from_slice(&piece[..n]);
            assert!(!reader.readable, "the poll is asked before the next read");
        }
        assert_eq!(got, b"abcdef");
        drop(writer);
        assert!(wait(&mut kernel, &mut reader));
        assert_eq!(reader.read(&kernel, &mut piece).expect("end"), 0);
    }

    #[test]
    fn a_blocking_pipe_is_written_without_blocking() {
        let mut kernel = Kernel::new().expect("a poll");
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
        let room = 64 * 1024;
        let mut writer = asked(&kernel, writer, Interest::WRITABLE);
        let mut put = 0;
        while put < room {
            assert!(wait(&mut kernel, &mut writer) && writer.writable);
            put += writer.write(&kernel, &[b'x'; 100_000]).expect("room");
        }
        // Full: the poll is silent until someone reads.
        let mut events = Events::with_capacity(8);
        kernel
            .wait(&mut events, Some(Duration::ZERO))
            .expect("the poll works");
        assert!(events.is_empty(), "{put} bytes are in it");
        rustix::io::read(&reader, &mut vec![0; room]).expect("bytes");
        assert!(wait(&mut kernel, &mut writer) && writer.writable);
    }

    #[test]
    fn a_file_is_always_ready() {
        let kernel = Kernel::new().expect("a poll");
        let null = std::fs::File::open("/dev/null").expect("every system has one");
        let mut null = asked(&kernel, null.into(), Interest::READABLE);
        assert!(null.always_ready() && null.readable);
        assert_eq!(null.read(&kernel, &mut [0; 8]).expect("end"), 0);
    }
}
