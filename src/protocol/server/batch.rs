//! JSON-RPC batches of 2025-03-26: many messages in one array, their answers in another.

use super::{Scope, ServerPeer};
use crate::codec::scan::BatchMember;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::revision::Revision;
use crate::protocol::{Lane, MessageSink};
use crate::secret::Quoted;

/// The answers to one array, until all are there.
#[derive(Debug)]
pub(super) struct Batch {
    number: u32,
    /// Answers still to come; the reader of the array counts as one.
    waiting: usize,
    answers: Vec<u8>,
}

impl Batch {
    /// Where the next answer is written.
    pub(super) fn next_answer(&mut self) -> &mut Vec<u8> {
        let separator = if self.answers.is_empty() { b'[' } else { b',' };
        self.answers.push(separator);
        &mut self.answers
    }

    /// One more request of this array is open.
    pub(super) const fn expect_one_more(&mut self) {
        self.waiting += 1;
    }
}

impl ServerPeer {
    pub(super) fn handle_batch(
        &mut self,
        scope: Scope,
        members: &[BatchMember<'_>],
        sink: &mut dyn MessageSink,
    ) {
        let allowed = self.negotiated.is_some_and(Revision::has_batches);
        if !allowed || members.is_empty() {
            return self.refuse_batch(members, sink);
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
                    self.handle_envelope(scope, envelope, Some(number), sink);
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
        self.batch_answered(Some(number), Lane::Reply, sink);
    }

    fn refuse_batch(&mut self, members: &[BatchMember<'_>], sink: &mut dyn MessageSink) {
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
        self.refuse(
            id,
            &RpcError::new(ErrorCode::InvalidRequest, reason),
            None,
            sink,
        );
    }

    pub(super) fn batch(&mut self, number: Option<u32>) -> Option<&mut Batch> {
        let number = number?;
        self.batches.iter_mut().find(|batch| batch.number == number)
    }

    /// One answer fewer to wait for; the last one sends the array on its lane.
    pub(super) fn batch_answered(
        &mut self,
        number: Option<u32>,
        lane: Lane,
        sink: &mut dyn MessageSink,
    ) {
        let Some(at) = self
            .batches
            .iter()
            .position(|batch| Some(batch.number) == number)
        else {
            return;
        };
        self.batches[at].waiting -= 1;
        if self.batches[at].waiting > 0 {
            return;
        }
        let batch = self.batches.swap_remove(at);
        if !batch.answers.is_empty() {
            let out = sink.begin(lane);
            out.extend_from_slice(&batch.answers);
            out.push(b']');
            sink.commit();
        }
    }
}
