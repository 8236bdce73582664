//! The fixtures, whole and in pieces; what is written is read back.

use serde_json::{Value, json};

use super::*;
use crate::entropy::Seeded;

fn lines(fixture: &str) -> Vec<Value> {
    let parsed = fixture.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    });
    parsed.collect()
}

#[test]
fn fields_tell_where_a_body_ends() {
    let cases = lines(include_str!(
        "../../../protocol-fixtures/codec/http_body/framing.jsonl"
    ));
    for case in &cases[1..] {
        let fields: Vec<(String, String)> =
            serde_json::from_value(case["fields"].clone()).expect("pairs");
        let fields = fields.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
        let minor = |key: &str| u8::try_from(case[key].as_u64().expect(key)).expect(key);
        let found = if let Some(status) = case["response"].as_u64() {
            let to_head = case["to_head"] == true;
            let status = u16::try_from(status).expect("a status");
            Framing::of_response(status, minor("minor"), to_head, fields)
        } else {
            Framing::of_request(minor("request"), fields)
        };
        let found = match found {
            Ok(Framing::Length(length)) => json!({ "length": length }),
            Ok(Framing::Chunked) => json!("chunked"),
            Ok(Framing::UntilClose) => json!("until close"),
            Err(error) => json!({ "status": error.status(), "error": error.to_string() }),
        };
        assert_eq!(found, case["expect"], "{}", case["case"]);
    }
    assert!(cases.len() > 50);
}

/// Decodes a body given in pieces: in the words of a fixture.
fn decode(framing: Framing, limits: BodyLimits, bytes: &[u8], cuts: &[usize]) -> Value {
    let fault = |error: BodyError| json!({ "status": error.status(), "error": error.to_string() });
    let mut decoder = match BodyDecoder::new(framing, limits) {
        Ok(decoder) => decoder,
        Err(error) => return fault(error),
    };
    let mut body = Vec::new();
    let mut from = 0;
    for to in cuts.iter().copied().chain([bytes.len()]) {
        let mut input = &bytes[from..to];
        loop {
            match decoder.next(&mut input) {
                Ok(BodyPiece::Data(data)) => {
                    assert!(!data.is_empty());
                    body.extend_from_slice(data);
                }
                Ok(BodyPiece::NeedMore) => break,
                Ok(BodyPiece::End) => {
                    assert_eq!(decoder.finish(), Ok(()));
                    let rest = &bytes[to - input.len()..];
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    return json!({ "body": text(&body), "rest": text(rest) });
                }
                Err(error) => return fault(error),
            }
        }
        assert!(input.is_empty(), "all is taken");
        from = to;
    }
    assert_eq!(
        decoder.finish().is_ok(),
        framing == Framing::UntilClose,
        "the wire ends too early"
    );
    json!("more")
}

/// Whole, byte by byte, and at seeded places.
fn all_cuts(len: usize, random: &mut Seeded) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new(), (1..len).collect()];
    for _ in 0..20 {
        let cut =
            |random: &mut Seeded| usize::try_from(random.below(len as u64 + 1)).expect("small");
        let mut cuts = vec![cut(random), cut(random), cut(random)];
        cuts.sort_unstable();
        all.push(cuts);
    }
    all
}

#[test]
fn chunks_come_apart_however_they_are_cut() {
    let cases = lines(include_str!(
        "../../../protocol-fixtures/codec/http_body/chunked.jsonl"
    ));
    let number = |key: &str| usize::try_from(cases[0][key].as_u64().expect(key)).expect(key);
    let limits = BodyLimits {
        bytes_max: number("bytes_max"),
        extension_bytes_max: number("extension_bytes_max"),
        trailer_bytes_max: number("trailer_bytes_max"),
    };
    let mut random = Seeded::new(9112);
    for case in &cases[1..] {
        let bytes = case["bytes"].as_str().expect("bytes").as_bytes();
        for cuts in all_cuts(bytes.len(), &mut random) {
            let found = decode(Framing::Chunked, limits, bytes, &cuts);
            assert_eq!(found, case["expect"], "{} cut at {cuts:?}", case["case"]);
        }
    }
    assert!(cases.len() > 60);
}

const LIMITS: BodyLimits = BodyLimits {
    bytes_max: 5,
    extension_bytes_max: 4,
    trailer_bytes_max: 4,
};

#[test]
fn a_declared_length_is_kept_to_and_bounded() {
    for cuts in [vec![], vec![1, 2, 3, 4, 5, 6]] {
        let found = decode(Framing::Length(4), LIMITS, b"abcdef", &cuts);
        assert_eq!(found, json!({ "body": "abcd", "rest": "ef" }));
        let found = decode(Framing::Length(0), LIMITS, b"abcdef", &cuts);
        assert_eq!(found, json!({ "body": "", "rest": "abcdef" }));
    }
    assert_eq!(decode(Framing::Length(4), LIMITS, b"abc", &[]), "more");
    let too_long = json!({ "status": 413, "error": "body is longer than 5 bytes" });
    for (length, fits) in [(4, true), (5, true), (6, false), (u64::MAX, false)] {
        let found = decode(Framing::Length(length), LIMITS, b"", &[]);
        assert_eq!(found != too_long, fits, "{length}");
    }
}

#[test]
fn a_body_that_ends_with_its_wire_is_bounded_too() {
    let too_long = json!({ "status": 413, "error": "body is longer than 5 bytes" });
    for (bytes, fits) in [(&b"abcd"[..], true), (b"abcde", true), (b"abcdef", false)] {
        for cuts in [vec![], (1..bytes.len()).collect()] {
            let found = decode(Framing::UntilClose, LIMITS, bytes, &cuts);
            assert_eq!(found != too_long, fits, "{bytes:?}");
        }
    }
}

#[test]
fn chunks_that_are_written_are_read_back() {
    let mut random = Seeded::new(7);
    let limits = BodyLimits {
        bytes_max: 100_000,
        ..LIMITS
    };
    for _ in 0..100 {
        let mut written = Vec::new();
        let mut content = String::new();
        for _ in 0..random.below(5) {
            let part = "x\r\n0".repeat(usize::try_from(random.below(3_000)).expect("small"));
            write_chunk(&mut written, part.as_bytes());
            content.push_str(&part);
        }
        written.extend_from_slice(CHUNKED_END);
        for cuts in all_cuts(written.len(), &mut random) {
            let found = decode(Framing::Chunked, limits, &written, &cuts);
            assert_eq!(found, json!({ "body": content, "rest": "" }));
        }
    }
}

#[test]
fn sizes_and_lengths_are_filled_in() {
    let mut out = b"before".to_vec();
    let mark = begin_chunk(&mut out);
    end_chunk(&mut out, mark);
    assert_eq!(out, b"before", "an empty chunk would end the body");
    let mark = begin_chunk(&mut out);
    out.resize(out.len() + 0x1a2b, b'x');
    end_chunk(&mut out, mark);
    assert!(out.starts_with(b"before00001a2b\r\nx") && out.ends_with(b"x\r\n"));
    for (len, digits) in [(0, "         0"), (9, "         9"), (12_345, "     12345")] {
        let mut out = b"before".to_vec();
        let field = out.len();
        out.extend_from_slice(LENGTH_FIELD);
        let body = out.len();
        out.resize(out.len() + len, b'x');
        patch_length(&mut out, LengthMark { field, body });
        let head = format!("beforeContent-Length: {digits}\r\n");
        assert_eq!(String::from_utf8_lossy(&out[..body]), head);
    }
    for value in [0, 9, 10, 1_234_567, u64::MAX] {
        let mut out = Vec::new();
        append_decimal(&mut out, value);
        assert_eq!(String::from_utf8(out).expect("digits"), value.to_string());
    }
}
