//! What stands in the heads of our requests.

use crate::ids::UpstreamRequestId;
use crate::link::http_client::is_reserved;
use crate::link::http_client::rig::*;
use crate::protocol::client::{Dialect, Outgoing, OutgoingKind};
use crate::protocol::revision::Revision;
use crate::secret::Secret;

fn call(method: &str, name: Option<&str>, params: &[(&str, &str)]) -> Outgoing {
    let Outgoing { dialect, body, .. } = request(7, method, MODERN);
    Outgoing {
        kind: OutgoingKind::Request {
            id: UpstreamRequestId(7),
            method: method.to_owned().into(),
            name: name.map(Into::into),
            headers: params
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
        },
        dialect,
        body,
    }
}

#[test]
fn stateless_requests_carry_their_routing() {
    let table: &[(&str, Option<&str>, Option<&str>)] = &[
        ("tools/call", Some("get_weather"), Some("get_weather")),
        ("tools/call", Some("天気"), Some("=?base64?5aSp5rCX?=")),
        (
            "tools/call",
            Some(" padded "),
            Some("=?base64?IHBhZGRlZCA=?="),
        ),
        (
            "tools/call",
            Some("=?base64?x?="),
            Some("=?base64?PT9iYXNlNjQ/eD89?="),
        ),
        (
            "tools/call",
            Some("a\r\nX-Evil: 1"),
            Some("=?base64?YQ0KWC1FdmlsOiAx?="),
        ),
        (
            "resources/read",
            Some("file:///projects/made.json"),
            Some("file:///projects/made.json"),
        ),
        ("tools/list", None, None),
    ];
    for (method, name, field) in table {
        let mut rig = http_rig();
        rig.start();
        rig.send(call(method, *name, &[]));
        let got = rig.next();
        assert_eq!(got.field("mcp-method"), Some(*method));
        assert_eq!(got.field("mcp-name"), *field, "{name:?}");
        assert_eq!(got.field("mcp-protocol-version"), Some("2026-07-28"));
        assert!(!got.fields.has("mcp-session-id"));
        assert!(!got.fields.has("x-evil"));
        assert!(rig.got.is_empty());
    }
}

#[test]
fn parameters_become_fields() {
    let mut rig = http_rig();
    rig.start();
    let params = [
        ("Mcp-Param-Region", "us-west1"),
        ("Mcp-Param-N", "-7"),
        ("Mcp-Param-Flag", "true"),
        ("Mcp-Param-Deep", "é"),
        ("Mcp-Param-Empty", ""),
        ("Mcp-Param-Tab", "a\tb"),
        ("Mcp-Param-Inner", "a  b"),
    ];
    rig.send(call("tools/call", Some("q"), &params));
    let got = rig.next();
    let wanted = [
        "us-west1",
        "-7",
        "true",
        "=?base64?w6k=?=",
        "",
        "=?base64?YQli?=",
        "a  b",
    ];
    for ((name, _), wanted) in params.iter().zip(wanted) {
        assert_eq!(got.field(name), Some(wanted), "{name}");
    }
    for (_, value) in got.fields.iter() {
        assert!(value.iter().all(|b| (b' '..=b'~').contains(b)), "{value:?}");
    }
}

#[test]
fn what_cannot_stand_in_a_head_is_not_sent() {
    for message in [
        call("tools\r\ncall", None, &[]),
        call("tools/call", None, &[("Mcp-Param-A b", "x")]),
        call("tools/call", None, &[("Mcp-Param-A\r\nB", "x")]),
    ] {
        let mut rig = http_rig();
        rig.start();
        rig.send(message);
        let told = rig.news();
        assert!(
            told[1].starts_with("end 7 not sent: message cannot be sent"),
            "{told:?}"
        );
        assert!(rig.got.is_empty() && rig.asked.is_empty());
    }
}

#[test]
fn a_post_says_what_it_is_and_what_it_takes() {
    let mut rig = http_rig();
    rig.start();
    rig.send(request(1, "initialize", Dialect::Handshake));
    let got = rig.next();
    assert_eq!(
        got.shown(),
        r#"POST /mcp {"jsonrpc":"2.0","id":1,"method":"initialize"}"#
    );
    let agent = format!("drawspan/{}", env!("CARGO_PKG_VERSION"));
    let wanted = [
        ("Host", "127.0.0.1:8900"),
        ("Accept-Encoding", "identity"),
        ("Authorization", "Bearer made"),
        ("User-Agent", &agent),
        ("Accept", "application/json, text/event-stream"),
        ("Content-Type", "application/json"),
        ("Content-Length", "46"),
    ];
    let fields: Vec<_> = got.fields.iter().collect();
    let wanted = wanted
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let wanted: Vec<_> = wanted.collect();
    assert_eq!(fields, wanted);
}

#[test]
fn a_session_is_named_in_everything_that_belongs_to_it() {
    let mut rig = http_rig();
    with_stream_asked(&mut rig, Revision::V2025_06_18);
    let get = rig.next();
    rig.status(&get, "405 Method Not Allowed");
    rig.send(request(7, "tools/list", LEGACY));
    rig.send(answer("{}"));
    let (post, answered) = (rig.next(), rig.next());
    rig.close();
    let delete = rig.next();
    assert_eq!(delete.method, "DELETE");
    for got in [&get, &post, &answered, &delete] {
        assert_eq!(got.field("mcp-session-id"), Some("S1"), "{}", got.shown());
        assert_eq!(got.field("mcp-protocol-version"), Some("2025-06-18"));
        assert_eq!(got.field("authorization"), Some("Bearer made"));
        assert!(!got.fields.has("mcp-method") && !got.fields.has("expect"));
    }
    assert_eq!(get.field("accept"), Some("text/event-stream"));
    assert!(!get.fields.has("last-event-id"));
}

#[test]
fn framing_is_not_configurable() {
    for name in [
        "Host",
        "content-LENGTH",
        "Expect",
        "Mcp-Param-X",
        "te",
        "Mcp-Session-Id",
    ] {
        assert!(is_reserved(name), "{name}");
    }
    assert!(!is_reserved("Authorization") && !is_reserved("User-Agent") && !is_reserved("X-A"));
    let mut own = target("http://[::1]/");
    own.headers
        .push(("User-Agent".to_owned(), Secret::new("made".to_owned())));
    let mut rig = http_rig_with(own, &crate::limits::Limits::default());
    rig.start();
    rig.send(request(1, "initialize", Dialect::Handshake));
    let got = rig.next();
    assert_eq!(got.field("user-agent"), Some("made"));
    assert_eq!(got.field("host"), Some("[::1]"));
    assert_eq!(rig.asked, ["open 1 ::1 80"]);
}

#[test]
fn a_configured_value_that_cannot_be_sent_ends_the_link() {
    let mut bad = target("http://h/");
    bad.headers
        .push(("X-Key".to_owned(), Secret::new("a\r\nB: c".to_owned())));
    let mut rig = http_rig_with(bad, &crate::limits::Limits::default());
    rig.start();
    let why = "closed cannot ask h: value of field X-Key holds a byte that HTTP does not allow";
    assert_eq!(rig.news(), [why]);
    assert!(
        !format!("{:?}", rig.link).contains("Bearer"),
        "secrets do not show"
    );
}
