//! Requests to the Gateway that wait for their answer, and what can come instead of one.
//!
//! Each is answered once: by the Gateway, by its deadline or by the end of the connection.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::clock::{Deadline, Now, Uptime};
use crate::gateway::frame::ErrorBody;
use crate::ids::GatewayRequestId;
use crate::limits::Limits;

/// Why a request has no payload. What it displays is the text of the tool result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GatewayError {
    /// The Gateway refused it.
    Remote {
        /// Its code, `INVALID_REQUEST` for most things.
        code: String,
        /// Its own words, unescaped.
        message: String,
        /// Raw; often an object with a `reason`.
        details: Option<Box<RawValue>>,
    },
    /// There is no connection. It was not sent.
    NotConnected {
        /// Why not, and when the next try is.
        message: String,
    },
    /// The connection ended first. It may have been done.
    Closed {
        /// How it ended.
        message: String,
    },
    /// No answer in time. It may have been done.
    TimedOut {
        /// Which method.
        message: String,
    },
    /// Too many requests are open (`gateway_requests_max`). It was not sent.
    Busy {
        /// The limit.
        limit: usize,
        /// How many are open.
        open: usize,
    },
    /// The frame is longer than the Gateway takes (`policy.maxPayload` of its hello). It was not
    /// sent.
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
        /// Length of the frame, in bytes.
        bytes: usize,
    },
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote { message, .. }
            | Self::NotConnected { message }
            | Self::Closed { message }
            | Self::TimedOut { message } => f.write_str(message),
            Self::Busy { limit, open } => {
                write!(f, "gateway is busy: {open} requests open, limit {limit}")
            }
            Self::TooLarge { limit, bytes } => {
                write!(
                    f,
                    "request too large for the gateway: {bytes} bytes, limit {limit}"
                )
            }
        }
    }
}

impl std::error::Error for GatewayError {}

impl From<&ErrorBody<'_>> for GatewayError {
    fn from(error: &ErrorBody<'_>) -> Self {
        Self::Remote {
            code: error.code.clone().into_owned(),
            message: error.message.clone().into_owned(),
            details: error.details.map(ToOwned::to_owned),
        }
    }
}

/// The open requests, oldest first. Their ids and their deadlines rise together.
#[derive(Debug)]
pub(super) struct RequestTable {
    last_id: GatewayRequestId,
    open: BTreeMap<GatewayRequestId, OpenRequest>,
    open_max: usize,
    timeout: Duration,
}

#[derive(Debug)]
struct OpenRequest {
    method: String,
    until: Uptime,
}

impl RequestTable {
    pub(super) const fn new(limits: &Limits) -> Self {
        Self {
            last_id: GatewayRequestId(0),
            open: BTreeMap::new(),
            open_max: limits.gateway_requests_max,
            timeout: limits.gateway_request_timeout,
        }
    }

    /// The id of the next request.
    pub(super) const fn mint(&mut self) -> GatewayRequestId {
        self.last_id = self.last_id.next();
        self.last_id
    }

    /// Whether one more may be opened.
    pub(super) fn check_room(&self) -> Result<(), GatewayError> {
        let (limit, open) = (self.open_max, self.open.len());
        if open < limit {
            Ok(())
        } else {
            Err(GatewayError::Busy { limit, open })
        }
    }

    /// A request has been sent.
    pub(super) fn open(&mut self, now: Now, id: GatewayRequestId, method: &str) {
        let request = OpenRequest {
            method: method.to_owned(),
            until: now.after(self.timeout),
        };
        self.open.insert(id, request);
    }

    /// An answer to it came: whether it was still open.
    pub(super) fn close(&mut self, id: GatewayRequestId) -> bool {
        self.open.remove(&id).is_some()
    }

    /// Closes the next request that has waited long enough.
    pub(super) fn expire(&mut self, now: Now) -> Option<(GatewayRequestId, GatewayError)> {
        let first = self.open.first_entry()?;
        if first.get().until > now.up {
            return None;
        }
        let (id, OpenRequest { method, .. }) = first.remove_entry();
        let message = timeout_message(&method);
        Some((id, GatewayError::TimedOut { message }))
    }

    /// Closes all of them.
    pub(super) fn close_all(&mut self) -> impl Iterator<Item = GatewayRequestId> + use<> {
        std::mem::take(&mut self.open).into_keys()
    }

    /// When [`expire`](Self::expire) has something to do.
    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let (_, first) = self.open.first_key_value()?;
        Some(Deadline::new(first.until, "gateway request"))
    }
}

/// What is said when `method` was not answered in time. Source: OpenClaw 2026.6.11.
pub(super) fn timeout_message(method: &str) -> String {
    format!("gateway request timeout for {method}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: 0,
        }
    }

    fn table(timeout_ms: u64, open_max: usize) -> RequestTable {
        let limits = Limits {
            gateway_request_timeout: Duration::from_millis(timeout_ms),
            gateway_requests_max: open_max,
            ..Limits::default()
        };
        RequestTable::new(&limits)
    }

    #[test]
    fn requests_expire_in_order_at_their_time() {
        let mut table = table(100, 9);
        let (first, second) = (table.mint(), table.mint());
        table.open(at(0), first, "a");
        table.open(at(50), second, "b");
        assert_eq!(table.next_deadline().map(|d| d.at.as_millis()), Some(100));
        assert!(table.expire(at(99)).is_none());
        let (id, error) = table.expire(at(100)).expect("due");
        assert_eq!(id, first);
        assert_eq!(error.to_string(), "gateway request timeout for a");
        assert!(table.expire(at(100)).is_none());
        assert!(!table.close(first), "a late answer finds nothing");
        assert!(table.close(second));
        assert_eq!(table.next_deadline(), None);
    }

    #[test]
    fn one_more_than_the_limit_is_refused() {
        let mut table = table(100, 2);
        for _ in 0..2 {
            table.check_room().expect("room");
            let id = table.mint();
            table.open(at(0), id, "a");
        }
        let error = table.check_room().expect_err("full").to_string();
        assert_eq!(error, "gateway is busy: 2 requests open, limit 2");
        let closed: Vec<_> = table.close_all().collect();
        assert_eq!(closed, [GatewayRequestId(1), GatewayRequestId(2)]);
        table.check_room().expect("room again");
    }
}
