//! What the queue of events looks like from outside: every event that a client has seen, by cursor, beside
//! every event that the Gateway has sent.
//!
//! A cursor names one event for ever. Events stand in the order in which the Gateway sent them. Where one is
//! missing, either its cursor is missing too, and `dropped` and `oldest_cursor` say so, or a gap event stands
//! between its neighbours.

use std::collections::{BTreeMap, BTreeSet};

use drawspan::clock::Uptime;
use drawspan::limits::Limits;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::book::Call;

/// One event as the Gateway sent it.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: Uptime,
    /// Which connection it was sent on, counted from 1.
    pub connection: u64,
    pub kind: &'static str,
    /// The payload, every byte of it.
    pub payload: String,
    /// Whether it must be in the queue, if the connection lasts until it arrives.
    pub sure: bool,
    /// Whether a Claude client must be told.
    pub announced: bool,
}

#[derive(Clone, Debug)]
struct Seen {
    kind: String,
    json: String,
    serial: Option<u64>,
    session: Option<String>,
}

/// See the module page.
#[derive(Debug)]
pub struct Queue {
    limits: Limits,
    announces: bool,
    sent: BTreeMap<u64, Sent>,
    seen: BTreeMap<u64, Seen>,
    /// Cursors below this one are gone, as a client was told.
    oldest: u64,
    /// Codes of prompts that messages of users have decided, with the word.
    words: BTreeSet<(String, bool)>,
    told: BTreeSet<u64>,
    last_told: u64,
    /// Since when the client has had its channel messages at once; `None` before, and for good once it did
    /// not read.
    listening: Option<Uptime>,
    /// The same, with what was held for it before.
    told_since: Uptime,
    deaf: bool,
    /// Events that no Gateway sent: permission prompts and gaps, at most.
    own: u64,
    pub gaps: u64,
    pub dropped: u64,
}

#[derive(Deserialize)]
struct Polled<'a> {
    #[serde(borrow)]
    events: Vec<&'a RawValue>,
    next_cursor: u64,
    dropped: u64,
    oldest_cursor: u64,
}

#[derive(Deserialize)]
struct Waited<'a> {
    #[serde(borrow)]
    event: Option<&'a RawValue>,
    dropped: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    cursor: u64,
    #[serde(rename = "type")]
    kind: String,
    session_key: Option<String>,
    #[serde(borrow)]
    raw: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Payload {
    serial: Option<u64>,
}

#[derive(Deserialize)]
struct Announced {
    meta: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Decided {
    behavior: String,
}

type Check = Result<(), String>;

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(why()) }
}

fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| format!("{error} in {text}"))
}

impl Seen {
    fn is_for(&self, cursor: u64, call: &Call) -> bool {
        let in_scope = match &call.session {
            None => true,
            Some(wanted) => {
                self.kind == "gap"
                    || (self.kind == "message" && self.session.as_ref() == Some(wanted))
            }
        };
        cursor > call.after && in_scope
    }
}

impl Queue {
    pub fn new(limits: &Limits, announces: bool) -> Self {
        Self {
            limits: limits.clone(),
            announces,
            sent: BTreeMap::new(),
            seen: BTreeMap::new(),
            oldest: 0,
            words: BTreeSet::new(),
            told: BTreeSet::new(),
            last_told: 0,
            listening: None,
            told_since: Uptime::ZERO,
            deaf: false,
            own: 0,
            gaps: 0,
            dropped: 0,
        }
    }

    /// The Gateway sends an event with this serial number.
    pub fn send(&mut self, serial: u64, sent: Sent) {
        self.sent.insert(serial, sent);
    }

    /// A user sends the words that decide a prompt.
    pub fn say_word(&mut self, code: &str, allow: bool) {
        self.words.insert((code.to_owned(), allow));
    }

    /// From now on channel messages reach the client, unless it does not read.
    pub fn listen(&mut self, now: Uptime) {
        if !self.deaf && self.listening.is_none() {
            // What was held before is told now, unless it was too much.
            let held = self.sent.values().filter(|sent| sent.announced).count() as u64 + self.own;
            let all = held <= self.limits.notifications_held_max as u64;
            self.listening = Some(now);
            self.told_since = if all { Uptime::ZERO } else { now };
        }
    }

    /// More waits for the client than it is allowed: messages may be dropped from now on.
    pub fn deafen(&mut self) {
        self.deaf = true;
        self.listening = None;
    }

    /// The bridge may queue an event of its own.
    pub fn own_event(&mut self) {
        self.own += 1;
    }

    /// An answer to `events_poll`.
    pub fn polled(&mut self, call: &Call, structured: &str) -> Check {
        let polled: Polled<'_> = read(structured)?;
        let count = polled.events.len();
        ensure(count <= call.limit, || {
            format!("{count} events, asked for {}", call.limit)
        })?;
        let gone = polled
            .oldest_cursor
            .saturating_sub(1)
            .saturating_sub(call.after);
        ensure(polled.dropped == gone, || {
            format!("dropped {}, by oldest_cursor it is {gone}", polled.dropped)
        })?;
        ensure(polled.oldest_cursor >= self.oldest, || {
            format!("oldest_cursor fell from {}", self.oldest)
        })?;
        self.oldest = polled.oldest_cursor;
        self.dropped = self.dropped.max(polled.dropped);
        let mut last = call.after;
        let mut bytes = 0;
        let mut cursors = Vec::new();
        for raw in &polled.events {
            let cursor = self.observe(call, raw.get())?;
            ensure(cursor > last, || format!("cursor {cursor} behind {last}"))?;
            ensure(cursor >= self.oldest, || {
                format!("{cursor} is older than the oldest")
            })?;
            last = cursor;
            bytes += raw.get().len();
            cursors.push(cursor);
        }
        ensure(polled.next_cursor == last, || {
            format!("next_cursor {}, the last one is {last}", polled.next_cursor)
        })?;
        self.complete(call, &cursors, last)?;
        let limit = self.limits.events_queued_bytes_max;
        ensure(count <= 1 || bytes <= limit, || {
            format!("{bytes} bytes are kept, limit {limit}")
        })?;
        let kept = (last + 1).saturating_sub(self.oldest.max(1));
        let most = self.limits.events_queued_max.max(1) as u64;
        ensure(count == 0 || kept <= most, || {
            format!("{kept} events are kept, limit {most}")
        })
    }

    /// Everything that is known to be kept, and asked for, is there.
    fn complete(&self, call: &Call, cursors: &[u64], last: u64) -> Check {
        let until = if cursors.len() < call.limit {
            u64::MAX
        } else {
            last
        };
        let from = self.oldest.max(call.after.saturating_add(1));
        if from > until {
            return Ok(());
        }
        for (cursor, seen) in self.seen.range(from..=until) {
            let left_out = cursors.binary_search(cursor).is_err() && seen.is_for(*cursor, call);
            ensure(!left_out, || format!("cursor {cursor} is left out"))?;
        }
        if let (None, Some(first)) = (&call.session, cursors.first()) {
            ensure(*first == from, || {
                format!("cursor {from} is left out, {first} is there")
            })?;
            ensure(last - first + 1 == cursors.len() as u64, || {
                "a cursor is left out".to_owned()
            })?;
        }
        Ok(())
    }

    /// An answer to `events_wait`; `early` when its time was not up.
    pub fn waited(&mut self, call: &Call, structured: &str, early: bool) -> Check {
        let waited: Waited<'_> = read(structured)?;
        self.dropped = self.dropped.max(waited.dropped.unwrap_or(0));
        match waited.event {
            Some(raw) => self.observe(call, raw.get()).map(|_| ()),
            None => {
                ensure(!early, || "nothing, before its time".to_owned())?;
                self.nothing_for(call)
            }
        }
    }

    /// No kept event is known that this call asks for.
    pub fn nothing_for(&self, call: &Call) -> Check {
        let from = self.oldest.max(call.after.saturating_add(1));
        let mut kept = self.seen.range(from..).rev();
        match kept.find(|(cursor, seen)| seen.is_for(**cursor, call)) {
            Some((cursor, seen)) if self.surely_kept(seen) => {
                Err(format!("there is an event {cursor}"))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether an event cannot have been pushed out by what came after it.
    fn surely_kept(&self, seen: &Seen) -> bool {
        let Some(serial) = seen.serial else {
            return false;
        };
        let newer = self.sent.range(serial + 1..).count() as u64 + self.own;
        let roomy = self.limits.events_queued_bytes_max > 1_000_000;
        roomy && newer < self.limits.events_queued_max as u64
    }

    fn observe(&mut self, call: &Call, json: &str) -> Result<u64, String> {
        let event: Event<'_> = read(json)?;
        let cursor = event.cursor;
        let raw = event.raw.map_or("{}", RawValue::get);
        let serial = read::<Payload>(raw)?.serial;
        let seen = Seen {
            kind: event.kind,
            json: json.to_owned(),
            serial,
            session: event.session_key,
        };
        ensure(seen.is_for(cursor, call), || {
            format!("cursor {cursor} was not asked for")
        })?;
        if let Some(before) = self.seen.get(&cursor) {
            ensure(before.json == seen.json, || {
                format!("cursor {cursor} names two events, also {}", before.json)
            })?;
            return Ok(cursor);
        }
        if let Some(sent) = serial.and_then(|serial| self.sent.get(&serial)) {
            ensure(sent.payload == raw && sent.kind == seen.kind, || {
                format!("sent as {} {}", sent.kind, sent.payload)
            })?;
            let heard = self.listening.is_some_and(|since| since <= sent.at);
            let told = serial.is_some_and(|serial| self.told.contains(&serial));
            ensure(told || !(heard && sent.announced && self.announces), || {
                format!("the client was not told of event {cursor}")
            })?;
        } else {
            let own = matches!(&*seen.kind, "gap" | "claude_permission_request")
                || (seen.kind.contains("approval") && (raw == "{}" || is_of_a_hold(raw)));
            ensure(own, || format!("nobody sent event {cursor}"))?;
        }
        self.gaps += u64::from(seen.kind == "gap");
        self.seen.insert(cursor, seen);
        let near = self
            .seen
            .range(..cursor)
            .next_back()
            .zip(self.seen.get(&cursor));
        if let Some(((at, before), after)) = near {
            self.neighbours((*at, before), (cursor, after))?;
        }
        let near = self
            .seen
            .get(&cursor)
            .zip(self.seen.range(cursor + 1..).next());
        if let Some((before, (at, after))) = near {
            self.neighbours((cursor, before), (*at, after))?;
        }
        Ok(cursor)
    }

    /// Two events next to each other as far as they are known: their serial numbers rise.
    fn neighbours(&self, (at, before): (u64, &Seen), (next, after): (u64, &Seen)) -> Check {
        if let (Some(first), Some(second)) = (before.serial, after.serial) {
            ensure(first < second, || {
                format!("event {next} was sent before event {at}, or is the same")
            })?;
        }
        Ok(())
    }

    /// A channel message reached the client.
    pub fn announced(&mut self, now: Uptime, params: &str) -> Check {
        let announced: Announced = read(params)?;
        let id = announced.meta.get("message_id").ok_or("no message_id")?;
        let serial: u64 = id
            .trim_start_matches("m-")
            .parse()
            .map_err(|_| "no serial")?;
        let sent = self.sent.get(&serial).ok_or("nobody sent this message")?;
        ensure(sent.announced, || {
            "not a message of a user with a route".to_owned()
        })?;
        ensure(serial > self.last_told, || {
            "told again, or out of order".to_owned()
        })?;
        ensure(sent.at <= now, || "told before it was sent".to_owned())?;
        self.last_told = serial;
        self.told.insert(serial);
        Ok(())
    }

    /// A permission prompt was decided.
    pub fn decided(&self, code: &str, params: &str) -> Check {
        let decided: Decided = read(params)?;
        let allow = decided.behavior == "allow";
        ensure(self.words.contains(&(code.to_owned(), allow)), || {
            format!("nobody decided {code} like this")
        })
    }

    /// The client was told of every message that it has seen.
    pub fn check_told(&self) -> Check {
        for (cursor, seen) in &self.seen {
            let Some(serial) = seen.serial else { continue };
            let sent = self.sent.get(&serial).filter(|sent| sent.announced);
            let listens = self.announces && self.listening.is_some();
            let heard = listens && sent.is_some_and(|sent| self.told_since <= sent.at);
            ensure(!heard || self.told.contains(&serial), || {
                format!("the client was never told of event {cursor}")
            })?;
        }
        Ok(())
    }

    /// Every loss shows. To be asked when a client has seen all that is kept.
    pub fn check_losses(&self) -> Check {
        let mut before: Option<(u64, u64)> = None;
        let mut gap_between = false;
        let mut lost_before = 0;
        for (cursor, seen) in &self.seen {
            gap_between |= seen.kind == "gap";
            let Some(serial) = seen.serial else { continue };
            if let Some((last_cursor, last_serial)) = before {
                let known = self.seen.range(last_cursor + 1..*cursor).count() as u64;
                let holes = cursor - last_cursor - 1 - known;
                self.explain((last_serial, serial), holes, gap_between)
                    .map_err(|why| format!("between events {last_cursor} and {cursor}: {why}"))?;
            }
            before = Some((*cursor, serial));
            gap_between = false;
            lost_before = *cursor;
        }
        // What is unknown below the last event must have been called lost.
        for cursor in self.oldest.max(1)..=lost_before {
            ensure(self.seen.contains_key(&cursor), || {
                format!("cursor {cursor} was never seen and never called lost")
            })?;
        }
        Ok(())
    }

    fn explain(&self, (first, second): (u64, u64), holes: u64, gap: bool) -> Check {
        let between = self.sent.range(first + 1..second);
        let missing = between.filter(|(_, sent)| sent.sure).count() as u64;
        let connection = |serial: u64| self.sent.get(&serial).map(|sent| sent.connection);
        let same = connection(first) == connection(second);
        if gap || (holes > 0 && !same) {
            return Ok(());
        }
        ensure(same, || {
            format!("the connection was lost ({first}, {second}), and no gap tells")
        })?;
        ensure(missing <= holes, || {
            format!("{missing} of the events {first} to {second} are missing, {holes} cursors are")
        })
    }

    /// The event that was sent last is there, or an event of the gate's has taken its place.
    pub fn check_newest(&self) -> Check {
        let last = self.sent.last_key_value().map(|(serial, _)| *serial);
        // A call that asks for it may be held, which is an event and may take its place.
        let newest = self.seen.last_key_value();
        let pushed_out = newest.is_some_and(|(_, seen)| seen.kind == "plugin_approval_requested");
        let mut seen = self.seen.values();
        ensure(
            last.is_none() || pushed_out || seen.any(|seen| seen.serial == last),
            || "the last event never arrived".to_owned(),
        )
    }
}

/// Whether an event tells of a call that the gate holds: nobody at the Gateway sent it.
fn is_of_a_hold(raw: &str) -> bool {
    raw.starts_with(r#"{"id":"hold-"#)
}
