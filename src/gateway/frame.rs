//! Frames of the Gateway protocol: one JSON document per WebSocket text frame.
//!
//! Reading keeps `params`, `payload` and `details` as raw slices of the text, so a frame that
//! nobody wants costs one pass over its bytes and no copy. A frame that is not understood is a
//! [`FrameError`] for the reader to count; it never ends a connection.
//!
//! Source: OpenClaw 2026.6.11, Gateway protocol 4 (frames).

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Visitor};
use serde_json::value::RawValue;

use crate::codec::json_text::write_string;
use crate::codec::object::from_object;
use crate::secret::Quoted;

/// One frame, borrowed from its text.
#[derive(Clone, Debug)]
pub enum Frame<'a> {
    /// Asks for an answer.
    Request(Request<'a>),
    /// Answers a request.
    Response(Response<'a>),
    /// Tells something.
    Event(Event<'a>),
}

/// `{"type":"req","id","method","params"?}`.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// Chosen by the sender, never empty.
    pub id: Cow<'a, str>,
    /// What to do.
    pub method: Cow<'a, str>,
    /// Raw; absent and `null` are the same.
    pub params: Option<&'a RawValue>,
}

/// `{"type":"res","id","ok","payload"?}` or `{"type":"res","id","ok","error"}`.
#[derive(Clone, Debug)]
pub struct Response<'a> {
    /// That of the request.
    pub id: Cow<'a, str>,
    /// The payload (absent and `null` are the same), or what went wrong.
    pub outcome: Result<Option<&'a RawValue>, ErrorBody<'a>>,
}

/// `{"type":"event","event","payload"?}`. The members `seq` and `stateVersion` are not read: they
/// stand on broadcasts only, and no event the bridge acts on is one.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// Raw; absent and `null` are the same.
    pub payload: Option<&'a RawValue>,
}

/// The `error` member of a refused request.
#[derive(Clone, Debug)]
pub struct ErrorBody<'a> {
    /// One of the Gateway's codes, `INVALID_REQUEST` for most things. Never empty.
    pub code: Cow<'a, str>,
    /// For people. Never empty.
    pub message: Cow<'a, str>,
    /// Raw; often an object with a finer `code` or `reason`.
    pub details: Option<&'a RawValue>,
    /// Whether the same request may succeed a little later.
    pub retryable: bool,
    /// How much later, in milliseconds.
    pub retry_after_ms: Option<u64>,
}

/// Why a text is no frame.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// No JSON, or JSON cut short; where that shows.
    Json {
        /// Line, from 1.
        line: usize,
        /// Byte of the line, from 1.
        column: usize,
    },
    /// Something other than a JSON object.
    NotObject,
    /// An object, but with a member of another type, or with one twice; where that shows.
    Shape {
        /// Line, from 1.
        line: usize,
        /// Byte of the line, from 1.
        column: usize,
    },
    /// No `type`, or one that does not exist.
    Type(String),
    /// The frame lacks a member that its type must have, or has it empty.
    Missing(&'static str),
    /// A refusal whose `error` cannot be read.
    ErrorMember,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json { line, column } => write!(f, "not JSON at line {line}, byte {column}"),
            Self::NotObject => f.write_str("not a JSON object"),
            Self::Shape { line, column } => {
                write!(
                    f,
                    "member repeated or of the wrong type at line {line}, byte {column}"
                )
            }
            Self::Type(kind) if kind.is_empty() => f.write_str("no member type"),
            Self::Type(kind) => write!(f, "unknown type {}", Quoted(kind)),
            Self::Missing(member) => write!(f, "member {member} is missing or empty"),
            Self::ErrorMember => f.write_str("member error has no code and message"),
        }
    }
}

impl std::error::Error for FrameError {}

impl<'a> Frame<'a> {
    /// Reads one frame. Members that are not known are skipped.
    ///
    /// # Errors
    /// When `text` is no frame; see [`FrameError`].
    pub fn parse(text: &'a str) -> Result<Self, FrameError> {
        // A derived reader would take an array for the members in order.
        if !opens_object(text) {
            return Err(FrameError::NotObject);
        }
        let members: Members<'a> = from_object(text).map_err(|e| placed(&e))?;
        let kind = members.kind.map(|Text(kind)| kind).unwrap_or_default();
        match &*kind {
            "req" => Ok(Self::Request(Request {
                id: filled(members.id, "id")?,
                method: filled(members.method, "method")?,
                params: members.params,
            })),
            "res" => Ok(Self::Response(Response {
                id: filled(members.id, "id")?,
                outcome: match members.ok.ok_or(FrameError::Missing("ok"))? {
                    true => Ok(members.payload),
                    false => Err(ErrorBody::parse(members.error)?),
                },
            })),
            "event" => Ok(Self::Event(Event {
                name: filled(members.event, "event")?,
                payload: members.payload,
            })),
            _ => Err(FrameError::Type(kind.into_owned())),
        }
    }
}

impl<'a> ErrorBody<'a> {
    fn parse(raw: Option<&'a RawValue>) -> Result<Self, FrameError> {
        let raw = raw.ok_or(FrameError::Missing("error"))?;
        if !opens_object(raw.get()) {
            return Err(FrameError::ErrorMember);
        }
        let members: ErrorMembers<'a> =
            from_object(raw.get()).map_err(|_| FrameError::ErrorMember)?;
        let text = |member| filled(member, "error").map_err(|_| FrameError::ErrorMember);
        Ok(Self {
            code: text(members.code)?,
            message: text(members.message)?,
            details: members.details,
            retryable: members.retryable.unwrap_or(false),
            retry_after_ms: members.retry_after_ms.and_then(whole_number),
        })
    }
}

/// Appends a request frame; `params` is a raw JSON value.
pub fn write_request(out: &mut String, id: &str, method: &str, params: &str) {
    out.push_str(r#"{"type":"req","id":"#);
    write_string(out, id);
    out.push_str(r#","method":"#);
    write_string(out, method);
    out.push_str(r#","params":"#);
    out.push_str(params);
    out.push('}');
}

/// Appends the answer to a request that was done; `payload` is a raw JSON value.
pub fn write_answer(out: &mut String, id: &str, payload: &str) {
    out.push_str(r#"{"type":"res","id":"#);
    write_string(out, id);
    out.push_str(r#","ok":true,"payload":"#);
    out.push_str(payload);
    out.push('}');
}

/// Appends the answer to a request that was refused; `details` is a raw JSON value.
pub fn write_refusal(out: &mut String, id: &str, code: &str, message: &str, details: Option<&str>) {
    out.push_str(r#"{"type":"res","id":"#);
    write_string(out, id);
    out.push_str(r#","ok":false,"error":{"code":"#);
    write_string(out, code);
    out.push_str(r#","message":"#);
    write_string(out, message);
    if let Some(details) = details {
        out.push_str(r#","details":"#);
        out.push_str(details);
    }
    out.push_str("}}");
}

/// Appends an event frame; `payload` is a raw JSON value, `seq` counts broadcasts on one
/// connection.
pub fn write_event(out: &mut String, name: &str, payload: &str, seq: Option<u64>) {
    out.push_str(r#"{"type":"event","event":"#);
    write_string(out, name);
    out.push_str(r#","payload":"#);
    out.push_str(payload);
    if let Some(seq) = seq {
        out.push_str(r#","seq":"#);
        out.push_str(&seq.to_string());
    }
    out.push('}');
}

/// Reads a raw JSON number that counts something; `None` for anything else. A fraction is cut off
/// and a value out of range becomes the nearest in range, as the peer is not bound to our integer
/// types.
#[must_use]
pub fn whole_number(raw: &RawValue) -> Option<u64> {
    let value: f64 = serde_json::from_str(raw.get()).ok()?;
    // A float converts to the nearest integer in range, never to garbage.
    Some(value as u64)
}

#[derive(Deserialize)]
struct Members<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    method: Option<Text<'a>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(default)]
    ok: Option<bool>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    event: Option<Text<'a>>,
}

#[derive(Deserialize)]
struct ErrorMembers<'a> {
    #[serde(borrow, default)]
    code: Option<Text<'a>>,
    #[serde(borrow, default)]
    message: Option<Text<'a>>,
    #[serde(borrow, default)]
    details: Option<&'a RawValue>,
    #[serde(default)]
    retryable: Option<bool>,
    #[serde(rename = "retryAfterMs", borrow, default)]
    retry_after_ms: Option<&'a RawValue>,
}

/// A string that is borrowed unless it had escapes. (An `Option<Cow<str>>` of serde always copies.)
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsText;
        impl<'de> Visitor<'de> for AsText {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(AsText)
    }
}

fn filled<'a>(member: Option<Text<'a>>, name: &'static str) -> Result<Cow<'a, str>, FrameError> {
    match member {
        Some(Text(text)) if !text.is_empty() => Ok(text),
        Some(_) | None => Err(FrameError::Missing(name)),
    }
}

fn opens_object(text: &str) -> bool {
    text.trim_ascii_start().starts_with('{')
}

fn placed(error: &serde_json::Error) -> FrameError {
    let (line, column) = (error.line(), error.column());
    if error.is_data() {
        FrameError::Shape { line, column }
    } else {
        FrameError::Json { line, column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Event<'_> {
        match Frame::parse(text).expect(text) {
            Frame::Event(event) => event,
            Frame::Request(_) | Frame::Response(_) => panic!("{text} is no event"),
        }
    }

    fn response(text: &str) -> Response<'_> {
        match Frame::parse(text).expect(text) {
            Frame::Response(response) => response,
            Frame::Request(_) | Frame::Event(_) => panic!("{text} is no response"),
        }
    }

    #[test]
    fn an_event_is_borrowed_and_its_payload_stays_raw() {
        let text = r#"{"type":"event","event":"tick","payload":{"n":1.0, "big":12345678901234567890},"seq":3}"#;
        let event = event(text);
        assert!(matches!(event.name, Cow::Borrowed("tick")));
        assert_eq!(
            event.payload.map(RawValue::get),
            Some(r#"{"n":1.0, "big":12345678901234567890}"#)
        );
    }

    #[test]
    fn members_stand_in_any_order_and_may_be_escaped() {
        let event = event(r#"{"payload":null,"event":"t\u0069ck","extra":[],"type":"event"}"#);
        assert_eq!(event.name, "tick");
        assert!(event.payload.is_none());
    }

    #[test]
    fn an_answer_may_lack_its_payload() {
        let answer = response(r#"{"type":"res","id":"7","ok":true}"#);
        assert_eq!(answer.id, "7");
        assert!(matches!(answer.outcome, Ok(None)));
    }

    #[test]
    fn a_refusal_is_read_whole() {
        let refusal = response(
            r#"{"type":"res","id":"7","ok":false,"error":{"code":"UNAVAILABLE","message":"gateway starting; retry shortly","retryable":true,"retryAfterMs":500,"details":{"reason":"startup-sidecars"}}}"#,
        );
        let error = refusal.outcome.expect_err("a refusal");
        assert_eq!(error.code, "UNAVAILABLE");
        assert_eq!(error.message, "gateway starting; retry shortly");
        assert!(error.retryable);
        assert_eq!(error.retry_after_ms, Some(500));
        assert_eq!(
            error.details.map(RawValue::get),
            Some(r#"{"reason":"startup-sidecars"}"#)
        );
    }

    #[test]
    fn what_is_no_frame_says_why() {
        let rows = [
            ("", "not a JSON object"),
            ("{\"type\":", "not JSON at line 1, byte 8"),
            (
                r#"["event",null,null,null,null,null,null,"tick"]"#,
                "not a JSON object",
            ),
            (
                r#"{"type":"res","id":"1","ok":false,"error":["A","b"]}"#,
                "member error has no code and message",
            ),
            ("{}", "no member type"),
            (r#"{"type":"hello"}"#, "unknown type hello"),
            (
                r#"{"type":5}"#,
                "member repeated or of the wrong type at line 1, byte 9",
            ),
            (
                r#"{"type":"res","ok":true}"#,
                "member id is missing or empty",
            ),
            (
                r#"{"type":"res","id":"","ok":true}"#,
                "member id is missing or empty",
            ),
            (
                r#"{"type":"res","id":"1"}"#,
                "member ok is missing or empty",
            ),
            (
                r#"{"type":"res","id":"1","ok":false}"#,
                "member error is missing or empty",
            ),
            (
                r#"{"type":"res","id":"1","ok":false,"error":{"code":"X"}}"#,
                "member error has no code and message",
            ),
            (
                r#"{"type":"res","id":"1","ok":false,"error":"no"}"#,
                "member error has no code and message",
            ),
            (r#"{"type":"event"}"#, "member event is missing or empty"),
            (
                r#"{"type":"req","id":"1"}"#,
                "member method is missing or empty",
            ),
            (
                r#"{"type":"event","type":"event","event":"a"}"#,
                "member repeated or of the wrong type at line 1, byte 22",
            ),
        ];
        for (text, why) in rows {
            assert_eq!(
                Frame::parse(text).expect_err(text).to_string(),
                why,
                "{text}"
            );
        }
    }

    #[test]
    fn depth_of_a_raw_member_needs_no_stack() {
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        let text = format!(r#"{{"type":"event","event":"chat","payload":{deep}}}"#);
        assert_eq!(event(&text).payload.map(|p| p.get().len()), Some(400_000));
    }

    #[test]
    fn counts_of_any_spelling_are_read() {
        let count =
            |text: &str| whole_number(&RawValue::from_string(text.to_owned()).expect("JSON"));
        assert_eq!(count("500"), Some(500));
        assert_eq!(count("5e2"), Some(500));
        assert_eq!(count("1.9"), Some(1));
        assert_eq!(count("-3"), Some(0));
        assert_eq!(count("1e300"), Some(u64::MAX));
        assert_eq!(count("\"5\""), None);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut out = String::new();
        write_request(&mut out, "7", "sessions.list", r#"{"limit":1}"#);
        assert_eq!(
            out,
            r#"{"type":"req","id":"7","method":"sessions.list","params":{"limit":1}}"#
        );
        let Ok(Frame::Request(request)) = Frame::parse(&out) else {
            panic!("{out} is no request");
        };
        assert_eq!((&*request.id, &*request.method), ("7", "sessions.list"));

        out.clear();
        write_event(&mut out, "tick", r#"{"ts":1}"#, Some(4));
        assert_eq!(
            out,
            r#"{"type":"event","event":"tick","payload":{"ts":1},"seq":4}"#
        );

        out.clear();
        write_answer(&mut out, "7", "null");
        assert!(matches!(response(&out).outcome, Ok(None)));

        out.clear();
        write_refusal(
            &mut out,
            "7",
            "INVALID_REQUEST",
            "no \"x\"",
            Some(r#"{"code":"Y"}"#),
        );
        let error = response(&out).outcome.expect_err("a refusal");
        assert_eq!(error.message, "no \"x\"");
        assert!(!error.retryable);
    }
}
