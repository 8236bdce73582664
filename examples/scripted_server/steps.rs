//! The steps of a stdio server, one after another.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Stdin, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::log::Log;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The first argument of a process started by the step `spawn`.
pub(crate) const DESCENDANT: &str = "--descendant";

/// The steps of a case: its own, or those of the server of that name.
pub(crate) fn script(input: &Value, server: Option<&str>) -> Outcome<Vec<Step>> {
    let steps = match server {
        None => &input["steps"],
        Some(name) => {
            let servers = input["servers"]
                .as_array()
                .ok_or("the case has no servers")?;
            let found = servers.iter().find(|server| server["name"] == name);
            &found.ok_or_else(|| format!("no server {name:?}"))?["steps"]
        }
    };
    Ok(Vec::deserialize(steps)?)
}

#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Step {
    Write {
        chunks: Vec<Chunk>,
        #[serde(default)]
        gap_ms: u64,
    },
    Json {
        message: Value,
    },
    Stderr {
        chunks: Vec<Chunk>,
    },
    Await {
        method: String,
        #[serde(rename = "as")]
        name: Option<String>,
        #[serde(default)]
        or_eof: bool,
    },
    Reply {
        to: Option<String>,
        result: Option<Value>,
        error: Option<Value>,
    },
    Auto {
        table: BTreeMap<String, Value>,
    },
    Repeat {
        times: u64,
        steps: Vec<Self>,
    },
    Sleep {
        ms: u64,
    },
    Hang {
        #[serde(default = "a_minute")]
        seconds: u64,
    },
    Exit {
        #[serde(default)]
        code: i32,
    },
    CloseStdout {},
    Ignore {
        signals: Vec<String>,
    },
    Spawn {
        #[serde(default = "half_a_minute")]
        seconds: u64,
        #[serde(default)]
        ignore: Vec<String>,
        #[serde(default)]
        keep_stdout: bool,
    },
}

const fn a_minute() -> u64 {
    60
}

const fn half_a_minute() -> u64 {
    30
}

/// Bytes to write: base64, or one of the two spelled out, repeated.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum Chunk {
    Base64(String),
    Text { text: String, times: Option<usize> },
    Times { b64: String, times: Option<usize> },
}

impl Chunk {
    fn bytes(&self) -> Outcome<Vec<u8>> {
        let decode = |b64| STANDARD.decode(b64).map_err(|e| format!("base64: {e}"));
        Ok(match self {
            Self::Base64(b64) => decode(b64)?,
            Self::Text { text, times } => text.as_bytes().repeat(times.unwrap_or(1)),
            Self::Times { b64, times } => decode(b64)?.repeat(times.unwrap_or(1)),
        })
    }
}

/// One server at work.
#[derive(Debug)]
pub(crate) struct Player {
    input: BufReader<Stdin>,
    log: Log,
    /// What `$name` stands for.
    values: BTreeMap<String, Value>,
    /// How often a list of answers was used, by method.
    used: BTreeMap<String, usize>,
    requests: u64,
}

impl Player {
    pub(crate) fn new(log: Log) -> Self {
        Self {
            input: BufReader::new(std::io::stdin()),
            log,
            values: BTreeMap::new(),
            used: BTreeMap::new(),
            requests: 0,
        }
    }

    pub(crate) fn run(&mut self, steps: &[Step]) -> Outcome<()> {
        for step in steps {
            self.step(step)?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Outcome<()> {
        match step {
            Step::Write { chunks, gap_ms } => {
                for chunk in chunks {
                    self.write(&chunk.bytes()?);
                    pause(*gap_ms);
                }
            }
            Step::Json { message } => self.write_json(&self.fill(message)),
            Step::Stderr { chunks } => {
                for chunk in chunks {
                    std::io::stderr().write_all(&chunk.bytes()?)?;
                }
            }
            Step::Await {
                method,
                name,
                or_eof,
            } => self.wait_for(method, name.as_deref(), *or_eof),
            Step::Reply { to, result, error } => {
                self.reply(to.as_deref(), result.as_ref(), error.as_ref());
            }
            Step::Auto { table } => {
                while let Some(message) = self.message() {
                    self.answer(table, &message)?;
                }
            }
            Step::Repeat { times, steps } => {
                for i in 0..*times {
                    self.values.insert("i".to_owned(), i.into());
                    self.run(steps)?;
                }
            }
            Step::Sleep { ms } => pause(*ms),
            Step::Hang { seconds } => pause(seconds.saturating_mul(1_000)),
            Step::Exit { code } => std::process::exit(*code),
            Step::CloseStdout {} => {
                let null = OpenOptions::new().write(true).open("/dev/null")?;
                rustix::stdio::dup2_stdout(null)?;
            }
            Step::Ignore { signals } => ignore(signals)?,
            Step::Spawn {
                seconds,
                ignore,
                keep_stdout,
            } => {
                let stdout = if *keep_stdout {
                    Stdio::inherit()
                } else {
                    Stdio::null()
                };
                let child = Command::new(std::env::current_exe()?)
                    .args([DESCENDANT, &seconds.to_string()])
                    .args(ignore)
                    .stdin(Stdio::null())
                    .stdout(stdout)
                    .stderr(Stdio::null())
                    .spawn()?;
                self.log.note(json!({"spawned": child.id()}));
            }
        }
        Ok(())
    }

    /// Writes and flushes. A client that no longer reads ends this server, as it would most.
    fn write(&mut self, bytes: &[u8]) {
        let mut stdout = std::io::stdout().lock();
        if stdout
            .write_all(bytes)
            .and_then(|()| stdout.flush())
            .is_err()
        {
            self.log.note(json!({"unread": bytes.len()}));
            std::process::exit(0);
        }
    }

    fn write_json(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    fn reply(&mut self, to: Option<&str>, result: Option<&Value>, error: Option<&Value>) {
        let id = self.values.get(to.unwrap_or("id")).cloned();
        let mut message = json!({"jsonrpc": "2.0", "id": id});
        match error {
            Some(error) => message["error"] = self.fill(error),
            None => message["result"] = self.fill(result.unwrap_or(&Value::Null)),
        }
        self.write_json(&message);
    }

    /// The next message; lines that are none are skipped.
    fn message(&mut self) -> Option<Value> {
        loop {
            let mut line = Vec::new();
            if !self.input.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                self.log.note(json!({"end": true}));
                return None;
            }
            match serde_json::from_slice::<Value>(&line) {
                Ok(message) => {
                    self.log.note(json!({"got": message}));
                    return Some(message);
                }
                Err(_) => self
                    .log
                    .note(json!({"noise": String::from_utf8_lossy(&line)})),
            }
        }
    }

    fn wait_for(&mut self, method: &str, name: Option<&str>, or_eof: bool) {
        loop {
            match self.message() {
                Some(message) if message["method"] == method => {
                    self.remember(&message);
                    if let Some(name) = name {
                        self.values.insert(name.to_owned(), message["id"].clone());
                    }
                    return;
                }
                Some(_) => {}
                None if or_eof => return,
                None => std::process::exit(0),
            }
        }
    }

    fn answer(&mut self, table: &BTreeMap<String, Value>, message: &Value) -> Outcome<()> {
        let (Some(method), Some(_)) = (message["method"].as_str(), message.get("id")) else {
            return Ok(());
        };
        let Some(entry) = table.get(method).or_else(|| table.get("*")) else {
            return Ok(());
        };
        self.remember(message);
        let mut entry = entry;
        if let Some(list) = entry.as_array() {
            let used = self.used.entry(method.to_owned()).or_default();
            let last = list
                .len()
                .checked_sub(1)
                .ok_or("an empty list of answers")?;
            entry = &list[last.min(*used)];
            *used += 1;
        }
        let steps = if entry.is_array() {
            Some(entry)
        } else {
            entry.get("steps")
        };
        if let Some(steps) = steps {
            return self.run(&Vec::deserialize(steps)?);
        }
        match (entry.get("result"), entry.get("error")) {
            (None, None) if entry == "silent" => {}
            (None, None) => return Err(format!("not an answer: {entry}").into()),
            (result, error) => self.reply(None, result, error),
        }
        Ok(())
    }

    /// What a request gives to the answers that follow.
    fn remember(&mut self, message: &Value) {
        self.requests += 1;
        let params = &message["params"];
        let mut set = |name: &str, value| drop(self.values.insert(name.to_owned(), value));
        if let Some(id) = message.get("id") {
            set("id", id.clone());
            let text = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
            set("id_text", text.into());
            set("id_float", id.as_f64().into());
        }
        set("cursor", params["cursor"].clone());
        set("token", params["_meta"]["progressToken"].clone());
        set("arguments", params["arguments"].clone());
        set("fresh", format!("c{}", self.requests).into());
    }

    /// `value` with each `"$name"` replaced by what it stands for.
    fn fill(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => text
                .strip_prefix('$')
                .and_then(|name| self.values.get(name))
                .unwrap_or(value)
                .clone(),
            Value::Array(list) => list.iter().map(|value| self.fill(value)).collect(),
            Value::Object(object) if object.contains_key("$tools") => made_tools(object),
            Value::Object(object) => {
                let filled = object.iter().map(|(k, v)| (k.clone(), self.fill(v)));
                Value::Object(filled.collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

/// `{"$tools": n, "start": s, "prefix": p}`: n tools of one kind.
fn made_tools(order: &Map<String, Value>) -> Value {
    let number = |name| order.get(name).and_then(Value::as_u64).unwrap_or(0);
    let prefix = order
        .get("prefix")
        .and_then(Value::as_str)
        .unwrap_or("tool_");
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
    (number("start")..number("start") + number("$tools"))
        .map(|i| {
            let (name, about) = (format!("{prefix}{i:05}"), format!("made tool {i}"));
            json!({"name": name, "description": about, "inputSchema": schema})
        })
        .collect()
}

/// Outlives these signals from now on.
fn ignore(signals: &[String]) -> Outcome<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    for name in signals {
        let signal = match name.as_str() {
            "SIGTERM" => SIGTERM,
            "SIGINT" => SIGINT,
            "SIGHUP" => SIGHUP,
            other => return Err(format!("cannot ignore {other}").into()),
        };
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// Life of a process started by the step `spawn`: seconds, then the signals it ignores.
pub(crate) fn descendant(args: &[String]) -> ExitCode {
    let seconds = args.first().and_then(|text| text.parse::<u64>().ok());
    let Some(seconds) = seconds else {
        return ExitCode::from(2);
    };
    if ignore(&args[1..]).is_err() {
        return ExitCode::from(2);
    }
    pause(seconds.saturating_mul(1_000));
    ExitCode::SUCCESS
}

fn pause(ms: u64) {
    if ms > 0 {
        std::thread::sleep(Duration::from_millis(ms));
    }
}
