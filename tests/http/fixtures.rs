//! `protocol-fixtures/codec/http_server`: requests and what becomes of them, however they are cut.

use drawspan::entropy::Seeded;
use drawspan::limits::Limits;
use serde_json::{Value, json};

use crate::player::play;

#[test]
fn connections() {
    replay(include_str!(
        "../../protocol-fixtures/codec/http_server/connections.jsonl"
    ));
}

#[test]
fn smuggling() {
    replay(include_str!(
        "../../protocol-fixtures/codec/http_server/smuggling.jsonl"
    ));
}

fn replay(fixture: &str) {
    let mut lines = fixture.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    });
    let header = lines.next().expect("a header");
    let mut cases = 0;
    for case in lines {
        cases += 1;
        let mut limits = Limits::default();
        for table in [&header["limits"], &case["limits"]] {
            for (name, value) in table.as_object().into_iter().flatten() {
                let value = value.as_u64().expect("a number");
                limits
                    .set(name, value)
                    .unwrap_or_else(|error| panic!("{error}"));
            }
        }
        let bytes = bytes_of(&case["bytes"]);
        for pieces in cuts(&bytes) {
            let found = found(&limits, &pieces, case["end"] == true);
            let wanted = wanted(&case["expect"]);
            let name = format!("{} in {} pieces", case["case"], pieces.len());
            assert_eq!(found, wanted, "{name}");
        }
    }
    assert!(cases > 15, "the fixture holds cases");
}

fn found(limits: &Limits, pieces: &[&[u8]], end: bool) -> Value {
    let outcome = play(limits, pieces, end);
    json!({
        "requests": outcome.requests,
        "answers": outcome.answers,
        "gone": outcome.gone,
        "ends": outcome.ended,
    })
}

/// What is expected, with what may be left out put in.
fn wanted(expect: &Value) -> Value {
    let answers = expect["answers"].as_array().expect("answers");
    let answers = answers.iter().map(|answer| match answer.as_array() {
        Some(pair) => json!([pair[0], text_of(&pair[1])]),
        None => panic!("an answer is a pair"),
    });
    let requests = expect["requests"].as_array().cloned().unwrap_or_default();
    let requests = requests
        .iter()
        .map(|request| json!([request[0], request[1], text_of(&request[2])]));
    json!({
        "requests": requests.collect::<Vec<_>>(),
        "answers": answers.collect::<Vec<_>>(),
        "gone": expect["gone"].as_u64().unwrap_or(0),
        "ends": expect["ends"] == true,
    })
}

fn text_of(value: &Value) -> String {
    String::from_utf8(bytes_of(value)).expect("text")
}

/// A text, or a list of texts, bytes in hexadecimal digits and repeated texts.
fn bytes_of(value: &Value) -> Vec<u8> {
    if let Some(pieces) = value.as_array() {
        return pieces.iter().flat_map(bytes_of).collect();
    }
    if let Some(hex) = value["hex"].as_str() {
        let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex digits");
        return (0..hex.len()).step_by(2).map(byte).collect();
    }
    let text = |value: &Value| {
        value
            .as_str()
            .unwrap_or_else(|| panic!("no text: {value}"))
            .to_owned()
    };
    match value["times"].as_u64() {
        Some(times) => text(&value["repeat"]).repeat(usize::try_from(times).expect("small")),
        None => text(value),
    }
    .into_bytes()
}

/// Whole, by one, by seven, at seeded places.
fn cuts(bytes: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut all = vec![
        vec![bytes],
        bytes.chunks(1).collect(),
        bytes.chunks(7).collect(),
    ];
    let mut random = Seeded::new(9112);
    for _ in 0..20 {
        let mut rest = bytes;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let at = 1 + usize::try_from(random.below(60)).expect("small");
            let (piece, after) = rest.split_at(at.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        all.push(pieces);
    }
    all
}
