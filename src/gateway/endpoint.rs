//! Where the Gateway is and what opens it: from flags, environment and configuration to one
//! endpoint.
//!
//! | URL from                              | credentials, when no flag gives one        |
//! |---------------------------------------|--------------------------------------------|
//! | `--gateway`                           | none                                       |
//! | `OPENCLAW_GATEWAY_URL`                | environment                                |
//! | `gateway.remote.url`, in remote mode  | remote, environment, own                   |
//! | `gateway.port`, or the usual port     | environment, own, remote, in local mode    |
//!
//! Source: OpenClaw 2026.6.11, `mcp serve` URL and plaintext rule. Ours: private authorities.
//! Never: reads a file, a variable or a clock.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::codec::uri::{Uri, UriError};
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::gateway::credentials::{Order, Sources, filled, var};
use crate::gateway::place::Place;
use crate::secret::{Quoted, UrlForLog};

pub use crate::gateway::credentials::{
    ConfigSecret, ConfiguredSecrets, CredentialError, Credentials, SecretFlag,
    inline_secret_warning, secret_flag,
};

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
    /// `auth` and `remote`.
    pub secrets: ConfiguredSecrets,
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
    /// No credentials, and why.
    Credentials(CredentialError),
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { source, url, error } => {
                write!(f, "gateway URL {url} from {source} cannot be used: {error}")
            }
            Self::Userinfo { source, url } => {
                let fix = "use --token-file or --password-file";
                write!(
                    f,
                    "gateway URL {url} from {source} carries a user name; {fix}"
                )
            }
            Self::Plaintext { source, url } => {
                let what = "plaintext ws:// to a non-loopback address";
                write!(f, "gateway URL {url} from {source} is {what}; ")?;
                f.write_str("use wss://, or tunnel its port to 127.0.0.1, or set ")?;
                write!(
                    f,
                    "{ENV_ALLOW_PLAIN}=1 for a host name of a network you trust"
                )
            }
            Self::Credentials(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for EndpointError {}

const ENV_URL: &str = "OPENCLAW_GATEWAY_URL";
const ENV_PORT: &str = "OPENCLAW_GATEWAY_PORT";
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
            credentials: inputs.credentials(source)?,
            challenge_timeout: find_challenge_timeout(inputs),
            warnings,
        })
    }
}

impl EndpointInputs {
    fn var(&self, name: &str) -> Option<&str> {
        var(&self.env, name)
    }

    fn credentials(&self, source: UrlSource) -> Result<Credentials, EndpointError> {
        let order = match source {
            UrlSource::Flag => Order::Nobody,
            UrlSource::Env => Order::Environment,
            UrlSource::Config | UrlSource::Local if self.config.remote => Order::Remote,
            UrlSource::Config | UrlSource::Local => Order::Local,
        };
        let sources = Sources {
            flags: &self.flags,
            env: &self.env,
            config: &self.config.secrets,
        };
        sources.choose(order).map_err(EndpointError::Credentials)
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

fn find_challenge_timeout(inputs: &EndpointInputs) -> Option<Duration> {
    let from_env = ENV_CHALLENGE
        .iter()
        .find_map(|name| inputs.var(name)?.parse::<u64>().ok());
    let ms = from_env.or(inputs.config.handshake_timeout_ms)?;
    Some(Duration::from_millis(ms.max(CHALLENGE_TIMEOUT_MIN_MS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

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

    /// Flag, environment, configuration; the URL and where it was found.
    type UrlRow<'a> = (
        Option<&'a str>,
        &'a [(&'a str, &'a str)],
        &'a GatewayConfig,
        &'a str,
        UrlSource,
    );

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
        let rows: [UrlRow<'_>; 11] = [
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
    fn the_source_of_the_url_decides_who_is_asked_for_credentials() {
        let text = |text: &str| Some(ConfigSecret::Text(Secret::new(text.to_owned())));
        let env = [("OPENCLAW_GATEWAY_TOKEN", "ENV")];
        let env_url = [env[0], ("OPENCLAW_GATEWAY_URL", "ws://127.0.0.1:1")];
        let rows: [(Option<&str>, &[_], bool, Option<&str>); 5] = [
            (Some("ws://127.0.0.1:1"), &env, false, None),
            (None, &env_url, true, Some("ENV")),
            (None, &env, false, Some("ENV")),
            (None, &env, true, Some("REMOTE")),
            (None, &[], false, Some("OWN")),
        ];
        for (url, env, remote, expected) in rows {
            let mut with = inputs(url, env);
            with.config.remote = remote;
            with.config.secrets.auth_token = text("OWN");
            with.config.secrets.remote_token = text("REMOTE");
            let found = Endpoint::resolve(&with).expect("an endpoint").credentials;
            let token = found.token.as_ref().map(|token| token.expose().as_str());
            assert_eq!(token, expected, "{url:?} {env:?} {remote}");
        }
        let mut with = inputs(None, &[]);
        with.config.secrets.auth_token = Some(ConfigSecret::Reference {
            source: "exec".to_owned(),
            id: "vault".to_owned(),
        });
        let error = Endpoint::resolve(&with).expect_err("not ours to resolve");
        assert!(error.to_string().contains("gateway.auth.token"), "{error}");
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
    fn plain_text_to_anywhere_is_refused_before_connecting() {
        let allow = ("OPENCLAW_ALLOW_INSECURE_PRIVATE_WS", "1");
        let found = |url, env: &[_]| Endpoint::resolve(&inputs(Some(url), env));
        for url in ["ws://example.com:1", "http://8.8.8.8", "ws://[2001:db8::1]"] {
            let error = found(url, &[]).expect_err(url);
            assert!(matches!(error, EndpointError::Plaintext { .. }), "{error}");
        }
        assert!(found("ws://example.com:1", &[allow]).is_ok());
        assert!(found("ws://8.8.8.8", &[allow]).is_err());
        assert!(found("wss://example.com:1", &[]).is_ok());
        assert!(found("https://8.8.8.8", &[]).is_ok());
        assert!(found("ws://[fd00::1]:1", &[]).is_ok());
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
