//! When a server is left alone for a while: after failures in a row, and between tries to reach it.
//!
//! [`FailurePause`], asked before each request and told how it ended:
//!
//! | state    | input                          | next     | output                                   |
//! |----------|--------------------------------|----------|------------------------------------------|
//! | Counting | ask                            | Counting | a pass                                   |
//! | Counting | failure, below the limit       | Counting |                                          |
//! | Counting | failure, at the limit          | Paused   | the pause, from now                      |
//! | Counting | success                        | Counting | failures are 0                           |
//! | Paused   | ask, before the end            | Paused   | refused, with the time left              |
//! | Paused   | ask, after the end             | Probing  | a pass that is the probe                 |
//! | Paused   | failure of an earlier pass     | Paused   | the pause, from now                      |
//! | Paused   | success of an earlier pass     | Counting | failures are 0                           |
//! | Probing  | ask                            | Probing  | refused: the probe is under way          |
//! | Probing  | failure of the probe           | Paused   | the pause, from now                      |
//! | Probing  | the probe ends without verdict | Paused   | already over: the next one asks again    |
//! | Probing  | success                        | Counting | failures are 0                           |
//! | Probing  | failure of an earlier pass     | Probing  |                                          |
//! | any      | any other end without verdict  | same     |                                          |
//!
//! OpenClaw counts the pause from the start of the last failed request, so that slow failures had none, and
//! lets everybody through when it ends.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::clock::{Now, Uptime};
use crate::entropy::Entropy;
use crate::limits::Limits;
use crate::manager::error::{FailureKind, UpstreamError};

/// How a request ended, as far as it says something about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It answered, `isError` included.
    Success,
    /// It did not, or could not.
    Failure,
    /// The request was at fault or was taken back: nothing is known.
    None,
}

impl Verdict {
    /// What a failure says about its server.
    #[must_use]
    pub fn of(error: &UpstreamError) -> Self {
        match error.kind {
            FailureKind::Remote => match error.code() {
                // Invalid request, method not found, invalid params: the caller's fault. So is asking for what
                // is not there (-32002), not being able to be asked something (-32021), and not having been
                // to a page first (-32042).
                -32602..=-32600 | -32_002 | -32_021 | -32_042 => Self::None,
                _ => Self::Failure,
            },
            FailureKind::Unreachable
            | FailureKind::TimedOut
            | FailureKind::Protocol
            | FailureKind::Closed
            | FailureKind::Unavailable
            | FailureKind::Other => Self::Failure,
            FailureKind::Config
            | FailureKind::Authorization
            | FailureKind::Limit
            | FailureKind::Arguments
            | FailureKind::Unanswered
            | FailureKind::Disposed
            | FailureKind::Cancelled => Self::None,
        }
    }
}

/// Leave to send one request. Given back with [`FailurePause::ended`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a probe that is never given back keeps the server paused"]
pub struct Pass {
    probe: bool,
}

impl Pass {
    /// Whether it is the one request that finds out whether the server is well again.
    #[must_use]
    pub const fn is_probe(self) -> bool {
        self.probe
    }
}

/// Why a request is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paused {
    /// Failures in a row that led to it.
    pub failures: usize,
    /// When to come back.
    pub retry_in: Duration,
}

impl std::fmt::Display for Paused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "paused after {} failures in a row, {}",
            self.failures,
            RetryAfter(self.retry_in)
        )
    }
}

/// `retry after 2 s`, rounded up, so that who waits that long is not too early.
#[derive(Clone, Copy, Debug)]
pub struct RetryAfter(pub Duration);

impl std::fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.0.as_millis().div_ceil(1_000);
        write!(f, "retry after {seconds} s")
    }
}

/// What is told to those who ask during the probe: it has a time limit of its own, which is not known here.
const PROBE_RETRY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Counting,
    Paused { until: Uptime },
    Probing,
}

/// The failure pause of one server.
#[derive(Clone, Debug)]
pub struct FailurePause {
    after: usize,
    pause: Duration,
    failures: usize,
    state: State,
}

impl FailurePause {
    /// A pause of `pause` after `after` failures in a row; at least one.
    #[must_use]
    pub fn new(after: usize, pause: Duration) -> Self {
        Self {
            after: after.max(1),
            pause,
            failures: 0,
            state: State::Counting,
        }
    }

    /// Asks whether a request may be sent.
    ///
    /// # Errors
    /// When the server is left alone: until when.
    pub fn ask(&mut self, now: Now) -> Result<Pass, Paused> {
        let retry_in = match self.state {
            State::Counting => return Ok(Pass { probe: false }),
            State::Paused { until } if until <= now.up => {
                self.state = State::Probing;
                return Ok(Pass { probe: true });
            }
            State::Paused { until } => until.since(now.up),
            State::Probing => PROBE_RETRY,
        };
        Err(Paused {
            failures: self.failures,
            retry_in,
        })
    }

    /// Tells how the request of a pass ended. Gives the length of the pause when this began one.
    pub fn ended(&mut self, now: Now, pass: Pass, verdict: Verdict) -> Option<Duration> {
        let probing = self.state == State::Probing;
        match verdict {
            Verdict::Success => {
                self.failures = 0;
                self.state = State::Counting;
                None
            }
            Verdict::None => {
                if pass.probe && probing {
                    self.state = State::Paused { until: now.up };
                }
                None
            }
            Verdict::Failure => {
                self.failures = self.failures.saturating_add(1);
                if self.failures < self.after || (probing && !pass.probe) {
                    return None;
                }
                self.state = State::Paused {
                    until: now.after(self.pause),
                };
                Some(self.pause)
            }
        }
    }

    /// How long the pause still lasts; `None` when there is none.
    #[must_use]
    pub fn left(&self, now: Now) -> Option<Duration> {
        match self.state {
            State::Paused { until } if until > now.up => Some(until.since(now.up)),
            State::Paused { .. } | State::Counting | State::Probing => None,
        }
    }
}

/// Tries to reach one server: a new process, a new connection. The first is free; after each failure the
/// next has to wait, longer each time, and for good it is never given up.
#[derive(Clone, Debug)]
pub struct Reconnect {
    backoff: Backoff,
    not_before: Option<Uptime>,
}

impl Reconnect {
    /// The waits of the limits.
    #[must_use]
    pub const fn new(limits: &Limits) -> Self {
        Self {
            backoff: Backoff::new(
                limits.reconnect_first_interval,
                limits.reconnect_most_interval,
                limits.reconnect_good_interval,
            ),
            not_before: None,
        }
    }

    /// Asks whether it may be tried.
    ///
    /// # Errors
    /// How long to wait.
    pub fn ask(&self, now: Now) -> Result<(), Duration> {
        match self.not_before {
            Some(at) if at > now.up => Err(at.since(now.up)),
            Some(_) | None => Ok(()),
        }
    }

    /// The server is there.
    pub const fn succeeded(&mut self, now: Now) {
        self.backoff.succeeded(now);
        self.not_before = None;
    }

    /// A try failed, or the server is gone. Gives the wait before the next try.
    pub fn failed(&mut self, now: Now, entropy: &mut dyn Entropy) -> Duration {
        let wait = self.backoff.failed(now, entropy);
        self.not_before = Some(now.after(wait));
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Seeded;
    use crate::manager::error::Phase;
    use crate::manager::server_config::ServerKey;

    const PAUSE: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Now {
        Now {
            up: Uptime::from_millis(seconds * 1_000),
            unix_ms: 0,
        }
    }

    fn fail(pause: &mut FailurePause, now: Now) -> Option<Duration> {
        let pass = pause.ask(now).expect("not paused");
        pause.ended(now, pass, Verdict::Failure)
    }

    /// Paused at 0 s, until 60 s, with two passes from before.
    fn paused() -> (FailurePause, Pass) {
        let mut pause = FailurePause::new(3, PAUSE);
        let earlier = pause.ask(at(0)).expect("counting");
        assert_eq!(fail(&mut pause, at(0)), None);
        assert_eq!(fail(&mut pause, at(0)), None);
        assert_eq!(fail(&mut pause, at(0)), Some(PAUSE));
        (pause, earlier)
    }

    fn probing() -> (FailurePause, Pass, Pass) {
        let (mut pause, earlier) = paused();
        let probe = pause.ask(at(60)).expect("over");
        (pause, earlier, probe)
    }

    #[test]
    fn counting_rows() {
        let mut pause = FailurePause::new(3, PAUSE);
        fail(&mut pause, at(0));
        fail(&mut pause, at(0));
        let pass = pause.ask(at(0)).expect("counting");
        assert_eq!(pause.ended(at(0), pass, Verdict::Success), None);
        assert_eq!(fail(&mut pause, at(0)), None, "success starts over");
        let pass = pause.ask(at(0)).expect("counting");
        assert_eq!(pause.ended(at(0), pass, Verdict::None), None);
        assert_eq!(fail(&mut pause, at(0)), None, "no verdict counts nothing");
        assert_eq!(fail(&mut pause, at(0)), Some(PAUSE));
    }

    #[test]
    fn paused_rows() {
        let (mut pause, earlier) = paused();
        let refused = pause.ask(at(1)).expect_err("paused");
        assert_eq!(
            refused.to_string(),
            "paused after 3 failures in a row, retry after 59 s"
        );
        assert_eq!(pause.left(at(1)), Some(Duration::from_secs(59)));
        assert_eq!(pause.ended(at(10), earlier, Verdict::None), None);
        assert_eq!(pause.left(at(10)), Some(Duration::from_secs(50)));
        assert_eq!(pause.ended(at(10), earlier, Verdict::Failure), Some(PAUSE));
        assert_eq!(pause.left(at(10)), Some(PAUSE), "from the last failure");
        assert_eq!(pause.ended(at(11), earlier, Verdict::Success), None);
        assert!(pause.ask(at(11)).is_ok(), "a late success ends it");
        assert_eq!(fail(&mut pause, at(11)), None, "and starts over");
    }

    #[test]
    fn probing_rows() {
        let (mut pause, earlier, probe) = probing();
        assert_eq!(pause.left(at(60)), None);
        assert!(pause.ask(at(60)).is_err(), "one probe at a time");
        assert_eq!(pause.ended(at(61), earlier, Verdict::Failure), None);
        assert!(pause.ask(at(61)).is_err(), "the probe is still under way");
        assert_eq!(pause.ended(at(62), probe, Verdict::Failure), Some(PAUSE));
        assert_eq!(pause.left(at(62)), Some(PAUSE));

        let (mut pause, _, probe) = probing();
        assert_eq!(pause.ended(at(61), probe, Verdict::None), None);
        let probe = pause.ask(at(61)).expect("the next one asks again");
        assert!(probe.probe);
        assert_eq!(pause.ended(at(61), probe, Verdict::Success), None);
        assert_eq!(fail(&mut pause, at(61)), None, "failures are 0");

        let (mut pause, earlier, _) = probing();
        assert_eq!(pause.ended(at(61), earlier, Verdict::Success), None);
        assert!(!pause.ask(at(61)).expect("counting").probe);
    }

    #[test]
    fn slow_failures_are_paused_as_long_as_quick_ones() {
        let mut pause = FailurePause::new(3, PAUSE);
        let passes = [0, 60, 120].map(|start| (start, pause.ask(at(start)).expect("counting")));
        for (start, pass) in passes {
            pause.ended(at(start + 60), pass, Verdict::Failure);
        }
        assert_eq!(pause.left(at(180)), Some(PAUSE));
        assert_eq!(
            RetryAfter(Duration::from_millis(1_001)).to_string(),
            "retry after 2 s"
        );
    }

    #[test]
    fn faults_of_the_caller_do_not_count() {
        let server = ServerKey("s".into());
        let of = |kind, code: Option<i64>| {
            let mut error = UpstreamError::new(&server, Phase::Call, kind, String::new());
            error.facts.rpc = code.map(|code| crate::protocol::client::peer::RemoteError {
                code,
                message: String::new(),
                data: None,
                raw: None,
            });
            Verdict::of(&error)
        };
        for code in [-32600, -32601, -32602, -32002, -32021, -32042] {
            assert_eq!(of(FailureKind::Remote, Some(code)), Verdict::None, "{code}");
        }
        for code in [-32603, -32000, 1] {
            assert_eq!(of(FailureKind::Remote, Some(code)), Verdict::Failure);
        }
        for kind in [
            FailureKind::TimedOut,
            FailureKind::Closed,
            FailureKind::Unavailable,
        ] {
            assert_eq!(of(kind, None), Verdict::Failure, "{kind:?}");
        }
        for kind in [
            FailureKind::Cancelled,
            FailureKind::Arguments,
            FailureKind::Authorization,
        ] {
            assert_eq!(of(kind, None), Verdict::None, "{kind:?}");
        }
    }

    #[test]
    fn tries_wait_longer_each_time_and_start_over_after_good_service() {
        let mut entropy = Seeded::new(7);
        let mut reconnect = Reconnect::new(&Limits::DEFAULT);
        assert_eq!(reconnect.ask(at(0)), Ok(()), "the first is free");
        let first = reconnect.failed(at(0), &mut entropy);
        assert_eq!(reconnect.ask(at(0)), Err(first));
        assert_eq!(reconnect.ask(at(2)), Ok(()));
        let second = reconnect.failed(at(2), &mut entropy);
        assert!(second > first);
        reconnect.succeeded(at(10));
        assert_eq!(reconnect.ask(at(10)), Ok(()));
        let wait = reconnect.failed(at(100), &mut entropy);
        assert!(wait <= Limits::DEFAULT.reconnect_first_interval.mul_f64(1.2));
    }
}
