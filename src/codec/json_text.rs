//! JSON text, written and re-indented without a value tree.

/// Appends `text` as a JSON string, quotes included, escaped as JavaScript's `JSON.stringify` does, so
/// that our output compares equal to that of the programs we replace.
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    let mut from = 0;
    for (i, byte) in text.bytes().enumerate() {
        let escape: Option<&str> = match byte {
            b'"' => Some("\\\""),
            b'\\' => Some("\\\\"),
            b'\n' => Some("\\n"),
            b'\r' => Some("\\r"),
            b'\t' => Some("\\t"),
            0x08 => Some("\\b"),
            0x0c => Some("\\f"),
            0x00..=0x1f => None,
            _ => continue,
        };
        out.push_str(&text[from..i]);
        match escape {
            Some(escape) => out.push_str(escape),
            None => {
                out.push_str("\\u00");
                out.push(if byte >= 0x10 { '1' } else { '0' });
                out.push(char::from_digit(u32::from(byte & 0x0f), 16).unwrap_or('0'));
            }
        }
        from = i + 1;
    }
    out.push_str(&text[from..]);
    out.push('"');
}
