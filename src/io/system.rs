//! The operating system's clocks and its source of random bytes: the only ones in the crate.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom, SystemRandom};

use crate::clock::{Now, Uptime};
use crate::entropy::Entropy;

/// Reads both clocks. [`Uptime`] zero is the moment this was made.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// The present on the monotonic clock alone.
    #[must_use]
    pub fn up(&self) -> Uptime {
        Uptime::from_start(self.start.elapsed())
    }

    /// The present. A wall clock before 1970 reads as 1970.
    #[must_use]
    pub fn now(&self) -> Now {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            up: self.up(),
            unix_ms: i64::try_from(wall.as_millis()).unwrap_or(i64::MAX),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

/// The operating system's random bytes.
#[derive(Clone, Debug)]
pub struct OsEntropy(SystemRandom);

impl OsEntropy {
    /// A handle to the source; costs nothing.
    #[must_use]
    pub fn new() -> Self {
        Self(SystemRandom::new())
    }
}

impl Default for OsEntropy {
    fn default() -> Self {
        Self::new()
    }
}

impl Entropy for OsEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        // A system without random bytes cannot make a key or an id that deserves the name: there is
        // no weaker way to go on.
        self.0
            .fill(out)
            .expect("the operating system gives random bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_starts_near_zero_and_never_falls() {
        let clock = SystemClock::new();
        let first = clock.now();
        let second = clock.now();
        assert!(second.up >= first.up);
        assert!(first.unix_ms > 1_600_000_000_000, "{}", first.unix_ms);
    }

    #[test]
    fn random_bytes_differ() {
        let (mut a, mut b) = ([0_u8; 32], [0_u8; 32]);
        OsEntropy::new().fill(&mut a);
        OsEntropy::new().fill(&mut b);
        assert_ne!(a, b);
    }
}
