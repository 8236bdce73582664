//! The member names of one object, to find one that comes twice.

use std::collections::BTreeSet;

use super::text::Text;

/// The names seen so far: those the scanner knows as bits, the first `N` others in place, and more in a set,
/// so that they cost no more than their number times its logarithm.
pub(super) struct Names<'a, const N: usize> {
    known: u16,
    count: usize,
    inline: [Text<'a>; N],
    more: BTreeSet<Text<'a>>,
}

impl<'a, const N: usize> Names<'a, N> {
    pub(super) const fn new() -> Self {
        Self {
            known: 0,
            count: 0,
            inline: [Text::EMPTY; N],
            more: BTreeSet::new(),
        }
    }

    /// Whether no member was read yet.
    pub(super) const fn is_empty(&self) -> bool {
        self.known == 0 && self.count == 0
    }

    /// Adds the known name with this number, below 16; `false` when it was there.
    pub(super) const fn insert_known(&mut self, number: u8) -> bool {
        let bit = 1 << number;
        let new = self.known & bit == 0;
        self.known |= bit;
        new
    }

    /// Adds any other name; `false` when it was there.
    pub(super) fn insert(&mut self, name: Text<'a>) -> bool {
        if self.inline[..self.count].contains(&name) {
            return false;
        }
        match self.inline.get_mut(self.count) {
            Some(free) => {
                *free = name;
                self.count += 1;
                true
            }
            None => self.more.insert(name),
        }
    }
}
