//! WebSocket frames: bytes to messages and back. RFC 6455 §5 to §7, without extensions.
//!
//! | state   | input             | next    | output                                              |
//! |---------|-------------------|---------|-----------------------------------------------------|
//! | Open    | whole text        | Open    | `Text`                                              |
//! | Open    | ping              | Open    | pong; while much waits to leave, only the latest's  |
//! | Open    | close frame       | Ended   | the close frame back, `Close`                       |
//! | Open    | bad frame         | Ended   | close frame 1002, 1003, 1007 or 1009, `Violation`   |
//! | Open    | `close`           | Closing | close frame                                         |
//! | Closing | whole text        | Closing | `Text`                                              |
//! | Closing | ping              | Closing | nothing                                             |
//! | Closing | close frame       | Ended   | `Close`                                             |
//! | Closing | bad frame         | Ended   | `Violation`                                         |
//! | Ended   | anything          | Ended   | nothing                                             |
//!
//! Reading is tungstenite's: reassembly, UTF-8, the order of frames, sizes. It reads from memory
//! that hands over one frame at a time, so that we know when its buffer is empty and may be given
//! back after a big message, and so that a frame whose header is wrong is refused before its
//! payload is awaited. Writing is ours: a frame goes straight into the [`OutBuf`], and masks come
//! from the seed given, not from a generator of the process (same seed, same bytes).
//!
//! Never: keeps time, waits, or drops the connection; that is `link/websocket.rs`.

mod cursor;
mod error;
pub mod upgrade;

use std::io;

use cursor::FrameCursor;
pub use error::WsError;

use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};
use tungstenite::protocol::{Role as ReaderRole, WebSocketConfig, WebSocketContext};
use tungstenite::{Message, error::CapacityError};

use crate::codec::outbuf::OutBuf;
use crate::crypto::sha1;

/// Bytes waiting to leave at which pongs are held back. Only the latest is sent when there is room
/// again, which RFC 6455 §5.5.3 allows: a peer that pings and does not read costs this much and no
/// more.
pub const PONG_BACKLOG_BYTES_MAX: usize = 64 * 1024;

/// Largest payload of a control frame. RFC 6455 §5.5.
const CONTROL_BYTES_MAX: usize = 125;

/// Frames above this size make the reader's buffer worth giving back.
const KEEP_BYTES: usize = 64 * 1024;

/// What the reader allocates at its start. Unit: bytes.
const READ_BUFFER_BYTES: usize = 4 * 1024;

/// What arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WsEvent {
    /// A whole text message.
    Text(String),
    /// The peer closed. Nothing follows.
    Close {
        /// Its code, when it gave one.
        code: Option<u16>,
        /// Its reason; may be empty. Untrusted text.
        reason: String,
    },
    /// The peer broke the protocol. Nothing follows.
    Violation(WsError),
}

/// Which end we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// We asked for the connection and mask what we send.
    Client {
        /// Random bytes from which the masks of this connection are drawn. RFC 6455 §5.3.
        mask_seed: [u8; 16],
    },
    /// We were asked.
    Server,
}

/// One WebSocket connection behind its handshake.
#[derive(Debug)]
pub struct WebSocket {
    role: Role,
    masks_drawn: u64,
    message_bytes_max: usize,
    reader: WebSocketContext,
    cursor: FrameCursor,
    /// Found while feeding, not polled yet.
    ready: Option<WsEvent>,
    /// Bytes behind `ready` or behind what was polled.
    inbox: Vec<u8>,
    inbox_used: usize,
    pong_due: Option<Vec<u8>>,
    close_sent: bool,
    ended: bool,
}

impl WebSocket {
    /// A connection on which messages of at most `message_bytes_max` bytes are accepted.
    #[must_use]
    pub fn new(role: Role, message_bytes_max: usize) -> Self {
        Self {
            reader: reader(&role, message_bytes_max),
            cursor: FrameCursor::new(role != Role::Server),
            role,
            masks_drawn: 0,
            message_bytes_max,
            ready: None,
            inbox: Vec::new(),
            inbox_used: 0,
            pong_due: None,
            close_sent: false,
            ended: false,
        }
    }

    /// Changes the largest message accepted, from the next frame on that was not polled yet.
    pub fn set_message_bytes_max(&mut self, max: usize) {
        self.message_bytes_max = max;
        self.reader.set_config(|config| {
            config.max_message_size = Some(max);
            config.max_frame_size = Some(max);
        });
    }

    /// Takes bytes from the wire. [`poll`](Self::poll) is to be drained before the next call.
    ///
    /// A message that spans many calls goes from each slice into the reader without a stop between;
    /// only what lies behind a whole message waits here until that message has been polled, so that
    /// [`set_message_bytes_max`](Self::set_message_bytes_max) applies to the message behind it.
    pub fn feed(&mut self, bytes: &[u8], out: &mut OutBuf) {
        let mut rest = bytes;
        if self.ready.is_none() && self.inbox.is_empty() {
            self.ready = self.advance(&mut rest, out);
        }
        if !self.ended {
            self.inbox.extend_from_slice(rest);
        }
    }

    /// The next event; replies (pong, close) go to `out`.
    pub fn poll(&mut self, out: &mut OutBuf) -> Option<WsEvent> {
        self.flush(out);
        if let Some(event) = self.ready.take() {
            return Some(event);
        }
        if self.inbox.is_empty() {
            return None;
        }
        let mut inbox = std::mem::take(&mut self.inbox);
        let mut rest = &inbox[self.inbox_used..];
        let event = self.advance(&mut rest, out);
        self.inbox_used = inbox.len() - rest.len();
        if self.inbox_used == inbox.len() || self.ended {
            self.inbox_used = 0;
            inbox.clear();
            inbox.shrink_to(KEEP_BYTES);
        }
        self.inbox = inbox;
        event
    }

    /// Sends the pong that was held back, once there is room for it.
    pub fn flush(&mut self, out: &mut OutBuf) {
        if out.len() < PONG_BACKLOG_BYTES_MAX {
            if let Some(payload) = self.pong_due.take() {
                self.write(out, OpCode::Control(Control::Pong), &[&payload]);
            }
        }
    }

    /// Sends a text message. Nothing is sent after a close frame.
    pub fn send_text(&mut self, out: &mut OutBuf, text: &str) {
        if !self.close_sent {
            self.write(out, OpCode::Data(Data::Text), &[text.as_bytes()]);
        }
    }

    /// Sends a ping without a payload. Nothing is sent after a close frame.
    pub fn ping(&mut self, out: &mut OutBuf) {
        if !self.close_sent {
            self.write(out, OpCode::Control(Control::Ping), &[]);
        }
    }

    /// Sends a close frame, once. The reason is cut to fit; without a code, or with one that must
    /// not be sent, the frame is empty.
    pub fn close(&mut self, out: &mut OutBuf, code: Option<u16>, reason: &str) {
        if self.close_sent {
            return;
        }
        self.pong_due = None;
        match code.filter(|code| close_code_allowed(*code)) {
            Some(code) => {
                let mut end = reason.len().min(CONTROL_BYTES_MAX - 2);
                while !reason.is_char_boundary(end) {
                    end -= 1;
                }
                let reason = &reason.as_bytes()[..end];
                self.write(
                    out,
                    OpCode::Control(Control::Close),
                    &[&code.to_be_bytes(), reason],
                );
            }
            None => self.write(out, OpCode::Control(Control::Close), &[]),
        }
        self.close_sent = true;
    }

    /// Reads on in `input` up to the next event.
    fn advance(&mut self, input: &mut &[u8], out: &mut OutBuf) -> Option<WsEvent> {
        while !self.ended {
            let mut pipe = Pipe {
                input,
                cursor: &mut self.cursor,
            };
            let read = self.reader.read(&mut pipe);
            *input = pipe.input;
            if let Some(error) = self.cursor.fault.take() {
                return Some(self.fail(error, out));
            }
            let event = match read {
                Ok(Message::Text(text)) => Some(WsEvent::Text(text.as_str().to_owned())),
                Ok(Message::Ping(payload)) => {
                    if !self.close_sent {
                        self.pong_due = Some(payload.to_vec());
                        self.flush(out);
                    }
                    None
                }
                Ok(Message::Close(frame)) => {
                    let frame = frame.map(|f| (u16::from(f.code), f.reason.as_str().to_owned()));
                    Some(self.closed(frame, out))
                }
                Ok(Message::Binary(_)) => Some(self.fail(WsError::Binary, out)),
                // `Frame` is only ever written.
                Ok(Message::Pong(_) | Message::Frame(_)) => None,
                Err(tungstenite::Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.give_back();
                    return None;
                }
                Err(error) => Some(self.fail(reader_fault(error), out)),
            };
            self.give_back();
            if event.is_some() {
                return event;
            }
        }
        None
    }

    fn closed(&mut self, frame: Option<(u16, String)>, out: &mut OutBuf) -> WsEvent {
        let (code, reason) = match frame {
            Some((code, _)) if !close_code_allowed(code) => {
                return self.fail(WsError::CloseCode(code), out);
            }
            Some((code, reason)) => (Some(code), reason),
            None => (None, String::new()),
        };
        self.close(out, code, "");
        self.ended = true;
        WsEvent::Close { code, reason }
    }

    fn fail(&mut self, error: WsError, out: &mut OutBuf) -> WsEvent {
        self.close(out, Some(error.close_code()), &error.to_string());
        self.ended = true;
        WsEvent::Violation(error)
    }

    /// Replaces the reader when its buffer has been big and nothing is in it.
    fn give_back(&mut self) {
        if self.cursor.seen_bytes_max > KEEP_BYTES && self.cursor.is_between_messages() {
            self.cursor.seen_bytes_max = 0;
            self.reader = reader(&self.role, self.message_bytes_max);
        }
    }

    fn write(&mut self, out: &mut OutBuf, opcode: OpCode, payload: &[&[u8]]) {
        let mask = self.next_mask();
        let len: usize = payload.iter().map(|part| part.len()).sum();
        let header = FrameHeader {
            opcode,
            mask,
            ..FrameHeader::default()
        };
        let tail = out.tail();
        header
            .format(u64::try_from(len).unwrap_or(u64::MAX), tail)
            .expect("writing to a Vec cannot fail");
        let start = tail.len();
        for part in payload {
            tail.extend_from_slice(part);
        }
        if let Some(mask) = mask {
            apply_mask(&mut tail[start..], mask);
        }
    }

    fn next_mask(&mut self) -> Option<[u8; 4]> {
        let Role::Client { mask_seed } = &self.role else {
            return None;
        };
        self.masks_drawn = self.masks_drawn.wrapping_add(1);
        let mut block = [0_u8; 24];
        block[..16].copy_from_slice(mask_seed);
        block[16..].copy_from_slice(&self.masks_drawn.to_le_bytes());
        let digest = sha1(&block);
        Some([digest[0], digest[1], digest[2], digest[3]])
    }
}

/// What the reader found wrong.
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "not our enum, and most of it is about handshakes and sockets"
)]
fn reader_fault(error: tungstenite::Error) -> WsError {
    use tungstenite::Error;
    use tungstenite::error::ProtocolError;
    match error {
        Error::Capacity(CapacityError::MessageTooLong { size, max_size }) => WsError::TooLarge {
            bytes: size,
            limit: max_size,
        },
        Error::Utf8(_) => WsError::NotUtf8,
        Error::Protocol(
            ProtocolError::UnexpectedContinueFrame | ProtocolError::ExpectedFragment(_),
        ) => WsError::Order,
        Error::Protocol(ProtocolError::InvalidCloseSequence) => WsError::CloseLength,
        other => WsError::Other(other.to_string()),
    }
}

/// RFC 6455 §7.4 and the IANA registry: 1004, 1005, 1006 and 1015 never stand in a frame.
const fn close_code_allowed(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

/// RFC 6455 §5.3. By words, which the compiler turns into vector instructions.
fn apply_mask(bytes: &mut [u8], mask: [u8; 4]) {
    let key = u32::from_ne_bytes(mask);
    let mut words = bytes.chunks_exact_mut(4);
    for word in words.by_ref() {
        let masked = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]) ^ key;
        word.copy_from_slice(&masked.to_ne_bytes());
    }
    for (byte, key) in words.into_remainder().iter_mut().zip(mask) {
        *byte ^= key;
    }
}

/// A tungstenite context that only reads. Its own side is closed at its birth, into the void: from
/// then on it answers neither pings nor closes itself and hands out close frames as they came.
fn reader(role: &Role, message_bytes_max: usize) -> WebSocketContext {
    let role = match role {
        Role::Client { .. } => ReaderRole::Client,
        Role::Server => ReaderRole::Server,
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * CONTROL_BYTES_MAX)
        .max_message_size(Some(message_bytes_max))
        .max_frame_size(Some(message_bytes_max))
        .accept_unmasked_frames(false);
    let mut context = WebSocketContext::new(role, Some(config));
    let mut void = Pipe {
        input: &[],
        cursor: &mut FrameCursor::new(false),
    };
    context
        .close(&mut void, None)
        .expect("the void takes every byte");
    context
}

/// The reader's end of the wire: gives bytes up to the end of the current frame, swallows what is
/// written.
struct Pipe<'a, 'b> {
    input: &'b [u8],
    cursor: &'a mut FrameCursor,
}

impl io::Read for Pipe<'_, '_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let offered = &self.input[..self.input.len().min(buf.len())];
        let taken = self.cursor.take(offered);
        if self.cursor.fault.is_some() || taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        buf[..taken].copy_from_slice(&offered[..taken]);
        self.input = &self.input[taken..];
        Ok(taken)
    }
}

impl io::Write for Pipe<'_, '_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::entropy::Seeded;

    const CLIENT: Role = Role::Client { mask_seed: [7; 16] };

    /// What a connection made of some bytes.
    #[derive(Debug, Default, PartialEq)]
    struct Heard {
        events: Vec<Value>,
        replies: Vec<String>,
    }

    impl Heard {
        fn feed(&mut self, socket: &mut WebSocket, out: &mut OutBuf, bytes: &[u8]) {
            socket.feed(bytes, out);
            while let Some(event) = socket.poll(out) {
                self.events.push(match event {
                    WsEvent::Text(text) => json!({ "text": text }),
                    WsEvent::Close { code, reason } => json!({ "close": code, "reason": reason }),
                    WsEvent::Violation(error) => json!({ "violation": error.to_string() }),
                });
            }
        }
    }

    /// Frames that we wrote, unmasked and in the words of a fixture.
    fn frames(mut bytes: &[u8], masked: bool) -> Vec<String> {
        let mut shown = Vec::new();
        while let [first, second, ..] = bytes {
            assert_eq!(*second & 0x80 != 0, masked, "only a client masks");
            let (len, mut at) = match second & 0x7f {
                126 => (usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), 4),
                127 => panic!("no test writes as much"),
                len => (usize::from(len), 2),
            };
            let mut payload = bytes[at + if masked { 4 } else { 0 }..][..len].to_vec();
            if masked {
                let mask = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
                payload
                    .iter_mut()
                    .enumerate()
                    .for_each(|(i, b)| *b ^= mask[i % 4]);
                at += 4;
            }
            bytes = &bytes[at + len..];
            let hex: String = payload.iter().map(|b| format!("{b:02x}")).collect();
            shown.push(match (first, payload.as_slice()) {
                (0x81, text) => format!("text {}", String::from_utf8_lossy(text)),
                (0x88, [a, b, reason @ ..]) => {
                    let reason = String::from_utf8_lossy(reason);
                    format!("close {} {reason}", u16::from_be_bytes([*a, *b]))
                        .trim_end()
                        .to_owned()
                }
                (0x88, []) => "close".to_owned(),
                (0x89, _) => format!("ping {hex}"),
                (0x8a, _) => format!("pong {hex}"),
                other => panic!("an odd frame {other:?}"),
            });
        }
        assert!(bytes.is_empty(), "half a frame was written");
        shown
    }

    fn replay_at(role: &Role, max: usize, bytes: &[u8], cuts: &[usize]) -> Heard {
        let mut socket = WebSocket::new(role.clone(), max);
        let mut out = OutBuf::new();
        let mut heard = Heard::default();
        let mut from = 0;
        for to in cuts.iter().copied().chain([bytes.len()]) {
            heard.feed(&mut socket, &mut out, &bytes[from..to]);
            from = to;
        }
        heard.replies = frames(out.pending(), *role != Role::Server);
        heard
    }

    /// Replays every case whole, byte by byte and at seeded cuts.
    fn replay(fixture: &str) {
        let mut lines = fixture.lines().map(|line| {
            serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"))
        });
        let header = lines.next().expect("a header line");
        let role = if header["role"] == "client" {
            CLIENT
        } else {
            Role::Server
        };
        let max = usize::try_from(header["message_bytes_max"].as_u64().expect("a limit"));
        let max = max.expect("small");
        let mut random = Seeded::new(5);
        let mut cases = 0;
        for case in lines {
            let hex = case["hex"].as_str().expect("hex");
            let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex digits");
            let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
            let texts = |key: &str| case[key].as_array().cloned().expect(key);
            let expect = Heard {
                events: texts("events"),
                replies: serde_json::from_value(Value::Array(texts("replies"))).expect("texts"),
            };
            let mut all_cuts = vec![Vec::new(), (1..bytes.len()).collect()];
            for _ in 0..20 {
                let cut = |_| usize::try_from(random.below(bytes.len() as u64 + 1)).expect("small");
                let mut cuts: Vec<usize> = (0..3).map(cut).collect();
                cuts.sort_unstable();
                all_cuts.push(cuts);
            }
            for cuts in all_cuts {
                let heard = replay_at(&role, max, &bytes, &cuts);
                assert_eq!(heard, expect, "{} cut at {cuts:?}", case["case"]);
            }
            cases += 1;
        }
        assert!(cases > 10, "the fixture holds cases");
    }

    #[test]
    fn frames_from_a_server() {
        replay(include_str!(
            "../../protocol-fixtures/codec/websocket/frames_from_a_server.jsonl"
        ));
    }

    #[test]
    fn frames_from_a_client() {
        replay(include_str!(
            "../../protocol-fixtures/codec/websocket/frames_from_a_client.jsonl"
        ));
    }

    /// A text of `len` bytes as a server sends it, in frames of at most `part`.
    fn text_frames(len: usize, part: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut left = len;
        let mut opcode = 1;
        loop {
            let now = left.min(part);
            left -= now;
            let first = opcode | if left == 0 { 0x80 } else { 0 };
            bytes.extend_from_slice(&[first, 127]);
            bytes.extend_from_slice(&(now as u64).to_be_bytes());
            bytes.resize(bytes.len() + now, b'x');
            opcode = 0;
            if left == 0 {
                return bytes;
            }
        }
    }

    #[test]
    fn messages_fit_their_limit_and_no_more() {
        for (len, fits) in [(999, true), (1000, true), (1001, false)] {
            for part in [len, 400] {
                let heard = replay_at(&CLIENT, 1000, &text_frames(len, part), &[]);
                assert_eq!(heard.replies.is_empty(), fits, "{len} in parts of {part}");
                let refused = json!({"violation": "message too large: 1001 bytes, limit 1000"});
                assert_eq!(heard.events == [refused], !fits, "{len} in parts of {part}");
            }
        }
    }

    #[test]
    fn a_raised_limit_holds_for_what_arrived_together() {
        let mut socket = WebSocket::new(CLIENT, 100);
        let mut out = OutBuf::new();
        let bytes = [text_frames(10, 10), text_frames(200, 200)].concat();
        socket.feed(&bytes, &mut out);
        assert_eq!(socket.poll(&mut out), Some(WsEvent::Text("x".repeat(10))));
        socket.set_message_bytes_max(200);
        assert_eq!(socket.poll(&mut out), Some(WsEvent::Text("x".repeat(200))));
        assert_eq!(socket.poll(&mut out), None);
        socket.set_message_bytes_max(100);
        socket.feed(&text_frames(101, 101), &mut out);
        assert!(matches!(socket.poll(&mut out), Some(WsEvent::Violation(_))));
    }

    #[test]
    fn pings_cost_a_peer_that_does_not_read_a_bounded_backlog() {
        let mut socket = WebSocket::new(CLIENT, 1000);
        let mut out = OutBuf::new();
        for round in 0..10_000_u32 {
            let mut ping = vec![0x89, 125];
            ping.resize(2 + 125, 0);
            ping[2..6].copy_from_slice(&round.to_be_bytes());
            socket.feed(&ping, &mut out);
            assert_eq!(socket.poll(&mut out), None);
            assert!(
                out.len() < PONG_BACKLOG_BYTES_MAX + 131,
                "round {round}: {}",
                out.len()
            );
        }
        out.clear();
        socket.flush(&mut out);
        let latest = frames(out.pending(), true);
        assert_eq!(latest.len(), 1);
        assert!(
            latest[0].starts_with("pong 0000270f"),
            "the last ping is answered: {latest:?}"
        );
        out.clear();
        socket.flush(&mut out);
        assert!(out.is_empty(), "once");
    }

    #[test]
    fn memory_of_a_big_message_is_given_back() {
        let big = 4 * 1024 * 1024;
        let mut out = OutBuf::new();
        for part in [big, 100_000] {
            let mut socket = WebSocket::new(CLIENT, big);
            // A mark on this reader, which its successor does not carry.
            socket
                .reader
                .set_config(|config| config.read_buffer_size = 1);
            let mut texts = 0;
            let mut bytes = text_frames(big, part);
            bytes.extend_from_slice(&text_frames(5, 5));
            for chunk in bytes.chunks(256 * 1024) {
                assert_eq!(
                    socket.reader.get_config().read_buffer_size,
                    1,
                    "still reading"
                );
                socket.feed(chunk, &mut out);
                while let Some(event) = socket.poll(&mut out) {
                    assert!(matches!(event, WsEvent::Text(_)), "{event:?}");
                    texts += 1;
                }
            }
            assert_eq!(texts, 2);
            let marked = socket.reader.get_config().read_buffer_size == 1;
            assert!(!marked, "the reader was replaced, parts of {part}");
        }
    }

    #[test]
    fn memory_of_a_burst_of_messages_is_given_back() {
        let mut socket = WebSocket::new(CLIENT, 100);
        let mut out = OutBuf::new();
        let burst = text_frames(20, 20).repeat(8_000);
        socket.feed(&burst, &mut out);
        assert!(socket.inbox.capacity() > KEEP_BYTES);
        let texts = std::iter::from_fn(|| socket.poll(&mut out)).count();
        assert_eq!(texts, 8_000);
        assert!(socket.inbox.capacity() <= KEEP_BYTES);
    }

    #[test]
    fn bytes_fed_before_a_poll_wait_their_turn() {
        let mut socket = WebSocket::new(CLIENT, 100);
        let mut out = OutBuf::new();
        let poll = |socket: &mut WebSocket, out: &mut OutBuf| match socket.poll(out) {
            Some(WsEvent::Text(text)) => text.len(),
            other => panic!("{other:?}"),
        };
        socket.feed(&[text_frames(1, 9), text_frames(2, 9)].concat(), &mut out);
        socket.feed(&text_frames(3, 9)[..5], &mut out);
        assert_eq!(poll(&mut socket, &mut out), 1);
        socket.feed(&text_frames(3, 9)[5..], &mut out);
        socket.feed(&text_frames(4, 9), &mut out);
        for len in [2, 3, 4] {
            assert_eq!(poll(&mut socket, &mut out), len);
        }
        assert_eq!(socket.poll(&mut out), None);
    }

    #[test]
    fn frames_are_masked_from_the_seed_and_each_by_its_own_mask() {
        let write = |mask_seed| {
            let mut socket = WebSocket::new(Role::Client { mask_seed }, 10);
            let mut out = OutBuf::new();
            socket.send_text(&mut out, "secret");
            socket.send_text(&mut out, "secret");
            out.pending().to_vec()
        };
        let bytes = write([1; 16]);
        assert_eq!(frames(&bytes, true), ["text secret", "text secret"]);
        assert_eq!(bytes, write([1; 16]), "same seed, same bytes");
        assert_ne!(bytes, write([2; 16]));
        let (first, second) = bytes.split_at(bytes.len() / 2);
        assert_ne!(first[2..6], second[2..6], "a mask is not used twice");
        for len in 0..9 {
            let mut text = vec![0; len];
            apply_mask(&mut text, [1, 2, 3, 4]);
            assert_eq!(text, [1, 2, 3, 4, 1, 2, 3, 4, 1][..len]);
        }
    }

    #[test]
    fn a_close_is_sent_once_and_last() {
        let mut socket = WebSocket::new(Role::Server, 10);
        let mut out = OutBuf::new();
        let long = "ü".repeat(100);
        socket.close(&mut out, Some(1008), &long);
        socket.close(&mut out, Some(1000), "");
        socket.send_text(&mut out, "late");
        socket.ping(&mut out);
        let masked_ping = [0x89, 0x80, 0, 0, 0, 0];
        socket.feed(&masked_ping, &mut out);
        assert_eq!(socket.poll(&mut out), None);
        let cut = format!("close 1008 {}", "ü".repeat(61));
        assert_eq!(frames(out.pending(), false), [cut]);

        let mut held = WebSocket::new(Role::Server, 10);
        let mut full = OutBuf::new();
        full.tail().resize(PONG_BACKLOG_BYTES_MAX, 0);
        held.feed(&masked_ping, &mut full);
        held.close(&mut full, None, "");
        full.clear();
        held.flush(&mut full);
        assert!(full.is_empty(), "no pong behind a close frame");

        let masked_text = [0x81, 0x81, 0, 0, 0, 0, b'a'];
        socket.feed(&masked_text, &mut out);
        assert_eq!(socket.poll(&mut out), Some(WsEvent::Text("a".to_owned())));
        let masked_close = [0x88, 0x80, 0, 0, 0, 0];
        socket.feed(&masked_close, &mut out);
        let close = WsEvent::Close {
            code: None,
            reason: String::new(),
        };
        assert_eq!(socket.poll(&mut out), Some(close));
        assert_eq!(
            frames(out.pending(), false).len(),
            1,
            "no second close frame"
        );
    }

    #[test]
    fn a_close_without_a_code_that_may_be_sent_is_empty() {
        for code in [None, Some(1005), Some(1006), Some(999)] {
            let mut out = OutBuf::new();
            WebSocket::new(Role::Server, 10).close(&mut out, code, "why");
            assert_eq!(frames(out.pending(), false), ["close"], "{code:?}");
        }
    }
}
