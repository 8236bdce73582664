//! Other spellings of members and of transports.

use serde_json::{Map, Value};

use crate::manager::server_config::HttpKind;

/// Whether a member has the type that its usual name wants.
type IsRight = fn(&Value) -> bool;

/// Other spelling, usual one, type.
const SPELLINGS: [(&str, &str, IsRight); 7] = [
    ("connect_timeout", "connectTimeout", Value::is_number),
    (
        "supports_parallel_tool_calls",
        "supportsParallelToolCalls",
        Value::is_boolean,
    ),
    ("ssl_verify", "sslVerify", Value::is_boolean),
    ("client_cert", "clientCert", Value::is_string),
    ("client_key", "clientKey", Value::is_string),
    ("ca_file", "caFile", Value::is_string),
    ("working_directory", "workingDirectory", Value::is_string),
];

/// Members that [`fold`] had to leave because of their type, with their usual names.
pub(super) fn left(
    members: &Map<String, Value>,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let spellings = SPELLINGS
        .into_iter()
        .map(|(other, usual, _)| (other, usual));
    spellings.filter(|(other, usual)| {
        members.get(*other).is_some_and(|value| !value.is_null()) && !members.contains_key(*usual)
    })
}

/// Gives members their usual names: `type` becomes `transport`, snake case becomes camel case. A member of
/// another type than the usual one, or one whose usual name is there too, stays as it is.
/// OpenClaw: canonicalizeConfiguredMcpServer.
pub fn fold(members: &mut Map<String, Value>) {
    let kind = members.get("type").and_then(Value::as_str);
    let word = kind.map(|kind| kind.trim().to_ascii_lowercase());
    let kind = kind.and_then(http_kind);
    if kind.is_some() || word.as_deref() == Some("stdio") {
        members.remove("type");
        let transport = members.get("transport").and_then(Value::as_str);
        if let (Some(kind), true) = (kind, transport.is_none_or(|text| text.trim().is_empty())) {
            members.insert("transport".to_owned(), Value::from(kind.as_str()));
        }
    }
    for (other, usual, is_right) in SPELLINGS {
        if !members.contains_key(usual) && members.get(other).is_some_and(is_right) {
            if let Some(value) = members.remove(other) {
                members.insert(usual.to_owned(), value);
            }
        }
    }
}

impl HttpKind {
    /// The usual spelling in a configuration.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Streamable => "streamable-http",
            Self::Sse => "sse",
        }
    }
}

/// The transport that a word means: `http`, `streamable-http` and its spellings, `sse`, `auto`; any case,
/// blanks around it.
#[must_use]
pub fn http_kind(word: &str) -> Option<HttpKind> {
    match word.trim().to_ascii_lowercase().replace('_', "-").as_str() {
        "http" | "streamable-http" | "streamablehttp" | "streamable" => Some(HttpKind::Streamable),
        "sse" => Some(HttpKind::Sse),
        "auto" => Some(HttpKind::Auto),
        _ => None,
    }
}
