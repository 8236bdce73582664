//! Results for people: text as it is, everything else named.
//!
//! Text of a server is what was asked for and goes out unchanged, with one exception: where stdout is a
//! terminal, control characters other than line ends and tabs are escaped.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use crate::codec::json_text::pretty;
use crate::codec::scan::{Text, elements, members};
use crate::protocol::message::member;
use crate::secret::Quoted;

/// The result of a call.
pub(super) fn result(raw: &str) -> String {
    let mut out = String::new();
    let content = member(raw, "content").unwrap_or("[]");
    for block in elements(content) {
        append_block(&mut out, block);
    }
    // The text beside structured content repeats it, as a rule.
    let silent = out.is_empty();
    if let Some(structured) = member(raw, "structuredContent").filter(|_| silent) {
        pretty(&mut out, structured);
        out.push('\n');
    }
    let other = member(raw, "content").is_none() && member(raw, "structuredContent").is_none();
    if other {
        pretty(&mut out, raw);
        out.push('\n');
    }
    shown(out)
}

/// The result of `resources/read`.
pub(super) fn resource(raw: &str) -> String {
    let mut out = String::new();
    for contents in elements(member(raw, "contents").unwrap_or("[]")) {
        append_contents(&mut out, contents);
    }
    shown(out)
}

/// The result of `prompts/get`.
pub(super) fn prompt(raw: &str) -> String {
    let mut out = String::new();
    if let Some(description) = text(raw, "description") {
        let _ = writeln!(out, "{description}\n");
    }
    for message in elements(member(raw, "messages").unwrap_or("[]")) {
        let role = text(message, "role").unwrap_or_default();
        let _ = write!(out, "{}: ", Quoted(&role));
        let content = member(message, "content").unwrap_or("{}");
        match content.starts_with('[') {
            true => elements(content).for_each(|block| append_block(&mut out, block)),
            false => append_block(&mut out, content),
        }
    }
    shown(out)
}

/// One entry of a list: what it is asked for by, and the first line of what it says of itself.
pub(super) fn entry(raw: &str) -> String {
    let name = text(raw, "name").unwrap_or_default();
    let uri = text(raw, "uri").or_else(|| text(raw, "uriTemplate"));
    let said = text(raw, "description").or_else(|| text(raw, "title"));
    let said = said.or_else(|| uri.is_some().then(|| name.clone()));
    let first = said.as_deref().and_then(|said| said.trim().lines().next());
    let by = escape_controls(&uri.unwrap_or(name));
    match first.filter(|line| !line.is_empty()) {
        Some(line) => format!("{by}: {}\n", Quoted(line)),
        None => format!("{by}\n"),
    }
}

/// A string member, decoded.
pub(super) fn text(object: &str, name: &str) -> Option<String> {
    let text = member(object, name).and_then(Text::of_value)?;
    Some(text.decode().into_owned())
}

fn append_block(out: &mut String, block: &str) {
    let kind = text(block, "type").unwrap_or_default();
    match kind.as_str() {
        "text" => line(out, &text(block, "text").unwrap_or_default()),
        "image" | "audio" => {
            let mime = text(block, "mimeType").unwrap_or_default();
            let bytes = member(block, "data").map_or(0, base64_bytes);
            line(out, &format!("[{kind}, {}, {bytes} bytes]", Quoted(&mime)));
        }
        "resource_link" => {
            let name = text(block, "title").or_else(|| text(block, "name"));
            let uri = text(block, "uri").unwrap_or_default();
            line(
                out,
                &format!("[{}] {uri}", Quoted(&name.unwrap_or_default())),
            );
        }
        "resource" => append_contents(out, member(block, "resource").unwrap_or("{}")),
        _ => line(out, block),
    }
}

fn append_contents(out: &mut String, contents: &str) {
    if let Some(text) = text(contents, "text") {
        return line(out, &text);
    }
    let uri = text(contents, "uri").unwrap_or_default();
    let mime = text(contents, "mimeType").unwrap_or_default();
    let bytes = member(contents, "blob").map_or(0, base64_bytes);
    line(
        out,
        &format!("[{}, {}, {bytes} bytes]", Quoted(&uri), Quoted(&mime)),
    );
}

/// Bytes behind a raw base64 string, quotes included.
fn base64_bytes(raw: &str) -> usize {
    let text = raw.trim_matches('"');
    let padding = text.len() - text.trim_end_matches('=').len();
    (text.len() / 4 * 3).saturating_sub(padding)
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    if !text.ends_with('\n') {
        out.push('\n');
    }
}

fn shown(text: String) -> String {
    match std::io::stdout().is_terminal() {
        true => escape_controls(&text),
        false => text,
    }
}

fn escape_controls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() && !matches!(c, '\n' | '\t') {
            true => out.extend(c.escape_unicode()),
            false => out.push(c),
        }
    }
    out
}

/// Whether an object has no members.
pub(super) fn is_empty(object: &str) -> bool {
    members(object).next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_printed_as_it_is_and_the_rest_is_named() {
        let raw = r#"{"content":[{"type":"text","text":"a\nb"},
            {"type":"image","mimeType":"image/png","data":"AAEC"},
            {"type":"resource","resource":{"uri":"x:1","mimeType":"m/n","blob":"AA=="}},
            {"type":"resource","resource":{"uri":"x:2","text":"inside"}},
            {"type":"resource_link","name":"n","uri":"x:3"},{"type":"new"}],
            "structuredContent":{"left":"out"}}"#;
        assert_eq!(
            result(raw),
            "a\nb\n[image, image/png, 3 bytes]\n[x:1, m/n, 1 bytes]\ninside\n[n] x:3\n{\"type\":\"new\"}\n"
        );
        assert_eq!(
            result(r#"{"structuredContent":{"a":1}}"#),
            "{\n  \"a\": 1\n}\n"
        );
        assert_eq!(result(r#"{"toolResult":1}"#), "{\n  \"toolResult\": 1\n}\n");
    }

    #[test]
    fn a_terminal_sees_no_control_characters() {
        assert_eq!(escape_controls("a\u{1b}[2J\n\tb"), "a\\u{1b}[2J\n\tb");
    }
}
