//! Why [`scan`](super::scan) refused a text.

use super::reader::Fault;
use super::text::Text;
use crate::secret::{QUOTE_BYTES_MAX, Quoted};

/// Why a text was refused. Offsets are bytes from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScanError {
    /// The bytes are not UTF-8. They are never repaired.
    NotUtf8 {
        /// The first byte that does not belong.
        offset: usize,
    },
    /// The text is not JSON.
    Syntax {
        /// Where it stops being JSON.
        offset: usize,
        /// What could have stood there.
        wanted: &'static str,
    },
    /// Too many levels of arrays and objects. The rest was not read.
    TooDeep {
        /// The bracket or brace that opens one level too many.
        offset: usize,
        /// The limit. Unit: levels.
        limit: usize,
    },
    /// The text is JSON, but a member of the envelope, of `params` or of `_meta` comes twice.
    DuplicateMember {
        /// Where the second one begins.
        offset: usize,
        /// Its name, cut to what an error may quote.
        name: String,
    },
    /// The text is JSON, but an array with more messages than the limit.
    TooManyMessages {
        /// The first message too many.
        offset: usize,
        /// The limit. Unit: messages.
        limit: usize,
        /// How many there are.
        found: usize,
    },
}

impl ScanError {
    /// What stopped a reader at `offset`, as an error; `limit` is its depth limit.
    pub(super) const fn of(fault: Fault, offset: usize, limit: usize) -> Self {
        match fault.noun() {
            Some(wanted) => Self::Syntax { offset, wanted },
            None => Self::TooDeep { offset, limit },
        }
    }

    /// The second `name` begins at `offset`.
    pub(super) fn duplicate(offset: usize, name: Text<'_>) -> Self {
        let name = name.decode();
        // Enough for `Quoted` to see that it was longer.
        let mut end = name.len().min(QUOTE_BYTES_MAX + 4);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        Self::DuplicateMember {
            offset,
            name: name[..end].to_owned(),
        }
    }

    /// Whether the text is JSON all the same, so that the fault is one of the message (-32600) and not of
    /// the text (-32700).
    #[must_use]
    pub const fn is_json(&self) -> bool {
        match self {
            Self::NotUtf8 { .. } | Self::Syntax { .. } | Self::TooDeep { .. } => false,
            Self::DuplicateMember { .. } | Self::TooManyMessages { .. } => true,
        }
    }
}

impl std::fmt::Display for ScanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotUtf8 { offset } => write!(f, "not UTF-8 at byte {offset}"),
            Self::Syntax { offset, wanted } => {
                write!(f, "not JSON: {wanted} expected at byte {offset}")
            }
            Self::TooDeep { offset, limit } => write!(
                f,
                "arrays and objects nested deeper than {limit} levels at byte {offset}"
            ),
            Self::DuplicateMember { offset, name } => {
                write!(
                    f,
                    "member \"{}\" comes twice at byte {offset}",
                    Quoted(name)
                )
            }
            Self::TooManyMessages { limit, found, .. } => {
                write!(f, "more than {limit} messages in one array (found {found})")
            }
        }
    }
}

impl std::error::Error for ScanError {}
