//! The methods that read: `sessions.*` and `health`.

use super::params::Params;
use super::refusal::Refusal;
use super::rpc::{Desk, Outcome};
use super::store::Conversation;
use super::views::{self, Object, RowExtras};

/// Rows of `sessions.list` when the client names no limit.
const ROWS_DEFAULT: u64 = 100;
/// Rows for which a title and a preview are made. Source: OpenClaw `sessions.list`.
const ROWS_WITH_EXTRAS_MAX: usize = 100;
/// Messages of `sessions.get` when the client names no limit. Source: OpenClaw.
const MESSAGES_DEFAULT: u64 = 200;
/// Room in a reply for what stands around the rows or messages. Unit: bytes.
const ENVELOPE_BYTES: usize = 64 * 1024;

/// The key a client means: `main` is `agent:main:main`, keys are lower case. Source: openclaw-serve
/// §1.8.
pub(super) fn canonical_key(key: &str) -> String {
    let key = key.trim().to_lowercase();
    if key.starts_with("agent:") {
        key
    } else {
        format!("agent:main:{key}")
    }
}

pub(super) fn subscribe(_: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    params.only(&[])?;
    let mut outcome = Outcome::answer(r#"{"subscribed":true}"#);
    outcome.subscribe = Some(true);
    Ok(outcome)
}

pub(super) fn unsubscribe(_: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    params.only(&[])?;
    let mut outcome = Outcome::answer(r#"{"subscribed":false}"#);
    outcome.subscribe = Some(false);
    Ok(outcome)
}

pub(super) fn health(desk: &mut Desk<'_>, _: &Params<'_>) -> Result<Outcome, Refusal> {
    let count = u64::try_from(desk.store.conversation_count()).unwrap_or(u64::MAX);
    let payload = Object::new()
        .raw("ok", "true")
        .int("ts", desk.now.unix_ms)
        .raw("sessions", &Object::new().int("count", count).end())
        .end();
    Ok(Outcome::answer(payload))
}

/// What `sessions.list` filters by.
struct Filter {
    search: Option<String>,
    label: Option<String>,
    agent: Option<String>,
    spawned: bool,
    updated_after_ms: Option<i64>,
}

impl Filter {
    fn read(desk: &Desk<'_>, params: &Params<'_>) -> Result<Self, Refusal> {
        let minutes = params.integer("activeMinutes", 1, false)?;
        let span = |minutes: u64| i64::try_from(minutes.saturating_mul(60_000)).unwrap_or(i64::MAX);
        Ok(Self {
            search: params.text("search")?.map(|s| s.to_lowercase()),
            label: params.text("label")?,
            agent: params.text("agentId")?,
            spawned: params.text("spawnedBy")?.is_some(),
            updated_after_ms: minutes.map(|m| desk.now.unix_ms.saturating_sub(span(m))),
        })
    }

    fn admits(&self, key: &str, conversation: &Conversation) -> bool {
        let found = |search: &String| {
            let names = [
                Some(key),
                Some(conversation.session_id.as_str()),
                conversation.display_name.as_deref(),
                conversation.label.as_deref(),
            ];
            names
                .into_iter()
                .flatten()
                .any(|name| name.to_lowercase().contains(search))
        };
        !self.spawned
            && self.search.as_ref().is_none_or(found)
            && (self.label.is_none() || self.label == conversation.label)
            && self
                .agent
                .as_ref()
                .is_none_or(|agent| views::agent_of(key) == agent)
            && self
                .updated_after_ms
                .is_none_or(|after| conversation.updated_at_ms >= after)
    }
}

pub(super) fn list(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    params.only(&[
        "limit",
        "offset",
        "activeMinutes",
        "includeGlobal",
        "includeUnknown",
        "configuredAgentsOnly",
        "includeDerivedTitles",
        "includeLastMessage",
        "label",
        "spawnedBy",
        "agentId",
        "search",
    ])?;
    let limit = params.integer("limit", 1, false)?.unwrap_or(ROWS_DEFAULT);
    let offset = params.integer("offset", 0, false)?;
    let extras = RowExtras {
        derived_title: params.flag("includeDerivedTitles")?,
        last_message: params.flag("includeLastMessage")?,
    };
    for known in ["includeGlobal", "includeUnknown", "configuredAgentsOnly"] {
        params.flag(known)?;
    }
    let filter = Filter::read(desk, params)?;
    let mut found: Vec<(&str, &Conversation)> = desk
        .store
        .conversations()
        .filter(|(key, conversation)| filter.admits(key, conversation))
        .collect();
    found.sort_by_key(|(_, conversation)| std::cmp::Reverse(conversation.updated_at_ms));

    let start = usize::try_from(offset.unwrap_or(0)).unwrap_or(usize::MAX);
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let room = reply_bytes_max(desk);
    let mut rows = String::new();
    let mut count = 0;
    for (key, conversation) in found.iter().skip(start).take(most) {
        let extras = if count < ROWS_WITH_EXTRAS_MAX {
            extras
        } else {
            RowExtras::default()
        };
        let row = views::session_row(key, conversation, extras);
        if count > 0 && rows.len() + row.len() > room {
            break; // The rest is on the next page.
        }
        push_item(&mut rows, &row);
        count += 1;
    }
    let next = start.saturating_add(count);
    let more = next < found.len();
    let mut payload = Object::new()
        .int("ts", desk.now.unix_ms)
        .text("path", desk.store_label)
        .raw("count", &count.to_string())
        .raw("totalCount", &found.len().to_string())
        .int("limitApplied", limit);
    if let Some(offset) = offset {
        payload = payload.int("offset", offset);
    }
    let next = if more {
        next.to_string()
    } else {
        "null".to_owned()
    };
    let payload = payload
        .raw("nextOffset", &next)
        .raw("hasMore", if more { "true" } else { "false" })
        .raw(
            "defaults",
            r#"{"modelProvider":null,"model":null,"contextTokens":null}"#,
        )
        .raw("sessions", &format!("[{rows}]"))
        .end();
    Ok(Outcome::answer(payload))
}

pub(super) fn describe(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    params.only(&["key", "includeDerivedTitles", "includeLastMessage"])?;
    let key = canonical_key(&params.required_text("key")?);
    let extras = RowExtras {
        derived_title: params.flag("includeDerivedTitles")?,
        last_message: params.flag("includeLastMessage")?,
    };
    let row = desk.store.conversation(&key);
    let row = row.map_or_else(
        || "null".to_owned(),
        |conversation| views::session_row(&key, conversation, extras),
    );
    Ok(Outcome::answer(Object::new().raw("session", &row).end()))
}

pub(super) fn get(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    params.only(&["key", "limit"])?;
    let key = canonical_key(&params.required_text("key")?);
    let limit = params
        .integer("limit", 1, true)?
        .unwrap_or(MESSAGES_DEFAULT);
    let most = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut room = reply_bytes_max(desk);
    let mut newest_first = Vec::new();
    let messages = desk.store.conversation(&key).map(|c| &c.messages);
    for message in messages.into_iter().flat_map(|m| m.iter().rev()).take(most) {
        let json = views::message(message, true);
        if !newest_first.is_empty() && json.len() > room {
            break; // A reply that no client may accept helps nobody: the newest ones it is.
        }
        room = room.saturating_sub(json.len() + 1);
        newest_first.push(json);
    }
    let mut messages = String::new();
    for json in newest_first.iter().rev() {
        push_item(&mut messages, json);
    }
    Ok(Outcome::answer(
        Object::new()
            .raw("messages", &format!("[{messages}]"))
            .end(),
    ))
}

/// Bytes of rows or messages that fit a reply which a client still accepts.
pub(super) fn reply_bytes_max(desk: &Desk<'_>) -> usize {
    desk.limits
        .gateway_message_bytes_max
        .saturating_sub(ENVELOPE_BYTES)
}

/// Adds an item to the inside of a JSON array.
pub(super) fn push_item(items: &mut String, item: &str) {
    if !items.is_empty() {
        items.push(',');
    }
    items.push_str(item);
}
