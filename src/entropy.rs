//! Randomness as an argument. The operating system's source lives in `io/system.rs`.

/// A source of random bytes. Ids, WebSocket keys and jitter are drawn from one of these, so a test that
/// owns the source owns every random choice.
pub trait Entropy {
    /// Fills all of `out`.
    fn fill(&mut self, out: &mut [u8]);
}

/// A random (version 4) UUID in its usual spelling. Source: RFC 9562 §5.4.
#[must_use]
pub fn uuid_v4(entropy: &mut dyn Entropy) -> String {
    let mut b = [0_u8; 16];
    entropy.fill(&mut b);
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let mut out = String::with_capacity(36);
    for (i, byte) in b.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        for nibble in [byte >> 4, byte & 0x0f] {
            out.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
    }
    out
}

/// A repeatable source for tests and simulations: the same seed gives the same bytes. Not for secrets.
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// A source that depends on `seed` alone.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits. Source: the splitmix64 step (Steele, Lea, Flood 2014).
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; zero when `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            0
        } else {
            self.next_u64() % bound
        }
    }
}

impl Entropy for Seeded {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_uuid() {
        let a = uuid_v4(&mut Seeded::new(7));
        assert_eq!(a, uuid_v4(&mut Seeded::new(7)));
        assert_ne!(a, uuid_v4(&mut Seeded::new(8)));
        assert_eq!(a.len(), 36);
        assert_eq!(a.as_bytes()[14], b'4', "version nibble of {a}");
        assert!(
            matches!(a.as_bytes()[19], b'8' | b'9' | b'a' | b'b'),
            "variant nibble of {a}"
        );
    }
}
