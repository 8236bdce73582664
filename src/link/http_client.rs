//! A server behind Streamable HTTP, of every revision that has it.
//!
//! | state   | input                            | next    | output                                       |
//! |---------|----------------------------------|---------|----------------------------------------------|
//! | Idle    | `start`                          | Up      | `Up`                                         |
//! | Idle    | `start`, a header cannot be sent | Closed  | `Closed(Io)`                                 |
//! | Up      | message                          | Up      | POST                                         |
//! | Up      | `initialize`                     | Up      | POST without session; the old one is dropped |
//! | Up      | `initialized` accepted           | Up      | GET (see `listen`); held messages go on      |
//! | Up      | `initialized` refused            | Closed  | `Closed(Refused)`                            |
//! | Up      | `initialized` came to nothing    | Closed  | `Closed(Io)`                                 |
//! | Up      | answer to a request              | Up      | see `call`                                   |
//! | Up      | answer to another message        | Up      | nothing                                      |
//! | Up      | `forget`                         | Up      | its connection is closed                     |
//! | Up      | `close`, in a session            | Closing | DELETE; all other connections are closed     |
//! | Up      | `close`, without a session       | Closed  | `Closed(Local)`                              |
//! | Closing | answer, fault or deadline        | Closed  | `Closed(Local)`                              |
//! | Closed  | anything                         | Closed  | nothing                                      |
//!
//! After `notifications/initialized` messages of the session are held until the server has answered it, for
//! connections overtake each other; not longer than [`INITIALIZED_WAIT`]. So are notifications and answers
//! while [`NOTES_OPEN_MAX`] of them are on their way. Held messages count as bytes that wait.
//!
//! What a session is to the server, the link knows from the answer to `initialize` and sends back; whether
//! one is lost is told by [`RequestEnd::SessionLost`] and [`RequestEnd::SessionDoubtful`], and it is the owner
//! that begins another, on this link or on a new one.
//!
//! Source: Spec 2025-03-26 to 2026-07-28 basic/transports; mcp-eras §3; openclaw-client §4.3.
//! Never: opens a wire before there is something to ask, sends a message twice that may have run, follows a
//! redirect to another origin.

mod call;
mod client;
mod feed;
mod fields;
mod listen;
mod message;
mod reference;
mod reply;
mod retry_after;
mod target;
mod tunnel;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use call::{Call, CallLimits, Next};
pub(in crate::link) use call::{end_of, not_utf8, too_large};
pub(in crate::link) use client::{Client, ExchangeId, Fault, Method, Step, What};
pub(in crate::link) use feed::{Fed, Feed};
pub use fields::is_reserved;
pub(in crate::link) use fields::{FieldWriter, SessionFields};
use listen::{Listen, State as ListenState};
pub(in crate::link) use reference::resolve;
pub(in crate::link) use reply::{Kind, Other};
pub use target::{HttpBounds, HttpProxy, HttpTarget};
pub(in crate::link) use target::{authority, origin, same_origin};

use crate::clock::{Deadline, Now, Uptime};
use crate::codec::http_body::Framing;
use crate::codec::http1::{ResponseHead, WriteError};
use crate::codec::outbuf::OutBuf;
use crate::codec::scan::ScanLimits;
use crate::ids::{UpstreamRequestId, WireId, WireMint};
use crate::limits::Limits;
use crate::link::upstream::{UpstreamClosed, UpstreamEvent};
use crate::link::websocket::Full;
use crate::link::{FaultKind, IoEvent, IoFault, IoRequest};
use crate::protocol::client::{Dialect, Outgoing, OutgoingKind, RequestEnd};
use crate::protocol::revision::Revision;
use crate::secret::Quoted;

/// How long messages of a session are held for the answer to `notifications/initialized`.
pub const INITIALIZED_WAIT: Duration = Duration::from_secs(2);

/// Notifications and answers on their way at once; the next ones are held.
pub const NOTES_OPEN_MAX: usize = 16;

/// How long a server may take to answer DELETE.
pub const DELETE_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the answer to a message may go on, when nothing in it is of use any more, before its connection is
/// closed.
pub(in crate::link) const LINGER: Duration = Duration::from_secs(1);

/// Longest session id that is sent back. Some are tokens.
const SESSION_ID_BYTES_MAX: usize = 1_024;

const INITIALIZED: &str = "notifications/initialized";

/// A link to one server. Driven like every machine: one `handle_*`, then `poll_event` and `poll_io` to `None`.
#[derive(Debug)]
pub struct HttpLink {
    client: Client,
    fields: Result<FieldWriter, WriteError>,
    call_limits: CallLimits,
    out_bytes_max: usize,
    note_timeout: Duration,
    life: Life,
    session: Session,
    /// Messages that wait for their turn.
    held: VecDeque<Outgoing>,
    /// Until when `notifications/initialized` holds the others up.
    holding: Option<Uptime>,
    exchanges: BTreeMap<ExchangeId, Purpose>,
    requests: BTreeMap<UpstreamRequestId, ExchangeId>,
    /// Requests whose stream is to be taken up again, and when.
    waiting: BTreeMap<UpstreamRequestId, (Uptime, Box<Call>)>,
    listen: Listen,
    /// The server has asked for no traffic until then.
    quiet_until: Uptime,
    events: VecDeque<UpstreamEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Idle,
    Up,
    Closing(Uptime),
    Closed,
}

/// What was agreed on with the server.
#[derive(Debug, Default)]
struct Session {
    id: Option<String>,
    revision: Option<Revision>,
    /// The server has said that it does not know it.
    lost: bool,
}

/// What an exchange is for.
#[derive(Debug)]
enum Purpose {
    Call(Box<Call>),
    /// A notification or an answer of ours.
    Note {
        initialized: bool,
        reply: Option<Other>,
    },
    Listen,
    Delete,
}

impl HttpLink {
    /// A link to `target`. Nothing happens before [`start`](Self::start).
    #[must_use]
    pub fn new(target: HttpTarget, bounds: HttpBounds, limits: &Limits) -> Self {
        let fields = FieldWriter::new(&target);
        Self {
            client: Client::new(target, limits, bounds.out_bytes_max),
            fields,
            call_limits: CallLimits {
                message_bytes_max: bounds.message_bytes_max,
                resume_attempts_max: bounds.resume_attempts_max,
                scan: ScanLimits::from(limits),
            },
            out_bytes_max: bounds.out_bytes_max,
            note_timeout: limits.request_timeout,
            life: Life::Idle,
            session: Session::default(),
            held: VecDeque::new(),
            holding: None,
            exchanges: BTreeMap::new(),
            requests: BTreeMap::new(),
            waiting: BTreeMap::new(),
            listen: Listen::new(bounds.message_bytes_max),
            quiet_until: Uptime::ZERO,
            events: VecDeque::new(),
        }
    }

    /// Begins: messages can be sent at once, and the first opens a connection.
    pub fn start(&mut self, now: Now, wires: &mut WireMint) {
        let _ = (now, wires);
        if self.life != Life::Idle {
            return;
        }
        match &self.fields {
            Ok(_) => {
                self.life = Life::Up;
                self.events.push_back(UpstreamEvent::Up);
            }
            Err(error) => {
                let host = authority(&self.client.target().url);
                self.closed(UpstreamClosed::Io(IoFault {
                    kind: FaultKind::Unreachable,
                    message: format!("cannot ask {}: {error}", Quoted(&host)),
                }));
            }
        }
    }

    /// Sends a message. Dropped without an error when the link is not up, or no longer: its owner learns that
    /// from the events.
    ///
    /// # Errors
    /// [`Full`] when too much would wait; nothing was queued.
    pub fn send(&mut self, now: Now, message: Outgoing, wires: &mut WireMint) -> Result<(), Full> {
        if self.life != Life::Up {
            log::debug!("message dropped, the link is not up");
            return Ok(());
        }
        let held: usize = self.held.iter().map(|held| held.body.len()).sum();
        let value = self
            .client
            .unsent()
            .saturating_add(held)
            .saturating_add(message.body.len());
        if value > self.out_bytes_max {
            return Err(Full {
                limit: self.out_bytes_max,
                value,
            });
        }
        self.held.push_back(message);
        self.release(now, wires);
        Ok(())
    }

    /// Nobody waits for this request any more: its connection is closed. In the stateless era that is what
    /// tells the server; before, the server takes no notice.
    pub fn forget(&mut self, now: Now, id: UpstreamRequestId, wires: &mut WireMint) {
        let _ = (now, wires);
        self.held.retain(|held| request_id(&held.kind) != Some(id));
        self.waiting.remove(&id);
        if let Some(exchange) = self.requests.remove(&id) {
            self.exchanges.remove(&exchange);
            self.client.cancel(exchange);
        }
    }

    /// Begins the end: DELETE in a session, for [`DELETE_TIMEOUT`] at most; everything else ends now.
    /// Notifications and answers that have not left still leave.
    pub fn close(&mut self, now: Now, wires: &mut WireMint) {
        match self.life {
            Life::Up => {}
            Life::Idle => return self.closed(UpstreamClosed::Local),
            Life::Closing(_) | Life::Closed => return,
        }
        self.life = Life::Closing(now.after(DELETE_TIMEOUT));
        self.held.clear();
        self.waiting.clear();
        self.requests.clear();
        self.listen.reset();
        let exchanges = std::mem::take(&mut self.exchanges);
        let is_note = |exchange| matches!(exchanges.get(&exchange), Some(Purpose::Note { .. }));
        let delete = self.delete(now, wires);
        self.client.close(delete, is_note);
        match delete {
            Some(delete) => {
                self.exchanges.insert(delete, Purpose::Delete);
            }
            None => self.closed(UpstreamClosed::Local),
        }
    }

    fn delete(&mut self, now: Now, wires: &mut WireMint) -> Option<ExchangeId> {
        let (Some(_), false, Ok(fields)) = (&self.session.id, self.session.lost, &self.fields)
        else {
            return None;
        };
        let rest = fields.delete(self.session.fields()).ok()?;
        let path = self.path();
        Some(self.client.submit(now, Method::Delete, path, rest, wires))
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<UpstreamEvent> {
        self.events.pop_front()
    }

    /// The next thing the loop is to do.
    pub fn poll_io(&mut self) -> Option<IoRequest> {
        self.client.poll_io()
    }

    /// The bytes that wait to leave on a wire of this link.
    pub fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        self.client.outgoing(wire)
    }

    /// There is no process whose stderr could be shown.
    #[must_use]
    pub const fn stderr_tail(&self) -> &str {
        ""
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        let at = |at: Uptime, why| Some(Deadline::new(at, why));
        let closing = match self.life {
            Life::Closing(until) => at(until, "answer to DELETE"),
            Life::Idle | Life::Up | Life::Closed => None,
        };
        let listen = match self.listen.state {
            ListenState::Due(due) => at(due, "stream of the session"),
            ListenState::Off | ListenState::Open(_) | ListenState::NotOffered => None,
        };
        let waiting = self.waiting.values().map(|(at, _)| *at).min();
        let waiting = waiting.map(|at| Deadline::new(at, "stream to be resumed"));
        let holding = self.holding.map(|at| Deadline::new(at, "initialized"));
        [
            closing,
            listen,
            waiting,
            holding,
            self.client.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Something happened on a wire of this link.
    pub fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>, wires: &mut WireMint) {
        if let IoEvent::Bytes(mut bytes) = event {
            while let Some(step) = self.client.read(now, wire, &mut bytes, wires) {
                self.step(now, step);
            }
        } else if let Some(step) = self.client.hear(now, wire, event, wires) {
            self.step(now, step);
        }
        // In this order: requests get the connections that are free, the stream another one.
        self.release(now, wires);
        self.listen_if_due(now, wires);
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Now, wires: &mut WireMint) {
        while let Some(step) = self.client.expire(now, wires) {
            self.step(now, step);
        }
        if matches!(self.life, Life::Closing(until) if until <= now.up) {
            self.closed(UpstreamClosed::Local);
        }
        if self.life != Life::Up {
            return;
        }
        if self.holding.is_some_and(|until| until <= now.up) {
            log::warn!("{INITIALIZED} is not answered; the session goes on without");
            self.holding = None;
        }
        let due = self.waiting.iter().filter(|(_, (at, _))| *at <= now.up);
        let due: Vec<UpstreamRequestId> = due.map(|(id, _)| *id).collect();
        for id in due {
            if let Some((_, call)) = self.waiting.remove(&id) {
                self.resume(now, call, wires);
            }
        }
        self.release(now, wires);
        self.listen_if_due(now, wires);
    }

    fn listen_if_due(&mut self, now: Now, wires: &mut WireMint) {
        let ListenState::Due(due) = self.listen.state else {
            return;
        };
        if due > now.up || self.life != Life::Up {
            return;
        }
        if self.quiet_until > now.up {
            self.listen.state = ListenState::Due(self.quiet_until);
            return;
        }
        let Some(rest) = self.get(self.listen.last_id()) else {
            self.listen.state = ListenState::NotOffered;
            return;
        };
        let path = self.path();
        let exchange = self.client.submit(now, Method::Get, path, rest, wires);
        self.exchanges.insert(exchange, Purpose::Listen);
        self.listen.opened(now, exchange);
    }

    fn resume(&mut self, now: Now, call: Box<Call>, wires: &mut WireMint) {
        let id = call.id;
        let Some(rest) = self.get(call.feed.last_id()) else {
            let why = "stream could not be resumed: its event id cannot be sent".to_owned();
            return self.ended(id, RequestEnd::Broken(why));
        };
        let path = self.path();
        let exchange = self.client.submit(now, Method::Get, path, rest, wires);
        self.requests.insert(id, exchange);
        self.exchanges.insert(exchange, Purpose::Call(call));
    }

    fn get(&self, last_id: Option<&str>) -> Option<Vec<u8>> {
        let fields = self.fields.as_ref().ok()?;
        fields.get(self.session.fields(), last_id).ok()
    }

    fn path(&self) -> String {
        self.client.target().url.path_and_query.clone()
    }

    /// Sends what is held and may go.
    fn release(&mut self, now: Now, wires: &mut WireMint) {
        let mut at = 0;
        while let Some(held) = self.held.get(at) {
            if self.may_go(held) {
                if let Some(message) = self.held.remove(at) {
                    self.post(now, &message, wires);
                }
            } else {
                at += 1;
            }
        }
    }

    fn may_go(&self, message: &Outgoing) -> bool {
        let is_request = matches!(message.kind, OutgoingKind::Request { .. });
        let notes = || {
            let notes = self.exchanges.values();
            notes.filter(|p| matches!(p, Purpose::Note { .. })).count()
        };
        let in_session = matches!(message.dialect, Dialect::Session(_));
        !(self.holding.is_some() && in_session) && (is_request || notes() < NOTES_OPEN_MAX)
    }

    fn post(&mut self, now: Now, message: &Outgoing, wires: &mut WireMint) {
        let initialize = matches!(
            (&message.kind, message.dialect),
            (OutgoingKind::Request { method, .. }, Dialect::Handshake) if &**method == "initialize"
        );
        if initialize {
            self.begin_session();
        }
        if let Dialect::Session(revision) = message.dialect {
            self.session.revision = Some(revision);
        }
        let written = match &self.fields {
            Ok(fields) => fields.post(message, self.session.fields()),
            Err(error) => Err(error.clone()),
        };
        let rest = match written {
            Ok(rest) => rest,
            Err(error) => {
                let why = format!("message cannot be sent: {error}");
                match request_id(&message.kind) {
                    Some(id) => self.ended(id, RequestEnd::NotSent(why)),
                    None => log::warn!("{why}"),
                }
                return;
            }
        };
        let path = self.path();
        let exchange = self.client.submit(now, Method::Post, path, rest, wires);
        let purpose = match &message.kind {
            OutgoingKind::Request { id, .. } => {
                self.requests.insert(*id, exchange);
                let in_session = match message.dialect {
                    Dialect::Session(_) => self.session.id.is_some(),
                    Dialect::Handshake | Dialect::Stateless(_) => false,
                };
                let dialect = message.dialect;
                let call = Call::new(*id, initialize, in_session, dialect, self.call_limits);
                Purpose::Call(Box::new(call))
            }
            OutgoingKind::Notification { method } => {
                let initialized = &**method == INITIALIZED;
                if initialized {
                    self.holding = Some(now.after(INITIALIZED_WAIT));
                }
                self.note(now, exchange, initialized)
            }
            OutgoingKind::Answer => self.note(now, exchange, false),
        };
        self.exchanges.insert(exchange, purpose);
    }

    fn note(&mut self, now: Now, exchange: ExchangeId, initialized: bool) -> Purpose {
        let until = now.after(self.note_timeout);
        self.client.give_up_at(exchange, until);
        let reply = None;
        Purpose::Note { initialized, reply }
    }

    /// What was agreed on before is void.
    fn begin_session(&mut self) {
        self.session = Session::default();
        self.holding = None;
        if let Some(open) = self.listen.reset() {
            self.exchanges.remove(&open);
            self.client.cancel(open);
        }
    }

    fn step(&mut self, now: Now, step: Step<'_>) {
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
            self.quiet_until = self.quiet_until.max(now.after(wait.min(feed::RETRY_MAX)));
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

    fn ended(&mut self, id: UpstreamRequestId, end: RequestEnd) {
        self.requests.remove(&id);
        let lost = matches!(
            end,
            RequestEnd::SessionLost { .. } | RequestEnd::SessionDoubtful(_)
        );
        self.session.lost |= lost;
        self.events
            .push_back(UpstreamEvent::RequestEnded { id, end });
    }

    fn closed(&mut self, why: UpstreamClosed) {
        if self.life == Life::Closed {
            return;
        }
        self.life = Life::Closed;
        self.client.close(None, |_| false);
        self.held.clear();
        self.holding = None;
        self.exchanges.clear();
        self.requests.clear();
        self.waiting.clear();
        self.listen.reset();
        self.events.push_back(UpstreamEvent::Closed(why));
    }
}

impl Session {
    fn fields(&self) -> SessionFields<'_> {
        SessionFields {
            id: self.id.as_deref(),
            revision: self.revision,
        }
    }
}

fn request_id(kind: &OutgoingKind) -> Option<UpstreamRequestId> {
    match kind {
        OutgoingKind::Request { id, .. } => Some(*id),
        OutgoingKind::Notification { .. } | OutgoingKind::Answer => None,
    }
}

#[cfg(test)]
pub(in crate::link) mod rig;
#[cfg(test)]
mod tests;
