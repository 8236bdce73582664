//! What a link to an upstream server reports, whatever it is made of, and the one type that holds any of
//! them.

use crate::codec::shared_text::SharedText;
use crate::ids::UpstreamRequestId;
use crate::link::{ExitReport, IoFault};
use crate::protocol::client::{AnswerPlaces, RequestEnd, StatusEnd};
use crate::secret::Quoted;

/// What happened on a link to a server. `Closed` comes once, last.
#[derive(Debug)]
pub enum UpstreamEvent {
    /// Messages can be sent now. The first event, unless `Closed` is.
    Up,
    /// One message: a line, the data of an event, a body.
    Message {
        /// The JSON text, or what the server took for it.
        text: SharedText,
        /// Whose answer stream it came on; `None` where there is one stream for all.
        on: Option<UpstreamRequestId>,
        /// Where its parts are, when the link has read it and it is an answer.
        answer: Option<AnswerPlaces>,
    },
    /// Bytes that cannot be a message: a line that is not UTF-8, or one over the limit, skipped to its end.
    Unreadable {
        /// What is wrong with them, in the words of the command line's contract: `not UTF-8`,
        /// `message too large: 2097213 bytes, limit 1048576`.
        why: String,
        /// The first of them, at most 200.
        sample: Vec<u8>,
        /// Whose answer stream they came on.
        on: Option<UpstreamRequestId>,
    },
    /// Nothing more comes for this request (HTTP only). After an answer this is not told.
    RequestEnded {
        /// The request.
        id: UpstreamRequestId,
        /// Why.
        end: RequestEnd,
    },
    /// The stream of a request was interrupted and is being taken up again where it ended. For logs.
    Resuming {
        /// The request; `None` for the stream of the session.
        id: Option<UpstreamRequestId>,
        /// One line.
        why: String,
    },
    /// Something is not as it should be, and could be made sense of. For people.
    Remark {
        /// One line.
        why: String,
    },
    /// The server has ended the conversation, so nothing more comes and nothing more can be said; what is
    /// left of it is being ended, which may take a while. `Closed` follows with the same reason. Only links
    /// to programs say this.
    Ending(UpstreamClosed),
    /// The link is gone, with everything that was open on it.
    Closed(UpstreamClosed),
}

/// Why a link to a server ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpstreamClosed {
    /// We closed it.
    Local,
    /// It could not be opened, or broke.
    Io(IoFault),
    /// The server refused what a conversation cannot begin without (HTTP only): the event stream of the pair
    /// of 2024-11-05, or `notifications/initialized`.
    Refused {
        /// What was asked.
        what: &'static str,
        /// The answer.
        status: Box<StatusEnd>,
    },
    /// The process ended.
    Exited(ExitReport),
    /// The server ended its output; its process, if it had one, was ended too.
    OutputEnded {
        /// Bytes of a last line without an end, if there were any.
        partial: bool,
    },
    /// It does not read what is written to it: bytes queued, limit.
    NotReading {
        /// Bytes queued.
        value: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The session or event stream is gone for good and a new conversation is needed. One line.
    SessionLost(String),
    /// It broke the rules of the transport. One line.
    Violation(String),
}

impl std::fmt::Display for UpstreamClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local => f.write_str("connection closed"),
            Self::Io(fault) => f.write_str(&fault.message),
            Self::Refused { what, status } => {
                write!(f, "{what} was answered with HTTP status {}", status.status)?;
                let body = String::from_utf8_lossy(&status.body);
                match body.trim_ascii() {
                    "" => Ok(()),
                    body => write!(f, ": {}", Quoted(body)),
                }
            }
            Self::Exited(report) => write!(f, "{report}"),
            Self::OutputEnded { partial: false } => f.write_str("server closed its output"),
            Self::OutputEnded { partial: true } => {
                f.write_str("server closed its output: stream ended within a message")
            }
            Self::NotReading { value, limit } => {
                write!(
                    f,
                    "server is not reading: {value} bytes queued, limit {limit}"
                )
            }
            Self::SessionLost(why) => write!(f, "session was lost, safe to retry: {why}"),
            Self::Violation(what) => f.write_str(what),
        }
    }
}
