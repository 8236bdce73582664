//! `drawspan call`: what is printed, when, and with which code it ends.

use rustix::process::Signal;

use super::servers::{Shop, document, error, everything, everything_http};
use crate::world::{Home, Process, expect_words, until};

const ONE: &str = r#"[{"name":"t","inputSchema":{"type":"object"}}]"#;

#[test]
fn a_result_keeps_its_bytes() {
    let result = r#"{"content":[{"type":"text","text":"hi"}],"big":12345678901234567890,"one":1.0,"structuredContent":{"a":1.50},"new":{}}"#;
    let shop = Shop::new("call-bytes")
        .with("TOOLS", ONE)
        .with("RESULT", result);
    let finished = shop
        .run(&["call", "t", "--json"])
        .expect_code(0)
        .expect_silence();
    assert_eq!(finished.stdout, [result]);
    let finished = shop.run(&["call", "t"]).expect_code(0).expect_silence();
    assert_eq!(finished.stdout, ["hi"]);
}

#[test]
fn a_failed_tool_is_a_result_and_code_5() {
    let result = r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#;
    let shop = Shop::new("call-failed")
        .with("TOOLS", ONE)
        .with("RESULT", result);
    let finished = shop
        .run(&["call", "t", "--json"])
        .expect_code(5)
        .expect_silence();
    assert_eq!(finished.stdout, [result]);
    let finished = shop.run(&["call", "t"]).expect_code(5).expect_silence();
    assert_eq!(finished.stdout, ["no"]);
}

#[test]
fn a_result_that_does_not_match_is_code_6() {
    let tools = r#"[{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object","required":["a"]}}]"#;
    let shop = Shop::new("call-output").with("TOOLS", tools);
    let shop = shop.with("RESULT", r#"{"content":[],"structuredContent":{"b":1}}"#);
    let finished = shop.run(&["call", "t", "--json"]).expect_code(6);
    let message = error(&finished)["message"].to_string();
    expect_words(
        &message,
        &["server server: the result of t does not match its schema"],
    );
}

#[test]
fn an_unknown_tool_is_code_5_and_the_known_ones_are_named() {
    let tools = r#"[{"name":"one","inputSchema":{"type":"object"}},{"name":"two","inputSchema":{"type":"object"}}]"#;
    let shop = Shop::new("call-unknown").with("TOOLS", tools);
    let finished = shop.run(&["call", "three", "--json"]).expect_code(5);
    let error = error(&finished);
    assert_eq!(
        error["message"],
        "server server: unknown tool three; it offers one, two"
    );
    assert_eq!(error["data"]["server"], "server");
    // A tool that is hidden is not there.
    for hidden in [["--exclude", "t*"], ["--include", "one"]] {
        let finished = shop
            .run(&[&["call", "two"][..], &hidden].concat())
            .expect_code(5);
        finished.expect_stderr(&["error: server server: unknown tool two; it offers one"]);
    }
    assert_eq!(shop.heard_times("tools/call"), 0);
}

#[test]
fn a_schema_that_cannot_be_used_checks_nothing_and_is_told() {
    let tools =
        r#"[{"name":"t","inputSchema":{"type":"object","properties":{"a":{"pattern":"("}}}}]"#;
    let shop = Shop::new("call-schema").with("TOOLS", tools);
    let finished = shop.run(&["call", "t", "a=b"]).expect_code(0);
    finished.expect_stderr(&["warning: server server:", "t", "inputSchema"]);
    let listed = document(
        &shop
            .run(&["list", "--json"])
            .expect_code(0)
            .expect_silence(),
    );
    assert_eq!(listed["diagnostics"][0]["tool"], "t");
    assert_eq!(listed["diagnostics"].as_array().unwrap().len(), 1);
}

#[test]
fn the_errors_of_a_server_keep_their_code() {
    let shop = Shop::new("call-remote").with("TOOLS", ONE);
    let shop = shop.with(
        "CALL",
        r#"answer '"error":{"code":-32000,"message":"out of paper","data":{"tray":2}}'; continue"#,
    );
    let finished = shop.run(&["call", "t", "--json"]).expect_code(1);
    let error = error(&finished);
    assert_eq!(
        (&error["code"], &error["data"]["server"]),
        (&(-32000).into(), &"server".into())
    );
    expect_words(
        &error["message"].to_string(),
        &["server server", "-32000", "out of paper"],
    );
    assert_eq!(finished.stderr.len(), 1, "said once");
}

#[test]
fn the_result_is_out_before_the_server_is_made_to_end() {
    let shop = Shop::new("call-flush").with("TOOLS", ONE);
    let env = [
        format!("TOOLS={ONE}"),
        "RESULT={\"content\":[{\"type\":\"text\",\"text\":\"whole\"}]}".to_owned(),
        "AFTER=cp \"$HOME/out\" \"$HOME/at-the-end\"".to_owned(),
    ];
    let mut args = vec!["call", "t"];
    args.extend(env.iter().flat_map(|pair| ["-e", pair]));
    args.extend(["--", "./server"]);
    let mut command = shop.home.shell(r#"exec "$@" >out"#, &args);
    Process::start(&mut command).finish().expect_code(0);
    let seen = std::fs::read_to_string(shop.home.path("at-the-end")).unwrap();
    assert_eq!(seen, "whole\n");
    shop.home.expect_processes(0);
}

#[test]
fn signals_end_everything_however_many_come() {
    let shop = Shop::new("call-signals").with("TOOLS", ONE);
    let env = [
        format!("TOOLS={ONE}"),
        "BEFORE=trap \"\" TERM INT HUP".to_owned(),
        "CALL=sleep 1000".to_owned(),
    ];
    for signals in [
        &[Signal::TERM][..],
        &[Signal::INT, Signal::INT, Signal::TERM],
    ] {
        let mut args = vec!["call", "t"];
        args.extend(env.iter().flat_map(|pair| ["-e", pair]));
        args.extend(["--", "./server"]);
        let process = Process::start(&mut shop.home.drawspan(&args));
        until("the call", || match shop.heard_times("tools/call") {
            0 => Err(format!("{:?}", shop.heard())),
            _ => Ok(()),
        });
        signals.iter().for_each(|signal| process.signal(*signal));
        let finished = process.end().expect_code(1);
        assert_eq!(finished.stdout, Vec::<String>::new());
        finished.expect_stderr(&["error: interrupted"]);
        shop.home.expect_processes(0);
        std::fs::remove_file(shop.home.path("heard")).unwrap();
    }
}

#[test]
fn it_works_over_http_too() {
    let home = Home::new("call-http");
    let (_server, url) = everything_http(&home);
    for protocol in ["auto", "legacy", "2025-03-26", "2024-11-05", "modern"] {
        let args = ["call", &url, "test_simple_text", "--protocol", protocol];
        let finished = home.run(&args).expect_code(0).expect_silence();
        expect_words(&finished.stdout.join("\n"), &["simple text response"]);
    }
    let finished = home.run(&["call", "test_simple_text", "--", &everything()]);
    finished.expect_code(0).expect_silence();
}

#[test]
fn a_closed_stdout_is_no_failure() {
    let shop = Shop::new("call-closed").with("TOOLS", ONE);
    let tools = format!("TOOLS={ONE}");
    let args = ["call", "t", "-e", &tools, "--", "./server"];
    let mut command = shop
        .home
        .shell(r#"{ "$@"; echo code=$? >&2; } | true"#, &args);
    let finished = Process::start(&mut command).finish();
    let said = finished.stderr.join("\n");
    assert!(said == "code=0", "{said}");
}
