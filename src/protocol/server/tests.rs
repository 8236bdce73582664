mod relay;

use super::modern::REMOVED;
use super::*;
use crate::limits::Limits;

/// Collects messages as text.
#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
    lanes: Vec<Lane>,
    lines: Vec<String>,
}

impl MessageSink for Lines {
    fn begin(&mut self, lane: Lane) -> &mut Vec<u8> {
        self.lanes.push(lane);
        self.buffer.clear();
        &mut self.buffer
    }

    fn commit(&mut self) {
        self.lines
            .push(String::from_utf8(self.buffer.clone()).expect("UTF-8"));
    }

    fn rollback(&mut self) {}
}

/// A peer, what it wrote, and what it asked of those behind it.
struct Bench {
    peer: ServerPeer,
    sink: Lines,
}

impl Bench {
    fn new() -> Self {
        Self::with(Limits::default())
    }

    fn with(limits: Limits) -> Self {
        let config = ServerConfig {
            server_info: r#"{"name":"t","version":"1"}"#.to_owned(),
            capabilities: r#"{"tools":{}}"#.to_owned(),
            modern_capabilities: r#"{"tools":{"listChanged":true}}"#.to_owned(),
            instructions: None,
            changing: Changing {
                tools: true,
                ..Changing::default()
            },
            resource_updates: true,
            task_updates: true,
            relays_log_level: false,
            awaits_introduction: false,
            relays_subscriptions: false,
            cache_ttl_ms: 1_000,
            limits,
        };
        Self {
            peer: ServerPeer::new(Arc::new(config)),
            sink: Lines::default(),
        }
    }

    fn negotiated(version: &str) -> Self {
        let mut bench = Self::new();
        bench.say(&format!(r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"c","version":"0"}}}}}}"#));
        bench.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        bench
    }

    /// What the peer writes at once.
    fn say(&mut self, message: &str) -> Vec<String> {
        self.peer
            .handle_message(Scope::default(), message.as_bytes(), &mut self.sink);
        std::mem::take(&mut self.sink.lines)
    }

    fn request(&mut self) -> ServerRequest {
        match self.peer.poll_event() {
            Some(ServerEvent::Request(request)) => request,
            other => panic!("no request but {other:?}"),
        }
    }

    fn respond(&mut self, key: RequestKey, result: &str) -> Vec<String> {
        self.peer
            .respond(key, Answer::Result(result), &mut self.sink);
        std::mem::take(&mut self.sink.lines)
    }
}

const MODERN: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

#[test]
fn every_handshake_revision_is_negotiated() {
    for (asked, answered) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2024-10-07", "2025-11-25"),
        ("nonsense", "2025-11-25"),
    ] {
        let mut bench = Bench::new();
        let lines = bench.say(&format!(
            r#"{{"jsonrpc":"2.0","id":"i","method":"initialize","params":{{"protocolVersion":"{asked}"}}}}"#
        ));
        assert_eq!(
            lines,
            [format!(
                r#"{{"jsonrpc":"2.0","id":"i","result":{{"protocolVersion":"{answered}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"t","version":"1"}}}}}}"#
            )]
        );
    }
}

#[test]
fn ids_are_echoed_exactly() {
    let mut bench = Bench::new();
    for id in ["1", "-0", "18446744073709551615", r#""a\u0062\/""#, r#""""#] {
        let lines = bench.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
        assert_eq!(
            lines,
            [format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)]
        );
    }
    for id in ["1.5", "null", "true", "{}", "18446744073709551616", "1e3"] {
        let lines = bench.say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#));
        assert!(
            lines[0].starts_with(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600"#),
            "{lines:?}"
        );
    }
}

#[test]
fn unreadable_messages_are_answered_and_the_next_is_served() {
    let mut bench = Bench::new();
    for (text, code) in [
        ("nonsense", -32700),
        ("{\"jsonrpc\":", -32700),
        ("42", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600),
    ] {
        let lines = bench.say(text);
        assert_eq!(lines.len(), 1, "{text}");
        assert!(
            lines[0].contains(&format!(r#""code":{code},"#)),
            "{text}: {}",
            lines[0]
        );
    }
    assert_eq!(
        bench
            .say(r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#)
            .len(),
        1
    );
    assert!(
        bench
            .say(r#"{"jsonrpc":"2.0","id":9,"result":{}}"#)
            .is_empty(),
        "responses are never answered"
    );
    assert_eq!(bench.peer.tally().unexpected_responses, 1);
}

#[test]
fn a_request_is_answered_once_and_not_after_a_cancel() {
    let mut bench = Bench::negotiated("2025-11-25");
    bench.say(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"x"}}"#);
    let key = bench.request().key;
    let refused = bench.say(r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#);
    assert!(
        refused[0].contains("-32600") && refused[0].contains("in use"),
        "{refused:?}"
    );
    assert_eq!(
        bench.respond(key, "{}"),
        [r#"{"jsonrpc":"2.0","id":5,"result":{}}"#]
    );
    assert!(bench.respond(key, "{}").is_empty());
    assert_eq!(
        bench
            .say(r#"{"jsonrpc":"2.0","id":5,"method":"ping"}"#)
            .len(),
        1,
        "free again"
    );

    bench.say(r#"{"jsonrpc":"2.0","id":"\u0061","method":"tools/call","params":{"name":"x"}}"#);
    let key = bench.request().key;
    bench.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}"#);
    assert!(matches!(bench.peer.poll_event(), Some(ServerEvent::Cancelled(gone)) if gone == key));
    assert!(bench.respond(key, "{}").is_empty());
}

#[test]
fn batches_exist_in_one_revision() {
    let three = r#"[{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":3,"method":"initialize","params":{}}]"#;
    let mut bench = Bench::negotiated("2025-03-26");
    let lines = bench.say(three);
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with(r#"[{"jsonrpc":"2.0","id":2,"result":{}},{"jsonrpc":"2.0","id":3,"error":{"code":-32600"#), "{lines:?}");
    assert!(lines[0].ends_with("}]"));
    let lines = bench.say("[]");
    assert!(
        lines[0].starts_with(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600"#),
        "{lines:?}"
    );
    assert!(
        bench
            .say(r#"[{"jsonrpc":"2.0","method":"notifications/x"}]"#)
            .is_empty()
    );
    let lines = bench.say(r#"[1,{"jsonrpc":"2.0","id":4,"method":"ping"}]"#);
    assert!(
        lines[0].contains(r#""id":null,"error":{"code":-32600"#)
            && lines[0].contains(r#""id":4,"result":{}"#)
    );

    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let mut bench = Bench::negotiated(version);
        let lines = bench.say(three);
        assert_eq!(lines.len(), 1, "one refusal for the line");
        assert!(
            lines[0].starts_with(r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32600"#),
            "{lines:?}"
        );
        assert!(bench.peer.poll_event().is_none(), "nothing was executed");
    }
}

#[test]
fn a_batch_waits_for_its_last_answer() {
    let mut bench = Bench::negotiated("2025-03-26");
    let lines = bench.say(r#"[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b"},{"jsonrpc":"2.0","id":3,"method":"c"}]"#);
    assert!(lines.is_empty());
    let keys = [
        bench.request().key,
        bench.request().key,
        bench.request().key,
    ];
    assert!(bench.respond(keys[1], "{}").is_empty());
    assert!(bench.respond(keys[0], "{}").is_empty());
    let lines = bench
        .say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}"#);
    assert_eq!(
        lines,
        [r#"[{"jsonrpc":"2.0","id":2,"result":{}},{"jsonrpc":"2.0","id":1,"result":{}}]"#]
    );
}

#[test]
fn a_modern_request_needs_its_metadata() {
    let mut bench = Bench::new();
    let mut code = |meta: &str| {
        let lines = bench.say(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{"_meta":{{{meta}}}}}}}"#));
        lines[0].split(r#""code":"#).nth(1).map_or(0, |rest| {
            rest.split(',')
                .next()
                .and_then(|n| n.parse().ok())
                .unwrap_or(0)
        })
    };
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let capabilities = r#""io.modelcontextprotocol/clientCapabilities":{}"#;
    assert_eq!(code(""), -32602);
    assert_eq!(code(version), -32602);
    assert_eq!(code(capabilities), -32602);
    assert_eq!(
        code(
            r#""io.modelcontextprotocol/protocolVersion":"2025-11-25","io.modelcontextprotocol/clientCapabilities":{}"#
        ),
        -32022
    );
    assert_eq!(code(&format!("{version},{capabilities}")), 0);
    let lines = bench.say(r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"v999","io.modelcontextprotocol/clientCapabilities":{}}}}"#);
    assert!(
        lines[0].contains(r#""data":{"supported":["2026-07-28","#)
            && lines[0].contains(r#""requested":"v999""#),
        "{lines:?}"
    );
}

#[test]
fn discovery_and_results_carry_what_the_stateless_era_asks() {
    let mut bench = Bench::new();
    let lines = bench.say(&format!(
        r#"{{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{{{MODERN}}}}}"#
    ));
    for part in [
        r#""resultType":"complete""#,
        r#""supportedVersions":["2026-07-28","2025-11-25""#,
        r#""ttlMs":1000"#,
        r#""cacheScope":"private""#,
        r#""io.modelcontextprotocol/serverInfo":{"name":"t","version":"1"}"#,
    ] {
        assert!(lines[0].contains(part), "{part} is missing in {}", lines[0]);
    }
    bench.say(&format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"x",{MODERN}}}}}"#
    ));
    let request = bench.request();
    assert_eq!(request.revision, Revision::V2026_07_28);
    let lines = bench.respond(request.key, r#"{"content":[]}"#);
    assert_eq!(
        lines,
        [
            r#"{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"t","version":"1"}}}}"#
        ]
    );
}

#[test]
fn methods_of_the_other_era_do_not_exist() {
    let mut bench = Bench::negotiated("2025-11-25");
    for method in REMOVED {
        let lines = bench.say(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{MODERN}}}}}"#
        ));
        assert!(
            lines[0].contains("-32601") && lines[0].contains("2026-07-28"),
            "{method}: {lines:?}"
        );
    }
    let lines = bench.say(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{"_meta":{{"io.modelcontextprotocol/logLevel":"loud",{}}}}}}}"#, &MODERN[9..MODERN.len() - 1]));
    assert!(
        lines[0].contains("-32602") && lines[0].contains("loud"),
        "{lines:?}"
    );
}

#[test]
fn a_listen_stream_is_acknowledged_first_and_ends_gracefully() {
    let mut bench = Bench::new();
    let listen = |id: &str, filter: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{{MODERN},"notifications":{filter}}}}}"#
        )
    };
    let lines = bench.say(&listen(
        r#""s""#,
        r#"{"toolsListChanged":true,"promptsListChanged":true}"#,
    ));
    assert_eq!(
        lines,
        [
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"},"notifications":{"toolsListChanged":true}}}"#
        ]
    );
    bench.say(&listen("7", "{}"));
    bench.peer.list_changed(List::Tools, &mut bench.sink);
    assert_eq!(
        std::mem::take(&mut bench.sink.lines),
        [
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}"#
        ],
        "only the stream that asked"
    );
    assert!(
        bench
            .say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#)
            .is_empty()
    );
    bench.peer.end_subscriptions(&mut bench.sink);
    assert_eq!(
        std::mem::take(&mut bench.sink.lines),
        [
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s","reason":"server is shutting down"}}"#,
            r#"{"jsonrpc":"2.0","id":"s","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}"#,
        ]
    );
    assert_eq!(bench.peer.open_requests(), 0);
}

#[test]
fn list_changes_reach_a_legacy_client_after_its_handshake() {
    let mut bench = Bench::negotiated("2025-06-18");
    bench.peer.list_changed(List::Tools, &mut bench.sink);
    bench.peer.list_changed(List::Prompts, &mut bench.sink);
    assert_eq!(
        std::mem::take(&mut bench.sink.lines),
        [r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}"#],
        "prompts never change here"
    );
}

#[test]
fn notifications_wait_for_the_handshake_and_the_oldest_goes_first() {
    let mut bench = Bench::with(Limits {
        notifications_held_max: 2,
        ..Limits::default()
    });
    for n in 1..=3 {
        bench.peer.notify(
            "notifications/x",
            format!(r#"{{"n":{n}}}"#),
            &mut bench.sink,
        );
    }
    assert!(bench.sink.lines.is_empty());
    let lines = bench.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    assert_eq!(
        lines,
        [
            r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"n":2}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"n":3}}"#,
        ]
    );
    assert_eq!(bench.peer.tally().notifications_dropped, 1);
}

#[test]
fn progress_goes_to_those_who_asked_and_rises() {
    for (version, message) in [("2024-11-05", ""), ("2025-03-26", r#","message":"half""#)] {
        let mut bench = Bench::negotiated(version);
        bench.say(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":"p"}}}"#);
        let request = bench.request();
        assert!(request.wants_progress);
        for progress in [1, 1, 0, 2] {
            bench
                .peer
                .progress(request.key, progress, Some(4), "half", &mut bench.sink);
        }
        let sent = |n| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"p","progress":{n},"total":4{message}}}}}"#
            )
        };
        assert_eq!(std::mem::take(&mut bench.sink.lines), [sent(1), sent(2)]);
        bench.respond(request.key, "{}");
        bench
            .peer
            .progress(request.key, 9, None, "", &mut bench.sink);
        assert!(bench.sink.lines.is_empty(), "nothing after the answer");
    }
}

#[test]
fn log_messages_are_silent_until_a_level_is_set() {
    let mut bench = Bench::negotiated("2025-11-25");
    bench
        .peer
        .log(LogLevel::Error, "l", "\"x\"", &mut bench.sink);
    assert!(bench.sink.lines.is_empty());
    let lines = bench.say(
        r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"warning"}}"#,
    );
    assert_eq!(lines, [r#"{"jsonrpc":"2.0","id":1,"result":{}}"#]);
    bench
        .peer
        .log(LogLevel::Info, "l", "\"x\"", &mut bench.sink);
    bench
        .peer
        .log(LogLevel::Warning, "l", "\"x\"", &mut bench.sink);
    assert_eq!(
        std::mem::take(&mut bench.sink.lines),
        [
            r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"l","data":"x"}}"#
        ]
    );
    let lines = bench
        .say(r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}"#);
    assert!(lines[0].contains("-32602"), "{lines:?}");
}

#[test]
fn requests_open_max_and_subscriptions_open_max() {
    let mut bench = Bench::with(Limits {
        requests_open_max: 2,
        subscriptions_open_max: 1,
        ..Limits::default()
    });
    for id in 1..=2 {
        assert!(
            bench
                .say(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"a"}}"#))
                .is_empty()
        );
    }
    let lines = bench.say(r#"{"jsonrpc":"2.0","id":3,"method":"a"}"#);
    assert!(
        lines[0].contains("-32603") && lines[0].contains("limit 2"),
        "{lines:?}"
    );
    let listen = |id: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"subscriptions/listen","params":{{{MODERN},"notifications":{{}}}}}}"#
        )
    };
    assert!(bench.say(&listen(4))[0].contains("acknowledged"));
    assert!(bench.say(&listen(5))[0].contains("limit 1"));
    let key = bench.request().key;
    bench.respond(key, "{}");
    assert!(
        bench
            .say(r#"{"jsonrpc":"2.0","id":6,"method":"a"}"#)
            .is_empty(),
        "room again"
    );
}

/// The answer to a modern `tools/call` (or a read, which may be kept), without the frame around its result.
fn modern_result(result: &str, list: bool) -> String {
    let mut bench = Bench::new();
    bench.say(r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#);
    let key = bench.request().key;
    let answer = if list {
        Answer::List(result)
    } else {
        Answer::Result(result)
    };
    bench.peer.respond(key, answer, &mut bench.sink);
    let line = bench.sink.lines.pop().expect("an answer");
    let value: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
    assert_eq!(value["id"], 2);
    let frame = r#"{"jsonrpc":"2.0","id":2,"result":"#;
    let inner = line
        .strip_prefix(frame)
        .and_then(|rest| rest.strip_suffix('}'));
    inner.expect("the frame").to_owned()
}

#[test]
fn what_a_result_says_itself_stays_byte_for_byte() {
    let info = r#""io.modelcontextprotocol/serverInfo":{"name":"t","version":"1"}"#;
    let ours = format!(r#""_meta":{{{info}}}"#);
    let rows = [
        ("{}".to_owned(), format!(r#"{{"resultType":"complete",{ours}}}"#)),
        (
            r#"{"resultType":"odd"}"#.to_owned(),
            format!(r#"{{"resultType":"odd",{ours}}}"#),
        ),
        (
            r#"{ "a" : 1.0 , "_meta" : { "x": 1e2 } , "b":"é\u00e9" }"#.to_owned(),
            format!(r#"{{"resultType":"complete","a" : 1.0 , "_meta" : {{ "x": 1e2 ,{info}}} , "b":"é\u00e9"}}"#),
        ),
        (
            r#"{"_meta":{},"a":[{"_meta":{"in":1},"resultType":2}]}"#.to_owned(),
            format!(r#"{{"resultType":"complete","_meta":{{{info}}},"a":[{{"_meta":{{"in":1}},"resultType":2}}]}}"#),
        ),
        (
            r#"{"a":{"_meta":{"in":1}}}"#.to_owned(),
            format!(r#"{{"resultType":"complete","a":{{"_meta":{{"in":1}}}},{ours}}}"#),
        ),
        // Spelled with escapes, it is the same member.
        (
            r#"{"\u005fmeta":{"x":1},"result\u0054ype":"odd"}"#.to_owned(),
            format!(r#"{{"\u005fmeta":{{"x":1,{info}}},"result\u0054ype":"odd"}}"#),
        ),
        // Whose server it is, is said.
        (
            r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"up"}}}"#.to_owned(),
            r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"up"}}}"#.to_owned(),
        ),
        // What is no object cannot be kept: clients would refuse the whole.
        (
            r#"{"_meta":null,"a":1}"#.to_owned(),
            format!(r#"{{"resultType":"complete","_meta":{{{info}}},"a":1}}"#),
        ),
    ];
    for (result, expected) in rows {
        assert_eq!(modern_result(&result, false), expected);
    }
}

#[test]
fn what_a_list_says_itself_of_its_life_stays() {
    let ours = r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"t","version":"1"}}"#;
    for (own, all) in [
        ("", r#""ttlMs":1000,"cacheScope":"private""#),
        (r#""ttlMs":5"#, r#""ttlMs":5,"cacheScope":"private""#),
        (
            r#""cacheScope":"public""#,
            r#""cacheScope":"public","ttlMs":1000"#,
        ),
        (
            r#""ttlMs":0,"cacheScope":"public""#,
            r#""ttlMs":0,"cacheScope":"public""#,
        ),
    ] {
        let expected = format!(r#"{{"resultType":"complete",{all},{ours}}}"#);
        assert_eq!(modern_result(&format!("{{{own}}}"), true), expected);
    }
}

/// A listen request with so many texts in a list of its filter.
fn listen_to(list: &str, count: usize) -> String {
    let texts: Vec<String> = (0..count).map(|n| format!(r#""a:{n}""#)).collect();
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{{"notifications":{{"{list}":[{}]}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#,
        texts.join(",")
    )
}

#[test]
fn resource_subscriptions_max_and_task_subscriptions_max() {
    let limits = Limits {
        resource_subscriptions_max: 3,
        task_subscriptions_max: 4,
        ..Limits::default()
    };
    for count in [2, 3] {
        let said = Bench::with(limits.clone()).say(&listen_to("resourceSubscriptions", count));
        assert!(said[0].contains("acknowledged"), "{said:?}");
    }
    let said = Bench::with(limits.clone()).say(&listen_to("resourceSubscriptions", 4));
    let text = "more than 3 resource subscriptions, limit 3 (resource_subscriptions_max)";
    assert!(said[0].contains(text), "{said:?}");
    for count in [3, 4] {
        let mut bench = Bench::with(limits.clone());
        assert_eq!(bench.say(&listen_to("taskIds", count)), [""; 0]);
        let asked = bench.peer.poll_event();
        let Some(ServerEvent::ListenTasks { key, tasks, .. }) = asked else {
            panic!("{asked:?}");
        };
        assert_eq!(tasks.len(), count);
        bench.peer.listen_to_tasks(key, tasks, &mut bench.sink);
        assert!(bench.sink.lines[0].contains(r#""taskIds":["a:0","#));
    }
    let said = Bench::with(limits).say(&listen_to("taskIds", 5));
    let text = "more than 4 task subscriptions, limit 4 (task_subscriptions_max)";
    assert!(said[0].contains(text), "{said:?}");
}

#[test]
fn id_bytes_max() {
    let limits = Limits {
        id_bytes_max: 12,
        ..Limits::default()
    };
    let ask = |id: &str| {
        let ping = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        Bench::with(limits.clone())
            .say(&ping)
            .pop()
            .expect("an answer")
    };
    for id in [
        "12345678901",
        "123456789012",
        "\"123456789\"",
        "\"1234567890\"",
    ] {
        assert!(
            ask(id).starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result""#)),
            "{id}"
        );
    }
    let text = "id is too long: 13 bytes, limit 12 (id_bytes_max)";
    for id in ["1234567890123", "\"12345678901\""] {
        assert!(ask(id).contains(text), "{}", ask(id));
    }
}

#[test]
fn a_progress_token_is_as_long_as_an_id_may_be() {
    let limits = Limits {
        id_bytes_max: 12,
        ..Limits::default()
    };
    for (token, heard) in [("\"1234567890\"", true), ("\"12345678901\"", false)] {
        let mut bench = Bench::with(limits.clone());
        bench.say(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"a","params":{{"_meta":{{"progressToken":{token}}}}}}}"#
        ));
        let key = bench.request().key;
        bench.peer.progress(key, 1, None, "", &mut bench.sink);
        assert_eq!(!bench.sink.lines.is_empty(), heard, "{token}");
    }
}

/// A legacy client subscribes one resource after the other.
#[test]
fn resource_subscriptions_max_of_a_session() {
    let mut bench = Bench::with(Limits {
        resource_subscriptions_max: 2,
        ..Limits::default()
    });
    let mut subscribe = |what: &str, uri: &str| {
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"resources/{what}","params":{{"uri":"{uri}"}}}}"#
        );
        bench.say(&message).pop().expect("an answer")
    };
    for uri in ["a:1", "a:2", "a:2"] {
        assert!(subscribe("subscribe", uri).contains("\"result\":{}"));
    }
    let text = "busy: 2 resources are subscribed, limit 2 (resource_subscriptions_max)";
    assert!(subscribe("subscribe", "a:3").contains(text));
    subscribe("unsubscribe", "a:1");
    assert!(subscribe("subscribe", "a:3").contains("\"result\":{}"));
}

#[test]
fn an_error_of_somebody_else_keeps_its_bytes_but_for_a_code_that_is_no_more() {
    let raw = r#"{ "code":-32002,"message":"\u00e9","x":[1.0] }"#;
    let meta = r#","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    for (meta, expected) in [
        ("", raw.to_owned()),
        (meta, raw.replace("-32002", "-32602")),
    ] {
        let mut bench = Bench::new();
        bench.say(&format!(
            r#"{{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{{"uri":"x"{meta}}}}}"#
        ));
        let key = bench.request().key;
        bench
            .peer
            .respond(key, Answer::Passed(raw), &mut bench.sink);
        assert_eq!(
            bench.sink.lines.pop(),
            Some(format!(r#"{{"jsonrpc":"2.0","id":2,"error":{expected}}}"#))
        );
    }
}

#[test]
fn a_client_is_asked_for_a_request_or_for_its_session_and_told_when_it_is_over() {
    let mut bench = Bench::new();
    let session = Whose::Session(None);
    let ask = |bench: &mut Bench, whose, params| {
        bench.sink.lanes.clear();
        let ask = bench.peer.ask(whose, "roots/list", params, &mut bench.sink);
        (ask, std::mem::take(&mut bench.sink.lines))
    };
    assert_eq!(
        ask(&mut bench, session, None),
        (None, Vec::new()),
        "too early"
    );
    bench = Bench::negotiated("2025-06-18");
    bench.say(r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"t"}}"#);
    let key = bench.request().key;

    let (first, lines) = ask(&mut bench, session, None);
    assert_eq!(lines, [r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#]);
    assert_eq!(bench.sink.lanes, [Lane::Session]);
    let (second, lines) = ask(&mut bench, Whose::Session(Some(key)), Some("{}"));
    assert_eq!(
        lines,
        [r#"{"jsonrpc":"2.0","id":2,"method":"roots/list","params":{}}"#]
    );
    let (third, _) = ask(&mut bench, Whose::Request(key), None);
    assert_eq!(bench.sink.lanes, [Lane::Request(key)]);

    bench.sink.lanes.clear();
    let third = third.expect("asked");
    bench.peer.withdraw(third, "enough", &mut bench.sink);
    assert_eq!(bench.sink.lanes, [Lane::Request(key)]);
    assert_eq!(
        std::mem::take(&mut bench.sink.lines),
        [
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"enough"}}"#
        ]
    );
    // With its request gone, what belonged to it is of no interest; what is of the session stays.
    bench.respond(key, "{}");
    for (id, ask) in [(1, first), (2, second)] {
        bench.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"n":1.0}}}}"#
        ));
        match bench.peer.poll_event() {
            Some(ServerEvent::Answered { ask: of, outcome }) => {
                assert_eq!(Some(of), ask);
                assert_eq!(outcome.as_deref(), Ok(r#"{"n":1.0}"#));
            }
            other => panic!("no answer but {other:?}"),
        }
    }
    bench.say(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#);
    assert!(bench.peer.poll_event().is_none());
    assert_eq!(bench.peer.tally().unexpected_responses, 1);
}

#[test]
fn a_result_that_wants_input_is_not_to_be_kept() {
    let mut bench = Bench::new();
    bench.say(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{{{MODERN}}}}}"#
    ));
    let key = bench.request().key;
    let wants = r#"{"resultType":"input_required","requestState":"s"}"#;
    bench
        .peer
        .respond(key, Answer::List(wants), &mut bench.sink);
    assert!(
        !bench.sink.lines[0].contains("ttlMs"),
        "{:?}",
        bench.sink.lines
    );
    assert!(!bench.sink.lines[0].contains("cacheScope"));
}
