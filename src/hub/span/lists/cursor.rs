//! Places in a merged list: where a page ended, as the cursor that a client gives back.
//!
//! A cursor names the last entry of its page by whose it is and by a number that no other entry of that part
//! ever gets. So it says nothing of how long the list was: entries may come and go between two pages, parts
//! too, and none that stayed is shown twice or left out.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::codec::scan::Text;
use crate::manager::catalog::PagedList;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::secret::Quoted;

/// Whose part of a merged list an entry stands in. The order is that of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source<'a> {
    /// The channel tools.
    Channel,
    /// What the program offers itself.
    Local,
    /// An upstream server, by its key.
    Server(&'a str),
}

/// Where a page ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The key of [`Source::Server`]; the other two have letters of their own.
    source: String,
    number: u64,
}

impl Cursor {
    /// Reads the raw `cursor` of a request for this list: `None` for the first page.
    ///
    /// # Errors
    /// -32602 for a cursor that is none of this list.
    pub(super) fn read(list: PagedList, raw: Option<&str>) -> Result<Option<Self>, RpcError> {
        let Some(raw) = raw.filter(|raw| *raw != "null") else {
            return Ok(None);
        };
        let read = || {
            let text = Text::of_value(raw)?.decode();
            let bytes = URL_SAFE_NO_PAD.decode(text.as_bytes()).ok()?;
            let text = String::from_utf8(bytes).ok()?;
            let place = text.strip_prefix(list.member())?.strip_prefix(':')?;
            let (number, source) = place.split_once(':')?;
            let cursor = Self {
                source: source.to_owned(),
                number: number.parse().ok()?,
            };
            let ours = cursor.source().is_some() && cursor.number.to_string() == number;
            ours.then_some(cursor)
        };
        read().map(Some).ok_or_else(|| {
            RpcError::new(
                ErrorCode::InvalidParams,
                format!("params.cursor is none of this list (found {})", Quoted(raw)),
            )
        })
    }

    /// The cursor of a page that ends with this entry. Safe to stand in JSON as it is.
    pub(super) fn write(list: PagedList, source: Source<'_>, number: u64) -> String {
        let source = match source {
            Source::Channel => "c".to_owned(),
            Source::Local => "l".to_owned(),
            Source::Server(key) => format!("s{key}"),
        };
        URL_SAFE_NO_PAD.encode(format!("{}:{number}:{source}", list.member()))
    }

    /// Whether an entry comes behind it.
    pub(super) fn is_before(&self, source: Source<'_>, number: u64) -> bool {
        self.source()
            .is_some_and(|own| (own, self.number) < (source, number))
    }

    fn source(&self) -> Option<Source<'_>> {
        match (self.source.as_str(), self.source.strip_prefix('s')) {
            ("c", _) => Some(Source::Channel),
            ("l", _) => Some(Source::Local),
            (_, Some(key)) => Some(Source::Server(key)),
            (_, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: PagedList = PagedList::Prompts;

    fn read(text: &str) -> Result<Option<Cursor>, RpcError> {
        Cursor::read(LIST, Some(&format!("\"{text}\"")))
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let places = [
            (Source::Channel, 7),
            (Source::Local, 0),
            (Source::Server(""), 3),
            (Source::Server("a:b"), 3),
            (Source::Server("b"), u64::MAX),
        ];
        for (at, (source, number)) in places.into_iter().enumerate() {
            let cursor = read(&Cursor::write(LIST, source, number));
            let cursor = cursor.expect("ours").expect("a place");
            for (other, (source, number)) in places.into_iter().enumerate() {
                assert_eq!(cursor.is_before(source, number), at < other);
            }
        }
        assert_eq!(Cursor::read(LIST, None), Ok(None));
        assert_eq!(Cursor::read(LIST, Some("null")), Ok(None));
    }

    #[test]
    fn a_cursor_of_another_list_is_refused() {
        let foreign = Cursor::write(PagedList::Tools, Source::Local, 1);
        let odd = |text: &str| URL_SAFE_NO_PAD.encode(text);
        for bad in [
            "bogus",
            "",
            "k:8",
            &foreign,
            &odd("prompts:+1:l"),
            &odd("prompts:1"),
            &odd("prompts:1:"),
            &odd("prompts:1:x"),
            &odd("prompts:1:cc"),
        ] {
            let error = read(bad).expect_err(bad);
            assert_eq!(error.code, ErrorCode::InvalidParams, "{bad}");
        }
        assert!(Cursor::read(LIST, Some("1")).is_err());
    }
}
