//! The way through a proxy. Source: RFC 9110 §9.3.6, RFC 7617 §2.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::target::{HttpProxy, HttpTarget};
use crate::codec::http1::{HeadWriter, ResponseHead, WriteError};
use crate::secret::Quoted;

/// The request for a tunnel to the target. For `http` the port is named too.
pub(super) fn request(target: &HttpTarget, proxy: &HttpProxy) -> Result<Vec<u8>, WriteError> {
    let to = far_end(target);
    let mut head = HeadWriter::request("CONNECT", &to)?.field("Host", &to)?;
    if let Some(credentials) = &proxy.credentials {
        let value = format!("Basic {}", BASE64.encode(credentials.expose()));
        head = head.field("Proxy-Authorization", &value)?;
    }
    Ok(head.finish())
}

/// Why there is no tunnel.
pub(super) fn refusal(target: &HttpTarget, proxy: &HttpProxy, head: &ResponseHead) -> String {
    format!(
        "proxy {}:{} refused a tunnel to {} with HTTP status {}",
        Quoted(&proxy.host),
        proxy.port,
        far_end(target),
        head.status
    )
}

fn far_end(target: &HttpTarget) -> String {
    let (host, port) = (&target.url.host, target.url.port_or_default());
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}
