//! Replays `protocol-fixtures/codec/http_rules`; and what no table can hold: round trips, and what the checks
//! cost.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::*;
use crate::codec::http1::{HeadLimits, HttpHead, RequestReader};
use crate::entropy::{Entropy, Seeded};
use crate::limits::Limits;
use crate::protocol::error::RpcError;
use crate::secret::Secret;

const MOST: usize = Limits::DEFAULT.param_headers_max;

/// A line of a fixture: a request head, what it is checked with, and what comes of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    case: String,
    #[serde(default = "post")]
    method: String,
    #[serde(default = "endpoint")]
    target: String,
    #[serde(default)]
    fields: Vec<(String, Option<String>)>,
    #[serde(default)]
    rules: Rules,
    check: Option<String>,
    rpc: Option<String>,
    name: Option<String>,
    version: Option<String>,
    arguments: Option<Box<RawValue>>,
    schema: Option<Box<RawValue>>,
    expect: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Rules {
    hosts: Vec<String>,
    origins: Vec<String>,
    bearer: Option<String>,
    loopback_only: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            hosts: Vec::new(),
            origins: Vec::new(),
            bearer: None,
            loopback_only: true,
        }
    }
}

impl Rules {
    fn read(&self) -> Result<AccessRules, RuleError> {
        let bearer = self.bearer.clone().map(Secret::new);
        AccessRules::new(&self.hosts, &self.origins, bearer, self.loopback_only)
    }
}

fn post() -> String {
    "POST".to_owned()
}

fn endpoint() -> String {
    "/mcp".to_owned()
}

impl HeadView for Row {
    fn method(&self) -> &str {
        &self.method
    }

    fn target(&self) -> &str {
        &self.target
    }

    fn field_count(&self, name: &str) -> usize {
        let named = |(field, _): &&(String, _)| field.eq_ignore_ascii_case(name);
        self.fields.iter().filter(named).count()
    }

    fn nth_field(&self, name: &str, nth: usize) -> Option<&str> {
        let named = |(field, _): &&(String, _)| field.eq_ignore_ascii_case(name);
        let (_, value) = self.fields.iter().filter(named).nth(nth)?;
        value.as_deref()
    }
}

/// The lines of a fixture behind the first, as `T`.
fn rows<T: for<'a> Deserialize<'a>>(fixture: &str) -> Vec<T> {
    let long = "x".repeat(200);
    let lines = fixture.lines().skip(1);
    let rows: Vec<T> = lines
        .map(|line| {
            let line = line.replace("$long", &long);
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
        })
        .collect();
    assert!(rows.len() > 10, "the fixture is cut");
    rows
}

/// A refusal in the words of a fixture; checks what all of them have in common.
fn shown(refusal: &HttpRefusal) -> Value {
    let body: Value = serde_json::from_str(&refusal.body).expect("the body is JSON");
    let says = body["error"]["message"].as_str().expect("a message");
    let common = serde_json::json!({"jsonrpc":"2.0","error":{"code":-32600,"message":says}});
    assert_eq!(body, common, "no id");
    assert_eq!(
        refusal.headers[0],
        ("Content-Type", "application/json".to_owned())
    );
    let mut shown = serde_json::json!({"status": refusal.status, "says": says});
    for (name, value) in &refusal.headers[1..] {
        shown["headers"][name] = value.as_str().into();
    }
    shown
}

#[test]
fn callers_are_let_in_or_refused_as_the_fixture_says() {
    let fixture = include_str!("../../../protocol-fixtures/codec/http_rules/access.jsonl");
    for row in rows::<Row>(fixture) {
        let rules = row
            .rules
            .read()
            .unwrap_or_else(|e| panic!("{}: {e}", row.case));
        let found = match check_access(&row, &rules) {
            Ok(principal) if principal == Principal::ANYBODY => {
                serde_json::json!({"principal": principal.as_str()})
            }
            Ok(_) => serde_json::json!({"principal": "bearer"}),
            Err(refusal) => shown(&refusal),
        };
        assert_eq!(found, row.expect, "{}", row.case);
        let secrets = row
            .fields
            .iter()
            .filter(|(name, _)| name == "Authorization");
        for (_, secret) in secrets {
            let word = secret.as_deref().unwrap_or("").split(' ').next_back();
            let word = word.filter(|word| word.len() > 1).unwrap_or("\0");
            assert!(
                !found.to_string().contains(word),
                "{} tells the token",
                row.case
            );
        }
    }
}

#[test]
fn rules_that_cannot_be_kept_are_named() {
    let fixture = include_str!("../../../protocol-fixtures/codec/http_rules/rules.jsonl");
    for row in rows::<Row>(fixture) {
        let error = row.rules.read().expect_err(&row.case);
        assert_eq!(error.to_string(), row.expect["says"], "{}", row.case);
    }
}

#[test]
fn heads_are_read_as_the_fixture_says() {
    let fixture = include_str!("../../../protocol-fixtures/codec/http_rules/head.jsonl");
    for row in rows::<Row>(fixture) {
        let found = match row.check.as_deref().expect("a check") {
            "method" => HttpMethod::of(&row)
                .map(|method| serde_json::json!({"method": format!("{method:?}")})),
            "post" => check_post(&row)
                .map(|Accepts { json, sse }| serde_json::json!({"json": json, "sse": sse})),
            "get" => {
                check_get(&row).map(|revision| serde_json::json!({"revision": revision.as_str()}))
            }
            "delete" => check_delete(&row)
                .map(|revision| serde_json::json!({"revision": revision.as_str()})),
            "session" => session_id(&row).map(|id| serde_json::json!({"session": id})),
            other => panic!("no such check: {other}"),
        };
        let found = found.unwrap_or_else(|refusal| shown(&refusal));
        assert_eq!(found, row.expect, "{}", row.case);
    }
}

#[test]
fn routing_headers_are_compared_as_the_fixture_says() {
    let fixture = include_str!("../../../protocol-fixtures/codec/http_rules/modern.jsonl");
    for row in rows::<Row>(fixture) {
        let schema = row.schema.as_ref().map_or("{}", |raw| raw.get());
        let params = param_headers(schema, MOST).expect("a valid schema");
        let arguments = row.arguments.as_ref().map(|raw| raw.get());
        let method = row.rpc.as_deref().expect("a method");
        let (name, version) = (row.name.as_deref(), row.version.as_deref());
        let found = check_modern_headers(&row, method, name, version, arguments, &params);
        let found = match found {
            Ok(()) => "ok".into(),
            Err(RpcError { code, message, .. }) => {
                serde_json::json!({"code": code.number(), "says": message})
            }
        };
        assert_eq!(found, row.expect, "{}", row.case);
    }
}

/// The head of a row as a listener has it; `None` where it would not get so far.
fn read_head(row: &Row) -> Option<HttpHead> {
    let mut text = "POST /mcp HTTP/1.1\r\nHost: localhost\r\n".to_owned();
    for (name, value) in &row.fields {
        text += &format!("{name}: {}\r\n", value.as_deref()?);
    }
    text += "\r\n";
    let limits = HeadLimits {
        bytes_max: text.len(),
        fields_max: 100,
    };
    let mut head = HttpHead::default();
    let done = RequestReader::new(limits).read_into(text.as_bytes(), &mut head);
    matches!(done, Ok(Some(_))).then_some(head)
}

#[test]
fn routing_places_agree_where_the_whole_check_does() {
    let fixture = include_str!("../../../protocol-fixtures/codec/http_rules/modern.jsonl");
    let mut seen = [0; 3];
    for row in rows::<Row>(fixture) {
        let Some(head) = read_head(&row) else {
            continue;
        };
        let method = row.rpc.as_deref().expect("a method");
        let (name, version) = (row.name.as_deref(), row.version.as_deref());
        let whole = check_modern_headers(&head, method, name, version, None, &[]);
        let places = RoutingPlaces::of(&head);
        match places.map(|places| places.agree(&head, method, name, version)) {
            Some(true) => assert_eq!(whole, Ok(()), "{}", row.case),
            // A name that nothing asks for is left to the whole check.
            Some(false) => assert!(
                whole.is_err() || head.field("mcp-name").is_some(),
                "{}",
                row.case
            ),
            None => {}
        }
        seen[places.map_or(2, |places| {
            places.agree(&head, method, name, version).into()
        })] += 1;
    }
    assert!(seen.iter().all(|&count| count > 2), "{seen:?}");
}

#[test]
fn schemas_are_read_as_the_fixture_says() {
    let fixture = include_str!("../../../protocol-fixtures/codec/http_rules/schemas.jsonl");
    for row in rows::<Row>(fixture) {
        let schema = row.schema.expect("a schema");
        let found = match param_headers(schema.get(), MOST) {
            Ok(headers) => serde_json::json!({"headers": headers.iter().map(|header| {
                let ParamHeader { header, path, kind } = header;
                serde_json::json!({"header": header, "path": path, "kind": format!("{kind:?}")})
            }).collect::<Vec<_>>()}),
            Err(says) => serde_json::json!({"says": says}),
        };
        assert_eq!(found, row.expect, "{}", row.case);
    }
}

#[test]
fn values_are_read_and_written_as_the_fixture_says() {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ValueRow {
        case: String,
        value: String,
        text: Option<String>,
        written: Option<bool>,
        says: Option<String>,
    }
    let fixture = include_str!("../../../protocol-fixtures/codec/http_rules/values.jsonl");
    for row in rows::<ValueRow>(fixture) {
        let found = decode_value(&row.value);
        let found = found.as_deref().map_err(ToString::to_string);
        let wanted = row
            .text
            .as_deref()
            .ok_or_else(|| row.says.clone().expect("text or says"));
        assert_eq!(found, wanted, "{}", row.case);
        if let Some(text) = &row.text {
            let written = encode_value(text) == row.value;
            assert_eq!(Some(written), row.written, "{}", row.case);
        }
    }
}

/// A text of up to twelve of these pieces.
fn random_text_of(seed: &mut Seeded, pieces: &[&str]) -> String {
    let mut pick = |n: usize| {
        let mut byte = [0];
        seed.fill(&mut byte);
        usize::from(byte[0]) % n
    };
    (0..pick(13)).map(|_| pieces[pick(pieces.len())]).collect()
}

/// A text of ordinary and troublesome characters.
fn random_text(seed: &mut Seeded) -> String {
    const PIECES: [&str; 16] = [
        "a",
        "Z",
        "9",
        " ",
        "\t",
        "\n",
        "\r",
        "\0",
        "\u{7f}",
        "é",
        "世",
        "😀",
        "=?base64?",
        "?=",
        "\"",
        "\\",
    ];
    random_text_of(seed, &PIECES)
}

#[test]
fn every_text_comes_back_from_a_header() {
    let mut seed = Seeded::new(26);
    for round in 0..20_000 {
        let text = random_text(&mut seed);
        let value = encode_value(&text);
        assert!(
            value.bytes().all(|b| matches!(b, b' '..=b'~')) && trimmed(&value) == value,
            "round {round}: {value:?}"
        );
        assert_eq!(decode_value(&value).as_deref(), Ok(&*text), "round {round}");
        // Any text as a value: refused, or it means something that can be written.
        if let Ok(meaning) = decode_value(trimmed(&text)) {
            let again = encode_value(&meaning);
            assert_eq!(
                decode_value(&again).as_deref(),
                Ok(&*meaning),
                "round {round}"
            );
        }
    }
}

#[test]
fn hosts_are_read_as_in_a_url() {
    const PIECES: [&str; 14] = [
        "localhost",
        "127",
        "0",
        "1",
        "65535",
        ".",
        ":",
        "::",
        "[",
        "]",
        "@",
        "-",
        "A",
        "é",
    ];
    let mut seed = Seeded::new(9);
    let mut good = 0;
    for _ in 0..50_000 {
        let text = random_text_of(&mut seed, &PIECES);
        let wanted = crate::codec::uri::split_authority(&text).ok();
        let found = authority::Authority::parse(&text);
        assert_eq!(
            found.map(|found| found.port),
            wanted.as_ref().map(|w| w.1),
            "{text}"
        );
        let (Some(found), Some((host, _))) = (found, wanted) else {
            continue;
        };
        good += 1;
        let wanted = match host.parse() {
            Ok(address) => authority::Host::Address(address),
            Err(_) => authority::Host::Name(host.as_str()),
        };
        assert!(found.host.is(&wanted), "{text}");
    }
    assert!(good > 1_000, "{good}");
}

#[test]
fn no_head_makes_a_check_panic() {
    const PIECES: [&str; 20] = [
        "application/json",
        "text/event-stream",
        "*/*",
        ",",
        ";",
        "q=0",
        "=",
        " ",
        "\t",
        "\"",
        "http://",
        "localhost",
        ":",
        "[::1]",
        "Bearer",
        "=?base64?",
        "?=",
        "2026-07-28",
        "é",
        "\0",
    ];
    let params = param_headers(
        r#"{"properties":{"p":{"type":"integer","x-mcp-header":"P"}}}"#,
        MOST,
    );
    let params = params.expect("valid");
    let token = Secret::new("t".to_owned());
    let rules = AccessRules::new(&[], &[], Some(token), true).expect("good rules");
    let names = [
        "Host",
        "Origin",
        "Authorization",
        "Content-Type",
        "Content-Encoding",
        "Accept",
        "Mcp-Session-Id",
        "MCP-Protocol-Version",
        "Mcp-Method",
        "Mcp-Name",
        "Mcp-Param-P",
    ];
    let mut seed = Seeded::new(3);
    for _ in 0..3_000 {
        let mut fields = Vec::new();
        for name in names {
            let value = random_text_of(&mut seed, &PIECES);
            fields.push((name.to_owned(), (value.len() % 7 > 0).then_some(value)));
        }
        let mut head = head(fields);
        head.target = random_text_of(&mut seed, &["/", "?", "&", "=", "access_token", "é"]);
        for refusal in [
            check_access(&head, &rules).err(),
            check_post(&head).err(),
            check_get(&head).err(),
            check_delete(&head).err(),
            session_id(&head).err(),
        ] {
            let _ = refusal.map(|refusal| shown(&refusal));
        }
        let arguments = Some(r#"{"p":7}"#);
        for version in [None, Some("2026-07-28"), head.fields[7].1.as_deref()] {
            let method = head.fields[8].1.as_deref().unwrap_or("tools/call");
            let _ = check_modern_headers(&head, method, None, version, arguments, &params);
        }
    }
}

#[test]
fn what_a_client_writes_is_what_the_server_wants() {
    let schema = r#"{"properties":{"s":{"type":"string","x-mcp-header":"S"},"o":{"properties":
        {"n":{"type":"integer","x-mcp-header":"N"},"b":{"type":"boolean","x-mcp-header":"B"}}}}}"#;
    let params = param_headers(schema, MOST).expect("valid");
    let others = [
        r#""o":{"n":-7,"b":true}"#,
        r#""o":{"n":42.0,"b":false}"#,
        r#""o":{"n":4e2}"#,
        r#""o":{"n":null,"b":[1]}"#,
        r#""o":{"n":"7","b":1.50}"#,
        r#""o":null"#,
    ];
    let mut seed = Seeded::new(7);
    for round in 0..2_000 {
        let text = random_text(&mut seed);
        let mut arguments = String::from(r#"{"s":"#);
        write_string(&mut arguments, &text);
        arguments.push_str(&format!(",{}}}", others[round % others.len()]));
        let mut fields = vec![
            (
                "MCP-Protocol-Version".to_owned(),
                Some("2026-07-28".to_owned()),
            ),
            ("Mcp-Method".to_owned(), Some("tools/call".to_owned())),
            (
                "Mcp-Name".to_owned(),
                Some(encode_value(&text).into_owned()),
            ),
        ];
        for param in &params {
            let value = param.value_of(&arguments).expect("can be written");
            if let Some(value) = value {
                fields.push((param.header.clone(), Some(value)));
            }
        }
        let mut head = head(fields);
        let check = |head: &Row| {
            let version = Some("2026-07-28");
            let arguments = Some(arguments.as_str());
            check_modern_headers(head, "tools/call", Some(&text), version, arguments, &params)
        };
        assert_eq!(check(&head), Ok(()), "round {round}: {arguments}");
        // And nothing else: each one missing, and each one changed.
        for at in 0..head.fields.len() {
            let field = head.fields.remove(at);
            assert!(check(&head).is_err(), "round {round}: without {field:?}");
            let changed = field.1.as_ref().map(|value| format!("{value}x"));
            head.fields.insert(at, (field.0.clone(), changed));
            assert!(check(&head).is_err(), "round {round}: changed {field:?}");
            head.fields[at] = field;
        }
    }
    let unsafe_number = params[1].value_of(r#"{"o":{"n":9007199254740992}}"#);
    assert!(unsafe_number.is_err());
}

fn head(fields: Vec<(String, Option<String>)>) -> Row {
    let mut row: Row = serde_json::from_str(r#"{"case":"","expect":null}"#).expect("a row");
    row.fields = fields;
    row
}

/// What the Python and TypeScript clients send, and the headers of 2026-07-28.
fn usual_head() -> Row {
    let fields = [
        ("Host", "127.0.0.1:8900"),
        ("Connection", "keep-alive"),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("Accept-Encoding", "gzip, deflate"),
        ("User-Agent", "python-httpx/0.28.1"),
        ("Authorization", "Bearer 0123456789abcdef0123456789abcdef"),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "execute_sql"),
        ("Mcp-Param-Region", "us-west1"),
        ("Mcp-Param-Limit", "42"),
        ("Content-Length", "210"),
    ];
    let owned = |(name, value): (&str, &str)| (name.to_owned(), Some(value.to_owned()));
    head(fields.into_iter().map(owned).collect())
}

#[test]
fn a_good_request_costs_no_memory() {
    let head = usual_head();
    let token = Secret::new("0123456789abcdef0123456789abcdef".to_owned());
    let rules = AccessRules::new(&[], &[], Some(token), true).expect("good rules");
    let schema = r#"{"properties":{"region":{"type":"string","x-mcp-header":"Region"},
        "limit":{"type":"integer","x-mcp-header":"Limit"}}}"#;
    let params = param_headers(schema, MOST).expect("valid");
    let arguments = Some(r#"{"region":"us-west1","query":"SELECT 1","limit":42.0}"#);
    let cost = allocation_counter::measure(|| {
        let principal = check_access(&head, &rules);
        assert!(principal.is_ok_and(|principal| principal.as_str().len() == 16));
        assert!(check_post(&head).is_ok_and(|accepts| accepts.json && accepts.sse));
        let (name, version) = (Some("execute_sql"), Some("2026-07-28"));
        let checked = check_modern_headers(&head, "tools/call", name, version, arguments, &params);
        assert_eq!(checked, Ok(()));
    });
    assert_eq!(cost.count_total, 0);
}

#[test]
fn principals_tell_tokens_apart_and_nothing_else() {
    let principal = |token: &str, hosts: &[String]| {
        let rules = AccessRules::new(hosts, &[], Some(Secret::new(token.to_owned())), true);
        let authorization = Some(format!("Bearer {token}"));
        let fields = vec![
            ("Host".to_owned(), Some("localhost".to_owned())),
            ("Authorization".to_owned(), authorization),
        ];
        check_access(&head(fields), &rules.expect("good rules")).expect("let in")
    };
    let one = principal("one", &[]);
    assert_eq!(one, principal("one", &["x".to_owned()]));
    assert_ne!(one, principal("two", &[]));
    assert_ne!(one, Principal::ANYBODY);
    assert_eq!(one.to_string(), one.as_str());
    assert!(one.as_str().len() == 16 && one.as_str().bytes().all(|b| b.is_ascii_hexdigit()));
    let rules = AccessRules::new(&[], &[], Some(Secret::new("hunter2".to_owned())), true);
    let debug = format!("{:?}", rules.expect("good rules"));
    assert!(
        debug.contains("***") && !debug.contains("hunter2"),
        "{debug}"
    );
}

#[test]
fn versions_are_told_apart() {
    let of = |value: &str| {
        let field = ("mcp-protocol-version".to_owned(), Some(value.to_owned()));
        head(vec![field])
    };
    for revision in crate::protocol::revision::Revision::NEWEST_FIRST {
        let head = of(revision.as_str());
        let wanted = if revision.is_stateless() {
            VersionHeader::Modern(revision)
        } else {
            VersionHeader::Legacy(revision)
        };
        assert_eq!(VersionHeader::of(&head), wanted);
        assert_eq!(wanted.of_session().is_err(), revision.is_stateless());
    }
    assert_eq!(
        VersionHeader::of(&of("2025-11-25,")),
        VersionHeader::Unknown("2025-11-25,")
    );
    assert_eq!(VersionHeader::of(&of("")), VersionHeader::Unknown(""));
    let refusal = VersionHeader::of(&of("2026-07-28"))
        .of_session()
        .expect_err("refused");
    let says = "MCP-Protocol-Version must name a revision that has sessions (found 2026-07-28)";
    assert_eq!(
        shown(&refusal),
        serde_json::json!({"status": 400, "says": says})
    );
}

#[test]
fn param_headers_max() {
    let schema = |count: usize| {
        let property = |n| format!(r#""p{n}":{{"type":"string","x-mcp-header":"H{n}"}}"#);
        let properties: Vec<_> = (0..count).map(property).collect();
        format!(r#"{{"properties":{{{}}}}}"#, properties.join(","))
    };
    for count in [MOST - 1, MOST] {
        assert_eq!(
            param_headers(&schema(count), MOST).map(|headers| headers.len()),
            Ok(count)
        );
    }
    let error = param_headers(&schema(MOST + 1), MOST).expect_err("too many");
    assert_eq!(
        error,
        "x-mcp-header may stand 64 times, limit param_headers_max (found more)"
    );
}

#[test]
fn annotations_are_found_at_any_depth_and_cost_no_stack() {
    let depth = Limits::DEFAULT.json_depth_max / 2;
    let nest = |keyword: &str, inner: &str| {
        let open = format!(r#"{{"{keyword}":{{"a":"#);
        format!("{}{inner}{}", open.repeat(depth), "}}".repeat(depth))
    };
    let inner = r#"{"type":"string","x-mcp-header":"Deep"}"#;
    let headers = param_headers(&nest("properties", inner), MOST).expect("valid");
    assert_eq!(headers[0].path, vec!["a"; depth]);
    let error = param_headers(&nest("$defs", inner), MOST).expect_err("not reachable");
    assert!(
        error.contains("x-mcp-header \"Deep\" at /$defs/a/$defs/a/"),
        "{error}"
    );
    assert!(error.contains('…') && error.len() < 400, "{error}");
}

#[test]
fn session_ids_are_bounded() {
    let id = |bytes: usize| {
        let field = ("Mcp-Session-Id".to_owned(), Some("a".repeat(bytes)));
        head(vec![field])
    };
    for bytes in [SESSION_ID_BYTES_MAX - 1, SESSION_ID_BYTES_MAX] {
        let head = id(bytes);
        assert_eq!(
            session_id(&head).map(|id| id.map(str::len)),
            Ok(Some(bytes))
        );
    }
    let refusal = session_id(&id(SESSION_ID_BYTES_MAX + 1)).expect_err("too long");
    assert_eq!(refusal.status, 400);
}

#[test]
fn a_head_that_only_counts_and_lists_is_enough() {
    let fields = [
        ("A", Some("1")),
        ("b", None),
        ("C", Some("2")),
        ("c", Some("3")),
    ];
    let owned = |(name, value): (&str, Option<&str>)| (name.to_owned(), value.map(str::to_owned));
    let head = head(fields.into_iter().map(owned).collect());
    assert_eq!(head.once("a"), Once::Value("1"));
    assert_eq!(head.once("B"), Once::NotText);
    assert_eq!(head.once("C"), Once::Repeated(2));
    assert_eq!(head.once("d"), Once::Absent);
    assert_eq!(head.field("C"), Some("2"));
}
