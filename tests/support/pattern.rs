//! What the patterns of a transcript mean; `protocol-fixtures/README.md` lists them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The values that `$bind:` has met in one transcript.
#[derive(Default)]
pub struct Bindings(BTreeMap<String, Value>);

impl Bindings {
    /// Compares what was received with what was expected; an error says where they differ.
    pub fn check(&mut self, wanted: &Value, text: &str) -> Result<(), String> {
        let got: Value = serde_json::from_str(text).map_err(|_| format!("no JSON: {text}"))?;
        self.value("", wanted, &got)
            .map_err(|why| format!("{why}\n  in {text}"))
    }

    /// Puts the values of bound names, in quotes, into a text that is to be sent.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        let text = self.0.iter().fold(text.to_owned(), |text, (name, value)| {
            text.replace(&format!("\"{name}\""), &value.to_string())
        });
        match text.split_once("\"$bind:") {
            None => Ok(text),
            Some((_, rest)) => {
                let name = rest.split('"').next().unwrap_or("");
                Err(format!("$bind:{name} is not bound yet"))
            }
        }
    }

    fn value(&mut self, path: &str, wanted: &Value, got: &Value) -> Result<(), String> {
        match (wanted, got) {
            (Value::String(wanted), _) if wanted.starts_with('$') => {
                self.pattern(path, wanted, got)
            }
            (Value::Object(wanted), _) if wanted.contains_key("$all") => wanted["$all"]
                .as_array()
                .into_iter()
                .flatten()
                .try_for_each(|wanted| self.value(path, wanted, got)),
            (Value::Object(wanted), Value::Object(got)) => self.members(path, wanted, got),
            (Value::Array(wanted), Value::Array(got)) if wanted.len() == got.len() => {
                let pairs = wanted.iter().zip(got).enumerate();
                pairs.into_iter().try_for_each(|(i, (wanted, got))| {
                    self.value(&format!("{path}[{i}]"), wanted, got)
                })
            }
            (wanted, got) if wanted == got => Ok(()),
            (wanted, got) => Err(format!("{path}: expected {wanted}, got {got}")),
        }
    }

    fn pattern(&mut self, path: &str, wanted: &str, got: &Value) -> Result<(), String> {
        let text = got.as_str();
        let (kind, rest) = wanted.split_once(':').unwrap_or((wanted, ""));
        let fits = match kind {
            "$any" => true,
            "$bind" => {
                let known = self.0.entry(wanted.to_owned());
                known.or_insert_with(|| got.clone()) == got
            }
            "$starts" => text.is_some_and(|text| text.starts_with(rest)),
            "$has" => text.is_some_and(|text| text.contains(rest)),
            _ => text == Some(wanted),
        };
        if fits {
            return Ok(());
        }
        let bound = self.0.get(wanted);
        let bound = bound.map_or_else(String::new, |value| format!(" ({value})"));
        Err(format!("{path}: expected {wanted:?}{bound}, got {got}"))
    }

    fn members(
        &mut self,
        path: &str,
        wanted: &Map<String, Value>,
        got: &Map<String, Value>,
    ) -> Result<(), String> {
        let more = wanted.get("$more") == Some(&Value::Bool(true));
        for (name, wanted) in wanted.iter().filter(|(name, _)| *name != "$more") {
            let path = match path {
                "" => name.clone(),
                path => format!("{path}.{name}"),
            };
            let got = got.get(name).ok_or_else(|| format!("{path}: is missing"))?;
            self.value(&path, wanted, got)?;
        }
        match got.keys().find(|name| !more && !wanted.contains_key(*name)) {
            Some(name) => Err(format!("{path}: nobody expected member {name}")),
            None => Ok(()),
        }
    }
}
