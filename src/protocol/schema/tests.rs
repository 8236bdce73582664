mod hostile;
mod suite;

use serde_json::{Value, json};

use super::*;

fn compile(schema: &Value) -> Result<Schema, SchemaError> {
    Schema::compile(&schema.to_string(), &Limits::DEFAULT)
}

/// What is said of `instance` under `schema`.
fn lines(schema: &Value, instance: &Value) -> Vec<String> {
    let schema = compile(schema).expect("a usable schema");
    schema
        .check(&instance.to_string())
        .err()
        .unwrap_or_default()
}

fn agrees(schema: &Value, valid: &[Value], invalid: &[Value]) {
    let compiled = compile(schema).expect("a usable schema");
    for instance in valid {
        let outcome = compiled.check(&instance.to_string());
        assert_eq!(outcome, Ok(()), "{instance} under {schema}");
    }
    for instance in invalid {
        let outcome = compiled.check(&instance.to_string());
        assert!(outcome.is_err(), "{instance} under {schema}");
    }
}

#[test]
fn references_are_followed_within_the_schema() {
    let node = json!({
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/Node"}},
        "$defs": {"Node": {
            "type": "object",
            "required": ["v"],
            "properties": {
                "v": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}
            }
        }}
    });
    agrees(
        &node,
        &[json!({"root": {"v": 1, "next": {"v": 2, "next": null}}})],
        &[json!({"root": {"v": 1, "next": {"v": "x"}}})],
    );
    agrees(
        &json!({"type": "object", "properties": {
            "from": {"type": "string", "minLength": 3}, "to": {"$ref": "#/properties/from"}}}),
        &[json!({"to": "abc"})],
        &[json!({"to": "a"})],
    );
    agrees(
        &json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/a~1b%20c"}},
            "$defs": {"a/b c": {"type": "integer"}}}),
        &[json!({"x": 1})],
        &[json!({"x": "1"})],
    );
}

#[test]
fn references_that_lead_nowhere_disable_the_check() {
    let dangling = compile(&json!({"properties": {"x": {"$ref": "#/$defs/Nope"}}}));
    let text = dangling.expect_err("dangling").to_string();
    assert!(text.starts_with("schema is invalid: "), "{text}");
    let itself =
        json!({"properties": {"x": {"$ref": "#/$defs/L"}}, "$defs": {"L": {"$ref": "#/$defs/L"}}});
    assert_eq!(compile(&itself).err(), Some(SchemaError::Loop));
    for foreign in [
        "https://schemas.example/a.json",
        "file:///etc/hostname",
        "other.json#/a",
    ] {
        let error = compile(&json!({"$ref": foreign})).expect_err(foreign);
        assert!(matches!(error, SchemaError::Invalid(_)), "{error}");
    }
    // A meta-schema is known without being fetched.
    agrees(
        &json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
        &[json!({"type": "object"})],
        &[json!({"type": 1})],
    );
}

#[test]
fn the_declared_dialect_rules() {
    agrees(
        &json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"p":
            {"type": "array", "items": [{"type": "number"}, {"type": "string"}], "additionalItems": false}}}),
        &[json!({"p": [1, "a"]})],
        &[json!({"p": ["a", 1]}), json!({"p": [1, "a", 2]})],
    );
    agrees(
        &json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "properties": {"p":
            {"type": "array", "prefixItems": [{"type": "number"}], "items": false}}}),
        &[json!({"p": [1]})],
        &[json!({"p": [1, 2]})],
    );
    agrees(
        &json!({"$schema": "http://json-schema.org/draft-07/schema", "properties":
            {"a": {"$ref": "#/definitions/s"}, "b": {}},
            "definitions": {"s": {"type": "string"}}, "dependencies": {"a": ["b"]}}),
        &[json!({"a": "x", "b": 1})],
        &[json!({"a": "x"}), json!({"a": 1, "b": 1})],
    );
    let tuple = json!({"properties": {"p": {"items": [{"type": "number"}]}}});
    let error = compile(&tuple).expect_err("not 2020-12");
    assert!(matches!(error, SchemaError::Invalid(_)), "{error}");
    let error = compile(&json!({"$schema": "https://schemas.example/own/v1", "type": "object"}));
    assert_eq!(
        error.expect_err("unknown").to_string(),
        "schema dialect https://schemas.example/own/v1 is not supported"
    );
    assert!(compile(&json!({"$schema": 7})).is_err());
}

#[test]
fn booleans_type_lists_and_equal_numbers() {
    agrees(
        &json!({"properties": {"yes": true, "no": false}, "additionalProperties": false}),
        &[json!({"yes": [1]}), json!({})],
        &[json!({"no": 1}), json!({"x": 1})],
    );
    agrees(
        &json!({"properties": {"t": {"type": ["string", "null"]}, "c": {"const": 1.0}}}),
        &[json!({"t": null, "c": 1})],
        &[json!({"t": 1})],
    );
    agrees(&json!(true), &[json!(null), json!({})], &[]);
    agrees(&json!(false), &[], &[json!(null), json!({})]);
    assert!(compile(&json!([])).is_err());
    assert!(compile(&json!("object")).is_err());
}

#[test]
fn composition_at_the_root() {
    agrees(
        &json!({"type": "object", "required": ["thread_id"], "additionalProperties": false,
            "properties": {"thread_id": {"type": "string"}, "text": {"type": "string"}, "file": {"type": "string"}},
            "anyOf": [{"required": ["text"]}, {"required": ["file"]}]}),
        &[json!({"thread_id": "t", "text": "x"})],
        &[json!({"thread_id": "t"}), json!({"text": "x"})],
    );
    agrees(
        &json!({"type": "object", "properties": {"parent": {"oneOf": [
            {"$ref": "#/$defs/page"}, {"$ref": "#/$defs/db"}]}},
            "$defs": {
                "page": {"type": "object", "required": ["page_id"], "properties": {"page_id": {"type": "string"}}},
                "db": {"type": "object", "required": ["database_id"],
                    "properties": {"database_id": {"type": "string"}}}}}),
        &[
            json!({"parent": {"page_id": "p"}}),
            json!({"parent": {"database_id": "d"}}),
        ],
        &[json!({"parent": {}})],
    );
}

#[test]
fn patterns_are_checked_or_left_out_and_named() {
    let of = |pattern: &str| json!({"properties": {"u": {"type": "string", "pattern": pattern}}});
    for pattern in ["^https\\:\\/\\/", "(?P<id>[a-z]+)", "^\\d{2}$"] {
        let schema = compile(&of(pattern)).expect(pattern);
        assert_eq!(schema.note(), None, "{pattern}");
        assert!(schema.check(r#"{"u":"1"}"#).is_err(), "{pattern}");
    }
    for pattern in [
        "^(?=.*[0-9]).+$",
        "([a-z",
        "(a)\\1",
        "(((a{1000}){1000}){1000})",
    ] {
        let schema = compile(&of(pattern)).expect(pattern);
        let note = format!("pattern {pattern} cannot be used and is not checked");
        assert_eq!(schema.note(), Some(note.as_str()));
        assert_eq!(schema.check(r#"{"u":"1"}"#), Ok(()));
        assert!(schema.check(r#"{"u":1}"#).is_err(), "the rest is checked");
    }
}

#[test]
fn a_lost_pattern_refuses_nothing() {
    let names = json!({"patternProperties": {"([": {"type": "string"}, "^x": {"type": "integer"}},
        "additionalProperties": false});
    agrees(
        &names,
        &[json!({"any": 1}), json!({"x": 1})],
        &[json!({"x": "1"})],
    );
    for delicate in [
        json!({"not": {"pattern": "(["}}),
        json!({"oneOf": [{"pattern": "(["}, {"type": "string"}]}),
        json!({"if": {"pattern": "(["}, "then": false}),
        json!({"contains": {"pattern": "(["}, "maxContains": 1}),
    ] {
        let error = compile(&delicate).expect_err("delicate");
        assert_eq!(error, SchemaError::Pattern("([".to_owned()), "{delicate}");
    }
    // Where a pattern is data, it is none.
    let data =
        json!({"not": {"const": {"pattern": "(["}}, "properties": {"pattern": {"type": "string"}}});
    assert_eq!(compile(&data).expect("usable").note(), None);
}

#[test]
fn formats_are_annotations() {
    for dialect in [
        "https://json-schema.org/draft/2020-12/schema",
        "http://json-schema.org/draft-07/schema#",
    ] {
        agrees(
            &json!({"$schema": dialect, "properties": {"a": {"format": "made-format"},
                "b": {"type": "string", "format": "date-time"}}}),
            &[json!({"a": "anything", "b": "today"})],
            &[],
        );
    }
}

#[test]
fn numbers_keep_64_bits() {
    let limit = json!({"type": "integer", "maximum": 9_007_199_254_740_993_u64});
    let schema = compile(&limit).expect("usable");
    assert_eq!(schema.check("9007199254740993"), Ok(()));
    assert!(schema.check("9007199254740994").is_err());
    let integer = compile(&json!({"type": "integer"})).expect("usable");
    assert_eq!(integer.check("123456789012345678901234567890"), Ok(()));
    assert_eq!(integer.check("1.0"), Ok(()));
    assert!(integer.check("1.5").is_err());
    assert_eq!(integer.check("1e400"), Ok(()), "beyond a double: unchecked");
}

#[test]
fn lines_say_what_is_wrong() {
    let schema = json!({"type": "object", "required": ["name", "size"], "additionalProperties": false,
        "properties": {
            "name": {"type": "string", "minLength": 2},
            "size": {"type": ["integer", "null"]},
            "mode": {"enum": ["fast", "slow"]},
            "at": {"anyOf": [
                {"type": "object", "required": ["x", "y"]},
                {"type": "object", "properties": {"z": {"type": "integer"}}, "required": ["z"]}]}}});
    assert_eq!(
        lines(
            &schema,
            &json!({"name": 7, "mode": "best", "at": {"z": "up"}, "extra": 1})
        ),
        [
            "(root): required property \"size\" is missing",
            "/at: matches none of 2 alternatives; the nearest one: /at/z: must be integer (found string)",
            "/mode: must be one of [\"fast\",\"slow\"]",
            "/name: must be string (found number)",
            "(root): unexpected property \"extra\"",
        ]
    );
    assert_eq!(
        lines(&schema, &json!({"name": "n", "size": "big"})),
        [
            "/name: value is shorter than 2 characters",
            "/size: must be null or integer (found string)"
        ]
    );
}

#[test]
fn lines_are_bounded_and_escaped() {
    let many: Value = (0..100)
        .map(|i| (i.to_string(), json!("x")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let lines = lines(&json!({"additionalProperties": {"type": "integer"}}), &many);
    assert_eq!(lines.len(), LINES_MAX);
    assert_eq!(lines[LINES_MAX - 1], "(root): and 93 more");
    let hostile = "\u{1b}[2J".repeat(500);
    let one = super::words::line(&hostile, &hostile);
    assert!(!one.contains('\u{1b}'), "{one}");
    assert!(one.len() < 8_000 && one.ends_with('…'), "{}", one.len());
}
