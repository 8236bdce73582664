//! Approvals that nobody has decided yet.
//!
//! | input | effect on the entry with this id |
//! |---|---|
//! | requested | tracked; a second request with the same id, of either kind, takes its place |
//! | requested or listed when its time is up already | gone, and no other entry goes for it |
//! | resolved, either kind | gone |
//! | its time is up | gone, without an event |
//! | listed by the Gateway, unknown here | tracked, without an event |
//! | not in the Gateway's list any more | gone, without an event, if it was tracked before we asked |
//! | more than `approvals_pending_max` | the one tracked longest goes |
//!
//! An expiry stated by the Gateway is turned into a deadline once, on arrival; without one an entry
//! lives for `approval_ttl`. OpenClaw: `openclaw-serve` §3.6; there expired entries are swept every
//! 5 minutes, the number has no bound, and approvals from before or during a lost connection are
//! never seen.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::raw_json::{is_object, number, text, write_raw};
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::json_text::write_string;
use crate::limits::Limits;

/// Which of the two approval systems of the Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Running a command.
    Exec,
    /// Something a plugin wants to do.
    Plugin,
}

impl Kind {
    /// Its name in tools and results.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::Plugin => "plugin",
        }
    }

    /// The Gateway method that lists what is pending.
    pub(super) const fn list_method(self) -> &'static str {
        match self {
            Self::Exec => "exec.approval.list",
            Self::Plugin => "plugin.approval.list",
        }
    }

    /// The Gateway method that decides.
    pub(super) const fn resolve_method(self) -> &'static str {
        match self {
            Self::Exec => "exec.approval.resolve",
            Self::Plugin => "plugin.approval.resolve",
        }
    }
}

/// The payload of a `requested` or `resolved` event, and an entry of the Gateway's list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    request: Option<&'a RawValue>,
    #[serde(borrow)]
    created_at_ms: Option<&'a RawValue>,
    #[serde(borrow)]
    expires_at_ms: Option<&'a RawValue>,
}

/// The raw members keep the Gateway's bytes.
#[derive(Debug)]
struct Approval {
    kind: Kind,
    request: Option<Box<RawValue>>,
    created_at_ms: Option<Box<RawValue>>,
    expires_at_ms: Option<Box<RawValue>>,
    /// Place among equals in a listing; an entry that takes the place of another keeps it.
    place: u64,
    /// When it was tracked, counted in arrivals.
    arrival: u64,
    /// It is of our own gate, which tells when it is gone.
    held: bool,
    due: Uptime,
}

impl Approval {
    fn created(&self) -> f64 {
        self.created_at_ms
            .as_deref()
            .and_then(number)
            .unwrap_or(0.0)
    }

    fn bytes(&self) -> usize {
        self.request
            .as_deref()
            .map_or(0, |request| request.get().len())
    }
}

/// A record without an id that is text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoId;

/// Farthest expiry that is believed. A stamp beyond it would only keep an entry that the count
/// bound can push out anyway.
const EXPIRY_AT_MOST: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Bytes of pending requests kept; the one tracked longest goes first. A thousand ordinary requests
/// are far below it.
const PENDING_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The pending approvals by id. Exec and plugin approvals share the table, as in OpenClaw.
#[derive(Debug)]
pub(super) struct Approvals {
    pending: BTreeMap<String, Approval>,
    bytes: usize,
    arrivals: u64,
    evicted: u64,
    count_max: usize,
    ttl: Duration,
}

impl Approvals {
    /// An empty table.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            pending: BTreeMap::new(),
            bytes: 0,
            arrivals: 0,
            evicted: 0,
            count_max: limits.approvals_pending_max,
            ttl: limits.approval_ttl,
        }
    }

    /// Tracks an approval.
    ///
    /// # Errors
    /// When it has no id.
    pub(super) fn requested(
        &mut self,
        now: Now,
        kind: Kind,
        payload: &RawValue,
    ) -> Result<(), NoId> {
        let (id, record) = read(payload)?;
        self.insert(now, kind, id, &record, false);
        Ok(())
    }

    /// Tracks a call that our gate holds.
    ///
    /// # Errors
    /// When it has no id.
    pub(super) fn held(&mut self, now: Now, payload: &RawValue) -> Result<(), NoId> {
        let (id, record) = read(payload)?;
        self.insert(now, Kind::Plugin, id, &record, true);
        Ok(())
    }

    /// Forgets one.
    pub(super) fn forget(&mut self, id: &str) {
        self.remove(id);
    }

    /// Forgets a decided approval.
    ///
    /// # Errors
    /// When the payload has no id.
    pub(super) fn resolved(&mut self, payload: &RawValue) -> Result<(), NoId> {
        let (id, _) = read(payload)?;
        self.remove(&id);
        Ok(())
    }

    /// The moment from which on approvals count as new, for [`Approvals::listed`].
    pub(super) const fn mark(&self) -> u64 {
        self.arrivals
    }

    /// Merges what the Gateway says is pending of one kind, as asked for at `mark`. Returns how
    /// many entries had no id.
    ///
    /// Those that are `ours` stand in the table already, by another id.
    pub(super) fn listed(
        &mut self,
        now: Now,
        kind: Kind,
        mark: u64,
        list: &[&RawValue],
        ours: impl Fn(&str) -> bool,
    ) -> usize {
        let mut unreadable = 0;
        let mut alive = BTreeSet::new();
        for entry in list {
            match read(entry) {
                Ok((id, _)) if ours(&id) => {}
                Ok((id, record)) => {
                    if !self.pending.contains_key(&id) {
                        self.insert(now, kind, id.clone(), &record, false);
                    }
                    alive.insert(id);
                }
                Err(NoId) => unreadable += 1,
            }
        }
        let Self { pending, bytes, .. } = self;
        pending.retain(|id, approval| {
            let known = approval.held || approval.arrival >= mark || alive.contains(id);
            let gone = approval.kind == kind && !known;
            if gone {
                *bytes -= approval.bytes();
            }
            !gone
        });
        unreadable
    }

    fn insert(&mut self, now: Now, kind: Kind, id: String, record: &Record<'_>, held: bool) {
        let replaced = self.remove(&id);
        let expires = record.expires_at_ms.filter(|raw| number(raw).is_some());
        let due = match expires.and_then(number) {
            // A float cast saturates, and a stamp beyond i64 is clamped in any case.
            #[expect(clippy::cast_possible_truncation, reason = "saturates; clamped below")]
            Some(stamp) => now.until_unix_ms(stamp.ceil() as i64, EXPIRY_AT_MOST),
            None => now.after(self.ttl),
        };
        if due <= now.up {
            return;
        }
        let approval = Approval {
            kind,
            request: record
                .request
                .filter(|raw| is_object(raw))
                .map(ToOwned::to_owned),
            created_at_ms: record
                .created_at_ms
                .filter(|raw| number(raw).is_some())
                .map(ToOwned::to_owned),
            expires_at_ms: expires.map(ToOwned::to_owned),
            place: replaced.map_or(self.arrivals, |old| old.place),
            arrival: self.arrivals,
            held,
            due,
        };
        self.arrivals += 1;
        self.bytes += approval.bytes();
        self.pending.insert(id, approval);
        while self.pending.len() > self.count_max
            || (self.bytes > PENDING_BYTES_MAX && self.pending.len() > 1)
        {
            let oldest = self
                .pending
                .iter()
                .min_by_key(|(_, approval)| approval.arrival);
            let Some(id) = oldest.map(|(id, _)| id.clone()) else {
                break;
            };
            self.remove(&id);
            self.evicted += 1;
        }
    }

    fn remove(&mut self, id: &str) -> Option<Approval> {
        let gone = self.pending.remove(id)?;
        self.bytes -= gone.bytes();
        Some(gone)
    }

    /// How many were pushed out by newer ones, ever.
    pub(super) const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// How many are pending.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Forgets those whose time is up.
    pub(super) fn expire(&mut self, now: Now) {
        let Self { pending, bytes, .. } = self;
        pending.retain(|_, approval| {
            let alive = approval.due > now.up;
            if !alive {
                *bytes -= approval.bytes();
            }
            alive
        });
    }

    /// When [`Approvals::expire`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let due = self.pending.values().map(|approval| approval.due).min();
        due.map(|at| Deadline::new(at, "an approval expires"))
    }

    /// Appends the pending approvals as a JSON array, oldest first by the Gateway's own stamp.
    pub(super) fn write(&self, out: &mut String) {
        let mut sorted: Vec<_> = self.pending.iter().collect();
        sorted.sort_by(|(_, a), (_, b)| {
            a.created()
                .total_cmp(&b.created())
                .then(a.place.cmp(&b.place))
        });
        out.push('[');
        for (i, (id, approval)) in sorted.into_iter().enumerate() {
            out.push_str(if i == 0 { "" } else { "," });
            out.push_str("{\"kind\":\"");
            out.push_str(approval.kind.as_str());
            out.push_str("\",\"id\":");
            write_string(out, id);
            for (name, value) in [
                ("request", &approval.request),
                ("createdAtMs", &approval.created_at_ms),
                ("expiresAtMs", &approval.expires_at_ms),
            ] {
                if let Some(value) = value {
                    write_raw(out, name, value.get());
                }
            }
            out.push('}');
        }
        out.push(']');
    }
}

fn read(raw: &RawValue) -> Result<(String, Record<'_>), NoId> {
    let record: Record<'_> = match serde_json::from_str(raw.get()) {
        Ok(record) if is_object(raw) => record,
        Ok(_) | Err(_) => return Err(NoId),
    };
    let id = text(record.id).ok_or(NoId)?.into_owned();
    Ok((id, record))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approvals(count_max: usize) -> Approvals {
        Approvals::new(&Limits {
            approvals_pending_max: count_max,
            ..Limits::DEFAULT
        })
    }

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).expect("test input is JSON")
    }

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: 1_000_000 + i64::try_from(ms).expect("small"),
        }
    }

    fn request(approvals: &mut Approvals, now: Now, json: &str) {
        approvals
            .requested(now, Kind::Exec, &raw(json))
            .expect("has an id");
    }

    fn listed(approvals: &Approvals) -> String {
        let mut out = String::new();
        approvals.write(&mut out);
        out
    }

    #[test]
    fn an_approval_is_tracked_as_sent_and_gone_when_resolved() {
        let mut table = approvals(10);
        request(
            &mut table,
            at(0),
            r#"{"id":" a ","request":{"x":1.0},"createdAtMs":5,"expiresAtMs":2e6,"more":1}"#,
        );
        assert_eq!(
            listed(&table),
            r#"[{"kind":"exec","id":"a","request":{"x":1.0},"createdAtMs":5,"expiresAtMs":2e6}]"#
        );
        assert_eq!(table.resolved(&raw(r#"{"decision":"deny"}"#)), Err(NoId));
        table.resolved(&raw(r#"{"id":"a"}"#)).expect("has an id");
        assert_eq!(listed(&table), "[]");
        assert_eq!(table.bytes, 0);
    }

    #[test]
    fn members_of_a_wrong_type_are_left_out() {
        let mut table = approvals(10);
        request(
            &mut table,
            at(0),
            r#"{"id":"a","request":"r","createdAtMs":"1","expiresAtMs":null}"#,
        );
        assert_eq!(listed(&table), r#"[{"kind":"exec","id":"a"}]"#);
        for bad in [
            "{}",
            r#"{"id":""}"#,
            r#"{"id":7}"#,
            "[1,2,3,4]",
            "null",
            "\"a\"",
        ] {
            assert_eq!(
                table.requested(at(0), Kind::Exec, &raw(bad)),
                Err(NoId),
                "{bad}"
            );
        }
    }

    #[test]
    fn they_are_listed_by_the_stamp_of_the_gateway() {
        let mut table = approvals(10);
        request(&mut table, at(0), r#"{"id":"late","createdAtMs":20}"#);
        request(&mut table, at(0), r#"{"id":"tie","createdAtMs":10}"#);
        request(&mut table, at(0), r#"{"id":"early","createdAtMs":10}"#);
        request(&mut table, at(0), r#"{"id":"none"}"#);
        request(
            &mut table,
            at(0),
            r#"{"id":"tie","createdAtMs":10,"expiresAtMs":9e9}"#,
        );
        let ids: Vec<_> = ["none", "tie", "early", "late"]
            .map(|id| listed(&table).find(&format!("\"{id}\"")).expect(id))
            .into();
        assert!(ids.is_sorted(), "{}", listed(&table));
    }

    #[test]
    fn the_stated_expiry_is_exact_and_a_hostile_one_is_clamped() {
        let mut table = approvals(10);
        request(&mut table, at(0), r#"{"id":"a","expiresAtMs":1000500}"#);
        assert_eq!(
            table.next_deadline().map(|d| d.at),
            Some(Uptime::from_millis(500))
        );
        table.expire(at(499));
        assert_eq!(table.len(), 1);
        table.expire(at(500));
        assert_eq!(table.len(), 0);
        request(&mut table, at(0), r#"{"id":"past","expiresAtMs":-1e300}"#);
        assert_eq!(table.next_deadline(), None, "nothing is due at once");
        request(&mut table, at(0), r#"{"id":"far","expiresAtMs":1e300}"#);
        assert_eq!(
            table.next_deadline().map(|d| d.at),
            Some(at(0).after(EXPIRY_AT_MOST))
        );
    }

    #[test]
    fn one_that_comes_too_late_pushes_nobody_out() {
        let mut table = approvals(1);
        request(&mut table, at(0), r#"{"id":"alive"}"#);
        request(&mut table, at(0), r#"{"id":"late","expiresAtMs":1000000}"#);
        assert_eq!((table.len(), table.evicted()), (1, 0));
        assert!(listed(&table).contains("alive"));
        request(&mut table, at(0), r#"{"id":"alive","expiresAtMs":1000000}"#);
        assert_eq!((table.len(), table.bytes), (0, 0), "asked again, too late");
    }

    #[test]
    fn without_a_stated_expiry_it_lives_for_the_ttl() {
        let mut table = approvals(10);
        request(&mut table, at(1), r#"{"id":"a"}"#);
        let ttl_ms = u64::try_from(Limits::DEFAULT.approval_ttl.as_millis()).expect("small");
        table.expire(at(ttl_ms));
        assert_eq!(table.len(), 1);
        table.expire(at(ttl_ms + 1));
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn the_one_tracked_longest_goes_at_one_past_the_limit() {
        for (requests, kept, first) in [(1, 1, "0"), (2, 2, "0"), (3, 2, "1")] {
            let mut table = approvals(2);
            for i in 0..requests {
                request(
                    &mut table,
                    at(0),
                    &format!(r#"{{"id":"{i}","createdAtMs":{i}}}"#),
                );
            }
            assert_eq!(table.len(), kept);
            assert_eq!(table.evicted(), u64::from(requests == 3));
            assert!(
                listed(&table).contains(&format!("\"id\":\"{first}\"")),
                "{}",
                listed(&table)
            );
        }
    }

    #[test]
    fn the_byte_bound_holds_too() {
        let mut table = approvals(10);
        let big = "x".repeat(PENDING_BYTES_MAX / 2 - 100);
        for i in 0..3 {
            request(
                &mut table,
                at(0),
                &format!(r#"{{"id":"{i}","request":{{"t":"{big}"}}}}"#),
            );
        }
        assert_eq!((table.len(), table.evicted()), (2, 1));
        assert!(table.bytes <= PENDING_BYTES_MAX);
    }

    #[test]
    fn a_list_adds_what_is_new_and_removes_what_was_decided_meanwhile() {
        let mut table = approvals(10);
        request(&mut table, at(0), r#"{"id":"decided"}"#);
        request(&mut table, at(0), r#"{"id":"open","request":{"first":1}}"#);
        table
            .requested(at(0), Kind::Plugin, &raw(r#"{"id":"other kind"}"#))
            .expect("has an id");
        request(&mut table, at(0), r#"{"id":"asked again"}"#);
        let mark = table.mark();
        request(&mut table, at(0), r#"{"id":"after we asked"}"#);
        request(&mut table, at(0), r#"{"id":"asked again"}"#);
        let list = [
            raw(r#"{"id":"open","request":{"second":2}}"#),
            raw(r#"{"id":"new"}"#),
            raw("{}"),
        ];
        let unreadable = table.listed(
            at(0),
            Kind::Exec,
            mark,
            &[&list[0], &list[1], &list[2]],
            |_| false,
        );
        assert_eq!(unreadable, 1);
        let shown = listed(&table);
        for id in ["open", "other kind", "after we asked", "asked again", "new"] {
            assert!(shown.contains(&format!("\"id\":\"{id}\"")), "{id}: {shown}");
        }
        assert!(!shown.contains("decided"), "{shown}");
        assert!(
            shown.contains("first"),
            "what is known stays as it is: {shown}"
        );
    }
}
