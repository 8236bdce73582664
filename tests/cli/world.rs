//! A home directory, and the programs that run in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use crate::process::{Finished, Lines, Process, expect_words, parse, text};

/// How long a test waits for anything before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The program under test.
pub(crate) const DRAWSPAN: &str = env!("CARGO_BIN_EXE_drawspan");

/// The first thing an MCP client says, as request 0, and what it says to the answer.
pub(crate) const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"tester","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
);

/// The token of every Gateway in these tests.
pub(crate) const TOKEN: &str = "the-gateway-token";

/// An empty directory that is `HOME` and the current directory of everything run in it.
pub(crate) struct Home(PathBuf);

impl Home {
    pub(crate) fn new(test: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("drawspan-cli-{}-{test}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        Self(dir)
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

    /// `drawspan serve` in front of `gateway`.
    pub(crate) fn serve(&self, gateway: &Gateway) -> Process {
        Process::serve(&mut self.drawspan(&[
            "serve",
            "--gateway",
            &gateway.url,
            TOKEN_FILE[0],
            TOKEN_FILE[1],
        ]))
    }

    /// `drawspan gateway` on the store `store`, at a port of the system's choice.
    pub(crate) fn gateway(&self) -> Gateway {
        self.gateway_at("ws://127.0.0.1:0")
    }

    /// The same at a place of one's own. A port on 127.0.0.1 may go to another test meanwhile, so
    /// whoever comes back to a port has an address of its own, such as 127.0.0.2.
    #[track_caller]
    pub(crate) fn gateway_at(&self, listen: &str) -> Gateway {
        self.write("token", TOKEN);
        let args = [
            "gateway",
            "--listen",
            listen,
            "--store",
            "store",
            TOKEN_FILE[0],
            TOKEN_FILE[1],
        ];
        let mut process = Process::start(&mut self.drawspan(&args));
        let line = process.stdout.expect("the Gateway's line");
        let url = line.split(' ').nth(1).unwrap().to_owned();
        Gateway { process, url }
    }

    /// Processes that run with this home, that is, everything started in it that has not ended.
    pub(crate) fn processes(&self) -> Vec<String> {
        let home = format!("HOME={}", self.0.display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            // Gone meanwhile, or somebody else's: not ours.
            let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environ.split(|&b| b == 0).any(|var| var == home.as_bytes()) {
                let cmdline = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                found.push(String::from_utf8_lossy(&cmdline).replace('\0', " "));
            }
        }
        found
    }

    /// Waits until as many processes as `count` run in it.
    #[track_caller]
    pub(crate) fn expect_processes(&self, count: usize) {
        until("processes to end", || match self.processes() {
            found if found.len() == count => Ok(()),
            found => Err(format!("{found:?}")),
        });
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) const EMBEDDED: [&str; 5] = ["serve", "--gateway", "embedded", "--store", "store"];

/// The flag for [`TOKEN`]; [`Home::gateway`] makes the file.
pub(crate) const TOKEN_FILE: [&str; 2] = ["--token-file", "token"];

/// A running `drawspan gateway`.
pub(crate) struct Gateway {
    pub(crate) process: Process,
    pub(crate) url: String,
}

/// Waits until `done` is, and fails with what it says instead.
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> Result<(), String>) {
    let since = Instant::now();
    while let Err(why) = done() {
        assert!(
            since.elapsed() < PATIENCE,
            "waited in vain for {what}: {why}"
        );
        std::thread::yield_now();
    }
}

/// Whether the tests that need a program from outside are to be left out; says so.
#[expect(clippy::print_stderr, reason = "a test that is left out says so")]
pub(crate) fn skips_peers(test: &str) -> bool {
    let skips = std::env::var_os("DRAWSPAN_SKIP_PEERS").is_some();
    if skips {
        eprintln!("skipped: {test} (DRAWSPAN_SKIP_PEERS is set)");
    }
    skips
}

/// Whether a file is readable and writable by its owner only.
pub(crate) fn is_private(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().unwrap().permissions().mode() & 0o777 == 0o600
}
