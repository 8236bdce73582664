//! The HTTP front of the hub.

pub mod sessions;
