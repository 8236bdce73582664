//! How work ends: a client that is done, a signal, a Gateway that will not have us.

use std::time::Duration;

use super::doors::LineClient;
use super::http::HttpFront;
use super::ledger::Place;
use super::{Hub, HubEvent, Outcome, Owner};
use crate::clock::{Deadline, Now, Uptime};
use crate::diagnostic::{Diagnostic, Subject};
use crate::ids::PeerId;
use crate::link::IoRequest;
use crate::protocol::message::ToolResult;

impl Hub {
    /// Begins the end: open calls are answered, nothing new is started.
    pub(super) fn end(&mut self, now: Now, outcome: Outcome) {
        if self.ending.is_some() {
            if outcome == Outcome::Stopped {
                self.wind_down(now, true);
            }
            return;
        }
        let why = why(&outcome);
        let stopped = outcome == Outcome::Stopped;
        self.ending = Some((outcome, now.after(self.limits.shutdown_timeout)));
        // While the bridge still tells the Gateway that nobody need approve them any more.
        for call in self.ledger.at(Place::Gate) {
            self.gate.cancel(call);
            self.answer(now, call, &ToolResult::error(&why));
        }
        self.step_holds(now);
        if stopped {
            self.bridge.wind_down(&why);
        } else {
            self.bridge.close(&why);
        }
        // The rest of it is for the errors of those that get no answer: they have to leave, too.
        let limit = u64::try_from(self.limits.shutdown_timeout.as_millis()).unwrap_or(u64::MAX);
        let patience = Duration::from_millis(limit / 4 * 3 + limit % 4 * 3 / 4);
        self.winding_down = Some(now.after(patience));
        for (call, mut run) in std::mem::take(&mut self.hooks) {
            run.abandon();
            while let Some(request) = run.poll_io() {
                self.io.push_back(request);
            }
            self.wires.retain(|_, owner| *owner != Owner::Hook(call));
        }
        self.drop_parked_calls(now, &why);
        self.refuse_openings(now, &why);
        self.end_http_streams(now);
        self.http.begin_end(&mut self.io);
        self.sockets.begin_end(&mut self.io);
        if let Some(local) = &mut self.local {
            local.desk.close(now, &why);
        }
        if let (Some(side), false) = (&mut self.upstream, stopped) {
            side.manager.close(now);
        }
    }

    /// Lets go of the Gateway once it owes no answer any more, or its time is up, or `at_once`. Says whether
    /// anything moved.
    fn wind_down(&mut self, now: Now, at_once: bool) -> bool {
        let (Some((outcome, _)), Some(until)) = (&self.ending, self.winding_down) else {
            return false;
        };
        let owes = [
            Place::Bridge,
            Place::Upstream,
            Place::UpstreamRead,
            Place::UpstreamOther,
        ]
        .iter()
        .any(|place| !self.ledger.at(*place).is_empty());
        if owes && !at_once && until > now.up {
            return false;
        }
        self.winding_down = None;
        self.bridge.close(&why(outcome));
        if let Some(gateway) = &mut self.gateway {
            gateway.session.shutdown(now);
        }
        if let Some(side) = &mut self.upstream {
            side.manager.close(now);
        }
        true
    }

    /// A client that has ended its input waits for us to end: what has no answer by now gets an error. One
    /// that still reads what waits for it gets all of it; one that reads nothing for `shutdown_timeout` is
    /// dropped with what waits.
    pub(super) fn hurry_ended_clients(&mut self, now: Now) {
        let limit = self.limits.input_ended_timeout;
        for id in self.leaving.iter().copied().collect::<Vec<PeerId>>() {
            let Some(client) = self.lines.get_mut(&id) else {
                continue;
            };
            if client.leave_by.is_none_or(|at| at > now.up) {
                continue;
            }
            client.leave_by = Some(now.after(self.limits.shutdown_timeout));
            let calls = self.ledger.of_peer(id);
            let waits = client.link.outgoing().len();
            if calls.is_empty() && client.unread.is_some_and(|before| before <= waits) {
                client.link.handle_write_closed();
                client.failed = true;
                let level = client.loss_level();
                let message = format!(
                    "{waits} bytes of answers are lost: the client has ended its input and read nothing for {} ms, limit shutdown_timeout_ms",
                    self.limits.shutdown_timeout.as_millis()
                );
                self.diagnose(Diagnostic::new(level, Subject::Downstream, message));
                continue;
            }
            let text = format!(
                "no answer within {} ms after the end of input, limit input_ended_timeout_ms; it may have been done",
                limit.as_millis()
            );
            for call in calls {
                let Some(entry) = self.ledger.entry(call) else {
                    continue;
                };
                if entry.place == Place::Opening {
                    self.refuse_opening_call(now, call, &text);
                } else {
                    self.stop_work(now, call, entry.place);
                    self.answer(now, call, &ToolResult::error(&text));
                }
            }
            if let Some(client) = self.lines.get_mut(&id) {
                client.unread = Some(client.link.outgoing().len());
            }
        }
    }

    /// A client that has ended its input gets its last answers, and then the hub is done with it.
    /// Says whether anything moved.
    pub(super) fn finish_if_done(&mut self, now: Now) -> bool {
        if self.ending.is_none() && self.leaving.is_empty() {
            return false;
        }
        if self.wind_down(now, false) {
            return true;
        }
        let too_late = self.ending.as_ref().is_some_and(|(_, at)| *at <= now.up);
        let leaving: Vec<PeerId> = match self.ending {
            Some(_) => self.lines.keys().copied().collect(),
            None => self.leaving.iter().copied().collect(),
        };
        let mut moved = false;
        for id in leaving {
            moved |= self.let_go_if_done(now, id, too_late);
        }
        if self.ending.is_some() {
            moved |= self.end_http_streams(now);
        }
        if let (Some((outcome, _)), false) = (&self.ending, self.finished) {
            let quiet = self.lines.is_empty()
                && self.http.is_quiet()
                && !self
                    .gateway
                    .as_ref()
                    .is_some_and(|gateway| gateway.wire.is_open())
                && self
                    .upstream
                    .as_ref()
                    .is_none_or(|side| side.manager.is_gone());
            if quiet || too_late {
                let outcome = outcome.clone();
                self.finished = true;
                self.end_audit(now);
                self.events.push_back(HubEvent::Finished(outcome));
                moved = true;
            }
        }
        moved
    }

    /// Ends the listen streams of HTTP clients; more than once, for the body of a request may have been under
    /// way when the end began. Says whether there were any.
    fn end_http_streams(&mut self, now: Now) -> bool {
        let listens = |http: &mut HttpFront, id: &PeerId| {
            http.peer_mut(*id)
                .is_some_and(|peer| peer.listening().next().is_some())
        };
        let mut ids = self.http.peer_ids();
        ids.retain(|id| listens(&mut self.http, id));
        for id in &ids {
            self.with_peer(now, *id, |peer, sink| peer.end_subscriptions(sink));
        }
        !ids.is_empty()
    }

    fn let_go_if_done(&mut self, now: Now, id: PeerId, too_late: bool) -> bool {
        let Some(client) = self.lines.get_mut(&id) else {
            return false;
        };
        let LineClient {
            link,
            peer,
            closing,
            ..
        } = client;
        // A stream may be opened while the last bytes leave.
        let listens = peer.listening().next().is_some();
        if peer.open_requests() == 0 && (listens || !*closing) {
            *closing = true;
            peer.end_subscriptions(link.sink());
            self.dirty.push(id);
        }
        let done = link.is_gone() || too_late || (*closing && link.outgoing().is_empty());
        if !done {
            return false;
        }
        for call in self.ledger.of_peer(id) {
            self.drop_call(now, call);
        }
        self.leaving.remove(&id);
        if let Some(side) = &mut self.upstream {
            side.close_client(now, id);
        }
        let mut outcome = Outcome::ClientDone;
        if let Some(client) = self.lines.remove(&id) {
            self.wires.remove(&client.link.wire());
            // What has left may still be on its way to one whose words we have not all read.
            let in_order = client.accepted && !client.link.is_gone() && !too_late;
            let letting_go = if in_order {
                IoRequest::Finish
            } else {
                IoRequest::Close
            };
            self.io.push_back(letting_go(client.link.wire()));
            if client.accepted {
                self.sockets.client_left();
            } else if client.failed {
                outcome = Outcome::ClientFailed;
            }
        }
        // Other doors stay open.
        if self.lines.is_empty() && !self.is_listening() {
            self.end(now, outcome);
        }
        true
    }

    /// When an ending has to go on by itself.
    pub(super) fn ending_deadline(&self) -> Option<Deadline> {
        let ended = |id| self.lines.get(id).and_then(|client| client.leave_by);
        let leave_by = self.leaving.iter().filter_map(ended).min();
        let limit = match &self.ending {
            Some((_, at)) if !self.finished => {
                let calls = self.winding_down;
                Some(calls.map_or(*at, |calls| calls.min(*at)))
            }
            Some(_) | None => None,
        };
        let deadline = |why: &'static str| move |at: Uptime| Deadline::new(at, why);
        Deadline::earlier(
            leave_by.map(deadline("input has ended")),
            limit.map(deadline("shutdown limit")),
        )
    }
}

/// What calls are told that the end cuts short.
fn why(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused(refusal) => refusal.to_string(),
        Outcome::ClientDone | Outcome::ClientFailed | Outcome::Stopped => {
            "drawspan is shutting down".to_owned()
        }
    }
}
