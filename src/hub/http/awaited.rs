//! The requests of one exchange that wait for an answer: one, in all eras but that of batches.

use std::collections::BTreeSet;

use crate::protocol::server::RequestKey;

/// A set that holds one key without an allocation.
#[derive(Debug, Default)]
pub(super) struct Awaited {
    one: Option<RequestKey>,
    more: BTreeSet<RequestKey>,
}

impl Awaited {
    pub(super) fn insert(&mut self, key: RequestKey) {
        match self.one {
            None if !self.more.contains(&key) => self.one = Some(key),
            Some(one) if one != key => {
                self.more.insert(key);
            }
            Some(_) | None => {}
        }
    }

    pub(super) fn remove(&mut self, key: RequestKey) {
        if self.one == Some(key) {
            self.one = None;
        } else {
            self.more.remove(&key);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.one.is_none() && self.more.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = RequestKey> {
        self.one.iter().chain(&self.more).copied()
    }
}
