//! The conversation with one Gateway: challenge, connect, hello, subscription, requests, liveness,
//! reconnecting. The wire below is opened, written and closed by whoever drives this machine.
//!
//! | state          | input                | next           | output                               |
//! |----------------|----------------------|----------------|--------------------------------------|
//! | Waiting        | its time has come    | Opening        | Open                                 |
//! | Opening        | up                   | AwaitChallenge |                                      |
//! | AwaitChallenge | challenge            | Connecting     | Send connect                         |
//! | AwaitChallenge | no nonce, time out   | Closing        | Close 1008, Diagnostic               |
//! | Connecting     | hello                | Subscribing    | HelloAccepted, StoreToken?, Send     |
//! | Connecting     | no hello, time out   | Closing        | Close 1008, Diagnostic               |
//! | Connecting     | refused (1)          | Closing        | Close 1013, Diagnostic?              |
//! | Connecting     | refused (2)          | Closing        | Close 1008                           |
//! | Connecting     | refused (3)          | Closing        | ForgetToken?, Close 1008, Diagnostic |
//! | Connecting     | refused (4)          | Stopped        | ForgetToken?, Close 1008, Refused    |
//! | Subscribing    | done                 | Ready          | Ready, Diagnostic                    |
//! | Subscribing    | refused, time out    | as Connecting  | as Connecting                        |
//! | Ready          | event of the bridge  | Ready          | Event                                |
//! | Ready          | answer, time out     | Ready          | Response                             |
//! | Ready          | two ticks of silence | Waiting        | Abort, Response…, Lost, Diagnostic   |
//! | Ready          | closed               | Waiting        | Response…, Lost, Diagnostic          |
//! | Closing        | closed               | Waiting        |                                      |
//! | Closing        | closed, its time over | Opening       | Open                                 |
//! | others         | closed               | Waiting        | Diagnostic                           |
//! | any            | shutdown             | Stopped        | Close or Abort, Response…            |
//!
//! Refused (1): the Gateway is still starting, and says when to come back. (2): the given token, while
//! the device's own may still be tried, once. (3): anything else, when there has been service before;
//! also what passes by itself. (4): anything else, at start. Events of the bridge come in Subscribing
//! too. Diagnostics about failed tries are one per step of the back-off.
//!
//! A request is sent once, in Ready, and answered once: by the Gateway, by its deadline, or by the
//! end of the connection, whichever is first. Nothing is sent twice. In any other state it is
//! answered at once.
//!
//! Source: OpenClaw 2026.6.11, Gateway protocol 4. Ours: jitter, waiting for a Gateway that is
//! down, refusals survived after good service, and a silent socket dropped with requests open.
//! Never: reads a clock, opens anything, parses what an event or an answer says.

mod output;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::backoff::Backoff;
use crate::clock::{Deadline, Now, Uptime};
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::entropy::Entropy;
use crate::gateway::connect::{self, Auth, Hello, Verdict};
use crate::gateway::frame::{self, ErrorBody, Frame};
use crate::gateway::report::{Reporter, Seconds};
use crate::gateway::requests::{RequestTable, timeout_message};
use crate::ids::GatewayRequestId;
use crate::secret::Quoted;

pub use crate::gateway::connect::{Refusal, RefusalKind};
pub use crate::gateway::requests::GatewayError;
pub use output::{BRIDGE_EVENTS, SessionConfig, SessionCounters, SessionOutput};

/// The machine; the module says how it moves.
#[derive(Debug)]
pub struct GatewaySession {
    config: SessionConfig,
    state: State,
    output: VecDeque<SessionOutput>,
    requests: RequestTable,
    backoff: Backoff,
    reporter: Reporter,
    device_retry: DeviceRetry,
    /// Why there is no service, for errors; empty before the first trouble.
    why: String,
    last_frame: Uptime,
    tick_interval: Duration,
    frame_bytes_max: usize,
    gateway_version: String,
    counters: SessionCounters,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Waiting {
        at: Uptime,
    },
    Opening,
    AwaitChallenge {
        since: Uptime,
    },
    Connecting {
        id: GatewayRequestId,
        until: Uptime,
        shows_device_token: bool,
    },
    Subscribing {
        id: GatewayRequestId,
        until: Uptime,
    },
    Ready {
        since: Uptime,
    },
    Closing {
        retry_at: Uptime,
    },
    Stopped,
}

/// The one try with the device token beside a given token that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceRetry {
    Unused,
    Next,
    Used,
}

/// The wait before the device token is shown. Source: OpenClaw 2026.6.11.
const DEVICE_RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// How a connection is left.
enum Parting {
    /// It is gone already.
    Gone,
    /// Without a word.
    Abort,
    /// With a close frame.
    Close(u16, &'static str),
}

impl GatewaySession {
    /// A session that opens its first wire at once: the first output is [`SessionOutput::Open`].
    #[must_use]
    pub fn new(config: SessionConfig, now: Now) -> Self {
        let limits = &config.limits;
        let first = limits.reconnect_first_interval;
        let most = limits.reconnect_most_interval;
        Self {
            state: State::Opening,
            output: VecDeque::from([SessionOutput::Open]),
            requests: RequestTable::new(limits),
            backoff: Backoff::new(first, most, limits.reconnect_good_interval),
            reporter: Reporter::new(first, most),
            device_retry: DeviceRetry::Unused,
            why: String::new(),
            last_frame: now.up,
            tick_interval: Duration::ZERO,
            frame_bytes_max: limits.gateway_message_bytes_max,
            gateway_version: String::new(),
            counters: SessionCounters::default(),
            config,
        }
    }

    /// Whether requests are welcome.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        matches!(self.state, State::Ready { .. })
    }

    /// What happened so far.
    #[must_use]
    pub const fn counters(&self) -> SessionCounters {
        self.counters
    }

    /// Why the last connection, or the last try for one, ended; empty before the first trouble.
    #[must_use]
    pub fn trouble(&self) -> &str {
        &self.why
    }

    /// Why there is no connection and when the next try is, as the text of an error.
    #[must_use]
    pub fn not_connected(&self, now: Now) -> String {
        let next = match self.state {
            State::Waiting { at } | State::Closing { retry_at: at } => {
                format!(", next try in {}", Seconds(at.since(now.up)))
            }
            State::Opening
            | State::AwaitChallenge { .. }
            | State::Connecting { .. }
            | State::Subscribing { .. }
            | State::Ready { .. } => ", trying now".to_owned(),
            State::Stopped => String::new(),
        };
        let why = match &*self.why {
            "" => "no try has ended yet",
            why => why,
        };
        format!("gateway not connected: {why}{next}")
    }

    /// Sends a request; `params` is a raw JSON object. Exactly one [`SessionOutput::Response`] with
    /// the returned id follows, at once when the request cannot be sent.
    pub fn request(&mut self, now: Now, method: &str, params: &str) -> GatewayRequestId {
        let id = self.requests.mint();
        match self.try_send(now, id, method, params) {
            Ok(()) => self.requests.open(now, id, method),
            Err(error) => self.answer(id, Err(error)),
        }
        id
    }

    /// The wire is open and upgraded.
    pub fn handle_up(&mut self, now: Now) {
        if matches!(self.state, State::Opening) {
            self.state = State::AwaitChallenge { since: now.up };
        }
    }

    /// A text frame arrived.
    pub fn handle_text(&mut self, now: Now, text: &str, entropy: &mut dyn Entropy) {
        if matches!(
            self.state,
            State::Waiting { .. } | State::Opening | State::Closing { .. } | State::Stopped
        ) {
            return;
        }
        self.last_frame = now.up;
        match Frame::parse(text) {
            Ok(Frame::Event(event)) => self.handle_event(now, &event, entropy),
            Ok(Frame::Response(response)) => self.handle_response(now, &response, entropy),
            Ok(Frame::Request(_)) => self.count_malformed("a request"),
            Err(error) => self.count_malformed(&error.to_string()),
        }
    }

    /// The wire is gone, or never came. With a `code` the peer closed it and `why` is its reason
    /// (1005 when its close frame had no code); without one `why` says what happened to the wire.
    pub fn handle_closed(
        &mut self,
        now: Now,
        why: &str,
        code: Option<u16>,
        entropy: &mut dyn Entropy,
    ) {
        let why = match (why, code) {
            ("", _) => "no reason given".to_owned(),
            (reason, Some(_)) => Quoted(reason).to_string(),
            (what_happened, None) => what_happened.to_owned(),
        };
        let code = code.unwrap_or(ABNORMAL_CLOSURE);
        match self.state {
            State::Waiting { .. } | State::Stopped => {}
            // Parting may take longer than the wait.
            State::Closing { retry_at } if retry_at <= now.up => self.open(),
            State::Closing { retry_at } => self.state = State::Waiting { at: retry_at },
            State::Opening => self.retry(now, why, Parting::Gone, entropy),
            State::AwaitChallenge { .. } | State::Connecting { .. } | State::Subscribing { .. } => {
                let why = format!("gateway closed before ready ({code}): {why}");
                self.retry(now, why, Parting::Gone, entropy);
            }
            State::Ready { .. } => {
                let why = format!("gateway closed ({code}): {why}");
                self.retry(now, why, Parting::Gone, entropy);
            }
        }
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Now, entropy: &mut dyn Entropy) {
        match self.state {
            State::Waiting { at } if at <= now.up => self.open(),
            State::AwaitChallenge { since } => self.check_challenge(now, since, entropy),
            State::Connecting { until, .. } if until <= now.up => {
                let why = timeout_message("connect");
                self.retry(now, why, CONNECT_FAILED, entropy);
            }
            State::Subscribing { until, .. } if until <= now.up => {
                let why = timeout_message("sessions.subscribe");
                self.retry(now, why, CONNECT_FAILED, entropy);
            }
            State::Ready { .. } => {
                while let Some((id, error)) = self.requests.expire(now) {
                    self.answer(id, Err(error));
                }
                if self.silent_at() <= now.up {
                    let why = "gateway closed (4000): tick timeout".to_owned();
                    self.retry(now, why, Parting::Abort, entropy);
                }
            }
            State::Waiting { .. }
            | State::Opening
            | State::Connecting { .. }
            | State::Subscribing { .. }
            | State::Closing { .. }
            | State::Stopped => {}
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Deadline> {
        match self.state {
            State::Waiting { at } => Some(Deadline::new(at, "gateway reconnect")),
            State::AwaitChallenge { since } => {
                let at = since.after(self.config.limits.gateway_challenge_timeout);
                Some(Deadline::new(at, "gateway challenge"))
            }
            State::Connecting { until, .. } => Some(Deadline::new(until, "gateway connect")),
            State::Subscribing { until, .. } => Some(Deadline::new(until, "gateway subscribe")),
            State::Ready { .. } => {
                let silence = Deadline::new(self.silent_at(), "gateway tick");
                Deadline::earlier(self.requests.next_deadline(), Some(silence))
            }
            State::Opening | State::Closing { .. } | State::Stopped => None,
        }
    }

    /// The next thing to do; `None` when there is nothing.
    pub fn poll(&mut self) -> Option<SessionOutput> {
        self.output.pop_front()
    }

    /// Ends the session for good. Open requests are answered.
    pub fn shutdown(&mut self, _now: Now) {
        match self.state {
            State::Opening => self.output.push_back(SessionOutput::Abort),
            State::AwaitChallenge { .. }
            | State::Connecting { .. }
            | State::Subscribing { .. }
            | State::Ready { .. } => self.output.push_back(SessionOutput::Close {
                code: None,
                reason: String::new(),
            }),
            State::Waiting { .. } | State::Closing { .. } | State::Stopped => {}
        }
        if !matches!(self.state, State::Stopped) {
            self.why = "shutting down".to_owned();
        }
        self.state = State::Stopped;
        self.fail_requests("gateway connection closed: shutting down");
    }

    fn handle_event(&mut self, now: Now, event: &frame::Event<'_>, entropy: &mut dyn Entropy) {
        match self.state {
            State::AwaitChallenge { .. } if event.name == "connect.challenge" => {
                self.handle_challenge(now, event.payload, entropy);
            }
            State::Subscribing { .. } | State::Ready { .. }
                if BRIDGE_EVENTS.contains(&&*event.name) =>
            {
                self.output.push_back(SessionOutput::Event {
                    name: event.name.clone().into_owned(),
                    payload: event.payload.map(ToOwned::to_owned),
                });
            }
            State::Waiting { .. }
            | State::Opening
            | State::AwaitChallenge { .. }
            | State::Connecting { .. }
            | State::Subscribing { .. }
            | State::Ready { .. }
            | State::Closing { .. }
            | State::Stopped => self.counters.dropped_events += 1,
        }
    }

    fn handle_challenge(
        &mut self,
        now: Now,
        payload: Option<&RawValue>,
        entropy: &mut dyn Entropy,
    ) {
        let Some(nonce) = connect::nonce_of(payload) else {
            let why = "connect challenge missing nonce";
            let parting = Parting::Close(POLICY_VIOLATION, why);
            return self.retry(now, format!("gateway {why}"), parting, entropy);
        };
        let SessionConfig {
            identity,
            credentials,
            stored_token,
            platform,
            ..
        } = &self.config;
        let with_device_token = self.device_retry == DeviceRetry::Next;
        let auth = Auth::choose(credentials, stored_token.as_ref(), with_device_token);
        let shows_device_token = auth.shows_device_token();
        let params = connect::connect_params(identity, &auth, platform, &nonce, now);
        if with_device_token {
            self.device_retry = DeviceRetry::Used;
        }
        let id = self.requests.mint();
        let until = now.after(self.config.limits.gateway_request_timeout);
        self.state = State::Connecting {
            id,
            until,
            shows_device_token,
        };
        self.send(id, "connect", &params);
    }

    fn handle_response(
        &mut self,
        now: Now,
        response: &frame::Response<'_>,
        entropy: &mut dyn Entropy,
    ) {
        let id = response.id.parse().ok().map(GatewayRequestId);
        match (self.state, id) {
            (
                State::Connecting {
                    id: own,
                    shows_device_token,
                    ..
                },
                Some(id),
            ) if id == own => match &response.outcome {
                Ok(payload) => self.handle_hello(now, *payload, entropy),
                Err(error) => self.handle_refusal(now, error, shows_device_token, entropy),
            },
            (State::Subscribing { id: own, .. }, Some(id)) if id == own => {
                match &response.outcome {
                    Ok(_) => self.become_ready(now),
                    Err(error) => self.handle_refusal(now, error, false, entropy),
                }
            }
            (_, Some(id)) if self.requests.close(id) => {
                let outcome = match &response.outcome {
                    Ok(payload) => Ok(payload.unwrap_or(RawValue::NULL).to_owned()),
                    Err(error) => Err(error.into()),
                };
                self.answer(id, outcome);
            }
            (_, Some(_) | None) => self.counters.late_answers += 1,
        }
    }

    fn handle_hello(&mut self, now: Now, payload: Option<&RawValue>, entropy: &mut dyn Entropy) {
        let Some(hello) = Hello::parse(payload, &self.config.limits, now) else {
            let why = "gateway accepted the connection without a hello".to_owned();
            return self.retry(now, why, CONNECT_FAILED, entropy);
        };
        self.tick_interval = hello.tick_interval;
        self.frame_bytes_max = hello.frame_bytes_max;
        self.gateway_version = hello.version;
        self.device_retry = DeviceRetry::Unused;
        self.output.push_back(SessionOutput::HelloAccepted);
        if let Some(token) = hello.device_token {
            self.config.stored_token = Some(token.clone());
            self.output.push_back(SessionOutput::StoreToken(token));
        }
        let id = self.requests.mint();
        let until = now.after(self.config.limits.gateway_request_timeout);
        self.state = State::Subscribing { id, until };
        self.send(id, "sessions.subscribe", "{}");
    }

    fn become_ready(&mut self, now: Now) {
        self.state = State::Ready { since: now.up };
        self.backoff.succeeded(now);
        self.why.clear();
        let first = self.counters.times_ready == 0;
        self.counters.times_ready += 1;
        self.output.push_back(SessionOutput::Ready { first });
        let again = if first { "" } else { " again" };
        let url = &self.config.url_for_log;
        let version = Quoted(&self.gateway_version);
        let message = format!("connected{again} to gateway {url}, version {version}");
        self.tell(Level::Info, message);
    }

    fn handle_refusal(
        &mut self,
        now: Now,
        error: &ErrorBody<'_>,
        showed_device_token: bool,
        entropy: &mut dyn Entropy,
    ) {
        let refusal = match Verdict::of(error, &self.config.url_for_log) {
            Verdict::Starting(wait) => return self.wait_for_start(now, wait),
            Verdict::Passing => {
                let why = format!("refused: {}", Quoted(&error.message));
                return self.retry(now, why, CONNECT_FAILED, entropy);
            }
            Verdict::Standing(refusal) => refusal,
        };
        if refusal.code == "AUTH_DEVICE_TOKEN_MISMATCH" && showed_device_token {
            self.config.stored_token = None;
            self.output.push_back(SessionOutput::ForgetToken);
        }
        let why = format!("refused: {}; {}", Quoted(&refusal.message), refusal.fix);
        if self.counters.times_ready == 0 {
            self.leave(now.up, CONNECT_FAILED);
            self.state = State::Stopped;
            self.why = why;
            self.output.push_back(SessionOutput::Refused(refusal));
        } else if refusal.code == "AUTH_TOKEN_MISMATCH" && self.may_show_device_token() {
            self.leave(now.after(DEVICE_RETRY_INTERVAL), CONNECT_FAILED);
            self.device_retry = DeviceRetry::Next;
            self.why = why;
        } else {
            self.retry(now, why, CONNECT_FAILED, entropy);
        }
    }

    fn may_show_device_token(&self) -> bool {
        self.device_retry == DeviceRetry::Unused
            && self.config.loopback
            && self.config.credentials.token.is_some()
            && self.config.stored_token.is_some()
    }

    fn wait_for_start(&mut self, now: Now, wait: Duration) {
        let why = "gateway is starting";
        if self.why != why {
            let url = &self.config.url_for_log;
            let message = format!("gateway {url} is starting, next try in {}", Seconds(wait));
            self.tell(Level::Info, message);
            self.why = why.to_owned();
        }
        let parting = Parting::Close(TRY_AGAIN_LATER, "gateway starting");
        self.leave(now.after(wait), parting);
    }

    fn check_challenge(&mut self, now: Now, since: Uptime, entropy: &mut dyn Entropy) {
        let limit = self.config.limits.gateway_challenge_timeout;
        if since.after(limit) <= now.up {
            let waited = now.up.since(since).as_millis();
            let limit = limit.as_millis();
            let why =
                format!("gateway connect challenge timeout (waited {waited}ms, limit {limit}ms)");
            let parting = Parting::Close(POLICY_VIOLATION, "connect challenge timeout");
            self.retry(now, why, parting, entropy);
        }
    }

    /// When silence has lasted for two ticks.
    fn silent_at(&self) -> Uptime {
        self.last_frame.after(self.tick_interval.saturating_mul(2))
    }

    /// Service or a try for it ended: answers what is open, says so, and waits for the next try.
    fn retry(&mut self, now: Now, why: String, parting: Parting, entropy: &mut dyn Entropy) {
        let (happened, ready_since) = match self.state {
            State::Ready { since } => ("lost", Some(since)),
            State::Connecting { .. } | State::Subscribing { .. } => ("cannot connect to", None),
            State::Waiting { .. }
            | State::Opening
            | State::AwaitChallenge { .. }
            | State::Closing { .. }
            | State::Stopped => ("cannot reach", None),
        };
        let wait = self.backoff.failed(now, entropy);
        self.leave(now.after(wait), parting);
        self.fail_requests(&why);
        if ready_since.is_some() {
            self.output.push_back(SessionOutput::Lost {
                why: why.clone(),
                retry_in_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            });
        }
        let served = ready_since.map(|since| now.up.since(since));
        let good = self.config.limits.reconnect_good_interval;
        if self.reporter.worth_telling(&why, served, good) {
            let url = &self.config.url_for_log;
            let wait = Seconds(wait);
            let message = format!("{happened} gateway {url}: {why}, next try in {wait}");
            self.tell(Level::Warning, message);
        }
        self.why = why;
    }

    fn open(&mut self) {
        self.state = State::Opening;
        self.output.push_back(SessionOutput::Open);
    }

    /// Lets go of the wire and waits for `retry_at`.
    fn leave(&mut self, retry_at: Uptime, parting: Parting) {
        match parting {
            Parting::Gone => self.state = State::Waiting { at: retry_at },
            Parting::Abort => {
                self.state = State::Waiting { at: retry_at };
                self.output.push_back(SessionOutput::Abort);
            }
            Parting::Close(code, reason) => {
                self.state = State::Closing { retry_at };
                self.output.push_back(SessionOutput::Close {
                    code: Some(code),
                    reason: reason.to_owned(),
                });
            }
        }
    }

    fn fail_requests(&mut self, why: &str) {
        for id in self.requests.close_all() {
            let message = why.to_owned();
            self.answer(id, Err(GatewayError::Closed { message }));
        }
    }

    fn answer(&mut self, id: GatewayRequestId, outcome: Result<Box<RawValue>, GatewayError>) {
        self.output
            .push_back(SessionOutput::Response { id, outcome });
    }

    fn tell(&mut self, level: Level, message: String) {
        let diagnostic = Diagnostic::new(level, Subject::Gateway, message);
        self.output.push_back(SessionOutput::Diagnostic(diagnostic));
    }

    fn count_malformed(&mut self, what: &str) {
        self.counters.malformed_frames += 1;
        let count = self.counters.malformed_frames;
        if count.is_power_of_two() {
            let message = format!("gateway sent a frame that is skipped: {what} ({count} so far)");
            self.tell(Level::Warning, message);
        }
    }

    /// Sends a request if it may go and the Gateway takes one of its length.
    fn try_send(
        &mut self,
        now: Now,
        id: GatewayRequestId,
        method: &str,
        params: &str,
    ) -> Result<(), GatewayError> {
        if !self.is_ready() {
            let message = self.not_connected(now);
            return Err(GatewayError::NotConnected { message });
        }
        self.requests.check_room()?;
        let text = request_text(id, method, params);
        let (limit, bytes) = (self.frame_bytes_max, text.len());
        if bytes > limit {
            return Err(GatewayError::TooLarge { limit, bytes });
        }
        self.output.push_back(SessionOutput::Send(text));
        Ok(())
    }

    /// Sends one of the two requests of the handshake.
    fn send(&mut self, id: GatewayRequestId, method: &str, params: &str) {
        let text = request_text(id, method, params);
        self.output.push_back(SessionOutput::Send(text));
    }
}

fn request_text(id: GatewayRequestId, method: &str, params: &str) -> String {
    let mut text = String::with_capacity(method.len() + params.len() + 64);
    frame::write_request(&mut text, &id.to_string(), method, params);
    text
}

/// Close codes. Source: RFC 6455 §7.4.1 and its registry.
const ABNORMAL_CLOSURE: u16 = 1006;
const POLICY_VIOLATION: u16 = 1008;
const TRY_AGAIN_LATER: u16 = 1013;
const CONNECT_FAILED: Parting = Parting::Close(POLICY_VIOLATION, "connect failed");
