//! One request to the server, from its POST to its answer.
//!
//! | state   | input                              | next    | output                            |
//! |---------|------------------------------------|---------|-----------------------------------|
//! | Awaited | head of an event stream            | Events  |                                   |
//! | Awaited | head of JSON                       | Json    |                                   |
//! | Awaited | any other head                     | Other   |                                   |
//! | Awaited | fault                              | over    | `NotSent`, `Broken`, `Redirect`   |
//! | Json    | more than the limit                | over    | `TooLarge`                        |
//! | Json    | end                                | over    | messages; what `reply` says       |
//! | Other   | end, or enough                     | over    | what `reply` says                 |
//! | Events  | event                              | Events  | `Message`                         |
//! | Events  | event over the limit               | Events  | `Unreadable`                      |
//! | Events  | end or fault, answered             | over    |                                   |
//! | Events  | … after an event over the limit    | over    | `TooLarge`                        |
//! | Events  | … can be resumed                   | Waiting | `Resuming`                        |
//! | Events  | … otherwise                        | over    | `Broken`                          |
//! | Waiting | the wait that the server asked for | Awaited | GET with `Last-Event-ID`          |
//!
//! A stream can be resumed in the handshake eras, when it has given an event id, as long as it makes progress:
//! after `resume_attempts_max` GETs in a row without a new event the request has ended. In the stateless era a
//! request is not taken up again (mcp-eras §3, Resumption).

use std::collections::VecDeque;
use std::time::Duration;

use super::buffers::Buffers;
use super::client::Fault;
use super::feed::{Fed, Feed, RETRY_MAX};
use super::message::{Unpacked, is_error_without_id, unpack};
use super::reply::{Kind, Other, names_session, unexpected};
use crate::clock::Now;
use crate::codec::http_body::Framing;
use crate::codec::http1::ResponseHead;
use crate::codec::scan::{ScanError, ScanLimits};
use crate::codec::shared_text::TextPool;
use crate::ids::UpstreamRequestId;
use crate::link::upstream::UpstreamEvent;
use crate::protocol::client::{Dialect, RequestEnd, StatusEnd};

/// Longest message that is kept to tell afterwards why there was no answer.
const LAST_WORDS_BYTES_MAX: usize = 4 * 1_024;

/// Bytes of what cannot be read that are shown.
const SAMPLE_BYTES_MAX: usize = 200;

/// A request.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) id: UpstreamRequestId,
    /// It begins a session.
    pub(super) initialize: bool,
    /// It named a session.
    in_session: bool,
    resumable: bool,
    batches: bool,
    reply: Reply,
    answered: bool,
    /// An event was left out: it may have been the answer.
    oversized: Option<usize>,
    last_words: Vec<u8>,
    /// The stream that it is answered on, if it is one.
    feed: Option<Box<Feed>>,
    /// GETs since the last progress.
    attempts: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct CallLimits {
    pub(super) message_bytes_max: usize,
    pub(super) resume_attempts_max: usize,
    pub(super) scan: ScanLimits,
}

/// What answers are read with.
pub(super) struct Means<'a> {
    pub(super) limits: &'a CallLimits,
    pub(super) bodies: &'a mut Buffers,
    pub(super) texts: &'a mut TextPool,
    pub(super) events: &'a mut VecDeque<UpstreamEvent>,
}

#[derive(Debug)]
enum Reply {
    Awaited,
    Json(Json),
    Events,
    Other(Box<Other>),
}

/// A body of JSON.
#[derive(Debug)]
struct Json {
    status: u16,
    /// It is said to be JSON.
    typed: bool,
    body: Vec<u8>,
}

/// How a call goes on.
#[derive(Debug)]
pub(super) enum Next {
    /// More is to come.
    Going,
    /// It is answered, and its stream has no reason to go on.
    Answered,
    /// Nothing more comes: the owner is to be told, unless it was answered.
    Over(Option<RequestEnd>),
    /// Its stream is to be taken up again after this wait.
    Resume(Duration, String),
}

impl Call {
    pub(super) const fn new(
        id: UpstreamRequestId,
        initialize: bool,
        in_session: bool,
        dialect: Dialect,
    ) -> Self {
        let (resumable, batches) = match dialect {
            Dialect::Session(revision) => (true, revision.has_batches()),
            Dialect::Handshake => (true, false),
            Dialect::Stateless(_) => (false, false),
        };
        Self {
            id,
            initialize,
            in_session,
            resumable,
            batches,
            reply: Reply::Awaited,
            answered: false,
            oversized: None,
            last_words: Vec::new(),
            feed: None,
            attempts: 0,
        }
    }

    /// The id to resume its stream behind.
    pub(super) fn last_id(&self) -> Option<&str> {
        self.feed.as_ref()?.last_id()
    }

    /// The head of an answer.
    pub(super) fn head(
        &mut self,
        now: Now,
        head: &ResponseHead,
        framing: Framing,
        with: &mut Means<'_>,
    ) -> Next {
        let kind = Kind::of(now, head, framing);
        if self.attempts > 0 {
            return self.head_of_resumed(kind, with.limits);
        }
        self.reply = match kind {
            Kind::Events => {
                self.feed = Some(Box::new(Feed::new(with.limits.message_bytes_max)));
                Reply::Events
            }
            Kind::Json { typed } => {
                let limit = with.limits.message_bytes_max;
                if let Framing::Length(length) = framing {
                    let value = usize::try_from(length).unwrap_or(usize::MAX);
                    if value > limit {
                        return Next::Over(Some(RequestEnd::TooLarge { value, limit }));
                    }
                }
                Reply::Json(Json {
                    status: head.status,
                    typed,
                    body: with.bodies.take(),
                })
            }
            Kind::Other(other) => Reply::Other(Box::new(other)),
        };
        Next::Going
    }

    /// The answer to a GET that was to take the stream up again.
    fn head_of_resumed(&mut self, kind: Kind, limits: &CallLimits) -> Next {
        let other = match kind {
            Kind::Events => {
                if let Some(feed) = &mut self.feed {
                    feed.reconnect();
                }
                self.reply = Reply::Events;
                return Next::Going;
            }
            Kind::Json { .. } => {
                let why = "stream could not be resumed: the answer was no event stream";
                return Next::Over(Some(RequestEnd::Broken(why.to_owned())));
            }
            Kind::Other(other) => other,
        };
        let status = other.status.status;
        let why = format!("stream could not be resumed: HTTP status {status}");
        if matches!(status, 429 | 500..=599) && status != 501 {
            let wait = Duration::from_millis(other.status.retry_after_ms.unwrap_or(0));
            return self.interrupted(why, Some(wait), limits);
        }
        let end = other.into_end(self.in_session);
        if matches!(end, RequestEnd::SessionLost { .. }) {
            return Next::Over(Some(end));
        }
        Next::Over(Some(RequestEnd::Broken(why)))
    }

    /// Bytes of the body.
    pub(super) fn data(&mut self, data: &[u8], with: &mut Means<'_>) -> Next {
        match &mut self.reply {
            Reply::Awaited => Next::Going,
            Reply::Json(Json { body, .. }) => {
                let limit = with.limits.message_bytes_max;
                let value = body.len().saturating_add(data.len());
                if value > limit {
                    return Next::Over(Some(RequestEnd::TooLarge { value, limit }));
                }
                body.extend_from_slice(data);
                Next::Going
            }
            Reply::Other(other) => {
                if other.take(data) {
                    return self.end(with);
                }
                Next::Going
            }
            Reply::Events => {
                self.events(data, with);
                if self.answered {
                    Next::Answered
                } else {
                    Next::Going
                }
            }
        }
    }

    fn events(&mut self, data: &[u8], with: &mut Means<'_>) {
        let Self {
            id,
            feed,
            oversized,
            last_words,
            answered,
            batches,
            ..
        } = self;
        let Some(feed) = feed else { return };
        let Means {
            limits,
            texts,
            events,
            ..
        } = with;
        feed.feed(data, |fed| match fed {
            Fed::Message(bytes) => {
                let unpacked = unpack(bytes, *id, *batches, &limits.scan, texts);
                let answers = deliver(unpacked, bytes, *id, events);
                *answered |= answers;
                last_words.clear();
                if !answers && bytes.len() <= LAST_WORDS_BYTES_MAX {
                    last_words.extend_from_slice(bytes);
                }
            }
            Fed::Named(name, _) => {
                log::debug!("event {} is no message", name.escape_ascii());
            }
            Fed::Oversized { limit } => {
                *oversized = Some(limit);
                events.push_back(too_large(limit, Some(*id)));
            }
        });
    }

    /// The answer is whole.
    pub(super) fn end(&mut self, with: &mut Means<'_>) -> Next {
        match std::mem::replace(&mut self.reply, Reply::Awaited) {
            Reply::Awaited => Next::Over(Some(RequestEnd::Accepted)),
            Reply::Json(json) => {
                let end = self.json(&json, with);
                with.bodies.give(json.body);
                Next::Over(end)
            }
            Reply::Other(other) => {
                // A refusal that names the request has nothing to do with the session, whatever it says.
                let body = &other.status.body;
                let unpacked = unpack(body, self.id, false, &with.limits.scan, with.texts);
                let own = matches!(
                    unpacked,
                    Unpacked::One {
                        answer: Some(_),
                        ..
                    }
                );
                Next::Over(Some(other.into_end(self.in_session && !own)))
            }
            Reply::Events => {
                let why = if self.feed.as_ref().is_some_and(|feed| feed.is_amid_event()) {
                    "stream ended before the answer, within a message"
                } else {
                    "stream ended before the answer"
                };
                self.interrupted(why.to_owned(), None, with.limits)
            }
        }
    }

    fn json(&mut self, json: &Json, with: &mut Means<'_>) -> Option<RequestEnd> {
        let (status, body, id) = (json.status, json.body.as_slice(), self.id);
        if body.trim_ascii().is_empty() {
            return Some(RequestEnd::Accepted);
        }
        let scan = &with.limits.scan;
        let unpacked = unpack(body, id, self.batches, scan, with.texts);
        if !json.typed {
            if !matches!(body.trim_ascii_start(), [b'{' | b'[', ..]) {
                return Some(unexpected(status, "no Content-Type".to_owned(), body));
            }
            let why = "an answer has no Content-Type and is taken for JSON".to_owned();
            with.events.push_back(UpstreamEvent::Remark { why });
        }
        let kind = match json.typed {
            true => "application/json",
            false => "no Content-Type",
        };
        let otherwise = match &unpacked {
            Unpacked::One {
                answer: Some(_), ..
            }
            | Unpacked::Several { answers: true, .. } => None,
            Unpacked::One { answer: None, .. } | Unpacked::Several { answers: false, .. } => {
                let found = format!("{kind}, and no answer to this request in it");
                Some(unexpected(status, found, body))
            }
            Unpacked::Not {
                error: ScanError::Syntax { .. },
                ..
            } => {
                let found = format!("{kind}, and no JSON in it");
                return Some(unexpected(status, found, body));
            }
            Unpacked::Not { error, .. } => {
                Some(RequestEnd::Broken(format!("unreadable answer: {error}")))
            }
        };
        self.last_words.clear();
        if otherwise.is_some() && body.len() <= LAST_WORDS_BYTES_MAX {
            self.last_words.extend_from_slice(body);
        }
        deliver(unpacked, body, id, with.events);
        otherwise.map(|end| self.unanswered(end, with.limits))
    }

    /// The exchange came to nothing.
    pub(super) fn failed(&mut self, fault: Fault, limits: &CallLimits) -> Next {
        let resuming = self.attempts > 0;
        match (fault, &self.reply) {
            (Fault::NotOpened(fault), Reply::Awaited) if resuming => {
                self.again(fault.message, limits)
            }
            (Fault::NotSent(why) | Fault::Broken(why), Reply::Awaited) if resuming => {
                self.again(why, limits)
            }
            (Fault::Broken(why), Reply::Events) => self.interrupted(
                format!("stream ended before the answer: {why}"),
                None,
                limits,
            ),
            (fault, _) => Next::Over(Some(end_of(fault))),
        }
    }

    fn again(&mut self, why: String, limits: &CallLimits) -> Next {
        self.interrupted(why, Some(Duration::ZERO), limits)
    }

    /// The stream is gone. `refused` is set when a try to take it up came to nothing: at least so long to wait.
    fn interrupted(&mut self, why: String, refused: Option<Duration>, limits: &CallLimits) -> Next {
        if self.answered {
            return Next::Over(None);
        }
        if let Some(limit) = self.oversized {
            let value = limit.saturating_add(1);
            return Next::Over(Some(RequestEnd::TooLarge { value, limit }));
        }
        let feed = self.feed.as_mut().filter(|_| self.resumable);
        let Some(feed) = feed.filter(|feed| feed.last_id().is_some()) else {
            return Next::Over(Some(self.unanswered(RequestEnd::Broken(why), limits)));
        };
        if feed.take_progress() {
            self.attempts = 0;
        }
        let limit = limits.resume_attempts_max;
        if self.attempts >= limit {
            let why = format!("stream could not be resumed, {limit} tries: {why}");
            return Next::Over(Some(RequestEnd::Broken(why)));
        }
        self.attempts += 1;
        self.reply = Reply::Awaited;
        let mut wait = feed.wait();
        if let Some(least) = refused {
            let doublings = u32::try_from(self.attempts).unwrap_or(u32::MAX).min(5);
            let grown = Duration::from_millis(500) * 2_u32.pow(doublings);
            wait = wait.max(grown).max(least).min(RETRY_MAX);
        }
        Next::Resume(wait, why)
    }

    /// The end of a request whose answer did not come. What the server said last may tell why: an error that
    /// does not say what it answers, where it can answer only one thing.
    fn unanswered(&mut self, otherwise: RequestEnd, limits: &CallLimits) -> RequestEnd {
        let body = std::mem::take(&mut self.last_words);
        let error = is_error_without_id(&body, &limits.scan);
        let speaks_of_error = body.windows(7).any(|part| part == b"\"error\"");
        let doubtful = self.in_session && speaks_of_error && names_session(&body);
        let status = Box::new(StatusEnd {
            status: 200,
            body,
            ..StatusEnd::default()
        });
        match (doubtful, error) {
            (true, _) => RequestEnd::SessionDoubtful(status),
            (false, true) => RequestEnd::Status(status),
            (false, false) => otherwise,
        }
    }
}

/// Hands messages on; whether the answer was among them.
fn deliver(
    unpacked: Unpacked,
    bytes: &[u8],
    id: UpstreamRequestId,
    events: &mut VecDeque<UpstreamEvent>,
) -> bool {
    let on = Some(id);
    let message = |text, answer| UpstreamEvent::Message { text, on, answer };
    match unpacked {
        Unpacked::One { text, answer } => {
            let answers = answer.is_some();
            events.push_back(message(text, answer));
            answers
        }
        Unpacked::Several { members, answers } => {
            events.extend(members.into_iter().map(|text| message(text, None)));
            answers
        }
        Unpacked::Not { text, .. } => {
            events.push_back(match text {
                Some(text) => message(text, None),
                None => not_utf8(bytes, on),
            });
            false
        }
    }
}

/// Bytes that are not UTF-8 where a message was due.
pub(crate) fn not_utf8(bytes: &[u8], on: Option<UpstreamRequestId>) -> UpstreamEvent {
    UpstreamEvent::Unreadable {
        why: "not UTF-8".to_owned(),
        sample: bytes[..bytes.len().min(SAMPLE_BYTES_MAX)].to_vec(),
        on,
    }
}

/// An event over the limit. How long it is, nobody knows: it is not kept.
pub(crate) fn too_large(limit: usize, on: Option<UpstreamRequestId>) -> UpstreamEvent {
    let seen = limit.saturating_add(1);
    UpstreamEvent::Unreadable {
        why: format!("message too large: {seen} bytes, limit {limit}"),
        sample: Vec::new(),
        on,
    }
}

/// A fault as the end of a request.
pub(crate) fn end_of(fault: Fault) -> RequestEnd {
    match fault {
        Fault::NotOpened(fault) => RequestEnd::NotSent(fault.message),
        Fault::NotSent(why) => RequestEnd::NotSent(why),
        Fault::Broken(why) => RequestEnd::Broken(why),
        Fault::Redirect { from, to, why } => RequestEnd::Redirect { from, to, why },
    }
}
