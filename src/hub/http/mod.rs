//! The HTTP door: one listener for every revision. `/mcp` is Streamable HTTP of the handshake revisions
//! and of 2026-07-28, `/sse` with `/messages` is the 2024-11-05 pair.
//!
//! ```text
//! HttpConnection ──head──▶ access rules ──body──▶ era ─┬─ modern ─▶ headers agree? ─▶ the stateless peer
//!       ▲                                              └─ legacy ─▶ session ────────▶ the session's peer
//!       └───────────── sink: JSON answer, or events of a stream ◀────────────────────────────┘
//! ```
//!
//! | exchange        | until it is answered                   | when the client goes away             |
//! |-----------------|----------------------------------------|---------------------------------------|
//! | POST, modern    | JSON; a stream once there is more to say | the request is cancelled            |
//! | POST, legacy    | likewise, resumable once it streams    | the work goes on, events are kept     |
//! | GET             | the session's own stream               | events are kept for the next GET      |
//! | GET `/sse`      | the one stream of its session          | the session ends                      |
//!
//! Era is decided per request; a modern request never lands in a legacy session.
//!
//! | file | has |
//! |---|---|
//! | `front` | the machine: all that the door knows, and what the hub tells it and asks of it |
//! | `heads`, `refusals` | what a head asks for, and the answers to what is not served |
//! | `serve` | the message behind a head: its era, who serves it, its session |
//! | `legacy_pair` | `/sse` and `/messages` |
//! | `sink` | what a peer says: into an answer, a stream or the session's store |
//! | `streams`, `ending` | how streams begin, are resumed and end; how exchanges, connections and sessions end |
//! | `connections`, `exchange`, `peers`, `sessions` | what is known of each, below the front |
//! | `awaited`, `due` | the requests of an exchange; what is due after one and the same wait |
//!
//! Source: Spec 2026-07-28 basic/transports/streamable-http, 2025-11-25 basic/transports, 2024-11-05
//! basic/transports; reliability-security §2.3.

mod awaited;
mod connections;
mod due;
mod ending;
mod exchange;
mod front;
mod heads;
mod legacy_pair;
mod peers;
mod refusals;
mod serve;
mod sessions;
mod sink;
mod streams;
#[cfg(test)]
mod tests;

pub(super) use self::exchange::ExchangeRef;
pub use self::front::HttpConfig;
pub(super) use self::front::{HttpFront, Work};
pub(super) use self::serve::Served;
