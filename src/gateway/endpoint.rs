//! Where the Gateway is and what opens it: from flags, environment and configuration to one endpoint.
//!
//! | URL from               | credentials from                                                           |
//! |------------------------|----------------------------------------------------------------------------|
//! | any                    | flags alone, when one is given                                              |
//! | `--gateway`            | nothing else                                                                |
//! | `OPENCLAW_GATEWAY_URL` | `OPENCLAW_GATEWAY_TOKEN`, `OPENCLAW_GATEWAY_PASSWORD`                       |
//! | configuration, local   | environment, `gateway.auth`, `gateway.remote`                               |
//! | configuration, remote  | token: `gateway.remote`, environment, `gateway.auth`; password: environment first |
//!
//! A URL that somebody typed gets no credential that was meant for another Gateway.
//!
//! Source: OpenClaw 2026.6.11, `mcp serve` URL, credentials, plaintext rule. Ours: private authorities.
//! Never: reads a file, a variable or a clock; secret files are read by `io/identity_files.rs`.

// Value types only, no sockets.
use core::net::{Ipv4Addr, Ipv6Addr};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::codec::uri::{Uri, UriError};
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::secret::{Quoted, Secret, UrlForLog};

/// What we show a Gateway besides the device key. Both may be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Shared token.
    pub token: Option<Secret<String>>,
    /// Shared password.
    pub password: Option<Secret<String>>,
}

/// Everything the choice depends on.
#[derive(Clone, Debug, Default)]
pub struct EndpointInputs {
    /// `--gateway` (or `--url`).
    pub url: Option<String>,
    /// `--token` or the content of `--token-file`, and likewise the password.
    pub flags: Credentials,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// The `gateway` section of the configuration.
    pub config: GatewayConfig,
}

/// The `gateway` section of OpenClaw's configuration, as far as it concerns a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayConfig {
    /// `mode` is `"remote"`.
    pub remote: bool,
    /// `remote.url`.
    pub remote_url: Option<String>,
    /// `port`.
    pub port: Option<u16>,
    /// `tls.enabled`.
    pub tls_enabled: bool,
    /// `tls.caFile`, a key of ours.
    pub tls_ca_file: Option<String>,
    /// `handshakeTimeoutMs`.
    pub handshake_timeout_ms: Option<u64>,
    /// `auth.token`.
    pub auth_token: Option<ConfigSecret>,
    /// `auth.password`.
    pub auth_password: Option<ConfigSecret>,
    /// `remote.token`.
    pub remote_token: Option<ConfigSecret>,
    /// `remote.password`.
    pub remote_password: Option<ConfigSecret>,
}

/// A secret as a configuration may give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigSecret {
    /// Itself, possibly with `${NAME}` in it.
    Text(Secret<String>),
    /// A reference to where it is kept.
    Reference {
        /// `env`, `file` or `exec`.
        source: String,
        /// What it is called there.
        id: String,
    },
}

/// Where the URL was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlSource {
    /// The flag.
    Flag,
    /// The environment.
    Env,
    /// `gateway.remote.url`.
    Config,
    /// Nowhere: this machine, the configured or usual port.
    Local,
}

impl fmt::Display for UrlSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "--gateway",
            Self::Env => ENV_URL,
            Self::Config => "gateway.remote.url",
            Self::Local => "gateway.port",
        })
    }
}

/// One Gateway, and how to get in.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query of the upgrade request.
    pub path: String,
    /// Whether TLS is spoken.
    pub tls: bool,
    /// PEM file with authorities to trust beside the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether it is this machine.
    pub loopback: bool,
    /// The URL as it may be shown.
    pub url_for_log: String,
    /// Where the URL was found.
    pub source: UrlSource,
    /// What to show it.
    pub credentials: Credentials,
    /// How long to wait for its challenge, when somebody set that.
    pub challenge_timeout: Option<Duration>,
    /// Settings that were passed over.
    pub warnings: Vec<Diagnostic>,
}

/// Why there is no endpoint. All of them are for the person who set it up; exit code 2.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointError {
    /// A secret and a file with it were both given; the flag's name.
    BothGiven(&'static str),
    /// No URL we can call.
    Url {
        /// Where it was found.
        source: UrlSource,
        /// The URL, fit to be shown.
        url: String,
        /// What is wrong with it.
        error: UriError,
    },
    /// A user name or password in the URL.
    Userinfo {
        /// Where it was found.
        source: UrlSource,
        /// The URL, fit to be shown.
        url: String,
    },
    /// Plain text to a host that may be anywhere.
    Plaintext {
        /// Where it was found.
        source: UrlSource,
        /// The URL, fit to be shown.
        url: String,
    },
    /// A secret of the configuration that cannot be had.
    SecretReference {
        /// Its key.
        key: &'static str,
        /// Why not.
        why: String,
    },
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BothGiven(name) => {
                write!(
                    f,
                    "use either --{name} or --{name}-file for the gateway {name}, not both"
                )
            }
            Self::Url { source, url, error } => {
                write!(f, "gateway URL {url} from {source} cannot be used: {error}")
            }
            Self::Userinfo { source, url } => write!(
                f,
                "gateway URL {url} from {source} carries a user name; use --token-file or --password-file"
            ),
            Self::Plaintext { source, url } => write!(
                f,
                "gateway URL {url} from {source} is plaintext ws:// to a non-loopback address; use wss://, \
                 or tunnel its port to 127.0.0.1, or set {ENV_ALLOW_PLAIN}=1 for a host name of a network you trust"
            ),
            Self::SecretReference { key, why } => {
                write!(
                    f,
                    "configured secret {key} cannot be had: {why}; use --token-file or --password-file"
                )
            }
        }
    }
}

impl std::error::Error for EndpointError {}

const ENV_URL: &str = "OPENCLAW_GATEWAY_URL";
const ENV_PORT: &str = "OPENCLAW_GATEWAY_PORT";
const ENV_TOKEN: &str = "OPENCLAW_GATEWAY_TOKEN";
const ENV_PASSWORD: &str = "OPENCLAW_GATEWAY_PASSWORD";
const ENV_ALLOW_PLAIN: &str = "OPENCLAW_ALLOW_INSECURE_PRIVATE_WS";
const ENV_CHALLENGE: [&str; 2] = [
    "OPENCLAW_CONNECT_CHALLENGE_TIMEOUT_MS",
    "OPENCLAW_HANDSHAKE_TIMEOUT_MS",
];

/// The port of a Gateway that was told nothing else. Source: OpenClaw 2026.6.11.
const PORT_DEFAULT: u16 = 18_789;

/// Shortest wait for a challenge that can be set. Source: OpenClaw 2026.6.11.
const CHALLENGE_TIMEOUT_MIN_MS: u64 = 250;

impl Endpoint {
    /// Chooses.
    ///
    /// # Errors
    /// When what was set cannot be used; see [`EndpointError`].
    pub fn resolve(inputs: &EndpointInputs) -> Result<Self, EndpointError> {
        let mut warnings = Vec::new();
        let (url, source) = find_url(inputs, &mut warnings);
        let shown = UrlForLog(&url).to_string();
        let uri = match Uri::parse(&url) {
            Ok(uri) if uri.userinfo => return Err(EndpointError::Userinfo { source, url: shown }),
            Ok(uri) => uri,
            Err(error) => {
                return Err(EndpointError::Url {
                    source,
                    url: shown,
                    error,
                });
            }
        };
        let tls = uri.scheme.is_tls();
        let place = Place::of(&uri.host);
        let trusts_names = inputs.var(ENV_ALLOW_PLAIN) == Some("1");
        if !tls && !place.takes_plain_text(trusts_names) {
            return Err(EndpointError::Plaintext { source, url: shown });
        }
        Ok(Self {
            port: uri.port_or_default(),
            path: uri.path_and_query,
            host: uri.host,
            tls,
            ca_file: inputs.ca_file().filter(|_| tls),
            loopback: place == Place::Loopback,
            url_for_log: shown,
            source,
            credentials: find_credentials(inputs, source)?,
            challenge_timeout: find_challenge_timeout(inputs),
            warnings,
        })
    }
}

impl EndpointInputs {
    /// A variable; blank counts as unset.
    fn var(&self, name: &str) -> Option<&str> {
        filled(self.env.get(name).map(String::as_str))
    }

    fn secret_var(&self, name: &str) -> Option<Secret<String>> {
        let value = self.var(name).filter(|value| !has_placeholder(value));
        value.map(|value| Secret::new(value.to_owned()))
    }

    fn ca_file(&self) -> Option<PathBuf> {
        let path = self
            .var("DRAWSPAN_CA_FILE")
            .or_else(|| filled(self.config.tls_ca_file.as_deref()))
            .or_else(|| self.var("NODE_EXTRA_CA_CERTS"))?;
        Some(expand_home(path, self.var("HOME")))
    }
}

/// `path` with a leading `~` replaced by the home directory.
#[must_use]
pub fn expand_home(path: &str, home: Option<&str>) -> PathBuf {
    match (path.strip_prefix('~'), home) {
        (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
            PathBuf::from(format!("{home}{rest}"))
        }
        (Some(_) | None, _) => PathBuf::from(path),
    }
}

/// A secret as flags give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretFlag {
    /// On the command line, where other users of the machine can see it.
    Inline(Secret<String>),
    /// In the file of this name.
    File(String),
}

/// Which of `--NAME` and `--NAME-file` was given; blank counts as not given.
///
/// # Errors
/// When both were.
pub fn secret_flag(
    name: &'static str,
    inline: Option<&str>,
    file: Option<&str>,
) -> Result<Option<SecretFlag>, EndpointError> {
    match (filled(inline), filled(file)) {
        (Some(_), Some(_)) => Err(EndpointError::BothGiven(name)),
        (Some(value), None) => Ok(Some(SecretFlag::Inline(Secret::new(value.to_owned())))),
        (None, Some(path)) => Ok(Some(SecretFlag::File(path.to_owned()))),
        (None, None) => Ok(None),
    }
}

/// What to tell somebody who gave a secret on the command line.
#[must_use]
pub fn inline_secret_warning(name: &str) -> Diagnostic {
    let message = format!(
        "--{name} can be seen in process listings; prefer --{name}-file or an environment variable"
    );
    Diagnostic::new(Level::Warning, Subject::Gateway, message)
}

fn find_url(inputs: &EndpointInputs, warnings: &mut Vec<Diagnostic>) -> (String, UrlSource) {
    if let Some(url) = filled(inputs.url.as_deref()) {
        return (url.to_owned(), UrlSource::Flag);
    }
    if let Some(url) = inputs.var(ENV_URL) {
        return (url.to_owned(), UrlSource::Env);
    }
    let config = &inputs.config;
    let remote_url = filled(config.remote_url.as_deref()).filter(|_| config.remote);
    if let Some(url) = remote_url {
        return (url.to_owned(), UrlSource::Config);
    }
    let port = match inputs.var(ENV_PORT).map(|text| (text, text.parse())) {
        Some((_, Ok(port))) if port > 0 => Some(port),
        Some((text, Ok(_) | Err(_))) => {
            let text = Quoted(text);
            let message = format!(
                "{ENV_PORT} is passed over: it must be a number from 1 to 65535 (found {text})"
            );
            warnings.push(Diagnostic::new(Level::Warning, Subject::Gateway, message));
            None
        }
        None => None,
    };
    let port = port.or(config.port).unwrap_or(PORT_DEFAULT);
    let scheme = if config.tls_enabled { "wss" } else { "ws" };
    (format!("{scheme}://127.0.0.1:{port}"), UrlSource::Local)
}

fn find_credentials(
    inputs: &EndpointInputs,
    source: UrlSource,
) -> Result<Credentials, EndpointError> {
    let flags = Credentials {
        token: trimmed(inputs.flags.token.as_ref()),
        password: trimmed(inputs.flags.password.as_ref()),
    };
    if flags.token.is_some() || flags.password.is_some() {
        return Ok(flags);
    }
    let env = Credentials {
        token: inputs.secret_var(ENV_TOKEN),
        password: inputs.secret_var(ENV_PASSWORD),
    };
    match source {
        UrlSource::Flag => Ok(Credentials::default()),
        UrlSource::Env => Ok(env),
        UrlSource::Config | UrlSource::Local if inputs.config.remote => {
            remote_credentials(inputs, env)
        }
        UrlSource::Config | UrlSource::Local => local_credentials(inputs, env),
    }
}

fn local_credentials(
    inputs: &EndpointInputs,
    env: Credentials,
) -> Result<Credentials, EndpointError> {
    let config = &inputs.config;
    let own_else_remote = |own: (Key, Option<_>), remote: (Key, Option<_>)| {
        // A configured secret of the Gateway itself rules the remote one out even when it is not there.
        match own {
            (key, Some(own)) => reveal(inputs, key, Some(own)),
            (_, None) => reveal(inputs, remote.0, remote.1),
        }
    };
    Ok(Credentials {
        token: match env.token {
            Some(token) => Some(token),
            None => own_else_remote(
                (AUTH_TOKEN, config.auth_token.as_ref()),
                (REMOTE_TOKEN, config.remote_token.as_ref()),
            )?,
        },
        password: match env.password {
            Some(password) => Some(password),
            None => own_else_remote(
                (AUTH_PASSWORD, config.auth_password.as_ref()),
                (REMOTE_PASSWORD, config.remote_password.as_ref()),
            )?,
        },
    })
}

fn remote_credentials(
    inputs: &EndpointInputs,
    env: Credentials,
) -> Result<Credentials, EndpointError> {
    let config = &inputs.config;
    let first = |key, secret: &Option<_>| reveal(inputs, key, secret.as_ref());
    let token = match (first(REMOTE_TOKEN, &config.remote_token)?, env.token) {
        (Some(token), _) | (None, Some(token)) => Some(token),
        (None, None) => first(AUTH_TOKEN, &config.auth_token)?,
    };
    let password = match env.password {
        Some(password) => Some(password),
        None => match first(REMOTE_PASSWORD, &config.remote_password)? {
            Some(password) => Some(password),
            None => first(AUTH_PASSWORD, &config.auth_password)?,
        },
    };
    Ok(Credentials { token, password })
}

type Key = &'static str;
const AUTH_TOKEN: Key = "gateway.auth.token";
const AUTH_PASSWORD: Key = "gateway.auth.password";
const REMOTE_TOKEN: Key = "gateway.remote.token";
const REMOTE_PASSWORD: Key = "gateway.remote.password";

/// The value of a configured secret; `None` when it is blank or names a variable that is not set.
fn reveal(
    inputs: &EndpointInputs,
    key: Key,
    secret: Option<&ConfigSecret>,
) -> Result<Option<Secret<String>>, EndpointError> {
    let unavailable = |why| Err(EndpointError::SecretReference { key, why });
    match secret {
        None => Ok(None),
        Some(ConfigSecret::Text(text)) => {
            let text = substitute(text.expose(), |name| inputs.var(name));
            let text = filled(Some(&text)).filter(|text| !has_placeholder(text));
            Ok(text.map(|text| Secret::new(text.to_owned())))
        }
        Some(ConfigSecret::Reference { source, id }) if source == "env" => match inputs.var(id) {
            Some(value) => Ok(Some(Secret::new(value.to_owned()))),
            None => unavailable(format!("environment variable {} is not set", Quoted(id))),
        },
        Some(ConfigSecret::Reference { source, .. }) => unavailable(format!(
            "references of source {} are resolved by OpenClaw only",
            Quoted(source)
        )),
    }
}

fn find_challenge_timeout(inputs: &EndpointInputs) -> Option<Duration> {
    let from_env = ENV_CHALLENGE
        .iter()
        .find_map(|name| inputs.var(name)?.parse::<u64>().ok());
    let ms = from_env.or(inputs.config.handshake_timeout_ms)?;
    Some(Duration::from_millis(ms.max(CHALLENGE_TIMEOUT_MIN_MS)))
}

fn filled(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn trimmed(secret: Option<&Secret<String>>) -> Option<Secret<String>> {
    filled(secret.map(|secret| secret.expose().as_str())).map(|text| Secret::new(text.to_owned()))
}

/// The first `${NAME}` of `text`: where it starts and ends, and the name.
fn placeholder(text: &str) -> Option<(usize, usize, &str)> {
    let mut from = 0;
    while let Some(at) = text[from..].find("${") {
        let start = from + at;
        let rest = &text[start + 2..];
        let length = rest
            .bytes()
            .take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
            .count();
        let named = rest
            .bytes()
            .next()
            .is_some_and(|byte| !byte.is_ascii_digit());
        if length > 0 && named && rest[length..].starts_with('}') {
            return Some((start, start + 2 + length + 1, &rest[..length]));
        }
        from = start + 2;
    }
    None
}

fn has_placeholder(text: &str) -> bool {
    placeholder(text).is_some()
}

/// `text` with each `${NAME}` that `var` knows replaced by its value; values are not looked into.
fn substitute<'a>(text: &'a str, var: impl Fn(&str) -> Option<&'a str>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((start, end, name)) = placeholder(rest) {
        out.push_str(&rest[..start]);
        out.push_str(var(name).unwrap_or(&rest[start..end]));
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}

/// Where a host is, as far as its name tells without asking anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// This machine.
    Loopback,
    /// A network nobody routes, or a name that only such a network answers.
    Private,
    /// Any other address.
    Public,
    /// Any other name.
    Name,
}

impl Place {
    fn of(host: &str) -> Self {
        if let Ok(address) = host.parse::<Ipv6Addr>() {
            return Self::of_v6(address);
        }
        if let Ok(address) = host.parse::<Ipv4Addr>() {
            return Self::of_v4(address);
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let last_label = name.rsplit('.').next().unwrap_or_default();
        if name == "localhost" {
            Self::Loopback
        } else if name.ends_with(".local") || name.ends_with(".ts.net") {
            Self::Private
        } else if is_number(last_label) {
            // Resolvers take `127.1`, `0x7f.1` and `134744072` for addresses. Source: WHATWG URL.
            Self::Public
        } else {
            Self::Name
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [a, b, ..] = address.octets();
        // 100.64.0.0/10 is shared between a carrier and its customers. Source: RFC 6598.
        let shared = a == 100 && (64..128).contains(&b);
        if address.is_loopback() {
            Self::Loopback
        } else if address.is_private() || address.is_link_local() || shared {
            Self::Private
        } else {
            Self::Public
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if let Some(mapped) = address.to_ipv4_mapped() {
            return Self::of_v4(mapped);
        }
        let first = address.segments()[0];
        // fc00::/7 unique local, fe80::/10 link local, fec0::/10 the old site local.
        let private = first & 0xfe00 == 0xfc00 || matches!(first & 0xffc0, 0xfe80 | 0xfec0);
        if address.is_loopback() {
            Self::Loopback
        } else if private {
            Self::Private
        } else {
            Self::Public
        }
    }

    const fn takes_plain_text(self, trusts_names: bool) -> bool {
        match self {
            Self::Loopback | Self::Private => true,
            Self::Public => false,
            Self::Name => trusts_names,
        }
    }
}

/// Whether a resolver would read the last label of a name as part of an IPv4 address.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x");
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    hex.map_or_else(
        || !label.is_empty() && digits(label),
        |hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(url: Option<&str>, env: &[(&str, &str)]) -> EndpointInputs {
        let own = |text: &&str| (*text).to_owned();
        EndpointInputs {
            url: url.map(str::to_owned),
            env: env
                .iter()
                .map(|(name, value)| (own(name), own(value)))
                .collect(),
            ..EndpointInputs::default()
        }
    }

    fn text(secret: &str) -> Option<ConfigSecret> {
        Some(ConfigSecret::Text(Secret::new(secret.to_owned())))
    }

    fn reference(source: &str, id: &str) -> Option<ConfigSecret> {
        let (source, id) = (source.to_owned(), id.to_owned());
        Some(ConfigSecret::Reference { source, id })
    }

    /// Token and password of the resolved endpoint, `-` for none.
    fn shown(inputs: &EndpointInputs) -> String {
        let Credentials { token, password } =
            Endpoint::resolve(inputs).expect("an endpoint").credentials;
        let word = |secret: Option<Secret<String>>| {
            secret.map_or_else(|| "-".to_owned(), |secret| secret.expose().clone())
        };
        format!("{} {}", word(token), word(password))
    }

    #[test]
    fn the_first_url_that_is_set_counts() {
        let remote = GatewayConfig {
            remote: true,
            remote_url: Some("wss://remote:1/x".to_owned()),
            port: Some(4_000),
            ..GatewayConfig::default()
        };
        let local = GatewayConfig {
            remote: false,
            ..remote.clone()
        };
        let tls = GatewayConfig {
            tls_enabled: true,
            ..GatewayConfig::default()
        };
        let no_url = GatewayConfig {
            remote_url: Some("  ".to_owned()),
            ..remote.clone()
        };
        let env_url = ("OPENCLAW_GATEWAY_URL", "ws://127.0.0.1:2");
        let env_port = ("OPENCLAW_GATEWAY_PORT", "3000");
        let none = GatewayConfig::default();
        let rows: [(
            Option<&str>,
            &[(&str, &str)],
            &GatewayConfig,
            &str,
            UrlSource,
        ); 11] = [
            (
                Some(" ws://127.0.0.1:9 "),
                &[env_url],
                &remote,
                "ws://127.0.0.1:9",
                UrlSource::Flag,
            ),
            (
                Some(" "),
                &[env_url],
                &remote,
                "ws://127.0.0.1:2",
                UrlSource::Env,
            ),
            (
                None,
                &[env_url, env_port],
                &remote,
                "ws://127.0.0.1:2",
                UrlSource::Env,
            ),
            (
                None,
                &[("OPENCLAW_GATEWAY_URL", " ")],
                &remote,
                "wss://remote:1/x",
                UrlSource::Config,
            ),
            (
                None,
                &[env_port],
                &remote,
                "wss://remote:1/x",
                UrlSource::Config,
            ),
            (None, &[], &local, "ws://127.0.0.1:4000", UrlSource::Local),
            (None, &[], &no_url, "ws://127.0.0.1:4000", UrlSource::Local),
            (
                None,
                &[env_port],
                &local,
                "ws://127.0.0.1:3000",
                UrlSource::Local,
            ),
            (None, &[], &none, "ws://127.0.0.1:18789", UrlSource::Local),
            (None, &[], &tls, "wss://127.0.0.1:18789", UrlSource::Local),
            (
                Some("http://127.0.0.1:1"),
                &[],
                &none,
                "http://127.0.0.1:1",
                UrlSource::Flag,
            ),
        ];
        for (url, env, config, expected, source) in rows {
            let config = config.clone();
            let inputs = EndpointInputs {
                config,
                ..inputs(url, env)
            };
            let found = Endpoint::resolve(&inputs).expect(expected);
            assert_eq!((&*found.url_for_log, found.source), (expected, source));
            assert_eq!(found.tls, expected.starts_with("wss"), "{expected}");
            assert_eq!(found.loopback, expected.contains("127.0.0.1"), "{expected}");
        }
    }

    #[test]
    fn a_port_that_is_none_is_passed_over_with_a_warning() {
        for port in ["0", "70000", "127.0.0.1:18789", "x"] {
            let inputs = inputs(None, &[("OPENCLAW_GATEWAY_PORT", port)]);
            let found = Endpoint::resolve(&inputs).expect("an endpoint");
            assert_eq!(found.port, 18_789);
            assert!(
                found.warnings[0].message.contains(port),
                "{:?}",
                found.warnings
            );
        }
    }

    #[test]
    fn a_typed_url_gets_no_credential_meant_for_another_gateway() {
        let env = [
            ("OPENCLAW_GATEWAY_TOKEN", " ET "),
            ("OPENCLAW_GATEWAY_PASSWORD", "EP"),
        ];
        let config = GatewayConfig {
            auth_token: text("AT"),
            auth_password: text("AP"),
            ..GatewayConfig::default()
        };
        let mut with = inputs(Some("ws://127.0.0.1:1"), &env);
        with.config = config.clone();
        assert_eq!(shown(&with), "- -");

        with.url = None;
        with.env.insert(
            "OPENCLAW_GATEWAY_URL".to_owned(),
            "ws://127.0.0.1:1".to_owned(),
        );
        assert_eq!(shown(&with), "ET EP");
        with.env.remove("OPENCLAW_GATEWAY_TOKEN");
        with.env.remove("OPENCLAW_GATEWAY_PASSWORD");
        assert_eq!(shown(&with), "- -", "the configuration is not asked");

        with.flags.password = Some(Secret::new(" FP\n".to_owned()));
        for url in [Some("ws://127.0.0.1:1".to_owned()), None] {
            with.url = url;
            assert_eq!(shown(&with), "- FP", "a flag is used alone");
        }
        with.env.clear();
        assert_eq!(shown(&with), "- FP", "also against the configuration");
    }

    #[test]
    fn local_mode_asks_environment_then_own_then_remote() {
        let full = GatewayConfig {
            auth_token: text("AT"),
            auth_password: text("AP"),
            remote_token: text("RT"),
            remote_password: text("RP"),
            ..GatewayConfig::default()
        };
        let both = [
            ("OPENCLAW_GATEWAY_TOKEN", "ET"),
            ("OPENCLAW_GATEWAY_PASSWORD", "EP"),
        ];
        let of = |env: &[(&str, &str)], config: &GatewayConfig| {
            shown(&EndpointInputs {
                config: config.clone(),
                ..inputs(None, env)
            })
        };
        assert_eq!(of(&both, &full), "ET EP");
        assert_eq!(of(&both[..1], &full), "ET AP");
        assert_eq!(of(&[], &full), "AT AP");
        let no_own = GatewayConfig {
            auth_token: None,
            auth_password: None,
            ..full.clone()
        };
        assert_eq!(of(&[], &no_own), "RT RP");
        let unset = GatewayConfig {
            auth_token: text("${NOT_SET}"),
            ..full.clone()
        };
        assert_eq!(
            of(&[], &unset),
            "- AP",
            "a configured token rules the remote one out"
        );
        assert_eq!(of(&[("OPENCLAW_GATEWAY_TOKEN", "${X}")], &full), "AT AP");
    }

    #[test]
    fn remote_mode_asks_remote_then_environment_but_the_password_the_other_way() {
        let full = GatewayConfig {
            remote: true,
            remote_url: Some("wss://remote".to_owned()),
            auth_token: text("AT"),
            auth_password: text("AP"),
            remote_token: text("RT"),
            remote_password: text("RP"),
            ..GatewayConfig::default()
        };
        let both = [
            ("OPENCLAW_GATEWAY_TOKEN", "ET"),
            ("OPENCLAW_GATEWAY_PASSWORD", "EP"),
        ];
        let of = |env: &[(&str, &str)], config: &GatewayConfig| {
            shown(&EndpointInputs {
                config: config.clone(),
                ..inputs(None, env)
            })
        };
        assert_eq!(of(&both, &full), "RT EP");
        assert_eq!(of(&[], &full), "RT RP");
        let no_remote = GatewayConfig {
            remote_token: None,
            remote_password: None,
            ..full.clone()
        };
        assert_eq!(of(&both[..1], &no_remote), "ET AP");
        assert_eq!(of(&[], &no_remote), "AT AP");
        let no_url = GatewayConfig {
            remote_url: None,
            ..full
        };
        assert_eq!(of(&both, &no_url), "RT EP", "the mode counts, not the URL");
    }

    #[test]
    fn configured_secrets_may_name_variables() {
        let of = |secret: Option<ConfigSecret>| {
            let config = GatewayConfig {
                auth_token: secret,
                ..GatewayConfig::default()
            };
            let env = [("MY_TOKEN", "s3"), ("EMPTY", ""), ("NEST", "${MY_TOKEN}")];
            Endpoint::resolve(&EndpointInputs {
                config,
                ..inputs(None, &env)
            })
            .map(|endpoint| {
                endpoint
                    .credentials
                    .token
                    .map(|token| token.expose().clone())
            })
            .map_err(|error| error.to_string())
        };
        assert_eq!(of(text("${MY_TOKEN}")), Ok(Some("s3".to_owned())));
        assert_eq!(
            of(text("a-${MY_TOKEN}-$${b")),
            Ok(Some("a-s3-$${b".to_owned()))
        );
        assert_eq!(of(text("${EMPTY}")), Ok(None));
        assert_eq!(
            of(text("${NEST}")),
            Ok(None),
            "what is left over counts as absent"
        );
        assert_eq!(of(text("  ")), Ok(None));
        assert_eq!(of(reference("env", "MY_TOKEN")), Ok(Some("s3".to_owned())));
        let error = of(reference("env", "NO")).expect_err("not set");
        assert!(
            error.contains("gateway.auth.token") && error.contains("NO"),
            "{error}"
        );
        let error = of(reference("exec", "vault")).expect_err("not ours");
        assert!(
            error.contains("gateway.auth.token") && error.contains("exec"),
            "{error}"
        );
    }

    #[test]
    fn a_reference_that_cannot_win_is_not_resolved() {
        let config = GatewayConfig {
            auth_token: reference("exec", "vault"),
            remote_token: reference("file", "x"),
            ..GatewayConfig::default()
        };
        let env = [("OPENCLAW_GATEWAY_TOKEN", "ET")];
        assert_eq!(
            shown(&EndpointInputs {
                config,
                ..inputs(None, &env)
            }),
            "ET -"
        );
    }

    #[test]
    fn plain_text_goes_to_private_places_only() {
        let rows = [
            ("localhost", true, true),
            ("LOCALHOST..", true, true),
            ("127.0.0.1", true, true),
            ("127.9.9.9", true, true),
            ("[::1]", true, true),
            ("[::ffff:127.0.0.1]", true, true),
            ("10.1.2.3", true, true),
            ("172.16.0.1", true, true),
            ("172.32.0.1", false, false),
            ("192.168.1.1", true, true),
            ("169.254.1.1", true, true),
            ("100.64.0.1", true, true),
            ("100.127.255.255", true, true),
            ("100.128.0.1", false, false),
            ("8.8.8.8", false, false),
            ("0.0.0.0", false, false),
            ("[fd00::1]", true, true),
            ("[fe80::1]", true, true),
            ("[fec0::1]", true, true),
            ("[2001:db8::1]", false, false),
            ("[::ffff:8.8.8.8]", false, false),
            ("[::ffff:10.0.0.1]", true, true),
            ("printer.local", true, true),
            ("box.tail1234.ts.net.", true, true),
            ("notlocal", false, true),
            ("example.com", false, true),
            ("local.example.com", false, true),
            ("134744072", false, false),
            ("0x8.0x8080808", false, false),
            ("8.8.2056", false, false),
            ("8.8.8.0x", false, false),
            ("7a3f09", false, true),
        ];
        for (host, plain, named) in rows {
            for (variable, expected) in [("0", plain), ("1", named)] {
                let url = format!("ws://{host}:1");
                let env = [("OPENCLAW_ALLOW_INSECURE_PRIVATE_WS", variable)];
                let found = Endpoint::resolve(&inputs(Some(&url), &env));
                assert_eq!(found.is_ok(), expected, "{url} with {variable}: {found:?}");
            }
            let found = Endpoint::resolve(&inputs(Some(&format!("https://{host}/")), &[]));
            assert!(found.expect(host).tls);
        }
    }

    #[test]
    fn errors_name_the_url_its_source_and_the_way_out() {
        let error = |url: &str| {
            Endpoint::resolve(&inputs(Some(url), &[]))
                .expect_err(url)
                .to_string()
        };
        let plain = error("ws://example.com:1");
        for part in ["ws://example.com:1", "--gateway", "non-loopback", "wss://"] {
            assert!(plain.contains(part), "{part} in {plain}");
        }
        assert!(error("notaurl").contains("gateway URL notaurl from --gateway cannot be used"));
        let user = error("wss://me:hunter2@host/?token=hunter3");
        assert!(
            user.contains("--token-file") && !user.contains("hunter"),
            "{user}"
        );
        assert!(!plain.contains('\n'));
    }

    #[test]
    fn a_secret_and_its_file_exclude_each_other() {
        let error = secret_flag("token", Some("a"), Some("b")).expect_err("both");
        assert_eq!(
            error.to_string(),
            "use either --token or --token-file for the gateway token, not both"
        );
        assert_eq!(secret_flag("token", Some(" "), None), Ok(None));
        assert_eq!(
            secret_flag("token", None, Some(" f ")),
            Ok(Some(SecretFlag::File("f".to_owned())))
        );
        let inline = SecretFlag::Inline(Secret::new("x".to_owned()));
        assert_eq!(secret_flag("token", Some("x"), None), Ok(Some(inline)));
        assert!(
            inline_secret_warning("token")
                .message
                .contains("--token-file")
        );
    }

    #[test]
    fn private_authorities_are_for_tls_only() {
        let mut with = inputs(
            Some("wss://host"),
            &[("NODE_EXTRA_CA_CERTS", "/n.pem"), ("HOME", "/home/me")],
        );
        let ca = |with: &EndpointInputs| Endpoint::resolve(with).expect("an endpoint").ca_file;
        assert_eq!(ca(&with), Some(PathBuf::from("/n.pem")));
        with.config.tls_ca_file = Some("~/c.pem".to_owned());
        assert_eq!(ca(&with), Some(PathBuf::from("/home/me/c.pem")));
        with.env
            .insert("DRAWSPAN_CA_FILE".to_owned(), "/d.pem".to_owned());
        assert_eq!(ca(&with), Some(PathBuf::from("/d.pem")));
        with.url = Some("ws://127.0.0.1".to_owned());
        assert_eq!(ca(&with), None);
    }

    #[test]
    fn the_wait_for_a_challenge_can_be_set() {
        let wait = |env: &[(&str, &str)], config: Option<u64>| {
            let mut with = inputs(None, env);
            with.config.handshake_timeout_ms = config;
            Endpoint::resolve(&with)
                .expect("an endpoint")
                .challenge_timeout
        };
        let ms = |ms| Some(Duration::from_millis(ms));
        let own = ("OPENCLAW_CONNECT_CHALLENGE_TIMEOUT_MS", "2000");
        let other = ("OPENCLAW_HANDSHAKE_TIMEOUT_MS", "3000");
        assert_eq!(wait(&[own, other], Some(4_000)), ms(2_000));
        assert_eq!(wait(&[other], Some(4_000)), ms(3_000));
        assert_eq!(wait(&[], Some(4_000)), ms(4_000));
        assert_eq!(wait(&[], Some(1)), ms(250));
        assert_eq!(
            wait(&[("OPENCLAW_HANDSHAKE_TIMEOUT_MS", "soon")], None),
            None
        );
    }
}
