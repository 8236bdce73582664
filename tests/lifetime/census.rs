//! Counting processes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How soon after an end nothing may be left.
pub(crate) const GONE: Duration = Duration::from_secs(3);

/// How long a test waits for anything else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

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

    /// What runs: process id and command line. (A zombie has neither environment nor arguments.)
    pub(crate) fn count(&self) -> Vec<(u32, String)> {
        let mark = self.argument();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // Gone meanwhile, or somebody else's: not ours.
            let read = |file| std::fs::read(entry.path().join(file)).unwrap_or_default();
            let cmdline = read("cmdline");
            let marked = |bytes: &[u8]| bytes.split(|&b| b == 0).any(|s| s == mark.as_bytes());
            if marked(&cmdline) || marked(&read("environ")) {
                found.push((pid, String::from_utf8_lossy(&cmdline).replace('\0', " ")));
            }
        }
        found
    }

    /// The guardians among them.
    pub(crate) fn guardians(&self) -> Vec<u32> {
        let mut found = self.count();
        found.retain(|(_, cmdline)| cmdline.contains(" guard "));
        found.into_iter().map(|(pid, _)| pid).collect()
    }

    /// Waits until as many run.
    #[track_caller]
    pub(crate) fn expect(&self, count: usize) {
        until(PATIENCE, "the processes to be there", || {
            let found = self.count();
            (found.len() == count).then_some(()).ok_or(found)
        });
    }

    /// Nothing runs any more, at the latest [`GONE`] after `since`.
    #[track_caller]
    pub(crate) fn expect_nothing(&self, since: Instant) {
        let left = GONE.saturating_sub(since.elapsed());
        until(left, "the processes to be gone", || {
            let found = self.count();
            found.is_empty().then_some(()).ok_or(found)
        });
    }
}

/// Asks again and again.
#[track_caller]
pub(crate) fn until<E: std::fmt::Debug>(
    patience: Duration,
    what: &str,
    mut done: impl FnMut() -> Result<(), E>,
) {
    let since = Instant::now();
    while let Err(found) = done() {
        assert!(
            since.elapsed() < patience,
            "waited in vain for {what}: {found:?}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The children of a process and the letter of their state. Linux: proc(5).
pub(crate) fn children(parent: u32) -> Vec<(u32, char)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((head, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let mut rest = rest.split(' ');
        let state = rest.next().and_then(|state| state.chars().next());
        if rest.next() == Some(&parent.to_string()) {
            let pid = head.split(' ').next().unwrap().parse().unwrap();
            found.push((pid, state.unwrap()));
        }
    }
    found
}
