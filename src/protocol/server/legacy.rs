//! Requests of the handshake era that the protocol answers itself; all others are somebody's behind the peer.

use std::borrow::Cow;

use super::{Facts, Served, ServerEvent, ServerPeer};
use crate::protocol::MessageSink;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{LogLevel, member, string_member};
use crate::protocol::revision::Revision;

impl ServerPeer {
    /// Serves a request of a session, or of a client that has not said which revision it speaks.
    pub(super) fn legacy_request(
        &mut self,
        facts: Facts<'_>,
        sink: &mut dyn MessageSink,
    ) -> Result<Served, RpcError> {
        const EMPTY: Served = Served::Now(Cow::Borrowed("{}"));
        let params = facts.envelope.params;
        match facts.method {
            "initialize" if facts.batch.is_some() => Err(RpcError::new(
                ErrorCode::InvalidRequest,
                "initialize cannot stand in a batch",
            )),
            "initialize" => self.initialize(facts),
            "ping" => Ok(EMPTY),
            "logging/setLevel" if !self.config.relays_log_level => {
                let level = params.and_then(|params| member(params, "level"));
                let level = LogLevel::read(level)?;
                self.log_level = Some(level);
                self.events.push_back(ServerEvent::LogLevel(level));
                Ok(EMPTY)
            }
            "resources/subscribe" | "resources/unsubscribe" if self.config.resource_updates => {
                let on = facts.method == "resources/subscribe";
                let uri = uri_of(params)?;
                if on {
                    self.check_subscription(&uri)?;
                }
                if self.config.relays_subscriptions {
                    return self.relay_subscription(facts, uri.into_owned(), on);
                }
                self.set_subscribed(&uri, on);
                Ok(EMPTY)
            }
            _ => {
                let revision = self.negotiated.unwrap_or(Revision::V2025_11_25);
                self.forward(facts, revision, None, sink)
            }
        }
    }
}

fn uri_of(params: Option<&str>) -> Result<Cow<'_, str>, RpcError> {
    string_member("uri", params.and_then(|params| member(params, "uri")))
}
