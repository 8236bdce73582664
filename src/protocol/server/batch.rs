//! JSON-RPC batches of 2025-03-26: many messages in one array, their answers in another.

use super::{Batch, ServerPeer};
use crate::codec::scan::BatchMember;
use crate::protocol::MessageSink;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::revision::Revision;
use crate::secret::Quoted;

impl ServerPeer {
    pub(super) fn handle_batch(&mut self, members: &[BatchMember<'_>], sink: &mut dyn MessageSink) {
        let allowed = self.negotiated.is_some_and(Revision::has_batches);
        if !allowed || members.is_empty() {
            let reason = if members.is_empty() {
                "an empty array is no batch".to_owned()
            } else {
                let revision = self
                    .negotiated
                    .map_or("none was negotiated", Revision::as_str);
                format!("batches exist in revision 2025-03-26 only (this session: {revision})")
            };
            // The id of the first member that has one lets the sender match the refusal.
            let id = members.iter().find_map(|member| match member {
                BatchMember::Message(envelope) => envelope.id.usable(),
                BatchMember::NotAnObject(_) => None,
            });
            let error = RpcError::new(ErrorCode::InvalidRequest, reason);
            return self.refuse(id, &error, None, sink);
        }
        let number = self.next_batch;
        self.next_batch += 1;
        self.batches.push(Batch {
            number,
            waiting: 1,
            answers: Vec::new(),
        });
        for member in members {
            match member {
                BatchMember::Message(envelope) => {
                    self.handle_envelope(*envelope, Some(number), sink)
                }
                BatchMember::NotAnObject(raw) => {
                    let error = RpcError::new(
                        ErrorCode::InvalidRequest,
                        format!(
                            "a member of a batch is a JSON object (found {})",
                            Quoted(raw)
                        ),
                    );
                    self.refuse(None, &error, Some(number), sink);
                }
            }
        }
        self.batch_answered(number, sink);
    }

    /// One answer fewer to wait for; the last one sends the array.
    pub(super) fn batch_answered(&mut self, number: u32, sink: &mut dyn MessageSink) {
        let Some(at) = self.batches.iter().position(|batch| batch.number == number) else {
            return;
        };
        self.batches[at].waiting -= 1;
        if self.batches[at].waiting > 0 {
            return;
        }
        let batch = self.batches.swap_remove(at);
        if !batch.answers.is_empty() {
            let out = sink.begin(None);
            out.extend_from_slice(&batch.answers);
            out.push(b']');
            sink.commit();
        }
    }
}
