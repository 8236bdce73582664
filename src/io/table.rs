//! What the loop keeps for each wire, descriptor and so on, where there may be tens of thousands.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A map without a walk: no turn can take longer for those who are idle, because there is no way to write it.
#[derive(Debug)]
pub(super) struct Table<K, V>(HashMap<K, V, BuildHasherDefault<NumberHasher>>);

/// For keys that are numbers of our own, one after the other: nobody else can choose ones that collide.
#[derive(Debug, Default)]
pub(super) struct NumberHasher(u64);

impl NumberHasher {
    fn mix(&mut self, number: u64) {
        // 2^64 divided by the golden ratio spreads neighbours. The map looks at both ends of the result.
        let spread = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = spread ^ (spread >> 32);
    }
}

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.mix(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.mix(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }
}

impl<K: Eq + Hash, V> Table<K, V> {
    pub(super) fn new() -> Self {
        Self(HashMap::default())
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
