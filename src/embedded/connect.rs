//! Who may come in: the `connect` request, from its parameters to the hello.
//!
//! Checked in this order: parameters, protocol, role, device and signature, credentials. Every refusal
//! names its code in `details`, and the connection is closed with it.
//!
//! Source: openclaw-serve §1.3 to §1.5. Unlike a real Gateway this one pairs every device that has the
//! right credentials, and widens its scopes, without asking: there is nobody to ask.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::journal::{DeviceRecord, Record};
use super::params::Params;
use super::refusal::Refusal;
use super::rpc::{self, Scope};
use super::store::{Device, Store};
use super::views::Object;
use crate::clock::Now;
use crate::crypto::{ed25519_verify, hex, sha256};
use crate::entropy::Entropy;
use crate::limits::Limits;
use crate::secret::Secret;

/// The one protocol this Gateway speaks.
const PROTOCOL: u64 = 4;
/// How far a client's clock may be off. Unit: ms. Source: OpenClaw.
const SIGNED_AT_SKEW_MS: i64 = 120_000;
/// Scopes one client may ask for.
const SCOPES_MAX: usize = 32;
/// Scopes that mean something here; a device token covers no others.
const KNOWN_SCOPES: [&str; 5] = [
    "operator.admin",
    "operator.approvals",
    "operator.pairing",
    "operator.read",
    "operator.write",
];
const CLIENT_IDS: [&str; 13] = [
    "webchat-ui",
    "openclaw-control-ui",
    "openclaw-tui",
    "webchat",
    "cli",
    "gateway-client",
    "openclaw-macos",
    "openclaw-ios",
    "openclaw-android",
    "node-host",
    "test",
    "fingerprint",
    "openclaw-probe",
];
const CLIENT_MODES: [&str; 7] = ["webchat", "cli", "ui", "backend", "node", "probe", "test"];

/// What a client must know to come in; nothing when both are `None`.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// The shared token.
    pub token: Option<Secret>,
    /// The shared password; only used without a token.
    pub password: Option<Secret>,
}

/// A client that came in.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) device: String,
    /// Its display name, else its client id.
    pub(super) name: String,
    pub(super) scopes: Vec<String>,
}

/// A refusal and the close code that follows it.
#[derive(Debug)]
pub(super) struct Turned {
    pub(super) refusal: Refusal,
    pub(super) close_code: u16,
}

impl From<Refusal> for Turned {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            close_code: 1008,
        }
    }
}

/// What a client says about itself.
struct Claim {
    client_id: String,
    client_mode: String,
    name: String,
    platform: String,
    family: String,
    role: String,
    scopes: Vec<String>,
    auth: Auth,
    device: Option<DeviceClaim>,
}

#[derive(Default)]
struct Auth {
    token: Option<String>,
    password: Option<String>,
    device_token: Option<String>,
    bootstrap_token: Option<String>,
}

struct DeviceClaim {
    id: String,
    public_key: String,
    signature: String,
    signed_at_ms: i64,
    nonce: Option<String>,
}

/// Checks a `connect` request against the challenge `nonce`, and pairs the device.
///
/// # Errors
/// What to answer and how to close.
pub(super) fn admit(
    store: &mut Store,
    credentials: &Credentials,
    nonce: &str,
    params: &Params<'_>,
    now: Now,
    entropy: &mut dyn Entropy,
) -> Result<Client, Turned> {
    let claim = Claim::read(params)?;
    let device = check_device(&claim, nonce, now)?;
    let by_device_token = check_credentials(credentials, &claim, store.device(&device))?;
    if !by_device_token {
        pair(store, &device, &claim.scopes, now, entropy)?;
    }
    Ok(Client {
        device,
        name: claim.name,
        scopes: claim.scopes,
    })
}

impl Claim {
    fn read(params: &Params<'_>) -> Result<Self, Turned> {
        params.only(&[
            "minProtocol",
            "maxProtocol",
            "client",
            "caps",
            "commands",
            "permissions",
            "pathEnv",
            "role",
            "scopes",
            "device",
            "auth",
            "locale",
            "userAgent",
        ])?;
        let least = params.integer("minProtocol", 1, false)?;
        let most = params.integer("maxProtocol", 1, false)?;
        let least = least.ok_or_else(|| params.missing("minProtocol"))?;
        let most = most.ok_or_else(|| params.missing("maxProtocol"))?;
        let client = params.object("client")?;
        let client = client.ok_or_else(|| params.missing("client"))?;
        client.only(&[
            "id",
            "displayName",
            "version",
            "platform",
            "deviceFamily",
            "modelIdentifier",
            "mode",
            "instanceId",
        ])?;
        let id = client.one_of("id", &CLIENT_IDS)?;
        let mode = client.one_of("mode", &CLIENT_MODES)?;
        client.required_text("version")?;
        let client_id = id.ok_or_else(|| client.missing("id"))?;
        let claim = Self {
            client_mode: mode.ok_or_else(|| client.missing("mode"))?,
            name: client
                .text("displayName")?
                .unwrap_or_else(|| client_id.clone()),
            client_id,
            platform: client.required_text("platform")?,
            family: client.text("deviceFamily")?.unwrap_or_default(),
            role: params
                .text("role")?
                .unwrap_or_else(|| "operator".to_owned()),
            scopes: params.texts("scopes")?.unwrap_or_default(),
            auth: Auth::read(params)?,
            device: DeviceClaim::read(params)?,
        };
        check_protocol(least, most)?;
        if claim.role != "operator" {
            return Err(Refusal::invalid("invalid role").into());
        }
        if claim.scopes.len() > SCOPES_MAX {
            let rule = format!("must NOT have more than {SCOPES_MAX} items");
            return Err(params.wrong("scopes", &rule).into());
        }
        Ok(claim)
    }
}

impl Auth {
    fn read(params: &Params<'_>) -> Result<Self, Refusal> {
        let Some(auth) = params.object("auth")? else {
            return Ok(Self::default());
        };
        auth.only(&[
            "token",
            "password",
            "deviceToken",
            "bootstrapToken",
            "approvalRuntimeToken",
        ])?;
        Ok(Self {
            token: auth.text("token")?,
            password: auth.text("password")?,
            device_token: auth.text("deviceToken")?,
            bootstrap_token: auth.text("bootstrapToken")?,
        })
    }

    /// The token that the signature covers.
    fn signed_token(&self) -> &str {
        let tokens = [&self.token, &self.device_token, &self.bootstrap_token];
        tokens
            .into_iter()
            .flatten()
            .next()
            .map_or("", String::as_str)
    }
}

impl DeviceClaim {
    fn read(params: &Params<'_>) -> Result<Option<Self>, Refusal> {
        let Some(device) = params.object("device")? else {
            return Ok(None);
        };
        device.only(&["id", "publicKey", "signature", "signedAt", "nonce"])?;
        let signed_at = device.integer("signedAt", 0, false)?;
        let signed_at = signed_at.ok_or_else(|| device.missing("signedAt"))?;
        Ok(Some(Self {
            id: device.required_text("id")?,
            public_key: device.required_text("publicKey")?,
            signature: device.required_text("signature")?,
            signed_at_ms: i64::try_from(signed_at).unwrap_or(i64::MAX),
            nonce: device.text("nonce")?,
        }))
    }
}

fn check_protocol(least: u64, most: u64) -> Result<(), Turned> {
    if (least..=most).contains(&PROTOCOL) {
        return Ok(());
    }
    let details = Object::new()
        .text("code", "PROTOCOL_MISMATCH")
        .int("clientMinProtocol", least)
        .int("clientMaxProtocol", most)
        .int("expectedProtocol", PROTOCOL)
        .int("minimumProbeProtocol", PROTOCOL)
        .end();
    Err(Turned {
        refusal: Refusal::invalid("protocol mismatch").with_details(details),
        close_code: 1002,
    })
}

/// Checks that the client holds the key of its device, and gives the device id.
fn check_device(claim: &Claim, nonce: &str, now: Now) -> Result<String, Refusal> {
    let refuse = |message: &str, code: &str, reason: &str| {
        let details = Object::new()
            .text("code", code)
            .text("reason", reason)
            .end();
        Err(Refusal::invalid(message).with_details(details))
    };
    let Some(device) = &claim.device else {
        let mut refusal = Refusal::invalid("device identity required")
            .with_details(r#"{"code":"DEVICE_IDENTITY_REQUIRED"}"#);
        refusal.code = "NOT_PAIRED";
        return Err(refusal);
    };
    let key = URL_SAFE_NO_PAD.decode(&device.public_key).ok();
    let Some(key) = key.and_then(|key| <[u8; 32]>::try_from(key).ok()) else {
        return refuse(
            "device public key invalid",
            "DEVICE_AUTH_PUBLIC_KEY_INVALID",
            "device-public-key",
        );
    };
    if device.id != hex(&sha256(&key)) {
        return refuse(
            "device identity mismatch",
            "DEVICE_AUTH_DEVICE_ID_MISMATCH",
            "device-id-mismatch",
        );
    }
    if now.unix_ms.abs_diff(device.signed_at_ms) > SIGNED_AT_SKEW_MS.unsigned_abs() {
        return refuse(
            "device signature expired",
            "DEVICE_AUTH_SIGNATURE_EXPIRED",
            "device-signature-stale",
        );
    }
    match device.nonce.as_deref() {
        None => {
            return refuse(
                "device nonce required",
                "DEVICE_AUTH_NONCE_REQUIRED",
                "device-nonce-missing",
            );
        }
        Some(given) if given != nonce => {
            return refuse(
                "device nonce mismatch",
                "DEVICE_AUTH_NONCE_MISMATCH",
                "device-nonce-mismatch",
            );
        }
        Some(_) => {}
    }
    let signature = URL_SAFE_NO_PAD
        .decode(&device.signature)
        .unwrap_or_default();
    let signed = |text: String| ed25519_verify(&key, text.as_bytes(), &signature);
    if !signed(claim.text_v3(device, nonce)) && !signed(claim.text_v2(device, nonce)) {
        return refuse(
            "device signature invalid",
            "DEVICE_AUTH_SIGNATURE_INVALID",
            "device-signature",
        );
    }
    Ok(device.id.clone())
}

impl Claim {
    /// The text of a version 3 signature. Source: openclaw-serve §1.4.
    fn text_v3(&self, device: &DeviceClaim, nonce: &str) -> String {
        format!(
            "v3{}|{}|{}",
            self.text_rest(device, nonce),
            self.platform.to_ascii_lowercase(),
            self.family.to_ascii_lowercase()
        )
    }

    /// The text of a version 2 signature, which does not cover the platform.
    fn text_v2(&self, device: &DeviceClaim, nonce: &str) -> String {
        format!("v2{}", self.text_rest(device, nonce))
    }

    fn text_rest(&self, device: &DeviceClaim, nonce: &str) -> String {
        format!(
            "|{}|{}|{}|{}|{}|{}|{}|{nonce}",
            device.id,
            self.client_id,
            self.client_mode,
            self.role,
            self.scopes.join(","),
            device.signed_at_ms,
            self.auth.signed_token()
        )
    }
}

/// Checks token or password; true when the device token was what let the client in.
fn check_credentials(
    credentials: &Credentials,
    claim: &Claim,
    known: Option<&Device>,
) -> Result<bool, Refusal> {
    let auth = &claim.auth;
    let shared = match (&credentials.token, &credentials.password) {
        (None, None) => return Ok(false),
        (Some(expected), _) => auth.token.as_ref().map(|given| same(expected, given)),
        (None, Some(expected)) => auth.password.as_ref().map(|given| same(expected, given)),
    };
    if shared == Some(true) {
        return Ok(false);
    }
    let given = auth.device_token.as_ref().or(auth.token.as_ref());
    match (given, known) {
        (Some(given), Some(device)) if same(&device.token, given) => {
            let covered = |scope: &String| {
                !is_known(scope)
                    || device.scopes.contains(scope)
                    || Scope::Admin.is_held(&device.scopes)
            };
            if claim.scopes.iter().all(covered) {
                return Ok(true);
            }
            Err(AuthFault::Scopes.refusal(claim))
        }
        _ if auth.device_token.is_some() => Err(AuthFault::DeviceToken.refusal(claim)),
        _ => Err(match (&credentials.token, shared) {
            (Some(_), None) => AuthFault::TokenMissing,
            (Some(_), Some(_)) => AuthFault::TokenWrong,
            (None, None) => AuthFault::PasswordMissing,
            (None, Some(_)) => AuthFault::PasswordWrong,
        }
        .refusal(claim)),
    }
}

/// Compares digests, so that the time it takes tells nothing about the secret.
fn same(expected: &Secret, given: &str) -> bool {
    sha256(expected.expose().as_bytes()) == sha256(given.as_bytes())
}

#[derive(Clone, Copy)]
enum AuthFault {
    TokenMissing,
    TokenWrong,
    PasswordMissing,
    PasswordWrong,
    DeviceToken,
    Scopes,
}

impl AuthFault {
    fn refusal(self, claim: &Claim) -> Refusal {
        let cli = claim.client_mode == "cli";
        let token_hint = if cli {
            "set gateway.remote.token to match gateway.auth.token"
        } else {
            "provide gateway auth token"
        };
        let password_hint = if cli {
            "set gateway.remote.password to match gateway.auth.password"
        } else {
            "provide gateway auth password"
        };
        // The client may try once more with a device token it has and did not send.
        let retry = matches!(self, Self::TokenWrong);
        let (text, code, reason, step) = match self {
            Self::TokenMissing => (
                format!("gateway token missing ({token_hint})"),
                "AUTH_TOKEN_MISSING",
                "token_missing",
                "update_auth_configuration",
            ),
            Self::TokenWrong => (
                format!("gateway token mismatch ({token_hint})"),
                "AUTH_TOKEN_MISMATCH",
                "token_mismatch",
                "retry_with_device_token",
            ),
            Self::PasswordMissing => (
                format!("gateway password missing ({password_hint})"),
                "AUTH_PASSWORD_MISSING",
                "password_missing",
                "update_auth_configuration",
            ),
            Self::PasswordWrong => (
                format!("gateway password mismatch ({password_hint})"),
                "AUTH_PASSWORD_MISMATCH",
                "password_mismatch",
                "update_auth_credentials",
            ),
            Self::DeviceToken => (
                "device token mismatch (rotate/reissue device token)".to_owned(),
                "AUTH_DEVICE_TOKEN_MISMATCH",
                "device_token_mismatch",
                "update_auth_credentials",
            ),
            Self::Scopes => (
                "device token scope mismatch".to_owned(),
                "AUTH_SCOPE_MISMATCH",
                "scope_mismatch",
                "review_auth_configuration",
            ),
        };
        let details = Object::new()
            .text("code", code)
            .text("authReason", reason)
            .raw(
                "canRetryWithDeviceToken",
                if retry { "true" } else { "false" },
            )
            .text("recommendedNextStep", step)
            .end();
        Refusal::invalid(format!("unauthorized: {text}")).with_details(details)
    }
}

fn is_known(scope: &str) -> bool {
    KNOWN_SCOPES.contains(&scope)
}

/// Gives the device a token, or widens what its token covers.
fn pair(
    store: &mut Store,
    id: &str,
    scopes: &[String],
    now: Now,
    entropy: &mut dyn Entropy,
) -> Result<(), Refusal> {
    let known = store.device(id);
    let mut all: Vec<String> = known
        .map(|device| device.scopes.clone())
        .unwrap_or_default();
    all.extend(scopes.iter().filter(|scope| is_known(scope)).cloned());
    all.sort();
    all.dedup();
    let (token, at_ms) = match known {
        Some(device) if device.scopes == all => return Ok(()),
        Some(device) => (device.token.expose().clone(), device.at_ms),
        None => {
            let mut bytes = [0_u8; 32];
            entropy.fill(&mut bytes);
            (URL_SAFE_NO_PAD.encode(bytes), now.unix_ms)
        }
    };
    let record = DeviceRecord {
        id: id.to_owned(),
        token,
        scopes: all,
        at_ms,
    };
    store.commit(now, Record::Device(record))
}

/// The payload that welcomes `client`.
pub(super) fn hello(
    store: &Store,
    client: &Client,
    conn_id: &str,
    tick_interval: Duration,
    limits: &Limits,
    now: Now,
) -> String {
    let server = Object::new()
        .text("version", env!("CARGO_PKG_VERSION"))
        .text("connId", conn_id)
        .end();
    let names = |names: Vec<&str>| serde_json::to_string(&names).expect("strings are JSON");
    let features = Object::new()
        .raw("methods", &names(rpc::method_names().collect()))
        .raw("events", &names(rpc::EVENTS.to_vec()))
        .end();
    let snapshot = Object::new()
        .raw("presence", "[]")
        .raw("health", "{}")
        .raw("stateVersion", r#"{"presence":0,"health":0}"#)
        .int("uptimeMs", now.up.as_millis())
        .raw(
            "sessionDefaults",
            r#"{"defaultAgentId":"main","mainKey":"main","mainSessionKey":"agent:main:main","scope":"per-sender"}"#,
        )
        .end();
    let tick_ms = u64::try_from(tick_interval.as_millis()).unwrap_or(u64::MAX);
    let policy = Object::new()
        .raw("maxPayload", &limits.gateway_message_bytes_max.to_string())
        .raw(
            "maxBufferedBytes",
            &limits.gateway_out_bytes_max.to_string(),
        )
        .int("tickIntervalMs", tick_ms)
        .end();
    let auth = Object::new().text("role", "operator");
    let auth = match store.device(&client.device) {
        Some(device) => auth
            .raw(
                "scopes",
                &names(device.scopes.iter().map(String::as_str).collect()),
            )
            .text("deviceToken", device.token.expose())
            .int("issuedAtMs", device.at_ms),
        None => auth.raw("scopes", "[]"),
    };
    Object::new()
        .text("type", "hello-ok")
        .int("protocol", PROTOCOL)
        .raw("server", &server)
        .raw("features", &features)
        .raw("snapshot", &snapshot)
        .raw("auth", &auth.end())
        .raw("policy", &policy)
        .end()
}
