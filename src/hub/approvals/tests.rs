//! Held calls in a hub with local tools, on a socket, on stdin and over HTTP.

use super::*;
use crate::gate::{Action, RuleSpec, RulesSpec, Verdict};
use crate::hub::rig::{INITIALIZE, World};
use crate::hub::{HubConfig, HubEvent, HubPolicy, LocalConfig};
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::{Driven, IoEvent};
use crate::local::{LocalReply, Registry, Tool};

const HOLD: Action = Action::Hold {
    title: None,
    description: None,
    timeout: None,
};

/// A hub with the tool `work`, whose calls from other users than 7 are held.
fn world(policy: HubPolicy) -> World {
    let mut registry = Registry::new();
    let tool = Tool::new("work", "Works", r#"{"type":"object"}"#);
    registry.add_tool(tool).expect("a good tool");
    let mut world = World::new(HubConfig {
        local: Some(LocalConfig {
            registry,
            state_key: [1; 32],
        }),
        policy,
        ..HubConfig::default()
    });
    let free = RuleSpec {
        principals: vec!["unix:7".to_owned()],
        ..RuleSpec::default()
    };
    let held = RuleSpec {
        action: HOLD,
        ..RuleSpec::default()
    };
    let spec = RulesSpec {
        rules: vec![free, held],
        ..RulesSpec::default()
    };
    let rules = Rules::compile(spec, &Limits::DEFAULT).expect("good rules");
    world.hub.set_rules(rules).expect("no hook in them");
    world
}

impl World {
    /// A request, and what was answered at once.
    fn request(&mut self, wire: WireId, id: u32, method: &str, params: &str) -> String {
        let line =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        self.say(wire, &line);
        self.take(wire)
    }

    fn work(&mut self, wire: WireId) -> String {
        self.request(
            wire,
            1,
            "tools/call",
            r#"{"name":"work","arguments":{"n":1.0}}"#,
        )
    }

    fn list(&mut self, wire: WireId) -> String {
        self.request(wire, 2, APPROVALS_LIST_METHOD, "{}")
    }

    fn resolve(&mut self, wire: WireId, id: &str, decision: &str) -> String {
        let params = format!(r#"{{"id":"{id}","decision":"{decision}","reason":"r"}}"#);
        self.request(wire, 3, APPROVALS_RESOLVE_METHOD, &params)
    }

    fn held(&self) -> Option<String> {
        self.hub.held_calls().next().map(|held| held.id.clone())
    }

    /// The call that reached the tool, which answers it.
    fn works(&mut self) -> bool {
        let at = |event: &HubEvent| matches!(event, HubEvent::Local(_));
        let Some(at) = self.events.iter().position(at) else {
            return false;
        };
        if let HubEvent::Local(request) = self.events.remove(at) {
            let reply = LocalReply::text("done");
            self.hub.resolve_local(self.now, request.call, reply);
            self.settle();
        }
        true
    }
}

#[test]
fn who_is_on_the_socket_answers_for_others_and_not_for_itself() {
    let mut world = world(HubPolicy::Open);
    let (caller, other) = (world.user(1), world.user(1));
    assert_eq!(world.work(caller), "");
    let id = world.held().expect("held");
    let list = world.list(other);
    let row = format!(
        r#"{{"approvals":[{{"id":"{id}","title":"work of local","description":"","tool":"work","server":"local","caller":"","principal":"unix:1","arguments":{{"n":1.0}},"rule":1,"createdAtMs":5000,"expiresAtMs":125000,"expiresInMs":120000}}]}}"#
    );
    assert!(list.contains(&row), "{list}\n{row}");
    let own = world.resolve(caller, &id, "allow-once");
    assert!(own.contains("cannot answer for its own calls"), "{own}");
    for (wrong, words) in [
        (
            world.resolve(other, "hold-1", "allow-once"),
            "unknown or expired",
        ),
        (world.resolve(other, &id, "yes"), "found yes"),
        (
            world.request(other, 3, APPROVALS_RESOLVE_METHOD, "{}"),
            "missing field",
        ),
    ] {
        assert!(wrong.contains("-32602") && wrong.contains(words), "{wrong}");
    }
    assert!(!world.works());
    let done = world.resolve(other, &id, "allow-once");
    let result = format!(r#""result":{{"id":"{id}","decision":"allow-once"}}"#);
    assert!(done.contains(&result), "{done}");
    assert!(world.works());
    assert!(world.take(caller).contains("done"));
    assert!(world.list(other).contains(r#"{"approvals":[]}"#));
    assert!(
        world
            .resolve(other, &id, "deny")
            .contains("unknown or expired")
    );
}

#[test]
fn a_no_is_told_to_the_caller_and_a_user_may_be_spared() {
    let mut world = world(HubPolicy::Open);
    let (caller, other) = (world.user(1), world.user(7));
    world.work(caller);
    let id = world.held().expect("held");
    world.resolve(other, &id, "deny");
    let told = world.take(caller);
    let words = "tool call refused: denied by unix:7: r";
    assert!(
        told.contains(words) && told.contains("\"isError\":true"),
        "{told}"
    );
    world.work(other);
    assert!(world.works(), "the rule lets this user pass");
}

#[test]
fn elsewhere_the_methods_do_not_exist() {
    let mut world = world(HubPolicy::Open);
    let wire = world.hub.next_wire;
    world.hub.serve_stdio(world.now);
    for method in [APPROVALS_LIST_METHOD, APPROVALS_RESOLVE_METHOD] {
        let answer = world.request(wire, 1, method, "{}");
        assert!(answer.contains("-32601"), "{answer}");
    }
    world.work(wire);
    let held = world.hub.held_calls().next().expect("held");
    assert_eq!(&*held.principal, "stdio");
}

#[test]
fn nothing_is_left_of_a_call_whose_time_or_caller_is_gone() {
    let endings: [fn(&mut World, WireId); 4] = [
        |world, _| {
            world.now.up = world.now.after(std::time::Duration::from_secs(120));
            world.hub.handle_timeout(world.now);
        },
        |world, wire| {
            let cancel =
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
            world.say(wire, cancel);
        },
        |world, wire| world.tell(wire, IoEvent::WriteClosed),
        |world, _| world.hub.shutdown(world.now),
    ];
    for (i, end) in endings.into_iter().enumerate() {
        let mut world = world(HubPolicy::Open);
        let (caller, other) = (world.user(1), world.user(1));
        world.work(caller);
        let id = world.held().expect("held");
        end(&mut world, caller);
        assert_eq!(world.held(), None, "{i}");
        assert_eq!(world.hub.open_calls(), 0, "{i}");
        if i < 3 {
            let late = world.resolve(other, &id, "allow-once");
            assert!(late.contains("unknown or expired"), "{i}: {late}");
        }
        assert!(!world.works(), "{i}");
        if i == 0 {
            let told = world.take(caller);
            assert!(
                told.contains("nobody approved it within 120000 ms"),
                "{told}"
            );
        }
    }
}

#[test]
fn allow_always_lasts_for_the_same_caller() {
    let mut world = world(HubPolicy::Open);
    let (caller, other) = (world.user(1), world.user(1));
    world.work(caller);
    let id = world.held().expect("held");
    world.resolve(other, &id, "allow-always");
    assert!(world.works());
    world.work(caller);
    assert!(world.works(), "not held again");
    let stranger = world.user(2);
    world.work(stranger);
    assert!(!world.works() && world.held().is_some());
}

#[test]
fn an_embedding_program_sees_and_answers_what_is_held() {
    let mut world = world(HubPolicy::Embedder);
    let caller = world.user(1);
    for way in 0..2 {
        world.work(caller);
        let held = world.hub.held_calls().next().expect("held").clone();
        let asked = world.events.pop();
        let Some(HubEvent::GateAsked { call, title, .. }) = asked else {
            panic!("not asked: {asked:?}")
        };
        assert_eq!((call, &*title), (held.call, "work of local"));
        let now = world.now;
        if way == 0 {
            let allow = Verdict::Allow { arguments: None };
            world.hub.resolve_gate(now, call, allow);
        } else {
            let answered = world
                .hub
                .answer_hold(now, &held.id, Answer::AllowOnce, "Ada", None);
            assert_eq!(answered, Ok(()));
        }
        world.settle();
        assert!(world.works() && world.events.is_empty(), "asked once");
    }
    let gone = world
        .hub
        .answer_hold(world.now, "hold-1", Answer::Deny, "Ada", None);
    assert_eq!(gone, Err(NotHeld));
}

#[test]
fn over_http_whoever_shows_the_same_credentials_is_the_same() {
    let mut world = world(HubPolicy::Open);
    let mut send = |headers: &str, body: &str| {
        let wire = world.connect();
        world.http(wire, "POST", headers, body);
    };
    // A session of its own, and then a stateless call.
    send("", INITIALIZE);
    send(
        "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: work\r\n",
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"}}}}"#,
    );
    let peers = world.hub.all_peers();
    assert!(peers.len() >= 2, "{peers:?}");
    let Some(held) = world.hub.held_calls().next().cloned() else {
        panic!("not held")
    };
    assert_eq!(&*held.principal, "http");
    for peer in peers {
        let outcome =
            world
                .hub
                .answer_by_client(world.now, peer, &held.id, Answer::AllowOnce, None);
        assert_eq!(outcome, Err(Unanswered::Own), "{peer:?}");
    }
    let on_socket = world.user(1);
    let answer = world.resolve(on_socket, &held.id, "allow-once");
    assert!(answer.contains("allow-once") && world.works(), "{answer}");
}

/// The words of progress in what a client got: value and message.
fn progress(text: &str) -> Vec<(f64, String)> {
    let lines = text.lines().map(|line| line.trim_start_matches("data: "));
    let lines = lines.filter(|line| line.contains("notifications/progress"));
    let read = lines.map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let params = &message["params"];
        assert_eq!(params["progressToken"], "p", "{line}");
        let value = params["progress"].as_f64().expect("a number");
        let text = params["message"].as_str().unwrap_or_default();
        (value, text.to_owned())
    });
    read.collect()
}

#[test]
fn who_waits_for_a_person_hears_so_until_the_answer() {
    let mut world = world(HubPolicy::Open);
    let caller = world.user(1000);
    world.say(caller, INITIALIZE);
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","_meta":{"progressToken":"p"}}}"#;
    world.say(caller, call);
    let mut told = progress(&world.take(caller));
    assert_eq!(told.len(), 1, "at once");
    world.wait(14_999);
    assert_eq!(progress(&world.take(caller)).len(), 0);
    world.wait(1);
    told.extend(progress(&world.take(caller)));
    world.wait(45_000);
    told.extend(progress(&world.take(caller)));
    assert_eq!(told.len(), 5);
    for (value, text) in &told {
        assert!(*value > 0.0 && *value < 0.001, "{value}");
        assert!(text.starts_with("waiting for approval: "), "{text}");
    }
    let id = world.held().expect("it waits");
    let by = world
        .hub
        .answer_hold(world.now, &id, Answer::AllowOnce, "Ada", None);
    assert_eq!(by, Ok(()));
    // What the tool says of its progress rises above that, a beginning of nothing as well.
    let calls = world.calls();
    for (value, text) in [(0, "begins"), (1, "goes on")] {
        let now = world.now;
        world.hub.with_local(now, |local| {
            local.progress(now, calls[0], value, Some(2), text);
        });
    }
    told.extend(progress(&world.take(caller)));
    let rises = told.windows(2).all(|pair| pair[0].0 < pair[1].0);
    assert!(rises, "{told:?}");
    let texts: Vec<&str> = told[5..].iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["begins", "goes on"]);
    world.wait(60_000);
    assert_eq!(progress(&world.take(caller)).len(), 0, "it waits no more");
}

#[test]
fn a_stateless_client_hears_it_on_the_stream_of_its_call() {
    let mut world = world(HubPolicy::Open);
    let caller = world.connect();
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{},"_meta":{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
    let headers =
        "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: work\r\n";
    world.http(caller, "POST", headers, call);
    assert_eq!(progress(&world.take(caller)).len(), 1);
    world.wait(15_000);
    assert_eq!(progress(&world.take(caller)).len(), 1);
    // One that asked for none is told nothing.
    let silent = world.connect();
    let call = call.replace(r#""progressToken":"p","#, "");
    world.http(silent, "POST", headers, &call);
    world.wait(30_000);
    assert_eq!(progress(&world.take(silent)).len(), 0);
    // The end of a wait without an answer is the end of these words.
    let mut rest = String::new();
    for _ in 0..8 {
        world.wait(10_000);
        rest.push_str(&world.take(caller));
    }
    assert!(rest.contains("nobody approved it within"), "{rest}");
    let words = progress(&rest).len();
    assert!((4..=6).contains(&words), "{words} in {rest}");
}
