//! What the embedded Gateway knows, rebuilt from its journal.
//!
//! [`Store::commit`] writes a record and then applies it; [`Store::replay`] only applies. Nothing
//! else changes the store, so a Gateway that was killed and started again knows what it knew. Two
//! things leave memory without a record, because they are bounds and not facts: the oldest messages
//! beyond the limits (they stay in the journal), and approvals whose time is up.
//!
//! Never: opens a file, reads a clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::approvals::{ApprovalTable, Lapsed};
use super::content;
use super::journal::{
    self, ConversationRecord, DeviceRecord, JOURNAL_VERSION, MessageRecord, Record, Route,
    StoreRecord,
};
use super::refusal::Refusal;
use crate::clock::Now;
use crate::limits::Limits;
use crate::secret::Secret;

/// Bytes of message contents kept in memory, over all conversations; the oldest go first.
const MESSAGE_BYTES_KEPT_MAX: usize = 256 * 1024 * 1024;
/// Answers to sent messages that are remembered for repeated idempotency keys; the oldest goes
/// first.
const ANSWERS_KEPT_MAX: usize = 10_000;
/// How long a repeated idempotency key gets the first answer. Unit: ms. Source: OpenClaw `send`.
const ANSWER_TTL_MS: i64 = 5 * 60 * 1_000;
/// Paired devices; the one paired longest ago goes first.
const DEVICES_MAX: usize = 1_000;

/// What a replay found, for the person who starts the Gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Records applied.
    pub applied: u64,
    /// Lines in the middle that were damaged or of an unknown kind, and were skipped.
    pub damaged: u64,
    /// Bytes of a last line that was cut, and was dropped. The journal may be shortened by them
    /// before anything is appended, and need not be: the next record starts on a line of its own.
    pub cut_bytes: u64,
}

impl std::fmt::Display for Replay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} records read", self.applied)?;
        if self.damaged > 0 {
            write!(f, ", {} damaged lines skipped", self.damaged)?;
        }
        if self.cut_bytes > 0 {
            write!(f, ", a cut last line of {} bytes dropped", self.cut_bytes)?;
        }
        Ok(())
    }
}

/// One message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) id: String,
    pub(super) seq: u64,
    pub(super) role: String,
    /// A JSON string or array.
    pub(super) content: Box<str>,
    pub(super) at_ms: i64,
    pub(super) model: Option<String>,
    pub(super) idempotency_key: Option<String>,
}

/// One conversation.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) session_id: String,
    pub(super) label: Option<String>,
    pub(super) display_name: Option<String>,
    pub(super) route: Option<Route>,
    pub(super) updated_at_ms: i64,
    /// Start of the first thing a user said, for a title.
    pub(super) first_words: Option<String>,
    /// The newest messages, oldest first.
    pub(super) messages: VecDeque<Message>,
    next_seq: u64,
}

/// The answer a sender got, for the case that it asks again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) key: String,
    pub(super) message_id: String,
    pub(super) seq: u64,
    pub(super) channel: Option<String>,
    at_ms: i64,
}

/// A paired device.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) token: Secret,
    pub(super) scopes: Vec<String>,
    pub(super) at_ms: i64,
}

/// All that the Gateway knows. See the module for how it changes.
#[derive(Debug)]
pub(super) struct Store {
    messages_max: usize,
    sessions_max: usize,
    bytes_max: usize,
    conversations: BTreeMap<Arc<str>, Conversation>,
    /// Messages in memory by age, to forget the oldest; entries of messages already gone are passed
    /// over.
    by_age: VecDeque<(Arc<str>, u64)>,
    messages_kept: usize,
    bytes_kept: usize,
    answers: BTreeMap<String, Answered>,
    answers_by_age: VecDeque<String>,
    pub(super) approvals: ApprovalTable,
    devices: BTreeMap<String, Device>,
    /// Whether records are written at all.
    keeps_journal: bool,
    /// Lines not yet handed to the loop.
    unwritten: Vec<u8>,
    has_header: bool,
    /// The journal ends within a line.
    torn: bool,
    /// Why nothing can be changed any more.
    read_only: Option<String>,
}

impl Store {
    /// An empty store.
    fn new(limits: &Limits, keeps_journal: bool) -> Self {
        Self {
            keeps_journal,
            messages_max: limits.embedded_messages_max.max(1),
            sessions_max: limits.embedded_sessions_max,
            bytes_max: MESSAGE_BYTES_KEPT_MAX,
            conversations: BTreeMap::new(),
            by_age: VecDeque::new(),
            messages_kept: 0,
            bytes_kept: 0,
            answers: BTreeMap::new(),
            answers_by_age: VecDeque::new(),
            approvals: ApprovalTable::new(limits.approvals_pending_max),
            devices: BTreeMap::new(),
            unwritten: Vec::new(),
            has_header: false,
            torn: false,
            read_only: None,
        }
    }

    /// The store that `bytes`, the whole journal, describes. Damaged lines are skipped and counted.
    /// Without `keeps_journal` what changes later is written nowhere.
    ///
    /// # Errors
    /// The version of a journal this program cannot read.
    pub(super) fn replay(
        limits: &Limits,
        keeps_journal: bool,
        now: Now,
        bytes: &[u8],
    ) -> Result<(Self, Replay), u32> {
        let mut store = Self::new(limits, keeps_journal);
        let mut found = Replay::default();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (line, whole) = match line.strip_suffix(b"\n") {
                Some(line) => (line, true),
                None => (line, false),
            };
            store.torn = !whole;
            if line.is_empty() {
                continue;
            }
            match journal::read_line(line) {
                Some(Record::Store(header)) if header.version != JOURNAL_VERSION => {
                    return Err(header.version);
                }
                Some(record) => {
                    found.applied += 1;
                    store.apply(now, record);
                }
                None if whole => found.damaged += 1,
                None => found.cut_bytes = u64::try_from(line.len()).unwrap_or(u64::MAX),
            }
        }
        Ok((store, found))
    }

    /// Makes a change: it is in the journal bytes of [`take_unwritten`](Self::take_unwritten) and
    /// in memory afterwards.
    ///
    /// # Errors
    /// The refusal to give the client when the journal can no longer be written.
    pub(super) fn commit(&mut self, now: Now, record: Record) -> Result<(), Refusal> {
        if let Some(why) = &self.read_only {
            return Err(Refusal::unavailable(format!(
                "the store cannot be written: {why}; make room and restart the gateway"
            )));
        }
        if self.keeps_journal {
            self.write(now, &record);
        }
        self.apply(now, record);
        Ok(())
    }

    fn write(&mut self, now: Now, record: &Record) {
        if std::mem::take(&mut self.torn) {
            self.unwritten.push(b'\n');
        }
        if !self.has_header {
            let header = Record::Store(StoreRecord {
                version: JOURNAL_VERSION,
                at_ms: now.unix_ms,
            });
            journal::write_line(&mut self.unwritten, &header);
            self.apply(now, header);
        }
        journal::write_line(&mut self.unwritten, record);
    }

    /// The lines written since the last call.
    pub(super) fn take_unwritten(&mut self) -> Option<Vec<u8>> {
        (!self.unwritten.is_empty()).then(|| std::mem::take(&mut self.unwritten))
    }

    /// The journal cannot be written: refuse every change from now on.
    pub(super) fn close_for_writing(&mut self, why: &str) {
        self.unwritten.clear();
        self.read_only.get_or_insert_with(|| why.to_owned());
    }

    fn apply(&mut self, now: Now, record: Record) {
        match record {
            Record::Store(_) => self.has_header = true,
            Record::Conversation(record) => self.apply_conversation(record),
            Record::Message(record) => self.apply_message(record),
            Record::Approval(record) => self.approvals.apply_request(now, record),
            Record::Decision(record) => self.approvals.apply_decision(record),
            Record::Device(record) => self.apply_device(record),
        }
    }

    fn apply_conversation(&mut self, record: ConversationRecord) {
        let conversation = self
            .conversations
            .entry(record.key.into())
            .or_insert_with(|| Conversation::new(record.session_id));
        conversation.updated_at_ms = conversation.updated_at_ms.max(record.at_ms);
        if record.label.is_some() {
            conversation.label = record.label;
        }
        if record.display_name.is_some() {
            conversation.display_name = record.display_name;
        }
        if record.route.is_some() {
            conversation.route = record.route;
        }
    }

    fn apply_message(&mut self, record: MessageRecord) {
        let key: Arc<str> = record.key.as_str().into();
        // A message whose conversation record was damaged still has a place to be.
        let conversation = self
            .conversations
            .entry(key.clone())
            .or_insert_with(|| Conversation::new(record.id.clone()));
        conversation.updated_at_ms = conversation.updated_at_ms.max(record.at_ms);
        if record.seq < conversation.next_seq {
            return; // A repeated line: the message is there.
        }
        conversation.next_seq = record.seq.saturating_add(1);
        let content: Box<str> = Box::<str>::from(record.content);
        if conversation.first_words.is_none() && record.role == "user" {
            conversation.first_words = content::start_of(&content, content::TITLE_CHARS_MAX);
        }
        self.bytes_kept += content.len();
        self.messages_kept += 1;
        self.by_age.push_back((key.clone(), record.seq));
        if let Some(once) = &record.idempotency_key {
            let answered = Answered {
                key: record.key,
                message_id: record.id.clone(),
                seq: record.seq,
                channel: record.sent_by,
                at_ms: record.at_ms,
            };
            remember(
                &mut self.answers,
                &mut self.answers_by_age,
                &record.role,
                once,
                answered,
            );
        }
        conversation.messages.push_back(Message {
            id: record.id,
            seq: record.seq,
            role: record.role,
            content,
            at_ms: record.at_ms,
            model: record.model,
            idempotency_key: record.idempotency_key,
        });
        if conversation.messages.len() > self.messages_max {
            self.forget_oldest_of(&key);
        }
        while self.bytes_kept > self.bytes_max && self.messages_kept > 1 {
            self.forget_oldest();
        }
        self.trim_ages();
    }

    fn apply_device(&mut self, record: DeviceRecord) {
        let device = Device {
            token: Secret::new(record.token),
            scopes: record.scopes,
            at_ms: record.at_ms,
        };
        self.devices.insert(record.id, device);
        if self.devices.len() > DEVICES_MAX {
            let oldest = self.devices.iter().min_by_key(|(_, device)| device.at_ms);
            if let Some(id) = oldest.map(|(id, _)| id.clone()) {
                self.devices.remove(&id);
            }
        }
    }

    fn forget_oldest_of(&mut self, key: &str) {
        let Some(conversation) = self.conversations.get_mut(key) else {
            return;
        };
        if let Some(gone) = conversation.messages.pop_front() {
            self.bytes_kept -= gone.content.len();
            self.messages_kept -= 1;
        }
    }

    fn forget_oldest(&mut self) {
        while let Some((key, seq)) = self.by_age.pop_front() {
            let oldest = self
                .conversations
                .get(&key)
                .and_then(|c| c.messages.front());
            if oldest.is_some_and(|message| message.seq == seq) {
                self.forget_oldest_of(&key);
                return;
            }
        }
    }

    /// Keeps the order of age in proportion to what is in memory.
    fn trim_ages(&mut self) {
        if self.by_age.len() > 2 * self.messages_kept + 1_024 {
            let conversations = &self.conversations;
            self.by_age.retain(|(key, seq)| {
                let oldest = conversations.get(key).and_then(|c| c.messages.front());
                oldest.is_some_and(|message| message.seq <= *seq)
            });
        }
    }

    /// The conversation with this canonical key.
    pub(super) fn conversation(&self, key: &str) -> Option<&Conversation> {
        self.conversations.get(key)
    }

    /// All conversations by key.
    pub(super) fn conversations(&self) -> impl Iterator<Item = (&str, &Conversation)> {
        self.conversations.iter().map(|(key, c)| (&**key, c))
    }

    /// How many conversations there are.
    pub(super) fn conversation_count(&self) -> usize {
        self.conversations.len()
    }

    /// Whether another conversation may begin.
    ///
    /// # Errors
    /// The refusal to give the client.
    pub(super) fn check_room(&self) -> Result<(), Refusal> {
        if self.conversations.len() < self.sessions_max {
            return Ok(());
        }
        Err(Refusal::unavailable(format!(
            "no room for another conversation (embedded_sessions_max {}, found {})",
            self.sessions_max,
            self.conversations.len()
        )))
    }

    /// The number the next message of `key` gets.
    pub(super) fn next_seq(&self, key: &str) -> u64 {
        self.conversations.get(key).map_or(1, |c| c.next_seq)
    }

    /// The answer given to `once` in the role of `role`, while it is remembered.
    pub(super) fn answered(&self, now: Now, role: &str, once: &str) -> Option<&Answered> {
        let found = self.answers.get(&answer_key(role, once))?;
        (now.unix_ms.saturating_sub(found.at_ms) < ANSWER_TTL_MS).then_some(found)
    }

    /// The paired device with this id.
    pub(super) fn device(&self, id: &str) -> Option<&Device> {
        self.devices.get(id)
    }

    /// Lets go of approvals whose time is up.
    pub(super) fn forget_lapsed(&mut self, now: Now) -> Vec<Lapsed> {
        self.approvals.forget_lapsed(now)
    }
}

impl Conversation {
    fn new(session_id: String) -> Self {
        Self {
            session_id,
            label: None,
            display_name: None,
            route: None,
            updated_at_ms: 0,
            first_words: None,
            messages: VecDeque::new(),
            next_seq: 1,
        }
    }

    /// The message numbered `seq`, if it is still in memory.
    pub(super) fn message(&self, seq: u64) -> Option<&Message> {
        // New messages are asked for most.
        self.messages
            .iter()
            .rev()
            .find(|message| message.seq == seq)
    }
}

fn answer_key(role: &str, once: &str) -> String {
    format!("{role}:{once}")
}

fn remember(
    answers: &mut BTreeMap<String, Answered>,
    by_age: &mut VecDeque<String>,
    role: &str,
    once: &str,
    answered: Answered,
) {
    let newest = answered.at_ms;
    let key = answer_key(role, once);
    if answers.insert(key.clone(), answered).is_some() {
        by_age.retain(|known| *known != key);
    }
    by_age.push_back(key);
    while let Some(oldest) = by_age.front() {
        let at_ms = answers.get(oldest).map_or(i64::MIN, |a| a.at_ms);
        if by_age.len() <= ANSWERS_KEPT_MAX && newest.saturating_sub(at_ms) < ANSWER_TTL_MS {
            break;
        }
        answers.remove(oldest);
        by_age.pop_front();
    }
}

#[cfg(test)]
mod tests;
