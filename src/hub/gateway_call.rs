//! One request to a Gateway, for commands that ask something and end.
//!
//! | state   | input                         | next | output                                   |
//! |---------|-------------------------------|------|------------------------------------------|
//! | Waiting | the session is ready          | Sent | the request                              |
//! | Waiting | the link cannot be had        | Done | why: one try, no waiting for the Gateway |
//! | Waiting | the Gateway refuses us        | Done | the refusal                              |
//! | Sent    | answer                        | Done | the payload, or why there is none        |
//! | Sent    | unknown method, and a second one is given | Sent | the second request           |

use std::collections::VecDeque;

use serde_json::value::RawValue;

use crate::clock::{Deadline, Now};
use crate::codec::outbuf::OutBuf;
use crate::diagnostic::{Diagnostic, Level};
use crate::entropy::Entropy;
use crate::gateway::session::{GatewayError, GatewaySession, Refusal, SessionOutput};
use crate::hub::GatewayConfig;
use crate::hub::gateway_wire::GatewayWire;
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::{Driven, IoEvent, IoRequest};

/// A method and its parameters, a raw JSON object.
pub type Asked = (&'static str, String);

/// How a call ended.
#[derive(Debug)]
pub enum CallOutcome {
    /// The payload of the answer.
    Answered(Box<RawValue>),
    /// The Gateway said no, or nothing.
    Failed(GatewayError),
    /// The Gateway did not let us in.
    Refused(Refusal),
    /// There is no connection.
    Unreachable(String),
}

/// See the module page.
pub struct GatewayCall {
    session: GatewaySession,
    wire: GatewayWire,
    entropy: Box<dyn Entropy>,
    asked: VecDeque<Asked>,
    io: VecDeque<IoRequest>,
    outcome: Option<CallOutcome>,
    done: bool,
}

impl std::fmt::Debug for GatewayCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GatewayCall")
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}

impl GatewayCall {
    /// Asks `first`, and `second` where the Gateway does not know the method of `first`.
    #[must_use]
    pub fn new(
        config: GatewayConfig,
        limits: &Limits,
        first: Asked,
        second: Option<Asked>,
        entropy: Box<dyn Entropy>,
        now: Now,
    ) -> Self {
        let mut call = Self {
            session: GatewaySession::new(config.session, now),
            wire: GatewayWire::new(config.connect, limits),
            entropy,
            asked: [Some(first), second].into_iter().flatten().collect(),
            io: VecDeque::new(),
            outcome: None,
            done: false,
        };
        call.settle(now);
        call
    }

    /// How it ended; once.
    pub fn poll_outcome(&mut self) -> Option<CallOutcome> {
        self.outcome.take()
    }

    fn settle(&mut self, now: Now) {
        loop {
            let mut moved = false;
            while let Some(event) = self.wire.poll_event() {
                moved = true;
                event.tell(&mut self.session, now, &mut *self.entropy);
            }
            while let Some(output) = self.session.poll() {
                moved = true;
                self.route(now, output);
            }
            while let Some(request) = self.wire.poll_io() {
                self.io.push_back(request);
            }
            if !moved {
                return;
            }
        }
    }

    fn route(&mut self, now: Now, output: SessionOutput) {
        match output {
            SessionOutput::Open => {
                let wire = self.wire.id().map_or(WireId(0), WireId::next);
                self.wire.open(wire, &mut *self.entropy, now);
            }
            SessionOutput::Send(text) => {
                // One small request cannot fill the buffer.
                let _ = self.wire.send_text(&text);
            }
            SessionOutput::Close { code, reason } => self.wire.close(now, code, &reason),
            SessionOutput::Abort => self.wire.abort(),
            SessionOutput::HelloAccepted => self.wire.hello_accepted(),
            SessionOutput::Ready { .. } => self.ask(now),
            SessionOutput::Refused(refusal) => self.end(now, CallOutcome::Refused(refusal)),
            SessionOutput::Response { outcome, .. } => match outcome {
                Ok(payload) => self.end(now, CallOutcome::Answered(payload)),
                Err(GatewayError::Remote { message, .. })
                    if message.starts_with("unknown method") && !self.asked.is_empty() =>
                {
                    self.ask(now);
                }
                Err(error) => self.end(now, CallOutcome::Failed(error)),
            },
            SessionOutput::Diagnostic(diagnostic) => self.heed(now, diagnostic),
            SessionOutput::Lost { why, .. } => self.end(now, CallOutcome::Unreachable(why)),
            SessionOutput::Event { .. }
            | SessionOutput::StoreToken(_)
            | SessionOutput::ForgetToken => {}
        }
    }

    /// A command does not wait for a Gateway that is down: the first failed try is the last.
    fn heed(&mut self, now: Now, diagnostic: Diagnostic) {
        if diagnostic.level > Level::Info && !self.session.is_ready() {
            let told = diagnostic.message;
            let why = told
                .rsplit_once(", next try in ")
                .map_or(&*told, |(why, _)| why);
            self.end(now, CallOutcome::Unreachable(why.to_owned()));
        }
    }

    fn ask(&mut self, now: Now) {
        if let Some((method, params)) = self.asked.pop_front() {
            self.session.request(now, method, &params);
        }
    }

    fn end(&mut self, now: Now, outcome: CallOutcome) {
        if !std::mem::replace(&mut self.done, true) {
            self.outcome = Some(outcome);
            self.session.shutdown(now);
        }
    }
}

impl Driven for GatewayCall {
    fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>) {
        if self.wire.id() == Some(wire) {
            self.wire.handle_io(now, event);
        }
        self.settle(now);
    }

    fn handle_timeout(&mut self, now: Now) {
        self.wire.handle_timeout(now);
        self.session.handle_timeout(now, &mut *self.entropy);
        self.settle(now);
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        self.io.pop_front().or_else(|| self.wire.poll_io())
    }

    fn next_deadline(&self) -> Option<Deadline> {
        Deadline::earlier(self.session.next_deadline(), self.wire.next_deadline())
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        self.wire.outgoing(wire)
    }
}
