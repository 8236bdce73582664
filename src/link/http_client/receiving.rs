//! What comes: the steps of exchanges, by what they are for.

use std::time::Duration;

use super::call::{Call, Means, Next};
use super::feed::RETRY_MAX;
use super::{
    ExchangeId, Fault, HttpLink, INITIALIZED, Kind, LINGER, ListenState, Other, Purpose,
    SESSION_ID_BYTES_MAX, Session, Step, What,
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
        match what {
            What::Head(head, framing) => {
                self.note_quiet(now, &head);
                self.step_head(now, exchange, &head, framing);
                self.client.keep_head(exchange, head);
            }
            What::Data(data) => self.step_data(now, exchange, data),
            What::End => self.step_end(now, exchange),
            What::Failed(fault) => self.step_failed(now, exchange, fault),
        }
    }

    fn step_head(&mut self, now: Now, exchange: ExchangeId, head: &ResponseHead, framing: Framing) {
        let listens = self.listens_on(exchange);
        match self.exchanges.get_mut(&exchange) {
            Some(Purpose::Call(call)) => {
                let mut with = Means {
                    limits: &self.call_limits,
                    bodies: &mut self.bodies,
                    texts: &mut self.texts,
                    events: &mut self.events,
                };
                let next = match self.session.adopt(call, head) {
                    Ok(()) => call.head(now, head, framing, &mut with),
                    Err(why) => Next::Over(Some(RequestEnd::Broken(why))),
                };
                self.go_on(now, exchange, next);
            }
            Some(Purpose::Note { initialized, reply }) => {
                let initialized = *initialized;
                let kind = Kind::of(now, head, framing);
                // Nothing in a message can be meant for anyone.
                let idle = matches!(kind, Kind::Events | Kind::Json { .. });
                if let Kind::Other(other) = kind {
                    *reply = Some(Box::new(other));
                }
                let taken = reply.as_ref().is_none_or(|other| other.is_success());
                if idle {
                    self.client.give_up_at(exchange, now.after(LINGER));
                }
                if initialized && taken {
                    self.initialized(now);
                }
            }
            Some(Purpose::Listen) if listens => {
                if !self.listen.head(now, head, framing) {
                    // The connection is of use for something else.
                    self.client.give_up_at(exchange, now.after(LINGER));
                    let (initialized, reply) = (false, None);
                    let note = Purpose::Note { initialized, reply };
                    self.exchanges.insert(exchange, note);
                }
            }
            Some(Purpose::Listen | Purpose::Delete) | None => {}
        }
    }

    fn step_data(&mut self, now: Now, exchange: ExchangeId, data: &[u8]) {
        let listens = self.listens_on(exchange);
        match self.exchanges.get_mut(&exchange) {
            Some(Purpose::Call(call)) => {
                let mut with = Means {
                    limits: &self.call_limits,
                    bodies: &mut self.bodies,
                    texts: &mut self.texts,
                    events: &mut self.events,
                };
                let next = call.data(data, &mut with);
                self.go_on(now, exchange, next);
            }
            Some(Purpose::Note { reply, .. }) => {
                if reply.as_mut().is_some_and(|other| other.take(data)) {
                    self.client.cancel(exchange);
                    self.step_end(now, exchange);
                }
            }
            Some(Purpose::Listen) if listens => {
                self.listen.data(data, &mut self.events);
            }
            Some(Purpose::Listen | Purpose::Delete) | None => {}
        }
    }

    fn step_end(&mut self, now: Now, exchange: ExchangeId) {
        match self.exchanges.remove(&exchange) {
            Some(Purpose::Call(mut call)) => {
                let mut with = Means {
                    limits: &self.call_limits,
                    bodies: &mut self.bodies,
                    texts: &mut self.texts,
                    events: &mut self.events,
                };
                let next = call.end(&mut with);
                self.over(now, call, next);
            }
            Some(Purpose::Note { initialized, reply }) => self.note_over(initialized, reply),
            Some(Purpose::Listen) if self.listens_on(exchange) => {
                self.listen.ended(now, self.quiet_until);
            }
            Some(Purpose::Delete) => self.closed(UpstreamClosed::Local),
            Some(Purpose::Listen) | None => {}
        }
    }

    fn step_failed(&mut self, now: Now, exchange: ExchangeId, fault: Fault) {
        match self.exchanges.remove(&exchange) {
            Some(Purpose::Call(mut call)) => {
                let next = call.failed(fault, &self.call_limits);
                self.over(now, call, next);
            }
            Some(Purpose::Note { initialized, .. }) => {
                self.note_failed(initialized && self.holding.is_some(), fault);
            }
            Some(Purpose::Listen) if self.listens_on(exchange) => {
                self.listen.failed(now, &fault, self.quiet_until);
            }
            Some(Purpose::Delete) => self.closed(UpstreamClosed::Local),
            Some(Purpose::Listen) | None => {}
        }
    }

    fn listens_on(&self, exchange: ExchangeId) -> bool {
        self.listen.state == ListenState::Open(exchange)
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

    /// The exchange of a call has not ended, but what comes may be the last of it that is of use.
    fn go_on(&mut self, now: Now, exchange: ExchangeId, next: Next) {
        match next {
            Next::Going => {}
            Next::Answered => self.client.give_up_at(exchange, now.after(LINGER)),
            Next::Over(_) | Next::Resume(..) => {
                self.client.cancel(exchange);
                if let Some(Purpose::Call(call)) = self.exchanges.remove(&exchange) {
                    self.over(now, call, next);
                }
            }
        }
    }

    /// The exchange of a call has ended.
    fn over(&mut self, now: Now, call: Call, next: Next) {
        match next {
            Next::Going | Next::Answered | Next::Over(None) => {}
            Next::Over(Some(end)) => self.ended(call.id, end),
            Next::Resume(wait, why) => {
                let id = call.id;
                self.events
                    .push_back(UpstreamEvent::Resuming { id: Some(id), why });
                self.waiting.insert(id, (now.after(wait), Box::new(call)));
            }
        }
    }

    fn initialized(&mut self, now: Now) {
        self.holding = None;
        self.listen.begin(now);
    }

    fn note_over(&mut self, initialized: bool, reply: Option<Box<Other>>) {
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
}

impl Session {
    /// Takes the session id off the answer to `initialize`.
    fn adopt(&mut self, call: &Call, head: &ResponseHead) -> Result<(), String> {
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
        self.fields.name(id).map_err(|error| error.to_string())
    }
}
