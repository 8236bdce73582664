//! drawspan, a two-way bridge for the Model Context Protocol.
#![forbid(unsafe_code)]

pub mod backoff;
pub mod bridge;
pub mod clock;
pub mod codec;
pub mod crypto;
pub mod diagnostic;
pub mod embedded;
pub mod entropy;
pub mod gate;
pub mod gateway;
pub mod hub;
pub mod ids;
pub mod io;
pub mod limits;
pub mod link;
pub mod local;
pub mod protocol;
pub mod secret;

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod config;
#[cfg(feature = "cli")]
pub mod logging;
