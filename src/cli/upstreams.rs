//! The upstream servers of `drawspan serve`: named on the command line or configured, and read again when the
//! configuration changes.

use std::path::{Path, PathBuf};

use super::client::SourceArgs;
use super::client::servers::{Servers, shown, target};
use super::{Exit, Failure, ServeArgs, say};
use crate::manager::entry::Configured;
use crate::manager::server_config::ServerConfig;
use crate::secret::Quoted;

/// The servers to offer.
pub(super) struct Upstreams {
    pub(super) servers: Vec<ServerConfig>,
    /// The file they came from, when all of it is served: it is read again when it changes.
    pub(super) file: Option<PathBuf>,
}

/// Which servers a command line asks for. Design: without TARGET and `--gateway` all that are configured;
/// beside `--gateway` those of an explicit `--config`.
///
/// # Errors
/// When a target or the configuration cannot be used.
pub(super) fn find(args: &ServeArgs) -> Result<Upstreams, Failure> {
    let mut words = args.targets.clone();
    if !words.is_empty() || !args.target.command.is_empty() {
        let mut servers = Vec::new();
        if !args.target.command.is_empty() {
            servers.push(target(&args.target, &mut Vec::new())?.said());
        }
        let named = args.target.without_command();
        while !words.is_empty() {
            servers.push(target(&named, &mut words)?.said());
        }
        let mut keys: Vec<_> = servers.iter().map(|server| server.key.clone()).collect();
        keys.sort();
        if let Some(twice) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!(
                "two targets are called {}; give one a name in a configuration",
                shown(&twice[0])
            );
            return Err(Failure::new(Exit::Usage, message));
        }
        return Ok(Upstreams {
            servers,
            file: None,
        });
    }
    if args.gateway.is_some() && args.target.config.is_none() && args.target.import.is_none() {
        return Ok(Upstreams {
            servers: Vec::new(),
            file: None,
        });
    }
    let found = Servers::read(&SourceArgs {
        config: args.target.config.clone(),
        import: args.target.import,
    })?;
    // A file that names no server is one for the Gateway: its limits and hooks are read elsewhere.
    let is_ours = args.target.import.is_none() && !found.map.servers.is_empty();
    let file = found.map.path.clone().filter(|_| is_ours);
    let servers = usable(found.configured);
    Ok(Upstreams { servers, file })
}

/// What the file says now.
///
/// # Errors
/// Why it cannot be used, in one line: what was in force stays so.
pub(super) fn read_again(file: &Path) -> Result<Vec<ServerConfig>, String> {
    let source = SourceArgs {
        config: Some(file.to_owned()),
        import: None,
    };
    match Servers::read(&source) {
        Ok(found) => Ok(usable(found.configured)),
        Err(failure) => Err(format!(
            "{}; the servers of before are still served",
            failure.message
        )),
    }
}

/// Those that can be served; what is wrong with the others is said.
fn usable(configured: Vec<Configured>) -> Vec<ServerConfig> {
    let mut servers = Vec::new();
    for one in configured {
        let name = shown(&one.key);
        let problems = one.outcome.as_ref().err().into_iter().flatten();
        if one.enabled {
            for issue in one.issues.iter().chain(problems) {
                say(&format!(
                    "{}: server {name}: {}",
                    issue.level.as_str(),
                    issue.message
                ));
            }
        }
        match one.outcome {
            Ok(config) if one.enabled => servers.push(config),
            Ok(_) | Err(_) => {}
        }
    }
    servers
}

/// The file's name for a message.
pub(super) fn label(file: &Path) -> String {
    Quoted(&file.display().to_string()).to_string()
}
