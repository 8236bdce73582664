//! How a peer may break the WebSocket protocol.

use std::fmt;

use super::CONTROL_BYTES_MAX;

/// How a peer broke the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WsError {
    /// A frame or message over the limit.
    TooLarge {
        /// Its size in bytes as far as known.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// Text that is not UTF-8.
    NotUtf8,
    /// A binary message; we speak text only.
    Binary,
    /// A client's frame without a mask.
    Unmasked,
    /// A server's frame with a mask.
    Masked,
    /// A reserved bit is set although no extension was agreed.
    ReservedBits,
    /// An operation code without a meaning.
    Opcode(u8),
    /// A control frame in parts.
    SplitControl,
    /// A control frame over 125 bytes: the size it declares.
    LongControl(u64),
    /// A continuation without a beginning, or a beginning within a message.
    Order,
    /// A close frame with a payload of one byte.
    CloseLength,
    /// A close code that must not be sent.
    CloseCode(u16),
    /// Refused by the reader for a reason without a variant here.
    Other(String),
}

impl WsError {
    /// The code of the close frame that answers it. RFC 6455 §7.4.1.
    #[must_use]
    pub const fn close_code(&self) -> u16 {
        match self {
            Self::TooLarge { .. } => 1009,
            Self::NotUtf8 => 1007,
            Self::Binary => 1003,
            Self::Unmasked
            | Self::Masked
            | Self::ReservedBits
            | Self::Opcode(_)
            | Self::SplitControl
            | Self::LongControl(_)
            | Self::Order
            | Self::CloseLength
            | Self::CloseCode(_)
            | Self::Other(_) => 1002,
        }
    }
}

impl fmt::Display for WsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { bytes, limit } => {
                write!(f, "message too large: {bytes} bytes, limit {limit}")
            }
            Self::NotUtf8 => f.write_str("not UTF-8"),
            Self::Binary => f.write_str("binary frame where only text is spoken"),
            Self::Unmasked => f.write_str("frame from a client is not masked"),
            Self::Masked => f.write_str("frame from a server is masked"),
            Self::ReservedBits => f.write_str("frame has reserved bits set"),
            Self::Opcode(code) => write!(f, "frame has operation code {code}, which means nothing"),
            Self::SplitControl => f.write_str("control frame in parts"),
            Self::LongControl(bytes) => write!(
                f,
                "control frame too large: {bytes} bytes, limit {CONTROL_BYTES_MAX}"
            ),
            Self::Order => f.write_str("frames of a message out of order"),
            Self::CloseLength => f.write_str("close frame with half a code"),
            Self::CloseCode(code) => {
                write!(f, "close frame with code {code}, which is not allowed")
            }
            Self::Other(text) => write!(f, "frame refused: {text}"),
        }
    }
}

impl std::error::Error for WsError {}
