//! Where a call by a shown name goes: to the server whose tool it is, nowhere yet, or nowhere.
//!
//! | its tool                          | what becomes of the call                                      |
//! |-----------------------------------|---------------------------------------------------------------|
//! | is known                          | checked where that is asked for, and given to its server      |
//! | may not be used                   | an error that says why                                        |
//! | is not known, some server settles | it waits, and is looked at again with all that becomes known  |
//! | is not known to the only server   | given to it all the same where the caller said so             |
//! | is not known to any               | an error, with the failures of those that could have it       |

use std::sync::Arc;

use super::catalog::Tool;
use super::error::UpstreamError;
use super::job::{Job, Options, Work};
use super::naming::SEPARATOR;
use super::runtime::Undecided;
use super::server_config::ServerKey;
use super::upstream::ServerState;
use super::{Manager, ManagerOutput, explain};
use crate::clock::Now;
use crate::gate::GatedCall;
use crate::ids::{RuntimeId, TicketId};

/// Calls of tools, by the names they are shown under.
impl Manager {
    /// Calls a tool by its shown name. Waits, where the name is not known yet, until every server has
    /// said what it has. Design: every call has passed the gate.
    pub fn call(&mut self, now: Now, id: RuntimeId, call: GatedCall, options: Options) -> TicketId {
        let ticket = self.mint_ticket(now, id);
        if !self.runtimes.contains_key(&id) {
            self.answer_ticket(ticket, Err(explain::no_runtime()));
            return ticket;
        }
        self.decide(
            now,
            id,
            Undecided {
                ticket,
                call,
                options,
            },
        );
        ticket
    }

    /// Calls that did not know where to go may know now.
    pub(super) fn reconsider(&mut self, now: Now, owners: &[RuntimeId]) {
        for id in owners {
            let Some(runtime) = self.runtimes.get_mut(id) else {
                continue;
            };
            for call in std::mem::take(&mut runtime.undecided) {
                self.decide(now, *id, call);
            }
        }
    }

    /// Sends a call on its way, keeps it while its tool is not known, or says that there is no such tool.
    pub(super) fn decide(&mut self, now: Now, id: RuntimeId, call: Undecided) {
        if let Some(error) = self.refusal(id, &call) {
            return self.answer_ticket(call.ticket, Err(error));
        }
        let mut found = self.find(id, &call);
        if found.is_none() {
            if let Some(key) = self.unlisted_at(id, &call) {
                return self.submit_unlisted(now, id, &key, call);
            }
            self.connect(now, id);
            found = self.find(id, &call);
        }
        let Some((key, tool)) = found else {
            let settling = self.slots_of(id).any(|slot| slot.upstream.is_settling());
            let only = self
                .only_server()
                .filter(|_| call.options.unlisted)
                .cloned();
            if let (false, Some(key)) = (settling, only) {
                return self.submit_unlisted(now, id, &key, call);
            }
            let error = match settling {
                true => self.wait_for_catalog(id, call),
                false => Some((call.ticket, self.unknown_tool(id, call.call.tool()))),
            };
            if let Some((ticket, error)) = error {
                self.answer_ticket(ticket, Err(error));
            }
            return;
        };
        if call.options.validate {
            if let Err(error) = self.check_arguments(id, &key, &tool, &call) {
                return self.answer_ticket(call.ticket, Err(error));
            }
        }
        let work = Work::Call {
            params: call.call.params_for(tool.name()),
            arguments: call.call.call().arguments.clone(),
            headers: tool.header_values(Some(call.call.arguments())),
        };
        if let Some(known) = self.tickets.get_mut(&call.ticket) {
            known.checked = call.options.validate.then_some((key.clone(), tool));
        }
        self.submit(
            now,
            id,
            &key,
            Job::new(Some(call.ticket), work, call.options),
        );
    }

    /// Checks the arguments of a call against the tool's input schema. What of it cannot be checked is said.
    fn check_arguments(
        &mut self,
        id: RuntimeId,
        key: &ServerKey,
        tool: &Tool,
        call: &Undecided,
    ) -> Result<(), UpstreamError> {
        let unchecked = tool.unchecked(&self.limits).into_iter();
        self.outputs
            .extend(unchecked.map(|remark| ManagerOutput::Diagnostic {
                runtime: id,
                diagnostic: remark.of(key),
            }));
        match tool.input_check(&self.limits) {
            Ok(schema) => schema
                .check(call.call.arguments())
                .map_err(|problems| explain::arguments(key, tool.name(), &problems)),
            Err(_) => Ok(()),
        }
    }

    /// The tool that a call means.
    fn find(&self, id: RuntimeId, call: &Undecided) -> Option<(ServerKey, Arc<Tool>)> {
        let found = self.runtimes.get(&id)?.catalog.find(call.call.tool())?;
        Some((found.server.clone(), Arc::clone(found.tool)))
    }

    /// Why the tool of a call may not be used, when that is so: it may have changed while the call waited.
    fn refusal(&self, id: RuntimeId, call: &Undecided) -> Option<UpstreamError> {
        let (key, why) = self.runtimes.get(&id)?.catalog.refusal(call.call.tool())?;
        Some(explain::refused(key, why))
    }

    /// Keeps a call until it is known where it goes. Gives it back with an error when too many wait already.
    fn wait_for_catalog(
        &mut self,
        id: RuntimeId,
        call: Undecided,
    ) -> Option<(TicketId, UpstreamError)> {
        let limit = self.limits.upstream_requests_open_max;
        let runtime = self.runtimes.get_mut(&id)?;
        let value = runtime.undecided.len();
        if value >= limit {
            return Some((call.ticket, explain::waiting_too_many(value, limit)));
        }
        runtime.undecided.push(call);
        None
    }

    /// Sends a call to a server that was not asked for this tool, or has not said that it has it.
    fn submit_unlisted(&mut self, now: Now, id: RuntimeId, key: &ServerKey, call: Undecided) {
        let work = Work::Call {
            params: call.call.params_for(call.call.tool()),
            arguments: call.call.call().arguments.clone(),
            headers: Vec::new(),
        };
        let job = Job::new(Some(call.ticket), work, call.options);
        self.submit(now, id, key, job);
    }

    /// The only server there is, when a tool that nobody lists is left to it and it is connected to: there is
    /// nothing to wait for then.
    fn unlisted_at(&self, id: RuntimeId, call: &Undecided) -> Option<ServerKey> {
        let key = self.only_server().filter(|_| call.options.unlisted)?;
        let runtime = self.runtimes.get(&id)?;
        let slot = self.slot_of(id, key)?;
        if !runtime.wants_all || !runtime.tools_left {
            return None;
        }
        slot.upstream.is_at_work().then(|| key.clone())
    }

    fn only_server(&self) -> Option<&ServerKey> {
        let mut keys = self.servers.keys();
        keys.next().filter(|_| keys.next().is_none())
    }

    /// Every server has said what it has, or cannot. The failure of the only server it could be of is the
    /// reason; of several, all are named.
    fn unknown_tool(&self, id: RuntimeId, tool: &str) -> UpstreamError {
        let missing = self.unready(id);
        let names = self.runtimes.get(&id).map(|runtime| &runtime.names);
        let of_this = |key: &ServerKey| {
            let safe = names.and_then(|names| names.server(key));
            let rest = safe.and_then(|safe| tool.strip_prefix(safe));
            self.servers.len() == 1 || rest.is_some_and(|rest| rest.starts_with(SEPARATOR))
        };
        let culprit = missing.iter().find(|(key, _)| of_this(key));
        match culprit {
            Some((_, Some(error))) => (*error).clone(),
            Some((_, None)) | None => explain::unknown_tool(tool, self.only_server(), &missing),
        }
    }

    /// Servers of a runtime that are not ready, or have not said what tools they have, and why.
    fn unready(&self, id: RuntimeId) -> Vec<(&ServerKey, Option<&UpstreamError>)> {
        self.slots_of(id)
            .filter(|slot| {
                let fault = slot.upstream.last_error();
                slot.upstream.state() != ServerState::Ready || fault.is_some()
            })
            .map(|slot| (&slot.key, slot.upstream.last_error()))
            .collect()
    }
}
