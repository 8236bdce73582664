//! WebSocket connections from end to end in memory, on virtual time; byte strings of strangers.

use std::path::Path;

use drawspan::clock::{Now, Uptime};
use drawspan::codec::outbuf::OutBuf;
use drawspan::codec::websocket::{PONG_BACKLOG_BYTES_MAX, Role, WebSocket, WsEvent};
use drawspan::entropy::Seeded;
use drawspan::ids::WireId;
use drawspan::limits::Limits;
use drawspan::link::websocket::{
    CLOSE_TIMEOUT, CloseReason, ConnectSpec, WebSocketLink, WsLinkEvent,
};
use drawspan::link::{FaultKind, IoEvent, IoRequest, OpenSpec, TlsSpec};

const WIRE: WireId = WireId(1);

fn at(ms: u64) -> Now {
    Now {
        up: Uptime::from_millis(ms),
        unix_ms: 0,
    }
}

fn spec(host: &str, port: u16, tls: bool) -> ConnectSpec {
    ConnectSpec {
        host: host.to_owned(),
        port,
        path: "/gateway?x=1".to_owned(),
        tls: tls.then(TlsSpec::default),
    }
}

/// One end, driven as a loop would, with its wire in memory.
struct End {
    link: WebSocketLink,
    events: Vec<WsLinkEvent>,
    opens: Vec<OpenSpec>,
    /// Bytes on their way to the other end.
    sent: Vec<u8>,
    ended_write: bool,
    gone: bool,
}

impl End {
    fn new(link: WebSocketLink) -> Self {
        let mut end = Self {
            link,
            events: Vec::new(),
            opens: Vec::new(),
            sent: Vec::new(),
            ended_write: false,
            gone: false,
        };
        end.drain();
        end
    }

    fn client(spec: ConnectSpec, limits: &Limits) -> Self {
        let mut entropy = Seeded::new(1);
        Self::new(WebSocketLink::client(
            WIRE,
            spec,
            limits,
            &mut entropy,
            at(0),
        ))
    }

    fn server(limits: &Limits) -> Self {
        Self::new(WebSocketLink::server(WIRE, limits, at(0)))
    }

    fn hear(&mut self, now: Now, event: IoEvent<'_>) {
        if !self.gone {
            self.link.handle_io(now, event);
            self.drain();
        }
    }

    fn drain(&mut self) {
        while let Some(event) = self.link.poll_event() {
            self.events.push(event);
        }
        while let Some(request) = self.link.poll_io() {
            match request {
                IoRequest::Open(_, spec) => self.opens.push(spec),
                IoRequest::Flush(_) => self.write(),
                IoRequest::CloseWrite(_) => {
                    self.write();
                    self.ended_write = true;
                }
                IoRequest::Close(_) => {
                    self.ended_write = true;
                    self.gone = true;
                }
                other @ (IoRequest::PauseReads(..)
                | IoRequest::Finish(_)
                | IoRequest::Signal(..)
                | IoRequest::Append(_)) => panic!("asked for {other:?}"),
            }
        }
        assert!(
            self.gone || self.link.outgoing().is_empty(),
            "bytes wait without a flush"
        );
    }

    fn write(&mut self) {
        let out = self.link.outgoing();
        self.sent.extend_from_slice(out.pending());
        out.advance(out.len());
    }

    fn send(&mut self, text: &str) {
        self.link.send_text(text).expect("room");
        self.drain();
    }

    fn close(&mut self, now: Now, code: Option<u16>, reason: &str) {
        self.link.close(now, code, reason);
        self.drain();
    }

    fn texts(&self) -> Vec<&str> {
        self.events
            .iter()
            .filter_map(|event| match event {
                WsLinkEvent::Text(text) => Some(text.as_str()),
                WsLinkEvent::Up | WsLinkEvent::Closed(_) => None,
            })
            .collect()
    }

    fn closed(&self) -> &CloseReason {
        let closes = self
            .events
            .iter()
            .filter(|e| matches!(e, WsLinkEvent::Closed(_)));
        assert_eq!(closes.count(), 1, "closed once: {:?}", self.events);
        match self.events.last() {
            Some(WsLinkEvent::Closed(reason)) => reason,
            other => panic!("closed last, not {other:?}"),
        }
    }
}

/// Carries bytes and ends both ways until nothing moves; `cut` says how many bytes go at once.
fn settle(now: Now, a: &mut End, b: &mut End, mut cut: impl FnMut(usize) -> usize) {
    loop {
        let moved = carry(now, a, b, &mut cut) | carry(now, b, a, &mut cut);
        if !moved {
            return;
        }
    }
}

fn carry(now: Now, from: &mut End, to: &mut End, cut: &mut impl FnMut(usize) -> usize) -> bool {
    let bytes = std::mem::take(&mut from.sent);
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let (now_sent, later) = rest.split_at(cut(rest.len()).clamp(1, rest.len()));
        to.hear(now, IoEvent::Bytes(now_sent));
        rest = later;
    }
    if !bytes.is_empty() {
        from.hear(now, IoEvent::Drained);
    }
    let ended = std::mem::take(&mut from.ended_write);
    if ended {
        to.hear(now, IoEvent::Eof);
    }
    ended || !bytes.is_empty()
}

fn whole(len: usize) -> usize {
    len
}

fn pair_with(limits: &Limits) -> (End, End) {
    let mut client = End::client(spec("h", 80, false), limits);
    let mut server = End::server(limits);
    client.hear(at(1), IoEvent::Opened);
    settle(at(1), &mut client, &mut server, whole);
    assert_eq!(client.events, [WsLinkEvent::Up]);
    assert_eq!(server.events, [WsLinkEvent::Up]);
    (client, server)
}

fn pair() -> (End, End) {
    pair_with(&Limits::default())
}

fn peer(code: Option<u16>, reason: &str) -> CloseReason {
    CloseReason::Peer {
        code,
        reason: reason.to_owned(),
    }
}

#[test]
fn texts_travel_both_ways_and_a_close_is_answered() {
    let (mut client, mut server) = pair();
    client.send("hello");
    server.send("grüezi");
    client.link.ping();
    client.drain();
    settle(at(3), &mut client, &mut server, whole);
    assert_eq!(client.texts(), ["grüezi"]);
    assert_eq!(server.texts(), ["hello"]);

    client.close(at(4), Some(1000), "bye");
    settle(at(4), &mut client, &mut server, whole);
    assert_eq!(*client.closed(), CloseReason::Local);
    assert_eq!(*server.closed(), peer(Some(1000), "bye"));
    assert!(client.gone && server.gone);
}

#[test]
fn every_close_code_reaches_the_other_end() {
    for (code, reason) in [
        (None, ""),
        (Some(1000), ""),
        (Some(1008), "slow consumer"),
        (Some(1012), "service restart"),
        (Some(1013), "gateway starting"),
        (Some(4000), "tick timeout"),
        (Some(4001), "device removed"),
    ] {
        let (mut client, mut server) = pair();
        server.close(at(4), code, reason);
        settle(at(4), &mut client, &mut server, whole);
        assert_eq!(*client.closed(), peer(code, reason));
        assert_eq!(*server.closed(), CloseReason::Local);
    }
}

#[test]
fn both_ends_may_close_at_once() {
    let (mut client, mut server) = pair();
    client.close(at(4), Some(1000), "a");
    server.close(at(4), Some(1001), "b");
    settle(at(4), &mut client, &mut server, whole);
    assert_eq!(*client.closed(), CloseReason::Local);
    assert_eq!(*server.closed(), CloseReason::Local);
    assert!(client.gone && server.gone);
}

#[test]
fn a_peer_that_does_not_answer_a_close_costs_a_second() {
    let (mut client, _) = pair();
    client.close(at(100), None, "");
    let due = at(100).after(CLOSE_TIMEOUT);
    assert_eq!(client.link.next_deadline().map(|d| d.at), Some(due));
    client.link.handle_timeout(at(1_099));
    client.drain();
    assert!(!client.gone);
    client.link.handle_timeout(at(1_100));
    client.drain();
    assert!(client.gone);
    assert_eq!(*client.closed(), CloseReason::Local);
}

#[test]
fn a_connection_that_ends_without_a_close_is_dropped() {
    for half in [b"".as_slice(), b"\x81", b"\x81\x05Hel", b"\x01\x03Hel"] {
        let (mut client, _) = pair();
        client.hear(at(5), IoEvent::Bytes(b"\x81\x01A"));
        if !half.is_empty() {
            client.hear(at(5), IoEvent::Bytes(half));
        }
        client.hear(at(6), IoEvent::Eof);
        let reason = client.closed();
        assert_eq!(reason.to_string(), "connection dropped");
        assert_eq!(reason.code(), Some(1006));
        assert!(matches!(reason, CloseReason::Io(fault) if fault.kind == FaultKind::Broken));
        assert_eq!(client.texts(), ["A"], "what was whole is kept");
    }
}

#[test]
fn what_is_opened_and_asked_follows_the_address() {
    for (host, port, tls, expected) in [
        ("h", 80, false, "h"),
        ("h", 443, true, "h"),
        ("h", 443, false, "h:443"),
        ("127.0.0.1", 18789, false, "127.0.0.1:18789"),
        ("::1", 18789, true, "[::1]:18789"),
    ] {
        let mut client = End::client(spec(host, port, tls), &Limits::default());
        let tls = tls.then(TlsSpec::default);
        let host = host.to_owned();
        assert_eq!(client.opens, [OpenSpec::Tcp { host, port, tls }]);
        assert!(
            client.sent.is_empty(),
            "nothing is sent before the wire is open"
        );
        client.hear(at(1), IoEvent::Opened);
        let request = String::from_utf8(client.sent).expect("ASCII");
        let names: Vec<&str> = request
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, _)| name)
            .collect();
        assert!(
            request.starts_with("GET /gateway?x=1 HTTP/1.1\r\n"),
            "{request}"
        );
        assert!(
            request.contains(&format!("\r\nHost: {expected}\r\n")),
            "{request}"
        );
        assert_eq!(
            names,
            [
                "Host",
                "Upgrade",
                "Connection",
                "Sec-WebSocket-Version",
                "Sec-WebSocket-Key"
            ],
            "no Origin, no User-Agent, no extensions"
        );
    }
}

/// Two runs with the same entropy send the same bytes, masks included.
#[test]
fn the_same_seed_gives_the_same_bytes() {
    let run = || {
        let mut client = End::client(spec("h", 80, false), &Limits::default());
        let mut server = End::server(&Limits::default());
        let mut sent = Vec::new();
        client.hear(at(1), IoEvent::Opened);
        sent.extend_from_slice(&client.sent);
        settle(at(1), &mut client, &mut server, whole);
        client.send("one");
        client.send("two");
        sent.extend_from_slice(&client.sent);
        sent
    };
    assert_eq!(run(), run());
}

#[test]
fn a_server_tells_a_browser_and_a_proxy_why_they_are_refused() {
    let limits = Limits::default();
    for (field, status) in [
        ("Origin: http://127.0.0.1:18789\r\n", 403),
        ("X-Forwarded-For: 10.0.0.1\r\n", 403),
        ("Host: other\r\n", 400),
        ("Bad : field\r\n", 400),
        ("Content-Length: 3\r\n", 400),
    ] {
        let mut client = End::client(spec("h", 80, false), &limits);
        let mut server = End::server(&limits);
        client.hear(at(1), IoEvent::Opened);
        let request = String::from_utf8(std::mem::take(&mut client.sent)).expect("ASCII");
        client.sent = request
            .replace("Upgrade: ", &format!("{field}Upgrade: "))
            .into_bytes();
        settle(at(1), &mut client, &mut server, whole);
        let CloseReason::Refused { status: told, body } = client.closed() else {
            panic!("{field}: {:?}", client.closed());
        };
        assert_eq!(*told, status, "{field}");
        let CloseReason::Violation(how) = server.closed() else {
            panic!("{field}: {:?}", server.closed());
        };
        let words = format!("upgrade request refused with HTTP status {status}: {body}");
        assert_eq!(*how, words);
        assert!(client.gone && server.gone);
    }
}

#[test]
fn a_head_may_be_as_long_as_its_limit() {
    let limits = Limits::default();
    let head = |len: usize| {
        let start = "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX: ";
        let filler = "x".repeat(len - start.len() - 4);
        format!("{start}{filler}\r\n\r\n")
    };
    for (len, fits) in [
        (limits.head_bytes_max - 1, true),
        (limits.head_bytes_max, true),
        (limits.head_bytes_max + 1, false),
    ] {
        let mut server = End::server(&limits);
        server.hear(at(1), IoEvent::Bytes(head(len).as_bytes()));
        assert_eq!(server.events == [WsLinkEvent::Up], fits, "{len}");
        assert_eq!(server.sent.starts_with(b"HTTP/1.1 431 "), !fits, "{len}");
    }
}

#[test]
fn messages_fit_the_limit_of_their_phase_and_no_more() {
    let limits = Limits {
        gateway_hello_bytes_max: 1_000,
        ..Limits::default()
    };
    for (raised, max) in [(None, 1_000), (Some(70_000), 70_000)] {
        for (len, fits) in [(max - 1, true), (max, true), (max + 1, false)] {
            let (mut client, mut server) = pair_with(&limits);
            if let Some(max) = raised {
                client.link.accept_messages_up_to(max);
            }
            server.send(&"x".repeat(len));
            settle(at(2), &mut client, &mut server, whole);
            assert_eq!(client.texts().len(), usize::from(fits), "{len}");
            if !fits {
                let how = format!("message too large: {len} bytes, limit {max}");
                assert_eq!(*client.closed(), CloseReason::Violation(how.clone()));
                assert_eq!(*server.closed(), peer(Some(1009), &how));
            }
        }
    }
}

/// The Gateway's first big message may arrive in one read with the hello that allows it.
#[test]
fn a_limit_raised_at_one_message_holds_for_the_next_in_the_same_read() {
    let limits = Limits {
        gateway_hello_bytes_max: 1_000,
        ..Limits::default()
    };
    let (mut client, mut server) = pair_with(&limits);
    server.send("hello-ok");
    server.send(&"x".repeat(5_000));
    client.link.handle_io(at(2), IoEvent::Bytes(&server.sent));
    assert_eq!(
        client.link.poll_event(),
        Some(WsLinkEvent::Text("hello-ok".to_owned()))
    );
    client.link.accept_messages_up_to(5_000);
    client.drain();
    assert_eq!(client.texts(), ["x".repeat(5_000)]);
}

#[test]
fn violations_are_answered_with_their_code_and_end_the_connection() {
    // What arrives at a client, what at a server (masked with zeros), and the code that answers it.
    let zero_mask = [0_u8; 4];
    let masked = |first: u8, payload: &[u8]| {
        let len = u8::try_from(payload.len()).expect("short");
        [&[first, 0x80 | len], &zero_mask[..], payload].concat()
    };
    let plain = |first: u8, payload: &[u8]| {
        let len = u8::try_from(payload.len()).expect("short");
        [&[first, len], payload].concat()
    };
    let table: [(&str, u8, &[u8], u16); 7] = [
        ("W03", 0xc1, b"A", 1002),
        ("W03", 0x83, b"", 1002),
        ("W05", 0x09, b"", 1002),
        ("W06", 0x81, b"\xff", 1007),
        ("W07", 0x88, b"\x03\xee", 1002),
        ("W07", 0x88, b"\x03", 1002),
        ("binary", 0x82, b"A", 1003),
    ];
    let mut cases: Vec<(&str, Vec<u8>, Vec<u8>, u16)> = table
        .iter()
        .map(|(name, first, payload, code)| {
            (
                *name,
                plain(*first, payload),
                masked(*first, payload),
                *code,
            )
        })
        .collect();
    cases.push(("W02", masked(0x81, b"A"), plain(0x81, b"A"), 1002));
    let huge = [&[0x81, 127], &u64::MAX.to_be_bytes()[..]].concat();
    let huge_masked = [&[0x81, 255], &u64::MAX.to_be_bytes()[..], &zero_mask[..]].concat();
    cases.push(("W04", huge, huge_masked, 1009));
    for (name, to_client, to_server, code) in cases {
        for (bytes, client_suffers) in [(to_client, true), (to_server, false)] {
            let (mut client, mut server) = pair();
            let (victim, other) = if client_suffers {
                (&mut client, &mut server)
            } else {
                (&mut server, &mut client)
            };
            victim.hear(at(2), IoEvent::Bytes(&bytes));
            settle(at(2), victim, other, whole);
            let CloseReason::Violation(how) = victim.closed() else {
                panic!("{name}: {:?}", victim.closed());
            };
            assert_eq!(*other.closed(), peer(Some(code), how), "{name}");
            assert!(victim.gone && other.gone, "{name}");
        }
    }
}

/// However the bytes of a whole conversation are cut, both ends tell the same story.
#[test]
fn cuts_do_not_change_the_story() {
    let story = |mut cut: Box<dyn FnMut(usize) -> usize>| {
        let limits = Limits::default();
        let mut client = End::client(spec("h", 80, false), &limits);
        let mut server = End::server(&limits);
        client.hear(at(1), IoEvent::Opened);
        settle(at(1), &mut client, &mut server, &mut cut);
        for round in 0..20_usize {
            client.send(&"ä".repeat(round * 17));
            server.send(&format!("{{\"round\":{round}}}"));
            if round % 5 == 0 {
                server.link.ping();
                server.drain();
                settle(at(2), &mut client, &mut server, &mut cut);
            }
        }
        server.close(at(3), Some(1012), "service restart");
        settle(at(3), &mut client, &mut server, &mut cut);
        (client.events, server.events)
    };
    let expected = story(Box::new(whole));
    assert_eq!(expected.0.len(), 1 + 20 + 1, "up, the texts, closed");
    assert_eq!(story(Box::new(|_| 1)), expected, "byte by byte");
    for seed in 0..50 {
        let mut random = Seeded::new(seed);
        let cut = move |len: usize| {
            usize::try_from(random.below(len as u64 + 1).min(random.below(400))).expect("small")
        };
        assert_eq!(story(Box::new(cut)), expected, "seed {seed}");
    }
}

/// What a connection makes of some bytes: its events, and the bytes it sends back.
fn heard(
    role: &Role,
    max: usize,
    bytes: &[u8],
    mut cut: impl FnMut(usize) -> usize,
) -> (Vec<WsEvent>, Vec<u8>) {
    let mut socket = WebSocket::new(role.clone(), max);
    let mut out = OutBuf::new();
    let mut events = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(cut(rest.len()).clamp(1, rest.len()));
        socket.feed(now, &mut out);
        while let Some(event) = socket.poll(&mut out) {
            events.push(event);
        }
        assert!(
            out.len() < PONG_BACKLOG_BYTES_MAX + 256,
            "{} bytes of replies",
            out.len()
        );
        rest = later;
    }
    (events, out.pending().to_vec())
}

#[test]
fn byte_strings_of_strangers_do_no_harm() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpora/tungstenite-fuzz-seeds/fuzz/seeds");
    let mut count = 0;
    for folder in [
        "parse_frame_header",
        "read_message_client",
        "read_message_server",
    ] {
        for entry in std::fs::read_dir(seeds.join(folder)).expect("the corpus") {
            let path = entry.expect("an entry").path();
            let bytes = std::fs::read(&path).expect("a seed");
            for role in [Role::Client { mask_seed: [1; 16] }, Role::Server] {
                for max in [16, 64 * 1024] {
                    let expected = heard(&role, max, &bytes, whole);
                    let texts: usize = expected
                        .0
                        .iter()
                        .map(|event| match event {
                            WsEvent::Text(text) => text.len(),
                            WsEvent::Close { .. } | WsEvent::Violation(_) => 0,
                        })
                        .sum();
                    assert!(texts <= bytes.len(), "{}", path.display());
                    assert_eq!(
                        heard(&role, max, &bytes, |_| 1),
                        expected,
                        "{}",
                        path.display()
                    );
                    let mut random = Seeded::new(count);
                    let cut =
                        |len: usize| usize::try_from(random.below(len as u64)).expect("small");
                    assert_eq!(
                        heard(&role, max, &bytes, cut),
                        expected,
                        "{}",
                        path.display()
                    );
                }
            }
            count += 1;
        }
    }
    assert_eq!(count, 676, "the whole corpus");
}

/// The corpus again, as what a stranger sends to a listener or answers to our request.
#[test]
fn byte_strings_of_strangers_get_no_connection() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpora/tungstenite-fuzz-seeds/fuzz/seeds");
    for entry in std::fs::read_dir(seeds.join("read_message_server")).expect("the corpus") {
        let path = entry.expect("an entry").path();
        let bytes = std::fs::read(&path).expect("a seed");
        if bytes.is_empty() {
            continue;
        }
        let limits = Limits::default();
        let mut client = End::client(spec("h", 80, false), &limits);
        client.hear(at(1), IoEvent::Opened);
        for mut end in [client, End::server(&limits)] {
            end.hear(at(2), IoEvent::Bytes(&bytes));
            end.hear(at(2), IoEvent::Eof);
            end.link.handle_timeout(at(20_000));
            end.drain();
            end.closed();
            assert!(!end.events.contains(&WsLinkEvent::Up), "{}", path.display());
        }
    }
}

/// Frames that are mostly right: most bytes behind a header, most masks where they belong.
fn random_frames(random: &mut Seeded, masked: bool) -> Vec<u8> {
    let firsts = [0x81, 0x01, 0x80, 0x00, 0x00, 0x89, 0x8a, 0x88];
    let mut bytes = Vec::new();
    for _ in 0..random.below(20) {
        let first = firsts[usize::try_from(random.below(firsts.len() as u64)).expect("small")];
        let len = random.below(126).to_le_bytes()[0];
        let masked = masked ^ (random.below(50) == 0);
        bytes.extend_from_slice(&[first, len | if masked { 0x80 } else { 0 }]);
        let more = usize::from(len) + if masked { 4 } else { 0 };
        // Mostly ASCII, now and then the start of a longer character.
        let odd = random.below(8) == 0;
        bytes.extend((0..more).map(|_| match random.below(128).to_le_bytes()[0] {
            0 if odd => 0xc3,
            byte => byte,
        }));
        if random.below(30) == 0 {
            bytes.push(random.below(256).to_le_bytes()[0]);
        }
    }
    bytes
}

#[test]
fn random_frames_do_no_harm() {
    let mut texts = 0;
    for seed in 0..1_000 {
        let mut random = Seeded::new(seed);
        for role in [Role::Client { mask_seed: [1; 16] }, Role::Server] {
            let bytes = random_frames(&mut random, role == Role::Server);
            let expected = heard(&role, 300, &bytes, whole);
            texts += expected.0.len();
            assert_eq!(heard(&role, 300, &bytes, |_| 1), expected, "seed {seed}");
            let cut = |len: usize| usize::try_from(random.below(len as u64)).expect("small");
            assert_eq!(heard(&role, 300, &bytes, cut), expected, "seed {seed}");
        }
    }
    assert!(
        texts > 2_000,
        "the frames are too often wrong to prove much: {texts} events"
    );
}

/// A peer that pings and never reads: our memory stays where it was.
#[test]
fn a_flood_of_pings_is_answered_within_bounds() {
    let (mut client, _) = pair();
    let pings = [b"\x89\x7d".as_slice(), &[b'p'; 125]]
        .concat()
        .repeat(2_000);
    for _ in 0..20 {
        client.link.handle_io(at(2), IoEvent::Bytes(&pings));
        assert_eq!(client.link.poll_event(), None, "a ping is no event");
        while client.link.poll_io().is_some() {}
        assert!(client.link.outgoing().len() < PONG_BACKLOG_BYTES_MAX + 256);
    }
    let out = client.link.outgoing();
    out.advance(out.len());
    client.hear(at(3), IoEvent::Drained);
    assert_eq!(
        client.sent.len(),
        2 + 4 + 125,
        "the latest ping is answered"
    );
}
