use std::time::Duration;

use super::*;
use crate::clock::Uptime;
use crate::entropy::Seeded;
use crate::gate::{Gate, Passage, Policy, ToolCall, Verdict};
use crate::ids::PeerId;

const MODERN: Revision = Revision::V2026_07_28;
const LEGACY: Revision = Revision::V2025_11_25;
const ALL: &str = r#"{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const NOTHING: &str = r#"{"type":"object"}"#;

const START: Now = Now {
    up: Uptime::ZERO,
    unix_ms: 0,
};

fn at(ms: u64) -> Now {
    Now {
        up: Uptime::from_millis(ms),
        unix_ms: i64::try_from(ms).expect("a test's time"),
    }
}

fn facts(revision: Revision, params: Option<&str>) -> CallFacts<'_> {
    CallFacts {
        client: PeerId(1),
        revision,
        principal: "ada",
        client_capabilities: ALL,
        wants_progress: true,
        params,
    }
}

/// A tool that the program answers, a task and a resource.
fn desk() -> Local {
    desk_with(Limits::DEFAULT)
}

fn desk_with(limits: Limits) -> Local {
    let mut registry = Registry::new();
    let slow = Tool::new("slow", "s", NOTHING).tasks(TaskSupport::Optional);
    registry.add_tool(slow).expect("a good tool");
    let resource = Resource::new("a:b", "b");
    registry.add_resource(resource).expect("a good resource");
    registry.declare_completions();
    let prompt = Prompt::new("p", "p");
    registry.add_prompt(prompt).expect("a good prompt");
    Local::new(registry, [1; 32], &limits)
}

/// Passes a call through an open gate.
fn call(desk: &mut Local, id: u64, tool: &str, facts: CallFacts<'_>) {
    call_with(desk, id, tool, None, facts);
}

fn call_with(desk: &mut Local, id: u64, tool: &str, hooked: Option<&str>, facts: CallFacts<'_>) {
    let mut gate = Gate::new(Policy::Embedder, &Limits::default());
    let params = CallParams::read(facts.params).ok();
    let arguments = params.and_then(|params| params.arguments).unwrap_or("{}");
    let _ = gate.admit(
        START,
        ToolCall {
            id: CallId(id),
            tool: tool.into(),
            arguments: arguments.into(),
            server: "t".into(),
            wants_progress: facts.wants_progress,
            ..ToolCall::default()
        },
    );
    let verdict = Verdict::Allow {
        arguments: hooked.map(Box::from),
    };
    let Some(Passage::Open(gated)) = gate.resolve(START, CallId(id), verdict) else {
        panic!("the gate is open")
    };
    desk.call(START, &gated, facts);
}

fn resolve(desk: &mut Local, now: Now, id: u64, reply: LocalReply) {
    desk.resolve(now, CallId(id), reply, &mut Seeded::new(id));
}

fn outputs(desk: &mut Local) -> Vec<LocalOutput> {
    std::iter::from_fn(|| desk.poll()).collect()
}

/// The one request the program gets.
fn asked(desk: &mut Local) -> LocalRequest {
    match outputs(desk).pop() {
        Some(LocalOutput::Ask(request)) => request,
        other => panic!("no request but {other:?}"),
    }
}

/// The one answer.
fn answer(desk: &mut Local) -> LocalAnswer {
    let answers: Vec<LocalAnswer> = outputs(desk)
        .into_iter()
        .filter_map(|output| {
            let LocalOutput::Answer { answer, .. } = output else {
                return None;
            };
            Some(answer)
        })
        .collect();
    assert_eq!(answers.len(), 1, "{answers:?}");
    answers.into_iter().next().expect("one")
}

fn error(desk: &mut Local) -> RpcError {
    let answer = answer(desk);
    let LocalAnswer::Error(error) = answer else {
        panic!("no error but {answer:?}")
    };
    error
}

fn ask_name(key: &str) -> LocalReply {
    LocalReply::ask([InputRequest::form(key, "?", NOTHING)])
}

/// Starts a task; its id.
fn start_task(desk: &mut Local, id: u64, start: TaskStart) -> String {
    call(desk, id, "slow", facts(MODERN, None));
    assert!(asked(desk).context.may_be_task);
    resolve(desk, START, id, LocalReply::Task(start));
    task_id(&answer(desk))
}

fn task_id(answer: &LocalAnswer) -> String {
    let LocalAnswer::Typed("task", task) = answer else {
        panic!("no task but {answer:?}")
    };
    let id = member(task, "taskId").expect("an id");
    id.trim_matches('"').to_owned()
}

fn task_request(desk: &mut Local, now: Now, method: &str, task: &str, more: &str) -> LocalAnswer {
    let params = format!(r#"{{"taskId":"{task}"{more}}}"#);
    desk.query(now, CallId(999), method, facts(MODERN, Some(&params)));
    answer(desk)
}

fn status(desk: &Local, task: &str) -> String {
    let detail = desk.task(task, "ada").expect("a task");
    let status = member(&detail, "status").expect("a status");
    status.trim_matches('"').to_owned()
}

#[test]
fn a_bad_answer_costs_its_call_and_nothing_else() {
    let mut desk = desk();
    let long = InputRequest::form("k", "?", NOTHING);
    let bad = [
        LocalReply::Result("[]".to_owned()),
        LocalReply::Result("{".to_owned()),
        LocalReply::Result(String::new()),
        LocalReply::Error(RpcError {
            data: Some("{".to_owned()),
            ..RpcError::new(ErrorCode::InvalidParams, "x")
        }),
        LocalReply::ask([]),
        LocalReply::ask([long.clone(), long.clone()]),
        LocalReply::ask((0..17).map(|i| InputRequest::roots(&i.to_string()))),
        LocalReply::ask([InputRequest::sampling("k", "[]")]),
        LocalReply::ask([InputRequest::sampling("k", "{}}")]),
        LocalReply::ask_with([long], "x".repeat(64 * 1024 + 1)),
    ];
    for (id, reply) in (1..).zip(bad) {
        for revision in [LEGACY, MODERN] {
            call(&mut desk, id, "slow", facts(revision, None));
            let _ = asked(&mut desk);
            resolve(&mut desk, START, id, reply.clone());
            let error = error(&mut desk);
            assert_eq!(error.code, ErrorCode::InternalError, "{reply:?}");
            assert!(error.message.starts_with("slow "), "{}", error.message);
        }
    }
    call(&mut desk, 99, "slow", facts(MODERN, None));
    let _ = asked(&mut desk);
    resolve(&mut desk, START, 99, LocalReply::text("ok"));
    assert!(matches!(answer(&mut desk), LocalAnswer::Result(_)));
    assert_eq!(desk.open_calls(), 0);
}

#[test]
fn a_call_gets_one_answer() {
    let mut desk = desk();
    call(&mut desk, 1, "slow", facts(MODERN, None));
    let _ = asked(&mut desk);
    resolve(&mut desk, START, 1, LocalReply::text("a"));
    resolve(&mut desk, START, 1, LocalReply::text("b"));
    desk.cancel(CallId(1));
    let _ = answer(&mut desk);
    call(&mut desk, 2, "slow", facts(MODERN, None));
    let _ = asked(&mut desk);
    desk.cancel(CallId(2));
    desk.cancel(CallId(2));
    resolve(&mut desk, START, 2, LocalReply::text("b"));
    let left = outputs(&mut desk);
    assert!(
        matches!(left[..], [LocalOutput::Cancelled(CallId(2))]),
        "{left:?}"
    );
}

#[test]
fn what_is_asked_of_a_client_stays_one_round() {
    let mut desk = desk();
    call(&mut desk, 1, "slow", facts(LEGACY, None));
    let _ = asked(&mut desk);
    resolve(&mut desk, START, 1, ask_name("a"));
    assert_eq!(outputs(&mut desk).len(), 1);
    // A second question meanwhile is dropped; an answer of a question that was not asked, too.
    resolve(&mut desk, START, 1, ask_name("b"));
    desk.handle_answer(START, CallId(1), "b", Ok("{}".into()));
    assert!(outputs(&mut desk).is_empty());
    desk.handle_answer(START, CallId(1), "a", Ok(r#"{"action":"accept"}"#.into()));
    let again = asked(&mut desk);
    assert_eq!(again.context.input("a"), Some(r#"{"action":"accept"}"#));
    assert_eq!(again.context.accepted("a"), Some("{}"));
    // The program may also give up on the client.
    resolve(&mut desk, START, 1, ask_name("c"));
    let _ = outputs(&mut desk);
    resolve(&mut desk, START, 1, LocalReply::failed("too slow"));
    let _ = answer(&mut desk);
    desk.handle_answer(START, CallId(1), "c", Ok("{}".into()));
    assert!(outputs(&mut desk).is_empty());
}

#[test]
fn rounds_are_counted() {
    let mut registry = Registry::new();
    let looping = Tool::new("loop", "l", NOTHING).answered_by(|_| LocalReply::ask_with([], "x"));
    registry.add_tool(looping).expect("a good tool");
    let mut desk = Local::new(registry, [1; 32], &Limits::default());
    call(&mut desk, 1, "loop", facts(LEGACY, None));
    let error = error(&mut desk);
    assert!(
        error.message.contains("input_rounds_max 16"),
        "{}",
        error.message
    );
    // A stateless client decides itself how often it tries again.
    call(&mut desk, 2, "loop", facts(MODERN, None));
    assert!(matches!(
        answer(&mut desk),
        LocalAnswer::Typed("input_required", _)
    ));
}

#[test]
fn a_closure_cannot_start_a_task() {
    let mut registry = Registry::new();
    let hasty = Tool::new("hasty", "h", NOTHING)
        .tasks(TaskSupport::Optional)
        .answered_by(|_| LocalReply::Task(TaskStart::default()));
    registry.add_tool(hasty).expect("a good tool");
    let mut desk = Local::new(registry, [1; 32], &Limits::default());
    call(&mut desk, 1, "hasty", facts(MODERN, None));
    let LocalAnswer::Result(result) = answer(&mut desk) else {
        panic!("no result")
    };
    assert!(result.contains("isError"), "{result}");
}

#[test]
fn a_state_belongs_to_one_principal_one_request_and_any_instance() {
    let params = |state: &str| {
        format!(r#"{{"name":"slow","arguments":{{"file":"a"}},"requestState":"{state}"}}"#)
    };
    let first = r#"{"name":"slow","arguments":{"file":"a"}}"#;
    let mut one = desk();
    call(&mut one, 1, "slow", facts(MODERN, Some(first)));
    let _ = asked(&mut one);
    resolve(
        &mut one,
        START,
        1,
        LocalReply::ask_with([InputRequest::roots("r")], "s"),
    );
    let LocalAnswer::Typed("input_required", result) = answer(&mut one) else {
        panic!("no question")
    };
    let state = member(&result, "requestState").expect("a state");
    let again = params(state.trim_matches('"'));
    let mut other = desk();
    call(&mut other, 1, "slow", facts(MODERN, Some(&again)));
    assert_eq!(asked(&mut other).context.state.as_deref(), Some("s"));
    let eve = CallFacts {
        principal: "eve",
        ..facts(MODERN, Some(&again))
    };
    call(&mut other, 2, "slow", eve);
    assert_eq!(error(&mut other).code, ErrorCode::InvalidParams);
    let swapped = again.replace(r#""a""#, r#""b""#);
    call(&mut other, 3, "slow", facts(MODERN, Some(&swapped)));
    assert_eq!(error(&mut other).code, ErrorCode::InvalidParams);
    // What the gate made of the arguments does not count: the client knows nothing of it.
    call_with(
        &mut other,
        4,
        "slow",
        Some(r#"{"file":"c"}"#),
        facts(MODERN, Some(&again)),
    );
    let request = asked(&mut other);
    assert_eq!(request.kind.arguments(), r#"{"file":"c"}"#);
    assert_eq!(request.context.state.as_deref(), Some("s"));
}

#[test]
fn the_handshake_era_takes_no_answers_from_params() {
    let params = r#"{"name":"slow","inputResponses":{"a":{}},"requestState":"x"}"#;
    let mut desk = desk();
    call(&mut desk, 1, "slow", facts(LEGACY, Some(params)));
    let context = asked(&mut desk).context;
    assert_eq!((context.inputs, context.state), (None, None));
    assert!(!context.may_be_task, "tasks are of the stateless era");
}

#[test]
fn a_tool_that_was_taken_away_is_unknown() {
    let mut desk = desk();
    assert!(desk.owns("slow"));
    assert!(desk.registry_mut().remove_tool("slow"));
    assert!(!desk.owns("slow"));
    call(&mut desk, 1, "slow", facts(MODERN, None));
    let error = error(&mut desk);
    assert_eq!(
        (error.code, &*error.message),
        (ErrorCode::InvalidParams, "Unknown tool: slow")
    );
}

#[test]
fn a_resource_says_how_long_it_may_be_kept() {
    let mut desk = desk();
    let params = Some(r#"{"uri":"a:b"}"#);
    for (revision, given, wanted) in [
        (MODERN, "{}", r#"{"ttlMs":0,"cacheScope":"private"}"#),
        (
            MODERN,
            r#" { "contents":[]}"#,
            r#"{"ttlMs":0,"cacheScope":"private","contents":[]}"#,
        ),
        (
            MODERN,
            r#"{"contents":[],"ttlMs":5,"cacheScope":"public"}"#,
            r#"{"contents":[],"ttlMs":5,"cacheScope":"public"}"#,
        ),
        (LEGACY, r#"{"contents":[]}"#, r#"{"contents":[]}"#),
    ] {
        desk.query(START, CallId(1), "resources/read", facts(revision, params));
        let _ = asked(&mut desk);
        resolve(&mut desk, START, 1, LocalReply::Result(given.to_owned()));
        let answer = answer(&mut desk);
        let (LocalAnswer::Result(result) | LocalAnswer::Typed("complete", result)) = &answer else {
            panic!("{answer:?}")
        };
        assert_eq!(result, wanted);
    }
}

#[test]
fn a_completion_cannot_ask_the_client() {
    let mut desk = desk();
    let params = r#"{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}}"#;
    desk.query(
        START,
        CallId(1),
        "completion/complete",
        facts(MODERN, Some(params)),
    );
    let _ = asked(&mut desk);
    resolve(&mut desk, START, 1, ask_name("a"));
    assert_eq!(error(&mut desk).code, ErrorCode::InternalError);
}

#[test]
fn a_method_that_is_not_offered_does_not_exist() {
    let mut empty = Local::new(Registry::new(), [1; 32], &Limits::default());
    for method in [
        "resources/read",
        "prompts/get",
        "completion/complete",
        "tasks/get",
        "tools/call",
        "x",
    ] {
        empty.query(START, CallId(1), method, facts(MODERN, None));
        assert_eq!(
            error(&mut empty).code,
            ErrorCode::MethodNotFound,
            "{method}"
        );
    }
    for list in [
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
    ] {
        let error = empty.list(list, None).expect_err(list);
        assert_eq!(error.code, ErrorCode::MethodNotFound);
    }
    assert_eq!(empty.capabilities().modern, "");
    let mut desk = desk();
    desk.query(
        START,
        CallId(1),
        "tasks/get",
        facts(LEGACY, Some(r#"{"taskId":"x"}"#)),
    );
    assert_eq!(error(&mut desk).code, ErrorCode::MethodNotFound);
}

#[test]
fn a_page_of_a_person_is_finished_by_its_id() {
    let mut desk = desk();
    call(&mut desk, 7, "slow", facts(LEGACY, None));
    let _ = asked(&mut desk);
    resolve(
        &mut desk,
        START,
        7,
        LocalReply::ask([InputRequest::url("p", "?", "https://a.b")]),
    );
    let Some(LocalOutput::AskClient { params, .. }) = desk.poll() else {
        panic!("no question")
    };
    assert_eq!(
        params,
        r#"{"mode":"url","message":"?","url":"https://a.b","elicitationId":"7-p"}"#
    );
    desk.complete_elicitation(CallId(7), "p");
    let Some(LocalOutput::NotifyClient { params, .. }) = desk.poll() else {
        panic!("no notification")
    };
    assert_eq!(params, r#"{"elicitationId":"7-p"}"#);
    call(&mut desk, 8, "slow", facts(MODERN, None));
    let _ = asked(&mut desk);
    desk.complete_elicitation(CallId(8), "p");
    assert!(desk.poll().is_none(), "2026-07-28 has no such notification");
}

#[test]
fn what_is_said_of_a_call_ends_with_it() {
    let mut desk = desk();
    call(&mut desk, 1, "slow", facts(MODERN, None));
    let _ = asked(&mut desk);
    desk.progress(START, CallId(1), 1, Some(2), "m");
    desk.log(CallId(1), LogLevel::Info, "l", r#""x""#);
    desk.log(CallId(1), LogLevel::Info, "l", "x");
    desk.close_stream(CallId(1));
    let said = outputs(&mut desk);
    assert!(
        matches!(
            said[..],
            [
                LocalOutput::Progress { progress: 1, .. },
                LocalOutput::Log { .. },
                LocalOutput::CloseStream { .. }
            ]
        ),
        "{said:?}"
    );
    resolve(&mut desk, START, 1, LocalReply::text("done"));
    let _ = answer(&mut desk);
    desk.progress(START, CallId(1), 2, Some(2), "m");
    desk.log(CallId(1), LogLevel::Info, "l", r#""x""#);
    desk.close_stream(CallId(1));
    assert!(desk.poll().is_none());
}

#[test]
fn a_task_says_what_it_is_doing_in_its_state_only() {
    let mut desk = desk();
    let task = start_task(&mut desk, 1, TaskStart::default());
    desk.log(CallId(1), LogLevel::Info, "l", r#""x""#);
    desk.close_stream(CallId(1));
    desk.cancel(CallId(1));
    assert!(desk.poll().is_none());
    desk.progress(at(5), CallId(1), 1, None, "half way");
    assert!(matches!(desk.poll(), Some(LocalOutput::TaskChanged { .. })));
    let detail = desk.task(&task, "ada").expect("a task");
    assert!(detail.contains(r#""statusMessage":"half way""#), "{detail}");
    assert!(
        detail.contains(r#""lastUpdatedAt":"1970-01-01T00:00:00.005Z""#),
        "{detail}"
    );
}

#[test]
fn a_task_belongs_to_its_principal() {
    let mut desk = desk();
    let task = start_task(&mut desk, 1, TaskStart::default());
    assert!(desk.task(&task, "eve").is_none());
    let params = format!(r#"{{"taskId":"{task}","inputResponses":{{}}}}"#);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let eve = CallFacts {
            principal: "eve",
            ..facts(MODERN, Some(&params))
        };
        desk.query(START, CallId(2), method, eve);
        assert_eq!(error(&mut desk).code, ErrorCode::InvalidParams, "{method}");
    }
    assert_eq!(status(&desk, &task), "working");
}

#[test]
fn a_task_asks_under_a_new_key_each_time() {
    let mut desk = desk();
    let task = start_task(&mut desk, 1, TaskStart::default());
    resolve(&mut desk, START, 1, ask_name("name"));
    assert_eq!(status(&desk, &task), "input_required");
    let odd = r#","inputResponses":{"name":1,"x":{}}"#;
    let ack = task_request(&mut desk, START, "tasks/update", &task, odd);
    assert_eq!(ack, LocalAnswer::Result("{}".to_owned()));
    assert_eq!(status(&desk, &task), "input_required");
    let params =
        format!(r#"{{"taskId":"{task}","inputResponses":{{"name":{{"action":"decline"}}}}}}"#);
    desk.query(
        START,
        CallId(2),
        "tasks/update",
        facts(MODERN, Some(&params)),
    );
    let mut outputs = outputs(&mut desk);
    outputs.retain(|output| matches!(output, LocalOutput::Ask(_)));
    let Some(LocalOutput::Ask(again)) = outputs.pop() else {
        panic!("the program does not go on")
    };
    assert_eq!((again.call, again.context.may_be_task), (CallId(1), false));
    assert_eq!(again.context.input("name"), Some(r#"{"action":"decline"}"#));
    resolve(&mut desk, START, 1, ask_name("name"));
    let detail = desk.task(&task, "ada").expect("a task");
    assert!(detail.contains(r#""inputRequests":{"name-2":"#), "{detail}");
    let update = r#","inputResponses":{"name":{"action":"accept"}}"#;
    let _ = task_request(&mut desk, START, "tasks/update", &task, update);
    assert_eq!(
        status(&desk, &task),
        "input_required",
        "that key was of the first round"
    );
    let bad = task_request(
        &mut desk,
        START,
        "tasks/update",
        &task,
        r#","inputResponses":[]"#,
    );
    assert!(matches!(bad, LocalAnswer::Error(_)));
}

#[test]
fn a_task_that_needs_what_the_client_does_not_offer_fails() {
    let mut desk = desk();
    let poor = CallFacts {
        client_capabilities: r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
        ..facts(MODERN, None)
    };
    call(&mut desk, 1, "slow", poor);
    let _ = asked(&mut desk);
    resolve(&mut desk, START, 1, LocalReply::Task(TaskStart::default()));
    let task = task_id(&answer(&mut desk));
    resolve(&mut desk, START, 1, ask_name("a"));
    let detail = desk.task(&task, "ada").expect("a task");
    assert!(
        detail.contains(r#""status":"failed""#) && detail.contains("-32021"),
        "{detail}"
    );
}

#[test]
fn a_task_lives_as_long_as_it_says() {
    let mut desk = desk();
    let start = TaskStart {
        ttl: Some(Duration::from_secs(5)),
        ..TaskStart::default()
    };
    let task = start_task(&mut desk, 1, start);
    assert_eq!(
        desk.next_deadline().map(|d| d.at),
        Some(Uptime::from_millis(5_000))
    );
    desk.handle_timeout(at(4_999));
    assert_eq!(status(&desk, &task), "working");
    desk.handle_timeout(at(5_000));
    let left = outputs(&mut desk);
    assert!(
        matches!(left[..], [LocalOutput::Cancelled(CallId(1))]),
        "{left:?}"
    );
    assert!(matches!(
        task_request(&mut desk, at(5_000), "tasks/get", &task, ""),
        LocalAnswer::Error(_)
    ));
    resolve(&mut desk, at(5_001), 1, LocalReply::text("late"));
    assert!(desk.poll().is_none());
    assert_eq!((desk.next_deadline(), desk.open_calls()), (None, 0));
}

#[test]
fn finished_tasks_make_room_and_unfinished_ones_do_not() {
    let mut desk = desk_with(Limits {
        tasks_max: 2,
        ..Limits::DEFAULT
    });
    let first = start_task(&mut desk, 1, TaskStart::default());
    let second = start_task(&mut desk, 2, TaskStart::default());
    call(&mut desk, 3, "slow", facts(MODERN, None));
    let _ = asked(&mut desk);
    resolve(&mut desk, START, 3, LocalReply::Task(TaskStart::default()));
    let refused = error(&mut desk);
    assert!(
        refused.message.contains("limit tasks_max 2"),
        "{}",
        refused.message
    );
    resolve(&mut desk, START, 2, LocalReply::text("done"));
    let third = start_task(&mut desk, 4, TaskStart::default());
    assert!(
        desk.task(&second, "ada").is_none(),
        "the finished one made room"
    );
    assert_eq!(
        (status(&desk, &first), status(&desk, &third)),
        ("working".into(), "working".into())
    );
}

#[test]
fn results_are_kept_up_to_a_limit() {
    let mut desk = desk_with(Limits {
        task_results_bytes_max: 100,
        ..Limits::DEFAULT
    });
    let tasks: Vec<String> = (1..=3)
        .map(|id| start_task(&mut desk, id, TaskStart::default()))
        .collect();
    for id in 1..=3 {
        resolve(&mut desk, START, id, LocalReply::text("0123456789"));
    }
    let kept = |task: &String| desk.task(task, "ada").is_some();
    assert_eq!(
        tasks.iter().map(kept).collect::<Vec<_>>(),
        [false, true, true]
    );
}

#[test]
fn closing_answers_everyone() {
    let mut desk = desk();
    let task = start_task(&mut desk, 4, TaskStart::default());
    call(&mut desk, 1, "slow", facts(MODERN, None));
    desk.query(
        START,
        CallId(2),
        "resources/read",
        facts(MODERN, Some(r#"{"uri":"a:b"}"#)),
    );
    call(&mut desk, 3, "slow", facts(LEGACY, None));
    resolve(&mut desk, START, 3, ask_name("a"));
    let _ = outputs(&mut desk);
    desk.close(START, "going away");
    let answers = outputs(&mut desk)
        .into_iter()
        .filter(|output| matches!(output, LocalOutput::Answer { .. }))
        .count();
    assert_eq!((answers, desk.open_calls()), (3, 0));
    assert_eq!(status(&desk, &task), "completed");
}

#[test]
fn a_long_list_comes_in_pages() {
    let mut registry = Registry::new();
    for number in 0..1_500 {
        let tool = Tool::new(&format!("t{number}"), "t", NOTHING);
        registry.add_tool(tool).expect("a good tool");
    }
    let mut desk = Local::new(registry, [1; 32], &Limits::default());
    let first = desk.list("tools/list", None).expect("a page").into_owned();
    let cursor = member(&first, "nextCursor").expect("more").to_owned();
    let params = format!(r#"{{"cursor":{cursor}}}"#);
    let second = desk.list("tools/list", Some(&params)).expect("a page");
    assert!(first.ends_with(&format!(
        r#""inputSchema":{{"type":"object"}}}}],"nextCursor":{cursor}}}"#
    )));
    assert!(
        second.starts_with(r#"{"tools":[{"name":"t1000","#),
        "{}",
        &second[..60]
    );
    assert!(member(&second, "nextCursor").is_none());
    let prompts = desk.list("prompts/list", Some(&params));
    assert_eq!(
        prompts.expect_err("there are none").code,
        ErrorCode::MethodNotFound
    );
}

#[test]
fn a_task_is_listened_to_by_its_principal_only() {
    let mut desk = desk();
    let task = start_task(&mut desk, 1, TaskStart::default());
    let asked = BTreeSet::from([task.clone(), "other".to_owned()]);
    let granted = |principal| desk.grant_tasks(asked.clone(), principal, ALL);
    assert_eq!(granted("ada"), Ok(BTreeSet::from([task.clone()])));
    assert_eq!(granted("eve"), Ok(BTreeSet::new()));
    assert_eq!(desk.task(&task, "eve"), None);
    let error = desk
        .grant_tasks(asked.clone(), "ada", "{}")
        .expect_err("no capability");
    assert_eq!(error.code, ErrorCode::MissingClientCapability);
}

#[test]
fn what_a_closure_gives_is_made_a_result() {
    let mut registry = Registry::new();
    let tool = Tool::new("count", "c", NOTHING).answered_with(|arguments| match arguments {
        "{}" => Err("nothing to count".to_owned()),
        arguments => Ok(format!(r#"{{"n": {}}}"#, arguments.len())),
    });
    registry.add_tool(tool).expect("a good tool");
    let mut desk = Local::new(registry, [1; 32], &Limits::DEFAULT);
    for (arguments, expected) in [
        (
            r#"{"a":1}"#,
            r#"{"content":[{"type":"text","text":"{\"n\":7}"}]}"#,
        ),
        (
            "{}",
            r#"{"content":[{"type":"text","text":"Tool error: nothing to count"}],"isError":true}"#,
        ),
    ] {
        let params = format!(r#"{{"name":"count","arguments":{arguments}}}"#);
        call(&mut desk, 1, "count", facts(LEGACY, Some(&params)));
        let LocalAnswer::Result(result) = answer(&mut desk) else {
            panic!("no result")
        };
        assert_eq!(result, expected);
    }
}
