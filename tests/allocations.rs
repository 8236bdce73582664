//! What a message costs in memory. Exact on any machine, unlike a time.

use drawspan::codec::jsonrpc::{
    Message, RequestId, classify, write_error, write_notification, write_request, write_result,
};
use drawspan::codec::lines::{LineDecoder, LineEvent};
use drawspan::codec::outbuf::OutBuf;
use drawspan::codec::scan::{ScanLimits, Scanned, scan};
use drawspan::limits::Limits;

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
        let Ok(Message::Request { id, envelope, .. }) = classify(envelope) else {
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
