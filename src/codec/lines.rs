//! Newline framing for stdio: one message a line.
//!
//! | state    | input                    | next     | output                                |
//! |----------|--------------------------|----------|---------------------------------------|
//! | Between  | bytes up to a line feed  | Between  | Line, from the chunk itself           |
//! | Between  | bytes without one        | Within   | none; the bytes are kept              |
//! | Within   | bytes up to a line feed  | Between  | Line, from what was kept              |
//! | Within   | bytes without one        | Within   | none; the bytes are kept              |
//! | any      | more bytes than the limit| Skipping | Oversized, once                       |
//! | Skipping | bytes without line feed  | Skipping | none; nothing is kept                 |
//! | Skipping | bytes up to a line feed  | Between  | none                                  |
//! | Within   | end of input             | Between  | Line, which lacks its line feed       |
//! | other    | end of input             | Between  | none                                  |
//!
//! A line feed ends a line; a carriage return before it does not belong to the line. A byte order mark at
//! the start of a line is dropped. A line of nothing but white space, or of the zeros a file is padded
//! with, gives no event. All else is given as it stands: whether it is a message is the scanner's question.
//!
//! Source: Spec 2025-11-25 basic/transports (stdio).
//! Never: searches a byte twice for a line feed, copies a line that a chunk holds whole, keeps more than the
//! limit.

/// Splits a stream of bytes into lines.
#[derive(Debug)]
pub struct LineDecoder {
    line_bytes_max: usize,
    /// The line that no chunk held whole: its bytes so far, without line feed.
    kept: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// `kept` is the beginning of the line, empty between two lines.
    Within,
    /// `kept` was given out as a line and is free again.
    Spent,
    /// The line was too long; the rest of it goes.
    Skipping,
}

/// What [`LineDecoder::next`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEvent<'a> {
    /// One line, without its end and without a byte order mark.
    Line(&'a [u8]),
    /// A line is longer than the limit. It is reported when that shows, not when it ends, for it may never
    /// end; the rest of it is skipped.
    Oversized {
        /// How the line begins: at most [`HEAD_BYTES_MAX`] bytes, enough to find the id of most messages (see
        /// [`readable_id`](super::scan::readable_id)).
        head: &'a [u8],
        /// The limit. Unit: bytes, line end not counted.
        limit: usize,
    },
}

/// Bytes of an oversized line that are shown.
pub const HEAD_BYTES_MAX: usize = 4096;

/// Capacity that the buffer of an unfinished line may keep when it is empty. Above the payloads that come every
/// day, so that they do not pay for fresh pages each time.
const KEEP_BYTES: usize = 512 * 1024;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl LineDecoder {
    /// A decoder at the start of a stream. Lines of more than `line_bytes_max` bytes are refused; a carriage
    /// return and a byte order mark count, the line feed does not.
    #[must_use]
    pub const fn new(line_bytes_max: usize) -> Self {
        Self {
            line_bytes_max,
            kept: Vec::new(),
            state: State::Within,
        }
    }

    /// The next event in `chunk`, which is moved forward. Call it until `None`, at which `chunk` is empty; then
    /// the next bytes of the stream may come.
    ///
    /// A chunk that is not used up is not lost: the caller still holds the rest.
    pub fn next<'s, 'c: 's>(&'s mut self, chunk: &mut &'c [u8]) -> Option<LineEvent<'s>> {
        match self.state {
            State::Within => {}
            State::Spent => {
                self.free();
                self.state = State::Within;
            }
            State::Skipping => self.free(),
        }
        loop {
            let bytes = *chunk;
            let Some(end) = memchr::memchr(b'\n', bytes) else {
                *chunk = &[];
                return self.keep(bytes);
            };
            *chunk = &bytes[end + 1..];
            let bytes = &bytes[..end];
            if self.state == State::Skipping {
                self.state = State::Within;
                continue;
            }
            if bytes.len() > self.line_bytes_max.saturating_sub(self.kept.len()) {
                self.state = State::Spent;
                return Some(self.oversized(bytes));
            }
            if self.kept.is_empty() {
                if let Some(line) = content(bytes) {
                    return Some(LineEvent::Line(line));
                }
                continue;
            }
            self.kept.extend_from_slice(bytes);
            if content(&self.kept).is_some() {
                self.state = State::Spent;
                return content(&self.kept).map(LineEvent::Line);
            }
            self.free();
        }
    }

    /// The stream has ended: the last line, if it lacks its line feed. Whether it is complete is for the
    /// scanner to say.
    pub fn finish(&mut self) -> Option<LineEvent<'_>> {
        match self.state {
            State::Within => {
                self.state = State::Spent;
                content(&self.kept).map(LineEvent::Line)
            }
            State::Spent | State::Skipping => {
                self.free();
                self.state = State::Within;
                None
            }
        }
    }

    /// Bytes of an unfinished line that are kept.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        match self.state {
            State::Within => self.kept.len(),
            State::Spent | State::Skipping => 0,
        }
    }

    /// Takes bytes that hold no line feed.
    fn keep<'a>(&'a mut self, bytes: &'a [u8]) -> Option<LineEvent<'a>> {
        if self.state == State::Skipping {
            return None;
        }
        if bytes.len() > self.line_bytes_max.saturating_sub(self.kept.len()) {
            self.state = State::Skipping;
            return Some(self.oversized(bytes));
        }
        self.kept.extend_from_slice(bytes);
        None
    }

    /// The event for a line that begins with `kept`, goes on with `bytes` and is too long.
    fn oversized<'a>(&'a mut self, bytes: &'a [u8]) -> LineEvent<'a> {
        let limit = self.line_bytes_max;
        let head_max = HEAD_BYTES_MAX.min(limit);
        let head = if self.kept.is_empty() {
            bytes
        } else {
            let missing = head_max.saturating_sub(self.kept.len());
            self.kept
                .extend_from_slice(&bytes[..missing.min(bytes.len())]);
            &self.kept
        };
        let head = &head[..head_max.min(head.len())];
        LineEvent::Oversized {
            head: head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head),
            limit,
        }
    }

    /// Empties the buffer and gives back what it grew.
    fn free(&mut self) {
        self.kept.clear();
        self.kept.shrink_to(KEEP_BYTES);
    }
}

/// The line without its end and its byte order mark; `None` when it is blank.
fn content(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    let blank = line
        .iter()
        .all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | 0));
    (!blank).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a decoder says about chunks and the end of input, in words.
    fn events(limit: usize, chunks: &[&[u8]]) -> Vec<String> {
        fn shown(event: LineEvent<'_>) -> String {
            match event {
                LineEvent::Line(line) => String::from_utf8_lossy(line).into_owned(),
                LineEvent::Oversized { head, limit } => {
                    format!("over {limit}: {}", String::from_utf8_lossy(head))
                }
            }
        }
        let mut decoder = LineDecoder::new(limit);
        let mut found = Vec::new();
        for chunk in chunks {
            let mut rest = *chunk;
            while let Some(event) = decoder.next(&mut rest) {
                found.push(shown(event));
            }
            assert!(rest.is_empty(), "a drained chunk is used up");
        }
        found.extend(decoder.finish().map(shown));
        assert_eq!(decoder.finish(), None, "the end comes once");
        found
    }

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        assert_eq!(events(9, &[b"a\nbb\n"]), ["a", "bb"]);
        assert_eq!(events(9, &[b"a\nb", b"b", b"\nc\n"]), ["a", "bb", "c"]);
        assert_eq!(events(9, &[b"a\r", b"\nb\r\n"]), ["a", "b"]);
        assert_eq!(events(9, &[b"a\r\r\n\rb\n"]), ["a\r", "\rb"]);
        assert_eq!(events(9, &[b"a\nlast"]), ["a", "last"]);
        assert_eq!(events(9, &[b"last\r"]), ["last"]);
    }

    #[test]
    fn a_byte_order_mark_is_dropped_at_the_start_only() {
        let mark = "\u{feff}";
        let stream = format!("{mark}a\n{mark}{mark}b\n {mark}c\n{mark}\n{mark} \r\n{mark}");
        let wanted = ["a".to_owned(), format!("{mark}b"), format!(" {mark}c")];
        assert_eq!(events(99, &[stream.as_bytes()]), wanted);
        assert_eq!(events(99, &[b"\xef", b"\xbb", b"\xbfa", b"\n"]), ["a"]);
    }

    #[test]
    fn blank_lines_say_nothing() {
        let blank: &[u8] = b"\n\r\n \t \n\0\0\0\n \0\r\n\r\r\n  ";
        assert_eq!(events(9, &[blank]), [""; 0]);
        let byte_by_byte: Vec<_> = blank.chunks(1).collect();
        assert_eq!(events(9, &byte_by_byte), [""; 0]);
        assert_eq!(events(9, &[b"\x0b\n\0{}\n"]), ["\u{b}", "\0{}"]);
    }

    #[test]
    fn an_oversized_line_is_told_once_and_skipped() {
        assert_eq!(events(3, &[b"abc\nabcd\ne\n"]), ["abc", "over 3: abc", "e"]);
        assert_eq!(
            events(3, &[b"ab", b"cd", b"efgh", b"i\nj", b"\n"]),
            ["over 3: abc", "j"]
        );
        assert_eq!(events(3, &[b"ab", b"cd\ne\n"]), ["over 3: abc", "e"]);
        assert_eq!(events(3, &[b"abcd", b"efgh"]), ["over 3: abc"]);
        assert_eq!(
            events(3, &[b"abcd", b"\n", b"\n", b"ab"]),
            ["over 3: abc", "ab"]
        );
    }

    #[test]
    fn the_head_of_an_oversized_line_does_not_depend_on_cuts() {
        let mut stream = BYTE_ORDER_MARK.to_vec();
        stream.resize(3 * HEAD_BYTES_MAX, b'x');
        let whole = events(2 * HEAD_BYTES_MAX, &[&stream]);
        assert!(whole[0].ends_with(&"x".repeat(HEAD_BYTES_MAX - 3)));
        for size in [1, 100, HEAD_BYTES_MAX - 1, 2 * HEAD_BYTES_MAX + 1] {
            let chunks: Vec<_> = stream.chunks(size).collect();
            assert_eq!(
                events(2 * HEAD_BYTES_MAX, &chunks),
                whole,
                "chunks of {size}"
            );
        }
    }

    #[test]
    fn memory_is_bounded_and_given_back() {
        let limit = 8 * KEEP_BYTES;
        let mut decoder = LineDecoder::new(limit);
        let chunk = vec![b'x'; KEEP_BYTES];
        for _ in 0..8 {
            assert_eq!(decoder.next(&mut chunk.as_slice()), None);
        }
        assert_eq!(decoder.kept_bytes(), limit);
        let event = decoder.next(&mut chunk.as_slice());
        assert!(matches!(event, Some(LineEvent::Oversized { .. })));
        assert_eq!(decoder.next(&mut chunk.as_slice()), None);
        assert!(
            decoder.kept.capacity() <= KEEP_BYTES,
            "a skipped line is not kept"
        );
        assert_eq!(decoder.kept_bytes(), 0);

        let mut decoder = LineDecoder::new(limit);
        assert_eq!(decoder.next(&mut &vec![b'x'; limit][..]), None);
        let mut rest: &[u8] = b"\n";
        assert!(matches!(decoder.next(&mut rest), Some(LineEvent::Line(_))));
        assert_eq!(decoder.next(&mut rest), None);
        assert!(
            decoder.kept.capacity() <= KEEP_BYTES,
            "a long line is not kept"
        );
    }

    #[test]
    fn a_line_that_a_chunk_holds_whole_is_not_copied() {
        let chunk: &[u8] = b"abc\nd";
        let mut rest = chunk;
        let mut decoder = LineDecoder::new(9);
        let Some(LineEvent::Line(line)) = decoder.next(&mut rest) else {
            panic!("a line");
        };
        assert_eq!(line.as_ptr(), chunk.as_ptr());
        assert_eq!(decoder.kept.capacity(), 0);
        assert_eq!(decoder.next(&mut rest), None);
        assert_eq!(decoder.kept_bytes(), 1);
    }
}
