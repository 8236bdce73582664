//! A server that is a program: lines on its stdin and stdout, and its orderly end.
//!
//! | state    | input                       | next     | output                                        |
//! |----------|-----------------------------|----------|-----------------------------------------------|
//! | Idle     | `start`                     | Opening  | the request to start it                       |
//! | Opening  | Opened                      | Open     | Up                                            |
//! | Opening, Open | Failed                 | Closed   | Closed(Io)                                    |
//! | Open     | Exited                      | Draining | its input is closed, SIGTERM for what is left |
//! | Open     | Eof                         | Ended    | its input is closed                           |
//! | Ended    | Exited                      | Closed   | Closed(Exited)                                |
//! | Ended    | `EXIT_WAIT`                 | Closing  | Ending(OutputEnded)                           |
//! | Open, Ended | `REFUSED_WAIT` after it would not take a message   | Closing | Ending(Violation)    |
//! | Draining | Eof or `DRAIN`              | Closed   | Closed(what ended it)                         |
//! | Opening, Open, Ended | `close`         | Closing  | its input is closed                           |
//! | Closing  | grace interval              | Closing  | SIGTERM, at the next SIGKILL                  |
//! | Closing  | Exited, after Eof           | Closed   | Closed(what was decided before)               |
//! | Closing  | Exited, before Eof          | Draining | SIGTERM for what is left                      |
//! | Closing  | `KILL_WAIT` after SIGKILL   | Closed   | Closed(what was decided before)               |
//!
//! `Eof`, `WriteClosed` and `Exited` are three inputs in any order: a grandchild may hold the pipe for
//! seconds after the exit, and a server that has closed its output may run for ever. Whatever is in
//! the pipe when it exits is read before the end is told. Closing the wire ends all that is left (see
//! [`IoRequest::Close`]).
//!
//! Source: Spec 2025-11-25 basic/lifecycle#shutdown, OpenClaw mcp-stdio-transport (the ladder).
//! Never: starts a process, reads a clock, logs a payload.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::{Deadline, Now, Uptime};
use crate::codec::outbuf::OutBuf;
use crate::ids::{UpstreamRequestId, WireId, WireMint};
use crate::limits::Limits;
use crate::link::line_frames::LineFrames;
use crate::link::stderr_tail::StderrTail;
use crate::link::upstream::{UpstreamClosed, UpstreamEvent};
use crate::link::websocket::Full;
use crate::link::{ChildSpec, IoEvent, IoRequest, OpenSpec, Signal};
use crate::protocol::client::Outgoing;

/// How long output may still arrive after the program itself has exited: what it has started may
/// hold the pipe. This and the next three are no limits of their own: they say in which order the kernel may
/// tell of one death, and `child_grace_interval` is what a program is given.
const DRAIN: Duration = Duration::from_millis(200);

/// How long a program that has ended its output may take to exit before that alone is told: the exit says
/// more.
const EXIT_WAIT: Duration = Duration::from_millis(100);

/// The same for one that has closed its input while there is something to say to it.
const REFUSED_WAIT: Duration = Duration::from_millis(200);

/// How long a program may take to go after SIGKILL.
const KILL_WAIT: Duration = Duration::from_millis(500);

/// A link to one program.
#[derive(Debug)]
pub struct StdioChild {
    wire: Option<WireId>,
    spec: ChildSpec,
    grace: Duration,
    state: State,
    frames: LineFrames,
    stderr: StderrTail,
    /// It has ended its output.
    eof: bool,
    /// Something was queued that has not all left.
    unsent: bool,
    /// It takes no more.
    input_closed: bool,
    /// When that is taken for its end.
    refused_at: Option<Uptime>,
    events: VecDeque<UpstreamEvent>,
    io: VecDeque<IoRequest>,
}

#[derive(Debug)]
enum State {
    Idle,
    Opening,
    Open,
    Ended {
        partial: bool,
        since: Uptime,
    },
    Draining {
        why: UpstreamClosed,
        until: Uptime,
    },
    Closing {
        why: UpstreamClosed,
        step: Step,
        until: Uptime,
    },
    Closed,
}

/// The last thing done to make it end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Eof,
    Term,
    Kill,
}

impl StdioChild {
    /// A link to the program that `spec` describes, `name` in the log. One message from it has at most
    /// `message_bytes_max` bytes, and at most `out_bytes_max` wait to be written to it.
    #[must_use]
    pub fn new(
        name: &str,
        spec: ChildSpec,
        message_bytes_max: usize,
        out_bytes_max: usize,
        limits: &Limits,
    ) -> Self {
        Self {
            wire: None,
            spec,
            grace: limits.child_grace_interval,
            state: State::Idle,
            frames: LineFrames::new(message_bytes_max, out_bytes_max, limits),
            stderr: StderrTail::new(name, limits.stderr_tail_bytes_max),
            eof: false,
            unsent: false,
            input_closed: false,
            refused_at: None,
            events: VecDeque::new(),
            io: VecDeque::new(),
        }
    }

    /// Starts the program. Call it once, first.
    pub fn start(&mut self, _now: Now, wires: &mut WireMint) {
        if !matches!(self.state, State::Idle) {
            return;
        }
        let wire = wires.mint();
        self.wire = Some(wire);
        self.state = State::Opening;
        let spec = OpenSpec::Child(self.spec.clone());
        self.io.push_back(IoRequest::Open(wire, spec));
    }

    /// Something happened on a wire of this link.
    pub fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>, _wires: &mut WireMint) {
        if self.wire != Some(wire) {
            return;
        }
        match event {
            IoEvent::Opened => {
                if matches!(self.state, State::Opening) {
                    self.state = State::Open;
                    self.events.push_back(UpstreamEvent::Up);
                }
            }
            IoEvent::Bytes(bytes) => {
                // Once it is being ended nobody waits for what it says.
                if matches!(self.state, State::Open | State::Draining { .. }) {
                    self.frames
                        .read(bytes, |event| self.events.push_back(event));
                }
            }
            IoEvent::StderrBytes(bytes) => self.stderr.push(now, bytes),
            IoEvent::Drained => self.unsent = false,
            IoEvent::WriteClosed => {
                self.input_closed = true;
                if self.unsent {
                    self.handle_refused(now);
                }
            }
            IoEvent::Eof => self.handle_eof(now),
            IoEvent::Exited(report) => {
                let exited = UpstreamClosed::Exited(report);
                match std::mem::replace(&mut self.state, State::Closed) {
                    State::Idle | State::Opening | State::Open => self.drain(now, exited),
                    State::Ended { .. } => self.finish(exited),
                    State::Closing { why, .. } if self.eof => self.finish(why),
                    State::Closing { why, .. } => self.drain(now, why),
                    State::Draining { why, until } => self.state = State::Draining { why, until },
                    State::Closed => {}
                }
            }
            IoEvent::Failed(fault) => {
                if !matches!(self.state, State::Closed) {
                    self.wire = None;
                    self.finish(UpstreamClosed::Io(fault));
                }
            }
        }
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Now, _wires: &mut WireMint) {
        if self.next_deadline().is_none_or(|due| due.at > now.up) {
            return;
        }
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Closing { why, step, .. } => self.escalate(now, why, step),
            State::Draining { why, .. } => self.finish(why),
            State::Open => self.refuse(now),
            State::Ended { partial, since } => {
                let why = UpstreamClosed::OutputEnded { partial };
                self.events.push_back(UpstreamEvent::Ending(why.clone()));
                // Its input was closed then.
                self.state = State::Closing {
                    why,
                    step: Step::Eof,
                    until: since
                        .after(self.grace)
                        .max(now.up.after(Duration::from_millis(1))),
                };
            }
            same @ (State::Idle | State::Opening | State::Closed) => self.state = same,
        }
    }

    /// When to call [`StdioChild::handle_timeout`] at the latest.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        match &self.state {
            State::Idle | State::Opening | State::Closed => None,
            State::Open => self
                .refused_at
                .map(|at| Deadline::new(at, "input that a server refuses")),
            State::Ended { since, .. } => {
                let at = since.after(EXIT_WAIT);
                Some(Deadline::new(at, "exit after end of output"))
            }
            State::Draining { until, .. } => Some(Deadline::new(*until, "output after exit")),
            State::Closing { until, step, .. } => Some(Deadline::new(
                *until,
                match step {
                    Step::Eof => "exit after end of input",
                    Step::Term => "exit after SIGTERM",
                    Step::Kill => "exit after SIGKILL",
                },
            )),
        }
    }

    /// Queues one message; after its end messages go nowhere, and the end is told.
    ///
    /// # Errors
    /// More would wait than is allowed: the server is not reading. Nothing was queued.
    pub fn send(
        &mut self,
        now: Now,
        message: &Outgoing,
        _wires: &mut WireMint,
    ) -> Result<(), Full> {
        let Some(wire) = self.wire else {
            return Ok(());
        };
        if !matches!(self.state, State::Opening | State::Open) {
            return Ok(());
        }
        if self.input_closed {
            self.handle_refused(now);
            return Ok(());
        }
        self.frames.send(message)?;
        self.unsent = true;
        self.io.push_back(IoRequest::Flush(wire));
        Ok(())
    }

    /// Nobody waits for this answer any more; on lines that changes nothing.
    pub const fn forget(&mut self, _now: Now, _id: UpstreamRequestId, _wires: &mut WireMint) {}

    /// What happened.
    pub fn poll_event(&mut self) -> Option<UpstreamEvent> {
        self.events.pop_front()
    }

    /// The next thing for the loop to do.
    pub fn poll_io(&mut self) -> Option<IoRequest> {
        self.io.pop_front()
    }

    /// Bytes for its stdin; `None` for a wire that is not of this link.
    pub fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        (self.wire == Some(wire)).then(|| self.frames.outgoing())
    }

    /// Begins the orderly end: end of input, SIGTERM, SIGKILL, with a grace interval between them. It
    /// ends in Closed, two grace intervals and half a second later at most.
    pub fn close(&mut self, now: Now, _wires: &mut WireMint) {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Idle => self.finish(UpstreamClosed::Local),
            // It may be there any moment, so it is treated as if it were.
            State::Opening | State::Open | State::Ended { .. } => {
                self.close_input();
                self.state = State::Closing {
                    why: UpstreamClosed::Local,
                    step: Step::Eof,
                    until: now.after(self.grace),
                };
            }
            State::Draining { why, .. } => self.finish(why),
            same @ (State::Closing { .. } | State::Closed) => self.state = same,
        }
    }

    /// The end of what it said on its stderr, escaped; line feeds stand for themselves.
    #[must_use]
    pub fn stderr_tail(&self) -> &str {
        self.stderr.tail()
    }

    fn handle_eof(&mut self, now: Now) {
        self.eof = true;
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Open => {
                let partial = self.finish_lines();
                self.close_input();
                let since = now.up;
                self.state = State::Ended { partial, since };
            }
            State::Draining { why, .. } => {
                self.finish_lines();
                self.finish(why);
            }
            same @ (State::Idle
            | State::Opening
            | State::Ended { .. }
            | State::Closing { .. }
            | State::Closed) => self.state = same,
        }
    }

    /// It has closed its input, and something could not be said.
    fn handle_refused(&mut self, now: Now) {
        if self.refused_at.is_none() {
            self.refused_at = Some(now.after(REFUSED_WAIT));
        }
    }

    fn refuse(&mut self, now: Now) {
        let why = UpstreamClosed::Violation("server closed its input".to_owned());
        self.events.push_back(UpstreamEvent::Ending(why.clone()));
        self.close_input();
        self.state = State::Closing {
            why,
            step: Step::Eof,
            until: now.after(self.grace),
        };
    }

    fn escalate(&mut self, now: Now, why: UpstreamClosed, step: Step) {
        let (step, signal, wait) = match step {
            Step::Eof => (Step::Term, Signal::Term, self.grace),
            Step::Term => (Step::Kill, Signal::Kill, KILL_WAIT),
            Step::Kill => return self.finish(why),
        };
        self.signal(signal);
        let until = now.after(wait);
        self.state = State::Closing { why, step, until };
    }

    /// The program is gone: what it has left in the pipe is still read.
    fn drain(&mut self, now: Now, why: UpstreamClosed) {
        if self.eof {
            return self.finish(why);
        }
        self.close_input();
        self.signal(Signal::Term);
        let until = now.after(DRAIN);
        self.state = State::Draining { why, until };
    }

    fn finish_lines(&mut self) -> bool {
        self.frames.finish(|event| self.events.push_back(event))
    }

    fn finish(&mut self, why: UpstreamClosed) {
        self.state = State::Closed;
        if let Some(wire) = self.wire.take() {
            self.io.push_back(IoRequest::Close(wire));
        }
        self.events.push_back(UpstreamEvent::Closed(why));
    }

    fn close_input(&mut self) {
        if let Some(wire) = self.wire {
            self.io.push_back(IoRequest::CloseWrite(wire));
        }
    }

    fn signal(&mut self, signal: Signal) {
        if let Some(wire) = self.wire {
            self.io.push_back(IoRequest::Signal(wire, signal));
        }
    }
}

#[cfg(test)]
#[path = "stdio_child/tests.rs"]
mod tests;
