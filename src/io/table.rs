//! What the loop keeps for each wire, descriptor and so on, where there may be tens of thousands.

use crate::ids::{IdMap, Key};

/// A map without a walk: no turn can take longer for those who are idle, because there is no way to write it.
#[derive(Debug)]
pub(super) struct Table<K: Key, V>(IdMap<K, V>);

impl<K: Key, V> Table<K, V> {
    pub(super) fn new() -> Self {
        Self(IdMap::new())
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    pub(super) fn contains_key(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}
