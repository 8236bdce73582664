//! What users of MCP clients have reported, as cases: a scripted server that misbehaves in one way,
//! and what the program must make of it on its command line.
//!
//! Each test is named after its case, a file of `protocol-fixtures/cases`. The servers are played
//! by `examples/scripted_server`. Nothing sleeps except the servers, where their case says so;
//! upper bounds are far from what is measured and below the time limit that must not be what ended
//! the wait.
#![cfg(all(target_os = "linux", feature = "cli"))]
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on fails with the line that could not"
)]

mod common;

#[path = "../examples/scripted_server/http.rs"]
mod http;
#[allow(
    dead_code,
    reason = "HTTP servers of tests are asked, they write no log"
)]
#[path = "../examples/scripted_server/log.rs"]
mod log;

#[path = "cases/answers.rs"]
mod answers;
#[path = "cases/calling.rs"]
mod calling;
#[path = "cases/configuration.rs"]
mod configuration;
#[path = "cases/ending.rs"]
mod ending;
#[path = "cases/era.rs"]
mod era;
#[path = "cases/headers.rs"]
mod headers;
#[path = "cases/listing.rs"]
mod listing;
#[path = "cases/names.rs"]
mod names;
#[path = "cases/player.rs"]
mod player;
#[path = "cases/questions.rs"]
mod questions;
#[path = "cases/schemas.rs"]
mod schemas;
#[path = "cases/session.rs"]
mod session;
#[path = "cases/span.rs"]
mod span;
#[path = "cases/starting.rs"]
mod starting;
#[path = "cases/streams.rs"]
mod streams;
#[path = "cases/world.rs"]
mod world;
