//! The store in virtual time. Its walk against a model is in `model.rs`.

mod memory;
mod model;

use super::*;
use crate::clock::Uptime;
use crate::crypto::hex;
use crate::entropy::Seeded;

const ALICE: &str = "alice";
const MALLORY: &str = "mallory";
const PEER: PeerId = PeerId(1);
const GET: StreamId = StreamId::STANDALONE;
const A: Carrier = Carrier(1);
const B: Carrier = Carrier(2);

fn at(ms: u64) -> Now {
    Now {
        up: Uptime::from_millis(ms),
        unix_ms: 0,
    }
}

/// Small bounds: 3 sessions, 100 ms, 3 streams, 4 events, 20 bytes.
fn small() -> Limits {
    Limits {
        sessions_max: 3,
        session_idle_ttl: Duration::from_millis(100),
        streams_per_session_max: 3,
        sse_replay_events_max: 4,
        sse_replay_bytes_max: 20,
        ..Limits::DEFAULT
    }
}

/// A store with the session of [`PEER`], opened at 0 ms.
fn opened(limits: &Limits) -> (Sessions, McpSessionId) {
    let mut sessions = Sessions::new(limits);
    let id = sessions
        .open(at(0), PEER, ALICE, &mut Seeded::new(1))
        .expect("room");
    (sessions, id)
}

fn replayed(replay: Option<Replay<'_>>) -> Option<Vec<String>> {
    let events = replay?.map(|(id, payload)| format!("{id} {}", String::from_utf8_lossy(payload)));
    Some(events.collect())
}

fn after(sessions: &Sessions, id: &str) -> Option<Vec<String>> {
    replayed(sessions.replay_after(PEER, id))
}

/// What the sessions of these peers keep of their standalone streams.
fn kept(sessions: &Sessions, peers: &[u32]) -> Vec<String> {
    let all = |peer: &u32| {
        let replay = sessions.replay_after(PeerId(*peer), "0-0");
        replayed(replay).unwrap_or_default().join(" ")
    };
    peers.iter().map(all).collect()
}

#[test]
fn a_session_is_found_at_its_place_as_by_its_id() {
    let (mut sessions, id) = opened(&small());
    let place = sessions.place_of(PEER).expect("it is open");
    assert_eq!(sessions.place_of(PeerId(9)), None);
    assert_eq!(sessions.find_at(at(99), place), Some(PEER));
    assert_eq!(
        sessions.find(at(198), id.as_str(), ALICE),
        Some(PEER),
        "it was a sign of life"
    );
    assert_eq!(sessions.find_at(at(298), place), None, "its time is over");
    sessions.close(id.as_str(), ALICE).expect("it is there");
    assert_eq!(sessions.find_at(at(298), place), None);
    sessions
        .open(at(298), PeerId(2), ALICE, &mut Seeded::new(2))
        .expect("room");
    assert_eq!(
        sessions.place_of(PeerId(2)).map(|other| other.slot),
        Some(place.slot)
    );
    assert_eq!(
        sessions.find_at(at(298), place),
        None,
        "another one has its slot"
    );
}

#[test]
fn sse_replay_total_bytes_max() {
    let limits = Limits {
        sse_replay_total_bytes_max: 30,
        ..small()
    };
    let mut dice = Seeded::new(9);
    let mut sessions = Sessions::new(&limits);
    let mut ids = Vec::new();
    for peer in 1..=3 {
        ids.push(
            sessions
                .open(at(0), PeerId(peer), ALICE, &mut dice)
                .expect("room"),
        );
    }
    let record = |sessions: &mut Sessions, peer, payload: &str| {
        sessions
            .record(PeerId(peer), GET, payload.as_bytes())
            .expect("open");
    };
    record(&mut sessions, 1, "aaaaaaaaaa");
    record(&mut sessions, 2, "bbbbbbbbbb");
    record(&mut sessions, 3, "cccccccccc");
    let all = ["0-1 aaaaaaaaaa", "0-1 bbbbbbbbbb", "0-1 cccccccccc"];
    assert_eq!(kept(&sessions, &[1, 2, 3]), all, "30 bytes are allowed");
    // The first session has just had something new: the second one is the longest without.
    record(&mut sessions, 1, "A");
    assert_eq!(
        kept(&sessions, &[1, 2, 3]),
        ["0-1 aaaaaaaaaa 0-2 A", "", "0-1 cccccccccc"]
    );
    assert_eq!(sessions.replay_bytes, 21);
    assert_eq!(sessions.take_dropped(PeerId(2)), 1, "it is told");
    // What is long pushes several out, its own session's last.
    record(&mut sessions, 2, &"B".repeat(20));
    let now = [
        "0-2 A".to_owned(),
        format!("0-2 {}", "B".repeat(20)),
        String::new(),
    ];
    assert_eq!(kept(&sessions, &[1, 2, 3]), now);
    // Whoever ends takes its events along.
    sessions.close(ids[1].as_str(), ALICE).expect("it is open");
    assert_eq!(sessions.replay_bytes, 1);
    sessions.close(ids[0].as_str(), ALICE).expect("it is open");
    sessions.close(ids[2].as_str(), ALICE).expect("it is open");
    assert_eq!(
        (sessions.replay_bytes, sessions.recorded.longest()),
        (0, None)
    );
}

#[test]
fn an_id_is_128_random_bits_in_one_spelling() {
    let (mut sessions, id) = opened(&small());
    let mut drawn = [0; 16];
    Seeded::new(1).fill(&mut drawn);
    assert_eq!(id.as_str(), hex(&drawn));
    assert_eq!(id.as_str().len(), 32);
    assert_eq!(sessions.find(at(1), id.as_str(), ALICE), Some(PEER));
    let text = id.as_str();
    assert!(text.bytes().any(|byte| byte.is_ascii_lowercase()), "{text}");
    let wrong = [
        String::new(),
        text.to_uppercase(),
        text[1..].to_owned(),
        format!("0{text}"),
        format!("{text} "),
        format!("+{}", &text[1..]),
        "0".repeat(32),
        "g".repeat(32),
        "é".repeat(16),
    ];
    for wrong in wrong {
        assert_eq!(sessions.find(at(1), &wrong, ALICE), None, "{wrong:?}");
        assert_eq!(sessions.close(&wrong, ALICE), None, "{wrong:?}");
    }
    assert!(
        !format!("{id:?}").contains(&text[8..]),
        "not for logs: {id:?}"
    );
}

#[test]
fn a_stranger_with_the_right_id_finds_nothing_and_changes_nothing() {
    let (mut sessions, id) = opened(&small());
    for stranger in [MALLORY, "", "alic", "alice2", "ALICE"] {
        assert_eq!(sessions.find(at(99), id.as_str(), stranger), None);
        assert_eq!(sessions.close(id.as_str(), stranger), None);
    }
    let deadline = sessions.next_deadline().expect("one session").at;
    assert_eq!(deadline, Uptime::from_millis(100), "not kept alive");
    assert_eq!(sessions.find(at(99), id.as_str(), ALICE), Some(PEER));
}

#[test]
fn a_source_that_repeats_itself_takes_no_session_over() {
    let (mut sessions, id) = opened(&small());
    let again = sessions.open(at(0), PeerId(2), MALLORY, &mut Seeded::new(1));
    assert_eq!(again, Err(SessionError::IdTaken));
    let again = sessions.open(at(0), PEER, MALLORY, &mut Seeded::new(2));
    assert_eq!(again, Err(SessionError::PeerTaken));
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions.find(at(1), id.as_str(), ALICE), Some(PEER));
    assert_eq!(sessions.find(at(1), id.as_str(), MALLORY), None);
}

#[test]
fn the_number_of_sessions_has_a_limit_and_says_when_to_come_back() {
    let mut dice = Seeded::new(1);
    let mut limits = small();
    limits.session_idle_ttl = Duration::from_millis(20_000);
    let (mut sessions, first) = opened(&limits);
    for (ms, peer) in [(10, 2), (20, 3)] {
        let mut open = |ms, peer| sessions.open(at(ms), PeerId(peer), ALICE, &mut dice);
        // The source starts as the first session's did.
        let _ = open(ms, peer).or_else(|_| open(ms, peer)).expect("room");
    }
    assert_eq!(sessions.len(), 3);
    let refused = sessions.open(at(1_500), PeerId(4), ALICE, &mut dice);
    let error = refused.expect_err("one too many");
    assert_eq!(error.retry_after_s(), Some(19), "18.5 s, rounded up");
    assert_eq!(
        error.to_string(),
        "too many sessions: 3 are open, limit 3 (sessions_max); try again in 19 s"
    );
    for (ms, wait) in [(19_999, 1), (25_000, 1)] {
        let refused = sessions.open(at(ms), PeerId(4), ALICE, &mut dice);
        assert_eq!(refused.expect_err("full").retry_after_s(), Some(wait));
    }
    let ended = sessions.close(first.as_str(), ALICE).expect("open");
    assert_eq!(ended.peer, PEER);
    let id = sessions.open(at(1_500), PeerId(4), ALICE, &mut dice);
    let id = id.expect("room again");
    assert_eq!(
        sessions.find(at(1_500), id.as_str(), ALICE),
        Some(PeerId(4))
    );
    for peer in 2..=4 {
        sessions
            .new_stream(PeerId(peer), Carrier(9))
            .expect("a stream");
    }
    let refused = sessions.open(at(1_500), PeerId(5), ALICE, &mut dice);
    let wait = refused.expect_err("full").retry_after_s();
    assert_eq!(wait, Some(60), "nobody is idle");
}

#[test]
fn a_session_walks_its_table() {
    // State, input, state after it.
    let table = [
        ("idle", "find", "idle, anew"),
        ("idle", "attach GET", "idle"),
        ("idle", "detach GET", "idle"),
        ("idle", "new stream", "busy"),
        ("idle", "attach stream", "busy"),
        ("idle", "record", "idle"),
        ("idle", "time", "gone"),
        ("idle", "close", "gone"),
        ("idle", "remove", "gone"),
        ("busy", "find", "busy"),
        ("busy", "attach GET", "busy"),
        ("busy", "detach GET", "busy"),
        ("busy", "new stream", "busy"),
        ("busy", "detach one of two", "busy"),
        ("busy", "detach", "idle, anew"),
        ("busy", "detach, clean", "idle, anew"),
        ("busy", "finish", "busy"),
        ("busy", "time", "busy"),
        ("busy", "close", "gone"),
        ("busy", "remove", "gone"),
    ];
    for (state, input, next) in table {
        let (mut sessions, id) = opened(&small());
        let other = sessions.new_stream(PEER, Carrier(8)).expect("room");
        sessions.record(PEER, other, b"x").expect("open");
        sessions.attach(PEER, GET, Carrier(7));
        sessions.detach(at(0), PEER, other, Carrier(8), Parting::Lost);
        let stream = sessions.new_stream(PEER, A).expect("room");
        if state == "idle" {
            sessions.detach(at(0), PEER, stream, A, Parting::Lost);
        }
        let now = at(60);
        match input {
            "find" => assert_eq!(sessions.find(now, id.as_str(), ALICE), Some(PEER)),
            "attach GET" => {
                assert_eq!(sessions.attach(PEER, GET, B), Attach::Displaced(Carrier(7)));
            }
            "detach GET" => sessions.detach(now, PEER, GET, Carrier(7), Parting::Lost),
            "new stream" => drop(sessions.new_stream(PEER, B).expect("room")),
            "attach stream" => assert_eq!(sessions.attach(PEER, other, B), Attach::Attached),
            "record" => drop(sessions.record(PEER, stream, b"y").expect("open")),
            "detach one of two" => {
                sessions.attach(PEER, other, B);
                sessions.detach(now, PEER, stream, A, Parting::Lost);
            }
            "detach" => sessions.detach(now, PEER, stream, A, Parting::Lost),
            "detach, clean" => sessions.detach(now, PEER, stream, A, Parting::Clean),
            "finish" => sessions.finish(PEER, stream),
            "time" => {}
            "close" => drop(sessions.close(id.as_str(), ALICE).expect("open")),
            "remove" => drop(sessions.remove(PEER).expect("open")),
            other => panic!("{other} is no input"),
        }
        if input == "time" {
            assert_eq!(sessions.expire(at(99)), [], "{state}, {input}");
            let ended = sessions.expire(at(100));
            assert_eq!(ended.len(), usize::from(next == "gone"), "{state}, {input}");
        }
        let deadline = sessions
            .next_deadline()
            .map(|deadline| deadline.at.as_millis());
        let seen = match (sessions.len(), deadline) {
            (0, None) => "gone",
            (1, None) => "busy",
            (1, Some(100)) => "idle",
            (1, Some(160)) => "idle, anew",
            odd => panic!("{state}, {input}: {odd:?}"),
        };
        assert_eq!(seen, next, "{state}, {input}");
        let found = sessions.find(now, id.as_str(), ALICE);
        assert_eq!(found.is_some(), next != "gone", "{state}, {input}");
    }
}

#[test]
fn time_is_exact_and_the_longest_idle_goes_first() {
    let mut dice = Seeded::new(3);
    let mut sessions = Sessions::new(&small());
    let mut ids = Vec::new();
    for peer in 0..3 {
        let open = sessions.open(at(peer * 10), PeerId(peer as u32), ALICE, &mut dice);
        ids.push(open.expect("room"));
    }
    assert_eq!(
        sessions.find(at(50), ids[0].as_str(), ALICE),
        Some(PeerId(0))
    );
    // Idle since 10, 20, 50; nothing is due a moment before.
    assert_eq!(sessions.expire(at(109)), []);
    let due = Deadline::new(Uptime::from_millis(110), "an HTTP session is idle");
    assert_eq!(sessions.next_deadline(), Some(due));
    assert_eq!(
        sessions.find(at(110), ids[1].as_str(), ALICE),
        None,
        "past its time, even before it is taken out"
    );
    assert_eq!(sessions.find(at(110), ids[1].as_str(), ALICE), None);
    assert_eq!(sessions.next_deadline(), Some(due), "nothing revives it");
    let ended = sessions.expire(at(130));
    let peers: Vec<_> = ended.into_iter().map(|ended| ended.peer).collect();
    assert_eq!(peers, [PeerId(1), PeerId(2)]);
    assert_eq!(
        sessions.find(at(149), ids[0].as_str(), ALICE),
        Some(PeerId(0))
    );
    assert_eq!(sessions.expire(at(248)), []);
    assert_eq!(sessions.expire(at(249)).len(), 1);
    assert_eq!(sessions.next_deadline(), None);
    assert!(sessions.is_empty());
}

#[test]
fn what_still_carries_an_ended_session_is_named() {
    let (mut sessions, id) = opened(&small());
    sessions.attach(PEER, GET, A);
    let ended = sessions.expire(at(100));
    let carriers = vec![(GET, A)];
    assert_eq!(
        ended,
        [Ended {
            peer: PEER,
            carriers
        }],
        "an open GET keeps nothing alive"
    );
    assert_eq!(sessions.find(at(100), id.as_str(), ALICE), None);
    let (mut sessions, id) = opened(&small());
    let lost = sessions.new_stream(PEER, A).expect("room");
    let stream = sessions.new_stream(PEER, B).expect("room");
    sessions.detach(at(0), PEER, lost, A, Parting::Lost);
    let ended = sessions.close(id.as_str(), ALICE).expect("open");
    assert_eq!(ended.carriers, [(stream, B)]);
    assert_eq!(sessions.close(id.as_str(), ALICE), None, "once");
    assert_eq!(sessions.record(PEER, stream, b"late"), None);
    assert_eq!(sessions.attach(PEER, stream, A), Attach::NoStream);
    let late = sessions.new_stream(PEER, A);
    assert_eq!(late, Err(SessionError::NoSession));
    assert_eq!(sessions.carrier(PEER, stream), None);
    sessions.finish(PEER, stream);
    sessions.detach(at(0), PEER, stream, B, Parting::Clean);
    assert_eq!(sessions.take_dropped(PEER), 0);
}

fn state(sessions: &Sessions, stream: StreamId) -> &'static str {
    let stream = sessions
        .session(PEER)
        .expect("the session lives")
        .stream(stream);
    match stream.map(|stream| (stream.carrier.is_some(), stream.finished)) {
        None => "gone",
        Some((true, false)) => "attached",
        Some((false, false)) => "detached",
        Some((true, true)) => "closing",
        Some((false, true)) => "waiting",
    }
}

/// A stream in this state, with one event kept if asked for.
fn stream_in(sessions: &mut Sessions, state: &str, keeps: bool) -> StreamId {
    let stream = sessions.new_stream(PEER, A).expect("room");
    if keeps {
        sessions.record(PEER, stream, b"kept").expect("open");
    }
    if matches!(state, "detached" | "waiting") {
        sessions.detach(at(0), PEER, stream, A, Parting::Lost);
    }
    if matches!(state, "closing" | "waiting") {
        sessions.finish(PEER, stream);
    }
    stream
}

#[test]
fn a_stream_walks_its_table() {
    // State, whether an event is kept, input, state after it, what it said.
    let table = [
        ("attached", true, "record", "attached", "kept"),
        ("attached", true, "finish", "closing", ""),
        ("attached", false, "finish", "closing", ""),
        ("attached", true, "attach", "attached", "displaced"),
        ("attached", true, "lost", "detached", ""),
        ("attached", false, "lost", "detached", ""),
        ("attached", true, "clean", "detached", ""),
        ("attached", true, "bounds", "attached", ""),
        ("attached", true, "new streams", "attached", ""),
        ("detached", true, "record", "detached", "kept"),
        ("detached", true, "finish", "waiting", ""),
        ("detached", false, "finish", "gone", ""),
        ("detached", true, "attach", "attached", "attached"),
        ("detached", true, "lost", "detached", ""),
        ("detached", true, "clean", "detached", ""),
        ("detached", true, "bounds", "detached", ""),
        ("detached", true, "new streams", "detached", ""),
        ("closing", true, "record", "closing", "refused"),
        ("closing", true, "finish", "closing", ""),
        ("closing", true, "attach", "closing", "displaced"),
        ("closing", true, "lost", "waiting", ""),
        ("closing", false, "lost", "gone", ""),
        ("closing", true, "clean", "gone", ""),
        ("closing", false, "clean", "gone", ""),
        ("closing", true, "bounds", "closing", ""),
        ("closing", true, "new streams", "closing", ""),
        ("waiting", true, "record", "waiting", "refused"),
        ("waiting", true, "finish", "waiting", ""),
        ("waiting", true, "attach", "closing", "attached"),
        ("waiting", true, "lost", "waiting", ""),
        ("waiting", true, "clean", "waiting", ""),
        ("waiting", true, "bounds", "gone", ""),
        ("waiting", true, "new streams", "gone", ""),
    ];
    for (from, keeps, input, next, said) in table {
        let row = format!("{from} ({keeps}), {input}");
        let (mut sessions, _) = opened(&small());
        let stream = stream_in(&mut sessions, from, keeps);
        assert_eq!(state(&sessions, stream), from, "{row}");
        let seen = match input {
            "record" => match sessions.record(PEER, stream, b"more") {
                Some(id) => {
                    assert_eq!(id, EventId { stream, n: 2 }, "{row}");
                    "kept"
                }
                None => "refused",
            },
            "attach" => match sessions.attach(PEER, stream, B) {
                Attach::Attached => "attached",
                Attach::Displaced(before) => {
                    assert_eq!(before, A, "{row}");
                    "displaced"
                }
                Attach::NoStream => "none",
            },
            "finish" => {
                sessions.finish(PEER, stream);
                ""
            }
            "lost" => {
                sessions.detach(at(0), PEER, stream, A, Parting::Lost);
                ""
            }
            "clean" => {
                sessions.detach(at(0), PEER, stream, A, Parting::Clean);
                ""
            }
            "bounds" => {
                for _ in 0..4 {
                    sessions.record(PEER, GET, b"").expect("open");
                }
                ""
            }
            "new streams" => {
                while sessions.new_stream(PEER, B).is_ok() {}
                ""
            }
            other => panic!("{other} is no input"),
        };
        assert_eq!((state(&sessions, stream), seen), (next, said), "{row}");
        if next == "gone" {
            assert_eq!(after(&sessions, &format!("{}-0", stream.0)), None, "{row}");
            assert!(
                !sessions.session(PEER).expect("lives").log.holds(stream),
                "{row}"
            );
        }
    }
}

#[test]
fn the_late_end_of_one_exchange_is_not_the_end_of_its_successor() {
    let (mut sessions, _) = opened(&small());
    let stream = sessions.new_stream(PEER, A).expect("room");
    assert_eq!(sessions.attach(PEER, stream, B), Attach::Displaced(A));
    for parting in [Parting::Lost, Parting::Clean] {
        sessions.detach(at(0), PEER, stream, A, parting);
        assert_eq!(sessions.carrier(PEER, stream), Some(B));
    }
    sessions.finish(PEER, stream);
    sessions.detach(at(0), PEER, stream, A, Parting::Clean);
    assert_eq!(state(&sessions, stream), "closing");
    sessions.detach(at(0), PEER, stream, B, Parting::Clean);
    assert_eq!(state(&sessions, stream), "gone");
    // Of two GET streams one is served: the newer one.
    assert_eq!(sessions.attach(PEER, GET, A), Attach::Attached);
    assert_eq!(sessions.attach(PEER, GET, B), Attach::Displaced(A));
    sessions.detach(at(0), PEER, GET, A, Parting::Lost);
    assert_eq!(sessions.carrier(PEER, GET), Some(B));
}

#[test]
fn an_answer_of_a_lost_connection_is_fetched_once() {
    let (mut sessions, _) = opened(&small());
    let stream = sessions.new_stream(PEER, A).expect("room");
    assert_eq!(after(&sessions, "1-0"), Some(vec![]), "primed, no event");
    sessions.record(PEER, stream, b"halfway").expect("open");
    sessions.detach(at(0), PEER, stream, A, Parting::Lost);
    sessions.record(PEER, stream, b"answer").expect("open");
    sessions.finish(PEER, stream);
    assert_eq!(
        after(&sessions, "1-0"),
        Some(vec!["1-1 halfway".to_owned(), "1-2 answer".to_owned()])
    );
    let replay = sessions
        .replay_after(PEER, "1-1")
        .expect("the stream waits");
    assert_eq!((replay.after.stream, replay.after.n), (stream, 1));
    assert!(replay.finished);
    assert_eq!(replay.lost, 0);
    assert_eq!(replayed(Some(replay)), Some(vec!["1-2 answer".to_owned()]));
    assert_eq!(sessions.attach(PEER, stream, B), Attach::Attached);
    // This connection breaks as well: the answer stays.
    sessions.detach(at(0), PEER, stream, B, Parting::Lost);
    assert_eq!(after(&sessions, "1-1"), Some(vec!["1-2 answer".to_owned()]));
    assert_eq!(sessions.attach(PEER, stream, A), Attach::Attached);
    sessions.detach(at(0), PEER, stream, A, Parting::Clean);
    assert_eq!(after(&sessions, "1-1"), None, "delivered");
    assert_eq!(sessions.take_dropped(PEER), 0);
}

#[test]
fn a_stream_closed_early_by_us_is_resumed() {
    let (mut sessions, _) = opened(&small());
    let stream = sessions.new_stream(PEER, A).expect("room");
    sessions.detach(at(0), PEER, stream, A, Parting::Clean);
    assert_eq!(after(&sessions, "1-0"), Some(vec![]));
    assert_eq!(sessions.attach(PEER, stream, B), Attach::Attached);
    let replay = sessions.replay_after(PEER, "1-0").expect("open");
    assert!(!replay.finished, "the answer comes on this connection");
    assert_eq!(sessions.record(PEER, stream, b"answer").expect("open").n, 1);
    sessions.finish(PEER, stream);
    sessions.detach(at(0), PEER, stream, B, Parting::Clean);
    assert_eq!(state(&sessions, stream), "gone");
}

#[test]
fn no_id_opens_the_events_of_another_stream_or_session() {
    let (mut sessions, _) = opened(&small());
    let mut dice = Seeded::new(9);
    let other = PeerId(2);
    sessions
        .open(at(0), other, MALLORY, &mut dice)
        .expect("room");
    let one = sessions.new_stream(PEER, A).expect("room");
    let two = sessions.new_stream(PEER, B).expect("room");
    for (stream, payload) in [(one, "a"), (two, "b"), (GET, "c"), (one, "d")] {
        let payload = payload.as_bytes();
        sessions.record(PEER, stream, payload).expect("open");
    }
    assert_eq!(
        after(&sessions, "1-0"),
        Some(vec!["1-1 a".to_owned(), "1-2 d".to_owned()])
    );
    assert_eq!(after(&sessions, "1-1"), Some(vec!["1-2 d".to_owned()]));
    assert_eq!(after(&sessions, "1-2"), Some(vec![]));
    assert_eq!(after(&sessions, "2-0"), Some(vec!["2-1 b".to_owned()]));
    assert_eq!(after(&sessions, "0-0"), Some(vec!["0-1 c".to_owned()]));
    let unknown = [
        "1-3",
        "0-2",
        "3-0",
        "4294967295-0",
        "1-18446744073709551615",
        "",
        "1",
        "1-",
        "-1",
        "01-0",
        "1-+0",
        "1-0\n",
        "x",
    ];
    for id in unknown {
        assert_eq!(after(&sessions, id), None, "{id:?}");
    }
    for id in ["1-0", "1-1", "2-0", "0-1"] {
        assert!(
            sessions.replay_after(other, id).is_none(),
            "{id} is not of this session"
        );
    }
    assert_eq!(
        replayed(sessions.replay_after(other, "0-0")),
        Some(vec![]),
        "its own"
    );
    assert!(sessions.replay_after(PeerId(3), "0-0").is_none());
}

#[test]
fn events_before_the_first_get_reach_it() {
    let (mut sessions, _) = opened(&small());
    sessions.record(PEER, GET, b"early").expect("open");
    let replay = sessions.replay_unsent(PEER, GET).expect("always there");
    assert_eq!(replay.after.text().as_str(), "0-0", "primes with this");
    assert_eq!(replayed(Some(replay)), Some(vec!["0-1 early".to_owned()]));
    sessions.attach(PEER, GET, A);
    sessions.record(PEER, GET, b"live").expect("open");
    sessions.detach(at(0), PEER, GET, A, Parting::Lost);
    sessions.record(PEER, GET, b"late").expect("open");
    let replay = sessions.replay_unsent(PEER, GET);
    assert_eq!(replayed(replay), Some(vec!["0-3 late".to_owned()]));
    assert_eq!(after(&sessions, "0-1").expect("known").len(), 2);
    sessions.finish(PEER, GET);
    assert_eq!(state(&sessions, GET), "detached", "it has no end");
    assert!(sessions.replay_unsent(PEER, StreamId(1)).is_none());
}

#[test]
fn events_are_kept_up_to_their_number_and_the_oldest_goes_first() {
    for (count, kept_from, lost) in [(3, 1, 0), (4, 1, 0), (5, 2, 1), (9, 6, 5)] {
        let (mut sessions, _) = opened(&small());
        for n in 1..=count {
            let id = sessions.record(PEER, GET, b"x").expect("open");
            assert_eq!(id, EventId { stream: GET, n });
        }
        let replay = sessions.replay_after(PEER, "0-0").expect("known");
        assert_eq!(replay.lost, lost, "{count}");
        let ids: Vec<u64> = replay.map(|(id, _)| id.n).collect();
        assert_eq!(ids, (kept_from..=count).collect::<Vec<_>>());
        assert_eq!(sessions.take_dropped(PEER), lost);
        assert_eq!(sessions.take_dropped(PEER), 0, "reported once");
        let last = format!("0-{}", kept_from - 1);
        assert_eq!(sessions.replay_after(PEER, &last).expect("known").lost, 0);
    }
}

#[test]
fn events_are_kept_up_to_their_bytes_and_a_longer_one_not_at_all() {
    let payload = [b'x'; 21];
    for (last, kept, dropped) in [(9, 2, 0), (10, 2, 0), (11, 1, 1), (20, 1, 1), (21, 1, 1)] {
        let (mut sessions, _) = opened(&small());
        sessions.record(PEER, GET, &payload[..10]).expect("open");
        let id = sessions.record(PEER, GET, &payload[..last]);
        assert_eq!(id.expect("open").n, 2, "even when it is not kept");
        let lengths: Vec<_> = sessions
            .replay_after(PEER, "0-0")
            .expect("known")
            .map(|(_, payload)| payload.len())
            .collect();
        assert_eq!(lengths.len(), kept, "{last}");
        let newest_stays = last <= 20;
        assert_eq!(lengths.last(), Some(&if newest_stays { last } else { 10 }));
        assert_eq!(sessions.take_dropped(PEER), dropped, "{last}");
        // The bytes of what went are free again.
        sessions.record(PEER, GET, &payload[..20]).expect("open");
        let all: Vec<_> = sessions.replay_after(PEER, "0-0").expect("known").collect();
        assert_eq!(all.len(), 1);
    }
}

#[test]
fn an_event_that_was_sent_before_it_went_is_no_loss() {
    let (mut sessions, _) = opened(&small());
    sessions.attach(PEER, GET, A);
    for _ in 0..10 {
        sessions.record(PEER, GET, b"x").expect("open");
    }
    sessions.record(PEER, GET, &[0; 21]).expect("open");
    sessions.detach(at(0), PEER, GET, A, Parting::Lost);
    assert_eq!(sessions.take_dropped(PEER), 0);
    let replay = sessions.replay_after(PEER, "0-0").expect("known");
    assert_eq!(replay.lost, 7, "but a client that shows an old id is told");
    for _ in 0..6 {
        sessions.record(PEER, GET, b"y").expect("open");
    }
    assert_eq!(sessions.take_dropped(PEER), 2, "never sent");
    sessions.attach(PEER, GET, B);
    sessions.detach(at(0), PEER, GET, B, Parting::Lost);
    for _ in 0..4 {
        sessions.record(PEER, GET, b"z").expect("open");
    }
    assert_eq!(sessions.take_dropped(PEER), 0, "replayed before they went");
}

#[test]
fn an_answer_nobody_fetches_goes_with_its_events_and_frees_them() {
    let (mut sessions, _) = opened(&small());
    let stream = stream_in(&mut sessions, "detached", false);
    sessions.record(PEER, stream, b"one").expect("open");
    sessions.record(PEER, stream, b"two").expect("open");
    sessions.finish(PEER, stream);
    for _ in 0..3 {
        sessions.record(PEER, GET, b"x").expect("open");
    }
    assert_eq!(after(&sessions, "1-0"), Some(vec!["1-2 two".to_owned()]));
    sessions.record(PEER, GET, b"x").expect("open");
    assert_eq!(after(&sessions, "1-0"), None);
    assert_eq!(sessions.take_dropped(PEER), 2);
    // An answer that is too long to be kept is gone with its connection.
    let stream = stream_in(&mut sessions, "detached", false);
    sessions.record(PEER, stream, &[0; 21]).expect("open");
    sessions.finish(PEER, stream);
    assert_eq!(state(&sessions, stream), "gone");
    assert_eq!(sessions.take_dropped(PEER), 1);
}

#[test]
fn the_number_of_streams_has_a_limit_and_an_unfetched_answer_makes_room() {
    let (mut sessions, _) = opened(&small());
    for number in 1..=3 {
        let stream = sessions.new_stream(PEER, A).expect("room");
        assert_eq!(stream, StreamId(number));
    }
    let error = sessions.new_stream(PEER, A).expect_err("one too many");
    assert_eq!(error, SessionError::StreamsFull { limit: 3 });
    assert_eq!(error.retry_after_s(), Some(1));
    assert_eq!(
        error.to_string(),
        "too many open streams: 3 of this session wait for an answer, limit 3 \
         (streams_per_session_max); try again in 1 s"
    );
    // Two unfetched answers; the older one goes, the one on its way does not.
    sessions.finish(PEER, StreamId(1));
    for stream in [StreamId(2), StreamId(3)] {
        sessions.detach(at(0), PEER, stream, A, Parting::Lost);
        sessions.record(PEER, stream, b"answer").expect("open");
        sessions.finish(PEER, stream);
    }
    assert_eq!(sessions.new_stream(PEER, B), Ok(StreamId(4)));
    assert_eq!(state(&sessions, StreamId(1)), "closing");
    assert_eq!(state(&sessions, StreamId(2)), "gone");
    assert_eq!(state(&sessions, StreamId(3)), "waiting");
    assert_eq!(sessions.take_dropped(PEER), 1);
    sessions.detach(at(0), PEER, StreamId(1), A, Parting::Clean);
    assert_eq!(sessions.new_stream(PEER, B), Ok(StreamId(5)));
    assert_eq!(state(&sessions, StreamId(3)), "waiting", "there was room");
}

#[test]
fn errors_that_no_waiting_helps_name_no_time() {
    for error in [
        SessionError::NoSession,
        SessionError::PeerTaken,
        SessionError::IdTaken,
    ] {
        assert_eq!(error.retry_after_s(), None);
        assert!(!error.to_string().contains("again"), "{error}");
    }
}
