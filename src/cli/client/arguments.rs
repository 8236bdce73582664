//! Words of a command line that become JSON.

use std::io::Read as _;

use super::super::{Exit, Failure};
use crate::codec::json_text::write_string;
use crate::codec::scan::{Text, elements, members, validate};
use crate::limits::Limits;
use crate::protocol::message::member;
use crate::secret::Quoted;

/// All of the words, as many as have names.
///
/// # Errors
/// When there are more or fewer.
pub(super) fn exactly<'a, const N: usize>(
    words: &'a [String],
    names: [&str; N],
) -> Result<[&'a str; N], Failure> {
    if let Some(missing) = names.get(words.len()) {
        return Err(usage(format!("{missing} is missing")));
    }
    if let Some(extra) = words.get(N) {
        return Err(usage(format!("unexpected argument {}", Quoted(extra))));
    }
    Ok(std::array::from_fn(|i| words[i].as_str()))
}

/// The first word, which must be there, and the rest.
///
/// # Errors
/// When it is not there.
pub(super) fn first<'a>(
    words: &'a [String],
    name: &str,
) -> Result<(&'a str, &'a [String]), Failure> {
    match words.split_first() {
        Some((first, rest)) => Ok((first, rest)),
        None => Err(usage(format!("{name} is missing"))),
    }
}

/// `name=value`.
///
/// # Errors
/// When it is something else.
pub(super) fn pair(word: &str) -> Result<(&str, &str), Failure> {
    match word.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name, value)),
        Some(_) | None => Err(usage(format!("{} is not name=value", Quoted(word)))),
    }
}

/// What the command line says of the arguments of a call, read before anything is started.
#[derive(Debug)]
pub(super) struct Given {
    /// `--args`: one raw JSON object.
    base: String,
    /// Each name once, in the order in which they came; of two the later value counts.
    pairs: Vec<(String, Value)>,
}

#[derive(Debug)]
enum Value {
    /// `name:=JSON`.
    Json(String),
    /// `name=value`: what it is, the tool's schema says.
    Word(String),
}

impl Given {
    /// # Errors
    /// When a word or the text of `--args` is not what it should be.
    pub(super) fn read(
        whole: Option<&str>,
        words: &[String],
        limits: &Limits,
    ) -> Result<Self, Failure> {
        let depth = limits.json_depth_max;
        let base = match whole {
            None => "{}".to_owned(),
            Some("-") => read("stdin", std::io::stdin(), limits)?,
            Some(text) => match text.strip_prefix('@') {
                Some(path) => match std::fs::File::open(path) {
                    Ok(file) => read(path, file, limits)?,
                    Err(error) => return Err(usage(format!("--args {}: {error}", Quoted(path)))),
                },
                None => text.to_owned(),
            },
        };
        let json = validate(base.trim().as_bytes(), depth)
            .map_err(|error| usage(format!("--args is not JSON: {error}")))?;
        if !json.starts_with('{') {
            return Err(usage("--args must be a JSON object".to_owned()));
        }
        let mut pairs: Vec<(String, Value)> = Vec::with_capacity(words.len());
        for word in words {
            let (name, value) = pair(word)?;
            let (name, value) = match name.strip_suffix(':') {
                Some("") => return Err(usage(format!("{} is not name:=JSON", Quoted(word)))),
                Some(name) => {
                    let value = validate(value.trim().as_bytes(), depth)
                        .map_err(|error| usage(format!("{} is not JSON: {error}", Quoted(name))))?;
                    (name, Value::Json(value.to_owned()))
                }
                None => (name, Value::Word(value.to_owned())),
            };
            pairs.retain(|(other, _)| other != name);
            pairs.push((name.to_owned(), value));
        }
        Ok(Self {
            base: json.to_owned(),
            pairs,
        })
    }

    /// All arguments as one raw JSON object: `--args` first, then each pair. A word is text where the
    /// tool's schema takes text, and else JSON where it is JSON.
    pub(super) fn object(&self, input_schema: Option<&str>, limits: &Limits) -> String {
        if self.pairs.is_empty() {
            return self.base.clone();
        }
        let mut object = String::from("{");
        let mut push = |name_raw: &str, value: &str| {
            if object.len() > 1 {
                object.push(',');
            }
            object.push_str(name_raw);
            object.push(':');
            object.push_str(value);
        };
        for (name, value) in members(&self.base) {
            if !self.pairs.iter().any(|(given, _)| name.is(given)) {
                push(&format!("\"{}\"", name.raw()), value);
            }
        }
        for (name, value) in &self.pairs {
            let value = match value {
                Value::Json(raw) => raw.clone(),
                Value::Word(word) => raw_of(name, word, input_schema, limits),
            };
            push(&quoted(name), &value);
        }
        object.push('}');
        object
    }
}

fn quoted(text: &str) -> String {
    let mut raw = String::new();
    write_string(&mut raw, text);
    raw
}

fn raw_of(name: &str, word: &str, input_schema: Option<&str>, limits: &Limits) -> String {
    let property = input_schema
        .and_then(|schema| member(schema, "properties"))
        .and_then(|properties| member(properties, name));
    let is_json = validate(word.trim().as_bytes(), limits.json_depth_max).is_ok();
    match is_json && !property.is_some_and(|property| takes_text(property, word)) {
        true => word.trim().to_owned(),
        false => quoted(word),
    }
}

/// Whether a schema takes this word as it is, as text: `string` is a type of it or of one of its
/// alternatives, or the word is one of its values.
fn takes_text(schema: &str, word: &str) -> bool {
    let is_string = |raw: &str| raw == "\"string\"";
    let typed = member(schema, "type")
        .is_some_and(|raw| is_string(raw) || raw.starts_with('[') && elements(raw).any(is_string));
    let is_word = |raw: &str| Text::of_value(raw).is_some_and(|text| text.is(word));
    let listed = member(schema, "enum").is_some_and(|raw| elements(raw).any(is_word))
        || member(schema, "const").is_some_and(is_word);
    let takes = |raw: &str| {
        elements(raw).any(|one| {
            let one_typed = member(one, "type").is_some_and(is_string);
            one_typed || member(one, "const").is_some_and(is_word)
        })
    };
    let alternatives = ["anyOf", "oneOf"]
        .into_iter()
        .filter_map(|name| member(schema, name));
    typed || listed || alternatives.into_iter().any(takes)
}

/// All of a file or of stdin, as far as it could be sent.
fn read(what: &str, from: impl std::io::Read, limits: &Limits) -> Result<String, Failure> {
    let most = limits.upstream_message_bytes_max;
    let mut text = String::new();
    let bytes = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    match from.take(bytes).read_to_string(&mut text) {
        Ok(count) if count > most => Err(Failure::new(
            Exit::Limit,
            format!("--args {}: more than {most} bytes", Quoted(what)),
        )),
        Ok(_) => Ok(text),
        Err(error) => Err(usage(format!("--args {}: {error}", Quoted(what)))),
    }
}

fn usage(message: String) -> Failure {
    Failure::new(Exit::Usage, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = r#"{"properties":{"text":{"type":"string"},"n":{"type":"integer"},"l":{"type":"array"},
        "maybe":{"anyOf":[{"type":"string"},{"type":"null"}]},"both":{"type":["null","string"]},
        "one":{"enum":["1","2"]},"titled":{"oneOf":[{"const":"3","title":"three"}]}}}"#;

    fn arguments(whole: Option<&str>, pairs: &[&str]) -> Result<String, Failure> {
        let pairs: Vec<_> = pairs.iter().map(|&pair| pair.to_owned()).collect();
        let given = Given::read(whole, &pairs, &Limits::default())?;
        Ok(given.object(Some(SCHEMA), &Limits::default()))
    }

    #[test]
    fn text_stays_text_where_the_schema_wants_text() {
        let made = arguments(
            None,
            &["text=12", "n=12", "l=[1,2]", "free=a b", "raw:=\"x\""],
        );
        assert_eq!(
            made.expect("good words"),
            r#"{"text":"12","n":12,"l":[1,2],"free":"a b","raw":"x"}"#
        );
    }

    #[test]
    fn a_schema_takes_text_in_more_than_one_way() {
        let made = arguments(None, &["maybe=12", "both=null", "one=1", "titled=3"]);
        assert_eq!(
            made.expect("good words"),
            r#"{"maybe":"12","both":"null","one":"1","titled":"3"}"#
        );
        let made = arguments(None, &["one=7", "titled=7"]);
        assert_eq!(made.expect("good words"), r#"{"one":7,"titled":7}"#);
    }

    #[test]
    fn of_two_values_the_later_counts() {
        let made = arguments(None, &["n=1", "text=a", "n:=2"]);
        assert_eq!(made.expect("good words"), r#"{"text":"a","n":2}"#);
    }

    #[test]
    fn words_replace_members_and_numbers_keep_their_digits() {
        let whole = r#" {"n": 12345678901234567890123, "text":"a"} "#;
        assert_eq!(
            arguments(Some(whole), &[]).expect("an object"),
            r#"{"n": 12345678901234567890123, "text":"a"}"#
        );
        assert_eq!(
            arguments(Some(whole), &["text=b"]).expect("an object"),
            r#"{"n":12345678901234567890123,"text":"b"}"#
        );
    }

    #[test]
    fn what_is_no_json_is_usage() {
        for (whole, pairs) in [
            (Some("[1]"), &[][..]),
            (Some("{"), &[]),
            (None, &["novalue"]),
            (None, &["=x"]),
            (None, &["n:=x"]),
            (None, &[":=1"]),
            (Some("@/no/such/file"), &[]),
        ] {
            let failure = arguments(whole, pairs).expect_err("not good");
            assert_eq!(failure.exit, Exit::Usage);
        }
    }
}
