//! `drawspan prompt TARGET NAME [K=V]…`: one prompt, filled in.

use super::super::{CommandResult, Exit, print};
use super::session::Session;
use super::{PromptArgs, arguments, render, servers};
use crate::codec::json_object::JsonObject;
use crate::manager::Prefix;

pub(super) fn run(mut args: PromptArgs) -> CommandResult {
    let (server, limits) = servers::target(&args.target, &mut args.words)?;
    let (name, pairs) = arguments::first(&args.words, "NAME")?;
    let key = server.key.clone();
    let mut params = JsonObject::new();
    params.text("name", name);
    if !pairs.is_empty() {
        // Arguments of prompts are strings. Spec: 2025-11-25 server/prompts.
        let mut given = JsonObject::new();
        for pair in pairs {
            let (name, value) = arguments::pair(pair)?;
            given.text(name, value);
        }
        params.raw("arguments", &given.end());
    }
    let mut session = Session::new(vec![server], &limits, Prefix::Never, true)?;
    let outcome = session.request(&key, "prompts/get", Some(&params.end()));
    let printed = outcome.and_then(|result| match args.json {
        true => print(&format!("{result}\n")),
        false => print(&render::prompt(&result)),
    });
    session.end();
    printed.map(|_| Exit::Ok)
}
