//! Where frames begin and end in a stream of bytes, and what their headers say. RFC 6455 §5.2.

use super::{CONTROL_BYTES_MAX, WsError};

/// First byte of a header: nothing follows that belongs to the message.
const FINAL: u8 = 0x80;
/// Second byte of a header: a mask follows.
const MASKED: u8 = 0x80;

// Operation codes, RFC 6455 §11.8.
const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Follows frame boundaries in the bytes that pass, and judges each header as soon as it is whole.
#[derive(Debug)]
pub(super) struct FrameCursor {
    /// Whether frames must not be masked (we are the client) or must be.
    from_server: bool,
    head: [u8; 14],
    head_len: usize,
    payload_left: u64,
    /// Within a message in parts.
    in_parts: bool,
    /// Largest frame since the reader was made.
    pub(super) seen_bytes_max: usize,
    pub(super) fault: Option<WsError>,
}

impl FrameCursor {
    pub(super) const fn new(from_server: bool) -> Self {
        Self {
            from_server,
            head: [0; 14],
            head_len: 0,
            payload_left: 0,
            in_parts: false,
            seen_bytes_max: 0,
            fault: None,
        }
    }

    pub(super) fn is_between_messages(&self) -> bool {
        self.head_len == 0 && !self.in_parts
    }

    /// How many of the bytes belong to the frame in progress; at least one, unless there are none
    /// or the header is bad.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        while self.head_len < self.head_needed() {
            let Some(byte) = bytes.get(taken) else {
                return taken;
            };
            self.head[self.head_len] = *byte;
            self.head_len += 1;
            taken += 1;
            if self.head_len == self.head_needed() {
                self.payload_left = self.payload_len();
                self.fault = self.check().err();
                if self.fault.is_some() {
                    return 0;
                }
            }
        }
        let left = usize::try_from(self.payload_left).unwrap_or(usize::MAX);
        let payload = left.min(bytes.len() - taken);
        self.payload_left -= payload as u64;
        taken += payload;
        if self.payload_left == 0 {
            self.finish_frame();
        }
        taken
    }

    /// Length of the header as far as it is known: 2 until the first two bytes are there.
    fn head_needed(&self) -> usize {
        if self.head_len < 2 {
            return 2;
        }
        let length = match self.head[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if self.head[1] & MASKED == 0 { 0 } else { 4 };
        2 + length + mask
    }

    fn payload_len(&self) -> u64 {
        let bytes = match self.head[1] & 0x7f {
            126 => &self.head[2..4],
            127 => &self.head[2..10],
            short => return u64::from(short),
        };
        bytes
            .iter()
            .fold(0, |len, byte| len << 8 | u64::from(*byte))
    }

    /// RFC 6455 §5.2, §5.1 and §5.5: what tungstenite would find as well, but only behind the
    /// payload.
    fn check(&self) -> Result<(), WsError> {
        if self.head[0] & 0x70 != 0 {
            return Err(WsError::ReservedBits);
        }
        match (self.head[1] & MASKED != 0, self.from_server) {
            (true, true) => return Err(WsError::Masked),
            (false, false) => return Err(WsError::Unmasked),
            (true, false) | (false, true) => {}
        }
        match self.opcode() {
            CONTINUATION | TEXT => Ok(()),
            BINARY => Err(WsError::Binary),
            CLOSE | PING | PONG if self.head[0] & FINAL == 0 => Err(WsError::SplitControl),
            CLOSE | PING | PONG if self.payload_left > CONTROL_BYTES_MAX as u64 => {
                Err(WsError::LongControl(self.payload_left))
            }
            CLOSE | PING | PONG => Ok(()),
            reserved => Err(WsError::Opcode(reserved)),
        }
    }

    const fn opcode(&self) -> u8 {
        self.head[0] & 0x0f
    }

    fn finish_frame(&mut self) {
        let len = usize::try_from(self.payload_len()).unwrap_or(usize::MAX);
        self.seen_bytes_max = self.seen_bytes_max.max(len);
        if matches!(self.opcode(), CONTINUATION | TEXT | BINARY) {
            self.in_parts = self.head[0] & FINAL == 0;
        }
        self.head_len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths of the frames that the cursor finds in bytes given `step` at a time.
    fn found(bytes: &[u8], step: usize) -> Vec<usize> {
        let mut cursor = FrameCursor::new(true);
        let (mut lengths, mut length, mut rest) = (Vec::new(), 0, bytes);
        while !rest.is_empty() {
            let taken = cursor.take(&rest[..step.min(rest.len())]);
            assert!(taken > 0 && cursor.fault.is_none(), "{:?}", cursor.fault);
            rest = &rest[taken..];
            length += taken;
            if cursor.head_len == 0 {
                lengths.push(std::mem::take(&mut length));
            }
        }
        assert_eq!(length, 0, "the last frame is whole");
        lengths
    }

    #[test]
    fn frames_are_told_apart_in_every_spelling_of_their_length() {
        let mut bytes = vec![0x81, 0, 0x8a, 1, b'x'];
        bytes.extend_from_slice(&[0x81, 126, 0, 200]);
        bytes.resize(bytes.len() + 200, b'x');
        bytes.extend_from_slice(&[0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
        bytes.resize(bytes.len() + 65_536, b'x');
        bytes.extend_from_slice(&[0x81, 126, 0, 0]);
        for step in [1, 2, 3, 7, 4_096, bytes.len()] {
            assert_eq!(
                found(&bytes, step),
                [2, 3, 204, 65_546, 4],
                "steps of {step}"
            );
        }
    }

    #[test]
    fn a_message_in_parts_is_one_message() {
        let mut cursor = FrameCursor::new(true);
        for (frame, between) in [
            ([0x01, 0], false),
            ([0x89, 0], false),
            ([0x00, 0], false),
            ([0x80, 0], true),
            ([0x89, 0], true),
        ] {
            assert_eq!(cursor.take(&frame), 2);
            assert_eq!(cursor.is_between_messages(), between, "{frame:?}");
        }
        assert_eq!(cursor.take(&[0x81]), 1);
        assert!(!cursor.is_between_messages(), "half a header");
    }

    #[test]
    fn a_bad_header_is_judged_before_its_payload() {
        let judged = |from_server, bytes: &[u8]| {
            let mut cursor = FrameCursor::new(from_server);
            assert_eq!(cursor.take(bytes), 0);
            cursor.fault
        };
        let long = WsError::LongControl(u64::MAX);
        let longest = [&[0x89, 127][..], &[0xff; 8]].concat();
        assert_eq!(judged(true, &longest), Some(long));
        assert_eq!(judged(true, &[0x08, 0]), Some(WsError::SplitControl));
        assert_eq!(judged(true, &[0x82, 9]), Some(WsError::Binary));
        assert_eq!(judged(true, &[0x8f, 9]), Some(WsError::Opcode(15)));
        assert_eq!(judged(true, &[0xa1, 9]), Some(WsError::ReservedBits));
        assert_eq!(judged(false, &[0x81, 9]), Some(WsError::Unmasked));
        assert_eq!(
            judged(true, &[0x81, 0x89, 1, 2, 3, 4]),
            Some(WsError::Masked)
        );
    }
}
