//! One piece of work for one server, from the asking to its one answer.

use std::borrow::Cow;
use std::time::Duration;

use crate::clock::Uptime;
use crate::codec::shared_text::SharedText;
use crate::ids::TicketId;
use crate::manager::catalog::ListWalk;
use crate::manager::health::Pass;

/// What a caller may say about its request beside what it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Replaces the server's request timeout.
    pub timeout: Option<Duration>,
    /// Tell the caller of progress.
    pub wants_progress: bool,
    /// Check arguments and result of a call against the tool's schemas.
    pub validate: bool,
    /// Send a call of a tool that nobody lists to the only server there is, rather than refuse it.
    pub unlisted: bool,
    /// Hand an `input_required` result through instead of asking its questions. For callers that speak
    /// that era themselves.
    pub raw_questions: bool,
    /// Somebody else's request is passed on. A call may then be under way beside others of the same runtime,
    /// unless the server's record forbids that in so many words; and an error that the server answers with is
    /// an answer, which does not count towards its failure pause.
    pub bridged: bool,
    /// Headers for this request alone, name and value: the trace context of the client that is served. Over
    /// other transports than HTTP they are left out.
    pub headers: Vec<(Box<str>, Box<str>)>,
    /// What the one who asks has declared, a raw object, in place of what the runtime's servers were told.
    /// Of effect where each request says it: towards servers of the stateless era.
    pub capabilities: Option<Box<str>>,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Work {
    /// `tools/call`.
    Call {
        /// The whole of `params`, raw.
        params: SharedText,
        /// Its arguments, raw: in most cases a part of `params`.
        arguments: SharedText,
        /// `Mcp-Param-*` headers.
        headers: Vec<(Box<str>, Box<str>)>,
    },
    /// Any other request.
    Request {
        /// Its method.
        method: Cow<'static, str>,
        /// `params`, a raw object.
        params: Option<Box<str>>,
    },
    /// `tasks/get` of our own: listeners are told what comes of it.
    Task {
        /// `params`, a raw object.
        params: String,
    },
    /// All pages of a list.
    List {
        /// Where it is.
        walk: Box<ListWalk>,
        /// `params` of the next page; the first has none.
        page: Option<String>,
    },
}

/// One piece of work.
#[derive(Debug)]
pub(super) struct Job {
    /// Whose it is; `None` for the upstream's own.
    pub(super) ticket: Option<TicketId>,
    pub(super) work: Work,
    pub(super) options: Options,
    /// It was sent once already and provably never ran. There is no third time.
    pub(super) resent: bool,
    /// A walk has one limit for all its pages.
    pub(super) until: Option<Uptime>,
    /// What the failure pause let it through with.
    pub(super) pass: Option<Pass>,
}

impl Job {
    pub(super) fn new(ticket: Option<TicketId>, work: Work, options: Options) -> Self {
        Self {
            ticket,
            work,
            options,
            resent: false,
            until: None,
            pass: None,
        }
    }
}
