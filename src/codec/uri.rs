//! Absolute URLs with the schemes we speak: `ws`, `wss`, `http`, `https`.
//!
//! Stricter than RFC 3986: visible ASCII only, no percent escapes in host names, no zone of an IPv6
//! literal. What passes can be written into an HTTP request as it is.

use core::net::Ipv6Addr;
use std::fmt;

use crate::secret::Quoted;

/// Longest URL we read. Unit: bytes. Source: reliability-security §3 (request target, 8 KiB).
pub const URI_BYTES_MAX: usize = 8 * 1024;

/// Longest host name. Unit: bytes. Source: RFC 1035 §2.3.4.
const HOST_BYTES_MAX: usize = 255;

/// The schemes we speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// WebSocket over plain TCP.
    Ws,
    /// WebSocket over TLS.
    Wss,
    /// HTTP over plain TCP.
    Http,
    /// HTTP over TLS.
    Https,
}

impl Scheme {
    /// As written in a URL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// Whether the connection is protected by TLS.
    #[must_use]
    pub const fn is_tls(self) -> bool {
        match self {
            Self::Wss | Self::Https => true,
            Self::Ws | Self::Http => false,
        }
    }

    /// Port when the URL names none.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        default_port(self.is_tls())
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Ws, Self::Wss, Self::Http, Self::Https]
            .into_iter()
            .find(|scheme| text.eq_ignore_ascii_case(scheme.as_str()))
    }
}

/// A parsed URL. User information is dropped; only its presence is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uri {
    /// Scheme.
    pub scheme: Scheme,
    /// Host name in lower case, or address literal; an IPv6 literal without its brackets.
    pub host: String,
    /// Port, when the URL names one.
    pub port: Option<u16>,
    /// Path and query as sent in a request: starts with `/`.
    pub path_and_query: String,
    /// Whether the URL carried a user name or password.
    pub userinfo: bool,
}

/// Why a text is not a URL we can call. Never quotes user information.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UriError {
    /// Longer than [`URI_BYTES_MAX`]: its length.
    TooLong(usize),
    /// No `://`.
    NoScheme,
    /// A scheme we do not speak.
    Scheme(String),
    /// A byte that is not visible ASCII: value and offset.
    Byte(u8, usize),
    /// No host.
    NoHost,
    /// A host that is neither a name nor an address literal.
    Host(String),
    /// A port that is not a number from 1 to 65535.
    Port(String),
    /// A fragment, which a WebSocket URL must not have. RFC 6455 §3.
    Fragment,
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(value) => {
                write!(f, "URL is too long: {value} bytes, limit {URI_BYTES_MAX}")
            }
            Self::NoScheme => {
                f.write_str("URL has no scheme; expected ws://, wss://, http:// or https://")
            }
            Self::Scheme(found) => write!(
                f,
                "URL scheme {} is not supported; expected ws, wss, http or https",
                Quoted(found)
            ),
            Self::Byte(byte, offset) => {
                write!(f, "URL holds byte 0x{byte:02x} at offset {offset}")
            }
            Self::NoHost => f.write_str("URL has no host"),
            Self::Host(found) => write!(f, "URL host is invalid: {}", Quoted(found)),
            Self::Port(found) => write!(
                f,
                "URL port must be a number from 1 to 65535 (found {})",
                Quoted(found)
            ),
            Self::Fragment => f.write_str("a WebSocket URL must not have a fragment (#…)"),
        }
    }
}

impl std::error::Error for UriError {}

impl Uri {
    /// Reads an absolute URL. A fragment of an HTTP URL is dropped.
    ///
    /// # Errors
    /// What is wrong with it, in words fit for a configuration error.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        if text.len() > URI_BYTES_MAX {
            return Err(UriError::TooLong(text.len()));
        }
        if let Some(offset) = text.bytes().position(|b| !b.is_ascii_graphic()) {
            return Err(UriError::Byte(text.as_bytes()[offset], offset));
        }
        let (scheme, rest) = text.split_once("://").ok_or(UriError::NoScheme)?;
        let scheme = Scheme::parse(scheme).ok_or_else(|| UriError::Scheme(scheme.to_owned()))?;
        let (rest, fragment) = match rest.split_once('#') {
            Some((rest, _)) => (rest, true),
            None => (rest, false),
        };
        if fragment && matches!(scheme, Scheme::Ws | Scheme::Wss) {
            return Err(UriError::Fragment);
        }
        let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (userinfo, host_and_port) = match authority.rsplit_once('@') {
            Some((_, host_and_port)) => (true, host_and_port),
            None => (false, authority),
        };
        let (host, port) = split_authority(host_and_port)?;
        let path_and_query = if tail.starts_with('/') {
            tail.to_owned()
        } else {
            format!("/{tail}")
        };
        Ok(Self {
            scheme,
            host,
            port,
            path_and_query,
            userinfo,
        })
    }

    /// The port to connect to.
    #[must_use]
    pub fn port_or_default(&self) -> u16 {
        self.port.unwrap_or(self.scheme.default_port())
    }
}

impl fmt::Display for Uri {
    /// Without user information; fit for logs only through `UrlForLog`, which also drops the query.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = host_header(&self.host, self.port_or_default(), self.scheme.is_tls());
        write!(
            f,
            "{}://{host}{}",
            self.scheme.as_str(),
            self.path_and_query
        )
    }
}

/// The value of a Host field: an IPv6 literal gets its brackets, a default port is left out.
/// RFC 9110 §7.2.
#[must_use]
pub fn host_header(host: &str, port: u16, tls: bool) -> String {
    let (open, close) = if host.contains(':') {
        ("[", "]")
    } else {
        ("", "")
    };
    if port == default_port(tls) {
        format!("{open}{host}{close}")
    } else {
        format!("{open}{host}{close}:{port}")
    }
}

/// Splits `host`, `host:port` or `[v6]:port`, as in a URL or a Host field, and checks both parts. The
/// host comes in lower case.
///
/// # Errors
/// [`UriError::NoHost`], [`UriError::Host`] or [`UriError::Port`].
pub fn split_authority(text: &str) -> Result<(String, Option<u16>), UriError> {
    let (host, port) = authority_parts(text)?;
    Ok((host.to_ascii_lowercase(), port))
}

/// As [`split_authority`], with the host as it is written; allocates nothing unless it fails.
///
/// # Errors
/// As of [`split_authority`].
pub fn authority_parts(text: &str) -> Result<(&str, Option<u16>), UriError> {
    let bad_host = || UriError::Host(text.to_owned());
    if let Some(rest) = text.strip_prefix('[') {
        let (literal, rest) = rest.split_once(']').ok_or_else(bad_host)?;
        literal.parse::<Ipv6Addr>().map_err(|_| bad_host())?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((literal, parse_port(port)?)),
            None if rest.is_empty() => Ok((literal, None)),
            None => Err(bad_host()),
        };
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, parse_port(port)?),
        None => (text, None),
    };
    if host.is_empty() {
        return Err(UriError::NoHost);
    }
    let name_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if host.len() > HOST_BYTES_MAX || !host.bytes().all(name_byte) {
        return Err(bad_host());
    }
    Ok((host, port))
}

/// A colon without digits behind it means the default port. RFC 3986 §3.2.3.
fn parse_port(text: &str) -> Result<Option<u16>, UriError> {
    if text.is_empty() {
        return Ok(None);
    }
    let bad = || UriError::Port(text.to_owned());
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    match text.parse::<u16>() {
        Ok(0) | Err(_) => Err(bad()),
        Ok(port) => Ok(Some(port)),
    }
}

const fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (Scheme, String, u16, String, bool) {
        let uri = Uri::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let port = uri.port_or_default();
        (uri.scheme, uri.host, port, uri.path_and_query, uri.userinfo)
    }

    #[test]
    fn urls_come_apart() {
        let table = [
            ("ws://h", Scheme::Ws, "h", 80, "/", false),
            (
                "WSS://Host.Example.",
                Scheme::Wss,
                "host.example.",
                443,
                "/",
                false,
            ),
            (
                "ws://127.0.0.1:18789",
                Scheme::Ws,
                "127.0.0.1",
                18789,
                "/",
                false,
            ),
            (
                "http://[::1]:8080/mcp?x=/#f",
                Scheme::Http,
                "::1",
                8080,
                "/mcp?x=/",
                false,
            ),
            (
                "https://[2001:DB8::1]",
                Scheme::Https,
                "2001:db8::1",
                443,
                "/",
                false,
            ),
            ("ws://h:/p", Scheme::Ws, "h", 80, "/p", false),
            ("ws://h?token=x", Scheme::Ws, "h", 80, "/?token=x", false),
            ("wss://me:p@ss@h:1/a@b", Scheme::Wss, "h", 1, "/a@b", true),
        ];
        for (text, scheme, host, port, path, userinfo) in table {
            let expected = (scheme, host.to_owned(), port, path.to_owned(), userinfo);
            assert_eq!(parts(text), expected, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_called_is_refused() {
        let error = |text: &str| Uri::parse(text).expect_err(text);
        assert_eq!(error("notaurl"), UriError::NoScheme);
        assert_eq!(error("ftp://h"), UriError::Scheme("ftp".to_owned()));
        assert_eq!(error("ws://"), UriError::NoHost);
        assert_eq!(error("ws://user@:80/"), UriError::NoHost);
        assert_eq!(error("ws://h:0"), UriError::Port("0".to_owned()));
        assert_eq!(error("ws://h:65536"), UriError::Port("65536".to_owned()));
        assert_eq!(error("ws://h:+80"), UriError::Port("+80".to_owned()));
        assert_eq!(error("ws://::1"), UriError::Port(":1".to_owned()));
        assert_eq!(error("ws://[::1"), UriError::Host("[::1".to_owned()));
        assert_eq!(
            error("ws://[fe80::1%25eth0]/"),
            UriError::Host("[fe80::1%25eth0]".to_owned())
        );
        assert_eq!(error("ws://[::1]x"), UriError::Host("[::1]x".to_owned()));
        assert_eq!(error("ws://a%20b/"), UriError::Host("a%20b".to_owned()));
        assert_eq!(error("ws://h/a b"), UriError::Byte(b' ', 8));
        assert_eq!(error("ws://h/\r\nX: y"), UriError::Byte(b'\r', 7));
        assert_eq!(error("ws://h/#top"), UriError::Fragment);
        assert_eq!(error("ws://hé/"), UriError::Byte(0xc3, 6));
    }

    #[test]
    fn length_is_bounded() {
        let of = |len: usize| format!("ws://h/{}", "a".repeat(len - 7));
        assert!(Uri::parse(&of(URI_BYTES_MAX)).is_ok());
        assert_eq!(
            Uri::parse(&of(URI_BYTES_MAX + 1)),
            Err(UriError::TooLong(URI_BYTES_MAX + 1))
        );
    }

    #[test]
    fn errors_never_show_a_password() {
        for text in [
            "ws://me:hunter2@a%b/",
            "ws://me:hunter2@h:x/",
            "ws://me:hunter2@/",
        ] {
            let error = Uri::parse(text).expect_err(text).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn host_fields_leave_default_ports_out() {
        assert_eq!(host_header("h", 80, false), "h");
        assert_eq!(host_header("h", 80, true), "h:80");
        assert_eq!(host_header("::1", 443, true), "[::1]");
        assert_eq!(host_header("::1", 18789, false), "[::1]:18789");
        let shown = Uri::parse("wss://me:pw@[::1]:443/x")
            .expect("valid")
            .to_string();
        assert_eq!(shown, "wss://[::1]/x");
    }
}
