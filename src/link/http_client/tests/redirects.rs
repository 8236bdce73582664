//! Redirects: within one origin, 307 and 308 for messages, a few, no loops.

use crate::link::http_client::rig::*;
use crate::protocol::revision::Revision;

fn redirect(rig: &mut Rig<crate::link::http_client::HttpLink>, to: &Got, status: u16, at: &str) {
    let answer = format!("HTTP/1.1 {status} X\r\nLocation: {at}\r\nContent-Length: 4\r\n\r\nmove");
    rig.bytes(to.wire, answer.as_bytes());
}

#[test]
fn a_message_is_sent_again_within_the_origin() {
    for cut in [false, true] {
        let mut rig = http_rig();
        rig.start();
        rig.cut = cut;
        rig.send(request(7, "tools/list", MODERN));
        let first = rig.next();
        redirect(&mut rig, &first, 307, "/mcp/");
        let second = rig.next();
        assert_eq!((second.target.as_str(), second.wire), ("/mcp/", first.wire));
        assert_eq!(second.body, first.body);
        assert_eq!(second.field("mcp-method"), Some("tools/list"));
        redirect(&mut rig, &second, 308, "HTTP://127.0.0.1:8900/x?y");
        let third = rig.next();
        assert_eq!(third.target, "/x?y");
        rig.json(&third, "", r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
        let wanted = ["up", r#"message 7 {"jsonrpc":"2.0","id":7,"result":{}}"#];
        assert_eq!(rig.news(), wanted);
    }
}

#[test]
fn everything_else_is_refused_and_says_why() {
    let table = [
        (301, "/x", "a message follows only 307 and 308"),
        (302, "/x", "a message follows only 307 and 308"),
        (303, "/x", "a message follows only 307 and 308"),
        (
            307,
            "http://127.0.0.1:8901/mcp?token=x",
            "it leads to another origin",
        ),
        (
            307,
            "https://127.0.0.1:8900/mcp",
            "it leads to another origin",
        ),
        (307, "//localhost:8900/mcp", "it leads to another origin"),
        (
            308,
            "http://me:pw@127.0.0.1:8900/x",
            "it leads to another origin",
        ),
        (307, "file:///etc/x", "it names no URL that we can call"),
        (307, "/mcp", "it leads back to where it came from"),
        (307, "", "it names no place"),
    ];
    for (status, at, why) in table {
        let mut rig = http_rig();
        rig.start();
        rig.send(request(7, "tools/list", MODERN));
        let got = rig.next();
        redirect(&mut rig, &got, status, at);
        let told = rig.news();
        let end = &told[1];
        assert!(
            end.starts_with("end 7 redirect http://127.0.0.1:8900/mcp to "),
            "{end}"
        );
        assert!(end.ends_with(why), "{status} {at}: {end}");
        assert!(!end.contains("token") && !end.contains("pw"), "{end}");
        assert!(rig.got.is_empty(), "nothing was sent to {at}");
        assert!(!rig.is_gone(got.wire), "the connection is kept");
    }
}

#[test]
fn there_is_an_end_to_it() {
    let mut rig = http_rig();
    rig.start();
    rig.send(request(7, "tools/list", MODERN));
    for at in ["/1", "/2", "/3", "/4"] {
        let got = rig.next();
        redirect(&mut rig, &got, 307, at);
    }
    let told = rig.news();
    assert!(told[1].ends_with("/3 to http://127.0.0.1:8900/4: there were too many before it"));

    rig.send(request(8, "tools/list", MODERN));
    for at in ["/1", "/2", "/1"] {
        let got = rig.next();
        redirect(&mut rig, &got, 307, at);
    }
    assert!(rig.news()[0].ends_with("it leads back to where it came from"));
}

#[test]
fn a_long_page_behind_a_redirect_is_not_read() {
    let mut rig = http_rig();
    rig.start();
    rig.send(request(7, "tools/list", MODERN));
    let got = rig.next();
    let page = "x".repeat(20_000);
    let answer = format!("HTTP/1.1 307 X\r\nLocation: /y\r\nContent-Length: 999999\r\n\r\n{page}");
    rig.bytes(got.wire, answer.as_bytes());
    assert!(rig.is_gone(got.wire));
    assert_eq!(rig.next().target, "/y");
}

#[test]
fn a_get_follows_a_little_more_and_is_not_offered_elsewhere() {
    let mut rig = http_rig();
    with_stream_asked(&mut rig, Revision::V2025_06_18);
    let get = rig.next();
    redirect(&mut rig, &get, 302, "/events");
    let get = rig.next();
    assert_eq!(
        (get.method.as_str(), get.target.as_str()),
        ("GET", "/events")
    );
    assert_eq!(get.field("mcp-session-id"), Some("S1"));
    redirect(&mut rig, &get, 302, "http://elsewhere/");
    rig.pass_to(100_000);
    assert!(rig.got.is_empty());
    assert_eq!(rig.news(), Vec::<String>::new());
}

#[test]
fn bytes_behind_a_redirect_are_no_answer_to_what_follows_it() {
    let mut rig = http_rig();
    rig.start();
    rig.send(request(7, "tools/list", MODERN));
    let got = rig.next();
    let evil = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    let answer = format!(
        "HTTP/1.1 307 X\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 36\r\n\r\n{evil}"
    );
    rig.bytes(got.wire, answer.as_bytes());
    assert!(rig.is_gone(got.wire));
    assert_eq!(rig.news(), ["up"]);
    assert_eq!(rig.next().target, "/y");
}

#[test]
fn what_is_kept_for_redirects_is_bounded() {
    let limits = crate::limits::Limits {
        upstream_out_bytes_max: 2_000,
        ..crate::limits::Limits::default()
    };
    let mut rig = http_rig_with(target("http://127.0.0.1:8900/mcp"), &limits);
    rig.start();
    for id in [7, 8] {
        let mut message = request(id, "tools/call", MODERN);
        message.body.resize(1_200, b' ');
        rig.send(message);
    }
    let (seven, eight) = (rig.next(), rig.next());
    redirect(&mut rig, &eight, 307, "/y");
    let end = "/mcp to http://127.0.0.1:8900/y: the message was too long to be kept";
    assert!(rig.news()[1].ends_with(end));
    redirect(&mut rig, &seven, 307, "/y");
    assert_eq!(rig.next().body.len(), 1_200);
}
