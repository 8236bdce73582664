//! One call and its end: b01, c07, c08, c09, c11.

use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::era::in_era;
use crate::world::{ERAS, Heard, Run, World, case};

/// `call s echo` on a server with these steps and keys. One that is busy sleeping has time to read
/// what it was sent, and the end of its input, before it is killed.
#[track_caller]
fn call(world: &World, era: &str, steps: &Value, mut more: Value) -> Run {
    more["protocol"] = era.into();
    let config = world.config_with(
        json!({"s": world.entry("s", steps, more)}),
        json!({"limits": {"child_grace_interval_ms": 3_000}}),
    );
    world.run(&["call", "s", "echo", "--config", &config, "--json"])
}

/// The steps of an input with another answer to `tools/call`.
fn with_call(input: &Value, answer: Value) -> Value {
    let mut steps = input["steps"].clone();
    steps[0]["table"]["tools/call"] = answer;
    steps
}

#[test]
fn b01_id_types_response() {
    let streams = &case("b01-id-types-response")["input"]["streams"];
    let good = &case("c07-late-answer-after-cancel")["input"];
    let result = json!({"resultType": "complete", "content": [{"type": "text", "text": "mine"}]});
    let message = |id: &str| json!({"jsonrpc": "2.0", "id": id, "result": result});
    for era in ERAS {
        let world = World::new(&format!("b01-{era}"));
        let good = in_era(era, good);

        let text = json!([[{"do": "json", "message": message("$id_text")}]]);
        let run = call(&world, era, &with_call(&good, text), json!({}));
        let run = run.expect_prompt().expect_code(0);
        assert_eq!(run.text(), "mine");
        assert!(run.stderr.contains("id type differs"), "{run:?}");

        let float = json!([[{"do": "json", "message": message("$id_float")}]]);
        let run = call(&world, era, &with_call(&good, float), json!({}));
        assert_eq!(run.expect_prompt().expect_code(0).text(), "mine");

        // The third stream without its last line, which is the answer.
        let chunk = streams[2]["chunks"][0].as_str().unwrap();
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(chunk)
            .unwrap();
        let strangers = String::from_utf8(bytes).unwrap();
        let answer = strangers.trim_end().rfind('\n').unwrap();
        let strangers = &strangers[..=answer];
        assert!(strangers.contains("\"id\":77") && strangers.contains("\"id\":null"));
        let strangers = json!([[
            {"do": "write", "chunks": [{"text": strangers}]},
            {"do": "reply", "result": result}]]);
        let run = call(&world, era, &with_call(&good, strangers), json!({}));
        assert_eq!(run.expect_prompt().expect_code(0).text(), "mine");
        world.expect_nobody();
    }
}

/// One call was sent, and taken back after it; nothing was sent twice.
#[track_caller]
fn expect_taken_back(heard: &Heard) {
    let calls = heard.of("tools/call");
    assert_eq!(calls.len(), 1, "{heard:?}");
    let cancelled = heard.of("notifications/cancelled");
    assert_eq!(cancelled.len(), 1, "{heard:?}");
    assert_eq!(
        cancelled[0]["params"]["requestId"], calls[0]["id"],
        "{heard:?}"
    );
    let sent = heard.position("the call", |m| m["method"] == "tools/call");
    let back = heard.position("its end", |m| m["method"] == "notifications/cancelled");
    assert!(sent < back, "{heard:?}");
}

#[test]
fn c07_late_answer_after_cancel() {
    let input = &case("c07-late-answer-after-cancel")["input"];
    let limit = &input["settings"]["request_timeout_ms"];
    for era in ERAS {
        let world = World::new(&format!("c07-{era}"));
        let steps = in_era(era, input)["steps"].clone();
        let run = call(&world, era, &steps, json!({"requestTimeoutMs": limit}));
        let run = run.expect_code(124);
        let error = run.expect_error(&["s", "tools/call", "timed out after 300 ms"]);
        assert_eq!(error["data"]["server"], "s", "{error}");
        assert_eq!(error["data"]["phase"], "call", "{error}");
        expect_taken_back(&world.heard("s"));
        world.expect_nobody();
    }
}

#[test]
fn c08_progress_keeps_alive() {
    let input = &case("c08-progress-keeps-alive")["input"];
    assert_eq!(input["settings"]["request_timeout_ms"], 500);
    for era in ERAS {
        let world = World::new(&format!("c08-{era}"));
        let steps = in_era(era, input)["steps"].clone();
        let total = &input["settings"]["max_total_timeout_ms"];
        let keys = |limit: u64, total: &Value| {
            let total = ("maxTotalTimeoutMs", total.clone());
            let limit = ("requestTimeoutMs", limit.into());
            let resets = ("resetTimeoutOnProgress", true.into());
            [total, limit, resets]
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v))
                .collect()
        };
        // 1.6 s in all, which is more than the limit; each gap has four times what it needs.
        let run = call(&world, era, &steps, Value::Object(keys(800, total)));
        assert_eq!(run.expect_code(0).text(), "slow but alive");
        let heard = world.heard("s");
        let token = &heard.of("tools/call")[0]["params"]["_meta"]["progressToken"];
        assert!(token.is_string() || token.is_u64(), "{token}");

        let run = call(&world, era, &steps, Value::Object(keys(800, &json!(1_000))));
        let run = run.expect_code(124);
        run.expect_error(&["s", "timed out after 1000 ms"]);

        let run = call(&world, era, &steps, json!({"requestTimeoutMs": 500}));
        run.expect_code(124)
            .expect_error(&["s", "timed out after 500 ms"]);

        // Progress for somebody else.
        let strange = steps.to_string().replace("$token", "not-yours");
        let strange: Value = serde_json::from_str(&strange).unwrap();
        let run = call(&world, era, &strange, Value::Object(keys(500, total)));
        run.expect_code(124)
            .expect_error(&["s", "timed out after 500 ms"]);
        world.expect_nobody();
    }
}

#[test]
fn c09_exit_after_answer() {
    for (era, times) in [("legacy", 160), ("modern", 40)] {
        let world = World::new(&format!("c09-{era}"));
        let input = in_era(era, &case("c09-exit-after-answer")["input"]);
        let entry = world.entry("s", &input["steps"], json!({"protocol": era}));
        let config = world.config(json!({"s": entry}));
        let args = ["call", "s", "echo", "--config", &config, "--json"];
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..times / 4 {
                        assert_eq!(world.run(&args).expect_code(0).text(), "last words");
                    }
                });
            }
        });
        world.expect_nobody();
    }
}

#[test]
fn c11_stdout_closed_alive() {
    for era in ERAS {
        let world = World::new(&format!("c11-{era}"));
        let steps = in_era(era, &case("c11-stdout-closed-alive")["input"])["steps"].clone();
        let run = call(&world, era, &steps, json!({}));
        let run = run.expect_prompt().expect_failure();
        assert!(run.answered < Duration::from_secs(5), "{run:?}");
        run.expect_error(&["s", "server closed its output"]);
        assert_eq!(world.heard("s").of("tools/call").len(), 1);
        world.expect_nobody();
    }
}
