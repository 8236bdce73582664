//! One run over one message: which members there are, and where their values stand.

use super::error::ScanError;
use super::names::Names;
use super::reader::{Fault, Reader, Span};
use super::text::Text;
use super::{BatchMember, Envelope, IdField, ScanLimits, Scanned};

/// Members of the envelope and of `params` that are noted, and all others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Version,
    Id,
    Method,
    Params,
    Result,
    Error,
    Name,
    Uri,
    Arguments,
    Meta,
    Other,
}

fn in_envelope(name: &str) -> Known {
    match name {
        "jsonrpc" => Known::Version,
        "id" => Known::Id,
        "method" => Known::Method,
        "params" => Known::Params,
        "result" => Known::Result,
        "error" => Known::Error,
        _ => Known::Other,
    }
}

fn in_params(name: &str) -> Known {
    match name {
        "name" => Known::Name,
        "uri" => Known::Uri,
        "arguments" => Known::Arguments,
        "_meta" => Known::Meta,
        _ => Known::Other,
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
        match (self.root(), self.refused) {
            (Err(fault), _) => Err(ScanError::of(fault, self.limits.depth_max)),
            (Ok(_), Some(error)) => Err(error),
            (Ok(scanned), None) => Ok(scanned),
        }
    }

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
        let mut envelope = Envelope::EMPTY;
        let mut names = Names::<ENVELOPE_NAMES>::new();
        self.reader.open_object()?;
        while self.reader.next_member(names.is_empty())? {
            let known = self.name(&mut names, in_envelope);
            let from = self.reader.at();
            match known {
                Known::Version => {
                    let version = self.text_value()?;
                    envelope.version_ok = version.is_some_and(|version| version.is("2.0"));
                }
                Known::Id => {
                    self.reader.value()?;
                    envelope.id = IdField::of(self.since(from), self.limits.id_bytes_max);
                }
                Known::Method => {
                    envelope.method = self.text_value()?;
                    envelope.method_not_text = envelope.method.is_none();
                }
                Known::Params => {
                    if self.reader.peek() == Some(b'{') {
                        self.params(&mut envelope)?;
                    } else {
                        self.reader.value()?;
                    }
                    envelope.params = Some(self.since(from));
                }
                Known::Result => {
                    self.reader.value()?;
                    envelope.result = Some(self.since(from));
                }
                Known::Error => {
                    self.reader.value()?;
                    envelope.error = Some(self.since(from));
                }
                Known::Name | Known::Uri | Known::Arguments | Known::Meta | Known::Other => {
                    self.reader.value()?;
                }
            }
        }
        envelope.raw = self.since(start);
        Ok(envelope)
    }

    fn params(&mut self, envelope: &mut Envelope<'a>) -> Result<(), Fault> {
        let mut names = Names::<PARAMS_NAMES>::new();
        self.reader.open_object()?;
        while self.reader.next_member(names.is_empty())? {
            let known = self.name(&mut names, in_params);
            let from = self.reader.at();
            match known {
                Known::Name => envelope.name = self.text_value()?,
                Known::Uri => envelope.uri = self.text_value()?,
                Known::Arguments => {
                    self.reader.value()?;
                    envelope.arguments = Some(self.since(from));
                }
                Known::Meta => {
                    if self.reader.peek() == Some(b'{') {
                        self.meta(envelope)?;
                    } else {
                        self.reader.value()?;
                    }
                    envelope.meta = Some(self.since(from));
                }
                Known::Version
                | Known::Id
                | Known::Method
                | Known::Params
                | Known::Result
                | Known::Error
                | Known::Other => self.reader.value()?,
            }
        }
        Ok(())
    }

    fn meta(&mut self, envelope: &mut Envelope<'a>) -> Result<(), Fault> {
        let mut names = Names::<PARAMS_NAMES>::new();
        self.reader.open_object()?;
        while self.reader.next_member(names.is_empty())? {
            self.name(&mut names, |_| Known::Other);
            let (name, from) = (self.last_text(), self.reader.at());
            self.reader.value()?;
            envelope.request_meta.note(name, self.since(from));
        }
        Ok(())
    }

    /// Says which member was reached, and checks that its name is new.
    fn name<const N: usize>(
        &mut self,
        names: &mut Names<'a, N>,
        which: impl Fn(&str) -> Known,
    ) -> Known {
        let name = self.last_text();
        let known = if name.has_escapes() {
            which(&name.decode())
        } else {
            which(name.raw())
        };
        let new = if known == Known::Other {
            names.insert(name)
        } else {
            names.insert_known(known as u8)
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
        let Span {
            start,
            end,
            escaped,
        } = self.reader.last_string();
        Text::new(&self.text[start..end], escaped)
    }

    fn since(&self, from: usize) -> &'a str {
        &self.text[from..self.reader.at()]
    }
}
