//! The one search that both reading and writing JSON strings do: where is something special.
//!
//! Blocks of bytes are compared at once, and the result is a bit for each byte, so that a text with an
//! escape every few dozen bytes is looked at once and not anew behind each of them.

use wide::u8x16;

/// Bytes that are compared at once.
const LANES: usize = 16;

/// Blocks whose bits make one word.
const BLOCKS: usize = 4;

/// The places of certain bytes in a text, in order.
pub(super) struct Places<'a, F> {
    bytes: &'a [u8],
    /// Bit n of its result: byte n of the block is one.
    compare: F,
    /// Bit n: the byte at `base + n` is one. What was told is cleared.
    marks: u64,
    base: usize,
    /// Everything before was compared.
    seen: usize,
}

/// What is not plain string content, from `from` on: quotes, backslashes, control characters.
pub(super) const fn specials(
    bytes: &[u8],
    from: usize,
) -> Places<'_, impl Fn(&[u8; LANES]) -> u64> {
    Places::new(bytes, from, special_marks)
}

/// Quotes from `from` on.
pub(super) const fn quotes(bytes: &[u8], from: usize) -> Places<'_, impl Fn(&[u8; LANES]) -> u64> {
    Places::new(bytes, from, quote_marks)
}

impl<'a, F: Fn(&[u8; LANES]) -> u64> Places<'a, F> {
    const fn new(bytes: &'a [u8], from: usize, compare: F) -> Self {
        Self {
            bytes,
            compare,
            marks: 0,
            base: from,
            seen: from,
        }
    }

    /// Offset of the next one; the length of the text when there is no further one.
    #[inline]
    pub(super) fn next(&mut self) -> usize {
        while self.marks == 0 {
            if self.seen >= self.bytes.len() {
                return self.bytes.len();
            }
            self.look_on();
        }
        let at = self.base + self.marks.trailing_zeros() as usize;
        self.marks &= self.marks - 1;
        at
    }

    /// Looks at what comes next, of which there is something.
    #[inline]
    fn look_on(&mut self) {
        let rest = self.bytes.get(self.seen..).unwrap_or_default();
        self.base = self.seen;
        if let Some(blocks) = rest.first_chunk::<{ LANES * BLOCKS }>() {
            let mut rest = blocks.as_slice();
            let mut shift = 0;
            self.marks = 0;
            while let Some((block, further)) = rest.split_first_chunk() {
                self.marks |= (self.compare)(block) << shift;
                shift += LANES;
                rest = further;
            }
            self.seen += LANES * BLOCKS;
        } else if let Some(block) = rest.first_chunk() {
            self.marks = (self.compare)(block);
            self.seen += LANES;
        } else {
            // The block that ends where the text does, without what was compared before.
            self.marks = match self.bytes.last_chunk() {
                Some(block) => (self.compare)(block) >> (LANES - rest.len()),
                None => {
                    let mut block = [b' '; LANES];
                    for (place, byte) in block.iter_mut().zip(rest) {
                        *place = *byte;
                    }
                    (self.compare)(&block)
                }
            };
            self.seen = self.bytes.len();
        }
    }
}

/// Offset of the first byte from `at` on that is not plain string content, or the end of the text.
#[inline]
pub(super) fn plain_end(bytes: &[u8], at: usize) -> usize {
    short_plain_end(bytes, at).unwrap_or_else(|| specials(bytes, at).next())
}

/// The same, where it is found in one look.
#[inline]
pub(super) fn short_plain_end(bytes: &[u8], at: usize) -> Option<usize> {
    let block = bytes.get(at..)?.first_chunk()?;
    let marks = special_marks(block);
    (marks != 0).then(|| at + marks.trailing_zeros() as usize)
}

/// Bit n: byte n is special. With bit 1 turned over the quote is the one above the control characters, so
/// that one comparison finds both.
#[inline]
fn special_marks(block: &[u8; LANES]) -> u64 {
    let block = u8x16::new(*block);
    let turned = block ^ u8x16::splat(0x02);
    let low = turned.min(u8x16::splat(0x20)).cmp_eq(turned);
    let backslash = block.cmp_eq(u8x16::splat(b'\\'));
    u64::from((low | backslash).move_mask() as u16)
}

#[inline]
fn quote_marks(block: &[u8; LANES]) -> u64 {
    u64::from(u8x16::new(*block).cmp_eq(u8x16::splat(b'"')).move_mask() as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn special(byte: u8) -> bool {
        byte == b'"' || byte == b'\\' || byte < 0x20
    }

    fn all(mut places: Places<'_, impl Fn(&[u8; LANES]) -> u64>) -> Vec<usize> {
        let end = places.bytes.len();
        std::iter::from_fn(|| Some(places.next()).filter(|&at| at < end)).collect()
    }

    #[test]
    fn every_byte_is_told_apart() {
        for byte in 0..=u8::MAX {
            for at in 0..16 {
                let mut bytes = [b'a'; 16];
                bytes[at] = byte;
                let end = if special(byte) { at } else { 16 };
                assert_eq!(plain_end(&bytes, 0), end, "{byte:#x} at {at}");
            }
        }
    }

    #[test]
    fn plain_content_ends_where_a_simple_search_says() {
        // Every special byte and its neighbours, at every place of a block, of four blocks and the tail.
        let specials = [0x00, 0x1f, b'"', b'\\'];
        let plain = [
            0x20, 0x21, 0x23, b'[', b']', 0x7f, 0x80, 0x82, 0xa2, 0xdc, 0xff,
        ];
        for length in (0..50).chain(70..100) {
            for &filler in &plain {
                let mut bytes = vec![filler; length];
                assert_eq!(plain_end(&bytes, 0), length);
                for at in 0..length {
                    for &byte in &specials {
                        bytes[at] = byte;
                        assert_eq!(plain_end(&bytes, 0), at, "{byte:#x} at {at} of {length}");
                        assert_eq!(plain_end(&bytes, at), at);
                        bytes[at] = filler;
                    }
                }
            }
        }
    }

    #[test]
    fn all_are_found_from_every_place_on() {
        let bytes: Vec<u8> = (0..300_usize)
            .map(|n| match n * n % 23 {
                0 => b'"',
                1 => b'\\',
                2 => b'\n',
                _ => b'a' + (n % 26) as u8,
            })
            .collect();
        for length in [0, 1, 15, 16, 17, 79, 80, 81, 300] {
            for from in 0..=length {
                let expected: Vec<_> = (from..length).filter(|&at| special(bytes[at])).collect();
                let text = &bytes[..length];
                assert_eq!(all(specials(text, from)), expected, "{from} of {length}");
                let expected: Vec<_> = (from..length).filter(|&at| text[at] == b'"').collect();
                assert_eq!(all(quotes(text, from)), expected, "{from} of {length}");
            }
        }
    }
}
