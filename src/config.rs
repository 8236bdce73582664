//! Configuration files and the environment, read into types.
//!
//! Two files matter: OpenClaw's own (`openclaw.json` in its state directory), for the Gateway, and
//! drawspan's (`--config`, `./drawspan.json` or `./.mcp.json`), for servers, hooks and limits. Both
//! are JSON5 and have one reader: keys that are not known are skipped, known keys of the wrong type are
//! an error that names the key and never shows a value. Entries of servers stay raw: see
//! [`entry`](crate::manager::entry). The files of other programs are read on request only:
//! [`import`](mod@import).

mod audit;
mod codex;
mod document;
mod gate;
pub mod import;
mod lock;
mod plugins;
mod servers;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

pub use self::audit::AuditConfig;
use self::document::Document;
pub use self::lock::LockConfig;
pub use self::servers::ServerMap;
use crate::gate::{RuleError, Rules, RulesSpec};
use crate::gateway::endpoint::{ConfigSecret, ConfiguredSecrets, GatewayConfig, expand_home};
use crate::limits::{LimitError, Limits};
use crate::secret::Secret;

/// What one file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `gateway`: where OpenClaw's Gateway is.
    pub gateway: GatewayConfig,
    /// `hooks.beforeToolCall`: who is asked before a tool runs.
    pub before_tool_call: Option<HookConfig>,
    /// `gate`: rules about tool calls.
    pub gate: RulesSpec,
    /// `audit`: where calls are recorded.
    pub audit: AuditConfig,
    /// `lock`: which tools may be used.
    pub lock: LockConfig,
    /// `limits`: by printed name, times in milliseconds.
    pub limits: BTreeMap<String, u64>,
    /// `mcpServers`, `servers` or `mcp.servers`: upstream servers.
    pub servers: ServerMap,
    /// `pluginTools`: tools that are commands. Name and raw JSON of each entry, in the order of the file; see
    /// [`read_plugins`](crate::manager::entry::read_plugins).
    pub plugins: Vec<(String, String)>,
}

/// A program that is asked before each tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookConfig {
    /// Program and arguments; never empty.
    pub command: Vec<String>,
    /// How long it may take; [`Limits::hook_timeout`] when not given.
    pub timeout: Option<Duration>,
}

/// Why a file cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// The operating system said so.
    Io(io::Error),
    /// No JSON5; what and where.
    Syntax(String),
    /// No TOML; what and where.
    Toml(String),
    /// A key with the wrong kind of value.
    Key {
        /// The key with its parents, joined by dots.
        key: String,
        /// What it must be.
        must: &'static str,
        /// What kind of value it is.
        found: &'static str,
    },
    /// A key that is not known where no other may stand, and what about it.
    Unknown(String, &'static str),
    /// A rule of the gate that cannot be kept.
    Rule(RuleError),
    /// A limit that cannot be set.
    Limit(LimitError),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot be read: {error}"),
            Self::Syntax(what) => write!(f, "is not JSON5: {what}"),
            Self::Toml(what) => write!(f, "is not TOML: {what}"),
            Self::Key { key, must, found } => write!(f, "{key} must be {must} (found {found})"),
            Self::Unknown(key, what) => write!(f, "{key} {what}"),
            Self::Rule(error) => write!(f, "gate.{error}"),
            Self::Limit(error) => write!(f, "limits: {error}"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// When it cannot be read or used. The error does not repeat the path.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let mut config = Self::parse(&read_text(path)?)?;
        config.servers.path = Some(path.to_owned());
        Ok(config)
    }

    /// Reads the file at `path`; the defaults when there is none.
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn read_if_there(path: &Path) -> Result<Self, ConfigError> {
        match Self::read(path) {
            Err(ConfigError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            other => other,
        }
    }

    /// Reads JSON5.
    ///
    /// # Errors
    /// When it is none, or a known key has the wrong type.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let document = read_json5(text)?;
        let value = document.value();
        let root = Node::root(&value)?;
        Ok(Self {
            gateway: read_gateway(&root.section("gateway")?)?,
            before_tool_call: read_hook(&root.section("hooks")?.section("beforeToolCall")?)?,
            gate: gate::read(&root.section("gate")?)?,
            audit: AuditConfig::read(&root.section("audit")?)?,
            lock: LockConfig::read(&root.section("lock")?)?,
            limits: read_limits(&root.section("limits")?)?,
            servers: ServerMap::of(&document),
            plugins: plugins::read(&document)?,
        })
    }

    /// The rules of the gate.
    ///
    /// # Errors
    /// The first that cannot be kept.
    pub fn rules(&self, limits: &Limits) -> Result<Rules, ConfigError> {
        Rules::compile(self.gate.clone(), limits).map_err(ConfigError::Rule)
    }

    /// A path in the file: `~` is home, and what does not begin at the root begins where the file is.
    #[must_use]
    pub fn path_beside(&self, path: &str, home: Option<&str>) -> PathBuf {
        let path = expand_home(path, home);
        match self.servers.path.as_deref().and_then(Path::parent) {
            Some(directory) => directory.join(path),
            None => path,
        }
    }

    /// Puts the configured limits in force.
    ///
    /// # Errors
    /// When a name is unknown, a value is zero, or limits contradict each other.
    pub fn apply_limits(&self, limits: &mut Limits) -> Result<(), ConfigError> {
        for (name, value) in &self.limits {
            limits.set(name, *value).map_err(ConfigError::Limit)?;
        }
        limits.check().map_err(ConfigError::Limit)
    }
}

/// The text of a file, whatever is in it.
fn read_text(path: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(path).map_err(ConfigError::Io)
}

fn read_json5(text: &str) -> Result<Document, ConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    json5::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string()))
}

fn read_toml(text: &str) -> Result<Document, ConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    basic_toml::from_str(text).map_err(|error| ConfigError::Toml(error.to_string()))
}

/// The environment of this process; variables that are not text are left out.
#[must_use]
pub fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// The drawspan configuration to use: the one named, else the first there is in the current
/// directory.
#[must_use]
pub fn find_config(named: Option<&Path>) -> Option<PathBuf> {
    if let Some(named) = named {
        return Some(named.to_owned());
    }
    ["drawspan.json", ".mcp.json"]
        .into_iter()
        .map(PathBuf::from)
        .find(|path| path.is_file())
}

/// Directories that OpenClaw used under its older names. Source: OpenClaw, state directory.
const OLDER_STATE_DIRS: [&str; 3] = [".clawdbot", ".moldbot", ".moltbot"];

/// OpenClaw's state directory, which holds its configuration and the device identity; `None` when
/// nothing tells where home is.
#[must_use]
pub fn state_dir(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    let var = |name: &str| filled(env.get(name));
    let home = var("HOME").or_else(|| var("USERPROFILE"));
    if let Some(dir) = var("OPENCLAW_STATE_DIR") {
        return Some(expand_home(dir, home));
    }
    let base = expand_home(var("OPENCLAW_HOME").or(home)?, home);
    let usual = base.join(".openclaw");
    if usual.exists() {
        return Some(usual);
    }
    let older = OLDER_STATE_DIRS.map(|name| base.join(name));
    Some(older.into_iter().find(|dir| dir.exists()).unwrap_or(usual))
}

/// OpenClaw's configuration file, whether it exists or not; `state_dir` as [`state_dir`] gives it.
#[must_use]
pub fn openclaw_config(env: &BTreeMap<String, String>, state_dir: &Path) -> PathBuf {
    match filled(env.get("OPENCLAW_CONFIG_PATH")) {
        Some(path) => expand_home(path, filled(env.get("HOME"))),
        None => state_dir.join("openclaw.json"),
    }
}

fn filled(text: Option<&String>) -> Option<&str> {
    text.map(|text| text.trim()).filter(|text| !text.is_empty())
}

fn read_gateway(gateway: &Node<'_>) -> Result<GatewayConfig, ConfigError> {
    let remote = gateway.section("remote")?;
    let auth = gateway.section("auth")?;
    let tls = gateway.section("tls")?;
    let port = gateway
        .get("port")
        .map(|node| node.whole(1, 65_535, "a number from 1 to 65535"));
    let timeout = gateway.get("handshakeTimeoutMs").map(|node| node.millis());
    Ok(GatewayConfig {
        remote: gateway.text("mode")?.as_deref() == Some("remote"),
        remote_url: remote.text("url")?,
        port: port.transpose()?.and_then(|port| u16::try_from(port).ok()),
        tls_enabled: tls.flag("enabled")?,
        tls_ca_file: tls.text("caFile")?,
        handshake_timeout_ms: timeout.transpose()?,
        secrets: ConfiguredSecrets {
            auth_token: auth.secret("token")?,
            auth_password: auth.secret("password")?,
            remote_token: remote.secret("token")?,
            remote_password: remote.secret("password")?,
        },
    })
}

fn read_hook(hook: &Node<'_>) -> Result<Option<HookConfig>, ConfigError> {
    let Some(command) = hook.get("command") else {
        return Ok(None);
    };
    let must = "an array of strings that begins with a program";
    let words = command
        .value
        .as_array()
        .ok_or_else(|| command.error(must))?;
    let words = words.iter().map(|word| word.as_str().map(str::to_owned));
    let words: Option<Vec<String>> = words.collect();
    let timeout = hook
        .get("timeoutMs")
        .map(|node| node.millis())
        .transpose()?;
    match words {
        Some(words) if words.first().is_some_and(|program| !program.is_empty()) => {
            Ok(Some(HookConfig {
                command: words,
                timeout: timeout.map(Duration::from_millis),
            }))
        }
        Some(_) | None => Err(command.error(must)),
    }
}

fn read_limits(limits: &Node<'_>) -> Result<BTreeMap<String, u64>, ConfigError> {
    let Some(members) = limits.value.as_object() else {
        return Ok(BTreeMap::new());
    };
    let mut found = BTreeMap::new();
    for name in members.keys() {
        if let Some(node) = limits.get(name) {
            let value = node.whole(0, u64::MAX, "a whole number")?;
            found.insert(name.clone(), value);
        }
    }
    Ok(found)
}

/// One value and its key, for errors that name it. `null` counts as absent.
struct Node<'a> {
    key: String,
    value: &'a Value,
}

impl<'a> Node<'a> {
    fn root(value: &'a Value) -> Result<Self, ConfigError> {
        let root = Self {
            key: String::new(),
            value,
        };
        if value.is_object() {
            Ok(root)
        } else {
            let key = "the document".to_owned();
            Err(Self { key, value }.error("an object"))
        }
    }

    fn get(&self, name: &str) -> Option<Self> {
        let value = self.value.get(name).filter(|value| !value.is_null())?;
        let key = match &*self.key {
            "" => name.to_owned(),
            parent => format!("{parent}.{name}"),
        };
        Some(Self { key, value })
    }

    /// A member that is an object; an empty one when it is absent.
    fn section(&self, name: &str) -> Result<Self, ConfigError> {
        match self.get(name) {
            None => Ok(Self {
                key: name.to_owned(),
                value: &Value::Null,
            }),
            Some(node) if node.value.is_object() => Ok(node),
            Some(node) => Err(node.error("an object")),
        }
    }

    fn text(&self, name: &str) -> Result<Option<String>, ConfigError> {
        match self.get(name) {
            None => Ok(None),
            Some(node) => match node.value.as_str() {
                Some(text) => Ok(Some(text.to_owned())),
                None => Err(node.error("a string")),
            },
        }
    }

    fn flag(&self, name: &str) -> Result<bool, ConfigError> {
        match self.get(name) {
            None => Ok(false),
            Some(node) => node
                .value
                .as_bool()
                .ok_or_else(|| node.error("true or false")),
        }
    }

    fn secret(&self, name: &str) -> Result<Option<ConfigSecret>, ConfigError> {
        let Some(node) = self.get(name) else {
            return Ok(None);
        };
        if let Some(text) = node.value.as_str() {
            return Ok(Some(ConfigSecret::Text(Secret::new(text.to_owned()))));
        }
        let member = |name: &str| node.value.get(name)?.as_str().map(str::to_owned);
        match (member("source"), member("id")) {
            (Some(source), Some(id)) => Ok(Some(ConfigSecret::Reference { source, id })),
            (_, _) => Err(node.error("a string, or an object with source and id")),
        }
    }

    fn whole(&self, least: u64, most: u64, must: &'static str) -> Result<u64, ConfigError> {
        let value = self.value.as_u64();
        value
            .filter(|value| (least..=most).contains(value))
            .ok_or_else(|| self.error(must))
    }

    fn millis(&self) -> Result<u64, ConfigError> {
        self.whole(1, u64::MAX, "a whole number of milliseconds, at least 1")
    }

    fn error(&self, must: &'static str) -> ConfigError {
        let found = match self.value {
            Value::Null => "null",
            Value::Bool(_) => "true or false",
            Value::Number(number) if number.is_f64() => "a fraction",
            Value::Number(number) if number.as_i64().is_some_and(|n| n < 0) => "a negative number",
            Value::Number(_) => "another number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        };
        let key = self.key.clone();
        ConfigError::Key { key, must, found }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = |text: &&str| (*text).to_owned();
        pairs
            .iter()
            .map(|(name, value)| (own(name), own(value)))
            .collect()
    }

    #[test]
    fn a_gateway_section_is_read_whole() {
        let config = Config::parse(
            "\u{feff}// OpenClaw writes JSON5\n{ gateway: { mode: 'remote', port: 18_000 }, }",
        );
        assert!(
            matches!(config, Err(ConfigError::Syntax(_))),
            "18_000 is no JSON5 number"
        );
        let config = Config::parse(
            "\u{feff}// a comment
            { agents: { list: [1, 2] },
              gateway: {
                mode: 'remote', port: 0x4965, handshakeTimeoutMs: 2000,
                tls: { enabled: true, caFile: '~/ca.pem' },
                auth: { mode: 'token', token: '${T}', password: null },
                remote: { url: 'wss://h', token: { source: 'env', provider: 'default', id: 'X' } },
              }, }",
        )
        .expect("good");
        let expected = GatewayConfig {
            remote: true,
            remote_url: Some("wss://h".to_owned()),
            port: Some(18_789),
            tls_enabled: true,
            tls_ca_file: Some("~/ca.pem".to_owned()),
            handshake_timeout_ms: Some(2_000),
            secrets: ConfiguredSecrets {
                auth_token: Some(ConfigSecret::Text(Secret::new("${T}".to_owned()))),
                remote_token: Some(ConfigSecret::Reference {
                    source: "env".to_owned(),
                    id: "X".to_owned(),
                }),
                ..ConfiguredSecrets::default()
            },
        };
        assert_eq!(config.gateway, expected);
        assert_eq!(config.before_tool_call, None);
    }

    #[test]
    fn hooks_and_limits_are_ours() {
        let config = Config::parse(
            r#"{"hooks":{"beforeToolCall":{"command":["check","-q"],"timeoutMs":5000}},
                "limits":{"waiters_max":3,"gateway_request_timeout_ms":1500}}"#,
        )
        .expect("good");
        let hook = config.before_tool_call.as_ref().expect("a hook");
        assert_eq!(hook.command, ["check", "-q"]);
        assert_eq!(hook.timeout, Some(Duration::from_secs(5)));
        let mut limits = Limits::default();
        config.apply_limits(&mut limits).expect("known names");
        assert_eq!(limits.waiters_max, 3);
        assert_eq!(limits.gateway_request_timeout, Duration::from_millis(1_500));
    }

    #[test]
    fn errors_name_the_key_and_show_no_value() {
        let rows = [
            ("[]", "the document must be an object (found an array)"),
            (
                "{gateway:5}",
                "gateway must be an object (found another number)",
            ),
            (
                "{gateway:{port:70000}}",
                "gateway.port must be a number from 1 to 65535 (found another number)",
            ),
            (
                "{gateway:{port:'18789'}}",
                "gateway.port must be a number from 1 to 65535 (found a string)",
            ),
            (
                "{gateway:{auth:{token:['s3cret']}}}",
                "gateway.auth.token must be a string, or an object with source and id (found an array)",
            ),
            (
                "{gateway:{tls:{enabled:'yes'}}}",
                "gateway.tls.enabled must be true or false (found a string)",
            ),
            (
                "{hooks:{beforeToolCall:{command:'check'}}}",
                "hooks.beforeToolCall.command must be an array of strings that begins with a program (found a string)",
            ),
            (
                "{hooks:{beforeToolCall:{command:[]}}}",
                "hooks.beforeToolCall.command must be an array of strings that begins with a program (found an array)",
            ),
            (
                "{hooks:{beforeToolCall:{command:['x'],timeoutMs:0}}}",
                "hooks.beforeToolCall.timeoutMs must be a whole number of milliseconds, at least 1 (found another number)",
            ),
            (
                "{limits:{waiters_max:1.5}}",
                "limits.waiters_max must be a whole number (found a fraction)",
            ),
            (
                "{limits:{waiters_max:-1}}",
                "limits.waiters_max must be a whole number (found a negative number)",
            ),
        ];
        for (text, message) in rows {
            assert_eq!(Config::parse(text).expect_err(text).to_string(), message);
        }
        let syntax = Config::parse("{token: 's3cret' 5}")
            .expect_err("no comma")
            .to_string();
        assert!(
            syntax.contains("line 1") && !syntax.contains("s3cret"),
            "{syntax}"
        );
        let unknown = Config::parse("{limits:{no_such:1}}").expect("read");
        let error = unknown
            .apply_limits(&mut Limits::default())
            .expect_err("unknown");
        assert!(error.to_string().contains("no_such"), "{error}");
    }

    #[test]
    fn a_file_that_is_not_there_says_nothing() {
        let path = Path::new("/nonexistent/openclaw.json");
        assert_eq!(
            Config::read_if_there(path).expect("no file"),
            Config::default()
        );
        assert!(matches!(Config::read(path), Err(ConfigError::Io(_))));
    }

    #[test]
    fn the_state_directory_is_where_openclaw_has_it() {
        let base = std::env::temp_dir().join(format!("drawspan-config-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        fs::create_dir(&base).expect("a directory of our own");
        let home = base.to_str().expect("text");
        let usual = base.join(".openclaw");
        let dir = |pairs: &[(&str, &str)]| state_dir(&env(pairs));

        assert_eq!(dir(&[("HOME", home)]), Some(usual.clone()));
        fs::create_dir(base.join(".clawdbot")).expect("made");
        assert_eq!(dir(&[("HOME", home)]), Some(base.join(".clawdbot")));
        fs::create_dir(&usual).expect("made");
        assert_eq!(dir(&[("HOME", home)]), Some(usual.clone()));
        assert_eq!(
            dir(&[("HOME", "/nowhere"), ("OPENCLAW_HOME", home)]),
            Some(usual.clone())
        );
        let named = [("HOME", home), ("OPENCLAW_STATE_DIR", " ~/x ")];
        assert_eq!(dir(&named), Some(base.join("x")));
        assert_eq!(dir(&[]), None);

        let config = |pairs: &[(&str, &str)]| openclaw_config(&env(pairs), &usual);
        assert_eq!(config(&[]), usual.join("openclaw.json"));
        assert_eq!(
            config(&[("OPENCLAW_CONFIG_PATH", "/c.json5")]),
            PathBuf::from("/c.json5")
        );
        fs::remove_dir_all(&base).expect("removed");
    }
}
