//! Calls that wait for a person: who may see them, who may answer, and what is told of them.
//!
//! A person answers by one of three ways: `drawspan approvals` over a Unix socket (the private methods below),
//! the channel tool `permissions_respond`, or at the Gateway. An embedding program answers by
//! [`Hub::answer_hold`] or [`Hub::resolve_gate`].
//!
//! A client never answers for its own calls: not on its own connection, and not by another HTTP request that
//! shows the same credentials. Whoever may connect to the Unix socket may answer for all others.

use serde::Deserialize;

use super::{HookConfig, Hub};
use crate::bridge::responded;
use crate::clock::Now;
use crate::codec::json_object::JsonObject;
use crate::codec::object::from_object;
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::gate::{Answer, HeldCall, HoldEvent, NotHeld, RuleError, Rules};
use crate::ids::{CallId, PeerId};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::server::{Answer as Response, ServerRequest};
use crate::secret::Quoted;

/// The method that lists what waits for a person. For clients of a Unix socket only, like
/// [`super::LIMITS_METHOD`].
pub const APPROVALS_LIST_METHOD: &str = "drawspan/approvals/list";

/// The method that answers: `{"id","decision","reason"?}`. For clients of a Unix socket only.
pub const APPROVALS_RESOLVE_METHOD: &str = "drawspan/approvals/resolve";

/// Whether a method is one of ours alone, and never for a server behind us.
pub(in crate::hub) fn is_private(method: &str) -> bool {
    matches!(
        method,
        super::LIMITS_METHOD | APPROVALS_LIST_METHOD | APPROVALS_RESOLVE_METHOD
    )
}

/// Why an answer counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unanswered {
    /// No such call waits.
    NotHeld,
    /// It is the call of whoever answers.
    Own,
}

impl std::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotHeld => NotHeld.fmt(f),
            Self::Own => f.write_str("a client cannot answer for its own calls"),
        }
    }
}

#[derive(Deserialize)]
struct ResolveParams {
    id: String,
    decision: String,
    reason: Option<String>,
}

impl Hub {
    /// The rules of the gate that hold from now on. Calls that wait already go on as they began.
    ///
    /// # Errors
    /// When a rule asks the hook and there is none. The rules of before stay in force then.
    pub fn set_rules(&mut self, rules: Rules) -> Result<(), RuleError> {
        self.gate.set_rules(rules)
    }

    /// Rules and before-tool-call hook that hold from now on. Calls that a hook has been asked about go on with
    /// it. Where the embedding program decides there is no hook, and none comes to be.
    ///
    /// # Errors
    /// As [`Hub::set_rules`]; everything stays as it was then.
    pub fn set_rules_and_hook(
        &mut self,
        rules: Rules,
        hook: Option<HookConfig>,
    ) -> Result<(), RuleError> {
        self.gate.set_rules_and_hook(rules, hook.is_some())?;
        self.hook = hook;
        Ok(())
    }

    /// The calls that wait for a person, oldest first.
    pub fn held_calls(&self) -> impl Iterator<Item = &HeldCall> {
        self.gate.held()
    }

    /// A person's answer about a held call, brought by the embedding program. `by` says who; `reason` goes with
    /// a "no".
    ///
    /// # Errors
    /// When no call is held by this id.
    pub fn answer_hold(
        &mut self,
        now: Now,
        id: &str,
        answer: Answer,
        by: &str,
        reason: Option<&str>,
    ) -> Result<(), NotHeld> {
        let answered = self.answer_held(now, id, answer, by, reason);
        self.settle(now);
        answered
    }

    pub(super) fn answer_held(
        &mut self,
        now: Now,
        id: &str,
        answer: Answer,
        by: &str,
        reason: Option<&str>,
    ) -> Result<(), NotHeld> {
        let (passage, kept) = self.gate.answer(id, answer, by, reason)?;
        if !kept {
            let limit = self.limits.approvals_always_max;
            self.tell(
                Level::Warning,
                format!(
                    "{}: allowed once, not always: {limit} answers are kept, limit {limit} (approvals_always_max)",
                    Quoted(id)
                ),
            );
        }
        self.route_passage(now, passage);
        Ok(())
    }

    /// The answer of a client.
    pub(super) fn answer_by_client(
        &mut self,
        now: Now,
        client: PeerId,
        id: &str,
        answer: Answer,
        reason: Option<&str>,
    ) -> Result<(), Unanswered> {
        let held = self.gate.held_by(id).ok_or(Unanswered::NotHeld)?;
        if self.is_own(client, held.call) {
            return Err(Unanswered::Own);
        }
        let principal = self.principal(client);
        let by = match self.peer(client).map(|peer| &**peer.client_name()) {
            None | Some("") => principal.to_string(),
            Some(name) => format!("{name}, {principal}"),
        };
        self.answer_held(now, id, answer, &by, reason)
            .map_err(|NotHeld| Unanswered::NotHeld)
    }

    /// Whether a call is one of this client, or of one that is the same over HTTP.
    fn is_own(&self, client: PeerId, call: CallId) -> bool {
        let Some(entry) = self.ledger.entry(call) else {
            return false;
        };
        let (caller, by) = (
            self.http.principal_of(entry.peer),
            self.http.principal_of(client),
        );
        entry.peer == client || (by.is_some() && caller == by)
    }

    /// A request of one of [`is_private`]'s methods, of a client that may ask it.
    pub(super) fn serve_private(&mut self, now: Now, peer: PeerId, request: &ServerRequest) {
        let outcome = match &*request.method {
            APPROVALS_LIST_METHOD => Ok(self.approvals_document(now)),
            APPROVALS_RESOLVE_METHOD => self.resolve_approval(now, peer, request.params.as_deref()),
            _ => Ok(self.limits_document()),
        };
        match outcome {
            Ok(document) => self.respond(now, peer, request.key, Response::Result(&document)),
            Err(error) => self.respond(now, peer, request.key, Response::Error(&error)),
        }
    }

    fn resolve_approval(
        &mut self,
        now: Now,
        peer: PeerId,
        params: Option<&str>,
    ) -> Result<String, RpcError> {
        let bad =
            |why: &dyn std::fmt::Display| RpcError::new(ErrorCode::InvalidParams, why.to_string());
        let ResolveParams {
            id,
            decision,
            reason,
        } = from_object(params.unwrap_or("{}")).map_err(|error| bad(&error))?;
        let Some(answer) = Answer::from_word(&decision) else {
            let text = format!(
                "decision must be allow-once, allow-always or deny (found {})",
                Quoted(&decision)
            );
            return Err(bad(&text));
        };
        self.answer_by_client(now, peer, &id, answer, reason.as_deref())
            .map_err(|why| bad(&why))?;
        let mut document = JsonObject::new();
        document.text("id", &id);
        document.text("decision", answer.as_str());
        Ok(document.end())
    }

    /// The answer to [`APPROVALS_LIST_METHOD`].
    fn approvals_document(&self, now: Now) -> String {
        let rows: Vec<String> = self.gate.held().map(|held| row(now, held)).collect();
        format!(r#"{{"approvals":[{}]}}"#, rows.join(","))
    }

    /// Tells of calls that came to wait for a person, or wait no more. Says whether there were any.
    #[inline(never)]
    pub(super) fn step_holds(&mut self, now: Now) -> bool {
        let mut moved = false;
        while let Some(event) = self.gate.poll_hold() {
            moved = true;
            self.route_hold(now, event);
        }
        moved
    }

    fn route_hold(&mut self, now: Now, event: HoldEvent) {
        match event {
            HoldEvent::Opened(held) => {
                if self.gateway.is_some() {
                    self.bridge.handle_hold_opened(now, &held);
                }
                self.tell_wait(now, &held.id);
                let text = format!(
                    "a call of {} waits for approval: {}",
                    Quoted(&held.tool),
                    held.id
                );
                self.tell(Level::Info, text);
            }
            HoldEvent::Closed { id, end } => {
                self.waits.over(&id);
                self.bridge.handle_hold_closed(now, &id, &end);
            }
        }
    }

    /// An answer that came by way of the bridge: from a client that called its tool, or from the Gateway.
    pub(super) fn decide_for_bridge(
        &mut self,
        now: Now,
        call: Option<CallId>,
        id: &str,
        (answer, by): (Answer, &str),
    ) {
        let Some(call) = call else {
            // It may be gone by now.
            let _ = self.answer_held(now, id, answer, by, None);
            return;
        };
        let Some(entry) = self.ledger.entry(call) else {
            return;
        };
        let outcome = self.answer_by_client(now, entry.peer, id, answer, None);
        let outcome = outcome
            .as_ref()
            .map_err(|why| why as &dyn std::fmt::Display);
        self.answer(now, call, &responded(outcome.copied()));
    }

    /// For the person who runs us, and not for clients: one of them waits for this answer.
    fn tell(&mut self, level: Level, message: String) {
        let diagnostic = Diagnostic::new(level, Subject::Gate, message);
        self.events
            .push_back(super::HubEvent::Diagnostic(diagnostic));
    }

    /// Names of held calls differ from process to process.
    pub(super) fn tag_holds(&mut self) {
        if self.gate.wants_tag() {
            let mut tag = [0; 3];
            self.entropy.fill(&mut tag);
            self.gate.set_tag(crate::crypto::hex(&tag));
        }
    }
}

/// Arguments that a list shows whole; of longer ones it shows the beginning, and says how long they are.
const ARGUMENTS_BYTES_MAX: usize = 16 * 1024;

fn row(now: Now, held: &HeldCall) -> String {
    let mut row = JsonObject::new();
    row.text("id", &held.id);
    row.text("title", &held.title);
    row.text("description", &held.description);
    row.text("tool", &held.tool);
    row.text("server", &held.server);
    row.text("caller", &held.caller);
    row.text("principal", &held.principal);
    let bytes = held.arguments.len();
    if bytes <= ARGUMENTS_BYTES_MAX {
        row.raw("arguments", &held.arguments);
    } else {
        let mut end = ARGUMENTS_BYTES_MAX;
        while !held.arguments.is_char_boundary(end) {
            end -= 1;
        }
        row.text("argumentsStart", &held.arguments[..end]);
        row.count("argumentsBytes", u64::try_from(bytes).ok());
    }
    row.count("rule", held.rule.and_then(|rule| u64::try_from(rule).ok()));
    row.number("createdAtMs", Some(held.created_at_ms));
    row.number("expiresAtMs", Some(held.expires_at_ms));
    let left = held.expires_at_ms.saturating_sub(now.unix_ms).max(0);
    row.number("expiresInMs", Some(left));
    row.end()
}

#[cfg(test)]
mod tests;
