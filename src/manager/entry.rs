//! From a configured entry to a [`ServerConfig`], or to the reasons why not.
//!
//! | step | what | source |
//! |------|------|--------|
//! | 1 | `${NAME}` in every string; a missing variable ends it here | OpenClaw: resolveConfigEnvVars |
//! | 2 | other spellings become the usual ones | OpenClaw: canonicalizeConfiguredMcpServer |
//! | 3 | `command`, else `transport` and `url`, decide how the server is reached | OpenClaw: resolveMcpTransportConfig |
//! | 4 | everything else, with a warning for what cannot be used and its default | the command line's contract (§2) |
//! | 5 | the fingerprint of the result | [`fingerprint`](super::fingerprint) |
//!
//! One bad entry costs that entry: reading never fails as a whole. An issue of level error means that the
//! server is not started; others say what was left out. Messages name the key and the fix, and do not repeat
//! the server's name. They never show a value that may be a secret.

mod ad_hoc;
mod advice;
mod aliases;
mod fields;
mod http;
mod launch;
mod plugin;
mod rest;
mod stdio;
mod transport;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

pub use self::ad_hoc::{AdHoc, Target, ad_hoc};
pub use self::advice::{is_literal, literal_secrets};
pub use self::aliases::{fold as fold_aliases, http_kind};
use self::fields::{Fields, kind};
pub use self::plugin::{ConfiguredPlugin, PluginTool, read_plugins};
use crate::diagnostic::Level;
use crate::limits::Limits;
use crate::manager::fingerprint::fingerprint;
use crate::manager::placeholder;
use crate::manager::server_config::{ServerConfig, ServerKey};
use crate::secret::Quoted;

/// One server of the configuration, usable or not, started or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// Its key, byte for byte.
    pub key: ServerKey,
    /// Whether it is to be started: neither `enabled: false` nor `disabled: true`.
    pub enabled: bool,
    /// The record, or the errors that keep it from being one; never empty then.
    pub outcome: Result<ServerConfig, Vec<Issue>>,
    /// What was left out or does not fit, worst first.
    pub issues: Vec<Issue>,
}

/// Something about an entry that its owner should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Error: the server is not started. Warning: part of the entry has no effect.
    pub level: Level,
    /// One line that names the key and the fix.
    pub message: String,
}

/// Members of an entry that mean something here; the others are kept for the fingerprint only.
const KNOWN: [&str; 35] = [
    "args",
    "auth",
    "caFile",
    "clientCert",
    "clientKey",
    "command",
    "connectTimeout",
    "connectionTimeoutMs",
    "cwd",
    "disabled",
    "discoverTimeoutMs",
    "enabled",
    "env",
    "failurePauseAfter",
    "failurePauseMs",
    "headers",
    "inheritEnv",
    "isolation",
    "listTimeoutMs",
    "maxMessageBytes",
    "maxTotalTimeoutMs",
    "oauth",
    "protocol",
    "requestTimeoutMs",
    "resetTimeoutOnProgress",
    "resumeAttempts",
    "sslVerify",
    "supportsParallelToolCalls",
    "timeout",
    "toolFilter",
    "transport",
    "url",
    "validateCalls",
    "workingDirectory",
    "writeQueueBytes",
];

/// Reads the servers of a configuration, in its order. Each pair is a key and its entry as raw JSON; `env` is
/// our own environment, for placeholders, children and proxies.
#[must_use]
pub fn read_servers(
    map: &[(String, String)],
    env: &BTreeMap<String, String>,
    limits: &Limits,
) -> Vec<Configured> {
    let mut seen = BTreeSet::new();
    map.iter()
        .map(|(key, raw)| {
            if seen.insert(key.as_str()) {
                read_server(key, raw, env, limits)
            } else {
                refused(key, "the name is there twice; only the first entry counts")
            }
        })
        .collect()
}

/// Reads one entry. As [`read_servers`].
fn read_server(
    key: &str,
    raw: &str,
    env: &BTreeMap<String, String>,
    limits: &Limits,
) -> Configured {
    match object(raw) {
        Ok(entry) => resolve(key, entry, Some(env), env, limits, |_| {}),
        Err(message) => refused(key, message),
    }
}

/// # Errors
/// What the entry is instead of an object.
fn object(raw: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(raw) {
        Ok(Value::Object(entry)) => Ok(entry),
        Ok(other) => Err(format!(
            "the entry must be an object (found {})",
            kind(&other)
        )),
        Err(error) => Err(format!("the entry is not JSON: {error}")),
    }
}

fn refused(key: &str, message: impl Into<String>) -> Configured {
    let issue = Issue {
        level: Level::Error,
        message: message.into(),
    };
    Configured {
        key: ServerKey(key.into()),
        enabled: true,
        outcome: Err(vec![issue]),
        issues: Vec::new(),
    }
}

/// Steps 1 to 5. Without `variables` no string is a placeholder: it comes from a command line. `overlay` is
/// applied between 2 and 3.
fn resolve(
    key: &str,
    entry: Map<String, Value>,
    variables: Option<&BTreeMap<String, String>>,
    env: &BTreeMap<String, String>,
    limits: &Limits,
    overlay: impl Fn(&mut Map<String, Value>),
) -> Configured {
    let key = ServerKey(key.into());
    let mut shown = entry;
    let mut missing = Vec::new();
    let mut expanded = Value::Object(shown.clone());
    if let Some(variables) = variables {
        placeholder::expand(&mut expanded, "", variables, &mut missing);
    }
    let mut members = match expanded {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    };
    // What people see is made of the placeholders, not of what they stand for.
    for members in [&mut shown, &mut members] {
        aliases::fold(members);
        overlay(members);
    }
    let mut fields = Fields::new(&members);
    let enabled = enabled(&mut fields);
    for (other, usual) in aliases::left(&members) {
        fields.warn(format!(
            "{other} is of the wrong type for {usual} and was ignored"
        ));
    }
    missing.sort();
    missing.dedup();
    for missing in missing {
        let top = missing.path.split('.').next().unwrap_or("");
        if KNOWN.contains(&top) {
            let (path, name) = (Quoted(&missing.path), Quoted(&missing.name));
            fields.fail(if placeholder::is_input(&missing.name) {
                format!(
                    "{path} asks a person for ${{{name}}}: write ${{NAME}} and set that variable"
                )
            } else {
                format!("{path} needs the variable {name}, which is not set or empty")
            });
        }
    }
    let config = if fields.failed() {
        None
    } else {
        record(&key, &mut fields, &shown, env, limits)
    };
    let (errors, mut issues) = fields.into_issues();
    issues.sort_by_key(|issue| std::cmp::Reverse(issue.level));
    let outcome = match config {
        Some(config) if errors.is_empty() => Ok(config),
        Some(_) | None => Err(errors),
    };
    Configured {
        key,
        enabled,
        outcome,
        issues,
    }
}

/// Steps 3 to 5; `None` after an issue of level error.
fn record(
    key: &ServerKey,
    fields: &mut Fields<'_>,
    shown: &Map<String, Value>,
    env: &BTreeMap<String, String>,
    limits: &Limits,
) -> Option<ServerConfig> {
    let transport = transport::read(fields, env);
    let rest = rest::read(fields, limits);
    let unknown = fields
        .members()
        .filter(|(name, _)| !KNOWN.contains(&name.as_str()));
    let unknown: BTreeMap<&String, &Value> = unknown.collect();
    let transport = transport?;
    let mut config = ServerConfig {
        key: key.clone(),
        launch: launch::summary(&transport, shown),
        transport,
        protocol: rest.protocol,
        times: rest.times,
        parallel: rest.parallel,
        serial: rest.serial,
        filter: rest.filter,
        bounds: rest.bounds,
        pause: rest.pause,
        isolation: rest.isolation,
        validate_calls: rest.validate_calls,
        fingerprint: String::new(),
    };
    config.fingerprint = fingerprint(&config, &unknown);
    Some(config)
}

/// A value that is neither true nor false stops the server: it may have been meant to stay off.
fn enabled(fields: &mut Fields<'_>) -> bool {
    let mut flag = |name: &str| match fields.get(name) {
        None => None,
        Some(Value::Bool(flag)) => Some(*flag),
        Some(other) => {
            let found = kind(other);
            fields.fail(format!("{name} must be true or false (found {found})"));
            None
        }
    };
    let (enabled, disabled) = (flag("enabled"), flag("disabled"));
    if enabled == Some(true) && disabled == Some(true) {
        fields.warn("enabled and disabled contradict each other; the server stays off");
    }
    enabled != Some(false) && disabled != Some(true)
}

#[cfg(test)]
mod tests;
