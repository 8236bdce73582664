//! What is wrong with a value, in words a model can act on.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use crate::secret::{QUOTE_BYTES_MAX, Quoted};

/// One line. Unit: bytes of what is put in, before escapes.
pub(super) const LINE_BYTES_MAX: usize = 4 * QUOTE_BYTES_MAX;

/// Alternatives of alternatives that are looked into.
const NEAREST_DEPTH_MAX: usize = 3;

/// `path: what`, both escaped and cut.
pub(super) fn line(path: &str, what: &str) -> String {
    let mut line = match path {
        "" => String::from("(root)"),
        path => Quoted(path).to_string(),
    };
    line.push_str(": ");
    let mut rest = what;
    let mut room = LINE_BYTES_MAX;
    while !rest.is_empty() {
        if room == 0 {
            line.push('…');
            break;
        }
        let mut cut = rest.len().min(QUOTE_BYTES_MAX);
        while !rest.is_char_boundary(cut) {
            cut -= 1;
        }
        line.push_str(&Quoted(&rest[..cut]).to_string());
        rest = &rest[cut..];
        room -= QUOTE_BYTES_MAX;
    }
    line
}

/// One mismatch of `root`, as a line.
pub(super) fn of(error: &ValidationError<'_>, root: &Value) -> String {
    let path = error.instance_path().as_str();
    line(path, &what(error, root, 0))
}

fn what(error: &ValidationError<'_>, root: &Value, depth: usize) -> String {
    use ValidationErrorKind as Kind;
    match error.kind() {
        Kind::Type { kind } => {
            let found = root.pointer(error.instance_path().as_str());
            let found = found.map_or("nothing", kind_of);
            format!("must be {} (found {found})", wanted(kind))
        }
        Kind::Required { property } => format!("required property {property} is missing"),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            format!("unexpected property {}", list(unexpected))
        }
        Kind::Enum { options } => format!("must be one of {options}"),
        Kind::Constant { expected_value } => format!("must be {expected_value}"),
        Kind::Pattern { pattern } => format!("must match the pattern {pattern}"),
        Kind::FalseSchema => "is not allowed".to_owned(),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => none_of(context, root, depth),
        Kind::OneOfMultipleValid { .. } => {
            "matches more than one alternative, and only one may match".to_owned()
        }
        Kind::AdditionalItems { limit } => format!("must have at most {limit} items"),
        Kind::BacktrackLimitExceeded { .. }
        | Kind::RegexEngineFailure { .. }
        | Kind::Contains
        | Kind::ContentEncoding { .. }
        | Kind::ContentMediaType { .. }
        | Kind::Custom { .. }
        | Kind::ExclusiveMaximum { .. }
        | Kind::ExclusiveMinimum { .. }
        | Kind::Format { .. }
        | Kind::FromUtf8 { .. }
        | Kind::MaxItems { .. }
        | Kind::Maximum { .. }
        | Kind::MaxLength { .. }
        | Kind::MaxProperties { .. }
        | Kind::MinItems { .. }
        | Kind::Minimum { .. }
        | Kind::MinLength { .. }
        | Kind::MinProperties { .. }
        | Kind::MultipleOf { .. }
        | Kind::Not { .. }
        | Kind::PropertyNames { .. }
        | Kind::UnevaluatedItems { .. }
        | Kind::UniqueItems
        | Kind::Referencing(_) => error.masked_with("value").to_string(),
    }
}

/// No alternative matches: what the nearest one lacks, the one with the fewest faults.
fn none_of(alternatives: &[Vec<ValidationError<'_>>], root: &Value, depth: usize) -> String {
    let count = alternatives.len();
    let nearest = alternatives
        .iter()
        .filter(|faults| !faults.is_empty())
        .min_by_key(|faults| {
            let deepest = faults
                .iter()
                .map(|fault| fault.instance_path().as_str().len());
            (faults.len(), std::cmp::Reverse(deepest.max()))
        });
    match nearest.and_then(|faults| faults.first()) {
        Some(fault) if depth < NEAREST_DEPTH_MAX => format!(
            "matches none of {count} alternatives; the nearest one: {}: {}",
            match fault.instance_path().as_str() {
                "" => "(root)",
                path => path,
            },
            what(fault, root, depth + 1)
        ),
        Some(_) | None => format!("matches none of {count} alternatives"),
    }
}

fn wanted(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => one.to_string(),
        TypeKind::Multiple(several) => {
            let names: Vec<String> = several
                .iter()
                .map(|one: JsonType| one.to_string())
                .collect();
            names.join(" or ")
        }
    }
}

const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn list(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    quoted.join(", ")
}
