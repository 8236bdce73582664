//! The stream of a session: what the server says that answers no request.
//!
//! | state      | input                           | next       | output                              |
//! |------------|---------------------------------|------------|-------------------------------------|
//! | Off        | `initialized` was accepted      | Due        |                                     |
//! | Due        | time                            | Open       | GET                                 |
//! | Open       | head of an event stream         | Open       |                                     |
//! | Open       | 429, 5xx but 501                | Due        |                                     |
//! | Open       | any other head, a redirect      | NotOffered |                                     |
//! | Open       | end or fault                    | Due        |                                     |
//! | any        | a new handshake, the end        | Off        |                                     |
//!
//! The wait is what the server asked for, or 1 s; it doubles with each connection that brings nothing, up to
//! 30 s. A server that does not offer the stream is not asked again.
//!
//! Source: Spec 2025-11-25 basic/transports (Listening for Messages); cases d04, e05.

use std::collections::VecDeque;
use std::time::Duration;

use super::call::{not_utf8, too_large};
use super::client::{ExchangeId, Fault};
use super::feed::{Fed, Feed, RETRY_MAX};
use super::reply::Kind;
use crate::clock::{Now, Uptime};
use crate::codec::http_body::Framing;
use crate::codec::http1::ResponseHead;
use crate::link::upstream::UpstreamEvent;

/// A connection that lasted so long was good, whether it brought something or not.
const GOOD_SERVICE: Duration = Duration::from_secs(10);

/// Shortest wait between two connections.
const WAIT_MIN: Duration = Duration::from_millis(100);

/// The stream.
#[derive(Debug)]
pub(super) struct Listen {
    pub(super) state: State,
    feed: Feed,
    event_bytes_max: usize,
    /// Connections in a row that brought nothing.
    fruitless: u32,
    since: Uptime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Off,
    Due(Uptime),
    Open(ExchangeId),
    NotOffered,
}

impl Listen {
    pub(super) const fn new(event_bytes_max: usize) -> Self {
        Self {
            state: State::Off,
            feed: Feed::new(event_bytes_max),
            event_bytes_max,
            fruitless: 0,
            since: Uptime::ZERO,
        }
    }

    /// A new session begins; the exchange that is to be ended.
    pub(super) fn reset(&mut self) -> Option<ExchangeId> {
        let open = match self.state {
            State::Open(exchange) => Some(exchange),
            State::Off | State::Due(_) | State::NotOffered => None,
        };
        *self = Self::new(self.event_bytes_max);
        open
    }

    /// The session has begun.
    pub(super) fn begin(&mut self, now: Now) {
        if self.state == State::Off {
            self.state = State::Due(now.up);
        }
    }

    /// The GET is on its way.
    pub(super) fn opened(&mut self, now: Now, exchange: ExchangeId) {
        self.feed.reconnect();
        self.since = now.up;
        self.state = State::Open(exchange);
    }

    /// The id to go on behind.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.feed.last_id()
    }

    /// The head of the answer; false when the exchange is to be ended. `quiet_until`: before that the server
    /// wants no traffic.
    pub(super) fn head(&mut self, now: Now, head: &ResponseHead, framing: Framing) -> bool {
        match Kind::of(now, head, framing) {
            Kind::Events => return true,
            Kind::Json { .. } => self.state = State::NotOffered,
            Kind::Other(other) => match other.status.status {
                501 => self.state = State::NotOffered,
                408 | 429 | 500..=599 => {
                    let wait = Duration::from_millis(other.status.retry_after_ms.unwrap_or(0));
                    self.ended(now, now.after(wait.min(RETRY_MAX)));
                }
                _ => self.state = State::NotOffered,
            },
        }
        false
    }

    /// Bytes of the stream.
    pub(super) fn data(&mut self, data: &[u8], events: &mut VecDeque<UpstreamEvent>) {
        let fruitless = &mut self.fruitless;
        self.feed.feed(data, |fed| match fed {
            Fed::Message(bytes) => {
                *fruitless = 0;
                events.push_back(match std::str::from_utf8(bytes) {
                    Ok(text) => UpstreamEvent::Message {
                        text: text.into(),
                        on: None,
                        answer: None,
                    },
                    Err(_) => not_utf8(bytes, None),
                });
            }
            Fed::Named(name, _) => {
                log::debug!("event {} is no message", name.escape_ascii());
            }
            Fed::Oversized { limit } => events.push_back(too_large(limit, None)),
        });
    }

    /// The exchange is over. Not before `earliest` is the next one.
    pub(super) fn ended(&mut self, now: Now, earliest: Uptime) {
        if now.up.since(self.since) >= GOOD_SERVICE {
            self.fruitless = 0;
        }
        let wait = self.feed.wait().max(WAIT_MIN);
        let wait = wait.saturating_mul(2_u32.saturating_pow(self.fruitless.min(16)));
        self.fruitless += 1;
        self.state = State::Due(now.after(wait.min(RETRY_MAX)).max(earliest));
    }

    /// The exchange came to nothing.
    pub(super) fn failed(&mut self, now: Now, fault: &Fault, earliest: Uptime) {
        match fault {
            Fault::Redirect { .. } => self.state = State::NotOffered,
            Fault::NotOpened(_) | Fault::NotSent(_) | Fault::Broken(_) => self.ended(now, earliest),
        }
    }
}
