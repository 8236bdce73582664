//! `drawspan call TARGET TOOL [K=V]…`: one tool call.

use super::super::{CommandResult, Exit, Failure, print};
use super::arguments::Given;
use super::session::Session;
use super::{CallArgs, arguments, render, servers};
use crate::codec::shared_text::SharedText;
use crate::limits::Limits;
use crate::manager::error::{FailureKind, Phase, UpstreamError};
use crate::manager::server_config::ServerKey;
use crate::protocol::message::member;
use crate::secret::Quoted;

/// Tools that are named where one was asked for that is not there.
const NAMED_MAX: usize = 12;

pub(super) fn run(mut args: CallArgs) -> CommandResult {
    let chosen = servers::target(&args.target, &mut args.words)?;
    let (tool, pairs) = arguments::first(&args.words, "TOOL")?;
    let given = Given::read(args.args.as_deref(), pairs, &chosen.limits)?;
    let (key, limits) = (chosen.server.key.clone(), chosen.limits.clone());
    let mut session = Session::with_one(chosen, true)?;
    let outcome = call(&mut session, &key, tool, &given, &limits);
    // The caller has the result before the server is made to end.
    let printed = outcome.and_then(|result| {
        let failed = member(&result, "isError") == Some("true");
        match args.json {
            true => print(&format!("{result}\n"))?,
            false => print(&render::result(&result))?,
        };
        Ok(if failed { Exit::ToolError } else { Exit::Ok })
    });
    session.end(printed)
}

fn call(
    session: &mut Session,
    key: &ServerKey,
    tool: &str,
    given: &Given,
    limits: &Limits,
) -> Result<SharedText, Failure> {
    // What a word means depends on the tool's schema.
    session.connect()?;
    let catalog = session.manager().catalog(session.runtime());
    let found = catalog.and_then(|catalog| catalog.find(tool));
    let Some(found) = found else {
        let failure = session.failure_of(key);
        let error = failure.unwrap_or_else(|| unknown(session, key, tool));
        return Err(Failure::upstream(error));
    };
    let arguments = given.object(Some(found.tool.input_schema()), limits);
    session.call(tool, arguments)
}

fn unknown(session: &Session, key: &ServerKey, tool: &str) -> UpstreamError {
    let mut message = format!(
        "server {}: unknown tool {}",
        servers::shown(key),
        Quoted(tool)
    );
    let names: Vec<String> = session
        .tools_of(key)
        .map(|tool| Quoted(tool.name()).to_string())
        .collect();
    let shown = names.len().min(NAMED_MAX);
    message.push_str(match shown {
        0 => "; it offers none",
        _ => "; it offers ",
    });
    message.push_str(&names[..shown].join(", "));
    if names.len() > shown {
        message.push_str(&format!(" and {} more", names.len() - shown));
    }
    let mut error = UpstreamError::new(key, Phase::Call, FailureKind::Arguments, message);
    error.facts.never_ran = true;
    error
}
