//! Requests that wait until it is known what the servers have.
//!
//! | request                             | waits until                                                            |
//! |-------------------------------------|------------------------------------------------------------------------|
//! | a list                              | each server has given its part, or failed, or had its list limit       |
//! | a call, a prompt, a resource, a ref | it is known whose it is, or each server has said what it has, or failed |
//!
//! Bounded by what clients may have open. The second kind ends with the limits of connecting and listing.

use super::finding::{Look, Wanted};
use super::{Cursor, PagedList, RESOURCES, list_of};
use crate::clock::{Deadline, Now, Uptime};
use crate::hub::Hub;
use crate::hub::approvals::is_private;
use crate::hub::span::UpstreamSide;
use crate::hub::span::tasks::is_for_task;
use crate::ids::{PeerId, RuntimeId};
use crate::link::Driven as _;
use crate::manager::server_config::ServerKey;
use crate::protocol::error::RpcError;
use crate::protocol::message::member;
use crate::protocol::server::{Answer, RequestKey, ServerRequest};

/// One request that waits.
#[derive(Debug)]
pub(in crate::hub::span) struct Parked {
    pub(super) peer: PeerId,
    pub(super) request: ServerRequest,
    pub(super) since: Uptime,
    /// It was not found, and the servers were asked anew.
    pub(super) again: bool,
}

impl Parked {
    pub(in crate::hub::span) fn is_of(&self, peer: PeerId) -> bool {
        self.peer == peer
    }
}

/// How long a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Over,
    Until(Uptime),
    /// As long as it takes; that is bounded elsewhere.
    Open,
}

impl UpstreamSide {
    /// The lists that tell whose a request is.
    fn needs(request: &ServerRequest) -> &'static [PagedList] {
        match &*request.method {
            "tools/list" | "tools/call" => &[PagedList::Tools],
            "resources/list" => &[PagedList::Resources],
            "resources/templates/list" => &[PagedList::ResourceTemplates],
            "prompts/list" | "prompts/get" => &[PagedList::Prompts],
            "completion/complete" if Wanted::of(request).is_prompt() => &[PagedList::Prompts],
            "resources/read" | "completion/complete" => RESOURCES,
            _ => &[],
        }
    }

    /// Whether a list of a server is under way.
    pub(super) fn is_settling(&self, runtime: RuntimeId, list: PagedList, key: &ServerKey) -> bool {
        if list == PagedList::Tools {
            return self.manager.is_settling(runtime, key);
        }
        let known = self.lists.get(runtime);
        let held = known.and_then(|known| known.parts.get(&(list, key.clone())));
        held.is_some_and(super::store::Held::is_settling)
    }

    fn wait(&self, now: Now, parked: &Parked) -> Wait {
        let Some(runtime) = self.runtimes.get(&parked.peer).copied() else {
            return Wait::Over;
        };
        let needs = Self::needs(&parked.request);
        let settling = |key| {
            let mut lists = needs.iter();
            lists.any(|list| self.is_settling(runtime, *list, key))
        };
        let servers = self.manager.servers();
        let until = servers
            .filter(|config| settling(&config.key))
            .map(|config| parked.since.after(config.times.list))
            .max();
        let is_list = list_of(&parked.request.method).is_some();
        match until {
            None => Wait::Over,
            Some(at) if is_list && at <= now.up => Wait::Over,
            Some(at) if is_list => Wait::Until(at),
            Some(_) => match self.look(runtime, &Wanted::of(&parked.request)) {
                Look::Found(_) => Wait::Over,
                Look::Unsure | Look::Nowhere => Wait::Open,
            },
        }
    }

    /// Whether somebody is about to be given the tools of a runtime.
    pub(super) fn awaits_tools(&self, runtime: RuntimeId) -> bool {
        self.parked.iter().any(|parked| {
            self.runtimes.get(&parked.peer) == Some(&runtime)
                && &*parked.request.method == "tools/list"
        })
    }

    /// When something here is due.
    pub(in crate::hub) fn next_deadline(&self) -> Option<Deadline> {
        // Nothing is over at the beginning of time.
        let beginning = Now::default();
        let parked = self.parked.iter();
        let waits = parked.filter_map(|parked| match self.wait(beginning, parked) {
            Wait::Until(at) => Some(Deadline::new(at, "a list of all servers")),
            Wait::Over | Wait::Open => None,
        });
        let due = Deadline::earlier(self.manager.next_deadline(), self.lists.next_deadline());
        let due = Deadline::earlier(due, self.questions.next_deadline());
        waits.fold(due, |all, one| Deadline::earlier(all, Some(one)))
    }
}

impl Hub {
    /// Takes a request that concerns upstream servers; gives back one that does not, or a tool call whose
    /// server is known.
    pub(in crate::hub) fn route_upstream(
        &mut self,
        now: Now,
        peer: PeerId,
        request: ServerRequest,
    ) -> Option<ServerRequest> {
        if self.upstream.is_none() || is_private(&request.method) || self.is_ours(peer, &request) {
            return Some(request);
        }
        let request = self.resume_parked(now, peer, request)?;
        self.declare_client(peer);
        let side = self.upstream.as_mut()?;
        let runtime = match side.runtime_of(now, peer) {
            Ok(runtime) => runtime,
            Err(error) => {
                self.respond(now, peer, request.key, Answer::Error(&error));
                return None;
            }
        };
        if let Some(level) = request.log_level {
            side.manager.want_logs(now, runtime, level);
        }
        // What repeats arguments in headers is checked by the tools. Spec: 2026-07-28 streamable-http.
        if request.revision.is_stateless() && !self.lines.contains_key(&peer) {
            side.manager.leave_tools(now, runtime, false);
        }
        if side.passes(runtime, &request) {
            if &*request.method == "tools/call" {
                return Some(request);
            }
            self.pass_through(now, peer, runtime, &request);
            return None;
        }
        if is_for_task(&request) {
            self.serve_task(now, peer, runtime, request);
            return None;
        }
        let needs = UpstreamSide::needs(&request);
        if needs.is_empty() {
            return Some(request);
        }
        let mut first_page = false;
        if let Some(list) = list_of(&request.method) {
            match read_cursor(list, &request) {
                Ok(cursor) => first_page = cursor.is_none(),
                Err(error) => {
                    self.respond(now, peer, request.key, Answer::Error(&error));
                    return None;
                }
            }
        }
        let is_known = matches!(side.look(runtime, &Wanted::of(&request)), Look::Found(_));
        if !is_known {
            for list in needs {
                side.want(now, runtime, *list, first_page);
            }
        }
        self.serve_or_park(
            now,
            Parked {
                peer,
                request,
                since: now.up,
                again: false,
            },
        )
    }

    pub(super) fn serve_or_park(&mut self, now: Now, parked: Parked) -> Option<ServerRequest> {
        let side = self.upstream.as_mut()?;
        if side.wait(now, &parked) != Wait::Over {
            side.parked.push(parked);
            return None;
        }
        self.serve_known(now, parked)
    }

    /// Serves a request about which enough is known; gives back a tool call.
    fn serve_known(&mut self, now: Now, parked: Parked) -> Option<ServerRequest> {
        let request = &parked.request;
        if &*request.method == "tools/call" {
            return Some(parked.request);
        }
        let Some(list) = list_of(&request.method) else {
            self.serve_found(now, parked);
            return None;
        };
        match read_cursor(list, request) {
            Ok(cursor) => {
                let page = self.list_page(parked.peer, list, cursor);
                self.respond(now, parked.peer, parked.request.key, Answer::List(&page));
            }
            Err(error) => {
                self.respond(now, parked.peer, request.key, Answer::Error(&error));
            }
        }
        None
    }

    /// Serves what need not wait any more. Says whether there was something.
    pub(in crate::hub::span) fn serve_settled(&mut self, now: Now) -> bool {
        let Some(side) = self
            .upstream
            .as_mut()
            .filter(|side| !side.parked.is_empty())
        else {
            return false;
        };
        let (ready, parked) = std::mem::take(&mut side.parked)
            .into_iter()
            .partition::<Vec<_>, _>(|parked| side.wait(now, parked) == Wait::Over);
        side.parked = parked;
        let moved = !ready.is_empty();
        for parked in ready {
            let peer = parked.peer;
            if let Some(call) = self.serve_known(now, parked) {
                self.route_known_request(now, peer, call);
            }
        }
        moved
    }

    /// A waiting request is taken back. Says whether there was one.
    pub(in crate::hub) fn drop_parked(&mut self, peer: PeerId, key: RequestKey) -> bool {
        let Some(side) = &mut self.upstream else {
            return false;
        };
        let before = side.parked.len();
        side.parked
            .retain(|parked| parked.peer != peer || parked.request.key != key);
        side.parked.len() != before
    }

    /// The page of a list that needs no server, of channel tools and of what the program offers.
    pub(in crate::hub) fn serve_own_list(
        &mut self,
        now: Now,
        peer: PeerId,
        list: PagedList,
        request: &ServerRequest,
    ) {
        // The channel tools alone are one page, whatever a cursor says: as in OpenClaw.
        let alone = self.local.is_none() && self.upstream.is_none();
        match read_cursor(list, request) {
            Err(error) if !alone => self.respond(now, peer, request.key, Answer::Error(&error)),
            cursor => {
                let page = self.list_page(peer, list, cursor.ok().flatten());
                self.respond(now, peer, request.key, Answer::List(&page));
            }
        }
    }
}

fn read_cursor(list: PagedList, request: &ServerRequest) -> Result<Option<Cursor>, RpcError> {
    let params = request.params.as_deref();
    Cursor::read(list, params.and_then(|params| member(params, "cursor")))
}
