//! The embedded Gateway, spoken to over WebSocket frames in memory, on virtual time.

#[path = "embedded/approvals.rs"]
mod approvals;
#[path = "embedded/durability.rs"]
mod durability;
#[path = "embedded/handshake.rs"]
mod handshake;
#[path = "embedded/methods.rs"]
mod methods;
#[path = "embedded/session.rs"]
mod session;
#[path = "embedded/world.rs"]
mod world;
