//! The 2024-11-05 pair: GET `/sse` is a session and the stream that everything leaves on, POST `/messages` is
//! the way in. Spec: 2024-11-05 basic/transports (HTTP with SSE).

use super::exchange::{Exchange, ExchangeRef, Purpose};
use super::front::HttpFront;
use super::peers::PeerKind;
use super::refusals;
use crate::clock::Now;
use crate::entropy::Entropy;
use crate::ids::PeerId;
use crate::link::http_rules::{Accepts, HttpRefusal, Principal, check_post};
use crate::link::http_server::HttpHead;

impl HttpFront {
    /// GET `/sse`: a session, whose stream begins with where its messages go.
    pub(in crate::hub) fn open_legacy_as(
        &mut self,
        now: Now,
        exchange: ExchangeRef,
        principal: Principal,
        id: PeerId,
        entropy: &mut dyn Entropy,
    ) {
        let session = match self.sessions.open(now, id, principal.as_str(), entropy) {
            Ok(session) => session,
            Err(error) => return self.refuse(now, exchange, &refusals::no_session(&error)),
        };
        let accepts = Accepts {
            json: false,
            sse: true,
        };
        let mut open = Exchange::new(Purpose::Stream, principal, accepts);
        open.peer = Some(id);
        open.sse = true;
        self.exchanges.insert(exchange, open);
        self.peers.add(id, PeerKind::Legacy(exchange), principal);
        let Some(connection) = self.connections.get_mut(&exchange.wire) else {
            return;
        };
        connection.http.start_sse(now, exchange.id, &[]);
        let out = connection
            .http
            .begin_event(exchange.id, Some("endpoint"), None);
        out.extend_from_slice(format!("/messages?sessionId={}", session.as_str()).as_bytes());
        connection.http.commit_event(now, exchange.id);
        self.keep_alive(now, exchange);
        self.touch(exchange.wire);
    }

    /// POST `/messages`: a message for such a session.
    pub(super) fn expect_legacy_post(
        &mut self,
        now: Now,
        exchange: ExchangeRef,
        head: Box<HttpHead>,
        principal: Principal,
    ) -> Result<(), HttpRefusal> {
        let accepts = check_post(&*head)?;
        let query = head.target().split_once('?').map_or("", |(_, query)| query);
        let id = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("sessionId="));
        let found = id.and_then(|id| self.sessions.find(now, id, principal.as_str()));
        let legacy = |peer: &PeerId| matches!(self.peers.kind_of(*peer), Some(PeerKind::Legacy(_)));
        let Some(peer) = found.filter(legacy) else {
            return Err(refusals::json_error(
                404,
                -32001,
                "session not found: open /sse first",
            ));
        };
        let mut open = Exchange::new(Purpose::LegacyPost(peer), principal, accepts);
        open.head = Some(head);
        open.peer = Some(peer);
        self.expect_body(now, exchange, open);
        Ok(())
    }
}
