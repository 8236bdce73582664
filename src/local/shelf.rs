//! One list of a registry: entries in the order in which they came, given out in pages.
//!
//! A page ends after `list_page_entries_max` entries or `list_page_bytes_max` bytes. The cursor names the
//! last entry of the page before, by a number that no later entry gets, so that a list may change between
//! two pages without an entry being shown twice. Spec: 2025-11-25 server/utilities/pagination.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::codec::scan::Text;
use crate::limits::Limits;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::secret::Quoted;

/// What stands on a shelf.
pub(super) trait Entry {
    /// Its definition, a raw object.
    fn json(&self) -> &str;
}

#[derive(Debug)]
pub(super) struct Shelf<T> {
    /// The member of the list's result.
    member: &'static str,
    entries: BTreeMap<u64, T>,
    by_name: BTreeMap<Arc<str>, u64>,
    next: u64,
    /// The first page, written when it was first asked for.
    first_page: Option<String>,
}

impl<T: Entry> Shelf<T> {
    pub(super) const fn new(member: &'static str) -> Self {
        Self {
            member,
            entries: BTreeMap::new(),
            by_name: BTreeMap::new(),
            next: 0,
            first_page: None,
        }
    }

    /// The names, in alphabetical order.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(|name| &**name)
    }

    /// Adds an entry behind all others; gives it back when the name is taken.
    pub(super) fn add(&mut self, name: Arc<str>, entry: T) -> Result<(), T> {
        if self.by_name.contains_key(&name) {
            return Err(entry);
        }
        self.by_name.insert(name, self.next);
        self.entries.insert(self.next, entry);
        self.next += 1;
        self.first_page = None;
        Ok(())
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<T> {
        let number = self.by_name.remove(name)?;
        self.first_page = None;
        self.entries.remove(&number)
    }

    /// The entry and its name as the shelf keeps it.
    pub(super) fn find(&self, name: &str) -> Option<(&Arc<str>, &T)> {
        let (name, number) = self.by_name.get_key_value(name)?;
        Some((name, self.entries.get(number)?))
    }

    pub(super) fn find_mut(&mut self, name: &str) -> Option<&mut T> {
        self.entries.get_mut(self.by_name.get(name)?)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.values()
    }

    /// The entries with their numbers, in order.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (u64, &T)> {
        self.entries.iter().map(|(number, entry)| (*number, entry))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The result of the list request with this raw `cursor`.
    pub(super) fn page(
        &mut self,
        cursor: Option<&str>,
        limits: &Limits,
    ) -> Result<Cow<'_, str>, RpcError> {
        let from = match cursor {
            None | Some("null") => None,
            Some(raw) => Some(self.read_cursor(raw)?),
        };
        match from {
            Some(from) => Ok(self.write(from, limits).into()),
            None => {
                if self.first_page.is_none() {
                    self.first_page = Some(self.write(0, limits));
                }
                Ok(self.first_page.as_deref().unwrap_or("{}").into())
            }
        }
    }

    fn write(&self, from: u64, limits: &Limits) -> String {
        let mut json = format!(r#"{{"{}":["#, self.member);
        let mut last = None;
        let mut more = false;
        for (count, (number, entry)) in self.entries.range(from..).enumerate() {
            let full = count >= limits.list_page_entries_max
                || json.len() + entry.json().len() > limits.list_page_bytes_max;
            if full && last.is_some() {
                more = true;
                break;
            }
            if last.is_some() {
                json.push(',');
            }
            json.push_str(entry.json());
            last = Some(*number);
        }
        json.push(']');
        if let (true, Some(last)) = (more, last) {
            let cursor = URL_SAFE_NO_PAD.encode(format!("{}:{last}", self.member));
            json.push_str(&format!(r#","nextCursor":"{cursor}""#));
        }
        json.push('}');
        json
    }

    /// The number behind the entry that a cursor names.
    fn read_cursor(&self, raw: &str) -> Result<u64, RpcError> {
        let read = || {
            let text = Text::of_value(raw)?.decode();
            let bytes = URL_SAFE_NO_PAD.decode(text.as_bytes()).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            let number = text.strip_prefix(self.member)?.strip_prefix(':')?;
            let last: u64 = number.parse().ok()?;
            (last < self.next && number == last.to_string()).then(|| last + 1)
        };
        read().ok_or_else(|| {
            RpcError::new(
                ErrorCode::InvalidParams,
                format!("params.cursor is none of this list (found {})", Quoted(raw)),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::message::member;

    impl Entry for String {
        fn json(&self) -> &str {
            self
        }
    }

    fn shelf(count: u64) -> Shelf<String> {
        let mut shelf = Shelf::new("things");
        for number in 0..count {
            shelf
                .add(format!("n{number}").into(), number.to_string())
                .expect("a new name");
        }
        shelf
    }

    fn limits(entries: usize) -> Limits {
        Limits {
            list_page_entries_max: entries,
            ..Limits::DEFAULT
        }
    }

    /// All pages, as their results.
    fn walk(shelf: &mut Shelf<String>, limits: &Limits) -> Vec<String> {
        let mut pages = Vec::new();
        let mut cursor: Option<String> = None;
        while pages.len() < 10 {
            let page = shelf
                .page(cursor.as_deref(), limits)
                .expect("a page")
                .into_owned();
            cursor = member(&page, "nextCursor").map(str::to_owned);
            pages.push(member(&page, "things").expect("a list").to_owned());
            if cursor.is_none() {
                break;
            }
        }
        pages
    }

    #[test]
    fn a_list_comes_in_pages_and_in_order() {
        assert_eq!(walk(&mut shelf(0), &limits(2)), ["[]"]);
        assert_eq!(walk(&mut shelf(2), &limits(2)), ["[0,1]"]);
        assert_eq!(walk(&mut shelf(5), &limits(2)), ["[0,1]", "[2,3]", "[4]"]);
    }

    #[test]
    fn a_page_ends_before_it_gets_too_long_but_is_never_empty() {
        let mut shelf = shelf(3);
        let long = Limits {
            list_page_bytes_max: 5,
            ..Limits::DEFAULT
        };
        assert_eq!(walk(&mut shelf, &long), ["[0]", "[1]", "[2]"]);
    }

    #[test]
    fn a_list_that_changes_between_pages_shows_no_entry_twice() {
        let mut shelf = shelf(4);
        let first = shelf
            .page(None, &limits(2))
            .expect("the first page")
            .into_owned();
        let cursor = member(&first, "nextCursor").expect("more").to_owned();
        shelf.remove("n0");
        shelf.remove("n1");
        shelf.add("n9".into(), "9".to_owned()).expect("a free name");
        let second = shelf
            .page(Some(&cursor), &limits(9))
            .expect("the second page");
        assert_eq!(second, r#"{"things":[2,3,9]}"#);
        assert_eq!(walk(&mut shelf, &limits(9)), ["[2,3,9]"]);
    }

    #[test]
    fn a_cursor_of_another_list_is_refused() {
        let mut shelf = shelf(4);
        let foreign = URL_SAFE_NO_PAD.encode("tools:1");
        let ahead = URL_SAFE_NO_PAD.encode("things:4");
        let odd = URL_SAFE_NO_PAD.encode("things:+1");
        for bad in ["x", "", &foreign, &ahead, &odd, "AAAA"] {
            let error = shelf
                .page(Some(&format!("\"{bad}\"")), &limits(2))
                .expect_err(bad);
            assert_eq!(error.code, ErrorCode::InvalidParams);
        }
        assert!(shelf.page(Some("1"), &limits(2)).is_err());
        assert!(shelf.page(Some("null"), &limits(2)).is_ok());
    }

    #[test]
    fn names_are_unique_and_found() {
        let mut shelf = shelf(2);
        assert_eq!(shelf.add("n1".into(), "x".to_owned()), Err("x".to_owned()));
        assert_eq!(shelf.find("n1").map(|(_, entry)| entry.as_str()), Some("1"));
        assert_eq!(shelf.remove("n1").as_deref(), Some("1"));
        assert!(shelf.find("n1").is_none());
    }
}
