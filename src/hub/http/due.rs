//! What is due of exchanges after one and the same wait each: so the order in which they are entered is
//! the order in which they fall due, and a queue is all it takes.
//!
//! An exchange that is over leaves its entry behind. Such entries are dropped from the front with each new
//! one, and all of them before they are more than those of open exchanges: the queue is as long as there
//! are exchanges, not requests within the wait.

use std::collections::VecDeque;

use super::exchange::ExchangeRef;
use crate::clock::{Now, Uptime};

/// See the module page.
#[derive(Debug, Default)]
pub(super) struct DueQueue {
    entries: VecDeque<(Uptime, ExchangeRef)>,
}

/// Below this many entries nobody looks for those that were left behind.
const FEW: usize = 64;

impl DueQueue {
    /// The exchange is due at `at`, no earlier than those before it. `waits` says whether one still does, and
    /// `open` how many there may be of those.
    pub(super) fn push(
        &mut self,
        at: Uptime,
        exchange: ExchangeRef,
        open: usize,
        waits: impl Fn(ExchangeRef) -> bool,
    ) {
        while self.entries.front().is_some_and(|(_, of)| !waits(*of)) {
            self.entries.pop_front();
        }
        // One that waits long at the front may have many behind it that are over.
        if self.entries.len() >= FEW.max(open.saturating_mul(2)) {
            self.entries.retain(|(_, of)| waits(*of));
            self.entries.shrink_to(4 * FEW.max(self.entries.len()));
        }
        self.entries.push_back((at, exchange));
    }

    /// The next one that is due by now.
    pub(super) fn pop(&mut self, now: Now) -> Option<ExchangeRef> {
        self.entries.front().filter(|(at, _)| *at <= now.up)?;
        self.entries.pop_front().map(|(_, exchange)| exchange)
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Uptime> {
        self.entries.front().map(|(at, _)| *at)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    use super::*;
    use crate::ids::WireId;
    use crate::link::http_server::ExchangeId;

    fn exchange(id: u32) -> ExchangeRef {
        ExchangeRef {
            wire: WireId(1),
            id: ExchangeId(id),
        }
    }

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: 0,
        }
    }

    #[test]
    fn it_is_as_long_as_there_are_exchanges() {
        let open = RefCell::new(BTreeSet::new());
        let mut queue = DueQueue::default();
        let mut most = 0;
        // The first one waits for ever, the others are over at once, but for each hundredth.
        for id in 0..100_000 {
            open.borrow_mut().insert(exchange(id));
            let count = open.borrow().len();
            queue.push(at(u64::from(id)).up, exchange(id), count, |of| {
                open.borrow().contains(&of)
            });
            most = most.max(queue.len());
            if id % 100 != 0 {
                open.borrow_mut().remove(&exchange(id));
            }
            if id >= 300 && id % 100 == 0 {
                open.borrow_mut().remove(&exchange(id - 200));
            }
        }
        assert!(most <= FEW, "{most} entries");
        assert!(queue.entries.capacity() <= 8 * FEW);
        let mut left = Vec::new();
        while let Some(due) = queue.pop(at(100_000)) {
            left.push(due);
        }
        left.retain(|of| open.borrow().contains(of));
        assert_eq!(left, [exchange(0), exchange(99_800), exchange(99_900)]);
    }

    #[test]
    fn what_is_over_at_the_front_goes_with_the_next_one() {
        let mut queue = DueQueue::default();
        for id in 0..10 {
            queue.push(at(5).up, exchange(id), 1, |_| false);
            assert_eq!(queue.len(), 1);
        }
    }

    #[test]
    fn nobody_is_due_early() {
        let mut queue = DueQueue::default();
        assert_eq!((queue.next(), queue.pop(at(9))), (None, None));
        queue.push(at(5).up, exchange(1), 2, |_| true);
        queue.push(at(6).up, exchange(2), 2, |_| true);
        assert_eq!((queue.next(), queue.pop(at(4))), (Some(at(5).up), None));
        assert_eq!(queue.pop(at(5)), Some(exchange(1)));
        assert_eq!(queue.pop(at(5)), None);
        assert_eq!(queue.pop(at(7)), Some(exchange(2)));
    }
}
