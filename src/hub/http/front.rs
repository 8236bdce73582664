//! Connections, exchanges and the peers behind them: who is where, and what is due when.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::awaited::Awaited;
use super::due::DueQueue;
use super::refusals;
use super::sessions::{Carrier, EventId, McpSessionId, Parting, SessionPlace, Sessions, StreamId};
use super::sink::HttpSink;
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::outbuf::OutBuf;
use crate::codec::shared_text::{Lender, SharedText, TextPool};
use crate::ids::{IdMap, PeerId, WireId};
use crate::limits::Limits;
use crate::link::http_rules::{
    Accepts, AccessRules, HttpRefusal, Principal, VersionHeader, check_access, check_post,
};
use crate::link::http_server::{ExchangeId, HeadSerial, HttpConnection, HttpEvent, HttpHead};
use crate::link::{IoEvent, IoRequest, OpenSpec};
use crate::protocol::MessageSink;
use crate::protocol::server::{RequestKey, ServerConfig, ServerPeer};

/// How the HTTP door is set up.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Who may call.
    pub rules: AccessRules,
}

/// One exchange of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::hub) struct ExchangeRef {
    pub(super) wire: WireId,
    pub(super) id: ExchangeId,
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

/// What an exchange is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// One message to `/mcp`.
    Post,
    /// One message to `/messages`, for the session with this stream.
    LegacyPost(PeerId),
    /// A stream that answers nothing: the session's own, or one that is resumed.
    Stream,
}

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) purpose: Purpose,
    pub(super) head: Option<HttpHead>,
    /// Its message, while requests of it wait for an answer.
    pub(super) message: Option<SharedText>,
    pub(super) principal: Principal,
    pub(super) accepts: Accepts,
    /// The peer that serves it, once that is known.
    pub(super) peer: Option<PeerId>,
    /// Requests of it that wait for an answer.
    pub(super) open: Awaited,
    /// Its stream in the session, where its events can be resumed.
    pub(super) stream: Option<StreamId>,
    /// The stream has begun.
    pub(super) sse: bool,
    /// The client is gone; what is written goes to the session's store, or nowhere.
    pub(super) gone: bool,
    /// The session that its answer announces.
    pub(super) announces: Option<McpSessionId>,
}

/// A peer that speaks HTTP.
#[derive(Debug)]
pub(super) struct HttpPeer {
    /// Away while it speaks, for its sink is the rest of the front.
    pub(super) peer: Option<Box<ServerPeer>>,
    pub(super) kind: PeerKind,
    pub(super) principal: Principal,
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

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) http: HttpConnection,
    /// The deadline that the timer index knows.
    armed: Option<Uptime>,
    /// One too many: it is told so, and nothing else.
    surplus: bool,
    /// Answered streams whose last bytes have not all left yet.
    settling: Vec<(PeerId, StreamId, Carrier)>,
    /// What its last good head of a message said. Boxed, for an idle connection knows none.
    known: Option<Box<KnownHead>>,
}

/// What was found out about the head of a message to `/mcp`. It holds for every head with this serial, for
/// the checks look at nothing else but the head, and not at its length.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownHead {
    serial: HeadSerial,
    principal: Principal,
    accepts: Accepts,
    version: Option<VersionHeader<'static>>,
    /// The session that it names. Whether that still lives is another question.
    pub(super) session: Option<SessionPlace>,
}

impl KnownHead {
    /// What the version header says.
    pub(super) fn version(self, head: &HttpHead) -> VersionHeader<'_> {
        self.version.unwrap_or_else(|| VersionHeader::of(head))
    }
}

/// See the module page.
#[derive(Debug)]
pub(in crate::hub) struct HttpFront {
    pub(super) limits: Limits,
    pub(super) server: Arc<ServerConfig>,
    rules: AccessRules,
    listeners: BTreeSet<WireId>,
    /// Boxed, for the map has room for more of them.
    pub(super) connections: IdMap<WireId, Box<Connection>>,
    connections_peak: usize,
    pub(super) exchanges: BTreeMap<ExchangeRef, Exchange>,
    /// Where the answer of each open request goes.
    pub(super) routes: IdMap<(PeerId, RequestKey), ExchangeRef>,
    pub(super) peers: IdMap<PeerId, HttpPeer>,
    pub(super) stateless: BTreeMap<Principal, PeerId>,
    pub(super) sessions: Sessions,
    /// Wires whose connections may want something from the loop.
    pub(super) dirty: Vec<WireId>,
    pub(super) work: VecDeque<Work>,
    timers: BTreeSet<(Uptime, WireId)>,
    /// Exchanges that were not answered at once, in this turn, and when they start to stream.
    unanswered: Vec<(Uptime, ExchangeRef)>,
    /// When each unanswered exchange starts to stream.
    starts: DueQueue,
    /// When each stream gets its next comment.
    keepalives: DueQueue,
    /// Where messages go that nobody gets, or that are copied first.
    pub(super) scratch: Vec<u8>,
    /// Has the messages that are being served, in the buffers they came in.
    pub(super) messages: Lender,
    /// Has those whose buffers are too big to be kept for them.
    pub(super) texts: TextPool,
}

impl ExchangeRef {
    /// As the session store names it.
    pub(super) const fn carrier(self) -> Carrier {
        Carrier((self.wire.0 as u64) << 32 | self.id.0 as u64)
    }

    pub(super) const fn of_carrier(Carrier(number): Carrier) -> Self {
        Self {
            wire: WireId((number >> 32) as u32),
            id: ExchangeId(number as u32),
        }
    }
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
            server,
            rules: config.rules,
            listeners: BTreeSet::new(),
            connections: IdMap::new(),
            connections_peak: 0,
            exchanges: BTreeMap::new(),
            routes: IdMap::new(),
            peers: IdMap::new(),
            stateless: BTreeMap::new(),
            dirty: Vec::new(),
            work: VecDeque::new(),
            timers: BTreeSet::new(),
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
        self.server = server;
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
        for (wire, connection) in self.connections.iter_mut() {
            connection.http.close_after();
            self.dirty.push(*wire);
        }
    }

    /// Whether everything is answered and has left.
    pub(in crate::hub) fn is_quiet(&mut self) -> bool {
        self.exchanges.values().all(|open| open.open.is_empty())
            && self
                .connections
                .values_mut()
                .all(|connection| connection.http.outgoing().is_empty())
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
        let http = HttpConnection::new(wire, &self.limits, now);
        let surplus = self.connections.len() >= self.limits.connections_max;
        let connection = Connection {
            http,
            armed: None,
            surplus,
            settling: Vec::new(),
            known: None,
        };
        self.connections.insert(wire, Box::new(connection));
        self.connections_peak = self.connections_peak.max(self.connections.len());
        self.touch(wire);
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
            connections_peak: self.connections_peak,
            pipelined: open.into_values().max().unwrap_or(0),
            sessions: self.sessions.len(),
            sessions_peak: sessions.peak,
            streams: sessions.streams,
            replay_events: sessions.events,
            replay_bytes: sessions.bytes,
            replay_total_bytes: sessions.total_bytes,
        }
    }

    pub(in crate::hub) fn peers(&self) -> impl Iterator<Item = &ServerPeer> {
        self.peers.values().filter_map(|http| http.peer.as_deref())
    }

    /// Whether nothing follows from it that an answer has left: so it is between two requests.
    pub(in crate::hub) fn is_drained_unmoved(&mut self, now: Now, wire: WireId) -> bool {
        self.connections.get_mut(&wire).is_some_and(|connection| {
            connection.settling.is_empty() && connection.http.is_drained_unmoved(now)
        })
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
        while let Some((at, wire)) = self.timers.first().copied().filter(|(at, _)| *at <= now.up) {
            self.timers.remove(&(at, wire));
            if let Some(connection) = self.connections.get_mut(&wire) {
                connection.armed = None;
                // The buffers that a head could repeat may be given up now; it is found out again.
                connection.known = None;
                connection.http.handle_timeout(now);
                self.drain(now, wire);
            }
        }
        while let Some(exchange) = self.starts.pop(now) {
            self.start_if_waiting(now, exchange);
        }
        while let Some(exchange) = self.keepalives.pop(now) {
            let alive = self.exchanges.get(&exchange).is_some_and(Exchange::streams);
            if let (true, Some(connection)) = (alive, self.connections.get_mut(&exchange.wire)) {
                connection.http.sse_comment(now, exchange.id, b"keep-alive");
                self.keep_alive(now, exchange);
                self.touch(exchange.wire);
            }
        }
        for ended in self.sessions.expire(now) {
            self.end_peer(now, ended);
        }
    }

    pub(in crate::hub) fn next_deadline(&self) -> Option<Deadline> {
        let timer = self
            .timers
            .first()
            .map(|(at, _)| Deadline::new(*at, "connection"));
        let start = self
            .starts
            .next()
            .map(|at| Deadline::new(at, "stream start"));
        let alive = self
            .keepalives
            .next()
            .map(|at| Deadline::new(at, "stream keep-alive"));
        [timer, start, alive, self.sessions.next_deadline()]
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
        while let Some(wire) = self.dirty.pop() {
            let Some(connection) = self.connections.get_mut(&wire) else {
                continue;
            };
            while let Some(request) = connection.http.poll_io() {
                io.push_back(request);
            }
            let deadline = connection.http.next_deadline().map(|deadline| deadline.at);
            // A later deadline needs no new entry: the earlier one finds it when it fires.
            if let Some(at) = deadline.filter(|at| connection.armed.is_none_or(|armed| *at < armed))
            {
                if let Some(armed) = connection.armed.replace(at) {
                    self.timers.remove(&(armed, wire));
                }
                self.timers.insert((at, wire));
            }
        }
    }

    pub(super) fn touch(&mut self, wire: WireId) {
        // What happens in one turn happens to one connection, as a rule.
        if self.dirty.last() != Some(&wire) {
            self.dirty.push(wire);
        }
    }

    /// Speaks to a peer; `reply` is the exchange whose message it is answering.
    pub(in crate::hub) fn with_peer<R>(
        &mut self,
        now: Now,
        id: PeerId,
        reply: Option<ExchangeRef>,
        speak: impl FnOnce(&mut ServerPeer, &mut dyn MessageSink) -> R,
    ) -> Option<R> {
        let http = self.peers.get_mut(&id)?;
        let kind = http.kind;
        let mut peer = http.peer.take()?;
        let mut sink = HttpSink::new(self, now, id, kind, reply);
        let spoken = speak(&mut peer, &mut sink);
        if let Some(http) = self.peers.get_mut(&id) {
            http.peer = Some(peer);
        }
        Some(spoken)
    }

    pub(in crate::hub) fn peer_mut(&mut self, id: PeerId) -> Option<&mut ServerPeer> {
        self.peers.get_mut(&id)?.peer.as_deref_mut()
    }

    pub(in crate::hub) fn peer(&self, id: PeerId) -> Option<&ServerPeer> {
        self.peers.get(&id)?.peer.as_deref()
    }

    /// Whose requests a peer serves, if it speaks HTTP.
    pub(in crate::hub) fn principal_of(&self, id: PeerId) -> Option<Principal> {
        self.peers.get(&id).map(|http| http.principal)
    }

    /// Whether so much waits for the client of a request that nothing is added that it did not ask for.
    pub(in crate::hub) fn is_backed_up(&self, peer: PeerId, key: RequestKey) -> bool {
        let exchange = self.routes.get(&(peer, key));
        let connection = exchange.and_then(|exchange| self.connections.get(&exchange.wire));
        connection.is_some_and(|connection| connection.http.backlog() > self.limits.out_high_bytes)
    }

    /// The same of what belongs to no request: the session's own stream.
    pub(in crate::hub) fn is_session_backed_up(&self, peer: PeerId) -> bool {
        let kind = self.peers.get(&peer).map(|http| http.kind);
        let exchange = match kind {
            Some(PeerKind::Legacy(exchange)) => Some(exchange),
            Some(PeerKind::Session) => self
                .sessions
                .carrier(peer, StreamId::STANDALONE)
                .map(ExchangeRef::of_carrier),
            Some(PeerKind::Stateless) | None => None,
        };
        let connection = exchange.and_then(|exchange| self.connections.get(&exchange.wire));
        connection.is_some_and(|connection| connection.http.backlog() > self.limits.out_high_bytes)
    }

    /// The peers that hear notifications of a session.
    pub(in crate::hub) fn session_ids(&self) -> Vec<PeerId> {
        let sessions = self
            .peers
            .iter()
            .filter(|(_, http)| http.kind != PeerKind::Stateless);
        in_order(sessions.map(|(id, _)| *id))
    }

    /// Whether a client has a stream for what concerns none of its requests; one on a line always has.
    pub(in crate::hub) fn hears_session(&self, id: PeerId) -> bool {
        match self.peers.get(&id).map(|http| http.kind) {
            Some(PeerKind::Session) => self.sessions.carrier(id, StreamId::STANDALONE).is_some(),
            Some(PeerKind::Stateless) => false,
            Some(PeerKind::Legacy(_)) | None => true,
        }
    }

    /// All peers.
    pub(in crate::hub) fn peer_ids(&self) -> Vec<PeerId> {
        in_order(self.peers.keys().copied())
    }

    /// Streams begin late: only a request that is still unanswered after a while gets one by itself.
    pub(super) fn wait_for_start(&mut self, now: Now, exchange: ExchangeRef) {
        let at = now.after(self.limits.stream_start_interval);
        self.unanswered.push((at, exchange));
    }

    /// The turn is over: what has its answer by now, as most have, waits for nothing.
    fn queue_starts(&mut self) {
        let Self {
            unanswered,
            starts,
            exchanges,
            ..
        } = self;
        let waits = |of| exchanges.get(&of).is_some_and(Exchange::may_start);
        for (at, exchange) in unanswered.drain(..) {
            if waits(exchange) {
                starts.push(at, exchange, exchanges.len(), waits);
            }
        }
    }

    fn start_if_waiting(&mut self, now: Now, exchange: ExchangeRef) {
        if self
            .exchanges
            .get(&exchange)
            .is_some_and(Exchange::may_start)
        {
            self.start_stream(now, exchange);
        }
    }

    /// Begins the stream of an exchange, with a first event to resume after where its session can resume.
    pub(super) fn start_stream(&mut self, now: Now, exchange: ExchangeRef) {
        let Some(open) = self.exchanges.get_mut(&exchange) else {
            return;
        };
        if open.sse {
            return;
        }
        open.sse = true;
        // A full session streams all the same, only not for a second try.
        let stream = open
            .peer
            .and_then(|peer| self.sessions.new_stream(peer, exchange.carrier()).ok());
        open.stream = stream;
        let Some(connection) = self.connections.get_mut(&exchange.wire) else {
            return;
        };
        match &open.announces {
            Some(id) => {
                connection
                    .http
                    .start_sse(now, exchange.id, &[("Mcp-Session-Id", id.as_str())])
            }
            None => connection.http.start_sse(now, exchange.id, &[]),
        }
        if let Some(stream) = stream {
            let retry = self.limits.sse_retry_interval.as_millis();
            let id = EventId { stream, n: 0 };
            let priming = format!("id: {id}\nretry: {retry}\ndata: \n\n");
            connection
                .http
                .sse_raw(now, exchange.id, priming.as_bytes());
        }
        self.keep_alive(now, exchange);
        self.touch(exchange.wire);
    }

    pub(super) fn keep_alive(&mut self, now: Now, exchange: ExchangeRef) {
        let next = now.after(self.limits.sse_keepalive_interval);
        let Self {
            keepalives,
            exchanges,
            ..
        } = self;
        let streams = |of| exchanges.get(&of).is_some_and(Exchange::streams);
        keepalives.push(next, exchange, exchanges.len(), streams);
    }

    /// Everything that a connection has to say.
    fn drain(&mut self, now: Now, wire: WireId) {
        self.touch(wire);
        while let Some(event) = self
            .connections
            .get_mut(&wire)
            .and_then(|c| c.http.poll_event())
        {
            match event {
                HttpEvent::Head { exchange, head } => {
                    self.handle_head(now, ExchangeRef { wire, id: exchange }, head);
                }
                HttpEvent::Body { exchange, body } => {
                    let exchange = ExchangeRef { wire, id: exchange };
                    self.work.push_back(Work::Message { exchange, body });
                }
                HttpEvent::Gone { exchange } => {
                    self.handle_gone(now, ExchangeRef { wire, id: exchange })
                }
                HttpEvent::Closed => {
                    let last = ExchangeRef {
                        wire: wire.next(),
                        id: ExchangeId(0),
                    };
                    let first = ExchangeRef {
                        wire,
                        id: ExchangeId(0),
                    };
                    let left: Vec<_> = self
                        .exchanges
                        .range(first..last)
                        .map(|(id, _)| *id)
                        .collect();
                    left.into_iter()
                        .for_each(|exchange| self.handle_gone(now, exchange));
                    self.settle(now, wire, Parting::Lost);
                    if let Some(mut over) = self.connections.remove(&wire) {
                        if let Some(at) = over.armed {
                            self.timers.remove(&(at, wire));
                        }
                        self.closing(&mut over.http);
                    }
                }
            }
        }
    }

    /// The answered streams of a connection have left it, or went down with it.
    fn settle(&mut self, now: Now, wire: WireId, parting: Parting) {
        if let Some(connection) = self.connections.get_mut(&wire) {
            for (peer, stream, carrier) in connection.settling.drain(..) {
                self.sessions.detach(now, peer, stream, carrier, parting);
            }
        }
    }

    /// What a connection that is no more still wants of the loop.
    fn closing(&mut self, http: &mut HttpConnection) {
        while let Some(request) = http.poll_io() {
            self.work.push_back(Work::Io(request));
        }
    }

    fn handle_head(&mut self, now: Now, exchange: ExchangeRef, head: HttpHead) {
        let connection = self.connections.get(&exchange.wire);
        if connection.is_some_and(|connection| connection.surplus) {
            let limit = self.limits.connections_max;
            let text =
                format!("busy: {limit} connections are open, limit {limit} (connections_max)");
            let refusal = HttpRefusal::new(503, &text).with("Retry-After", "1");
            self.refuse(now, exchange, &refusal);
            if let Some(connection) = self.connections.get_mut(&exchange.wire) {
                connection.http.close_after();
            }
            return;
        }
        if let Some(known) = self.known(exchange.wire, &head) {
            let mut open = Exchange::new(Purpose::Post, known.principal, known.accepts);
            open.head = Some(head);
            return self.expect_body(now, exchange, open);
        }
        let principal = match check_access(&head, &self.rules) {
            Ok(principal) => principal,
            Err(refusal) => return self.refuse(now, exchange, &refusal),
        };
        let path = head.target().split('?').next().unwrap_or("");
        if (path, head.method()) == ("/mcp", "POST") {
            let outcome = self.expect_post(now, exchange, head, principal);
            return outcome.unwrap_or_else(|refusal| self.refuse(now, exchange, &refusal));
        }
        let path = path.to_owned();
        let outcome = match (path.as_str(), head.method()) {
            ("/mcp", "GET") => self.open_stream(now, exchange, &head, principal),
            ("/mcp", "DELETE") => self.delete_session(now, exchange, &head, principal),
            ("/sse", "GET") => {
                self.work.push_back(Work::OpenLegacy {
                    exchange,
                    principal,
                });
                Ok(())
            }
            ("/messages", "POST") => self.expect_legacy_post(now, exchange, head, principal),
            ("/mcp", _) => Err(refusals::method_not_allowed("GET, POST, DELETE")),
            ("/sse", _) => Err(refusals::method_not_allowed("GET")),
            ("/messages", _) => Err(refusals::method_not_allowed("POST")),
            _ => Err(refusals::not_found(&path)),
        };
        if let Err(refusal) = outcome {
            self.refuse(now, exchange, &refusal);
        }
    }

    /// What the connection knows of this head.
    pub(super) fn known(&self, wire: WireId, head: &HttpHead) -> Option<KnownHead> {
        let known = self.connections.get(&wire)?.known.as_deref()?;
        (known.serial == head.serial()).then_some(*known)
    }

    /// The head that is known so names this session.
    pub(super) fn remember_session(
        &mut self,
        wire: WireId,
        known: Option<KnownHead>,
        session: Option<SessionPlace>,
    ) {
        let of_wire = self.connections.get_mut(&wire);
        let of_wire = of_wire.and_then(|connection| connection.known.as_deref_mut());
        if let (Some(of_wire), Some(known)) = (of_wire, known) {
            if of_wire.serial == known.serial {
                of_wire.session = session;
            }
        }
    }

    fn expect_post(
        &mut self,
        now: Now,
        exchange: ExchangeRef,
        head: HttpHead,
        principal: Principal,
    ) -> Result<(), HttpRefusal> {
        let accepts = check_post(&head)?;
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            let known = KnownHead {
                serial: head.serial(),
                principal,
                accepts,
                version: VersionHeader::of(&head).without_text(),
                session: None,
            };
            match &mut connection.known {
                Some(place) => **place = known,
                None => connection.known = Some(Box::new(known)),
            }
        }
        let mut open = Exchange::new(Purpose::Post, principal, accepts);
        open.head = Some(head);
        self.expect_body(now, exchange, open);
        Ok(())
    }

    pub(super) fn expect_body(&mut self, now: Now, exchange: ExchangeRef, open: Exchange) {
        self.exchanges.insert(exchange, open);
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            connection.http.accept(now, exchange.id);
        }
    }

    pub(super) fn refuse(&mut self, now: Now, exchange: ExchangeRef, refusal: &HttpRefusal) {
        let headers: Vec<(&str, &str)> = refusal
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            let body = refusal.body.as_bytes();
            connection
                .http
                .respond(now, exchange.id, refusal.status, &headers, body);
        }
        self.forget(now, exchange);
        self.touch(exchange.wire);
    }

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
}

/// The oldest one first.
fn in_order(peers: impl Iterator<Item = PeerId>) -> Vec<PeerId> {
    let mut peers: Vec<PeerId> = peers.collect();
    peers.sort_unstable();
    peers
}

impl Exchange {
    pub(super) fn new(purpose: Purpose, principal: Principal, accepts: Accepts) -> Self {
        Self {
            purpose,
            head: None,
            message: None,
            principal,
            accepts,
            peer: None,
            open: Awaited::default(),
            stream: None,
            sse: false,
            gone: false,
            announces: None,
        }
    }

    /// Whether its answer may still become a stream by itself.
    fn may_start(&self) -> bool {
        let may = !self.sse && !self.gone && !self.open.is_empty() && self.accepts.sse;
        // The head of a handshake names a session, which there may not be in the end.
        may && self.announces.is_none()
    }

    /// Whether someone listens to its stream.
    const fn streams(&self) -> bool {
        self.sse && !self.gone
    }
}
