//! What is due when, of many things of one kind.
//!
//! Things of one kind have much the same time limit, so that most are entered behind all others, and most go
//! from the front: a sorted queue, whose ends are near, is all that it takes. Asking for the first costs
//! nothing, however many there are.

use std::collections::VecDeque;

use super::Uptime;

/// See the module page. Each key has one entry at most: who changes its time says which it had.
#[derive(Debug)]
pub struct Agenda<K> {
    /// In order.
    entries: VecDeque<(Uptime, K)>,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
        }
    }
}

impl<K: Copy + Ord> Agenda<K> {
    /// The earliest entry.
    #[must_use]
    pub fn first(&self) -> Option<(Uptime, K)> {
        self.entries.front().copied()
    }

    /// The earliest key, when its time has come.
    #[must_use]
    pub fn first_due(&self, now: Uptime) -> Option<K> {
        let (at, key) = self.first()?;
        (at <= now).then_some(key)
    }

    /// Enters `key` for `at`.
    pub fn add(&mut self, at: Uptime, key: K) {
        let entry = (at, key);
        if self.entries.back().is_none_or(|last| *last < entry) {
            return self.entries.push_back(entry);
        }
        if let Err(place) = self.entries.binary_search(&entry) {
            self.entries.insert(place, entry);
        }
    }

    /// Strikes out `key`, which was entered for `at`.
    pub fn remove(&mut self, at: Uptime, key: K) {
        let entry = (at, key);
        if self.entries.front() == Some(&entry) {
            self.entries.pop_front();
        } else if self.entries.back() == Some(&entry) {
            self.entries.pop_back();
        } else if let Ok(place) = self.entries.binary_search(&entry) {
            self.entries.remove(place);
        }
    }

    /// `key` was due at `old` and is at `new`, either of which may be never.
    pub fn change(&mut self, key: K, old: Option<Uptime>, new: Option<Uptime>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.remove(old, key);
        }
        if let Some(new) = new {
            self.add(new, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::entropy::Seeded;

    fn at(ms: u64) -> Uptime {
        Uptime::from_millis(ms)
    }

    #[test]
    fn the_first_is_the_earliest_whatever_goes() {
        let mut agenda = Agenda::default();
        assert_eq!(agenda.first(), None);
        for (ms, key) in [(20, 1), (10, 2), (30, 3)] {
            agenda.add(at(ms), key);
        }
        assert_eq!(agenda.first(), Some((at(10), 2)));
        agenda.remove(at(30), 3);
        assert_eq!(agenda.first(), Some((at(10), 2)), "another one went");
        agenda.remove(at(10), 2);
        assert_eq!(agenda.first(), Some((at(20), 1)), "the earliest went");
        assert_eq!(agenda.first_due(at(19)), None);
        assert_eq!(agenda.first_due(at(20)), Some(1));
        agenda.change(1, Some(at(20)), None);
        assert_eq!(agenda.first(), None);
    }

    #[test]
    fn it_says_what_a_search_of_all_says() {
        let mut random = Seeded::new(5);
        let (mut agenda, mut all) = (Agenda::default(), BTreeMap::new());
        for round in 0..4_000 {
            let key = random.below(40);
            let new = (random.below(3) > 0).then(|| at(round / 8 + random.below(30)));
            let old = match new {
                Some(new) => all.insert(key, new),
                None => all.remove(&key),
            };
            agenda.change(key, old, new);
            let earliest = all.iter().map(|(key, at)| (*at, *key)).min();
            assert_eq!(agenda.first(), earliest, "round {round}");
        }
    }
}
