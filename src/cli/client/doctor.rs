//! `drawspan doctor [NAME]`: what is wrong with the configuration, and with what it names.
//!
//! Checks what can be checked without starting anything: commands and directories exist, certificates are
//! there, secrets do not stand in the file. Source: openclaw-client §8 (`doctor`).

use super::super::{CommandResult, Exit, print, say};
use super::servers::Servers;
use super::session::Session;
use super::{DoctorArgs, servers, status};
use crate::codec::json_object::JsonObject;
use crate::diagnostic::Level;
use crate::manager::Prefix;
use crate::manager::entry::{Configured, Issue, literal_secrets};
use crate::manager::server_config::{HttpTransport, ServerConfig, ToolFilter, Transport};
use crate::protocol::message::member;
use crate::secret::Quoted;

type Checked<'a> = Vec<(&'a Configured, Vec<Issue>)>;

pub(super) fn run(args: &DoctorArgs) -> CommandResult {
    let found = Servers::read(&args.source)?;
    let shown = status::chosen(&found, args.name.as_deref())?;
    let mut checked: Checked<'_> = shown
        .into_iter()
        .map(|one| (one, issues_of(one, found.raw(&one.key))))
        .collect();
    if !args.probe {
        return report(&found, &checked, args.json);
    }
    let mut session = Session::new(sound(&checked), &found.limits, Prefix::Always, false)?;
    let connected = session.connect();
    session.check_schemas();
    let outcome = connected.and_then(|()| {
        add_findings(&mut checked, &session);
        report(&found, &checked, args.json)
    });
    session.end(outcome)
}

fn has_errors(issues: &[Issue]) -> bool {
    issues.iter().any(|issue| issue.level == Level::Error)
}

/// Prints what was found.
fn report(found: &Servers, checked: &Checked<'_>, json: bool) -> CommandResult {
    let ok = !checked.iter().any(|(_, issues)| has_errors(issues));
    let printed = match json {
        true => print(&document(found, checked, ok)),
        false => {
            if checked.is_empty() {
                say(status::NONE);
            }
            print(&text(checked))
        }
    };
    printed.map(|_| if ok { Exit::Ok } else { Exit::Failed })
}

fn document(found: &Servers, checked: &Checked<'_>, ok: bool) -> String {
    let mut document = JsonObject::new();
    let path = found.map.path.as_ref();
    let path = path.map(|path| path.display().to_string());
    document.maybe_text("path", path.as_deref());
    document.flag("ok", ok);
    let servers: Vec<String> = checked
        .iter()
        .map(|(one, issues)| {
            let mut object = JsonObject::new();
            object.text("name", one.key.as_str());
            object.flag("ok", !has_errors(issues));
            let list: Vec<String> = issues.iter().map(issue_object).collect();
            object.raw("issues", &format!("[{}]", list.join(",")));
            object.end()
        })
        .collect();
    document.raw("servers", &format!("[{}]", servers.join(",")));
    format!("{}\n", document.end())
}

fn text(checked: &Checked<'_>) -> String {
    let mut text = String::new();
    for (one, issues) in checked {
        let verdict = match has_errors(issues) {
            true => "has errors",
            false => "ok",
        };
        text.push_str(&format!("- {}: {verdict}\n", servers::shown(&one.key)));
        for issue in issues {
            text.push_str(&format!("  {}: {}\n", issue.level.as_str(), issue.message));
        }
    }
    text
}

fn issue_object(issue: &Issue) -> String {
    let mut object = JsonObject::new();
    object.text("level", issue.level.as_str());
    object.text("message", &issue.message);
    object.end()
}

/// Everything that is known to be wrong with a server without connecting to it. `raw` is its entry.
fn issues_of(one: &Configured, raw: Option<&str>) -> Vec<Issue> {
    let mut issues = one.issues.clone();
    issues.extend(raw.map(literal_secrets).unwrap_or_default());
    if !one.enabled {
        issues.push(warning("disabled".to_owned()));
    }
    match &one.outcome {
        Ok(config) => {
            let filters = raw.is_some_and(|raw| member(raw, "toolFilter").is_some());
            if filters && config.filter == ToolFilter::default() {
                let what = "toolFilter has neither include nor exclude and hides nothing";
                issues.push(warning(what.to_owned()));
            }
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
                check_http(http, &mut issues);
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
    // Worst first.
    issues.sort_by_key(|issue| std::cmp::Reverse(issue.level));
    issues
}

fn check_http(http: &HttpTransport, issues: &mut Vec<Issue>) {
    if http.tls.insecure {
        let what = "sslVerify is off: any certificate is taken";
        issues.push(warning(what.to_owned()));
    }
    let client = http.tls.client.iter().flat_map(|(cert, key)| [cert, key]);
    for file in http.tls.ca_file.iter().chain(client) {
        if !file.is_file() {
            let shown = file.display().to_string();
            issues.push(error(format!("{} is no file", Quoted(&shown))));
        }
    }
    if http.oauth.is_some() {
        let what = "auth is oauth, and nobody has signed in: calls will need authorization";
        issues.push(warning(what.to_owned()));
        let is_authorization = |name: &str| name.eq_ignore_ascii_case("authorization");
        if http.headers.iter().any(|(name, _)| is_authorization(name)) {
            let what = "headers.Authorization stands beside auth oauth: remove one of them";
            issues.push(warning(what.to_owned()));
        }
    }
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

/// Those that can be connected to.
fn sound(checked: &Checked<'_>) -> Vec<ServerConfig> {
    checked
        .iter()
        .filter(|(one, issues)| one.enabled && !has_errors(issues))
        .filter_map(|(one, _)| one.outcome.as_ref().ok().cloned())
        .collect()
}

/// What came of connecting, as far as something is wrong.
fn add_findings(checked: &mut Checked<'_>, session: &Session) {
    let found = session.diagnostics.iter();
    for diagnostic in found.filter(|one| one.level != Level::Info) {
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
