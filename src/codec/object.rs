//! Typed reading of a peer's JSON objects.

use serde::Deserialize;
use serde::de::Error;

/// Reads a raw JSON value that must be an object into `T`. A derived reader alone would also take an array,
/// member by member in order, so that `[null,true]` could mean what nobody said.
///
/// # Errors
/// When it is no object, or not one that `T` can be.
pub fn from_object<'a, T: Deserialize<'a>>(raw: &'a str) -> Result<T, serde_json::Error> {
    if raw.trim_start().starts_with('{') {
        serde_json::from_str(raw)
    } else {
        Err(serde_json::Error::custom("an object is expected"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Pair {
        a: Option<u8>,
        b: bool,
    }

    #[test]
    fn an_array_is_no_object() {
        let pair: Pair = from_object(r#" {"a":1,"b":true}"#).expect("an object");
        assert_eq!((pair.a, pair.b), (Some(1), true));
        for raw in ["[1,true]", "null", "1", "\"{}\"", ""] {
            from_object::<Pair>(raw).expect_err(raw);
        }
    }
}
