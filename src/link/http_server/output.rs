//! From answers to bytes.

use super::answer::{
    CONTINUE, Persistence, has_body, patch_json_date, write_head, write_json_head, write_sse_head,
};
use super::exchange::{Answer, ExchangeId};
use super::{HttpConnection, Phase};
use crate::clock::Now;
use crate::codec::http_body::{
    CHUNKED_END, ChunkMark, LengthMark, begin_chunk, end_chunk, patch_length, write_chunk,
};
use crate::codec::sse::{EventMark, begin_event, end_event, write_comment};

/// An answer that is being written into a buffer by its owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenAnswer {
    place: usize,
    /// The buffer's length before.
    start: usize,
    /// What waited for the client then.
    unsent: usize,
    part: Part,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Json(LengthMark),
    Event(Option<ChunkMark>, EventMark),
}

impl HttpConnection {
    /// Answers an exchange as a whole: final status, fields, body. Length and connection fields are
    /// added. Without effect when the exchange has its answer, or is gone.
    pub fn respond(
        &mut self,
        now: Now,
        exchange: ExchangeId,
        status: u16,
        headers: &[(&str, &str)],
        body: &[u8],
    ) {
        self.enter(now);
        if let Some(place) = self.begin_answer(exchange) {
            self.answer(place, status, headers, body);
        }
    }

    /// Begins a JSON answer (status 200): the body is to be appended to the buffer given, then
    /// [`commit_json`](Self::commit_json) called, nothing else in between; anything else undoes it.
    pub fn begin_json(&mut self, exchange: ExchangeId, headers: &[(&str, &str)]) -> &mut Vec<u8> {
        self.roll_back();
        let Some(place) = self.begin_answer(exchange) else {
            return &mut self.scratch;
        };
        let persistence = self.persistence(place);
        let unsent = self.out.len();
        let out = self.buffer(place);
        let start = out.len();
        let mark = write_json_head(out, headers, persistence);
        let part = Part::Json(mark);
        self.begin_part(place, start, unsent, part)
    }

    /// Ends what [`begin_json`](Self::begin_json) began: the answer is complete.
    pub fn commit_json(&mut self, now: Now, exchange: ExchangeId) {
        let Some((place, start, Part::Json(mark))) = self.take_open(now, exchange) else {
            return self.roll_back();
        };
        self.open = None;
        let date = *self.date.at(now.unix_ms);
        let head_only = self.exchanges.at(place).is_some_and(|e| e.head_only);
        let out = self.buffer(place);
        patch_length(out, mark);
        patch_json_date(out, start, &date);
        if head_only {
            out.truncate(mark.body);
        }
        self.end_answer(place);
    }

    /// Begins an event stream (status 200) as the answer; its head leaves at once.
    pub fn start_sse(&mut self, now: Now, exchange: ExchangeId, headers: &[(&str, &str)]) {
        self.enter(now);
        let Some(place) = self.begin_answer(exchange) else {
            return;
        };
        let Some(found) = self.exchanges.at(place) else {
            return;
        };
        found.answer = Answer::Stream;
        let chunked = found.chunked();
        if !chunked {
            // Its end is the connection's end.
            found.close = true;
            if matches!(self.phase, Phase::Head) {
                self.no_more_requests();
            }
        }
        let persistence = self.persistence(place);
        let date = *self.date.at(now.unix_ms);
        write_sse_head(self.buffer(place), &date, headers, chunked, persistence);
        self.wrote(place);
    }

    /// Begins an event of a stream with one data line: its text is to be appended to the buffer given,
    /// then [`commit_event`](Self::commit_event) called, nothing else in between; anything else
    /// undoes it.
    pub fn begin_event(
        &mut self,
        exchange: ExchangeId,
        event: Option<&str>,
        id: Option<&str>,
    ) -> &mut Vec<u8> {
        self.roll_back();
        let Some((place, chunked)) = self.stream(exchange) else {
            return &mut self.scratch;
        };
        let unsent = self.out.len();
        let out = self.buffer(place);
        let start = out.len();
        let chunk = chunked.then(|| begin_chunk(out));
        let part = Part::Event(chunk, begin_event(out, event, id));
        self.begin_part(place, start, unsent, part)
    }

    /// Ends what [`begin_event`](Self::begin_event) began: the event may leave.
    pub fn commit_event(&mut self, now: Now, exchange: ExchangeId) {
        let Some((place, _, Part::Event(chunk, mark))) = self.take_open(now, exchange) else {
            return self.roll_back();
        };
        self.open = None;
        let out = self.buffer(place);
        end_event(out, mark);
        if let Some(chunk) = chunk {
            end_chunk(out, chunk);
        }
        self.wrote(place);
    }

    /// Sends a comment on a stream: a sign of life.
    pub fn sse_comment(&mut self, now: Now, exchange: ExchangeId, text: &[u8]) {
        self.enter(now);
        if let Some((place, chunked)) = self.stream(exchange) {
            let out = self.buffer(place);
            let chunk = chunked.then(|| begin_chunk(out));
            write_comment(out, text);
            if let Some(chunk) = chunk {
                end_chunk(out, chunk);
            }
            self.wrote(place);
        }
    }

    /// Sends text on a stream as it is: whole lines of the event-stream format.
    pub fn sse_raw(&mut self, now: Now, exchange: ExchangeId, text: &[u8]) {
        self.enter(now);
        if let Some((place, chunked)) = self.stream(exchange) {
            let out = self.buffer(place);
            if chunked {
                write_chunk(out, text);
            } else {
                out.extend_from_slice(text);
            }
            self.wrote(place);
        }
    }

    /// Ends a stream: the answer is complete.
    pub fn finish_sse(&mut self, now: Now, exchange: ExchangeId) {
        self.enter(now);
        let Some(place) = self.exchanges.place(exchange) else {
            return;
        };
        let Some(found) = self.exchanges.at(place) else {
            return;
        };
        if found.answer != Answer::Stream {
            return;
        }
        if found.chunked() && !found.head_only {
            self.buffer(place).extend_from_slice(CHUNKED_END);
        }
        self.end_answer(place);
    }

    /// Undoes what was begun and not committed.
    pub(super) fn roll_back(&mut self) {
        if let Some(open) = self.open.take() {
            self.buffer(open.place).truncate(open.start);
        }
        if !self.scratch.is_empty() {
            self.scratch = Vec::new();
        }
    }

    /// A fault of the request, in words.
    pub(super) fn answer_fault(&mut self, place: usize, status: u16, why: &str) {
        let headers: &[(&str, &str)] = if status == 415 {
            &[
                ("Content-Type", "text/plain"),
                ("Accept-Encoding", "identity"),
            ]
        } else {
            &[("Content-Type", "text/plain")]
        };
        self.answer(place, status, headers, format!("{why}\n").as_bytes());
    }

    /// The interim answer that a client waits for before it sends its body.
    pub(super) fn send_continue(&mut self, place: usize) {
        self.buffer(place).extend_from_slice(CONTINUE);
        self.wrote(place);
    }

    /// Sends something that a client ignores and that makes one that is gone reset the connection.
    pub(super) fn probe(&mut self) {
        if !self.out.is_empty() {
            return;
        }
        let Some(front) = self.exchanges.front() else {
            return;
        };
        match front.answer {
            Answer::Awaited if front.old => return,
            Answer::Awaited => self.buffer(0).extend_from_slice(CONTINUE),
            Answer::Stream if front.head_only => return,
            Answer::Stream if front.chunked() => write_chunk(self.buffer(0), b":\n\n"),
            Answer::Stream => self.buffer(0).extend_from_slice(b":\n\n"),
            Answer::Done => return,
        }
        self.wrote(0);
    }

    /// Appends bytes that waited to what leaves.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.out.tail().extend_from_slice(bytes);
            self.wrote(0);
        }
    }

    /// An answer to the exchange begins. A request whose body is not here is not read on.
    fn begin_answer(&mut self, exchange: ExchangeId) -> Option<usize> {
        let place = self.exchanges.place(exchange)?;
        if !self.awaits_answer(place) {
            return None;
        }
        if place + 1 == self.exchanges.len() {
            match &self.phase {
                Phase::Deciding(terms) if terms.framing.is_empty() => {
                    self.next_request();
                    if self.ended && self.stash.is_empty() {
                        self.input_is_over();
                    }
                }
                Phase::Deciding(_) | Phase::Body(_) => self.no_more_requests(),
                Phase::Head | Phase::Done | Phase::Leaving | Phase::Closed => {}
            }
        }
        Some(place)
    }

    fn answer(&mut self, place: usize, status: u16, headers: &[(&str, &str)], body: &[u8]) {
        let status = if (200..=599).contains(&status) {
            status
        } else {
            log::error!("{status} is no final status");
            500
        };
        let persistence = self.persistence(place);
        let head_only = self.exchanges.at(place).is_some_and(|e| e.head_only);
        let date = *self.date.at(self.now.unix_ms);
        let length = has_body(status).then_some(body.len());
        let out = self.buffer(place);
        write_head(out, status, &date, headers, length, persistence);
        if length.is_some() && !head_only {
            out.extend_from_slice(body);
        }
        self.end_answer(place);
    }

    fn end_answer(&mut self, place: usize) {
        if let Some(found) = self.exchanges.at(place) {
            found.answer = Answer::Done;
        }
        self.wrote(place);
        self.settle();
    }

    /// The open stream of an exchange: its place, and whether it is chunked.
    fn stream(&mut self, exchange: ExchangeId) -> Option<(usize, bool)> {
        let place = self.exchanges.place(exchange)?;
        let found = self.exchanges.at(place)?;
        let open = found.answer == Answer::Stream && !found.head_only;
        open.then(|| (place, found.chunked()))
    }

    fn begin_part(
        &mut self,
        place: usize,
        start: usize,
        unsent: usize,
        part: Part,
    ) -> &mut Vec<u8> {
        self.open = Some(OpenAnswer {
            place,
            start,
            unsent,
            part,
        });
        self.buffer(place)
    }

    /// The part that is being committed. What belongs to another exchange, or is of another kind, stays
    /// and is undone.
    fn take_open(&mut self, now: Now, exchange: ExchangeId) -> Option<(usize, usize, Part)> {
        self.now = now;
        let open = self.open?;
        if self.exchanges.place(exchange) != Some(open.place) {
            return None;
        }
        self.clocks.look(open.unsent, now);
        Some((open.place, open.start, open.part))
    }

    fn persistence(&mut self, place: usize) -> Persistence {
        match self.exchanges.at(place) {
            Some(found) if found.close => Persistence::Close,
            Some(found) if found.old => Persistence::KeepOld,
            Some(_) | None => Persistence::Keep,
        }
    }

    /// Where the answer at `place` is written: the oldest one leaves, the others wait.
    fn buffer(&mut self, place: usize) -> &mut Vec<u8> {
        if place == 0 {
            return self.out.tail();
        }
        match self.exchanges.at(place) {
            Some(found) => &mut found.held,
            None => &mut self.scratch,
        }
    }

    fn wrote(&mut self, place: usize) {
        if place == 0 {
            self.asks.flush = true;
            self.clocks.wrote(self.out.len(), &self.bounds, self.now);
        }
    }
}
