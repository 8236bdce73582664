//! Values that must not be shown, and URLs fit to be shown.

mod mask;

use std::fmt;

pub use self::mask::{is_secret_name, is_secret_parameter, mask_text, mask_url};

/// A token, password or key. `Debug` and `Display` print `***`; only [`Secret::expose`] gives the value.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret<T = String>(T);

impl<T> Secret<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself, for the one place that sends or compares it.
    pub const fn expose(&self) -> &T {
        &self.0
    }

    /// The value itself, to be used up.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Shows a URL without user information, query and fragment, control characters escaped: what logs,
/// diagnostics and errors may say of it.
#[derive(Clone, Copy)]
pub struct UrlForLog<'a>(pub &'a str);

impl fmt::Display for UrlForLog<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.find(['?', '#']).unwrap_or(self.0.len());
        let url = &self.0[..end];
        let (scheme, rest) = match url.find("://") {
            Some(at) => url.split_at(at + 3),
            None => ("", url),
        };
        let authority_end = rest.find('/').unwrap_or(rest.len());
        let shown = match rest[..authority_end].rfind('@') {
            Some(at) => &rest[at + 1..],
            None => rest,
        };
        write!(f, "{}{}", Quoted(scheme), Quoted(shown))
    }
}

/// Bytes of a peer's text that an error or a log line may repeat; the rest is cut with `…`.
/// Source: reliability-security T8 (error texts quote at most 128 bytes of input).
pub const QUOTE_BYTES_MAX: usize = 128;

/// Text from a peer, safe for an error, a log or a terminal: control characters are escaped and at most
/// [`QUOTE_BYTES_MAX`] bytes of it are shown.
#[derive(Clone, Copy)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = self.0.len() > QUOTE_BYTES_MAX;
        let mut end = self.0.len().min(QUOTE_BYTES_MAX);
        while !self.0.is_char_boundary(end) {
            end -= 1;
        }
        for c in self.0[..end].chars() {
            // C0, DEL, C1 and the characters that reorder or hide text on a terminal.
            let hidden = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
            if c.is_control() || hidden {
                write!(f, "{}", c.escape_unicode())?;
            } else {
                write!(f, "{c}")?;
            }
        }
        if cut { f.write_str("…") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_never_print() {
        let token = Secret::new("hunter2".to_owned());
        assert_eq!(format!("{token} {token:?}"), "*** ***");
        assert_eq!(token.expose(), "hunter2");
    }

    #[test]
    fn urls_lose_userinfo_and_query() {
        let shown = |url| UrlForLog(url).to_string();
        assert_eq!(
            shown("wss://me:pw@host:1/path?token=x#y"),
            "wss://host:1/path"
        );
        assert_eq!(shown("ws://127.0.0.1:18789"), "ws://127.0.0.1:18789");
        assert_eq!(
            shown("ws://h/a@b"),
            "ws://h/a@b",
            "an @ in the path is no user information"
        );
        assert_eq!(shown("ws://h/\u{1b}[2J"), "ws://h/\\u{1b}[2J");
    }

    #[test]
    fn quotes_are_bounded_and_escaped() {
        assert_eq!(Quoted("a\tb\u{9b}").to_string(), "a\\u{9}b\\u{9b}");
        let long = "é".repeat(200);
        let shown = Quoted(&long).to_string();
        assert!(shown.ends_with('…'));
        assert_eq!(shown.chars().count(), 65);
    }
}
