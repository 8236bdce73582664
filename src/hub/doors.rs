//! Clients on line wires: our own stdin and stdout, or sockets with the same framing.

use std::collections::BTreeMap;

use super::http::{ExchangeRef, HttpFront, Served, Work};
use super::{Hub, HubEvent, Owner};
use crate::clock::{Now, Uptime};
use crate::codec::json_text::write_string;
use crate::codec::lines::LineEvent;
use crate::codec::scan::{ScanError, ScanLimits, Scanned, scan_text};
use crate::codec::shared_text::SharedText;
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::ids::{CallId, PeerId, WireId};
use crate::link::http_rules::Principal;
use crate::link::stdio_host::StdioHost;
use crate::link::{IoEvent, IoRequest};
use crate::protocol::MessageSink;
use crate::protocol::message::LogLevel;
use crate::protocol::server::{Answer, RequestKey, Scope, ServerEvent, ServerPeer};

/// One client on a line wire.
#[derive(Debug)]
pub(super) struct LineClient {
    pub(super) link: StdioHost,
    pub(super) peer: ServerPeer,
    /// It connected to a socket of ours: others may come when it has gone.
    pub(super) accepted: bool,
    /// Who it is, for the gate: see [`crate::gate::ToolCall::principal`].
    pub(super) principal: SharedText,
    /// Everything is answered; what is written leaves, and then the client is let go.
    pub(super) closing: bool,
    /// The input has ended: until when answers may take to be found, then to leave.
    pub(super) leave_by: Option<Uptime>,
    /// What waited for it when `leave_by` was last due.
    pub(super) unread: Option<usize>,
    /// The wire broke where others end, or answers were lost.
    pub(super) failed: bool,
    notifications_dropped: u64,
}

impl LineClient {
    /// How bad it is that its wire broke, or that it reads nothing: of one among many that is its own
    /// affair.
    pub(super) const fn loss_level(&self) -> Level {
        if self.accepted {
            Level::Info
        } else {
            Level::Error
        }
    }
}

/// All clients, for whoever speaks to one with the rest of the hub in hand.
pub(super) struct Clients<'a> {
    pub(super) lines: &'a mut BTreeMap<PeerId, LineClient>,
    pub(super) http: &'a mut HttpFront,
    pub(super) dirty: &'a mut Vec<PeerId>,
}

impl Clients<'_> {
    /// See [`Hub::with_peer`].
    pub(super) fn speak<R>(
        self,
        now: Now,
        id: PeerId,
        speak: impl FnOnce(&mut ServerPeer, &mut dyn MessageSink) -> R,
    ) -> Option<R> {
        if let Some(LineClient { link, peer, .. }) = self.lines.get_mut(&id) {
            self.dirty.push(id);
            return Some(speak(peer, link.sink()));
        }
        self.http.with_peer(now, id, None, speak)
    }
}

impl Hub {
    pub(super) fn add_line_client(
        &mut self,
        link: StdioHost,
        accepted: bool,
        principal: SharedText,
    ) -> PeerId {
        let id = self.mint_peer();
        self.wires.insert(link.wire(), Owner::Lines(id));
        let peer = ServerPeer::new(self.server.clone());
        let client = LineClient {
            link,
            peer,
            accepted,
            principal,
            closing: false,
            leave_by: None,
            unread: None,
            failed: false,
            notifications_dropped: 0,
        };
        self.lines.insert(id, client);
        self.dirty.push(id);
        id
    }

    /// Speaks to one client: its peer, and where its messages go.
    pub(super) fn with_peer<R>(
        &mut self,
        now: Now,
        id: PeerId,
        speak: impl FnOnce(&mut ServerPeer, &mut dyn MessageSink) -> R,
    ) -> Option<R> {
        let clients = Clients {
            lines: &mut self.lines,
            http: &mut self.http,
            dirty: &mut self.dirty,
        };
        clients.speak(now, id, speak)
    }

    /// What is known of one client.
    pub(super) fn peer(&self, id: PeerId) -> Option<&ServerPeer> {
        let of_lines = self.lines.get(&id).map(|client| &client.peer);
        of_lines.or_else(|| self.http.peer(id))
    }

    /// Who a client is, as far as that is known for sure, for the gate.
    pub(super) fn principal(&self, id: PeerId) -> SharedText {
        match (self.lines.get(&id), self.http.principal_of(id)) {
            (Some(client), _) => client.principal.clone(),
            (None, None | Some(Principal::ANYBODY)) => SharedText::fixed("http"),
            (None, Some(_)) => SharedText::fixed("bearer"),
        }
    }

    /// Speaks to the client of a call about its request.
    pub(super) fn of_call(
        &mut self,
        now: Now,
        call: CallId,
        speak: impl FnOnce(&mut ServerPeer, RequestKey, &mut dyn MessageSink),
    ) {
        if let Some(entry) = self.ledger.entry(call) {
            self.with_peer(now, entry.peer, |peer, sink| speak(peer, entry.key, sink));
        }
    }

    /// Every client there is.
    pub(super) fn all_peers(&self) -> Vec<PeerId> {
        self.lines
            .keys()
            .copied()
            .chain(self.http.peer_ids())
            .collect()
    }

    pub(super) fn respond(&mut self, now: Now, peer: PeerId, key: RequestKey, answer: Answer<'_>) {
        self.with_peer(now, peer, |peer, sink| peer.respond(key, answer, sink));
    }

    /// Whether a client does not read, so that a notification is left out.
    /// `key` is the request that it is of, if it is of one.
    pub(super) fn leaves_out(&mut self, peer: PeerId, key: Option<RequestKey>) -> bool {
        let Some(client) = self.lines.get_mut(&peer) else {
            return match key {
                Some(key) => self.http.is_backed_up(peer, key),
                None => self.http.is_session_backed_up(peer),
            };
        };
        let backed_up = client.link.is_backed_up();
        client.notifications_dropped += u64::from(backed_up);
        backed_up
    }

    /// Tells every client that may know. A client that does not read is left out.
    pub(super) fn notify_all(&mut self, now: Now, method: &'static str, params: &str) {
        for (id, client) in &mut self.lines {
            let LineClient { link, peer, .. } = client;
            if link.is_backed_up() {
                client.notifications_dropped += 1;
            } else if !client.closing {
                peer.notify(method, params.to_owned(), link.sink());
                self.dirty.push(*id);
            }
        }
        for id in self.http.session_ids() {
            self.http.with_peer(now, id, None, |peer, sink| {
                peer.notify(method, params.to_owned(), sink)
            });
        }
    }

    /// Tells the person who runs us, and clients that asked for log messages.
    pub(super) fn diagnose(&mut self, diagnostic: Diagnostic) {
        let level = match diagnostic.level {
            Level::Info => LogLevel::Info,
            Level::Warning => LogLevel::Warning,
            Level::Error => LogLevel::Error,
        };
        let mut data = String::new();
        write_string(&mut data, &diagnostic.message);
        for (id, LineClient { link, peer, .. }) in &mut self.lines {
            if !link.is_backed_up() {
                peer.log(level, "drawspan", &data, link.sink());
                self.dirty.push(*id);
            }
        }
        self.events.push_back(HubEvent::Diagnostic(diagnostic));
    }

    /// Whether it makes no difference to a client that all was written: it reads, and is not about to be let go.
    pub(super) fn is_unmoved_by_drain(&self, id: PeerId) -> bool {
        let reads = |client: &LineClient| !client.closing && !client.link.is_paused();
        !self.leaving.contains(&id) && self.lines.get(&id).is_some_and(reads)
    }

    pub(super) fn handle_lines(&mut self, now: Now, id: PeerId, event: IoEvent<'_>) {
        let Some(client) = self.lines.get_mut(&id) else {
            return;
        };
        self.dirty.push(id);
        let LineClient { link, peer, .. } = client;
        match event {
            IoEvent::Bytes(bytes) => self.read_lines(now, id, bytes),
            IoEvent::Eof => {
                link.handle_eof(|line, sink| read_line(peer, line, sink));
                client.leave_by = Some(now.after(self.limits.input_ended_timeout));
                self.leaving.insert(id);
                self.route_events(now, id);
                self.client_fell_silent(now, id);
                // The client waits for what it asked, but not for events that may never come.
                for call in self.ledger.of_peer(id) {
                    self.bridge.end_wait(call);
                }
            }
            IoEvent::WriteClosed => {
                link.handle_write_closed();
                self.leaving.insert(id);
            }
            IoEvent::Failed(fault) => {
                link.handle_write_closed();
                client.failed = true;
                let level = client.loss_level();
                self.leaving.insert(id);
                let message = fault.message;
                self.diagnose(Diagnostic::new(level, Subject::Downstream, message));
            }
            IoEvent::Opened | IoEvent::Drained | IoEvent::StderrBytes(_) | IoEvent::Exited(_) => {}
        }
    }

    /// One line after the other: what can be answered at once is answered before the next request
    /// counts as open beside it. So how bytes were cut on the way does not decide who is refused as busy.
    fn read_lines(&mut self, now: Now, id: PeerId, mut bytes: &[u8]) {
        while let Some(LineClient { link, peer, .. }) = self.lines.get_mut(&id) {
            if !link.handle_line(&mut bytes, |line, sink| read_line(peer, line, sink)) {
                return;
            }
            // Settling between two lines has taken it off the list.
            self.dirty.push(id);
            self.route_events(now, id);
            // After the last line the turn settles anyway.
            if !bytes.is_empty() {
                self.settle(now);
            }
        }
    }

    /// Routes what a peer has to say that was spoken to of a request of its own.
    pub(super) fn route_events_of(&mut self, now: Now, id: PeerId) {
        match self.lines.contains_key(&id) {
            true => self.route_events(now, id),
            false => self.route_http_events(now, id, None),
        }
    }

    /// Routes what the peer of a client has to say.
    fn route_events(&mut self, now: Now, id: PeerId) {
        while let Some(event) = self
            .lines
            .get_mut(&id)
            .and_then(|client| client.peer.poll_event())
        {
            self.route_server_event(now, id, event);
        }
    }

    /// Hands over what the links of clients want from the loop.
    pub(super) fn collect_requests(&mut self) {
        self.http.collect_requests(&mut self.io);
        while let Some(id) = self.dirty.pop() {
            let Some(client) = self.lines.get_mut(&id) else {
                continue;
            };
            while let Some(request) = client.link.poll_io() {
                self.io.push_back(request);
            }
        }
    }
}

fn read_line(peer: &mut ServerPeer, line: LineEvent<'_>, sink: &mut dyn MessageSink) {
    match line {
        LineEvent::Line(bytes) => peer.handle_message(Scope::default(), bytes, sink),
        LineEvent::Oversized { head, limit } => peer.handle_oversized(head, limit, sink),
    }
}

impl Hub {
    pub(super) fn handle_http(&mut self, now: Now, wire: WireId, event: IoEvent<'_>) {
        if !self.http.is_listener(wire) {
            return self.http.handle_io(now, wire, event);
        }
        if let IoEvent::Failed(fault) = event {
            self.listen_failed(wire, fault);
        }
    }

    /// Does what the HTTP door wants done. Says whether anything moved.
    pub(super) fn step_http(&mut self, now: Now) -> bool {
        let mut moved = false;
        while let Some(work) = self.http.poll_work() {
            moved = true;
            match work {
                Work::Message { exchange, body } => self.serve_exchange(now, exchange, body),
                Work::Spoke(peer) => self.route_http_events(now, peer, None),
                Work::Ended(peer) => {
                    for call in self.ledger.of_peer(peer) {
                        self.drop_call(now, call);
                    }
                    if let Some(side) = &mut self.upstream {
                        side.close_client(now, peer);
                    }
                }
                Work::Lost(events) => self.diagnose(Diagnostic::new(
                    Level::Warning,
                    Subject::Downstream,
                    format!(
                        "a client came back for its stream, but {events} events are kept no more: \
                         sse_replay_events_max is {}, sse_replay_bytes_max {}, \
                         sse_replay_total_bytes_max {}",
                        self.limits.sse_replay_events_max,
                        self.limits.sse_replay_bytes_max,
                        self.limits.sse_replay_total_bytes_max
                    ),
                )),
                Work::OpenLegacy {
                    exchange,
                    principal,
                } => {
                    let peer = self.mint_peer();
                    let entropy = &mut *self.entropy;
                    self.http
                        .open_legacy_as(now, exchange, principal, peer, entropy);
                }
                Work::Io(request) => {
                    if let IoRequest::Close(wire) = request {
                        self.wires.remove(&wire);
                    }
                    self.io.push_back(request);
                }
            }
        }
        moved
    }

    /// One message that came over HTTP.
    fn serve_exchange(&mut self, now: Now, exchange: ExchangeRef, body: Vec<u8>) {
        match self.http.share(exchange, body) {
            Ok(message) => {
                let scanned = scan_text(&message, &ScanLimits::from(&self.limits));
                self.serve_message(now, exchange, message.as_bytes(), &scanned);
                self.http.unshare(exchange, message);
            }
            Err(no_text) => {
                let offset = no_text.utf8_error().valid_up_to();
                let body = no_text.into_bytes();
                let scanned = Err(ScanError::NotUtf8 { offset });
                self.serve_message(now, exchange, &body, &scanned);
                self.http.recycle(exchange, body);
            }
        }
    }

    fn serve_message(
        &mut self,
        now: Now,
        exchange: ExchangeRef,
        body: &[u8],
        scanned: &Result<Scanned<'_>, ScanError>,
    ) {
        let next = self.next_peer;
        let mut minted = false;
        let mint = || {
            minted = true;
            next
        };
        let (local, upstream) = (self.local.as_ref(), self.upstream.as_ref());
        let param_headers = |peer: Option<PeerId>, tool: &str| {
            let ours = local.map_or(&[][..], |local| local.headers_of(tool));
            // Before the tools of a server are known there is nothing to check by; it gets headers of our making.
            let theirs = || {
                upstream
                    .zip(peer)
                    .map(|(side, peer)| side.headers_of(peer, tool))
            };
            let headers = if ours.is_empty() { theirs() } else { None };
            headers.unwrap_or(ours)
        };
        let served = self.http.admit(
            now,
            exchange,
            scanned,
            mint,
            param_headers,
            &mut *self.entropy,
        );
        if minted {
            self.next_peer = next.next();
        }
        match served {
            Err(why) => self.http.decline(now, exchange, why),
            Ok(Served { peer, scope }) => {
                self.http
                    .with_peer(now, peer, Some(exchange), |peer, sink| {
                        peer.handle_scanned(scope, body, scanned, sink);
                    });
                self.route_http_events(now, peer, Some(exchange));
                self.http.after_message(now, exchange);
            }
        }
    }

    /// Routes what a peer has to say; new requests belong to the exchange that is being served.
    fn route_http_events(&mut self, now: Now, id: PeerId, exchange: Option<ExchangeRef>) {
        while let Some(event) = self.http.peer_mut(id).and_then(ServerPeer::poll_event) {
            match (&event, exchange) {
                (ServerEvent::Request(request), Some(exchange)) => {
                    self.http.bind(id, request.key, exchange);
                }
                (
                    ServerEvent::ListenTasks { key, .. }
                    | ServerEvent::Listens { key, .. }
                    | ServerEvent::Subscribes { key, .. }
                    | ServerEvent::Opens(key),
                    Some(exchange),
                ) => self.http.bind(id, *key, exchange),
                (ServerEvent::Cancelled(key), _) => self.http.unbind(now, id, *key),
                _ => {}
            }
            self.route_server_event(now, id, event);
        }
    }
}
