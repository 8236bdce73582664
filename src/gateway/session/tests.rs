//! The session against a scripted Gateway on virtual time. Each recording of the original bridge has a
//! test of its name; frames are those of the recordings, shortened where nobody looks.

use super::*;
use crate::entropy::Seeded;
use crate::gateway::endpoint::Credentials;
use crate::gateway::identity::{self, Claim, DeviceIdentity, StoredToken};
use crate::limits::Limits;
use crate::secret::Secret;

const CHALLENGE: &str = r#"{"type":"event","event":"connect.challenge","payload":{"nonce":"NONCE","ts":1796026033930}}"#;
const HELLO: &str = r#"{"type":"hello-ok","protocol":4,"server":{"version":"2026.6.11","connId":"CONN_ID"},"features":{"methods":["health"],"events":["tick"]},"snapshot":{"presence":[],"health":{},"stateVersion":{"presence":1,"health":5},"uptimeMs":146745},"pluginSurfaceUrls":{"canvas":"http://127.0.0.1:1/cap/CAPABILITY"},"auth":{"role":"operator","scopes":["operator.admin","operator.read"],"deviceToken":"DEVICE_TOKEN","issuedAtMs":1796025982043},"policy":{"maxPayload":26214400,"maxBufferedBytes":52428800,"tickIntervalMs":30000}}"#;
const BARE_HELLO: &str = r#"{"type":"hello-ok","protocol":4}"#;
const TICK: &str = r#"{"type":"event","event":"tick","payload":{"ts":1},"seq":1}"#;
const MESSAGE: &str = r#"{"type":"event","event":"session.message","payload":{"sessionKey":"agent:main:main","message":{"role":"user","content":"hi"}}}"#;
const STARTING: &str = r#"{"code":"UNAVAILABLE","message":"gateway starting; retry shortly","retryable":true,"retryAfterMs":500,"details":{"reason":"startup-sidecars"}}"#;
const TOKEN_MISMATCH: &str = r#"{"code":"INVALID_REQUEST","message":"unauthorized: gateway token mismatch (set gateway.remote.token to match gateway.auth.token)","details":{"code":"AUTH_TOKEN_MISMATCH","authReason":"token_mismatch","canRetryWithDeviceToken":true,"recommendedNextStep":"retry_with_device_token"}}"#;
const TOKEN_MISSING: &str = r#"{"code":"INVALID_REQUEST","message":"unauthorized: gateway token missing (set gateway.remote.token to match gateway.auth.token)","details":{"code":"AUTH_TOKEN_MISSING","authReason":"token_missing","canRetryWithDeviceToken":false,"recommendedNextStep":"update_auth_configuration"}}"#;
const PASSWORD_MISMATCH: &str = r#"{"code":"INVALID_REQUEST","message":"unauthorized: gateway password mismatch (set gateway.remote.password to match gateway.auth.password)","details":{"code":"AUTH_PASSWORD_MISMATCH","authReason":"password_mismatch"}}"#;
const PAIRING: &str = r#"{"code":"NOT_PAIRED","message":"pairing required: device is not approved yet","details":{"code":"PAIRING_REQUIRED","reason":"not-paired","requestId":"3f0c-9","remediationHint":"x","deviceId":"d"}}"#;
const URL: &str = "ws://127.0.0.1:18789";

/// A session, its clock, and what it did in words.
struct Rig {
    session: GatewaySession,
    now: Now,
    entropy: Seeded,
    log: Vec<String>,
    sent: Vec<String>,
}

impl Rig {
    fn new(config: SessionConfig) -> Self {
        let now = Now {
            up: Uptime::from_millis(1_000),
            unix_ms: 1_796_026_033_939,
        };
        let mut rig = Self {
            session: GatewaySession::new(config, now),
            now,
            entropy: Seeded::new(1),
            log: Vec::new(),
            sent: Vec::new(),
        };
        rig.drain();
        rig
    }

    /// With a shared token, on this machine.
    fn with_token() -> Self {
        Self::new(config(Some("TOKEN")))
    }

    /// Ready, with nothing left to look at.
    fn ready() -> Self {
        let mut rig = Self::with_token();
        rig.serve();
        rig.take();
        rig
    }

    /// From Opening to Ready.
    fn serve(&mut self) {
        self.up();
        self.text(CHALLENGE);
        self.answer(HELLO);
        self.answer(r#"{"subscribed":true}"#);
    }

    fn up(&mut self) {
        self.session.handle_up(self.now);
        self.drain();
    }

    fn text(&mut self, text: &str) {
        let Self {
            session,
            now,
            entropy,
            ..
        } = self;
        session.handle_text(*now, text, entropy);
        self.drain();
    }

    fn closed(&mut self, code: Option<u16>, why: &str) {
        let Self {
            session,
            now,
            entropy,
            ..
        } = self;
        session.handle_closed(*now, why, code, entropy);
        self.drain();
    }

    /// Answers the request sent last.
    fn answer(&mut self, payload: &str) {
        let id = self.last_id();
        self.text(&format!(
            r#"{{"type":"res","id":"{id}","ok":true,"payload":{payload}}}"#
        ));
    }

    /// Refuses the request sent last.
    fn refuse(&mut self, error: &str) {
        let id = self.last_id();
        self.text(&format!(
            r#"{{"type":"res","id":"{id}","ok":false,"error":{error}}}"#
        ));
    }

    fn request(&mut self, method: &str) -> u64 {
        let id = self.session.request(self.now, method, r#"{"limit":1}"#);
        self.drain();
        id.0
    }

    /// Lets `ms` pass, stopping at each deadline, as a loop would.
    fn pass(&mut self, ms: u64) {
        let end = self.now.up.after(Duration::from_millis(ms));
        while let Some(deadline) = self.session.next_deadline() {
            if deadline.at > end {
                break;
            }
            self.jump(deadline.at);
            let next = self.session.next_deadline();
            assert!(
                next.is_none_or(|next| next.at > self.now.up),
                "{deadline:?} is followed by {next:?}, which is due"
            );
        }
        self.jump(end);
    }

    /// Lets time pass until the session opens a wire: how much, in milliseconds.
    fn pass_until_open(&mut self) -> u64 {
        let from = self.now.up;
        let deadline = self
            .session
            .next_deadline()
            .expect("it waits for something");
        self.jump(deadline.at);
        assert_eq!(self.state(), "Opening");
        u64::try_from(self.now.up.since(from).as_millis()).expect("short")
    }

    fn jump(&mut self, to: Uptime) {
        let passed = to.since(self.now.up).as_millis();
        self.now.up = to;
        self.now.unix_ms += i64::try_from(passed).expect("short");
        let Self {
            session,
            now,
            entropy,
            ..
        } = self;
        session.handle_timeout(*now, entropy);
        self.drain();
    }

    fn last_id(&self) -> String {
        let sent = self.sent.last().expect("something was sent");
        match Frame::parse(sent).expect("a frame") {
            Frame::Request(request) => request.id.into_owned(),
            Frame::Response(_) | Frame::Event(_) => panic!("{sent} is no request"),
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.session.poll() {
            let line = match output {
                SessionOutput::Open => "open".to_owned(),
                SessionOutput::Send(text) => {
                    let Ok(Frame::Request(request)) = Frame::parse(&text) else {
                        panic!("{text} is no request");
                    };
                    let line = format!("send {}", request.method);
                    self.sent.push(text);
                    line
                }
                SessionOutput::Close { code, reason } => {
                    let code = code.map_or("-".to_owned(), |code| code.to_string());
                    format!("close {code} {reason}")
                }
                SessionOutput::Abort => "abort".to_owned(),
                SessionOutput::HelloAccepted => "hello".to_owned(),
                SessionOutput::Ready { first: true } => "ready first".to_owned(),
                SessionOutput::Ready { first: false } => "ready again".to_owned(),
                SessionOutput::Lost { why, .. } => format!("lost: {why}"),
                SessionOutput::Refused(refusal) => format!("refused: {refusal}"),
                SessionOutput::Response {
                    id,
                    outcome: Ok(payload),
                } => {
                    format!("answer {id}: {}", payload.get())
                }
                SessionOutput::Response {
                    id,
                    outcome: Err(error),
                } => {
                    format!("error {id}: {error}")
                }
                SessionOutput::Event { name, payload } => {
                    format!("event {name} {}", payload.map_or(0, |raw| raw.get().len()))
                }
                SessionOutput::StoreToken(token) => format!("store {}", token.token.expose()),
                SessionOutput::ForgetToken => "forget".to_owned(),
                SessionOutput::Diagnostic(diagnostic) => diagnostic.to_string(),
            };
            self.log.push(line);
        }
    }

    /// What it did since this was asked last.
    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    fn state(&self) -> &'static str {
        match self.session.state {
            State::Waiting { .. } => "Waiting",
            State::Opening => "Opening",
            State::AwaitChallenge { .. } => "AwaitChallenge",
            State::Connecting { .. } => "Connecting",
            State::Subscribing { .. } => "Subscribing",
            State::Ready { .. } => "Ready",
            State::Closing { .. } => "Closing",
            State::Stopped => "Stopped",
        }
    }

    /// A member of the last connect request, by JSON pointer.
    fn connect_member(&self, pointer: &str) -> Option<serde_json::Value> {
        let sent = self
            .sent
            .iter()
            .rev()
            .find(|text| text.contains(r#""method":"connect""#));
        let frame: serde_json::Value = serde_json::from_str(sent?).expect("JSON");
        frame.pointer(pointer).cloned()
    }
}

fn config(token: Option<&str>) -> SessionConfig {
    SessionConfig {
        url_for_log: URL.to_owned(),
        loopback: true,
        identity: DeviceIdentity::generate(&mut Seeded::new(7)),
        credentials: Credentials {
            token: token.map(|token| Secret::new(token.to_owned())),
            password: None,
        },
        stored_token: None,
        platform: "linux",
        limits: Limits::default(),
    }
}

fn stored(token: &str) -> Option<StoredToken> {
    Some(StoredToken {
        token: Secret::new(token.to_owned()),
        role: identity::ROLE.to_owned(),
        scopes: Vec::new(),
        updated_at_ms: 0,
    })
}

// ---- the table of the module ----

type Input = fn(&mut Rig);

fn walk_to(state: &str) -> Rig {
    let mut rig = Rig::with_token();
    let steps: [(&str, Input); 6] = [
        ("Opening", |_| {}),
        ("AwaitChallenge", Rig::up),
        ("Connecting", |rig| rig.text(CHALLENGE)),
        ("Subscribing", |rig| rig.answer(HELLO)),
        ("Ready", |rig| rig.answer("{}")),
        ("Waiting", |rig| rig.closed(Some(1012), "service restart")),
    ];
    for (name, step) in steps {
        step(&mut rig);
        assert_eq!(rig.state(), name);
        if name == state {
            break;
        }
    }
    rig.take();
    rig
}

#[test]
fn each_row_of_the_table_holds() {
    let rows: [(&str, Input, &str, &[&str]); 23] = [
        (
            "Ready",
            |rig| {
                rig.closed(None, "reset");
                rig.pass_until_open();
                rig.up();
                rig.text(CHALLENGE);
                rig.take();
                rig.refuse(PASSWORD_MISMATCH);
            },
            "Closing",
            &["close 1008 connect failed", "warning"],
        ),
        ("Waiting", |rig| rig.pass(2_000), "Opening", &["open"]),
        ("Opening", Rig::up, "AwaitChallenge", &[]),
        (
            "AwaitChallenge",
            |rig| rig.text(CHALLENGE),
            "Connecting",
            &["send connect"],
        ),
        (
            "AwaitChallenge",
            |rig| {
                rig.text(r#"{"type":"event","event":"connect.challenge","payload":{"nonce":" "}}"#)
            },
            "Closing",
            &["close 1008 connect challenge missing nonce", "warning"],
        ),
        (
            "AwaitChallenge",
            |rig| rig.pass(15_000),
            "Closing",
            &["close 1008 connect challenge timeout", "warning"],
        ),
        (
            "Connecting",
            |rig| rig.answer(HELLO),
            "Subscribing",
            &["hello", "store DEVICE_TOKEN", "send sessions.subscribe"],
        ),
        (
            "Connecting",
            |rig| rig.refuse(STARTING),
            "Closing",
            &["info", "close 1013 gateway starting"],
        ),
        (
            "Connecting",
            |rig| rig.refuse(PAIRING),
            "Stopped",
            &["close 1008 connect failed", "refused"],
        ),
        (
            "Connecting",
            |rig| rig.answer("null"),
            "Closing",
            &["close 1008 connect failed", "warning"],
        ),
        (
            "Connecting",
            |rig| rig.pass(30_000),
            "Closing",
            &["close 1008 connect failed", "warning"],
        ),
        (
            "Subscribing",
            |rig| rig.answer("{}"),
            "Ready",
            &["ready first", "info"],
        ),
        (
            "Subscribing",
            |rig| rig.pass(30_000),
            "Closing",
            &["close 1008 connect failed", "warning"],
        ),
        (
            "Subscribing",
            |rig| rig.refuse(STARTING),
            "Closing",
            &["info", "close 1013 gateway starting"],
        ),
        (
            "Ready",
            |rig| rig.text(MESSAGE),
            "Ready",
            &["event session.message"],
        ),
        (
            "Ready",
            |rig| rig.pass(60_000),
            "Waiting",
            &["abort", "lost", "warning"],
        ),
        (
            "Ready",
            |rig| rig.closed(None, "reset"),
            "Waiting",
            &["lost", "warning"],
        ),
        (
            "Opening",
            |rig| rig.closed(None, "refused"),
            "Waiting",
            &["warning"],
        ),
        (
            "AwaitChallenge",
            |rig| rig.closed(None, "reset"),
            "Waiting",
            &["warning"],
        ),
        (
            "Connecting",
            |rig| rig.closed(Some(1008), "no"),
            "Waiting",
            &["warning"],
        ),
        (
            "Subscribing",
            |rig| rig.closed(Some(1008), "no"),
            "Waiting",
            &["warning"],
        ),
        (
            "AwaitChallenge",
            |rig| {
                rig.pass(15_000);
                rig.take();
                rig.closed(None, "closed by us");
            },
            "Waiting",
            &[],
        ),
        (
            "Waiting",
            |rig| rig.closed(None, "said twice"),
            "Waiting",
            &[],
        ),
    ];
    for (i, (from, input, to, outputs)) in rows.into_iter().enumerate() {
        let mut rig = walk_to(from);
        input(&mut rig);
        assert_eq!(rig.state(), to, "row {i}, from {from}");
        let log = rig.take();
        assert_eq!(log.len(), outputs.len(), "row {i}, from {from}: {log:?}");
        for (line, start) in log.iter().zip(outputs) {
            assert!(
                line.starts_with(start),
                "row {i}, from {from}: {line} is {start}"
            );
        }
    }
}

#[test]
fn shutdown_stops_every_state() {
    for (from, output) in [
        ("Waiting", None),
        ("Opening", Some("abort")),
        ("AwaitChallenge", Some("close - ")),
        ("Connecting", Some("close - ")),
        ("Subscribing", Some("close - ")),
        ("Ready", Some("close - ")),
    ] {
        let mut rig = walk_to(from);
        rig.session.shutdown(rig.now);
        rig.drain();
        assert_eq!(rig.state(), "Stopped");
        assert_eq!(
            rig.take().first().map(String::as_str),
            output,
            "from {from}"
        );
        assert_eq!(rig.session.next_deadline(), None);
        rig.closed(None, "closed by us");
        rig.text(MESSAGE);
        assert!(rig.take().is_empty(), "nothing follows");
    }
}

// ---- the recordings ----

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
    let mut limits = Limits::default();
    limits.gateway_challenge_timeout = Duration::from_secs(2);
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

// ---- authentication ----

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
        log[2].contains("was removed") && log[2].contains("--token-file"),
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
        let mut session = walk_to("Connecting").session;
        let text = format!(
            r#"{{"type":"res","id":"1","ok":false,"error":{{"code":"INVALID_REQUEST","message":"no","details":{{"code":"{code}"}}}}}}"#
        );
        session.handle_text(Now::default(), &text, &mut Seeded::new(1));
        let refusal = std::iter::from_fn(|| session.poll()).find_map(|output| match output {
            SessionOutput::Refused(refusal) => Some(refusal),
            _ => None,
        });
        let refusal = refusal.expect(code);
        assert_eq!((refusal.kind, &*refusal.code), (kind, code));
        assert!(refusal.fix.contains(fix), "{refusal}");
    }
}

// ---- requests, frames, liveness ----

#[test]
fn a_request_times_out_and_its_late_answer_is_counted() {
    let mut rig = Rig::ready();
    let id = rig.request("sessions.get");
    rig.take();
    rig.pass(15_000);
    rig.text(TICK);
    rig.pass(14_999);
    assert!(rig.take().is_empty());
    rig.pass(1);
    assert_eq!(
        rig.take(),
        [format!(
            "error {id}: gateway request timeout for sessions.get"
        )]
    );
    rig.answer("{}");
    rig.text(r#"{"type":"res","id":"no number","ok":true}"#);
    assert!(rig.take().is_empty());
    assert_eq!(rig.session.counters().late_answers, 2);
    assert!(rig.session.is_ready(), "no cancel frame, no reconnect");
}

#[test]
fn a_request_longer_than_the_gateway_takes_is_not_sent() {
    let mut rig = Rig::with_token();
    rig.up();
    rig.text(CHALLENGE);
    rig.answer(r#"{"type":"hello-ok","policy":{"maxPayload":100}}"#);
    rig.answer("{}");
    rig.take();
    let around = |length: usize| {
        let rest = r#"{"type":"req","id":"3","method":"send","params":{"m":""}}"#.len();
        format!(r#"{{"m":"{}"}}"#, "x".repeat(length - rest))
    };
    rig.session.request(rig.now, "send", &around(100));
    rig.session.request(rig.now, "send", &around(101));
    rig.drain();
    assert_eq!(
        rig.take(),
        [
            "send send",
            "error 4: request too large for the gateway: 101 bytes, limit 100",
        ]
    );
}

#[test]
fn more_requests_than_the_limit_are_busy() {
    let mut limits = Limits::default();
    limits.gateway_requests_max = 2;
    let mut rig = Rig::new(SessionConfig {
        limits,
        ..config(Some("TOKEN"))
    });
    rig.serve();
    for _ in 0..3 {
        rig.request("send");
    }
    assert_eq!(
        rig.take().last().map(String::as_str),
        Some("error 5: gateway is busy: 2 requests open, limit 2")
    );
}

#[test]
fn only_the_events_of_the_bridge_are_handed_on() {
    let mut rig = Rig::ready();
    for name in BRIDGE_EVENTS {
        rig.text(&format!(
            r#"{{"type":"event","event":"{name}","payload":{{}}}}"#
        ));
    }
    rig.text(r#"{"type":"event","event":"session.message","payload":null}"#);
    let log = rig.take();
    assert_eq!(log.len(), 6, "{log:?}");
    assert_eq!(log[5], "event session.message 0");
    for name in [
        "tick",
        "health",
        "presence",
        "chat",
        "agent",
        "connect.challenge",
    ] {
        rig.text(&format!(
            r#"{{"type":"event","event":"{name}","payload":{{}}}}"#
        ));
    }
    assert!(rig.take().is_empty());
    assert_eq!(rig.session.counters().dropped_events, 6);
    rig.text(MESSAGE);

    let mut rig = walk_to("Connecting");
    rig.text(MESSAGE);
    assert!(
        rig.take().is_empty(),
        "nothing is believed before the hello"
    );
}

#[test]
fn malformed_frames_are_counted_and_told_at_powers_of_two() {
    let mut rig = Rig::ready();
    for _ in 0..9 {
        rig.text("{");
        rig.text("[]");
    }
    let log = rig.take();
    assert_eq!(log.len(), 5, "1, 2, 4, 8, 16: {log:?}");
    assert_eq!(
        log[0],
        "warning: gateway sent a frame that is skipped: not JSON at line 1, byte 1 (1 so far)"
    );
    rig.text(r#"{"type":"req","id":"1","method":"x"}"#);
    assert_eq!(rig.session.counters().malformed_frames, 19);
    assert!(rig.session.is_ready());
}

#[test]
fn the_tick_interval_of_a_hello_is_clamped() {
    let rows = [
        ("1", 2_000),
        ("30000", 60_000),
        ("1e12", 200_000),
        ("-1", 2_000),
        ("\"x\"", 60_000),
    ];
    for (tick, silence) in rows {
        let mut rig = Rig::with_token();
        rig.up();
        rig.text(CHALLENGE);
        rig.answer(&format!(
            r#"{{"type":"hello-ok","policy":{{"tickIntervalMs":{tick}}}}}"#
        ));
        rig.answer("{}");
        rig.take();
        rig.pass(silence - 1);
        assert!(rig.session.is_ready(), "tick {tick}");
        rig.pass(1);
        assert!(!rig.session.is_ready(), "tick {tick}");
    }
}

#[test]
fn a_gateway_that_accepts_and_drops_gets_no_storm() {
    let mut rig = Rig::with_token();
    let mut waits = Vec::new();
    for _ in 0..6 {
        rig.serve();
        rig.closed(None, "reset");
        waits.push(rig.pass_until_open());
    }
    for (wait, step) in waits
        .iter()
        .zip([1_000, 2_000, 4_000, 8_000, 16_000, 30_000])
    {
        assert!((step * 8 / 10..=step * 12 / 10).contains(wait), "{waits:?}");
    }
    rig.serve();
    rig.pass(10_000);
    rig.closed(None, "reset");
    let wait = rig.pass_until_open();
    assert!(
        wait <= 1_200,
        "ten seconds of service start the steps over: {wait}"
    );
}

#[test]
fn a_gateway_that_is_down_at_start_is_waited_for_with_a_line_per_step() {
    let mut rig = Rig::with_token();
    for _ in 0..50 {
        rig.closed(None, "127.0.0.1:18789: connection refused");
        rig.pass_until_open();
    }
    let told: Vec<_> = rig
        .take()
        .into_iter()
        .filter(|line| line.starts_with("warning"))
        .collect();
    assert_eq!(told.len(), 6, "{told:?}");
    assert_eq!(
        told[0],
        "warning: cannot reach gateway ws://127.0.0.1:18789: 127.0.0.1:18789: connection refused, next try in 1 s"
    );
    rig.serve();
    assert!(rig.session.is_ready());
}

#[test]
fn a_close_before_the_hello_is_a_failed_try() {
    let mut rig = Rig::with_token();
    rig.up();
    rig.text(CHALLENGE);
    rig.closed(Some(1000), "");
    assert!(
        rig.session
            .not_connected(rig.now)
            .starts_with("gateway not connected: gateway closed before ready (1000): no reason given, next try in 1 s"),
        "{}",
        rig.session.not_connected(rig.now)
    );
    rig.pass_until_open();
}

#[test]
fn shutting_down_answers_what_is_open() {
    let mut rig = Rig::ready();
    let id = rig.request("send");
    rig.take();
    rig.session.shutdown(rig.now);
    rig.drain();
    let after = rig.request("send");
    assert_eq!(
        rig.take(),
        [
            "close - ".to_owned(),
            format!("error {id}: gateway connection closed: shutting down"),
            format!("error {after}: gateway not connected: shutting down"),
        ]
    );
}

/// Whatever a Gateway says and whenever, each request has one answer and no deadline stays due.
#[test]
fn random_conversations_answer_every_request_once() {
    for seed in 0..300 {
        let mut dice = Seeded::new(seed);
        let mut rig = Rig::with_token();
        let mut asked = 0;
        for _ in 0..200 {
            match dice.below(14) {
                0 => rig.up(),
                1 => rig.text(CHALLENGE),
                2 if !rig.sent.is_empty() => rig.answer(HELLO),
                3 if !rig.sent.is_empty() => rig.refuse(STARTING),
                4 if !rig.sent.is_empty() && asked > 0 => rig.refuse(PASSWORD_MISMATCH),
                5 => rig.closed(None, "reset"),
                6 => rig.closed(Some(1012), "service restart"),
                7 => rig.pass(dice.below(70_000)),
                8 => rig.text(&format!(
                    r#"{{"type":"res","id":"{}","ok":true}}"#,
                    dice.below(50)
                )),
                9 => rig.text("{"),
                10..=11 if rig.session.is_ready() => rig.text(MESSAGE),
                _ => {
                    rig.request("send");
                    asked += 1;
                }
            }
        }
        rig.session.shutdown(rig.now);
        rig.drain();
        let answers = rig
            .log
            .iter()
            .filter(|line| line.starts_with("answer") || line.starts_with("error "));
        assert_eq!(answers.count(), asked, "seed {seed}");
        let readies = rig
            .log
            .iter()
            .filter(|line| line.starts_with("ready"))
            .count();
        let losses = rig
            .log
            .iter()
            .filter(|line| line.starts_with("lost"))
            .count();
        assert!(losses <= readies && readies <= losses + 1, "seed {seed}");
    }
}
