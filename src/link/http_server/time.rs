//! The deadlines of a connection.

use std::time::Duration;

use super::{HttpConnection, Phase};
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::http_body::BodyLimits;
use crate::codec::outbuf::OutBuf;
use crate::limits::Limits;

/// The limits that a connection keeps to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) body: BodyLimits,
    pub(super) target_bytes_max: usize,
    pub(super) pipelined_requests_max: usize,
    pub(super) out_high_bytes: usize,
    pub(super) out_low_bytes: usize,
    pub(super) header_timeout: Duration,
    pub(super) body_timeout: Duration,
    pub(super) idle_timeout: Duration,
    write_stall_timeout: Duration,
    pub(super) trim_interval: Duration,
    pub(super) body_buffer_bytes_max: usize,
    probe_interval: Duration,
    probes_max: usize,
}

impl From<&Limits> for Bounds {
    fn from(limits: &Limits) -> Self {
        Self {
            body: BodyLimits::from(limits),
            target_bytes_max: limits.target_bytes_max,
            pipelined_requests_max: limits.pipelined_requests_max,
            out_high_bytes: limits.out_high_bytes,
            out_low_bytes: limits.out_low_bytes,
            header_timeout: limits.header_timeout,
            body_timeout: limits.body_timeout,
            idle_timeout: limits.idle_timeout,
            write_stall_timeout: limits.write_stall_timeout,
            trim_interval: limits.buffer_trim_interval,
            body_buffer_bytes_max: limits.body_buffer_bytes_max,
            probe_interval: limits.half_close_probe_interval,
            probes_max: limits.half_close_probes_max,
        }
    }
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Nothing,
    /// The end of a head.
    Head(Uptime),
    /// The end of a body.
    Body(Uptime),
    /// The next request.
    Idle(Uptime),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    pub(super) wait: Wait,
    /// When something left last, or began to wait.
    moved: Uptime,
    /// How much waited then.
    unsent: usize,
    pub(super) trim: Option<Uptime>,
    /// The next probe, and how many there were.
    pub(super) probe: Option<(Uptime, u32)>,
}

impl Clocks {
    pub(super) fn new(bounds: &Bounds, now: Now) -> Self {
        Self {
            wait: Wait::Head(now.after(bounds.header_timeout)),
            moved: now.up,
            unsent: 0,
            trim: None,
            probe: None,
        }
    }

    /// So much waits now, before this input adds to it.
    pub(super) const fn look(&mut self, unsent: usize, now: Now) {
        if unsent < self.unsent {
            self.moved = now.up;
            self.unsent = unsent;
        }
    }

    /// Something was written.
    pub(super) fn wrote(&mut self, unsent: usize, bounds: &Bounds, now: Now) {
        if self.unsent == 0 {
            self.moved = now.up;
        }
        self.unsent = unsent;
        self.trim = Some(now.after(bounds.trim_interval));
    }

    /// Reading was stopped by us and goes on: the client gets its time again.
    pub(super) fn restart(&mut self, phase: &Phase, bounds: &Bounds, now: Now) {
        match (phase, self.wait) {
            (Phase::Head, Wait::Head(_)) => {
                self.wait = Wait::Head(now.after(bounds.header_timeout));
            }
            (Phase::Body(_), Wait::Body(_)) => {
                self.wait = Wait::Body(now.after(bounds.body_timeout));
            }
            (
                Phase::Head
                | Phase::Body(_)
                | Phase::Deciding(_)
                | Phase::Done
                | Phase::Leaving
                | Phase::Closed,
                _,
            ) => {}
        }
    }

    fn stall(&self, bounds: &Bounds) -> Uptime {
        self.moved.after(bounds.write_stall_timeout)
    }

    /// The next deadline; `sending` says that bytes wait, `paused` that we do not read.
    pub(super) fn next(&self, bounds: &Bounds, sending: bool, paused: bool) -> Option<Deadline> {
        let wait = match self.wait {
            Wait::Head(at) if !paused => Some(Deadline::new(at, "http request head")),
            Wait::Body(at) if !paused => Some(Deadline::new(at, "http request body")),
            Wait::Idle(at) => Some(Deadline::new(at, "http connection idle")),
            Wait::Head(_) | Wait::Body(_) | Wait::Nothing => None,
        };
        let stall = sending.then(|| Deadline::new(self.stall(bounds), "http client reads nothing"));
        let trim = self.trim.map(|at| Deadline::new(at, "http buffers"));
        let probe = self
            .probe
            .map(|(at, _)| Deadline::new(at, "http client probe"));
        [wait, stall, trim, probe]
            .into_iter()
            .fold(None, Deadline::earlier)
    }
}

impl HttpConnection {
    /// Does what is due.
    pub(super) fn ring(&mut self, now: Now) {
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        if !self.out.is_empty() && self.clocks.stall(&self.bounds) <= now.up {
            return self.close();
        }
        match self.clocks.wait {
            Wait::Head(at) if at <= now.up && !self.asks.paused => {
                self.clocks.wait = Wait::Nothing;
                self.head_is_late();
            }
            Wait::Body(at) if at <= now.up && !self.asks.paused => {
                self.clocks.wait = Wait::Nothing;
                let limit = self.bounds.body_timeout.as_millis();
                let why = format!("request body did not end within {limit} ms");
                self.fail_body(408, &why);
            }
            Wait::Idle(at) if at <= now.up => return self.close(),
            Wait::Head(_) | Wait::Body(_) | Wait::Idle(_) | Wait::Nothing => {}
        }
        if self.clocks.trim.is_some_and(|at| at <= now.up) {
            self.clocks.trim = None;
            self.trim();
        }
        if let Some((at, probes)) = self.clocks.probe {
            if at <= now.up {
                self.clocks.probe = None;
                self.probe();
                self.expect_probe(probes + 1);
            }
        }
    }

    /// Sends the next probe later, if the client may be gone and deserves one more.
    pub(super) fn expect_probe(&mut self, probes: u32) {
        let more = usize::try_from(probes).is_ok_and(|sent| sent < self.bounds.probes_max);
        if self.ended && !self.exchanges.is_empty() && more {
            let doubled = 2_u32.saturating_pow(probes);
            let wait = self.bounds.probe_interval.saturating_mul(doubled);
            self.clocks.probe = Some((self.now.after(wait), probes));
        }
    }

    fn head_is_late(&mut self) {
        if self.reader.has_begun() {
            let limit = self.bounds.header_timeout.as_millis();
            self.refuse(
                false,
                408,
                &format!("request head did not end within {limit} ms"),
            );
        } else {
            self.close();
        }
    }

    /// Gives back what is not in use.
    fn trim(&mut self) {
        if self.out.is_empty() {
            self.out = OutBuf::new();
        }
        if self.stash.is_empty() {
            self.stash = Vec::new();
        }
        if self.body.is_empty() {
            self.body = Vec::new();
        }
        if self.events.is_empty() {
            self.events = std::collections::VecDeque::new();
        }
        self.spare = Vec::new();
        self.scratch = Vec::new();
        self.head = None;
        self.terms = None;
        self.reader.trim();
        self.exchanges.trim();
    }
}
