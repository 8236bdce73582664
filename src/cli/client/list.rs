//! `drawspan list TARGET`: what one server offers.

use super::super::{CommandResult, Failure, print};
use super::session::Session;
use super::{ListArgs, render, servers};
use crate::codec::json_object::JsonObject;
use crate::codec::scan::elements;
use crate::manager::Prefix;
use crate::manager::catalog::PagedList;
use crate::manager::server_config::ServerKey;

pub(super) fn run(mut args: ListArgs) -> CommandResult {
    let (server, limits) = servers::target(&args.target, &mut args.words)?;
    super::arguments::exactly(&args.words, [])?;
    let key = server.key.clone();
    let mut session = Session::new(vec![server], &limits, Prefix::Never, !args.json)?;
    let (name, list) = match (args.resources, args.prompts) {
        (true, _) => ("resources", PagedList::Resources),
        (_, true) => ("prompts", PagedList::Prompts),
        (false, false) => ("tools", PagedList::Tools),
    };
    let outcome = entries(&mut session, &key, list);
    let printed = outcome.and_then(|entries| match args.json {
        true => print(&document(&session, &key, name, &entries)),
        false => print(&text(&entries)),
    });
    session.end();
    printed
}

/// The entries of a list: name, and the entry as raw JSON.
fn entries(
    session: &mut Session,
    key: &ServerKey,
    list: PagedList,
) -> Result<Vec<(String, String)>, Failure> {
    session.connect()?;
    if let Some(error) = session.failure_of(key) {
        return Err(Failure::upstream(error));
    }
    if list == PagedList::Tools {
        session.check_schemas();
        return Ok(session
            .tools_of(key)
            .map(|tool| (tool.name().to_owned(), tool.raw().to_owned()))
            .collect());
    }
    let array = session.list(key, list)?;
    Ok(elements(&array)
        .map(|raw| {
            (
                render::text(raw, "name").unwrap_or_default(),
                raw.to_owned(),
            )
        })
        .collect())
}

fn document(
    session: &Session,
    key: &ServerKey,
    name: &str,
    entries: &[(String, String)],
) -> String {
    let mut document = JsonObject::new();
    document.text("server", key.as_str());
    let facts = session.manager().facts(session.runtime(), key);
    document.maybe_text(
        "protocolVersion",
        facts.map(|facts| facts.revision.as_str()),
    );
    let raw: Vec<&str> = entries.iter().map(|(_, raw)| raw.as_str()).collect();
    document.raw(name, &format!("[{}]", raw.join(",")));
    let said: Vec<String> = session
        .diagnostics
        .iter()
        .map(|one| one.to_json())
        .collect();
    document.raw("diagnostics", &format!("[{}]", said.join(",")));
    format!("{}\n", document.end())
}

fn text(entries: &[(String, String)]) -> String {
    entries
        .iter()
        .map(|(name, raw)| render::entry(name, raw))
        .collect()
}
