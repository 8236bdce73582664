//! Words of a command line that become JSON.

use super::super::{Exit, Failure};
use crate::codec::json_text::write_string;
use crate::codec::scan::{members, validate};
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

/// The arguments of a call, as one raw JSON object: `--args` first, then each `name=value`, which is text
/// where the tool's schema wants text, and else JSON where it is JSON. `name:=value` is JSON in any case.
///
/// # Errors
/// When a word or the text of `--args` is not what it should be.
pub(super) fn of_call(
    whole: Option<&str>,
    pairs: &[String],
    input_schema: Option<&str>,
    limits: &Limits,
) -> Result<String, Failure> {
    let base = match whole {
        None => "{}".to_owned(),
        Some("-") => read("stdin", std::io::stdin())?,
        Some(text) => match text.strip_prefix('@') {
            Some(path) => match std::fs::File::open(path) {
                Ok(file) => read(path, file)?,
                Err(error) => return Err(usage(format!("--args {}: {error}", Quoted(path)))),
            },
            None => text.to_owned(),
        },
    };
    let base = base.trim();
    let json = validate(base.as_bytes(), limits.json_depth_max)
        .map_err(|error| usage(format!("--args is not JSON: {error}")))?;
    if !json.starts_with('{') {
        return Err(usage("--args must be a JSON object".to_owned()));
    }
    if pairs.is_empty() {
        return Ok(json.to_owned());
    }
    let mut given: Vec<(String, String)> = Vec::with_capacity(pairs.len());
    for word in pairs {
        let (name, value) = pair(word)?;
        let entry = match name.strip_suffix(':') {
            Some(name) => {
                validate(value.as_bytes(), limits.json_depth_max)
                    .map_err(|error| usage(format!("{}: {error}", Quoted(name))))?;
                (name.to_owned(), value.to_owned())
            }
            None => (name.to_owned(), value_of(name, value, input_schema, limits)),
        };
        given.push(entry);
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
    for (name, value) in members(json) {
        if !given.iter().any(|(given, _)| name.is(given)) {
            push(&format!("\"{}\"", name.raw()), value);
        }
    }
    for (name, value) in &given {
        let mut raw = String::new();
        write_string(&mut raw, name);
        push(&raw, value);
    }
    object.push('}');
    Ok(object)
}

fn value_of(name: &str, value: &str, input_schema: Option<&str>, limits: &Limits) -> String {
    let property = input_schema
        .and_then(|schema| member(schema, "properties"))
        .and_then(|properties| member(properties, name));
    let wants_text = property.and_then(|property| member(property, "type")) == Some("\"string\"");
    let is_json = validate(value.trim().as_bytes(), limits.json_depth_max).is_ok();
    if is_json && !wants_text {
        return value.trim().to_owned();
    }
    let mut raw = String::new();
    write_string(&mut raw, value);
    raw
}

fn read(what: &str, mut from: impl std::io::Read) -> Result<String, Failure> {
    let mut text = String::new();
    match from.by_ref().read_to_string(&mut text) {
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

    const SCHEMA: &str =
        r#"{"properties":{"text":{"type":"string"},"n":{"type":"integer"},"l":{"type":"array"}}}"#;

    fn arguments(whole: Option<&str>, pairs: &[&str]) -> Result<String, Failure> {
        let pairs: Vec<_> = pairs.iter().map(|&pair| pair.to_owned()).collect();
        of_call(whole, &pairs, Some(SCHEMA), &Limits::default())
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
        ] {
            let failure = arguments(whole, pairs).expect_err("not good");
            assert_eq!(failure.exit, Exit::Usage);
        }
    }
}
