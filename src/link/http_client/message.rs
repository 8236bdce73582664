//! Messages in bodies and events: one, or several in an array, and which of them answers a request.

use crate::codec::jsonrpc::{Message, Outcome, classify};
use crate::codec::scan::{BatchMember, Envelope, IdField, ScanError, ScanLimits, Scanned, scan};
use crate::ids::UpstreamRequestId;
use crate::protocol::client::AnswerPlaces;

/// What some bytes hold.
#[derive(Debug)]
pub(super) enum Unpacked {
    /// One message, or something that is none.
    One {
        /// Where its parts are, if it answers the request.
        answer: Option<AnswerPlaces>,
    },
    /// The members of an array, as they are written.
    Several {
        members: Vec<Vec<u8>>,
        answers: bool,
    },
    /// No message.
    Not(ScanError),
}

/// Reads bytes that came on the stream of `id`. An array is taken apart only where arrays are messages.
pub(super) fn unpack(
    bytes: &[u8],
    id: UpstreamRequestId,
    batches: bool,
    limits: &ScanLimits,
) -> Unpacked {
    match scan(bytes, limits) {
        Ok(Scanned::One(envelope)) => Unpacked::One {
            answer: answer(&envelope, bytes, id),
        },
        Ok(Scanned::Batch(members)) if batches => {
            let mut found = false;
            let raw = members.into_iter().map(|member| match member {
                BatchMember::Message(envelope) => {
                    let raw = envelope.raw.as_bytes().to_vec();
                    found |= answer(&envelope, bytes, id).is_some();
                    raw
                }
                BatchMember::NotAnObject(raw) => raw.as_bytes().to_vec(),
            });
            let members = raw.collect();
            Unpacked::Several {
                members,
                answers: found,
            }
        }
        Ok(Scanned::Batch(_) | Scanned::Other) => Unpacked::One { answer: None },
        Err(error) => Unpacked::Not(error),
    }
}

/// The parts of this message in `bytes`, if it is the answer to `id`, which some servers spell `"1"` or `1.0`.
fn answer(envelope: &Envelope<'_>, bytes: &[u8], id: UpstreamRequestId) -> Option<AnswerPlaces> {
    let message = classify(envelope).ok()?;
    let raw = match message {
        Message::Response {
            id: IdField::Usable(raw) | IdField::Unusable(raw),
            ..
        } => raw,
        Message::Response {
            id: IdField::Absent | IdField::Null,
            ..
        }
        | Message::Request { .. }
        | Message::Notification { .. } => return None,
    };
    let bare = raw.trim_matches('"');
    let bare = bare.strip_suffix(".0").unwrap_or(bare);
    let ours = bare.parse() == Ok(id.0);
    AnswerPlaces::of(&message, bytes).filter(|_| ours)
}

/// Whether this is an error that does not say what it answers.
pub(super) fn is_error_without_id(bytes: &[u8], limits: &ScanLimits) -> bool {
    let Ok(Scanned::One(envelope)) = scan(bytes, limits) else {
        return false;
    };
    matches!(
        classify(&envelope),
        Ok(Message::Response {
            id: IdField::Absent | IdField::Null,
            outcome: Outcome::Error(_),
            ..
        })
    )
}
