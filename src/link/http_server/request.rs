//! What a head asks of the connection: framing, persistence, expectation, and what it may not ask.

use std::fmt;

use crate::codec::http_body::{Framing, FramingError, read_length};
use crate::codec::http1::HttpHead;

/// What the connection needs to know of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) framing: Framing,
    /// The client waits for an interim answer before it sends the body.
    pub(super) expects_continue: bool,
    /// The client may send further requests.
    pub(super) keep_alive: bool,
}

/// Why a head is answered without its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TermsError {
    TargetTooLong { limit: usize },
    Framing(FramingError),
    BodyTooLong { limit: usize },
    Encoded,
    Expectation,
}

impl TermsError {
    pub(super) const fn status(self) -> u16 {
        match self {
            Self::TargetTooLong { .. } => 414,
            Self::Framing(error) => error.status(),
            Self::BodyTooLong { .. } => 413,
            Self::Encoded => 415,
            Self::Expectation => 417,
        }
    }
}

impl fmt::Display for TermsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TargetTooLong { limit } => {
                write!(f, "request target is longer than {limit} bytes")
            }
            Self::Framing(error) => error.fmt(f),
            Self::BodyTooLong { limit } => write!(f, "body is longer than {limit} bytes"),
            Self::Encoded => f.write_str("Content-Encoding is not supported"),
            Self::Expectation => f.write_str("Expect asks for something other than 100-continue"),
        }
    }
}

impl Terms {
    /// The terms of a head with the same [`serial`](HttpHead::serial) as the one that these are of: only
    /// the length may be another. `None` where that could change more, so that they are to be read again.
    pub(super) fn again(self, head: &HttpHead, body_bytes_max: usize) -> Option<Self> {
        let Framing::Length(before) = self.framing else {
            return Some(self);
        };
        let length = read_length(head.length_digits()).unwrap_or(0);
        let fits = usize::try_from(length).is_ok_and(|length| length <= body_bytes_max);
        // Without content there is nothing to wait for with an interim answer.
        (fits && before > 0 && length > 0).then_some(Self {
            framing: Framing::Length(length),
            ..self
        })
    }

    /// Reads them off a head. Whatever makes the end of the body uncertain comes first.
    pub(super) fn of(
        head: &HttpHead,
        target_bytes_max: usize,
        body_bytes_max: usize,
    ) -> Result<Self, TermsError> {
        let old = head.minor() == 0;
        let framing =
            Framing::of_request(head.minor(), head.iter()).map_err(TermsError::Framing)?;
        let mut terms = Self {
            framing,
            expects_continue: false,
            keep_alive: !old,
        };
        if head.target().len() > target_bytes_max {
            let limit = target_bytes_max;
            return Err(TermsError::TargetTooLong { limit });
        }
        if let Framing::Length(length) = framing {
            if usize::try_from(length).map_or(true, |length| length > body_bytes_max) {
                let limit = body_bytes_max;
                return Err(TermsError::BodyTooLong { limit });
            }
        }
        let (mut keep, mut close) = (false, false);
        for (name, value) in head.iter() {
            match name.len() {
                6 if !old && name.eq_ignore_ascii_case(b"expect") => {
                    if !value.eq_ignore_ascii_case(b"100-continue") {
                        return Err(TermsError::Expectation);
                    }
                    terms.expects_continue = true;
                }
                10 if name.eq_ignore_ascii_case(b"connection") => {
                    for option in value.split(|b| *b == b',').map(<[u8]>::trim_ascii) {
                        close |= option.eq_ignore_ascii_case(b"close");
                        keep |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                16 if name.eq_ignore_ascii_case(b"content-encoding") => {
                    return Err(TermsError::Encoded);
                }
                _ => {}
            }
        }
        terms.keep_alive = !close && (keep || !old);
        // RFC 9110 §10.1.1: not for a request without content.
        terms.expects_continue &= !framing.is_empty();
        Ok(terms)
    }
}
