//! The fixture, whole and in pieces; what is written is read back, and nothing else is.

use serde_json::{Value, json};

use super::*;
use crate::entropy::Seeded;

fn unhex(text: &str) -> Vec<u8> {
    let byte = |i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

/// A text, or a list of texts and repeated texts.
fn bytes_of(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Array(pieces) => pieces.iter().flat_map(bytes_of).collect(),
        piece @ (Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_)) => {
            let times = usize::try_from(piece["times"].as_u64().expect("times")).expect("small");
            piece["repeat"]
                .as_str()
                .expect("repeat")
                .repeat(times)
                .into_bytes()
        }
    }
}

/// An event as (name, data), or the limit that one is beyond.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Event(Vec<u8>, Vec<u8>),
    Oversized(usize),
}

fn expected(event: &Value) -> Seen {
    if let Some(limit) = event["oversized"].as_u64() {
        return Seen::Oversized(usize::try_from(limit).expect("small"));
    }
    let part = |plain: &str, hex: &str, otherwise: &str| match (&event[plain], &event[hex]) {
        (Value::Null, Value::Null) => otherwise.as_bytes().to_vec(),
        (Value::Null, hex) => unhex(hex.as_str().expect("hex")),
        (plain, _) => bytes_of(plain),
    };
    Seen::Event(
        part("name", "name_hex", "message"),
        part("data", "data_hex", ""),
    )
}

fn read(reader: &mut EventReader, mut input: &[u8], seen: &mut Vec<Seen>) {
    while let Some(event) = reader.next(&mut input) {
        seen.push(match event {
            SseEvent::Event { name, data } => Seen::Event(name.to_vec(), data.to_vec()),
            SseEvent::Oversized { limit } => Seen::Oversized(limit),
        });
    }
    assert!(input.is_empty(), "all is taken");
}

/// Cuts of a stream: whole, by one, by seven, at seeded places.
fn pieces(bytes: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut all = vec![vec![bytes]];
    for step in [1, 2, 7] {
        all.push(bytes.chunks(step).collect());
    }
    let mut random = Seeded::new(925);
    for _ in 0..20 {
        let mut rest = bytes;
        let mut cut = Vec::new();
        while !rest.is_empty() {
            let at = 1 + usize::try_from(random.below(20)).expect("small");
            let (piece, after) = rest.split_at(at.min(rest.len()));
            cut.push(piece);
            rest = after;
        }
        all.push(cut);
    }
    all
}

#[test]
fn streams_come_apart_however_they_are_cut() {
    let fixture = include_str!("../../../protocol-fixtures/codec/sse/streams.jsonl");
    assert!(come_apart(fixture) > 50);
}

/// What people reported: d01, d02 and d07 of their cases.
#[test]
fn reported_streams_come_apart_however_they_are_cut() {
    for fixture in [
        include_str!("../../../protocol-fixtures/codec/sse/d01-comments-multiline.jsonl"),
        include_str!("../../../protocol-fixtures/codec/sse/d02-line-endings.jsonl"),
        include_str!("../../../protocol-fixtures/codec/sse/d07-stale-event-name.jsonl"),
    ] {
        assert!(come_apart(fixture) >= 3);
    }
}

/// Reads every stream of a fixture in many ways; how many there are.
fn come_apart(fixture: &str) -> usize {
    let mut lines = fixture.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    });
    let limit = lines.next().expect("a header")["event_bytes_max"].as_u64();
    let limit = usize::try_from(limit.expect("a limit")).expect("small");
    let mut cases = 0;
    for case in lines {
        cases += 1;
        let bytes = match case["hex"].as_str() {
            Some(hex) => unhex(hex),
            None => bytes_of(&case["bytes"]),
        };
        let events = case["expect"].as_array().expect("events");
        let events: Vec<Seen> = events.iter().map(expected).collect();
        for cut in pieces(&bytes) {
            let mut reader = EventReader::new(limit);
            let mut seen = Vec::new();
            for piece in &cut {
                read(&mut reader, piece, &mut seen);
                let kept = reader.kept_bytes();
                assert!(kept <= 2 * limit, "{}: {kept} are kept", case["case"]);
            }
            let name = format!("{} in {} pieces", case["case"], cut.len());
            assert_eq!(seen, events, "{name}");
            let last_id = case["last_id"].as_str().unwrap_or("").as_bytes();
            assert_eq!(reader.last_event_id(), last_id, "{name}");
            assert_eq!(reader.retry_ms(), case["retry"].as_u64(), "{name}");
            assert_eq!(reader.is_amid_event(), case["amid"] == true, "{name}");
        }
    }
    cases
}

#[test]
fn an_event_ended_by_cr_cr_comes_at_once() {
    let mut reader = EventReader::new(100);
    let mut seen = Vec::new();
    read(&mut reader, b"data: A\r\r", &mut seen);
    assert_eq!(seen, [Seen::Event(b"message".to_vec(), b"A".to_vec())]);
    read(&mut reader, b"\ndata: B\r\n\r", &mut seen);
    assert_eq!(seen[1..], [Seen::Event(b"message".to_vec(), b"B".to_vec())]);
}

/// What a reader makes of a written stream.
fn read_back(written: &[u8]) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut reader = EventReader::new(10_000);
    read(&mut reader, written, &mut seen);
    assert!(
        !reader.is_amid_event(),
        "{:?}",
        String::from_utf8_lossy(written)
    );
    seen
}

#[test]
fn what_is_written_is_read_back_whatever_it_holds() {
    const PARTS: [&str; 12] = [
        "\n", "\r", "\r\n", "\n\n", "data: x", "event: y", "id: z", ":", " ", "\u{feff}", "{}",
        "\0",
    ];
    let mut random = Seeded::new(3);
    let mut text = |most: u64| -> String {
        let parts = random.below(most);
        let part = |_| PARTS[usize::try_from(random.below(PARTS.len() as u64)).expect("small")];
        (0..parts).map(part).collect()
    };
    for round in 0..2_000 {
        let (event, id, data, comment) = (text(3), text(3), text(8), text(8));
        let mut written = Vec::new();
        write_comment(&mut written, comment.as_bytes());
        write_event(&mut written, Some(&event), Some(&id), data.as_bytes());
        write_retry(&mut written, round);
        let joined = data.replace("\r\n", "\n").replace('\r', "\n");
        let broken = event.contains(['\r', '\n', '\0']);
        let name = if event.is_empty() || broken {
            "message"
        } else {
            &event
        };
        let expected = [Seen::Event(name.as_bytes().to_vec(), joined.into_bytes())];
        assert_eq!(
            read_back(&written),
            expected,
            "{:?}",
            String::from_utf8_lossy(&written)
        );
    }
}

#[test]
fn what_is_written_looks_as_it_should() {
    let mut written = Vec::new();
    write_event(&mut written, Some("message"), Some("a/1"), b"{}");
    write_event(&mut written, None, Some("two\nlines"), b"a\r\nb\rc\n");
    write_comment(&mut written, b"alive");
    write_comment(&mut written, b"");
    write_retry(&mut written, 1_500);
    assert_eq!(
        String::from_utf8(written).expect("text"),
        "event: message\nid: a/1\ndata: {}\n\ndata: a\ndata: b\ndata: c\ndata: \n\n\
         : alive\n\n: \n\nretry: 1500\n\n"
    );
}

/// The cases with an exact outcome that people's reports led to: comments, line ends, stale names.
#[test]
fn reported_streams() {
    let stream = |text: &str| {
        let mut seen = Vec::new();
        read(&mut EventReader::new(65_536), text.as_bytes(), &mut seen);
        seen
    };
    let event = |data: &str| Seen::Event(b"message".to_vec(), data.as_bytes().to_vec());
    let text = ": hello\n:\n::keep-alive\n\nevent: message\n: inside\ndata: {\"jsonrpc\":\"2.0\",\n\
                data:  \"id\":1,\"result\":{}}\n\n: bye\n\n";
    let joined = "{\"jsonrpc\":\"2.0\",\n \"id\":1,\"result\":{}}";
    assert_eq!(stream(text), [event(joined)]);
    let oversized = format!(
        "data: one\n\ndata: {}\n\ndata: two\n\n",
        "Z".repeat(200_000)
    );
    assert_eq!(
        stream(&oversized),
        [event("one"), Seen::Oversized(65_536), event("two")]
    );
    assert_eq!(
        json!(stream("data: x").len()),
        json!(0),
        "no empty line, no event"
    );
}
