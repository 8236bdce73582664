//! What a client may have declared, and the error when it has not.

use crate::codec::scan::Text;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::member;

/// Name of the tasks extension.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// Something a client can do for a server. Spec: 2026-07-28 schema (ClientCapabilities).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Show a form to a person.
    ElicitationForm,
    /// Open a page for a person.
    ElicitationUrl,
    /// Ask its model.
    Sampling,
    /// Ask its model, with tools.
    SamplingTools,
    /// Name its roots.
    Roots,
    /// Take a task in place of a result.
    Tasks,
}

impl Feature {
    /// What a client must have declared to be asked this; `None` for a method that is no question.
    #[must_use]
    pub fn needed_by(method: &str, params: &str) -> Option<Self> {
        let has = |name| member(params, name).is_some();
        Some(match method {
            "elicitation/create" => {
                let mode = member(params, "mode").and_then(Text::of_value);
                match mode.is_some_and(|mode| mode.is("url")) {
                    true => Self::ElicitationUrl,
                    false => Self::ElicitationForm,
                }
            }
            "sampling/createMessage" if has("tools") || has("toolChoice") => Self::SamplingTools,
            "sampling/createMessage" => Self::Sampling,
            "roots/list" => Self::Roots,
            _ => return None,
        })
    }

    /// The capability as a person would name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ElicitationForm => "elicitation",
            Self::ElicitationUrl => "elicitation.url",
            Self::Sampling => "sampling",
            Self::SamplingTools => "sampling.tools",
            Self::Roots => "roots",
            Self::Tasks => "extensions[\"io.modelcontextprotocol/tasks\"]",
        }
    }

    /// The capabilities object that declares it and nothing else.
    const fn required(self) -> &'static str {
        match self {
            Self::ElicitationForm => r#"{"elicitation":{}}"#,
            Self::ElicitationUrl => r#"{"elicitation":{"url":{}}}"#,
            Self::Sampling => r#"{"sampling":{}}"#,
            Self::SamplingTools => r#"{"sampling":{"tools":{}}}"#,
            Self::Roots => r#"{"roots":{}}"#,
            Self::Tasks => r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
        }
    }

    /// The error of the stateless era for a client that did not declare it: -32021.
    #[must_use]
    pub fn missing(self) -> RpcError {
        RpcError {
            code: ErrorCode::MissingClientCapability,
            message: format!("the client did not declare the capability {}", self.name()),
            data: Some(format!(r#"{{"requiredCapabilities":{}}}"#, self.required())),
        }
    }
}

/// Whether a raw capabilities object declares a feature.
#[must_use]
pub fn declares(capabilities: &str, feature: Feature) -> bool {
    let object = |of, name| member(of, name).filter(|raw| raw.starts_with('{'));
    let top = |name| object(capabilities, name);
    match feature {
        // Before 2025-11-25 there was one mode and no name for it. Spec: 2025-11-25 client/elicitation
        // (Capabilities): an empty object is the form mode.
        Feature::ElicitationForm => top("elicitation")
            .is_some_and(|raw| object(raw, "form").is_some() || object(raw, "url").is_none()),
        Feature::ElicitationUrl => top("elicitation")
            .and_then(|raw| object(raw, "url"))
            .is_some(),
        Feature::Sampling => top("sampling").is_some(),
        Feature::SamplingTools => top("sampling")
            .and_then(|raw| object(raw, "tools"))
            .is_some(),
        Feature::Roots => top("roots").is_some(),
        Feature::Tasks => top("extensions")
            .and_then(|raw| object(raw, TASKS_EXTENSION))
            .is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_as_their_revisions_mean_them() {
        use Feature::*;
        let cases: [(&str, &[Feature]); 8] = [
            ("{}", &[]),
            (r#"{"sampling":true,"roots":null}"#, &[]),
            (r#"{"elicitation":{}}"#, &[ElicitationForm]),
            (r#"{"elicitation":{"form":{}}}"#, &[ElicitationForm]),
            (r#"{"elicitation":{"url":{}}}"#, &[ElicitationUrl]),
            (
                r#"{"elicitation":{"url":{},"form":{}}}"#,
                &[ElicitationForm, ElicitationUrl],
            ),
            (
                r#"{"sampling":{"tools":{}},"roots":{"listChanged":true}}"#,
                &[Sampling, SamplingTools, Roots],
            ),
            (
                r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
                &[Tasks],
            ),
        ];
        let all = [
            ElicitationForm,
            ElicitationUrl,
            Sampling,
            SamplingTools,
            Roots,
            Tasks,
        ];
        for (raw, wanted) in cases {
            let found: Vec<Feature> = all
                .into_iter()
                .filter(|feature| declares(raw, *feature))
                .collect();
            assert_eq!(found, wanted, "{raw}");
        }
        for feature in all {
            assert!(
                declares(feature.required(), feature),
                "{feature:?} is not in what it requires"
            );
        }
    }

    #[test]
    fn the_error_says_what_to_declare() {
        let error = Feature::Sampling.missing();
        assert_eq!(error.code.number(), -32021);
        assert_eq!(
            error.data.as_deref(),
            Some(r#"{"requiredCapabilities":{"sampling":{}}}"#)
        );
    }
}
