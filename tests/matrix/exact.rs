//! What the span must not change, byte for byte: numbers of any size and spelling, escapes, the order of
//! members, blanks, members and methods nobody knows, in both directions. The server is in this process, so
//! that it sees what came.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use drawspan::protocol::client::peer::CallFault;
use drawspan::protocol::revision::Revision;
use rustix::process::Signal;

use crate::client::{Address, Client};
use crate::common::{Home, Process};
use crate::places::{Transport, older};

/// Members that a program which reads and writes JSON again would change.
const ODD: &str = concat!(
    r#""z":12345678901234567890123, "a" : -0.0,"f":1.0,"e":1E400,"esc":"\u0041\/\ud83d\ude00\u0000","#,
    r#""":[ 1 ,2.50 , {"b":{},"a":null}],"z2":"é\t""#
);

/// A member of `_meta` of somebody's own.
const VENDOR: &str = r#""com.example/trace":{"b":1.10,"a":[1e2,"\u002f"]}"#;

/// What the server tells when it is asked to.
const TOLD: &str = "notifications/com.example/told";

/// What is not done yet; fails the test as soon as it is.
const PENDING: &[&str] = &[];

const DATA: &str = r#"{ "why":"\u0062ecause","n":1e1}"#;

const INFO: &str = r#"{"name":"exact","version":"1","x-own":1.0}"#;

const TOOL: &str = r#"{ "name":"odd","inputSchema":{"type":"object","maximum":1.0},"x-own":1E2 }"#;

fn result() -> String {
    format!(
        r#"{{ "content":[{{"type":"text","text":"\u0068i"}}],"x-own":{{{ODD}}},"_meta":{{{VENDOR}}} }}"#
    )
}

/// Says what it was asked and answers with odd things.
struct Server {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn listen(path: &std::path::Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = lines.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, log) = (stream.unwrap(), log.clone());
                std::thread::spawn(move || serve(stream, &log));
            }
        });
        Self { lines }
    }

    /// The last line with this method.
    fn heard(&self, method: &str) -> Option<String> {
        let marked = format!(r#""method":"{method}""#);
        let lines = self.lines.lock().unwrap();
        lines
            .iter()
            .rev()
            .find(|line| line.contains(&marked))
            .cloned()
    }
}

fn serve(stream: UnixStream, log: &Mutex<Vec<String>>) {
    let mut out = stream.try_clone().unwrap();
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        log.lock().unwrap().push(line.clone());
        // Numbers that are out of range for others are read as far as the members that matter here.
        let id = line
            .split(r#""id":"#)
            .nth(1)
            .and_then(|rest| rest.split([',', '}']).next());
        let method = line
            .split(r#""method":""#)
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        let (Some(id), Some(method)) = (id, method) else {
            continue;
        };
        let outcome = match method {
            "initialize" => {
                let asked = line.split(r#""protocolVersion":""#).nth(1).unwrap();
                let asked = asked.split('"').next().unwrap();
                let capabilities = r#"{"tools":{},"com.example/own":{"n":1.0}}"#;
                format!(
                    r#""result":{{"protocolVersion":"{asked}","capabilities":{capabilities},"serverInfo":{INFO}}}"#
                )
            }
            "server/discover" => format!(
                r#""result":{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{{"tools":{{}}}},"_meta":{{"io.modelcontextprotocol/serverInfo":{INFO}}}}}"#
            ),
            "tools/list" => format!(r#""result":{{"tools":[{TOOL}],"x-own":1.0}}"#),
            "com.example/tell" => {
                let told = format!(r#"{{"jsonrpc":"2.0","method":"{TOLD}","params":{{{ODD}}}}}"#);
                drop(writeln!(out, "{told}"));
                format!(r#""result":{}"#, result())
            }
            "com.example/fail" => {
                format!(r#""error":{{"code":-31999,"message":"\u006eo","data":{DATA}}}"#)
            }
            _ => format!(r#""result":{}"#, result()),
        };
        if writeln!(out, r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#).is_err() {
            return;
        }
    }
}

/// All that is wrong in one cell.
fn wrong(client: &mut Client, server: &Server, transparent: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut contains = |what: &str, text: &str, part: &str| {
        if !text.contains(part) {
            wrong.push(format!("{what}: no {part} in {text}"));
        }
    };
    let params = format!(
        r#"{{"name":"odd","arguments":{{{ODD}}},"x-own":[ 1 , 2.0 ],"_meta":{{{VENDOR}}}}}"#
    );
    let id = client.begin("tools/call", &params, false);
    match client.raw_answer(id) {
        Ok(got) if transparent => contains("the whole result", &got, &result()),
        Ok(got) => {
            contains("the result", &got, ODD);
            contains("_meta of the result", &got, VENDOR);
            contains("the content", &got, r#"{"type":"text","text":"\u0068i"}"#);
        }
        Err(fault) => contains("tools/call", &format!("{fault:?}"), "a result"),
    }
    let heard = server.heard("tools/call").unwrap_or_default();
    if transparent {
        contains("all params", &heard, &params);
    }
    contains(
        "the arguments",
        &heard,
        &format!(r#""arguments":{{{ODD}}}"#),
    );
    contains("unknown params", &heard, r#""x-own":[ 1 , 2.0 ]"#);
    contains("_meta of the params", &heard, VENDOR);

    let id = client.begin("tools/list", "{}", false);
    let got = client
        .raw_answer(id)
        .map_or_else(|fault| format!("{fault:?}"), |result| result.to_string());
    contains("a tool", &got, TOOL);

    let params = format!(r#"{{"x-own":{{{ODD}}},"_meta":{{{VENDOR}}}}}"#);
    let id = client.begin("com.example/do", &params, false);
    let got = client
        .raw_answer(id)
        .map_or_else(|fault| format!("{fault:?}"), |result| result.to_string());
    contains("the result of an unknown method", &got, ODD);
    contains("its _meta", &got, VENDOR);
    let heard = server.heard("com.example/do").unwrap_or_default();
    contains(
        "the params of an unknown method",
        &heard,
        &format!(r#""x-own":{{{ODD}}}"#),
    );
    contains("their _meta", &heard, VENDOR);

    match client.ask("com.example/fail", "{}") {
        Err(CallFault::Remote(error)) => {
            let data = error.data.as_deref().unwrap_or("nothing");
            let found = format!("{} {} {data}", error.code, error.message);
            contains("the error", &found, &format!("-31999 no {DATA}"));
        }
        other => contains("com.example/fail", &format!("{other:?}"), "an error"),
    }

    client.notify("notifications/com.example/said", &format!("{{{ODD}}}"));
    // What is read after it is read after it.
    let id = client.begin("com.example/do", "{}", false);
    drop(client.raw_answer(id));
    let heard = server
        .heard("notifications/com.example/said")
        .unwrap_or_default();
    contains("a notification of the client", &heard, ODD);

    // In the stateless era a server has nowhere to say it but in answer to a request.
    if transparent {
        client.told().raw.clear();
        let id = client.begin("com.example/tell", "{}", false);
        drop(client.raw_answer(id));
        // Over HTTP it may come on another stream.
        client.until("the notification", |told| !told.raw.is_empty());
        let told = client.told().raw.join("\n");
        contains("a notification of the server", &told, ODD);
    }
    let info = client.raw_server_info();
    contains("serverInfo", &info, INFO);
    wrong
}

#[test]
fn nothing_is_changed_that_need_not_be() {
    let mut report: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for revision in Revision::NEWEST_FIRST {
        let home = Home::new(&format!("exact-{revision}"));
        let server = Server::listen(&home.path("server.sock"));
        let target = format!("unix:{}", home.path("server.sock").display());
        let door = home.path("door.sock");
        let unix = format!("unix:{}", door.display());
        let args = ["--listen", "http://127.0.0.1:0", "--listen", &unix];
        let rest = ["--protocol", revision.as_str(), &target];
        let args = [&["serve"][..], &args, &rest].concat();
        let (drawspan, url) = Process::listening(&mut home.drawspan(&args));
        for client in Revision::NEWEST_FIRST {
            let addresses = [
                (Transport::Unix, Address::Unix(door.clone())),
                (Transport::Http, Address::Http(url.clone())),
                (Transport::Sse, Address::Sse(older(&url))),
            ];
            for (transport, address) in addresses {
                if !transport.carries(client) {
                    continue;
                }
                let mut found = Client::connect(&address, client).unwrap();
                let transparent = !client.is_stateless() && !revision.is_stateless();
                for what in wrong(&mut found, &server, transparent) {
                    let eras = (client.is_stateless(), revision.is_stateless());
                    let cell = format!("{client} {} -> {revision}", transport.name());
                    report
                        .entry(format!("{eras:?} {what}"))
                        .or_default()
                        .push(cell);
                }
                found.end();
            }
        }
        drawspan.signal(Signal::TERM);
        drawspan.end().expect_code(0);
        home.expect_processes(0);
    }
    let mut lines: Vec<String> = Vec::new();
    for (what, cells) in &report {
        if !PENDING
            .iter()
            .any(|mark| what.contains(&format!(") {mark}:")))
        {
            lines.push(format!("{what}\n    in {}: {}", cells.len(), cells[0]));
        }
    }
    for mark in PENDING {
        if !report
            .keys()
            .any(|what| what.contains(&format!(") {mark}:")))
        {
            lines.push(format!("{mark}: works now, take the mark out"));
        }
    }
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}
