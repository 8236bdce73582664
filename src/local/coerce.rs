//! Whatever a tool gives, made into a tool's result.
//!
//! | given | result |
//! |---|---|
//! | nothing, `null` | one empty text |
//! | text | that text |
//! | a number, `true`, `false` | its text, digit by digit as it was given |
//! | an array of objects | `content`, as it is |
//! | an object with `content` | by these rules of `content`, with its `isError`, `structuredContent` and `_meta` |
//! | any other object | its JSON as text, without white space; with the same three members |
//! | any other array | its JSON as text, without white space |
//! | what is no JSON | text, as it is |
//!
//! Source: openclaw-serve §4 (result coercion), which loses the three members and passes arrays of anything
//! as content, so that clients refuse the whole answer. Never: looks into content blocks, reads a number.

use crate::codec::json_text::{compact, write_string};
use crate::codec::scan::{elements, members, validate};
use crate::limits::Limits;

/// The result, a raw JSON object on one line.
pub(super) fn coerce(given: &[u8]) -> String {
    let mut out = String::from("{");
    match validate(given, Limits::DEFAULT.json_depth_max) {
        Ok(json) => write_value(&mut out, json.trim_matches([' ', '\t', '\n', '\r'])),
        // White space alone is no JSON, and says nothing either.
        Err(_) if given.trim_ascii().is_empty() => write_text(&mut out, ""),
        Err(_) => write_text(&mut out, &String::from_utf8_lossy(given)),
    }
    out.push('}');
    out
}

fn write_value(out: &mut String, json: &str) {
    if !json.starts_with('{') {
        return write_content(out, json);
    }
    let (mut content, mut failed, mut structured, mut meta) = (None, false, None, None);
    // Of members that come twice the last one counts, as in JavaScript.
    for (name, value) in members(json) {
        if name.is("content") {
            content = Some(value);
        } else if name.is("isError") {
            failed = value == "true";
        } else if name.is("structuredContent") {
            structured = Some(value);
        } else if name.is("_meta") {
            meta = Some(value);
        }
    }
    match content {
        Some(content) => write_content(out, content),
        None => write_json(out, json),
    }
    let is_object = |raw: &&str| raw.starts_with('{');
    for (name, value) in [("structuredContent", structured), ("_meta", meta)] {
        if let Some(value) = value.filter(is_object) {
            out.push_str(",\"");
            out.push_str(name);
            out.push_str("\":");
            compact(out, value);
        }
    }
    if failed {
        out.push_str(r#","isError":true"#);
    }
}

/// The member `content` for a value that has no more to say.
fn write_content(out: &mut String, json: &str) {
    match json.as_bytes().first() {
        Some(b'"') => {
            out.push_str(r#""content":[{"type":"text","text":"#);
            out.push_str(json);
            out.push_str("}]");
        }
        Some(b'[') if elements(json).all(|block| block.starts_with('{')) => {
            out.push_str(r#""content":"#);
            compact(out, json);
        }
        Some(b'n') | None => write_text(out, ""),
        Some(_) => write_json(out, json),
    }
}

/// JSON as text.
fn write_json(out: &mut String, json: &str) {
    let mut text = String::with_capacity(json.len());
    compact(&mut text, json);
    write_text(out, &text);
}

fn write_text(out: &mut String, text: &str) {
    out.push_str(r#""content":[{"type":"text","text":"#);
    write_string(out, text);
    out.push_str("}]");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coerced(given: &str) -> String {
        coerce(given.as_bytes())
    }

    fn text(text: &str) -> String {
        let mut out = String::from("{");
        write_text(&mut out, text);
        out.push('}');
        out
    }

    #[test]
    fn what_is_no_object_becomes_text() {
        for (given, expected) in [
            ("", ""),
            (" \n", ""),
            ("null\n", ""),
            (r#""plain \u00e9""#, "plain é"),
            ("42", "42"),
            ("-1.50e+3 ", "-1.50e+3"),
            ("12345678901234567890123", "12345678901234567890123"),
            ("true", "true"),
            ("false", "false"),
            ("[1, [2]]", "[1,[2]]"),
            (r#"[{"type":"text"}, 1]"#, r#"[{"type":"text"},1]"#),
            ("plain, with a line end\n", "plain, with a line end\n"),
            ("{half", "{half"),
            ("{} {}", "{} {}"),
            ("NaN", "NaN"),
        ] {
            let found: serde_json::Value = serde_json::from_str(&coerced(given)).expect(given);
            let wanted: serde_json::Value = serde_json::from_str(&text(expected)).expect(given);
            assert_eq!(found, wanted, "{given}");
        }
        let broken = coerce(b"a\xff");
        assert_eq!(broken, text("a\u{fffd}"));
        let deep = "[".repeat(100_000);
        assert_eq!(coerced(&deep), text(&deep));
    }

    #[test]
    fn text_keeps_its_escapes() {
        let given = r#""\u0041\ud800\/""#;
        let wanted = format!(r#"{{"content":[{{"type":"text","text":{given}}}]}}"#);
        assert_eq!(coerced(given), wanted);
    }

    #[test]
    fn blocks_pass_as_they_are() {
        let blocks = r#"[{"type":"odd","n":1.0,"big":12345678901234567890},{}]"#;
        assert_eq!(coerced(blocks), format!(r#"{{"content":{blocks}}}"#));
        assert_eq!(coerced("[]"), r#"{"content":[]}"#);
        assert_eq!(
            coerced("[\n  {\"type\" : \"text\"}\n]\n"),
            r#"{"content":[{"type":"text"}]}"#,
            "a result is one line"
        );
    }

    #[test]
    fn an_object_with_content_keeps_what_else_it_says() {
        assert_eq!(
            coerced(
                r#"{"details":1,"isError":true,"content":[{"type":"text","text":"bad"}],"_meta":{"k": 1.0},"structuredContent":{"a":[1, 2]}}"#
            ),
            r#"{"content":[{"type":"text","text":"bad"}],"structuredContent":{"a":[1,2]},"_meta":{"k":1.0},"isError":true}"#
        );
        for (given, expected) in [
            (r#"{"content":"hi","isError":false}"#, "hi"),
            (r#"{"content":null}"#, ""),
            (r#"{"content":7.0}"#, "7.0"),
            (r#"{"content":{"a": 1}}"#, r#"{"a":1}"#),
            (r#"{"content":"first","content":"last"}"#, "last"),
            (
                r#"{"content":"hi","_meta":1,"structuredContent":[1]}"#,
                "hi",
            ),
        ] {
            assert_eq!(coerced(given), text(expected), "{given}");
        }
    }

    #[test]
    fn any_other_object_is_its_json() {
        assert_eq!(
            coerced("{\"a\" : 1,\n \"b\":[2]}"),
            text(r#"{"a":1,"b":[2]}"#)
        );
        assert_eq!(
            coerced(r#"{"isError":true,"why":"x"}"#),
            concat!(
                r#"{"content":[{"type":"text","text":"{\"isError\":true,\"why\":\"x\"}"}],"#,
                r#""isError":true}"#
            )
        );
    }
}
