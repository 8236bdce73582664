//! The conversation with one Gateway: challenge, connect, hello, subscription, requests, liveness,
//! reconnecting. The wire below is opened, written and closed by whoever drives this machine.
//!
//! | state          | input                        | next           | output                                     |
//! |----------------|------------------------------|----------------|--------------------------------------------|
//! | Waiting        | its time has come            | Opening        | Open                                       |
//! | Opening        | up                           | AwaitChallenge |                                            |
//! | AwaitChallenge | challenge                    | Connecting     | Send connect                               |
//! | AwaitChallenge | no nonce in it, time out     | Closing        | Close 1008, Diagnostic                     |
//! | Connecting     | hello                        | Subscribing    | HelloAccepted, StoreToken?, Send subscribe |
//! | Connecting     | refused: starting            | Closing        | Close 1013                                 |
//! | Connecting     | refused: token, may retry    | Closing        | Close 1008                                 |
//! | Connecting     | refused: for good, was ready | Closing        | Close 1008, ForgetToken?, Diagnostic       |
//! | Connecting     | refused: for good, never was | Stopped        | Close 1008, ForgetToken?, Refused          |
//! | Connecting     | no hello, time out           | Closing        | Close 1008, Diagnostic                     |
//! | Subscribing    | done                         | Ready          | Ready                                      |
//! | Subscribing    | refused, time out            | as Connecting  |                                            |
//! | Ready          | event of the bridge          | Ready          | Event                                      |
//! | Ready          | answer, its time has come    | Ready          | Response                                   |
//! | Ready          | two ticks of silence         | Waiting        | Abort, Response…, Lost, Diagnostic         |
//! | Ready          | closed                       | Waiting        | Response…, Lost, Diagnostic                |
//! | any before     | closed                       | Waiting        | Diagnostic                                 |
//! | Closing        | closed                       | Waiting        |                                            |
//! | any            | shutdown                     | Stopped        | Close or Abort, Response…                  |
//!
//! A request is sent once, in Ready, and answered once: by the Gateway, by its deadline, or by the end of
//! the connection, whichever is first. Nothing is sent twice. In any other state it is answered at once.
//!
//! Source: OpenClaw 2026.6.11, Gateway protocol 4. Ours: jitter, waiting for a Gateway that is down,
//! refusals survived after good service, and a silent socket dropped with requests open.
//! Never: reads a clock, opens anything, parses what an event or an answer says.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use serde_json::value::RawValue;

use crate::backoff::Backoff;
use crate::clock::{Deadline, Now, Uptime};
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::entropy::Entropy;
use crate::gateway::connect::{self, Auth, Hello, Verdict};
use crate::gateway::endpoint::Credentials;
use crate::gateway::frame::{self, ErrorBody, Frame};
use crate::gateway::identity::{DeviceIdentity, StoredToken};
use crate::ids::GatewayRequestId;
use crate::limits::Limits;
use crate::secret::Quoted;

pub use crate::gateway::connect::{Refusal, RefusalKind};

/// Events that are handed on. Everything else a Gateway tells (ticks, health, presence, chat, agent runs)
/// is dropped unread; a busy agent makes far more of that, and it cannot be unsubscribed.
/// Source: OpenClaw 2026.6.11, events the bridge consumes.
pub const BRIDGE_EVENTS: [&str; 5] = [
    "session.message",
    "exec.approval.requested",
    "exec.approval.resolved",
    "plugin.approval.requested",
    "plugin.approval.resolved",
];

/// What a session is made from.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    /// The Gateway's address as it may be shown.
    pub url_for_log: String,
    /// Whether that address is this machine. Only there may the device token be shown beside a given
    /// token that was refused.
    pub loopback: bool,
    /// The device we are.
    pub identity: DeviceIdentity,
    /// What the person gave.
    pub credentials: Credentials,
    /// What the Gateway gave this device earlier.
    pub stored_token: Option<StoredToken>,
    /// Node's name for this platform, see [`PLATFORM`](crate::gateway::identity::PLATFORM).
    pub platform: &'static str,
    /// The limits in force.
    pub limits: Limits,
}

/// Why a request has no payload. What it displays is the text of the tool result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum GatewayError {
    /// The Gateway refused it.
    Remote {
        /// Its code, `INVALID_REQUEST` for most things.
        code: String,
        /// Its own words, unescaped.
        message: String,
        /// Raw; often an object with a `reason`.
        details: Option<Box<RawValue>>,
    },
    /// There is no connection. It was not sent.
    NotConnected {
        /// Why not, and when the next try is.
        message: String,
    },
    /// The connection ended first. It may have been done.
    Closed {
        /// How it ended.
        message: String,
    },
    /// No answer in time. It may have been done.
    TimedOut {
        /// Which method.
        message: String,
    },
    /// Too many requests are open (`gateway_requests_max`). It was not sent.
    Busy {
        /// The limit.
        limit: usize,
        /// How many are open.
        open: usize,
    },
    /// The frame is longer than the Gateway takes (`policy.maxPayload` of its hello). It was not sent.
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
        /// Length of the frame, in bytes.
        bytes: usize,
    },
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote { message, .. }
            | Self::NotConnected { message }
            | Self::Closed { message }
            | Self::TimedOut { message } => f.write_str(message),
            Self::Busy { limit, open } => {
                write!(f, "gateway is busy: {open} requests open, limit {limit}")
            }
            Self::TooLarge { limit, bytes } => {
                write!(
                    f,
                    "request too large for the gateway: {bytes} bytes, limit {limit}"
                )
            }
        }
    }
}

impl std::error::Error for GatewayError {}

/// What a session wants done, in order.
#[derive(Clone, Debug)]
pub enum SessionOutput {
    /// Open a new wire, the old one being gone. Ends in [`GatewaySession::handle_up`] or
    /// [`GatewaySession::handle_closed`].
    Open,
    /// Send this text frame.
    Send(String),
    /// Close the wire with a close frame. Ends in [`GatewaySession::handle_closed`].
    Close {
        /// Close code; `None` for a frame without one.
        code: Option<u16>,
        /// Reason beside it.
        reason: String,
    },
    /// Let go of the wire at once. [`GatewaySession::handle_closed`] may be called or not.
    Abort,
    /// Messages up to `gateway_message_bytes_max` may come from now on.
    HelloAccepted,
    /// Requests are welcome and events come.
    Ready {
        /// For the first time.
        first: bool,
    },
    /// No longer [ready](SessionOutput::Ready). Events may have been missed until the next one.
    Lost {
        /// Why.
        why: String,
        /// Wait until the next try, in milliseconds.
        retry_in_ms: u64,
    },
    /// The Gateway does not let us in and never did: nothing more will happen. Exit code 3.
    Refused(Refusal),
    /// The one answer to a request.
    Response {
        /// As [`GatewaySession::request`] gave it.
        id: GatewayRequestId,
        /// The payload (`null` when there was none), or why there is none.
        outcome: Result<Box<RawValue>, GatewayError>,
    },
    /// One of [`BRIDGE_EVENTS`].
    Event {
        /// Its name.
        name: String,
        /// Its payload, unread; `None` when absent or `null`.
        payload: Option<Box<RawValue>>,
    },
    /// Keep this for the next start.
    StoreToken(StoredToken),
    /// The token of the identity files is no longer good: remove it.
    ForgetToken,
    /// Tell the person.
    Diagnostic(Diagnostic),
}

/// What happened so far, for status output and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounters {
    /// Frames that were not understood.
    pub malformed_frames: u64,
    /// Answers to requests that were no longer open.
    pub late_answers: u64,
    /// Events nobody asked for.
    pub dropped_events: u64,
    /// Times the session became ready.
    pub times_ready: u64,
}

/// The machine; the module says how it moves.
#[derive(Debug)]
pub struct GatewaySession {
    config: SessionConfig,
    state: State,
    output: VecDeque<SessionOutput>,
    last_id: GatewayRequestId,
    pending: BTreeMap<GatewayRequestId, Pending>,
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

#[derive(Debug)]
struct Pending {
    method: String,
    until: Uptime,
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
        let (first, most) = (
            limits.reconnect_first_interval,
            limits.reconnect_most_interval,
        );
        Self {
            state: State::Opening,
            output: VecDeque::from([SessionOutput::Open]),
            last_id: GatewayRequestId::default(),
            pending: BTreeMap::new(),
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

    /// Sends a request; `params` is a raw JSON object. Exactly one [`SessionOutput::Response`] with the
    /// returned id follows, at once when the request cannot be sent.
    pub fn request(&mut self, now: Now, method: &str, params: &str) -> GatewayRequestId {
        let id = self.mint();
        let limit = self.config.limits.gateway_requests_max;
        let open = self.pending.len();
        let refused = if !self.is_ready() {
            let message = self.not_connected(now);
            Some(GatewayError::NotConnected { message })
        } else if open >= limit {
            Some(GatewayError::Busy { limit, open })
        } else {
            self.send(id, method, params).err()
        };
        match refused {
            Some(error) => self.answer(id, Err(error)),
            None => {
                let until = now.after(self.config.limits.gateway_request_timeout);
                let method = method.to_owned();
                self.pending.insert(id, Pending { method, until });
            }
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

    /// The wire is gone, or never came. With a `code` the peer closed it and `why` is its reason (1005
    /// when its close frame had no code); without one `why` says what happened to the wire.
    pub fn handle_closed(
        &mut self,
        now: Now,
        why: &str,
        code: Option<u16>,
        entropy: &mut dyn Entropy,
    ) {
        let why = match why {
            "" => "no reason given".to_owned(),
            why => Quoted(why).to_string(),
        };
        let code = code.unwrap_or(ABNORMAL_CLOSURE);
        match self.state {
            State::Waiting { .. } | State::Stopped => {}
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
            State::Waiting { at } if at <= now.up => {
                self.state = State::Opening;
                self.output.push_back(SessionOutput::Open);
            }
            State::AwaitChallenge { since } => self.check_challenge(now, since, entropy),
            State::Connecting { until, .. } if until <= now.up => {
                let why = "gateway request timeout for connect".to_owned();
                self.retry(now, why, CONNECT_FAILED, entropy);
            }
            State::Subscribing { until, .. } if until <= now.up => {
                let why = "gateway request timeout for sessions.subscribe".to_owned();
                self.retry(now, why, CONNECT_FAILED, entropy);
            }
            State::Ready { .. } => {
                self.expire_requests(now);
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
                // Requests get their ids and their deadlines in the same order.
                let first = self.pending.first_key_value();
                let first = first.map(|(_, open)| Deadline::new(open.until, "gateway request"));
                Deadline::earlier(first, Some(Deadline::new(self.silent_at(), "gateway tick")))
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
        let id = self.mint();
        let until = now.after(self.config.limits.gateway_request_timeout);
        self.state = State::Connecting {
            id,
            until,
            shows_device_token,
        };
        self.send_frame(id, "connect", &params);
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
            (_, Some(id)) if self.pending.remove(&id).is_some() => {
                let outcome = match &response.outcome {
                    Ok(Some(payload)) => Ok((*payload).to_owned()),
                    Ok(None) => Ok(RawValue::NULL.to_owned()),
                    Err(error) => Err(GatewayError::Remote {
                        code: error.code.clone().into_owned(),
                        message: error.message.clone().into_owned(),
                        details: error.details.map(ToOwned::to_owned),
                    }),
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
        let id = self.mint();
        let until = now.after(self.config.limits.gateway_request_timeout);
        self.state = State::Subscribing { id, until };
        self.send_frame(id, "sessions.subscribe", "{}");
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
        let was_ready = self.counters.times_ready > 0;
        let verdict = Verdict::of(error, &self.config.url_for_log);
        let refusal = match verdict {
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
        if refusal.code == "AUTH_TOKEN_MISMATCH" && was_ready && self.may_show_device_token() {
            self.device_retry = DeviceRetry::Next;
            self.why = format!("refused: {}", Quoted(&refusal.message));
            self.leave(now.after(DEVICE_RETRY_INTERVAL), CONNECT_FAILED);
            return;
        }
        if was_ready {
            let why = format!("refused: {}; {}", Quoted(&refusal.message), refusal.fix);
            return self.retry(now, why, CONNECT_FAILED, entropy);
        }
        self.why = format!("refused: {}; {}", Quoted(&refusal.message), refusal.fix);
        self.leave(now.up, CONNECT_FAILED);
        self.state = State::Stopped;
        self.output.push_back(SessionOutput::Refused(refusal));
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
            let wait = Seconds(wait);
            self.tell(
                Level::Info,
                format!("gateway {url} is starting, next try in {wait}"),
            );
            self.why = why.to_owned();
        }
        self.leave(
            now.after(wait),
            Parting::Close(TRY_AGAIN_LATER, "gateway starting"),
        );
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

    fn expire_requests(&mut self, now: Now) {
        while let Some(first) = self.pending.first_entry() {
            if first.get().until > now.up {
                break;
            }
            let (id, open) = first.remove_entry();
            let message = format!("gateway request timeout for {}", open.method);
            self.answer(id, Err(GatewayError::TimedOut { message }));
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
        let url = &self.config.url_for_log;
        let served = ready_since.map(|since| now.up.since(since));
        let good = self.config.limits.reconnect_good_interval;
        if self.reporter.worth_telling(&why, served, good) {
            let message = format!(
                "{happened} gateway {url}: {why}, next try in {}",
                Seconds(wait)
            );
            self.tell(Level::Warning, message);
        }
        if ready_since.is_some() {
            self.output.push_back(SessionOutput::Lost {
                why: why.clone(),
                retry_in_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            });
        }
        self.why = why;
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
        for (id, _) in std::mem::take(&mut self.pending) {
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

    fn mint(&mut self) -> GatewayRequestId {
        self.last_id = self.last_id.next();
        self.last_id
    }

    /// Sends a request if the Gateway takes one of its length.
    fn send(
        &mut self,
        id: GatewayRequestId,
        method: &str,
        params: &str,
    ) -> Result<(), GatewayError> {
        let mut text = String::with_capacity(method.len() + params.len() + 64);
        frame::write_request(&mut text, &id.to_string(), method, params);
        let (limit, bytes) = (self.frame_bytes_max, text.len());
        if bytes > limit {
            return Err(GatewayError::TooLarge { limit, bytes });
        }
        self.output.push_back(SessionOutput::Send(text));
        Ok(())
    }

    /// Sends one of the two requests of the handshake.
    fn send_frame(&mut self, id: GatewayRequestId, method: &str, params: &str) {
        let mut text = String::new();
        frame::write_request(&mut text, &id.to_string(), method, params);
        self.output.push_back(SessionOutput::Send(text));
    }
}

/// Close codes. Source: RFC 6455 §7.4.1 and its registry.
const ABNORMAL_CLOSURE: u16 = 1006;
const POLICY_VIOLATION: u16 = 1008;
const TRY_AGAIN_LATER: u16 = 1013;
const CONNECT_FAILED: Parting = Parting::Close(POLICY_VIOLATION, "connect failed");

/// Decides which of many failures in a row a person is told: one per step of the back-off, then only what
/// is new; and every loss of service.
#[derive(Debug)]
struct Reporter {
    steps: u32,
    failures: u32,
    told: String,
}

impl Reporter {
    fn new(first: Duration, most: Duration) -> Self {
        let mut steps = 1;
        let mut wait = first;
        while wait < most && !wait.is_zero() {
            wait = wait.saturating_mul(2);
            steps += 1;
        }
        Self {
            steps,
            failures: 0,
            told: String::new(),
        }
    }

    /// `served` is how long service had lasted, when there was any; `good` starts the count over.
    fn worth_telling(&mut self, why: &str, served: Option<Duration>, good: Duration) -> bool {
        if served.is_some_and(|served| served >= good) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let new = self.failures <= self.steps || served.is_some() || self.told != why;
        if new {
            why.clone_into(&mut self.told);
        }
        new
    }
}

/// A wait in whole seconds, at least one.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.0.as_secs_f64().round().max(1.0))
    }
}
