//! The servers a command is about: read from the configuration or the command line, and checked.

use std::time::Duration;

use super::super::{Exit, Failure, say};
use super::SourceArgs;
use super::target::{TargetArgs, Word};
use crate::config::{self, Config, ConfigError, ServerMap, find_config};
use crate::diagnostic::Level;
use crate::limits::Limits;
use crate::manager::diagnostic::ServerDiagnostic;
use crate::manager::entry::{
    Configured, ConfiguredPlugin, Issue, Target, ad_hoc, read_plugins, read_servers,
};
use crate::manager::error::{FailureKind, Phase, UpstreamError};
use crate::manager::server_config::{ServerConfig, ServerKey};
use crate::secret::Quoted;

/// What the configuration says, with the limits it sets.
#[derive(Default)]
pub(in crate::cli) struct Servers {
    pub(in crate::cli) map: ServerMap,
    pub(in crate::cli) limits: Limits,
    pub(in crate::cli) configured: Vec<Configured>,
    pub(in crate::cli) plugins: Vec<ConfiguredPlugin>,
}

impl Servers {
    /// Reads the configuration; none at all is an empty one.
    ///
    /// # Errors
    /// When a file cannot be read or is no configuration.
    pub(in crate::cli) fn read(source: &SourceArgs) -> Result<Self, Failure> {
        let usage = |error: String| Failure::new(Exit::Usage, error);
        if let Some(program) = source.import {
            let env = config::environment();
            let here = std::env::current_dir()
                .map_err(|error| usage(format!("no current directory: {error}")))?;
            let map = config::import::import(program, &env, &here)
                .map_err(|error| usage(error.to_string()))?;
            return Ok(Self::checked(map, Vec::new(), Limits::default()));
        }
        let Some(path) = find_config(source.config.as_deref()) else {
            let (map, limits) = (ServerMap::default(), Limits::default());
            return Ok(Self::checked(map, Vec::new(), limits));
        };
        Config::read(&path).and_then(Self::of).map_err(|error| {
            let shown = path.display().to_string();
            usage(format!("configuration {} {error}", Quoted(&shown)))
        })
    }

    /// Those of a configuration that was read.
    ///
    /// # Errors
    /// When one of its limits cannot be. The error does not name the file.
    pub(in crate::cli) fn of(config: Config) -> Result<Self, ConfigError> {
        let mut limits = Limits::default();
        config.apply_limits(&mut limits)?;
        let plugins = read_plugins(&config.plugins, &config::environment(), &limits);
        Ok(Self::checked(config.servers, plugins, limits))
    }

    fn checked(map: ServerMap, plugins: Vec<ConfiguredPlugin>, mut limits: Limits) -> Self {
        for note in &map.notes {
            say(&format!("warning: {note}"));
        }
        if let Some(ttl) = map.runtime_idle_ttl {
            // Never is a time that does not come.
            limits.runtime_idle_ttl = ttl.unwrap_or(Duration::from_secs(u64::from(u32::MAX)));
        }
        let configured = read_servers(&map.servers, &config::environment(), &limits);
        Self {
            map,
            limits,
            configured,
            plugins,
        }
    }

    /// A record with the options of the command line on top.
    pub(super) fn with_options(&self, one: &Configured, args: &TargetArgs) -> Configured {
        let found = self.raw(&one.key);
        match found.filter(|_| args.changes_entries()) {
            Some(raw) => {
                let key = one.key.as_str().to_owned();
                let raw = raw.to_owned();
                let spec = args.with_options(Target::Entry { key, raw });
                ad_hoc(&spec, &config::environment(), &self.limits)
            }
            None => one.clone(),
        }
    }

    /// The entry of a server as it stands in the file.
    pub(super) fn raw(&self, key: &ServerKey) -> Option<&str> {
        let entries = &self.map.servers;
        let found = entries.iter().find(|(name, _)| name == key.as_str());
        found.map(|(_, raw)| raw.as_str())
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

/// The one server of a TARGET, ready to be connected to.
#[derive(Debug)]
pub(in crate::cli) struct Chosen {
    pub(super) server: ServerConfig,
    /// The limits in force.
    pub(super) limits: Limits,
    /// What of its record has no effect.
    pub(super) remarks: Vec<ServerDiagnostic>,
}

impl Chosen {
    /// The server; what has no effect is said.
    pub(in crate::cli) fn said(self) -> ServerConfig {
        for remark in &self.remarks {
            say(&format!("{}: {}", remark.level.as_str(), remark.message));
        }
        self.server
    }
}

/// Takes the TARGET off the words of a command line and reads its record.
///
/// # Errors
/// When there is no such server, or its record cannot be used.
pub(in crate::cli) fn target(
    args: &TargetArgs,
    words: &mut Vec<String>,
) -> Result<Chosen, Failure> {
    let word = args.take(words)?;
    let source = args.source();
    // A server on the command line needs no file, but the limits of one that was named hold.
    let needs_file = matches!(word, Word::Name(_)) || source.config.is_some();
    let servers = match needs_file {
        true => Servers::read(&source)?,
        false => Servers::default(),
    };
    let (configured, here) = match word {
        Word::Target(target) => {
            let spec = args.with_options(target);
            let read = ad_hoc(&spec, &config::environment(), &servers.limits);
            (read, true)
        }
        Word::Name(name) => {
            let named = servers.named(&name)?;
            (servers.with_options(named, args), false)
        }
    };
    let remarks = remarks(&configured);
    let server = usable(configured).map_err(|failure| match here {
        // What is wrong stands on the command line.
        true => failure.with_exit(Exit::Usage),
        false => failure,
    })?;
    Ok(Chosen {
        server,
        limits: servers.limits,
        remarks,
    })
}

/// What of a record has no effect, as diagnostics.
pub(super) fn remarks(one: &Configured) -> Vec<ServerDiagnostic> {
    let issues = one.issues.iter();
    issues.map(|issue| of_issue(&one.key, issue)).collect()
}

/// What is wrong with a record, as a diagnostic.
pub(super) fn of_issue(key: &ServerKey, issue: &Issue) -> ServerDiagnostic {
    let message = format!("server {}: {}", shown(key), issue.message);
    ServerDiagnostic::new(key, Phase::Config, issue.level, message)
}

/// The errors among what is wrong with a record, in one line.
pub(in crate::cli) fn reasons(problems: &[Issue]) -> String {
    let lines: Vec<_> = problems
        .iter()
        .filter(|issue| issue.level == Level::Error)
        .map(|issue| issue.message.as_str())
        .collect();
    lines.join("; ")
}

/// The server of a record.
///
/// # Errors
/// When it is disabled, or what keeps the record from being used.
pub(in crate::cli) fn usable(one: Configured) -> Result<ServerConfig, Failure> {
    let Configured {
        key,
        enabled,
        outcome,
        issues: _,
    } = one;
    let failure = |what: &str| {
        let message = format!("server {}: {what}", shown(&key));
        let error = UpstreamError::new(&key, Phase::Config, FailureKind::Config, message);
        Failure::upstream(error)
    };
    if !enabled {
        return Err(failure("disabled in the configuration"));
    }
    outcome.map_err(|problems| failure(&reasons(&problems)))
}

/// A server's name for a message.
pub(in crate::cli) fn shown(key: &ServerKey) -> String {
    Quoted(key.as_str()).to_string()
}
