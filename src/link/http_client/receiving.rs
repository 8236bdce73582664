//! What comes: the steps of exchanges, by what they are for.

use std::time::Duration;

use super::call::{Call, Next};
use super::feed::RETRY_MAX;
use super::{
    ExchangeId, Fault, HttpLink, INITIALIZED, Kind, LINGER, ListenState, Other, Purpose,
    SESSION_ID_BYTES_MAX, Step, What,
};
use crate::clock::Now;
use crate::codec::http_body::Framing;
use crate::codec::http1::ResponseHead;
use crate::link::upstream::{UpstreamClosed, UpstreamEvent};
use crate::link::{FaultKind, IoFault};
use crate::protocol::client::RequestEnd;
use crate::secret::Quoted;

impl HttpLink {
    pub(super) fn step(&mut self, now: Now, step: Step<'_>) {
        let Step { exchange, what } = step;
        let Some(purpose) = self.exchanges.remove(&exchange) else {
            return;
        };
        if let What::Head(head, _) = &what {
            self.note_quiet(now, head);
        }
        match purpose {
            Purpose::Call(call) => self.step_call(now, exchange, call, what),
            Purpose::Note { initialized, reply } => {
                self.step_note(now, exchange, initialized, reply, what);
            }
            Purpose::Listen => self.step_listen(now, exchange, what),
            Purpose::Delete => match what {
                What::Head(..) | What::Data(_) => {
                    self.exchanges.insert(exchange, Purpose::Delete);
                }
                What::End | What::Failed(_) => self.closed(UpstreamClosed::Local),
            },
        }
    }

    /// 429 and 503 may say how long the server is to be left alone. Requests are their owner's affair.
    fn note_quiet(&mut self, now: Now, head: &ResponseHead) {
        if !matches!(head.status, 429 | 503) {
            return;
        }
        if let Kind::Other(other) = Kind::of(now, head, Framing::Length(0)) {
            let wait = Duration::from_millis(other.status.retry_after_ms.unwrap_or(0));
            self.quiet_until = self.quiet_until.max(now.after(wait.min(RETRY_MAX)));
        }
    }

    fn step_call(&mut self, now: Now, exchange: ExchangeId, mut call: Box<Call>, what: What<'_>) {
        let over = matches!(what, What::End | What::Failed(_));
        let next = match what {
            What::Head(head, framing) => match self.adopt_session(&call, &head) {
                Ok(()) => call.head(now, &head, framing),
                Err(why) => Next::Over(Some(RequestEnd::Broken(why))),
            },
            What::Data(data) => call.data(data, &mut self.events),
            What::End => call.end(&mut self.events),
            What::Failed(fault) => call.failed(fault),
        };
        if over {
            self.requests.remove(&call.id);
        }
        match next {
            Next::Going => {
                self.exchanges.insert(exchange, Purpose::Call(call));
            }
            Next::Answered => {
                self.client.give_up_at(exchange, now.after(LINGER));
                self.exchanges.insert(exchange, Purpose::Call(call));
            }
            Next::Over(end) => {
                if !over {
                    self.client.cancel(exchange);
                }
                match end {
                    Some(end) => self.ended(call.id, end),
                    None => {
                        self.requests.remove(&call.id);
                    }
                }
            }
            Next::Resume(wait, why) => {
                if !over {
                    self.client.cancel(exchange);
                }
                self.requests.remove(&call.id);
                let id = call.id;
                self.events
                    .push_back(UpstreamEvent::Resuming { id: Some(id), why });
                self.waiting.insert(id, (now.after(wait), call));
            }
        }
    }

    /// Takes the session id off the answer to `initialize`.
    fn adopt_session(&mut self, call: &Call, head: &ResponseHead) -> Result<(), String> {
        if !call.initialize || !(200..300).contains(&head.status) {
            return Ok(());
        }
        if !head.fields.has("mcp-session-id") {
            return Ok(());
        }
        let Some(id) = head.fields.only("mcp-session-id") else {
            return Err("Mcp-Session-Id stands more than once or is no text".to_owned());
        };
        if id.len() > SESSION_ID_BYTES_MAX {
            let value = id.len();
            return Err(format!(
                "Mcp-Session-Id is too long: {value} bytes, limit {SESSION_ID_BYTES_MAX}"
            ));
        }
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(format!(
                "Mcp-Session-Id is no visible ASCII: {}",
                Quoted(id)
            ));
        }
        self.session.id = Some(id.to_owned());
        Ok(())
    }

    fn step_note(
        &mut self,
        now: Now,
        exchange: ExchangeId,
        initialized: bool,
        mut reply: Option<Other>,
        what: What<'_>,
    ) {
        match what {
            What::Head(head, framing) => {
                match Kind::of(now, &head, framing) {
                    Kind::Other(other) => reply = Some(other),
                    // Nothing in it can be meant for anyone.
                    Kind::Events | Kind::Json { .. } => {
                        self.client.give_up_at(exchange, now.after(LINGER));
                    }
                }
                if initialized && reply.as_ref().is_none_or(Other::is_success) {
                    self.initialized(now);
                }
            }
            What::Data(data) => {
                if let Some(other) = &mut reply {
                    if other.take(data) {
                        self.client.cancel(exchange);
                        return self.note_over(initialized, reply);
                    }
                }
            }
            What::End => return self.note_over(initialized, reply),
            What::Failed(fault) => {
                return self.note_failed(initialized && self.holding.is_some(), fault);
            }
        }
        self.exchanges
            .insert(exchange, Purpose::Note { initialized, reply });
    }

    fn initialized(&mut self, now: Now) {
        self.holding = None;
        self.listen.begin(now);
    }

    fn note_over(&mut self, initialized: bool, reply: Option<Other>) {
        let Some(other) = reply.filter(|other| !other.is_success()) else {
            return;
        };
        let status = other.into_status();
        if initialized {
            let what = INITIALIZED;
            let status = Box::new(status);
            self.closed(UpstreamClosed::Refused { what, status });
        } else {
            let status = status.status;
            log::debug!("a notification or answer was answered with HTTP status {status}");
        }
    }

    /// `decides` says that the session cannot begin without it.
    fn note_failed(&mut self, decides: bool, fault: Fault) {
        let message = match &fault {
            Fault::NotOpened(fault) => fault.message.clone(),
            Fault::NotSent(why) | Fault::Broken(why) => why.clone(),
            Fault::Redirect { from, to, why } => format!("{from} redirects to {to}: {why}"),
        };
        if !decides {
            log::debug!("a notification or answer may be lost: {message}");
            return;
        }
        self.closed(match fault {
            Fault::NotOpened(fault) => UpstreamClosed::Io(fault),
            Fault::NotSent(_) | Fault::Broken(_) => UpstreamClosed::Io(IoFault {
                kind: FaultKind::Broken,
                message: format!("{INITIALIZED}: {message}"),
            }),
            Fault::Redirect { .. } => UpstreamClosed::Violation(message),
        });
    }

    fn step_listen(&mut self, now: Now, exchange: ExchangeId, what: What<'_>) {
        if self.listen.state != ListenState::Open(exchange) {
            return;
        }
        match what {
            What::Head(head, framing) => {
                if self.listen.head(now, &head, framing) {
                    self.exchanges.insert(exchange, Purpose::Listen);
                } else {
                    // The connection is of use for something else.
                    self.client.give_up_at(exchange, now.after(LINGER));
                    let (initialized, reply) = (false, None);
                    self.exchanges
                        .insert(exchange, Purpose::Note { initialized, reply });
                }
            }
            What::Data(data) => {
                self.listen.data(data, &mut self.events);
                self.exchanges.insert(exchange, Purpose::Listen);
            }
            What::End => self.listen.ended(now, self.quiet_until),
            What::Failed(fault) => self.listen.failed(now, &fault, self.quiet_until),
        }
    }
}
