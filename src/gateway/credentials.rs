//! What opens a Gateway: flags, environment and configuration weighed against each other.
//!
//! Source: OpenClaw 2026.6.11, `mcp serve` credentials.
//! Never: reads a file or a variable; secret files are read by `io/identity_files.rs`.

use std::collections::BTreeMap;
use std::fmt;

use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::secret::{Quoted, Secret};

/// What we show a Gateway besides the device key. Both may be given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Shared token.
    pub token: Option<Secret<String>>,
    /// Shared password.
    pub password: Option<Secret<String>>,
}

/// The secrets of OpenClaw's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredSecrets {
    /// `gateway.auth.token`: what the Gateway of this configuration asks for.
    pub auth_token: Option<ConfigSecret>,
    /// `gateway.auth.password`.
    pub auth_password: Option<ConfigSecret>,
    /// `gateway.remote.token`: what another Gateway asks for.
    pub remote_token: Option<ConfigSecret>,
    /// `gateway.remote.password`.
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

/// Why there are no credentials. For the person who set it up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialError {
    /// A secret and a file with it were both given; the flag's name.
    BothGiven(&'static str),
    /// A secret of the configuration that cannot be had.
    Reference {
        /// Its key.
        key: &'static str,
        /// Why not.
        why: String,
    },
}

impl fmt::Display for CredentialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BothGiven(name) => {
                let which = format_args!("--{name} or --{name}-file");
                write!(f, "use either {which} for the gateway {name}, not both")
            }
            Self::Reference { key, why } => {
                let fix = "use --token-file or --password-file";
                write!(f, "configured secret {key} cannot be had: {why}; {fix}")
            }
        }
    }
}

impl std::error::Error for CredentialError {}

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
) -> Result<Option<SecretFlag>, CredentialError> {
    match (filled(inline), filled(file)) {
        (Some(_), Some(_)) => Err(CredentialError::BothGiven(name)),
        (Some(value), None) => Ok(Some(SecretFlag::Inline(Secret::new(value.to_owned())))),
        (None, Some(path)) => Ok(Some(SecretFlag::File(path.to_owned()))),
        (None, None) => Ok(None),
    }
}

/// What to tell somebody who gave a secret on the command line.
#[must_use]
pub fn inline_secret_warning(name: &str) -> Diagnostic {
    let prefer = format_args!("prefer --{name}-file or an environment variable");
    let message = format!("--{name} can be seen in process listings; {prefer}");
    Diagnostic::new(Level::Warning, Subject::Gateway, message)
}

/// Who is asked when no flag was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Nobody: the URL was typed, and every other secret was meant for another Gateway.
    Nobody,
    /// The environment alone, which gave the URL too.
    Environment,
    /// Environment, then `gateway.auth`, then `gateway.remote`.
    Local,
    /// Token: `gateway.remote`, environment, `gateway.auth`. Password: environment first.
    Remote,
}

/// Everything that may hold a secret.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sources<'a> {
    pub(super) flags: &'a Credentials,
    pub(super) env: &'a BTreeMap<String, String>,
    pub(super) config: &'a ConfiguredSecrets,
}

impl Sources<'_> {
    /// The credentials to show.
    pub(super) fn choose(&self, order: Order) -> Result<Credentials, CredentialError> {
        let flags = Credentials {
            token: trimmed(self.flags.token.as_ref()),
            password: trimmed(self.flags.password.as_ref()),
        };
        if flags.token.is_some() || flags.password.is_some() {
            return Ok(flags);
        }
        let env = Credentials {
            token: self.env_secret("OPENCLAW_GATEWAY_TOKEN"),
            password: self.env_secret("OPENCLAW_GATEWAY_PASSWORD"),
        };
        match order {
            Order::Nobody => Ok(Credentials::default()),
            Order::Environment => Ok(env),
            Order::Local => self.local(env),
            Order::Remote => self.remote(env),
        }
    }

    fn local(&self, env: Credentials) -> Result<Credentials, CredentialError> {
        // A configured secret of the Gateway itself rules the remote one out even when it is not
        // there.
        let own_else_remote = |own: Configured<'_>, remote: Configured<'_>| match own {
            (_, None) => self.reveal(remote),
            (_, Some(_)) => self.reveal(own),
        };
        let [own_token, own_password, remote_token, remote_password] = self.configured();
        Ok(Credentials {
            token: match env.token {
                Some(token) => Some(token),
                None => own_else_remote(own_token, remote_token)?,
            },
            password: match env.password {
                Some(password) => Some(password),
                None => own_else_remote(own_password, remote_password)?,
            },
        })
    }

    fn remote(&self, env: Credentials) -> Result<Credentials, CredentialError> {
        let [own_token, own_password, remote_token, remote_password] = self.configured();
        let token = match (self.reveal(remote_token)?, env.token) {
            (Some(token), _) | (None, Some(token)) => Some(token),
            (None, None) => self.reveal(own_token)?,
        };
        let password = match env.password {
            Some(password) => Some(password),
            None => match self.reveal(remote_password)? {
                Some(password) => Some(password),
                None => self.reveal(own_password)?,
            },
        };
        Ok(Credentials { token, password })
    }

    fn configured(&self) -> [Configured<'_>; 4] {
        let config = self.config;
        [
            ("gateway.auth.token", config.auth_token.as_ref()),
            ("gateway.auth.password", config.auth_password.as_ref()),
            ("gateway.remote.token", config.remote_token.as_ref()),
            ("gateway.remote.password", config.remote_password.as_ref()),
        ]
    }

    /// The value of a configured secret; `None` when it is blank or names a variable that is not
    /// set.
    fn reveal(
        &self,
        (key, secret): Configured<'_>,
    ) -> Result<Option<Secret<String>>, CredentialError> {
        let unavailable = |why| Err(CredentialError::Reference { key, why });
        match secret {
            None => Ok(None),
            Some(ConfigSecret::Text(text)) => {
                let text = substitute(text.expose(), |name| var(self.env, name));
                let text = filled(Some(&text)).filter(|text| !has_placeholder(text));
                Ok(text.map(|text| Secret::new(text.to_owned())))
            }
            Some(ConfigSecret::Reference { source, id }) if source == "env" => {
                match var(self.env, id) {
                    Some(value) => Ok(Some(Secret::new(value.to_owned()))),
                    None => unavailable(format!("environment variable {} is not set", Quoted(id))),
                }
            }
            Some(ConfigSecret::Reference { source, .. }) => {
                let source = Quoted(source);
                unavailable(format!(
                    "only OpenClaw resolves references of source {source}"
                ))
            }
        }
    }

    fn env_secret(&self, name: &str) -> Option<Secret<String>> {
        let value = var(self.env, name).filter(|value| !has_placeholder(value));
        value.map(|value| Secret::new(value.to_owned()))
    }
}

/// A key of the configuration and what stands there.
type Configured<'a> = (&'static str, Option<&'a ConfigSecret>);

/// A variable; blank counts as unset.
pub(super) fn var<'a>(env: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    filled(env.get(name).map(String::as_str))
}

/// Trimmed text; blank counts as absent.
pub(super) fn filled(text: Option<&str>) -> Option<&str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const ENV: [(&str, &str); 2] = [
        ("OPENCLAW_GATEWAY_TOKEN", " ET "),
        ("OPENCLAW_GATEWAY_PASSWORD", "EP"),
    ];

    fn secret(text: &str) -> Option<Secret<String>> {
        Some(Secret::new(text.to_owned()))
    }

    fn text(text: &str) -> Option<ConfigSecret> {
        secret(text).map(ConfigSecret::Text)
    }

    fn reference(source: &str, id: &str) -> Option<ConfigSecret> {
        let (source, id) = (source.to_owned(), id.to_owned());
        Some(ConfigSecret::Reference { source, id })
    }

    fn full() -> ConfiguredSecrets {
        ConfiguredSecrets {
            auth_token: text("AT"),
            auth_password: text("AP"),
            remote_token: text("RT"),
            remote_password: text("RP"),
        }
    }

    /// Token and password that are chosen, `-` for none.
    fn chosen(
        order: Order,
        flags: &Credentials,
        env: &[(&str, &str)],
        config: &ConfiguredSecrets,
    ) -> Result<String, String> {
        let own = |text: &&str| (*text).to_owned();
        let env = env
            .iter()
            .map(|(name, value)| (own(name), own(value)))
            .collect();
        let sources = Sources {
            flags,
            env: &env,
            config,
        };
        let word = |secret: Option<Secret<String>>| {
            secret.map_or_else(|| "-".to_owned(), |secret| secret.expose().clone())
        };
        match sources.choose(order) {
            Ok(Credentials { token, password }) => {
                Ok(format!("{} {}", word(token), word(password)))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn by(order: Order, env: &[(&str, &str)], config: &ConfiguredSecrets) -> String {
        chosen(order, &Credentials::default(), env, config).expect("credentials")
    }

    #[test]
    fn a_flag_is_used_alone() {
        let flags = Credentials {
            token: None,
            password: secret(" FP\n"),
        };
        for order in [
            Order::Nobody,
            Order::Environment,
            Order::Local,
            Order::Remote,
        ] {
            assert_eq!(chosen(order, &flags, &ENV, &full()), Ok("- FP".to_owned()));
        }
        let blank = Credentials {
            token: secret(" "),
            password: None,
        };
        let found = chosen(Order::Environment, &blank, &ENV, &full());
        assert_eq!(found, Ok("ET EP".to_owned()), "a blank flag is none");
    }

    #[test]
    fn a_typed_url_gets_no_credential_meant_for_another_gateway() {
        assert_eq!(by(Order::Nobody, &ENV, &full()), "- -");
    }

    #[test]
    fn the_environment_stands_with_its_own_url() {
        assert_eq!(by(Order::Environment, &ENV, &full()), "ET EP");
        assert_eq!(by(Order::Environment, &ENV[..1], &full()), "ET -");
        assert_eq!(by(Order::Environment, &[], &full()), "- -");
    }

    #[test]
    fn local_order_is_environment_then_own_then_remote() {
        let local = |env: &[(&str, &str)], config: &_| by(Order::Local, env, config);
        assert_eq!(local(&ENV, &full()), "ET EP");
        assert_eq!(local(&ENV[..1], &full()), "ET AP");
        assert_eq!(local(&[], &full()), "AT AP");
        let no_own = ConfiguredSecrets {
            auth_token: None,
            auth_password: None,
            ..full()
        };
        assert_eq!(local(&[], &no_own), "RT RP");
        let unset = ConfiguredSecrets {
            auth_token: text("${NOT_SET}"),
            ..full()
        };
        assert_eq!(
            local(&[], &unset),
            "- AP",
            "a configured token rules the remote one out"
        );
        assert_eq!(
            local(&[("OPENCLAW_GATEWAY_TOKEN", "${X}")], &full()),
            "AT AP"
        );
    }

    #[test]
    fn remote_order_is_remote_then_environment_but_the_password_the_other_way() {
        let remote = |env: &[(&str, &str)], config: &_| by(Order::Remote, env, config);
        assert_eq!(remote(&ENV, &full()), "RT EP");
        assert_eq!(remote(&[], &full()), "RT RP");
        let no_remote = ConfiguredSecrets {
            remote_token: None,
            remote_password: None,
            ..full()
        };
        assert_eq!(remote(&ENV[..1], &no_remote), "ET AP");
        assert_eq!(remote(&[], &no_remote), "AT AP");
    }

    #[test]
    fn configured_secrets_may_name_variables() {
        let env = [("MY_TOKEN", "s3"), ("EMPTY", ""), ("NEST", "${MY_TOKEN}")];
        let token = |auth_token| {
            let config = ConfiguredSecrets {
                auth_token,
                ..ConfiguredSecrets::default()
            };
            chosen(Order::Local, &Credentials::default(), &env, &config)
        };
        let found = |text: &str| Ok(format!("{text} -"));
        assert_eq!(token(text("${MY_TOKEN}")), found("s3"));
        assert_eq!(token(text("a-${MY_TOKEN}-$${b")), found("a-s3-$${b"));
        assert_eq!(
            token(text("${1}${}")),
            found("${1}${}"),
            "these name nothing"
        );
        assert_eq!(token(text("${EMPTY}")), found("-"));
        assert_eq!(
            token(text("${NEST}")),
            found("-"),
            "what is left over counts as absent"
        );
        assert_eq!(token(text("  ")), found("-"));
        assert_eq!(token(reference("env", "MY_TOKEN")), found("s3"));
        let error = token(reference("env", "NO")).expect_err("not set");
        assert!(
            error.contains("gateway.auth.token") && error.contains("NO"),
            "{error}"
        );
        let error = token(reference("exec", "vault")).expect_err("not ours");
        assert!(
            error.contains("gateway.auth.token") && error.contains("exec"),
            "{error}"
        );
    }

    #[test]
    fn a_reference_that_cannot_win_is_not_resolved() {
        let config = ConfiguredSecrets {
            auth_token: reference("exec", "vault"),
            remote_token: reference("file", "x"),
            ..ConfiguredSecrets::default()
        };
        assert_eq!(by(Order::Local, &ENV, &config), "ET EP");
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
}
