//! The patterns of a schema, tried one by one before it is compiled: those that cannot be used are taken out,
//! and the others are weighed.

use std::collections::BTreeMap;

use jsonschema::Draft;
use serde_json::{Map, Value, json};

use super::survey::each_schema;
use super::{SchemaError, options};
use crate::secret::Quoted;

/// A compiled pattern. Unit: bytes.
pub(super) const PATTERN_BYTES_MAX: usize = 1 << 20;

/// All compiled patterns of a schema. Unit: bytes, each pattern counted as the next of [`SIZES`].
const PATTERNS_BYTES_MAX: usize = 4 << 20;

/// Sizes by which patterns are weighed.
const SIZES: [usize; 3] = [1 << 12, 1 << 16, PATTERN_BYTES_MAX];

/// Patterns that cannot be used and are tried all the same; finding out takes milliseconds.
const FAILURES_MAX: usize = 32;

/// A pattern's text; a longer one is not tried.
const PATTERN_TEXT_BYTES_MAX: usize = 8 * 1024;

/// What a schema's patterns weigh. Unit: bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weights {
    /// The heaviest of those for strings.
    pub(super) text: u64,
    /// All of those for names.
    pub(super) names: u64,
}

/// Takes the patterns out that cannot be used. Gives what the others weigh, and one line that names what was
/// taken out.
///
/// A name that a lost pattern might have allowed must not be refused for it: any name passes in its place.
///
/// # Errors
/// When one cannot be used and the schema has keywords under which a check that is left out refuses more.
pub(super) fn tame(
    schema: &mut Value,
    draft: Draft,
) -> Result<(Weights, Option<String>), SchemaError> {
    let mut scales = Scales::default();
    let mut weights = Weights::default();
    let mut delicate = false;
    each_schema(schema, &mut |map| {
        delicate |= ["not", "oneOf", "if", "maxContains"]
            .iter()
            .any(|keyword| map.contains_key(*keyword));
        if let Some(Value::String(pattern)) = map.get("pattern") {
            weights.text = weights.text.max(scales.weigh(pattern, draft).unwrap_or(0));
        }
        for pattern in names_of(map) {
            let weight = scales.weigh(pattern, draft).unwrap_or(0);
            weights.names = weights.names.saturating_add(weight);
        }
    });
    let lost: Vec<&String> = scales.lost().collect();
    let Some(first) = lost.first() else {
        return Ok((weights, None));
    };
    if delicate {
        return Err(SchemaError::Pattern((*first).clone()));
    }
    each_schema(schema, &mut |map| take_out(map, &scales.seen));
    let note = match lost.len() {
        1 => format!(
            "pattern {} cannot be used and is not checked",
            Quoted(first)
        ),
        count => format!(
            "{count} patterns cannot be used and are not checked, among them {}",
            Quoted(first)
        ),
    };
    Ok((weights, Some(note)))
}

fn names_of(map: &Map<String, Value>) -> impl Iterator<Item = &String> {
    map.get("patternProperties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::keys)
}

fn take_out(map: &mut Map<String, Value>, seen: &BTreeMap<String, Option<u64>>) {
    let lost = |pattern: &str| seen.get(pattern) == Some(&None);
    if map.get("pattern").and_then(Value::as_str).is_some_and(lost) {
        map.remove("pattern");
    }
    if let Some(Value::Object(names)) = map.get_mut("patternProperties") {
        let before = names.len();
        names.retain(|pattern, _| !lost(pattern));
        if names.len() < before {
            names.entry("").or_insert(Value::Bool(true));
        }
    }
}

/// Patterns seen so far, and what they weigh in bytes; `None`: they cannot be used.
#[derive(Default)]
struct Scales {
    seen: BTreeMap<String, Option<u64>>,
    failures: usize,
    bytes: usize,
}

impl Scales {
    fn weigh(&mut self, pattern: &str, draft: Draft) -> Option<u64> {
        if let Some(known) = self.seen.get(pattern) {
            return *known;
        }
        let size = self.size(pattern, draft);
        match size {
            Some(size) => self.bytes += size,
            None => self.failures += 1,
        }
        let weight = size.map(|size| u64::try_from(size).unwrap_or(u64::MAX));
        self.seen.insert(pattern.to_owned(), weight);
        weight
    }

    /// The smallest size it fits in.
    fn size(&self, pattern: &str, draft: Draft) -> Option<usize> {
        if self.failures >= FAILURES_MAX || pattern.len() > PATTERN_TEXT_BYTES_MAX {
            return None;
        }
        let schema = json!({ "pattern": pattern });
        let fits = |size: &&usize| options(draft, **size).build(&schema).is_ok();
        let left = PATTERNS_BYTES_MAX.saturating_sub(self.bytes);
        SIZES
            .iter()
            .filter(|size| **size <= left)
            .find(fits)
            .copied()
    }

    fn lost(&self) -> impl Iterator<Item = &String> {
        self.seen
            .iter()
            .filter(|(_, weight)| weight.is_none())
            .map(|(pattern, _)| pattern)
    }
}
