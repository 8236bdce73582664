//! The approvals that wait for somebody's decision, and those decided lately.
//!
//! | state    | input                | next      | answer to a later `resolve`                |
//! |----------|----------------------|-----------|--------------------------------------------|
//! | –        | request              | pending   |                                            |
//! | pending  | decision             | resolved  | same decision: ok; another: already resolved |
//! | pending  | time is up           | forgotten | unknown or expired                         |
//! | resolved | room is needed       | forgotten | unknown or expired                         |
//!
//! Source: OpenClaw `exec.approval.*`, `plugin.approval.*` (openclaw-serve §1.8). Unlike there,
//! what waits survives a restart, and it waits whether or not somebody is connected who could
//! decide.
//! Never: sends an event.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use super::journal::{ApprovalKind, ApprovalRecord, Decision, DecisionRecord};
use crate::clock::{Deadline, Now, Uptime};

/// Longest life of an approval; a stamp further ahead is taken as this.
const LIFE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// An approval, pending or resolved.
#[derive(Debug)]
pub(super) struct Approval {
    /// A JSON object.
    pub(super) request: Box<str>,
    pub(super) allowed: Vec<Decision>,
    pub(super) created_at_ms: i64,
    pub(super) expires_at_ms: i64,
    /// Device of the requester; `None` when the Gateway itself asked.
    pub(super) device: Option<String>,
    pub(super) decision: Option<Decision>,
    due: Uptime,
}

/// An approval that nobody decided in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lapsed {
    pub(super) kind: ApprovalKind,
    pub(super) id: String,
    pub(super) created_at_ms: i64,
    pub(super) expires_at_ms: i64,
}

/// What an id or the beginning of one stands for.
#[derive(Debug)]
pub(super) enum Found<'a> {
    /// This approval, by its full id.
    One(&'a str, &'a Approval),
    /// Several begin so.
    Ambiguous,
    /// None.
    Nothing,
}

type Key = (ApprovalKind, String);

/// See the module.
#[derive(Debug)]
pub(super) struct ApprovalTable {
    kept_max: usize,
    pending: BTreeMap<Key, Approval>,
    resolved: BTreeMap<Key, Approval>,
    resolved_by_age: VecDeque<Key>,
}

impl ApprovalTable {
    pub(super) fn new(kept_max: usize) -> Self {
        Self {
            kept_max: kept_max.max(1),
            pending: BTreeMap::new(),
            resolved: BTreeMap::new(),
            resolved_by_age: VecDeque::new(),
        }
    }

    pub(super) fn apply_request(&mut self, now: Now, record: ApprovalRecord) {
        let key = (record.kind, record.id);
        if self.resolved.remove(&key).is_some() {
            self.resolved_by_age.retain(|known| *known != key);
        }
        let approval = Approval {
            request: Box::<str>::from(record.request),
            allowed: record.allowed,
            created_at_ms: record.created_at_ms,
            expires_at_ms: record.expires_at_ms,
            device: record.device,
            decision: None,
            due: now.until_unix_ms(record.expires_at_ms, LIFE_MAX),
        };
        // A replay meets approvals that ran out long ago, and more than ever waited at once.
        if self.pending.len() >= self.kept_max {
            self.pending.retain(|_, approval| approval.due > now.up);
        }
        self.pending.insert(key, approval);
    }

    pub(super) fn apply_decision(&mut self, record: DecisionRecord) {
        let key = (record.kind, record.id);
        let Some(mut approval) = self.pending.remove(&key) else {
            return; // Its request was in a damaged line, or it is decided already.
        };
        approval.decision = Some(record.decision);
        self.resolved.insert(key.clone(), approval);
        self.resolved_by_age.push_back(key);
        while self.resolved_by_age.len() > self.kept_max {
            if let Some(oldest) = self.resolved_by_age.pop_front() {
                self.resolved.remove(&oldest);
            }
        }
    }

    /// How many wait.
    pub(super) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Whether no more may wait.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= self.kept_max
    }

    /// Most that may wait.
    pub(super) const fn kept_max(&self) -> usize {
        self.kept_max
    }

    /// The approval with exactly this id, waiting or resolved.
    pub(super) fn get(&self, kind: ApprovalKind, id: &str) -> Option<&Approval> {
        let key = (kind, id.to_owned());
        self.pending.get(&key).or_else(|| self.resolved.get(&key))
    }

    /// The waiting approval meant by `id` among those `visible`.
    pub(super) fn find_pending(
        &self,
        kind: ApprovalKind,
        id: &str,
        visible: &dyn Fn(&Approval) -> bool,
    ) -> Found<'_> {
        find([&self.pending].into_iter(), kind, id, visible)
    }

    /// The approval meant by `id` among all that are `visible`, resolved ones included.
    pub(super) fn find_any(
        &self,
        kind: ApprovalKind,
        id: &str,
        visible: &dyn Fn(&Approval) -> bool,
    ) -> Found<'_> {
        find(
            [&self.pending, &self.resolved].into_iter(),
            kind,
            id,
            visible,
        )
    }

    /// The waiting approvals of a kind, oldest first.
    pub(super) fn pending(&self, kind: ApprovalKind) -> Vec<(&str, &Approval)> {
        let mut found: Vec<_> = self
            .pending
            .iter()
            .filter(|((of, _), _)| *of == kind)
            .map(|((_, id), approval)| (id.as_str(), approval))
            .collect();
        found.sort_by_key(|(_, approval)| approval.created_at_ms);
        found
    }

    /// Lets go of those whose time is up.
    pub(super) fn forget_lapsed(&mut self, now: Now) -> Vec<Lapsed> {
        let mut lapsed = Vec::new();
        self.pending.retain(|(kind, id), approval| {
            let stays = approval.due > now.up;
            if !stays {
                lapsed.push(Lapsed {
                    kind: *kind,
                    id: id.clone(),
                    created_at_ms: approval.created_at_ms,
                    expires_at_ms: approval.expires_at_ms,
                });
            }
            stays
        });
        lapsed
    }

    /// When the next one runs out.
    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let due = self.pending.values().map(|approval| approval.due).min()?;
        Some(Deadline::new(due, "approval expires"))
    }
}

fn find<'a>(
    tables: impl Iterator<Item = &'a BTreeMap<Key, Approval>>,
    kind: ApprovalKind,
    id: &str,
    visible: &dyn Fn(&Approval) -> bool,
) -> Found<'a> {
    let id = id.trim();
    if id.is_empty() {
        return Found::Nothing;
    }
    let start = (kind, id.to_owned());
    let matches = tables
        .flat_map(|table| {
            let from = (Bound::Included(&start), Bound::Unbounded);
            table
                .range::<Key, _>(from)
                .take_while(|((of, known), _)| *of == kind && known.starts_with(id))
        })
        .filter(|(_, approval)| visible(approval));
    let mut first = None;
    let mut several = false;
    for ((_, known), approval) in matches {
        if known == id {
            return Found::One(known, approval);
        }
        several |= first.is_some();
        first.get_or_insert((known, approval));
    }
    match first {
        Some(_) if several => Found::Ambiguous,
        Some((known, approval)) => Found::One(known, approval),
        None => Found::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    const EXEC: ApprovalKind = ApprovalKind::Exec;

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: i64::try_from(ms).expect("small"),
        }
    }

    fn ask(table: &mut ApprovalTable, now: Now, kind: ApprovalKind, id: &str, device: &str) {
        let record = ApprovalRecord {
            kind,
            id: id.to_owned(),
            request: RawValue::from_string("{}".to_owned()).expect("valid"),
            allowed: Decision::ALL.to_vec(),
            created_at_ms: now.unix_ms,
            expires_at_ms: now.unix_ms + 1_000,
            device: Some(device.to_owned()),
        };
        table.apply_request(now, record);
    }

    fn decide(table: &mut ApprovalTable, id: &str) {
        table.apply_decision(DecisionRecord {
            kind: EXEC,
            id: id.to_owned(),
            decision: Decision::Deny,
            by: None,
            at_ms: 0,
        });
    }

    fn pending(table: &ApprovalTable, id: &str) -> String {
        say(&table.find_pending(EXEC, id, &|a| a.device.as_deref() == Some("me")))
    }

    fn any(table: &ApprovalTable, id: &str) -> String {
        say(&table.find_any(EXEC, id, &|_| true))
    }

    fn say(found: &Found<'_>) -> String {
        match found {
            Found::One(id, approval) if approval.decision.is_some() => format!("{id} resolved"),
            Found::One(id, _) => format!("{id} pending"),
            Found::Ambiguous => "ambiguous".to_owned(),
            Found::Nothing => "nothing".to_owned(),
        }
    }

    #[test]
    fn the_state_table() {
        let mut table = ApprovalTable::new(2);
        assert_eq!(pending(&table, "a"), "nothing");
        ask(&mut table, at(0), EXEC, "a", "me");
        assert_eq!(pending(&table, "a"), "a pending");
        decide(&mut table, "a");
        assert_eq!(
            (pending(&table, "a"), any(&table, "a")),
            ("nothing".into(), "a resolved".into())
        );
        decide(&mut table, "a");
        assert_eq!(
            any(&table, "a"),
            "a resolved",
            "a second decision changes nothing"
        );
        ask(&mut table, at(0), EXEC, "b", "me");
        assert_eq!(
            table.next_deadline().map(|d| d.at),
            Some(Uptime::from_millis(1_000))
        );
        assert_eq!(table.forget_lapsed(at(999)), []);
        let lapsed = table.forget_lapsed(at(1_000));
        assert_eq!(
            lapsed.iter().map(|l| l.id.as_str()).collect::<Vec<_>>(),
            ["b"]
        );
        assert_eq!(
            (any(&table, "b"), table.next_deadline()),
            ("nothing".into(), None)
        );
        for id in ["c", "d"] {
            ask(&mut table, at(0), EXEC, id, "me");
            decide(&mut table, id);
        }
        assert_eq!(any(&table, "a"), "nothing", "two are remembered");
        assert_eq!(any(&table, "c"), "c resolved");
        ask(&mut table, at(0), EXEC, "c", "me");
        assert_eq!(any(&table, "c"), "c pending", "the id is used again");
    }

    #[test]
    fn prefixes_are_unique_among_what_is_visible() {
        let mut table = ApprovalTable::new(9);
        ask(&mut table, at(0), EXEC, "ab", "me");
        ask(&mut table, at(0), EXEC, "abc", "other");
        ask(&mut table, at(0), ApprovalKind::Plugin, "abd", "me");
        assert_eq!(
            pending(&table, "a"),
            "ab pending",
            "the other two are not meant"
        );
        ask(&mut table, at(0), EXEC, "abe", "me");
        assert_eq!(pending(&table, "a"), "ambiguous");
        assert_eq!(
            pending(&table, " ab "),
            "ab pending",
            "a whole id wins over longer ones"
        );
        assert_eq!(pending(&table, "abe"), "abe pending");
        assert_eq!(pending(&table, "abc"), "nothing");
        assert_eq!(pending(&table, ""), "nothing");
        decide(&mut table, "ab");
        assert_eq!(
            pending(&table, "a"),
            "abe pending",
            "resolved ones do not count"
        );
    }

    #[test]
    fn a_replay_of_many_expired_ones_stays_within_the_limit() {
        let mut table = ApprovalTable::new(3);
        for n in 0..10 {
            let record = ApprovalRecord {
                kind: EXEC,
                id: n.to_string(),
                request: RawValue::from_string("{}".to_owned()).expect("valid"),
                allowed: Vec::new(),
                created_at_ms: 0,
                expires_at_ms: 0,
                device: None,
            };
            table.apply_request(at(5_000), record);
        }
        assert!(table.pending_count() <= 3);
    }
}
