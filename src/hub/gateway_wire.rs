//! The wire below a Gateway session: at most one WebSocket connection at a time, and what its events mean
//! to the session.

use std::collections::VecDeque;

use crate::clock::{Deadline, Now};
use crate::codec::outbuf::OutBuf;
use crate::entropy::Entropy;
use crate::gateway::session::GatewaySession;
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::websocket::{CloseReason, ConnectSpec, Full, WebSocketLink, WsLinkEvent};
use crate::link::{IoEvent, IoRequest};

/// Where the Gateway is, and the connection to it while there is one.
#[derive(Debug)]
pub(super) struct GatewayWire {
    connect: ConnectSpec,
    limits: Limits,
    link: Option<WebSocketLink>,
    /// Requests of a connection that is gone.
    leftover: VecDeque<IoRequest>,
    last: Option<WireId>,
}

/// An event of the connection, to be told to the session.
pub(super) enum WireEvent {
    Up,
    Text(String),
    Closed { why: String, code: Option<u16> },
}

impl WireEvent {
    pub(super) fn tell(self, session: &mut GatewaySession, now: Now, entropy: &mut dyn Entropy) {
        match self {
            Self::Up => session.handle_up(now),
            Self::Text(text) => session.handle_text(now, &text, entropy),
            Self::Closed { why, code } => session.handle_closed(now, &why, code, entropy),
        }
    }
}

impl GatewayWire {
    pub(super) fn new(connect: ConnectSpec, limits: &Limits) -> Self {
        Self {
            connect,
            limits: limits.clone(),
            link: None,
            leftover: VecDeque::new(),
            last: None,
        }
    }

    /// The wire of the present connection, or else of the last one.
    pub(super) const fn id(&self) -> Option<WireId> {
        self.last
    }

    pub(super) const fn is_open(&self) -> bool {
        self.link.is_some()
    }

    pub(super) fn open(&mut self, wire: WireId, entropy: &mut dyn Entropy, now: Now) {
        self.drop_link();
        self.last = Some(wire);
        self.link = Some(WebSocketLink::client(
            wire,
            self.connect.clone(),
            &self.limits,
            entropy,
            now,
        ));
    }

    /// The Gateway has accepted us: from now on it may send long messages.
    pub(super) fn hello_accepted(&mut self) {
        if let Some(link) = &mut self.link {
            link.accept_messages_up_to(self.limits.gateway_message_bytes_max);
        }
    }

    pub(super) fn send_text(&mut self, text: &str) -> Result<(), Full> {
        self.link
            .as_mut()
            .map_or(Ok(()), |link| link.send_text(text))
    }

    pub(super) fn close(&mut self, now: Now, code: Option<u16>, reason: &str) {
        if let Some(link) = &mut self.link {
            link.close(now, code, reason);
        }
    }

    pub(super) fn abort(&mut self) {
        if let Some(link) = &mut self.link {
            link.abort();
        }
    }

    pub(super) fn handle_io(&mut self, now: Now, event: IoEvent<'_>) {
        if let Some(link) = &mut self.link {
            link.handle_io(now, event);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Now) {
        if let Some(link) = &mut self.link {
            link.handle_timeout(now);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        self.link.as_ref().and_then(WebSocketLink::next_deadline)
    }

    pub(super) fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        self.link
            .as_mut()
            .filter(|link| link.wire() == wire)
            .map(WebSocketLink::outgoing)
    }

    pub(super) fn poll_io(&mut self) -> Option<IoRequest> {
        self.leftover
            .pop_front()
            .or_else(|| self.link.as_mut().and_then(WebSocketLink::poll_io))
    }

    pub(super) fn poll_event(&mut self) -> Option<WireEvent> {
        Some(match self.link.as_mut()?.poll_event()? {
            WsLinkEvent::Up => WireEvent::Up,
            WsLinkEvent::Text(text) => WireEvent::Text(text),
            WsLinkEvent::Closed(reason) => {
                self.drop_link();
                let code = reason.code();
                let why = match reason {
                    CloseReason::Peer { reason, .. } => reason,
                    CloseReason::Local
                    | CloseReason::Violation(_)
                    | CloseReason::Refused { .. }
                    | CloseReason::Io(_)
                    | CloseReason::TimedOut { .. } => reason.to_string(),
                };
                WireEvent::Closed { why, code }
            }
        })
    }

    fn drop_link(&mut self) {
        if let Some(mut link) = self.link.take() {
            while let Some(request) = link.poll_io() {
                self.leftover.push_back(request);
            }
        }
    }
}
