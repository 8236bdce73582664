//! The members of `params._meta` that every request of 2026-07-28 is looked at for.

/// Keys of `params._meta` that make a request a modern one. Spec: 2026-07-28 basic/index (`_meta`).
pub const META_PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// See [`META_PROTOCOL_VERSION`].
pub const META_CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// See [`META_PROTOCOL_VERSION`].
pub const META_CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// Level of log messages wanted for one request.
pub const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// `params._meta` of a request, as raw values. A member that is `null` is present.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestMeta<'a> {
    /// Raw value of [`META_PROTOCOL_VERSION`].
    pub protocol_version: Option<&'a str>,
    /// Raw value of [`META_CLIENT_CAPABILITIES`].
    pub client_capabilities: Option<&'a str>,
    /// Raw value of [`META_CLIENT_INFO`].
    pub client_info: Option<&'a str>,
    /// Raw value of [`META_LOG_LEVEL`].
    pub log_level: Option<&'a str>,
    /// Raw value of `progressToken`.
    pub progress_token: Option<&'a str>,
}

impl<'a> RequestMeta<'a> {
    pub(super) const EMPTY: Self = RequestMeta {
        protocol_version: None,
        client_capabilities: None,
        client_info: None,
        log_level: None,
        progress_token: None,
    };

    /// Where the value of a member is kept.
    pub(super) const fn place(&mut self, member: InMeta) -> &mut Option<&'a str> {
        match member {
            InMeta::ProtocolVersion => &mut self.protocol_version,
            InMeta::ClientCapabilities => &mut self.client_capabilities,
            InMeta::ClientInfo => &mut self.client_info,
            InMeta::LogLevel => &mut self.log_level,
            InMeta::ProgressToken => &mut self.progress_token,
        }
    }
}

/// The members of `params._meta` that are noted.
#[derive(Clone, Copy)]
pub(super) enum InMeta {
    ProtocolVersion,
    ClientCapabilities,
    ClientInfo,
    LogLevel,
    ProgressToken,
}
