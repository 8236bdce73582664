//! JSON text, written and re-indented without a value tree.

use super::plain::plain_end;

/// Appends `text` as a JSON string, quotes included, escaped as JavaScript's `JSON.stringify` does, so
/// that our output compares equal to that of the programs we replace.
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    escape(text, |piece| out.push_str(piece));
    out.push('"');
}

/// [`write_string`] for a buffer of bytes.
pub fn append_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    escape(text, |piece| out.extend_from_slice(piece.as_bytes()));
    out.push(b'"');
}

fn escape(text: &str, mut push: impl FnMut(&str)) {
    const HEX: &str = "0123456789abcdef";
    let bytes = text.as_bytes();
    let mut from = 0;
    loop {
        let at = plain_end(bytes, from);
        push(&text[from..at]);
        let Some(byte) = bytes.get(at) else { return };
        let escape = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            b'\n' => "\\n",
            b'\r' => "\\r",
            b'\t' => "\\t",
            0x08 => "\\b",
            0x0c => "\\f",
            0x00..=0x0f => "\\u000",
            _ => "\\u001",
        };
        push(escape);
        if escape.len() > 2 {
            let digit = usize::from(byte & 0x0f);
            push(&HEX[digit..=digit]);
        }
        from = at + 1;
    }
}

/// Appends the valid JSON text `raw` laid out as `JSON.stringify(value, null, 2)` does: one member or element
/// a line, two spaces a level, empty containers on one line. Every token stays as spelled, so that numbers
/// keep their digits and strings their escapes.
///
/// White space grows with the depth of `raw`: bound that first, see
/// [`validate`](super::scan::validate).
pub fn pretty(out: &mut String, raw: &str) {
    let mut depth = 0;
    let mut rest = raw;
    while let Some(token) = next_token(&mut rest) {
        match token.as_bytes()[0] {
            b'{' | b'[' => {
                out.push_str(token);
                let mut after = rest;
                match next_token(&mut after) {
                    Some(close @ ("}" | "]")) => {
                        out.push_str(close);
                        rest = after;
                    }
                    Some(_) | None => {
                        depth += 1;
                        new_line(out, depth);
                    }
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                new_line(out, depth);
                out.push_str(token);
            }
            b',' => {
                out.push(',');
                new_line(out, depth);
            }
            b':' => out.push_str(": "),
            _ => out.push_str(token),
        }
    }
}

/// Appends the valid JSON text `raw` without the white space between its tokens. Every token stays as spelled.
pub fn compact(out: &mut String, raw: &str) {
    let mut rest = raw;
    while let Some(token) = next_token(&mut rest) {
        out.push_str(token);
    }
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    for _ in 0..depth {
        out.push_str("  ");
    }
}

/// Takes the next token of a valid text; of any other text some piece that is not empty.
fn next_token<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let text = rest.trim_start_matches([' ', '\t', '\n', '\r']);
    let bytes = text.as_bytes();
    let length = match bytes.first()? {
        b'{' | b'}' | b'[' | b']' | b',' | b':' => 1,
        b'"' => string_length(bytes),
        _ => bytes
            .iter()
            .position(|byte| b"{}[],:\" \t\n\r".contains(byte))
            .unwrap_or(bytes.len()),
    };
    let (token, after) = text.split_at(length);
    *rest = after;
    Some(token)
}

/// Length of the string that `bytes` begins with, quotes included; all of it when it does not end.
fn string_length(bytes: &[u8]) -> usize {
    let mut at = 1;
    while let Some(found) = bytes
        .get(at..)
        .and_then(|rest| memchr::memchr2(b'"', b'\\', rest))
    {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laid_out(raw: &str) -> String {
        let mut out = String::new();
        pretty(&mut out, raw);
        out
    }

    fn packed(raw: &str) -> String {
        let mut out = String::new();
        compact(&mut out, raw);
        out
    }

    #[test]
    fn strings_are_escaped_as_javascript_does() {
        let text = "\"\\/\u{8}\u{c}\n\r\t\0\u{1b}\u{7f}é\u{2028}😀";
        let wanted = "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001b\u{7f}é\u{2028}😀\"";
        let mut out = String::new();
        write_string(&mut out, text);
        assert_eq!(out, wanted);
        let mut bytes = Vec::new();
        append_string(&mut bytes, text);
        assert_eq!(bytes, wanted.as_bytes());
    }

    #[test]
    fn layout_is_that_of_javascript() {
        let raw = r#"{"a":[1,{"b":null},[]],"c":{},"d":"x","e":[ { } ]}"#;
        let wanted = r#"{
  "a": [
    1,
    {
      "b": null
    },
    []
  ],
  "c": {},
  "d": "x",
  "e": [
    {}
  ]
}"#;
        assert_eq!(laid_out(raw), wanted);
        assert_eq!(laid_out(wanted), wanted);
        for scalar in ["1.0", "\"\"", "true", "[]", "{}"] {
            assert_eq!(laid_out(scalar), scalar);
        }
    }

    #[test]
    fn tokens_stay_as_spelled() {
        let raw = r#"{"a":1.0e+2,"\u0061":-0,"c":"{\"x\": [1,\\]}  \\","d":12345678901234567890}"#;
        let spaced = " {\t\"a\" : 1.0e+2 , \"\\u0061\":-0,\r\n\"c\":\"{\\\"x\\\": [1,\\\\]}  \\\\\",\"d\":12345678901234567890 } \n";
        assert_eq!(packed(spaced), raw);
        assert_eq!(packed(&laid_out(raw)), raw);
    }

    #[test]
    fn text_that_is_no_json_ends_all_the_same() {
        for raw in ["", "\"", "\"\\", "\"\\é", "]]}", "{", "é,é", "[1 2"] {
            let _ = laid_out(raw);
            let _ = packed(raw);
        }
    }
}
