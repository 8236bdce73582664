//! How an exchange and a connection end, and what becomes of the answers that were on their way.

use super::exchange::ExchangeRef;
use super::front::{HttpFront, Work};
use super::sessions::Parting;
use crate::clock::Now;
use crate::ids::WireId;
use crate::link::http_server::ExchangeId;

impl HttpFront {
    /// The exchange is over.
    pub(super) fn forget(&mut self, now: Now, exchange: ExchangeRef) {
        let Some(open) = self.exchanges.remove(&exchange) else {
            return;
        };
        if let (Some(peer), Some(stream)) = (open.peer, open.stream) {
            let carrier = exchange.carrier();
            match self.connections.get_mut(&exchange.wire) {
                // Whether the end arrived shows when all has left.
                Some(connection) if !open.gone => {
                    connection.settling.push((peer, stream, carrier));
                }
                // Nobody knows what arrived: the events stay for a client that comes back.
                Some(_) | None => {
                    self.sessions
                        .detach(now, peer, stream, carrier, Parting::Lost);
                }
            }
        }
        if let Some(peer) = open.peer {
            for key in open.open.iter() {
                self.routes.remove(&(peer, key));
            }
        }
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            if let Some(head) = open.head {
                connection.http.recycle_head(head);
            }
            let message = open.message;
            if let Some(buffer) = message.and_then(|message| self.messages.take_back(message)) {
                connection.http.recycle(buffer.into_bytes());
            }
        }
    }

    /// The answered streams of a connection have left it, or went down with it.
    pub(super) fn settle(&mut self, now: Now, wire: WireId, parting: Parting) {
        if let Some(connection) = self.connections.get_mut(&wire) {
            for (peer, stream, carrier) in connection.settling.drain(..) {
                self.sessions.detach(now, peer, stream, carrier, parting);
            }
        }
    }

    /// A connection is no more, and so nobody waits for its answers.
    pub(super) fn handle_closed(&mut self, now: Now, wire: WireId) {
        let first = |wire| ExchangeRef {
            wire,
            id: ExchangeId(0),
        };
        let of_wire = self.exchanges.range(first(wire)..first(wire.next()));
        let left: Vec<_> = of_wire.map(|(id, _)| *id).collect();
        for exchange in left {
            self.handle_gone(now, exchange);
        }
        self.settle(now, wire, Parting::Lost);
        if let Some(mut over) = self.connections.remove(wire) {
            while let Some(request) = over.http.poll_io() {
                self.work.push_back(Work::Io(request));
            }
        }
    }
}
