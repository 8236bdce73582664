//! A request head kept as it came, with the places of its parts noted; and what such heads are made of.

use std::ops::Range;

use super::fields::Fields;

/// Where a part of a head lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// The place of `part` in `whole`, of which it must be a slice.
    pub(super) fn of(part: &[u8], whole: &[u8]) -> Self {
        let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
        // A head is shorter than 4 GiB (HeadBuffer::new).
        let place = |at| u32::try_from(at).unwrap_or(u32::MAX);
        Self {
            start: place(start),
            end: place(start.saturating_add(part.len())),
        }
    }

    pub(super) const fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Whether parts of the same length are equal, in a time that tells nothing of where they differ: a head may
/// hold a token, and a proxy may send the requests of several clients down one connection.
pub(super) fn equal(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let difference =
        |one: &[u8; 16], other: &[u8; 16]| u128::from_ne_bytes(*one) ^ u128::from_ne_bytes(*other);
    // The last block ends where both do, and may have been compared in part.
    let (Some(one), Some(other)) = (a.last_chunk(), b.last_chunk()) else {
        let bytes = a.iter().zip(b);
        return bytes.fold(0, |all, (one, other)| all | (one ^ other)) == 0;
    };
    let mut differences = difference(one, other);
    let (mut left, mut right) = (a, b);
    while let (Some((one, left_rest)), Some((other, right_rest))) =
        (left.split_first_chunk(), right.split_first_chunk())
    {
        differences |= difference(one, other);
        (left, right) = (left_rest, right_rest);
    }
    differences == 0
}

pub(super) fn is_number(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)
}

/// A field that was sent in a way that leaves its meaning open: more than once, or not as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfit;

/// What tells most names apart: the length and the first letter without its case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u16);

impl Key {
    pub(super) fn of(name: &[u8]) -> Self {
        let first = name.first().map_or(0, |byte| byte | 0x20);
        Self(u16::from_le_bytes([name.len() as u8, first]))
    }
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) key: Key,
    pub(super) name: Span,
    pub(super) value: Span,
}

/// The bytes of a head. Nearly all are text; that is looked at once, for each field is asked for often.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    Text(String),
    Bytes(Vec<u8>),
}

impl Default for Kept {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Kept {
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(error) => Self::Bytes(error.into_bytes()),
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.into_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    pub(super) fn text(&self, span: Span) -> Option<&str> {
        match self {
            Self::Text(text) => text.get(span.range()),
            Self::Bytes(bytes) => std::str::from_utf8(&bytes[span.range()]).ok(),
        }
    }

    /// Puts as many other digits in the place of those in `range`.
    pub(super) fn replace(&mut self, range: Range<usize>, digits: &str) {
        match self {
            Self::Text(text) => text.replace_range(range, digits),
            Self::Bytes(bytes) => bytes[range].copy_from_slice(digits.as_bytes()),
        }
    }

    pub(super) fn capacity(&self) -> usize {
        match self {
            Self::Text(text) => text.capacity(),
            Self::Bytes(bytes) => bytes.capacity(),
        }
    }
}

/// Names what a head says, its Content-Length aside: heads that one reader gave the same number are equal
/// byte for byte, but for the digits of that field. So whoever judged one of them by anything else has
/// judged them all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadSerial(pub(super) u64);

/// Where the value of a field stands in a head, and in every other one with its serial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValuePlace(pub(super) Span);

/// The head of a request in one buffer. Given back to its reader, it takes the next head without an
/// allocation, and without a look at each byte when that repeats it. An empty one (`default`) is the
/// beginning.
#[derive(Clone, Debug, Default)]
pub struct HttpHead {
    pub(super) method: Span,
    pub(super) target: Span,
    pub(super) minor: u8,
    pub(super) fields: Fields,
}

impl HttpHead {
    /// See [`HeadSerial`].
    #[must_use]
    pub const fn serial(&self) -> HeadSerial {
        self.fields.serial()
    }

    /// The digits of its Content-Length; empty when there is no such field.
    #[must_use]
    pub fn length_digits(&self) -> &[u8] {
        self.fields.length_digits()
    }

    /// Method, as sent. Methods are told apart by case (RFC 9110 §9.1).
    #[must_use]
    pub fn method(&self) -> &str {
        self.text(self.method)
    }

    /// Request target as sent, path and query: visible ASCII.
    #[must_use]
    pub fn target(&self) -> &str {
        self.text(self.target)
    }

    /// The path of the target, without its query.
    #[must_use]
    pub fn path(&self) -> &str {
        let (_, path) = self.target_parts();
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        if path.is_empty() { "/" } else { path }
    }

    /// The query of the target, without its question mark.
    #[must_use]
    pub fn query(&self) -> Option<&str> {
        let (_, path) = self.target_parts();
        path.split_once('?').map(|(_, query)| query)
    }

    /// Whom the request means to ask: the authority in its target, else its Host. RFC 9112 §3.2.2:
    /// a target in absolute form outweighs the field.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        let (authority, _) = self.target_parts();
        authority.or_else(|| self.field("host"))
    }

    /// Authority and path of a target; only one in absolute form has the first.
    fn target_parts(&self) -> (Option<&str>, &str) {
        let target = self.target();
        let Some((_, rest)) = target
            .split_once("://")
            .filter(|(scheme, _)| scheme.bytes().all(|b| b.is_ascii_alphanumeric()))
        else {
            return (None, target);
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        (Some(authority), if path.is_empty() { "/" } else { path })
    }

    /// Minor HTTP version: 0 or 1.
    #[must_use]
    pub const fn minor(&self) -> u8 {
        self.minor
    }

    /// The value of a field that may stand once: `None` when it is absent, repeated or not text.
    /// Where that difference matters (Origin, Authorization), ask [`single`](Self::single).
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.only(name)
    }

    /// The value of a field that may stand once; `None` when it is absent.
    ///
    /// # Errors
    /// [`Unfit`] when it stands more than once or is not UTF-8.
    pub fn single(&self, name: &str) -> Result<Option<&str>, Unfit> {
        self.fields.single(name)
    }

    /// Where the value of a field stands, for [`value_at`](Self::value_at); `None` when it is absent, repeated
    /// or not text.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<ValuePlace> {
        self.fields.place(name)
    }

    /// What stands at a place that this head gave, or one with its serial.
    #[must_use]
    pub fn value_at(&self, place: ValuePlace) -> &str {
        self.fields.text(place.0)
    }

    /// All values of one field, in order. Names compare without regard to case.
    pub fn fields<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.fields.all(name)
    }

    /// The same as text; `None` for one that is not UTF-8.
    pub fn texts<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = Option<&'a str>> + use<'a, 'n> {
        self.fields.texts(name)
    }

    /// Every field as (name, value), in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter()
    }

    /// Bytes of heap that it holds.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.fields.heap_bytes()
    }

    fn text(&self, span: Span) -> &str {
        self.fields.text(span)
    }
}
