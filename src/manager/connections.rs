//! The connections of the runtimes: which there are, whose each is, and what its server offers. One that
//! several runtimes have is made once.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::catalog::{Remark, Tool};
use super::runtime::UpstreamId;
use super::server_config::{Isolation, ServerKey};
use super::upstream::{ServerState, Upstream};
use super::{Manager, ManagerOutput};
use crate::clock::Uptime;
use crate::ids::RuntimeId;

/// Who is told of what an upstream says.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) upstream: Upstream,
    pub(super) key: ServerKey,
    pub(super) owners: BTreeSet<RuntimeId>,
    pub(super) due: Option<Uptime>,
    /// What it offers, for runtimes that come later; `None` before its first listing.
    pub(super) offer: Option<Offer>,
    /// A question of it was refused because it belonged to no call, and that was told.
    pub(super) asks_nobody: bool,
}

/// The tools of a server as they were listed last, and what was said of them.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) tools: Vec<Arc<Tool>>,
    pub(super) remarks: Vec<Remark>,
}

impl Manager {
    /// The connection of a runtime to a server, made when there is none.
    pub(super) fn upstream_of(&mut self, id: RuntimeId, key: &ServerKey) -> Option<UpstreamId> {
        let config = self.servers.get(key)?;
        let runtime = self.runtimes.get_mut(&id)?;
        if let Some(upstream) = runtime.upstreams.get(key) {
            return Some(*upstream);
        }
        let left = runtime.tools_left;
        let shared = match config.isolation {
            Isolation::Shared => self.shared.get(key).copied(),
            Isolation::Session => None,
        };
        let upstream = shared.unwrap_or_else(|| {
            let made = self.next_upstream;
            self.next_upstream = UpstreamId(made.0 + 1);
            // What one session has declared is not true of another.
            let mut face = self.face.clone();
            if let (Isolation::Session, Some(of_client)) = (config.isolation, &runtime.capabilities)
            {
                face.capabilities.clone_from(of_client);
            }
            let slot = Slot {
                upstream: Upstream::new(config.clone(), left, &self.limits, face),
                key: key.clone(),
                owners: BTreeSet::new(),
                due: None,
                offer: None,
                asks_nobody: false,
            };
            self.slots.insert(made, slot);
            made
        });
        if config.isolation == Isolation::Shared {
            self.shared.insert(key.clone(), upstream);
        }
        runtime.upstreams.insert(key.clone(), upstream);
        if let Some(slot) = self.slots.get_mut(&upstream) {
            slot.owners.insert(id);
        }
        // One that others have already had may have said what it offers.
        self.show(id, upstream);
        Some(upstream)
    }

    /// Takes a connection out of every runtime: the next use of the server makes another. Gives who was
    /// connected to a server that there still is.
    pub(super) fn detach(&mut self, id: UpstreamId) -> Vec<(RuntimeId, ServerKey)> {
        let Some(slot) = self.slots.get(&id) else {
            return Vec::new();
        };
        let gone = !self.servers.contains_key(&slot.key);
        let mut connected = Vec::new();
        for owner in &slot.owners {
            let Some(runtime) = self.runtimes.get_mut(owner) else {
                continue;
            };
            if runtime.upstreams.get(&slot.key) != Some(&id) {
                continue;
            }
            runtime.upstreams.remove(&slot.key);
            if gone {
                let before = runtime.catalog.generation();
                runtime.catalog.remove(&slot.key);
                if runtime.catalog.generation() != before {
                    self.outputs
                        .push_back(ManagerOutput::CatalogChanged(*owner));
                }
            } else if slot.upstream.state() != ServerState::Idle {
                connected.push((*owner, slot.key.clone()));
            }
        }
        if self.shared.get(&slot.key) == Some(&id) {
            self.shared.remove(&slot.key);
        }
        connected
    }

    pub(super) fn slot_of(&self, id: RuntimeId, key: &ServerKey) -> Option<&Slot> {
        let upstream = self.runtimes.get(&id)?.upstreams.get(key)?;
        self.slots.get(upstream)
    }

    pub(super) fn slots_of(&self, id: RuntimeId) -> impl Iterator<Item = &Slot> {
        let runtime = self.runtimes.get(&id);
        let upstreams = runtime
            .into_iter()
            .flat_map(|runtime| runtime.upstreams.values());
        upstreams.filter_map(|upstream| self.slots.get(upstream))
    }
}
