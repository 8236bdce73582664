//! One page of a merged list, in the making: entries are copied as they are.

use super::cursor::{Cursor, Source};
use crate::codec::json_text::write_string;
use crate::codec::splice::with_member;
use crate::limits::Limits;
use crate::manager::catalog::PagedList;

/// A page. It is offered the entries of the list, all of them in order, and takes those that are its own.
#[derive(Debug)]
pub(super) struct Page<'a> {
    list: PagedList,
    after: Option<Cursor>,
    entries_max: usize,
    bytes_max: usize,
    json: String,
    count: usize,
    last: Option<(Source<'a>, u64)>,
    full: bool,
}

impl<'a> Page<'a> {
    /// The page behind a place, or the first one.
    pub(super) fn new(list: PagedList, after: Option<Cursor>, limits: &Limits) -> Self {
        Self {
            list,
            after,
            entries_max: limits.list_page_entries_max,
            bytes_max: limits.list_page_bytes_max,
            json: format!(r#"{{"{}":["#, list.member()),
            count: 0,
            last: None,
            full: false,
        }
    }

    /// Offers an entry, a raw object, under another name where one is given.
    pub(super) fn offer(
        &mut self,
        source: Source<'a>,
        number: u64,
        raw: &str,
        renamed: Option<&str>,
    ) {
        let after = self.after.as_ref();
        if self.full || after.is_some_and(|after| !after.is_before(source, number)) {
            return;
        }
        // One entry always fits.
        self.full = self.count > 0
            && (self.count >= self.entries_max || self.json.len() + raw.len() > self.bytes_max);
        if self.full {
            return;
        }
        if self.count > 0 {
            self.json.push(',');
        }
        append_named(&mut self.json, raw, renamed);
        self.count += 1;
        self.last = Some((source, number));
    }

    /// Nothing more fits: what comes behind need not be offered.
    pub(super) const fn is_full(&self) -> bool {
        self.full
    }

    /// The result of the list request.
    pub(super) fn end(mut self) -> String {
        self.json.push(']');
        if let (true, Some((source, number))) = (self.full, self.last) {
            let cursor = Cursor::write(self.list, source, number);
            self.json.push_str(&format!(r#","nextCursor":"{cursor}""#));
        }
        self.json.push('}');
        self.json
    }
}

/// An entry under another name; every other byte of it stays.
fn append_named(out: &mut String, raw: &str, renamed: Option<&str>) {
    let Some(name) = renamed else {
        return out.push_str(raw);
    };
    let mut quoted = String::with_capacity(name.len() + 2);
    write_string(&mut quoted, name);
    out.push_str(&with_member(raw, "name", &quoted));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::message::member;

    /// All pages of these entries.
    fn walk(entries: &[(Source<'_>, u64, &str)], limits: &Limits) -> Vec<String> {
        let (mut pages, mut after) = (Vec::new(), None);
        while pages.len() < 10 {
            let mut page = Page::new(PagedList::Tools, after, limits);
            for (source, number, raw) in entries {
                page.offer(*source, *number, raw, None);
            }
            let page = page.end();
            let cursor = member(&page, "nextCursor").map(str::to_owned);
            pages.push(member(&page, "tools").expect("a list").to_owned());
            after = Cursor::read(PagedList::Tools, cursor.as_deref()).expect("ours");
            if cursor.is_none() {
                break;
            }
        }
        pages
    }

    #[test]
    fn pages_go_on_through_all_parts() {
        let (a, b) = (Source::Server("a"), Source::Server("b"));
        let entries = [
            (Source::Channel, 0, "0"),
            (Source::Local, 5, "1"),
            (a, 1, "2"),
            (a, 9, "3"),
            (b, 0, "4"),
        ];
        let limits = |entries, bytes| Limits {
            list_page_entries_max: entries,
            list_page_bytes_max: bytes,
            ..Limits::DEFAULT
        };
        let two = walk(&entries, &limits(2, 1_000));
        assert_eq!(two, ["[0,1]", "[2,3]", "[4]"]);
        assert_eq!(walk(&entries, &limits(5, 1_000)), ["[0,1,2,3,4]"]);
        // `{"tools":[` and so on: one entry always fits.
        let short = walk(&entries, &limits(5, 5));
        assert_eq!(short, ["[0]", "[1]", "[2]", "[3]", "[4]"]);
        assert_eq!(walk(&[], &limits(2, 1_000)), ["[]"]);
    }

    #[test]
    fn an_entry_is_renamed_and_nothing_else_of_it_changes() {
        let raw = r#"{ "x":{"name":"inner"}, "name" : "a\u0062", "n":1.0 }"#;
        let mut page = Page::new(PagedList::Tools, None, &Limits::DEFAULT);
        page.offer(Source::Local, 0, raw, Some("s__\"ab"));
        page.offer(Source::Local, 1, raw, None);
        let renamed = r#"{ "x":{"name":"inner"}, "name" : "s__\"ab", "n":1.0 }"#;
        assert_eq!(page.end(), format!(r#"{{"tools":[{renamed},{raw}]}}"#));
    }
}
