//! The tasks extension: conformance, not scored.

use serde_json::{Value, json};

use crate::world::{World, text, tool};

fn capabilities() -> Value {
    json!({"elicitation": {}, "sampling": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
}

fn ask(world: &mut World, method: &str, params: Value) -> Result<Value, Value> {
    world.modern(method, params, capabilities())
}

fn start(world: &mut World, name: &str, arguments: Value) -> String {
    let task = ask(world, "tools/call", tool(name, arguments)).expect("a task");
    assert_eq!(task["resultType"], "task", "{task}");
    assert_eq!(task["status"], "working");
    for absent in [
        "task",
        "result",
        "error",
        "inputRequests",
        "requestState",
        "ttl",
    ] {
        assert!(task.get(absent).is_none(), "{absent} in {task}");
    }
    assert_eq!(task["createdAt"], task["lastUpdatedAt"]);
    assert!(task["ttlMs"].as_u64() > Some(0) && task["pollIntervalMs"].as_u64() > Some(0));
    task["taskId"].as_str().expect("an id").to_owned()
}

fn get(world: &mut World, task: &str) -> Value {
    let state = ask(world, "tasks/get", json!({"taskId": task})).expect("a task");
    assert_eq!(
        (&state["resultType"], &state["taskId"]),
        (&json!("complete"), &json!(task))
    );
    state
}

fn outcome(world: &mut World, task: &str) -> Value {
    world.wait();
    get(world, task)
}

#[test]
fn a_task_runs_to_its_end() {
    let world = &mut World::new();
    let task = start(world, "slow_compute", json!({"seconds": 2, "label": "x"}));
    assert_eq!(get(world, &task)["status"], "working");
    let done = outcome(world, &task);
    assert_eq!(done["status"], "completed");
    assert_eq!(text(&done["result"]), "Computed x in 2 s");
    assert_eq!(done["createdAt"], "2026-07-28T00:00:00.000Z");
    assert_eq!(done["lastUpdatedAt"], "2026-07-28T00:00:02.000Z");
    assert_eq!(get(world, &task), done, "and stays there");
}

#[test]
fn a_failure_of_the_tool_completes_and_an_error_fails() {
    let world = &mut World::new();
    let task = start(world, "failing_job", json!({}));
    let done = outcome(world, &task);
    assert_eq!(
        (&done["status"], &done["result"]["isError"]),
        (&json!("completed"), &json!(true))
    );
    let task = start(world, "protocol_error_job", json!({}));
    let done = outcome(world, &task);
    assert_eq!(done["status"], "failed");
    assert_eq!(
        done["error"],
        json!({"code": -32603, "message": "the job came to grief"})
    );
    assert!(done.get("result").is_none());
}

#[test]
fn a_cancelled_task_stays_cancelled() {
    let world = &mut World::new();
    let task = start(world, "slow_compute", json!({"seconds": 60, "label": "x"}));
    for _ in 0..2 {
        let ack = ask(world, "tasks/cancel", json!({"taskId": task})).expect("an acknowledgement");
        let members: Vec<&String> = ack.as_object().expect("an object").keys().collect();
        assert_eq!(members, ["_meta", "resultType"], "{ack}");
    }
    assert_eq!(get(world, &task)["status"], "cancelled");
    world.pass(std::time::Duration::from_secs(61));
    assert_eq!(get(world, &task)["status"], "cancelled");
    assert_eq!(world.local.open_calls(), 0);
}

#[test]
fn a_task_asks_and_goes_on() {
    let world = &mut World::new();
    let task = start(world, "confirm_delete", json!({"filename": "a.txt"}));
    let state = get(world, &task);
    assert_eq!(state["status"], "input_required");
    assert_eq!(
        state["inputRequests"]["confirm"]["method"],
        "elicitation/create"
    );
    let unknown = json!({"taskId": task, "inputResponses": {"unknown": {}}});
    ask(world, "tasks/update", unknown).expect("an acknowledgement");
    assert_eq!(get(world, &task)["status"], "input_required");
    let yes = json!({"confirm": {"action": "accept", "content": {"confirm": true}}});
    let ack = ask(
        world,
        "tasks/update",
        json!({"taskId": task, "inputResponses": yes}),
    );
    assert_eq!(ack.expect("an acknowledgement")["resultType"], "complete");
    let done = get(world, &task);
    assert_eq!(
        (&done["status"], text(&done["result"])),
        (&json!("completed"), "Deleted a.txt")
    );
}

#[test]
fn answers_may_come_one_by_one() {
    let world = &mut World::new();
    let task = start(world, "multi_input", json!({}));
    let keys = |state: &Value| -> Vec<String> {
        let requests = state["inputRequests"].as_object().expect("questions");
        requests.keys().cloned().collect()
    };
    assert_eq!(keys(&get(world, &task)), ["first", "second"]);
    let answer = json!({"action": "accept", "content": {"name": "x"}});
    let first = json!({"taskId": task, "inputResponses": {"first": answer}});
    ask(world, "tasks/update", first).expect("an acknowledgement");
    assert_eq!(keys(&get(world, &task)), ["second"]);
    let second = json!({"taskId": task, "inputResponses": {"second": answer}});
    ask(world, "tasks/update", second).expect("an acknowledgement");
    assert_eq!(get(world, &task)["status"], "completed");
}

#[test]
fn what_comes_before_the_task_is_asked_before_it() {
    let world = &mut World::new();
    let asked =
        ask(world, "tools/call", tool("test_tool_with_task", json!({}))).expect("a question");
    assert_eq!(asked["resultType"], "input_required");
    assert!(asked.get("taskId").is_none());
    let mut params = tool("test_tool_with_task", json!({}));
    params["inputResponses"] =
        json!({"user_name": {"action": "accept", "content": {"name": "Alice"}}});
    let task = ask(world, "tools/call", params).expect("a task");
    assert_eq!(task["resultType"], "task");
    let done = outcome(world, task["taskId"].as_str().expect("an id"));
    assert_eq!(text(&done["result"]), "Hello, Alice!");
}

#[test]
fn without_the_extension_there_are_no_tasks() {
    let world = &mut World::new();
    let plain = json!({"elicitation": {}});
    let params = tool("slow_compute", json!({"seconds": 1, "label": "x"}));
    let done = world
        .modern("tools/call", params, plain.clone())
        .expect("a result");
    assert_eq!(done["resultType"], "complete");
    let needed =
        json!({"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}});
    let error = world
        .modern("tools/call", tool("failing_job", json!({})), plain.clone())
        .expect_err("a task is required");
    assert_eq!((&error["code"], &error["data"]), (&json!(-32021), &needed));
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": "x", "inputResponses": {}});
        let error = world
            .modern(method, params, plain.clone())
            .expect_err(method);
        assert_eq!((&error["code"], &error["data"]), (&json!(-32021), &needed));
    }
}

#[test]
fn what_is_no_task_is_refused() {
    let world = &mut World::new();
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": "no-such", "inputResponses": {}});
        assert_eq!(
            ask(world, method, params).expect_err(method)["code"],
            -32602
        );
        assert_eq!(
            ask(world, method, json!({})).expect_err(method)["code"],
            -32602
        );
    }
    for method in ["tasks/result", "tasks/list"] {
        let error = ask(world, method, json!({"taskId": "x"})).expect_err(method);
        assert_eq!(error["code"], -32601);
    }
    let mut params = tool("greet", json!({"name": "legacy"}));
    params["task"] = json!({"ttl": 60_000, "pollInterval": 100});
    let done = ask(world, "tools/call", params).expect("a result");
    assert_eq!(
        (&done["resultType"], text(&done)),
        (&json!("complete"), "Hello, legacy!")
    );
}

/// Opens a listen stream with this filter; what comes back at once.
fn listen(world: &mut World, id: &str, filter: Value, capabilities: Value) -> Value {
    let params = crate::world::with_meta(json!({"notifications": filter}), capabilities);
    let seen = world.say(
        json!({"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": params}),
    );
    assert_eq!(seen.len(), 1, "{seen:?}");
    seen[0].clone()
}

/// What a notification says of a task, which must be what `tasks/get` says.
fn notified(world: &mut World, message: &Value, stream: &str, task: &str) -> Value {
    assert_eq!(message["method"], "notifications/tasks", "{message}");
    let mut told = message["params"].clone();
    let meta = told.as_object_mut().expect("an object").remove("_meta");
    assert_eq!(
        meta,
        Some(json!({"io.modelcontextprotocol/subscriptionId": stream}))
    );
    let mut state = get(world, task);
    let state_members = state.as_object_mut().expect("an object");
    state_members.remove("resultType");
    state_members.remove("_meta");
    assert_eq!(told, state);
    told
}

#[test]
fn a_listen_stream_tells_what_becomes_of_tasks() {
    let world = &mut World::new();
    let task = start(world, "slow_compute", json!({"seconds": 2, "label": "x"}));
    let other = start(world, "slow_compute", json!({"seconds": 90, "label": "y"}));
    let filter = json!({"taskIds": [task, "no-such", task], "toolsListChanged": false});
    let begun = listen(world, "s", filter, capabilities());
    assert_eq!(begun["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(begun["params"]["notifications"], json!({"taskIds": [task]}));
    let seen = world.wait();
    assert_eq!(seen.len(), 1, "one task, one stream: {seen:?}");
    assert_eq!(notified(world, &seen[0], "s", &task)["status"], "completed");

    // Another one, on two streams, cancelled by the client.
    for stream in ["t", "u"] {
        let begun = listen(world, stream, json!({"taskIds": [other]}), capabilities());
        assert_eq!(
            begun["params"]["notifications"],
            json!({"taskIds": [other]})
        );
    }
    let params = crate::world::with_meta(json!({"taskId": other}), capabilities());
    let seen =
        world.say(json!({"jsonrpc": "2.0", "id": 99, "method": "tasks/cancel", "params": params}));
    assert_eq!(seen.len(), 3, "{seen:?}");
    let told: Vec<&Value> = seen
        .iter()
        .filter(|message| message.get("method").is_some())
        .collect();
    for (message, stream) in told.into_iter().zip(["t", "u"]) {
        assert_eq!(
            notified(world, message, stream, &other)["status"],
            "cancelled"
        );
    }
}

#[test]
fn listening_to_tasks_takes_the_capability_and_names_no_strangers_task() {
    let world = &mut World::new();
    let task = start(world, "slow_compute", json!({"seconds": 2, "label": "x"}));
    let refused = listen(world, "s", json!({"taskIds": [task]}), json!({}));
    assert_eq!(refused["error"]["code"], -32021);
    let needed = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    assert_eq!(
        refused["error"]["data"],
        json!({"requiredCapabilities": needed})
    );
    // Nothing is left of it: the id is free again.
    let begun = listen(world, "s", json!({"taskIds": ["no-such"]}), capabilities());
    assert_eq!(begun["params"]["notifications"], json!({}));
    // Without tasks nothing is needed.
    let begun = listen(world, "t", json!({"taskIds": []}), json!({}));
    assert_eq!(begun["params"]["notifications"], json!({}));
    let wrong = listen(world, "u", json!({"taskIds": [1]}), capabilities());
    assert_eq!(wrong["error"]["code"], -32602);
    let message = wrong["error"]["message"].as_str().expect("a text");
    assert_eq!(message, "a task subscription is a string (found 1)");
    assert_eq!(world.wait().len(), 0, "nobody was granted anything");
}
