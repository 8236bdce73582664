//! Rules of the gate, and `drawspan approvals`: a person decides about calls of a server that runs.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::unix::Client;
use crate::world::{EMBEDDED, Finished, Home, Process, expect_words, text, until};

const CONNECT: [&str; 2] = ["--connect", "unix:mcp.sock"];
const ADA: &str = r#"{"session_key":"agent:main:telegram:direct:ada","text":"hello"}"#;

fn configure(home: &Home, config: &Value) {
    // A new file in the place of the old one, as editors do it.
    home.write("new.json", &config.to_string());
    std::fs::rename(home.path("new.json"), home.path("drawspan.json")).unwrap();
}

/// `drawspan serve` with its embedded Gateway on stdin and on a socket.
fn serve(home: &Home, config: &Value) -> Process {
    configure(home, config);
    let args = [
        &EMBEDDED[..],
        &["--listen", "stdio", "--listen", "unix:mcp.sock"],
    ]
    .concat();
    let mut serve = Process::serve(&mut home.drawspan(&args));
    serve.meet();
    serve
}

/// The socket keeps it alive, so it has to be told.
fn stop(serve: Process) {
    serve.signal(Signal::TERM);
    serve.end().expect_code(0).expect_silence();
}

fn holding(rule: &Value) -> Value {
    json!({"gate": {"rules": [rule]}})
}

fn approvals(home: &Home, args: &[&str]) -> Finished {
    home.run(&[&["approvals"], args, &CONNECT].concat())
}

fn listed(home: &Home) -> Vec<Value> {
    let finished = approvals(home, &["--json"]).expect_code(0).expect_silence();
    let document: Value = serde_json::from_str(&finished.stdout.join("\n")).unwrap();
    document["approvals"].as_array().unwrap().clone()
}

/// Waits until one call is held, and gives its id.
#[track_caller]
fn held(home: &Home) -> String {
    let mut id = String::new();
    until("a held call", || match &listed(home)[..] {
        [row] => {
            id = row["id"].as_str().unwrap().to_owned();
            Ok(())
        }
        rows => Err(format!("{rows:?}")),
    });
    id
}

#[test]
fn a_person_allows_and_refuses_from_the_command_line() {
    let home = Home::new("approvals");
    let rule = json!({
        "tool": "messages_*", "server": "openclaw", "caller": "tester", "principal": "stdio",
        "arguments": {"properties": {"text": {"const": "hello"}}, "required": ["text"]},
        "action": "hold", "title": "Send it?", "description": "To a customer",
    });
    let mut serve = serve(&home, &holding(&rule));
    let empty = approvals(&home, &[]).expect_code(0).expect_silence();
    assert_eq!(empty.stdout, ["no call waits for approval"]);
    // What the rule is not about is not held.
    let other = ADA.replace("hello", "other");
    assert_ne!(serve.call("messages_send", &other)["isError"], true);

    let call = serve.begin("messages_send", ADA);
    let id = held(&home);
    let list = approvals(&home, &["list"]).expect_code(0).expect_silence();
    let list = list.stdout.join("\n");
    let first = format!("{id}  messages_send of openclaw, called by tester, stdio, refused in ");
    expect_words(
        &list,
        &[
            &first,
            "Send it?",
            "To a customer",
            r#"arguments {"#,
            "hello",
        ],
    );
    let allowed = approvals(&home, &["allow", &id])
        .expect_code(0)
        .expect_silence();
    assert_eq!(allowed.stdout, [format!("allow-once: {id}")]);
    let result = serve.answer(call)["result"].take();
    assert_ne!(result["isError"], true, "{result}");
    assert!(listed(&home).is_empty());
    approvals(&home, &["allow", &id])
        .expect_code(1)
        .expect_stderr(&["unknown or expired approval id"]);

    let call = serve.begin("messages_send", ADA);
    let id = held(&home);
    let denied = approvals(&home, &["deny", &id, "--reason", "not today", "--json"]);
    let denied = denied.expect_code(0).expect_silence().stdout.join("\n");
    let document: Value = serde_json::from_str(&denied).unwrap();
    assert_eq!(
        document,
        json!({"answered": [{"id": id, "decision": "deny"}]})
    );
    let result = serve.answer(call)["result"].take();
    assert_eq!(result["isError"], true, "{result}");
    expect_words(text(&result), &["denied by unix:", "not today"]);

    let call = serve.begin("messages_send", ADA);
    let id = held(&home);
    approvals(&home, &["allow-always", &id])
        .expect_code(0)
        .expect_silence();
    assert_ne!(serve.answer(call)["result"]["isError"], true);
    assert_ne!(
        serve.call("messages_send", ADA)["isError"],
        true,
        "not held again"
    );
    stop(serve);
}

#[test]
fn what_the_hook_asks_a_person_is_answered_by_one() {
    let home = Home::new("approvals-hook");
    let script = r#"
        case "$(cat)" in
            *'"tool":"messages_send"'*)
                echo '{"params":{"session_key":"agent:main:telegram:direct:ada","text":"made better"},
                    "requireApproval":{"title":"May it?"}}' ;;
            *) echo '{}' ;;
        esac
    "#;
    home.write("hook.sh", script);
    let hook =
        json!({"hooks": {"beforeToolCall": {"command": ["sh", "hook.sh"], "timeoutMs": 30_000}}});
    let mut serve = serve(&home, &hook);
    let call = serve.begin("messages_send", ADA);
    let id = held(&home);
    let row = listed(&home).remove(0);
    assert_eq!(row["title"], "May it?");
    assert_eq!(
        row["arguments"]["text"], "made better",
        "what the hook made of it"
    );
    assert_eq!(row["rule"], Value::Null);
    approvals(&home, &["allow", &id]).expect_code(0);
    assert_ne!(serve.answer(call)["result"]["isError"], true);
    let read = r#"{"session_key":"agent:main:telegram:direct:ada"}"#;
    let read = serve.call("messages_read", read)["structuredContent"].to_string();
    expect_words(&read, &["made better"]);
    assert!(!read.contains("hello"), "{read}");
    stop(serve);
}

#[test]
fn clients_see_it_among_the_approvals_and_one_answers_for_another() {
    let home = Home::new("approvals-clients");
    let rule = json!({"tool": "messages_send", "action": "hold", "title": "Send it?"});
    let mut serve = serve(&home, &holding(&rule));
    let mut other = Client::met(&home);
    let call = serve.begin("messages_send", ADA);
    let id = held(&home);
    let listed = |result: Value| result["structuredContent"]["approvals"].clone();
    let rows = listed(serve.call("permissions_list_open", "{}"));
    assert_eq!(
        (&rows[0]["kind"], &rows[0]["id"]),
        (&"plugin".into(), &id.clone().into())
    );
    let request = &rows[0]["request"];
    assert_eq!(
        (&request["title"], &request["toolName"]),
        (&"Send it?".into(), &"messages_send".into())
    );
    let decision = json!({"kind": "plugin", "id": id, "decision": "allow-once"}).to_string();
    let own = serve.call("permissions_respond", &decision);
    assert_eq!(own["isError"], true);
    expect_words(text(&own), &["cannot answer for its own calls"]);
    let decided = other.call("permissions_respond", &decision);
    assert_eq!(
        decided["structuredContent"],
        json!({"result": {"ok": true}}),
        "{decided}"
    );
    assert_ne!(serve.answer(call)["result"]["isError"], true);
    let rows = listed(other.call("permissions_list_open", "{}"));
    assert_eq!(rows, json!([]));
    let events = other.call("events_poll", "{}")["structuredContent"]["events"].take();
    let types: Vec<&str> = events
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| event["type"].as_str())
        .filter(|name| name.starts_with("plugin"))
        .collect();
    assert_eq!(
        types,
        ["plugin_approval_requested", "plugin_approval_resolved"]
    );
    drop(other);
    stop(serve);
}

#[test]
fn whoever_sits_at_the_gateway_answers_too() {
    let home = Home::new("approvals-gateway");
    let gateway = home.gateway();
    configure(
        &home,
        &holding(&json!({"tool": "messages_*", "action": "hold"})),
    );
    let args = [
        "serve",
        "--gateway",
        &gateway.url,
        "--token-file",
        "token",
        "--listen",
    ];
    let mut one = Process::serve(&mut home.drawspan(&[&args[..], &["stdio"]].concat()));
    one.meet();
    // Another bridge of the same device: what it is shown comes from the Gateway.
    home.write("none.json", "{}");
    let mut two = Process::serve(
        &mut home.drawspan(&[&args[..], &["stdio", "--config", "none.json"]].concat()),
    );
    two.meet();
    for (decision, refused) in [("allow-once", false), ("deny", true)] {
        let call = one.begin("messages_read", r#"{"session_key":"agent:main:main"}"#);
        let mut rows = Value::Null;
        until("the approval", || {
            rows = two.call("permissions_list_open", "{}")["structuredContent"]["approvals"].take();
            let count = rows.as_array().map_or(0, Vec::len);
            (count == 1).then_some(()).ok_or(rows.to_string())
        });
        let row = &rows[0];
        assert_eq!(row["request"]["pluginId"], "drawspan");
        assert!(row["id"].as_str().unwrap().starts_with("plugin:"), "{row}");
        let decision = json!({"kind": "plugin", "id": row["id"], "decision": decision});
        let decided = two.call("permissions_respond", &decision.to_string());
        assert_ne!(decided["isError"], true, "{decided}");
        let result = one.answer(call)["result"].take();
        assert_eq!(result["isError"] == true, refused, "{result}");
        if refused {
            expect_words(text(&result), &["denied by", "gateway"]);
        }
    }
    // One that its caller takes back is gone there as well.
    let call = one.begin("messages_read", r#"{"session_key":"agent:main:main"}"#);
    let count = |two: &mut Process| {
        let rows = two.call("permissions_list_open", "{}")["structuredContent"]["approvals"].take();
        rows.as_array().map_or(9, Vec::len)
    };
    until("the approval", || match count(&mut two) {
        1 => Ok(()),
        n => Err(n.to_string()),
    });
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":"#;
    one.send(&format!(r#"{cancel}{{"requestId":{call}}}}}"#));
    until("its end", || match count(&mut two) {
        0 => Ok(()),
        n => Err(n.to_string()),
    });
    // And so is one of a bridge that ends.
    one.begin("messages_read", r#"{"session_key":"agent:main:main"}"#);
    until("the approval", || match count(&mut two) {
        1 => Ok(()),
        n => Err(n.to_string()),
    });
    one.signal(Signal::TERM);
    one.end().expect_code(0).expect_silence();
    until("its end", || match count(&mut two) {
        0 => Ok(()),
        n => Err(n.to_string()),
    });
    two.finish().expect_code(0).expect_silence();
    gateway.process.signal(Signal::TERM);
    gateway.process.end().expect_code(0);
}

#[test]
fn rules_are_read_again_and_bad_ones_are_not_taken() {
    let home = Home::new("approvals-reload");
    let deny = |reason: &str| holding(&json!({"action": "deny", "reason": reason}));
    let mut serve = serve_silently(&home, &deny("first"));
    let why = |serve: &mut Process| {
        let result = serve.call("events_poll", "{}");
        text(&result).to_owned()
    };
    assert_eq!(why(&mut serve), "tool call refused: first");
    configure(&home, &deny("second"));
    until("the second reason", || match why(&mut serve) {
        said if said.ends_with("second") => Ok(()),
        said => Err(said),
    });
    configure(&home, &holding(&json!({"action": "deny", "tool": "a?"})));
    let warning = serve.stderr.expect("a warning");
    expect_words(
        &warning,
        &[
            "warning: configuration",
            "gate.rules[0].tool[0]: pattern a?",
            "the rules of before stay in force",
        ],
    );
    assert_eq!(why(&mut serve), "tool call refused: second");
    configure(&home, &json!({"gate": {"rules": [{"action": "hook"}]}}));
    let warning = serve.stderr.expect("a warning");
    expect_words(&warning, &["gate.rules[0].action", "asks the hook"]);
    assert_eq!(why(&mut serve), "tool call refused: second");
    serve.finish().expect_code(0);
}

/// As [`serve`], for rules that let nothing pass.
fn serve_silently(home: &Home, config: &Value) -> Process {
    configure(home, config);
    let mut serve = home.serve_embedded();
    serve.hello();
    serve
}

#[test]
fn rules_that_cannot_be_kept_are_an_error_at_the_start() {
    let home = Home::new("approvals-rules");
    let rows = [
        (
            r#"{"rules":[{"tool":"a[b]","action":"deny"}]}"#,
            "gate.rules[0].tool[0]: pattern a[b]",
        ),
        (
            r#"{"rules":[{"arguments":{"type":"strnig"},"action":"deny"}]}"#,
            "gate.rules[0].arguments: schema is invalid",
        ),
        (
            r#"{"rules":[{"action":"permit"}]}"#,
            "gate.rules[0].action must be",
        ),
        (
            r#"{"rules":[{"tools":"a","action":"deny"}]}"#,
            "gate.rules[0].tools is no key",
        ),
        (
            r#"{"rules":[{"action":"hook"}]}"#,
            "gate.rules[0].action asks the hook",
        ),
    ];
    for (gate, words) in rows {
        home.write("drawspan.json", &format!(r#"{{"gate":{gate}}}"#));
        let refused = home.run(&EMBEDDED).expect_code(2);
        refused.expect_stderr(&["error: configuration drawspan.json ", words]);
    }
}

#[test]
fn it_says_what_is_missing() {
    let home = Home::new("approvals-usage");
    let usage = home.run(&["approvals"]).expect_code(2);
    usage.expect_stderr(&["which server? give --connect unix:/PATH"]);
    let nobody = approvals(&home, &[]).expect_code(4);
    nobody.expect_stderr(&["unix:mcp.sock"]);
    approvals(&home, &["allow"]).expect_code(2);
    let odd = ["approvals", "--connect", "http://127.0.0.1:1"];
    let odd = home.run(&odd).expect_code(2);
    odd.expect_stderr(&["use unix:/PATH"]);
}
