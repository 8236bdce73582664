//! The approvals that wait for somebody's decision, and those decided lately.
//!
//! | state    | input                | next      | answer to a later `resolve`                |
//! |----------|----------------------|-----------|--------------------------------------------|
//! | –        | request              | pending   |                                            |
//! | pending  | decision             | resolved  | same decision: ok; another: already resolved |
//! | pending  | time is up           | forgotten | unknown or expired                         |
//! | resolved | room is needed       | forgotten | unknown or expired                         |
//!
//! Source: OpenClaw `exec.approval.*`, `plugin.approval.*` (openclaw-serve §1.8). Unlike there, what
//! waits survives a restart.
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
