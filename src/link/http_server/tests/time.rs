//! Deadlines, to the millisecond.

use super::*;

/// Nothing happens before the deadline; at it, this is told and sent.
fn falls_due(mut rig: Rig, ms: u64, why: &str, log: &[&str], statuses: &[&str]) -> Rig {
    let deadline = rig.connection.next_deadline().expect(why);
    assert_eq!((deadline.at.as_millis(), deadline.why), (ms, why));
    rig.tick(ms - 1);
    assert_eq!(rig.log, Vec::<String>::new(), "{why}");
    rig.tick(ms);
    assert_eq!(rig.log, log, "{why}");
    assert_eq!(rig.statuses(), statuses, "{why}");
    rig
}

#[test]
fn a_new_connection_has_header_timeout_for_its_first_head() {
    falls_due(head(), 10_000, "http request head", CLOSED, &[]);
    let mut rig = head();
    rig.now = 9_000;
    rig.bytes(b"GET / HTTP/1.1\r\n");
    let rig = falls_due(rig, 10_000, "http request head", FINISHED, &["408"]);
    assert!(
        rig.sent()
            .ends_with("request head did not end within 10000 ms\n")
    );
}

/// A connection whose first request was answered at 5 s; its buffers are trimmed by now.
fn idle() -> Rig {
    let mut rig = waiting();
    rig.now = 5_000;
    rig.answer(0);
    rig.tick(6_000);
    rig.forget()
}

#[test]
fn a_later_head_has_header_timeout_from_its_first_byte() {
    let mut rig = idle();
    rig.now = 20_000;
    rig.bytes(b"G");
    rig.now = 29_000;
    rig.bytes(b"ET / HTTP/1.1\r\nHost: h\r\n");
    falls_due(rig, 30_000, "http request head", FINISHED, &["408"]);
}

#[test]
fn empty_lines_are_no_request() {
    let mut rig = idle();
    rig.now = 20_000;
    rig.bytes(b"\r\n\r\n\r");
    falls_due(rig, 80_000, "http connection idle", CLOSED, &[]);
}

#[test]
fn an_idle_connection_has_idle_timeout_from_its_last_answer() {
    falls_due(idle(), 80_000, "http connection idle", CLOSED, &[]);
}

#[test]
fn a_body_has_body_timeout_from_its_acceptance() {
    let mut rig = rig(POST, 0);
    rig.now = 7_000;
    rig.accept(0);
    rig.now = 36_000;
    rig.bytes(b"abc");
    let rig = falls_due(rig, 37_000, "http request body", FAILED, &["408"]);
    assert!(
        rig.sent()
            .ends_with("request body did not end within 30000 ms\n")
    );
}

#[test]
fn an_owner_may_think_for_ever() {
    let mut rig = deciding_post();
    assert_eq!(rig.connection.next_deadline(), None);
    rig.tick(1_000_000);
    rig.accept(0);
    rig.bytes(b"abcd");
    assert_eq!(rig.connection.next_deadline(), None);
    rig.tick(2_000_000);
    rig.answer(0);
    assert_eq!(rig.statuses(), ["202"]);
}

#[test]
fn a_client_that_takes_nothing_is_dropped() {
    let mut rig = waiting();
    rig.reading = false;
    rig.now = 1_000;
    rig.answer(0);
    rig.tick(2_000);
    falls_due(rig, 31_000, "http client reads nothing", CLOSED, &[]);
}

#[test]
fn a_client_that_takes_something_is_waited_for() {
    let mut rig = waiting();
    rig.reading = false;
    rig.stream(0);
    rig.tick(1_000);
    rig.connection.outgoing().advance(1);
    rig.tick(29_999);
    let deadline = rig.connection.next_deadline().expect("a deadline");
    assert_eq!(deadline.at.as_millis(), 59_999, "it moved");
    rig.now = 30_000;
    rig.connection.sse_comment(at(30_000), ExchangeId(0), b"");
    rig.drain();
    let deadline = rig.connection.next_deadline().map(|due| due.at);
    assert_eq!(deadline, Some(at(31_000).up), "buffers");
    rig.tick(31_000);
    falls_due(rig, 59_999, "http client reads nothing", GONE, &[]);
}

/// The time starts with bytes that wait, not with bytes of long ago, even when nothing was heard of
/// the wire in between.
#[test]
fn what_left_long_ago_does_not_count_as_waiting() {
    for json in [true, false] {
        let mut rig = rig(&[GET, GET].concat(), 2);
        rig.reading = false;
        let (first, second) = (ExchangeId(0), ExchangeId(1));
        if json {
            rig.connection.respond(at(0), first, 200, &[], b"");
        } else {
            rig.connection.start_sse(at(0), first, &[]);
        }
        rig.drain();
        rig.connection.outgoing().clear();
        rig.now = 40_000;
        if json {
            rig.connection.begin_json(second, &[]).push(b'1');
            rig.connection.commit_json(at(40_000), second);
        } else {
            rig.connection.begin_event(first, None, None).push(b'1');
            rig.connection.commit_event(at(40_000), first);
        }
        rig.tick(41_000);
        let deadline = rig.connection.next_deadline().expect("a deadline");
        assert_eq!(deadline.at.as_millis(), 70_000, "{deadline:?}");
    }
}

#[test]
fn probes_find_out_whether_a_client_is_gone() {
    let mut rig = waiting();
    rig.now = 100;
    rig.end();
    let mut probes = Vec::new();
    while let Some(deadline) = rig.connection.next_deadline() {
        if deadline.why == "http client probe" {
            probes.push(deadline.at.as_millis() - 100);
        }
        rig.tick(deadline.at.as_millis());
    }
    let times = [10, 30, 70, 150, 310, 630, 1_270, 2_550, 5_110, 10_230];
    assert_eq!(probes, times);
    assert_eq!(rig.statuses(), ["100"; 10]);
    rig.answer(0);
    assert_eq!(
        rig.statuses()[10..],
        ["202"],
        "a half-closed client is answered"
    );
    assert_eq!(rig.log, ["closed", "finish"]);
}

#[test]
fn a_client_that_is_gone_is_told() {
    let mut rig = waiting();
    rig.end();
    rig.tick(10);
    rig.now = 30;
    rig.hear(IoEvent::WriteClosed);
    assert_eq!(rig.log, GONE);
}

#[test]
fn a_stream_is_probed_by_comments() {
    let mut rig = waiting();
    rig.stream(0);
    rig.end();
    rig.sent.clear();
    rig.tick(10);
    assert_eq!(rig.sent(), "00000003\r\n:\n\n\r\n");
    rig.now = 20;
    rig.hear(IoEvent::WriteClosed);
    assert_eq!(rig.log, GONE);
}

#[test]
fn an_old_client_is_not_probed_before_its_answer() {
    let mut rig = rig(b"GET /s HTTP/1.0\r\n\r\n", 1);
    rig.end();
    rig.tick(10);
    assert_eq!(rig.sent(), "", "HTTP/1.0 knows no interim answers");
    rig.stream(0);
    rig.sent.clear();
    rig.tick(30);
    assert_eq!(rig.sent(), ":\n\n");
}

#[test]
fn no_probe_is_sent_while_something_waits_or_after_the_answer() {
    let mut rig = waiting();
    rig.reading = false;
    rig.stream(0);
    rig.end();
    let before = rig.connection.outgoing().len();
    rig.tick(10);
    assert_eq!(rig.connection.outgoing().len(), before);
    let mut rig = leaving();
    rig.end();
    let deadline = rig.connection.next_deadline().expect("a deadline");
    assert_ne!(deadline.why, "http client probe");
}

/// While we do not read, a client cannot be late.
#[test]
fn reading_that_we_stopped_is_not_held_against_the_client() {
    let limits = Limits {
        out_high_bytes: 500,
        out_low_bytes: 100,
        ..limits()
    };
    let mut rig = Rig::with(&limits);
    rig.bytes(&[GET, POST].concat());
    rig.accept(0);
    rig.accept(1);
    rig.reading = false;
    rig.connection.start_sse(at(0), ExchangeId(0), &[]);
    let text = [b'x'; 500];
    rig.connection.sse_comment(at(0), ExchangeId(0), &text);
    let mut rig = rig.forget();
    rig.drain();
    assert_eq!(rig.log, ["pause"]);
    rig.tick(20_000);
    rig.connection.outgoing().advance(1);
    rig.tick(21_000);
    rig.tick(35_000);
    rig.connection.outgoing().clear();
    rig.now = 40_000;
    rig.hear(IoEvent::Drained);
    assert_eq!(rig.log, ["pause", "resume"], "the body is not late");
    let rig = Rig {
        log: Vec::new(),
        ..rig
    };
    falls_due(rig, 70_000, "http request body", &["1 gone"], &[]);
}

#[test]
fn a_head_that_we_do_not_read_on_is_not_late() {
    let limits = Limits {
        out_high_bytes: 500,
        out_low_bytes: 100,
        ..limits()
    };
    let mut rig = Rig::with(&limits);
    rig.bytes(&[GET, b"G"].concat());
    rig.reading = false;
    rig.accept(0);
    rig.stream(0);
    rig.connection
        .sse_comment(at(0), ExchangeId(0), &[b'x'; 500]);
    rig.drain();
    let mut rig = rig.forget();
    rig.tick(15_000);
    rig.connection.outgoing().clear();
    rig.now = 16_000;
    rig.hear(IoEvent::Drained);
    assert_eq!(rig.log, ["resume"]);
    falls_due(rig.forget(), 26_000, "http request head", &[], &[]);
}

#[test]
fn early_and_repeated_calls_are_harmless() {
    let mut rig = waiting();
    rig.answer(0);
    let deadline = |rig: &Rig| rig.connection.next_deadline();
    let before = deadline(&rig);
    for _ in 0..3 {
        rig.tick(500);
    }
    assert_eq!(deadline(&rig), before);
    assert_eq!(rig.log, Vec::<String>::new());
}
