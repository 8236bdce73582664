//! Buffers that are used again: for requests, and for bodies of answers.

/// Buffers that are kept: about as many as are in use at once, where some are at all times.
const BUFFERS_MAX: usize = 16;

/// Capacity that each of them may keep.
const KEEP_BYTES: usize = 16 * 1024;

/// Empty buffers.
#[derive(Debug, Default)]
pub(super) struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    /// An empty buffer.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    /// Takes back one that is not needed any more. It may hold secrets until it is written again.
    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        if self.0.len() < BUFFERS_MAX && buffer.capacity() <= KEEP_BYTES {
            buffer.clear();
            self.0.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded() {
        let mut buffers = Buffers::default();
        for capacity in [KEEP_BYTES + 1, KEEP_BYTES].repeat(2 * BUFFERS_MAX) {
            buffers.give(Vec::with_capacity(capacity));
        }
        assert_eq!(buffers.0.len(), BUFFERS_MAX);
        buffers.give(b"x".to_vec());
        assert!(buffers.0.iter().all(|one| one.capacity() >= KEEP_BYTES));
        assert!(buffers.take().is_empty());
    }
}
