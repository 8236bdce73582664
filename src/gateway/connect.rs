//! The opening of the conversation: what we ask, what the Gateway grants, and what a refusal means.
//!
//! Source: OpenClaw 2026.6.11, handshake, authentication choice, pairing.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::clock::Now;
use crate::codec::json_text::write_string;
use crate::codec::object::from_object;
use crate::gateway::endpoint::Credentials;
use crate::gateway::frame::{ErrorBody, whole_number};
use crate::gateway::identity::{Claim, DeviceIdentity, ROLE, StoredToken};
use crate::limits::Limits;
use crate::secret::{Quoted, Secret};

/// How we present ourselves. The Gateway has closed lists for id and mode, and both decide what a
/// device may do, so a drop-in says what the original says; the display name is shown as who
/// resolved an approval.
const CLIENT_ID: &str = "cli";
const CLIENT_MODE: &str = "cli";
const CLIENT_DISPLAY_NAME: &str = "OpenClaw MCP";
const CLIENT_VERSION: &str = "2026.6.11";
const SCOPES: [&str; 3] = ["operator.read", "operator.write", "operator.approvals"];

/// The `auth` member of one connect request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Auth<'a> {
    token: Option<&'a str>,
    device_token: Option<&'a str>,
    password: Option<&'a str>,
}

impl<'a> Auth<'a> {
    /// What to show. The device's own token is shown when nothing else is given, and beside a given
    /// token on the one retry after that token was refused.
    pub(super) fn choose(
        given: &'a Credentials,
        stored: Option<&'a StoredToken>,
        with_device_token: bool,
    ) -> Self {
        let token = given.token.as_ref().map(|token| token.expose().as_str());
        let password = given.password.as_ref().map(|word| word.expose().as_str());
        let stored = stored.map(|stored| stored.token.expose().as_str());
        let alone = token.is_none() && password.is_none();
        let device_token = stored.filter(|_| alone || (with_device_token && token.is_some()));
        Self {
            token: token.or(device_token),
            device_token,
            password,
        }
    }

    /// Whether the token that the Gateway once issued is among it.
    pub(super) const fn shows_device_token(&self) -> bool {
        self.device_token.is_some()
    }

    fn write(&self, out: &mut String) {
        let members = [
            ("token", self.token),
            ("deviceToken", self.device_token),
            ("password", self.password),
        ];
        let mut before = r#","auth":{"#;
        for (name, value) in members {
            let Some(value) = value else { continue };
            out.push_str(before);
            write_string(out, name);
            out.push(':');
            write_string(out, value);
            before = ",";
        }
        if before == "," {
            out.push('}');
        }
    }
}

/// The `params` of the connect request that answers a challenge, signed now.
pub(super) fn connect_params(
    identity: &DeviceIdentity,
    auth: &Auth<'_>,
    platform: &str,
    nonce: &str,
    now: Now,
) -> String {
    let claim = Claim {
        client_id: CLIENT_ID,
        client_mode: CLIENT_MODE,
        role: ROLE,
        scopes: &SCOPES,
        signed_at_ms: now.unix_ms,
        token: auth.token.unwrap_or_default(),
        nonce,
        platform,
        device_family: "",
    };
    let mut out = String::with_capacity(1024);
    out.push_str(r#"{"minProtocol":4,"maxProtocol":4,"client":{"#);
    let client = [
        ("id", CLIENT_ID),
        ("displayName", CLIENT_DISPLAY_NAME),
        ("version", CLIENT_VERSION),
        ("platform", platform),
        ("mode", CLIENT_MODE),
    ];
    write_members(&mut out, &client);
    out.push_str(r#"},"caps":[]"#);
    auth.write(&mut out);
    out.push_str(r#","role":"#);
    write_string(&mut out, ROLE);
    out.push_str(r#","scopes":["#);
    for (i, scope) in SCOPES.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_string(&mut out, scope);
    }
    out.push_str(r#"],"device":{"#);
    let device = [
        ("id", identity.device_id()),
        ("publicKey", &identity.public_key()),
        ("signature", &identity.sign(&claim)),
    ];
    write_members(&mut out, &device);
    out.push_str(&format!(r#","signedAt":{},"nonce":"#, now.unix_ms));
    write_string(&mut out, nonce);
    out.push_str("}}");
    out
}

fn write_members(out: &mut String, members: &[(&str, &str)]) {
    for (i, (name, value)) in members.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_string(out, name);
        out.push(':');
        write_string(out, value);
    }
}

/// The nonce of a `connect.challenge`; `None` when there is none worth signing.
pub(super) fn nonce_of(payload: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    struct Challenge {
        nonce: String,
    }
    let challenge: Challenge = from_object(payload?.get()).ok()?;
    let nonce = challenge.nonce.trim();
    (!nonce.is_empty()).then(|| nonce.to_owned())
}

/// What a Gateway grants in its hello, as far as it concerns us.
#[derive(Debug)]
pub(super) struct Hello {
    /// Its version, for people.
    pub(super) version: String,
    /// The longest frame it takes from us, in bytes.
    pub(super) frame_bytes_max: usize,
    /// It promises a frame at least this often.
    pub(super) tick_interval: Duration,
    /// The token it issued to this device.
    pub(super) device_token: Option<StoredToken>,
}

/// The tick interval of a Gateway that states none. Source: OpenClaw 2026.6.11, hello-ok policy.
const TICK_INTERVAL_DEFAULT: Duration = Duration::from_secs(30);

impl Hello {
    /// Reads the payload of an accepted connect request. A member that is missing or odd takes its
    /// default: the connection stands either way. `None` when it is no hello at all.
    pub(super) fn parse(payload: Option<&RawValue>, limits: &Limits, now: Now) -> Option<Self> {
        let hello: HelloMembers<'_> = from_object(payload?.get()).ok()?;
        let policy: PolicyMembers<'_> = part(hello.policy);
        let auth: AuthMembers = part(hello.auth);
        let server: ServerMembers = part(hello.server);
        let shortest = limits.gateway_tick_interval_min;
        let tick = policy.tick_interval_ms.and_then(whole_number);
        let tick = tick.map_or(TICK_INTERVAL_DEFAULT, Duration::from_millis);
        let payload_max = policy.max_payload.and_then(whole_number);
        let payload_max = payload_max.and_then(|bytes| usize::try_from(bytes).ok());
        let payload_max = payload_max.filter(|bytes| *bytes > 0);
        let token = auth.device_token.filter(|token| !token.trim().is_empty());
        Some(Self {
            version: server.version.unwrap_or_else(|| "unknown".to_owned()),
            frame_bytes_max: payload_max.unwrap_or(limits.gateway_message_bytes_max),
            tick_interval: tick.clamp(shortest, shortest.saturating_mul(100)),
            device_token: token.map(|token| StoredToken {
                token: Secret::new(token),
                role: auth.role.unwrap_or_else(|| ROLE.to_owned()),
                scopes: auth.scopes.unwrap_or_default(),
                updated_at_ms: now.unix_ms,
            }),
        })
    }
}

#[derive(Deserialize)]
struct HelloMembers<'a> {
    #[serde(borrow, default)]
    server: Option<&'a RawValue>,
    #[serde(borrow, default)]
    auth: Option<&'a RawValue>,
    #[serde(borrow, default)]
    policy: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct ServerMembers {
    version: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicyMembers<'a> {
    #[serde(borrow, default)]
    max_payload: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tick_interval_ms: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AuthMembers {
    role: Option<String>,
    scopes: Option<Vec<String>>,
    device_token: Option<String>,
}

/// A part of a message of which we only use what we understand.
fn part<'a, T: Default + Deserialize<'a>>(raw: Option<&'a RawValue>) -> T {
    raw.and_then(|raw| from_object(raw.get()).ok())
        .unwrap_or_default()
}

/// What a Gateway will not have from us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalKind {
    /// Token, password or scopes.
    Credentials,
    /// This device, until somebody approves it there.
    Pairing,
    /// The device key or its signature.
    Device,
    /// Our protocol version.
    Protocol,
    /// The request itself.
    Request,
}

/// A Gateway that does not let us in, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What it objects to.
    pub kind: RefusalKind,
    /// Whose refusal it is.
    pub url: String,
    /// The finest code it gave, such as `AUTH_TOKEN_MISMATCH`.
    pub code: String,
    /// Its own words, unescaped and of any length.
    pub message: String,
    /// The next step, for a person.
    pub fix: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url, fix, .. } = self;
        let message = Quoted(&self.message);
        write!(f, "gateway {url} refused the connection: {message}; {fix}")
    }
}

/// What to do after a refused connect or subscribe request.
#[derive(Debug)]
pub(super) enum Verdict {
    /// The Gateway is still starting: come back so much later.
    Starting(Duration),
    /// A passing trouble: back off and try again.
    Passing,
    /// It will be the same next time, until somebody does something.
    Standing(Refusal),
}

/// Bounds and default of the wait that a starting Gateway asks for, in milliseconds. Source:
/// OpenClaw.
const STARTING_WAIT_MS: (u64, u64, u64) = (100, 500, 2_000);

impl Verdict {
    /// Judges a refusal by the Gateway at `url`.
    pub(super) fn of(error: &ErrorBody<'_>, url: &str) -> Self {
        let details: Details = part(error.details);
        if error.retryable && error.code == "UNAVAILABLE" {
            let (least, usual, most) = STARTING_WAIT_MS;
            let wait = error.retry_after_ms.unwrap_or(usual).clamp(least, most);
            return Self::Starting(Duration::from_millis(wait));
        }
        let code = details.code.unwrap_or_else(|| error.code.to_string());
        let told_to_wait = details.recommended_next_step.as_deref() == Some("wait_then_retry")
            || details.pause_reconnect == Some(false)
            || code == "AUTH_RATE_LIMITED";
        let kind = match &*code {
            "PAIRING_REQUIRED" | "NOT_PAIRED" => RefusalKind::Pairing,
            "PROTOCOL_MISMATCH" | "CLIENT_VERSION_MISMATCH" => RefusalKind::Protocol,
            code if code.starts_with("AUTH_") => RefusalKind::Credentials,
            code if code.contains("DEVICE_IDENTITY") || code.starts_with("DEVICE_AUTH_") => {
                RefusalKind::Device
            }
            _ => RefusalKind::Request,
        };
        let standing = kind != RefusalKind::Request || error.code == "INVALID_REQUEST";
        if told_to_wait || !standing {
            return Self::Passing;
        }
        Self::Standing(Refusal {
            kind,
            url: url.to_owned(),
            fix: fix_for(kind, &code, details.request_id.as_deref()),
            code,
            message: error.message.to_string(),
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    code: Option<String>,
    recommended_next_step: Option<String>,
    pause_reconnect: Option<bool>,
    request_id: Option<String>,
}

/// The next step after a standing refusal.
fn fix_for(kind: RefusalKind, code: &str, request_id: Option<&str>) -> String {
    let fix = match kind {
        RefusalKind::Credentials if code.starts_with("AUTH_PASSWORD") => {
            "give the gateway's password with --password-file FILE"
        }
        RefusalKind::Credentials if code == "AUTH_DEVICE_TOKEN_MISMATCH" => {
            "the device token was no longer good and is removed, \
             give the gateway's token with --token-file FILE"
        }
        RefusalKind::Credentials if code == "AUTH_SCOPE_MISMATCH" => {
            "approve the scopes of this device on the gateway host: openclaw devices list"
        }
        RefusalKind::Credentials => {
            "give the gateway's token with --token-file FILE, \
             or its password with --password-file FILE"
        }
        RefusalKind::Pairing => match request_id.filter(|id| is_plain_word(id)) {
            Some(id) => {
                return format!(
                    "approve this device on the gateway host: openclaw devices approve {id}"
                );
            }
            None => "approve this device on the gateway host: openclaw devices list",
        },
        RefusalKind::Device if code == "DEVICE_AUTH_SIGNATURE_EXPIRED" => {
            "set the clock of this machine, it must be within 120 s of the gateway's"
        }
        RefusalKind::Device => {
            "move identity/device.json of the state directory away to become a new device"
        }
        RefusalKind::Protocol => {
            "this program speaks gateway protocol 4 only, use an OpenClaw that does too"
        }
        RefusalKind::Request => "check that the gateway is an OpenClaw 2026.6 or compatible",
    };
    fix.to_owned()
}

/// Whether a peer's id may stand in a command line that a person will copy.
fn is_plain_word(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=128).contains(&id.len()) && id.bytes().all(plain) && !id.starts_with('-')
}
