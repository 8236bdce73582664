//! A JSON string that stays where it stands.

use std::borrow::Cow;
use std::cmp::Ordering;

/// A JSON string as spelled, without its quotes. Comparison is by meaning: `"\u0061"` equals `"a"`.
///
/// A lone surrogate escape has no meaning as text. It equals only itself, and decodes to U+FFFD.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    raw: &'a str,
    escaped: bool,
}

impl<'a> Text<'a> {
    pub(super) const EMPTY: Self = Text {
        raw: "",
        escaped: false,
    };

    /// `raw` is what stands between the quotes of a valid string, `escaped` whether a backslash is in it.
    pub(super) const fn new(raw: &'a str, escaped: bool) -> Self {
        Self { raw, escaped }
    }

    /// The string that a valid raw value is; `None` for any other kind of value.
    #[must_use]
    pub fn of_value(raw: &'a str) -> Option<Self> {
        let raw = raw.strip_prefix('"')?.strip_suffix('"')?;
        Some(Self {
            raw,
            escaped: memchr::memchr(b'\\', raw.as_bytes()).is_some(),
        })
    }

    /// As spelled, escapes included, quotes not.
    #[must_use]
    pub const fn raw(&self) -> &'a str {
        self.raw
    }

    /// Whether it is spelled with escapes, so that [`decode`](Self::decode) must copy.
    #[must_use]
    pub const fn has_escapes(&self) -> bool {
        self.escaped
    }

    /// What it means; borrowed unless there are escapes.
    #[inline]
    #[must_use]
    pub fn decode(&self) -> Cow<'a, str> {
        if self.escaped {
            Cow::Owned(self.decoded())
        } else {
            Cow::Borrowed(self.raw)
        }
    }

    fn decoded(&self) -> String {
        let mut text = String::with_capacity(self.raw.len());
        let mut rest = self.raw;
        while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
            text.push_str(&rest[..at]);
            let mut points = CodePoints { rest: &rest[at..] };
            let point = points.next().and_then(char::from_u32);
            text.push(point.unwrap_or(char::REPLACEMENT_CHARACTER));
            rest = points.rest;
        }
        text.push_str(rest);
        text
    }

    /// Whether it means `text`.
    #[inline]
    #[must_use]
    pub fn is(&self, text: &str) -> bool {
        if self.escaped {
            self.spells(text)
        } else {
            self.raw == text
        }
    }

    fn spells(&self, text: &str) -> bool {
        self.code_points().eq(text.chars().map(u32::from))
    }

    const fn code_points(&self) -> CodePoints<'a> {
        CodePoints { rest: self.raw }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        if self.escaped || other.escaped {
            self.code_points().eq(other.code_points())
        } else {
            self.raw == other.raw
        }
    }
}

impl Eq for Text<'_> {}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    /// By code points, which for text without escapes is the order of its UTF-8 bytes.
    fn cmp(&self, other: &Self) -> Ordering {
        if self.escaped || other.escaped {
            self.code_points().cmp(other.code_points())
        } else {
            self.raw.cmp(other.raw)
        }
    }
}

impl std::fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\"{}\"", self.raw)
    }
}

/// Code points of a valid JSON string; a lone surrogate comes as its own number.
struct CodePoints<'a> {
    rest: &'a str,
}

impl Iterator for CodePoints<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let mut chars = self.rest.chars();
        let first = chars.next()?;
        if first != '\\' {
            self.rest = chars.as_str();
            return Some(first.into());
        }
        let letter = chars.next()?;
        self.rest = chars.as_str();
        Some(match letter {
            'b' => 0x08,
            'f' => 0x0c,
            'n' => 0x0a,
            'r' => 0x0d,
            't' => 0x09,
            'u' => self.unit_or_pair(),
            same => same.into(),
        })
    }
}

impl CodePoints<'_> {
    /// After `\u`: one UTF-16 unit, or two that form a pair. RFC 8259 §7.
    fn unit_or_pair(&mut self) -> u32 {
        let unit = hex4(self.rest);
        self.rest = self.rest.get(4..).unwrap_or("");
        if !(0xd800..0xdc00).contains(&unit) {
            return unit;
        }
        let Some(second) = self.rest.strip_prefix("\\u") else {
            return unit;
        };
        let low = hex4(second);
        if !(0xdc00..0xe000).contains(&low) {
            return unit;
        }
        self.rest = second.get(4..).unwrap_or("");
        0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00)
    }
}

/// The number of four hexadecimal digits. A valid string has them; anything else reads as U+FFFD.
fn hex4(text: &str) -> u32 {
    text.get(..4)
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .unwrap_or(char::REPLACEMENT_CHARACTER.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(raw: &str) -> Text<'_> {
        Text::new(raw, raw.contains('\\'))
    }

    #[test]
    fn escapes_decode() {
        let cases = [
            ("plain é", "plain é"),
            (r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r"a\u0000b", "a\0b"),
            (r"\u00e9\u00E9", "éé"),
            (r"\ud83d\ude00!", "😀!"),
            (r"\ud800", "\u{fffd}"),
            (r"\ud800\ud83d\ude00", "\u{fffd}😀"),
            (r"\ude00\ud83d", "\u{fffd}\u{fffd}"),
            (r"\ud83d\u0041", "\u{fffd}A"),
            (r"\ud83dx", "\u{fffd}x"),
        ];
        for (raw, meaning) in cases {
            assert_eq!(text(raw).decode(), meaning, "{raw}");
        }
        assert!(matches!(text("plain").decode(), Cow::Borrowed("plain")));
    }

    #[test]
    fn comparison_is_by_meaning() {
        assert!(text(r"\u006dethod").is("method"));
        assert!(!text(r"\u006dethod").is("methods"));
        assert_eq!(text(r"\u0061"), text("a"));
        assert_eq!(text(r"\ud83d\ude00"), text("😀"));
        assert_ne!(text(r"\ud800"), text(r"\ud801"));
        assert!(!text(r"\ud800").is("\u{fffd}"));
        assert_eq!(text("a").cmp(&text(r"\u0062")), Ordering::Less);
    }

    #[test]
    fn only_strings_are_text() {
        assert_eq!(Text::of_value(r#""a""#), Some(text("a")));
        assert_eq!(Text::of_value(r#""""#), Some(text("")));
        for raw in ["1", "null", "{}", "[\"a\"]"] {
            assert_eq!(Text::of_value(raw), None, "{raw}");
        }
    }
}
