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
        let method = facts.method;
        if method.is("initialize") {
            if facts.batch.is_some() {
                return Err(RpcError::new(
                    ErrorCode::InvalidRequest,
                    "initialize cannot stand in a batch",
                ));
            }
            return self.initialize(facts);
        }
        if method.is("ping") {
            return Ok(EMPTY);
        }
        if method.is("logging/setLevel") {
            let level = facts.params.and_then(|params| member(params, "level"));
            let level = LogLevel::read(level)?;
            self.log_level = Some(level);
            self.events.push_back(ServerEvent::LogLevel(level));
            return Ok(EMPTY);
        }
        let subscribes = method.is("resources/subscribe");
        if self.config.resource_updates && (subscribes || method.is("resources/unsubscribe")) {
            let uri = uri_of(facts.params)?;
            if subscribes {
                self.check_subscription(&uri)?;
            }
            if self.config.relays_subscriptions {
                return self.relay_subscription(facts, uri.into_owned(), subscribes);
            }
            self.set_subscribed(&uri, subscribes);
            return Ok(EMPTY);
        }
        let revision = self.negotiated.unwrap_or(Revision::V2025_11_25);
        self.forward(facts, revision, None, sink)
    }
}

fn uri_of(params: Option<&str>) -> Result<Cow<'_, str>, RpcError> {
    string_member("uri", params.and_then(|params| member(params, "uri")))
}
