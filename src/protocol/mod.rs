//! The Model Context Protocol as state machines over raw JSON: what the revisions differ in, what the
//! messages mean, and the server's side of a conversation.

pub mod client;
pub mod error;
pub mod message;
pub mod revision;
pub mod schema;
pub mod server;
pub mod topic;

use crate::codec::shared_text::SharedText;
use crate::protocol::error::ErrorCode;
use crate::protocol::server::RequestKey;

/// Which stream a message belongs on, where the transport has several. Lines have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The immediate answer to the message that is being handled.
    Reply,
    /// In the service of an open request: its progress, its log messages, questions to the client.
    Request(RequestKey),
    /// The answer to an open request: the last that its stream carries for it.
    Answer(RequestKey),
    /// Of the session as a whole.
    Session,
}

/// Where a peer writes its messages. The link behind it frames them and picks the stream by [`Lane`].
///
/// `begin`, any number of appended bytes, then exactly one of `commit` and `rollback`.
pub trait MessageSink {
    /// Starts one message.
    fn begin(&mut self, lane: Lane) -> &mut Vec<u8>;
    /// The message is complete.
    fn commit(&mut self);
    /// There is no message after all.
    fn rollback(&mut self);
    /// The message that begins next is an error of this kind; HTTP has statuses for some.
    fn note_error(&mut self, code: ErrorCode) {
        let _ = code;
    }
    /// Copies a text of the message that is being handled, for those who serve it later. A link that has
    /// a pool of buffers makes the copy there.
    fn keep(&mut self, text: &str) -> SharedText {
        text.into()
    }
}
