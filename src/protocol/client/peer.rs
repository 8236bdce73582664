//! The client's side of one MCP conversation, whatever carries it.
//!
//! Messages go in as bytes, [`PeerOutput`]s come out; each request gets exactly one
//! [`PeerOutput::Response`]. Both eras have the same face: who asks need not know whether there was a
//! handshake, whether a question came as a request or as a result that wants input, or how a request is
//! taken back.
//!
//! | what comes in                       | handshake revisions               | 2026-07-28                                  |
//! |-------------------------------------|-----------------------------------|---------------------------------------------|
//! | an answer to an open request        | Response                          | Response, or Questions (`input_required`)   |
//! | an answer to anything else          | Noise                             | Noise                                       |
//! | `ping`                              | answered                          | Noise                                       |
//! | sampling, elicitation, roots        | Question if declared, else -32601 | Noise                                       |
//! | any other request                   | -32601                            | Noise                                       |
//! | `notifications/cancelled`           | QuestionGone                      | the end of a listen stream                  |
//! | `notifications/progress`            | Progress                          | Progress                                    |
//! | `notifications/…/list_changed`      | ListChanged                       | ListChanged, of a stream of ours            |
//! | any other notification              | Notification                      | Notification                                |
//! | an array                            | its members, 2025-03-26; or Noise | Noise                                       |
//! | no JSON, no message                 | Noise                             | Noise                                       |
//!
//! How a conversation begins is told in `opening`, what happens to a request in `pending`, to a question in
//! `questions`, to subscriptions in `listening`.
//!
//! Source: mcp-eras §2-§5; Spec: 2025-11-25 basic, 2026-07-28 basic and basic/patterns.
//! Never: opens or closes a link, reads a clock, sends a request twice on its own.

use std::collections::{BTreeMap, VecDeque};

use super::answer::AnswerPlaces;
use super::compose::{Additions, Stateless};
pub use super::fault::{CallFault, ConnectFault, RemoteError};
use super::listening::Listening;
use super::opening::Opening;
pub use super::pending::{KNOWS_TASKS, RequestSpec};
use super::pending::{Pending, names_tasks};
use super::questions::Questions;
pub use super::terms::{
    EraChoice, ListKind, OWN_IDS, PeerConfig, PeerOutput, SAMPLE_BYTES_MAX, ServerFacts,
};
use super::{Carrier, Dialect, Outgoing, OutgoingKind, RequestEnd};
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::jsonrpc::{self, Invalid, Message, Outcome, Reason};
use crate::codec::scan::{
    BatchMember, Envelope, IdField, ScanError, ScanLimits, Scanned, Text, readable_id, scan_text,
};
use crate::codec::shared_text::SharedText;
use crate::ids::UpstreamRequestId;
use crate::protocol::message::{LogLevel, member};
use crate::protocol::topic::Topic;
use crate::secret::Quoted;

/// Capacity that the buffer of a message may keep.
const SPARE_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub(super) enum Stage {
    Opening,
    Ready,
    /// Why.
    Over(String),
}

/// A request of our own whose result says nothing.
#[derive(Debug)]
pub(super) struct Setting {
    method: &'static str,
    by: Uptime,
    /// What a `resources/subscribe` is about.
    subscribes: Option<Topic>,
}

/// The client's side of one conversation. See the module page.
///
/// Every `handle_*` and every request may leave outputs: [`poll`](Self::poll) until `None`.
#[derive(Debug)]
pub struct ClientPeer {
    pub(super) config: PeerConfig,
    pub(super) scan_limits: ScanLimits,
    /// Our capabilities say that results may be tasks.
    pub(super) takes_tasks: bool,
    pub(super) stage: Stage,
    pub(super) refusal: Option<ConnectFault>,
    pub(super) facts: Option<ServerFacts>,
    pub(super) opening: Opening,
    pub(super) calls: Pending,
    pub(super) questions: Questions,
    pub(super) listening: Listening,
    /// Requests of our own of which only a failure is of interest.
    pub(super) settings: BTreeMap<UpstreamRequestId, Setting>,
    pub(super) log_level: Option<LogLevel>,
    /// The same for sessions only.
    log_floor: Option<LogLevel>,
    own_ids_used: u64,
    /// The buffer of a message that has left.
    pub(super) spare: Vec<u8>,
    outputs: VecDeque<PeerOutput>,
}

impl ClientPeer {
    /// A peer that waits for its link to come up. Its time to connect begins now.
    #[must_use]
    pub fn new(config: PeerConfig, now: Now) -> Self {
        Self {
            scan_limits: ScanLimits::from(&config.limits),
            takes_tasks: names_tasks(&config.capabilities),
            opening: Opening::new(now, config.connect_timeout),
            config,
            stage: Stage::Opening,
            refusal: None,
            facts: None,
            calls: Pending::default(),
            questions: Questions::default(),
            listening: Listening::default(),
            settings: BTreeMap::new(),
            log_level: None,
            log_floor: None,
            own_ids_used: 0,
            spare: Vec::new(),
            outputs: VecDeque::new(),
        }
    }

    /// What the server has said of itself; `None` before [`PeerOutput::Ready`].
    #[must_use]
    pub const fn facts(&self) -> Option<&ServerFacts> {
        self.facts.as_ref()
    }

    /// Why the older pair is to be tried: what to report when that fails too.
    #[must_use]
    pub const fn refusal(&self) -> Option<&ConnectFault> {
        self.refusal.as_ref()
    }

    /// What the opening waits for, when it is not over: `connect`, `server/discover` or `initialize`.
    #[must_use]
    pub const fn opening_method(&self) -> &'static str {
        self.opening.method()
    }

    /// How many requests wait for their answer.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.calls.len()
    }

    /// The next thing to act on.
    pub fn poll(&mut self) -> Option<PeerOutput> {
        self.outputs.pop_front()
    }

    /// Takes back a message that its link has sent or copied: the next one is written in its buffer.
    pub fn recycle(&mut self, message: Outgoing) {
        let mut buffer = message.body;
        if buffer.capacity() <= SPARE_BYTES {
            buffer.clear();
            self.spare = buffer;
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        let settings = self.settings.values().map(|setting| setting.by).min();
        let settings = settings.map(|at| Deadline::new(at, "request of our own"));
        let calls = Deadline::earlier(self.calls.next_deadline(), settings);
        let all = Deadline::earlier(self.listening.next_deadline(), calls);
        Deadline::earlier(self.opening.next_deadline(), all)
    }

    /// The link can carry messages.
    pub fn handle_up(&mut self, now: Now) {
        self.begin_opening(now);
    }

    /// The link is gone, and with it everything that was open.
    pub fn handle_closed(&mut self, _now: Now, why: &str) {
        match self.stage {
            Stage::Opening => self.fail(ConnectFault::Closed(why.to_owned())),
            Stage::Ready => self.stage = Stage::Over(why.to_owned()),
            Stage::Over(_) => {}
        }
        self.settings.clear();
        self.listening = Listening::default();
        self.questions_gone();
        self.calls_closed(why);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Now) {
        self.opening_timeout(now);
        self.calls_timeout(now);
        self.settings_timeout(now);
        self.listening_timeout(now);
    }

    /// One message; `on` is the request on whose answer stream it came, where the carrier has such streams.
    pub fn handle_message(&mut self, now: Now, bytes: &[u8], on: Option<UpstreamRequestId>) {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.handle_text(now, &text.into(), on),
            Err(error) => {
                let offset = error.valid_up_to();
                let why = ScanError::NotUtf8 { offset };
                self.unreadable(now, &why.to_string(), bytes);
            }
        }
    }

    /// The same for what is known to be text. An answer's result is a part of it, not a copy.
    pub fn handle_text(&mut self, now: Now, text: &SharedText, on: Option<UpstreamRequestId>) {
        match scan_text(text, &self.scan_limits) {
            Ok(Scanned::One(envelope)) => self.handle_envelope(now, text, &envelope, on),
            Ok(Scanned::Batch(members)) => self.handle_batch(now, text, &members, on),
            Ok(Scanned::Other) => self.noise("a message is a JSON object", text.as_bytes()),
            Err(error) => self.unreadable(now, &error.to_string(), text.as_bytes()),
        }
    }

    /// The same for an answer that was read already: where its parts are.
    pub fn handle_answer(
        &mut self,
        now: Now,
        text: &SharedText,
        places: &AnswerPlaces,
        on: Option<UpstreamRequestId>,
    ) {
        match places.parts(text).filter(|_| self.is_ready()) {
            Some((id, outcome)) => {
                let raw = text.as_bytes().trim_ascii();
                self.handle_response(now, text, IdField::Usable(id), outcome, on, raw);
            }
            None => self.handle_text(now, text, on),
        }
    }

    /// Bytes that cannot be a message, and how they begin.
    pub fn handle_unreadable(&mut self, now: Now, why: &str, sample: &[u8]) {
        self.unreadable(now, why, sample);
    }

    /// HTTP: nothing more comes for this request.
    pub fn handle_end(&mut self, now: Now, id: UpstreamRequestId, end: RequestEnd) {
        if self.opening_end(now, id, &end) || self.listen_end(now, id, &end) {
            return;
        }
        if let Some(setting) = self.settings.remove(&id) {
            self.noise(&format!("{}: {end}", setting.method), b"");
            return self.set(now, setting, Err(CallFault::End(end)));
        }
        self.call_ended(id, end);
    }

    /// Tells the server something. Left out before [`PeerOutput::Ready`], and where the revision has no such
    /// notification.
    pub fn notify(&mut self, _now: Now, method: &str, params: Option<&str>) {
        let Some(facts) = self.facts.as_ref().filter(|_| self.is_ready()) else {
            return;
        };
        let removed = facts.revision.is_stateless() && method == "notifications/roots/list_changed";
        if !removed {
            self.send_notification(method, params);
        }
    }

    /// From which severity on log messages are wanted; `None` for what the server does by itself, which is
    /// nothing in the stateless era.
    pub fn set_log_level(&mut self, now: Now, level: Option<LogLevel>) {
        if std::mem::replace(&mut self.log_level, level) != level && self.is_ready() {
            self.send_log_level(now);
        }
    }

    /// From which severity on a session is to tell log messages at least, whatever [`set_log_level`](
    /// Self::set_log_level) says. Requests of the stateless era say so themselves.
    pub fn set_log_floor(&mut self, now: Now, level: Option<LogLevel>) {
        let before = self.session_level();
        self.log_floor = level;
        if self.session_level() != before && self.is_ready() {
            self.send_log_level(now);
        }
    }

    /// The same as [`set_log_level`](Self::set_log_level) where the server was told by a request of the caller.
    pub fn adopt_log_level(&mut self, now: Now, level: LogLevel) {
        self.log_level = Some(level);
        if self.session_level() != Some(level) && self.is_ready() {
            self.send_log_level(now);
        }
    }

    fn session_level(&self) -> Option<LogLevel> {
        [self.log_level, self.log_floor].into_iter().flatten().min()
    }

    /// What a new session is told once it is open.
    pub(super) fn session_settings(&mut self, now: Now) {
        if self.session_level().is_some() {
            self.send_log_level(now);
        }
    }

    fn send_log_level(&mut self, now: Now) {
        let Some(facts) = &self.facts else {
            return;
        };
        let takes_level =
            !facts.revision.is_stateless() && member(&facts.capabilities, "logging").is_some();
        if let Some(level) = self.session_level().filter(|_| takes_level) {
            let params = format!(r#"{{"level":"{}"}}"#, level.as_str());
            self.send_setting(now, "logging/setLevel", &params, None);
        }
    }

    /// A request whose result says nothing.
    pub(super) fn send_setting(
        &mut self,
        now: Now,
        method: &'static str,
        params: &str,
        subscribes: Option<Topic>,
    ) {
        let limit = self.config.limits.upstream_requests_open_max;
        let room = self.settings.len() < limit;
        match self.own_id().filter(|_| room) {
            Some(id) => {
                let by = now.after(self.config.limits.request_timeout);
                let setting = Setting {
                    method,
                    by,
                    subscribes,
                };
                self.settings.insert(id, setting);
                self.send_own_request(id, method, Some(params), self.dialect());
            }
            None => self.noise(&format!("busy: {method} was not sent, limit {limit}"), b""),
        }
    }

    fn settings_timeout(&mut self, now: Now) {
        let due = |setting: &Setting| setting.by <= now.up;
        let first = |settings: &BTreeMap<UpstreamRequestId, Setting>| {
            let mut all = settings.iter();
            all.find(|(_, setting)| due(setting)).map(|(id, _)| *id)
        };
        while let Some(id) = first(&self.settings) {
            let Some(setting) = self.settings.remove(&id) else {
                return;
            };
            self.take_back(id, "timed out");
            self.noise(&format!("{} timed out", setting.method), b"");
            let (what, limit) = (setting.method, self.config.limits.request_timeout);
            self.set(now, setting, Err(CallFault::TimedOut { what, limit }));
        }
    }

    /// What has come of a request of our own.
    fn set(&mut self, now: Now, setting: Setting, outcome: Result<(), CallFault>) {
        if let Some(topic) = setting.subscribes {
            self.subscription_answered(topic, outcome);
        }
        self.subscribe(now);
    }

    pub(super) const fn is_ready(&self) -> bool {
        matches!(self.stage, Stage::Ready)
    }

    /// Whether the conversation is known to be of the stateless era.
    pub(super) fn is_stateless(&self) -> bool {
        self.facts
            .as_ref()
            .is_some_and(|facts| facts.revision.is_stateless())
    }

    pub(super) fn dialect(&self) -> Dialect {
        match &self.facts {
            None => Dialect::Handshake,
            Some(facts) if facts.revision.is_stateless() => Dialect::Stateless(facts.revision),
            Some(facts) => Dialect::Session(facts.revision),
        }
    }

    pub(super) fn additions(
        &self,
        dialect: Dialect,
        capabilities_of_caller: bool,
    ) -> Additions<'_> {
        let stateless = match dialect {
            Dialect::Handshake | Dialect::Session(_) => None,
            Dialect::Stateless(revision) => Some(Stateless {
                revision,
                capabilities: &self.config.capabilities,
                identity: &self.config.identity,
                log_level: self.log_level,
                capabilities_of_caller,
            }),
        };
        Additions {
            stateless,
            ..Additions::default()
        }
    }

    pub(super) fn own_id(&mut self) -> Option<UpstreamRequestId> {
        if self.own_ids_used >= OWN_IDS {
            return None;
        }
        let id = self.config.first_own_id.0.checked_add(self.own_ids_used)?;
        self.own_ids_used += 1;
        Some(UpstreamRequestId(id))
    }

    pub(super) fn push(&mut self, output: PeerOutput) {
        self.outputs.push_back(output);
    }

    pub(super) fn send(&mut self, kind: OutgoingKind, dialect: Dialect, body: Vec<u8>) {
        self.push(PeerOutput::Send(Outgoing {
            kind,
            dialect,
            body,
        }));
    }

    pub(super) fn send_notification(&mut self, method: &str, params: Option<&str>) {
        let mut body = Vec::new();
        jsonrpc::write_notification(&mut body, method, params);
        let method = method.into();
        self.send(OutgoingKind::Notification { method }, self.dialect(), body);
    }

    /// Lets go of a request's stream, where it has one.
    pub(super) fn forget(&mut self, id: UpstreamRequestId) {
        if self.config.carrier == Carrier::Http {
            self.push(PeerOutput::Forget(id));
        }
    }

    pub(super) fn noise(&mut self, why: &str, bytes: &[u8]) {
        self.push(PeerOutput::Noise {
            why: why.to_owned(),
            sample: bytes[..bytes.len().min(SAMPLE_BYTES_MAX)].to_vec(),
        });
    }

    /// Noise; and if it was the answer to a request, that one need not wait for its time limit. It must look
    /// like an answer: log lines have ids too, and so have the server's own requests.
    fn unreadable(&mut self, now: Now, why: &str, bytes: &[u8]) {
        self.noise(why, bytes);
        let has = |name: &str| memchr::memmem::find(bytes, name.as_bytes()).is_some();
        let answers =
            has("\"jsonrpc\"") && !has("\"method\"") && (has("\"result\"") || has("\"error\""));
        let id = readable_id(bytes, &self.scan_limits).and_then(|raw| raw.parse().ok());
        if let Some(id) = id.filter(|_| answers) {
            self.no_answer(now, UpstreamRequestId(id), why);
        }
    }

    /// What came for this request is no answer.
    fn no_answer(&mut self, now: Now, id: UpstreamRequestId, why: &str) {
        let end = RequestEnd::Broken(format!("unreadable answer: {why}"));
        if !self.opening_end(now, id, &end) && !self.listen_end(now, id, &end) {
            self.call_violated(id, why);
        }
    }

    fn handle_batch(
        &mut self,
        now: Now,
        text: &SharedText,
        members: &[BatchMember<'_>],
        on: Option<UpstreamRequestId>,
    ) {
        let facts = self.facts.as_ref();
        if !facts.is_some_and(|facts| facts.revision.has_batches()) {
            return self.noise("an array is no message in this revision", text.as_bytes());
        }
        for message in members {
            match message {
                BatchMember::Message(envelope) => self.handle_envelope(now, text, envelope, on),
                BatchMember::NotAnObject(raw) => {
                    self.noise("a message is a JSON object", raw.as_bytes());
                }
            }
        }
    }

    /// `envelope` is of `text`.
    fn handle_envelope(
        &mut self,
        now: Now,
        text: &SharedText,
        envelope: &Envelope<'_>,
        on: Option<UpstreamRequestId>,
    ) {
        let raw = envelope.raw.as_bytes();
        if matches!(self.stage, Stage::Over(_)) {
            return self.noise("message after the end of the conversation", raw);
        }
        match jsonrpc::classify(envelope) {
            Ok(Message::Request { id, method }) => self.server_request(id, method, envelope, on),
            Ok(Message::Notification { method }) => {
                self.server_notification(now, method, envelope, on);
            }
            Ok(Message::Response { id, outcome }) => {
                self.handle_response(now, text, id, outcome, on, raw);
            }
            Err(Invalid {
                id,
                is_response,
                reason,
            }) => {
                self.noise(&reason.to_string(), raw);
                let is_log = self.config.carrier == Carrier::Lines && reason == Reason::Version;
                let id = id.filter(|_| is_response && !is_log);
                let id = id.and_then(|raw| raw.parse().ok());
                if let Some(id) = id {
                    self.no_answer(now, UpstreamRequestId(id), &reason.to_string());
                }
            }
        }
    }

    fn handle_response(
        &mut self,
        now: Now,
        text: &SharedText,
        id: IdField<'_>,
        outcome: Outcome<'_>,
        on: Option<UpstreamRequestId>,
        raw: &[u8],
    ) {
        let outcome = match outcome {
            Outcome::Result(result) => Ok(result),
            Outcome::Error(error) => Err(RemoteError::read(error)),
        };
        let (id, exact) = match answered(id) {
            Some(answered) => answered,
            // An error that cannot name its request answers the one on whose stream it came.
            None => match on.filter(|_| self.config.carrier == Carrier::Http && outcome.is_err()) {
                Some(id) => (id, true),
                None => return self.noise("answer without an id of ours", raw),
            },
        };
        if !exact {
            self.noise(&format!("id type differs: answer to request {id}"), raw);
        }
        if let Some(setting) = self.settings.remove(&id) {
            if let (Err(error), None) = (&outcome, &setting.subscribes) {
                self.noise(&format!("{} was refused: {error}", setting.method), raw);
            }
            let outcome = outcome.map(drop).map_err(CallFault::from);
            return self.set(now, setting, outcome);
        }
        if self.listen_answered(now, id, &outcome) {
            return;
        }
        if self.calls.is_sent(id) {
            let outcome = outcome.map(|result| text.part(text, result));
            return self.call_answered(now, id, outcome);
        }
        if self.calls.is_late(id) {
            return log::debug!("answer to request {id}, which was taken back");
        }
        if !self.opening_answer(now, id, outcome) {
            self.noise(
                &format!("answer to request {id}, which nobody waits for"),
                raw,
            );
        }
    }

    fn server_notification(
        &mut self,
        now: Now,
        method: Text<'_>,
        envelope: &Envelope<'_>,
        on: Option<UpstreamRequestId>,
    ) {
        let params = envelope.params;
        let raw = envelope.raw.as_bytes();
        if method.is("notifications/progress") {
            return self.progress(now, params, raw);
        }
        if method.is("notifications/cancelled") {
            return self.server_cancelled(now, params, raw);
        }
        if self.is_stateless() {
            match self.of_listen_stream(now, method, params, on) {
                Ok(true) => {}
                Ok(false) => return,
                Err(why) => return self.noise(&why, raw),
            }
        }
        if let Some(list) = ListKind::of_notification(method).filter(|_| self.is_ready()) {
            return self.push(PeerOutput::ListChanged(list));
        }
        self.push(PeerOutput::Notification {
            method: method.decode().into(),
            params: params.map(Box::from),
            on: on.and_then(|on| self.calls.caller_of(on)),
        });
    }
}

/// The request of ours that an answer names.
fn answered(id: IdField<'_>) -> Option<(UpstreamRequestId, bool)> {
    match id {
        IdField::Usable(raw) | IdField::Unusable(raw) => read_id(raw),
        IdField::Absent | IdField::Null => None,
    }
}

/// The request of ours that a server names by this raw value, and whether it does so as we did. We use
/// numbers only, so that `"1"` and `1.0` cannot mean another one.
pub(super) fn read_id(raw: &str) -> Option<(UpstreamRequestId, bool)> {
    if let Ok(id) = raw.parse() {
        return Some((UpstreamRequestId(id), true));
    }
    let number = match Text::of_value(raw) {
        Some(text) => text.decode().parse().ok(),
        None => whole_number(raw),
    };
    number.map(|id| (UpstreamRequestId(id), false))
}

/// An integer spelled with a fraction of zeros, as in `1.0`.
fn whole_number(raw: &str) -> Option<u64> {
    let (whole, zeros) = raw.split_once('.')?;
    let zero = !zeros.is_empty() && zeros.bytes().all(|digit| digit == b'0');
    whole.parse().ok().filter(|_| zero)
}

/// What a server's name for something may say in a diagnostic.
pub(super) fn shown(text: Text<'_>) -> String {
    Quoted(&text.decode()).to_string()
}
