//! Clients of 2026-07-28: conformance, server leg.

use serde_json::{Value, json};

use crate::world::{World, methods, text, tool, with_meta};

fn everything() -> Value {
    json!({"sampling": {}, "elicitation": {}, "roots": {"listChanged": true}})
}

fn call(world: &mut World, name: &str, more: Value) -> Result<Value, Value> {
    let mut params = tool(name, json!({}));
    for (key, value) in more.as_object().expect("an object") {
        params[key] = value.clone();
    }
    world.modern("tools/call", params, everything())
}

fn accepted(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

#[test]
fn what_is_offered_is_discovered() {
    let mut world = World::new();
    let found = world
        .modern("server/discover", json!({}), json!({}))
        .expect("a discovery");
    assert_eq!(
        found["capabilities"]["extensions"],
        json!({"io.modelcontextprotocol/tasks": {}})
    );
    assert!(found["capabilities"].get("tasks").is_none());
    for (list, member) in [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let result = world.modern(list, json!({}), json!({})).expect(list);
        assert!(!result[member].as_array().expect(member).is_empty());
        assert!(
            result["ttlMs"].is_u64() && result["cacheScope"].is_string(),
            "{list}"
        );
    }
}

#[test]
fn every_result_says_that_it_is_complete() {
    let mut world = World::new();
    let result = call(&mut world, "test_simple_text", json!({})).expect("a result");
    assert_eq!(result["resultType"], "complete");
    let params = json!({"uri": "test://static-text"});
    let read = world
        .modern("resources/read", params, json!({}))
        .expect("a resource");
    assert_eq!(
        (&read["resultType"], &read["ttlMs"], &read["cacheScope"]),
        (&json!("complete"), &json!(0), &json!("private"))
    );
    let params = json!({"name": "test_simple_prompt"});
    let prompt = world
        .modern("prompts/get", params, json!({}))
        .expect("a prompt");
    assert_eq!(prompt["resultType"], "complete");
    let params = json!({"uri": "test://no-such"});
    let error = world
        .modern("resources/read", params, json!({}))
        .expect_err("nothing there");
    assert_eq!(
        (&error["code"], &error["data"]["uri"]),
        (&json!(-32602), &json!("test://no-such"))
    );
}

#[test]
fn the_client_is_asked_by_a_result_and_comes_back() {
    let world = &mut World::new();
    let name = "test_input_required_result_elicitation";
    let asked = call(world, name, json!({})).expect("a question");
    assert_eq!(asked["resultType"], "input_required");
    assert_eq!(
        asked["inputRequests"]["user_name"]["method"],
        "elicitation/create"
    );
    assert!(
        asked.get("requestState").is_none() && asked.get("content").is_none(),
        "{asked}"
    );
    let inputs =
        json!({"inputResponses": {"user_name": accepted(json!({"name": "Alice"})), "more": 1}});
    let done = call(world, name, inputs).expect("a result");
    assert_eq!(
        (&done["resultType"], text(&done)),
        (&json!("complete"), "Hello, Alice!")
    );
    for odd in [
        json!({"inputResponses": {"wrong_key": accepted(json!({}))}}),
        json!({"inputResponses": {"user_name": 12345}}),
        json!({"inputResponses": null}),
        json!({"inputResponses": {}}),
    ] {
        let again = call(world, name, odd).expect("a question");
        assert_eq!(again["resultType"], "input_required", "{again}");
    }
    let error = call(world, name, json!({"inputResponses": [1]})).expect_err("no map");
    assert_eq!(error["code"], -32602);
}

#[test]
fn the_model_and_the_client_are_asked_the_same_way() {
    let world = &mut World::new();
    for (name, key, method, answer) in [
        (
            "test_input_required_result_sampling",
            "capital_question",
            "sampling/createMessage",
            json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Paris"}}),
        ),
        (
            "test_input_required_result_list_roots",
            "client_roots",
            "roots/list",
            json!({"roots": [{"uri": "file:///a"}]}),
        ),
    ] {
        let asked = call(world, name, json!({})).expect("a question");
        assert_eq!(asked["inputRequests"][key]["method"], method);
        let done = call(world, name, json!({"inputResponses": {key: answer}})).expect("a result");
        assert_eq!(done["resultType"], "complete", "{done}");
    }
}

#[test]
fn what_a_tool_remembers_comes_back_unaltered_or_not_at_all() {
    let world = &mut World::new();
    let name = "test_input_required_result_request_state";
    let asked = call(world, name, json!({})).expect("a question");
    let state = asked["requestState"].as_str().expect("a state").to_owned();
    let inputs = json!({"confirm": accepted(json!({"ok": true}))});
    let back = json!({"inputResponses": inputs, "requestState": state});
    let done = call(world, name, back.clone()).expect("a result");
    assert_eq!(text(&done), "state-ok");
    let altered = json!({"inputResponses": inputs, "requestState": format!("{state}-TAMPERED")});
    let error = call(world, name, altered).expect_err("altered");
    assert_eq!(error["code"], -32602);
    let error = call(
        world,
        "test_input_required_result_tampered_state",
        back.clone(),
    );
    assert_eq!(error.expect_err("of another tool")["code"], -32602);
    let error = call(world, name, json!({"requestState": 1})).expect_err("no text");
    assert_eq!(error["code"], -32602);
    let without = call(world, name, json!({"inputResponses": inputs})).expect("a question");
    assert_eq!(
        without["resultType"], "input_required",
        "an answer without its state is no answer"
    );
    world.pass(std::time::Duration::from_secs(10 * 60));
    let error = call(world, name, back).expect_err("too late");
    assert!(
        error["message"].as_str().expect("text").contains("expired"),
        "{error}"
    );
}

#[test]
fn each_round_has_its_own_state() {
    let world = &mut World::new();
    let name = "test_input_required_result_multi_round";
    let first = call(world, name, json!({})).expect("a question");
    let inputs = json!({"step1": accepted(json!({"name": "Alice"}))});
    let back = json!({"inputResponses": inputs, "requestState": first["requestState"]});
    let second = call(world, name, back).expect("another question");
    assert_eq!(second["resultType"], "input_required");
    assert!(second["inputRequests"].get("step2").is_some(), "{second}");
    assert_ne!(first["requestState"], second["requestState"]);
    let inputs = json!({"step2": accepted(json!({"color": "blue"}))});
    let back = json!({"inputResponses": inputs, "requestState": second["requestState"]});
    let third = call(world, name, back).expect("a result");
    assert_eq!(text(&third), "Alice likes blue.");
}

#[test]
fn a_prompt_may_ask_too() {
    let world = &mut World::new();
    let params = json!({"name": "test_input_required_result_prompt"});
    let asked = world
        .modern("prompts/get", params, everything())
        .expect("a question");
    assert_eq!(asked["resultType"], "input_required");
    let inputs = json!({"user_context": accepted(json!({"context": "haste"}))});
    let params = json!({"name": "test_input_required_result_prompt", "inputResponses": inputs});
    let done = world
        .modern("prompts/get", params, everything())
        .expect("a prompt");
    assert!(
        done["messages"][0]["content"]["text"]
            .as_str()
            .expect("text")
            .contains("haste")
    );
}

#[test]
fn only_what_this_request_declares_is_asked() {
    let world = &mut World::new();
    let params = tool("test_missing_capability", json!({}));
    let error = world
        .modern("tools/call", params.clone(), json!({}))
        .expect_err("not declared");
    assert_eq!(error["code"], -32021);
    assert_eq!(
        error["data"],
        json!({"requiredCapabilities": {"sampling": {}}})
    );
    let asked = world
        .modern("tools/call", params, everything())
        .expect("a question");
    assert_eq!(asked["resultType"], "input_required");
    let params = tool("test_input_required_result_capabilities", json!({}));
    let asked = world
        .modern("tools/call", params, json!({"sampling": {}}))
        .expect("a question");
    let requests = asked["inputRequests"].as_object().expect("questions");
    assert_eq!(requests.keys().collect::<Vec<_>>(), ["sample"]);
}

#[test]
fn log_messages_come_to_those_who_want_them() {
    let world = &mut World::new();
    let params = with_meta(tool("test_logging_tool", json!({})), json!({}));
    assert_eq!(methods(&world.all("tools/call", params.clone())), [""]);
    let mut params = params;
    params["_meta"]["io.modelcontextprotocol/logLevel"] = json!("info");
    assert_eq!(
        methods(&world.all("tools/call", params)),
        ["notifications/message", ""]
    );
}

#[test]
fn list_changes_come_on_the_streams_that_asked() {
    let world = &mut World::new();
    let filter = json!({"notifications": {"promptsListChanged": true}});
    let listen = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": with_meta(filter, json!({}))});
    let seen = world.say(listen);
    assert_eq!(methods(&seen), ["notifications/subscriptions/acknowledged"]);
    let trigger = |name| with_meta(tool(name, json!({})), json!({}));
    let seen = world.all("tools/call", trigger("test_trigger_tool_change"));
    assert_eq!(methods(&seen), [""]);
    let seen = world.all("tools/call", trigger("test_trigger_prompt_change"));
    assert_eq!(methods(&seen), ["notifications/prompts/list_changed", ""]);
    assert_eq!(
        seen[0]["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        "l"
    );
}
