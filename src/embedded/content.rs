//! The content of a message: a JSON string, or an array of blocks of which some hold text.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::codec::json_text::write_string;
use crate::codec::object::from_object;

/// Characters of a title made from what was said first. Source: OpenClaw derived titles.
pub(super) const TITLE_CHARS_MAX: usize = 60;
/// Characters of a preview of the last message.
pub(super) const PREVIEW_CHARS_MAX: usize = 500;

/// Nesting of the content of a message; deeper content would not be read by every client that gets
/// it.
pub(super) const DEPTH_MAX: usize = 32;

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow, default)]
    text: Option<Cow<'a, str>>,
}

/// Content that is one JSON string.
pub(super) fn string(text: &str) -> Box<RawValue> {
    let mut json = String::with_capacity(text.len() + 2);
    write_string(&mut json, text);
    RawValue::from_string(json).expect("a written string is JSON")
}

/// Content that is one block of text.
pub(super) fn text_block(text: &str) -> Box<RawValue> {
    let mut json = String::with_capacity(text.len() + 32);
    json.push_str(r#"[{"type":"text","text":"#);
    write_string(&mut json, text);
    json.push_str("}]");
    RawValue::from_string(json).expect("a written block is JSON")
}

/// Content as a client sent it, in one line: a line break can only stand between JSON tokens.
pub(super) fn in_one_line(content: &RawValue) -> Box<RawValue> {
    let line = content.get().replace(['\n', '\r'], " ");
    RawValue::from_string(line).unwrap_or_else(|_| string(""))
}

/// How deep arrays and objects stand in each other in `json`, which is valid.
pub(super) fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The beginning of the first text in `content`, white space folded; at most `chars_max`
/// characters, then an ellipsis. `None` when there is no text.
pub(super) fn start_of(content: &str, chars_max: usize) -> Option<String> {
    let text = first_text(content)?;
    let mut out = String::new();
    let mut chars = 0;
    for word in text.split_whitespace() {
        if chars > 0 {
            out.push(' ');
            chars += 1;
        }
        for c in word.chars() {
            if chars >= chars_max {
                out.truncate(out.trim_end().len());
                out.push('…');
                return Some(out);
            }
            out.push(c);
            chars += 1;
        }
    }
    (!out.is_empty()).then_some(out)
}

/// The first text in `content`.
pub(super) fn first_text(content: &str) -> Option<Cow<'_, str>> {
    if content.starts_with('"') {
        return serde_json::from_str::<String>(content).ok().map(Cow::Owned);
    }
    let blocks: Vec<&RawValue> = serde_json::from_str(content).ok()?;
    blocks.into_iter().find_map(|block| {
        let block: Block<'_> = from_object(block.get()).ok()?;
        block.text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_found_in_both_forms() {
        assert_eq!(first_text(string("a\"b").get()).as_deref(), Some("a\"b"));
        assert_eq!(first_text(text_block("x").get()).as_deref(), Some("x"));
        let mixed = r#"[{"type":"image","data":"AA"},3,{"type":"text","text":"t"}]"#;
        assert_eq!(first_text(mixed).as_deref(), Some("t"));
        assert_eq!(first_text(r#"[{"type":"image","data":"AA"}]"#), None);
        assert_eq!(first_text("17"), None);
    }

    #[test]
    fn content_becomes_one_line_and_stays_the_same() {
        let raw = RawValue::from_string("[\r\n{\"text\":\n\"a\\nb\"}]".to_owned()).expect("valid");
        let line = in_one_line(&raw);
        assert!(!line.get().contains('\n'), "{}", line.get());
        assert_eq!(first_text(line.get()).as_deref(), Some("a\nb"));
    }

    #[test]
    fn depth_counts_brackets_outside_strings() {
        assert_eq!(depth("1"), 0);
        assert_eq!(depth(r#"[{"a":"[[\\\"[{"},[]]"#), 2);
        assert_eq!(depth(r#"["\\",[[]]]"#), 3);
    }

    #[test]
    fn starts_are_cut_at_characters() {
        let cut = |text: &str, max| start_of(string(text).get(), max);
        assert_eq!(cut("one two", 7).as_deref(), Some("one two"));
        assert_eq!(cut("one  two\nthree", 8).as_deref(), Some("one two…"));
        assert_eq!(cut("ééé", 2).as_deref(), Some("éé…"));
        assert_eq!(cut("  ", 9), None);
    }
}
