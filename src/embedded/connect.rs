//! Who may come in: the `connect` request, from its parameters to the hello.
//!
//! Checked in this order: parameters, protocol, role, device and signature, credentials. Every
//! refusal names its code in `details`, and the connection is closed with it.
//!
//! Source: openclaw-serve §1.3 to §1.5. Unlike a real Gateway this one pairs every device that has
//! the right credentials, and widens its scopes, without asking: there is nobody to ask.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::auth::{self, Auth, Credentials, LetIn};
use super::params::Params;
use super::refusal::Refusal;
use super::store::Store;
use super::views::Object;
use crate::clock::Now;
use crate::crypto::{ed25519_verify, hex, sha256};
use crate::entropy::Entropy;

/// The one protocol this Gateway speaks.
pub(super) const PROTOCOL: u64 = 4;
/// How far a client's clock may be off. Unit: ms. Source: OpenClaw.
const SIGNED_AT_SKEW_MS: i64 = 120_000;
/// Scopes one client may ask for.
const SCOPES_MAX: usize = 32;
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
pub(super) struct TurnedAway {
    pub(super) refusal: Refusal,
    pub(super) close_code: u16,
}

impl From<Refusal> for TurnedAway {
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
) -> Result<Client, TurnedAway> {
    let claim = Claim::read(params)?;
    let device = check_device(&claim, nonce, now)?;
    let cli = claim.client_mode == "cli";
    let known = store.device(&device);
    match auth::check(credentials, &claim.auth, &claim.scopes, known, cli)? {
        LetIn::Shared => auth::pair(store, &device, &claim.scopes, now, entropy)?,
        LetIn::DeviceToken => {}
    }
    Ok(Client {
        device,
        name: claim.name,
        scopes: claim.scopes,
    })
}

impl Claim {
    fn read(params: &Params<'_>) -> Result<Self, TurnedAway> {
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

fn check_protocol(least: u64, most: u64) -> Result<(), TurnedAway> {
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
    Err(TurnedAway {
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
