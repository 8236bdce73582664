//! The commands that use MCP servers: `list`, `call`, `read`, `prompt`, `probe`, `status`, `doctor`.

mod arguments;
mod call;
mod config;
mod doctor;
mod failures;
mod lists;
mod options;
mod probe;
mod secrets;
pub(crate) mod servers;
mod status;
mod terminal;
