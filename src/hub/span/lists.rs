//! What clients see of everything there is: one list of tools, of resources, of templates and of prompts,
//! whoever offers them.
//!
//! | list      | order                                                                 | names                  |
//! |-----------|-----------------------------------------------------------------------|------------------------|
//! | tools     | channel tools, the program's own, servers by key, each in its own order | by [`Prefix`]        |
//! | prompts   | the program's own, servers by key                                     | by [`Prefix`]          |
//! | resources | the program's own, servers by key                                     | URIs stay as they are  |
//!
//! Of two things with one name the one that comes first in this order keeps it. A server's tool or prompt
//! that would have the name of a channel tool or of something of the program's is shown as `server__name`; a
//! resource that has a URI of an earlier one is left out, with one diagnostic. What is new in a server's part
//! comes at its end, so that cursors stay good; see `cursor`.
//!
//! With one server and nothing beside it no list is made: requests and pages go through as they are, with
//! the server's own cursors. The tools are listed by us even then where its record has a filter or
//! `validateCalls`, or where names have a prefix; the prompts where names have one.
//!
//! A server that does not answer costs its own entries and one diagnostic. One that is slow holds a list up
//! for its `listTimeoutMs` at most; when it is there, clients are told of the change.
//!
//! [`Prefix`]: crate::manager::Prefix

mod cursor;
mod finding;
mod page;
mod part;
mod store;
#[cfg(test)]
mod tests;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::cursor::{Cursor, Source};
pub(super) use self::finding::Search;
use self::page::Page;
pub(super) use self::store::Lists;
use self::store::State;
pub(super) use self::waiting::Parked;
use super::UpstreamSide;
use crate::bridge::Bridge;
use crate::clock::Now;
use crate::codec::shared_text::SharedText;
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::hub::Hub;
use crate::ids::{PeerId, RuntimeId, TicketId};
use crate::manager::catalog::PagedList;
use crate::manager::error::{FailureKind, Phase, UpstreamError};
use crate::manager::server_config::ServerKey;
use crate::manager::{Prefix, ServerState};
use crate::protocol::client::peer::{ListKind, ServerFacts};
use crate::protocol::server::List;
use crate::secret::Quoted;

/// What has to be known of resources to find one.
const RESOURCES: &[PagedList] = &[PagedList::Resources, PagedList::ResourceTemplates];

/// The list whose changes a server tells of together with those of this one.
const fn kind_of(list: PagedList) -> ListKind {
    match list {
        PagedList::Tools => ListKind::Tools,
        PagedList::Resources | PagedList::ResourceTemplates => ListKind::Resources,
        PagedList::Prompts => ListKind::Prompts,
    }
}

/// The list that a method asks for.
fn list_of(method: &str) -> Option<PagedList> {
    let all = [
        PagedList::Tools,
        PagedList::Resources,
        PagedList::ResourceTemplates,
        PagedList::Prompts,
    ];
    all.into_iter().find(|list| list.method() == method)
}

impl UpstreamSide {
    /// Whether the only server's tools are left to the client to ask for: whatever it asks goes through.
    pub(super) fn leaves_tools(&self) -> bool {
        let mut servers = self.manager.servers();
        let only = servers.next().filter(|_| servers.next().is_none());
        self.alone
            && self.prefix != Prefix::Always
            && only.is_some_and(|only| {
                let filter = &only.filter;
                let all = filter.include.is_empty() && filter.exclude.is_empty();
                all && !only.validate_calls && !self.manager.is_locked(&only.key)
            })
    }

    /// Sees to it that it becomes known what resources the servers of a runtime have.
    pub(super) fn learn_resources(&mut self, now: Now, runtime: RuntimeId) {
        for list in RESOURCES {
            self.want(now, runtime, *list, false);
        }
    }

    /// Whether that is under way.
    pub(super) fn is_learning_resources(&self, runtime: RuntimeId) -> bool {
        let lists = RESOURCES.iter();
        lists
            .flat_map(|list| {
                self.manager
                    .servers()
                    .map(move |config| (list, &config.key))
            })
            .any(|(list, key)| self.is_settling(runtime, *list, key))
    }

    /// The servers are others than they were.
    pub(in crate::hub) fn servers_changed(&mut self, now: Now) {
        let keys: BTreeSet<ServerKey> = self.keys().into_iter().collect();
        let leaves = self.leaves_tools();
        for runtime in self.clients.keys().copied().collect::<Vec<_>>() {
            if !leaves {
                self.manager.leave_tools(now, runtime, false);
            }
            let Some(known) = self.lists.get_mut(runtime) else {
                continue;
            };
            let mut lost = BTreeSet::new();
            known.parts.retain(|(list, key), held| {
                let stays = keys.contains(key);
                if !stays && held.part.len() > 0 {
                    lost.insert(kind_of(*list));
                }
                stays
            });
            known.tools.retain(|key, _| keys.contains(key));
            known.found.retain(|_, key| keys.contains(key));
            for kind in lost {
                self.lists.change_soon(now, runtime, kind);
            }
        }
    }

    fn keys(&self) -> Vec<ServerKey> {
        let servers = self.manager.servers();
        servers.map(|config| config.key.clone()).collect()
    }

    /// Sees to it that a list becomes known. `anew`: also where it is known, of servers that do not tell of
    /// changes.
    fn want(&mut self, now: Now, runtime: RuntimeId, list: PagedList, anew: bool) {
        self.manager.connect(now, runtime);
        if list == PagedList::Tools {
            if anew {
                self.want_tools_anew(now, runtime);
            }
            return;
        }
        self.lists.known(runtime).wanted.insert(list);
        for key in self.keys() {
            let tells = |facts: &ServerFacts| facts.declares_changes(kind_of(list));
            let tells = self.manager.facts(runtime, &key).is_none_or(tells);
            let known = self.lists.known(runtime);
            match known.parts.entry((list, key.clone())).or_default().state {
                State::Awaited | State::Walking => continue,
                State::Known if !anew || tells => continue,
                State::Known | State::Unknown => self.begin(now, runtime, list, &key),
            }
        }
    }

    /// Asks servers for their tools again that do not tell of changes, once for each list that a client gets.
    fn want_tools_anew(&mut self, now: Now, runtime: RuntimeId) {
        for key in self.keys() {
            let facts = self.manager.facts(runtime, &key);
            let silent = facts.is_some_and(|facts| !facts.declares_changes(ListKind::Tools));
            let order = self.lists.known(runtime).tools.get_mut(&key);
            if let Some(order) = order.filter(|order| silent && order.given) {
                order.given = false;
                self.manager.list_tools_again(now, runtime, &key);
            }
        }
    }

    /// Fetches a part, now or once its server is connected to.
    fn begin(&mut self, now: Now, runtime: RuntimeId, list: PagedList, key: &ServerKey) {
        let state = match self.manager.state(runtime, key).0 {
            ServerState::Opening => State::Awaited,
            ServerState::Idle | ServerState::Resting { .. } | ServerState::Closed => State::Unknown,
            ServerState::Ready if self.lacks(runtime, list, key) => {
                self.put(now, (runtime, list, key), "[]".into());
                return;
            }
            ServerState::Ready => {
                let ticket = self.manager.list(now, runtime, key, list);
                let of = (runtime, list, key.clone());
                self.lists.walks.insert(ticket, of);
                State::Walking
            }
        };
        let known = self.lists.known(runtime);
        let held = known.parts.entry((list, key.clone())).or_default();
        held.state = state;
    }

    /// Whether a server says that it has no such list. One that declares nothing at all is asked.
    fn lacks(&self, runtime: RuntimeId, list: PagedList, key: &ServerKey) -> bool {
        self.manager.facts(runtime, key).is_some_and(|facts| {
            !facts.has(kind_of(list)) && ListKind::ALL.into_iter().any(|kind| facts.has(kind))
        })
    }

    /// A server of a runtime is in another state.
    pub(super) fn server_moved(&mut self, now: Now, runtime: RuntimeId, key: &ServerKey) {
        let Some(known) = self.lists.get_mut(runtime) else {
            return;
        };
        match self.manager.state(runtime, key).0 {
            ServerState::Opening => {}
            ServerState::Ready => {
                for list in known.wanted.clone() {
                    let held = self.lists.known(runtime).parts.get(&(list, key.clone()));
                    if held.is_none_or(|held| held.state != State::Walking) {
                        self.begin(now, runtime, list, key);
                    }
                }
            }
            ServerState::Idle | ServerState::Resting { .. } | ServerState::Closed => {
                let of_it = known.parts.iter_mut().filter(|((_, of), _)| of == key);
                for (_, held) in of_it.filter(|(_, held)| held.state == State::Awaited) {
                    held.state = State::Unknown;
                }
            }
        }
    }

    /// A server says that a list of it has changed.
    pub(super) fn list_moved(
        &mut self,
        now: Now,
        runtime: RuntimeId,
        key: &ServerKey,
        kind: ListKind,
    ) -> bool {
        if let Some(known) = self.lists.get_mut(runtime) {
            let of_it = |((list, of), _): &(&(PagedList, ServerKey), &mut store::Held)| {
                of == key && kind_of(*list) == kind
            };
            for (_, held) in known.parts.iter_mut().filter(of_it) {
                held.told = true;
                match held.state {
                    State::Known => held.state = State::Unknown,
                    State::Walking => held.moved = true,
                    State::Unknown | State::Awaited => {}
                }
            }
        }
        self.lists.changed(now, runtime, kind)
    }

    /// Puts the entries of a server, a raw array, where they belong. Gives what is to be said of them.
    fn put(
        &mut self,
        now: Now,
        (runtime, list, key): (RuntimeId, PagedList, &ServerKey),
        array: Box<str>,
    ) -> Option<Diagnostic> {
        let known = self.lists.known(runtime);
        let shown = known.shown.contains(&list);
        let held = known.parts.entry((list, key.clone())).or_default();
        let replaced = held.part.replace(list, array);
        if list == PagedList::Prompts {
            let manager = &mut self.manager;
            let names = |own: &[&str]| manager.name_prompts(runtime, key, own);
            held.part.rename(names);
        }
        let moved = std::mem::take(&mut held.moved);
        held.state = if moved { State::Unknown } else { State::Known };
        held.failed = false;
        let told = std::mem::take(&mut held.told);
        if replaced.changed && shown && !told {
            self.lists.change_soon(now, runtime, kind_of(list));
        }
        if replaced.left_out > 0 {
            let message = format!(
                "server {}: {} of the entries of {} are left out: without a name, or with that of an earlier one",
                Quoted(key.as_str()),
                replaced.left_out,
                list.method()
            );
            return Some(warning(message));
        }
        (list == PagedList::Resources)
            .then(|| self.same_uris(runtime, key))
            .flatten()
    }

    /// Says once of two servers that they have resources with one URI.
    fn same_uris(&mut self, runtime: RuntimeId, key: &ServerKey) -> Option<Diagnostic> {
        let known = self.lists.get(runtime)?;
        let part = |key: &ServerKey| known.parts.get(&(PagedList::Resources, key.clone()));
        let mine = &part(key)?.part;
        for other in self.keys() {
            let (first, second) = match other.cmp(key) {
                std::cmp::Ordering::Equal => continue,
                std::cmp::Ordering::Less => (&other, key),
                std::cmp::Ordering::Greater => (key, &other),
            };
            let Some(theirs) = part(&other).map(|held| &held.part) else {
                continue;
            };
            let same = mine.entries().map(|(entry, _)| &*entry.id);
            let same: Vec<&str> = same.filter(|uri| theirs.has(uri)).collect();
            let pair = (first.clone(), second.clone());
            if same.is_empty() || self.lists.same_uris.contains(&pair) {
                continue;
            }
            let more = match same.len() {
                1 => String::new(),
                all => format!(" and {} more resources", all - 1),
            };
            let message = format!(
                "servers {} and {} both have {}{more}: read from the first of them",
                Quoted(first.as_str()),
                Quoted(second.as_str()),
                Quoted(same[0])
            );
            self.lists.same_uris.insert(pair);
            return Some(warning(message));
        }
        None
    }

    /// A walk over a list of ours has ended. Gives what is to be said of it.
    fn walked(
        &mut self,
        now: Now,
        (runtime, list, key): (RuntimeId, PagedList, ServerKey),
        outcome: Result<SharedText, Box<UpstreamError>>,
    ) -> Option<Diagnostic> {
        let error = match outcome {
            Ok(array) => return self.put(now, (runtime, list, &key), (&*array).into()),
            Err(error) if error.code() == -32_601 => {
                return self.put(now, (runtime, list, &key), "[]".into());
            }
            Err(error) => error,
        };
        let known = self.lists.get_mut(runtime)?;
        let held = known.parts.get_mut(&(list, key))?;
        held.state = State::Unknown;
        // That it cannot be connected to was told already.
        let is_told = matches!(
            error.phase,
            Phase::Config | Phase::Spawn | Phase::Connect | Phase::Discover | Phase::Initialize
        ) || matches!(
            error.kind,
            FailureKind::Disposed | FailureKind::Cancelled | FailureKind::Unavailable
        );
        let first = !std::mem::replace(&mut held.failed, true);
        (first && !is_told).then(|| Diagnostic::new(Level::Error, Subject::Upstream, error.message))
    }

    /// Makes ready what [`UpstreamSide::offer`] reads, and notes that a client is given it.
    fn prepare(&mut self, runtime: RuntimeId, list: PagedList) {
        let keys = self.keys();
        let known = self.lists.known(runtime);
        known.shown.insert(list);
        if let (PagedList::Tools, Some(catalog)) = (list, self.manager.catalog(runtime)) {
            for key in keys {
                let order = known.tools.entry(key.clone()).or_default();
                order.renew(catalog, &key);
                order.given = true;
            }
        }
    }

    /// Offers the entries of all servers to a page; `is_taken` knows names and URIs of those before them.
    fn offer<'a>(
        &'a self,
        runtime: RuntimeId,
        list: PagedList,
        is_taken: &dyn Fn(&str) -> bool,
        page: &mut Page<'a>,
    ) {
        let Some(known) = self.lists.get(runtime) else {
            return;
        };
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for config in self.manager.servers() {
            let key = &config.key;
            let source = Source::Server(key.as_str());
            if page.is_full() {
                return;
            }
            if let Some(held) = known.parts.get(&(list, key.clone())) {
                for (entry, raw) in held.part.entries() {
                    let shown = entry.shown.as_deref();
                    let id = shown.unwrap_or(&entry.id);
                    if !is_taken(id) && seen.insert(id) {
                        page.offer(source, entry.number, raw, shown);
                    }
                }
            }
            let catalog = self.manager.catalog(runtime);
            let (PagedList::Tools, Some(catalog)) = (list, catalog) else {
                continue;
            };
            let tools = catalog.tools_of(key).unwrap_or_default();
            let order = known.tools.get(key).map(|tools| tools.order.as_slice());
            for (number, at) in order.unwrap_or_default() {
                let Some((shown, tool)) = tools.get(*at) else {
                    continue;
                };
                let found = catalog.find(shown);
                if found.is_some_and(|found| Arc::ptr_eq(found.tool, tool)) && !is_taken(shown) {
                    let renamed = (shown != tool.name()).then_some(shown.as_str());
                    page.offer(source, *number, tool.raw(), renamed);
                }
            }
        }
    }
}

fn warning(message: String) -> Diagnostic {
    Diagnostic::new(Level::Warning, Subject::Upstream, message)
}

impl Hub {
    /// One page of a list, of everything there is behind a client.
    fn list_page(&mut self, peer: PeerId, list: PagedList, after: Option<Cursor>) -> String {
        let side = self.upstream.as_mut();
        let runtime = side.and_then(|side| {
            let runtime = side.runtimes.get(&peer).copied()?;
            side.prepare(runtime, list);
            Some(runtime)
        });
        let mut page = Page::new(list, after, &self.limits);
        if list == PagedList::Tools {
            for (number, tool) in (0..).zip(&self.channel_tools) {
                page.offer(Source::Channel, number, tool, None);
            }
        }
        let registry = self.local.as_ref().map(|local| local.desk.registry());
        let entries = registry.map(|registry| registry.numbered(list.method()));
        for (number, name, raw) in entries.into_iter().flatten() {
            if !(list == PagedList::Tools && self.is_bridged(name)) {
                page.offer(Source::Local, number, raw, None);
            }
        }
        let is_taken = |name: &str| {
            (list == PagedList::Tools && self.is_bridged(name))
                || registry.is_some_and(|registry| registry.lists(list.method(), name))
        };
        if let (Some(side), Some(runtime)) = (&self.upstream, runtime) {
            side.offer(runtime, list, &is_taken, &mut page);
        }
        page.end()
    }

    /// The names of what stands before the servers' own; after each change of it.
    pub(in crate::hub) fn reserve_names(&mut self, now: Now) {
        let Some(side) = &mut self.upstream else {
            return;
        };
        if side.alone && self.local.is_some() {
            side.alone = false;
            side.servers_changed(now);
        }
        let registry = self.local.as_ref().map(|local| local.desk.registry());
        let tools = registry.into_iter().flat_map(|all| all.tool_names());
        let bridged = Bridge::tool_list().iter().map(|tool| tool.name);
        let bridged = bridged.filter(|_| self.gateway.is_some());
        side.manager.reserve(tools.chain(bridged));
        let prompts = registry.into_iter().flat_map(|all| all.prompt_names());
        side.manager.reserve_prompts(prompts);
        for runtime in side.lists.runtimes() {
            let known = side.lists.known(runtime);
            let prompts = known.parts.iter_mut();
            for ((_, key), held) in prompts.filter(|((list, _), _)| *list == PagedList::Prompts) {
                let manager = &mut side.manager;
                let names = |own: &[&str]| manager.name_prompts(runtime, key, own);
                held.part.rename(names);
            }
        }
    }

    /// The result of a walk over a list; gives back what is none.
    pub(super) fn take_walk(
        &mut self,
        now: Now,
        ticket: TicketId,
        outcome: Result<SharedText, Box<UpstreamError>>,
    ) -> Option<Result<SharedText, Box<UpstreamError>>> {
        let Some(side) = &mut self.upstream else {
            return Some(outcome);
        };
        let Some(of) = side.lists.walks.remove(&ticket) else {
            return Some(outcome);
        };
        if let Some(diagnostic) = side.walked(now, of, outcome) {
            self.diagnose(diagnostic);
        }
        None
    }

    /// A list of a server has changed, or the catalog of tools has (`None`).
    pub(super) fn route_list_change(
        &mut self,
        now: Now,
        runtime: RuntimeId,
        of: Option<(&ServerKey, ListKind)>,
    ) {
        let Some(side) = &mut self.upstream else {
            return;
        };
        let (kind, at_once) = match of {
            Some((key, kind)) => (kind, side.list_moved(now, runtime, key, kind)),
            // Who waits for the tools is about to be given them.
            None if side.awaits_tools(runtime) => return,
            None => {
                let kind = ListKind::Tools;
                (kind, side.lists.changed(now, runtime, kind))
            }
        };
        if at_once {
            self.tell_list_changed(now, runtime, kind);
        }
    }

    /// Tells of changes that had to wait. Says whether there were any.
    pub(super) fn tell_due_changes(&mut self, now: Now) -> bool {
        let mut moved = false;
        while let Some((runtime, kind)) = self
            .upstream
            .as_mut()
            .and_then(|side| side.lists.poll_due(now))
        {
            moved = true;
            self.tell_list_changed(now, runtime, kind);
        }
        moved
    }

    fn tell_list_changed(&mut self, now: Now, runtime: RuntimeId, kind: ListKind) {
        let side = self.upstream.as_ref();
        let Some(peer) = side.and_then(|side| side.clients.get(&runtime).copied()) else {
            return;
        };
        let list = match kind {
            ListKind::Tools => List::Tools,
            ListKind::Resources => List::Resources,
            ListKind::Prompts => List::Prompts,
        };
        self.with_peer(now, peer, |peer, sink| peer.list_changed(list, sink));
    }
}
