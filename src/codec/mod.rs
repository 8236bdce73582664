//! Bytes to messages and back. Everything in here is pure: slices in, values out, no clock, no descriptor.

pub mod challenge;
pub mod glob;
pub mod http1;
pub mod http_body;
pub mod json_object;
pub mod json_text;
pub mod jsonrpc;
pub mod lines;
pub mod object;
pub mod outbuf;
mod plain;
pub mod repeated;
pub mod scan;
pub mod shared_text;
pub mod splice;
pub mod sse;
pub mod uri;
pub mod websocket;
