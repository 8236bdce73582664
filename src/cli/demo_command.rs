//! `drawspan demo`: an embedded Gateway, the bridge and an MCP client in one process, and what crosses the
//! two wires between them. The wires are real: a socket pair for MCP, loopback TCP for the Gateway.

use std::collections::VecDeque;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::connection::report;
use super::embedded::{self, Embedded};
use super::serve::{start, to_embedded};
use super::{CommandResult, Exit, Failure, print};
use crate::bridge::ChannelMode;
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::lines::{LineDecoder, LineEvent};
use crate::codec::outbuf::OutBuf;
use crate::embedded::{ApprovalKind, Post, Question, Role};
use crate::hub::{Hub, HubConfig, HubEvent, Outcome, ServerIdentity};
use crate::ids::WireId;
use crate::io::EventLoop;
use crate::io::system::OsEntropy;
use crate::limits::Limits;
use crate::link::{Driven, IoEvent, IoRequest};

/// The demo takes some hundredths of a second; past this it has failed.
const TIME_LIMIT: Duration = Duration::from_secs(10);

/// How much of a message is shown.
const SHOWN_CHARS: usize = 150;

const LIVE_TEXT: &str = "is the bridge open?";

/// What the client does next, each step on the answer to the one before; `APPROVAL` is the approval seen.
const SCRIPT: [&str; 5] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"demo","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"conversations_list","arguments":{}}}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"events_wait","arguments":{"timeout_ms":5000}}}"#,
    r#"{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"events_wait","arguments":{"after_cursor":1,"timeout_ms":5000}}}"#,
    r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"permissions_respond","arguments":{"kind":"exec","id":"APPROVAL","decision":"allow-once"}}}"#,
];

pub(super) fn run() -> CommandResult {
    let limits = Limits::default();
    let mut events = start(EventLoop::new(&limits))?;
    let mut entropy = OsEntropy::new();
    let mut embedded = embedded::open(
        &mut events,
        ("127.0.0.1".to_owned(), 0),
        None,
        None,
        &limits,
    )?;
    let refused =
        |refusal: crate::embedded::Refusal| Failure::new(Exit::Failed, refusal.to_string());
    embedded
        .gateway
        .post_samples(events.now())
        .map_err(refused)?;
    let config = HubConfig {
        gateway: Some(to_embedded(&embedded, &limits, &mut entropy)?),
        limits: limits.clone(),
        identity: ServerIdentity::bridge(),
        channel_mode: ChannelMode::Off,
        tap: true,
        ..HubConfig::default()
    };
    let mut hub = Hub::new(config, Box::new(entropy), events.now());
    let mut client = DemoClient::new(&limits, events.now());
    let (ours, theirs) = start(UnixStream::pair())?;
    let wire = hub.serve_adopted(events.now());
    start(events.adopt(1, wire, ours))?;
    start(events.adopt(2, DemoClient::WIRE, theirs))?;
    print("An OpenClaw Gateway (embedded), drawspan and an MCP client, in one process.\n\n")?;
    let mut stage = Stage {
        embedded,
        hub,
        client_lines: 0,
        posted: false,
        asked: false,
    };
    loop {
        let Stage { embedded, hub, .. } = &mut stage;
        start(events.turn(&mut [&mut embedded.gateway, hub, &mut client]))?;
        if let Some(outcome) = stage.attend(events.now(), &mut client)? {
            return finish(&client, &outcome, events.now());
        }
    }
}

/// Everything but the client.
struct Stage {
    embedded: Embedded,
    hub: Hub,
    client_lines: usize,
    posted: bool,
    asked: bool,
}

impl Stage {
    /// Shows what crossed the wires, and lets the next thing happen at the Gateway.
    fn attend(&mut self, now: Now, client: &mut DemoClient) -> Result<Option<Outcome>, Failure> {
        let mut finished = None;
        while let Some(event) = self.hub.poll_event() {
            match event {
                HubEvent::GatewayFrame { received, text } => {
                    show(now, ["bridge", "gateway"], received, &text)?
                }
                HubEvent::Finished(outcome) => finished = Some(outcome),
                HubEvent::Diagnostic(line) => report(&line, false),
                HubEvent::GateAsked { .. }
                | HubEvent::ListenFailed { .. }
                | HubEvent::Local(_)
                | HubEvent::LocalCancelled(_)
                | HubEvent::ClientNotification { .. }
                | HubEvent::StoreToken(_)
                | HubEvent::ForgetToken => {}
            }
        }
        while let Some((received, line)) = client.crossed.pop_front() {
            self.client_lines += 1;
            show(now, ["client", "bridge"], received, &line)?;
        }
        let failed =
            |refusal: crate::embedded::Refusal| Failure::new(Exit::Failed, refusal.to_string());
        if client.step == 3 && self.hub.open_calls() == 1 && !self.posted {
            self.posted = true;
            let post = Post {
                session_key: "agent:main:main".to_owned(),
                role: Role::User,
                text: LIVE_TEXT.to_owned(),
                channel: None,
                to: None,
                account_id: None,
                thread_id: None,
                display_name: None,
            };
            self.embedded
                .gateway
                .post_message(now, &post)
                .map_err(failed)?;
        }
        if client.step == 4 && self.hub.open_calls() == 1 && !self.asked {
            self.asked = true;
            let question = Question {
                kind: ApprovalKind::Exec,
                subject: "open the bridge".to_owned(),
                description: String::new(),
                session_key: Some("agent:main:main".to_owned()),
                timeout: None,
            };
            self.embedded
                .gateway
                .request_approval(now, &question)
                .map_err(failed)?;
        }
        Ok(finished)
    }
}

/// One message that crossed between two, the Gateway's side on the right.
fn show(now: Now, [left, right]: [&str; 2], to_left: bool, text: &str) -> Result<(), Failure> {
    let arrow = if to_left { '◀' } else { '▶' };
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if text.chars().count() > SHOWN_CHARS {
        shown.push('…');
    }
    // The demo's own token opens nothing once it has ended, but habits count.
    let shown = match shown.find("\"auth\":{") {
        Some(at) => format!("{}\"auth\":***", &shown[..at]),
        None => shown,
    };
    let at = now.up.as_millis();
    print(&format!(
        "{at:>4} ms {left:>6} {arrow} {right:<7} {shown}\n"
    ))
    .map(|_| ())
}

fn finish(client: &DemoClient, outcome: &Outcome, now: Now) -> CommandResult {
    let expected = [
        ("listed conversations", r#""text":"conversations: "#),
        ("received a live message", LIVE_TEXT),
        ("saw the approval", "exec_approval_requested"),
        ("answered the approval", r#""text":"approval resolved""#),
    ];
    print("\n")?;
    for (what, sign) in expected {
        if !client.received.iter().any(|line| line.contains(sign)) {
            return Err(Failure::new(
                Exit::Failed,
                format!("the demo never {what} (ended: {outcome:?})"),
            ));
        }
        print(&format!("{what}\n"))?;
    }
    let memory = resident_kib().map_or_else(String::new, |kib| format!(", {kib} KiB resident"));
    print(&format!("done in {} ms{memory}\n", now.up.as_millis()))
}

/// Resident memory of this process, where the system tells.
fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// An MCP client that follows [`SCRIPT`].
struct DemoClient {
    lines: LineDecoder,
    out: OutBuf,
    io: VecDeque<IoRequest>,
    /// How many requests were sent.
    step: usize,
    /// Lines received, for the verdict.
    received: Vec<String>,
    /// Lines that crossed and were not shown yet: whether we received them.
    crossed: VecDeque<(bool, String)>,
    give_up: Uptime,
}

impl DemoClient {
    const WIRE: WireId = WireId(0);

    fn new(limits: &Limits, now: Now) -> Self {
        let mut client = Self {
            lines: LineDecoder::new(limits.message_bytes_max),
            out: OutBuf::new(),
            io: VecDeque::new(),
            step: 0,
            received: Vec::new(),
            crossed: VecDeque::new(),
            give_up: now.after(TIME_LIMIT),
        };
        client.next_step();
        client
    }

    fn next_step(&mut self) {
        if let Some(line) = SCRIPT.get(self.step) {
            self.step += 1;
            if self.step == 2 {
                self.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
            }
            self.say(&line.replace("APPROVAL", &self.approval()));
        } else {
            self.io.push_back(IoRequest::Close(Self::WIRE));
        }
    }

    /// The id of the approval in the last answer.
    fn approval(&self) -> String {
        let last = self.received.last().map_or("", String::as_str);
        let id = last
            .split(r#""raw":{"id":""#)
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        id.unwrap_or_default().to_owned()
    }

    fn say(&mut self, line: &str) {
        self.out.tail().extend_from_slice(line.as_bytes());
        self.out.tail().push(b'\n');
        self.crossed.push_back((false, line.to_owned()));
        self.io.push_back(IoRequest::Flush(Self::WIRE));
    }
}

impl Driven for DemoClient {
    fn handle_io(&mut self, _now: Now, _wire: WireId, event: IoEvent<'_>) {
        let IoEvent::Bytes(mut bytes) = event else {
            return;
        };
        let mut answers = 0;
        while let Some(line) = self.lines.next(&mut bytes) {
            let LineEvent::Line(line) = line else {
                continue;
            };
            let line = String::from_utf8_lossy(line).into_owned();
            answers += usize::from(line.contains(r#""id":"#));
            self.received.push(line.clone());
            self.crossed.push_back((true, line));
        }
        for _ in 0..answers {
            self.next_step();
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.give_up <= now.up {
            self.io.push_back(IoRequest::Close(Self::WIRE));
        }
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        self.io.pop_front()
    }

    fn next_deadline(&self) -> Option<Deadline> {
        Some(Deadline::new(self.give_up, "the demo takes too long"))
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        (wire == Self::WIRE).then_some(&mut self.out)
    }
}
