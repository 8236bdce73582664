//! The machine of the HTTP door: all it knows, and what the hub tells it and asks of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::connections::Connections;
use super::due::DueQueue;
use super::exchange::{Exchange, ExchangeRef};
use super::peers::{PeerKind, Peers};
use super::sessions::{Parting, Sessions, StreamId};
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::outbuf::OutBuf;
use crate::codec::shared_text::{Lender, TextPool};
use crate::ids::{NewestMap, PeerId, WireId};
use crate::limits::Limits;
use crate::link::http_rules::{AccessRules, Principal};
use crate::link::http_server::HttpEvent;
use crate::link::{IoEvent, IoRequest, OpenSpec};
use crate::protocol::server::{RequestKey, ServerConfig, ServerPeer};

/// How the HTTP door is set up.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Who may call.
    pub rules: AccessRules,
}

/// What the hub has to do about something that happened here.
#[derive(Debug)]
pub(in crate::hub) enum Work {
    /// A message came in.
    Message {
        /// Where it came from.
        exchange: ExchangeRef,
        /// The whole of it.
        body: Vec<u8>,
    },
    /// The client of these requests is gone; the peer may have more to say now.
    Spoke(PeerId),
    /// A session has ended: its calls are nobody's.
    Ended(PeerId),
    /// A client that came for its stream will not get this many events: they are kept no more.
    Lost(u64),
    /// A client of the 2024-11-05 pair wants a session.
    OpenLegacy {
        /// Its stream.
        exchange: ExchangeRef,
        /// Whose it is.
        principal: Principal,
    },
    /// The last request of a connection that is no more.
    Io(IoRequest),
}

/// How much of the limits of the HTTP door is in use. Of one session or connection: by the one with the most.
#[derive(Clone, Copy, Debug)]
pub(in crate::hub) struct HttpUsage {
    pub(in crate::hub) connections: usize,
    pub(in crate::hub) connections_peak: usize,
    pub(in crate::hub) pipelined: usize,
    pub(in crate::hub) sessions: usize,
    pub(in crate::hub) sessions_peak: usize,
    pub(in crate::hub) streams: usize,
    pub(in crate::hub) replay_events: usize,
    pub(in crate::hub) replay_bytes: usize,
    pub(in crate::hub) replay_total_bytes: usize,
}

/// See the module page.
#[derive(Debug)]
pub(in crate::hub) struct HttpFront {
    pub(super) limits: Limits,
    pub(super) rules: AccessRules,
    listeners: BTreeSet<WireId>,
    pub(super) connections: Connections,
    pub(super) exchanges: NewestMap<ExchangeRef, Exchange>,
    /// Where the answer of each open request goes.
    pub(super) routes: NewestMap<(PeerId, RequestKey), ExchangeRef>,
    pub(super) peers: Peers,
    pub(super) sessions: Sessions,
    pub(super) work: VecDeque<Work>,
    /// Exchanges that were not answered at once, in this turn, and when they start to stream.
    pub(super) unanswered: Vec<(Uptime, ExchangeRef)>,
    /// When each unanswered exchange starts to stream.
    pub(super) starts: DueQueue,
    /// When each stream gets its next comment.
    pub(super) keepalives: DueQueue,
    /// Where messages go that nobody gets, or that are copied first.
    pub(super) scratch: Vec<u8>,
    /// Has the messages that are being served, in the buffers they came in.
    pub(super) messages: Lender,
    /// Has those whose buffers are too big to be kept for them.
    pub(super) texts: TextPool,
}

impl HttpFront {
    pub(in crate::hub) fn new(
        config: HttpConfig,
        server: Arc<ServerConfig>,
        limits: &Limits,
    ) -> Self {
        Self {
            sessions: Sessions::new(limits),
            limits: limits.clone(),
            rules: config.rules,
            listeners: BTreeSet::new(),
            connections: Connections::default(),
            exchanges: NewestMap::new(),
            routes: NewestMap::new(),
            peers: Peers::new(server),
            work: VecDeque::new(),
            unanswered: Vec::new(),
            starts: DueQueue::default(),
            keepalives: DueQueue::default(),
            scratch: Vec::new(),
            messages: Lender::default(),
            texts: TextPool::new(limits.text_buffer_bytes_max),
        }
    }

    /// What peers of new clients know of the server.
    pub(in crate::hub) fn set_server(&mut self, server: Arc<ServerConfig>) {
        self.peers.set_server(server);
    }

    /// A listener on this wire.
    pub(in crate::hub) fn listen(&mut self, wire: WireId, host: String, port: u16) -> IoRequest {
        self.listeners.insert(wire);
        IoRequest::Open(wire, OpenSpec::Listen { host, port })
    }

    pub(in crate::hub) fn is_listening(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Accepts nobody any more and reads nothing more; what is open is answered.
    pub(in crate::hub) fn begin_end(&mut self, io: &mut VecDeque<IoRequest>) {
        io.extend(
            std::mem::take(&mut self.listeners)
                .into_iter()
                .map(IoRequest::Close),
        );
        self.connections.close_after();
    }

    /// Whether everything is answered and has left.
    pub(in crate::hub) fn is_quiet(&mut self) -> bool {
        self.exchanges.values().all(|open| open.open.is_empty()) && self.connections.is_drained()
    }

    pub(in crate::hub) fn is_listener(&self, wire: WireId) -> bool {
        self.listeners.contains(&wire)
    }

    /// Whether there is no room even for someone to be told that there is none.
    pub(in crate::hub) fn is_packed(&self) -> bool {
        let surplus = self.limits.connections_surplus_max;
        self.connections.len() >= self.limits.connections_max.saturating_add(surplus)
    }

    /// A listener could not be bound, or broke.
    pub(in crate::hub) fn drop_listener(&mut self, wire: WireId) {
        self.listeners.remove(&wire);
    }

    /// Someone connected. Past the limit it is told so and let go.
    pub(in crate::hub) fn accept(&mut self, now: Now, wire: WireId) {
        self.connections.accept(now, wire, &self.limits);
    }

    /// How much of the limits of this door is in use.
    pub(in crate::hub) fn usage(&self) -> HttpUsage {
        let mut open: BTreeMap<WireId, usize> = BTreeMap::new();
        for exchange in self.exchanges.keys() {
            *open.entry(exchange.wire).or_default() += 1;
        }
        let sessions = self.sessions.usage();
        HttpUsage {
            connections: self.connections.len(),
            connections_peak: self.connections.peak(),
            pipelined: open.into_values().max().unwrap_or(0),
            sessions: self.sessions.len(),
            sessions_peak: sessions.peak,
            streams: sessions.streams,
            replay_events: sessions.events,
            replay_bytes: sessions.bytes,
            replay_total_bytes: sessions.total_bytes,
        }
    }

    /// Whether nothing follows from it that an answer has left: so it is between two requests.
    pub(in crate::hub) fn is_drained_unmoved(&mut self, now: Now, wire: WireId) -> bool {
        let connection = self.connections.get_mut(&wire);
        connection.is_some_and(|connection| connection.is_drained_unmoved(now))
    }

    pub(in crate::hub) fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>) {
        let Some(connection) = self.connections.get_mut(&wire) else {
            return;
        };
        // A broken wire has nothing pending either.
        let broken = matches!(event, IoEvent::WriteClosed | IoEvent::Failed(_));
        connection.http.handle_io(now, event);
        // One that says no more may have gone, and then what has left arrives nowhere.
        let parting = if broken || connection.http.has_client_ended() {
            Parting::Lost
        } else {
            Parting::Clean
        };
        if !connection.settling.is_empty() && connection.http.outgoing().is_empty() {
            self.settle(now, wire, parting);
        }
        self.drain(now, wire);
    }

    pub(in crate::hub) fn handle_timeout(&mut self, now: Now) {
        while let Some(wire) = self.connections.handle_timeout(now) {
            self.drain(now, wire);
        }
        self.start_due_streams(now);
        self.comment_due_streams(now);
        for ended in self.sessions.expire(now) {
            self.end_peer(now, ended);
        }
    }

    pub(in crate::hub) fn next_deadline(&self) -> Option<Deadline> {
        let start = self
            .starts
            .next()
            .map(|at| Deadline::new(at, "stream start"));
        let alive = self
            .keepalives
            .next()
            .map(|at| Deadline::new(at, "stream keep-alive"));
        [
            self.connections.next_deadline(),
            start,
            alive,
            self.sessions.next_deadline(),
        ]
        .into_iter()
        .fold(None, Deadline::earlier)
    }

    pub(in crate::hub) fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        self.connections
            .get_mut(&wire)
            .map(|connection| connection.http.outgoing())
    }

    pub(in crate::hub) fn poll_work(&mut self) -> Option<Work> {
        self.work.pop_front()
    }

    /// Hands over what connections want from the loop.
    pub(in crate::hub) fn collect_requests(&mut self, io: &mut VecDeque<IoRequest>) {
        self.queue_starts();
        self.connections.collect_requests(io);
    }

    pub(super) fn touch(&mut self, wire: WireId) {
        self.connections.touch(wire);
    }

    pub(in crate::hub) fn peers(&self) -> impl Iterator<Item = &ServerPeer> {
        self.peers.iter()
    }

    pub(in crate::hub) fn peer_mut(&mut self, id: PeerId) -> Option<&mut ServerPeer> {
        self.peers.get_mut(id)
    }

    pub(in crate::hub) fn peer(&self, id: PeerId) -> Option<&ServerPeer> {
        self.peers.get(id)
    }

    /// Whose requests a peer serves, if it speaks HTTP.
    pub(in crate::hub) fn principal_of(&self, id: PeerId) -> Option<Principal> {
        self.peers.principal_of(id)
    }

    /// The peers that hear notifications of a session.
    pub(in crate::hub) fn session_ids(&self) -> Vec<PeerId> {
        self.peers.ids_of_sessions()
    }

    /// All peers.
    pub(in crate::hub) fn peer_ids(&self) -> Vec<PeerId> {
        self.peers.ids()
    }

    /// Whether so much waits for the client of a request that nothing is added that it did not ask for.
    pub(in crate::hub) fn is_backed_up(&self, peer: PeerId, key: RequestKey) -> bool {
        let exchange = self.routes.get(&(peer, key)).copied();
        self.is_exchange_backed_up(exchange)
    }

    /// The same of what belongs to no request: the session's own stream.
    pub(in crate::hub) fn is_session_backed_up(&self, peer: PeerId) -> bool {
        let exchange = match self.peers.kind_of(peer) {
            Some(PeerKind::Legacy(exchange)) => Some(exchange),
            Some(PeerKind::Session) => self
                .sessions
                .carrier(peer, StreamId::STANDALONE)
                .map(ExchangeRef::of_carrier),
            Some(PeerKind::Stateless) | None => None,
        };
        self.is_exchange_backed_up(exchange)
    }

    fn is_exchange_backed_up(&self, exchange: Option<ExchangeRef>) -> bool {
        let connection = exchange.and_then(|exchange| self.connections.get(&exchange.wire));
        connection.is_some_and(|connection| connection.http.backlog() > self.limits.out_high_bytes)
    }

    /// Whether a client has a stream for what concerns none of its requests; one on a line always has.
    pub(in crate::hub) fn hears_session(&self, id: PeerId) -> bool {
        match self.peers.kind_of(id) {
            Some(PeerKind::Session) => self.sessions.carrier(id, StreamId::STANDALONE).is_some(),
            Some(PeerKind::Stateless) => false,
            Some(PeerKind::Legacy(_)) | None => true,
        }
    }

    /// Everything that a connection has to say.
    fn drain(&mut self, now: Now, wire: WireId) {
        self.touch(wire);
        while let Some(event) = self
            .connections
            .get_mut(&wire)
            .and_then(|connection| connection.http.poll_event())
        {
            let of_wire = |id| ExchangeRef { wire, id };
            match event {
                HttpEvent::Head { exchange, head } => {
                    self.handle_head(now, of_wire(exchange), head);
                }
                HttpEvent::Body { exchange, body } => {
                    let exchange = of_wire(exchange);
                    self.work.push_back(Work::Message { exchange, body });
                }
                HttpEvent::Gone { exchange } => self.handle_gone(now, of_wire(exchange)),
                HttpEvent::Closed => self.handle_closed(now, wire),
            }
        }
    }
}
