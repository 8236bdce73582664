//! One server's part of a merged list: its entries as they came, each with a number for as long as it stays.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::codec::scan::{Text, elements};
use crate::manager::catalog::PagedList;
use crate::protocol::message::member;

/// Numbers for names: one that stays keeps its number, one that is new gets the next, and none is given twice.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    of: BTreeMap<Box<str>, u64>,
    next: u64,
}

impl Numbers {
    /// The numbers of these names, in their order; `None` for one that came before in it. Names that are not
    /// among them are forgotten.
    pub(super) fn renew<'a>(&mut self, names: impl Iterator<Item = &'a str>) -> Vec<Option<u64>> {
        let mut old = std::mem::take(&mut self.of);
        let mut numbers = Vec::new();
        for name in names {
            if self.of.contains_key(name) {
                numbers.push(None);
                continue;
            }
            let (name, number) = old.remove_entry(name).unwrap_or_else(|| {
                self.next += 1;
                (name.into(), self.next - 1)
            });
            self.of.insert(name, number);
            numbers.push(Some(number));
        }
        numbers
    }

    fn get(&self, name: &str) -> Option<u64> {
        self.of.get(name).copied()
    }
}

/// One entry.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Its place in the list.
    pub(super) number: u64,
    /// Where it stands in the text.
    at: Range<usize>,
    /// What tells it from others: a name, a URI or a template.
    pub(super) id: Box<str>,
    /// The name that clients see, where it is another.
    pub(super) shown: Option<Box<str>>,
}

/// What came of putting new entries in place of earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    /// They are others than before, in some byte.
    pub(super) changed: bool,
    /// Entries that say not what they are, or that they are what an earlier one is.
    pub(super) left_out: usize,
}

/// What is known of one server's list. See the module page.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// The array of all entries, as it was walked.
    text: Box<str>,
    /// By number.
    entries: Vec<Entry>,
    numbers: Numbers,
}

impl Part {
    /// Puts the entries of a finished walk, a raw array, in place of the earlier ones.
    pub(super) fn replace(&mut self, list: PagedList, array: Box<str>) -> Replaced {
        let mut found = Vec::new();
        let mut left_out = 0;
        for raw in elements(&array) {
            let id = member(raw, identity(list)).and_then(Text::of_value);
            match id {
                Some(id) => found.push((place(&array, raw), id.decode())),
                None => left_out += 1,
            }
        }
        let numbers = self.numbers.renew(found.iter().map(|(_, id)| &**id));
        let mut entries = Vec::with_capacity(found.len());
        for ((at, id), number) in found.into_iter().zip(numbers) {
            match number {
                Some(number) => entries.push(Entry {
                    number,
                    at,
                    id: id.into(),
                    shown: None,
                }),
                None => left_out += 1,
            }
        }
        entries.sort_unstable_by_key(|entry| entry.number);
        let same = self.entries.len() == entries.len() && {
            let mut both = self.entries().zip(&entries);
            both.all(|((old, raw), new)| old.number == new.number && *raw == array[new.at.clone()])
        };
        self.entries = entries;
        self.text = array;
        Replaced {
            changed: !same,
            left_out,
        }
    }

    /// Gives entries other names: `names` gets the own ones and gives as many shown ones, in their order.
    pub(super) fn rename(&mut self, names: impl FnOnce(&[&str]) -> Vec<String>) {
        let own: Vec<&str> = self.entries.iter().map(|entry| &*entry.id).collect();
        let shown = names(&own);
        for (entry, shown) in self.entries.iter_mut().zip(shown) {
            entry.shown = (*shown != *entry.id).then(|| shown.into());
        }
    }

    /// The entries in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Entry, &str)> {
        self.entries
            .iter()
            .map(|entry| (entry, &self.text[entry.at.clone()]))
    }

    /// Whether there is an entry of this identity.
    pub(super) fn has(&self, id: &str) -> bool {
        self.numbers.get(id).is_some()
    }

    /// The own name of the entry that clients see under this one.
    pub(super) fn own_name(&self, shown: &str) -> Option<&str> {
        let is_it = |entry: &&Entry| entry.shown.as_deref().unwrap_or(&entry.id) == shown;
        self.entries.iter().find(is_it).map(|entry| &*entry.id)
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// The member of an entry that tells it from others.
const fn identity(list: PagedList) -> &'static str {
    match list {
        PagedList::Tools | PagedList::Prompts => "name",
        PagedList::Resources => "uri",
        PagedList::ResourceTemplates => "uriTemplate",
    }
}

/// Where a raw value stands that is a part of `whole`.
fn place(whole: &str, part: &str) -> Range<usize> {
    let from = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    from..from + part.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(uris: &[&str]) -> Box<str> {
        let entries: Vec<String> = uris.iter().map(|u| format!(r#"{{"uri":"{u}"}}"#)).collect();
        format!("[{}]", entries.join(",")).into()
    }

    fn listed(part: &Part) -> Vec<(u64, &str)> {
        let entries = part.entries.iter();
        entries.map(|entry| (entry.number, &*entry.id)).collect()
    }

    #[test]
    fn what_stays_keeps_its_number_whatever_comes_and_goes() {
        let mut part = Part::default();
        part.replace(PagedList::Resources, array(&["a", "b", "c"]));
        assert_eq!(listed(&part), [(0, "a"), (1, "b"), (2, "c")]);
        part.replace(PagedList::Resources, array(&["x", "c", "b"]));
        assert_eq!(listed(&part), [(1, "b"), (2, "c"), (3, "x")]);
        part.replace(PagedList::Resources, array(&["a", "c"]));
        assert_eq!(listed(&part), [(2, "c"), (4, "a")], "a came back as new");
        assert!(part.has("a") && !part.has("b"));
    }

    #[test]
    fn entries_are_the_bytes_that_came() {
        let first = r#"{ "uri" : "a:\u0062", "n":1.0, "size":12345678901234567890 }"#;
        let text = format!(r#"[ {first} , {{"uri":1}}, 7, {{"uri":"a:b"}}, {{"uri":"c:d"}}]"#);
        let mut part = Part::default();
        let replaced = part.replace(PagedList::Resources, text.as_str().into());
        assert!(replaced.changed);
        assert_eq!(replaced.left_out, 3, "two without a URI, one twice");
        let raws: Vec<&str> = part.entries().map(|(_, raw)| raw).collect();
        assert_eq!(raws, [first, r#"{"uri":"c:d"}"#]);
        assert!(!part.replace(PagedList::Resources, text.into()).changed);
        let other = first.replace("1.0", "1.00");
        let other = format!(r#"[{other},{{"uri":"c:d"}}]"#);
        assert!(part.replace(PagedList::Resources, other.into()).changed);
    }

    #[test]
    fn names_are_found_as_they_are_shown() {
        let mut part = Part::default();
        part.replace(
            PagedList::Prompts,
            r#"[{"name":"p"},{"name":"q r"}]"#.into(),
        );
        let plain = part.clone();
        part.rename(|own| own.iter().map(|name| format!("s__{name}")).collect());
        assert_eq!(part.own_name("s__q r"), Some("q r"));
        assert_eq!(part.own_name("p"), None);
        assert_eq!(plain.own_name("p"), Some("p"));
    }
}
