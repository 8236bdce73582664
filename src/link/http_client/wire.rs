//! One connection of a client: opening, tunnel, one request at a time.
//!
//! | state      | input                         | next       | output                          |
//! |------------|-------------------------------|------------|---------------------------------|
//! | Opening    | opened, no proxy              | Idle       | `Up`                            |
//! | Opening    | opened, proxy                 | Tunnelling | CONNECT                         |
//! | Tunnelling | 2xx, target is `http`         | Idle       | `Up`                            |
//! | Tunnelling | 2xx, target is `https`        | Securing   | open again, with TLS            |
//! | Tunnelling | another answer                | Over       | fault                           |
//! | Securing   | opened                        | Idle       | `Up`                            |
//! | Idle       | a request                     | Awaiting   | its bytes                       |
//! | Idle       | bytes                         | Over       | fault: nobody asked             |
//! | Awaiting   | interim head (1xx)            | Awaiting   | nothing                         |
//! | Awaiting   | head                          | Body       | `Head`                          |
//! | Body       | content                       | Body       | `Data`                          |
//! | Body       | its end, or end of input      | Idle, Over | `End`                           |
//! | any        | bad head, bad body, early end | Over       | fault                           |
//!
//! Source: RFC 9112 §6.3, §9; RFC 9110 §15.2.
//! Never: sends a request before the last answer is whole, keeps a body.

use std::time::Duration;

use super::target::HttpTarget;
use super::tunnel;
use crate::clock::{Now, Uptime};
use crate::codec::http_body::{
    BodyDecoder, BodyLimits, BodyPiece, Framing, FramingError, read_length,
};
use crate::codec::http1::{HeadLimits, HeadSerial, ResponseHead, ResponseReader};
use crate::codec::outbuf::OutBuf;
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::{IoRequest, OpenSpec};

/// Interim answers before the final one. Source: case e08.
const INTERIM_HEADS_MAX: u8 = 10;

/// What is taken off the life of a kept connection that the server has stated: it counts from when it sent
/// its answer.
const KEEP_MARGIN: Duration = Duration::from_secs(1);

/// Limits that a connection keeps to.
#[derive(Clone, Copy, Debug)]
pub(super) struct WireLimits {
    head: HeadLimits,
    /// Bodies are counted by whoever keeps them: a stream has no length.
    body: BodyLimits,
    pub(super) header_timeout: Duration,
    pub(super) write_stall_timeout: Duration,
    idle_ttl: Duration,
}

impl From<&Limits> for WireLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            head: HeadLimits::from(limits),
            body: BodyLimits {
                bytes_max: usize::MAX,
                ..BodyLimits::from(limits)
            },
            header_timeout: limits.header_timeout,
            write_stall_timeout: limits.write_stall_timeout,
            idle_ttl: limits.pool_idle_ttl,
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) id: WireId,
    pub(super) out: OutBuf,
    limits: WireLimits,
    state: State,
    reader: ResponseReader,
    /// The head of the answer in hand, or the one before: most servers say much the same each time.
    head: ResponseHead,
    /// What the last head with a serial said of its body and of the connection.
    judged: Option<(HeadSerial, Judgement)>,
    /// Requests that were answered on it.
    answered: u32,
    /// Length of the request in hand: while so much waits, nothing of it has left.
    request_bytes: usize,
    /// What waited when it was last looked at, and when something left last.
    unsent: usize,
    moved: Uptime,
    /// What waits to be sent was dropped: the peer takes no more.
    deaf: bool,
    was_up: bool,
    /// A byte of the answer in hand has come.
    heard: bool,
}

/// What a head says of the body behind it, and how long the connection is good for afterwards; `None` when it is
/// not.
#[derive(Clone, Copy, Debug)]
struct Judgement {
    framing: Framing,
    keep: Option<Duration>,
}

#[derive(Debug)]
enum State {
    Opening,
    Tunnelling,
    Securing,
    Idle {
        until: Uptime,
    },
    Awaiting {
        /// When the first byte of a head came.
        begun: Option<Uptime>,
        interim: u8,
    },
    Body {
        decoder: BodyDecoder,
        keep: Option<Duration>,
    },
    Over,
}

/// What an answer consists of.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// Requests may be sent.
    Up,
    /// The head of the answer, to be [given back](Wire::keep_head).
    Head(ResponseHead, Framing),
    /// Some of its body.
    Data(&'a [u8]),
    /// The answer is whole. The connection may be used again, or is over.
    End,
}

/// When a wire wants to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// It has been idle for long enough.
    Idle(Uptime),
    /// A head takes too long.
    Head(Uptime),
    /// Nothing leaves.
    Stalled(Uptime),
}

impl Due {
    pub(super) const fn at(self) -> Uptime {
        match self {
            Self::Idle(at) | Self::Head(at) | Self::Stalled(at) => at,
        }
    }

    pub(super) const fn why(self) -> &'static str {
        match self {
            Self::Idle(_) => "idle connection",
            Self::Head(_) => "end of an answer's head",
            Self::Stalled(_) => "server that does not read",
        }
    }
}

impl Wire {
    /// A connection to be opened by the request that comes with it.
    pub(super) fn open(id: WireId, target: &HttpTarget, limits: WireLimits) -> (Self, IoRequest) {
        let spec = match &target.proxy {
            Some(proxy) => OpenSpec::Tcp {
                host: proxy.host.clone(),
                port: proxy.port,
                tls: None,
            },
            None => open_target(target),
        };
        let wire = Self {
            id,
            out: OutBuf::new(),
            limits,
            state: State::Opening,
            reader: ResponseReader::new(limits.head),
            head: ResponseHead::default(),
            judged: None,
            answered: 0,
            request_bytes: 0,
            unsent: 0,
            moved: Uptime::ZERO,
            deaf: false,
            was_up: false,
            heard: false,
        };
        (wire, IoRequest::Open(id, spec))
    }

    /// Whether a request may be written now.
    pub(super) const fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle { .. })
    }

    /// Whether it was ever ready for a request.
    pub(super) const fn was_up(&self) -> bool {
        self.was_up
    }

    /// Whether it has carried an answer before.
    pub(super) const fn is_reused(&self) -> bool {
        self.answered > 0
    }

    /// Whether provably no byte of the request in hand has left, because all of it still waits here. What
    /// was handed to the system or to TLS counts as left.
    pub(super) fn kept_all(&self) -> bool {
        !self.deaf && self.out.len() == self.request_bytes
    }

    /// Whether a byte of the answer in hand has come.
    pub(super) const fn has_answer_bytes(&self) -> bool {
        self.heard
    }

    /// Sends a request, head and body together.
    pub(super) fn send(&mut self, now: Now, parts: &[&[u8]]) {
        debug_assert!(self.is_idle(), "wire {} is not idle", self.id);
        let tail = self.out.tail();
        tail.reserve(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| tail.extend_from_slice(part));
        self.request_bytes = self.out.len();
        (self.unsent, self.moved) = (self.out.len(), now.up);
        self.heard = false;
        self.state = State::Awaiting {
            begun: None,
            interim: 0,
        };
    }

    /// The loop has opened it, or finished TLS in a tunnel.
    ///
    /// # Errors
    /// What cannot be asked of a proxy; the wire is of no further use.
    pub(super) fn opened(
        &mut self,
        now: Now,
        target: &HttpTarget,
    ) -> Result<Option<Piece<'static>>, String> {
        match (&self.state, &target.proxy) {
            (State::Opening, Some(proxy)) => {
                let head = tunnel::request(target, proxy).map_err(|error| error.to_string())?;
                self.out.tail().extend_from_slice(&head);
                (self.unsent, self.moved) = (self.out.len(), now.up);
                self.state = State::Tunnelling;
                Ok(None)
            }
            (State::Opening | State::Securing, _) => Ok(Some(self.up(now))),
            (
                State::Tunnelling
                | State::Idle { .. }
                | State::Awaiting { .. }
                | State::Body { .. }
                | State::Over,
                _,
            ) => Ok(None),
        }
    }

    fn up(&mut self, now: Now) -> Piece<'static> {
        self.was_up = true;
        self.rest(now, self.limits.idle_ttl);
        Piece::Up
    }

    fn rest(&mut self, now: Now, ttl: Duration) {
        self.state = State::Idle {
            until: now.after(ttl.min(self.limits.idle_ttl)),
        };
    }

    /// Takes the next piece of an answer off the input. Call until `None`, also when the input is empty.
    /// `again` gets the request that starts TLS in a tunnel.
    ///
    /// # Errors
    /// The wire is of no further use: why, in one line.
    pub(super) fn read<'a>(
        &mut self,
        now: Now,
        target: &HttpTarget,
        input: &mut &'a [u8],
        again: &mut Option<IoRequest>,
    ) -> Result<Option<Piece<'a>>, String> {
        match &mut self.state {
            State::Opening | State::Securing | State::Over => Ok(None),
            State::Idle { .. } if input.is_empty() => Ok(None),
            State::Idle { .. } => self.fault("server sent bytes that nobody asked for".to_owned()),
            State::Tunnelling => self.read_tunnel(now, target, input, again),
            State::Awaiting { .. } => self.read_head(now, input),
            State::Body { decoder, .. } => match decoder.next(input) {
                Ok(BodyPiece::Data(data)) => Ok(Some(Piece::Data(data))),
                Ok(BodyPiece::NeedMore) => Ok(None),
                Ok(BodyPiece::End) => Ok(Some(self.end(now))),
                Err(error) => self.fault(error.to_string()),
            },
        }
    }

    fn read_tunnel(
        &mut self,
        now: Now,
        target: &HttpTarget,
        input: &mut &[u8],
        again: &mut Option<IoRequest>,
    ) -> Result<Option<Piece<'static>>, String> {
        loop {
            match self.reader.read_into(input, &mut self.head) {
                Ok(None) => {
                    *input = &[];
                    return Ok(None);
                }
                Ok(Some(used)) => *input = &input[used..],
                Err(error) => return self.fault(format!("proxy: {error}")),
            }
            match (self.head.status, &target.proxy) {
                (100..=199, _) => {}
                (200..=299, _) if target.url.scheme.is_tls() => {
                    self.state = State::Securing;
                    *again = Some(IoRequest::Open(self.id, open_target(target)));
                    return Ok(None);
                }
                (200..=299, _) => return Ok(Some(self.up(now))),
                (_, Some(proxy)) => {
                    let why = tunnel::refusal(target, proxy, &self.head);
                    return self.fault(why);
                }
                (_, None) => return self.fault("a tunnel without a proxy".to_owned()),
            }
        }
    }

    fn read_head(&mut self, now: Now, input: &mut &[u8]) -> Result<Option<Piece<'static>>, String> {
        let State::Awaiting { begun, interim } = &mut self.state else {
            return Ok(None);
        };
        loop {
            if input.is_empty() {
                return Ok(None);
            }
            begun.get_or_insert(now.up);
            self.heard = true;
            match self.reader.read_into(input, &mut self.head) {
                Ok(None) => {
                    *input = &[];
                    return Ok(None);
                }
                Ok(Some(used)) => *input = &input[used..],
                Err(error) => return self.fault(format!("answer is not usable: {error}")),
            }
            let status = self.head.status;
            if status == 101 {
                return self.fault("server switched protocols, which nobody asked for".to_owned());
            }
            if status < 200 {
                *begun = None;
                *interim += 1;
                if *interim > INTERIM_HEADS_MAX {
                    return self.fault(format!("more than {INTERIM_HEADS_MAX} interim answers"));
                }
                continue;
            }
            return self.begin_body();
        }
    }

    fn begin_body(&mut self) -> Result<Option<Piece<'static>>, String> {
        let Judgement { framing, keep } = match self.judge() {
            Ok(judged) => judged,
            Err(error) => return self.fault(format!("answer is not usable: {error}")),
        };
        let decoder = match BodyDecoder::new(framing, self.limits.body) {
            Ok(decoder) => decoder,
            Err(error) => return self.fault(error.to_string()),
        };
        self.state = State::Body { decoder, keep };
        Ok(Some(Piece::Head(std::mem::take(&mut self.head), framing)))
    }

    /// Reads a head, but for what the last one with its serial has said already: then only the length may be
    /// another.
    fn judge(&mut self) -> Result<Judgement, FramingError> {
        let head = &self.head;
        let known = self.judged.filter(|(serial, _)| *serial == head.serial());
        if let Some((_, mut judged)) = known {
            if let Framing::Length(length) = &mut judged.framing {
                let digits = head.length_digits();
                *length = match digits.is_empty() {
                    true => *length,
                    false => read_length(digits)?,
                };
            }
            return Ok(judged);
        }
        let framing = Framing::of_response(head.status, head.minor, false, head.fields.iter())?;
        let keep = (framing != Framing::UntilClose && stays_open(head)).then(|| {
            let stated = head.fields.only("keep-alive").and_then(stated_timeout);
            stated.map_or(Duration::MAX, |stated| stated.saturating_sub(KEEP_MARGIN))
        });
        let judged = Judgement { framing, keep };
        // Of these there is no body, whatever their length is said to be.
        let bodiless = matches!(head.status, 204 | 304);
        self.judged = (!bodiless).then_some((head.serial(), judged));
        Ok(judged)
    }

    /// Takes the head of an answer back from who has read it.
    pub(super) fn keep_head(&mut self, head: ResponseHead) {
        self.head = head;
    }

    fn end(&mut self, now: Now) -> Piece<'static> {
        let keep = match self.state {
            State::Body { keep, .. } => keep,
            State::Opening
            | State::Tunnelling
            | State::Securing
            | State::Idle { .. }
            | State::Awaiting { .. }
            | State::Over => None,
        };
        self.answered = self.answered.saturating_add(1);
        // An answer that came before the request had left says nothing about the rest of it.
        match keep.filter(|keep| !keep.is_zero() && self.out.is_empty() && !self.deaf) {
            Some(keep) => self.rest(now, keep),
            None => self.state = State::Over,
        }
        Piece::End
    }

    /// The peer has ended its direction.
    ///
    /// # Errors
    /// An answer was due, or not whole.
    pub(super) fn ended(&mut self) -> Result<Option<Piece<'static>>, String> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Body { decoder, .. } => match decoder.finish() {
                Ok(()) => {
                    self.answered = self.answered.saturating_add(1);
                    Ok(Some(Piece::End))
                }
                Err(error) => Err(error.to_string()),
            },
            State::Opening | State::Tunnelling | State::Securing => {
                Err("proxy ended the connection".to_owned())
            }
            State::Awaiting { begun: None, .. } => {
                Err("server ended the connection before its answer".to_owned())
            }
            State::Awaiting { .. } => {
                Err("server ended the connection within an answer's head".to_owned())
            }
            State::Idle { .. } | State::Over => Err("server ended the connection".to_owned()),
        }
    }

    /// The peer takes no more; its answer may still come.
    pub(super) fn write_closed(&mut self) {
        self.deaf = true;
        self.unsent = 0;
    }

    fn fault<T>(&mut self, why: String) -> Result<T, String> {
        self.state = State::Over;
        Err(why)
    }

    /// Notes what has left since the last look.
    pub(super) fn look(&mut self, now: Now) {
        let unsent = self.out.len();
        if unsent < self.unsent {
            self.moved = now.up;
        }
        self.unsent = unsent;
    }

    /// What it waits for.
    pub(super) fn due(&self) -> Option<Due> {
        let after = |at: Uptime, by| at.after(by);
        let stalled = (self.unsent > 0)
            .then(|| Due::Stalled(after(self.moved, self.limits.write_stall_timeout)));
        let waits = match self.state {
            State::Idle { until } => Some(Due::Idle(until)),
            State::Awaiting { begun, .. } => {
                begun.map(|begun| Due::Head(after(begun, self.limits.header_timeout)))
            }
            State::Opening
            | State::Tunnelling
            | State::Securing
            | State::Body { .. }
            | State::Over => None,
        };
        match (stalled, waits) {
            (Some(stalled), Some(waits)) if waits.at() < stalled.at() => Some(waits),
            (Some(stalled), _) => Some(stalled),
            (None, waits) => waits,
        }
    }
}

fn open_target(target: &HttpTarget) -> OpenSpec {
    OpenSpec::Tcp {
        host: target.url.host.clone(),
        port: target.url.port_or_default(),
        tls: target.url.scheme.is_tls().then(|| target.tls.clone()),
    }
}

/// Whether the server keeps the connection after this answer. Of HTTP/1.0 it is not believed.
/// RFC 9112 §9.3.
fn stays_open(head: &ResponseHead) -> bool {
    head.minor == 1 && !head.fields.has_token("connection", "close")
}

/// The `timeout` of a Keep-Alive field, as Node and Apache send it. RFC 2068 §19.7.1.1.
fn stated_timeout(value: &str) -> Option<Duration> {
    let seconds = value.split(',').find_map(|part| {
        let (name, seconds) = part.split_once('=')?;
        name.trim()
            .eq_ignore_ascii_case("timeout")
            .then(|| seconds.trim().parse::<u32>().ok())?
    });
    seconds.map(|seconds| Duration::from_secs(seconds.into()))
}
