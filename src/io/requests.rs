//! What machines ask for, carried out.

use std::os::fd::AsRawFd;
use std::time::Duration;

use mio::unix::SourceFd;

use super::child::ChildProcess;
use super::descriptor::Descriptor;
use super::wire::{Open, Side, State, Wire};
use super::{Alarm, EventLoop, Key};
use crate::clock::Now;
use crate::link::{Driven, FaultKind, IoFault, IoRequest};

/// How often a child is asked whether it has ended, where no pidfd says so.
const CHILD_TICK: Duration = Duration::from_millis(25);

impl EventLoop {
    /// Carries out everything the machine asks for, until it asks for nothing more.
    pub(super) fn drain(&mut self, machines: &mut [&mut dyn Driven], machine: usize, now: Now) {
        let Some(driven) = machines.get_mut(machine) else {
            return;
        };
        while let Some(request) = driven.poll_io() {
            self.execute(*driven, machine, now, request);
        }
        // Told before anything is flushed, so that no answer claims what was not written.
        if let Some(fault) = self.journal_faults.remove(&machine) {
            self.told_early = true;
            driven.handle_journal_fault(now, fault);
            while let Some(request) = driven.poll_io() {
                self.execute(*driven, machine, now, request);
            }
        }
    }

    fn execute(&mut self, driven: &mut dyn Driven, machine: usize, now: Now, request: IoRequest) {
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
            IoRequest::Close(wire) => self.take_apart(key(wire)),
            IoRequest::Finish(wire) => {
                let out = driven.outgoing(wire).map(std::mem::take);
                self.finish(now, key(wire), out.unwrap_or_default());
            }
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

    /// After a fault nothing more is appended until the machine has heard of it: what follows a
    /// hole is worth nothing.
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
        let waits = match &mut wire.state {
            State::Open(open) => open.may_read(Side::Input),
            State::Listening(_) => true,
            State::Resolving(_) | State::Connecting(_) | State::Failed(_) => false,
        };
        if !paused && waits {
            self.mark_ready(key, Side::Input);
        }
    }

    /// Asks again later, if nothing else tells of the child's end.
    pub(super) fn tick_child(&mut self, now: Now, number: usize) {
        if self
            .children
            .get_mut(&number)
            .is_some_and(ChildProcess::needs_asking)
        {
            let at = now.after(CHILD_TICK);
            self.alarms.insert((at, Alarm::Child(number)));
        }
    }

    /// The child has no wire any more: it is killed with all it has started, and reaped now or when
    /// it ends.
    pub(super) fn abandon(&mut self, number: usize) {
        let Some(child) = self.children.get_mut(&number) else {
            return;
        };
        child.wire = None;
        child.kill();
        if child.try_reap() {
            if let Some(watched) = child.watched() {
                // Fails only when it is not registered.
                let _ = self
                    .kernel
                    .registry()
                    .deregister(&mut SourceFd(&watched.as_raw_fd()));
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
    pub(super) fn take_apart(&mut self, key: Key) {
        let Some(wire) = self.wires.remove(&key) else {
            return;
        };
        match wire.state {
            State::Resolving(_) | State::Failed(_) => {}
            State::Connecting(connecting) => {
                if let Some(at) = connecting.alarm {
                    self.alarms.remove(&(at, Alarm::Connect(key)));
                }
                self.release(connecting.socket);
            }
            State::Listening(mut listening) => {
                if let Some(at) = listening.resting_until {
                    self.alarms.remove(&(at, Alarm::Accept(key)));
                }
                self.sources.remove(&listening.token.0);
                listening.deregister(self.kernel.registry());
            }
            State::Open(open) => self.release_open(*open),
        }
        if self.host == Some(key) {
            self.host = None;
        }
    }

    pub(super) fn release_open(&mut self, open: Open) {
        if let Some(number) = open.child {
            self.abandon(number);
        }
        for descriptor in open.into_descriptors() {
            self.release(descriptor);
        }
    }

    fn release(&mut self, descriptor: Descriptor) {
        self.sources.remove(&descriptor.token().0);
        descriptor.deregister(self.kernel.registry());
    }
}
