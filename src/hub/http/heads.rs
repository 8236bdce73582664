//! The head of a request: who may ask this, and what for. A good one leads to a body, to a stream or to the
//! end of a session; any other to an answer that says why not.

use super::connections::KnownHead;
use super::exchange::{Exchange, ExchangeRef, Purpose};
use super::front::{HttpFront, Work};
use super::refusals;
use crate::clock::Now;
use crate::link::http_rules::{HttpRefusal, Principal, check_access, check_post};
use crate::link::http_server::HttpHead;

impl HttpFront {
    /// A head came in; its body, if there is one, is not read before this says so.
    pub(super) fn handle_head(&mut self, now: Now, exchange: ExchangeRef, head: Box<HttpHead>) {
        let connection = self.connections.get(&exchange.wire);
        if connection.is_some_and(|connection| connection.surplus) {
            return self.refuse_surplus(now, exchange);
        }
        if let Some(known) = self.connections.known(exchange.wire, &head) {
            let mut open = Exchange::new(Purpose::Post, known.principal, known.accepts);
            open.head = Some(head);
            return self.expect_body(now, exchange, open);
        }
        let principal = match check_access(&*head, &self.rules) {
            Ok(principal) => principal,
            Err(refusal) => return self.refuse(now, exchange, &refusal),
        };
        let path = head.target().split('?').next().unwrap_or("");
        if (path, head.method()) == ("/mcp", "POST") {
            let outcome = self.expect_post(now, exchange, head, principal);
            return outcome.unwrap_or_else(|refusal| self.refuse(now, exchange, &refusal));
        }
        let path = path.to_owned();
        let outcome = match (path.as_str(), head.method()) {
            ("/mcp", "GET") => self.open_stream(now, exchange, &head, principal),
            ("/mcp", "DELETE") => self.delete_session(now, exchange, &head, principal),
            ("/sse", "GET") => {
                self.work.push_back(Work::OpenLegacy {
                    exchange,
                    principal,
                });
                Ok(())
            }
            ("/messages", "POST") => self.expect_legacy_post(now, exchange, head, principal),
            ("/mcp", _) => Err(refusals::method_not_allowed("GET, POST, DELETE")),
            ("/sse", _) => Err(refusals::method_not_allowed("GET")),
            ("/messages", _) => Err(refusals::method_not_allowed("POST")),
            _ => Err(refusals::not_found(&path)),
        };
        if let Err(refusal) = outcome {
            self.refuse(now, exchange, &refusal);
        }
    }

    /// One connection too many: it is told so, and may not ask again.
    fn refuse_surplus(&mut self, now: Now, exchange: ExchangeRef) {
        let limit = self.limits.connections_max;
        let text = format!("busy: {limit} connections are open, limit {limit} (connections_max)");
        let refusal = HttpRefusal::new(503, &text).with("Retry-After", "1");
        self.refuse(now, exchange, &refusal);
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            connection.http.close_after();
        }
    }

    /// POST `/mcp`: a message, of any revision.
    fn expect_post(
        &mut self,
        now: Now,
        exchange: ExchangeRef,
        head: Box<HttpHead>,
        principal: Principal,
    ) -> Result<(), HttpRefusal> {
        let accepts = check_post(&*head)?;
        let known = KnownHead::new(&head, principal, accepts);
        self.connections.remember(exchange.wire, known);
        let mut open = Exchange::new(Purpose::Post, principal, accepts);
        open.head = Some(head);
        self.expect_body(now, exchange, open);
        Ok(())
    }

    /// The head is a good one: the message may come.
    pub(super) fn expect_body(&mut self, now: Now, exchange: ExchangeRef, open: Exchange) {
        self.exchanges.insert(exchange, open);
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            connection.http.accept(now, exchange.id);
        }
    }

    /// Answers an exchange with why it is not served, which is the end of it.
    pub(super) fn refuse(&mut self, now: Now, exchange: ExchangeRef, refusal: &HttpRefusal) {
        let headers: Vec<(&str, &str)> = refusal
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        if let Some(connection) = self.connections.get_mut(&exchange.wire) {
            let body = refusal.body.as_bytes();
            connection
                .http
                .respond(now, exchange.id, refusal.status, &headers, body);
        }
        self.forget(now, exchange);
        self.touch(exchange.wire);
    }
}
