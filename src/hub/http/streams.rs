//! Streams of events: when an answer becomes one, how one begins, stays alive, is taken over by a client that
//! comes back, and ends.

use super::exchange::{Exchange, ExchangeRef, Purpose};
use super::front::{HttpFront, Work};
use super::refusals;
use super::serve::session_of;
use super::sessions::{Attach, EventId, StreamId};
use crate::clock::Now;
use crate::ids::PeerId;
use crate::link::http_rules::{Accepts, HttpRefusal, Principal, check_get};
use crate::link::http_server::HttpHead;
use crate::protocol::server::RequestKey;

impl HttpFront {
    /// Streams begin late: only a request that is still unanswered after a while gets one by itself.
    pub(super) fn wait_for_start(&mut self, now: Now, exchange: ExchangeRef) {
        let at = now.after(self.limits.stream_start_interval);
        self.unanswered.push((at, exchange));
    }

    /// The turn is over: what has its answer by now, as most have, waits for nothing.
    pub(super) fn queue_starts(&mut self) {
        let Self {
            unanswered,
            starts,
            exchanges,
            ..
        } = self;
        let waits = |of| exchanges.get(&of).is_some_and(Exchange::may_start);
        for (at, exchange) in unanswered.drain(..) {
            if waits(exchange) {
                starts.push(at, exchange, exchanges.len(), waits);
            }
        }
    }

    /// Begins the streams of what still has no answer after its wait.
    pub(super) fn start_due_streams(&mut self, now: Now) {
        while let Some(exchange) = self.starts.pop(now) {
            let open = self.exchanges.get(&exchange);
            if open.is_some_and(Exchange::may_start) {
                self.start_stream(now, exchange);
            }
        }
    }

    /// Begins the stream of an exchange, with a first event to resume after where its session can resume.
    pub(super) fn start_stream(&mut self, now: Now, exchange: ExchangeRef) {
        let Some(open) = self.exchanges.get_mut(&exchange) else {
            return;
        };
        if open.sse {
            return;
        }
        open.sse = true;
        // A full session streams all the same, only not for a second try.
        let stream = open
            .peer
            .and_then(|peer| self.sessions.new_stream(peer, exchange.carrier()).ok());
        open.stream = stream;
        let Some(connection) = self.connections.get_mut(&exchange.wire) else {
            return;
        };
        match &open.announces {
            Some(id) => {
                connection
                    .http
                    .start_sse(now, exchange.id, &[("Mcp-Session-Id", id.as_str())])
            }
            None => connection.http.start_sse(now, exchange.id, &[]),
        }
        if let Some(stream) = stream {
            let retry = self.limits.sse_retry_interval.as_millis();
            let id = EventId { stream, n: 0 };
            let priming = format!("id: {id}\nretry: {retry}\ndata: \n\n");
            connection
                .http
                .sse_raw(now, exchange.id, priming.as_bytes());
        }
        self.keep_alive(now, exchange);
        self.touch(exchange.wire);
    }

    /// Streams that were long silent get a comment, so that nobody on the way takes them for dead.
    pub(super) fn comment_due_streams(&mut self, now: Now) {
        while let Some(exchange) = self.keepalives.pop(now) {
            let alive = self.exchanges.get(&exchange).is_some_and(Exchange::streams);
            if let (true, Some(connection)) = (alive, self.connections.get_mut(&exchange.wire)) {
                connection.http.sse_comment(now, exchange.id, b"keep-alive");
                self.keep_alive(now, exchange);
                self.touch(exchange.wire);
            }
        }
    }

    /// The next comment of a stream is due so long from now.
    pub(super) fn keep_alive(&mut self, now: Now, exchange: ExchangeRef) {
        let next = now.after(self.limits.sse_keepalive_interval);
        let Self {
            keepalives,
            exchanges,
            ..
        } = self;
        let streams = |of| exchanges.get(&of).is_some_and(Exchange::streams);
        keepalives.push(next, exchange, exchanges.len(), streams);
    }

    /// GET `/mcp`: the session's own stream, or the rest of one that was cut.
    pub(super) fn open_stream(
        &mut self,
        now: Now,
        exchange: ExchangeRef,
        head: &HttpHead,
        principal: Principal,
    ) -> Result<(), HttpRefusal> {
        check_get(head)?;
        let peer = session_of(&mut self.sessions, now, head, principal)?;
        let last = head.field("last-event-id");
        let resumed = last.and_then(|id| self.sessions.replay_after(peer, id));
        let replay = match resumed {
            Some(replay) => Some(replay),
            None => self.sessions.replay_unsent(peer, StreamId::STANDALONE),
        };
        let Some(replay) = replay else {
            return Err(refusals::unknown_session());
        };
        let (stream, finished, lost) = (replay.after.stream, replay.finished, replay.lost);
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            connection.http.start_sse(now, exchange.id, &[]);
            for (id, payload) in replay {
                let out = connection
                    .http
                    .begin_event(exchange.id, None, Some(&id.text()));
                out.extend_from_slice(payload);
                connection.http.commit_event(now, exchange.id);
            }
        }
        let lost = lost.max(self.sessions.take_dropped(peer));
        if lost > 0 {
            self.work.push_back(Work::Lost(lost));
        }
        let mut open = Exchange::new(
            Purpose::Stream,
            principal,
            Accepts {
                json: false,
                sse: true,
            },
        );
        open.peer = Some(peer);
        open.sse = true;
        open.stream = Some(stream);
        // A second stream takes the place of the first, whose client may be long gone.
        if let Attach::Displaced(old) = self.sessions.attach(peer, stream, exchange.carrier()) {
            self.displace(now, ExchangeRef::of_carrier(old));
        }
        self.take_over(peer, stream, exchange, &mut open);
        self.exchanges.insert(exchange, open);
        self.keep_alive(now, exchange);
        if finished {
            self.finish_stream(now, exchange);
        }
        Ok(())
    }

    /// The requests of a stream that was cut are answered here from now on.
    fn take_over(
        &mut self,
        peer: PeerId,
        stream: StreamId,
        exchange: ExchangeRef,
        open: &mut Exchange,
    ) {
        let cut = |of: &Exchange| of.gone && of.peer == Some(peer) && of.stream == Some(stream);
        let Some(old) = self
            .exchanges
            .iter()
            .find(|(_, of)| cut(of))
            .map(|(id, _)| *id)
        else {
            return;
        };
        if let Some(before) = self.exchanges.remove(&old) {
            for key in before.open.iter() {
                self.routes.insert((peer, key), exchange);
            }
            open.open = before.open;
        }
    }

    /// An exchange carries its stream no more, though its client is still there.
    fn displace(&mut self, now: Now, exchange: ExchangeRef) {
        if let Some(open) = self.exchanges.get_mut(&exchange) {
            open.gone = true;
        }
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            connection.http.finish_sse(now, exchange.id);
        }
        self.touch(exchange.wire);
    }

    /// The last event of a stream was written.
    pub(super) fn finish_stream(&mut self, now: Now, exchange: ExchangeRef) {
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            connection.http.finish_sse(now, exchange.id);
        }
        self.forget(now, exchange);
        self.touch(exchange.wire);
    }

    /// Ends the stream of a request early: its client comes back for the rest. Only streams that can be
    /// resumed end so. Spec: 2025-11-25 basic/transports (polling).
    pub(in crate::hub) fn release_stream(&mut self, now: Now, peer: PeerId, key: RequestKey) {
        let Some(exchange) = self.routes.get(&(peer, key)).copied() else {
            return;
        };
        self.start_stream(now, exchange);
        let Some(open) = self.exchanges.get_mut(&exchange) else {
            return;
        };
        if open.stream.is_none() {
            return;
        }
        open.gone = true;
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            connection.http.finish_sse(now, exchange.id);
            connection.released.push(exchange.id);
        }
        self.touch(exchange.wire);
    }
}
