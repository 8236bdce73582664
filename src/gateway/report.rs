//! Which of many failures in a row a person is told.

use std::fmt;
use std::time::Duration;

/// Decides which of many failures in a row a person is told: one per step of the back-off, then
/// only what is new; and every loss of service.
#[derive(Debug)]
pub(super) struct Reporter {
    steps: u32,
    failures: u32,
    told: String,
}

impl Reporter {
    pub(super) fn new(first: Duration, most: Duration) -> Self {
        let mut steps = 1;
        let mut wait = first;
        while wait < most && !wait.is_zero() {
            wait = wait.saturating_mul(2);
            steps += 1;
        }
        Self {
            steps,
            failures: 0,
            told: String::new(),
        }
    }

    /// `served` is how long service had lasted, when there was any; `good` starts the count over.
    pub(super) fn worth_telling(
        &mut self,
        why: &str,
        served: Option<Duration>,
        good: Duration,
    ) -> bool {
        if served.is_some_and(|served| served >= good) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let new = self.failures <= self.steps || served.is_some() || self.told != why;
        if new {
            why.clone_into(&mut self.told);
        }
        new
    }
}

/// A wait in whole seconds, at least one.
pub(super) struct Seconds(pub(super) Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64().round().max(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Duration = Duration::from_secs(10);

    fn reporter() -> Reporter {
        Reporter::new(Duration::from_secs(1), Duration::from_secs(30))
    }

    #[test]
    fn one_line_per_step_of_the_back_off_then_only_news() {
        let mut reporter = reporter();
        let told = (0..20)
            .filter(|_| reporter.worth_telling("refused", None, GOOD))
            .count();
        assert_eq!(told, 6, "1, 2, 4, 8, 16 and 30 seconds");
        assert!(reporter.worth_telling("unreachable", None, GOOD));
        assert!(!reporter.worth_telling("unreachable", None, GOOD));
    }

    #[test]
    fn every_loss_of_service_is_told_and_good_service_starts_over() {
        let mut reporter = reporter();
        for _ in 0..20 {
            let short = Some(Duration::from_secs(1));
            assert!(reporter.worth_telling("closed", short, GOOD));
        }
        assert!(!reporter.worth_telling("closed", None, GOOD));
        assert!(reporter.worth_telling("closed", Some(GOOD), GOOD));
        assert!(reporter.worth_telling("closed", None, GOOD));
    }

    #[test]
    fn waits_are_whole_seconds_and_never_none() {
        let shown = |ms| Seconds(Duration::from_millis(ms)).to_string();
        assert_eq!(
            [shown(0), shown(1_499), shown(1_500)],
            ["1 s", "1 s", "2 s"]
        );
    }
}
