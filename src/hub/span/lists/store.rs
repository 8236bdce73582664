//! What is known of the lists of resources and prompts, for each runtime and server; tools are in the
//! manager's catalog.
//!
//! Nothing is fetched before a client wants it. From then on a part is fetched again when it may be another:
//!
//! | state    | input                                  | next     | what happens                         |
//! |----------|----------------------------------------|----------|--------------------------------------|
//! | Unknown  | wanted, the server is ready            | Walking  | its pages are fetched                |
//! | Unknown  | wanted, it is being connected to       | Awaited  |                                      |
//! | Unknown  | wanted, it cannot be connected to      | Unknown  | the list goes without it             |
//! | Awaited  | the server is ready                    | Walking  | its pages are fetched                |
//! | Awaited  | it cannot be connected to              | Unknown  | the list goes without it             |
//! | Walking  | all pages are there                    | Known    | clients are told if it is another    |
//! | Walking  | failure                                | Unknown  | one diagnostic; what was known stays |
//! | Known    | the server says that it changed        | Unknown  | clients are told                     |
//! | Known    | wanted anew, and it tells of no change | Walking  | its pages are fetched                |
//! | any      | the server is connected to anew        | Walking  | its pages are fetched                |
//!
//! Clients are told of a change at once, and then not again for `list_changed_quiet_interval`: what comes
//! meanwhile is one more change.
//!
//! Source: design (a dead upstream, startup); Spec: 2025-11-25 server/resources, server/prompts.

use std::collections::{BTreeMap, BTreeSet};

use super::part::{Numbers, Part};
use crate::clock::{Deadline, Now, Uptime};
use crate::ids::{RuntimeId, TicketId};
use crate::manager::catalog::{Catalog, PagedList};
use crate::manager::server_config::ServerKey;
use crate::protocol::client::peer::ListKind;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Unknown,
    Awaited,
    Walking,
    Known,
}

/// One server's part of one list in one runtime.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) part: Part,
    pub(super) state: State,
    /// It could not be fetched the last time, which was told.
    pub(super) failed: bool,
    /// The server said that it changed, and clients were told, since it was fetched last.
    pub(super) told: bool,
    /// It said so while it was being fetched.
    pub(super) moved: bool,
}

impl Held {
    /// A list has to wait for it.
    pub(super) const fn is_settling(&self) -> bool {
        matches!(self.state, State::Awaited | State::Walking)
    }
}

/// The tools of one server in the order in which they are shown.
#[derive(Debug, Default)]
pub(super) struct ToolOrder {
    numbers: Numbers,
    /// Of the catalog, when this was made.
    generation: u64,
    /// A client was given them since they were listed last.
    pub(super) given: bool,
    /// Number, and place among the server's tools.
    pub(super) order: Vec<(u64, usize)>,
}

impl ToolOrder {
    /// Makes the order anew if the tools are others.
    pub(super) fn renew(&mut self, catalog: &Catalog, key: &ServerKey) {
        let generation = catalog.generation_of(key);
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        let tools = catalog.tools_of(key).unwrap_or_default();
        let numbers = self.numbers.renew(tools.iter().map(|(shown, _)| &**shown));
        let numbers = numbers.into_iter().enumerate();
        self.order = numbers
            .filter_map(|(at, number)| Some((number?, at)))
            .collect();
        self.order.sort_unstable();
    }
}

/// When clients were told of a change last.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    quiet_until: Uptime,
    /// Something has changed since.
    due: bool,
}

/// What is known of one runtime's lists.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) parts: BTreeMap<(PagedList, ServerKey), Held>,
    /// Lists that clients have wanted.
    pub(super) wanted: BTreeSet<PagedList>,
    /// Lists that clients have been given.
    pub(super) shown: BTreeSet<PagedList>,
    pub(super) tools: BTreeMap<ServerKey, ToolOrder>,
    /// Where resources were found that are in no list.
    pub(super) found: BTreeMap<Box<str>, ServerKey>,
    told: BTreeMap<ListKind, Told>,
}

/// See the module page.
#[derive(Debug)]
pub(in crate::hub::span) struct Lists {
    runtimes: BTreeMap<RuntimeId, Known>,
    pub(super) walks: BTreeMap<TicketId, (RuntimeId, PagedList, ServerKey)>,
    /// When runtimes are to be told of what has changed since they were told.
    due: BTreeSet<(Uptime, RuntimeId, ListKind)>,
    /// Pairs of servers with one URI that were told of.
    pub(super) same_uris: BTreeSet<(ServerKey, ServerKey)>,
    quiet: std::time::Duration,
}

impl Lists {
    pub(in crate::hub::span) fn new(limits: &crate::limits::Limits) -> Self {
        Self {
            runtimes: BTreeMap::new(),
            walks: BTreeMap::new(),
            due: BTreeSet::new(),
            same_uris: BTreeSet::new(),
            quiet: limits.list_changed_quiet_interval,
        }
    }

    /// What is known of a runtime.
    pub(super) fn known(&mut self, runtime: RuntimeId) -> &mut Known {
        self.runtimes.entry(runtime).or_default()
    }

    pub(super) fn get(&self, runtime: RuntimeId) -> Option<&Known> {
        self.runtimes.get(&runtime)
    }

    pub(super) fn get_mut(&mut self, runtime: RuntimeId) -> Option<&mut Known> {
        self.runtimes.get_mut(&runtime)
    }

    /// A runtime is gone.
    pub(in crate::hub::span) fn forget(&mut self, runtime: RuntimeId) {
        self.runtimes.remove(&runtime);
        self.walks.retain(|_, (of, ..)| *of != runtime);
        self.due.retain(|(_, of, _)| *of != runtime);
    }

    pub(super) fn runtimes(&self) -> Vec<RuntimeId> {
        self.runtimes.keys().copied().collect()
    }

    /// A list is another now. Says whether to tell so at once.
    pub(in crate::hub::span) fn changed(
        &mut self,
        now: Now,
        runtime: RuntimeId,
        list: ListKind,
    ) -> bool {
        let quiet = self.quiet;
        let told = self.known(runtime).told.entry(list).or_default();
        if told.due || told.quiet_until > now.up {
            told.due = true;
            let at = told.quiet_until;
            self.due.insert((at, runtime, list));
            return false;
        }
        told.quiet_until = now.after(quiet);
        true
    }

    /// A list is another now; it is told by [`Lists::poll_due`].
    pub(super) fn change_soon(&mut self, now: Now, runtime: RuntimeId, list: ListKind) {
        if self.changed(now, runtime, list) {
            let told = self.known(runtime).told.entry(list).or_default();
            *told = Told {
                quiet_until: now.up,
                due: true,
            };
            self.due.insert((now.up, runtime, list));
        }
    }

    /// Runtimes that are to be told now.
    pub(in crate::hub::span) fn poll_due(&mut self, now: Now) -> Option<(RuntimeId, ListKind)> {
        let (at, runtime, list) = self.due.first().copied()?;
        if at > now.up {
            return None;
        }
        self.due.pop_first();
        let until = now.after(self.quiet);
        let told = self.known(runtime).told.entry(list).or_default();
        *told = Told {
            quiet_until: until,
            due: false,
        };
        Some((runtime, list))
    }

    pub(in crate::hub::span) fn next_deadline(&self) -> Option<Deadline> {
        let (at, ..) = self.due.first()?;
        Some(Deadline::new(*at, "changes of lists"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: 0,
        }
    }

    #[test]
    fn changes_are_told_at_once_and_then_in_bunches() {
        let mut lists = Lists::new(&Limits::DEFAULT);
        let mut told = Vec::new();
        for ms in 1_000..2_000 {
            // A storm of a fifth of a second; another list changes once in it.
            for (list, changes) in [
                (ListKind::Prompts, ms < 1_200),
                (ListKind::Resources, ms == 1_050),
            ] {
                if changes && lists.changed(at(ms), RuntimeId(1), list) {
                    told.push((ms, list));
                }
            }
            while let Some((_, list)) = lists.poll_due(at(ms)) {
                told.push((ms, list));
            }
        }
        assert_eq!(
            told,
            [
                (1_000, ListKind::Prompts),
                (1_050, ListKind::Resources),
                (1_100, ListKind::Prompts),
                (1_200, ListKind::Prompts),
            ]
        );
        assert_eq!(lists.next_deadline(), None);
        assert!(lists.changed(at(2_000), RuntimeId(1), ListKind::Prompts));
        assert!(lists.changed(at(2_000), RuntimeId(2), ListKind::Prompts));
        assert!(!lists.changed(at(2_001), RuntimeId(2), ListKind::Prompts));
        lists.forget(RuntimeId(2));
        assert_eq!(lists.next_deadline(), None);
    }
}
