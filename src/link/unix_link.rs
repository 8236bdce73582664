//! A server behind a Unix socket on this host that speaks lines.
//!
//! | state   | input                 | next    | output                                    |
//! |---------|-----------------------|---------|-------------------------------------------|
//! | Idle    | `start`               | Opening | the request to connect                    |
//! | Opening | Opened                | Open    | Up                                        |
//! | Opening, Open | Failed          | Closed  | Closed(Io)                                |
//! | Open    | Eof                   | Closed  | Closed(OutputEnded); the wire is closed   |
//! | Open    | WriteClosed           | Closed  | the same: what was said may not have come |
//! | Opening, Open | `close`         | Closed  | Closed(Local); what waits still leaves    |
//!
//! The process behind the socket is not ours: it is not ended.

use std::collections::VecDeque;
use std::path::PathBuf;

use crate::clock::{Deadline, Now};
use crate::codec::outbuf::OutBuf;
use crate::ids::{UpstreamRequestId, WireId, WireMint};
use crate::limits::Limits;
use crate::link::line_frames::LineFrames;
use crate::link::upstream::{UpstreamClosed, UpstreamEvent};
use crate::link::websocket::Full;
use crate::link::{IoEvent, IoRequest, OpenSpec};
use crate::protocol::client::Outgoing;

/// A link to one socket.
#[derive(Debug)]
pub struct UnixLink {
    path: PathBuf,
    wire: Option<WireId>,
    state: State,
    frames: LineFrames,
    events: VecDeque<UpstreamEvent>,
    io: VecDeque<IoRequest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Opening,
    Open,
    Closed,
}

impl UnixLink {
    /// A link to the socket at `path`. One message from it has at most `message_bytes_max` bytes, and
    /// at most `out_bytes_max` wait to be written to it.
    #[must_use]
    pub const fn new(
        path: PathBuf,
        message_bytes_max: usize,
        out_bytes_max: usize,
        limits: &Limits,
    ) -> Self {
        Self {
            path,
            wire: None,
            state: State::Idle,
            frames: LineFrames::new(message_bytes_max, out_bytes_max, limits),
            events: VecDeque::new(),
            io: VecDeque::new(),
        }
    }

    /// Connects. Call it once, first.
    pub fn start(&mut self, _now: Now, wires: &mut WireMint) {
        if self.state != State::Idle {
            return;
        }
        let wire = wires.mint();
        self.wire = Some(wire);
        self.state = State::Opening;
        let path = self.path.clone();
        self.io
            .push_back(IoRequest::Open(wire, OpenSpec::Unix { path }));
    }

    /// Something happened on a wire of this link.
    pub fn handle_io(
        &mut self,
        _now: Now,
        wire: WireId,
        event: IoEvent<'_>,
        _wires: &mut WireMint,
    ) {
        if self.wire != Some(wire) {
            return;
        }
        match event {
            IoEvent::Opened => {
                if self.state == State::Opening {
                    self.state = State::Open;
                    self.events.push_back(UpstreamEvent::Up);
                }
            }
            IoEvent::Bytes(bytes) => self
                .frames
                .read(bytes, |event| self.events.push_back(event)),
            IoEvent::Eof | IoEvent::WriteClosed => {
                let partial = self.frames.finish(|event| self.events.push_back(event));
                self.end(IoRequest::Close, UpstreamClosed::OutputEnded { partial });
            }
            IoEvent::Failed(fault) => {
                self.wire = None;
                self.end(IoRequest::Close, UpstreamClosed::Io(fault));
            }
            IoEvent::Drained | IoEvent::StderrBytes(_) | IoEvent::Exited(_) => {}
        }
    }

    /// Time passed; a socket has no deadlines.
    pub const fn handle_timeout(&mut self, _now: Now, _wires: &mut WireMint) {}

    /// There are none.
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Deadline> {
        None
    }

    /// Queues one message; after the end messages go nowhere, and the end is told.
    ///
    /// # Errors
    /// More would wait than is allowed: the server is not reading. Nothing was queued.
    pub fn send(
        &mut self,
        _now: Now,
        message: &Outgoing,
        _wires: &mut WireMint,
    ) -> Result<(), Full> {
        match (self.wire, self.state) {
            (Some(wire), State::Opening | State::Open) => {
                self.frames.send(message)?;
                self.io.push_back(IoRequest::Flush(wire));
                Ok(())
            }
            (None, _) | (Some(_), State::Idle | State::Closed) => Ok(()),
        }
    }

    /// Nobody waits for this answer any more; on lines that changes nothing.
    pub const fn forget(&mut self, _now: Now, _id: UpstreamRequestId, _wires: &mut WireMint) {}

    /// What happened.
    pub fn poll_event(&mut self) -> Option<UpstreamEvent> {
        self.events.pop_front()
    }

    /// The next thing for the loop to do.
    pub fn poll_io(&mut self) -> Option<IoRequest> {
        self.io.pop_front()
    }

    /// Bytes for the socket; `None` for a wire that is not of this link.
    pub fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        (self.wire == Some(wire)).then(|| self.frames.outgoing())
    }

    /// Ends the connection in good order: what waits still leaves, by the loop's own means.
    pub fn close(&mut self, _now: Now, _wires: &mut WireMint) {
        self.end(IoRequest::Finish, UpstreamClosed::Local);
    }

    /// A socket has no stderr.
    #[must_use]
    pub const fn stderr_tail(&self) -> &'static str {
        ""
    }

    fn end(&mut self, how: fn(WireId) -> IoRequest, why: UpstreamClosed) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        // With Finish the loop still asks for what waits, once.
        if let Some(wire) = self.wire {
            self.io.push_back(how(wire));
        }
        self.events.push_back(UpstreamEvent::Closed(why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Uptime;
    use crate::link::{FaultKind, IoFault};
    use crate::protocol::client::{Dialect, OutgoingKind};

    const WIRE: WireId = WireId(7);
    const NOW: Now = Now {
        up: Uptime::ZERO,
        unix_ms: 0,
    };

    fn opened() -> (UnixLink, WireMint) {
        let mut mint = WireMint::starting_at(WIRE);
        let mut link = UnixLink::new("/run/s".into(), 100, 100, &Limits::DEFAULT);
        link.start(NOW, &mut mint);
        (link, mint)
    }

    fn message() -> Outgoing {
        Outgoing {
            kind: OutgoingKind::Answer,
            dialect: Dialect::Handshake,
            body: b"[]".to_vec(),
        }
    }

    fn story(link: &mut UnixLink) -> String {
        let mut story = String::new();
        while let Some(event) = link.poll_event() {
            story.push_str(&match event {
                UpstreamEvent::Up => "up ".to_owned(),
                UpstreamEvent::Message { text, .. } => format!("{text} "),
                UpstreamEvent::Closed(why) => format!("[{why}] "),
                UpstreamEvent::Unreadable { why, .. } => format!("({why}) "),
                UpstreamEvent::RequestEnded { .. }
                | UpstreamEvent::Resuming { .. }
                | UpstreamEvent::Remark { .. }
                | UpstreamEvent::Ending(_) => "?".to_owned(),
            });
        }
        while let Some(request) = link.poll_io() {
            let shown = format!("{request:?}");
            story.push_str(shown.split('(').next().unwrap_or_default());
            story.push(' ');
        }
        story
    }

    #[test]
    fn lines_go_both_ways_until_the_server_ends() {
        let (mut link, mut mint) = opened();
        link.handle_io(NOW, WIRE, IoEvent::Opened, &mut mint);
        link.handle_io(NOW, WIRE, IoEvent::Bytes(b"{}\n[1"), &mut mint);
        assert_eq!(link.send(NOW, &message(), &mut mint), Ok(()));
        assert_eq!(story(&mut link), "up {} Open Flush ");
        let out = link.outgoing(WIRE).map(|out| out.pending().to_vec());
        assert_eq!(out.as_deref(), Some(&b"[]\n"[..]));
        link.handle_io(NOW, WIRE, IoEvent::Eof, &mut mint);
        link.handle_io(NOW, WIRE, IoEvent::WriteClosed, &mut mint);
        let ended = story(&mut link);
        assert!(ended.contains("stream ended within a message"), "{ended}");
        assert!(ended.ends_with("Close "), "{ended}");
        assert_eq!(ended.matches("[server closed").count(), 1, "{ended}");
    }

    #[test]
    fn our_end_lets_the_last_bytes_out() {
        let (mut link, mut mint) = opened();
        link.close(NOW, &mut mint);
        link.close(NOW, &mut mint);
        assert_eq!(story(&mut link), "[connection closed] Open Finish ");
        assert_eq!(link.send(NOW, &message(), &mut mint), Ok(()));
        assert_eq!(story(&mut link), "", "the wire is never mentioned again");
    }

    #[test]
    fn nobody_there() {
        let (mut link, mut mint) = opened();
        let fault = IoFault {
            kind: FaultKind::Unreachable,
            message: "cannot connect to /run/s: no such file or directory".to_owned(),
        };
        link.handle_io(NOW, WIRE, IoEvent::Failed(fault), &mut mint);
        assert_eq!(
            story(&mut link),
            "[cannot connect to /run/s: no such file or directory] Open "
        );
    }
}
