//! What a program that runs the embedded Gateway can show a person.

use super::journal::{ApprovalKind, Decision};
use crate::secret::Quoted;

/// Something that happened. `Display` gives one line, untrusted text escaped and cut.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmbeddedEvent {
    /// The address cannot be listened on.
    ListenFailed {
        /// What the system said.
        message: String,
    },
    /// A client was let in.
    ClientConnected {
        /// Its name.
        name: String,
        /// Its device id.
        device: String,
        /// Its address.
        peer: String,
    },
    /// A client was not let in.
    ClientRefused {
        /// Its address.
        peer: String,
        /// Why.
        why: String,
    },
    /// A client that was let in is gone.
    ClientGone {
        /// Its address.
        peer: String,
        /// Why.
        why: String,
    },
    /// A message was added to a conversation.
    MessagePosted {
        /// Its conversation.
        session_key: String,
        /// Who said it.
        role: String,
        /// How it begins.
        text: String,
    },
    /// Somebody must decide.
    ApprovalRequested {
        /// Which kind.
        kind: ApprovalKind,
        /// Its id.
        id: String,
    },
    /// Somebody decided.
    ApprovalResolved {
        /// Which kind.
        kind: ApprovalKind,
        /// Its id.
        id: String,
        /// What was decided.
        decision: Decision,
        /// Who decided.
        by: Option<String>,
    },
    /// Nobody decided in time.
    ApprovalExpired {
        /// Which kind.
        kind: ApprovalKind,
        /// Its id.
        id: String,
    },
    /// The journal cannot be written: every change is refused until the Gateway is started again.
    StoreFailed {
        /// What the system said.
        message: String,
    },
}

impl std::fmt::Display for EmbeddedEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind_name = |kind: &ApprovalKind| match kind {
            ApprovalKind::Exec => "exec",
            ApprovalKind::Plugin => "plugin",
        };
        match self {
            Self::ListenFailed { message } => f.write_str(message),
            Self::ClientConnected { name, device, peer } => {
                let device = device.get(..12).unwrap_or(device);
                write!(
                    f,
                    "client connected: {} (device {device}, {peer})",
                    Quoted(name)
                )
            }
            Self::ClientRefused { peer, why } => {
                write!(f, "client refused: {peer}: {}", Quoted(why))
            }
            Self::ClientGone { peer, why } => write!(f, "client gone: {peer}: {}", Quoted(why)),
            Self::MessagePosted {
                session_key,
                role,
                text,
            } => write!(
                f,
                "message in {} from {}: {}",
                Quoted(session_key),
                Quoted(role),
                Quoted(text)
            ),
            Self::ApprovalRequested { kind, id } => {
                write!(f, "{} approval requested: {}", kind_name(kind), Quoted(id))
            }
            Self::ApprovalResolved {
                kind,
                id,
                decision,
                by,
            } => {
                let (kind, decision) = (kind_name(kind), decision.as_str());
                write!(f, "{kind} approval resolved: {} {decision}", Quoted(id))?;
                match by {
                    Some(by) => write!(f, " by {}", Quoted(by)),
                    None => Ok(()),
                }
            }
            Self::ApprovalExpired { kind, id } => {
                write!(f, "{} approval expired: {}", kind_name(kind), Quoted(id))
            }
            Self::StoreFailed { message } => {
                write!(
                    f,
                    "the store cannot be written: {message}; changes are refused"
                )
            }
        }
    }
}
