//! Who may call: Host, Origin and the bearer token.

use std::fmt;

use super::authority::{Authority, Host};
use super::{HeadView, HttpRefusal, Once, trimmed};
use crate::crypto::{equal_in_constant_time, hex, hmac_sha256};
use crate::secret::{Quoted, Secret};

/// Who may call. Made once, when the listener is configured.
#[derive(Clone, Debug)]
pub struct AccessRules {
    hosts: Vec<HostRule>,
    origins: Vec<String>,
    bearer: Option<Bearer>,
    loopback_only: bool,
}

#[derive(Clone, Debug)]
struct HostRule {
    host: Host<String>,
    port: Option<u16>,
}

#[derive(Clone, Debug)]
struct Bearer {
    token: Secret<String>,
    principal: Principal,
}

impl AccessRules {
    /// Reads the rules.
    ///
    /// * `hosts`: `host` (any port) or `host:port` that a Host field may name beside loopback names;
    /// * `origins`: `scheme://host[:port]` that an Origin field may name beside those of loopback hosts;
    /// * `bearer`: the token that every request must carry;
    /// * `loopback_only`: whether the listener is bound to a loopback address. When it is not, a token is
    ///   required, and any address literal passes as Host: no name server can point one elsewhere.
    ///
    /// # Errors
    /// The first entry that can never match, or the token that is missing.
    pub fn new(
        hosts: &[String],
        origins: &[String],
        bearer: Option<Secret<String>>,
        loopback_only: bool,
    ) -> Result<Self, RuleError> {
        if bearer.is_none() && !loopback_only {
            return Err(RuleError::NoToken);
        }
        Ok(Self {
            hosts: each(hosts, host_rule)?,
            origins: each(origins, origin_rule)?,
            bearer: bearer.map(Bearer::new).transpose()?,
            loopback_only,
        })
    }

    /// The rules of a loopback listener without a token: loopback names and origins only.
    #[must_use]
    pub const fn loopback() -> Self {
        Self {
            hosts: Vec::new(),
            origins: Vec::new(),
            bearer: None,
            loopback_only: true,
        }
    }

    fn admits_host(&self, found: &Authority<'_>) -> bool {
        found.host.is_loopback()
            || !self.loopback_only && found.host.is_interface_address()
            || self.hosts.iter().any(|rule| {
                rule.host.is(&found.host)
                    && rule
                        .port
                        .is_none_or(|port| port == found.port.unwrap_or(HTTP_PORT))
            })
    }

    fn admits_origin(&self, origin: &str) -> bool {
        let is_loopback = web_authority(origin).is_some_and(|found| found.host.is_loopback());
        is_loopback
            || self
                .origins
                .iter()
                .any(|known| known.eq_ignore_ascii_case(origin))
    }
}

impl Default for AccessRules {
    /// Loopback names and origins, no token.
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            origins: Vec::new(),
            bearer: None,
            loopback_only: true,
        }
    }
}

/// The port that a Host field without one means. RFC 9110 §4.2.1.
const HTTP_PORT: u16 = 80;

impl Bearer {
    fn new(token: Secret<String>) -> Result<Self, RuleError> {
        let text = token.expose();
        if text.is_empty() {
            return Err(RuleError::EmptyToken);
        }
        // What a header can carry as one word.
        if let Some(offset) = text.bytes().position(|b| !b.is_ascii_graphic()) {
            return Err(RuleError::TokenByte(text.as_bytes()[offset], offset));
        }
        let principal = Principal::of_token(text);
        Ok(Self { token, principal })
    }
}

/// A rule that cannot be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleError {
    /// An allowed host that is neither `host` nor `host:port`.
    Host(String),
    /// An allowed origin that is not `scheme://host[:port]`.
    Origin(String),
    /// A listener beyond loopback without a token.
    NoToken,
    /// The token is empty.
    EmptyToken,
    /// The token has a byte that is not visible ASCII: value and offset.
    TokenByte(u8, usize),
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(found) => write!(
                f,
                "an allowed host must be HOST or HOST:PORT (found {})",
                Quoted(found)
            ),
            Self::Origin(found) => write!(
                f,
                "an allowed origin must be SCHEME://HOST or SCHEME://HOST:PORT (found {})",
                Quoted(found)
            ),
            Self::NoToken => f.write_str(
                "a listener that is not bound to a loopback address needs a bearer token",
            ),
            Self::EmptyToken => f.write_str("the bearer token is empty"),
            Self::TokenByte(byte, offset) => write!(
                f,
                "the bearer token must be visible ASCII (found byte 0x{byte:02x} at offset {offset})"
            ),
        }
    }
}

impl std::error::Error for RuleError {}

fn each<T>(
    entries: &[String],
    read: impl Fn(&str) -> Result<T, RuleError>,
) -> Result<Vec<T>, RuleError> {
    entries.iter().map(|entry| read(entry)).collect()
}

fn host_rule(entry: &str) -> Result<HostRule, RuleError> {
    let Authority { host, port } =
        Authority::parse(entry).ok_or_else(|| RuleError::Host(entry.to_owned()))?;
    let host = match host {
        Host::Address(address) => Host::Address(address),
        Host::Name(name) => Host::Name(name.to_owned()),
    };
    Ok(HostRule { host, port })
}

/// The origin as a browser serialises it: no default port. RFC 6454 §6.2.
fn origin_rule(entry: &str) -> Result<String, RuleError> {
    let bad = || RuleError::Origin(entry.to_owned());
    let (scheme, rest) = entry.split_once("://").ok_or_else(bad)?;
    let scheme_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    if scheme.is_empty() || !scheme.bytes().all(scheme_byte) {
        return Err(bad());
    }
    let found = Authority::parse(rest).ok_or_else(bad)?;
    let default_port = match scheme.to_ascii_lowercase().as_str() {
        "http" => Some(HTTP_PORT),
        "https" => Some(443),
        _ => None,
    };
    let without_port = match rest.rsplit_once(':') {
        Some((host, _)) if !rest.ends_with(']') => host,
        Some(_) | None => rest,
    };
    let host = if found.port.is_none() || found.port == default_port {
        without_port
    } else {
        rest
    };
    Ok(format!("{scheme}://{host}"))
}

/// The authority of an origin with a scheme of the web.
fn web_authority(origin: &str) -> Option<Authority<'_>> {
    let (scheme, rest) = origin.split_once("://")?;
    if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") {
        Authority::parse(rest)
    } else {
        None
    }
}

/// A short name for the caller that stays the same for the same credentials: what sessions and sealed state
/// are bound to. It tells nothing of the token, unless that can be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Principal(Option<[u8; PRINCIPAL_DIGITS]>);

const PRINCIPAL_DIGITS: usize = 16;

impl Principal {
    /// Whoever reaches a listener that asks for no token.
    pub const ANYBODY: Self = Self(None);

    fn of_token(token: &str) -> Self {
        let digest = hmac_sha256(token.as_bytes(), &[b"drawspan principal"]);
        let mut digits = [0; PRINCIPAL_DIGITS];
        digits.copy_from_slice(&hex(&digest).as_bytes()[..PRINCIPAL_DIGITS]);
        Self(Some(digits))
    }

    /// The name: `anybody`, or 16 hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            None => "anybody",
            Some(digits) => std::str::from_utf8(digits).expect("hexadecimal digits are text"),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Checks Host, Origin, the URL and the bearer token, in this order. For every request, whatever its method
/// and path, before its body is read.
///
/// # Errors
/// The refusal to answer with; see the table of the [module](super).
pub fn check_access<H: HeadView + ?Sized>(
    head: &H,
    rules: &AccessRules,
) -> Result<Principal, HttpRefusal> {
    check_host(head, rules)?;
    check_origin(head, rules)?;
    check_query(head.target())?;
    check_bearer(head, rules)
}

/// Source: RFC 9112 §3.2 (exactly one, else 400); reliability-security T23.
fn check_host<H: HeadView + ?Sized>(head: &H, rules: &AccessRules) -> Result<(), HttpRefusal> {
    let bad = |what: String| Err(HttpRefusal::new(400, &format!("Host {what}")));
    let value = match head.once("host") {
        Once::Value(value) => trimmed(value),
        Once::Absent => return bad("is missing".to_owned()),
        Once::Repeated(count) => return bad(format!("may stand once (found {count})")),
        Once::NotText => return bad("is no text".to_owned()),
    };
    let Some(found) = Authority::parse(value) else {
        return bad(format!(
            "must be HOST or HOST:PORT (found {})",
            Quoted(value)
        ));
    };
    if rules.admits_host(&found) {
        return Ok(());
    }
    let message = format!(
        "Host must be a loopback name or an allowed host (found {}); --allow-host allows one",
        Quoted(value)
    );
    Err(HttpRefusal::new(403, &message))
}

/// Source: Spec 2026-07-28 basic/transports/streamable-http (Security & Endpoint).
fn check_origin<H: HeadView + ?Sized>(head: &H, rules: &AccessRules) -> Result<(), HttpRefusal> {
    let refuse = |what: String| Err(HttpRefusal::new(403, &format!("Origin {what}")));
    match head.once("origin") {
        Once::Absent => Ok(()),
        Once::Value(value) if rules.admits_origin(trimmed(value)) => Ok(()),
        Once::Value(value) => refuse(format!(
            "must be that of a loopback host or an allowed one (found {}); --allow-origin allows one",
            Quoted(trimmed(value))
        )),
        Once::Repeated(count) => refuse(format!("may stand once (found {count})")),
        Once::NotText => refuse("is no text".to_owned()),
    }
}

/// URLs end up in logs and histories. Source: Spec 2026-07-28 basic/authorization (Token Requirements).
fn check_query(target: &str) -> Result<(), HttpRefusal> {
    let Some((_, query)) = target.split_once('?') else {
        return Ok(());
    };
    let name_of = |pair: &str| {
        pair.split('=')
            .next()
            .is_some_and(|name| name == TOKEN_NAME)
    };
    if !query.split('&').any(name_of) {
        return Ok(());
    }
    let message = format!(
        "{TOKEN_NAME} must not stand in the URL (found there); send Authorization: Bearer TOKEN"
    );
    Err(challenge(400, Some("invalid_request"), &message))
}

/// RFC 6750 §2.3.
const TOKEN_NAME: &str = "access_token";

/// Source: RFC 6750 §2.1 and §3.1. The value is never quoted.
fn check_bearer<H: HeadView + ?Sized>(
    head: &H,
    rules: &AccessRules,
) -> Result<Principal, HttpRefusal> {
    let Some(bearer) = &rules.bearer else {
        return Ok(Principal::ANYBODY);
    };
    let value = match head.once("authorization") {
        Once::Value(value) => trimmed(value),
        Once::Absent => {
            let message = "Authorization is missing; send Authorization: Bearer TOKEN";
            return Err(challenge(401, None, message));
        }
        Once::Repeated(count) => {
            let message = format!("Authorization may stand once (found {count})");
            return Err(challenge(400, Some("invalid_request"), &message));
        }
        Once::NotText => {
            let message = "Authorization is no text";
            return Err(challenge(401, Some("invalid_token"), message));
        }
    };
    let token = match value.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => {
            token.trim_start_matches(' ')
        }
        Some(_) | None => {
            let message = "Authorization must have the scheme Bearer (found another)";
            return Err(challenge(401, None, message));
        }
    };
    if equal_in_constant_time(token.as_bytes(), bearer.token.expose().as_bytes()) {
        Ok(bearer.principal)
    } else {
        let message = "Authorization must hold the token of this listener (found another)";
        Err(challenge(401, Some("invalid_token"), message))
    }
}

fn challenge(status: u16, error: Option<&str>, message: &str) -> HttpRefusal {
    let value = match error {
        Some(error) => format!("Bearer error=\"{error}\""),
        None => "Bearer".to_owned(),
    };
    HttpRefusal::new(status, message).with("WWW-Authenticate", value)
}
