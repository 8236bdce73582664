//! The beginning of a conversation: what a client is told of the server, at once or after the server was met.
//!
//! | the peer's server | input                          | what happens                                        |
//! |-------------------|--------------------------------|-----------------------------------------------------|
//! | known             | `initialize`                   | answered                                            |
//! | known             | `server/discover`              | answered                                            |
//! | yet to be met     | either, `subscriptions/listen` | [`ServerEvent::Opens`]                              |
//! | yet to be met     | `notifications/initialized`    | kept until the handshake is answered                |
//! | yet to be met     | [`ServerPeer::introduce`]      | known; that request is answered                     |
//! | yet to be met     | [`ServerPeer::refuse_opening`] | an error; as if nothing had been asked              |
//! | known             | [`ServerPeer::set_server`]     | known as another; nobody is told                    |
//!
//! Whatever else is asked meanwhile is served as ever: it does not wait for the handshake here.
//!
//! Source: Spec 2025-11-25 basic/lifecycle, 2026-07-28 server/discover.

use std::sync::Arc;

use super::modern::ModernResult;
use super::own::Own;
use super::{Facts, RequestKey, Served, ServerConfig, ServerEvent, ServerPeer};
use crate::codec::jsonrpc;
use crate::codec::scan::Text;
use crate::codec::shared_text::SharedText;
use crate::protocol::error::RpcError;
use crate::protocol::message::{member, string_member};
use crate::protocol::revision::Revision;
use crate::protocol::{Lane, MessageSink};
use crate::secret::Quoted;

impl ServerPeer {
    pub(super) fn initialize(&mut self, facts: Facts<'_>) -> Result<Served, RpcError> {
        let params = facts.envelope.params;
        let asked = params.and_then(|params| member(params, "protocolVersion"));
        let asked = string_member("protocolVersion", asked)?;
        let revision = Revision::negotiate(&asked);
        self.negotiated = Some(revision);
        let object = |name| {
            let value = params.and_then(|params| member(params, name));
            value.filter(|raw| raw.starts_with('{'))
        };
        self.client_capabilities = object("capabilities").map(SharedText::from);
        self.client = object("clientInfo")
            .and_then(|info| member(info, "name"))
            .and_then(Text::of_value)
            .map(|name| Quoted(&name.decode()).to_string().into())
            .unwrap_or_default();
        if !self.config.awaits_introduction {
            return Ok(Served::Now(self.handshake(revision).into()));
        }
        self.check_room(facts.scope)?;
        let key = self.remember(facts, revision, None, None);
        self.opening = Some((key, false));
        self.events.push_back(ServerEvent::Opens(key));
        Ok(Served::Later)
    }

    /// The result of `initialize`.
    fn handshake(&self, revision: Revision) -> String {
        let mut result = format!(
            r#"{{"protocolVersion":"{revision}","capabilities":{},"serverInfo":{}"#,
            self.config.capabilities, self.config.server_info
        );
        self.append_instructions(&mut result);
        result.push('}');
        result
    }

    /// The result of `server/discover`.
    pub(super) fn discovery(&self) -> String {
        let mut result = String::from(r#"{"supportedVersions":["#);
        for (i, revision) in Revision::NEWEST_FIRST.into_iter().enumerate() {
            let separator = if i == 0 { "" } else { "," };
            result.push_str(&format!(r#"{separator}"{revision}""#));
        }
        result.push_str(r#"],"capabilities":"#);
        result.push_str(&self.config.modern_capabilities);
        self.append_instructions(&mut result);
        result.push('}');
        result
    }

    fn append_instructions(&self, result: &mut String) {
        if let Some(instructions) = &self.config.instructions {
            result.push_str(r#","instructions":"#);
            result.push_str(instructions);
        }
    }

    /// The server is known by now, as `config` says: answers the request of a [`ServerEvent::Opens`]. A key
    /// that is gone is ignored, but for what is known of the server.
    pub fn introduce(
        &mut self,
        key: RequestKey,
        config: Arc<ServerConfig>,
        sink: &mut dyn MessageSink,
    ) {
        self.config = config;
        let Some(at) = self.open.iter().position(|open| open.key == key) else {
            return;
        };
        if self.open[at].listening.is_some() {
            return self.narrow_listening(key, sink);
        }
        let open = self.open.swap_remove(at);
        if open.revision.is_stateless() {
            let result = self.discovery();
            let result = ModernResult {
                kind: "complete",
                result: &result,
                own: Own::of(&result),
                ttl_ms: Some(self.config.cache_ttl_ms),
            };
            return self.emit_modern(Lane::Answer(key), open.id.raw(), result, sink);
        }
        let result = self.handshake(open.revision);
        self.emit(&open, sink, |out| {
            jsonrpc::write_result(out, open.id.raw(), &result);
        });
        if let Some((_, true)) = self.opening.take_if(|(of, _)| *of == key) {
            self.handle_initialized(sink);
        }
    }

    /// The server cannot be met: answers the request of a [`ServerEvent::Opens`] with an error. A handshake
    /// that fails so has not happened.
    pub fn refuse_opening(
        &mut self,
        key: RequestKey,
        error: &RpcError,
        sink: &mut dyn MessageSink,
    ) {
        if self.opening.take_if(|(of, _)| *of == key).is_some() {
            self.negotiated = None;
        }
        self.respond(key, super::Answer::Error(error), sink);
    }

    /// The server is another than it was, or is known without anybody having asked. Who is connected is told
    /// nothing by this.
    pub fn set_server(&mut self, config: Arc<ServerConfig>) {
        self.config = config;
    }

    /// What is known of the server.
    #[must_use]
    pub const fn server(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// The client has finished its handshake: what was held leaves, in order.
    pub(super) fn handle_initialized(&mut self, sink: &mut dyn MessageSink) {
        if let Some((_, early)) = &mut self.opening {
            *early = true;
            return;
        }
        self.initialized = true;
        for (method, params) in std::mem::take(&mut self.held) {
            jsonrpc::write_notification(sink.begin(Lane::Session), &method, params.as_deref());
            sink.commit();
        }
    }
}
