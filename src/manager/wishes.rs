//! What runtimes want of their servers for as long as they live: subscriptions, and log messages
//! from some severity on. A connection that several runtimes have is told what any of them wants.

use std::collections::{BTreeMap, BTreeSet};

use super::error::UpstreamError;
use super::runtime::UpstreamId;
use super::server_config::ServerKey;
use super::upstream::Upstream;
use super::{Manager, ManagerOutput, explain};
use crate::clock::Now;
use crate::ids::RuntimeId;
use crate::protocol::message::LogLevel;
use crate::protocol::topic::Topic;

/// The wishes of one runtime.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    subscriptions: BTreeMap<ServerKey, BTreeSet<Topic>>,
    log_level: Option<LogLevel>,
    log_floor: Option<LogLevel>,
}

impl Wishes {
    fn is_empty(&self) -> bool {
        self.subscriptions.is_empty() && self.log_level.is_none() && self.log_floor.is_none()
    }
}

/// What a session wants for as long as it lives.
impl Manager {
    /// What of a server a runtime is subscribed to from now on: all of it. Each new topic is told of
    /// once, by [`ManagerOutput::Subscribed`]. While there are some, the server is connected to, and again when
    /// it has died; then, and where its stream was lost, each of them counts as updated: a task is asked for.
    pub fn set_subscriptions(
        &mut self,
        now: Now,
        id: RuntimeId,
        key: &ServerKey,
        topics: BTreeSet<Topic>,
    ) {
        let Some(runtime) = self.runtimes.get_mut(&id) else {
            return;
        };
        let all = &mut runtime.wishes.subscriptions;
        let had_some = !all.is_empty();
        let before = match topics.is_empty() {
            true => all.remove(key),
            false => all.insert(key.clone(), topics.clone()),
        };
        let before = before.unwrap_or_default();
        match (had_some, !all.is_empty()) {
            (false, true) => self.lease(now, id),
            (true, false) => self.release(now, id),
            (true, true) | (false, false) => {}
        }
        let Some(upstream) = self.upstream_of(id, key) else {
            for topic in topics.difference(&before) {
                self.outputs.push_back(ManagerOutput::Subscribed {
                    runtime: id,
                    server: key.clone(),
                    topic: topic.clone(),
                    outcome: Err(Box::new(explain::unknown_server(key))),
                });
            }
            return;
        };
        let slot = self.slots.get(&upstream);
        let known = |topic: &&Topic| slot.is_some_and(|slot| slot.upstream.is_subscribed(topic));
        let granted: Vec<Topic> = topics.difference(&before).filter(known).cloned().collect();
        // Another runtime has it already.
        for topic in granted {
            self.outputs.push_back(ManagerOutput::Subscribed {
                runtime: id,
                server: key.clone(),
                topic,
                outcome: Ok(()),
            });
        }
        self.renew_subscriptions(now, upstream);
    }

    /// Asks a server what has become of a task that a runtime is subscribed to: told as if the server had
    /// told it.
    pub fn ask_for_task(&mut self, now: Now, id: RuntimeId, key: &ServerKey, task: &str) {
        let upstream = self.runtimes.get(&id);
        let upstream = upstream.and_then(|runtime| runtime.upstreams.get(key));
        if let Some(upstream) = upstream.copied() {
            self.with(now, upstream, |one, turn| one.ask_for_task(turn, task));
        }
    }

    /// From which severity on a runtime wants log messages of its servers: `None` for what each says by itself,
    /// which is nothing in the stateless era.
    pub fn set_log_level(&mut self, now: Now, id: RuntimeId, level: LogLevel) {
        if let Some(runtime) = self.runtimes.get_mut(&id) {
            runtime.wishes.log_level = Some(level);
        }
        self.renew_all(now, id);
    }

    /// The servers of a runtime have been told by a request of it from which severity on it wants log messages:
    /// their next connections are told, too.
    pub fn adopt_log_level(&mut self, now: Now, id: RuntimeId, level: LogLevel) {
        let Some(runtime) = self.runtimes.get_mut(&id) else {
            return;
        };
        runtime.wishes.log_level = Some(level);
        let upstreams: Vec<UpstreamId> = runtime.upstreams.values().copied().collect();
        for upstream in upstreams {
            self.with(now, upstream, |one, turn| one.adopt_log_level(turn, level));
        }
    }

    /// A request of a runtime wants log messages from this severity on, which a server of the handshake
    /// revisions can be told for its whole session only. What it says then is for the caller to sort out.
    pub fn want_logs(&mut self, now: Now, id: RuntimeId, level: LogLevel) {
        let Some(runtime) = self.runtimes.get_mut(&id) else {
            return;
        };
        let floor = &mut runtime.wishes.log_floor;
        if floor.is_none_or(|known| level < known) {
            *floor = Some(level);
            self.renew_all(now, id);
        }
    }

    fn renew_all(&mut self, now: Now, id: RuntimeId) {
        let runtime = self.runtimes.get(&id);
        let upstreams = runtime.map(|runtime| runtime.upstreams.values().copied().collect());
        let upstreams: Vec<UpstreamId> = upstreams.unwrap_or_default();
        for upstream in upstreams {
            self.renew_wishes(now, upstream);
        }
    }

    /// Tells a connection what its runtimes want of it.
    pub(super) fn renew_wishes(&mut self, now: Now, upstream: UpstreamId) {
        let owners = self.wishes_of(upstream);
        if owners.iter().all(|wishes| wishes.is_empty()) && !self.slot_has_wishes(upstream) {
            return;
        }
        let least = |of: fn(&Wishes) -> Option<LogLevel>| {
            owners.iter().filter_map(|wishes| of(wishes)).min()
        };
        let level = least(|wishes| wishes.log_level);
        let floor = least(|wishes| wishes.log_floor);
        self.with(now, upstream, |one, turn| {
            one.set_log_level(turn, level, floor);
        });
        self.renew_subscriptions(now, upstream);
    }

    fn slot_has_wishes(&self, upstream: UpstreamId) -> bool {
        let slot = self.slots.get(&upstream);
        slot.is_some_and(|slot| slot.upstream.has_wishes())
    }

    fn wishes_of(&self, upstream: UpstreamId) -> Vec<&Wishes> {
        let owners = self.slots.get(&upstream).map(|slot| &slot.owners);
        let runtimes = owners
            .into_iter()
            .flatten()
            .filter_map(|id| self.runtimes.get(id));
        // One that has another connection to this server by now wants it of that.
        let present = runtimes.filter(|runtime| {
            let mut theirs = runtime.upstreams.values();
            theirs.any(|id| *id == upstream)
        });
        present.map(|runtime| &runtime.wishes).collect()
    }

    fn renew_subscriptions(&mut self, now: Now, upstream: UpstreamId) {
        let Some(key) = self.slots.get(&upstream).map(|slot| slot.key.clone()) else {
            return;
        };
        let wishes = self.wishes_of(upstream);
        let all = wishes
            .into_iter()
            .filter_map(|wishes| wishes.subscriptions.get(&key));
        let topics: BTreeSet<Topic> = all.flatten().cloned().collect();
        self.with(now, upstream, |one: &mut Upstream, turn| {
            one.set_subscriptions(turn, &topics);
        });
    }

    /// A server has said whether a topic is subscribed to: each runtime that wants it is told.
    pub(super) fn route_subscribed(
        &mut self,
        now: Now,
        key: &ServerKey,
        owners: &[RuntimeId],
        topic: &Topic,
        outcome: &Result<(), UpstreamError>,
    ) {
        for id in owners {
            let Some(runtime) = self.runtimes.get(id) else {
                continue;
            };
            let wanted = runtime.wishes.subscriptions.get(key);
            let Some(mut wanted) = wanted.filter(|all| all.contains(topic)).cloned() else {
                continue;
            };
            let outcome = outcome.clone().map_err(Box::new);
            let refused = outcome.is_err();
            self.outputs.push_back(ManagerOutput::Subscribed {
                runtime: *id,
                server: key.clone(),
                topic: topic.clone(),
                outcome,
            });
            if refused {
                wanted.remove(topic);
                self.set_subscriptions(now, *id, key, wanted);
            }
        }
    }
}
