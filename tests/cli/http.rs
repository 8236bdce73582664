//! `serve --listen http://…`: the HTTP door of the real program.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::world::{EMBEDDED, Home, PATIENCE, Process, expect_words};

/// `drawspan serve` with its embedded Gateway on a port of the system's choice, and where that is.
#[track_caller]
pub(crate) fn serve(home: &Home, host: &str, more: &[&str]) -> (Process, String) {
    let listen = format!("http://{host}:0");
    let args = [&EMBEDDED[..], &["--listen", &listen], more].concat();
    let mut serve = Process::start(&mut home.drawspan(&args));
    let address = serve.address();
    let start = format!("{host}:");
    assert!(
        address.starts_with(&start) && !address.ends_with(":0"),
        "{address}"
    );
    (serve, address)
}

/// One connection to the program.
pub(crate) struct Client {
    address: String,
    pub(crate) stream: TcpStream,
}

impl Client {
    #[track_caller]
    pub(crate) fn new(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let address = address.to_owned();
        Self { address, stream }
    }

    pub(crate) fn send(&mut self, headers: &str, body: &str) {
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        // One that is turned away may be told so before it has said anything.
        let _ = self.stream.write_all(request.as_bytes());
    }

    /// The next answer, head and body.
    #[track_caller]
    pub(crate) fn answer(&mut self) -> String {
        let mut seen = Vec::new();
        let mut byte = [0];
        while !seen.ends_with(b"\r\n\r\n") {
            let read = self.stream.read(&mut byte).unwrap();
            assert_eq!(read, 1, "cut off in {}", String::from_utf8_lossy(&seen));
            seen.push(byte[0]);
        }
        let head = String::from_utf8(seen).unwrap();
        let length = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length:")
                    .map(str::to_owned)
            })
            .map_or(0, |length| length.trim().parse().unwrap());
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        head + &String::from_utf8(body).unwrap()
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, headers: &str, body: &str) -> String {
        self.send(headers, body);
        self.answer()
    }
}

/// `initialize` of a handshake client.
pub(crate) const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"tester","version":"1"}}}"#,
);

#[test]
fn port_0_is_one_that_the_system_chose_and_stderr_tells() {
    let home = Home::new("http-port-0");
    for host in ["127.0.0.1", "[::1]"] {
        // A machine without IPv6 cannot show the brackets.
        if std::net::TcpListener::bind((host.trim_matches(['[', ']']), 0)).is_err() {
            continue;
        }
        let (serve, address) = serve(&home, host, &[]);
        let answer = Client::new(&address).ask("", INITIALIZE);
        expect_words(&answer, &["200 OK", "\"protocolVersion\":\"2025-11-25\""]);
        serve.signal(rustix::process::Signal::TERM);
        serve.finish().expect_code(0);
    }
}

const FLOODED: &str = r#"{"limits":{"connections_max":12,"connections_surplus_max":2,"sessions_max":3,
    "requests_open_max":2,"calls_open_max":4,"pipelined_requests_max":2,"streams_per_session_max":2,
    "stream_start_interval_ms":1}}"#;

/// A call that waits for an event; with this header it belongs to a session.
fn wait(id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"events_wait","arguments":{{}}}}}}"#
    )
}

fn session(address: &str) -> (Client, String) {
    let mut client = Client::new(address);
    let answer = client.ask("", INITIALIZE);
    let id = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("mcp-session-id").then_some(value)
    });
    let id = id
        .unwrap_or_else(|| panic!("no session: {answer}"))
        .to_owned();
    (
        client,
        format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-11-25\r\n"),
    )
}

/// Each flood in turn, on real sockets; who came before it is served during and after.
#[test]
fn floods_are_told_their_limit_and_the_others_are_served() {
    let home = Home::new("http-floods");
    home.write("drawspan.json", FLOODED);
    let (serve, address) = serve(&home, "127.0.0.1", &[]);
    let ping = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;

    // Sessions.
    let (mut one, first) = session(&address);
    let (mut two, second) = session(&address);
    let (_three, _) = session(&address);
    for _ in 0..20 {
        let refused = one.ask("", INITIALIZE);
        let busy = "too many sessions: 3 are open, limit 3 (sessions_max)";
        expect_words(&refused, &["HTTP/1.1 503", "Retry-After", busy]);
    }
    expect_words(&one.ask(&first, ping), &["200 OK", r#""id":7,"result""#]);

    // Requests of one client; those of another one are its own, up to the calls of all.
    let mut waiting: Vec<Client> = (0..5).map(|_| Client::new(&address)).collect();
    for (id, (client, session)) in
        (20..).zip(waiting.iter_mut().zip([&first, &first, &second, &second]))
    {
        client.send(session, &wait(id));
    }
    for client in &mut waiting[..4] {
        // The stream begins: the call is open.
        expect_words(&client.answer(), &["200 OK", "text/event-stream"]);
    }
    let busy = "busy: 2 requests are open, limit 2 (requests_open_max)";
    expect_words(&one.ask(&first, &wait(40)), &[r#""id":40,"error""#, busy]);
    expect_words(&two.ask(&second, ping), &["200 OK"]);

    // Calls of all clients, from one without a session.
    let modern = concat!(
        r#"{"jsonrpc":"2.0","id":50,"method":"tools/call","params":{"name":"events_wait","arguments":{},"#,
        r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
        r#""io.modelcontextprotocol/clientCapabilities":{}}}}"#
    );
    let headers =
        "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: events_wait\r\n";
    let answer = waiting[4].ask(headers, modern);
    expect_words(
        &answer,
        &[
            r#""id":50"#,
            "busy: 4 calls are open, limit 4 (calls_open_max)",
        ],
    );

    // Connections: three with a session, five that wait; four more, and then one is told and the rest closed.
    let mut more: Vec<Client> = (0..4).map(|_| Client::new(&address)).collect();
    for client in &mut more {
        expect_words(&client.ask(&second, ping), &["200 OK"]);
    }
    let mut flood: Vec<Client> = (0..30).map(|_| Client::new(&address)).collect();
    let mut told = 0;
    for client in &mut flood {
        client.send("", INITIALIZE);
        let mut text = String::new();
        // One that is closed without a word may be reset by what it sent.
        let _ = client.stream.read_to_string(&mut text);
        if !text.is_empty() {
            told += 1;
            let busy = "busy: 12 connections are open, limit 12 (connections_max)";
            expect_words(&text, &["HTTP/1.1 503", "Retry-After: 1\r\n", busy]);
        }
    }
    assert!(told >= 1, "nobody was told");
    for client in &mut more {
        expect_words(&client.ask(&first, ping), &["200 OK"]);
    }

    // Pipelined: more than may wait are answered all the same, in order.
    let mut pipelined = more.pop().unwrap();
    for id in 100..150 {
        pipelined.send(
            &second,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#),
        );
    }
    for id in 100..150 {
        expect_words(&pipelined.answer(), &[&format!(r#""id":{id},"result""#)]);
    }

    // When the flood has gone there is room again.
    drop(flood);
    drop(more);
    let mut late = None;
    crate::world::until("room for one more", || {
        let mut client = Client::new(&address);
        client.send(&second, ping);
        let mut byte = [0; 12];
        let read = client.stream.read_exact(&mut byte).map(|()| byte);
        late = Some(client);
        match read {
            Ok(status) if status == *b"HTTP/1.1 200" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    serve.signal(rustix::process::Signal::TERM);
    for client in &mut waiting[..4] {
        let mut rest = String::new();
        client.stream.read_to_string(&mut rest).unwrap();
        expect_words(&rest, &[r#""text":"timeout""#]);
    }
    let finished = serve.finish().expect_code(0);
    assert_eq!(finished.stderr.len(), 1, "{:?}", finished.stderr);
}
