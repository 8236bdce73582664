//! Questions of upstream servers in mid-call (sampling, elicitation, roots), put to the right client in the
//! words of its era.
//!
//! | a server asks        | the client          | what becomes of the question                               |
//! |----------------------|---------------------|------------------------------------------------------------|
//! | by a request         | of the handshake era | a request of ours, on the stream of the call where it is known, else of the session |
//! | by a request         | stateless           | its call is parked: see `parked`                           |
//! | by `input_required`  | of the handshake era | requests of ours, by the manager's retelling               |
//! | by `input_required`  | stateless           | nothing: result and retry pass as they are                 |
//!
//! | a question is | input                                       | next    | output                            |
//! |---------------|---------------------------------------------|---------|-----------------------------------|
//! | –             | the client has declared what it needs       | Asked, Held | a request, or an `input_required` result |
//! | –             | it has not; it is gone; nobody is known; too many | –  | an error to the server, one diagnostic |
//! | Asked         | the client's answer                         | –       | the answer to the server          |
//! | Held          | a retry with its answer                     | –       | the answer to the server          |
//! | Held          | a retry without                             | Held    | `input_required` once more        |
//! | Asked         | its time is over                            | –       | an error to the server; taken back from the client |
//! | Held          | its time is over                            | –       | an error to the server; the call is cancelled |
//! | Asked, Held   | the server takes it back                    | –       | taken back from the client        |
//! | Asked, Held   | its call is over, or its client gone        | –       | an error to the server            |
//!
//! Ids: a client sees ours, a server gets its own back, for the manager keeps those. Nothing is dropped
//! silently: a question that is put to nobody is answered with an error at once.
//!
//! Source: Spec 2025-11-25 client/*; 2026-07-28 basic/patterns/mrtr; f09-bidirectional.

mod parked;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::parked::Asker;
use super::UpstreamSide;
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::json_text::write_string;
use crate::codec::shared_text::SharedText;
use crate::codec::splice::with_member;
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::entropy::Entropy;
use crate::hub::Hub;
use crate::ids::{CallId, PeerId, QuestionId, RuntimeId, TicketId};
use crate::limits::Limits;
use crate::local::{Feature, STATE_KEY_BYTES, StateKey, declares};
use crate::manager::server_config::{Isolation, ServerConfig, ServerKey};
use crate::protocol::client::peer::RemoteError;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::member;
use crate::protocol::server::{AskKey, RequestKey, Whose};
use crate::secret::Quoted;

/// What servers are told of clients that say with each request what they can do, or that share a server: all
/// of it. What the one who is asked lacks is refused then.
pub(super) const EVERYTHING: &str =
    r#"{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true}}"#;

/// A question as the manager hands it on.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) id: QuestionId,
    pub(super) runtime: RuntimeId,
    pub(super) server: ServerKey,
    pub(super) method: Box<str>,
    pub(super) params: Option<Box<str>>,
    pub(super) ticket: Option<TicketId>,
}

/// A question that waits for its answer.
#[derive(Debug)]
struct Question {
    asking: Asking,
    /// For which call, where that is known.
    call: Option<CallId>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A client of the handshake era was asked.
    Asked {
        peer: PeerId,
        ask: AskKey,
        by: Uptime,
    },
    /// A stateless client gets it as input that its call requires, under this number.
    Held { number: u32 },
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Question(QuestionId),
    Parked(CallId),
}

/// Whom a question can be put to.
#[derive(Clone, Copy, Debug)]
enum Client {
    Request(CallId, PeerId, RequestKey),
    Stateless(CallId),
    Session(PeerId),
}

/// All questions that are open, and what is known of calls that may lead to some.
pub(in crate::hub) struct Questions {
    limits: Limits,
    key: StateKey,
    /// Names this hub in the states it seals.
    instance: String,
    open: BTreeMap<QuestionId, Question>,
    asked: BTreeMap<(PeerId, AskKey), QuestionId>,
    /// Calls of stateless clients.
    askers: BTreeMap<CallId, Asker>,
    /// Those of them with questions that their waiting client does not know of yet.
    fresh: BTreeSet<CallId>,
    due: BTreeSet<(Uptime, Due)>,
    parked: usize,
    parked_peak: usize,
    /// Bytes of results that wait for their clients.
    kept_bytes: usize,
    /// What was refused and told.
    told: BTreeSet<(RuntimeId, ServerKey, Box<str>)>,
}

impl Questions {
    /// `state_key` seals states of parked calls; without one that instances share, each has its own.
    pub(in crate::hub) fn new(
        state_key: Option<[u8; STATE_KEY_BYTES]>,
        limits: &Limits,
        entropy: &mut dyn Entropy,
    ) -> Self {
        let key = state_key.unwrap_or_else(|| {
            let mut key = [0; STATE_KEY_BYTES];
            entropy.fill(&mut key);
            key
        });
        let mut instance = [0; 8];
        entropy.fill(&mut instance);
        Self {
            limits: limits.clone(),
            key: StateKey::new(key),
            instance: crate::crypto::hex(&instance),
            open: BTreeMap::new(),
            asked: BTreeMap::new(),
            askers: BTreeMap::new(),
            fresh: BTreeSet::new(),
            due: BTreeSet::new(),
            parked: 0,
            parked_peak: 0,
            kept_bytes: 0,
            told: BTreeSet::new(),
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let (at, what) = self.due.first()?;
        Some(Deadline::new(
            *at,
            match what {
                Due::Question(_) => "answer of a client to a server",
                Due::Parked(_) => "retry of a client whose call is parked",
            },
        ))
    }

    /// Parked calls, the most there were, and bytes of results that wait for their clients.
    pub(in crate::hub) const fn usage(&self) -> (usize, usize, usize) {
        (self.parked, self.parked_peak, self.kept_bytes)
    }

    fn take(&mut self, id: QuestionId) -> Option<Question> {
        let question = self.open.remove(&id)?;
        match question.stage {
            Stage::Asked { peer, ask, by } => {
                self.asked.remove(&(peer, ask));
                self.due.remove(&(by, Due::Question(id)));
            }
            Stage::Held { .. } => {
                let asker = question.call.and_then(|call| self.askers.get_mut(&call));
                if let Some(asker) = asker {
                    asker.held.retain(|held| held.question != id);
                }
            }
        }
        Some(question)
    }

    fn those(&self, which: impl Fn(&Question) -> bool) -> Vec<QuestionId> {
        let mut found = Vec::new();
        for (id, question) in &self.open {
            if which(question) {
                found.push(*id);
            }
        }
        found
    }

    /// Nothing is left of a runtime.
    pub(super) fn forget_runtime(&mut self, runtime: RuntimeId) {
        self.told.retain(|(of, ..)| *of != runtime);
    }
}

impl Hub {
    /// A server asks something.
    pub(super) fn put_question(&mut self, now: Now, asking: Asking) {
        let Some(client) = self.client_of(&asking) else {
            let error = RpcError::new(
                ErrorCode::InternalError,
                "no client can be asked: it is not known which call this is for",
            );
            return self.refuse_question(now, asking, error, "it is not known for which call");
        };
        let params = asking.params.as_deref().unwrap_or("{}");
        let needed = Feature::needed_by(&asking.method, params);
        let capabilities = self.capabilities_of(client);
        let missing = needed.filter(|feature| !declares(&capabilities, *feature));
        if let Some(feature) = missing {
            let error = self.undeclared(&asking, &capabilities, feature);
            let why = format!("the client has not declared {}", feature.name());
            return self.refuse_question(now, asking, error, &why);
        }
        match client {
            Client::Stateless(call) => self.hold_question(now, call, asking),
            Client::Request(call, peer, key) => {
                self.ask_client(now, asking, Some(call), peer, Whose::Request(key));
            }
            Client::Session(peer) => {
                let of = match self.http.hears_session(peer) {
                    true => None,
                    // Nobody would hear it there. A stream on which it does not belong is better than none.
                    false => self.some_request_of(peer),
                };
                self.ask_client(now, asking, None, peer, Whose::Session(of));
            }
        }
    }

    /// Whom a question is for.
    fn client_of(&self, asking: &Asking) -> Option<Client> {
        let side = self.upstream.as_ref()?;
        let call = asking.ticket.and_then(|ticket| side.tickets.get(&ticket));
        if let Some(call) = call {
            if side.questions.askers.contains_key(call) {
                return Some(Client::Stateless(*call));
            }
            let entry = self.ledger.entry(*call)?;
            return Some(Client::Request(*call, entry.peer, entry.key));
        }
        let peer = *side.clients.get(&asking.runtime)?;
        let shaken = self.peer(peer).is_some_and(|p| p.negotiated().is_some());
        shaken.then_some(Client::Session(peer))
    }

    fn capabilities_of(&self, client: Client) -> SharedText {
        let none = SharedText::fixed("{}");
        match client {
            Client::Stateless(call) => {
                let side = self.upstream.as_ref();
                let asker = side.and_then(|side| side.questions.askers.get(&call));
                asker.map_or(none, |asker| asker.capabilities.clone())
            }
            Client::Request(_, peer, _) | Client::Session(peer) => {
                let declared = self.peer(peer).and_then(|p| p.client_capabilities());
                declared.cloned().unwrap_or(none)
            }
        }
    }

    /// A request of a client that is open at an upstream server, the oldest.
    fn some_request_of(&self, peer: PeerId) -> Option<RequestKey> {
        let side = self.upstream.as_ref()?;
        let of_peer = self.ledger.of_peer(peer);
        let oldest = of_peer.iter().find(|call| side.calls.contains_key(*call))?;
        self.ledger.entry(*oldest).map(|entry| entry.key)
    }

    /// What a server is told that asks for what its client has not declared.
    fn undeclared(&self, asking: &Asking, capabilities: &str, feature: Feature) -> RpcError {
        let side = self.upstream.as_ref();
        let facts = side.and_then(|side| side.manager.facts(asking.runtime, &asking.server));
        // Then it is the call that fails.
        if facts.is_some_and(|facts| facts.revision.is_stateless()) {
            return feature.missing();
        }
        let name = feature.name();
        let base = name.split('.').next().unwrap_or(name);
        // Spec: 2025-11-25 client/elicitation (Error Handling): another mode is a matter of params.
        if member(capabilities, base).is_some_and(|raw| raw.starts_with('{')) {
            let text = format!("the client has not declared the capability {name}");
            return RpcError::new(ErrorCode::InvalidParams, text);
        }
        let mut error = RpcError::method_not_found(&asking.method);
        let more = format!(" (the client has not declared the capability {name})");
        error.message.push_str(&more);
        error
    }

    /// Answers a question that is put to nobody. Told once for each server and method.
    fn refuse_question(&mut self, now: Now, asking: Asking, error: RpcError, why: &str) {
        let Some(side) = &mut self.upstream else {
            return;
        };
        side.manager.answer(now, asking.id, Err(error));
        let text = format!(
            "server {}: {} was refused: {why}",
            Quoted(asking.server.as_str()),
            asking.method
        );
        let what = (asking.runtime, asking.server, asking.method);
        if side.questions.told.insert(what) {
            self.diagnose(Diagnostic::new(Level::Warning, Subject::Upstream, text));
        }
    }

    fn ask_client(
        &mut self,
        now: Now,
        asking: Asking,
        call: Option<CallId>,
        peer: PeerId,
        whose: Whose,
    ) {
        let line = self.lines.get(&peer);
        let ended = line.is_some_and(|client| client.leave_by.is_some());
        let stuffed = match (line, whose) {
            (Some(client), _) => client.link.is_backed_up(),
            (None, Whose::Request(key) | Whose::Session(Some(key))) => {
                self.http.is_backed_up(peer, key)
            }
            (None, Whose::Session(None)) => false,
        };
        if ended || stuffed {
            let why = match ended {
                true => "the client has ended its input and cannot answer",
                false => "the client does not read what it is asked",
            };
            let error = RpcError::new(ErrorCode::InternalError, why);
            // That a client leaves is nothing to tell a person of.
            if let (true, Some(side)) = (ended, &mut self.upstream) {
                return side.manager.answer(now, asking.id, Err(error));
            }
            return self.refuse_question(now, asking, error, why);
        }
        let params = with_elicitation_id(&asking);
        let asked = self.with_peer(now, peer, |peer, sink| {
            let params = params.as_deref().or(asking.params.as_deref());
            peer.ask(whose, &asking.method, params, sink)
        });
        let Some(ask) = asked.flatten() else {
            let why = "the client cannot be asked";
            let error = RpcError::new(ErrorCode::InternalError, why);
            return self.refuse_question(now, asking, error, why);
        };
        let Some(side) = &mut self.upstream else {
            return;
        };
        let questions = &mut side.questions;
        let (id, by) = (asking.id, now.after(questions.limits.request_state_ttl));
        questions.asked.insert((peer, ask), id);
        questions.due.insert((by, Due::Question(id)));
        let stage = Stage::Asked { peer, ask, by };
        let question = Question {
            asking,
            call,
            stage,
        };
        questions.open.insert(id, question);
    }

    /// A client of the handshake era has answered; gives the answer back where no server had asked.
    pub(in crate::hub) fn answer_server(
        &mut self,
        now: Now,
        peer: PeerId,
        ask: AskKey,
        outcome: Result<Box<str>, Box<str>>,
    ) -> Option<Result<Box<str>, Box<str>>> {
        let Some(side) = &mut self.upstream else {
            return Some(outcome);
        };
        let Some(id) = side.questions.asked.get(&(peer, ask)).copied() else {
            return Some(outcome);
        };
        side.questions.take(id);
        match outcome {
            Ok(result) => side.manager.answer(now, id, Ok(&result)),
            Err(raw) => {
                let error = RemoteError::read(&raw);
                let code = i32::try_from(error.code).map(ErrorCode::Upstream);
                let error = RpcError {
                    code: code.unwrap_or(ErrorCode::InternalError),
                    message: error.message,
                    data: error.data.map(Into::into),
                };
                side.manager.answer(now, id, Err(error));
            }
        }
        None
    }

    /// A server no longer wants to know.
    pub(super) fn question_gone(&mut self, now: Now, id: QuestionId) {
        let side = self.upstream.as_mut();
        let question = side.and_then(|side| side.questions.take(id));
        if let Some(Stage::Asked { peer, ask, .. }) = question.map(|question| question.stage) {
            self.with_peer(now, peer, |peer, sink| {
                peer.withdraw(ask, "the server no longer wants to know", sink);
            });
        }
    }

    /// These get no answer: the server is told why, and so is the client that was asked.
    fn end_questions(&mut self, now: Now, ids: Vec<QuestionId>, why: &str) {
        for id in ids {
            let Some(side) = &mut self.upstream else {
                return;
            };
            let question = side.questions.take(id);
            let error = RpcError::new(ErrorCode::InternalError, why);
            side.manager.answer(now, id, Err(error));
            if let Some(Stage::Asked { peer, ask, .. }) = question.map(|question| question.stage) {
                self.with_peer(now, peer, |peer, sink| peer.withdraw(ask, why, sink));
            }
        }
    }

    /// A call is over: nobody needs the answers that were for it.
    pub(in crate::hub) fn end_questions_of(&mut self, now: Now, call: CallId, why: &str) {
        let Some(side) = &self.upstream else { return };
        let ids = side.questions.those(|question| question.call == Some(call));
        self.end_questions(now, ids, why);
    }

    /// A client can answer nothing any more, and comes back for nothing.
    pub(in crate::hub) fn client_fell_silent(&mut self, now: Now, silent: PeerId) {
        let Some(side) = &self.upstream else { return };
        let ids = side.questions.those(|question| match question.stage {
            Stage::Asked { peer, .. } => peer == silent,
            Stage::Held { .. } => false,
        });
        let parked = side.questions.parked_of(silent);
        self.end_questions(now, ids, "the client is gone: it has not answered");
        for call in parked {
            self.drop_call(now, call);
        }
    }

    pub(in crate::hub) fn questions_timeout(&mut self, now: Now) {
        let limit = self.limits.request_state_ttl.as_millis();
        while let Some(side) = &mut self.upstream {
            let due = side.questions.due.first().copied();
            let Some((at, due)) = due.filter(|(at, _)| *at <= now.up) else {
                return;
            };
            side.questions.due.remove(&(at, due));
            let why = |what: &str| format!("{what} within {limit} ms, limit request_state_ttl_ms");
            match due {
                Due::Question(id) => {
                    let why = why("the client has not answered");
                    self.end_questions(now, vec![id], &why);
                }
                Due::Parked(call) => {
                    let why = why("the client has not come back with its answers");
                    self.end_questions_of(now, call, &why);
                    self.drop_call(now, call);
                }
            }
        }
    }

    /// What a client tells that servers of the handshake era are to know: that its roots have changed, and how
    /// far it is with what they have asked.
    pub(super) fn tell_those_who_ask(
        &mut self,
        now: Now,
        peer: PeerId,
        method: &str,
        params: Option<&str>,
    ) {
        let shaken = self.peer(peer).is_some_and(|p| p.negotiated().is_some());
        let Some(side) = self.upstream.as_mut().filter(|_| shaken) else {
            return;
        };
        let Some(runtime) = side.runtimes.get(&peer).copied() else {
            return;
        };
        let servers: Vec<ServerKey> = match method {
            "notifications/roots/list_changed" => {
                let own = |config: &&ServerConfig| config.isolation == Isolation::Session;
                let own = side.manager.servers().filter(own);
                own.map(|config| config.key.clone()).collect()
            }
            "notifications/progress" => {
                let token = params.and_then(|params| member(params, "progressToken"));
                let of_peer = |question: &&Question| match question.stage {
                    Stage::Asked { peer: of, .. } => of == peer,
                    Stage::Held { .. } => false,
                };
                let asked = side.questions.open.values().filter(of_peer);
                let meant = asked.filter(|question| {
                    token.is_some() && progress_token(&question.asking) == token
                });
                meant
                    .map(|question| question.asking.server.clone())
                    .collect()
            }
            _ => return,
        };
        for server in servers {
            side.manager.notify(now, runtime, &server, method, params);
        }
    }

    /// A page that a person was asked to open has been dealt with. Only its own client may know of it.
    pub(super) fn elicitation_complete(
        &mut self,
        now: Now,
        runtime: RuntimeId,
        server: &ServerKey,
        params: Option<&str>,
    ) {
        let Some(side) = &self.upstream else { return };
        let is_shared =
            |config: &ServerConfig| config.key == *server && config.isolation == Isolation::Shared;
        let shared = side.manager.servers().any(is_shared);
        let client = side.clients.get(&runtime).copied();
        let (Some(peer), Some(params), false) = (client, params, shared) else {
            return;
        };
        let params = params.to_owned();
        self.with_peer(now, peer, |peer, sink| {
            if peer.negotiated().is_some() {
                peer.notify("notifications/elicitation/complete", params, sink);
            }
        });
    }
}

/// The raw progress token of a question.
fn progress_token(asking: &Asking) -> Option<&str> {
    let meta = member(asking.params.as_deref()?, "_meta")?;
    member(meta, "progressToken")
}

/// `params` of a question with the id that a client of 2025-11-25 wants with each page to open; `None` where
/// they need none. Spec: 2025-11-25 client/elicitation (URL Mode).
fn with_elicitation_id(asking: &Asking) -> Option<String> {
    let params = asking.params.as_deref()?;
    let is_page = Feature::needed_by(&asking.method, params) == Some(Feature::ElicitationUrl);
    if !is_page || member(params, "elicitationId").is_some() {
        return None;
    }
    let mut id = String::new();
    write_string(&mut id, &format!("drawspan-{}", asking.id));
    Some(with_member(params, "elicitationId", &id))
}

/// A time as the limits have it, for a clock that other machines have too.
fn unix_after(now: Now, ttl: Duration) -> i64 {
    let ttl = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    now.unix_ms.saturating_add(ttl)
}

impl UpstreamSide {
    /// What a client has declared: told to the servers of its runtime, if that is yet to be made.
    pub(in crate::hub) fn declare(&mut self, peer: PeerId, capabilities: SharedText) {
        if !self.runtimes.contains_key(&peer) {
            self.declared.insert(peer, capabilities);
        }
    }
}
