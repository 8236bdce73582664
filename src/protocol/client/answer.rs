//! Where the parts of an answer stand in its bytes: for a link that has to read a message to know whether it
//! is the answer, so that it is read once.

use std::ops::Range;

use crate::codec::jsonrpc::{Message, Outcome};
use crate::codec::scan::IdField;

/// See the module page. Of effect with the text that it was made of only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerPlaces {
    id: Range<usize>,
    content: Range<usize>,
    is_error: bool,
}

impl AnswerPlaces {
    /// The places in `text` of a message that was read from them; `None` when it is no answer, or one
    /// without an id.
    #[must_use]
    pub fn of(message: &Message<'_>, text: &str) -> Option<Self> {
        let (id, outcome) = match message {
            Message::Response { id, outcome } => (id, outcome),
            Message::Request { .. } | Message::Notification { .. } => return None,
        };
        let (IdField::Usable(id) | IdField::Unusable(id)) = id else {
            return None;
        };
        let (content, is_error) = match outcome {
            Outcome::Result(raw) => (raw, false),
            Outcome::Error(raw) => (raw, true),
        };
        Some(Self {
            id: place(id, text)?,
            content: place(content, text)?,
            is_error,
        })
    }

    /// The id and what it answers; `None` when this is not the text.
    pub(super) fn parts<'a>(&self, text: &'a str) -> Option<(&'a str, Outcome<'a>)> {
        let content = text.get(self.content.clone())?;
        let outcome = match self.is_error {
            true => Outcome::Error(content),
            false => Outcome::Result(content),
        };
        Some((text.get(self.id.clone())?, outcome))
    }
}

/// Where `part` stands in `whole`, if it is a part of it.
pub(super) fn place(part: &str, whole: &str) -> Option<Range<usize>> {
    let from = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    let to = from.checked_add(part.len())?;
    (to <= whole.len()).then_some(from..to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::jsonrpc::classify;
    use crate::codec::scan::{ScanLimits, Scanned, scan};
    use crate::limits::Limits;

    fn places(text: &str) -> Option<AnswerPlaces> {
        let limits = ScanLimits::from(&Limits::DEFAULT);
        let Ok(Scanned::One(envelope)) = scan(text.as_bytes(), &limits) else {
            panic!("a message");
        };
        AnswerPlaces::of(&classify(&envelope).ok()?, text)
    }

    #[test]
    fn the_parts_are_found_again() {
        let bytes = r#" {"result" : {"a":[1]} ,"id": "7","jsonrpc":"2.0"}"#;
        let found = places(bytes).expect("an answer");
        let result = Outcome::Result(r#"{"a":[1]}"#);
        assert_eq!(found.parts(bytes), Some((r#""7""#, result)));
        assert_eq!(found.parts(&bytes[..20]), None, "other bytes");
        let bytes = r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#;
        let (id, outcome) = places(bytes)
            .and_then(|found| found.parts(bytes))
            .expect("an answer");
        assert_eq!(
            (id, outcome),
            ("1", Outcome::Error(r#"{"code":1,"message":"x"}"#))
        );
    }

    #[test]
    fn other_messages_have_none() {
        for text in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":"m"}"#,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}"#,
        ] {
            assert_eq!(places(text), None, "{text}");
        }
    }
}
