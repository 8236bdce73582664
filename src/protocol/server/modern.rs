//! The stateless era: discovery, listen streams, what every request must and every result does carry.
//!
//! Source: Spec 2026-07-28 basic/index, server/discover, basic/patterns/subscriptions.

use super::{Changing, Open, Served, ServerPeer};
use crate::codec::json_text::write_string;
use crate::codec::jsonrpc::{self, RequestId};
use crate::codec::scan::{Envelope, Text};
use crate::protocol::MessageSink;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{
    LogLevel, META_CLIENT_CAPABILITIES, META_PROTOCOL_VERSION, META_SERVER_INFO,
    META_SUBSCRIPTION_ID, RequestMeta, member,
};
use crate::protocol::revision::Revision;
use crate::secret::Quoted;

/// Methods that 2026-07-28 no longer has. Spec: 2026-07-28 changelog.
pub(super) const REMOVED: [&str; 5] = [
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
];

impl ServerPeer {
    pub(super) fn modern_request(
        &mut self,
        id: &RequestId,
        method: Text<'_>,
        envelope: &Envelope<'_>,
        meta: RequestMeta<'_>,
        sink: &mut dyn MessageSink,
    ) -> Result<Served, RpcError> {
        let revision = check_modern_meta(meta)?;
        if method.is("server/discover") {
            return Ok(Served::Modern(
                self.discovery(),
                Some(self.config.cache_ttl_ms),
            ));
        }
        if method.is("subscriptions/listen") {
            return self.listen(id, revision, envelope.params, sink);
        }
        if REMOVED.iter().any(|removed| method.is(removed)) {
            let mut error = RpcError::method_not_found(&method.decode());
            error.message.push_str(&format!(" (removed in {revision})"));
            return Err(error);
        }
        // Logs of single requests are not sent, but a level that does not exist is an error.
        meta.log_level
            .map(|raw| LogLevel::read(Some(raw)))
            .transpose()?;
        self.forward(id, method, envelope, revision, meta, None)
    }

    pub(super) fn discovery(&self) -> String {
        let mut result = String::from(r#"{"supportedVersions":["#);
        for (i, revision) in Revision::NEWEST_FIRST.into_iter().enumerate() {
            if i > 0 {
                result.push(',');
            }
            result.push_str(&format!(r#""{revision}""#));
        }
        result.push_str(r#"],"capabilities":"#);
        result.push_str(&self.config.modern_capabilities);
        if let Some(instructions) = &self.config.instructions {
            result.push_str(r#","instructions":"#);
            write_string(&mut result, instructions);
        }
        result.push('}');
        result
    }

    pub(super) fn listen(
        &mut self,
        id: &RequestId,
        revision: Revision,
        params: Option<&str>,
        sink: &mut dyn MessageSink,
    ) -> Result<Served, RpcError> {
        let limit = self.config.limits.subscriptions_open_max;
        if self
            .open
            .iter()
            .filter(|open| open.listening.is_some())
            .count()
            >= limit
        {
            return Err(RpcError::new(
                ErrorCode::InternalError,
                format!("busy: {limit} listen streams are open, limit {limit}"),
            ));
        }
        let filter = params.and_then(|params| member(params, "notifications"));
        let Some(filter) = filter.filter(|raw| raw.starts_with('{')) else {
            return Err(RpcError::new(
                ErrorCode::InvalidParams,
                "params.notifications must be an object",
            ));
        };
        let wants = |name| member(filter, name) == Some("true");
        let asked = Changing {
            tools: wants("toolsListChanged") && self.config.changing.tools,
            prompts: wants("promptsListChanged") && self.config.changing.prompts,
            resources: wants("resourcesListChanged") && self.config.changing.resources,
        };
        self.remember(id, revision, RequestMeta::default(), None, Some(asked));
        let params = subscription_params(id, Some(asked));
        let out = sink.begin(Some(id));
        jsonrpc::write_notification(
            out,
            "notifications/subscriptions/acknowledged",
            Some(&params),
        );
        sink.commit();
        Ok(Served::Later)
    }

    /// Ends every listen stream from our side: says so by a cancellation and by the result.
    /// Spec: 2026-07-28 basic/patterns/subscriptions (graceful closure) and cancellation.
    pub fn end_subscriptions(&mut self, sink: &mut dyn MessageSink) {
        let (ending, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|open| open.listening.is_some());
        self.open = open;
        for Open { id, .. } in ending {
            let params = format!(
                r#"{{"requestId":{},"reason":"server is shutting down"}}"#,
                id.raw()
            );
            jsonrpc::write_notification(
                sink.begin(Some(&id)),
                "notifications/cancelled",
                Some(&params),
            );
            sink.commit();
            let result = format!(
                r#"{{"resultType":"complete","_meta":{{"{META_SUBSCRIPTION_ID}":{}}}}}"#,
                id.raw()
            );
            jsonrpc::write_result(sink.begin(Some(&id)), id.raw(), &result);
            sink.commit();
        }
    }

    pub(super) fn emit_modern(
        &self,
        id: &RequestId,
        result: &str,
        ttl_ms: Option<u64>,
        sink: &mut dyn MessageSink,
    ) {
        let inner = result
            .trim()
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or("")
            .trim();
        let mut whole = String::with_capacity(inner.len() + 160 + self.config.server_info.len());
        whole.push_str(r#"{"resultType":"complete","#);
        if !inner.is_empty() {
            whole.push_str(inner);
            whole.push(',');
        }
        if let Some(ttl_ms) = ttl_ms {
            whole.push_str(&format!(r#""ttlMs":{ttl_ms},"cacheScope":"private","#));
        }
        whole.push_str(&format!(
            r#""_meta":{{"{META_SERVER_INFO}":{}}}}}"#,
            self.config.server_info
        ));
        jsonrpc::write_result(sink.begin(Some(id)), id.raw(), &whole);
        sink.commit();
    }
}

fn check_modern_meta(meta: RequestMeta<'_>) -> Result<Revision, RpcError> {
    let missing = |key: &str| {
        RpcError::new(
            ErrorCode::InvalidParams,
            format!("params._meta[\"{key}\"] is missing"),
        )
    };
    let version = meta
        .protocol_version
        .ok_or_else(|| missing(META_PROTOCOL_VERSION))?;
    let Some(version) = Text::of_value(version) else {
        return Err(RpcError::new(
            ErrorCode::InvalidParams,
            format!(
                "params._meta[\"{META_PROTOCOL_VERSION}\"] must be a string (found {})",
                Quoted(version)
            ),
        ));
    };
    let version = version.decode();
    let revision = Revision::parse(&version)
        .filter(|revision| revision.is_stateless())
        .ok_or_else(|| RpcError::unsupported_version(&version))?;
    let capabilities = meta
        .client_capabilities
        .ok_or_else(|| missing(META_CLIENT_CAPABILITIES))?;
    if !capabilities.starts_with('{') {
        return Err(RpcError::new(
            ErrorCode::InvalidParams,
            format!(
                "params._meta[\"{META_CLIENT_CAPABILITIES}\"] must be an object (found {})",
                Quoted(capabilities)
            ),
        ));
    }
    Ok(revision)
}

pub(super) fn subscription_params(id: &RequestId, acknowledged: Option<Changing>) -> String {
    let mut params = format!(r#"{{"_meta":{{"{META_SUBSCRIPTION_ID}":{}}}"#, id.raw());
    if let Some(asked) = acknowledged {
        params.push_str(r#","notifications":{"#);
        let granted = [
            (asked.tools, "toolsListChanged"),
            (asked.prompts, "promptsListChanged"),
            (asked.resources, "resourcesListChanged"),
        ];
        let mut first = true;
        for (_, name) in granted.into_iter().filter(|(granted, _)| *granted) {
            if !first {
                params.push(',');
            }
            first = false;
            params.push_str(&format!(r#""{name}":true"#));
        }
        params.push('}');
    }
    params.push('}');
    params
}
