//! Writes heads. Source: reliability-security T22.

use std::fmt;

use super::is_token;

/// Something that must not be written into a head.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteError {
    /// Method, target, status or reason phrase.
    StartLine,
    /// A field name that is no token.
    Name,
    /// The value of the named field: a byte outside visible ASCII, space and tab, or a blank at an
    /// end.
    Value(String),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StartLine => f.write_str("start line holds a byte that HTTP does not allow"),
            Self::Name => f.write_str("field name holds a byte that HTTP does not allow"),
            Self::Value(name) => {
                write!(
                    f,
                    "value of field {name} holds a byte that HTTP does not allow"
                )
            }
        }
    }
}

impl std::error::Error for WriteError {}

/// Writes one head. Values get into a head of ours through [`append_field`] only.
#[derive(Debug)]
pub struct HeadWriter(Vec<u8>);

impl HeadWriter {
    /// Begins a request.
    ///
    /// # Errors
    /// [`WriteError::StartLine`].
    pub fn request(method: &str, target: &str) -> Result<Self, WriteError> {
        let good_method = is_token(method.as_bytes());
        let good_target = !target.is_empty() && target.bytes().all(|b| b.is_ascii_graphic());
        if !(good_method && good_target) {
            return Err(WriteError::StartLine);
        }
        Ok(Self(format!("{method} {target} HTTP/1.1\r\n").into_bytes()))
    }

    /// Begins a response.
    ///
    /// # Errors
    /// [`WriteError::StartLine`].
    pub fn response(status: u16, reason: &str) -> Result<Self, WriteError> {
        if !(100..=999).contains(&status) || !is_value(reason) {
            return Err(WriteError::StartLine);
        }
        Ok(Self(format!("HTTP/1.1 {status} {reason}\r\n").into_bytes()))
    }

    /// Appends a field.
    ///
    /// # Errors
    /// [`WriteError::Name`] or [`WriteError::Value`]; nothing of the head must be sent then.
    pub fn field(mut self, name: &str, value: &str) -> Result<Self, WriteError> {
        append_field(&mut self.0, name, value)?;
        Ok(self)
    }

    /// Ends the head; a body may be appended to the bytes.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.0.extend_from_slice(b"\r\n");
        self.0
    }
}

/// Appends one field to a head that is being written: the only way a value gets there.
///
/// # Errors
/// [`WriteError::Name`] or [`WriteError::Value`]; nothing was appended.
pub fn append_field(out: &mut Vec<u8>, name: &str, value: &str) -> Result<(), WriteError> {
    if !is_token(name.as_bytes()) {
        return Err(WriteError::Name);
    }
    if !is_value(value) {
        return Err(WriteError::Value(name.to_owned()));
    }
    for part in [name, ": ", value, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    Ok(())
}

/// Blanks at the ends would be lost on the way, so that another value arrives than was sent.
fn is_value(text: &str) -> bool {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let bytes = text.as_bytes();
    bytes.iter().all(|b| b.is_ascii_graphic() || blank(b))
        && !bytes.first().is_some_and(blank)
        && !bytes.last().is_some_and(blank)
}

#[cfg(test)]
mod tests {
    use super::super::{HeadLimits, Progress, RequestReader};
    use super::*;
    use crate::entropy::Seeded;

    const LIMITS: HeadLimits = HeadLimits {
        bytes_max: 100,
        fields_max: 3,
    };

    #[test]
    fn values_that_could_become_fields_are_not_written() {
        let write = |name: &str, value: &str| {
            HeadWriter::request("GET", "/")?
                .field(name, value)
                .map(HeadWriter::finish)
        };
        for value in [
            "a\r\nX: y",
            "a\nb",
            "a\0b",
            "a\u{7f}",
            "é",
            " a",
            "a\t",
            "\r",
        ] {
            assert_eq!(
                write("X", value),
                Err(WriteError::Value("X".to_owned())),
                "{value:?}"
            );
        }
        for name in ["", "a b", "a:", "a\r\n", "é"] {
            assert_eq!(write(name, "v"), Err(WriteError::Name), "{name:?}");
        }
        for (method, target) in [
            ("", "/"),
            ("G T", "/"),
            ("GET", ""),
            ("GET", "/ x"),
            ("GET", "/\n"),
        ] {
            assert!(
                HeadWriter::request(method, target).is_err(),
                "{method:?} {target:?}"
            );
        }
        assert!(HeadWriter::response(99, "Low").is_err());
        assert!(HeadWriter::response(200, "O\nK").is_err());
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut random = Seeded::new(22);
        let alphabet: Vec<char> = ('\t'..='\t').chain(' '..='~').collect();
        for _ in 0..200 {
            let len = random.below(40);
            let pick = |random: &mut Seeded| {
                alphabet[usize::try_from(random.below(alphabet.len() as u64)).expect("small")]
            };
            let value: String = (0..len).map(|_| pick(&mut random)).collect();
            let value = value.trim_matches([' ', '\t']);
            let head = HeadWriter::request("GET", "/x")
                .and_then(|head| head.field("Host", "h"))
                .and_then(|head| head.field("X-Value", value))
                .expect("allowed bytes only")
                .finish();
            let Ok(Progress::Done { head, used }) = RequestReader::new(LIMITS).read(&head) else {
                panic!("a whole head with {value:?}");
            };
            assert_eq!(head.fields.only("x-value"), Some(value));
            assert!(used > 0);
        }
    }
}
