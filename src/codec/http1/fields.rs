//! Heads whose parts are values of their own: for those that are read once and looked at here and there. See
//! [`HttpHead`](super::HttpHead) for those that are read all the time.

/// The fields of a head, in order. Names compare without regard to case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(pub(super) Vec<(Box<str>, Box<[u8]>)>);

impl Fields {
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
        self.0.iter().map(|(name, value)| (&**name, &**value))
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
