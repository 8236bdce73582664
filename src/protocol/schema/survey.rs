//! What a schema would cost, found out before anything is compiled: how much work and how many nested calls
//! one value may take, and references that lead nowhere but back.
//!
//! The keywords of a schema either apply to the same value (`allOf`, `$ref`, …) or to its parts (`items`,
//! `properties`, …). The first kind is what can explode without any help from the data: thirty definitions
//! that each refer twice to the next are a billion visits. Here both kinds are edges of a graph, and the
//! first kind is counted.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::SchemaError;

/// Visits one value may take from one schema, everything that applies to the same value counted.
pub(super) const VISITS_MAX: u64 = 65_536;

/// Keywords that lead from one to the next for the same value, the longest way.
pub(super) const CHAIN_MAX: usize = 256;

/// Schemas within the schema that have a base URI of their own. The validator compiles a schema once for each
/// way through these, so that `n` of them can be 2^(n/2) schemas.
pub(super) const RESOURCES_MAX: usize = 16;

/// What is counted for a reference to a schema that is not in the text: a meta-schema.
const FOREIGN_VISITS: u64 = 64;

/// What a schema may take for one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    /// Visits.
    pub(super) visits: u64,
    /// Nested calls.
    pub(super) chain: usize,
}

/// Keywords that hold schemas for the same value, in one of three shapes.
const SAME_ONE: [&str; 4] = ["not", "if", "then", "else"];
const SAME_LIST: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const SAME_MAP: [&str; 2] = ["dependentSchemas", "dependencies"];
/// Keywords that hold schemas for parts of the value, or for nothing.
const PART_ONE: [&str; 8] = [
    "additionalProperties",
    "propertyNames",
    "unevaluatedProperties",
    "additionalItems",
    "contains",
    "unevaluatedItems",
    "contentSchema",
    "items",
];
const PART_LIST: [&str; 2] = ["prefixItems", "items"];
const PART_MAP: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// Measures a schema of bounded depth.
///
/// # Errors
/// When a value would take too much, or a reference leads back to itself for the same value.
pub(super) fn survey(schema: &Value) -> Result<Cost, SchemaError> {
    let mut survey = Survey::default();
    survey.read(schema, None);
    let mut at = 0;
    while at < survey.references.len() && survey.resources.len() <= RESOURCES_MAX {
        let reference = survey.references[at].clone();
        survey.resolve(schema, &reference);
        at += 1;
    }
    if survey.resources.len() > RESOURCES_MAX {
        return Err(SchemaError::TooManyResources {
            found: survey.resources.len(),
            limit: RESOURCES_MAX,
        });
    }
    survey.measure()
}

/// Calls `visit` with every schema in `schema` that a keyword holds, itself first. References are not followed.
pub(super) fn each_schema(schema: &mut Value, visit: &mut dyn FnMut(&mut Map<String, Value>)) {
    let Value::Object(map) = schema else {
        return;
    };
    visit(map);
    for (keyword, value) in map.iter_mut() {
        let keyword = keyword.as_str();
        let one = SAME_ONE.contains(&keyword) || PART_ONE.contains(&keyword);
        let list = SAME_LIST.contains(&keyword) || PART_LIST.contains(&keyword);
        let by_name = SAME_MAP.contains(&keyword) || PART_MAP.contains(&keyword);
        match value {
            Value::Object(inner) if by_name => {
                for schema in inner.values_mut() {
                    each_schema(schema, visit);
                }
            }
            Value::Object(_) if one => each_schema(value, visit),
            Value::Array(items) if list => {
                for schema in items {
                    each_schema(schema, visit);
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)
            | Value::Object(_) => {}
        }
    }
}

#[derive(Clone)]
struct Reference<'a> {
    from: usize,
    target: &'a str,
    /// `$ref`, whose meaning does not depend on the way to it.
    fixed: bool,
}

#[derive(Default)]
struct Survey<'a> {
    nodes: Vec<Node<'a>>,
    /// Which node a value is, by its address.
    known: BTreeMap<usize, usize>,
    references: Vec<Reference<'a>>,
    /// Nodes with a base URI of their own, and it.
    resources: Vec<(usize, &'a str)>,
    /// Nodes with an anchor, and it.
    anchors: Vec<(usize, &'a str)>,
}

struct Node<'a> {
    value: &'a Value,
    /// The innermost node around it with a base URI, itself included.
    resource: Option<usize>,
    /// Nodes for the same value, and whether they are so for certain.
    same: Vec<(usize, bool)>,
    foreign: u64,
}

impl<'a> Survey<'a> {
    /// Makes a node of a value and of the schemas in it.
    fn read(&mut self, value: &'a Value, around: Option<usize>) -> usize {
        let address = std::ptr::from_ref(value) as usize;
        if let Some(&known) = self.known.get(&address) {
            return known;
        }
        let index = self.nodes.len();
        self.known.insert(address, index);
        self.nodes.push(Node {
            value,
            resource: around,
            same: Vec::new(),
            foreign: 0,
        });
        if let Value::Object(map) = value {
            self.name(map, index);
            for (keyword, value) in map {
                self.keyword(index, keyword, value);
            }
        }
        index
    }

    /// Notes by which names the schema can be referred to.
    fn name(&mut self, map: &'a Map<String, Value>, index: usize) {
        for keyword in ["$id", "id"] {
            match map.get(keyword).and_then(Value::as_str) {
                Some(id) if !id.starts_with('#') => {
                    self.resources.push((index, id));
                    self.nodes[index].resource = Some(index);
                }
                Some(anchor) => self.anchors.push((index, &anchor[1..])),
                None => {}
            }
        }
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(anchor) = map.get(keyword).and_then(Value::as_str) {
                self.anchors.push((index, anchor));
            }
        }
    }

    fn keyword(&mut self, index: usize, keyword: &'a str, value: &'a Value) {
        let around = self.nodes[index].resource;
        match value {
            Value::String(target) => {
                if matches!(keyword, "$ref" | "$dynamicRef" | "$recursiveRef") {
                    self.references.push(Reference {
                        from: index,
                        target,
                        fixed: keyword == "$ref",
                    });
                }
            }
            Value::Array(items) => {
                let same = SAME_LIST.contains(&keyword);
                if same || PART_LIST.contains(&keyword) {
                    for item in items {
                        let inner = self.read(item, around);
                        self.link(index, inner, same);
                    }
                }
            }
            Value::Object(inner) => {
                let same = SAME_MAP.contains(&keyword);
                if same || PART_MAP.contains(&keyword) {
                    for schema in inner.values() {
                        let inner = self.read(schema, around);
                        self.link(index, inner, same);
                    }
                }
                let same = SAME_ONE.contains(&keyword);
                if same || PART_ONE.contains(&keyword) {
                    let inner = self.read(value, around);
                    self.link(index, inner, same);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn link(&mut self, from: usize, to: usize, same: bool) {
        if same {
            self.nodes[from].same.push((to, true));
        }
    }

    /// Adds what a reference may lead to. Where that cannot be told without the validator's own rules, it is
    /// everything that has the name; the validator says whether it leads anywhere.
    fn resolve(&mut self, root: &'a Value, reference: &Reference<'a>) {
        let (uri, fragment) = match reference.target.split_once('#') {
            Some((uri, fragment)) => (uri, fragment),
            None => (reference.target, ""),
        };
        let here = self.nodes[reference.from].resource;
        let mut bases: Vec<Option<usize>> = Vec::new();
        if uri.is_empty() {
            bases.push(here);
        } else {
            let last = |uri: &'a str| uri.trim_end_matches('#').rsplit(['/', ':']).next();
            let named = self
                .resources
                .iter()
                .filter(|(_, id)| last(id) == last(uri));
            bases.extend(named.map(|(node, _)| Some(*node)));
        }
        if fragment.is_empty() || fragment.starts_with('/') {
            for base in bases.clone() {
                let start = base.map_or(root, |node| self.nodes[node].value);
                if let Some(value) = at_pointer(start, fragment) {
                    let node = self.read(value, base);
                    let certain = reference.fixed && uri.is_empty();
                    self.nodes[reference.from].same.push((node, certain));
                }
            }
        } else {
            let named: Vec<usize> = self
                .anchors
                .iter()
                .filter(|(_, anchor)| *anchor == fragment)
                .map(|(node, _)| *node)
                .take(2 * RESOURCES_MAX)
                .collect();
            self.nodes[reference.from]
                .same
                .extend(named.into_iter().map(|node| (node, false)));
        }
        if bases.is_empty() {
            self.nodes[reference.from].foreign += FOREIGN_VISITS;
        }
    }

    /// Adds up the graph, deepest first.
    fn measure(&self) -> Result<Cost, SchemaError> {
        let mut state = vec![Mark::New; self.nodes.len()];
        let mut worst = Cost {
            visits: 0,
            chain: 0,
        };
        for start in 0..self.nodes.len() {
            // Nodes under way, each with the next edge to follow.
            let mut path = vec![(start, 0)];
            while let Some((node, edge)) = path.pop() {
                match (&state[node], self.nodes[node].same.get(edge)) {
                    (Mark::Done(_), _) => {}
                    (Mark::New | Mark::Open, Some(&(next, certain))) => {
                        state[node] = Mark::Open;
                        path.push((node, edge + 1));
                        match state[next] {
                            Mark::New => path.push((next, 0)),
                            Mark::Open if certain => return Err(SchemaError::Loop),
                            // The validator stops where it has been.
                            Mark::Open | Mark::Done(_) => {}
                        }
                    }
                    (Mark::New | Mark::Open, None) => {
                        let cost = self.cost(node, &state);
                        if cost.visits > VISITS_MAX || cost.chain > CHAIN_MAX {
                            return Err(SchemaError::TooMuchWork);
                        }
                        worst.visits = worst.visits.max(cost.visits);
                        worst.chain = worst.chain.max(cost.chain);
                        state[node] = Mark::Done(cost);
                    }
                }
            }
        }
        Ok(worst)
    }

    fn cost(&self, node: usize, state: &[Mark]) -> Cost {
        let node = &self.nodes[node];
        let mut cost = Cost {
            visits: node.foreign + 1,
            chain: if node.foreign == 0 { 1 } else { 16 },
        };
        for (next, _) in &node.same {
            if let Mark::Done(inner) = &state[*next] {
                cost.visits = cost.visits.saturating_add(inner.visits);
                cost.chain = cost.chain.max(inner.chain + 1);
            }
        }
        cost
    }
}

#[derive(Clone)]
enum Mark {
    New,
    Open,
    Done(Cost),
}

/// The value at a JSON pointer, spelled as in a URI. Source: RFC 6901 §6.
fn at_pointer<'a>(root: &'a Value, fragment: &str) -> Option<&'a Value> {
    root.pointer(&percent_decoded(fragment))
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let coded = (first == b'%').then(|| after.get(..2)).flatten();
        let byte = coded
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
