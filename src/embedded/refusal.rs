//! Why a request is refused, in the words and codes of the Gateway protocol.

use crate::codec::json_text::write_string;

/// An error as a response carries it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Error code of the protocol.
    pub code: &'static str,
    /// One line for a person; clients match on some of them.
    pub message: String,
    /// A raw JSON object with codes for programs.
    pub details: Option<String>,
}

impl Refusal {
    /// The request is wrong.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self {
            code: "INVALID_REQUEST",
            message: message.into(),
            details: None,
        }
    }

    /// The request is right and cannot be served now.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self {
            code: "UNAVAILABLE",
            message: message.into(),
            details: None,
        }
    }

    /// The same with `details`, a raw JSON object.
    pub(super) fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = Some(details.into());
        self
    }

    /// The `error` member of a response.
    pub(super) fn to_json(&self) -> String {
        let mut json = format!(r#"{{"code":"{}","message":"#, self.code);
        write_string(&mut json, &self.message);
        if let Some(details) = &self.details {
            json.push_str(r#","details":"#);
            json.push_str(details);
        }
        json.push('}');
        json
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}
