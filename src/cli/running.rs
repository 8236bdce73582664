//! One question to a server of ours that runs, over its Unix socket.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::serve::start;
use super::{Exit, Failure};
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::jsonrpc::write_request;
use crate::codec::lines::{LineDecoder, LineEvent};
use crate::codec::outbuf::OutBuf;
use crate::ids::WireId;
use crate::io::EventLoop;
use crate::limits::Limits;
use crate::link::{Driven, IoEvent, IoRequest, OpenSpec};
use crate::secret::Quoted;

/// How long a server may take: it answers by itself, so this is for one that hangs.
const PATIENCE: Duration = Duration::from_secs(5);

const WIRE: WireId = WireId(0);

/// | state   | input                     | next    | output                 |
/// |---------|---------------------------|---------|------------------------|
/// | Asking  | the wire is open          | Asking  | the request            |
/// | Asking  | a line with our id, or no id | Done | result, or its error   |
/// | Asking  | another line              | Asking  | nothing                |
/// | Asking  | fault, end, time          | Done    | why there is no answer |
struct Question {
    path: PathBuf,
    out: OutBuf,
    lines: LineDecoder,
    io: Vec<IoRequest>,
    until: Uptime,
    outcome: Option<Result<Value, Failure>>,
}

/// The socket that `--connect` names.
pub(super) fn socket(address: &str) -> Result<PathBuf, Failure> {
    match address.strip_prefix("unix:") {
        Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
        Some(_) | None => {
            let message = format!("cannot connect to {address}: use unix:/PATH");
            Err(Failure::new(Exit::Usage, message))
        }
    }
}

/// Asks the server on a socket. `params` is a raw object.
///
/// # Errors
/// Nobody listens there, or what does gives no such answer.
pub(super) fn ask(path: PathBuf, method: &str, params: &str) -> Result<Value, Failure> {
    let limits = Limits::default();
    let mut events = start(EventLoop::new(&limits))?;
    let mut question = Question {
        path: path.clone(),
        out: OutBuf::new(),
        lines: LineDecoder::new(limits.message_bytes_max),
        io: vec![IoRequest::Open(WIRE, OpenSpec::Unix { path })],
        until: events.now().after(PATIENCE),
        outcome: None,
    };
    write_request(question.out.tail(), 1, method, Some(params));
    question.out.tail().push(b'\n');
    loop {
        start(events.turn(&mut [&mut question]))?;
        if let Some(outcome) = question.outcome.take() {
            return outcome;
        }
    }
}

impl Question {
    fn fail(&mut self, exit: Exit, why: &str) {
        let label = self.path.display();
        let failure = Failure::new(exit, format!("unix:{label}: {why}"));
        self.outcome.get_or_insert(Err(failure));
    }

    fn read(&mut self, line: &[u8]) {
        let Ok(mut message) = serde_json::from_slice::<Value>(line) else {
            return self.fail(Exit::Failed, "answered what is no JSON");
        };
        if message.get("method").is_some() {
            return;
        }
        if let Some(text) = message["error"]["message"].as_str() {
            let text = format!("answered: {}", Quoted(text));
            return self.fail(Exit::Failed, &text);
        }
        if message["id"] == 1 {
            let result = message["result"].take();
            self.outcome.get_or_insert(Ok(result));
        }
    }
}

impl Driven for Question {
    fn handle_io(&mut self, _now: Now, _wire: WireId, event: IoEvent<'_>) {
        match event {
            IoEvent::Opened => self.io.push(IoRequest::Flush(WIRE)),
            IoEvent::Bytes(mut bytes) => {
                let mut read = Vec::new();
                while let Some(event) = self.lines.next(&mut bytes) {
                    match event {
                        LineEvent::Line(line) => read.push(line.to_vec()),
                        LineEvent::Oversized { .. } => {}
                    }
                }
                for line in read {
                    self.read(&line);
                }
            }
            IoEvent::Eof | IoEvent::WriteClosed => {
                self.fail(Exit::Failed, "ended without an answer");
            }
            IoEvent::Failed(fault) => {
                let failure = Failure::new(Exit::CannotReach, fault.message);
                self.outcome.get_or_insert(Err(failure));
            }
            IoEvent::Drained | IoEvent::StderrBytes(_) | IoEvent::Exited(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.until <= now.up {
            let why = format!("no answer within {} ms", PATIENCE.as_millis());
            self.fail(Exit::TimedOut, &why);
        }
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        self.io.pop()
    }

    fn next_deadline(&self) -> Option<Deadline> {
        Some(Deadline::new(self.until, "a server does not answer"))
    }

    fn outgoing(&mut self, _wire: WireId) -> Option<&mut OutBuf> {
        Some(&mut self.out)
    }
}
