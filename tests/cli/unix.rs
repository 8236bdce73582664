//! `serve --listen unix:/PATH`: several clients of one bridge, and what becomes of the socket's file.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use rustix::process::Signal;
use serde_json::Value;

use crate::common::deserted::leave_dead_socket;
use crate::world::{
    EMBEDDED, HELLO, Home, Lines, Process, expect_words, is_private, parse, text, until,
};

const SOCKET: [&str; 2] = ["--listen", "unix:mcp.sock"];

/// `drawspan serve` with its embedded Gateway and a socket, once it listens.
#[track_caller]
fn serve(home: &Home, more: &[&str]) -> Process {
    let args = [&EMBEDDED[..], &SOCKET, more].concat();
    let serve = Process::serve(&mut home.drawspan(&args));
    until("the socket", || match connect(home) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    });
    serve
}

fn connect(home: &Home) -> std::io::Result<UnixStream> {
    UnixStream::connect(home.path("mcp.sock"))
}

/// An MCP client on the socket.
pub(crate) struct Client {
    stream: UnixStream,
    lines: Lines,
    last_id: u64,
}

impl Client {
    #[track_caller]
    fn new(home: &Home) -> Self {
        let stream = connect(home).unwrap();
        let lines = Lines::new("the socket", Some(stream.try_clone().unwrap()));
        Self {
            stream,
            lines,
            last_id: 0,
        }
    }

    /// One that has met the bridge and its Gateway.
    #[track_caller]
    pub(crate) fn met(home: &Home) -> Self {
        let mut client = Self::new(home);
        writeln!(client.stream, "{HELLO}").unwrap();
        client.answer(0);
        expect_words(text(&client.call("conversations_list", "{}")), &["conv"]);
        client
    }

    pub(crate) fn begin(&mut self, tool: &str, arguments: &str) -> u64 {
        self.last_id += 1;
        let (id, stream) = (self.last_id, &mut self.stream);
        writeln!(
            stream,
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        )
        .unwrap();
        id
    }

    #[track_caller]
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        loop {
            let mut message = parse(&self.lines.expect("the answer"));
            if message["id"] == id {
                return message["result"].take();
            }
        }
    }

    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: &str) -> Value {
        let id = self.begin(tool, arguments);
        self.answer(id)
    }
}

#[test]
fn clients_on_a_socket_and_on_stdin_share_one_bridge() {
    let home = Home::new("unix");
    let mut serve = serve(&home, &["--listen", "stdio"]);
    assert!(is_private(&home.path("mcp.sock")));
    serve.meet();
    let (mut one, mut two) = (Client::met(&home), Client::met(&home));

    let waits = (
        serve.begin("events_wait", "{}"),
        one.begin("events_wait", "{}"),
        two.begin("events_wait", "{}"),
    );
    serve.sync();
    let post = home.run(&["gateway", "post", "--store", "store", "to all of you"]);
    post.expect_code(0);
    let event = serve.answer(waits.0)["result"].take();
    expect_words(&event.to_string(), &["to all of you"]);
    assert_eq!(one.answer(waits.1), event, "the same event and cursor");
    assert_eq!(two.answer(waits.2), event);

    // One client decides, the others see it.
    let ask = ["gateway", "ask", "--store", "store", "make clean"];
    let asked = Process::start(&mut home.drawspan(&ask));
    let mut open = Value::Null;
    until("the approval", || {
        open = one.call("permissions_list_open", "{}")["structuredContent"]["approvals"].take();
        let count = open.as_array().map_or(0, Vec::len);
        (count == 1).then_some(()).ok_or(open.to_string())
    });
    let (kind, id) = (&open[0]["kind"], &open[0]["id"]);
    let decision = format!(r#"{{"kind":{kind},"id":{id},"decision":"allow-once"}}"#);
    let decided = two.call("permissions_respond", &decision);
    assert_ne!(decided["isError"], true, "{decided}");
    asked.finish().expect_code(0);
    let left = serve.call("permissions_list_open", "{}");
    let left = &left["structuredContent"]["approvals"];
    assert_eq!(left.as_array().map(Vec::len), Some(0), "{left}");

    // Who goes, on the socket or on stdin, goes alone.
    drop(one.stream.shutdown(Shutdown::Both));
    expect_words(text(&two.call("conversations_list", "{}")), &["conv"]);
    drop(serve.stdin.take());
    assert_eq!(serve.stdout.next(), None);
    let mut three = Client::met(&home);
    let waiting = three.begin("events_wait", r#"{"after_cursor":1000}"#);
    expect_words(text(&two.call("conversations_list", "{}")), &["conv"]);

    serve.signal(Signal::TERM);
    let result = three.answer(waiting);
    assert_eq!(result["structuredContent"]["event"], Value::Null);
    assert_eq!(three.lines.next(), None);
    assert_eq!(two.lines.next(), None);
    drop((two, three));
    serve.end().expect_code(0).expect_silence();
    assert_eq!(home.listing(), [".openclaw", "store"], "the file is gone");
}

#[test]
fn a_client_that_has_asked_all_gets_all_and_then_the_end() {
    let home = Home::new("unix-half");
    let serve = serve(&home, &[]);
    let mut client = Client::met(&home);
    let last = (0..30).fold(0, |_, _| client.begin("conversations_list", "{}"));
    client.stream.shutdown(Shutdown::Write).unwrap();
    let result = client.answer(last);
    expect_words(text(&result), &["conv"]);
    assert_eq!(client.lines.next(), None);
    drop(Client::met(&home));
    serve.signal(Signal::INT);
    serve.end().expect_code(0).expect_silence();
}

#[test]
fn one_client_too_many_is_told_so() {
    let home = Home::new("unix-busy");
    home.write("drawspan.json", r#"{"limits":{"socket_clients_max":1}}"#);
    let serve = serve(&home, &[]);
    let mut first = None;
    until("the probe to be gone", || {
        let mut client = Client::new(&home);
        writeln!(client.stream, "{HELLO}").unwrap();
        let line = client.lines.expect("a word");
        if parse(&line)["result"].is_null() {
            return Err(line);
        }
        first = Some(client);
        Ok(())
    });
    for _ in 0..3 {
        // It has said something, which must not cost it the answer.
        let mut surplus = Client::new(&home);
        let _ = writeln!(surplus.stream, "{HELLO}");
        let told = parse(&surplus.lines.expect("why"));
        assert_eq!(told["id"], Value::Null);
        let why = told["error"]["message"].as_str().unwrap();
        expect_words(why, &["busy: 1 clients", "limit 1 (socket_clients_max)"]);
        assert_eq!(surplus.lines.next(), None);
    }
    drop(first.as_mut().unwrap().stream.shutdown(Shutdown::Both));
    until("room", || {
        let mut client = Client::new(&home);
        writeln!(client.stream, "{HELLO}").map_err(|error| error.to_string())?;
        let line = client.lines.expect("a word");
        let answered = parse(&line)["result"].is_object();
        answered.then_some(()).ok_or(line)
    });
    serve.signal(Signal::TERM);
    serve.end().expect_code(0).expect_silence();
}

#[test]
fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let home = Home::new("unix-stale");
    leave_dead_socket(&home.path("mcp.sock"));
    assert!(connect(&home).is_err());
    let serve = serve(&home, &[]);
    let mut client = Client::met(&home);

    let second = ["serve", "--gateway", "embedded", "--store", "other"];
    let second = home.run(&[&second[..], &SOCKET].concat()).expect_code(1);
    second.expect_stderr(&["error: cannot listen on unix:mcp.sock: another process listens"]);
    expect_words(text(&client.call("conversations_list", "{}")), &["conv"]);
    drop(client);
    drop(Client::met(&home));

    serve.signal(Signal::TERM);
    serve.end().expect_code(0).expect_silence();
    assert!(!home.path("mcp.sock").exists());

    // What is no socket is left alone.
    home.write("mcp.sock", "precious");
    let refused = home.run(&[&EMBEDDED[..], &SOCKET].concat()).expect_code(1);
    refused.expect_stderr(&["error: cannot listen on unix:mcp.sock: ", "no socket"]);
    assert!(home.path("mcp.sock").exists());
}

#[test]
fn an_address_that_is_taken_is_one_line() {
    let home = Home::new("http-taken");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let listen = format!("http://{address}");
    let failed = home.run(&[&EMBEDDED[..], &["--listen", &listen]].concat());
    let failed = failed.expect_code(1);
    failed.expect_stderr(&["error: cannot listen on", &address, "in use"]);
}

#[test]
fn the_end_waits_for_who_has_not_ended_until_a_second_signal() {
    let home = Home::new("unix-linger");
    home.write(
        "drawspan.json",
        r#"{"limits":{"finish_timeout_ms":600000}}"#,
    );
    for second_signal in [false, true] {
        let serve = serve(&home, &[]);
        let mut client = Client::met(&home);
        serve.signal(Signal::TERM);
        assert_eq!(client.lines.next(), None);
        // More than a socket holds: somebody reads and drops it.
        let chunk = [b' '; 64 * 1024];
        for _ in 0..128 {
            client.stream.write_all(&chunk).unwrap();
        }
        assert!(connect(&home).is_err(), "nobody comes in any more");
        if second_signal {
            serve.signal(Signal::TERM);
        } else {
            drop(client.stream.shutdown(Shutdown::Both));
        }
        serve.end().expect_code(0).expect_silence();
    }
}

#[test]
fn limits_of_a_running_server_are_told_with_what_is_in_use() {
    let home = Home::new("live-limits");
    home.write(
        "drawspan.json",
        r#"{"limits":{"calls_open_max":50,"socket_clients_max":3}}"#,
    );
    let mut serve = serve(&home, &["--listen", "stdio"]);
    serve.meet();
    let mut client = Client::met(&home);
    client.begin("events_wait", "{}");
    let waits = client.begin("events_wait", "{}");
    let live = || {
        let args = ["limits", "--json", "--connect", "unix:mcp.sock"];
        let finished = home.run(&args).expect_code(0).expect_silence();
        let document: Value = serde_json::from_str(&finished.stdout.join("\n")).unwrap();
        document["limits"].as_array().unwrap().clone()
    };
    let row = |rows: &[Value], name: &str| -> Value {
        let row = rows.iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("no {name}")).clone()
    };
    let mut rows = Vec::new();
    until("two calls", || {
        rows = live();
        let calls = row(&rows, "calls_open_max");
        if calls["now"] == 2 {
            Ok(())
        } else {
            Err(calls.to_string())
        }
    });
    let calls = row(&rows, "calls_open_max");
    assert_eq!(
        (&calls["value"], &calls["default"]),
        (&50.into(), &1_024.into())
    );
    assert!(
        calls["peak"].as_u64() >= Some(2) && calls["why"].is_string(),
        "{calls}"
    );
    assert_eq!(row(&rows, "waiters_max")["now"], 2);
    assert_eq!(row(&rows, "requests_open_max")["now"], 2);
    // Whoever asked before us may not be let go yet.
    until("us and the other one", || {
        match row(&live(), "socket_clients_max") {
            clients if clients["now"] == 2 && clients["value"] == 3 => Ok(()),
            clients => Err(clients.to_string()),
        }
    });
    let time = row(&rows, "idle_timeout_ms");
    assert!(
        time.get("now").is_none() && time["unit"] == "ms",
        "a time is not in use"
    );
    // As many rows as without a server, in the same order.
    let own = home.run(&["limits"]).expect_code(0);
    assert_eq!(own.stdout.len(), rows.len());

    let table = home
        .run(&["limits", "--connect", "unix:mcp.sock"])
        .expect_code(0);
    let line = table
        .stdout
        .iter()
        .find(|line| line.starts_with("calls_open_max"));
    expect_words(line.unwrap(), &["50 calls", "now 2, peak "]);

    // Calls that end leave the peak behind.
    let gone = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#;
    for id in [waits - 1, waits] {
        writeln!(client.stream, "{gone}{id}}}}}").unwrap();
    }
    until("no calls", || match row(&live(), "calls_open_max") {
        calls if calls["now"] == 0 && calls["peak"].as_u64() >= Some(2) => Ok(()),
        calls => Err(calls.to_string()),
    });
    // On stdin the method does not exist.
    let id = serve.request("drawspan/limits", "{}");
    assert_eq!(serve.answer(id)["error"]["code"], -32601);

    let mut full = Vec::new();
    let mut refused = None;
    until("no room", || {
        full.push(Client::new(&home));
        let finished = home.run(&["limits", "--connect", "unix:mcp.sock"]);
        let code = finished.status.code();
        refused = Some(finished);
        if code == Some(1) {
            Ok(())
        } else {
            Err(format!("{code:?}"))
        }
    });
    let words = ["unix:mcp.sock: answered: ", "limit 3 (socket_clients_max)"];
    refused.expect("it was").expect_stderr(&words);
    drop(full);
    let nobody = home
        .run(&["limits", "--connect", "unix:other.sock"])
        .expect_code(4);
    nobody.expect_stderr(&["unix:other.sock"]);
    let usage = home
        .run(&["limits", "--connect", "http://127.0.0.1:1"])
        .expect_code(2);
    usage.expect_stderr(&["error: cannot connect to http://127.0.0.1:1: use unix:/PATH"]);
}
