//! A map by numbers of our own, for what mostly goes as soon as it came.
//!
//! A request that is answered within its turn is entered, asked for several times and taken out before the
//! next one comes. So the entry that came last is kept aside, where it is found by one comparison; it goes to
//! the others only when another one comes before it has gone.

use std::fmt;

use super::{IdMap, Key};

/// See the module page. The order of an iteration follows from what was inserted and removed, and means
/// nothing else.
pub struct NewestMap<K, V> {
    newest: Option<(K, V)>,
    /// Never has the key of the newest one.
    others: IdMap<K, V>,
}

impl<K: Key, V> NewestMap<K, V> {
    /// An empty map without an allocation.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            newest: None,
            others: IdMap::new(),
        }
    }

    /// How many entries there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.newest.is_some() as usize + self.others.len()
    }

    /// Whether there is no entry.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.newest.is_none() && self.others.is_empty()
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<&V> {
        match &self.newest {
            Some((newest, value)) if newest == key => Some(value),
            Some(_) | None => self.others.get(key),
        }
    }

    /// The value of `key`, to change it.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match &mut self.newest {
            Some((newest, value)) if newest == key => Some(value),
            Some(_) | None => self.others.get_mut(key),
        }
    }

    /// Whether `key` has a value.
    #[must_use]
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Gives `key` a value, and back the one it had.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(known) = self.get_mut(&key) {
            return Some(std::mem::replace(known, value));
        }
        if let Some((before, value)) = self.newest.replace((key, value)) {
            self.others.insert(before, value);
        }
        None
    }

    /// Takes the value of `key` out.
    pub fn remove(&mut self, key: &K) -> Option<V> {
        match self.newest.take_if(|(newest, _)| newest == key) {
            Some((_, value)) => Some(value),
            None => self.others.remove(key),
        }
    }

    /// Every entry.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let newest = self.newest.iter().map(|(key, value)| (key, value));
        newest.chain(self.others.iter())
    }

    /// Every key.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// Every value.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Key, V> Default for NewestMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Key + fmt::Debug, V: fmt::Debug> fmt::Debug for NewestMap<K, V> {
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

    #[test]
    fn it_says_what_a_tree_says() {
        let mut random = Seeded::new(23);
        for highest in [1, 2, 5, 40] {
            let (mut map, mut tree) = (NewestMap::new(), BTreeMap::new());
            for round in 0..2_000 {
                let key = PeerId(u32::try_from(random.below(highest)).expect("small"));
                match random.below(3) {
                    0 => assert_eq!(map.remove(&key), tree.remove(&key)),
                    1 => assert_eq!(map.insert(key, round), tree.insert(key, round)),
                    _ => assert_eq!(map.get_mut(&key), tree.get_mut(&key)),
                }
                assert_eq!((map.len(), map.is_empty()), (tree.len(), tree.is_empty()));
                assert_eq!(map.get(&key), tree.get(&key));
                assert_eq!(map.contains_key(&key), tree.contains_key(&key));
                let mut entries: Vec<_> = map.iter().map(|(key, value)| (*key, *value)).collect();
                entries.sort_unstable();
                assert!(entries.into_iter().eq(tree.iter().map(|(k, v)| (*k, *v))));
                assert_eq!(map.values().sum::<u64>(), tree.values().sum::<u64>());
                assert_eq!(map.keys().count(), tree.len());
            }
        }
    }

    #[test]
    fn what_goes_before_the_next_one_comes_never_moves() {
        let mut map = NewestMap::new();
        for number in 0..100 {
            map.insert(PeerId(number), number);
            assert!(map.others.is_empty());
            assert_eq!(map.remove(&PeerId(number)), Some(number));
        }
        map.insert(PeerId(1), 1);
        map.insert(PeerId(2), 2);
        assert_eq!((map.len(), map.others.len()), (2, 1));
        assert_eq!(map.insert(PeerId(1), 3), Some(1), "it is still known");
    }
}
