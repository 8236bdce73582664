//! One run of a helper program: JSON on its stdin, an answer on its stdout, a time limit.
//!
//! | state    | input                     | next     | output                                    |
//! |----------|---------------------------|----------|-------------------------------------------|
//! | Running  | bytes                     | Running  | kept, up to the output limit              |
//! | Running  | end of output, then exit  | Done     | the output, or why there is none          |
//! | Running  | exit before end of output | Draining | deadline "output after exit"              |
//! | Draining | end of output or deadline | Done     | the output; the group is killed if it held on |
//! | any      | deadline, limit, fault    | Done     | the reason; the group is killed           |
//!
//! Used by the before-tool-call hook and by commands that are tools. A program that exits with anything but 0
//! has failed, whatever it printed. Closing the wire ends all that it has started, see [`IoRequest::Close`].

use std::time::Duration;

use crate::clock::{Deadline, Now, Uptime};
use crate::codec::outbuf::OutBuf;
use crate::ids::WireId;
use crate::link::stderr_tail::StderrTail;
use crate::link::{ChildSpec, ExitReport, IoEvent, IoRequest, OpenSpec, Signal};
use crate::secret::{Quoted, mask_text};

/// How long output may still arrive after the program itself has exited: a grandchild may hold the pipe.
const DRAIN: Duration = Duration::from_millis(200);

/// Bytes of the end of stderr that a failure shows.
const STDERR_SHOWN: usize = 512;

/// What one run may take. Each limit comes with its name, for the one whose program goes beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// From the start to the end of the output.
    pub timeout: (Duration, &'static str),
    /// What it may print on stdout. Unit: bytes.
    pub output_bytes_max: (usize, &'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Draining(ExitReport),
    Done,
}

/// One run. `poll_outcome` gives the outcome once.
#[derive(Debug)]
pub struct CommandRun {
    wire: WireId,
    program: String,
    state: State,
    ended_output: bool,
    out: OutBuf,
    printed: Vec<u8>,
    stderr: StderrTail,
    bounds: Bounds,
    deadline: Uptime,
    drain_until: Option<Uptime>,
    io: std::collections::VecDeque<IoRequest>,
    outcome: Option<Result<Vec<u8>, String>>,
}

impl CommandRun {
    /// Starts `spec`, gives it `input` and closes its stdin.
    #[must_use]
    pub fn new(wire: WireId, spec: ChildSpec, input: &str, bounds: Bounds, now: Now) -> Self {
        let mut out = OutBuf::new();
        out.tail().extend_from_slice(input.as_bytes());
        let program = spec.program.clone();
        let stderr = StderrTail::new(&program, STDERR_SHOWN);
        let io = [IoRequest::Open(wire, OpenSpec::Child(spec))];
        Self {
            wire,
            program,
            state: State::Running,
            ended_output: false,
            out,
            printed: Vec::new(),
            stderr,
            bounds,
            deadline: now.after(bounds.timeout.0),
            drain_until: None,
            io: io.into(),
            outcome: None,
        }
    }

    /// Something happened on its wire.
    pub fn handle_io(&mut self, now: Now, event: IoEvent<'_>) {
        if self.state == State::Done {
            return;
        }
        match event {
            IoEvent::Opened => {
                self.io.push_back(IoRequest::Flush(self.wire));
                self.io.push_back(IoRequest::CloseWrite(self.wire));
            }
            IoEvent::Bytes(bytes) => {
                let (limit, name) = self.bounds.output_bytes_max;
                if bytes.len() > limit.saturating_sub(self.printed.len()) {
                    let value = self.printed.len().saturating_add(bytes.len());
                    return self.fail(format!(
                        "its output is too large: {value} bytes or more, limit {limit} ({name})"
                    ));
                }
                self.printed.extend_from_slice(bytes);
            }
            IoEvent::StderrBytes(bytes) => self.stderr.push(now, bytes),
            IoEvent::Eof => {
                self.ended_output = true;
                if let State::Draining(exit) = self.state {
                    self.finish(exit);
                }
            }
            IoEvent::Exited(exit) => {
                if self.ended_output {
                    self.finish(exit);
                } else {
                    self.state = State::Draining(exit);
                    self.drain_until = Some(now.after(DRAIN));
                }
            }
            // It need not read its input.
            IoEvent::WriteClosed => self.out.clear(),
            IoEvent::Drained => {}
            IoEvent::Failed(fault) => {
                self.state = State::Done;
                self.outcome = Some(Err(fault.message));
            }
        }
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Now) {
        match self.state {
            State::Done => {}
            State::Draining(exit) if self.drain_until.is_some_and(|at| at <= now.up) => {
                self.finish(exit)
            }
            State::Running | State::Draining(_) => {
                if self.deadline <= now.up {
                    let (limit, name) = self.bounds.timeout;
                    let limit = limit.as_millis();
                    self.fail(format!(
                        "no answer after {limit} ms, limit {limit} ms ({name})"
                    ));
                }
            }
        }
    }

    /// When to call [`CommandRun::handle_timeout`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        match self.state {
            State::Done => None,
            State::Running => Some(Deadline::new(self.deadline, "command time limit")),
            State::Draining(_) => self
                .drain_until
                .map(|at| Deadline::new(at, "output after exit")),
        }
    }

    /// The next thing for the loop to do.
    pub fn poll_io(&mut self) -> Option<IoRequest> {
        self.io.pop_front()
    }

    /// What the program printed, or in one line why that is not known. Once; the run is over then.
    pub fn poll_outcome(&mut self) -> Option<Result<Vec<u8>, String>> {
        self.outcome.take()
    }

    /// Its wire, open until the run is over.
    #[must_use]
    pub const fn wire(&self) -> WireId {
        self.wire
    }

    /// Bytes for its stdin.
    pub fn outgoing(&mut self) -> &mut OutBuf {
        &mut self.out
    }

    /// Nobody waits for the outcome any more: ends the program.
    pub fn abandon(&mut self) {
        if self.state != State::Done {
            self.fail("abandoned".to_owned());
            self.outcome = None;
        }
    }

    fn finish(&mut self, exit: ExitReport) {
        match exit {
            ExitReport::Code(0) => {
                self.end(!self.ended_output);
                self.outcome = Some(Ok(std::mem::take(&mut self.printed)));
            }
            ExitReport::Code(_) | ExitReport::Signal(_) => self.fail(exit.to_string()),
        }
    }

    fn fail(&mut self, why: String) {
        let mut reason = format!("{}: {why}", Quoted(&self.program));
        let stderr = mask_text(self.stderr.tail());
        if !stderr.trim().is_empty() {
            reason.push_str("; stderr: ");
            reason.push_str(stderr.trim());
        }
        self.end(true);
        self.outcome = Some(Err(reason));
    }

    fn end(&mut self, kill: bool) {
        self.state = State::Done;
        if kill {
            self.io
                .push_back(IoRequest::Signal(self.wire, Signal::Kill));
        }
        self.io.push_back(IoRequest::Close(self.wire));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIRE: WireId = WireId(3);

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: 0,
        }
    }

    fn run() -> CommandRun {
        let spec = ChildSpec {
            program: "hook".into(),
            args: vec![],
            env: vec![],
            cwd: None,
        };
        let bounds = Bounds {
            timeout: (Duration::from_millis(1_000), "hook_timeout_ms"),
            output_bytes_max: (8, "hook_output_bytes_max"),
        };
        CommandRun::new(WIRE, spec, "{}\n", bounds, at(0))
    }

    fn requests(run: &mut CommandRun) -> String {
        let mut seen = String::new();
        while let Some(request) = run.poll_io() {
            seen.push_str(match request {
                IoRequest::Open(..) => "open ",
                IoRequest::Flush(_) => "flush ",
                IoRequest::CloseWrite(_) => "close-write ",
                IoRequest::Close(_) => "close ",
                IoRequest::Finish(_) => "finish ",
                IoRequest::Signal(_, Signal::Kill) => "kill ",
                IoRequest::Signal(_, Signal::Term) => "term ",
                IoRequest::PauseReads(..) => "pause ",
                IoRequest::Append(_) => "append ",
            });
        }
        seen
    }

    #[test]
    fn output_then_exit_is_the_answer() {
        let mut run = run();
        run.handle_io(at(0), IoEvent::Opened);
        run.handle_io(at(1), IoEvent::Bytes(b"{}"));
        run.handle_io(at(2), IoEvent::Eof);
        assert_eq!(run.poll_outcome(), None);
        run.handle_io(at(3), IoEvent::Exited(ExitReport::Code(0)));
        assert_eq!(run.poll_outcome(), Some(Ok(b"{}".to_vec())));
        assert_eq!(requests(&mut run), "open flush close-write close ");
        assert_eq!(run.next_deadline(), None);
    }

    #[test]
    fn a_grandchild_that_holds_the_pipe_delays_by_the_drain_time_only() {
        let mut run = run();
        run.handle_io(at(0), IoEvent::Opened);
        run.handle_io(at(1), IoEvent::Bytes(b"{}"));
        run.handle_io(at(2), IoEvent::Exited(ExitReport::Code(0)));
        run.handle_timeout(at(201));
        assert_eq!(run.poll_outcome(), None);
        run.handle_timeout(at(202));
        assert_eq!(run.poll_outcome(), Some(Ok(b"{}".to_vec())));
        assert!(
            requests(&mut run).ends_with("kill close "),
            "the rest of the group is ended"
        );
    }

    #[test]
    fn failures_say_why_and_kill_the_group() {
        let failure = |events: &[(u64, IoEvent<'static>)], until: u64| {
            let mut run = run();
            for (ms, event) in events {
                let event = match event {
                    IoEvent::Bytes(bytes) => IoEvent::Bytes(bytes),
                    IoEvent::StderrBytes(bytes) => IoEvent::StderrBytes(bytes),
                    IoEvent::Exited(exit) => IoEvent::Exited(*exit),
                    IoEvent::Eof => IoEvent::Eof,
                    IoEvent::Opened
                    | IoEvent::WriteClosed
                    | IoEvent::Drained
                    | IoEvent::Failed(_) => continue,
                };
                run.handle_io(at(*ms), event);
            }
            run.handle_timeout(at(until));
            let Some(Err(why)) = run.poll_outcome() else {
                panic!("no failure")
            };
            assert!(requests(&mut run).ends_with("kill close "), "{why}");
            why
        };
        assert_eq!(
            failure(&[], 1_000),
            "hook: no answer after 1000 ms, limit 1000 ms (hook_timeout_ms)"
        );
        assert_eq!(
            failure(
                &[(1, IoEvent::Bytes(b"12345678")), (2, IoEvent::Bytes(b"9"))],
                3
            ),
            "hook: its output is too large: 9 bytes or more, limit 8 (hook_output_bytes_max)"
        );
        assert_eq!(
            failure(
                &[
                    (1, IoEvent::StderrBytes(b"boom: token=hunter22hunter22\n")),
                    (2, IoEvent::Eof),
                    (3, IoEvent::Exited(ExitReport::Code(3)))
                ],
                4
            ),
            "hook: exited with code 3; stderr: boom: token=***"
        );
    }

    #[test]
    fn an_abandoned_run_has_no_outcome() {
        let mut run = run();
        run.abandon();
        assert_eq!(run.poll_outcome(), None);
        assert_eq!(requests(&mut run), "open kill close ");
    }
}
