//! The before-tool-call hook with real programs: what each answer and each failure does to a call,
//! and that nothing of them is left.

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::Value;

use crate::world::{Home, Process, expect_words, text, until};

/// Tools of three kinds: one the bridge answers itself, one that asks the Gateway, one that changes
/// something there.
const TOOLS: [(&str, &str); 3] = [
    ("events_poll", r#""limit":5"#),
    ("conversations_list", r#""limit":5"#),
    (
        "messages_send",
        r#""session_key":"agent:main:telegram:direct:ada","text":"sent""#,
    ),
];

/// Does what the argument `test` of the call asks for. It also keeps what it was given.
const SCRIPT: &str = r#"
    input=$(cat)
    echo "$input" >>asked
    case "$input" in
        *'"test":"pass"'*) echo '{}' ;;
        *'"test":"space"'*) printf '\n {}\n\n' ;;
        *'"test":"block"'*) echo '{"block":true,"blockReason":"not on a Monday"}' ;;
        *'"test":"bare"'*) echo '{"block":true}' ;;
        *'"test":"list"'*) echo '{"params":[1]}' ;;
        *'"test":"silent"'*) ;;
        *'"test":"garbage"'*) echo 'yes, please' ;;
        *'"test":"two"'*) echo '{}{}' ;;
        *'"test":"array"'*) echo '[null,false,null,null]' ;;
        *'"test":"maybe"'*) echo '{"block":"maybe"}' ;;
        *'"test":"code"'*) echo '{}'; echo 'no such rule' >&2; exit 3 ;;
        *'"test":"signal"'*) echo '{}'; kill -9 $$ ;;
        *'"test":"much"'*) exec yes ;;
        *'"test":"slow"'*) exec sleep 1000 ;;
        *'"test":"holder"'*) sleep 1000 & echo '{}' ;;
        *'"test":"approve"'*)
            echo '{"requireApproval":{"title":"May it?","timeoutMs":30}}' ;;
        *) echo '{"params":{"limit":1}}' ;;
    esac
"#;

/// `drawspan serve` with its embedded Gateway and the hook above.
fn serve(home: &Home, timeout_ms: u64) -> Process {
    home.write("hook.sh", SCRIPT);
    let config = format!(
        r#"{{"hooks":{{"beforeToolCall":{{"command":["sh","hook.sh"],"timeoutMs":{timeout_ms}}}}},
             "limits":{{"hook_output_bytes_max":4096}}}}"#
    );
    home.write("drawspan.json", &config);
    let mut serve = home.serve_embedded();
    serve.hello();
    serve
}

/// Calls each of the tools with the argument `test`; all calls are open at once.
fn call_each(serve: &mut Process, test: &str) -> Vec<Value> {
    let begun: Vec<u64> = TOOLS
        .iter()
        .map(|(tool, more)| serve.begin(tool, &format!(r#"{{"test":"{test}",{more}}}"#)))
        .collect();
    begun
        .into_iter()
        .map(|id| serve.answer(id)["result"].take())
        .collect()
}

/// How many messages of ours the conversation has.
fn sent(serve: &mut Process) -> usize {
    let read = r#"{"test":"pass","session_key":"agent:main:telegram:direct:ada","limit":200}"#;
    let result = serve.call("messages_read", read)["structuredContent"].take();
    let messages = result["messages"].as_array().unwrap();
    messages
        .iter()
        .filter(|message| message.to_string().contains("sent"))
        .count()
}

#[test]
fn an_empty_object_lets_the_call_pass() {
    let home = Home::new("hook-pass");
    let mut serve = serve(&home, 30_000);
    for test in ["pass", "space", "holder"] {
        let before = sent(&mut serve);
        for result in call_each(&mut serve, test) {
            assert_ne!(result["isError"], true, "{test}: {result}");
        }
        assert_eq!(sent(&mut serve), before + 1);
    }
    // It is told everything about the call.
    let asked = std::fs::read_to_string(home.path("asked")).unwrap();
    let asked: Value = serde_json::from_str(asked.lines().next().unwrap()).unwrap();
    assert_eq!(asked["tool"], "messages_read");
    assert_eq!(
        asked["arguments"]["session_key"],
        "agent:main:telegram:direct:ada"
    );
    assert_eq!(
        (&asked["server"], &asked["caller"]),
        (&"openclaw".into(), &"tester".into())
    );
    assert!(asked["callId"].is_string());
    only_drawspan_is_left(&home, &serve);
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn params_replace_the_arguments_whole() {
    let home = Home::new("hook-params");
    let mut serve = serve(&home, 30_000);
    let all = serve.call("conversations_list", r#"{"test":"pass"}"#);
    expect_words(text(&all), &["conversations: 2"]);
    let first = serve.call("conversations_list", r#"{"test":"replace","limit":50}"#);
    expect_words(text(&first), &["conversations: 1"]);
    // Nothing is merged: the required arguments are gone.
    for (tool, missing) in [
        ("conversation_get", "session_key"),
        ("messages_send", "text"),
    ] {
        let arguments = r#"{"test":"replace","session_key":"agent:main:main","text":"x"}"#;
        let result = serve.call(tool, arguments);
        assert_eq!(result["isError"], true, "{result}");
        expect_words(text(&result), &[missing]);
    }
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn whatever_else_it_says_or_does_refuses_the_call_and_says_why() {
    let rows: [(&str, &[&str]); 12] = [
        ("block", &["not on a Monday"]),
        ("bare", &["blocked by the before-tool-call hook"]),
        ("list", &["hook failed", "params must be an object"]),
        ("silent", &["hook failed", "not understood"]),
        ("garbage", &["hook failed", "not understood"]),
        ("two", &["hook failed", "not understood"]),
        ("maybe", &["hook failed", "not understood"]),
        (
            "code",
            &["hook failed", "sh: exited with code 3", "no such rule"],
        ),
        ("signal", &["hook failed", "killed by SIGKILL"]),
        (
            "much",
            &["hook failed", "output is too large", "limit 4096"],
        ),
        ("approve", &["nobody approved it within 30 ms"]),
        ("array", &["hook failed", "not understood"]),
    ];
    let home = Home::new("hook-refuse");
    let mut serve = serve(&home, 30_000);
    for (test, words) in rows {
        for result in call_each(&mut serve, test) {
            assert_eq!(result["isError"], true, "{test}: {result}");
            expect_words(text(&result), words);
        }
    }
    assert_eq!(sent(&mut serve), 0, "a refused call was made");
    only_drawspan_is_left(&home, &serve);
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn a_hook_that_takes_too_long_refuses_and_is_gone() {
    let home = Home::new("hook-slow");
    let mut serve = serve(&home, 250);
    for result in call_each(&mut serve, "slow") {
        assert_eq!(result["isError"], true, "{result}");
        expect_words(text(&result), &["hook failed", "250 ms"]);
    }
    only_drawspan_is_left(&home, &serve);
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn a_call_that_is_cancelled_takes_its_hook_along() {
    let home = Home::new("hook-cancel");
    let mut serve = serve(&home, 600_000);
    for (tool, more) in TOOLS {
        let id = serve.begin(tool, &format!(r#"{{"test":"slow",{more}}}"#));
        until("its sleep", || match home.processes() {
            found if found.iter().any(|process| process.starts_with("sleep")) => Ok(()),
            found => Err(format!("{found:?}")),
        });
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":"#;
        serve.send(&format!(r#"{cancel}{{"requestId":{id}}}}}"#));
        home.expect_processes(1);
    }
    only_drawspan_is_left(&home, &serve);
    let finished = serve.finish().expect_code(0).expect_silence();
    assert_eq!(finished.stdout.len(), 1, "cancelled calls get no answer");
}

#[test]
fn programs_that_cannot_be_run_refuse_the_call() {
    let home = Home::new("hook-missing");
    home.write("not-executable", "#!/bin/sh\necho '{}'\n");
    let not_executable = home.path("not-executable");
    let rows = [
        ("no-such-program", "no such program in PATH"),
        ("/no/such/program", "no such program"),
        (not_executable.to_str().unwrap(), "permission denied"),
    ];
    for (program, why) in rows {
        let command = serde_json::json!({"command": [program]});
        let config = serde_json::json!({"hooks": {"beforeToolCall": command}});
        home.write("drawspan.json", &config.to_string());
        let mut serve = home.serve_embedded();
        serve.hello();
        for result in call_each(&mut serve, "pass") {
            assert_eq!(result["isError"], true, "{result}");
            expect_words(text(&result), &["hook failed", program, why]);
        }
        let list = serve.request("tools/list", "{}");
        assert!(
            serve.answer(list)["result"]["tools"].is_array(),
            "the rest works"
        );
        serve.finish().expect_code(0).expect_silence();
    }
}

#[test]
fn without_descriptors_a_call_is_refused_and_the_next_one_works() {
    let home = Home::new("hook-descriptors");
    let mut serve = serve(&home, 30_000);
    let pass = r#"{"test":"pass"}"#;
    assert_ne!(serve.call("events_poll", pass)["isError"], true);
    only_drawspan_is_left(&home, &serve);
    let pid = Pid::from_raw(i32::try_from(serve.id()).unwrap());
    let open = std::fs::read_dir(format!("/proc/{}/fd", serve.id()))
        .unwrap()
        .count();
    let maximum = rustix::process::getrlimit(Resource::Nofile).maximum;
    let limit = |current: usize| {
        let current = Some(u64::try_from(current).unwrap());
        prlimit(pid, Resource::Nofile, Rlimit { current, maximum }).unwrap();
    };
    limit(open + 1);
    for result in call_each(&mut serve, "pass") {
        assert_eq!(result["isError"], true, "{result}");
        expect_words(text(&result), &["hook failed", "too many open files"]);
    }
    limit(1_000);
    assert_ne!(serve.call("events_poll", pass)["isError"], true);
    only_drawspan_is_left(&home, &serve);
    let now = std::fs::read_dir(format!("/proc/{}/fd", serve.id()))
        .unwrap()
        .count();
    assert_eq!(now, open, "descriptors were lost");
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn a_hook_inherits_no_credentials() {
    let home = Home::new("hook-environment");
    let config = r#"{"hooks":{"beforeToolCall":{"command":["sh","-c","env >seen; echo '{}'"]}}}"#;
    home.write("drawspan.json", config);
    let mut command = home.drawspan(&crate::world::EMBEDDED);
    command
        .env("OPENCLAW_GATEWAY_TOKEN", "secret")
        .env("LANG", "C.UTF-8");
    let mut serve = Process::serve(&mut command);
    serve.hello();
    assert_ne!(serve.call("events_poll", "{}")["isError"], true);
    let seen = std::fs::read_to_string(home.path("seen")).unwrap();
    expect_words(&seen, &["PATH=", "HOME=", "LANG=C.UTF-8"]);
    assert!(!seen.contains("secret"), "{seen}");
    serve.finish().expect_code(0).expect_silence();
}

/// Waits until no hook and nothing that a hook started runs, and no child waits to be reaped.
#[track_caller]
fn only_drawspan_is_left(home: &Home, serve: &Process) {
    home.expect_processes(1);
    let parent = serve.id().to_string();
    until("children to be reaped", || {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            // The name stands in brackets and may hold anything; state and parent follow it.
            let rest = stat.rsplit(") ").next().unwrap_or_default();
            if rest.split(' ').nth(1) == Some(&parent) {
                return Err(stat);
            }
        }
        Ok(())
    });
}

#[test]
fn the_hook_is_read_again_and_a_call_goes_on_with_the_one_it_asked() {
    let home = Home::new("hook-reload");
    home.write(
        "first.sh",
        "cat >>asked; until [ -e go ]; do sleep 0.01; done; echo '{\"block\":true,\"blockReason\":\"first\"}'",
    );
    // A log that is required where there was none is worth a line: that tells when it was read.
    let config = |name: &str, more: &str| {
        let hook = format!(r#"{{"command":["sh","{name}"],"timeoutMs":60000}}"#);
        home.write(
            "drawspan.json",
            &format!(r#"{{"hooks":{{"beforeToolCall":{hook}}}{more}}}"#),
        );
    };
    config("first.sh", "");
    let mut serve = home.serve_embedded();
    serve.hello();
    let waits = serve.begin("events_poll", "{}");
    until("the first hook", || match home.path("asked").exists() {
        true => Ok(()),
        false => Err("not asked".to_owned()),
    });
    home.write(
        "second.sh",
        "cat >/dev/null; echo '{\"block\":true,\"blockReason\":\"second\"}'",
    );
    config("second.sh", r#","audit":{"required":true}"#);
    let read = serve.stderr.expect("a warning");
    expect_words(&read, &["takes a restart"]);
    let second = serve.call("events_poll", "{}");
    assert_eq!(text(&second), "second");
    home.write("go", "");
    let first = serve.answer(waits)["result"].take();
    assert_eq!(text(&first), "first");
    home.write("drawspan.json", "{}");
    until("no hook", || {
        let result = serve.call("events_poll", "{}");
        match result["isError"].as_bool() {
            Some(true) => Err(text(&result).to_owned()),
            _ => Ok(()),
        }
    });
    // A hangup asks for the same, with nothing but settings in the file.
    serve.signal(Signal::HUP);
    serve.sync();
    // Where there was none, one comes to be.
    config("second.sh", "");
    until("a hook again", || {
        let result = serve.call("events_poll", "{}");
        match result["isError"].as_bool() {
            Some(true) => Ok(()),
            _ => Err("it passes".to_owned()),
        }
    });
    serve.finish().expect_code(0);
}
