//! What an upstream is given by its manager, and what it tells it.

use crate::clock::{Now, Uptime};
use crate::codec::shared_text::SharedText;
use crate::entropy::Entropy;
use crate::ids::{QuestionId, TicketId, UpstreamRequestId, WireMint};
use crate::manager::diagnostic::ServerDiagnostic;
use crate::manager::error::UpstreamError;
use crate::protocol::client::peer::ListKind;
use crate::protocol::topic::Topic;

/// How a server is doing, for callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerState {
    /// Nobody has needed it yet, or not for a while.
    Idle,
    /// A connection is being opened.
    Opening,
    /// It can be called.
    Ready,
    /// It could not be connected to and is left alone until then.
    Resting {
        /// When it is tried again.
        until: Uptime,
    },
    /// It was ended for good.
    Closed,
}

/// What an upstream tells the manager.
#[derive(Debug)]
pub(in crate::manager) enum UpstreamOutput {
    /// The one answer to a job: the raw result; for a list, the array of its entries.
    Answer {
        ticket: TicketId,
        outcome: Result<SharedText, UpstreamError>,
    },
    /// Progress of a job; raw params.
    Progress { ticket: TicketId, params: Box<str> },
    /// A notification of the server that concerns nobody's job in particular.
    Notification {
        method: Box<str>,
        params: Option<Box<str>>,
        ticket: Option<TicketId>,
    },
    /// The server asks something.
    Question {
        id: QuestionId,
        method: Box<str>,
        params: Option<Box<str>>,
        ticket: Option<TicketId>,
    },
    /// It no longer wants to know.
    QuestionGone(QuestionId),
    /// A walk over its tools has ended.
    Tools(Result<Listed, UpstreamError>),
    /// A topic of [`Upstream::set_subscriptions`](super::Upstream::set_subscriptions) is subscribed to, or
    /// cannot be.
    Subscribed {
        topic: Topic,
        outcome: Result<(), UpstreamError>,
    },
    /// Another list has changed.
    ListChanged(ListKind),
    /// [`Upstream::state`] says something else now.
    StateChanged,
    /// It cannot be connected to.
    ConnectFailed(UpstreamError),
    /// It sends something else than messages of the conversation.
    Noise(Noise),
    /// Something else a person should know of.
    Diagnostic(ServerDiagnostic),
}

/// Things that came and are no messages of the conversation.
#[derive(Debug)]
pub(in crate::manager) struct Noise {
    /// What is wrong with the first of them.
    pub(in crate::manager) why: String,
    /// How that begins.
    pub(in crate::manager) sample: Vec<u8>,
    /// How many there were.
    pub(in crate::manager) count: u64,
}

/// What a walk over the tools has found.
#[derive(Debug)]
pub(in crate::manager) struct Listed {
    /// The server's objects, in its order.
    pub(in crate::manager) entries: Vec<Box<str>>,
    /// Arguments of calls travel in headers too.
    pub(in crate::manager) mirrored: bool,
}

/// What an upstream borrows from its manager while it handles one input.
pub(in crate::manager) struct Turn<'a> {
    pub(in crate::manager) now: Now,
    pub(in crate::manager) wires: &'a mut WireMint,
    pub(in crate::manager) ids: &'a mut UpstreamRequestId,
    pub(in crate::manager) entropy: &'a mut dyn Entropy,
}

impl Turn<'_> {
    pub(super) fn mint(&mut self) -> UpstreamRequestId {
        self.mint_many(1)
    }

    /// The first of so many ids in a row.
    pub(super) fn mint_many(&mut self, count: u64) -> UpstreamRequestId {
        let first = *self.ids;
        *self.ids = UpstreamRequestId(first.0 + count);
        first
    }
}

/// Who we say we are.
#[derive(Clone, Debug)]
pub(in crate::manager) struct Face {
    /// Raw `Implementation` object.
    pub(in crate::manager) identity: String,
    /// Raw `ClientCapabilities` object.
    pub(in crate::manager) capabilities: String,
}
