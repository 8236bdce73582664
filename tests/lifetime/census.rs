//! Counting processes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::common::{running, until_gone};

/// How soon after an end nothing may be left.
pub(crate) const GONE: Duration = Duration::from_secs(3);

/// The word that marks what one test starts.
#[derive(Clone, Debug)]
pub(crate) struct Census(String);

impl Census {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(format!("{}-{next}", std::process::id()))
    }

    /// One that another process has made.
    pub(crate) fn known(word: String) -> Self {
        Self(word)
    }

    pub(crate) fn word(&self) -> &str {
        &self.0
    }

    /// The argument that marks a guardian.
    pub(crate) fn argument(&self) -> String {
        format!("CENSUS={}", self.0)
    }

    /// The variable that marks a server and whatever comes of it.
    pub(crate) fn variable(&self) -> (String, String) {
        ("CENSUS".to_owned(), self.0.clone())
    }

    /// What runs: process and command line. (A zombie has neither environment nor arguments.)
    pub(crate) fn count(&self) -> Vec<(Pid, String)> {
        let mark = self.argument();
        let mark = mark.as_bytes();
        running(|environment, arguments| environment.contains(&mark) || arguments.contains(&mark))
    }

    /// The guardians among them.
    pub(crate) fn guardians(&self) -> Vec<Pid> {
        let mut found = self.count();
        found.retain(|(_, cmdline)| cmdline.contains(" guard "));
        found.into_iter().map(|(pid, _)| pid).collect()
    }

    /// Nothing runs any more, at the latest [`GONE`] after `since`.
    #[track_caller]
    pub(crate) fn expect_nothing(&self, since: Instant) {
        until_gone(GONE.saturating_sub(since.elapsed()), || self.count());
    }
}

/// The children of a process and the letter of their state. Linux: proc(5).
pub(crate) fn children(parent: Pid) -> Vec<(Pid, char)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((head, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let mut rest = rest.split(' ');
        let state = rest.next().and_then(|state| state.chars().next());
        if rest.next() == Some(&parent.as_raw_nonzero().to_string()) {
            let pid = head.split(' ').next().unwrap().parse().unwrap();
            found.push((Pid::from_raw(pid).unwrap(), state.unwrap()));
        }
    }
    found
}
