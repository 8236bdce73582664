//! Schemas and values made to hurt. Nothing here is timed: an unbounded run would not end, and threads have
//! the two MiB of stack that Rust gives them.

use serde_json::{Map, Value, json};

use super::super::{LINES_MAX, Schema, SchemaError};
use super::compile;
use crate::limits::Limits;

/// `count` definitions, each made of the next by `link`, and the last one `end`.
fn chain(count: usize, link: impl Fn(&Value) -> Value, end: Value) -> Value {
    let mut definitions = Map::new();
    for at in 0..count {
        let next = json!({"$ref": format!("#/$defs/a{}", at + 1)});
        definitions.insert(format!("a{at}"), link(&next));
    }
    definitions.insert(format!("a{count}"), end);
    json!({"$ref": "#/$defs/a0", "$defs": definitions})
}

fn nested(depth: usize, end: Value, level: impl Fn(Value) -> Value) -> Value {
    (0..depth).fold(end, |inner, _| level(inner))
}

#[test]
fn doubled_references_are_refused() {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let twice = |next: &Value| json!({keyword: [next, next]});
        let schema = chain(60, twice, json!({"type": "object"}));
        assert_eq!(compile(&schema).err(), Some(SchemaError::TooMuchWork));
        let schema = chain(10, twice, json!({"type": "object"}));
        let schema = compile(&schema).expect("a thousand visits");
        assert_eq!(schema.check("{}").is_ok(), keyword != "oneOf");
        assert!(schema.check("1").is_err());
    }
}

#[test]
fn long_reference_chains_are_refused() {
    let schema = chain(5_000, Clone::clone, json!({"type": "object"}));
    assert_eq!(compile(&schema).err(), Some(SchemaError::TooMuchWork));
    let schema = chain(200, Clone::clone, json!({"type": "object"}));
    let schema = compile(&schema).expect("short enough");
    assert_eq!(schema.check("{}"), Ok(()));
    // The value may only be so deep that the nested calls stay bounded.
    let deep = nested(6, json!(1), |inner| json!([inner]));
    let lines = schema.check(&deep.to_string()).expect_err("too deep");
    assert_eq!(
        lines,
        ["(root): nested deeper than 1 levels, which this schema allows"]
    );
}

/// As many nested calls as are allowed, on the stack a test has, valid and explained.
#[test]
fn nested_calls_fit_the_stack() {
    let links: [fn(&Value) -> Value; 6] = [
        Clone::clone,
        |next| json!({"allOf": [next, true]}),
        |next| json!({"anyOf": [next, false]}),
        |next| json!({"oneOf": [next, false]}),
        |next| json!({"if": true, "then": next}),
        |next| json!({"allOf": [next], "unevaluatedProperties": true}),
    ];
    for link in links {
        let end = json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/a0"}}});
        for length in [3, 20, 120] {
            let schema = compile(&chain(length, link, end.clone())).expect("short enough");
            for bottom in [json!({}), json!(1)] {
                for depth in [1, 2, 5, 12, 40, 119] {
                    let value = nested(depth, bottom.clone(), |inner| json!({"n": inner}));
                    let outcome = schema.check(&value.to_string());
                    assert!(outcome.is_err() || bottom.is_object());
                }
            }
        }
    }
}

#[test]
fn cycles_are_refused() {
    for schema in [
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"not": {"$ref": "#"}}),
        json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
        json!({"dependentSchemas": {"x": {"$ref": "#"}}}),
    ] {
        assert_eq!(compile(&schema).err(), Some(SchemaError::Loop), "{schema}");
    }
    for schema in [
        json!({"$dynamicAnchor": "n", "allOf": [{"$dynamicRef": "#n"}]}),
        json!({"$anchor": "n", "allOf": [{"$ref": "#n"}]}),
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": true,
            "anyOf": [{"$recursiveRef": "#"}]}),
    ] {
        if let Ok(schema) = compile(&schema) {
            let _ = schema.check("{}");
        }
    }
}

#[test]
fn nested_schemas_are_bounded_by_their_text() {
    let depth = Limits::DEFAULT.json_depth_max;
    for level in [
        |inner: Value| json!({"not": inner}),
        |inner| json!({"properties": {"a": inner}}),
        |inner| json!({"items": inner}),
        |inner| json!({"oneOf": [inner]}),
        |inner| json!({"if": inner, "then": true}),
        |inner| json!({"unevaluatedProperties": inner}),
    ] {
        // Some levels of a schema are two of its text.
        let per_level = level(json!({})).to_string().matches(['{', '[']).count() - 1;
        let deep = nested(depth / per_level - 2, json!({}), level);
        let schema = compile(&deep).expect("within the limit");
        let value = nested(depth - 2, json!({}), |inner| json!({"a": inner}));
        let _ = schema.check(&value.to_string());
    }
}

#[test]
fn deep_texts_are_refused() {
    let deep = format!(
        "{}{}{}",
        "{\"not\":".repeat(10_000),
        "{}",
        "}".repeat(10_000)
    );
    let error = Schema::compile(&deep, &Limits::DEFAULT).err();
    assert!(
        matches!(error, Some(SchemaError::Unreadable(_))),
        "{error:?}"
    );
    let schema = json!({"$ref": "#/$defs/N", "$defs": {"N": {"properties": {"next": {"$ref": "#/$defs/N"}}}}});
    let schema = compile(&schema).expect("usable");
    let mut deep = "{\"next\":".repeat(10_000);
    deep.push('1');
    deep.push_str(&"}".repeat(10_000));
    let lines = schema.check(&deep).expect_err("too deep");
    assert_eq!(lines.len(), 1);
    assert!(
        lines[0].contains("nested deeper than 127 levels"),
        "{lines:?}"
    );
}

#[test]
fn work_that_grows_with_the_depth_of_the_value_ends() {
    let twice = json!({"$ref": "#/$defs/X", "$defs": {"X": {"anyOf": [{"type": "integer"}, {"type": "object",
        "properties": {"n": {"allOf": [{"$ref": "#/$defs/X"}, {"$ref": "#/$defs/X"}]}}}]}}});
    let dynamic = json!({"$id": "https://e.example/x", "$dynamicAnchor": "n", "type": ["object", "integer"],
        "properties": {"n": {"allOf": [{"$dynamicRef": "#n"}, {"$dynamicRef": "#n"}]}}});
    let unevaluated = json!({"$ref": "#/$defs/X", "$defs": {"X": {"anyOf": [{"type": "integer"}, {"type": "object",
        "properties": {"n": {"allOf": [{"$ref": "#/$defs/X"}, {"$ref": "#/$defs/X"}]}},
        "unevaluatedProperties": false}]}}});
    for schema in [twice, dynamic, unevaluated] {
        let schema = compile(&schema).expect("usable");
        for (end, valid) in [(json!(1), true), (json!("x"), false)] {
            let value = nested(40, end, |inner| json!({"n": inner}));
            let outcome = schema.check(&value.to_string());
            // A run that takes too long passes; one that comes to an end says the truth.
            assert!(outcome.is_ok() || !valid, "{outcome:?}");
            if let Err(lines) = outcome {
                assert!(!lines.is_empty() && lines.len() <= LINES_MAX);
            }
        }
    }
}

#[test]
fn unions_are_explained_in_bounded_work() {
    let branch = |op: &str| {
        json!({"type": "object", "required": ["op", "args"], "properties": {"op": {"const": op},
            "args": {"type": "array", "items": {"$ref": "#/$defs/E"}}}})
    };
    let schema = json!({"$ref": "#/$defs/E", "$defs": {"E": {"oneOf": [branch("and"), branch("or"), branch("not"),
        {"type": "object", "required": ["v"], "properties": {"v": {"type": "integer"}}}]}}});
    let schema = compile(&schema).expect("usable");
    for depth in [1, 30] {
        let value = nested(
            depth,
            json!({"v": "x"}),
            |inner| json!({"op": "not", "args": [inner]}),
        );
        let lines = schema.check(&value.to_string()).expect_err("a string");
        assert_eq!(lines.len(), 1, "{lines:?}");
        let valid = nested(
            depth,
            json!({"v": 1}),
            |inner| json!({"op": "not", "args": [inner]}),
        );
        assert_eq!(schema.check(&valid.to_string()), Ok(()));
    }
}

#[test]
fn patterns_are_bounded_in_number_and_size() {
    let of = |patterns: Vec<String>| -> Value {
        let names: Map<String, Value> = patterns.into_iter().map(|p| (p, json!(true))).collect();
        json!({"patternProperties": names})
    };
    let big = of((0..60).map(|i| format!("(a|b)*{i}(a|b){{3000}}")).collect());
    let schema = compile(&big).expect("usable");
    let note = schema.note().expect("some are left out");
    assert!(note.contains("patterns cannot be used"), "{note}");
    let broken = of((0..3_000).map(|i| format!("(?=a{i})")).collect());
    let schema = compile(&broken).expect("usable");
    assert_eq!(schema.check(r#"{"a":1}"#), Ok(()));
    let nest = format!("{}a{}", "(".repeat(3_000), ")".repeat(3_000));
    let schema = compile(&json!({"pattern": nest})).expect("usable");
    assert!(schema.note().is_some());
}

#[test]
fn matching_is_linear_and_bounded() {
    let schema = compile(&json!({"properties": {"u": {"pattern": "^(a+)+$"}}})).expect("usable");
    let text = format!("{{\"u\":\"{}!\"}}", "a".repeat(100_000));
    assert!(schema.check(&text).is_err());
    // A pattern this size against this much text may take minutes: it passes unchecked.
    let dear = compile(&json!({"pattern": "(a|b)*a(a|b){3000}c"})).expect("usable");
    let text = format!("\"{}\"", "ab".repeat(2_000_000));
    assert_eq!(dear.check(&text), Ok(()));
    // What people send is far below: four MiB of base64.
    let base64 = compile(&json!({"pattern": "^[A-Za-z0-9+/]*={0,2}$"})).expect("usable");
    let text = format!("\"{}\"", "Ab9+".repeat(1 << 19));
    assert_eq!(base64.check(&text), Ok(()));
    let text = format!("\"{}!\"", "Ab9+".repeat(1 << 19));
    assert!(base64.check(&text).is_err());
}

#[test]
fn ways_through_base_uris_are_bounded() {
    let mut definitions = Map::new();
    for at in 0..14 {
        for side in ["a", "b"] {
            let next = [format!("a{}", at + 1), format!("b{}", at + 1)];
            definitions.insert(
                format!("{side}{at}"),
                json!({"$id": format!("https://e.example/{side}{at}"),
                    "properties": {"p": {"allOf": [{"$ref": next[0]}, {"$ref": next[1]}]}}}),
            );
        }
    }
    let error = compile(&json!({"$ref": "https://e.example/a0", "$defs": definitions})).err();
    assert!(
        matches!(error, Some(SchemaError::TooManyResources { limit: 16, .. })),
        "{error:?}"
    );
}

#[test]
fn comparisons_are_bounded() {
    // Shapes without leaves have one hash: each is compared with each.
    let shape = |mut bits: u32| {
        let mut items = Vec::new();
        for _ in 0..17 {
            items.push(if bits & 1 == 1 {
                json!([])
            } else {
                json!([[]])
            });
            bits >>= 1;
        }
        Value::Array(items)
    };
    let unique = compile(&json!({"uniqueItems": true})).expect("usable");
    let many: Vec<Value> = (0..60_000).map(shape).collect();
    assert_eq!(unique.check(&json!(many).to_string()), Ok(()));
    let few: Vec<Value> = (0..100).chain([5]).map(shape).collect();
    assert!(unique.check(&json!(few).to_string()).is_err());
}

#[test]
fn the_text_of_a_schema_is_bounded() {
    let limits = Limits::DEFAULT;
    let raw = format!(
        "{{\"title\":\"{}\"}}",
        "x".repeat(limits.tool_schema_bytes_max)
    );
    let error = Schema::compile(&raw, &limits).expect_err("too long");
    let text = format!("schema too large: {} bytes, limit 262144", raw.len());
    assert_eq!(error.to_string(), text);
    for raw in ["", "{", "{\"type\":}", "\u{0}", "{\"maximum\":1e999}"] {
        let error = Schema::compile(raw, &limits).expect_err(raw);
        assert!(matches!(error, SchemaError::Unreadable(_)), "{error}");
    }
}
