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
//! Used by the before-tool-call hook. A program that exits with anything but 0 has failed, whatever it printed.

use std::time::Duration;

use crate::clock::{Deadline, Now, Uptime};
use crate::codec::outbuf::OutBuf;
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::{ChildSpec, ExitReport, IoEvent, IoRequest, OpenSpec, Signal};
use crate::secret::Quoted;

/// How long output may still arrive after the program itself has exited: a grandchild may hold the pipe.
const DRAIN: Duration = Duration::from_millis(200);

/// Bytes of stderr that a failure shows.
const STDERR_SHOWN: usize = 128;

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
    printed_max: usize,
    stderr: Vec<u8>,
    deadline: (Uptime, Duration),
    drain_until: Option<Uptime>,
    io: std::collections::VecDeque<IoRequest>,
    outcome: Option<Result<Vec<u8>, String>>,
}

impl CommandRun {
    /// Starts `spec`, gives it `input` and closes its stdin.
    #[must_use]
    pub fn new(
        wire: WireId,
        spec: ChildSpec,
        input: &str,
        timeout: Duration,
        limits: &Limits,
        now: Now,
    ) -> Self {
        let mut out = OutBuf::new();
        out.tail().extend_from_slice(input.as_bytes());
        let program = spec.program.clone();
        let io = [IoRequest::Open(wire, OpenSpec::Child(spec))];
        Self {
            wire,
            program,
            state: State::Running,
            ended_output: false,
            out,
            printed: Vec::new(),
            printed_max: limits.hook_output_bytes_max,
            stderr: Vec::new(),
            deadline: (now.after(timeout), timeout),
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
                let room = self.printed_max - self.printed.len();
                if bytes.len() > room {
                    let (value, limit) = (self.printed.len() + bytes.len(), self.printed_max);
                    return self.fail(format!(
                        "its output is too large: {value} bytes or more, limit {limit}"
                    ));
                }
                self.printed.extend_from_slice(bytes);
            }
            IoEvent::StderrBytes(bytes) => {
                let room = STDERR_SHOWN.saturating_sub(self.stderr.len());
                self.stderr
                    .extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
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
            // A hook need not read its input.
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
                if self.deadline.0 <= now.up {
                    let limit = self.deadline.1.as_millis();
                    self.fail(format!("no answer after {limit} ms, limit {limit} ms"));
                }
            }
        }
    }

    /// When to call [`CommandRun::handle_timeout`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        match self.state {
            State::Done => None,
            State::Running => Some(Deadline::new(self.deadline.0, "hook time limit")),
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
        let stderr = String::from_utf8_lossy(&self.stderr);
        if !stderr.trim().is_empty() {
            reason.push_str(&format!("; stderr: {}", Quoted(stderr.trim())));
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
        let limits = Limits {
            hook_output_bytes_max: 8,
            ..Limits::default()
        };
        CommandRun::new(
            WIRE,
            spec,
            "{}\n",
            Duration::from_millis(1_000),
            &limits,
            at(0),
        )
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
            "hook: no answer after 1000 ms, limit 1000 ms"
        );
        assert_eq!(
            failure(
                &[(1, IoEvent::Bytes(b"12345678")), (2, IoEvent::Bytes(b"9"))],
                3
            ),
            "hook: its output is too large: 9 bytes or more, limit 8"
        );
        assert_eq!(
            failure(
                &[
                    (1, IoEvent::StderrBytes(b"boom\n")),
                    (2, IoEvent::Eof),
                    (3, IoEvent::Exited(ExitReport::Code(3)))
                ],
                4
            ),
            "hook: exited with code 3; stderr: boom"
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
