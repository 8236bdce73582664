//! Lists and routing through a whole hub, in virtual time, with servers that are functions.

mod pages;
mod parts;
mod routes;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::{Now, Uptime};
use crate::entropy::Seeded;
use crate::hub::{Hub, HubConfig, HubEvent, LocalConfig, ServerIdentity, UpstreamConfig};
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::{Driven, ExitReport, FaultKind, IoEvent, IoFault, IoRequest, OpenSpec};
use crate::local::Registry;
use crate::manager::Prefix;
use crate::manager::entry::read_servers;
use crate::manager::server_config::ServerConfig;

/// What a server answers to a method and its params: a result, an error, or nothing; and when.
type Script = Box<dyn FnMut(&str, &Value) -> Reply>;

pub(super) enum Reply {
    Result(Value),
    /// The raw text of a result.
    Raw(String),
    Error(i64),
    /// The same, so many milliseconds later.
    Late(u64, Value),
    Silence,
}

impl Reply {
    /// A result comes so many milliseconds later.
    pub(super) fn late(self, ms: u64) -> Self {
        if let Self::Result(result) = self {
            return Self::Late(ms, result);
        }
        self
    }
}

/// A server with what stands in these lists; everything else it answers with its own name.
pub(super) fn server(
    name: &'static str,
    lists: Value,
) -> impl FnMut(&str, &Value) -> Reply + 'static {
    move |method, params| offers(name, &lists, method, params)
}

pub(super) fn offers(name: &str, lists: &Value, method: &str, _params: &Value) -> Reply {
    let capabilities = json!({
        "tools": {"listChanged": true},
        "resources": {"listChanged": true},
        "prompts": {"listChanged": true},
    });
    match method {
        "server/discover" => Reply::Error(-32601),
        "initialize" => Reply::Result(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": {"name": name, "version": "1"},
        })),
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => {
            let member = match method {
                "resources/templates/list" => "resourceTemplates",
                other => other.split('/').next().expect("a word"),
            };
            let empty = json!([]);
            Reply::Result(json!({member: lists.get(member).unwrap_or(&empty)}))
        }
        _ => Reply::Result(json!({"by": name})),
    }
}

pub(super) struct World {
    pub(super) hub: Hub,
    ms: u64,
    client: WireId,
    scripts: BTreeMap<String, Script>,
    /// Program and what it has not read.
    wires: BTreeMap<WireId, (String, Vec<u8>)>,
    agenda: BTreeMap<(u64, usize), (WireId, String)>,
    turns: usize,
    /// What servers got: program and message.
    pub(super) heard: Vec<(String, Value)>,
    heard_raw: Vec<(String, String)>,
    /// What the client got, and has not taken.
    said: Vec<String>,
    pub(super) diagnostics: Vec<String>,
    next_id: u64,
    keeps_events: bool,
    /// The handshake was sent: it is, before anything else, when the servers are there.
    greeted: bool,
}

fn records(servers: &[(&str, Value)]) -> Vec<ServerConfig> {
    let map: Vec<(String, String)> = servers
        .iter()
        .map(|(name, more)| {
            let mut entry = more.clone();
            entry["command"] = (*name).into();
            ((*name).to_owned(), entry.to_string())
        })
        .collect();
    let read = read_servers(&map, &BTreeMap::new(), &Limits::DEFAULT);
    read.into_iter()
        .map(|one| one.outcome.expect("a usable record"))
        .collect()
}

impl World {
    /// With these servers, each with more members of its record.
    pub(super) fn new(servers: &[(&str, Value)]) -> Self {
        Self::with(servers, Prefix::Auto, None, Limits::default())
    }

    pub(super) fn with(
        servers: &[(&str, Value)],
        prefix: Prefix,
        local: Option<Registry>,
        limits: Limits,
    ) -> Self {
        let now = Now {
            up: Uptime::from_millis(1_000),
            unix_ms: 0,
        };
        let config = HubConfig {
            limits,
            identity: ServerIdentity::span(),
            local: local.map(|registry| LocalConfig {
                registry,
                state_key: [1; 32],
            }),
            upstream: Some(UpstreamConfig {
                servers: records(servers),
                prefix,
            }),
            ..HubConfig::default()
        };
        let mut hub = Hub::new(config, Box::new(Seeded::new(1)), now);
        let client = hub.serve_adopted(now);
        Self {
            hub,
            ms: 1_000,
            client,
            scripts: BTreeMap::new(),
            wires: BTreeMap::new(),
            agenda: BTreeMap::new(),
            turns: 0,
            heard: Vec::new(),
            heard_raw: Vec::new(),
            said: Vec::new(),
            diagnostics: Vec::new(),
            next_id: 1,
            keeps_events: false,
            greeted: false,
        }
    }

    pub(super) fn server(
        &mut self,
        name: &str,
        script: impl FnMut(&str, &Value) -> Reply + 'static,
    ) {
        self.scripts.insert(name.to_owned(), Box::new(script));
    }

    pub(super) fn configure(&mut self, servers: &[(&str, Value)]) {
        self.hub.set_servers(self.now(), records(servers));
        self.drain();
    }

    pub(super) fn now(&self) -> Now {
        Now {
            up: Uptime::ZERO.after(Duration::from_millis(self.ms)),
            unix_ms: 0,
        }
    }

    /// A line of the client.
    pub(super) fn send(&mut self, line: &str) {
        if !std::mem::replace(&mut self.greeted, true) {
            self.send(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#);
            self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        }
        let now = self.now();
        let line = format!("{line}\n");
        self.hub
            .handle_io(now, self.client, IoEvent::Bytes(line.as_bytes()));
        self.run(0);
    }

    /// A request of the client, with raw params; gives its id.
    pub(super) fn begin(&mut self, method: &str, params: &str) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
        ));
        id
    }

    /// The same; what the program is told is left to the test.
    pub(super) fn begin_keeping_events(&mut self, method: &str, params: &str) -> u64 {
        self.keeps_events = true;
        let id = self.begin(method, params);
        self.keeps_events = false;
        id
    }

    /// The raw answer to a request, if it is there.
    pub(super) fn answer(&mut self, id: u64) -> Option<String> {
        let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"#);
        let at = self.said.iter().position(|line| line.starts_with(&start))?;
        Some(self.said.remove(at))
    }

    /// The raw answer to a request that need not wait.
    #[track_caller]
    pub(super) fn ask_raw(&mut self, method: &str, params: &str) -> String {
        let id = self.begin(method, params);
        let answer = self.answer(id);
        answer.unwrap_or_else(|| panic!("{method} has no answer: {:?}", self.heard))
    }

    #[track_caller]
    pub(super) fn ask(&mut self, method: &str, params: &str) -> Value {
        serde_json::from_str(&self.ask_raw(method, params)).expect("JSON")
    }

    /// Names, URIs or templates of a list.
    #[track_caller]
    pub(super) fn list(&mut self, method: &str) -> Vec<String> {
        ids(&self.ask(method, "{}"))
    }

    /// How often the client was told this, since it was asked last.
    pub(super) fn told(&mut self, what: &str) -> usize {
        let before = self.said.len();
        self.said.retain(|line| !line.contains(what));
        before - self.said.len()
    }

    /// How often a server was asked this.
    pub(super) fn count(&self, name: &str, method: &str) -> usize {
        let of = |heard: &&(String, Value)| heard.0 == name && heard.1["method"] == method;
        self.heard.iter().filter(of).count()
    }

    /// The raw params of the last request of this method that a server got.
    #[track_caller]
    pub(super) fn last_params(&self, name: &str, method: &str) -> String {
        let method = format!(r#""method":"{method}","#);
        let mut lines = self.heard_raw.iter().rev();
        let of = |line: &&(String, String)| line.0 == name && line.1.contains(&method);
        let line = &lines.find(of).expect("it was asked").1;
        let (_, params) = line.split_once(r#""params":"#).expect("params");
        params
            .trim_end()
            .strip_suffix('}')
            .expect("an object")
            .to_owned()
    }

    /// A server says something unasked.
    pub(super) fn notify(&mut self, name: &str, method: &str) {
        let line = format!("{}\n", json!({"jsonrpc": "2.0", "method": method}));
        let of: Vec<WireId> = self
            .wires
            .iter()
            .filter(|(_, (program, _))| program == name)
            .map(|(wire, _)| *wire)
            .collect();
        for wire in of {
            self.plan(0, wire, line.clone());
        }
        self.run(0);
    }

    fn plan(&mut self, after: u64, wire: WireId, line: String) {
        self.turns += 1;
        self.agenda
            .insert((self.ms + after, self.turns), (wire, line));
    }

    /// Time passes.
    pub(super) fn run(&mut self, ms: u64) {
        let end = self.ms + ms;
        self.drain();
        for _ in 0..100_000 {
            let due = self.hub.next_deadline().map(|due| {
                let at = due.at.as_millis();
                at + u64::from(Uptime::from_millis(at) < due.at)
            });
            let planned = self.agenda.keys().next().map(|(at, _)| *at);
            let next = due.into_iter().chain(planned).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.ms = end;
                return;
            };
            self.ms = self.ms.max(next);
            let now = self.now();
            while let Some(entry) = self.agenda.first_entry() {
                if entry.key().0 > self.ms {
                    break;
                }
                let (wire, line) = entry.remove();
                self.hub
                    .handle_io(now, wire, IoEvent::Bytes(line.as_bytes()));
                self.drain();
            }
            self.hub.handle_timeout(now);
            self.drain();
        }
        panic!("it spins at {} ms", self.ms);
    }

    fn drain(&mut self) {
        let now = self.now();
        while let Some(request) = self.hub.poll_io() {
            match request {
                IoRequest::Open(wire, OpenSpec::Child(spec)) => {
                    if !self.scripts.contains_key(&spec.program) {
                        let fault = IoFault {
                            kind: FaultKind::Unreachable,
                            message: "no such program".to_owned(),
                        };
                        self.hub.handle_io(now, wire, IoEvent::Failed(fault));
                        continue;
                    }
                    self.wires.insert(wire, (spec.program, Vec::new()));
                    self.hub.handle_io(now, wire, IoEvent::Opened);
                }
                IoRequest::Flush(wire) => self.flush(wire),
                IoRequest::CloseWrite(wire) | IoRequest::Signal(wire, _) => self.end(wire),
                IoRequest::Open(..)
                | IoRequest::PauseReads(..)
                | IoRequest::Close(_)
                | IoRequest::Finish(_)
                | IoRequest::Append(_) => {}
            }
        }
        if self.keeps_events {
            return;
        }
        while let Some(event) = self.hub.poll_event() {
            if let HubEvent::Diagnostic(diagnostic) = event {
                self.diagnostics.push(diagnostic.message);
            }
        }
    }

    /// A server's input is closed, or it is told to end.
    fn end(&mut self, wire: WireId) {
        let now = self.now();
        if self.wires.remove(&wire).is_some() {
            let report = ExitReport::Code(0);
            self.hub.handle_io(now, wire, IoEvent::Exited(report));
            self.hub.handle_io(now, wire, IoEvent::Eof);
        }
    }

    fn flush(&mut self, wire: WireId) {
        let Some(out) = self.hub.outgoing(wire) else {
            return;
        };
        let bytes = out.pending().to_vec();
        out.advance(bytes.len());
        let now = self.now();
        self.hub.handle_io(now, wire, IoEvent::Drained);
        if wire == self.client {
            let text = String::from_utf8(bytes).expect("UTF-8");
            self.said.extend(text.lines().map(str::to_owned));
            return;
        }
        let Some((name, input)) = self.wires.get_mut(&wire) else {
            return;
        };
        let name = name.clone();
        input.extend_from_slice(&bytes);
        let text = String::from_utf8(std::mem::take(input)).expect("UTF-8");
        for line in text.lines() {
            let message: Value = serde_json::from_str(line).expect("we write JSON");
            self.heard_raw.push((name.clone(), line.to_owned()));
            self.heard.push((name.clone(), message.clone()));
            if message.get("id").is_some() && message.get("method").is_some() {
                let script = self.scripts.get_mut(&name).expect("a script");
                let method = message["method"].as_str().expect("a method");
                let reply = script(method, &message["params"]);
                let id = &message["id"];
                let answer = |what: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{what}}}\n");
                let (after, line) = match reply {
                    Reply::Result(result) => (0, answer(&format!("\"result\":{result}"))),
                    Reply::Raw(result) => (0, answer(&format!("\"result\":{result}"))),
                    Reply::Late(ms, result) => (ms, answer(&format!("\"result\":{result}"))),
                    Reply::Error(code) => {
                        let error = json!({"code": code, "message": "no"});
                        (0, answer(&format!("\"error\":{error}")))
                    }
                    Reply::Silence => continue,
                };
                self.plan(after, wire, line);
            }
        }
    }
}

/// Names, URIs or templates in the answer to a list request.
pub(super) fn ids(answer: &Value) -> Vec<String> {
    let lists = answer["result"].as_object().expect("a result").values();
    let list = lists.filter_map(Value::as_array).next().expect("a list");
    let id = |entry: &Value| {
        let id = ["name", "uri", "uriTemplate"].iter();
        // A resource has a name too, its URI is what counts.
        let id = id.rev().find_map(|member| entry[member].as_str());
        id.expect("an id").to_owned()
    };
    list.iter().map(id).collect()
}

pub(super) fn tools(names: &[&str]) -> Value {
    let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
    names.iter().map(tool).collect()
}

pub(super) fn prompts(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

pub(super) fn resources(uris: &[&str]) -> Value {
    let resource = |uri: &&str| json!({"uri": uri, "name": "r"});
    uris.iter().map(resource).collect()
}

pub(super) fn templates(uris: &[&str]) -> Value {
    let template = |uri: &&str| json!({"uriTemplate": uri, "name": "t"});
    uris.iter().map(template).collect()
}
