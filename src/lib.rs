//! drawspan, a two-way bridge for the [Model Context Protocol](https://modelcontextprotocol.io).
//!
//! The program puts an OpenClaw Gateway into any MCP client (`drawspan serve`) and uses MCP servers from a
//! shell (`drawspan list`, `call`, `probe` …); the library is what it is made of. No async runtime and no
//! thread: everything but [`io`] is a plain struct that is given bytes, events and the time, and is polled
//! for what it wants. So a program keeps its own loop where it has one, and a test owns the clock.
//!
//! # Where to begin
//!
//! * **To serve your own tools**, fill a [`local::Registry`], make a [`hub::Hub`] with it, open its doors
//!   ([`hub::Hub::serve_stdio`], [`hub::Hub::listen_http`]) and turn an [`io::EventLoop`].
//!   `examples/everything_server.rs` does all of it.
//! * **To use the servers of others**, make a [`manager::Manager`], give it their records
//!   ([`manager::entry::read_servers`]) and open a runtime; its page has the whole of it twice, on the loop of
//!   this library and on a loop of one's own. `examples/everything_client.rs` calls tools and answers questions.
//! * **To bridge a Gateway**, give the hub a [`hub::GatewayConfig`]; `src/cli/serve.rs` is the shortest way
//!   through it.
//! * **To use MCP servers**, give a [`manager::Manager`] their records and turn an [`io::EventLoop`] with it:
//!   `examples/everything_client.rs`, and `src/cli/client/session.rs` for the commands.
//! * **To use a codec alone**, see [`codec`]: each takes bytes in any pieces and holds no descriptor.
//!
//! # Driving a machine
//!
//! Four kinds of methods, everywhere: `handle_*` tells what happened, `poll_*` asks what is wanted until
//! it says `None`, `next_deadline` says when [time](clock) has to pass through `handle_timeout`, and the
//! rest asks or changes state. A machine never blocks, never panics on input, and keeps nothing without
//! a [limit](limits) that has a name. [`link::Driven`] is that contract as a trait.
//!
//! # The layers
//!
//! Arrows point down; `tests/tidy.rs` fails where one does not.
//!
//! | layer | modules | knows |
//! |---|---|---|
//! | program | `cli`, `config`, `logging` (feature `cli`) | arguments, files, exit codes |
//! | world | [`io`] | descriptors, processes, clocks, randomness: nothing above or below touches them |
//! | assembly | [`hub`], [`embedded`] | which client, call and wire belong together |
//! | tools | [`bridge`], [`local`], [`manager`] | the nine tools over a Gateway; the tools of a program; upstream servers |
//! | seam | [`gate`] | who may call what: the only way to a tool |
//! | wires | [`gateway`], [`link`] | the Gateway's protocol; framing and back-pressure of one connection |
//! | protocol | [`protocol`] | MCP of every revision, both eras |
//! | bytes | [`codec`] | JSON, lines, HTTP/1.1, SSE, WebSocket, URIs |
//! | leaves | [`limits`], [`clock`], [`entropy`], [`ids`], [`secret`], [`crypto`], [`backoff`], [`diagnostic`] | themselves |
//!
//! # Features
//!
//! `cli` (default): the command line with the commands that serve and those that use servers, its configuration
//! files and signals. `tls` (default): `wss://`.
//! Without both the library stands on eleven crates: serde, serde_json, jsonschema, mio, tungstenite, httparse,
//! memchr, base64, log, ring and rustix.
#![forbid(unsafe_code)]

pub mod audit;
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
pub mod manager;
pub mod protocol;
pub mod secret;

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod config;
#[cfg(feature = "cli")]
pub mod logging;
