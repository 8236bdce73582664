//! When an answer becomes a stream, and how a stream begins and stays alive.

use super::exchange::{Exchange, ExchangeRef};
use super::front::HttpFront;
use super::sessions::EventId;
use crate::clock::Now;

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
}
