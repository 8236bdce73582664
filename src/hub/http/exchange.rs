//! One exchange: a request of a client and all that is known of its answer, from its head until the answer
//! is complete or given up.

use super::awaited::Awaited;
use super::sessions::{Carrier, McpSessionId, StreamId};
use crate::codec::shared_text::SharedText;
use crate::ids::{Key, PeerId, WireId};
use crate::link::http_rules::{Accepts, Principal};
use crate::link::http_server::{ExchangeId, HttpHead};
use crate::protocol::server::Scope;

/// One exchange of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::hub) struct ExchangeRef {
    pub(super) wire: WireId,
    pub(super) id: ExchangeId,
}

/// What an exchange is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// One message to `/mcp`.
    Post,
    /// One message to `/messages`, for the session with this stream.
    LegacyPost(PeerId),
    /// A stream that answers nothing: the session's own, or one that is resumed.
    Stream,
}

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) purpose: Purpose,
    pub(super) head: Option<Box<HttpHead>>,
    /// Its message, while requests of it wait for an answer.
    pub(super) message: Option<SharedText>,
    pub(super) principal: Principal,
    pub(super) accepts: Accepts,
    /// The peer that serves it, once that is known.
    pub(super) peer: Option<PeerId>,
    /// Requests of it that wait for an answer.
    pub(super) open: Awaited,
    /// Its stream in the session, where its events can be resumed.
    pub(super) stream: Option<StreamId>,
    /// The stream has begun.
    pub(super) sse: bool,
    /// The client is gone; what is written goes to the session's store, or nowhere.
    pub(super) gone: bool,
    /// The session that its answer announces.
    pub(super) announces: Option<McpSessionId>,
}

impl ExchangeRef {
    /// As the session store names it.
    pub(super) const fn carrier(self) -> Carrier {
        Carrier((self.wire.0 as u64) << 32 | self.id.0 as u64)
    }

    pub(super) const fn of_carrier(Carrier(number): Carrier) -> Self {
        Self {
            wire: WireId((number >> 32) as u32),
            id: ExchangeId(number as u32),
        }
    }

    /// Stateless exchanges share a peer; their ids do not meet.
    pub(super) fn scope(self) -> Scope {
        Scope(1 + (u64::from(self.wire.0) << 32 | u64::from(self.id.0)))
    }
}

impl Key for ExchangeRef {
    fn number(self) -> u64 {
        let Carrier(number) = self.carrier();
        number
    }
}

impl Exchange {
    pub(super) fn new(purpose: Purpose, principal: Principal, accepts: Accepts) -> Self {
        Self {
            purpose,
            head: None,
            message: None,
            principal,
            accepts,
            peer: None,
            open: Awaited::default(),
            stream: None,
            sse: false,
            gone: false,
            announces: None,
        }
    }

    /// Whether its answer may still become a stream by itself.
    pub(super) fn may_start(&self) -> bool {
        let may = !self.sse && !self.gone && !self.open.is_empty() && self.accepts.sse;
        // The head of a handshake names a session, which there may not be in the end.
        may && self.announces.is_none()
    }

    /// Whether someone listens to its stream.
    pub(super) const fn streams(&self) -> bool {
        self.sse && !self.gone
    }
}
