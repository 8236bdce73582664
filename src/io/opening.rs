//! Wires on their way to being open.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use mio::unix::SourceFd;
use mio::{Interest, Token};

use super::child::{ChildPipes, ChildProcess};
use super::connect::{ATTEMPT_TIMEOUT, Connecting, Target};
use super::descriptor::{Descriptor, Manner, ShortRead};
use super::fault::fault;
use super::listener::Listening;
use super::wire::{Open, Side, State, Wire};
use super::{Alarm, EventLoop, Key, Source, child, connect, host_stdio, resolver, unix_socket};
use crate::clock::Now;
use crate::link::{ChildSpec, FaultKind, IoFault, OpenSpec, TlsSpec};

impl EventLoop {
    pub(super) fn open(&mut self, key: Key, now: Now, spec: OpenSpec) {
        if let OpenSpec::Tcp {
            host,
            port,
            tls: Some(tls),
        } = &spec
        {
            if self.is_plain_tcp(key) {
                return self.protect(key, host, *port, tls);
            }
        }
        if let Some(wire) = self.wires.get_mut(&key) {
            // An adopted stream; for any other wire the machine has already heard how it stands.
            if let Some(open) = wire.open().filter(|open| open.told) {
                open.told = false;
                self.notices.push_back(key);
            }
            return;
        }
        let opened = match spec {
            OpenSpec::HostStdio => self.open_host(key, true),
            OpenSpec::HostStdin => self.open_host(key, false),
            OpenSpec::Tcp { host, port, tls } => self.open_tcp(key, now, &host, port, tls),
            OpenSpec::Unix { path } => self.open_unix(key, &path),
            OpenSpec::Listen { host, port } => self.open_listener(key, &host, port),
            OpenSpec::ListenUnix { path } => self.open_unix_listener(key, &path),
            OpenSpec::Child(spec) => self.open_child(key, now, &spec),
        };
        if let Err(fault) = opened {
            self.fail_later(key, fault);
        }
    }

    /// Whether it is a connection whose opening the machine has heard of, without TLS.
    fn is_plain_tcp(&mut self, key: Key) -> bool {
        let open = self.wires.get_mut(&key).and_then(Wire::open);
        open.is_some_and(|open| open.told && open.is_socket() && open.tls.is_none())
    }

    /// TLS on an open connection: what is behind a proxy's tunnel.
    fn protect(&mut self, key: Key, host: &str, port: u16, spec: &TlsSpec) {
        let host = connect::bare(host);
        let label = connect::label(host, port);
        let session = match self.tls.session(spec, host, &label) {
            Ok(session) => session,
            Err(fault) => return self.fail_later(key, fault),
        };
        if let Some(wire) = self.wires.get_mut(&key) {
            wire.label = label;
            if let Some(open) = wire.open() {
                open.tls = Some(Box::new(session));
                open.told = false;
            }
        }
        self.mark_dirty(key);
        self.mark_ready(key, Side::Both);
    }

    /// The wire is gone; the machine hears it in the next turn.
    pub(super) fn fail_later(&mut self, key: Key, fault: IoFault) {
        self.take_apart(key);
        self.insert(key, String::new(), State::Failed(fault));
        self.notices.push_back(key);
    }

    fn open_host(&mut self, key: Key, with_stdout: bool) -> Result<(), IoFault> {
        let label = match with_stdout {
            true => "stdin and stdout",
            false => "stdin",
        };
        let fault = |why: String| IoFault {
            kind: FaultKind::Exhausted,
            message: format!("cannot use {label}: {why}"),
        };
        if self.host_taken {
            return Err(fault("they are in use".to_owned()));
        }
        let (input, output) =
            host_stdio::take(with_stdout).map_err(|e| fault(super::fault::words(&e)))?;
        self.host_taken = true;

        let mut register = |end: host_stdio::End, side, interest| {
            let token = self.token(Source::Wire(key, side));
            let registry = self.kernel.registry();
            Descriptor::register(
                registry,
                token,
                end.fd,
                end.manner,
                end.short_read,
                interest,
            )
            .map_err(|e| fault(super::fault::words(&e)))
        };
        let input = register(input, Side::Input, Interest::READABLE)?;
        let output = output
            .map(|output| register(output, Side::Output, Interest::WRITABLE))
            .transpose()?;
        let mut open = Open::pair(input, output, None);
        open.told = false;
        self.insert(key, label.to_owned(), State::Open(Box::new(open)));
        self.notices.push_back(key);
        self.host = Some(key);
        Ok(())
    }

    fn open_tcp(
        &mut self,
        key: Key,
        now: Now,
        host: &str,
        port: u16,
        tls: Option<TlsSpec>,
    ) -> Result<(), IoFault> {
        let host = connect::bare(host);
        let label = connect::label(host, port);
        let session = match tls {
            Some(spec) => Some(Box::new(self.tls.session(&spec, host, &label)?)),
            None => None,
        };
        let target = Target {
            host: host.to_owned(),
            port,
            tls: session,
        };
        match resolver::literal(&target.host, port) {
            Some(address) => self.connect(key, now, target, vec![address]),
            None => {
                self.resolver.ask(key, &target.host, port)?;
                self.insert(key, label, State::Resolving(target));
                Ok(())
            }
        }
    }

    fn connect(
        &mut self,
        key: Key,
        now: Now,
        target: Target,
        addresses: Vec<std::net::SocketAddr>,
    ) -> Result<(), IoFault> {
        let label = target.label();
        let token = self.token(Source::Wire(key, Side::Both));
        let started = Connecting::start(self.kernel.registry(), token, target, addresses);
        let connecting = started.inspect_err(|_| self.forget(token))?;
        self.insert(key, label, State::Connecting(Box::new(connecting)));
        self.time_attempt(key, now);
        Ok(())
    }

    /// Gives the address that is being tried its time, if there is another one behind it.
    fn time_attempt(&mut self, key: Key, now: Now) {
        let Some(Wire {
            state: State::Connecting(connecting),
            ..
        }) = self.wires.get_mut(&key)
        else {
            return;
        };
        let next = connecting.has_next().then(|| now.after(ATTEMPT_TIMEOUT));
        let before = std::mem::replace(&mut connecting.alarm, next);
        if let Some(at) = before {
            self.alarms.remove(&(at, Alarm::Connect(key)));
        }
        if let Some(at) = next {
            self.alarms.insert((at, Alarm::Connect(key)));
        }
    }

    fn open_unix(&mut self, key: Key, path: &Path) -> Result<(), IoFault> {
        let label = unix_socket::label(path);
        let explain = |error: io::Error| {
            let what = format!("cannot connect to {label}");
            fault(FaultKind::Unreachable, &what, &error)
        };
        let socket = unix_socket::connect(path).map_err(explain)?;
        let token = self.token(Source::Wire(key, Side::Both));
        let registered = connect::register_unix(self.kernel.registry(), token, socket);
        let socket = registered.map_err(explain);
        let mut open = Open::duplex(socket.inspect_err(|_| self.forget(token))?);
        open.told = false;
        self.insert(key, label, State::Open(Box::new(open)));
        self.notices.push_back(key);
        Ok(())
    }

    fn open_listener(&mut self, key: Key, host: &str, port: u16) -> Result<(), IoFault> {
        let host = connect::bare(host);
        let token = self.token(Source::Wire(key, Side::Both));
        let bound = Listening::tcp(self.kernel.registry(), token, host, port);
        let listening = bound.inspect_err(|_| self.forget(token))?;
        let label = connect::label(host, port);
        self.insert(key, label, State::Listening(Box::new(listening)));
        Ok(())
    }

    fn open_unix_listener(&mut self, key: Key, path: &Path) -> Result<(), IoFault> {
        let token = self.token(Source::Wire(key, Side::Both));
        let bound = Listening::unix(self.kernel.registry(), token, path);
        let listening = bound.inspect_err(|_| self.forget(token))?;
        let label = unix_socket::label(path);
        self.insert(key, label, State::Listening(Box::new(listening)));
        Ok(())
    }

    fn open_child(&mut self, key: Key, now: Now, spec: &ChildSpec) -> Result<(), IoFault> {
        self.check_children_max(spec)?;
        let (child, pipes) = self.spawn(key, spec)?;
        let runs = child.runs_at_once();
        let number = self.watch_child(now, child);
        let mut register = |fd, side, interest| {
            let token = self.token(Source::Wire(key, side));
            let (manner, short) = (Manner::Own, ShortRead::Empties);
            Descriptor::register(self.kernel.registry(), token, fd, manner, short, interest)
        };
        let registered = register(pipes.stdout, Side::Input, Interest::READABLE).and_then(|out| {
            let stdin = register(pipes.stdin, Side::Output, Interest::WRITABLE)?;
            let stderr = register(pipes.stderr, Side::Stderr, Interest::READABLE)?;
            Ok(Open::pair(out, Some(stdin), Some(stderr)))
        });
        let mut open = registered.map_err(|e| {
            self.abandon(number);
            let what = format!("cannot start {}", child::label(spec));
            super::fault::fault(FaultKind::Exhausted, &what, &e)
        })?;
        open.child = Some(number);
        open.told = false;
        self.insert(key, child::label(spec), State::Open(Box::new(open)));
        // A guardian tells when it runs.
        if runs {
            self.notices.push_back(key);
        }
        Ok(())
    }

    /// Those that were killed and are not gone yet count apart: one that hangs in the kernel must
    /// not be replaced without end, one that ends in a moment must not be in the way.
    fn check_children_max(&self, spec: &ChildSpec) -> Result<(), IoFault> {
        let limit = self.children_max;
        let running = self.children.values().filter(|c| c.wire.is_some()).count();
        let ending = self.children.len() - running;
        if running < limit && ending < limit {
            return Ok(());
        }
        let (count, are) = if running < limit {
            (ending, "processes are being ended")
        } else {
            (running, "processes run")
        };
        Err(IoFault {
            kind: FaultKind::Exhausted,
            message: format!(
                "cannot start {}: {count} {are}, limit children_max {limit}",
                child::label(spec)
            ),
        })
    }

    fn spawn(&self, key: Key, spec: &ChildSpec) -> Result<(ChildProcess, ChildPipes), IoFault> {
        #[cfg(target_os = "linux")]
        if let Some(guardians) = &self.guardians {
            return child::spawn_guarded(guardians, key, spec);
        }
        child::spawn(key, spec)
    }

    /// Puts the child's exit into the poll, or on a tick.
    fn watch_child(&mut self, now: Now, mut child: ChildProcess) -> usize {
        let number = self.number();
        if let Some(watched) = child.watched() {
            let source = &mut SourceFd(&watched.as_raw_fd());
            let registry = self.kernel.registry();
            match registry.register(source, Token(number), Interest::READABLE) {
                Ok(()) => {
                    self.sources.insert(number, Source::Child(number));
                }
                Err(_) => child.unwatch(),
            }
        }
        self.children.insert(number, child);
        self.tick_child(now, number);
        number
    }

    pub(super) fn take_answers(&mut self, now: Now) {
        while let Some(answer) = self.resolver.poll() {
            let key = answer.key;
            // A wire that was closed meanwhile has no use for it.
            let Some(wire) = self.wires.remove(&key) else {
                continue;
            };
            let State::Resolving(target) = wire.state else {
                self.wires.insert(key, wire);
                continue;
            };
            let connected = answer
                .addresses
                .and_then(|addresses| self.connect(key, now, target, addresses));
            match connected {
                Ok(()) => self.keep_wishes(key, wire.paused, wire.close_write),
                Err(fault) => self.fail_later(key, fault),
            }
        }
    }

    /// What the machine asked of the wire before it was open.
    fn keep_wishes(&mut self, key: Key, paused: bool, close_write: bool) {
        if let Some(wire) = self.wires.get_mut(&key) {
            wire.paused = paused;
            wire.close_write = close_write;
        }
    }

    /// A connection attempt may be decided.
    pub(super) fn progress(&mut self, key: Key, now: Now) {
        let Some(Wire {
            state: State::Connecting(connecting),
            ..
        }) = self.wires.get(&key)
        else {
            return;
        };
        match connecting.outcome() {
            None => {}
            Some(Ok(())) => self.connected(key),
            Some(Err(error)) => self.next_address(key, now, error),
        }
    }

    pub(super) fn next_address(&mut self, key: Key, now: Now, error: io::Error) {
        let token = self.token(Source::Wire(key, Side::Both));
        let Some(Wire {
            state: State::Connecting(connecting),
            ..
        }) = self.wires.get_mut(&key)
        else {
            return;
        };
        let old = connecting.socket.token();
        match connecting.next(self.kernel.registry(), token, error) {
            Ok(()) => {
                self.forget(old);
                self.time_attempt(key, now);
            }
            Err(fault) => {
                self.forget(token);
                self.fail_later(key, fault);
            }
        }
    }

    fn connected(&mut self, key: Key) {
        let Some(wire) = self.wires.remove(&key) else {
            return;
        };
        let State::Connecting(connecting) = wire.state else {
            self.wires.insert(key, wire);
            return;
        };
        if let Some(at) = connecting.alarm {
            self.alarms.remove(&(at, Alarm::Connect(key)));
        }
        let mut open = Open::duplex(connecting.socket);
        open.tls = connecting.target.tls;
        open.told = false;
        if open.tls.is_none() {
            self.notices.push_back(key);
        }
        self.insert(key, wire.label, State::Open(Box::new(open)));
        self.keep_wishes(key, wire.paused, wire.close_write);
        // Either starts a TLS handshake; without TLS both wait for the notice.
        self.mark_dirty(key);
        self.mark_ready(key, Side::Both);
    }
}
