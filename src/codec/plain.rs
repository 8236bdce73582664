//! The one search that both reading and writing JSON strings do: how far is there nothing special.
//!
//! Words of eight bytes, without a vector instruction, so that it is as quick in a program that is built
//! for size.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = ONES << 7;

/// Offset of the first byte from `at` on that is not plain string content: a quote, a backslash, a
/// control character, or the end of the text.
pub(super) fn plain_end(bytes: &[u8], at: usize) -> usize {
    let mut rest = &bytes[at..];
    while let Some((pair, after)) = rest.split_first_chunk::<16>() {
        let pair = u128::from_le_bytes(*pair);
        let (first, second) = (marks(pair as u64), marks((pair >> 64) as u64));
        if first != 0 {
            return bytes.len() - rest.len() + place(first);
        }
        if second != 0 {
            return bytes.len() - rest.len() + 8 + place(second);
        }
        rest = after;
    }
    let found = rest.iter().position(|&byte| special(byte));
    bytes.len() - rest.len() + found.unwrap_or(rest.len())
}

const fn special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// The high bit of each special byte of eight, and perhaps of some behind the first. The usual trick for
/// "which byte is below n": a borrow may mark bytes after the first true one, never before it. With bit 1
/// turned over the quote is the one above the control characters, so that one comparison finds both.
const fn marks(word: u64) -> u64 {
    let low = word ^ (ONES * 0x02);
    let backslash = word ^ (ONES * b'\\' as u64);
    let below = low.wrapping_sub(ONES * 0x21) & !low;
    (below | (backslash.wrapping_sub(ONES) & !backslash)) & HIGH
}

/// Index of the first marked byte.
const fn place(marks: u64) -> usize {
    marks.trailing_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Every special byte and its neighbours, at every place of a word, a pair and the tail.
        let specials = [0x00, 0x1f, b'"', b'\\'];
        let plain = [
            0x20, 0x21, 0x23, b'[', b']', 0x7f, 0x80, 0x82, 0xa2, 0xdc, 0xff,
        ];
        for length in 0..50 {
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
    fn the_first_of_several_special_bytes_counts() {
        for pair in [
            *b"\"\\", *b"\x00\"", *b"\\\x01", *b"\"#", *b"\\]", *b"\"\x21",
        ] {
            for at in 0..15 {
                let mut bytes = [b'a'; 16];
                bytes[at..at + 2].copy_from_slice(&pair);
                assert_eq!(plain_end(&bytes, 0), at, "{pair:?}");
            }
        }
    }
}
