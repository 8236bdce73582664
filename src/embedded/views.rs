//! What clients see of the store: session rows, messages, event payloads. JSON out, nothing in.
//!
//! Shapes: openclaw-serve §1.8, §1.9. Members about models, tokens and runs are left out: nothing
//! runs here.

use super::approvals::Approval;
use super::content::{self, PREVIEW_CHARS_MAX};
use super::journal::{Decision, Route};
use super::store::{Conversation, Message, Store};
use crate::codec::json_text::write_string;

/// A JSON object under construction.
pub(super) struct Object(String);

impl Object {
    pub(super) fn new() -> Self {
        Self("{".to_owned())
    }

    /// A member that is a string.
    pub(super) fn text(mut self, name: &str, value: &str) -> Self {
        self.name(name);
        write_string(&mut self.0, value);
        self
    }

    /// A member that is a string, or is left out.
    pub(super) fn text_if(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(name, value),
            None => self,
        }
    }

    /// A member that is a string or `null`.
    pub(super) fn text_or_null(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.text(name, value),
            None => self.raw(name, "null"),
        }
    }

    /// A member that is an integer.
    pub(super) fn int(self, name: &str, value: impl Into<i128>) -> Self {
        let value: i128 = value.into();
        self.raw(name, &value.to_string())
    }

    /// A member that is JSON already.
    pub(super) fn raw(mut self, name: &str, json: &str) -> Self {
        self.name(name);
        self.0.push_str(json);
        self
    }

    /// Members written elsewhere: `"a":1,"b":2`.
    fn members(mut self, members: &str) -> Self {
        if !members.is_empty() {
            self.comma();
            self.0.push_str(members);
        }
        self
    }

    /// The object.
    pub(super) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }

    fn into_members(self) -> String {
        let Self(mut json) = self;
        json.remove(0);
        json
    }

    fn name(&mut self, name: &str) {
        self.comma();
        write_string(&mut self.0, name);
        self.0.push(':');
    }

    fn comma(&mut self) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
    }
}

/// What a row is to hold beside the fixed members.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowExtras {
    pub(super) derived_title: bool,
    pub(super) last_message: bool,
}

/// One row of `sessions.list`.
pub(super) fn session_row(key: &str, conversation: &Conversation, extras: RowExtras) -> String {
    let mut row = Object::new().text("key", key);
    if extras.derived_title {
        row = row.text("derivedTitle", &derived_title(key, conversation));
    }
    if extras.last_message {
        let last = conversation.messages.back();
        let preview = last.and_then(|m| content::start_of(&m.content, PREVIEW_CHARS_MAX));
        row = row.text_if("lastMessagePreview", preview.as_deref());
    }
    row.members(&row_members(key, conversation)).end()
}

/// The members of a row that an event repeats beside the nested one.
fn row_members(key: &str, conversation: &Conversation) -> String {
    let group = is_group(key);
    let route = conversation.route.as_ref();
    let row = Object::new()
        .text("kind", if group { "group" } else { "direct" })
        .text_if("label", conversation.label.as_deref())
        .text_if("displayName", conversation.display_name.as_deref())
        .text_if(
            "channel",
            route.filter(|_| group).map(|r| r.channel.as_str()),
        )
        .text("chatType", if group { "channel" } else { "direct" })
        .int("updatedAt", conversation.updated_at_ms)
        .text("sessionId", &conversation.session_id);
    let row = match route {
        Some(route) => row
            .raw("deliveryContext", &delivery_context(route))
            .text("lastChannel", &route.channel)
            .text("lastTo", &route.to)
            .text_if("lastAccountId", route.account_id.as_deref())
            .text_if("lastThreadId", route.thread_id.as_deref()),
        None => row,
    };
    row.raw("hasActiveRun", "false").into_members()
}

fn delivery_context(route: &Route) -> String {
    Object::new()
        .text("channel", &route.channel)
        .text("to", &route.to)
        .text_if("accountId", route.account_id.as_deref())
        .text_if("threadId", route.thread_id.as_deref())
        .end()
}

/// Whether a key names a conversation of several people.
fn is_group(key: &str) -> bool {
    key.split(':')
        .any(|part| matches!(part, "group" | "channel"))
}

/// Display name, else what was said first, else the key.
fn derived_title(key: &str, conversation: &Conversation) -> String {
    let name = conversation.display_name.as_ref();
    let title = name.or(conversation.first_words.as_ref());
    title.map_or_else(|| key.to_owned(), Clone::clone)
}

/// The agent in `agent:<id>:…`.
pub(super) fn agent_of(key: &str) -> &str {
    let mut parts = key.split(':');
    match (parts.next(), parts.next()) {
        (Some("agent"), Some(agent)) => agent,
        _ => "main",
    }
}

/// A message as `sessions.get` gives it (`recorded`), or as an event carries it.
pub(super) fn message(message: &Message, recorded: bool) -> String {
    let mark = Object::new().text("id", &message.id);
    let mark = if recorded {
        mark.int("recordTimestampMs", message.at_ms)
    } else {
        mark
    };
    let mark = mark.int("seq", message.seq).end();
    let object = Object::new()
        .text("role", &message.role)
        .raw("content", &message.content)
        .int("timestamp", message.at_ms);
    let object = match &message.model {
        Some(model) => object.text("provider", "openclaw").text("model", model),
        None => object,
    };
    object
        .text_if("idempotencyKey", message.idempotency_key.as_deref())
        .raw("__openclaw", &mark)
        .end()
}

/// Payload of the `session.message` event about message `seq` of `key`. `None` when it has left
/// memory.
pub(super) fn message_event(store: &Store, key: &str, seq: u64) -> Option<String> {
    let conversation = store.conversation(key)?;
    let said = conversation.message(seq)?;
    let event = Object::new()
        .text("sessionKey", key)
        .text("agentId", agent_of(key))
        .raw("message", &message(said, false))
        .text("messageId", &said.id)
        .int("messageSeq", said.seq)
        .raw(
            "session",
            &session_row(key, conversation, RowExtras::default()),
        )
        .members(&row_members(key, conversation))
        .end();
    Some(event)
}

/// Payload of an `….approval.requested` event, and entry of `….approval.list`.
pub(super) fn approval(id: &str, approval: &Approval) -> String {
    Object::new()
        .text("id", id)
        .raw("request", &approval.request)
        .int("createdAtMs", approval.created_at_ms)
        .int("expiresAtMs", approval.expires_at_ms)
        .end()
}

/// Payload of an `….approval.resolved` event.
pub(super) fn approval_resolved(
    id: &str,
    approval: &Approval,
    decision: Decision,
    by: Option<&str>,
    at_ms: i64,
) -> String {
    Object::new()
        .text("id", id)
        .text("decision", decision.as_str())
        .text_or_null("resolvedBy", by)
        .int("ts", at_ms)
        .raw("request", &approval.request)
        .end()
}

/// Answer to a request for an approval once it is known how it ended; `None` when time ran out.
pub(super) fn approval_outcome(
    id: &str,
    decision: Option<Decision>,
    created_at_ms: i64,
    expires_at_ms: i64,
) -> String {
    Object::new()
        .text("id", id)
        .text_or_null("decision", decision.map(Decision::as_str))
        .int("createdAtMs", created_at_ms)
        .int("expiresAtMs", expires_at_ms)
        .end()
}
