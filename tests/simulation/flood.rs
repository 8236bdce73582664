//! A hundred thousand events: what is kept stays within its limits, and memory stays where it was.

use drawspan::limits::Limits;

use crate::support::{FarEvent, Setup, World};

/// Events that fill every table before memory is measured.
const WARM_UP: u64 = 4_000;

/// Events after that.
const FLOOD: u64 = 100_000;

/// Live bytes that may come or go between two moments of a steady state: capacities of buffers.
const SLACK: i64 = 256 * 1024;

/// A world in service whose client has finished its handshake.
fn world() -> World {
    let mut world = World::new(Setup::default());
    world.client_says(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#);
    world.client_says(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    world.gateway_says(
        r#"{"type":"event","event":"connect.challenge","payload":{"nonce":"n","ts":1}}"#,
    );
    for payload in [r#"{"type":"hello-ok","protocol":4}"#, "{}", "[]", "[]"] {
        let asked = world.far_events.iter().rev().find_map(|event| match event {
            FarEvent::Text(text) => text.split('"').nth(7).map(str::to_owned),
            FarEvent::Up | FarEvent::Closed(_) => None,
        });
        let id = asked.expect("the hub asks");
        world.gateway_says(&format!(
            r#"{{"type":"res","id":"{id}","ok":true,"payload":{payload}}}"#
        ));
    }
    world
}

/// The events with these numbers: messages, approvals, decisions, rubbish.
fn flood(world: &mut World, numbers: std::ops::Range<u64>) -> usize {
    let mut lines = 0;
    for number in numbers {
        let text = "x".repeat(usize::try_from(number % 300).expect("small"));
        let event = match number % 10 {
            0 | 1 => format!(
                r#"{{"type":"event","event":"exec.approval.requested","payload":{{"id":"a{number}","request":{{"command":"{text}"}},"createdAtMs":{number}}}}}"#
            ),
            2 => format!(
                r#"{{"type":"event","event":"plugin.approval.resolved","payload":{{"id":"a{}"}}}}"#,
                number / 2
            ),
            3 => r#"{"type":"event","event":"session.message","payload":{}}"#.to_owned(),
            4 => r#"{"type":"event","event":"tick","payload":{"ts":1}}"#.to_owned(),
            _ => format!(
                r#"{{"type":"event","event":"session.message","payload":{{"sessionKey":"s{}","messageId":"m{number}","message":{{"role":"user","content":"{text}"}},"lastChannel":"c","lastTo":"t"}}}}"#,
                number % 50
            ),
        };
        world.gateway_says(&event);
        lines += world.client_lines.len();
        world.client_lines.clear();
        world.far_events.clear();
        world.diagnostics.clear();
    }
    lines
}

fn poll(world: &mut World) -> String {
    world.client_appetite = None;
    world.client_lines.clear();
    world.client_says(r#"{"jsonrpc":"2.0","id":"poll","method":"tools/call","params":{"name":"events_poll","arguments":{"limit":1}}}"#);
    let mut lines = world.client_lines.drain(..);
    let answer = lines.find(|line| line.contains(r#""id":"poll""#));
    answer.expect("an answer")
}

fn member(json: &str, name: &str) -> u64 {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).expect(name);
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect(name)
}

#[test]
fn a_flood_of_events_leaves_memory_flat() {
    let mut world = world();
    flood(&mut world, 0..WARM_UP);
    let mut lines = 0;
    let end = WARM_UP + FLOOD;
    let cost = allocation_counter::measure(|| {
        lines = flood(&mut world, WARM_UP..end);
    });
    assert_eq!(
        lines as u64,
        FLOOD / 2,
        "each message of a user is announced"
    );
    let answer = poll(&mut world);
    let queued = end / 10 * 8;
    let kept = Limits::DEFAULT.events_queued_max as u64;
    assert_eq!(member(&answer, "dropped"), queued - kept, "{answer}");
    assert_eq!(member(&answer, "oldest_cursor"), queued - kept + 1);
    assert!(cost.bytes_current.abs() < SLACK, "{cost:?}");
    assert!(cost.bytes_max < 4 * SLACK.unsigned_abs(), "{cost:?}");
}

#[test]
fn a_client_that_does_not_read_costs_no_more_than_the_watermark() {
    let mut world = world();
    world.client_appetite = Some(0);
    flood(&mut world, 0..WARM_UP);
    let cost = allocation_counter::measure(|| {
        flood(&mut world, WARM_UP..WARM_UP + FLOOD / 10);
    });
    let high = Limits::DEFAULT.out_high_bytes;
    let most = world.client_backlog_max;
    assert!(
        most > high,
        "the flood is higher than the watermark: {most}"
    );
    assert!(
        most <= high + 2_048,
        "{most} bytes wait, the watermark is {high}"
    );
    assert!(cost.bytes_current.abs() < SLACK, "{cost:?}");
    let answer = poll(&mut world);
    assert!(answer.contains("events: 1"), "{answer}");
}

#[test]
fn a_client_that_waits_for_event_after_event_leaves_nothing_behind() {
    let mut world = world();
    let round = |world: &mut World, numbers: std::ops::Range<u64>| {
        let mut answered = 0;
        for number in numbers {
            // One event a number, so that many cursors are taken.
            let after = number - 100_000;
            world.client_says(&format!(
                r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"name":"events_wait","arguments":{{"after_cursor":{after}}}}}}}"#
            ));
            world.gateway_says(&format!(
                r#"{{"type":"event","event":"session.message","payload":{{"sessionKey":"s","messageId":"m{number:06}","message":{{"role":"assistant","content":"hello {number:06}"}}}}}}"#
            ));
            let said = |line: &String| line.contains(&format!("hello {number:06}"));
            answered += world.client_lines.drain(..).filter(said).count();
            world.far_events.clear();
        }
        answered
    };
    round(&mut world, 100_000..102_000);
    let mut answered = 0;
    let cost = allocation_counter::measure(|| {
        answered = round(&mut world, 102_000..112_000);
    });
    assert_eq!(answered, 10_000, "each wait is answered by its event");
    assert!(cost.bytes_current.abs() < 4_096, "{cost:?}");
}
