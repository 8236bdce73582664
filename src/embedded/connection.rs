//! One client of the embedded Gateway: its WebSocket, where it stands, and what it is sent.
//!
//! | state      | input               | next       | output                                |
//! |------------|---------------------|------------|---------------------------------------|
//! | Upgrading  | link up             | Challenged | `connect.challenge`                   |
//! | Challenged | `connect`, admitted | Serving    | hello                                 |
//! | Challenged | `connect`, refused  | Closing    | refusal, close 1008 (1002: protocol)  |
//! | Challenged | anything else       | Closing    | refusal if there is an id, close 1008 |
//! | Challenged | deadline            | Closing    | close 1008 `handshake timeout`        |
//! | Serving    | request             | Serving    | response                              |
//! | Serving    | unreadable frame    | Serving    | refusal with its id, or `invalid`     |
//! | Serving    | tick deadline       | Serving    | `tick`                                |
//! | Serving    | out limit reached   | Closing    | nothing: the link is cut              |
//! | Serving    | `close`             | Closing    | close 1012 `service restart`          |
//! | any        | link closed         | –          | gone                                  |
//!
//! Source: openclaw-serve §1.2, §1.3, §1.6.
//! Never: knows a method, changes the store.

use std::time::Duration;

use super::connect::Client;
use super::frame;
use super::refusal::Refusal;
use super::rpc::Caller;
use crate::clock::{Deadline, Now, Uptime};
use crate::ids::WireId;
use crate::limits::Limits;
use crate::link::websocket::{CloseReason, WebSocketLink, WsLinkEvent};
use crate::link::{IoEvent, IoRequest};

use super::views::Object;

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    link: WebSocketLink,
    /// Address of the peer, for people.
    pub(super) peer: String,
    state: State,
    hello_timeout: Duration,
    /// Whether its client was ever let in.
    served: bool,
    /// Why we ended it, when we did.
    end: Option<String>,
}

#[derive(Debug)]
enum State {
    Upgrading,
    Challenged { nonce: String, due: Uptime },
    Serving(Box<Serving>),
    Closing,
}

#[derive(Debug)]
struct Serving {
    client: Client,
    subscribed: bool,
    /// Number of the last broadcast event.
    seq: u64,
    tick_interval: Duration,
    tick_at: Uptime,
}

/// What a connection has heard.
#[derive(Debug)]
pub(super) enum Heard {
    /// The WebSocket is up: it is to be challenged.
    Up,
    /// A text message.
    Text(String),
    /// It is over: why, and whether the client had been let in.
    Closed { why: String, served: bool },
}

impl Connection {
    /// A connection on a wire that was just accepted.
    pub(super) fn new(wire: WireId, peer: &str, limits: &Limits, now: Now) -> Self {
        Self {
            link: WebSocketLink::server(wire, limits, now),
            peer: peer.to_owned(),
            state: State::Upgrading,
            hello_timeout: limits.gateway_challenge_timeout,
            served: false,
            end: None,
        }
    }

    pub(super) fn handle_io(&mut self, now: Now, event: IoEvent<'_>) {
        self.link.handle_io(now, event);
    }

    pub(super) fn handle_timeout(&mut self, now: Now) {
        self.link.handle_timeout(now);
        match &mut self.state {
            State::Challenged { due, .. } if *due <= now.up => {
                self.close(now, 1008, "handshake timeout");
            }
            State::Serving(serving) if serving.tick_at <= now.up => {
                serving.tick_at = now.after(serving.tick_interval);
                let payload = Object::new().int("ts", now.unix_ms).end();
                self.broadcast("tick", &payload);
            }
            State::Upgrading | State::Challenged { .. } | State::Serving(_) | State::Closing => {}
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let own = match &self.state {
            State::Challenged { due, .. } => Some(Deadline::new(*due, "gateway client hello")),
            State::Serving(serving) => Some(Deadline::new(serving.tick_at, "gateway tick")),
            State::Upgrading | State::Closing => None,
        };
        Deadline::earlier(self.link.next_deadline(), own)
    }

    pub(super) fn poll_io(&mut self) -> Option<IoRequest> {
        self.link.poll_io()
    }

    pub(super) fn outgoing(&mut self) -> &mut crate::codec::outbuf::OutBuf {
        self.link.outgoing()
    }

    /// What came in. To be drained to `None`.
    pub(super) fn poll_heard(&mut self) -> Option<Heard> {
        match self.link.poll_event()? {
            WsLinkEvent::Up => Some(Heard::Up),
            WsLinkEvent::Text(text) => Some(Heard::Text(text)),
            WsLinkEvent::Closed(reason) => {
                let served = self.served;
                self.state = State::Closing;
                let why = self.end.take().unwrap_or_else(|| why(&reason));
                Some(Heard::Closed { why, served })
            }
        }
    }

    /// Sends the challenge.
    pub(super) fn challenge(&mut self, now: Now, nonce: String) {
        let payload = Object::new()
            .text("nonce", &nonce)
            .int("ts", now.unix_ms)
            .end();
        self.state = State::Challenged {
            nonce,
            due: now.after(self.hello_timeout),
        };
        self.event("connect.challenge", &payload);
    }

    /// The nonce, while the connection waits for `connect`.
    pub(super) fn nonce(&self) -> Option<&str> {
        match &self.state {
            State::Challenged { nonce, .. } => Some(nonce),
            State::Upgrading | State::Serving(_) | State::Closing => None,
        }
    }

    /// The client is let in: answers with the hello.
    pub(super) fn welcome(
        &mut self,
        now: Now,
        id: &str,
        hello: String,
        client: Client,
        tick_interval: Duration,
        limits: &Limits,
    ) {
        self.link
            .accept_messages_up_to(limits.gateway_message_bytes_max);
        self.served = true;
        self.state = State::Serving(Box::new(Serving {
            client,
            subscribed: false,
            seq: 0,
            tick_interval,
            tick_at: now.after(tick_interval),
        }));
        self.respond(id, &Ok(hello));
    }

    /// The client that was let in.
    pub(super) fn client(&self) -> Option<&Client> {
        match &self.state {
            State::Serving(serving) => Some(&serving.client),
            State::Upgrading | State::Challenged { .. } | State::Closing => None,
        }
    }

    /// The client as the caller of a method.
    pub(super) fn caller(&self) -> Option<Caller<'_>> {
        self.client().map(|client| Caller {
            device: Some(&client.device),
            name: Some(&client.name),
            scopes: &client.scopes,
        })
    }

    /// Whether it wants the messages of all sessions.
    pub(super) fn is_subscribed(&self) -> bool {
        matches!(&self.state, State::Serving(serving) if serving.subscribed)
    }

    pub(super) fn set_subscribed(&mut self, subscribed: bool) {
        if let State::Serving(serving) = &mut self.state {
            serving.subscribed = subscribed;
        }
    }

    /// Answers request `id`.
    pub(super) fn respond(&mut self, id: &str, outcome: &Result<String, Refusal>) {
        let text = frame::response(id, outcome);
        self.send(&text);
    }

    /// Sends an event to this connection alone.
    pub(super) fn event(&mut self, name: &str, payload: &str) {
        let text = frame::event(name, payload, None);
        self.send(&text);
    }

    /// Sends an event that goes to everybody; those are numbered.
    pub(super) fn broadcast(&mut self, name: &str, payload: &str) {
        let State::Serving(serving) = &mut self.state else {
            return;
        };
        serving.seq = serving.seq.saturating_add(1);
        let text = frame::event(name, payload, Some(serving.seq));
        self.send(&text);
    }

    /// Ends the connection with a close frame.
    pub(super) fn close(&mut self, now: Now, code: u16, reason: &str) {
        self.end
            .get_or_insert_with(|| format!("closed with code {code}: {reason}"));
        self.link.close(now, Some(code), reason);
        self.state = State::Closing;
    }

    /// Cuts the connection; nothing that waits is sent.
    pub(super) fn cut(&mut self, why: &str) {
        self.end.get_or_insert_with(|| why.to_owned());
        self.link.abort();
        self.state = State::Closing;
    }

    fn send(&mut self, text: &str) {
        if let Err(full) = self.link.send_text(text) {
            self.cut(&format!("slow consumer: {full}"));
        }
    }
}

fn why(reason: &CloseReason) -> String {
    match reason {
        // The usual end: no need to name the code.
        CloseReason::Peer {
            code: None | Some(1000 | 1005),
            ..
        } => "client closed".to_owned(),
        CloseReason::Peer { .. }
        | CloseReason::Local
        | CloseReason::Violation(_)
        | CloseReason::Refused { .. }
        | CloseReason::Io(_)
        | CloseReason::TimedOut { .. } => reason.to_string(),
    }
}
