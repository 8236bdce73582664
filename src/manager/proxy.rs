//! Which proxy a URL is reached through.
//!
//! `http_proxy` or `HTTP_PROXY` for http, `https_proxy` or `HTTPS_PROXY` for https, the lower-case one first
//! as in curl. Direct are this host, whatever is set, and what `no_proxy` or `NO_PROXY` excludes: `*`, a
//! host, a domain with all below it, an address, an address block, each with a port or without.

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::fmt;

use crate::codec::uri::{Scheme, Uri};
use crate::link::http_client::HttpProxy;
use crate::secret::{Quoted, Secret};

/// Why a proxy in the environment cannot be used. Names the variable and never shows its value, which may
/// hold a password.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyError {
    /// Neither a URL nor `host:port`.
    Unreadable {
        /// The variable.
        variable: &'static str,
    },
    /// Only HTTP proxies, reached without TLS, are spoken to.
    Scheme {
        /// The variable.
        variable: &'static str,
        /// The scheme found.
        scheme: String,
    },
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { variable } => {
                write!(
                    f,
                    "{variable} must be http://host:port; unset it or exclude the host in NO_PROXY"
                )
            }
            Self::Scheme { variable, scheme } => write!(
                f,
                "{variable} must begin with http:// (found {}://); set another or exclude the host in NO_PROXY",
                Quoted(scheme)
            ),
        }
    }
}

impl std::error::Error for ProxyError {}

/// The proxy for `url`; `None` is the direct way.
///
/// # Errors
/// When one is set and cannot be used: going around it in silence is not what its owner wants.
pub fn proxy_for(
    url: &Uri,
    env: &BTreeMap<String, String>,
) -> Result<Option<HttpProxy>, ProxyError> {
    let var = |name: &str| env.get(name).map(|v| v.trim()).filter(|v| !v.is_empty());
    let names = match url.scheme {
        Scheme::Https | Scheme::Wss => ["https_proxy", "HTTPS_PROXY"],
        Scheme::Http | Scheme::Ws => ["http_proxy", "HTTP_PROXY"],
    };
    let Some((variable, text)) = names.into_iter().find_map(|name| Some((name, var(name)?))) else {
        return Ok(None);
    };
    let excluded = var("no_proxy").or_else(|| var("NO_PROXY")).unwrap_or("");
    if is_loopback(&url.host) || is_excluded(&url.host, url.port_or_default(), excluded) {
        return Ok(None);
    }
    read_proxy(variable, text).map(Some)
}

/// Whether the host is this one.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => {
            let host = host.strip_suffix('.').unwrap_or(host);
            host == "localhost" || host.ends_with(".localhost")
        }
    }
}

fn read_proxy(variable: &'static str, text: &str) -> Result<HttpProxy, ProxyError> {
    let unreadable = || ProxyError::Unreadable { variable };
    let text = match text.split_once("://") {
        Some((scheme, _)) if !scheme.eq_ignore_ascii_case("http") => {
            let scheme = scheme.to_owned();
            return Err(ProxyError::Scheme { variable, scheme });
        }
        Some((_, rest)) => rest,
        None => text,
    };
    let credentials = text
        .split(['/', '?', '#'])
        .next()
        .unwrap_or("")
        .rsplit_once('@');
    let credentials = credentials.map(|(userinfo, _)| percent_decoded(userinfo));
    let uri = Uri::parse(&format!("http://{text}")).map_err(|_| unreadable())?;
    Ok(HttpProxy {
        port: uri.port_or_default(),
        host: uri.host,
        credentials: match credentials {
            Some(Some(credentials)) => Some(Secret::new(credentials)),
            Some(None) => return Err(unreadable()),
            None => None,
        },
    })
}

fn is_excluded(host: &str, port: u16, list: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let entries = list.split([',', ' ', '\t']).map(str::trim);
    entries
        .filter(|entry| !entry.is_empty())
        .any(|entry| entry == "*" || excludes(entry, host, port))
}

fn excludes(entry: &str, host: &str, port: u16) -> bool {
    if let Ok(address) = host.parse::<IpAddr>() {
        if let Some((block, bits)) = entry.split_once('/') {
            return block
                .parse()
                .is_ok_and(|block| in_block(address, block, bits));
        }
        if let Ok(other) = entry.parse::<IpAddr>() {
            return other == address;
        }
    }
    let (name, wanted) = match entry.rsplit_once(':') {
        Some((name, digits)) => match digits.parse::<u16>() {
            Ok(wanted) => (name, Some(wanted)),
            Err(_) => return false,
        },
        None => (entry, None),
    };
    if wanted.is_some_and(|wanted| wanted != port) {
        return false;
    }
    let name = name.trim_start_matches('[').trim_end_matches(']');
    let name = name.strip_prefix('*').unwrap_or(name);
    let name = name.strip_prefix('.').unwrap_or(name).to_ascii_lowercase();
    let above = host.strip_suffix(name.as_str());
    above.is_some_and(|above| !name.is_empty() && (above.is_empty() || above.ends_with('.')))
}

fn in_block(address: IpAddr, block: IpAddr, bits: &str) -> bool {
    let Ok(bits) = bits.parse::<u32>() else {
        return false;
    };
    match (address, block) {
        (IpAddr::V4(a), IpAddr::V4(b)) if bits <= 32 => {
            let shift = 32 - bits;
            a.to_bits().checked_shr(shift) == b.to_bits().checked_shr(shift)
        }
        (IpAddr::V6(a), IpAddr::V6(b)) if bits <= 128 => {
            let shift = 128 - bits;
            a.to_bits().checked_shr(shift) == b.to_bits().checked_shr(shift)
        }
        (_, _) => false,
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let mut digit = || char::from(bytes.next()?).to_digit(16);
            let value = digit()? * 16 + digit()?;
            out.push(u8::try_from(value).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(own).collect()
    }

    fn found(url: &str, pairs: &[(&str, &str)]) -> Result<Option<(String, u16)>, ProxyError> {
        let url = Uri::parse(url).expect(url);
        let proxy = proxy_for(&url, &env(pairs))?;
        Ok(proxy.map(|proxy| (proxy.host, proxy.port)))
    }

    #[test]
    fn each_scheme_has_its_variable() {
        let both = [
            ("HTTP_PROXY", "http://a:1"),
            ("https_proxy", "b:2"),
            ("HTTPS_PROXY", "c:3"),
        ];
        let at = |host: &str, port| Ok(Some((host.to_owned(), port)));
        assert_eq!(found("http://h/", &both), at("a", 1));
        assert_eq!(found("https://h/", &both), at("b", 2));
        assert_eq!(found("https://h/", &[("HTTP_PROXY", "a:1")]), Ok(None));
        assert_eq!(found("http://h/", &[("http_proxy", "")]), Ok(None));
        assert_eq!(
            found("http://h/", &[("http_proxy", "http://a/")]),
            at("a", 80)
        );
    }

    #[test]
    fn this_host_is_reached_directly() {
        let set = [("HTTP_PROXY", "http://a:1")];
        for host in [
            "localhost",
            "x.localhost",
            "127.0.0.1",
            "127.9.9.9",
            "[::1]",
            "[::ffff:127.0.0.1]",
        ] {
            assert_eq!(
                found(&format!("http://{host}:5/"), &set),
                Ok(None),
                "{host}"
            );
        }
    }

    #[test]
    fn no_proxy_excludes_hosts_domains_and_blocks() {
        let rows = [
            ("*", "http://h/", true),
            ("other, example.com", "http://api.example.com/", true),
            (".example.com", "http://example.com/", true),
            ("*.example.com", "http://a.example.com/", true),
            ("example.com", "http://badexample.com/", false),
            ("example.com:8080", "http://example.com:8080/", true),
            ("example.com:8080", "http://example.com/", false),
            ("10.0.0.0/8", "http://10.9.9.9/", true),
            ("10.0.0.0/8", "http://11.0.0.1/", false),
            ("0.0.0.0/0", "http://11.0.0.1/", true),
            ("fd00::/8", "http://[fd12::1]/", true),
            ("192.168.1.1", "http://192.168.1.1:9/", true),
            ("192.168.1.1:9", "http://192.168.1.1:9/", true),
            ("", "http://h/", false),
            ("h:x . * ", "http://h/", true),
            (".", "http://h/", false),
        ];
        for (list, url, direct) in rows {
            for name in ["NO_PROXY", "no_proxy"] {
                let got = found(url, &[("HTTP_PROXY", "http://a:1"), (name, list)]);
                assert_eq!(got == Ok(None), direct, "{list} {url}");
            }
        }
    }

    #[test]
    fn credentials_are_decoded_and_never_shown() {
        let url = Uri::parse("http://h/").expect("valid");
        let proxy = proxy_for(&url, &env(&[("HTTP_PROXY", "http://me:p%40ss@a:1")]));
        let proxy = proxy.expect("usable").expect("there");
        assert_eq!(proxy.credentials, Some(Secret::new("me:p@ss".to_owned())));
        for value in [
            "socks5://me:hunter2@a:1",
            "http://me:hunter2@a:b",
            "http://me:hunter%zz2@a",
        ] {
            let error = proxy_for(&url, &env(&[("HTTP_PROXY", value)]))
                .expect_err(value)
                .to_string();
            assert!(
                error.contains("HTTP_PROXY") && !error.contains("hunter"),
                "{error}"
            );
        }
    }
}
