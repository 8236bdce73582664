//! Requests, events, odd frames, silence and reconnecting.

use super::*;

#[test]
fn a_request_times_out_and_its_late_answer_is_counted() {
    let mut rig = Rig::ready();
    let id = rig.request("sessions.get");
    rig.take();
    rig.pass(15_000);
    rig.text(TICK);
    rig.pass(14_999);
    assert!(rig.take().is_empty());
    rig.pass(1);
    assert_eq!(
        rig.take(),
        [format!(
            "error {id}: gateway request timeout for sessions.get"
        )]
    );
    rig.answer("{}");
    rig.text(r#"{"type":"res","id":"no number","ok":true}"#);
    assert!(rig.take().is_empty());
    assert_eq!(rig.session.counters().late_answers, 2);
    assert!(rig.session.is_ready(), "no cancel frame, no reconnect");
}

#[test]
fn a_request_longer_than_the_gateway_takes_is_not_sent() {
    let mut rig = Rig::with_token();
    rig.up();
    rig.text(CHALLENGE);
    rig.answer(r#"{"type":"hello-ok","policy":{"maxPayload":100}}"#);
    rig.answer("{}");
    rig.take();
    let around = |length: usize| {
        let rest = r#"{"type":"req","id":"3","method":"send","params":{"m":""}}"#.len();
        format!(r#"{{"m":"{}"}}"#, "x".repeat(length - rest))
    };
    rig.session.request(rig.now, "send", &around(100));
    rig.session.request(rig.now, "send", &around(101));
    rig.drain();
    assert_eq!(
        rig.take(),
        [
            "send send",
            "error 4: request too large for the gateway: 101 bytes, limit 100",
        ]
    );
}

#[test]
fn more_requests_than_the_limit_are_busy() {
    let limits = Limits {
        gateway_requests_max: 2,
        ..Limits::default()
    };
    let mut rig = Rig::new(SessionConfig {
        limits,
        ..config(Some("TOKEN"))
    });
    rig.serve();
    for _ in 0..3 {
        rig.request("send");
    }
    assert_eq!(
        rig.take().last().map(String::as_str),
        Some("error 5: gateway is busy: 2 requests open, limit 2")
    );
}

#[test]
fn only_the_events_of_the_bridge_are_handed_on() {
    let mut rig = Rig::ready();
    for name in BRIDGE_EVENTS {
        rig.text(&format!(
            r#"{{"type":"event","event":"{name}","payload":{{}}}}"#
        ));
    }
    rig.text(r#"{"type":"event","event":"session.message","payload":null}"#);
    let log = rig.take();
    assert_eq!(log.len(), 6, "{log:?}");
    assert_eq!(log[5], "event session.message 0");
    for name in [
        "tick",
        "health",
        "presence",
        "chat",
        "agent",
        "connect.challenge",
    ] {
        rig.text(&format!(
            r#"{{"type":"event","event":"{name}","payload":{{}}}}"#
        ));
    }
    assert!(rig.take().is_empty());
    assert_eq!(rig.session.counters().dropped_events, 6);
    rig.text(MESSAGE);

    let mut rig = walk_to("Connecting");
    rig.text(MESSAGE);
    assert!(
        rig.take().is_empty(),
        "nothing is believed before the hello"
    );
}

#[test]
fn malformed_frames_are_counted_and_told_at_powers_of_two() {
    let mut rig = Rig::ready();
    for _ in 0..9 {
        rig.text("{");
        rig.text("[]");
    }
    let log = rig.take();
    assert_eq!(log.len(), 5, "1, 2, 4, 8, 16: {log:?}");
    assert_eq!(
        log[0],
        "warning: gateway sent a frame that is skipped: not JSON at line 1, byte 1 (1 so far)"
    );
    rig.text(r#"{"type":"req","id":"1","method":"x"}"#);
    assert_eq!(rig.session.counters().malformed_frames, 19);
    assert!(rig.session.is_ready());
}

#[test]
fn the_tick_interval_of_a_hello_is_clamped() {
    let rows = [
        ("1", 2_000),
        ("30000", 60_000),
        ("1e12", 200_000),
        ("-1", 2_000),
        ("\"x\"", 60_000),
    ];
    for (tick, silence) in rows {
        let mut rig = Rig::with_token();
        rig.up();
        rig.text(CHALLENGE);
        rig.answer(&format!(
            r#"{{"type":"hello-ok","policy":{{"tickIntervalMs":{tick}}}}}"#
        ));
        rig.answer("{}");
        rig.take();
        rig.pass(silence - 1);
        assert!(rig.session.is_ready(), "tick {tick}");
        rig.pass(1);
        assert!(!rig.session.is_ready(), "tick {tick}");
    }
}

#[test]
fn a_gateway_that_accepts_and_drops_gets_no_storm() {
    let mut rig = Rig::with_token();
    let mut waits = Vec::new();
    for _ in 0..6 {
        rig.serve();
        rig.closed(None, "reset");
        waits.push(rig.pass_until_open());
    }
    for (wait, step) in waits
        .iter()
        .zip([1_000, 2_000, 4_000, 8_000, 16_000, 30_000])
    {
        assert!((step * 8 / 10..=step * 12 / 10).contains(wait), "{waits:?}");
    }
    rig.serve();
    rig.pass(10_000);
    rig.closed(None, "reset");
    let wait = rig.pass_until_open();
    assert!(
        wait <= 1_200,
        "ten seconds of service start the steps over: {wait}"
    );
}

#[test]
fn a_gateway_that_is_down_at_start_is_waited_for_with_a_line_per_step() {
    let mut rig = Rig::with_token();
    for _ in 0..50 {
        rig.closed(None, "127.0.0.1:18789: connection refused");
        rig.pass_until_open();
    }
    let told: Vec<_> = rig
        .take()
        .into_iter()
        .filter(|line| line.starts_with("warning"))
        .collect();
    assert_eq!(told.len(), 6, "{told:?}");
    assert_eq!(
        told[0],
        "warning: cannot reach gateway ws://127.0.0.1:18789: 127.0.0.1:18789: connection refused, next try in 1 s"
    );
    rig.serve();
    assert!(rig.session.is_ready());
}

#[test]
fn a_close_before_the_hello_is_a_failed_try() {
    let mut rig = Rig::with_token();
    rig.up();
    rig.text(CHALLENGE);
    rig.closed(Some(1000), "");
    assert!(
        rig.session
            .not_connected(rig.now)
            .starts_with("gateway not connected: gateway closed before ready (1000): no reason given, next try in 1 s"),
        "{}",
        rig.session.not_connected(rig.now)
    );
    rig.pass_until_open();
}

#[test]
fn shutting_down_answers_what_is_open() {
    let mut rig = Rig::ready();
    let id = rig.request("send");
    rig.take();
    rig.session.shutdown(rig.now);
    rig.drain();
    let after = rig.request("send");
    assert_eq!(
        rig.take(),
        [
            "close - ".to_owned(),
            format!("error {id}: gateway connection closed: shutting down"),
            format!("error {after}: gateway not connected: shutting down"),
        ]
    );
}

/// Whatever a Gateway says and whenever, each request has one answer and no deadline stays due.
#[test]
fn random_conversations_answer_every_request_once() {
    for seed in 0..300 {
        let mut dice = Seeded::new(seed);
        let mut rig = Rig::with_token();
        let mut asked = 0;
        for _ in 0..200 {
            match dice.below(14) {
                0 => rig.up(),
                1 => rig.text(CHALLENGE),
                2 if !rig.sent.is_empty() => rig.answer(HELLO),
                3 if !rig.sent.is_empty() => rig.refuse(STARTING),
                4 if !rig.sent.is_empty() && asked > 0 => rig.refuse(PASSWORD_MISMATCH),
                5 => rig.closed(None, "reset"),
                6 => rig.closed(Some(1012), "service restart"),
                7 => rig.pass(dice.below(70_000)),
                8 => rig.text(&format!(
                    r#"{{"type":"res","id":"{}","ok":true}}"#,
                    dice.below(50)
                )),
                9 => rig.text("{"),
                10..=11 if rig.session.is_ready() => rig.text(MESSAGE),
                _ => {
                    rig.request("send");
                    asked += 1;
                }
            }
        }
        rig.session.shutdown(rig.now);
        rig.drain();
        let answers = rig
            .log
            .iter()
            .filter(|line| line.starts_with("answer") || line.starts_with("error "));
        assert_eq!(answers.count(), asked, "seed {seed}");
        let readies = rig
            .log
            .iter()
            .filter(|line| line.starts_with("ready"))
            .count();
        let losses = rig
            .log
            .iter()
            .filter(|line| line.starts_with("lost"))
            .count();
        assert!(losses <= readies && readies <= losses + 1, "seed {seed}");
    }
}
