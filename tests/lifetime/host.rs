//! A loop with links to servers, each of them a shell script.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use drawspan::clock::{Deadline, Now};
use drawspan::codec::outbuf::OutBuf;
use drawspan::ids::{WireId, WireMint};
use drawspan::io::EventLoop;
use drawspan::limits::Limits;
use drawspan::link::stdio_child::StdioChild;
use drawspan::link::upstream::{UpstreamClosed, UpstreamEvent};
use drawspan::link::{ChildSpec, Driven, IoEvent, IoRequest};
use drawspan::protocol::client::{Dialect, Outgoing, OutgoingKind};

use crate::census::Census;
use crate::common::{DRAWSPAN, PATIENCE};

/// What a link told, and when.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) messages: Vec<String>,
    pub(crate) unreadable: Vec<String>,
    pub(crate) ending: Option<(UpstreamClosed, Instant)>,
    pub(crate) closed: Option<(UpstreamClosed, Instant)>,
}

impl Told {
    /// Why it is gone.
    #[track_caller]
    pub(crate) fn why(&self) -> String {
        self.closed.as_ref().expect("closed").0.to_string()
    }
}

/// Links by number.
#[derive(Default)]
pub(crate) struct Links {
    links: BTreeMap<usize, StdioChild>,
    told: BTreeMap<usize, Told>,
    mint: WireMint,
    wires: BTreeMap<WireId, usize>,
    wake: Option<Deadline>,
}

impl Links {
    fn note(&mut self) {
        for (number, link) in &mut self.links {
            let told = self.told.entry(*number).or_default();
            while let Some(event) = link.poll_event() {
                assert!(told.closed.is_none(), "Closed is the last event");
                match event {
                    UpstreamEvent::Up => {}
                    UpstreamEvent::Message { text, .. } => told.messages.push(text.to_string()),
                    UpstreamEvent::Unreadable { why, .. } => told.unreadable.push(why),
                    UpstreamEvent::Ending(why) => told.ending = Some((why, Instant::now())),
                    UpstreamEvent::Closed(why) => told.closed = Some((why, Instant::now())),
                    UpstreamEvent::RequestEnded { .. }
                    | UpstreamEvent::Resuming { .. }
                    | UpstreamEvent::Remark { .. } => {
                        panic!("{event:?}")
                    }
                }
            }
        }
    }
}

impl Driven for Links {
    fn handle_io(&mut self, now: Now, wire: WireId, event: IoEvent<'_>) {
        let link = self.links.get_mut(&self.wires[&wire]).unwrap();
        link.handle_io(now, wire, event, &mut self.mint);
        self.note();
    }

    fn handle_timeout(&mut self, now: Now) {
        self.wake = None;
        for link in self.links.values_mut() {
            link.handle_timeout(now, &mut self.mint);
        }
        self.note();
    }

    fn poll_io(&mut self) -> Option<IoRequest> {
        let (number, request) = self
            .links
            .iter_mut()
            .find_map(|(number, link)| Some((*number, link.poll_io()?)))?;
        if let IoRequest::Open(wire, _) = &request {
            self.wires.insert(*wire, number);
        }
        Some(request)
    }

    fn next_deadline(&self) -> Option<Deadline> {
        let links = self.links.values().map(StdioChild::next_deadline);
        links.fold(self.wake, Deadline::earlier)
    }

    fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        self.links.get_mut(self.wires.get(&wire)?)?.outgoing(wire)
    }
}

pub(crate) struct Host {
    pub(crate) events: EventLoop,
    pub(crate) links: Links,
    pub(crate) census: Census,
}

impl Host {
    /// Guarded by the real program.
    pub(crate) fn new() -> Self {
        Self::with(Census::new(), &Limits::DEFAULT)
    }

    pub(crate) fn with(census: Census, limits: &Limits) -> Self {
        let mut events = EventLoop::new(limits).unwrap();
        events.set_guardian(DRAWSPAN, vec!["guard".to_owned(), census.argument()]);
        Self {
            events,
            links: Links::default(),
            census,
        }
    }

    /// A link to a script, started.
    pub(crate) fn start(&mut self, script: &str) -> usize {
        self.start_program("sh", &["-c", script])
    }

    pub(crate) fn start_program(&mut self, program: &str, args: &[&str]) -> usize {
        self.start_spec(ChildSpec {
            program: program.to_owned(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            env: vec![
                ("PATH".to_owned(), std::env::var("PATH").unwrap()),
                self.census.variable(),
            ],
            cwd: None,
        })
    }

    pub(crate) fn start_spec(&mut self, spec: ChildSpec) -> usize {
        let number = self.links.links.len();
        let mut link = StdioChild::new("made", spec, 1 << 20, 1 << 20, &Limits::DEFAULT);
        link.start(self.events.now(), &mut self.links.mint);
        self.links.links.insert(number, link);
        self.links.told.insert(number, Told::default());
        number
    }

    pub(crate) fn told(&self, number: usize) -> &Told {
        &self.links.told[&number]
    }

    pub(crate) fn stderr_tail(&self, number: usize) -> &str {
        self.links.links[&number].stderr_tail()
    }

    pub(crate) fn send(&mut self, number: usize, body: &str) {
        let message = Outgoing {
            kind: OutgoingKind::Answer,
            dialect: Dialect::Handshake,
            body: body.as_bytes().to_vec(),
        };
        let now = self.events.now();
        let link = self.links.links.get_mut(&number).unwrap();
        link.send(now, &message, &mut self.links.mint).unwrap();
    }

    /// Begins the orderly end of all links.
    pub(crate) fn close(&mut self) -> Instant {
        let now = self.events.now();
        for link in self.links.links.values_mut() {
            link.close(now, &mut self.links.mint);
        }
        self.links.note();
        Instant::now()
    }

    /// One turn that does not wait for long.
    pub(crate) fn turn(&mut self) {
        let soon = self.events.now().after(Duration::from_millis(5));
        self.links.wake = Some(Deadline::new(soon, "a look at what is no event"));
        self.events.turn(&mut [&mut self.links]).unwrap();
    }

    /// Turns the loop until `done`.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        let since = Instant::now();
        while !done(self) {
            assert!(
                since.elapsed() < PATIENCE,
                "waited in vain for {what}: {:?}, {:?}",
                self.links.told,
                self.census.count()
            );
            self.turn();
        }
    }

    /// Turns the loop until every server has said that it is ready.
    #[track_caller]
    pub(crate) fn until_ready(&mut self) {
        self.until("the servers", |host| {
            let mut told = host.links.told.values();
            told.all(|told| told.messages.iter().any(|m| m == "\"ready\""))
        });
    }

    #[track_caller]
    pub(crate) fn until_closed(&mut self) {
        self.until("the end", |host| {
            host.links.told.values().all(|told| told.closed.is_some())
        });
    }

    /// Turns the loop until it knows of no child any more.
    #[track_caller]
    pub(crate) fn until_reaped(&mut self) {
        self.until("all to be reaped", |host| {
            format!("{:?}", host.events).contains("children: 0")
        });
    }

    /// Turns the loop until nothing runs and nothing is left to be reaped, at the latest three seconds
    /// after `since`.
    #[track_caller]
    pub(crate) fn expect_nothing(&mut self, since: Instant) {
        while since.elapsed() < crate::census::GONE && !self.census.count().is_empty() {
            self.turn();
        }
        self.census.expect_nothing(since);
    }
}
