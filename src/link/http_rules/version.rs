//! The `MCP-Protocol-Version` header.

use super::{HeadView, HttpRefusal, Once, trimmed};
use crate::protocol::revision::Revision;
use crate::secret::Quoted;

/// The name of the header.
pub(super) const NAME: &str = "MCP-Protocol-Version";

/// What a request of the handshake era without the header is taken for.
/// Source: Spec 2025-11-25 basic/transports (Protocol Version Header).
const ASSUMED: Revision = Revision::V2025_03_26;

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionHeader<'a> {
    /// There is none.
    Absent,
    /// A revision with a handshake.
    Legacy(Revision),
    /// A stateless revision.
    Modern(Revision),
    /// Anything else.
    Unknown(&'a str),
    /// It is no text.
    NotText,
    /// There are several: how many.
    Repeated(usize),
}

impl<'a> VersionHeader<'a> {
    /// Reads the header.
    pub fn of<H: HeadView + ?Sized>(head: &'a H) -> Self {
        match head.once(NAME) {
            Once::Absent => Self::Absent,
            Once::NotText => Self::NotText,
            Once::Repeated(count) => Self::Repeated(count),
            Once::Value(value) => match Revision::parse(trimmed(value)) {
                Some(revision) if revision.is_stateless() => Self::Modern(revision),
                Some(revision) => Self::Legacy(revision),
                None => Self::Unknown(trimmed(value)),
            },
        }
    }

    /// The same for longer than the head is kept; `None` where that would need a copy.
    #[must_use]
    pub const fn without_text(self) -> Option<VersionHeader<'static>> {
        Some(match self {
            Self::Absent => VersionHeader::Absent,
            Self::Legacy(revision) => VersionHeader::Legacy(revision),
            Self::Modern(revision) => VersionHeader::Modern(revision),
            Self::NotText => VersionHeader::NotText,
            Self::Repeated(count) => VersionHeader::Repeated(count),
            Self::Unknown(_) => return None,
        })
    }

    /// The revision of a request that belongs to a session. Not for `initialize`, which is answered whatever
    /// the header says.
    ///
    /// # Errors
    /// 400 unless the header is absent or names a revision with a handshake.
    pub fn of_session(self) -> Result<Revision, HttpRefusal> {
        let refuse = |what: &str| Err(HttpRefusal::new(400, &format!("{NAME} {what}")));
        match self {
            Self::Absent => Ok(ASSUMED),
            Self::Legacy(revision) => Ok(revision),
            Self::Modern(revision) => refuse(&format!(
                "must name a revision that has sessions (found {revision})"
            )),
            Self::Unknown(value) => refuse(&format!(
                "must name a revision we speak: {} (found {})",
                Revision::NEWEST_FIRST.map(Revision::as_str).join(", "),
                Quoted(value)
            )),
            Self::NotText => refuse("is no text"),
            Self::Repeated(count) => refuse(&format!("may stand once (found {count})")),
        }
    }
}
