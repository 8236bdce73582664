use serde_json::Value;

use super::*;
use crate::entropy::Seeded;

/// What a reader made of some bytes, in the words of a fixture.
fn outcome<T: std::fmt::Debug>(
    mut read: impl FnMut(&[u8]) -> Result<Progress<T>, HeadError>,
    show: impl Fn(&T) -> Vec<String>,
    bytes: &[u8],
    cuts: &[usize],
) -> Vec<String> {
    let mut from = 0;
    for to in cuts.iter().copied().chain([bytes.len()]) {
        match read(&bytes[from..to]) {
            Ok(Progress::NeedMore) => from = to,
            Ok(Progress::Done { head, used }) => {
                let mut shown = show(&head);
                shown.push(format!("rest {:?}", &bytes[from + used..]));
                return shown;
            }
            Err(error) => return vec![format!("{} {error}", error.status())],
        }
    }
    vec!["more".to_owned()]
}

fn shown_fields(fields: &Fields) -> impl Iterator<Item = String> {
    fields
        .iter()
        .map(|(name, value)| format!("{}: {value:?}", String::from_utf8_lossy(name)))
}

fn read_request(bytes: &[u8], cuts: &[usize], limits: HeadLimits) -> Vec<String> {
    let mut reader = RequestReader::new(limits);
    let show = |head: &RequestHead| {
        let RequestHead {
            method,
            target,
            minor,
            fields,
        } = head;
        let line = format!("{method} {target} {minor}");
        std::iter::once(line).chain(shown_fields(fields)).collect()
    };
    outcome(|input| reader.read(input), show, bytes, cuts)
}

/// As `read_request`, into a head that was used before.
fn read_request_into(bytes: &[u8], cuts: &[usize], limits: HeadLimits) -> Vec<String> {
    let mut reader = RequestReader::new(limits);
    let mut used_head = HttpHead::default();
    let before = b"OPTIONS /before?long HTTP/1.0\r\nHost: before\r\nA: b\r\nC: d\r\n\r\n";
    let roomy = HeadLimits {
        bytes_max: 1_000,
        fields_max: 10,
    };
    let done = RequestReader::new(roomy).read_into(before, &mut used_head);
    assert_eq!(done, Ok(Some(before.len())));
    let read = |input: &[u8]| {
        let done = reader.read_into(input, &mut used_head)?;
        Ok(done.map_or(Progress::NeedMore, |used| Progress::Done {
            head: used_head.clone(),
            used,
        }))
    };
    let show = |head: &HttpHead| {
        let line = format!("{} {} {}", head.method(), head.target(), head.minor());
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let fields = head
            .iter()
            .map(|(name, value)| format!("{}: {value:?}", text(name)));
        std::iter::once(line).chain(fields).collect()
    };
    outcome(read, show, bytes, cuts)
}

const ROOMY: HeadLimits = HeadLimits {
    bytes_max: 1_000,
    fields_max: 10,
};

/// Reads one head after the other into the same buffer; what each says, and its serial.
fn read_in_turn(inputs: &[&str]) -> Vec<(u64, Vec<(String, String)>)> {
    let mut reader = RequestReader::new(ROOMY);
    let mut head = HttpHead::default();
    let read = |input: &str| {
        let done = reader.read_into(input.as_bytes(), &mut head);
        let end = input.find("\r\n\r\n").expect("a whole head") + 4;
        assert_eq!(done, Ok(Some(end)), "{input}");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = head.iter().map(|(name, value)| (text(name), text(value)));
        let line = (head.method().to_owned(), head.target().to_owned());
        let HeadSerial(serial) = head.serial();
        (serial, std::iter::once(line).chain(fields).collect())
    };
    inputs.iter().copied().map(read).collect()
}

#[test]
fn a_head_that_is_repeated_keeps_its_serial_and_tells_its_own_length() {
    let head = |length: &str| {
        format!("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\nA: é\r\n\r\nbody")
    };
    let heads = ["17", "17", "42", "999", "17"].map(head);
    let inputs: Vec<&str> = heads.iter().map(String::as_str).collect();
    let all = read_in_turn(&inputs);
    let serials: Vec<u64> = all.iter().map(|(serial, _)| *serial).collect();
    assert_eq!(
        serials,
        [1, 1, 1, 2, 3],
        "a longer number moves what is behind it"
    );
    for ((_, told), head) in all.iter().zip(&heads) {
        let alone = read_in_turn(&[head]);
        assert_eq!(*told, alone[0].1);
    }
}

#[test]
fn a_head_that_differs_in_any_byte_is_read_anew() {
    let head = "POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 17\r\nA: b\r\n\r\n";
    let digits = head.find("17").expect("there");
    for at in (0..head.len()).filter(|at| !(digits..digits + 2).contains(at)) {
        let mut other = head.as_bytes().to_vec();
        other[at] ^= 0x01;
        let read = |first: Option<&[u8]>| {
            let mut reader = RequestReader::new(ROOMY);
            let mut kept = HttpHead::default();
            if let Some(first) = first {
                assert_eq!(reader.read_into(first, &mut kept), Ok(Some(first.len())));
            }
            let before = kept.serial();
            let done = reader.read_into(&other, &mut kept);
            let whole = matches!(done, Ok(Some(_)));
            assert!(first.is_none() || !whole || kept.serial() != before);
            let fields = format!("{:?}", kept.iter().collect::<Vec<_>>());
            (done, whole.then_some(fields))
        };
        assert_eq!(
            read(Some(head.as_bytes())),
            read(None),
            "{:?}",
            String::from_utf8_lossy(&other)
        );
    }
    for length in ["1a", "+1", " 1", "1,", "\u{0}1"] {
        let other = head.replace("17", length);
        let mut reader = RequestReader::new(ROOMY);
        let mut kept = HttpHead::default();
        assert_eq!(
            reader.read_into(head.as_bytes(), &mut kept),
            Ok(Some(head.len()))
        );
        let before = kept.serial();
        let done = reader.read_into(other.as_bytes(), &mut kept);
        assert!(done.is_err() || kept.serial() != before, "{length:?}");
    }
}

#[test]
fn a_head_that_comes_in_parts_is_no_repetition_until_it_is_whole() {
    let head = "POST /x HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut reader = RequestReader::new(ROOMY);
    let mut kept = HttpHead::default();
    for cut in 1..head.len() {
        let (first, rest) = head.as_bytes().split_at(cut);
        assert_eq!(reader.read_into(first, &mut kept), Ok(None));
        assert_eq!(reader.read_into(rest, &mut kept), Ok(Some(rest.len())));
        assert_eq!(kept.target(), "/x");
        assert_eq!(
            reader.read_into(head.as_bytes(), &mut kept),
            Ok(Some(head.len()))
        );
    }
}

fn read_response(bytes: &[u8], cuts: &[usize], limits: HeadLimits) -> Vec<String> {
    let mut reader = ResponseReader::new(limits);
    let show = |head: &ResponseHead| {
        let line = format!("{} {}", head.status, head.minor);
        std::iter::once(line)
            .chain(shown_fields(&head.fields))
            .collect()
    };
    outcome(|input| reader.read(input), show, bytes, cuts)
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn bytes_of(value: &Value, plain: &str, hex: &str) -> Vec<u8> {
    match (value[plain].as_str(), value[hex].as_str()) {
        (Some(text), None) => text.as_bytes().to_vec(),
        (None, Some(text)) => unhex(text),
        other => panic!("one of {plain} and {hex}, not {other:?}"),
    }
}

fn expected(expect: &Value) -> Vec<String> {
    if let Some(error) = expect["error"].as_str() {
        return vec![format!("{} {error}", expect["status"])];
    }
    if expect == "more" {
        return vec!["more".to_owned()];
    }
    let mut shown = vec![match expect["method"].as_str() {
        Some(method) => {
            let target = expect["target"].as_str().expect("target");
            format!("{method} {target} {}", expect["minor"])
        }
        None => format!("{} {}", expect["status"], expect["minor"]),
    }];
    let fields = |key: &str| expect[key].as_array().cloned().unwrap_or_default();
    for field in fields("fields") {
        let value = field[1].as_str().expect("value").as_bytes();
        shown.push(format!("{}: {value:?}", field[0].as_str().expect("name")));
    }
    for field in fields("fields_hex") {
        let value = unhex(field[1].as_str().expect("value"));
        shown.push(format!("{}: {value:?}", field[0].as_str().expect("name")));
    }
    shown.push(format!("rest {:?}", bytes_of(expect, "rest", "rest_hex")));
    shown
}

/// Replays every case whole, byte by byte and at seeded cuts.
fn replay(fixture: &str, read: fn(&[u8], &[usize], HeadLimits) -> Vec<String>) {
    let mut lines = fixture.lines().map(|line| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"))
    });
    let header = lines.next().expect("a header line");
    let number = |key: &str| usize::try_from(header[key].as_u64().expect(key)).expect(key);
    let limits = HeadLimits {
        bytes_max: number("bytes_max"),
        fields_max: number("fields_max"),
    };
    let mut random = Seeded::new(6455);
    let mut cases = 0;
    for case in lines {
        let bytes = bytes_of(&case, "bytes", "hex");
        let expect = expected(&case["expect"]);
        let every: Vec<usize> = (1..bytes.len()).collect();
        let mut all_cuts = vec![Vec::new(), every];
        for _ in 0..20 {
            let cut = |random: &mut Seeded| {
                usize::try_from(random.below(bytes.len() as u64 + 1)).expect("small")
            };
            let mut cuts = vec![cut(&mut random), cut(&mut random), cut(&mut random)];
            cuts.sort_unstable();
            all_cuts.push(cuts);
        }
        for cuts in all_cuts {
            assert_eq!(
                read(&bytes, &cuts, limits),
                expect,
                "{} cut at {cuts:?}",
                case["case"]
            );
        }
        cases += 1;
    }
    assert!(cases > 10, "the fixture holds cases");
}

#[test]
fn requests() {
    replay(
        include_str!("../../../protocol-fixtures/codec/http1/requests.jsonl"),
        read_request,
    );
    replay(
        include_str!("../../../protocol-fixtures/codec/http1/requests.jsonl"),
        read_request_into,
    );
}

#[test]
fn responses() {
    replay(
        include_str!("../../../protocol-fixtures/codec/http1/responses.jsonl"),
        read_response,
    );
}

const LIMITS: HeadLimits = HeadLimits {
    bytes_max: 100,
    fields_max: 3,
};

/// A request head of exactly `len` bytes.
fn head_of(len: usize) -> Vec<u8> {
    let frame = "GET / HTTP/1.1\r\nHost: h\r\nX: \r\n\r\n".len();
    format!(
        "GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n",
        "x".repeat(len - frame)
    )
    .into_bytes()
}

#[test]
fn a_head_fits_its_byte_limit_and_no_more() {
    let refused = ["431 head does not end within 100 bytes".to_owned()];
    for (len, fits) in [(99, true), (100, true), (101, false)] {
        let mut bytes = head_of(len);
        bytes.extend_from_slice(b"behind");
        for cuts in [Vec::new(), (1..bytes.len()).collect()] {
            let read = read_request(&bytes, &cuts, LIMITS);
            assert_eq!(read != refused, fits, "{len} bytes, {read:?}");
            assert_eq!(
                read.last() == Some(&"rest [98, 101, 104, 105, 110, 100]".to_owned()),
                fits
            );
        }
    }
    let line = format!("GET /{}", "x".repeat(200));
    let read = read_request(line.as_bytes(), &[], LIMITS);
    assert_eq!(read, ["414 start line does not end within 100 bytes"]);
}

#[test]
fn fields_are_counted() {
    let refused = ["431 head has more than 3 fields".to_owned()];
    for (fields, fits) in [(2, true), (3, true), (4, false)] {
        let more = "A: b\r\n".repeat(fields - 1);
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{more}\r\n");
        assert_eq!(
            read_request(head.as_bytes(), &[], LIMITS) != refused,
            fits,
            "{fields}"
        );
    }
}

#[test]
fn a_reader_reads_one_head_after_the_other() {
    let mut reader = ResponseReader::new(LIMITS);
    let bytes = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 101 Now\r\n\r\n!";
    let Ok(Progress::Done { head, used }) = reader.read(bytes) else {
        panic!("a whole head");
    };
    assert_eq!(head.status, 103);
    let Ok(Progress::Done { head, used: more }) = reader.read(&bytes[used..]) else {
        panic!("a second head");
    };
    assert_eq!((head.status, &bytes[used + more..]), (101, &b"!"[..]));
}

fn head(bytes: &str) -> HttpHead {
    let limits = HeadLimits {
        bytes_max: 10_000,
        fields_max: 200,
    };
    let mut head = HttpHead::default();
    let done = RequestReader::new(limits).read_into(bytes.as_bytes(), &mut head);
    assert_eq!(done, Ok(Some(bytes.len())), "{bytes:?}");
    head
}

#[test]
fn more_fields_than_usual_are_read() {
    for fields in [99, 100, 101, 150] {
        let more = "A: b\r\n".repeat(fields - 1);
        let head = head(&format!("GET / HTTP/1.1\r\nHost: h\r\n{more}\r\n"));
        assert_eq!(head.iter().count(), fields);
        assert!(head.fields("a").all(|value| value == b"b"));
    }
}

#[test]
fn targets_come_apart() {
    for (target, authority, path, query) in [
        ("/mcp", "h", "/mcp", None),
        ("/mcp?a=b?c", "h", "/mcp", Some("a=b?c")),
        ("http://other:80/x?y", "other:80", "/x", Some("y")),
        ("HTTP://other", "other", "/", None),
        ("http://other?y", "other", "/", Some("y")),
        ("/x?u=http://other/", "h", "/x", Some("u=http://other/")),
        ("*", "h", "*", None),
    ] {
        let head = head(&format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!(head.target(), target);
        assert_eq!(head.authority(), Some(authority), "{target}");
        assert_eq!((head.path(), head.query()), (path, query), "{target}");
    }
}

#[test]
fn a_field_that_should_stand_once_is_not_guessed() {
    let head = head("GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\nB: 2\r\nb: 2\r\nC: \u{e9}\r\n\r\n");
    assert_eq!(head.single("A"), Ok(Some("1")));
    assert_eq!(head.single("b"), Err(Unfit));
    assert_eq!(head.single("c"), Ok(Some("\u{e9}")));
    assert_eq!(head.single("d"), Ok(None));
    assert_eq!((head.field("a"), head.field("B")), (Some("1"), None));
    assert_eq!(head.fields("B").collect::<Vec<_>>(), [b"2", b"2"]);
    assert!(HttpHead::default().heap_bytes() == 0 && head.heap_bytes() > 40);
}

#[test]
fn a_reader_begins_with_the_first_byte_of_a_head() {
    let mut reader = RequestReader::new(LIMITS);
    let mut head = HttpHead::default();
    for (input, begun) in [("", false), ("\r", false), ("\n", false), ("\r\n", false)] {
        assert_eq!(reader.read_into(input.as_bytes(), &mut head), Ok(None));
        assert_eq!(reader.has_begun(), begun, "{input:?}");
    }
    assert_eq!(reader.read_into(b"G", &mut head), Ok(None));
    assert!(reader.has_begun());
}

#[test]
fn fields_are_found_in_any_case() {
    let head = b"GET / HTTP/1.1\r\nhOsT: h\r\nConnection: keep-alive , UPGRADE\r\n\
        connection: x\r\n\r\n";
    let Ok(Progress::Done { head, .. }) = RequestReader::new(LIMITS).read(head) else {
        panic!("a whole head");
    };
    let fields = &head.fields;
    assert_eq!(fields.only("HOST"), Some("h"));
    assert_eq!(fields.only("Connection"), None, "it stands twice");
    assert_eq!(fields.all("connection").count(), 2);
    assert!(fields.has_token("Connection", "upgrade"));
    assert!(fields.has_token("Connection", "x"));
    assert!(!fields.has_token("Connection", "keep"));
    assert!(!fields.has("Upgrade"));
}

#[test]
fn an_answer_that_is_repeated_is_what_it_would_be_alone() {
    let head = |status: &str, length: &str| {
        format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nA: b\r\n\r\n")
    };
    let heads = [
        (head("200", "17"), 1),
        (head("200", "42"), 1),
        (head("404", "42"), 2),
        (head("404", "420"), 3),
        (head("404", "17"), 4),
    ];
    let mut reader = ResponseReader::new(ROOMY);
    let mut kept = ResponseHead::default();
    let show = |head: &ResponseHead| {
        format!(
            "{} {:?}",
            head.status,
            head.fields.iter().collect::<Vec<_>>()
        )
    };
    for (input, serial) in &heads {
        let used = reader.read_into(input.as_bytes(), &mut kept);
        assert_eq!(used, Ok(Some(input.len())), "{input}");
        assert_eq!(kept.serial(), HeadSerial(*serial), "{input}");
        let Ok(Progress::Done { head, .. }) = ResponseReader::new(ROOMY).read(input.as_bytes())
        else {
            panic!("a whole head");
        };
        assert_eq!(show(&kept), show(&head));
    }
    // A head that broke off is no head that could be repeated.
    assert_eq!(
        reader.read_into(&heads[0].0.as_bytes()[..20], &mut kept),
        Ok(None)
    );
    let rest = reader.read_into(&heads[0].0.as_bytes()[20..], &mut kept);
    assert_eq!(rest, Ok(Some(heads[0].0.len() - 20)));
    assert_eq!(kept.status, 200);
}
