//! Members that stand twice in an object: readers differ in which one counts, so what was checked by one
//! reader may be another thing to the next.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The first name that stands twice in one object, at any depth of a raw JSON value. Names count as they read:
/// `"a"` and `"\u0061"` are one.
///
/// # Errors
/// When it is no JSON, or nested deeper than the reader goes (127 levels).
pub fn repeated_member(raw: &str) -> Result<Option<String>, serde_json::Error> {
    let mut found = None;
    let mut reader = serde_json::Deserializer::from_str(raw);
    Reader { found: &mut found }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(found)
}

struct Reader<'a> {
    found: &'a mut Option<String>,
}

impl Reader<'_> {
    const fn below(&mut self) -> Reader<'_> {
        Reader { found: self.found }
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(self.below())?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<(), A::Error> {
        let mut names = BTreeSet::new();
        while let Some(name) = members.next_key::<String>()? {
            if self.found.is_some() {
                members.next_value::<IgnoredAny>()?;
                continue;
            }
            members.next_value_seed(self.below())?;
            if names.contains(&name) {
                self.found.get_or_insert(name);
            } else {
                names.insert(name);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_that_stands_twice_is_told() {
        for (raw, name) in [
            ("{}", None),
            (r#"{"a":{"b":1},"b":{"a":[{"a":null},{"a":true}]}}"#, None),
            (r#"{"a":1,"a":1}"#, Some("a")),
            (r#"[0,{"x":{"path":"/a","p\u0061th":"/b"}}]"#, Some("path")),
            (r#"{"a":1,"b":2.5,"c":-1,"c":"x","a":0}"#, Some("c")),
        ] {
            let found = repeated_member(raw).expect(raw);
            assert_eq!(found.as_deref(), name, "{raw}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        for raw in ["", "{", "{} {}", &"[".repeat(200)] {
            repeated_member(raw).expect_err(raw);
        }
    }
}
