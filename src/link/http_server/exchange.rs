//! The exchanges of a connection: requests whose answers have not left, oldest first.

use std::collections::VecDeque;

/// One request and its answer. Strictly rising within a connection; unique there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExchangeId(pub u32);

impl std::fmt::Display for ExchangeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Not begun.
    Awaited,
    /// An event stream is open.
    Stream,
    /// Complete.
    Done,
}

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) answer: Answer,
    /// The owner knows of it.
    pub(super) told: bool,
    /// The connection ends behind its answer.
    pub(super) close: bool,
    /// HTTP/1.0: no chunks, no interim answers.
    pub(super) old: bool,
    /// HEAD: the answer has no body.
    pub(super) head_only: bool,
    /// What waits for earlier answers.
    pub(super) held: Vec<u8>,
}

impl Exchange {
    pub(super) const fn new() -> Self {
        Self {
            answer: Answer::Awaited,
            told: false,
            close: false,
            old: false,
            head_only: false,
            held: Vec::new(),
        }
    }

    /// Whether its stream is sent as chunks.
    pub(super) const fn chunked(&self) -> bool {
        !self.old
    }
}

/// The open exchanges. Their ids are consecutive, so a place is a subtraction.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    list: VecDeque<Exchange>,
    /// Id of the first in the list, or of the next one.
    first: u32,
}

impl Exchanges {
    pub(super) fn push(&mut self, exchange: Exchange) -> ExchangeId {
        let id = self.id_at(self.list.len());
        self.list.push_back(exchange);
        id
    }

    pub(super) fn id_at(&self, place: usize) -> ExchangeId {
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        ExchangeId(self.first.saturating_add(place))
    }

    pub(super) fn place(&self, id: ExchangeId) -> Option<usize> {
        let place = usize::try_from(id.0.checked_sub(self.first)?).ok()?;
        (place < self.list.len()).then_some(place)
    }

    /// Whether the ids are used up: no connection lives that long, but none may count past the end.
    pub(super) fn is_last_id(&self) -> bool {
        self.id_at(self.list.len()).0 >= u32::MAX - 1
    }

    pub(super) fn at(&mut self, place: usize) -> Option<&mut Exchange> {
        self.list.get_mut(place)
    }

    pub(super) fn last(&mut self) -> Option<&mut Exchange> {
        self.list.back_mut()
    }

    pub(super) fn newest(&self) -> Option<&Exchange> {
        self.list.back()
    }

    pub(super) fn front(&mut self) -> Option<&mut Exchange> {
        self.list.front_mut()
    }

    /// Takes the oldest off when its answer is complete.
    pub(super) fn pop_done(&mut self) -> Option<Exchange> {
        if self.list.front()?.answer != Answer::Done {
            return None;
        }
        self.first += 1;
        self.list.pop_front()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.list.iter().map(|exchange| exchange.held.len()).sum()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (ExchangeId, &mut Exchange)> {
        let first = self.first;
        let ids = (first..).map(ExchangeId);
        ids.zip(self.list.iter_mut())
    }

    pub(super) fn clear(&mut self) {
        self.first = self.id_at(self.list.len()).0;
        self.list = VecDeque::new();
    }

    pub(super) fn trim(&mut self) {
        self.list.shrink_to_fit();
    }
}
