//! `drawspan doctor [NAME]`: what is wrong with the configuration, and with what it names.
//!
//! Checks what can be checked without starting anything: commands and directories exist, certificates are
//! there, secrets do not stand in the file. Source: openclaw-client §8 (`doctor`).

use super::super::{CommandResult, Exit, Failure, print};
use super::servers::Servers;
use super::session::Session;
use super::{DoctorArgs, servers, status};
use crate::codec::json_object::JsonObject;
use crate::diagnostic::Level;
use crate::manager::Prefix;
use crate::manager::entry::{Configured, Issue};
use crate::manager::server_config::{ServerConfig, Transport};
use crate::secret::Quoted;

pub(super) fn run(args: &DoctorArgs) -> CommandResult {
    let found = Servers::read(&args.source)?;
    let shown = status::chosen(&found, args.name.as_deref())?;
    let mut checked: Vec<(&Configured, Vec<Issue>)> =
        shown.into_iter().map(|one| (one, issues_of(one))).collect();
    if args.probe {
        probe(&mut checked, &found)?;
    }
    let failed = |issues: &[Issue]| issues.iter().any(|issue| issue.level == Level::Error);
    let ok = !checked.iter().any(|(_, issues)| failed(issues));
    let printed = match args.json {
        true => {
            let mut document = JsonObject::new();
            let path = found
                .map
                .path
                .as_ref()
                .map(|path| path.display().to_string());
            document.maybe_text("path", path.as_deref());
            document.flag("ok", ok);
            let servers: Vec<String> = checked
                .iter()
                .map(|(one, issues)| {
                    let mut object = JsonObject::new();
                    object.text("name", one.key.as_str());
                    object.flag("ok", !failed(issues));
                    let list: Vec<String> = issues.iter().map(issue_object).collect();
                    object.raw("issues", &format!("[{}]", list.join(",")));
                    object.end()
                })
                .collect();
            document.raw("servers", &format!("[{}]", servers.join(",")));
            print(&format!("{}\n", document.end()))
        }
        false => {
            let mut text = String::new();
            for (one, issues) in &checked {
                let verdict = if failed(issues) { "has errors" } else { "ok" };
                text.push_str(&format!("- {}: {verdict}\n", servers::shown(&one.key)));
                for issue in issues {
                    text.push_str(&format!("  {}: {}\n", issue.level.as_str(), issue.message));
                }
            }
            print(&text)
        }
    };
    printed.map(|_| if ok { Exit::Ok } else { Exit::Failed })
}

fn issue_object(issue: &Issue) -> String {
    let mut object = JsonObject::new();
    object.text("level", issue.level.as_str());
    object.text("message", &issue.message);
    object.end()
}

/// Everything that is known to be wrong with a server without connecting to it.
fn issues_of(one: &Configured) -> Vec<Issue> {
    let mut issues = one.issues.clone();
    if !one.enabled {
        issues.push(warning("disabled".to_owned()));
    }
    match &one.outcome {
        Ok(config) => {
            if let Transport::Stdio(stdio) = &config.transport {
                if let Some(cwd) = stdio.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
                    let shown = cwd.display().to_string();
                    issues.push(error(format!("cwd {} is no directory", Quoted(&shown))));
                }
                if let Err(why) = find_program(config) {
                    issues.push(error(why));
                }
            }
            if let Transport::Http(http) = &config.transport {
                if http.tls.insecure {
                    issues.push(warning(
                        "sslVerify is off: any certificate is taken".to_owned(),
                    ));
                }
                let client = http.tls.client.iter().flat_map(|(cert, key)| [cert, key]);
                for file in http.tls.ca_file.iter().chain(client) {
                    if !file.is_file() {
                        let shown = file.display().to_string();
                        issues.push(error(format!("{} is no file", Quoted(&shown))));
                    }
                }
            }
        }
        Err(problems) => {
            for problem in problems {
                if !issues.contains(problem) {
                    issues.push(problem.clone());
                }
            }
        }
    }
    issues
}

/// Whether the command is there, looked for as it will be: in the PATH of its own environment.
fn find_program(config: &ServerConfig) -> Result<(), String> {
    let Transport::Stdio(stdio) = &config.transport else {
        return Ok(());
    };
    let base = stdio.cwd.clone().unwrap_or_default();
    let candidates: Vec<_> = match stdio.command.contains('/') {
        true => vec![base.join(&stdio.command)],
        false => {
            let path = stdio.env.get("PATH").map(|path| path.expose().clone());
            std::env::split_paths(&path.unwrap_or_default())
                .map(|dir| dir.join(&stdio.command))
                .collect()
        }
    };
    let shown = Quoted(&stdio.command);
    let Some(found) = candidates.iter().find(|path| path.is_file()) else {
        return Err(format!("command {shown} is not found"));
    };
    use std::os::unix::fs::PermissionsExt as _;
    let mode = found.metadata().map(|meta| meta.permissions().mode());
    match mode {
        Ok(mode) if mode & 0o111 != 0 => Ok(()),
        Ok(_) | Err(_) => Err(format!("command {shown} is not executable")),
    }
}

/// Connects to those without errors, and adds what comes of it.
fn probe(checked: &mut [(&Configured, Vec<Issue>)], found: &Servers) -> Result<(), Failure> {
    let sound: Vec<ServerConfig> = checked
        .iter()
        .filter(|(one, issues)| one.enabled && issues.iter().all(|i| i.level != Level::Error))
        .filter_map(|(one, _)| one.outcome.as_ref().ok().cloned())
        .collect();
    let mut session = Session::new(sound, &found.limits, Prefix::Always, false)?;
    let connected = session.connect();
    for diagnostic in &session.diagnostics {
        let whose = checked
            .iter_mut()
            .find(|(one, _)| one.key == diagnostic.server);
        if let Some((_, issues)) = whose {
            issues.push(Issue {
                level: diagnostic.level,
                message: diagnostic.message.clone(),
            });
        }
    }
    session.end();
    connected
}

fn error(message: String) -> Issue {
    Issue {
        level: Level::Error,
        message,
    }
}

fn warning(message: String) -> Issue {
    Issue {
        level: Level::Warning,
        message,
    }
}
