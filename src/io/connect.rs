//! TCP before it is open: addresses tried in order.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_nodelay, socket_error};

use super::descriptor::{Descriptor, Manner, ShortRead};
use super::fault::{exhausted, fault};
use super::tls::TlsSession;
use crate::clock::Uptime;
use crate::link::{FaultKind, IoFault};
use crate::secret::Quoted;

/// How long one address may stay silent while there is another one to try. Long enough for a far
/// host, short enough that a dead IPv6 route leaves most of `gateway_open_timeout` to IPv4.
pub(super) const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a TCP wire is to go.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) host: String,
    pub(super) port: u16,
    /// Made before anything else, so that a missing CA file costs no connection.
    pub(super) tls: Option<Box<TlsSession>>,
}

impl Target {
    /// `host:port`, with brackets around an IPv6 literal.
    pub(super) fn label(&self) -> String {
        label(&self.host, self.port)
    }
}

/// An address as machines are to spell it; people write IPv6 with brackets.
pub(super) fn bare(host: &str) -> &str {
    let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    inner.unwrap_or(host)
}

pub(super) fn label(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{}]:{port}", Quoted(host))
    } else {
        format!("{}:{port}", Quoted(host))
    }
}

/// A connection attempt and the addresses behind it.
#[derive(Debug)]
pub(super) struct Connecting {
    pub(super) target: Target,
    pub(super) socket: Descriptor,
    rest: std::vec::IntoIter<SocketAddr>,
    tried: Vec<SocketAddr>,
    /// When the next address gets its turn.
    pub(super) alarm: Option<Uptime>,
}

impl Connecting {
    /// Starts with the first of `addresses` that can be tried at all.
    pub(super) fn start(
        registry: &Registry,
        token: Token,
        target: Target,
        addresses: Vec<SocketAddr>,
    ) -> Result<Self, IoFault> {
        let mut rest = addresses.into_iter();
        let mut tried = Vec::new();
        let none = io::Error::other("it has no address");
        let socket = attempt(registry, token, &target, &mut rest, &mut tried, none)?;
        Ok(Self {
            target,
            socket,
            rest,
            tried,
            alarm: None,
        })
    }

    /// The attempt came to nothing: on to the next address under a new token.
    pub(super) fn next(
        &mut self,
        registry: &Registry,
        token: Token,
        error: io::Error,
    ) -> Result<(), IoFault> {
        let socket = attempt(
            registry,
            token,
            &self.target,
            &mut self.rest,
            &mut self.tried,
            error,
        )?;
        std::mem::replace(&mut self.socket, socket).deregister(registry);
        Ok(())
    }

    /// Whether another address waits behind this attempt.
    pub(super) fn has_next(&self) -> bool {
        self.rest.len() > 0
    }

    /// `Some` once it is decided: connected, or why not.
    pub(super) fn outcome(&self) -> Option<io::Result<()>> {
        if !self.socket.readable && !self.socket.writable {
            return None;
        }
        match socket_error(&self.socket) {
            Ok(Ok(())) => {}
            Ok(Err(e)) | Err(e) => return Some(Err(e.into())),
        }
        match rustix::net::getpeername(&self.socket) {
            Ok(_) => Some(Ok(())),
            Err(Errno::NOTCONN | Errno::INPROGRESS) => None,
            Err(e) => Some(Err(e.into())),
        }
    }
}

/// Tries addresses until the kernel accepts one; `error` is the reason so far.
fn attempt(
    registry: &Registry,
    token: Token,
    target: &Target,
    rest: &mut std::vec::IntoIter<SocketAddr>,
    tried: &mut Vec<SocketAddr>,
    error: io::Error,
) -> Result<Descriptor, IoFault> {
    let mut last = error;
    for address in rest.by_ref() {
        tried.push(address);
        let fd = TcpStream::connect(address).map(OwnedFd::from);
        match fd.and_then(|fd| register_tcp(registry, token, fd)) {
            Ok(mut socket) => {
                // Not connected yet: the poll says when it is decided.
                socket.writable = false;
                return Ok(socket);
            }
            Err(e) => last = e,
        }
        if exhausted(&last) {
            break;
        }
    }
    let mut what = format!("cannot connect to {}", target.label());
    if super::resolver::literal(&target.host, target.port).is_none() && !tried.is_empty() {
        let shown: Vec<String> = tried.iter().map(|a| a.ip().to_string()).collect();
        what.push_str(&format!(" (tried {})", shown.join(", ")));
    }
    Err(fault(FaultKind::Unreachable, &what, &last))
}

/// Registers a TCP socket of our own for both directions, without Nagle's delay.
pub(super) fn register_tcp(
    registry: &Registry,
    token: Token,
    fd: OwnedFd,
) -> io::Result<Descriptor> {
    // Fails on a socket that is already reset; the next read says so in better words.
    let _ = set_tcp_nodelay(&fd, true);
    let (manner, both) = (Manner::OwnSocket, Interest::READABLE | Interest::WRITABLE);
    Descriptor::register(registry, token, fd, manner, ShortRead::Empties, both)
}

/// Registers a Unix socket of our own for both directions.
pub(super) fn register_unix(
    registry: &Registry,
    token: Token,
    fd: OwnedFd,
) -> io::Result<Descriptor> {
    let (manner, input) = (Manner::OwnUnix, Interest::READABLE);
    Descriptor::register(registry, token, fd, manner, ShortRead::Empties, input)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use mio::Poll;
    use rustix::net::sockopt::tcp_nodelay;

    use super::*;

    #[test]
    fn brackets_are_for_people() {
        assert_eq!(bare("[::1]"), "::1");
        assert_eq!(bare("::1"), "::1");
        assert_eq!(bare("[::1"), "[::1");
        assert_eq!(label(bare("[::1]"), 80), "[::1]:80");
        assert_eq!(label("localhost", 80), "localhost:80");
    }

    #[test]
    fn no_segment_waits_for_another_one() {
        let poll = Poll::new().expect("a poll");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let target = Target {
            host: address.ip().to_string(),
            port: address.port(),
            tls: None,
        };
        let outgoing = Connecting::start(poll.registry(), Token(0), target, vec![address]);
        let outgoing = outgoing.expect("someone listens");
        let (accepted, _) = listener.accept().expect("it connects");
        let accepted = register_tcp(poll.registry(), Token(1), accepted.into());
        assert!(tcp_nodelay(&outgoing.socket).expect("a socket"));
        assert!(tcp_nodelay(accepted.expect("room in the poll")).expect("a socket"));
    }
}
