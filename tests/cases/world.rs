//! A home directory, the program under test in it, and the peers it talks to.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::http::{Got, Peer};
use crate::log::Log;

/// How long a test waits for anything before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Less than the time limits that a case must not run into, much more than anything else takes.
pub(crate) const PROMPT: Duration = Duration::from_secs(8);

pub(crate) const DRAWSPAN: &str = env!("CARGO_BIN_EXE_drawspan");

/// Both eras, by what `--protocol` and the configuration call them.
pub(crate) const ERAS: [&str; 2] = ["legacy", "modern"];

/// A case file.
pub(crate) fn case(id: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("protocol-fixtures/cases")
        .join(format!("{id}.json"));
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&bytes).unwrap()
}

/// The program that plays stdio servers. `cargo test` builds it; where only one test file is built,
/// this does.
pub(crate) fn scripted_server() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let here = std::env::current_exe().unwrap();
        let profile = here.parent().unwrap().parent().unwrap();
        let program = profile.join("examples/scripted_server");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        let modified = |path: &Path| path.metadata().and_then(|meta| meta.modified()).ok();
        let sources = ["", "/http", "/log", "/steps"].map(|name| {
            let path = root.join(format!("scripted_server{name}.rs"));
            modified(&path).expect("a source")
        });
        let fresh = |built: SystemTime| sources.iter().all(|&source| source < built);
        if !modified(&program).is_some_and(fresh) {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
            cargo.args([
                "build",
                "--quiet",
                "--offline",
                "--example",
                "scripted_server",
            ]);
            if profile.ends_with("release") {
                cargo.arg("--release");
            }
            cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
            assert!(cargo.status().unwrap().success(), "{cargo:?}");
        }
        program
    })
}

/// An empty directory that is `HOME` of everything started in it: whatever has that `HOME` is ours.
pub(crate) struct World {
    dir: PathBuf,
    /// More environment for the program under test.
    pub(crate) env: Vec<(OsString, OsString)>,
}

impl World {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("drawspan-cases-{}-{test}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let env = Vec::new();
        Self { dir, env }
    }

    pub(crate) fn home(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.join(name).to_str().unwrap().to_owned()
    }

    /// The command of a stdio server that runs these steps, and notes what it hears.
    pub(crate) fn command(&self, server: &str, steps: &Value) -> Vec<String> {
        let script = json!({"input": {"kind": "stdio-server", "steps": steps}});
        let file = self.path(&format!("{server}.case.json"));
        std::fs::write(&file, script.to_string()).unwrap();
        let program = scripted_server().to_str().unwrap().to_owned();
        vec![program, file, "--log".to_owned(), self.log(server)]
    }

    /// The same as an entry of a configuration, with more keys.
    pub(crate) fn entry(&self, server: &str, steps: &Value, more: Value) -> Value {
        let command = self.command(server, steps);
        let mut entry = json!({"command": command[0], "args": command[1..]});
        merge(&mut entry, more);
        entry
    }

    fn log(&self, server: &str) -> String {
        self.path(&format!("{server}.log"))
    }

    /// Writes a configuration with these servers and gives its path.
    pub(crate) fn config(&self, servers: Value) -> String {
        self.config_with(servers, json!({}))
    }

    /// The same with more keys at the top.
    pub(crate) fn config_with(&self, servers: Value, more: Value) -> String {
        let mut config = json!({"mcpServers": servers});
        merge(&mut config, more);
        let path = self.path("config.json");
        std::fs::write(&path, config.to_string()).unwrap();
        path
    }

    /// What a stdio server noted.
    pub(crate) fn heard(&self, server: &str) -> Heard {
        let text = std::fs::read_to_string(self.log(server)).unwrap_or_default();
        Heard(
            text.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
        )
    }

    /// The program under test with these arguments.
    pub(crate) fn drawspan(&self, args: &[&str]) -> Command {
        self.program(DRAWSPAN, args)
    }

    pub(crate) fn program(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .envs(self.env.iter().cloned())
            .env("HOME", &self.dir)
            .env("TMPDIR", &self.dir)
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end.
    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> Run {
        Run::of(&mut self.drawspan(args))
    }

    /// Nothing that was started here runs any more, or it ends now.
    #[track_caller]
    pub(crate) fn expect_nobody(&self) {
        until("processes to end", || self.nobody());
    }

    /// Nothing that was started here runs any more.
    pub(crate) fn nobody(&self) -> Result<(), String> {
        let found = self.processes();
        if found.is_empty() {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    }

    fn processes(&self) -> Vec<(Pid, String)> {
        let home = format!("HOME={}", self.dir.display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let pid = entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse().ok());
            let Some(pid) = pid.and_then(Pid::from_raw) else {
                continue;
            };
            // Gone meanwhile, or somebody else's: not ours.
            let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environ.split(|&b| b == 0).any(|var| var == home.as_bytes()) {
                let cmdline = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let cmdline = String::from_utf8_lossy(&cmdline).replace('\0', " ");
                found.push((pid, cmdline));
            }
        }
        found
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A test that failed may have left some.
        for (pid, _) in self.processes() {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The lines of a stdio server's log.
#[derive(Clone, Debug)]
pub(crate) struct Heard(pub(crate) Vec<Value>);

impl Heard {
    /// The messages it got, in order.
    pub(crate) fn messages(&self) -> Vec<&Value> {
        self.0.iter().filter_map(|line| line.get("got")).collect()
    }

    pub(crate) fn of(&self, method: &str) -> Vec<&Value> {
        let messages = self.messages().into_iter();
        messages
            .filter(|message| message["method"] == method)
            .collect()
    }

    /// Where in its log a message stands for the first time.
    #[track_caller]
    pub(crate) fn position(&self, what: &str, fits: impl Fn(&Value) -> bool) -> usize {
        let found = self.messages().into_iter().position(fits);
        found.unwrap_or_else(|| panic!("it never heard {what}: {:#?}", self.0))
    }

    /// How each of its processes was started.
    pub(crate) fn starts(&self) -> Vec<&Value> {
        self.0
            .iter()
            .filter_map(|line| line.get("started"))
            .collect()
    }
}

/// What a command left.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) took: Duration,
    /// When the last byte of its stdout came, from its start.
    pub(crate) answered: Duration,
}

impl Run {
    /// Runs to the end. A signal as its end fails the test.
    #[track_caller]
    pub(crate) fn of(command: &mut Command) -> Self {
        let started = Instant::now();
        let mut child = command.spawn().unwrap();
        let pid = Pid::from_child(&child);
        let stdout = read(child.stdout.take().unwrap(), started);
        let stderr = read(child.stderr.take().unwrap(), started);
        let (sender, ended) = channel();
        std::thread::spawn(move || {
            let status = child.wait().unwrap();
            let _ = sender.send((status, started.elapsed()));
        });
        let Ok((status, took)) = ended.recv_timeout(PATIENCE) else {
            let _ = kill_process(pid, Signal::KILL);
            let (stderr, _) = stderr.recv_timeout(PATIENCE).unwrap_or_default();
            panic!("{command:?} did not end\nstderr {stderr}");
        };
        let (stdout, answered) = stdout.recv_timeout(PATIENCE).expect("the end of stdout");
        let (stderr, _) = stderr.recv_timeout(PATIENCE).expect("the end of stderr");
        let code = status.code();
        let code = code.unwrap_or_else(|| panic!("{command:?}: {status}\nstderr {stderr}"));
        Self {
            code,
            stdout,
            stderr,
            took,
            answered,
        }
    }

    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    /// It failed, in whatever way.
    #[track_caller]
    pub(crate) fn expect_failure(self) -> Self {
        assert!(self.code != 0 && self.code != 2, "{self:#?}");
        self
    }

    /// It was not kept waiting until a time limit of the case.
    #[track_caller]
    pub(crate) fn expect_prompt(self) -> Self {
        assert!(self.took < PROMPT && self.code != 124, "{self:#?}");
        self
    }

    /// The one document on its stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let parsed = serde_json::from_str(&self.stdout);
        parsed.unwrap_or_else(|e| panic!("stdout is not one document: {e}\n{self:#?}"))
    }

    /// The error on the last line of its stderr; stdout is empty.
    #[track_caller]
    pub(crate) fn error(&self) -> Value {
        assert_eq!(self.stdout, "", "{self:#?}");
        let last = self.stderr.lines().last().unwrap_or("");
        let parsed: Value = serde_json::from_str(last)
            .unwrap_or_else(|e| panic!("no error on stderr: {e}\n{self:#?}"));
        let error = parsed["error"].clone();
        assert!(
            error["code"].is_i64() && error["message"].is_string(),
            "{self:#?}"
        );
        error
    }

    /// The message of that error, which says all these words.
    #[track_caller]
    pub(crate) fn expect_error(&self, words: &[&str]) -> Value {
        let error = self.error();
        expect_words(error["message"].as_str().unwrap(), words);
        error
    }

    /// The names of the tools that `list` printed.
    #[track_caller]
    pub(crate) fn tools(&self) -> Vec<String> {
        let json = self.json();
        let tools = json["tools"].as_array();
        let tools = tools.unwrap_or_else(|| panic!("no tools: {self:#?}"));
        tools.iter().map(|tool| text_of(&tool["name"])).collect()
    }

    /// The diagnostics of `list` and `probe`.
    #[track_caller]
    pub(crate) fn diagnostics(&self) -> Vec<Value> {
        let json = self.json();
        let diagnostics = json["diagnostics"].as_array().cloned();
        let diagnostics = diagnostics.unwrap_or_else(|| panic!("no diagnostics: {self:#?}"));
        for diagnostic in &diagnostics {
            assert!(diagnostic["serverName"].is_string(), "{diagnostic}");
            assert!(diagnostic["message"].is_string(), "{diagnostic}");
        }
        diagnostics
    }

    /// The diagnostics of one server.
    #[track_caller]
    pub(crate) fn diagnostics_of(&self, server: &str) -> Vec<Value> {
        let mut diagnostics = self.diagnostics();
        diagnostics.retain(|diagnostic| diagnostic["serverName"] == server);
        diagnostics
    }

    /// The one diagnostic of this server with these words.
    #[track_caller]
    pub(crate) fn expect_diagnostic(&self, server: &str, words: &[&str]) -> Value {
        let all = self.diagnostics_of(server);
        let says = |diagnostic: &&Value| {
            let message = diagnostic["message"].as_str().unwrap();
            words.iter().all(|word| message.contains(word))
        };
        let found: Vec<&Value> = all.iter().filter(says).collect();
        assert_eq!(
            found.len(),
            1,
            "not one of {server} with {words:?}: {all:#?}"
        );
        found[0].clone()
    }

    /// What `call` printed: the text of the first block.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        text_of(&self.json()["content"][0]["text"])
    }
}

#[track_caller]
pub(crate) fn text_of(value: &Value) -> String {
    let text = value.as_str();
    text.unwrap_or_else(|| panic!("no text: {value}"))
        .to_owned()
}

#[track_caller]
pub(crate) fn expect_words(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text:?}");
    }
}

/// Reads to the end; the text, and when its last byte came.
fn read(mut from: impl Read + Send + 'static, started: Instant) -> Receiver<(String, Duration)> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let (mut all, mut last) = (Vec::new(), Duration::ZERO);
        let mut chunk = [0; 65_536];
        while let Ok(n) = from.read(&mut chunk) {
            if n == 0 {
                break;
            }
            all.extend_from_slice(&chunk[..n]);
            last = started.elapsed();
        }
        let text = String::from_utf8(all).expect("UTF-8");
        let _ = sender.send((text, last));
    });
    receiver
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

/// Adds the members of `more`.
pub(crate) fn merge(object: &mut Value, more: Value) {
    let Value::Object(more) = more else {
        panic!("not an object: {more}")
    };
    for (name, value) in more {
        object[name] = value;
    }
}

/// An HTTP server of a case.
pub(crate) fn serve(input: &Value) -> Peer {
    Peer::start(input, None, Log::default()).unwrap()
}

/// The same with one of its variants.
pub(crate) fn serve_variant(input: &Value, variant: usize) -> Peer {
    Peer::start(input, Some(variant), Log::default()).unwrap()
}

impl Peer {
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port())
    }

    /// The requests with this JSON-RPC method.
    pub(crate) fn posts(&self, method: &str) -> Vec<Got> {
        let mut got = self.got();
        got.retain(|request| request.method() == method);
        got
    }

    pub(crate) fn gets(&self) -> Vec<Got> {
        let mut got = self.got();
        got.retain(|request| request.verb == "GET");
        got
    }
}
