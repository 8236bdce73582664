//! What a [`ClientPeer`](super::peer::ClientPeer) is given and what it tells.

use crate::codec::shared_text::SharedText;
use crate::protocol::message::member;
use std::time::Duration;

use super::fault::{CallFault, ConnectFault};
use super::{Carrier, Outgoing};
use crate::codec::scan::Text;
use crate::ids::{QuestionId, UpstreamRequestId};
use crate::limits::Limits;
use crate::protocol::revision::Revision;
use crate::protocol::topic::Topic;

/// Which revisions a conversation may be held in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// The newest that the server speaks too.
    #[default]
    Auto,
    /// One with a handshake.
    Legacy,
    /// A stateless one.
    Modern,
    /// This one, or none.
    Only(Revision),
}

/// What a conversation begins with.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Raw `Implementation` object: who we are.
    pub identity: String,
    /// Raw `ClientCapabilities` object: what we answer.
    pub capabilities: String,
    /// Which revisions may be spoken.
    pub choice: EraChoice,
    /// The revision of an earlier conversation with the same server. One with a handshake saves the probe, a
    /// stateless one gives it more time; both are taken back when they turn out wrong.
    pub known: Option<Revision>,
    /// What carries the messages.
    pub carrier: Carrier,
    /// How long `server/discover` may stay unanswered before `initialize` is tried.
    pub discover_timeout: Duration,
    /// The whole opening, from [`ClientPeer::new`](super::peer::ClientPeer::new) on: start, discovery and handshake.
    pub connect_timeout: Duration,
    /// The first of [`OWN_IDS`] request ids that only this peer may use: for discovery, handshake,
    /// subscriptions, and requests that are sent again with answers.
    pub first_own_id: UpstreamRequestId,
    /// The limits in force.
    pub limits: Limits,
}

/// How many request ids a peer may need in its life. Ids are to stay below 2^53, which many peers cannot
/// count beyond; that is room for 2^29 peers.
pub const OWN_IDS: u64 = 1 << 24;

/// What a server has said of itself. Raw JSON where not said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFacts {
    /// The revision of the conversation.
    pub revision: Revision,
    /// `capabilities`, an object.
    pub capabilities: Box<str>,
    /// `serverInfo`, an object.
    pub server_info: Option<Box<str>>,
    /// `instructions`, a string.
    pub instructions: Option<Box<str>>,
}

impl ServerFacts {
    /// Whether the server says that it tells of changes of this list.
    #[must_use]
    pub fn declares_changes(&self, list: ListKind) -> bool {
        let feature = member(&self.capabilities, list.feature());
        feature.and_then(|raw| member(raw, "listChanged")) == Some("true")
    }

    /// Whether the server says that it has a list of this kind.
    #[must_use]
    pub fn has(&self, list: ListKind) -> bool {
        member(&self.capabilities, list.feature()).is_some_and(|raw| raw.starts_with('{'))
    }
}

/// A list that a server keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ListKind {
    /// `tools/list`.
    Tools,
    /// `resources/list` and `resources/templates/list`.
    Resources,
    /// `prompts/list`.
    Prompts,
}

impl ListKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tools, Self::Resources, Self::Prompts];

    /// The member of the server's capabilities that speaks of it.
    pub(super) const fn feature(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Prompts => "prompts",
        }
    }

    pub(super) fn of_notification(method: Text<'_>) -> Option<Self> {
        let names = [
            "notifications/tools/list_changed",
            "notifications/resources/list_changed",
            "notifications/prompts/list_changed",
        ];
        let found = names.into_iter().zip(Self::ALL);
        found
            .into_iter()
            .find(|(name, _)| method.is(name))
            .map(|(_, kind)| kind)
    }
}

/// What the owner of a peer has to act on, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerOutput {
    /// To be handed to the link.
    Send(Outgoing),
    /// HTTP: nobody waits for this request any more; its stream can be closed, which cancels it in the
    /// stateless era.
    Forget(UpstreamRequestId),
    /// Requests can be made; [`ClientPeer::facts`](super::peer::ClientPeer::facts) are known.
    Ready,
    /// The conversation cannot begin. Instead of `Ready`; nothing but `Noise` comes after it.
    Failed(ConnectFault),
    /// The server may be one of the 2024-11-05 pair: to be tried with [`Carrier::Sse`] and a new peer. In
    /// place of `Failed`; why it comes says [`ClientPeer::refusal`](super::peer::ClientPeer::refusal).
    TryOlderPair,
    /// The one answer to a [`ClientPeer::request`](super::peer::ClientPeer::request).
    Response {
        /// The caller's id of the request.
        id: UpstreamRequestId,
        /// The raw result, an object.
        outcome: Result<SharedText, CallFault>,
    },
    /// How far a request is.
    Progress {
        /// The caller's id of the request.
        id: UpstreamRequestId,
        /// Raw, with the caller's own token, if it had one.
        params: Box<str>,
    },
    /// A notification that is not the protocol's own business.
    Notification {
        /// Its method.
        method: Box<str>,
        /// Its raw `params`.
        params: Option<Box<str>>,
        /// The request in whose service it is, where the carrier tells.
        on: Option<UpstreamRequestId>,
    },
    /// A list is not what it was.
    ListChanged(ListKind),
    /// A topic of [`ClientPeer::set_subscriptions`](super::peer::ClientPeer::set_subscriptions) is subscribed
    /// to from here on, or is not. Comes again when something may have been missed in between.
    Subscribed {
        /// Which.
        topic: Topic,
        /// Why not. The stateless era tries again by itself; what a server of the handshake revisions refuses
        /// is not among the subscriptions any more.
        outcome: Result<(), CallFault>,
    },
    /// The server wants to know something: to be answered by [`ClientPeer::answer`](super::peer::ClientPeer::answer).
    Question {
        /// For the answer. Unique within this peer.
        id: QuestionId,
        /// `sampling/createMessage`, `elicitation/create` or `roots/list`.
        method: Box<str>,
        /// Its raw `params`.
        params: Option<Box<str>>,
        /// The request in whose service it is, where that is known.
        on: Option<UpstreamRequestId>,
    },
    /// No answer is wanted any more.
    QuestionGone(QuestionId),
    /// The server asked for something that needs a capability which is not declared, and was refused. Told
    /// once for each method.
    Undeclared {
        /// What it asked for.
        method: &'static str,
    },
    /// Something came that has no place in the conversation. To be counted, never answered.
    Noise {
        /// What is wrong with it, one line.
        why: String,
        /// How it begins.
        sample: Vec<u8>,
    },
}

/// How much of a piece of noise is kept. Unit: bytes.
pub const SAMPLE_BYTES_MAX: usize = 200;
