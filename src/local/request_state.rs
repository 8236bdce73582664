//! What a program wants to remember between two rounds of one request, in the hands of the client.
//!
//! The state is signed, not hidden: the client can read it, and cannot alter it, use it for another request,
//! as another principal, or after its time. It can be presented more than once within its time.
//! Any instance with the same key opens it, so a retry may come to another instance than the first round.
//!
//! Layout, as base64url: version (1 byte), expiry in Unix milliseconds (8, big-endian), whether there is a
//! state (1), the state, HMAC-SHA-256 (32). Source: Spec 2026-07-28 basic/patterns/mrtr (Server Requirements 4, 5).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::codec::scan::{elements, members};
use crate::crypto::{equal_in_constant_time, hmac_sha256, sha256};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::secret::Secret;

/// Length of the key. Unit: bytes.
pub const STATE_KEY_BYTES: usize = 32;

const VERSION: u8 = 1;
const HEAD_BYTES: usize = 10;
const TAG_BYTES: usize = 32;

/// Keeps this use of the key apart from any other.
const LABEL: &[u8] = b"drawspan request state";

/// To which request a state belongs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding<'a> {
    /// Who asks.
    pub(crate) principal: &'a str,
    /// The method.
    pub(crate) method: &'a str,
    /// Name of the tool or prompt, URI of the resource.
    pub(crate) name: &'a str,
    /// The arguments as the client sent them, a raw value. The order of members does not count.
    pub(crate) arguments: &'a str,
}

/// The key, and what it is good for.
#[derive(Clone, Debug)]
pub(crate) struct StateKey(Secret<[u8; STATE_KEY_BYTES]>);

impl StateKey {
    pub(crate) const fn new(key: [u8; STATE_KEY_BYTES]) -> Self {
        Self(Secret::new(key))
    }

    /// The state as text for the client.
    pub(crate) fn seal(
        &self,
        binding: Binding<'_>,
        expires_unix_ms: i64,
        state: Option<&str>,
    ) -> String {
        let mut bytes = vec![VERSION];
        bytes.extend(expires_unix_ms.to_be_bytes());
        bytes.push(state.is_some().into());
        bytes.extend(state.unwrap_or("").as_bytes());
        let tag = self.tag(binding, &bytes);
        bytes.extend(tag);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// What [`StateKey::seal`] was given.
    ///
    /// # Errors
    /// -32602 when it was not made by this key for this request, or its time is over.
    pub(crate) fn open(
        &self,
        binding: Binding<'_>,
        now_unix_ms: i64,
        sealed: &str,
    ) -> Result<Option<String>, RpcError> {
        let refused = |why| RpcError::new(ErrorCode::InvalidParams, why);
        let forged = || refused("params.requestState is not one of ours for this request");
        let bytes = URL_SAFE_NO_PAD.decode(sealed).map_err(|_| forged())?;
        let body_bytes = bytes.len().checked_sub(TAG_BYTES);
        let body_bytes = body_bytes.filter(|bytes| *bytes >= HEAD_BYTES);
        let (body, tag) = bytes.split_at(body_bytes.ok_or_else(forged)?);
        if !equal_in_constant_time(tag, &self.tag(binding, body)) {
            return Err(forged());
        }
        let (head, state) = body.split_at(HEAD_BYTES);
        let expires = head[1..9].try_into().map(i64::from_be_bytes);
        if head[0] != VERSION || expires.is_ok_and(|at| now_unix_ms >= at) {
            return Err(refused("params.requestState has expired; start over"));
        }
        let state = String::from_utf8(state.to_vec()).map_err(|_| forged())?;
        Ok((head[9] == 1).then_some(state))
    }

    fn tag(&self, binding: Binding<'_>, body: &[u8]) -> [u8; TAG_BYTES] {
        let digest = digest(binding.arguments);
        let values = [
            LABEL,
            binding.principal.as_bytes(),
            binding.method.as_bytes(),
            binding.name.as_bytes(),
            &digest,
            body,
        ];
        let lengths = values.map(|value| (value.len() as u64).to_be_bytes());
        let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * values.len());
        for (length, value) in lengths.iter().zip(values) {
            parts.extend([length, value]);
        }
        hmac_sha256(self.0.expose(), &parts)
    }
}

/// SHA-256 of a raw value, in which neither white space nor the order of members counts.
fn digest(raw: &str) -> [u8; 32] {
    let mut text = String::with_capacity(raw.len());
    canonical(&mut text, raw, 0);
    sha256(text.as_bytes())
}

/// Deeper levels count as they are spelled.
const DEPTH_MAX: usize = 128;

fn canonical(out: &mut String, raw: &str, depth: usize) {
    match raw.as_bytes().first() {
        Some(b'{') if depth < DEPTH_MAX => {
            let mut all: Vec<_> = members(raw).collect();
            all.sort_by_key(|(name, _)| *name);
            out.push('{');
            for (name, value) in all {
                out.push_str(&format!("\"{}\":", name.raw()));
                canonical(out, value, depth + 1);
                out.push(',');
            }
            out.push('}');
        }
        Some(b'[') if depth < DEPTH_MAX => {
            out.push('[');
            for value in elements(raw) {
                canonical(out, value, depth + 1);
                out.push(',');
            }
            out.push(']');
        }
        _ => out.push_str(raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINDING: Binding<'static> = Binding {
        principal: "ada",
        method: "tools/call",
        name: "pay",
        arguments: r#"{"to":"bob","sum":10}"#,
    };

    fn key() -> StateKey {
        StateKey::new([7; 32])
    }

    #[test]
    fn what_was_sealed_opens_until_its_time_is_over() {
        for state in [Some("round 1 é"), Some(""), None] {
            let sealed = key().seal(BINDING, 1_000, state);
            let opened = key().open(BINDING, 999, &sealed).expect("in time");
            assert_eq!(opened.as_deref(), state);
            let error = key().open(BINDING, 1_000, &sealed).expect_err("too late");
            assert_eq!(error.code, ErrorCode::InvalidParams);
            assert!(error.message.contains("expired"), "{}", error.message);
        }
    }

    #[test]
    fn another_instance_with_the_same_key_opens_it_and_one_with_another_key_does_not() {
        let sealed = key().seal(BINDING, 1_000, Some("x"));
        assert!(StateKey::new([7; 32]).open(BINDING, 0, &sealed).is_ok());
        assert!(StateKey::new([8; 32]).open(BINDING, 0, &sealed).is_err());
    }

    #[test]
    fn it_is_good_for_its_own_request_only() {
        let sealed = key().seal(BINDING, 1_000, Some("x"));
        let others = [
            Binding {
                principal: "eve",
                ..BINDING
            },
            Binding {
                method: "prompts/get",
                ..BINDING
            },
            Binding {
                name: "pay2",
                ..BINDING
            },
            Binding {
                arguments: r#"{"to":"eve","sum":10}"#,
                ..BINDING
            },
            Binding {
                arguments: "{}",
                ..BINDING
            },
        ];
        for other in others {
            assert!(key().open(other, 0, &sealed).is_err(), "{other:?}");
        }
        let moved = Binding {
            principal: "adatools/",
            method: "call",
            ..BINDING
        };
        assert!(key().open(moved, 0, &sealed).is_err());
        let respelled = Binding {
            arguments: r#"{ "sum":10, "to":"bob" }"#,
            ..BINDING
        };
        assert!(key().open(respelled, 0, &sealed).is_ok());
    }

    #[test]
    fn every_altered_byte_is_noticed() {
        let sealed = key().seal(BINDING, 1_000, Some("state"));
        let bytes = URL_SAFE_NO_PAD.decode(&sealed).expect("base64url");
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            let altered = URL_SAFE_NO_PAD.encode(altered);
            assert!(key().open(BINDING, 0, &altered).is_err(), "byte {at}");
        }
        for end in 0..sealed.len() {
            assert!(
                key().open(BINDING, 0, &sealed[..end]).is_err(),
                "cut at {end}"
            );
        }
        for bad in [
            format!("{sealed}-TAMPERED"),
            format!("{sealed}="),
            format!(" {sealed}"),
            "é".to_owned(),
        ] {
            assert!(key().open(BINDING, 0, &bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_key_is_not_shown() {
        assert_eq!(format!("{:?}", key()), "StateKey(***)");
    }

    #[test]
    fn digests_tell_values_apart() {
        let same = |a: &str, b: &str| digest(a) == digest(b);
        assert!(same(
            r#"{"a":[1,{"b":2,"c":3}]}"#,
            r#"{ "a": [1, {"c":3, "b":2}] }"#
        ));
        for (a, b) in [
            ("[1,2]", "[2,1]"),
            ("[1,2]", "[12]"),
            ("[[1],2]", "[[1,2]]"),
            ("1", "1.0"),
            (r#"{"a":1}"#, r#"{"a":"1"}"#),
            (r#"{"a":{"b":1}}"#, r#"{"a":{},"b":1}"#),
            ("{}", "[]"),
        ] {
            assert!(!same(a, b), "{a} and {b}");
        }
    }
}
