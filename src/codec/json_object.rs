//! One JSON object, written member by member.

use crate::codec::json_text::write_string;

/// Writes one JSON object, member by member.
#[derive(Debug)]
pub struct JsonObject(String);

impl Default for JsonObject {
    fn default() -> Self {
        Self::new()
    }
}

impl JsonObject {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self(String::from("{"))
    }

    /// A member whose value is raw JSON.
    pub fn raw(&mut self, name: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        write_string(&mut self.0, name);
        self.0.push(':');
        self.0.push_str(value);
    }

    /// A string member.
    pub fn text(&mut self, name: &str, value: &str) {
        let mut text = String::with_capacity(value.len() + 2);
        write_string(&mut text, value);
        self.raw(name, &text);
    }

    /// A string member, left out when there is nothing to say.
    pub fn maybe_text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.text(name, value);
        }
    }

    /// A number, left out when there is none.
    pub fn number(&mut self, name: &str, value: Option<i64>) {
        if let Some(value) = value {
            self.raw(name, &value.to_string());
        }
    }

    /// A count, left out when there is none.
    pub fn count(&mut self, name: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.raw(name, &value.to_string());
        }
    }

    /// A truth value.
    pub fn flag(&mut self, name: &str, value: bool) {
        self.raw(name, if value { "true" } else { "false" });
    }

    /// The finished text.
    #[must_use]
    pub fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_separated_and_names_escaped() {
        let mut object = JsonObject::new();
        assert_eq!(JsonObject::new().end(), "{}");
        object.text("a\"b", "x\ny");
        object.maybe_text("left out", None);
        object.number("n", Some(-3));
        object.count("left out too", None);
        object.flag("f", true);
        object.raw("r", "[1]");
        assert_eq!(object.end(), r#"{"a\"b":"x\ny","n":-3,"f":true,"r":[1]}"#);
    }
}
