//! What sessions cost in memory. Exact on any machine.

use super::*;
use allocation_counter::measure;

const KIB: i64 = 1024;

#[test]
fn an_idle_session_takes_less_than_a_kibibyte() {
    let count = 1_024;
    let mut dice = Seeded::new(5);
    let mut sessions = Sessions::new(&Limits::DEFAULT);
    let cost = measure(|| {
        for peer in 0..count {
            let id = sessions.open(
                at(0),
                PeerId(peer),
                "a principal of usual length",
                &mut dice,
            );
            drop(id.expect("room"));
        }
    });
    let each = cost.bytes_current / i64::from(count);
    assert!(each <= KIB, "{each} bytes: {cost:?}");
}

#[test]
fn sessions_that_come_and_go_leave_nothing_behind() {
    let mut dice = Seeded::new(5);
    let mut sessions = Sessions::new(&Limits::DEFAULT);
    let mut turn = |sessions: &mut Sessions, ms| {
        for peer in 0..100 {
            let peer = PeerId(peer);
            let id = sessions.open(at(ms), peer, ALICE, &mut dice);
            drop(id.expect("room"));
            let stream = sessions.new_stream(peer, A).expect("room");
            sessions.record(peer, stream, &[0; 500]).expect("open");
            sessions.detach(at(ms), peer, stream, A, Parting::Lost);
        }
        assert_eq!(sessions.expire(at(ms + 1_800_000)).len(), 100);
    };
    turn(&mut sessions, 0);
    let cost = measure(|| turn(&mut sessions, 1_800_000));
    assert_eq!((cost.bytes_current, cost.count_current), (0, 0), "{cost:?}");
}

#[test]
fn a_busy_session_takes_what_it_keeps_and_little_more_and_gives_it_back() {
    let (mut sessions, _) = opened(&Limits::DEFAULT);
    let payload = vec![b'x'; 4_096];
    let mut streams = Vec::with_capacity(64);
    let busy = measure(|| {
        for _ in 0..64 {
            streams.push(sessions.new_stream(PEER, A).expect("room"));
        }
        for round in 0..16 {
            for stream in &streams {
                let id = sessions.record(PEER, *stream, &payload).expect("open");
                assert_eq!(id.n, round + 1);
            }
        }
    });
    let mebibyte = KIB * KIB;
    assert!(busy.bytes_current >= mebibyte, "{busy:?}");
    assert!(
        busy.bytes_current <= mebibyte + 16 * KIB,
        "{} over: {busy:?}",
        busy.bytes_current - mebibyte
    );
    let idle = measure(|| {
        for stream in &streams {
            sessions.finish(PEER, *stream);
            sessions.detach(at(0), PEER, *stream, A, Parting::Clean);
        }
        sessions.spare = Spare::new();
    });
    let left = busy.bytes_current + idle.bytes_current;
    assert!(left <= KIB, "{left} bytes left: {idle:?}");
}

#[test]
fn requests_in_steady_state_allocate_nothing() {
    let (mut sessions, id) = opened(&Limits::DEFAULT);
    sessions.attach(PEER, GET, B);
    let turn = |sessions: &mut Sessions, rounds: u64| {
        for round in 0..rounds {
            let now = at(round);
            sessions.find(now, id.as_str(), ALICE).expect("alive");
            let stream = sessions.new_stream(PEER, A).expect("room");
            sessions.record(PEER, stream, &[b'p'; 120]).expect("open");
            sessions.record(PEER, stream, &[b'a'; 900]).expect("open");
            let event = sessions.record(PEER, GET, &[b'n'; 200]).expect("open");
            assert!(event.text().starts_with("0-"));
            sessions.finish(PEER, stream);
            let first = EventId { stream, n: 0 };
            let replay = sessions.replay_after(PEER, &first.text());
            assert_eq!(replay.expect("open").count(), 2);
            sessions.detach(now, PEER, stream, A, Parting::Clean);
            assert!(sessions.next_deadline().is_some());
            assert_eq!(sessions.expire(now), []);
        }
    };
    // Until the standalone stream is at its bound.
    turn(&mut sessions, 300);
    let cost = measure(|| turn(&mut sessions, 1_000));
    assert_eq!(cost.count_total, 0, "{cost:?}");
}

#[test]
fn short_events_in_the_buffers_of_long_ones_do_not_add_up() {
    let (mut sessions, _) = opened(&Limits::DEFAULT);
    for _ in 0..256 {
        sessions.record(PEER, GET, &[0; 4_000]).expect("open");
    }
    let cost = measure(|| {
        for _ in 0..512 {
            sessions.record(PEER, GET, &[0; 100]).expect("open");
        }
    });
    let left = 256 * 4_000 + cost.bytes_current;
    assert!(left <= 256 * 200 + 16 * 4_000, "{left} bytes: {cost:?}");
}
