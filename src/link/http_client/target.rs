//! Where a server is and how it is reached.

use crate::codec::uri::{Uri, host_header};
use crate::limits::Limits;
use crate::link::TlsSpec;
use crate::secret::Secret;

/// A server behind a URL.
#[derive(Clone, Debug)]
pub struct HttpTarget {
    /// Its endpoint: `http` or `https`.
    pub url: Uri,
    /// Fields of every request to it. Those that belong to the transport are left out; see
    /// [`is_reserved`](super::is_reserved).
    pub headers: Vec<(String, Secret<String>)>,
    /// Used when the scheme is `https`.
    pub tls: TlsSpec,
    /// Go through this proxy.
    pub proxy: Option<HttpProxy>,
}

/// An HTTP proxy. It is asked for a tunnel (CONNECT) for `http` and `https` alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProxy {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// `user:password`, for `Proxy-Authorization: Basic`.
    pub credentials: Option<Secret<String>>,
}

/// Bounds of one server that its configuration may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpBounds {
    /// One body or event from it.
    pub message_bytes_max: usize,
    /// Bytes waiting to be written to it.
    pub out_bytes_max: usize,
    /// GETs with `Last-Event-ID` for one interrupted answer that make no progress.
    pub resume_attempts_max: usize,
}

impl From<&Limits> for HttpBounds {
    fn from(limits: &Limits) -> Self {
        Self {
            message_bytes_max: limits.upstream_message_bytes_max,
            out_bytes_max: limits.upstream_out_bytes_max,
            resume_attempts_max: limits.resume_attempts_max,
        }
    }
}

/// `host:port` as a Host field has it.
pub(crate) fn authority(url: &Uri) -> String {
    host_header(&url.host, url.port_or_default(), url.scheme.is_tls())
}

/// Scheme, host and port, for people.
pub(crate) fn origin(url: &Uri) -> String {
    format!("{}://{}", url.scheme.as_str(), authority(url))
}

/// Whether two URLs have the same scheme, host and port.
pub(crate) fn same_origin(a: &Uri, b: &Uri) -> bool {
    a.scheme == b.scheme && a.host == b.host && a.port_or_default() == b.port_or_default()
}
