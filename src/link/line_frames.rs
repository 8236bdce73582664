//! Lines to and from a server that is spoken to in lines: the part that a child and a socket share.
//!
//! | input                         | events                                                        |
//! |-------------------------------|---------------------------------------------------------------|
//! | a line                        | Message                                                       |
//! | a line that is not UTF-8      | Unreadable("not UTF-8")                                       |
//! | more than the limit           | Unreadable("message too large: …"), once; skipped to its end  |
//! | the end, within a JSON value  | Unreadable("stream ended"), and the end is called partial     |
//! | the end, after a JSON value   | Message, with a log line                                      |
//!
//! Source: Spec 2025-11-25 basic/transports#stdio. Never: interprets a message.

use crate::codec::lines::{LineDecoder, LineEvent};
use crate::codec::outbuf::OutBuf;
use crate::codec::scan::validate;
use crate::codec::shared_text::TextPool;
use crate::limits::Limits;
use crate::link::upstream::UpstreamEvent;
use crate::link::websocket::Full;
use crate::protocol::client::Outgoing;

/// Bytes of an unreadable line that are shown. Source: cli-json §3.
const SAMPLE_BYTES_MAX: usize = 200;

/// Framing of one connection.
#[derive(Debug)]
pub(super) struct LineFrames {
    lines: LineDecoder,
    /// Holds the lines while they are being acted on.
    texts: TextPool,
    json_depth_max: usize,
    out: OutBuf,
    out_bytes_max: usize,
}

impl LineFrames {
    /// `message_bytes_max` and `out_bytes_max` are those of the server.
    pub(super) const fn new(
        message_bytes_max: usize,
        out_bytes_max: usize,
        limits: &Limits,
    ) -> Self {
        Self {
            lines: LineDecoder::new(message_bytes_max),
            texts: TextPool::new(limits.text_buffer_bytes_max),
            json_depth_max: limits.json_depth_max,
            out: OutBuf::new(),
            out_bytes_max,
        }
    }

    /// Bytes arrived.
    pub(super) fn read(&mut self, bytes: &[u8], mut tell: impl FnMut(UpstreamEvent)) {
        let mut rest = bytes;
        loop {
            let (before, kept) = (rest, self.lines.kept_bytes());
            let Some(line) = self.lines.next(&mut rest) else {
                return;
            };
            let used = &before[..before.len() - rest.len()];
            tell(match line {
                LineEvent::Line(line) => read_line(line, &mut self.texts),
                LineEvent::Oversized { head, limit } => {
                    let value = line_bytes(used, kept);
                    let why = format!("message too large: {value} bytes, limit {limit}");
                    unreadable(why, head)
                }
            });
        }
    }

    /// Nothing more arrives. True when that was in the middle of a message.
    pub(super) fn finish(&mut self, mut tell: impl FnMut(UpstreamEvent)) -> bool {
        let Some(LineEvent::Line(line)) = self.lines.finish() else {
            return false;
        };
        if validate(line, self.json_depth_max).is_ok() {
            log::debug!("the last message, {} bytes, has no line end", line.len());
            tell(read_line(line, &mut self.texts));
            return false;
        }
        log::debug!(
            "the stream ended within a message, after {} bytes",
            line.len()
        );
        tell(unreadable("stream ended".to_owned(), line));
        true
    }

    /// Queues one message.
    pub(super) fn send(&mut self, message: &Outgoing) -> Result<(), Full> {
        let value = self.out.len().saturating_add(message.body.len() + 1);
        let limit = self.out_bytes_max;
        if value > limit {
            return Err(Full { limit, value });
        }
        let tail = self.out.tail();
        tail.extend_from_slice(&message.body);
        tail.push(b'\n');
        Ok(())
    }

    /// Bytes that wait to leave.
    pub(super) const fn outgoing(&mut self) -> &mut OutBuf {
        &mut self.out
    }
}

/// How much of the line that went over the limit has been seen: what was kept of it and its part of
/// `used`, which ends in it or with its line feed.
fn line_bytes(used: &[u8], kept: usize) -> usize {
    let used = used.strip_suffix(b"\n").unwrap_or(used);
    match memchr::memrchr(b'\n', used) {
        Some(before) => used.len() - before - 1,
        None => kept + used.len(),
    }
}

fn read_line(line: &[u8], texts: &mut TextPool) -> UpstreamEvent {
    match std::str::from_utf8(line) {
        Ok(line) => UpstreamEvent::Message {
            text: texts.copy(line),
            on: None,
            answer: None,
        },
        Err(_) => unreadable("not UTF-8".to_owned(), line),
    }
}

fn unreadable(why: String, head: &[u8]) -> UpstreamEvent {
    UpstreamEvent::Unreadable {
        why,
        sample: head[..head.len().min(SAMPLE_BYTES_MAX)].to_vec(),
        on: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::client::{Dialect, OutgoingKind};

    /// What comes of chunks and the end, in words.
    fn events(chunks: &[&[u8]]) -> Vec<String> {
        let mut frames = LineFrames::new(16, 16, &Limits::DEFAULT);
        let mut found = Vec::new();
        let mut tell = |event| {
            found.push(match event {
                UpstreamEvent::Message { text, .. } => text.to_string(),
                UpstreamEvent::Unreadable { why, .. } => format!("({why})"),
                UpstreamEvent::Up
                | UpstreamEvent::RequestEnded { .. }
                | UpstreamEvent::Resuming { .. }
                | UpstreamEvent::Remark { .. }
                | UpstreamEvent::Ending(_)
                | UpstreamEvent::Closed(_) => "?".to_owned(),
            });
        };
        for chunk in chunks {
            frames.read(chunk, &mut tell);
        }
        if frames.finish(&mut tell) {
            found.push("(partial)".to_owned());
        }
        found
    }

    #[test]
    fn lines_are_messages() {
        assert_eq!(events(&[b"{}\n{\"a\"", b":1}\n"]), ["{}", "{\"a\":1}"]);
    }

    #[test]
    fn a_bad_line_costs_that_line() {
        assert_eq!(events(&[b"\xff\n{}\n"]), ["(not UTF-8)", "{}"]);
        let large = |value| format!("(message too large: {value} bytes, limit 16)");
        assert_eq!(
            events(&[b"\n{}\n\n0123456789abcdefg\n[]\n"]),
            ["{}", &large(17), "[]"]
        );
        assert_eq!(
            events(&[b"0123456789", b"0123456789", b"0123\n[]\n"]),
            [&large(20), "[]"],
            "told when it shows, not when it ends"
        );
    }

    #[test]
    fn the_last_line_may_lack_its_end() {
        assert_eq!(events(&[b"{}\n[1]"]), ["{}", "[1]"]);
        assert_eq!(events(&[b"{}\n[1"]), ["{}", "(stream ended)", "(partial)"]);
    }

    #[test]
    fn a_sample_is_short() {
        let mut frames = LineFrames::new(500, 16, &Limits::DEFAULT);
        let mut samples = Vec::new();
        frames.read(&[b'x'; 600], |event| {
            if let UpstreamEvent::Unreadable { sample, .. } = event {
                samples.push(sample.len());
            }
        });
        assert_eq!(samples, [SAMPLE_BYTES_MAX]);
    }

    #[test]
    fn what_does_not_fit_is_not_queued() {
        let message = |length| Outgoing {
            kind: OutgoingKind::Answer,
            dialect: Dialect::Handshake,
            body: vec![b'x'; length],
        };
        let mut frames = LineFrames::new(16, 16, &Limits::DEFAULT);
        assert_eq!(frames.send(&message(9)), Ok(()));
        let full = Full {
            limit: 16,
            value: 17,
        };
        assert_eq!(frames.send(&message(6)), Err(full));
        assert_eq!(frames.send(&message(5)), Ok(()));
        assert_eq!(frames.outgoing().pending(), b"xxxxxxxxx\nxxxxx\n");
    }
}
