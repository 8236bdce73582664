//! Time as data: nothing in here reads a clock.
//!
//! Two clocks reach the pure code. [`Uptime`] is monotonic and starts at zero with the process, so it
//! prints well, fits fixtures and cannot be moved by an administrator. The wall clock is needed because
//! an OpenClaw Gateway states expiries as Unix milliseconds; such a stamp becomes an [`Uptime`] once, on
//! arrival, by [`Now::until_unix_ms`], and is compared with nothing else afterwards.

use std::fmt;
use std::time::Duration;

/// Time since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uptime(Duration);

impl Uptime {
    /// The moment the process started.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// The moment `since_start` after the start.
    #[must_use]
    pub const fn from_start(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// The moment `ms` milliseconds after the start.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(Duration::from_millis(ms))
    }

    /// Whole milliseconds since the start.
    #[must_use]
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }

    /// How long after `earlier` this is; zero when it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `by` later; the far end of time instead of an overflow.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(by))
    }
}

impl fmt::Display for Uptime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} s", self.0.as_secs(), self.0.subsec_millis())
    }
}

/// The present, as the driving program sees it: one reading of both clocks per turn of the loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Monotonic time.
    pub up: Uptime,
    /// Wall time, milliseconds since 1970-01-01 UTC.
    pub unix_ms: i64,
}

impl Now {
    /// The moment `by` from now.
    #[must_use]
    pub fn after(self, by: Duration) -> Uptime {
        self.up.after(by)
    }

    /// When the wall clock will show `stamp`, clamped to `at_most` from now: a peer's stamp may be
    /// hostile, and a stamp of the past is due at once.
    #[must_use]
    pub fn until_unix_ms(self, stamp: i64, at_most: Duration) -> Uptime {
        let ahead = stamp.saturating_sub(self.unix_ms);
        let wait = u64::try_from(ahead).map_or(Duration::ZERO, Duration::from_millis);
        self.after(wait.min(at_most))
    }
}

/// A moment at which a machine wants [`handle_timeout`](crate::link::Driven::handle_timeout), and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    /// When.
    pub at: Uptime,
    /// What for; shown in trace logs, so that a wake-up can be explained.
    pub why: &'static str,
}

impl Deadline {
    /// A deadline at `at` because of `why`.
    #[must_use]
    pub const fn new(at: Uptime, why: &'static str) -> Self {
        Self { at, why }
    }

    /// The earlier of two optional deadlines.
    #[must_use]
    pub fn earlier(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, other) => one.or(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_stamps_are_clamped() {
        let now = Now {
            up: Uptime::from_millis(1_000),
            unix_ms: 5_000,
        };
        let cap = Duration::from_secs(60);
        assert_eq!(now.until_unix_ms(6_500, cap), Uptime::from_millis(2_500));
        assert_eq!(now.until_unix_ms(4_000, cap), now.up, "the past is due now");
        assert_eq!(now.until_unix_ms(i64::MAX, cap), now.after(cap));
        assert_eq!(now.until_unix_ms(i64::MIN, cap), now.up);
    }

    #[test]
    fn the_earlier_deadline_wins() {
        let early = Deadline::new(Uptime::from_millis(1), "a");
        let late = Deadline::new(Uptime::from_millis(2), "b");
        assert_eq!(Deadline::earlier(Some(late), Some(early)), Some(early));
        assert_eq!(Deadline::earlier(None, Some(late)), Some(late));
        assert_eq!(Deadline::earlier(None, None), None);
    }
}
