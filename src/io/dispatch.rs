//! What the world does, told to the machines.

use mio::Token;

use super::child::News;
use super::file_watch::FileWatch;
use super::signals::HostSignal;
use super::wire::{Side, State};
use super::{
    Alarm, EventLoop, FILE, FIRST_TOKEN, Key, LAST_READS_MAX, PARENT, SIGNALS, Source, WAKER,
};
use crate::clock::Now;
use crate::link::{Driven, ExitReport, IoEvent};

/// When an exit is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Now,
    /// In the next turn, which does not sleep.
    Later,
}

impl EventLoop {
    /// Everything after the wait, in the order that the contract of [`Driven`] promises.
    pub(super) fn dispatch(&mut self, machines: &mut [&mut dyn Driven], now: Now) {
        self.note_events();
        self.take_answers(now);
        self.ring_alarms(now);
        for _ in 0..self.notices.len() {
            if let Some(key) = self.notices.pop_front() {
                self.tell(machines, now, key);
            }
        }
        std::mem::swap(&mut self.ready, &mut self.reading);
        for at in 0..self.reading.len() {
            let (key, side) = self.reading[at];
            self.attend(machines, now, key, side);
            // What is said on the wire that was heard leaves at once, so that its peer goes on while others
            // are heard. All else waits for more of its kind.
            if self.dirty.last() == Some(&key) {
                self.dirty.pop();
                self.flush_wire(machines, now, key);
            }
        }
        self.reading.clear();
        if self.stdin_is_over() {
            self.end_stdin(machines, now);
        }
        self.report_exits(machines, now);
    }

    /// Writes what the machines have left, once for each wire whose answer has not left at once.
    pub(super) fn flush(&mut self, machines: &mut [&mut dyn Driven], now: Now) {
        std::mem::swap(&mut self.dirty, &mut self.flushing);
        for at in 0..self.flushing.len() {
            self.flush_wire(machines, now, self.flushing[at]);
        }
        self.flushing.clear();
        self.step_finishing();
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
                FILE => {
                    if self.file.as_ref().is_some_and(FileWatch::has_changed) {
                        self.signals_seen.push_back(HostSignal::FileChanged);
                    }
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
                Some(Source::Finishing(number, side)) => {
                    if let Some(finishing) = self.finishing.get_mut(number) {
                        if finishing.note(event, *side) {
                            self.finishing_ready.push_back(*number);
                        }
                    }
                }
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

    fn ring_alarms(&mut self, now: Now) {
        while let Some((at, alarm)) = self.alarms.first().copied() {
            if at > now.up {
                return;
            }
            self.alarms.remove(&(at, alarm));
            match alarm {
                Alarm::Accept(key) => self.accept_again(key),
                Alarm::Finish(number) => self.let_go(number),
                Alarm::Child(number) => {
                    self.ended.push(number);
                    self.tick_child(now, number);
                }
                Alarm::Connect(key) => {
                    let error = std::io::ErrorKind::TimedOut.into();
                    self.next_address(key, now, error);
                }
            }
        }
    }

    /// Tells how the opening of a wire ended, unless the machine has closed it meanwhile.
    fn tell(&mut self, machines: &mut [&mut dyn Driven], now: Now, key: Key) {
        let Some(wire) = self.wires.get_mut(&key) else {
            return;
        };
        match &mut wire.state {
            State::Open(open) => {
                open.told = true;
                self.hear(machines, now, key, IoEvent::Opened);
                // What was written or has arrived before goes its way now.
                self.mark_dirty(key);
                self.mark_ready(key, Side::Input);
                self.mark_ready(key, Side::Stderr);
            }
            State::Failed(_) => {
                if let Some(State::Failed(fault)) = self.wires.remove(&key).map(|w| w.state) {
                    self.hear(machines, now, key, IoEvent::Failed(fault));
                }
            }
            State::Resolving(_) | State::Connecting(_) | State::Listening(_) => {}
        }
    }

    /// Tells one thing and drains the machine.
    pub(super) fn hear(
        &mut self,
        machines: &mut [&mut dyn Driven],
        now: Now,
        key: Key,
        event: IoEvent<'_>,
    ) {
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
            State::Resolving(_) | State::Failed(_) => {}
            State::Connecting(_) => self.progress(key, now),
            State::Listening(_) => self.accept(machines, now, key),
            State::Open(_) => self.read(machines, now, key, side),
        }
    }

    /// Whether stdin is to end because our parent has.
    pub(super) fn stdin_is_over(&self) -> bool {
        let waits = |key| match &self.wires.get(&key)?.state {
            State::Open(open) => Some(open.told && open.waits_for_input()),
            State::Resolving(_) | State::Connecting(_) | State::Listening(_) | State::Failed(_) => {
                None
            }
        };
        self.last_reads.is_some() && self.host.and_then(waits) == Some(true)
    }

    /// Our parent has ended: what it wrote is still read, in this turn and the next, then stdin is
    /// at its end.
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
        let mut later = Vec::new();
        while let Some(number) = self.ended.pop() {
            while let Some(child) = self.children.get_mut(&number) {
                let news = child.news();
                match (news, child.wire) {
                    (Some(News::Exited(_)), None) => {
                        self.child_finished(number);
                        self.abandon(number);
                        break;
                    }
                    (None, None) if child.is_killed() => {
                        self.abandon(number);
                        break;
                    }
                    (None, _) => break,
                    (Some(News::Started), Some(key)) => self.tell(machines, now, key),
                    (Some(News::Failed(fault)), Some(key)) => {
                        self.fail_now(machines, now, key, fault);
                    }
                    // Its wire was closed before it was there.
                    (Some(News::Started | News::Failed(_)), None) => {}
                    (Some(News::Exited(report)), Some(key)) => {
                        if child.exit_told {
                            break;
                        }
                        if self.report_exit(machines, now, key, number, report) == Told::Later {
                            later.push(number);
                        }
                        break;
                    }
                }
            }
            self.tick_child(now, number);
        }
        self.ended.append(&mut later);
    }

    /// Tells an exit, after what the child wrote before it.
    fn report_exit(
        &mut self,
        machines: &mut [&mut dyn Driven],
        now: Now,
        key: Key,
        number: usize,
        report: ExitReport,
    ) -> Told {
        // Whatever it wrote is in the pipes by now and comes first, within the limit of a turn.
        let mut waits = false;
        for side in [Side::Input, Side::Stderr] {
            let Some(wire) = self.wires.get_mut(&key) else {
                break;
            };
            if *wire.queued(side) {
                waits = true;
            } else {
                wire.look_again(side);
                self.read(machines, now, key, side);
            }
        }
        let Some(child) = self.children.get_mut(&number) else {
            return Told::Now;
        };
        // What stands in the ready list has its turn in the next one. Not more than once: whoever
        // else has the pipe may write for ever.
        if waits && !std::mem::replace(&mut child.exit_waited, true) {
            return Told::Later;
        }
        child.exit_told = true;
        if child.wire == Some(key) {
            self.hear(machines, now, key, IoEvent::Exited(report));
        }
        Told::Now
    }

    /// Tells machines whose time has come.
    pub(super) fn ring_deadlines(&mut self, machines: &mut [&mut dyn Driven], now: Now) {
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
}
