//! Bytes on their way out: written by a machine, taken by the loop.

/// Outgoing bytes of one wire. Messages are written in place at the end; the loop writes [`pending`] to
/// the descriptor and says how much went by [`advance`].
///
/// The buffer itself never refuses: whoever fills it asks [`len`] against the watermarks of
/// [`Limits`](crate::limits::Limits) and stops the source of the bytes.
///
/// [`pending`]: OutBuf::pending
/// [`advance`]: OutBuf::advance
/// [`len`]: OutBuf::len
#[derive(Debug, Default)]
pub struct OutBuf {
    bytes: Vec<u8>,
    sent: usize,
}

/// Capacity that an empty buffer may keep; a bigger one is given back. Above the payloads that come every
/// day, so that they do not pay for fresh pages each time, and no more than may wait for one slow reader
/// (`out_high_bytes`). An HTTP connection gives it back when it is idle.
const KEEP_BYTES: usize = 1024 * 1024;

impl OutBuf {
    /// An empty buffer without an allocation.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            sent: 0,
        }
    }

    /// What has not left yet.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// How many bytes have not left yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether everything has left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `n` pending bytes have left; more than are pending counts as all.
    pub fn advance(&mut self, n: usize) {
        self.sent = (self.sent + n).min(self.bytes.len());
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
            if self.bytes.capacity() > KEEP_BYTES {
                self.bytes.shrink_to(KEEP_BYTES);
            }
        } else if self.sent > KEEP_BYTES && self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// The end of the buffer, to append to. Bytes must only be appended, or cut back to the length found.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Forgets what is pending.
    pub fn clear(&mut self) {
        self.advance(usize::MAX - self.sent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_order_and_once() {
        let mut out = OutBuf::new();
        out.tail().extend_from_slice(b"abc");
        out.advance(2);
        out.tail().extend_from_slice(b"de");
        assert_eq!(out.pending(), b"cde");
        assert_eq!(out.len(), 3);
        out.advance(99);
        assert!(out.is_empty());
    }

    #[test]
    fn a_long_backlog_does_not_keep_what_was_sent() {
        let mut out = OutBuf::new();
        out.tail().resize(4 * KEEP_BYTES, b'x');
        out.advance(3 * KEEP_BYTES);
        assert_eq!(out.len(), KEEP_BYTES);
        assert!(out.bytes.len() <= KEEP_BYTES, "sent bytes are dropped");
        out.advance(KEEP_BYTES);
        assert!(out.bytes.capacity() <= KEEP_BYTES);
    }
}
