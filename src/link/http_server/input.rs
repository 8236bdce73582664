//! From bytes to events.

use super::exchange::{Answer, Exchange, ExchangeId};
use super::request::{Terms, TermsError};
use super::time::Wait;
use super::{HttpConnection, HttpEvent, Phase};
use crate::clock::Now;
use crate::codec::http_body::{BodyDecoder, BodyError, BodyPiece};
use crate::codec::http1::HttpHead;

impl HttpConnection {
    /// The owner wants the body of the request whose head was told last. Without effect when it was
    /// answered, or is gone.
    pub fn accept(&mut self, now: Now, exchange: ExchangeId) {
        self.enter(now);
        let Some(place) = self.exchanges.place(exchange) else {
            return;
        };
        let Phase::Deciding(terms) = self.phase else {
            return;
        };
        if place + 1 != self.exchanges.len() {
            return;
        }
        match BodyDecoder::new(terms.framing, self.bounds.body) {
            Ok(decoder) => self.phase = Phase::Body(decoder),
            Err(error) => return self.fail_body(error.status(), &error.to_string()),
        }
        self.clocks.wait = Wait::Body(now.after(self.bounds.body_timeout));
        if terms.expects_continue {
            self.send_continue(place);
        }
        self.adopt_stash();
        self.read_stash();
    }

    /// No further request is read; those that were are answered. Then the connection ends.
    pub fn close_after(&mut self) {
        self.roll_back();
        if matches!(self.phase, Phase::Head) {
            self.no_more_requests();
            self.settle();
        } else if let (Phase::Deciding(_) | Phase::Body(_), Some(last)) =
            (&self.phase, self.exchanges.last())
        {
            last.close = true;
        }
    }

    pub(super) fn handle_bytes(&mut self, bytes: &[u8]) {
        if self.stash.is_empty() {
            let mut rest = bytes;
            self.read(&mut rest);
            self.keep(rest);
        } else {
            self.keep(bytes);
            self.read_stash();
        }
    }

    /// Keeps input for later.
    fn keep(&mut self, rest: &[u8]) {
        if rest.is_empty() || !matches!(self.phase, Phase::Head | Phase::Deciding(_)) {
            return;
        }
        if self.stash.capacity() == 0 {
            std::mem::swap(&mut self.stash, &mut self.spare);
        }
        self.stash.extend_from_slice(rest);
    }

    /// Reads what was kept.
    pub(super) fn read_stash(&mut self) {
        let stash = std::mem::take(&mut self.stash);
        let mut rest = &stash[self.stash_used..];
        self.read(&mut rest);
        let used = stash.len() - rest.len();
        self.stash = stash;
        self.stash_used = used;
        if used == self.stash.len() {
            self.stash.clear();
            self.stash_used = 0;
        } else if used > self.stash.len() / 2 {
            self.stash.drain(..used);
            self.stash_used = 0;
        }
        if self.ended && self.stash.is_empty() {
            self.input_is_over();
        }
    }

    /// A body that begins what was kept, and reaches to its end at least, is not copied.
    fn adopt_stash(&mut self) {
        let Phase::Body(decoder) = &mut self.phase else {
            return;
        };
        let waiting = self.stash.len() - self.stash_used;
        let fits = u64::try_from(waiting).is_ok_and(|waiting| waiting <= decoder.missing());
        if waiting == 0 || self.stash_used > 0 || !self.body.is_empty() || !fits {
            return;
        }
        let mut input = self.stash.as_slice();
        // A body of this length takes its bytes as they come; they are in place already.
        if decoder.next(&mut input).is_ok() {
            std::mem::swap(&mut self.stash, &mut self.body);
        }
    }

    /// Reads on until input is needed, or the owner.
    fn read(&mut self, input: &mut &[u8]) {
        loop {
            match &self.phase {
                Phase::Head if input.is_empty() => return,
                Phase::Head if self.holds_back() => return,
                Phase::Head => self.read_head(input),
                Phase::Body(_) => {
                    if !self.read_body(input) {
                        return;
                    }
                }
                Phase::Deciding(_) => return,
                Phase::Done | Phase::Leaving | Phase::Closed => {
                    *input = &[];
                    return;
                }
            }
        }
    }

    /// Whether the next request waits for an answer: too many are open, or the last one is of an old
    /// client, whose answer may turn out to end with the connection.
    fn holds_back(&self) -> bool {
        let full = self.exchanges.len() >= self.bounds.pipelined_requests_max;
        full || self.exchanges.newest().is_some_and(|newest| newest.old)
    }

    fn read_head(&mut self, input: &mut &[u8]) {
        let head = self.head.get_or_insert_default();
        match self.reader.read_into(input, head) {
            Ok(None) => {
                *input = &[];
                let waits = matches!(self.clocks.wait, Wait::Head(_));
                if !waits && self.reader.has_begun() {
                    self.clocks.wait = Wait::Head(self.now.after(self.bounds.header_timeout));
                }
            }
            Ok(Some(used)) => {
                *input = &input[used..];
                self.take_head();
            }
            Err(error) => self.refuse(false, error.status(), &error.to_string()),
        }
    }

    fn take_head(&mut self) {
        let Some(head) = self.head.take() else {
            return;
        };
        let head_only = head.method() == "HEAD";
        let terms = match self.read_terms(&head) {
            Ok(terms) => terms,
            Err(error) => return self.refuse(head_only, error.status(), &error.to_string()),
        };
        let exchange = self.exchanges.push(Exchange {
            told: true,
            close: !terms.keep_alive || self.exchanges.is_last_id(),
            old: head.minor() == 0,
            head_only,
            ..Exchange::new()
        });
        self.phase = Phase::Deciding(terms);
        self.clocks.wait = Wait::Nothing;
        self.clocks.trim = None;
        self.events.push_back(HttpEvent::Head { exchange, head });
        self.expect_probe(0);
    }

    fn read_terms(&mut self, head: &HttpHead) -> Result<Terms, TermsError> {
        let (serial, body_bytes_max) = (head.serial(), self.bounds.body.bytes_max);
        let known = self.terms.as_deref().filter(|(of, _)| *of == serial);
        if let Some(terms) = known.and_then(|(_, terms)| terms.again(head, body_bytes_max)) {
            return Ok(terms);
        }
        let terms = Terms::of(head, self.bounds.target_bytes_max, body_bytes_max)?;
        match &mut self.terms {
            Some(known) => **known = (serial, terms),
            None => self.terms = Some(Box::new((serial, terms))),
        }
        Ok(terms)
    }

    /// Reads a body; false when it needs more input.
    fn read_body(&mut self, input: &mut &[u8]) -> bool {
        let Phase::Body(decoder) = &mut self.phase else {
            return false;
        };
        match decoder.next(input) {
            Ok(BodyPiece::Data(data)) => {
                if self.body.capacity() == 0 {
                    std::mem::swap(&mut self.body, &mut self.spare);
                }
                self.body.extend_from_slice(data);
                true
            }
            Ok(BodyPiece::NeedMore) => false,
            Ok(BodyPiece::End) => {
                self.end_body();
                true
            }
            Err(error) => {
                self.fail_body(error.status(), &error.to_string());
                true
            }
        }
    }

    fn end_body(&mut self) {
        let place = self.exchanges.len().saturating_sub(1);
        let exchange = self.exchanges.id_at(place);
        let body = std::mem::take(&mut self.body);
        self.next_request();
        self.events.push_back(HttpEvent::Body { exchange, body });
    }

    /// The request was read to its end.
    pub(super) fn next_request(&mut self) {
        self.clocks.wait = Wait::Nothing;
        if self.exchanges.last().is_some_and(|last| last.close) {
            self.no_more_requests();
        } else {
            self.phase = Phase::Head;
        }
    }

    /// The request being read is not read to its end, and none behind it.
    pub(super) fn no_more_requests(&mut self) {
        if let Some(last) = self.exchanges.last() {
            last.close = true;
        }
        self.phase = Phase::Done;
        self.clocks.wait = Wait::Nothing;
        self.drop_input();
    }

    pub(super) fn drop_input(&mut self) {
        self.stash = Vec::new();
        self.stash_used = 0;
        self.body = Vec::new();
        self.spare = Vec::new();
    }

    /// Answers a request that its owner does not get to see; the connection ends behind it.
    pub(super) fn refuse(&mut self, head_only: bool, status: u16, why: &str) {
        let exchange = self.exchanges.push(Exchange {
            close: true,
            head_only,
            ..Exchange::new()
        });
        self.no_more_requests();
        if let Some(place) = self.exchanges.place(exchange) {
            self.answer_fault(place, status, why);
        }
    }

    /// Answers a request whose owner does not get its body; the connection ends behind it.
    pub(super) fn fail_body(&mut self, status: u16, why: &str) {
        let place = self.exchanges.len().saturating_sub(1);
        let exchange = self.exchanges.id_at(place);
        self.no_more_requests();
        self.events.push_back(HttpEvent::Gone { exchange });
        self.answer_fault(place, status, why);
    }

    /// The client will send no more.
    pub(super) fn handle_end(&mut self) {
        self.ended = true;
        if self.stash.is_empty() {
            self.input_is_over();
        }
        self.expect_probe(0);
    }

    /// The client will send no more, and all that it sent was read.
    pub(super) fn input_is_over(&mut self) {
        match &self.phase {
            Phase::Head if self.reader.has_begun() => {
                self.refuse(false, 400, "request ends within its head");
            }
            Phase::Head if self.exchanges.is_empty() && self.out.is_empty() => self.close(),
            Phase::Head => {
                self.no_more_requests();
                self.settle();
            }
            Phase::Body(_) => {
                let error = BodyError::Truncated;
                self.fail_body(error.status(), &error.to_string());
            }
            Phase::Deciding(_) | Phase::Done | Phase::Leaving | Phase::Closed => {}
        }
    }

    pub(super) fn handle_drained(&mut self) {
        if matches!(self.phase, Phase::Leaving) && self.out.is_empty() {
            self.asks.finish |= self.end();
        }
    }

    /// All answers are given: lets them leave.
    pub(super) fn leave(&mut self) {
        debug_assert!(
            self.exchanges.is_empty(),
            "only the last answer ends the connection"
        );
        self.phase = Phase::Leaving;
        self.clocks.wait = Wait::Nothing;
        self.clocks.probe = None;
        self.drop_input();
        self.handle_drained();
    }

    /// Takes complete answers off, lets the next ones follow and reads on.
    pub(super) fn settle(&mut self) {
        while let Some(done) = self.exchanges.pop_done() {
            if done.close {
                return self.leave();
            }
            if let Some(next) = self.exchanges.front() {
                let held = std::mem::take(&mut next.held);
                self.send(&held);
            }
        }
        match self.phase {
            Phase::Done if self.exchanges.is_empty() => return self.leave(),
            Phase::Head if self.exchanges.is_empty() && !self.reader.has_begun() => {
                self.clocks.wait = Wait::Idle(self.now.after(self.bounds.idle_timeout));
                self.clocks.trim = Some(self.now.after(self.bounds.trim_interval));
            }
            Phase::Head
            | Phase::Deciding(_)
            | Phase::Body(_)
            | Phase::Done
            | Phase::Leaving
            | Phase::Closed => {}
        }
        if matches!(self.phase, Phase::Head) && !self.stash.is_empty() {
            self.read_stash();
        }
    }

    /// Whether no more input is wanted for now.
    pub(super) fn is_fed_enough(&self) -> bool {
        match self.phase {
            Phase::Head | Phase::Deciding(_) | Phase::Body(_) => {
                let mark = if self.asks.paused {
                    self.bounds.out_low_bytes
                } else {
                    self.bounds.out_high_bytes
                };
                !self.stash.is_empty() || self.backlog() > mark
            }
            Phase::Done | Phase::Leaving | Phase::Closed => false,
        }
    }

    /// Whether an answer to the exchange at `place` is still awaited.
    pub(super) fn awaits_answer(&mut self, place: usize) -> bool {
        let found = self.exchanges.at(place);
        found.is_some_and(|found| found.answer == Answer::Awaited)
    }
}
