//! Collects the bytes of one head and finds its end.

use memchr::{memchr, memchr2};

use super::{HeadError, HeadLimits, is_token_byte};

/// How a head must begin, so that a stranger's bytes are refused at once and not after 16 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// A method.
    Token,
    /// `HTTP/`.
    Version,
}

/// Collects one head and finds its end. `searched` never moves back.
#[derive(Debug)]
pub(super) struct HeadBuffer {
    limits: HeadLimits,
    start: Start,
    bytes: Vec<u8>,
    /// Where the head starts, behind skipped empty lines.
    head_start: usize,
    /// Where the line in progress starts.
    line_start: usize,
    /// Everything before was searched for line ends.
    searched: usize,
    /// Whole lines of the head so far, the start line included.
    pub(super) lines: usize,
    #[cfg(test)]
    bytes_looked_at: usize,
}

impl HeadBuffer {
    pub(super) const fn new(limits: HeadLimits, start: Start) -> Self {
        Self {
            limits,
            start,
            bytes: Vec::new(),
            head_start: 0,
            line_start: 0,
            searched: 0,
            lines: 0,
            #[cfg(test)]
            bytes_looked_at: 0,
        }
    }

    /// The head without what was skipped before it. Only after [`take`](Self::take) found its end.
    pub(super) fn head(&self) -> &[u8] {
        &self.bytes[self.head_start..self.line_start]
    }

    pub(super) fn reset(&mut self) {
        *self = Self::new(self.limits, self.start);
    }

    /// Appends input; when the head's end is in it, says how many bytes of the input belong to the
    /// head.
    pub(super) fn take(&mut self, input: &[u8]) -> Result<Option<usize>, HeadError> {
        let before = self.bytes.len();
        let taken = input.len().min(self.limits.bytes_max - before);
        self.bytes.extend_from_slice(&input[..taken]);
        while let Some(line_end) = self.next_line_end()? {
            if line_end && self.lines == 0 && self.start == Start::Token {
                self.head_start = self.line_start;
            } else if line_end {
                return Ok(Some(self.line_start - before));
            }
        }
        if taken == input.len() {
            return Ok(None);
        }
        let limit = self.limits.bytes_max;
        Err(if self.lines == 0 {
            HeadError::StartLineTooLong { limit }
        } else {
            HeadError::TooLong { limit }
        })
    }

    /// Moves behind the next whole line and checks it; `Some(true)` for an empty one.
    fn next_line_end(&mut self) -> Result<Option<bool>, HeadError> {
        self.check_start()?;
        let unsearched = &self.bytes[self.searched..];
        let found = memchr(b'\n', unsearched);
        #[cfg(test)]
        {
            self.bytes_looked_at += found.map_or(unsearched.len(), |at| at + 1);
        }
        let Some(at) = found else {
            self.searched = self.bytes.len();
            return Ok(None);
        };
        let newline = self.searched + at;
        let stray = |byte| HeadError::Control {
            byte,
            line: self.lines + 1,
        };
        let line = &self.bytes[self.line_start..newline];
        let Some((b'\r', line)) = line.split_last() else {
            return Err(stray(b'\n'));
        };
        if let Some(at) = memchr2(b'\0', b'\r', line) {
            return Err(stray(line[at]));
        }
        let empty = line.is_empty();
        self.searched = newline + 1;
        self.line_start = self.searched;
        if !empty {
            self.lines += 1;
            if self.lines - 1 > self.limits.fields_max {
                return Err(HeadError::TooManyFields {
                    limit: self.limits.fields_max,
                });
            }
        }
        Ok(Some(empty))
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
