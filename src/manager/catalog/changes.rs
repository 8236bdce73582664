//! When a list is walked again because its server says it changed.
//!
//! | state                | input         | next                 | output                    |
//! |----------------------|---------------|----------------------|---------------------------|
//! | Quiet                | changed       | Waiting              | deadline: the quiet time  |
//! | Waiting              | changed       | Waiting              | the deadline stays        |
//! | Waiting              | deadline      | Walking              | walk                      |
//! | Quiet, Waiting       | walk begun    | Walking              |                           |
//! | Walking              | changed       | Walking, once more   |                           |
//! | Walking              | walk over     | Quiet                |                           |
//! | Walking, once more   | changed       | Walking, once more   |                           |
//! | Walking, once more   | walk over     | Waiting              | deadline: the quiet time  |
//!
//! The deadline is that of the first change, so that a storm that never ends still leads to walks, one in
//! each quiet time at most.

use std::time::Duration;

use crate::clock::{Deadline, Now, Uptime};
use crate::limits::Limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Quiet,
    Waiting { due: Uptime },
    Walking { again: bool },
}

/// The changes of one list of one server.
#[derive(Clone, Debug)]
pub struct ListChanges {
    quiet: Duration,
    declared: bool,
    state: State,
}

impl ListChanges {
    /// Nothing changed yet. `declared`: the server has said that it will tell of changes.
    #[must_use]
    pub const fn new(declared: bool, limits: &Limits) -> Self {
        Self {
            quiet: limits.list_changed_quiet_interval,
            declared,
            state: State::Quiet,
        }
    }

    /// The server says that the list changed. `true` once, when it had not declared to do so: a diagnostic.
    pub fn handle_changed(&mut self, now: Now) -> bool {
        match self.state {
            State::Quiet => {
                self.state = State::Waiting {
                    due: now.after(self.quiet),
                }
            }
            State::Waiting { .. } => {}
            State::Walking { .. } => self.state = State::Walking { again: true },
        }
        !std::mem::replace(&mut self.declared, true)
    }

    /// Time passed. `true`: walk now.
    pub fn handle_timeout(&mut self, now: Now) -> bool {
        match self.state {
            State::Waiting { due } if due <= now.up => {
                self.state = State::Walking { again: false };
                true
            }
            State::Quiet | State::Waiting { .. } | State::Walking { .. } => false,
        }
    }

    /// A walk begins for another reason.
    pub const fn walk_begun(&mut self) {
        self.state = State::Walking { again: false };
    }

    /// The walk is over, however it ended.
    pub fn walk_over(&mut self, now: Now) {
        self.state = match self.state {
            State::Walking { again: true } => State::Waiting {
                due: now.after(self.quiet),
            },
            State::Walking { again: false } => State::Quiet,
            same @ (State::Quiet | State::Waiting { .. }) => same,
        };
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Deadline> {
        match self.state {
            State::Waiting { due } => Some(Deadline::new(due, "list changed")),
            State::Quiet | State::Walking { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: 0,
        }
    }

    fn waiting() -> ListChanges {
        let mut changes = ListChanges::new(true, &Limits::DEFAULT);
        changes.handle_changed(at(0));
        changes
    }

    #[test]
    fn quiet_and_waiting_rows() {
        let mut changes = ListChanges::new(true, &Limits::DEFAULT);
        assert_eq!(changes.next_deadline(), None);
        assert!(!changes.handle_timeout(at(1_000)));
        changes.walk_over(at(0));
        assert_eq!(changes.next_deadline(), None);

        let mut changes = waiting();
        let due = changes.next_deadline().expect("waiting").at;
        assert_eq!(due, Uptime::from_millis(100));
        changes.handle_changed(at(99));
        changes.walk_over(at(99));
        assert_eq!(changes.next_deadline().expect("waiting").at, due);
        assert!(!changes.handle_timeout(at(99)));
        assert!(changes.handle_timeout(at(100)));
        assert_eq!(changes.next_deadline(), None);

        let mut changes = waiting();
        changes.walk_begun();
        assert_eq!(changes.next_deadline(), None);
    }

    #[test]
    fn a_change_during_a_walk_is_one_more_walk() {
        let mut changes = waiting();
        assert!(changes.handle_timeout(at(100)));
        for ms in 100..300 {
            changes.handle_changed(at(ms));
            assert!(!changes.handle_timeout(at(ms)), "one walk at a time");
        }
        changes.walk_over(at(300));
        assert!(changes.handle_timeout(at(400)));
        changes.walk_over(at(500));
        assert!(!changes.handle_timeout(at(10_000)));
        assert_eq!(changes.next_deadline(), None);
    }

    #[test]
    fn a_storm_of_two_hundred_is_two_walks_at_most() {
        for (apart, walk_takes) in [(0, 5), (0, 500), (1, 150), (1, 300)] {
            let mut changes = ListChanges::new(true, &Limits::DEFAULT);
            let (mut walks, mut walk_ends) = (0, None);
            for ms in 0..2_000 {
                let storm = if apart == 0 {
                    [200, 0][usize::from(ms > 0)]
                } else {
                    usize::from(ms < 200)
                };
                for _ in 0..storm {
                    changes.handle_changed(at(ms));
                }
                if walk_ends == Some(ms) {
                    changes.walk_over(at(ms));
                }
                if changes.handle_timeout(at(ms)) {
                    walks += 1;
                    walk_ends = Some(ms + walk_takes);
                }
            }
            assert_eq!(
                walks,
                1 + apart,
                "{apart} ms apart, walks of {walk_takes} ms"
            );
        }
    }

    #[test]
    fn undeclared_changes_are_heeded_and_told_once() {
        let mut changes = ListChanges::new(false, &Limits::DEFAULT);
        assert!(changes.handle_changed(at(0)));
        assert!(!changes.handle_changed(at(0)));
        assert!(changes.handle_timeout(at(100)));
        assert!(!waiting().handle_changed(at(0)));
    }
}
