use serde_json::{Value, json};

use super::*;
use crate::entropy::Seeded;

const CLIENT: Role = Role::Client { mask_seed: [7; 16] };

/// What a connection made of some bytes.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    events: Vec<Value>,
    replies: Vec<String>,
}

impl Heard {
    fn feed(&mut self, socket: &mut WebSocket, out: &mut OutBuf, bytes: &[u8]) {
        socket.feed(bytes, out);
        while let Some(event) = socket.poll(out) {
            self.events.push(match event {
                WsEvent::Text(text) => json!({ "text": text }),
                WsEvent::Close { code, reason } => json!({ "close": code, "reason": reason }),
                WsEvent::Violation(error) => json!({ "violation": error.to_string() }),
            });
        }
    }
}

/// Frames that we wrote, unmasked and in the words of a fixture.
fn frames(mut bytes: &[u8], masked: bool) -> Vec<String> {
    let mut shown = Vec::new();
    while let [first, second, ..] = bytes {
        assert_eq!(*second & 0x80 != 0, masked, "only a client masks");
        let (len, mut at) = match second & 0x7f {
            126 => (usize::from(u16::from_be_bytes([bytes[2], bytes[3]])), 4),
            127 => panic!("no test writes as much"),
            len => (usize::from(len), 2),
        };
        let mut payload = bytes[at + if masked { 4 } else { 0 }..][..len].to_vec();
        if masked {
            let mask = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            payload
                .iter_mut()
                .enumerate()
                .for_each(|(i, b)| *b ^= mask[i % 4]);
            at += 4;
        }
        bytes = &bytes[at + len..];
        let hex: String = payload.iter().map(|b| format!("{b:02x}")).collect();
        shown.push(match (first, payload.as_slice()) {
            (0x81, text) => format!("text {}", String::from_utf8_lossy(text)),
            (0x88, [a, b, reason @ ..]) => {
                let reason = String::from_utf8_lossy(reason);
                format!("close {} {reason}", u16::from_be_bytes([*a, *b]))
                    .trim_end()
                    .to_owned()
            }
            (0x88, []) => "close".to_owned(),
            (0x89, _) => format!("ping {hex}"),
            (0x8a, _) => format!("pong {hex}"),
            other => panic!("an odd frame {other:?}"),
        });
    }
    assert!(bytes.is_empty(), "half a frame was written");
    shown
}

fn replay_at(role: &Role, max: usize, bytes: &[u8], cuts: &[usize]) -> Heard {
    let mut socket = WebSocket::new(role.clone(), max);
    let mut out = OutBuf::new();
    let mut heard = Heard::default();
    let mut from = 0;
    for to in cuts.iter().copied().chain([bytes.len()]) {
        heard.feed(&mut socket, &mut out, &bytes[from..to]);
        from = to;
    }
    heard.replies = frames(out.pending(), *role != Role::Server);
    heard
}

/// Replays every case whole, byte by byte and at seeded cuts.
fn replay(fixture: &str) {
    let mut lines = fixture.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    });
    let header = lines.next().expect("a header line");
    let role = if header["role"] == "client" {
        CLIENT
    } else {
        Role::Server
    };
    let max = usize::try_from(header["message_bytes_max"].as_u64().expect("a limit"));
    let max = max.expect("small");
    let mut random = Seeded::new(5);
    let mut cases = 0;
    for case in lines {
        let hex = case["hex"].as_str().expect("hex");
        let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex digits");
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let texts = |key: &str| case[key].as_array().cloned().expect(key);
        let expect = Heard {
            events: texts("events"),
            replies: serde_json::from_value(Value::Array(texts("replies"))).expect("texts"),
        };
        let mut all_cuts = vec![Vec::new(), (1..bytes.len()).collect()];
        for _ in 0..20 {
            let cut = |_| usize::try_from(random.below(bytes.len() as u64 + 1)).expect("small");
            let mut cuts: Vec<usize> = (0..3).map(cut).collect();
            cuts.sort_unstable();
            all_cuts.push(cuts);
        }
        for cuts in all_cuts {
            let heard = replay_at(&role, max, &bytes, &cuts);
            assert_eq!(heard, expect, "{} cut at {cuts:?}", case["case"]);
        }
        cases += 1;
    }
    assert!(cases > 10, "the fixture holds cases");
}

#[test]
fn frames_from_a_server() {
    replay(include_str!(
        "../../../protocol-fixtures/codec/websocket/frames_from_a_server.jsonl"
    ));
}

#[test]
fn frames_from_a_client() {
    replay(include_str!(
        "../../../protocol-fixtures/codec/websocket/frames_from_a_client.jsonl"
    ));
}

/// A text of `len` bytes as a server sends it, in frames of at most `part`.
fn text_frames(len: usize, part: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut left = len;
    let mut opcode = 1;
    loop {
        let now = left.min(part);
        left -= now;
        let first = opcode | if left == 0 { 0x80 } else { 0 };
        bytes.extend_from_slice(&[first, 127]);
        bytes.extend_from_slice(&(now as u64).to_be_bytes());
        bytes.resize(bytes.len() + now, b'x');
        opcode = 0;
        if left == 0 {
            return bytes;
        }
    }
}

#[test]
fn messages_fit_their_limit_and_no_more() {
    for (len, fits) in [(999, true), (1000, true), (1001, false)] {
        for part in [len, 400] {
            let heard = replay_at(&CLIENT, 1000, &text_frames(len, part), &[]);
            assert_eq!(heard.replies.is_empty(), fits, "{len} in parts of {part}");
            let refused = json!({"violation": "message too large: 1001 bytes, limit 1000"});
            assert_eq!(heard.events == [refused], !fits, "{len} in parts of {part}");
        }
    }
}

#[test]
fn a_raised_limit_holds_for_what_arrived_together() {
    let mut socket = WebSocket::new(CLIENT, 100);
    let mut out = OutBuf::new();
    let bytes = [text_frames(10, 10), text_frames(200, 200)].concat();
    socket.feed(&bytes, &mut out);
    assert_eq!(socket.poll(&mut out), Some(WsEvent::Text("x".repeat(10))));
    socket.set_message_bytes_max(200);
    assert_eq!(socket.poll(&mut out), Some(WsEvent::Text("x".repeat(200))));
    assert_eq!(socket.poll(&mut out), None);
    socket.set_message_bytes_max(100);
    socket.feed(&text_frames(101, 101), &mut out);
    assert!(matches!(socket.poll(&mut out), Some(WsEvent::Violation(_))));
}

#[test]
fn pings_cost_a_peer_that_does_not_read_a_bounded_backlog() {
    let mut socket = WebSocket::new(CLIENT, 1000);
    let mut out = OutBuf::new();
    for round in 0..10_000_u32 {
        let mut ping = vec![0x89, 125];
        ping.resize(2 + 125, 0);
        ping[2..6].copy_from_slice(&round.to_be_bytes());
        socket.feed(&ping, &mut out);
        assert_eq!(socket.poll(&mut out), None);
        assert!(
            out.len() < PONG_BACKLOG_BYTES_MAX + 131,
            "round {round}: {}",
            out.len()
        );
    }
    out.clear();
    socket.flush(&mut out);
    let latest = frames(out.pending(), true);
    assert_eq!(latest.len(), 1);
    assert!(
        latest[0].starts_with("pong 0000270f"),
        "the last ping is answered: {latest:?}"
    );
    out.clear();
    socket.flush(&mut out);
    assert!(out.is_empty(), "once");
}

#[test]
fn memory_of_a_big_message_is_given_back() {
    let big = 4 * 1024 * 1024;
    let mut out = OutBuf::new();
    for part in [big, 100_000] {
        let mut socket = WebSocket::new(CLIENT, big);
        // A mark on this reader, which its successor does not carry.
        socket
            .reader
            .set_config(|config| config.read_buffer_size = 1);
        let mut texts = 0;
        let mut bytes = text_frames(big, part);
        bytes.extend_from_slice(&text_frames(5, 5));
        for chunk in bytes.chunks(256 * 1024) {
            assert_eq!(
                socket.reader.get_config().read_buffer_size,
                1,
                "still reading"
            );
            socket.feed(chunk, &mut out);
            while let Some(event) = socket.poll(&mut out) {
                assert!(matches!(event, WsEvent::Text(_)), "{event:?}");
                texts += 1;
            }
        }
        assert_eq!(texts, 2);
        let marked = socket.reader.get_config().read_buffer_size == 1;
        assert!(!marked, "the reader was replaced, parts of {part}");
    }
}

#[test]
fn memory_of_a_burst_of_messages_is_given_back() {
    let mut socket = WebSocket::new(CLIENT, 100);
    let mut out = OutBuf::new();
    let burst = text_frames(20, 20).repeat(8_000);
    socket.feed(&burst, &mut out);
    assert!(socket.inbox.capacity() > KEEP_BYTES);
    let texts = std::iter::from_fn(|| socket.poll(&mut out)).count();
    assert_eq!(texts, 8_000);
    assert!(socket.inbox.capacity() <= KEEP_BYTES);
}

#[test]
fn bytes_fed_before_a_poll_wait_their_turn() {
    let mut socket = WebSocket::new(CLIENT, 100);
    let mut out = OutBuf::new();
    let poll = |socket: &mut WebSocket, out: &mut OutBuf| match socket.poll(out) {
        Some(WsEvent::Text(text)) => text.len(),
        other => panic!("{other:?}"),
    };
    socket.feed(&[text_frames(1, 9), text_frames(2, 9)].concat(), &mut out);
    socket.feed(&text_frames(3, 9)[..5], &mut out);
    assert_eq!(poll(&mut socket, &mut out), 1);
    socket.feed(&text_frames(3, 9)[5..], &mut out);
    socket.feed(&text_frames(4, 9), &mut out);
    for len in [2, 3, 4] {
        assert_eq!(poll(&mut socket, &mut out), len);
    }
    assert_eq!(socket.poll(&mut out), None);
}

#[test]
fn frames_are_masked_from_the_seed_and_each_by_its_own_mask() {
    let write = |mask_seed| {
        let mut socket = WebSocket::new(Role::Client { mask_seed }, 10);
        let mut out = OutBuf::new();
        socket.send_text(&mut out, "secret");
        socket.send_text(&mut out, "secret");
        out.pending().to_vec()
    };
    let bytes = write([1; 16]);
    assert_eq!(frames(&bytes, true), ["text secret", "text secret"]);
    assert_eq!(bytes, write([1; 16]), "same seed, same bytes");
    assert_ne!(bytes, write([2; 16]));
    let (first, second) = bytes.split_at(bytes.len() / 2);
    assert_ne!(first[2..6], second[2..6], "a mask is not used twice");
    for len in 0..9 {
        let mut text = vec![0; len];
        apply_mask(&mut text, [1, 2, 3, 4]);
        assert_eq!(text, [1, 2, 3, 4, 1, 2, 3, 4, 1][..len]);
    }
}

#[test]
fn a_close_is_sent_once_and_last() {
    let mut socket = WebSocket::new(Role::Server, 10);
    let mut out = OutBuf::new();
    let long = "ü".repeat(100);
    socket.close(&mut out, Some(1008), &long);
    socket.close(&mut out, Some(1000), "");
    socket.send_text(&mut out, "late");
    socket.ping(&mut out);
    let masked_ping = [0x89, 0x80, 0, 0, 0, 0];
    socket.feed(&masked_ping, &mut out);
    assert_eq!(socket.poll(&mut out), None);
    let cut = format!("close 1008 {}", "ü".repeat(61));
    assert_eq!(frames(out.pending(), false), [cut]);

    let mut held = WebSocket::new(Role::Server, 10);
    let mut full = OutBuf::new();
    full.tail().resize(PONG_BACKLOG_BYTES_MAX, 0);
    held.feed(&masked_ping, &mut full);
    held.close(&mut full, None, "");
    full.clear();
    held.flush(&mut full);
    assert!(full.is_empty(), "no pong behind a close frame");

    let masked_text = [0x81, 0x81, 0, 0, 0, 0, b'a'];
    socket.feed(&masked_text, &mut out);
    assert_eq!(socket.poll(&mut out), Some(WsEvent::Text("a".to_owned())));
    let masked_close = [0x88, 0x80, 0, 0, 0, 0];
    socket.feed(&masked_close, &mut out);
    let close = WsEvent::Close {
        code: None,
        reason: String::new(),
    };
    assert_eq!(socket.poll(&mut out), Some(close));
    assert_eq!(
        frames(out.pending(), false).len(),
        1,
        "no second close frame"
    );
}

#[test]
fn a_close_without_a_code_that_may_be_sent_is_empty() {
    for code in [None, Some(1005), Some(1006), Some(999)] {
        let mut out = OutBuf::new();
        WebSocket::new(Role::Server, 10).close(&mut out, code, "why");
        assert_eq!(frames(out.pending(), false), ["close"], "{code:?}");
    }
}
