//! Waiting times between tries, with injected jitter.
//!
//! Source: reliability-security §3 (`reconnect`): 1 s doubling to 30 s, ±20 %, back to the start only
//! after a stretch of good service, so that a peer that accepts and drops does not get a storm.

use std::time::Duration;

use crate::clock::{Now, Uptime};
use crate::entropy::Entropy;

/// The waiting times of one thing that is tried again and again.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    good_service: Duration,
    next: Duration,
    good_since: Option<Uptime>,
}

impl Backoff {
    /// Waits of `first`, doubling to `most`; they start over after `good_service` without a loss.
    #[must_use]
    pub const fn new(first: Duration, most: Duration, good_service: Duration) -> Self {
        Self {
            first,
            most,
            good_service,
            next: first,
            good_since: None,
        }
    }

    /// Service began.
    pub const fn succeeded(&mut self, now: Now) {
        self.good_since = Some(now.up);
    }

    /// Service ended or a try failed: how long to wait before the next one, jitter included.
    pub fn failed(&mut self, now: Now, entropy: &mut dyn Entropy) -> Duration {
        if let Some(since) = self.good_since.take() {
            if now.up.since(since) >= self.good_service {
                self.next = self.first;
            }
        }
        let wait = self.next;
        self.next = (wait * 2).min(self.most);
        let mut byte = [0_u8; 2];
        entropy.fill(&mut byte);
        // 0.8 to 1.2 times the wait, in steps of 0.4 / 65535.
        let factor = 0.8 + 0.4 * f64::from(u16::from_le_bytes(byte)) / 65_535.0;
        wait.mul_f64(factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Seeded;

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: 0,
        }
    }

    #[test]
    fn doubles_to_the_cap_within_a_fifth() {
        let secs = Duration::from_secs;
        let mut backoff = Backoff::new(secs(1), secs(30), secs(10));
        let mut seed = Seeded::new(1);
        for expected in [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0] {
            let wait = backoff.failed(at(0), &mut seed).as_secs_f64();
            assert!(
                (expected * 0.8..=expected * 1.2).contains(&wait),
                "{wait} for {expected}"
            );
        }
    }

    #[test]
    fn only_good_service_starts_over() {
        let secs = Duration::from_secs;
        let mut backoff = Backoff::new(secs(1), secs(30), secs(10));
        let mut seed = Seeded::new(1);
        backoff.failed(at(0), &mut seed);
        backoff.succeeded(at(1_000));
        assert!(
            backoff.failed(at(5_000), &mut seed) > secs(1),
            "four seconds are no good service"
        );
        backoff.succeeded(at(10_000));
        assert!(backoff.failed(at(20_000), &mut seed) <= Duration::from_millis(1_200));
    }
}
