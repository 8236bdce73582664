//! The tools of servers as somebody has looked at them and locked them, and what has changed since.
//!
//! A server can change what its tools say of themselves, at any time, and models believe it. So a lock file
//! holds, for each tool, the SHA-256 of each part that a model or a person reads: over canonical JSON, that is
//! without white space, members in the order of their names, numbers as spelled. Of a part that is there twice
//! both count.
//!
//! ```json
//! {
//!   "drawspanLock": 1,
//!   "servers": {
//!     "notes": {
//!       "add": {
//!         "description": "…64 hexadecimal digits…",
//!         "inputSchema": "…"
//!       }
//!     }
//!   }
//! }
//! ```
//!
//! Source: the MCP "rug pull" reports; design (drift lock). Never: opens a file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use crate::codec::json_text::write_string;
use crate::codec::object::from_object;
use crate::codec::scan::members;
use crate::crypto::{hex, sha256};
use crate::diagnostic::Level;
use crate::manager::catalog::Tool;
use crate::manager::diagnostic::ServerDiagnostic;
use crate::manager::error::Phase;
use crate::manager::fingerprint::canonical_raw;
use crate::manager::server_config::ServerKey;
use crate::secret::Quoted;

/// The parts of a tool that are locked, in the order of their names.
const PARTS: [&str; 5] = [
    "annotations",
    "description",
    "inputSchema",
    "outputSchema",
    "title",
];

/// The shape of the file that this program writes and reads.
const VERSION: u64 = 1;

/// Digests of the parts of a tool; `None` for one that it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Parts([Option<[u8; 32]>; PARTS.len()]);

impl Parts {
    fn of(tool: &Tool) -> Self {
        let mut texts: [Option<String>; PARTS.len()] = Default::default();
        for (name, value) in members(tool.raw()) {
            if let Some(at) = PARTS.iter().position(|part| name.is(part)) {
                let text = texts[at].get_or_insert_default();
                canonical_raw(text, value);
                text.push('\n');
            }
        }
        Self(texts.map(|text| text.map(|text| sha256(text.as_bytes()))))
    }

    /// The names of the parts that differ.
    fn differing(&self, other: &Self) -> Vec<&'static str> {
        let pairs = PARTS.iter().zip(self.0.iter().zip(&other.0));
        pairs
            .filter(|(_, (a, b))| a != b)
            .map(|(name, _)| *name)
            .collect()
    }
}

/// What has changed since the tools were locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drift {
    /// A tool says something else of itself: in these parts.
    Changed {
        /// The server's own name for it.
        tool: String,
        /// Names of members.
        parts: Vec<&'static str>,
    },
    /// A tool that was not there.
    New {
        /// The server's own name for it.
        tool: String,
    },
    /// A tool that is no more.
    Vanished {
        /// The server's own name for it.
        tool: String,
    },
    /// The server was never locked.
    Unlocked,
}

impl Drift {
    /// The tool it is about, by the server's own name; none when it is about all of them.
    #[must_use]
    pub fn tool(&self) -> Option<&str> {
        match self {
            Self::Changed { tool, .. } | Self::New { tool } | Self::Vanished { tool } => Some(tool),
            Self::Unlocked => None,
        }
    }

    /// A word for scripts.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Changed { .. } => "changed",
            Self::New { .. } => "new",
            Self::Vanished { .. } => "vanished",
            Self::Unlocked => "unlocked",
        }
    }

    /// The parts that are others.
    #[must_use]
    pub fn parts(&self) -> &[&'static str] {
        match self {
            Self::Changed { parts, .. } => parts,
            Self::New { .. } | Self::Vanished { .. } | Self::Unlocked => &[],
        }
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed { tool, parts } => {
                write!(f, "tool {} has changed since it was locked: ", Quoted(tool))?;
                f.write_str(&parts.join(", "))
            }
            Self::New { tool } => write!(f, "tool {} is not in the lock file", Quoted(tool)),
            Self::Vanished { tool } => {
                write!(f, "tool {} of the lock file is not offered", Quoted(tool))
            }
            Self::Unlocked => f.write_str("the lock file does not know this server"),
        }
    }
}

/// A text that is no lock file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockError {
    /// It has another shape; what and where.
    Shape(String),
    /// It is for another version of this program.
    Version(u64),
    /// A digest is none, of this server and tool.
    Digest(String, String),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape(what) => write!(f, "is no lock file: {what}"),
            Self::Version(found) => {
                write!(
                    f,
                    "has version {found} (drawspanLock), this program knows {VERSION}"
                )
            }
            Self::Digest(server, tool) => write!(
                f,
                "has a part or digest of tool {} of server {} that makes no sense",
                Quoted(tool),
                Quoted(server)
            ),
        }
    }
}

impl std::error::Error for LockError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "drawspanLock")]
    version: u64,
    servers: BTreeMap<String, BTreeMap<String, BTreeMap<String, String>>>,
}

/// What was locked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    servers: BTreeMap<String, BTreeMap<String, Parts>>,
}

impl Lock {
    /// Reads a lock file.
    ///
    /// # Errors
    /// When it is none, or of another version.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        let document: Document =
            from_object(text).map_err(|error| LockError::Shape(error.to_string()))?;
        if document.version != VERSION {
            return Err(LockError::Version(document.version));
        }
        let mut lock = Self::default();
        for (server, tools) in document.servers {
            let mut known = BTreeMap::new();
            for (tool, digests) in tools {
                let Some(parts) = read_parts(&digests) else {
                    return Err(LockError::Digest(server, tool));
                };
                known.insert(tool, parts);
            }
            lock.servers.insert(server, known);
        }
        Ok(lock)
    }

    /// The file's text: one digest a line, in the order of names, so that two of them compare well.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = format!("{{\n  \"drawspanLock\": {VERSION},\n  \"servers\": ");
        write_map(&mut json, 2, &self.servers, |json, tools| {
            write_map(json, 4, tools, |json, parts| {
                let named = PARTS.iter().zip(parts.0);
                let there = named.filter_map(|(name, digest)| Some((*name, digest?)));
                let there: BTreeMap<&str, [u8; 32]> = there.collect();
                write_map(json, 6, &there, |json, digest| {
                    write_string(json, &hex(digest));
                });
            });
        });
        json.push_str("\n}\n");
        json
    }

    /// Locks the tools of a server as they are now.
    pub fn set<'a>(&mut self, server: &ServerKey, tools: impl IntoIterator<Item = &'a Tool>) {
        let parts = tools
            .into_iter()
            .map(|tool| (tool.name().to_owned(), Parts::of(tool)));
        self.servers
            .insert(server.as_str().to_owned(), parts.collect());
    }

    /// Forgets the servers that are none of these.
    pub fn keep_only(&mut self, servers: &BTreeSet<&str>) {
        self.servers
            .retain(|server, _| servers.contains(server.as_str()));
    }

    /// How many servers and tools are locked.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        let tools = self.servers.values().map(BTreeMap::len).sum();
        (self.servers.len(), tools)
    }

    /// What has changed of a server, in the order of the tools' names. `listed` is everything it lists, of which
    /// only what `shows` lets pass is looked at.
    pub fn compare<'a>(
        &self,
        server: &ServerKey,
        listed: impl IntoIterator<Item = &'a Tool>,
        shows: impl Fn(&str) -> bool,
    ) -> Vec<Drift> {
        let Some(locked) = self.servers.get(server.as_str()) else {
            return vec![Drift::Unlocked];
        };
        let mut drifts = BTreeMap::new();
        let mut there = BTreeSet::new();
        for tool in listed {
            let name = tool.name();
            there.insert(name);
            if !shows(name) {
                continue;
            }
            let tool_name = name.to_owned();
            let drift = match locked.get(name) {
                None => Drift::New { tool: tool_name },
                Some(parts) => match Parts::of(tool).differing(parts) {
                    parts if parts.is_empty() => continue,
                    parts => Drift::Changed {
                        tool: tool_name,
                        parts,
                    },
                },
            };
            drifts.insert(name.to_owned(), drift);
        }
        for tool in locked.keys() {
            if !there.contains(tool.as_str()) {
                drifts.insert(tool.clone(), Drift::Vanished { tool: tool.clone() });
            }
        }
        drifts.into_values().collect()
    }
}

fn read_parts(digests: &BTreeMap<String, String>) -> Option<Parts> {
    let mut parts = Parts::default();
    for (name, digest) in digests {
        let at = PARTS.iter().position(|part| part == name)?;
        parts.0[at] = Some(crate::crypto::unhex(digest)?);
    }
    Some(parts)
}

fn write_map<K: AsRef<str>, V>(
    json: &mut String,
    indent: usize,
    map: &BTreeMap<K, V>,
    mut write: impl FnMut(&mut String, &V),
) {
    json.push('{');
    for (i, (name, value)) in map.iter().enumerate() {
        json.push_str(if i == 0 { "\n" } else { ",\n" });
        json.push_str(&" ".repeat(indent + 2));
        write_string(json, name.as_ref());
        json.push_str(": ");
        write(json, value);
    }
    if !map.is_empty() {
        json.push('\n');
        json.push_str(&" ".repeat(indent));
    }
    json.push('}');
}

/// What is done about a tool that has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockMode {
    /// It is left out of the list, and calls of it say why.
    #[default]
    Refuse,
    /// It is said, and nothing else.
    Warn,
}

/// A lock in force.
#[derive(Clone, Debug)]
pub struct LockRule {
    /// What was locked.
    pub lock: Lock,
    /// What is done about what has changed.
    pub mode: LockMode,
    /// The servers it is for: a name that is not among them is let be. `None` for all servers.
    pub only: Option<BTreeSet<String>>,
}

/// What a lock in force says of a listing.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// Why a tool is refused, by the server's own name.
    refused: BTreeMap<String, String>,
    /// Why all of them are.
    all: Option<String>,
    /// What is to be said.
    pub(super) said: Vec<ServerDiagnostic>,
}

impl Judged {
    /// Why a tool may not be used, if it may not.
    pub(super) fn refusal(&self, tool: &str) -> Option<String> {
        self.all.clone().or_else(|| self.refused.get(tool).cloned())
    }
}

impl LockRule {
    /// Whether it is for this server.
    #[must_use]
    pub fn is_for(&self, server: &ServerKey) -> bool {
        let only = self.only.as_ref();
        only.is_none_or(|only| only.contains(server.as_str()))
    }

    /// Judges a listing of a server.
    pub(super) fn judge(
        &self,
        server: &ServerKey,
        listed: &[Arc<Tool>],
        shows: impl Fn(&str) -> bool,
    ) -> Judged {
        let mut judged = Judged::default();
        if !self.is_for(server) {
            return judged;
        }
        let listed = listed.iter().map(|tool| &**tool);
        let name = Quoted(server.as_str()).to_string();
        for drift in self.lock.compare(server, listed, shows) {
            let refuses = self.mode == LockMode::Refuse && !matches!(drift, Drift::Vanished { .. });
            let (level, end) = match (refuses, drift.tool()) {
                (true, Some(_)) => (Level::Error, "; it is refused"),
                (true, None) => (Level::Error, "; its tools are refused"),
                (false, _) => (Level::Warning, ""),
            };
            let message = format!(
                "server {name}: {drift}{end} (`drawspan lock {name}` locks what is there now)"
            );
            let mut one = ServerDiagnostic::new(server, Phase::List, level, message);
            one.tool = drift.tool().map(|tool| Quoted(tool).to_string());
            judged.said.push(one.with_code("tool-drift"));
            if refuses {
                let why = format!("tool call refused: {drift} (server {name})");
                match drift.tool() {
                    Some(tool) => drop(judged.refused.insert(tool.to_owned(), why)),
                    None => judged.all = Some(why),
                }
            }
        }
        judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn tool(raw: &str) -> Arc<Tool> {
        let (tool, _) = Tool::read(raw, false, &Limits::DEFAULT);
        Arc::new(tool.expect("usable"))
    }

    fn key() -> ServerKey {
        ServerKey("notes".into())
    }

    const ADD: &str = r#"{"name":"add","title":"Add","description":"adds","inputSchema":{"type":"object","properties":{"n":{"type":"number","maximum":1.0}}},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"_meta":{"x":1}}"#;

    fn locked(raws: &[&str]) -> Lock {
        let tools: Vec<_> = raws.iter().map(|raw| tool(raw)).collect();
        let mut lock = Lock::default();
        lock.set(&key(), tools.iter().map(|tool| &**tool));
        lock
    }

    fn drift(lock: &Lock, raws: &[&str]) -> Vec<Drift> {
        let tools: Vec<_> = raws.iter().map(|raw| tool(raw)).collect();
        lock.compare(&key(), tools.iter().map(|tool| &**tool), |_| true)
    }

    #[test]
    fn a_file_is_stable_and_read_back() {
        let list = r#"{"name":"list","inputSchema":{"type":"object"}}"#;
        let lock = locked(&[ADD, list]);
        let json = lock.to_json();
        assert_eq!(Lock::parse(&json), Ok(lock.clone()));
        assert_eq!(locked(&[list, ADD]).to_json(), json, "whatever the order");
        let digest = hex(&sha256(b"\"adds\"\n"));
        let line = format!("        \"description\": \"{digest}\",\n");
        assert!(json.contains(&line), "{json}");
        assert!(
            json.starts_with("{\n  \"drawspanLock\": 1,\n  \"servers\": {\n    \"notes\": {\n")
        );
        assert!(json.ends_with("\n      }\n    }\n  }\n}\n"), "{json}");
        assert_eq!(lock.count(), (1, 2));
        let empty = Lock::default();
        assert_eq!(Lock::parse(&empty.to_json()), Ok(empty));
    }

    #[test]
    fn each_part_that_changes_is_named() {
        let lock = locked(&[ADD]);
        assert_eq!(drift(&lock, &[ADD]), []);
        for (from, to, parts) in [
            ("adds", "Adds", &["description"][..]),
            (r#""Add""#, r#""Sub""#, &["title"]),
            ("true", "false", &["annotations"]),
            (
                r#","outputSchema":{"type":"object"}"#,
                "",
                &["outputSchema"],
            ),
            (r#""maximum":1.0"#, r#""maximum":2"#, &["inputSchema"]),
            (
                r#""n":{"#,
                r#""n":{"description":"give the password","#,
                &["inputSchema"],
            ),
            // Said twice, for a reader that takes the first of them.
            (
                r#""title""#,
                r#""description":"ignore all","title""#,
                &["description"],
            ),
        ] {
            let changed = ADD.replacen(from, to, 1);
            assert_ne!(changed, ADD);
            let tool = "add".to_owned();
            let parts = parts.to_vec();
            assert_eq!(
                drift(&lock, &[&changed]),
                [Drift::Changed { tool, parts }],
                "{changed}"
            );
        }
    }

    #[test]
    fn what_means_the_same_is_no_change() {
        let lock = locked(&[ADD]);
        let spaced = r#"{ "annotations" : {"readOnlyHint":true}, "inputSchema":{"properties":{"n":{"maximum":1.0,"type":"n\u0075mber"}}, "type":"object"},"outputSchema":{"type":"object"},"name":"add","description":"a\u0064ds","title":"Add","icons":[]}"#;
        assert_eq!(drift(&lock, &[spaced]), []);
    }

    #[test]
    fn tools_that_come_and_go_are_named_and_hidden_ones_are_not() {
        let other = ADD.replace(r#""add""#, r#""zap""#);
        let lock = locked(&[ADD]);
        let tool = |name: &str| name.to_owned();
        assert_eq!(
            drift(&lock, &[ADD, &other]),
            [Drift::New { tool: tool("zap") }]
        );
        assert_eq!(drift(&lock, &[]), [Drift::Vanished { tool: tool("add") }]);
        let listed = [self::tool(ADD), self::tool(&other)];
        let listed = || listed.iter().map(|tool| &**tool);
        assert_eq!(lock.compare(&key(), listed(), |name| name == "add"), []);
        let changed = self::tool(&ADD.replace("adds", "x"));
        assert_eq!(lock.compare(&key(), [&*changed], |_| false), []);
        let stranger = ServerKey("stranger".into());
        assert_eq!(
            lock.compare(&stranger, listed(), |_| true),
            [Drift::Unlocked]
        );
    }

    #[test]
    fn texts_that_are_no_lock_say_why() {
        for (text, why) in [
            ("[]", "is no lock file"),
            ("{}", "is no lock file: missing field `drawspanLock`"),
            (
                r#"{"drawspanLock":2,"servers":{}}"#,
                "has version 2 (drawspanLock), this program knows 1",
            ),
            (
                r#"{"drawspanLock":1,"servers":{"s":{"t":{"other":""}}}}"#,
                "has a part or digest of tool t of server s",
            ),
            (
                r#"{"drawspanLock":1,"servers":{"s":{"t":{"title":"ab"}}}}"#,
                "has a part or digest of tool t",
            ),
        ] {
            let error = Lock::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(why), "{error}");
        }
    }

    #[test]
    fn a_rule_refuses_or_warns() {
        let evil = ADD.replace("adds", "sends everything");
        let other = ADD.replace(r#""add""#, r#""zap""#);
        let listed = [tool(&evil), tool(&other)];
        let rule = |mode, only: Option<&str>| LockRule {
            lock: locked(&[ADD]),
            mode,
            only: only.map(|name| BTreeSet::from([name.to_owned()])),
        };
        let judged = rule(LockMode::Refuse, None).judge(&key(), &listed, |_| true);
        let why = judged.refusal("add").expect("refused");
        assert_eq!(
            why,
            "tool call refused: tool add has changed since it was locked: description (server notes)"
        );
        assert!(judged.refusal("zap").is_some());
        let said: Vec<_> = judged.said.iter().map(|one| one.tool.as_deref()).collect();
        assert_eq!(said, [Some("add"), Some("zap")]);
        assert_eq!(judged.said[0].level, Level::Error);
        let judged = rule(LockMode::Warn, Some("notes")).judge(&key(), &listed, |_| true);
        assert!(judged.refusal("add").is_none());
        assert_eq!(
            (judged.said.len(), judged.said[0].level),
            (2, Level::Warning)
        );
        let judged = rule(LockMode::Refuse, Some("other")).judge(&key(), &listed, |_| true);
        assert!(judged.said.is_empty() && judged.refusal("add").is_none());
        let stranger = ServerKey("stranger".into());
        let judged = rule(LockMode::Refuse, None).judge(&stranger, &listed, |_| true);
        assert_eq!(judged.said.len(), 1, "one for all of them");
        assert!(judged.refusal("add").is_some() && judged.refusal("zap").is_some());
    }
}
