//! HTTP connections from outside: fixtures, other people's messages, memory, real sockets.

#[path = "http/cases.rs"]
mod cases;
#[path = "http/fixtures.rs"]
mod fixtures;
#[path = "http/llhttp.rs"]
mod llhttp;
#[path = "http/memory.rs"]
mod memory;
#[path = "http/player.rs"]
mod player;
#[path = "http/random.rs"]
mod random;
#[path = "http/sockets.rs"]
mod sockets;
