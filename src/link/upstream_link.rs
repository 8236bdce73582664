//! A link to an upstream server, whatever it is made of: one face for all of them.

use crate::clock::{Deadline, Now};
use crate::codec::outbuf::OutBuf;
use crate::ids::{UpstreamRequestId, WireId, WireMint};
use crate::link::http_client::HttpLink;
use crate::link::sse_client::SseLink;
use crate::link::stdio_child::StdioChild;
use crate::link::unix_link::UnixLink;
use crate::link::upstream::UpstreamEvent;
use crate::link::websocket::Full;
use crate::link::{IoEvent, IoRequest};
use crate::protocol::client::{Carrier, Outgoing};

/// One link.
///
/// `start` once, first. Then every input is followed by [`poll_event`](Self::poll_event) and
/// [`poll_io`](Self::poll_io) until they say `None`.
#[derive(Debug)]
pub enum UpstreamLink {
    /// A program.
    Child(StdioChild),
    /// The Unix socket of one.
    Unix(UnixLink),
    /// Streamable HTTP.
    Http(HttpLink),
    /// The pair of 2024-11-05.
    Sse(SseLink),
}

// Each arm is the same call; only the type behind it differs.
macro_rules! each {
    ($self:expr, $link:ident => $call:expr) => {
        match $self {
            UpstreamLink::Child($link) => $call,
            UpstreamLink::Unix($link) => $call,
            UpstreamLink::Http($link) => $call,
            UpstreamLink::Sse($link) => $call,
        }
    };
}

impl UpstreamLink {
    /// What it carries messages by.
    #[must_use]
    pub const fn carrier(&self) -> Carrier {
        match self {
            Self::Child(_) | Self::Unix(_) => Carrier::Lines,
            Self::Http(_) => Carrier::Http,
            Self::Sse(_) => Carrier::Sse,
        }
    }

    /// Whether there is a process behind it that is ours to end.
    #[must_use]
    pub const fn is_process(&self) -> bool {
        matches!(self, Self::Child(_))
    }

    /// Begins to open it.
    pub fn start(&mut self, now: Now, wires: &mut WireMint) {
        each!(self, link => link.start(now, wires));
    }

    /// Something happened on one of its wires.
    pub fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>, wires: &mut WireMint) {
        each!(self, link => link.handle_io(now, wire, event, wires));
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Now, wires: &mut WireMint) {
        match self {
            Self::Child(link) => link.handle_timeout(now, wires),
            Self::Http(link) => link.handle_timeout(now, wires),
            Self::Sse(link) => link.handle_timeout(now, wires),
            Self::Unix(_) => {}
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        match self {
            Self::Child(link) => link.next_deadline(),
            Self::Http(link) => link.next_deadline(),
            Self::Sse(link) => link.next_deadline(),
            Self::Unix(_) => None,
        }
    }

    /// Queues a message.
    ///
    /// # Errors
    /// When the server does not read what is queued already; nothing was added.
    pub fn send(&mut self, now: Now, message: &Outgoing, wires: &mut WireMint) -> Result<(), Full> {
        each!(self, link => link.send(now, message, wires))
    }

    /// Nobody waits for this request any more.
    pub fn forget(&mut self, now: Now, id: UpstreamRequestId, wires: &mut WireMint) {
        match self {
            Self::Http(link) => link.forget(now, id, wires),
            Self::Sse(link) => link.forget(now, id, wires),
            Self::Child(_) | Self::Unix(_) => {}
        }
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<UpstreamEvent> {
        each!(self, link => link.poll_event())
    }

    /// The next thing for the loop to do.
    pub fn poll_io(&mut self) -> Option<IoRequest> {
        each!(self, link => link.poll_io())
    }

    /// Bytes that wait to leave on a wire; `None` for a wire of another link.
    pub fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        each!(self, link => link.outgoing(wire))
    }

    /// Begins its orderly end, which is bounded.
    pub fn close(&mut self, now: Now, wires: &mut WireMint) {
        each!(self, link => link.close(now, wires));
    }

    /// The end of what a program has written to its stderr, escaped.
    #[must_use]
    pub fn stderr_tail(&self) -> &str {
        match self {
            Self::Child(link) => link.stderr_tail(),
            Self::Unix(_) | Self::Http(_) | Self::Sse(_) => "",
        }
    }
}
