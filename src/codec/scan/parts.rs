//! What an object or an array holds that was validated before, one after the other.

use super::reader::Reader;
use super::text::Text;

/// The members of an object that was validated before, in order, each with its name and raw value. Anything
/// but an object has none.
pub fn members(object_raw: &str) -> Members<'_> {
    let mut reader = Reader::of_known(object_raw.as_bytes());
    reader.skip_space();
    let open = reader.peek() == Some(b'{') && reader.open_object().is_ok();
    Members {
        text: object_raw,
        reader,
        first: true,
        open,
    }
}

/// The first member of this name of an object that was validated before, when it is a string.
#[must_use]
pub fn text_member<'a>(object_raw: &'a str, name: &str) -> Option<Text<'a>> {
    let mut members = members(object_raw);
    let (_, value) = members.find(|(key, _)| key.is(name))?;
    // Then it is what was read last.
    value
        .starts_with('"')
        .then(|| members.reader.last_string().of(object_raw))
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
        if !self.reader.next_member(self.first).ok()? {
            return None;
        }
        let name = self.reader.last_string().of(self.text);
        self.first = false;
        let from = self.reader.at();
        self.reader.value().ok()?;
        self.open = true;
        Some((name, &self.text[from..self.reader.at()]))
    }
}

/// The elements of an array that was validated before, in order, each as raw value. Anything but an array
/// has none.
pub fn elements(array_raw: &str) -> Elements<'_> {
    let mut reader = Reader::of_known(array_raw.as_bytes());
    reader.skip_space();
    let open = reader.peek() == Some(b'[') && reader.open_array().is_ok();
    Elements {
        text: array_raw,
        reader,
        first: true,
        open,
    }
}

/// Iterator made by [`elements`].
pub struct Elements<'a> {
    text: &'a str,
    reader: Reader<'a>,
    first: bool,
    open: bool,
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        if !std::mem::take(&mut self.open) || !self.reader.next_element(self.first).ok()? {
            return None;
        }
        self.first = false;
        self.reader.skip_space();
        let from = self.reader.at();
        self.reader.value().ok()?;
        self.open = true;
        Some(&self.text[from..self.reader.at()])
    }
}
