//! A bridge between an HTTP client and a server: f06.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Child;

use serde_json::{Value, json};

use crate::world::{World, case, serve};

/// `drawspan serve` on a port of its own, before one or more servers.
pub(crate) struct Bridge {
    child: Child,
    address: String,
}

impl Bridge {
    /// `args` say what is served.
    pub(crate) fn start(world: &World, args: &[&str]) -> Self {
        let mut all = vec!["serve", "--listen", "http://127.0.0.1:0"];
        all.extend(args);
        let mut child = world.drawspan(&all).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended");
            if let Some(rest) = line.trim_end().split("listening on http://").nth(1) {
                break rest.strip_suffix("/mcp").unwrap().to_owned();
            }
        };
        // Nobody may have to wait until somebody reads this.
        std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        Self { child, address }
    }

    /// Sends one request on a connection of its own; gives what came back: head and body. `head` ends without
    /// the empty line.
    pub(crate) fn post(&self, head: &str, body: &str) -> (String, String) {
        let mut wire = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        write!(wire, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        let mut text = String::new();
        wire.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server of 2025-06-18 with a session, which sets a cookie with every answer.
fn server(schema: Value) -> crate::http::Peer {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: upstream-session\r\nSet-Cookie: u=1\r\nVary: upstream\r\n";
    let answer = |method: &str, result: Value| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{{{{id}}}},"result":{result}}}"#);
        json!({"when": {"rpc": method}, "head": head, "body": [body]})
    };
    let opened = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
        "serverInfo": {"name": "made-peer", "version": "0.1"}});
    let tools = json!({"tools": [{"name": "echo", "inputSchema": schema}]});
    serve(&json!({"exchanges": [
        {"when": {"rpc": "notifications/initialized"}, "head": "HTTP/1.1 202 Accepted\r\n", "body": []},
        answer("initialize", opened),
        answer("tools/list", tools),
        answer("tools/call", json!({"content": []}))]}))
}

#[test]
fn f06_header_hygiene() {
    let world = World::new("f06");
    let case = case("f06-header-hygiene");
    let input = &case["input"];
    let request = &input["requests"][0];
    let raw = request["raw"].as_array().unwrap();
    let inbound: String = raw.iter().map(|part| part.as_str().unwrap()).collect();
    let (own, value) = (
        "X-Api-Key",
        &input["upstream_configured_headers"]["X-Api-Key"],
    );
    let own_header = format!("{own}: {}", value.as_str().unwrap());
    let token = world.path("token");
    std::fs::write(&token, "inbound").unwrap();

    let peer = server(json!({"type": "object"}));
    let url = peer.url();
    let protocol = ["--protocol", "legacy"];
    let mut args = vec![
        url.as_str(),
        "-H",
        &own_header,
        "--bearer-token-file",
        &token,
    ];
    args.extend(protocol);
    let bridge = Bridge::start(&world, &args);
    // The case mixes the eras to see that neither's headers cross: here each is what its own era sends.
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    for (method, params) in [
        ("tools/list", json!({"_meta": meta})),
        (
            "tools/call",
            json!({"name": "echo", "arguments": {}, "_meta": meta}),
        ),
    ] {
        let mut head = inbound
            .replace("{{host}}", &bridge.address)
            .replace("{{sid}}", "0123456789abcdef0123456789abcdef")
            .replace("Mcp-Method: tools/list", &format!("Mcp-Method: {method}"));
        if method == "tools/call" {
            head.push_str("Mcp-Name: echo\r\n");
        }
        let body = json!({"jsonrpc": "2.0", "id": 2, "method": method, "params": params});
        let (answer, body) = bridge.post(&head, &body.to_string());
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}\n{body}");
        assert!(!body.contains("isError"), "{body}");
        for theirs in [
            "upstream-session",
            "set-cookie",
            "vary: upstream",
            "mcp-session-id",
        ] {
            let found = answer.to_ascii_lowercase().contains(theirs);
            assert!(!found, "{theirs} came back: {answer}");
        }
    }
    let (mut traced, mut session) = (0, 0);
    for got in peer.got() {
        for field in [
            "authorization",
            "cookie",
            "proxy-authorization",
            "mcp-method",
            "mcp-name",
            "last-event-id",
            "x-forwarded-proto",
            "forwarded",
        ] {
            assert_eq!(got.field(field), None, "{field} of {}", got.message);
        }
        assert_eq!(got.field(own), value.as_str());
        traced += usize::from(
            got.field("traceparent")
                .is_some_and(|t| t.starts_with("00-0af7")),
        );
        let id = got.field("mcp-session-id");
        assert!(id.is_none() || id == Some("upstream-session"), "{id:?}");
        session += usize::from(id.is_some());
        let version = got.field("mcp-protocol-version");
        assert!(
            version.is_none() || version == Some("2025-06-18"),
            "{version:?}"
        );
    }
    // Both are made for the client: with one server its list goes through, too.
    assert_eq!(traced, 2);
    assert!(session >= 2, "{session}");
}

#[test]
fn headers_that_repeat_arguments_of_an_upstream_tool_are_checked() {
    let world = World::new("param-headers");
    let peer = server(json!({"type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}));
    let url = peer.url();
    let bridge = Bridge::start(&world, &[&url, "--protocol", "legacy"]);
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}});
    let address = &bridge.address;
    let post = |method: &str, more: &str, mut params: Value| {
        params["_meta"] = meta.clone();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {method}\r\n{more}"
        );
        let body = json!({"jsonrpc": "2.0", "id": 2, "method": method, "params": params});
        bridge.post(&head, &body.to_string())
    };
    post("tools/list", "", json!({}));
    let params = json!({"name": "echo", "arguments": {"region": "west"}});
    for (field, status) in [("east", "400"), ("west", "200")] {
        let more = format!("Mcp-Name: echo\r\nMcp-Param-Region: {field}\r\n");
        let (head, body) = post("tools/call", &more, params.clone());
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{head}\n{body}"
        );
    }
    assert_eq!(peer.posts("tools/call").len(), 1);
}
