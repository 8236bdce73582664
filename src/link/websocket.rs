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
//! The deadline of Opening, Upgrading and Accepting is one: `gateway_open_timeout` from the start. In
//! Refused, Closing and Leaving it is [`CLOSE_TIMEOUT`].
//! After `Failed` the wire is gone and is not closed again.
//!
//! Source: RFC 6455 §4, §5.5.1, §7; OpenClaw: Gateway transport and client close (openclaw-serve §1.1, §1.6).
//! Never: opens a socket, reads a clock, reconnects, knows what a message means.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::clock::{Deadline, Now};
use crate::codec::http1::{HeadLimits, Progress, RequestReader, ResponseHead, ResponseReader};
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

/// How much of the body of a refused upgrade is kept. Unit: bytes. Source: cli-json §6.
pub const REFUSAL_BODY_BYTES_MAX: usize = 200;

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

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// We wanted it.
    Local,
    /// The peer sent a close frame.
    Peer {
        /// Its code, when it gave one.
        code: Option<u16>,
        /// Its reason; may be empty. Untrusted text.
        reason: String,
    },
    /// The peer broke the protocol: how.
    Violation(String),
    /// The upgrade was answered with another status than 101.
    Refused {
        /// The status.
        status: u16,
        /// The first bytes of the body. Untrusted text.
        body: String,
    },
    /// The wire could not be opened, broke, or ended without a close frame.
    Io(IoFault),
    /// A time limit passed.
    TimedOut {
        /// What did not happen in time.
        what: &'static str,
        /// The limit.
        limit_ms: u64,
    },
}

impl CloseReason {
    /// The close code as an application would be told it: 1005 for a close frame without a code, 1006
    /// for a connection that ended without a close frame. RFC 6455 §7.1.5.
    #[must_use]
    pub const fn code(&self) -> Option<u16> {
        match self {
            Self::Peer { code: None, .. } => Some(1005),
            Self::Peer { code, .. } => *code,
            Self::Io(_) => Some(1006),
            Self::Local | Self::Violation(_) | Self::Refused { .. } | Self::TimedOut { .. } => None,
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed by us"),
            Self::Peer { code, reason } => {
                f.write_str("closed by the peer")?;
                if let Some(code) = code {
                    write!(f, " with code {code}")?;
                }
                if reason.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {}", Quoted(reason))
                }
            }
            Self::Violation(how) => f.write_str(how),
            Self::Refused { status, body } => {
                write!(f, "upgrade was answered with HTTP status {status}")?;
                if body.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {}", Quoted(body))
                }
            }
            Self::Io(fault) => f.write_str(&fault.message),
            Self::TimedOut { what, limit_ms } => write!(f, "{what} timed out after {limit_ms} ms"),
        }
    }
}

/// Too much waits to be sent: the peer does not read. The owner drops the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The limit in bytes (`gateway_out_bytes_max`).
    pub limit: usize,
    /// What would wait with this message, in bytes.
    pub value: usize,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, value } = self;
        write!(
            f,
            "peer is not reading: {value} bytes queued, limit {limit}"
        )
    }
}

impl std::error::Error for Full {}

/// One WebSocket connection. Driven like every machine: one `handle_*`, then `poll_event` and `poll_io`
/// to `None`.
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
    Refused(Refused),
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

/// An answer that is no upgrade, while the start of its body arrives.
#[derive(Debug)]
struct Refused {
    status: u16,
    chunked: bool,
    body: Vec<u8>,
    /// Bytes worth waiting for.
    wanted: usize,
}

impl WebSocketLink {
    /// A connection to `spec`; asks for its wire itself. Opening, TLS and the upgrade together may take
    /// `gateway_open_timeout`.
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

    /// The next thing the loop is to do. Drain [`poll_event`](Self::poll_event) first: reading a message
    /// may produce a pong.
    pub fn poll_io(&mut self) -> Option<IoRequest> {
        if matches!(self.requests.front(), Some(IoRequest::Open(..))) || !self.unflushed {
            return self.requests.pop_front();
        }
        self.unflushed = false;
        Some(IoRequest::Flush(self.wire))
    }

    /// Sends a text message. Dropped without an error when the connection is not up, or no longer: its
    /// owner learns that from [`WsLinkEvent`].
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

    /// Accepts messages up to this size from now on; before the first call it is `gateway_hello_bytes_max`.
    /// Applies to every message behind the one polled last.
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
                self.events.clear();
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
            self.events.clear();
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
                    self.state = State::Refused(Refused::new(&head));
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

    /// Lets what is pending leave and waits for the peer's end, so that a reset does not overtake it.
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

impl Refused {
    fn new(head: &ResponseHead) -> Self {
        let declared = head
            .fields
            .only("Content-Length")
            .and_then(|value| value.parse::<usize>().ok());
        Self {
            status: head.status,
            chunked: head.fields.has_token("Transfer-Encoding", "chunked"),
            body: Vec::new(),
            wanted: declared.map_or(REFUSAL_BODY_BYTES_MAX, |n| n.min(REFUSAL_BODY_BYTES_MAX)),
        }
    }

    /// Takes bytes of the body; true when it wants no more.
    fn take(&mut self, bytes: &[u8]) -> bool {
        let room = self.wanted - self.body.len();
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.body.len() == self.wanted
    }

    fn into_reason(self) -> CloseReason {
        let body = if self.chunked {
            first_chunk(&self.body)
        } else {
            &self.body
        };
        CloseReason::Refused {
            status: self.status,
            body: String::from_utf8_lossy(body).trim_end().to_owned(),
        }
    }
}

/// The start of a chunked body without its framing, good enough to be read by a person.
fn first_chunk(body: &[u8]) -> &[u8] {
    let Some(at) = body.iter().position(|b| *b == b'\n') else {
        return &[];
    };
    let (line, data) = body.split_at(at + 1);
    let size = std::str::from_utf8(line.trim_ascii())
        .ok()
        .and_then(|text| usize::from_str_radix(text, 16).ok());
    &data[..size.unwrap_or(data.len()).min(data.len())]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::clock::Uptime;
    use crate::codec::websocket::upgrade::accept_key;
    use crate::entropy::Seeded;

    const WIRE: WireId = WireId(7);

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: 0,
        }
    }

    /// A connection in some state, and what it asked and told since `forget`.
    struct Rig {
        link: WebSocketLink,
        log: Vec<String>,
        sent: Vec<u8>,
        /// Whether flushed bytes leave.
        reading: bool,
    }

    impl Rig {
        fn new(link: WebSocketLink) -> Self {
            Self {
                link,
                log: Vec::new(),
                sent: Vec::new(),
                reading: true,
            }
        }

        fn drain(&mut self) {
            while let Some(event) = self.link.poll_event() {
                self.log.push(match event {
                    WsLinkEvent::Up => "up".to_owned(),
                    WsLinkEvent::Text(text) => format!("text {text}"),
                    WsLinkEvent::Closed(reason) => format!("closed: {reason}"),
                });
            }
            while let Some(request) = self.link.poll_io() {
                self.log.push(match request {
                    IoRequest::Open(wire, OpenSpec::Tcp { host, port, .. }) => {
                        assert_eq!(wire, WIRE);
                        format!("open {host} {port}")
                    }
                    IoRequest::Flush(_) => "flush".to_owned(),
                    IoRequest::CloseWrite(_) => "close write".to_owned(),
                    IoRequest::Close(_) => "close".to_owned(),
                    other @ (IoRequest::Open(..)
                    | IoRequest::PauseReads(..)
                    | IoRequest::Signal(..)
                    | IoRequest::Append(_)) => panic!("asked for {other:?}"),
                });
            }
            if self.reading {
                self.sent.extend_from_slice(self.link.outgoing().pending());
                self.link.outgoing().clear();
            }
        }

        fn hear(&mut self, event: IoEvent<'_>) {
            self.link.handle_io(at(10), event);
            self.drain();
        }

        fn bytes(&mut self, bytes: &[u8]) {
            self.hear(IoEvent::Bytes(bytes));
        }

        fn fault(&mut self) {
            self.hear(IoEvent::Failed(IoFault {
                kind: FaultKind::Unreachable,
                message: "h:80 refused".to_owned(),
            }));
        }

        fn tick(&mut self, ms: u64) {
            self.link.handle_timeout(at(ms));
            self.drain();
        }

        fn close(&mut self) {
            self.link.close(at(10), Some(1000), "bye");
            self.drain();
        }

        fn state(&self) -> &'static str {
            match self.link.state {
                State::Opening(_) => "Opening",
                State::Upgrading(..) => "Upgrading",
                State::Refused(_) => "Refused",
                State::Accepting(_) => "Accepting",
                State::Open(_) => "Open",
                State::Closing(_) => "Closing",
                State::Leaving { .. } => "Leaving",
                State::Closed => "Closed",
            }
        }

        fn forget(mut self) -> Self {
            self.log.clear();
            self.sent.clear();
            self
        }

        /// The 101 that answers our request.
        fn answer(&self) -> Vec<u8> {
            let request = String::from_utf8_lossy(&self.sent).into_owned();
            let key = request
                .split("Sec-WebSocket-Key: ")
                .nth(1)
                .expect("a key")
                .trim_end();
            format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                 Connection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n\r\n",
                accept_key(key)
            )
            .into_bytes()
        }
    }

    fn limits() -> Limits {
        Limits {
            gateway_out_bytes_max: 100,
            ..Limits::default()
        }
    }

    fn spec() -> ConnectSpec {
        ConnectSpec {
            host: "h".to_owned(),
            port: 80,
            path: "/".to_owned(),
            tls: None,
        }
    }

    fn client(spec: ConnectSpec) -> Rig {
        Rig::new(WebSocketLink::client(
            WIRE,
            spec,
            &limits(),
            &mut Seeded::new(1),
            at(0),
        ))
    }

    fn opening() -> Rig {
        let mut rig = client(spec());
        rig.drain();
        assert_eq!(rig.log, ["open h 80"]);
        rig.forget()
    }

    fn upgrading() -> Rig {
        let mut rig = opening();
        rig.hear(IoEvent::Opened);
        rig.log.clear();
        rig
    }

    fn refused() -> Rig {
        let mut rig = upgrading();
        rig.bytes(b"HTTP/1.1 404 Not Found\r\nContent-Length: 8\r\n\r\n");
        rig.forget()
    }

    fn accepting() -> Rig {
        Rig::new(WebSocketLink::server(WIRE, &limits(), at(0)))
    }

    fn open() -> Rig {
        let mut rig = upgrading();
        let answer = rig.answer();
        rig.bytes(&answer);
        rig.forget()
    }

    fn closing() -> Rig {
        let mut rig = open();
        rig.close();
        rig.forget()
    }

    fn closing_unread() -> Rig {
        let mut rig = open();
        rig.reading = false;
        rig.close();
        rig.forget()
    }

    fn leaving() -> Rig {
        let mut rig = open();
        rig.bytes(b"\x88\x02\x03\xe8");
        rig.forget()
    }

    fn leaving_unread() -> Rig {
        let mut rig = open();
        rig.reading = false;
        rig.bytes(b"\x88\x02\x03\xe8");
        rig.forget()
    }

    fn closed() -> Rig {
        let mut rig = leaving();
        rig.hear(IoEvent::Eof);
        rig.forget()
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n\
        Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

    /// One transition: state, input and next state as in the module's table, how to get there, what to
    /// do, and what is asked and told then.
    type Row = (
        &'static str,
        &'static str,
        &'static str,
        fn() -> Rig,
        fn(&mut Rig),
        &'static [&'static str],
    );

    const LOCAL: &[&str] = &["closed: closed by us", "close"];
    const LATE: &[&str] = &[
        "closed: websocket upgrade timed out after 15000 ms",
        "close",
    ];
    const EARLY_END: &[&str] = &[
        "closed: connection dropped before the websocket upgrade",
        "close",
    ];
    const DROPPED: &[&str] = &["closed: connection dropped", "close"];
    const FAULT: &[&str] = &["closed: h:80 refused"];
    const PEER: &[&str] = &["closed: closed by the peer with code 1000", "close"];
    const NOT_FOUND: &[&str] = &[
        "closed: upgrade was answered with HTTP status 404: no",
        "close",
    ];
    const ANSWERED: &[&str] = &["flush", "close write"];

    #[rustfmt::skip]
    const TABLE: &[Row] = &[
        ("Opening", "`Opened`", "Upgrading", opening, |r| r.hear(IoEvent::Opened), &["flush"]),
        ("Opening", "`Failed`", "Closed", opening, Rig::fault, FAULT),
        ("Opening", "`close`", "Closed", opening, Rig::close, LOCAL),
        ("Opening", "deadline", "Closed", opening, |r| r.tick(15_000),
            &["closed: connecting timed out after 15000 ms", "close"]),
        ("Upgrading", "part of an answer", "Upgrading", upgrading, |r| r.bytes(b"HTTP/1.1 1"), &[]),
        ("Upgrading", "interim answer (1xx)", "Upgrading", upgrading,
            |r| r.bytes(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"), &[]),
        ("Upgrading", "good 101", "Open", upgrading,
            |r| r.bytes(&[&r.answer()[..], b"\x81\x01A"].concat()), &["up", "text A"]),
        ("Upgrading", "good 101", "Open", upgrading,
            |r| r.bytes(&[b"HTTP/1.1 100 \r\n\r\n", &r.answer()[..]].concat()), &["up"]),
        ("Upgrading", "bad 101", "Closed", upgrading, |r| r.bytes(b"HTTP/1.1 101 Yes\r\n\r\n"),
            &["closed: upgrade was answered with a wrong or missing Upgrade", "close"]),
        ("Upgrading", "not HTTP", "Closed", upgrading, |r| r.bytes(b"SSH-2.0-x\r\n"),
            &["closed: upgrade was not answered properly: not HTTP/1.1", "close"]),
        ("Upgrading", "other answer", "Refused", upgrading,
            |r| r.bytes(b"HTTP/1.1 404 Not Found\r\n\r\nno"), &[]),
        ("Upgrading", "end or fault", "Closed", upgrading, |r| r.hear(IoEvent::Eof), EARLY_END),
        ("Upgrading", "end or fault", "Closed", upgrading, |r| r.hear(IoEvent::WriteClosed),
            EARLY_END),
        ("Upgrading", "end or fault", "Closed", upgrading, Rig::fault, FAULT),
        ("Upgrading", "`close`", "Closed", upgrading, Rig::close, LOCAL),
        ("Upgrading", "deadline", "Closed", upgrading, |r| r.tick(15_000), LATE),
        ("Refused", "part of a body", "Refused", refused, |r| r.bytes(b"no"), &[]),
        ("Refused", "enough of a body", "Closed", refused, |r| r.bytes(b"no      HTTP/1.1"),
            NOT_FOUND),
        ("Refused", "end, fault or deadline", "Closed", refused,
            |r| { r.bytes(b"no"); r.hear(IoEvent::Eof); }, NOT_FOUND),
        ("Refused", "end, fault or deadline", "Closed", refused,
            |r| { r.bytes(b"no"); r.tick(1_010); }, NOT_FOUND),
        ("Refused", "end, fault or deadline", "Closed", refused,
            |r| { r.bytes(b"no"); r.fault(); }, &[NOT_FOUND[0]]),
        ("Refused", "`close`", "Closed", refused, Rig::close, LOCAL),
        ("Accepting", "part of a request", "Accepting", accepting, |r| r.bytes(&REQUEST[..50]), &[]),
        ("Accepting", "good request", "Open", accepting, |r| r.bytes(REQUEST), &["up", "flush"]),
        ("Accepting", "bad request", "Leaving", accepting, |r| r.bytes(b"\x16\x03\x01"), ANSWERED),
        ("Accepting", "bad request", "Leaving", accepting,
            |r| r.bytes(b"POST / HTTP/1.1\r\nHost: h\r\n\r\n"), ANSWERED),
        ("Accepting", "end or fault", "Closed", accepting, |r| r.hear(IoEvent::Eof), EARLY_END),
        ("Accepting", "end or fault", "Closed", accepting, Rig::fault, FAULT),
        ("Accepting", "`close`", "Closed", accepting, Rig::close, LOCAL),
        ("Accepting", "deadline", "Closed", accepting, |r| r.tick(15_000), LATE),
        ("Open", "text message", "Open", open, |r| r.bytes(b"\x81\x01A\x81\x01B"),
            &["text A", "text B"]),
        ("Open", "ping", "Open", open, |r| r.bytes(b"\x89\x00"), &["flush"]),
        ("Open", "close frame", "Leaving", open, |r| r.bytes(b"\x81\x01A\x88\x02\x03\xe8"),
            &["text A", "flush", "close write"]),
        ("Open", "bad frame", "Leaving", open, |r| r.bytes(b"\x81\x01A\x83\x00"),
            &["text A", "flush", "close write"]),
        ("Open", "`close`", "Closing", open, Rig::close, &["flush"]),
        ("Open", "end or fault", "Closed", open, |r| r.hear(IoEvent::Eof), DROPPED),
        ("Open", "end or fault", "Closed", open, |r| r.hear(IoEvent::WriteClosed), DROPPED),
        ("Open", "end or fault", "Closed", open, Rig::fault, FAULT),
        ("Closing", "text message", "Closing", closing, |r| r.bytes(b"\x81\x01A"), &[]),
        ("Closing", "close frame, ours has left", "Closed", closing,
            |r| r.bytes(b"\x81\x01A\x88\x02\x03\xe8"), LOCAL),
        ("Closing", "close frame, ours waits", "Leaving", closing_unread,
            |r| r.bytes(b"\x88\x02\x03\xe8"), &["close write"]),
        ("Closing", "bad frame", "Closed", closing, |r| r.bytes(b"\x83\x00"), LOCAL),
        ("Closing", "end, fault or deadline", "Closed", closing, |r| r.hear(IoEvent::Eof), LOCAL),
        ("Closing", "end, fault or deadline", "Closed", closing, Rig::fault, &[LOCAL[0]]),
        ("Closing", "end, fault or deadline", "Closed", closing, |r| r.tick(1_010), LOCAL),
        ("Leaving", "bytes", "Leaving", leaving, |r| r.bytes(b"\x81\x01A"), &[]),
        ("Leaving", "end, bytes of ours wait", "Leaving", leaving_unread, |r| r.hear(IoEvent::Eof),
            &[]),
        ("Leaving", "end, fault or deadline", "Closed", leaving_unread,
            |r| { r.hear(IoEvent::Eof); r.link.outgoing().clear(); r.hear(IoEvent::Drained); }, PEER),
        ("Leaving", "end, fault or deadline", "Closed", leaving_unread,
            |r| r.hear(IoEvent::WriteClosed), PEER),
        ("Leaving", "end, fault or deadline", "Closed", leaving, |r| r.hear(IoEvent::Eof), PEER),
        ("Leaving", "end, fault or deadline", "Closed", leaving, Rig::fault, &[PEER[0]]),
        ("Leaving", "end, fault or deadline", "Closed", leaving, |r| r.tick(1_010), PEER),
        ("any but Closed", "`abort`", "Closed", opening, abort, LOCAL),
        ("any but Closed", "`abort`", "Closed", upgrading, abort, LOCAL),
        ("any but Closed", "`abort`", "Closed", refused, abort, LOCAL),
        ("any but Closed", "`abort`", "Closed", accepting, abort, LOCAL),
        ("any but Closed", "`abort`", "Closed", open, abort, LOCAL),
        ("any but Closed", "`abort`", "Closed", closing, abort, LOCAL),
        ("any but Closed", "`abort`", "Closed", leaving, abort, LOCAL),
        ("Closed", "anything", "Closed", closed, everything, &[]),
    ];

    fn abort(rig: &mut Rig) {
        rig.link.abort();
        rig.drain();
    }

    fn everything(rig: &mut Rig) {
        rig.hear(IoEvent::Opened);
        rig.bytes(b"\x81\x01A");
        rig.hear(IoEvent::Drained);
        rig.hear(IoEvent::WriteClosed);
        rig.hear(IoEvent::Eof);
        rig.fault();
        rig.tick(1_000_000);
        rig.close();
        rig.link.ping();
        assert_eq!(rig.link.send_text("late"), Ok(()));
        abort(rig);
        assert!(rig.link.outgoing().is_empty());
    }

    #[test]
    fn the_table_is_what_happens() {
        for (state, input, next, start, act, output) in TABLE {
            let mut rig = start();
            if *state != "any but Closed" {
                assert_eq!(rig.state(), *state, "the start of {state} | {input}");
            }
            act(&mut rig);
            assert_eq!(rig.log, *output, "{state} | {input}");
            assert_eq!(rig.state(), *next, "{state} | {input}");
            let waits = rig.link.next_deadline().is_some();
            assert_eq!(
                waits,
                !["Open", "Closed"].contains(next),
                "{state} | {input}"
            );
        }
    }

    #[test]
    fn the_table_walked_is_the_table_documented() {
        let documented: BTreeSet<Vec<&str>> = include_str!("websocket.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("//! | "))
            .map(|row| row.split('|').map(str::trim).take(3).collect())
            .filter(|row: &Vec<&str>| row[0] != "state")
            .collect();
        let walked = TABLE
            .iter()
            .map(|(state, input, next, ..)| vec![*state, *input, *next])
            .collect();
        assert_eq!(documented, walked);
    }

    #[test]
    fn limits_of_time_hold_to_the_millisecond() {
        let starts: [(fn() -> Rig, u64); 6] = [
            (opening, 15_000),
            (upgrading, 15_000),
            (accepting, 15_000),
            (refused, 1_010),
            (closing, 1_010),
            (leaving, 1_010),
        ];
        for (start, due) in starts {
            let mut rig = start();
            let deadline = rig.link.next_deadline().expect("a deadline");
            assert_eq!(deadline.at, Uptime::from_millis(due), "{}", rig.state());
            rig.tick(due - 1);
            assert_eq!(rig.log, [""; 0], "{} ended early", rig.state());
            rig.tick(due);
            assert_eq!(rig.state(), "Closed");
            rig.tick(due);
            assert_eq!(rig.log.len(), 2, "closed once: {:?}", rig.log);
        }
    }

    #[test]
    fn a_wire_that_was_not_asked_for_yet_is_not_closed() {
        let mut rig = client(spec());
        abort(&mut rig);
        assert_eq!(rig.log, ["closed: closed by us"]);

        let path = "/a b".to_owned();
        let mut rig = client(ConnectSpec { path, ..spec() });
        rig.drain();
        let why = "closed: cannot ask h: start line holds a byte that HTTP does not allow";
        assert_eq!(rig.log, [why]);
        assert_eq!(rig.link.next_deadline(), None);
    }

    #[test]
    fn a_peer_that_does_not_read_fills_the_buffer_to_its_limit() {
        let mut rig = open();
        rig.reading = false;
        let text = |len: usize| "x".repeat(len - FRAME_HEAD_BYTES_MAX);
        let full = |value| Full { limit: 100, value };
        assert_eq!(rig.link.send_text(&text(101)), Err(full(101)));
        assert!(rig.link.outgoing().is_empty());
        assert_eq!(rig.link.send_text(&text(100)), Ok(()));
        let waiting = rig.link.outgoing().len();
        let value = waiting + FRAME_HEAD_BYTES_MAX;
        assert_eq!(rig.link.send_text(""), Err(full(value)));
        assert_eq!(rig.link.outgoing().len(), waiting);
        let words = format!("peer is not reading: {value} bytes queued, limit 100");
        assert_eq!(full(value).to_string(), words);
    }

    #[test]
    fn a_pong_that_was_held_back_leaves_when_there_is_room() {
        let mut rig = open();
        rig.reading = false;
        rig.link.outgoing().tail().resize(70_000, 0);
        rig.bytes(b"\x89\x01A");
        assert_eq!(rig.log, [""; 0], "no room, no pong");
        rig.link.outgoing().clear();
        rig.hear(IoEvent::Drained);
        assert_eq!(rig.log, ["flush"]);
        assert_eq!(rig.link.outgoing().len(), 2 + 4 + 1);
    }

    #[test]
    fn refusals_show_the_start_of_their_body() {
        let told = |answer: &[u8]| {
            let mut rig = upgrading();
            rig.bytes(answer);
            rig.hear(IoEvent::Eof);
            let shown = rig.log[0].strip_prefix("closed: upgrade was answered with HTTP status ");
            shown.expect("a refusal").to_owned()
        };
        let chunked = |body: &str| {
            let head = "HTTP/1.1 502 Bad\r\nTransfer-Encoding: chunked\r\n\r\n";
            told(format!("{head}{body}").as_bytes())
        };
        assert_eq!(told(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"), "401");
        assert_eq!(told(b"HTTP/1.1 301 Moved\r\nLocation: /x\r\n\r\n"), "301");
        assert_eq!(chunked("3\r\nbad\r\n0\r\n\r\n"), "502: bad");
        assert_eq!(chunked("3"), "502");
        assert_eq!(chunked("x\r\nbad"), "502: bad");
        assert_eq!(
            told(b"HTTP/1.1 503 Busy\r\n\r\n\x1b[2J\xff"),
            "503: \\u{1b}[2J\u{fffd}"
        );

        let mut rig = upgrading();
        rig.bytes(b"HTTP/1.1 500 Bad\r\n\r\n");
        rig.bytes(&[b'x'; REFUSAL_BODY_BYTES_MAX - 1]);
        assert_eq!(rig.state(), "Refused");
        rig.bytes(b"xyz");
        assert_eq!(rig.state(), "Closed");
    }

    #[test]
    fn close_codes_are_told_as_an_application_sees_them() {
        let peer = |code, reason: &str| CloseReason::Peer {
            code,
            reason: reason.to_owned(),
        };
        assert_eq!(peer(Some(1012), "").code(), Some(1012));
        assert_eq!(peer(None, "").code(), Some(1005));
        assert_eq!(peer(None, "").to_string(), "closed by the peer");
        assert_eq!(dropped("connection dropped").code(), Some(1006));
        assert_eq!(CloseReason::Local.code(), None);
        let loud = peer(Some(1008), "\u{1b}[2J").to_string();
        assert_eq!(loud, "closed by the peer with code 1008: \\u{1b}[2J");
    }
}
