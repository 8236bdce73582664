//! A map by numbers of our own, for what is looked up several times for each message.
//!
//! An entry is found at the place that its number names, or close behind it: no comparison with other keys,
//! as in a tree, and no hash that a stranger's keys would call for. Numbers are minted one after the other
//! and nobody else can choose them. At least a quarter of the places is free, so that the way is short.

use std::fmt;

/// What an [`IdMap`] is indexed by.
pub trait Key: Copy + Eq {
    /// A number that equal keys share, and few others.
    fn number(self) -> u64;
}

impl Key for usize {
    fn number(self) -> u64 {
        self as u64
    }
}

/// Two numbers, of which the second one is seldom above 32 bits.
impl<A: Key, B: Key> Key for (A, B) {
    fn number(self) -> u64 {
        self.0.number().rotate_left(32) ^ self.1.number()
    }
}

/// See the module page. The order of an iteration follows from what was inserted and removed, and means
/// nothing else.
pub struct IdMap<K, V> {
    /// A power of two of them, or none. No free place lies between an entry and the place of its number.
    places: Vec<Option<(K, V)>>,
    len: usize,
}

/// Places of the smallest map that holds anything: most of those there are hold an entry or two.
const PLACES_MIN: usize = 4;

/// A map of so many places or fewer stays as it is when it empties, so that a few entries that come and go
/// all the time allocate nothing.
const PLACES_KEPT: usize = 16;

impl<K: Key, V> IdMap<K, V> {
    /// An empty map without an allocation.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            places: Vec::new(),
            len: 0,
        }
    }

    /// How many entries there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        let place = self.find(*key)?;
        self.places[place].as_ref().map(|(_, value)| value)
    }

    /// The value of `key`, to change it.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let place = self.find(*key)?;
        self.places[place].as_mut().map(|(_, value)| value)
    }

    /// Whether `key` has a value.
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.find(*key).is_some()
    }

    /// Gives `key` a value, and back the one it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(&key) {
            return Some(std::mem::replace(known, value));
        }
        if (self.len + 1) * 4 > self.places.len() * 3 {
            self.resize((self.places.len() * 2).max(PLACES_MIN));
        }
        self.put(key, value);
        self.len += 1;
        None
    }

    /// Takes the value of `key` out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        let mut free = self.find(*key)?;
        let (_, value) = self.places[free].take()?;
        self.len -= 1;
        // Whoever had to go on past this place may come back to it.
        let mut at = self.behind(free);
        while let Some((key, _)) = &self.places[at] {
            let home = self.home(*key);
            if self.distance(home, at) >= self.distance(free, at) {
                self.places.swap(free, at);
                free = at;
            }
            at = self.behind(at);
        }
        if self.places.len() > PLACES_KEPT && self.len * 8 < self.places.len() {
            self.resize(self.places.len() / 2);
        }
        Some(value)
    }

    /// Keeps those entries for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        let mut gone = Vec::new();
        gone.extend(
            self.iter()
                .filter(|(key, value)| !keep(key, value))
                .map(|(key, _)| *key),
        );
        for key in gone {
            self.remove(&key);
        }
    }

    /// Every entry.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.places
            .iter()
            .flatten()
            .map(|(key, value)| (key, value))
    }

    /// Every entry, its value to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.places
            .iter_mut()
            .flatten()
            .map(|(key, value)| (&*key, value))
    }

    /// Every key.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Every value.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Every value, to be changed.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }

    fn find(&self, key: K) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mut at = self.home(key);
        loop {
            match &self.places[at] {
                Some((found, _)) if *found == key => return Some(at),
                Some(_) => at = self.behind(at),
                None => return None,
            }
        }
    }

    /// Puts in an entry that is not there, where there is room.
    fn put(&mut self, key: K, value: V) {
        let mut at = self.home(key);
        while self.places[at].is_some() {
            at = self.behind(at);
        }
        self.places[at] = Some((key, value));
    }

    fn resize(&mut self, places: usize) {
        let mut fresh = Vec::new();
        fresh.resize_with(places, || None);
        let before = std::mem::replace(&mut self.places, fresh);
        for (key, value) in before.into_iter().flatten() {
            self.put(key, value);
        }
    }

    /// Neighbours of numbers are neighbours here; numbers that are a multiple of the size apart are not, nor
    /// could somebody make a row of them by keeping only every so-manieth of what he was given.
    fn home(&self, key: K) -> usize {
        let number = key.number();
        let spread = (number >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        number.wrapping_add(spread) as usize & (self.places.len() - 1)
    }

    fn behind(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    /// How many steps it is from one place to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.places.len() - 1)
    }
}

impl<K: Key, V> Default for IdMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key + fmt::Debug, V: fmt::Debug> fmt::Debug for IdMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::entropy::Seeded;
    use crate::ids::PeerId;

    /// All that a map says against what a tree says.
    fn compare(map: &IdMap<PeerId, u64>, tree: &BTreeMap<PeerId, u64>, highest: u32) {
        assert_eq!(map.len(), tree.len());
        let mut entries: Vec<_> = map.iter().map(|(key, value)| (*key, *value)).collect();
        entries.sort_unstable();
        let wanted: Vec<_> = tree.iter().map(|(key, value)| (*key, *value)).collect();
        assert_eq!(entries, wanted);
        for key in (0..highest).map(PeerId) {
            assert_eq!(map.get(&key), tree.get(&key));
        }
    }

    #[test]
    fn it_says_what_a_tree_says() {
        let mut random = Seeded::new(17);
        for highest in [1, 3, 16, 40, 1_000] {
            let (mut map, mut tree) = (IdMap::new(), BTreeMap::new());
            for round in 0..4_000 {
                let key = PeerId(u32::try_from(random.below(highest)).expect("small"));
                // Now it grows, now it shrinks.
                let grows = random.below(4) > if round / 500 % 2 == 0 { 0 } else { 2 };
                if grows {
                    assert_eq!(map.insert(key, round), tree.insert(key, round));
                } else {
                    assert_eq!(map.remove(&key), tree.remove(&key));
                }
                if round % 50 == 0 {
                    compare(&map, &tree, u32::try_from(highest).expect("small"));
                }
            }
            map.retain(|key, _| key.0 % 3 == 0);
            tree.retain(|key, _| key.0 % 3 == 0);
            compare(&map, &tree, u32::try_from(highest).expect("small"));
        }
    }

    #[test]
    fn no_choice_of_numbers_makes_the_way_long() {
        for apart in [1, 2, 16, 64, 1_024, 65_536, 1 << 20] {
            let mut map = IdMap::new();
            for number in 0..1_000 {
                map.insert(PeerId(number * apart % u32::MAX), number);
            }
            let way = |(at, place): (usize, &Option<(PeerId, u32)>)| {
                place
                    .as_ref()
                    .map(|(key, _)| map.distance(map.home(*key), at))
            };
            let longest = map.places.iter().enumerate().filter_map(way).max();
            assert!(longest < Some(40), "{longest:?} steps, {apart} apart");
        }
    }

    #[test]
    fn it_is_as_big_as_there_are_entries() {
        let mut map = IdMap::new();
        for number in 0..10_000 {
            map.insert(PeerId(number), ());
        }
        assert!(map.places.len() <= 20_000);
        for number in 0..10_000 {
            map.remove(&PeerId(number));
        }
        assert!(map.is_empty() && map.places.len() <= PLACES_KEPT);
    }
}
