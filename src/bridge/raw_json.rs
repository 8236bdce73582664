//! Raw JSON without a value tree: what a value is, its text, its elements, some of its members; and
//! the few ways in which we write it.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::codec::json_text::{self, write_string};

/// Whether the value is an object.
pub(super) fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

/// Whether the value is a string.
pub(super) fn is_string(raw: &RawValue) -> bool {
    raw.get().starts_with('"')
}

/// Whether the value is a number.
pub(super) fn is_number(raw: &RawValue) -> bool {
    raw.get()
        .starts_with(|c: char| c == '-' || c.is_ascii_digit())
}

/// The value of a number; `None` for anything else.
pub(super) fn number(raw: &RawValue) -> Option<f64> {
    if is_number(raw) {
        raw.get().parse().ok()
    } else {
        None
    }
}

/// The decoded text of a string; `None` for anything else. Half a surrogate pair, which JavaScript
/// may send, becomes replacement characters.
pub(super) fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    let mut json = serde_json::Deserializer::from_str(raw.get());
    json.deserialize_bytes(LossyText).ok().map(Cow::Owned)
}

/// The text of a string without the white space around it; `None` when there is no string or
/// nothing is left.
pub(super) fn text(raw: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let text = match string(raw?)? {
        Cow::Borrowed(text) => Cow::Borrowed(trim(text)),
        Cow::Owned(text) => {
            let trimmed = trim(&text);
            if trimmed.len() == text.len() {
                Cow::Owned(text)
            } else {
                Cow::Owned(trimmed.to_owned())
            }
        }
    };
    if text.is_empty() { None } else { Some(text) }
}

/// What JavaScript takes for white space in `trim` and in a pattern's `\s`.
pub(super) fn is_space(c: char) -> bool {
    c == '\u{feff}' || (c.is_whitespace() && c != '\u{85}')
}

/// The text without the white space around it, as JavaScript's `trim`.
pub(super) fn trim(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// The elements of an array; `None` for anything else.
pub(super) fn elements(raw: &RawValue) -> Option<Vec<&RawValue>> {
    if raw.get().starts_with('[') {
        serde_json::from_str(raw.get()).ok()
    } else {
        None
    }
}

/// The members called `names` of an object, in that order. The last of several members of one name
/// counts, as in JavaScript; all others are skipped.
///
/// # Errors
/// When `json` is not an object.
pub(super) fn members<'a, const N: usize>(
    json: &'a str,
    names: [&str; N],
) -> Result<[Option<&'a RawValue>; N], serde_json::Error> {
    let mut json = serde_json::Deserializer::from_str(json);
    let found = json.deserialize_map(Members { names })?;
    json.end()?;
    Ok(found)
}

struct Members<'n, const N: usize> {
    names: [&'n str; N],
}

impl<'de, const N: usize> Visitor<'de> for Members<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = [None; N];
        while let Some(which) = map.next_key_seed(NameIn(&self.names))? {
            match which {
                Some(at) => found[at] = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }
}

/// Reads a member's name as its position in a list of known names.
struct NameIn<'n>(&'n [&'n str]);

impl<'de> DeserializeSeed<'de> for NameIn<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_bytes(self)
    }
}

impl Visitor<'_> for NameIn<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member name")
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|known| known.as_bytes() == name))
    }
}

struct LossyText;

impl Visitor<'_> for LossyText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

/// Appends `,"name":"value"` when there is a value.
pub(super) fn write_member(out: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        write_raw(out, name, "");
        write_string(out, value);
    }
}

/// Appends `,"name":` and a value that is JSON already.
pub(super) fn write_raw(out: &mut String, name: &str, raw: &str) {
    out.push_str(",\"");
    out.push_str(name);
    out.push_str("\":");
    out.push_str(raw);
}

/// Growth that re-indented text is allowed without question.
const PRETTY_FREE_BYTES: usize = 1024 * 1024;

/// Growth factor of a long value past which it is shown as it came: deep nesting multiplies every
/// element by its indentation, and what is nested comes from strangers.
const PRETTY_FACTOR_MAX: usize = 4;

/// Appends `raw` laid out for people; as it came, when that would grow beyond all measure.
pub(super) fn pretty(out: &mut String, raw: &str) {
    let most = PRETTY_FREE_BYTES.max(raw.len().saturating_mul(PRETTY_FACTOR_MAX));
    if pretty_bytes(raw) <= most {
        json_text::pretty(out, raw);
    } else {
        out.push_str(raw);
    }
}

/// About how long the value is when laid out: never less than it will be.
fn pretty_bytes(raw: &str) -> usize {
    let (mut bytes, mut depth) = (raw.len(), 0_usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in raw.bytes() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if matches!(byte, b'{' | b'[' | b'}' | b']' | b',' | b':') {
            bytes = bytes.saturating_add(1 + 2 * depth);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).expect("test input is JSON")
    }

    #[test]
    fn strings_are_decoded_and_nothing_else_is() {
        assert_eq!(string(raw(r#""plain""#)).as_deref(), Some("plain"));
        assert_eq!(string(raw(r#""a\"b\u00e9""#)).as_deref(), Some("a\"bé"));
        assert_eq!(string(raw(r#""""#)).as_deref(), Some(""));
        let half = string(raw(r#""x\ud800y""#)).expect("half a pair is still a string");
        assert!(half.starts_with('x') && half.ends_with('y'), "{half}");
        for other in ["1", "null", "[\"a\"]", "{\"a\":\"b\"}", "true"] {
            assert_eq!(string(raw(other)), None, "{other}");
        }
    }

    #[test]
    fn text_is_trimmed_as_javascript_does_and_blank_is_absent() {
        assert_eq!(text(Some(raw("\" a b \""))).as_deref(), Some("a b"));
        assert_eq!(
            text(Some(raw(r#""\t\ufeffa\u00a0\n""#))).as_deref(),
            Some("a")
        );
        assert_eq!(text(Some(raw(r#"" \n""#))), None);
        assert_eq!(text(None), None);
        assert_eq!(trim("\u{85}a"), "\u{85}a", "JavaScript keeps U+0085");
    }

    #[test]
    fn named_members_are_found_and_the_last_one_counts() {
        let json = r#"{"a":1,"x":{"a":9},"\u0062":"two","a":3,"\ud800":0}"#;
        let [a, b, c] = members(json, ["a", "b", "c"]).expect("an object");
        assert_eq!(a.map(RawValue::get), Some("3"));
        assert_eq!(b.map(RawValue::get), Some("\"two\""));
        assert!(c.is_none());
        assert!(members("[1]", ["a"]).is_err());
        assert!(members("{} x", ["a"]).is_err());
    }

    #[test]
    fn numbers_are_told_from_other_values() {
        assert_eq!(number(raw("-1.5e1")), Some(-15.0));
        assert_eq!(number(raw("\"1\"")), None);
        assert_eq!(number(raw("null")), None);
    }

    #[test]
    fn the_length_of_pretty_text_is_not_underestimated() {
        for json in [
            "{}",
            "[[],{}]",
            r#"{"a":[1,{"b":"x,{\"}\\"}],"c":{},"d":[]}"#,
            r#"[{"a":{"b":["]]]","\\",{"c":null}]}},2]"#,
        ] {
            let mut out = String::new();
            pretty(&mut out, json);
            assert!(out.len() <= pretty_bytes(json), "{json}");
            assert!(
                out.len() * 4 >= pretty_bytes(json),
                "{json}: nor beyond measure"
            );
        }
    }

    #[test]
    fn pretty_text_of_a_hostile_value_does_not_explode() {
        let deep = "[".repeat(100_000) + &"]".repeat(100_000);
        let mut out = String::from("kept ");
        pretty(&mut out, &deep);
        assert_eq!(out, format!("kept {deep}"));
        let flat = format!("[{}1]", "1,".repeat(200_000));
        out.clear();
        pretty(&mut out, &flat);
        assert!(out.starts_with("[\n  1,\n"), "ordinary growth is allowed");
    }
}
