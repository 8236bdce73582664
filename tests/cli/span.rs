//! `drawspan serve TARGET…`: upstream servers behind stdin and stdout, the gate before them, and their
//! configuration read again.

use rustix::process::Signal;
use serde_json::Value;

use crate::client::servers::Shop;
use crate::world::{Process, expect_words, text};

const TOOLS: &str =
    r#"[{"name":"echo","description":"says it","inputSchema":{"type":"object"},"x":1.0}]"#;
const RESULT: &str = r#"{"content":[{"type":"text","text":"hi"}],"big":12345678901234567890}"#;

fn shop(test: &str) -> Shop {
    Shop::new(test).with("TOOLS", TOOLS).with("RESULT", RESULT)
}

/// Configures a server of the script for each name.
fn configure(shop: &Shop, names: &[&str]) {
    let servers = names.iter().map(|name| ((*name).to_owned(), shop.entry()));
    let servers: serde_json::Map<String, Value> = servers.collect();
    let text = serde_json::json!({ "mcpServers": servers }).to_string();
    // A new file in the place of the old one, as editors do it.
    shop.home.write("new.json", &text);
    std::fs::rename(shop.home.path("new.json"), shop.home.path("drawspan.json")).unwrap();
}

fn serve(shop: &Shop) -> Process {
    let mut process = Process::serve(&mut shop.home.drawspan(&["serve"]));
    process.hello();
    process
}

/// The tools become these.
fn expect_names(process: &mut Process, expected: &[&str]) {
    // Each server's change is one of its own.
    while process.tool_names() != expected {
        process.message("a change of the tools", |message| {
            message["method"] == "notifications/tools/list_changed"
        });
    }
}

#[test]
fn one_server_keeps_its_names_and_its_bytes() {
    let shop = shop("span-one");
    let mut command = shop.home.drawspan(&["serve"]);
    for (name, value) in [("TOOLS", TOOLS), ("RESULT", RESULT)] {
        command.args(["-e", &format!("{name}={value}")]);
    }
    command.args(["--", "./server"]);
    let mut serve = Process::serve(&mut command);
    serve.hello();
    let list = serve.request("tools/list", "{}");
    let answer = serve.answer(list);
    assert_eq!(answer["result"]["tools"][0]["name"], "echo");
    let result = serve.call("echo", r#"{"text":"x"}"#);
    assert_eq!(text(&result), "hi");
    assert_eq!(result["big"].to_string(), "12345678901234567890");
    // Whatever else is asked goes to the server as it is.
    let other = serve.request("vendor/method", r#"{"a":[1.0]}"#);
    assert_eq!(serve.answer(other)["result"]["content"][0]["text"], "hi");
    assert_eq!(shop.heard_times(r#""a":[1.0]"#), 1);
    serve.finish().expect_code(0).expect_silence();
    shop.home.expect_processes(0);
}

#[test]
fn several_servers_have_names_of_their_own() {
    let shop = shop("span-several");
    configure(&shop, &["one", "two"]);
    let mut serve = serve(&shop);
    assert_eq!(serve.tool_names(), ["one__echo", "two__echo"]);
    assert_eq!(text(&serve.call("two__echo", "{}")), "hi");
    let unknown = serve.begin("three__echo", "{}");
    assert_eq!(serve.answer(unknown)["error"]["code"], -32602);
    serve.finish().expect_code(0);
    shop.home.expect_processes(0);
}

#[test]
fn params_of_a_call_reach_the_server_as_they_came() {
    let shop = shop("span-params");
    configure(&shop, &["one", "two"]);
    let mut serve = serve(&shop);
    let params = |name: &str| {
        format!(
            r#"{{ "task":{{"ttl":6e4}},"name" : "{name}", "vendor":[1.0,12345678901234567890,"\u00e9\/"], "_meta":{{"acme/x":{{"b":1,"a":2}}}} }}"#
        )
    };
    let call = serve.request("tools/call", &params("two__echo"));
    assert_eq!(text(&serve.answer(call)["result"]), "hi");
    assert_eq!(shop.heard_times(&params("echo")), 1, "{:?}", shop.heard());
    serve.finish().expect_code(0);
    shop.home.expect_processes(0);
}

#[test]
fn an_error_of_the_server_is_passed_on_with_everything_it_says() {
    let error =
        serde_json::json!({"code": -32099, "message": "no\u{e9}", "data": [1.5], "hint": {"a": 1}});
    let shop = shop("span-error").with("OTHER", &format!(r#""error":{error}"#));
    configure(&shop, &["one"]);
    let mut serve = serve(&shop);
    let asked = serve.request("vendor/method", "{}");
    assert_eq!(serve.answer(asked)["error"], error);
    serve.finish().expect_code(0);
}

#[test]
fn lists_and_reads_of_an_older_server_say_how_long_they_live_to_a_newer_client() {
    let shop = shop("span-ttl").with("RESULT", r#"{"contents":[]}"#);
    configure(&shop, &["one"]);
    let mut serve = Process::serve(&mut shop.home.drawspan(&["serve"]));
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    for (method, kept) in [("resources/read", true), ("vendor/method", false)] {
        let asked = serve.request(method, &format!(r#"{{"uri":"x",{meta}}}"#));
        let result = serve.answer(asked)["result"].take();
        assert_eq!(result["resultType"], "complete", "{method}");
        assert_eq!(result.get("ttlMs").is_some(), kept, "{method}: {result}");
        assert_eq!(
            result.get("cacheScope").is_some(),
            kept,
            "{method}: {result}"
        );
    }
    serve.finish().expect_code(0);
}

#[test]
fn an_error_about_our_own_hop_is_told_as_ours() {
    for code in [-32022, -32020] {
        let error = format!(r#""error":{{"code":{code},"message":"bad header"}}"#);
        let shop = shop("span-hop-error").with("OTHER", &error);
        configure(&shop, &["one"]);
        let mut serve = serve(&shop);
        let asked = serve.request("vendor/method", "{}");
        let told = serve.answer(asked)["error"].take();
        assert_eq!(told["code"], -32603);
        expect_words(told["message"].as_str().unwrap(), &["one", "bad header"]);
        serve.finish().expect_code(0);
    }
}

#[test]
fn a_server_that_cannot_be_started_costs_its_own_tools() {
    let shop = shop("span-broken");
    let config = serde_json::json!({"mcpServers": {
        "broken": {"command": "/nonexistent/server"},
        "good": shop.entry(),
    }});
    shop.home.write("drawspan.json", &config.to_string());
    let mut serve = serve(&shop);
    assert_eq!(serve.tool_names(), ["good__echo"]);
    assert_eq!(text(&serve.call("good__echo", "{}")), "hi");
    serve
        .finish()
        .expect_code(0)
        .expect_stderr(&["broken", "no such program"]);
    shop.home.expect_processes(0);
}

#[test]
fn a_hook_is_asked_before_an_upstream_tool() {
    let shop = shop("span-hook");
    let hook = r#"cat > asked; echo '{"block":true,"blockReason":"not today"}'"#;
    let config = serde_json::json!({
        "mcpServers": {"one": shop.entry()},
        "hooks": {"beforeToolCall": {"command": ["sh", "-c", hook]}},
    });
    shop.home.write("drawspan.json", &config.to_string());
    let mut serve = serve(&shop);
    let result = serve.call("echo", r#"{"text":"x"}"#);
    assert_eq!(result["isError"], true);
    expect_words(text(&result), &["not today"]);
    assert_eq!(shop.heard_times("tools/call"), 0, "nothing was sent");
    let asked = std::fs::read_to_string(shop.home.path("asked")).unwrap();
    expect_words(&asked, &[r#""server":"one""#, r#""tool":"echo""#]);
    serve.finish().expect_code(0);
    shop.home.expect_processes(0);
}

#[test]
fn a_changed_file_is_read_again_and_only_what_changed_is_restarted() {
    let shop = shop("span-reload");
    configure(&shop, &["one", "two"]);
    let mut serve = serve(&shop);
    assert_eq!(serve.tool_names(), ["one__echo", "two__echo"]);
    assert_eq!(shop.heard_times(r#""method":"initialize""#), 2);
    configure(&shop, &["one", "three"]);
    expect_names(&mut serve, &["one__echo", "three__echo"]);
    assert_eq!(
        shop.heard_times(r#""method":"initialize""#),
        3,
        "one was kept"
    );
    serve.finish().expect_code(0);
    shop.home.expect_processes(0);
}

#[test]
fn a_file_that_cannot_be_read_leaves_everything_as_it_was() {
    let shop = shop("span-bad-file");
    configure(&shop, &["one", "two"]);
    let mut serve = serve(&shop);
    assert_eq!(serve.tool_names(), ["one__echo", "two__echo"]);
    shop.home.write("drawspan.json", "{ half");
    serve.signal(Signal::HUP);
    assert_eq!(text(&serve.call("two__echo", "{}")), "hi");
    assert_eq!(shop.heard_times(r#""method":"initialize""#), 2);
    configure(&shop, &["two"]);
    serve.signal(Signal::HUP);
    expect_names(&mut serve, &["two__echo"]);
    // Once for the change and once for the signal, when there was time between them.
    let finished = serve.finish().expect_code(0);
    assert!(!finished.stderr.is_empty());
    for line in &finished.stderr {
        expect_words(line, &["drawspan.json", "still served"]);
    }
    shop.home.expect_processes(0);
}

#[test]
fn a_server_that_dies_is_back_for_the_next_call() {
    let shop = shop("span-dies").with("CALL", r#"[ -e died ] || { : > died; kill -9 $$; }"#);
    configure(&shop, &["one", "two"]);
    let mut serve = serve(&shop);
    let first = serve.call("one__echo", "{}");
    assert_eq!(first["isError"], true);
    expect_words(text(&first), &["one", "killed by SIGKILL"]);
    assert_eq!(text(&serve.call("one__echo", "{}")), "hi");
    serve.finish().expect_code(0);
    shop.home.expect_processes(0);
}

#[test]
fn a_signal_ends_the_servers_too() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let shop = shop("span-signal").with("CALL", "sleep 1000");
        configure(&shop, &["one", "two"]);
        let mut serve = serve(&shop);
        assert_eq!(serve.tool_names().len(), 2);
        serve.begin("one__echo", "{}");
        serve.signal(signal);
        serve.wait();
        shop.home.expect_processes(0);
    }
}

#[test]
fn errors_that_a_server_answers_with_do_not_pause_it() {
    let error = r#"printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"disk full"}}\n' "$id"; continue"#;
    let shop = shop("span-errors").with("CALL", error);
    configure(&shop, &["one", "two"]);
    let mut serve = serve(&shop);
    assert_eq!(serve.tool_names().len(), 2);
    for _ in 0..5 {
        let call = serve.begin("one__echo", "{}");
        assert_eq!(serve.answer(call)["error"]["message"], "disk full");
    }
    serve.finish().expect_code(0);
}
