//! What the original bridge was recorded doing, one test for each recording, and what we do instead
//! where it gave up.

use super::*;

#[test]
fn recording_01_connects_with_the_recorded_request() {
    let mut rig = Rig::with_token();
    rig.up();
    rig.text(CHALLENGE);
    let identity = config(None).identity;
    let signature = identity.sign(&Claim {
        client_id: "cli",
        client_mode: "cli",
        role: "operator",
        scopes: &["operator.read", "operator.write", "operator.approvals"],
        signed_at_ms: 1_796_026_033_939,
        token: "TOKEN",
        nonce: "NONCE",
        platform: "linux",
        device_family: "",
    });
    let expected = format!(
        r#"{{"type":"req","id":"1","method":"connect","params":{{"minProtocol":4,"maxProtocol":4,"client":{{"id":"cli","displayName":"OpenClaw MCP","version":"2026.6.11","platform":"linux","mode":"cli"}},"caps":[],"auth":{{"token":"TOKEN"}},"role":"operator","scopes":["operator.read","operator.write","operator.approvals"],"device":{{"id":"{}","publicKey":"{}","signature":"{signature}","signedAt":1796026033939,"nonce":"NONCE"}}}}}}"#,
        identity.device_id(),
        identity.public_key(),
    );
    assert_eq!(rig.sent, [expected]);

    rig.answer(HELLO);
    assert_eq!(
        rig.sent[1],
        r#"{"type":"req","id":"2","method":"sessions.subscribe","params":{}}"#
    );
    rig.answer(r#"{"subscribed":true}"#);
    assert_eq!(
        rig.take(),
        [
            "open",
            "send connect",
            "hello",
            "store DEVICE_TOKEN",
            "send sessions.subscribe",
            "ready first",
            "info: connected to gateway ws://127.0.0.1:18789, version 2026.6.11",
        ]
    );
    let id = rig.request("sessions.list");
    assert_eq!(
        rig.sent[2],
        r#"{"type":"req","id":"3","method":"sessions.list","params":{"limit":1}}"#
    );
    rig.answer(r#"{"sessions":[], "n":1.0}"#);
    let not_found = rig.request("exec.approval.resolve");
    rig.refuse(r#"{"code":"INVALID_REQUEST","message":"unknown or expired approval id","details":{"reason":"APPROVAL_NOT_FOUND"}}"#);
    let absent = rig.request("send");
    rig.text(r#"{"type":"res","id":"5","ok":true}"#);
    assert_eq!((id, not_found, absent), (3, 4, 5));
    assert_eq!(
        rig.take(),
        [
            "send sessions.list",
            r#"answer 3: {"sessions":[], "n":1.0}"#,
            "send exec.approval.resolve",
            "error 4: unknown or expired approval id",
            "send send",
            "answer 5: null",
        ]
    );
}

#[test]
fn recording_08_a_wrong_token_is_refused_at_start() {
    let mut rig = Rig::new(SessionConfig {
        stored_token: stored("DEVICE_TOKEN"),
        ..config(Some("wrong-secret"))
    });
    let blocked = rig.request("sessions.list");
    rig.up();
    rig.text(CHALLENGE);
    assert_eq!(
        rig.connect_member("/params/auth"),
        Some(serde_json::json!({"token": "wrong-secret"}))
    );
    rig.refuse(TOKEN_MISMATCH);
    rig.closed(Some(1008), "unauthorized: gateway token mismatch");
    assert_eq!(blocked, 1);
    assert_eq!(
        rig.take(),
        [
            "open",
            "error 1: gateway not connected: no try has ended yet, trying now",
            "send connect",
            "close 1008 connect failed",
            "refused: gateway ws://127.0.0.1:18789 refused the connection: unauthorized: gateway token mismatch (set gateway.remote.token to match gateway.auth.token); give the gateway's token with --token-file FILE, or its password with --password-file FILE",
        ]
    );
    rig.pass(600_000);
    assert!(rig.take().is_empty(), "nothing more happens");
    assert!(
        rig.session
            .not_connected(rig.now)
            .contains("token mismatch")
    );
}

#[test]
fn recording_08b_without_anything_to_show_there_is_no_auth_member() {
    let mut rig = Rig::new(config(None));
    rig.up();
    rig.text(CHALLENGE);
    assert_eq!(rig.connect_member("/params/auth"), None);
    assert!(
        rig.sent[0].contains(r#""caps":[],"role":"operator""#),
        "{}",
        rig.sent[0]
    );
    rig.refuse(TOKEN_MISSING);
    let log = rig.take();
    assert!(
        log.last().is_some_and(|line| line.contains("--token-file")),
        "{log:?}"
    );
    assert_eq!(rig.state(), "Stopped");
}

#[test]
fn recording_10_a_starting_gateway_is_waited_for_without_backing_off() {
    let mut rig = Rig::with_token();
    for _ in 0..20 {
        rig.up();
        rig.text(CHALLENGE);
        rig.refuse(STARTING);
        rig.closed(Some(1013), "gateway starting");
        assert_eq!(
            rig.session.not_connected(rig.now),
            "gateway not connected: gateway is starting, next try in 1 s"
        );
        assert_eq!(rig.pass_until_open(), 500);
    }
    let log = rig.take();
    let told: Vec<_> = log.iter().filter(|line| line.starts_with("info")).collect();
    assert_eq!(
        told,
        ["info: gateway ws://127.0.0.1:18789 is starting, next try in 1 s"]
    );
    rig.serve();
    assert_eq!(rig.state(), "Ready");
    rig.closed(None, "reset");
    let wait = rig.pass_until_open();
    assert!(
        (800..=1_200).contains(&wait),
        "the first back-off step, not a later one: {wait}"
    );
}

#[test]
fn the_wait_a_starting_gateway_asks_for_is_clamped() {
    for (asked, waited) in [
        ("", 500),
        ("1", 100),
        ("700", 700),
        ("60000", 2_000),
        ("-5", 100),
    ] {
        let mut rig = Rig::with_token();
        rig.up();
        rig.text(CHALLENGE);
        let after = match asked {
            "" => String::new(),
            ms => format!(r#","retryAfterMs":{ms}"#),
        };
        rig.refuse(&format!(
            r#"{{"code":"UNAVAILABLE","message":"gateway starting","retryable":true{after}}}"#
        ));
        rig.closed(None, "closed by us");
        assert_eq!(rig.pass_until_open(), waited, "asked for {asked}");
    }
}

#[test]
fn recording_11_a_silent_gateway_is_tried_again() {
    let limits = Limits {
        gateway_challenge_timeout: Duration::from_secs(2),
        ..Limits::default()
    };
    let mut rig = Rig::new(SessionConfig {
        limits,
        ..config(Some("TOKEN"))
    });
    rig.up();
    rig.pass(1_999);
    assert_eq!(rig.take(), ["open"]);
    rig.pass(1);
    assert_eq!(
        rig.take(),
        [
            "close 1008 connect challenge timeout",
            "warning: cannot reach gateway ws://127.0.0.1:18789: gateway connect challenge timeout (waited 2000ms, limit 2000ms), next try in 1 s",
        ]
    );
    rig.closed(None, "closed by us");
    let wait = rig.pass_until_open();
    assert!((800..=1_200).contains(&wait), "{wait}");
    rig.serve();
    assert_eq!(rig.state(), "Ready");
}

#[test]
fn recording_12_a_lost_connection_fails_calls_and_comes_back() {
    let mut rig = Rig::ready();
    rig.closed(None, "connection reset by peer");
    let while_away = rig.request("sessions.list");
    let log = rig.take();
    assert_eq!(
        log[0],
        "lost: gateway closed (1006): connection reset by peer"
    );
    assert!(
        log[2].starts_with(&format!(
            "error {while_away}: gateway not connected: gateway closed (1006): connection reset by peer, next try in 1 s"
        )),
        "{log:?}"
    );

    rig.pass_until_open();
    rig.closed(None, "127.0.0.1:18789: connection refused");
    rig.pass_until_open();
    rig.serve();
    let log = rig.take();
    assert!(log.contains(&"ready again".to_owned()), "{log:?}");
    rig.text(MESSAGE);

    let in_flight = rig.request("sessions.get");
    let second = rig.request("sessions.list");
    rig.closed(Some(1012), "service restart");
    let log = rig.take();
    assert_eq!(
        log[..5],
        [
            "event session.message 73".to_owned(),
            "send sessions.get".to_owned(),
            "send sessions.list".to_owned(),
            format!("error {in_flight}: gateway closed (1012): service restart"),
            format!("error {second}: gateway closed (1012): service restart"),
        ]
    );
    rig.pass_until_open();
    rig.serve();
    let sent: Vec<_> = rig
        .take()
        .into_iter()
        .filter(|line| line.starts_with("send"))
        .collect();
    assert_eq!(
        sent,
        ["send connect", "send sessions.subscribe"],
        "nothing is sent again"
    );
}

#[test]
fn recording_13_a_fresh_device_gets_a_token_and_uses_it() {
    let mut rig = Rig::with_token();
    rig.serve();
    assert!(rig.take().contains(&"store DEVICE_TOKEN".to_owned()));

    let mut second = Rig::new(SessionConfig {
        stored_token: stored("DEVICE_TOKEN"),
        ..config(None)
    });
    second.up();
    second.text(CHALLENGE);
    assert_eq!(
        second.connect_member("/params/auth"),
        Some(serde_json::json!({"token": "DEVICE_TOKEN", "deviceToken": "DEVICE_TOKEN"}))
    );
    assert!(
        second.sent[0].contains(r#""auth":{"token":"DEVICE_TOKEN","deviceToken":"DEVICE_TOKEN"}"#)
    );
    second.answer(HELLO);
    second.answer("{}");
    assert_eq!(second.state(), "Ready");
}

#[test]
fn recording_19_a_refusal_after_good_service_is_survived() {
    let mut rig = Rig::ready();
    rig.pass(11_000);
    rig.closed(Some(1012), "service restart");
    rig.take();
    for _ in 0..40 {
        rig.pass_until_open();
        rig.up();
        rig.text(CHALLENGE);
        rig.refuse(PASSWORD_MISMATCH);
        rig.closed(Some(1008), "connect failed");
    }
    let log = rig.take();
    assert!(
        !log.iter().any(|line| line.starts_with("refused")),
        "{log:?}"
    );
    let told: Vec<_> = log
        .iter()
        .filter(|line| line.starts_with("warning"))
        .collect();
    assert_eq!(
        told.len(),
        5,
        "one per step of the back-off that is left: {told:?}"
    );
    assert_eq!(
        told[0],
        "warning: cannot connect to gateway ws://127.0.0.1:18789: refused: unauthorized: gateway password mismatch (set gateway.remote.password to match gateway.auth.password); give the gateway's password with --password-file FILE, next try in 2 s"
    );
    rig.pass_until_open();
    rig.serve();
    assert!(
        rig.take().contains(&"ready again".to_owned()),
        "the password was put right"
    );
}

#[test]
fn recording_20_silence_of_two_ticks_drops_the_socket() {
    let mut rig = Rig::ready();
    rig.pass(45_000);
    rig.text(TICK);
    rig.pass(59_000);
    let open = rig.request("send");
    assert_eq!(rig.take(), ["send send"], "59 s of silence are no loss");
    rig.pass(1_000);
    assert_eq!(
        rig.take()[..3],
        [
            "abort".to_owned(),
            format!("error {open}: gateway closed (4000): tick timeout"),
            "lost: gateway closed (4000): tick timeout".to_owned(),
        ],
        "open requests do not keep a dead socket"
    );
    rig.pass_until_open();
    rig.serve();
    assert_eq!(rig.state(), "Ready");
}

#[test]
fn recording_21_a_restart_is_waited_out_with_growing_steps() {
    let mut rig = Rig::ready();
    rig.text(r#"{"type":"event","event":"shutdown","payload":{"reason":"gateway stopping","restartExpectedMs":null}}"#);
    rig.closed(Some(1012), "service restart");
    let log = rig.take();
    assert_eq!(
        log,
        [
            "lost: gateway closed (1012): service restart",
            "warning: lost gateway ws://127.0.0.1:18789: gateway closed (1012): service restart, next try in 1 s",
        ]
    );
    let mut waits = Vec::new();
    for _ in 0..7 {
        waits.push(rig.pass_until_open());
        rig.closed(None, "127.0.0.1:18789: connection refused");
    }
    for (wait, step) in waits
        .iter()
        .zip([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000])
    {
        assert!(
            (step * 8 / 10..=step * 12 / 10).contains(wait),
            "{wait} for {step}"
        );
    }
    rig.pass_until_open();
    rig.serve();
    assert!(rig.take().contains(&"ready again".to_owned()));
}
