//! The one search that both reading and writing JSON strings do: how far is there nothing special.
//!
//! Words of eight bytes, without a vector instruction, so that it is as quick in a program that is built
//! for size.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = ONES << 7;

/// Offset of the first byte from `at` on that is not plain string content: a quote, a backslash, a
/// control character, or the end of the text.
#[inline]
pub(super) fn plain_end(bytes: &[u8], at: usize) -> usize {
    let mut from = at;
    while let Some(pair) = bytes.get(from..).and_then(<[u8]>::first_chunk::<16>) {
        let pair = u128::from_le_bytes(*pair);
        let (first, second) = (pair as u64, (pair >> 64) as u64);
        // Most pairs end here: letters outside ASCII are suspected, and little else.
        if (suspects(first) | suspects(second)) & HIGH != 0 {
            let (first, second) = (marks(first), marks(second));
            if first != 0 {
                return from + place(first);
            }
            if second != 0 {
                return from + 8 + place(second);
            }
        }
        from += 16;
    }
    last_plain_end(bytes, from)
}

/// The same where less than a pair is left.
fn last_plain_end(bytes: &[u8], mut from: usize) -> usize {
    if let Some(word) = bytes.get(from..).and_then(<[u8]>::first_chunk) {
        let marks = marks(u64::from_le_bytes(*word));
        if marks != 0 {
            return from + place(marks);
        }
        from += 8;
    }
    let left = bytes.len().saturating_sub(from);
    match bytes.last_chunk() {
        _ if left == 0 => from,
        // What was looked at is shifted out. The zeros that come in are a control character at the end.
        Some(word) => from + place(marks(u64::from_le_bytes(*word) >> (8 * (8 - left)))),
        None => {
            let rest = bytes.iter().skip(from);
            from + rest.take_while(|&&byte| !special(byte)).count()
        }
    }
}

#[inline]
const fn special(byte: u8) -> bool {
    byte == b'"' || byte == b'\\' || byte < 0x20
}

/// The high bit of each special byte of eight, of some from 0x80 up, and perhaps of some behind the first.
/// The usual trick for "which byte is below n": a borrow may mark bytes after the first true one, never
/// before it. With bit 1 turned over the quote is the one above the control characters, so that one
/// comparison finds both.
#[inline]
const fn suspects(word: u64) -> u64 {
    let low = word ^ (ONES * 0x02);
    let backslash = word ^ (ONES * b'\\' as u64);
    low.wrapping_sub(ONES * 0x21) | backslash.wrapping_sub(ONES)
}

/// The high bit of each special byte of eight, and perhaps of some behind the first.
#[inline]
const fn marks(word: u64) -> u64 {
    suspects(word) & !word & HIGH
}

/// Index of the first marked byte.
#[inline]
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
