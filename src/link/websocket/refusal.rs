//! The answer of a server that does not upgrade, as far as a person wants to see it.

use super::CloseReason;
use crate::codec::http1::ResponseHead;

/// How much of the body of a refused upgrade is kept. Unit: bytes. Source: cli-json §6.
pub(super) const REFUSAL_BODY_BYTES_MAX: usize = 200;

/// An answer that is no upgrade, while the start of its body arrives.
#[derive(Debug)]
pub(super) struct RefusedUpgrade {
    status: u16,
    chunked: bool,
    body: Vec<u8>,
    /// Bytes worth waiting for.
    wanted: usize,
}

impl RefusedUpgrade {
    pub(super) fn new(head: &ResponseHead) -> Self {
        let declared = head
            .fields
            .only("Content-Length")
            .and_then(|value| value.parse::<usize>().ok());
        Self {
            status: head.status,
            chunked: head.fields.has_token("Transfer-Encoding", "chunked"),
            body: Vec::new(),
            wanted: declared.map_or(REFUSAL_BODY_BYTES_MAX, |n| n.min(REFUSAL_BODY_BYTES_MAX)),
        }
    }

    /// Takes bytes of the body; true when it wants no more.
    pub(super) fn take(&mut self, bytes: &[u8]) -> bool {
        let room = self.wanted - self.body.len();
        self.body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.body.len() == self.wanted
    }

    pub(super) fn into_reason(self) -> CloseReason {
        let body = if self.chunked {
            first_chunk(&self.body)
        } else {
            &self.body
        };
        CloseReason::Refused {
            status: self.status,
            body: String::from_utf8_lossy(body).trim_end().to_owned(),
        }
    }
}

/// The start of a chunked body without its framing, good enough to be read by a person.
fn first_chunk(body: &[u8]) -> &[u8] {
    let Some(at) = body.iter().position(|b| *b == b'\n') else {
        return &[];
    };
    let (line, data) = body.split_at(at + 1);
    let size = std::str::from_utf8(line.trim_ascii())
        .ok()
        .and_then(|text| usize::from_str_radix(text, 16).ok());
    &data[..size.unwrap_or(data.len()).min(data.len())]
}
