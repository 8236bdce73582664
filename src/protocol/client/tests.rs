//! Conversations with our own server side, in memory, and with a server that says anything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::peer::*;
use super::*;
use crate::clock::{Now, Uptime};
use crate::codec::scan::{ScanLimits, Scanned, scan};
use crate::entropy::Seeded;
use crate::ids::QuestionId;
use crate::limits::Limits;
use crate::protocol::message::member;
use crate::protocol::server::{
    Answer, Changing, List, Scope, ServerConfig, ServerEvent, ServerPeer, ServerRequest, Whose,
};
use crate::protocol::topic::Topic;
use crate::protocol::{Lane, MessageSink};

fn config(choice: EraChoice, carrier: Carrier) -> PeerConfig {
    PeerConfig {
        identity: r#"{"name":"c","version":"0"}"#.to_owned(),
        capabilities: r#"{"elicitation":{},"roots":{}}"#.to_owned(),
        choice,
        known: None,
        carrier,
        discover_timeout: Duration::from_secs(5),
        connect_timeout: Duration::from_secs(30),
        first_own_id: UpstreamRequestId(1 << 30),
        limits: Limits::default(),
    }
}

fn spec<'a>(method: &'a str, params: &'a str) -> RequestSpec<'a> {
    RequestSpec {
        method: method.to_owned().into(),
        params: Some(params),
        opaque: None,
        timeout: Duration::from_secs(60),
        total: None,
        wants_progress: false,
        headers: Vec::new(),
        raw_questions: false,
        capabilities: None,
    }
}

#[derive(Default)]
struct Lines {
    buffer: Vec<u8>,
    lines: VecDeque<Vec<u8>>,
}

impl MessageSink for Lines {
    fn begin(&mut self, _: Lane) -> &mut Vec<u8> {
        self.buffer.clear();
        &mut self.buffer
    }

    fn commit(&mut self) {
        self.lines.push_back(self.buffer.clone());
    }

    fn rollback(&mut self) {}
}

/// Both sides of one conversation.
struct Pair {
    client: ClientPeer,
    server: ServerPeer,
    sink: Lines,
    now: Now,
    told: VecDeque<PeerOutput>,
}

impl Pair {
    fn new(choice: EraChoice) -> Self {
        let lists = r#"{"tools":{"listChanged":true},"resources":{"subscribe":true}}"#;
        let server = ServerConfig {
            server_info: r#"{"name":"s","version":"1"}"#.to_owned(),
            capabilities: lists.to_owned(),
            modern_capabilities: lists.to_owned(),
            instructions: Some(r#""be \"kind\"""#.to_owned()),
            changing: Changing {
                tools: true,
                ..Changing::default()
            },
            resource_updates: true,
            task_updates: false,
            relays_log_level: false,
            awaits_introduction: false,
            relays_subscriptions: false,
            cache_ttl_ms: 1_000,
            limits: Limits::default(),
        };
        let now = Now::default();
        let mut pair = Self {
            client: ClientPeer::new(config(choice, Carrier::Lines), now),
            server: ServerPeer::new(Arc::new(server)),
            sink: Lines::default(),
            now,
            told: VecDeque::new(),
        };
        pair.client.handle_up(now);
        pair.run();
        pair
    }

    /// Lets messages cross until there are none.
    fn run(&mut self) {
        loop {
            let mut idle = true;
            while let Some(output) = self.client.poll() {
                idle = false;
                if let PeerOutput::Send(Outgoing { body, .. }) = &output {
                    self.server.handle_message(Scope(0), body, &mut self.sink);
                } else {
                    self.told.push_back(output);
                }
            }
            while let Some(line) = self.sink.lines.pop_front() {
                idle = false;
                self.client.handle_message(self.now, &line, None);
            }
            if idle {
                return;
            }
        }
    }

    fn next(&mut self) -> PeerOutput {
        self.run();
        self.told.pop_front().expect("something was told")
    }

    fn asked(&mut self) -> ServerRequest {
        self.run();
        match self.server.poll_event() {
            Some(ServerEvent::Request(request)) => request,
            other => panic!("a request, not {other:?}"),
        }
    }

    fn request(&mut self, id: u64, spec: RequestSpec<'_>) -> ServerRequest {
        self.client.request(self.now, UpstreamRequestId(id), spec);
        self.asked()
    }

    fn response(&mut self, id: u64) -> String {
        let told = self.next();
        let PeerOutput::Response { id: got, outcome } = told else {
            panic!("the result of {id}, not {told:?}");
        };
        assert_eq!(got.0, id);
        outcome.expect("a result").to_string()
    }
}

#[test]
fn both_our_sides_understand_each_other_in_every_revision() {
    for revision in Revision::NEWEST_FIRST {
        let mut pair = Pair::new(EraChoice::Only(revision));
        assert_eq!(pair.next(), PeerOutput::Ready, "{revision}");
        let facts = pair.client.facts().expect("ready").clone();
        assert_eq!(facts.revision, revision);
        assert_eq!(facts.instructions.as_deref(), Some(r#""be \"kind\"""#));
        assert!(facts.server_info.is_some_and(|info| info.contains("\"s\"")));
        lists(&mut pair);
        calls_with_progress(&mut pair);
        cancels(&mut pair);
        if revision.server_may_ask() {
            questions_by_request(&mut pair);
        } else {
            questions_by_result(&mut pair);
        }
        changes(&mut pair, revision);
        assert_eq!(pair.client.open_requests(), 0);
        assert_eq!(pair.server.tally(), Default::default(), "{revision}");
        assert!(pair.told.is_empty(), "{revision}: {:?}", pair.told);
    }
}

fn lists(pair: &mut Pair) {
    let asked = pair.request(1, spec("tools/list", "{}"));
    let result = r#"{"tools":[]}"#;
    pair.server
        .respond(asked.key, Answer::List(result), &mut pair.sink);
    let got = pair.response(1);
    assert_eq!(member(&got, "tools"), Some("[]"));
}

fn calls_with_progress(pair: &mut Pair) {
    let params = r#"{"name":"x","_meta":{"progressToken":"mine"},"arguments":{"n":1.0}}"#;
    let asked = pair.request(2, spec("tools/call", params));
    assert!(asked.wants_progress);
    let seen = asked.params.expect("params");
    assert_eq!(member(&seen, "arguments"), Some(r#"{"n":1.0}"#));
    pair.server
        .progress(asked.key, 1, Some(2), "half", &mut pair.sink);
    let told = pair.next();
    let PeerOutput::Progress { id, params } = told else {
        panic!("progress, not {told:?}");
    };
    assert_eq!(id.0, 2);
    assert_eq!(member(&params, "progressToken"), Some("\"mine\""));
    pair.server
        .respond(asked.key, Answer::Result("{}"), &mut pair.sink);
    pair.response(2);
}

fn cancels(pair: &mut Pair) {
    let asked = pair.request(3, spec("tools/call", r#"{"name":"x"}"#));
    pair.client
        .cancel(pair.now, UpstreamRequestId(3), "no longer");
    let gone = pair.next();
    assert!(matches!(
        gone,
        PeerOutput::Response {
            id: UpstreamRequestId(3),
            outcome: Err(CallFault::Cancelled)
        }
    ));
    let event = pair.server.poll_event();
    assert!(matches!(event, Some(ServerEvent::Cancelled(key)) if key == asked.key));
}

fn question(pair: &mut Pair) -> QuestionId {
    let told = pair.next();
    let PeerOutput::Question {
        id, method, params, ..
    } = told
    else {
        panic!("a question, not {told:?}");
    };
    assert_eq!(&*method, "elicitation/create");
    assert_eq!(params.as_deref(), Some(r#"{"message":"?"}"#));
    id
}

fn questions_by_request(pair: &mut Pair) {
    let asked = pair.request(4, spec("tools/call", r#"{"name":"x"}"#));
    let params = r#"{"message":"?"}"#;
    let method = "elicitation/create";
    let ask = pair
        .server
        .ask(
            Whose::Request(asked.key),
            method,
            Some(params),
            &mut pair.sink,
        )
        .expect("a revision with questions");
    let id = question(pair);
    let answer = r#"{"action":"accept"}"#;
    pair.client.answer(pair.now, id, Ok(answer));
    pair.run();
    match pair.server.poll_event() {
        Some(ServerEvent::Answered {
            ask: of,
            outcome: Ok(result),
        }) => assert_eq!((of, &*result), (ask, answer)),
        other => panic!("an answer, not {other:?}"),
    }
    pair.server
        .respond(asked.key, Answer::Result("{}"), &mut pair.sink);
    pair.response(4);
}

fn questions_by_result(pair: &mut Pair) {
    let asked = pair.request(4, spec("tools/call", r#"{"name":"x"}"#));
    let wanted = r#"{"inputRequests":{"k":{"method":"elicitation/create","params":{"message":"?"}}},"requestState":"\u0041"}"#;
    pair.server.respond(
        asked.key,
        Answer::Typed("input_required", wanted),
        &mut pair.sink,
    );
    let id = question(pair);
    pair.client
        .answer(pair.now, id, Ok(r#"{"action":"accept"}"#));
    let again = pair.asked();
    let params = again.params.expect("params");
    assert_eq!(
        member(&params, "inputResponses"),
        Some(r#"{"k":{"action":"accept"}}"#)
    );
    assert_eq!(member(&params, "requestState"), Some(r#""\u0041""#));
    assert_eq!(member(&params, "name"), Some("\"x\""));
    pair.server
        .respond(again.key, Answer::Result("{}"), &mut pair.sink);
    pair.response(4);
}

fn resource(uri: &str) -> Topic {
    Topic::Resource(uri.to_owned())
}

fn changes(pair: &mut Pair, revision: Revision) {
    pair.server.list_changed(List::Tools, &mut pair.sink);
    assert_eq!(pair.next(), PeerOutput::ListChanged(ListKind::Tools));
    for wanted in [&["u", "v"][..], &["v"]] {
        let uris: BTreeSet<Topic> = wanted.iter().map(|uri| resource(uri)).collect();
        assert_eq!(pair.client.set_subscriptions(pair.now, &uris), Ok(()));
        pair.run();
        // Each is told of once, when it is new.
        for uri in wanted.iter().filter(|_| wanted.len() == 2) {
            let (topic, outcome) = (resource(uri), Ok(()));
            assert_eq!(pair.next(), PeerOutput::Subscribed { topic, outcome });
        }
        for uri in ["u", "v"] {
            pair.server.resource_updated(uri, &mut pair.sink);
            if wanted.contains(&uri) {
                let told = pair.next();
                let updated = matches!(&told, PeerOutput::Notification { params: Some(params), .. }
                    if member(params, "uri") == Some(&*format!("\"{uri}\"")));
                assert!(updated, "{revision}: {told:?}");
            }
        }
        pair.run();
        assert!(pair.told.is_empty(), "{revision}: {:?}", pair.told);
    }
    let streams = pair.server.listening().count();
    assert_eq!(streams, usize::from(revision.has_listen_streams()));
    // Streams that were replaced have been cancelled.
    while pair.server.poll_event().is_some() {}
    pair.server.end_subscriptions(&mut pair.sink);
    pair.run();
    if let Some(PeerOutput::Noise { why, .. }) = pair.told.pop_front() {
        assert!(why.contains("next try"), "{why}");
    }
    let due = pair.client.next_deadline();
    assert_eq!(due.is_some(), revision.has_listen_streams());
    if let Some(due) = due {
        pair.now.up = due.at;
        pair.client.handle_timeout(pair.now);
        // What was missed in between is told of: the lists, and each resource by a new subscription.
        assert_eq!(pair.next(), PeerOutput::ListChanged(ListKind::Tools));
        let (topic, outcome) = (resource("v"), Ok(()));
        assert_eq!(pair.next(), PeerOutput::Subscribed { topic, outcome });
    }
}

#[test]
fn left_to_themselves_both_our_sides_choose_the_newest_revision() {
    for (choice, revision) in [
        (EraChoice::Auto, Revision::V2026_07_28),
        (EraChoice::Modern, Revision::V2026_07_28),
        (EraChoice::Legacy, Revision::V2025_11_25),
    ] {
        let mut pair = Pair::new(choice);
        assert_eq!(pair.next(), PeerOutput::Ready);
        let facts = pair.client.facts().expect("ready");
        assert_eq!(facts.revision, revision);
    }
}

#[test]
fn ids_of_its_own_run_out_in_peace() {
    let mut config = config(EraChoice::Auto, Carrier::Lines);
    config.first_own_id = UpstreamRequestId(u64::MAX);
    let now = Now::default();
    let mut peer = ClientPeer::new(config, now);
    peer.handle_up(now);
    assert!(
        matches!(peer.poll(), Some(PeerOutput::Send(_))),
        "the last one"
    );
    let unknown =
        br#"{"jsonrpc":"2.0","id":18446744073709551615,"error":{"code":-32601,"message":""}}"#;
    peer.handle_message(now, unknown, None);
    match peer.poll() {
        Some(PeerOutput::Failed(ConnectFault::Violation(why))) => {
            assert!(why.contains("out of request ids"), "{why}");
        }
        other => panic!("a failure, not {other:?}"),
    }
}

#[test]
fn subscriptions_beyond_the_limit_change_nothing() {
    let mut config = config(EraChoice::Legacy, Carrier::Lines);
    config.limits.resource_subscriptions_max = 1;
    let now = Now::default();
    let mut peer = ClientPeer::new(config, now);
    let two = ["a", "b"].map(resource).into();
    let busy = CallFault::Busy { value: 2, limit: 1 };
    assert_eq!(peer.set_subscriptions(now, &two), Err(busy));
}

/// A server that says anything, an owner that does anything, and what must hold all the same.
struct Chaos {
    peer: ClientPeer,
    seed: Seeded,
    now: Now,
    http: bool,
    /// Ids of requests on the wire, ever.
    wire: BTreeSet<UpstreamRequestId>,
    /// Requests of the owner, and how often they were answered.
    requests: BTreeMap<UpstreamRequestId, usize>,
    questions: BTreeSet<QuestionId>,
    openings: usize,
    /// How often each kind of thing happened.
    seen: BTreeMap<String, usize>,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let mut seed = Seeded::new(seed);
        let carriers = [
            Carrier::Lines,
            Carrier::Lines,
            Carrier::Http,
            Carrier::Http,
            Carrier::Sse,
        ];
        let carrier = carriers[pick(&mut seed, carriers.len())];
        let choices = [
            EraChoice::Auto,
            EraChoice::Auto,
            EraChoice::Legacy,
            EraChoice::Modern,
            EraChoice::Only(Revision::V2025_03_26),
        ];
        let choice = choices[pick(&mut seed, choices.len())];
        let mut config = config(choice, carrier);
        config.limits.upstream_requests_open_max = 8;
        config.limits.upstream_questions_open_max = 4;
        config.limits.input_requests_max = 3;
        config.limits.input_rounds_max = 3;
        Self {
            peer: ClientPeer::new(config, Now::default()),
            seed,
            now: Now::default(),
            http: carrier == Carrier::Http,
            wire: BTreeSet::new(),
            requests: BTreeMap::new(),
            questions: BTreeSet::new(),
            openings: 0,
            seen: BTreeMap::new(),
        }
    }

    /// Most conversations begin well, or there would be little to see.
    fn begin(&mut self) {
        self.peer.handle_up(self.now);
        self.check();
        let lists = r#"{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true}}"#;
        for stateless in [self.pick(2) == 0, false] {
            if self.openings > 0 || self.pick(4) == 0 {
                return;
            }
            let id = self.wire.last().map_or(0, |id| id.0);
            let probed =
                self.seen.contains_key("server/discover") && !self.seen.contains_key("initialize");
            let answer = match (probed, stateless) {
                (true, true) => format!(
                    r#""result":{{"supportedVersions":["2026-07-28"],"capabilities":{lists}}}"#
                ),
                (true, false) => r#""error":{"code":-32601,"message":"m"}"#.to_owned(),
                (false, _) => {
                    format!(r#""result":{{"protocolVersion":"2025-03-26","capabilities":{lists}}}"#)
                }
            };
            let message = format!(r#"{{"jsonrpc":"2.0","id":{id},{answer}}}"#);
            self.peer.handle_message(self.now, message.as_bytes(), None);
            self.check();
        }
    }

    fn saw(&mut self, what: &str) {
        *self.seen.entry(what.to_owned()).or_default() += 1;
    }

    fn pick(&mut self, below: usize) -> usize {
        pick(&mut self.seed, below)
    }

    /// An id that was on the wire, most of the time one of the last.
    fn some_id(&mut self) -> UpstreamRequestId {
        let back = 1 + self.pick(4);
        let id = self.wire.iter().rev().nth(back - 1).copied();
        id.unwrap_or(UpstreamRequestId(self.pick(5) as u64))
    }

    /// The last that was sent, one that waits for an answer, or another one.
    fn likely_id(&mut self) -> UpstreamRequestId {
        let last = self.wire.last().copied();
        let open = self.requests.iter().find(|(_, answers)| **answers == 0);
        let open = open.map(|(id, _)| *id);
        match self.pick(4) {
            0 => self.some_id(),
            1 => last.unwrap_or_default(),
            _ => open.or(last).unwrap_or_default(),
        }
    }

    fn message(&mut self) -> String {
        let id = self.likely_id();
        let results = [
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true}}}"#,
            r#"{"protocolVersion":"2025-03-26","capabilities":{}}"#,
            r#"{"protocolVersion":"2026-07-28"}"#,
            r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}}}"#,
            r#"{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}}}"#,
            r#"{"supportedVersions":["2025-06-18",7]}"#,
            r#"{"resultType":"input_required","requestState":"\"s"}"#,
            r#"{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"},"b":{"method":"elicitation/create","params":{}}}}"#,
            r#"{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}}}"#,
            r#"{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}}}"#,
            r#"{"resultType":"input_required","inputRequests":7}"#,
            r#"{"resultType":7}"#,
            "{}",
            "7",
            "null",
        ];
        let errors = [
            r#"{"code":-32601,"message":"m"}"#,
            r#"{"code":-32022,"message":"m","data":{"supported":["2026-07-28","2025-06-18"]}}"#,
            r#"{"code":-32022,"data":{"supported":["2024-11-05"]}}"#,
            r#"{"code":-32021,"message":7}"#,
            r#"{"code":1e999,"data":[1e999]}"#,
            "{}",
        ];
        let methods = [
            "ping",
            "roots/list",
            "elicitation/create",
            "sampling/createMessage",
            "x",
            "\\u0070ing",
        ];
        let notes = [
            "notifications/progress",
            "notifications/cancelled",
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
            "notifications/resources/updated",
            "notifications/message",
        ];
        let params = [
            format!(r#"{{"progressToken":{id},"progress":1}}"#),
            format!(r#"{{"requestId":{id}}}"#),
            format!(
                r#"{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}},"notifications":{{"toolsListChanged":true}}}}"#
            ),
            "{}".to_owned(),
            r#"{"progressToken":{},"requestId":[],"_meta":7}"#.to_owned(),
        ];
        let id = match self.pick(12) {
            0 => format!("\"{id}\""),
            1 => format!("{id}.0"),
            2 => "null".to_owned(),
            3 => "\"other\"".to_owned(),
            _ => id.to_string(),
        };
        match self.pick(8) {
            0..=2 => {
                let result = results[self.pick(results.len())];
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
            }
            3 => {
                let error = errors[self.pick(errors.len())];
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
            }
            4 => {
                let method = methods[self.pick(methods.len())];
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{}}}}"#)
            }
            _ => {
                let method = notes[self.pick(notes.len())];
                let params = &params[self.pick(params.len())];
                format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
            }
        }
    }

    /// A message with a few bytes changed, cut out or doubled.
    fn garbled(&mut self) -> Vec<u8> {
        let mut bytes = self.message().into_bytes();
        for _ in 0..=self.pick(3) {
            let at = self.pick(bytes.len().max(1));
            match self.pick(3) {
                0 if !bytes.is_empty() => bytes.truncate(at),
                1 if !bytes.is_empty() => bytes[at] = self.pick(256) as u8,
                _ => {
                    let again = bytes[at.min(bytes.len())..].to_vec();
                    bytes.extend(again);
                }
            }
        }
        bytes
    }

    fn step(&mut self, n: u64) {
        let now = self.now;
        let on = match self.http && self.pick(2) == 0 {
            true => Some(self.likely_id()),
            false => None,
        };
        match self.pick(20) {
            0..=5 => {
                let message = self.message();
                self.peer.handle_message(now, message.as_bytes(), on);
            }
            6 => {
                let message = self.garbled();
                self.peer.handle_message(now, &message, on);
            }
            7 => {
                let (one, two) = (self.message(), self.message());
                let batch = format!("[{one},{two},7]");
                self.peer.handle_message(now, batch.as_bytes(), on);
            }
            8 => {
                let sample = self.garbled();
                self.peer.handle_unreadable(now, "not UTF-8", &sample);
            }
            9 if self.http => self.end(),
            10 => {
                self.now.up = now.up.after(Duration::from_millis(self.pick(9_000) as u64));
                self.peer.handle_timeout(self.now);
            }
            9 | 11 | 12 => self.request(n),
            13 => {
                let ids: Vec<_> = self.requests.keys().copied().collect();
                if !ids.is_empty() {
                    let id = ids[self.pick(ids.len())];
                    self.peer.cancel(now, id, "r");
                }
            }
            14..=17 => {
                let id = self.questions.first().copied();
                let id = id.unwrap_or(QuestionId(self.pick(3) as u64));
                self.questions.remove(&id);
                let error = crate::protocol::error::RpcError::method_not_found("x");
                let outcome = match self.pick(4) {
                    0 => Err(error),
                    _ => Ok("{}"),
                };
                self.peer.answer(now, id, outcome);
            }
            _ => {
                let topic = |n: usize| match n {
                    3 => Topic::Task(n.to_string()),
                    _ => resource(&n.to_string()),
                };
                let uris = (0..self.pick(5)).map(topic).collect();
                assert_eq!(self.peer.set_subscriptions(now, &uris), Ok(()));
            }
        }
    }

    fn end(&mut self) {
        let id = self.likely_id();
        let ends = [
            RequestEnd::Accepted,
            RequestEnd::Broken("b".to_owned()),
            RequestEnd::NotSent("n".to_owned()),
            RequestEnd::SessionLost { status: 404 },
        ];
        let which = self.pick(ends.len() + 2);
        let end = match ends.into_iter().nth(which) {
            Some(end) => end,
            None => RequestEnd::Status(Box::new(StatusEnd {
                status: [400, 401, 404, 405, 500][self.pick(5)],
                body: self.message().into_bytes(),
                ..StatusEnd::default()
            })),
        };
        self.peer.handle_end(self.now, id, end);
    }

    fn request(&mut self, n: u64) {
        let id = UpstreamRequestId(n);
        let methods = ["tools/call", "tools/list", "x"];
        let method = methods[self.pick(methods.len())];
        let params = [
            "{}",
            r#"{"_meta":{"progressToken":1}}"#,
            r#"{"name":"x","_meta":7,"requestState":"s"}"#,
            "[]",
        ];
        let mut spec = spec(method, params[self.pick(params.len())]);
        spec.total = (self.pick(2) == 0).then(|| Duration::from_secs(30));
        spec.wants_progress = self.pick(2) == 0;
        spec.raw_questions = self.pick(4) == 0;
        spec.timeout = Duration::from_secs(10);
        self.requests.insert(id, 0);
        self.peer.request(self.now, id, spec);
    }

    fn check(&mut self) {
        while let Some(output) = self.peer.poll() {
            match output {
                PeerOutput::Send(outgoing) => self.check_sent(&outgoing),
                PeerOutput::Ready | PeerOutput::Failed(_) | PeerOutput::TryOlderPair => {
                    self.openings += 1;
                }
                PeerOutput::Response { id, outcome } => {
                    self.saw(match outcome {
                        Ok(_) => "result",
                        Err(CallFault::Remote(_)) => "remote",
                        Err(CallFault::TimedOut { .. }) => "timed out",
                        Err(CallFault::Cancelled) => "cancelled",
                        Err(CallFault::End(_)) => "end",
                        Err(CallFault::Closed(_)) => "closed",
                        Err(CallFault::Busy { .. }) => "busy",
                        Err(CallFault::Violation(_)) => "violation",
                        Err(CallFault::Refused(_)) => "refused",
                        Err(CallFault::ForeignState(_)) => "foreign state",
                        Err(CallFault::Undeclared { .. }) => "undeclared",
                    });
                    *self.requests.get_mut(&id).expect("a request") += 1;
                }
                PeerOutput::Progress { id, .. } => {
                    self.saw("progress");
                    assert_eq!(self.requests[&id], 0);
                }
                PeerOutput::Question { id, .. } => {
                    self.saw("question");
                    assert!(self.questions.insert(id));
                }
                PeerOutput::QuestionGone(id) => {
                    self.saw("gone");
                    assert!(self.questions.remove(&id), "{id} was open");
                }
                PeerOutput::Noise { sample, .. } => assert!(sample.len() <= SAMPLE_BYTES_MAX),
                PeerOutput::Forget(id) => assert!(self.wire.contains(&id)),
                PeerOutput::ListChanged(_) => self.saw("changed"),
                PeerOutput::Notification { .. }
                | PeerOutput::Undeclared { .. }
                | PeerOutput::Subscribed { .. } => {}
            }
        }
        assert!(self.openings <= 1);
        assert!(self.requests.values().all(|answers| *answers <= 1));
        let unanswered = self.requests.values().filter(|n| **n == 0).count();
        assert_eq!(self.peer.open_requests(), unanswered);
        assert!(unanswered <= 8);
        assert!(self.questions.len() <= 4);
    }

    fn check_sent(&mut self, outgoing: &Outgoing) {
        let limits = ScanLimits::from(&Limits::DEFAULT);
        let Ok(Scanned::One(envelope)) = scan(&outgoing.body, &limits) else {
            panic!("{}", String::from_utf8_lossy(&outgoing.body));
        };
        assert!(!outgoing.body.contains(&b'\n'));
        if let OutgoingKind::Request { id, method, .. } = &outgoing.kind {
            self.saw(method);
            let again = envelope
                .params
                .and_then(|params| member(params, "inputResponses"));
            if again.is_some() {
                self.saw("answers");
            }
            assert_eq!(envelope.id.usable(), Some(&*id.to_string()));
            assert!(self.wire.insert(*id), "{id} is new");
            let meta = envelope.request_meta;
            let stateless = matches!(outgoing.dialect, Dialect::Stateless(_));
            assert_eq!(meta.is_modern(), stateless);
            assert_eq!(meta.protocol_version.is_some(), stateless);
            assert_eq!(meta.client_info.is_some(), stateless);
            assert_eq!(meta.client_capabilities.is_some(), stateless);
        }
    }

    /// Everything that is due happens; then nothing is due.
    fn settle(&mut self) {
        for turn in 0.. {
            match self.peer.next_deadline() {
                Some(due) if due.at <= self.now.up => {
                    assert!(turn < 100, "{} is due for ever", due.why);
                    self.peer.handle_timeout(self.now);
                    self.check();
                }
                Some(_) | None => return,
            }
        }
    }
}

fn pick(seed: &mut Seeded, below: usize) -> usize {
    usize::try_from(seed.below(below as u64)).expect("below a usize")
}

#[test]
fn whatever_a_server_says_each_request_is_answered_once() {
    let mut seen = BTreeMap::<String, usize>::new();
    for seed in 0..600 {
        let mut chaos = Chaos::new(seed);
        chaos.begin();
        for n in 0..150 {
            chaos.step(1_000 + n);
            chaos.check();
            chaos.settle();
        }
        chaos.peer.handle_closed(chaos.now, "gone");
        chaos.check();
        assert_eq!(chaos.openings, 1, "seed {seed}");
        let all = chaos.requests.values().all(|answers| *answers == 1);
        assert!(all, "seed {seed}: {:?}", chaos.requests);
        assert!(chaos.questions.is_empty(), "seed {seed}");
        assert_eq!(chaos.peer.next_deadline(), None, "seed {seed}");
        chaos.now.up = Uptime::from_start(Duration::MAX);
        chaos.peer.handle_timeout(chaos.now);
        chaos.check();
        for (what, times) in chaos.seen {
            *seen.entry(what).or_default() += times;
        }
    }
    for what in [
        "answers",
        "busy",
        "cancelled",
        "changed",
        "closed",
        "end",
        "gone",
        "initialize",
        "progress",
        "question",
        "remote",
        "resources/subscribe",
        "result",
        "server/discover",
        "subscriptions/listen",
        "timed out",
        "violation",
    ] {
        assert!(
            seen.get(what) > Some(&10),
            "{what} did not happen: {seen:?}"
        );
    }
}

/// Whether servers may ask at all, the answer to the probe tells.
#[test]
fn while_the_probe_is_out_a_server_is_granted_nothing() {
    let ping = br#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    let now = Now::default();
    for (choice, granted) in [(EraChoice::Auto, false), (EraChoice::Legacy, true)] {
        let mut peer = ClientPeer::new(config(choice, Carrier::Lines), now);
        peer.handle_up(now);
        while peer.poll().is_some() {}
        peer.handle_message(now, ping, None);
        let Some(PeerOutput::Send(sent)) = peer.poll() else {
            panic!("an answer to ping");
        };
        let sent = String::from_utf8(sent.body).expect("JSON");
        assert_eq!(member(&sent, "result").is_some(), granted, "{sent}");
        let refused = member(&sent, "error").and_then(|error| member(error, "code"));
        assert_eq!(refused, (!granted).then_some("-32601"), "{sent}");
    }
}
