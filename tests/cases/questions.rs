//! Questions of servers in mid-call, through a bridge with several clients: f09.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::world::{Heard, PATIENCE, World, case, expect_words, until};

const META: &str = "io.modelcontextprotocol/";

/// `drawspan serve` on a Unix socket, before one server.
struct Bridge {
    child: Child,
    socket: String,
    said: Arc<Mutex<String>>,
}

impl Bridge {
    fn start(world: &World, config: &str) -> Self {
        let socket = world.path("socket");
        let listen = format!("unix:{socket}");
        let mut command = world.drawspan(&["serve", "--listen", &listen, "--config", config]);
        command.stdin(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                *heard.lock().unwrap() += &format!("{line}\n");
            }
        });
        Self {
            child,
            socket,
            said,
        }
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    fn connect(&self) -> Client {
        let mut wire = None;
        until("the socket", || {
            let tried = UnixStream::connect(&self.socket);
            wire = Some(tried.map_err(|error| error.to_string())?);
            Ok(())
        });
        Client::new(wire.unwrap())
    }

    /// A client that has shaken hands.
    fn open(&self, revision: &str, capabilities: Value) -> Client {
        let mut client = self.connect();
        let info = json!({"name": "tester", "version": "1"});
        let params = json!({"protocolVersion": revision, "capabilities": capabilities,
            "clientInfo": info});
        client.send(json!({"id": 0, "method": "initialize", "params": params}));
        let opened = client.message(|message| message["id"] == 0);
        assert_eq!(opened["result"]["protocolVersion"], revision);
        client.send(json!({"method": "notifications/initialized"}));
        client
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Client {
    wire: UnixStream,
    messages: Receiver<Value>,
}

impl Client {
    fn new(wire: UnixStream) -> Self {
        let lines = BufReader::new(wire.try_clone().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).expect("JSON");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self { wire, messages }
    }

    fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        writeln!(self.wire, "{message}").unwrap();
    }

    /// The next message that fits.
    #[track_caller]
    fn message(&self, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.messages.recv_timeout(PATIENCE).expect("a message");
            if fits(&message) {
                return message;
            }
        }
    }

    fn call(&mut self, id: u64) {
        let params = json!({"name": "ask", "arguments": {}});
        self.send(json!({"id": id, "method": "tools/call", "params": params}));
    }

    /// The requests that it is sent, as many as there are questions in the case, in their order.
    #[track_caller]
    fn asked(&self) -> Vec<Value> {
        let asked =
            (0..3).map(|_| self.message(|m| m.get("id").is_some() && m.get("method").is_some()));
        let asked: Vec<Value> = asked.collect();
        let methods: Vec<&str> = asked.iter().filter_map(|m| m["method"].as_str()).collect();
        assert_eq!(methods, QUESTIONS, "and no ping");
        asked
    }
}

const QUESTIONS: [&str; 3] = ["roots/list", "elicitation/create", "sampling/createMessage"];

fn all() -> Value {
    json!({"roots": {}, "elicitation": {}, "sampling": {}})
}

/// What the client of this name answers to the questions of the case.
fn answers(name: &str) -> [Value; 3] {
    [
        json!({"roots": [{"uri": format!("file:///{name}")}]}),
        json!({"action": "accept", "content": {"name": name}}),
        json!({"role": "assistant", "model": name, "content": {"type": "text", "text": "x"}}),
    ]
}

/// Whether a server got this answer to the request of this id, its type included.
fn got(heard: &Heard, id: &Value, member: &str, fits: impl Fn(&Value) -> bool) -> bool {
    let messages = heard.messages();
    let mut answers = messages
        .iter()
        .filter(|message| message.get("method").is_none());
    answers.any(|message| message["id"] == *id && message.get(member).is_some_and(&fits))
}

/// A server that asks all the questions of the case when its tool is called, and does not answer.
fn server(revision: &str, case: &Value) -> Value {
    let chunks = &case["input"]["streams"][0]["chunks"];
    let opened = json!({"protocolVersion": revision, "capabilities": {"tools": {}},
        "serverInfo": {"name": "asker", "version": "1"}});
    let tools = json!({"tools": [{"name": "ask", "inputSchema": {"type": "object"}}]});
    json!([{"do": "auto", "table": {
        "initialize": {"result": opened},
        "tools/list": {"result": tools},
        "tools/call": {"steps": [{"do": "write", "chunks": chunks}]},
        "*": {"error": {"code": -32601, "message": "no such method"}}}}])
}

/// The ids of the case's questions, in their order; the ping has the last.
fn ids() -> [Value; 4] {
    [json!(1), json!("1"), json!(2), json!(3)]
}

#[test]
fn f09_each_question_reaches_its_own_client() {
    let case = case("f09-bidirectional");
    for revision in case["revisions"].as_array().unwrap() {
        let revision = revision.as_str().unwrap();
        let world = World::new(&format!("f09-{revision}"));
        let keys = json!({"protocol": "legacy"});
        let config = world.config(json!({"s": world.entry("s", &server(revision, &case), keys)}));
        let bridge = Bridge::start(&world, &config);
        let mut clients = ["ada", "bob"].map(|name| (name, bridge.open(revision, all())));
        for (_, client) in &mut clients {
            client.call(1);
        }
        // Both are asked before one answers: their servers' ids are the same.
        let asked = clients.each_ref().map(|(_, client)| client.asked());
        for ((name, client), asked) in clients.iter_mut().zip(&asked) {
            for (question, answer) in asked.iter().zip(answers(name)).rev() {
                client.send(json!({"id": question["id"], "result": answer}));
            }
        }
        for (name, _) in &clients {
            for (id, answer) in ids().iter().zip(answers(name)) {
                until("the answer at its server", || {
                    let heard = world.heard("s");
                    let arrived = got(&heard, id, "result", |result| *result == answer);
                    arrived
                        .then_some(())
                        .ok_or_else(|| format!("{id} {answer}: {heard:#?}"))
                });
            }
        }
        let heard = world.heard("s");
        assert!(
            got(&heard, &ids()[3], "result", |pong| *pong == json!({})),
            "{heard:#?}"
        );
        assert_eq!(heard.starts().len(), 2, "a session has a server of its own");
        assert_eq!(
            bridge.said().matches("warning").count(),
            0,
            "{}",
            bridge.said()
        );
    }
}

#[test]
fn f09_what_is_not_declared_is_refused_by_the_bridge() {
    let case = case("f09-bidirectional");
    let world = World::new("f09-undeclared");
    let keys = json!({"protocol": "legacy"});
    let steps = server("2025-11-25", &case);
    let config = world.config(json!({"s": world.entry("s", &steps, keys)}));
    let bridge = Bridge::start(&world, &config);
    let mut client = bridge.open("2025-11-25", json!({}));
    client.call(1);
    for id in &ids()[..3] {
        until("the refusal", || {
            let heard = world.heard("s");
            let refused = got(&heard, id, "error", |error| error["code"] == -32601);
            refused
                .then_some(())
                .ok_or_else(|| format!("{id}: {heard:#?}"))
        });
    }
    until("the diagnostics", || {
        let said = bridge.said();
        let told = QUESTIONS.iter().all(|method| {
            said.lines()
                .any(|line| line.contains(method) && line.contains("server s"))
        });
        told.then_some(()).ok_or(said)
    });
    // It is asked nothing: the first thing it hears is the answer to this.
    client.send(json!({"id": 2, "method": "ping"}));
    let next = client.message(|message| message.get("id").is_some());
    assert_eq!((&next["id"], &next["result"]), (&json!(2), &json!({})));
}

#[test]
fn f09_a_client_that_goes_away_leaves_no_question_open() {
    let case = case("f09-bidirectional");
    let world = World::new("f09-gone");
    let keys = json!({"protocol": "legacy"});
    let steps = server("2025-11-25", &case);
    let config = world.config(json!({"s": world.entry("s", &steps, keys)}));
    let bridge = Bridge::start(&world, &config);
    let mut client = bridge.open("2025-11-25", all());
    client.call(1);
    client.asked();
    client.wire.shutdown(std::net::Shutdown::Both).unwrap();
    drop(client);
    for id in &ids()[..3] {
        until("the error", || {
            let heard = world.heard("s");
            let refused = got(&heard, id, "error", |error| error["code"] == -32603);
            refused
                .then_some(())
                .ok_or_else(|| format!("{id}: {heard:#?}"))
        });
    }
    until("the end of its server", || {
        let heard = world.heard("s");
        let ended = heard.0.iter().any(|line| line["end"] == true);
        ended.then_some(()).ok_or_else(|| format!("{heard:#?}"))
    });
}

#[test]
fn f09_a_stateless_client_is_asked_by_input_required() {
    let case = case("f09-bidirectional");
    let world = World::new("f09-modern");
    let keys = json!({"protocol": "legacy"});
    let steps = server("2025-06-18", &case);
    let config = world.config(json!({"s": world.entry("s", &steps, keys)}));
    let bridge = Bridge::start(&world, &config);
    let mut client = bridge.connect();
    let meta = json!({format!("{META}protocolVersion"): "2026-07-28",
        format!("{META}clientCapabilities"): all()});
    let mut params = json!({"name": "ask", "arguments": {}, "_meta": meta});
    let mut left: Vec<(&str, Value)> = QUESTIONS.into_iter().zip(answers("eve")).collect();
    // The questions came in one piece, but a pipe may cut it.
    for id in 1.. {
        client.send(json!({"id": id, "method": "tools/call", "params": params}));
        if left.is_empty() {
            break;
        }
        let required = client.message(|message| message["id"] == id);
        let required = &required["result"];
        assert_eq!(required["resultType"], "input_required", "{required}");
        let mut responses = json!({});
        for (key, question) in required["inputRequests"].as_object().unwrap() {
            let at = left
                .iter()
                .position(|(method, _)| question["method"] == **method);
            responses[key] = left.remove(at.expect("a question of the case")).1;
        }
        params["requestState"] = required["requestState"].clone();
        params["inputResponses"] = responses;
    }
    for (id, answer) in ids().iter().zip(answers("eve")) {
        until("the answer", || {
            let heard = world.heard("s");
            let arrived = got(&heard, id, "result", |result| *result == answer);
            arrived
                .then_some(())
                .ok_or_else(|| format!("{id}: {heard:#?}"))
        });
    }
    assert_eq!(
        world.heard("s").of("tools/call").len(),
        1,
        "it was called once"
    );
    // A state of its own making brings nobody else's call.
    params["requestState"] = json!("drawspan.0123456789abcdef.AAAA");
    let mut stranger = bridge.connect();
    stranger.send(json!({"id": 1, "method": "tools/call", "params": params}));
    let refused = stranger.message(|message| message["id"] == 1);
    assert_eq!(refused["error"]["code"], -32602);
    expect_words(&refused["error"]["message"].to_string(), &["requestState"]);
    assert_eq!(world.heard("s").of("tools/call").len(), 1);
}
