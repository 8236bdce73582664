//! Questions through a whole hub in virtual time: clients on lines and over HTTP, servers of both eras behind
//! wires, each as a test plays it.

use serde_json::{Value, json};

use crate::hub::rig::{Heard, INITIALIZED, Reply, World, span};
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::IoEvent;

const META: &str = "io.modelcontextprotocol/";

/// A server of the handshake era with one of each. It answers nothing but how it begins.
fn handshaking(method: &str, params: &Value) -> Reply {
    match method {
        "initialize" => Reply::Result(json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
            "serverInfo": {"name": "s", "version": "1"}})),
        "server/discover" => Reply::Error(-32601),
        "tools/list" => tools(),
        _ => Reply::Silence,
    }
}

/// The same of the stateless era.
fn discovered(method: &str, _: &Value) -> Reply {
    match method {
        "server/discover" => Reply::Result(json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
            "ttlMs": 0, "cacheScope": "private"})),
        "tools/list" => tools(),
        _ => Reply::Silence,
    }
}

fn tools() -> Reply {
    let tool = json!({"name": "t", "inputSchema": {"type": "object"}});
    Reply::Result(json!({"resultType": "complete",
        "tools": [tool], "ttlMs": 0, "cacheScope": "private"}))
}

fn with(more: Value, limits: Limits, script: fn(&str, &Value) -> Reply) -> World {
    let mut world = World::new(span(&[("s", more)], limits));
    world.play("s", script);
    world
}

/// A world with one server of the handshake era.
fn world() -> World {
    limited(Limits::default())
}

fn limited(limits: Limits) -> World {
    with(
        json!({"supportsParallelToolCalls": true}),
        limits,
        handshaking,
    )
}

fn shared() -> World {
    let more = json!({"isolation": "shared", "supportsParallelToolCalls": true});
    with(more, Limits::default(), handshaking)
}

/// A world with one server of the stateless era.
fn stateless() -> World {
    with(json!({}), Limits::default(), discovered)
}

fn hello(capabilities: &Value) -> Value {
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
        "clientInfo": {"name": "c", "version": "1"}});
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

impl World {
    /// A client on a line that has shaken hands.
    fn client(&mut self, capabilities: Value) -> WireId {
        let wire = self.line();
        self.send(wire, hello(&capabilities));
        self.say(wire, INITIALIZED);
        self.take_said();
        wire
    }

    fn call(&mut self, wire: WireId, id: u64) {
        self.send(
            wire,
            json!({"id": id, "method": "tools/call", "params": {"name": "t", "arguments": {"a": 1}}}),
        );
    }

    /// A request of a stateless client that can do this.
    fn modern_call(&mut self, wire: WireId, id: u64, capabilities: Value, more: Value) {
        self.send(wire, modern(id, "tools/call", capabilities, more));
    }

    /// A client with a call open: the client, the server, and the id of the call there.
    #[track_caller]
    fn calling(&mut self, capabilities: Value) -> (WireId, WireId, Value) {
        let client = self.client(capabilities);
        self.call(client, 1);
        (client, self.server(), self.called())
    }

    /// The same of a stateless client.
    #[track_caller]
    fn calling_stateless(&mut self, capabilities: Value) -> (WireId, WireId, Value) {
        let client = self.line();
        self.modern_call(client, 1, capabilities, json!({}));
        (client, self.server(), self.called())
    }

    /// A message over HTTP, on a connection of its own.
    fn post_alone(&mut self, headers: &str, mut message: Value) -> WireId {
        message["jsonrpc"] = json!("2.0");
        let wire = self.connect();
        self.http(wire, "POST", headers, &message.to_string());
        wire
    }

    /// A session over HTTP: the headers that name it.
    fn session_of(&mut self, capabilities: Value) -> String {
        let wire = self.connect();
        self.session(wire, &hello(&capabilities).to_string())
    }

    /// What line clients got. That their servers have tools by now is no matter of these tests.
    fn take_said(&mut self) -> Vec<(WireId, Value)> {
        let said = std::mem::take(&mut self.said).into_iter();
        let said = said.map(|(wire, line)| (wire, serde_json::from_str(&line).expect("JSON")));
        said.filter(|(_, message): &(_, Value)| {
            message["method"] != "notifications/tools/list_changed"
        })
        .collect()
    }

    /// The only message that a client was sent.
    #[track_caller]
    fn one_said(&mut self) -> (WireId, Value) {
        let mut said = self.take_said();
        assert_eq!(said.len(), 1, "{said:?}");
        said.remove(0)
    }

    /// What servers got, beside what every server gets.
    fn take_heard_by(&mut self) -> Vec<(WireId, Value)> {
        let heard = std::mem::take(&mut self.heard).into_iter();
        let heard = heard.map(|Heard { wire, message, .. }| (wire, message));
        heard
            .filter(|(_, message)| {
                message["method"] != "server/discover" && message["method"] != "tools/list"
            })
            .collect()
    }

    fn take_heard(&mut self) -> Vec<Value> {
        let heard = self.take_heard_by().into_iter();
        heard.map(|(_, message)| message).collect()
    }

    /// What the server got as its only message.
    #[track_caller]
    fn one_heard(&mut self) -> Value {
        let mut heard = self.take_heard();
        assert_eq!(heard.len(), 1, "{heard:?}");
        heard.remove(0)
    }

    /// The call that a server got: its id there.
    #[track_caller]
    fn called(&mut self) -> Value {
        let heard = self.take_heard();
        let called = heard
            .iter()
            .find(|message| message["method"] == "tools/call");
        called.unwrap_or_else(|| panic!("no call in {heard:?}"))["id"].clone()
    }
}

fn modern(id: u64, method: &str, capabilities: Value, more: Value) -> Value {
    let mut params = json!({"name": "t", "arguments": {"a": 1},
        "_meta": {format!("{META}protocolVersion"): "2026-07-28",
            format!("{META}clientCapabilities"): capabilities}});
    for (key, value) in more.as_object().expect("an object") {
        params[key] = value.clone();
    }
    json!({"id": id, "method": method, "params": params})
}

fn question(id: Value, method: &str, params: Value) -> Value {
    json!({"id": id, "method": method, "params": params})
}

fn roots(id: Value) -> Value {
    json!({"id": id, "method": "roots/list"})
}

fn form(id: Value) -> Value {
    let schema = json!({"type": "object", "properties": {}});
    question(
        id,
        "elicitation/create",
        json!({"message": "name?", "requestedSchema": schema}),
    )
}

/// A client that can do everything.
fn all() -> Value {
    json!({"roots": {}, "sampling": {}, "elicitation": {"form": {}, "url": {}}})
}

fn result(id: &Value, text: &str) -> Value {
    json!({"id": id, "result": {"content": [{"type": "text", "text": text}]}})
}

#[test]
fn a_question_reaches_its_own_client_and_the_answer_has_the_servers_id() {
    let mut world = world();
    let one = world.client(all());
    world.call(one, 1);
    let first = world.server();
    let two = world.client(all());
    world.call(two, 1);
    let second = world.server();
    assert_ne!(first, second, "two sessions share nothing");
    world.take_heard();
    for (server, client) in [(first, one), (second, two)] {
        for id in [json!(1), json!("1")] {
            world.send(server, roots(id.clone()));
            let (asked, message) = world.one_said();
            assert_eq!((asked, &message["method"]), (client, &json!("roots/list")));
            assert!(message.get("params").is_none());
            let answer = json!({"id": message["id"], "result": {"roots": []}});
            world.send(client, answer);
            let expected = json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}});
            assert_eq!(world.one_heard(), expected);
        }
    }
    // Both are open at once, and their ids are kept apart.
    world.send(first, roots(json!(1)));
    world.send(first, roots(json!("1")));
    let said = world.take_said();
    assert_ne!(said[0].1["id"], said[1].1["id"]);
    let error = json!({"code": -1, "message": "no", "data": {"n": 1}});
    world.send(one, json!({"id": said[1].1["id"], "error": error}));
    let expected = json!({"jsonrpc": "2.0", "id": "1", "error": error});
    assert_eq!(world.one_heard(), expected);
}

#[test]
fn servers_are_told_what_their_client_has_declared() {
    let mut world = world();
    let declared = json!({"roots": {"listChanged": true}, "experimental": {"x": {}}});
    let one = world.client(declared.clone());
    world.call(one, 1);
    assert_eq!(world.take_heard()[0]["params"]["capabilities"], declared);
    let stateless = world.line();
    world.modern_call(stateless, 1, json!({}), json!({}));
    let told = &world.take_heard()[0]["params"]["capabilities"];
    for feature in ["sampling", "elicitation", "roots"] {
        assert!(told[feature].is_object(), "{told}");
    }
}

#[test]
fn what_a_client_has_not_declared_is_refused_and_told_once() {
    let mut world = world();
    let (_, server, _) = world.calling(json!({"elicitation": {}}));
    for id in [2, 3] {
        let asks = question(json!(id), "sampling/createMessage", json!({"messages": []}));
        world.send(server, asks);
        let refused = world.one_heard();
        assert_eq!(
            (&refused["id"], &refused["error"]["code"]),
            (&json!(id), &json!(-32601))
        );
    }
    assert!(world.take_said().is_empty());
    let told: Vec<&String> = world.diagnostics.iter().collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("sampling/createMessage") && told[0].contains("server s"),
        "{told:?}"
    );
    // A page where only forms were declared is a matter of params.
    let page = json!({"mode": "url", "url": "https://x/", "elicitationId": "e", "message": "m"});
    world.send(server, question(json!(4), "elicitation/create", page));
    assert_eq!(world.one_heard()["error"]["code"], -32602);
    // The bridge answers this itself.
    world.send(server, json!({"id": 5, "method": "ping"}));
    let expected = json!({"jsonrpc": "2.0", "id": 5, "result": {}});
    assert_eq!(world.one_heard(), expected);
    assert!(world.take_said().is_empty());
}

#[test]
fn a_client_that_goes_away_leaves_no_question_open() {
    for way in ["input ends", "wire breaks", "cancels"] {
        let mut world = world();
        let (client, server, call) = world.calling(all());
        world.send(server, form(json!("a")));
        let (_, asked) = world.one_said();
        match way {
            "input ends" => world.tell(client, IoEvent::Eof),
            "wire breaks" => world.tell(client, IoEvent::WriteClosed),
            _ => world.send(
                client,
                json!({"method": "notifications/cancelled", "params": {"requestId": 1}}),
            ),
        }
        let heard = world.take_heard();
        assert_eq!(heard[0]["id"], "a", "{way}: {heard:?}");
        assert_eq!(heard[0]["error"]["code"], -32603, "{way}");
        if way == "cancels" {
            assert_eq!(heard[1]["params"]["requestId"], call);
            let (_, gone) = world.one_said();
            assert_eq!(gone["method"], "notifications/cancelled");
            assert_eq!(gone["params"]["requestId"], asked["id"]);
        }
        // One that can answer no more is asked no more.
        if way == "input ends" {
            world.send(server, form(json!("b")));
            assert_eq!(world.one_heard()["error"]["code"], -32603);
        }
        assert_eq!(world.diagnostics, [""; 0]);
    }
}

#[test]
fn a_question_has_its_time_and_can_be_taken_back() {
    let mut world = world();
    let (client, server, call) = world.calling(all());
    world.send(server, form(json!(7)));
    let (_, asked) = world.one_said();
    world.send(
        server,
        json!({"method": "notifications/cancelled", "params": {"requestId": 7}}),
    );
    let (_, gone) = world.one_said();
    assert_eq!(gone["method"], "notifications/cancelled");
    assert_eq!(gone["params"]["requestId"], asked["id"]);
    world.send(client, json!({"id": asked["id"], "result": {}}));
    assert!(world.take_heard().is_empty(), "nobody waits for it");

    // A call that ends takes its questions with it.
    world.send(server, form(json!(8)));
    let (_, asked) = world.one_said();
    world.send(server, result(&call, "done"));
    let said = world.take_said();
    assert_eq!(said[0].1["params"]["requestId"], asked["id"], "{said:?}");
    assert_eq!(said[1].1["result"]["content"][0]["text"], "done");
    assert_eq!(world.one_heard()["error"]["code"], -32603);

    // Of no call: a matter of the session, and bounded all the same.
    world.send(server, form(json!(9)));
    let (_, asked) = world.one_said();
    let limit = u64::try_from(Limits::DEFAULT.request_state_ttl.as_millis()).expect("small");
    world.wait(limit - 1);
    assert!(world.take_heard().is_empty());
    world.wait(1);
    let heard = world.one_heard();
    assert_eq!(heard["id"], 9);
    let why = heard["error"]["message"].as_str().expect("a message");
    assert!(why.contains("request_state_ttl_ms"), "{why}");
    assert_eq!(world.one_said().1["params"]["requestId"], asked["id"]);
    assert!(
        world
            .hub
            .upstream
            .as_ref()
            .expect("there")
            .questions
            .next_deadline()
            .is_none()
    );
}

#[test]
fn a_question_to_a_stateless_client_parks_its_call_and_a_retry_goes_on() {
    let mut world = world();
    let (client, server, call) = world.calling_stateless(all());
    // Two at once become one result.
    let both = [form(json!("a")), roots(json!(5))].map(|mut message| {
        message["jsonrpc"] = json!("2.0");
        format!("{message}\n")
    });
    world.tell(server, IoEvent::Bytes(both.concat().as_bytes()));
    let (_, required) = world.one_said();
    assert_eq!(required["id"], 1);
    let required = &required["result"];
    assert_eq!(required["resultType"], "input_required");
    let inputs = required["inputRequests"].as_object().expect("questions");
    assert_eq!(inputs.len(), 2, "{required}");
    assert_eq!(inputs["q1"]["method"], "elicitation/create");
    assert_eq!(inputs["q1"]["params"]["message"], "name?");
    assert_eq!(inputs["q2"], json!({"method": "roots/list"}));
    assert!(required.get("ttlMs").is_none());
    assert_eq!(world.hub.open_calls(), 1, "it stands in the one table");

    // An answer that is missing is asked for again, under its name.
    let state = required["requestState"].clone();
    let more = json!({"requestState": state, "inputResponses":
        {"q1": {"action": "accept", "content": {"n": "x"}}, "q9": {}, "q2": 5}});
    world.modern_call(client, 2, all(), more);
    let expected = json!({"jsonrpc": "2.0", "id": "a",
        "result": {"action": "accept", "content": {"n": "x"}}});
    assert_eq!(world.one_heard(), expected);
    let (_, again) = world.one_said();
    assert_eq!(again["id"], 2);
    let inputs = again["result"]["inputRequests"]
        .as_object()
        .expect("questions");
    assert_eq!(inputs.keys().collect::<Vec<_>>(), ["q2"]);
    assert_ne!(again["result"]["requestState"], state);

    // A state of an earlier round is refused, and harms nothing.
    let old = json!({"requestState": state, "inputResponses": {"q2": {"roots": []}}});
    world.modern_call(client, 3, all(), old);
    assert_eq!(world.one_said().1["error"]["code"], -32602);
    let last = json!({"requestState": again["result"]["requestState"],
        "inputResponses": {"q2": {"roots": []}}});
    world.modern_call(client, 4, all(), last);
    let expected = json!({"jsonrpc": "2.0", "id": 5, "result": {"roots": []}});
    assert_eq!(world.one_heard(), expected);
    assert!(world.take_said().is_empty(), "it waits for the server");

    // The next question, and then the result.
    world.send(server, form(json!("b")));
    let (_, next) = world.one_said();
    assert_eq!(next["id"], 4);
    let more = json!({"requestState": next["result"]["requestState"],
        "inputResponses": {"q3": {"action": "decline"}}});
    world.modern_call(client, 5, all(), more);
    assert_eq!(world.one_heard()["result"]["action"], "decline");
    world.send(server, result(&call, "done"));
    let (_, done) = world.one_said();
    assert_eq!(
        (&done["id"], &done["result"]["resultType"]),
        (&json!(5), &json!("complete"))
    );
    assert_eq!(done["result"]["content"][0]["text"], "done");
    assert_eq!(world.hub.open_calls(), 0);
    assert_eq!(world.diagnostics, [""; 0]);
}

/// A world with one parked call: the client, the server, the call's id there, and the state.
fn parked(world: &mut World) -> (WireId, WireId, Value, String) {
    let (client, server, call) = world.calling_stateless(all());
    world.send(server, form(json!("a")));
    let (_, required) = world.one_said();
    let state = required["result"]["requestState"]
        .as_str()
        .expect("a state");
    (client, server, call, state.to_owned())
}

#[test]
fn a_state_is_good_for_its_own_call_only() {
    let mut world = world();
    let (client, _, _, state) = parked(&mut world);
    let answers = json!({"q1": {"action": "decline"}});
    let retry = |state: &str| json!({"requestState": state, "inputResponses": answers});
    let other_arguments = {
        let mut more = retry(&state);
        more["arguments"] = json!({"a": 2});
        more
    };
    let mut other_instance = state.clone();
    other_instance.replace_range(9..11, "zz");
    let stranger = world.line();
    for (wire, more) in [
        (client, retry(&format!("{state}-TAMPERED"))),
        (client, retry("made up")),
        (client, retry(&other_instance)),
        (client, other_arguments),
        (stranger, retry(&state)),
    ] {
        world.modern_call(wire, 2, all(), more.clone());
        let (_, refused) = world.one_said();
        assert_eq!(refused["error"]["code"], -32602, "{more}: {refused}");
        let heard = world.take_heard();
        let calls = heard
            .iter()
            .filter(|message| message["method"] == "tools/call");
        assert_eq!(calls.count(), 0, "{more}");
        if more["requestState"] == other_instance {
            let text = refused["error"]["message"].as_str().expect("a message");
            assert!(text.contains("another instance"), "{text}");
        }
    }
    world.modern_call(
        client,
        3,
        all(),
        json!({"requestState": state, "inputResponses": 7}),
    );
    assert_eq!(world.one_said().1["error"]["code"], -32602);
    // After all that it can still be answered.
    world.modern_call(client, 4, all(), retry(&state));
    assert_eq!(world.one_heard()["result"]["action"], "decline");
    // The same once more comes too late.
    world.modern_call(client, 5, all(), retry(&state));
    assert_eq!(world.one_said().1["error"]["code"], -32602);
}

#[test]
fn what_comes_for_a_parked_call_is_kept_for_its_retry() {
    let mut world = world();
    let (client, server, call, state) = parked(&mut world);
    world.send(
        server,
        json!({"method": "notifications/cancelled", "params": {"requestId": "a"}}),
    );
    world.send(server, result(&call, "never mind"));
    assert!(world.take_said().is_empty());
    assert_eq!(world.hub.open_calls(), 1);
    let more = json!({"requestState": state, "inputResponses": {"q1": {"action": "accept"}}});
    world.modern_call(client, 2, all(), more);
    let (_, done) = world.one_said();
    assert_eq!(done["result"]["content"][0]["text"], "never mind");
    assert!(world.take_heard().is_empty());
    assert_eq!(world.hub.open_calls(), 0);
}

#[test]
fn parked_bytes_max() {
    let limits = Limits {
        parked_bytes_max: 64,
        ..Limits::default()
    };
    let mut world = limited(limits);
    let (client, server, call, state) = parked(&mut world);
    world.send(server, result(&call, &"x".repeat(100)));
    world.modern_call(client, 2, all(), json!({"requestState": state}));
    let (_, done) = world.one_said();
    assert_eq!(done["result"]["isError"], true);
    let text = done["result"]["content"][0]["text"].as_str().expect("text");
    assert!(text.contains("parked_bytes_max"), "{text}");
}

#[test]
fn a_parked_call_has_its_time() {
    let mut world = world();
    let (client, _, call, state) = parked(&mut world);
    let limit = u64::try_from(Limits::DEFAULT.request_state_ttl.as_millis()).expect("small");
    world.wait(limit - 1);
    assert!(world.take_heard().is_empty());
    world.wait(1);
    let heard = world.take_heard();
    assert_eq!(heard[0]["id"], "a", "{heard:?}");
    assert!(
        heard[0]["error"]["message"]
            .as_str()
            .expect("text")
            .contains("600000 ms")
    );
    assert_eq!(heard[1]["method"], "notifications/cancelled");
    assert_eq!(heard[1]["params"]["requestId"], call);
    assert_eq!(world.hub.open_calls(), 0);
    world.modern_call(client, 2, all(), json!({"requestState": state}));
    let (_, late) = world.one_said();
    assert_eq!(late["error"]["code"], -32602);
    assert!(
        late["error"]["message"]
            .as_str()
            .expect("text")
            .contains("expired")
    );
}

#[test]
fn parked_calls_max() {
    let limits = Limits {
        parked_calls_max: 1,
        ..Limits::default()
    };
    let mut world = limited(limits);
    parked(&mut world);
    let second = world.line();
    world.modern_call(second, 1, all(), json!({}));
    let server = world.server();
    world.take_heard();
    world.send(server, form(json!("b")));
    let refused = world.one_heard();
    let text = refused["error"]["message"].as_str().expect("text");
    assert!(text.contains("limit 1 (parked_calls_max)"), "{text}");
    assert!(world.take_said().is_empty(), "the call goes on");
    assert_eq!(world.usage("parked_calls_max").0, 1);
}

#[test]
fn a_client_or_a_hub_that_ends_takes_its_parked_calls_with_it() {
    for ends in ["client", "hub"] {
        let mut world = world();
        let (client, _, call, _) = parked(&mut world);
        match ends {
            "client" => world.tell(client, IoEvent::Eof),
            _ => {
                world.hub.shutdown(world.now);
                world.settle();
            }
        }
        let heard = world.take_heard();
        assert_eq!(heard[0]["id"], "a", "{ends}: {heard:?}");
        assert!(heard[0]["error"].is_object());
        assert_eq!(heard[1]["params"]["requestId"], call, "{ends}");
        assert_eq!(world.hub.open_calls(), 0, "{ends}");
    }
}

#[test]
fn a_stateless_client_is_asked_for_what_its_request_declares_only() {
    let mut world = world();
    let (_, server, _) = world.calling_stateless(json!({"roots": {}}));
    world.send(server, form(json!(1)));
    assert_eq!(world.one_heard()["error"]["code"], -32601);
    let told = &world.diagnostics;
    assert!(
        told[0].contains("elicitation/create") && told[0].contains("server s"),
        "{told:?}"
    );
    world.send(server, roots(json!(2)));
    assert_eq!(world.one_said().1["result"]["resultType"], "input_required");
}

#[test]
fn a_question_of_no_known_call_of_a_stateless_client_is_refused() {
    let mut world = world();
    let client = world.line();
    world.modern_call(client, 1, all(), json!({}));
    world.modern_call(client, 2, all(), json!({}));
    let server = world.server();
    let call = world.called();
    for id in [1, 2] {
        world.send(server, roots(json!(id)));
        let refused = world.one_heard();
        let text = refused["error"]["message"].as_str().expect("text");
        assert!(text.contains("which call"), "{text}");
    }
    assert_eq!(world.diagnostics.len(), 1, "{:?}", world.diagnostics);
    // With one open it is known again.
    world.send(server, result(&call, "one"));
    assert_eq!(world.one_said().1["id"], 1);
    world.send(server, roots(json!(3)));
    assert_eq!(world.one_said().1["id"], 2);
}

#[test]
fn rounds_of_a_parked_call_are_bounded() {
    let limits = Limits {
        input_rounds_max: 2,
        input_requests_max: 1,
        ..Limits::default()
    };
    let mut world = limited(limits);
    let (client, server, _, state) = parked(&mut world);
    world.send(server, form(json!("b")));
    assert!(world.take_said().is_empty());
    // The answer to the first brings the second.
    let more = json!({"requestState": state, "inputResponses": {"q1": {"action": "cancel"}}});
    world.modern_call(client, 2, all(), more);
    assert_eq!(world.one_heard()["id"], "a");
    let (_, second) = world.one_said();
    assert!(second["result"]["inputRequests"]["q2"].is_object());
    let more = json!({"requestState": second["result"]["requestState"],
        "inputResponses": {"q2": {"action": "cancel"}}});
    world.modern_call(client, 3, all(), more);
    world.take_heard();
    world.send(server, form(json!("c")));
    let refused = world.one_heard();
    let text = refused["error"]["message"].as_str().expect("text");
    assert!(text.contains("input_rounds_max"), "{text}");
}

#[test]
fn prompts_and_resources_wait_too_and_nothing_else_does() {
    for (method, more) in [
        ("prompts/get", json!({})),
        ("resources/read", json!({"uri": "a:b"})),
    ] {
        let mut world = world();
        let client = world.line();
        world.send(client, modern(1, method, all(), more.clone()));
        let server = world.server();
        let id = world.take_heard().pop().expect("the request")["id"].clone();
        world.send(server, roots(json!(1)));
        let (_, required) = world.one_said();
        assert_eq!(
            required["result"]["resultType"], "input_required",
            "{method}"
        );
        let mut more = more;
        more["requestState"] = required["result"]["requestState"].clone();
        more["inputResponses"] = json!({"q1": {"roots": []}});
        world.send(client, modern(2, method, all(), more));
        assert_eq!(world.one_heard()["result"], json!({"roots": []}));
        world.send(server, json!({"id": id, "result": {"contents": []}}));
        let (_, done) = world.one_said();
        assert_eq!(done["result"]["resultType"], "complete");
        assert_eq!(done["result"]["ttlMs"].is_u64(), method == "resources/read");
    }
    let mut world = world();
    let client = world.line();
    world.send(client, modern(1, "completion/complete", all(), json!({})));
    let server = world.server();
    world.take_heard();
    world.send(server, roots(json!(1)));
    let refused = world.one_heard();
    let text = refused["error"]["message"].as_str().expect("text");
    assert!(text.contains("completion/complete"), "{text}");
    assert!(world.take_said().is_empty());
}

#[test]
fn input_that_a_stateless_server_requires_is_asked_of_an_old_client() {
    let mut world = stateless();
    let client = world.client(all());
    world.call(client, 1);
    let server = world.server();
    let heard = world.take_heard();
    let call = heard.last().expect("the call");
    let told = &call["params"]["_meta"][format!("{META}clientCapabilities")];
    assert_eq!(*told, all(), "what the handshake had declared");
    let page = json!({"mode": "url", "url": "https://x/", "message": "m"});
    let required = json!({"resultType": "input_required", "requestState": "s", "inputRequests": {
        "k": {"method": "elicitation/create", "params": page},
        "r": {"method": "roots/list", "params": {}}}});
    world.send(server, json!({"id": call["id"], "result": required}));
    let said = world.take_said();
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(said[0].1["params"]["url"], "https://x/");
    assert!(
        said[0].1["params"]["elicitationId"].is_string(),
        "that era wants one"
    );
    world.send(
        client,
        json!({"id": said[1].1["id"], "result": {"roots": []}}),
    );
    assert!(world.take_heard().is_empty());
    world.send(
        client,
        json!({"id": said[0].1["id"], "result": {"action": "accept"}}),
    );
    let retry = world.one_heard();
    assert_eq!(retry["method"], "tools/call");
    assert_ne!(retry["id"], call["id"]);
    assert_eq!(retry["params"]["requestState"], "s");
    let answers = json!({"k": {"action": "accept"}, "r": {"roots": []}});
    assert_eq!(retry["params"]["inputResponses"], answers);
    let done = json!({"resultType": "complete", "content": []});
    world.send(server, json!({"id": retry["id"], "result": done}));
    assert_eq!(world.one_said().1["id"], 1);
}

#[test]
fn a_stateless_server_that_needs_what_an_old_client_lacks_fails_the_call() {
    let required = |method: &str, params: Value| {
        json!({"resultType": "input_required",
            "inputRequests": {"k": {"method": method, "params": params}}})
    };
    for (required, code, feature) in [
        (
            required("sampling/createMessage", json!({"messages": []})),
            -32021,
            "sampling",
        ),
        (
            required(
                "elicitation/create",
                json!({"mode": "url", "url": "x:", "message": "m"}),
            ),
            -32021,
            "elicitation.url",
        ),
    ] {
        let mut world = stateless();
        let (_, server, call) = world.calling(json!({"elicitation": {}}));
        world.send(server, json!({"id": call, "result": required}));
        let (_, failed) = world.one_said();
        let error = &failed["error"];
        assert_eq!(error["code"], code, "{failed}");
        let text = error["message"].as_str().expect("text");
        for word in [feature, "server s", "2026-07-28", "2025-11-25"] {
            assert!(text.contains(word), "no {word} in {text}");
        }
        assert!(error["data"]["requiredCapabilities"].is_object());
    }
}

#[test]
fn between_two_of_the_stateless_era_everything_passes_as_it_is() {
    let mut world = stateless();
    let client = world.line();
    world.modern_call(client, 1, json!({"roots": {}}), json!({}));
    let server = world.server();
    let heard = world.take_heard();
    let call = heard.last().expect("the call");
    let told = &call["params"]["_meta"][format!("{META}clientCapabilities")];
    assert_eq!(*told, json!({"roots": {}}));
    let required = json!({"resultType": "input_required", "requestState": "drawspan.0.x",
        "inputRequests": {"k": {"method": "vendor/ask"}}});
    world.send(server, json!({"id": call["id"], "result": required}));
    let (_, said) = world.one_said();
    assert_eq!(said["result"]["inputRequests"], required["inputRequests"]);
    assert_eq!(said["result"]["requestState"], "drawspan.0.x");
    // The state may be of another bridge behind this one.
    let more = json!({"requestState": "drawspan.0.x", "inputResponses": {"k": 1}});
    world.modern_call(client, 2, json!({"roots": {}}), more);
    let retry = world.one_heard();
    assert_eq!(retry["params"]["requestState"], "drawspan.0.x");
    assert_eq!(retry["params"]["inputResponses"], json!({"k": 1}));
}

#[test]
fn roots_that_changed_are_told_to_servers_of_the_client() {
    let mut world = world();
    let (one, two) = (world.client(all()), world.client(all()));
    world.call(one, 1);
    world.call(two, 1);
    let servers = world.servers();
    world.heard.clear();
    world.send(one, json!({"method": "notifications/roots/list_changed"}));
    let heard = world.take_heard_by();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert_eq!(heard[0].0, servers[0]);
    assert_eq!(heard[0].1["method"], "notifications/roots/list_changed");

    let mut world = stateless();
    let client = world.client(all());
    world.call(client, 1);
    world.heard.clear();
    world.send(
        client,
        json!({"method": "notifications/roots/list_changed"}),
    );
    assert!(
        world.take_heard().is_empty(),
        "that era has no such notification"
    );
}

#[test]
fn of_a_shared_server_the_client_of_the_call_is_asked() {
    let mut world = shared();
    let (can, cannot) = (world.client(all()), world.client(json!({})));
    world.call(can, 1);
    let server = world.server();
    let call = world.called();
    world.send(server, roots(json!(1)));
    let (asked, message) = world.one_said();
    assert_eq!(asked, can);
    world.send(can, json!({"id": message["id"], "result": {"roots": []}}));
    assert_eq!(world.one_heard()["result"], json!({"roots": []}));
    world.send(server, result(&call, "one"));
    world.take_said();
    world.call(cannot, 1);
    assert_eq!(world.servers().len(), 1);
    world.called();
    world.send(server, roots(json!(2)));
    assert_eq!(world.one_heard()["error"]["code"], -32601);
    assert!(world.take_said().is_empty());
    assert!(
        world.diagnostics[0].contains("roots/list"),
        "{:?}",
        world.diagnostics
    );
    // Two are open: it cannot be known.
    world.call(can, 2);
    world.take_heard();
    world.send(server, roots(json!(3)));
    assert_eq!(world.one_heard()["error"]["code"], -32603);
    assert!(world.take_said().is_empty());
}

#[test]
fn progress_of_a_client_with_an_answer_reaches_the_server_that_asked() {
    let mut world = world();
    let (client, server, _) = world.calling(all());
    let params = json!({"messages": [], "_meta": {"progressToken": "t"}});
    world.send(server, question(json!(1), "sampling/createMessage", params));
    world.one_said();
    for (token, heard) in [("other", 0), ("t", 1)] {
        let params = json!({"progressToken": token, "progress": 1});
        world.send(
            client,
            json!({"method": "notifications/progress", "params": params}),
        );
        assert_eq!(world.take_heard().len(), heard, "{token}");
    }
}

#[test]
fn an_elicitation_that_is_complete_is_told_to_its_client() {
    let mut world = world();
    let client = world.client(all());
    world.call(client, 1);
    let server = world.server();
    let params = json!({"elicitationId": "e", "n": 1.0});
    let complete = "notifications/elicitation/complete";
    world.send(server, json!({"method": complete, "params": params}));
    let (told, message) = world.one_said();
    assert_eq!(
        (told, &message["method"], &message["params"]),
        (client, &json!(complete), &params)
    );
}

/// The first message on a stream, or in an answer, that has this.
#[track_caller]
fn message_with(text: &str, what: &str) -> Value {
    let mut lines = text.lines().map(|line| line.trim_start_matches("data: "));
    let line = lines.find(|line| line.starts_with('{') && line.contains(what));
    let line = line.unwrap_or_else(|| panic!("no {what} in {text}"));
    serde_json::from_str(line).expect("JSON")
}

const STATELESS: &str =
    "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: t\r\n";

#[test]
fn over_http_a_question_is_put_on_the_stream_of_its_call() {
    let mut world = world();
    let one = world.session_of(all());
    let call = |id: u64| json!({"id": id, "method": "tools/call", "params": {"name": "t"}});
    let first = world.post_alone(&one, call(1));
    let server = world.server();
    let two = world.session_of(all());
    let second = world.post_alone(&two, call(1));
    world.take_heard();
    world.send(server, form(json!("a")));
    let asked = message_with(&world.take(first), "elicitation/create");
    assert_eq!(world.take(second), "", "the other session hears nothing");
    let answer = json!({"id": asked["id"], "result": {"action": "accept"}});
    // Nobody of another session can answer it.
    world.post_alone(&two, answer.clone());
    assert!(world.take_heard().is_empty());
    world.post_alone(&one, answer);
    let heard = world.one_heard();
    assert_eq!(
        (&heard["id"], &heard["result"]["action"]),
        (&json!("a"), &json!("accept"))
    );

    // Which call it is for is not known: asked on the session's stream where there is one, else on any.
    world.post_alone(&one, call(2));
    world.take_heard();
    world.send(server, roots(json!(2)));
    message_with(&world.take(first), "roots/list");
    let stream = world.connect();
    world.http(stream, "GET", &one, "");
    world.send(server, roots(json!(3)));
    message_with(&world.take(stream), "roots/list");
    assert_eq!(world.take(first), "");

    // The end of the session is the end of its questions.
    let wire = world.connect();
    world.http(wire, "DELETE", &one, "");
    let heard = world.take_heard();
    for id in [2, 3] {
        let refused = heard.iter().find(|message| message["id"] == id);
        assert!(
            refused.expect("an answer")["error"].is_object(),
            "{heard:?}"
        );
    }
}

/// A parked call over HTTP: its connection, the server, the call's id there, and what a retry has more.
fn parked_over_http(world: &mut World) -> (WireId, WireId, Value, Value) {
    let first = world.post_alone(STATELESS, modern(1, "tools/call", all(), json!({})));
    let (server, call) = (world.server(), world.called());
    world.send(server, form(json!("a")));
    let required = message_with(&world.take(first), "input_required");
    let more = json!({"requestState": required["result"]["requestState"],
        "inputResponses": {"q1": {"action": "accept"}}});
    (first, server, call, more)
}

#[test]
fn over_http_a_call_is_parked_and_found_again_on_another_connection() {
    let mut world = world();
    let (first, server, call, more) = parked_over_http(&mut world);
    world.tell(first, IoEvent::Eof);
    world.tell(first, IoEvent::WriteClosed);
    assert!(world.take_heard().is_empty(), "it waits for its client");
    let retry = world.post_alone(STATELESS, modern(2, "tools/call", all(), more.clone()));
    assert_eq!(world.one_heard()["result"]["action"], "accept");
    world.send(server, result(&call, "done"));
    let done = message_with(&world.take(retry), "done");
    assert_eq!(done["id"], 2);
    assert_eq!(world.hub.open_calls(), 0);
}

#[test]
fn a_stateless_client_that_hangs_up_on_its_retry_cancels_the_call() {
    let mut world = world();
    let (_, _, call, more) = parked_over_http(&mut world);
    let retry = world.post_alone(STATELESS, modern(2, "tools/call", all(), more));
    world.take_heard();
    world.tell(retry, IoEvent::WriteClosed);
    let heard = world.one_heard();
    assert_eq!(heard["method"], "notifications/cancelled");
    assert_eq!(heard["params"]["requestId"], call);
    assert_eq!(world.hub.open_calls(), 0);
}
