//! HTTP/1.1 heads: the start line and fields of a request or response, read and written.
//!
//! Reading is incremental and strict. The search for the end of a head looks at each byte once,
//! however the bytes are cut, and stops at the first thing that two parsers could read differently:
//! NUL, a bare CR or LF, a space before a colon, a folded line, a second Host. Tokens are
//! httparse's work, once, when the head is whole. Bodies are not handled here; the bytes behind a
//! head are left to the caller.
//!
//! | state   | input             | next    | output                         |
//! |---------|-------------------|---------|--------------------------------|
//! | Reading | part of a head    | Reading | `NeedMore`                     |
//! | Reading | end of the head   | Reading | `Done`: head, bytes used of it |
//! | Reading | fault or overflow | Reading | `HeadError`; drop the reader   |
//!
//! After `Done` the reader is empty and reads the next head (behind an interim response, say).
//!
//! Source: RFC 9112 §2 to §5; reliability-security T15, T16, T22.

mod buffer;
mod error;
mod fields;
mod head;
mod write;

use std::mem::MaybeUninit;

use buffer::{HeadBuffer, Start};
pub use error::HeadError;
pub use fields::{Fields, RequestHead, ResponseHead};
use head::Span;
pub use head::{HeadSerial, HttpHead, Unfit, ValuePlace};
pub use write::{HeadWriter, WriteError, append_field};

use crate::codec::uri;
use crate::limits::Limits;

/// Bounds of a head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Bytes from the first to the empty line.
    pub bytes_max: usize,
    /// Field lines.
    pub fields_max: usize,
}

impl From<&Limits> for HeadLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            bytes_max: limits.head_bytes_max,
            fields_max: limits.head_fields_max,
        }
    }
}

/// What became of the bytes given to a reader.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress<T> {
    /// All were taken; the head is not whole yet.
    NeedMore,
    /// The head is whole.
    Done {
        /// The head.
        head: T,
        /// How many of the bytes given now belonged to it; what follows is not HTTP head.
        used: usize,
    },
}

/// Reads request heads.
#[derive(Debug)]
pub struct RequestReader {
    buffer: HeadBuffer,
    /// The number of the last head that repeated no other.
    serial: u64,
}

impl RequestReader {
    /// An empty reader.
    #[must_use]
    pub const fn new(limits: HeadLimits) -> Self {
        Self {
            buffer: HeadBuffer::new(limits, Start::Token),
            serial: 0,
        }
    }

    /// Takes the next bytes. Empty lines before the request line are skipped (RFC 9112 §2.2).
    ///
    /// # Errors
    /// The request is to be answered with [`HeadError::status`] and the connection closed; the
    /// reader is of no further use.
    pub fn read(&mut self, input: &[u8]) -> Result<Progress<RequestHead>, HeadError> {
        let Some(used) = self.buffer.take(input)? else {
            return Ok(Progress::NeedMore);
        };
        let mut kept = HttpHead::default();
        self.fill(&mut kept)?;
        let head = RequestHead {
            method: kept.method().to_owned(),
            target: kept.target().to_owned(),
            minor: kept.minor,
            fields: kept.fields,
        };
        Ok(Progress::Done { head, used })
    }

    /// As [`read`](Self::read), into a head that was used before: says how many bytes of the input
    /// belong to the head once it is whole. Allocates nothing when both have room. A client that sends the
    /// same head again, as most do in their sessions, is recognised by comparison
    /// ([`HttpHead::serial`]).
    ///
    /// # Errors
    /// As of [`read`](Self::read).
    pub fn read_into(
        &mut self,
        input: &[u8],
        head: &mut HttpHead,
    ) -> Result<Option<usize>, HeadError> {
        if self.buffer.is_empty() {
            if let Some(used) = head.fields.repeat(input) {
                return Ok(Some(used));
            }
        }
        let Some(used) = self.buffer.take(input)? else {
            return Ok(None);
        };
        self.fill(head)?;
        Ok(Some(used))
    }

    /// Moves the whole head that was found into `head`.
    fn fill(&mut self, head: &mut HttpHead) -> Result<(), HeadError> {
        let lines = self.buffer.lines;
        let mut bytes = head.fields.take_buffer();
        let start = self.buffer.swap(&mut bytes);
        let noted = note_request(head, &bytes, start, lines);
        head.fields.put_back(bytes);
        noted?;
        self.serial += 1;
        head.fields.seal(HeadSerial(self.serial));
        Ok(())
    }

    /// Whether a byte of a head is here; empty lines before it do not count.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.buffer.has_begun()
    }

    /// Gives up memory while nothing is being read.
    pub fn trim(&mut self) {
        self.buffer.trim();
    }
}

/// Reads response heads, interim ones (1xx) included: the caller skips those it does not want.
#[derive(Debug)]
pub struct ResponseReader {
    buffer: HeadBuffer,
    /// The number of the last head that repeated no other.
    serial: u64,
}

impl ResponseReader {
    /// An empty reader.
    #[must_use]
    pub const fn new(limits: HeadLimits) -> Self {
        Self {
            buffer: HeadBuffer::new(limits, Start::Version),
            serial: 0,
        }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// The peer does not speak acceptable HTTP/1.1; the connection is of no further use.
    pub fn read(&mut self, input: &[u8]) -> Result<Progress<ResponseHead>, HeadError> {
        let mut head = ResponseHead::default();
        Ok(match self.read_into(input, &mut head)? {
            Some(used) => Progress::Done { head, used },
            None => Progress::NeedMore,
        })
    }

    /// As [`read`](Self::read), into a head that was used before: as
    /// [`RequestReader::read_into`] does, and for the same reasons.
    ///
    /// # Errors
    /// As of [`read`](Self::read).
    pub fn read_into(
        &mut self,
        input: &[u8],
        head: &mut ResponseHead,
    ) -> Result<Option<usize>, HeadError> {
        if self.buffer.is_empty() {
            if let Some(used) = head.fields.repeat(input) {
                return Ok(Some(used));
            }
        }
        let Some(used) = self.buffer.take(input)? else {
            return Ok(None);
        };
        let lines = self.buffer.lines;
        let mut bytes = head.fields.take_buffer();
        let start = self.buffer.swap(&mut bytes);
        let noted = note_response(head, &bytes, start, lines);
        head.fields.put_back(bytes);
        noted?;
        self.serial += 1;
        head.fields.seal(HeadSerial(self.serial));
        Ok(Some(used))
    }
}

/// How many fields of a head are parsed without an allocation.
const STACK_FIELDS: usize = 100;

/// Room for the fields of a head of so many lines: on the stack, for nearly all.
fn room_for<'r, T>(
    lines: usize,
    stack: &'r mut [MaybeUninit<T>; STACK_FIELDS],
    heap: &'r mut Vec<MaybeUninit<T>>,
) -> &'r mut [MaybeUninit<T>] {
    if lines > STACK_FIELDS + 1 {
        heap.resize_with(lines - 1, MaybeUninit::uninit);
        return heap;
    }
    stack
}

/// Notes where the parts of a whole head lie. `start` is behind the empty lines before it.
fn note_request(
    head: &mut HttpHead,
    bytes: &[u8],
    start: usize,
    lines: usize,
) -> Result<(), HeadError> {
    (head.method, head.target) = (Span::default(), Span::default());
    let (mut stack, mut heap) = ([const { MaybeUninit::uninit() }; STACK_FIELDS], Vec::new());
    let room = room_for(lines, &mut stack, &mut heap);
    let mut request = httparse::Request::new(&mut []);
    let whole = request
        .parse_with_uninit_headers(&bytes[start..], room)
        .map_err(syntax_fault)?;
    let (Some(found_method), Some(found_target), Some(version), true) = (
        request.method,
        request.path,
        request.version,
        whole.is_complete(),
    ) else {
        return Err(HeadError::StartLine);
    };
    if !found_target.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(HeadError::StartLine);
    }
    let hosts = request.headers.iter();
    let hosts = hosts.filter(|field| field.name.eq_ignore_ascii_case("host"));
    check_host(version, hosts.map(|field| field.value))?;
    head.method = Span::of(found_method.as_bytes(), bytes);
    head.target = Span::of(found_target.as_bytes(), bytes);
    head.minor = version;
    head.fields.note(bytes, parts_of(request.headers));
    Ok(())
}

/// The same for an answer.
fn note_response(
    head: &mut ResponseHead,
    bytes: &[u8],
    start: usize,
    lines: usize,
) -> Result<(), HeadError> {
    let (mut stack, mut heap) = ([const { MaybeUninit::uninit() }; STACK_FIELDS], Vec::new());
    let room = room_for(lines, &mut stack, &mut heap);
    let mut response = httparse::Response::new(&mut []);
    let whole = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut response, &bytes[start..], room)
        .map_err(syntax_fault)?;
    let (Some(status), Some(minor), true) = (response.code, response.version, whole.is_complete())
    else {
        return Err(HeadError::StartLine);
    };
    if status < 100 {
        return Err(HeadError::StartLine);
    }
    (head.status, head.minor) = (status, minor);
    head.fields.note(bytes, parts_of(response.headers));
    Ok(())
}

fn parts_of<'a>(headers: &'a [httparse::Header<'a>]) -> impl Iterator<Item = (&'a str, &'a [u8])> {
    headers.iter().map(|field| (field.name, field.value))
}

fn syntax_fault(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::Version => HeadError::Version,
        httparse::Error::Status | httparse::Error::Token => HeadError::StartLine,
        httparse::Error::HeaderName
        | httparse::Error::HeaderValue
        | httparse::Error::NewLine
        | httparse::Error::TooManyHeaders => HeadError::Field,
    }
}

/// RFC 9112 §3.2: one Host in HTTP/1.1, never two. An empty one names nobody we could be.
fn check_host<'a>(minor: u8, mut hosts: impl Iterator<Item = &'a [u8]>) -> Result<(), HeadError> {
    match (hosts.next(), hosts.next()) {
        (None, _) if minor == 0 => Ok(()),
        (None, _) => Err(HeadError::HostMissing),
        (Some(host), None) => {
            let host = std::str::from_utf8(host).map_err(|_| HeadError::HostInvalid)?;
            uri::authority_parts(host).map_err(|_| HeadError::HostInvalid)?;
            Ok(())
        }
        (Some(_), Some(_)) => Err(HeadError::HostRepeated),
    }
}

/// RFC 9110 §5.6.2: `tchar`. Asked of each byte of each name that is written.
const TOKEN_BYTES: [bool; 256] = {
    let mut token = [false; 256];
    let mut at = 0;
    while at < 128_u8 {
        token[at as usize] = at.is_ascii_alphanumeric()
            || matches!(
                at,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        at += 1;
    }
    token
};

pub(crate) const fn is_token_byte(b: u8) -> bool {
    TOKEN_BYTES[b as usize]
}

/// RFC 9110 §5.6.2: `token`, which names of fields and methods are.
pub(crate) fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|b| is_token_byte(*b))
}

#[cfg(test)]
mod tests;
