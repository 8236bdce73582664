//! `${NAME}` in the strings of an entry.
//!
//! `NAME` is `[A-Z_][A-Z0-9_]*`; `$${NAME}` stands for the text `${NAME}`; everything else stays as it is.
//! OpenClaw: resolveConfigEnvVars, with one change: a variable that is not set, or empty, stops that
//! server and no other.

use std::collections::BTreeMap;

use serde_json::Value;

/// A variable that is not set or empty, and where it is asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Missing {
    /// The keys that lead to the string, joined by dots.
    pub path: String,
    /// The variable.
    pub name: String,
}

/// Expands every string below `value`. Where a variable is missing the placeholder stays, and `missing`
/// says so.
pub fn expand(
    value: &mut Value,
    path: &str,
    env: &BTreeMap<String, String>,
    missing: &mut Vec<Missing>,
) {
    match value {
        Value::String(text) => {
            if text.contains('$') {
                *text = expand_text(text, env, |name| {
                    missing.push(Missing {
                        path: path.to_owned(),
                        name: name.to_owned(),
                    });
                });
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                expand(item, &format!("{path}.{i}"), env, missing);
            }
        }
        Value::Object(members) => {
            for (name, member) in members.iter_mut() {
                let path = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                expand(member, &path, env, missing);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Expands one text; `missing` is told each variable that is not set or empty.
pub fn expand_text(
    text: &str,
    env: &BTreeMap<String, String>,
    mut missing: impl FnMut(&str),
) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some((_, len)) = rest.strip_prefix('$').and_then(placeholder) {
            out.push_str(&rest[1..=len]);
            rest = &rest[1 + len..];
        } else if let Some((name, len)) = placeholder(rest) {
            match env.get(name).filter(|value| !value.is_empty()) {
                Some(value) => out.push_str(value),
                None => {
                    missing(name);
                    out.push_str(&rest[..len]);
                }
            }
            rest = &rest[len..];
        } else {
            out.push('$');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    out
}

/// The name and length of a placeholder at the start of `text`.
fn placeholder(text: &str) -> Option<(&str, usize)> {
    let (name, _) = text.strip_prefix("${")?.split_once('}')?;
    is_name(name).then_some((name, name.len() + 3))
}

/// Whether a placeholder can name this variable.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let upper = |b: u8| b.is_ascii_uppercase() || b == b'_';
    let mut bytes = name.bytes();
    bytes.next().is_some_and(upper) && bytes.all(|b| upper(b) || b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_entries_are_expanded() {
        let env: BTreeMap<String, String> = [("A", "a${B}"), ("B", "b"), ("E", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let mut value = serde_json::json!({
            "args": ["${A}", "$${A}", "$$$${A}", "${a} ${} ${A", 5],
            "headers": {"X": "${E}-${NONE}"},
        });
        let mut missing = Vec::new();

        expand(&mut value, "", &env, &mut missing);

        let expected = serde_json::json!({
            "args": ["a${B}", "${A}", "$$${A}", "${a} ${} ${A", 5],
            "headers": {"X": "${E}-${NONE}"},
        });
        assert_eq!(
            value, expected,
            "what comes out of a variable is not expanded again"
        );
        let missing: Vec<(&str, &str)> = missing
            .iter()
            .map(|m| (m.path.as_str(), m.name.as_str()))
            .collect();
        assert_eq!(missing, [("headers.X", "E"), ("headers.X", "NONE")]);
    }
}
