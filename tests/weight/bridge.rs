//! A hub between a client and one server, both in memory: the loop is played by the test.

use std::collections::{BTreeMap, VecDeque};

use drawspan::clock::{Now, Uptime};
use drawspan::entropy::Seeded;
use drawspan::hub::{Hub, HubConfig, UpstreamConfig};
use drawspan::ids::WireId;
use drawspan::limits::Limits;
use drawspan::link::{Driven, IoEvent, IoRequest, OpenSpec};
use drawspan::manager::Prefix;
use drawspan::manager::entry::read_servers;

use super::server::{INITIALIZE, call};

const ENTRIES: [&str; 2] = [
    r#"{"command":"echo-server"}"#,
    r#"{"url":"http://127.0.0.1:9/mcp"}"#,
];

/// The hub, its client on a line wire, and what the loop has to do.
pub(crate) struct Bridge {
    hub: Hub,
    now: Now,
    client: WireId,
    over_http: bool,
    opening: Vec<WireId>,
    dirty: VecDeque<WireId>,
}

impl Bridge {
    /// Connected, with the conversation begun on both sides. The server is a program or speaks HTTP.
    pub(crate) fn new(over_http: bool) -> Self {
        let now = Now {
            up: Uptime::ZERO,
            unix_ms: 1_800_000_000_000,
        };
        let limits = Limits::default();
        let entry = ENTRIES[usize::from(over_http)].to_owned();
        let read = read_servers(&[("echo".to_owned(), entry)], &BTreeMap::new(), &limits);
        let servers = read
            .into_iter()
            .filter_map(|one| one.outcome.ok())
            .collect();
        let config = HubConfig {
            upstream: Some(UpstreamConfig {
                servers,
                prefix: Prefix::Auto,
            }),
            ..HubConfig::default()
        };
        let mut hub = Hub::new(config, Box::new(Seeded::new(7)), now);
        let client = hub.serve_adopted(now);
        let mut bridge = Self {
            hub,
            now,
            client,
            over_http,
            opening: Vec::with_capacity(16),
            dirty: VecDeque::with_capacity(16),
        };
        assert!(bridge.ask(INITIALIZE.as_bytes()).1.contains("2025-11-25"));
        let done = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        bridge.ask(done.as_bytes());
        bridge
    }

    /// Calls `echo` with a text of so many bytes; how many allocations that took in the hub.
    pub(crate) fn call(&mut self, number: usize, size: usize) -> u64 {
        let text = format!("{number:08}{}", "x".repeat(size));
        let (cost, answer) = self.ask(call("echo", &number.to_string(), &text).as_bytes());
        assert!(answer.contains(&text), "{answer}");
        cost
    }

    /// What a line of the client costs and leads to, until nothing moves any more.
    fn ask(&mut self, line: &[u8]) -> (u64, String) {
        let line = [line, b"\n"].concat();
        let mut cost = self.hear(self.client, IoEvent::Bytes(&line));
        let mut answer = String::new();
        loop {
            if let Some(wire) = self.opening.pop() {
                cost += self.hear(wire, IoEvent::Opened);
            } else if let Some(wire) = self.dirty.pop_front() {
                let Some(out) = self.hub.outgoing(wire) else {
                    continue;
                };
                let said = String::from_utf8(out.pending().to_vec()).expect("text");
                out.clear();
                cost += self.hear(wire, IoEvent::Drained);
                if wire == self.client {
                    answer.push_str(&said);
                } else {
                    let reply = self.reply(&said);
                    cost += self.hear(wire, IoEvent::Bytes(reply.as_bytes()));
                }
            } else {
                return (cost, answer);
            }
        }
    }

    fn hear(&mut self, wire: WireId, event: IoEvent<'_>) -> u64 {
        let Self {
            hub,
            now,
            opening,
            dirty,
            ..
        } = self;
        let cost = allocation_counter::measure(|| {
            hub.handle_io(*now, wire, event);
            while let Some(request) = hub.poll_io() {
                match request {
                    IoRequest::Open(wire, OpenSpec::Child(_) | OpenSpec::Tcp { .. }) => {
                        opening.push(wire);
                    }
                    IoRequest::Flush(wire) => dirty.push_back(wire),
                    IoRequest::Open(..)
                    | IoRequest::PauseReads(..)
                    | IoRequest::CloseWrite(_)
                    | IoRequest::Close(_)
                    | IoRequest::Finish(_)
                    | IoRequest::Signal(..)
                    | IoRequest::Append(_) => {}
                }
            }
        });
        cost.count_total
    }

    /// What the server says to what it is told.
    fn reply(&self, said: &str) -> String {
        if !self.over_http {
            let answers = said.lines().filter_map(answer);
            return answers.map(|answer| answer + "\n").collect();
        }
        let (head, body) = said.split_once("\r\n\r\n").expect("a whole request");
        if head.starts_with("GET ") {
            return "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n".to_owned();
        }
        match answer(body) {
            Some(answer) => format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: s\r\n\
                 Content-Length: {}\r\n\r\n{answer}",
                answer.len()
            ),
            None => "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned(),
        }
    }
}

/// The answer of a server of 2025-11-25 to a message, if it wants one.
fn answer(message: &str) -> Option<String> {
    let id = message.split(r#""id":"#).nth(1)?.split([',', '}']).next()?;
    let result = if message.contains(r#""method":"initialize""#) {
        r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#
            .to_owned()
    } else if message.contains(r#""method":"tools/call""#) {
        let text = message.split(r#""text":""#).nth(1)?.split('"').next()?;
        format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#)
    } else {
        let error = r#"{"code":-32601,"message":"method not found"}"#;
        return Some(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#));
    };
    Some(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
    ))
}
