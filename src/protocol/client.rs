//! What a client says to a server and what it can hear back, whatever carries it.
//!
//! A [`peer`] holds the conversation; a link frames what it is given here and picks the HTTP headers that
//! go with it. The two never see each other: whoever owns both hands the messages over.

mod answer;
mod compose;
mod era;
mod fault;
mod listening;
mod opening;
pub mod peer;
mod pending;
mod questions;
mod terms;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use self::answer::AnswerPlaces;
use crate::ids::UpstreamRequestId;
use crate::protocol::revision::Revision;

/// The wire a message travels by, as far as it changes what is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// Lines: a child's stdin and stdout, or a Unix socket. Cancelling is a message.
    Lines,
    /// Streamable HTTP: a request has an answer of its own.
    Http,
    /// The pair of 2024-11-05: an event stream down, requests up.
    Sse,
}

/// Under which rules a message is sent; decides HTTP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The handshake itself: no version has been agreed on.
    Handshake,
    /// After a handshake that agreed on this revision.
    Session(Revision),
    /// Stateless: this revision stands in the message.
    Stateless(Revision),
}

/// One message for the server, complete and unframed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// What it is.
    pub kind: OutgoingKind,
    /// Under which rules.
    pub dialect: Dialect,
    /// The JSON text, without a line end.
    pub body: Vec<u8>,
}

/// What an [`Outgoing`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutgoingKind {
    /// A request. The link reports each with a [`RequestEnd`] when nothing more can come for it and it was
    /// not answered.
    Request {
        /// Its id on the wire.
        id: UpstreamRequestId,
        /// `Mcp-Method`.
        method: Cow<'static, str>,
        /// `Mcp-Name`, unencoded: the tool, prompt, resource or task that is meant.
        name: Option<Box<str>>,
        /// Headers of this request alone, full name and unencoded value: `Mcp-Param-*` for the stateless era
        /// (Spec: 2026-07-28 streamable-http, Custom Headers), and the trace context of whoever is served.
        headers: Vec<(Box<str>, Box<str>)>,
    },
    /// A notification.
    Notification {
        /// `Mcp-Method`.
        method: Box<str>,
    },
    /// An answer to a request of the server (handshake eras only).
    Answer,
}

/// Why a request over HTTP gets no answer, or no further one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestEnd {
    /// It never left, or provably reached nobody; it can be sent again. One line.
    NotSent(String),
    /// The server answered with this status and no JSON-RPC message.
    Status(Box<StatusEnd>),
    /// The server no longer knows our session and has not looked at the request (404 to a message with a
    /// session id, or what gateways answer instead). It can be sent again in a new session.
    SessionLost {
        /// The status it said so with.
        status: u16,
    },
    /// The server does not read what is written to it: bytes queued, limit. Nothing of it left.
    NotReading {
        /// Bytes queued.
        value: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The server seems to have lost our session, and has not proved that the request did not run: 400 or 410
    /// with such words, or an error without an id. Not to be sent again by itself; the next request needs a
    /// new session.
    SessionDoubtful(Box<StatusEnd>),
    /// 202 or an empty 200 where an answer was due.
    Accepted,
    /// 2xx with a body that is neither JSON nor an event stream.
    ContentType {
        /// The status.
        status: u16,
        /// The field's value, or what was there instead; quoted and short.
        found: String,
        /// Start of the body, quoted and short.
        body: String,
    },
    /// The answer's stream ended before the answer; it may have run. What and where, one line.
    Broken(String),
    /// An answer over the limit.
    TooLarge {
        /// Bytes seen.
        value: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// A redirect that is not followed. Both URLs without userinfo and query.
    Redirect {
        /// Where we asked.
        from: String,
        /// Where it pointed.
        to: String,
        /// Why it is not followed.
        why: &'static str,
    },
}

/// An HTTP status in place of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusEnd {
    /// The status.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// The body, cut at [`BODY_KEPT_MAX`]. A JSON-RPC error in it is for the peer to read.
    pub body: Vec<u8>,
    /// `WWW-Authenticate`, all fields joined by a comma.
    pub challenge: Option<String>,
    /// `Retry-After` in milliseconds, from now.
    pub retry_after_ms: Option<u64>,
}

/// How much of a body that is no answer is kept to tell what it was. Unit: bytes.
pub const BODY_KEPT_MAX: usize = 16 * 1024;
