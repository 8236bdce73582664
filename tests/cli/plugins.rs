//! Tools that are commands, with real programs: what a call gives them, what becomes of what they print, and
//! that nothing of them is left.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::servers::Shop;
use crate::world::{EMBEDDED, Home, Process, expect_words, text, until};

/// A tool that a shell answers.
fn sh(script: &str) -> Value {
    json!({"command": ["sh", "-c", script]})
}

/// Writes the configuration, a new file in the place of the old one, as editors do it.
fn configure(home: &Home, config: &Value) {
    home.write("new.json", &config.to_string());
    std::fs::rename(home.path("new.json"), home.path("drawspan.json")).unwrap();
}

/// `drawspan serve` with these tools alone.
fn serve(home: &Home, tools: Value) -> Process {
    serve_config(home, &json!({ "pluginTools": tools }))
}

fn serve_config(home: &Home, config: &Value) -> Process {
    configure(home, config);
    let mut serve = Process::serve(&mut home.drawspan(&["serve"]));
    serve.hello();
    serve
}

fn tools(serve: &mut Process) -> Vec<Value> {
    let list = serve.request("tools/list", "{}");
    serve.answer(list)["result"]["tools"]
        .as_array()
        .unwrap()
        .clone()
}

#[track_caller]
fn expect_failure(result: &Value, words: &[&str]) {
    assert_eq!(result["isError"], true, "{result}");
    expect_words(text(result), words);
}

#[test]
fn tools_alone_need_no_gateway_and_are_listed_as_they_are() {
    let home = Home::new("plugins-alone");
    let schema = json!({"type": "object", "properties": {"v": {"type": "string"}}, "x": [1.5]});
    let mut serve = serve(
        &home,
        json!({
            "second.b": {"command": "true", "description": "says \"b\"", "inputSchema": schema},
            "first-a": {"command": ["true"]},
        }),
    );
    let second = json!({"name": "second.b", "description": "says \"b\"", "inputSchema": schema});
    let first = json!({"name": "first-a", "description": "", "inputSchema": {"type": "object", "properties": {}}});
    let mut listed = tools(&mut serve);
    // The map of this test has no order of its own.
    listed.sort_by_key(|tool| tool["name"].to_string());
    assert_eq!(listed, [first, second]);
    let unknown = serve.begin("third", "{}");
    expect_words(
        serve.answer(unknown)["error"]["message"].as_str().unwrap(),
        &["Unknown tool: third"],
    );
    let other = serve.request("resources/list", "{}");
    // The file may name a server at any time.
    assert_eq!(serve.answer(other)["result"]["resources"], json!([]));
    let vendor = serve.request("vendor/method", "{}");
    assert_eq!(serve.answer(vendor)["error"]["code"], -32601);
    serve.finish().expect_code(0).expect_silence();
    assert_eq!(home.listing(), ["drawspan.json"], "no identity, no store");
}

#[test]
fn whatever_is_printed_becomes_a_result() {
    let home = Home::new("plugins-results");
    let print = |what: &str| sh(&format!("cat >/dev/null; printf '%s\\n' '{what}'"));
    let mut serve = serve(
        &home,
        json!({
            "blocks": print(r#"[{"type":"text","text":"one"},{"type":"odd","n":1.0}]"#),
            "whole": print(r#"{"content":"bad","isError":true,"structuredContent":{"n":12345678901234567890},"_meta":{"k":1},"details":2}"#),
            "string": print(r#""plain \"string\"""#),
            "object": print(r#"{ "a": 1, "b": [2.50] }"#),
            "number": print("12345678901234567890.10"),
            "null": print("null"),
            "nothing": sh("true"),
            "text": print("no JSON: {"),
            "lines": sh("printf '{\\n  \"content\": [\\n    {}\\n  ]\\n}\\n'"),
        }),
    );
    let blocks = serve.call("blocks", "{}");
    assert_eq!(
        blocks.to_string(),
        r#"{"content":[{"text":"one","type":"text"},{"n":1.0,"type":"odd"}]}"#
    );
    let whole = serve.call("whole", "{}");
    expect_failure(&whole, &["bad"]);
    let structured = whole["structuredContent"].to_string();
    assert_eq!(structured, r#"{"n":12345678901234567890}"#);
    assert_eq!(
        (&whole["_meta"]["k"], whole.get("details")),
        (&json!(1), None)
    );
    for (tool, expected) in [
        ("string", "plain \"string\""),
        ("object", r#"{"a":1,"b":[2.50]}"#),
        ("number", "12345678901234567890.10"),
        ("null", ""),
        ("nothing", ""),
        ("text", "no JSON: {\n"),
    ] {
        let result = serve.call(tool, "{}");
        assert_eq!(text(&result), expected);
        assert_eq!(result.get("isError"), None, "{tool}");
    }
    assert_eq!(serve.call("lines", "{}")["content"], json!([{}]));
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn a_command_gets_its_arguments_and_no_credentials() {
    let home = Home::new("plugins-input");
    std::fs::create_dir(home.path("inner")).unwrap();
    let config = json!({"pluginTools": {"t": {
        "command": "sh",
        "args": ["-c", "pwd; echo \"$MINE $NODE_OPTIONS $1\"; env; cat", "sh", "${WORD}"],
        "cwd": "inner",
        "env": {"MINE": "${WORD}!", "NODE_OPTIONS": "--require=x"},
    }}});
    configure(&home, &config);
    let mut command = home.drawspan(&["serve"]);
    command
        .env("WORD", "hello")
        .env("API_TOKEN", "s3cret")
        .env("LANG", "C.UTF-8");
    let mut serve = Process::serve(&mut command);
    serve.hello();
    // Byte for byte, and not checked.
    let arguments = r#"{"big":12345678901234567890, "v" : 1.0,"\u0041":[]}"#;
    let result = serve.call("t", arguments);
    let said = text(&result);
    expect_words(
        said,
        &[
            "/inner\n",
            "hello!  hello\n",
            "PATH=",
            "LANG=C.UTF-8",
            arguments,
        ],
    );
    assert!(
        !said.contains("s3cret") && !said.contains("--require"),
        "{said}"
    );
    let id = serve.request("tools/call", r#"{"name":"t"}"#);
    expect_words(text(&serve.answer(id)["result"]), &["\n{}\n"]);
    serve
        .finish()
        .expect_code(0)
        .expect_stderr(&["warning: plugin tool t: env.NODE_OPTIONS is blocked"]);
}

#[test]
fn what_goes_wrong_is_an_error_that_says_why() {
    let home = Home::new("plugins-failures");
    let mut much = sh("exec yes");
    much["maxOutputBytes"] = 1_000.into();
    let mut slow = sh("sleep 1000 & sleep 1000");
    slow["timeoutMs"] = 200.into();
    let config = json!({
        "pluginTools": {
            "code": sh("echo '{}'; echo 'cannot log in with token=abcdefgh12345678' >&2; exit 3"),
            "signal": sh("kill -9 $$"),
            "missing": {"command": "no-such-program"},
            "much": much,
            "usual": sh("head -c 5000 /dev/zero | tr '\\0' x"),
            "slow": slow,
            "long": sh("exec sleep 1000"),
            "checked": {"command": "true", "validate": true, "inputSchema":
                {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
        },
        "limits": {"plugin_output_bytes_max": 4096, "plugin_timeout_ms": 300},
    });
    let mut serve = serve_config(&home, &config);
    let rows: [(&str, &[&str]); 7] = [
        (
            "code",
            &[
                "tool code failed: sh: exited with code 3",
                "cannot log in with token=***",
            ],
        ),
        ("signal", &["tool signal failed: sh: killed by SIGKILL"]),
        ("missing", &["no-such-program", "no such program in PATH"]),
        (
            "much",
            &["output is too large", "limit 1000 (maxOutputBytes)"],
        ),
        (
            "usual",
            &[
                "output is too large",
                "limit 4096 (plugin_output_bytes_max)",
            ],
        ),
        (
            "slow",
            &["no answer after 200 ms, limit 200 ms (timeoutMs)"],
        ),
        (
            "long",
            &["no answer after 300 ms, limit 300 ms (plugin_timeout_ms)"],
        ),
    ];
    for (tool, words) in rows {
        expect_failure(&serve.call(tool, "{}"), words);
        home.expect_processes(1);
    }
    for arguments in ["{}", r#"{"n":"x"}"#] {
        expect_failure(
            &serve.call("checked", arguments),
            &["arguments do not fit the schema of checked", "n"],
        );
    }
    assert_eq!(text(&serve.call("checked", r#"{"n":1}"#)), "");
    serve.finish().expect_code(0).expect_silence();
}

#[test]
fn nothing_of_a_command_is_left() {
    let home = Home::new("plugins-left");
    let mut serve = serve(
        &home,
        json!({
            // What it leaves behind: holding its output, and not.
            "holder": sh("sleep 1000 & echo done"),
            "daemon": sh("sleep 1000 >/dev/null 2>&1 </dev/null & echo done"),
            "slow": sh("sleep 1000 & sleep 1000"),
        }),
    );
    for tool in ["holder", "daemon"] {
        assert_eq!(text(&serve.call(tool, "{}")), "done\n");
        home.expect_processes(1);
    }
    let id = serve.begin("slow", "{}");
    expect_running(&home, 2);
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":"#;
    serve.send(&format!(r#"{cancel}{{"requestId":{id}}}}}"#));
    home.expect_processes(1);
    let finished = serve.finish().expect_code(0).expect_silence();
    assert_eq!(finished.stdout.len(), 3, "a cancelled call gets no answer");
}

/// Waits until so many commands sleep.
#[track_caller]
fn expect_running(home: &Home, count: usize) {
    until("the commands to run", || {
        let found = home.processes();
        let sleeping = found.iter().filter(|process| process.starts_with("sleep"));
        match sleeping.count() {
            n if n == count => Ok(()),
            n => Err(format!("{n} in {found:?}")),
        }
    });
}

#[test]
fn however_the_program_ends_its_commands_end_too() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let home = Home::new("plugins-signal");
        let mut serve = serve(&home, json!({"slow": sh("sleep 1000 & sleep 1000")}));
        serve.begin("slow", "{}");
        expect_running(&home, 2);
        serve.signal(signal);
        serve.wait();
        home.expect_processes(0);
    }
}

#[test]
fn plugin_runs_max_bounds_what_runs_at_once() {
    let home = Home::new("plugins-busy");
    let mut serve = serve_config(
        &home,
        &json!({
            "pluginTools": {"slow": sh("exec sleep 1000"), "quick": sh("echo 1")},
            "limits": {"plugin_runs_max": 2},
        }),
    );
    let open = [serve.begin("slow", "{}"), serve.begin("slow", "{}")];
    expect_running(&home, 2);
    let busy = serve.begin("quick", "{}");
    let message = serve.answer(busy)["error"]["message"].take();
    expect_words(
        message.as_str().unwrap(),
        &["busy", "limit 2 (plugin_runs_max)"],
    );
    serve.send(&format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{}}}}}"#,
        open[0]
    ));
    assert_eq!(text(&serve.call("quick", "{}")), "1");
    serve.signal(Signal::TERM);
    let result = serve.answer(open[1]);
    expect_words(&result.to_string(), &["shutting down"]);
    serve.end().expect_code(0);
    home.expect_processes(0);
}

#[test]
fn what_cannot_be_offered_costs_itself_and_one_line() {
    let home = Home::new("plugins-bad");
    let config = json!({"pluginTools": {
        "a good one": {"command": "true"},
        "bare": {"description": "no command", "inputSchema": 5},
        "good": {"command": "true"},
        "list": {"command": "true", "inputSchema": {"type": "array"}},
        "off": {"command": "true", "enabled": false},
        "text": "true",
    }});
    let mut serve = serve_config(&home, &config);
    assert_eq!(serve.tool_names(), ["good"]);
    let mut lines = serve.finish().expect_code(0).stderr;
    lines.sort();
    let expected: [&[&str]; 4] = [
        &["plugin tool a good one is left out", "1 to 128 of"],
        &["plugin tool bare is left out: command is missing"],
        &["plugin tool list is left out: inputSchema must be of type object"],
        &["plugin tool text is left out: the entry must be an object (found a string)"],
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, words) in lines.iter().zip(expected) {
        expect_words(line, words);
    }
    let wrong = home.path("wrong.json");
    home.write("wrong.json", r#"{"pluginTools": []}"#);
    home.run(&["serve", "--config", wrong.to_str().unwrap()])
        .expect_code(2)
        .expect_stderr(&["pluginTools must be an object (found an array)"]);
}

#[test]
fn channel_tools_and_commands_stand_side_by_side() {
    let home = Home::new("plugins-gateway");
    let config =
        json!({"pluginTools": {"events_poll": {"command": "true"}, "extra": sh("echo 1")}});
    configure(&home, &config);
    let mut arguments = EMBEDDED.to_vec();
    arguments.extend(["--config", "drawspan.json"]);
    let mut serve = Process::serve(&mut home.drawspan(&arguments));
    serve.meet();
    for _ in 0..2 {
        let names = serve.tool_names();
        assert_eq!(names.len(), 10, "{names:?}");
        assert_eq!(names.last().unwrap(), "extra");
    }
    assert_eq!(text(&serve.call("extra", "{}")), "1");
    expect_words(text(&serve.call("events_poll", "{}")), &["events"]);
    serve
        .finish()
        .expect_code(0)
        .expect_stderr(&["plugin tool events_poll is left out: a channel tool has that name"]);
}

#[test]
fn servers_and_commands_stand_side_by_side() {
    let shop = Shop::new("plugins-servers")
        .with(
            "TOOLS",
            r#"[{"name":"echo","inputSchema":{"type":"object"}}]"#,
        )
        .with("RESULT", r#"{"content":[{"type":"text","text":"hi"}]}"#);
    let config = json!({
        "mcpServers": {"one": shop.entry()},
        "pluginTools": {"extra": sh("echo 1")},
    });
    let mut serve = serve_config(&shop.home, &config);
    let mut names = serve.tool_names();
    names.sort();
    assert_eq!(names, ["echo", "extra"]);
    assert_eq!(text(&serve.call("extra", "{}")), "1");
    assert_eq!(text(&serve.call("echo", "{}")), "hi");
    serve.finish().expect_code(0);
    shop.home.expect_processes(0);
}

#[test]
fn the_first_command_beside_a_server_shows_up() {
    let shop = Shop::new("plugins-first")
        .with(
            "TOOLS",
            r#"[{"name":"echo","inputSchema":{"type":"object"}}]"#,
        )
        .with("RESULT", r#"{"content":[{"type":"text","text":"hi"}]}"#);
    let servers = json!({"one": shop.entry()});
    let mut serve = serve_config(&shop.home, &json!({"mcpServers": servers}));
    assert_eq!(serve.tool_names(), ["echo"]);
    let both = json!({"mcpServers": servers, "pluginTools": {"extra": sh("echo 1")}});
    configure(&shop.home, &both);
    // The server did not say that its list changes, so that this client is not told either.
    until("both tools", || {
        let mut listed = serve.tool_names();
        listed.sort();
        match listed == ["echo", "extra"] {
            true => Ok(()),
            false => Err(format!("{listed:?}")),
        }
    });
    assert_eq!(text(&serve.call("extra", "{}")), "1");
    assert_eq!(text(&serve.call("echo", "{}")), "hi");
    serve.finish().expect_code(0);
    shop.home.expect_processes(0);
}

#[test]
fn a_changed_file_is_read_again_and_what_runs_goes_on() {
    let home = Home::new("plugins-reload");
    let slow = sh("until [ -e go ]; do read -r _ || sleep 0.02; done; echo slept");
    let before = json!({"pluginTools": {"kept": slow, "gone": slow, "other": sh("echo 1")}});
    let mut serve = serve_config(&home, &before);
    assert_eq!(serve.tool_names().len(), 3);
    let open = [serve.begin("kept", "{}"), serve.begin("gone", "{}")];
    serve.sync();
    let after = json!({"pluginTools": {"kept": slow, "other": sh("echo 2"), "new": sh("echo 3")}});
    configure(&home, &after);
    serve.message("a change of the tools", |message| {
        message["method"] == "notifications/tools/list_changed"
    });
    let mut listed = serve.tool_names();
    listed.sort();
    assert_eq!(listed, ["kept", "new", "other"]);
    assert_eq!(text(&serve.call("other", "{}")), "2");
    assert_eq!(text(&serve.call("new", "{}")), "3");
    let gone = serve.begin("gone", "{}");
    assert_eq!(serve.answer(gone)["error"]["code"], -32602);
    home.write("go", "");
    for id in open {
        assert_eq!(text(&serve.answer(id)["result"]), "slept\n");
    }
    // A file that cannot be read changes nothing.
    configure(&home, &json!({"pluginTools": 5}));
    serve.signal(Signal::HUP);
    assert_eq!(text(&serve.call("new", "{}")), "3");
    let finished = serve.finish().expect_code(0);
    assert!(!finished.stderr.is_empty());
    for line in &finished.stderr {
        expect_words(line, &["pluginTools must be an object", "still served"]);
    }
}

#[test]
fn the_hook_is_asked_before_a_command() {
    let home = Home::new("plugins-hook");
    let hook = r#"case "$(tee -a asked)" in
        *'"tool":"never"'*) echo '{"block":true,"blockReason":"not today"}' ;;
        *) echo '{"params":{"n":1.0}}' ;;
    esac"#;
    let config = json!({
        "pluginTools": {"echo": sh("cat; echo x >>ran"), "never": sh("echo x >>ran")},
        "hooks": {"beforeToolCall": {"command": ["sh", "-c", hook]}},
    });
    let mut serve = serve_config(&home, &config);
    expect_failure(&serve.call("never", "{}"), &["not today"]);
    assert!(!home.path("ran").exists());
    assert_eq!(text(&serve.call("echo", r#"{"a":2}"#)), r#"{"n":1.0}"#);
    let asked = std::fs::read_to_string(home.path("asked")).unwrap();
    expect_words(&asked, &[r#""server":"local""#, r#""tool":"never""#]);
    serve.finish().expect_code(0).expect_silence();
}
