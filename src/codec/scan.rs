//! One pass over a message: is it JSON, and where are the parts of its envelope.
//!
//! [`scan`] validates by RFC 8259 and notes byte ranges; no tree is built, nothing is copied, and one
//! message costs no allocation. `params`, `result` and `error` stay the bytes they came in, so what is
//! passed on is what was said, digit for digit.
//!
//! Refused beside what is not JSON: more levels than the limit, and two members of one name in the
//! envelope, in `params` or in `params._meta`, because parsers disagree which of them counts (RFC 8259 §4,
//! RFC 7493 §2.3). Below that, members pass unread.
//!
//! Never: recursion on the depth of the input, a copy of a payload, a repaired byte.

mod reader;
mod text;

use std::collections::BTreeSet;

use self::reader::{Fault, Reader, Span, What};
pub use self::text::Text;
use crate::limits::Limits;
use crate::secret::{QUOTE_BYTES_MAX, Quoted};

/// The limits that [`scan`] keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// Levels of arrays and objects, the outermost counted.
    pub depth_max: usize,
    /// Raw length of an id, quotes included. Unit: bytes.
    pub id_bytes_max: usize,
    /// Members of an array of messages.
    pub batch_messages_max: usize,
}

impl From<&Limits> for ScanLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            depth_max: limits.json_depth_max,
            id_bytes_max: limits.id_bytes_max,
            batch_messages_max: limits.batch_messages_max,
        }
    }
}

/// The `id` member of an envelope. Spec: 2025-11-25 basic (ids are strings or integers, never null).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdField<'a> {
    /// There is no such member.
    Absent,
    /// It is `null`.
    Null,
    /// A string, or an integer spelled without fraction or exponent that fits 64 bits, within the length
    /// limit. The raw text, quotes included.
    Usable(&'a str),
    /// Anything else. The raw text.
    Unusable(&'a str),
}

impl<'a> IdField<'a> {
    fn of(raw: &'a str, bytes_max: usize) -> Self {
        if raw == "null" {
            Self::Null
        } else if usable_id(raw, bytes_max) {
            Self::Usable(raw)
        } else {
            Self::Unusable(raw)
        }
    }

    /// The raw text of an id that can be echoed.
    #[must_use]
    pub const fn usable(&self) -> Option<&'a str> {
        match self {
            Self::Usable(raw) => Some(raw),
            Self::Absent | Self::Null | Self::Unusable(_) => None,
        }
    }
}

fn usable_id(raw: &str, bytes_max: usize) -> bool {
    raw.len() <= bytes_max
        && (raw.starts_with('"') || raw.parse::<i64>().is_ok() || raw.parse::<u64>().is_ok())
}

/// The parts of one message object, as ranges of its text. A member that is absent is `None`; one that is
/// `null` is `Some("null")`. Nothing is judged here: see [`jsonrpc::classify`](super::jsonrpc::classify).
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// The whole object.
    pub raw: &'a str,
    /// Whether `jsonrpc` is there and says exactly `2.0`.
    pub version_ok: bool,
    /// The id.
    pub id: IdField<'a>,
    /// The method, when it is a string.
    pub method: Option<Text<'a>>,
    /// Whether there is a method that is no string.
    pub method_not_text: bool,
    /// The raw parameters, of whatever kind.
    pub params: Option<&'a str>,
    /// `params.name`, when it is a string.
    pub name: Option<Text<'a>>,
    /// `params.uri`, when it is a string.
    pub uri: Option<Text<'a>>,
    /// The raw `params._meta`, of whatever kind.
    pub meta: Option<&'a str>,
    /// The raw result, of whatever kind.
    pub result: Option<&'a str>,
    /// The raw error, of whatever kind.
    pub error: Option<&'a str>,
}

/// What a text holds.
#[derive(Clone, Debug)]
pub enum Scanned<'a> {
    /// An object.
    One(Envelope<'a>),
    /// An array, perhaps an empty one.
    Batch(Vec<BatchMember<'a>>),
    /// A string, number, boolean or null.
    Other,
}

/// One member of an array of messages.
#[derive(Clone, Debug)]
pub enum BatchMember<'a> {
    /// An object.
    Message(Envelope<'a>),
    /// Anything else. The raw text.
    NotAnObject(&'a str),
}

/// Why a text was refused. Offsets are bytes from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScanError {
    /// The bytes are not UTF-8. They are never repaired.
    NotUtf8 {
        /// The first byte that does not belong.
        offset: usize,
    },
    /// The text is not JSON.
    Syntax {
        /// Where it stops being JSON.
        offset: usize,
        /// What could have stood there.
        wanted: &'static str,
    },
    /// Too many levels of arrays and objects. The rest was not read.
    TooDeep {
        /// The bracket or brace that opens one level too many.
        offset: usize,
        /// The limit. Unit: levels.
        limit: usize,
    },
    /// The text is JSON, but a member of the envelope, of `params` or of `_meta` comes twice.
    DuplicateMember {
        /// Where the second one begins.
        offset: usize,
        /// Its name, cut to what an error may quote.
        name: String,
    },
    /// The text is JSON, but an array with more messages than the limit.
    TooManyMessages {
        /// The first message too many.
        offset: usize,
        /// The limit. Unit: messages.
        limit: usize,
        /// How many there are.
        found: usize,
    },
}

impl ScanError {
    /// Whether the text is JSON all the same, so that the fault is one of the message (-32600) and not of
    /// the text (-32700).
    #[must_use]
    pub const fn is_json(&self) -> bool {
        match self {
            Self::NotUtf8 { .. } | Self::Syntax { .. } | Self::TooDeep { .. } => false,
            Self::DuplicateMember { .. } | Self::TooManyMessages { .. } => true,
        }
    }
}

impl std::fmt::Display for ScanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotUtf8 { offset } => write!(f, "not UTF-8 at byte {offset}"),
            Self::Syntax { offset, wanted } => {
                write!(f, "not JSON: {wanted} expected at byte {offset}")
            }
            Self::TooDeep { offset, limit } => write!(
                f,
                "arrays and objects nested deeper than {limit} levels at byte {offset}"
            ),
            Self::DuplicateMember { offset, name } => {
                write!(
                    f,
                    "member \"{}\" comes twice at byte {offset}",
                    Quoted(name)
                )
            }
            Self::TooManyMessages { limit, found, .. } => {
                write!(f, "more than {limit} messages in one array (found {found})")
            }
        }
    }
}

impl std::error::Error for ScanError {}

/// Reads one text as a message or an array of messages.
///
/// # Errors
/// When it is not UTF-8, not JSON, beyond a limit, or ambiguous by a member that comes twice. The first two
/// are found before the last two.
pub fn scan<'a>(bytes: &'a [u8], limits: &ScanLimits) -> Result<Scanned<'a>, ScanError> {
    let text = utf8(bytes)?;
    let mut pass = Pass {
        text,
        reader: Reader::new(bytes, limits.depth_max),
        limits,
        refused: None,
    };
    let scanned = pass
        .root()
        .map_err(|fault| refuse(fault, limits.depth_max))?;
    match pass.refused {
        Some(error) => Err(error),
        None => Ok(scanned),
    }
}

/// Checks that `bytes` is one JSON text of at most `depth_max` levels, and gives it as text.
///
/// # Errors
/// [`ScanError::NotUtf8`], [`ScanError::Syntax`] or [`ScanError::TooDeep`].
pub fn validate(bytes: &[u8], depth_max: usize) -> Result<&str, ScanError> {
    let text = utf8(bytes)?;
    let mut reader = Reader::new(bytes, depth_max);
    reader.skip_space();
    reader
        .value()
        .and_then(|()| reader.end())
        .map_err(|fault| refuse(fault, depth_max))?;
    Ok(text)
}

/// The id of a message that [`scan`] refused, as far as it can be read: the usable `id` of the object, or of
/// the first object of an array that has one. Bytes that are no JSON end the search; bytes inside strings
/// that are no UTF-8 do not. `None` also when `id` comes twice.
///
/// For the error path only: it reads the bytes once more.
#[must_use]
pub fn readable_id<'a>(bytes: &'a [u8], limits: &ScanLimits) -> Option<&'a str> {
    // The depth is no reason to stop looking; the levels cost a bit each.
    let mut reader = Reader::new(bytes, usize::MAX);
    reader.skip_space();
    if reader.peek() != Some(b'[') {
        return object_id(bytes, &mut reader, limits);
    }
    reader.open_array().ok()?;
    let mut first = true;
    while reader.next_element(first).ok()? {
        first = false;
        if reader.peek() == Some(b'{') {
            if let Some(id) = object_id(bytes, &mut reader, limits) {
                return Some(id);
            }
        } else {
            reader.value().ok()?;
        }
    }
    None
}

fn object_id<'a>(bytes: &'a [u8], reader: &mut Reader<'a>, limits: &ScanLimits) -> Option<&'a str> {
    if reader.peek() != Some(b'{') {
        return None;
    }
    reader.open_object().ok()?;
    let mut found = None;
    let mut first = true;
    while let Ok(Some(Span {
        start,
        end,
        escaped,
    })) = reader.next_member(first)
    {
        first = false;
        let is_id = std::str::from_utf8(&bytes[start..end])
            .is_ok_and(|name| Text::new(name, escaped).is("id"));
        let from = reader.at();
        if reader.value().is_err() {
            break;
        }
        if is_id && found.replace(from..reader.at()).is_some() {
            return None;
        }
    }
    let raw = std::str::from_utf8(&bytes[found?]).ok()?;
    usable_id(raw, limits.id_bytes_max).then_some(raw)
}

/// The members of an object that was validated before, in order, each with its name and raw value. Anything
/// but an object has none.
pub fn members(object_raw: &str) -> Members<'_> {
    let mut reader = Reader::new(object_raw.as_bytes(), usize::MAX);
    reader.skip_space();
    let open = reader.peek() == Some(b'{') && reader.open_object().is_ok();
    Members {
        text: object_raw,
        reader,
        first: true,
        open,
    }
}

/// Iterator made by [`members`].
pub struct Members<'a> {
    text: &'a str,
    reader: Reader<'a>,
    first: bool,
    open: bool,
}

impl<'a> Iterator for Members<'a> {
    type Item = (Text<'a>, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if !self.open {
            return None;
        }
        self.open = false;
        let name = self.reader.next_member(self.first).ok()??;
        self.first = false;
        let from = self.reader.at();
        self.reader.value().ok()?;
        self.open = true;
        Some((
            Text::new(&self.text[name.start..name.end], name.escaped),
            &self.text[from..self.reader.at()],
        ))
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, ScanError> {
    std::str::from_utf8(bytes).map_err(|error| ScanError::NotUtf8 {
        offset: error.valid_up_to(),
    })
}

fn refuse(fault: Fault, limit: usize) -> ScanError {
    let offset = fault.at;
    if fault.what == What::TooDeep {
        ScanError::TooDeep { offset, limit }
    } else {
        ScanError::Syntax {
            offset,
            wanted: fault.what.noun(),
        }
    }
}

/// As much of a peer's text as an error keeps: enough for [`Quoted`] to see that it was longer.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(QUOTE_BYTES_MAX + 4);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Members of the envelope and of `params` that are noted.
#[derive(Clone, Copy)]
enum Known {
    Version,
    Id,
    Method,
    Params,
    Result,
    Error,
    Name,
    Uri,
    Meta,
}

const ENVELOPE: [(&str, Known); 6] = [
    ("jsonrpc", Known::Version),
    ("id", Known::Id),
    ("method", Known::Method),
    ("params", Known::Params),
    ("result", Known::Result),
    ("error", Known::Error),
];

const PARAMS: [(&str, Known); 3] = [
    ("name", Known::Name),
    ("uri", Known::Uri),
    ("_meta", Known::Meta),
];

fn known(table: &[(&str, Known)], name: Text<'_>) -> Option<Known> {
    let mut rows = table.iter();
    rows.find(|(known, _)| name.is(known))
        .map(|(_, known)| *known)
}

/// One run of [`scan`].
struct Pass<'a, 'l> {
    text: &'a str,
    reader: Reader<'a>,
    limits: &'l ScanLimits,
    /// The first thing that is wrong with text that is JSON. Told only once all of it was read.
    refused: Option<ScanError>,
}

impl<'a> Pass<'a, '_> {
    fn root(&mut self) -> Result<Scanned<'a>, Fault> {
        self.reader.skip_space();
        let scanned = match self.reader.peek() {
            Some(b'{') => Scanned::One(self.envelope()?),
            Some(b'[') => Scanned::Batch(self.batch()?),
            _ => {
                self.reader.value()?;
                Scanned::Other
            }
        };
        self.reader.end()?;
        Ok(scanned)
    }

    fn batch(&mut self) -> Result<Vec<BatchMember<'a>>, Fault> {
        let limit = self.limits.batch_messages_max;
        let mut batch = Vec::new();
        let mut found = 0;
        let mut excess = None;
        self.reader.open_array()?;
        while self.reader.next_element(found == 0)? {
            found += 1;
            let offset = self.reader.at();
            if found > limit {
                excess.get_or_insert(offset);
                self.reader.value()?;
            } else if self.reader.peek() == Some(b'{') {
                batch.push(BatchMember::Message(self.envelope()?));
            } else {
                self.reader.value()?;
                batch.push(BatchMember::NotAnObject(self.since(offset)));
            }
        }
        if let Some(offset) = excess {
            self.refused = Some(ScanError::TooManyMessages {
                offset,
                limit,
                found,
            });
        }
        Ok(batch)
    }

    fn envelope(&mut self) -> Result<Envelope<'a>, Fault> {
        let start = self.reader.at();
        let mut envelope = Envelope {
            raw: "",
            version_ok: false,
            id: IdField::Absent,
            method: None,
            method_not_text: false,
            params: None,
            name: None,
            uri: None,
            meta: None,
            result: None,
            error: None,
        };
        let mut names = Names::new();
        self.reader.open_object()?;
        while let Some(name) = self.member(&mut names)? {
            let from = self.reader.at();
            let known = known(&ENVELOPE, name);
            if matches!(known, Some(Known::Params)) && self.reader.peek() == Some(b'{') {
                self.params(&mut envelope)?;
            } else {
                self.reader.value()?;
            }
            if let Some(known) = known {
                self.note(&mut envelope, known, self.since(from));
            }
        }
        envelope.raw = self.since(start);
        Ok(envelope)
    }

    fn params(&mut self, envelope: &mut Envelope<'a>) -> Result<(), Fault> {
        let mut names = Names::new();
        self.reader.open_object()?;
        while let Some(name) = self.member(&mut names)? {
            let from = self.reader.at();
            let known = known(&PARAMS, name);
            if matches!(known, Some(Known::Meta)) && self.reader.peek() == Some(b'{') {
                self.meta()?;
            } else {
                self.reader.value()?;
            }
            if let Some(known) = known {
                self.note(envelope, known, self.since(from));
            }
        }
        Ok(())
    }

    fn meta(&mut self) -> Result<(), Fault> {
        let mut names = Names::new();
        self.reader.open_object()?;
        while self.member(&mut names)?.is_some() {
            self.reader.value()?;
        }
        Ok(())
    }

    /// Moves to the value of the next member of an object and checks that its name is new.
    fn member(&mut self, names: &mut Names<'a>) -> Result<Option<Text<'a>>, Fault> {
        let Some(Span {
            start,
            end,
            escaped,
        }) = self.reader.next_member(names.is_empty())?
        else {
            return Ok(None);
        };
        let name = Text::new(&self.text[start..end], escaped);
        if !names.insert(name) && self.refused.is_none() {
            self.refused = Some(ScanError::DuplicateMember {
                offset: start - 1,
                name: cut(&name.decode()).to_owned(),
            });
        }
        Ok(Some(name))
    }

    fn note(&self, envelope: &mut Envelope<'a>, known: Known, raw: &'a str) {
        match known {
            Known::Version => {
                envelope.version_ok = Text::of_value(raw).is_some_and(|version| version.is("2.0"));
            }
            Known::Id => envelope.id = IdField::of(raw, self.limits.id_bytes_max),
            Known::Method => {
                envelope.method = Text::of_value(raw);
                envelope.method_not_text = envelope.method.is_none();
            }
            Known::Params => envelope.params = Some(raw),
            Known::Result => envelope.result = Some(raw),
            Known::Error => envelope.error = Some(raw),
            Known::Name => envelope.name = Text::of_value(raw),
            Known::Uri => envelope.uri = Text::of_value(raw),
            Known::Meta => envelope.meta = Some(raw),
        }
    }

    fn since(&self, from: usize) -> &'a str {
        &self.text[from..self.reader.at()]
    }
}

/// Names kept in place before a set takes the rest.
const INLINE_NAMES: usize = 16;

/// The member names of one object, to find one that comes twice.
struct Names<'a> {
    inline: [Text<'a>; INLINE_NAMES],
    count: usize,
    more: BTreeSet<Text<'a>>,
}

impl<'a> Names<'a> {
    const fn new() -> Self {
        Self {
            inline: [Text::EMPTY; INLINE_NAMES],
            count: 0,
            more: BTreeSet::new(),
        }
    }

    /// Whether no member was read yet.
    const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a name; `false` when it was there.
    fn insert(&mut self, name: Text<'a>) -> bool {
        let kept = self.count.min(INLINE_NAMES);
        self.count += 1;
        if self.inline[..kept].contains(&name) {
            return false;
        }
        match self.inline.get_mut(kept) {
            Some(free) => {
                *free = name;
                true
            }
            None => self.more.insert(name),
        }
    }
}
