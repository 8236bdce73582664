//! The member names of one object, to find one that comes twice.

use std::collections::BTreeSet;

use super::text::Text;

/// The names seen so far: those the scanner knows as bits, the first `N` others in place, and more in a set,
/// so that they cost no more than their number times its logarithm.
pub(super) struct Names<'a, const N: usize> {
    known: u32,
    /// Most objects have no other names.
    others: Option<Others<'a, N>>,
}

struct Others<'a, const N: usize> {
    count: usize,
    inline: [Text<'a>; N],
    more: BTreeSet<Text<'a>>,
}

impl<'a, const N: usize> Names<'a, N> {
    pub(super) const fn new() -> Self {
        Self {
            known: 0,
            others: None,
        }
    }

    /// Whether no member was read yet.
    pub(super) const fn is_empty(&self) -> bool {
        self.known == 0 && self.others.is_none()
    }

    /// Adds the known name with this number, below 32; `false` when it was there.
    pub(super) const fn insert_known(&mut self, number: u8) -> bool {
        let bit = 1 << number;
        let new = self.known & bit == 0;
        self.known |= bit;
        new
    }

    /// Adds any other name; `false` when it was there.
    #[inline(never)]
    pub(super) fn insert(&mut self, name: Text<'a>) -> bool {
        let others = self.others.get_or_insert(Others {
            count: 0,
            inline: [Text::EMPTY; N],
            more: BTreeSet::new(),
        });
        if others.inline[..others.count].contains(&name) {
            return false;
        }
        match others.inline.get_mut(others.count) {
            Some(free) => {
                *free = name;
                others.count += 1;
                true
            }
            None => others.more.insert(name),
        }
    }
}
