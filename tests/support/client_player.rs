//! Plays the steps of a transcript against the client's side of a conversation alone;
//! `protocol-fixtures/README.md` says what they mean.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use drawspan::clock::{Now, Uptime};
use drawspan::ids::{QuestionId, UpstreamRequestId};
use drawspan::limits::Limits;
use drawspan::protocol::client::peer::{
    CallFault, ClientPeer, EraChoice, ListKind, PeerConfig, PeerOutput, RequestSpec,
};
use drawspan::protocol::client::{Carrier, Dialect, Outgoing, OutgoingKind, RequestEnd, StatusEnd};
use drawspan::protocol::error::{ErrorCode, RpcError};
use drawspan::protocol::message::LogLevel;
use drawspan::protocol::revision::Revision;
use drawspan::protocol::topic::Topic;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::EPOCH_MS;
use super::pattern::Bindings;

/// Members of a step.
const MEMBERS: [&str; 15] = [
    "at_ms", "bytes", "code", "dialect", "expect", "from", "headers", "id", "io", "message",
    "name", "note", "on", "reason", "times",
];

/// The first request id of the peer's own.
const FIRST_OWN_ID: u64 = 1000;

/// Parts of a step as they are spelled, to be sent like that.
#[derive(Deserialize)]
struct Sent<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

/// A request that the owner makes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted<'a> {
    method: &'a str,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    timeout_ms: Option<u64>,
    total_ms: Option<u64>,
    #[serde(default)]
    progress: bool,
    #[serde(default)]
    raw: bool,
}

/// One transcript under way.
pub struct ClientPlayer {
    peer: ClientPeer,
    now: Now,
    bindings: Bindings,
    to_server: VecDeque<PeerOutput>,
    to_owner: VecDeque<PeerOutput>,
}

impl ClientPlayer {
    /// A peer with the `settings` of a transcript.
    pub fn new(settings: &Value) -> Result<Self, String> {
        let mut config = PeerConfig {
            identity: r#"{"name":"drawspan","version":"0"}"#.to_owned(),
            capabilities: "{}".to_owned(),
            choice: EraChoice::Auto,
            known: None,
            carrier: Carrier::Lines,
            discover_timeout: Limits::DEFAULT.discover_timeout,
            connect_timeout: Limits::DEFAULT.connect_timeout,
            first_own_id: UpstreamRequestId(FIRST_OWN_ID),
            limits: Limits::default(),
        };
        let mut level = None;
        let mut up = true;
        for (name, value) in settings.as_object().into_iter().flatten() {
            match name.as_str() {
                "carrier" => config.carrier = carrier(value)?,
                "choice" => config.choice = choice(value)?,
                "known" => config.known = Some(revision(value)?),
                "capabilities" => config.capabilities = value.to_string(),
                "discover_timeout_ms" => config.discover_timeout = millis(value)?,
                "connect_timeout_ms" => config.connect_timeout = millis(value)?,
                "limits" => config.limits = super::player::limits(value)?,
                "log_level" => level = Some(log_level(value)?),
                "link" => up = value == "up",
                other => return Err(format!("unknown setting {other}")),
            }
        }
        let now = Now {
            up: Uptime::ZERO,
            unix_ms: EPOCH_MS,
        };
        let mut player = Self {
            peer: ClientPeer::new(config, now),
            now,
            bindings: Bindings::default(),
            to_server: VecDeque::new(),
            to_owner: VecDeque::new(),
        };
        player.peer.set_log_level(now, level);
        if up {
            player.peer.handle_up(now);
        }
        player.drain();
        Ok(player)
    }

    /// Takes the next step; an error says what was wrong.
    pub fn line(&mut self, line: &str) -> Result<(), String> {
        let step: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let mut members = step.as_object().into_iter().flat_map(|step| step.keys());
        if let Some(name) = members.find(|name| !MEMBERS.contains(&&***name)) {
            return Err(format!("a step has no member {name}"));
        }
        self.advance_to(step["at_ms"].as_u64().ok_or("at_ms is missing")?)?;
        let times = step["times"].as_u64().unwrap_or(1);
        let filled = match step.get("from") {
            Some(_) => self.bindings.fill(line)?,
            None => String::new(),
        };
        match (step["from"].as_str(), step["expect"].as_str()) {
            (Some(actor), None) => (0..times).try_for_each(|_| self.act(actor, &filled)),
            (None, Some(actor)) => self.expect(actor, &step),
            _ => Err("a step has either `from` or `expect`, with an actor".to_owned()),
        }
    }

    /// Says whether something came that nobody expected.
    pub fn finish(&mut self) -> Result<(), String> {
        let is_noise = |output: &&PeerOutput| !matches!(output, PeerOutput::Noise { .. });
        let left = self.to_server.front();
        match left.or_else(|| self.to_owner.iter().find(is_noise)) {
            Some(output) => Err(format!("nobody expected {output:?}")),
            None => Ok(()),
        }
    }

    fn advance_to(&mut self, at_ms: u64) -> Result<(), String> {
        let at = Uptime::from_millis(at_ms);
        if at < self.now.up {
            return Err(format!("at_ms {at_ms} lies in the past"));
        }
        let mut turns = 0;
        while let Some(due) = self.peer.next_deadline().filter(|due| due.at <= at) {
            self.now.up = self.now.up.max(due.at);
            self.peer.handle_timeout(self.now);
            self.drain();
            turns += 1;
            if turns > 10_000 {
                return Err(format!("{} is due for ever", due.why));
            }
        }
        self.now.up = at;
        Ok(())
    }

    fn drain(&mut self) {
        while let Some(output) = self.peer.poll() {
            match output {
                PeerOutput::Send(_) | PeerOutput::Forget(_) => self.to_server.push_back(output),
                // Told beside the refusal that the server gets.
                PeerOutput::Undeclared { .. } => {}
                PeerOutput::Ready
                | PeerOutput::Failed(_)
                | PeerOutput::TryOlderPair
                | PeerOutput::Response { .. }
                | PeerOutput::Progress { .. }
                | PeerOutput::Notification { .. }
                | PeerOutput::ListChanged(_)
                | PeerOutput::Subscribed { .. }
                | PeerOutput::Question { .. }
                | PeerOutput::QuestionGone(_)
                | PeerOutput::Noise { .. } => self.to_owner.push_back(output),
            }
        }
    }

    fn act(&mut self, actor: &str, line: &str) -> Result<(), String> {
        let step: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let sent: Sent<'_> = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let message = sent.message.map(RawValue::get);
        let id = step["id"].as_u64();
        let on = step["on"].as_u64().map(UpstreamRequestId);
        let reason = step["reason"].as_str().unwrap_or("");
        let bytes = step["bytes"].as_str().unwrap_or("").as_bytes();
        let (peer, now) = (&mut self.peer, self.now);
        match (actor, step["io"].as_str().unwrap_or("")) {
            ("server", "") => peer.handle_message(now, message.map_or(bytes, str::as_bytes), on),
            ("server", "up") => peer.handle_up(now),
            ("server", "unreadable") => peer.handle_unreadable(now, reason, bytes),
            ("server", "closed") => peer.handle_closed(now, reason),
            ("server", "end") => {
                let on = on.ok_or("on is missing")?;
                peer.handle_end(now, on, end(&step["message"], reason)?);
            }
            ("owner", "request") => {
                let wanted: Wanted<'_> = serde_json::from_str(message.ok_or("no message")?)
                    .map_err(|error| error.to_string())?;
                let headers = step["headers"].as_object().into_iter().flatten();
                let spec = RequestSpec {
                    method: wanted.method.to_owned().into(),
                    params: wanted.params.map(RawValue::get),
                    opaque: None,
                    timeout: Duration::from_millis(wanted.timeout_ms.unwrap_or(60_000)),
                    total: wanted.total_ms.map(Duration::from_millis),
                    wants_progress: wanted.progress,
                    headers: headers
                        .map(|(name, value)| {
                            (name.as_str().into(), value.as_str().unwrap_or("").into())
                        })
                        .collect(),
                    raw_questions: wanted.raw,
                    capabilities: None,
                };
                peer.request(now, UpstreamRequestId(id.ok_or("id is missing")?), spec);
            }
            ("owner", "cancel") => {
                peer.cancel(now, UpstreamRequestId(id.ok_or("id is missing")?), reason);
            }
            ("owner", "answer") => {
                let id = QuestionId(id.ok_or("id is missing")?);
                match message {
                    Some(result) => peer.answer(now, id, Ok(result)),
                    None => {
                        let error = RpcError::new(ErrorCode::InvalidRequest, reason);
                        peer.answer(now, id, Err(error));
                    }
                }
            }
            ("owner", "notify") => {
                let method = step["name"].as_str().ok_or("name is missing")?;
                peer.notify(now, method, message);
            }
            ("owner", "level") => peer.set_log_level(now, Some(log_level(&step["name"])?)),
            ("owner", "subscribe") => {
                let uris = step["message"].as_array().ok_or("message is a list")?;
                let topic = |one: &Value| match one.as_str() {
                    Some(uri) => Some(Topic::Resource(uri.to_owned())),
                    None => Some(Topic::Task(one["task"].as_str()?.to_owned())),
                };
                let uris: BTreeSet<Topic> = uris.iter().filter_map(topic).collect();
                peer.set_subscriptions(now, &uris)
                    .map_err(|fault| fault.to_string())?;
            }
            (actor, io) => return Err(format!("{actor} cannot do {io:?}")),
        }
        self.drain();
        Ok(())
    }

    fn expect(&mut self, actor: &str, step: &Value) -> Result<(), String> {
        let queue = match actor {
            "server" => &mut self.to_server,
            "owner" => &mut self.to_owner,
            other => return Err(format!("unknown actor {other}")),
        };
        let io = step["io"].as_str().unwrap_or("");
        // Noise is expected where it matters, and may be passed over elsewhere.
        while io != "noise" && matches!(queue.front(), Some(PeerOutput::Noise { .. })) {
            queue.pop_front();
        }
        if io == "nothing" {
            return match queue.front() {
                None => Ok(()),
                Some(output) => Err(format!("expected nothing, got {output:?}")),
            };
        }
        let output = queue
            .pop_front()
            .ok_or_else(|| format!("nothing came to {actor}"))?;
        let (kind, id, on, told) = shape(&output);
        if kind != io {
            return Err(format!("expected {io:?}, got {output:?}"));
        }
        for (name, got) in [("id", id), ("on", on)] {
            if let Some(wanted) = step.get(name) {
                let got = got.map_or(Value::Null, Value::from);
                self.bindings
                    .check(wanted, &got.to_string())
                    .map_err(|why| format!("{name} {why}"))?;
            }
        }
        if let PeerOutput::Send(outgoing) = &output {
            check_frame(step, outgoing)?;
        }
        if let Some(bytes) = step["bytes"].as_str() {
            return match told {
                Some(told) if told == bytes => Ok(()),
                told => Err(format!("expected the bytes {bytes}\n  got {told:?}")),
            };
        }
        match (step.get("message"), told) {
            (None, _) => Ok(()),
            (Some(wanted), Some(told)) => self.bindings.check(wanted, &told),
            (Some(_), None) => Err(format!("there is no message in {output:?}")),
        }
    }
}

/// Kind, id, request and text of what came out.
fn shape(output: &PeerOutput) -> (&'static str, Option<u64>, Option<u64>, Option<String>) {
    let raw = |text: &Option<Box<str>>| Some(text.as_deref().unwrap_or("null").to_owned());
    let quoted = |text: &str| Some(Value::from(text).to_string());
    match output {
        PeerOutput::Send(outgoing) => {
            let text = String::from_utf8_lossy(&outgoing.body).into_owned();
            ("", None, None, Some(text))
        }
        PeerOutput::Forget(id) => ("forget", None, Some(id.0), None),
        PeerOutput::Ready => ("ready", None, None, None),
        PeerOutput::TryOlderPair => ("older_pair", None, None, None),
        PeerOutput::Failed(fault) => ("failed", None, None, quoted(&fault.to_string())),
        PeerOutput::Response { id, outcome } => match outcome {
            Ok(result) => ("response", Some(id.0), None, Some(result.to_string())),
            Err(fault) => ("fault", Some(id.0), None, Some(call_words(fault))),
        },
        PeerOutput::Progress { id, params } => {
            ("progress", Some(id.0), None, Some(params.to_string()))
        }
        PeerOutput::Notification { method, params, on } => {
            let on = on.map(|on| on.0);
            let params = params.as_deref().unwrap_or("null");
            let text = format!(r#"{{"method":{},"params":{params}}}"#, json!(method));
            ("notification", None, on, Some(text))
        }
        PeerOutput::Undeclared { method } => ("undeclared", None, None, quoted(method)),
        PeerOutput::Subscribed { topic, outcome } => {
            let (kind, name) = match topic {
                Topic::Resource(uri) => ("uri", json!(uri)),
                Topic::Task(id) => ("task", json!(id)),
            };
            match (topic, outcome) {
                (Topic::Resource(_), Ok(())) => ("subscribed", None, None, Some(name.to_string())),
                (Topic::Task(_), Ok(())) => {
                    let text = json!({ kind: name }).to_string();
                    ("subscribed", None, None, Some(text))
                }
                (_, Err(fault)) => {
                    let text = format!(r#"{{"{kind}":{name},"why":{}}}"#, call_words(fault));
                    ("not_subscribed", None, None, Some(text))
                }
            }
        }
        PeerOutput::ListChanged(list) => {
            let name = match list {
                ListKind::Tools => "tools",
                ListKind::Resources => "resources",
                ListKind::Prompts => "prompts",
            };
            ("changed", None, None, quoted(name))
        }
        PeerOutput::Question {
            id,
            method,
            params,
            on,
        } => {
            let params = raw(params).unwrap_or_default();
            let text = format!(r#"{{"method":{},"params":{params}}}"#, json!(method));
            ("question", Some(id.0), on.map(|on| on.0), Some(text))
        }
        PeerOutput::QuestionGone(id) => ("gone", Some(id.0), None, None),
        PeerOutput::Noise { why, .. } => ("noise", None, None, quoted(why)),
    }
}

/// An error of the server as an object, anything else as words.
fn call_words(fault: &CallFault) -> String {
    let (CallFault::Remote(error) | CallFault::Refused(error)) = fault else {
        return Value::from(fault.to_string()).to_string();
    };
    let data = error.data.as_deref().unwrap_or("null");
    format!(
        r#"{{"code":{},"message":{},"data":{data}}}"#,
        error.code,
        json!(error.message)
    )
}

/// What a message is sent with, where the step says it.
fn check_frame(step: &Value, outgoing: &Outgoing) -> Result<(), String> {
    let dialect = match outgoing.dialect {
        Dialect::Handshake => "handshake".to_owned(),
        Dialect::Session(revision) => format!("session {revision}"),
        Dialect::Stateless(revision) => format!("stateless {revision}"),
    };
    let (name, headers) = match &outgoing.kind {
        OutgoingKind::Request { name, headers, .. } => (name.as_deref(), headers.as_slice()),
        OutgoingKind::Notification { .. } | OutgoingKind::Answer => (None, [].as_slice()),
    };
    let headers: serde_json::Map<String, Value> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), Value::from(&**value)))
        .collect();
    let got = [
        ("dialect", Value::from(dialect)),
        ("name", name.map_or(Value::Null, Value::from)),
        ("headers", Value::Object(headers)),
    ];
    for (member, got) in got {
        match step.get(member) {
            Some(wanted) if *wanted != got => {
                return Err(format!("{member}: expected {wanted}, got {got}"));
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

fn end(told: &Value, reason: &str) -> Result<RequestEnd, String> {
    let reason = reason.to_owned();
    match told.as_str() {
        Some("not_sent") => return Ok(RequestEnd::NotSent(reason)),
        Some("broken") => return Ok(RequestEnd::Broken(reason)),
        Some("accepted") => return Ok(RequestEnd::Accepted),
        Some("session_lost") => return Ok(RequestEnd::SessionLost { status: 404 }),
        Some(other) => return Err(format!("unknown end {other}")),
        None => {}
    }
    let status = told["status"].as_u64().ok_or("an end has a status")?;
    Ok(RequestEnd::Status(Box::new(StatusEnd {
        status: u16::try_from(status).map_err(|error| error.to_string())?,
        body: match (told["body"].as_str(), &told["body"]) {
            (Some(text), _) => text.as_bytes().to_vec(),
            (None, Value::Null) => Vec::new(),
            (None, body) => body.to_string().into_bytes(),
        },
        challenge: told["challenge"].as_str().map(str::to_owned),
        retry_after_ms: told["retry_after_ms"].as_u64(),
        content_type: None,
    })))
}

fn revision(value: &Value) -> Result<Revision, String> {
    let revision = value.as_str().and_then(Revision::parse);
    revision.ok_or_else(|| format!("no revision: {value}"))
}

fn carrier(value: &Value) -> Result<Carrier, String> {
    match value.as_str() {
        Some("lines") => Ok(Carrier::Lines),
        Some("http") => Ok(Carrier::Http),
        Some("sse") => Ok(Carrier::Sse),
        _ => Err(format!("no carrier: {value}")),
    }
}

fn choice(value: &Value) -> Result<EraChoice, String> {
    match value.as_str() {
        Some("auto") => Ok(EraChoice::Auto),
        Some("legacy") => Ok(EraChoice::Legacy),
        Some("modern") => Ok(EraChoice::Modern),
        _ => revision(value).map(EraChoice::Only),
    }
}

fn millis(value: &Value) -> Result<Duration, String> {
    let ms = value.as_u64().ok_or("a time is in milliseconds")?;
    Ok(Duration::from_millis(ms))
}

fn log_level(value: &Value) -> Result<LogLevel, String> {
    LogLevel::read(Some(&value.to_string())).map_err(|error| error.message)
}
