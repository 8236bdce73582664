//! Unix sockets: who connects speaks lines as on our own stdin and stdout, and has a peer of its own.
//!
//! | state     | input                              | next      | output                                |
//! |-----------|------------------------------------|-----------|---------------------------------------|
//! | Listening | a connection, room for a client    | Listening | a line client on a new wire           |
//! | Listening | a connection, no room              | Listening | one error line, then the wire is done |
//! | Listening | cannot be bound, or broke          | gone      | [`HubEvent::ListenFailed`]            |
//! | Listening | the hub ends                       | gone      | the listener is closed                |
//!
//! The bridge behind the clients is one: they share its queue of events and its approvals. Who may connect
//! is checked below, see [`OpenSpec::ListenUnix`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use super::{Hub, HubEvent, Owner};
use crate::clock::Now;
use crate::codec::jsonrpc::write_error;
use crate::codec::outbuf::OutBuf;
use crate::codec::shared_text::SharedText;
use crate::ids::WireId;
use crate::link::stdio_host::StdioHost;
use crate::link::{IoFault, IoRequest, OpenSpec};
use crate::protocol::error::ErrorCode;

/// See the module page.
#[derive(Debug, Default)]
pub(super) struct SocketDoor {
    listeners: BTreeSet<WireId>,
    /// Clients that came in here and are not let go of.
    clients: usize,
    clients_peak: usize,
    /// What is left to say to those who did not come in, until the loop has taken it over.
    turned_away: BTreeMap<WireId, OutBuf>,
}

impl SocketDoor {
    pub(super) fn is_listener(&self, wire: WireId) -> bool {
        self.listeners.contains(&wire)
    }

    pub(super) fn is_listening(&self) -> bool {
        !self.listeners.is_empty()
    }

    pub(super) const fn clients(&self) -> usize {
        self.clients
    }

    /// The most clients there were at once.
    pub(super) const fn clients_peak(&self) -> usize {
        self.clients_peak
    }

    pub(super) fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        self.turned_away.get_mut(&wire)
    }

    /// The loop has done everything that was asked of it.
    pub(super) fn requests_are_done(&mut self) {
        self.turned_away.clear();
    }

    /// A client that came in here was let go of.
    pub(super) const fn client_left(&mut self) {
        self.clients = self.clients.saturating_sub(1);
    }

    /// Nobody comes in any more.
    pub(super) fn begin_end(&mut self, io: &mut VecDeque<IoRequest>) {
        let listeners = std::mem::take(&mut self.listeners);
        io.extend(listeners.into_iter().map(IoRequest::Close));
    }
}

impl Hub {
    /// Serves line clients on a Unix socket, at most `socket_clients_max` of them at once. The hub goes on
    /// when they are gone, until [`Hub::shutdown`].
    pub fn listen_unix(&mut self, path: PathBuf) -> WireId {
        let wire = self.mint_wire();
        self.wires.insert(wire, Owner::Listener);
        self.sockets.listeners.insert(wire);
        let spec = OpenSpec::ListenUnix { path };
        self.io.push_back(IoRequest::Open(wire, spec));
        wire
    }

    /// Someone connected to a socket. Past the limit it is told so and let go.
    pub(super) fn accept_socket(&mut self, now: Now, peer: &str) -> WireId {
        let wire = self.mint_wire();
        let limit = self.limits.socket_clients_max;
        if self.sockets.clients < limit {
            self.sockets.clients += 1;
            self.sockets.clients_peak = self.sockets.clients_peak.max(self.sockets.clients);
            let link = StdioHost::adopted(wire, &self.limits);
            self.add_line_client(link, true, principal_of(peer));
            self.settle(now);
            return wire;
        }
        let mut out = OutBuf::default();
        let text =
            format!("busy: {limit} clients are connected, limit {limit} (socket_clients_max)");
        let code = ErrorCode::InternalError.number();
        write_error(out.tail(), None, code, &text, None);
        out.tail().push(b'\n');
        self.sockets.turned_away.insert(wire, out);
        self.io.push_back(IoRequest::Finish(wire));
        wire
    }

    /// An address cannot be listened on, or not any more.
    pub(super) fn listen_failed(&mut self, wire: WireId, fault: IoFault) {
        self.sockets.listeners.remove(&wire);
        self.http.drop_listener(wire);
        self.wires.remove(&wire);
        let message = fault.message;
        self.events.push_back(HubEvent::ListenFailed { message });
    }

    /// Whether clients may still come in.
    pub(super) fn is_listening(&self) -> bool {
        self.http.is_listening() || self.sockets.is_listening()
    }
}

/// `unix:UID`, of what the loop says of who connected: `unix:uid=UID,pid=PID`. Without a user `unix`: then the
/// mode of the file is what kept strangers out.
fn principal_of(peer: &str) -> SharedText {
    let rest = peer.strip_prefix("unix:uid=");
    let uid = rest.and_then(|rest| rest.split(',').next());
    match uid {
        Some(uid) => format!("unix:{uid}").into(),
        None => SharedText::fixed("unix"),
    }
}

#[cfg(test)]
mod tests;
