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

/// Which session a request belongs to, and the lines that say so in each head: written when that changes.
#[derive(Debug, Default)]
pub(crate) struct SessionFields {
    id: Option<String>,
    revision: Option<Revision>,
    lines: Secret<Vec<u8>>,
}

impl SessionFields {
    /// Whether there is a session that has a name.
    pub(crate) const fn is_named(&self) -> bool {
        self.id.is_some()
    }

    /// The server has given the session this name.
    ///
    /// # Errors
    /// When it cannot stand in a head.
    pub(crate) fn name(&mut self, id: &str) -> Result<(), WriteError> {
        self.id = Some(id.to_owned());
        self.write()
    }

    /// This revision was agreed on.
    ///
    /// # Errors
    /// None that a revision gives rise to.
    pub(crate) fn agree(&mut self, revision: Revision) -> Result<(), WriteError> {
        if self.revision == Some(revision) {
            return Ok(());
        }
        self.revision = Some(revision);
        self.write()
    }

    fn write(&mut self) -> Result<(), WriteError> {
        let mut lines = Vec::new();
        if let Some(id) = &self.id {
            append_field(&mut lines, "Mcp-Session-Id", id)?;
        }
        if let Some(revision) = self.revision {
            append_field(&mut lines, "MCP-Protocol-Version", revision.as_str())?;
        }
        self.lines = Secret::new(lines);
        Ok(())
    }
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

    /// Appends everything of a POST behind its request line: fields, empty line, body. What is appended before
    /// an error is of no use.
    ///
    /// # Errors
    /// When the method or a parameter's name cannot stand in a head.
    pub(crate) fn post(
        &self,
        out: &mut Vec<u8>,
        message: &Outgoing,
        session: &SessionFields,
    ) -> Result<(), WriteError> {
        let (usual, lines) = (self.message.expose(), session.lines.expose());
        out.reserve(usual.len() + lines.len() + message.body.len() + 64);
        out.extend_from_slice(usual);
        match message.dialect {
            Dialect::Handshake => {}
            Dialect::Session(_) => out.extend_from_slice(lines),
            Dialect::Stateless(revision) => append_routing(out, &message.kind, revision)?,
        }
        if let OutgoingKind::Request { headers, .. } = &message.kind {
            let passed = headers.iter().filter(|(name, _)| !is_param(name));
            for (name, value) in passed.filter(|_| !self.traces_itself) {
                append_field(out, name, value)?;
            }
        }
        out.extend_from_slice(b"Content-Length: ");
        append_decimal(out, message.body.len() as u64);
        out.extend_from_slice(b"\r\n\r\n");
        out.extend_from_slice(&message.body);
        Ok(())
    }

    /// Appends everything of a GET behind its request line.
    ///
    /// # Errors
    /// When the event id cannot stand in a head.
    pub(crate) fn get(
        &self,
        out: &mut Vec<u8>,
        session: &SessionFields,
        last_event_id: Option<&str>,
    ) -> Result<(), WriteError> {
        out.extend_from_slice(self.common.expose());
        append_field(out, "Accept", "text/event-stream")?;
        out.extend_from_slice(session.lines.expose());
        if let Some(id) = last_event_id {
            append_field(out, "Last-Event-ID", id)?;
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }

    /// Appends everything of a DELETE behind its request line.
    pub(crate) fn delete(&self, out: &mut Vec<u8>, session: &SessionFields) {
        out.extend_from_slice(self.common.expose());
        out.extend_from_slice(session.lines.expose());
        out.extend_from_slice(b"\r\n");
    }
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
