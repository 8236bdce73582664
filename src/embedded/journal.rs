//! The journal of the embedded Gateway: one line of JSON for each change, appended and never
//! rewritten.
//!
//! ```text
//! {"sum":"<8 hex digits>","record":{"<kind>":{…}}}\n
//! ```
//!
//! `sum` is the beginning of the SHA-256 of the bytes of `record`, so a line that was cut by a
//! crash or damaged on disk is recognised and skipped, and the lines around it still count.
//!
//! Never: opens a file. The bytes leave as [`IoRequest::Append`](crate::link::IoRequest::Append).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::crypto::sha256;

/// Version of the records; written in the first line of a journal.
pub(super) const JOURNAL_VERSION: u32 = 1;

/// One change of the store. What a record says is complete: applying the same records in the same
/// order gives the same store, whether they come from a client or from the disk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Record {
    /// A journal begins.
    Store(StoreRecord),
    /// A conversation is new or something about it changed; members that are absent stay as they
    /// were.
    Conversation(ConversationRecord),
    /// A message was added.
    Message(MessageRecord),
    /// Somebody must decide.
    Approval(ApprovalRecord),
    /// Somebody has decided.
    Decision(DecisionRecord),
    /// A device was paired, or its scopes grew.
    Device(DeviceRecord),
}

/// The first record of a journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoreRecord {
    /// Version of the records that follow.
    pub(super) version: u32,
    /// When the journal was begun, Unix milliseconds.
    pub(super) at_ms: i64,
}

/// Where answers of a conversation go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The messaging service, lower case: `telegram`, `slack` …
    pub channel: String,
    /// The receiver, as the service names it.
    pub to: String,
    /// Which account of ours on that service.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub account_id: Option<String>,
    /// The thread within the conversation.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_id: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConversationRecord {
    /// Canonical session key.
    pub(super) key: String,
    /// Id of the session; taken from the first record of the key.
    pub(super) session_id: String,
    /// When, Unix milliseconds.
    pub(super) at_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) route: Option<Route>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageRecord {
    /// Canonical key of its conversation.
    pub(super) key: String,
    pub(super) id: String,
    /// Number within the conversation, from 1. Stored, so that a lost record leaves a gap and
    /// renumbers nothing.
    pub(super) seq: u64,
    pub(super) role: String,
    /// A JSON string or an array of blocks.
    pub(super) content: Box<RawValue>,
    /// When it was said, Unix milliseconds.
    pub(super) at_ms: i64,
    /// What made an assistant's message: `delivery-mirror`, `gateway-injected`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) idempotency_key: Option<String>,
    /// The channel a sent message left by.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) sent_by: Option<String>,
}

/// Which kind of approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalKind {
    /// A command wants to run.
    Exec,
    /// A plugin wants to do something.
    Plugin,
}

/// What was decided about an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decision {
    /// Yes, this time.
    AllowOnce,
    /// Yes, and do not ask again.
    AllowAlways,
    /// No.
    Deny,
}

impl Decision {
    /// All decisions, in the order in which they are offered.
    pub const ALL: [Self; 3] = [Self::AllowOnce, Self::AllowAlways, Self::Deny];

    /// The spelling on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow-once",
            Self::AllowAlways => "allow-always",
            Self::Deny => "deny",
        }
    }

    /// The decision with this spelling.
    #[must_use]
    pub fn from_wire(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|d| d.as_str() == text)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ApprovalRecord {
    pub(super) kind: ApprovalKind,
    pub(super) id: String,
    /// The request as subscribers see it: a JSON object.
    pub(super) request: Box<RawValue>,
    /// Decisions that may be given.
    pub(super) allowed: Vec<Decision>,
    pub(super) created_at_ms: i64,
    pub(super) expires_at_ms: i64,
    /// Device of the requester; absent when the Gateway itself asks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) device: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DecisionRecord {
    pub(super) kind: ApprovalKind,
    pub(super) id: String,
    pub(super) decision: Decision,
    /// Who decided, as shown to people.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) by: Option<String>,
    pub(super) at_ms: i64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeviceRecord {
    /// Lower-case hex SHA-256 of its public key.
    pub(super) id: String,
    /// The device token. The store is as secret as OpenClaw's state directory.
    pub(super) token: String,
    /// Scopes the token covers, sorted.
    pub(super) scopes: Vec<String>,
    /// When it was paired, Unix milliseconds.
    pub(super) at_ms: i64,
}

const OPENING: &[u8] = br#"{"sum":""#;
const MIDDLE: &[u8] = br#"","record":"#;
const SUM_DIGITS: usize = 8;
const PREFIX_BYTES: usize = OPENING.len() + SUM_DIGITS + MIDDLE.len();

/// Appends the line of `record` to `out`.
pub(super) fn write_line(out: &mut Vec<u8>, record: &Record) {
    let body = serde_json::to_vec(record).expect("records have string keys and no failing members");
    out.extend_from_slice(OPENING);
    out.extend_from_slice(&sum(&body));
    out.extend_from_slice(MIDDLE);
    out.extend_from_slice(&body);
    out.extend_from_slice(b"}\n");
}

/// Reads one line, without its newline. `None` when it is cut, damaged or of no known kind.
pub(super) fn read_line(line: &[u8]) -> Option<Record> {
    let body = line.get(PREFIX_BYTES..)?.strip_suffix(b"}")?;
    let prefix = &line[..PREFIX_BYTES];
    let digits = prefix.strip_prefix(OPENING)?.strip_suffix(MIDDLE)?;
    if digits != sum(body) {
        return None;
    }
    serde_json::from_slice(body).ok()
}

fn sum(body: &[u8]) -> [u8; SUM_DIGITS] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digest = sha256(body);
    std::array::from_fn(|i| {
        let byte = digest[i / 2];
        DIGITS[usize::from(if i % 2 == 0 { byte >> 4 } else { byte & 0x0f })]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Record {
        Record::Message(MessageRecord {
            key: "agent:main:main".to_owned(),
            id: "m1".to_owned(),
            seq: 1,
            role: "user".to_owned(),
            content: RawValue::from_string(r#"[{"type":"text","text":"1.0 \n é"}]"#.to_owned())
                .expect("valid"),
            at_ms: 5,
            model: None,
            idempotency_key: None,
            sent_by: None,
        })
    }

    #[test]
    fn a_line_is_plain_json_and_comes_back_byte_for_byte() {
        let mut line = Vec::new();
        write_line(&mut line, &message());
        let text = std::str::from_utf8(&line).expect("UTF-8");
        assert!(text.ends_with("}\n"), "{text}");
        assert!(
            serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok(),
            "{text}"
        );
        let Some(Record::Message(back)) = read_line(&line[..line.len() - 1]) else {
            panic!("not read back: {text}");
        };
        assert_eq!(back.content.get(), r#"[{"type":"text","text":"1.0 \n é"}]"#);
        assert_eq!((back.seq, back.at_ms), (1, 5));
    }

    #[test]
    fn every_cut_and_every_flipped_byte_is_noticed() {
        let mut line = Vec::new();
        write_line(&mut line, &message());
        line.pop();
        for end in 0..line.len() {
            assert!(read_line(&line[..end]).is_none(), "cut at {end}");
        }
        for at in 0..line.len() {
            let mut bad = line.clone();
            bad[at] ^= 0x01;
            assert!(read_line(&bad).is_none(), "flipped at {at}");
        }
    }

    #[test]
    fn decisions_keep_their_spelling() {
        for decision in Decision::ALL {
            assert_eq!(Decision::from_wire(decision.as_str()), Some(decision));
            assert_eq!(
                serde_json::to_string(&decision).expect("json"),
                format!("\"{}\"", decision.as_str())
            );
        }
        assert_eq!(Decision::from_wire("maybe"), None);
    }
}
