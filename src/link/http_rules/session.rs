//! The `Mcp-Session-Id` header.

use super::{HeadView, HttpRefusal, Once, trimmed};
use crate::secret::Quoted;

/// Longest session id that is looked up. Unit: bytes. No limit to be set: ours have 32 digits, so a longer
/// one can name none of our sessions, and `head_bytes_max` bounds what was read for it.
pub const SESSION_ID_BYTES_MAX: usize = 128;

/// The session that a request names. Stateless requests name none: there the header is ignored.
///
/// # Errors
/// 400 when it is repeated, too long, or not visible ASCII.
/// Source: Spec 2025-11-25 basic/transports (Session Management).
pub fn session_id<H: HeadView + ?Sized>(head: &H) -> Result<Option<&str>, HttpRefusal> {
    let refuse = |what: &str| Err(HttpRefusal::new(400, &format!("Mcp-Session-Id {what}")));
    let value = match head.once("mcp-session-id") {
        Once::Absent => return Ok(None),
        Once::Value(value) => trimmed(value),
        Once::NotText => return refuse("is no text"),
        Once::Repeated(count) => return refuse(&format!("may stand once (found {count})")),
    };
    if value.len() > SESSION_ID_BYTES_MAX {
        let found = value.len();
        refuse(&format!(
            "must have at most {SESSION_ID_BYTES_MAX} bytes (found {found})"
        ))
    } else if value.is_empty() || !value.bytes().all(|b| b.is_ascii_graphic()) {
        refuse(&format!("must be visible ASCII (found {})", Quoted(value)))
    } else {
        Ok(Some(value))
    }
}
