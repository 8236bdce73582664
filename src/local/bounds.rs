//! The bounds of this layer, by the names under which `Limits` will carry them.

use std::time::Duration;

use crate::limits::Limits;

/// Plain data, copied into the desk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Entries on one page of a list. Unit: entries.
    pub(super) list_page_entries_max: usize,
    /// Length of one page of a list; one entry always fits. Unit: bytes.
    pub(super) list_page_bytes_max: usize,
    /// Tasks kept, finished ones counted; the oldest finished one goes first. Unit: tasks.
    pub(super) tasks_max: usize,
    /// Results of tasks that are kept, all together; the oldest goes first. Unit: bytes.
    pub(super) task_results_bytes_max: usize,
    /// Life of a task, its result included.
    pub(super) task_ttl: Duration,
    /// How often a client should ask for a task.
    pub(super) task_poll_interval: Duration,
    /// Questions to a client in one round. Unit: questions.
    pub(super) input_requests_max: usize,
    /// Rounds of questions in one call or task. Unit: rounds.
    pub(super) input_rounds_max: u32,
    /// How long a client may take to come back with its answers.
    pub(super) request_state_ttl: Duration,
    /// What a program may store in a request state. Unit: bytes.
    pub(super) request_state_bytes_max: usize,
    /// Nesting in what the program gives us. Unit: levels.
    pub(super) json_depth_max: usize,
}

impl Bounds {
    pub(super) const DEFAULT: Self = Self {
        list_page_entries_max: 1_000,
        list_page_bytes_max: 1024 * 1024,
        tasks_max: 1_024,
        task_results_bytes_max: 64 * 1024 * 1024,
        task_ttl: Duration::from_secs(60 * 60),
        task_poll_interval: Duration::from_secs(1),
        input_requests_max: 16,
        input_rounds_max: 16,
        request_state_ttl: Duration::from_secs(10 * 60),
        request_state_bytes_max: 64 * 1024,
        json_depth_max: Limits::DEFAULT.json_depth_max,
    };
}

impl From<&Limits> for Bounds {
    fn from(limits: &Limits) -> Self {
        Self {
            json_depth_max: limits.json_depth_max,
            ..Self::DEFAULT
        }
    }
}
