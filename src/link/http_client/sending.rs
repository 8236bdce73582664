//! What leaves: messages in their turn, the stream of the session, the end of it.

use super::call::Call;
use super::{
    ExchangeId, HttpLink, INITIALIZED, Life, ListenState, Method, Purpose, Session, request_id,
};
use crate::clock::Now;
use crate::ids::WireMint;
use crate::protocol::client::{Dialect, Outgoing, OutgoingKind, RequestEnd};

impl HttpLink {
    pub(super) fn delete(&mut self, now: Now, wires: &mut WireMint) -> Option<ExchangeId> {
        let (Some(_), false, Ok(fields)) = (&self.session.id, self.session.lost, &self.fields)
        else {
            return None;
        };
        let rest = fields.delete(self.session.fields()).ok()?;
        let path = self.path();
        Some(self.client.submit(now, Method::Delete, path, rest, wires))
    }

    pub(super) fn listen_if_due(&mut self, now: Now, wires: &mut WireMint) {
        let ListenState::Due(due) = self.listen.state else {
            return;
        };
        if due > now.up || self.life != Life::Up {
            return;
        }
        if self.quiet_until > now.up {
            self.listen.state = ListenState::Due(self.quiet_until);
            return;
        }
        let Some(rest) = self.get(self.listen.last_id()) else {
            self.listen.state = ListenState::NotOffered;
            return;
        };
        let path = self.path();
        let exchange = self.client.submit(now, Method::Get, path, rest, wires);
        self.exchanges.insert(exchange, Purpose::Listen);
        self.listen.opened(now, exchange);
    }

    pub(super) fn resume(&mut self, now: Now, call: Box<Call>, wires: &mut WireMint) {
        let id = call.id;
        let Some(rest) = self.get(call.feed.last_id()) else {
            let why = "stream could not be resumed: its event id cannot be sent".to_owned();
            return self.ended(id, RequestEnd::Broken(why));
        };
        let path = self.path();
        let exchange = self.client.submit(now, Method::Get, path, rest, wires);
        self.requests.insert(id, exchange);
        self.exchanges.insert(exchange, Purpose::Call(call));
    }

    fn get(&self, last_id: Option<&str>) -> Option<Vec<u8>> {
        let fields = self.fields.as_ref().ok()?;
        fields.get(self.session.fields(), last_id).ok()
    }

    fn path(&self) -> String {
        self.client.target().url.path_and_query.clone()
    }

    /// Sends what is held and may go.
    pub(super) fn release(&mut self, now: Now, wires: &mut WireMint) {
        let mut at = 0;
        while let Some(held) = self.held.get(at) {
            if self.may_go(held) {
                if let Some(message) = self.held.remove(at) {
                    self.post(now, &message, wires);
                }
            } else {
                at += 1;
            }
        }
    }

    fn may_go(&self, message: &Outgoing) -> bool {
        let is_request = matches!(message.kind, OutgoingKind::Request { .. });
        let notes = || {
            let notes = self.exchanges.values();
            notes.filter(|p| matches!(p, Purpose::Note { .. })).count()
        };
        let in_session = matches!(message.dialect, Dialect::Session(_));
        !(self.holding.is_some() && in_session) && (is_request || notes() < self.notes_open_max)
    }

    fn post(&mut self, now: Now, message: &Outgoing, wires: &mut WireMint) {
        let initialize = matches!(
            (&message.kind, message.dialect),
            (OutgoingKind::Request { method, .. }, Dialect::Handshake) if &**method == "initialize"
        );
        if initialize {
            self.begin_session();
        }
        if let Dialect::Session(revision) = message.dialect {
            self.session.revision = Some(revision);
        }
        let written = match &self.fields {
            Ok(fields) => fields.post(message, self.session.fields()),
            Err(error) => Err(error.clone()),
        };
        let rest = match written {
            Ok(rest) => rest,
            Err(error) => {
                let why = format!("message cannot be sent: {error}");
                match request_id(&message.kind) {
                    Some(id) => self.ended(id, RequestEnd::NotSent(why)),
                    None => log::warn!("{why}"),
                }
                return;
            }
        };
        let path = self.path();
        let exchange = self.client.submit(now, Method::Post, path, rest, wires);
        let purpose = match &message.kind {
            OutgoingKind::Request { id, .. } => {
                self.requests.insert(*id, exchange);
                let in_session = match message.dialect {
                    Dialect::Session(_) => self.session.id.is_some(),
                    Dialect::Handshake | Dialect::Stateless(_) => false,
                };
                let dialect = message.dialect;
                let call = Call::new(*id, initialize, in_session, dialect, self.call_limits);
                Purpose::Call(Box::new(call))
            }
            OutgoingKind::Notification { method } => {
                let initialized = &**method == INITIALIZED;
                if initialized {
                    self.holding = Some(now.after(self.begin_timeout));
                }
                self.note(now, exchange, initialized)
            }
            OutgoingKind::Answer => self.note(now, exchange, false),
        };
        self.exchanges.insert(exchange, purpose);
    }

    fn note(&mut self, now: Now, exchange: ExchangeId, initialized: bool) -> Purpose {
        let until = now.after(self.note_timeout);
        self.client.give_up_at(exchange, until);
        let reply = None;
        Purpose::Note { initialized, reply }
    }

    /// What was agreed on before is void.
    fn begin_session(&mut self) {
        self.session = Session::default();
        self.holding = None;
        if let Some(open) = self.listen.reset() {
            self.exchanges.remove(&open);
            self.client.cancel(open);
        }
    }
}
