//! Rest: a runtime that nobody has used for long enough, or has a lease of, lets go of its connections, and
//! the next use of a server connects again.

use std::time::Duration;

use super::Manager;
use super::runtime::UpstreamId;
use super::upstream::Upstream;
use crate::clock::{Now, Uptime};
use crate::ids::RuntimeId;

/// Leases: what is kept although nothing is open.
impl Manager {
    /// Keeps a runtime's connections although nothing of it is open, until [`Manager::release`].
    pub fn lease(&mut self, now: Now, id: RuntimeId) {
        self.change_leases(now, id, 1);
    }

    /// Takes back one [`Manager::lease`].
    pub fn release(&mut self, now: Now, id: RuntimeId) {
        self.change_leases(now, id, -1);
    }

    fn change_leases(&mut self, now: Now, id: RuntimeId, by: i32) {
        if let Some(runtime) = self.runtimes.get_mut(&id) {
            runtime.leases = runtime.leases.saturating_add_signed(by);
        }
        self.touch(now, id);
    }

    /// A runtime was used just now.
    pub(super) fn touch(&mut self, now: Now, id: RuntimeId) {
        let Some(runtime) = self.runtimes.get_mut(&id) else {
            return;
        };
        runtime.last_used = now.up;
        if runtime.look_at.is_none() {
            self.look_later(id);
        }
    }

    /// Sees to it that a runtime is looked at when it will have been idle for long enough. One that is used
    /// meanwhile stays where it is in the row: it is looked at too early then, once, and not moved by each use.
    fn look_later(&mut self, id: RuntimeId) {
        let ttl = self.limits.runtime_idle_ttl;
        if let Some(runtime) = self.runtimes.get_mut(&id) {
            let at = idle_at(runtime.last_used, ttl);
            runtime.look_at = Some(at);
            self.idle.insert((at, id));
        }
    }

    /// Lets go of the connections of runtimes that nobody has used for long enough. A runtime that is in
    /// use is looked at again later.
    pub(super) fn rest_idle(&mut self, now: Now) {
        while let Some((at, id)) = self.idle.first().copied().filter(|(at, _)| *at <= now.up) {
            self.idle.remove(&(at, id));
            let Some(runtime) = self.runtimes.get_mut(&id) else {
                continue;
            };
            runtime.look_at = None;
            if idle_at(runtime.last_used, self.limits.runtime_idle_ttl) > now.up {
                self.look_later(id);
                continue;
            }
            if !runtime.is_idle() {
                self.touch(now, id);
                continue;
            }
            runtime.wants_all = false;
            let upstreams: Vec<UpstreamId> = runtime.upstreams.values().copied().collect();
            for upstream in upstreams {
                if self.nobody_uses(now, upstream) {
                    self.with(now, upstream, Upstream::rest);
                }
            }
        }
    }

    /// Whether every runtime that has this connection has been idle for long enough.
    fn nobody_uses(&self, now: Now, id: UpstreamId) -> bool {
        self.slots.get(&id).is_some_and(|slot| {
            slot.owners
                .iter()
                .filter_map(|owner| self.runtimes.get(owner))
                .all(|runtime| {
                    let at = idle_at(runtime.last_used, self.limits.runtime_idle_ttl);
                    runtime.is_idle() && at <= now.up
                })
        })
    }
}

/// When a runtime that was used then has been idle for long enough: never, where the limit is 0.
fn idle_at(last_used: Uptime, ttl: Duration) -> Uptime {
    last_used.after(if ttl.is_zero() { Duration::MAX } else { ttl })
}
