//! The jobs of one upstream: sent when they may be, answered once, sent again only when they never ran.

use std::borrow::Cow;

use super::*;

impl Upstream {
    /// Sends what waits and may go. One that fails on its way brings the next one here again: the loop that is
    /// at work takes that, so that many that fail do not nest.
    pub(super) fn pump(&mut self, turn: &mut Turn<'_>) {
        if std::mem::replace(&mut self.pumping, true) {
            return;
        }
        while self.state == State::Ready && self.renew_by.is_none() {
            let Some(next) = self.next_sendable() else {
                break;
            };
            let Some(job) = self.waiting.remove(next) else {
                break;
            };
            self.start(turn, job);
            self.drain(turn);
        }
        self.pumping = false;
    }

    /// Calls of a server that takes one at a time wait for each other; nothing else does, and no call that is
    /// passed on.
    fn next_sendable(&self) -> Option<usize> {
        let waits = |job: &Job| {
            let passed_on = job.options.bridged && !self.config.serial;
            matches!(job.work, Work::Call { .. }) && !passed_on
        };
        let one_at_a_time = || !self.config.parallel && self.open.values().any(waits);
        self.waiting
            .iter()
            .position(|job| !(waits(job) && one_at_a_time()))
    }

    fn start(&mut self, turn: &mut Turn<'_>, job: Job) {
        let id = turn.mint();
        let now = turn.now;
        let times = &self.config.times;
        let Some(line) = &mut self.line else { return };
        let mut timeout = job.options.timeout.unwrap_or(times.request);
        let mut opaque: Option<&str> = None;
        let (method, params, mut headers): (Cow<'static, str>, Option<&str>, _) = match &job.work {
            Work::Call {
                params,
                arguments,
                headers,
            } => {
                opaque = Some(arguments);
                ("tools/call".into(), Some(params), headers.clone())
            }
            Work::Request { method, params } => (method.clone(), params.as_deref(), Vec::new()),
            Work::Task { params } => ("tasks/get".into(), Some(params), Vec::new()),
            Work::List { walk, page } => {
                timeout = job.until.map_or(times.list, |until| until.since(now.up));
                (walk.list().method().into(), page.as_deref(), Vec::new())
            }
        };
        headers.extend_from_slice(&job.options.headers);
        let spec = RequestSpec {
            method,
            params,
            opaque,
            timeout,
            total: times.total,
            wants_progress: job.options.wants_progress || times.total.is_some(),
            headers,
            raw_questions: job.options.raw_questions,
            capabilities: job.options.capabilities.as_deref(),
        };
        line.peer.request(now, id, spec);
        self.open.insert(id, job);
    }

    /// Hands a message of the peer to the link. A server that does not read fails the request at hand.
    pub(super) fn send(&mut self, turn: &mut Turn<'_>, message: Outgoing) {
        let Some(line) = &mut self.line else { return };
        let id = match &message.kind {
            OutgoingKind::Request { id, .. } => Some(*id),
            OutgoingKind::Notification { .. } | OutgoingKind::Answer => None,
        };
        if let Err(full) = line.link.send(turn.now, &message, turn.wires) {
            let end = RequestEnd::NotReading {
                value: full.value,
                limit: full.limit,
            };
            match id {
                Some(id) => line.peer.handle_end(turn.now, id, end),
                None => log::debug!(
                    "server {}: a notification was dropped: it is not reading",
                    explain::name(&self.config)
                ),
            }
        }
        line.peer.recycle(message);
    }

    pub(super) fn handle_response(
        &mut self,
        turn: &mut Turn<'_>,
        id: UpstreamRequestId,
        outcome: Result<SharedText, CallFault>,
    ) {
        let Some(mut job) = self.open.remove(&id) else {
            return;
        };
        match outcome {
            Ok(result) => {
                self.judge(turn.now, &job, Verdict::Success);
                match job.work {
                    Work::List { mut walk, .. } => match walk.take(&result) {
                        WalkStep::Next(params) => {
                            let page = Some(params);
                            job.work = Work::List { walk, page };
                            self.start(turn, job);
                        }
                        WalkStep::Done => self.end_walk(turn.now, job.ticket, Ok(*walk)),
                    },
                    Work::Task { .. } => self.handle_task(&result),
                    Work::Call { .. } | Work::Request { .. } => self.reply(job.ticket, Ok(result)),
                }
            }
            Err(CallFault::End(RequestEnd::NotSent(_))) if !job.resent => {
                job.resent = true;
                self.waiting.push_front(job);
            }
            Err(CallFault::End(RequestEnd::SessionLost { .. })) if !job.resent => {
                // The next session lists its tools anyway.
                if job.ticket.is_some() {
                    job.resent = true;
                    self.waiting.push_front(job);
                }
                self.renew_soon(turn.now);
            }
            Err(fault) => {
                let fault = self.named(&job, fault);
                let mut error = explain::call(&self.config, self.stderr_tail(), &fault);
                if matches!(job.work, Work::List { .. }) {
                    error.phase = Phase::List;
                }
                self.leave_alone(turn.now, &error);
                let answered = matches!(fault, CallFault::Remote(_));
                let verdict = match answered && job.options.bridged {
                    true => Verdict::Success,
                    false => Verdict::of(&error),
                };
                self.fail(turn.now, job, error, verdict);
                let doubtful = matches!(
                    fault,
                    CallFault::End(RequestEnd::SessionDoubtful(_) | RequestEnd::SessionLost { .. })
                );
                if doubtful {
                    self.renew_soon(turn.now);
                }
            }
        }
        if self.renew_by.is_some() && self.open.is_empty() {
            self.renew(turn);
        }
        self.pump(turn);
    }

    /// A time-out in the words of whoever asked: the method, and the limit of the whole walk over a list
    /// where the peer knows what was left of it.
    fn named(&self, job: &Job, fault: CallFault) -> CallFault {
        match (&job.work, fault) {
            (Work::List { walk, .. }, CallFault::TimedOut { .. }) => CallFault::TimedOut {
                what: walk.list().method(),
                limit: self.config.times.list,
            },
            (
                Work::Call { .. },
                CallFault::TimedOut {
                    what: "request",
                    limit,
                },
            ) => CallFault::TimedOut {
                what: "tools/call",
                limit,
            },
            (_, fault) => fault,
        }
    }

    /// How a job ended, for the failure pause.
    pub(super) fn judge(&mut self, now: Now, job: &Job, verdict: Verdict) {
        let Some(pass) = job.pass else { return };
        if let Some(pause) = self.pause.ended(now, pass, verdict) {
            let diagnostic = explain::pause_begins(&self.config, pause);
            self.outputs
                .push_back(UpstreamOutput::Diagnostic(diagnostic));
        }
    }

    /// A server that says when to come back is not asked before. A wait beyond what we wait ourselves is cut.
    fn leave_alone(&mut self, now: Now, error: &UpstreamError) {
        if let (FailureKind::Unavailable, Some(ms)) = (error.kind, error.facts.retry_in_ms) {
            let wait = Duration::from_millis(ms).min(self.limits.reconnect_most_interval);
            self.hold = Some((now.after(wait), error.clone()));
        }
    }

    /// The session is gone. What else is open in it has left at about the same time: refused in the same way
    /// it can be sent again, where now it would have to be given up.
    fn renew_soon(&mut self, now: Now) {
        let until = now.after(self.limits.session_renew_timeout);
        self.renew_by.get_or_insert(until);
    }

    /// The session is gone and with it whatever was open in it: begins a new one, on the same server.
    pub(super) fn renew(&mut self, turn: &mut Turn<'_>) {
        let reason = UpstreamClosed::Io(IoFault {
            kind: FaultKind::Broken,
            message: "session was lost: the server no longer knows it; the request may have run"
                .to_owned(),
        });
        self.handle_closed(turn, &reason);
    }

    pub(super) fn handle_ready(&mut self, turn: &mut Turn<'_>) {
        let Some(line) = &self.line else { return };
        self.known = line.peer.facts().map(|facts| Known {
            revision: facts.revision,
            older_pair: line.link.carrier() == Carrier::Sse,
        });
        self.backoff.succeeded(turn.now);
        self.ready_since = turn.now.up;
        self.last_error = None;
        self.refusal = None;
        self.hold = None;
        let declared = self
            .facts()
            .is_some_and(|facts| facts.declares_changes(ListKind::Tools));
        self.lists = ListChanges::new(declared, &self.limits);
        self.become_(State::Ready);
        self.send_notices(turn);
        if !self.leaves_tools() {
            self.list_tools(turn);
        }
        self.pump(turn);
    }

    /// The conversation could not begin.
    pub(super) fn handle_failed(&mut self, turn: &mut Turn<'_>, fault: &ConnectFault) {
        let error = explain::connect(&self.config, self.stderr_tail(), fault);
        self.rest_after(turn, error);
    }

    fn rest_after(&mut self, turn: &mut Turn<'_>, mut error: UpstreamError) {
        let asked = error
            .facts
            .retry_in_ms
            .filter(|_| error.kind == FailureKind::Unavailable);
        let asked =
            Duration::from_millis(asked.unwrap_or(0)).min(self.limits.reconnect_most_interval);
        let wait = self.backoff.failed(turn.now, turn.entropy).max(asked);
        error.facts.retry_in_ms = u64::try_from(wait.as_millis()).ok();
        self.hang_up(turn);
        self.known = None;
        if let Some(mut first) = self.refusal.take() {
            first.message = format!("{}; the older pair: {}", first.message, error.message);
            first.facts.retry_in_ms = error.facts.retry_in_ms;
            error = first;
        }
        self.last_error = Some(error.clone());
        // Back-off sees to it: a failed start is not a failed request, however many waited for it.
        self.fail_all(turn.now, &error, Verdict::None);
        self.fail_subscriptions(&error);
        self.become_(State::Resting(turn.now.after(wait), false));
        self.outputs.push_back(UpstreamOutput::ConnectFailed(error));
    }

    /// The link is gone.
    pub(super) fn handle_closed(&mut self, turn: &mut Turn<'_>, reason: &UpstreamClosed) {
        let tail = self.stderr_tail().to_owned();
        if self.state == State::Opening && self.has_died_of_probe(reason) {
            self.dies_of_probe = true;
            self.hang_up(turn);
            return self.begin(turn);
        }
        if self.state == State::Opening {
            let error = explain::closed(&self.config, &tail, reason, self.opening_phase());
            return self.rest_after(turn, error);
        }
        let error = explain::closed(&self.config, &tail, reason, Phase::Call);
        self.hang_up(turn);
        self.last_error = Some(error.clone());
        let lost = self.take_open();
        // One death is one failure, however many requests were open.
        let judged = lost
            .iter()
            .position(|job| job.pass.is_some_and(Pass::is_probe))
            .or_else(|| lost.iter().position(|job| job.pass.is_some()));
        for (at, job) in lost.into_iter().enumerate() {
            let verdict = match Some(at) == judged {
                true => Verdict::of(&error),
                false => Verdict::None,
            };
            self.fail(turn.now, job, error.clone(), verdict);
        }
        self.listing = false;
        // It has worked, so the next use is not made to wait, unless it keeps dying.
        if turn.now.up.since(self.ready_since) >= self.limits.reconnect_good_interval {
            self.deaths = 0;
        }
        self.deaths += 1;
        let wait = self.backoff.failed(turn.now, turn.entropy);
        if self.deaths > 1 {
            return self.become_(State::Resting(turn.now.after(wait), true));
        }
        self.become_(State::Idle);
        if !self.waiting.is_empty() || self.wishes.has_subscriptions() {
            self.begin(turn);
        }
    }

    /// Some servers of the handshake end when they are asked something they do not know. One is asked that
    /// once. Spec: 2026-07-28 basic/transports/stdio (backward compatibility).
    fn has_died_of_probe(&self, reason: &UpstreamClosed) -> bool {
        let died = match reason {
            UpstreamClosed::Exited(_)
            | UpstreamClosed::OutputEnded { .. }
            | UpstreamClosed::Violation(_) => true,
            UpstreamClosed::Io(fault) => fault.kind == FaultKind::Broken,
            UpstreamClosed::Local
            | UpstreamClosed::Refused { .. }
            | UpstreamClosed::NotReading { .. }
            | UpstreamClosed::SessionLost(_) => false,
        };
        let probing = self.line.as_ref().is_some_and(|line| {
            line.link.carrier() == Carrier::Lines
                && explain::phase_of(line.peer.opening_method()) == Phase::Discover
        });
        died && probing && !self.dies_of_probe && self.config.protocol == EraChoice::Auto
    }

    fn opening_phase(&self) -> Phase {
        self.line.as_ref().map_or(Phase::Connect, |line| {
            explain::phase_of(line.peer.opening_method())
        })
    }

    /// Arguments of calls travel in headers too, and the tools say which.
    fn mirrors(&self) -> bool {
        self.line.as_ref().is_some_and(|line| {
            let facts = line.peer.facts();
            facts.is_some_and(|facts| facts.revision.is_stateless())
                && line.link.carrier() == Carrier::Http
        })
    }

    /// Nobody here needs to know the tools.
    pub(super) fn leaves_tools(&self) -> bool {
        self.tools_left && !self.mirrors()
    }

    pub(in crate::manager) fn list_tools(&mut self, turn: &mut Turn<'_>) {
        if self.state != State::Ready {
            return;
        }
        // Servers that declare nothing at all, and have tools, are around. OpenClaw asks them too.
        let has = |list| self.facts().is_some_and(|facts| facts.has(list));
        if !has(ListKind::Tools) && ListKind::ALL.into_iter().any(has) {
            let none = Listed {
                entries: Vec::new(),
                mirrored: false,
            };
            return self.outputs.push_back(UpstreamOutput::Tools(Ok(none)));
        }
        self.listing = true;
        self.lists.walk_begun();
        let walk = ListWalk::new(&self.config.key, PagedList::Tools, &self.limits).into();
        let work = Work::List { walk, page: None };
        let mut job = Job::new(None, work, Options::default());
        job.until = Some(turn.now.after(self.config.times.list));
        self.waiting.push_back(job);
        self.pump(turn);
    }

    fn end_walk(
        &mut self,
        now: Now,
        ticket: Option<TicketId>,
        outcome: Result<ListWalk, UpstreamError>,
    ) {
        let outcome = outcome.map(ListWalk::end).map(|(entries, said)| {
            let said = said.into_iter().map(UpstreamOutput::Diagnostic);
            self.outputs.extend(said);
            entries
        });
        let Some(ticket) = ticket else {
            let declared = self.facts().is_some_and(|facts| facts.has(ListKind::Tools));
            let outcome = match outcome {
                Err(error) if !declared && error.code() == -32_601 => Ok(Vec::new()),
                outcome => outcome,
            };
            self.listing = false;
            self.lists.walk_over(now);
            // A server that does not say what it has is of no use, whatever its connection is like.
            self.last_error = outcome.as_ref().err().cloned();
            let mirrored = self.mirrors();
            let listed = outcome.map(|entries| Listed { entries, mirrored });
            return self.outputs.push_back(UpstreamOutput::Tools(listed));
        };
        let outcome = outcome.map(|entries| format!("[{}]", entries.join(",")).into());
        self.outputs
            .push_back(UpstreamOutput::Answer { ticket, outcome });
    }

    fn fail(&mut self, now: Now, job: Job, error: UpstreamError, verdict: Verdict) {
        self.judge(now, &job, verdict);
        match job.work {
            Work::List { .. } => self.end_walk(now, job.ticket, Err(error)),
            Work::Task { .. } => {
                let diagnostic = UpstreamOutput::Diagnostic(explain::diagnostic(&error));
                self.outputs.push_back(diagnostic);
            }
            Work::Call { .. } | Work::Request { .. } => self.reply(job.ticket, Err(error)),
        }
    }

    /// What has been sent, oldest first; nothing is open afterwards.
    fn take_open(&mut self) -> Vec<Job> {
        let mut ids: Vec<_> = self.open.keys().copied().collect();
        ids.sort_unstable();
        ids.iter().filter_map(|id| self.open.remove(id)).collect()
    }

    fn reply(&mut self, ticket: Option<TicketId>, outcome: Result<SharedText, UpstreamError>) {
        if let Some(ticket) = ticket {
            self.outputs
                .push_back(UpstreamOutput::Answer { ticket, outcome });
        }
    }

    pub(super) fn fail_all(&mut self, now: Now, error: &UpstreamError, verdict: Verdict) {
        let open = self.take_open().into_iter();
        for job in open.chain(std::mem::take(&mut self.waiting)) {
            self.fail(now, job, error.clone(), verdict);
        }
    }

    /// Begins the end of the connection, if there is one.
    pub(super) fn hang_up(&mut self, turn: &mut Turn<'_>) {
        let Some(mut line) = self.line.take() else {
            return;
        };
        self.renew_by = None;
        let gone = std::mem::take(&mut self.questions);
        self.outputs
            .extend(gone.into_iter().map(UpstreamOutput::QuestionGone));
        if !line.gone {
            line.link.close(turn.now, turn.wires);
        }
        while let Some(request) = line.link.poll_io() {
            self.io.push_back(request);
        }
        if !line.gone {
            self.ending.push(line.link);
            self.drain_ending(turn);
        }
    }

    pub(super) fn close_if_done(&mut self, turn: &mut Turn<'_>) {
        if self.retired && !self.busy() {
            self.close(turn);
        }
    }

    pub(super) fn ticket_of(&self, id: Option<UpstreamRequestId>) -> Option<TicketId> {
        self.open.get(&id?).and_then(|job| job.ticket)
    }

    /// For whose sake the server asks something. Lines do not say it: then it is the one request that is open.
    pub(super) fn ticket_of_question(&self, id: Option<UpstreamRequestId>) -> Option<TicketId> {
        if id.is_some() {
            return self.ticket_of(id);
        }
        let mut open = self.open.values().filter_map(|job| job.ticket);
        open.next().filter(|_| open.next().is_none())
    }

    pub(super) fn stderr_tail(&self) -> &str {
        self.line
            .as_ref()
            .map_or("", |line| line.link.stderr_tail())
    }
}
