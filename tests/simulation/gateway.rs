//! A Gateway that plays its part by dice: it challenges, accepts, answers, tells events, and gets every one
//! of these wrong now and then.

use std::collections::{BTreeMap, BTreeSet};

use drawspan::clock::Uptime;
use serde_json::Value;

use crate::plan::{Dice, Plan};
use crate::queue::{Queue, Sent};
use crate::support::{Door, FarEvent, World};

/// What it does later. Things of a connection that is over are not done.
#[derive(Clone, Debug)]
enum Act {
    /// Sends this frame.
    Say(u64, String),
    /// Sends the hello; from now on it owes us approvals, and more once subscribed.
    Accept(u64, String),
    Tick(u64),
    Event,
    Trouble,
    /// Accepts connections again.
    Up,
    OpenDoor,
    Eat,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    None,
    Up,
    Accepted,
    Subscribed,
}

/// See the module page.
pub struct Gateway {
    dice: Dice,
    trouble: u64,
    may_refuse: bool,
    event_pace_ms: u64,
    flood: u64,
    /// Whether its messages may be long.
    talkative: bool,
    /// Whether it mostly does not read.
    deaf: bool,
    agenda: BTreeMap<(u64, u64), Act>,
    acts: u64,
    /// Number of the present connection, from 1.
    pub connection: u64,
    phase: Phase,
    /// Whether the hub has been in service.
    served: bool,
    tick_ms: u64,
    silent_until: u64,
    serial: u64,
    approvals: u64,
    /// Codes of prompts that the client has asked about.
    pub codes: Vec<String>,
    /// What was done, for the transcript.
    pub notes: Vec<String>,
    pub log: BTreeMap<&'static str, u64>,
}

/// Frames of the hub, as they leave it: what may be asked when, and how often.
#[derive(Default)]
pub struct Frames {
    connects: usize,
    last_id: u64,
    asked: BTreeSet<(String, u64)>,
    /// Markers of calls whose arguments a hook has replaced.
    pub replaced: BTreeSet<u64>,
    challenged: bool,
    connected: bool,
    hello: bool,
    subscribing: Option<String>,
    subscribed: bool,
    open: BTreeSet<String>,
}

impl Gateway {
    pub fn new(seed: u64, plan: &Plan) -> Self {
        let mut gateway = Self {
            dice: Dice::new(seed, 1),
            trouble: plan.trouble,
            may_refuse: plan.may_refuse,
            event_pace_ms: plan.event_pace_ms,
            flood: plan.flood,
            talkative: true,
            deaf: plan.deaf_gateway,
            agenda: BTreeMap::new(),
            acts: 0,
            connection: 0,
            phase: Phase::None,
            served: false,
            tick_ms: 30_000,
            silent_until: 0,
            serial: 0,
            approvals: 0,
            codes: Vec::new(),
            notes: Vec::new(),
            log: BTreeMap::new(),
        };
        gateway.plan(0, Act::Event);
        gateway.plan(1_000, Act::Trouble);
        if !plan.gateway_up {
            let until = gateway.dice.below(20_000);
            gateway.plan(until, Act::Up);
        }
        gateway
    }

    fn plan(&mut self, at_ms: u64, act: Act) {
        self.acts += 1;
        self.agenda.insert((at_ms, self.acts), act);
    }

    fn note(&mut self, what: &'static str) {
        *self.log.entry(what).or_default() += 1;
        self.notes.push(format!("gateway: {what}"));
    }

    /// When it does something next.
    pub fn next(&self) -> Option<Uptime> {
        let first = self.agenda.keys().next();
        first.map(|(at_ms, _)| Uptime::from_millis(*at_ms))
    }

    /// Whether a connection is in service.
    pub fn is_serving(&self) -> bool {
        self.phase == Phase::Subscribed
    }

    /// From now on nothing goes wrong by its doing.
    pub fn calm_down(&mut self, world: &mut World) {
        self.trouble = 0;
        self.may_refuse = false;
        self.silent_until = 0;
        self.talkative = false;
        self.event_pace_ms = 1_000_000;
        world.gateway_up = true;
        world.gateway_door = Door::Open;
        world.gateway_appetite = None;
        if self.dice.percent(50) {
            self.cut(world);
        }
        self.agenda.retain(|_, act| match act {
            Act::Say(..) | Act::Accept(..) | Act::Tick(_) => true,
            Act::Event | Act::Trouble | Act::Up | Act::OpenDoor | Act::Eat => false,
        });
        if self.phase == Phase::Subscribed {
            let now = world.now.up.as_millis();
            self.plan(now, Act::Tick(self.connection));
        }
        world.settle();
    }

    /// Never answers again.
    pub fn fall_silent(&mut self) {
        self.silent_until = u64::MAX;
    }

    /// Something came to its end of the wire.
    pub fn hear(&mut self, now_ms: u64, event: &FarEvent) {
        match event {
            FarEvent::Up => {
                self.connection += 1;
                self.phase = Phase::Up;
                self.challenge(now_ms);
            }
            FarEvent::Closed(_) => self.phase = Phase::None,
            FarEvent::Text(text) => {
                let frame: Value = serde_json::from_str(text).expect("the hub writes JSON");
                self.answer(now_ms, &frame);
            }
        }
    }

    fn fails(&mut self) -> bool {
        let trouble = self.trouble;
        self.dice.percent(trouble)
    }

    fn delay(&mut self) -> u64 {
        match self.dice.below(4) {
            0 => 0,
            1 | 2 => self.dice.below(50),
            _ => self.dice.below(1_500),
        }
    }

    fn challenge(&mut self, now_ms: u64) {
        let connection = self.connection;
        let at = now_ms + self.delay();
        let challenge = format!(
            r#"{{"type":"event","event":"connect.challenge","payload":{{"nonce":"n{connection}","ts":1}}}}"#
        );
        if !self.fails() {
            return self.plan(at, Act::Say(connection, challenge));
        }
        match self.dice.below(5) {
            0 => self.note("no challenge"),
            1 => self.plan(at + 14_000, Act::Say(connection, challenge)),
            2 => {
                let empty =
                    r#"{"type":"event","event":"connect.challenge","payload":{"nonce":" "}}"#;
                self.plan(at, Act::Say(connection, empty.to_owned()));
            }
            3 => {
                self.plan(at, Act::Say(connection, challenge.clone()));
                self.plan(at, Act::Say(connection, challenge));
            }
            _ => {
                self.plan(at, Act::Say(connection, "{no frame".to_owned()));
                self.plan(at + 100, Act::Say(connection, challenge));
            }
        }
    }

    fn answer(&mut self, now_ms: u64, frame: &Value) {
        let (id, method) = (&frame["id"], frame["method"].as_str().unwrap_or(""));
        match method {
            "connect" => self.answer_connect(now_ms, id),
            "sessions.subscribe" => self.answer_subscribe(now_ms, id),
            _ => self.answer_request(now_ms, id, method, &frame["params"]),
        }
    }

    fn answer_connect(&mut self, now_ms: u64, id: &Value) {
        let connection = self.connection;
        let at = now_ms + self.delay();
        self.tick_ms = self.dice.pick(&[1_000, 5_000, 30_000]);
        let tick_ms = self.tick_ms;
        let token = self
            .dice
            .pick(&["", r#","auth":{"deviceToken":"D2","role":"operator"}"#]);
        let hello = format!(
            r#"{{"type":"res","id":{id},"ok":true,"payload":{{"type":"hello-ok","protocol":4,"server":{{"version":"2026.6.11"}},"policy":{{"tickIntervalMs":{tick_ms}}}{token}}}}}"#
        );
        let refused = self.may_refuse && !self.served && self.dice.percent(50);
        if !refused && !self.fails() {
            return self.plan(at, Act::Accept(connection, hello));
        }
        let refuse = |error: &str| {
            Act::Say(
                connection,
                format!(r#"{{"type":"res","id":{id},"ok":false,"error":{error}}}"#),
            )
        };
        let how = if refused { 2 } else { self.dice.below(7) };
        match how {
            0 => self.note("connect not answered"),
            1 => {
                self.note("starting");
                let wait = self.dice.pick(&[0, 300, 5_000]);
                let error = format!(
                    r#"{{"code":"UNAVAILABLE","message":"starting","retryable":true,"retryAfterMs":{wait}}}"#
                );
                self.plan(at, refuse(&error));
            }
            2 if self.served || self.may_refuse => {
                self.note("credentials refused");
                let code = self.dice.pick(&[
                    "AUTH_TOKEN_MISMATCH",
                    "AUTH_DEVICE_TOKEN_MISMATCH",
                    "PAIRING_REQUIRED",
                ]);
                let error = format!(
                    r#"{{"code":"INVALID_REQUEST","message":"no","details":{{"code":"{code}"}}}}"#
                );
                self.plan(at, refuse(&error));
            }
            3 => {
                self.note("connect refused for now");
                self.plan(at, refuse(r#"{"code":"INTERNAL","message":"oops"}"#));
            }
            4 => {
                self.note("no hello");
                let text = format!(r#"{{"type":"res","id":{id},"ok":true,"payload":7}}"#);
                self.plan(at, Act::Say(connection, text));
            }
            5 => {
                let other = hello.replacen(&id.to_string(), "\"777777\"", 1);
                self.plan(at, Act::Say(connection, other));
                self.plan(at, Act::Accept(connection, hello));
            }
            _ => self.plan(at + 9_000, Act::Accept(connection, hello)),
        }
    }

    fn answer_subscribe(&mut self, now_ms: u64, id: &Value) {
        let connection = self.connection;
        let at = now_ms + self.delay();
        self.phase = Phase::Subscribed;
        let done =
            format!(r#"{{"type":"res","id":{id},"ok":true,"payload":{{"subscribed":true}}}}"#);
        if !self.fails() {
            return self.plan(at, Act::Say(connection, done));
        }
        match self.dice.below(3) {
            0 => self.note("subscription not answered"),
            1 => {
                self.note("subscription refused");
                let text = format!(
                    r#"{{"type":"res","id":{id},"ok":false,"error":{{"code":"INTERNAL","message":"later"}}}}"#
                );
                self.plan(at, Act::Say(connection, text));
            }
            _ => self.plan(at + 9_000, Act::Say(connection, done)),
        }
    }

    fn answer_request(&mut self, now_ms: u64, id: &Value, method: &str, params: &Value) {
        self.served = true;
        let connection = self.connection;
        let at = now_ms + self.delay();
        let payload = payload_for(method, params);
        let done = format!(r#"{{"type":"res","id":{id},"ok":true,"payload":{payload}}}"#);
        if !self.fails() {
            return self.plan(at, Act::Say(connection, done));
        }
        let refused = format!(
            r#"{{"type":"res","id":{id},"ok":false,"error":{{"code":"INVALID_REQUEST","message":"not \"now\""}}}}"#
        );
        match self.dice.below(8) {
            0 => self.note("request not answered"),
            1 => {
                let late = self.dice.below(40_000);
                self.plan(at + late, Act::Say(connection, done));
            }
            2 => {
                self.plan(at, Act::Say(connection, done.clone()));
                let again = self.dice.below(500);
                self.plan(at + again, Act::Say(connection, done));
                self.note("answered twice");
            }
            3 => {
                let other = done.replacen(&id.to_string(), "\"999999999\"", 1);
                self.plan(at, Act::Say(connection, other));
                self.plan(at + 10, Act::Say(connection, done));
            }
            4 => {
                let odd = self.dice.pick(&[
                    "null",
                    "7",
                    "[]",
                    r#"{"sessions":7}"#,
                    r#"{"messages":{}}"#,
                    r#"{"session":null}"#,
                ]);
                let text = format!(r#"{{"type":"res","id":{id},"ok":true,"payload":{odd}}}"#);
                self.plan(at, Act::Say(connection, text));
            }
            5 => {
                self.plan(at, Act::Say(connection, refused));
                self.plan(at + 5, Act::Say(connection, done));
            }
            6 => {
                // The first request of all was answered long ago.
                let text = done.replacen(&id.to_string(), "\"1\"", 1);
                self.plan(at, Act::Say(connection, text));
                self.plan(at + 10, Act::Say(connection, done));
            }
            _ => self.plan(at, Act::Say(connection, refused)),
        }
    }

    /// Does what is due.
    pub fn act(&mut self, world: &mut World, queue: &mut Queue) {
        let now_ms = world.now.up.as_millis();
        while let Some(first) = self.agenda.first_entry() {
            if first.key().0 > now_ms {
                return;
            }
            let act = first.remove();
            self.act_once(now_ms, act, world, queue);
        }
    }

    fn act_once(&mut self, now_ms: u64, act: Act, world: &mut World, queue: &mut Queue) {
        let present = |connection: u64| connection == self.connection && world.is_connected();
        let muted = self.silent_until > now_ms || self.phase == Phase::None;
        match act {
            Act::Say(connection, text) if present(connection) && !muted => {
                world.gateway_says(&text)
            }
            Act::Accept(connection, hello) if present(connection) && !muted => {
                world.gateway_says(&hello);
                if self.phase == Phase::Up {
                    self.phase = Phase::Accepted;
                }
                self.plan(now_ms + self.tick_ms, Act::Tick(connection));
            }
            Act::Tick(connection) if present(connection) => {
                if !muted {
                    world.gateway_says(
                        r#"{"type":"event","event":"tick","payload":{"ts":1},"seq":1}"#,
                    );
                }
                self.plan(now_ms + self.tick_ms, Act::Tick(connection));
            }
            Act::Say(..) | Act::Accept(..) | Act::Tick(_) => {}
            Act::Event => {
                if !muted {
                    self.tell(world, queue);
                }
                let pace = self.event_pace_ms;
                let next = now_ms + 1 + self.dice.below(2 * pace);
                self.plan(next, Act::Event);
            }
            Act::Trouble => {
                if self.fails() {
                    self.trouble(now_ms, world, queue);
                }
                let next = now_ms + 1 + self.dice.below(2_000);
                self.plan(next, Act::Trouble);
            }
            Act::Up => world.gateway_up = true,
            Act::OpenDoor => world.gateway_door = Door::Open,
            Act::Eat => {
                world.gateway_appetite = None;
                world.settle();
            }
        }
    }

    fn trouble(&mut self, now_ms: u64, world: &mut World, queue: &mut Queue) {
        let kind = match self.deaf && self.dice.percent(80) {
            true => 7,
            false => self.dice.below(13),
        };
        match kind {
            0 => {
                self.note("restart");
                self.phase = Phase::None;
                world.gateway_closes(1012, "service restart");
                self.go_down(now_ms, world);
            }
            1 => {
                self.note("closes 1008");
                self.phase = Phase::None;
                world.gateway_closes(1008, "policy");
            }
            2 => {
                self.note("closes without a code");
                self.phase = Phase::None;
                world.gateway_closes_with(None, "");
            }
            3 | 4 => self.cut(world),
            5 => {
                self.cut(world);
                self.go_down(now_ms, world);
            }
            6 => {
                let silent_ms = self.dice.between(1, 3 * self.tick_ms);
                self.silent_until = now_ms + silent_ms;
                self.note("falls silent");
            }
            7 => {
                self.note("does not read");
                world.gateway_appetite = Some(self.dice.size(0, 200));
                let until = now_ms + self.dice.below(40_000);
                self.plan(until, Act::Eat);
            }
            8 => {
                self.note("ends its direction");
                self.phase = Phase::None;
                world.gateway_ends();
            }
            9 => {
                world.gateway_door = self.dice.pick(&[Door::Deaf, Door::Silent, Door::Refusing]);
                self.note("does not open");
                let until = now_ms + self.dice.below(20_000);
                self.plan(until, Act::OpenDoor);
                if self.dice.percent(50) {
                    self.cut(world);
                }
            }
            10 => {
                self.note("takes no more");
                self.phase = Phase::None;
                world.gateway_takes_no_more();
            }
            11 => {
                self.note("writes nonsense");
                let bytes: Vec<u8> = (0..self.dice.size(1, 40))
                    .map(|_| self.dice.pick(&[0, 0x81, 0xff, b'x']))
                    .collect();
                self.phase = Phase::None;
                world.gateway_writes(&bytes);
            }
            _ => {
                self.note("flood");
                for _ in 0..self.flood {
                    self.tell(world, queue);
                }
            }
        }
    }

    fn go_down(&mut self, now_ms: u64, world: &mut World) {
        world.gateway_up = false;
        let until = now_ms + self.dice.below(20_000);
        self.plan(until, Act::Up);
    }

    /// The connection breaks at any byte of what is under way.
    fn cut(&mut self, world: &mut World) {
        self.note("cut");
        self.phase = Phase::None;
        let under_way = world.gateway_bytes_under_way();
        let arrive = self.dice.size(0, under_way);
        world.gateway_cut_after(arrive);
    }

    /// Tells one event, well-formed or not.
    fn tell(&mut self, world: &mut World, queue: &mut Queue) {
        if self.phase == Phase::Up && world.is_connected() && self.dice.percent(20) {
            // Before its hello nothing is believed.
            world.gateway_says(
                r#"{"type":"event","event":"session.message","payload":{"sessionKey":"s1","message":{"role":"user","content":"too early"}}}"#,
            );
            self.note("event before the hello");
        }
        if self.phase < Phase::Accepted || !world.is_connected() {
            return;
        }
        match self.dice.below(20) {
            0 => self.tell_odd(world),
            1 => {
                let name =
                    self.dice
                        .pick(&["chat", "agent", "presence", "health", "sessions.changed"]);
                world.gateway_says(&format!(
                    r#"{{"type":"event","event":"{name}","payload":{{"serial":0}},"seq":9}}"#
                ));
            }
            2..=5 => self.tell_approval(world, queue),
            6 => self.tell_word(world, queue),
            _ => self.tell_message(world, queue),
        }
    }

    fn tell_odd(&mut self, world: &mut World) {
        let odd = self.dice.pick(&[
            r#"{"type":"event","event":"session.message"}"#,
            r#"{"type":"event","event":"session.message","payload":null}"#,
            r#"{"type":"event","event":"session.message","payload":[1]}"#,
            r#"{"type":"event","event":"session.message","payload":{"sessionKey":" "}}"#,
            r#"{"type":"event","event":"session.message","payload":{"message":{"role":"user"}}}"#,
            r#"{"type":"event","event":"exec.approval.requested","payload":"x"}"#,
            r#"{"type":"event","event":"exec.approval.requested"}"#,
            r#"{"type":"event","event":""}"#,
            r#"{"type":"event"}"#,
            r#"{"type":"res","id":"","ok":true}"#,
            r#"{"type":"req","id":"1","method":"x"}"#,
            r#"{"type":"what"}"#,
            "[]",
            "",
            "{",
        ]);
        world.gateway_says(odd);
        self.note("odd frame");
    }

    fn send(
        &mut self,
        world: &mut World,
        queue: &mut Queue,
        (name, kind): (&str, &'static str),
        payload: String,
        (sure, announced): (bool, bool),
    ) {
        world.gateway_says(&format!(
            r#"{{"type":"event","event":"{name}","payload":{payload}}}"#
        ));
        let sent = Sent {
            at: world.now.up,
            connection: self.connection,
            kind,
            payload,
            sure,
            announced,
        };
        queue.send(self.serial, sent);
    }

    fn tell_approval(&mut self, world: &mut World, queue: &mut Queue) {
        self.serial += 1;
        let (serial, names) = (
            self.serial,
            [
                ("exec.approval.requested", "exec_approval_requested"),
                ("plugin.approval.requested", "plugin_approval_requested"),
                ("exec.approval.resolved", "exec_approval_resolved"),
                ("plugin.approval.resolved", "plugin_approval_resolved"),
            ],
        );
        let name = self.dice.pick(&names);
        let id = match name.0.ends_with("requested") {
            true => {
                self.approvals += 1;
                self.approvals
            }
            false => self.dice.below(self.approvals + 1),
        };
        let expires =
            world.now.unix_ms + i64::try_from(self.dice.below(40_000)).expect("small") - 2_000;
        let id = self
            .dice
            .pick(&["", "\"id\":\"\","])
            .replace("\"\"", &format!("\"a{id}\""));
        let payload = format!(
            r#"{{{id}"serial":{serial},"request":{{"command":"ls"}},"createdAtMs":{serial},"expiresAtMs":{expires}}}"#
        );
        self.send(world, queue, name, payload, (true, false));
    }

    fn tell_message(&mut self, world: &mut World, queue: &mut Queue) {
        self.serial += 1;
        let serial = self.serial;
        let user = self.dice.percent(60);
        let route = self.dice.percent(80);
        let role = if user { "user" } else { "assistant" };
        let route_members = if route {
            r#","lastChannel":"telegram","lastTo":"42","lastThreadId":7"#
        } else {
            ""
        };
        let size = match self.dice.below(30) {
            0 if self.talkative => self.dice.size(500, 3_000),
            _ => self.dice.size(0, 30),
        };
        let code = self.code().filter(|_| !user).unwrap_or_default();
        let text = format!("hello é {code} {}", "x".repeat(size));
        let session = self.dice.pick(&["s1", "s2", "agent:main:three"]);
        let payload = format!(
            r#"{{"sessionKey":"{session}","serial":{serial},"messageId":"m-{serial}","messageSeq":{serial}.0,"message":{{"role":"{role}","content":[{{"type":"text","text":"{text}"}}]}}{route_members}}}"#
        );
        self.send(
            world,
            queue,
            ("session.message", "message"),
            payload,
            (true, user && route),
        );
    }

    fn code(&mut self) -> Option<String> {
        if self.codes.is_empty() || self.dice.percent(50) {
            return None;
        }
        let at = self.dice.size(0, self.codes.len() - 1);
        Some(self.codes[at].clone())
    }

    /// A message that may decide a permission prompt.
    fn tell_word(&mut self, world: &mut World, queue: &mut Queue) {
        let Some(code) = self.code() else {
            return self.tell_message(world, queue);
        };
        self.serial += 1;
        let serial = self.serial;
        let allow = self.dice.percent(50);
        let word = if allow { "Yes" } else { "no" };
        let role = self.dice.pick(&["user", "user", "assistant"]);
        let session = self.dice.pick(&["s1", "s2"]);
        if role == "user" {
            queue.say_word(&code, allow);
        }
        let payload = format!(
            r#"{{"sessionKey":"{session}","serial":{serial},"messageId":"m-{serial}","message":{{"role":"{role}","content":"{word} {code}"}}}}"#
        );
        self.send(
            world,
            queue,
            ("session.message", "message"),
            payload,
            (false, false),
        );
    }

    /// Tells one short event that must arrive.
    pub fn tell_one(&mut self, world: &mut World, queue: &mut Queue) {
        self.tell_message(world, queue);
    }
}

/// What a Gateway in good order answers. Keys and ids of the question come back in it.
fn payload_for(method: &str, params: &Value) -> String {
    let text = |name: &str| params[name].as_str().unwrap_or("none").to_owned();
    let row = |key: &str| {
        let label = text("search");
        format!(
            r#"{{"key":"{key}","label":"{label}","lastChannel":"telegram","lastTo":"42","updatedAt":1.0}}"#
        )
    };
    match method {
        "sessions.list" => format!(r#"{{"sessions":[{},7,{{}}]}}"#, row("s1")),
        "sessions.describe" => format!(r#"{{"session":{}}}"#, row(&text("key"))),
        "sessions.get" => {
            let key = text("key");
            format!(
                r#"{{"messages":[{{"id":"m-{key}","role":"user","content":[{{"type":"image","data":"{key}"}}]}}]}}"#
            )
        }
        "send" => format!(r#"{{"messageId":"sent {}"}}"#, text("sessionKey")),
        "exec.approval.list" => r#"[{"id":"a1","request":{},"createdAtMs":1},{}]"#.to_owned(),
        "plugin.approval.list" => "[]".to_owned(),
        _ => format!(r#"{{"ok":true,"id":"{}"}}"#, text("id")),
    }
}

/// The markers in a text.
pub fn markers(text: &str) -> BTreeSet<u64> {
    let parts = text.split("mk:").skip(1);
    let numbers = parts.filter_map(|rest| rest.split_once(':').map(|(number, _)| number));
    numbers.filter_map(|number| number.parse().ok()).collect()
}

impl Frames {
    /// Checks one frame at the hub's edge. `connects` is how often the hub has tried to connect.
    pub fn frame(
        &mut self,
        received: bool,
        text: &str,
        connects: usize,
        dead: &BTreeSet<u64>,
    ) -> Result<(), String> {
        if connects != self.connects {
            let before = std::mem::take(self);
            *self = Self {
                connects,
                last_id: before.last_id,
                asked: before.asked,
                replaced: before.replaced,
                ..Self::default()
            };
        }
        let Ok(frame) = serde_json::from_str::<Value>(text) else {
            return if received {
                Ok(())
            } else {
                Err(format!("no JSON: {text}"))
            };
        };
        if received {
            self.received(&frame);
            return Ok(());
        }
        let id = frame["id"].as_str().ok_or("a request without id")?;
        let number: u64 = id.parse().map_err(|_| format!("id {id}"))?;
        if number <= self.last_id {
            return Err(format!("request id {number} after {}", self.last_id));
        }
        self.last_id = number;
        let method = frame["method"].as_str().ok_or("no method")?;
        for marker in markers(text) {
            if !self.asked.insert((method.to_owned(), marker)) {
                return Err(format!("{method} of call mk:{marker}: was sent twice"));
            }
            let replaced = self.replaced.contains(&marker);
            if method == "send" && replaced && !text.contains("as the hook says") {
                return Err(format!(
                    "call mk:{marker}: was sent as it was before the hook"
                ));
            }
            if dead.contains(&marker) {
                return Err(format!(
                    "{method} of call mk:{marker}: which was over, was sent"
                ));
            }
        }
        let in_order = match method {
            "connect" => self.challenged && !std::mem::replace(&mut self.connected, true),
            "sessions.subscribe" => self.hello && self.subscribing.replace(id.to_owned()).is_none(),
            _ => self.subscribed,
        };
        if method == "connect" {
            self.open.insert(id.to_owned());
        }
        if in_order {
            Ok(())
        } else {
            Err(format!("{method} was sent too early, or twice"))
        }
    }

    /// Whether the hub knows that it is in service.
    pub const fn is_subscribed(&self) -> bool {
        self.subscribed
    }

    fn received(&mut self, frame: &Value) {
        let id = frame["id"].as_str().unwrap_or_default();
        let done = frame["ok"] == true;
        self.challenged |= frame["event"] == "connect.challenge";
        self.hello |= done && self.open.contains(id);
        self.subscribed |= done && self.subscribing.as_deref() == Some(id);
    }
}
