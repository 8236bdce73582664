//! The real event loop against the real operating system: sockets, pipes, programs, descriptors.
//!
//! No test sleeps; each waits for an event and gives up after [`probe::PATIENCE`]. Two need a
//! program that is not part of this crate's build: `openssl` (certificates and a server) and
//! `script` (a terminal). `DRAWSPAN_SKIP_PEERS=1` leaves those two out, with a line on stderr.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails with the line that could not"
)]

/// Children are ours here; `tests/lifetime.rs` runs the same tests with guardians.
const GUARDIAN: Option<&str> = None;

#[path = "os/children.rs"]
mod children;
#[path = "common/deserted.rs"]
mod deserted;
#[path = "os/http_client.rs"]
mod http_client;
#[path = "os/hub.rs"]
mod hub;
#[path = "os/machinery.rs"]
mod machinery;
#[path = "os/probe.rs"]
mod probe;
#[path = "os/scale.rs"]
mod scale;
#[path = "os/sockets.rs"]
mod sockets;
#[path = "os/stdio.rs"]
mod stdio;
#[cfg(feature = "tls")]
#[path = "os/tls.rs"]
mod tls;
#[path = "os/unix_sockets.rs"]
mod unix_sockets;
