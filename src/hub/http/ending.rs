//! How an exchange, a connection and a session end, and what becomes of the answers that were on their way.

use super::exchange::{Exchange, ExchangeRef};
use super::front::{HttpFront, Work};
use super::peers::PeerKind;
use super::sessions::{Ended, Parting};
use crate::clock::Now;
use crate::ids::{PeerId, WireId};

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
        let connection = self.connections.get_mut(&wire);
        let released = connection.map(|connection| std::mem::take(&mut connection.released));
        for id in released.unwrap_or_default() {
            self.handle_gone(now, ExchangeRef { wire, id });
        }
        self.settle(now, wire, Parting::Lost);
        if let Some(mut over) = self.connections.remove(wire) {
            while let Some(request) = over.http.poll_io() {
                self.work.push_back(Work::Io(request));
            }
        }
    }

    /// The client of an exchange went away.
    pub(super) fn handle_gone(&mut self, now: Now, exchange: ExchangeRef) {
        let Some(open) = self.exchanges.get_mut(&exchange) else {
            return;
        };
        open.gone = true;
        let (peer, stream, waits) = (open.peer, open.stream, !open.open.is_empty());
        let unheard = open.announces.is_some();
        let Some(peer) = peer else {
            return self.forget(now, exchange);
        };
        if unheard {
            return self.end_session(now, peer);
        }
        match self.peers.kind_of(peer) {
            Some(PeerKind::Stateless) => {
                if let Some(peer) = self.peer_mut(peer) {
                    peer.abandon(exchange.scope());
                }
                self.forget(now, exchange);
                self.work.push_back(Work::Spoke(peer));
            }
            Some(PeerKind::Legacy(of)) if of == exchange => {
                if let Some(ended) = self.sessions.remove(peer) {
                    self.end_peer(now, ended);
                }
            }
            // What can be resumed waits for whoever resumes it.
            Some(PeerKind::Session) if waits && stream.is_some() => {
                if let Some(stream) = stream {
                    let carrier = exchange.carrier();
                    self.sessions
                        .detach(now, peer, stream, carrier, Parting::Lost);
                }
            }
            Some(PeerKind::Session | PeerKind::Legacy(_)) | None => self.forget(now, exchange),
        }
    }

    /// Ends a session that no client knows of.
    pub(in crate::hub) fn end_session(&mut self, now: Now, peer: PeerId) {
        if let Some(ended) = self.sessions.remove(peer) {
            self.end_peer(now, ended);
        }
    }

    /// A session is over: its streams end, and its calls are nobody's.
    pub(super) fn end_peer(&mut self, now: Now, ended: Ended) {
        let peer = ended.peer;
        for (_, carrier) in ended.carriers {
            self.finish_stream(now, ExchangeRef::of_carrier(carrier));
        }
        let of_peer = |open: &Exchange| open.peer == Some(peer);
        let left = self.exchanges.iter().filter(|(_, open)| of_peer(open));
        let mut left: Vec<ExchangeRef> = left.map(|(id, _)| *id).collect();
        left.sort_unstable();
        for exchange in left {
            if self
                .exchanges
                .get(&exchange)
                .is_some_and(|open| open.sse && !open.gone)
            {
                self.finish_stream(now, exchange);
            } else {
                self.forget(now, exchange);
            }
        }
        self.peers.remove(peer);
        self.work.push_back(Work::Ended(peer));
    }
}
