//! Finding the era of a server, and the handshake where it has one.
//!
//! | state     | input                                            | next      | what happens                         |
//! |-----------|--------------------------------------------------|-----------|--------------------------------------|
//! | Waiting   | link is up; `Auto`, `Modern`, a stateless one    | Probing   | `server/discover` leaves             |
//! | Waiting   | link is up; `Legacy`, a handshake one, known one | Shaking   | `initialize` leaves                  |
//! | Probing   | a discovery with a common version                | Over      | Ready, stateless                     |
//! | Probing   | a discovery or -32022 with older versions only   | Shaking   | `initialize` with the newest common  |
//! | Probing   | -32022 with a common version, or without a list  | Probing   | asked again, once                    |
//! | Probing   | -32020, -32021                                   | Over      | Failed: the era is known             |
//! | Probing   | HTTP 404 with -32601                             | Over      | Ready, stateless, capabilities assumed |
//! | Probing   | 401, 429, a redirect, nobody there               | Over      | Failed: not a matter of eras         |
//! | Probing   | any other answer, or silence                     | Shaking   | `initialize` leaves; `Auto` only     |
//! | Shaking   | a revision of ours                               | Over      | `notifications/initialized`, Ready   |
//! | Shaking   | a modern error, or modern revisions only         | Probing   | asked once more; `Auto` only         |
//! | Shaking   | an error that lists older revisions              | Shaking   | asked with the newest common, once   |
//! | Shaking   | a discovery that comes late                      | Shaking   | kept; a handshake that fails is then needless |
//! | Shaking   | HTTP 4xx, no modern error; `Auto`                | Over      | TryOlderPair                         |
//! | Shaking   | anything else                                    | Over      | Failed                               |
//! | any       | the connect timeout                              | Over      | Failed; `initialize` is never cancelled |
//!
//! Silence before `initialize` is at most half of the time that is left, so that the handshake has a chance.
//!
//! Source: Spec 2026-07-28 basic/versioning, basic/transports/stdio and streamable-http (Backward
//! Compatibility); 2025-11-25 basic/lifecycle; design ("Silent at first, modern after all").

use std::time::Duration;

use super::era::{
    Discovery, MODERN_ERRORS, assumed_facts, is_unknown_method, shaken_facts, tells_of_era,
};
use super::fault::{ConnectFault, RemoteError, VERSION_CHARS_MAX};
use super::peer::{ClientPeer, Stage};
use super::terms::{EraChoice, PeerOutput, ServerFacts};
use super::{Carrier, Dialect, OutgoingKind, RequestEnd};
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::json_object::JsonObject;
use crate::codec::scan::Text;
use crate::ids::UpstreamRequestId;
use crate::protocol::error::ErrorCode;
use crate::protocol::message::member;
use crate::protocol::revision::Revision;

const DISCOVER: &str = "server/discover";
const INITIALIZE: &str = "initialize";

/// How often one opening may send `server/discover`, and `initialize`.
const TRIES_MAX: u32 = 2;

/// Where the opening stands.
#[derive(Debug)]
pub(super) struct Opening {
    step: Step,
    /// When it must be over.
    connect_by: Uptime,
    /// When the present step is given up for another.
    step_by: Option<Uptime>,
    probes: u32,
    handshakes: u32,
    /// A probe that was given up, whose answer may still come.
    late_probe: Option<UpstreamRequestId>,
    /// What that answer said.
    late: Option<Discovery>,
    /// Why a handshake failed after which we probe once more.
    refused: Option<ConnectFault>,
}

impl Opening {
    /// What is being waited for: a method, or `connect` while there is nothing to ask by.
    pub(super) const fn method(&self) -> &'static str {
        match self.step {
            Step::Waiting => "connect",
            Step::Probing { .. } => DISCOVER,
            Step::Shaking { .. } | Step::Over => INITIALIZE,
        }
    }

    /// Whether the answer is still out that tells the era.
    pub(super) const fn is_probing(&self) -> bool {
        matches!(self.step, Step::Probing { .. })
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Waiting,
    Probing {
        id: UpstreamRequestId,
        /// A handshake has failed before: there is no way back to it.
        last: bool,
    },
    Shaking {
        id: UpstreamRequestId,
        asked: Revision,
    },
    Over,
}

impl Opening {
    /// An opening that must be over within `limit`.
    pub(super) fn new(now: Now, limit: Duration) -> Self {
        Self {
            step: Step::Waiting,
            connect_by: now.after(limit),
            step_by: None,
            probes: 0,
            handshakes: 0,
            late_probe: None,
            late: None,
            refused: None,
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let why = match self.step {
            Step::Waiting => "connect",
            Step::Probing { .. } => DISCOVER,
            Step::Shaking { .. } => INITIALIZE,
            Step::Over => return None,
        };
        let by = self.step_by.unwrap_or(self.connect_by);
        Some(Deadline::new(by.min(self.connect_by), why))
    }
}

impl EraChoice {
    fn allows(self, revision: Revision) -> bool {
        match self {
            Self::Auto => true,
            Self::Legacy => !revision.is_stateless(),
            Self::Modern => revision.is_stateless(),
            Self::Only(only) => only == revision,
        }
    }
}

impl ClientPeer {
    fn spoken(&self) -> Vec<Revision> {
        let all = Revision::NEWEST_FIRST.into_iter();
        let choice = self.config.choice;
        let by_handshake = self.config.carrier == Carrier::Sse;
        all.filter(|revision| choice.allows(*revision))
            .filter(|revision| !by_handshake || !revision.is_stateless())
            .collect()
    }

    /// The newest of `supported` that we may speak, in one era.
    fn common(&self, supported: &[String], stateless: bool) -> Option<Revision> {
        let spoken = self.spoken();
        let allowed: Vec<String> = supported
            .iter()
            .filter(|name| spoken.iter().any(|revision| revision.as_str() == **name))
            .cloned()
            .collect();
        Revision::newest_common(&allowed, stateless)
    }

    /// Whether both eras are open to us.
    fn may_change_era(&self) -> bool {
        self.config.choice == EraChoice::Auto && self.config.carrier != Carrier::Sse
    }

    pub(super) fn begin_opening(&mut self, now: Now) {
        if !matches!(self.opening.step, Step::Waiting) {
            return;
        }
        let spoken = self.spoken();
        let known_by_handshake = self.config.known.is_some_and(|known| !known.is_stateless());
        match spoken.first() {
            Some(newest) if newest.is_stateless() => {
                if self.may_change_era() && known_by_handshake {
                    self.shake(Revision::NEWEST_WITH_HANDSHAKE);
                } else {
                    self.probe(now, false);
                }
            }
            Some(newest) => self.shake(*newest),
            None => {
                let why = "the transport of 2024-11-05 carries revisions with a handshake only";
                self.fail(ConnectFault::Violation(why.to_owned()));
            }
        }
    }

    fn probe(&mut self, now: Now, last: bool) {
        let Some(id) = self.own_id() else {
            return self.fail(ConnectFault::Violation("out of request ids".to_owned()));
        };
        self.opening.probes += 1;
        self.opening.step = Step::Probing { id, last };
        let left = self.opening.connect_by.since(now.up);
        let patience = match self.config.known {
            Some(_) => left / 2,
            None => self.config.discover_timeout.min(left / 2),
        };
        let gives_up = self.may_change_era() && !last;
        self.opening.step_by = gives_up.then(|| now.after(patience));
        let revision = Revision::NEWEST_STATELESS;
        self.send_own_request(id, DISCOVER, None, Dialect::Stateless(revision));
    }

    fn shake(&mut self, asked: Revision) {
        let Some(id) = self.own_id() else {
            return self.fail(ConnectFault::Violation("out of request ids".to_owned()));
        };
        self.opening.handshakes += 1;
        self.opening.step = Step::Shaking { id, asked };
        self.opening.step_by = None;
        let mut params = JsonObject::new();
        params.text("protocolVersion", asked.as_str());
        params.raw("capabilities", &self.config.capabilities);
        params.raw("clientInfo", &self.config.identity);
        self.send_own_request(id, INITIALIZE, Some(&params.end()), Dialect::Handshake);
    }

    /// An answer to a request of the opening; `false` when it is none of those.
    pub(super) fn opening_answer(
        &mut self,
        now: Now,
        id: UpstreamRequestId,
        outcome: Result<&str, RemoteError>,
    ) -> bool {
        match self.opening.step {
            Step::Probing { id: probe, last } if probe == id => match outcome {
                Ok(result) => self.discovered(now, result, last),
                Err(error) => self.probe_refused(now, error, None, last),
            },
            Step::Shaking { id: handshake, .. } if handshake == id => match outcome {
                Ok(result) => self.shaken(now, result),
                Err(error) => self.handshake_refused(now, error, None),
            },
            Step::Waiting | Step::Probing { .. } | Step::Shaking { .. } | Step::Over => {
                return self.late_discovery(now, id, outcome);
            }
        }
        true
    }

    /// An answer to a probe that was given up. The handshake is under way, and a server of both eras will
    /// serve it; one of the stateless era refuses it, or says nothing.
    fn late_discovery(
        &mut self,
        now: Now,
        id: UpstreamRequestId,
        outcome: Result<&str, RemoteError>,
    ) -> bool {
        if self.opening.late_probe != Some(id) {
            return false;
        }
        self.opening.late_probe = None;
        self.noise("late answer to server/discover", b"");
        let discovery = outcome.ok().and_then(Discovery::read);
        let usable = discovery.filter(|found| self.common(&found.supported, true).is_some());
        if usable.is_some() && matches!(self.opening.step, Step::Shaking { .. }) {
            self.opening.step_by = Some(now.after(self.config.discover_timeout));
            self.opening.late = usable;
        }
        true
    }

    fn discovered(&mut self, now: Now, result: &str, last: bool) {
        let Some(discovery) = Discovery::read(result) else {
            let why = "answer to server/discover without supportedVersions";
            return self.legacy_after_all(ConnectFault::Violation(why.to_owned()), last);
        };
        if let Some(revision) = self.common(&discovery.supported, true) {
            let facts = discovery.facts(revision);
            return self.ready(now, facts);
        }
        self.older_version(discovery.supported);
    }

    /// The server knows eras, but not our newest one.
    fn older_version(&mut self, supported: Vec<String>) {
        match self.common(&supported, false) {
            Some(revision) if self.opening.handshakes < TRIES_MAX => self.shake(revision),
            _ => {
                let spoken = self.spoken();
                self.fail(ConnectFault::NoCommonVersion { supported, spoken });
            }
        }
    }

    fn probe_refused(&mut self, now: Now, error: RemoteError, status: Option<u16>, last: bool) {
        let fault = |error| ConnectFault::Refused {
            method: DISCOVER,
            error,
        };
        if error.is_one_of(&[ErrorCode::UnsupportedProtocolVersion]) {
            let supported = error.supported();
            let again = supported.is_empty() || self.common(&supported, true).is_some();
            return match again {
                true if self.opening.probes < TRIES_MAX + u32::from(last) => self.probe(now, last),
                true => self.fail(fault(error)),
                false => self.older_version(supported),
            };
        }
        if error.is_one_of(&MODERN_ERRORS) {
            return self.fail(fault(error));
        }
        if is_unknown_method(&error, status) {
            return self.ready(now, assumed_facts());
        }
        self.legacy_after_all(fault(error), last);
    }

    /// The probe has not met a server of the stateless era.
    fn legacy_after_all(&mut self, fault: ConnectFault, last: bool) {
        if !self.may_change_era() {
            return self.fail(fault);
        }
        if !last {
            return self.shake(Revision::NEWEST_WITH_HANDSHAKE);
        }
        let older_pair = matches!(&fault, ConnectFault::End { end: RequestEnd::Status(end), .. } if end.is_refusal());
        let first = self.opening.refused.take().unwrap_or(fault);
        self.give_up(first, older_pair);
    }

    fn shaken(&mut self, now: Now, result: &str) {
        let offered = member(result, "protocolVersion");
        let offered = offered.map(|raw| match Text::of_value(raw) {
            Some(text) => text.decode().chars().take(VERSION_CHARS_MAX).collect(),
            None => raw.chars().take(VERSION_CHARS_MAX).collect::<String>(),
        });
        let spoken = self.spoken();
        let revision = offered.as_deref().and_then(Revision::parse);
        match revision {
            Some(revision) if !revision.is_stateless() && spoken.contains(&revision) => {
                let facts = shaken_facts(revision, result);
                self.ready(now, facts);
            }
            _ => {
                let modern = revision.is_some_and(Revision::is_stateless);
                let fault = ConnectFault::Version { offered, spoken };
                self.handshake_failed(now, fault, modern, false);
            }
        }
    }

    fn handshake_refused(&mut self, now: Now, error: RemoteError, status: Option<u16>) {
        let supported = error.supported();
        let older = self.common(&supported, false);
        if let Step::Shaking { asked, .. } = self.opening.step {
            let again = older.filter(|revision| *revision != asked);
            let may = self.opening.handshakes < TRIES_MAX && self.opening.late.is_none();
            if let Some(revision) = again.filter(|_| may) {
                return self.shake(revision);
            }
        }
        let modern = error.is_one_of(&MODERN_ERRORS)
            || is_unknown_method(&error, status)
            || (older.is_none() && self.common(&supported, true).is_some());
        let fault = ConnectFault::Refused {
            method: INITIALIZE,
            error,
        };
        let refusal = status.is_some_and(|status| (400..500).contains(&status));
        self.handshake_failed(now, fault, modern, refusal);
    }

    /// `modern`: only a server of the stateless era says so. `refusal`: one of another transport may.
    fn handshake_failed(&mut self, now: Now, fault: ConnectFault, modern: bool, refusal: bool) {
        if self.go_on_stateless(now) {
            return;
        }
        // An era that was only remembered is found out as if it were not.
        let unproven = self.opening.probes == 0 && fault.is_of_server();
        // `refused` is set once: a second handshake that fails is the end.
        if (modern || unproven) && self.may_change_era() && self.opening.refused.is_none() {
            self.opening.refused = Some(fault);
            return self.probe(now, true);
        }
        self.give_up(fault, refusal && !modern);
    }

    /// Uses a discovery that came late, if one did.
    fn go_on_stateless(&mut self, now: Now) -> bool {
        let Some(discovery) = self.opening.late.take() else {
            return false;
        };
        let Some(revision) = self.common(&discovery.supported, true) else {
            return false;
        };
        self.ready(now, discovery.facts(revision));
        true
    }

    fn give_up(&mut self, fault: ConnectFault, older_pair: bool) {
        if !(older_pair
            && self.config.choice == EraChoice::Auto
            && self.config.carrier == Carrier::Http)
        {
            return self.fail(fault);
        }
        self.questions_gone();
        self.opening.step = Step::Over;
        self.stage = Stage::Over(fault.to_string());
        self.refusal = Some(fault);
        self.push(PeerOutput::TryOlderPair);
    }

    /// HTTP: no JSON-RPC answer comes for a request; `false` when it is none of the opening.
    pub(super) fn opening_end(
        &mut self,
        now: Now,
        id: UpstreamRequestId,
        end: &RequestEnd,
    ) -> bool {
        let (method, last) = match self.opening.step {
            Step::Probing { id: probe, last } if probe == id => (DISCOVER, Some(last)),
            Step::Shaking { id: handshake, .. } if handshake == id => (INITIALIZE, None),
            Step::Waiting | Step::Probing { .. } | Step::Shaking { .. } | Step::Over => {
                let late = self.opening.late_probe == Some(id);
                if late {
                    self.opening.late_probe = None;
                }
                return late;
            }
        };
        let error = match end {
            RequestEnd::Status(status) if status.is_refusal() => {
                RemoteError::in_body(status, &self.scan_limits)
                    .map(|error| (error, Some(status.status)))
            }
            RequestEnd::Status(_)
            | RequestEnd::NotSent(_)
            | RequestEnd::SessionLost { .. }
            | RequestEnd::SessionDoubtful(_)
            | RequestEnd::NotReading { .. }
            | RequestEnd::Accepted
            | RequestEnd::ContentType { .. }
            | RequestEnd::Broken(_)
            | RequestEnd::TooLarge { .. }
            | RequestEnd::Redirect { .. } => None,
        };
        let fault = ConnectFault::End {
            method,
            end: end.clone(),
        };
        match (last, error) {
            (Some(last), Some((error, status))) => self.probe_refused(now, error, status, last),
            (None, Some((error, status))) => self.handshake_refused(now, error, status),
            (Some(last), None) if tells_of_era(end) => self.legacy_after_all(fault, last),
            (Some(_), None) => self.fail(fault),
            (None, None) => {
                let refusal = matches!(end, RequestEnd::Status(status) if status.is_refusal());
                self.handshake_failed(now, fault, false, refusal);
            }
        }
        true
    }

    pub(super) fn opening_timeout(&mut self, now: Now) {
        let due = |at: Uptime| at <= now.up;
        let limit = self.config.connect_timeout;
        let over = due(self.opening.connect_by);
        match self.opening.step {
            Step::Over => {}
            Step::Shaking { .. } if over || self.opening.step_by.is_some_and(due) => {
                if !self.go_on_stateless(now) {
                    let what = INITIALIZE;
                    self.fail(ConnectFault::TimedOut { what, limit });
                }
            }
            Step::Probing { id, .. } if over => {
                self.forget(id);
                let what = DISCOVER;
                self.fail(ConnectFault::TimedOut { what, limit });
            }
            Step::Probing { id, .. } if self.opening.step_by.is_some_and(due) => {
                // On lines it is not cancelled: nothing may come before the handshake of an older server.
                self.forget(id);
                self.opening.late_probe = Some(id);
                self.shake(Revision::NEWEST_WITH_HANDSHAKE);
            }
            Step::Waiting if over => {
                let what = "connect";
                self.fail(ConnectFault::TimedOut { what, limit });
            }
            Step::Waiting | Step::Probing { .. } | Step::Shaking { .. } => {}
        }
    }

    pub(super) fn fail(&mut self, fault: ConnectFault) {
        self.questions_gone();
        self.opening.step = Step::Over;
        self.stage = Stage::Over(fault.to_string());
        self.push(PeerOutput::Failed(fault));
    }

    fn ready(&mut self, now: Now, facts: ServerFacts) {
        self.opening.step = Step::Over;
        self.stage = Stage::Ready;
        let stateless = facts.revision.is_stateless();
        self.facts = Some(facts);
        if stateless {
            // It may have taken us for an older client; it has no requests of its own any more.
            self.questions_gone();
        } else {
            self.send_notification("notifications/initialized", None);
        }
        self.push(PeerOutput::Ready);
        self.session_settings(now);
        self.listen_if_wanted(now);
    }

    /// A request of our own, with what its era adds.
    pub(super) fn send_own_request(
        &mut self,
        id: UpstreamRequestId,
        method: &'static str,
        params: Option<&str>,
        dialect: Dialect,
    ) {
        self.send_own_request_as(id, method, params, dialect, None);
    }

    /// The same, where the request declares other capabilities than the conversation: a raw object.
    pub(super) fn send_own_request_as(
        &mut self,
        id: UpstreamRequestId,
        method: &'static str,
        params: Option<&str>,
        dialect: Dialect,
        declares: Option<&str>,
    ) {
        let mut add = self.additions(dialect, false);
        if let (Some(stateless), Some(declares)) = (&mut add.stateless, declares) {
            stateless.capabilities = declares;
        }
        let read = super::compose::Params::read(params, None).unwrap_or_default();
        let body = super::compose::request(Vec::new(), id, method, &read, &add);
        let kind = OutgoingKind::Request {
            id,
            method: method.into(),
            name: None,
            headers: Vec::new(),
        };
        self.send(kind, dialect, body);
    }
}
