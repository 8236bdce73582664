//! The embedded Gateway.

pub mod rpc;
pub mod store;
