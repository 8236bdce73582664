//! The fields of a head, and heads that are read once and looked at here and there.

use super::head::{Field, HeadSerial, Kept, Key, Span, Unfit, ValuePlace, equal, is_number};

/// A whole head in one buffer, and where its fields lie in it. Names compare without regard to case.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    kept: Kept,
    list: Vec<Field>,
    /// The digits of the only Content-Length; empty when there is none, or it is something else.
    length: Span,
    /// 0 while it holds no whole head.
    serial: HeadSerial,
}

impl Fields {
    /// Gives the buffer for the next head. Until that is [noted](Self::note) nothing is here.
    pub(super) fn take_buffer(&mut self) -> Vec<u8> {
        self.list.clear();
        (self.length, self.serial) = (Span::default(), HeadSerial::default());
        std::mem::take(&mut self.kept).into_bytes()
    }

    /// Keeps the buffer although what is in it is no head.
    pub(super) fn put_back(&mut self, bytes: Vec<u8>) {
        self.kept = Kept::of(bytes);
    }

    /// Notes the fields of a head, all of them parts of `bytes`.
    pub(super) fn note<'a>(
        &mut self,
        bytes: &[u8],
        fields: impl Iterator<Item = (&'a str, &'a [u8])>,
    ) {
        self.list.extend(fields.map(|(name, value)| Field {
            key: Key::of(name.as_bytes()),
            name: Span::of(name.as_bytes(), bytes),
            value: Span::of(value, bytes),
        }));
    }

    /// The head is whole, and has this serial from now on.
    pub(super) fn seal(&mut self, serial: HeadSerial) {
        let only = {
            let mut lengths = self.spans("content-length");
            lengths.next().filter(|_| lengths.next().is_none())
        };
        let number = |span: &Span| is_number(&self.kept.bytes()[span.range()]);
        self.length = only.filter(number).unwrap_or_default();
        self.serial = serial;
    }

    /// Becomes the head at the beginning of `input`, when that repeats this one: says how long it is. A
    /// length of more or fewer digits is no repetition, for everything behind it has moved.
    pub(super) fn repeat(&mut self, input: &[u8]) -> Option<usize> {
        let known = self.kept.bytes();
        let again = input.get(..known.len())?;
        let length = self.length.range();
        let same = self.serial != HeadSerial::default()
            && equal(&again[..length.start], &known[..length.start])
                & equal(&again[length.end..], &known[length.end..]);
        if !same {
            return None;
        }
        let used = again.len();
        let digits = &again[length.clone()];
        if known[length.clone()] != *digits {
            let digits = std::str::from_utf8(digits)
                .ok()
                .filter(|text| is_number(text.as_bytes()))?;
            self.kept.replace(length, digits);
        }
        Some(used)
    }

    pub(super) const fn serial(&self) -> HeadSerial {
        self.serial
    }

    pub(super) fn length_digits(&self) -> &[u8] {
        &self.kept.bytes()[self.length.range()]
    }

    /// The value of a field that may stand once; `None` when it is absent.
    ///
    /// # Errors
    /// [`Unfit`] when it stands more than once or is not UTF-8.
    pub fn single(&self, name: &str) -> Result<Option<&str>, Unfit> {
        let mut values = self.texts(name);
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.map(Some).ok_or(Unfit),
            (Some(_), Some(_)) => Err(Unfit),
        }
    }

    pub(super) fn place(&self, name: &str) -> Option<ValuePlace> {
        let mut values = self.spans(name);
        let only = values.next().filter(|_| values.next().is_none())?;
        self.kept.text(only).map(|_| ValuePlace(only))
    }

    pub(super) fn text(&self, span: Span) -> &str {
        self.kept.text(span).unwrap_or_default()
    }

    pub(super) fn texts<'a, 'n>(
        &'a self,
        name: &'n str,
    ) -> impl Iterator<Item = Option<&'a str>> + use<'a, 'n> {
        self.spans(name).map(|value| self.kept.text(value))
    }

    fn spans<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = Span> + use<'a, 'n> {
        let key = Key::of(name.as_bytes());
        let same = move |field: &&Field| {
            field.key == key
                && self.kept.bytes()[field.name.range()].eq_ignore_ascii_case(name.as_bytes())
        };
        self.list.iter().filter(same).map(|field| field.value)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.kept.capacity() + self.list.capacity() * size_of::<Field>()
    }

    /// All values of one name, in order.
    pub fn all<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.spans(name)
            .map(|value| &self.kept.bytes()[value.range()])
    }

    /// The value of a field that may stand once: `None` when it is absent, repeated or not text.
    #[must_use]
    pub fn only(&self, name: &str) -> Option<&str> {
        self.single(name).ok().flatten()
    }

    /// Whether the field is there at all.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.spans(name).next().is_some()
    }

    /// Whether a comma-separated list field (`Connection`, `Upgrade`) names `token`, in any case.
    #[must_use]
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.all(name)
            .flat_map(|value| value.split(|b| *b == b','))
            .any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Every field as (name, value), in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let bytes = self.kept.bytes();
        let part = move |span: Span| &bytes[span.range()];
        self.list
            .iter()
            .map(move |field| (part(field.name), part(field.value)))
    }
}

/// The head of a request.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// Method, as sent.
    pub method: String,
    /// Request target, as sent: visible ASCII.
    pub target: String,
    /// Minor HTTP version: 0 or 1.
    pub minor: u8,
    /// The fields.
    pub fields: Fields,
}

/// The head of a response. Given back to its reader, it takes the next head as an
/// [`HttpHead`](super::HttpHead) does.
#[derive(Clone, Debug, Default)]
pub struct ResponseHead {
    /// Status: three digits; 0 as long as nothing was read into it.
    pub status: u16,
    /// Minor HTTP version: 0 or 1.
    pub minor: u8,
    /// The fields.
    pub fields: Fields,
}

impl ResponseHead {
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
}
