//! The program as people run it: the real binary with real pipes, files, sockets and signals.
//!
//! Each test has an empty home directory of its own and reaches no network. No test sleeps; each
//! waits for an event and gives up after [`world::PATIENCE`]. Two need a program that is not part
//! of this crate's build: `openssl` (certificates and a TLS server) and `script` (a terminal).
//! `DRAWSPAN_SKIP_PEERS=1` leaves those out, with a line on stderr.
#![cfg(all(target_os = "linux", feature = "cli"))]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails with the line that could not"
)]

mod common;

#[path = "cli/approvals.rs"]
mod approvals;
#[path = "cli/audit.rs"]
mod audit;
#[path = "cli/client/mod.rs"]
mod client;
#[path = "cli/client_gone.rs"]
mod client_gone;
#[path = "cli/embedded.rs"]
mod embedded;
#[path = "cli/ends.rs"]
mod ends;
#[path = "cli/facts.rs"]
mod facts;
#[path = "cli/gate_routes.rs"]
mod gate_routes;
#[path = "cli/gateway.rs"]
mod gateway;
#[path = "cli/hook.rs"]
mod hook;
#[path = "cli/http.rs"]
mod http;
#[path = "cli/lock.rs"]
mod lock;
#[path = "cli/plugins.rs"]
mod plugins;
#[path = "cli/span.rs"]
mod span;
#[path = "cli/span_lists.rs"]
mod span_lists;
#[path = "cli/span_notices.rs"]
mod span_notices;
#[path = "cli/span_opening.rs"]
mod span_opening;
#[path = "cli/span_questions.rs"]
mod span_questions;
#[path = "cli/stdio.rs"]
mod stdio;
#[cfg(feature = "tls")]
#[path = "cli/tls.rs"]
mod tls;
#[path = "cli/unix.rs"]
mod unix;
#[path = "cli/usage.rs"]
mod usage;
#[path = "cli/world.rs"]
mod world;
