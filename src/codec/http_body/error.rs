//! What is wrong with a body, or with what a head says of it.

use std::fmt;

/// Why a head does not tell how long the body is. The peer's bytes are never quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FramingError {
    /// Content-Length is not a plain decimal number.
    Length,
    /// Content-Length does not fit 64 bits.
    LengthOverflow,
    /// Content-Length stands more than once.
    LengthRepeated,
    /// Content-Length and Transfer-Encoding both stand there.
    LengthAndCoding,
    /// Transfer-Encoding does not end in one `chunked`, or stands more than once.
    Coding,
    /// Transfer-Encoding names a coding besides `chunked`.
    CodingUnknown,
    /// Transfer-Encoding in HTTP/1.0.
    CodingInOldVersion,
}

impl FramingError {
    /// The status that answers a request with this fault.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::CodingUnknown => 501,
            Self::Length
            | Self::LengthOverflow
            | Self::LengthRepeated
            | Self::LengthAndCoding
            | Self::Coding
            | Self::CodingInOldVersion => 400,
        }
    }
}

impl fmt::Display for FramingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "Content-Length is not a decimal number",
            Self::LengthOverflow => "Content-Length does not fit 64 bits",
            Self::LengthRepeated => "Content-Length stands more than once",
            Self::LengthAndCoding => "Content-Length stands beside Transfer-Encoding",
            Self::Coding => "Transfer-Encoding is not chunked",
            Self::CodingUnknown => "Transfer-Encoding names a coding other than chunked",
            Self::CodingInOldVersion => "HTTP/1.0 knows no Transfer-Encoding",
        })
    }
}

impl std::error::Error for FramingError {}

/// Why a body cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// More content than allowed, declared or sent.
    TooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// A chunk size that is no hexadecimal number of at most 16 digits.
    ChunkSize,
    /// A chunk extension that breaks the grammar.
    Extension,
    /// A chunk extension longer than allowed.
    ExtensionTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// Something else than CRLF where a line of the chunked coding must end.
    LineEnd,
    /// A trailer line that is no field.
    Trailer,
    /// Trailer lines longer than allowed.
    TrailerTooLong {
        /// The limit in bytes.
        limit: usize,
    },
    /// The wire ended within the body.
    Truncated,
}

impl BodyError {
    /// The status that answers a request with this fault.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::TooLong { .. } => 413,
            Self::TrailerTooLong { .. } => 431,
            Self::ChunkSize
            | Self::Extension
            | Self::ExtensionTooLong { .. }
            | Self::LineEnd
            | Self::Trailer
            | Self::Truncated => 400,
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { limit } => write!(f, "body is longer than {limit} bytes"),
            Self::ChunkSize => f.write_str("chunk size is malformed"),
            Self::Extension => f.write_str("chunk extension is malformed"),
            Self::ExtensionTooLong { limit } => {
                write!(f, "chunk extension is longer than {limit} bytes")
            }
            Self::LineEnd => f.write_str("chunked body lacks CRLF where a line must end"),
            Self::Trailer => f.write_str("trailer is malformed"),
            Self::TrailerTooLong { limit } => {
                write!(f, "trailer is longer than {limit} bytes")
            }
            Self::Truncated => f.write_str("body ends before its time"),
        }
    }
}

impl std::error::Error for BodyError {}
