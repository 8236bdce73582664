//! One server in one runtime: connected when it is first needed, listed, called, and brought back when it
//! dies.
//!
//! | state      | input                           | next       | output                                     |
//! |------------|---------------------------------|------------|--------------------------------------------|
//! | Idle       | a job, or [`Upstream::connect`] | Opening    | a link and a peer                          |
//! | Opening    | the peer is ready               | Ready      | waiting jobs leave, tools are listed       |
//! | Opening    | failure                         | Resting    | waiting jobs fail, with the next try       |
//! | Opening    | death of the `server/discover` probe, once | Opening | a link and a peer, handshake first  |
//! | Resting    | a job                           | Resting    | the job fails, with the next try           |
//! | Resting    | the time is up, it is wanted    | Opening    | a link and a peer                          |
//! | Resting    | the time is up                  | Idle       |                                            |
//! | Ready      | the link is gone                | Idle       | open jobs fail; those that never ran wait  |
//! | Ready      | the same, soon after the last time | Mending | open jobs fail; those that never ran wait  |
//! | Mending    | a job                           | Mending    | the job waits                              |
//! | Mending    | the time is up, a job waits or it is wanted | Opening | a link and a peer                  |
//! | Ready      | the session is lost (HTTP)      | Ready      | nothing is sent; what is open may end in 1 s |
//! | any        | idle                            | Idle       | the link is ended                          |
//! | any        | retired, and the last job is done | Closed   | the link is ended                          |
//! | any        | [`Upstream::close`]             | Closed     | all jobs fail; the link is ended           |
//!
//! (Resting and Mending are one state with a flag: whether it had been of service before.)
//!
//! A job that waits keeps an idle server from staying idle: what never ran is sent by the next connection,
//! once. A link that is being ended is driven to its end beside the next one, so that no process is lost
//! sight of; a process is not started while the one before it still runs.
//!
//! Source: openclaw-client §4, §5, §7 with the changes of its §9; design (a dead upstream).
//! Never: starts a process, reads a clock, knows of runtimes.

mod jobs;
mod open;
mod terms;
mod wishes;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use self::open::link_to;
pub use self::terms::ServerState;
pub(super) use self::terms::{Face, Listed, Noise, Turn, UpstreamOutput};
use self::wishes::Wishes;
use crate::backoff::Backoff;
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::outbuf::OutBuf;
use crate::codec::shared_text::SharedText;
use crate::ids::{IdMap, QuestionId, TicketId, UpstreamRequestId, WireId, WireMint};
use crate::limits::Limits;
use crate::link::upstream::{UpstreamClosed, UpstreamEvent};
use crate::link::upstream_link::UpstreamLink;
use crate::link::{FaultKind, IoEvent, IoFault, IoRequest};
use crate::manager::catalog::{ListChanges, ListWalk, PagedList, WalkStep};
use crate::manager::error::{FailureKind, Phase, UpstreamError};
use crate::manager::explain;
use crate::manager::health::{FailurePause, Pass, Verdict};
use crate::manager::job::{Job, Options, Work};
use crate::manager::server_config::ServerConfig;
use crate::protocol::client::peer::{
    CallFault, ClientPeer, ConnectFault, EraChoice, ListKind, OWN_IDS, PeerConfig, PeerOutput,
    RequestSpec, ServerFacts,
};
use crate::protocol::client::{Carrier, Outgoing, OutgoingKind, RequestEnd};
use crate::protocol::error::RpcError;
use crate::protocol::revision::Revision;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Opening,
    Ready,
    /// Until when, and whether jobs wait for it: they do when the server has worked before.
    Resting(Uptime, bool),
    Closed,
}

/// A connection: what carries messages, and what they mean.
#[derive(Debug)]
struct Line {
    link: UpstreamLink,
    peer: ClientPeer,
    /// The link has said its last word: there is nothing left to end.
    gone: bool,
}

/// See the module page.
#[derive(Debug)]
pub(super) struct Upstream {
    config: ServerConfig,
    limits: Limits,
    face: Face,
    state: State,
    /// A failed start is tried again by itself.
    wanted: bool,
    /// No new jobs; closed when those it has are done.
    retired: bool,
    line: Option<Line>,
    /// Links on their way out.
    ending: Vec<UpstreamLink>,
    /// A process waits for the one before it to end.
    held: bool,
    backoff: Backoff,
    ready_since: Uptime,
    /// How often it has died since it last served for a good while.
    deaths: u32,
    pause: FailurePause,
    /// The server has asked to be left alone until then, and why.
    hold: Option<(Uptime, UpstreamError)>,
    last_error: Option<UpstreamError>,
    known: Option<Known>,
    /// It has died when it was asked for its era: the handshake goes first from then on.
    dies_of_probe: bool,
    /// Why the older pair is tried. What is told when that fails too.
    refusal: Option<UpstreamError>,
    /// Its session is lost, and what is open in it may still be answered until then.
    renew_by: Option<Uptime>,
    /// Questions that have not been answered.
    questions: BTreeSet<QuestionId>,
    waiting: VecDeque<Job>,
    /// What waits is being sent just now.
    pumping: bool,
    open: IdMap<UpstreamRequestId, Job>,
    lists: ListChanges,
    listing: bool,
    /// Whoever uses it asks for its tools as for anything else.
    tools_left: bool,
    wishes: Wishes,
    noise: Option<Noise>,
    outputs: VecDeque<UpstreamOutput>,
    io: VecDeque<IoRequest>,
}

/// What an earlier connection has found out. Spec: 2026-07-28 basic/versioning (remember the era).
#[derive(Clone, Copy, Debug)]
struct Known {
    revision: Revision,
    older_pair: bool,
}

impl Upstream {
    pub(super) fn new(config: ServerConfig, tools_left: bool, limits: &Limits, face: Face) -> Self {
        Self {
            backoff: Backoff::new(
                limits.reconnect_first_interval,
                limits.reconnect_most_interval,
                limits.reconnect_good_interval,
            ),
            ready_since: Uptime::default(),
            deaths: 0,
            pause: FailurePause::new(config.pause.0, config.pause.1),
            hold: None,
            lists: ListChanges::new(true, limits),
            limits: limits.clone(),
            config,
            face,
            state: State::Idle,
            wanted: false,
            retired: false,
            line: None,
            ending: Vec::new(),
            held: false,
            last_error: None,
            known: None,
            dies_of_probe: false,
            refusal: None,
            renew_by: None,
            questions: BTreeSet::new(),
            waiting: VecDeque::new(),
            pumping: false,
            open: IdMap::new(),
            listing: false,
            tools_left,
            wishes: Wishes::default(),
            noise: None,
            outputs: VecDeque::new(),
            io: VecDeque::new(),
        }
    }

    pub(super) fn config(&self) -> &ServerConfig {
        &self.config
    }

    pub(super) fn state(&self) -> ServerState {
        match self.state {
            State::Idle => ServerState::Idle,
            State::Opening => ServerState::Opening,
            State::Ready => ServerState::Ready,
            State::Resting(until, _) => ServerState::Resting { until },
            State::Closed => ServerState::Closed,
        }
    }

    /// What the server said of itself; while it is connected.
    pub(super) fn facts(&self) -> Option<&ServerFacts> {
        self.line.as_ref().and_then(|line| line.peer.facts())
    }

    /// The same once it is ready; `None` while that is under way.
    pub(super) fn met(&self, now: Now) -> Result<Option<&ServerFacts>, UpstreamError> {
        match (self.state, &self.last_error) {
            (State::Ready, _) => Ok(self.facts()),
            (State::Resting(until, false), last) => {
                let left = until.since(now.up);
                Err(explain::resting(&self.config, last.as_ref(), left))
            }
            (State::Idle, Some(error)) => Err(error.clone()),
            (State::Closed, _) => Err(explain::disposed(&self.config)),
            (State::Idle, None) | (State::Opening | State::Resting(_, true), _) => Ok(None),
        }
    }

    pub(super) fn last_error(&self) -> Option<&UpstreamError> {
        self.last_error.as_ref()
    }

    /// Jobs that have not been answered.
    pub(super) fn busy(&self) -> bool {
        !self.waiting.is_empty() || self.open.values().any(|job| job.ticket.is_some())
    }

    /// Closed, and everything it had started has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.state == State::Closed && self.ending.is_empty()
    }

    /// Its tools are being fetched, or will be before anything else is known of them.
    pub(super) fn is_settling(&self) -> bool {
        self.state == State::Opening || self.listing
    }

    /// Connected, with nothing of its own to find out first, and to be kept so: [`connect`](Self::connect)
    /// would change nothing.
    pub(super) fn is_at_work(&self) -> bool {
        self.state == State::Ready && self.wanted && !self.listing && !self.retired
    }

    /// Connects. `keep_trying`: after a failure too, until it is told otherwise.
    pub(super) fn connect(&mut self, turn: &mut Turn<'_>, keep_trying: bool) {
        self.wanted |= keep_trying && !self.retired;
        self.wake(turn.now);
        if self.state == State::Idle && !self.retired {
            self.begin(turn);
        }
    }

    /// Its tools are not fetched by themselves, or are again; those that were left are fetched now.
    pub(super) fn leave_tools(&mut self, turn: &mut Turn<'_>, leave: bool) {
        let were_left = self.state == State::Ready && self.leaves_tools();
        self.tools_left = leave;
        if were_left && !leave {
            self.list_tools(turn);
        }
    }

    /// Takes a job, or says at once why not.
    pub(super) fn submit(
        &mut self,
        turn: &mut Turn<'_>,
        mut job: Job,
    ) -> Result<(), UpstreamError> {
        if self.state == State::Closed || self.retired {
            return Err(explain::disposed(&self.config));
        }
        self.wake(turn.now);
        if let Some((until, why)) = self.hold.as_ref().filter(|(until, _)| *until > turn.now.up) {
            let left = until.since(turn.now.up);
            return Err(explain::resting(&self.config, Some(why), left));
        }
        if let State::Resting(until, false) = self.state {
            return Err(explain::resting(
                &self.config,
                self.last_error.as_ref(),
                until.since(turn.now.up),
            ));
        }
        let (value, limit) = (
            self.waiting.len() + self.open.len(),
            self.limits.upstream_requests_open_max,
        );
        if value >= limit {
            return Err(explain::busy(&self.config, value, limit));
        }
        // A list that cannot be had is no reason to refuse calls.
        let is_list = matches!(job.work, Work::List { .. });
        if job.ticket.is_some() && !is_list {
            let pass = self.pause.ask(turn.now);
            job.pass = Some(pass.map_err(|left| explain::paused(&self.config, left.retry_in))?);
        }
        if is_list {
            job.until = Some(turn.now.after(self.config.times.list));
        }
        self.waiting.push_back(job);
        if self.state == State::Idle {
            self.begin(turn);
        }
        self.pump(turn);
        Ok(())
    }

    /// Nobody waits for this job any more.
    pub(super) fn cancel(&mut self, turn: &mut Turn<'_>, ticket: TicketId, reason: &str) {
        let waiting = self
            .waiting
            .iter()
            .position(|job| job.ticket == Some(ticket));
        if let Some(job) = waiting.and_then(|at| self.waiting.remove(at)) {
            self.judge(turn.now, &job, Verdict::None);
            self.close_if_done(turn);
        }
        let sent = self
            .open
            .iter()
            .find(|(_, job)| job.ticket == Some(ticket))
            .map(|(id, _)| *id);
        if let (Some(id), Some(line)) = (sent, &mut self.line) {
            line.peer.cancel(turn.now, id, reason);
            self.drain(turn);
        }
    }

    /// The answer to a question of the server.
    pub(super) fn answer(
        &mut self,
        turn: &mut Turn<'_>,
        question: QuestionId,
        answer: Result<&str, RpcError>,
    ) {
        self.questions.remove(&question);
        if let Some(line) = &mut self.line {
            line.peer.answer(turn.now, question, answer);
            self.drain(turn);
        }
    }

    /// A message to the server that has no answer.
    pub(super) fn notify(&mut self, turn: &mut Turn<'_>, method: &str, params: Option<&str>) {
        if self.state == State::Opening {
            let limit = self.limits.notifications_held_max;
            return self.wishes.hold_notice(method, params, limit);
        }
        if let Some(line) = &mut self.line {
            line.peer.notify(turn.now, method, params);
            self.drain(turn);
        }
    }

    /// Lets go of the connection because nobody has used it for a while.
    pub(super) fn rest(&mut self, turn: &mut Turn<'_>) {
        self.wanted = false;
        if !self.busy() && self.state != State::Closed {
            self.drop_own_jobs();
            self.hang_up(turn);
            self.become_(State::Idle);
        }
    }

    /// Nobody waits for a walk of our own.
    fn drop_own_jobs(&mut self) {
        self.open.retain(|_, job| job.ticket.is_some());
        self.listing = false;
    }

    /// Takes no new jobs, and is closed when those it has are done: its record has changed.
    pub(super) fn retire(&mut self, turn: &mut Turn<'_>) {
        self.retired = true;
        self.wanted = false;
        self.wishes.want_no_topics();
        self.close_if_done(turn);
    }

    /// Ends it for good. Jobs are answered at once; the link takes its bounded time.
    pub(super) fn close(&mut self, turn: &mut Turn<'_>) {
        if self.state == State::Closed {
            return;
        }
        self.drop_own_jobs();
        let error = explain::disposed(&self.config);
        self.fail_all(turn.now, &error, Verdict::None);
        self.hang_up(turn);
        self.become_(State::Closed);
    }

    pub(super) fn handle_io(&mut self, turn: &mut Turn<'_>, wire: WireId, event: IoEvent<'_>) {
        let now = turn.now;
        // Only the link that has minted the wire takes notice.
        if let Some(link) = self.link_of(wire) {
            link.handle_io(now, wire, event, turn.wires);
        }
        self.drain(turn);
    }

    /// All that waited for a wire has left: of interest to its link, which has nothing to say then.
    pub(super) fn handle_drained(&mut self, now: Now, wire: WireId, wires: &mut WireMint) {
        if let Some(link) = self.link_of(wire) {
            link.handle_io(now, wire, IoEvent::Drained, wires);
        }
    }

    pub(super) fn handle_timeout(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        if let Some(line) = &mut self.line {
            line.link.handle_timeout(now, turn.wires);
            line.peer.handle_timeout(now);
        }
        for link in &mut self.ending {
            link.handle_timeout(now, turn.wires);
        }
        let rested = self.wake(now);
        if rested && (self.is_wanted() || !self.waiting.is_empty()) {
            self.begin(turn);
        }
        if self.renew_by.is_some_and(|at| at <= now.up) {
            self.renew(turn);
        }
        if self.lists.handle_timeout(now) {
            self.list_tools(turn);
        }
        self.drain(turn);
    }

    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let resting = match self.state {
            State::Resting(until, waits)
                if self.is_wanted() || (waits && !self.waiting.is_empty()) =>
            {
                Some(Deadline::new(until, "next try of an upstream server"))
            }
            State::Resting(..) | State::Idle | State::Opening | State::Ready | State::Closed => {
                None
            }
        };
        let line = self.line.as_ref();
        let ending = self.ending.iter().map(UpstreamLink::next_deadline);
        let renewal = self
            .renew_by
            .map(|at| Deadline::new(at, "renewal of a lost session"));
        let first = Deadline::earlier(resting, renewal);
        let first = Deadline::earlier(first, self.lists.next_deadline());
        let first = match line {
            Some(line) => {
                let first = Deadline::earlier(first, line.link.next_deadline());
                Deadline::earlier(first, line.peer.next_deadline())
            }
            None => first,
        };
        ending.fold(first, Deadline::earlier)
    }

    pub(super) fn poll_output(&mut self) -> Option<UpstreamOutput> {
        let next = self.outputs.pop_front();
        next.or_else(|| self.noise.take().map(UpstreamOutput::Noise))
    }

    pub(super) fn poll_io(&mut self) -> Option<IoRequest> {
        self.io.pop_front()
    }

    pub(super) fn outgoing(&mut self, wire: WireId) -> Option<&mut OutBuf> {
        self.link_of(wire)?.outgoing(wire)
    }

    fn link_of(&mut self, wire: WireId) -> Option<&mut UpstreamLink> {
        let line = self.line.as_mut().map(|line| &mut line.link);
        line.into_iter()
            .chain(&mut self.ending)
            .find_map(|link| link.outgoing(wire).is_some().then_some(link))
    }

    /// Ends a rest whose time is over; whether there was one.
    fn wake(&mut self, now: Now) -> bool {
        let over = matches!(self.state, State::Resting(until, _) if until <= now.up);
        if over {
            self.become_(State::Idle);
        }
        over
    }

    /// Whether it is to be ready although nothing waits for it.
    fn is_wanted(&self) -> bool {
        self.wanted || self.wishes.has_subscriptions()
    }

    fn become_(&mut self, state: State) {
        if self.state != state {
            self.state = state;
            self.outputs.push_back(UpstreamOutput::StateChanged);
        }
    }

    /// Opens a connection, unless a process must end first.
    fn begin(&mut self, turn: &mut Turn<'_>) {
        self.become_(State::Opening);
        self.held = self.ending.iter().any(UpstreamLink::is_process);
        if self.held {
            return;
        }
        let older_pair = self.known.is_some_and(|known| known.older_pair);
        self.open_line(turn, older_pair);
    }

    fn open_line(&mut self, turn: &mut Turn<'_>, older_pair: bool) {
        let mut link = link_to(&self.config, older_pair, &self.limits);
        let by_handshake = self
            .dies_of_probe
            .then_some(Revision::NEWEST_WITH_HANDSHAKE);
        let mut peer = ClientPeer::new(
            PeerConfig {
                identity: self.face.identity.clone(),
                capabilities: self.face.capabilities.clone(),
                choice: self.config.protocol,
                known: self.known.map(|known| known.revision).or(by_handshake),
                carrier: link.carrier(),
                discover_timeout: self.config.times.discover,
                connect_timeout: self.config.times.connect,
                first_own_id: turn.mint_many(OWN_IDS),
                // Its own requests, such as subscriptions, have the time of those that are passed on.
                limits: Limits {
                    request_timeout: self.config.times.request,
                    ..self.limits.clone()
                },
            },
            turn.now,
        );
        self.wishes.tell(turn.now, &mut peer);
        link.start(turn.now, turn.wires);
        self.line = Some(Line {
            link,
            peer,
            gone: false,
        });
        self.drain(turn);
    }

    /// Hands over everything that either side has for the other, until there is nothing left.
    fn drain(&mut self, turn: &mut Turn<'_>) {
        loop {
            self.drain_ending(turn);
            let Some(line) = &mut self.line else { break };
            if let Some(event) = line.link.poll_event() {
                self.handle_link(turn, event);
            } else if let Some(output) = line.peer.poll() {
                self.handle_peer(turn, output);
            } else {
                break;
            }
        }
        if let Some(line) = &mut self.line {
            while let Some(request) = line.link.poll_io() {
                self.io.push_back(request);
            }
        }
        self.close_if_done(turn);
    }

    fn drain_ending(&mut self, turn: &mut Turn<'_>) {
        let io = &mut self.io;
        self.ending.retain_mut(|link| {
            let mut alive = true;
            while let Some(event) = link.poll_event() {
                alive &= !matches!(event, UpstreamEvent::Closed(_));
            }
            while let Some(request) = link.poll_io() {
                io.push_back(request);
            }
            alive
        });
        if self.held
            && self.state == State::Opening
            && !self.ending.iter().any(UpstreamLink::is_process)
        {
            self.begin(turn);
        }
    }

    fn handle_link(&mut self, turn: &mut Turn<'_>, event: UpstreamEvent) {
        let Some(line) = &mut self.line else { return };
        match event {
            UpstreamEvent::Up => line.peer.handle_up(turn.now),
            UpstreamEvent::Message { text, on, answer } => match answer {
                Some(places) => line.peer.handle_answer(turn.now, &text, &places, on),
                None => line.peer.handle_text(turn.now, &text, on),
            },
            UpstreamEvent::Unreadable { why, sample, on: _ } => {
                line.peer.handle_unreadable(turn.now, &why, &sample);
            }
            UpstreamEvent::RequestEnded { id, end } => line.peer.handle_end(turn.now, id, end),
            UpstreamEvent::Resuming { id: _, why } => {
                log::debug!("server {}: {why}", explain::name(&self.config));
            }
            UpstreamEvent::Remark { why } => {
                let diagnostic = explain::odd_answer(&self.config, &why);
                self.outputs
                    .push_back(UpstreamOutput::Diagnostic(diagnostic));
            }
            // Why it ended is known; that it has ended is for whoever waits for its process.
            UpstreamEvent::Ending(reason) => self.handle_closed(turn, &reason),
            UpstreamEvent::Closed(reason) => {
                line.gone = true;
                self.handle_closed(turn, &reason);
            }
        }
    }

    fn handle_peer(&mut self, turn: &mut Turn<'_>, output: PeerOutput) {
        match output {
            PeerOutput::Send(message) => self.send(turn, message),
            PeerOutput::Forget(id) => {
                if let Some(line) = &mut self.line {
                    line.link.forget(turn.now, id, turn.wires);
                }
            }
            PeerOutput::Ready => self.handle_ready(turn),
            PeerOutput::Failed(fault) => self.handle_failed(turn, &fault),
            PeerOutput::TryOlderPair => {
                let refusal = self.line.as_ref().and_then(|line| line.peer.refusal());
                self.refusal = refusal.map(|fault| explain::connect(&self.config, "", fault));
                self.hang_up(turn);
                self.open_line(turn, true);
            }
            PeerOutput::Response { id, outcome } => self.handle_response(turn, id, outcome),
            PeerOutput::Progress { id, params } => {
                if let Some(ticket) = self.ticket_of(Some(id)) {
                    self.outputs
                        .push_back(UpstreamOutput::Progress { ticket, params });
                }
            }
            PeerOutput::Notification { method, params, on } => {
                let ticket = self.ticket_of(on);
                self.outputs.push_back(UpstreamOutput::Notification {
                    method,
                    params,
                    ticket,
                });
            }
            PeerOutput::Subscribed { topic, outcome } => {
                self.handle_subscribed(turn, topic, outcome);
            }
            PeerOutput::ListChanged(ListKind::Tools) if !self.leaves_tools() => {
                if self.lists.handle_changed(turn.now) {
                    let diagnostic = explain::undeclared_change(&self.config);
                    self.outputs
                        .push_back(UpstreamOutput::Diagnostic(diagnostic));
                }
            }
            PeerOutput::ListChanged(kind) => {
                self.outputs.push_back(UpstreamOutput::ListChanged(kind));
            }
            PeerOutput::Question {
                id,
                method,
                params,
                on,
            } => {
                let ticket = self.ticket_of_question(on);
                self.questions.insert(id);
                self.outputs.push_back(UpstreamOutput::Question {
                    id,
                    method,
                    params,
                    ticket,
                });
            }
            PeerOutput::QuestionGone(id) => {
                self.questions.remove(&id);
                self.outputs.push_back(UpstreamOutput::QuestionGone(id));
            }
            PeerOutput::Undeclared { method } => {
                let diagnostic = explain::undeclared_question(&self.config, method);
                self.outputs
                    .push_back(UpstreamOutput::Diagnostic(diagnostic));
            }
            PeerOutput::Noise { why, sample } => match &mut self.noise {
                // A server that prints a thousand lines at once is one thing to be told of.
                Some(noise) => noise.count += 1,
                None => {
                    self.noise = Some(Noise {
                        why,
                        sample,
                        count: 1,
                    });
                }
            },
        }
    }
}
