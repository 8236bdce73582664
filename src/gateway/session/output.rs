//! What a session is made from and what it wants done.

use std::fmt;

use serde_json::value::RawValue;

use crate::diagnostic::Diagnostic;
use crate::gateway::connect::Refusal;
use crate::gateway::endpoint::Credentials;
use crate::gateway::identity::{DeviceIdentity, StoredToken};
use crate::gateway::requests::GatewayError;
use crate::ids::GatewayRequestId;
use crate::limits::Limits;

/// Events that are handed on. Everything else a Gateway tells (ticks, health, presence, chat, agent
/// runs) is dropped unread; a busy agent makes far more of that, and it cannot be unsubscribed.
/// Source: OpenClaw 2026.6.11, events the bridge consumes.
pub const BRIDGE_EVENTS: [&str; 5] = [
    "session.message",
    "exec.approval.requested",
    "exec.approval.resolved",
    "plugin.approval.requested",
    "plugin.approval.resolved",
];

/// What a session is made from.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The Gateway's address as it may be shown.
    pub url_for_log: String,
    /// Whether that address is this machine. Only there may the device token be shown beside a
    /// given token that was refused.
    pub loopback: bool,
    /// The device we are.
    pub identity: DeviceIdentity,
    /// What the person gave.
    pub credentials: Credentials,
    /// What the Gateway gave this device earlier.
    pub stored_token: Option<StoredToken>,
    /// Node's name for this platform, see [`PLATFORM`](crate::gateway::identity::PLATFORM).
    pub platform: &'static str,
    /// The limits in force.
    pub limits: Limits,
}

/// What a session wants done, in order.
#[derive(Clone)]
pub enum SessionOutput {
    /// Open a new wire, the old one being gone. Ends in
    /// [`handle_up`](super::GatewaySession::handle_up) or
    /// [`handle_closed`](super::GatewaySession::handle_closed).
    Open,
    /// Send this text frame.
    Send(String),
    /// Close the wire with a close frame, if it is still there. Ends in
    /// [`handle_closed`](super::GatewaySession::handle_closed).
    Close {
        /// Close code; `None` for a frame without one.
        code: Option<u16>,
        /// Reason beside it.
        reason: String,
    },
    /// Let go of the wire at once. [`handle_closed`](super::GatewaySession::handle_closed) may be
    /// called or not.
    Abort,
    /// Messages up to `gateway_message_bytes_max` may come from now on.
    HelloAccepted,
    /// Requests are welcome and events come.
    Ready {
        /// For the first time.
        first: bool,
    },
    /// No longer [ready](SessionOutput::Ready). Events may have been missed until the next one.
    Lost {
        /// Why.
        why: String,
        /// Wait until the next try, in milliseconds.
        retry_in_ms: u64,
    },
    /// The Gateway does not let us in and never did: nothing more will happen. Exit code 3.
    Refused(Refusal),
    /// The one answer to a request.
    Response {
        /// As [`request`](super::GatewaySession::request) gave it.
        id: GatewayRequestId,
        /// The payload (`null` when there was none), or why there is none.
        outcome: Result<Box<RawValue>, GatewayError>,
    },
    /// One of [`BRIDGE_EVENTS`].
    Event {
        /// Its name.
        name: String,
        /// Its payload, unread; `None` when absent or `null`.
        payload: Option<Box<RawValue>>,
    },
    /// Keep this for the next start.
    StoreToken(StoredToken),
    /// The token of the identity files is no longer good: remove it.
    ForgetToken,
    /// Tell the person.
    Diagnostic(Diagnostic),
}

impl fmt::Debug for SessionOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("Open"),
            // A connect request has the token in it.
            Self::Send(text) => write!(f, "Send({} bytes)", text.len()),
            Self::Close { code, reason } => write!(f, "Close({code:?}, {reason:?})"),
            Self::Abort => f.write_str("Abort"),
            Self::HelloAccepted => f.write_str("HelloAccepted"),
            Self::Ready { first } => write!(f, "Ready(first: {first})"),
            Self::Lost { why, retry_in_ms } => write!(f, "Lost({why:?}, {retry_in_ms} ms)"),
            Self::Refused(refusal) => write!(f, "Refused({refusal:?})"),
            Self::Response { id, outcome } => write!(f, "Response({id}, {outcome:?})"),
            Self::Event { name, .. } => write!(f, "Event({name:?})"),
            Self::StoreToken(token) => write!(f, "StoreToken({token:?})"),
            Self::ForgetToken => f.write_str("ForgetToken"),
            Self::Diagnostic(diagnostic) => write!(f, "Diagnostic({diagnostic:?})"),
        }
    }
}

/// What happened so far, for status output and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    /// Frames that were not understood.
    pub malformed_frames: u64,
    /// Answers to requests that were no longer open.
    pub late_answers: u64,
    /// Events nobody asked for.
    pub dropped_events: u64,
    /// Times the session became ready.
    pub times_ready: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_not_printed() {
        let output = SessionOutput::Send(r#"{"auth":{"token":"hunter2"}}"#.to_owned());
        assert_eq!(format!("{output:?}"), "Send(28 bytes)");
    }
}
