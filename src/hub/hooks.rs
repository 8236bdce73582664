//! Runs of the before-tool-call hook.

use super::{Hub, Owner};
use crate::clock::Now;
use crate::gate::{Verdict, read_hook_output};
use crate::ids::CallId;

impl Hub {
    #[inline(never)]
    pub(super) fn step_hooks(&mut self, now: Now) -> bool {
        let mut over = Vec::new();
        for (call, run) in &mut self.hooks {
            while let Some(request) = run.poll_io() {
                self.io.push_back(request);
            }
            if let Some(outcome) = run.poll_outcome() {
                over.push((*call, outcome));
            }
        }
        let moved = !over.is_empty();
        for (call, outcome) in over {
            self.drop_hook(call);
            let verdict = match outcome {
                Ok(printed) => read_hook_output(&printed),
                Err(why) => Verdict::Deny {
                    reason: format!("tool call refused: the before-tool-call hook failed: {why}"),
                },
            };
            if let Some(passage) = self.gate.resolve(now, call, verdict) {
                self.route_passage(now, passage);
            }
        }
        moved
    }

    pub(super) fn drop_hook(&mut self, call: CallId) {
        if let Some(mut run) = self.hooks.remove(&call) {
            run.abandon();
            while let Some(request) = run.poll_io() {
                self.io.push_back(request);
            }
            self.wires.retain(|_, owner| *owner != Owner::Hook(call));
        }
    }
}
