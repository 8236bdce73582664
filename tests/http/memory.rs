//! What a request and an idle connection cost in memory. Exact on any machine, unlike a time.

use drawspan::codec::outbuf::OutBuf;
use drawspan::ids::WireId;
use drawspan::limits::Limits;
use drawspan::link::IoEvent;
use drawspan::link::http_server::{HttpConnection, HttpEvent};

use crate::player::at;

const FIELDS: &str = "Host: 127.0.0.1:8900\r\nContent-Type: application/json\r\n\
    Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
    Mcp-Method: tools/call\r\nMcp-Name: echo\r\nUser-Agent: bench\r\n";

fn post(body: usize) -> Vec<u8> {
    let body = "x".repeat(body);
    let length = body.len();
    format!("POST /mcp HTTP/1.1\r\n{FIELDS}Content-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// How a request is answered.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Json,
    Plain,
    Stream,
}

/// One turn of a loop: bytes in, events out, answers in, bytes out. Returns how many requests were
/// answered and how many writes that took.
fn turn(connection: &mut HttpConnection, bytes: &[u8], manner: Manner) -> (usize, usize) {
    let now = at(5);
    let (mut served, mut writes) = (0, 0);
    connection.handle_io(now, IoEvent::Bytes(bytes));
    while let Some(event) = connection.poll_event() {
        match event {
            HttpEvent::Head { exchange, head } => {
                assert_eq!(head.field("mcp-method"), Some("tools/call"));
                connection.recycle_head(head);
                connection.accept(now, exchange);
            }
            HttpEvent::Body { exchange, body } => {
                match manner {
                    Manner::Json => {
                        let fields = [("Mcp-Session-Id", "0123456789abcdef")];
                        let answer = connection.begin_json(exchange, &fields);
                        answer.extend_from_slice(&body);
                        connection.commit_json(now, exchange);
                    }
                    Manner::Plain => connection.respond(now, exchange, 202, &[], b""),
                    Manner::Stream => {
                        connection.start_sse(now, exchange, &[]);
                        let event = connection.begin_event(exchange, Some("message"), Some("7"));
                        event.extend_from_slice(&body);
                        connection.commit_event(now, exchange);
                        connection.sse_comment(now, exchange, b"");
                        connection.finish_sse(now, exchange);
                    }
                }
                served += 1;
                connection.recycle(body);
            }
            HttpEvent::Gone { .. } | HttpEvent::Closed => panic!("{event:?}"),
        }
    }
    while connection.poll_io().is_some() {}
    let out: &mut OutBuf = connection.outgoing();
    if !out.is_empty() {
        writes += 1;
        out.clear();
        connection.handle_io(now, IoEvent::Drained);
        assert!(connection.poll_io().is_none());
    }
    (served, writes)
}

#[test]
fn a_thousand_requests_in_steady_state_allocate_nothing() {
    for manner in [Manner::Json, Manner::Plain, Manner::Stream] {
        for body in [0, 150, 4_096, 200_000] {
            // In one piece, and in pieces as a socket gives them.
            for step in [usize::MAX, 64 * 1024, 1_000] {
                let request = post(body);
                let mut connection = HttpConnection::new(WireId(1), &Limits::DEFAULT, at(0));
                let rounds = if body > 10_000 { 50 } else { 1_000 };
                let mut run = |rounds: usize| {
                    let (mut served, mut writes) = (0, 0);
                    for _ in 0..rounds {
                        for piece in request.chunks(step.min(request.len())) {
                            let done = turn(&mut connection, piece, manner);
                            served += done.0;
                            writes += done.1;
                        }
                    }
                    (served, writes)
                };
                assert_eq!(run(3), (3, 3));
                let mut done = (0, 0);
                let cost = allocation_counter::measure(|| done = run(rounds));
                assert_eq!(done, (rounds, rounds), "one write each");
                let name = format!("{manner:?}, {body} bytes in pieces of {step}");
                assert_eq!(cost.count_total, 0, "{name}: {cost:?}");
            }
        }
    }
}

#[test]
fn a_pipelining_client_costs_nothing_more_while_answers_come_in_order() {
    let mut connection = HttpConnection::new(WireId(1), &Limits::DEFAULT, at(0));
    let requests = post(100).repeat(8);
    let mut done = (0, 0);
    for _ in 0..3 {
        done = turn(&mut connection, &requests, Manner::Json);
    }
    assert_eq!(done, (8, 1), "eight answers in one write");
    let cost =
        allocation_counter::measure(|| done = turn(&mut connection, &requests, Manner::Json));
    assert_eq!(cost.count_total, 0, "{cost:?}");
}

/// Heap that a connection keeps after some turns and a while of silence.
fn kept_when_idle(turns: impl FnOnce(&mut HttpConnection)) -> i64 {
    let mut kept = None;
    let cost = allocation_counter::measure(|| {
        let mut connection = HttpConnection::new(WireId(1), &Limits::DEFAULT, at(0));
        turns(&mut connection);
        connection.handle_timeout(at(2_000));
        assert!(!connection.is_closed());
        kept = Some(connection);
    });
    drop(kept);
    cost.bytes_current
}

#[test]
fn an_idle_connection_is_small() {
    let size = size_of::<HttpConnection>();
    assert!(size <= 1_024, "{size} bytes");
    assert_eq!(kept_when_idle(|_| {}), 0);
    for (body, step) in [(0, usize::MAX), (300, usize::MAX), (200_000, 1_000)] {
        let kept = kept_when_idle(|connection| {
            let request = post(body);
            for piece in request.chunks(step.min(request.len())) {
                turn(connection, piece, Manner::Json);
            }
        });
        assert_eq!(kept, 0, "after a body of {body} bytes");
    }
    let pipelined = kept_when_idle(|connection| {
        turn(connection, &post(100).repeat(16), Manner::Json);
    });
    assert_eq!(pipelined, 0);
}

#[test]
fn an_open_stream_is_small_between_its_events() {
    let kept = kept_when_idle(|connection| {
        let get = format!("GET /mcp HTTP/1.1\r\n{FIELDS}\r\n");
        connection.handle_io(at(1), IoEvent::Bytes(get.as_bytes()));
        let Some(HttpEvent::Head { exchange, .. }) = connection.poll_event() else {
            panic!("a head");
        };
        connection.start_sse(at(1), exchange, &[]);
        let event = connection.begin_event(exchange, None, None);
        event.resize(event.len() + 100_000, b'x');
        connection.commit_event(at(1), exchange);
        while connection.poll_io().is_some() {}
        connection.outgoing().clear();
        connection.handle_io(at(1), IoEvent::Drained);
    });
    assert!(kept <= 64, "{kept} bytes");
}

/// reliability-security T17: what is declared costs nothing, what is sent is bounded.
#[test]
fn a_client_that_sends_without_end_is_bounded() {
    let limits = Limits {
        message_bytes_max: 256 * 1024,
        ..Limits::DEFAULT
    };
    for head in [
        "Content-Length: 262144",
        "Transfer-Encoding: chunked",
        "Content-Length: 99999999999",
    ] {
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\n{head}\r\n\r\n");
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(4_096));
        let cost = allocation_counter::measure(|| {
            let mut connection = HttpConnection::new(WireId(1), &limits, at(0));
            connection.handle_io(at(0), IoEvent::Bytes(head.as_bytes()));
            if let Some(HttpEvent::Head { exchange, .. }) = connection.poll_event() {
                connection.accept(at(0), exchange);
            }
            for _ in 0..1_000 {
                connection.handle_io(at(0), IoEvent::Bytes(chunk.as_bytes()));
                while connection.poll_event().is_some() {}
            }
        });
        assert!(cost.bytes_max < 1_100_000, "{head}: {cost:?}");
    }
}
