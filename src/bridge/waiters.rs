//! Open `events_wait` calls.
//!
//! | state | event that matches | cancelled | time is up | bridge closes |
//! |---|---|---|---|---|
//! | waiting | answered with it, gone | gone | answered `timeout`, gone | answered `timeout`, gone |
//!
//! Every waiter that matches gets the same event; none consumes it. Deadlines are exact. OpenClaw:
//! `openclaw-serve` §3.4; there the waiter of a cancelled call stays until its time is up, and
//! their number has no bound.

use std::collections::BTreeMap;
use std::time::Duration;

use super::queue::Event;
use crate::clock::{Deadline, Now, Uptime};
use crate::ids::CallId;
use crate::limits::Limits;

/// What a call waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// Only events after this cursor.
    pub(super) after: u64,
    /// Only events of this session (and gaps).
    pub(super) session: Option<String>,
    /// How long to wait.
    pub(super) timeout: Duration,
    /// How many events after the cursor were gone before the call came; the answer says so.
    pub(super) dropped: u64,
}

/// A call that waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// The call.
    pub(super) call: CallId,
    /// As in its wish.
    pub(super) dropped: u64,
}

#[derive(Debug)]
struct Waiter {
    wish: Wish,
    since: Uptime,
    until: Uptime,
    /// When to report progress next; `None` when the client did not ask for it.
    report_at: Option<Uptime>,
}

/// Progress of one call that still waits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// The call.
    pub(super) call: CallId,
    /// How long it has waited.
    pub(super) waited: Duration,
    /// How long it will wait at most.
    pub(super) timeout: Duration,
}

/// More calls wait than may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany {
    /// How many calls wait already, which is as many as may.
    pub(super) limit: usize,
}

impl std::fmt::Display for TooMany {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limit = self.limit;
        write!(
            f,
            "too many open events_wait calls: {limit} are waiting, limit {limit} (waiters_max); \
             try again when one has been answered"
        )
    }
}

/// The open `events_wait` calls.
#[derive(Debug)]
pub(super) struct Waiters {
    waiting: BTreeMap<CallId, Waiter>,
    count_max: usize,
    report_interval: Duration,
}

impl Waiters {
    /// No waiters.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            waiting: BTreeMap::new(),
            count_max: limits.waiters_max,
            report_interval: limits.wait_progress_interval,
        }
    }

    /// How many calls wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Lets a call wait.
    ///
    /// # Errors
    /// When `waiters_max` calls wait already.
    pub(super) fn add(
        &mut self,
        now: Now,
        call: CallId,
        wish: Wish,
        wants_progress: bool,
    ) -> Result<(), TooMany> {
        if self.waiting.len() >= self.count_max {
            return Err(TooMany {
                limit: self.count_max,
            });
        }
        let until = now.after(wish.timeout);
        let report_at = wants_progress.then(|| now.after(self.report_interval));
        let waiter = Waiter {
            wish,
            since: now.up,
            until,
            report_at,
        };
        self.waiting.insert(call, waiter);
        Ok(())
    }

    /// Forgets a call; whether it was waiting.
    pub(super) fn cancel(&mut self, call: CallId) -> bool {
        self.waiting.remove(&call).is_some()
    }

    /// Takes out the calls that `event` answers.
    pub(super) fn wake(&mut self, event: &Event) -> Vec<Done> {
        self.take(|waiter| event.matches(waiter.wish.after, waiter.wish.session.as_deref()))
    }

    /// Takes out the calls whose time is up.
    pub(super) fn expire(&mut self, now: Now) -> Vec<Done> {
        self.take(|waiter| waiter.until <= now.up)
    }

    /// Takes out one call.
    pub(super) fn end(&mut self, call: CallId) -> Option<Done> {
        let dropped = self.waiting.remove(&call)?.wish.dropped;
        Some(Done { call, dropped })
    }

    /// Takes out all calls.
    pub(super) fn close(&mut self) -> Vec<Done> {
        self.take(|_| true)
    }

    fn take(&mut self, done: impl Fn(&Waiter) -> bool) -> Vec<Done> {
        let mut taken = Vec::new();
        self.waiting.retain(|call, waiter| {
            let done = done(waiter);
            if done {
                taken.push(Done {
                    call: *call,
                    dropped: waiter.wish.dropped,
                });
            }
            !done
        });
        taken
    }

    /// The progress reports that are due. A late call makes one report, not several.
    pub(super) fn reports(&mut self, now: Now) -> Vec<Report> {
        let mut reports = Vec::new();
        for (call, waiter) in &mut self.waiting {
            if waiter.report_at.is_some_and(|at| at <= now.up) {
                reports.push(Report {
                    call: *call,
                    waited: now.up.since(waiter.since),
                    timeout: waiter.wish.timeout,
                });
                waiter.report_at = Some(now.after(self.report_interval));
            }
        }
        reports
    }

    /// When [`Waiters::expire`] or [`Waiters::reports`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let until = self.waiting.values().map(|waiter| waiter.until).min();
        let report = self
            .waiting
            .values()
            .filter_map(|waiter| waiter.report_at)
            .min();
        Deadline::earlier(
            until.map(|at| Deadline::new(at, "events_wait is over")),
            report.map(|at| Deadline::new(at, "progress of events_wait")),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::queue::{EventQueue, Scope};

    fn waiters(count_max: usize) -> Waiters {
        Waiters::new(&Limits {
            waiters_max: count_max,
            ..Limits::DEFAULT
        })
    }

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: 0,
        }
    }

    fn wish(after: u64, session: Option<&str>, ms: u64) -> Wish {
        Wish {
            after,
            session: session.map(str::to_owned),
            timeout: Duration::from_millis(ms),
            dropped: 0,
        }
    }

    fn calls(done: Vec<Done>) -> Vec<u64> {
        done.into_iter().map(|done| done.call.0).collect()
    }

    #[test]
    fn all_that_match_wake_with_the_same_event() {
        let mut queue = EventQueue::new(&Limits::DEFAULT);
        let mut waiters = waiters(10);
        for (call, after, session) in [
            (1, 0, None),
            (2, 0, Some("a")),
            (3, 0, Some("b")),
            (4, 9, None),
        ] {
            waiters
                .add(at(0), CallId(call), wish(after, session, 100), false)
                .expect("room");
        }
        let event = queue.push(Scope::Session("a".into()), 0, |json| {
            json.push_str("\"x\":1")
        });
        assert_eq!(calls(waiters.wake(event)), [1, 2]);
        assert_eq!(calls(waiters.wake(event)), [0; 0], "each is answered once");
        let gap = queue.push(Scope::All, 0, |json| json.push_str("\"x\":2"));
        assert_eq!(
            calls(waiters.wake(gap)),
            [3],
            "a gap passes the filter, not the cursor"
        );
    }

    #[test]
    fn a_call_past_the_limit_is_refused_by_name() {
        for calls in [1, 2, 3_u64] {
            let mut waiters = waiters(2);
            let results: Vec<_> = (0..calls)
                .map(|call| waiters.add(at(0), CallId(call), wish(0, None, 100), false))
                .collect();
            assert_eq!(
                results.iter().filter(|result| result.is_ok()).count() as u64,
                calls.min(2)
            );
            if calls == 3 {
                let error = results[2].expect_err("one too many").to_string();
                assert!(
                    error.contains("waiters_max") && error.contains("limit 2"),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn a_cancelled_call_makes_room_at_once() {
        let mut waiters = waiters(1);
        waiters
            .add(at(0), CallId(1), wish(0, None, 100), false)
            .expect("room");
        assert!(waiters.cancel(CallId(1)));
        assert!(!waiters.cancel(CallId(1)));
        waiters
            .add(at(0), CallId(2), wish(0, None, 100), false)
            .expect("room again");
        assert_eq!(calls(waiters.expire(at(100))), [2]);
        assert_eq!(waiters.next_deadline(), None);
    }

    #[test]
    fn time_is_up_exactly_then() {
        let mut waiters = waiters(10);
        waiters
            .add(at(5), CallId(1), wish(0, None, 100), false)
            .expect("room");
        assert_eq!(
            waiters.next_deadline().map(|d| d.at),
            Some(Uptime::from_millis(105))
        );
        assert_eq!(calls(waiters.expire(at(104))), [0; 0]);
        assert_eq!(calls(waiters.expire(at(105))), [1]);
    }

    #[test]
    fn progress_is_reported_at_intervals_to_those_who_asked() {
        let mut waiters = waiters(10);
        waiters
            .add(at(0), CallId(1), wish(0, None, 60_000), true)
            .expect("room");
        waiters
            .add(at(0), CallId(2), wish(0, None, 60_000), false)
            .expect("room");
        assert_eq!(waiters.reports(at(9_999)), []);
        assert_eq!(
            waiters.next_deadline().map(|d| d.at),
            Some(Uptime::from_millis(10_000))
        );
        let waited: Vec<_> = waiters
            .reports(at(35_000))
            .iter()
            .map(|r| (r.call, r.waited))
            .collect();
        assert_eq!(
            waited,
            [(CallId(1), Duration::from_secs(35))],
            "one report when late"
        );
        assert_eq!(waiters.reports(at(35_000)), []);
        assert_eq!(
            waiters.next_deadline().map(|d| d.at),
            Some(Uptime::from_millis(45_000))
        );
    }
}
