//! Recordings of the real bridge, played against ours: what it asked the Gateway, what it answered and
//! what it announced must come out byte for byte. Answers of ours may only add the members named in
//! `without_ours`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::*;

#[derive(Deserialize)]
struct Head {
    title: String,
    unix_ms_at_zero: i64,
}

#[derive(Deserialize)]
struct Line<'a> {
    at_ms: u64,
    io: Option<&'a str>,
    from: Option<&'a str>,
    expect: Option<&'a str>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

/// Any frame or message of either side.
#[derive(Deserialize)]
struct Frame<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<&'a str>,
    event: Option<&'a str>,
    ok: Option<bool>,
    error: Option<RemoteError>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RemoteError {
    code: String,
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    name: Option<&'a str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    request_id: Option<u64>,
}

struct Player {
    rig: Rig,
    /// Our ticket of each request, by the id it has in the recording.
    tickets: BTreeMap<String, Ticket>,
}

/// Our answer without the members that the real bridge does not have.
fn without_ours(result: &str) -> String {
    let Some(at) = result.find(",\"dropped\":") else {
        return result.to_owned();
    };
    let end = result[at..].find('}').expect("an object ends") + at;
    format!("{}{}", &result[..at], &result[end..])
}

/// Parameters without the one random value in them.
fn without_key(params: &str) -> String {
    let name = "\"idempotencyKey\":\"";
    let Some(at) = params.find(name) else {
        return params.to_owned();
    };
    let at = at + name.len();
    let key = &params[at..at + 36];
    assert_eq!(key.as_bytes()[14], b'4', "a random UUID: {key}");
    format!("{}{}", &params[..at], &params[at + 36..])
}

fn number(id: Option<&RawValue>) -> CallId {
    CallId(id.expect("an id").get().parse().expect("a number"))
}

impl Player {
    fn play(recording: &str, mode: ChannelMode) {
        let mut lines = recording.lines();
        let head: Head = serde_json::from_str(lines.next().expect("a first line")).expect("a head");
        let mut rig = Rig::new(&Limits::DEFAULT, mode);
        rig.now.unix_ms = head.unix_ms_at_zero;
        let tickets = BTreeMap::new();
        let mut player = Self { rig, tickets };
        for json in lines {
            let line: Line<'_> = serde_json::from_str(json).expect(json);
            player.rig.advance_to(Uptime::from_millis(line.at_ms));
            player.step(&line, json);
        }
        let rig = player.rig;
        assert!(rig.answers.is_empty(), "{}: {:?}", head.title, rig.answers);
        assert!(
            rig.requests.is_empty(),
            "{}: {:?}",
            head.title,
            rig.requests
        );
        assert!(rig.notes.is_empty(), "{}: {:?}", head.title, rig.notes);
    }

    fn step(&mut self, line: &Line<'_>, json: &str) {
        let now = self.rig.now;
        match (line.io, line.expect, line.from, line.message) {
            (Some("ready"), ..) => {
                self.rig.bridge.handle_ready(now, true);
                self.rig.drain();
                // Not in the recordings: the real bridge does not ask what is pending.
                let (lists, calls) = std::mem::take(&mut self.rig.requests)
                    .into_iter()
                    .partition(|(_, method, _)| method.ends_with(".approval.list"));
                self.rig.requests = calls;
                let lists: VecDeque<_> = lists;
                for (ticket, ..) in lists {
                    self.rig.respond(ticket, "[]");
                }
            }
            (Some("eof"), ..) => {
                self.rig.bridge.close(now);
                self.rig.drain();
            }
            (None, Some("gateway"), _, Some(message)) => self.expect_request(message, json),
            (None, Some("client"), _, Some(message)) => self.expect_message(message, json),
            (None, None, Some("gateway"), Some(message)) => self.from_gateway(message),
            (None, None, Some("client"), Some(message)) => self.from_client(message),
            _ => panic!("unknown line {json}"),
        }
    }

    fn expect_request(&mut self, message: &RawValue, json: &str) {
        let frame: Frame<'_> = serde_json::from_str(message.get()).expect("a frame");
        let (ticket, method, params) = self.rig.requests.pop_front().expect(json);
        assert_eq!(Some(method), frame.method);
        let recorded = without_key(frame.params.expect("params").get());
        assert_eq!(without_key(&params), recorded, "{method}");
        self.tickets
            .insert(frame.id.expect("an id").get().to_owned(), ticket);
    }

    fn expect_message(&mut self, message: &RawValue, json: &str) {
        let frame: Frame<'_> = serde_json::from_str(message.get()).expect("a message");
        if let Some(method) = frame.method {
            let (ours, params) = self.rig.notes.pop_front().expect(json);
            assert_eq!(
                (ours, &*params),
                (method, frame.params.expect("params").get())
            );
            return;
        }
        let result = frame.result.expect("a result").get();
        if result.starts_with("{\"tools\":") {
            return Self::compare_tools(result);
        }
        let answer = self.rig.answer(number(frame.id)).expect(json);
        assert_eq!(without_ours(&answer), result);
    }

    fn compare_tools(recorded: &str) {
        let mut ours = String::from("{\"tools\":[");
        for (i, def) in Bridge::tool_list().iter().enumerate() {
            assert!(
                def.description.ends_with('.'),
                "one sentence: {}",
                def.description
            );
            let def = ToolDef {
                description: "$any",
                ..*def
            };
            ours.push_str(if i == 0 { "" } else { "," });
            def.write_json(&mut ours, def.name);
        }
        ours.push_str("]}");
        assert_eq!(ours, recorded);
    }

    fn from_gateway(&mut self, message: &RawValue) {
        let frame: Frame<'_> = serde_json::from_str(message.get()).expect("a frame");
        let payload = frame.payload.map_or("null", RawValue::get);
        if let Some(event) = frame.event {
            return self.rig.event(event, payload);
        }
        let ticket = self.tickets[frame.id.expect("an id").get()];
        match (frame.ok, frame.error) {
            (Some(true), None) => self.rig.respond(ticket, payload),
            (_, error) => {
                let RemoteError { code, message } = error.expect("an error");
                let error = GatewayError::Remote {
                    code,
                    message,
                    details: None,
                };
                self.rig.fail(ticket, error);
            }
        }
    }

    fn from_client(&mut self, message: &RawValue) {
        let frame: Frame<'_> = serde_json::from_str(message.get()).expect("a message");
        let read = |params: Option<&RawValue>| -> (String, String, u64) {
            let params = params.map_or("{}", RawValue::get);
            let params: Params<'_> = serde_json::from_str(params).expect("params");
            (
                params.name.unwrap_or_default().to_owned(),
                params.arguments.map_or("{}", RawValue::get).to_owned(),
                params.request_id.unwrap_or_default(),
            )
        };
        match frame.method {
            Some("tools/call") => {
                let (name, arguments, _) = read(frame.params);
                self.rig.call_as(number(frame.id), &name, &arguments, false);
            }
            Some("notifications/cancelled") => {
                let (_, _, call) = read(frame.params);
                self.rig.bridge.cancel(CallId(call));
            }
            Some("tools/list") => {}
            Some(method) => {
                let params = frame.params.map(RawValue::get);
                self.rig
                    .bridge
                    .handle_notification(self.rig.now, method, params);
                self.rig.drain();
            }
            None => panic!("the client answers nothing"),
        }
    }
}

macro_rules! recording {
    ($name:literal) => {
        include_str!(concat!(
            "../../../protocol-fixtures/gateway/",
            $name,
            ".jsonl"
        ))
    };
}

#[test]
fn every_tool_against_three_sessions() {
    Player::play(recording!("01-initialize-and-tools"), ChannelMode::Auto);
}

#[test]
fn a_live_message() {
    Player::play(recording!("03-live-message"), ChannelMode::Auto);
}

#[test]
fn an_exec_approval() {
    Player::play(recording!("04-exec-approval"), ChannelMode::Auto);
}

#[test]
fn a_plugin_approval() {
    Player::play(recording!("05-plugin-approval"), ChannelMode::On);
}

#[test]
fn permission_prompts() {
    Player::play(recording!("06-claude-permission"), ChannelMode::Auto);
}

#[test]
fn waiting_for_events() {
    Player::play(recording!("07-events-wait"), ChannelMode::Auto);
}

#[test]
fn sending_through_a_channel() {
    Player::play(recording!("14-telegram-end-to-end"), ChannelMode::Auto);
}

#[test]
fn an_approval_of_an_agent() {
    Player::play(recording!("17-agent-exec-approval"), ChannelMode::Auto);
}

#[test]
fn mode_off() {
    Player::play(recording!("22-claude-mode-off"), ChannelMode::Off);
}
