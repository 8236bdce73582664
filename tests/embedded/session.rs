//! Our own Gateway client against the embedded Gateway: two ends written apart must understand each
//! other.

use drawspan::embedded::EmbeddedGateway;
use drawspan::entropy::Seeded;
use drawspan::gateway::endpoint;
use drawspan::gateway::identity::{PLATFORM, StoredToken};
use drawspan::gateway::session::{GatewaySession, SessionConfig, SessionOutput};
use drawspan::link::websocket::CloseReason;
use drawspan::secret::Secret;
use serde_json::{Value, json};

use crate::world::World;

/// A session on one connection, and what it has put out besides frames.
struct Bridge {
    session: GatewaySession,
    client: usize,
    output: Vec<SessionOutput>,
}

fn start(world: &mut World, token: Option<&str>, stored_token: Option<StoredToken>) -> Bridge {
    let client = world.dial(1);
    let config = SessionConfig {
        url_for_log: "ws://127.0.0.1:18789".to_owned(),
        loopback: true,
        identity: world.clients[client].device.clone(),
        credentials: endpoint::Credentials {
            token: token.map(|token| Secret::new(token.to_owned())),
            password: None,
        },
        stored_token,
        platform: PLATFORM,
        limits: world.limits.clone(),
    };
    let mut session = GatewaySession::new(config, world.now);
    session.handle_up(world.now);
    let mut bridge = Bridge {
        session,
        client,
        output: Vec::new(),
    };
    bridge.turn(world);
    bridge
}

impl Bridge {
    /// Carries frames until nobody has anything to say.
    fn turn(&mut self, world: &mut World) {
        let mut entropy = Seeded::new(9);
        loop {
            while let Some(text) = world.clients[self.client].texts.pop_front() {
                let text = text.to_string();
                self.session.handle_text(world.now, &text, &mut entropy);
            }
            match self.session.poll() {
                Some(SessionOutput::Send(text)) => world.say(self.client, &text),
                Some(output) => self.output.push(output),
                None if world.clients[self.client].texts.is_empty() => return,
                None => {}
            }
        }
    }

    fn call(&mut self, world: &mut World, method: &str, params: Value) -> Result<Value, String> {
        let asked = self.session.request(world.now, method, &params.to_string());
        self.turn(world);
        let found = self.output.iter().find_map(|output| {
            let SessionOutput::Response { id, outcome } = output else {
                return None;
            };
            (*id == asked).then(|| outcome.clone())
        });
        match found.expect("answered") {
            Ok(payload) => Ok(serde_json::from_str(payload.get()).expect("JSON")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn token(&self) -> StoredToken {
        let stored = self.output.iter().find_map(|output| {
            let SessionOutput::StoreToken(token) = output else {
                return None;
            };
            Some(token.clone())
        });
        stored.expect("a device token")
    }
}

#[test]
fn the_session_becomes_ready_asks_and_hears() {
    let mut world = World::new();
    let mut bridge = start(&mut world, Some("hunter2"), None);
    assert!(bridge.session.is_ready(), "{:?}", bridge.output);
    let params = json!({"sessionKey": "main", "text": "hello"});
    let posted = bridge
        .call(&mut world, "drawspan.post", params)
        .expect("posted");
    assert_eq!(posted["sessionKey"], "agent:main:main");
    let heard = bridge.output.iter().any(
        |output| matches!(output, SessionOutput::Event { name, .. } if name == "session.message"),
    );
    assert!(heard, "{:?}", bridge.output);
    let params = json!({"limit": 50, "includeDerivedTitles": true, "includeLastMessage": true});
    let list = bridge
        .call(&mut world, "sessions.list", params)
        .expect("listed");
    assert_eq!(list["sessions"][0]["lastMessagePreview"], "hello");
    let refused = bridge.call(&mut world, "sessions.get", json!({}));
    let why = "invalid sessions.get params: must have required property 'key'";
    assert_eq!(refused, Err(why.to_owned()));
    assert_eq!(bridge.session.counters().malformed_frames, 0);
}

#[test]
fn the_stored_token_is_enough_after_both_started_again() {
    let mut world = World::new();
    let token = start(&mut world, Some("hunter2"), None).token();
    world.restart();
    let bridge = start(&mut world, None, Some(token));
    assert!(bridge.session.is_ready(), "{:?}", bridge.output);
    let wrong = start(&mut world, Some("hunter1"), None);
    let refused = wrong
        .output
        .iter()
        .any(|o| matches!(o, SessionOutput::Refused(_)));
    assert!(refused && !wrong.session.is_ready(), "{:?}", wrong.output);
}

#[test]
fn a_gateway_that_forgot_the_device_makes_the_session_forget_its_token() {
    let mut world = World::new();
    let token = start(&mut world, Some("hunter2"), None).token();
    world.journal.clear();
    world.restart();
    let bridge = start(&mut world, None, Some(token));
    let forgot = bridge
        .output
        .iter()
        .any(|o| matches!(o, SessionOutput::ForgetToken));
    assert!(forgot && !bridge.session.is_ready(), "{:?}", bridge.output);
}

#[test]
fn a_stopping_gateway_is_lost_and_tried_again() {
    let mut world = World::new();
    let mut bridge = start(&mut world, Some("hunter2"), None);
    EmbeddedGateway::stop(&mut world.gateway, world.now);
    world.pump();
    bridge.turn(&mut world);
    let Some(CloseReason::Peer { code, reason }) = world.clients[bridge.client].closed.clone()
    else {
        panic!("not closed by the Gateway");
    };
    let mut entropy = Seeded::new(9);
    bridge
        .session
        .handle_closed(world.now, &reason, code, &mut entropy);
    bridge.turn(&mut world);
    let lost = bridge.output.iter().any(|output| {
        matches!(output, SessionOutput::Lost { why, .. } if why == "gateway closed (1012): service restart")
    });
    assert!(lost, "{:?}", bridge.output);
}
