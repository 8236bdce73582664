//! Conversations: what a Gateway session row or a message says about who is talked to, and over
//! what.
//!
//! Rows are read through borrowed slices and written once; nothing becomes a value tree. A member
//! of an unexpected type counts as absent, so that one odd member costs that member. OpenClaw:
//! `openclaw-serve` §3.3 (the object), §3.5 (its short form in events).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::raw_json::{elements, is_number, is_object, is_string, text, write_member, write_raw};
use crate::codec::json_text::write_string;
use crate::codec::object::from_object;

/// The members of a session row that we act on.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    #[serde(borrow)]
    key: Option<&'a RawValue>,
    #[serde(borrow)]
    delivery_context: Option<&'a RawValue>,
    #[serde(borrow)]
    last_channel: Option<&'a RawValue>,
    #[serde(borrow)]
    channel: Option<&'a RawValue>,
    #[serde(borrow)]
    origin: Option<&'a RawValue>,
    #[serde(borrow)]
    last_to: Option<&'a RawValue>,
    #[serde(borrow)]
    last_account_id: Option<&'a RawValue>,
    #[serde(borrow)]
    last_thread_id: Option<&'a RawValue>,
    #[serde(borrow)]
    label: Option<&'a RawValue>,
    #[serde(borrow)]
    display_name: Option<&'a RawValue>,
    #[serde(borrow)]
    derived_title: Option<&'a RawValue>,
    #[serde(borrow)]
    last_message_preview: Option<&'a RawValue>,
    #[serde(borrow)]
    updated_at: Option<&'a RawValue>,
}

/// `deliveryContext` and `origin` of a row; each uses some of the members.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Route<'a> {
    #[serde(borrow)]
    channel: Option<&'a RawValue>,
    #[serde(borrow)]
    provider: Option<&'a RawValue>,
    #[serde(borrow)]
    to: Option<&'a RawValue>,
    #[serde(borrow)]
    account_id: Option<&'a RawValue>,
    #[serde(borrow)]
    thread_id: Option<&'a RawValue>,
}

impl<'a> Route<'a> {
    fn read(raw: Option<&'a RawValue>) -> Self {
        raw.and_then(|raw| from_object(raw.get()).ok())
            .unwrap_or_default()
    }
}

/// A session that has a route: a channel and an address on it.
pub(super) struct Conversation<'a> {
    /// The Gateway's own (canonical) key.
    pub(super) session_key: Cow<'a, str>,
    /// Lower-case name of the channel.
    pub(super) channel: String,
    /// Address on that channel.
    pub(super) to: Cow<'a, str>,
    /// Account of ours on that channel.
    pub(super) account_id: Option<Cow<'a, str>>,
    /// A JSON string or number, as the Gateway wrote it.
    pub(super) thread_id: Option<&'a RawValue>,
    label: Option<Cow<'a, str>>,
    display_name: Option<Cow<'a, str>>,
    derived_title: Option<Cow<'a, str>>,
    last_message_preview: Option<Cow<'a, str>>,
    /// A JSON number, as the Gateway wrote it.
    updated_at: Option<&'a RawValue>,
}

impl<'a> Conversation<'a> {
    /// Reads a session row; `None` when it has no key, no channel or no address, or is no row at
    /// all.
    pub(super) fn from_row(raw: &'a RawValue) -> Option<Self> {
        Self::from_members(from_object(raw.get()).ok()?)
    }

    /// Reads the short form from the flattened members of a `session.message` payload.
    fn from_message(message: &SessionMessage<'a>) -> Option<Self> {
        Self::from_members(Row {
            key: message.session_key,
            last_channel: message.last_channel,
            last_to: message.last_to,
            last_account_id: message.last_account_id,
            last_thread_id: message.last_thread_id,
            ..Row::default()
        })
    }

    fn from_members(row: Row<'a>) -> Option<Self> {
        let delivery = Route::read(row.delivery_context);
        let origin = Route::read(row.origin);
        let channel = text(delivery.channel)
            .or_else(|| text(row.last_channel))
            .or_else(|| text(row.channel))
            .or_else(|| text(origin.provider))?;
        Some(Self {
            session_key: text(row.key)?,
            channel: channel.to_lowercase(),
            to: text(delivery.to).or_else(|| text(row.last_to))?,
            account_id: text(delivery.account_id)
                .or_else(|| text(row.last_account_id))
                .or_else(|| text(origin.account_id)),
            thread_id: delivery
                .thread_id
                .or(row.last_thread_id)
                .or(origin.thread_id)
                .filter(|raw| is_string(raw) || is_number(raw)),
            label: text(row.label),
            display_name: text(row.display_name),
            derived_title: text(row.derived_title),
            last_message_preview: text(row.last_message_preview),
            updated_at: row.updated_at.filter(|raw| is_number(raw)),
        })
    }

    /// Appends the conversation as a JSON object, members in the order of the recordings.
    pub(super) fn write(&self, out: &mut String) {
        out.push_str("{\"sessionKey\":");
        write_string(out, &self.session_key);
        write_member(out, "channel", Some(&self.channel));
        write_member(out, "to", Some(&self.to));
        write_member(out, "accountId", self.account_id.as_deref());
        if let Some(thread) = self.thread_id {
            write_raw(out, "threadId", thread.get());
        }
        write_member(out, "label", self.label.as_deref());
        write_member(out, "displayName", self.display_name.as_deref());
        write_member(out, "derivedTitle", self.derived_title.as_deref());
        write_member(
            out,
            "lastMessagePreview",
            self.last_message_preview.as_deref(),
        );
        let updated_at = self.updated_at.map_or("null", RawValue::get);
        write_raw(out, "updatedAt", updated_at);
        out.push('}');
    }

    /// The thread as a JSON string, whatever the Gateway wrote: what `send` and the notifications
    /// want.
    pub(super) fn thread_id_as_string(&self) -> Option<Cow<'a, str>> {
        self.thread_id.map(|thread| {
            if is_string(thread) {
                Cow::Borrowed(thread.get())
            } else {
                Cow::Owned(format!("\"{}\"", thread.get()))
            }
        })
    }
}

/// The payload of a `session.message` event, as far as we act on it. OpenClaw: `openclaw-serve`
/// §1.9.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionMessage<'a> {
    #[serde(borrow)]
    session_key: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    message_id: Option<&'a RawValue>,
    #[serde(borrow)]
    message_seq: Option<&'a RawValue>,
    #[serde(borrow)]
    last_channel: Option<&'a RawValue>,
    #[serde(borrow)]
    last_to: Option<&'a RawValue>,
    #[serde(borrow)]
    last_account_id: Option<&'a RawValue>,
    #[serde(borrow)]
    last_thread_id: Option<&'a RawValue>,
}

/// A transcript entry, as far as we act on it.
#[derive(Default, Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow, rename = "__openclaw")]
    openclaw: Option<&'a RawValue>,
}

/// A content block, or the `__openclaw` member of an entry.
#[derive(Default, Deserialize)]
struct Block<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

impl<'a> Block<'a> {
    fn read(raw: &'a RawValue) -> Option<Self> {
        from_object(raw.get()).ok()
    }
}

impl<'a> Entry<'a> {
    fn read(raw: Option<&'a RawValue>) -> Self {
        raw.and_then(|raw| from_object(raw.get()).ok())
            .unwrap_or_default()
    }
}

/// A `session.message` event, taken apart.
pub(super) struct Incoming<'a> {
    /// The whole payload, as the Gateway wrote it.
    pub(super) raw: &'a RawValue,
    /// Key of the session, never blank.
    pub(super) session_key: Cow<'a, str>,
    /// The route of the session, when it has one.
    pub(super) conversation: Option<Conversation<'a>>,
    /// The Gateway's id of the message.
    pub(super) message_id: Option<Cow<'a, str>>,
    /// A JSON number, as the Gateway wrote it.
    pub(super) message_seq: Option<&'a RawValue>,
    /// Who speaks: `user`, `assistant`, ….
    pub(super) role: Option<Cow<'a, str>>,
    /// The first text as a JSON string, as the Gateway wrote it; later blocks are not looked at.
    pub(super) text: Option<&'a RawValue>,
    content: Option<&'a RawValue>,
}

impl<'a> Incoming<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// What is wrong with it, for a diagnostic.
    pub(super) fn read(payload: Option<&'a RawValue>) -> Result<Self, &'static str> {
        let payload = payload.ok_or("there is no payload")?;
        if !is_object(payload) {
            return Err("the payload is no object");
        }
        let message: SessionMessage<'a> =
            serde_json::from_str(payload.get()).map_err(|_| "the payload is no readable object")?;
        let session_key = text(message.session_key).ok_or("sessionKey is no text")?;
        let entry = Entry::read(message.message);
        Ok(Self {
            raw: payload,
            session_key,
            conversation: Conversation::from_message(&message),
            message_id: text(message.message_id),
            message_seq: message.message_seq.filter(|raw| is_number(raw)),
            role: text(entry.role),
            text: first_text(entry.content),
            content: entry.content,
        })
    }

    /// Every text of the message, not only the first one.
    pub(super) fn texts(&self) -> Vec<&'a RawValue> {
        let Some(content) = self.content else {
            return Vec::new();
        };
        if is_string(content) {
            return vec![content];
        }
        let blocks = elements(content).unwrap_or_default();
        blocks
            .into_iter()
            .filter_map(|raw| Block::read(raw)?.text)
            .filter(|raw| is_string(raw))
            .collect()
    }
}

/// The content itself when it is a string, else the text of its first block.
fn first_text(content: Option<&RawValue>) -> Option<&RawValue> {
    let content = content?;
    if is_string(content) {
        return Some(content);
    }
    let first = elements(content)?.into_iter().next()?;
    Block::read(first)?.text.filter(|raw| is_string(raw))
}

/// Whether a transcript entry has the id `wanted`: its own, or else the one the Gateway added.
pub(super) fn entry_has_id(raw: &RawValue, wanted: &str) -> bool {
    let entry = Entry::read(Some(raw));
    let id = text(entry.id).or_else(|| text(entry.openclaw.and_then(Block::read)?.id));
    id.as_deref() == Some(wanted)
}

/// The content blocks of a transcript entry that are no text: images, but also thinking and tool
/// calls.
pub(super) fn attachments(raw: &RawValue) -> Vec<&RawValue> {
    let blocks = Entry::read(Some(raw)).content.and_then(elements);
    blocks
        .unwrap_or_default()
        .into_iter()
        .filter(|raw| {
            Block::read(raw).is_some_and(|block| text(block.kind).as_deref() != Some("text"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).expect("test input is JSON")
    }

    fn shown(row: &str) -> Option<String> {
        let mut out = String::new();
        Conversation::from_row(raw(row))?.write(&mut out);
        Some(out)
    }

    #[test]
    fn the_first_that_is_not_blank_counts() {
        let row = r#"{"key":" k ","deliveryContext":{"channel":" ","to":"","accountId":" a1 ","threadId":null},
            "lastChannel":"","channel":" Signal ","origin":{"provider":"irc","accountId":"a3","threadId":"t3"},
            "lastTo":" t ","lastAccountId":"a2","lastThreadId":null,"label":" l ","displayName":"","updatedAt":1.50}"#;
        assert_eq!(
            shown(row).expect("it has a route"),
            r#"{"sessionKey":"k","channel":"signal","to":"t","accountId":"a1","threadId":"t3","label":"l","updatedAt":1.50}"#
        );
        let row = r#"{"key":"k","deliveryContext":{"channel":"A","to":"1"},"lastChannel":"b","lastTo":"2","updatedAt":"x"}"#;
        assert_eq!(
            shown(row).expect("it has a route"),
            r#"{"sessionKey":"k","channel":"a","to":"1","updatedAt":null}"#
        );
        let row = r#"{"key":"k","origin":{"provider":"IRC","to":"no"},"lastTo":"2"}"#;
        assert!(
            shown(row)
                .expect("it has a route")
                .contains(r#""channel":"irc","to":"2""#)
        );
    }

    #[test]
    fn without_a_key_a_channel_or_an_address_there_is_none() {
        for row in [
            r#"{"lastChannel":"c","lastTo":"t"}"#,
            r#"{"key":" ","lastChannel":"c","lastTo":"t"}"#,
            r#"{"key":"k","lastTo":"t"}"#,
            r#"{"key":"k","lastChannel":"c"}"#,
            r#"{"key":"k","lastChannel":7,"lastTo":"t"}"#,
            r#"{"key":"k","lastChannel":"c","deliveryContext":{"to":{}}}"#,
            "null",
            "[]",
            "\"k\"",
        ] {
            assert_eq!(shown(row), None, "{row}");
        }
    }

    #[test]
    fn a_thread_id_is_untouched_or_absent() {
        for (delivery, shown_as, as_string) in [
            (
                "17171717.000100",
                Some("17171717.000100"),
                Some("\"17171717.000100\""),
            ),
            (
                "\" \\u0041 \"",
                Some("\" \\u0041 \""),
                Some("\" \\u0041 \""),
            ),
            ("\"\"", Some("\"\""), Some("\"\"")),
            ("{}", None, None),
            ("true", None, None),
        ] {
            let row = format!(
                "{{\"key\":\"k\",\"lastChannel\":\"c\",\"lastTo\":\"t\",\"lastThreadId\":{delivery}}}"
            );
            let conversation = Conversation::from_row(raw(&row)).expect("it has a route");
            assert_eq!(conversation.thread_id.map(RawValue::get), shown_as);
            assert_eq!(conversation.thread_id_as_string().as_deref(), as_string);
        }
    }

    #[test]
    fn the_text_of_a_message_is_its_first() {
        for (content, first, all) in [
            ("\"plain\"", Some("\"plain\""), 1),
            ("\"\"", Some("\"\""), 1),
            (
                r#"[{"type":"text","text":"a"},{"type":"text","text":"b"}]"#,
                Some("\"a\""),
                2,
            ),
            (r#"[{"type":"thinking","text":"odd"}]"#, Some("\"odd\""), 1),
            (
                r#"[{"type":"image"},{"type":"text","text":"late"}]"#,
                None,
                1,
            ),
            (r#"[{"type":"text","text":5}]"#, None, 0),
            ("[]", None, 0),
            ("[null,[1,2,3]]", None, 0),
            ("{\"text\":\"x\"}", None, 0),
            ("7", None, 0),
        ] {
            let payload = format!("{{\"sessionKey\":\"s\",\"message\":{{\"content\":{content}}}}}");
            let message = Incoming::read(Some(raw(&payload))).expect("it has a key");
            assert_eq!(message.text.map(RawValue::get), first, "{content}");
            assert_eq!(message.texts().len(), all, "{content}");
        }
    }

    #[test]
    fn an_entry_has_its_own_id_or_else_that_of_the_gateway() {
        for (entry, has) in [
            (r#"{"id":"m"}"#, true),
            (r#"{"id":" m ","__openclaw":{"id":"x"}}"#, true),
            (r#"{"__openclaw":{"id":"m"}}"#, true),
            (r#"{"id":"","__openclaw":{"id":"m"}}"#, true),
            (r#"{"id":5,"__openclaw":{"id":"m"}}"#, true),
            (r#"{"id":"x","__openclaw":{"id":"m"}}"#, false),
            (r#"{"__openclaw":"m"}"#, false),
            ("{}", false),
            ("\"m\"", false),
        ] {
            assert_eq!(entry_has_id(raw(entry), "m"), has, "{entry}");
        }
    }

    #[test]
    fn attachments_are_the_blocks_that_are_no_text() {
        let entry = r#"{"content":[{"type":"text","text":"t"},{"type":"image","data":"1"},{"type":"\u0074ext"},7,null,{"n":1}]}"#;
        let found: Vec<_> = attachments(raw(entry))
            .iter()
            .map(|raw| raw.get())
            .collect();
        assert_eq!(found, [r#"{"type":"image","data":"1"}"#, r#"{"n":1}"#]);
        for none in [
            r#"{"content":"s"}"#,
            "{}",
            "[]",
            r#"{"content":{"type":"image"}}"#,
        ] {
            assert!(attachments(raw(none)).is_empty(), "{none}");
        }
    }
}
