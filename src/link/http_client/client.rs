//! An HTTP/1.1 client for one server: connections that are kept, requests on them, redirects.
//!
//! What is sent again by itself: a request of which provably no byte has left, because the connection it was
//! meant for ended while all of it still waited here; and a GET or DELETE on a kept connection that ended
//! without a byte of an answer. Each once, on a fresh connection. A POST of which a byte has left may have
//! run, whatever the connection did afterwards, and is reported as broken (RFC 9110 §9.2.2).
//!
//! Source: RFC 9112 §9; RFC 9110 §9.2.2, §15.4; reliability-security T34, T36.
//! Never: pipelines, follows a redirect to another origin, opens a wire that nobody waits for.

mod due;
mod job;
mod redirect;

use std::collections::{BTreeMap, VecDeque};

use job::Job;
use redirect::Redirect;

use super::buffers::Buffers;
use super::target::{HttpTarget, authority};
use super::wire::{Piece, Wire, WireLimits};
use crate::clock::{Agenda, Now, Uptime};
use crate::codec::http_body::Framing;
use crate::codec::http1::ResponseHead;
use crate::codec::outbuf::OutBuf;
use crate::ids::{IdMap, Key, WireId, WireMint};
use crate::limits::Limits;
use crate::link::{IoEvent, IoFault, IoRequest};
use crate::protocol::client::BODY_KEPT_MAX;
use crate::secret::Quoted;

/// One request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExchangeId(u64);

impl Key for ExchangeId {
    fn number(self) -> u64 {
        self.0
    }
}

/// The methods we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Post,
    Delete,
}

impl Method {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Delete => "DELETE",
        }
    }

    /// Whether doing it twice is doing it once. RFC 9110 §9.2.2.
    const fn is_idempotent(self) -> bool {
        match self {
            Self::Get | Self::Delete => true,
            Self::Post => false,
        }
    }
}

/// What became of an exchange.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    pub(crate) exchange: ExchangeId,
    pub(crate) what: What<'a>,
}

/// See [`Step`]. `End` and `Failed` come last, one of them, once.
#[derive(Debug)]
pub(crate) enum What<'a> {
    /// To be given to [`Client::keep_head`] when it was read.
    Head(ResponseHead, Framing),
    Data(&'a [u8]),
    End,
    Failed(Fault),
}

/// Why an exchange came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No connection; nothing was sent.
    NotOpened(IoFault),
    /// Nothing was sent.
    NotSent(String),
    /// It may have run.
    Broken(String),
    /// A redirect that is not followed.
    Redirect {
        from: String,
        to: String,
        why: &'static str,
    },
}

/// The client.
#[derive(Debug)]
pub(crate) struct Client {
    target: HttpTarget,
    limits: WireLimits,
    idle_max: usize,
    redirects_max: usize,
    /// Bytes of requests that are kept for another try.
    kept_bytes_max: usize,
    /// Boxed: a map has room for more than there are.
    lines: IdMap<WireId, Box<Line>>,
    /// What each connection waits for. Kept by [`note_due`](Self::note_due), after whatever may change it.
    due: Agenda<WireId>,
    /// Connections without a request; the one used last is used next.
    idle: Vec<WireId>,
    places: IdMap<ExchangeId, WireId>,
    /// Last bytes of wires that were let go of in good order; the loop takes them once.
    leaving: BTreeMap<WireId, OutBuf>,
    last_exchange: u64,
    /// Bytes that are kept of the requests on all connections.
    kept_bytes: usize,
    /// Empty buffers for what is kept of the next requests.
    spare: Buffers,
    io: VecDeque<IoRequest>,
}

/// A connection and what it is used for.
#[derive(Debug)]
struct Line {
    wire: Wire,
    job: Option<Job>,
    /// When it is due, as it stands on the agenda.
    due: Option<Uptime>,
}

impl Client {
    pub(crate) fn new(target: HttpTarget, limits: &Limits, kept_bytes_max: usize) -> Self {
        Self {
            target,
            limits: WireLimits::from(limits),
            idle_max: limits.pool_connections_max,
            redirects_max: limits.redirects_max,
            kept_bytes_max,
            lines: IdMap::new(),
            due: Agenda::default(),
            idle: Vec::new(),
            places: IdMap::new(),
            leaving: BTreeMap::new(),
            last_exchange: 0,
            kept_bytes: 0,
            spare: Buffers::default(),
            io: VecDeque::new(),
        }
    }

    pub(crate) const fn target(&self) -> &HttpTarget {
        &self.target
    }

    /// Gives an exchange up at `until`, as broken, if it is not over by then. The earliest such time counts.
    pub(crate) fn give_up_at(&mut self, exchange: ExchangeId, until: Uptime) {
        let Some(id) = self.places.get(&exchange).copied() else {
            return;
        };
        if let Some(job) = self.lines.get_mut(&id).and_then(|line| line.job.as_mut()) {
            job.until = Some(job.until.map_or(until, |before| before.min(until)));
            self.note_due(id);
        }
    }

    /// Takes the head of an answer back, for the next one on its connection to be read into.
    pub(crate) fn keep_head(&mut self, exchange: ExchangeId, head: ResponseHead) {
        let wire = self.places.get(&exchange);
        if let Some(line) = wire.and_then(|wire| self.lines.get_mut(wire)) {
            line.wire.keep_head(head);
        }
    }

    /// Ends an exchange: its connection is closed, nothing more is told of it.
    pub(crate) fn cancel(&mut self, exchange: ExchangeId) {
        if let Some(wire) = self.places.remove(&exchange) {
            self.drop_wire(wire, false);
        }
    }

    /// Ends everything but the exchange `keep`. What has not left of the exchanges in `sending` still leaves.
    pub(crate) fn close(&mut self, keep: Option<ExchangeId>, sending: impl Fn(ExchangeId) -> bool) {
        let kept = keep.and_then(|exchange| self.places.get(&exchange).copied());
        for id in self.wires().into_iter().filter(|id| Some(*id) != kept) {
            let Some(line) = self.lines.get_mut(&id) else {
                continue;
            };
            let leaves = line.job.as_ref().is_some_and(|job| sending(job.exchange));
            if leaves && !line.wire.out.is_empty() {
                let out = std::mem::take(&mut line.wire.out);
                self.leaving.insert(id, out);
                self.drop_wire(id, true);
                self.io.push_back(IoRequest::Finish(id));
            } else {
                self.drop_wire(id, false);
            }
        }
    }

    /// All connections, in the order of their making.
    fn wires(&self) -> Vec<WireId> {
        let mut ids: Vec<WireId> = self.lines.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    pub(crate) fn poll_io(&mut self) -> Option<IoRequest> {
        self.io.pop_front()
    }

    pub(crate) fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        match self.lines.get_mut(&wire) {
            Some(line) => Some(&mut line.wire.out),
            None => self.leaving.get_mut(&wire),
        }
    }

    /// Takes the next step off bytes that arrived on a wire. Call until `None`, also with empty input.
    pub(crate) fn read<'a>(
        &mut self,
        now: Now,
        id: WireId,
        input: &mut &'a [u8],
        wires: &mut WireMint,
    ) -> Option<Step<'a>> {
        loop {
            let line = self.lines.get_mut(&id)?;
            let mut again = None;
            let piece = line.wire.read(now, &self.target, input, &mut again);
            self.io.extend(again);
            match piece {
                Ok(None) => {
                    self.note_due(id);
                    return None;
                }
                Ok(Some(piece)) => {
                    let clean = input.is_empty();
                    if let Some(step) = self.take(now, id, piece, clean, wires) {
                        return Some(step);
                    }
                }
                Err(why) => return self.lose(now, id, why, false, wires),
            }
        }
    }

    /// Everything that waited for a wire has left.
    pub(crate) fn drained(&mut self, now: Now, id: WireId) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.wire.look(now);
            self.note_due(id);
        }
    }

    /// Anything else that happened on a wire.
    pub(crate) fn hear(
        &mut self,
        now: Now,
        id: WireId,
        event: IoEvent<'_>,
        wires: &mut WireMint,
    ) -> Option<Step<'static>> {
        let step = self.heard(now, id, event, wires);
        self.note_due(id);
        step
    }

    fn heard(
        &mut self,
        now: Now,
        id: WireId,
        event: IoEvent<'_>,
        wires: &mut WireMint,
    ) -> Option<Step<'static>> {
        let line = self.lines.get_mut(&id)?;
        match event {
            IoEvent::Opened => match line.wire.opened(now, &self.target) {
                Ok(Some(piece)) => self.take(now, id, piece, true, wires),
                Ok(None) => {
                    self.io.push_back(IoRequest::Flush(id));
                    None
                }
                Err(why) => self.lose(now, id, why, false, wires),
            },
            IoEvent::Eof => match line.wire.ended() {
                Ok(Some(piece)) => self.take(now, id, piece, true, wires),
                Ok(None) => None,
                Err(why) => self.lose(now, id, why, false, wires),
            },
            IoEvent::WriteClosed => {
                line.wire.write_closed();
                if line.job.is_none() {
                    return self.lose(
                        now,
                        id,
                        "idle connection was reset".to_owned(),
                        false,
                        wires,
                    );
                }
                None
            }
            IoEvent::Failed(fault) => self.failed(now, id, fault, wires),
            // These go through `read` and `drained`; the others are of children only.
            IoEvent::Bytes(_) | IoEvent::Drained | IoEvent::StderrBytes(_) | IoEvent::Exited(_) => {
                None
            }
        }
    }

    fn failed(
        &mut self,
        now: Now,
        id: WireId,
        fault: IoFault,
        wires: &mut WireMint,
    ) -> Option<Step<'static>> {
        let line = self.lines.get(&id)?;
        if line.wire.was_up() {
            return self.lose(now, id, fault.message, true, wires);
        }
        let job = self.drop_wire(id, true)?;
        Some(Step {
            exchange: job.exchange,
            what: What::Failed(Fault::NotOpened(fault)),
        })
    }

    /// Moves a wire on by one piece. `clean` says that no byte has come behind it.
    fn take<'a>(
        &mut self,
        now: Now,
        id: WireId,
        piece: Piece<'a>,
        clean: bool,
        wires: &mut WireMint,
    ) -> Option<Step<'a>> {
        let line = self.lines.get_mut(&id)?;
        let job = line.job.as_mut();
        let exchange = job.as_ref().map(|job| job.exchange);
        let what = match (piece, job) {
            (Piece::Up, _) => {
                self.write(now, id);
                return None;
            }
            (Piece::Head(head, framing), Some(job)) => {
                if matches!(head.status, 301 | 302 | 303 | 307 | 308) {
                    let location = head.fields.only("location").map(str::to_owned);
                    job.redirect = Some(Box::new(Redirect {
                        status: head.status,
                        location,
                        skipped: 0,
                    }));
                    return None;
                }
                let kept = job.rest.take();
                self.reuse(kept);
                What::Head(head, framing)
            }
            (Piece::Data(data), Some(job)) => match &mut job.redirect {
                None => What::Data(data),
                Some(redirect) => {
                    redirect.skipped = redirect.skipped.saturating_add(data.len());
                    if redirect.skipped <= BODY_KEPT_MAX {
                        return None;
                    }
                    // Nobody reads it: a new connection is cheaper.
                    let job = self.drop_wire(id, false)?;
                    return self.follow(now, job, None, wires);
                }
            },
            (Piece::End, Some(_)) => return self.end(now, id, clean, wires),
            // An answer without a request does not get this far.
            (Piece::Head(..) | Piece::Data(_) | Piece::End, None) => return None,
        };
        let exchange = exchange?;
        Some(Step { exchange, what })
    }

    fn end(
        &mut self,
        now: Now,
        id: WireId,
        clean: bool,
        wires: &mut WireMint,
    ) -> Option<Step<'static>> {
        let line = self.lines.get_mut(&id)?;
        // Bytes behind the answer would be taken for the next one.
        let reusable = clean && line.wire.is_idle();
        let job = if reusable {
            let job = line.job.take()?;
            self.kept_bytes -= job.kept();
            job
        } else {
            self.drop_wire(id, false)?
        };
        self.places.remove(&job.exchange);
        if job.redirect.is_some() {
            return self.follow(now, job, reusable.then_some(id), wires);
        }
        if reusable {
            self.keep(id);
        }
        let (exchange, what) = (job.exchange, What::End);
        Some(Step { exchange, what })
    }

    /// Keeps a connection for the next request; the one that has rested longest makes room.
    fn keep(&mut self, id: WireId) {
        self.idle.push(id);
        if self.idle.len() > self.idle_max {
            let oldest = self.idle.remove(0);
            self.drop_wire(oldest, false);
        }
    }

    /// A wire is of no further use. `gone` says that the loop knows.
    fn lose(
        &mut self,
        now: Now,
        id: WireId,
        why: String,
        gone: bool,
        wires: &mut WireMint,
    ) -> Option<Step<'static>> {
        let line = self.lines.get(&id)?;
        let (was_up, reused) = (line.wire.was_up(), line.wire.is_reused());
        let never_left = line.wire.kept_all();
        let silent = !line.wire.has_answer_bytes();
        let mut job = self.drop_wire(id, gone)?;
        let unsent = !job.written || (never_left && silent);
        let may_repeat = unsent || (job.method.is_idempotent() && silent);
        // Once, for the next connection is no kept one.
        if was_up && reused && may_repeat && job.rest.is_some() {
            log::debug!("{}: a kept connection was stale, once more", self.label());
            (job.written, job.redirect) = (false, None);
            self.place(now, job, None, wires);
            return None;
        }
        // The loop names the address itself.
        let why = if gone {
            why
        } else {
            format!("{}: {why}", self.label())
        };
        let fault = if unsent {
            Fault::NotSent(why)
        } else {
            Fault::Broken(why)
        };
        Some(Step {
            exchange: job.exchange,
            what: What::Failed(fault),
        })
    }

    fn label(&self) -> String {
        Quoted(&authority(&self.target.url)).to_string()
    }

    /// Takes a wire away and gives the request that was on it.
    fn drop_wire(&mut self, id: WireId, gone: bool) -> Option<Job> {
        let line = self.lines.remove(&id)?;
        self.due.change(id, line.due, None);
        self.idle.retain(|idle| *idle != id);
        self.io
            .retain(|request| !matches!(request, IoRequest::Flush(wire) if *wire == id));
        if !gone {
            self.io.push_back(IoRequest::Close(id));
        }
        let job = line.job?;
        self.kept_bytes -= job.kept();
        self.places.remove(&job.exchange);
        Some(job)
    }
}
