//! The bridge against a naive model of its queue, its waiters and its approvals, under random
//! operations.
//!
//! The model keeps everything in plain vectors, sorts and scans, and has no deadlines: it decides
//! what is due by looking at the clock. Both must give the same answers at the same virtual times.

use std::fmt::Write as _;

use super::*;

const EVENTS_MAX: u64 = 6;
const WAITERS_MAX: usize = 4;
const APPROVALS_MAX: usize = 3;
const TTL_MS: u64 = 700;

#[derive(Default)]
struct Model {
    now: u64,
    /// Every event ever: session, or none.
    events: Vec<(Option<&'static str>, String)>,
    /// Call, after, session, until, dropped.
    waiters: Vec<(u64, u64, Option<&'static str>, u64, u64)>,
    /// Id, due; in the order they were tracked.
    approvals: Vec<(String, u64)>,
    answers: Vec<(u64, String)>,
}

impl Model {
    fn oldest(&self) -> u64 {
        let count = self.events.len() as u64;
        if count == 0 {
            0
        } else {
            count.saturating_sub(EVENTS_MAX) + 1
        }
    }

    fn dropped(&self, after: u64) -> u64 {
        self.oldest().saturating_sub(1 + after)
    }

    fn matching(&self, after: u64, session: Option<&str>) -> Vec<(u64, String)> {
        let cursors = 1..=self.events.len() as u64;
        cursors
            .zip(&self.events)
            .filter(|(cursor, _)| *cursor >= self.oldest() && *cursor > after)
            .filter(|(_, (of, _))| session.is_none() || *of == session)
            .map(|(cursor, (_, json))| (cursor, json.clone()))
            .collect()
    }

    fn wait_result(event: Option<&(u64, String)>, dropped: u64) -> String {
        let text = event.map_or("timeout".to_owned(), |(cursor, _)| {
            format!("event {cursor}")
        });
        let json = event.map_or("null", |(_, json)| json);
        let dropped = if dropped > 0 {
            format!(",\"dropped\":{dropped}")
        } else {
            String::new()
        };
        ToolResult::structured(&text, &format!("{{\"event\":{json}{dropped}}}"))
            .as_json()
            .to_owned()
    }

    fn push(&mut self, session: Option<&'static str>, members: &str) {
        let cursor = self.events.len() as u64 + 1;
        let event = (cursor, format!("{{\"cursor\":{cursor},{members}}}"));
        self.events.push((session, event.1.clone()));
        let (woken, rest) =
            std::mem::take(&mut self.waiters)
                .into_iter()
                .partition(|(_, after, wanted, ..)| {
                    cursor > *after && (wanted.is_none() || *wanted == session)
                });
        self.waiters = rest;
        let woken: Vec<(u64, u64, Option<&str>, u64, u64)> = woken;
        for (call, _, _, _, dropped) in woken {
            self.answers
                .push((call, Self::wait_result(Some(&event), dropped)));
        }
    }

    fn wait(&mut self, call: u64, after: u64, session: Option<&'static str>, timeout: u64) {
        let dropped = self.dropped(after);
        if let Some(event) = self.matching(after, session).first() {
            self.answers
                .push((call, Self::wait_result(Some(event), dropped)));
        } else if self.waiters.len() == WAITERS_MAX {
            self.answers.push((call, "refused".to_owned()));
        } else {
            self.waiters
                .push((call, after, session, self.now + timeout, dropped));
        }
    }

    fn poll(&mut self, call: u64, after: u64, session: Option<&str>, limit: usize) {
        let events: Vec<_> = self
            .matching(after, session)
            .into_iter()
            .take(limit)
            .collect();
        let next = events.last().map_or(after, |(cursor, _)| *cursor);
        let joined: Vec<_> = events.iter().map(|(_, json)| json.as_str()).collect();
        let json = format!(
            "{{\"events\":[{}],\"next_cursor\":{next},\"dropped\":{},\"oldest_cursor\":{}}}",
            joined.join(","),
            self.dropped(after),
            self.oldest()
        );
        let text = format!("events: {}", events.len());
        let result = ToolResult::structured(&text, &json);
        self.answers.push((call, result.as_json().to_owned()));
    }

    fn requested(&mut self, id: &str, ttl: u64) {
        self.approvals.retain(|(known, _)| known != id);
        self.approvals.push((id.to_owned(), self.now + ttl));
        if self.approvals.len() > APPROVALS_MAX {
            self.approvals.remove(0);
        }
    }

    fn list(&mut self, call: u64) {
        let now = self.now;
        self.approvals.retain(|(_, due)| *due > now);
        let mut ids: Vec<_> = self.approvals.iter().map(|(id, _)| id.clone()).collect();
        ids.sort();
        self.answers.push((call, format!("{ids:?}")));
    }

    fn advance(&mut self, ms: u64) {
        self.now += ms;
        let now = self.now;
        self.approvals.retain(|(_, due)| *due > now);
        let (over, rest) = std::mem::take(&mut self.waiters)
            .into_iter()
            .partition(|(_, _, _, until, _)| *until <= now);
        self.waiters = rest;
        let over: Vec<(u64, u64, Option<&str>, u64, u64)> = over;
        for (call, _, _, _, dropped) in over {
            self.answers.push((call, Self::wait_result(None, dropped)));
        }
    }
}

/// Our answer in the words of the model, where those are simpler.
fn simplified(answer: &str) -> String {
    if answer.contains("waiters_max") {
        return "refused".to_owned();
    }
    if !answer.contains("\"approvals\":[") {
        return answer.to_owned();
    }
    let mut ids: Vec<_> = answer
        .split("\"id\":\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    ids.sort_unstable();
    format!("{ids:?}")
}

/// One run. `trace` tells what was done, for the message of a failure.
fn run(seed: u64, trace: &mut String) {
    let mut dice = Seeded::new(seed);
    let mut model = Model::default();
    let mut rig = Rig::ready(&Limits {
        events_queued_max: usize::try_from(EVENTS_MAX).expect("small"),
        waiters_max: WAITERS_MAX,
        approvals_pending_max: APPROVALS_MAX,
        approval_ttl: std::time::Duration::from_millis(TTL_MS),
        ..Limits::DEFAULT
    });
    let sessions = [None, Some("a"), Some("b")];
    let mut session = {
        let mut dice = Seeded::new(!seed);
        move || sessions[usize::try_from(dice.below(3)).expect("small")]
    };
    for call in 1..=120 {
        let id = CallId(call);
        let of = session();
        let filter = of.map_or(String::new(), |of| format!(",\"session_key\":\"{of}\""));
        let after = dice.below(model.events.len() as u64 + 3);
        let operation = dice.below(10);
        let _ = writeln!(
            trace,
            "{call}: operation {operation}, session {of:?}, after {after}"
        );
        match operation {
            0 | 1 => {
                let of = of.unwrap_or("c");
                model.push(
                    Some(of),
                    &format!("\"type\":\"message\",\"sessionKey\":\"{of}\",\"role\":\"user\",\"text\":\"x\",\"raw\":{{\"sessionKey\":\"{of}\",\"message\":{{\"role\":\"user\",\"content\":\"x\"}}}}"),
                );
                rig.message(of, "user", "x");
            }
            2 | 3 => {
                let timeout = 1 + dice.below(400);
                model.wait(call, after, of, timeout);
                let arguments =
                    format!("{{\"after_cursor\":{after},\"timeout_ms\":{timeout}{filter}}}");
                rig.call_as(id, "events_wait", &arguments, false);
            }
            4 => {
                let limit = 1 + dice.below(4);
                model.poll(call, after, of, usize::try_from(limit).expect("small"));
                let arguments = format!("{{\"after_cursor\":{after},\"limit\":{limit}{filter}}}");
                rig.call_as(id, "events_poll", &arguments, false);
            }
            5 => {
                let approval = dice.below(5).to_string();
                let stated = dice.below(2) == 0;
                let ttl = if stated { dice.below(900) } else { TTL_MS };
                let expires = rig.now.unix_ms + i64::try_from(ttl).expect("small");
                let expires = if stated {
                    format!(",\"expiresAtMs\":{expires}")
                } else {
                    String::new()
                };
                let payload = format!("{{\"id\":\"{approval}\"{expires}}}");
                model.requested(&approval, ttl);
                model.push(
                    None,
                    &format!("\"type\":\"exec_approval_requested\",\"raw\":{payload}"),
                );
                rig.event("exec.approval.requested", &payload);
            }
            6 => {
                let approval = dice.below(5).to_string();
                let payload = format!("{{\"id\":\"{approval}\"}}");
                model.approvals.retain(|(known, _)| *known != approval);
                model.push(
                    None,
                    &format!("\"type\":\"plugin_approval_resolved\",\"raw\":{payload}"),
                );
                rig.event("plugin.approval.resolved", &payload);
            }
            7 => {
                model.list(call);
                rig.call_as(id, "permissions_list_open", "{}", false);
            }
            8 => {
                let gone = call - dice.below(call);
                model.waiters.retain(|(waiting, ..)| *waiting != gone);
                rig.bridge.cancel(CallId(gone));
            }
            _ => {
                // One millisecond at a time, so that the model needs no order of deadlines.
                for _ in 0..dice.below(300) {
                    model.advance(1);
                    rig.advance(1);
                }
            }
        }
        assert_eq!(rig.now.up, Uptime::from_millis(model.now));
        let mut ours: Vec<_> = rig
            .answers
            .drain(..)
            .map(|(call, json)| (call.0, simplified(&json)))
            .collect();
        ours.sort();
        let mut theirs = std::mem::take(&mut model.answers);
        theirs.sort();
        assert_eq!(ours, theirs, "call {call}");
    }
}

#[test]
fn the_bridge_does_what_the_model_does() {
    for seed in 0..300 {
        let mut trace = String::new();
        let result =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed, &mut trace)));
        assert!(result.is_ok(), "seed {seed}:\n{trace}");
    }
}
