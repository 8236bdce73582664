//! Host and port as a Host field, an origin or a rule names them, read without a copy.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest host name. Unit: bytes. Source: RFC 1035 §2.3.4.
const NAME_BYTES_MAX: usize = 255;

/// A host. Addresses are equal however they are spelled; names are compared by [`Host::is`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Host<T> {
    /// An address literal.
    Address(IpAddr),
    /// Anything else, also what some resolvers take for an address (`127.1`, `0x7f000001`).
    Name(T),
}

impl<T: AsRef<str>> Host<T> {
    /// Whether both mean the same host. Names in any letter case.
    pub(super) fn is(&self, other: &Host<impl AsRef<str>>) -> bool {
        match (self, other) {
            (Self::Address(a), Host::Address(b)) => a == b,
            (Self::Name(a), Host::Name(b)) => a.as_ref().eq_ignore_ascii_case(b.as_ref()),
            (Self::Address(_), Host::Name(_)) | (Self::Name(_), Host::Address(_)) => false,
        }
    }

    /// Whether it is a loopback address, or `localhost` and nothing longer.
    pub(super) fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.to_canonical().is_loopback(),
            Self::Name(name) => name.as_ref().eq_ignore_ascii_case("localhost"),
        }
    }

    /// Whether it is the address of one interface. No name server can point it elsewhere.
    pub(super) fn is_interface_address(&self) -> bool {
        match self {
            Self::Address(address) => !address.to_canonical().is_unspecified(),
            Self::Name(_) => false,
        }
    }
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`. Source: RFC 3986 §3.2, without user information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Authority<'a> {
    pub(super) host: Host<&'a str>,
    pub(super) port: Option<u16>,
}

impl<'a> Authority<'a> {
    /// Reads the whole of `text`; `None` when it is anything else.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix('[') {
            let (literal, rest) = rest.split_once(']')?;
            let address = literal.parse::<Ipv6Addr>().ok()?;
            let port = match rest.strip_prefix(':') {
                Some(port) => parse_port(port)?,
                None if rest.is_empty() => None,
                None => return None,
            };
            let host = Host::Address(address.into());
            return Some(Self { host, port });
        }
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, parse_port(port)?),
            None => (text, None),
        };
        let name_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(name_byte) {
            return None;
        }
        let host = match name.parse::<Ipv4Addr>() {
            Ok(address) => Host::Address(address.into()),
            Err(_) => Host::Name(name),
        };
        Some(Self { host, port })
    }
}

/// Digits behind a colon; none mean no port. RFC 3986 §3.2.3.
fn parse_port(text: &str) -> Option<Option<u16>> {
    if text.is_empty() {
        return Some(None);
    }
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|port| *port > 0).map(Some)
}
