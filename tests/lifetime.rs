//! Nothing is left behind: processes are counted after each way to end, of a server and of drawspan.
//!
//! What a test starts carries a word of its own, in its environment and in the arguments of its
//! guardian, so that a count on `/proc` finds all of it and nothing else. No test sleeps in place of
//! a condition; "gone" means within [`census::GONE`]. The servers are shell scripts. The tests of
//! children in `tests/os.rs` run here once more, with guardians: nothing but the ends may differ.
#![cfg(all(target_os = "linux", feature = "cli"))]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails with the line that could not"
)]

/// What the tests of children have for a guardian here.
const GUARDIAN: Option<&str> = Some(common::DRAWSPAN);

mod common;

#[path = "lifetime/bridge.rs"]
mod bridge;
#[path = "lifetime/census.rs"]
mod census;
#[path = "os/children.rs"]
mod children;
#[path = "lifetime/faults.rs"]
mod faults;
#[path = "lifetime/host.rs"]
mod host;
#[path = "os/probe.rs"]
#[allow(dead_code, reason = "written for all tests of the loop")]
mod probe;
#[path = "lifetime/programs.rs"]
mod programs;
#[path = "lifetime/servers.rs"]
mod servers;
