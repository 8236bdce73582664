//! One HTTP/1.1 connection, server side.
//!
//! Requests come out as events: the head first, so that its owner can refuse before a byte of the body
//! is kept, then the body as a whole. Answers go in by exchange and leave in the order of the requests,
//! whatever order they are given in.
//!
//! | state          | input                          | next     | output                        |
//! |----------------|--------------------------------|----------|-------------------------------|
//! | Head           | part of a head                 | Head     | nothing                       |
//! | Head           | a head                         | Deciding | `Head`                        |
//! | Head           | a bad head                     | Leaving  | 4xx or 5xx                    |
//! | Head           | a bad head behind open answers | Done     | nothing yet                   |
//! | Head           | a late head                    | Leaving  | 408                           |
//! | Head           | no head in time                | Closed   | close wire, `Closed`          |
//! | Head           | end, amid a head               | Leaving  | 400                           |
//! | Head           | end, answers are open          | Done     | nothing                       |
//! | Head           | end, an answer is leaving      | Leaving  | nothing                       |
//! | Head           | end                            | Closed   | close wire, `Closed`          |
//! | Head           | `close_after`                  | Closed   | finish wire, `Closed`         |
//! | Head           | `close_after`, open answers    | Done     | nothing                       |
//! | Deciding       | `accept`, a body               | Body     | 100, if it is waited for      |
//! | Deciding       | `accept`, no body              | Head     | `Body`, empty                 |
//! | Deciding       | `accept`, no body, last        | Done     | `Body`, empty                 |
//! | Deciding       | answer, a body                 | Leaving  | answer                        |
//! | Deciding       | answer, no body                | Head     | answer                        |
//! | Deciding       | answer, no body, last          | Leaving  | answer                        |
//! | Deciding       | stream, a body                 | Done     | head of the stream            |
//! | Deciding       | bytes                          | Deciding | stop reading                  |
//! | Deciding       | end                            | Deciding | nothing                       |
//! | Body           | content                        | Body     | nothing                       |
//! | Body           | end of the body                | Head     | `Body`                        |
//! | Body           | end of the body, last          | Done     | `Body`                        |
//! | Body           | a bad, long, cut or late body  | Leaving  | 4xx, `Gone`                   |
//! | Body           | answer                         | Leaving  | answer                        |
//! | Done           | bytes                          | Done     | nothing                       |
//! | Done           | end                            | Done     | probes                        |
//! | Done           | last answer                    | Leaving  | answer                        |
//! | Leaving        | bytes                          | Leaving  | nothing                       |
//! | Leaving        | end                            | Leaving  | nothing                       |
//! | Leaving        | all has left                   | Closed   | finish wire, `Closed`         |
//! | any but Closed | the client takes no more       | Closed   | close wire, `Gone`s, `Closed` |
//! | any but Closed | nothing leaves for too long    | Closed   | close wire, `Gone`s, `Closed` |
//! | any but Closed | `Failed`                       | Closed   | `Gone`s, `Closed`             |
//! | any but Closed | `abort`                        | Closed   | close wire, `Gone`s, `Closed` |
//! | Closed         | anything                       | Closed   | nothing                       |
//!
//! A request is the last one when the client says so (`Connection: close`, HTTP/1.0) or the owner does
//! (`close_after`). A bad or late head is one that is malformed, ambiguous, too long or asks for what we
//! do not do; `accept` and answers of exchanges that are not there are without effect.
//!
//! Every `Head` is followed by the owner's answer or by `Gone`, never by both.
//!
//! A client that ended its direction may still read (half-close) or be gone: the two look alike until
//! something is sent. While an answer is awaited, probes are sent that every client must ignore: an
//! interim answer (RFC 9110 §15.2), within an event stream a comment. Whoever is gone resets the
//! connection at the second one.
//!
//! Source: RFC 9112 §6, §9; RFC 9110 §10.1.1; reliability-security §2.2, §3.
//! Never: opens a socket, reads a clock, knows what a message or a session is.

mod answer;
mod date;
mod exchange;
mod input;
mod output;
mod request;
mod time;

use std::collections::VecDeque;

pub use exchange::ExchangeId;
use exchange::Exchanges;
use output::OpenAnswer;
use request::Terms;
use time::{Bounds, Clocks};

use self::date::DateText;
use crate::clock::{Deadline, Now};
use crate::codec::http_body::BodyDecoder;
use crate::codec::http1::{HeadLimits, RequestReader};
pub use crate::codec::http1::{HeadSerial, HttpHead};
use crate::codec::outbuf::OutBuf;
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::{IoEvent, IoRequest};

/// What a connection tells its owner.
#[derive(Debug)]
pub enum HttpEvent {
    /// A request begins. Its body waits for [`HttpConnection::accept`]; an answer refuses it. Nothing
    /// further is read from the connection until then.
    Head {
        /// The exchange.
        exchange: ExchangeId,
        /// Its head; [`HttpConnection::recycle_head`] takes it back.
        head: Box<HttpHead>,
    },
    /// The body of an accepted request is whole; empty when it has none.
    Body {
        /// The exchange.
        exchange: ExchangeId,
        /// At most `message_bytes_max`; [`HttpConnection::recycle`] takes it back.
        body: Vec<u8>,
    },
    /// The exchange ended without the owner's answer: the client is gone, or its request could not be
    /// read to the end and was answered here. Answers to it are ignored from now on.
    Gone {
        /// The exchange.
        exchange: ExchangeId,
    },
    /// The connection is over. Comes once, last.
    Closed,
}

/// Where in a request we are.
#[derive(Debug)]
enum Phase {
    /// Waiting for a head, or amid one.
    Head,
    /// A head was told; its owner accepts or answers.
    Deciding(Terms),
    /// Amid a body.
    Body(BodyDecoder),
    /// No further request; answers are awaited.
    Done,
    /// All answers are given and leave. The loop sees to the rest ([`IoRequest::Finish`]).
    Leaving,
    Closed,
}

/// What the loop is to do.
#[derive(Clone, Copy, Debug, Default)]
struct Asks {
    flush: bool,
    finish: bool,
    close: bool,
    /// Reading was stopped.
    paused: bool,
}

/// One connection. Driven like every machine: one `handle_*` or an answer, then `poll_event` and
/// `poll_io` to `None`.
#[derive(Debug)]
pub struct HttpConnection {
    wire: WireId,
    bounds: Bounds,
    phase: Phase,
    clocks: Clocks,
    asks: Asks,
    /// The time of the last input.
    now: Now,
    reader: RequestReader,
    /// The head to read into. Boxed, for it goes through many hands and comes back.
    head: Option<Box<HttpHead>>,
    /// What a head asked of the connection; those that repeat it ask the same. Boxed, for an idle connection
    /// has none.
    terms: Option<Box<(HeadSerial, Terms)>>,
    /// Content of the body in progress.
    body: Vec<u8>,
    /// An empty buffer that was a body before.
    spare: Vec<u8>,
    /// Input that waits; up to `stash_used` it was read.
    stash: Vec<u8>,
    stash_used: usize,
    /// The client will send no more.
    ended: bool,
    exchanges: Exchanges,
    out: OutBuf,
    /// An answer that was begun in a buffer and is not committed.
    open: Option<OpenAnswer>,
    /// Takes what is written for an exchange that is gone.
    scratch: Vec<u8>,
    date: DateText,
    events: VecDeque<HttpEvent>,
}

impl HttpConnection {
    /// A connection that a listener accepted: its wire is open.
    #[must_use]
    pub fn new(wire: WireId, limits: &Limits, now: Now) -> Self {
        let bounds = Bounds::from(limits);
        Self {
            wire,
            phase: Phase::Head,
            clocks: Clocks::new(&bounds, now),
            bounds,
            asks: Asks::default(),
            now,
            reader: RequestReader::new(HeadLimits::from(limits)),
            head: None,
            terms: None,
            body: Vec::new(),
            spare: Vec::new(),
            stash: Vec::new(),
            stash_used: 0,
            ended: false,
            exchanges: Exchanges::default(),
            out: OutBuf::new(),
            open: None,
            scratch: Vec::new(),
            date: DateText::new(),
            events: VecDeque::new(),
        }
    }

    /// The wire it was made with.
    #[must_use]
    pub const fn wire(&self) -> WireId {
        self.wire
    }

    /// Something happened on the wire.
    pub fn handle_io(&mut self, now: Now, event: IoEvent<'_>) {
        self.enter(now);
        match event {
            IoEvent::Bytes(bytes) => self.handle_bytes(bytes),
            IoEvent::Eof => self.handle_end(),
            IoEvent::Drained => self.handle_drained(),
            IoEvent::WriteClosed => self.close(),
            IoEvent::Failed(fault) => {
                log::debug!("wire {}: {}", self.wire, fault.message);
                self.end();
            }
            // Accepted wires are open; the others are of children only.
            IoEvent::Opened | IoEvent::StderrBytes(_) | IoEvent::Exited(_) => {}
        }
    }

    /// Everything has left: whether that is no news, as between two requests it is not. Otherwise the
    /// owner goes on with [`handle_io`](Self::handle_io).
    pub fn is_drained_unmoved(&mut self, now: Now) -> bool {
        let unmoved = !matches!(self.phase, Phase::Leaving) && !self.asks.paused;
        if unmoved {
            self.enter(now);
        }
        unmoved
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<HttpEvent> {
        self.events.pop_front()
    }

    /// The next thing the loop is to do. Drain [`poll_event`](Self::poll_event) first.
    pub fn poll_io(&mut self) -> Option<IoRequest> {
        self.roll_back();
        if std::mem::take(&mut self.asks.close) {
            return Some(IoRequest::Close(self.wire));
        }
        if std::mem::take(&mut self.asks.flush) {
            return Some(IoRequest::Flush(self.wire));
        }
        if std::mem::take(&mut self.asks.finish) {
            return Some(IoRequest::Finish(self.wire));
        }
        let pause = self.is_fed_enough();
        if pause == self.asks.paused {
            return None;
        }
        self.asks.paused = pause;
        if !pause {
            self.clocks.restart(&self.phase, &self.bounds, self.now);
        }
        Some(IoRequest::PauseReads(self.wire, pause))
    }

    /// Bytes on their way out.
    pub fn outgoing(&mut self) -> &mut OutBuf {
        self.roll_back();
        &mut self.out
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        if matches!(self.phase, Phase::Closed) {
            return None;
        }
        self.clocks
            .next(&self.bounds, !self.out.is_empty(), self.asks.paused)
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Now) {
        self.enter(now);
        self.ring(now);
    }

    /// Bytes that wait for the client. Whoever feeds a stream stops above `out_high_bytes`.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.out.len() + self.exchanges.held_bytes()
    }

    /// Whether the client has ended its direction: it may still read, or be gone.
    #[must_use]
    pub const fn has_client_ended(&self) -> bool {
        self.ended
    }

    /// Whether no request is open: nothing is lost when the connection is closed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Head) && self.exchanges.is_empty() && !self.reader.has_begun()
    }

    /// Whether the connection is over.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// Gives a body back, so that the next one needs no allocation.
    pub fn recycle(&mut self, mut body: Vec<u8>) {
        body.clear();
        if body.capacity() > self.bounds.body_buffer_bytes_max {
            return;
        }
        if self.stash.capacity() == 0 && self.spare.capacity() > 0 {
            self.stash = body;
        } else if body.capacity() > self.spare.capacity() {
            self.spare = body;
        }
    }

    /// Gives a head back, so that the next one needs no allocation.
    pub fn recycle_head(&mut self, head: Box<HttpHead>) {
        self.head.get_or_insert(head);
    }

    /// Ends the connection at once. Open exchanges are told as gone.
    pub fn abort(&mut self) {
        self.roll_back();
        self.close();
    }

    /// The beginning of every input: what was begun and not committed is undone, and what has left is
    /// noticed.
    fn enter(&mut self, now: Now) {
        self.now = now;
        self.roll_back();
        self.clocks.look(self.out.len(), now);
    }

    /// The connection is over, and its wire with it.
    fn close(&mut self) {
        self.asks.close |= self.end();
    }

    /// The connection is over; false when it was already.
    fn end(&mut self) -> bool {
        if matches!(self.phase, Phase::Closed) {
            return false;
        }
        self.phase = Phase::Closed;
        for (exchange, found) in self.exchanges.iter_mut() {
            if found.told && found.answer != exchange::Answer::Done {
                self.events.push_back(HttpEvent::Gone { exchange });
            }
        }
        self.exchanges.clear();
        self.out = OutBuf::new();
        self.drop_input();
        self.asks = Asks::default();
        self.events.push_back(HttpEvent::Closed);
        true
    }
}

#[cfg(test)]
mod tests;
