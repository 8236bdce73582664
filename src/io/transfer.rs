//! Bytes from wires to machines and back.

use std::io;

use rustix::io::Errno;

use super::wire::{Flushed, Got, Side, Wire};
use super::{EventLoop, Key};
use crate::clock::Now;
use crate::codec::outbuf::OutBuf;
use crate::link::{Driven, IoEvent, IoFault};

/// Bytes written to one descriptor in one turn, give or take one write. A pipe of ours holds this
/// much.
pub(super) const TURN_WRITE_BYTES: usize = 1024 * 1024;

impl EventLoop {
    /// Reads from one side of a wire until it is dry, paused, gone, or has had its share of the
    /// turn.
    pub(super) fn read(
        &mut self,
        machines: &mut [&mut dyn Driven],
        now: Now,
        key: Key,
        side: Side,
    ) {
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
            let got = open.read(&self.kernel, side, &mut self.buffer[..most]);
            // A socket that a short read has emptied needs no second look.
            let over = open.tls.is_none() && !open.may_read(side);
            if open.tls.is_some() && !self.after_tls(machines, now, key) {
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
                    if over {
                        return;
                    }
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

    /// What a TLS session did besides: a finished handshake is told, its records are sent. False
    /// when the machine has closed the wire.
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

    pub(super) fn end_input(
        &mut self,
        machines: &mut [&mut dyn Driven],
        now: Now,
        key: Key,
        side: Side,
    ) {
        let Some(open) = self.wires.get_mut(&key).and_then(Wire::open) else {
            return;
        };
        open.drop_input(&self.kernel, side);
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
        // A terminal that has gone away says EIO; so does the stderr of a child whose reader
        // failed.
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

    pub(super) fn fail_now(
        &mut self,
        machines: &mut [&mut dyn Driven],
        now: Now,
        key: Key,
        fault: IoFault,
    ) {
        self.take_apart(key);
        self.hear(machines, now, key, IoEvent::Failed(fault));
    }

    pub(super) fn flush_wire(&mut self, machines: &mut [&mut dyn Driven], now: Now, key: Key) {
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
        let written = match open.write(&self.kernel, out, TURN_WRITE_BYTES) {
            Ok(Flushed::All) if close_write && open.told => open.finish_write(&self.kernel),
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
                open.drop_output(&self.kernel);
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
