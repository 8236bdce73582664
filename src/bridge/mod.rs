//! The channel bridge: OpenClaw conversations, events and approvals as MCP tools.

pub mod approvals;
pub mod conversation;
pub mod permissions;
pub mod queue;
pub mod steps;
pub mod tools;
pub mod waiters;
