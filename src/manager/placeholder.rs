//! `${NAME}` in the strings of an entry.
//!
//! `NAME` is `[A-Z_][A-Z0-9_]*`; `$${NAME}` stands for the text `${NAME}`; everything else stays as it is.
//! OpenClaw: resolveConfigEnvVars. Two changes: a variable that is not set, or empty, stops that server and
//! no other; and what other programs write is read too: `${NAME:-default}` of Claude Code, `${env:NAME}`
//! of VS Code and Cursor. `${input:…}` of VS Code is always missing: its text must not be sent.

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
        if let Some(escaped) = rest.strip_prefix('$').and_then(Placeholder::at_start) {
            out.push_str(&rest[1..=escaped.len]);
            rest = &rest[1 + escaped.len..];
        } else if let Some(found) = Placeholder::at_start(rest) {
            let value = env.get(found.name).filter(|value| !value.is_empty());
            match value.map(String::as_str).or(found.default) {
                Some(value) => out.push_str(value),
                None => {
                    missing(found.name);
                    out.push_str(&rest[..found.len]);
                }
            }
            rest = &rest[found.len..];
        } else {
            out.push('$');
            rest = &rest[1..];
        }
    }
    out.push_str(rest);
    out
}

/// Text that [`expand_text`] turns back into `text`: for entries of programs without placeholders.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if Placeholder::at_start(rest).is_some() {
            out.push('$');
        }
        out.push('$');
        rest = &rest[1..];
    }
    out.push_str(rest);
    out
}

/// What stands between `${` and `}`.
struct Placeholder<'a> {
    /// The variable; `input:…` for what no variable can give.
    name: &'a str,
    default: Option<&'a str>,
    /// Of the whole placeholder. Unit: bytes.
    len: usize,
}

impl<'a> Placeholder<'a> {
    fn at_start(text: &'a str) -> Option<Self> {
        let (inner, _) = text.strip_prefix("${")?.split_once('}')?;
        let (name, default) = match inner.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inner, None),
        };
        let known = is_name(name) || (default.is_none() && is_input(name));
        let elsewhere = inner.strip_prefix("env:").filter(|name| is_any_name(name));
        let len = inner.len() + 3;
        match elsewhere {
            Some(name) => Some(Self {
                name,
                default: None,
                len,
            }),
            None => known.then_some(Self { name, default, len }),
        }
    }
}

fn is_name(name: &str) -> bool {
    is_any_name(name) && !name.bytes().any(|b| b.is_ascii_lowercase())
}

fn is_any_name(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let mut bytes = name.bytes();
    bytes.next().is_some_and(letter) && bytes.all(|b| letter(b) || b.is_ascii_digit())
}

/// `${input:…}` of VS Code: a question to a person who is not there.
#[must_use]
pub fn is_input(name: &str) -> bool {
    name.strip_prefix("input:").is_some_and(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_programs_placeholders_are_read() {
        let env = [
            ("A".to_owned(), "a".to_owned()),
            ("low".to_owned(), "l".to_owned()),
        ]
        .into();
        let rows = [
            ("${A:-x} ${B:-x y} ${B:-}", "a x y ", ""),
            ("${env:A}${env:low}", "al", ""),
            ("${env:}${a:-b}${A-b}", "${env:}${a:-b}${A-b}", ""),
            ("${input:key}", "${input:key}", "input:key"),
            ("${env:NONE}", "${env:NONE}", "NONE"),
        ];
        for (text, expected, lacks) in rows {
            let mut missing = String::new();
            let expanded = expand_text(text, &env, |name| missing.push_str(name));
            assert_eq!(
                (expanded.as_str(), missing.as_str()),
                (expected, lacks),
                "{text}"
            );
            let escaped = escape(text);
            assert_eq!(expand_text(&escaped, &env, |name| panic!("{name}")), text);
        }
    }

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
