//! What runtimes are shown of the tools that servers list: whether they are listed, which of them are shown,
//! under which names (prompts likewise), and what there is to say of a listing.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::catalog::{Catalog, ToolSet, drift};
use super::connections::Offer;
use super::diagnostic::ServerDiagnostic;
use super::error::UpstreamError;
use super::lock::{Judged, LockRule};
use super::runtime::UpstreamId;
use super::server_config::ServerKey;
use super::upstream::Listed;
use super::{Manager, ManagerOutput, explain, naming};
use crate::clock::Now;
use crate::ids::RuntimeId;

/// What is listed and shown, and under which names.
impl Manager {
    /// Which tools may be shown, from now on: those that are as they were locked. What is known already is
    /// looked at again.
    pub fn set_lock(&mut self, now: Now, lock: Option<LockRule>) {
        self.lock = lock;
        self.drift_said.clear();
        let shown: Vec<(RuntimeId, UpstreamId)> = self
            .slots
            .iter()
            .flat_map(|(id, slot)| slot.owners.iter().map(|owner| (*owner, *id)))
            .collect();
        for (owner, upstream) in shown {
            self.show_again(owner, upstream);
        }
        let runtimes: Vec<RuntimeId> = self.runtimes.keys().copied().collect();
        self.reconsider(now, &runtimes);
    }

    /// Whether the lock in force is for this server.
    #[must_use]
    pub fn is_locked(&self, key: &ServerKey) -> bool {
        self.lock.as_ref().is_some_and(|lock| lock.is_for(key))
    }

    /// Names of tools that are shown beside those of the servers: none of theirs is shown under one of them,
    /// in whatever case. A tool that was gets another name; one that was renamed for a name that is free again
    /// keeps its own.
    pub fn reserve<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let reserved = naming::reserved_names(names);
        if reserved == self.reserved.tools {
            return;
        }
        self.reserved.tools = reserved;
        let runtimes: Vec<RuntimeId> = self.runtimes.keys().copied().collect();
        for id in runtimes {
            let Some(runtime) = self.runtimes.get_mut(&id) else {
                continue;
            };
            runtime.names.reserve(self.reserved.tools.clone());
            let taken: BTreeSet<ServerKey> = runtime
                .catalog
                .tools()
                .filter(|(name, _)| self.reserved.tools.contains(&name.to_ascii_lowercase()))
                .map(|(_, found)| found.server.clone())
                .collect();
            for key in taken {
                if let Some(upstream) = self.runtimes[&id].upstreams.get(&key).copied() {
                    self.show_again(id, upstream);
                }
            }
        }
    }

    /// The same for prompts, which are the owner's to list: they get their names by [`Manager::name_prompts`].
    pub fn reserve_prompts<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        let reserved = naming::reserved_names(names);
        if reserved == self.reserved.prompts {
            return;
        }
        for runtime in self.runtimes.values_mut() {
            runtime.prompt_names.reserve(reserved.clone());
        }
        self.reserved.prompts = reserved;
    }

    /// The names under which the prompts that a server lists are shown in a runtime, in their order: by the
    /// rules of tools.
    pub fn name_prompts(&mut self, id: RuntimeId, key: &ServerKey, own: &[&str]) -> Vec<String> {
        let prefixed = self.prefixes(id, key);
        match self.runtimes.get_mut(&id) {
            Some(runtime) if prefixed => runtime.prompt_names.name_tools(key, own),
            Some(runtime) => runtime.prompt_names.name_reserved(key, own),
            None => own.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// Whether tools and prompts of a server have its name in front in this runtime. Decided when it is asked
    /// first, for good.
    pub fn prefixes(&mut self, id: RuntimeId, key: &ServerKey) -> bool {
        let one = self.servers.len() == 1;
        let runtime = self.runtimes.get_mut(&id);
        runtime.is_some_and(|runtime| runtime.prefixes(key, one))
    }

    /// Leaves it to the user of a runtime to ask for the tools of its only server, as for anything else: they
    /// are not fetched when it is connected to; calls want [`Options::unlisted`](super::Options::unlisted)
    /// then. Where calls need to know the tools (arguments in headers) they are fetched all the same.
    /// `false`: they are fetched again, those that were left now.
    pub fn leave_tools(&mut self, now: Now, id: RuntimeId, leave: bool) {
        let Some(runtime) = self.runtimes.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut runtime.tools_left, leave) == leave {
            return;
        }
        for upstream in runtime.upstreams.clone().into_values() {
            self.with(now, upstream, |one, turn| one.leave_tools(turn, leave));
        }
    }

    /// Asks a server for its tools again, if it is connected to and is not being asked.
    pub fn list_tools_again(&mut self, now: Now, id: RuntimeId, key: &ServerKey) {
        let of = self.runtimes.get(&id);
        if let Some(upstream) = of.and_then(|of| of.upstreams.get(key).copied()) {
            self.with(now, upstream, |one, turn| {
                if !one.is_settling() {
                    one.list_tools(turn);
                }
            });
        }
    }

    /// The tools of a runtime, as far as they are known.
    #[must_use]
    pub fn catalog(&self, id: RuntimeId) -> Option<&Catalog> {
        self.runtimes.get(&id).map(|runtime| &runtime.catalog)
    }

    /// A server has said what tools it has, or could not.
    pub(super) fn publish(
        &mut self,
        now: Now,
        id: UpstreamId,
        owners: &[RuntimeId],
        outcome: Result<Listed, UpstreamError>,
    ) {
        match outcome {
            Ok(listed) => {
                let set = ToolSet::read(&listed.entries, listed.mirrored, &self.limits);
                if let Some(slot) = self.slots.get_mut(&id) {
                    slot.offer = Some(Offer {
                        tools: set.tools.into_iter().map(Arc::new).collect(),
                        remarks: set.remarks,
                    });
                }
                for owner in owners {
                    self.show(*owner, id);
                }
            }
            Err(error) => self.tell(owners, &explain::diagnostic(&error)),
        }
        self.reconsider(now, owners);
    }

    /// Puts what a server offers into the catalog of a runtime, and says what there is to say of it.
    pub(super) fn show(&mut self, id: RuntimeId, upstream: UpstreamId) {
        let Some(slot) = self.slots.get(&upstream) else {
            return;
        };
        let key = slot.key.clone();
        let remarks = match &slot.offer {
            Some(offer) if self.is_of(id, upstream, &key) => offer.remarks.clone(),
            Some(_) | None => return,
        };
        let said = remarks.into_iter().map(|remark| remark.of(&key));
        let said = said.map(|diagnostic| ManagerOutput::Diagnostic {
            runtime: id,
            diagnostic,
        });
        self.outputs.extend(said);
        self.show_again(id, upstream);
    }

    /// Puts what a server offers into the catalog of a runtime, unless it has another connection to that
    /// server by now.
    pub(super) fn show_again(&mut self, id: RuntimeId, upstream: UpstreamId) {
        let Some(slot) = self.slots.get(&upstream) else {
            return;
        };
        let key = slot.key.clone();
        if !self.is_of(id, upstream, &key) {
            return;
        }
        let (Some(offer), Some(config)) = (&slot.offer, self.servers.get(&key)) else {
            return;
        };
        let tools = offer.tools.clone();
        let shows = |name: &str| config.filter.shows(name);
        let judged = self
            .lock
            .as_ref()
            .map(|lock| lock.judge(&key, &tools, shows));
        let one = self.servers.len() == 1;
        let Some(runtime) = self.runtimes.get_mut(&id) else {
            return;
        };
        let prefixed = runtime.prefixes(&key, one);
        let names = |own: &[&str]| match prefixed {
            true => runtime.names.name_tools(&key, own),
            false => runtime.names.name_reserved(&key, own),
        };
        let before = runtime.catalog.generation();
        let walk = runtime.catalog.begin(&key);
        let refusal = |tool: &str| judged.as_ref().and_then(|judged| judged.refusal(tool));
        let difference = runtime
            .catalog
            .publish(&key, walk, tools, shows, refusal, names);
        let changed = runtime.catalog.generation() != before;
        let drift = difference.and_then(|difference| drift(&key, &difference));
        let said = self.unsaid_drift(&key, judged);
        let said = said.into_iter().chain(drift);
        self.outputs
            .extend(said.map(|diagnostic| ManagerOutput::Diagnostic {
                runtime: id,
                diagnostic,
            }));
        if changed {
            self.outputs.push_back(ManagerOutput::CatalogChanged(id));
        }
    }

    /// Whether a connection is the one of a runtime to a server that there still is.
    fn is_of(&self, id: RuntimeId, upstream: UpstreamId, key: &ServerKey) -> bool {
        let runtime = self.runtimes.get(&id);
        let of_runtime = runtime.and_then(|runtime| runtime.upstreams.get(key));
        of_runtime == Some(&upstream) && self.servers.contains_key(key)
    }

    /// What the lock says of a listing and was not said of the one before: each session lists for itself.
    fn unsaid_drift(&mut self, key: &ServerKey, judged: Option<Judged>) -> Vec<ServerDiagnostic> {
        let Some(judged) = judged else {
            return Vec::new();
        };
        let messages = judged.said.iter().map(|one| one.message.clone());
        let before = self.drift_said.insert(key.clone(), messages.collect());
        let before = before.unwrap_or_default();
        let mut said = judged.said;
        said.retain(|one| !before.contains(&one.message));
        said
    }
}
