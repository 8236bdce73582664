//! Whether a host is near enough for plain text.

// Value types only, no sockets.
use core::net::{Ipv4Addr, Ipv6Addr};

/// Where a host is, as far as its name tells without asking anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This machine.
    Loopback,
    /// A network nobody routes, or a name that only such a network answers.
    Private,
    /// Any other address.
    Public,
    /// Any other name.
    Name,
}

impl Place {
    /// Judges a host name or address literal, without brackets.
    pub(super) fn of(host: &str) -> Self {
        if let Ok(address) = host.parse::<Ipv6Addr>() {
            return Self::of_v6(address);
        }
        if let Ok(address) = host.parse::<Ipv4Addr>() {
            return Self::of_v4(address);
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let last_label = name.rsplit('.').next().unwrap_or_default();
        if name == "localhost" {
            Self::Loopback
        } else if name.ends_with(".local") || name.ends_with(".ts.net") {
            Self::Private
        } else if is_number(last_label) {
            // Resolvers take `127.1`, `0x7f.1` and `134744072` for addresses. Source: WHATWG URL.
            Self::Public
        } else {
            Self::Name
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let [a, b, ..] = address.octets();
        // 100.64.0.0/10 is shared between a carrier and its customers. Source: RFC 6598.
        let shared = a == 100 && (64..128).contains(&b);
        if address.is_loopback() {
            Self::Loopback
        } else if address.is_private() || address.is_link_local() || shared {
            Self::Private
        } else {
            Self::Public
        }
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if let Some(mapped) = address.to_ipv4_mapped() {
            return Self::of_v4(mapped);
        }
        let first = address.segments()[0];
        // fc00::/7 unique local, fe80::/10 link local, fec0::/10 the old site local.
        let private = first & 0xfe00 == 0xfc00 || matches!(first & 0xffc0, 0xfe80 | 0xfec0);
        if address.is_loopback() {
            Self::Loopback
        } else if private {
            Self::Private
        } else {
            Self::Public
        }
    }

    /// Whether plain text may go there; `trusts_names` is what somebody said of unknown names.
    pub(super) const fn takes_plain_text(self, trusts_names: bool) -> bool {
        match self {
            Self::Loopback | Self::Private => true,
            Self::Public => false,
            Self::Name => trusts_names,
        }
    }
}

/// Whether a resolver would read the last label of a name as part of an IPv4 address.
fn is_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x");
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    hex.map_or_else(
        || !label.is_empty() && digits(label),
        |hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_goes_to_private_places_only() {
        let rows = [
            ("localhost", Place::Loopback),
            ("LOCALHOST..", Place::Loopback),
            ("127.0.0.1", Place::Loopback),
            ("127.9.9.9", Place::Loopback),
            ("::1", Place::Loopback),
            ("::ffff:127.0.0.1", Place::Loopback),
            ("10.1.2.3", Place::Private),
            ("172.16.0.1", Place::Private),
            ("172.32.0.1", Place::Public),
            ("192.168.1.1", Place::Private),
            ("169.254.1.1", Place::Private),
            ("100.64.0.1", Place::Private),
            ("100.127.255.255", Place::Private),
            ("100.128.0.1", Place::Public),
            ("100.63.255.255", Place::Public),
            ("8.8.8.8", Place::Public),
            ("0.0.0.0", Place::Public),
            ("fd00::1", Place::Private),
            ("fe80::1", Place::Private),
            ("fec0::1", Place::Private),
            ("2001:db8::1", Place::Public),
            ("::ffff:8.8.8.8", Place::Public),
            ("::ffff:10.0.0.1", Place::Private),
            ("printer.local", Place::Private),
            ("box.tail1234.ts.net.", Place::Private),
            ("notlocal", Place::Name),
            ("example.com", Place::Name),
            ("local.example.com", Place::Name),
            ("7a3f09", Place::Name),
            ("134744072", Place::Public),
            ("0x8.0x8080808", Place::Public),
            ("8.8.2056", Place::Public),
            ("8.8.8.0x", Place::Public),
        ];
        for (host, place) in rows {
            assert_eq!(Place::of(host), place, "{host}");
            let near = matches!(place, Place::Loopback | Place::Private);
            assert_eq!(place.takes_plain_text(false), near, "{host}");
            assert_eq!(
                place.takes_plain_text(true),
                place != Place::Public,
                "{host}"
            );
        }
    }
}
