//! Options of a TARGET: each of them reaches the server.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

use serde_json::json;

use super::servers::{Shop, document};
use crate::world::{Home, until};

const TOOLS: &str = r#"[{"name":"get-a","inputSchema":{"type":"object"}},{"name":"get-b","inputSchema":{"type":"object"}},{"name":"set","inputSchema":{"type":"object"}}]"#;

#[test]
fn a_command_gets_its_words_environment_and_directory() {
    let shop = Shop::new("options-command").with("API_KEY", "k 1");
    std::fs::create_dir(shop.home.path("sub")).unwrap();
    let program = shop.home.path("server");
    let program = program.to_str().unwrap();
    let args = [
        "list",
        "-e",
        "API_KEY=k 1",
        "--cwd",
        "sub",
        "--",
        program,
        "--flag",
        "a b",
        "--json",
    ];
    shop.home.run(&args).expect_code(0).expect_silence();
    let heard = shop.heard();
    assert_eq!(heard[0], "args --flag a b --json");
    assert_eq!(heard[1], "key k 1");
    assert!(
        heard[2].starts_with("cwd ") && heard[2].ends_with("/sub"),
        "{}",
        heard[2]
    );
}

#[test]
fn a_variable_is_inherited_on_request_only() {
    let shop = Shop::new("options-inherit");
    for (args, key) in [(&["-e", "API_KEY"][..], "key mine"), (&[], "key ")] {
        let all = [&["list"], args, &["--", "./server"]].concat();
        let mut command = shop.home.drawspan(&all);
        crate::world::Process::start(command.env("API_KEY", "mine"))
            .finish()
            .expect_code(0);
        assert_eq!(shop.heard()[1], key);
        std::fs::remove_file(shop.home.path("heard")).unwrap();
    }
}

#[test]
fn options_win_over_an_entry() {
    let shop = Shop::new("options-entry")
        .with("TOOLS", TOOLS)
        .with("API_KEY", "of the file");
    let mut entry = shop.entry();
    entry["toolFilter"] = json!({"include": ["set"]});
    shop.home.write(
        "drawspan.json",
        &json!({"mcpServers": {"s": entry}}).to_string(),
    );
    let names = |args: &[&str]| -> Vec<String> {
        shop.home.run(args).expect_code(0).expect_silence().stdout
    };
    assert_eq!(names(&["list", "s"]), ["set"]);
    assert_eq!(
        names(&["list", "s", "--include", "get-*"]),
        ["get-a", "get-b"]
    );
    assert_eq!(
        names(&["list", "s", "--include", "get-*,set", "--exclude", "*b"]),
        ["get-a", "set"]
    );
    names(&["list", "s", "-e", "API_KEY=given"]);
    assert_eq!(shop.heard_times("key given"), 1);
    let probed = shop
        .home
        .run(&["probe", "s", "--json", "--exclude", "set", "--timeout", "3"]);
    let probed = document(&probed.expect_code(0));
    assert_eq!(probed["servers"]["s"]["requestTimeoutMs"], 3_000);
    assert_eq!(probed["servers"]["s"]["filteredTools"], 3);
}

#[test]
fn the_revision_asked_for_is_the_one_that_is_spoken() {
    let shop = Shop::new("options-protocol").with("REVISION", "2025-03-26");
    let listed = shop
        .run(&["list", "--json", "--protocol", "2025-03-26"])
        .expect_code(0);
    assert_eq!(document(&listed)["protocolVersion"], "2025-03-26");
    assert_eq!(shop.heard_times("server/discover"), 0);
    assert_eq!(shop.heard_times(r#""protocolVersion":"2025-03-26""#), 1);
    let other = shop.run(&["list", "--json", "--protocol", "2025-11-25"]);
    other.expect_code(6);
}

/// The head of the first request that comes; it is answered 404.
fn first_request(home: &Home, args: &[&str]) -> Vec<String> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp?token=hidden", listener.local_addr().unwrap());
    let (sender, heads) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines
                .map_while(Result::ok)
                .take_while(|l| !l.is_empty())
                .collect();
            let _ = sender.send(head);
            let _ = stream
                .write_all(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    let finished = home.run(&[&["list", &url], args].concat());
    let said = finished.stderr.join("\n");
    assert!(
        !said.contains("hidden") && !said.contains("secret-word"),
        "{said}"
    );
    let mut head = Vec::new();
    until("a request", || match heads.try_recv() {
        Ok(first) => {
            head = first;
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    });
    head
}

#[test]
fn headers_and_the_transport_reach_an_http_server() {
    let home = Home::new("options-http");
    let head = first_request(
        &home,
        &["-H", "Authorization: Bearer secret-word", "-H", "X-A:b:c"],
    );
    assert!(head[0].starts_with("POST /mcp?token=hidden "), "{head:?}");
    let has = |line: &str| head.iter().any(|found| found.eq_ignore_ascii_case(line));
    assert!(
        has("Authorization: Bearer secret-word") && has("X-A: b:c"),
        "{head:?}"
    );
    let head = first_request(&home, &["--transport", "sse"]);
    assert!(head[0].starts_with("GET /mcp"), "{head:?}");
    assert!(
        head.iter().any(|line| line.contains("text/event-stream")),
        "{head:?}"
    );
}
