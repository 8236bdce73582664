//! Values of `Mcp-Name` and `Mcp-Param-*`: plain, or in base64 between markers.
//!
//! Source: Spec 2026-07-28 basic/transports/streamable-http (Value Encoding); reliability-security T22.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// A value that means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValueError {
    /// A character that is neither visible ASCII nor a blank.
    Character(char),
    /// Markers around something that is not base64 with its padding.
    Base64,
    /// Markers around bytes that are no UTF-8.
    Utf8,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Character(found) => write!(
                f,
                "holds U+{:04X}; only visible ASCII and blanks may stand in it",
                u32::from(*found)
            ),
            Self::Base64 => f.write_str("is marked as base64 and is not"),
            Self::Utf8 => f.write_str("holds bytes in base64 that are no UTF-8"),
        }
    }
}

impl std::error::Error for ValueError {}

/// What a value means; the blanks around it were taken off before. A copy only where it was encoded.
///
/// # Errors
/// See [`ValueError`].
pub fn decode_value(value: &str) -> Result<Cow<'_, str>, ValueError> {
    if let Some(found) = value.chars().find(|c| !is_plain(*c)) {
        return Err(ValueError::Character(found));
    }
    let inner = value.strip_prefix(PREFIX);
    let Some(inner) = inner.and_then(|rest| rest.strip_suffix(SUFFIX)) else {
        return Ok(Cow::Borrowed(value));
    };
    let bytes = BASE64.decode(inner).map_err(|_| ValueError::Base64)?;
    String::from_utf8(bytes)
        .map(Cow::Owned)
        .map_err(|_| ValueError::Utf8)
}

/// How a text travels in a header. The result is ASCII without control characters, and
/// [`decode_value`] gives `text` again. A copy only where it must be encoded.
#[must_use]
pub fn encode_value(text: &str) -> Cow<'_, str> {
    // A tab may stand in a field, but some programs on the way make it a space.
    let needs_bytes = text.chars().any(|c| !is_plain(c) || c == '\t');
    let has_outer_blank = text.starts_with(' ') || text.ends_with(' ');
    let is_marked = text.starts_with(PREFIX) && text.ends_with(SUFFIX);
    if needs_bytes || has_outer_blank || is_marked {
        Cow::Owned(format!("{PREFIX}{}{SUFFIX}", BASE64.encode(text)))
    } else {
        Cow::Borrowed(text)
    }
}

const fn is_plain(c: char) -> bool {
    matches!(c, ' '..='~' | '\t')
}
