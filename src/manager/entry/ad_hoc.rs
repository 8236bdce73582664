//! A server named on the command line instead of in a file, or one of the file with options on top.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{Configured, object, refused, resolve};
use crate::codec::uri::Uri;
use crate::limits::Limits;
use crate::manager::filter;

/// What to reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `-- command args…`; nothing in it is a placeholder, the shell has seen it.
    Command(Vec<String>),
    /// `http://…`, `https://…` or `unix:/path`.
    Url(String),
    /// An entry of the configuration: its key and raw JSON.
    Entry {
        /// The key.
        key: String,
        /// The entry.
        raw: String,
    },
}

/// A target and the options given with it. Options win over what an entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdHoc {
    /// What to reach.
    pub target: Target,
    /// `-e NAME=VALUE`; `-e NAME` inherits that variable.
    pub env: Vec<String>,
    /// `--cwd`.
    pub cwd: Option<String>,
    /// `-H 'Name: value'`; the blank may be missing.
    pub headers: Vec<String>,
    /// `--transport`.
    pub transport: Option<String>,
    /// `--protocol`.
    pub protocol: Option<String>,
    /// `--timeout`: one request.
    pub timeout: Option<Duration>,
    /// `--connect-timeout`: start, discovery and handshake.
    pub connect_timeout: Option<Duration>,
    /// `--include`; each may be a list with commas.
    pub include: Vec<String>,
    /// `--exclude`, likewise.
    pub exclude: Vec<String>,
}

impl AdHoc {
    /// The target without options.
    #[must_use]
    pub const fn new(target: Target) -> Self {
        Self {
            target,
            env: Vec::new(),
            cwd: None,
            headers: Vec::new(),
            transport: None,
            protocol: None,
            timeout: None,
            connect_timeout: None,
            include: Vec::new(),
            exclude: Vec::new(),
        }
    }

    /// Writes the options into an entry.
    fn apply(&self, entry: &mut Map<String, Value>) {
        for variable in &self.env {
            match variable.split_once('=') {
                Some((name, value)) => set_in(entry, "env", name, value),
                None => push(entry, "inheritEnv", [variable.as_str()]),
            }
        }
        for header in &self.headers {
            let (name, value) = header.split_once(':').unwrap_or((header, ""));
            let headers = entry.get_mut("headers").and_then(Value::as_object_mut);
            if let Some(headers) = headers {
                headers.retain(|other, _| !other.eq_ignore_ascii_case(name.trim()));
            }
            set_in(entry, "headers", name.trim(), value.trim());
        }
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let words = [
            ("cwd", &self.cwd),
            ("transport", &self.transport),
            ("protocol", &self.protocol),
        ];
        for (name, word) in words {
            if let Some(word) = word {
                entry.insert(name.to_owned(), Value::from(word.as_str()));
            }
        }
        let times = [
            ("requestTimeoutMs", self.timeout),
            ("connectionTimeoutMs", self.connect_timeout),
        ];
        for (name, time) in times {
            if let Some(time) = time {
                entry.insert(name.to_owned(), Value::from(millis(time)));
            }
        }
        for (name, lists) in [("include", &self.include), ("exclude", &self.exclude)] {
            let patterns: Vec<String> =
                lists.iter().flat_map(|list| filter::listed(list)).collect();
            if !patterns.is_empty() {
                let filter = entry
                    .entry("toolFilter")
                    .or_insert_with(|| Map::new().into());
                if let Some(filter) = filter.as_object_mut() {
                    filter.insert(name.to_owned(), Value::from(patterns));
                }
            }
        }
    }
}

/// Reads a target of the command line the way an entry of the configuration is read. Its key is the program's
/// or the host's name.
#[must_use]
pub fn ad_hoc(spec: &AdHoc, env: &BTreeMap<String, String>, limits: &Limits) -> Configured {
    let no_header = spec.headers.iter().any(|header| !header.contains(':'));
    let resolved = |key: &str, entry: Map<String, Value>, variables| {
        if no_header {
            refused(key, "a header must be given as 'Name: value'")
        } else {
            resolve(key, entry, variables, env, limits, |e| spec.apply(e))
        }
    };
    let mut entry = Map::new();
    let key = match &spec.target {
        Target::Command(words) => {
            let (command, args) = match words.split_first() {
                Some((command, args)) if !command.trim().is_empty() => (command.as_str(), args),
                Some(_) | None => return refused("server", "there is no command behind --"),
            };
            entry.insert("command".to_owned(), Value::from(command));
            entry.insert("args".to_owned(), Value::from(args));
            base_name(command)
        }
        Target::Url(url) => {
            entry.insert("url".to_owned(), Value::from(url.as_str()));
            match url.strip_prefix("unix:") {
                Some(path) => base_name(path),
                None => Uri::parse(url).map_or_else(|_| "server".to_owned(), |uri| uri.host),
            }
        }
        Target::Entry { key, raw } => {
            return match object(raw) {
                Ok(entry) => resolved(key, entry, Some(env)),
                Err(message) => refused(key, message),
            };
        }
    };
    resolved(&key, entry, None)
}

fn base_name(path: &str) -> String {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or("");
    match name {
        "" => "server".to_owned(),
        name => name.to_owned(),
    }
}

fn set_in(entry: &mut Map<String, Value>, member: &str, name: &str, value: &str) {
    let slot = entry.entry(member).or_insert_with(|| Map::new().into());
    if !slot.is_object() {
        *slot = Map::new().into();
    }
    if let Some(members) = slot.as_object_mut() {
        members.insert(name.to_owned(), Value::from(value));
    }
}

fn push<'a>(
    entry: &mut Map<String, Value>,
    member: &str,
    names: impl IntoIterator<Item = &'a str>,
) {
    let slot = entry
        .entry(member)
        .or_insert_with(|| Value::Array(Vec::new()));
    if let Some(items) = slot.as_array_mut() {
        items.extend(names.into_iter().map(Value::from));
    }
}
