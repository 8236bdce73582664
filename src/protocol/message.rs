//! Typed views of the messages we act on, and builders of those we write. Everything else stays raw.

use crate::codec::json_text::write_string;

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
    pub fn as_json(&self) -> &str {
        &self.0
    }
}
