//! The fields of a form that a person fills in, one line each.
//!
//! Spec: 2025-11-25 client/elicitation: flat objects of primitives, choices with or without titles, defaults.

use crate::codec::json_text::write_string;
use crate::codec::scan::{Text, elements, members, validate};
use crate::protocol::message::member;

/// Bytes of one label that are shown.
const LABEL_BYTES_MAX: usize = 512;

/// One field of a question.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    /// What the person sees in front of the line to type.
    pub(super) shown: String,
    kind: Kind,
    required: bool,
    /// Raw value of an empty line.
    default: Option<String>,
    /// What may be typed; anything where it is empty.
    choices: Vec<Choice>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Integer,
    Flag,
    /// Several of a list; given with commas between them.
    Several,
    /// The form has no fields: whether it is accepted.
    Consent,
}

#[derive(Debug)]
struct Choice {
    value: String,
    title: Option<String>,
}

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// A raw JSON value.
    Value(String),
    /// The field is left out.
    Nothing,
    /// The whole form is declined.
    No,
}

/// The fields of a form; never none: where the form has none, the person is asked for consent.
pub(super) fn fields(schema: &str) -> Vec<Field> {
    let required: Vec<String> = member(schema, "required").map_or_else(Vec::new, texts);
    let properties = member(schema, "properties").unwrap_or("{}");
    let mut fields: Vec<Field> = members(properties)
        .map(|(name, property)| {
            let name = name.decode().into_owned();
            let required = required.contains(&name);
            field(name, property, required)
        })
        .collect();
    if fields.is_empty() {
        fields.push(Field {
            name: String::new(),
            shown: "accept? yes or no: ".to_owned(),
            kind: Kind::Consent,
            required: true,
            default: None,
            choices: Vec::new(),
        });
    }
    fields
}

/// Whether nothing but yes or no is wanted.
pub(super) fn asks_consent_only(fields: &[Field]) -> bool {
    fields.iter().all(|field| field.kind == Kind::Consent)
}

/// Text of a server for a terminal: characters that steer it, reorder or hide text are escaped; line ends
/// stay.
pub(super) fn safe(text: &str, bytes_max: usize) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if out.len() >= bytes_max {
            out.push('…');
            break;
        }
        let hides = matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}' | '\u{feff}');
        match c {
            '\n' => out.push_str("\n  "),
            _ if c.is_control() || hides => out.extend(c.escape_unicode()),
            _ => out.push(c),
        }
    }
    out
}

fn field(name: String, property: &str, required: bool) -> Field {
    let kind = match member(property, "type") {
        Some("\"number\"") => Kind::Number,
        Some("\"integer\"") => Kind::Integer,
        Some("\"boolean\"") => Kind::Flag,
        Some("\"array\"") => Kind::Several,
        _ => Kind::Text,
    };
    let listed = match kind {
        Kind::Several => member(property, "items").unwrap_or("{}"),
        Kind::Text | Kind::Number | Kind::Integer | Kind::Flag | Kind::Consent => property,
    };
    let default = member(property, "default").map(str::to_owned);
    let mut field = Field {
        name,
        shown: String::new(),
        kind,
        required,
        default,
        choices: choices(listed),
    };
    field.shown = field.label(property);
    field
}

/// `enum` with or without `enumNames`, or `oneOf`/`anyOf` of constants with titles.
fn choices(schema: &str) -> Vec<Choice> {
    let of = |one: &str| {
        Some(Choice {
            value: text(one, "const")?,
            title: text(one, "title"),
        })
    };
    if let Some(list) = member(schema, "oneOf").or_else(|| member(schema, "anyOf")) {
        return elements(list).filter_map(of).collect();
    }
    let mut titles = member(schema, "enumNames")
        .map_or_else(Vec::new, texts)
        .into_iter();
    let values = member(schema, "enum").map_or_else(Vec::new, texts);
    let titled = |value| Choice {
        value,
        title: titles.next(),
    };
    values.into_iter().map(titled).collect()
}

fn text(object: &str, name: &str) -> Option<String> {
    let text = member(object, name).and_then(Text::of_value)?;
    Some(text.decode().into_owned())
}

fn texts(array: &str) -> Vec<String> {
    let texts = elements(array).filter_map(Text::of_value);
    texts.map(|text| text.decode().into_owned()).collect()
}

impl Field {
    fn label(&self, property: &str) -> String {
        let mut label = safe(&self.name, LABEL_BYTES_MAX);
        let note = text(property, "description").or_else(|| text(property, "title"));
        if let Some(note) = note {
            label.push_str(&format!(" ({})", safe(&note, LABEL_BYTES_MAX)));
        }
        let choices: Vec<String> = self
            .choices
            .iter()
            .map(|choice| match &choice.title {
                Some(title) => format!("{} = {title}", choice.value),
                None => choice.value.clone(),
            })
            .collect();
        if !choices.is_empty() {
            let listed = safe(&choices.join(", "), LABEL_BYTES_MAX);
            let how = match self.kind {
                Kind::Several => "any of",
                Kind::Text | Kind::Number | Kind::Integer | Kind::Flag | Kind::Consent => "one of",
            };
            label.push_str(&format!(", {how} {listed}"));
        } else if self.kind == Kind::Several {
            label.push_str(", several with commas");
        } else if self.kind == Kind::Flag {
            label.push_str(", yes or no");
        }
        match &self.default {
            Some(default) => label.push_str(&format!(" [{}]", safe(default, LABEL_BYTES_MAX))),
            None if !self.required => label.push_str(", optional"),
            None => {}
        }
        label.push_str(": ");
        label
    }

    /// What a line says; a person is told why it cannot be taken.
    pub(super) fn read(&self, line: &str) -> Result<Said, String> {
        if line.is_empty() && self.kind != Kind::Consent {
            return match (&self.default, self.required) {
                (Some(default), _) => Ok(Said::Value(default.clone())),
                (None, true) => Err("a value is required".to_owned()),
                (None, false) => Ok(Said::Nothing),
            };
        }
        let mut raw = String::new();
        match self.kind {
            Kind::Text => write_string(&mut raw, self.choice(line)?),
            Kind::Number | Kind::Integer => {
                // As it was typed: no digit is lost.
                let is_number = validate(line.as_bytes(), 1).is_ok()
                    && line.starts_with(|c: char| c == '-' || c.is_ascii_digit());
                let is_whole = !line.contains(['.', 'e', 'E']);
                if self.kind == Kind::Integer && !(is_number && is_whole) {
                    return Err("a whole number is required".to_owned());
                }
                if !is_number {
                    return Err("a number is required".to_owned());
                }
                raw.push_str(line);
            }
            Kind::Flag => raw.push_str(if yes(line)? { "true" } else { "false" }),
            Kind::Several => {
                raw.push('[');
                for (i, item) in line.split(',').enumerate() {
                    if i > 0 {
                        raw.push(',');
                    }
                    write_string(&mut raw, self.choice(item.trim())?);
                }
                raw.push(']');
            }
            Kind::Consent => {
                return yes(line).map(|yes| if yes { Said::Nothing } else { Said::No });
            }
        }
        Ok(Said::Value(raw))
    }

    /// The value that is meant, by itself or by its title.
    fn choice<'a>(&'a self, word: &'a str) -> Result<&'a str, String> {
        if self.choices.is_empty() {
            return Ok(word);
        }
        let by_value = self.choices.iter().find(|choice| choice.value == word);
        let by_title = || {
            let titled = |choice: &&Choice| choice.title.as_deref() == Some(word);
            self.choices.iter().find(titled)
        };
        match by_value.or_else(by_title) {
            Some(choice) => Ok(&choice.value),
            None => Err("that is none of the choices".to_owned()),
        }
    }
}

fn yes(line: &str) -> Result<bool, String> {
    match line.to_ascii_lowercase().as_str() {
        "y" | "yes" | "true" => Ok(true),
        "n" | "no" | "false" => Ok(false),
        _ => Err("yes or no is required".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(property: &str) -> Field {
        let schema = format!(r#"{{"properties":{{"f":{property}}},"required":["f"]}}"#);
        fields(&schema).remove(0)
    }

    fn value(raw: &str) -> Result<Said, String> {
        Ok(Said::Value(raw.to_owned()))
    }

    #[test]
    fn numbers_keep_their_digits() {
        let whole = one(r#"{"type":"integer"}"#);
        assert_eq!(
            whole.read("12345678901234567890"),
            value("12345678901234567890")
        );
        let number = one(r#"{"type":"number"}"#);
        assert_eq!(number.read("1.50"), value("1.50"));
        for bad in ["1.5", "1e3", "x", "\"1\"", "01"] {
            assert!(whole.read(bad).is_err(), "{bad}");
        }
        assert!(number.read("nan").is_err());
    }

    #[test]
    fn choices_are_held_to() {
        let plain = one(r#"{"type":"string","enum":["a","b"],"enumNames":["Ay","Bee"]}"#);
        assert_eq!(plain.shown, "f, one of a = Ay, b = Bee: ");
        assert_eq!(plain.read("Bee"), value("\"b\""));
        assert!(plain.read("c").is_err());
        let titled = one(r#"{"type":"string","oneOf":[{"const":"red","title":"Red"}]}"#);
        assert_eq!(titled.read("Red"), value("\"red\""));
        let several = one(
            r#"{"type":"array","items":{"anyOf":[{"const":"a","title":"A"},{"const":"b","title":"B"}]}}"#,
        );
        assert_eq!(several.read("a, B"), value(r#"["a","b"]"#));
        assert!(several.read("a, c").is_err());
    }

    #[test]
    fn an_empty_line_is_the_default() {
        let with = one(r#"{"type":"boolean","default":true}"#);
        assert_eq!(with.shown, "f, yes or no [true]: ");
        assert_eq!(with.read(""), value("true"));
        assert_eq!(
            one(r#"{"type":"string"}"#).read(""),
            Err("a value is required".to_owned())
        );
    }

    #[test]
    fn a_question_does_not_steer_the_terminal() {
        assert_eq!(
            safe("a\u{1b}[2J\nb\u{202e}", 99),
            "a\\u{1b}[2J\n  b\\u{202e}"
        );
        assert_eq!(safe("aaaa", 2), "aa…");
    }
}
