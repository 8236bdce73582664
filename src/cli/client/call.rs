//! `drawspan call TARGET TOOL [K=V]…`: one tool call.

use super::super::{CommandResult, Exit, Failure, print};
use super::session::Session;
use super::{CallArgs, arguments, render, servers};
use crate::manager::Prefix;
use crate::protocol::message::member;

pub(super) fn run(mut args: CallArgs) -> CommandResult {
    let (server, limits) = servers::target(&args.target, &mut args.words)?;
    let (tool, pairs) = arguments::first(&args.words, "TOOL")?;
    let mut session = Session::new(vec![server], &limits, Prefix::Never, true)?;
    let outcome = call(&mut session, tool, pairs, args.args.as_deref(), &limits);
    // The caller has the result before the server is made to end.
    let printed = outcome.and_then(|result| {
        let failed = member(&result, "isError") == Some("true");
        match args.json {
            true => print(&format!("{result}\n"))?,
            false => print(&render::result(&result))?,
        };
        Ok(if failed { Exit::ToolError } else { Exit::Ok })
    });
    session.end();
    printed
}

fn call(
    session: &mut Session,
    tool: &str,
    pairs: &[String],
    whole: Option<&str>,
    limits: &crate::limits::Limits,
) -> Result<Box<str>, Failure> {
    // What a word means depends on the tool's schema.
    session.connect()?;
    let catalog = session.manager().catalog(session.runtime());
    let found = catalog.and_then(|catalog| catalog.find(tool));
    let schema = found.map(|found| found.tool.input_schema());
    let arguments = arguments::of_call(whole, pairs, schema, limits)?;
    session.call(tool, arguments)
}
