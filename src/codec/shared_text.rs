//! Text that several holders share: a part of a message, kept while the message is being served.
//!
//! A request passes through many hands (peer, gate, desk, the program), and each keeps some part of it.
//! They all hold the one copy that was made when it came in, by a [`TextPool`], or the buffer itself that it
//! came in, lent out by a [`Lender`]. Both use a buffer again once nobody holds a part of it, so that steady
//! work allocates nothing.
//!
//! Never: changes a text that somebody holds.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A text, or a part of one. Cheap to clone; reads as a `str`.
#[derive(Clone)]
pub struct SharedText(Held);

#[derive(Clone)]
enum Held {
    Fixed(&'static str),
    Part {
        whole: Arc<String>,
        start: usize,
        end: usize,
    },
}

impl SharedText {
    /// A text of the program itself.
    #[must_use]
    pub const fn fixed(text: &'static str) -> Self {
        Self(Held::Fixed(text))
    }

    /// The part of this text that stands where `part` stands in `original`, of which this is a copy. Any
    /// other `part` is copied.
    #[must_use]
    pub fn part(&self, original: &str, part: &str) -> Self {
        let offset = (part.as_ptr() as usize).checked_sub(original.as_ptr() as usize);
        if let (Held::Part { whole, start, end }, Some(offset)) = (&self.0, offset) {
            let place = start + offset..start + offset + part.len();
            let found = whole.get(place.clone()).filter(|_| place.end <= *end);
            // Where this is the original itself, nothing is to be compared.
            let same = |found: &str| found.as_ptr() == part.as_ptr() || found == part;
            if found.is_some_and(same) {
                return Self(Held::Part {
                    whole: whole.clone(),
                    start: place.start,
                    end: place.end,
                });
            }
        }
        part.into()
    }
}

impl Deref for SharedText {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        match &self.0 {
            Held::Fixed(text) => text,
            Held::Part { whole, start, end } => &whole[*start..*end],
        }
    }
}

impl Default for SharedText {
    fn default() -> Self {
        Self::fixed("")
    }
}

impl From<String> for SharedText {
    fn from(text: String) -> Self {
        Self(Held::Part {
            start: 0,
            end: text.len(),
            whole: Arc::new(text),
        })
    }
}

impl From<&str> for SharedText {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Box<str>> for SharedText {
    fn from(text: Box<str>) -> Self {
        text.into_string().into()
    }
}

impl AsRef<str> for SharedText {
    fn as_ref(&self) -> &str {
        self
    }
}

impl PartialEq for SharedText {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedText {}

impl PartialOrd for SharedText {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SharedText {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl fmt::Display for SharedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Buffers that a pool keeps. More texts than these may be held; the others are not used again. The first one,
/// which serves where one request is done before the next, may be as big as the limit says; the others are
/// for calls that wait, and together they are no more than one connection is read at once.
const BUFFERS_MAX: usize = 8;

/// Capacity that each of the others may keep.
const OTHER_BYTES: usize = 16 * 1024;

/// Makes copies in buffers that nobody holds any more.
#[derive(Debug)]
pub struct TextPool {
    first_bytes_max: usize,
    buffers: Vec<Arc<String>>,
}

impl TextPool {
    /// A pool without buffers. `bytes_max` is what its first buffer may keep
    /// ([`Limits::text_buffer_bytes_max`](crate::limits::Limits::text_buffer_bytes_max)).
    #[must_use]
    pub const fn new(bytes_max: usize) -> Self {
        Self {
            first_bytes_max: bytes_max,
            buffers: Vec::new(),
        }
    }

    /// A copy of `text`.
    pub fn copy(&mut self, text: &str) -> SharedText {
        let mut most = self.first_bytes_max;
        for buffer in &mut self.buffers {
            if let Some(free) = Arc::get_mut(buffer).filter(|_| text.len() <= most) {
                free.clear();
                free.shrink_to(most);
                free.push_str(text);
                return held(buffer);
            }
            most = OTHER_BYTES.min(self.first_bytes_max);
        }
        let fresh = Arc::new(text.to_owned());
        if self.buffers.len() < BUFFERS_MAX && text.len() <= most {
            self.buffers.push(fresh.clone());
        }
        held(&fresh)
    }
}

/// Lends texts out that came in a buffer of their own, without a copy, and takes the buffers back.
///
/// What is shared has to be counted somewhere: the places for that are kept here, so that steady work
/// allocates nothing.
#[derive(Debug, Default)]
pub struct Lender {
    free: Vec<Arc<String>>,
}

impl Lender {
    /// Shares `text` as it is.
    pub fn lend(&mut self, text: String) -> SharedText {
        let mut whole = self.free.pop().unwrap_or_default();
        match Arc::get_mut(&mut whole) {
            Some(place) => *place = text,
            None => whole = Arc::new(text),
        }
        let end = whole.len();
        SharedText(Held::Part {
            whole,
            start: 0,
            end,
        })
    }

    /// The buffer of a text that was lent, when nobody else holds a part of it. Else it is the last of them
    /// who gives it up.
    pub fn take_back(&mut self, text: SharedText) -> Option<String> {
        let Held::Part { mut whole, .. } = text.0 else {
            return None;
        };
        let buffer = Arc::get_mut(&mut whole).map(std::mem::take)?;
        if self.free.len() < BUFFERS_MAX {
            self.free.push(whole);
        }
        Some(buffer)
    }
}

fn held(whole: &Arc<String>) -> SharedText {
    SharedText(Held::Part {
        whole: whole.clone(),
        start: 0,
        end: whole.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_found_where_the_original_has_it() {
        let original = "one two three";
        let copy = SharedText::from(original);
        let two = copy.part(original, &original[4..7]);
        assert_eq!(&*two, "two");
        assert!(std::ptr::eq(two.as_ptr(), copy[4..].as_ptr()), "no copy");
        let inner = two.part(&original[4..7], &original[5..6]);
        assert!(std::ptr::eq(inner.as_ptr(), copy[5..].as_ptr()), "no copy");
        assert_eq!(&*copy.part(original, "elsewhere"), "elsewhere");
        assert_eq!(&*two.part(&original[4..7], &original[4..9]), "two t");
        assert_eq!(&*SharedText::fixed("{}").part("{}", "x"), "x");
    }

    #[test]
    fn what_was_lent_comes_back_from_the_last_who_holds_it() {
        let mut lender = Lender::default();
        for round in 0..3 {
            let text = format!("one two three {round}");
            let buffer = text.as_ptr();
            let lent = lender.lend(text);
            let part = lent.part(&lent, &lent[4..7]);
            assert!(std::ptr::eq(part.as_ptr(), lent[4..].as_ptr()), "no copy");
            assert_eq!(lender.take_back(lent), None, "a part is held");
            assert_eq!(&*part, "two");
            let whole = lender.take_back(part).expect("nobody else holds it");
            assert_eq!(whole, format!("one two three {round}"));
            assert!(std::ptr::eq(whole.as_ptr(), buffer), "no copy");
            assert_eq!(lender.free.len(), 1);
        }
        assert_eq!(lender.take_back(SharedText::fixed("x")), None);
    }

    #[test]
    fn a_held_text_stays_as_it_is() {
        let mut pool = TextPool::new(1024);
        let held: Vec<_> = (0..3 * BUFFERS_MAX)
            .map(|n| (n, pool.copy(&format!("text {n}"))))
            .collect();
        for (n, text) in &held {
            assert_eq!(&**text, format!("text {n}"));
        }
        assert_eq!(pool.buffers.len(), BUFFERS_MAX);
    }

    #[test]
    fn text_buffer_bytes_max() {
        const MOST: usize = 64 * 1024;
        let mut pool = TextPool::new(MOST);
        let long = "x".repeat(MOST);
        let all: Vec<_> = (0..BUFFERS_MAX).map(|_| pool.copy(&long)).collect();
        assert_eq!(pool.buffers.len(), 1, "one may be long");
        drop(all);
        drop(pool.copy(&"x".repeat(MOST + 1)));
        assert_eq!(pool.buffers.len(), 1);
        let kept: usize = pool.buffers.iter().map(|buffer| buffer.capacity()).sum();
        assert!(kept <= MOST, "{kept} bytes");
    }
}
