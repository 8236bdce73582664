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
