//! The poll of a loop, and the calls that its wires have cost.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use mio::{Events, Poll, Registry};

/// Calls of the system that a loop has made, those left out that open and close something: in steady work
/// there are no others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SystemCalls {
    /// For readiness.
    pub waits: u64,
    /// For bytes of wires, those included that found none.
    pub reads: u64,
    /// For bytes to wires, those included that found no room.
    pub writes: u64,
}

impl SystemCalls {
    /// How many there were since `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            waits: self.waits - earlier.waits,
            reads: self.reads - earlier.reads,
            writes: self.writes - earlier.writes,
        }
    }

    /// All of them.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.waits + self.reads + self.writes
    }
}

/// See the module page. Nobody waits but by this, and bytes of wires pass through [`Descriptor`](super::descriptor::Descriptor)
/// alone, which counts its calls here.
#[derive(Debug)]
pub(super) struct Kernel {
    poll: Poll,
    calls: Cell<SystemCalls>,
}

impl Kernel {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            poll: Poll::new()?,
            calls: Cell::default(),
        })
    }

    pub(super) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    pub(super) fn calls(&self) -> SystemCalls {
        self.calls.get()
    }

    /// Waits for readiness.
    pub(super) fn wait(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        self.calls.get_mut().waits += 1;
        self.poll.poll(events, timeout)
    }

    /// A wire is read.
    pub(super) fn count_read(&self) {
        let mut calls = self.calls.get();
        calls.reads += 1;
        self.calls.set(calls);
    }

    /// A wire is written to.
    pub(super) fn count_write(&self) {
        let mut calls = self.calls.get();
        calls.writes += 1;
        self.calls.set(calls);
    }
}
