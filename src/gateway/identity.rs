//! Who we are to a Gateway: the device key, its two files, and the text it signs.
//!
//! The files are OpenClaw's own and are shared with it on purpose: the device id decides which
//! approvals a bridge can see. This module turns text into values and back; `io/identity_files.rs`
//! has the disk.
//!
//! | file                        | content                                                       |
//! |-----------------------------|---------------------------------------------------------------|
//! | `identity/device.json`      | version, device id, both halves of the key as PEM, time made   |
//! | `identity/device-auth.json` | version, device id, per role the token the Gateway gave us     |
//!
//! An older `device.json` without version, with the raw halves in base64url, is read too.
//!
//! Source: OpenClaw 2026.6.11, device identity and signature.

use std::collections::BTreeMap;
use std::fmt;

use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, Engine as _};
use serde::{Deserialize, Serialize};

use crate::crypto::{self, ED25519_KEY_BYTES, SigningKey};
use crate::entropy::Entropy;
use crate::secret::Secret;

/// The one role a bridge takes.
pub const ROLE: &str = "operator";

/// What Node calls this platform. A Gateway pins it to the device at pairing and asks for a new
/// approval when it changes, so the spelling is a wire fact.
pub const PLATFORM: &str = if cfg!(target_os = "macos") {
    "darwin"
} else if cfg!(windows) {
    "win32"
} else if cfg!(target_os = "freebsd") {
    "freebsd"
} else {
    "linux"
};

/// The device key and the id that follows from it.
#[derive(Clone, Debug)]
pub struct DeviceIdentity {
    key: SigningKey,
    device_id: String,
}

/// What a connect request claims, as far as the signature covers it.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// `client.id`.
    pub client_id: &'a str,
    /// `client.mode`.
    pub client_mode: &'a str,
    /// The role asked for.
    pub role: &'a str,
    /// The scopes asked for, in the order sent.
    pub scopes: &'a [&'a str],
    /// Wall time of the signature, milliseconds since 1970.
    pub signed_at_ms: i64,
    /// What is sent as `auth.token`; empty with a password only.
    pub token: &'a str,
    /// The nonce of the challenge.
    pub nonce: &'a str,
    /// `client.platform`.
    pub platform: &'a str,
    /// `client.deviceFamily`; we send none.
    pub device_family: &'a str,
}

impl DeviceIdentity {
    /// A new device.
    #[must_use]
    pub fn generate(entropy: &mut dyn Entropy) -> Self {
        let mut seed = [0; ED25519_KEY_BYTES];
        entropy.fill(&mut seed);
        Self::from_key(SigningKey::from_seed(seed))
    }

    fn from_key(key: SigningKey) -> Self {
        let device_id = crypto::hex(&crypto::sha256(&key.public_key()));
        Self { key, device_id }
    }

    /// Lower-case hexadecimal SHA-256 of the public key.
    #[must_use]
    pub fn device_id(&self) -> &str {
        &self.device_id
    }

    /// The public key in base64url, as a connect request carries it.
    #[must_use]
    pub fn public_key(&self) -> String {
        BASE64URL.encode(self.key.public_key())
    }

    /// The signature over `claim` in base64url, as a connect request carries it.
    #[must_use]
    pub fn sign(&self, claim: &Claim<'_>) -> String {
        let text = signed_text(&self.device_id, claim);
        BASE64URL.encode(self.key.sign(text.as_bytes()))
    }
}

/// The text that a version 3 signature covers.
#[must_use]
pub fn signed_text(device_id: &str, claim: &Claim<'_>) -> String {
    let signed_at = claim.signed_at_ms.to_string();
    let scopes = claim.scopes.join(",");
    let platform = claim.platform.trim().to_ascii_lowercase();
    let family = claim.device_family.trim().to_ascii_lowercase();
    [
        "v3",
        device_id,
        claim.client_id,
        claim.client_mode,
        claim.role,
        &scopes,
        &signed_at,
        claim.token,
        claim.nonce,
        &platform,
        &family,
    ]
    .join("|")
}

/// Whether `signature` (base64url) of `text` was made with `public_key` (base64url), and the device
/// id of that key: what the Gateway side checks.
#[must_use]
pub fn verified_device_id(public_key: &str, text: &str, signature: &str) -> Option<String> {
    let public = BASE64URL.decode(public_key).ok()?;
    let signature = BASE64URL.decode(signature).ok()?;
    crypto::ed25519_verify(&public, text.as_bytes(), &signature)
        .then(|| crypto::hex(&crypto::sha256(&public)))
}

/// Why a `device.json` cannot be used. It is then left alone, and a key that lives as long as the
/// process takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdentityError {
    /// No JSON object of a known shape.
    Shape,
    /// A version we do not know.
    Version(u64),
    /// The named member holds no key.
    Key(&'static str),
    /// The two halves are of different keys.
    Halves,
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape => f.write_str("no device identity in it"),
            Self::Version(version) => write!(f, "version {version} is not known (known is 1)"),
            Self::Key(member) => write!(f, "{member} holds no Ed25519 key"),
            Self::Halves => f.write_str("public and private key do not belong together"),
        }
    }
}

impl std::error::Error for IdentityError {}

/// A device as read from its file.
#[derive(Clone, Debug)]
pub struct DeviceFile {
    /// The device.
    pub identity: DeviceIdentity,
    /// When it was made, if the file says so.
    pub created_at_ms: Option<i64>,
    /// The file has the older shape and should be written again.
    pub outdated: bool,
}

/// Reads a `device.json`. The device id in it is not trusted: it follows from the key.
///
/// # Errors
/// When there is no usable key in it; see [`IdentityError`].
pub fn parse_device(text: &str) -> Result<DeviceFile, IdentityError> {
    let members: DeviceMembers = serde_json::from_str(text).map_err(|_| IdentityError::Shape)?;
    let (key, public, outdated) = match members.version {
        Some(1) => {
            let private = members.private_key_pem.ok_or(IdentityError::Shape)?;
            let public = members.public_key_pem.ok_or(IdentityError::Shape)?;
            let der = pem_body(private.expose(), "PRIVATE KEY")
                .ok_or(IdentityError::Key("privateKeyPem"))?;
            let key =
                SigningKey::from_pkcs8(&der).map_err(|_| IdentityError::Key("privateKeyPem"))?;
            let spki = pem_body(&public, "PUBLIC KEY").ok_or(IdentityError::Key("publicKeyPem"))?;
            let public = spki
                .strip_prefix(&SPKI_HEAD)
                .ok_or(IdentityError::Key("publicKeyPem"))?
                .to_vec();
            (key, public, false)
        }
        Some(version) => return Err(IdentityError::Version(version)),
        None => {
            let private = members.private_key.ok_or(IdentityError::Shape)?;
            let public = members.public_key.ok_or(IdentityError::Shape)?;
            let seed = BASE64URL
                .decode(private.expose().trim())
                .ok()
                .and_then(|bytes| bytes.try_into().ok())
                .ok_or(IdentityError::Key("privateKey"))?;
            let public = BASE64URL
                .decode(public.trim())
                .map_err(|_| IdentityError::Key("publicKey"))?;
            (SigningKey::from_seed(seed), public, true)
        }
    };
    if key.public_key() != *public {
        return Err(IdentityError::Halves);
    }
    Ok(DeviceFile {
        identity: DeviceIdentity::from_key(key),
        created_at_ms: members.created_at_ms,
        outdated,
    })
}

/// The text of a `device.json` for `identity`.
#[must_use]
pub fn format_device(identity: &DeviceIdentity, created_at_ms: i64) -> Secret<String> {
    let mut spki = SPKI_HEAD.to_vec();
    spki.extend_from_slice(&identity.key.public_key());
    Secret::new(pretty(&DeviceOut {
        version: 1,
        device_id: &identity.device_id,
        public_key_pem: &pem("PUBLIC KEY", &spki),
        private_key_pem: &pem("PRIVATE KEY", identity.key.to_pkcs8().expose()),
        created_at_ms,
    }))
}

/// A token that a Gateway issued to this device, for one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredToken {
    /// The token.
    pub token: Secret<String>,
    /// The role it is good for.
    pub role: String,
    /// Its scopes, sorted. They say nothing about what a connection may do.
    pub scopes: Vec<String>,
    /// When it was stored, milliseconds since 1970.
    pub updated_at_ms: i64,
}

/// The token that a `device-auth.json` holds for `device_id` in [`ROLE`]; `None` when it has none,
/// is of another device, or cannot be read.
#[must_use]
pub fn parse_token(text: &str, device_id: &str) -> Option<StoredToken> {
    let mut file = tokens_of(text, device_id)?;
    let entry = file.tokens.remove(ROLE)?;
    let token = entry.token.trim();
    (!token.is_empty()).then(|| StoredToken {
        token: Secret::new(token.to_owned()),
        role: ROLE.to_owned(),
        scopes: entry.scopes,
        updated_at_ms: entry.updated_at_ms,
    })
}

/// The text of a `device-auth.json` after `token` was stored; `old` is what the file held. Entries
/// of other roles and members we do not know are kept; what belongs to another device goes.
#[must_use]
pub fn with_token(old: Option<&str>, device_id: &str, token: &StoredToken) -> Secret<String> {
    let mut file = old
        .and_then(|text| tokens_of(text, device_id))
        .unwrap_or_else(|| TokenFile {
            version: 1,
            device_id: device_id.to_owned(),
            tokens: BTreeMap::new(),
            rest: BTreeMap::new(),
        });
    let mut scopes = token.scopes.clone();
    scopes.sort_unstable();
    scopes.dedup();
    let entry = TokenEntry {
        token: token.token.expose().clone(),
        role: token.role.clone(),
        scopes,
        updated_at_ms: token.updated_at_ms,
        rest: BTreeMap::new(),
    };
    file.tokens.insert(token.role.clone(), entry);
    Secret::new(pretty(&file))
}

/// The text of a `device-auth.json` after the token of `role` was taken out; `None` when there is
/// nothing to take out.
#[must_use]
pub fn without_token(old: &str, device_id: &str, role: &str) -> Option<Secret<String>> {
    let mut file = tokens_of(old, device_id)?;
    file.tokens.remove(role)?;
    Some(Secret::new(pretty(&file)))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceMembers {
    version: Option<u64>,
    public_key_pem: Option<String>,
    #[serde(default, deserialize_with = "secret")]
    private_key_pem: Option<Secret<String>>,
    public_key: Option<String>,
    #[serde(default, deserialize_with = "secret")]
    private_key: Option<Secret<String>>,
    created_at_ms: Option<i64>,
}

fn secret<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Secret<String>>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(Secret::new))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DeviceOut<'a> {
    version: u64,
    device_id: &'a str,
    public_key_pem: &'a str,
    private_key_pem: &'a str,
    created_at_ms: i64,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenFile {
    version: u64,
    device_id: String,
    tokens: BTreeMap<String, TokenEntry>,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenEntry {
    token: String,
    role: String,
    #[serde(default)]
    scopes: Vec<String>,
    #[serde(default)]
    updated_at_ms: i64,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

fn tokens_of(text: &str, device_id: &str) -> Option<TokenFile> {
    let file: TokenFile = serde_json::from_str(text).ok()?;
    (file.version == 1 && file.device_id == device_id).then_some(file)
}

/// Two spaces of indentation and a final newline, as OpenClaw leaves its files.
fn pretty(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("strings and numbers only");
    text.push('\n');
    text
}

/// What stands before the 32 bytes of an Ed25519 key in a public key document. Source: RFC 8410 §4.
const SPKI_HEAD: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// Written without padding; read with or without.
const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
const BASE64: GeneralPurpose = base64::engine::general_purpose::STANDARD;

/// One PEM document. Keys fit on one line of the 64 characters that RFC 7468 allows.
fn pem(label: &str, der: &[u8]) -> String {
    let body = BASE64.encode(der);
    format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
}

fn pem_body(text: &str, label: &str) -> Option<Vec<u8>> {
    let (_, rest) = text.split_once(&format!("-----BEGIN {label}-----"))?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let body: String = body.split_ascii_whitespace().collect();
    BASE64.decode(body).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Seeded;

    /// A throw-away key made, exported and used by Node 20, and its signature over [`NODE_TEXT`].
    const NODE_PEM: &str = r#"{"version":1,"deviceId":"76194a1041ec9eca237792ccc3cc2a2b9cfc2bbf98acef70fd1b05a216ade61e","publicKeyPem":"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAxUukkjHfPG7mjB+zPbuMj+fKczoULEKAAXm1nLGW6os=\n-----END PUBLIC KEY-----\n","privateKeyPem":"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIIW26iUWcFD/Z4ZCLlDcqkUdTI1VV84AF7YWA/Fey2AV\n-----END PRIVATE KEY-----\n","createdAtMs":1796025982043}"#;
    const NODE_RAW: &str = r#"{"deviceId":"76194a1041ec9eca237792ccc3cc2a2b9cfc2bbf98acef70fd1b05a216ade61e","publicKey":"xUukkjHfPG7mjB-zPbuMj-fKczoULEKAAXm1nLGW6os","privateKey":"hbbqJRZwUP9nhkIuUNyqRR1MjVVXzgAXthYD8V7LYBU="}"#;
    const NODE_ID: &str = "76194a1041ec9eca237792ccc3cc2a2b9cfc2bbf98acef70fd1b05a216ade61e";
    const NODE_TEXT: &str = "v3|76194a1041ec9eca237792ccc3cc2a2b9cfc2bbf98acef70fd1b05a216ade61e|cli|cli|operator|operator.read,operator.write,operator.approvals|1796026033939|tok|NONCE|linux|";
    const NODE_SIGNATURE: &str =
        "2ZePYKGiQl9K5AlT34-4m_4hQtVwt1X4Kj9Jgh_UriqSou-AFzx9QAk1ADH7_kMOoETHm4_SzM0zfygzcNtpCw";

    fn claim() -> Claim<'static> {
        Claim {
            client_id: "cli",
            client_mode: "cli",
            role: "operator",
            scopes: &["operator.read", "operator.write", "operator.approvals"],
            signed_at_ms: 1_796_026_033_939,
            token: "tok",
            nonce: "NONCE",
            platform: " Linux ",
            device_family: "",
        }
    }

    fn token(text: &str) -> StoredToken {
        StoredToken {
            token: Secret::new(text.to_owned()),
            role: ROLE.to_owned(),
            scopes: vec!["operator.write".to_owned(), "operator.read".to_owned()],
            updated_at_ms: 5,
        }
    }

    #[test]
    fn a_device_of_node_signs_as_node_does() {
        for (text, outdated) in [(NODE_PEM, false), (NODE_RAW, true)] {
            let file = parse_device(text).expect("a good file");
            assert_eq!(file.outdated, outdated);
            assert_eq!(file.identity.device_id(), NODE_ID);
            assert_eq!(file.identity.public_key().len(), 43);
            assert_eq!(signed_text(NODE_ID, &claim()), NODE_TEXT);
            assert_eq!(file.identity.sign(&claim()), NODE_SIGNATURE);
        }
    }

    #[test]
    fn signatures_are_checked_against_key_and_text() {
        let device = DeviceIdentity::generate(&mut Seeded::new(1));
        let text = signed_text(device.device_id(), &claim());
        let signature = device.sign(&claim());
        assert_eq!(signature.len(), 86);
        let id = verified_device_id(&device.public_key(), &text, &signature);
        assert_eq!(id.as_deref(), Some(device.device_id()));
        assert_eq!(
            verified_device_id(&device.public_key(), NODE_TEXT, &signature),
            None
        );
        assert_eq!(verified_device_id("not a key", &text, &signature), None);
    }

    #[test]
    fn the_last_field_is_empty_and_its_bar_stays() {
        let empty_token = Claim {
            token: "",
            ..claim()
        };
        let text = signed_text("ab", &empty_token);
        assert!(text.ends_with("|1796026033939||NONCE|linux|"), "{text}");
    }

    #[test]
    fn a_device_file_is_written_as_node_reads_it() {
        let file = parse_device(NODE_PEM).expect("a good file");
        let text = format_device(&file.identity, 1_796_025_982_043);
        let expected: serde_json::Value = serde_json::from_str(NODE_PEM).expect("JSON");
        let written: serde_json::Value = serde_json::from_str(text.expose()).expect("JSON");
        assert_eq!(written, expected);
        assert!(
            text.expose()
                .starts_with("{\n  \"version\": 1,\n  \"deviceId\"")
        );
        assert!(text.expose().ends_with("}\n"));
    }

    #[test]
    fn broken_device_files_say_what_is_broken() {
        let other = DeviceIdentity::generate(&mut Seeded::new(1));
        let other = format_device(&other, 0);
        let other: serde_json::Value = serde_json::from_str(other.expose()).expect("JSON");
        let with = |member: &str, value: serde_json::Value| {
            let mut file: serde_json::Value = serde_json::from_str(NODE_PEM).expect("JSON");
            file[member] = value;
            file.to_string()
        };
        let rows = [
            (String::new(), IdentityError::Shape),
            ("[]".to_owned(), IdentityError::Shape),
            ("{}".to_owned(), IdentityError::Shape),
            (with("version", 2.into()), IdentityError::Version(2)),
            (
                with("privateKeyPem", "x".into()),
                IdentityError::Key("privateKeyPem"),
            ),
            (
                with("publicKeyPem", NODE_PEM.into()),
                IdentityError::Key("publicKeyPem"),
            ),
            (
                with("publicKeyPem", other["publicKeyPem"].clone()),
                IdentityError::Halves,
            ),
            (
                r#"{"publicKey":"AA","privateKey":"AA"}"#.to_owned(),
                IdentityError::Key("privateKey"),
            ),
        ];
        for (text, error) in rows {
            assert_eq!(parse_device(&text).err(), Some(error), "{text}");
        }
    }

    #[test]
    fn a_wrong_device_id_in_the_file_is_not_believed() {
        let text = NODE_PEM.replace(NODE_ID, "0000");
        let file = parse_device(&text).expect("the key counts");
        assert_eq!(file.identity.device_id(), NODE_ID);
    }

    #[test]
    fn tokens_are_stored_read_and_taken_out() {
        let text = with_token(None, "me", &token("T1"));
        let expected = "{\n  \"version\": 1,\n  \"deviceId\": \"me\",\n  \"tokens\": {\n    \
            \"operator\": {\n      \"token\": \"T1\",\n      \"role\": \"operator\",\n      \
            \"scopes\": [\n        \"operator.read\",\n        \"operator.write\"\n      ],\n      \
            \"updatedAtMs\": 5\n    }\n  }\n}\n";
        assert_eq!(text.expose(), expected);
        let read = parse_token(text.expose(), "me").expect("stored");
        assert_eq!(read.token.expose(), "T1");
        assert_eq!(read.updated_at_ms, 5);
        assert_eq!(parse_token(text.expose(), "you"), None, "another device");

        let gone = without_token(text.expose(), "me", ROLE).expect("it was there");
        assert_eq!(parse_token(gone.expose(), "me"), None);
        assert!(without_token(gone.expose(), "me", ROLE).is_none());
    }

    #[test]
    fn what_others_stored_beside_ours_is_kept() {
        let old = r#"{"version":1,"deviceId":"me","tokens":{"node":{"token":"N","role":"node","scopes":[],"updatedAtMs":1,"x":true}},"y":[1]}"#;
        let text = with_token(Some(old), "me", &token("T2"));
        let file: serde_json::Value = serde_json::from_str(text.expose()).expect("JSON");
        assert_eq!(file["tokens"]["node"]["token"], "N");
        assert_eq!(file["tokens"]["node"]["x"], true);
        assert_eq!(file["y"][0], 1);
        assert_eq!(file["tokens"]["operator"]["token"], "T2");

        let moved = with_token(Some(old), "you", &token("T2"));
        assert!(
            !moved.expose().contains("node"),
            "tokens of another device go"
        );
        let repaired = with_token(Some("garbage"), "me", &token("T2"));
        assert!(parse_token(repaired.expose(), "me").is_some());
    }
}
