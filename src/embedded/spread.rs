//! Who hears of what: subscribers of messages, and those who may decide of approvals.
//!
//! Source: openclaw-serve §1.7, §1.9.

use super::approvals::Approval;
use super::connection::Connection;
use super::journal::{ApprovalKind, Decision};
use super::rpc::{News, Scope};
use super::{EmbeddedEvent, EmbeddedGateway, content, views};
use crate::clock::Now;
use crate::ids::WireId;

impl EmbeddedGateway {
    /// Tells clients and the program what happened; `from` is the connection that caused it.
    pub(super) fn spread(&mut self, now: Now, news: &News, from: Option<WireId>) {
        match news {
            News::Message { key, seq } => self.spread_message(key, *seq),
            News::Requested { kind, id } => {
                let name = match kind {
                    ApprovalKind::Exec => "exec.approval.requested",
                    ApprovalKind::Plugin => "plugin.approval.requested",
                };
                let (kind, id) = (*kind, id.clone());
                if let Some(approval) = self.store.approvals.get(kind, &id) {
                    let payload = views::approval(&id, approval);
                    let connections = self.connections.iter_mut();
                    // The one that asks knows already.
                    for (_, connection) in connections.filter(|(wire, _)| Some(**wire) != from) {
                        if sees(connection, approval) {
                            connection.event(name, &payload);
                        }
                    }
                }
                self.tell(EmbeddedEvent::ApprovalRequested { kind, id });
            }
            News::Resolved {
                kind,
                id,
                decision,
                by,
            } => self.spread_resolved(now, *kind, id, *decision, by.as_deref()),
        }
    }

    fn spread_message(&mut self, key: &str, seq: u64) {
        let Some(payload) = views::message_event(&self.store, key, seq) else {
            return;
        };
        for connection in self.connections.values_mut().filter(|c| c.is_subscribed()) {
            connection.event("session.message", &payload);
        }
        let message = self.store.conversation(key).and_then(|c| c.message(seq));
        if let Some(message) = message {
            let event = EmbeddedEvent::MessagePosted {
                session_key: key.to_owned(),
                role: message.role.clone(),
                text: content::start_of(&message.content, content::TITLE_CHARS_MAX)
                    .unwrap_or_default(),
            };
            self.tell(event);
        }
    }

    fn spread_resolved(
        &mut self,
        now: Now,
        kind: ApprovalKind,
        id: &str,
        decision: Decision,
        by: Option<&str>,
    ) {
        let name = match kind {
            ApprovalKind::Exec => "exec.approval.resolved",
            ApprovalKind::Plugin => "plugin.approval.resolved",
        };
        let Some(approval) = self.store.approvals.get(kind, id) else {
            return;
        };
        let payload = views::approval_resolved(id, approval, decision, by, now.unix_ms);
        for connection in self.connections.values_mut() {
            if sees(connection, approval) {
                connection.event(name, &payload);
            }
        }
        let (created, expires) = (approval.created_at_ms, approval.expires_at_ms);
        let outcome = views::approval_outcome(id, Some(decision), created, expires);
        self.decided(kind, id, &outcome);
        self.tell(EmbeddedEvent::ApprovalResolved {
            kind,
            id: id.to_owned(),
            decision,
            by: by.map(str::to_owned),
        });
    }

    /// Lets go of approvals whose time is up. Source: openclaw-serve §1.9: clients are not told.
    pub(super) fn lapse(&mut self, now: Now) {
        for lapsed in self.store.forget_lapsed(now) {
            let (created, expires) = (lapsed.created_at_ms, lapsed.expires_at_ms);
            let outcome = views::approval_outcome(&lapsed.id, None, created, expires);
            self.decided(lapsed.kind, &lapsed.id, &outcome);
            self.tell(EmbeddedEvent::ApprovalExpired {
                kind: lapsed.kind,
                id: lapsed.id,
            });
        }
    }
}

fn sees(connection: &Connection, approval: &Approval) -> bool {
    connection
        .caller()
        .is_some_and(|caller| Scope::Approvals.is_held(caller.scopes) && caller.sees(approval))
}
