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
//! connections overtake each other; not longer than `session_begin_timeout`. So are notifications and answers
//! while `upstream_notes_open_max` of them are on their way. Held messages count as bytes that wait.
//!
//! What a session is to the server, the link knows from the answer to `initialize` and sends back; whether
//! one is lost is told by [`RequestEnd::SessionLost`] and [`RequestEnd::SessionDoubtful`], and it is the owner
//! that begins another, on this link or on a new one.
//!
//! Source: Spec 2025-03-26 to 2026-07-28 basic/transports; mcp-eras §3; openclaw-client §4.3.
//! Never: opens a wire before there is something to ask, sends a message twice that may have run, follows a
//! redirect to another origin.

mod buffers;
mod call;
mod client;
mod feed;
mod fields;
mod listen;
mod message;
mod receiving;
mod reference;
mod reply;
mod retry_after;
mod sending;
mod target;
mod tunnel;
mod wire;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use buffers::Buffers;
use call::{Call, CallLimits};
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
use crate::codec::http1::WriteError;
use crate::codec::outbuf::OutBuf;
use crate::codec::scan::ScanLimits;
use crate::codec::shared_text::{SharedText, TextPool};
use crate::ids::{IdMap, UpstreamRequestId, WireId, WireMint};
use crate::limits::Limits;
use crate::link::upstream::{UpstreamClosed, UpstreamEvent};
use crate::link::websocket::Full;
use crate::link::{FaultKind, IoEvent, IoFault, IoRequest};
use crate::protocol::client::{Outgoing, OutgoingKind, RequestEnd};
use crate::secret::Quoted;

/// How long the answer to a message may go on, when nothing in it is of use any more, before its connection is
/// closed.
pub(in crate::link) const LINGER: Duration = Duration::from_secs(1);

/// Longest session id that is sent back. Some are signed tokens.
const SESSION_ID_BYTES_MAX: usize = 4 * 1_024;

const INITIALIZED: &str = "notifications/initialized";

/// A link to one server. Driven like every machine: one `handle_*`, then `poll_event` and `poll_io` to `None`.
#[derive(Debug)]
pub struct HttpLink {
    client: Client,
    /// Path and query of the server.
    path: SharedText,
    fields: Result<FieldWriter, WriteError>,
    call_limits: CallLimits,
    /// For bodies of answers, as they come.
    bodies: Buffers,
    /// Holds messages while they are being acted on.
    texts: TextPool,
    out_bytes_max: usize,
    note_timeout: Duration,
    notes_open_max: usize,
    begin_timeout: Duration,
    end_timeout: Duration,
    life: Life,
    session: Session,
    /// Messages that wait for their turn.
    held: VecDeque<Outgoing>,
    /// Until when `notifications/initialized` holds the others up.
    holding: Option<Uptime>,
    exchanges: IdMap<ExchangeId, Purpose>,
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
    fields: SessionFields,
    /// The server has said that it does not know it.
    lost: bool,
}

/// What an exchange is for.
#[derive(Debug)]
enum Purpose {
    Call(Call),
    /// A notification or an answer of ours.
    Note {
        initialized: bool,
        reply: Option<Box<Other>>,
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
            path: target.url.path_and_query.clone().into(),
            client: Client::new(target, limits, bounds.out_bytes_max),
            fields,
            call_limits: CallLimits {
                message_bytes_max: bounds.message_bytes_max,
                resume_attempts_max: bounds.resume_attempts_max,
                scan: ScanLimits::from(limits),
            },
            bodies: Buffers::default(),
            texts: TextPool::new(limits.text_buffer_bytes_max),
            out_bytes_max: bounds.out_bytes_max,
            note_timeout: limits.request_timeout,
            notes_open_max: limits.upstream_notes_open_max,
            begin_timeout: limits.session_begin_timeout,
            end_timeout: limits.session_end_timeout,
            life: Life::Idle,
            session: Session::default(),
            held: VecDeque::new(),
            holding: None,
            exchanges: IdMap::new(),
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
    pub fn send(&mut self, now: Now, message: &Outgoing, wires: &mut WireMint) -> Result<(), Full> {
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
        self.release(now, wires);
        if self.may_go(message) {
            self.post(now, message, wires);
        } else {
            self.held.push_back(message.clone());
        }
        Ok(())
    }

    /// Nobody waits for this request any more: its connection is closed. In the stateless era that is what
    /// tells the server; before, the server takes no notice.
    pub fn forget(&mut self, now: Now, id: UpstreamRequestId, wires: &mut WireMint) {
        let _ = (now, wires);
        self.held.retain(|held| request_id(&held.kind) != Some(id));
        self.waiting.remove(&id);
        let of_id = |purpose: &Purpose| matches!(purpose, Purpose::Call(call) if call.id == id);
        let found = self.exchanges.iter().find(|(_, purpose)| of_id(purpose));
        if let Some(exchange) = found.map(|(exchange, _)| *exchange) {
            self.exchanges.remove(&exchange);
            self.client.cancel(exchange);
        }
    }

    /// Begins the end: DELETE in a session, for `session_end_timeout` at most; everything else ends now.
    /// Notifications and answers that have not left still leave.
    pub fn close(&mut self, now: Now, wires: &mut WireMint) {
        match self.life {
            Life::Up => {}
            Life::Idle => return self.closed(UpstreamClosed::Local),
            Life::Closing(_) | Life::Closed => return,
        }
        self.life = Life::Closing(now.after(self.end_timeout));
        self.held.clear();
        self.waiting.clear();
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
        let first = Deadline::earlier(closing, listen);
        let first = Deadline::earlier(first, waiting);
        let first = Deadline::earlier(first, holding);
        Deadline::earlier(first, self.client.next_deadline())
    }

    /// Something happened on a wire of this link.
    pub fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>, wires: &mut WireMint) {
        if let IoEvent::Bytes(mut bytes) = event {
            while let Some(step) = self.client.read(now, wire, &mut bytes, wires) {
                self.step(now, step);
            }
        } else if matches!(event, IoEvent::Drained) {
            // No message waits for that.
            return self.client.drained(now, wire);
        } else if let Some(step) = self.client.hear(now, wire, event, wires) {
            self.step(now, step);
        }
        // In this order: some servers answer the first request on a stream that comes after it, so the GET
        // gets the warm connection.
        self.listen_if_due(now, wires);
        self.release(now, wires);
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
                self.resume(now, *call, wires);
            }
        }
        self.listen_if_due(now, wires);
        self.release(now, wires);
    }

    fn ended(&mut self, id: UpstreamRequestId, end: RequestEnd) {
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
        self.exchanges = IdMap::new();
        self.waiting.clear();
        self.listen.reset();
        self.events.push_back(UpstreamEvent::Closed(why));
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
