//! Messages in bodies and events: one, or several in an array, and which of them answers a request.

use crate::codec::jsonrpc::{Message, Outcome, classify};
use crate::codec::scan::{BatchMember, Envelope, IdField, ScanError, ScanLimits, Scanned, scan};
use crate::ids::UpstreamRequestId;

/// What some bytes hold.
#[derive(Debug)]
pub(super) enum Unpacked {
    /// One message, or something that is none.
    One {
        /// It answers the request.
        answers: bool,
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
            answers: answers(envelope, id),
        },
        Ok(Scanned::Batch(members)) if batches => {
            let mut found = false;
            let raw = members.into_iter().map(|member| match member {
                BatchMember::Message(envelope) => {
                    let raw = envelope.raw.as_bytes().to_vec();
                    found |= answers(envelope, id);
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
        Ok(Scanned::Batch(_) | Scanned::Other) => Unpacked::One { answers: false },
        Err(error) => Unpacked::Not(error),
    }
}

/// Whether this is the answer to `id`, which some servers spell `"1"` or `1.0`.
fn answers(envelope: Envelope<'_>, id: UpstreamRequestId) -> bool {
    let Ok(Message::Response { id: found, .. }) = classify(envelope) else {
        return false;
    };
    let raw = match found {
        IdField::Usable(raw) | IdField::Unusable(raw) => raw,
        IdField::Absent | IdField::Null => return false,
    };
    let bare = raw.trim_matches('"');
    let bare = bare.strip_suffix(".0").unwrap_or(bare);
    bare.parse() == Ok(id.0)
}

/// Whether this is an error that does not say what it answers.
pub(super) fn is_error_without_id(bytes: &[u8], limits: &ScanLimits) -> bool {
    let Ok(Scanned::One(envelope)) = scan(bytes, limits) else {
        return false;
    };
    matches!(
        classify(envelope),
        Ok(Message::Response {
            id: IdField::Absent | IdField::Null,
            outcome: Outcome::Error(_),
            ..
        })
    )
}
