//! Limits at their edges.

use super::*;

/// What became of some bytes: the statuses sent and what was told.
fn outcome(limits: &Limits, bytes: &[u8]) -> (Vec<String>, Vec<String>) {
    let mut all = Vec::new();
    for step in [bytes.len(), 1] {
        let mut rig = Rig::with(limits);
        for piece in bytes.chunks(step) {
            rig.bytes(piece);
            if matches!(rig.connection.phase, Phase::Deciding(_)) {
                rig.accept(0);
            }
        }
        // Whether reading stops meanwhile depends on the cuts.
        rig.log.retain(|line| line != "pause" && line != "resume");
        all.push((rig.statuses(), rig.log));
    }
    assert_eq!(all[0], all[1], "{}", String::from_utf8_lossy(bytes));
    all.remove(0)
}

/// Whether a request with a part of this size gets through; a refusal is this status.
fn edge(limits: &Limits, limit: usize, status: &str, request: impl Fn(usize) -> String) {
    for (size, fits) in [(limit - 1, true), (limit, true), (limit + 1, false)] {
        let (statuses, log) = outcome(limits, request(size).as_bytes());
        let body = log.iter().any(|line| line.contains("body"));
        assert_eq!(body, fits, "{size} of {limit}: {log:?}");
        assert_eq!(statuses.is_empty(), fits, "{size} of {limit}");
        assert!(fits || statuses == [status], "{statuses:?}");
        let gone = log.iter().any(|line| line == "0 gone");
        let told = log.iter().any(|line| line.contains("head"));
        assert_eq!(gone, told && !fits, "whoever was told is told of the end");
    }
}

#[test]
fn target_bytes_max() {
    let limits = Limits {
        target_bytes_max: 50,
        ..limits()
    };
    edge(&limits, 50, "414", |size| {
        format!("GET {:/<size$} HTTP/1.1\r\nHost: h\r\n\r\n", "/")
    });
}

#[test]
fn head_bytes_max() {
    let limits = Limits {
        head_bytes_max: 50,
        ..limits()
    };
    let frame = "GET / HTTP/1.1\r\nHost: h\r\nX: \r\n\r\n".len();
    edge(&limits, 50, "431", |size| {
        format!(
            "GET / HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n",
            "x".repeat(size - frame)
        )
    });
    let frame = "GET / HTTP/1.1\r\n".len();
    let (statuses, _) = outcome(
        &limits,
        format!("GET /{} HT", "x".repeat(frame + 40)).as_bytes(),
    );
    assert_eq!(statuses, ["414"]);
}

#[test]
fn head_fields_max() {
    let limits = Limits {
        head_fields_max: 4,
        ..limits()
    };
    edge(&limits, 4, "431", |fields| {
        format!(
            "GET / HTTP/1.1\r\nHost: h\r\n{}\r\n",
            "A: b\r\n".repeat(fields - 1)
        )
    });
}

#[test]
fn message_bytes_max() {
    let limits = Limits {
        message_bytes_max: 40,
        ..limits()
    };
    edge(&limits, 40, "413", |size| {
        let body = "x".repeat(size);
        format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {size}\r\n\r\n{body}")
    });
    edge(&limits, 40, "413", |size| {
        let body = "x".repeat(size);
        format!(
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n"
        )
    });
    edge(&limits, 40, "413", |size| {
        let chunks = "1\r\nx\r\n".repeat(size);
        format!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
    });
}

#[test]
fn chunk_extension_bytes_max() {
    let limits = Limits {
        chunk_extension_bytes_max: 20,
        ..limits()
    };
    edge(&limits, 20, "400", |size| {
        format!(
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;{}\r\nx\r\n0\r\n\r\n",
            "e".repeat(size - 1)
        )
    });
}

#[test]
fn trailer_bytes_max() {
    let limits = Limits {
        trailer_bytes_max: 20,
        ..limits()
    };
    edge(&limits, 20, "431", |size| {
        format!(
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX:{}\r\n\r\n",
            "t".repeat(size - "X:\r\n".len())
        )
    });
}

#[test]
fn pipelined_requests_max() {
    let limits = Limits {
        pipelined_requests_max: 3,
        ..limits()
    };
    for (requests, paused) in [(2, false), (3, false), (4, true)] {
        let mut rig = Rig::with(&limits);
        rig.bytes(&GET.repeat(requests));
        for exchange in 0..u32::try_from(requests).expect("few") {
            rig.accept(exchange);
        }
        let heads = rig.log.iter().filter(|line| line.contains("head")).count();
        assert_eq!(heads, requests.min(3));
        assert_eq!(rig.connection.asks.paused, paused, "{requests}");
        rig.answer(0);
        assert!(!rig.connection.asks.paused, "{requests}: {:?}", rig.log);
        let heads = rig.log.iter().filter(|line| line.contains("head")).count();
        assert_eq!(heads, requests, "the next one follows");
    }
}

#[test]
fn buffer_trim_interval() {
    let limits = Limits {
        buffer_trim_interval: std::time::Duration::from_millis(300),
        ..limits()
    };
    let mut rig = Rig::with(&limits);
    rig.bytes(POST);
    rig.accept(0);
    rig.bytes(b"body");
    rig.connection.recycle(vec![0; 4]);
    rig.answer(0);
    assert!(rig.connection.spare.capacity() > 0);
    rig.tick(299);
    assert!(rig.connection.spare.capacity() > 0);
    let due = rig.connection.next_deadline().expect("a deadline");
    assert_eq!((due.at, due.why), (at(300).up, "http buffers"));
    rig.tick(300);
    assert_eq!(rig.connection.spare.capacity(), 0);
}

#[test]
fn body_buffer_bytes_max() {
    let limits = Limits {
        body_buffer_bytes_max: 64,
        ..limits()
    };
    for (capacity, kept) in [(63, true), (64, true), (65, false)] {
        let mut rig = Rig::with(&limits);
        rig.connection.recycle(Vec::with_capacity(capacity));
        assert_eq!(rig.connection.spare.capacity() > 0, kept, "{capacity}");
    }
}

#[test]
fn half_close_probes_max_and_half_close_probe_interval() {
    let limits = Limits {
        half_close_probe_interval: std::time::Duration::from_millis(7),
        half_close_probes_max: 3,
        ..limits()
    };
    let mut rig = Rig::with(&limits);
    rig.bytes(GET);
    rig.accept(0);
    rig.stream(0);
    rig.end();
    let mut probed = Vec::new();
    while let Some(due) = rig
        .connection
        .next_deadline()
        .filter(|due| due.why == "http client probe")
    {
        probed.push(due.at.as_millis());
        rig.tick(due.at.as_millis());
    }
    assert_eq!(probed, [7, 7 + 14, 7 + 14 + 28]);
    assert!(rig.sent().ends_with(&"00000003\r\n:\n\n\r\n".repeat(3)));
}

/// However much a client sends ahead, little of it is looked at, and all of it in time.
#[test]
fn a_flood_of_requests_is_read_as_it_is_answered() {
    let mut rig = Rig::new();
    let flood = GET.repeat(2_000);
    rig.bytes(&flood);
    for exchange in 0..2_000 {
        rig.accept(exchange);
        rig.answer(exchange);
    }
    assert_eq!(rig.statuses().len(), 2_000);
    assert!(!rig.connection.asks.paused && rig.connection.stash.is_empty());
}

#[test]
fn out_high_bytes_stops_reading_and_out_low_bytes_starts_it() {
    let limits = Limits {
        out_high_bytes: 1_000,
        out_low_bytes: 500,
        ..limits()
    };
    let mut rig = Rig::with(&limits);
    rig.bytes(GET);
    rig.accept(0);
    rig.reading = false;
    rig.stream(0);
    let fill = |rig: &mut Rig, bytes: usize| {
        let missing = bytes - rig.connection.backlog() - "00000000\r\n\r\n".len();
        rig.connection
            .sse_raw(at(0), ExchangeId(0), &vec![b'\n'; missing]);
        assert_eq!(rig.connection.backlog(), bytes);
        rig.drain();
    };
    fill(&mut rig, 999 - 12);
    fill(&mut rig, 1_000);
    assert_eq!(
        rig.log.last().expect("a line"),
        "0 body ",
        "1,000 are allowed"
    );
    let mut rig = rig.forget();
    fill(&mut rig, 1_013);
    assert_eq!(rig.log, ["pause"]);
    rig.connection.outgoing().advance(512);
    rig.drain();
    assert_eq!(rig.log, ["pause"], "501 are too many to resume");
    rig.connection.outgoing().advance(1);
    rig.drain();
    assert_eq!(rig.log, ["pause", "resume"]);
}

#[test]
fn a_declared_length_allocates_nothing() {
    let limits = Limits {
        message_bytes_max: usize::MAX,
        ..limits()
    };
    let mut rig = Rig::with(&limits);
    rig.bytes(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9999999999999999999\r\n\r\nab");
    rig.accept(0);
    rig.bytes(b"cd");
    assert_eq!(rig.connection.body, b"abcd");
    assert!(rig.connection.body.capacity() < 100);
}
