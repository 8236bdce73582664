//! Servers that do anything: whatever comes, each request ends at most once, the link closes once, no wire is
//! mentioned after its end, no deadline is left due (the rig checks the last two after every input).

use std::collections::BTreeMap;

use crate::entropy::Seeded;
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::http_client::rig::*;
use crate::link::http_client::{HttpBounds, HttpLink};
use crate::link::sse_client::SseLink;
use crate::link::{FaultKind, IoEvent};
use crate::protocol::client::Dialect;

const PIECES: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno",
    "HTTP/1.1 503 Busy\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 307 X\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 308 X\r\nLocation: ../b\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
    "Content-Type: application/json\r\n",
    "Content-Type: text/event-stream\r\n",
    "Content-Length: 36\r\n\r\n",
    "Mcp-Session-Id: S\r\n",
    "Transfer-Encoding: chunked\r\n\r\n",
    "Connection: close\r\n",
    "\r\n",
    "24\r\n",
    "0\r\n\r\n",
    "id: 1\n",
    "retry: 20\n",
    "event: endpoint\ndata: /m\n\n",
    "data: {\"jsonrpc\":\"2.0\",\"id\":%,\"result\":{}}\n\n",
    "{\"jsonrpc\":\"2.0\",\"id\":%,\"result\":{}}",
    "data:\n\n",
    ": c\n\n",
    "x",
];

/// Beginnings and wholes of answers that make sense.
const ANSWERS: &[&str] = &[
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: S\r\nTransfer-Encoding: chunked\r\n\r\n24\r\n{\"jsonrpc\":\"2.0\",\"id\":%,\"result\":{}}\r\n0\r\n\r\n",
    "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: endpoint\ndata: /m\n\nid: 1\nretry: 20\ndata:\n\n",
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":%,\"result\":{}}\n\n",
    "HTTP/1.1 307 X\r\nLocation: /a\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno",
];

fn pick(random: &mut Seeded, most: usize) -> usize {
    usize::try_from(random.below(most as u64)).expect("small")
}

fn run<L: Face>(mut rig: Rig<L>, seed: u64) -> BTreeMap<&'static str, usize> {
    let mut random = Seeded::new(seed);
    let mut next_id = 1_u64;
    let mut counts = BTreeMap::new();
    rig.start();
    for _ in 0..100 {
        rig.cut = random.below(4) == 0;
        let wires: Vec<WireId> = (1..150).map(WireId).filter(|w| !rig.is_gone(*w)).collect();
        let wire = (!wires.is_empty()).then(|| wires[pick(&mut random, wires.len())]);
        match (random.below(20), wire) {
            (0..=2, _) => {
                let dialect = [Dialect::Handshake, LEGACY, MODERN][pick(&mut random, 3)];
                let method = ["initialize", "tools/call"][pick(&mut random, 2)];
                let _ = rig.try_send(request(next_id, method, dialect));
                next_id += 1;
            }
            (3, _) => {
                let method = ["notifications/initialized", "n/x"][pick(&mut random, 2)];
                let _ = rig.try_send(notification(method, LEGACY));
            }
            (4, _) => rig.forget(random.below(next_id)),
            (5, Some(wire)) => rig.end(wire),
            (6, Some(wire)) => rig.fail(wire, FaultKind::Broken, "reset"),
            (7, Some(wire)) => rig.hear(wire, IoEvent::WriteClosed),
            (8, _) => rig.pass_to(rig.now + random.below(3_000)),
            (9, _) => rig.opens = !rig.opens,
            (10, Some(wire)) => rig.hear(wire, IoEvent::Opened),
            (11, _) => {
                rig.reads = !rig.reads;
                wires.into_iter().for_each(|wire| rig.leave(wire));
            }
            (12..=17, _) if !rig.got.is_empty() => {
                let got = rig.next();
                let id = got.body.split("\"id\":").nth(1);
                let id = id.and_then(|rest| rest.split(',').next()).unwrap_or("0");
                // Two digits, so that the chunk is as long as it says.
                let id = format!("{:>2}", id.parse::<u64>().unwrap_or(0) % 100);
                let answer = ANSWERS[pick(&mut random, ANSWERS.len())].replace('%', &id);
                rig.bytes(got.wire, answer.replace("24\r\n", "25\r\n").as_bytes());
                if random.below(3) == 0 {
                    rig.end(got.wire);
                }
            }
            (_, Some(wire)) => {
                for _ in 0..=random.below(4) {
                    let id = random.below(next_id).to_string();
                    let piece = PIECES[pick(&mut random, PIECES.len())].replace('%', &id);
                    rig.bytes(wire, piece.as_bytes());
                }
            }
            (_, None) => {}
        }
    }
    rig.close();
    rig.pass_to(rig.now + 10_000);
    let told = rig.news();
    let mut ends = BTreeMap::new();
    for line in &told {
        let word = ["message", "end", "resuming", "closed", "up", "unreadable"]
            .into_iter()
            .find(|word| line.starts_with(word))
            .expect("a known event");
        *counts.entry(word).or_default() += 1;
        if let Some(rest) = line.strip_prefix("end ") {
            let id = rest.split(' ').next().expect("an id").to_owned();
            let count: &mut u32 = ends.entry(id).or_default();
            *count += 1;
            assert_eq!(*count, 1, "seed {seed}: {line}");
        }
    }
    assert_eq!(counts.get("closed"), Some(&1), "seed {seed}: {told:?}");
    let open: Vec<u32> = (1..150).filter(|w| !rig.is_gone(WireId(*w))).collect();
    assert!(open.is_empty(), "seed {seed}: wires {open:?} are open");
    assert_eq!(rig.link.due(), None, "seed {seed}");
    counts
}

#[test]
fn nothing_a_server_does_breaks_the_rules() {
    let limits = Limits::default();
    let mut total: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..120 {
        let target = target("http://127.0.0.1:8900/mcp");
        let bounds = HttpBounds::from(&limits);
        let counts = if seed % 4 == 3 {
            run(Rig::new(SseLink::new(target, bounds, &limits)), seed)
        } else {
            run(Rig::new(HttpLink::new(target, bounds, &limits)), seed)
        };
        for (word, count) in counts {
            *total.entry(word).or_default() += count;
        }
    }
    for word in ["message", "end", "resuming", "up"] {
        assert!(total.get(word) > Some(&10), "{total:?}");
    }
}
