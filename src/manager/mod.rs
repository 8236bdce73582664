//! The client runtime: many upstream MCP servers, each behind one record of configuration, isolated by
//! session, connected on demand, kept while they are used and brought back when they die.

pub mod catalog;
pub mod diagnostic;
pub mod entry;
pub mod environment;
pub mod error;
pub mod filter;
pub mod fingerprint;
pub mod health;
pub mod naming;
pub mod placeholder;
pub mod proxy;
pub mod server_config;
