//! From a record to a link.

use crate::limits::Limits;
use crate::link::http_client::{HttpBounds, HttpLink, HttpTarget};
use crate::link::sse_client::SseLink;
use crate::link::stdio_child::StdioChild;
use crate::link::unix_link::UnixLink;
use crate::link::upstream_link::UpstreamLink;
use crate::manager::server_config::{HttpKind, ServerConfig, Transport};

/// A link as the record wants it.
pub(super) fn link_to(config: &ServerConfig, older_pair: bool, limits: &Limits) -> UpstreamLink {
    let (message_max, out_max) = (config.bounds.message_bytes_max, config.bounds.out_bytes_max);
    match &config.transport {
        Transport::Stdio(stdio) => {
            let name = config.key.as_str();
            UpstreamLink::Child(StdioChild::new(
                name,
                stdio.spec(),
                message_max,
                out_max,
                limits,
            ))
        }
        Transport::Unix { path } => {
            UpstreamLink::Unix(UnixLink::new(path.clone(), message_max, out_max, limits))
        }
        Transport::Http(http) => {
            let target = HttpTarget {
                url: http.url.clone(),
                headers: http.headers.clone(),
                tls: http.tls.clone(),
                proxy: http.proxy.clone(),
            };
            let bounds = HttpBounds {
                message_bytes_max: message_max,
                out_bytes_max: out_max,
                resume_attempts_max: config.bounds.resume_attempts_max,
            };
            match older_pair || http.kind == HttpKind::Sse {
                true => UpstreamLink::Sse(SseLink::new(target, bounds, limits)),
                false => UpstreamLink::Http(HttpLink::new(target, bounds, limits)),
            }
        }
    }
}
