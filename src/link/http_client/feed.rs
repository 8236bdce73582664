//! One event stream over all connections that carry it: events, the id to resume behind, the wait before that.
//!
//! Source: HTML Living Standard §9.2.6; Spec 2025-11-25 basic/transports (Resumability and Redelivery).

use std::time::Duration;

use crate::codec::sse::{EventReader, SseEvent};

/// Longest wait before a stream is taken up again, whatever the server asks for. Source: reliability-security
/// §3 (reconnect).
pub(super) const RETRY_MAX: Duration = Duration::from_secs(30);

/// Shortest wait: a server that says `retry: 0` is not asked in a loop.
const RETRY_MIN: Duration = Duration::from_millis(10);

/// The wait where the server says nothing.
const RETRY_DEFAULT: Duration = Duration::from_secs(1);

/// Longest event id that is sent back. It must fit a head of 8 KiB, as many servers allow.
const EVENT_ID_BYTES_MAX: usize = 4 * 1024;

/// What a stream brought.
#[derive(Debug)]
pub(crate) enum Fed<'a> {
    /// An event that is a message: it has the default name, and data.
    Message(&'a [u8]),
    /// An event of another name.
    Named(&'a [u8], &'a [u8]),
    /// An event over the limit, left out.
    Oversized { limit: usize },
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Feed {
    reader: EventReader,
    limit: usize,
    last_id: Vec<u8>,
    /// The connection in hand has set an id.
    id_here: bool,
    /// The `retry` in force, in milliseconds.
    retry_ms: Option<u64>,
    /// Something new came since [`Feed::take_progress`].
    progress: bool,
}

impl Feed {
    pub(crate) const fn new(limit: usize) -> Self {
        Self {
            reader: EventReader::new(limit),
            limit,
            last_id: Vec::new(),
            id_here: false,
            retry_ms: None,
            progress: false,
        }
    }

    /// A new connection carries it on.
    pub(super) fn reconnect(&mut self) {
        self.reader = EventReader::new(self.limit);
        self.id_here = false;
    }

    /// Takes bytes.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Fed<'_>)) {
        while let Some(event) = self.reader.next(&mut bytes) {
            match event {
                SseEvent::Event { data: b"", .. } => {}
                SseEvent::Event {
                    name: b"message",
                    data,
                } => {
                    self.progress = true;
                    each(Fed::Message(data));
                }
                SseEvent::Event { name, data } => each(Fed::Named(name, data)),
                SseEvent::Oversized { limit } => each(Fed::Oversized { limit }),
            }
        }
        let id = self.reader.last_event_id();
        if (self.id_here || !id.is_empty()) && id != self.last_id {
            self.last_id = id.to_vec();
            self.progress = true;
        }
        self.id_here |= !id.is_empty();
        if let Some(ms) = self.reader.retry_ms() {
            self.retry_ms = Some(ms);
        }
    }

    /// Whether an event was begun and not ended.
    pub(super) fn is_amid_event(&self) -> bool {
        self.reader.is_amid_event()
    }

    /// The id to resume behind, when there is one that can be sent.
    pub(super) fn last_id(&self) -> Option<&str> {
        let id = std::str::from_utf8(&self.last_id).ok()?;
        let fits = !id.is_empty() && id.len() <= EVENT_ID_BYTES_MAX;
        let plain = id.bytes().all(|b| b.is_ascii_graphic() || b == b' ');
        (fits && plain && id.trim() == id).then_some(id)
    }

    /// How long to wait before the stream is taken up again.
    pub(super) fn wait(&self) -> Duration {
        let Some(ms) = self.retry_ms else {
            return RETRY_DEFAULT;
        };
        let asked = Duration::from_millis(ms);
        if asked > RETRY_MAX {
            log::warn!("event stream asks for a wait of {ms} ms; 30000 ms are kept to");
        }
        asked.clamp(RETRY_MIN, RETRY_MAX)
    }

    /// Whether something new came since the last call.
    pub(super) fn take_progress(&mut self) -> bool {
        std::mem::take(&mut self.progress)
    }
}
