//! The connections of the runtimes: which there are, whose each is, what its server offers and how it is
//! doing. One that several runtimes have is made once.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::catalog::{Remark, Tool};
use super::error::UpstreamError;
use super::runtime::UpstreamId;
use super::server_config::{Isolation, ServerKey};
use super::upstream::{ServerState, Upstream};
use super::{Manager, ManagerOutput};
use crate::clock::{Now, Uptime};
use crate::ids::RuntimeId;
use crate::protocol::client::peer::ServerFacts;

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

/// Connecting, and how the servers of a session are doing.
impl Manager {
    /// Connects a runtime to all servers, side by side, and keeps trying those that fail.
    pub fn connect(&mut self, now: Now, id: RuntimeId) {
        if let Some(runtime) = self.runtimes.get_mut(&id) {
            runtime.wants_all = true;
        }
        self.connect_to_all(now, id, true);
        self.touch(now, id);
    }

    /// The same, each server once: [`Manager::is_settled`] comes in bounded time, however many of them fail.
    pub fn try_connect(&mut self, now: Now, id: RuntimeId) {
        self.connect_to_all(now, id, false);
        self.touch(now, id);
    }

    /// Goes on trying to connect to one server of a runtime, at the times that are due.
    pub fn keep_trying(&mut self, now: Now, id: RuntimeId, key: &ServerKey) {
        self.connect_to(now, id, key, true);
    }

    pub(super) fn connect_to_all(&mut self, now: Now, id: RuntimeId, keep_trying: bool) {
        let keys: Vec<ServerKey> = self.servers.keys().cloned().collect();
        for key in keys {
            self.connect_to(now, id, &key, keep_trying);
        }
    }

    pub(super) fn connect_to(
        &mut self,
        now: Now,
        id: RuntimeId,
        key: &ServerKey,
        keep_trying: bool,
    ) {
        let known = self.slot_of(id, key).is_some();
        if let Some(upstream) = self.upstream_of(id, key) {
            if !known {
                self.renew_wishes(now, upstream);
            }
            let leave = self.runtimes.get(&id).is_some_and(|of| of.tools_left);
            self.with(now, upstream, |one, turn| {
                if !leave {
                    one.leave_tools(turn, false);
                }
                one.connect(turn, keep_trying);
            });
        }
    }

    /// Whether each server of a runtime that was asked to connect has done so and said what tools it has,
    /// or has failed.
    #[must_use]
    pub fn is_settled(&self, id: RuntimeId) -> bool {
        self.runtimes.get(&id).is_none_or(|runtime| {
            runtime
                .upstreams
                .values()
                .filter_map(|upstream| self.slots.get(upstream))
                .all(|slot| !slot.upstream.is_settling())
        })
    }

    /// Whether one server of a runtime is still being connected to, or asked for its tools.
    #[must_use]
    pub fn is_settling(&self, id: RuntimeId, key: &ServerKey) -> bool {
        self.slot_of(id, key)
            .is_some_and(|slot| slot.upstream.is_settling())
    }

    /// How a server is doing in a runtime, and why it is not better.
    #[must_use]
    pub fn state(&self, id: RuntimeId, key: &ServerKey) -> (ServerState, Option<&UpstreamError>) {
        match self.slot_of(id, key) {
            Some(slot) => (slot.upstream.state(), slot.upstream.last_error()),
            None => (ServerState::Idle, None),
        }
    }

    /// What a server says of itself in a runtime, once it is ready; `None` while it is being connected to, or
    /// not asked for.
    ///
    /// # Errors
    /// Why it is not, and how long it is left alone.
    pub fn met(
        &self,
        now: Now,
        id: RuntimeId,
        key: &ServerKey,
    ) -> Result<Option<&ServerFacts>, UpstreamError> {
        match self.slot_of(id, key) {
            Some(slot) => slot.upstream.met(now),
            None => Ok(None),
        }
    }

    /// What a server said of itself in a runtime; while it is connected.
    #[must_use]
    pub fn facts(&self, id: RuntimeId, key: &ServerKey) -> Option<&ServerFacts> {
        self.slot_of(id, key).and_then(|slot| slot.upstream.facts())
    }

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
            self.slots.insert(made, Box::new(slot));
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
        self.slots.get(upstream).map(Box::as_ref)
    }

    pub(super) fn slots_of(&self, id: RuntimeId) -> impl Iterator<Item = &Slot> {
        let runtime = self.runtimes.get(&id);
        let upstreams = runtime
            .into_iter()
            .flat_map(|runtime| runtime.upstreams.values());
        upstreams.filter_map(|upstream| self.slots.get(upstream).map(Box::as_ref))
    }
}
