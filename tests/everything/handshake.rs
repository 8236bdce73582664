//! Clients of the handshake era: conformance, server leg of 2025-11-25, and what it does not look at.

use serde_json::{Value, json};

use crate::world::{World, methods, text, tool};

const REVISION: &str = "2025-11-25";

fn world() -> World {
    World::with_client(
        REVISION,
        json!({"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}}),
    )
}

/// Calls a tool that asks one thing, which is answered; what was asked, and the result.
fn ask_and_answer(name: &str, arguments: Value, answer: Value) -> (Value, Value) {
    let mut world = world();
    let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": tool(name, arguments)});
    let asked = world.say(call).pop().expect("a question");
    let response = json!({"jsonrpc": "2.0", "id": asked["id"], "result": answer});
    let done = world.say(response).pop().expect("an answer");
    assert_eq!(done["id"], "c", "{done}");
    (asked, done["result"].clone())
}

#[test]
fn what_is_offered_is_declared_and_listed() {
    let mut world = World::new();
    let params = json!({"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "c", "version": "0"}});
    let result = world.request("initialize", params).expect("a session");
    assert_eq!(
        result["capabilities"],
        json!({"tools": {"listChanged": true}, "resources": {"subscribe": true, "listChanged": true},
            "prompts": {"listChanged": true}, "completions": {}, "logging": {}})
    );
    let tools = world.request("tools/list", json!({})).expect("a list");
    let tools = tools["tools"].as_array().expect("tools").clone();
    assert_eq!(
        tools[0]["name"], "test_simple_text",
        "clients try the first tool"
    );
    for tool in &tools {
        assert!(tool["description"].is_string(), "{tool}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
    }
    let resources = world.request("resources/list", json!({})).expect("a list");
    assert_eq!(resources["resources"].as_array().map(Vec::len), Some(3));
    let templates = world
        .request("resources/templates/list", json!({}))
        .expect("a list");
    assert_eq!(
        templates["resourceTemplates"][0]["uriTemplate"],
        "test://template/{id}/data"
    );
    let prompts = world.request("prompts/list", json!({})).expect("a list");
    for prompt in prompts["prompts"].as_array().expect("prompts") {
        assert!(prompt["description"].is_string(), "{prompt}");
    }
}

#[test]
fn the_schema_reaches_the_client_as_written() {
    let tools = world().request("tools/list", json!({})).expect("a list");
    let tools = tools["tools"].as_array().expect("tools").clone();
    let tool = tools
        .iter()
        .find(|tool| tool["name"] == "json_schema_2020_12_tool")
        .expect("it");
    let written: Value = serde_json::from_str(crate::samples::JSON_SCHEMA_2020_12).expect("JSON");
    assert_eq!(tool["inputSchema"], written);
}

#[test]
fn contents_come_in_every_kind() {
    let mut world = world();
    let kinds = |result: &Value| -> Vec<String> {
        let blocks = result["content"].as_array().expect("blocks");
        let kind = |block: &Value| block["type"].as_str().expect("a kind").to_owned();
        blocks.iter().map(kind).collect()
    };
    for (name, wanted) in [
        ("test_simple_text", vec!["text"]),
        ("test_image_content", vec!["image"]),
        ("test_audio_content", vec!["audio"]),
        ("test_embedded_resource", vec!["resource"]),
        (
            "test_multiple_content_types",
            vec!["text", "image", "resource"],
        ),
    ] {
        let result = world
            .request("tools/call", json!({"name": name}))
            .expect(name);
        assert_eq!(kinds(&result), wanted, "{name}");
        assert!(result.get("resultType").is_none(), "{result}");
    }
    let failed = world
        .request("tools/call", json!({"name": "test_error_handling"}))
        .expect("a result");
    assert_eq!(failed["isError"], true);
    let weather = world
        .request("tools/call", json!({"name": "test_structured_content"}))
        .expect("a result");
    assert_eq!(weather["structuredContent"], json!({"celsius": 21.5}));
}

#[test]
fn log_messages_and_progress_come_before_the_answer() {
    let mut world = world();
    let seen = world.all("tools/call", json!({"name": "test_tool_with_logging"}));
    let log = "notifications/message";
    assert_eq!(methods(&seen), [log, log, log, ""]);
    assert_eq!(seen[0]["params"]["level"], "info");
    let progress = "notifications/progress";
    let params = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": "p"}});
    let seen = world.all("tools/call", params);
    assert_eq!(methods(&seen), [progress, progress, progress, ""]);
    let values: Vec<&Value> = seen[..3]
        .iter()
        .map(|one| &one["params"]["progress"])
        .collect();
    assert_eq!(values, [0, 50, 100]);
    assert_eq!(seen[0]["params"]["progressToken"], "p");
    let quiet = world.all("tools/call", json!({"name": "test_tool_with_progress"}));
    assert_eq!(methods(&quiet), [""]);
}

#[test]
fn the_model_is_asked() {
    let answer =
        json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "42"}});
    let (asked, result) = ask_and_answer("test_sampling", json!({"prompt": "6*7?"}), answer);
    assert_eq!(asked["method"], "sampling/createMessage");
    assert_eq!(asked["params"]["maxTokens"], 100);
    let said = &asked["params"]["messages"][0];
    assert_eq!(
        *said,
        json!({"role": "user", "content": {"type": "text", "text": "6*7?"}})
    );
    assert!(text(&result).contains("42"), "{result}");
}

#[test]
fn a_person_is_asked() {
    let answer = json!({"action": "accept", "content": {"username": "ada", "email": "a@b.c"}});
    let (asked, result) = ask_and_answer("test_elicitation", json!({"message": "Who?"}), answer);
    assert_eq!(asked["method"], "elicitation/create");
    assert_eq!(asked["params"]["message"], "Who?");
    assert_eq!(
        asked["params"]["requestedSchema"]["required"],
        json!(["username", "email"])
    );
    assert!(text(&result).contains("ada"), "{result}");
    let declined = json!({"action": "decline"});
    let (asked, result) = ask_and_answer("test_elicitation_sep1034_defaults", json!({}), declined);
    let fields = &asked["params"]["requestedSchema"]["properties"];
    assert_eq!(
        fields["age"],
        json!({"type": "integer", "description": "User age", "default": 30})
    );
    assert!(text(&result).contains("decline"), "{result}");
}

#[test]
fn a_page_has_an_id_for_2025_11_25() {
    let (asked, _) = ask_and_answer(
        "test_elicitation_url",
        json!({}),
        json!({"action": "accept"}),
    );
    assert_eq!(asked["params"]["mode"], "url");
    assert!(asked["params"]["elicitationId"].is_string(), "{asked}");
}

#[test]
fn the_client_is_asked_for_its_roots() {
    let answer = json!({"roots": [{"uri": "file:///a"}]});
    let (asked, result) =
        ask_and_answer("test_input_required_result_list_roots", json!({}), answer);
    assert_eq!(
        (&asked["method"], &asked["params"]),
        (&json!("roots/list"), &json!({}))
    );
    assert!(text(&result).contains("file:///a"), "{result}");
}

#[test]
fn one_tool_asks_twice_in_one_call() {
    let mut world = world();
    let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "test_input_required_result_multi_round"}});
    let first = world.say(call).pop().expect("the first question");
    let name = json!({"action": "accept", "content": {"name": "Ada"}});
    let second = world
        .say(json!({"jsonrpc": "2.0", "id": first["id"], "result": name}))
        .pop()
        .expect("the second question");
    assert_ne!(first["id"], second["id"]);
    let color = json!({"action": "accept", "content": {"color": "blue"}});
    let done = world
        .say(json!({"jsonrpc": "2.0", "id": second["id"], "result": color}))
        .pop()
        .expect("an answer");
    assert_eq!(text(&done["result"]), "Ada likes blue.");
    assert_eq!(world.local.open_calls(), 0);
}

#[test]
fn questions_of_one_round_are_answered_in_any_order() {
    let mut world = world();
    let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "test_input_required_result_multiple_inputs"}});
    let asked = world.say(call);
    assert_eq!(
        methods(&asked),
        ["elicitation/create", "sampling/createMessage", "roots/list"]
    );
    let answers = [
        json!({"action": "accept", "content": {"name": "Ada"}}),
        json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "hello"}}),
        json!({"roots": []}),
    ];
    let mut last = Vec::new();
    for at in [2, 0, 1] {
        assert!(last.is_empty(), "answered too early");
        last = world.say(json!({"jsonrpc": "2.0", "id": asked[at]["id"], "result": answers[at]}));
    }
    assert!(
        text(&last[0]["result"]).starts_with("Ada is greeted by"),
        "{}",
        last[0]
    );
}

#[test]
fn a_client_that_cannot_be_asked_gets_an_error_that_says_so() {
    let mut world = World::with_client(REVISION, json!({}));
    for (name, arguments, capability) in [
        ("test_sampling", json!({"prompt": "x"}), "sampling"),
        ("test_elicitation", json!({"message": "x"}), "elicitation"),
        ("test_elicitation_url", json!({}), "elicitation.url"),
        ("test_input_required_result_list_roots", json!({}), "roots"),
        ("failing_job", json!({}), "io.modelcontextprotocol/tasks"),
    ] {
        let result = world
            .request("tools/call", tool(name, arguments))
            .expect("a tool result");
        assert_eq!(result["isError"], true, "{name}");
        assert!(text(&result).contains(capability), "{}", text(&result));
    }
    let error = world
        .request(
            "prompts/get",
            json!({"name": "test_input_required_result_prompt"}),
        )
        .expect_err("a prompt cannot say isError");
    assert!(
        error["message"]
            .as_str()
            .expect("text")
            .contains("elicitation"),
        "{error}"
    );
}

#[test]
fn an_error_of_the_client_ends_the_call() {
    let mut world = world();
    let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": tool("test_sampling", json!({"prompt": "x"}))});
    let asked = world.say(call).pop().expect("a question");
    let error = json!({"code": -1, "message": "User rejected sampling request"});
    let done = world
        .say(json!({"jsonrpc": "2.0", "id": asked["id"], "error": error}))
        .pop()
        .expect("an answer");
    assert_eq!(done["result"]["isError"], true);
    assert!(text(&done["result"]).contains("User rejected"), "{done}");
}

#[test]
fn a_cancelled_call_is_not_answered() {
    let mut world = world();
    let call = json!({"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "test_reconnection"}});
    assert!(world.say(call).is_empty());
    assert_eq!(world.closed_streams, 1);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "c"}});
    assert!(world.say(cancel).is_empty());
    world.pass(std::time::Duration::from_secs(1));
    assert!(
        world
            .say(json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}))
            .len()
            == 1
    );
    assert_eq!(world.local.open_calls(), 0);
}

#[test]
fn resources_are_read_and_watched() {
    let mut world = world();
    let read = |world: &mut World, uri: &str| {
        let result = world.request("resources/read", json!({"uri": uri}));
        result.map(|result| result["contents"][0].clone())
    };
    let text = read(&mut world, "test://static-text").expect("text");
    assert_eq!(text["mimeType"], "text/plain");
    let picture = read(&mut world, "test://static-binary").expect("a picture");
    assert!(picture["blob"].is_string());
    let data = read(&mut world, "test://template/123/data").expect("data");
    assert!(data["text"].as_str().expect("text").contains("123"));
    let error = read(&mut world, "test://no-such").expect_err("nothing there");
    assert_eq!(error["code"], -32002);
    assert_eq!(error["data"]["uri"], "test://no-such");
    let watched = json!({"uri": "test://watched-resource"});
    world
        .request("resources/subscribe", watched.clone())
        .expect("subscribed");
    let seen = world.all(
        "tools/call",
        json!({"name": "test_trigger_resource_update"}),
    );
    assert_eq!(methods(&seen), ["notifications/resources/updated", ""]);
    world
        .request("resources/unsubscribe", watched)
        .expect("unsubscribed");
    let seen = world.all(
        "tools/call",
        json!({"name": "test_trigger_resource_update"}),
    );
    assert_eq!(methods(&seen), [""]);
}

#[test]
fn list_changes_are_told() {
    let mut world = world();
    for list in ["tool", "prompt", "resource"] {
        let name = format!("test_trigger_{list}_change");
        let seen = world.all("tools/call", json!({"name": name}));
        let notification = format!("notifications/{list}s/list_changed");
        assert_eq!(methods(&seen), [notification.as_str(), ""]);
    }
}

#[test]
fn prompts_are_filled_in() {
    let mut world = world();
    let arguments = json!({"arg1": "one", "arg2": "two"});
    let params = json!({"name": "test_prompt_with_arguments", "arguments": arguments});
    let prompt = world
        .request("prompts/get", params)
        .expect("a prompt")
        .to_string();
    assert!(prompt.contains("one") && prompt.contains("two"), "{prompt}");
    let params = json!({"name": "test_prompt_with_arguments", "arguments": {"arg1": "one"}});
    let error = world
        .request("prompts/get", params)
        .expect_err("arg2 is required");
    assert_eq!(error["code"], -32602);
    assert!(
        error["message"].as_str().expect("text").contains("arg2"),
        "{error}"
    );
    let params = json!({"name": "test_prompt_with_embedded_resource", "arguments": {"resourceUri": "test://x"}});
    let prompt = world.request("prompts/get", params).expect("a prompt");
    assert_eq!(
        prompt["messages"][0]["content"]["resource"]["uri"],
        "test://x"
    );
    let prompt = world
        .request("prompts/get", json!({"name": "test_prompt_with_image"}))
        .expect("a prompt");
    assert_eq!(prompt["messages"][0]["content"]["type"], "image");
    let error = world
        .request("prompts/get", json!({"name": "nope"}))
        .expect_err("unknown");
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32602), &json!("Unknown prompt: nope"))
    );
}

#[test]
fn arguments_are_completed() {
    let mut world = world();
    let reference = json!({"type": "ref/prompt", "name": "test_prompt_with_arguments"});
    let params = json!({"ref": reference, "argument": {"name": "arg1", "value": "test"}});
    let result = world
        .request("completion/complete", params)
        .expect("a completion");
    assert_eq!(
        result["completion"]["values"],
        json!(["test-one", "test-two"])
    );
    for reference in [
        json!({"type": "ref/prompt", "name": "nope"}),
        json!({"type": "ref/resource", "uri": "nope:x"}),
        json!({"type": "ref/tool", "name": "greet"}),
        json!({}),
    ] {
        let params = json!({"ref": reference, "argument": {"name": "arg1", "value": "p"}});
        let error = world
            .request("completion/complete", params)
            .expect_err("unknown");
        assert_eq!(error["code"], -32602, "{error}");
    }
}

#[test]
fn what_is_unknown_is_refused() {
    let mut world = world();
    let error = world
        .request("tools/call", json!({"name": "nope"}))
        .expect_err("unknown");
    assert_eq!(
        (&error["code"], &error["message"]),
        (&json!(-32602), &json!("Unknown tool: nope"))
    );
    let error = world
        .request("tools/list", json!({"cursor": "nope"}))
        .expect_err("no cursor");
    assert_eq!(error["code"], -32602);
    let error = world
        .request("tasks/get", json!({"taskId": "x"}))
        .expect_err("not in this era");
    assert_eq!(error["code"], -32601);
}
