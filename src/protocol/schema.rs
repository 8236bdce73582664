//! JSON Schema checks of arguments and results, with bounds on what a stranger's schema can cost.
//!
//! Dialects: 2020-12 where `$schema` is absent (Spec: 2025-11-25 basic/index, JSON Schema Usage), else what it
//! names: 2020-12, 2019-09, draft-07, draft-06, draft-04. Any other dialect is an error and nothing is checked,
//! rather than checked by other rules. `format` is an annotation in all of them, as in 2020-12.
//!
//! Never: a schema fetched from anywhere. A `$ref` leads into the text it stands in, or to a meta-schema.
//!
//! A pattern runs in time linear in the text. One that the engine does not know (look-around,
//! back-references), or that is too big, is left out, so that what it might have allowed passes; where leaving
//! it out could refuse something (`not`, `oneOf`, `if`, `maxContains` are about), the schema is unusable.
//!
//! Numbers are compared as `serde_json` holds them: integers of 64 bits exactly, all others as the nearest
//! double. `1` and `1.0` are equal; integers from 2^64 on are integers, but may equal a neighbour.
//!
//! | what could explode | bound |
//! |---|---|
//! | the text | `tool_schema_bytes_max`, `json_depth_max` |
//! | visits and nested calls for one value | `VISITS_MAX`, `CHAIN_MAX` (survey.rs), before compiling |
//! | ways through base URIs | `RESOURCES_MAX` (survey.rs), before compiling |
//! | patterns | `PATTERN_BYTES_MAX` each, `PATTERNS_BYTES_MAX` together |
//! | nested calls in all | `CALLS_MAX`, from the depth of the value |
//! | looks at the value, text matched | `STEPS_MAX`, `WORK_MAX` (a value that takes more passes unchecked) |
//! | explaining a mismatch | `EXPLAIN_STEPS_MAX`, `LINES_MAX`, `LINE_BYTES_MAX` |

mod metered;
mod patterns;
mod survey;
mod words;

use std::fmt;

use jsonschema::{Draft, Validator};
use serde_json::Value;

use self::metered::{Meter, Metered, Seen};
use self::patterns::Weights;
use self::survey::{Cost, survey};
use crate::codec::scan::validate;
use crate::limits::Limits;
use crate::secret::Quoted;

/// Nested calls for one value: the longest chain of keywords times the depth of the value. In a build without
/// optimisation a call takes up to some four KiB of stack.
const CALLS_MAX: usize = 384;

/// Looks at a value in one check; a message of 16 MiB full of small values takes fewer.
const STEPS_MAX: u64 = 1 << 25;

/// Text matched in one check, in units of some ten nanoseconds: 4 MiB against a pattern of the size of
/// an e-mail address, at the engine's worst.
const WORK_MAX: u64 = 1 << 25;

/// Looks for the sake of saying what is wrong.
const EXPLAIN_STEPS_MAX: u64 = 1 << 16;

/// Lines of what is wrong.
pub const LINES_MAX: usize = 8;

/// Levels `serde_json` reads.
const READER_DEPTH_MAX: usize = 127;

/// Why a schema checks nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaError {
    /// It is longer than the limit. Unit: bytes.
    TooLong {
        /// Its length.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// It is no JSON, too deep, or holds a number beyond a double.
    Unreadable(String),
    /// It is written in a dialect we do not know.
    Dialect(String),
    /// A `$ref` leads back to itself without going into the value.
    Loop,
    /// One value would take too many visits.
    TooMuchWork,
    /// Too many schemas in it have a base URI of their own.
    TooManyResources {
        /// How many.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// A pattern cannot be used, and what it says cannot be left out.
    Pattern(String),
    /// It breaks the rules of its dialect, or refers to something that is not there.
    Invalid(String),
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { found, limit } => {
                write!(f, "schema too large: {found} bytes, limit {limit}")
            }
            Self::Unreadable(why) => write!(f, "schema cannot be read: {why}"),
            Self::Dialect(uri) => write!(f, "schema dialect {} is not supported", Quoted(uri)),
            Self::Loop => f.write_str("schema refers to itself without end"),
            Self::TooMuchWork => write!(
                f,
                "schema takes too much work: more than {} visits or {} nested references for one value",
                survey::VISITS_MAX,
                survey::CHAIN_MAX
            ),
            Self::TooManyResources { found, limit } => write!(
                f,
                "schema holds {found} schemas with an id of their own, limit {limit}"
            ),
            Self::Pattern(pattern) => write!(f, "pattern {} cannot be used", Quoted(pattern)),
            Self::Invalid(why) => write!(f, "schema is invalid: {why}"),
        }
    }
}

impl std::error::Error for SchemaError {}

/// What [`Schema::judge`] finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// The value fits.
    Fits,
    /// It does not.
    Differs,
    /// It was not checked to the end: why.
    Unknown(String),
}

/// A compiled schema. Compiling takes up to milliseconds and the result some ten times the text's size: do it
/// when something is to be checked, and keep it.
pub struct Schema {
    validator: Validator<Metered>,
    cost: Cost,
    weights: Weights,
    depth_max: usize,
    note: Option<String>,
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema").field("cost", &self.cost).finish()
    }
}

impl Schema {
    /// Compiles a raw schema: an object, `true` or `false`.
    ///
    /// # Errors
    /// Why nothing can be checked against it. The tool it belongs to stays usable.
    pub fn compile(raw: &str, limits: &Limits) -> Result<Self, SchemaError> {
        Self::compile_with(raw, limits, |options| options.offline())
    }

    fn compile_with(
        raw: &str,
        limits: &Limits,
        retriever: impl FnOnce(Options) -> Options,
    ) -> Result<Self, SchemaError> {
        if raw.len() > limits.tool_schema_bytes_max {
            return Err(SchemaError::TooLong {
                found: raw.len(),
                limit: limits.tool_schema_bytes_max,
            });
        }
        let unreadable = |why: &dyn fmt::Display| SchemaError::Unreadable(why.to_string());
        let depth_max = limits.json_depth_max.min(READER_DEPTH_MAX);
        validate(raw.as_bytes(), depth_max).map_err(|error| unreadable(&error))?;
        let mut schema: Value = serde_json::from_str(raw).map_err(|error| unreadable(&error))?;
        let draft = dialect(&schema)?;
        let (weights, note) = patterns::tame(&mut schema, draft)?;
        let cost = survey(&schema)?;
        let options = retriever(options(draft, patterns::PATTERN_BYTES_MAX));
        let validator = options.build(&schema).map_err(|error| {
            let text = error.masked_with("the value").to_string();
            let at = error.instance_path().as_str();
            SchemaError::Invalid(words::line(at, &text))
        })?;
        Ok(Self {
            validator,
            cost,
            weights,
            depth_max,
            note,
        })
    }

    /// What of the schema is not checked, as one line; `None` when all of it is.
    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Checks a raw JSON value. One that would take more work than is bounded passes, which is logged.
    ///
    /// # Errors
    /// What is wrong with it: at most [`LINES_MAX`] lines `path: what`, the path a JSON pointer or `(root)`,
    /// text of peers escaped and cut. Also when it is nested too deeply to be checked.
    pub fn check(&self, instance_raw: &str) -> Result<(), Vec<String>> {
        let whole = |text: &dyn fmt::Display| vec![words::line("", &text.to_string())];
        validate(instance_raw.as_bytes(), self.depth_max).map_err(|error| whole(&error))?;
        let depth = depth_of(instance_raw.as_bytes());
        let depth_max = (CALLS_MAX / self.cost.chain.max(1)).max(1);
        if depth > depth_max {
            let text = format!("nested deeper than {depth_max} levels, which this schema allows");
            return Err(whole(&text));
        }
        let value: Value = match serde_json::from_str(instance_raw) {
            Ok(value) => value,
            Err(error) => {
                log::warn!("a value was not checked against its schema: {error}");
                return Ok(());
            }
        };
        let meter = self.meter(STEPS_MAX);
        let valid = self.validator.is_valid(Seen::new(&value, &meter));
        if !meter.lasted() {
            log::warn!("a value was not checked against its schema: too much work");
            return Ok(());
        }
        if valid {
            Ok(())
        } else {
            Err(self.explain(&value))
        }
    }

    /// Whether a raw JSON value fits, for a decision that must not be wrong: what cannot be checked, or not
    /// wholly, is neither one.
    #[must_use]
    pub fn judge(&self, instance_raw: &str) -> Judgement {
        let unknown = |why: &dyn fmt::Display| Judgement::Unknown(why.to_string());
        if let Err(error) = validate(instance_raw.as_bytes(), self.depth_max) {
            return unknown(&error);
        }
        let depth_max = (CALLS_MAX / self.cost.chain.max(1)).max(1);
        if depth_of(instance_raw.as_bytes()) > depth_max {
            let text = format!("nested deeper than {depth_max} levels, which this schema allows");
            return Judgement::Unknown(text);
        }
        let value: Value = match serde_json::from_str(instance_raw) {
            Ok(value) => value,
            Err(error) => return unknown(&error),
        };
        let meter = self.meter(STEPS_MAX);
        let valid = self.validator.is_valid(Seen::new(&value, &meter));
        match (meter.lasted(), valid) {
            (false, _) => Judgement::Unknown("it takes too much work".to_owned()),
            (true, true) => Judgement::Fits,
            (true, false) => Judgement::Differs,
        }
    }

    fn explain(&self, value: &Value) -> Vec<String> {
        let meter = self.meter(EXPLAIN_STEPS_MAX);
        let mut lines = Vec::new();
        let mut more = 0;
        for error in self.validator.iter_errors(Seen::new(value, &meter)) {
            if !meter.lasted() {
                break;
            }
            if lines.len() < LINES_MAX {
                lines.push(words::of(&error, value));
            } else {
                more += 1;
            }
        }
        if !meter.lasted() || lines.is_empty() {
            return vec![words::line(
                "",
                "does not match the schema, in more ways than can be listed",
            )];
        }
        if more > 0 {
            lines.pop();
            lines.push(words::line("", &format!("and {} more", more + 1)));
        }
        lines
    }

    const fn meter(&self, steps: u64) -> Meter {
        Meter::new(steps, WORK_MAX, self.weights.text, self.weights.names)
    }
}

type Options =
    jsonschema::ValidationOptions<'static, std::sync::Arc<dyn jsonschema::Retrieve>, Metered>;

/// How schemas are compiled here.
fn options(draft: Draft, pattern_bytes_max: usize) -> Options {
    let engine = jsonschema::PatternOptions::regex()
        .size_limit(pattern_bytes_max)
        .dfa_size_limit(pattern_bytes_max);
    jsonschema::options_for::<Metered>()
        .with_draft(draft)
        .offline()
        .should_validate_formats(false)
        .with_pattern_options(engine)
}

/// The dialect a schema is written in.
fn dialect(schema: &Value) -> Result<Draft, SchemaError> {
    match schema.get("$schema") {
        None => Ok(Draft::Draft202012),
        Some(Value::String(uri)) => {
            let draft = Draft::from_schema_uri(uri);
            if draft == Draft::Unknown {
                return Err(SchemaError::Dialect(uri.clone()));
            }
            Ok(draft)
        }
        Some(other) => Err(SchemaError::Dialect(other.to_string())),
    }
}

/// Levels of arrays and objects in a valid text.
fn depth_of(raw: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut most = 0;
    let mut in_string = false;
    let mut escaped = false;
    for &byte in raw {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                most = most.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    most
}

#[cfg(test)]
mod tests;
