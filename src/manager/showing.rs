//! What runtimes are shown of the tools that servers list: which of them, under which names, and what there
//! is to say of a listing.

use std::sync::Arc;

use super::catalog::{ToolSet, drift};
use super::connections::Offer;
use super::diagnostic::ServerDiagnostic;
use super::error::UpstreamError;
use super::lock::Judged;
use super::runtime::UpstreamId;
use super::server_config::ServerKey;
use super::upstream::Listed;
use super::{Manager, ManagerOutput, explain};
use crate::clock::Now;
use crate::ids::RuntimeId;

impl Manager {
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
