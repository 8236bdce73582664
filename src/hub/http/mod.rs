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
//! Source: Spec 2026-07-28 basic/transports/streamable-http, 2025-11-25 basic/transports, 2024-11-05
//! basic/transports; reliability-security §2.3.

mod awaited;
mod due;
mod front;
mod refusals;
mod serve;
mod sessions;
mod sink;
#[cfg(test)]
mod tests;

pub use self::front::HttpConfig;
pub(super) use self::front::{ExchangeRef, HttpFront, Work};
pub(super) use self::serve::Served;
