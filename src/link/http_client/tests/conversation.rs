//! Sessions, order, forgetting and the end.

use crate::limits::Limits;
use crate::link::http_client::rig::*;
use crate::protocol::client::Dialect;
use crate::protocol::revision::Revision;

const NOTHING: [&str; 0] = [];

fn result(id: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
}

#[test]
fn a_session_id_is_checked_before_it_is_kept() {
    let long = "x".repeat(4_097);
    let table = [
        (
            "Mcp-Session-Id: a b\r\n",
            "Mcp-Session-Id is no visible ASCII: a b",
        ),
        (
            "Mcp-Session-Id:\r\n",
            "Mcp-Session-Id is no visible ASCII: ",
        ),
        (
            "Mcp-Session-Id: é\r\n",
            "Mcp-Session-Id is no visible ASCII: é",
        ),
        (
            "Mcp-Session-Id: a\r\nMCP-SESSION-ID: a\r\n",
            "Mcp-Session-Id stands more than once or is no text",
        ),
        (
            &format!("Mcp-Session-Id: {long}\r\n"),
            "Mcp-Session-Id is too long: 4097 bytes, limit 4096",
        ),
    ];
    for (field, why) in table {
        let mut rig = http_rig();
        rig.start();
        rig.send(request(1, "initialize", Dialect::Handshake));
        let got = rig.next();
        rig.json(&got, field, &result(1));
        assert_eq!(
            rig.news(),
            ["up".to_owned(), format!("end 1 broken: {why}")]
        );
        assert!(rig.is_gone(got.wire));
    }
}

#[test]
fn json_that_is_too_deep_says_so() {
    let mut rig = http_rig();
    in_session(&mut rig, Revision::V2025_06_18);
    rig.send(request(7, "tools/call", LEGACY));
    let got = rig.next();
    let deep = "[".repeat(2_000);
    let body = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{deep}"#);
    rig.json(&got, "", &body);
    let news = rig.news();
    assert_eq!(
        news[0],
        format!("message 7 {body}"),
        "for the peer to judge"
    );
    assert!(
        news[1].contains("end 7 broken: unreadable answer: "),
        "{news:?}"
    );
    assert!(news[1].contains("deep"), "{news:?}");
}

#[test]
fn only_the_answer_to_initialize_gives_a_session() {
    let mut rig = http_rig();
    in_session(&mut rig, Revision::V2025_06_18);
    rig.send(request(7, "tools/list", LEGACY));
    let got = rig.next();
    rig.json(&got, "Mcp-Session-Id: other\r\n", &result(7));
    rig.send(request(8, "tools/list", LEGACY));
    assert_eq!(rig.next().field("mcp-session-id"), Some("S1"));
}

#[test]
fn messages_wait_until_the_session_has_begun() {
    let mut rig = http_rig();
    rig.start();
    rig.send(request(1, "initialize", Dialect::Handshake));
    let got = rig.next();
    rig.json(&got, "", &result(1));
    rig.send(notification("notifications/initialized", LEGACY));
    let initialized = rig.next();
    rig.send(request(2, "tools/list", LEGACY));
    rig.send(request(3, "prompts/list", LEGACY));
    rig.forget(3);
    assert!(rig.got.is_empty());
    rig.status(&initialized, "202 Accepted");
    // The stream has the warm connection and is there first.
    let (get, got) = (rig.next(), rig.next());
    assert_eq!((get.method.as_str(), get.wire), ("GET", initialized.wire));
    assert!(got.body.contains("tools/list"));
    assert_ne!(got.wire, get.wire);
    assert!(rig.got.is_empty(), "what was forgotten is not sent");
}

#[test]
fn they_do_not_wait_for_ever() {
    let mut rig = http_rig();
    rig.start();
    rig.send(notification("notifications/initialized", LEGACY));
    rig.next();
    rig.send(request(2, "tools/list", LEGACY));
    rig.pass_to(1_999);
    assert!(rig.got.is_empty());
    rig.pass_to(2_000);
    assert!(rig.next().body.contains("tools/list"));
}

#[test]
fn notifications_on_their_way_are_bounded_and_requests_pass_them() {
    let mut rig = http_rig();
    rig.start();
    for n in 0..40 {
        rig.send(notification(&format!("n/{n}"), LEGACY));
    }
    rig.send(request(7, "tools/list", LEGACY));
    let got: Vec<_> = std::mem::take(&mut rig.got).into();
    assert_eq!(got.len(), 17);
    assert!(got[16].body.contains("tools/list"));
    rig.status(&got[3], "202 Accepted");
    let next = rig.next();
    assert!(next.body.contains("n/16") && next.wire == got[3].wire);
    // One that is never answered is given up.
    rig.pass_to(60_000);
    assert_eq!(rig.got.len(), 16);
    assert!(rig.is_gone(got[0].wire));
    assert_eq!(rig.news(), ["up"]);
}

#[test]
fn forgetting_closes_the_connection_of_that_request_only() {
    for dialect in [LEGACY, MODERN] {
        let mut rig = http_rig();
        rig.start();
        rig.send(request(7, "tools/call", dialect));
        rig.send(request(8, "tools/call", dialect));
        let (seven, eight) = (rig.next(), rig.next());
        rig.stream(&seven, "data:\n\n");
        rig.forget(7);
        rig.forget(7);
        rig.forget(99);
        assert!(rig.is_gone(seven.wire) && !rig.is_gone(eight.wire));
        rig.json(&eight, "", &result(8));
        assert_eq!(
            rig.news(),
            ["up".to_owned(), format!("message 8 {}", result(8))]
        );
        rig.pass_to(100_000);
        assert!(rig.got.is_empty());
    }
}

#[test]
fn a_request_is_forgotten_before_its_connection_is_open() {
    let mut rig = http_rig();
    rig.opens = false;
    rig.start();
    rig.send(request(7, "tools/call", MODERN));
    rig.forget(7);
    assert_eq!(rig.asked, ["open 1 127.0.0.1 8900", "close 1"]);
    assert_eq!(rig.news(), ["up"]);
}

#[test]
fn a_session_is_ended_by_delete_and_everything_else_at_once() {
    let mut rig = http_rig();
    with_stream_asked(&mut rig, Revision::V2025_06_18);
    let get = rig.next();
    rig.stream(&get, "");
    rig.send(request(7, "tools/call", LEGACY));
    let got = rig.next();
    rig.close();
    assert!(rig.is_gone(get.wire) && rig.is_gone(got.wire));
    let delete = rig.next();
    assert_eq!(delete.shown(), "DELETE /mcp ");
    assert_eq!(rig.news(), NOTHING);
    rig.status(&delete, "405 Method Not Allowed");
    assert_eq!(rig.news(), ["closed connection closed"]);
    assert!(rig.is_gone(delete.wire));
    rig.close();
    rig.send(request(8, "tools/call", LEGACY));
    assert!(rig.got.is_empty() && rig.news().is_empty());
}

#[test]
fn a_server_that_does_not_answer_delete_is_left() {
    let mut rig = http_rig();
    in_session(&mut rig, Revision::V2025_06_18);
    rig.now = 5_000;
    rig.close();
    let delete = rig.next();
    rig.pass_to(5_999);
    assert_eq!(rig.news(), NOTHING);
    rig.pass_to(6_000);
    assert_eq!(rig.news(), ["closed connection closed"]);
    assert!(rig.is_gone(delete.wire));
    assert_eq!(rig.link.next_deadline(), None);
}

#[test]
fn without_a_session_the_end_is_immediate() {
    let mut rig = http_rig();
    rig.start();
    rig.send(request(7, "tools/call", MODERN));
    let got = rig.next();
    rig.close();
    assert_eq!(rig.news(), ["up", "closed connection closed"]);
    assert!(rig.is_gone(got.wire) && rig.got.is_empty());

    let mut rig = http_rig();
    rig.close();
    assert_eq!(rig.news(), ["closed connection closed"]);
}

#[test]
fn a_session_that_is_lost_is_not_ended_again() {
    let mut rig = http_rig();
    in_session(&mut rig, Revision::V2025_06_18);
    rig.send(request(7, "tools/call", LEGACY));
    let got = rig.next();
    rig.status(&got, "404 Not Found");
    assert_eq!(rig.news(), ["end 7 session lost 404"]);
    rig.close();
    assert!(rig.got.is_empty());
    assert_eq!(rig.news(), ["closed connection closed"]);
}

#[test]
fn notifications_that_have_not_left_still_leave() {
    let mut rig = http_rig();
    rig.start();
    rig.send(notification("notifications/a", LEGACY));
    let first = rig.next();
    rig.status(&first, "202 Accepted");
    rig.reads = false;
    rig.send(notification("notifications/cancelled", LEGACY));
    rig.send(request(7, "tools/call", LEGACY));
    rig.close();
    assert!(rig.next().body.contains("notifications/cancelled"));
    assert!(rig.got.is_empty());
    assert_eq!(
        rig.asked[1..],
        ["open 2 127.0.0.1 8900", "finish 1", "close 2"]
    );
}

#[test]
fn what_waits_is_bounded() {
    let limits = Limits {
        upstream_out_bytes_max: 1_000,
        ..Limits::default()
    };
    let mut rig = http_rig_with(target("http://127.0.0.1:8900/mcp"), &limits);
    rig.opens = false;
    rig.start();
    rig.send(request(7, "tools/call", MODERN));
    let mut big = request(8, "tools/call", MODERN);
    big.body.resize(900, b' ');
    let full = rig.try_send(big.clone()).expect_err("too much");
    assert_eq!(full.limit, 1_000);
    assert!(full.value > 1_000, "{full:?}");
    assert_eq!(rig.asked.len(), 1, "nothing was queued");
    rig.forget(7);
    assert_eq!(rig.try_send(big), Ok(()));
}

#[test]
fn nothing_of_a_new_conversation_comes_from_the_old_one() {
    let mut rig = http_rig();
    in_session(&mut rig, Revision::V2025_06_18);
    rig.send(request(9, "initialize", Dialect::Handshake));
    let got = rig.next();
    rig.json(&got, "Mcp-Session-Id: S2\r\n", &result(9));
    rig.send(notification("notifications/initialized", LEGACY));
    let got = rig.next();
    assert_eq!(got.field("mcp-session-id"), Some("S2"));
    rig.status(&got, "202 Accepted");
    assert_eq!(rig.next().method, "GET", "it is offered anew");
}
