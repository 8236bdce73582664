//! The id of a session: what is sent, and what is accepted.

use std::fmt;

use crate::crypto::hex;

/// `Mcp-Session-Id`: 128 random bits as 32 lower-case hexadecimal digits. It finds a session and proves
/// nothing; still it is not for logs, so `Debug` shows its beginning only.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::hub::http) struct McpSessionId(String);

impl McpSessionId {
    /// The id of these random bytes.
    pub(super) fn of(random: [u8; 16]) -> Self {
        Self(hex(&random))
    }

    /// The id as it stands in the header.
    #[must_use]
    pub(in crate::hub::http) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for McpSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "McpSessionId({}…)", self.0.get(..8).unwrap_or_default())
    }
}

/// Reads the one spelling of an id that is ever given out.
pub(super) fn read_id(text: &str) -> Option<u128> {
    if text.len() != 32 {
        return None;
    }
    text.bytes().try_fold(0, |id: u128, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(id << 4 | u128::from(digit))
    })
}
