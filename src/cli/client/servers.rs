//! The servers a command is about: read from the configuration or the command line, and checked.

use std::time::Duration;

use super::super::{Exit, Failure, say};
use super::SourceArgs;
use super::target::{TargetArgs, Word};
use crate::config::{self, Config, ServerMap, find_config};
use crate::diagnostic::Level;
use crate::limits::Limits;
use crate::manager::entry::{Configured, Target, ad_hoc, read_servers};
use crate::manager::server_config::{ServerConfig, ServerKey};
use crate::secret::Quoted;

/// What the configuration says, with the limits it sets.
#[derive(Default)]
pub(in crate::cli) struct Servers {
    pub(in crate::cli) map: ServerMap,
    pub(in crate::cli) limits: Limits,
    pub(in crate::cli) configured: Vec<Configured>,
}

impl Servers {
    /// Reads the configuration; none at all is an empty one.
    ///
    /// # Errors
    /// When a file cannot be read or is no configuration.
    pub(in crate::cli) fn read(source: &SourceArgs) -> Result<Self, Failure> {
        let usage = |error: String| Failure::new(Exit::Usage, error);
        let env = config::environment();
        let mut limits = Limits::default();
        let map = match source.import {
            Some(program) => {
                let here = std::env::current_dir()
                    .map_err(|error| usage(format!("no current directory: {error}")))?;
                config::import::import(program, &env, &here)
                    .map_err(|error| usage(error.to_string()))?
            }
            None => match find_config(source.config.as_deref()) {
                Some(path) => {
                    let shown = path.display().to_string();
                    let named = |error| usage(format!("configuration {} {error}", Quoted(&shown)));
                    let config = Config::read(&path).map_err(named)?;
                    config.apply_limits(&mut limits).map_err(named)?;
                    config.servers
                }
                None => ServerMap::default(),
            },
        };
        for note in &map.notes {
            say(&format!("warning: {note}"));
        }
        if let Some(ttl) = map.runtime_idle_ttl {
            // Never is a time that does not come.
            limits.runtime_idle_ttl = ttl.unwrap_or(Duration::from_secs(u64::from(u32::MAX)));
        }
        let configured = read_servers(&map.servers, &env, &limits);
        Ok(Self {
            map,
            limits,
            configured,
        })
    }

    /// The record of a name.
    ///
    /// # Errors
    /// When there is none: usage, with what to do next.
    pub(in crate::cli) fn named(&self, name: &str) -> Result<&Configured, Failure> {
        self.configured
            .iter()
            .find(|one| one.key.as_str() == name)
            .ok_or_else(|| {
                let place = match &self.map.path {
                    Some(path) => format!("in {}", Quoted(&path.display().to_string())),
                    None => "and there is no configuration here".to_owned(),
                };
                Failure::new(
                    Exit::Usage,
                    format!(
                        "no server is called {} {place}; `drawspan status` lists those there are",
                        Quoted(name)
                    ),
                )
            })
    }
}

/// The one server of a TARGET, ready to be connected to, and the limits in force. Warnings about its record
/// are said.
///
/// # Errors
/// When there is no such server, or its record cannot be used.
pub(in crate::cli) fn target(
    args: &TargetArgs,
    words: &mut Vec<String>,
) -> Result<(ServerConfig, Limits), Failure> {
    let word = args.take(words)?;
    let source = SourceArgs {
        config: args.config.clone(),
        import: args.import,
    };
    // A server on the command line needs no file, but the limits of one that was named hold.
    let needs_file = matches!(word, Word::Name(_)) || source.config.is_some();
    let servers = match needs_file {
        true => Servers::read(&source)?,
        false => Servers::default(),
    };
    let target = match word {
        Word::Target(target) => target,
        Word::Name(key) => {
            servers.named(&key)?;
            let found = servers.map.servers.iter().find(|(name, _)| *name == key);
            let raw = found.map_or_else(String::new, |(_, raw)| raw.clone());
            Target::Entry { key, raw }
        }
    };
    let configured = ad_hoc(
        &args.with_options(target),
        &config::environment(),
        &servers.limits,
    );
    Ok((usable(configured)?, servers.limits))
}

/// The server of a record; its warnings are said.
///
/// # Errors
/// When it is disabled, or what keeps the record from being used.
pub(in crate::cli) fn usable(one: Configured) -> Result<ServerConfig, Failure> {
    let Configured {
        key,
        enabled,
        outcome,
        issues,
    } = one;
    for issue in &issues {
        say(&format!("{}: {}", issue.level.as_str(), issue.message));
    }
    if !enabled {
        let message = format!("server {} is disabled in the configuration", shown(&key));
        return Err(Failure::new(Exit::Failed, message));
    }
    outcome.map_err(|problems| {
        let lines: Vec<_> = problems
            .iter()
            .filter(|issue| issue.level == Level::Error)
            .map(|issue| issue.message.as_str())
            .collect();
        Failure::new(
            Exit::Failed,
            format!("server {}: {}", shown(&key), lines.join("; ")),
        )
    })
}

/// A server's name for a message.
pub(in crate::cli) fn shown(key: &ServerKey) -> String {
    Quoted(key.as_str()).to_string()
}
