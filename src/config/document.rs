//! A configuration file with its members in the order of the file.

use std::fmt;

use serde::Serialize;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;

/// Levels of a file. A `.mcp.json` comes with a folder that somebody else may have made.
const DEPTH_MAX: usize = 64;

/// A value of a file. Members that are there twice are kept; whoever reads them decides.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Document {
    Object(Vec<(String, Self)>),
    Array(Vec<Self>),
    /// Text, number, truth value, or null.
    Scalar(Value),
}

impl Document {
    /// The last member of that name: it counts, as in JavaScript.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let members = self.members()?;
        let mut named = members.iter().rev().filter(|(other, _)| other == name);
        named.next().map(|(_, value)| value)
    }

    pub(super) fn members(&self) -> Option<&[(String, Self)]> {
        match self {
            Self::Object(members) => Some(members),
            Self::Array(_) | Self::Scalar(_) => None,
        }
    }

    pub(super) const fn is_null(&self) -> bool {
        matches!(self, Self::Scalar(Value::Null))
    }

    /// JSON, members in order.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "null".to_owned())
    }

    /// Without the order.
    pub(super) fn value(&self) -> Value {
        match self {
            Self::Object(members) => {
                let members = members.iter();
                members
                    .map(|(name, value)| (name.clone(), value.value()))
                    .collect()
            }
            Self::Array(items) => items.iter().map(Self::value).collect(),
            Self::Scalar(value) => value.clone(),
        }
    }

    /// Applies `change` to every text below.
    pub(super) fn each_text(&mut self, change: &impl Fn(&str) -> Option<String>) {
        match self {
            Self::Object(members) => members.iter_mut().for_each(|(_, v)| v.each_text(change)),
            Self::Array(items) => items.iter_mut().for_each(|item| item.each_text(change)),
            Self::Scalar(value) => {
                if let Some(text) = value.as_str().and_then(change) {
                    *value = Value::String(text);
                }
            }
        }
    }
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
            Self::Array(items) => serializer.collect_seq(items),
            Self::Scalar(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Reader { depth: 0 }.deserialize(deserializer)
    }
}

/// Reads one value that stands `depth` levels deep.
#[derive(Clone, Copy)]
struct Reader {
    depth: usize,
}

impl Reader {
    fn below<E: Error>(self) -> Result<Self, E> {
        let depth = self.depth + 1;
        if depth > DEPTH_MAX {
            return Err(E::custom(format!(
                "more than {DEPTH_MAX} levels of arrays and objects"
            )));
        }
        Ok(Self { depth })
    }
}

impl<'de> DeserializeSeed<'de> for Reader {
    type Value = Document;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Document, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Ok(Document::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    /// `Infinity` and `NaN` are JSON5 and no JSON: they become null, which counts as absent.
    fn visit_f64<E>(self, value: f64) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Document, E> {
        Ok(Document::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Document, A::Error> {
        let below = self.below()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(below)? {
            array.push(item);
        }
        Ok(Document::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Document, A::Error> {
        let below = self.below()?;
        let mut object = Vec::new();
        while let Some(name) = members.next_key()? {
            object.push((name, members.next_value_seed(below)?));
        }
        Ok(Document::Object(object))
    }
}
