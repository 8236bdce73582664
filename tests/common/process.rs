//! A running program, an MCP client that talks to it, and what it left.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::Value;

use super::{PATIENCE, expect_words};

/// The first thing an MCP client says, as request 0, and what it says to the answer.
pub(crate) const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"tester","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
);

/// How the line begins that says where a program listens.
pub(crate) const LISTENING: &str = "listening on ";

/// The lines of one output, as they come.
pub(crate) struct Lines {
    name: &'static str,
    seen: Vec<String>,
    coming: Receiver<String>,
}

impl Lines {
    pub(crate) fn new(name: &'static str, from: Option<impl Read + Send + 'static>) -> Self {
        let (sender, coming) = channel();
        if let Some(from) = from {
            std::thread::spawn(move || {
                let mut from = BufReader::new(from);
                let mut line = Vec::new();
                // A terminal that has hung up says EIO.
                while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                    let text = String::from_utf8(std::mem::take(&mut line)).expect("UTF-8");
                    if sender
                        .send(text.trim_end_matches(['\r', '\n']).to_owned())
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
        let seen = Vec::new();
        Self { name, seen, coming }
    }

    /// The next line; `None` at the end.
    #[track_caller]
    pub(crate) fn next(&mut self) -> Option<String> {
        match self.coming.recv_timeout(PATIENCE) {
            Ok(line) => {
                self.seen.push(line.clone());
                Some(line)
            }
            Err(RecvTimeoutError::Disconnected) => None,
            Err(RecvTimeoutError::Timeout) => {
                panic!("{} is silent after {:?}", self.name, self.seen)
            }
        }
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, what: &str) -> String {
        let line = self.next();
        line.unwrap_or_else(|| panic!("{} ended before {what}: {:?}", self.name, self.seen))
    }

    /// All lines, those that come until the end included.
    #[track_caller]
    pub(crate) fn all(mut self) -> Vec<String> {
        while self.next().is_some() {}
        self.seen
    }
}

/// A running program. Killed when dropped.
pub(crate) struct Process {
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
    child: Child,
    ended: Receiver<()>,
    /// Whether its stdout is the protocol and nothing else.
    protocol: bool,
    last_id: u64,
    /// Messages read while something else was waited for.
    kept: Vec<Value>,
}

impl Process {
    /// Starts a program whose output is not the protocol.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (sender, ended) = channel();
        let pid = pid(&child);
        std::thread::spawn(move || {
            // Left to be reaped, so that its number stays its own.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while waitid(WaitId::Pid(pid), options).is_err_and(|e| e == Errno::INTR) {}
            let _ = sender.send(());
        });
        Self {
            stdin: child.stdin.take(),
            stdout: Lines::new("stdout", child.stdout.take()),
            stderr: Lines::new("stderr", child.stderr.take()),
            child,
            ended,
            protocol: false,
            last_id: 0,
            kept: Vec::new(),
        }
    }

    /// Starts `drawspan serve`: whatever happens, its stdout must be pure.
    pub(crate) fn serve(command: &mut Command) -> Self {
        let mut process = Self::start(command);
        process.protocol = true;
        process
    }

    /// Starts a program that says on its stderr where it listens; gives the URL.
    #[track_caller]
    pub(crate) fn listening(command: &mut Command) -> (Self, String) {
        let mut process = Self::start(command);
        let url = process.listens();
        (process, url)
    }

    /// The URL that the next line of its stderr names.
    #[track_caller]
    pub(crate) fn listens(&mut self) -> String {
        let line = self.stderr.expect("where it listens");
        let url = line.strip_prefix(LISTENING);
        url.unwrap_or_else(|| panic!("no URL: {line}")).to_owned()
    }

    /// Host and port of its MCP endpoint.
    #[track_caller]
    pub(crate) fn address(&mut self) -> String {
        let url = self.listens();
        let address = url.strip_prefix("http://");
        let address = address.and_then(|url| url.strip_suffix("/mcp"));
        address
            .unwrap_or_else(|| panic!("no endpoint: {url}"))
            .to_owned()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn pid(&self) -> Pid {
        pid(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Writes one line.
    pub(crate) fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Sends a request and gives its id.
    pub(crate) fn request(&mut self, method: &str, params: &str) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
        ));
        id
    }

    /// Begins a tool call and gives its id.
    pub(crate) fn begin(&mut self, tool: &str, arguments: &str) -> u64 {
        self.request(
            "tools/call",
            &format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#),
        )
    }

    /// The answer to a request.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: u64) -> Value {
        self.message("the answer", |message| message["id"] == id)
    }

    /// The first message that fits.
    #[track_caller]
    pub(crate) fn message(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.kept.iter().position(&fits) {
            return self.kept.remove(at);
        }
        loop {
            let message = parse(&self.stdout.expect(what));
            if fits(&message) {
                return message;
            }
            self.kept.push(message);
        }
    }

    /// Calls a tool and gives its result.
    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: &str) -> Value {
        let id = self.begin(tool, arguments);
        self.answer(id)["result"].take()
    }

    /// The names of its tools.
    #[track_caller]
    pub(crate) fn tool_names(&mut self) -> Vec<String> {
        let list = self.request("tools/list", "{}");
        let answer = self.answer(list);
        let tools = answer["result"]["tools"].as_array().unwrap();
        let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
        tools.iter().map(name).collect()
    }

    /// The handshake.
    #[track_caller]
    pub(crate) fn hello(&mut self) {
        self.send(HELLO);
        self.answer(0);
    }

    /// The handshake, and a call that says that the Gateway is there: from now on events come.
    #[track_caller]
    pub(crate) fn meet(&mut self) {
        self.hello();
        let result = self.call("conversations_list", "{}");
        expect_words(text(&result), &["conversations: "]);
    }

    /// Everything sent before this has been read by the program.
    #[track_caller]
    pub(crate) fn sync(&mut self) {
        let id = self.request("ping", "{}");
        self.answer(id);
    }

    /// Waits for the end of the program, its stdin left as it is.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let ended = self.ended.recv_timeout(PATIENCE);
        assert!(ended.is_ok(), "{} runs on", self.id());
        self.child.wait().unwrap()
    }

    /// Closes its stdin and waits for its end.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Finished {
        drop(self.stdin.take());
        self.end()
    }

    /// Waits for its end, with stdin open.
    #[track_caller]
    pub(crate) fn end(mut self) -> Finished {
        let status = self.wait();
        let none = || Lines::new("nothing", None::<File>);
        let stdout = std::mem::replace(&mut self.stdout, none()).all();
        let stderr = std::mem::replace(&mut self.stderr, none()).all();
        if self.protocol {
            stdout.iter().for_each(|line| drop(parse(line)));
            for line in &stderr {
                let marked = line.starts_with("error: ") || line.starts_with("warning: ");
                assert!(marked, "on stderr: {line}");
            }
        }
        Finished {
            status,
            stdout,
            stderr,
        }
    }

    /// A field of its status in kibibytes. Linux: proc(5), `status`.
    pub(crate) fn memory_kib(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .unwrap();
        line.trim_start_matches(':')
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only for one that has ended and been reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// What a program left.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<String>,
    pub(crate) stderr: Vec<String>,
}

impl Finished {
    /// It ended with this exit code.
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        let signal = self.status.signal();
        let Self { stdout, stderr, .. } = &self;
        let found = self.status.code();
        assert_eq!(
            found,
            Some(code),
            "signal {signal:?}\nstdout {stdout:#?}\nstderr {stderr:#?}"
        );
        self
    }

    /// Its stderr is one line that holds all these words.
    #[track_caller]
    pub(crate) fn expect_stderr(self, words: &[&str]) -> Self {
        assert_eq!(self.stderr.len(), 1, "{:#?}", self.stderr);
        expect_words(&self.stderr[0], words);
        self
    }

    /// Its stderr is empty.
    #[track_caller]
    pub(crate) fn expect_silence(self) -> Self {
        assert_eq!(self.stderr, Vec::<String>::new());
        self
    }

    /// The messages on its stdout.
    #[track_caller]
    pub(crate) fn messages(&self) -> Vec<Value> {
        self.stdout.iter().map(|line| parse(line)).collect()
    }
}

/// A line of the protocol.
#[track_caller]
pub(crate) fn parse(line: &str) -> Value {
    let message: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
    assert_eq!(message["jsonrpc"], "2.0", "{line}");
    message
}

/// The text of a tool's result.
#[track_caller]
pub(crate) fn text(result: &Value) -> &str {
    let text = result["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("no text in {result}"))
}
