//! What is wrong with a head.

use std::fmt;

/// Why bytes are not an acceptable head. The peer's bytes are never quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeadError {
    /// The first bytes cannot begin a head: TLS, HTTP/2, another protocol.
    NotHttp,
    /// The start line does not end within the limit.
    StartLineTooLong {
        /// Limit of the whole head, in bytes.
        limit: usize,
    },
    /// The head does not end within the limit.
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// More field lines than allowed.
    TooManyFields {
        /// The limit in lines.
        limit: usize,
    },
    /// A NUL, bare CR or bare LF.
    Control {
        /// The byte.
        byte: u8,
        /// Line number, the start line being 1.
        line: usize,
    },
    /// An HTTP version that is neither 1.0 nor 1.1.
    Version,
    /// The start line breaks the grammar.
    StartLine,
    /// A field line breaks the grammar: a space before the colon, a folded line, a bad byte.
    Field,
    /// A request of HTTP/1.1 without a Host.
    HostMissing,
    /// More than one Host.
    HostRepeated,
    /// A Host that names no host.
    HostInvalid,
}

impl HeadError {
    /// The status that answers a request with this fault.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::StartLineTooLong { .. } => 414,
            Self::TooLong { .. } | Self::TooManyFields { .. } => 431,
            Self::Version => 505,
            Self::NotHttp
            | Self::Control { .. }
            | Self::StartLine
            | Self::Field
            | Self::HostMissing
            | Self::HostRepeated
            | Self::HostInvalid => 400,
        }
    }
}

impl fmt::Display for HeadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHttp => f.write_str("not HTTP/1.1"),
            Self::StartLineTooLong { limit } => {
                write!(f, "start line does not end within {limit} bytes")
            }
            Self::TooLong { limit } => write!(f, "head does not end within {limit} bytes"),
            Self::TooManyFields { limit } => write!(f, "head has more than {limit} fields"),
            Self::Control { byte, line } => {
                write!(f, "head has a stray byte 0x{byte:02x} in line {line}")
            }
            Self::Version => f.write_str("HTTP version is neither 1.0 nor 1.1"),
            Self::StartLine => f.write_str("start line is malformed"),
            Self::Field => f.write_str("head has a malformed field"),
            Self::HostMissing => f.write_str("request has no Host"),
            Self::HostRepeated => f.write_str("request has more than one Host"),
            Self::HostInvalid => f.write_str("request has an invalid Host"),
        }
    }
}

impl std::error::Error for HeadError {}
