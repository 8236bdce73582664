//! The peers that speak HTTP: one for each session, and one for all stateless exchanges of a principal.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::exchange::ExchangeRef;
use crate::ids::{IdMap, PeerId};
use crate::link::http_rules::Principal;
use crate::protocol::server::{ServerConfig, ServerPeer};

/// See the module page.
#[derive(Debug)]
pub(super) struct Peers {
    /// What peers of new clients know of the server.
    server: Arc<ServerConfig>,
    by_id: IdMap<PeerId, HttpPeer>,
    stateless: BTreeMap<Principal, PeerId>,
}

/// A peer that speaks HTTP.
#[derive(Debug)]
struct HttpPeer {
    /// Away while it speaks, for its sink is the rest of the front.
    peer: Option<Box<ServerPeer>>,
    kind: PeerKind,
    principal: Principal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerKind {
    /// Serves every stateless exchange of one principal.
    Stateless,
    /// A session of Streamable HTTP.
    Session,
    /// A session of the 2024-11-05 pair: everything leaves on this one stream.
    Legacy(ExchangeRef),
}

impl Peers {
    pub(super) fn new(server: Arc<ServerConfig>) -> Self {
        Self {
            server,
            by_id: IdMap::new(),
            stateless: BTreeMap::new(),
        }
    }

    /// What peers of new clients know of the server.
    pub(super) fn set_server(&mut self, server: Arc<ServerConfig>) {
        self.server = server;
    }

    /// A new client, or the first stateless message of a principal.
    pub(super) fn add(&mut self, id: PeerId, kind: PeerKind, principal: Principal) {
        let peer = Some(Box::new(ServerPeer::new(self.server.clone())));
        self.by_id.insert(
            id,
            HttpPeer {
                peer,
                kind,
                principal,
            },
        );
        if kind == PeerKind::Stateless {
            self.stateless.insert(principal, id);
        }
    }

    /// Its session is over.
    pub(super) fn remove(&mut self, id: PeerId) {
        self.by_id.remove(&id);
    }

    pub(super) fn get(&self, id: PeerId) -> Option<&ServerPeer> {
        self.by_id.get(&id)?.peer.as_deref()
    }

    pub(super) fn get_mut(&mut self, id: PeerId) -> Option<&mut ServerPeer> {
        self.by_id.get_mut(&id)?.peer.as_deref_mut()
    }

    /// Takes a peer out, so that it can speak into the rest of the front.
    pub(super) fn take(&mut self, id: PeerId) -> Option<(Box<ServerPeer>, PeerKind)> {
        let http = self.by_id.get_mut(&id)?;
        Some((http.peer.take()?, http.kind))
    }

    /// It has spoken. What became nobody's meanwhile is dropped.
    pub(super) fn put_back(&mut self, id: PeerId, peer: Box<ServerPeer>) {
        if let Some(http) = self.by_id.get_mut(&id) {
            http.peer = Some(peer);
        }
    }

    pub(super) fn kind_of(&self, id: PeerId) -> Option<PeerKind> {
        self.by_id.get(&id).map(|http| http.kind)
    }

    /// Whose requests a peer serves.
    pub(super) fn principal_of(&self, id: PeerId) -> Option<Principal> {
        self.by_id.get(&id).map(|http| http.principal)
    }

    /// Who serves the stateless exchanges of a principal.
    pub(super) fn stateless_of(&self, principal: Principal) -> Option<PeerId> {
        self.stateless.get(&principal).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &ServerPeer> {
        self.by_id.values().filter_map(|http| http.peer.as_deref())
    }

    /// All of them, the oldest one first.
    pub(super) fn ids(&self) -> Vec<PeerId> {
        in_order(self.by_id.keys().copied())
    }

    /// Those of sessions, the oldest one first.
    pub(super) fn ids_of_sessions(&self) -> Vec<PeerId> {
        let sessions = self
            .by_id
            .iter()
            .filter(|(_, http)| http.kind != PeerKind::Stateless);
        in_order(sessions.map(|(id, _)| *id))
    }
}

fn in_order(peers: impl Iterator<Item = PeerId>) -> Vec<PeerId> {
    let mut peers: Vec<PeerId> = peers.collect();
    peers.sort_unstable();
    peers
}
