//! What a result says itself of the members that 2026-07-28 adds. Its own word holds: a bridge passes it on.

use std::sync::LazyLock;

use memchr::memmem::Finder;

use crate::codec::scan::{Text, members};
use crate::protocol::message::{META_SERVER_INFO, member};

/// What a result holds that has one of the members, for a name may be spelled with escapes. Made once: that
/// takes longer than a search.
static NAMES: LazyLock<[Finder<'static>; 5]> = LazyLock::new(|| {
    ["_meta", "resultType", "ttlMs", "cacheScope", "\\u"].map(|name| Finder::new(name.as_bytes()))
});

/// Members of a raw result that are not to be added again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Own<'a> {
    pub(super) result_type: bool,
    /// It is another type than `complete`.
    pub(super) incomplete: bool,
    pub(super) ttl: bool,
    pub(super) scope: bool,
    /// The raw value of `_meta`, whatever it is.
    pub(super) meta: Option<&'a str>,
}

impl<'a> Own<'a> {
    /// Looks through a raw object. Most have none of them, which shows without reading it.
    pub(super) fn of(result: &'a str) -> Self {
        let mut own = Self::default();
        let mut names = NAMES.iter();
        if !names.any(|name| name.find(result.as_bytes()).is_some()) {
            return own;
        }
        for (name, value) in members(result) {
            if name.is("_meta") {
                own.meta = Some(value);
            } else {
                if name.is("resultType") {
                    own.result_type = true;
                    let kind = Text::of_value(value);
                    own.incomplete = kind.is_some_and(|kind| !kind.is("complete"));
                }
                own.ttl |= name.is("ttlMs");
                own.scope |= name.is("cacheScope");
            }
        }
        own
    }
}

/// Where a raw value ends that is a part of `whole`, and where it begins.
pub(super) fn place_of(whole: &str, value: &str) -> Option<(usize, usize)> {
    let begin = (value.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let end = begin.checked_add(value.len())?;
    whole.get(begin..end)?;
    Some((begin, end))
}

/// What a raw `_meta` becomes with our member in it: the text before our member and the text behind it.
/// `None` when it has the member itself and so stays as it is. Something that is no object cannot be kept.
pub(super) fn around(meta: &str) -> Option<(&str, &str)> {
    let open = meta.strip_suffix('}').filter(|open| open.starts_with('{'));
    let Some(open) = open else {
        return Some(("{", "}"));
    };
    member(meta, META_SERVER_INFO)
        .is_none()
        .then_some((open, "}"))
}
