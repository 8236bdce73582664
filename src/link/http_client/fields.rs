//! The fields of our requests. Every value gets into a head through
//! [`append_field`], and nowhere else.
//!
//! Source: Spec 2025-11-25 basic/transports (Sending Messages, Session Management, Protocol Version Header),
//! 2026-07-28 basic/transports/streamable-http (Request Headers, Value Encoding); reliability-security T18, T22.

use super::target::{HttpTarget, authority};
use crate::codec::http_body::append_decimal;
use crate::codec::http1::{WriteError, append_field};
use crate::link::http_rules::{TRACE_HEADERS, encode_value};
use crate::protocol::client::{Dialect, Outgoing, OutgoingKind};
use crate::protocol::revision::Revision;
use crate::secret::Secret;

/// Names that a configuration cannot set: they frame the message, choose its form, or say what the protocol
/// has them say.
const RESERVED: &[&str] = &[
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether a configured field of this name is left out of requests.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    RESERVED.contains(&lower.as_str()) || is_param(&lower) || lower.starts_with("proxy-")
}

/// Whether a header repeats an argument.
fn is_param(name: &str) -> bool {
    name.get(..10)
        .is_some_and(|start| start.eq_ignore_ascii_case("mcp-param-"))
}

/// Writes what follows the request line.
#[derive(Debug)]
pub(crate) struct FieldWriter {
    /// What all requests have in common, as lines. Holds secrets.
    common: Secret<Vec<u8>>,
    /// The same for messages, which say what they are and what they want.
    message: Secret<Vec<u8>>,
    /// A trace context is configured: no client's takes its place.
    traces_itself: bool,
}

/// Which session a request belongs to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SessionFields<'a> {
    pub(crate) id: Option<&'a str>,
    pub(crate) revision: Option<Revision>,
}

impl FieldWriter {
    /// # Errors
    /// When a configured name or value cannot stand in a head.
    pub(crate) fn new(target: &HttpTarget) -> Result<Self, WriteError> {
        let mut common = Vec::new();
        append_field(&mut common, "Host", &authority(&target.url))?;
        append_field(&mut common, "Accept-Encoding", "identity")?;
        let mut own_agent = true;
        let mut traces_itself = false;
        for (name, value) in &target.headers {
            if is_reserved(name) {
                log::debug!("configured header {name} is ours to set and left out");
                continue;
            }
            traces_itself |= TRACE_HEADERS
                .iter()
                .any(|trace| name.eq_ignore_ascii_case(trace));
            own_agent &= !name.eq_ignore_ascii_case("user-agent");
            append_field(&mut common, name, value.expose())?;
        }
        if own_agent {
            let agent = concat!("drawspan/", env!("CARGO_PKG_VERSION"));
            append_field(&mut common, "User-Agent", agent)?;
        }
        let mut message = common.clone();
        append_field(
            &mut message,
            "Accept",
            "application/json, text/event-stream",
        )?;
        append_field(&mut message, "Content-Type", "application/json")?;
        Ok(Self {
            common: Secret::new(common),
            message: Secret::new(message),
            traces_itself,
        })
    }

    /// Everything of a POST behind its request line: fields, empty line, body.
    ///
    /// # Errors
    /// When the method, a parameter's name or the session id cannot stand in a head.
    pub(crate) fn post(
        &self,
        message: &Outgoing,
        session: SessionFields<'_>,
    ) -> Result<Vec<u8>, WriteError> {
        let usual = self.message.expose();
        let id = session.id.map_or(0, str::len);
        let mut out = Vec::with_capacity(usual.len() + message.body.len() + id + 256);
        out.extend_from_slice(usual);
        match message.dialect {
            Dialect::Handshake => {}
            Dialect::Session(revision) => {
                let revision = Some(revision);
                append_session(
                    &mut out,
                    SessionFields {
                        revision,
                        ..session
                    },
                )?;
            }
            Dialect::Stateless(revision) => append_routing(&mut out, &message.kind, revision)?,
        }
        if let OutgoingKind::Request { headers, .. } = &message.kind {
            let passed = headers.iter().filter(|(name, _)| !is_param(name));
            for (name, value) in passed.filter(|_| !self.traces_itself) {
                append_field(&mut out, name, value)?;
            }
        }
        out.extend_from_slice(b"Content-Length: ");
        append_decimal(&mut out, message.body.len() as u64);
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(&message.body);
        Ok(out)
    }

    /// Everything of a GET behind its request line.
    ///
    /// # Errors
    /// When the event id or the session id cannot stand in a head.
    pub(crate) fn get(
        &self,
        session: SessionFields<'_>,
        last_event_id: Option<&str>,
    ) -> Result<Vec<u8>, WriteError> {
        let mut out = self.common.expose().clone();
        append_field(&mut out, "Accept", "text/event-stream")?;
        append_session(&mut out, session)?;
        if let Some(id) = last_event_id {
            append_field(&mut out, "Last-Event-ID", id)?;
        }
        out.extend_from_slice(b"\r\n");
        Ok(out)
    }

    /// Everything of a DELETE behind its request line.
    ///
    /// # Errors
    /// When the session id cannot stand in a head.
    pub(crate) fn delete(&self, session: SessionFields<'_>) -> Result<Vec<u8>, WriteError> {
        let mut out = self.common.expose().clone();
        append_session(&mut out, session)?;
        out.extend_from_slice(b"\r\n");
        Ok(out)
    }
}

fn append_session(out: &mut Vec<u8>, session: SessionFields<'_>) -> Result<(), WriteError> {
    if let Some(id) = session.id {
        append_field(out, "Mcp-Session-Id", id)?;
    }
    if let Some(revision) = session.revision {
        append_field(out, "MCP-Protocol-Version", revision.as_str())?;
    }
    Ok(())
}

fn append_routing(
    out: &mut Vec<u8>,
    kind: &OutgoingKind,
    revision: Revision,
) -> Result<(), WriteError> {
    append_field(out, "MCP-Protocol-Version", revision.as_str())?;
    match kind {
        OutgoingKind::Request {
            method,
            name,
            headers,
            ..
        } => {
            append_field(out, "Mcp-Method", method)?;
            if let Some(name) = name {
                append_field(out, "Mcp-Name", &encode_value(name))?;
            }
            for (name, value) in headers.iter().filter(|(name, _)| is_param(name)) {
                append_field(out, name, &encode_value(value))?;
            }
            Ok(())
        }
        OutgoingKind::Notification { method } => append_field(out, "Mcp-Method", method),
        OutgoingKind::Answer => Ok(()),
    }
}
