//! What a program says on its stderr: the end of it for errors, all of it for the debug log, both within
//! bounds.
//!
//! Never: takes anything said there for a sign of failure.

use crate::clock::Now;
use crate::secret::Quoted;

/// Lines of one program that are logged in a second; the rest is counted. Source: reliability-security §3
/// (stderr_rate).
const LOGGED_PER_SECOND: u32 = 100;

/// The end of a program's stderr.
#[derive(Debug)]
pub(super) struct StderrTail {
    /// Whose, for the log.
    name: String,
    /// Escaped; up to twice the limit, so that cutting is rare.
    text: String,
    bytes_max: usize,
    /// The beginning of a character, or of what looked like one: at most three bytes.
    cut: Vec<u8>,
    /// Where the line that is not yet logged begins.
    logged: usize,
    second: u64,
    lines: u32,
    unlogged: u64,
}

impl StderrTail {
    /// Nothing yet, of the program called `name`. At most `bytes_max` are shown.
    pub(super) fn new(name: &str, bytes_max: usize) -> Self {
        Self {
            name: Quoted(name).to_string(),
            text: String::new(),
            bytes_max,
            cut: Vec::new(),
            logged: 0,
            second: 0,
            lines: 0,
            unlogged: 0,
        }
    }

    /// It said more.
    pub(super) fn push(&mut self, now: Now, bytes: &[u8]) {
        let joined;
        let bytes = if self.cut.is_empty() {
            bytes
        } else {
            self.cut.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.cut);
            &joined
        };
        for chunk in bytes.utf8_chunks() {
            escape(&mut self.text, chunk.valid());
            let broken = chunk.invalid();
            let last = std::ptr::eq(broken.as_ptr_range().end, bytes.as_ptr_range().end);
            if last && begins_character(broken) {
                self.cut = broken.to_vec();
            } else if !broken.is_empty() {
                self.text.push('\u{fffd}');
            }
        }
        self.log(now);
        if self.text.len() > 2 * self.bytes_max {
            let from = self.shown_from();
            self.text.drain(..from);
            self.logged = self.logged.saturating_sub(from);
        }
    }

    /// The end of what it said, without the last line end. Control characters are escaped, line feeds are
    /// not.
    pub(super) fn tail(&self) -> &str {
        self.text[self.shown_from()..].trim_end()
    }

    fn shown_from(&self) -> usize {
        let mut from = self.text.len().saturating_sub(self.bytes_max);
        while !self.text.is_char_boundary(from) {
            from += 1;
        }
        from
    }

    fn log(&mut self, now: Now) {
        if !log::log_enabled!(log::Level::Debug) {
            self.logged = self.text.len();
            return;
        }
        let second = now.up.as_millis() / 1_000;
        if second != self.second {
            if self.unlogged > 0 {
                log::debug!("{}: {} lines not logged", self.name, self.unlogged);
            }
            (self.second, self.lines, self.unlogged) = (second, 0, 0);
        }
        while let Some(length) = self.text[self.logged..].find('\n') {
            let line = self.text[self.logged..self.logged + length].trim_end();
            self.logged += length + 1;
            if line.is_empty() {
            } else if self.lines < LOGGED_PER_SECOND {
                self.lines += 1;
                log::debug!("{}: {line}", self.name);
            } else {
                self.unlogged += 1;
            }
        }
    }
}

/// Appends `text` with everything a terminal would act upon made visible.
fn escape(to: &mut String, text: &str) {
    for c in text.chars() {
        let hidden = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if c == '\n' || c == '\t' || !(c.is_control() || hidden) {
            to.push(c);
        } else if c != '\r' {
            to.extend(c.escape_unicode());
        }
    }
}

/// Whether these bytes, no character, may become one with what follows.
fn begins_character(bytes: &[u8]) -> bool {
    let wanted = match bytes.first() {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => 0,
    };
    bytes.len() < wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Uptime;

    fn said(max: usize, chunks: &[&[u8]]) -> StderrTail {
        let now = Now {
            up: Uptime::ZERO,
            unix_ms: 0,
        };
        let mut tail = StderrTail::new("server", max);
        for chunk in chunks {
            tail.push(now, chunk);
        }
        tail
    }

    #[test]
    fn the_end_is_kept_and_made_harmless() {
        assert_eq!(
            said(99, &[b"a\r\n\x1b[2J", b"b\n"]).tail(),
            "a\n\\u{1b}[2Jb"
        );
        assert_eq!(said(3, &[b"abcdef"]).tail(), "def");
        assert_eq!(said(3, &["aä".as_bytes(), "öü".as_bytes()]).tail(), "ü");
        assert_eq!(said(9, &[]).tail(), "");
    }

    #[test]
    fn characters_may_come_in_parts() {
        let euro = "€".as_bytes();
        assert_eq!(said(9, &[&euro[..1], &euro[1..2], &euro[2..]]).tail(), "€");
        assert_eq!(said(99, &[b"a\xe2", b"b\xff"]).tail(), "a\u{fffd}b\u{fffd}");
    }

    #[test]
    fn a_flood_is_not_kept() {
        let line = b"noise line on stderr 0123456789\n";
        let tail = said(1_024, &vec![&line[..]; 32_768]);
        assert!(tail.text.len() <= 2 * 1_024);
        assert!(tail.tail().len() <= 1_024);
        assert!(tail.tail().ends_with("0123456789"));
    }
}
