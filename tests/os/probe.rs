//! A machine that notes what it hears and sends back what it gets, and the loop around it.

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use drawspan::clock::{Deadline, Now, Uptime};
use drawspan::codec::outbuf::OutBuf;
use drawspan::ids::WireId;
use drawspan::io::EventLoop;
use drawspan::limits::Limits;
use drawspan::link::{
    ChildSpec, Driven, ExitReport, FaultKind, IoEvent, IoFault, IoRequest, OpenSpec,
};

/// How long a test waits for anything before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What a probe heard, in order. Bytes are kept beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Opened,
    Bytes,
    Stderr,
    Eof,
    WriteClosed,
    Drained,
    Exited(ExitReport),
    Failed(IoFault),
}

/// What a probe knows of one wire.
#[derive(Debug, Default)]
pub(crate) struct Noted {
    pub(crate) seen: Vec<Seen>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) out: OutBuf,
    /// The most that ever waited in `out`.
    pub(crate) out_most: usize,
    pub(crate) received: usize,
    paused: bool,
}

/// Watermarks of an echo; reading stops at the first and goes on at the second.
pub(crate) const HIGH: usize = 256 * 1024;
const LOW: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) wires: BTreeMap<u32, Noted>,
    pub(crate) asks: VecDeque<IoRequest>,
    /// Send everything back, within the watermarks, and do not keep it.
    pub(crate) echo: bool,
    /// Pause reads whenever bytes come.
    pub(crate) pause_at_bytes: bool,
    /// Connections it still accepts, as wires 100, 101 …
    pub(crate) accepts: u32,
    pub(crate) accepted: Vec<(u32, String)>,
    pub(crate) refused: u32,
    pub(crate) journal_faults: Vec<IoFault>,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) rung: Vec<Uptime>,
    pub(crate) turns: u32,
    give_up: Uptime,
    gave_up: bool,
}

impl Probe {
    pub(crate) fn new() -> Self {
        Self {
            wires: BTreeMap::new(),
            asks: VecDeque::new(),
            echo: false,
            pause_at_bytes: false,
            accepts: 0,
            accepted: Vec::new(),
            refused: 0,
            journal_faults: Vec::new(),
            deadline: None,
            rung: Vec::new(),
            turns: 0,
            give_up: Uptime::ZERO.after(PATIENCE),
            gave_up: false,
        }
    }

    pub(crate) fn echo() -> Self {
        Self {
            echo: true,
            ..Self::new()
        }
    }

    pub(crate) fn wire(&mut self, wire: u32) -> &mut Noted {
        self.wires.entry(wire).or_default()
    }

    pub(crate) fn saw(&self, wire: u32, seen: &Seen) -> bool {
        self.wires.get(&wire).is_some_and(|w| w.seen.contains(seen))
    }

    pub(crate) fn bytes(&self, wire: u32) -> &[u8] {
        self.wires.get(&wire).map_or(&[], |w| &w.bytes)
    }

    pub(crate) fn fault(&self, wire: u32) -> Option<&IoFault> {
        self.wires.get(&wire)?.seen.iter().find_map(|seen| {
            let Seen::Failed(fault) = seen else {
                return None;
            };
            Some(fault)
        })
    }

    pub(crate) fn exit(&self, wire: u32) -> Option<ExitReport> {
        self.wires.get(&wire)?.seen.iter().find_map(|seen| {
            let Seen::Exited(report) = seen else {
                return None;
            };
            Some(*report)
        })
    }

    /// What was heard of a wire, without repetitions and without `Drained`.
    pub(crate) fn story(&self, wire: u32) -> Vec<Seen> {
        let mut story: Vec<Seen> = self.wires.get(&wire).map_or(Vec::new(), |w| w.seen.clone());
        story.retain(|s| *s != Seen::Drained);
        story.dedup();
        story
    }

    pub(crate) fn ask(&mut self, request: IoRequest) {
        self.asks.push_back(request);
    }

    pub(crate) fn open(&mut self, wire: u32, spec: OpenSpec) {
        self.wire(wire);
        self.ask(IoRequest::Open(WireId(wire), spec));
    }

    pub(crate) fn send(&mut self, wire: u32, bytes: &[u8]) {
        let noted = self.wire(wire);
        noted.out.tail().extend_from_slice(bytes);
        noted.out_most = noted.out_most.max(noted.out.len());
        self.ask(IoRequest::Flush(WireId(wire)));
    }

    pub(crate) fn close_write(&mut self, wire: u32) {
        self.ask(IoRequest::CloseWrite(WireId(wire)));
    }

    pub(crate) fn resume(&mut self, wire: u32) {
        self.wire(wire).paused = false;
        self.ask(IoRequest::PauseReads(WireId(wire), false));
    }

    /// The next turn does not wait.
    pub(crate) fn deadline_at_once(&mut self) {
        self.deadline = Some(Deadline::new(Uptime::ZERO, "at once"));
    }

    /// The next turn does not wait for long: what the test waits for is no event of the loop.
    pub(crate) fn deadline_soon(&mut self, events: &EventLoop) {
        let at = events.now().after(Duration::from_millis(5));
        self.deadline = Some(Deadline::new(at, "soon"));
    }

    fn send_back(&mut self, wire: u32, bytes: &[u8]) {
        self.send(wire, bytes);
        let noted = self.wire(wire);
        if noted.out.len() >= HIGH && !noted.paused {
            noted.paused = true;
            self.ask(IoRequest::PauseReads(WireId(wire), true));
        }
    }
}

impl Driven for Probe {
    fn handle_io(&mut self, _now: Now, wire: WireId, event: IoEvent<'_>) {
        let id = wire.0;
        let echo = self.echo;
        let noted = self.wire(id);
        let seen = match event {
            IoEvent::Opened => Seen::Opened,
            IoEvent::Bytes(bytes) => {
                assert!(!bytes.is_empty(), "empty bytes");
                assert!(!noted.paused, "bytes of a paused wire");
                noted.received += bytes.len();
                if echo {
                    self.send_back(id, bytes);
                } else {
                    noted.bytes.extend_from_slice(bytes);
                }
                Seen::Bytes
            }
            IoEvent::StderrBytes(bytes) => {
                noted.stderr.extend_from_slice(bytes);
                Seen::Stderr
            }
            IoEvent::Eof => {
                if echo {
                    self.close_write(id);
                }
                Seen::Eof
            }
            IoEvent::WriteClosed => Seen::WriteClosed,
            IoEvent::Drained => {
                assert!(noted.out.is_empty(), "drained with bytes left");
                Seen::Drained
            }
            IoEvent::Exited(report) => Seen::Exited(report),
            IoEvent::Failed(fault) => Seen::Failed(fault),
        };
        if seen == Seen::Bytes && self.pause_at_bytes {
            self.wire(id).paused = true;
            self.ask(IoRequest::PauseReads(wire, true));
        }
        self.wire(id).seen.push(seen);
    }

    fn handle_accept(&mut self, _now: Now, _listener: WireId, peer: &str) -> Option<WireId> {
        if self.accepts == 0 {
            self.refused += 1;
            return None;
        }
        self.accepts -= 1;
        let wire = 100 + u32::try_from(self.accepted.len()).unwrap();
        self.accepted.push((wire, peer.to_owned()));
        Some(WireId(wire))
    }

    fn handle_journal_fault(&mut self, _now: Now, fault: IoFault) {
        self.journal_faults.push(fault);
    }

    fn handle_timeout(&mut self, now: Now) {
        if self.deadline.is_some_and(|d| d.at <= now.up) {
            self.deadline = None;
            self.rung.push(now.up);
        }
        if self.give_up <= now.up {
            self.gave_up = true;
            self.give_up = self.give_up.after(PATIENCE);
        }
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        // Like any machine with a watermark: reading goes on once enough has left.
        for (id, noted) in &mut self.wires {
            if noted.paused && self.echo && noted.out.len() <= LOW {
                noted.paused = false;
                self.asks
                    .push_back(IoRequest::PauseReads(WireId(*id), false));
            }
        }
        self.asks.pop_front()
    }

    fn next_deadline(&self) -> Option<Deadline> {
        Deadline::earlier(
            self.deadline,
            Some(Deadline::new(self.give_up, "the test gives up")),
        )
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        Some(&mut self.wires.get_mut(&wire.0)?.out)
    }
}

/// A loop and its one probe.
pub(crate) struct World {
    pub(crate) events: EventLoop,
    pub(crate) probe: Probe,
}

impl World {
    pub(crate) fn new(probe: Probe) -> Self {
        Self::with(probe, &Limits::default())
    }

    pub(crate) fn with(probe: Probe, limits: &Limits) -> Self {
        let mut events = EventLoop::new(limits).unwrap();
        if let Some(program) = crate::GUARDIAN {
            events.set_guardian(program, vec!["guard".to_owned()]);
        }
        Self { events, probe }
    }

    /// Has done what the probe asks for; what came of it is told in the next turn.
    pub(crate) fn settle(&mut self) {
        self.events.settle(&mut [&mut self.probe]);
    }

    pub(crate) fn turn(&mut self) {
        self.probe.turns += 1;
        self.events.turn(&mut [&mut self.probe]).unwrap();
    }

    /// Turns the loop until `done`.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Probe) -> bool) {
        while !done(&self.probe) {
            assert!(
                !self.probe.gave_up,
                "waited in vain for {what}: {:?}",
                self.probe.wires
            );
            self.turn();
        }
    }

    pub(crate) fn adopt(&mut self, wire: u32) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        self.probe.wire(wire);
        self.events.adopt(0, WireId(wire), ours).unwrap();
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        theirs.set_write_timeout(Some(PATIENCE)).unwrap();
        theirs
    }

    /// Opens a listener as wire 1 and returns its port.
    pub(crate) fn listen(&mut self, host: &str) -> u16 {
        let host = host.to_owned();
        self.probe.open(1, OpenSpec::Listen { host, port: 0 });
        while self.events.local_port(0, WireId(1)).is_none() {
            if let Some(fault) = self.probe.fault(1) {
                panic!("{}", fault.message);
            }
            // Opening needs no event; an idle turn would wait for one.
            self.probe.deadline_at_once();
            self.turn();
        }
        self.events.local_port(0, WireId(1)).unwrap()
    }
}

pub(crate) fn tcp(host: &str, port: u16) -> OpenSpec {
    OpenSpec::Tcp {
        host: host.to_owned(),
        port,
        tls: None,
    }
}

pub(crate) fn child(program: &str, args: &[&str]) -> OpenSpec {
    OpenSpec::Child(ChildSpec {
        program: program.to_owned(),
        args: args.iter().map(|&a| a.to_owned()).collect(),
        env: vec![("PATH".to_owned(), std::env::var("PATH").unwrap())],
        cwd: None,
    })
}

pub(crate) fn shell(script: &str) -> OpenSpec {
    child("sh", &["-c", script])
}

#[track_caller]
pub(crate) fn assert_fault(fault: Option<&IoFault>, kind: FaultKind, words: &[&str]) {
    let fault = fault.expect("a fault");
    assert_eq!(fault.kind, kind, "{}", fault.message);
    for word in words {
        assert!(
            fault.message.contains(word),
            "no {word:?} in {:?}",
            fault.message
        );
    }
}

/// Bytes that show where they were cut, doubled or swapped.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + i / 251) % 256) as u8).collect()
}
