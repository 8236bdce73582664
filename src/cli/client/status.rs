//! `drawspan status [NAME]`: what the configuration says. Connects to nothing.

use super::super::{CommandResult, Failure, print, say};
use super::servers::Servers;
use super::{StatusArgs, servers};
use crate::codec::json_object::JsonObject;
use crate::codec::json_text::write_string;
use crate::manager::entry::Configured;
use crate::manager::server_config::{HttpKind, ServerConfig, Transport};

pub(super) fn run(args: &StatusArgs) -> CommandResult {
    let found = Servers::read(&args.source)?;
    let shown = chosen(&found, args.name.as_deref())?;
    if !args.json {
        let mut text = String::new();
        for one in shown {
            text.push_str(&line(one));
        }
        if text.is_empty() {
            say(NONE);
        }
        return print(&text);
    }
    let mut document = JsonObject::new();
    let path = found
        .map
        .path
        .as_ref()
        .map(|path| path.display().to_string());
    document.maybe_text("path", path.as_deref());
    let objects: Vec<String> = shown.into_iter().map(object).collect();
    document.raw("servers", &format!("[{}]", objects.join(",")));
    print(&format!("{}\n", document.end()))
}

/// What people are told where there is nothing to show.
pub(super) const NONE: &str = "hint: no servers are configured here; --config names a file";

/// The servers a command is about, in file order.
pub(super) fn chosen<'a>(
    found: &'a Servers,
    name: Option<&str>,
) -> Result<Vec<&'a Configured>, Failure> {
    match name {
        Some(name) => Ok(vec![found.named(name)?]),
        None => Ok(found.configured.iter().collect()),
    }
}

/// The transport's name in output.
pub(super) fn transport_name(transport: &Transport) -> &'static str {
    match transport {
        Transport::Stdio(_) => "stdio",
        Transport::Unix { .. } => "unix",
        Transport::Http(http) => match http.kind {
            HttpKind::Auto | HttpKind::Streamable => "streamable-http",
            HttpKind::Sse => "sse",
        },
    }
}

fn line(one: &Configured) -> String {
    let mut words = Vec::new();
    match &one.outcome {
        _ if !one.enabled => words.push("disabled".to_owned()),
        Ok(config) => {
            words.push(transport_name(&config.transport).to_owned());
            if auth(config).is_some() {
                words.push("oauth".to_owned());
            }
            if !config.filter.include.is_empty() || !config.filter.exclude.is_empty() {
                words.push("tool-filtered".to_owned());
            }
            if config.parallel {
                words.push("parallel".to_owned());
            }
            words.push(config.launch.clone());
        }
        Err(problems) => {
            words.push("invalid:".to_owned());
            words.push(servers::reasons(problems));
        }
    }
    format!("- {}: {}\n", servers::shown(&one.key), words.join(" "))
}

/// How its owner signs in, where the record says so.
fn auth(config: &ServerConfig) -> Option<&'static str> {
    match &config.transport {
        Transport::Http(http) => http.oauth.as_ref().map(|_| "oauth"),
        Transport::Stdio(_) | Transport::Unix { .. } => None,
    }
}

fn object(one: &Configured) -> String {
    let mut object = JsonObject::new();
    object.text("name", one.key.as_str());
    object.flag("configured", true);
    object.flag("enabled", one.enabled);
    object.flag("ok", one.enabled && one.outcome.is_ok());
    match &one.outcome {
        Ok(config) => {
            object.text("state", if one.enabled { "idle" } else { "disabled" });
            object.text("transport", transport_name(&config.transport));
            object.text("launch", &config.launch);
            let millis = |time: std::time::Duration| i64::try_from(time.as_millis()).ok();
            object.number("requestTimeoutMs", millis(config.times.request));
            object.number("connectionTimeoutMs", millis(config.times.connect));
            let filter = &config.filter;
            if !filter.include.is_empty() || !filter.exclude.is_empty() {
                let mut lists = JsonObject::new();
                for (name, globs) in [("include", &filter.include), ("exclude", &filter.exclude)] {
                    if !globs.is_empty() {
                        lists.raw(name, &array(globs));
                    }
                }
                object.raw("toolFilter", &lists.end());
            }
            object.maybe_text("auth", auth(config));
            if config.parallel {
                object.flag("supportsParallelToolCalls", true);
            }
        }
        Err(problems) => {
            object.text("state", if one.enabled { "failed" } else { "disabled" });
            object.text("lastError", &servers::reasons(problems));
        }
    }
    object.end()
}

/// A JSON array of strings.
pub(super) fn array(texts: &[String]) -> String {
    let mut array = String::from("[");
    for (i, text) in texts.iter().enumerate() {
        if i > 0 {
            array.push(',');
        }
        write_string(&mut array, text);
    }
    array.push(']');
    array
}
