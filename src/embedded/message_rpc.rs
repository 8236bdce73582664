//! The methods that add messages: `send`, `chat.send`, `chat.inject` and our own `drawspan.post`.

use serde_json::value::RawValue;

use super::content;
use super::journal::{ConversationRecord, MessageRecord, Record, Route};
use super::params::Params;
use super::refusal::Refusal;
use super::rpc::{Desk, News, Outcome};
use super::session_rpc::canonical_key;
use super::store::Answered;
use super::views::Object;
use crate::entropy::uuid_v4;

/// Channel of a conversation that was begun by a post without one.
pub const DEFAULT_CHANNEL: &str = "embedded";

/// Who says something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A person in the conversation.
    #[default]
    User,
    /// The agent.
    Assistant,
}

impl Role {
    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// A message to post. The conversation is created when it is new; then it gets a route, so that it
/// shows up in `conversations_list` and can be answered: the given one, else channel
/// [`DEFAULT_CHANNEL`] and the last part of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Post {
    /// Session key; without `agent:` in front it belongs to the agent `main`.
    pub session_key: String,
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub text: String,
    /// Messaging service of the conversation.
    pub channel: Option<String>,
    /// Receiver of answers on that service.
    pub to: Option<String>,
    /// Account of ours on that service.
    pub account_id: Option<String>,
    /// Thread in the conversation.
    pub thread_id: Option<String>,
    /// Name of the conversation for people.
    pub display_name: Option<String>,
}

/// Where a posted message went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    /// Canonical session key.
    pub session_key: String,
    /// Id of the message.
    pub message_id: String,
    /// Its number within the conversation, from 1.
    pub message_seq: u64,
}

/// What is to be appended to a conversation that exists.
struct Words {
    role: &'static str,
    content: Box<RawValue>,
    model: Option<&'static str>,
    once: Option<String>,
    sent_by: Option<String>,
}

pub(super) fn post(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    params.only(&[
        "sessionKey",
        "role",
        "text",
        "content",
        "channel",
        "to",
        "accountId",
        "threadId",
        "displayName",
        "label",
        "idempotencyKey",
    ])?;
    let role = match params.text("role")?.as_deref() {
        None | Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some(_) => return Err(params.wrong("role", "must be user or assistant")),
    };
    let post = Post {
        session_key: params.required_text("sessionKey")?,
        role,
        text: params.long_text("text")?.unwrap_or_default(),
        channel: params.text("channel")?,
        to: params.text("to")?,
        account_id: params.text("accountId")?,
        thread_id: params.text_or_number("threadId")?,
        display_name: params.text("displayName")?,
    };
    let blocks = match params.raw("content") {
        Some(raw) if raw.get().starts_with('[') => {
            let found = content::depth(raw.get());
            if found > content::DEPTH_MAX {
                let most = content::DEPTH_MAX;
                let rule = format!("must NOT be nested deeper than {most} levels (found {found})");
                return Err(params.wrong("content", &rule));
            }
            Some(content::in_one_line(raw))
        }
        Some(_) => return Err(params.wrong("content", "must be array")),
        None => None,
    };
    let label = params.text("label")?;
    let once = params.text("idempotencyKey")?;
    let (posted, news) = add_post(desk, &post, blocks, label, once)?;
    let payload = Object::new()
        .text("sessionKey", &posted.session_key)
        .text("messageId", &posted.message_id)
        .int("messageSeq", posted.message_seq)
        .end();
    let mut outcome = Outcome::answer(payload);
    outcome.news.extend(news);
    Ok(outcome)
}

/// Posts; also the way in for the program itself. No news when the idempotency key was used
/// already.
pub(super) fn add_post(
    desk: &mut Desk<'_>,
    post: &Post,
    blocks: Option<Box<RawValue>>,
    label: Option<String>,
    once: Option<String>,
) -> Result<(Posted, Option<News>), Refusal> {
    let role = post.role.as_str();
    if let Some(known) = once
        .as_ref()
        .and_then(|once| desk.store.answered(desk.now, role, once))
    {
        return Ok((Posted::from_answer(known), None));
    }
    let key = canonical_key(&post.session_key);
    let content = match (blocks, post.role) {
        (Some(blocks), _) => blocks,
        (None, _) if post.text.is_empty() => {
            return Err(Refusal::invalid("drawspan.post needs text or content"));
        }
        (None, Role::User) => content::string(&post.text),
        (None, Role::Assistant) => content::text_block(&post.text),
    };
    check_size(desk, &content)?;
    let route = route_of(desk, post, &key);
    ensure(desk, &key, label, post.display_name.clone(), route)?;
    let words = Words {
        role,
        content,
        model: (post.role == Role::Assistant).then_some("drawspan-post"),
        once,
        sent_by: None,
    };
    let (posted, news) = append(desk, key, words)?;
    Ok((posted, Some(news)))
}

/// The route a post gives its conversation; `None` leaves it as it is.
fn route_of(desk: &Desk<'_>, post: &Post, key: &str) -> Option<Route> {
    let known = desk.store.conversation(key);
    let given = [&post.channel, &post.to, &post.account_id, &post.thread_id];
    if known.is_some() && given.iter().all(|part| part.is_none()) {
        return None;
    }
    let route = known
        .and_then(|c| c.route.clone())
        .unwrap_or_else(|| Route {
            channel: DEFAULT_CHANNEL.to_owned(),
            to: key.rsplit(':').next().unwrap_or(key).to_owned(),
            account_id: None,
            thread_id: None,
        });
    Some(Route {
        channel: post
            .channel
            .as_ref()
            .map_or(route.channel, |c| c.to_lowercase()),
        to: post.to.clone().unwrap_or(route.to),
        account_id: post.account_id.clone().or(route.account_id),
        thread_id: post.thread_id.clone().or(route.thread_id),
    })
}

pub(super) fn send(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    params.only(&[
        "to",
        "message",
        "mediaUrl",
        "mediaUrls",
        "buffer",
        "filename",
        "contentType",
        "asVoice",
        "gifPlayback",
        "channel",
        "accountId",
        "agentId",
        "replyToId",
        "threadId",
        "forceDocument",
        "silent",
        "parseMode",
        "sessionKey",
        "idempotencyKey",
    ])?;
    let to = params.required_text("to")?;
    let once = params.required_text("idempotencyKey")?;
    let message = params.required_long_text("message")?;
    let channel = params.text("channel")?.map(|c| c.to_lowercase());
    let account_id = params.text("accountId")?;
    let thread_id = params.text("threadId")?;
    let key = params.text("sessionKey")?.map(|key| canonical_key(&key));
    if let Some(known) = desk.store.answered(desk.now, "assistant", &once) {
        return Ok(Outcome::answer(sent(&once, known)));
    }
    let known = key.as_ref().and_then(|key| desk.store.conversation(key));
    let stored = known
        .and_then(|c| c.route.as_ref())
        .map(|r| r.channel.clone());
    let channel = channel
        .or(stored)
        .ok_or_else(|| Refusal::invalid("channel is required: the session has no route"))?;
    let key = key.unwrap_or_else(|| key_of_route(desk, &channel, &to));
    let content = content::text_block(&message);
    check_size(desk, &content)?;
    if desk.store.conversation(&key).is_none() {
        let route = Route {
            channel: channel.clone(),
            to,
            account_id,
            thread_id,
        };
        ensure(desk, &key, None, None, Some(route))?;
    }
    let words = Words {
        role: "assistant",
        content,
        model: Some("delivery-mirror"),
        once: Some(once.clone()),
        sent_by: Some(channel),
    };
    let (_, news) = append(desk, key, words)?;
    let answer = desk.store.answered(desk.now, "assistant", &once);
    let payload = answer.map_or_else(|| "{}".to_owned(), |known| sent(&once, known));
    Ok(Outcome::answer(payload).with_news(news))
}

fn sent(once: &str, answered: &Answered) -> String {
    Object::new()
        .text("runId", once)
        .text("messageId", &answered.message_id)
        .text(
            "channel",
            answered.channel.as_deref().unwrap_or(DEFAULT_CHANNEL),
        )
        .end()
}

/// The session that `to` on `channel` belongs to: the one with this route, else a direct one of
/// that name.
fn key_of_route(desk: &Desk<'_>, channel: &str, to: &str) -> String {
    let same = desk.store.conversations().find(|(_, conversation)| {
        let route = conversation.route.as_ref();
        route.is_some_and(|route| route.channel == channel && route.to == to)
    });
    same.map_or_else(
        || canonical_key(&format!("agent:main:{channel}:direct:{to}")),
        |(key, _)| key.to_owned(),
    )
}

pub(super) fn chat_send(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    params.only(&[
        "sessionKey",
        "message",
        "thinking",
        "deliver",
        "timeoutMs",
        "idempotencyKey",
    ])?;
    let key = canonical_key(&params.required_text("sessionKey")?);
    let message = params.required_long_text("message")?;
    let run = params.required_text("idempotencyKey")?;
    params.flag("deliver")?;
    let started = Object::new()
        .text("runId", &run)
        .text("status", "started")
        .end();
    let once = format!("{run}:user");
    if desk.store.answered(desk.now, "user", &once).is_some() {
        return Ok(Outcome::answer(started));
    }
    let content = content::string(&message);
    check_size(desk, &content)?;
    if desk.store.conversation(&key).is_none() {
        ensure(desk, &key, None, None, None)?;
    }
    let words = Words {
        role: "user",
        content,
        model: None,
        once: Some(once),
        sent_by: None,
    };
    let (_, news) = append(desk, key, words)?;
    Ok(Outcome::answer(started).with_news(news))
}

pub(super) fn chat_inject(desk: &mut Desk<'_>, params: &Params<'_>) -> Result<Outcome, Refusal> {
    params.only(&["sessionKey", "message", "label"])?;
    let key = canonical_key(&params.required_text("sessionKey")?);
    let message = params.required_long_text("message")?;
    if desk.store.conversation(&key).is_none() {
        return Err(Refusal::invalid("session not found"));
    }
    let text = match params.text("label")? {
        Some(label) => format!("[{label}]\n\n{message}"),
        None => message,
    };
    let content = content::text_block(&text);
    check_size(desk, &content)?;
    let words = Words {
        role: "assistant",
        content,
        model: Some("gateway-injected"),
        once: None,
        sent_by: None,
    };
    let (posted, news) = append(desk, key, words)?;
    let payload = Object::new()
        .raw("ok", "true")
        .text("messageId", &posted.message_id)
        .end();
    Ok(Outcome::answer(payload).with_news(news))
}

fn check_size(desk: &Desk<'_>, content: &RawValue) -> Result<(), Refusal> {
    let (most, found) = (desk.limits.message_bytes_max, content.get().len());
    if found <= most {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "the message is too long (message_bytes_max {most}, found {found})"
    )))
}

/// Creates the conversation, or records what is given about it; nothing is recorded when nothing
/// is.
fn ensure(
    desk: &mut Desk<'_>,
    key: &str,
    label: Option<String>,
    display_name: Option<String>,
    route: Option<Route>,
) -> Result<(), Refusal> {
    let known = desk.store.conversation(key);
    match known {
        None => desk.store.check_room()?,
        Some(known) => {
            let same = (label.is_none() || label == known.label)
                && (display_name.is_none() || display_name == known.display_name)
                && (route.is_none() || route == known.route);
            if same {
                return Ok(());
            }
        }
    }
    let session_id = match known {
        Some(known) => known.session_id.clone(),
        None => uuid_v4(desk.entropy),
    };
    let record = ConversationRecord {
        key: key.to_owned(),
        session_id,
        at_ms: desk.now.unix_ms,
        label,
        display_name,
        route,
    };
    desk.store.commit(desk.now, Record::Conversation(record))
}

fn append(desk: &mut Desk<'_>, key: String, words: Words) -> Result<(Posted, News), Refusal> {
    let id = uuid_v4(desk.entropy);
    let seq = desk.store.next_seq(&key);
    let record = MessageRecord {
        key: key.clone(),
        id: id.clone(),
        seq,
        role: words.role.to_owned(),
        content: words.content,
        at_ms: desk.now.unix_ms,
        model: words.model.map(str::to_owned),
        idempotency_key: words.once,
        sent_by: words.sent_by,
    };
    desk.store.commit(desk.now, Record::Message(record))?;
    let posted = Posted {
        session_key: key.clone(),
        message_id: id,
        message_seq: seq,
    };
    Ok((posted, News::Message { key, seq }))
}

impl Posted {
    fn from_answer(answered: &Answered) -> Self {
        Self {
            session_key: answered.key.clone(),
            message_id: answered.message_id.clone(),
            message_seq: answered.seq,
        }
    }
}
