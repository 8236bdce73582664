//! Writes event streams. Whatever text comes in, it cannot begin a line of its own.

use memchr::memchr2;

use crate::codec::http_body::append_decimal;

/// Where the data of an event in the making begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventMark(usize);

/// Begins an event with one `data` line: its text is to be appended behind it. An `id` or `event`
/// that could not stand on one line (CR, LF, NUL) is left out.
pub fn begin_event(out: &mut Vec<u8>, event: Option<&str>, id: Option<&str>) -> EventMark {
    for (name, value) in [(&b"event: "[..], event), (b"id: ", id)] {
        let Some(value) = value.filter(|value| is_line(value)) else {
            continue;
        };
        out.extend_from_slice(name);
        out.extend_from_slice(value.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    EventMark(out.len())
}

/// Ends an event. Data with line breaks in it becomes as many `data` lines, which the reader joins by
/// LF again.
pub fn end_event(out: &mut Vec<u8>, mark: EventMark) {
    let EventMark(start) = mark;
    if let Some(at) = memchr2(b'\n', b'\r', &out[start..]) {
        let broken = out.split_off(start + at);
        append_lines(out, b"data: ", &broken);
    }
    out.extend_from_slice(b"\n\n");
}

/// Writes a whole event.
pub fn write_event(out: &mut Vec<u8>, event: Option<&str>, id: Option<&str>, data: &[u8]) {
    let mark = begin_event(out, event, id);
    out.extend_from_slice(data);
    end_event(out, mark);
}

/// Writes a comment, which every reader ignores: a sign of life.
pub fn write_comment(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(b": ");
    append_lines(out, b": ", text);
    out.extend_from_slice(b"\n\n");
}

/// Writes how long a reader is to wait before it connects again, in milliseconds.
pub fn write_retry(out: &mut Vec<u8>, ms: u64) {
    out.extend_from_slice(b"retry: ");
    append_decimal(out, ms);
    out.extend_from_slice(b"\n\n");
}

/// Appends text, with `prefix` behind each of its line breaks. CRLF is one line break.
fn append_lines(out: &mut Vec<u8>, prefix: &[u8], text: &[u8]) {
    let mut rest = text;
    while let Some(at) = memchr2(b'\n', b'\r', rest) {
        out.extend_from_slice(&rest[..at]);
        out.push(b'\n');
        out.extend_from_slice(prefix);
        let broken = if rest[at..].starts_with(b"\r\n") {
            2
        } else {
            1
        };
        rest = &rest[at + broken..];
    }
    out.extend_from_slice(rest);
}

fn is_line(text: &str) -> bool {
    !text.bytes().any(|b| matches!(b, b'\r' | b'\n' | b'\0'))
}
