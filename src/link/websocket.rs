//! One WebSocket connection, either end: opening, handshake, messages, closing.
//!
//! | state          | input                      | next      | output                           |
//! |----------------|----------------------------|-----------|----------------------------------|
//! | Opening        | `Opened`                   | Upgrading | upgrade request                  |
//! | Opening        | `Failed`                   | Closed    | `Closed(Io)`                     |
//! | Opening        | `close`                    | Closed    | close wire, `Closed(Local)`      |
//! | Opening        | deadline                   | Closed    | close wire, `Closed(TimedOut)`   |
//! | Upgrading      | part of an answer          | Upgrading | nothing                          |
//! | Upgrading      | interim answer (1xx)       | Upgrading | nothing                          |
//! | Upgrading      | good 101                   | Open      | `Up`; bytes behind it are frames |
//! | Upgrading      | bad 101                    | Closed    | close wire, `Closed(Violation)`  |
//! | Upgrading      | not HTTP                   | Closed    | close wire, `Closed(Violation)`  |
//! | Upgrading      | other answer               | Refused   | nothing                          |
//! | Upgrading      | end or fault               | Closed    | close wire, `Closed(Io)`         |
//! | Upgrading      | `close`                    | Closed    | close wire, `Closed(Local)`      |
//! | Upgrading      | deadline                   | Closed    | close wire, `Closed(TimedOut)`   |
//! | Refused        | part of a body             | Refused   | nothing                          |
//! | Refused        | enough of a body           | Closed    | close wire, `Closed(Refused)`    |
//! | Refused        | end, fault or deadline     | Closed    | close wire, `Closed(Refused)`    |
//! | Refused        | `close`                    | Closed    | close wire, `Closed(Local)`      |
//! | Accepting      | part of a request          | Accepting | nothing                          |
//! | Accepting      | good request               | Open      | 101, `Up`                        |
//! | Accepting      | bad request                | Leaving   | 4xx or 505, end our direction    |
//! | Accepting      | end or fault               | Closed    | close wire, `Closed(Io)`         |
//! | Accepting      | `close`                    | Closed    | close wire, `Closed(Local)`      |
//! | Accepting      | deadline                   | Closed    | close wire, `Closed(TimedOut)`   |
//! | Open           | text message               | Open      | `Text`                           |
//! | Open           | ping                       | Open      | pong                             |
//! | Open           | close frame                | Leaving   | close frame, end our direction   |
//! | Open           | bad frame                  | Leaving   | close frame, end our direction   |
//! | Open           | `close`                    | Closing   | close frame                      |
//! | Open           | end or fault               | Closed    | close wire, `Closed(Io)`         |
//! | Closing        | text message               | Closing   | nothing                          |
//! | Closing        | close frame, ours has left | Closed    | close wire, `Closed(Local)`      |
//! | Closing        | close frame, ours waits    | Leaving   | end our direction                |
//! | Closing        | bad frame                  | Closed    | close wire, `Closed(Local)`      |
//! | Closing        | end, fault or deadline     | Closed    | close wire, `Closed(Local)`      |
//! | Leaving        | bytes                      | Leaving   | nothing                          |
//! | Leaving        | end, bytes of ours wait    | Leaving   | nothing                          |
//! | Leaving        | end, fault or deadline     | Closed    | close wire, `Closed(reason)`     |
//! | any but Closed | `abort`                    | Closed    | close wire, `Closed(Local)`      |
//! | Closed         | anything                   | Closed    | nothing                          |
//!
//! The deadline of Opening, Upgrading and Accepting is one: `gateway_open_timeout` from the start.
//! In Refused, Closing and Leaving it is [`CLOSE_TIMEOUT`]. After `Failed` the wire is gone and is
//! not closed again.
//!
//! Source: RFC 6455 §4, §5.5.1, §7; OpenClaw: Gateway transport and client close (openclaw-serve
//! §1.1, §1.6).
//! Never: opens a socket, reads a clock, reconnects, knows what a message means.

mod reason;
mod refusal;

use std::collections::VecDeque;
use std::time::Duration;

pub use reason::{CloseReason, Full};
use refusal::RefusedUpgrade;

use crate::clock::{Deadline, Now};
use crate::codec::http1::{HeadLimits, Progress, RequestReader, ResponseReader};
use crate::codec::outbuf::OutBuf;
use crate::codec::uri::host_header;
use crate::codec::websocket::upgrade::{ClientUpgrade, Refusal, answer};
use crate::codec::websocket::{Role, WebSocket, WsEvent};
use crate::entropy::Entropy;
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::{FaultKind, IoEvent, IoFault, IoRequest, OpenSpec, TlsSpec};
use crate::secret::{Quoted, Secret};

/// How long the peer may take to answer our close frame, or to end its side after its own.
/// Source: OpenClaw gives up after 1 s (openclaw-serve §1.6).
pub const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// What a frame adds to its payload at most. RFC 6455 §5.2.
const FRAME_HEAD_BYTES_MAX: usize = 14;

/// Where to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectSpec {
    /// Name or address literal, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query, beginning with `/`.
    pub path: String,
    /// TLS settings for `wss`, `None` for `ws`.
    pub tls: Option<TlsSpec>,
}

/// What a connection tells its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WsLinkEvent {
    /// The handshake is done; texts may be sent.
    Up,
    /// A text message arrived.
    Text(String),
    /// The connection is over. Comes once, last.
    Closed(CloseReason),
}

/// One WebSocket connection. Driven like every machine: one `handle_*`, then `poll_event` and
/// `poll_io` to `None`.
#[derive(Debug)]
pub struct WebSocketLink {
    wire: WireId,
    state: State,
    deadline: Option<Deadline>,
    out: OutBuf,
    /// Whether `out` got bytes since the last `Flush`.
    unflushed: bool,
    requests: VecDeque<IoRequest>,
    events: VecDeque<WsLinkEvent>,
    /// The time of the last input; messages are read when they are polled, in the same turn.
    now: Now,
    head_limits: HeadLimits,
    open_timeout: Duration,
    out_bytes_max: usize,
    message_bytes_max: usize,
}

#[derive(Debug)]
enum State {
    Opening(Box<Handshake>),
    Upgrading(Box<Handshake>, ResponseReader),
    Refused(RefusedUpgrade),
    Accepting(RequestReader),
    Open(Box<WebSocket>),
    Closing(Box<WebSocket>),
    Leaving { reason: CloseReason, ended: bool },
    Closed,
}

/// What a client needs until it is up.
#[derive(Debug)]
struct Handshake {
    upgrade: ClientUpgrade,
    /// May hold a token in its query.
    request: Secret<Vec<u8>>,
    mask_seed: [u8; 16],
}

impl WebSocketLink {
    /// A connection to `spec`; asks for its wire itself. Opening, TLS and the upgrade together may
    /// take `gateway_open_timeout`.
    pub fn client(
        wire: WireId,
        spec: ConnectSpec,
        limits: &Limits,
        entropy: &mut dyn Entropy,
        now: Now,
    ) -> Self {
        let mut mask_seed = [0_u8; 16];
        entropy.fill(&mut mask_seed);
        let upgrade = ClientUpgrade::new(entropy);
        let host = host_header(&spec.host, spec.port, spec.tls.is_some());
        let request = upgrade.request(&host, &spec.path);
        let mut link = Self::new(wire, State::Closed, limits, now);
        match request {
            Ok(request) => {
                link.requests.push_back(IoRequest::Open(
                    wire,
                    OpenSpec::Tcp {
                        host: spec.host,
                        port: spec.port,
                        tls: spec.tls,
                    },
                ));
                link.state = State::Opening(Box::new(Handshake {
                    upgrade,
                    request: Secret::new(request),
                    mask_seed,
                }));
            }
            Err(error) => {
                link.deadline = None;
                link.events
                    .push_back(WsLinkEvent::Closed(CloseReason::Io(IoFault {
                        kind: FaultKind::Unreachable,
                        message: format!("cannot ask {}: {error}", Quoted(&host)),
                    })));
            }
        }
        link
    }

    /// A connection that a listener accepted: its wire is open. The request must be there within
    /// `gateway_open_timeout`.
    #[must_use]
    pub fn server(wire: WireId, limits: &Limits, now: Now) -> Self {
        let reader = RequestReader::new(HeadLimits::from(limits));
        Self::new(wire, State::Accepting(reader), limits, now)
    }

    fn new(wire: WireId, state: State, limits: &Limits, now: Now) -> Self {
        Self {
            wire,
            state,
            deadline: Some(Deadline::new(
                now.after(limits.gateway_open_timeout),
                "websocket open",
            )),
            out: OutBuf::new(),
            unflushed: false,
            requests: VecDeque::new(),
            events: VecDeque::new(),
            now,
            head_limits: HeadLimits::from(limits),
            open_timeout: limits.gateway_open_timeout,
            out_bytes_max: limits.gateway_out_bytes_max,
            message_bytes_max: limits.gateway_hello_bytes_max,
        }
    }

    /// The wire it was made with.
    #[must_use]
    pub const fn wire(&self) -> WireId {
        self.wire
    }

    /// Bytes on their way out.
    pub fn outgoing(&mut self) -> &mut OutBuf {
        &mut self.out
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// Something happened on the wire.
    pub fn handle_io(&mut self, now: Now, event: IoEvent<'_>) {
        self.now = now;
        match event {
            IoEvent::Bytes(bytes) => self.bytes(bytes),
            IoEvent::Opened => self.opened(),
            IoEvent::Drained => self.drained(),
            IoEvent::Eof => self.ended(true),
            IoEvent::WriteClosed => self.ended(false),
            IoEvent::Failed(fault) => self.failed(fault),
            // Of children only.
            IoEvent::StderrBytes(_) | IoEvent::Exited(_) => {}
        }
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        if self.deadline.is_none_or(|deadline| deadline.at > now.up) {
            return;
        }
        let late = |what| CloseReason::TimedOut {
            what,
            limit_ms: u64::try_from(self.open_timeout.as_millis()).unwrap_or(u64::MAX),
        };
        let reason = match std::mem::replace(&mut self.state, State::Closed) {
            State::Opening(_) => late("connecting"),
            State::Upgrading(..) | State::Accepting(_) => late("websocket upgrade"),
            State::Refused(refused) => refused.into_reason(),
            State::Leaving { reason, .. } => reason,
            State::Closing(_) | State::Open(_) | State::Closed => CloseReason::Local,
        };
        self.finish(reason, true);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<WsLinkEvent> {
        while self.events.is_empty() && self.read_message() {}
        self.events.pop_front()
    }

    /// The next thing the loop is to do. Drain [`poll_event`](Self::poll_event) first: reading a
    /// message may produce a pong.
    pub fn poll_io(&mut self) -> Option<IoRequest> {
        if matches!(self.requests.front(), Some(IoRequest::Open(..))) || !self.unflushed {
            return self.requests.pop_front();
        }
        self.unflushed = false;
        Some(IoRequest::Flush(self.wire))
    }

    /// Sends a text message. Dropped without an error when the connection is not up, or no longer:
    /// its owner learns that from [`WsLinkEvent`].
    ///
    /// # Errors
    /// [`Full`] when too much would wait; nothing was queued.
    pub fn send_text(&mut self, text: &str) -> Result<(), Full> {
        let State::Open(socket) = &mut self.state else {
            log::debug!("wire {}: text dropped, the connection is not up", self.wire);
            return Ok(());
        };
        let value = self
            .out
            .len()
            .saturating_add(text.len())
            .saturating_add(FRAME_HEAD_BYTES_MAX);
        if value > self.out_bytes_max {
            return Err(Full {
                limit: self.out_bytes_max,
                value,
            });
        }
        socket.send_text(&mut self.out, text);
        self.unflushed = true;
        Ok(())
    }

    /// Sends a ping, if the connection is up. The answer is not reported.
    pub fn ping(&mut self) {
        if let State::Open(socket) = &mut self.state {
            socket.ping(&mut self.out);
            self.unflushed = true;
        }
    }

    /// Accepts messages up to this size from now on; before the first call it is
    /// `gateway_hello_bytes_max`. Applies to every message behind the one polled last.
    pub fn accept_messages_up_to(&mut self, bytes_max: usize) {
        self.message_bytes_max = bytes_max;
        if let State::Open(socket) = &mut self.state {
            socket.set_message_bytes_max(bytes_max);
        }
    }

    /// Ends the connection in order: close frame, at most [`CLOSE_TIMEOUT`] for the peer's, then
    /// `Closed(Local)`. No text is reported any more. Before the connection is up it ends at once.
    pub fn close(&mut self, now: Now, code: Option<u16>, reason: &str) {
        self.now = now;
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Open(mut socket) => {
                socket.close(&mut self.out, code, reason);
                self.unflushed = true;
                self.state = State::Closing(socket);
                self.wait_for("websocket close");
            }
            State::Opening(_) | State::Upgrading(..) | State::Refused(_) | State::Accepting(_) => {
                self.finish(CloseReason::Local, true);
            }
            unchanged @ (State::Closing(_) | State::Leaving { .. } | State::Closed) => {
                self.state = unchanged;
            }
        }
    }

    /// Ends the connection at once, without a close frame.
    pub fn abort(&mut self) {
        if !matches!(self.state, State::Closed) {
            self.finish(CloseReason::Local, true);
        }
    }

    fn opened(&mut self) {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Opening(handshake) => {
                let request = handshake.request.expose();
                self.out.tail().extend_from_slice(request);
                self.unflushed = true;
                self.state = State::Upgrading(handshake, ResponseReader::new(self.head_limits));
            }
            unchanged @ (State::Upgrading(..)
            | State::Refused(_)
            | State::Accepting(_)
            | State::Open(_)
            | State::Closing(_)
            | State::Leaving { .. }
            | State::Closed) => self.state = unchanged,
        }
    }

    fn bytes(&mut self, mut bytes: &[u8]) {
        match &mut self.state {
            State::Upgrading(..) => self.read_answer(&mut bytes),
            State::Accepting(_) => self.read_request(&mut bytes),
            State::Opening(_)
            | State::Refused(_)
            | State::Open(_)
            | State::Closing(_)
            | State::Leaving { .. }
            | State::Closed => {}
        }
        match &mut self.state {
            State::Open(socket) | State::Closing(socket) => {
                let before = self.out.len();
                socket.feed(bytes, &mut self.out);
                self.unflushed |= self.out.len() > before;
            }
            State::Refused(refused) => {
                if refused.take(bytes) {
                    self.finish_refused();
                }
            }
            State::Opening(_)
            | State::Upgrading(..)
            | State::Accepting(_)
            | State::Leaving { .. }
            | State::Closed => {}
        }
    }

    /// Client: reads on in the answer to the upgrade; leaves what lies behind it.
    fn read_answer(&mut self, bytes: &mut &[u8]) {
        while let State::Upgrading(handshake, reader) = &mut self.state {
            let head = match reader.read(bytes) {
                Ok(Progress::NeedMore) => return *bytes = &[],
                Ok(Progress::Done { head, used }) => {
                    *bytes = &bytes[used..];
                    head
                }
                Err(error) => {
                    let how = format!("upgrade was not answered properly: {error}");
                    return self.finish(CloseReason::Violation(how), true);
                }
            };
            match head.status {
                101 => match handshake.upgrade.check(&head) {
                    Ok(()) => {
                        let mask_seed = handshake.mask_seed;
                        self.up(Role::Client { mask_seed });
                    }
                    Err(error) => {
                        self.finish(CloseReason::Violation(error.to_string()), true);
                    }
                },
                // RFC 9110 §15.2: an interim answer announces another one.
                100..=199 => {}
                _ => {
                    self.state = State::Refused(RefusedUpgrade::new(&head));
                    self.wait_for("body of a refusal");
                }
            }
        }
    }

    /// Server: reads on in the request; leaves what lies behind it.
    fn read_request(&mut self, bytes: &mut &[u8]) {
        let State::Accepting(reader) = &mut self.state else {
            return;
        };
        let answered = match reader.read(bytes) {
            Ok(Progress::NeedMore) => return *bytes = &[],
            Ok(Progress::Done { head, used }) => {
                *bytes = &bytes[used..];
                answer(&head)
            }
            Err(error) => Err(Refusal {
                status: error.status(),
                text: error.to_string(),
            }),
        };
        self.unflushed = true;
        match answered {
            Ok(head) => {
                self.out.tail().extend_from_slice(&head);
                self.up(Role::Server);
            }
            Err(refusal) => {
                self.out.tail().extend_from_slice(&refusal.answer());
                let how = format!(
                    "upgrade request refused with HTTP status {}: {}",
                    refusal.status, refusal.text
                );
                self.leave(CloseReason::Violation(how));
            }
        }
    }

    fn up(&mut self, role: Role) {
        let socket = WebSocket::new(role, self.message_bytes_max);
        self.state = State::Open(Box::new(socket));
        self.deadline = None;
        self.events.push_back(WsLinkEvent::Up);
    }

    /// Takes the next message out of the bytes that arrived; false when there is none.
    fn read_message(&mut self) -> bool {
        let (socket, closing) = match &mut self.state {
            State::Open(socket) => (socket, false),
            State::Closing(socket) => (socket, true),
            State::Opening(_)
            | State::Upgrading(..)
            | State::Refused(_)
            | State::Accepting(_)
            | State::Leaving { .. }
            | State::Closed => return false,
        };
        let before = self.out.len();
        let event = socket.poll(&mut self.out);
        self.unflushed |= self.out.len() > before;
        match event {
            None => return false,
            Some(WsEvent::Text(_)) if closing => {}
            Some(WsEvent::Text(text)) => self.events.push_back(WsLinkEvent::Text(text)),
            // Both ends closed at once and ours has not left yet: the peer waits for it.
            Some(WsEvent::Close { .. }) if closing && !self.out.is_empty() => {
                self.leave(CloseReason::Local);
            }
            Some(WsEvent::Close { .. } | WsEvent::Violation(_)) if closing => {
                self.finish(CloseReason::Local, true);
            }
            Some(WsEvent::Close { code, reason }) => {
                self.leave(CloseReason::Peer { code, reason });
            }
            Some(WsEvent::Violation(error)) => {
                self.leave(CloseReason::Violation(error.to_string()));
            }
        }
        true
    }

    /// Room in the outgoing buffer: a pong may wait for it, or the end of our direction.
    fn drained(&mut self) {
        match &mut self.state {
            State::Open(socket) => {
                socket.flush(&mut self.out);
                self.unflushed |= !self.out.is_empty();
            }
            State::Leaving { ended: true, .. } => self.ended(false),
            State::Opening(_)
            | State::Upgrading(..)
            | State::Refused(_)
            | State::Accepting(_)
            | State::Closing(_)
            | State::Leaving { .. }
            | State::Closed => {}
        }
    }

    /// The peer ended its direction (`their_end`) or takes no more of ours.
    fn ended(&mut self, their_end: bool) {
        while self.read_message() {}
        let reason = match std::mem::replace(&mut self.state, State::Closed) {
            // What we still have for the peer may pass: a close frame, the answer to a bad request.
            State::Leaving { reason, .. } if their_end && !self.out.is_empty() => {
                self.state = State::Leaving {
                    reason,
                    ended: true,
                };
                return;
            }
            State::Leaving { reason, .. } => reason,
            State::Refused(refused) => refused.into_reason(),
            State::Closing(_) => CloseReason::Local,
            State::Opening(_) | State::Upgrading(..) | State::Accepting(_) => {
                dropped("connection dropped before the websocket upgrade")
            }
            State::Open(_) => dropped("connection dropped"),
            State::Closed => return,
        };
        self.finish(reason, true);
    }

    fn failed(&mut self, fault: IoFault) {
        while self.read_message() {}
        let reason = match std::mem::replace(&mut self.state, State::Closed) {
            State::Leaving { reason, .. } => reason,
            State::Refused(refused) => refused.into_reason(),
            State::Closing(_) => CloseReason::Local,
            State::Opening(_) | State::Upgrading(..) | State::Accepting(_) | State::Open(_) => {
                CloseReason::Io(fault)
            }
            State::Closed => return,
        };
        self.finish(reason, false);
    }

    fn finish_refused(&mut self) {
        if let State::Refused(refused) = std::mem::replace(&mut self.state, State::Closed) {
            self.finish(refused.into_reason(), true);
        }
    }

    /// Lets what is pending leave and waits for the peer's end, so that a reset does not overtake
    /// it.
    fn leave(&mut self, reason: CloseReason) {
        self.requests.push_back(IoRequest::CloseWrite(self.wire));
        self.state = State::Leaving {
            reason,
            ended: false,
        };
        self.wait_for("websocket end");
    }

    fn wait_for(&mut self, why: &'static str) {
        self.deadline = Some(Deadline::new(self.now.after(CLOSE_TIMEOUT), why));
    }

    fn finish(&mut self, reason: CloseReason, close_wire: bool) {
        self.state = State::Closed;
        self.deadline = None;
        self.out.clear();
        self.unflushed = false;
        let never_opened = matches!(self.requests.front(), Some(IoRequest::Open(..)));
        self.requests.clear();
        if close_wire && !never_opened {
            self.requests.push_back(IoRequest::Close(self.wire));
        }
        self.events.push_back(WsLinkEvent::Closed(reason));
    }
}

fn dropped(message: &str) -> CloseReason {
    CloseReason::Io(IoFault {
        kind: FaultKind::Broken,
        message: message.to_owned(),
    })
}

#[cfg(test)]
mod tests;
