//! How a WebSocket connection ends.

use std::fmt;

use crate::link::IoFault;
use crate::secret::Quoted;

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// We wanted it.
    Local,
    /// The peer sent a close frame.
    Peer {
        /// Its code, when it gave one.
        code: Option<u16>,
        /// Its reason; may be empty. Untrusted text.
        reason: String,
    },
    /// The peer broke the protocol: how.
    Violation(String),
    /// The upgrade was answered with another status than 101.
    Refused {
        /// The status.
        status: u16,
        /// The first bytes of the body. Untrusted text.
        body: String,
    },
    /// The wire could not be opened, broke, or ended without a close frame.
    Io(IoFault),
    /// A time limit passed.
    TimedOut {
        /// What did not happen in time.
        what: &'static str,
        /// The limit.
        limit_ms: u64,
    },
}

impl CloseReason {
    /// The close code as an application would be told it: 1005 for a close frame without a code,
    /// 1006 for a connection that ended without a close frame. RFC 6455 §7.1.5.
    #[must_use]
    pub const fn code(&self) -> Option<u16> {
        match self {
            Self::Peer { code: None, .. } => Some(1005),
            Self::Peer { code, .. } => *code,
            Self::Io(_) => Some(1006),
            Self::Local | Self::Violation(_) | Self::Refused { .. } | Self::TimedOut { .. } => None,
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed by us"),
            Self::Peer { code, reason } => {
                f.write_str("closed by the peer")?;
                if let Some(code) = code {
                    write!(f, " with code {code}")?;
                }
                if reason.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {}", Quoted(reason))
                }
            }
            Self::Violation(how) => f.write_str(how),
            Self::Refused { status, body } => {
                write!(f, "upgrade was answered with HTTP status {status}")?;
                if body.is_empty() {
                    Ok(())
                } else {
                    write!(f, ": {}", Quoted(body))
                }
            }
            Self::Io(fault) => f.write_str(&fault.message),
            Self::TimedOut { what, limit_ms } => write!(f, "{what} timed out after {limit_ms} ms"),
        }
    }
}

/// Too much waits to be sent: the peer does not read. The owner drops the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The limit in bytes (`gateway_out_bytes_max`).
    pub limit: usize,
    /// What would wait with this message, in bytes.
    pub value: usize,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, value } = self;
        write!(
            f,
            "peer is not reading: {value} bytes queued, limit {limit}"
        )
    }
}

impl std::error::Error for Full {}
