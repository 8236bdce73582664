//! `drawspan list TARGET`: what one server offers.

use super::super::{CommandResult, Failure, print};
use super::session::Session;
use super::{ListArgs, render, servers};
use crate::codec::json_object::JsonObject;
use crate::codec::scan::elements;
use crate::diagnostic::Level;
use crate::manager::catalog::PagedList;
use crate::manager::diagnostic::ServerDiagnostic;
use crate::manager::error::Phase;
use crate::manager::server_config::ServerKey;
use crate::protocol::client::peer::ListKind;

/// What was listed: the member's name in JSON, and the server's objects.
type Part = (&'static str, Vec<String>);

pub(super) fn run(mut args: ListArgs) -> CommandResult {
    let chosen = servers::target(&args.target, &mut args.words)?;
    super::arguments::exactly(&args.words, [])?;
    let key = chosen.server.key.clone();
    let mut session = Session::with_one(chosen, !args.json)?;
    let outcome = parts(&mut session, &key, &args);
    let printed = outcome.and_then(|parts| match args.json {
        true => print(&document(&session, &key, &parts)),
        false => print(&text(&parts)),
    });
    session.end(printed)
}

/// The lists asked for. A list the server says it does not have is empty, without asking.
fn parts(session: &mut Session, key: &ServerKey, args: &ListArgs) -> Result<Vec<Part>, Failure> {
    session.connect()?;
    if let Some(error) = session.failure_of(key) {
        return Err(Failure::upstream(error));
    }
    let has = |session: &Session, list| {
        let facts = session.manager().facts(session.runtime(), key);
        facts.is_some_and(|facts| facts.has(list))
    };
    if args.resources {
        if !has(session, ListKind::Resources) {
            return Ok(vec![none(session, key, "resources")]);
        }
        let resources = session.list(key, PagedList::Resources)?;
        let mut parts = vec![("resources", owned(&resources))];
        let templates = templates(session, key)?;
        if !templates.is_empty() {
            parts.push(("resourceTemplates", templates));
        }
        return Ok(parts);
    }
    if args.prompts {
        if !has(session, ListKind::Prompts) {
            return Ok(vec![none(session, key, "prompts")]);
        }
        let prompts = session.list(key, PagedList::Prompts)?;
        return Ok(vec![("prompts", owned(&prompts))]);
    }
    if !has(session, ListKind::Tools) {
        return Ok(vec![none(session, key, "tools")]);
    }
    session.check_schemas();
    let tools = session.tools_of(key).map(|tool| tool.raw().to_owned());
    Ok(vec![("tools", tools.collect())])
}

/// The templates of a server with resources. One that does not know the method has none.
fn templates(session: &mut Session, key: &ServerKey) -> Result<Vec<String>, Failure> {
    match session.list(key, PagedList::ResourceTemplates) {
        Ok(array) => Ok(owned(&array)),
        Err(failure) if failure.is_unknown_method() => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

/// An empty list, and a word on why it is empty.
fn none(session: &mut Session, key: &ServerKey, name: &'static str) -> Part {
    let message = format!("server {} says that it has no {name}", servers::shown(key));
    session.note(ServerDiagnostic::new(
        key,
        Phase::List,
        Level::Info,
        message,
    ));
    (name, Vec::new())
}

fn owned(array: &str) -> Vec<String> {
    elements(array).map(str::to_owned).collect()
}

fn document(session: &Session, key: &ServerKey, parts: &[Part]) -> String {
    let mut document = JsonObject::new();
    document.text("server", key.as_str());
    let facts = session.manager().facts(session.runtime(), key);
    document.maybe_text(
        "protocolVersion",
        facts.map(|facts| facts.revision.as_str()),
    );
    for (name, entries) in parts {
        document.raw(name, &format!("[{}]", entries.join(",")));
    }
    let said: Vec<String> = session
        .diagnostics
        .iter()
        .map(|one| one.to_json())
        .collect();
    document.raw("diagnostics", &format!("[{}]", said.join(",")));
    format!("{}\n", document.end())
}

fn text(parts: &[Part]) -> String {
    let entries = parts.iter().flat_map(|(_, entries)| entries);
    entries.map(|raw| render::entry(raw)).collect()
}
