//! Collects the bytes of one head and finds its end.

use memchr::{memchr, memchr2};

use super::{HeadError, HeadLimits, is_token_byte};

/// Most heads are shorter than this: the first one is kept without growing.
const USUAL_BYTES: usize = 512;

/// How a head must begin, so that a stranger's bytes are refused at once and not after 16 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// A method.
    Token,
    /// `HTTP/`.
    Version,
}

/// Collects one head and finds its end. Each byte is searched once, when it comes.
#[derive(Debug)]
pub(super) struct HeadBuffer {
    limits: HeadLimits,
    start: Start,
    bytes: Vec<u8>,
    /// Where the head starts, behind skipped empty lines.
    head_start: usize,
    /// Where the line in progress starts.
    line_start: usize,
    /// Whole lines of the head so far, the start line included.
    pub(super) lines: usize,
    #[cfg(test)]
    bytes_looked_at: usize,
}

impl HeadBuffer {
    pub(super) const fn new(mut limits: HeadLimits, start: Start) -> Self {
        // Places in a head are noted in 32 bits.
        if limits.bytes_max > u32::MAX as usize {
            limits.bytes_max = u32::MAX as usize;
        }
        Self {
            limits,
            start,
            bytes: Vec::new(),
            head_start: 0,
            line_start: 0,
            lines: 0,
            #[cfg(test)]
            bytes_looked_at: 0,
        }
    }

    /// Whether anything of a head is here, empty lines before it aside.
    pub(super) fn has_begun(&self) -> bool {
        self.bytes[self.head_start..].iter().any(|b| *b != b'\r')
    }

    /// Whether nothing was taken since the last head.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Ready for the next head. Capacity is kept.
    pub(super) fn reset(&mut self) {
        self.bytes.clear();
        self.head_start = 0;
        self.line_start = 0;
        self.lines = 0;
    }

    /// Swaps the whole head against an empty buffer whose capacity serves the next one. Returns
    /// where the head starts in it.
    pub(super) fn swap(&mut self, bytes: &mut Vec<u8>) -> usize {
        let start = self.head_start;
        std::mem::swap(&mut self.bytes, bytes);
        self.reset();
        start
    }

    /// Gives up the capacity of an empty buffer.
    pub(super) fn trim(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = Vec::new();
        }
    }

    /// Takes input up to the end of the head; when that is in it, says how many bytes of the input
    /// belong to the head. Nothing behind the end is taken.
    pub(super) fn take(&mut self, input: &[u8]) -> Result<Option<usize>, HeadError> {
        let mut used = 0;
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(input.len().min(USUAL_BYTES));
        }
        loop {
            let rest = &input[used..];
            let newline = memchr(b'\n', rest);
            let wanted = newline.map_or(rest.len(), |at| at + 1);
            let room = self.limits.bytes_max.saturating_sub(self.bytes.len());
            let taken = wanted.min(room);
            #[cfg(test)]
            {
                self.bytes_looked_at += taken;
            }
            self.bytes.extend_from_slice(&rest[..taken]);
            used += taken;
            self.check_start()?;
            if taken < wanted {
                let limit = self.limits.bytes_max;
                return Err(if self.lines == 0 {
                    HeadError::StartLineTooLong { limit }
                } else {
                    HeadError::TooLong { limit }
                });
            }
            if newline.is_none() {
                return Ok(None);
            }
            let empty = self.end_line()?;
            if empty && self.lines == 0 && self.start == Start::Token {
                self.head_start = self.line_start;
            } else if empty {
                return Ok(Some(used));
            }
        }
    }

    /// Checks the line that the last byte ends; true for an empty one.
    fn end_line(&mut self) -> Result<bool, HeadError> {
        let stray = |byte| HeadError::Control {
            byte,
            line: self.lines + 1,
        };
        let line = &self.bytes[self.line_start..self.bytes.len() - 1];
        let Some((b'\r', line)) = line.split_last() else {
            return Err(stray(b'\n'));
        };
        if let Some(at) = memchr2(b'\0', b'\r', line) {
            return Err(stray(line[at]));
        }
        let empty = line.is_empty();
        // Strangers that speak in lines are not kept waiting for the end of a head.
        if self.lines == 0 && !empty && self.start == Start::Token && !names_http(line) {
            return Err(HeadError::StartLine);
        }
        self.line_start = self.bytes.len();
        if !empty {
            self.lines += 1;
            if self.lines - 1 > self.limits.fields_max {
                return Err(HeadError::TooManyFields {
                    limit: self.limits.fields_max,
                });
            }
        }
        Ok(empty)
    }

    fn check_start(&self) -> Result<(), HeadError> {
        let head = &self.bytes[self.head_start..];
        let good = match self.start {
            Start::Token => head
                .first()
                .is_none_or(|b| is_token_byte(*b) || matches!(b, b'\r' | b'\n')),
            Start::Version => {
                let expected = b"HTTP/";
                let len = head.len().min(expected.len());
                head[..len] == expected[..len]
            }
        };
        if good {
            Ok(())
        } else {
            Err(HeadError::NotHttp)
        }
    }
}

/// Whether a request line ends in a version of HTTP, any one.
fn names_http(line: &[u8]) -> bool {
    let version = line.iter().rposition(|b| *b == b' ');
    version.is_some_and(|at| line[at + 1..].starts_with(b"HTTP/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_searched_once_however_the_bytes_come() {
        let limits = HeadLimits {
            bytes_max: 16 * 1024,
            fields_max: 100,
        };
        for line_len in [1, 100, 8_000] {
            let mut buffer = HeadBuffer::new(limits, Start::Token);
            let line = format!("X: {}\r\n", "x".repeat(line_len));
            let head = format!("GET / HTTP/1.1\r\n{line}{line}\r\n");
            for byte in head.as_bytes() {
                let _ = buffer.take(&[*byte]).expect("valid");
            }
            assert_eq!(buffer.bytes_looked_at, head.len(), "lines of {line_len}");
        }
    }
}
