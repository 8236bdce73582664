//! What a hub is made of.

use std::time::Duration;

use super::{HttpConfig, LocalConfig, PluginTool, UpstreamConfig};
use crate::bridge::ChannelMode;
use crate::codec::json_text::write_string;
use crate::gateway::session::SessionConfig;
use crate::limits::Limits;
use crate::link::ChildSpec;
use crate::link::http_rules::AccessRules;
use crate::link::websocket::ConnectSpec;

/// What a hub is made of.
#[derive(Debug)]
pub struct HubConfig {
    /// Every bound.
    pub limits: Limits,
    /// What clients are told about us.
    pub identity: ServerIdentity,
    /// The Gateway to bridge, and who we are to it; `None` for a hub without channel tools.
    pub gateway: Option<GatewayConfig>,
    /// What the embedding program offers itself.
    pub local: Option<LocalConfig>,
    /// Tools that are commands, beside what the program offers itself. One whose name is taken is left out,
    /// with a diagnostic.
    pub plugins: Vec<PluginTool>,
    /// Servers whose tools, resources and prompts are offered beside the channel tools and what the program
    /// offers itself. Of two things with one name those of the channel and of the program keep it, and a
    /// server's is shown as `server__name`.
    pub upstream: Option<UpstreamConfig>,
    /// Whether conversations are announced to Claude as channel messages.
    pub channel_mode: ChannelMode,
    /// Say more on stderr.
    pub verbose: bool,
    /// Who decides about calls.
    pub policy: HubPolicy,
    /// How HTTP is served, on the addresses given to [`Hub::listen_http`](super::Hub::listen_http).
    pub http: HttpConfig,
    /// Whether [`HubEvent::GatewayFrame`](super::HubEvent::GatewayFrame) tells what crosses the Gateway wire.
    /// It holds credentials.
    pub tap: bool,
}

impl Default for HubConfig {
    /// Nothing is offered, everybody may call it, and HTTP is for this machine.
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            identity: ServerIdentity::default(),
            gateway: None,
            local: None,
            plugins: Vec::new(),
            upstream: None,
            channel_mode: ChannelMode::default(),
            verbose: false,
            policy: HubPolicy::default(),
            http: HttpConfig {
                rules: AccessRules::loopback(),
            },
            tap: false,
        }
    }
}

/// `serverInfo`, and guidance for models. Spec: 2025-11-25 schema (Implementation).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerIdentity {
    /// Name for programs.
    pub name: String,
    /// Name for people.
    pub title: Option<String>,
    /// Version.
    pub version: String,
    /// How to use what is offered.
    pub instructions: Option<String>,
}

impl ServerIdentity {
    /// Who the bridge of an OpenClaw Gateway says it is: a drop-in keeps the name.
    #[must_use]
    pub fn bridge() -> Self {
        Self {
            name: "openclaw".to_owned(),
            title: Some("drawspan".to_owned()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            instructions: None,
        }
    }

    /// Who a span of MCP servers says it is.
    #[must_use]
    pub fn span() -> Self {
        Self {
            name: "drawspan".to_owned(),
            ..Self::bridge()
        }
    }

    /// `serverInfo`: an `Implementation` object.
    pub(super) fn as_json(&self) -> String {
        let mut json = String::from(r#"{"name":"#);
        write_string(&mut json, &self.name);
        if let Some(title) = &self.title {
            json.push_str(r#","title":"#);
            write_string(&mut json, title);
        }
        json.push_str(r#","version":"#);
        write_string(&mut json, &self.version);
        json.push('}');
        json
    }
}

/// Where the Gateway is and how to introduce ourselves.
#[derive(Debug)]
pub struct GatewayConfig {
    /// Where to connect.
    pub connect: ConnectSpec,
    /// Identity, credentials and limits.
    pub session: SessionConfig,
}

/// Who decides about tool calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HubPolicy {
    /// Every call passes.
    #[default]
    Open,
    /// This program is asked. Design: hooks.beforeToolCall.
    Hook(HookConfig),
    /// The embedding program is asked by [`HubEvent::GateAsked`](super::HubEvent::GateAsked).
    Embedder,
}

/// The before-tool-call hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookConfig {
    /// Program, arguments and environment.
    pub command: ChildSpec,
    /// How long it may take; `None` means `hook_timeout`.
    pub timeout: Option<Duration>,
}
