//! One run over one message: which members there are, and where their values stand.

use super::error::ScanError;
use super::meta::{
    InMeta, META_CLIENT_CAPABILITIES, META_CLIENT_INFO, META_LOG_LEVEL, META_PROTOCOL_VERSION,
};
use super::names::Names;
use super::reader::{Fault, Reader};
use super::text::Text;
use super::{BatchMember, Envelope, IdField, ScanLimits, Scanned};

/// Members that are noted of one kind of object.
trait Known: Copy {
    /// The one with this name.
    fn named(name: &str) -> Option<Self>;

    /// Its bit in [`Names`].
    fn number(self) -> u8;
}

#[derive(Clone, Copy)]
enum InEnvelope {
    Version,
    Id,
    Method,
    Params,
    Result,
    Error,
}

impl Known for InEnvelope {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "jsonrpc" => Self::Version,
            "id" => Self::Id,
            "method" => Self::Method,
            "params" => Self::Params,
            "result" => Self::Result,
            "error" => Self::Error,
            _ => return None,
        })
    }

    fn number(self) -> u8 {
        self as u8
    }
}

#[derive(Clone, Copy)]
enum InParams {
    Name,
    Uri,
    Arguments,
    Meta,
}

impl Known for InParams {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "name" => Self::Name,
            "uri" => Self::Uri,
            "arguments" => Self::Arguments,
            "_meta" => Self::Meta,
            _ => return None,
        })
    }

    fn number(self) -> u8 {
        self as u8
    }
}

impl Known for InMeta {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            META_PROTOCOL_VERSION => Self::ProtocolVersion,
            META_CLIENT_CAPABILITIES => Self::ClientCapabilities,
            META_CLIENT_INFO => Self::ClientInfo,
            META_LOG_LEVEL => Self::LogLevel,
            "progressToken" => Self::ProgressToken,
            _ => return None,
        })
    }

    fn number(self) -> u8 {
        self as u8
    }
}

/// Names of an envelope kept without an allocation, beside those the scanner knows. There should be none.
const ENVELOPE_NAMES: usize = 2;

/// Names of `params` or `_meta` kept without an allocation, beside those the scanner knows. A request's
/// `_meta` has eight at most.
pub(super) const PARAMS_NAMES: usize = 8;

/// One run of [`scan`](super::scan).
pub(super) struct Pass<'a, 'l> {
    text: &'a str,
    reader: Reader<'a>,
    limits: &'l ScanLimits,
    /// The first thing that is wrong with text that is JSON. Told only once all of it was read.
    refused: Option<ScanError>,
}

impl<'a, 'l> Pass<'a, 'l> {
    pub(super) fn new(text: &'a str, limits: &'l ScanLimits) -> Self {
        Self {
            text,
            reader: Reader::new(text.as_bytes(), limits.depth_max),
            limits,
            refused: None,
        }
    }

    pub(super) fn run(mut self) -> Result<Scanned<'a>, ScanError> {
        let mut scanned = Scanned::Other;
        self.root(&mut scanned)
            .map_err(|fault| ScanError::of(fault, self.reader.at(), self.limits.depth_max))?;
        self.refused.map_or(Ok(scanned), Err)
    }

    fn root(&mut self, scanned: &mut Scanned<'a>) -> Result<(), Fault> {
        self.reader.skip_space();
        match self.reader.peek() {
            Some(b'{') => {
                *scanned = Scanned::One(Envelope::EMPTY);
                if let Scanned::One(envelope) = scanned {
                    self.envelope(envelope)?;
                }
            }
            Some(b'[') => *scanned = Scanned::Batch(self.batch()?),
            _ => self.reader.value()?,
        }
        self.reader.end()
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
                let mut envelope = Envelope::EMPTY;
                self.envelope(&mut envelope)?;
                batch.push(BatchMember::Message(envelope));
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

    /// Notes the parts of an object in an empty envelope.
    fn envelope(&mut self, envelope: &mut Envelope<'a>) -> Result<(), Fault> {
        let start = self.reader.at();
        let mut names = Names::<ENVELOPE_NAMES>::new();
        self.reader.open_object()?;
        while self.reader.next_member(names.is_empty())? {
            let known = self.name(&mut names);
            let from = self.reader.at();
            match known {
                Some(InEnvelope::Version) => {
                    let version = self.text_value()?;
                    envelope.version_ok = version.is_some_and(|version| version.is("2.0"));
                }
                Some(InEnvelope::Id) => {
                    self.reader.value()?;
                    envelope.id = IdField::of(self.since(from), self.limits.id_bytes_max);
                }
                Some(InEnvelope::Method) => {
                    envelope.method = self.text_value()?;
                    envelope.method_not_text = envelope.method.is_none();
                }
                Some(InEnvelope::Params) => {
                    if self.reader.peek() == Some(b'{') {
                        self.params(envelope)?;
                    } else {
                        self.reader.value()?;
                    }
                    envelope.params = Some(self.since(from));
                }
                Some(InEnvelope::Result) => {
                    self.reader.value()?;
                    envelope.result = Some(self.since(from));
                }
                Some(InEnvelope::Error) => {
                    self.reader.value()?;
                    envelope.error = Some(self.since(from));
                }
                None => self.reader.value()?,
            }
        }
        envelope.raw = self.since(start);
        Ok(())
    }

    fn params(&mut self, envelope: &mut Envelope<'a>) -> Result<(), Fault> {
        let mut names = Names::<PARAMS_NAMES>::new();
        self.reader.open_object()?;
        while self.reader.next_member(names.is_empty())? {
            let known = self.name(&mut names);
            let from = self.reader.at();
            match known {
                Some(InParams::Name) => envelope.name = self.text_value()?,
                Some(InParams::Uri) => envelope.uri = self.text_value()?,
                Some(InParams::Arguments) => {
                    self.reader.value()?;
                    envelope.arguments = Some(self.since(from));
                }
                Some(InParams::Meta) => {
                    if self.reader.peek() == Some(b'{') {
                        self.meta(envelope)?;
                    } else {
                        self.reader.value()?;
                    }
                    envelope.meta = Some(self.since(from));
                }
                None => self.reader.value()?,
            }
        }
        Ok(())
    }

    fn meta(&mut self, envelope: &mut Envelope<'a>) -> Result<(), Fault> {
        let mut names = Names::<PARAMS_NAMES>::new();
        self.reader.open_object()?;
        while self.reader.next_member(names.is_empty())? {
            let known: Option<InMeta> = self.name(&mut names);
            let from = self.reader.at();
            self.reader.value()?;
            if let Some(known) = known {
                *envelope.request_meta.place(known) = Some(self.since(from));
            }
        }
        Ok(())
    }

    /// Says which member was reached, and checks that its name is new.
    fn name<K: Known, const N: usize>(&mut self, names: &mut Names<'a, N>) -> Option<K> {
        let name = self.last_text();
        let known = if name.has_escapes() {
            K::named(&name.decode())
        } else {
            K::named(name.raw())
        };
        let new = match known {
            Some(known) => names.insert_known(known.number()),
            None => names.insert(name),
        };
        if !new && self.refused.is_none() {
            let offset = self.reader.last_string().start - 1;
            self.refused = Some(ScanError::duplicate(offset, name));
        }
        known
    }

    /// Moves over a value and gives it when it is a string.
    fn text_value(&mut self) -> Result<Option<Text<'a>>, Fault> {
        if self.reader.peek() == Some(b'"') {
            self.reader.string()?;
            Ok(Some(self.last_text()))
        } else {
            self.reader.value()?;
            Ok(None)
        }
    }

    fn last_text(&self) -> Text<'a> {
        self.reader.last_string().of(self.text)
    }

    fn since(&self, from: usize) -> &'a str {
        &self.text[from..self.reader.at()]
    }
}
