//! Why a conversation could not begin, and why a request got no result.

use std::fmt;
use std::time::Duration;

use super::{RequestEnd, StatusEnd};
use crate::codec::jsonrpc::{self, Message, Outcome};
use crate::codec::scan::{ScanLimits, Scanned, Text, elements, members, scan};
use crate::protocol::error::ErrorCode;
use crate::protocol::message::member;
use crate::protocol::revision::Revision;
use crate::secret::Quoted;

/// Why a conversation cannot begin.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectFault {
    /// Nothing came in time.
    TimedOut {
        /// What was waited for: a method, or `connect`.
        what: &'static str,
        /// The time allowed for the whole opening.
        limit: Duration,
    },
    /// The handshake was answered with a revision that we do not speak, or not the one that was demanded.
    Version {
        /// What stood in the answer; `None` when nothing did.
        offered: Option<String>,
        /// What would have been accepted.
        spoken: Vec<Revision>,
    },
    /// The server lists its revisions, and none of them will do.
    NoCommonVersion {
        /// Its list.
        supported: Vec<String>,
        /// What would have been accepted.
        spoken: Vec<Revision>,
    },
    /// The server answered with an error.
    Refused {
        /// What was asked.
        method: &'static str,
        /// Its error.
        error: RemoteError,
    },
    /// HTTP: there was no answer, or another than one of JSON-RPC.
    End {
        /// What was asked.
        method: &'static str,
        /// What came in its place.
        end: RequestEnd,
    },
    /// The answer makes no sense. One line.
    Violation(String),
    /// The link is gone. One line.
    Closed(String),
}

impl ConnectFault {
    /// The versions that the server has named in it.
    #[must_use]
    pub fn supported(&self) -> Vec<String> {
        match self {
            Self::NoCommonVersion { supported, .. } => supported.clone(),
            Self::Refused { error, .. } => error.supported(),
            Self::Version { offered, .. } => offered.iter().cloned().collect(),
            Self::TimedOut { .. } | Self::End { .. } | Self::Violation(_) | Self::Closed(_) => {
                Vec::new()
            }
        }
    }
}

impl ConnectFault {
    /// Whether a server has looked at what was sent, and does not want it.
    pub(super) fn is_of_server(&self) -> bool {
        match self {
            Self::Version { .. } | Self::NoCommonVersion { .. } | Self::Refused { .. } => true,
            Self::End { end, .. } => matches!(end, RequestEnd::Status(end) if end.is_refusal()),
            Self::TimedOut { .. } | Self::Violation(_) | Self::Closed(_) => false,
        }
    }
}

impl StatusEnd {
    /// Whether the status can mean that a server does not know what was asked, rather than who asks or how
    /// often.
    pub(super) fn is_refusal(&self) -> bool {
        match self.status {
            401 | 407 | 408 | 429 => false,
            403 => self.challenge.is_none(),
            status => (400..500).contains(&status),
        }
    }
}

impl fmt::Display for ConnectFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { what, limit } => {
                write!(f, "{what} timed out after {} ms", limit.as_millis())
            }
            Self::Version { offered, spoken } => {
                f.write_str("protocol version not supported: server offered ")?;
                match offered {
                    Some(offered) => write!(f, "{}", Quoted(offered))?,
                    None => f.write_str("absent")?,
                }
                write!(f, ", we speak {}", Joined(spoken))
            }
            Self::NoCommonVersion { supported, spoken } => {
                let supported = supported.join(", ");
                write!(
                    f,
                    "no common protocol version: server speaks {}, we speak {}",
                    Quoted(&supported),
                    Joined(spoken)
                )
            }
            Self::Refused { method, error } => write!(f, "{method} was refused: {error}"),
            Self::End { method, end } => write!(f, "{method} was not answered: {end}"),
            Self::Violation(what) | Self::Closed(what) => f.write_str(what),
        }
    }
}

struct Joined<'a>(&'a [Revision]);

impl fmt::Display for Joined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, revision) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}{revision}")?;
        }
        Ok(())
    }
}

impl fmt::Display for RequestEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) => write!(f, "not sent: {why}"),
            Self::Status(end) => {
                write!(f, "HTTP {}", end.status)?;
                if let Some(kind) = &end.content_type {
                    write!(f, ", {}", Quoted(kind))?;
                }
                let body = String::from_utf8_lossy(&end.body);
                match body.trim() {
                    "" => Ok(()),
                    body => write!(f, ": {}", Quoted(body)),
                }
            }
            Self::SessionLost { status } => {
                write!(f, "session was lost, safe to retry (HTTP {status})")
            }
            Self::NotReading { value, limit } => {
                write!(
                    f,
                    "server is not reading: {value} bytes queued, limit {limit}"
                )
            }
            Self::SessionDoubtful(end) => {
                write!(f, "session may be lost: {}", Self::Status(end.clone()))
            }
            Self::Accepted => f.write_str("accepted, but without an answer"),
            Self::ContentType {
                status,
                found,
                body,
            } => {
                write!(f, "HTTP {status}, unexpected content type {found}: {body}")
            }
            Self::Broken(why) => f.write_str(why),
            Self::TooLarge { value, limit } => {
                write!(f, "message too large: {value} bytes, limit {limit}")
            }
            Self::Redirect { from, to, why } => {
                write!(f, "redirect from {from} to {to} is not followed: {why}")
            }
        }
    }
}

/// Why a request got no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallFault {
    /// The server answered with an error.
    Remote(RemoteError),
    /// A time limit.
    TimedOut {
        /// Which: `request`, `request in all`, or `answers to the server's questions`.
        what: &'static str,
        /// The time allowed.
        limit: Duration,
    },
    /// The caller took it back.
    Cancelled,
    /// HTTP: nothing more comes for it.
    End(RequestEnd),
    /// The link is gone, or the conversation is not open. One line.
    Closed(String),
    /// Too much is open.
    Busy {
        /// How many are.
        value: usize,
        /// How many may be.
        limit: usize,
    },
    /// What came is no answer. One line.
    Violation(String),
    /// The server needs an answer that whoever was asked refused to give: their error.
    Refused(RemoteError),
    /// The request says that it goes on with an earlier one, and the revision of the server has no such requests.
    ForeignState(Revision),
    /// The server asks for what the client of this request has not declared.
    Undeclared {
        /// What it asks for.
        method: &'static str,
        /// What would have to be declared for that.
        feature: &'static str,
    },
}

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(error) => error.fmt(f),
            Self::TimedOut { what, limit } => {
                write!(f, "{what} timed out after {} ms", limit.as_millis())
            }
            Self::Cancelled => f.write_str("cancelled"),
            Self::End(end) => end.fmt(f),
            Self::Closed(what) | Self::Violation(what) => f.write_str(what),
            Self::Busy { value, limit } => {
                write!(f, "busy: {value} requests are open, limit {limit}")
            }
            Self::ForeignState(revision) => write!(
                f,
                "params.requestState belongs to no call that waits here: the server speaks \
                 {revision}, which has none; start over"
            ),
            Self::Refused(error) => write!(f, "a question of the server was refused: {error}"),
            Self::Undeclared { method, feature } => write!(
                f,
                "server asks for what we did not offer: {method}, which the client capability \
                 {feature} allows"
            ),
        }
    }
}

impl From<RemoteError> for CallFault {
    fn from(error: RemoteError) -> Self {
        Self::Remote(error)
    }
}

/// An error object of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteError {
    /// `code`; "internal error" when it is missing or no 64-bit integer.
    pub code: i64,
    /// `message`, as the server put it.
    pub message: String,
    /// `data`, raw.
    pub data: Option<Box<str>>,
    /// The whole object as it came, for whoever passes it on; `None` when it is nobody's message.
    pub raw: Option<Box<str>>,
}

impl RemoteError {
    /// Reads a raw error object.
    #[must_use]
    pub fn read(raw: &str) -> Self {
        let mut error = Self {
            code: i64::from(ErrorCode::InternalError.number()),
            message: String::new(),
            data: None,
            raw: Some(raw.into()),
        };
        for (key, value) in members(raw) {
            if key.is("code") {
                error.code = value.parse().unwrap_or(error.code);
            } else if key.is("message") {
                let text = Text::of_value(value);
                error.message = text.map_or_else(String::new, |text| text.decode().into_owned());
            } else if key.is("data") {
                error.data = Some(value.into());
            }
        }
        error
    }

    /// The JSON-RPC error that an HTTP answer with an error status holds, if it does.
    #[must_use]
    pub(super) fn in_body(end: &StatusEnd, limits: &ScanLimits) -> Option<Self> {
        let Ok(Scanned::One(envelope)) = scan(&end.body, limits) else {
            return None;
        };
        match jsonrpc::classify(&envelope) {
            Ok(Message::Response {
                outcome: Outcome::Error(error),
                ..
            }) => Some(Self::read(error)),
            Ok(
                Message::Response {
                    outcome: Outcome::Result(_),
                    ..
                }
                | Message::Request { .. }
                | Message::Notification { .. },
            )
            | Err(_) => None,
        }
    }

    /// Whether it is one of `codes`.
    pub(super) fn is_one_of(&self, codes: &[ErrorCode]) -> bool {
        codes
            .iter()
            .any(|code| i64::from(code.number()) == self.code)
    }

    /// `data.supported`: the versions that the server speaks.
    pub(super) fn supported(&self) -> Vec<String> {
        let list = self
            .data
            .as_deref()
            .and_then(|data| member(data, "supported"));
        strings(list)
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}: {}", self.code, Quoted(&self.message))
    }
}

/// The versions of a raw array, as far as they are strings.
pub(super) fn strings(list: Option<&str>) -> Vec<String> {
    let texts = list.into_iter().flat_map(elements);
    texts
        .filter_map(Text::of_value)
        .map(|text| text.decode().chars().take(VERSION_CHARS_MAX).collect())
        .take(VERSIONS_READ_MAX)
        .collect()
}

/// How much of a version is read; ours are ten characters long. No limit of its own: what is longer is none.
pub(super) const VERSION_CHARS_MAX: usize = 64;

/// Versions of a server's list that are read; there are five today. No limit of its own: it bounds what a message shows.
const VERSIONS_READ_MAX: usize = 64;
