//! `drawspan prompt TARGET NAME [K=V]…`: one prompt, filled in.

use super::super::{CommandResult, print};
use super::session::Session;
use super::{PromptArgs, arguments, render, servers};
use crate::codec::json_object::JsonObject;

pub(super) fn run(mut args: PromptArgs) -> CommandResult {
    let chosen = servers::target(&args.target, &mut args.words)?;
    let (name, pairs) = arguments::first(&args.words, "NAME")?;
    let key = chosen.server.key.clone();
    let mut params = JsonObject::new();
    params.text("name", name);
    if !pairs.is_empty() {
        // Arguments of prompts are strings. Spec: 2025-11-25 server/prompts.
        let mut named: Vec<(&str, &str)> = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let (name, value) = arguments::pair(pair)?;
            named.retain(|(other, _)| *other != name);
            named.push((name, value));
        }
        let mut given = JsonObject::new();
        for (name, value) in named {
            given.text(name, value);
        }
        params.raw("arguments", &given.end());
    }
    let mut session = Session::with_one(chosen, true)?;
    let outcome = session.request(&key, "prompts/get", Some(&params.end()));
    let printed = outcome.and_then(|result| match args.json {
        true => print(&format!("{result}\n")),
        false => print(&render::prompt(&result)),
    });
    session.end(printed)
}
