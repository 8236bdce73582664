//! What leaves: messages in their turn, the stream of the session, the end of it.

use super::call::Call;
use super::{
    ExchangeId, HttpLink, INITIALIZED, Life, ListenState, Method, Purpose, Session, request_id,
};
use crate::clock::Now;
use crate::codec::http1::WriteError;
use crate::ids::WireMint;
use crate::protocol::client::{Dialect, Outgoing, OutgoingKind, RequestEnd};

impl HttpLink {
    pub(super) fn delete(&mut self, now: Now, wires: &mut WireMint) -> Option<ExchangeId> {
        let (true, false, Ok(fields)) = (
            self.session.fields.is_named(),
            self.session.lost,
            &self.fields,
        ) else {
            return None;
        };
        let mut rest = self.client.buffer();
        fields.delete(&mut rest, &self.session.fields);
        let path = self.path.clone();
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
        let mut rest = self.client.buffer();
        if !self.get(&mut rest, self.listen.last_id()) {
            self.listen.state = ListenState::NotOffered;
            return;
        }
        let path = self.path.clone();
        let exchange = self.client.submit(now, Method::Get, path, rest, wires);
        self.exchanges.insert(exchange, Purpose::Listen);
        self.listen.opened(now, exchange);
    }

    pub(super) fn resume(&mut self, now: Now, call: Call, wires: &mut WireMint) {
        let id = call.id;
        let mut rest = self.client.buffer();
        if !self.get(&mut rest, call.last_id()) {
            let why = "stream could not be resumed: its event id cannot be sent".to_owned();
            return self.ended(id, RequestEnd::Broken(why));
        }
        let path = self.path.clone();
        let exchange = self.client.submit(now, Method::Get, path, rest, wires);
        self.exchanges.insert(exchange, Purpose::Call(call));
    }

    /// Writes a GET; false when it cannot be sent.
    fn get(&self, out: &mut Vec<u8>, last_id: Option<&str>) -> bool {
        let fields = self.fields.as_ref();
        fields.is_ok_and(|fields| fields.get(out, &self.session.fields, last_id).is_ok())
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

    pub(super) fn may_go(&self, message: &Outgoing) -> bool {
        let is_request = matches!(message.kind, OutgoingKind::Request { .. });
        let notes = || {
            let notes = self.exchanges.values();
            notes.filter(|p| matches!(p, Purpose::Note { .. })).count()
        };
        let in_session = matches!(message.dialect, Dialect::Session(_));
        !(self.holding.is_some() && in_session) && (is_request || notes() < self.notes_open_max)
    }

    pub(super) fn post(&mut self, now: Now, message: &Outgoing, wires: &mut WireMint) {
        let initialize = matches!(
            (&message.kind, message.dialect),
            (OutgoingKind::Request { method, .. }, Dialect::Handshake) if &**method == "initialize"
        );
        if initialize {
            self.begin_session();
        }
        let mut rest = self.client.buffer();
        if let Err(error) = self.write(&mut rest, message) {
            let why = format!("message cannot be sent: {error}");
            match request_id(&message.kind) {
                Some(id) => self.ended(id, RequestEnd::NotSent(why)),
                None => log::warn!("{why}"),
            }
            return;
        }
        let path = self.path.clone();
        let exchange = self.client.submit(now, Method::Post, path, rest, wires);
        let purpose = match &message.kind {
            OutgoingKind::Request { id, .. } => {
                let in_session = match message.dialect {
                    Dialect::Session(_) => self.session.fields.is_named(),
                    Dialect::Handshake | Dialect::Stateless(_) => false,
                };
                Purpose::Call(Call::new(*id, initialize, in_session, message.dialect))
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

    fn write(&mut self, out: &mut Vec<u8>, message: &Outgoing) -> Result<(), WriteError> {
        let session = &mut self.session.fields;
        if let Dialect::Session(revision) = message.dialect {
            session.agree(revision)?;
        }
        match &self.fields {
            Ok(fields) => fields.post(out, message, session),
            Err(error) => Err(error.clone()),
        }
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
