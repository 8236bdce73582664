//! What machines ask for, carried out.

use std::os::fd::AsRawFd;

use mio::unix::SourceFd;
use mio::{Interest, Token};

use super::connect::{ATTEMPT_TIMEOUT, Connecting, Listening, Target};
use super::descriptor::{Descriptor, Manner, ShortRead};
use super::wire::{Open, Side, State, Wire};
use super::{Alarm, EventLoop, Key, Notice, Source, child, connect, host_stdio, resolver};
use crate::clock::Now;
use crate::link::{ChildSpec, Driven, FaultKind, IoFault, IoRequest, OpenSpec, TlsSpec};

/// How often a child is asked whether it has ended, where no pidfd says so.
const CHILD_TICK: std::time::Duration = std::time::Duration::from_millis(25);

impl EventLoop {
    /// Carries out everything the machine asks for, until it asks for nothing more.
    pub(super) fn drain(&mut self, machines: &mut [&mut dyn Driven], machine: usize, now: Now) {
        let Some(driven) = machines.get_mut(machine) else {
            return;
        };
        while let Some(request) = driven.poll_io() {
            self.execute(machine, now, request);
        }
        // Told before anything is flushed, so that no answer claims what was not written.
        if let Some(fault) = self.journal_faults.remove(&machine) {
            self.told_early = true;
            driven.handle_journal_fault(now, fault);
            while let Some(request) = driven.poll_io() {
                self.execute(machine, now, request);
            }
        }
    }

    fn execute(&mut self, machine: usize, now: Now, request: IoRequest) {
        let key = |wire| Key { machine, wire };
        match request {
            IoRequest::Open(wire, spec) => self.open(key(wire), now, spec),
            IoRequest::Flush(wire) => self.mark_dirty(key(wire)),
            IoRequest::PauseReads(wire, paused) => self.pause(key(wire), paused),
            IoRequest::CloseWrite(wire) => {
                if let Some(found) = self.wires.get_mut(&key(wire)) {
                    found.close_write = true;
                }
                self.mark_dirty(key(wire));
            }
            IoRequest::Close(wire) => self.close(key(wire)),
            IoRequest::Signal(wire, signal) => {
                let open = self.wires.get_mut(&key(wire)).and_then(Wire::open);
                let number = open.and_then(|open| open.child);
                if let Some(child) = number.and_then(|number| self.children.get(&number)) {
                    child.signal(signal);
                }
            }
            IoRequest::Append(record) => self.append(machine, &record),
        }
    }

    /// After a fault nothing more is appended until the machine has heard of it: what follows a hole is
    /// worth nothing.
    fn append(&mut self, machine: usize, record: &[u8]) {
        if self.journal_faults.contains_key(&machine) {
            return;
        }
        let appended = match self.journals.get_mut(&machine) {
            Some(journal) => journal.append(record),
            None => Err(IoFault {
                kind: FaultKind::Broken,
                message: "there is no journal to write to".to_owned(),
            }),
        };
        if let Err(fault) = appended {
            self.journal_faults.insert(machine, fault);
        }
    }

    pub(super) fn mark_dirty(&mut self, key: Key) {
        if let Some(wire) = self.wires.get_mut(&key) {
            if !wire.dirty {
                wire.dirty = true;
                self.dirty.push(key);
            }
        }
    }

    pub(super) fn mark_ready(&mut self, key: Key, side: Side) {
        if let Some(wire) = self.wires.get_mut(&key) {
            if !std::mem::replace(wire.queued(side), true) {
                self.ready.push((key, side));
            }
        }
    }

    fn pause(&mut self, key: Key, paused: bool) {
        let Some(wire) = self.wires.get_mut(&key) else {
            return;
        };
        wire.paused = paused;
        // What the poll has said meanwhile it will not say again.
        if !paused && wire.open().is_some_and(|open| open.may_read(Side::Input)) {
            self.mark_ready(key, Side::Input);
        }
    }

    fn open(&mut self, key: Key, now: Now, spec: OpenSpec) {
        if let Some(wire) = self.wires.get_mut(&key) {
            // An adopted stream; for any other wire the machine has already heard how it stands.
            if wire.open().is_some_and(|open| open.told) {
                self.notices.push_back((key, Notice::Opened));
            }
            return;
        }
        let opened = match spec {
            OpenSpec::HostStdio => self.open_host(key),
            OpenSpec::Tcp { host, port, tls } => self.open_tcp(key, now, host, port, tls),
            OpenSpec::Listen { host, port } => self.open_listener(key, &host, port),
            OpenSpec::Child(spec) => self.open_child(key, now, &spec),
        };
        if let Err(fault) = opened {
            self.fail_later(key, fault);
        }
    }

    /// The wire is gone; the machine hears it in the next turn.
    pub(super) fn fail_later(&mut self, key: Key, fault: IoFault) {
        self.take_apart(key);
        self.notices.push_back((key, Notice::Failed(fault)));
    }

    fn open_host(&mut self, key: Key) -> Result<(), IoFault> {
        let fault = |why: String| IoFault {
            kind: FaultKind::Exhausted,
            message: format!("cannot use stdin and stdout: {why}"),
        };
        if self.host_taken {
            return Err(fault("they are in use".to_owned()));
        }
        let (input, output) = host_stdio::take().map_err(|e| fault(super::fault::words(&e)))?;
        self.host_taken = true;

        let mut register = |end: host_stdio::End, side, interest| {
            let token = self.token(Source::Wire(key, side));
            let registry = self.poll.registry();
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
        let output = register(output, Side::Output, Interest::WRITABLE)?;
        let mut open = Open::pair(input, Some(output), None);
        open.told = false;
        self.insert(
            key,
            "stdin and stdout".to_owned(),
            State::Open(Box::new(open)),
        );
        self.notices.push_back((key, Notice::Opened));
        self.host = Some(key);
        Ok(())
    }

    fn open_tcp(
        &mut self,
        key: Key,
        now: Now,
        host: String,
        port: u16,
        tls: Option<TlsSpec>,
    ) -> Result<(), IoFault> {
        let label = connect::label(&host, port);
        let session = match tls {
            Some(spec) => Some(Box::new(self.tls.session(&spec, &host, &label)?)),
            None => None,
        };
        let target = Target {
            host,
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

    pub(super) fn connect(
        &mut self,
        key: Key,
        now: Now,
        target: Target,
        addresses: Vec<std::net::SocketAddr>,
    ) -> Result<(), IoFault> {
        let label = target.label();
        let token = self.token(Source::Wire(key, Side::Both));
        let started = Connecting::start(self.poll.registry(), token, target, addresses);
        let connecting = started.inspect_err(|_| self.forget(token))?;
        if connecting.has_next() {
            let until = now.after(ATTEMPT_TIMEOUT);
            self.alarms.insert((until, Alarm::Connect(key)));
        }
        self.insert(key, label, State::Connecting(Box::new(connecting)));
        Ok(())
    }

    fn open_listener(&mut self, key: Key, host: &str, port: u16) -> Result<(), IoFault> {
        let token = self.token(Source::Wire(key, Side::Both));
        let bound = Listening::bind(self.poll.registry(), token, host, port);
        let listening = bound.inspect_err(|_| self.forget(token))?;
        self.insert(key, connect::label(host, port), State::Listening(listening));
        Ok(())
    }

    fn open_child(&mut self, key: Key, now: Now, spec: &ChildSpec) -> Result<(), IoFault> {
        let (child, pipes) = child::spawn(key, spec)?;
        let number = self.watch_child(now, child);
        let mut register = |fd, side, interest| {
            let token = self.token(Source::Wire(key, side));
            let (manner, short) = (Manner::Own, ShortRead::Empties);
            Descriptor::register(self.poll.registry(), token, fd, manner, short, interest)
        };
        let registered = register(pipes.stdout, Side::Input, Interest::READABLE).and_then(|out| {
            let stdin = register(pipes.stdin, Side::Output, Interest::WRITABLE)?;
            let stderr = register(pipes.stderr, Side::Stderr, Interest::READABLE)?;
            Ok(Open::pair(out, Some(stdin), Some(stderr)))
        });
        let mut open = registered.map_err(|e| {
            if let Some(child) = self.children.get(&number) {
                child.signal(crate::link::Signal::Kill);
            }
            self.abandon(number);
            let what = format!("cannot start {}", child::label(spec));
            super::fault::fault(FaultKind::Exhausted, &what, &e)
        })?;
        open.child = Some(number);
        open.told = false;
        self.insert(key, child::label(spec), State::Open(Box::new(open)));
        self.notices.push_back((key, Notice::Opened));
        Ok(())
    }

    /// Puts the child's exit into the poll, or on a tick.
    fn watch_child(&mut self, now: Now, mut child: child::ChildProcess) -> usize {
        self.last_token += 1;
        let number = self.last_token;
        if let Some(pidfd) = &child.pidfd {
            let source = &mut SourceFd(&pidfd.as_raw_fd());
            let registry = self.poll.registry();
            match registry.register(source, Token(number), Interest::READABLE) {
                Ok(()) => {
                    self.sources.insert(number, Source::Child(number));
                }
                Err(_) => child.pidfd = None,
            }
        }
        self.children.insert(number, child);
        self.tick_child(now, number);
        number
    }

    /// Asks again later, if nothing else tells of the child's end.
    pub(super) fn tick_child(&mut self, now: Now, number: usize) {
        if self
            .children
            .get(&number)
            .is_some_and(|c| c.pidfd.is_none())
        {
            let at = now.after(CHILD_TICK);
            self.alarms.insert((at, Alarm::Child(number)));
        }
    }

    /// The child has no wire any more: it is reaped now, or when it ends.
    pub(super) fn abandon(&mut self, number: usize) {
        let Some(child) = self.children.get_mut(&number) else {
            return;
        };
        child.wire = None;
        if child.try_reap() {
            if let Some(pidfd) = &child.pidfd {
                // Fails only when it is not registered.
                let _ = self
                    .poll
                    .registry()
                    .deregister(&mut SourceFd(&pidfd.as_raw_fd()));
            }
            self.children.remove(&number);
            self.sources.remove(&number);
        }
    }

    pub(super) fn insert(&mut self, key: Key, label: String, state: State) {
        let before = self.wires.insert(key, Wire::new(label, state));
        debug_assert!(before.is_none(), "wire {key:?} is used twice");
    }

    /// Lets go of the wire; nothing of it is told any more.
    fn close(&mut self, key: Key) {
        self.take_apart(key);
        self.notices.retain(|(whose, _)| *whose != key);
    }

    pub(super) fn take_apart(&mut self, key: Key) {
        let Some(wire) = self.wires.remove(&key) else {
            return;
        };
        match wire.state {
            State::Resolving(_) => {}
            State::Connecting(connecting) => self.release(connecting.socket),
            State::Listening(mut listening) => {
                self.sources.remove(&listening.token.0);
                // Fails only when it is not registered.
                let _ = self.poll.registry().deregister(&mut listening.listener);
            }
            State::Open(open) => {
                if let Some(number) = open.child {
                    self.abandon(number);
                }
                for descriptor in open.into_descriptors() {
                    self.release(descriptor);
                }
            }
        }
        if self.host == Some(key) {
            self.host = None;
        }
    }

    fn release(&mut self, descriptor: Descriptor) {
        self.sources.remove(&descriptor.token().0);
        descriptor.deregister(self.poll.registry());
    }
}
