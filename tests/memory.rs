//! What stays in memory after a flood: exact on any machine.

#![allow(unreachable_pub, reason = "one test binary, many files")]

mod support;

use support::{FarEvent, Setup, World};

/// Events between two looks at the memory.
const ROUND: u64 = 10_000;

fn event(serial: u64) -> String {
    format!(
        r#"{{"type":"event","event":"session.message","seq":{serial},"payload":{{"sessionKey":"agent:main:main","messageId":"m{serial:06}","messageSeq":{serial},"message":{{"role":"user","content":[{{"type":"text","text":"hello number {serial:06}"}}]}}}}}}"#
    )
}

/// Answers what the bridge asks of the Gateway until it asks no more.
fn answer(world: &mut World) {
    world.settle();
    while let Some(far) = world.far_events.pop_front() {
        let text = match far {
            FarEvent::Up => {
                r#"{"type":"event","event":"connect.challenge","payload":{"nonce":"n"}}"#.to_owned()
            }
            FarEvent::Closed(why) => panic!("closed: {why}"),
            FarEvent::Text(text) => {
                let asked: serde_json::Value = serde_json::from_str(&text).expect("a frame");
                let payload = match asked["method"].as_str().expect("a request") {
                    "connect" => {
                        r#"{"type":"hello-ok","protocol":4,"policy":{"tickIntervalMs":30000}}"#
                    }
                    "sessions.subscribe" => r#"{"subscribed":true}"#,
                    _ => "[]",
                };
                let id = &asked["id"];
                format!(r#"{{"type":"res","id":{id},"ok":true,"payload":{payload}}}"#)
            }
        };
        world.gateway_says(&text);
        world.settle();
    }
}

fn ready() -> World {
    let mut world = World::new(Setup::default());
    world.client_says(
        r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#,
    );
    world.client_says(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    answer(&mut world);
    world
}

/// A client that reads, with a request now and then.
fn flood(world: &mut World, from: u64, reads: bool) {
    for serial in from..from + ROUND {
        world.gateway_says(&event(serial));
        if reads && serial % 100 == 0 {
            world.client_says(&format!(
                r#"{{"jsonrpc":"2.0","id":{serial},"method":"tools/call","params":{{"name":"events_wait","arguments":{{"after_cursor":{}}}}}}}"#,
                serial - 1
            ));
        }
        world.settle();
        world.client_lines.clear();
        world.diagnostics.clear();
    }
}

#[test]
fn a_hundred_thousand_events_leave_memory_flat() {
    for reads in [true, false] {
        let mut world = ready();
        flood(&mut world, 1, reads);
        for round in 1..10 {
            let grown = allocation_counter::measure(|| {
                flood(&mut world, 1 + round * ROUND, reads);
            });
            let last = grown.bytes_current;
            assert!(
                last.abs() < 4_096,
                "{last} bytes more after round {round}, client asks: {reads}"
            );
        }
        world.client_says(
            r#"{"jsonrpc":"2.0","id":"last","method":"tools/call","params":{"name":"events_poll","arguments":{"after_cursor":99999}}}"#,
        );
        world.settle();
        let line = world.client_lines.pop_back().expect("an answer");
        assert!(
            line.contains(r#""id":"last""#) && line.contains("m100000"),
            "{line}"
        );
    }
}
