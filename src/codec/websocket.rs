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
mod tests;
