//! `drawspan serve TARGET`: what a server tells without being asked reaches its clients, in either era, and
//! what they tell reaches it.

use serde_json::Value;

use crate::span_opening::{Den, META};
use crate::world::{Process, parse};

const LOG: &str =
    r#"tell notifications/message '{ "level":"info","data":[1.0],"logger":"a\u0062" }'"#;

fn is_of(method: &str) -> impl Fn(&Value) -> bool {
    move |message| message["method"] == method
}

/// The next line with this in it, as it is.
#[track_caller]
fn line(serve: &mut Process, what: &str) -> String {
    loop {
        let line = serve.stdout.expect(what);
        if line.contains(what) {
            return line;
        }
    }
}

#[test]
fn notifications_pass_byte_for_byte_both_ways() {
    let call = r#"tell vendor/x '{ "b":1e0, "a":"\u0041" }'"#;
    let den = Den::new("notices-bytes", &[("CALL", call)]);
    let mut serve = den.serve();
    serve.hello();
    serve.begin("echo", "{}");
    assert_eq!(
        line(&mut serve, "vendor/x"),
        r#"{"jsonrpc":"2.0","method":"vendor/x","params":{ "b":1e0, "a":"\u0041" }}"#
    );
    let told =
        r#"{"jsonrpc":"2.0","method":"notifications/vendor/y","params":{ "n":1.0, "s":"\u0041" }}"#;
    serve.send(told);
    den.expect_heard(told, 1);
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn what_is_told_while_the_server_starts_is_not_lost() {
    let den = Den::new("notices-early", &[]);
    let mut serve = den.serve();
    let told = r#"{"jsonrpc":"2.0","method":"notifications/vendor/y","params":{"n":1.0}}"#;
    serve.send(&format!("{}\n{told}", crate::world::HELLO));
    serve.answer(0);
    den.expect_heard(told, 1);
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn log_messages_follow_the_level_of_an_older_client() {
    for era in ["legacy", "modern"] {
        let den = Den::new(
            &format!("notices-log-{era}"),
            &[("CALL", LOG), ("ERA", era)],
        );
        let mut serve = den.serve();
        serve.hello();
        let level = |serve: &mut Process, level: &str| {
            let id = serve.request("logging/setLevel", &format!(r#"{{"level":"{level}"}}"#));
            // A server that has the method too answers itself.
            let expected = match era {
                "legacy" => serde_json::json!({"other": true}),
                _ => serde_json::json!({}),
            };
            assert_eq!(serve.answer(id)["result"], expected);
        };
        level(&mut serve, "error");
        serve.call("echo", "{}");
        level(&mut serve, "debug");
        serve.begin("echo", "{}");
        assert_eq!(
            line(&mut serve, "notifications/message"),
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{ "level":"info","data":[1.0],"logger":"a\u0062" }}"#
        );
        // The server was told, in the way of its era.
        if era == "legacy" {
            den.expect_heard(
                r#""method":"logging/setLevel","params":{"level":"debug"}"#,
                1,
            );
        } else {
            den.expect_heard(r#""io.modelcontextprotocol/logLevel":"debug""#, 1);
        }
        let left = serve.finish().expect_code(0).expect_silence();
        let logs = left
            .messages()
            .iter()
            .filter(|m| m["method"] == "notifications/message")
            .count();
        assert_eq!(logs, 1, "the first was below the level");
    }
}

#[test]
fn log_messages_go_to_the_stateless_request_that_wants_them() {
    for era in ["legacy", "modern"] {
        let den = Den::new(
            &format!("notices-log-of-{era}"),
            &[("CALL", LOG), ("ERA", era)],
        );
        let mut serve = den.serve();
        let params = |level: &str| {
            let meta = META.strip_suffix('}').unwrap();
            format!(r#"{{"name":"echo","arguments":{{}},{meta}{level}}}}}"#)
        };
        let silent = serve.request("tools/call", &params(""));
        let first = parse(&serve.stdout.expect("an answer"));
        assert_eq!(first["id"], silent, "{first}");
        let level = r#","io.modelcontextprotocol/logLevel":"info""#;
        let wanting = serve.request("tools/call", &params(level));
        let log = parse(&serve.stdout.expect("a log message"));
        assert_eq!(log["method"], "notifications/message");
        assert_eq!(log["params"]["logger"], "ab");
        serve.answer(wanting);
        if era == "legacy" {
            den.expect_heard(
                r#""method":"logging/setLevel","params":{"level":"info"}"#,
                1,
            );
        }
        serve.finish().expect_code(0).expect_silence();
    }
}

const UPDATED: &str = "notifications/resources/updated";

#[test]
fn an_older_client_hears_of_updates_from_its_subscription_on() {
    for era in ["legacy", "modern"] {
        // Both before and after the server has granted it.
        let env = [
            ("ERA", era),
            ("SUBSCRIBED", "[ $ERA = modern ] || updated a:1"),
            ("ACKNOWLEDGED", "case $line in *a:1*) updated a:1 ;; esac"),
            ("CALL", "updated a:1"),
        ];
        let den = Den::new(&format!("notices-subscribe-{era}"), &env);
        let mut serve = den.serve();
        serve.hello();
        let subscribe = serve.request("resources/subscribe", r#"{"uri":"a:1"}"#);
        let mut early = 0;
        loop {
            let message = parse(&serve.stdout.expect("the answer"));
            if message["id"] == subscribe {
                assert_eq!(message["result"], serde_json::json!({}));
                break;
            }
            early += usize::from(message["method"] == UPDATED);
        }
        assert_eq!(early, usize::from(era == "legacy"), "{era}");
        let told = line(&mut serve, UPDATED);
        let meta = if era == "legacy" {
            ""
        } else {
            r#","_meta":{}"#
        };
        assert_eq!(
            told,
            format!(
                r#"{{"jsonrpc":"2.0","method":"{UPDATED}","params":{{"uri":"a:1","v":1.0{meta}}}}}"#
            )
        );
        let heard = match era {
            "legacy" => r#""method":"resources/subscribe","params":{"uri":"a:1"}"#,
            _ => r#""resourceSubscriptions":["a:1"]"#,
        };
        den.expect_heard(heard, 1);
        let unsubscribe = serve.request("resources/unsubscribe", r#"{"uri":"a:1"}"#);
        assert_eq!(serve.answer(unsubscribe)["result"], serde_json::json!({}));
        // A server of 2026-07-28 gets a stream without it in place of the one with it.
        let (heard, times) = match era {
            "legacy" => (
                r#""method":"resources/unsubscribe","params":{"uri":"a:1"}"#,
                1,
            ),
            _ => (r#"{"notifications":{"toolsListChanged":true},"#, 2),
        };
        den.expect_heard(heard, times);
        serve.finish().expect_code(0).expect_silence();
    }
}

#[test]
fn streams_of_a_stateless_client_share_one_subscription() {
    for era in ["legacy", "modern"] {
        let env = [
            ("ERA", era),
            ("SUBSCRIBED", "[ $ERA = modern ] || updated a:1"),
            ("CALL", "updated a:1"),
        ];
        let den = Den::new(&format!("notices-listen-{era}"), &env);
        let mut serve = den.serve();
        let params = format!(r#"{{"notifications":{{"resourceSubscriptions":["a:1"]}},{META}}}"#);
        let first = serve.request("subscriptions/listen", &params);
        let stream = |message: &Value| {
            message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone()
        };
        let acknowledged = parse(&serve.stdout.expect("the acknowledgment"));
        assert_eq!(
            acknowledged["method"],
            "notifications/subscriptions/acknowledged"
        );
        assert_eq!(stream(&acknowledged), first);
        let granted = &acknowledged["params"]["notifications"]["resourceSubscriptions"];
        assert_eq!(*granted, serde_json::json!(["a:1"]));
        if era == "legacy" {
            // It came before the server's answer, and was held.
            let held = parse(&serve.stdout.expect("what was held"));
            assert_eq!(
                (&held["method"], stream(&held)),
                (&UPDATED.into(), first.into())
            );
        }
        let second = serve.request("subscriptions/listen", &params);
        let acknowledged = parse(&serve.stdout.expect("the acknowledgment"));
        assert_eq!(stream(&acknowledged), second);
        let call = |serve: &mut Process| {
            serve.request(
                "tools/call",
                &format!(r#"{{"name":"echo","arguments":{{}},{META}}}"#),
            )
        };
        let id = call(&mut serve);
        let mut told = Vec::new();
        for _ in 0..2 {
            let message = serve.message("an update", is_of(UPDATED));
            assert_eq!(message["params"]["v"].to_string(), "1.0");
            told.push(stream(&message).as_u64().unwrap());
        }
        told.sort_unstable();
        assert_eq!(told, [first, second]);
        serve.answer(id);
        let heard = match era {
            "legacy" => r#""method":"resources/subscribe""#,
            _ => r#""resourceSubscriptions":["a:1"]"#,
        };
        assert_eq!(den.heard_times(heard), 1);
        let cancel = |serve: &mut Process, id: u64| {
            serve.send(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
            ));
        };
        cancel(&mut serve, first);
        let id = call(&mut serve);
        let update = serve.message("an update", is_of(UPDATED));
        assert_eq!(stream(&update), second);
        serve.answer(id);
        let (over, times) = match era {
            "legacy" => (r#""method":"resources/unsubscribe""#, 1),
            _ => (r#"{"notifications":{"toolsListChanged":true},"#, 2),
        };
        assert_eq!(den.heard_times(over), times - 1, "one still listens");
        cancel(&mut serve, second);
        den.expect_heard(over, times);
        serve.finish().expect_code(0).expect_silence();
    }
}

#[test]
fn a_subscription_outlives_the_server_and_counts_as_updated_then() {
    for era in ["legacy", "modern"] {
        let env = [("ERA", era), ("CALL", "kill -9 $$")];
        let den = Den::new(&format!("notices-again-{era}"), &env);
        let mut serve = den.serve();
        serve.hello();
        let subscribe = serve.request("resources/subscribe", r#"{"uri":"a:1"}"#);
        assert_eq!(serve.answer(subscribe)["result"], serde_json::json!({}));
        assert_eq!(serve.call("echo", "{}")["isError"], true);
        // Nobody asks for anything, and it is started and told again.
        let update = serve.message("an update", is_of(UPDATED));
        assert_eq!(update["params"], serde_json::json!({"uri": "a:1"}));
        let heard = match era {
            "legacy" => r#""method":"resources/subscribe""#,
            _ => r#""resourceSubscriptions":["a:1"]"#,
        };
        assert_eq!(den.heard_times(heard), 2);
        serve.finish().expect_code(0);
        den.home.expect_processes(0);
    }
}

#[test]
fn a_subscription_that_is_refused_is_answered_so() {
    let refusal = r#"refuse '{"code":-32002,"message":"no","data":{"n":1.0}}'; continue"#;
    let den = Den::new("notices-refused", &[("SUBSCRIBED", refusal)]);
    let mut serve = den.serve();
    serve.hello();
    serve.request("resources/subscribe", r#"{"uri":"a:1"}"#);
    assert_eq!(
        line(&mut serve, "error"),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no","data":{"n":1.0}}}"#
    );
    // A server that takes none is asked all the same: it says so itself.
    serve.finish().expect_code(0).expect_silence();
    let capabilities = [("CAPABILITIES", r#"{"tools":{},"resources":{}}"#)];
    let den = Den::new("notices-not-offered", &capabilities);
    let mut serve = den.serve();
    serve.hello();
    let id = serve.request("resources/subscribe", r#"{ "uri":"a:1", "x":1.0 }"#);
    assert_eq!(serve.answer(id)["result"], serde_json::json!({}));
    den.expect_heard(r#""params":{ "uri":"a:1", "x":1.0 }"#, 1);
    serve.finish().expect_code(0).expect_silence();
}
