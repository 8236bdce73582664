//! The scanner against everybody else's idea of JSON: the JSONTestSuite files, and `serde_json` as the oracle
//! on seeded random texts and on mutations of valid messages.
//!
//! Differences from the oracle, each on purpose: depth is limited, and members that come twice are refused
//! where they matter.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use drawspan::codec::json_text::{compact, pretty, write_string};
use drawspan::codec::jsonrpc::{classify, write_result};
use drawspan::codec::scan::{
    Envelope, IdField, ScanError, ScanLimits, Scanned, Text, members, readable_id, scan, validate,
};
use drawspan::entropy::Seeded;
use drawspan::limits::Limits;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

fn limits() -> ScanLimits {
    ScanLimits::from(&Limits::DEFAULT)
}

fn suite(folder: &str) -> BTreeMap<String, Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpora/JSONTestSuite")
        .join(folder);
    let entries = fs::read_dir(folder).expect("the suite is there");
    let files = entries.map(|entry| {
        let path = entry.expect("readable").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        (name.into_owned(), fs::read(&path).expect("readable"))
    });
    files.collect()
}

// ---- JSONTestSuite ----

#[test]
fn suite_files_are_accepted_and_refused_as_they_must_be() {
    let depth_max = limits().depth_max;
    let (mut accepted, mut refused, mut free) = (0, 0, 0);
    let mut too_deep = Vec::new();
    for (name, bytes) in suite("test_parsing") {
        let verdict = validate(&bytes, depth_max);
        match &name[..2] {
            "y_" => {
                accepted += 1;
                assert!(verdict.is_ok(), "{name}: {verdict:?}");
            }
            "n_" => {
                refused += 1;
                assert!(verdict.is_err(), "{name} is accepted");
                assert!(scan(&bytes, &limits()).is_err(), "{name} is scanned");
                assert!(
                    validate(&bytes, usize::MAX).is_err(),
                    "{name} without limit"
                );
            }
            _ => free += 1,
        }
        if matches!(verdict, Err(ScanError::TooDeep { .. })) {
            too_deep.push(name);
        }
    }
    assert_eq!((accepted, refused, free), (95, 188, 35));
    // The only files that the depth limit decides. The last one is valid JSON of 500 levels.
    too_deep.sort();
    let decided = [
        "i_structure_500_nested_arrays.json",
        "n_structure_100000_opening_arrays.json",
        "n_structure_open_array_object.json",
    ];
    assert_eq!(too_deep, decided);
}

#[test]
fn free_files_are_decided_by_name() {
    // Bytes that are no UTF-8, UTF-16, and a byte order mark are refused; numbers of any size and escapes that
    // form no character pass as they stand.
    for (name, bytes) in suite("test_parsing") {
        if !name.starts_with("i_") {
            continue;
        }
        let escapes = [
            "i_number_",
            "i_object_key_lone",
            "i_string_1st_",
            "i_string_in",
        ];
        let passes = escapes.iter().any(|start| name.starts_with(start))
            && name != "i_string_invalid_utf-8.json"
            || name == "i_string_lone_second_surrogate.json"
            || name == "i_structure_500_nested_arrays.json";
        assert_eq!(validate(&bytes, usize::MAX).is_ok(), passes, "{name}");
        let _ = (scan(&bytes, &limits()), readable_id(&bytes, &limits()));
    }
}

#[test]
fn accepted_texts_pass_through_unchanged() {
    let mut files = suite("test_parsing");
    files.extend(suite("test_transform"));
    let mut passed = 0;
    for (name, bytes) in files {
        let Ok(text) = validate(&bytes, limits().depth_max) else {
            continue;
        };
        passed += 1;
        let value = text.trim_matches([' ', '\t', '\n', '\r']);

        let mut out = Vec::new();
        write_result(&mut out, "1", value);
        assert!(!out.contains(&b'\n') && !out.contains(&b'\r'), "{name}");
        let Ok(Scanned::One(envelope)) = scan(&out, &limits()) else {
            panic!("{name} does not come back");
        };
        let one_line: String = value.chars().filter(|c| !"\r\n".contains(*c)).collect();
        assert_eq!(envelope.result, Some(&*one_line), "{name}");

        let (mut packed, mut laid_out, mut again) = Default::default();
        compact(&mut packed, value);
        pretty(&mut laid_out, value);
        compact(&mut again, &laid_out);
        assert_eq!(packed, again, "{name}");
        assert!(validate(laid_out.as_bytes(), usize::MAX).is_ok(), "{name}");
        if let Ok(value) = serde_json::from_str::<Value>(value) {
            assert_eq!(
                serde_json::from_str::<Value>(&packed).ok(),
                Some(value),
                "{name}"
            );
        }
    }
    assert!(passed >= 95 + 22, "only {passed} texts passed");
}

// ---- serde_json as the oracle ----

/// A string as serde_json decodes it into bytes, where it keeps lone surrogates: as the three bytes that UTF-8
/// would have for them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wide(Vec<u8>);

impl Wide {
    fn of(raw: &str) -> Option<Self> {
        serde_json::from_str(raw).ok()
    }

    /// As text, with U+FFFD for each lone surrogate.
    fn shown(&self) -> String {
        let mut bytes = self.0.clone();
        for at in 0..bytes.len() {
            if bytes[at] == 0xed && bytes[at + 1] >= 0xa0 {
                bytes[at..at + 3].copy_from_slice("\u{fffd}".as_bytes());
            }
        }
        String::from_utf8(bytes).expect("all else is UTF-8")
    }
}

impl<'de> Deserialize<'de> for Wide {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Copy;
        impl Visitor<'_> for Copy {
            type Value = Wide;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Wide, E> {
                Ok(Wide(bytes.to_vec()))
            }
        }
        deserializer.deserialize_bytes(Copy)
    }
}

/// The members of an object as serde_json finds them.
struct Members<'a>(Vec<(Wide, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Vec<(Wide, &'de RawValue)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Collect).map(Members)
    }
}

impl<'a> Members<'a> {
    fn of(raw: &'a str) -> Option<Self> {
        serde_json::from_str(raw).ok()
    }

    fn find(&self, name: &str) -> Option<&'a str> {
        let mut members = self.0.iter();
        members
            .find(|(known, _)| known.0 == name.as_bytes())
            .map(|(_, raw)| raw.get())
    }

    fn name_comes_twice(&self) -> bool {
        let mut names: Vec<_> = self.0.iter().map(|(name, _)| name).collect();
        names.sort();
        names.windows(2).any(|pair| pair[0] == pair[1])
    }
}

/// Whether an object of the oracle is one that the scanner must refuse.
fn ambiguous(envelope: &Members<'_>) -> bool {
    let params = envelope.find("params").and_then(Members::of);
    let meta = params.as_ref().and_then(|params| params.find("_meta"));
    let meta = meta.and_then(Members::of);
    [Some(envelope), params.as_ref(), meta.as_ref()]
        .into_iter()
        .flatten()
        .any(Members::name_comes_twice)
}

/// Compares one text; tells whether it was accepted.
fn compare(bytes: &[u8]) -> bool {
    let shown = String::from_utf8_lossy(bytes);
    let valid = serde_json::from_slice::<&RawValue>(bytes);
    assert_eq!(validate(bytes, 128).is_ok(), valid.is_ok(), "{shown}");
    let found = scan(bytes, &limits());
    let Ok(raw) = valid else {
        let error = found.expect_err(&shown);
        assert!(!error.is_json(), "{shown}: {error}");
        return false;
    };
    let raw = raw.get();
    match found {
        Ok(Scanned::One(envelope)) => {
            let oracle = Members::of(raw).expect("the oracle reads what it accepts");
            assert!(!ambiguous(&oracle), "{shown}");
            same_parts(&envelope, raw, &oracle);
            let _ = classify(&envelope);
            true
        }
        Ok(Scanned::Batch(batch)) => {
            let oracle: Vec<&RawValue> = serde_json::from_str(raw).expect("an array");
            assert_eq!(batch.len(), oracle.len(), "{shown}");
            true
        }
        Ok(Scanned::Other) => {
            assert!(!raw.starts_with(['{', '[']), "{shown}");
            true
        }
        Err(ScanError::DuplicateMember { .. }) => {
            assert!(
                raw.starts_with('[') || Members::of(raw).is_some_and(|all| ambiguous(&all)),
                "{shown}"
            );
            false
        }
        Err(error) => panic!("{shown}: {error}"),
    }
}

fn same_parts(envelope: &Envelope<'_>, raw: &str, oracle: &Members<'_>) {
    // The same bytes of the same text, not only equal ones.
    fn same(ours: Option<&str>, theirs: Option<&str>, what: &str, raw: &str) {
        let place = |part: &str| (part.as_ptr(), part.len());
        assert_eq!(ours.map(place), theirs.map(place), "{what} of {raw}");
    }
    same(Some(envelope.raw), Some(raw), "all", raw);
    same(envelope.params, oracle.find("params"), "params", raw);
    same(envelope.result, oracle.find("result"), "result", raw);
    same(envelope.error, oracle.find("error"), "error", raw);
    let id = match envelope.id {
        IdField::Absent => None,
        IdField::Null => {
            assert_eq!(oracle.find("id"), Some("null"));
            oracle.find("id")
        }
        IdField::Usable(id) | IdField::Unusable(id) => Some(id),
    };
    same(id, oracle.find("id"), "id", raw);
    if let Some(id) = oracle.find("id") {
        // The oracle makes a float of a negative zero; as an id it is spelled as an integer.
        let usable = Wide::of(id).is_some()
            || id == "-0"
            || serde_json::from_str::<i64>(id).is_ok()
            || serde_json::from_str::<u64>(id).is_ok();
        assert_eq!(
            envelope.id.usable().is_some(),
            usable && id.len() <= 256,
            "{raw}"
        );
    }
    let text = |raw: Option<&str>| raw.and_then(Wide::of).map(|text| text.shown());
    let decoded = |text: Option<Text<'_>>| text.map(|text| text.decode().into_owned());
    let method = oracle.find("method");
    assert_eq!(decoded(envelope.method), text(method), "method of {raw}");
    let not_text = method.is_some_and(|method| !method.starts_with('"'));
    assert_eq!(envelope.method_not_text, not_text, "{raw}");
    let version = text(oracle.find("jsonrpc"));
    assert_eq!(
        envelope.version_ok,
        version.as_deref() == Some("2.0"),
        "{raw}"
    );
    let params = oracle.find("params").and_then(Members::of);
    let params = params.unwrap_or(Members(Vec::new()));
    same(envelope.meta, params.find("_meta"), "_meta", raw);
    assert_eq!(
        decoded(envelope.name),
        text(params.find("name")),
        "name of {raw}"
    );
    assert_eq!(
        decoded(envelope.uri),
        text(params.find("uri")),
        "uri of {raw}"
    );
    let ours: Vec<_> = members(raw)
        .map(|(name, value)| (name.decode().into_owned(), value))
        .collect();
    let theirs: Vec<_> = oracle
        .0
        .iter()
        .map(|(name, value)| (name.shown(), value.get()))
        .collect();
    assert_eq!(ours, theirs, "members of {raw}");
}

#[test]
fn random_texts_are_read_as_the_oracle_reads_them() {
    let mut accepted = 0;
    for seed in 0..3000 {
        let mut random = Seeded::new(seed);
        let mut text = String::new();
        random_value(&mut random, 5, &mut text);
        accepted += usize::from(compare(text.as_bytes()));
    }
    assert!(accepted > 1500, "only {accepted} of 3000 were accepted");
}

#[test]
fn mutated_messages_are_read_as_the_oracle_reads_them() {
    let messages = [
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":[1,2.5e-3,{}]},"_meta":{"k":"v"}}}"#,
        r#"{"jsonrpc": "2.0", "id": "a\"b\u00e9", "method": "resources/read", "params": {"uri": "file:///\ud83d\ude00"}}"#,
        r#" {"jsonrpc":"2.0","id":-7,"result":{"content":[{"type":"text","text":"é\n😀 and a longer run of plain text, so that whole words are skipped"}],"isError":false}} "#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x","data":null}}"#,
        r#"[{"jsonrpc":"2.0","method":"notifications/x"},1,{"id":2,"method":"ping"}]"#,
    ];
    let mut accepted = 0;
    for seed in 0..20_000 {
        let mut random = Seeded::new(seed);
        let message = messages[pick(&mut random, messages.len())];
        let mut bytes = message.as_bytes().to_vec();
        for _ in 0..=pick(&mut random, 3) {
            mutate(&mut random, &mut bytes);
        }
        accepted += usize::from(compare(&bytes));
        never_panics(&bytes);
    }
    assert!(
        (2_000..18_000).contains(&accepted),
        "{accepted} of 20000 were accepted"
    );
}

/// Functions that expect valid text must at least end on any other.
fn never_panics(bytes: &[u8]) {
    let _ = readable_id(bytes, &limits());
    let text = String::from_utf8_lossy(bytes);
    for (name, _) in members(&text) {
        let _ = name.decode();
    }
    let mut out = String::new();
    compact(&mut out, &text);
    pretty(&mut out, &text);
    if let Some(text) = Text::of_value(&text) {
        let _ = text.decode();
    }
}

#[test]
fn strings_decode_and_encode_as_the_oracle_says() {
    for seed in 0..3000 {
        let mut random = Seeded::new(seed);
        let mut raw = String::new();
        random_string(&mut random, &mut raw);
        let text = Text::of_value(&raw).expect("a string");
        let wanted = Wide::of(&raw).expect("the oracle reads strings");
        assert_eq!(text.decode(), wanted.shown(), "{raw}");
        let Ok(wanted) = String::from_utf8(wanted.0) else {
            continue;
        };
        assert!(text.is(&wanted), "{raw}");
        let mut written = String::new();
        write_string(&mut written, &wanted);
        let theirs = serde_json::to_string(&wanted).expect("text");
        assert_eq!(written, theirs, "{raw}");
        assert_eq!(Text::of_value(&written), Some(text), "{raw}");
    }
}

/// Equality and order are those of the decoded strings, lone surrogates included.
#[test]
fn strings_compare_as_the_oracle_says() {
    for seed in 0..3000 {
        let mut random = Seeded::new(seed);
        let (mut left, mut right) = (String::new(), String::new());
        random_string(&mut random, &mut left);
        random_string(&mut random, &mut right);
        let ours = Text::of_value(&left).cmp(&Text::of_value(&right));
        assert_eq!(
            ours,
            Wide::of(&left).cmp(&Wide::of(&right)),
            "{left} {right}"
        );
    }
}

#[test]
fn layout_is_as_the_oracle_says() {
    for seed in 0..500 {
        let mut random = Seeded::new(seed);
        let mut text = String::new();
        random_value(&mut random, 5, &mut text);
        let Ok(value) = serde_json::from_str::<Value>(&text) else {
            continue;
        };
        // The oracle's own spelling, so that only the layout can differ.
        let raw = value.to_string();
        let mut laid_out = String::new();
        pretty(&mut laid_out, &raw);
        let wanted = serde_json::to_string_pretty(&value).expect("a value");
        assert_eq!(laid_out, wanted);
        let mut packed = String::new();
        compact(&mut packed, &wanted);
        assert_eq!(packed, raw);
    }
}

// ---- seeded texts ----

fn pick(random: &mut Seeded, count: usize) -> usize {
    usize::try_from(random.below(count as u64)).expect("below a usize")
}

fn one_of<'a>(random: &mut Seeded, choices: &[&'a str]) -> &'a str {
    choices[pick(random, choices.len())]
}

fn space(random: &mut Seeded, out: &mut String) {
    out.push_str(one_of(random, &["", "", "", "", " ", "\n", "\t\r\n  "]));
}

fn random_value(random: &mut Seeded, depth: usize, out: &mut String) {
    space(random, out);
    match pick(random, if depth == 0 { 3 } else { 7 }) {
        0 => out.push_str(one_of(random, &["true", "false", "null"])),
        1 => out.push_str(one_of(
            random,
            &[
                "0",
                "-0",
                "7",
                "-12",
                "1.50",
                "1e5",
                "0.1E-2",
                "2e+3",
                "123456789012345678901",
            ],
        )),
        2 => random_string(random, out),
        3 => {
            out.push('[');
            for i in 0..pick(random, 4) {
                if i > 0 {
                    out.push(',');
                }
                random_value(random, depth - 1, out);
            }
            space(random, out);
            out.push(']');
        }
        _ => {
            out.push('{');
            for i in 0..pick(random, 6) {
                if i > 0 {
                    out.push(',');
                }
                space(random, out);
                random_name(random, out);
                space(random, out);
                out.push(':');
                random_value(random, depth - 1, out);
            }
            space(random, out);
            out.push('}');
        }
    }
    space(random, out);
}

fn random_name(random: &mut Seeded, out: &mut String) {
    const NAMES: [&str; 14] = [
        "\"jsonrpc\"",
        "\"id\"",
        "\"method\"",
        "\"params\"",
        "\"params\"",
        "\"result\"",
        "\"error\"",
        "\"name\"",
        "\"uri\"",
        "\"_meta\"",
        "\"\\u0069d\"",
        "\"p\\u0061rams\"",
        "\"\"",
        "\"x\"",
    ];
    if pick(random, 4) == 0 {
        random_string(random, out);
    } else {
        out.push_str(one_of(random, &NAMES));
    }
}

fn random_string(random: &mut Seeded, out: &mut String) {
    const PARTS: [&str; 20] = [
        "a",
        "plain",
        "é",
        "😀",
        " ",
        "{",
        "]",
        ":",
        "\u{7f}",
        "\u{feff}",
        "a run of thirty-three plain bytes",
        "\\\"",
        "\\\\",
        "\\/",
        "\\n",
        "\\b\\f\\r\\t",
        "\\u0000",
        "\\u00E9",
        "\\ud83d\\ude00",
        "\\ud83d",
    ];
    out.push('"');
    for _ in 0..pick(random, 5) {
        out.push_str(one_of(random, &PARTS));
    }
    out.push('"');
}

fn mutate(random: &mut Seeded, bytes: &mut Vec<u8>) {
    const BYTES: &[u8] = b"{}[]\",:\\ \n\t\r0123456789-+.eEtrufalsn/bx\x00\x1f\x7f\x80\xc3\xe9\xff";
    let at = pick(random, bytes.len().max(1)).min(bytes.len());
    let byte = BYTES[pick(random, BYTES.len())];
    let end = (at + pick(random, 12)).min(bytes.len());
    match pick(random, 6) {
        0 => bytes.insert(at, byte),
        1 => bytes.truncate(at),
        2 => {
            bytes.drain(at..end);
        }
        3 => {
            let copy = bytes[at..end].to_vec();
            bytes.splice(end..end, copy);
        }
        4 => {
            // Swapped tokens often stay valid.
            let other = pick(random, bytes.len().max(1)).min(bytes.len().saturating_sub(1));
            if at < bytes.len() {
                bytes.swap(at, other);
            }
        }
        _ => {
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
    }
}
