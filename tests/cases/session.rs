//! What takes more than one request on one connection: the rest of c06, c07, c11, c21, d04, e04 and
//! e10, by an MCP client in front of `drawspan serve` with one server behind it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::era::in_era;
use crate::world::{ERAS, PATIENCE, World, case, expect_words, serve, serve_variant, until};

/// A client of `drawspan serve`.
struct Session {
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Value>,
    last_id: u64,
}

impl Session {
    /// Serves the server `s` of the configuration and shakes hands.
    #[track_caller]
    fn open(world: &World, config: &str) -> Self {
        let mut command: Command = world.drawspan(&["serve", "s", "--config", config]);
        command.stdin(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).expect("stdout is the protocol");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut session = Self {
            child,
            stdin,
            messages,
            last_id: 0,
        };
        let client = json!({"name": "tester", "version": "1"});
        let hello =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        session.request("initialize", hello);
        session.send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        session
    }

    fn send(&mut self, message: Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    /// The answer to a request.
    #[track_caller]
    fn request(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let message = self.messages.recv_timeout(PATIENCE).expect("an answer");
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    /// Calls `echo`: its text, or what went wrong.
    #[track_caller]
    fn call(&mut self) -> Result<String, String> {
        let answer = self.request("tools/call", json!({"name": "echo", "arguments": {}}));
        if let Some(error) = answer.get("error") {
            return Err(error["message"].as_str().unwrap().to_owned());
        }
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap().to_owned();
        if result["isError"] == true {
            Err(text)
        } else {
            Ok(text)
        }
    }

    fn tools(&mut self) -> Vec<String> {
        let answer = self.request("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Closes its input; the end is orderly and leaves nobody.
    #[track_caller]
    fn end(mut self, world: &World) {
        self.stdin = None;
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        world.expect_nobody();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn c06_the_era_is_remembered() {
    let world = World::new("c06-session");
    let mut input = case("c06-discover-fallback")["input"]["servers"][0].clone();
    assert_eq!(input["name"], "method-not-found");
    // It ends with its first answer; the second process is asked as the first had to be.
    let table = &mut input["steps"][0]["table"];
    let result = table["tools/call"]["result"].clone();
    let last = json!([{"do": "reply", "result": result}, {"do": "exit", "code": 0}]);
    table["tools/call"] = json!([last]);
    let config = world.config(json!({"s": world.entry("s", &input["steps"], json!({}))}));
    let mut session = Session::open(&world, &config);
    assert_eq!(session.call(), Ok("done".to_owned()));
    // A call that is sent before its end was seen is told of it, and is not sent again.
    let second = session.call().or_else(|why| {
        expect_words(&why, &["exited with code 0"]);
        session.call()
    });
    assert_eq!(second, Ok("done".to_owned()));
    let heard = world.heard("s");
    assert_eq!(heard.starts().len(), 2);
    assert_eq!(heard.of("initialize").len(), 2);
    assert_eq!(heard.of("server/discover").len(), 1, "{heard:?}");
    session.end(&world);
}

#[test]
fn c07_the_next_call_works() {
    let input = &case("c07-late-answer-after-cancel")["input"];
    for era in ERAS {
        let world = World::new(&format!("c07-session-{era}"));
        let steps = in_era(era, input)["steps"].clone();
        let keys = json!({"protocol": era, "requestTimeoutMs": 2_000});
        // The first call is given up at 300 ms in the case; here the second must have time to be
        // answered.
        let mut steps = steps;
        steps[0]["table"]["tools/call"][0][0]["ms"] = 2_600.into();
        let config = world.config(json!({"s": world.entry("s", &steps, keys)}));
        let mut session = Session::open(&world, &config);
        let why = session.call().unwrap_err();
        expect_words(&why, &["s", "timed out after 2000 ms"]);
        assert_eq!(session.call(), Ok("second".to_owned()));
        let heard = world.heard("s");
        assert_eq!(heard.starts().len(), 1, "the same process");
        assert_eq!(heard.of("tools/call").len(), 2, "nothing was sent again");
        assert_eq!(heard.of("notifications/cancelled").len(), 1);
        session.end(&world);
    }
}

#[test]
fn c11_the_next_call_starts_it_again() {
    for era in ERAS {
        let world = World::new(&format!("c11-session-{era}"));
        let steps = in_era(era, &case("c11-stdout-closed-alive")["input"])["steps"].clone();
        let config = world.config(json!({"s": world.entry("s", &steps, json!({"protocol": era}))}));
        let mut session = Session::open(&world, &config);
        for _ in 0..2 {
            session.tools();
            expect_words(&session.call().unwrap_err(), &["server closed its output"]);
        }
        assert_eq!(world.heard("s").starts().len(), 2, "a fresh process");
        session.end(&world);
    }
}

#[test]
fn c21_the_catalog_follows() {
    let world = World::new("c21-session");
    let input = &case("c21-list-changed-storm")["input"];
    let entry = world.entry("s", &input["steps"], json!({"protocol": "legacy"}));
    let config = world.config(json!({"s": entry}));
    let mut session = Session::open(&world, &config);
    until("the new tool", || match session.tools() {
        tools if tools == ["echo", "new"] => Ok(()),
        tools => Err(format!("{tools:?}")),
    });
    let lists = world.heard("s").of("tools/list").len();
    assert!(
        (2..=3).contains(&lists),
        "{lists} lists for 200 notifications"
    );
    session.end(&world);
}

#[test]
fn d04_the_stream_of_a_session_comes_back_slowly() {
    let world = World::new("d04-session");
    let mut input = case("e05-get-not-offered")["input"].clone();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n";
    let get = json!({"when": {"verb": "GET"}, "head": head, "auto_length": false,
        "body": [": up\n\n"], "close": true});
    input["exchanges"].as_array_mut().unwrap().insert(0, get);
    let peer = serve(&input);
    let config =
        world.config(json!({"s": {"type": "http", "url": peer.url(), "protocol": "legacy"}}));
    let mut session = Session::open(&world, &config);
    assert_eq!(session.call(), Ok("done".to_owned()));
    until("three streams", || match peer.gets().len() {
        0..=2 => Err(format!("{:?}", peer.gets().len())),
        _ => Ok(()),
    });
    for pair in peer.gets().windows(2) {
        assert!(pair[1].at - pair[0].at >= Duration::from_secs(1));
    }
    session.end(&world);
}

#[test]
fn e04_a_doubtful_session_is_opened_again() {
    let input = &case("e04-400-unknown-session")["input"];
    for n in 0..input["variants"].as_array().unwrap().len() {
        let world = World::new(&format!("e04-session-{n}"));
        let mut input = input.clone();
        input["variants"][n]["limit"] = 1.into();
        let peer = serve_variant(&input, n);
        let config =
            world.config(json!({"s": {"type": "http", "url": peer.url(), "protocol": "legacy"}}));
        let mut session = Session::open(&world, &config);
        session.call().unwrap_err();
        assert_eq!(peer.posts("initialize").len(), 1);
        assert_eq!(session.call(), Ok("done".to_owned()));
        assert_eq!(peer.posts("initialize").len(), 2, "one more, for the call");
        assert_eq!(peer.posts("tools/call").len(), 2, "nothing was sent again");
        session.end(&world);
    }
}

#[test]
fn e10_held_while_it_is_busy() {
    let world = World::new("e10-session");
    let mut input = case("e10-overload")["input"].clone();
    input["exchanges"].as_array_mut().unwrap().remove(0);
    let peer = serve(&input);
    let config =
        world.config(json!({"s": {"type": "http", "url": peer.url(), "protocol": "legacy"}}));
    let mut session = Session::open(&world, &config);
    expect_words(&session.call().unwrap_err(), &["429", "retry after 2 s"]);
    // Refused at once for the same reason, or held until the time has come.
    let refused = peer.posts("tools/call")[0].at;
    if let Err(why) = session.call() {
        expect_words(&why, &["retry after"]);
        assert_eq!(peer.posts("tools/call").len(), 1);
    }
    // The session's stream sets out together with the call, on a connection of its own: which of them comes
    // first is the network's affair. A second one would be traffic.
    let opened = peer.gets().first().map(|stream| stream.at);
    let traffic = peer
        .got()
        .into_iter()
        .filter(|request| request.at > refused && Some(request.at) != opened);
    for request in traffic {
        assert!(
            request.at - refused >= Duration::from_secs(2),
            "{request:?}"
        );
    }
    session.end(&world);
}
