//! Typed views of the messages we act on, and builders of those we write. Everything else stays raw.

use std::borrow::Cow;

use crate::codec::json_text::write_string;
pub use crate::codec::scan::{
    META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_LOG_LEVEL, META_PROTOCOL_VERSION, RequestMeta,
};
use crate::codec::scan::{Text, members};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::secret::Quoted;

/// The result of a tool call, as one raw JSON object: ours are built here, an upstream's passes as it came.
/// Spec: 2025-11-25 server/tools (Tool Result).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult(String);

impl ToolResult {
    /// One block of text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        let mut json = String::with_capacity(text.len() + 48);
        json.push_str(r#"{"content":[{"type":"text","text":"#);
        write_string(&mut json, text);
        json.push_str("}]}");
        Self(json)
    }

    /// One block of text and the structured content beside it; `structured` is a raw JSON object.
    #[must_use]
    pub fn structured(text: &str, structured: &str) -> Self {
        let Self(mut json) = Self::text(text);
        json.pop();
        json.push_str(r#","structuredContent":"#);
        json.push_str(structured);
        json.push('}');
        Self(json)
    }

    /// One block of text that says what went wrong, marked `isError`.
    #[must_use]
    pub fn error(text: &str) -> Self {
        let Self(mut json) = Self::text(text);
        json.pop();
        json.push_str(r#","isError":true}"#);
        Self(json)
    }

    /// The raw JSON object.
    #[must_use]
    pub fn into_json(self) -> String {
        self.0
    }

    /// The raw JSON object.
    #[must_use]
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

/// On results: who answered.
pub const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// On notifications of a listen stream: the id of the listen request.
pub const META_SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

impl RequestMeta<'_> {
    /// Whether the request belongs to the stateless era, going by its metadata. Design: era of a request.
    #[must_use]
    pub const fn is_modern(&self) -> bool {
        self.protocol_version.is_some()
            || self.client_capabilities.is_some()
            || self.client_info.is_some()
    }
}

/// `params` of `tools/call`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallParams<'a> {
    /// The tool.
    pub name: Cow<'a, str>,
    /// Its arguments, a raw JSON object; `None` when absent or `null`.
    pub arguments: Option<&'a str>,
}

impl<'a> CallParams<'a> {
    /// Reads `params`.
    ///
    /// # Errors
    /// Which member is missing or of the wrong type: an "invalid params" error.
    pub fn read(params: Option<&'a str>) -> Result<Self, RpcError> {
        let mut name = None;
        let mut arguments = None;
        for (key, value) in params.into_iter().flat_map(members) {
            if key.is("name") {
                name = Some(value);
            } else if key.is("arguments") {
                arguments = Some(value);
            }
        }
        let name = string_member("name", name)?;
        let arguments = match arguments {
            None | Some("null") => None,
            Some(object) if object.starts_with('{') => Some(object),
            Some(other) => {
                return Err(RpcError::new(
                    ErrorCode::InvalidParams,
                    format!(
                        "params.arguments must be an object (found {})",
                        Quoted(other)
                    ),
                ));
            }
        };
        Ok(Self { name, arguments })
    }
}

/// The text of a member of `params` that must be a string.
///
/// # Errors
/// An "invalid params" error that names the member and shows what was found.
pub fn string_member<'a>(name: &str, raw: Option<&'a str>) -> Result<Cow<'a, str>, RpcError> {
    let Some(raw) = raw else {
        return Err(RpcError::new(
            ErrorCode::InvalidParams,
            format!("params.{name} is missing"),
        ));
    };
    Text::of_value(raw)
        .map(|text| text.decode())
        .ok_or_else(|| {
            RpcError::new(
                ErrorCode::InvalidParams,
                format!("params.{name} must be a string (found {})", Quoted(raw)),
            )
        })
}

/// Finds one member of a raw JSON object.
#[must_use]
pub fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    members(object)
        .find(|(key, _)| key.is(name))
        .map(|(_, value)| value)
}

/// Whether an object, raw JSON, may have a member of one of these names, which are letters only; at any depth. A
/// long text is searched for the names, and for an escape that could spell one, much faster than it is read.
pub(crate) fn may_have(object: &str, names: &[&str]) -> bool {
    let has = |word: &str| memchr::memmem::find(object.as_bytes(), word.as_bytes()).is_some();
    has("\\u") || names.iter().any(|name| has(name))
}

/// Severity of a log message, as RFC 5424 names it. Spec: 2025-11-25 server/utilities/logging.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Everything.
    Debug,
    /// Normal happenings.
    Info,
    /// Normal, but worth a look.
    Notice,
    /// Something is off.
    Warning,
    /// Something failed.
    Error,
    /// A part is broken.
    Critical,
    /// Someone must act now.
    Alert,
    /// Nothing works.
    Emergency,
}

impl LogLevel {
    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// Reads a raw JSON value.
    ///
    /// # Errors
    /// An "invalid params" error that lists the levels.
    pub fn read(raw: Option<&str>) -> Result<Self, RpcError> {
        const ALL: [LogLevel; 8] = [
            LogLevel::Debug,
            LogLevel::Info,
            LogLevel::Notice,
            LogLevel::Warning,
            LogLevel::Error,
            LogLevel::Critical,
            LogLevel::Alert,
            LogLevel::Emergency,
        ];
        let text = string_member("level", raw)?;
        ALL.into_iter().find(|level| level.as_str() == text).ok_or_else(|| {
            RpcError::new(
                ErrorCode::InvalidParams,
                format!(
                    "log level must be one of debug, info, notice, warning, error, critical, alert, emergency (found {})",
                    Quoted(&text)
                ),
            )
        })
    }
}
