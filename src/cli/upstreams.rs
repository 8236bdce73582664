//! The upstream servers and the commands that `drawspan serve` offers: named on the command line or configured,
//! and read again when the configuration changes.

use std::path::{Path, PathBuf};

use super::client::servers::{Servers, reasons, shown, target};
use super::client::{SourceArgs, TargetArgs};
use super::{Exit, Failure, ServeArgs, say};
use crate::config::{Config, ConfigError};
use crate::manager::entry::{Configured, ConfiguredPlugin, PluginTool};
use crate::manager::server_config::ServerConfig;
use crate::secret::Quoted;

/// What to offer.
pub(super) struct Upstreams {
    pub(super) servers: Vec<ServerConfig>,
    /// `pluginTools`. They are offered where the configured servers are.
    pub(super) plugins: Vec<PluginTool>,
    /// The file they came from, when all of it is served: it is read again when it changes.
    pub(super) file: Option<PathBuf>,
}

/// Which servers a command line asks for. Design: without TARGET and `--gateway` all that are configured;
/// beside `--gateway` those of an explicit `--config`.
///
/// # Errors
/// When a target or the configuration cannot be used.
pub(super) fn find(args: &ServeArgs) -> Result<Upstreams, Failure> {
    if is_named(&args.targets, &args.target) {
        return Ok(Upstreams {
            servers: named(args.targets.clone(), &args.target)?,
            plugins: Vec::new(),
            file: None,
        });
    }
    if args.gateway.is_some() && args.target.config.is_none() && args.target.import.is_none() {
        return Ok(Upstreams {
            servers: Vec::new(),
            plugins: Vec::new(),
            file: None,
        });
    }
    let found = Servers::read(&SourceArgs {
        config: args.target.config.clone(),
        import: args.target.import,
    })?;
    // A file that names neither is one for the Gateway: its limits and hooks are read elsewhere.
    let offers = !found.map.servers.is_empty() || !found.plugins.is_empty();
    let is_ours = args.target.import.is_none() && offers;
    let file = found.map.path.clone().filter(|_| is_ours);
    Ok(Upstreams {
        servers: usable(found.configured),
        plugins: usable_plugins(found.plugins),
        file,
    })
}

fn is_named(words: &[String], args: &TargetArgs) -> bool {
    !words.is_empty() || !args.command.is_empty()
}

/// The servers that a command line names.
fn named(mut words: Vec<String>, args: &TargetArgs) -> Result<Vec<ServerConfig>, Failure> {
    let mut servers = Vec::new();
    if !args.command.is_empty() {
        servers.push(target(args, &mut Vec::new())?.said());
    }
    let named = args.without_command();
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
    Ok(servers)
}

/// The servers that a command line names; all that are configured and can be used, where it names none.
/// Says whether it is all of them.
///
/// # Errors
/// As [`find`].
pub(super) fn chosen(
    words: &[String],
    args: &TargetArgs,
) -> Result<(Vec<ServerConfig>, bool), Failure> {
    if is_named(words, args) {
        return Ok((named(words.to_vec(), args)?, false));
    }
    let found = Servers::read(&SourceArgs {
        config: args.config.clone(),
        import: args.import,
    })?;
    Ok((usable(found.configured), true))
}

/// What a configuration says that was read again.
///
/// # Errors
/// As [`Servers::of`].
pub(super) fn of(config: Config) -> Result<(Vec<ServerConfig>, Vec<PluginTool>), ConfigError> {
    let found = Servers::of(config)?;
    Ok((usable(found.configured), usable_plugins(found.plugins)))
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

/// The commands that can be offered; one that cannot is said in one line, and what of others has no effect.
fn usable_plugins(plugins: Vec<ConfiguredPlugin>) -> Vec<PluginTool> {
    let mut tools = Vec::new();
    for one in plugins.into_iter().filter(|one| one.enabled) {
        let name = Quoted(&one.name);
        match one.outcome {
            Ok(tool) => {
                for issue in &one.issues {
                    say(&format!("warning: plugin tool {name}: {}", issue.message));
                }
                tools.push(tool);
            }
            Err(why) => say(&format!(
                "warning: plugin tool {name} is left out: {}",
                reasons(&why)
            )),
        }
    }
    tools
}

/// The file's name for a message.
pub(super) fn label(file: &Path) -> String {
    Quoted(&file.display().to_string()).to_string()
}
