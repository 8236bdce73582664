//! One pass over a message: is it JSON, and where are the parts of its envelope.
//!
//! [`scan`] validates by RFC 8259 and notes byte ranges; no tree is built, nothing is copied, and one
//! message costs no allocation. `params`, `result` and `error` stay the bytes they came in, so what is
//! passed on is what was said, digit for digit.
//!
//! Refused beside what is not JSON: more levels than the limit, and two members of one name in the
//! envelope, in `params` or in `params._meta`, because parsers disagree which of them counts (RFC 8259 §4,
//! RFC 7493 §2.3). Below that, members pass unread.
//!
//! Never: recursion on the depth of the input, a copy of a payload, a repaired byte.

mod error;
mod meta;
mod names;
mod parts;
mod pass;
mod reader;
mod text;

use std::ops::Range;

pub use self::error::ScanError;
pub use self::meta::{
    META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_LOG_LEVEL, META_PROTOCOL_VERSION, RequestMeta,
};
pub use self::parts::{Elements, Members, elements, members, text_member};
use self::pass::Pass;
use self::reader::{Fault, Reader, Span};
pub use self::text::Text;
use crate::limits::Limits;

/// The limits that [`scan`] keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// Levels of arrays and objects, the outermost counted.
    pub depth_max: usize,
    /// Raw length of an id, quotes included. Unit: bytes.
    pub id_bytes_max: usize,
    /// Members of an array of messages.
    pub batch_messages_max: usize,
}

impl From<&Limits> for ScanLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            depth_max: limits.json_depth_max,
            id_bytes_max: limits.id_bytes_max,
            batch_messages_max: limits.batch_messages_max,
        }
    }
}

/// The `id` member of an envelope. Spec: 2025-11-25 basic (ids are strings or integers, never null).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdField<'a> {
    /// There is no such member.
    Absent,
    /// It is `null`.
    Null,
    /// A string, or an integer spelled without fraction or exponent that fits 64 bits, within the length
    /// limit. The raw text, quotes included.
    Usable(&'a str),
    /// Anything else. The raw text.
    Unusable(&'a str),
}

impl<'a> IdField<'a> {
    fn of(raw: &'a str, bytes_max: usize) -> Self {
        if raw == "null" {
            Self::Null
        } else if usable_id(raw, bytes_max) {
            Self::Usable(raw)
        } else {
            Self::Unusable(raw)
        }
    }

    /// The raw text of an id that can be echoed.
    #[must_use]
    pub const fn usable(&self) -> Option<&'a str> {
        match self {
            Self::Usable(raw) => Some(raw),
            Self::Absent | Self::Null | Self::Unusable(_) => None,
        }
    }
}

fn usable_id(raw: &str, bytes_max: usize) -> bool {
    raw.len() <= bytes_max
        && (raw.starts_with('"') || raw.parse::<i64>().is_ok() || raw.parse::<u64>().is_ok())
}

/// The parts of one message object, as ranges of its text. A member that is absent is `None`; one that is
/// `null` is `Some("null")`. Nothing is judged here: see [`jsonrpc::classify`](super::jsonrpc::classify).
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// The whole object.
    pub raw: &'a str,
    /// Whether `jsonrpc` is there and says exactly `2.0`.
    pub version_ok: bool,
    /// The id.
    pub id: IdField<'a>,
    /// The method, when it is a string.
    pub method: Option<Text<'a>>,
    /// Whether there is a method that is no string.
    pub method_not_text: bool,
    /// The raw parameters, of whatever kind.
    pub params: Option<&'a str>,
    /// `params.name`, when it is a string.
    pub name: Option<Text<'a>>,
    /// `params.uri`, when it is a string.
    pub uri: Option<Text<'a>>,
    /// The raw `params.arguments`, of whatever kind.
    pub arguments: Option<&'a str>,
    /// The raw `params._meta`, of whatever kind.
    pub meta: Option<&'a str>,
    /// The members of `params._meta` that we know of.
    pub request_meta: RequestMeta<'a>,
    /// The raw result, of whatever kind.
    pub result: Option<&'a str>,
    /// The raw error, of whatever kind.
    pub error: Option<&'a str>,
}

impl Envelope<'_> {
    const EMPTY: Self = Envelope {
        raw: "",
        version_ok: false,
        id: IdField::Absent,
        method: None,
        method_not_text: false,
        params: None,
        name: None,
        uri: None,
        arguments: None,
        meta: None,
        request_meta: RequestMeta::EMPTY,
        result: None,
        error: None,
    };
}

/// What a text holds.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every message is an object, and a box would be an allocation for each"
)]
pub enum Scanned<'a> {
    /// An object.
    One(Envelope<'a>),
    /// An array, perhaps an empty one.
    Batch(Vec<BatchMember<'a>>),
    /// A string, number, boolean or null.
    Other,
}

/// One member of an array of messages.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every message is an object, and a box would be an allocation for each"
)]
pub enum BatchMember<'a> {
    /// An object.
    Message(Envelope<'a>),
    /// Anything else. The raw text.
    NotAnObject(&'a str),
}

/// Reads one text as a message or an array of messages.
///
/// # Errors
/// When it is not UTF-8, not JSON, beyond a limit, or ambiguous by a member that comes twice. The first two
/// are found before the last two.
pub fn scan<'a>(bytes: &'a [u8], limits: &ScanLimits) -> Result<Scanned<'a>, ScanError> {
    scan_text(utf8(bytes)?, limits)
}

/// [`scan`] of what is known to be UTF-8.
///
/// # Errors
/// As of [`scan`], the first left out.
pub fn scan_text<'a>(text: &'a str, limits: &ScanLimits) -> Result<Scanned<'a>, ScanError> {
    Pass::new(text, limits).run()
}

/// Checks that `bytes` is one JSON text of at most `depth_max` levels, and gives it as text.
///
/// # Errors
/// [`ScanError::NotUtf8`], [`ScanError::Syntax`] or [`ScanError::TooDeep`].
pub fn validate(bytes: &[u8], depth_max: usize) -> Result<&str, ScanError> {
    let text = utf8(bytes)?;
    let mut reader = Reader::new(bytes, depth_max);
    reader.skip_space();
    reader
        .value()
        .and_then(|()| reader.end())
        .map_err(|fault| ScanError::of(fault, reader.at(), depth_max))?;
    Ok(text)
}

/// The id of a message that [`scan`] refused, as far as it can be read: the usable `id` of the object, or of
/// the first object of an array that has one. Bytes that are no JSON end the search; bytes inside strings
/// that are no UTF-8 do not. `None` also when `id` comes twice.
///
/// For the error path only: it reads the bytes once more.
#[must_use]
pub fn readable_id<'a>(bytes: &'a [u8], limits: &ScanLimits) -> Option<&'a str> {
    // The depth is no reason to stop looking; the levels cost a bit each.
    let mut reader = Reader::new(bytes, usize::MAX);
    reader.skip_space();
    if reader.peek() != Some(b'[') {
        return object_id(bytes, &mut reader, limits).ok()?;
    }
    reader.open_array().ok()?;
    let mut first = true;
    while reader.next_element(first).ok()? {
        first = false;
        if reader.peek() != Some(b'{') {
            reader.value().ok()?;
        } else if let Some(id) = object_id(bytes, &mut reader, limits).ok()? {
            return Some(id);
        }
    }
    None
}

/// The usable id of the object at `reader`, which is moved behind it unless it is damaged before an id is found.
fn object_id<'a>(
    bytes: &'a [u8],
    reader: &mut Reader<'a>,
    limits: &ScanLimits,
) -> Result<Option<&'a str>, Fault> {
    let mut found = None;
    let mut names = 0;
    let damage = each_member(reader, |name, value, whole| {
        let is_id = std::str::from_utf8(&bytes[name.start..name.end])
            .is_ok_and(|text| Text::new(text, name.escaped).is("id"));
        if is_id {
            names += 1;
            found = whole.then_some(value);
        }
    });
    match (names, found) {
        (1, Some(value)) => {
            let raw = std::str::from_utf8(&bytes[value]).ok();
            Ok(raw.filter(|raw| usable_id(raw, limits.id_bytes_max)))
        }
        _ => damage.map(|()| None),
    }
}

/// Moves through an object and tells each member: its name, where its value is, and whether the value is whole,
/// which one is not that the end of the bytes may have cut.
fn each_member(
    reader: &mut Reader<'_>,
    mut tell: impl FnMut(Span, Range<usize>, bool),
) -> Result<(), Fault> {
    reader.open_object()?;
    let mut first = true;
    while reader.next_member(first)? {
        first = false;
        let name = reader.last_string();
        let from = reader.at();
        reader.value()?;
        let next = reader.peek();
        let whole = matches!(next, Some(b',' | b'}' | b' ' | b'\t' | b'\n' | b'\r'));
        tell(name, from..reader.at(), whole);
    }
    Ok(())
}

fn utf8(bytes: &[u8]) -> Result<&str, ScanError> {
    std::str::from_utf8(bytes).map_err(|error| ScanError::NotUtf8 {
        offset: error.valid_up_to(),
    })
}

#[cfg(test)]
mod tests {
    use super::pass::PARAMS_NAMES;
    use super::*;

    #[test]
    fn elements_are_given_as_they_stand() {
        let all = |raw| elements(raw).collect::<Vec<_>>();
        assert_eq!(
            all(r#" [ 1 ,"a",[2, 3], {"b":[4]} ] "#),
            ["1", r#""a""#, "[2, 3]", r#"{"b":[4]}"#]
        );
        assert!(all("[]").is_empty() && all("{}").is_empty() && all("1").is_empty());
    }

    const LIMITS: ScanLimits = ScanLimits {
        depth_max: 6,
        id_bytes_max: 24,
        batch_messages_max: 3,
    };

    fn one(raw: &str) -> Envelope<'_> {
        match scan(raw.as_bytes(), &LIMITS) {
            Ok(Scanned::One(envelope)) => envelope,
            other => panic!("{raw} is no object: {other:?}"),
        }
    }

    fn refused(bytes: impl AsRef<[u8]>) -> ScanError {
        scan(bytes.as_ref(), &LIMITS).expect_err("is refused")
    }

    fn text(text: Option<Text<'_>>) -> Option<String> {
        text.map(|text| text.decode().into_owned())
    }

    #[test]
    fn a_request_is_taken_apart() {
        let raw = r#" {"jsonrpc":"2.0", "id" : "a\"b" ,"method":"tools/call","params": {"name":"n","arguments":{"name":1},"uri":"u:\/","_meta":{"t":[1, 2]} } } "#;
        let envelope = one(raw);
        assert_eq!(envelope.raw, raw.trim());
        assert!(envelope.version_ok);
        assert_eq!(envelope.id, IdField::Usable(r#""a\"b""#));
        assert_eq!(text(envelope.method).as_deref(), Some("tools/call"));
        assert_eq!(text(envelope.name).as_deref(), Some("n"));
        assert_eq!(text(envelope.uri).as_deref(), Some("u:/"));
        assert_eq!(envelope.meta, Some(r#"{"t":[1, 2]}"#));
        let params = envelope.params.expect("params are there");
        assert!(params.starts_with(r#"{"name""#) && params.ends_with("} }"));
        assert_eq!((envelope.result, envelope.error), (None, None));
    }

    #[test]
    fn absent_and_null_differ() {
        let absent = one("{}");
        assert!(absent.params.is_none() && absent.result.is_none() && absent.error.is_none());
        assert_eq!(absent.id, IdField::Absent);
        assert!(absent.method.is_none() && !absent.method_not_text && !absent.version_ok);
        let null = one(
            r#"{"id":null,"params":null,"result":null,"error":null,"method":null,"jsonrpc":null}"#,
        );
        let all = (null.params, null.result, null.error);
        assert_eq!(all, (Some("null"), Some("null"), Some("null")));
        assert_eq!(null.id, IdField::Null);
        assert!(null.method.is_none() && null.method_not_text && !null.version_ok);
    }

    #[test]
    fn names_may_be_spelled_with_escapes() {
        let envelope = one(
            r#"{"\u006asonrpc":"2\u002e0","\u0069d":1,"\u006dethod":"m","par\u0061ms":{"n\u0061me":"x","_met\u0061":{}}}"#,
        );
        assert!(envelope.version_ok);
        assert_eq!(envelope.id, IdField::Usable("1"));
        assert_eq!(text(envelope.method).as_deref(), Some("m"));
        assert_eq!(text(envelope.name).as_deref(), Some("x"));
        assert_eq!(envelope.meta, Some("{}"));
    }

    #[test]
    fn ids_are_usable_or_not() {
        let usable = [
            "0",
            "-0",
            "-9223372036854775808",
            "18446744073709551615",
            r#""""#,
            r#""\u0000""#,
            r#""0123456789012345678901""#,
        ];
        for id in usable {
            assert_eq!(one(&format!(r#"{{"id":{id}}}"#)).id.usable(), Some(id));
        }
        let unusable = [
            "1.0",
            "1e2",
            "1e400",
            "-9223372036854775809",
            "18446744073709551616",
            "true",
            "{}",
            "[1]",
            r#""01234567890123456789012""#,
        ];
        for id in unusable {
            let raw = format!(r#"{{"id":{id}}}"#);
            assert_eq!(one(&raw).id, IdField::Unusable(id));
        }
    }

    #[test]
    fn a_name_below_params_is_no_name_of_params() {
        let envelope = one(r#"{"params":{"a":{"name":"x","uri":"y","_meta":{}},"name":7}}"#);
        assert!(envelope.name.is_none() && envelope.uri.is_none() && envelope.meta.is_none());
        let list = one(r#"{"params":[{"name":"x"}]}"#);
        assert!(list.name.is_none());
        assert_eq!(list.params, Some(r#"[{"name":"x"}]"#));
    }

    #[test]
    fn members_that_come_twice_are_refused_where_they_matter() {
        for (raw, at, name) in [
            (r#"{"id":1,"id":1}"#, 8, "id"),
            (r#"{"x":1,"\u0078":2}"#, 7, "x"),
            (r#"{"params":{"":1,"a":2,"":3}}"#, 22, ""),
            (r#"{"params":{"_meta":{"a":1,"a":1}}}"#, 26, "a"),
            (
                r#"{"params":{"_meta":{"progressToken":1,"progressToke\u006e":1}}}"#,
                38,
                "progressToken",
            ),
            (r#"[{"a":1},{"b":1,"b":2}]"#, 16, "b"),
        ] {
            let name = name.to_owned();
            let error = refused(raw);
            assert_eq!(error, ScanError::DuplicateMember { offset: at, name });
            assert!(error.is_json());
        }
        for raw in [
            r#"{"params":{"arguments":{"a":1,"a":1}}}"#,
            r#"{"params":{"_meta":{"a":{"b":1,"b":1}}}}"#,
            r#"{"result":{"a":1,"a":1}}"#,
            r#"{"error":{"code":1,"code":2}}"#,
            r#"{"params":{"\ud800":1,"\ud801":2}}"#,
        ] {
            one(raw);
        }
    }

    #[test]
    fn members_of_meta_are_noted_by_name() {
        let values = [r#""2026-07-28""#, "{}", r#"{"name":"c"}"#, r#""info""#, "7"];
        let [version, capabilities, info, level, token] = values;
        let raw = format!(
            r#"{{"params":{{"_meta":{{"x":0,"{META_LOG_LEVEL}":{level},"progressToken":{token},
                "{META_CLIENT_INFO}":{info},"{META_CLIENT_CAPABILITIES}":{capabilities},
                "{META_PROTOCOL_VERSION}":{version}}}}}}}"#
        );
        let meta = one(&raw).request_meta;
        assert_eq!(meta.protocol_version, Some(version));
        assert_eq!(meta.client_capabilities, Some(capabilities));
        assert_eq!(meta.client_info, Some(info));
        assert_eq!(meta.log_level, Some(level));
        assert_eq!(meta.progress_token, Some(token));
    }

    #[test]
    fn many_members_are_compared_too() {
        let names: Vec<String> = (0..3 * PARAMS_NAMES)
            .map(|i| format!(r#""n{i}""#))
            .collect();
        let distinct = format!(r#"{{"params":{{{}:0}}}}"#, names.join(":0,"));
        one(&distinct);
        for i in [0, PARAMS_NAMES - 1, PARAMS_NAMES, 3 * PARAMS_NAMES - 1] {
            let raw = format!(r#"{{"params":{{{}:0,"\u006e{i}":0}}}}"#, names.join(":0,"));
            let error = refused(&raw);
            assert!(
                matches!(&error, ScanError::DuplicateMember { name, .. } if *name == format!("n{i}")),
                "{error}"
            );
        }
    }

    #[test]
    fn an_array_is_a_batch() {
        let raw = r#"[{"id":1}, 7 ,{"id":2}]"#;
        let Ok(Scanned::Batch(batch)) = scan(raw.as_bytes(), &LIMITS) else {
            panic!("{raw} is an array");
        };
        let [
            BatchMember::Message(first),
            BatchMember::NotAnObject("7"),
            BatchMember::Message(last),
        ] = batch.as_slice()
        else {
            panic!("three members: {batch:?}");
        };
        assert_eq!((first.raw, last.raw), (r#"{"id":1}"#, r#"{"id":2}"#));
        assert!(matches!(scan(b"[]", &LIMITS), Ok(Scanned::Batch(batch)) if batch.is_empty()));
        let (offset, limit, found) = (7, 3, 5);
        let error = refused("[1,1,1,1,[]]");
        assert_eq!(
            error,
            ScanError::TooManyMessages {
                offset,
                limit,
                found
            }
        );
    }

    #[test]
    fn scalars_are_no_messages() {
        for raw in ["42", "\"text\"", "true", " null "] {
            assert!(matches!(scan(raw.as_bytes(), &LIMITS), Ok(Scanned::Other)));
        }
    }

    #[test]
    fn the_depth_counts_every_level() {
        one(r#"{"params":{"_meta":{"a":[[[]]]}}}"#);
        let (offset, limit) = (27, 6);
        let error = refused(r#"{"params":{"_meta":{"a":[[[[]]]]}}}"#);
        assert_eq!(error, ScanError::TooDeep { offset, limit });
        assert!(matches!(
            scan(b"[[[[[[]]]]]]", &LIMITS),
            Ok(Scanned::Batch(_))
        ));
        assert!(matches!(
            refused("[[[[[[[]]]]]]]"),
            ScanError::TooDeep { .. }
        ));
        assert!(validate(b"[[[]]]", 3).is_ok());
        assert!(validate(b"[[[]]]", 2).is_err());
    }

    #[test]
    fn a_bomb_of_brackets_costs_nothing() {
        let bomb = "[".repeat(100_000);
        assert!(matches!(refused(&bomb), ScanError::TooDeep { .. }));
        assert_eq!(readable_id(bomb.as_bytes(), &LIMITS), None);
    }

    #[test]
    fn faults_of_the_text_come_before_faults_of_the_message() {
        let cut = refused(r#"{"id":1,"id":2,"#);
        assert!(matches!(cut, ScanError::Syntax { offset: 15, .. }), "{cut}");
        let cut = refused("[1,1,1,1,");
        assert!(matches!(cut, ScanError::Syntax { offset: 9, .. }), "{cut}");
        assert_eq!(refused(b"{\"a\xff"), ScanError::NotUtf8 { offset: 3 });
    }

    #[test]
    fn errors_say_where_and_what() {
        let long = format!(r#"{{"{0}":1,"{0}":2}}"#, "é\\n".repeat(100));
        for (bytes, wanted) in [
            (&b"{\"a\":tru}"[..], "not JSON: a value expected at byte 5"),
            (b"{} {}", "not JSON: the end of the text expected at byte 3"),
            (b"\xff\xfe", "not UTF-8 at byte 0"),
            (b"[1,1,1,1]", "more than 3 messages in one array (found 4)"),
            (
                b"[[[[[[[",
                "arrays and objects nested deeper than 6 levels at byte 6",
            ),
        ] {
            let error = refused(bytes);
            assert_eq!(error.to_string(), wanted);
        }
        let error = refused(&long).to_string();
        assert!(
            error.contains("é\\u{a}é") && error.contains("…\" comes twice"),
            "{error}"
        );
        assert!(error.len() < 400, "{} bytes", error.len());
    }

    #[test]
    fn the_id_of_a_damaged_message_is_found_where_it_can_be() {
        let found: [(&[u8], Option<&str>); 16] = [
            (b"{\"id\":2,\"result\":{\"t\":\"caf\xe9\"}}", Some("2")),
            (
                b"{\"result\":{\"t\":\"caf\xe9\"},\"id\":\"x\"}",
                Some("\"x\""),
            ),
            (b"{\"jsonrpc\":\"2.0\",\"i\\u0064\":3,\"meth", Some("3")),
            (b"{\"id\":4,\"a\":1,\"a\":2}", Some("4")),
            (b"{\"id\":5,\"a\":[[[[[[[[[[]]]]]]]]]]}", Some("5")),
            (b"{\"a\":[[[[[[[[[[]]]]]]]]]],\"id\":6}", Some("6")),
            (b"[7,{\"id\":null},{\"id\":8},{\"id\":9}]", Some("8")),
            (b"[{\"id\":1,\"id\":2},{\"id\":3}]", Some("3")),
            (b"[{\"a\":1,,{\"id\":5}]", None),
            (b"{\"id\":1,\"id\":2}", None),
            (b"{\"id\":1.5,\"a\":", None),
            (b"{\"id\":12", None),
            (b"{\"id\":\"caf\xe9\"}", None),
            (b"{\"a\":{\"id\":1},", None),
            (b"{\"a\" 1,\"id\":1}", None),
            (b"\xff\xfe", None),
        ];
        for (bytes, id) in found {
            let shown = String::from_utf8_lossy(bytes);
            assert_eq!(readable_id(bytes, &LIMITS), id, "{shown}");
        }
    }

    #[test]
    fn a_text_member_is_what_its_value_says() {
        let raw = r#"{"a":1,"\u0062":"x\ny","c":{"d":"e"},"f":["g"],"b":"z","h":""}"#;
        for name in ["a", "b", "c", "d", "f", "h", "i"] {
            let value = members(raw).find(|(key, _)| key.is(name));
            let wanted = value.and_then(|(_, value)| Text::of_value(value));
            let found = text_member(raw, name);
            let parts = |text: Text<'_>| (text.raw().to_owned(), text.has_escapes());
            assert_eq!(found.map(parts), wanted.map(parts), "{name}");
        }
        assert!(text_member("[\"a\"]", "a").is_none());
    }

    #[test]
    fn members_come_in_order() {
        let raw = r#" { "a" : 1.0 , "b":[{"c":"}"}],"\u0061":"x" } "#;
        let found: Vec<_> = members(raw)
            .map(|(name, value)| (name.decode().into_owned(), value))
            .collect();
        let wanted = [("a", "1.0"), ("b", r#"[{"c":"}"}]"#), ("a", r#""x""#)];
        assert_eq!(found, wanted.map(|(name, value)| (name.to_owned(), value)));
        for raw in ["", "{}", "[]", "\"a\"", "{\"a\"", "{\"a\":x}"] {
            assert_eq!(members(raw).count(), 0, "{raw}");
        }
    }
}
