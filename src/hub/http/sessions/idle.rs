//! Which session has been idle longest, or has longest recorded no event.
//!
//! Every session has the same time to live, so the order in which they were touched is the order in
//! which they end: a doubly linked list through an array of slots. Each operation costs the same at any
//! number of sessions and allocates nothing once the array has its size.

use crate::clock::Uptime;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    behind: u32,
    /// `None` while the slot is not in the list.
    since: Option<Uptime>,
}

/// Slots by the time since which they are idle, longest first.
#[derive(Debug)]
pub(super) struct IdleOrder {
    links: Vec<Link>,
    longest: u32,
    latest: u32,
}

impl IdleOrder {
    pub(super) const fn new() -> Self {
        Self {
            links: Vec::new(),
            longest: NONE,
            latest: NONE,
        }
    }

    /// The slot is idle from `at` on, whatever it was before. A clock that steps back is not
    /// followed: the order would break.
    pub(super) fn push(&mut self, slot: u32, at: Uptime) {
        self.remove(slot);
        let place = place(slot);
        if self.links.len() <= place {
            let unused = Link {
                before: NONE,
                behind: NONE,
                since: None,
            };
            self.links.resize(place + 1, unused);
        }
        let latest = self.since(self.latest).unwrap_or(at);
        self.links[place] = Link {
            before: self.latest,
            behind: NONE,
            since: Some(at.max(latest)),
        };
        self.set_behind(self.latest, slot);
        self.latest = slot;
    }

    /// The slot is not idle, or gone.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some(link) = self.links.get_mut(place(slot)) else {
            return;
        };
        if link.since.take().is_none() {
            return;
        }
        let (before, behind) = (link.before, link.behind);
        self.set_behind(before, behind);
        match self.links.get_mut(place(behind)) {
            Some(link) => link.before = before,
            None => self.latest = before,
        }
    }

    fn set_behind(&mut self, slot: u32, behind: u32) {
        match self.links.get_mut(place(slot)) {
            Some(link) => link.behind = behind,
            None => self.longest = behind,
        }
    }

    /// Since when the slot is idle; `None` when it is not.
    pub(super) fn since(&self, slot: u32) -> Option<Uptime> {
        self.links.get(place(slot)).and_then(|link| link.since)
    }

    /// The slot that has been idle longest, and since when.
    pub(super) fn longest(&self) -> Option<(u32, Uptime)> {
        Some((self.longest, self.since(self.longest)?))
    }
}

fn place(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(list: &mut IdleOrder) -> Vec<(u32, u64)> {
        let mut order = Vec::new();
        while let Some((slot, since)) = list.longest() {
            order.push((slot, since.as_millis()));
            list.remove(slot);
        }
        order
    }

    fn filled() -> IdleOrder {
        let mut list = IdleOrder::new();
        for slot in 0..4 {
            list.push(slot, Uptime::from_millis(u64::from(slot) * 10));
        }
        list
    }

    #[test]
    fn the_longest_idle_is_first_whatever_is_taken_out_or_moved() {
        assert_eq!(order(&mut IdleOrder::new()), []);
        assert_eq!(order(&mut filled()), [(0, 0), (1, 10), (2, 20), (3, 30)]);
        for taken in 0..4 {
            let mut list = filled();
            list.remove(taken);
            list.remove(taken);
            assert_eq!(list.since(taken), None);
            let rest: Vec<u32> = order(&mut list).into_iter().map(|(slot, _)| slot).collect();
            let expected: Vec<u32> = (0..4).filter(|slot| *slot != taken).collect();
            assert_eq!(rest, expected, "without {taken}");
            let mut list = filled();
            list.push(taken, Uptime::from_millis(99));
            assert_eq!(order(&mut list).last(), Some(&(taken, 99)));
        }
    }

    #[test]
    fn a_clock_that_steps_back_does_not_break_the_order() {
        let mut list = filled();
        list.push(7, Uptime::from_millis(5));
        assert_eq!(list.since(7), Some(Uptime::from_millis(30)));
        assert_eq!(list.since(5), None, "a hole in the array");
        list.remove(1_000);
        assert_eq!(order(&mut list).len(), 5);
    }
}
