//! Messages in bodies and events: one, or several in an array, and which of them answers a request.

use crate::codec::jsonrpc::{Message, Outcome, classify};
use crate::codec::scan::{
    BatchMember, Envelope, IdField, ScanError, ScanLimits, Scanned, scan, scan_text,
};
use crate::codec::shared_text::{SharedText, TextPool};
use crate::ids::UpstreamRequestId;
use crate::protocol::client::AnswerPlaces;

/// What some bytes hold.
#[derive(Debug)]
pub(super) enum Unpacked {
    /// One message, or something that is none.
    One {
        text: SharedText,
        /// Where its parts are, if it answers the request.
        answer: Option<AnswerPlaces>,
    },
    /// The members of an array, as they are written.
    Several {
        members: Vec<SharedText>,
        answers: bool,
    },
    /// No message; the text, where it is one.
    Not {
        error: ScanError,
        text: Option<SharedText>,
    },
}

/// Reads bytes that came on the stream of `id`, once. An array is taken apart only where arrays are messages.
pub(super) fn unpack(
    bytes: &[u8],
    id: UpstreamRequestId,
    batches: bool,
    limits: &ScanLimits,
    texts: &mut TextPool,
) -> Unpacked {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => texts.copy(text),
        Err(error) => {
            let offset = error.valid_up_to();
            let error = ScanError::NotUtf8 { offset };
            return Unpacked::Not { error, text: None };
        }
    };
    let answer = match scan_text(&text, limits) {
        Ok(Scanned::One(envelope)) => answer(&envelope, &text, id),
        Ok(Scanned::Batch(members)) if batches => {
            let mut answers = false;
            let raw = members.into_iter().map(|member| match member {
                BatchMember::Message(envelope) => {
                    answers |= answer(&envelope, &text, id).is_some();
                    text.part(&text, envelope.raw)
                }
                BatchMember::NotAnObject(raw) => text.part(&text, raw),
            });
            let members = raw.collect();
            return Unpacked::Several { members, answers };
        }
        Ok(Scanned::Batch(_) | Scanned::Other) => None,
        Err(error) => {
            let text = Some(text);
            return Unpacked::Not { error, text };
        }
    };
    Unpacked::One { text, answer }
}

/// The parts of this message in `text`, if it is the answer to `id`, which some servers spell `"1"` or `1.0`.
fn answer(envelope: &Envelope<'_>, text: &str, id: UpstreamRequestId) -> Option<AnswerPlaces> {
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
    AnswerPlaces::of(&message, text).filter(|_| ours)
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
