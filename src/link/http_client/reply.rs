//! What an answer is, from its head, and what its body says.
//!
//! | status    | content                        | the request ends as                                    |
//! |-----------|--------------------------------|--------------------------------------------------------|
//! | 2xx       | `text/event-stream`            | see `call`                                             |
//! | 202, 204  | anything else                  | `Accepted`                                             |
//! | other 2xx | nothing                        | `Accepted`                                             |
//! | other 2xx | `application/json`, or untyped | messages; without the answer: `ContentType`            |
//! | other 2xx | … an error without an id       | `Status`, or `SessionDoubtful` in such words           |
//! | other 2xx | … which is no JSON             | `ContentType`                                          |
//! | other 2xx | any other type, or encoded     | `ContentType`                                          |
//! | 404       | with a session                 | `SessionLost`                                          |
//! | 400, 410  | with a session, in such words  | `SessionDoubtful`                                      |
//! | other     | anything                       | `Status`                                               |
//!
//! Source: Spec 2025-11-25 basic/transports (Sending Messages, Session Management); cases e02, e04.

use super::retry_after::retry_after_ms;
use crate::clock::Now;
use crate::codec::http_body::Framing;
use crate::codec::http1::{Fields, ResponseHead};
use crate::protocol::client::{BODY_KEPT_MAX, RequestEnd, StatusEnd};
use crate::secret::Quoted;

/// What a head announces.
#[derive(Debug)]
pub(crate) enum Kind {
    /// An event stream.
    Events,
    /// JSON, or something without a type that may be JSON.
    Json { typed: bool },
    /// Neither.
    Other(Other),
}

/// An answer without messages, while the start of its body arrives.
#[derive(Debug)]
pub(crate) struct Other {
    meaning: Meaning,
    pub(super) status: StatusEnd,
}

#[derive(Debug)]
enum Meaning {
    Accepted,
    Unexpected(String),
    Status,
}

impl Kind {
    /// Reads a head.
    pub(crate) fn of(now: Now, head: &ResponseHead, framing: Framing) -> Self {
        let fields = &head.fields;
        let other = |meaning| {
            let status = StatusEnd {
                status: head.status,
                content_type: fields.only("content-type").map(str::to_owned),
                body: Vec::new(),
                challenge: joined(fields, "www-authenticate"),
                retry_after_ms: fields
                    .only("retry-after")
                    .and_then(|value| retry_after_ms(value, now.unix_ms)),
            };
            Self::Other(Other { meaning, status })
        };
        if !(200..300).contains(&head.status) {
            return other(Meaning::Status);
        }
        if let Some(coding) = coding(fields) {
            return other(Meaning::Unexpected(format!("Content-Encoding {coding}")));
        }
        let essence = other_essence(fields);
        let is = |media: &str| essence.is_some_and(|essence| essence.eq_ignore_ascii_case(media));
        if is("text/event-stream") {
            return Self::Events;
        }
        if matches!(head.status, 202 | 204) || framing.is_empty() {
            return other(Meaning::Accepted);
        }
        match essence {
            Some(_) if is("application/json") => Self::Json { typed: true },
            None => Self::Json { typed: false },
            Some(_) => {
                let found = fields.only("content-type").unwrap_or("several");
                other(Meaning::Unexpected(Quoted(found).to_string()))
            }
        }
    }
}

/// The media type without its parameters; empty when it is no text or stands twice.
fn other_essence(fields: &Fields) -> Option<&str> {
    let value = match fields.single("content-type") {
        Ok(value) => value?,
        Err(_) => "",
    };
    let end = value.find(';').unwrap_or(value.len());
    Some(value[..end].trim())
}

/// The coding of a body that has one.
fn coding(fields: &Fields) -> Option<String> {
    let named = fields.all("content-encoding").find(|value| {
        let value = value.trim_ascii();
        !value.is_empty() && !value.eq_ignore_ascii_case(b"identity")
    })?;
    Some(Quoted(&String::from_utf8_lossy(named)).to_string())
}

fn joined(fields: &Fields, name: &str) -> Option<String> {
    let values: Vec<_> = fields.all(name).map(String::from_utf8_lossy).collect();
    (!values.is_empty()).then(|| values.join(", "))
}

impl Other {
    /// Whether the server took the message.
    pub(crate) const fn is_success(&self) -> bool {
        matches!(self.meaning, Meaning::Accepted | Meaning::Unexpected(_))
    }

    /// Takes bytes of the body; true when no more are wanted.
    pub(crate) fn take(&mut self, data: &[u8]) -> bool {
        let body = &mut self.status.body;
        let room = BODY_KEPT_MAX - body.len();
        body.extend_from_slice(&data[..data.len().min(room)]);
        data.len() > room
    }

    /// The end of the request. `in_session` says that it named a session.
    pub(crate) fn into_end(self, in_session: bool) -> RequestEnd {
        let status = self.status;
        match self.meaning {
            Meaning::Accepted => RequestEnd::Accepted,
            Meaning::Unexpected(found) => unexpected(status.status, found, &status.body),
            Meaning::Status if in_session && status.status == 404 => {
                RequestEnd::SessionLost { status: 404 }
            }
            Meaning::Status if in_session && doubts_session(&status) => {
                RequestEnd::SessionDoubtful(Box::new(status))
            }
            Meaning::Status => RequestEnd::Status(Box::new(status)),
        }
    }

    /// The status and what came with it.
    pub(crate) fn into_status(self) -> StatusEnd {
        self.status
    }
}

/// Whether a refusal of a message in a session is about the session. Source: case e04.
fn doubts_session(status: &StatusEnd) -> bool {
    match status.status {
        410 => true,
        400 => names_session(&status.body),
        _ => false,
    }
}

/// Whether a text speaks of sessions, as servers do that have lost one.
pub(super) fn names_session(text: &[u8]) -> bool {
    let lower = text.to_ascii_lowercase();
    let has = |word: &[u8]| lower.windows(word.len()).any(|part| part == word);
    has(b"session") || has(b"not initialized")
}

/// A body that is neither JSON nor an event stream.
pub(super) fn unexpected(status: u16, found: String, body: &[u8]) -> RequestEnd {
    // A little more than is shown, so that the quote ends in an ellipsis.
    let start = String::from_utf8_lossy(&body[..body.len().min(256)]);
    RequestEnd::ContentType {
        status,
        found,
        body: Quoted(start.trim()).to_string(),
    }
}
