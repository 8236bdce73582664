//! Newline-delimited JSON towards one MCP client: our own stdin and stdout, or a socket that carries the
//! same framing.
//!
//! | state   | input                        | next    | output                                      |
//! |---------|------------------------------|---------|---------------------------------------------|
//! | Open    | bytes                        | Open    | lines, each handed to the reader            |
//! | Open    | more than `out_high_bytes` wait to leave | Open | reads are paused                   |
//! | Open    | fewer than `out_low_bytes` wait          | Open | reads resume                       |
//! | Open    | end of input                 | Ended   | the last line, where it had no line end     |
//! | any     | the reader of our output is gone | Gone | what was pending is dropped                |
//!
//! A client that does not read our answers is not read from either, so what waits for it stays bounded:
//! the watermark, the answers to requests it has open, and one chunk of input.
//!
//! Source: Spec 2025-11-25 basic/transports#stdio. Never: interprets a message.

use std::collections::VecDeque;

use crate::codec::lines::{LineDecoder, LineEvent};
use crate::codec::outbuf::OutBuf;
use crate::codec::shared_text::{SharedText, TextPool};
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::{IoRequest, OpenSpec};
use crate::protocol::{Lane, MessageSink};

/// Framing and back-pressure of one line-based client.
#[derive(Debug)]
pub struct StdioHost {
    wire: WireId,
    lines: LineDecoder,
    sink: LineSink,
    out_high: usize,
    out_low: usize,
    paused: bool,
    ended: bool,
    gone: bool,
    io: VecDeque<IoRequest>,
}

impl StdioHost {
    /// Our own stdin and stdout, as wire `wire`.
    #[must_use]
    pub fn open(wire: WireId, limits: &Limits) -> Self {
        let mut link = Self::adopted(wire, limits);
        link.io
            .push_back(IoRequest::Open(wire, OpenSpec::HostStdio));
        link
    }

    /// A wire that the loop was given already open.
    #[must_use]
    pub fn adopted(wire: WireId, limits: &Limits) -> Self {
        Self {
            wire,
            lines: LineDecoder::new(limits.message_bytes_max),
            sink: LineSink {
                out: OutBuf::new(),
                start: 0,
                dirty: false,
                texts: TextPool::new(limits.text_buffer_bytes_max),
            },
            out_high: limits.out_high_bytes,
            out_low: limits.out_low_bytes,
            paused: false,
            ended: false,
            gone: false,
            io: VecDeque::new(),
        }
    }

    /// Its wire.
    #[must_use]
    pub const fn wire(&self) -> WireId {
        self.wire
    }

    /// Bytes arrived: `read` gets the next line, and the sink for what it answers. `bytes` are moved
    /// forward; false when they are used up.
    pub fn handle_line(
        &mut self,
        bytes: &mut &[u8],
        read: impl FnOnce(LineEvent<'_>, &mut dyn MessageSink),
    ) -> bool {
        let Some(line) = self.lines.next(bytes) else {
            return false;
        };
        read(line, &mut self.sink);
        true
    }

    /// The client will send no more: `read` gets the last line, where it had no line end.
    pub fn handle_eof(&mut self, read: impl FnOnce(LineEvent<'_>, &mut dyn MessageSink)) {
        if !std::mem::replace(&mut self.ended, true) {
            if let Some(line) = self.lines.finish() {
                read(line, &mut self.sink);
            }
        }
    }

    /// The client takes no more.
    pub fn handle_write_closed(&mut self) {
        self.gone = true;
        self.sink.out.clear();
    }

    /// Whether the client has ended its side.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.ended || self.gone
    }

    /// Whether nobody reads what we write.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether more waits to leave than a slow client is allowed. Notifications are dropped then.
    #[must_use]
    pub fn is_backed_up(&self) -> bool {
        self.sink.out.len() > self.out_high
    }

    /// Nothing is read from the client until it has read what waits for it.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// Where messages for the client are written.
    pub fn sink(&mut self) -> &mut dyn MessageSink {
        &mut self.sink
    }

    /// Bytes that wait to leave.
    pub const fn outgoing(&mut self) -> &mut OutBuf {
        &mut self.sink.out
    }

    /// The next thing for the loop to do.
    pub fn poll_io(&mut self) -> Option<IoRequest> {
        if let Some(request) = self.io.pop_front() {
            return Some(request);
        }
        if std::mem::take(&mut self.sink.dirty) {
            if self.gone {
                self.sink.out.clear();
            } else {
                return Some(IoRequest::Flush(self.wire));
            }
        }
        let pause = if self.paused {
            self.sink.out.len() > self.out_low
        } else {
            self.is_backed_up()
        };
        if pause == self.paused {
            return None;
        }
        self.paused = pause;
        Some(IoRequest::PauseReads(self.wire, pause))
    }
}

/// Writes messages as lines.
#[derive(Debug)]
struct LineSink {
    out: OutBuf,
    start: usize,
    dirty: bool,
    /// For what is kept of messages.
    texts: TextPool,
}

impl MessageSink for LineSink {
    fn begin(&mut self, _lane: Lane) -> &mut Vec<u8> {
        let tail = self.out.tail();
        self.start = tail.len();
        tail
    }

    fn commit(&mut self) {
        self.out.tail().push(b'\n');
        self.dirty = true;
    }

    fn rollback(&mut self) {
        let start = self.start;
        self.out.tail().truncate(start);
    }

    fn keep(&mut self, text: &str) -> SharedText {
        self.texts.copy(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> StdioHost {
        let limits = Limits {
            out_high_bytes: 10,
            out_low_bytes: 4,
            message_bytes_max: 8,
            ..Limits::default()
        };
        StdioHost::adopted(WireId(1), &limits)
    }

    fn say(link: &mut StdioHost, text: &str) {
        link.sink()
            .begin(Lane::Session)
            .extend_from_slice(text.as_bytes());
        link.sink().commit();
    }

    fn requests(link: &mut StdioHost) -> String {
        let mut seen = String::new();
        while let Some(request) = link.poll_io() {
            seen.push_str(&format!("{request:?} "));
        }
        seen
    }

    #[test]
    fn lines_in_and_lines_out() {
        let mut link = link();
        let mut seen = Vec::new();
        let mut bytes: &[u8] = b"{1}\n{2}\n123456789\n{3}";
        while link.handle_line(&mut bytes, |line, sink| match line {
            LineEvent::Line(bytes) => {
                seen.push(String::from_utf8_lossy(bytes).into_owned());
                sink.begin(Lane::Session).extend_from_slice(b"ok");
                sink.commit();
                sink.begin(Lane::Session).extend_from_slice(b"never");
                sink.rollback();
            }
            LineEvent::Oversized { limit, .. } => seen.push(format!("over {limit}")),
        }) {}
        link.handle_eof(|line, _| seen.push(format!("{line:?}")));
        link.handle_eof(|line, _| panic!("twice: {line:?}"));
        assert_eq!(seen, ["{1}", "{2}", "over 8", "Line([123, 51, 125])"]);
        assert_eq!(link.outgoing().pending(), b"ok\nok\n");
        assert_eq!(
            requests(&mut link),
            "Flush(WireId(1)) ",
            "one flush for both"
        );
        assert!(link.has_ended() && !link.is_gone());
    }

    #[test]
    fn a_client_that_does_not_read_is_not_read_from() {
        let mut link = link();
        say(&mut link, "123456789");
        assert_eq!(
            requests(&mut link),
            "Flush(WireId(1)) ",
            "ten bytes are allowed"
        );
        say(&mut link, "");
        assert_eq!(
            requests(&mut link),
            "Flush(WireId(1)) PauseReads(WireId(1), true) "
        );
        link.outgoing().advance(6);
        assert_eq!(requests(&mut link), "", "five are still too many to resume");
        link.outgoing().advance(1);
        assert_eq!(requests(&mut link), "PauseReads(WireId(1), false) ");
    }

    #[test]
    fn nothing_waits_for_a_client_that_is_gone() {
        let mut link = link();
        say(&mut link, "1");
        link.handle_write_closed();
        say(&mut link, "2");
        assert_eq!(requests(&mut link), "");
        assert!(link.outgoing().is_empty() && link.is_gone() && link.has_ended());
    }
}
