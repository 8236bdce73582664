//! Heads of answers.

use super::date::DATE_BYTES;
use crate::codec::http_body::{LENGTH_FIELD, LengthMark, append_decimal};
use crate::codec::http1::append_field;

/// The head of a JSON answer up to its first optional field, with the places that are filled in.
const JSON_HEAD: &[u8; 114] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
    Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Length:           \r\n";
const JSON_DATE: usize = 55;
const JSON_LENGTH: usize = JSON_HEAD.len() - LENGTH_FIELD.len();

const SSE_FIELDS: &[u8] = b"Content-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
    X-Accel-Buffering: no\r\n";

/// What an answer says of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persistence {
    /// Goes on, which HTTP/1.1 does not mention.
    Keep,
    /// Goes on, which HTTP/1.0 must be told.
    KeepOld,
    /// Ends behind this answer.
    Close,
}

impl Persistence {
    fn append(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Self::Keep => b"",
            Self::KeepOld => b"Connection: keep-alive\r\n",
            Self::Close => b"Connection: close\r\n",
        });
    }
}

/// Writes the head of an answer; `length` is left out where there cannot be a body.
pub(super) fn write_head(
    out: &mut Vec<u8>,
    status: u16,
    date: &[u8; DATE_BYTES],
    headers: &[(&str, &str)],
    length: Option<usize>,
    persistence: Persistence,
) {
    write_status(out, status, date);
    if let Some(length) = length {
        out.extend_from_slice(b"Content-Length: ");
        append_decimal(out, u64::try_from(length).unwrap_or(u64::MAX));
        out.extend_from_slice(b"\r\n");
    }
    append_headers(out, headers);
    persistence.append(out);
    out.extend_from_slice(b"\r\n");
}

/// Writes the head of a JSON answer whose date and length are filled in when it is whole.
pub(super) fn write_json_head(
    out: &mut Vec<u8>,
    headers: &[(&str, &str)],
    persistence: Persistence,
) -> LengthMark {
    let start = out.len();
    out.extend_from_slice(JSON_HEAD);
    append_headers(out, headers);
    persistence.append(out);
    out.extend_from_slice(b"\r\n");
    LengthMark {
        field: start + JSON_LENGTH,
        body: out.len(),
    }
}

/// Fills in the date of a head that begins at `start`.
pub(super) fn patch_json_date(out: &mut [u8], start: usize, date: &[u8; DATE_BYTES]) {
    if let Some(place) = out.get_mut(start + JSON_DATE..start + JSON_DATE + DATE_BYTES) {
        place.copy_from_slice(date);
    }
}

/// Writes the head of an event stream.
pub(super) fn write_sse_head(
    out: &mut Vec<u8>,
    date: &[u8; DATE_BYTES],
    headers: &[(&str, &str)],
    chunked: bool,
    persistence: Persistence,
) {
    write_status(out, 200, date);
    out.extend_from_slice(SSE_FIELDS);
    if chunked {
        out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    append_headers(out, headers);
    persistence.append(out);
    out.extend_from_slice(b"\r\n");
}

/// Answers that tell the client to send its body.
pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

fn write_status(out: &mut Vec<u8>, status: u16, date: &[u8; DATE_BYTES]) {
    out.extend_from_slice(b"HTTP/1.1 ");
    append_decimal(out, status.into());
    out.push(b' ');
    out.extend_from_slice(reason(status).as_bytes());
    out.extend_from_slice(b"\r\nDate: ");
    out.extend_from_slice(date);
    out.extend_from_slice(b"\r\n");
}

/// Appends the owner's fields. Those that would change where the answer ends are ours, and one that
/// cannot be written would end the head: both are left out.
fn append_headers(out: &mut Vec<u8>, headers: &[(&str, &str)]) {
    for (name, value) in headers {
        let framing = ["content-length", "transfer-encoding", "connection"];
        if framing.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
            log::error!("an answer may not set {name}");
            continue;
        }
        if let Err(error) = append_field(out, name, value) {
            log::error!("left out of an answer: {error}");
        }
    }
}

/// Whether an answer with this status can have a body. RFC 9110 §6.4.1.
pub(super) const fn has_body(status: u16) -> bool {
    !matches!(status, 204 | 304)
}

const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}
