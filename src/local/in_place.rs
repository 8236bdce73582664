//! Tools that answer within the turn, from the bytes of the call into the bytes of the answer.
//!
//! For a server that is to cost nothing but its own work: nothing of the call is copied for the tool, and
//! its answer is written into a buffer that is used again. What takes time, asks the client something or
//! answers with more than text is [`answered_by`](super::Offer::answered_by) or by polling instead.

use std::fmt;

use crate::codec::json_text::append_string;
use crate::codec::scan::{Text, text_member};
use crate::protocol::message::member;
use crate::protocol::revision::Revision;

/// A call to answer in place.
#[derive(Clone, Copy, Debug)]
pub struct InPlaceCall<'a> {
    /// A raw object, `{}` when the client sent none. Not checked against the tool's schema.
    pub arguments: &'a str,
    /// The revision whose rules apply. Seldom of interest.
    pub revision: Revision,
}

impl<'a> InPlaceCall<'a> {
    /// The raw value of one argument.
    #[must_use]
    pub fn argument(&self, name: &str) -> Option<&'a str> {
        member(self.arguments, name)
    }

    /// One argument that is a string, as the client spelled it; `None` when it is missing or anything else.
    #[must_use]
    pub fn argument_text(&self, name: &str) -> Option<Text<'a>> {
        text_member(self.arguments, name)
    }
}

/// The result of a tool in the making: blocks of text, in order.
#[derive(Debug)]
pub struct TextAnswer<'a> {
    out: &'a mut Vec<u8>,
    blocks: usize,
    failed: bool,
}

impl<'a> TextAnswer<'a> {
    /// Begins the members of a result.
    fn begin(out: &'a mut Vec<u8>) -> Self {
        out.extend_from_slice(br#""content":["#);
        Self {
            out,
            blocks: 0,
            failed: false,
        }
    }

    /// Adds a block of text.
    pub fn text(&mut self, text: &str) {
        self.begin_block();
        append_string(self.out, text);
        self.out.push(b'}');
    }

    /// Adds a block of text that came as JSON, spelled as it came.
    pub fn same_text(&mut self, text: Text<'_>) {
        self.begin_block();
        self.out.push(b'"');
        self.out.extend_from_slice(text.raw().as_bytes());
        self.out.extend_from_slice(b"\"}");
    }

    /// The tool could not do it; the text says why, for the model to read.
    pub const fn failed(&mut self) {
        self.failed = true;
    }

    fn end(self) -> bool {
        self.out.push(b']');
        if self.failed {
            self.out.extend_from_slice(br#","isError":true"#);
        }
        self.failed
    }

    fn begin_block(&mut self) {
        if self.blocks > 0 {
            self.out.push(b',');
        }
        self.out.extend_from_slice(br#"{"type":"text","text":"#);
        self.blocks += 1;
    }
}

type AnswerFn = dyn FnMut(InPlaceCall<'_>, &mut TextAnswer<'_>);

/// A closure that answers in place.
pub(super) struct InPlace(Box<AnswerFn>);

impl InPlace {
    pub(super) fn new(answer: impl FnMut(InPlaceCall<'_>, &mut TextAnswer<'_>) + 'static) -> Self {
        Self(Box::new(answer))
    }

    /// Appends the members of the result: what stands between the braces of the object, and never nothing.
    /// Says whether the tool has failed.
    pub(super) fn append_members(&mut self, call: InPlaceCall<'_>, out: &mut Vec<u8>) -> bool {
        let mut answer = TextAnswer::begin(out);
        (self.0)(call, &mut answer);
        answer.end()
    }

    /// Writes the result into `out`, which is emptied first.
    pub(super) fn answer(&mut self, call: InPlaceCall<'_>, out: &mut String) {
        let mut bytes = std::mem::take(out).into_bytes();
        bytes.clear();
        bytes.push(b'{');
        self.append_members(call, &mut bytes);
        bytes.push(b'}');
        *out = String::from_utf8(bytes).expect("it was put together of text");
    }
}

impl fmt::Debug for InPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InPlace")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(arguments: &str, by: fn(InPlaceCall<'_>, &mut TextAnswer<'_>)) -> String {
        let mut out = "of the call before".to_owned();
        let revision = Revision::V2025_11_25;
        let call = InPlaceCall {
            arguments,
            revision,
        };
        InPlace::new(by).answer(call, &mut out);
        out
    }

    #[test]
    fn results_are_what_the_protocol_wants() {
        assert_eq!(answered("{}", |_, _| {}), r#"{"content":[]}"#);
        let two = answered(r#"{"a":"\u0041\n","b":1}"#, |call, answer| {
            if let Some(a) = call.argument_text("a") {
                answer.same_text(a);
            }
            answer.text("\"two\"");
            assert!(call.argument_text("b").is_none());
            assert_eq!(call.argument("b"), Some("1"));
            answer.failed();
        });
        assert_eq!(
            two,
            r#"{"content":[{"type":"text","text":"\u0041\n"},{"type":"text","text":"\"two\""}],"isError":true}"#
        );
    }
}
