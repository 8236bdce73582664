//! A client that asks everything there is to ask, well and badly, in every era, and changes its mind.

use std::collections::{BTreeMap, BTreeSet};

use drawspan::clock::Uptime;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::book::{Asked, Book, Call, Kind, What};
use crate::gateway::Gateway;
use crate::plan::{Dice, Opening, Plan};
use crate::support::World;

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"sim","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}"#;

/// Tools with arguments that each break a rule.
const BAD_CALLS: [(&str, &str); 16] = [
    ("conversations_list", r#"{"limit":0}"#),
    ("conversations_list", r#"{"limit":"5","channel":7}"#),
    ("conversations_list", r#"{"includeDerivedTitles":"yes"}"#),
    ("conversation_get", "{}"),
    ("conversation_get", r#"{"session_key":""}"#),
    ("conversation_get", r#"{"session_key":"  "}"#),
    ("messages_read", r#"{"session_key":"s1","limit":201}"#),
    ("attachments_fetch", r#"{"session_key":"s1"}"#),
    ("events_poll", r#"{"after_cursor":-1}"#),
    ("events_poll", r#"{"limit":1.5}"#),
    ("events_wait", r#"{"timeout_ms":300001}"#),
    ("events_wait", r#"{"after_cursor":9007199254740993}"#),
    ("messages_send", r#"{"session_key":"s1","text":""}"#),
    (
        "permissions_respond",
        r#"{"kind":"exec","id":"a1","decision":"maybe"}"#,
    ),
    (
        "permissions_respond",
        r#"{"kind":"other","id":"a1","decision":"deny"}"#,
    ),
    ("no_such_tool", "{}"),
];

/// Lines that are no message, or none that may come here.
const NONSENSE: [&str; 16] = [
    "{",
    "nonsense",
    "7",
    "\"text\"",
    "null",
    "{}",
    r#"{"jsonrpc":"1.0","method":"ping"}"#,
    r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
    r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#,
    r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
    r#"{"jsonrpc":"2.0","method":7}"#,
    r#"{"jsonrpc":"2.0","method":"ping","params":[1]}"#,
    r#"{"jsonrpc":"2.0","method":"a","method":"b"}"#,
    r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}"#,
    "{\"jsonrpc\":\"2.0\",\"method\":\"\u{1}\"}",
    r#"{"jsonrpc":"2.0","method":"ping"}x"#,
];

/// Lines that nobody answers.
const QUIET: [&str; 10] = [
    "",
    "   \t",
    "\u{feff}",
    r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"m"}}"#,
    r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/unknown","params":{"a":[1,2]}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"never-asked"}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/claude/channel/permission_request","params":{"request_id":"abcde"}}"#,
];

/// See the module page.
pub struct Client {
    dice: Dice,
    opening: Opening,
    pace_ms: u64,
    slow: bool,
    next_ms: Option<u64>,
    asked: u64,
    markers: u64,
    opened: bool,
    initialized: bool,
    /// Raw ids of requests whose answer the client has not read yet.
    pub open: BTreeSet<String>,
    /// Ids that were used before.
    used: Vec<String>,
    /// The poll that follows the queue: its id, while it is under way.
    follows: Option<String>,
    /// Whether the last one was answered, and not refused.
    pub has_followed: bool,
    /// Where it goes on.
    pub cursor: u64,
    /// Results of the requests named here, as read.
    pub results: BTreeMap<String, String>,
    lines: Vec<(Vec<u8>, What)>,
    in_batch: bool,
    line_max: usize,
    pub notes: Vec<String>,
}

#[derive(Deserialize)]
struct Read<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Followed {
    #[serde(rename = "structuredContent")]
    structured: Option<Cursor>,
}

#[derive(Deserialize)]
struct Cursor {
    next_cursor: Option<u64>,
}

impl Client {
    pub fn new(seed: u64, plan: &Plan) -> Self {
        Self {
            dice: Dice::new(seed, 2),
            opening: plan.opening,
            pace_ms: plan.client_pace_ms,
            slow: plan.slow_client,
            next_ms: Some(0),
            asked: 0,
            markers: 0,
            opened: false,
            initialized: false,
            open: BTreeSet::new(),
            used: Vec::new(),
            follows: None,
            has_followed: false,
            cursor: 0,
            results: BTreeMap::new(),
            lines: Vec::new(),
            in_batch: false,
            line_max: plan.limits.message_bytes_max,
            notes: Vec::new(),
        }
    }

    pub fn next(&self) -> Option<Uptime> {
        self.next_ms.map(Uptime::from_millis)
    }

    /// Does nothing by itself any more, and reads what comes.
    pub fn calm_down(&mut self, world: &mut World) {
        self.next_ms = None;
        self.slow = false;
        world.client_appetite = None;
        world.settle();
    }

    /// Reads one line.
    pub fn hear(&mut self, line: &str) {
        let parts: Vec<&RawValue> = match line.starts_with('[') {
            true => serde_json::from_str(line).expect("checked before"),
            false => vec![serde_json::from_str(line).expect("checked before")],
        };
        for part in parts {
            let read: Read<'_> = serde_json::from_str(part.get()).expect("checked before");
            let (Some(id), None) = (read.id, read.method) else {
                continue;
            };
            self.open.remove(id.get());
            let result = read.result.map_or("", RawValue::get);
            if self.follows.as_deref() == Some(id.get()) {
                self.follows = None;
                let followed: Option<Followed> = serde_json::from_str(result).ok();
                let next = followed.and_then(|followed| followed.structured?.next_cursor);
                self.has_followed = next.is_some();
                self.cursor = next.unwrap_or(self.cursor);
            }
            if id.get().starts_with("\"p") {
                self.results.insert(id.get().to_owned(), result.to_owned());
            }
        }
    }

    /// Does what is due: writes one or more lines, or stops to read, or reads again.
    pub fn act(&mut self, world: &mut World, book: &mut Book, gateway: &mut Gateway) {
        let now_ms = world.now.up.as_millis();
        if self.next_ms.is_none_or(|at| at > now_ms) {
            return;
        }
        self.next_ms = Some(now_ms + 1 + self.dice.below(2 * self.pace_ms));
        if self.slow && self.dice.percent(20) {
            world.client_appetite = match self.dice.below(3) {
                0 => None,
                1 => Some(self.dice.size(0, 300)),
                _ => Some(self.dice.size(0, 3_000)),
            };
            self.notes
                .push(format!("client: reads {:?}", world.client_appetite));
            world.settle();
        }
        if world.client_bytes_under_way() > 20_000 {
            return;
        }
        let lines = if self.dice.percent(20) {
            self.dice.between(2, 6)
        } else {
            1
        };
        for _ in 0..lines {
            self.deed(gateway);
        }
        self.flush(world, book);
    }

    /// Asks a lot at once.
    pub fn burst(&mut self, world: &mut World, book: &mut Book, gateway: &mut Gateway) {
        for _ in 0..self.dice.between(1, 12) {
            self.deed(gateway);
        }
        self.flush(world, book);
    }

    /// Writes what has been said: each line by itself or all at once, which is one chunk if nothing is cut.
    pub fn flush(&mut self, world: &mut World, book: &mut Book) {
        let lines = std::mem::take(&mut self.lines);
        let together = self.dice.percent(50);
        let mut all = Vec::new();
        for (bytes, what) in lines {
            book.write(&bytes, what);
            if together {
                all.extend_from_slice(&bytes);
            } else {
                world.client_writes(&bytes);
            }
        }
        if together {
            world.client_writes(&all);
        }
    }

    /// Writes a line without its line feed.
    pub fn half_line(&mut self, world: &mut World, book: &mut Book) {
        let whole = r#"{"jsonrpc":"2.0","id":"last","method":"ping"}"#;
        let (text, what) = match self.dice.below(3) {
            0 => ("{\"jsonrpc\":", What::Nonsense(None)),
            1 => ("  ", What::Quiet),
            _ => (whole, self.plain("\"last\"", Kind::Protocol)),
        };
        book.write(text.as_bytes(), what);
        world.client_writes(text.as_bytes());
    }

    fn say(&mut self, text: &str, what: What) {
        let end = self.dice.pick(&["\n", "\n", "\n", "\r\n"]);
        self.lines.push((format!("{text}{end}").into_bytes(), what));
    }

    fn plain(&self, id: &str, kind: Kind) -> What {
        What::Request(Box::new(Asked {
            id: id.to_owned(),
            kind,
            modern: false,
            token: None,
            marker: None,
        }))
    }

    fn id(&mut self) -> String {
        self.asked += 1;
        let number = self.asked;
        let id = match self.dice.below(12) {
            0 => format!("\"a-{number}\""),
            1 => format!("-{number}"),
            2 => format!("\"{number}\\u0020\\\"\""),
            3 if !self.in_batch => {
                format!("\"long {} {number}\"", "y".repeat(self.dice.size(0, 400)))
            }
            4 => format!("{}", u64::MAX - number),
            _ => number.to_string(),
        };
        self.used.push(id.clone());
        self.open.insert(id.clone());
        id
    }

    /// Some raw id that a request of the client has.
    fn open_id(&mut self) -> Option<String> {
        if self.open.is_empty() {
            return None;
        }
        let at = self.dice.size(0, self.open.len() - 1);
        self.open.iter().nth(at).cloned()
    }

    fn is_modern(&mut self) -> bool {
        match self.opening {
            Opening::Modern => true,
            Opening::Asks(_) | Opening::None => self.dice.percent(8),
        }
    }

    fn deed(&mut self, gateway: &mut Gateway) {
        if !self.opened {
            self.opened = true;
            if let Opening::Asks(version) = self.opening {
                return self.initialize(version);
            }
        }
        if !self.initialized && self.opening != Opening::Modern && self.dice.percent(30) {
            self.initialized = true;
            return self.say(
                r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
                What::Initialized,
            );
        }
        match self
            .dice
            .weighted(&[34, 10, 12, 8, 6, 5, 3, 5, 4, 4, 3, 3, 2, 4])
        {
            0 => self.call(),
            1 => self.follow(),
            2 => self.cancel(),
            3 => self.bad_call(),
            4 => self.nonsense(),
            5 => self.prompt(gateway),
            6 => self.listen(),
            7 => self.batch(),
            8 => self.protocol(),
            9 => self.wrong(),
            10 => self.quiet(),
            11 => self.reuse(),
            12 => self.too_long(),
            _ => self.list(),
        }
    }

    fn initialize(&mut self, version: &'static str) {
        let id = self.id();
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"{version}","capabilities":{{}},"clientInfo":{{"name":"sim","version":"1"}}}}}}"#
        );
        let what = self.plain(&id, Kind::Initialize(version));
        self.say(&text, what);
    }

    /// Says a request with these members of its params.
    fn request(
        &mut self,
        method: &str,
        members: &str,
        kind: Kind,
        token: bool,
        marker: Option<u64>,
    ) {
        let id = self.id();
        let modern = self.is_modern();
        let token = token.then(|| match self.dice.below(3) {
            0 => format!("\"t{}\"", self.asked),
            _ => format!("{}", 1_000_000 + self.asked),
        });
        let text = request_text(&id, method, members, modern, token.as_deref());
        let asked = Asked {
            id,
            kind,
            modern,
            token,
            marker,
        };
        self.say(&text, What::Request(Box::new(asked)));
    }

    fn call(&mut self) {
        let (call, arguments, marker) = self.some_call();
        let token = self.dice.percent(40);
        let members = format!(r#""name":"{}","arguments":{arguments}"#, call.tool);
        self.request("tools/call", &members, Kind::Call(call), token, marker);
    }

    fn some_call(&mut self) -> (Call, String, Option<u64>) {
        let tools = [
            "events_poll",
            "events_wait",
            "conversation_get",
            "messages_read",
            "conversations_list",
            "attachments_fetch",
            "messages_send",
            "permissions_list_open",
            "permissions_respond",
        ];
        let tool = tools[self.dice.weighted(&[10, 16, 5, 5, 5, 4, 8, 3, 5])];
        let mut call = new_call(tool);
        self.markers += 1;
        let mark = format!("mk:{}:", self.markers);
        let marker = Some(self.markers);
        let arguments = match tool {
            "events_poll" | "events_wait" => return self.event_call(call),
            "conversation_get" => format!(r#"{{"session_key":"{mark}"}}"#),
            "messages_read" => format!(r#"{{"session_key":"{mark}","limit":3,"more":[]}}"#),
            "conversations_list" => format!(r#"{{"search":"{mark}"}}"#),
            "attachments_fetch" => {
                format!(r#"{{"session_key":"{mark}","message_id":"m-{mark}"}}"#)
            }
            "messages_send" => {
                let more = match self.dice.below(3) {
                    0 => "z".repeat(self.dice.size(0, 700)),
                    _ => String::new(),
                };
                format!(r#"{{"session_key":"{mark}","text":"say {mark} {more}"}}"#)
            }
            "permissions_respond" => {
                format!(r#"{{"kind":"exec","id":"{mark}","decision":"deny"}}"#)
            }
            _ => {
                call.tool = "permissions_list_open";
                return (call, "{}".to_owned(), None);
            }
        };
        (call, arguments, marker)
    }

    fn event_call(&mut self, mut call: Call) -> (Call, String, Option<u64>) {
        call.after = match self.dice.below(6) {
            0 => 0,
            1 => self.cursor.saturating_sub(self.dice.below(10)),
            2 => self.cursor + self.dice.below(5),
            3 => 9_007_199_254_740_991,
            _ => self.cursor,
        };
        let mut arguments = format!(r#"{{"after_cursor":{}"#, call.after);
        if self.dice.percent(30) {
            let session = self.dice.pick(&["s1", "s2", "agent:main:three", "nobody"]);
            call.session = Some(session.to_owned());
            arguments.push_str(&format!(r#","session_key":" {session} ""#));
        }
        if call.tool == "events_poll" {
            call.limit = self.dice.pick(&[1, 2, 20, 200]);
            arguments.push_str(&format!(r#","limit":{}.0"#, call.limit));
        } else {
            call.timeout_ms = self.dice.pick(&[1, 50, 1_000, 5_000, 20_000, 60_000]);
            arguments.push_str(&format!(r#","timeout_ms":{}"#, call.timeout_ms));
        }
        arguments.push('}');
        (call, arguments, None)
    }

    /// Asks for what comes behind the last poll.
    pub fn follow(&mut self) {
        if self.follows.is_some() {
            return;
        }
        let limit = self.dice.pick(&[5, 50, 200]);
        self.follow_with(limit);
    }

    pub fn follow_with(&mut self, limit: usize) {
        let mut call = new_call("events_poll");
        (call.after, call.limit) = (self.cursor, limit);
        let arguments = format!(r#"{{"after_cursor":{},"limit":{limit}}}"#, call.after);
        self.asked += 1;
        let id = format!("\"f{}\"", self.asked);
        self.follows = Some(id.clone());
        let modern = self.is_modern();
        self.push_call(id, call, &arguments, modern, None);
    }

    fn push_call(
        &mut self,
        id: String,
        call: Call,
        arguments: &str,
        modern: bool,
        marker: Option<u64>,
    ) {
        let members = format!(r#""name":"{}","arguments":{arguments}"#, call.tool);
        let text = request_text(&id, "tools/call", &members, modern, None);
        let (kind, token) = (Kind::Call(call), None);
        self.open.insert(id.clone());
        let asked = Asked {
            id,
            kind,
            modern,
            token,
            marker,
        };
        self.say(&text, What::Request(Box::new(asked)));
    }

    /// Whether the poll that follows the queue is under way.
    pub fn is_following(&self) -> bool {
        self.follows
            .as_ref()
            .is_some_and(|id| self.open.contains(id))
    }

    /// Asks something that must work when all is well; its result goes to [`Client::results`].
    pub fn probe(&mut self, number: u64, tool: &'static str, after: u64) {
        let id = format!("\"p{number}\"");
        let mut call = new_call(tool);
        if tool == "events_wait" {
            (call.after, call.timeout_ms) = (after, 60_000);
            let arguments = format!(r#"{{"after_cursor":{after},"timeout_ms":60000}}"#);
            return self.push_call(id, call, &arguments, false, None);
        }
        self.markers += 1;
        let marker = self.markers;
        let arguments = format!(r#"{{"session_key":"mk:{marker}:"}}"#);
        self.push_call(id, call, &arguments, false, Some(marker));
    }

    fn cancel(&mut self) {
        let id = match self.dice.percent(85) {
            true => self.open_id(),
            false => self.used.last().cloned(),
        };
        let Some(id) = id else { return };
        if self.follows.as_deref() == Some(&id) {
            return;
        }
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"changed my mind"}}}}"#
        );
        self.say(&text, What::Cancel(id.clone()));
        self.open.remove(&id);
    }

    fn bad_call(&mut self) {
        let (tool, arguments) = self.dice.pick(&BAD_CALLS);
        let mut call = new_call(tool);
        call.bad = true;
        let members = format!(r#""name":"{tool}","arguments":{arguments}"#);
        self.request("tools/call", &members, Kind::Call(call), false, None);
    }

    fn nonsense(&mut self) {
        let text = self.dice.pick(&NONSENSE);
        let text = match self.dice.below(6) {
            0 => {
                let mut bytes = text.as_bytes().to_vec();
                bytes.extend_from_slice(b"\xff\xfe\n");
                return self.lines.push((bytes, What::Nonsense(None)));
            }
            _ => text,
        };
        self.say(text, What::Nonsense(None));
    }

    fn prompt(&mut self, gateway: &mut Gateway) {
        let code = self
            .dice
            .pick(&["abcde", "abcdf", "zzzzz", "ABCDE", "abcdl"]);
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/claude/channel/permission_request","params":{{"request_id":"{code}","tool_name":"t","description":"d","input_preview":"p"}}}}"#
        );
        if code.bytes().all(|byte| byte.is_ascii_lowercase()) && !code.contains('l') {
            gateway.codes.push(code.to_owned());
        }
        self.say(&text, What::Prompt(code.to_owned()));
    }

    fn listen(&mut self) {
        let id = self.id();
        let good = self.dice.percent(80);
        let (filter, kind) = match good {
            true => (r#""notifications":{"toolsListChanged":true}"#, Kind::Listen),
            false => (r#""notifications":[]"#, Kind::Wrong),
        };
        let text = request_text(&id, "subscriptions/listen", filter, true, None);
        let asked = Asked {
            id,
            kind,
            modern: true,
            token: None,
            marker: None,
        };
        self.say(&text, What::Request(Box::new(asked)));
    }

    fn batch(&mut self) {
        let before = self.lines.len();
        let members = self.dice.size(0, 5);
        self.in_batch = true;
        for _ in 0..members {
            match self.dice.below(8) {
                0..=3 => self.call(),
                4 => self.protocol(),
                5 => self.nonsense_member(),
                6 => self.bad_call(),
                _ => self.cancel(),
            }
        }
        self.in_batch = false;
        let mut texts = Vec::new();
        let mut whats = Vec::new();
        for (bytes, what) in self.lines.split_off(before) {
            texts.push(
                String::from_utf8(bytes)
                    .expect("members are text")
                    .trim()
                    .to_owned(),
            );
            whats.push(in_batch(what));
        }
        let text = format!("[{}]", texts.join(" , "));
        // How much of a line that is too long is looked at depends on how it travels.
        if text.len() >= self.line_max {
            return;
        }
        self.say(&text, What::Batch(whats));
    }

    fn nonsense_member(&mut self) {
        let text = self.dice.pick(&["7", "{}", "[]", "null"]);
        self.say(text, What::Nonsense(None));
    }

    fn protocol(&mut self) {
        match self.dice.below(4) {
            0 => self.request(
                "logging/setLevel",
                r#""level":"debug""#,
                Kind::Protocol,
                false,
                None,
            ),
            1 => self.request("server/discover", "", Kind::Protocol, false, None),
            _ => self.request("ping", "", Kind::Protocol, false, None),
        }
        // Half of these methods exist in one era only: there they are refused.
        if let Some((bytes, What::Request(asked))) = self.lines.last_mut() {
            let text = String::from_utf8_lossy(bytes);
            if asked.modern != text.contains("server/discover") {
                asked.kind = Kind::Wrong;
            }
            if text.contains("server/discover") {
                asked.modern = true;
            }
        }
    }

    fn wrong(&mut self) {
        match self.dice.below(5) {
            0 => self.request("no/such/method", "", Kind::Wrong, false, None),
            1 => self.request("tools/call", r#""name":7"#, Kind::Wrong, false, None),
            2 => self.request(
                "tools/call",
                r#""name":"events_poll","arguments":[]"#,
                Kind::Wrong,
                false,
                None,
            ),
            3 => self.request("resources/list", "", Kind::Wrong, false, None),
            _ => {
                let id = self.id();
                let version = self.dice.pick(&["\"2025-11-25\"", "\"2099-01-01\"", "7"]);
                let text = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":{version},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
                );
                let mut what = self.plain(&id, Kind::Wrong);
                if let What::Request(asked) = &mut what {
                    asked.modern = true;
                }
                self.say(&text, what);
            }
        }
    }

    fn quiet(&mut self) {
        let text = self.dice.pick(&QUIET);
        self.say(text, What::Quiet);
    }

    /// A second request with an id that is, or was, in use.
    fn reuse(&mut self) {
        let id = match self.dice.percent(60) {
            true => self.open_id(),
            false => self.used.first().cloned(),
        };
        let Some(id) = id.filter(|_| self.lines.is_empty()) else {
            return;
        };
        if self.follows.as_deref() == Some(&id) {
            return;
        }
        let text = request_text(&id, "ping", "", false, None);
        let what = self.plain(&id, Kind::Protocol);
        self.say(&text, what);
    }

    fn too_long(&mut self) {
        let id = self.id();
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"ping","params":{{"x":"{}"}}}}"#,
            "z".repeat(self.dice.size(500, 2_500))
        );
        let what = self.plain(&id, Kind::Protocol);
        self.say(&text, what);
    }

    fn list(&mut self) {
        self.request("tools/list", "", Kind::List, false, None);
    }
}

/// Requests of the other era, and those that open a conversation, do not stand in a batch.
fn in_batch(what: What) -> What {
    match what {
        What::Request(mut asked) => {
            if asked.modern || matches!(asked.kind, Kind::Initialize(_) | Kind::Listen) {
                asked.kind = Kind::Wrong;
            }
            What::Request(asked)
        }
        What::Cancel(_)
        | What::Initialized
        | What::Prompt(_)
        | What::Batch(_)
        | What::Nonsense(_)
        | What::Quiet => what,
    }
}

fn new_call(tool: &'static str) -> Call {
    Call {
        tool,
        bad: false,
        after: 0,
        session: None,
        limit: 20,
        timeout_ms: 30_000,
    }
}

fn request_text(
    id: &str,
    method: &str,
    members: &str,
    modern: bool,
    token: Option<&str>,
) -> String {
    let token = token.map(|token| format!(r#""progressToken":{token}"#));
    let meta = match (modern, token) {
        (true, None) => format!("{META}}}"),
        (true, Some(token)) => format!("{META},{token}}}"),
        (false, None) => String::new(),
        (false, Some(token)) => format!(r#""_meta":{{{token}}}"#),
    };
    let comma = if meta.is_empty() || members.is_empty() {
        ""
    } else {
        ","
    };
    let params = match meta.is_empty() && members.is_empty() {
        true => String::new(),
        false => format!(r#","params":{{{members}{comma}{meta}}}"#),
    };
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"{params}}}"#)
}
