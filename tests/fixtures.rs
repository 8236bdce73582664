//! Replays the transcripts of `protocol-fixtures/` on virtual time. The format is described in
//! `protocol-fixtures/README.md`; one test per area, each file a case of its own in the failure text.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use drawspan::bridge::ChannelMode;
use drawspan::hub::{HookConfig, HubPolicy, Outcome};
use drawspan::limits::Limits;
use drawspan::link::{ChildSpec, ExitReport};
use serde_json::{Map, Value};
use support::{FarEvent, Setup, World};

#[test]
fn legacy_transcripts() {
    replay_all("legacy");
}

#[test]
fn modern_transcripts() {
    replay_all("modern");
}

#[test]
fn gateway_transcripts() {
    replay_all("gateway");
}

#[test]
fn a_transcript_can_fail() {
    let head = r#"{"fixture":1,"title":"t","revision":"2025-11-25","source":"s","actors":["a","gateway"],"settings":{"gateway":"down"}}"#;
    let ping = r#"{"at_ms":0,"from":"a","message":{"jsonrpc":"2.0","id":1,"method":"ping"}}"#;
    let failure = |steps: &[&str]| {
        let text = [&[head, ping], steps].concat().join("\n");
        replay("made up", &text).expect_err("it must fail")
    };
    let wrong =
        failure(&[r#"{"at_ms":0,"expect":"a","message":{"jsonrpc":"2.0","id":2,"result":{}}}"#]);
    assert!(wrong.contains("id: expected 2, got 1"), "{wrong}");
    let silent = failure(&[
        r#"{"at_ms":0,"expect":"a","message":{"jsonrpc":"2.0","id":1,"result":{}}}"#,
        r#"{"at_ms":5,"expect":"a","message":"$any"}"#,
    ]);
    assert!(silent.contains("nothing came"), "{silent}");
    let left = failure(&[]);
    assert!(left.contains("nobody expected"), "{left}");
}

fn replay_all(area: &str) {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("protocol-fixtures")
        .join(area);
    let files = files(&root);
    assert!(!files.is_empty(), "no fixtures in {}", root.display());
    let mut failures = Vec::new();
    for file in &files {
        let name = file
            .strip_prefix(&root)
            .expect("below the root")
            .display()
            .to_string();
        let text = std::fs::read_to_string(file).expect("readable");
        if let Err(failure) = replay(&name, &text) {
            failures.push(failure);
        }
    }
    assert!(
        failures.is_empty(),
        "{} of {} failed:\n{}",
        failures.len(),
        files.len(),
        failures.join("\n")
    );
}

/// Plays one transcript; an error says file, line and what was wrong.
fn replay(name: &str, text: &str) -> Result<(), String> {
    let mut lines = text.lines().enumerate();
    let head: Value = lines
        .next()
        .and_then(|(_, line)| serde_json::from_str(line).ok())
        .ok_or_else(|| format!("{name}:1: no JSON"))?;
    for member in ["title", "revision", "source", "actors"] {
        if head.get(member).is_none() {
            return Err(format!("{name}:1: {member} is missing"));
        }
    }
    if head["fixture"] != 1 {
        return Err(format!("{name}:1: fixture must be 1"));
    }
    let mut player = Player::new(&head["settings"]).map_err(|why| format!("{name}:1: {why}"))?;
    for (number, line) in lines {
        let at = |why: String| format!("{name}:{}: {why}", number + 1);
        let step: Value = serde_json::from_str(line).map_err(|error| at(error.to_string()))?;
        player.step(&step).map_err(at)?;
    }
    player
        .finish()
        .map_err(|why| format!("{name}: at the end: {why}"))
}

struct Player {
    world: World,
    bound: BTreeMap<String, Value>,
}

impl Player {
    fn new(settings: &Value) -> Result<Self, String> {
        let mut setup = Setup::default();
        for (name, value) in settings.as_object().into_iter().flatten() {
            match name.as_str() {
                "mode" => {
                    setup.mode = match value.as_str() {
                        Some("auto") => ChannelMode::Auto,
                        Some("on") => ChannelMode::On,
                        Some("off") => ChannelMode::Off,
                        _ => return Err(format!("mode {value}")),
                    }
                }
                "gateway" => setup.gateway_up = value != "down",
                "token" => setup.token = value.as_str().map(|text| &*text.to_owned().leak()),
                "limits" => setup.limits = limits(value)?,
                "hook" => setup.policy = hook(),
                other => return Err(format!("unknown setting {other}")),
            }
        }
        let mut world = World::new(setup);
        if let Some(printed) = settings["hook"].as_str().map(str::to_owned) {
            world.on_child(Box::new(move |_, _| {
                Some((printed.clone(), ExitReport::Code(0)))
            }));
        }
        Ok(Self {
            world,
            bound: BTreeMap::new(),
        })
    }

    fn step(&mut self, step: &Value) -> Result<(), String> {
        let at_ms = step["at_ms"].as_u64().ok_or("at_ms is missing")?;
        if at_ms < self.world.now.up.as_millis() {
            return Err(format!("at_ms {at_ms} lies in the past"));
        }
        self.world.advance_to(at_ms);
        match (step["from"].as_str(), step["expect"].as_str()) {
            (Some("a"), None) => self.client_acts(step),
            (Some("gateway"), None) => self.gateway_acts(step),
            (None, Some(actor)) => self.expect(actor, step),
            _ => Err("a step has either `from` or `expect`, with an actor".to_owned()),
        }
    }

    fn client_acts(&mut self, step: &Value) -> Result<(), String> {
        match step["io"].as_str() {
            None if step.get("message").is_some() => {
                let message = self.fill(&step["message"])?;
                self.world.client_says(&message.to_string());
            }
            None => {
                let bytes = step["bytes"].as_str().ok_or("neither message nor bytes")?;
                self.world.client_writes(bytes.as_bytes());
            }
            Some("eof") => self.world.client_ends(),
            Some("gone") => self.world.client_vanishes(),
            Some(other) => return Err(format!("io {other} is nothing a client does")),
        }
        Ok(())
    }

    fn gateway_acts(&mut self, step: &Value) -> Result<(), String> {
        match step["io"].as_str() {
            Some("text") => match step["bytes"].as_str() {
                Some(bytes) => self.world.gateway_says(bytes),
                None => {
                    let message = self.fill(&step["message"])?;
                    self.world.gateway_says(&message.to_string());
                }
            },
            Some("close") => {
                let code = step["code"]
                    .as_u64()
                    .and_then(|code| u16::try_from(code).ok());
                let reason = step["reason"].as_str().unwrap_or("");
                self.world
                    .gateway_closes(code.ok_or("code is missing")?, reason);
            }
            Some("cut") => self.world.gateway_cut(),
            Some("down") => self.world.gateway_up = false,
            Some("up") => self.world.gateway_up = true,
            other => return Err(format!("io {other:?} is nothing a gateway does")),
        }
        Ok(())
    }

    fn expect(&mut self, actor: &str, step: &Value) -> Result<(), String> {
        let wanted = &step["message"];
        match actor {
            "a" => {
                let line = self
                    .world
                    .client_lines
                    .pop_front()
                    .ok_or("nothing came to a")?;
                self.compare(wanted, &line)
            }
            "gateway" => {
                let event = self
                    .world
                    .far_events
                    .pop_front()
                    .ok_or("nothing came to gateway")?;
                match (step["io"].as_str(), event) {
                    (None, FarEvent::Text(text)) => self.compare(wanted, &text),
                    (Some("up"), FarEvent::Up) | (Some("close"), FarEvent::Closed(_)) => Ok(()),
                    (io, event) => Err(format!("expected io {io:?}, got {event:?}")),
                }
            }
            "stderr" => {
                let line = self
                    .world
                    .diagnostics
                    .pop_front()
                    .ok_or("nothing on stderr")?;
                let part = wanted.as_str().ok_or("message must be a text")?;
                if part == "$any" || line.contains(part) {
                    Ok(())
                } else {
                    Err(format!("stderr says {line:?}, expected {part:?} in it"))
                }
            }
            "exit" => {
                let code = match self.world.finished {
                    Some(Outcome::ClientDone | Outcome::Stopped) => 0,
                    Some(Outcome::Refused(_)) => 3,
                    None => return Err("it has not ended".to_owned()),
                };
                let wanted = step["code"].as_i64().ok_or("code is missing")?;
                if code == wanted {
                    Ok(())
                } else {
                    Err(format!("exit {code}, expected {wanted}"))
                }
            }
            other => Err(format!("unknown actor {other}")),
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        if let Some(line) = self.world.client_lines.pop_front() {
            return Err(format!("nobody expected a to get {line}"));
        }
        match self.world.far_events.pop_front() {
            Some(FarEvent::Text(text)) => Err(format!("nobody expected gateway to get {text}")),
            Some(FarEvent::Up | FarEvent::Closed(_)) | None => Ok(()),
        }
    }

    fn compare(&mut self, wanted: &Value, text: &str) -> Result<(), String> {
        let got: Value = serde_json::from_str(text).map_err(|_| format!("no JSON: {text}"))?;
        self.matches("", wanted, &got)
            .map_err(|why| format!("{why}\n  in {text}"))
    }

    fn matches(&mut self, path: &str, wanted: &Value, got: &Value) -> Result<(), String> {
        let differs = || Err(format!("{path}: expected {wanted}, got {got}"));
        match (wanted, got) {
            (Value::String(text), _) if text == "$any" => Ok(()),
            (Value::String(text), _) if text.starts_with("$bind:") => {
                let known = self
                    .bound
                    .entry(text.clone())
                    .or_insert_with(|| got.clone());
                if known == got {
                    Ok(())
                } else {
                    Err(format!("{path}: expected {known}, got {got}"))
                }
            }
            (Value::String(text), Value::String(got)) if text.starts_with("$starts:") => {
                if got.starts_with(&text["$starts:".len()..]) {
                    Ok(())
                } else {
                    differs()
                }
            }
            (Value::Object(wanted), Value::Object(got)) => self.members_match(path, wanted, got),
            (Value::Array(wanted), Value::Array(got)) if wanted.len() == got.len() => {
                for (i, (wanted, got)) in wanted.iter().zip(got).enumerate() {
                    self.matches(&format!("{path}[{i}]"), wanted, got)?;
                }
                Ok(())
            }
            (wanted, got) if wanted == got => Ok(()),
            _ => differs(),
        }
    }

    fn members_match(
        &mut self,
        path: &str,
        wanted: &Map<String, Value>,
        got: &Map<String, Value>,
    ) -> Result<(), String> {
        let more = wanted.get("$more") == Some(&Value::Bool(true));
        for (name, wanted) in wanted.iter().filter(|(name, _)| *name != "$more") {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            let got = got.get(name).ok_or_else(|| format!("{path}: is missing"))?;
            self.matches(&path, wanted, got)?;
        }
        match got.keys().find(|name| !more && !wanted.contains_key(*name)) {
            Some(name) => Err(format!("{path}: nobody expected member {name}")),
            None => Ok(()),
        }
    }

    /// Replaces what was bound before.
    fn fill(&self, message: &Value) -> Result<Value, String> {
        Ok(match message {
            Value::String(text) if text.starts_with("$bind:") => self
                .bound
                .get(text)
                .cloned()
                .ok_or_else(|| format!("{text} is not bound yet"))?,
            Value::Array(items) => items
                .iter()
                .map(|item| self.fill(item))
                .collect::<Result<_, _>>()?,
            Value::Object(members) => members
                .iter()
                .map(|(name, value)| Ok((name.clone(), self.fill(value)?)))
                .collect::<Result<Map<_, _>, String>>()?
                .into(),
            other => other.clone(),
        })
    }
}

fn limits(value: &Value) -> Result<Limits, String> {
    let mut limits = Limits::default();
    for (name, value) in value.as_object().ok_or("limits must be an object")? {
        let value = value.as_u64().ok_or("a limit must be an integer")?;
        limits.set(name, value).map_err(|error| error.to_string())?;
    }
    Ok(limits)
}

fn hook() -> HubPolicy {
    let command = ChildSpec {
        program: "hook".to_owned(),
        args: Vec::new(),
        env: Vec::new(),
    };
    HubPolicy::Hook(HookConfig {
        command,
        timeout: None,
    })
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            found.push(path);
        }
    }
    found.sort();
    found
}
