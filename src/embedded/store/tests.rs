use super::*;
use crate::clock::Uptime;
use crate::embedded::journal::DecisionRecord;
use crate::embedded::journal::{ApprovalKind, ApprovalRecord, Decision};
use serde_json::value::RawValue;

const NOW: Now = Now {
    up: Uptime::from_millis(1_000),
    unix_ms: 1_000_000,
};

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).expect("valid")
}

fn say(store: &mut Store, key: &str, text: &str) {
    say_once(store, key, text, None, NOW);
}

fn say_once(store: &mut Store, key: &str, text: &str, once: Option<&str>, now: Now) {
    let seq = store.next_seq(key);
    let record = MessageRecord {
        key: key.to_owned(),
        id: format!("{key}-{seq}"),
        seq,
        role: "user".to_owned(),
        content: content::string(text),
        at_ms: now.unix_ms,
        model: None,
        idempotency_key: once.map(str::to_owned),
        sent_by: None,
    };
    store.commit(now, Record::Message(record)).expect("written");
}

fn full_store() -> Store {
    let mut store = Store::new(&Limits::default(), true);
    let record = ConversationRecord {
        key: "a".to_owned(),
        session_id: "s".to_owned(),
        at_ms: 1,
        label: Some("L".to_owned()),
        display_name: None,
        route: None,
    };
    store
        .commit(NOW, Record::Conversation(record))
        .expect("written");
    say(&mut store, "a", "one");
    say(&mut store, "a", "two");
    for id in ["x", "y"] {
        let record = ApprovalRecord {
            kind: ApprovalKind::Exec,
            id: id.to_owned(),
            request: raw("{}"),
            allowed: Decision::ALL.to_vec(),
            created_at_ms: NOW.unix_ms,
            expires_at_ms: NOW.unix_ms + 60_000,
            device: None,
        };
        store
            .commit(NOW, Record::Approval(record))
            .expect("written");
    }
    let record = DecisionRecord {
        kind: ApprovalKind::Exec,
        id: "y".to_owned(),
        decision: Decision::Deny,
        by: None,
        at_ms: NOW.unix_ms,
    };
    store
        .commit(NOW, Record::Decision(record))
        .expect("written");
    let record = DeviceRecord {
        id: "d".to_owned(),
        token: "t".to_owned(),
        scopes: vec!["operator.read".to_owned()],
        at_ms: NOW.unix_ms,
    };
    store.commit(NOW, Record::Device(record)).expect("written");
    store
}

fn replay(bytes: &[u8]) -> (Store, Replay) {
    Store::replay(&Limits::default(), true, NOW, bytes).expect("known version")
}

/// All that a store says about itself, without what is yet to be written.
fn picture(mut store: Store) -> String {
    store.unwritten.clear();
    store.torn = false;
    format!("{store:?}")
}

#[test]
fn a_replay_gives_the_same_store() {
    let mut store = full_store();
    let journal = store.take_unwritten().expect("lines");
    let (again, found) = replay(&journal);
    assert_eq!((found.applied, found.damaged, found.cut_bytes), (8, 0, 0));
    assert_eq!(picture(again), picture(store));
}

#[test]
fn a_journal_cut_anywhere_loses_at_most_its_last_record() {
    let journal = full_store().take_unwritten().expect("lines");
    for end in 0..=journal.len() {
        let (mut store, found) = replay(&journal[..end]);
        let whole = journal[..end].iter().filter(|b| **b == b'\n').count();
        let whole = u64::try_from(whole).expect("small");
        // A line that lacks nothing but its newline counts.
        assert!(
            (whole..=whole + 1).contains(&found.applied),
            "cut at {end}: {found}"
        );
        assert_eq!(found.damaged, 0, "cut at {end}: {found}");
        // What is written next starts on a line of its own.
        say(&mut store, "b", "after");
        let mut longer = journal[..end].to_vec();
        longer.extend(store.take_unwritten().expect("lines"));
        let (again, later) = replay(&longer);
        assert_eq!(again.next_seq("b"), 2, "cut at {end}");
        assert_eq!(
            later.damaged,
            u64::from(found.cut_bytes > 0),
            "cut at {end}"
        );
    }
}

#[test]
fn a_damaged_line_costs_itself_alone() {
    let mut store = Store::new(&Limits::default(), true);
    for text in ["one", "two", "three"] {
        say(&mut store, "a", text);
    }
    let mut journal = store.take_unwritten().expect("lines");
    let at = journal.windows(3).position(|w| w == b"two").expect("there");
    journal[at] = b'X';
    let (mut store, found) = replay(&journal);
    assert_eq!((found.applied, found.damaged), (3, 1));
    let seqs = |store: &Store| -> Vec<u64> {
        let conversation = store.conversation("a").expect("there");
        conversation.messages.iter().map(|m| m.seq).collect()
    };
    assert_eq!(seqs(&store), [1, 3], "the gap stays, nothing is renumbered");
    say(&mut store, "a", "four");
    assert_eq!(seqs(&store), [1, 3, 4]);
}

#[test]
fn another_version_is_not_read() {
    let mut journal = Vec::new();
    let header = StoreRecord {
        version: JOURNAL_VERSION + 1,
        at_ms: 0,
    };
    journal::write_line(&mut journal, &Record::Store(header));
    let read = Store::replay(&Limits::default(), true, NOW, &journal);
    assert_eq!(read.map(|_| ()), Err(JOURNAL_VERSION + 1));
}

#[test]
fn the_oldest_messages_leave_memory_at_the_limit() {
    let limits = Limits {
        embedded_messages_max: 3,
        ..Limits::default()
    };
    let mut store = Store::new(&limits, true);
    for n in 1..=3 {
        say(&mut store, "a", &n.to_string());
    }
    assert_eq!(store.conversation("a").expect("there").messages.len(), 3);
    say(&mut store, "a", "4");
    let conversation = store.conversation("a").expect("there");
    let seqs: Vec<_> = conversation.messages.iter().map(|m| m.seq).collect();
    assert_eq!(seqs, [2, 3, 4]);
    assert_eq!(
        conversation.first_words.as_deref(),
        Some("1"),
        "the title stays"
    );
}

#[test]
fn the_oldest_messages_of_all_conversations_leave_memory_by_bytes() {
    let mut store = Store::new(&Limits::default(), true);
    store.bytes_max = 30;
    // Ten bytes each with the quotes.
    say(&mut store, "a", "aaaaaaaa");
    say(&mut store, "b", "bbbbbbbb");
    say(&mut store, "a", "cccccccc");
    assert_eq!(store.messages_kept, 3);
    say(&mut store, "b", "dddddddd");
    assert_eq!((store.messages_kept, store.bytes_kept), (3, 30));
    assert_eq!(store.conversation("a").expect("there").messages.len(), 1);
    say(&mut store, "c", &"e".repeat(100));
    assert_eq!(store.messages_kept, 1, "the newest stays, however long");
    for _ in 0..5_000 {
        say(&mut store, "a", "ffffffff");
    }
    assert!(store.by_age.len() <= 2 * store.messages_kept + 1_024);
}

#[test]
fn an_answer_is_remembered_for_five_minutes() {
    let mut store = Store::new(&Limits::default(), true);
    say_once(&mut store, "a", "x", Some("k"), NOW);
    let later = |ms: i64| Now {
        up: NOW.up,
        unix_ms: NOW.unix_ms + ms,
    };
    let seq = |now| store.answered(now, "user", "k").map(|a| a.seq);
    assert_eq!(seq(later(ANSWER_TTL_MS - 1)), Some(1));
    assert_eq!(seq(later(ANSWER_TTL_MS)), None);
    assert!(
        store.answered(NOW, "assistant", "k").is_none(),
        "of another role"
    );
    say_once(&mut store, "a", "y", Some("k"), later(ANSWER_TTL_MS));
    assert_eq!(
        store
            .answered(later(ANSWER_TTL_MS), "user", "k")
            .map(|a| a.seq),
        Some(2)
    );
    assert_eq!(store.answers_by_age.len(), 1);
}

#[test]
fn room_for_conversations_ends_at_the_limit() {
    let limits = Limits {
        embedded_sessions_max: 1,
        ..Limits::default()
    };
    let mut store = Store::new(&limits, true);
    assert_eq!(store.check_room(), Ok(()));
    say(&mut store, "a", "x");
    let refused = store.check_room().expect_err("full");
    assert!(
        refused.message.contains("embedded_sessions_max 1"),
        "{refused}"
    );
}

#[test]
fn the_device_paired_longest_ago_is_forgotten_at_the_limit() {
    let mut store = Store::new(&Limits::default(), true);
    for n in 0..=DEVICES_MAX {
        let record = DeviceRecord {
            id: format!("{n}"),
            token: String::new(),
            scopes: Vec::new(),
            at_ms: i64::try_from(n).expect("small"),
        };
        store.commit(NOW, Record::Device(record)).expect("written");
    }
    assert!(store.device("0").is_none());
    assert!(store.device("1").is_some());
}

#[test]
fn a_store_in_memory_writes_nothing() {
    let mut store = Store::new(&Limits::default(), false);
    say(&mut store, "a", "x");
    assert_eq!(store.take_unwritten(), None);
    assert_eq!(store.next_seq("a"), 2);
}

#[test]
fn nothing_changes_once_the_journal_cannot_be_written() {
    let mut store = full_store();
    store.close_for_writing("disk full");
    assert_eq!(store.take_unwritten(), None);
    let record = StoreRecord {
        version: 1,
        at_ms: 0,
    };
    let refused = store
        .commit(NOW, Record::Store(record))
        .expect_err("read-only");
    assert_eq!(refused.code, "UNAVAILABLE");
    assert!(refused.message.contains("disk full"), "{refused}");
    assert_eq!(store.take_unwritten(), None);
}
