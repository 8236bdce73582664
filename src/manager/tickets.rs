//! Tickets: each piece of work that was asked for has one, and gets one answer.

use std::sync::Arc;

use super::catalog::{ListWalk, PagedList, Tool};
use super::error::UpstreamError;
use super::job::{Job, Options, Work};
use super::runtime::UpstreamId;
use super::server_config::ServerKey;
use super::{Manager, ManagerOutput, explain};
use crate::clock::Now;
use crate::codec::shared_text::SharedText;
use crate::ids::{RuntimeId, TicketId};
use crate::protocol::message::member;

/// What is known of a ticket while it is open.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) runtime: RuntimeId,
    pub(super) upstream: Option<UpstreamId>,
    /// The tool whose output schema the result must match.
    pub(super) checked: Option<(ServerKey, Arc<Tool>)>,
}

/// Everything that is asked of a server but tool calls.
impl Manager {
    /// Asks anything of a server but a tool call.
    pub fn request(
        &mut self,
        now: Now,
        id: RuntimeId,
        key: &ServerKey,
        (method, params): (&str, Option<&str>),
        options: Options,
    ) -> TicketId {
        let ticket = self.mint_ticket(now, id);
        if method == "tools/call" {
            let error = explain::not_gated(key);
            self.answer_ticket(ticket, Err(error));
            return ticket;
        }
        let work = Work::Request {
            method: method.to_owned().into(),
            params: params.map(Into::into),
        };
        self.submit(now, id, key, Job::new(Some(ticket), work, options));
        ticket
    }

    /// Fetches all pages of a list of a server; the answer is the array of its entries as they came.
    pub fn list(&mut self, now: Now, id: RuntimeId, key: &ServerKey, list: PagedList) -> TicketId {
        let ticket = self.mint_ticket(now, id);
        let walk = ListWalk::new(key, list, &self.limits).into();
        let work = Work::List { walk, page: None };
        self.submit(
            now,
            id,
            key,
            Job::new(Some(ticket), work, Options::default()),
        );
        ticket
    }

    /// Sends a notification to a server that is connected.
    pub fn notify(
        &mut self,
        now: Now,
        id: RuntimeId,
        key: &ServerKey,
        method: &str,
        params: Option<&str>,
    ) {
        if let Some(upstream) = self
            .runtimes
            .get(&id)
            .and_then(|r| r.upstreams.get(key).copied())
        {
            self.with(now, upstream, |one, turn| one.notify(turn, method, params));
        }
    }

    /// Nobody waits for this ticket any more: the server is told, and there is no answer.
    pub fn cancel(&mut self, now: Now, ticket: TicketId, reason: &str) {
        let Some(known) = self.tickets.remove(&ticket) else {
            return;
        };
        if let Some(runtime) = self.runtimes.get_mut(&known.runtime) {
            runtime.open.remove(&ticket);
            runtime.undecided.retain(|call| call.ticket != ticket);
        }
        if let Some(upstream) = known.upstream {
            self.with(now, upstream, |one, turn| one.cancel(turn, ticket, reason));
        }
        self.touch(now, known.runtime);
    }

    pub(super) fn mint_ticket(&mut self, now: Now, id: RuntimeId) -> TicketId {
        let ticket = self.next_ticket;
        self.next_ticket = ticket.next();
        let known = Ticket {
            runtime: id,
            upstream: None,
            checked: None,
        };
        self.tickets.insert(ticket, known);
        if let Some(runtime) = self.runtimes.get_mut(&id) {
            runtime.open.insert(ticket);
        }
        self.touch(now, id);
        ticket
    }

    /// Gives a job to a server of a runtime.
    pub(super) fn submit(&mut self, now: Now, id: RuntimeId, key: &ServerKey, job: Job) {
        let ticket = job.ticket;
        let connected = self.runtimes.get(&id).and_then(|of| of.upstreams.get(key));
        let upstream = match connected.copied() {
            Some(upstream) => upstream,
            None => {
                let Some(made) = self.upstream_of(id, key) else {
                    let error = match self.runtimes.contains_key(&id) {
                        true => explain::unknown_server(key),
                        false => explain::no_runtime(),
                    };
                    if let Some(ticket) = ticket {
                        self.answer_ticket(ticket, Err(error));
                    }
                    return;
                };
                self.renew_wishes(now, made);
                made
            }
        };
        if let Some(known) = ticket.and_then(|ticket| self.tickets.get_mut(&ticket)) {
            known.upstream = Some(upstream);
        }
        let mut refused = None;
        self.with(now, upstream, |one, turn| {
            refused = one.submit(turn, job).err()
        });
        if let (Some(ticket), Some(error)) = (ticket, refused) {
            self.conclude(now, ticket, Err(error));
        }
    }

    /// Answers a ticket, and has the result checked first where that was asked for.
    pub(super) fn conclude(
        &mut self,
        now: Now,
        ticket: TicketId,
        outcome: Result<SharedText, UpstreamError>,
    ) {
        let Some(known) = self.tickets.get(&ticket) else {
            return;
        };
        let runtime = known.runtime;
        let outcome = match (outcome, known.checked.clone()) {
            (Ok(result), Some((key, tool))) => self.checked(runtime, &key, &tool, result),
            (outcome, _) => outcome,
        };
        self.answer_ticket(ticket, outcome);
        self.touch(now, runtime);
    }

    /// The result of a call, checked against the tool's output schema. One that says nothing of what the
    /// schema speaks of is passed on: the tool has run.
    fn checked(
        &mut self,
        runtime: RuntimeId,
        key: &ServerKey,
        tool: &Tool,
        result: SharedText,
    ) -> Result<SharedText, UpstreamError> {
        let Some(Ok(schema)) = tool.output_check(&self.limits) else {
            return Ok(result);
        };
        if member(&result, "isError") == Some("true") {
            return Ok(result);
        }
        let Some(structured) = member(&result, "structuredContent") else {
            let diagnostic = explain::no_structured_content(key, tool.name());
            self.outputs.push_back(ManagerOutput::Diagnostic {
                runtime,
                diagnostic,
            });
            return Ok(result);
        };
        match schema.check(structured) {
            Ok(()) => Ok(result),
            Err(problems) => Err(explain::result(key, tool.name(), &problems)),
        }
    }

    pub(super) fn answer_ticket(
        &mut self,
        ticket: TicketId,
        outcome: Result<SharedText, UpstreamError>,
    ) {
        let Some(known) = self.tickets.remove(&ticket) else {
            return;
        };
        if let Some(runtime) = self.runtimes.get_mut(&known.runtime) {
            runtime.open.remove(&ticket);
        }
        self.outputs.push_back(ManagerOutput::Answer {
            ticket,
            outcome: outcome.map_err(Box::new),
        });
    }
}
