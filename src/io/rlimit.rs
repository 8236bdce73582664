//! How many descriptors this process may have.
//!
//! A login gives 1,024 (the soft limit) and allows far more (the hard limit). The loop takes what is
//! allowed; the programs it starts get back what we were given, because some of them walk through
//! every number below the limit, and `select` knows none above 1,023.

use std::sync::OnceLock;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};

/// What macOS allows where the hard limit says "any number". Darwin: `OPEN_MAX`.
const OPEN_MAX: u64 = 10_240;

/// The soft limit this process began with; `Some(None)` is no limit.
static GIVEN: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit to the hard one, for the whole process. A refusal leaves it as it is.
pub(super) fn raise() {
    let found = getrlimit(Resource::Nofile);
    GIVEN.get_or_init(|| found.current);
    if found.current == found.maximum {
        return;
    }
    let raised = |current| Rlimit { current, ..found };
    if setrlimit(Resource::Nofile, raised(found.maximum)).is_err() {
        let some = found.maximum.map_or(OPEN_MAX, |most| most.min(OPEN_MAX));
        if found.current.is_some_and(|current| current < some) {
            let _ = setrlimit(Resource::Nofile, raised(Some(some)));
        }
    }
}

/// The soft limit this process began with, where there is one and [`raise`] was called.
#[cfg(target_os = "linux")]
pub(super) fn given() -> Option<u64> {
    GIVEN.get().copied().flatten()
}

/// Takes the soft limit down to `most`.
#[cfg(all(target_os = "linux", feature = "cli"))]
pub(super) fn lower(most: u64) {
    let found = getrlimit(Resource::Nofile);
    // The hard limit may have come down since.
    let current = Some(found.maximum.map_or(most, |limit| limit.min(most)));
    let _ = setrlimit(Resource::Nofile, Rlimit { current, ..found });
}

/// Descriptors that are neither a connection's nor a child's: the poll, timers, files, and those
/// that are open for a moment.
const OUR_OWN: usize = 64;

/// Descriptors of one child: its three pipes, and what tells of its end.
const PER_CHILD: usize = 4;

/// How many descriptors the process may come to need. Source: reliability-security §3.
pub(super) fn budget(connections_max: usize, children_max: usize) -> usize {
    connections_max
        .saturating_add(children_max.saturating_mul(PER_CHILD))
        .saturating_add(OUR_OWN)
}

/// The soft limit in force.
pub(super) fn descriptors_max() -> usize {
    match getrlimit(Resource::Nofile).current {
        Some(most) => usize::try_from(most).unwrap_or(usize::MAX),
        None => usize::MAX,
    }
}

/// Gives a program that we have just started the soft limit that we were given. Nothing comes of it
/// when the program has gained rights that we have not.
#[cfg(target_os = "linux")]
pub(super) fn hand_down(child: Pid) {
    let Some(current) = GIVEN.get().copied() else {
        return;
    };
    let ours = getrlimit(Resource::Nofile);
    if ours.current == current {
        return;
    }
    // The hard limit may have come down since.
    let current = current.into_iter().chain(ours.maximum).min();
    let given = Rlimit { current, ..ours };
    if let Err(error) = rustix::process::prlimit(Some(child), Resource::Nofile, given) {
        log::debug!(
            "process {} keeps our descriptor limit: {error}",
            child.as_raw_nonzero()
        );
    }
}

/// Elsewhere no process sets another one's limits.
#[cfg(not(target_os = "linux"))]
pub(super) fn hand_down(_child: Pid) {}
