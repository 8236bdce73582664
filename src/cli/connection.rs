//! From flags, environment and files to a Gateway we can connect to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{CredentialArgs, Exit, Failure, say};
use crate::clock::Now;
use crate::config::{self, AuditConfig, Config};
use crate::diagnostic::{Diagnostic, Level};
use crate::entropy::Entropy;
use crate::gate::Rules;
use crate::gateway::endpoint::{
    Credentials, Endpoint, EndpointInputs, SecretFlag, expand_home, inline_secret_warning,
    secret_flag,
};
use crate::gateway::identity::PLATFORM;
use crate::gateway::session::SessionConfig;
use crate::hub::{GatewayConfig, HookConfig};
use crate::io::identity_files::{IdentityFiles, read_secret_file};
use crate::limits::Limits;
use crate::link::websocket::ConnectSpec;
use crate::link::{ChildSpec, TlsSpec};
use crate::manager::lock::LockMode;
use crate::secret::Secret;

/// What the files say that apply to a command.
pub(super) struct Settings {
    pub(super) limits: Limits,
    pub(super) hook: Option<HookConfig>,
    pub(super) audit: AuditConfig,
    /// `audit.file`, from here.
    pub(super) audit_file: Option<PathBuf>,
    pub(super) rules: Rules,
    /// The file that says so.
    pub(super) file: Option<PathBuf>,
    pub(super) lock: LockSettings,
}

/// What is known of a lock file.
#[derive(Default)]
pub(super) struct LockSettings {
    pub(super) mode: LockMode,
    /// `lock.file`, from here.
    pub(super) file: Option<PathBuf>,
    /// Where one lies that nobody has to name: beside the configuration. It need not be there.
    pub(super) beside: Option<PathBuf>,
    /// The servers that are configured.
    pub(super) configured: BTreeSet<String>,
}

/// Reads the drawspan configuration: the file named, else the first there is in the current directory.
pub(super) fn settings(file: Option<&Path>) -> Result<Settings, Failure> {
    let mut limits = Limits::default();
    let Some(path) = config::find_config(file) else {
        return Ok(Settings {
            limits,
            hook: None,
            audit: AuditConfig::default(),
            audit_file: None,
            lock: LockSettings::default(),
            rules: Rules::default(),
            file: None,
        });
    };
    let unusable = |error: config::ConfigError| unusable(&path, &error);
    let config = Config::read(&path).map_err(unusable)?;
    config.apply_limits(&mut limits).map_err(unusable)?;
    let home = config::environment().remove("HOME");
    let beside = |file: &String| config.path_beside(file, home.as_deref());
    let audit_file = config.audit.file.as_ref().map(beside);
    let lock = LockSettings {
        mode: config.lock.mode,
        file: config.lock.file.as_ref().map(beside),
        beside: Some(config.path_beside(super::lock_file::NAME, None)),
        configured: config
            .servers
            .servers
            .iter()
            .map(|(name, _)| name.clone())
            .collect(),
    };
    let (rules, hook) = gate_of(&config, &limits).map_err(unusable)?;
    Ok(Settings {
        limits,
        hook,
        audit: config.audit,
        audit_file,
        lock,
        rules,
        file: Some(path.clone()),
    })
}

fn unusable(path: &Path, error: &config::ConfigError) -> Failure {
    let message = format!("configuration {} {error}", path.display());
    Failure::new(Exit::Usage, message)
}

/// What a configuration says of the gate: its rules, and the hook.
fn gate_of(
    config: &Config,
    limits: &Limits,
) -> Result<(Rules, Option<HookConfig>), config::ConfigError> {
    let rules = config.rules(limits)?;
    let hook = config.before_tool_call.as_ref().and_then(|hook| {
        let (program, args) = hook.command.split_first()?;
        let command = ChildSpec {
            program: program.clone(),
            args: args.to_vec(),
            env: hook_environment(),
            cwd: None,
        };
        Some(HookConfig {
            command,
            timeout: hook.timeout,
        })
    });
    if let (None, Some(rule)) = (&hook, rules.first_hook()) {
        return Err(config::ConfigError::Unknown(
            format!("gate.rules[{rule}].action"),
            "asks the hook, and there is no hooks.beforeToolCall",
        ));
    }
    Ok((rules, hook))
}

/// What of the settings may change while we serve.
pub(super) struct Changed {
    pub(super) rules: Rules,
    pub(super) hook: Option<HookConfig>,
    pub(super) audit: AuditConfig,
    /// `audit.file`, from here.
    pub(super) audit_file: Option<PathBuf>,
}

impl Changed {
    /// What a configuration says of that.
    ///
    /// # Errors
    /// Why it cannot be used. The error does not name the file.
    pub(super) fn of(config: &Config, limits: &Limits) -> Result<Self, config::ConfigError> {
        let (rules, hook) = gate_of(config, limits)?;
        let home = config::environment().remove("HOME");
        let file = config.audit.file.as_ref();
        Ok(Self {
            rules,
            hook,
            audit_file: file.map(|file| config.path_beside(file, home.as_deref())),
            audit: config.audit.clone(),
        })
    }
}

/// What a hook inherits: enough to find programs and files, and no credentials of ours.
fn hook_environment() -> Vec<(String, String)> {
    const INHERITED: [&str; 10] = [
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "TERM",
    ];
    config::environment()
        .into_iter()
        .filter(|(name, _)| INHERITED.contains(&name.as_str()))
        .collect()
}

/// A Gateway to connect to, and where the device token is kept.
pub(super) struct Connection {
    pub(super) gateway: GatewayConfig,
    pub(super) files: IdentityFiles,
}

/// The credentials that flags give or point to.
pub(super) fn credentials(args: &CredentialArgs) -> Result<Credentials, Failure> {
    let home = config::environment().remove("HOME");
    Ok(Credentials {
        token: read_secret(
            "token",
            args.token.as_deref(),
            args.token_file.as_deref(),
            home.as_deref(),
        )?,
        password: read_secret(
            "password",
            args.password.as_deref(),
            args.password_file.as_deref(),
            home.as_deref(),
        )?,
    })
}

/// Finds the Gateway and who we are to it. OpenClaw: `mcp serve`, URL and credentials.
pub(super) fn connection(
    url: Option<&str>,
    flags: Credentials,
    limits: &Limits,
    now: Now,
    entropy: &mut dyn Entropy,
) -> Result<Connection, Failure> {
    let env = config::environment();
    let Some(state_dir) = config::state_dir(&env) else {
        return Err(Failure::new(
            Exit::Usage,
            "no home directory: set HOME or OPENCLAW_STATE_DIR",
        ));
    };
    let path = config::openclaw_config(&env, &state_dir);
    let openclaw = Config::read_if_there(&path).map_err(|error| {
        Failure::new(
            Exit::Usage,
            format!("OpenClaw's configuration {} {error}", path.display()),
        )
    })?;
    let inputs = EndpointInputs {
        url: url.map(str::to_owned),
        flags,
        env,
        config: openclaw.gateway,
    };
    let endpoint =
        Endpoint::resolve(&inputs).map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    let identity = IdentityFiles::load(&state_dir, entropy, now);
    endpoint
        .warnings
        .iter()
        .chain(&identity.warnings)
        .for_each(|warning| report(warning, false));
    let mut limits = limits.clone();
    if let Some(timeout) = endpoint.challenge_timeout {
        limits.gateway_challenge_timeout = timeout;
    }
    let tls = endpoint.tls.then(|| TlsSpec {
        ca_file: endpoint.ca_file.clone(),
        ..TlsSpec::default()
    });
    let session = SessionConfig {
        url_for_log: endpoint.url_for_log,
        loopback: endpoint.loopback,
        identity: identity.identity,
        credentials: endpoint.credentials,
        stored_token: identity.token,
        platform: PLATFORM,
        limits,
    };
    let connect = ConnectSpec {
        host: endpoint.host,
        port: endpoint.port,
        path: endpoint.path,
        tls,
    };
    Ok(Connection {
        gateway: GatewayConfig { connect, session },
        files: identity.files,
    })
}

/// A secret given on the command line or in a file.
fn read_secret(
    name: &'static str,
    inline: Option<&str>,
    file: Option<&Path>,
    home: Option<&str>,
) -> Result<Option<Secret<String>>, Failure> {
    let file = file.map(|path| path.to_string_lossy().into_owned());
    let usage = |message: String| Failure::new(Exit::Usage, message);
    match secret_flag(name, inline, file.as_deref()).map_err(|error| usage(error.to_string()))? {
        None => Ok(None),
        Some(SecretFlag::Inline(secret)) => {
            report(&inline_secret_warning(name), false);
            Ok(Some(secret))
        }
        Some(SecretFlag::File(path)) => {
            let path = expand_home(&path, home);
            read_secret_file(name, &path)
                .map(Some)
                .map_err(|error| usage(error.to_string()))
        }
    }
}

/// One diagnostic on stderr; information only where more was asked for.
pub(super) fn report(diagnostic: &Diagnostic, verbose: bool) {
    if verbose || diagnostic.level > Level::Info {
        say(&diagnostic.to_string());
    }
}
