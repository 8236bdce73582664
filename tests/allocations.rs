//! What a message costs in memory. Exact on any machine, unlike a time.

use drawspan::audit::Chain;
use drawspan::codec::jsonrpc::{
    Message, RequestId, classify, write_error, write_notification, write_request, write_result,
};
use drawspan::codec::lines::{LineDecoder, LineEvent};
use drawspan::codec::outbuf::OutBuf;
use drawspan::codec::scan::{ScanLimits, Scanned, scan};
use drawspan::ids::WireId;
use drawspan::limits::Limits;

#[path = "weight/bridge.rs"]
mod bridge;
#[path = "weight/server.rs"]
mod server;

use bridge::Bridge;
use server::{INITIALIZE, Server, call, modern_call, modern_fields, post};

/// With everything a client of 2026-07-28 may put into `_meta`.
const REQUEST: &str = concat!(
    r#"{"jsonrpc":"2.0","id":"3f2b0c1e-0000-4000-8000-1234567890ab","method":"tools/call","params":{"_meta":{"#,
    r#""progressToken":7,"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientInfo":{},"io.modelcontextprotocol/clientCapabilities":{},"#,
    r#""io.modelcontextprotocol/logLevel":"info","traceparent":"00-0-0-01","tracestate":"a=1","baggage":"b=2"},"#,
    r#""name":"echo","arguments":{"text":"a \"quoted\" \u00e9 line\n"}}}"#,
);

/// Answers every request in the stream and tells how many there were.
fn serve(lines: &mut LineDecoder, out: &mut OutBuf, limits: &ScanLimits, chunk: &[u8]) -> usize {
    let mut served = 0;
    let mut rest = chunk;
    while let Some(event) = lines.next(&mut rest) {
        let LineEvent::Line(line) = event else {
            panic!("an oversized line");
        };
        let Ok(Scanned::One(envelope)) = scan(line, limits) else {
            panic!("no message: {:?}", String::from_utf8_lossy(line));
        };
        let Ok(Message::Request { id, .. }) = classify(&envelope) else {
            panic!("no request: {}", envelope.raw);
        };
        let id = RequestId::from_raw(id);
        write_result(out.tail(), id.raw(), envelope.params.unwrap_or("{}"));
        out.tail().push(b'\n');
        served += 1;
    }
    served
}

#[test]
fn a_thousand_messages_in_steady_state_allocate_nothing() {
    let limits = ScanLimits::from(&Limits::DEFAULT);
    let mut lines = LineDecoder::new(Limits::DEFAULT.message_bytes_max);
    let mut out = OutBuf::new();
    let stream = format!("{REQUEST}\n").repeat(1000).into_bytes();
    // Chunks that cut most messages, and every place of one in turn.
    let step = 3 * REQUEST.len() + 11;
    let turn = |lines: &mut LineDecoder, out: &mut OutBuf| {
        let mut served = 0;
        for chunk in stream.chunks(step) {
            served += serve(lines, out, &limits, chunk);
            out.advance(out.len());
        }
        served
    };
    assert_eq!(turn(&mut lines, &mut out), 1000);
    let mut served = 0;
    let cost = allocation_counter::measure(|| served = turn(&mut lines, &mut out));
    assert_eq!(served, 1000);
    assert_eq!(cost.count_total, 0, "{cost:?}");
}

#[test]
fn writers_allocate_nothing_in_a_buffer_with_room() {
    let mut out = Vec::with_capacity(4096);
    let cost = allocation_counter::measure(|| {
        write_request(&mut out, u64::MAX, "tools/call", Some("{\n}"));
        write_notification(&mut out, "notifications/x", None);
        write_error(&mut out, Some("1"), -32600, "no \"message\"\n", Some("{}"));
    });
    assert_eq!(cost.count_total, 0, "{cost:?}");
}

#[test]
fn a_long_line_in_chunks_takes_less_than_three_times_its_size() {
    let size = 5 * 1024 * 1024;
    let mut stream = br#"{"jsonrpc":"2.0","id":1,"result":{"t":""#.to_vec();
    stream.resize(stream.len() + size, b'A');
    stream.extend_from_slice(b"\"}}\n");
    let mut lines = LineDecoder::new(16 * 1024 * 1024);
    let limits = ScanLimits::from(&Limits::DEFAULT);
    let mut results = 0;
    let cost = allocation_counter::measure(|| {
        for chunk in stream.chunks(64 * 1024) {
            let mut rest = chunk;
            while let Some(event) = lines.next(&mut rest) {
                let LineEvent::Line(line) = event else {
                    panic!("an oversized line");
                };
                results += usize::from(matches!(scan(line, &limits), Ok(Scanned::One(_))));
            }
        }
    });
    assert_eq!(results, 1);
    assert!(cost.bytes_max < 3 * size as u64, "{cost:?}");
    // The buffer doubles: a copy for each chunk would show here as hundreds of MiB.
    assert!(cost.bytes_total < 5 * size as u64, "{cost:?}");
}

#[test]
fn a_flood_without_line_feeds_stays_within_the_limit() {
    let limit = 64 * 1024;
    let mut lines = LineDecoder::new(limit);
    let chunk = vec![b'x'; 4096];
    let cost = allocation_counter::measure(|| {
        for _ in 0..10_000 {
            let mut rest = chunk.as_slice();
            while lines.next(&mut rest).is_some() {}
        }
    });
    assert!(cost.bytes_max <= 3 * limit as u64, "{cost:?}");
}

/// Sizes of texts that people send, and one that a page of a document has.
const SIZES: [usize; 3] = [64, 4 << 10, 256 << 10];

/// Rounds before it is steady.
const WARM: usize = 3;

/// Rounds for texts of this size: the long ones take their time in a debug build.
const fn rounds(size: usize) -> usize {
    if size > 16 << 10 { 5 } else { 100 }
}

/// A text of `size` bytes that begins with `tag`, as it stands in JSON: lines of 64 bytes.
fn text(tag: usize, size: usize) -> String {
    let mut text = format!("{tag:08}:");
    while text.len() < size {
        text.push_str(r"as a tool may print it: with an end of line, é and \u00e9 and \n");
    }
    text
}

/// Clients take turns; each request is `request(client, round)`. What all rounds allocate after the first ones.
fn steady(
    server: &mut Server,
    wires: &[WireId],
    rounds: usize,
    mut request: impl FnMut(usize, usize) -> Vec<u8>,
) -> u64 {
    let mut total = 0;
    for number in 0..WARM + rounds {
        let requests: Vec<_> = (0..wires.len()).map(|at| request(at, number)).collect();
        let wanted = format!("{number:08}:");
        let cost = allocation_counter::measure(|| {
            for (wire, request) in wires.iter().zip(&requests) {
                assert!(server.exchange(*wire, request, wanted.as_bytes()));
            }
        });
        if number >= WARM {
            total += cost.count_total;
        }
    }
    total
}

fn connected(server: &mut Server, count: usize) -> Vec<WireId> {
    (0..count).map(|_| server.connect()).collect()
}

#[test]
fn a_call_over_http_allocates_nothing_in_a_session() {
    for size in SIZES {
        let mut server = Server::new();
        let wires = connected(&mut server, 8);
        let sessions: Vec<_> = wires
            .iter()
            .map(|wire| server.open_session(*wire))
            .collect();
        let total = steady(&mut server, &wires, rounds(size), |client, round| {
            let call = call("echo", &(1_000 + round).to_string(), &text(round, size));
            post(&sessions[client], &call).into_bytes()
        });
        assert_eq!(total, 0, "texts of {size} bytes");
    }
}

#[test]
fn short_calls_between_long_ones_allocate_nothing() {
    let mut server = Server::new();
    let wires = connected(&mut server, 8);
    let sessions: Vec<_> = wires
        .iter()
        .map(|wire| server.open_session(*wire))
        .collect();
    let total = steady(&mut server, &wires, 20, |client, round| {
        let size = if round % 2 == 0 { 64 } else { 64 << 10 };
        let call = call("echo", &(1_000 + round).to_string(), &text(round, size));
        post(&sessions[client], &call).into_bytes()
    });
    assert_eq!(total, 0);
}

#[test]
fn a_call_over_http_allocates_nothing_without_a_session() {
    for size in SIZES {
        let mut server = Server::new();
        let wires = connected(&mut server, 8);
        let fields = modern_fields("echo");
        let total = steady(&mut server, &wires, rounds(size), |_, round| {
            let call = modern_call("echo", &format!("\"{:04}\"", round), &text(round, size));
            post(&fields, &call).into_bytes()
        });
        assert_eq!(total, 0, "texts of {size} bytes");
    }
}

#[test]
fn a_call_on_a_line_allocates_nothing() {
    for size in SIZES {
        for modern in [false, true] {
            let mut server = Server::new();
            let wire = server.hub.serve_adopted(server.now);
            let started = server.ask(wire, format!("{INITIALIZE}\n").as_bytes());
            assert!(started.contains("2025-11-25"));
            let total = steady(&mut server, &[wire], rounds(size), |_, round| {
                let make = if modern { modern_call } else { call };
                let call = make("echo", &(1_000 + round).to_string(), &text(round, size));
                format!("{call}\n").into_bytes()
            });
            assert_eq!(total, 0, "texts of {size} bytes, modern: {modern}");
        }
    }
}

#[test]
fn what_a_program_answers_itself_costs_a_known_number() {
    const ROUNDS: usize = 100;
    let cost = |tool: &str| {
        let mut server = Server::new();
        let wires = connected(&mut server, 8);
        let fields = modern_fields(tool);
        let total = steady(&mut server, &wires, ROUNDS, |_, round| {
            let call = modern_call(tool, &format!("\"{round:08}:\""), &text(round, 64));
            post(&fields, &call).into_bytes()
        });
        total as f64 / (ROUNDS * wires.len()) as f64
    };
    // What the desk keeps of the request (arguments, capabilities, principal) and the result; the closure
    // decodes the text besides.
    let all = [cost("copy"), cost("later")];
    assert_eq!(all, [5.0, 4.0], "allocations a call");
}

/// None; but buffers that grew large are given back, and not kept for the next call.
#[test]
fn a_call_through_a_bridge_costs_a_known_number() {
    for (over_http, large) in [(false, 1), (true, 3)] {
        for (size, wanted) in SIZES.into_iter().zip([0, 0, large]) {
            let mut bridge = Bridge::new(over_http);
            let all: Vec<u64> = (0..WARM + 20)
                .map(|number| bridge.call(number, size))
                .collect();
            assert_eq!(
                all[WARM..],
                [wanted; 20],
                "texts of {size} bytes, over HTTP: {over_http}"
            );
        }
    }
}

/// Two lines for each call, numbered and chained, as the program would write them.
#[test]
fn the_audit_log_costs_no_allocation() {
    let mut server = Server::new();
    server.hub.keep_audit(false);
    let wire = server.hub.serve_adopted(server.now);
    server.ask(wire, format!("{INITIALIZE}\n").as_bytes());
    // Numbers grow longer: the buffers have room for that.
    let (mut bodies, mut sealed) = (Vec::with_capacity(4 << 10), Vec::with_capacity(4 << 10));
    let mut chain = Chain::new();
    let mut total = 0;
    for round in 0..WARM + 100 {
        let call = call("echo", &(1_000 + round).to_string(), &text(round, 4 << 10));
        let request = format!("{call}\n");
        let wanted = format!("{round:08}:");
        let cost = allocation_counter::measure(|| {
            assert!(server.exchange(wire, request.as_bytes(), wanted.as_bytes()));
            bodies.clear();
            sealed.clear();
            assert_eq!(server.hub.take_audit(&mut bodies), 0);
            for body in bodies.split_inclusive(|byte| *byte == b'\n') {
                chain.seal(&mut sealed, &body[..body.len() - 1]);
            }
            server.hub.audit_written(server.now, Ok(()), 0);
        });
        if round >= WARM {
            total += cost.count_total;
        }
    }
    assert_eq!(chain.seq(), 2 * (WARM as u64 + 100));
    assert_eq!(total, 0, "allocations");
}
