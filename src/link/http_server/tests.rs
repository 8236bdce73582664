//! The state table of the module, walked row by row; limits at their edges; time to the millisecond.

use super::*;
use crate::clock::Uptime;

const WIRE: WireId = WireId(7);

fn at(ms: u64) -> Now {
    Now {
        up: Uptime::from_millis(ms),
        unix_ms: 784_111_777_000,
    }
}

#[test]
fn a_request_is_answered_and_the_next_one_too() {
    let mut connection = HttpConnection::new(WIRE, &Limits::DEFAULT, at(0));
    for _ in 0..2 {
        let bytes = b"POST /mcp HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}";
        connection.handle_io(at(1), IoEvent::Bytes(bytes));
        let Some(HttpEvent::Head { exchange, head }) = connection.poll_event() else {
            panic!("a head");
        };
        assert_eq!((head.method(), head.path()), ("POST", "/mcp"));
        connection.accept(at(1), exchange);
        let Some(HttpEvent::Body { body, .. }) = connection.poll_event() else {
            panic!("a body");
        };
        assert_eq!(body, b"{}");
        connection
            .begin_json(exchange, &[])
            .extend_from_slice(b"[1]");
        connection.commit_json(at(1), exchange);
        assert!(matches!(connection.poll_io(), Some(IoRequest::Flush(_))));
        assert_eq!(
            String::from_utf8_lossy(connection.outgoing().pending()),
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
             Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length:          3\r\n\r\n[1]"
        );
        connection.outgoing().clear();
    }
}
