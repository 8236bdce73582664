//! Heads whose parts are values of their own: for those that are read once and looked at here and there. See
//! [`HttpHead`](super::HttpHead) for those that are read all the time.

/// The fields of a head, in order. Names compare without regard to case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// All names, one behind the other.
    names: String,
    values: Vec<u8>,
    /// Where the name and the value of each end.
    ends: Vec<(usize, usize)>,
}

impl Fields {
    /// These fields, in this order.
    pub(super) fn new<'a>(fields: impl Iterator<Item = (&'a str, &'a [u8])> + Clone) -> Self {
        let lengths = fields
            .clone()
            .map(|(name, value)| (name.len(), value.len()));
        let (count, names, values) = lengths.fold((0, 0, 0), |(count, names, values), (n, v)| {
            (count + 1, names + n, values + v)
        });
        let mut made = Self {
            names: String::with_capacity(names),
            values: Vec::with_capacity(values),
            ends: Vec::with_capacity(count),
        };
        for (name, value) in fields {
            made.names.push_str(name);
            made.values.extend_from_slice(value);
            made.ends.push((made.names.len(), made.values.len()));
        }
        made
    }

    /// All values of one name, in order.
    pub fn all<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        self.iter()
            .filter(move |(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The value of a field that may stand once: `None` when it is absent, repeated or not text.
    #[must_use]
    pub fn only(&self, name: &str) -> Option<&str> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (Some(value), None) => std::str::from_utf8(value).ok(),
            _ => None,
        }
    }

    /// Whether the field is there at all.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// Whether a comma-separated list field (`Connection`, `Upgrade`) names `token`, in any case.
    #[must_use]
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.all(name)
            .flat_map(|value| value.split(|b| *b == b','))
            .any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Every field as (name, value), in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut from = (0, 0);
        self.ends.iter().map(move |to| {
            let field = (&self.names[from.0..to.0], &self.values[from.1..to.1]);
            from = *to;
            field
        })
    }
}

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status: three digits.
    pub status: u16,
    /// Minor HTTP version: 0 or 1.
    pub minor: u8,
    /// The fields.
    pub fields: Fields,
}
