//! What a manager tells its owner.

use super::diagnostic::ServerDiagnostic;
use super::error::UpstreamError;
use super::server_config::ServerKey;
use crate::codec::shared_text::SharedText;
use crate::ids::{QuestionId, RuntimeId, TicketId};
use crate::protocol::client::peer::ListKind;
use crate::protocol::topic::Topic;

/// What a manager tells its owner.
#[derive(Debug)]
pub enum ManagerOutput {
    /// The one answer to a ticket: the raw result; for a list, the array of all its entries.
    Answer {
        /// Whose.
        ticket: TicketId,
        /// What came of it.
        outcome: Result<SharedText, Box<UpstreamError>>,
    },
    /// Progress of a ticket that asked for it: raw params of the notification, with the caller's token
    /// where it had given one.
    Progress {
        /// Whose.
        ticket: TicketId,
        /// Raw params.
        params: Box<str>,
    },
    /// A notification of a server: a log message, an updated resource, or anything we do not know.
    Notification {
        /// In which runtime.
        runtime: RuntimeId,
        /// Of which server.
        server: ServerKey,
        /// Its method.
        method: Box<str>,
        /// Its params, raw.
        params: Option<Box<str>>,
        /// For which piece of work, when it came on its stream.
        ticket: Option<TicketId>,
    },
    /// A server asks for sampling, elicitation or roots; answer by [`Manager::answer`](super::Manager::answer).
    Question {
        /// To answer with.
        id: QuestionId,
        /// In which runtime.
        runtime: RuntimeId,
        /// Of which server.
        server: ServerKey,
        /// `sampling/createMessage`, `elicitation/create`, `roots/list`.
        method: Box<str>,
        /// Its params, raw.
        params: Option<Box<str>>,
        /// For which piece of work, when that is known.
        ticket: Option<TicketId>,
    },
    /// The server no longer wants to know.
    QuestionGone(QuestionId),
    /// The tools of a runtime are others now.
    CatalogChanged(RuntimeId),
    /// A topic of [`Manager::set_subscriptions`](super::Manager::set_subscriptions) is subscribed to, or
    /// cannot be: then it is not among them any more.
    Subscribed {
        /// In which runtime.
        runtime: RuntimeId,
        /// Of which server.
        server: ServerKey,
        /// Which.
        topic: Topic,
        /// Why not.
        outcome: Result<(), Box<UpstreamError>>,
    },
    /// A list of a server has changed: of resources or prompts, or of tools that are
    /// [left](super::Manager::leave_tools).
    ListChanged {
        /// In which runtime.
        runtime: RuntimeId,
        /// Of which server.
        server: ServerKey,
        /// Which list.
        list: ListKind,
    },
    /// A server is in another state now.
    StateChanged {
        /// In which runtime.
        runtime: RuntimeId,
        /// Which server.
        server: ServerKey,
    },
    /// Something a person should know of.
    Diagnostic {
        /// In which runtime.
        runtime: RuntimeId,
        /// What.
        diagnostic: ServerDiagnostic,
    },
}
