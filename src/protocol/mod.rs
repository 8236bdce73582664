//! The Model Context Protocol as state machines over raw JSON: what the revisions differ in, what the
//! messages mean, and the server's side of a conversation.

pub mod error;
pub mod message;
pub mod revision;
pub mod server;

use crate::codec::jsonrpc::RequestId;

/// Where a peer writes its messages. The link behind it frames them and, where a request has a stream of
/// its own, picks the stream.
///
/// `begin`, any number of appended bytes, then exactly one of `commit` and `rollback`.
pub trait MessageSink {
    /// Starts one message. `in_service_of` names the request on whose stream it belongs, where the
    /// transport has such streams; `None` is for messages of the session itself.
    fn begin(&mut self, in_service_of: Option<&RequestId>) -> &mut Vec<u8>;
    /// The message is complete.
    fn commit(&mut self);
    /// There is no message after all.
    fn rollback(&mut self);
}
