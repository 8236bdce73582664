//! The OpenClaw Gateway protocol, client side: who we are, where the Gateway is, and the
//! conversation with it from the challenge to the last reconnect.

mod connect;
mod credentials;
pub mod endpoint;
pub mod frame;
pub mod identity;
mod place;
mod report;
mod requests;
pub mod session;
