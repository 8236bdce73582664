//! Clients on line wires: our own stdin and stdout, or sockets with the same framing.

use super::{Hub, HubEvent, Owner};
use crate::clock::{Now, Uptime};
use crate::codec::json_text::write_string;
use crate::codec::lines::LineEvent;
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::ids::PeerId;
use crate::link::IoEvent;
use crate::link::stdio_host::StdioHost;
use crate::protocol::MessageSink;
use crate::protocol::message::LogLevel;
use crate::protocol::server::{Answer, RequestKey, Scope, ServerPeer};

/// One client on a line wire.
#[derive(Debug)]
pub(super) struct LineClient {
    pub(super) link: StdioHost,
    pub(super) peer: ServerPeer,
    /// Everything is answered; what is written leaves, and then the client is let go.
    pub(super) closing: bool,
    /// The input has ended: until when answers may take to be found, then to leave.
    pub(super) leave_by: Option<Uptime>,
    /// The wire broke, where others end.
    pub(super) failed: bool,
    notifications_dropped: u64,
}

impl Hub {
    pub(super) fn add_line_client(&mut self, link: StdioHost) -> PeerId {
        let id = self.mint_peer();
        self.wires.insert(link.wire(), Owner::Lines(id));
        let peer = ServerPeer::new(self.server.clone());
        let client = LineClient {
            link,
            peer,
            closing: false,
            leave_by: None,
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
        id: PeerId,
        speak: impl FnOnce(&mut ServerPeer, &mut dyn MessageSink) -> R,
    ) -> Option<R> {
        let LineClient { link, peer, .. } = self.lines.get_mut(&id)?;
        self.dirty.push(id);
        Some(speak(peer, link.sink()))
    }

    pub(super) fn respond(&mut self, peer: PeerId, key: RequestKey, answer: Answer<'_>) {
        self.with_peer(peer, |peer, sink| peer.respond(key, answer, sink));
    }

    /// Tells every client that may know. A client that does not read is left out.
    pub(super) fn notify_all(&mut self, method: &'static str, params: &str) {
        for (id, client) in &mut self.lines {
            let LineClient { link, peer, .. } = client;
            if link.is_backed_up() {
                client.notifications_dropped += 1;
            } else if !client.closing {
                peer.notify(method, params.to_owned(), link.sink());
                self.dirty.push(*id);
            }
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
                self.leaving.insert(id);
                let message = fault.message;
                self.diagnose(Diagnostic::new(Level::Error, Subject::Downstream, message));
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
            self.route_events(now, id);
            // After the last line the turn settles anyway.
            if !bytes.is_empty() {
                self.settle(now);
            }
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
