//! What is read again while we serve.
//!
//! | is there    | SIGHUP           | a file changed | what becomes of it                                        |
//! |-------------|------------------|----------------|-----------------------------------------------------------|
//! | audit log   | opened anew      | –              | the chain goes on                                         |
//! | lock        | read             | read           | tools are looked at with it; unusable: the one of before  |
//! | settings    | read             | read           | rules, hook, place of the log; unusable: all of before    |
//! | servers     | read             | read           | only those whose entries changed are restarted            |
//! | none        | the end          | –              | what the signal means to any program                      |

use std::fmt::Display;
use std::path::{Path, PathBuf};

use super::audit_log::AuditLog;
use super::connection::Changed;
use super::lock_file::LockFile;
use super::{say, upstreams};
use crate::clock::Now;
use crate::config::{AuditConfig, Config};
use crate::hub::Hub;
use crate::io::HostSignal;
use crate::limits::Limits;

/// See the module page.
pub(super) struct Reload {
    /// The configuration, where servers and plugin tools come from it.
    pub(super) servers: Option<PathBuf>,
    pub(super) lock: Option<LockFile>,
    /// The configuration, where there is one.
    pub(super) settings: Option<PathBuf>,
    pub(super) limits: Limits,
    /// Whether the log was required at the start, and what the command line says of it, which goes before.
    pub(super) required: bool,
    pub(super) audit_file: Option<PathBuf>,
    pub(super) audit_required: bool,
}

impl Reload {
    /// Whether there is anything that could be read again.
    pub(super) fn has_any(&self, log: Option<&AuditLog>) -> bool {
        log.is_some() || self.lock.is_some() || self.settings.is_some() || self.servers.is_some()
    }

    /// Reads all of it.
    pub(super) fn run(
        &self,
        hub: &mut Hub,
        mut log: Option<&mut AuditLog>,
        signal: HostSignal,
        now: Now,
    ) {
        if let (HostSignal::Hangup, Some(log)) = (signal, &mut log) {
            log.reopen(now);
        }
        if let Some(lock) = &self.lock {
            read_lock(hub, lock, now);
        }
        if let Err(why) = self.read_files(hub, log, now) {
            let kept = match self.servers {
                Some(_) => "what it said before is still served",
                None => "the rules of before stay in force",
            };
            say(&format!("warning: {why}; {kept}"));
        }
    }

    /// Puts in force what the files say now. Each is read once: one that is just being written anew says one
    /// thing of rules and servers.
    ///
    /// # Errors
    /// Why one cannot be used, in one line: what was in force stays so.
    fn read_files(
        &self,
        hub: &mut Hub,
        log: Option<&mut AuditLog>,
        now: Now,
    ) -> Result<(), String> {
        let settings = self.settings.as_deref().map(|file| (file, read(file)));
        let servers = self.servers.as_deref();
        let (settings, servers) = match (settings, servers) {
            (Some((file, config)), Some(same)) if file == same => {
                let config = config?;
                // New tools are not to be served by rules that did not know of them.
                self.follow_settings(hub, file, &config, log, now)?;
                return follow_servers(hub, file, config, now);
            }
            other => other,
        };
        if let Some((file, config)) = settings {
            self.follow_settings(hub, file, &config?, log, now)?;
        }
        match servers {
            Some(file) => follow_servers(hub, file, read(file)?, now),
            None => Ok(()),
        }
    }

    /// Puts rules, hook and audit log in force.
    fn follow_settings(
        &self,
        hub: &mut Hub,
        file: &Path,
        config: &Config,
        log: Option<&mut AuditLog>,
        now: Now,
    ) -> Result<(), String> {
        let Changed {
            rules,
            hook,
            audit,
            audit_file,
        } = Changed::of(config, &self.limits).map_err(|error| unusable(file, &error))?;
        hub.set_rules_and_hook(rules, hook)
            .map_err(|error| unusable(file, &format!("gate.{error}")))?;
        self.follow_audit(&audit, audit_file, log, now);
        Ok(())
    }

    /// The log goes on in another file at once. Whether there is one, and what a call is without it, calls that
    /// are open rely on.
    fn follow_audit(
        &self,
        audit: &AuditConfig,
        file: Option<PathBuf>,
        log: Option<&mut AuditLog>,
        now: Now,
    ) {
        let required = audit.required || self.audit_required;
        let path = self.audit_file.clone().or(file);
        if path.is_some() != log.is_some() || required != self.required {
            say(
                "warning: audit log: whether there is one and whether it is required takes a restart to change",
            );
        }
        if let (Some(path), Some(log)) = (path, log) {
            log.follow(path, audit, now);
        }
    }
}

fn read(file: &Path) -> Result<Config, String> {
    Config::read(file).map_err(|error| unusable(file, &error))
}

fn unusable(file: &Path, error: &dyn Display) -> String {
    format!("configuration {} {error}", upstreams::label(file))
}

/// Serves what the configuration says now. Servers whose records are the same keep their connections, and calls
/// of commands go on.
fn follow_servers(hub: &mut Hub, file: &Path, config: Config, now: Now) -> Result<(), String> {
    let (servers, plugins) = upstreams::of(config).map_err(|error| unusable(file, &error))?;
    hub.set_servers(now, servers);
    hub.set_plugin_tools(now, plugins);
    Ok(())
}

/// Looks at the tools with what the lock file says now.
fn read_lock(hub: &mut Hub, lock: &LockFile, now: Now) {
    match lock.rule() {
        Ok(rule) => hub.set_lock(now, Some(rule)),
        Err(why) => say(&format!(
            "warning: {why}; the lock of before is still in force"
        )),
    }
}
