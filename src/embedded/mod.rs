//! The embedded Gateway.

mod approval_rpc;
mod approvals;
mod content;
mod frame;
mod journal;
mod message_rpc;
mod params;
mod refusal;
mod rpc;
mod session_rpc;
mod store;
mod views;

pub use approval_rpc::Question;
pub use journal::{ApprovalKind, Decision, Route};
pub use message_rpc::{DEFAULT_CHANNEL, Post, Posted, Role};
pub use refusal::Refusal;
pub use store::Replay;
