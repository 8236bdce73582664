//! What only a server behind us can say: who it is, which resources it tells of, and its own notifications.

use super::*;
use crate::protocol::topic::Topic;

const HELLO: &str = r#"{"jsonrpc":"2.0","id":"h","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"0"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// What a peer knows before the server was met, and what after that.
fn unmet() -> ServerConfig {
    ServerConfig {
        server_info: r#"{"name":"us","version":"1"}"#.to_owned(),
        capabilities: r#"{"never":{}}"#.to_owned(),
        modern_capabilities: r#"{"never":{}}"#.to_owned(),
        instructions: None,
        changing: Changing::default(),
        resource_updates: false,
        task_updates: false,
        relays_log_level: false,
        awaits_introduction: true,
        relays_subscriptions: true,
        cache_ttl_ms: 7,
        limits: Limits::default(),
    }
}

fn met() -> Arc<ServerConfig> {
    Arc::new(ServerConfig {
        server_info: r#"{ "name":"them", "x":1.0 }"#.to_owned(),
        capabilities: r#"{"tools":{ }}"#.to_owned(),
        modern_capabilities: r#"{"tools":{}}"#.to_owned(),
        instructions: Some(r#""a\u0062""#.to_owned()),
        changing: Changing {
            tools: true,
            ..Changing::default()
        },
        resource_updates: true,
        awaits_introduction: false,
        ..unmet()
    })
}

fn bench(config: ServerConfig) -> Bench {
    Bench {
        peer: ServerPeer::new(Arc::new(config)),
        sink: Lines::default(),
    }
}

impl Bench {
    fn opens(&mut self) -> RequestKey {
        match self.peer.poll_event() {
            Some(ServerEvent::Opens(key)) => key,
            other => panic!("no opening but {other:?}"),
        }
    }

    fn lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.sink.lines)
    }

    fn introduce(&mut self, key: RequestKey) -> Vec<String> {
        self.peer.introduce(key, met(), &mut self.sink);
        self.lines()
    }
}

fn modern(id: u32, method: &str, more: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{MODERN}{more}}}}}"#)
}

#[test]
fn a_handshake_waits_until_the_server_was_met() {
    let mut bench = bench(unmet());
    assert_eq!(bench.say(HELLO), [""; 0]);
    let key = bench.opens();
    assert_eq!(
        bench
            .peer
            .client_capabilities()
            .map(|text| text.to_string()),
        Some(r#"{"roots":{}}"#.to_owned()),
        "known before the server is asked"
    );
    // What comes meanwhile is served, and what is held stays held.
    bench
        .peer
        .notify("notifications/x", "{}".to_owned(), &mut bench.sink);
    assert_eq!(bench.say(INITIALIZED), [""; 0]);
    assert_eq!(
        bench.say(r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#),
        [r#"{"jsonrpc":"2.0","id":2,"result":{}}"#]
    );
    bench.say(r#"{"jsonrpc":"2.0","id":3,"method":"tools/list"}"#);
    assert_eq!(bench.request().revision, Revision::V2025_06_18);
    assert_eq!(
        bench.introduce(key),
        [
            r#"{"jsonrpc":"2.0","id":"h","result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{ }},"serverInfo":{ "name":"them", "x":1.0 },"instructions":"a\u0062"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/x","params":{}}"#,
        ]
    );
    // Known by now.
    assert!(bench.say(HELLO)[0].contains("them"));
}

#[test]
fn a_handshake_that_fails_has_not_happened() {
    let mut bench = bench(unmet());
    bench.say(HELLO);
    let key = bench.opens();
    bench.say(INITIALIZED);
    let error = RpcError::new(ErrorCode::InternalError, "server s: exited with code 1");
    bench.peer.refuse_opening(key, &error, &mut bench.sink);
    assert_eq!(
        bench.lines(),
        [
            r#"{"jsonrpc":"2.0","id":"h","error":{"code":-32603,"message":"server s: exited with code 1"}}"#
        ]
    );
    assert_eq!(bench.peer.negotiated(), None);
    bench.say(HELLO);
    let again = bench.opens();
    assert_eq!(bench.introduce(again).len(), 1);
    assert_eq!(bench.peer.negotiated(), Some(Revision::V2025_06_18));
}

#[test]
fn a_cancelled_opening_is_no_more_than_known() {
    let mut bench = bench(unmet());
    bench.say(&modern(1, "server/discover", ""));
    let key = bench.opens();
    bench.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    assert!(matches!(bench.peer.poll_event(), Some(ServerEvent::Cancelled(of)) if of == key));
    assert_eq!(bench.introduce(key), [""; 0]);
    let again = bench.say(&modern(2, "server/discover", ""));
    assert!(
        again[0].contains(r#""instructions":"a\u0062""#),
        "{again:?}"
    );
}

#[test]
fn a_discovery_waits_too_and_tells_of_that_server() {
    let mut bench = bench(unmet());
    assert_eq!(bench.say(&modern(1, "server/discover", "")), [""; 0]);
    let key = bench.opens();
    assert_eq!(
        bench.introduce(key),
        [
            r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"capabilities":{"tools":{}},"instructions":"a\u0062","ttlMs":7,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":{ "name":"them", "x":1.0 }}}}"#
        ]
    );
}

#[test]
fn openings_count_as_open_requests() {
    let mut config = unmet();
    config.limits.requests_open_max = 2;
    let mut bench = bench(config);
    for id in [1, 2] {
        assert_eq!(bench.say(&modern(id, "server/discover", "")), [""; 0]);
    }
    let refused = bench.say(&modern(3, "server/discover", ""));
    assert!(refused[0].contains("requests_open_max"), "{refused:?}");
    assert!(bench.say(HELLO)[0].contains("requests_open_max"));
}

const LISTEN: &str = r#","notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a:1","a:2"]}"#;

#[test]
fn a_listen_stream_begins_with_what_was_granted_and_then_tells_what_was_held() {
    let mut bench = bench(unmet());
    assert_eq!(
        bench.say(&modern(9, "subscriptions/listen", LISTEN)),
        [""; 0]
    );
    let key = bench.opens();
    assert_eq!(bench.introduce(key), [""; 0]);
    let Some(ServerEvent::Listens {
        key: of, topics, ..
    }) = bench.peer.poll_event()
    else {
        panic!("not asked for resources");
    };
    assert_eq!((of, topics.len()), (key, 2));
    // Nothing leaves before the acknowledgment, and each resource is told of once.
    assert!(bench.peer.subscribed().is_empty());
    let updated = |uri: &str, n: u32| {
        format!(
            r#"{{"uri":"{uri}","n":{n},"_meta":{{"x":1.0,"io.modelcontextprotocol/subscriptionId":77}}}}"#
        )
    };
    for (uri, n) in [("a:1", 1), ("a:2", 2), ("a:1", 3), ("b:1", 4)] {
        let params = updated(uri, n);
        bench
            .peer
            .pass_resource_updated(uri, &params, true, &[], &mut bench.sink);
    }
    bench.peer.list_changed(List::Tools, &mut bench.sink);
    bench.peer.list_changed(List::Prompts, &mut bench.sink);
    assert_eq!(bench.lines(), [""; 0]);
    let granted = BTreeSet::from([Topic::Resource("a:1".to_owned())]);
    bench.peer.begin_listening(key, &granted, &mut bench.sink);
    let notification = |method: &str, rest: &str| {
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{{rest}}}}}"#)
    };
    let meta = r#""_meta":{"io.modelcontextprotocol/subscriptionId":9}"#;
    assert_eq!(
        bench.lines(),
        [
            notification(
                "subscriptions/acknowledged",
                &format!(
                    r#"{meta},"notifications":{{"toolsListChanged":true,"resourceSubscriptions":["a:1"]}}"#
                )
            ),
            notification("tools/list_changed", meta),
            notification(
                "resources/updated",
                r#""uri":"a:1","n":3,"_meta":{"x":1.0,"io.modelcontextprotocol/subscriptionId":9}"#
            ),
        ]
    );
    assert_eq!(bench.peer.subscribed(), granted);
    // From now on at once, a part of what was asked for too, and nothing to a client that does not read.
    for (uri, stuck, heard) in [
        ("a:1", false, 1),
        ("a:1/part", false, 1),
        ("a:10", false, 0),
        ("a:2", false, 0),
        ("a:1", true, 0),
    ] {
        let stuck: &[RequestKey] = if stuck { &[key] } else { &[] };
        bench
            .peer
            .pass_resource_updated(uri, &updated(uri, 5), true, stuck, &mut bench.sink);
        assert_eq!(bench.lines().len(), heard, "{uri}");
    }
}

#[test]
fn what_is_held_of_a_listen_stream_is_bounded() {
    let mut config = unmet();
    config.limits.resource_subscriptions_max = 2;
    config.awaits_introduction = false;
    config.resource_updates = true;
    let mut bench = bench(config);
    bench.say(&modern(1, "subscriptions/listen", LISTEN));
    let Some(ServerEvent::Listens { key, topics, .. }) = bench.peer.poll_event() else {
        panic!("not asked for resources");
    };
    for n in 0..10 {
        let uri = format!("a:1/{n}");
        let params = format!(r#"{{"uri":"{uri}"}}"#);
        bench
            .peer
            .pass_resource_updated(&uri, &params, false, &[], &mut bench.sink);
    }
    bench.peer.begin_listening(key, &topics, &mut bench.sink);
    let lines = bench.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[1].contains("a:1/8") && lines[2].contains("a:1/9"));
}

#[test]
fn subscriptions_of_a_session_are_granted_elsewhere() {
    let mut config = ServerConfig::clone(&met());
    config.limits.resource_subscriptions_max = 1;
    let mut bench = bench(config);
    bench.say(HELLO);
    bench.say(INITIALIZED);
    let subscribe = |method: &str, uri: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":5,"method":"resources/{method}","params":{{"uri":"{uri}"}}}}"#
        )
    };
    assert_eq!(bench.say(&subscribe("subscribe", "a:1")), [""; 0]);
    let Some(ServerEvent::Subscribes { key, uri, on: true }) = bench.peer.poll_event() else {
        panic!("not asked");
    };
    assert_eq!(uri, "a:1");
    assert!(bench.peer.subscribed().is_empty());
    bench.peer.set_subscribed(&uri, true);
    assert_eq!(
        bench.respond(key, "{}"),
        [r#"{"jsonrpc":"2.0","id":5,"result":{}}"#]
    );
    let full = bench.say(&subscribe("subscribe", "a:2"));
    assert!(
        full[0].contains("limit 1 (resource_subscriptions_max)"),
        "{full:?}"
    );
    let raw =
        r#"{ "uri":"a:1", "v":1e0, "_meta":{"io.modelcontextprotocol/subscriptionId":"z","k":2} }"#;
    // A shared server tells of what others have subscribed to; one of its own may say what it likes.
    for (uri, unasked, heard) in [("a:1", false, 1), ("a:2", false, 0), ("a:2", true, 1)] {
        bench
            .peer
            .pass_resource_updated(uri, raw, unasked, &[], &mut bench.sink);
        let lines = bench.lines();
        assert_eq!(lines.len(), heard, "{uri}");
        let passed = r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{ "uri":"a:1", "v":1e0, "_meta":{"k":2} }}"#;
        assert!(lines.iter().all(|line| line == passed), "{lines:?}");
    }
    bench.say(&subscribe("unsubscribe", "a:1"));
    assert!(matches!(
        bench.peer.poll_event(),
        Some(ServerEvent::Subscribes { on: false, .. })
    ));
}

#[test]
fn log_messages_go_to_who_asked_for_them() {
    let raw = r#"{"level":"warning","data":[1.0],"vendor":{}}"#;
    let log = |bench: &mut Bench, key, level| {
        bench.peer.pass_log(key, level, raw, &mut bench.sink);
        let lanes = std::mem::take(&mut bench.sink.lanes);
        (bench.lines().len(), lanes.last().copied())
    };
    let mut session = bench(ServerConfig::clone(&met()));
    session.say(HELLO);
    session.say(INITIALIZED);
    session.sink.lanes.clear();
    // A session that has asked for nothing gets what the server says by itself.
    assert_eq!(
        log(&mut session, None, LogLevel::Debug),
        (1, Some(Lane::Session))
    );
    session
        .say(r#"{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"error"}}"#);
    assert!(matches!(
        session.peer.poll_event(),
        Some(ServerEvent::LogLevel(LogLevel::Error))
    ));
    session.say(r#"{"jsonrpc":"2.0","id":3,"method":"x"}"#);
    let key = session.request().key;
    session.sink.lanes.clear();
    assert_eq!(log(&mut session, Some(key), LogLevel::Warning).0, 0);
    assert_eq!(
        log(&mut session, Some(key), LogLevel::Error),
        (1, Some(Lane::Request(key)))
    );

    let mut stateless = bench(ServerConfig::clone(&met()));
    let ask = |bench: &mut Bench, scope: u64, level: &str| {
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}}{level}}}}}}}"#
        );
        bench
            .peer
            .handle_message(Scope(scope), message.as_bytes(), &mut bench.sink);
        bench.request()
    };
    let silent = ask(&mut stateless, 1, "").key;
    assert_eq!(log(&mut stateless, Some(silent), LogLevel::Error).0, 0);
    assert_eq!(log(&mut stateless, None, LogLevel::Error).0, 0);
    let info = r#","io.modelcontextprotocol/logLevel":"info""#;
    let wanting = ask(&mut stateless, 2, info);
    assert_eq!(wanting.log_level, Some(LogLevel::Info));
    let wanting = wanting.key;
    assert_eq!(log(&mut stateless, Some(wanting), LogLevel::Debug).0, 0);
    assert_eq!(
        log(&mut stateless, Some(wanting), LogLevel::Info),
        (1, Some(Lane::Request(wanting)))
    );
    // Without a word of whose it is, it is of the only one that wants it.
    assert_eq!(
        log(&mut stateless, None, LogLevel::Error),
        (1, Some(Lane::Request(wanting)))
    );
    ask(&mut stateless, 3, info);
    assert_eq!(log(&mut stateless, None, LogLevel::Error).0, 0);
}

#[test]
fn unknown_notifications_pass_byte_for_byte() {
    let raw = r#"{ "b":1e0, "a":"\u0041", "_meta":{"k":1} }"#;
    let passed = format!(r#"{{"jsonrpc":"2.0","method":"vendor/x","params":{raw}}}"#);
    let mut session = bench(ServerConfig::clone(&met()));
    let pass = |bench: &mut Bench, key, params| {
        bench
            .peer
            .pass_notification(key, "vendor/x", params, &mut bench.sink);
        bench.lines()
    };
    session.say(HELLO);
    assert_eq!(pass(&mut session, None, Some(raw)), [""; 0], "held");
    assert_eq!(session.say(INITIALIZED), [passed.as_str()]);
    let bare = r#"{"jsonrpc":"2.0","method":"vendor/x"}"#;
    assert_eq!(pass(&mut session, None, None), [bare]);

    let mut line = bench(ServerConfig::clone(&met()));
    line.say(&modern(1, "x", ""));
    let key = line.request().key;
    assert_eq!(pass(&mut line, Some(key), Some(raw)), [passed.as_str()]);
    assert_eq!(line.sink.lanes.pop(), Some(Lane::Request(key)));
    line.respond(key, "{}");
    // Its request is over; on a line it can be told all the same.
    assert_eq!(pass(&mut line, Some(key), Some(raw)), [passed]);
    assert_eq!(line.sink.lanes.pop(), Some(Lane::Session));
}
