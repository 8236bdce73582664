//! Listeners: binding one, and taking in who connects.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;

use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use rustix::io::Errno;

use super::connect::{self, label};
use super::fault::{exhausted, fault, words};
use super::unix_socket::{self, SocketFile};
use super::wire::{Open, Side, State, Wire};
use super::{Alarm, EventLoop, Key, Source};
use crate::clock::{Now, Uptime};
use crate::link::{Driven, FaultKind, IoFault};

/// Connections that may wait for us to accept them. No limit to be set: the system has a bound of its own
/// (Linux: `net.core.somaxconn`), and what waits costs us nothing.
const BACKLOG: i32 = 4_096;

/// A listener.
#[derive(Debug)]
pub(super) struct Listening {
    socket: Socket,
    pub(super) token: Token,
    /// The descriptors have run out: nothing is accepted before this moment.
    pub(super) resting_until: Option<Uptime>,
    /// The last accept found no descriptor; the log has said so.
    pub(super) starved: bool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    /// Fields are dropped in order: the file goes while its number is still ours.
    Unix {
        file: SocketFile,
        listener: UnixListener,
    },
}

/// A connection that came in.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) fd: OwnedFd,
    /// Who is at the other end: `127.0.0.1:40312`, `unix:uid=1000,pid=4242`.
    pub(super) peer: String,
    pub(super) tcp: bool,
}

impl Listening {
    /// Binds an address literal, with brackets or without, or `localhost` for 127.0.0.1.
    pub(super) fn tcp(
        registry: &Registry,
        token: Token,
        host: &str,
        port: u16,
    ) -> Result<Self, IoFault> {
        let what = format!("cannot listen on {}", label(host, port));
        let ip = match host {
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            other => other.parse().map_err(|_| IoFault {
                kind: FaultKind::Resolve,
                message: format!("{what}: not an address literal"),
            })?,
        };
        let explain = |error: io::Error| {
            let mut found = fault(FaultKind::Exhausted, &what, &error);
            if let Some(hint) = hint(&error, port) {
                found.message.push_str(hint);
            }
            found
        };
        // Sets SO_REUSEADDR: connections of a predecessor that still linger do not matter.
        let listener = TcpListener::bind(SocketAddr::new(ip, port)).map_err(explain)?;
        rustix::net::listen(&listener, BACKLOG).map_err(|e| explain(e.into()))?;
        Self::register(registry, token, Socket::Tcp(listener)).map_err(explain)
    }

    /// Makes a socket file and listens on it.
    pub(super) fn unix(registry: &Registry, token: Token, path: &Path) -> Result<Self, IoFault> {
        let what = format!("cannot listen on {}", unix_socket::label(path));
        let (listener, file) = unix_socket::listen(path).map_err(|why| IoFault {
            kind: FaultKind::Exhausted,
            message: format!("{what}: {why}"),
        })?;
        let listener = std::os::unix::net::UnixListener::from(listener);
        let socket = Socket::Unix {
            file,
            listener: UnixListener::from_std(listener),
        };
        Self::register(registry, token, socket)
            .map_err(|error| fault(FaultKind::Exhausted, &what, &error))
    }

    fn register(registry: &Registry, token: Token, mut socket: Socket) -> io::Result<Self> {
        match &mut socket {
            Socket::Tcp(listener) => registry.register(listener, token, Interest::READABLE)?,
            Socket::Unix { listener, .. } => {
                registry.register(listener, token, Interest::READABLE)?;
            }
        }
        Ok(Self {
            socket,
            token,
            resting_until: None,
            starved: false,
        })
    }

    /// Fails only for one that is not registered, which is what is asked for.
    pub(super) fn deregister(&mut self, registry: &Registry) {
        let _ = match &mut self.socket {
            Socket::Tcp(listener) => registry.deregister(listener),
            Socket::Unix { listener, .. } => registry.deregister(listener),
        };
    }

    /// The port it was given; a Unix socket has none.
    pub(super) fn port(&self) -> Option<u16> {
        match &self.socket {
            Socket::Tcp(listener) => Some(listener.local_addr().ok()?.port()),
            Socket::Unix { .. } => None,
        }
    }

    /// The next connection; `None` for one of a stranger, which is closed.
    pub(super) fn accept(&self) -> io::Result<Option<Accepted>> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                Ok(Some(Accepted {
                    fd: stream.into(),
                    peer: peer.to_string(),
                    tcp: true,
                }))
            }
            Socket::Unix { file, listener } => {
                let (stream, _) = listener.accept()?;
                let peer = match unix_socket::peer(&stream) {
                    Ok(Some(peer)) if peer.may_enter(unix_socket::our_uid()) => peer.to_string(),
                    Ok(Some(peer)) => {
                        log::warn!("{file} is not for {peer}, who was turned away");
                        return Ok(None);
                    }
                    Ok(None) => "unix".to_owned(),
                    Err(error) => {
                        log::warn!("{file}: someone was turned away: {}", words(&error));
                        return Ok(None);
                    }
                };
                Ok(Some(Accepted {
                    fd: stream.into(),
                    peer,
                    tcp: false,
                }))
            }
        }
    }
}

impl EventLoop {
    pub(super) fn accept(&mut self, machines: &mut [&mut dyn Driven], now: Now, key: Key) {
        for _ in 0..self.turn_accepts_max {
            let Some(Wire {
                state: State::Listening(listening),
                paused: false,
                ..
            }) = self.wires.get_mut(&key)
            else {
                return;
            };
            if listening.resting_until.is_some() {
                return;
            }
            match listening.accept() {
                Ok(accepted) => {
                    listening.starved = false;
                    let Some(machine) = machines.get_mut(key.machine) else {
                        return;
                    };
                    let Some(accepted) = accepted else {
                        continue;
                    };
                    if let Some(wire) = machine.handle_accept(now, key.wire, &accepted.peer) {
                        self.take_accepted(Key { wire, ..key }, accepted);
                    }
                    self.drain(machines, key.machine, now);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if concerns_one(&e) => {}
                Err(e) => {
                    // The connection still waits, and no edge will speak of it again.
                    if !std::mem::replace(&mut listening.starved, true) {
                        let pause = self.accept_pause_interval.as_millis();
                        log::warn!("trying to accept every {pause} ms: {}", words(&e));
                    }
                    let at = now.after(self.accept_pause_interval);
                    listening.resting_until = Some(at);
                    self.alarms.insert((at, Alarm::Accept(key)));
                    return;
                }
            }
        }
        self.mark_ready(key, Side::Both);
    }

    pub(super) fn accept_again(&mut self, key: Key) {
        if let Some(Wire {
            state: State::Listening(listening),
            ..
        }) = self.wires.get_mut(&key)
        {
            listening.resting_until = None;
        }
        self.mark_ready(key, Side::Both);
    }

    fn take_accepted(&mut self, key: Key, accepted: Accepted) {
        let Accepted { fd, peer, tcp } = accepted;
        let token = self.token(Source::Wire(key, Side::Both));
        let registry = self.kernel.registry();
        let registered = if tcp {
            connect::register_tcp(registry, token, fd)
        } else {
            connect::register_unix(registry, token, fd)
        };
        match registered {
            Ok(socket) => {
                let open = Open::duplex(socket);
                self.insert(key, peer, State::Open(Box::new(open)));
            }
            Err(error) => {
                self.forget(token);
                let what = format!("connection from {peer}");
                self.fail_later(key, fault(FaultKind::Exhausted, &what, &error));
            }
        }
    }
}

/// What to do about a bind that failed.
fn hint(error: &io::Error, port: u16) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        Errno::ADDRINUSE => Some(" (another process listens there)"),
        Errno::ACCESS if port < 1_024 => Some(" (ports below 1024 are reserved)"),
        Errno::ADDRNOTAVAIL => Some(" (this host does not have it)"),
        Errno::AFNOSUPPORT => Some(" (this host has no IPv6)"),
        _ => None,
    }
}

/// Whether a failed accept was about the one connection it took from the queue, so that the next
/// one may do better. Linux: accept(2), "Error handling".
pub(super) fn concerns_one(error: &io::Error) -> bool {
    !exhausted(error)
        && matches!(
            Errno::from_io_error(error),
            Some(
                Errno::INTR
                    | Errno::CONNABORTED
                    | Errno::NETDOWN
                    | Errno::PROTO
                    | Errno::NOPROTOOPT
                    | Errno::HOSTDOWN
                    | Errno::HOSTUNREACH
                    | Errno::OPNOTSUPP
                    | Errno::NETUNREACH
            )
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bind_that_failed_says_what_is_wrong() {
        let says = |errno: Errno, port| hint(&errno.into(), port).unwrap_or("nothing");
        assert!(says(Errno::ADDRINUSE, 8080).contains("another process"));
        assert!(says(Errno::ACCESS, 80).contains("below 1024"));
        assert_eq!(says(Errno::ACCESS, 8080), "nothing");
        assert!(says(Errno::ADDRNOTAVAIL, 80).contains("this host"));
    }

    #[test]
    fn want_of_descriptors_is_not_about_one_connection() {
        let one = |errno: Errno| concerns_one(&errno.into());
        assert!(one(Errno::CONNABORTED) && one(Errno::PROTO) && one(Errno::INTR));
        assert!(!one(Errno::MFILE) && !one(Errno::NFILE) && !one(Errno::NOMEM));
    }
}
