//! Our own stdin and stdout.
//!
//! Whoever started us may share both with others (a shell, its terminal, a sibling in a pipeline),
//! so their open file descriptions stay as they are:
//!
//! | what it is | how it is read or written |
//! |---|---|
//! | pipe, terminal | opened anew through `/proc/self/fd`: a description of our own, non-blocking |
//! | the same where that fails | one call for each time the poll says ready ([`Manner::Asked`]) |
//! | socket | `MSG_DONTWAIT` on each call |
//! | regular file, `/dev/null`, `/dev/full` | directly, in bounded pieces |
//!
//! The last row needs no reader thread: epoll refuses such files because they have no wait queue,
//! the kernel never makes anyone wait for a *peer* there, and a thread would only move the same
//! disk access elsewhere. (A file on a dead network mount stalls us; it would stall the thread and
//! the session too.)
//!
//! Descriptors 0 and 1 are then put on `/dev/null`. So closing the wire really closes it, and a
//! stray print of some library cannot end up between two messages.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use rustix::stdio::{dup2_stdin, dup2_stdout, stdin, stdout};

use super::descriptor::{Manner, ShortRead};

/// A descriptor and how to go about it.
#[derive(Debug)]
pub(super) struct End {
    pub(super) fd: OwnedFd,
    pub(super) manner: Manner,
    pub(super) short_read: ShortRead,
}

/// What a pipe may hold, if the system lets us: a message of 256 KiB then takes one write and one
/// read.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1024 * 1024;

/// Takes stdin over, and stdout where that is wanted. The second call would find `/dev/null`; the loop
/// makes only one.
pub(super) fn take(with_stdout: bool) -> io::Result<(End, Option<End>)> {
    let input = end(stdin(), OFlags::RDONLY, "/proc/self/fd/0")?;
    let output = with_stdout
        .then(|| end(stdout(), OFlags::WRONLY, "/proc/self/fd/1"))
        .transpose()?;
    // Without /dev/null (a bare chroot) both stay as they are, which costs only the closing.
    if let Ok(null) = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        dup2_stdin(&null)?;
        if with_stdout {
            dup2_stdout(&null)?;
        }
    }
    Ok((input, output))
}

fn end(fd: impl AsFd, access: OFlags, anew: &str) -> io::Result<End> {
    let kind = FileType::from_raw_mode(fstat(&fd)?.st_mode);
    let own = |fd: &dyn AsFd| rustix::io::fcntl_dupfd_cloexec(fd.as_fd(), 3);
    match kind {
        FileType::Fifo | FileType::CharacterDevice => {
            let flags = rustix::fs::fcntl_getfl(&fd)?;
            let packets = flags.intersects(packet_mode());
            // Opened anew, the wrong end of a pipe would turn into the right one.
            let mode = flags & OFlags::RWMODE;
            let right = mode == OFlags::RDWR || mode == access;
            let short_read = if kind == FileType::Fifo && !packets {
                ShortRead::Empties
            } else {
                ShortRead::SaysNothing
            };
            if kind == FileType::Fifo {
                enlarge(fd.as_fd());
            }
            let anew = if right { reopen(anew, access) } else { None };
            let (fd, manner) = match anew {
                Some(fd) => (fd, Manner::Own),
                None => (own(&fd)?, Manner::Asked),
            };
            Ok(End {
                fd,
                manner,
                short_read,
            })
        }
        FileType::Socket => {
            let stream = socket_type(&fd)? == SocketType::STREAM;
            let fd = own(&fd)?;
            let short_read = if stream {
                ShortRead::Empties
            } else {
                ShortRead::SaysNothing
            };
            Ok(End {
                fd,
                manner: Manner::SharedSocket,
                short_read,
            })
        }
        FileType::RegularFile
        | FileType::Directory
        | FileType::Symlink
        | FileType::BlockDevice
        | FileType::Unknown => Ok(End {
            fd: own(&fd)?,
            manner: Manner::AlwaysReady,
            short_read: ShortRead::SaysNothing,
        }),
    }
}

/// `NOCTTY`: a terminal must not become our controlling terminal by being opened.
#[cfg(target_os = "linux")]
fn reopen(anew: &str, access: OFlags) -> Option<OwnedFd> {
    let flags = access | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    open(anew, flags, Mode::empty()).ok()
}

/// Elsewhere `/dev/fd` duplicates the descriptor and its description with it.
#[cfg(not(target_os = "linux"))]
fn reopen(_anew: &str, _access: OFlags) -> Option<OwnedFd> {
    None
}

/// A pipe in packet mode gives one packet a read. Linux: pipe(2), `O_DIRECT`.
#[cfg(target_os = "linux")]
fn packet_mode() -> OFlags {
    OFlags::DIRECT
}

#[cfg(not(target_os = "linux"))]
fn packet_mode() -> OFlags {
    OFlags::empty()
}

#[cfg(target_os = "linux")]
fn enlarge(pipe: std::os::fd::BorrowedFd<'_>) {
    let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
}

#[cfg(not(target_os = "linux"))]
fn enlarge(_pipe: std::os::fd::BorrowedFd<'_>) {}
