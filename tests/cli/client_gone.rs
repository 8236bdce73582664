//! Case f04: a client over HTTP goes away in the middle of a call of an upstream tool. To 2026-07-28 that takes
//! the call back; before, the call goes on, and its answer can be fetched where the stream had event ids.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use rustix::process::Signal;

use crate::client::servers::Shop;
use crate::http::Client;
use crate::world::{PATIENCE, Process, expect_words, until};

/// `sleep` reports progress where it is asked to, and then sleeps: until it is woken, or told something.
const CALL: &str = r#"
    case $line in *'"name":"sleep"'*)
        case $line in *'"progressToken":'*)
            token=${line#*\"progressToken\":}; token=${token%%[,\}]*}
            printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}\n' "$token"
        esac
        : > sleeping
        if [ -e light ]; then IFS= read -r more; printf '%s\n' "$more" >> heard
        else until [ -e wake ]; do sleep 0.02; done; fi
        rm -f wake sleeping
    esac
"#;

const TOOLS: &str = r#"[{"name":"sleep","inputSchema":{"type":"object"}},{"name":"quick","inputSchema":{"type":"object"}}]"#;
const RESULT: &str = r#"{"content":[{"type":"text","text":"done"}]}"#;

const MODERN: &str = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n";

struct World {
    shop: Shop,
    serve: Process,
    address: String,
}

impl World {
    fn new(test: &str) -> Self {
        let shop = Shop::new(test)
            .with("TOOLS", TOOLS)
            .with("RESULT", RESULT)
            .with("CALL", CALL);
        let config = serde_json::json!({"mcpServers": {"one": shop.entry()}});
        shop.home.write("drawspan.json", &config.to_string());
        let args = ["serve", "--listen", "http://127.0.0.1:0"];
        let mut serve = Process::start(&mut shop.home.drawspan(&args));
        Self {
            address: serve.address(),
            serve,
            shop,
        }
    }

    /// A session of this revision: the header fields of its requests.
    fn session(&self, revision: &str) -> String {
        let initialize = crate::http::INITIALIZE.replace("2025-11-25", revision);
        let answer = Client::new(&self.address).ask("", &initialize);
        expect_words(&answer, &[&format!(r#""protocolVersion":"{revision}""#)]);
        let id = answer.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("mcp-session-id").then_some(value)
        });
        let id = id.unwrap_or_else(|| panic!("no session: {answer}"));
        format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: {revision}\r\n")
    }

    /// The call, once the server has it, on a connection that can be dropped.
    fn sleep(&self, headers: &str, meta: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = call("sleep", meta);
        write!(
            stream,
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nConnection: close\r\n{headers}\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let sleeping = self.shop.home.path("sleeping");
        until("the call to run", || match sleeping.exists() {
            true => Ok(()),
            false => Err("it does not".to_owned()),
        });
        stream
    }

    /// Lets the call end.
    fn wake(&self) {
        self.shop.home.write("wake", "");
        let sleeping = self.shop.home.path("sleeping");
        until("the call to end", || match sleeping.exists() {
            false => Ok(()),
            true => Err("it does not".to_owned()),
        });
    }

    #[track_caller]
    fn expect_service(&self, headers: &str, meta: &str) {
        let answer = Client::new(&self.address).ask(headers, &call("quick", meta));
        expect_words(&answer, &["HTTP/1.1 200", r#""text":"done""#]);
    }

    fn started(&self) -> usize {
        let heard = self.shop.heard();
        heard
            .iter()
            .filter(|line| line.starts_with("args "))
            .count()
    }

    /// Nobody minded.
    fn end(self) {
        self.serve.signal(Signal::TERM);
        let finished = self.serve.finish().expect_code(0);
        assert_eq!(finished.stderr.len(), 1, "{:?}", finished.stderr);
        self.shop.home.expect_processes(0);
    }
}

/// A call whose id is the tool's: the answer to one may be on its way while the other is made.
fn call(tool: &str, meta: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"{tool}","method":"tools/call","params":{{{meta}"name":"{tool}","arguments":{{"ms":5000}}}}}}"#
    )
}

/// The id and data of each event, as they come.
fn events(stream: TcpStream) -> impl Iterator<Item = (String, String)> {
    let mut id = String::new();
    BufReader::new(stream).lines().filter_map(move |line| {
        let line = line.expect("the stream lasts");
        if let Some(found) = line.strip_prefix("id: ") {
            id = found.to_owned();
        }
        Some((id.clone(), line.strip_prefix("data: ")?.to_owned()))
    })
}

#[test]
fn f04_client_gone_before_2026() {
    let world = World::new("gone-legacy");
    let other = world.session("2025-11-25");
    world.expect_service(&other, "");
    for (count, revision) in (1..).zip(["2025-03-26", "2025-06-18", "2025-11-25"]) {
        let session = world.session(revision);
        // With ids: progress comes first, and is not the last that the client gets.
        let stream = world.sleep(&session, r#""_meta":{"progressToken":"p"},"#);
        let first = events(stream).find(|(_, data)| data.contains("notifications/progress"));
        let (id, _) = first.expect("progress");
        assert_ne!(id, "", "{revision}: an event without an id");
        world.wake();
        let mut back = TcpStream::connect(&world.address).unwrap();
        back.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            back,
            "GET /mcp HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\n{session}\
             Last-Event-ID: {id}\r\n\r\n",
            world.address
        )
        .unwrap();
        let answer = events(back).find(|(_, data)| data.contains(r#""id":"sleep""#));
        expect_words(&answer.expect("the answer").1, &[r#""text":"done""#]);
        // Without: the answer goes nowhere.
        drop(world.sleep(&session, ""));
        world.wake();
        world.expect_service(&session, "");
        world.expect_service(&other, "");
        assert_eq!(
            world.started(),
            1 + count,
            "{revision}: a server of each session lives on"
        );
    }
    assert_eq!(world.shop.heard_times("cancelled"), 0);
    world.end();
}

#[test]
fn f04_client_gone_2026() {
    const META: &str = concat!(
        r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
        r#""io.modelcontextprotocol/clientCapabilities":{}},"#
    );
    let world = World::new("gone-modern");
    let other = world.session("2025-11-25");
    world.expect_service(&other, "");
    world.shop.home.write("light", "");
    for round in 1..=2 {
        drop(world.sleep(&format!("{MODERN}Mcp-Name: sleep\r\n"), META));
        // The server is told while it works, and its late answer is nobody's.
        until("the call to be taken back", || {
            match world
                .shop
                .heard_times(r#""method":"notifications/cancelled""#)
            {
                n if n == round => Ok(()),
                n => Err(format!("{n} of {round}")),
            }
        });
        world.expect_service(&format!("{MODERN}Mcp-Name: quick\r\n"), META);
        world.expect_service(&other, "");
    }
    assert_eq!(world.started(), 2, "the servers live on");
    world.end();
}
