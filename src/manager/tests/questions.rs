//! Whose a question is, what servers are told of their client, and what is refused.

use super::*;
use crate::manager::error::FailureKind;
use crate::protocol::error::RpcError;

const META: &str = "io.modelcontextprotocol/clientCapabilities";

fn parallel(world: &mut World) {
    world.configure(&[("a", r#"{"command":"a","supportsParallelToolCalls":true}"#)]);
}

/// Calls are left open.
fn silent(heard: &Heard) -> Vec<Act> {
    match heard.method.as_str() {
        "tools/call" => Vec::new(),
        _ => legacy(heard, &["t"]),
    }
}

fn asks(world: &mut World, id: u64, method: &str) {
    let question = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}});
    world.speak("a", question);
}

/// The last question, and whose it is.
fn question(world: &World) -> Option<(QuestionId, Option<TicketId>)> {
    let mut last = None;
    for output in &world.told {
        if let ManagerOutput::Question { id, ticket, .. } = output {
            last = Some((*id, *ticket));
        }
    }
    last
}

fn initialized_with(world: &World) -> Vec<Value> {
    let heard = world.heard.iter().map(|(_, heard)| heard);
    let opened = heard.filter(|heard| heard.method == "initialize");
    opened
        .map(|heard| heard.params["capabilities"].clone())
        .collect()
}

#[test]
fn on_lines_a_question_is_of_the_one_request_that_is_open() {
    let mut world = World::new(&["a"]);
    parallel(&mut world);
    world.server("a", silent);
    let runtime = world.connected();
    asks(&mut world, 1, "sampling/createMessage");
    assert_eq!(question(&world).map(|(_, of)| of), Some(None), "of none");
    let first = world.call(runtime, "a__t");
    asks(&mut world, 2, "sampling/createMessage");
    assert_eq!(question(&world).map(|(_, of)| of), Some(Some(first)));
    world.call(runtime, "a__t");
    asks(&mut world, 3, "sampling/createMessage");
    assert_eq!(
        question(&world).map(|(_, of)| of),
        Some(None),
        "of one of two"
    );
}

#[test]
fn a_server_is_told_what_its_own_client_has_declared() {
    let mut world = World::new(&["a", "b"]);
    world.configure(&[
        ("a", r#"{"command":"a"}"#),
        ("b", r#"{"command":"b","isolation":"shared"}"#),
    ]);
    let declared = r#"{"roots":{"listChanged":true},"x":1.0}"#;
    let now = world.now();
    let runtime = world
        .manager
        .open_runtime_as(now, Prefix::Always, declared.to_owned())
        .expect("room");
    world.connect(runtime);
    let settings = json!({"sampling": {}});
    let mut told = initialized_with(&world);
    told.sort_by_key(Value::to_string);
    let declared: Value = serde_json::from_str(declared).expect("JSON");
    assert_eq!(told, [declared, settings]);
}

#[test]
fn what_is_not_declared_is_refused_and_told_once() {
    let mut world = World::new(&["a"]);
    world.connected();
    for id in 1..=2 {
        asks(&mut world, id, "roots/list");
    }
    asks(&mut world, 3, "vendor/ask");
    assert_eq!(question(&world), None);
    let refused = world.heard.iter().filter(|(_, heard)| {
        heard.message["error"]["code"] == -32601 && heard.message.get("method").is_none()
    });
    assert_eq!(refused.count(), 3);
    // The made-up server answers our refusals, which is told as well.
    let mut told = Vec::new();
    for output in &world.told {
        if let ManagerOutput::Diagnostic { diagnostic, .. } = output {
            told.extend(Some(diagnostic).filter(|one| one.code == Some("undeclared-question")));
        }
    }
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].message.contains("server a asks for roots/list"),
        "{}",
        told[0].message
    );
}

/// A server of the stateless era whose tool needs this first.
fn stateless(method: &'static str) -> impl FnMut(&Heard) -> Vec<Act> {
    move |heard| match heard.method.as_str() {
        "server/discover" => vec![result(
            heard,
            json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
                   "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}),
        )],
        "tools/list" => {
            let tool = json!({"name": "t", "inputSchema": {"type": "object"}});
            let tools = json!({"resultType": "complete", "tools": [tool], "ttlMs": 0,
                "cacheScope": "private"});
            vec![result(heard, tools)]
        }
        _ => {
            let wants = json!({"resultType": "input_required",
                "inputRequests": {"k": {"method": method, "params": {}}}});
            vec![result(heard, wants)]
        }
    }
}

#[test]
fn a_request_says_for_itself_what_its_client_has_declared() {
    let mut world = World::new(&["a"]);
    world.server("a", stateless("roots/list"));
    let runtime = world.connected();
    let can = Options {
        capabilities: Some(r#"{"roots":{}}"#.into()),
        ..Options::default()
    };
    let asked = world.call_with(runtime, "a__t", "{}", can);
    world.run(0);
    let (id, of) = question(&world).expect("a question");
    assert_eq!(of, Some(asked));
    let calls = world
        .heard
        .iter()
        .filter(|(_, heard)| heard.method == "tools/call");
    let told: Vec<&Value> = calls
        .map(|(_, heard)| &heard.params["_meta"][META])
        .collect();
    assert_eq!(told, [&json!({"roots": {}})]);

    // What the settings say is not what this request says.
    let cannot = world.call(runtime, "a__t");
    world.run(0);
    let now = world.now();
    let refusal = RpcError::new(crate::protocol::error::ErrorCode::Upstream(-1), "no");
    world.manager.answer(now, id, Err(refusal));
    world.run(0);
    let failed = world.failure(cannot);
    assert_eq!(failed.kind, FailureKind::Unanswered);
    assert_eq!(failed.code(), -32021);
    assert!(failed.message.contains("roots/list"), "{}", failed.message);
    // The client's own error is no failure of the server: it is not paused for it.
    let failed = world.failure(asked);
    assert_eq!((failed.kind, failed.code()), (FailureKind::Unanswered, -1));
    for _ in 0..5 {
        let again = world.call(runtime, "a__t");
        world.run(0);
        assert_eq!(world.failure(again).kind, FailureKind::Unanswered);
    }
}

#[test]
fn a_state_that_the_servers_revision_does_not_know_is_refused() {
    let mut world = World::new(&["a"]);
    let runtime = world.connected();
    let now = world.now();
    let params = r#"{"name":"p","requestState":"s"}"#;
    for (raw_questions, refused) in [(true, true), (false, false)] {
        let options = Options {
            raw_questions,
            ..Options::default()
        };
        let asked = ("prompts/get", Some(params));
        let ticket = world
            .manager
            .request(now, runtime, &key("a"), asked, options);
        world.run(0);
        let failed = world.failure(ticket);
        assert_eq!(failed.code() == -32602, refused, "{}", failed.message);
        assert_eq!(failed.message.contains("requestState"), refused);
    }
    assert_eq!(world.count("a", "prompts/get"), 1);
}

#[test]
fn a_runtime_with_an_open_question_is_not_idle() {
    let mut world = World::new(&["a"]);
    world.connected();
    asks(&mut world, 1, "sampling/createMessage");
    let (id, _) = question(&world).expect("a question");
    world.run(700_000);
    assert_eq!(world.running(), 1);
    let now = world.now();
    world.manager.answer(now, id, Ok("{}"));
    world.run(599_000);
    assert_eq!(world.running(), 1, "from the answer on");
    world.run(2_000);
    assert_eq!(world.running(), 0);
}
