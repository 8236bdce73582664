//! A server behind the pair of 2024-11-05: an event stream down, a POST for each message up.
//!
//! | state    | input                               | next    | output                              |
//! |----------|-------------------------------------|---------|-------------------------------------|
//! | Idle     | `start`                             | Opening | GET                                 |
//! | Idle     | `start`, a header cannot be sent    | Closed  | `Closed(Io)`                        |
//! | Opening  | head of an event stream             | Opening |                                     |
//! | Opening  | any other head                      | Closed  | `Closed(Refused)`                   |
//! | Opening  | event `endpoint` of this origin     | Up      | `Up`                                |
//! | Opening  | event `endpoint` of another         | Closed  | `Closed(Violation)`                 |
//! | Opening  | message                             | Opening | dropped: there is no conversation   |
//! | Opening  | end or fault                        | Closed  | `Closed(Io)`                        |
//! | Up       | message event                       | Up      | `Message`                           |
//! | Up       | event `endpoint`                    | Up      | ignored                             |
//! | Up       | message of ours                     | Up      | POST                                |
//! | Up       | POST answered with 2xx              | Up      | nothing: the answer is an event     |
//! | Up       | POST refused, lost or redirected    | Up      | `RequestEnded`                      |
//! | Up       | end of the stream, or fault         | Closed  | `Closed(SessionLost)`               |
//! | any      | `close`                             | Closed  | `Closed(Local)`                     |
//! | Closed   | anything                            | Closed  | nothing                             |
//!
//! The stream is the session: what was asked on one that is gone is answered on no other.
//!
//! Source: Spec 2024-11-05 basic/transports (HTTP with SSE); openclaw-client §4.2; case d06.
//! Never: takes an endpoint of another origin, opens the stream a second time.

use std::collections::{BTreeMap, VecDeque};

use crate::clock::{Deadline, Now, Uptime};
use crate::codec::http_body::Framing;
use crate::codec::http1::{ResponseHead, WriteError};
use crate::codec::outbuf::OutBuf;
use crate::codec::shared_text::{SharedText, TextPool};
use crate::ids::{UpstreamRequestId, WireId, WireMint};
use crate::limits::Limits;
use crate::link::http_client::{
    Client, ExchangeId, Fault, Fed, Feed, FieldWriter, HttpBounds, HttpTarget, Kind, LINGER,
    Method, Other, SessionFields, Step, What, authority, end_of, not_utf8, origin, resolve,
    same_origin, too_large,
};
use crate::link::upstream::{UpstreamClosed, UpstreamEvent};
use crate::link::websocket::Full;
use crate::link::{FaultKind, IoEvent, IoFault, IoRequest};
use crate::protocol::client::{Dialect, Outgoing, OutgoingKind, RequestEnd};
use crate::secret::{Quoted, UrlForLog};

const STREAM: &str = "event stream";

/// A link to one server. Driven like every machine: one `handle_*`, then `poll_event` and `poll_io` to `None`.
#[derive(Debug)]
pub struct SseLink {
    client: Client,
    fields: Result<FieldWriter, WriteError>,
    session: SessionFields,
    out_bytes_max: usize,
    note_timeout: std::time::Duration,
    begin_timeout: std::time::Duration,
    life: Life,
    feed: Feed,
    /// Holds messages while they are being acted on.
    texts: TextPool,
    /// Messages that wait for the answer to `notifications/initialized`: connections overtake each other.
    held: VecDeque<Outgoing>,
    holding: Option<(ExchangeId, Uptime)>,
    posts: BTreeMap<ExchangeId, Post>,
    events: VecDeque<UpstreamEvent>,
}

#[derive(Debug)]
enum Life {
    Idle,
    /// The stream was asked for; `refused` holds the answer when it is none.
    Opening {
        stream: ExchangeId,
        refused: Option<Other>,
    },
    Up {
        stream: ExchangeId,
        /// Path and query to send messages to.
        endpoint: SharedText,
    },
    Closed,
}

/// A message on its way.
#[derive(Debug)]
struct Post {
    id: Option<UpstreamRequestId>,
    reply: Option<Other>,
}

impl SseLink {
    /// A link to `target`. Nothing happens before [`start`](Self::start).
    #[must_use]
    pub fn new(target: HttpTarget, bounds: HttpBounds, limits: &Limits) -> Self {
        let fields = FieldWriter::new(&target);
        Self {
            client: Client::new(target, limits, bounds.out_bytes_max),
            fields,
            session: SessionFields::default(),
            out_bytes_max: bounds.out_bytes_max,
            note_timeout: limits.request_timeout,
            begin_timeout: limits.session_begin_timeout,
            life: Life::Idle,
            feed: Feed::new(bounds.message_bytes_max),
            texts: TextPool::new(limits.text_buffer_bytes_max),
            held: VecDeque::new(),
            holding: None,
            posts: BTreeMap::new(),
            events: VecDeque::new(),
        }
    }

    /// Opens the event stream. `Up` comes when it has named its endpoint.
    pub fn start(&mut self, now: Now, wires: &mut WireMint) {
        if !matches!(self.life, Life::Idle) {
            return;
        }
        let mut rest = self.client.buffer();
        let written = match &self.fields {
            Ok(fields) => fields.get(&mut rest, &self.session, None),
            Err(error) => Err(error.clone()),
        };
        match written {
            Ok(()) => {
                let path = self.client.target().url.path_and_query.clone().into();
                let stream = self.client.submit(now, Method::Get, path, rest, wires);
                self.life = Life::Opening {
                    stream,
                    refused: None,
                };
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
        if !matches!(self.life, Life::Up { .. }) {
            log::debug!("message dropped, the link is not up");
            return Ok(());
        }
        let held: usize = self.held.iter().map(|held| held.body.len()).sum();
        let waiting = self.client.unsent().saturating_add(held);
        let value = waiting.saturating_add(message.body.len());
        if value > self.out_bytes_max {
            return Err(Full {
                limit: self.out_bytes_max,
                value,
            });
        }
        self.held.push_back(message.clone());
        self.release(now, wires);
        Ok(())
    }

    /// Nobody waits for this request any more. The server is not told by this; what it still says of it comes
    /// as any message.
    pub fn forget(&mut self, now: Now, id: UpstreamRequestId, wires: &mut WireMint) {
        let _ = (now, wires);
        self.held.retain(|held| request_id(&held.kind) != Some(id));
        for post in self.posts.values_mut() {
            if post.id == Some(id) {
                post.id = None;
            }
        }
    }

    /// Ends everything now.
    pub fn close(&mut self, now: Now, wires: &mut WireMint) {
        let _ = (now, wires);
        let posts = std::mem::take(&mut self.posts);
        let is_note = |exchange| posts.get(&exchange).is_some_and(|post| post.id.is_none());
        self.client.close(None, is_note);
        self.closed(UpstreamClosed::Local);
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
        let holding = self.holding.map(|(_, at)| Deadline::new(at, "initialized"));
        Deadline::earlier(holding, self.client.next_deadline())
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
        self.release(now, wires);
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Now, wires: &mut WireMint) {
        while let Some(step) = self.client.expire(now, wires) {
            self.step(now, step);
        }
        if self.holding.is_some_and(|(_, until)| until <= now.up) {
            self.holding = None;
        }
        self.release(now, wires);
    }

    fn release(&mut self, now: Now, wires: &mut WireMint) {
        while self.holding.is_none() && matches!(self.life, Life::Up { .. }) {
            let Some(message) = self.held.pop_front() else {
                return;
            };
            self.post(now, &message, wires);
        }
    }

    fn post(&mut self, now: Now, message: &Outgoing, wires: &mut WireMint) {
        let Life::Up { endpoint, .. } = &self.life else {
            return;
        };
        let id = request_id(&message.kind);
        let path = endpoint.clone();
        let mut rest = self.client.buffer();
        if let Err(error) = self.write(&mut rest, message) {
            let why = format!("message cannot be sent: {error}");
            return self.ended(id, RequestEnd::NotSent(why));
        }
        let exchange = self.client.submit(now, Method::Post, path, rest, wires);
        if id.is_none() {
            let until = now.after(self.note_timeout);
            self.client.give_up_at(exchange, until);
        }
        let opens = matches!(&message.kind, OutgoingKind::Notification { method }
            if &**method == "notifications/initialized");
        if opens && message.dialect != Dialect::Handshake {
            self.holding = Some((exchange, now.after(self.begin_timeout)));
        }
        self.posts.insert(exchange, Post { id, reply: None });
    }

    fn write(&mut self, out: &mut Vec<u8>, message: &Outgoing) -> Result<(), WriteError> {
        if let Dialect::Session(revision) = message.dialect {
            self.session.agree(revision)?;
        }
        match &self.fields {
            Ok(fields) => fields.post(out, message, &self.session),
            Err(error) => Err(error.clone()),
        }
    }

    fn step(&mut self, now: Now, step: Step<'_>) {
        let Step { exchange, what } = step;
        let stream = match &self.life {
            Life::Opening { stream, .. } | Life::Up { stream, .. } => *stream,
            Life::Idle | Life::Closed => return,
        };
        if exchange == stream {
            self.step_stream(now, exchange, what);
        } else {
            self.step_post(now, exchange, what);
        }
    }

    fn step_stream(&mut self, now: Now, exchange: ExchangeId, what: What<'_>) {
        match what {
            What::Head(head, framing) => {
                self.stream_head(now, &head, framing);
                self.client.keep_head(exchange, head);
            }
            What::Data(data) => {
                if let Life::Opening {
                    refused: Some(other),
                    ..
                } = &mut self.life
                {
                    if other.take(data) {
                        self.stream_over(None);
                    }
                    return;
                }
                self.stream_data(data);
            }
            What::End => self.stream_over(None),
            What::Failed(fault) => self.stream_over(Some(fault)),
        }
    }

    fn stream_head(&mut self, now: Now, head: &ResponseHead, framing: Framing) {
        let Life::Opening { refused, .. } = &mut self.life else {
            return;
        };
        match Kind::of(now, head, framing) {
            Kind::Events => {}
            Kind::Other(other) => *refused = Some(other),
            Kind::Json { .. } => {
                let found = head.fields.only("content-type").unwrap_or("no type");
                let what = format!("{STREAM} was answered with {}", Quoted(found));
                self.closed(UpstreamClosed::Violation(what));
            }
        }
    }

    fn stream_data(&mut self, data: &[u8]) {
        let (mut endpoint, mut messages) = (None, Vec::new());
        let mut up = matches!(self.life, Life::Up { .. });
        self.feed.feed(data, |fed| match fed {
            Fed::Named(b"endpoint", reference) if !up => {
                up = true;
                endpoint = Some(reference.to_vec());
            }
            Fed::Named(name, _) => log::debug!("event {} ignored", name.escape_ascii()),
            Fed::Message(_) | Fed::Oversized { .. } if !up => {
                log::debug!("message before the endpoint dropped");
            }
            Fed::Message(bytes) => messages.push(match std::str::from_utf8(bytes) {
                Ok(text) => UpstreamEvent::Message {
                    text: self.texts.copy(text),
                    on: None,
                    answer: None,
                },
                Err(_) => not_utf8(bytes, None),
            }),
            Fed::Oversized { limit } => messages.push(too_large(limit, None)),
        });
        if let Some(reference) = endpoint {
            self.take_endpoint(&reference);
        }
        if !matches!(self.life, Life::Closed) {
            self.events.extend(messages);
        }
    }

    fn take_endpoint(&mut self, reference: &[u8]) {
        let Life::Opening { stream, .. } = self.life else {
            return;
        };
        let base = &self.client.target().url;
        let text = String::from_utf8_lossy(reference);
        let shown = UrlForLog(&text).to_string();
        let refuse = |why: &str| {
            let from = origin(base);
            UpstreamClosed::Violation(format!(
                "endpoint {shown} of the {STREAM} of {from} is not used: {why}"
            ))
        };
        match resolve(base, &text) {
            Ok(url) if !same_origin(base, &url) => {
                let why = format!("it is of another origin, {}", origin(&url));
                let closed = refuse(&why);
                self.closed(closed);
            }
            Ok(url) if url.userinfo => {
                let closed = refuse("it has a user name");
                self.closed(closed);
            }
            Ok(url) => {
                let endpoint = url.path_and_query;
                let endpoint = endpoint.into();
                self.life = Life::Up { stream, endpoint };
                self.events.push_back(UpstreamEvent::Up);
            }
            Err(error) => {
                let closed = refuse(&error.to_string());
                self.closed(closed);
            }
        }
    }

    fn stream_over(&mut self, fault: Option<Fault>) {
        let why = match &fault {
            None => format!("{STREAM} ended"),
            Some(Fault::NotOpened(fault)) => fault.message.clone(),
            Some(Fault::NotSent(why) | Fault::Broken(why)) => format!("{STREAM}: {why}"),
            Some(Fault::Redirect { from, to, why }) => {
                format!("{from} redirects to {to}: {why}")
            }
        };
        let closed = match (std::mem::replace(&mut self.life, Life::Idle), fault) {
            (
                Life::Opening {
                    refused: Some(other),
                    ..
                },
                _,
            ) => UpstreamClosed::Refused {
                what: STREAM,
                status: Box::new(other.into_status()),
            },
            (Life::Opening { .. }, Some(Fault::NotOpened(fault))) => UpstreamClosed::Io(fault),
            (Life::Opening { .. }, Some(Fault::Redirect { .. })) => UpstreamClosed::Violation(why),
            (Life::Opening { .. }, _) => UpstreamClosed::Io(IoFault {
                kind: FaultKind::Broken,
                message: why,
            }),
            (Life::Up { .. } | Life::Idle | Life::Closed, _) => UpstreamClosed::SessionLost(why),
        };
        self.closed(closed);
    }

    fn step_post(&mut self, now: Now, exchange: ExchangeId, what: What<'_>) {
        let Some(mut post) = self.posts.remove(&exchange) else {
            return;
        };
        match what {
            What::Head(head, framing) => {
                if (200..300).contains(&head.status) {
                    self.unhold(exchange);
                }
                match Kind::of(now, &head, framing) {
                    Kind::Other(other) => post.reply = Some(other),
                    // The answer comes as an event; this is a courtesy of some servers.
                    Kind::Events | Kind::Json { .. } => {
                        self.client.give_up_at(exchange, now.after(LINGER));
                        post.id = None;
                    }
                }
                self.client.keep_head(exchange, head);
            }
            What::Data(data) => {
                if post.reply.as_mut().is_some_and(|other| other.take(data)) {
                    self.client.cancel(exchange);
                    return self.post_over(exchange, post);
                }
            }
            What::End => return self.post_over(exchange, post),
            What::Failed(fault) => {
                self.unhold(exchange);
                return self.ended(post.id, end_of(fault));
            }
        }
        self.posts.insert(exchange, post);
    }

    fn post_over(&mut self, exchange: ExchangeId, post: Post) {
        let Some(other) = post.reply.filter(|other| !other.is_success()) else {
            return;
        };
        let initialized = self.holding.is_some_and(|(held_by, _)| held_by == exchange);
        if initialized {
            let what = "notifications/initialized";
            let status = Box::new(other.into_status());
            return self.closed(UpstreamClosed::Refused { what, status });
        }
        self.ended(post.id, other.into_end(false));
    }

    fn unhold(&mut self, exchange: ExchangeId) {
        if self.holding.is_some_and(|(held_by, _)| held_by == exchange) {
            self.holding = None;
        }
    }

    fn ended(&mut self, id: Option<UpstreamRequestId>, end: RequestEnd) {
        match id {
            Some(id) => self
                .events
                .push_back(UpstreamEvent::RequestEnded { id, end }),
            None => log::debug!("a notification or answer may be lost: {end:?}"),
        }
    }

    fn closed(&mut self, why: UpstreamClosed) {
        if matches!(self.life, Life::Closed) {
            return;
        }
        self.life = Life::Closed;
        self.client.close(None, |_| false);
        self.held.clear();
        self.holding = None;
        self.posts.clear();
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
mod tests;
