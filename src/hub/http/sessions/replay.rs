//! Event ids, and the events a session keeps for a client that comes back.

use std::collections::{VecDeque, vec_deque};
use std::fmt::{self, Write as _};

/// One event stream of a session: 0 is the standalone one, each POST that streams has its own. Rises
/// strictly within a session; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::hub::http) struct StreamId(pub u32);

impl StreamId {
    /// The stream of a GET without `Last-Event-ID`. It lives as long as its session.
    pub(in crate::hub::http) const STANDALONE: Self = Self(0);
}

/// Position in a stream, `<stream>-<n>` on the wire. `n` is 1 for the first event and rises by one; 0 is
/// the position before it, which a priming event carries.
///
/// It says nothing about whose stream it is: it is looked up in the session of whoever shows it and
/// nowhere else, so no id opens the events of another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::hub::http) struct EventId {
    /// The stream.
    pub(in crate::hub::http) stream: StreamId,
    /// The event in it.
    pub(in crate::hub::http) n: u64,
}

impl EventId {
    /// Reads an id. Only the one spelling that [`EventId::text`] writes is an id: no signs, no blanks,
    /// no leading zeros.
    #[must_use]
    pub(in crate::hub::http) fn parse(text: &str) -> Option<Self> {
        let (stream, n) = text.split_once('-')?;
        Some(Self {
            stream: StreamId(number(stream)?),
            n: number(n)?,
        })
    }

    /// The id as it stands on the wire, without an allocation.
    #[must_use]
    pub(in crate::hub::http) fn text(self) -> EventIdText {
        let mut text = EventIdText {
            bytes: [0; EVENT_ID_BYTES],
            len: 0,
        };
        // Cannot fail: the buffer has room for the largest numbers.
        let _ = write!(text, "{self}");
        text
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.stream.0, self.n)
    }
}

fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits && (text == "0" || !text.starts_with('0'));
    canonical.then(|| text.parse().ok())?
}

/// Ten digits, a dash, twenty digits.
const EVENT_ID_BYTES: usize = 31;

/// An event id as text, on the stack.
#[derive(Clone, Copy)]
pub(in crate::hub::http) struct EventIdText {
    bytes: [u8; EVENT_ID_BYTES],
    len: usize,
}

impl EventIdText {
    /// The text.
    #[must_use]
    pub(in crate::hub::http) fn as_str(&self) -> &str {
        let written = self.bytes.get(..self.len).unwrap_or_default();
        std::str::from_utf8(written).unwrap_or_default()
    }
}

impl fmt::Write for EventIdText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

impl std::ops::Deref for EventIdText {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for EventIdText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug)]
struct Kept {
    id: EventId,
    payload: Vec<u8>,
}

/// What one session keeps, oldest first, all its streams together: the bounds are those of the session.
#[derive(Debug, Default)]
pub(super) struct ReplayLog {
    kept: VecDeque<Kept>,
    bytes: usize,
}

/// The two bounds of a log.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) events_max: usize,
    pub(super) bytes_max: usize,
}

/// Entries for which an empty log keeps its memory.
const ROOM_KEPT: usize = 8;

impl ReplayLog {
    /// Length of all payloads together.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether a payload of this length is kept at all.
    pub(super) const fn admits(length: usize, bounds: Bounds) -> bool {
        length <= bounds.bytes_max && bounds.events_max > 0
    }

    /// Whether a payload of this length fits beside what is kept.
    pub(super) fn fits(&self, length: usize, bounds: Bounds) -> bool {
        self.kept.len() < bounds.events_max && self.bytes + length <= bounds.bytes_max
    }

    pub(super) fn push(&mut self, id: EventId, payload: &[u8], spare: &mut Spare) {
        self.bytes += payload.len();
        let payload = spare.filled(payload);
        self.kept.push_back(Kept { id, payload });
    }

    pub(super) fn drop_oldest(&mut self, spare: &mut Spare) -> Option<EventId> {
        let kept = self.kept.pop_front()?;
        self.bytes -= kept.payload.len();
        spare.give(kept.payload);
        Some(kept.id)
    }

    /// Whether an event of this stream is kept.
    pub(super) fn holds(&self, stream: StreamId) -> bool {
        self.kept.iter().any(|kept| kept.id.stream == stream)
    }

    /// How many events of this stream after `n` are kept.
    pub(super) fn count_after(&self, after: EventId) -> u64 {
        let events = self.kept.iter().filter(|kept| follows(kept.id, after));
        events.fold(0, |count, _| count + 1)
    }

    /// Forgets the events of a stream.
    pub(super) fn forget(&mut self, stream: StreamId, spare: &mut Spare) {
        let bytes = &mut self.bytes;
        self.kept.retain_mut(|kept| {
            let stays = kept.id.stream != stream;
            if !stays {
                *bytes -= kept.payload.len();
                spare.give(std::mem::take(&mut kept.payload));
            }
            stays
        });
        let used = self.kept.len().max(ROOM_KEPT);
        if self.kept.capacity() > 4 * used {
            self.kept.shrink_to(used);
        }
    }

    /// Gives up all memory.
    pub(super) fn clear(self, spare: &mut Spare) {
        for kept in self.kept {
            spare.give(kept.payload);
        }
    }
}

fn follows(id: EventId, after: EventId) -> bool {
    id.stream == after.stream && id.n > after.n
}

/// The events of one stream after a position, in order. Iterates over id and payload.
#[derive(Clone, Debug)]
pub(in crate::hub::http) struct Replay<'a> {
    /// Where it starts: the id to prime the connection with.
    pub(in crate::hub::http) after: EventId,
    /// Whether the last event ends the stream, or has ended it already: nothing more will come.
    pub(in crate::hub::http) finished: bool,
    /// Events after `after` that are not kept any more.
    pub(in crate::hub::http) lost: u64,
    kept: vec_deque::Iter<'a, Kept>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(log: &'a ReplayLog, after: EventId, last: u64, finished: bool) -> Self {
        let due = last.saturating_sub(after.n);
        Self {
            after,
            finished,
            lost: due.saturating_sub(log.count_after(after)),
            kept: log.kept.iter(),
        }
    }
}

impl<'a> Iterator for Replay<'a> {
    type Item = (EventId, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let after = self.after;
        let kept = self.kept.find(|kept| follows(kept.id, after))?;
        Some((kept.id, &kept.payload))
    }
}

/// Buffers to use again, for all sessions of a store.
#[derive(Debug, Default)]
pub(super) struct Spare {
    buffers: Vec<Vec<u8>>,
}

/// A few are enough: events of one stream come and go in turn. With the next one no limit, for together
/// they are 256 KiB at most, whoever does what.
const SPARE_BUFFERS_MAX: usize = 16;
/// A longer event is rare, and its buffer is not worth keeping.
const SPARE_BUFFER_BYTES_MAX: usize = 16 * 1024;
/// Below this no buffer counts as too large for what it holds.
const SMALL_BUFFER_BYTES: usize = 64;

impl Spare {
    pub(super) const fn new() -> Self {
        Self {
            buffers: Vec::new(),
        }
    }

    /// A buffer with these bytes, at most twice as large as they are: a short event in a long buffer
    /// would take more memory than it is counted for.
    fn filled(&mut self, bytes: &[u8]) -> Vec<u8> {
        let most = (2 * bytes.len()).max(SMALL_BUFFER_BYTES);
        let fits = |buffer: &Vec<u8>| (bytes.len()..=most).contains(&buffer.capacity());
        match self.buffers.iter().position(fits) {
            Some(place) => {
                let mut buffer = self.buffers.swap_remove(place);
                buffer.extend_from_slice(bytes);
                buffer
            }
            None => bytes.to_vec(),
        }
    }

    fn give(&mut self, mut buffer: Vec<u8>) {
        if !(1..=SPARE_BUFFER_BYTES_MAX).contains(&buffer.capacity()) {
            return;
        }
        if self.buffers.len() == SPARE_BUFFERS_MAX {
            // The oldest one goes, or sixteen of a size that is not asked for any more would stay.
            self.buffers.remove(0);
        }
        buffer.clear();
        self.buffers.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_spelling() {
        for (stream, n) in [(0, 0), (0, 10), (7, 1), (u32::MAX, u64::MAX)] {
            let id = EventId {
                stream: StreamId(stream),
                n,
            };
            assert_eq!(id.text().as_str(), format!("{stream}-{n}"));
            assert_eq!(id.text().as_str(), id.to_string());
            assert_eq!(EventId::parse(&id.text()), Some(id));
        }
        let wrong = [
            "",
            "-",
            "1",
            "1-",
            "-1",
            "1-1-1",
            "1--1",
            "+1-1",
            "1-+1",
            " 1-1",
            "1-1 ",
            "01-1",
            "1-01",
            "00-1",
            "1-00",
            "a-1",
            "1-a",
            "1_1",
            "４-1",
            "4294967296-1",
            "1-18446744073709551616",
            "1-99999999999999999999999999999999999999999",
        ];
        for text in wrong {
            assert_eq!(EventId::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_buffer_is_used_again_where_it_fits() {
        let mut spare = Spare::default();
        spare.give(Vec::with_capacity(1_000));
        let short = spare.filled(&[1; 400]);
        assert!(
            short.capacity() < 1_000,
            "more than twice what it is for: {}",
            short.capacity()
        );
        let fit = spare.filled(&[2; 600]);
        assert_eq!((fit.capacity(), fit.len(), fit[599]), (1_000, 600, 2));
        assert!(spare.buffers.is_empty());
        spare.give(fit);
        assert_eq!(spare.filled(&[3; 500]), vec![3; 500], "nothing of before");
        spare.give(Vec::with_capacity(SPARE_BUFFER_BYTES_MAX + 1));
        assert!(spare.buffers.is_empty(), "too large to keep");
        for _ in 0..=SPARE_BUFFERS_MAX {
            spare.give(vec![0; 10]);
        }
        assert_eq!(spare.buffers.len(), SPARE_BUFFERS_MAX);
    }
}
