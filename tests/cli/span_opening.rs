//! `drawspan serve TARGET` with one server: its clients are told what that server is, or why it cannot be
//! met, over every door.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::servers::make_executable;
use crate::http::Client;
use crate::world::{HELLO, Home, PATIENCE, Process, expect_words, parse, until};

/// A stdio server in plain shell. Each line it reads goes to `heard`; `ERA` is `legacy` or `modern`,
/// `CAPABILITIES`, `INFO` and `INSTRUCTIONS` are raw JSON, `REVISION` is that of its handshake. `BEFORE` is run
/// first, `CALL` when a tool is called, `SUBSCRIBED` before a subscription is answered.
const SERVER: &str = r#"#!/bin/sh
[ -n "$CAPABILITIES" ] || CAPABILITIES='{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true}}'
[ -n "$INFO" ] || INFO='{"name":"s","version":"1"}'
[ -n "$INSTRUCTIONS" ] || INSTRUCTIONS='"do"'
[ -n "$REVISION" ] || REVISION=2025-06-18
say() { printf '%s\n' "$1"; }
answer() { say '{"jsonrpc":"2.0","id":'$id',"result":'"$1"'}'; }
refuse() { say '{"jsonrpc":"2.0","id":'$id',"error":'"$1"'}'; }
tell() { say '{"jsonrpc":"2.0","method":"'"$1"'","params":'"$2"'}'; }
updated() {
  if [ "$ERA" = modern ]; then
    tell notifications/resources/updated '{"uri":"'$1'","v":1.0,"_meta":{"io.modelcontextprotocol/subscriptionId":'$stream'}}'
  else
    tell notifications/resources/updated '{"uri":"'$1'","v":1.0}'
  fi
}
printf 'started\n' >> "$HOME/heard"
eval "$BEFORE"
while IFS= read -r line; do
  printf '%s\n' "$line" >> "$HOME/heard"
  case $line in *'"method":"notifications/'*) continue ;; esac
  id=${line#*\"id\":}; id=${id%%[!0-9]*}
  type=
  [ "$ERA" != modern ] || type='"resultType":"complete",'
  case $line in
    *'"method":"server/discover"'*)
      if [ "$ERA" = modern ]; then
        answer '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":'"$CAPABILITIES"',"instructions":'"$INSTRUCTIONS"',"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":'"$INFO"'}}'
      else
        refuse '{"code":-32601,"message":"no such method"}'
      fi ;;
    *'"method":"initialize"'*)
      answer '{"protocolVersion":"'$REVISION'","capabilities":'"$CAPABILITIES"',"serverInfo":'"$INFO"',"instructions":'"$INSTRUCTIONS"'}' ;;
    *'"method":"subscriptions/listen"'*)
      stream=$id; filter=${line#*\"notifications\":}; filter=${filter%%,\"_meta\"*}
      eval "$SUBSCRIBED"
      tell notifications/subscriptions/acknowledged '{"_meta":{"io.modelcontextprotocol/subscriptionId":'$id'},"notifications":'"$filter"'}'
      eval "$ACKNOWLEDGED" ;;
    *'"method":"resources/subscribe"'*) eval "$SUBSCRIBED"; answer '{}'; eval "$ACKNOWLEDGED" ;;
    *'"method":"tools/list"'*)
      answer '{'$type'"tools":[{"name":"echo","inputSchema":{"type":"object"}}],"ttlMs":0,"cacheScope":"private"}' ;;
    *'"method":"tools/call"'*) eval "$CALL"; answer '{'$type'"content":[{"type":"text","text":"hi"}]}' ;;
    *) answer '{'$type'"other":true}' ;;
  esac
done
"#;

/// A home with that server in it, as the only one of its configuration.
pub(crate) struct Den {
    pub(crate) home: Home,
}

impl Den {
    pub(crate) fn new(test: &str, env: &[(&str, &str)]) -> Self {
        Self::with(test, env, json!({}))
    }

    /// The same with more keys in its entry.
    pub(crate) fn with(test: &str, env: &[(&str, &str)], more: Value) -> Self {
        let home = Home::new(test);
        home.write("server", SERVER);
        make_executable(&home.path("server"));
        let env: serde_json::Map<String, Value> = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).into()))
            .collect();
        let mut entry = json!({"command": home.path("server"), "env": env});
        for (name, value) in more.as_object().unwrap() {
            entry[name] = value.clone();
        }
        let config = json!({"mcpServers": {"den": entry}});
        home.write("drawspan.json", &config.to_string());
        Self { home }
    }

    pub(crate) fn heard(&self) -> String {
        std::fs::read_to_string(self.home.path("heard")).unwrap_or_default()
    }

    /// How many of the lines that it has read hold this.
    pub(crate) fn heard_times(&self, what: &str) -> usize {
        self.heard().lines().filter(|l| l.contains(what)).count()
    }

    #[track_caller]
    pub(crate) fn expect_heard(&self, what: &str, times: usize) {
        until(what, || match self.heard_times(what) {
            found if found == times => Ok(()),
            found => Err(format!("{found} times in {}", self.heard())),
        });
    }

    /// `drawspan serve` on its stdin and stdout.
    pub(crate) fn serve(&self) -> Process {
        Process::serve(&mut self.home.drawspan(&["serve"]))
    }

    /// `drawspan serve` over HTTP, and its address.
    fn serve_http(&self) -> (Process, String) {
        let args = ["serve", "--listen", "http://127.0.0.1:0"];
        let mut serve = Process::start(&mut self.home.drawspan(&args));
        let address = serve.address();
        (serve, address)
    }
}

const CAPABILITIES: &str = r#"{ "tools":{"listChanged":true}, "vendor":{"n":1e0}, "tasks":{} }"#;
const INFO: &str = r#"{"name":"th\u0065y","version":"2","x":12345678901234567890}"#;
const INSTRUCTIONS: &str = r#""say \u0022please\u0022""#;
const FACTS: [(&str, &str); 3] = [
    ("CAPABILITIES", CAPABILITIES),
    ("INFO", INFO),
    ("INSTRUCTIONS", INSTRUCTIONS),
];

pub(crate) const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

fn initialize(revision: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{{}},"clientInfo":{{"name":"c","version":"0"}}}}}}"#
    )
}

#[test]
fn an_older_client_is_told_byte_for_byte() {
    for era in ["legacy", "modern"] {
        for revision in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
            let mut env = FACTS.to_vec();
            env.push(("ERA", era));
            let den = Den::new(&format!("opening-{era}-{revision}"), &env);
            let mut serve = den.serve();
            serve.send(&initialize(revision));
            let expected = format!(
                r#"{{"jsonrpc":"2.0","id":1,"result":{{"protocolVersion":"{revision}","capabilities":{CAPABILITIES},"serverInfo":{INFO},"instructions":{INSTRUCTIONS}}}}}"#
            );
            assert_eq!(serve.stdout.expect("the handshake"), expected);
            serve.finish().expect_code(0).expect_silence();
            den.home.expect_processes(0);
        }
    }
}

#[test]
fn a_stateless_client_is_told_what_its_era_knows() {
    let without_tasks = r#"{"tools":{"listChanged":true},"vendor":{"n":1e0}}"#;
    for (era, capabilities) in [("legacy", without_tasks), ("modern", CAPABILITIES)] {
        let mut env = FACTS.to_vec();
        env.push(("ERA", era));
        let den = Den::new(&format!("opening-discover-{era}"), &env);
        let mut serve = den.serve();
        serve.request("server/discover", &format!("{{{META}}}"));
        let line = serve.stdout.expect("the discovery");
        expect_words(
            &line,
            &[
                &format!(r#""capabilities":{capabilities}"#),
                &format!(r#""instructions":{INSTRUCTIONS}"#),
                &format!(r#""_meta":{{"io.modelcontextprotocol/serverInfo":{INFO}}}"#),
                r#""supportedVersions":["2026-07-28","2025-11-25""#,
            ],
        );
        serve.finish().expect_code(0).expect_silence();
        den.home.expect_processes(0);
    }
}

#[test]
fn what_is_sent_before_the_answer_is_served_after_it() {
    let den = Den::new("opening-pipelined", &[]);
    let mut serve = den.serve();
    serve.send(&format!(
        "{HELLO}\n{}\n{}\n{}",
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#,
        r#"{"jsonrpc":"2.0","id":3,"method":"vendor/x","params":{"a":1.0}}"#
    ));
    let first = parse(&serve.stdout.expect("an answer"));
    assert_eq!(
        (&first["id"], first["result"].is_object()),
        (&json!(0), true)
    );
    assert_eq!(serve.answer(1)["result"]["tools"][0]["name"], "echo");
    assert_eq!(serve.answer(2)["result"]["content"][0]["text"], "hi");
    assert_eq!(serve.answer(3)["result"]["other"], true);
    assert_eq!(den.heard_times("started"), 1);
    serve.finish().expect_code(0).expect_silence();
}

/// Dies of its first two starts.
const DIES: &str = r#"n=$(grep -c started "$HOME/heard"); if [ "$n" -lt 3 ]; then
    echo 'Error: no token=sk-made-secret-0123456789 here' >&2; exit 1; fi"#;

#[test]
fn a_server_that_dies_is_told_of_and_started_again() {
    let den = Den::new("opening-dies", &[("BEFORE", DIES)]);
    let mut serve = den.serve();
    let mut tries = 0;
    loop {
        tries += 1;
        serve.send(&initialize("2025-06-18"));
        let answer = serve.answer(1);
        if answer["result"].is_object() {
            break;
        }
        let error = &answer["error"];
        assert_eq!(error["code"], -32603, "{answer}");
        let message = error["message"].as_str().unwrap();
        expect_words(
            message,
            &["den", "exited with code 1", "Error: no", "retry after"],
        );
        assert_eq!(error["data"]["exitCode"], 1, "{answer}");
        assert_eq!(error["data"]["server"], "den", "{answer}");
        assert!(!answer.to_string().contains("sk-made"), "{answer}");
        assert!(error["data"]["retryInMs"].is_u64(), "{answer}");
    }
    // Once by the probe, once by the handshake; asked again sooner, it was left alone.
    assert!(tries > 1);
    assert_eq!(den.heard_times("started"), 3);
    assert_eq!(serve.call("echo", "{}")["content"][0]["text"], "hi");
    serve.finish().expect_code(0);
    den.home.expect_processes(0);
}

#[test]
fn a_handshake_that_fails_over_http_leaves_no_session() {
    let den = Den::new("opening-http", &[("BEFORE", DIES)]);
    let (serve, address) = den.serve_http();
    let mut client = Client::new(&address);
    let failed = client.ask("", &initialize("2025-06-18"));
    expect_words(
        &failed,
        &["200 OK", "\"id\":1", "-32603", "exited with code 1"],
    );
    assert!(
        !failed.to_ascii_lowercase().contains("mcp-session-id"),
        "{failed}"
    );
    assert!(!failed.contains("text/event-stream"), "{failed}");
    // Nobody holds its failure against the next one.
    let met = client.ask("", &initialize("2025-06-18"));
    expect_words(
        &met,
        &["200 OK", r#""serverInfo":{"name":"s","version":"1"}"#],
    );
    assert!(
        met.to_ascii_lowercase().contains("mcp-session-id: "),
        "{met}"
    );
    assert_eq!(den.heard_times("started"), 3);
    // Of the first session nothing is left.
    den.home.expect_processes(2);
    serve.signal(Signal::TERM);
    serve.finish().expect_code(0);
    den.home.expect_processes(0);
}

#[test]
fn a_client_that_goes_before_the_answer_takes_its_server_with_it() {
    let den = Den::new("opening-gone", &[("BEFORE", "read -r line; sleep 1000")]);
    let (serve, address) = den.serve_http();
    let mut client = Client::new(&address);
    client.send("", &initialize("2025-06-18"));
    den.expect_heard("started", 1);
    drop(client);
    den.home.expect_processes(1);
    serve.signal(Signal::TERM);
    serve.finish().expect_code(0);
}

#[test]
fn a_silent_server_costs_its_time_to_connect() {
    let den = Den::with(
        "opening-silent",
        &[("BEFORE", "cat > \"$HOME/read\"")],
        json!({"connectionTimeoutMs": 300}),
    );
    let mut serve = den.serve();
    serve.send(&initialize("2025-11-25"));
    let error = serve.answer(1)["error"].take();
    assert_eq!(error["code"], -32603);
    expect_words(
        error["message"].as_str().unwrap(),
        &["den", "timed out after 300 ms"],
    );
    serve.finish().expect_code(0);
    den.home.expect_processes(0);
}

#[test]
fn a_socket_and_the_older_pair_wait_as_well() {
    let den = Den::new("opening-doors", &FACTS);
    let args = [
        "serve",
        "--listen",
        "unix:mcp.sock",
        "--listen",
        "http://127.0.0.1:0",
    ];
    let mut serve = Process::start(&mut den.home.drawspan(&args));
    let address = serve.address();
    let connect = || UnixStream::connect(den.home.path("mcp.sock"));
    until("the socket", || {
        connect().map(drop).map_err(|error| error.to_string())
    });
    let mut socket = connect().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    writeln!(socket, "{}", initialize("2025-06-18")).unwrap();
    let mut line = String::new();
    BufReader::new(&socket).read_line(&mut line).unwrap();
    expect_words(&line, &[INFO, INSTRUCTIONS, CAPABILITIES]);

    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let get = format!("GET /sse HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n\r\n");
    stream.write_all(get.as_bytes()).unwrap();
    let seen = read_until(&mut stream, "\n\n");
    let path = seen.split("data: ").nth(1).unwrap().lines().next().unwrap();
    let body = initialize("2024-11-05");
    let post = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut other = TcpStream::connect(&address).unwrap();
    other.write_all(post.as_bytes()).unwrap();
    let event = read_until(&mut stream, "\"instructions\"");
    expect_words(
        &event,
        &["event: message", INFO, CAPABILITIES, "2024-11-05"],
    );
    assert_eq!(den.heard_times("started"), 2);
    serve.signal(Signal::TERM);
    serve.finish().expect_code(0);
    den.home.expect_processes(0);
}

fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut seen = String::new();
    let mut byte = [0];
    while !seen.ends_with(end) {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "cut off in {seen}");
        seen.push(char::from(byte[0]));
    }
    seen
}

#[test]
fn a_server_that_comes_back_as_another_is_told_of_by_its_lists() {
    let before = r#"[ ! -e died ] || CAPABILITIES='{"tools":{},"prompts":{}}'"#;
    let call = r#"[ -e died ] || { : > died; kill -9 $$; }"#;
    let env = [("BEFORE", before), ("CALL", call)];
    let den = Den::new("opening-another", &env);
    let mut serve = den.serve();
    serve.hello();
    serve.call("echo", "{}");
    assert_eq!(serve.call("echo", "{}")["content"][0]["text"], "hi");
    for list in ["tools", "prompts", "resources"] {
        let method = format!("notifications/{list}/list_changed");
        serve.message("a change", |message| message["method"] == method);
    }
    serve.finish().expect_code(0);
}

#[test]
fn of_several_servers_clients_are_told_at_once() {
    let den = Den::new("opening-several", &[("BEFORE", "sleep 1000")]);
    let text = std::fs::read_to_string(den.home.path("drawspan.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["mcpServers"]["other"] = config["mcpServers"]["den"].clone();
    den.home.write("drawspan.json", &config.to_string());
    let mut serve = den.serve();
    serve.send(&initialize("2025-11-25"));
    let result = serve.answer(1)["result"].take();
    assert_eq!(result["serverInfo"]["name"], "drawspan");
    for feature in ["tools", "resources", "prompts", "completions", "logging"] {
        assert!(result["capabilities"][feature].is_object(), "{result}");
    }
    assert!(result.get("instructions").is_none());
    assert_eq!(
        den.heard_times("started"),
        0,
        "nobody was asked for anything"
    );
    serve.finish().expect_code(0);
}
