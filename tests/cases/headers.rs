//! What stands in the headers of 2026-07-28: e12.

use serde_json::{Value, json};

use crate::http::{Got, Peer};
use crate::world::{World, case, expect_words, serve, text_of};

/// A server of 2026-07-28 with these tools.
fn server(tools: Value) -> Peer {
    let json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let answer = |method: &str, result: Value| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{result}}}"#);
        json!({"when": {"rpc": method}, "head": json, "body": [body]})
    };
    let cached = |mut result: Value| {
        result["resultType"] = "complete".into();
        result["ttlMs"] = 0.into();
        result["cacheScope"] = "private".into();
        result
    };
    let capabilities = json!({"tools": {}, "resources": {}});
    let discover = json!({"supportedVersions": ["2026-07-28"], "capabilities": capabilities});
    let read = json!({"contents": [{"uri": "file:///projects/made.json", "text": "{}"}]});
    let called = json!({"resultType": "complete", "content": [{"type": "text", "text": "done"}]});
    serve(&json!({"exchanges": [
        answer("server/discover", cached(discover)),
        answer("tools/list", cached(json!({"tools": tools}))),
        answer("tools/call", called),
        answer("resources/read", cached(read))]}))
}

#[test]
fn e12_routing_headers() {
    let world = World::new("e12");
    let case = case("e12-routing-headers");
    for call in case["input"]["calls"].as_array().unwrap() {
        let plain = json!({"type": "object"});
        let schema = call.get("tool_schema").unwrap_or(&plain);
        let name = call["params"]["name"].as_str().unwrap_or("echo");
        let peer = server(json!([{"name": name, "inputSchema": schema}]));
        let url = peer.url();
        let mut arguments = call["params"]["arguments"].clone();
        if let Some(arguments) = arguments.as_object_mut() {
            // A null does not fit the schema of the case; an absent argument has no header either.
            arguments.retain(|_, value| !value.is_null());
        }
        let given = arguments.to_string();
        let method = call["method"].as_str().unwrap();
        let mut args = match method {
            "tools/call" => vec!["call", &url, name, "--args", &given],
            "resources/read" => vec!["read", &url, call["params"]["uri"].as_str().unwrap()],
            "tools/list" => vec!["list", &url],
            other => panic!("{other}"),
        };
        args.extend(["--protocol", "modern", "--json"]);
        world.run(&args).expect_prompt().expect_code(0);

        let sent = peer.posts(method);
        assert_eq!(sent.len(), 1, "{call}");
        for (field, value) in call["want"].as_object().unwrap() {
            assert_eq!(sent[0].field(field), value.as_str(), "{field} of {call}");
        }
        for field in call["absent"].as_array().into_iter().flatten() {
            assert_eq!(
                sent[0].field(field.as_str().unwrap()),
                None,
                "{field} of {call}"
            );
        }
        if method == "tools/call" {
            assert_eq!(sent[0].message["params"]["name"], call["params"]["name"]);
            assert_eq!(sent[0].message["params"]["arguments"], arguments);
        }
        for request in peer.got() {
            expect_stateless(&request);
        }
    }
}

/// Every request of 2026-07-28 says what it is, in ASCII.
#[track_caller]
fn expect_stateless(request: &Got) {
    assert_eq!(
        request.field("mcp-protocol-version"),
        Some("2026-07-28"),
        "{request:?}"
    );
    assert_eq!(
        request.field("mcp-method"),
        Some(request.method()),
        "{request:?}"
    );
    assert_eq!(request.field("mcp-session-id"), None, "{request:?}");
    for (name, value) in &request.fields {
        assert!(
            value.bytes().all(|b| matches!(b, b' '..=b'~' | b'\t')),
            "{name}: {value:?}"
        );
    }
    let evil = request.fields.iter().any(|(name, _)| name == "x-evil");
    assert!(!evil, "{request:?}");
}

#[test]
fn e12_bad_annotations_cost_their_tool() {
    let world = World::new("e12-bad");
    let case = case("e12-routing-headers");
    let bad = case["input"]["bad_annotations"].as_array().unwrap();
    let mut tools = vec![json!({"name": "first", "inputSchema": {"type": "object"}})];
    let mut names = Vec::new();
    for (n, annotation) in bad.iter().enumerate() {
        let mut annotation = annotation.clone();
        if annotation.get("type").is_none() {
            let kind = if annotation.get("items").is_some() {
                "array"
            } else {
                "string"
            };
            annotation["type"] = kind.into();
        }
        let schema = json!({"type": "object", "properties": {"p": annotation}});
        names.push(format!("bad{n}"));
        tools.push(json!({"name": names[n], "inputSchema": schema}));
    }
    let twins = json!({"type": "object", "properties": {
        "a": {"type": "string", "x-mcp-header": "Region"},
        "b": {"type": "string", "x-mcp-header": "REGION"}}});
    names.push("twins".to_owned());
    tools.push(json!({"name": "twins", "inputSchema": twins}));
    tools.push(json!({"name": "last", "inputSchema": {"type": "object"}}));

    let peer = server(Value::Array(tools));
    let run = world.run(&["list", &peer.url(), "--protocol", "modern", "--json"]);
    let run = run.expect_code(0);
    assert_eq!(run.tools(), ["first", "last"]);
    let told = run.diagnostics();
    for name in &names {
        let about: Vec<&Value> = told
            .iter()
            .filter(|one| one["tool"] == name.as_str())
            .collect();
        assert_eq!(about.len(), 1, "{name}: {told:#?}");
        assert_eq!(about[0]["level"], "warning");
        expect_words(&text_of(&about[0]["message"]), &[name]);
    }
    assert_eq!(told.len(), names.len(), "{told:#?}");
}
