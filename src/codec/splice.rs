//! One member of a raw JSON object under another value; every other byte stays.

use crate::codec::scan::members;

/// `object` with `value` (raw JSON) as its member `key`: in the place of the one it has, else as the last.
/// `key` needs no escapes. What is no object is given back as it is.
#[must_use]
pub fn with_member(object: &str, key: &str, value: &str) -> String {
    let old = members(object)
        .filter(|(name, _)| name.is(key))
        .map(|(_, value)| value)
        .last();
    let mut spliced = String::with_capacity(object.len() + key.len() + value.len() + 4);
    if let Some(old) = old {
        let from = (old.as_ptr() as usize).saturating_sub(object.as_ptr() as usize);
        spliced.push_str(&object[..from]);
        spliced.push_str(value);
        spliced.push_str(&object[from + old.len()..]);
        return spliced;
    }
    let Some(open) = object.trim_end().strip_suffix('}') else {
        return object.to_owned();
    };
    spliced.push_str(open);
    if members(object).next().is_some() {
        spliced.push(',');
    }
    spliced.push_str(&format!("\"{key}\":{value}}}"));
    spliced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_member_changes_and_nothing_else() {
        for (object, expected) in [
            (
                r#"{ "x":{"k":1}, "k" : "a" , "n":1.0 }"#,
                r#"{ "x":{"k":1}, "k" : 2 , "n":1.0 }"#,
            ),
            (r#"{"\u006b":null}"#, r#"{"\u006b":2}"#),
            (r#"{"n":1e2 }"#, r#"{"n":1e2 ,"k":2}"#),
            ("{}", r#"{"k":2}"#),
            (" { } ", r#" { "k":2}"#),
            ("[]", "[]"),
        ] {
            assert_eq!(with_member(object, "k", "2"), expected, "{object}");
        }
    }
}
