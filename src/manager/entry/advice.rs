//! What `doctor` says beside the issues of reading: nothing here keeps a server from working.

use serde_json::Value;

use super::Issue;
use super::object;
use crate::diagnostic::Level;
use crate::secret::{Quoted, is_secret_name};

/// Secrets that stand in an entry in clear, where `${NAME}` could name a variable. OpenClaw: doctor.
#[must_use]
pub fn literal_secrets(raw: &str) -> Vec<Issue> {
    let Ok(entry) = object(raw) else {
        return Vec::new();
    };
    let mut issues = Vec::new();
    for member in ["headers", "env"] {
        let values = entry.get(member).and_then(Value::as_object);
        for (name, value) in values.into_iter().flatten() {
            if is_secret_name(name) && is_literal(value) {
                issues.push(Issue {
                    level: Level::Warning,
                    message: format!(
                        "{member}.{} holds a secret in clear: write ${{NAME}} and set that variable",
                        Quoted(name)
                    ),
                });
            }
        }
    }
    issues
}

/// Whether a value is there and stands for itself: no `$` in front.
#[must_use]
pub fn is_literal(value: &Value) -> bool {
    let text = value.as_str().unwrap_or("").trim();
    let scheme = text.split_once(' ').map_or(text, |(_, rest)| rest);
    !text.is_empty() && !text.starts_with('$') && !scheme.trim_start().starts_with("${")
}
