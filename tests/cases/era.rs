//! The same case in 2026-07-28: `server/discover` in place of `initialize`, results of that
//! revision.

use serde_json::{Value, json};

/// The input of a case as a server of 2026-07-28 plays it.
pub(crate) fn modern(input: &Value) -> Value {
    let mut input = input.clone();
    rewrite(&mut input);
    input
}

/// The input of a case for an era as `--protocol` names it.
pub(crate) fn in_era(era: &str, input: &Value) -> Value {
    match era {
        "legacy" => input.clone(),
        "modern" => modern(input),
        other => panic!("no era {other}"),
    }
}

fn rewrite(value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(answer) = object.remove("initialize") {
                object.entry("server/discover").or_insert(answer);
            }
            for name in ["method", "rpc"] {
                if object
                    .get(name)
                    .is_some_and(|method| method == "initialize")
                {
                    object.insert(name.to_owned(), "server/discover".into());
                }
            }
            for (name, inner) in object.iter_mut() {
                match name.as_str() {
                    "result" => rewrite_result(inner),
                    "body" => rewrite_body(inner),
                    "head" => without_session(inner),
                    _ => rewrite(inner),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(rewrite),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A result by what is in it. Spec: 2026-07-28 basic (results), server/discover, utilities/caching.
fn rewrite_result(result: &mut Value) {
    let Some(members) = result.as_object_mut() else {
        return;
    };
    members.entry("resultType").or_insert("complete".into());
    if let Some(info) = members.remove("serverInfo") {
        members.remove("protocolVersion");
        members.insert("supportedVersions".to_owned(), json!(["2026-07-28"]));
        let meta = json!({"io.modelcontextprotocol/serverInfo": info});
        members.insert("_meta".to_owned(), meta);
    }
    let cached = [
        "supportedVersions",
        "tools",
        "resources",
        "prompts",
        "contents",
    ];
    if cached.iter().any(|name| members.contains_key(*name)) {
        members.entry("ttlMs").or_insert(0.into());
        members.entry("cacheScope").or_insert("private".into());
    }
}

/// The body of an HTTP answer: parts of one JSON message, or of events with one each.
fn rewrite_body(body: &mut Value) {
    let parts = body.as_array_mut().expect("a body is a list");
    if parts.len() > 1 && parts[0].as_str().is_some_and(|text| text.starts_with('{')) {
        // One message, cut for the chunks of its transfer; it stays cut, somewhere else.
        let whole: String = parts.iter().filter_map(Value::as_str).collect();
        let mut whole = json!([whole]);
        rewrite_body(&mut whole);
        // Before the id, which is filled in per part.
        let (start, rest) = whole[0].as_str().expect("text").split_at(4);
        *parts = vec![start.into(), rest.into()];
        return;
    }
    for part in parts {
        let text = part.as_str().expect("a part is text");
        let (before, message) = match text.strip_prefix("data: ") {
            Some(message) => ("data: ", message),
            None => ("", text),
        };
        let end = message.trim_end_matches('\n').len();
        let quoted = message[..end].replace("{{id}}", r#""{{id}}""#);
        let Ok(mut parsed) = serde_json::from_str::<Value>(&quoted) else {
            continue;
        };
        if let Some(result) = parsed.get_mut("result") {
            rewrite_result(result);
            let message = parsed.to_string().replace(r#""{{id}}""#, "{{id}}");
            *part = format!("{before}{message}{}", &text[before.len() + end..]).into();
        }
    }
}

fn without_session(head: &mut Value) {
    let lines = head
        .as_str()
        .expect("a head is text")
        .split_inclusive("\r\n");
    let kept: String = lines
        .filter(|line| !line.starts_with("Mcp-Session-Id: S1"))
        .collect();
    *head = kept.into();
}
