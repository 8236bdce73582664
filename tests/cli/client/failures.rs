//! How it ends when it goes wrong: the exit code, the words, and the data beside them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};

use serde_json::{Value, json};

use super::servers::{Shop, error};
use crate::common::deserted::port_of_nobody;
use crate::world::{Home, expect_words};

const ONE: &str = r#"[{"name":"t","inputSchema":{"type":"object"}}]"#;

/// One that answers every connection with the same bytes; its URL.
pub(super) fn canned(answer: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let answer = answer.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 65_536];
            // The requests of these tests come in one piece.
            let _ = stream.read(&mut head);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

#[track_caller]
fn expect_failure(finished: crate::world::Finished, code: i32, words: &[&str]) -> Value {
    let finished = finished.expect_code(code);
    let error = error(&finished);
    assert_eq!(finished.stderr.len(), 1, "{:#?}", finished.stderr);
    expect_words(error["message"].as_str().unwrap(), words);
    error
}

#[test]
fn a_server_that_ends_says_how_and_shows_its_last_words() {
    let cases: [(&str, &[&str], Value); 3] = [
        (
            "echo boot failed >&2; exit 3",
            &["server server: exited with code 3", "boot failed"],
            json!({"exitCode": 3}),
        ),
        (
            "kill -9 $$",
            &["server server: killed by SIGKILL"],
            json!({"signal": "SIGKILL"}),
        ),
        (
            "exec >&-; sleep 1000",
            &["server server: server closed its output"],
            json!({}),
        ),
    ];
    for (i, (before, words, data)) in cases.into_iter().enumerate() {
        let shop = Shop::new(&format!("ends-{i}")).with("BEFORE", before);
        for args in [
            &["list", "--json"][..],
            &["call", "t", "--json"],
            &["read", "a:b", "--json"],
        ] {
            let error = expect_failure(shop.run(args), 1, words);
            for (name, value) in data.as_object().unwrap() {
                assert_eq!(error["data"][name], *value, "{args:?}: {error}");
            }
        }
        shop.home.expect_processes(0);
    }
}

#[test]
fn time_limits_are_code_124() {
    let shop = Shop::new("late-call")
        .with("TOOLS", ONE)
        .with("CALL", "sleep 1000");
    let late = shop.run(&["call", "t", "--json", "--timeout", "150ms"]);
    let error = expect_failure(
        late,
        124,
        &["server server", "tools/call timed out after 150 ms"],
    );
    assert_eq!(error["data"]["limit"], 150);

    let shop = Shop::new("late-start").with("BEFORE", "echo still at it >&2; sleep 1000");
    let args = [
        "list",
        "--json",
        "--protocol",
        "legacy",
        "--connect-timeout",
        "1s",
    ];
    let words = [
        "server server",
        "initialize timed out after 1000 ms",
        "still at it",
    ];
    let error = expect_failure(shop.run(&args), 124, &words);
    assert_eq!(error["data"]["phase"], "initialize");
}

#[test]
fn nobody_there_is_code_4() {
    let home = Home::new("nobody");
    let finished = home.run(&["list", "--json", "--", "/no/such/server"]);
    let error = expect_failure(finished, 4, &["server server", "/no/such/server"]);
    assert_eq!(error["data"]["phase"], "spawn");
    let (_held, nobody) = port_of_nobody(Ipv4Addr::LOCALHOST);
    let url = format!("http://{nobody}/mcp");
    let error = expect_failure(
        home.run(&["list", "--json", &url]),
        4,
        &["server 127.0.0.1", "refused"],
    );
    assert_eq!(error["data"]["phase"], "connect");
    let finished = home.run(&["list", "--json", "unix:/no/such/socket"]);
    expect_failure(finished, 4, &["server socket", "/no/such/socket"]);
}

#[test]
fn credentials_that_are_wanted_are_code_3() {
    let home = Home::new("unauthorized");
    let url = canned(concat!(
        "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n",
        "WWW-Authenticate: Bearer resource_metadata=\"http://h/meta\", scope=\"a b\"\r\n\r\n"
    ));
    let words = [
        "server 127.0.0.1",
        "authorization needed",
        "resource_metadata",
    ];
    let error = expect_failure(home.run(&["list", "--json", &url]), 3, &words);
    assert_eq!(error["data"]["status"], 401);
    assert_eq!(
        error["data"]["challenge"],
        json!({"resource_metadata": "http://h/meta", "scope": "a b"})
    );
}

#[test]
fn an_overloaded_server_says_when_to_come_back() {
    let home = Home::new("overloaded");
    let url = canned(
        "HTTP/1.1 429 Too Many\r\nRetry-After: 2\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy",
    );
    // Within its time to connect it would be waited for.
    let error = expect_failure(
        home.run(&["list", "--json", "--connect-timeout", "1s", &url]),
        1,
        &["429", "retry after 2 s"],
    );
    assert_eq!(error["data"]["status"], 429);
    assert_eq!(error["data"]["body"], "busy");
}

#[test]
fn a_broken_protocol_is_code_6() {
    let shop = Shop::new("version").with("REVISION", "1999-01-01");
    let error = expect_failure(
        shop.run(&["list", "--json"]),
        6,
        &["1999-01-01", "2025-11-25"],
    );
    assert!(error["data"]["supported"].is_array(), "{error}");
}

#[test]
fn a_limit_is_code_7() {
    let long = format!(r#"{{"content":[],"x":"{}"}}"#, "x".repeat(5_000));
    let shop = Shop::new("limit").with("TOOLS", ONE).with("RESULT", &long);
    let mut entry = shop.entry();
    entry["maxMessageBytes"] = 4_096.into();
    let file = json!({"mcpServers": {"s": entry}});
    shop.home.write("drawspan.json", &file.to_string());
    let finished = shop.home.run(&["call", "s", "t", "--json"]).expect_code(7);
    let error = error(&finished);
    let words = ["server s: message too large: ", " bytes, limit 4096"];
    expect_words(error["message"].as_str().unwrap(), &words);
    assert_eq!(error["data"]["limit"], 4_096);
    assert!(error["data"]["value"].as_u64().unwrap() > 5_000);
}

#[test]
fn tools_that_cannot_be_listed_are_a_failure() {
    let listed = r#""error":{"code":-32603,"message":"out of order"}"#;
    let shop = Shop::new("listed").with("LISTED", listed);
    for args in [&["list", "--json"][..], &["call", "t", "--json"]] {
        let error = expect_failure(shop.run(args), 1, &["server server", "out of order"]);
        assert_eq!(error["data"]["server"], "server");
    }
}

#[test]
fn a_command_line_without_sense_is_code_2() {
    let home = Home::new("nonsense");
    let rows: [(&[&str], &str); 13] = [
        (&["list"], "TARGET is missing"),
        (
            &["call", "--", "./server"],
            "required arguments were not provided",
        ),
        (
            &["list", "http://h/mcp", "more"],
            "unexpected argument more",
        ),
        (&["list", "name", "--", "cmd"], "unexpected argument name"),
        (&["read", "http://h/mcp"], "URI is missing"),
        (&["prompt", "http://h/mcp", "p", "x"], "x is not name=value"),
        (&["list", "http://"], "url is not usable"),
        (&["list", "--", ""], "there is no command behind --"),
        (
            &["list", "http://h/mcp", "--protocol", "1999"],
            "2025-11-25",
        ),
        (&["list", "http://h/mcp", "--timeout", "soon"], "500ms"),
        (
            &["list", "http://h/mcp", "--transport", "ws"],
            "'--transport <TRANSPORT>'",
        ),
        (
            &["list", "http://h/mcp", "-H", "novalue"],
            "a header must be given as",
        ),
        (
            &["list", "http://h/mcp", "--tools", "--prompts"],
            "cannot be used with",
        ),
    ];
    for (args, why) in rows {
        let finished = home.run(args).expect_code(2);
        assert_eq!(finished.stdout, Vec::<String>::new());
        let said = finished.stderr.join("\n");
        assert!(
            said.starts_with("error: ") && said.contains(why),
            "{args:?}: {said}"
        );
        let (json, mut with) = ("--json", vec![args[0]]);
        with.push(json);
        with.extend(&args[1..]);
        let finished = home.run(&with).expect_code(2);
        assert_eq!(error(&finished)["code"], -32603, "{args:?}");
    }
}
