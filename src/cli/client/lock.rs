//! `drawspan lock`: writes down what the tools of servers say of themselves, or compares.

use std::collections::BTreeSet;

use super::super::connection::settings;
use super::super::lock_file::{self, NAME, label};
use super::super::upstreams::chosen;
use super::super::{CommandResult, Exit, Failure, print, say};
use super::session::Session;
use super::{LockArgs, servers};
use crate::codec::json_object::JsonObject;
use crate::manager::Prefix;
use crate::manager::lock::{Drift, Lock};
use crate::manager::server_config::ServerKey;

/// One difference, and of which server.
type Found = (ServerKey, Drift);

pub(super) fn run(args: &LockArgs) -> CommandResult {
    let settings = settings(args.target.config.as_deref())?;
    let path = args.file.clone().or(settings.lock.file);
    let path = path.or(settings.lock.beside).unwrap_or_else(|| NAME.into());
    let (servers, all) = chosen(&args.words, &args.target)?;
    if servers.is_empty() {
        let message = "no server to lock: none is configured, and no TARGET is given";
        return Err(Failure::new(Exit::Usage, message));
    }
    let before = match lock_file::read(&path) {
        Ok(lock) => Some(lock),
        Err(_) if !args.check && !path.exists() => None,
        Err(why) => return Err(Failure::new(Exit::Failed, why)),
    };
    let keys: Vec<ServerKey> = servers.iter().map(|server| server.key.clone()).collect();
    let mut session = Session::new(servers, &settings.limits, Prefix::Always, true)?;
    let outcome = compare_and_set(&mut session, &keys, before.as_ref());
    let done = outcome.and_then(|(found, mut lock)| {
        if args.check {
            return report(args, &found, None);
        }
        if all {
            lock.keep_only(&keys.iter().map(ServerKey::as_str).collect::<BTreeSet<_>>());
        }
        lock_file::write(&path, &lock)?;
        let found = if before.is_some() { found } else { Vec::new() };
        let (servers, tools) = lock.count();
        let line = format!("{}: {servers} servers, {tools} tools", label(&path));
        report(args, &found, Some(&line))
    });
    session.end(done)
}

/// What has changed since `before`, and the lock of what there is now.
fn compare_and_set(
    session: &mut Session,
    keys: &[ServerKey],
    before: Option<&Lock>,
) -> Result<(Vec<Found>, Lock), Failure> {
    session.connect()?;
    let mut lock = before.cloned().unwrap_or_default();
    let mut found = Vec::new();
    for key in keys {
        // A server that is not there may have changed: nothing is written then.
        if let Some(error) = session.failure_of(key) {
            return Err(Failure::upstream(error));
        }
        let drifts = before.map(|before| before.compare(key, session.tools_of(key), |_| true));
        let drifts = drifts.into_iter().flatten();
        found.extend(drifts.map(|drift| (key.clone(), drift)));
        lock.set(key, session.tools_of(key));
    }
    Ok((found, lock))
}

/// Says what has changed, and what was written.
fn report(args: &LockArgs, found: &[Found], written: Option<&str>) -> CommandResult {
    if args.json {
        print(&document(found))?;
    } else {
        let mut text = String::new();
        for (key, drift) in found {
            text.push_str(&format!("{}: {drift}\n", servers::shown(key)));
        }
        if let Some(written) = written {
            text.push_str(&format!("written {written}\n"));
        }
        print(&text)?;
    }
    match (written, found.len()) {
        (Some(_), _) | (None, 0) => Ok(Exit::Ok),
        (None, count) => {
            if !args.json {
                let things = if count == 1 {
                    "difference"
                } else {
                    "differences"
                };
                say(&format!(
                    "error: {count} {things} from the lock file; `drawspan lock` locks what is there now"
                ));
            }
            Ok(Exit::Protocol)
        }
    }
}

fn document(found: &[Found]) -> String {
    let one = |(key, drift): &Found| {
        let mut object = JsonObject::new();
        object.text("server", key.as_str());
        object.maybe_text("tool", drift.tool());
        object.text("what", drift.kind());
        let parts: Vec<String> = drift
            .parts()
            .iter()
            .map(|part| format!("\"{part}\""))
            .collect();
        object.raw("parts", &format!("[{}]", parts.join(",")));
        object.text("message", &drift.to_string());
        object.end()
    };
    let all: Vec<String> = found.iter().map(one).collect();
    let mut document = JsonObject::new();
    document.flag("ok", found.is_empty());
    document.raw("drift", &format!("[{}]", all.join(",")));
    format!("{}\n", document.end())
}
