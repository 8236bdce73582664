//! How a server is reached: `command`, else `url`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use super::aliases::http_kind;
use super::fields::{Fields, kind};
use super::{http, stdio};
use crate::manager::server_config::{HttpKind, Transport};
use crate::secret::Quoted;

/// Names under which people write `url`.
const URL_LOOKALIKES: [&str; 10] = [
    "baseUrl",
    "base_url",
    "serverUrl",
    "server_url",
    "httpUrl",
    "http_url",
    "uri",
    "endpoint",
    "href",
    "address",
];

/// Names under which people write `command`.
const COMMAND_LOOKALIKES: [&str; 4] = ["cmd", "exec", "executable", "program"];

/// Names that are taken for others, and the right ones.
const LOOKALIKES: [(&str, &str); 8] = [
    ("arg", "args"),
    ("arguments", "args"),
    ("environment", "env"),
    ("envs", "env"),
    ("header", "headers"),
    ("httpHeaders", "headers"),
    ("timeoutMs", "requestTimeoutMs"),
    ("enable", "enabled"),
];

/// Decides, in OpenClaw's order: a `command` means a program, whatever else is there; a transport that is
/// none of HTTP's skips the entry; then the `url` must be usable. `None` after an error.
pub(super) fn read(fields: &mut Fields<'_>, env: &BTreeMap<String, String>) -> Option<Transport> {
    for (found, right) in LOOKALIKES {
        if fields.get(found).is_some() && fields.get(right).is_none() {
            fields.warn(format!("{found} is not known: rename it to {right}"));
        }
    }
    if fields.get("envFile").is_some() {
        fields.warn("envFile is not read: put its variables into env, as ${NAME}");
    }
    let url = text_or_fail(fields, "url");
    let command = match fields.get("command") {
        Some(Value::String(command)) => Some(command.trim()).filter(|text| !text.is_empty()),
        Some(Value::Array(_)) => {
            fields.fail("command must be a string (found an array): put its arguments into args");
            return None;
        }
        Some(other) => {
            let found = kind(other);
            fields.fail(format!("command must be a string (found {found})"));
            return None;
        }
        None => None,
    };
    if let Some(command) = command {
        unused_beside_command(fields, url);
        return stdio::read(fields, command, env).map(Transport::Stdio);
    }
    let asked = fields.text("transport");
    let wanted = match asked.map(|word| (word, http_kind(word))) {
        None => HttpKind::Auto,
        Some((_, Some(kind))) => kind,
        Some((word, None)) if word.eq_ignore_ascii_case("stdio") => {
            fields.fail("command is missing (transport is stdio)");
            return None;
        }
        Some((word, None)) if word.eq_ignore_ascii_case("unix") => HttpKind::Auto,
        Some((word, None)) => {
            fields.fail(format!(
                "transport {} is not supported: write streamable-http, sse or auto, or leave it out",
                Quoted(word)
            ));
            return None;
        }
    };
    if let Some(word) = fields.text("type") {
        fields.warn(format!(
            "type {} is not known and was ignored",
            Quoted(word)
        ));
    }
    if fields.failed() {
        return None;
    }
    let Some(url) = url else {
        fields.fail(nothing_to_reach(fields));
        return None;
    };
    if let Some(path) = url.strip_prefix("unix:") {
        return unix(fields, path, env);
    }
    http::read(fields, url, wanted, env).map(Transport::Http)
}

/// `unix:/path` and `unix:///path`.
fn unix(fields: &mut Fields<'_>, path: &str, env: &BTreeMap<String, String>) -> Option<Transport> {
    let path = match path.strip_prefix("//") {
        Some(rest) if rest.starts_with('/') => rest,
        Some(_) | None => path,
    };
    let path = home_expanded(path, env);
    if path.starts_with('/') && !path.starts_with("//") && !path.contains('\0') {
        return Some(Transport::Unix {
            path: PathBuf::from(path),
        });
    }
    fields.fail("url must be unix:/path with an absolute path of a socket");
    None
}

/// A path whose `~/` stands for the home directory, as people expect where no shell reads it.
pub(super) fn home_expanded(path: &str, env: &BTreeMap<String, String>) -> String {
    let home = env.get("HOME").map(|home| home.trim_end_matches('/'));
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => format!("{home}/{rest}"),
        (Some(_) | None, _) => path.to_owned(),
    }
}

fn text_or_fail<'a>(fields: &mut Fields<'a>, name: &str) -> Option<&'a str> {
    let value = fields.get(name)?;
    let Some(text) = value.as_str() else {
        let found = kind(value);
        fields.fail(format!("{name} must be a string (found {found})"));
        return None;
    };
    Some(text.trim()).filter(|text| !text.is_empty())
}

/// A guess in silence is what nobody can debug.
fn unused_beside_command(fields: &mut Fields<'_>, url: Option<&str>) {
    if url.is_some() {
        fields.warn("url is ignored because command is there: remove one of them");
    }
    let transport = fields.text("transport");
    if let Some(word) = transport.filter(|word| !word.eq_ignore_ascii_case("stdio")) {
        fields.warn(format!(
            "transport {} is ignored because command is there: remove one of them",
            Quoted(word)
        ));
    }
    if fields.get("headers").is_some() {
        fields.warn("headers has no effect on a command: remove it, or give url");
    }
}

/// Why there is neither a command nor a URL, with the name that was meant to be one.
fn nothing_to_reach(fields: &Fields<'_>) -> String {
    let found = |names: &[&str], right: &str| {
        fields.members().map(|(name, _)| name).find(|name| {
            names.contains(&name.as_str())
                || (name.eq_ignore_ascii_case(right) && name.as_str() != right)
        })
    };
    if let Some(name) = found(&URL_LOOKALIKES, "url") {
        return format!("url is missing (found {name}): rename it to url");
    }
    if let Some(name) = found(&COMMAND_LOOKALIKES, "command") {
        return format!("command is missing (found {name}): rename it to command");
    }
    "command is missing and url is missing: a program needs command, a server behind HTTP needs url"
        .to_owned()
}
