//! Why there is no new session or stream.

use std::fmt;
use std::time::Duration;

/// The shortest time that anybody is told to wait: the header counts in seconds, and 0 invites a loop.
pub(super) const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

/// Why there is no new session or stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(in crate::hub::http) enum SessionError {
    /// As many sessions as may be are open. HTTP 503 with `Retry-After`.
    SessionsFull {
        /// `sessions_max`.
        limit: usize,
        /// When one may have ended.
        retry_after: Duration,
    },
    /// As many streams as may be wait for their answer in this session. HTTP 503 with `Retry-After`.
    StreamsFull {
        /// `streams_per_session_max`.
        limit: usize,
    },
    /// This peer has no session, or has it no more.
    NoSession,
    /// This peer has a session already: a mistake of the caller.
    PeerTaken,
    /// The random source gave an id that is in use: it is broken.
    IdTaken,
}

impl SessionError {
    /// Value of `Retry-After`, whole seconds; `None` when waiting does not help.
    #[must_use]
    pub(in crate::hub::http) fn retry_after_s(&self) -> Option<u64> {
        let wait = match self {
            Self::SessionsFull { retry_after, .. } => *retry_after,
            Self::StreamsFull { .. } => RETRY_AFTER_MIN,
            Self::NoSession | Self::PeerTaken | Self::IdTaken => return None,
        };
        let up = u64::from(wait.subsec_nanos() > 0);
        Some(wait.as_secs().saturating_add(up))
    }
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = self.retry_after_s().unwrap_or_default();
        match self {
            Self::SessionsFull { limit, .. } => write!(
                f,
                "too many sessions: {limit} are open, limit {limit} (sessions_max); \
                 try again in {again} s"
            ),
            Self::StreamsFull { limit } => write!(
                f,
                "too many open streams: {limit} of this session wait for an answer, \
                 limit {limit} (streams_per_session_max); try again in {again} s"
            ),
            Self::NoSession => f.write_str("the session has ended"),
            Self::PeerTaken => f.write_str("the client has a session already"),
            Self::IdTaken => f.write_str("the random source repeats itself: session id in use"),
        }
    }
}

impl std::error::Error for SessionError {}
