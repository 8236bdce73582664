//! What the world does, told to the machines.

use std::io;
use std::time::Duration;

use mio::Token;
use rustix::io::Errno;

use super::connect::{ATTEMPT_TIMEOUT, register};
use super::fault::{exhausted, fault, words};
use super::wire::{Flushed, Got, Open, Side, State, Wire};
use super::{
    Alarm, EventLoop, FIRST_TOKEN, Key, LAST_READS_MAX, Notice, PARENT, SIGNALS, Source, WAKER,
};
use crate::clock::Now;
use crate::codec::outbuf::OutBuf;
use crate::link::{Driven, FaultKind, IoEvent, IoFault};

/// How long a listener rests when the descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections taken from one listener in one turn before the others get theirs.
const ACCEPTS_PER_TURN: usize = 64;

/// Bytes written to one descriptor in one turn, give or take one write. A pipe of ours holds this much.
const TURN_WRITE_BYTES: usize = 1024 * 1024;

impl EventLoop {
    /// Everything after the wait, in the order that the contract of [`Driven`] promises.
    pub(super) fn dispatch(&mut self, machines: &mut [&mut dyn Driven], now: Now) {
        self.note_events();
        self.take_answers(now);
        self.ring_alarms(now);
        for _ in 0..self.notices.len() {
            if let Some((key, notice)) = self.notices.pop_front() {
                self.tell(machines, now, key, notice);
            }
        }
        std::mem::swap(&mut self.ready, &mut self.reading);
        for at in 0..self.reading.len() {
            let (key, side) = self.reading[at];
            self.attend(machines, now, key, side);
        }
        self.reading.clear();
        if self.stdin_is_over() {
            self.end_stdin(machines, now);
        }
        self.report_exits(machines, now);
        self.ring_deadlines(machines, now);
    }

    /// Writes what the machines have left, once for each wire.
    pub(super) fn flush(&mut self, machines: &mut [&mut dyn Driven], now: Now) {
        std::mem::swap(&mut self.dirty, &mut self.flushing);
        for at in 0..self.flushing.len() {
            self.flush_wire(machines, now, self.flushing[at]);
        }
        self.flushing.clear();
    }

    /// Moves readiness from the poll into flags and lists; no machine hears anything yet.
    fn note_events(&mut self) {
        for event in &self.events {
            let source = match event.token() {
                WAKER => continue,
                SIGNALS => {
                    let pending = self.signals.as_mut().map(|s| s.pending());
                    self.signals_seen.extend(pending.into_iter().flatten());
                    continue;
                }
                PARENT => {
                    self.last_reads = Some(LAST_READS_MAX);
                    continue;
                }
                Token(token) => {
                    debug_assert!(token >= FIRST_TOKEN, "token {token} is nobody's");
                    self.sources.get(&token)
                }
            };
            match source {
                Some(Source::Child(number)) => self.ended.push(*number),
                Some(Source::Wire(key, side)) => {
                    if let Some(wire) = self.wires.get_mut(key) {
                        let (read, write) = wire.note(event, *side);
                        if read && !std::mem::replace(wire.queued(*side), true) {
                            self.ready.push((*key, *side));
                        }
                        if write && !wire.dirty {
                            wire.dirty = true;
                            self.dirty.push(*key);
                        }
                    }
                }
                // Closed earlier in this turn.
                None => {}
            }
        }
    }

    fn take_answers(&mut self, now: Now) {
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

    fn ring_alarms(&mut self, now: Now) {
        while let Some((at, alarm)) = self.alarms.first().copied() {
            if at > now.up {
                return;
            }
            self.alarms.remove(&(at, alarm));
            match alarm {
                Alarm::Accept(key) => self.mark_ready(key, Side::Both),
                Alarm::Child(number) => {
                    self.ended.push(number);
                    self.tick_child(now, number);
                }
                Alarm::Connect(key) => {
                    if self.wires.get(&key).is_some_and(Wire::is_connecting) {
                        let error = io::ErrorKind::TimedOut.into();
                        self.next_address(key, now, error);
                    }
                }
            }
        }
    }

    fn tell(&mut self, machines: &mut [&mut dyn Driven], now: Now, key: Key, notice: Notice) {
        match notice {
            Notice::Opened => {
                let Some(open) = self.wires.get_mut(&key).and_then(Wire::open) else {
                    return;
                };
                open.told = true;
                self.hear(machines, now, key, IoEvent::Opened);
                // What was written or has arrived before goes its way now.
                self.mark_dirty(key);
                self.mark_ready(key, Side::Input);
                self.mark_ready(key, Side::Stderr);
            }
            Notice::Failed(fault) => self.hear(machines, now, key, IoEvent::Failed(fault)),
        }
    }

    /// Tells one thing and drains the machine.
    fn hear(&mut self, machines: &mut [&mut dyn Driven], now: Now, key: Key, event: IoEvent<'_>) {
        if let Some(machine) = machines.get_mut(key.machine) {
            self.told_early = true;
            machine.handle_io(now, key.wire, event);
            self.drain(machines, key.machine, now);
        }
    }

    /// A wire in the ready list has its turn.
    fn attend(&mut self, machines: &mut [&mut dyn Driven], now: Now, key: Key, side: Side) {
        let Some(wire) = self.wires.get_mut(&key) else {
            return;
        };
        *wire.queued(side) = false;
        match &wire.state {
            State::Resolving(_) => {}
            State::Connecting(_) => self.progress(key, now),
            State::Listening(_) => self.accept(machines, now, key),
            State::Open(_) => self.read(machines, now, key, side),
        }
    }

    /// A connection attempt may be decided.
    fn progress(&mut self, key: Key, now: Now) {
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

    fn next_address(&mut self, key: Key, now: Now, error: io::Error) {
        let token = self.token(Source::Wire(key, Side::Both));
        let Some(Wire {
            state: State::Connecting(connecting),
            ..
        }) = self.wires.get_mut(&key)
        else {
            return;
        };
        let old = connecting.socket.token();
        match connecting.next(self.poll.registry(), token, error) {
            Ok(()) => {
                self.forget(old);
                self.alarms
                    .retain(|(_, alarm)| *alarm != Alarm::Connect(key));
                if self.wires.get(&key).is_some_and(Wire::has_next_address) {
                    let until = now.after(ATTEMPT_TIMEOUT);
                    self.alarms.insert((until, Alarm::Connect(key)));
                }
            }
            Err(fault) => {
                self.forget(token);
                self.fail_later(key, fault);
            }
        }
    }

    fn connected(&mut self, key: Key) {
        self.alarms
            .retain(|(_, alarm)| *alarm != Alarm::Connect(key));
        let Some(wire) = self.wires.remove(&key) else {
            return;
        };
        let State::Connecting(connecting) = wire.state else {
            self.wires.insert(key, wire);
            return;
        };
        let mut open = Open::duplex(connecting.socket);
        open.tls = connecting.target.tls;
        open.told = false;
        if open.tls.is_none() {
            self.notices.push_back((key, Notice::Opened));
        }
        self.insert(key, wire.label, State::Open(Box::new(open)));
        self.keep_wishes(key, wire.paused, wire.close_write);
        // Either starts a TLS handshake; without TLS both wait for the notice.
        self.mark_dirty(key);
        self.mark_ready(key, Side::Both);
    }

    fn accept(&mut self, machines: &mut [&mut dyn Driven], now: Now, key: Key) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(Wire {
                state: State::Listening(listening),
                ..
            }) = self.wires.get(&key)
            else {
                return;
            };
            match listening.listener.accept() {
                Ok((stream, peer)) => {
                    let peer = peer.to_string();
                    let Some(machine) = machines.get_mut(key.machine) else {
                        return;
                    };
                    if let Some(wire) = machine.handle_accept(now, key.wire, &peer) {
                        let accepted = Key { wire, ..key };
                        self.take_accepted(accepted, stream.into(), peer);
                    }
                    self.drain(machines, key.machine, now);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) => {}
                Err(e) => {
                    // The connection still waits, and no edge will speak of it again. Reasons that
                    // belong to one connection (the peer's network is gone) pass with the pause, too.
                    log::warn!(
                        "accepting again in {} ms: {}",
                        ACCEPT_PAUSE.as_millis(),
                        words(&e)
                    );
                    let at = now.after(ACCEPT_PAUSE);
                    self.alarms.insert((at, Alarm::Accept(key)));
                    return;
                }
            }
        }
        self.mark_ready(key, Side::Both);
    }

    fn take_accepted(&mut self, key: Key, fd: std::os::fd::OwnedFd, peer: String) {
        let token = self.token(Source::Wire(key, Side::Both));
        match register(self.poll.registry(), token, fd) {
            Ok(socket) => {
                let open = Open::duplex(socket);
                self.insert(key, peer, State::Open(Box::new(open)));
            }
            Err(error) => {
                self.forget(token);
                let what = format!("connection from {peer}");
                let fault = fault(FaultKind::Exhausted, &what, &error);
                self.notices.push_back((key, Notice::Failed(fault)));
            }
        }
    }

    /// Reads from one side of a wire until it is dry, paused, gone, or has had its share of the turn.
    fn read(&mut self, machines: &mut [&mut dyn Driven], now: Now, key: Key, side: Side) {
        let mut share = self.turn_bytes_max;
        loop {
            let Some(wire) = self.wires.get_mut(&key) else {
                return;
            };
            let paused = wire.paused && side != Side::Stderr;
            let Some(open) = wire.open() else {
                return;
            };
            if !open.may_read(side) || (paused && open.told) || open.awaits_notice() {
                return;
            }
            if share == 0 {
                self.mark_ready(key, side);
                return;
            }
            let most = share.min(self.buffer.len());
            let got = open.read(self.poll.registry(), side, &mut self.buffer[..most]);
            if !self.after_tls(machines, now, key) {
                return;
            }
            match got {
                Ok(Got::Bytes(n)) => {
                    share -= n;
                    let Some(machine) = machines.get_mut(key.machine) else {
                        return;
                    };
                    let bytes = &self.buffer[..n];
                    let event = match side {
                        Side::Stderr => IoEvent::StderrBytes(bytes),
                        Side::Both | Side::Input | Side::Output => IoEvent::Bytes(bytes),
                    };
                    machine.handle_io(now, key.wire, event);
                    self.drain(machines, key.machine, now);
                }
                Ok(Got::Dry) => {}
                Ok(Got::Eof) => {
                    self.end_input(machines, now, key, side);
                    return;
                }
                Err(error) => {
                    self.read_failed(machines, now, key, side, &error);
                    return;
                }
            }
        }
    }

    /// What a TLS session did besides: a finished handshake is told, its records are sent. False when
    /// the machine has closed the wire.
    fn after_tls(&mut self, machines: &mut [&mut dyn Driven], now: Now, key: Key) -> bool {
        let Some(open) = self.wires.get_mut(&key).and_then(Wire::open) else {
            return false;
        };
        let Some(tls) = &open.tls else {
            return true;
        };
        let (wants_write, done) = (tls.wants_write(), !tls.handshaking());
        let opened = done && !std::mem::replace(&mut open.told, done);
        if opened {
            self.hear(machines, now, key, IoEvent::Opened);
        }
        if opened || wants_write {
            self.mark_dirty(key);
        }
        self.wires.contains_key(&key)
    }

    fn end_input(&mut self, machines: &mut [&mut dyn Driven], now: Now, key: Key, side: Side) {
        let Some(open) = self.wires.get_mut(&key).and_then(Wire::open) else {
            return;
        };
        open.drop_input(self.poll.registry(), side);
        if side != Side::Stderr {
            self.hear(machines, now, key, IoEvent::Eof);
        }
    }

    fn read_failed(
        &mut self,
        machines: &mut [&mut dyn Driven],
        now: Now,
        key: Key,
        side: Side,
        error: &io::Error,
    ) {
        let Some(wire) = self.wires.get_mut(&key) else {
            return;
        };
        // A terminal that has gone away says EIO; so does the stderr of a child whose reader failed.
        let hung_up = Errno::from_io_error(error) == Some(Errno::IO);
        if side == Side::Stderr || (self.host == Some(key) && hung_up) {
            self.end_input(machines, now, key, side);
            return;
        }
        let from = if self.host == Some(key) {
            "stdin"
        } else {
            &wire.label
        };
        let fault = wire.broken(&format!("cannot read from {from}"), error);
        self.fail_now(machines, now, key, fault);
    }

    fn fail_now(&mut self, machines: &mut [&mut dyn Driven], now: Now, key: Key, fault: IoFault) {
        self.take_apart(key);
        self.hear(machines, now, key, IoEvent::Failed(fault));
    }

    /// Whether stdin is to end because our parent has.
    pub(super) fn stdin_is_over(&self) -> bool {
        let waits = |key| match &self.wires.get(&key)?.state {
            State::Open(open) => Some(open.told && open.waits_for_input()),
            State::Resolving(_) | State::Connecting(_) | State::Listening(_) => None,
        };
        self.last_reads.is_some() && self.host.and_then(waits) == Some(true)
    }

    /// Our parent has ended: what it wrote is still read, in this turn and the next, then stdin is at
    /// its end.
    fn end_stdin(&mut self, machines: &mut [&mut dyn Driven], now: Now) {
        let (Some(key), Some(left)) = (self.host, self.last_reads) else {
            return;
        };
        let Some(wire) = self.wires.get_mut(&key) else {
            return;
        };
        // Paused reads may stay paused for ever: nobody reads our answers any more.
        let paused = wire.paused;
        let more = wire.open().is_some_and(|open| open.may_read(Side::Input));
        if more && !paused && left > 0 {
            self.last_reads = Some(left - 1);
            self.mark_ready(key, Side::Input);
        } else {
            self.end_input(machines, now, key, Side::Input);
        }
    }

    fn report_exits(&mut self, machines: &mut [&mut dyn Driven], now: Now) {
        while let Some(number) = self.ended.pop() {
            let Some(child) = self.children.get(&number) else {
                continue;
            };
            let Some(key) = child.wire else {
                self.abandon(number);
                continue;
            };
            let Some(report) = child.exit().filter(|_| !child.exit_told) else {
                continue;
            };
            // Whatever it wrote is in the pipes by now and comes first, within the limit of a turn.
            for side in [Side::Input, Side::Stderr] {
                let Some(wire) = self.wires.get_mut(&key) else {
                    break;
                };
                if !*wire.queued(side) {
                    wire.look_again(side);
                    self.read(machines, now, key, side);
                }
            }
            let Some(child) = self.children.get_mut(&number) else {
                continue;
            };
            child.exit_told = true;
            if child.wire == Some(key) {
                self.hear(machines, now, key, IoEvent::Exited(report));
            }
        }
    }

    fn ring_deadlines(&mut self, machines: &mut [&mut dyn Driven], now: Now) {
        for at in 0..machines.len() {
            let Some(due) = machines[at].next_deadline().filter(|d| d.at <= now.up) else {
                continue;
            };
            log::trace!("{}: machine {at} is due: {}", now.up, due.why);
            machines[at].handle_timeout(now);
            self.drain(machines, at, now);
            debug_assert!(
                machines[at].next_deadline().is_none_or(|d| d.at > now.up),
                "machine {at} is still due: {}",
                due.why
            );
        }
    }

    fn flush_wire(&mut self, machines: &mut [&mut dyn Driven], now: Now, key: Key) {
        let Some(wire) = self.wires.get_mut(&key) else {
            return;
        };
        wire.dirty = false;
        let close_write = wire.close_write;
        let Some(open) = wire.open().filter(|open| !open.awaits_notice()) else {
            return;
        };
        let mut nothing = OutBuf::new();
        let out = machines
            .get_mut(key.machine)
            .and_then(|machine| machine.outgoing(key.wire))
            .unwrap_or(&mut nothing);
        if !open.write_open {
            // Nobody will ever take it; kept, it would only grow.
            out.clear();
            return;
        }
        let waited = open.undrained || !out.is_empty();
        let registry = self.poll.registry();
        let written = match open.write(registry, out, TURN_WRITE_BYTES) {
            Ok(Flushed::All) if close_write && open.told => open.finish_write(registry),
            other => other,
        };
        open.undrained = waited && matches!(written, Ok(Flushed::Blocked | Flushed::More));
        match written {
            Ok(Flushed::All) if waited && open.told => {
                self.hear(machines, now, key, IoEvent::Drained);
            }
            Ok(Flushed::All | Flushed::Blocked) => {}
            Ok(Flushed::More) => self.mark_dirty(key),
            Err(error) if peer_stopped_reading(&error) && !open.told => {
                // A server that refuses the handshake says why before it goes.
                wire.look_again(Side::Both);
                self.mark_ready(key, Side::Both);
            }
            Err(error) if peer_stopped_reading(&error) => {
                out.clear();
                open.drop_output(registry);
                self.hear(machines, now, key, IoEvent::WriteClosed);
            }
            Err(error) => {
                let to = if self.host == Some(key) {
                    "stdout"
                } else {
                    &wire.label
                };
                let fault = wire.broken(&format!("cannot write to {to}"), &error);
                self.fail_now(machines, now, key, fault);
            }
        }
    }
}

/// Errors of a write that say nothing of the other direction.
fn peer_stopped_reading(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::PIPE | Errno::CONNRESET)
    )
}

impl Wire {
    /// Takes up what the poll says of one side. Returns whether to read and whether to write.
    fn note(&mut self, event: &mio::event::Event, side: Side) -> (bool, bool) {
        let paused = self.paused;
        match &mut self.state {
            State::Resolving(_) => (false, false),
            State::Listening(_) => (true, false),
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

    fn is_connecting(&self) -> bool {
        matches!(self.state, State::Connecting(_))
    }

    fn has_next_address(&self) -> bool {
        matches!(&self.state, State::Connecting(connecting) if connecting.has_next())
    }

    /// The fault of an open wire, or of its TLS handshake.
    fn broken(&self, what: &str, error: &io::Error) -> IoFault {
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
