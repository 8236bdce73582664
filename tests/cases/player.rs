//! The scripted servers themselves, with a client of twenty lines: what a case says is what they
//! do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::era::modern;
use crate::world::{World, case, serve, serve_variant, until};

/// A client on the pipes of a scripted server.
struct Pipes {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Pipes {
    fn open(world: &World, steps: &Value) -> Self {
        let command = world.command("s", steps);
        let mut child = Command::new(&command[0])
            .args(&command[1..])
            .env("HOME", world.home())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let stdout = BufReader::new(stdout);
        Self {
            child,
            stdin,
            stdout,
        }
    }

    fn send(&mut self, message: Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    /// The next line; empty at the end.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    fn message(&mut self) -> Value {
        serde_json::from_str(&self.line()).unwrap()
    }

    fn request(&mut self, id: Value, method: &str) -> Value {
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method}));
        self.message()
    }

    /// Closes its input; its exit code.
    fn end(mut self) -> Option<i32> {
        self.stdin = None;
        self.child.wait().unwrap().code()
    }
}

#[test]
fn a_table_answers_and_everything_heard_is_noted() {
    let world = World::new("player-table");
    let input = &case("c03-banner-first")["input"];
    let mut pipes = Pipes::open(&world, &input["steps"]);
    assert_eq!(pipes.line(), "made-peer v1 listening on stdio\n");
    assert_eq!(pipes.message()["method"], "notifications/message");
    assert_eq!(
        pipes.message()["method"],
        "notifications/tools/list_changed"
    );
    let hello = pipes.request(json!(7), "initialize");
    assert_eq!(hello["id"], 7);
    assert_eq!(hello["result"]["protocolVersion"], "2025-06-18");
    pipes.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    assert_eq!(
        pipes.request(json!("a"), "no/such")["error"]["code"],
        -32601
    );
    assert_eq!(pipes.end(), Some(0));

    let heard = world.heard("s");
    let methods: Vec<&Value> = heard.messages().iter().map(|m| &m["method"]).collect();
    assert_eq!(
        methods,
        ["initialize", "notifications/initialized", "no/such"]
    );
    assert_eq!(heard.starts().len(), 1);
    let descriptors = heard.starts()[0]["descriptors"].as_array().unwrap();
    assert_eq!(descriptors[..3], [0, 1, 2], "and what it inherited");
    assert_eq!(heard.0.last().unwrap()["end"], true);
    world.expect_nobody();
}

#[test]
fn values_of_a_request_stand_in_its_answer() {
    let world = World::new("player-values");
    let steps = json!([
        {"do": "await", "method": "first", "as": "kept"},
        {"do": "auto", "table": {
            "late": [[{"do": "reply", "to": "kept", "result": 1}, {"do": "reply", "result": 2}]],
            "ids": {"result": ["$id", "$id_text", "$id_float", "$nothing"]},
            "made": {"result": {"$tools": 2, "start": 9}},
            "list": [{"result": "a"}, {"steps": [{"do": "reply", "result": "$cursor"}]}],
            "beat": {"steps": [
                {"do": "repeat", "times": 2, "steps": [{"do": "json", "message": {"n": "$i"}}]},
                {"do": "reply", "result": "$token"}]}}}]);
    let mut pipes = Pipes::open(&world, &steps);
    pipes.send(json!({"id": 1, "method": "ignored"}));
    pipes.send(json!({"id": 5, "method": "first"}));
    assert_eq!(
        pipes.request(json!(6), "late"),
        json!({"jsonrpc": "2.0", "id": 5, "result": 1})
    );
    assert_eq!(
        pipes.message(),
        json!({"jsonrpc": "2.0", "id": 6, "result": 2})
    );
    let ids = pipes.request(json!(8), "ids")["result"].to_string();
    assert_eq!(ids, r#"[8,"8",8.0,"$nothing"]"#);
    assert_eq!(
        pipes.request(json!(9), "made")["result"][1]["name"],
        "tool_00010"
    );
    assert_eq!(pipes.request(json!(10), "list")["result"], "a");
    for cursor in ["b", "c"] {
        pipes.send(json!({"id": 11, "method": "list", "params": {"cursor": cursor}}));
        assert_eq!(pipes.message()["result"], cursor);
    }
    pipes.send(json!({"id": 12, "method": "beat", "params": {"_meta": {"progressToken": "t"}}}));
    assert_eq!(
        [pipes.message(), pipes.message()],
        [json!({"n": 0}), json!({"n": 1})]
    );
    assert_eq!(pipes.message()["result"], "t");
    assert_eq!(pipes.end(), Some(0));
}

#[test]
fn closing_outputs_descendants_and_exit_codes() {
    let world = World::new("player-ends");
    let steps = json!([
        {"do": "spawn", "seconds": 60, "ignore": ["SIGTERM"]},
        {"do": "await", "method": "go"},
        {"do": "close_stdout"},
        {"do": "await", "method": "leave", "or_eof": true},
        {"do": "exit", "code": 3}]);
    let mut pipes = Pipes::open(&world, &steps);
    pipes.send(json!({"id": 1, "method": "go"}));
    assert_eq!(pipes.line(), "", "the end of its output");
    assert_eq!(pipes.end(), Some(3));
    let heard = world.heard("s");
    let spawned = heard
        .0
        .iter()
        .find_map(|line| line["spawned"].as_i64())
        .unwrap();
    let spawned = i32::try_from(spawned)
        .ok()
        .and_then(rustix::process::Pid::from_raw)
        .unwrap();
    rustix::process::kill_process(spawned, rustix::process::Signal::TERM).unwrap();
    rustix::process::kill_process(spawned, rustix::process::Signal::KILL).unwrap();
    world.expect_nobody();
}

#[test]
fn a_world_finds_who_is_left() {
    let world = World::new("player-left");
    let pipes = Pipes::open(&world, &json!([{"do": "auto", "table": {}}]));
    let mut sleeper = world.program("sleep", &["60"]).spawn().unwrap();
    // A process that was started just now may have no environment yet.
    until("both to be found", || match world.nobody() {
        Err(who) if who.contains("scripted_server") && who.contains("sleep 60") => Ok(()),
        found => Err(format!("{found:?}")),
    });
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(pipes.end(), Some(0));
    world.expect_nobody();
}

/// One request on a connection; head and body of the answer, read up to its length.
fn ask(stream: &mut TcpStream, verb: &str, fields: &str, body: &str) -> (String, String) {
    let length = body.len();
    let request = format!(
        "{verb} /mcp HTTP/1.1\r\nHost: x\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = String::new();
    match length {
        Some(length) => {
            let mut bytes = vec![0; length.parse().unwrap()];
            reader.read_exact(&mut bytes).unwrap();
            body = String::from_utf8(bytes).unwrap();
        }
        None => drop(reader.read_to_string(&mut body).unwrap()),
    }
    (head, body)
}

#[test]
fn exchanges_answer_in_order_and_up_to_their_limit() {
    let peer = serve(&case("e10-overload")["input"]);
    let mut stream = TcpStream::connect(("127.0.0.1", peer.port())).unwrap();
    let hello = r#"{"jsonrpc":"2.0","id":"x","method":"initialize"}"#;
    for _ in 0..2 {
        let (head, body) = ask(&mut stream, "POST", "", hello);
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
        assert!(head.contains("\r\nRetry-After: 1\r\n"), "{head}");
        assert_eq!(body, "busy");
    }
    let (head, body) = ask(&mut stream, "POST", "X-Two:  2 \r\n", hello);
    assert!(head.contains("\r\nMcp-Session-Id: S1\r\n"), "{head}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["id"], "x");
    assert!(
        ask(&mut stream, "PUT", "", "")
            .0
            .starts_with("HTTP/1.1 500 No Such Exchange")
    );
    let got = peer.got();
    assert_eq!(got.len(), 4);
    assert_eq!(
        (got[2].method(), got[2].field("x-two")),
        ("initialize", Some("2"))
    );
    assert!(got.iter().all(|request| request.connection == 0));
}

#[test]
fn streams_variants_and_chunks() {
    let resume = &case("e09-resume")["input"];
    let peer = serve(resume);
    let mut stream = TcpStream::connect(("127.0.0.1", peer.port())).unwrap();
    let (head, body) = ask(&mut stream, "GET", "Last-Event-ID: p/1\r\n", "");
    assert!(head.contains("text/event-stream"), "{head}");
    assert_eq!(body, ": nothing yet\n\n");

    let oddities = case("e08-wire-oddities");
    let peer = serve_variant(&oddities["input"], 1);
    let mut stream = TcpStream::connect(("127.0.0.1", peer.port())).unwrap();
    let list = r#"{"jsonrpc":"2.0","id":4,"method":"tools/list"}"#;
    let fields = "Connection: close\r\n";
    let request = format!(
        "POST /mcp HTTP/1.1\r\n{fields}Content-Length: {}\r\n\r\n{list}",
        list.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.contains("\r\n0008;name=\"v;1\"\r\n{\"jsonrp\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n0\r\nX-Sum: 1\r\n\r\n"), "{answer}");
}

#[test]
fn pushes_go_to_the_stream_that_is_open() {
    let peer = serve(&json!({"exchanges": [
        {"when": {"verb": "GET"}, "head": "HTTP/1.1 200 OK\r\n", "auto_length": false,
         "body": ["data: up\n\n"], "stream": true, "hold_ms": 60_000},
        {"when": {"rpc": "ask"}, "head": "HTTP/1.1 202 Accepted\r\n",
         "push": ["data: {{id}}\n\n"]}]}));
    let mut down = TcpStream::connect(("127.0.0.1", peer.port())).unwrap();
    down.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut down = BufReader::new(down);
    let mut seen = String::new();
    while !seen.ends_with("data: up\n\n") {
        assert!(down.read_line(&mut seen).unwrap() > 0);
    }
    let mut up = TcpStream::connect(("127.0.0.1", peer.port())).unwrap();
    let (head, _) = ask(&mut up, "POST", "", r#"{"id":3,"method":"ask"}"#);
    assert!(head.starts_with("HTTP/1.1 202"), "{head}");
    down.read_line(&mut seen).unwrap();
    assert!(seen.ends_with("data: 3\n"), "{seen}");
    drop(peer);
    seen.clear();
    down.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, "\n", "a stopped server holds nothing open");
}

#[test]
fn a_case_of_the_handshake_becomes_one_of_2026_07_28() {
    let input = modern(&case("c07-late-answer-after-cancel")["input"]);
    let table = &input["steps"][0]["table"];
    assert_eq!(table.get("initialize"), None);
    let discover = &table["server/discover"]["result"];
    assert_eq!(discover["supportedVersions"], json!(["2026-07-28"]));
    assert_eq!(discover["resultType"], "complete");
    assert_eq!(discover.get("protocolVersion"), None);
    assert_eq!(table["tools/list"]["result"]["ttlMs"], 0);
    assert_eq!(table["tools/call"][1]["result"]["resultType"], "complete");

    let input = modern(&case("e08-wire-oddities")["input"]);
    let hello = &input["exchanges"][0];
    assert_eq!(hello["when"]["rpc"], "server/discover");
    assert!(
        !hello["head"].as_str().unwrap().contains("Session"),
        "{hello}"
    );
    let body = hello["body"][0].as_str().unwrap();
    assert!(
        body.contains(r#""id":{{id}}"#) && body.contains("supportedVersions"),
        "{body}"
    );
    let cut = input["variants"][1]["body"].as_array().unwrap();
    assert!(
        cut.len() > 1 && cut[1].as_str().unwrap().contains("resultType"),
        "{cut:?}"
    );
}
