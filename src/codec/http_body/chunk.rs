//! The chunked coding, read strictly. RFC 9112 §7.1.

use super::{BodyError, BodyLimits};
use crate::codec::http1::is_token_byte;

/// Digits of a chunk size: what 64 bits hold, leading zeros included.
const SIZE_DIGITS_MAX: u8 = 16;

/// What the reader stands before.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Content of a chunk: so many bytes of it are left.
    Content(u64),
    /// All input was taken.
    NeedMore,
    /// The body is whole.
    End,
}

/// Reads everything of the chunked coding but the content.
#[derive(Debug)]
pub(super) struct ChunkReader {
    at: At,
    size: u64,
    /// Digits of the size, then bytes of the extension, then of the trailer.
    count: usize,
    extension_bytes_max: usize,
    trailer_bytes_max: usize,
}

/// Where in the grammar the next byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// A digit of the size.
    Size,
    /// A part of a chunk extension.
    Extension(Extension),
    /// The LF behind the size or its extension.
    SizeLf,
    /// Content.
    Content,
    /// The CR, then the LF behind the content.
    ContentCr,
    ContentLf,
    /// The first byte of a trailer line, its name, its value, its LF.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    /// The LF of the empty line.
    LastLf,
}

/// `chunk-ext = *( BWS ";" BWS token [ BWS "=" BWS ( token / quoted-string ) ] )`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    /// Blanks where only `;` may follow.
    Blank,
    /// Behind `;`.
    NameStart,
    Name,
    /// Blanks behind a name: `=` or `;` may follow.
    NameEnd,
    /// Behind `=`.
    ValueStart,
    Value,
    Quoted,
    QuotedPair,
    /// Behind the closing quote.
    QuotedEnd,
}

impl ChunkReader {
    pub(super) const fn new(limits: BodyLimits) -> Self {
        Self {
            at: At::Size,
            size: 0,
            count: 0,
            extension_bytes_max: limits.extension_bytes_max,
            trailer_bytes_max: limits.trailer_bytes_max,
        }
    }

    /// So much content of the chunk was taken off the input.
    pub(super) const fn took(&mut self, bytes: u64) {
        self.size -= bytes;
        if self.size == 0 {
            self.at = At::ContentCr;
        }
    }

    /// Reads up to the next content. A chunk of more than `room` bytes is refused when its size is
    /// known; `limit` is what the refusal says.
    pub(super) fn advance(
        &mut self,
        input: &mut &[u8],
        room: u64,
        limit: usize,
    ) -> Result<Step, BodyError> {
        while self.at != At::Content {
            let Some((byte, rest)) = input.split_first() else {
                return Ok(Step::NeedMore);
            };
            *input = rest;
            if self.take(*byte)? {
                return Ok(Step::End);
            }
            if self.at == At::Content && self.size > room {
                return Err(BodyError::TooLong { limit });
            }
        }
        Ok(Step::Content(self.size))
    }

    /// Takes one byte that is no content; true when it ends the body.
    fn take(&mut self, byte: u8) -> Result<bool, BodyError> {
        self.at = match (self.at, byte) {
            (At::Size, _) => self.size_byte(byte)?,
            (At::Extension(part), _) => self.extension_byte(part, byte)?,
            (At::SizeLf, b'\n') => {
                self.count = 0;
                if self.size == 0 {
                    At::TrailerStart
                } else {
                    At::Content
                }
            }
            (At::ContentCr, b'\r') => At::ContentLf,
            (At::ContentLf, b'\n') => {
                self.count = 0;
                At::Size
            }
            (At::TrailerStart, b'\r') => At::LastLf,
            (At::LastLf, b'\n') => return Ok(true),
            (At::TrailerStart | At::TrailerName | At::TrailerValue | At::TrailerLf, _) => {
                self.trailer_byte(byte)?
            }
            (At::SizeLf | At::ContentCr | At::ContentLf | At::LastLf | At::Content, _) => {
                return Err(BodyError::LineEnd);
            }
        };
        Ok(false)
    }

    fn size_byte(&mut self, byte: u8) -> Result<At, BodyError> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b'\r' | b' ' | b'\t' | b';' if self.count > 0 => {
                self.count = 0;
                return if byte == b'\r' {
                    Ok(At::SizeLf)
                } else {
                    self.extension_byte(Extension::Blank, byte)
                };
            }
            b'\n' if self.count > 0 => return Err(BodyError::LineEnd),
            _ => return Err(BodyError::ChunkSize),
        };
        if self.count == 0 {
            self.size = 0;
        }
        self.count += 1;
        if self.count > usize::from(SIZE_DIGITS_MAX) {
            return Err(BodyError::ChunkSize);
        }
        self.size = (self.size << 4) | u64::from(digit);
        Ok(At::Size)
    }

    fn extension_byte(&mut self, part: Extension, byte: u8) -> Result<At, BodyError> {
        use Extension::{
            Blank, Name, NameEnd, NameStart, Quoted, QuotedEnd, QuotedPair, Value, ValueStart,
        };
        let may_end = matches!(part, Name | Value | QuotedEnd);
        let next = match (part, byte) {
            (_, b'\r') if may_end => return Ok(At::SizeLf),
            (_, b'\n') => return Err(BodyError::LineEnd),
            (Quoted, b'"') => QuotedEnd,
            (Quoted, b'\\') => QuotedPair,
            (Quoted | QuotedPair, b'\t' | b' '..=b'~' | 0x80..) => Quoted,
            (Blank | NameEnd | Name | Value | QuotedEnd, b';') => NameStart,
            (NameEnd | Name, b'=') => ValueStart,
            (ValueStart, b'"') => Quoted,
            (Name | NameEnd, b' ' | b'\t') => NameEnd,
            (Value | QuotedEnd | Blank, b' ' | b'\t') => Blank,
            (NameStart | ValueStart, b' ' | b'\t') => part,
            (NameStart | Name, _) if is_token_byte(byte) => Name,
            (ValueStart | Value, _) if is_token_byte(byte) => Value,
            (
                Blank | NameStart | Name | NameEnd | ValueStart | Value | Quoted | QuotedPair
                | QuotedEnd,
                _,
            ) => return Err(BodyError::Extension),
        };
        self.count += 1;
        if self.count > self.extension_bytes_max {
            return Err(BodyError::ExtensionTooLong {
                limit: self.extension_bytes_max,
            });
        }
        Ok(At::Extension(next))
    }

    fn trailer_byte(&mut self, byte: u8) -> Result<At, BodyError> {
        self.count += 1;
        if self.count > self.trailer_bytes_max {
            return Err(BodyError::TrailerTooLong {
                limit: self.trailer_bytes_max,
            });
        }
        match (self.at, byte) {
            (At::TrailerStart | At::TrailerName, _) if is_token_byte(byte) => Ok(At::TrailerName),
            (At::TrailerName, b':') => Ok(At::TrailerValue),
            (At::TrailerValue, b'\r') => Ok(At::TrailerLf),
            (At::TrailerLf, b'\n') => Ok(At::TrailerStart),
            (At::TrailerValue, b'\t' | b' '..=b'~' | 0x80..) => Ok(At::TrailerValue),
            (At::TrailerLf, _) | (_, b'\n') => Err(BodyError::LineEnd),
            _ => Err(BodyError::Trailer),
        }
    }
}
