//! What peers tell their clients about the server.

use crate::limits::Limits;

/// What peers tell their clients about the server. The JSON texts are complete objects.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// `serverInfo`.
    pub server_info: String,
    /// `capabilities` of the handshake revisions.
    pub capabilities: String,
    /// `capabilities` of 2026-07-28.
    pub modern_capabilities: String,
    /// Guidance for models, where there is some: a JSON string, as it is written.
    pub instructions: Option<String>,
    /// Lists that may change, and so may be listened to.
    pub changing: Changing,
    /// Whether clients may subscribe to single resources.
    pub resource_updates: bool,
    /// Whether clients may listen to tasks. Spec: extension io.modelcontextprotocol/tasks.
    pub task_updates: bool,
    /// Whether `logging/setLevel` is a request for the owner, for the one behind it has that method too and
    /// nobody else: what it grants is kept by [`ServerPeer::set_log_level`](super::ServerPeer::set_log_level).
    pub relays_log_level: bool,
    /// Whether the server is yet to be met: what it is and has is asked by
    /// [`ServerEvent::Opens`](super::ServerEvent::Opens) and told by
    /// [`ServerPeer::introduce`](super::ServerPeer::introduce). Everything above is then taken for possible
    /// and told to nobody.
    pub awaits_introduction: bool,
    /// Whether the owner grants subscriptions to resources, for it has to ask elsewhere:
    /// [`ServerEvent::Subscribes`](super::ServerEvent::Subscribes) and
    /// [`ServerEvent::Listens`](super::ServerEvent::Listens).
    pub relays_subscriptions: bool,
    /// How long a modern client may keep lists and the discovery, in milliseconds.
    pub cache_ttl_ms: u64,
    /// The limits in force.
    pub limits: Limits,
}

/// Which lists may change in the life of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changing {
    /// `tools/list`.
    pub tools: bool,
    /// `prompts/list`.
    pub prompts: bool,
    /// `resources/list`.
    pub resources: bool,
}

impl Changing {
    /// All of them.
    pub const ALL: Self = Self {
        tools: true,
        prompts: true,
        resources: true,
    };
}

/// A list that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// `tools/list`.
    Tools,
    /// `prompts/list`.
    Prompts,
    /// `resources/list`.
    Resources,
}

impl List {
    pub(super) const fn method(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources => "notifications/resources/list_changed",
        }
    }

    pub(super) const fn of(self, changing: Changing) -> bool {
        match self {
            Self::Tools => changing.tools,
            Self::Prompts => changing.prompts,
            Self::Resources => changing.resources,
        }
    }
}
