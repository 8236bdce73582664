//! Time as data: nothing in here reads a clock.
//!
//! Two clocks reach the pure code. [`Uptime`] is monotonic and starts at zero with the process, so it
//! prints well, fits fixtures and cannot be moved by an administrator. The wall clock is needed because
//! an OpenClaw Gateway states expiries as Unix milliseconds; such a stamp becomes an [`Uptime`] once, on
//! arrival, by [`Now::until_unix_ms`], and is compared with nothing else afterwards.

mod agenda;

use std::fmt;
use std::time::Duration;

pub use self::agenda::Agenda;

/// Time since the process started. Kept in nanoseconds, of which there are enough for 584 years: it is
/// compared many times for each message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uptime(u64);

/// The far end of time instead of an overflow.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Uptime {
    /// The moment the process started.
    pub const ZERO: Self = Self(0);

    /// The moment `since_start` after the start.
    #[must_use]
    pub fn from_start(since_start: Duration) -> Self {
        Self(nanos(since_start))
    }

    /// The moment `ms` milliseconds after the start.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// Whole milliseconds since the start.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// How long after `earlier` this is; zero when it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The moment `by` later; the far end of time instead of an overflow.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }
}

impl fmt::Display for Uptime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.as_millis();
        write!(f, "{}.{:03} s", ms / 1_000, ms % 1_000)
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
            (Some(a), Some(b)) => Some(if b.at < a.at { b } else { a }),
            (one, other) => one.or(other),
        }
    }
}

/// A stamp as ISO 8601 in UTC, to the millisecond: `2026-11-30T13:19:45.000Z`. Unit: milliseconds since
/// 1970.
#[must_use]
pub fn iso(unix_ms: i64) -> String {
    Iso(unix_ms).to_string()
}

/// A stamp that is written as [`iso`] does, without a text of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iso(pub i64);

impl fmt::Display for Iso {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY_MS: i64 = 86_400_000;
        let (days, ms) = (self.0.div_euclid(DAY_MS), self.0.rem_euclid(DAY_MS));
        // Days are counted from 0000-03-01, so that the day that leap years add is the last of its year, and
        // eras of 400 years are all alike.
        let days = days + 719_468;
        let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year + era * 400 + i64::from(month <= 2);
        let (hours, minutes) = (ms / 3_600_000, ms / 60_000 % 60);
        let (seconds, ms) = (ms / 1_000 % 60, ms % 1_000);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{ms:03}Z"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_written_in_utc() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_796_043_585_007, "2026-11-30T12:59:45.007Z"),
            (4_107_542_399_999, "2100-02-28T23:59:59.999Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(iso(ms), text);
        }
    }

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
    fn the_far_end_of_time_is_never_passed() {
        let end = Uptime::ZERO.after(Duration::MAX);
        assert_eq!(end, Uptime::from_start(Duration::MAX));
        assert_eq!(end, Uptime::from_millis(u64::MAX));
        assert_eq!(end.after(Duration::from_secs(1)), end);
        assert_eq!(Uptime::ZERO.since(end), Duration::ZERO);
        let at = Uptime::from_millis(7).after(Duration::new(61, 5_999_999));
        assert_eq!(
            (at.as_millis(), at.to_string()),
            (61_012, "61.012 s".to_owned())
        );
        assert_eq!(
            at.since(Uptime::from_millis(7)),
            Duration::new(61, 5_999_999)
        );
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
