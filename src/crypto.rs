//! Digests, authentication codes and Ed25519, from `ring`; and the key file format Node and OpenSSL read.
//!
//! Nothing in here is random: a key is made from 32 bytes the caller drew.

use std::fmt;

use ring::digest;
use ring::hmac;
use ring::signature::{self, Ed25519KeyPair, KeyPair};

use crate::secret::Secret;

/// SHA-256 of `bytes`.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    out
}

/// SHA-1 of `bytes`. Only for the accept key of a WebSocket upgrade, where it guards nothing.
/// Source: RFC 6455 §4.2.2.
#[must_use]
pub fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut out = [0; 20];
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, bytes);
    out.copy_from_slice(digest.as_ref());
    out
}

/// HMAC-SHA-256 of `parts`, one after the other, under `key`. Where one part ends is not part of what is
/// authenticated: the caller frames parts of variable length. Source: RFC 2104.
#[must_use]
pub fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in parts {
        context.update(part);
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.sign().as_ref());
    out
}

/// Whether `a` and `b` are the same bytes. How long that takes tells their lengths and whether those are
/// equal, and nothing else: for tokens and tags, whose length is no secret.
#[must_use]
pub fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut differing = 0;
    for (a, b) in a.iter().zip(b) {
        // Hidden from the optimiser, which could otherwise stop at the first difference.
        differing |= std::hint::black_box(a ^ b);
    }
    std::hint::black_box(differing) == 0
}

/// `bytes` as lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len() * 2);
    append_hex(&mut out, bytes);
    String::from_utf8(out).expect("hexadecimal digits are text")
}

/// [`hex`] for a buffer of bytes.
pub fn append_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        for nibble in [byte >> 4, byte & 0x0f] {
            out.push(DIGITS[usize::from(nibble)]);
        }
    }
}

/// A digest of 32 bytes from its 64 digits as [`hex`] writes them, that is in lower case only.
#[must_use]
pub fn unhex(digits: &str) -> Option<[u8; 32]> {
    let mut digest = [0; 32];
    if digits.len() != 2 * digest.len() {
        return None;
    }
    for (byte, pair) in digest.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        for digit in pair {
            let digit = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            *byte = *byte << 4 | digit;
        }
    }
    Some(digest)
}

/// Whether `signature` is that of `message` under the Ed25519 key `public`.
#[must_use]
pub fn ed25519_verify(public: &[u8], message: &[u8], signature: &[u8]) -> bool {
    signature::UnparsedPublicKey::new(&signature::ED25519, public)
        .verify(message, signature)
        .is_ok()
}

/// Bytes that are no Ed25519 key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// No PKCS#8 document with an Ed25519 key in it, or one whose two halves do not fit together.
    Pkcs8,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pkcs8 => f.write_str("not an Ed25519 key in PKCS#8 form"),
        }
    }
}

impl std::error::Error for KeyError {}

/// What stands before the 32 secret bytes in a version 1 document; a version 2 document differs in
/// length and version byte and has the public half behind. Source: RFC 8410 §7, RFC 5958 §2.
const PKCS8_V1_HEAD: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Length of an Ed25519 seed, and of a public key.
pub const ED25519_KEY_BYTES: usize = 32;

/// An Ed25519 key pair, kept with the seed it comes from so that it can be written again.
#[derive(Clone)]
pub struct SigningKey {
    seed: Secret<[u8; ED25519_KEY_BYTES]>,
    public: [u8; ED25519_KEY_BYTES],
}

impl SigningKey {
    /// The key of this seed. Any 32 bytes are one; whoever calls draws them at random.
    #[must_use]
    pub fn from_seed(seed: [u8; ED25519_KEY_BYTES]) -> Self {
        let mut public = [0; ED25519_KEY_BYTES];
        public.copy_from_slice(pair(&seed).public_key().as_ref());
        Self {
            seed: Secret::new(seed),
            public,
        }
    }

    /// Reads a PKCS#8 document (DER), version 1 or 2.
    ///
    /// # Errors
    /// When it is anything else, or its public half is not that of its secret half.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        let read = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map_err(|_| KeyError::Pkcs8)?;
        // Both versions have one length byte at the outside and the same fields up to the seed, so
        // it stands at the same place in every document that was just accepted; the comparison
        // makes sure.
        let seed = der
            .get(PKCS8_V1_HEAD.len()..PKCS8_V1_HEAD.len() + ED25519_KEY_BYTES)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(KeyError::Pkcs8)?;
        let key = Self::from_seed(seed);
        if key.public == read.public_key().as_ref() {
            Ok(key)
        } else {
            Err(KeyError::Pkcs8)
        }
    }

    /// The key as a PKCS#8 version 1 document (DER), the form Node writes and OpenSSL reads.
    #[must_use]
    pub fn to_pkcs8(&self) -> Secret<Vec<u8>> {
        let mut der = PKCS8_V1_HEAD.to_vec();
        der.extend_from_slice(self.seed.expose());
        Secret::new(der)
    }

    /// The public half.
    #[must_use]
    pub const fn public_key(&self) -> [u8; ED25519_KEY_BYTES] {
        self.public
    }

    /// Signs `message`.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut out = [0; 64];
        out.copy_from_slice(pair(self.seed.expose()).sign(message).as_ref());
        out
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", hex(&self.public))
    }
}

fn pair(seed: &[u8; ED25519_KEY_BYTES]) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(seed).expect("32 bytes are a seed")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032 §7.1, test 2.
    const SEED: &str = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb";
    const PUBLIC: &str = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
    const SIGNED_72: &str = "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
                             085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00";

    fn bytes_of(text: &str) -> Vec<u8> {
        (0..text.len() / 2)
            .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).expect("hex"))
            .collect()
    }

    fn key() -> SigningKey {
        SigningKey::from_seed(bytes_of(SEED).try_into().expect("32 bytes"))
    }

    #[test]
    fn digests_match_their_standards() {
        assert_eq!(
            hex(&sha256(b"abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            hex(&sha1(b"abc")),
            "a9993e364706816aba3e25717850c26c9cd0d89d"
        );
    }

    #[test]
    fn authentication_codes_match_their_standard() {
        // RFC 4231, test cases 1, 2 and 6 (a key longer than a block).
        let cases: [(&[u8], &str, &str); 3] = [
            (
                &[0x0b; 20],
                "Hi There",
                "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            ),
            (
                b"Jefe",
                "what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &[0xaa; 131],
                "Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (key, data, wanted) in cases {
            let data = data.as_bytes();
            assert_eq!(hex(&hmac_sha256(key, &[data])), wanted);
            for cut in 0..=data.len() {
                let (head, tail) = data.split_at(cut);
                assert_eq!(hex(&hmac_sha256(key, &[head, b"", tail])), wanted);
            }
        }
    }

    #[test]
    fn equality_sees_every_bit_and_the_length() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert!(equal_in_constant_time(&bytes, &bytes) && equal_in_constant_time(b"", b""));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                assert!(!equal_in_constant_time(&bytes, &other), "{at}, {bit}");
            }
        }
        assert!(!equal_in_constant_time(&bytes, &bytes[..255]));
        assert!(!equal_in_constant_time(&bytes[..255], &bytes));
        assert!(!equal_in_constant_time(b"", b"a"));
    }

    #[test]
    fn the_rfc_key_signs_as_the_rfc_says() {
        assert_eq!(hex(&key().public_key()), PUBLIC);
        let signed = key().sign(&[0x72]);
        assert_eq!(hex(&signed), SIGNED_72);
        assert!(ed25519_verify(&bytes_of(PUBLIC), &[0x72], &signed));
        assert!(!ed25519_verify(&bytes_of(PUBLIC), &[0x73], &signed));
        assert!(!ed25519_verify(&[1; 31], &[0x72], &signed));
    }

    #[test]
    fn both_versions_of_pkcs8_are_read_and_version_1_is_written() {
        let v1 = key().to_pkcs8();
        assert!(hex(v1.expose()).starts_with("302e020100300506032b657004220420"));
        let mut v2 = bytes_of("3051020101300506032b657004220420");
        v2.extend(bytes_of(SEED));
        v2.extend(bytes_of("812100"));
        v2.extend(bytes_of(PUBLIC));
        let mut v2_explicit = bytes_of("3053020101300506032b657004220420");
        v2_explicit.extend(bytes_of(SEED));
        v2_explicit.extend(bytes_of("a123032100"));
        v2_explicit.extend(bytes_of(PUBLIC));
        for der in [v1.expose(), &v2, &v2_explicit] {
            let read = SigningKey::from_pkcs8(der).expect("a good document");
            assert_eq!(hex(&read.public_key()), PUBLIC);
        }
        let last = v2.len() - 1;
        v2[last] ^= 1;
        assert_eq!(SigningKey::from_pkcs8(&v2).err(), Some(KeyError::Pkcs8));
        assert!(SigningKey::from_pkcs8(&v1.expose()[..47]).is_err());
        assert!(SigningKey::from_pkcs8(b"").is_err());
    }

    #[test]
    fn a_key_does_not_print_its_secret() {
        let shown = format!("{:?}", key());
        assert!(
            shown.contains(PUBLIC) && !shown.contains(&SEED[..8]),
            "{shown}"
        );
    }
}
