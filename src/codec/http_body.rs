//! HTTP/1.1 bodies: how long one is, its bytes in and out.
//!
//! Which of the two framings a message has is decided once, from its fields, and anything that two
//! parsers could read differently is refused. Decoding is incremental: content comes out as slices of
//! the input, so a body is never gathered here and a declared length allocates nothing.
//!
//! | state     | input                        | next      | output                   |
//! |-----------|------------------------------|-----------|--------------------------|
//! | Length    | content                      | Length    | `Data`                   |
//! | Length    | the declared count           | Done      | `End`                    |
//! | Size      | hexadecimal digits           | Size      |                          |
//! | Size      | CRLF, with an extension      | Data      |                          |
//! | Size      | CRLF after zero              | Trailer   |                          |
//! | Data      | content                      | Data      | `Data`                   |
//! | Data      | CRLF behind the chunk        | Size      |                          |
//! | Trailer   | field lines                  | Trailer   |                          |
//! | Trailer   | empty line                   | Done      | `End`                    |
//! | Open      | content until the wire ends  | Open      | `Data`                   |
//! | any       | fault or overflow            |           | `BodyError`; drop it     |
//!
//! Source: RFC 9112 §6, §7.1; RFC 9110 §8.6; reliability-security T11 to T14, T17.

mod chunk;
mod error;
mod write;

use chunk::ChunkReader;
pub use error::{BodyError, FramingError};
pub use write::{
    CHUNKED_END, ChunkMark, LENGTH_FIELD, LengthMark, append_decimal, begin_chunk, end_chunk,
    patch_length, write_chunk,
};

use crate::limits::Limits;

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes; zero when there is no body.
    Length(u64),
    /// Chunks.
    Chunked,
    /// Everything until the connection ends. Of responses only.
    UntilClose,
}

impl Framing {
    /// The framing of a request with these fields.
    ///
    /// # Errors
    /// The request is to be answered with [`FramingError::status`] and the connection closed: where
    /// the next request begins is not known for certain.
    pub fn of_request<'a>(
        minor: u8,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, FramingError> {
        Ok(declared(minor, fields)?.unwrap_or(Self::Length(0)))
    }

    /// The framing of a response with these fields. `to_head` says that it answers a HEAD request.
    /// RFC 9112 §6.3.
    ///
    /// # Errors
    /// The response cannot be trusted; the connection is to be closed.
    pub fn of_response<'a>(
        status: u16,
        minor: u8,
        to_head: bool,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Self, FramingError> {
        let declared = declared(minor, fields)?;
        if to_head || matches!(status, 100..=199 | 204 | 304) {
            return Ok(Self::Length(0));
        }
        Ok(declared.unwrap_or(Self::UntilClose))
    }

    /// Whether the message has a body at all.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::Length(0))
    }
}

/// What the fields say; `None` when they are silent.
fn declared<'a>(
    minor: u8,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> Result<Option<Framing>, FramingError> {
    let mut length = None;
    let mut coding: Option<&[u8]> = None;
    for (name, value) in fields {
        // Lengths first: this is asked of every field of every message.
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length")
                && length.replace(read_length(value)?).is_some() =>
            {
                return Err(FramingError::LengthRepeated);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding")
                && coding.replace(value).is_some() =>
            {
                return Err(FramingError::Coding);
            }
            _ => {}
        }
    }
    match (coding, length) {
        (Some(_), Some(_)) => Err(FramingError::LengthAndCoding),
        (Some(_), None) if minor == 0 => Err(FramingError::CodingInOldVersion),
        (Some(coding), None) => read_coding(coding).map(Some),
        (None, length) => Ok(length.map(Framing::Length)),
    }
}

/// The number that a Content-Length is. RFC 9110 §8.6: digits, nothing else. A list of equal numbers is
/// refused, too.
///
/// # Errors
/// [`FramingError::Length`] and [`FramingError::LengthOverflow`].
pub fn read_length(value: &[u8]) -> Result<u64, FramingError> {
    if value.is_empty() {
        return Err(FramingError::Length);
    }
    value.iter().try_fold(0_u64, |sum, byte| {
        let digit = match byte {
            b'0'..=b'9' => u64::from(byte - b'0'),
            _ => return Err(FramingError::Length),
        };
        let sum = sum.checked_mul(10).and_then(|sum| sum.checked_add(digit));
        sum.ok_or(FramingError::LengthOverflow)
    })
}

/// Exactly `chunked`. Other codings that end in `chunked` are known to RFC 9112 and not to us.
fn read_coding(value: &[u8]) -> Result<Framing, FramingError> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(Framing::Chunked);
    }
    let mut others = 0;
    let mut last_is_chunked = false;
    for coding in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
        let token = super::http1::is_token(coding);
        if !token || last_is_chunked {
            return Err(FramingError::Coding);
        }
        last_is_chunked = coding.eq_ignore_ascii_case(b"chunked");
        others += usize::from(!last_is_chunked);
    }
    Err(if last_is_chunked && others > 0 {
        FramingError::CodingUnknown
    } else {
        FramingError::Coding
    })
}

/// Bounds of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Content in bytes.
    pub bytes_max: usize,
    /// Bytes of one chunk extension.
    pub extension_bytes_max: usize,
    /// Bytes of all trailer lines.
    pub trailer_bytes_max: usize,
}

impl From<&Limits> for BodyLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            bytes_max: limits.message_bytes_max,
            extension_bytes_max: limits.chunk_extension_bytes_max,
            trailer_bytes_max: limits.trailer_bytes_max,
        }
    }
}

/// What the next bytes of a body are.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyPiece<'a> {
    /// Content, never empty.
    Data(&'a [u8]),
    /// All input was taken; the body goes on.
    NeedMore,
    /// The body is whole; what is left of the input does not belong to it.
    End,
}

/// Takes one body apart.
#[derive(Debug)]
pub struct BodyDecoder {
    state: State,
    limit: usize,
    /// Content that may still come within the limit.
    room: u64,
}

#[derive(Debug)]
enum State {
    Length(u64),
    Chunked(ChunkReader),
    UntilClose,
    Done,
}

impl BodyDecoder {
    /// A decoder for one body.
    ///
    /// # Errors
    /// [`BodyError::TooLong`] when the declared length is above the limit.
    pub fn new(framing: Framing, limits: BodyLimits) -> Result<Self, BodyError> {
        let room = u64::try_from(limits.bytes_max).unwrap_or(u64::MAX);
        let state = match framing {
            Framing::Length(length) if length > room => {
                return Err(BodyError::TooLong {
                    limit: limits.bytes_max,
                });
            }
            Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Chunked(ChunkReader::new(limits)),
            Framing::UntilClose => State::UntilClose,
        };
        Ok(Self {
            state,
            limit: limits.bytes_max,
            room,
        })
    }

    /// Bytes of content that must still come at least: the rest of a declared length.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        match self.state {
            State::Length(left) => left,
            State::Chunked(_) | State::UntilClose | State::Done => 0,
        }
    }

    /// Takes the next piece off the input. Call until it is `NeedMore` or `End`.
    ///
    /// # Errors
    /// Where the body ends is not known any more: the connection is to be closed.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<BodyPiece<'a>, BodyError> {
        let most = match &mut self.state {
            State::Done => return Ok(BodyPiece::End),
            State::Length(left) => *left,
            State::UntilClose => u64::MAX,
            State::Chunked(reader) => match reader.advance(input, self.room, self.limit)? {
                chunk::Step::Content(left) => left,
                chunk::Step::NeedMore => return Ok(BodyPiece::NeedMore),
                chunk::Step::End => {
                    self.state = State::Done;
                    return Ok(BodyPiece::End);
                }
            },
        };
        if input.is_empty() {
            return Ok(BodyPiece::NeedMore);
        }
        let len = usize::try_from(most).unwrap_or(usize::MAX).min(input.len());
        let (data, rest) = input.split_at(len);
        // Lengths and chunk sizes are within the limit; only a body without either can pass it here.
        let taken = len as u64;
        self.room = self
            .room
            .checked_sub(taken)
            .ok_or(BodyError::TooLong { limit: self.limit })?;
        *input = rest;
        match &mut self.state {
            State::Length(left) => {
                *left -= taken;
                if *left == 0 {
                    self.state = State::Done;
                }
            }
            State::Chunked(reader) => reader.took(taken),
            State::UntilClose | State::Done => {}
        }
        Ok(BodyPiece::Data(data))
    }

    /// The wire has ended.
    ///
    /// # Errors
    /// [`BodyError::Truncated`] unless the body is whole.
    pub const fn finish(&self) -> Result<(), BodyError> {
        match self.state {
            State::Done | State::UntilClose => Ok(()),
            State::Length(_) | State::Chunked(_) => Err(BodyError::Truncated),
        }
    }
}

#[cfg(test)]
mod tests;
