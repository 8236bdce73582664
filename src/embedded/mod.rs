//! The embedded Gateway: the Gateway protocol without an OpenClaw, for newcomers, demos and tests.
//!
//! It speaks the server side of the protocol for the methods and events the bridge uses, keeps
//! conversations and approvals in a journal that survives any way to die, and has no agent: what is
//! said is what clients and [`EmbeddedGateway::post_message`] say.
//!
//! ```text
//! journal bytes ──▶ open ──▶ store ◀── records ── methods ◀── connections ◀── wires
//!                             │ every record, before any reply leaves
//!                             ▼
//!                      IoRequest::Append
//! ```
//!
//! The program gives it the bytes of the journal at the start and appends what it asks for; that
//! file is as secret as OpenClaw's state directory (it holds device tokens). A journal that cannot
//! be written makes the Gateway read-only and cuts its clients, so that nothing is acknowledged
//! that would be lost; memory may then be ahead of the journal until the Gateway is started again.
//!
//! Source: openclaw-serve §1.
//! Never: opens a file or socket, reads a clock, draws randomness of its own.

mod approval_rpc;
mod approvals;
mod auth;
mod connect;
mod connection;
mod content;
mod events;
mod frame;
mod hello;
mod journal;
mod message_rpc;
mod params;
mod refusal;
mod rpc;
mod samples;
mod serve;
mod session_rpc;
mod spread;
mod store;
mod views;

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

pub use approval_rpc::Question;
pub use auth::Credentials;
pub use events::EmbeddedEvent;
pub use journal::{ApprovalKind, Decision, Route};
pub use message_rpc::{DEFAULT_CHANNEL, Post, Posted, Role};
pub use refusal::Refusal;
pub use store::Replay;

use crate::clock::{Deadline, Now};
use crate::codec::outbuf::OutBuf;
use crate::entropy::Entropy;
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::{Driven, IoEvent, IoFault, IoRequest, OpenSpec};
use connection::Connection;
use rpc::{Caller, Desk};
use store::Store;

/// Interval of the `tick` event. Source: OpenClaw.
pub const TICK_INTERVAL: Duration = Duration::from_secs(30);
/// Events kept for [`EmbeddedGateway::poll_event`]; the oldest goes first.
const EVENTS_KEPT_MAX: usize = 1_000;
const LISTENER: WireId = WireId(0);

/// How an embedded Gateway is to be.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// Address literal and port to listen on, port 0 for any; `None` when wires are only adopted.
    pub listen: Option<(String, u16)>,
    /// What clients must know.
    pub credentials: Credentials,
    /// Where the store is, as `sessions.list` shows it; `None` keeps everything in memory only, and
    /// then nothing is appended.
    pub store: Option<String>,
    /// Interval of the `tick` event; at most two of them may pass without anything from us before a
    /// client takes us for dead.
    pub tick_interval: Duration,
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        Self {
            listen: None,
            credentials: Credentials::default(),
            store: None,
            tick_interval: TICK_INTERVAL,
        }
    }
}

impl EmbeddedConfig {
    fn store_label(&self) -> &str {
        self.store.as_deref().unwrap_or("(memory)")
    }
}

/// Why an embedded Gateway cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The address can be reached from other machines and clients would need no credentials.
    Exposed {
        /// The address.
        host: String,
    },
    /// The journal is of another version.
    Version {
        /// The version found.
        found: u32,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exposed { host } => write!(
                f,
                "listening on {} needs a token or a password; without one use 127.0.0.1 or ::1",
                crate::secret::Quoted(host)
            ),
            Self::Version { found } => write!(
                f,
                "the store has version {found} (this program reads {})",
                journal::JOURNAL_VERSION
            ),
        }
    }
}

impl std::error::Error for OpenError {}

/// A request whose answer is somebody's decision.
#[derive(Debug)]
struct Waiting {
    wire: WireId,
    request: String,
    kind: ApprovalKind,
    id: String,
}

/// See the module. Driven as [`Driven`] says; the calls of the program itself count as inputs too.
pub struct EmbeddedGateway {
    config: EmbeddedConfig,
    limits: Limits,
    entropy: Box<dyn Entropy>,
    store: Store,
    replay: Replay,
    connections: BTreeMap<WireId, Connection>,
    last_wire: WireId,
    waiting: Vec<Waiting>,
    requests: VecDeque<IoRequest>,
    events: VecDeque<EmbeddedEvent>,
    stopped: bool,
}

impl fmt::Debug for EmbeddedGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedGateway")
            .field("config", &self.config)
            .field("store", &self.store)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

impl EmbeddedGateway {
    /// A Gateway that knows what `journal`, the whole journal file, says; empty bytes for a new
    /// one. What was damaged is in [`replay`](Self::replay).
    ///
    /// # Errors
    /// When the address would be open to other machines, or the journal is of another version.
    pub fn open(
        config: EmbeddedConfig,
        limits: &Limits,
        entropy: Box<dyn Entropy>,
        now: Now,
        journal: &[u8],
    ) -> Result<Self, OpenError> {
        let open = config.credentials.token.is_none() && config.credentials.password.is_none();
        let mut requests = VecDeque::new();
        if let Some((host, port)) = &config.listen {
            let loopback = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
            if open && !loopback {
                return Err(OpenError::Exposed { host: host.clone() });
            }
            let (host, port) = (host.clone(), *port);
            requests.push_back(IoRequest::Open(LISTENER, OpenSpec::Listen { host, port }));
        }
        let (store, replay) = Store::replay(limits, config.store.is_some(), now, journal)
            .map_err(|found| OpenError::Version { found })?;
        Ok(Self {
            config,
            limits: limits.clone(),
            entropy,
            store,
            replay,
            connections: BTreeMap::new(),
            last_wire: LISTENER,
            waiting: Vec::new(),
            requests,
            events: VecDeque::new(),
            stopped: false,
        })
    }

    /// What reading the journal found.
    #[must_use]
    pub const fn replay(&self) -> Replay {
        self.replay
    }

    /// The wire of the listener, to ask the loop which port it got.
    #[must_use]
    pub const fn listener() -> WireId {
        LISTENER
    }

    /// Posts a message, as `drawspan.post` does.
    ///
    /// # Errors
    /// What a client would be told.
    pub fn post_message(&mut self, now: Now, post: &Post) -> Result<Posted, Refusal> {
        let mut desk = self.desk(now);
        let (posted, news) = message_rpc::add_post(&mut desk, post, None, None, None)?;
        if let Some(news) = news {
            self.spread(now, &news, None);
        }
        self.settle(now);
        Ok(posted)
    }

    /// Asks people for a decision; every client that may decide approvals sees it. Gives its id.
    ///
    /// # Errors
    /// What a client would be told.
    pub fn request_approval(&mut self, now: Now, question: &Question) -> Result<String, Refusal> {
        let mut desk = self.desk(now);
        let (id, news) = approval_rpc::ask(&mut desk, question)?;
        self.spread(now, &news, None);
        self.settle(now);
        Ok(id)
    }

    /// Posts two sample conversations, unless there is a conversation already.
    ///
    /// # Errors
    /// What a client would be told.
    pub fn post_samples(&mut self, now: Now) -> Result<(), Refusal> {
        if self.store.conversation_count() > 0 {
            return Ok(());
        }
        for post in samples::posts() {
            self.post_message(now, &post)?;
        }
        Ok(())
    }

    /// The next thing to show a person.
    pub fn poll_event(&mut self) -> Option<EmbeddedEvent> {
        self.events.pop_front()
    }

    /// Stops: tells every client, closes with 1012 and accepts nobody any more.
    pub fn stop(&mut self, now: Now) {
        if std::mem::replace(&mut self.stopped, true) {
            return;
        }
        if self.config.listen.is_some() {
            self.requests.push_back(IoRequest::Close(LISTENER));
        }
        for connection in self.connections.values_mut() {
            let payload = r#"{"reason":"gateway stopping","restartExpectedMs":null}"#;
            connection.broadcast("shutdown", payload);
            connection.close(now, 1012, "service restart");
        }
        self.settle(now);
    }

    /// Whether it was stopped and every client is gone.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stopped && self.connections.is_empty()
    }

    fn desk(&mut self, now: Now) -> Desk<'_> {
        Desk {
            store: &mut self.store,
            entropy: &mut *self.entropy,
            limits: &self.limits,
            store_label: self.config.store_label(),
            now,
            caller: Caller {
                device: None,
                name: None,
                scopes: &[],
            },
            waiting: 0,
        }
    }

    fn tell(&mut self, event: EmbeddedEvent) {
        if self.events.len() >= EVENTS_KEPT_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

impl Driven for EmbeddedGateway {
    fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>) {
        if wire == LISTENER {
            if let IoEvent::Failed(fault) = event {
                let message = fault.message;
                self.tell(EmbeddedEvent::ListenFailed { message });
            }
            return;
        }
        self.lapse(now);
        if let Some(connection) = self.connections.get_mut(&wire) {
            connection.handle_io(now, event);
        }
        self.settle(now);
    }

    fn handle_accept(&mut self, now: Now, _listener: WireId, peer: &str) -> Option<WireId> {
        let (most, found) = (self.limits.embedded_clients_max, self.connections.len());
        if self.stopped || found >= most {
            let peer = peer.to_owned();
            let why = if self.stopped {
                "the gateway is stopping".to_owned()
            } else {
                format!("too many clients (embedded_clients_max {most}, found {found})")
            };
            self.tell(EmbeddedEvent::ClientRefused { peer, why });
            return None;
        }
        self.last_wire = self.last_wire.next();
        let connection = Connection::new(self.last_wire, peer, &self.limits, now);
        self.connections.insert(self.last_wire, connection);
        Some(self.last_wire)
    }

    fn handle_journal_fault(&mut self, now: Now, fault: IoFault) {
        self.store.close_for_writing(&fault.message);
        // What they were just told may not be in the journal.
        for connection in self.connections.values_mut() {
            connection.cut("the store cannot be written");
        }
        self.settle(now);
        self.tell(EmbeddedEvent::StoreFailed {
            message: fault.message,
        });
    }

    fn handle_timeout(&mut self, now: Now) {
        self.lapse(now);
        for connection in self.connections.values_mut() {
            connection.handle_timeout(now);
        }
        self.settle(now);
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        if let Some(lines) = self.store.take_unwritten() {
            return Some(IoRequest::Append(lines));
        }
        if let Some(request) = self.requests.pop_front() {
            return Some(request);
        }
        self.connections.values_mut().find_map(Connection::poll_io)
    }

    fn next_deadline(&self) -> Option<Deadline> {
        self.connections
            .values()
            .map(Connection::next_deadline)
            .fold(self.store.approvals.next_deadline(), Deadline::earlier)
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        self.connections.get_mut(&wire).map(Connection::outgoing)
    }
}
