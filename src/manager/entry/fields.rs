//! Members of one entry, read with notes on what cannot be used.

use serde_json::{Map, Value};

use super::Issue;
use crate::diagnostic::Level;

/// The members, and what there is to say of them. `null` counts as absent everywhere.
pub(super) struct Fields<'a> {
    members: &'a Map<String, Value>,
    errors: Vec<Issue>,
    issues: Vec<Issue>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(members: &'a Map<String, Value>) -> Self {
        Self {
            members,
            errors: Vec::new(),
            issues: Vec::new(),
        }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        self.members.iter()
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    /// Something is left out; the server starts.
    pub(super) fn warn(&mut self, message: impl Into<String>) {
        self.issues.push(Issue {
            level: Level::Warning,
            message: message.into(),
        });
    }

    /// The server does not start.
    pub(super) fn fail(&mut self, message: impl Into<String>) {
        self.errors.push(Issue {
            level: Level::Error,
            message: message.into(),
        });
    }

    pub(super) fn failed(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Errors, and the rest.
    pub(super) fn into_issues(self) -> (Vec<Issue>, Vec<Issue>) {
        (self.errors, self.issues)
    }

    /// Trimmed text; a blank one is absent. OpenClaw: blank is as good as nothing in every text member.
    pub(super) fn text(&mut self, name: &str) -> Option<&'a str> {
        let value = self.get(name)?;
        let Some(text) = value.as_str() else {
            self.ignore(name, "a string", value);
            return None;
        };
        Some(text.trim()).filter(|text| !text.is_empty())
    }

    pub(super) fn flag(&mut self, name: &str) -> Option<bool> {
        let value = self.get(name)?;
        let flag = value.as_bool();
        if flag.is_none() {
            self.ignore(name, "true or false", value);
        }
        flag
    }

    /// A finite number above 0.
    pub(super) fn positive(&mut self, name: &str) -> Option<f64> {
        let value = self.get(name)?;
        match value.as_f64().filter(|n| n.is_finite() && *n > 0.0) {
            Some(number) => Some(number),
            None => {
                self.ignore(name, "a number above 0", value);
                None
            }
        }
    }

    /// A whole number of at least `least`, which is 0 or 1.
    pub(super) fn whole(&mut self, name: &str, least: u64) -> Option<u64> {
        let value = self.get(name)?;
        match value.as_u64().filter(|n| *n >= least) {
            Some(number) => Some(number),
            None => {
                let must = match least {
                    0 => "a whole number",
                    _ => "a whole number above 0",
                };
                self.ignore(name, must, value);
                None
            }
        }
    }

    /// One of a few words, without case and blanks around it.
    pub(super) fn word<T>(
        &mut self,
        name: &str,
        must: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(name)?;
        let text = value.as_str().map(|text| text.trim().to_ascii_lowercase());
        let word = text.as_deref().and_then(read);
        if word.is_none() {
            self.ignore(name, must, value);
        }
        word
    }

    /// The strings of a list; members that are none are left out. OpenClaw: toMcpStringArray.
    pub(super) fn strings(&mut self, name: &str, items: &'a [Value]) -> Vec<String> {
        let mut strings = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            match item.as_str() {
                Some(text) => strings.push(text.to_owned()),
                None => self.warn(format!(
                    "{name}.{i} must be a string (found {}) and was left out",
                    kind(item)
                )),
            }
        }
        strings
    }

    /// Says that a member has no effect.
    pub(super) fn ignore(&mut self, name: &str, must: &str, found: &Value) {
        let found = kind(found);
        self.warn(format!(
            "{name} must be {must} (found {found}) and was ignored"
        ));
    }
}

/// Text of a string, number or boolean. OpenClaw: such values become strings in `env` and `headers`.
pub(super) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(match number.as_f64() {
            // As JavaScript writes it: no fraction where there is none.
            Some(float) if number.is_f64() => float.to_string(),
            _ => number.to_string(),
        }),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// What a value is, in the words of an error.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.as_f64().is_some_and(|n| n <= 0.0) => "0 or less",
        Value::Number(_) => "a number",
        Value::String(text) if text.trim().is_empty() => "an empty string",
        Value::String(_) => "a string",
        Value::Array(items) if items.is_empty() => "an empty array",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
