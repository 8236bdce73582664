//! Connections on their last bytes ([`IoRequest::Finish`](crate::link::IoRequest::Finish)).
//!
//! | state   | input                        | next    | what happens                       |
//! |---------|------------------------------|---------|------------------------------------|
//! | Sending | everything has left          | Waiting | our direction ends                 |
//! | Sending | everything has left, a file or terminal | gone | closed                     |
//! | Waiting | bytes                        | Waiting | dropped                            |
//! | Waiting | the peer's end               | gone    | closed                             |
//! | Waiting | a child's exit               | gone    | closed, and what it left is killed |
//! | any     | broken, time over, too many  | gone    | closed as it is                    |
//!
//! A socket that is closed while bytes of the peer are unread resets the connection, and the reset
//! may overtake our answer. So who answers before it has read everything (too many connections, a
//! body too long) waits for the peer's end. Source: RFC 9112 §9.6.

use std::io;

use super::kernel::Kernel;
use super::transfer::TURN_WRITE_BYTES;
use super::wire::{Flushed, Got, Open, Side, State};
use super::{Alarm, EventLoop, Key, Source};
use crate::clock::{Now, Uptime};
use crate::codec::outbuf::OutBuf;

/// A connection that its machine has forgotten.
#[derive(Debug)]
pub(super) struct Finishing {
    pub(super) open: Open,
    /// What the machine had left to say.
    out: OutBuf,
    until: Uptime,
    /// Stands in the list of those that may get on.
    pub(super) queued: bool,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is over.
    Done,
    /// The poll will tell.
    Waits,
    /// There is more to do, but others are to have their turn.
    More,
}

impl Finishing {
    /// Takes up what the poll says; whether there is something to do.
    pub(super) fn note(&mut self, event: &mio::event::Event, side: Side) -> bool {
        if let Some(descriptor) = self.open.side(side) {
            descriptor.note(event);
        }
        !std::mem::replace(&mut self.queued, true)
    }

    /// Sends what is left and drops what comes, at most `share` bytes of it.
    fn step(&mut self, kernel: &Kernel, buffer: &mut [u8], share: usize) -> io::Result<Step> {
        let mut sent = Flushed::All;
        if self.open.write_open {
            sent = self.open.write(kernel, &mut self.out, TURN_WRITE_BYTES)?;
            if sent == Flushed::All {
                sent = self.open.finish_write(kernel)?;
            }
        }
        if !self.open.write_open && !self.open.is_socket() && self.open.child.is_none() {
            return Ok(Step::Done);
        }
        let mut left = share;
        while left > 0 && self.open.may_read(Side::Both) {
            let most = left.min(buffer.len());
            match self.open.read(kernel, Side::Both, &mut buffer[..most])? {
                Got::Bytes(n) => left -= n,
                Got::Dry => {}
                Got::Eof => self.open.read_open = false,
            }
        }
        if !self.open.write_open && !self.open.read_open && self.open.child.is_none() {
            return Ok(Step::Done);
        }
        if sent == Flushed::More || left == 0 {
            return Ok(Step::More);
        }
        Ok(Step::Waits)
    }
}

impl EventLoop {
    /// The machine forgets the wire; we keep it until everything has left and the peer is done.
    pub(super) fn finish(&mut self, now: Now, key: Key, out: OutBuf) {
        let told = self.wires.get_mut(&key).and_then(|wire| wire.open());
        if told.is_none_or(|open| !open.told || (!open.write_open && !open.is_socket())) {
            self.take_apart(key);
            return;
        }
        let Some(wire) = self.wires.remove(&key) else {
            return;
        };
        let State::Open(open) = wire.state else {
            return;
        };
        if let Some(child) = open.child.and_then(|child| self.children.get_mut(&child)) {
            child.wire = None;
        }
        if self.host == Some(key) {
            self.host = None;
        }
        let number = self.number();
        for (side, descriptor) in open.descriptors() {
            let token = descriptor.token().0;
            self.sources.insert(token, Source::Finishing(number, side));
        }
        let until = now.after(self.finish_timeout);
        self.alarms.insert((until, Alarm::Finish(number)));
        self.finishing.insert(
            number,
            Finishing {
                open: *open,
                out,
                until,
                queued: true,
            },
        );
        self.finishing_ready.push_back(number);
        if self.finishing.len() > self.finishing_max {
            if let Some((oldest, _)) = self.finishing.first_key_value() {
                self.let_go(*oldest);
            }
        }
    }

    /// Gets on with those that may.
    pub(super) fn step_finishing(&mut self) {
        for _ in 0..self.finishing_ready.len() {
            let Some(number) = self.finishing_ready.pop_front() else {
                return;
            };
            let Some(finishing) = self.finishing.get_mut(&number) else {
                continue;
            };
            finishing.queued = false;
            match finishing.step(&self.kernel, &mut self.buffer, self.turn_bytes_max) {
                Ok(Step::Waits) => {}
                Ok(Step::More) => {
                    finishing.queued = true;
                    self.finishing_ready.push_back(number);
                }
                Ok(Step::Done) | Err(_) => self.let_go(number),
            }
        }
    }

    /// This child has ended: whoever let it finish in good order has what it wanted.
    pub(super) fn child_finished(&mut self, child: usize) {
        let mut all = self.finishing.iter();
        let found = all.find(|(_, finishing)| finishing.open.child == Some(child));
        if let Some((number, _)) = found {
            self.let_go(*number);
        }
    }

    /// Closes it, whatever is left.
    pub(super) fn let_go(&mut self, number: usize) {
        if let Some(finishing) = self.finishing.remove(&number) {
            self.alarms
                .remove(&(finishing.until, Alarm::Finish(number)));
            self.release_open(finishing.open);
        }
    }
}
