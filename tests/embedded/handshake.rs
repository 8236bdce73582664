//! Coming in, being refused, staying, leaving.

use std::time::Duration;

use drawspan::embedded::{
    Credentials, EmbeddedConfig, EmbeddedEvent, EmbeddedGateway, OpenError, TICK_INTERVAL,
};
use drawspan::entropy::{Entropy, Seeded};
use drawspan::limits::Limits;
use drawspan::link::Driven;
use drawspan::link::websocket::CloseReason;
use drawspan::secret::Secret;
use serde_json::{Value, json};

use crate::world::{SCOPES, World, closed_with, config, message_of, post};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn the_hello_says_what_there_is() {
    let mut world = World::new();
    let me = world.dial(1);
    let params = world.connect_params(me, &SCOPES, "hunter2");
    let hello = world.call(me, "connect", params).expect("let in");
    assert_eq!(
        (&hello["type"], &hello["protocol"]),
        (&json!("hello-ok"), &json!(4))
    );
    let policy =
        json!({"maxPayload": 26_214_400, "maxBufferedBytes": 52_428_800, "tickIntervalMs": 30_000});
    assert_eq!(hello["policy"], policy);
    let auth = &hello["auth"];
    let scopes = json!(["operator.approvals", "operator.read", "operator.write"]);
    assert_eq!(
        (&auth["role"], &auth["scopes"]),
        (&json!("operator"), &scopes)
    );
    assert_eq!(auth["deviceToken"].as_str().expect("token").len(), 43);
    assert_eq!(auth["issuedAtMs"], world.now.unix_ms);
    for method in hello["features"]["methods"].as_array().expect("methods") {
        let method = method.as_str().expect("name");
        let answer = world.call(me, method, json!({"surely": "unknown"}));
        let unknown = answer.is_err_and(|error| {
            error["message"]
                .as_str()
                .is_some_and(|m| m.starts_with("unknown method"))
        });
        assert!(!unknown, "{method} is announced");
    }
    assert!(matches!(
        world.told().as_slice(),
        [EmbeddedEvent::ClientConnected { name, .. }] if name == "Test"
    ));
}

/// Changes valid parameters of `connect`, sends them and gives refusal and close.
fn refused(credentials: Credentials, change: impl Fn(&mut Value)) -> (Value, (u16, String)) {
    let config = EmbeddedConfig {
        credentials,
        ..EmbeddedConfig::default()
    };
    let mut world = World::with(config, Limits::default());
    let me = world.dial(1);
    let mut params = world.connect_params(me, &SCOPES, "hunter2");
    change(&mut params);
    let error = world.call(me, "connect", params).expect_err("refused");
    let told = world.told();
    assert!(
        matches!(told.as_slice(), [EmbeddedEvent::ClientRefused { .. }]),
        "{told:?}"
    );
    (error, closed_with(&world, me))
}

#[test]
fn malformed_connects_are_refused() {
    let cases: [(&str, Value, &str); 10] = [
        (
            "/minProtocol",
            Value::Null,
            "must have required property 'minProtocol'",
        ),
        (
            "/client/id",
            json!("curl"),
            "at /client/id: must be one of webchat-ui, ",
        ),
        (
            "/client/mode",
            json!("batch"),
            "at /client/mode: must be one of webchat, cli, ",
        ),
        (
            "/client/version",
            Value::Null,
            "at /client: must have required property 'version'",
        ),
        ("/client/x", json!(1), "at /client: unexpected property 'x'"),
        ("/x", json!(1), "at root: unexpected property 'x'"),
        ("/auth/x", json!(1), "at /auth: unexpected property 'x'"),
        ("/device/x", json!(1), "at /device: unexpected property 'x'"),
        (
            "/scopes",
            json!("all"),
            "at /scopes: must be array of strings",
        ),
        (
            "/scopes",
            json!(vec!["s"; 33]),
            "at /scopes: must NOT have more than 32 items",
        ),
    ];
    for (place, value, why) in cases {
        let (parent, name) = place.rsplit_once('/').expect("a path");
        let (error, (code, reason)) = refused(config().credentials, |params| {
            let parent = params.pointer_mut(parent).expect("parent");
            parent[name] = value.clone();
        });
        let message = error["message"].as_str().expect("message");
        assert!(
            message.starts_with(&format!("invalid connect params: {why}")),
            "{message}"
        );
        assert_eq!(code, 1008);
        assert!(message.starts_with(&reason), "{reason}");
    }
}

#[test]
fn protocol_role_and_device_are_checked() {
    let skew = |ms: i64| {
        move |p: &mut Value| {
            p["device"]["signedAt"] = json!(p["device"]["signedAt"].as_i64().expect("number") + ms);
        }
    };
    type Change = Box<dyn Fn(&mut Value)>;
    let cases: [(Change, &str, &str, u16); 11] = [
        (
            Box::new(|p| p["minProtocol"] = json!(5)),
            "protocol mismatch",
            "PROTOCOL_MISMATCH",
            1002,
        ),
        (
            Box::new(|p| p["maxProtocol"] = json!(3)),
            "protocol mismatch",
            "PROTOCOL_MISMATCH",
            1002,
        ),
        (
            Box::new(|p| p["role"] = json!("node")),
            "invalid role",
            "",
            1008,
        ),
        (
            Box::new(|p| p["device"] = Value::Null),
            "device identity required",
            "DEVICE_IDENTITY_REQUIRED",
            1008,
        ),
        (
            Box::new(|p| p["device"]["publicKey"] = json!("AAAA")),
            "device public key invalid",
            "DEVICE_AUTH_PUBLIC_KEY_INVALID",
            1008,
        ),
        (
            Box::new(|p| p["device"]["id"] = json!("00")),
            "device identity mismatch",
            "DEVICE_AUTH_DEVICE_ID_MISMATCH",
            1008,
        ),
        (
            Box::new(skew(120_001)),
            "device signature expired",
            "DEVICE_AUTH_SIGNATURE_EXPIRED",
            1008,
        ),
        (
            Box::new(skew(-120_001)),
            "device signature expired",
            "DEVICE_AUTH_SIGNATURE_EXPIRED",
            1008,
        ),
        // Just within the skew it is the signature that no longer fits.
        (
            Box::new(skew(120_000)),
            "device signature invalid",
            "DEVICE_AUTH_SIGNATURE_INVALID",
            1008,
        ),
        (
            Box::new(|p| p["device"]["nonce"] = json!(" ")),
            "device nonce required",
            "DEVICE_AUTH_NONCE_REQUIRED",
            1008,
        ),
        (
            Box::new(|p| p["device"]["nonce"] = json!("x")),
            "device nonce mismatch",
            "DEVICE_AUTH_NONCE_MISMATCH",
            1008,
        ),
    ];
    for (change, message, code, close) in cases {
        let (error, closed) = refused(config().credentials, change);
        assert_eq!(error["message"], message);
        assert_eq!(error["details"]["code"].as_str().unwrap_or_default(), code);
        assert_eq!(closed, (close, message.to_owned()));
        let not_paired = code == "DEVICE_IDENTITY_REQUIRED";
        assert_eq!(
            error["code"],
            if not_paired {
                "NOT_PAIRED"
            } else {
                "INVALID_REQUEST"
            }
        );
    }
}

#[test]
fn what_the_signature_covers_cannot_be_changed() {
    let cases = [
        ("/client/platform", json!("darwin")),
        ("/client/deviceFamily", json!("tablet")),
        ("/client/id", json!("test")),
        ("/client/mode", json!("test")),
        ("/scopes", json!(["operator.admin"])),
        ("/auth/token", json!("hunter3")),
    ];
    for (place, value) in cases {
        let (parent, name) = place.rsplit_once('/').expect("a path");
        let (error, _) = refused(config().credentials, |params| {
            params.pointer_mut(parent).expect("parent")[name] = value.clone();
        });
        assert_eq!(error["message"], "device signature invalid", "{place}");
    }
}

/// Connects with these credentials and gives what was answered.
fn present(world: &mut World, seed: u64, scopes: &[&str], auth: &Value) -> Result<Value, Value> {
    let me = world.dial(seed);
    let signed = auth["token"]
        .as_str()
        .or(auth["deviceToken"].as_str())
        .unwrap_or("");
    let mut params = world.connect_params(me, scopes, signed);
    params["auth"] = auth.clone();
    world.call(me, "connect", params)
}

#[test]
fn wrong_and_missing_credentials_are_told_apart() {
    let secret = |text: &str| Some(Secret::new(text.to_owned()));
    let token = Credentials {
        token: secret("hunter2"),
        password: None,
    };
    let password = Credentials {
        token: None,
        password: secret("pass"),
    };
    let cases = [
        (
            &token,
            json!({}),
            "unauthorized: gateway token missing (set gateway.remote.token to match gateway.auth.token)",
            json!({"code": "AUTH_TOKEN_MISSING", "authReason": "token_missing", "canRetryWithDeviceToken": false, "recommendedNextStep": "update_auth_configuration"}),
        ),
        (
            &token,
            json!({"token": "hunter1"}),
            "unauthorized: gateway token mismatch (set gateway.remote.token to match gateway.auth.token)",
            json!({"code": "AUTH_TOKEN_MISMATCH", "authReason": "token_mismatch", "canRetryWithDeviceToken": true, "recommendedNextStep": "retry_with_device_token"}),
        ),
        (
            &token,
            json!({"token": "old", "deviceToken": "old"}),
            "unauthorized: device token mismatch (rotate/reissue device token)",
            json!({"code": "AUTH_DEVICE_TOKEN_MISMATCH", "authReason": "device_token_mismatch", "canRetryWithDeviceToken": false, "recommendedNextStep": "update_auth_credentials"}),
        ),
        (
            &token,
            json!({"password": "hunter2"}),
            "unauthorized: gateway token missing (set gateway.remote.token to match gateway.auth.token)",
            json!({"code": "AUTH_TOKEN_MISSING", "authReason": "token_missing", "canRetryWithDeviceToken": false, "recommendedNextStep": "update_auth_configuration"}),
        ),
        (
            &password,
            json!({"token": "pass"}),
            "unauthorized: gateway password missing (set gateway.remote.password to match gateway.auth.password)",
            json!({"code": "AUTH_PASSWORD_MISSING", "authReason": "password_missing", "canRetryWithDeviceToken": false, "recommendedNextStep": "update_auth_configuration"}),
        ),
        (
            &password,
            json!({"password": "word"}),
            "unauthorized: gateway password mismatch (set gateway.remote.password to match gateway.auth.password)",
            json!({"code": "AUTH_PASSWORD_MISMATCH", "authReason": "password_mismatch", "canRetryWithDeviceToken": false, "recommendedNextStep": "update_auth_credentials"}),
        ),
    ];
    for (credentials, auth, message, details) in cases {
        let config = EmbeddedConfig {
            credentials: credentials.clone(),
            ..config()
        };
        let mut world = World::with(config, Limits::default());
        let error = present(&mut world, 1, &SCOPES, &auth).expect_err("refused");
        assert_eq!(
            (&error["message"], &error["details"]),
            (&json!(message), &details)
        );
        let (code, reason) = closed_with(&world, 0);
        assert_eq!((code, reason.is_empty()), (1008, false));
        assert!(message.starts_with(&reason), "{reason}");
        assert!(world.journal.is_empty(), "a refused device is not paired");
    }
    let config = EmbeddedConfig {
        credentials: password,
        ..EmbeddedConfig::default()
    };
    let mut world = World::with(config, Limits::default());
    present(&mut world, 1, &SCOPES, &json!({"password": "pass"})).expect("let in");
    let mut world = World::with(EmbeddedConfig::default(), Limits::default());
    present(&mut world, 1, &SCOPES, &json!({})).expect("let in without any");
}

#[test]
fn the_device_token_is_enough_later_for_what_it_covers() {
    let mut world = World::new();
    let shared = json!({"token": "hunter2"});
    let hello = present(&mut world, 1, &SCOPES, &shared).expect("let in");
    let token = hello["auth"]["deviceToken"].clone();
    world.wait(MINUTE);
    world.restart();
    let own = json!({"token": token, "deviceToken": token});
    let hello = present(&mut world, 1, &SCOPES, &own).expect("let in");
    assert_eq!(
        hello["auth"]["deviceToken"], token,
        "the token stays the same"
    );
    assert_eq!(hello["auth"]["issuedAtMs"], world.now.unix_ms - 60_000);
    present(&mut world, 1, &SCOPES, &json!({"deviceToken": token})).expect("alone");
    // The one retry of a client whose explicit token is wrong.
    present(
        &mut world,
        1,
        &SCOPES,
        &json!({"token": "bad", "deviceToken": token}),
    )
    .expect("retry");

    let error = present(&mut world, 2, &SCOPES, &own).expect_err("another device");
    assert_eq!(error["details"]["code"], "AUTH_DEVICE_TOKEN_MISMATCH");
    let error = present(&mut world, 1, &["operator.admin"], &own).expect_err("more scopes");
    assert_eq!(error["details"]["code"], "AUTH_SCOPE_MISMATCH");
    present(&mut world, 1, &["operator.admin"], &shared).expect("widened by the shared token");
    let hello =
        present(&mut world, 1, &["operator.admin", "x.unknown"], &own).expect("now it covers");
    let scopes = json!([
        "operator.admin",
        "operator.approvals",
        "operator.read",
        "operator.write"
    ]);
    assert_eq!(hello["auth"]["scopes"], scopes);
    assert_eq!(hello["auth"]["deviceToken"], token);
}

#[test]
fn version_two_signatures_are_accepted() {
    // The text of version 2 is not what the client library signs: it is written out here.
    let mut world = World::new();
    let me = world.dial(1);
    let params = world.connect_params(me, &SCOPES, "hunter2");
    let mut seed = [0_u8; 32];
    Seeded::new(1).fill(&mut seed);
    let key = drawspan::crypto::SigningKey::from_seed(seed);
    let device = &params["device"];
    let text = format!(
        "v2|{}|cli|cli|operator|{}|{}|hunter2|{}",
        device["id"].as_str().expect("id"),
        SCOPES.join(","),
        device["signedAt"],
        device["nonce"].as_str().expect("nonce"),
    );
    let mut params = params.clone();
    use base64::Engine as _;
    let signature =
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(key.sign(text.as_bytes()));
    params["device"]["signature"] = json!(signature);
    world.call(me, "connect", params).expect("let in");
}

#[test]
fn the_first_frame_must_be_connect() {
    let mut world = World::new();
    let me = world.dial(1);
    let refused = world.call(me, "sessions.list", json!({}));
    let why = "invalid handshake: first request must be connect";
    assert_eq!(message_of(&refused), why);
    assert_eq!(closed_with(&world, me), (1008, why.to_owned()));
    for text in ["hello", "{}", r#"{"type":"event","event":"x"}"#] {
        let me = world.dial(1);
        world.say(me, text);
        assert_eq!(
            closed_with(&world, me),
            (1008, "invalid request frame".to_owned())
        );
    }
    let me = world.dial(1);
    let id = world.ask(me, "connect", json!([]));
    let refused = world.response(me, &id).expect("answered");
    assert_eq!(
        message_of(&refused),
        "invalid connect params: must be object"
    );
}

#[test]
fn before_the_hello_a_message_has_64_kib_and_the_client_15_seconds() {
    let mut world = World::new();
    let max = world.limits.gateway_hello_bytes_max;
    let me = world.dial(1);
    world.say(me, &"x".repeat(max + 1));
    assert_eq!(closed_with(&world, me).0, 1009);
    let me = world.dial(1);
    world.say(me, &"x".repeat(max));
    assert_eq!(closed_with(&world, me).0, 1008, "read, and no request");

    let timeout = world.limits.gateway_challenge_timeout;
    let me = world.dial(1);
    world.wait(timeout - Duration::from_millis(1));
    assert_eq!(world.clients[me].closed, None);
    world.wait(Duration::from_millis(1));
    assert_eq!(
        closed_with(&world, me),
        (1008, "handshake timeout".to_owned())
    );
}

#[test]
fn after_the_hello_an_odd_frame_costs_only_itself() {
    let mut world = World::new();
    let me = world.join(1);
    let long_id = "i".repeat(world.limits.id_bytes_max + 1);
    let cases = [
        ("no json".to_owned(), "invalid"),
        (
            r#"{"type":"req","id":"a","method":"m","more":1}"#.to_owned(),
            "a",
        ),
        (r#"{"type":"res","id":"b","ok":true}"#.to_owned(), "b"),
        (
            r#"{"type":"req","id":7,"method":"m"}"#.to_owned(),
            "invalid",
        ),
        (
            format!(r#"{{"type":"req","id":"{long_id}","method":"health"}}"#),
            "invalid",
        ),
        (
            format!(
                r#"{{"type":"req","id":"c","method":"m","params":{}"#,
                "[".repeat(200_000)
            ),
            "invalid",
        ),
    ];
    for (text, id) in cases {
        world.say(me, &text);
        let refused = world.response(me, id).expect("answered");
        assert_eq!(message_of(&refused), "invalid request frame");
    }
    for (levels, fits) in [(32, true), (33, false), (200_000, false)] {
        let deep = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let params = format!(r#"{{"sessionKey":"a","content":{deep}}}"#);
        let frame = r#"{"type":"req","id":"d","method":"drawspan.post","params":"#;
        world.say(me, &format!("{frame}{params}}}"));
        let answer = world.response(me, "d").expect("answered");
        assert_eq!(answer.is_ok(), fits, "{levels} levels");
    }
    let refused = world.call(me, "connect", json!({}));
    assert_eq!(message_of(&refused), "unknown method: connect");
    assert_eq!(
        world.call(me, "health", json!({})).expect("healthy")["ok"],
        true
    );
}

#[test]
fn ticks_are_numbered_and_on_time() {
    let mut world = World::new();
    let me = world.join(1);
    world.wait(TICK_INTERVAL - Duration::from_millis(1));
    assert!(world.clients[me].texts.is_empty());
    world.wait(Duration::from_millis(1));
    let first = world.now.unix_ms;
    world.wait(TICK_INTERVAL);
    let seqs: Vec<_> = world.clients[me]
        .texts
        .iter()
        .map(|t| t["seq"].clone())
        .collect();
    assert_eq!(seqs, [1, 2]);
    assert_eq!(world.events(me, "tick")[0], json!({"ts": first}));
    post(&mut world, me, "a", "x");
    assert!(
        world.clients[me]
            .texts
            .iter()
            .all(|t| t.get("seq").is_none()),
        "of broadcasts only"
    );
}

#[test]
fn a_client_that_does_not_read_is_cut_and_costs_nobody_else() {
    let limits = Limits {
        gateway_out_bytes_max: 40_000,
        ..Limits::default()
    };
    let mut world = World::with(config(), limits);
    let (slow, me) = (world.join(1), world.join(2));
    world.clients[slow].stalled = true;
    let text = "x".repeat(10_000);
    for n in 1..=3 {
        post(&mut world, me, "a", &text);
        assert_eq!(world.clients[slow].closed, None, "after {n}");
    }
    world.told();
    post(&mut world, me, "a", &text);
    assert_ne!(world.clients[slow].closed, None);
    let told = world.told();
    assert!(
        told.iter().any(|e| matches!(e, EmbeddedEvent::ClientGone { why, .. } if why.starts_with("slow consumer"))),
        "{told:?}"
    );
    assert_eq!(world.events(me, "session.message").len(), 4);
}

#[test]
fn one_client_too_many_is_not_accepted() {
    let limits = Limits {
        embedded_clients_max: 2,
        ..Limits::default()
    };
    let mut world = World::with(config(), limits);
    let (first, _) = (world.join(1), world.join(2));
    let accept = |world: &mut World| {
        let listener = EmbeddedGateway::listener();
        world
            .gateway
            .handle_accept(world.now, listener, "127.0.0.1:9")
    };
    assert_eq!(accept(&mut world), None);
    let told = world.told().pop().expect("told").to_string();
    assert_eq!(
        told,
        "client refused: 127.0.0.1:9: too many clients (embedded_clients_max 2, found 2)"
    );
    let now = world.now;
    world.clients[first].link.close(now, None, "");
    world.pump();
    assert!(accept(&mut world).is_some(), "there is room again");
}

#[test]
fn stopping_tells_everybody_and_lets_nobody_in() {
    let mut world = World::new();
    let me = world.join(1);
    world.gateway.stop(world.now);
    world.pump();
    let shutdown = json!({"reason": "gateway stopping", "restartExpectedMs": null});
    assert_eq!(world.events(me, "shutdown"), [shutdown]);
    assert_eq!(
        closed_with(&world, me),
        (1012, "service restart".to_owned())
    );
    assert!(world.gateway.is_stopped());
    let listener = EmbeddedGateway::listener();
    assert_eq!(world.gateway.handle_accept(world.now, listener, "x"), None);
    world.gateway.stop(world.now);
    world.pump();
}

#[test]
fn an_open_gateway_stays_on_loopback() {
    let open = |host: &str, credentials: Credentials| {
        let config = EmbeddedConfig {
            listen: Some((host.to_owned(), 0)),
            credentials,
            ..EmbeddedConfig::default()
        };
        let (limits, now) = (Limits::default(), drawspan::clock::Now::default());
        EmbeddedGateway::open(config, &limits, Box::new(Seeded::new(1)), now, b"").map(|_| ())
    };
    for host in ["127.0.0.1", "127.9.9.9", "::1"] {
        assert_eq!(open(host, Credentials::default()), Ok(()), "{host}");
    }
    for host in ["0.0.0.0", "::", "192.168.1.2", "example.com"] {
        let exposed = OpenError::Exposed {
            host: host.to_owned(),
        };
        assert_eq!(open(host, Credentials::default()), Err(exposed), "{host}");
        assert_eq!(
            open(host, config().credentials),
            Ok(()),
            "{host} with a token"
        );
    }
}

#[test]
fn a_client_that_leaves_is_told_as_such() {
    let mut world = World::new();
    let me = world.join(1);
    world.told();
    let now = world.now;
    world.clients[me].link.close(now, None, "");
    world.pump();
    assert_eq!(world.clients[me].closed, Some(CloseReason::Local));
    let gone = EmbeddedEvent::ClientGone {
        peer: "127.0.0.1:5".to_owned(),
        why: "client closed".to_owned(),
    };
    assert_eq!(world.told(), [gone]);
}
