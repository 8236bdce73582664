//! The Model Context Protocol as state machines over raw JSON: what the revisions differ in, what the
//! messages mean, and the server's side of a conversation.

pub mod error;
pub mod message;
pub mod revision;
pub mod server;
