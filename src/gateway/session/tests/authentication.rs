//! What is shown to a Gateway, and what follows from its refusals.

use super::*;

#[test]
fn password_and_token_go_together_and_the_stored_token_does_not() {
    let mut with = config(None);
    with.credentials.password = Some(Secret::new("PW".to_owned()));
    with.stored_token = stored("DEVICE_TOKEN");
    let mut rig = Rig::new(with.clone());
    rig.up();
    rig.text(CHALLENGE);
    assert_eq!(
        rig.connect_member("/params/auth"),
        Some(serde_json::json!({"password": "PW"}))
    );

    with.credentials.token = Some(Secret::new("TOKEN".to_owned()));
    let mut rig = Rig::new(with);
    rig.up();
    rig.text(CHALLENGE);
    assert_eq!(
        rig.connect_member("/params/auth"),
        Some(serde_json::json!({"token": "TOKEN", "password": "PW"}))
    );
}

/// The token in the signed text is the one shown as `auth.token`; checked as a Gateway does.
#[test]
fn the_signature_covers_the_token_that_is_shown() {
    let mut with_password = config(None);
    with_password.credentials.password = Some(Secret::new("PW".to_owned()));
    let rows = [
        (config(Some("TOKEN")), "TOKEN"),
        (
            SessionConfig {
                stored_token: stored("DT"),
                ..config(None)
            },
            "DT",
        ),
        (with_password, ""),
        (config(None), ""),
    ];
    for (with, token) in rows {
        let device_id = with.identity.device_id().to_owned();
        let mut rig = Rig::new(with);
        rig.up();
        rig.text(CHALLENGE);
        let text = |pointer| match rig.connect_member(pointer) {
            Some(serde_json::Value::String(text)) => text,
            other => panic!("{pointer} is {other:?}"),
        };
        let signed = format!(
            "v3|{device_id}|cli|cli|operator|operator.read,operator.write,operator.approvals|1796026033939|{token}|NONCE|linux|"
        );
        let public_key = text("/params/device/publicKey");
        let signature = text("/params/device/signature");
        assert_eq!(
            identity::verified_device_id(&public_key, &signed, &signature),
            Some(device_id)
        );
    }
}

#[test]
fn a_token_refused_later_is_retried_once_with_the_device_token() {
    let mut rig = Rig::ready();
    rig.closed(Some(4001), "gateway auth changed");
    rig.pass_until_open();
    rig.up();
    rig.text(CHALLENGE);
    rig.take();
    rig.refuse(TOKEN_MISMATCH);
    rig.closed(Some(1008), "connect failed");
    assert_eq!(rig.take(), ["close 1008 connect failed"]);
    assert_eq!(rig.pass_until_open(), 250);
    rig.up();
    rig.text(CHALLENGE);
    assert_eq!(
        rig.connect_member("/params/auth"),
        Some(serde_json::json!({"token": "TOKEN", "deviceToken": "DEVICE_TOKEN"}))
    );
    rig.refuse(TOKEN_MISMATCH);
    rig.closed(Some(1008), "connect failed");
    assert!(rig.pass_until_open() > 800, "once only");
    rig.up();
    rig.text(CHALLENGE);
    assert_eq!(
        rig.connect_member("/params/auth"),
        Some(serde_json::json!({"token": "TOKEN"}))
    );
    rig.answer(HELLO);
    rig.answer("{}");
    rig.closed(None, "reset");
    rig.pass_until_open();
    rig.up();
    rig.text(CHALLENGE);
    rig.refuse(TOKEN_MISMATCH);
    rig.closed(None, "closed by us");
    assert_eq!(rig.pass_until_open(), 250, "a hello grants a new retry");
}

#[test]
fn the_device_token_is_not_shown_to_another_machine_beside_a_given_one() {
    let mut rig = Rig::new(SessionConfig {
        loopback: false,
        ..config(Some("TOKEN"))
    });
    rig.serve();
    rig.closed(None, "reset");
    rig.pass_until_open();
    rig.up();
    rig.text(CHALLENGE);
    rig.refuse(TOKEN_MISMATCH);
    rig.closed(None, "closed by us");
    assert!(rig.pass_until_open() > 800);
    rig.up();
    rig.text(CHALLENGE);
    assert_eq!(rig.connect_member("/params/auth/deviceToken"), None);
}

#[test]
fn a_stored_token_that_is_no_longer_good_is_forgotten() {
    let mismatch = r#"{"code":"INVALID_REQUEST","message":"unauthorized: device token mismatch","details":{"code":"AUTH_DEVICE_TOKEN_MISMATCH"}}"#;
    let mut rig = Rig::new(SessionConfig {
        stored_token: stored("OLD"),
        ..config(None)
    });
    rig.up();
    rig.text(CHALLENGE);
    rig.take();
    rig.refuse(mismatch);
    let log = rig.take();
    assert_eq!(log[..2], ["forget", "close 1008 connect failed"]);
    assert!(
        log[2].contains("is removed") && log[2].contains("--token-file"),
        "{log:?}"
    );

    let mut rig = Rig::new(SessionConfig {
        stored_token: stored("OLD"),
        ..config(None)
    });
    rig.up();
    rig.text(CHALLENGE);
    rig.answer(BARE_HELLO);
    rig.answer("{}");
    rig.closed(None, "reset");
    rig.pass_until_open();
    rig.up();
    rig.text(CHALLENGE);
    rig.take();
    rig.refuse(mismatch);
    rig.closed(None, "closed by us");
    assert_eq!(rig.take()[0], "forget");
    rig.pass_until_open();
    rig.up();
    rig.text(CHALLENGE);
    assert_eq!(
        rig.connect_member("/params/auth"),
        None,
        "it is not shown again"
    );
}

#[test]
fn pairing_names_the_request_and_the_command() {
    let mut rig = Rig::with_token();
    rig.up();
    rig.text(CHALLENGE);
    rig.take();
    rig.refuse(PAIRING);
    let log = rig.take();
    assert!(
        log[1].ends_with("pairing required: device is not approved yet; approve this device on the gateway host: openclaw devices approve 3f0c-9"),
        "{log:?}"
    );
    let mut rig = Rig::with_token();
    rig.up();
    rig.text(CHALLENGE);
    rig.refuse(&PAIRING.replace("3f0c-9", "x; rm -rf ~"));
    let log = rig.take();
    assert!(
        log.last()
            .is_some_and(|line| line.ends_with("openclaw devices list")),
        "no command line is made of what a peer says: {log:?}"
    );
}

#[test]
fn a_refusal_that_asks_to_wait_is_waited_out_even_at_start() {
    let errors = [
        r#"{"code":"INVALID_REQUEST","message":"slow down","details":{"code":"AUTH_RATE_LIMITED"}}"#,
        r#"{"code":"NOT_PAIRED","message":"wait","details":{"code":"PAIRING_REQUIRED","recommendedNextStep":"wait_then_retry"}}"#,
        r#"{"code":"NOT_PAIRED","message":"wait","details":{"code":"PAIRING_REQUIRED","pauseReconnect":false}}"#,
        r#"{"code":"UNAVAILABLE","message":"overloaded"}"#,
        r#"{"code":"AGENT_TIMEOUT","message":"late","details":[1]}"#,
    ];
    for error in errors {
        let mut rig = Rig::with_token();
        rig.up();
        rig.text(CHALLENGE);
        rig.refuse(error);
        rig.closed(None, "closed by us");
        let wait = rig.pass_until_open();
        assert!((800..=1_200).contains(&wait), "{error}: {wait}");
    }
}

#[test]
fn refusals_that_stand_name_what_they_are_about() {
    let rows = [
        (
            "AUTH_SCOPE_MISMATCH",
            RefusalKind::Credentials,
            "openclaw devices list",
        ),
        (
            "AUTH_PASSWORD_MISSING",
            RefusalKind::Credentials,
            "--password-file",
        ),
        (
            "AUTH_TOKEN_NOT_CONFIGURED",
            RefusalKind::Credentials,
            "--token-file",
        ),
        ("PAIRING_REQUIRED", RefusalKind::Pairing, "openclaw devices"),
        (
            "DEVICE_IDENTITY_REQUIRED",
            RefusalKind::Device,
            "device.json",
        ),
        (
            "DEVICE_AUTH_SIGNATURE_EXPIRED",
            RefusalKind::Device,
            "clock",
        ),
        (
            "DEVICE_AUTH_SIGNATURE_INVALID",
            RefusalKind::Device,
            "device.json",
        ),
        ("PROTOCOL_MISMATCH", RefusalKind::Protocol, "protocol 4"),
        (
            "CLIENT_VERSION_MISMATCH",
            RefusalKind::Protocol,
            "protocol 4",
        ),
        ("SOMETHING_ELSE", RefusalKind::Request, "compatible"),
    ];
    for (code, kind, fix) in rows {
        let mut rig = walk_to("Connecting");
        rig.refuse(&format!(
            r#"{{"code":"INVALID_REQUEST","message":"no","details":{{"code":"{code}"}}}}"#
        ));
        let refusal = rig.refusal.expect(code);
        assert_eq!((refusal.kind, &*refusal.code), (kind, code));
        assert!(refusal.fix.contains(fix), "{refusal}");
    }
}
