//! A home directory, the program under test in it, and the peers it talks to.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::common::{DRAWSPAN, Home, example};
pub(crate) use crate::common::{PATIENCE, expect_words, until};
use crate::http::{Got, Peer};
use crate::log::Log;

/// Less than the time limits that a case must not run into, much more than anything else takes.
pub(crate) const PROMPT: Duration = Duration::from_secs(8);

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

/// A home, and what is served in it.
pub(crate) struct World {
    home: Home,
    /// More environment for the program under test.
    pub(crate) env: Vec<(OsString, OsString)>,
}

impl World {
    pub(crate) fn new(test: &str) -> Self {
        let env = Vec::new();
        let home = Home::new(test);
        Self { home, env }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.dir()
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.home.path(name).to_str().unwrap().to_owned()
    }

    /// The command of a stdio server that runs these steps, and notes what it hears.
    pub(crate) fn command(&self, server: &str, steps: &Value) -> Vec<String> {
        let script = json!({"input": {"kind": "stdio-server", "steps": steps}});
        let file = self.path(&format!("{server}.case.json"));
        std::fs::write(&file, script.to_string()).unwrap();
        vec![
            example("scripted_server"),
            file,
            "--log".to_owned(),
            self.log(server),
        ]
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

    /// A program in the home, with more environment and with nothing on stdin.
    pub(crate) fn program(&self, program: &str, args: &[&str]) -> Command {
        let mut command = self.home.program(program, args);
        let env = self.env.iter().cloned();
        command.envs(env).env("HOME", self.home());
        command.stdin(Stdio::null());
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
        self.home.expect_processes(0);
    }

    /// Nothing that was started here runs any more.
    pub(crate) fn nobody(&self) -> Result<(), String> {
        let found = self.home.processes();
        if found.is_empty() {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
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
