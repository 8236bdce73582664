//! Credentials of a client, and the device token it gets.
//!
//! The shared token or password lets a client in and pairs its device; afterwards the device token
//! alone does, for the scopes it covers. Texts and codes as OpenClaw has them (openclaw-serve
//! §1.5).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::journal::{DeviceRecord, Record};
use super::params::Params;
use super::refusal::Refusal;
use super::rpc::Scope;
use super::store::{Device, Store};
use super::views::Object;
use crate::clock::Now;
use crate::crypto::sha256;
use crate::entropy::Entropy;
use crate::secret::Secret;

/// Scopes that mean something here; a device token covers no others.
const KNOWN_SCOPES: [&str; 5] = [
    "operator.admin",
    "operator.approvals",
    "operator.pairing",
    "operator.read",
    "operator.write",
];

/// What a client must know to come in; nothing when both are `None`.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// The shared token.
    pub token: Option<Secret>,
    /// The shared password; only used without a token.
    pub password: Option<Secret>,
}

/// What a client presents.
#[derive(Default)]
pub(super) struct Auth {
    token: Option<String>,
    password: Option<String>,
    device_token: Option<String>,
    bootstrap_token: Option<String>,
}

impl Auth {
    /// Reads the `auth` member.
    ///
    /// # Errors
    /// When it is malformed.
    pub(super) fn read(params: &Params<'_>) -> Result<Self, Refusal> {
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
    pub(super) fn signed_token(&self) -> &str {
        let tokens = [&self.token, &self.device_token, &self.bootstrap_token];
        tokens
            .into_iter()
            .flatten()
            .next()
            .map_or("", String::as_str)
    }
}

/// How a client was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LetIn {
    /// By the shared secret, or because none is needed: its device may be paired.
    Shared,
    /// By the token its device got earlier.
    DeviceToken,
}

/// Checks what a client presents for `scopes`; `known` is its device, `cli` whether it is a command
/// line.
///
/// # Errors
/// Which credential is missing or wrong.
pub(super) fn check(
    credentials: &Credentials,
    auth: &Auth,
    scopes: &[String],
    known: Option<&Device>,
    cli: bool,
) -> Result<LetIn, Refusal> {
    let shared = match (&credentials.token, &credentials.password) {
        (None, None) => return Ok(LetIn::Shared),
        (Some(expected), _) => auth.token.as_ref().map(|given| same(expected, given)),
        (None, Some(expected)) => auth.password.as_ref().map(|given| same(expected, given)),
    };
    if shared == Some(true) {
        return Ok(LetIn::Shared);
    }
    let given = auth.device_token.as_ref().or(auth.token.as_ref());
    match (given, known) {
        (Some(given), Some(device)) if same(&device.token, given) => {
            let covered = |scope: &String| {
                !is_known(scope)
                    || device.scopes.contains(scope)
                    || Scope::Admin.is_held(&device.scopes)
            };
            if scopes.iter().all(covered) {
                return Ok(LetIn::DeviceToken);
            }
            Err(AuthFault::Scopes.refusal(cli))
        }
        _ if auth.device_token.is_some() => Err(AuthFault::DeviceToken.refusal(cli)),
        _ => Err(match (&credentials.token, shared) {
            (Some(_), None) => AuthFault::TokenMissing,
            (Some(_), Some(_)) => AuthFault::TokenWrong,
            (None, None) => AuthFault::PasswordMissing,
            (None, Some(_)) => AuthFault::PasswordWrong,
        }
        .refusal(cli)),
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
    fn refusal(self, cli: bool) -> Refusal {
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
///
/// # Errors
/// When the store cannot be written.
pub(super) fn pair(
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
