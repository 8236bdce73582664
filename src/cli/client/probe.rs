//! `drawspan probe [NAME…]`: connects to servers, side by side, and says how each is doing.

use std::collections::BTreeMap;

use super::super::{CommandResult, Exit, Failure, print, say};
use super::servers::{Chosen, Servers};
use super::session::Session;
use super::target::is_url;
use super::{ProbeArgs, exit_of, render, servers, status};
use crate::codec::json_object::JsonObject;
use crate::limits::Limits;
use crate::manager::Prefix;
use crate::manager::diagnostic::ServerDiagnostic;
use crate::manager::entry::Issue;
use crate::manager::error::FailureKind;
use crate::manager::server_config::{ServerConfig, ServerKey};
use crate::protocol::message::member;

/// A server that was asked for: one to connect to, or what is said of it at once.
enum Asked {
    Live(ServerConfig),
    Disabled(Option<ServerConfig>),
    Unusable(Vec<Issue>),
}

impl Asked {
    const fn config(&self) -> Option<&ServerConfig> {
        match self {
            Self::Live(config) | Self::Disabled(Some(config)) => Some(config),
            Self::Disabled(None) | Self::Unusable(_) => None,
        }
    }
}

/// What a command line asks for.
struct Wanted {
    asked: BTreeMap<ServerKey, Asked>,
    /// One server was named: its exit code is the command's.
    one: bool,
    limits: Limits,
    /// What is wrong with records.
    remarks: Vec<ServerDiagnostic>,
}

pub(super) fn run(args: ProbeArgs) -> CommandResult {
    let Wanted {
        asked,
        one,
        limits,
        remarks,
    } = wanted(&args)?;
    let live = asked.values().filter_map(|one| match one {
        Asked::Live(config) => Some(config.clone()),
        Asked::Disabled(_) | Asked::Unusable(_) => None,
    });
    let mut session = Session::new(live.collect(), &limits, Prefix::Always, false)?;
    remarks.into_iter().for_each(|remark| session.note(remark));
    let outcome = session.connect();
    session.check_schemas();
    let printed = outcome.and_then(|()| match args.json {
        true => print(&document(&session, &asked)),
        false => {
            session.say_remarks();
            print(&text(&session, &asked))
        }
    });
    let verdict = verdict(&session, &asked, one);
    session.end(printed.map(|_| verdict))
}

/// The servers asked for, in the order of their keys.
fn wanted(args: &ProbeArgs) -> Result<Wanted, Failure> {
    if !args.target.command.is_empty() || args.words.iter().any(|word| is_url(word)) {
        let mut words = args.words.clone();
        let chosen = servers::target(&args.target, &mut words)?;
        super::arguments::exactly(&words, [])?;
        let Chosen {
            server,
            limits,
            remarks,
        } = chosen;
        return Ok(Wanted {
            asked: BTreeMap::from([(server.key.clone(), Asked::Live(server))]),
            one: true,
            limits,
            remarks,
        });
    }
    let found = Servers::read(&args.target.source())?;
    for name in &args.words {
        found.named(name)?;
    }
    let (mut asked, mut remarks) = (BTreeMap::new(), Vec::new());
    for one in &found.configured {
        if !args.words.is_empty() && !args.words.iter().any(|name| name == one.key.as_str()) {
            continue;
        }
        let one = found.with_options(one, &args.target);
        remarks.extend(servers::remarks(&one));
        let how = match (one.outcome, one.enabled) {
            (outcome, false) => Asked::Disabled(outcome.ok()),
            (Ok(config), true) => Asked::Live(config),
            (Err(problems), true) => {
                let said = problems
                    .iter()
                    .map(|issue| servers::of_issue(&one.key, issue));
                remarks.extend(said);
                Asked::Unusable(problems)
            }
        };
        asked.insert(one.key, how);
    }
    if asked.is_empty() {
        say(status::NONE);
    }
    Ok(Wanted {
        one: !args.words.is_empty() && asked.len() == 1,
        asked,
        limits: found.limits,
        remarks,
    })
}

fn verdict(session: &Session, asked: &BTreeMap<ServerKey, Asked>, one: bool) -> Exit {
    let mut exit = Exit::Ok;
    for (key, how) in asked {
        let failed = match how {
            Asked::Live(_) => session.failure_of(key).map(|error| exit_of(&error)),
            Asked::Unusable(_) => Some(Exit::Failed),
            // Asked for by name, a disabled server is a failure: it cannot be used.
            Asked::Disabled(_) => one.then_some(Exit::Failed),
        };
        if let Some(code) = failed {
            exit = if one { code } else { Exit::Failed };
        }
    }
    exit
}

fn document(session: &Session, asked: &BTreeMap<ServerKey, Asked>) -> String {
    let mut document = JsonObject::new();
    let stamp = crate::clock::iso(session.now().unix_ms);
    document.text("generatedAt", &stamp);
    let mut servers = JsonObject::new();
    for (key, how) in asked {
        servers.raw(key.as_str(), &server(session, key, how));
    }
    document.raw("servers", &servers.end());
    let catalog = session.manager().catalog(session.runtime());
    let shown: Vec<String> = catalog
        .into_iter()
        .flat_map(|catalog| catalog.tools())
        .map(|(shown, _)| shown.to_owned())
        .collect();
    document.raw("tools", &status::array(&shown));
    let said = session.diagnostics.iter();
    let said: Vec<String> = said.map(ServerDiagnostic::to_json).collect();
    document.raw("diagnostics", &format!("[{}]", said.join(",")));
    format!("{}\n", document.end())
}

fn server(session: &Session, key: &ServerKey, how: &Asked) -> String {
    let mut object = JsonObject::new();
    let error = session.failure_of(key);
    let (ok, state) = match (how, &error) {
        (Asked::Disabled(_), _) => (false, "disabled"),
        (Asked::Live(_), None) => (true, "ready"),
        (Asked::Live(_), Some(error)) if error.kind == FailureKind::Authorization => {
            (false, "auth")
        }
        (Asked::Live(_), Some(_)) | (Asked::Unusable(_), _) => (false, "failed"),
    };
    object.flag("ok", ok);
    object.text("state", state);
    if let Some(config) = how.config() {
        object.text("launch", &config.launch);
        object.text("transport", status::transport_name(&config.transport));
    }
    let Asked::Live(config) = how else {
        object.number("tools", Some(0));
        return object.end();
    };
    let facts = session.manager().facts(session.runtime(), key);
    object.maybe_text(
        "protocolVersion",
        facts.map(|facts| facts.revision.as_str()),
    );
    let catalog = session.manager().catalog(session.runtime());
    let names: Vec<String> = session
        .tools_of(key)
        .map(|tool| tool.name().to_owned())
        .collect();
    object.count("tools", u64::try_from(names.len()).ok());
    object.raw("toolNames", &status::array(&names));
    let hidden = catalog.map_or(0, |catalog| catalog.filtered(key));
    object.count("filteredTools", u64::try_from(hidden).ok());
    let request = config.times.request.as_millis();
    object.count("requestTimeoutMs", u64::try_from(request).ok());
    if config.parallel {
        object.flag("supportsParallelToolCalls", true);
    }
    if let Some(capabilities) = facts.map(|facts| facts.capabilities.as_ref()) {
        let mut changed = JsonObject::new();
        for list in ["tools", "resources", "prompts"] {
            let capability = member(capabilities, list);
            if list != "tools" && capability.is_some() {
                object.flag(list, true);
            }
            if capability.and_then(|one| member(one, "listChanged")) == Some("true") {
                changed.flag(list, true);
            }
        }
        let changed = changed.end();
        if !render::is_empty(&changed) {
            object.raw("listChanged", &changed);
        }
    }
    object.end()
}

fn text(session: &Session, asked: &BTreeMap<ServerKey, Asked>) -> String {
    let mut text = String::new();
    for (key, how) in asked {
        let name = servers::shown(key);
        let line = match (how, session.failure_of(key)) {
            (Asked::Disabled(_), _) => format!("- {name}: disabled\n"),
            (Asked::Unusable(problems), _) => {
                format!("! {name}: {}\n", servers::reasons(problems))
            }
            (Asked::Live(_), Some(error)) => {
                let why = error.message.strip_prefix("server ");
                format!("! {}\n", why.unwrap_or(&error.message))
            }
            (Asked::Live(_), None) => {
                let facts = session.manager().facts(session.runtime(), key);
                let tools = session.tools_of(key).count();
                let offers =
                    |what| facts.is_some_and(|facts| member(&facts.capabilities, what).is_some());
                let mut line = format!("- {name}: {tools} tools");
                for what in ["resources", "prompts"] {
                    if offers(what) {
                        line.push_str(&format!(", {what}"));
                    }
                }
                let revision = facts.map_or("", |facts| facts.revision.as_str());
                format!("{line} ({revision})\n")
            }
        };
        text.push_str(&line);
    }
    text
}
