//! Servers that are functions.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::World;
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::{Driven, ExitReport, FaultKind, IoEvent, IoFault};
use crate::manager::entry::read_servers;
use crate::manager::server_config::ServerConfig;

/// What a program answers to a method and its params.
pub(super) type Script = Box<dyn FnMut(&str, &Value) -> Reply>;

/// What becomes of a request to a server.
pub(in crate::hub) enum Reply {
    Result(Value),
    /// The raw text of a result.
    Raw(String),
    Error(i64),
    /// A result, so many milliseconds later.
    Late(u64, Value),
    /// Nothing, until the test says so by [`World::reply`].
    Silence,
}

impl Reply {
    /// A result comes so many milliseconds later.
    pub(in crate::hub) fn late(self, ms: u64) -> Self {
        if let Self::Result(result) = self {
            return Self::Late(ms, result);
        }
        self
    }

    /// The members of the answer, raw, and after how many milliseconds it comes.
    fn shown(self) -> Option<(u64, String)> {
        let error = |code| json!({"code": code, "message": "no"});
        Some(match self {
            Self::Result(result) => (0, format!(r#""result":{result}"#)),
            Self::Raw(result) => (0, format!(r#""result":{result}"#)),
            Self::Late(ms, result) => (ms, format!(r#""result":{result}"#)),
            Self::Error(code) => (0, format!(r#""error":{}"#, error(code))),
            Self::Silence => return None,
        })
    }
}

/// A line that a server got.
#[derive(Debug)]
pub(in crate::hub) struct Heard {
    pub(in crate::hub) wire: WireId,
    pub(in crate::hub) program: String,
    pub(in crate::hub) raw: String,
    pub(in crate::hub) message: Value,
}

/// A request that a server has not answered.
pub(super) struct Open {
    wire: WireId,
    method: String,
    id: Value,
}

/// The servers of a configuration, each with more members of its record. The program of `NAME` is `NAME`.
pub(in crate::hub) fn records(servers: &[(&str, Value)]) -> Vec<ServerConfig> {
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
    /// What a program does from now on, also where it runs already.
    pub(in crate::hub) fn play(
        &mut self,
        program: &str,
        script: impl FnMut(&str, &Value) -> Reply + 'static,
    ) {
        self.scripts.insert(program.to_owned(), Box::new(script));
    }

    /// There is no such program any more, for whoever starts it.
    pub(in crate::hub) fn remove_program(&mut self, program: &str) {
        self.scripts.remove(program);
    }

    /// Those that run, the newest last.
    pub(in crate::hub) fn servers(&self) -> Vec<WireId> {
        self.running.keys().copied().collect()
    }

    /// The newest of them.
    #[track_caller]
    pub(in crate::hub) fn server(&self) -> WireId {
        let newest = self.running.last_key_value();
        *newest.expect("a server was started").0
    }

    /// A server answers what it was asked and left open, by a raw result.
    #[track_caller]
    pub(in crate::hub) fn reply(&mut self, method: &str, result: &str) {
        let at = self.open.iter().position(|open| open.method == method);
        let Open { wire, id, .. } = self.open.remove(at.expect("it was asked"));
        self.say(
            wire,
            &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#),
        );
    }

    /// Each start of a program says something unasked.
    pub(in crate::hub) fn notify(&mut self, program: &str, method: &str) {
        for wire in self.servers() {
            if self.running[&wire] == program {
                self.send(wire, json!({ "method": method }));
            }
        }
    }

    /// A server ends.
    pub(in crate::hub) fn end(&mut self, wire: WireId, report: ExitReport) {
        self.exit(wire, report);
        self.settle();
    }

    /// How often the servers were asked or told this.
    pub(in crate::hub) fn times_heard(&self, method: &str) -> usize {
        let of = |heard: &&Heard| heard.message["method"] == method;
        self.heard.iter().filter(of).count()
    }

    pub(super) fn start(&mut self, wire: WireId, program: String) {
        if !self.scripts.contains_key(&program) {
            let fault = IoFault {
                kind: FaultKind::Unreachable,
                message: "no such program".to_owned(),
            };
            return self.hub.handle_io(self.now, wire, IoEvent::Failed(fault));
        }
        self.starts += 1;
        self.running.insert(wire, program);
        self.hub.handle_io(self.now, wire, IoEvent::Opened);
    }

    pub(super) fn exit(&mut self, wire: WireId, report: ExitReport) {
        if self.running.remove(&wire).is_some() {
            self.open.retain(|open| open.wire != wire);
            self.hub.handle_io(self.now, wire, IoEvent::Exited(report));
            self.hub.handle_io(self.now, wire, IoEvent::Eof);
        }
    }

    /// A server reads.
    pub(super) fn read(&mut self, wire: WireId) {
        let program = self.running[&wire].clone();
        for raw in self.leave(wire).lines() {
            let message: Value = serde_json::from_str(raw).expect("we write JSON");
            if let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) {
                let script = self.scripts.get_mut(&program).expect("a script");
                match script(method, &message["params"]).shown() {
                    Some((ms, answer)) => {
                        let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{answer}}}\n");
                        let at = self.now.after(Duration::from_millis(ms));
                        self.turns += 1;
                        self.agenda.insert((at, self.turns), (wire, line));
                    }
                    None => self.open.push(Open {
                        wire,
                        method: method.to_owned(),
                        id: id.clone(),
                    }),
                }
            }
            self.heard.push(Heard {
                wire,
                program: program.clone(),
                raw: raw.to_owned(),
                message,
            });
        }
    }
}
