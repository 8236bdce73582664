//! A client on one connection, of a given revision, over any transport: the library's own peer and links,
//! driven by its own loop. What comes is written down; questions of the server are answered at once.

use std::collections::{BTreeMap, BTreeSet};

use drawspan::clock::{Deadline, Now};
use drawspan::codec::outbuf::OutBuf;
use drawspan::codec::shared_text::SharedText;
use drawspan::codec::uri::Uri;
use drawspan::ids::{UpstreamRequestId, WireId, WireMint};
use drawspan::io::EventLoop;
use drawspan::limits::Limits;
use drawspan::link::http_client::{HttpBounds, HttpLink, HttpTarget};
use drawspan::link::sse_client::SseLink;
use drawspan::link::stdio_child::StdioChild;
use drawspan::link::unix_link::UnixLink;
use drawspan::link::upstream::UpstreamEvent;
use drawspan::link::upstream_link::UpstreamLink;
use drawspan::link::{ChildSpec, Driven, IoEvent, IoRequest, TlsSpec};
use drawspan::protocol::client::peer::{
    CallFault, ClientPeer, EraChoice, ListKind, PeerConfig, PeerOutput, RequestSpec,
};
use drawspan::protocol::error::RpcError;
use drawspan::protocol::message::LogLevel;
use drawspan::protocol::revision::Revision;
use drawspan::protocol::topic::Topic;
use serde_json::Value;

use crate::common::PATIENCE;

/// Where a server is, and by which transport.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// To be started; told by its own environment whose it is.
    Stdio(ChildSpec),
    /// Streamable HTTP.
    Http(String),
    /// The pair of 2024-11-05.
    Sse(String),
    Unix(std::path::PathBuf),
}

/// Messages that came, and what became of requests.
#[derive(Debug, Default)]
pub(crate) struct Told {
    answers: BTreeMap<UpstreamRequestId, Result<SharedText, CallFault>>,
    /// Whose stream it came on where there are such streams, and the raw params.
    pub(crate) progress: Vec<(UpstreamRequestId, Value)>,
    /// Whether each report of progress came on the stream of its own request; always so on one stream.
    pub(crate) strays: usize,
    pub(crate) notifications: Vec<(String, Value)>,
    /// Notifications of no method we know, as they came.
    pub(crate) raw: Vec<String>,
    pub(crate) changed: Vec<ListKind>,
    /// Methods of the server's questions.
    pub(crate) asked: Vec<String>,
    pub(crate) noise: Vec<String>,
    acknowledged: usize,
    failed: Option<String>,
    ready: bool,
    closed: bool,
}

struct Machine {
    link: UpstreamLink,
    peer: ClientPeer,
    wires: WireMint,
    told: Told,
    give_up: Deadline,
}

/// See the module page.
pub(crate) struct Client {
    events: EventLoop,
    machine: Machine,
    next_id: u64,
    pub(crate) revision: Revision,
    /// Whether what is done next is expected to work.
    pub(crate) hopes: bool,
}

/// What clients of a revision can say of themselves.
pub(crate) fn capabilities(revision: Revision) -> &'static str {
    match revision {
        Revision::V2024_11_05 | Revision::V2025_03_26 => {
            r#"{"roots":{"listChanged":true},"sampling":{}}"#
        }
        Revision::V2025_06_18 => r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}"#,
        Revision::V2025_11_25 => {
            r#"{"roots":{"listChanged":true},"sampling":{},"elicitation":{"form":{},"url":{}}}"#
        }
        Revision::V2026_07_28 => r#"{"roots":{},"sampling":{},"elicitation":{"form":{},"url":{}}}"#,
    }
}

impl Client {
    /// Connects, and is ready to ask.
    ///
    /// # Errors
    /// Why it cannot.
    pub(crate) fn connect(address: &Address, revision: Revision) -> Result<Self, String> {
        Self::connect_as(address, revision, capabilities(revision))
    }

    /// The same with other capabilities.
    pub(crate) fn connect_as(
        address: &Address,
        revision: Revision,
        capabilities: &str,
    ) -> Result<Self, String> {
        let limits = Limits {
            request_timeout: 2 * PATIENCE,
            ..Limits::default()
        };
        let events = EventLoop::new(&limits).unwrap();
        let now = events.now();
        let mut wires = WireMint::default();
        let mut link = link(address, &limits);
        let config = PeerConfig {
            identity: r#"{"name":"matrix","version":"1"}"#.to_owned(),
            capabilities: capabilities.to_owned(),
            choice: EraChoice::Only(revision),
            known: None,
            carrier: link.carrier(),
            discover_timeout: PATIENCE,
            connect_timeout: PATIENCE,
            first_own_id: UpstreamRequestId(1 << 30),
            limits,
        };
        let peer = ClientPeer::new(config, now);
        link.start(now, &mut wires);
        let machine = Machine {
            link,
            peer,
            wires,
            told: Told::default(),
            give_up: Deadline::new(now.after(PATIENCE), "the test gives up"),
        };
        let mut client = Self {
            events,
            machine,
            next_id: 1,
            revision,
            hopes: true,
        };
        client.machine.drain(now);
        client.until("the opening", |told| {
            told.ready || told.failed.is_some() || told.closed
        });
        if client.told().ready {
            // What a listen stream is asked for is granted before anything else is done.
            client.until_listening(1);
            return Ok(client);
        }
        let why = client.told().failed.clone();
        client.end();
        Err(why.unwrap_or_else(|| "closed".to_owned()))
    }

    pub(crate) fn told(&mut self) -> &mut Told {
        &mut self.machine.told
    }

    pub(crate) fn server_capabilities(&self) -> Value {
        let facts = self.machine.peer.facts().unwrap();
        serde_json::from_str(&facts.capabilities).unwrap()
    }

    /// `serverInfo` as it came.
    pub(crate) fn raw_server_info(&self) -> String {
        let facts = self.machine.peer.facts().unwrap();
        facts.server_info.as_deref().unwrap_or("null").to_owned()
    }

    pub(crate) fn server_info(&self) -> Value {
        serde_json::from_str(&self.raw_server_info()).unwrap()
    }

    pub(crate) fn revision_spoken(&self) -> Revision {
        self.machine.peer.facts().unwrap().revision
    }

    /// Sends a request; gives its name.
    pub(crate) fn begin(
        &mut self,
        method: &str,
        params: &str,
        progress: bool,
    ) -> UpstreamRequestId {
        let id = UpstreamRequestId(self.next_id);
        self.next_id += 1;
        let now = self.events.now();
        let spec = RequestSpec {
            method: method.to_owned().into(),
            params: Some(params),
            opaque: None,
            timeout: PATIENCE,
            total: None,
            wants_progress: progress,
            headers: Vec::new(),
            raw_questions: false,
            capabilities: None,
        };
        self.machine.peer.request(now, id, spec);
        self.machine.drain(now);
        id
    }

    /// Waits for the answer to a request.
    pub(crate) fn answer(&mut self, id: UpstreamRequestId) -> Result<Value, CallFault> {
        self.raw_answer(id)
            .map(|raw| serde_json::from_str(&raw).unwrap())
    }

    pub(crate) fn raw_answer(&mut self, id: UpstreamRequestId) -> Result<SharedText, CallFault> {
        self.until("an answer", |told| told.answers.contains_key(&id));
        self.told().answers.remove(&id).unwrap()
    }

    pub(crate) fn ask(&mut self, method: &str, params: &str) -> Result<Value, CallFault> {
        let id = self.begin(method, params, false);
        self.answer(id)
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &str) -> Result<Value, CallFault> {
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
        self.ask("tools/call", &params)
    }

    pub(crate) fn notify(&mut self, method: &str, params: &str) {
        let now = self.events.now();
        self.machine.peer.notify(now, method, Some(params));
        self.machine.drain(now);
    }

    pub(crate) fn cancel(&mut self, id: UpstreamRequestId) {
        let now = self.events.now();
        self.machine.peer.cancel(now, id, "the test says so");
        self.machine.drain(now);
    }

    /// From which level on log messages are wanted; known to the server when this returns.
    pub(crate) fn set_log_level(&mut self, level: LogLevel) -> Result<(), CallFault> {
        if self.revision.is_stateless() {
            let now = self.events.now();
            self.machine.peer.set_log_level(now, Some(level));
            return Ok(());
        }
        let params = format!(r#"{{"level":"{}"}}"#, level.as_str());
        self.ask("logging/setLevel", &params).map(drop)
    }

    /// Subscribes to one resource; in force when this returns.
    pub(crate) fn subscribe(&mut self, uri: &str) -> Result<(), CallFault> {
        if self.revision.has_listen_streams() {
            let now = self.events.now();
            let before = self.told().acknowledged;
            let uris = BTreeSet::from([Topic::Resource(uri.to_owned())]);
            self.machine.peer.set_subscriptions(now, &uris)?;
            self.machine.drain(now);
            self.until_listening(before + 1);
            return Ok(());
        }
        let params = format!(r#"{{"uri":"{uri}"}}"#);
        self.ask("resources/subscribe", &params).map(drop)
    }

    /// Waits for so many acknowledgments, where there are listen streams.
    fn until_listening(&mut self, count: usize) {
        if self.revision.has_listen_streams() && self.listens() {
            self.until("a listen stream", |told| told.acknowledged >= count);
        }
    }

    /// Whether the peer asks for a listen stream by itself.
    fn listens(&self) -> bool {
        let capabilities = self.server_capabilities();
        let changing = |list| capabilities[list]["listChanged"] == true;
        changing("tools")
            || changing("prompts")
            || changing("resources")
            || capabilities["resources"]["subscribe"] == true
    }

    /// Turns the loop until something is so.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Told) -> bool) {
        let by = self.events.now().after(PATIENCE);
        self.machine.give_up = Deadline::new(by, "the test gives up");
        while !done(&self.machine.told) {
            let told = &self.machine.told;
            assert!(
                self.events.now().up < by,
                "waited in vain for {what}: {told:?}"
            );
            assert!(
                !told.closed || what == "the end",
                "closed before {what}: {told:?}"
            );
            self.events.turn(&mut [&mut self.machine]).unwrap();
        }
    }

    /// Ends the connection in good order.
    pub(crate) fn end(mut self) {
        let now = self.events.now();
        self.machine.link.close(now, &mut self.machine.wires);
        self.machine.drain(now);
        self.until("the end", |told| told.closed);
        while self.events.finishing() > 0 {
            self.events.turn(&mut [&mut self.machine]).unwrap();
        }
    }
}

fn link(address: &Address, limits: &Limits) -> UpstreamLink {
    let message_max = limits.upstream_message_bytes_max;
    let out_max = limits.upstream_out_bytes_max;
    let target = |url: &str| HttpTarget {
        url: Uri::parse(url).unwrap(),
        headers: Vec::new(),
        tls: TlsSpec::default(),
        proxy: None,
    };
    match address {
        Address::Stdio(spec) => UpstreamLink::Child(StdioChild::new(
            "drawspan",
            spec.clone(),
            message_max,
            out_max,
            limits,
        )),
        Address::Unix(path) => {
            UpstreamLink::Unix(UnixLink::new(path.clone(), message_max, out_max, limits))
        }
        Address::Http(url) => {
            UpstreamLink::Http(HttpLink::new(target(url), HttpBounds::from(limits), limits))
        }
        Address::Sse(url) => {
            UpstreamLink::Sse(SseLink::new(target(url), HttpBounds::from(limits), limits))
        }
    }
}

/// What the person, the model and the program behind the client say.
pub(crate) fn reply(method: &str) -> Result<&'static str, RpcError> {
    match method {
        "elicitation/create" => {
            Ok(r#"{"action":"accept","content":{"name":"Alice","color":"red","ok":true}}"#)
        }
        "sampling/createMessage" => Ok(concat!(
            r#"{"role":"assistant","content":{"type":"text","text":"Paris"},"#,
            r#""model":"m","big":12345678901234567890}"#
        )),
        "roots/list" => Ok(r#"{"roots":[{"uri":"file:///matrix","name":"r"}]}"#),
        other => Err(RpcError::method_not_found(other)),
    }
}

impl Machine {
    fn drain(&mut self, now: Now) {
        loop {
            if let Some(event) = self.link.poll_event() {
                self.handle_link(now, event);
            } else if let Some(output) = self.peer.poll() {
                self.handle_peer(now, output);
            } else {
                return;
            }
        }
    }

    fn handle_link(&mut self, now: Now, event: UpstreamEvent) {
        match event {
            UpstreamEvent::Up => self.peer.handle_up(now),
            UpstreamEvent::Message { text, on, .. } => {
                self.note(text.as_bytes(), on);
                self.peer.handle_text(now, &text, on);
            }
            UpstreamEvent::Unreadable { why, sample, .. } => {
                self.peer.handle_unreadable(now, &why, &sample);
            }
            UpstreamEvent::RequestEnded { id, end } => self.peer.handle_end(now, id, end),
            UpstreamEvent::Resuming { .. } | UpstreamEvent::Remark { .. } => {}
            UpstreamEvent::Ending(why) => self.peer.handle_closed(now, &why.to_string()),
            UpstreamEvent::Closed(why) => {
                self.peer.handle_closed(now, &why.to_string());
                self.told.closed = true;
            }
        }
    }

    /// What the peer keeps to itself.
    fn note(&mut self, bytes: &[u8], on: Option<UpstreamRequestId>) {
        let message: Value = serde_json::from_slice(bytes).unwrap_or_default();
        match message["method"].as_str() {
            Some("notifications/subscriptions/acknowledged") => self.told.acknowledged += 1,
            Some("notifications/progress") => {
                let token = message["params"]["progressToken"].as_u64();
                let own = on.is_none_or(|on| Some(on.0) == token);
                let carried = matches!(self.link, UpstreamLink::Http(_)) && on.is_none();
                self.told.strays += usize::from(!own || carried);
            }
            Some(_) | None => {}
        }
    }

    fn handle_peer(&mut self, now: Now, output: PeerOutput) {
        let told = &mut self.told;
        match output {
            PeerOutput::Send(message) => self.link.send(now, &message, &mut self.wires).unwrap(),
            PeerOutput::Forget(id) => self.link.forget(now, id, &mut self.wires),
            PeerOutput::Ready => told.ready = true,
            PeerOutput::Failed(fault) => told.failed = Some(fault.to_string()),
            PeerOutput::TryOlderPair => told.failed = Some("try the older pair".to_owned()),
            PeerOutput::Response { id, outcome } => {
                let earlier = told.answers.insert(id, outcome);
                assert!(earlier.is_none(), "two answers to {id}");
            }
            PeerOutput::Progress { id, params } => {
                told.progress
                    .push((id, serde_json::from_str(&params).unwrap()));
            }
            PeerOutput::Notification { method, params, .. }
                if method.starts_with("notifications/com.example/") =>
            {
                told.raw.push(params.unwrap_or_default().into());
            }
            PeerOutput::Notification { method, params, .. } => {
                let params = params.map_or(Value::Null, |raw| serde_json::from_str(&raw).unwrap());
                told.notifications.push((method.into(), params));
            }
            PeerOutput::ListChanged(list) => told.changed.push(list),
            PeerOutput::Question { id, method, .. } => {
                told.asked.push(method.to_string());
                self.peer.answer(now, id, reply(&method));
            }
            PeerOutput::QuestionGone(_) | PeerOutput::Subscribed { .. } => {}
            PeerOutput::Undeclared { .. } => told.noise.push(format!("{output:?}")),
            PeerOutput::Noise { why, sample } => {
                let sample = String::from_utf8_lossy(&sample).into_owned();
                told.noise.push(format!("{why}: {sample}"));
            }
        }
    }
}

impl Driven for Machine {
    fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>) {
        self.link.handle_io(now, wire, event, &mut self.wires);
        self.drain(now);
    }

    fn handle_timeout(&mut self, now: Now) {
        self.link.handle_timeout(now, &mut self.wires);
        self.peer.handle_timeout(now);
        self.drain(now);
        if self.give_up.at <= now.up {
            self.give_up.at = now.after(PATIENCE);
        }
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        self.link.poll_io()
    }

    fn next_deadline(&self) -> Option<Deadline> {
        [self.link.next_deadline(), self.peer.next_deadline()]
            .into_iter()
            .fold(Some(self.give_up), Deadline::earlier)
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        self.link.outgoing(wire)
    }
}
