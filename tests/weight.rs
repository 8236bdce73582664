//! What sessions, streams and many requests leave in memory. Exact on any machine: bytes are counted where
//! they are allocated.

use drawspan::ids::WireId;
use drawspan::limits::Limits;

#[path = "weight/server.rs"]
mod server;

use server::{Server, call, modern_call, modern_fields, post};

const MANY: usize = 1_000;

/// Bytes that stay allocated for each of `MANY`.
fn bytes_each(server: &mut Server, mut one: impl FnMut(&mut Server, usize)) -> i64 {
    // The first ones grow what all share.
    for number in 0..MANY {
        one(server, number);
    }
    let cost = allocation_counter::measure(|| {
        for number in MANY..2 * MANY {
            one(server, number);
        }
    });
    cost.bytes_current / i64::try_from(MANY).expect("a small number")
}

fn roomy() -> Server {
    Server::with(Limits {
        sessions_max: 10 * MANY,
        connections_max: 10 * MANY,
        ..Limits::default()
    })
}

/// What a connection allocates between two requests is given back after a second.
fn rest(server: &mut Server) {
    server.wait(std::time::Duration::from_secs(2));
}

#[test]
fn a_server_without_clients_takes_little() {
    let mut server = None;
    let cost = allocation_counter::measure(|| server = Some(Server::new()));
    let (kept, most) = (cost.bytes_current, cost.bytes_max);
    assert!(kept <= 8 * 1_024, "{kept} bytes");
    assert!(most <= 16 * 1_024, "{most} bytes at once");
}

#[test]
fn an_idle_session_takes_little() {
    let mut server = roomy();
    let wire = server.connect();
    let each = bytes_each(&mut server, |server, _| {
        server.open_session(wire);
    });
    assert!(each <= 800, "{each} bytes a session");
}

#[test]
fn an_idle_connection_takes_little() {
    let mut server = roomy();
    let fields = modern_fields("echo");
    let request = post(&fields, &modern_call("echo", "1", &"x".repeat(4_096)));
    let each = bytes_each(&mut server, |server, number| {
        let wire = server.connect();
        assert!(server.exchange(wire, request.as_bytes(), b"HTTP/1.1 200 OK"));
        if number % 100 == 99 {
            rest(server);
        }
    });
    assert!(each <= 1_024, "{each} bytes a connection");
}

#[test]
fn an_open_stream_takes_little() {
    let mut server = roomy();
    let wire = server.connect();
    let each = bytes_each(&mut server, |server, number| {
        let session = server.open_session(wire);
        let own = server.connect();
        let get = format!(
            "GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n{session}\r\n"
        );
        let answer = server.ask(own, get.as_bytes());
        assert!(answer.contains("text/event-stream"), "{answer}");
        if number % 100 == 99 {
            rest(server);
        }
    });
    assert!(
        each <= 3_072,
        "{each} bytes for a session, a connection and its stream"
    );
}

/// One generation of clients: connections and sessions are opened, used and closed.
fn generation(server: &mut Server, requests: usize, first: usize) {
    const CLIENTS: usize = 16;
    let wires: Vec<WireId> = (0..CLIENTS).map(|_| server.connect()).collect();
    let sessions: Vec<String> = wires
        .iter()
        .map(|wire| server.open_session(*wire))
        .collect();
    let fields = modern_fields("echo");
    for number in first..first + requests {
        let client = number % CLIENTS;
        let (id, text) = (
            number.to_string(),
            format!("text number {number}, \\\"quoted\\\"."),
        );
        let request = if number % 3 == 0 {
            post(&fields, &modern_call("echo", &id, &text))
        } else {
            post(&sessions[client], &call("echo", &id, &text))
        };
        let answer = server.ask(wires[client], request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        let body = format!(r#""content":[{{"type":"text","text":"{text}"}}]"#);
        assert!(answer.contains(&format!(r#""id":{id},"#)), "{answer}");
        assert!(answer.contains(&body), "{answer}");
    }
    for (wire, session) in wires.into_iter().zip(sessions) {
        let delete = format!("DELETE /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n{session}\r\n");
        let answer = server.ask(wire, delete.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
        server.disconnect(wire);
    }
}

#[test]
fn a_long_day_leaves_nothing_behind() {
    // Hours of work for a client; in a debug build a part of it.
    const REQUESTS: usize = if cfg!(debug_assertions) {
        60_000
    } else {
        400_000
    };
    const GENERATION: usize = 5_000;
    let mut server = Server::new();
    generation(&mut server, GENERATION, 0);
    let mut left = Vec::new();
    for first in (GENERATION..REQUESTS).step_by(GENERATION) {
        let cost = allocation_counter::measure(|| {
            generation(&mut server, GENERATION, first);
            rest(&mut server);
        });
        left.push((cost.count_current, cost.bytes_current));
        assert_eq!(server.hub.open_calls(), 0);
    }
    // A buffer that all share may grow once or twice.
    let grown: i64 = left.iter().map(|(_, bytes)| bytes).sum();
    assert!(grown < 1_024, "{grown} bytes: {left:?}");
    assert!(
        left[left.len() / 2..].iter().all(|left| left.1 <= 0),
        "{left:?}"
    );
}
