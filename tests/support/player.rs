//! Plays the steps of a transcript against a world; `protocol-fixtures/README.md` says what they mean.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Debug;
use std::rc::Rc;

use drawspan::bridge::ChannelMode;
use drawspan::gate::Verdict;
use drawspan::gateway::session::RefusalKind;
use drawspan::hub::{HookConfig, HubEvent, HubPolicy, Outcome};
use drawspan::ids::CallId;
use drawspan::limits::Limits;
use drawspan::link::{ChildSpec, ExitReport};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::pattern::Bindings;
use super::{FarEvent, Setup, Travel, World};

/// Members of a step.
const MEMBERS: [&str; 11] = [
    "at_ms", "bytes", "code", "expect", "from", "hex", "io", "message", "note", "reason", "times",
];

/// What has happened before the first step when the setting `gateway` is `ready`.
const READY: &str = r#"{"at_ms":0,"expect":"gateway","io":"up"}
{"at_ms":0,"from":"gateway","io":"text","message":{"type":"event","event":"connect.challenge","payload":{"nonce":"NONCE","ts":1796000000000}}}
{"at_ms":0,"expect":"gateway","message":{"type":"req","id":"$bind:ready-c","method":"connect","params":"$any"}}
{"at_ms":0,"from":"gateway","io":"text","message":{"type":"res","id":"$bind:ready-c","ok":true,"payload":{"type":"hello-ok","protocol":4,"policy":{"tickIntervalMs":30000}}}}
{"at_ms":0,"expect":"gateway","message":{"type":"req","id":"$bind:ready-s","method":"sessions.subscribe","params":{}}}
{"at_ms":0,"from":"gateway","io":"text","message":{"type":"res","id":"$bind:ready-s","ok":true,"payload":{"subscribed":true}}}
{"at_ms":0,"expect":"gateway","message":{"type":"req","id":"$bind:ready-e","method":"exec.approval.list","params":{}}}
{"at_ms":0,"expect":"gateway","message":{"type":"req","id":"$bind:ready-p","method":"plugin.approval.list","params":{}}}
{"at_ms":0,"from":"gateway","io":"text","message":{"type":"res","id":"$bind:ready-e","ok":true,"payload":[]}}
{"at_ms":0,"from":"gateway","io":"text","message":{"type":"res","id":"$bind:ready-p","ok":true,"payload":[]}}"#;

/// The `message` of a step as it is spelled, to be sent like that.
#[derive(Deserialize)]
struct Sent<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

/// What a before-tool-call hook does, and what it has read.
#[derive(Clone, Default)]
struct Hook {
    prints: String,
    exit_code: i32,
    hangs: bool,
    inputs: Rc<RefCell<VecDeque<String>>>,
}

/// One transcript under way.
pub struct Player {
    world: World,
    bindings: Bindings,
    hook: Hook,
    /// The call that a person was asked about last.
    asked_about: Option<CallId>,
}

impl Player {
    /// A world with the `settings` of a transcript.
    pub fn new(settings: &Value, travel: Travel) -> Result<Self, String> {
        let mut setup = Setup {
            travel,
            ..Setup::default()
        };
        let mut hook = Hook::default();
        let leaked = |value: &Value| value.as_str().map(|text| &*text.to_owned().leak());
        for (name, value) in settings.as_object().into_iter().flatten() {
            match name.as_str() {
                "mode" => setup.mode = mode(value)?,
                "gateway" => setup.gateway_up = value != "down",
                "token" => setup.token = leaked(value),
                "password" => setup.password = leaked(value),
                "stored_token" => setup.stored_token = leaked(value),
                "verbose" => setup.verbose = value == true,
                "limits" => setup.limits = limits(value)?,
                "hook" => {
                    setup.policy = hook_policy();
                    hook = read_hook(value)?;
                }
                other => return Err(format!("unknown setting {other}")),
            }
        }
        let mut world = World::new(setup);
        let for_child = hook.clone();
        world.on_child(Box::new(move |_, input| {
            for_child.inputs.borrow_mut().push_back(input.to_owned());
            let exit = ExitReport::Code(for_child.exit_code);
            (!for_child.hangs).then(|| (for_child.prints.clone(), exit))
        }));
        let mut player = Self {
            world,
            bindings: Bindings::default(),
            hook,
            asked_about: None,
        };
        if settings["gateway"] == "ready" {
            READY.lines().try_for_each(|line| player.line(line))?;
            player.world.diagnostics.clear();
        }
        Ok(player)
    }

    /// Takes the next step; an error says what was wrong.
    pub fn line(&mut self, line: &str) -> Result<(), String> {
        let step: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let sent: Sent<'_> = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let members = step.as_object().into_iter().flat_map(|step| step.keys());
        if let Some(name) = members
            .into_iter()
            .find(|name| !MEMBERS.contains(&&***name))
        {
            return Err(format!("a step has no member {name}"));
        }
        self.step(&step, sent.message.map(RawValue::get))
    }

    fn step(&mut self, step: &Value, message: Option<&str>) -> Result<(), String> {
        let at_ms = step["at_ms"].as_u64().ok_or("at_ms is missing")?;
        if at_ms < self.world.now.up.as_millis() {
            return Err(format!("at_ms {at_ms} lies in the past"));
        }
        self.world.advance_to(at_ms);
        let times = step["times"].as_u64().unwrap_or(1);
        match (step["from"].as_str(), step["expect"].as_str()) {
            (Some(actor), None) => {
                let text = message.or(step["bytes"].as_str());
                let text = text.map(|text| self.bindings.fill(text)).transpose()?;
                (0..times).try_for_each(|_| self.act(actor, step, text.as_deref()))
            }
            (None, Some(actor)) => self.expect(actor, step),
            _ => Err("a step has either `from` or `expect`, with an actor".to_owned()),
        }
    }

    fn act(&mut self, actor: &str, step: &Value, text: Option<&str>) -> Result<(), String> {
        let world = &mut self.world;
        let hex = step["hex"].as_str().map(hex).transpose()?;
        let io = step["io"].as_str().unwrap_or("");
        if actor == "gateway" && !matches!(io, "up" | "down") && !world.is_connected() {
            return Err("there is no connection to the gateway".to_owned());
        }
        match (actor, io, text, hex) {
            ("a", "", Some(text), None) if step.get("message").is_some() => world.client_says(text),
            ("a", "", Some(text), None) => world.client_writes(text.as_bytes()),
            ("a", "", None, Some(bytes)) => world.client_writes(&bytes),
            ("a", "eof", None, None) => world.client_ends(),
            ("a", "gone", None, None) => world.client_vanishes(),
            ("a", "stall", None, None) => world.client_reads(Some(0)),
            ("a", "resume", None, None) => world.client_reads(None),
            ("gateway", "text", Some(text), None) => world.gateway_says(text),
            ("gateway", "raw", None, Some(bytes)) => world.gateway_writes(&bytes),
            ("gateway", "close", None, None) => {
                let code = step["code"].as_u64().ok_or("code is missing")?;
                let code = u16::try_from(code).map_err(|error| error.to_string())?;
                world.gateway_closes(code, step["reason"].as_str().unwrap_or(""));
            }
            ("gateway", "cut", None, None) => world.gateway_cut(),
            ("gateway", "down", None, None) => world.gateway_up = false,
            ("gateway", "up", None, None) => world.gateway_up = true,
            ("person", "allow", None, None) => {
                self.person_answers(Verdict::Allow { arguments: None })?;
            }
            ("person", "deny", Some(reason), None) => {
                let reason = reason.to_owned();
                self.person_answers(Verdict::Deny { reason })?;
            }
            ("host", "stop", None, None) => world.shut_down(),
            _ => return Err(format!("{actor} cannot do this")),
        }
        Ok(())
    }

    fn expect(&mut self, actor: &str, step: &Value) -> Result<(), String> {
        let nothing = step["io"] == "nothing";
        match actor {
            "a" if nothing => none(self.world.client_lines.front()),
            "a" => {
                let line = self.world.client_lines.pop_front();
                self.compare(step, &line.ok_or("nothing came to a")?)
            }
            "gateway" if nothing => none(self.world.far_events.front()),
            "gateway" => {
                let event = self.world.far_events.pop_front();
                match (step["io"].as_str(), event.ok_or("nothing came to gateway")?) {
                    (None, FarEvent::Text(text)) => self.compare(step, &text),
                    (Some("up"), FarEvent::Up) => Ok(()),
                    (Some("close"), FarEvent::Closed(how)) => has(step, &how),
                    (io, event) => Err(format!("expected io {io:?}, got {event:?}")),
                }
            }
            "stderr" if nothing => none(self.world.diagnostics.front()),
            "stderr" => {
                let line = self.world.diagnostics.pop_front();
                has(step, &line.ok_or("nothing on stderr")?)
            }
            "hook" if nothing => none(self.hook.inputs.borrow().front()),
            "hook" => {
                let input = self.hook.inputs.borrow_mut().pop_front();
                self.compare(step, &input.ok_or("no hook ran")?)
            }
            "store" if nothing => none(self.kept().as_ref()),
            "store" => {
                let kept = self.kept().ok_or("there was nothing to store")?;
                self.compare(step, &kept.to_string())
            }
            "person" if nothing => none(self.asked().as_ref()),
            "person" => {
                let asked = self.asked().ok_or("nobody was asked")?;
                self.compare(step, &asked.to_string())
            }
            "exit" if nothing => none(self.world.finished.as_ref()),
            "exit" => {
                let code = match &self.world.finished {
                    Some(Outcome::ClientDone | Outcome::Stopped) => 0,
                    Some(Outcome::ClientFailed) => 1,
                    Some(Outcome::Refused(refusal)) => {
                        let of_us =
                            matches!(refusal.kind, RefusalKind::Protocol | RefusalKind::Request);
                        if of_us { 1 } else { 3 }
                    }
                    None => return Err("it has not ended".to_owned()),
                };
                match step["code"].as_i64().ok_or("code is missing")? {
                    wanted if wanted == code => Ok(()),
                    wanted => Err(format!("exit {code}, expected {wanted}")),
                }
            }
            other => Err(format!("unknown actor {other}")),
        }
    }

    /// The next device token that the hub wants kept, `null` for one to forget.
    fn kept(&mut self) -> Option<Value> {
        let events = self.world.hub_events.iter();
        let found = events.enumerate().find_map(|(at, event)| match event {
            HubEvent::StoreToken(token) => Some((
                at,
                json!({
                    "token": token.token.expose(),
                    "role": token.role,
                    "scopes": token.scopes,
                    "updatedAtMs": token.updated_at_ms,
                }),
            )),
            HubEvent::ForgetToken => Some((at, Value::Null)),
            HubEvent::GateAsked { .. }
            | HubEvent::Diagnostic(_)
            | HubEvent::GatewayFrame { .. }
            | HubEvent::ListenFailed { .. }
            | HubEvent::Local(_)
            | HubEvent::LocalCancelled(_)
            | HubEvent::ClientNotification { .. }
            | HubEvent::Finished(_) => None,
        });
        let (at, kept) = found?;
        self.world.hub_events.remove(at);
        Some(kept)
    }

    /// What a person is asked next; the step that follows may answer it.
    fn asked(&mut self) -> Option<Value> {
        let events = self.world.hub_events.iter();
        let found = events.enumerate().find_map(|(at, event)| match event {
            HubEvent::GateAsked {
                call,
                title,
                description,
            } => Some((
                at,
                *call,
                json!({"title": title, "description": description}),
            )),
            HubEvent::StoreToken(_)
            | HubEvent::ForgetToken
            | HubEvent::Diagnostic(_)
            | HubEvent::Finished(_)
            | HubEvent::GatewayFrame { .. }
            | HubEvent::ListenFailed { .. }
            | HubEvent::Local(_)
            | HubEvent::LocalCancelled(_)
            | HubEvent::ClientNotification { .. } => None,
        });
        let (at, call, asked) = found?;
        self.world.hub_events.remove(at);
        self.asked_about = Some(call);
        Some(asked)
    }

    fn person_answers(&mut self, verdict: Verdict) -> Result<(), String> {
        let call = self.asked_about.ok_or("nobody was asked")?;
        self.world.person_answers(call, verdict);
        Ok(())
    }

    /// Says whether something came that nobody expected.
    pub fn finish(&mut self) -> Result<(), String> {
        if let Some(line) = self.world.client_lines.pop_front() {
            return Err(format!("nobody expected a to get {line}"));
        }
        let texts = |event: &FarEvent| matches!(event, FarEvent::Text(_));
        match self.world.far_events.iter().find(|event| texts(event)) {
            Some(event) => Err(format!("nobody expected gateway to get {event:?}")),
            None => Ok(()),
        }
    }

    fn compare(&mut self, step: &Value, got: &str) -> Result<(), String> {
        let Some(wanted) = step["bytes"].as_str() else {
            return self.bindings.check(&step["message"], got);
        };
        match self.bindings.fill(wanted)? {
            wanted if wanted == got => Ok(()),
            wanted => Err(format!("expected the bytes {wanted}\n  got {got}")),
        }
    }
}

fn none<T: Debug>(front: Option<&T>) -> Result<(), String> {
    front.map_or(Ok(()), |front| {
        Err(format!("expected nothing, got {front:?}"))
    })
}

/// Whether a text for people contains the `message` of a step that has one.
fn has(step: &Value, text: &str) -> Result<(), String> {
    match step["message"].as_str() {
        None | Some("$any") => Ok(()),
        Some(part) if text.contains(part) => Ok(()),
        Some(part) => Err(format!("expected {part:?} in {text:?}")),
    }
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = text.chars().filter(|digit| *digit != ' ').collect();
    let byte = |pair: &[char]| {
        let pair: String = pair.iter().collect();
        u8::from_str_radix(&pair, 16).map_err(|error| format!("hex {pair:?}: {error}"))
    };
    digits.chunks(2).map(byte).collect()
}

fn mode(value: &Value) -> Result<ChannelMode, String> {
    match value.as_str() {
        Some("auto") => Ok(ChannelMode::Auto),
        Some("on") => Ok(ChannelMode::On),
        Some("off") => Ok(ChannelMode::Off),
        _ => Err(format!("mode {value}")),
    }
}

/// Limits with the settings of a transcript.
pub(super) fn limits(value: &Value) -> Result<Limits, String> {
    let mut limits = Limits::default();
    for (name, value) in value.as_object().ok_or("limits must be an object")? {
        let value = value.as_u64().ok_or("a limit must be an integer")?;
        limits.set(name, value).map_err(|error| error.to_string())?;
    }
    Ok(limits)
}

fn read_hook(value: &Value) -> Result<Hook, String> {
    let mut hook = Hook::default();
    if let Some(prints) = value.as_str() {
        hook.prints = prints.to_owned();
        return Ok(hook);
    }
    for (name, value) in value.as_object().ok_or("hook is a text or an object")? {
        match (name.as_str(), value) {
            ("prints", Value::String(text)) => hook.prints = text.clone(),
            ("exit", Value::Number(code)) => {
                let code = code.as_i64().and_then(|code| i32::try_from(code).ok());
                hook.exit_code = code.ok_or("exit is a code")?;
            }
            ("hangs", Value::Bool(hangs)) => hook.hangs = *hangs,
            (name, value) => return Err(format!("hook does not know {name}: {value}")),
        }
    }
    Ok(hook)
}

fn hook_policy() -> HubPolicy {
    let command = ChildSpec {
        program: "hook".to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        cwd: None,
    };
    HubPolicy::Hook(HookConfig {
        command,
        timeout: None,
    })
}
