//! `drawspan read TARGET URI`: one resource.

use super::super::{CommandResult, print};
use super::session::Session;
use super::{ReadArgs, render, servers};
use crate::codec::json_object::JsonObject;

pub(super) fn run(mut args: ReadArgs) -> CommandResult {
    let chosen = servers::target(&args.target, &mut args.words)?;
    let [uri] = super::arguments::exactly(&args.words, ["URI"])?;
    let key = chosen.server.key.clone();
    let mut session = Session::with_one(chosen, true)?;
    let mut params = JsonObject::new();
    params.text("uri", uri);
    let outcome = session.request(&key, "resources/read", Some(&params.end()));
    let printed = outcome.and_then(|result| match args.json {
        true => print(&format!("{result}\n")),
        false => print(&render::resource(&result)),
    });
    session.end(printed)
}
