//! JSON-RPC errors and the codes the specification gives them.

/// Codes of JSON-RPC and of the Model Context Protocol.
/// Source: JSON-RPC 2.0 §5.1; Spec: 2026-07-28 basic/index (error codes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// Not JSON.
    ParseError,
    /// JSON, but no message, or one that may not come here.
    InvalidRequest,
    /// Unknown or removed method.
    MethodNotFound,
    /// Bad parameters; also unknown tool or prompt, bad cursor, bad log level.
    InvalidParams,
    /// We failed.
    InternalError,
    /// The request needs a client capability it did not declare (2026-07-28).
    MissingClientCapability,
    /// The request names a revision we do not speak (2026-07-28).
    UnsupportedProtocolVersion,
    /// An HTTP header is missing, malformed or says something else than the body (2026-07-28).
    HeaderMismatch,
    /// There is no such resource (handshake revisions).
    ResourceNotFound,
    /// What an upstream server has answered with, whatever it is.
    Upstream(i32),
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::ParseError => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::InternalError => -32603,
            Self::ResourceNotFound => -32002,
            Self::HeaderMismatch => -32020,
            Self::MissingClientCapability => -32021,
            Self::UnsupportedProtocolVersion => -32022,
            Self::Upstream(code) => code,
        }
    }
}

/// One JSON-RPC error object, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// What kind of error.
    pub code: ErrorCode,
    /// One line, lower case, peers' text escaped.
    pub message: String,
    /// `data`: a raw JSON value.
    pub data: Option<String>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The error for a method that does not exist, or not in the era of the request.
    #[must_use]
    pub fn method_not_found(method: &str) -> Self {
        Self::new(
            ErrorCode::MethodNotFound,
            format!("method not found: {}", crate::secret::Quoted(method)),
        )
    }

    /// The error for a revision we do not speak, with those we do. Spec: 2026-07-28 basic/versioning.
    #[must_use]
    pub fn unsupported_version(requested: &str) -> Self {
        let mut data = String::from(r#"{"supported":["#);
        for (i, revision) in super::revision::Revision::NEWEST_FIRST
            .into_iter()
            .enumerate()
        {
            if i > 0 {
                data.push(',');
            }
            data.push('"');
            data.push_str(revision.as_str());
            data.push('"');
        }
        data.push_str(r#"],"requested":"#);
        crate::codec::json_text::write_string(&mut data, requested);
        data.push('}');
        Self {
            code: ErrorCode::UnsupportedProtocolVersion,
            message: format!(
                "unsupported protocol version: {}",
                crate::secret::Quoted(requested)
            ),
            data: Some(data),
        }
    }
}
