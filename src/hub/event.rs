//! What the embedding program is told.

use crate::diagnostic::Diagnostic;
use crate::gateway::identity::StoredToken;
use crate::gateway::session::Refusal;
use crate::ids::{CallId, PeerId};
use crate::local::LocalRequest;

/// What the embedding program is told.
#[derive(Debug)]
pub enum HubEvent {
    /// A call waits for a verdict: answer by [`Hub::resolve_gate`](super::Hub::resolve_gate). One that waits
    /// for a person is among [`Hub::held_calls`](super::Hub::held_calls), too, and somebody else may answer
    /// it first.
    GateAsked {
        /// The call.
        call: CallId,
        /// Heading.
        title: String,
        /// Text below it.
        description: String,
    },
    /// A request for the embedding program: answer by [`Hub::resolve_local`](super::Hub::resolve_local).
    Local(LocalRequest),
    /// Nobody wants the answer of this call any more.
    LocalCancelled(CallId),
    /// A client told something that is no answer: `notifications/roots/list_changed`, progress of what it was
    /// asked, or whatever else it calls so. What the protocol itself needs (`initialized`, `cancelled`) is seen
    /// to and not told.
    ClientNotification {
        /// Which client, as in [`crate::local::Context::client`].
        client: PeerId,
        /// The method.
        method: String,
        /// `params`, a raw object from outside.
        params: Option<Box<str>>,
    },
    /// One line for the person who runs us.
    Diagnostic(Diagnostic),
    /// One frame crossed the Gateway wire; only with [`HubConfig::tap`](super::HubConfig::tap).
    GatewayFrame {
        /// Whether it came from the Gateway.
        received: bool,
        /// The frame as it is: the first ones hold credentials.
        text: String,
    },
    /// An address cannot be listened on, or not any more. The other doors stay open: the program decides
    /// whether it goes on, and tells the person who runs it.
    ListenFailed {
        /// What the system said.
        message: String,
    },
    /// The Gateway gave us a device token to keep.
    StoreToken(StoredToken),
    /// The kept device token is no good any more.
    ForgetToken,
    /// Everything is answered and flushed; the program may end.
    Finished(Outcome),
}

/// How the hub's work ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client ended its input, or went away.
    ClientDone,
    /// Our own input or output failed (a full disk, say); a diagnostic told how.
    ClientFailed,
    /// [`Hub::shutdown`](super::Hub::shutdown) was called.
    Stopped,
    /// The Gateway refused us at the start.
    Refused(Refusal),
}
