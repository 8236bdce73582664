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
use head::{Field, Kept, Key, Span};
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
        let head = parse_request(self.buffer.head(), self.buffer.lines)?;
        self.buffer.reset();
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
            if let Some(used) = head.repeat(input) {
                return Ok(Some(used));
            }
        }
        let Some(used) = self.buffer.take(input)? else {
            return Ok(None);
        };
        let lines = self.buffer.lines;
        head.serial = HeadSerial::default();
        let mut bytes = std::mem::take(&mut head.kept).into_bytes();
        let start = self.buffer.swap(&mut bytes);
        let noted = note_request(head, &bytes, start, lines);
        head.kept = Kept::of(bytes);
        noted?;
        head.find_length();
        self.serial += 1;
        head.serial = HeadSerial(self.serial);
        Ok(Some(used))
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
pub struct ResponseReader(HeadBuffer);

impl ResponseReader {
    /// An empty reader.
    #[must_use]
    pub const fn new(limits: HeadLimits) -> Self {
        Self(HeadBuffer::new(limits, Start::Version))
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// The peer does not speak acceptable HTTP/1.1; the connection is of no further use.
    pub fn read(&mut self, input: &[u8]) -> Result<Progress<ResponseHead>, HeadError> {
        let Some(used) = self.0.take(input)? else {
            return Ok(Progress::NeedMore);
        };
        let head = parse_response(self.0.head(), self.0.lines)?;
        self.0.reset();
        Ok(Progress::Done { head, used })
    }
}

fn parse_request(bytes: &[u8], lines: usize) -> Result<RequestHead, HeadError> {
    let mut headers = vec![httparse::EMPTY_HEADER; lines.saturating_sub(1)];
    let mut request = httparse::Request::new(&mut headers);
    let whole = request.parse(bytes).map_err(syntax_fault)?;
    let (Some(method), Some(target), Some(minor), true) = (
        request.method,
        request.path,
        request.version,
        whole.is_complete(),
    ) else {
        return Err(HeadError::StartLine);
    };
    if !target.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(HeadError::StartLine);
    }
    let head = RequestHead {
        method: method.to_owned(),
        target: target.to_owned(),
        minor,
        fields: fields_of(request.headers),
    };
    check_host(minor, head.fields.all("host"))?;
    Ok(head)
}

/// How many fields of an answer are parsed without an allocation.
const FEW_FIELDS: usize = 16;

/// How many fields of a request are parsed without an allocation.
const STACK_FIELDS: usize = 100;

/// Notes where the parts of a whole head lie. `start` is behind the empty lines before it.
fn note_request(
    head: &mut HttpHead,
    bytes: &[u8],
    start: usize,
    lines: usize,
) -> Result<(), HeadError> {
    let HttpHead {
        method,
        target,
        minor,
        fields,
        ..
    } = head;
    (*method, *target) = (Span::default(), Span::default());
    fields.clear();
    let mut stack = [const { MaybeUninit::uninit() }; STACK_FIELDS];
    let mut heap = Vec::new();
    let room = if lines > STACK_FIELDS + 1 {
        heap.resize(lines - 1, MaybeUninit::uninit());
        heap.as_mut_slice()
    } else {
        &mut stack
    };
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
    *method = Span::of(found_method.as_bytes(), bytes);
    *target = Span::of(found_target.as_bytes(), bytes);
    *minor = version;
    fields.extend(request.headers.iter().map(|field| {
        let name = field.name.as_bytes();
        Field {
            key: Key::of(name),
            name: Span::of(name, bytes),
            value: Span::of(field.value, bytes),
        }
    }));
    Ok(())
}

fn parse_response(bytes: &[u8], lines: usize) -> Result<ResponseHead, HeadError> {
    let mut stack = [httparse::EMPTY_HEADER; FEW_FIELDS];
    let mut heap = Vec::new();
    let fields = lines.saturating_sub(1);
    let headers = match stack.get_mut(..fields) {
        Some(headers) => headers,
        None => {
            heap.resize(fields, httparse::EMPTY_HEADER);
            heap.as_mut_slice()
        }
    };
    let mut response = httparse::Response::new(headers);
    let whole = response.parse(bytes).map_err(syntax_fault)?;
    let (Some(status), Some(minor), true) = (response.code, response.version, whole.is_complete())
    else {
        return Err(HeadError::StartLine);
    };
    if status < 100 {
        return Err(HeadError::StartLine);
    }
    Ok(ResponseHead {
        status,
        minor,
        fields: fields_of(response.headers),
    })
}

fn fields_of(headers: &[httparse::Header<'_>]) -> Fields {
    Fields::new(headers.iter().map(|field| (field.name, field.value)))
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

/// RFC 9110 §5.6.2: `tchar`.
pub(crate) fn is_token_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

#[cfg(test)]
mod tests;
