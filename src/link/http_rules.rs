//! What the head of an HTTP request must say before its body counts: who calls, in which media types, and
//! whether the routing headers of 2026-07-28 say what the body says.
//!
//! Pure functions over a [`HeadView`]; nothing is remembered from one request to the next. In the order in
//! which the front asks:
//!
//! | check                    | refuses                                              | with                 |
//! |--------------------------|------------------------------------------------------|----------------------|
//! | [`check_access`]         | no Host, two of them, one that is none               | 400                  |
//! |                          | a foreign Host, a foreign Origin                     | 403                  |
//! |                          | a token in the URL, two Authorization fields         | 400                  |
//! |                          | no bearer token, a wrong one                         | 401                  |
//! | [`HttpMethod::of`]       | anything but POST, GET and DELETE                    | 405                  |
//! | [`check_post`]           | a body that is not `application/json`, or encoded    | 415                  |
//! |                          | a client that takes neither of our media types       | 406                  |
//! | [`check_get`]            | a client that takes no event stream                  | 406                  |
//! | … and [`check_delete`]   | a version without sessions; one we do not know       | 405; 400             |
//! | [`session_id`]           | a session id that is repeated, long or no ASCII      | 400                  |
//! | [`check_modern_headers`] | routing headers that are missing or contradict       | 400, -32020          |
//! |                          | metadata without version; a version we do not speak  | 400, -32602; -32022  |
//!
//! [`check_access`] guards every request, whatever its method and path, before its body is read.
//!
//! Source: Spec 2025-11-25 basic/transports, 2026-07-28 basic/transports/streamable-http;
//! reliability-security T18, T22 to T25, T30; conformance §3.2.
//! Never: reads a body, keeps a value, quotes a credential.

mod access;
mod authority;
mod media;
mod mirror;
mod param;
mod session;
mod value;
mod version;
mod view;

pub use access::{AccessRules, Principal, RuleError, check_access};
pub use media::{Accepts, HttpMethod, check_delete, check_get, check_post};
pub use mirror::{RoutingPlaces, check_modern_headers, check_param_headers, version_header};
pub use param::{ParamHeader, ParamKind, param_headers};
pub use session::{SESSION_ID_BYTES_MAX, session_id};
pub use value::{ValueError, decode_value, encode_value};
pub use version::VersionHeader;

use crate::codec::json_text::write_string;
use crate::protocol::error::ErrorCode;

/// The headers of a request that go on to whoever is asked in its service; no other does. Source: W3C Trace
/// Context (traceparent, tracestate); case f06.
pub const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// What the checks need of a request head. Names compare without regard to letter case.
pub trait HeadView {
    /// The method, as sent.
    fn method(&self) -> &str;

    /// The request target: path and query, as sent.
    fn target(&self) -> &str;

    /// How many fields are called `name`.
    fn field_count(&self, name: &str) -> usize;

    /// The value of the `nth` field called `name`, counted from 0. `None` when there are not so many, and when
    /// the value is no UTF-8.
    fn nth_field(&self, name: &str, nth: usize) -> Option<&str>;

    /// The value of the first field called `name`; see [`nth_field`](Self::nth_field).
    fn field(&self, name: &str) -> Option<&str> {
        self.nth_field(name, 0)
    }

    /// The value of a field that may stand once. A head that finds this in one pass should say so here: the
    /// checks ask for little else.
    fn once(&self, name: &str) -> Once<'_> {
        match self.field_count(name) {
            0 => Once::Absent,
            1 => self.field(name).map_or(Once::NotText, Once::Value),
            count => Once::Repeated(count),
        }
    }
}

/// A field that may stand once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Once<'a> {
    /// There is none.
    Absent,
    /// There is one: its value.
    Value(&'a str),
    /// There is one, and its value is no UTF-8.
    NotText,
    /// There are several: how many.
    Repeated(usize),
}

/// An answer that ends an exchange before its message was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRefusal {
    /// HTTP status.
    pub status: u16,
    /// Fields beside the framing, `Content-Type` included.
    pub headers: Vec<(&'static str, String)>,
    /// A JSON-RPC error without id: one line, which names the header, the rule and the value.
    pub body: String,
}

impl HttpRefusal {
    /// A refusal with -32600 in its body. `message` is one line; peers' text in it is quoted.
    #[must_use]
    pub fn new(status: u16, message: &str) -> Self {
        let code = ErrorCode::InvalidRequest.number();
        let mut body = format!(r#"{{"jsonrpc":"2.0","error":{{"code":{code},"message":"#);
        write_string(&mut body, message);
        body.push_str("}}");
        Self {
            status,
            headers: vec![("Content-Type", "application/json".to_owned())],
            body,
        }
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A value without the blanks around it. Source: RFC 9110 §5.5.
fn trimmed(value: &str) -> &str {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let bytes = value.as_bytes();
    let start = bytes.iter().take_while(|b| blank(b)).count();
    let end = bytes[start..].iter().rev().take_while(|b| blank(b)).count();
    &value[start..bytes.len() - end]
}

#[cfg(test)]
mod tests;
