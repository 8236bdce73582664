//! Arguments of a call: words, `--args`, and what they become on the wire.

use std::io::Write;

use super::servers::{Shop, error};
use crate::world::Process;

const TOOLS: &str = r#"[{"name":"t","inputSchema":{"type":"object","properties":{
    "text":{"type":"string"},"n":{"type":"integer"},"maybe":{"anyOf":[{"type":"string"},{"type":"null"}]}}}}]"#;

fn shop(test: &str) -> Shop {
    Shop::new(test).with("TOOLS", &TOOLS.replace('\n', ""))
}

#[test]
fn words_and_json_arrive_as_they_were_given() {
    let rows: [(&[&str], &str); 7] = [
        (&[], "{}"),
        (
            &["text=12", "n=12", "maybe=3"],
            r#"{"text":"12","n":12,"maybe":"3"}"#,
        ),
        (
            &["free=a b", "list=[1,2]"],
            r#"{"free":"a b","list":[1,2]}"#,
        ),
        (
            &["n:=7", r#"deep:={"a":1.0}"#],
            r#"{"n":7,"deep":{"a":1.0}}"#,
        ),
        (
            &["--args", r#"{"n": 12345678901234567890}"#],
            r#"{"n": 12345678901234567890}"#,
        ),
        (
            &["--args", r#"{"n":1,"text":"a"}"#, "text=b"],
            r#"{"n":1,"text":"b"}"#,
        ),
        (
            &["--args", "@file.json", "n=2"],
            r#"{"text":"in a file","n":2}"#,
        ),
    ];
    for (i, (words, arguments)) in rows.into_iter().enumerate() {
        let shop = shop(&format!("arguments-{i}"));
        shop.home
            .write("file.json", "{\"text\":\"in a file\",\"n\":1}\n");
        let finished = shop.run(&[&["call", "t"], words].concat());
        finished.expect_code(0).expect_silence();
        let sent = format!(r#""params":{{"name":"t","arguments":{arguments}"#);
        assert_eq!(shop.heard_times(&sent), 1, "{sent}: {:#?}", shop.heard());
    }
}

#[test]
fn arguments_come_from_stdin() {
    let shop = shop("arguments-stdin");
    let tools = format!("TOOLS={}", TOOLS.replace('\n', ""));
    let args = ["call", "t", "--args", "-", "-e", &tools, "--", "./server"];
    let mut process = Process::start(&mut shop.home.drawspan(&args));
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(br#"{"text":"piped"}"#).unwrap();
    drop(stdin);
    process.finish().expect_code(0);
    assert_eq!(shop.heard_times(r#""arguments":{"text":"piped"}"#), 1);
}

#[test]
fn what_cannot_be_read_starts_nothing() {
    let rows: [(&[&str], &str); 8] = [
        (&["novalue"], "novalue is not name=value"),
        (&["=x"], "=x is not name=value"),
        (&[":=1"], ":=1 is not name:=JSON"),
        (&["n:=x"], "n is not JSON"),
        (&["--args", "[1]"], "--args must be a JSON object"),
        (&["--args", "{"], "--args is not JSON"),
        (
            &["--args", "@nowhere.json"],
            "--args nowhere.json: No such file",
        ),
        (&["--args"], "a value is required for '--args"),
    ];
    for (i, (words, why)) in rows.into_iter().enumerate() {
        let shop = shop(&format!("arguments-bad-{i}"));
        let finished = shop.run(&[&["call", "--json", "t"], words].concat());
        let finished = finished.expect_code(2);
        let message = error(&finished)["message"].to_string();
        assert!(message.contains(why), "{message}");
        assert_eq!(shop.heard(), Vec::<String>::new(), "{words:?}");
    }
}

#[test]
fn what_does_not_match_the_schema_is_not_sent() {
    let shop = shop("arguments-mismatch");
    for json in [false, true] {
        let mut args = vec!["call", "t", "n=many"];
        args.extend(json.then_some("--json"));
        let finished = shop.run(&args).expect_code(5);
        assert_eq!(finished.stdout, Vec::<String>::new());
        let last = finished.stderr.last().unwrap();
        assert!(
            last.contains("server server: arguments of t do not match its schema"),
            "{last}"
        );
        if json {
            assert_eq!(error(&finished)["code"], -32602);
            assert_eq!(error(&finished)["data"]["server"], "server");
        }
    }
    assert_eq!(shop.heard_times("tools/call"), 0);
}
