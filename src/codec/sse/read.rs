//! Reads event streams.

use memchr::memchr2;

/// What a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SseEvent<'a> {
    /// An event. Data may be empty: an event that only sets the id ("priming").
    Event {
        /// Its name; `message` when it has none of its own.
        name: &'a [u8],
        /// Its data lines, joined by LF.
        data: &'a [u8],
    },
    /// An event beyond the limit: it is left out, and told once.
    Oversized {
        /// The limit in bytes.
        limit: usize,
    },
}

/// The fields that mean something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Data,
    Event,
    Id,
    Retry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many bytes of a byte order mark were seen.
    Bom(u8),
    Name,
    Blank(Field),
    Value(Field),
    Ignored,
}

/// What an input byte led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Event,
    Oversized,
}

/// Longest field name that means something, and one byte to tell longer ones.
const NAME_BYTES: usize = 6;

const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Reads one stream. Memory stays within the limit of an event.
#[derive(Debug)]
pub struct EventReader {
    limit: usize,
    state: State,
    /// The line before ended in CR: a LF next belongs to it.
    after_cr: bool,
    name: [u8; NAME_BYTES],
    name_len: usize,
    data: Vec<u8>,
    has_data: bool,
    event: Vec<u8>,
    /// The value of an id line while it is read.
    id_line: Vec<u8>,
    /// The id that the next dispatch makes the last one.
    id: Vec<u8>,
    last_id: Vec<u8>,
    /// The number in a retry line; `None` when there is something else in it.
    retry_line: Option<u64>,
    retry_digits: bool,
    retry_ms: Option<u64>,
    /// The event in progress is beyond the limit: nothing of it is kept.
    skipping: bool,
    /// The event handed out last is still in the buffers.
    handed_out: bool,
}

impl EventReader {
    /// A reader of events of at most `event_bytes_max` bytes: data, name and id together.
    #[must_use]
    pub const fn new(event_bytes_max: usize) -> Self {
        Self {
            limit: event_bytes_max,
            state: State::Bom(0),
            after_cr: false,
            name: [0; NAME_BYTES],
            name_len: 0,
            data: Vec::new(),
            has_data: false,
            event: Vec::new(),
            id_line: Vec::new(),
            id: Vec::new(),
            last_id: Vec::new(),
            retry_line: None,
            retry_digits: false,
            retry_ms: None,
            skipping: false,
            handed_out: false,
        }
    }

    /// The id to resume behind, as of the last event whose empty line was read; empty when there is
    /// none. An oversized event counts: it would only come again.
    #[must_use]
    pub fn last_event_id(&self) -> &[u8] {
        &self.last_id
    }

    /// The wait before the next connection that the stream asked for last, in milliseconds. May be
    /// absurd; whoever waits bounds it.
    #[must_use]
    pub const fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Bytes that are kept of the stream: of the event in progress, and ids.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.event_bytes() + self.id.len() + self.last_id.len()
    }

    /// Whether an event was begun and not ended, when the stream is over.
    #[must_use]
    pub fn is_amid_event(&self) -> bool {
        let amid_line = self.name_len > 0 || !matches!(self.state, State::Name | State::Bom(0));
        !self.handed_out && (self.has_data || self.skipping || amid_line)
    }

    /// Takes input up to the next event. Call until it is `None`; then all input was taken.
    pub fn next(&mut self, input: &mut &[u8]) -> Option<SseEvent<'_>> {
        if std::mem::take(&mut self.handed_out) {
            self.forget_event();
        }
        while !input.is_empty() {
            let found = match self.state {
                State::Bom(seen) => self.take_bom(seen, input),
                State::Name => self.take_name(input),
                State::Blank(field) => {
                    if input[0] == b' ' {
                        *input = &input[1..];
                    }
                    self.state = State::Value(field);
                    Found::Nothing
                }
                State::Value(field) => self.take_value(field, input),
                State::Ignored => {
                    let (_, ended) = self.take_line(input);
                    if ended {
                        self.begin_line();
                    }
                    Found::Nothing
                }
            };
            match found {
                Found::Nothing => {}
                Found::Event => return Some(self.hand_out()),
                Found::Oversized => {
                    let limit = self.limit;
                    return Some(SseEvent::Oversized { limit });
                }
            }
        }
        None
    }

    fn hand_out(&mut self) -> SseEvent<'_> {
        self.handed_out = true;
        SseEvent::Event {
            name: if self.event.is_empty() {
                b"message"
            } else {
                &self.event
            },
            data: &self.data,
        }
    }

    /// A byte order mark is dropped once, at the start of the stream.
    fn take_bom(&mut self, seen: u8, input: &mut &[u8]) -> Found {
        let place = usize::from(seen);
        if input[0] == BOM[place] {
            *input = &input[1..];
            self.state = State::Bom(seen + 1);
            if place + 1 == BOM.len() {
                self.state = State::Name;
            }
        } else {
            // What looked like one begins a line: no known name does so.
            self.state = if place == 0 {
                State::Name
            } else {
                State::Ignored
            };
        }
        Found::Nothing
    }

    /// Takes a byte of a field name, or a line end.
    fn take_name(&mut self, input: &mut &[u8]) -> Found {
        let byte = input[0];
        *input = &input[1..];
        let after_cr = std::mem::take(&mut self.after_cr);
        match byte {
            b'\n' if after_cr => Found::Nothing,
            b'\r' | b'\n' => {
                self.after_cr = byte == b'\r';
                if self.name_len == 0 {
                    return self.dispatch();
                }
                let field = self.field();
                self.begin_line();
                let Some(field) = field else {
                    return Found::Nothing;
                };
                self.begin_value(field);
                if self.event_bytes() > self.limit {
                    return self.skip_event();
                }
                self.end_value(field);
                Found::Nothing
            }
            b':' => {
                self.state = match self.field() {
                    Some(field) => {
                        self.begin_value(field);
                        State::Blank(field)
                    }
                    None => State::Ignored,
                };
                Found::Nothing
            }
            _ if self.name_len < NAME_BYTES => {
                self.name[self.name_len] = byte;
                self.name_len += 1;
                Found::Nothing
            }
            _ => {
                self.state = State::Ignored;
                Found::Nothing
            }
        }
    }

    /// The field in whose line we are; none while an event is skipped.
    fn field(&self) -> Option<Field> {
        match &self.name[..self.name_len] {
            _ if self.skipping => None,
            b"data" => Some(Field::Data),
            b"event" => Some(Field::Event),
            b"id" => Some(Field::Id),
            b"retry" => Some(Field::Retry),
            _ => None,
        }
    }

    fn begin_value(&mut self, field: Field) {
        match field {
            Field::Data => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
            }
            Field::Event => self.event.clear(),
            Field::Id => self.id_line.clear(),
            Field::Retry => (self.retry_line, self.retry_digits) = (Some(0), false),
        }
    }

    /// Takes bytes of a value.
    fn take_value(&mut self, field: Field, input: &mut &[u8]) -> Found {
        let (part, ended) = self.take_line(input);
        if field == Field::Retry {
            self.retry_digits |= !part.is_empty();
            self.retry_line = part.iter().fold(self.retry_line, |sum, byte| {
                let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
                Some(sum?.saturating_mul(10).saturating_add(digit))
            });
        } else if self.event_bytes() + part.len() > self.limit {
            self.state = State::Ignored;
            if ended {
                self.begin_line();
            }
            return self.skip_event();
        } else {
            let kept = match field {
                Field::Event => &mut self.event,
                Field::Id => &mut self.id_line,
                Field::Data | Field::Retry => &mut self.data,
            };
            kept.extend_from_slice(part);
        }
        if ended {
            self.end_value(field);
            self.begin_line();
        }
        Found::Nothing
    }

    fn skip_event(&mut self) -> Found {
        self.skipping = true;
        self.forget_buffers();
        Found::Oversized
    }

    /// What is kept of the event in progress.
    fn event_bytes(&self) -> usize {
        self.data.len() + self.event.len() + self.id_line.len()
    }

    /// Takes the rest of a line, or what is there of it; tells whether its end is.
    fn take_line<'a>(&mut self, input: &mut &'a [u8]) -> (&'a [u8], bool) {
        let Some(end) = memchr2(b'\r', b'\n', input) else {
            return (std::mem::take(input), false);
        };
        let (line, rest) = input.split_at(end);
        self.after_cr = rest[0] == b'\r';
        *input = &rest[1..];
        (line, true)
    }

    fn end_value(&mut self, field: Field) {
        match field {
            Field::Data | Field::Event => {}
            Field::Id => {
                if !self.id_line.contains(&b'\0') {
                    std::mem::swap(&mut self.id, &mut self.id_line);
                }
                self.id_line.clear();
            }
            Field::Retry => {
                let found = self.retry_line.filter(|_| self.retry_digits);
                self.retry_ms = found.or(self.retry_ms);
            }
        }
    }

    const fn begin_line(&mut self) {
        self.state = State::Name;
        self.name_len = 0;
    }

    /// An empty line.
    fn dispatch(&mut self) -> Found {
        self.last_id.clone_from(&self.id);
        if self.has_data && !self.skipping {
            return Found::Event;
        }
        self.forget_event();
        Found::Nothing
    }

    fn forget_event(&mut self) {
        self.skipping = false;
        self.forget_buffers();
    }

    fn forget_buffers(&mut self) {
        self.has_data = false;
        for buffer in [&mut self.data, &mut self.event, &mut self.id_line] {
            buffer.clear();
            buffer.shrink_to(KEEP_BYTES);
        }
    }
}

/// Capacity that an empty buffer may keep.
const KEEP_BYTES: usize = 256 * 1024;
