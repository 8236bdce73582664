//! From the start of a server to its first list: c01 to c06, c15, f05.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::era::in_era;
use crate::world::{ERAS, PROMPT, World, case, expect_words, serve};

/// A server that does nothing wrong.
fn good(era: &str) -> Value {
    let input = case("c07-late-answer-after-cancel")["input"].clone();
    in_era(era, &input)["steps"].clone()
}

#[test]
fn c01_silent_initialize() {
    let input = &case("c01-silent-initialize")["input"];
    let limit = &input["settings"]["connect_timeout_ms"];
    for (choice, what, asked) in [
        ("legacy", "initialize", &["initialize"][..]),
        ("modern", "server/discover", &["server/discover"]),
        ("auto", "initialize", &["server/discover", "initialize"]),
    ] {
        let world = World::new(&format!("c01-{choice}"));
        let times = json!({"connectionTimeoutMs": limit, "discoverTimeoutMs": 300});
        let mut silent = world.entry("silent", &input["steps"], times);
        silent["protocol"] = choice.into();
        let other = world.entry("other", &good("legacy"), json!({"protocol": "legacy"}));
        let config = world.config(json!({"silent": silent, "other": other}));

        let run = world.run(&["list", "silent", "--config", &config, "--json"]);
        let run = run.expect_code(124);
        assert!(
            run.took >= Duration::from_millis(1_000) && run.took < PROMPT,
            "{run:?}"
        );
        let words = ["silent", what, "timed out after", "waiting for database"];
        let error = run.expect_error(&words);
        assert_eq!(error["data"]["server"], "silent", "{error}");
        let heard = world.heard("silent");
        let methods: Vec<&Value> = heard.messages().iter().map(|m| &m["method"]).collect();
        assert_eq!(methods, asked, "and nothing is taken back");
        world.expect_nobody();

        // Others are usable meanwhile.
        let run = world
            .run(&["probe", "--config", &config, "--json"])
            .expect_code(1);
        assert!(run.took < PROMPT, "{run:?}");
        let servers = &run.json()["servers"];
        assert_eq!(servers["silent"]["ok"], false, "{servers}");
        assert_eq!(servers["silent"]["state"], "failed", "{servers}");
        assert_eq!(servers["silent"]["tools"], 0, "{servers}");
        assert_eq!(servers["other"]["ok"], true, "{servers}");
        assert_eq!(servers["other"]["toolNames"], json!(["echo"]), "{servers}");
        let diagnostic = run.expect_diagnostic("silent", &words);
        assert!(diagnostic["phase"] == "initialize" || diagnostic["phase"] == "discover");
        assert_eq!(run.diagnostics_of("other"), Vec::<Value>::new());
        world.expect_nobody();
    }
}

#[test]
fn c02_crash_with_reason() {
    let input = &case("c02-crash-with-reason")["input"];
    let limit = &input["settings"]["connect_timeout_ms"];
    let world = World::new("c02");
    let entry = world.entry(
        "broken",
        &input["steps"],
        json!({"connectionTimeoutMs": limit}),
    );
    let config = world.config(json!({"broken": entry}));
    let words = [
        "broken",
        "exited with code 3",
        "fatal: MADE_TOKEN is not set",
    ];
    // What it said races with the end of its output; it must never lose.
    for _ in 0..20 {
        let run = world.run(&["call", "broken", "echo", "--config", &config, "--json"]);
        let run = run.expect_prompt().expect_failure();
        let error = run.expect_error(&words);
        let data = &error["data"];
        assert_eq!(data["exitCode"], 3, "{error}");
        expect_words(data["stderr"].as_str().unwrap(), &["MADE_TOKEN is not set"]);
        assert!(!run.stderr.contains("sk-made"), "{}", run.stderr);
    }
    let run = world.run(&["probe", "--config", &config, "--json"]);
    let run = run.expect_prompt().expect_code(1);
    run.expect_diagnostic("broken", &words);
    assert!(!format!("{run:?}").contains("sk-made"), "{run:?}");
    world.expect_nobody();
}

#[test]
fn c03_banner_first() {
    for era in ERAS {
        let world = World::new(&format!("c03-{era}"));
        let input = in_era(era, &case("c03-banner-first")["input"]);
        let entry = world.entry("s", &input["steps"], json!({"protocol": era}));
        let config = world.config(json!({"s": entry}));
        let run = world.run(&["list", "s", "--config", &config, "--json"]);
        let run = run.expect_code(0);
        assert_eq!(run.tools(), ["echo"]);
        let noise = run.diagnostics();
        assert!(
            noise
                .iter()
                .all(|one| one["level"] != "error" && one.get("level").is_some())
        );
        let noise: Vec<&Value> = noise
            .iter()
            .filter(|one| one["code"] == "stdout-noise")
            .collect();
        assert_eq!(noise.len(), 1, "{run:?}");
        assert_eq!(noise[0]["count"], 1);
        expect_words(
            noise[0]["sample"].as_str().unwrap(),
            &["made-peer v1 listening on stdio"],
        );

        let heard = world.heard("s");
        if era == "legacy" {
            let at = |method| heard.position(method, |message| message["method"] == method);
            assert!(
                at("notifications/initialized") < at("tools/list"),
                "{heard:?}"
            );
        }
        world.expect_nobody();
    }
}

#[test]
fn c04_request_before_init_answer() {
    for era in ERAS {
        let world = World::new(&format!("c04-{era}"));
        let input = in_era(era, &case("c04-request-before-init-answer")["input"]);
        let entry = world.entry("s", &input["steps"], json!({"protocol": era}));
        let config = world.config(json!({"s": entry}));
        let run = world.run(&["list", "s", "--config", &config, "--json"]);
        assert_eq!(run.expect_code(0).tools(), ["echo"]);

        let heard = world.heard("s");
        let answer = |id: Value| {
            let answers = heard.messages();
            answers
                .into_iter()
                .find(|m| m.get("method").is_none() && m["id"] == id)
                .cloned()
        };
        let [ping, roots, sampling] = [json!("srv-1"), json!("srv-2"), json!(0)].map(answer);
        if era == "modern" {
            // A server must not ask there: nothing is granted.
            let answers = [ping, roots, sampling];
            let granted = answers.iter().flatten().any(|m| m.get("result").is_some());
            assert!(!granted, "{answers:?}");
        } else {
            assert_eq!(ping.unwrap()["result"], json!({}));
            assert_eq!(roots.unwrap()["error"]["code"], -32601);
            assert_eq!(sampling.unwrap()["error"]["code"], -32601);
            // While its own request was still open.
            let last = heard.position("an answer", |m| m.get("error").is_some() && m["id"] == 0);
            let done = heard.position("initialized", |m| {
                m["method"] == "notifications/initialized"
            });
            assert!(last < done, "{heard:?}");
        }
        world.expect_nobody();
    }
}

#[test]
fn c05_older_version() {
    let world = World::new("c05");
    let input = &case("c05-older-version")["input"];
    let mut servers = json!({});
    for server in input["servers"].as_array().unwrap() {
        let name = server["name"].as_str().unwrap();
        servers[name] = world.entry(name, &server["steps"], json!({"protocol": "legacy"}));
    }
    let config = world.config(servers);
    let run = world
        .run(&["probe", "--config", &config, "--json"])
        .expect_code(1);
    let probed = &run.json()["servers"];
    assert_eq!(probed["old"]["ok"], true, "{probed}");
    assert_eq!(probed["old"]["protocolVersion"], "2024-11-05", "{probed}");
    assert_eq!(probed["old"]["tools"], 1, "{probed}");
    for (name, offered) in [
        ("future", "2031-01-01"),
        ("nonsense", "1999-01-01"),
        ("absent", "absent"),
    ] {
        assert_eq!(probed[name]["ok"], false, "{probed}");
        run.expect_diagnostic(name, &[name, offered, "2024-11-05", "2025-11-25"]);
        assert_eq!(world.heard(name).of("notifications/initialized").len(), 0);
        let run = world
            .run(&["list", name, "--config", &config, "--json"])
            .expect_code(6);
        let error = run.expect_error(&[name, offered, "2025-11-25"]);
        assert!(
            error["data"]["supported"].is_array() || name == "absent",
            "{error}"
        );
    }
    let run = world.run(&["call", "old", "echo", "--config", &config, "--json"]);
    assert_eq!(run.expect_code(0).text(), "done");
    world.expect_nobody();
}

#[test]
fn c06_discover_fallback() {
    let world = World::new("c06");
    let input = &case("c06-discover-fallback")["input"];
    let wait = &input["settings"]["probe_timeout_ms"];
    let mut servers = json!({});
    for server in input["servers"].as_array().unwrap() {
        let name = server["name"].as_str().unwrap();
        servers[name] = world.entry(name, &server["steps"], json!({"discoverTimeoutMs": wait}));
    }
    // A late answer to the probe, after the fallback began.
    let hello = &input["servers"][0]["steps"][0]["table"];
    let late = json!([
        {"do": "await", "method": "server/discover", "as": "probe"},
        {"do": "await", "method": "initialize"},
        {"do": "reply", "to": "probe", "error": {"code": -32601, "message": "late"}},
        {"do": "reply", "result": hello["initialize"]["result"]},
        {"do": "auto", "table": hello}]);
    servers["late"] = world.entry("late", &late, json!({"discoverTimeoutMs": wait}));
    let config = world.config(servers);

    let run = world
        .run(&["probe", "--config", &config, "--json"])
        .expect_code(0);
    let probed = &run.json()["servers"];
    for (name, server) in probed.as_object().unwrap() {
        assert_eq!(server["toolNames"], json!(["echo"]), "{name}: {server}");
        let heard = world.heard(name);
        let methods: Vec<&str> = heard
            .messages()
            .iter()
            .map(|m| m["method"].as_str().unwrap_or(""))
            .collect();
        assert_eq!(
            methods[0], "server/discover",
            "nothing before it: {methods:?}"
        );
        if name == "modern-other-version" {
            assert_eq!(server["protocolVersion"], "2026-07-28");
            assert!(!methods.contains(&"initialize"), "{methods:?}");
            let meta = &heard.of("tools/list")[0]["params"]["_meta"];
            assert_eq!(
                meta["io.modelcontextprotocol/protocolVersion"],
                "2026-07-28"
            );
        } else {
            assert_eq!(server["protocolVersion"], "2025-06-18");
            assert_eq!(methods[1], "initialize", "{methods:?}");
            let meta = heard.of("tools/list")[0]["params"].get("_meta");
            assert_eq!(meta, None, "the era's own rules");
        }
    }
    assert_eq!(probed.as_object().unwrap().len(), 6);
    world.expect_nobody();
}

/// The same over HTTP, where the answer's status speaks too.
#[test]
fn c06_discover_fallback_over_http() {
    let world = World::new("c06-http");
    let input = &case("e05-get-not-offered")["input"];
    let json = "Content-Type: application/json\r\n";
    let unknown =
        r#"{"jsonrpc":"2.0","id":{{id}},"error":{"code":-32601,"message":"no such method"}}"#;
    let nameless =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"not initialized"}}"#;
    for (head, body) in [
        ("HTTP/1.1 400 Bad Request\r\n".to_owned(), "no session"),
        ("HTTP/1.1 404 Not Found\r\n".to_owned(), ""),
        (format!("HTTP/1.1 200 OK\r\n{json}"), unknown),
        (format!("HTTP/1.1 400 Bad Request\r\n{json}"), nameless),
    ] {
        let mut input = input.clone();
        let refusal = json!({"when": {"rpc": "server/discover"}, "head": head, "body": [body]});
        input["exchanges"]
            .as_array_mut()
            .unwrap()
            .insert(0, refusal);
        let peer = serve(&input);
        let run = world
            .run(&["list", &peer.url(), "--json"])
            .expect_prompt()
            .expect_code(0);
        assert_eq!(
            run.json()["protocolVersion"],
            "2025-06-18",
            "after {head:?} {body:?}"
        );
        assert_eq!(run.tools(), ["echo"]);
        assert_eq!(peer.posts("server/discover").len(), 1);
        let hello = &peer.posts("initialize")[0];
        assert_eq!(
            hello.field("mcp-method"),
            None,
            "the era's own rules: {hello:?}"
        );
    }
    let peer = serve(&in_era("modern", input));
    let run = world
        .run(&["list", &peer.url(), "--json"])
        .expect_prompt()
        .expect_code(0);
    assert_eq!(run.json()["protocolVersion"], "2026-07-28");
    assert_eq!(peer.posts("initialize").len(), 0);
}

/// A target that stands on the command line instead of in a configuration.
#[test]
fn c03_with_the_command_in_the_arguments() {
    let world = World::new("c03-command");
    let command = world.command("s", &case("c03-banner-first")["input"]["steps"]);
    let target: Vec<&str> = command.iter().map(String::as_str).collect();
    let run = |args: &[&str]| {
        let args = [args, &["--protocol", "legacy", "--json", "--"], &target].concat();
        world.run(&args).expect_prompt().expect_code(0)
    };
    assert_eq!(run(&["list"]).tools(), ["echo"]);
    assert_eq!(run(&["call", "echo", "text=hi"]).text(), "done");
    let heard = world.heard("s");
    let call = &heard.of("tools/call")[0]["params"];
    assert_eq!(call["arguments"], json!({"text": "hi"}), "{call}");
    world.expect_nobody();
}

#[test]
fn c15_stderr_flood() {
    for era in ERAS {
        let world = World::new(&format!("c15-{era}"));
        let input = in_era(era, &case("c15-stderr-flood")["input"]);
        let entry = world.entry("s", &input["steps"], json!({"protocol": era}));
        let config = world.config(json!({"s": entry}));
        let run = world.run(&["list", "s", "--config", &config, "--json"]);
        let run = run.expect_prompt().expect_code(0);
        assert_eq!(run.tools(), ["echo"]);
        assert_eq!(run.diagnostics(), Vec::<Value>::new(), "no sign of failure");
        assert!(!run.stdout.contains("noise line"), "{}", run.stdout);
        assert!(
            run.stderr.len() <= 128 * 1024,
            "{} bytes on stderr",
            run.stderr.len()
        );
        world.expect_nobody();
    }
}

/// The exchange of a case with the program that listens at `host`: everything that comes until its end.
#[track_caller]
fn exchange(host: &str, request: &Value) -> String {
    let head = request["raw"][0]
        .as_str()
        .unwrap()
        .replace("{{host}}", host);
    let body = request["body"].as_str().unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(PROMPT)).unwrap();
    let length = body.len();
    let all = format!("{head}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(all.as_bytes()).unwrap();
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("a complete answer");
    answer
}

#[test]
fn f05_child_dies_at_start() {
    let input = &case("f05-child-dies-at-start")["input"];
    for era in ERAS {
        let world = World::new(&format!("f05-{era}"));
        let steps = in_era(era, &input["servers"][0]["steps"]);
        let entry = world.entry("dies", &steps, json!({"protocol": era}));
        let config = world.config(json!({"dies": entry}));
        let args = [
            "serve",
            "--config",
            &config,
            "--listen",
            "http://127.0.0.1:0",
        ];
        let mut serve = world.drawspan(&args).spawn().unwrap();
        let mut stderr = BufReader::new(serve.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on http://").unwrap();
        let host = url.strip_suffix("/mcp").unwrap();
        for start in 1..=2 {
            let answer = exchange(host, &input["requests"][0]);
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
            assert!(
                !head.to_ascii_lowercase().contains("mcp-session-id"),
                "{head}"
            );
            let body: Value = serde_json::from_str(body).unwrap();
            let error = &body["error"];
            assert_eq!((&body["id"], &error["code"]), (&json!(1), &json!(-32603)));
            expect_words(
                error["message"].as_str().unwrap(),
                &["dies", "exited with code 1", "cannot find module './made'"],
            );
            assert_eq!(error["data"]["exitCode"], 1, "{body}");
            // Each handshake gets a new child.
            assert_eq!(world.heard("dies").starts().len(), start);
        }
        let pid = Pid::from_child(&serve);
        kill_process(pid, Signal::TERM).unwrap();
        assert!(serve.wait().unwrap().success());
        world.expect_nobody();
    }
}
