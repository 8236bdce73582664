//! The event loop.

pub mod child;
pub mod host_stdio;
pub mod identity_files;
pub mod journal;
pub mod resolver;
pub mod system;
#[cfg(feature = "tls")]
pub mod tls;
pub mod wire;
