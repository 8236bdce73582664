//! A Gateway with its clients and its disk, in memory and on virtual time.

use std::collections::VecDeque;
use std::time::Duration;

use drawspan::clock::{Now, Uptime};
use drawspan::embedded::{Credentials, EmbeddedConfig, EmbeddedEvent, EmbeddedGateway};
use drawspan::entropy::Seeded;
use drawspan::gateway::identity::{Claim, DeviceIdentity};
use drawspan::ids::WireId;
use drawspan::limits::Limits;
use drawspan::link::websocket::{CloseReason, ConnectSpec, WebSocketLink, WsLinkEvent};
use drawspan::link::{Driven, IoEvent, IoRequest};
use drawspan::secret::Secret;
use serde_json::{Value, json};

/// Scopes the bridge asks for.
pub(crate) const SCOPES: [&str; 3] = ["operator.read", "operator.write", "operator.approvals"];

/// A Gateway, its clients and its disk.
pub(crate) struct World {
    pub(crate) now: Now,
    pub(crate) config: EmbeddedConfig,
    pub(crate) limits: Limits,
    pub(crate) gateway: EmbeddedGateway,
    pub(crate) clients: Vec<Client>,
    pub(crate) journal: Vec<u8>,
    /// Whether a reply left in this pump; a record after it would be lost in a crash.
    flushed: bool,
}

pub(crate) struct Client {
    pub(crate) link: WebSocketLink,
    /// The Gateway's end of the wire.
    pub(crate) wire: WireId,
    pub(crate) device: DeviceIdentity,
    pub(crate) texts: VecDeque<Value>,
    pub(crate) closed: Option<CloseReason>,
    requests: u64,
    /// Takes no bytes any more.
    pub(crate) stalled: bool,
}

pub(crate) fn config() -> EmbeddedConfig {
    EmbeddedConfig {
        credentials: Credentials {
            token: Some(Secret::new("hunter2".to_owned())),
            password: None,
        },
        store: Some("/store".to_owned()),
        ..EmbeddedConfig::default()
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(config(), Limits::default())
    }

    pub(crate) fn with(config: EmbeddedConfig, limits: Limits) -> Self {
        let now = Now {
            up: Uptime::from_millis(1_000),
            unix_ms: 1_800_000_000_000,
        };
        let entropy = Box::new(Seeded::new(1));
        let gateway =
            EmbeddedGateway::open(config.clone(), &limits, entropy, now, b"").expect("opens");
        Self {
            now,
            config,
            limits,
            gateway,
            clients: Vec::new(),
            journal: Vec::new(),
            flushed: false,
        }
    }

    /// The power goes, and the Gateway is started again on what was on the disk.
    pub(crate) fn restart(&mut self) {
        let (config, entropy) = (self.config.clone(), Box::new(Seeded::new(2)));
        let gateway = EmbeddedGateway::open(config, &self.limits, entropy, self.now, &self.journal);
        self.gateway = gateway.expect("opens");
        self.clients.clear();
    }

    /// A client that has not said anything yet.
    pub(crate) fn dial(&mut self, seed: u64) -> usize {
        let mut entropy = Seeded::new(seed);
        let device = DeviceIdentity::generate(&mut entropy);
        let wire = self
            .gateway
            .handle_accept(self.now, EmbeddedGateway::listener(), "127.0.0.1:5")
            .expect("accepted");
        let spec = ConnectSpec {
            host: "127.0.0.1".to_owned(),
            port: 18_789,
            path: "/".to_owned(),
            tls: None,
        };
        let mut link = WebSocketLink::client(WireId(1), spec, &self.limits, &mut entropy, self.now);
        link.accept_messages_up_to(self.limits.gateway_message_bytes_max);
        assert!(matches!(link.poll_io(), Some(IoRequest::Open(..))));
        link.handle_io(self.now, IoEvent::Opened);
        self.clients.push(Client {
            link,
            wire,
            device,
            texts: VecDeque::new(),
            closed: None,
            requests: 0,
            stalled: false,
        });
        self.pump();
        self.clients.len() - 1
    }

    /// A client that was let in and subscribed.
    pub(crate) fn join(&mut self, seed: u64) -> usize {
        self.join_with(seed, &SCOPES)
    }

    pub(crate) fn join_with(&mut self, seed: u64, scopes: &[&str]) -> usize {
        let client = self.dial(seed);
        let params = self.connect_params(client, scopes, "hunter2");
        let hello = self.call(client, "connect", params).expect("let in");
        assert_eq!(hello["type"], "hello-ok");
        let subscribed = self.call(client, "sessions.subscribe", json!({}));
        assert_eq!(subscribed, Ok(json!({"subscribed": true})));
        client
    }

    /// Valid parameters of `connect` for the challenge at hand.
    pub(crate) fn connect_params(&mut self, client: usize, scopes: &[&str], token: &str) -> Value {
        let challenge = self.clients[client].texts.pop_front().expect("challenge");
        assert_eq!(challenge["event"], "connect.challenge");
        let nonce = challenge["payload"]["nonce"]
            .as_str()
            .expect("nonce")
            .to_owned();
        self.sign(client, scopes, token, &nonce)
    }

    pub(crate) fn sign(&self, client: usize, scopes: &[&str], token: &str, nonce: &str) -> Value {
        let device = &self.clients[client].device;
        let claim = Claim {
            client_id: "cli",
            client_mode: "cli",
            role: "operator",
            scopes,
            signed_at_ms: self.now.unix_ms,
            token,
            nonce,
            platform: "linux",
            device_family: "",
        };
        let mut params = json!({
            "minProtocol": 4, "maxProtocol": 4,
            "client": {"id": "cli", "displayName": "Test", "version": "1", "platform": "linux", "mode": "cli"},
            "caps": [], "role": "operator", "scopes": scopes,
            "device": {
                "id": device.device_id(), "publicKey": device.public_key(),
                "signature": device.sign(&claim), "signedAt": self.now.unix_ms, "nonce": nonce,
            },
        });
        if !token.is_empty() {
            params["auth"] = json!({"token": token});
        }
        params
    }

    /// Sends a request and gives the id.
    pub(crate) fn ask(&mut self, client: usize, method: &str, params: Value) -> String {
        let it = &mut self.clients[client];
        it.requests += 1;
        let id = format!("r{}", it.requests);
        let frame = json!({"type": "req", "id": id, "method": method, "params": params});
        self.say(client, &frame.to_string());
        id
    }

    pub(crate) fn say(&mut self, client: usize, text: &str) {
        self.clients[client].link.send_text(text).expect("room");
        self.pump();
    }

    /// Sends a request and takes its response, leaving events where they are.
    pub(crate) fn call(
        &mut self,
        client: usize,
        method: &str,
        params: Value,
    ) -> Result<Value, Value> {
        let id = self.ask(client, method, params);
        self.response(client, &id).expect("answered")
    }

    pub(crate) fn response(&mut self, client: usize, id: &str) -> Option<Result<Value, Value>> {
        let texts = &mut self.clients[client].texts;
        let at = texts
            .iter()
            .position(|t| t["type"] == "res" && t["id"] == id)?;
        let mut frame = texts.remove(at)?;
        Some(if frame["ok"] == true {
            Ok(frame["payload"].take())
        } else {
            Err(frame["error"].take())
        })
    }

    pub(crate) fn events(&mut self, client: usize, name: &str) -> Vec<Value> {
        let texts = std::mem::take(&mut self.clients[client].texts);
        let (meant, rest) = texts.into_iter().partition(|t: &Value| t["event"] == name);
        self.clients[client].texts = rest;
        VecDeque::into_iter(meant)
            .map(|mut t| t["payload"].take())
            .collect()
    }

    /// Moves bytes until nobody has anything to do.
    pub(crate) fn pump(&mut self) {
        self.flushed = false;
        while self.pump_gateway() | self.pump_clients() {}
        if let Some(deadline) = self.gateway.next_deadline() {
            assert!(deadline.at > self.now.up, "still due: {}", deadline.why);
        }
    }

    fn pump_gateway(&mut self) -> bool {
        let mut busy = false;
        while let Some(request) = self.gateway.poll_io() {
            busy = true;
            match request {
                IoRequest::Append(lines) => {
                    assert!(!self.flushed, "a record after the reply it belongs to");
                    self.journal.extend_from_slice(&lines);
                }
                IoRequest::Flush(wire) => {
                    self.flushed = true;
                    let Some(client) = self.clients.iter_mut().find(|c| c.wire == wire) else {
                        continue;
                    };
                    let Some(out) = self.gateway.outgoing(wire) else {
                        continue;
                    };
                    if !client.stalled {
                        client
                            .link
                            .handle_io(self.now, IoEvent::Bytes(out.pending()));
                        let sent = out.len();
                        out.advance(sent);
                        client.collect();
                    }
                }
                IoRequest::Close(wire) | IoRequest::CloseWrite(wire) => {
                    let end = self.clients.iter_mut().find(|c| c.wire == wire);
                    if let Some(client) = end {
                        client.link.handle_io(self.now, IoEvent::Eof);
                        client.collect();
                    }
                }
                IoRequest::Open(..)
                | IoRequest::PauseReads(..)
                | IoRequest::Finish(_)
                | IoRequest::Signal(..) => panic!("unexpected {request:?}"),
            }
        }
        self.flushed = false;
        busy
    }

    fn pump_clients(&mut self) -> bool {
        let mut busy = false;
        for client in &mut self.clients {
            client.collect();
            while let Some(request) = client.link.poll_io() {
                busy = true;
                match request {
                    IoRequest::Flush(_) => {
                        let out = client.link.outgoing();
                        let bytes = out.pending().to_vec();
                        out.advance(bytes.len());
                        self.gateway
                            .handle_io(self.now, client.wire, IoEvent::Bytes(&bytes));
                    }
                    IoRequest::CloseWrite(_) | IoRequest::Close(_) => {
                        self.gateway.handle_io(self.now, client.wire, IoEvent::Eof);
                    }
                    IoRequest::Open(..)
                    | IoRequest::PauseReads(..)
                    | IoRequest::Finish(_)
                    | IoRequest::Signal(..)
                    | IoRequest::Append(_) => panic!("unexpected {request:?}"),
                }
            }
        }
        busy
    }

    pub(crate) fn wait(&mut self, by: Duration) {
        self.now.up = self.now.up.after(by);
        self.now.unix_ms += i64::try_from(by.as_millis()).expect("short");
        self.gateway.handle_timeout(self.now);
        for client in &mut self.clients {
            client.link.handle_timeout(self.now);
        }
        self.pump();
    }

    pub(crate) fn told(&mut self) -> Vec<EmbeddedEvent> {
        std::iter::from_fn(|| self.gateway.poll_event()).collect()
    }
}

impl Client {
    fn collect(&mut self) {
        while let Some(event) = self.link.poll_event() {
            match event {
                WsLinkEvent::Up => {}
                WsLinkEvent::Text(text) => {
                    self.texts
                        .push_back(serde_json::from_str(&text).expect("JSON"));
                }
                WsLinkEvent::Closed(reason) => self.closed = Some(reason),
            }
        }
    }
}

pub(crate) fn post(world: &mut World, client: usize, key: &str, text: &str) -> Value {
    let params = json!({"sessionKey": key, "text": text});
    world.call(client, "drawspan.post", params).expect("posted")
}

pub(crate) fn message_of(refused: &Result<Value, Value>) -> &str {
    let error = refused.as_ref().expect_err("refused");
    error["message"].as_str().expect("a message")
}

pub(crate) fn closed_with(world: &World, client: usize) -> (u16, String) {
    match &world.clients[client].closed {
        Some(CloseReason::Peer {
            code: Some(code),
            reason,
        }) => (*code, reason.clone()),
        other => panic!("not closed by a close frame: {other:?}"),
    }
}
