//! The session against a scripted Gateway on virtual time. The frames are those of recordings of
//! the original bridge, shortened where nobody looks.

mod authentication;
mod recordings;
mod service;

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
    refusal: Option<Refusal>,
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
            refusal: None,
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
                SessionOutput::Refused(refusal) => {
                    let line = format!("refused: {refusal}");
                    self.refusal = Some(refusal);
                    line
                }
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
    let rows: [(&str, Input, &str, &[&str]); 24] = [
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
            "AwaitChallenge",
            |rig| {
                rig.pass(15_000);
                rig.take();
                rig.pass(1_200);
                rig.closed(None, "closed by us");
            },
            "Opening",
            &["open"],
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
