//! An empty home directory, and whatever runs in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{DRAWSPAN, Finished, PATIENCE, Process, until, until_gone};

/// An empty directory that is `HOME` and the current directory of everything run in it: whatever has that `HOME`
/// is ours.
pub(crate) struct Home(PathBuf);

impl Home {
    pub(crate) fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("drawspan-test-{}-{test}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.0
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// What is in it, hidden files too.
    pub(crate) fn listing(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// `drawspan` with these arguments, piped on all sides, and with nothing of our environment.
    pub(crate) fn drawspan(&self, args: &[&str]) -> Command {
        self.program(DRAWSPAN, args)
    }

    pub(crate) fn program(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("HOME", &self.0)
            .env("TMPDIR", &self.0)
            .env("PATH", std::env::var_os("PATH").unwrap())
            .current_dir(&self.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A shell script that runs `drawspan` with these arguments as `"$@"`.
    pub(crate) fn shell(&self, script: &str, args: &[&str]) -> Command {
        let mut command = self.program("sh", &["-c", script, "sh", DRAWSPAN]);
        command.args(args);
        command
    }

    /// Runs a command that ends by itself, with nothing on stdin.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        let mut command = self.drawspan(args);
        Process::start(command.stdin(Stdio::null())).finish()
    }

    /// `drawspan serve` with its embedded Gateway, which has two sample conversations.
    pub(crate) fn serve_embedded(&self) -> Process {
        Process::serve(&mut self.drawspan(&EMBEDDED))
    }

    /// Processes that run with this home, that is, everything started in it that has not ended.
    pub(crate) fn running(&self) -> Vec<(Pid, String)> {
        let home = format!("HOME={}", self.0.display());
        running(|environment, _| environment.contains(&home.as_bytes()))
    }

    /// The command lines of those.
    pub(crate) fn processes(&self) -> Vec<String> {
        let running = self.running().into_iter();
        running.map(|(_, line)| line).collect()
    }

    /// Waits until as many processes as `count` run in it.
    #[track_caller]
    pub(crate) fn expect_processes(&self, count: usize) {
        if count == 0 {
            return until_gone(PATIENCE, || self.running());
        }
        until("processes to end", || match self.processes() {
            found if found.len() == count => Ok(()),
            found => Err(format!("{found:?}")),
        });
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A test that failed may have left some.
        for (pid, _) in self.running() {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Processes of which this is so by their environment and their arguments, and the command lines of these. One
/// that has ended and is not reaped has neither. Linux: proc(5).
pub(crate) fn running(mut is_meant: impl FnMut(&[&[u8]], &[&[u8]]) -> bool) -> Vec<(Pid, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else {
            continue;
        };
        // Gone meanwhile, or somebody else's: not ours.
        let read = |file| std::fs::read(entry.path().join(file)).unwrap_or_default();
        let (environment, arguments) = (read("environ"), read("cmdline"));
        if is_meant(&split(&environment), &split(&arguments)) {
            let line = String::from_utf8_lossy(&arguments).replace('\0', " ");
            found.push((pid, line));
        }
    }
    found
}

fn split(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split(|&byte| byte == 0).collect()
}

pub(crate) const EMBEDDED: [&str; 5] = ["serve", "--gateway", "embedded", "--store", "store"];
