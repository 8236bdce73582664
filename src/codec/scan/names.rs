//! The member names of one object, to find one that comes twice.

use std::collections::BTreeSet;

use super::text::Text;

/// Names kept in place before a set takes the rest.
pub(super) const INLINE_NAMES: usize = 16;

/// The names seen so far. Beyond the first few they go into a set, so that many members cost no more than
/// their number times its logarithm.
pub(super) struct Names<'a> {
    inline: [Text<'a>; INLINE_NAMES],
    count: usize,
    more: BTreeSet<Text<'a>>,
}

impl<'a> Names<'a> {
    pub(super) const fn new() -> Self {
        Self {
            inline: [Text::EMPTY; INLINE_NAMES],
            count: 0,
            more: BTreeSet::new(),
        }
    }

    /// Whether no member was read yet.
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a name; `false` when it was there.
    pub(super) fn insert(&mut self, name: Text<'a>) -> bool {
        let kept = self.count.min(INLINE_NAMES);
        self.count += 1;
        if self.inline[..kept].contains(&name) {
            return false;
        }
        match self.inline.get_mut(kept) {
            Some(free) => {
                *free = name;
                true
            }
            None => self.more.insert(name),
        }
    }
}
