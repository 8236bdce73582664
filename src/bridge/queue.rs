//! The event queue: the newest events, each with a cursor, as ready JSON.
//!
//! | input | effect |
//! |---|---|
//! | push | the event gets the next cursor; oldest events go until both bounds hold again |
//! | poll, first | nothing is consumed; any number of readers with cursors of their own |
//!
//! Cursors start at 1, rise by one per event and are shared by all kinds of events. So the events
//! that are gone need no bookkeeping: they are those before the oldest one kept. OpenClaw:
//! `openclaw-serve` §3.5. There, lost events are silent; here `dropped` and `oldest_cursor` tell.

use std::collections::VecDeque;

use super::raw_json::write_raw;
use crate::ids::EventCursor;
use crate::limits::Limits;
use crate::protocol::message::ToolResult;

/// Who gets to see an event when they ask for one session only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those who ask for this session: messages.
    Session(Box<str>),
    /// Nobody: approvals and permission prompts, even those that name a session. A weakness of
    /// OpenClaw that clients see on the wire, so it stays.
    Unscoped,
    /// Everybody: a gap concerns every session, and a filter must not hide it.
    All,
}

/// One event, ready to be spliced into an answer.
#[derive(Debug)]
pub(super) struct Event {
    /// Its position.
    pub(super) cursor: EventCursor,
    scope: Scope,
    /// The whole JSON object.
    pub(super) json: Box<str>,
}

impl Event {
    /// Whether a reader after `after` who asks for `session` (or for all) gets this event.
    pub(super) fn matches(&self, after: u64, session: Option<&str>) -> bool {
        let in_scope = match (&self.scope, session) {
            (_, None) | (Scope::All, Some(_)) => true,
            (Scope::Session(of), Some(wanted)) => **of == *wanted,
            (Scope::Unscoped, Some(_)) => false,
        };
        in_scope && self.cursor.0 > after
    }

    fn bytes(&self) -> usize {
        self.json.len()
    }
}

/// The newest events, oldest first.
#[derive(Debug)]
pub(super) struct EventQueue {
    events: VecDeque<Event>,
    bytes: usize,
    newest: EventCursor,
    events_max: usize,
    bytes_max: usize,
}

impl EventQueue {
    /// An empty queue.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            events: VecDeque::new(),
            bytes: 0,
            newest: EventCursor(0),
            events_max: limits.events_queued_max,
            bytes_max: limits.events_queued_bytes_max,
        }
    }

    /// How many events are kept, and their bytes.
    pub(super) fn kept(&self) -> (usize, usize) {
        (self.events.len(), self.bytes)
    }

    /// Adds an event: `{"cursor":N,` + what `members` writes + `}`. `bytes_hint` is about how much
    /// that is.
    ///
    /// The event just added stays, even when it alone is over the byte bound: it is what everybody
    /// waits for, and one message is bounded by `gateway_message_bytes_max`.
    pub(super) fn push(
        &mut self,
        scope: Scope,
        bytes_hint: usize,
        members: impl FnOnce(&mut String),
    ) -> &Event {
        self.newest = self.newest.next();
        let mut json = String::with_capacity(bytes_hint + 32);
        json.push_str("{\"cursor\":");
        json.push_str(&self.newest.to_string());
        json.push(',');
        members(&mut json);
        json.push('}');
        let event = Event {
            cursor: self.newest,
            scope,
            json: json.into_boxed_str(),
        };
        self.bytes += event.bytes();
        self.events.push_back(event);
        while self.events.len() > self.events_max.max(1)
            || (self.bytes > self.bytes_max && self.events.len() > 1)
        {
            if let Some(gone) = self.events.pop_front() {
                self.bytes -= gone.bytes();
            }
        }
        self.events.back().expect("the event just added stays")
    }

    /// Cursor of the oldest event kept; 0 while there was none.
    pub(super) fn oldest(&self) -> EventCursor {
        self.events
            .front()
            .map_or(EventCursor(0), |event| event.cursor)
    }

    /// How many events after `after` are gone, of whatever session.
    pub(super) fn dropped(&self, after: u64) -> u64 {
        self.oldest().0.saturating_sub(1).saturating_sub(after)
    }

    /// The kept events a reader after `after` gets, oldest first.
    pub(super) fn after<'q>(
        &'q self,
        after: u64,
        session: Option<&'q str>,
    ) -> impl Iterator<Item = &'q Event> {
        let skip = after.saturating_add(1).saturating_sub(self.oldest().0);
        let skip = usize::try_from(skip)
            .unwrap_or(usize::MAX)
            .min(self.events.len());
        self.events
            .range(skip..)
            .filter(move |event| event.matches(after, session))
    }

    /// The result of `events_poll`: OpenClaw's members, then ours.
    pub(super) fn poll(&self, after: u64, session: Option<&str>, limit: usize) -> ToolResult {
        let mut json = String::from("{\"events\":[");
        let (mut count, mut next_cursor) = (0_usize, after);
        for event in self.after(after, session).take(limit) {
            json.push_str(if count == 0 { "" } else { "," });
            json.push_str(&event.json);
            count += 1;
            next_cursor = event.cursor.0;
        }
        json.push(']');
        write_raw(&mut json, "next_cursor", &next_cursor.to_string());
        write_raw(&mut json, "dropped", &self.dropped(after).to_string());
        write_raw(&mut json, "oldest_cursor", &self.oldest().to_string());
        json.push('}');
        ToolResult::structured(&format!("events: {count}"), &json)
    }
}

/// The result of `events_wait`. `dropped` is only there when something is gone, so that an ordinary
/// answer is that of OpenClaw.
pub(super) fn event_result(event: Option<&Event>, dropped: u64) -> ToolResult {
    let text = event.map_or_else(
        || "timeout".to_owned(),
        |event| format!("event {}", event.cursor),
    );
    let mut json = String::from("{\"event\":");
    json.push_str(event.map_or("null", |event| &event.json));
    if dropped > 0 {
        write_raw(&mut json, "dropped", &dropped.to_string());
    }
    json.push('}');
    ToolResult::structured(&text, &json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(events_max: usize, bytes_max: usize) -> EventQueue {
        EventQueue::new(&Limits {
            events_queued_max: events_max,
            events_queued_bytes_max: bytes_max,
            ..Limits::DEFAULT
        })
    }

    fn push(queue: &mut EventQueue, scope: Scope) -> u64 {
        queue
            .push(scope, 16, |json| json.push_str("\"type\":\"t\""))
            .cursor
            .0
    }

    fn cursors(queue: &EventQueue, after: u64, session: Option<&str>) -> Vec<u64> {
        queue
            .after(after, session)
            .map(|event| event.cursor.0)
            .collect()
    }

    #[test]
    fn cursors_rise_by_one_and_the_json_is_whole() {
        let mut queue = queue(10, 1_000);
        assert_eq!((queue.oldest().0, queue.dropped(0)), (0, 0));
        assert_eq!(push(&mut queue, Scope::Unscoped), 1);
        assert_eq!(push(&mut queue, Scope::Unscoped), 2);
        let json: Vec<_> = queue.after(1, None).map(|event| &*event.json).collect();
        assert_eq!(json, ["{\"cursor\":2,\"type\":\"t\"}"]);
        assert_eq!(cursors(&queue, 0, None), [1, 2]);
        assert_eq!(cursors(&queue, 2, None), [0; 0]);
        assert_eq!(
            cursors(&queue, u64::MAX - 1, None),
            [0; 0],
            "a cursor from the future"
        );
    }

    #[test]
    fn the_oldest_event_goes_at_one_past_the_count_limit() {
        for (pushed, oldest, dropped) in
            [(999, 1, 0), (1_000, 1, 0), (1_001, 2, 1), (1_500, 501, 500)]
        {
            let mut queue = queue(1_000, usize::MAX);
            for _ in 0..pushed {
                push(&mut queue, Scope::Unscoped);
            }
            assert_eq!(queue.oldest().0, oldest, "{pushed}");
            assert_eq!(queue.dropped(0), dropped, "{pushed}");
            assert_eq!(queue.dropped(dropped), 0, "{pushed}");
            assert_eq!(
                cursors(&queue, 0, None).len(),
                pushed.min(1_000),
                "{pushed}"
            );
            assert_eq!(cursors(&queue, 0, None)[0], oldest, "{pushed}");
        }
    }

    #[test]
    fn the_oldest_event_goes_at_one_past_the_byte_limit() {
        let one = "{\"cursor\":1,\"type\":\"t\"}".len();
        for (bytes_max, kept) in [(2 * one - 1, 1), (2 * one, 2), (2 * one + 1, 2)] {
            let mut queue = queue(10, bytes_max);
            push(&mut queue, Scope::Unscoped);
            push(&mut queue, Scope::Unscoped);
            assert_eq!(cursors(&queue, 0, None).len(), kept, "{bytes_max}");
        }
        let mut tiny = queue(10, 1);
        push(&mut tiny, Scope::Unscoped);
        push(&mut tiny, Scope::Unscoped);
        assert_eq!(
            cursors(&tiny, 0, None),
            [2],
            "the newest stays whatever its size"
        );
        assert_eq!(tiny.bytes, one);
    }

    #[test]
    fn a_filter_hides_other_sessions_and_approvals_but_no_gap() {
        let mut queue = queue(10, 1_000);
        push(&mut queue, Scope::Session("a".into()));
        push(&mut queue, Scope::Session("b".into()));
        push(&mut queue, Scope::Unscoped);
        push(&mut queue, Scope::All);
        assert_eq!(cursors(&queue, 0, Some("a")), [1, 4]);
        assert_eq!(cursors(&queue, 1, Some("a")), [4]);
        assert_eq!(cursors(&queue, 0, None), [1, 2, 3, 4]);
    }
}
