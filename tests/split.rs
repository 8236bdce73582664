//! Framing does not depend on how the bytes were cut: every stream of `protocol-fixtures/codec` and seeded
//! random ones, replayed whole, byte by byte and at seeded cuts, give the same events.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use drawspan::codec::jsonrpc::{Message, Outcome, Reason, classify};
use drawspan::codec::lines::{LineDecoder, LineEvent};
use drawspan::codec::scan::{
    BatchMember, Envelope, IdField, ScanError, ScanLimits, Scanned, readable_id, scan,
};
use drawspan::entropy::Seeded;
use drawspan::limits::Limits;
use serde_json::{Map, Value, json};

/// Streams up to this size are also fed byte by byte.
const SMALL: usize = 256 * 1024;

#[test]
fn every_line_fixture_gives_its_events_however_it_is_cut() {
    let files = fixture_files("lines");
    assert!(files.len() >= 12, "fixtures are missing: {files:?}");
    for file in files {
        let text = fs::read_to_string(&file).expect("a fixture is text");
        let fixture: Value = serde_json::from_str(&text).expect("a fixture is JSON");
        let streams = fixture["streams"].as_array().expect("streams");
        assert!(!streams.is_empty(), "{} has no stream", file.display());
        for stream in streams {
            let name = format!("{}: {}", file.display(), stream["note"]);
            replay(&name, stream);
        }
    }
}

fn replay(name: &str, stream: &Value) {
    let limit = match stream.get("line_bytes_max") {
        Some(limit) => limit.as_u64().and_then(|limit| limit.try_into().ok()),
        None => Some(Limits::DEFAULT.message_bytes_max),
    };
    let limit = limit.expect("line_bytes_max is a size");
    let pieces = stream["bytes"].as_array().expect("pieces");
    let pieces: Vec<Vec<u8>> = pieces.iter().map(bytes_of).collect();
    let whole = pieces.concat();
    let wanted: Vec<Value> = stream["events"]
        .as_array()
        .expect("events")
        .iter()
        .map(expanded)
        .collect();

    let as_written: Vec<_> = pieces.iter().map(Vec::as_slice).collect();
    let found = events(limit, &as_written);
    assert_eq!(brief(&found), brief(&wanted), "{name}");
    assert_eq!(found, wanted, "{name}");
    assert_eq!(events(limit, &[&whole]), wanted, "{name}, whole");
    let steps: &[usize] = if whole.len() <= SMALL {
        &[1, 2, 7]
    } else {
        &[4093, 65536]
    };
    for step in steps {
        let chunks: Vec<_> = whole.chunks(*step).collect();
        assert_eq!(events(limit, &chunks), wanted, "{name}, by {step}");
    }
    for seed in 0..if whole.len() <= SMALL { 20 } else { 2 } {
        let found = events(limit, &cuts(&whole, seed));
        assert_eq!(found, wanted, "{name}, seed {seed}");
    }
}

#[test]
fn random_lines_come_out_as_they_went_in() {
    for seed in 0..200 {
        let mut random = Seeded::new(seed);
        let limit = 1 + random.below(40) as usize;
        let mut stream = Vec::new();
        let mut wanted = Vec::new();
        for _ in 0..random.below(30) {
            let line = random_line(&mut random, 2 * limit);
            stream.extend_from_slice(&line);
            stream.push(b'\n');
            wanted.extend(simple(&line, limit));
        }
        let last = random_line(&mut random, 2 * limit);
        stream.extend_from_slice(&last);
        wanted.extend(simple(&last, limit));
        for cut in 0..10 {
            let mut found = Vec::new();
            decode(limit, &cuts(&stream, seed * 1000 + cut), |event, _| {
                found.push(match event {
                    LineEvent::Line(line) => Some(line.to_vec()),
                    LineEvent::Oversized { .. } => None,
                });
            });
            assert_eq!(found, wanted, "seed {seed}, cut {cut}");
        }
    }
}

/// The rule for one line, told the simple way: `Some(None)` is an oversized one, `None` a blank one.
fn simple(line: &[u8], limit: usize) -> Option<Option<Vec<u8>>> {
    if line.len() > limit {
        return Some(None);
    }
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    let blank = line.iter().all(|byte| b" \t\r\0".contains(byte));
    (!blank).then(|| Some(line.to_vec()))
}

fn random_line(random: &mut Seeded, length_max: usize) -> Vec<u8> {
    const BYTES: &[u8] = b"  \r\r\0\t\xef\xbb\xbf{}a";
    let mut line = Vec::new();
    if random.below(4) == 0 {
        line.extend_from_slice(b"\xef\xbb\xbf");
    }
    for _ in 0..random.below(length_max as u64 + 1) {
        line.push(BYTES[random.below(BYTES.len() as u64) as usize]);
    }
    line
}

/// Cuts a stream at seeded places; empty chunks do not come from a descriptor.
fn cuts(mut rest: &[u8], seed: u64) -> Vec<&[u8]> {
    let mut random = Seeded::new(seed);
    let longest = [2, 16, 300, 70_000][random.below(4) as usize];
    let longest = if rest.len() > SMALL { 70_000 } else { longest };
    let mut chunks = Vec::new();
    while !rest.is_empty() {
        let at = 1 + random.below(longest) as usize;
        let (chunk, after) = rest.split_at(at.min(rest.len()));
        chunks.push(chunk);
        rest = after;
    }
    chunks
}

/// Feeds chunks and the end of input; the flag says that the event came from the end.
fn decode(limit: usize, chunks: &[&[u8]], mut found: impl FnMut(LineEvent<'_>, bool)) {
    let mut decoder = LineDecoder::new(limit);
    for chunk in chunks {
        let mut rest = *chunk;
        while let Some(event) = decoder.next(&mut rest) {
            found(event, false);
        }
        assert!(rest.is_empty(), "a drained chunk is used up");
        assert!(decoder.kept_bytes() <= limit, "more is kept than the limit");
    }
    if let Some(event) = decoder.finish() {
        found(event, true);
    }
}

fn events(limit: usize, chunks: &[&[u8]]) -> Vec<Value> {
    let scan_limits = ScanLimits::from(&Limits::DEFAULT);
    let mut all = Vec::new();
    decode(limit, chunks, |event, unended| {
        let mut event = match event {
            LineEvent::Line(line) => line_event(line, &scan_limits),
            LineEvent::Oversized { head, limit } => with_id(
                json!({"kind": "oversized", "limit": limit}),
                readable_id(head, &scan_limits),
            ),
        };
        if unended {
            event["unended"] = true.into();
        }
        all.push(event);
    });
    all
}

fn line_event(line: &[u8], limits: &ScanLimits) -> Value {
    match scan(line, limits) {
        Ok(Scanned::One(envelope)) => message_event(envelope),
        Ok(Scanned::Other) => json!({"kind": "scalar"}),
        Ok(Scanned::Batch(batch)) => {
            let members = batch.into_iter().map(|member| match member {
                BatchMember::Message(envelope) => message_event(envelope),
                BatchMember::NotAnObject(raw) => json!({"kind": "not-an-object", "raw": raw}),
            });
            json!({"kind": "batch", "members": members.collect::<Vec<_>>()})
        }
        Err(error) => {
            let word = match error {
                ScanError::NotUtf8 { .. } => "not-utf8",
                ScanError::Syntax { .. } => "syntax",
                ScanError::TooDeep { .. } => "too-deep",
                ScanError::DuplicateMember { .. } => "duplicate-member",
                ScanError::TooManyMessages { .. } => "too-many-messages",
                other => panic!("the fixtures have no word for {other}"),
            };
            with_id(
                json!({"kind": "refused", "error": word}),
                readable_id(line, limits),
            )
        }
    }
}

fn message_event(envelope: Envelope<'_>) -> Value {
    let mut event = Map::new();
    let mut set = |name: &str, value: &str| event.insert(name.to_owned(), value.into());
    match classify(&envelope) {
        Ok(Message::Request { id, method }) => {
            set("kind", "request");
            set("id", id);
            set("method", &method.decode());
            envelope.params.map(|params| set("params", params));
        }
        Ok(Message::Notification { method }) => {
            set("kind", "notification");
            set("method", &method.decode());
            envelope.params.map(|params| set("params", params));
        }
        Ok(Message::Response { id, outcome, .. }) => {
            set("kind", "response");
            match id {
                IdField::Absent => None,
                IdField::Null => set("id", "null"),
                IdField::Usable(raw) | IdField::Unusable(raw) => set("id", raw),
            };
            match outcome {
                Outcome::Result(raw) => set("result", raw),
                Outcome::Error(raw) => set("error", raw),
            };
        }
        Err(invalid) => {
            set("kind", "invalid");
            invalid.id.map(|id| set("id", id));
            set(
                "reason",
                match invalid.reason {
                    Reason::Version => "version",
                    Reason::NoMethod => "no-method",
                    Reason::Method => "method",
                    Reason::MethodAndOutcome => "method-and-outcome",
                    Reason::ResultAndError => "result-and-error",
                    Reason::Id => "id",
                    Reason::Params => "params",
                    Reason::Error => "error",
                    other => panic!("the fixtures have no word for {other}"),
                },
            );
        }
    }
    Value::Object(event)
}

fn with_id(mut event: Value, id: Option<&str>) -> Value {
    if let Some(id) = id {
        event["id"] = id.into();
    }
    event
}

/// An event of a fixture with its lists of pieces made one text each.
fn expanded(event: &Value) -> Value {
    let members = event.as_object().expect("an event is an object");
    let members = members.iter().map(|(name, value)| {
        let value = match value {
            Value::Array(list) if name == "members" => list.iter().map(expanded).collect(),
            Value::Array(pieces) => {
                let bytes: Vec<_> = pieces.iter().map(bytes_of).collect();
                String::from_utf8(bytes.concat())
                    .expect("events are text")
                    .into()
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => value.clone(),
        };
        (name.clone(), value)
    });
    Value::Object(members.collect())
}

fn bytes_of(piece: &Value) -> Vec<u8> {
    if let Some(text) = piece.as_str() {
        text.as_bytes().to_vec()
    } else if let Some(coded) = piece["base64"].as_str() {
        let coder = base64::engine::general_purpose::STANDARD;
        coder.decode(coded).expect("base64")
    } else {
        let times = piece["times"].as_u64().expect("how often");
        bytes_of(&piece["repeat"]).repeat(times as usize)
    }
}

/// The kinds alone, so that a failure is readable before it is complete.
fn brief(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| event["kind"].as_str())
        .collect()
}

fn fixture_files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("protocol-fixtures/codec")
        .join(folder);
    let entries = fs::read_dir(&folder).expect("the fixtures are there");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    files
}
