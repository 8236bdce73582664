//! A link and the server it talks to, in virtual time: what the server gets, what it answers, what the link
//! tells.

use std::collections::{BTreeMap, VecDeque};

use super::{Full, HttpBounds, HttpLink, HttpTarget};
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::http1::{Fields, HeadLimits, Progress, RequestReader};
use crate::codec::outbuf::OutBuf;
use crate::codec::uri::Uri;
use crate::ids::{UpstreamRequestId, WireId, WireMint};
use crate::limits::Limits;
use crate::link::sse_client::SseLink;
use crate::link::upstream::UpstreamEvent;
use crate::link::{FaultKind, IoEvent, IoFault, IoRequest, OpenSpec, TlsSpec};
use crate::protocol::client::{Dialect, Outgoing, OutgoingKind, RequestEnd};
use crate::protocol::revision::Revision;
use crate::secret::Secret;

/// The face that the two links have in common.
pub(in crate::link) trait Face {
    fn start(&mut self, now: Now, wires: &mut WireMint);
    fn hear(&mut self, now: Now, wire: WireId, event: IoEvent<'_>, wires: &mut WireMint);
    fn tick(&mut self, now: Now, wires: &mut WireMint);
    fn due(&self) -> Option<Deadline>;
    fn send(&mut self, now: Now, message: Outgoing, wires: &mut WireMint) -> Result<(), Full>;
    fn forget(&mut self, now: Now, id: UpstreamRequestId, wires: &mut WireMint);
    fn close(&mut self, now: Now, wires: &mut WireMint);
    fn event(&mut self) -> Option<UpstreamEvent>;
    fn io(&mut self) -> Option<IoRequest>;
    fn out(&mut self, wire: WireId) -> Option<&mut OutBuf>;
}

macro_rules! face {
    ($link:ty) => {
        impl Face for $link {
            fn start(&mut self, now: Now, wires: &mut WireMint) {
                self.start(now, wires);
            }
            fn hear(&mut self, now: Now, wire: WireId, event: IoEvent<'_>, wires: &mut WireMint) {
                self.handle_io(now, wire, event, wires);
            }
            fn tick(&mut self, now: Now, wires: &mut WireMint) {
                self.handle_timeout(now, wires);
            }
            fn due(&self) -> Option<Deadline> {
                self.next_deadline()
            }
            fn send(
                &mut self,
                now: Now,
                message: Outgoing,
                wires: &mut WireMint,
            ) -> Result<(), Full> {
                self.send(now, &message, wires)
            }
            fn forget(&mut self, now: Now, id: UpstreamRequestId, wires: &mut WireMint) {
                self.forget(now, id, wires);
            }
            fn close(&mut self, now: Now, wires: &mut WireMint) {
                self.close(now, wires);
            }
            fn event(&mut self) -> Option<UpstreamEvent> {
                self.poll_event()
            }
            fn io(&mut self) -> Option<IoRequest> {
                self.poll_io()
            }
            fn out(&mut self, wire: WireId) -> Option<&mut OutBuf> {
                self.outgoing(wire)
            }
        }
    };
}

face!(HttpLink);
face!(SseLink);

/// One request as the server gets it.
#[derive(Clone, Debug)]
pub(in crate::link) struct Got {
    pub(in crate::link) wire: WireId,
    pub(in crate::link) method: String,
    pub(in crate::link) target: String,
    pub(in crate::link) fields: Fields,
    pub(in crate::link) body: String,
}

impl Got {
    pub(in crate::link) fn field(&self, name: &str) -> Option<&str> {
        self.fields.only(name)
    }

    /// Method, target, and the id or method of the message.
    pub(in crate::link) fn shown(&self) -> String {
        format!("{} {} {}", self.method, self.target, self.body)
    }
}

/// The far end of a wire.
#[derive(Debug, Default)]
struct Far {
    unread: Vec<u8>,
    gone: bool,
}

pub(in crate::link) struct Rig<L> {
    pub(in crate::link) link: L,
    mint: WireMint,
    pub(in crate::link) now: u64,
    far: BTreeMap<WireId, Far>,
    /// What the link told, in words.
    pub(in crate::link) told: Vec<String>,
    /// What the link asked of the loop, flushes left out.
    pub(in crate::link) asked: Vec<String>,
    pub(in crate::link) got: VecDeque<Got>,
    /// Wires open as soon as they are asked for.
    pub(in crate::link) opens: bool,
    /// Flushed bytes leave.
    pub(in crate::link) reads: bool,
    /// Answers come byte by byte.
    pub(in crate::link) cut: bool,
}

pub(in crate::link) const UNIX_MS: i64 = 784_111_777_000;

pub(in crate::link) fn target(url: &str) -> HttpTarget {
    HttpTarget {
        url: Uri::parse(url).expect("a URL"),
        headers: vec![
            (
                "Authorization".to_owned(),
                Secret::new("Bearer made".to_owned()),
            ),
            ("Content-Length".to_owned(), Secret::new("7".to_owned())),
        ],
        tls: TlsSpec::default(),
        proxy: None,
    }
}

pub(in crate::link) fn http_rig() -> Rig<HttpLink> {
    http_rig_with(target("http://127.0.0.1:8900/mcp"), &Limits::default())
}

pub(in crate::link) fn http_rig_with(target: HttpTarget, limits: &Limits) -> Rig<HttpLink> {
    Rig::new(HttpLink::new(target, HttpBounds::from(limits), limits))
}

impl<L: Face> Rig<L> {
    pub(in crate::link) fn new(link: L) -> Self {
        Self {
            link,
            mint: WireMint::starting_at(WireId(1)),
            now: 0,
            far: BTreeMap::new(),
            told: Vec::new(),
            asked: Vec::new(),
            got: VecDeque::new(),
            opens: true,
            reads: true,
            cut: false,
        }
    }

    fn at(&self) -> Now {
        Now {
            up: Uptime::from_millis(self.now),
            unix_ms: UNIX_MS,
        }
    }

    pub(in crate::link) fn start(&mut self) {
        let now = self.at();
        self.link.start(now, &mut self.mint);
        self.drain();
    }

    pub(in crate::link) fn send(&mut self, message: Outgoing) {
        self.try_send(message).expect("room");
    }

    pub(in crate::link) fn try_send(&mut self, message: Outgoing) -> Result<(), Full> {
        let now = self.at();
        let sent = self.link.send(now, message, &mut self.mint);
        self.drain();
        sent
    }

    pub(in crate::link) fn forget(&mut self, id: u64) {
        let now = self.at();
        self.link.forget(now, UpstreamRequestId(id), &mut self.mint);
        self.drain();
    }

    pub(in crate::link) fn close(&mut self) {
        let now = self.at();
        self.link.close(now, &mut self.mint);
        self.drain();
    }

    pub(in crate::link) fn hear(&mut self, wire: WireId, event: IoEvent<'_>) {
        let gone = self.far.get(&wire).is_some_and(|far| far.gone);
        assert!(!gone, "wire {wire} is gone");
        if matches!(event, IoEvent::Failed(_)) {
            self.far.entry(wire).or_default().gone = true;
        }
        let now = self.at();
        self.link.hear(now, wire, event, &mut self.mint);
        self.drain();
    }

    /// Bytes for a wire. What comes after the link has closed it is lost.
    pub(in crate::link) fn bytes(&mut self, wire: WireId, bytes: &[u8]) {
        let size = if self.cut { 1 } else { bytes.len().max(1) };
        for piece in bytes.chunks(size) {
            if self.is_gone(wire) {
                return;
            }
            self.hear(wire, IoEvent::Bytes(piece));
        }
    }

    pub(in crate::link) fn end(&mut self, wire: WireId) {
        if !self.is_gone(wire) {
            self.hear(wire, IoEvent::Eof);
        }
    }

    pub(in crate::link) fn fail(&mut self, wire: WireId, kind: FaultKind, message: &str) {
        let message = message.to_owned();
        self.hear(wire, IoEvent::Failed(IoFault { kind, message }));
    }

    pub(in crate::link) fn is_gone(&self, wire: WireId) -> bool {
        self.far.get(&wire).is_none_or(|far| far.gone)
    }

    /// Time passes, through every deadline.
    pub(in crate::link) fn pass_to(&mut self, ms: u64) {
        while let Some(due) = self.link.due().filter(|due| due.at.as_millis() <= ms) {
            self.now = due.at.as_millis();
            let now = self.at();
            self.link.tick(now, &mut self.mint);
            self.drain();
        }
        self.now = ms;
        let now = self.at();
        self.link.tick(now, &mut self.mint);
        self.drain();
    }

    /// The oldest request that has not been looked at.
    #[track_caller]
    pub(in crate::link) fn next(&mut self) -> Got {
        self.got.pop_front().expect("a request")
    }

    /// What was told since the last look.
    pub(in crate::link) fn news(&mut self) -> Vec<String> {
        std::mem::take(&mut self.told)
    }

    /// What the loop does after every input.
    pub(in crate::link) fn drain(&mut self) {
        while let Some(event) = self.link.event() {
            let closed = self.told.last().is_some_and(|t| t.starts_with("closed"));
            assert!(!closed, "told after the end: {event:?}");
            self.told.push(shown(event));
        }
        let mut flushed = Vec::new();
        let mut opened = Vec::new();
        while let Some(request) = self.link.io() {
            match request {
                IoRequest::Open(wire, spec) => {
                    self.far.entry(wire).or_default();
                    self.asked.push(format!("open {wire} {}", shown_spec(spec)));
                    opened.push(wire);
                }
                IoRequest::Flush(wire) => {
                    assert!(!self.is_gone(wire), "flush of wire {wire}, which is gone");
                    flushed.push(wire);
                }
                IoRequest::Close(wire) => {
                    assert!(!self.is_gone(wire), "wire {wire} is closed twice");
                    self.asked.push(format!("close {wire}"));
                    self.far.entry(wire).or_default().gone = true;
                }
                IoRequest::Finish(wire) => {
                    self.asked.push(format!("finish {wire}"));
                    let out = self.link.out(wire).map(std::mem::take).unwrap_or_default();
                    let far = self.far.entry(wire).or_default();
                    far.unread.extend_from_slice(out.pending());
                    far.gone = true;
                    self.take_requests(wire);
                }
                other @ (IoRequest::PauseReads(..)
                | IoRequest::CloseWrite(_)
                | IoRequest::Signal(..)
                | IoRequest::Append(_)) => panic!("asked for {other:?}"),
            }
        }
        let due = self.link.due();
        assert!(
            due.is_none_or(|due| due.at > self.at().up) || self.now == 0,
            "{due:?}"
        );
        for wire in flushed {
            self.leave(wire);
        }
        // A connection takes a while.
        for wire in opened {
            if self.opens && !self.is_gone(wire) {
                self.hear(wire, IoEvent::Opened);
            }
        }
    }

    /// What waits on a wire leaves.
    pub(in crate::link) fn leave(&mut self, wire: WireId) {
        if !self.reads || self.is_gone(wire) {
            return;
        }
        let Some(out) = self.link.out(wire) else {
            return;
        };
        let bytes = out.pending().to_vec();
        out.clear();
        if bytes.is_empty() {
            return;
        }
        self.far.entry(wire).or_default().unread.extend(bytes);
        self.take_requests(wire);
        self.hear(wire, IoEvent::Drained);
    }

    fn take_requests(&mut self, wire: WireId) {
        let far = self.far.entry(wire).or_default();
        loop {
            let limits = HeadLimits::from(&Limits::default());
            let read = RequestReader::new(limits).read(&far.unread);
            let Progress::Done { head, used } = read.expect("an acceptable head") else {
                return;
            };
            let length = head.fields.only("content-length");
            let length: usize = length.map_or(0, |n| n.parse().expect("a number"));
            let Some(body) = far.unread.get(used..used + length) else {
                return;
            };
            self.got.push_back(Got {
                wire,
                method: head.method,
                target: head.target,
                fields: head.fields,
                body: String::from_utf8(body.to_vec()).expect("UTF-8"),
            });
            far.unread.drain(..used + length);
        }
    }

    /// Answers with JSON.
    pub(in crate::link) fn json(&mut self, to: &Got, extra: &str, body: &str) {
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{extra}Content-Length: {length}\r\n\r\n{body}"
        );
        self.bytes(to.wire, answer.as_bytes());
    }

    pub(in crate::link) fn status(&mut self, to: &Got, line: &str) {
        let answer = format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n");
        self.bytes(to.wire, answer.as_bytes());
    }

    /// Begins an event stream without an end in sight.
    pub(in crate::link) fn stream(&mut self, to: &Got, events: &str) {
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{events}");
        self.bytes(to.wire, answer.as_bytes());
    }
}

/// The handshake of a session `S1`, up to the point where its GET is refused.
pub(in crate::link) fn in_session(rig: &mut Rig<HttpLink>, revision: Revision) {
    with_stream_asked(rig, revision);
    let get = rig.next();
    assert_eq!(get.method, "GET");
    rig.status(&get, "405 Method Not Allowed");
    assert_eq!(rig.news(), Vec::<String>::new());
}

/// As [`in_session`], with the GET still to be answered.
pub(in crate::link) fn with_stream_asked(rig: &mut Rig<HttpLink>, revision: Revision) {
    rig.start();
    rig.send(request(1, "initialize", Dialect::Handshake));
    let asked = rig.next();
    rig.json(
        &asked,
        "Mcp-Session-Id: S1\r\n",
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    );
    rig.send(notification(
        "notifications/initialized",
        Dialect::Session(revision),
    ));
    let asked = rig.next();
    rig.status(&asked, "202 Accepted");
    assert_eq!(
        rig.news(),
        ["up", r#"message 1 {"jsonrpc":"2.0","id":1,"result":{}}"#]
    );
}

pub(in crate::link) const LEGACY: Dialect = Dialect::Session(Revision::V2025_06_18);
pub(in crate::link) const MODERN: Dialect = Dialect::Stateless(Revision::V2026_07_28);

pub(in crate::link) fn request(id: u64, method: &str, dialect: Dialect) -> Outgoing {
    Outgoing {
        kind: OutgoingKind::Request {
            id: UpstreamRequestId(id),
            method: method.to_owned().into(),
            name: None,
            headers: Vec::new(),
        },
        dialect,
        body: format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#).into_bytes(),
    }
}

pub(in crate::link) fn notification(method: &str, dialect: Dialect) -> Outgoing {
    Outgoing {
        kind: OutgoingKind::Notification {
            method: method.to_owned().into(),
        },
        dialect,
        body: format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#).into_bytes(),
    }
}

pub(in crate::link) fn answer(body: &str) -> Outgoing {
    Outgoing {
        kind: OutgoingKind::Answer,
        dialect: LEGACY,
        body: body.as_bytes().to_vec(),
    }
}

fn shown_spec(spec: OpenSpec) -> String {
    match spec {
        OpenSpec::Tcp { host, port, tls } => {
            let tls = if tls.is_some() { " tls" } else { "" };
            format!("{host} {port}{tls}")
        }
        other @ (OpenSpec::HostStdio
        | OpenSpec::HostStdin
        | OpenSpec::Unix { .. }
        | OpenSpec::Listen { .. }
        | OpenSpec::ListenUnix { .. }
        | OpenSpec::Child(_)) => panic!("asked for {other:?}"),
    }
}

fn shown(event: UpstreamEvent) -> String {
    let whose = |on: Option<UpstreamRequestId>| on.map_or("-".to_owned(), |id| id.to_string());
    match event {
        UpstreamEvent::Up => "up".to_owned(),
        UpstreamEvent::Message { text, on, .. } => format!("message {} {text}", whose(on)),
        UpstreamEvent::Unreadable { why, on, .. } => format!("unreadable {} {why}", whose(on)),
        UpstreamEvent::RequestEnded { id, end } => format!("end {id} {}", shown_end(&end)),
        UpstreamEvent::Resuming { id, why } => format!("resuming {} {why}", whose(id)),
        UpstreamEvent::Remark { why } => format!("remark {why}"),
        UpstreamEvent::Ending(why) => format!("ending {why}"),
        UpstreamEvent::Closed(why) => format!("closed {why}"),
    }
}

fn shown_end(end: &RequestEnd) -> String {
    let status = |status: &crate::protocol::client::StatusEnd| {
        let mut text = format!("status {}", status.status);
        for (name, value) in [
            ("type", status.content_type.clone()),
            ("challenge", status.challenge.clone()),
            ("retry", status.retry_after_ms.map(|ms| ms.to_string())),
        ] {
            if let Some(value) = value {
                text.push_str(&format!(" {name}={value}"));
            }
        }
        let body = String::from_utf8_lossy(&status.body);
        format!("{text} {body}").trim_end().to_owned()
    };
    match end {
        RequestEnd::NotSent(why) => format!("not sent: {why}"),
        RequestEnd::Status(end) => status(end),
        RequestEnd::SessionLost { status } => format!("session lost {status}"),
        RequestEnd::SessionDoubtful(end) => format!("session doubtful, {}", status(end)),
        RequestEnd::NotReading { value, limit } => format!("not reading {value} of {limit}"),
        RequestEnd::Accepted => "accepted".to_owned(),
        RequestEnd::ContentType {
            status: _,
            found,
            body,
        } => format!("content type {found}: {body}"),
        RequestEnd::Broken(why) => format!("broken: {why}"),
        RequestEnd::TooLarge { value, limit } => format!("too large {value} of {limit}"),
        RequestEnd::Redirect { from, to, why } => format!("redirect {from} to {to}: {why}"),
    }
}
