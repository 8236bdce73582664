//! The heads that our own listener reads.

use super::{HeadView, Once};
use crate::codec::http1::HttpHead;

impl HeadView for HttpHead {
    fn method(&self) -> &str {
        Self::method(self)
    }

    fn target(&self) -> &str {
        Self::target(self)
    }

    fn field_count(&self, name: &str) -> usize {
        self.fields(name).count()
    }

    fn nth_field(&self, name: &str, nth: usize) -> Option<&str> {
        self.texts(name).nth(nth).flatten()
    }

    fn once(&self, name: &str) -> Once<'_> {
        let mut values = self.texts(name);
        match (values.next(), values.next()) {
            (None, _) => Once::Absent,
            (Some(value), None) => value.map_or(Once::NotText, Once::Value),
            (Some(_), Some(_)) => Once::Repeated(2 + values.count()),
        }
    }
}
