//! What clients are told that the hub is and can do, from what stands behind it.

use super::{LocalConfig, ServerIdentity, UpstreamConfig};
use crate::bridge::{Bridge, ChannelMode, ToolDef};
use crate::codec::json_text::write_string;
use crate::limits::Limits;
use crate::local::TASKS_EXTENSION;
use crate::protocol::server::{Changing, ServerConfig};

/// The channel tools, as `tools/list` has them.
pub(super) fn channel_tools() -> Vec<String> {
    let raw = |tool: &ToolDef| {
        let mut json = String::new();
        tool.write_json(&mut json, tool.name);
        json
    };
    Bridge::tool_list().iter().map(raw).collect()
}

/// What peers say of the hub: channel tools with a Gateway, and what the embedding program offers.
pub(super) fn server_config(
    identity: &ServerIdentity,
    bridge: Option<ChannelMode>,
    local: Option<&LocalConfig>,
    has_plugins: bool,
    upstream: Option<&UpstreamConfig>,
    limits: &Limits,
) -> ServerConfig {
    let mut legacy = Vec::new();
    let mut modern = Vec::new();
    let mut changing = Changing::default();
    if let Some(mode) = bridge {
        if mode.announces() {
            legacy.push(
                r#""experimental":{"claude/channel":{},"claude/channel/permission":{}}"#.to_owned(),
            );
        }
        changing.tools = true;
    }
    let offered = local.map(|local| local.registry.capabilities());
    if let Some(offered) = &offered {
        legacy.push(offered.legacy.clone());
        modern.push(offered.modern.clone());
        changing.tools |= offered.changing.tools;
        changing.prompts = offered.changing.prompts;
        changing.resources = offered.changing.resources;
    }
    let declares = |members: &[String], name: &str| {
        members
            .iter()
            .any(|members| members.contains(&format!("\"{name}\":")))
    };
    // Nobody waits for servers to say what they have: they may have all of it.
    if upstream.is_some() {
        changing = Changing::ALL;
        let all = r#""tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"completions":{},"logging":{}"#.to_owned();
        let tasks = format!(r#""extensions":{{"{TASKS_EXTENSION}":{{}}}}"#);
        let bridge = legacy
            .drain(..)
            .filter(|members| members.contains("claude/"));
        legacy = bridge.chain([all.clone()]).collect();
        modern = vec![tasks, all];
    }
    changing.tools |= has_plugins;
    if bridge.is_some() || upstream.is_some() || has_plugins {
        for members in [&mut legacy, &mut modern] {
            if !declares(members, "tools") {
                members.push(r#""tools":{"listChanged":true}"#.to_owned());
            }
        }
        if !declares(&legacy, "logging") {
            legacy.push(r#""logging":{}"#.to_owned());
        }
    }
    let object = |members: Vec<String>| {
        let members: Vec<String> = members
            .into_iter()
            .filter(|members| !members.is_empty())
            .collect();
        format!("{{{}}}", members.join(","))
    };
    ServerConfig {
        server_info: identity.as_json(),
        capabilities: object(legacy),
        modern_capabilities: object(modern),
        instructions: identity.instructions.as_deref().map(json_string),
        resource_updates: upstream.is_some()
            || offered
                .as_ref()
                .is_some_and(|offered| offered.resource_updates),
        task_updates: upstream.is_some() || offered.is_some_and(|offered| offered.task_updates),
        changing,
        relays_log_level: false,
        awaits_introduction: false,
        relays_subscriptions: upstream.is_some(),
        cache_ttl_ms: 300_000,
        limits: limits.clone(),
    }
}

fn json_string(text: &str) -> String {
    let mut json = String::new();
    write_string(&mut json, text);
    json
}
