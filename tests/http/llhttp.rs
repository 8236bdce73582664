//! The messages of llhttp's own tests, in its strict mode: where our verdict differs, it is known why.
//!
//! llhttp does not ask for a Host; requests of HTTP/1.1 without one get one here. It reports what it
//! finds while it reads, so an error behind a whole message counts as one.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drawspan::codec::http_body::{BodyDecoder, BodyError, BodyLimits, BodyPiece, Framing};
use drawspan::codec::http1::{HeadLimits, Progress, ResponseReader};
use drawspan::limits::Limits;

use crate::player::play;

/// One message of the corpus.
struct Message {
    /// File and headings.
    name: String,
    /// `request`, `response-lenient-headers` and the like.
    kind: String,
    bytes: Vec<u8>,
    log: String,
}

impl Message {
    fn whole(&self) -> usize {
        self.log
            .lines()
            .filter(|line| line.ends_with("message complete"))
            .count()
    }

    /// What llhttp calls an error; a pause is none.
    fn fault(&self) -> bool {
        let mut lines = self.log.lines().filter(|line| line.contains("error code="));
        lines.any(|line| !line.contains("reason=\"Pause") && !line.contains("pause\""))
    }
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpora/llhttp/test")
}

fn messages() -> Vec<Message> {
    let mut all = Vec::new();
    for folder in ["request", "response"] {
        let mut files: Vec<_> = std::fs::read_dir(corpus().join(folder))
            .expect("the corpus")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(&file).expect("text");
            let stem = file
                .file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            all.extend(parse(&format!("{folder}/{stem}"), &text));
        }
    }
    all
}

/// Headings, then for each message its kind in a comment, an `http` block and a `log` block.
fn parse(file: &str, text: &str) -> Vec<Message> {
    let mut all = Vec::new();
    let mut headings: BTreeMap<usize, &str> = BTreeMap::new();
    let mut kind = String::new();
    let mut bytes = Vec::new();
    let mut lines = text.lines();
    let block = |lines: &mut std::str::Lines<'_>| {
        let lines: Vec<&str> = lines.take_while(|line| *line != "```").collect();
        lines.join("\n")
    };
    while let Some(line) = lines.next() {
        let level = line.bytes().take_while(|b| *b == b'#').count();
        if level > 0 {
            headings.retain(|known, _| *known < level);
            headings.insert(level, line[level..].trim());
        } else if let Some(meta) = line.strip_prefix("<!-- meta=") {
            let kind_of = meta
                .split("\"type\":")
                .nth(1)
                .and_then(|rest| rest.split('"').nth(1));
            if let Some(found) = kind_of {
                kind = found.to_owned();
            }
        } else if line == "```http" {
            bytes = unescape(&block(&mut lines));
        } else if line == "```log" {
            let names: Vec<&str> = headings.values().copied().collect();
            all.push(Message {
                name: format!("{file}: {}", names.join(", ")),
                kind: kind.clone(),
                bytes: std::mem::take(&mut bytes),
                log: block(&mut lines),
            });
        }
    }
    all
}

/// Lines end in CRLF; a backslash at the end of one joins it to the next; `\r`, `\n`, `\t`, `\f` and
/// `\x41` stand for bytes.
fn unescape(block: &str) -> Vec<u8> {
    let joined = block.replace("\\\n", "").replace('\n', "\r\n");
    let mut bytes = Vec::new();
    let mut rest = joined.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        let escape = if *first == b'\\' { after.first() } else { None };
        let byte = match escape {
            Some(b'r') => b'\r',
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'f') => 0x0c,
            Some(b'x') => {
                let digits = std::str::from_utf8(&after[1..3]).expect("digits");
                rest = &after[3..];
                bytes.push(u8::from_str_radix(digits, 16).expect("digits"));
                continue;
            }
            _ => {
                bytes.push(*first);
                continue;
            }
        };
        rest = &after[1..];
        bytes.push(byte);
    }
    bytes
}

/// Whole messages and whether there is a fault.
type Verdict = (usize, bool);

fn ours_of_requests(bytes: &[u8]) -> Verdict {
    let mut whole = bytes.to_vec();
    let mut from = 0;
    loop {
        let outcome = play(&Limits::DEFAULT, &[&whole], false);
        let last = outcome.answers.last();
        let faulty = last.is_some_and(|(status, _)| *status >= 400);
        let hostless = last.is_some_and(|(_, text)| text == "request has no Host\n");
        if !hostless {
            return (outcome.requests.len(), faulty);
        }
        // Behind the request line that is the first one without a Host.
        let line_end = |at: usize| {
            let found = whole[at..].windows(2).position(|pair| pair == b"\r\n");
            at + found.expect("a line end") + 2
        };
        let mut at = from;
        while !whole[at..line_end(at)]
            .windows(5)
            .any(|five| five == b"HTTP/")
            || whole[line_end(at)..].starts_with(b"Host: llhttp")
        {
            at = line_end(at);
        }
        from = line_end(at);
        whole.splice(from..from, *b"Host: llhttp\r\n");
    }
}

fn ours_of_responses(bytes: &[u8]) -> Verdict {
    let limits = BodyLimits::from(&Limits::DEFAULT);
    let mut reader = ResponseReader::new(HeadLimits::from(&Limits::DEFAULT));
    let mut rest = bytes;
    let mut whole = 0;
    while !rest.is_empty() {
        let head = match reader.read(rest) {
            Ok(Progress::NeedMore) => return (whole, false),
            Ok(Progress::Done { head, used }) => {
                rest = &rest[used..];
                head
            }
            Err(_) => return (whole, true),
        };
        let fields = head.fields.iter();
        let Ok(framing) = Framing::of_response(head.status, head.minor, false, fields) else {
            return (whole, true);
        };
        let decoder = BodyDecoder::new(framing, limits);
        let read = decoder.and_then(|mut decoder| skip(&mut decoder, &mut rest));
        match read {
            Ok(true) => whole += 1,
            Ok(false) => return (whole, false),
            Err(_) => return (whole, true),
        }
    }
    (whole, false)
}

/// Reads a body; false when it is not whole.
fn skip(decoder: &mut BodyDecoder, rest: &mut &[u8]) -> Result<bool, BodyError> {
    loop {
        match decoder.next(rest)? {
            BodyPiece::Data(_) => {}
            BodyPiece::NeedMore => return Ok(false),
            BodyPiece::End => return Ok(true),
        }
    }
}

fn compare(folder: &str, ours_of: fn(&[u8]) -> Verdict, known: &[(&str, &str)]) {
    let mut known: BTreeMap<&str, &str> = known.iter().copied().collect();
    let mut unexplained = Vec::new();
    let (mut same, mut different) = (0, 0);
    for message in messages() {
        let strict = message.kind == folder || message.kind == format!("{folder}-finish");
        if !strict || !message.name.starts_with(folder) {
            continue;
        }
        let ours = ours_of(&message.bytes);
        let theirs = (message.whole(), message.fault());
        if ours == theirs {
            same += 1;
        } else if known.remove(&*message.name).is_some() {
            different += 1;
        } else {
            unexplained.push(format!(
                "{}: ours {ours:?}, theirs {theirs:?}\n{}",
                message.name,
                String::from_utf8_lossy(&message.bytes)
            ));
        }
    }
    assert!(
        unexplained.is_empty(),
        "{}\n{}",
        unexplained.len(),
        unexplained.join("\n---\n")
    );
    assert!(known.is_empty(), "these do not differ any more: {known:?}");
    assert!(same > 50, "{same} alike, {different} different");
}

#[test]
fn requests() {
    compare("request", ours_of_requests, REQUESTS);
}

#[test]
fn responses() {
    compare("response", ours_of_responses, RESPONSES);
}

const BEHIND_THE_LAST: &str = "what follows the last request is not read, neither good nor bad";
const HEAD_NOT_WHOLE: &str = "fields are judged when the head is whole, and this one is not";
const METHODS: &str = "methods are the owner's business; it answers 405";
const OTHER_PROTOCOLS: &str = "RTSP and ICE are not HTTP";
const CODINGS: &str = "501: we decode no other coding, and without that there is no body";
const HOST: &str = "a Host that is no name, whatever browsers took it for";
const SKIPS: &str = "llhttp is told that there is no body; we go by the length";

/// Requests that we judge otherwise, and why.
const REQUESTS: &[(&str, &str)] = &[
    (
        "request/connection: `keep-alive`, No restart when keep-alive is off (1.0)",
        BEHIND_THE_LAST,
    ),
    (
        "request/connection: `close`, CRLF between requests, explicit `close`",
        BEHIND_THE_LAST,
    ),
    (
        "request/connection: `close`, CRLF between requests, explicit `close` followed by tab",
        BEHIND_THE_LAST,
    ),
    (
        "request/content-length: Error on `Content-Length` overflow",
        HEAD_NOT_WHOLE,
    ),
    (
        "request/content-length: Error on duplicate `Content-Length`",
        HEAD_NOT_WHOLE,
    ),
    (
        "request/content-length: Missing CRLF-CRLF before body",
        HEAD_NOT_WHOLE,
    ),
    ("request/invalid: Invalid HTTP version", HEAD_NOT_WHOLE),
    (
        "request/invalid: Invalid space after start line",
        HEAD_NOT_WHOLE,
    ),
    (
        "request/content-length: Content-Length reset when no body is received",
        SKIPS,
    ),
    (
        "request/invalid: HTTP protocol and ANNOUNCE method",
        METHODS,
    ),
    ("request/invalid: Invalid method", METHODS),
    (
        "request/method: PRI request HTTP2",
        "the preface in a request of HTTP/1.1 is a request; what follows it is none",
    ),
    ("request/method: SOURCE request with ICE", OTHER_PROTOCOLS),
    ("request/method: OPTIONS request with RTSP", OTHER_PROTOCOLS),
    (
        "request/method: ANNOUNCE request with RTSP",
        OTHER_PROTOCOLS,
    ),
    ("request/sample: curl GET", HOST),
    ("request/sample: Firefox GET", HOST),
    ("request/sample: No HTTP version", "HTTP/0.9 is not spoken"),
    (
        "request/transfer-encoding: POST with `chunked` as last transfer-encoding",
        CODINGS,
    ),
    (
        "request/transfer-encoding: POST with `chunked` as last transfer-encoding (multiple headers)",
        CODINGS,
    ),
];

const UPGRADE: &str = "nobody asked for an upgrade: what follows 101 is read as a response";
const EMPTY_LINE: &str = "an empty line before a response is no response (RFC 9112 §2.2 lets servers \
                          skip it, not clients)";
const CLOSE_CODING: &str = "a coding that we do not decode is refused, not read until the end";

/// Responses that we judge otherwise, and why.
const RESPONSES: &[(&str, &str)] = &[
    (
        "response/connection: HTTP/1.1 with keep-alive disabled and 204 status",
        "whether a connection may go on is for the caller of the codec to see",
    ),
    (
        "response/connection: HTTP 101 response with Upgrade and Content-Length header",
        UPGRADE,
    ),
    (
        "response/connection: HTTP 101 response with Upgrade and Transfer-Encoding header",
        UPGRADE,
    ),
    (
        "response/connection: HTTP 304 with Content-Length",
        EMPTY_LINE,
    ),
    ("response/connection: HTTP 100 first, then 400", EMPTY_LINE),
    (
        "response/pipelining: Should parse multiple events",
        EMPTY_LINE,
    ),
    ("response/sample: Response starting with CRLF", EMPTY_LINE),
    (
        "response/content-length: Content-Length reset when no body is received",
        SKIPS,
    ),
    (
        "response/invalid: Invalid space after start line",
        HEAD_NOT_WHOLE,
    ),
    ("response/sample: RTSP response", OTHER_PROTOCOLS),
    ("response/sample: ICE response", OTHER_PROTOCOLS),
    (
        "response/sample: HTTP version 0.9",
        "HTTP/0.9 is not spoken",
    ),
    (
        "response/transfer-encoding: `chunked` before other transfer-encoding",
        CLOSE_CODING,
    ),
    (
        "response/transfer-encoding: multiple transfer-encoding where chunked is not the last one",
        CLOSE_CODING,
    ),
    (
        "response/transfer-encoding: `chunkedchunked` transfer-encoding does not enable chunked enconding",
        CLOSE_CODING,
    ),
];
