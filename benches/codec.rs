//! Reading one message: our scanner against serde_json, on 100 B, 8 KiB and 1 MiB.
//!
//! `scan` finds the parts of the envelope and says what the message is. `raw value` asks serde_json for the
//! same: raw slices of the envelope, then of `params`. `value` builds the whole tree. All three leave out
//! framing; `lines and scan` has it, in chunks of 64 KiB.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput};
use drawspan::codec::jsonrpc::{Message, classify, write_result};
use drawspan::codec::lines::{LineDecoder, LineEvent};
use drawspan::codec::scan::{ScanLimits, Scanned, scan};
use drawspan::limits::Limits;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct RawEnvelope<'a> {
    jsonrpc: &'a str,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawParams<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    _meta: Option<&'a RawValue>,
}

/// A tool call of about `size` bytes: lines of 64 bytes with an escape each, now and then a letter outside
/// ASCII.
fn message(size: usize) -> Vec<u8> {
    let mut text = String::new();
    let head = r#"{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"name":"echo","arguments":{"text":""#;
    text.push_str(head);
    let mut line = 0;
    while text.len() + 4 < size {
        let room = size - 4 - text.len();
        let part = if line % 16 == 15 {
            "how much of it is é, ü or ß, and how much is a \\\"quoted\\\" word?\\n"
        } else {
            "a line of text as a tool may print it, sixty-two bytes of it..\\n"
        };
        text.push_str(if room < part.len() { "x" } else { part });
        line += 1;
    }
    text.push_str("\"}}}");
    text.into_bytes()
}

fn read(bytes: &[u8], limits: &ScanLimits) -> usize {
    match scan(bytes, limits) {
        Ok(Scanned::One(envelope)) => match classify(&envelope) {
            Ok(Message::Request { id, .. }) => {
                id.len() + envelope.name.map_or(0, |name| name.raw().len())
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn codec(c: &mut Criterion) {
    let limits = ScanLimits::from(&Limits::DEFAULT);
    let mut group = c.benchmark_group("codec");
    for (name, size) in [("100 B", 100), ("8 KiB", 8 << 10), ("1 MiB", 1 << 20)] {
        let bytes = message(size);
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_with_input(BenchmarkId::new("scan", name), &bytes, |b, bytes| {
            b.iter(|| read(black_box(bytes), &limits));
        });
        group.bench_with_input(BenchmarkId::new("raw value", name), &bytes, |b, bytes| {
            b.iter(|| {
                let envelope: RawEnvelope<'_> =
                    serde_json::from_slice(black_box(bytes)).expect("a message");
                let params = envelope.params.map_or("{}", RawValue::get);
                let params: RawParams<'_> = serde_json::from_str(params).expect("params");
                black_box((envelope.jsonrpc, envelope.id, envelope.method));
                black_box((params.name, params._meta))
                    .0
                    .map(|name| name.get().len())
            });
        });
        group.bench_with_input(BenchmarkId::new("value", name), &bytes, |b, bytes| {
            b.iter(|| serde_json::from_slice::<Value>(black_box(bytes)).expect("a message"));
        });
        let mut stream = Vec::new();
        for _ in 0..=(64 << 10) / bytes.len() {
            stream.extend_from_slice(&bytes);
            stream.push(b'\n');
        }
        group.throughput(Throughput::Bytes(stream.len() as u64));
        let mut lines = LineDecoder::new(Limits::DEFAULT.message_bytes_max);
        let mut out = Vec::new();
        group.bench_with_input(
            BenchmarkId::new("lines and scan", name),
            &stream,
            |b, stream| {
                b.iter(|| {
                    out.clear();
                    for chunk in stream.chunks(64 << 10) {
                        let mut rest = black_box(chunk);
                        while let Some(event) = lines.next(&mut rest) {
                            if let LineEvent::Line(line) = event {
                                let read = read(line, &limits);
                                write_result(&mut out, "17", if read > 0 { "{}" } else { "null" });
                            }
                        }
                    }
                    out.len()
                });
            },
        );
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    codec(&mut criterion);
    criterion.final_summary();
}
