//! What an answer says of the era of a server.
//!
//! Source: Spec 2026-07-28 server/discover, basic/versioning; 2025-11-25 basic/lifecycle.

use super::RequestEnd;
use super::fault::{RemoteError, strings};
use super::terms::ServerFacts;
use crate::codec::scan::Text;
use crate::protocol::error::ErrorCode;
use crate::protocol::message::{META_SERVER_INFO, member};
use crate::protocol::revision::Revision;

/// What only a server of the stateless era says. Spec: 2026-07-28 basic/versioning.
pub(super) const MODERN_ERRORS: [ErrorCode; 3] = [
    ErrorCode::HeaderMismatch,
    ErrorCode::MissingClientCapability,
    ErrorCode::UnsupportedProtocolVersion,
];

/// What is taken for granted of a stateless server that does not know `server/discover`.
const ASSUMED_CAPABILITIES: &str = r#"{"tools":{},"resources":{},"prompts":{}}"#;

/// A `DiscoverResult`.
#[derive(Debug)]
pub(super) struct Discovery {
    /// The versions that the server speaks.
    pub(super) supported: Vec<String>,
    capabilities: Box<str>,
    server_info: Option<Box<str>>,
    instructions: Option<Box<str>>,
}

impl Discovery {
    /// Reads a raw result; `None` when it is none, so that no server of the era has written it.
    pub(super) fn read(result: &str) -> Option<Self> {
        let kind = member(result, "resultType").and_then(Text::of_value);
        let supported = member(result, "supportedVersions").filter(|raw| raw.starts_with('['))?;
        if kind.is_some_and(|kind| !kind.is("complete")) {
            return None;
        }
        let info = member(result, "_meta").and_then(|meta| member(meta, META_SERVER_INFO));
        Some(Self {
            supported: strings(Some(supported)),
            capabilities: object(member(result, "capabilities")),
            server_info: info
                .or_else(|| member(result, "serverInfo"))
                .filter(|raw| raw.starts_with('{'))
                .map(Box::from),
            instructions: text(result, "instructions"),
        })
    }

    /// What is known of the server that is spoken to in this revision.
    pub(super) fn facts(self, revision: Revision) -> ServerFacts {
        ServerFacts {
            revision,
            capabilities: self.capabilities,
            server_info: self.server_info,
            instructions: self.instructions,
        }
    }
}

fn object(raw: Option<&str>) -> Box<str> {
    raw.filter(|raw| raw.starts_with('{'))
        .unwrap_or("{}")
        .into()
}

/// A raw string.
fn text(object: &str, name: &str) -> Option<Box<str>> {
    member(object, name)
        .filter(|raw| raw.starts_with('"'))
        .map(Box::from)
}

/// What is taken for known of a stateless server that cannot be asked.
pub(super) fn assumed_facts() -> ServerFacts {
    ServerFacts {
        revision: Revision::NEWEST_STATELESS,
        capabilities: ASSUMED_CAPABILITIES.into(),
        server_info: None,
        instructions: None,
    }
}

/// What a raw `InitializeResult` says.
pub(super) fn shaken_facts(revision: Revision, result: &str) -> ServerFacts {
    let info = member(result, "serverInfo").filter(|raw| raw.starts_with('{'));
    ServerFacts {
        revision,
        capabilities: object(member(result, "capabilities")),
        server_info: info.map(Box::from),
        instructions: text(result, "instructions"),
    }
}

/// Whether the answer says that there is no such method, in the way of the stateless era.
pub(super) fn is_unknown_method(error: &RemoteError, status: Option<u16>) -> bool {
    status == Some(404) && error.is_one_of(&[ErrorCode::MethodNotFound])
}

/// Whether what came in place of an answer to the probe may be due to its era.
pub(super) fn tells_of_era(end: &RequestEnd) -> bool {
    match end {
        RequestEnd::Status(end) => {
            end.is_refusal() || (end.status >= 500 && end.retry_after_ms.is_none())
        }
        RequestEnd::SessionLost { .. }
        | RequestEnd::SessionDoubtful(_)
        | RequestEnd::Accepted
        | RequestEnd::ContentType { .. }
        | RequestEnd::Broken(_)
        | RequestEnd::TooLarge { .. } => true,
        RequestEnd::NotSent(_) | RequestEnd::NotReading { .. } | RequestEnd::Redirect { .. } => {
            false
        }
    }
}
