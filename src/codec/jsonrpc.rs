//! JSON-RPC 2.0 messages: what an envelope is, ids that outlive it, and writers.
//!
//! | `method` | `id`               | `result`, `error` | message                      |
//! |----------|--------------------|-------------------|------------------------------|
//! | string   | usable             | neither           | [`Message::Request`]         |
//! | string   | absent             | neither           | [`Message::Notification`]    |
//! | string   | null, other kind   | neither           | [`Reason::Id`]               |
//! | string   | any                | one or both       | [`Reason::MethodAndOutcome`] |
//! | other    | any                | any               | [`Reason::Method`]           |
//! | absent   | any                | one               | [`Message::Response`]        |
//! | absent   | any                | both              | [`Reason::ResultAndError`]   |
//! | absent   | any                | neither           | [`Reason::NoMethod`]         |
//!
//! Before all of these: `jsonrpc` must say `2.0`. `params`, when there are any, must be an object, and so
//! must `error`.
//!
//! Source: JSON-RPC 2.0 §4, §5; Spec: 2025-11-25 basic (ids are strings or integers, params are objects).

use std::cmp::Ordering;
use std::fmt;

use super::json_text::append_string;
use super::scan::{Envelope, IdField, Text};
use crate::secret::Quoted;

/// One message, by kind; everything else it says is in its [`Envelope`].
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// Wants exactly one answer.
    Request {
        /// Raw text of its id, to be echoed as it is.
        id: &'a str,
        /// What is asked.
        method: Text<'a>,
    },
    /// Wants no answer.
    Notification {
        /// What is told.
        method: Text<'a>,
    },
    /// Answers a request. The id is as the peer spelled it: peers are known to answer `"1"` or `1.0` to a
    /// request with id `1`, and to leave it out or say `null` in an error.
    Response {
        /// The id.
        id: IdField<'a>,
        /// The answer.
        outcome: Outcome<'a>,
    },
}

/// What a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// The raw result, of whatever kind.
    Result(&'a str),
    /// The raw error object.
    Error(&'a str),
}

/// An object that is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invalid<'a> {
    /// The raw id to answer with, when there is a usable one.
    pub id: Option<&'a str>,
    /// Whether it was meant as a response: such a thing is never answered, only counted.
    pub is_response: bool,
    /// What is wrong.
    pub reason: Reason,
}

impl fmt::Display for Invalid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

/// Why an object is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// `jsonrpc` is absent or not `"2.0"`.
    Version,
    /// Neither a method nor an outcome.
    NoMethod,
    /// The method is no string.
    Method,
    /// A method together with a result or an error.
    MethodAndOutcome,
    /// A result together with an error.
    ResultAndError,
    /// The id of a request is null, neither string nor 64-bit integer, or too long.
    Id,
    /// The parameters are no object.
    Params,
    /// The error is no object.
    Error,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "jsonrpc must be \"2.0\"",
            Self::NoMethod => "neither method nor result nor error",
            Self::Method => "method must be a string",
            Self::MethodAndOutcome => "method beside result or error",
            Self::ResultAndError => "result beside error",
            Self::Id => "id must be a string or a 64-bit integer within the length limit",
            Self::Params => "params must be an object",
            Self::Error => "error must be an object",
        })
    }
}

/// Decides what an envelope is.
///
/// # Errors
/// When it is no JSON-RPC 2.0 message. A request whose id cannot be used is an error too, never a
/// notification, for then its sender would wait in vain.
pub fn classify<'a>(envelope: &Envelope<'a>) -> Result<Message<'a>, Invalid<'a>> {
    let has_method = envelope.method.is_some() || envelope.method_not_text;
    let has_outcome = envelope.result.is_some() || envelope.error.is_some();
    let invalid = |reason| {
        Err(Invalid {
            id: envelope.id.usable(),
            is_response: has_outcome && !has_method,
            reason,
        })
    };
    if !envelope.version_ok {
        return invalid(Reason::Version);
    }
    if envelope.method_not_text {
        return invalid(Reason::Method);
    }
    let Some(method) = envelope.method else {
        let id = envelope.id;
        let outcome = match (envelope.result, envelope.error) {
            (Some(result), None) => Outcome::Result(result),
            (None, Some(error)) if error.starts_with('{') => Outcome::Error(error),
            (None, Some(_)) => return invalid(Reason::Error),
            (Some(_), Some(_)) => return invalid(Reason::ResultAndError),
            (None, None) => return invalid(Reason::NoMethod),
        };
        return Ok(Message::Response { id, outcome });
    };
    if has_outcome {
        return invalid(Reason::MethodAndOutcome);
    }
    if envelope.params.is_some_and(|raw| !raw.starts_with('{')) {
        return invalid(Reason::Params);
    }
    match envelope.id {
        IdField::Usable(id) => Ok(Message::Request { id, method }),
        IdField::Absent => Ok(Message::Notification { method }),
        IdField::Null | IdField::Unusable(_) => invalid(Reason::Id),
    }
}

/// Ids of at most this many raw bytes need no allocation: any integer, a UUID in quotes.
const INLINE_ID_BYTES: usize = 38;

/// The id of a request, kept while the request is open. It is echoed as it was spelled and compared by what
/// it means: integers by value, strings by content, and `1` is not `"1"`.
#[derive(Clone)]
pub struct RequestId(Kept);

#[derive(Clone)]
enum Kept {
    Inline {
        length: u8,
        bytes: [u8; INLINE_ID_BYTES],
    },
    Boxed(Box<str>),
}

/// What an id means. The derived order puts integers before strings.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Meaning<'a> {
    Integer(i128),
    Text(Text<'a>),
    /// Not a usable id; equal only when spelled alike.
    Other(&'a str),
}

impl RequestId {
    /// Copies a usable id: see [`IdField::Usable`].
    #[must_use]
    pub fn from_raw(raw: &str) -> Self {
        let mut bytes = [0; INLINE_ID_BYTES];
        match (bytes.get_mut(..raw.len()), u8::try_from(raw.len())) {
            (Some(place), Ok(length)) => {
                place.copy_from_slice(raw.as_bytes());
                Self(Kept::Inline { length, bytes })
            }
            _ => Self(Kept::Boxed(raw.into())),
        }
    }

    /// The id as it was spelled, quotes included.
    #[must_use]
    pub fn raw(&self) -> &str {
        match &self.0 {
            Kept::Inline { .. } => std::str::from_utf8(self.as_bytes())
                .expect("the bytes were copied from a whole str"),
            Kept::Boxed(raw) => raw,
        }
    }

    /// The same as bytes, to be written.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Kept::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Kept::Boxed(raw) => raw.as_bytes(),
        }
    }

    /// Whether it means the same as this usable id.
    #[must_use]
    pub fn is(&self, raw: &str) -> bool {
        self.as_bytes() == raw.as_bytes() || Meaning::of(self.raw()) == Meaning::of(raw)
    }
}

impl<'a> Meaning<'a> {
    fn of(raw: &'a str) -> Self {
        match (raw.parse(), Text::of_value(raw)) {
            (Ok(value), _) => Self::Integer(value),
            (Err(_), Some(text)) => Self::Text(text),
            (Err(_), None) => Self::Other(raw),
        }
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.is(other.raw())
    }
}

impl Eq for RequestId {}

impl PartialOrd for RequestId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RequestId {
    fn cmp(&self, other: &Self) -> Ordering {
        Meaning::of(self.raw()).cmp(&Meaning::of(other.raw()))
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestId({})", Quoted(self.raw()))
    }
}

/// Appends a request of ours. `params` is a raw object.
///
/// Like all writers here it appends one message on one line and no line feed: line breaks between the tokens
/// of raw text, which a message that came over HTTP may have, are left out.
pub fn write_request(out: &mut Vec<u8>, id: u64, method: &str, params: Option<&str>) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    append_u64(out, id);
    out.push(b',');
    append_call(out, method, params);
}

/// Appends a notification. `params` is a raw object.
pub fn write_notification(out: &mut Vec<u8>, method: &str, params: Option<&str>) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","#);
    append_call(out, method, params);
}

/// Appends the answer to the request whose raw id is `id_raw`. `result_raw` is any raw value.
pub fn write_result(out: &mut Vec<u8>, id_raw: &str, result_raw: &str) {
    begin_result(out, id_raw.as_bytes());
    append_raw(out, result_raw);
    out.push(b'}');
}

/// Appends a result up to its value, behind which a brace is to follow.
pub fn begin_result(out: &mut Vec<u8>, id_raw: &[u8]) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id_raw);
    out.extend_from_slice(br#","result":"#);
}

/// Appends an error. `id_raw` is the raw id of the request, `None` when it could not be told, which is written
/// as `null` (JSON-RPC 2.0 §5). `data_raw` is any raw value.
pub fn write_error(
    out: &mut Vec<u8>,
    id_raw: Option<&str>,
    code: i32,
    message: &str,
    data_raw: Option<&str>,
) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id_raw.unwrap_or("null").as_bytes());
    out.extend_from_slice(br#","error":{"code":"#);
    if code < 0 {
        out.push(b'-');
    }
    append_u64(out, code.unsigned_abs().into());
    out.extend_from_slice(br#","message":"#);
    append_string(out, message);
    if let Some(data) = data_raw {
        out.extend_from_slice(br#","data":"#);
        append_raw(out, data);
    }
    out.extend_from_slice(b"}}");
}

/// Writes an error response whose error object is somebody else's, as it came.
pub fn write_raw_error(out: &mut Vec<u8>, id_raw: &str, error_raw: &str) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id_raw.as_bytes());
    out.extend_from_slice(br#","error":"#);
    append_raw(out, error_raw);
    out.push(b'}');
}

fn append_call(out: &mut Vec<u8>, method: &str, params: Option<&str>) {
    out.extend_from_slice(br#""method":"#);
    append_string(out, method);
    if let Some(params) = params {
        out.extend_from_slice(br#","params":"#);
        append_raw(out, params);
    }
    out.push(b'}');
}

/// Appends valid raw JSON without line breaks. Inside strings there are none, so each is white space.
pub fn append_raw(out: &mut Vec<u8>, raw: &str) {
    let mut rest = raw.as_bytes();
    while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
}

/// Appends a number in decimal digits.
pub(crate) fn append_u64(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::scan::{ScanLimits, Scanned, scan};
    use crate::limits::Limits;

    fn envelope(raw: &str) -> Envelope<'_> {
        match scan(raw.as_bytes(), &ScanLimits::from(&Limits::DEFAULT)) {
            Ok(Scanned::One(envelope)) => envelope,
            other => panic!("{raw} is no object: {other:?}"),
        }
    }

    fn invalid(raw: &str) -> Invalid<'_> {
        classify(&envelope(raw)).expect_err(raw)
    }

    #[test]
    fn the_table_holds() {
        // One row for each row of the module's table, and the conditions before and after it.
        let rows = [
            (r#""method":"m","id":1"#, "request"),
            (r#""method":"m","id":"x","params":{}"#, "request"),
            (r#""method":"m""#, "notification"),
            (r#""method":"m","id":null"#, "Id"),
            (r#""method":"m","id":{}"#, "Id"),
            (r#""method":"m","id":1.5"#, "Id"),
            (r#""method":"m","id":1e400"#, "Id"),
            (r#""method":"m","id":true"#, "Id"),
            (r#""method":"m","id":18446744073709551616"#, "Id"),
            (r#""method":"m","id":1,"result":{}"#, "MethodAndOutcome"),
            (r#""method":"m","error":null"#, "MethodAndOutcome"),
            (r#""method":7,"id":1"#, "Method"),
            (r#""method":null,"result":{}"#, "Method"),
            (r#""id":1,"result":null"#, "response"),
            (r#""id":null,"error":{}"#, "response"),
            (r#""error":{}"#, "response"),
            (r#""id":1.0,"result":{}"#, "response"),
            (r#""id":1,"result":{},"error":{}"#, "ResultAndError"),
            (r#""id":1,"result":{},"error":null"#, "ResultAndError"),
            (r#""id":1,"error":"text""#, "Error"),
            (r#""id":1"#, "NoMethod"),
            (r#""method":"m","id":1,"params":[]"#, "Params"),
            (r#""method":"m","id":1,"params":null"#, "Params"),
        ];
        for (members, wanted) in rows {
            let raw = format!(r#"{{"jsonrpc":"2.0",{members}}}"#);
            let found = match classify(&envelope(&raw)) {
                Ok(Message::Request { .. }) => "request".to_owned(),
                Ok(Message::Notification { .. }) => "notification".to_owned(),
                Ok(Message::Response { .. }) => "response".to_owned(),
                Err(invalid) => format!("{:?}", invalid.reason),
            };
            assert_eq!(found, wanted, "{raw}");
        }
    }

    #[test]
    fn the_version_is_asked_first() {
        for version in ["", r#""jsonrpc":"1.0","#, r#""jsonrpc":2.0,"#] {
            let raw = format!(r#"{{{version}"id":1,"method":7}}"#);
            assert_eq!(invalid(&raw).reason, Reason::Version, "{raw}");
        }
    }

    #[test]
    fn an_invalid_message_says_whom_to_answer() {
        let request = invalid(r#"{"id":"a","method":"m"}"#);
        assert_eq!((request.id, request.is_response), (Some("\"a\""), false));
        let nameless = invalid(r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#);
        assert_eq!((nameless.id, nameless.is_response), (None, false));
        let response = invalid(r#"{"jsonrpc":"2.0","id":1,"error":7}"#);
        assert_eq!((response.id, response.is_response), (Some("1"), true));
    }

    #[test]
    fn ids_are_echoed_as_spelled_and_compared_by_meaning() {
        let id = RequestId::from_raw;
        let long = format!("\"{}\"", "é".repeat(100));
        for raw in ["0", "-0", "18446744073709551615", r#""\u0061""#, &long] {
            assert_eq!(id(raw).raw(), raw);
            assert_eq!(id(raw).clone(), id(raw));
        }
        assert_eq!(id("-0"), id("0"));
        assert_eq!(id(r#""\u0061""#), id(r#""a""#));
        assert_ne!(id("1"), id("\"1\""));
        assert_ne!(id(r#""\ud800""#), id(r#""\ud801""#));
        let mut ids = ["\"10\"", "10", "9", "-1", "\"9\"", "18446744073709551615"].map(id);
        ids.sort();
        let raws: Vec<_> = ids.iter().map(RequestId::raw).collect();
        assert_eq!(
            raws,
            ["-1", "9", "10", "18446744073709551615", "\"10\"", "\"9\""]
        );
    }

    #[test]
    fn equality_and_order_agree() {
        let spellings = ["1", "\"1\"", "-0", "0", r#""\u0031""#, "1.5", "null"];
        for left in spellings.map(RequestId::from_raw) {
            for right in spellings.map(RequestId::from_raw) {
                assert_eq!(
                    left == right,
                    left.cmp(&right) == Ordering::Equal,
                    "{left:?} {right:?}"
                );
            }
        }
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"before ".to_vec();
        write(&mut out);
        let text = String::from_utf8(out).expect("writers write text");
        text.strip_prefix("before ")
            .expect("writers append")
            .to_owned()
    }

    #[test]
    fn writers_put_members_in_order() {
        assert_eq!(
            written(|out| write_request(out, u64::MAX, "tools/call", Some(r#"{"a":1.0}"#))),
            r#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"tools/call","params":{"a":1.0}}"#
        );
        assert_eq!(
            written(|out| write_request(out, 0, "ping", None)),
            r#"{"jsonrpc":"2.0","id":0,"method":"ping"}"#
        );
        assert_eq!(
            written(|out| write_notification(out, "a\"b", None)),
            r#"{"jsonrpc":"2.0","method":"a\"b"}"#
        );
        assert_eq!(
            written(|out| write_result(out, r#""\u0061""#, "null")),
            r#"{"jsonrpc":"2.0","id":"\u0061","result":null}"#
        );
        assert_eq!(
            written(|out| write_error(out, None, i32::MIN, "bad\n", Some("[1]"))),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-2147483648,"message":"bad\n","data":[1]}}"#
        );
        assert_eq!(
            written(|out| write_error(out, Some("7"), 0, "", None)),
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":0,"message":""}}"#
        );
    }

    #[test]
    fn an_error_of_somebody_else_keeps_its_bytes() {
        let raw = r#"{ "code":-3.2e4,"message":"\u00e9","x":[1.0] }"#;
        assert_eq!(
            written(|out| write_raw_error(out, "\"a\"", raw)),
            format!(r#"{{"jsonrpc":"2.0","id":"a","error":{raw}}}"#)
        );
    }

    #[test]
    fn a_message_stays_on_one_line() {
        let laid_out = "{\r\n  \"a\": [\n    1\n  ]\r\n}";
        assert_eq!(
            written(|out| write_result(out, "1", laid_out)),
            r#"{"jsonrpc":"2.0","id":1,"result":{  "a": [    1  ]}}"#
        );
    }
}
