//! The grammar of RFC 8259 over bytes: one pass, no recursion, no allocation up to 256 levels.
//!
//! A [`Reader`] stands somewhere in a text and is moved over whole values or from member to member. It
//! does not ask whether the bytes are UTF-8: inside strings everything from 0x80 up passes.

use super::text::Text;
use crate::codec::plain::{quotes, short_plain_end, specials};

/// What stopped a [`Reader`] at the place where it stands: what the grammar wanted instead of what it found.
/// One byte, because every step of the grammar returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Value,
    Name,
    Colon,
    CommaOrBrace,
    CommaOrBracket,
    Digit,
    Escape,
    HexDigit,
    EscapedControl,
    Quote,
    End,
    /// One level more than the limit.
    TooDeep,
}

impl Fault {
    /// The wanted thing as a noun; `None` when the text was only too deep.
    pub(super) const fn noun(self) -> Option<&'static str> {
        Some(match self {
            Self::Value => "a value",
            Self::Name => "a member name in quotes",
            Self::Colon => "a colon",
            Self::CommaOrBrace => "a comma or a closing brace",
            Self::CommaOrBracket => "a comma or a closing bracket",
            Self::Digit => "a digit",
            Self::Escape => "an escape letter",
            Self::HexDigit => "four hexadecimal digits",
            Self::EscapedControl => "no bare control character in a string",
            Self::Quote => "a closing quote",
            Self::End => "the end of the text",
            Self::TooDeep => return None,
        })
    }
}

/// A string as found: the range between the quotes, and whether it holds escapes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) escaped: bool,
}

impl Span {
    /// The string, of the text that was read.
    pub(super) fn of(self, text: &str) -> Text<'_> {
        Text::new(&text[self.start..self.end], self.escaped)
    }
}

/// A place in a JSON text.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The string read last. A field, because a step that returns no more than a [`Fault`] returns it in a
    /// register.
    string: Span,
    nesting: Nesting,
    /// The text was validated before, so that a string needs no look at each byte.
    known: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], depth_max: usize) -> Self {
        Self {
            bytes,
            at: 0,
            string: Span {
                start: 0,
                end: 0,
                escaped: false,
            },
            nesting: Nesting::new(depth_max),
            known: false,
        }
    }

    /// A reader of a text that was validated before. Of any other text it reads something, without fault or
    /// with one.
    pub(super) fn of_known(bytes: &'a [u8]) -> Self {
        Self {
            known: true,
            ..Self::new(bytes, usize::MAX)
        }
    }

    /// Offset of the next byte.
    #[inline]
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// The name of the member, or the string, that was read last.
    #[inline]
    pub(super) const fn last_string(&self) -> Span {
        self.string
    }

    /// The next byte, which after [`skip_space`](Self::skip_space) begins a token.
    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Moves over white space.
    #[inline]
    pub(super) fn skip_space(&mut self) {
        self.token();
    }

    /// Moves over white space to the byte that begins a token, and gives it.
    #[inline]
    fn token(&mut self) -> Option<u8> {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.at += 1,
                other => return other,
            }
        }
    }

    /// Moves over trailing white space; anything else is a fault.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        self.skip_space();
        if self.at == self.bytes.len() {
            Ok(())
        } else {
            Err(Fault::End)
        }
    }

    /// Moves over one whole value, which begins at the next byte.
    pub(super) fn value(&mut self) -> Result<(), Fault> {
        let floor = self.nesting.depth;
        loop {
            let more = match self.peek() {
                Some(b'"') => {
                    self.string()?;
                    false
                }
                Some(b'{') => {
                    self.open_object()?;
                    self.next_member(true)?
                }
                Some(b'[') => {
                    self.open_array()?;
                    self.next_element(true)?
                }
                Some(b'-' | b'0'..=b'9') => {
                    self.number()?;
                    false
                }
                Some(b't') => self.literal(b"true")?,
                Some(b'f') => self.literal(b"false")?,
                Some(b'n') => self.literal(b"null")?,
                _ => return Err(Fault::Value),
            };
            if more {
                continue;
            }
            // A value has ended: go up until a container has another one.
            loop {
                if self.nesting.depth == floor {
                    return Ok(());
                }
                let more = if self.nesting.in_object() {
                    self.next_member(false)?
                } else {
                    self.next_element(false)?
                };
                if more {
                    break;
                }
            }
        }
    }

    /// Moves over an opening brace.
    #[inline]
    pub(super) fn open_object(&mut self) -> Result<(), Fault> {
        self.open(true)
    }

    /// Moves over an opening bracket.
    #[inline]
    pub(super) fn open_array(&mut self) -> Result<(), Fault> {
        self.open(false)
    }

    /// In an object: moves to the value of the next member, whose name is then the
    /// [`last_string`](Self::last_string), or past the closing brace (`false`). `first` says that nothing of
    /// the object was read yet.
    pub(super) fn next_member(&mut self, first: bool) -> Result<bool, Fault> {
        let mut found = self.token();
        if !first && found == Some(b',') {
            self.at += 1;
            found = self.token();
        } else if found == Some(b'}') {
            self.close();
            return Ok(false);
        } else if !first {
            return Err(Fault::CommaOrBrace);
        }
        if found != Some(b'"') {
            return Err(Fault::Name);
        }
        self.string()?;
        if self.token() != Some(b':') {
            return Err(Fault::Colon);
        }
        self.at += 1;
        self.skip_space();
        Ok(true)
    }

    /// In an array: moves to the next element, or past the closing bracket (`false`).
    pub(super) fn next_element(&mut self, first: bool) -> Result<bool, Fault> {
        self.skip_space();
        match self.peek() {
            Some(b']') => {
                self.close();
                return Ok(false);
            }
            Some(b',') if !first => {
                self.at += 1;
                self.skip_space();
            }
            _ if first => {}
            _ => return Err(Fault::CommaOrBracket),
        }
        Ok(true)
    }

    #[inline]
    fn open(&mut self, object: bool) -> Result<(), Fault> {
        let opening = if object { b'{' } else { b'[' };
        if self.peek() != Some(opening) {
            return Err(Fault::Value);
        }
        if self.nesting.depth >= self.nesting.depth_max {
            return Err(Fault::TooDeep);
        }
        self.nesting.push(object);
        self.at += 1;
        Ok(())
    }

    #[inline]
    fn close(&mut self) {
        self.nesting.depth -= 1;
        self.at += 1;
    }

    fn literal(&mut self, word: &[u8]) -> Result<bool, Fault> {
        if self.bytes[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(false)
        } else {
            Err(Fault::Value)
        }
    }

    fn number(&mut self) -> Result<(), Fault> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// At least one digit.
    fn digits(&mut self) -> Result<(), Fault> {
        let from = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at > from {
            Ok(())
        } else {
            Err(Fault::Digit)
        }
    }

    /// Moves over a string, whose opening quote is the next byte. It is then the
    /// [`last_string`](Self::last_string).
    #[inline]
    pub(super) fn string(&mut self) -> Result<(), Fault> {
        let start = self.at + 1;
        match short_plain_end(self.bytes, start) {
            Some(end) if self.bytes.get(end) == Some(&b'"') => {
                self.string = Span {
                    start,
                    end,
                    escaped: false,
                };
                self.at = end + 1;
                Ok(())
            }
            _ if self.known => self.known_string(start),
            _ => self.long_string(start),
        }
    }

    /// [`string`](Self::string) when it is longer than a name, or has an escape.
    #[inline(never)]
    fn long_string(&mut self, start: usize) -> Result<(), Fault> {
        let mut specials = specials(self.bytes, start);
        let mut escaped = false;
        // What an escape has taken is not looked at again.
        let mut from = start;
        loop {
            let at = specials.next();
            if at < from {
                continue;
            }
            match self.bytes.get(at) {
                Some(b'"') => {
                    self.string = Span {
                        start,
                        end: at,
                        escaped,
                    };
                    self.at = at + 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    escaped = true;
                    from = at + 2;
                    let letter = self.bytes.get(at + 1);
                    if !matches!(
                        letter,
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't')
                    ) {
                        self.at = at;
                        self.code_escape()?;
                    }
                }
                found => {
                    self.at = at;
                    return Err(found.map_or(Fault::Quote, |_| Fault::EscapedControl));
                }
            }
        }
    }

    /// [`long_string`](Self::long_string) where only the end is to be found: the first quote behind an even
    /// number of backslashes.
    #[inline(never)]
    fn known_string(&mut self, start: usize) -> Result<(), Fault> {
        let mut quotes = quotes(self.bytes, start);
        let mut from = start;
        loop {
            let end = quotes.next();
            let Some(found) = self.bytes.get(from..end).filter(|_| end < self.bytes.len()) else {
                self.at = self.bytes.len();
                return Err(Fault::Quote);
            };
            // What lies before `from` ends in a quote, so no backslash is counted twice.
            let backslashes = found.iter().rev().take_while(|byte| **byte == b'\\');
            if backslashes.count() % 2 == 0 {
                let text = &self.bytes[start..end];
                self.string = Span {
                    start,
                    end,
                    escaped: from > start || memchr::memchr(b'\\', text).is_some(),
                };
                self.at = end + 1;
                return Ok(());
            }
            from = end + 1;
        }
    }

    /// Moves over an escape by number, whose backslash is the next byte.
    fn code_escape(&mut self) -> Result<(), Fault> {
        self.at += 1;
        if self.peek() != Some(b'u') {
            return Err(Fault::Escape);
        }
        match self.bytes.get(self.at + 1..self.at + 5) {
            Some(hex) if hex.iter().all(u8::is_ascii_hexdigit) => {
                self.at += 5;
                Ok(())
            }
            _ => Err(Fault::HexDigit),
        }
    }
}

/// Levels whose kind is kept without an allocation. Above the default of `json_depth_max`.
const INLINE_LEVELS: usize = 256;

/// Which containers are open around the reader: one bit a level, set for an object.
struct Nesting {
    depth: usize,
    depth_max: usize,
    inline: [u64; INLINE_LEVELS / 64],
    /// Further levels, for a limit that was set higher.
    more: Vec<u64>,
}

impl Nesting {
    const fn new(depth_max: usize) -> Self {
        Self {
            depth: 0,
            depth_max,
            inline: [0; INLINE_LEVELS / 64],
            more: Vec::new(),
        }
    }

    fn push(&mut self, object: bool) {
        let (word, bit) = (self.depth / 64, self.depth % 64);
        self.depth += 1;
        let word = match self.inline.get_mut(word) {
            Some(word) => word,
            None => {
                let index = word - INLINE_LEVELS / 64;
                if index == self.more.len() {
                    self.more.push(0);
                }
                &mut self.more[index]
            }
        };
        *word = (*word & !(1 << bit)) | (u64::from(object) << bit);
    }

    /// Whether the innermost container is an object. Only asked inside one.
    fn in_object(&self) -> bool {
        let top = self.depth - 1;
        let (word, bit) = (top / 64, top % 64);
        let word = match self.inline.get(word) {
            Some(word) => *word,
            None => self.more[word - INLINE_LEVELS / 64],
        };
        (word >> bit) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_string_ends_where_a_checked_one_does() {
        for text in [
            r#""""#,
            r#""a""#,
            r#""a\""#,
            r#""a"b\"c\" "d""#,
            r#"""""#,
            r#""\"\""#,
            "\"é\\n\"x",
            "\"no end",
            "\"no end\\\"",
            "\"longer than one look and then one more\\\\\\\" and another one\\\\\" x",
        ] {
            let mut checked = Reader::new(text.as_bytes(), 1);
            let mut known = Reader::of_known(text.as_bytes());
            assert_eq!(checked.string(), known.string(), "{text}");
            assert_eq!(checked.at, known.at, "{text}");
            let (a, b) = (checked.string, known.string);
            assert_eq!(
                (a.start, a.end, a.escaped),
                (b.start, b.end, b.escaped),
                "{text}"
            );
        }
    }

    #[test]
    fn kinds_of_containers_survive_the_inline_levels() {
        let levels = INLINE_LEVELS + 130;
        let mut text = Vec::new();
        for level in 0..levels {
            text.extend_from_slice(if level % 3 == 0 { b"{\"a\":" } else { b"[" });
        }
        text.push(b'1');
        for level in (0..levels).rev() {
            text.push(if level % 3 == 0 { b'}' } else { b']' });
        }
        let mut reader = Reader::new(&text, levels);
        assert_eq!(reader.value(), Ok(()));
        assert_eq!(reader.end(), Ok(()));
        let fault = Reader::new(&text, levels - 1).value();
        assert_eq!(fault, Err(Fault::TooDeep));
    }
}
