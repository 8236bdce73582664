//! Answers: what they look like, in which order they leave, what they say of the connection.

use super::*;

const DATE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";

fn request(line: &str, fields: &str) -> Vec<u8> {
    format!("{line}\r\nHost: h\r\n{fields}\r\n").into_bytes()
}

#[test]
fn an_answer_has_its_length_and_the_owners_fields() {
    let mut rig = waiting();
    let headers = [("Content-Type", "text/plain"), ("X-A", "b")];
    rig.connection
        .respond(at(1), ExchangeId(0), 404, &headers, b"no\n");
    rig.drain();
    assert_eq!(
        rig.sent(),
        format!(
            "HTTP/1.1 404 Not Found\r\n{DATE}Content-Length: 3\r\nContent-Type: text/plain\r\n\
             X-A: b\r\n\r\nno\n"
        )
    );
}

#[test]
fn some_statuses_have_no_body() {
    for (status, expected) in [
        (
            202,
            format!("HTTP/1.1 202 Accepted\r\n{DATE}Content-Length: 0\r\n\r\n"),
        ),
        (204, format!("HTTP/1.1 204 No Content\r\n{DATE}\r\n")),
        (304, format!("HTTP/1.1 304 Not Modified\r\n{DATE}\r\n")),
        (
            299,
            format!("HTTP/1.1 299 \r\n{DATE}Content-Length: 0\r\n\r\n"),
        ),
        (
            100,
            format!("HTTP/1.1 500 Internal Server Error\r\n{DATE}Content-Length: 0\r\n\r\n"),
        ),
    ] {
        let mut rig = waiting();
        let body: &[u8] = if status == 204 { b"lost" } else { b"" };
        rig.connection
            .respond(at(1), ExchangeId(0), status, &[], body);
        rig.drain();
        assert_eq!(rig.sent(), expected);
    }
}

/// reliability-security T22.
#[test]
fn the_owners_fields_cannot_change_the_framing() {
    let headers = [
        ("Content-Length", "7"),
        ("TRANSFER-ENCODING", "chunked"),
        ("connection", "upgrade"),
        ("X-A", "a\r\nX-B: b"),
        ("X-C:", "c"),
        ("X-D", "d"),
    ];
    let mut rig = waiting();
    rig.connection
        .respond(at(1), ExchangeId(0), 200, &headers, b"");
    rig.drain();
    let expected = format!("HTTP/1.1 200 OK\r\n{DATE}Content-Length: 0\r\nX-D: d\r\n\r\n");
    assert_eq!(rig.sent(), expected);
}

#[test]
fn json_is_written_in_place_behind_its_head() {
    let mut rig = waiting();
    let buffer = rig
        .connection
        .begin_json(ExchangeId(0), &[("Mcp-Session-Id", "s")]);
    buffer.extend_from_slice(b"{\"jsonrpc\":\"2.0\"}");
    rig.connection.commit_json(at(1), ExchangeId(0));
    rig.drain();
    assert_eq!(
        rig.sent(),
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n{DATE}\
             Content-Length:         17\r\nMcp-Session-Id: s\r\n\r\n{{\"jsonrpc\":\"2.0\"}}"
        )
    );
    assert_eq!(rig.state(), "Head");
}

#[test]
fn the_date_is_that_of_the_commit() {
    let mut rig = waiting();
    rig.connection.begin_json(ExchangeId(0), &[]);
    let later = Now {
        unix_ms: at(0).unix_ms + 5_000,
        ..at(5_000)
    };
    rig.connection.commit_json(later, ExchangeId(0));
    rig.now = 5_000;
    rig.drain();
    assert!(rig.sent().contains("08:49:42"), "{}", rig.sent());
}

#[test]
fn the_answer_to_head_has_no_body() {
    let head = request("HEAD / HTTP/1.1", "");
    let mut plain = rig(&head, 1);
    plain
        .connection
        .respond(at(0), ExchangeId(0), 404, &[], b"no");
    plain.drain();
    assert!(
        plain.sent().ends_with("Content-Length: 2\r\n\r\n"),
        "{}",
        plain.sent()
    );
    let mut json = rig(&head, 1);
    json.connection
        .begin_json(ExchangeId(0), &[])
        .extend_from_slice(b"{}");
    json.connection.commit_json(at(0), ExchangeId(0));
    json.drain();
    assert!(
        json.sent().ends_with("Content-Length:          2\r\n\r\n"),
        "{}",
        json.sent()
    );
    let mut stream = rig(&head, 1);
    stream.stream(0);
    stream
        .connection
        .begin_event(ExchangeId(0), None, None)
        .push(b'x');
    stream.connection.commit_event(at(0), ExchangeId(0));
    stream.connection.sse_comment(at(0), ExchangeId(0), b"x");
    stream.connection.finish_sse(at(0), ExchangeId(0));
    stream.drain();
    assert!(
        stream.sent().ends_with("chunked\r\n\r\n"),
        "{}",
        stream.sent()
    );
    assert_eq!(stream.state(), "Head");
    let refused = request("HEAD / HTTP/1.1", "Content-Encoding: gzip\r\n");
    let mut refused_rig = Rig::new();
    refused_rig.bytes(&refused);
    assert!(
        refused_rig.sent().ends_with("close\r\n\r\n"),
        "{}",
        refused_rig.sent()
    );
}

#[test]
fn a_stream_is_chunked_and_ends_with_its_last_chunk() {
    let mut rig = waiting();
    let exchange = ExchangeId(0);
    rig.connection
        .start_sse(at(0), exchange, &[("Mcp-Session-Id", "s")]);
    rig.connection.sse_raw(at(0), exchange, b"retry: 5\n\n");
    rig.connection.sse_raw(at(0), exchange, b"");
    let buffer = rig
        .connection
        .begin_event(exchange, Some("message"), Some("1"));
    buffer.extend_from_slice(b"{}");
    rig.connection.commit_event(at(0), exchange);
    rig.connection.sse_comment(at(0), exchange, b"");
    rig.connection.finish_sse(at(0), exchange);
    rig.drain();
    assert_eq!(
        rig.sent(),
        format!(
            "HTTP/1.1 200 OK\r\n{DATE}Content-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
             X-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\nMcp-Session-Id: s\r\n\r\n\
             0000000a\r\nretry: 5\n\n\r\n\
             0000001f\r\nevent: message\nid: 1\ndata: {{}}\n\n\r\n\
             00000004\r\n: \n\n\r\n0\r\n\r\n"
        )
    );
    assert_eq!(rig.state(), "Head", "the connection goes on");
}

#[test]
fn data_with_line_breaks_stays_data() {
    let mut rig = waiting();
    rig.stream(0);
    let buffer = rig.connection.begin_event(ExchangeId(0), None, None);
    buffer.extend_from_slice(b"a\n\nevent: b\ndata: c");
    rig.connection.commit_event(at(0), ExchangeId(0));
    rig.drain();
    assert!(
        rig.sent()
            .ends_with("\r\n0000002d\r\ndata: a\ndata: \ndata: event: b\ndata: data: c\n\n\r\n"),
        "{}",
        rig.sent()
    );
}

/// RFC 9112 §7: no chunks for HTTP/1.0; its stream ends with the connection.
#[test]
fn an_old_client_gets_its_stream_without_chunks() {
    for fields in ["", "Connection: keep-alive\r\n"] {
        let mut rig = rig(format!("GET / HTTP/1.0\r\n{fields}\r\n").as_bytes(), 1);
        let exchange = ExchangeId(0);
        rig.stream(0);
        rig.connection
            .begin_event(exchange, None, None)
            .extend_from_slice(b"{}");
        rig.connection.commit_event(at(0), exchange);
        rig.connection.sse_comment(at(0), exchange, b"c");
        rig.connection.sse_raw(at(0), exchange, b":\n");
        rig.drain();
        let sent = rig.sent();
        assert!(!sent.contains("chunked"), "{sent}");
        assert!(
            sent.ends_with("Connection: close\r\n\r\ndata: {}\n\n: c\n\n:\n"),
            "{sent}"
        );
        rig.connection.finish_sse(at(0), exchange);
        rig.drain();
        assert_eq!(rig.sent(), sent);
        assert_eq!(rig.state(), "Closed");
    }
}

/// Whether the connection goes on, and what its answer says of it.
#[test]
fn persistence() {
    for (line, fields, goes_on, says) in [
        ("GET / HTTP/1.1", "", true, ""),
        ("GET / HTTP/1.1", "Connection: keep-alive\r\n", true, ""),
        ("GET / HTTP/1.1", "Connection: close\r\n", false, "close"),
        (
            "GET / HTTP/1.1",
            "connection: TE, Close\r\n",
            false,
            "close",
        ),
        (
            "GET / HTTP/1.1",
            "Connection: x\r\nConnection: close\r\n",
            false,
            "close",
        ),
        (
            "GET / HTTP/1.1",
            "Connection: keep-alive, close\r\n",
            false,
            "close",
        ),
        ("GET / HTTP/1.1", "Connection: closed\r\n", true, ""),
        ("GET / HTTP/1.0", "", false, "close"),
        (
            "GET / HTTP/1.0",
            "Connection: Keep-Alive\r\n",
            true,
            "keep-alive",
        ),
        (
            "GET / HTTP/1.0",
            "Connection: keep-alive, close\r\n",
            false,
            "close",
        ),
        (
            "GET / HTTP/1.0",
            "Proxy-Connection: keep-alive\r\n",
            false,
            "close",
        ),
    ] {
        let mut rig = Rig::new();
        let mut bytes = request(line, fields);
        bytes.extend_from_slice(GET);
        rig.bytes(&bytes);
        rig.answer(0);
        let expected = match says {
            "" => String::new(),
            says => format!("Connection: {says}\r\n"),
        };
        let sent = rig.sent();
        assert!(
            sent.ends_with(&format!("Content-Length: 0\r\n{expected}\r\n")),
            "{fields}: {sent}"
        );
        let next = rig.log.iter().any(|line| line == "1 head GET /a");
        assert_eq!(next, goes_on, "{line} {fields}");
    }
}

#[test]
fn a_connection_that_is_to_end_says_so() {
    let mut rig = rig(&[GET, GET].concat(), 2);
    rig.close_after();
    rig.answer(0);
    assert!(!rig.sent().contains("close"), "not the last one");
    rig.answer(1);
    assert!(rig.sent().ends_with("Connection: close\r\n\r\n"));
    assert_eq!(rig.log, ["closed", "finish"]);
    for (request, body) in [(GET, &b""[..]), (POST, b"abcd")] {
        let mut rig = super::rig(request, 0);
        rig.close_after();
        rig.accept(0);
        rig.bytes(body);
        rig.answer(0);
        assert!(
            rig.sent().ends_with("Connection: close\r\n\r\n"),
            "{}",
            rig.sent()
        );
        assert_eq!(rig.state(), "Closed");
    }
}

#[test]
fn a_request_in_progress_is_dropped_by_close_after_when_its_head_is_not_whole() {
    let mut rig = rig(b"GET / HT", 0);
    rig.close_after();
    assert_eq!(rig.log, ["closed", "finish"]);
    rig.bytes(b"TP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(rig.log, ["closed", "finish"]);
}

#[test]
fn answers_leave_in_the_order_of_the_requests() {
    let mut rig = rig(&[GET, GET, GET, GET].concat(), 4);
    rig.connection.respond(at(0), ExchangeId(3), 204, &[], b"");
    rig.connection.start_sse(at(0), ExchangeId(1), &[]);
    rig.connection.sse_comment(at(0), ExchangeId(1), b"one");
    rig.connection
        .begin_json(ExchangeId(2), &[])
        .extend_from_slice(b"[2]");
    rig.connection.commit_json(at(0), ExchangeId(2));
    rig.drain();
    assert_eq!(rig.sent(), "");
    let backlog = rig.connection.backlog();
    assert!(backlog > 300, "{backlog}");
    rig.answer(0);
    assert_eq!(rig.statuses(), ["202", "200"]);
    assert!(
        rig.sent().ends_with(": one\n\n\r\n"),
        "what there is of the second"
    );
    rig.connection.sse_comment(at(0), ExchangeId(1), b"two");
    rig.drain();
    assert!(rig.sent().ends_with(": two\n\n\r\n"));
    rig.connection.finish_sse(at(0), ExchangeId(1));
    rig.drain();
    assert_eq!(rig.statuses(), ["202", "200", "200", "204"]);
    assert!(rig.sent().contains("\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n"));
    assert!(rig.sent().contains("[2]HTTP/1.1 204 "));
    assert_eq!(rig.connection.backlog(), 0);
}

#[test]
fn a_refusal_waits_for_the_answers_before_it() {
    let mut rig = rig(&[GET, b"GET / HTTP/1.1\r\n\r\n", GET].concat(), 1);
    assert_eq!(rig.state(), "Done");
    assert_eq!(rig.sent(), "");
    rig.answer(0);
    assert_eq!(rig.statuses(), ["202", "400"]);
    assert!(
        rig.sent()
            .ends_with("Connection: close\r\n\r\nrequest has no Host\n")
    );
    assert_eq!(rig.log, ["closed", "finish"]);
}

#[test]
fn an_exchange_is_answered_once() {
    let mut rig = rig(&[GET, GET].concat(), 2);
    rig.connection.finish_sse(at(0), ExchangeId(0));
    rig.drain();
    assert_eq!(rig.sent(), "", "there is no stream to finish");
    rig.connection.respond(at(0), ExchangeId(1), 202, &[], b"");
    rig.connection.respond(at(0), ExchangeId(1), 204, &[], b"");
    rig.connection.start_sse(at(0), ExchangeId(1), &[]);
    rig.connection
        .begin_json(ExchangeId(1), &[])
        .extend_from_slice(b"x");
    rig.connection.commit_json(at(0), ExchangeId(1));
    rig.answer(0);
    rig.answer(0);
    rig.answer(1);
    rig.answer(2);
    assert_eq!(rig.statuses(), ["202", "202"]);
    assert!(rig.connection.scratch.is_empty());
    rig.connection
        .begin_event(ExchangeId(0), None, None)
        .extend_from_slice(b"x");
    rig.connection.commit_event(at(0), ExchangeId(0));
    assert_eq!(
        rig.connection.scratch.capacity(),
        0,
        "nothing is kept of what nobody gets"
    );
    assert_eq!(rig.connection.backlog(), 0);
}

type Interruption = fn(&mut Rig);

#[test]
fn what_is_begun_and_not_committed_is_undone() {
    let interruptions: [Interruption; 9] = [
        |r| r.bytes(b"G"),
        |r| r.tick(1),
        |r| r.answer(1),
        |r| r.stream(1),
        |r| r.accept(1),
        |r| r.connection.sse_comment(at(0), ExchangeId(1), b""),
        |r| {
            r.connection.begin_json(ExchangeId(1), &[]);
            r.connection.commit_json(at(0), ExchangeId(1));
        },
        |r| r.connection.commit_json(at(0), ExchangeId(1)),
        |r| assert!(r.connection.outgoing().is_empty()),
    ];
    for interrupt in interruptions {
        let mut rig = rig(&[GET, GET].concat(), 2);
        rig.connection
            .begin_json(ExchangeId(0), &[])
            .extend_from_slice(b"lost");
        interrupt(&mut rig);
        rig.connection.commit_json(at(1), ExchangeId(0));
        rig.now = 1;
        rig.drain();
        assert_eq!(rig.sent(), "", "nothing of it leaves");
        rig.answer(0);
        assert!(rig.sent().starts_with("HTTP/1.1 202 "), "{}", rig.sent());
    }
    let mut rig = waiting();
    rig.stream(0);
    rig.sent.clear();
    rig.connection
        .begin_event(ExchangeId(0), None, None)
        .extend_from_slice(b"lost");
    rig.connection.commit_json(at(0), ExchangeId(0));
    rig.drain();
    assert_eq!(rig.sent(), "", "an event is no JSON answer");
}

#[test]
fn a_body_that_is_waited_for_is_asked_for() {
    let expecting = "Expect: 100-continue\r\n";
    let post = |fields: &str| request("POST / HTTP/1.1", fields);
    let with_body = post(&format!("{expecting}Content-Length: 2\r\n"));
    let mut accepted = rig(&with_body, 1);
    accepted.bytes(b"ab");
    accepted.answer(0);
    assert_eq!(accepted.log, ["0 body ab"]);
    let mut asked = rig(&with_body, 0);
    asked.accept(0);
    assert_eq!(asked.sent(), "HTTP/1.1 100 Continue\r\n\r\n");
    let mut refused = rig(&with_body, 0);
    refused.answer(0);
    assert_eq!(refused.statuses(), ["202"], "the final status at once");
    assert_eq!(refused.state(), "Closed");
    for unasked in [
        post(expecting),
        post(&format!("{expecting}Content-Length: 0\r\n")),
        b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n".to_vec(),
        b"POST / HTTP/1.0\r\nExpect: x\r\nContent-Length: 2\r\n\r\n".to_vec(),
    ] {
        let mut rig = rig(&unasked, 0);
        rig.accept(0);
        assert_eq!(rig.sent(), "");
    }
    let mut unknown = Rig::new();
    unknown.bytes(&post("Expect: 100-continue, x\r\nContent-Length: 2\r\n"));
    assert_eq!(unknown.statuses(), ["417"]);
}

/// An interim answer may not overtake an answer.
#[test]
fn asking_for_a_body_waits_for_its_turn() {
    let expecting = request(
        "POST / HTTP/1.1",
        "Expect: 100-continue\r\nContent-Length: 2\r\n",
    );
    let mut rig = rig(&[GET, &expecting[..]].concat(), 1);
    rig.accept(1);
    assert_eq!(rig.sent(), "");
    rig.answer(0);
    assert_eq!(rig.statuses(), ["202", "100"]);
}

#[test]
fn a_client_that_ended_its_direction_gets_its_answers() {
    let mut rig = rig(&[GET, GET].concat(), 2);
    rig.end();
    rig.answer(0);
    rig.answer(1);
    assert_eq!(rig.statuses(), ["202", "202"]);
    assert!(rig.sent().ends_with("Connection: close\r\n\r\n"));
    assert_eq!(rig.log, ["closed", "finish"]);
}

#[test]
fn the_end_is_found_behind_what_was_sent_before_it() {
    // There is no body, the owner answers at once.
    let mut rig = deciding_get();
    rig.end();
    rig.answer(0);
    assert!(rig.sent().ends_with("Connection: close\r\n\r\n"));
    assert_eq!(rig.log, ["closed", "finish"]);
    // The body is there, the owner decides late.
    let mut rig = super::rig(&[POST, b"abcd"].concat(), 0);
    rig.end();
    rig.accept(0);
    rig.answer(0);
    rig.log.retain(|line| line != "resume");
    assert_eq!(rig.log, ["0 body abcd", "closed", "finish"]);
    // It is not.
    let mut rig = super::rig(&[POST, b"abc"].concat(), 0);
    rig.end();
    rig.accept(0);
    assert_eq!(rig.statuses(), ["400"]);
    rig.log.retain(|line| line != "resume");
    assert_eq!(rig.log, ["0 gone", "closed", "finish"]);
    // More requests wait than may be open.
    let one = Limits {
        pipelined_requests_max: 1,
        ..limits()
    };
    let mut rig = Rig::with(&one);
    rig.bytes(&[GET, GET, b"GE"].concat());
    rig.end();
    rig.accept(0);
    rig.answer(0);
    rig.accept(1);
    rig.answer(1);
    assert_eq!(rig.statuses(), ["202", "202", "400"]);
    assert_eq!(rig.state(), "Closed");
}

#[test]
fn whoever_was_told_of_a_request_is_told_that_it_is_gone() {
    let mut rig = rig(&[GET, GET, GET, POST].concat(), 3);
    rig.stream(0);
    rig.connection.respond(at(0), ExchangeId(1), 202, &[], b"");
    let mut rig = rig.forget();
    rig.fault();
    assert_eq!(rig.log, ["0 gone", "2 gone", "3 gone", "closed"]);
}

/// Nothing may follow an answer that ends with the connection, so nothing is read behind a request
/// that may get one.
#[test]
fn requests_of_an_old_client_are_served_one_by_one() {
    let old = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let mut rig = rig(&[&old[..], old, old].concat(), 1);
    assert!(rig.connection.asks.paused);
    rig.answer(0);
    assert_eq!(rig.log, ["1 head GET /"]);
    rig.stream(1);
    rig.connection.finish_sse(at(0), ExchangeId(1));
    rig.drain();
    assert_eq!(rig.log, ["1 head GET /", "resume", "closed", "finish"]);
}

#[test]
fn a_request_that_cannot_be_served_is_named() {
    for (fields, status, text) in [
        (
            "Content-Encoding: gzip\r\n",
            "415",
            "Content-Encoding is not supported\n",
        ),
        (
            "Content-Encoding: identity\r\n",
            "415",
            "Content-Encoding is not supported\n",
        ),
        (
            "Content-Length: 101\r\n",
            "413",
            "body is longer than 100 bytes\n",
        ),
        (
            "Content-Length: x\r\n",
            "400",
            "Content-Length is not a decimal number\n",
        ),
    ] {
        let mut rig = Rig::new();
        rig.bytes(&request("POST / HTTP/1.1", fields));
        assert_eq!(rig.statuses(), [status]);
        assert!(
            rig.sent()
                .ends_with(&format!("Connection: close\r\n\r\n{text}")),
            "{fields}"
        );
        let names = rig.sent().contains("Accept-Encoding: identity\r\n");
        assert_eq!(names, status == "415");
        assert_eq!(rig.log, ["closed", "finish"], "its owner is not told");
    }
}

#[test]
fn other_protocols_are_refused_at_once() {
    let tls: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    for (bytes, status) in [
        (&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], "505"),
        (tls, "400"),
        (b"\xff\x00\x80", "400"),
        (b"SSH-2.0-OpenSSH\r\n", "400"),
        (b"GET / HTTP/1.2\r\nHost: h\r\n\r\n", "505"),
        (b"{\"jsonrpc\":\"2.0\"}\n", "400"),
    ] {
        let mut rig = Rig::new();
        rig.bytes(bytes);
        assert_eq!(rig.statuses(), [status], "{bytes:?}");
        assert_eq!(rig.log, ["closed", "finish"]);
    }
}

#[test]
fn whether_anything_would_be_lost_is_known() {
    let mut rig = head();
    assert!(rig.connection.is_idle());
    rig.bytes(&GET[..5]);
    assert!(!rig.connection.is_idle());
    rig.bytes(&GET[5..]);
    assert!(!rig.connection.is_idle());
    rig.accept(0);
    assert!(!rig.connection.is_idle());
    rig.answer(0);
    assert!(rig.connection.is_idle());
    assert_eq!(rig.connection.wire(), WIRE);
}
