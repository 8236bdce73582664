//! What is to hold for every connection to a server, also for the next one: subscriptions to resources, and
//! which log messages are wanted.
//!
//! | resource     | input                                | next       | output                                  |
//! |--------------|--------------------------------------|------------|-----------------------------------------|
//! | –            | [`Upstream::set_subscriptions`]      | asked      | the server is told; connected to if idle |
//! | asked        | the server grants it                 | subscribed | Subscribed                              |
//! | asked        | it refuses, or cannot be reached     | asked      | Subscribed, with the reason             |
//! | subscribed   | the connection or its stream is lost | subscribed | the server is connected to and told again |
//! | subscribed   | the server grants it again           | subscribed | an update: some may have been missed    |
//! | any          | no longer among the subscriptions    | –          | the server is told                      |

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{State, Turn, Upstream, UpstreamOutput};
use crate::clock::Now;
use crate::codec::json_object::JsonObject;
use crate::manager::error::UpstreamError;
use crate::manager::explain;
use crate::protocol::client::peer::{CallFault, ClientPeer};
use crate::protocol::message::LogLevel;

/// See the module page.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// Resources, and whether the server has granted them.
    subscriptions: BTreeMap<String, bool>,
    log_level: Option<LogLevel>,
    log_floor: Option<LogLevel>,
    /// Notifications for the server that is being connected to.
    notices: VecDeque<Notice>,
}

type Notice = (Box<str>, Option<Box<str>>);

impl Wishes {
    pub(super) fn has_subscriptions(&self) -> bool {
        !self.subscriptions.is_empty()
    }

    pub(super) fn want_no_resources(&mut self) {
        self.subscriptions.clear();
    }

    fn uris(&self) -> BTreeSet<String> {
        self.subscriptions.keys().cloned().collect()
    }

    /// Tells a new connection.
    pub(super) fn tell(&self, now: Now, peer: &mut ClientPeer) {
        peer.set_log_level(now, self.log_level);
        peer.set_log_floor(now, self.log_floor);
        if self.has_subscriptions() && peer.set_subscriptions(now, &self.uris()).is_err() {
            log::debug!("more subscriptions than a connection may have");
        }
    }

    /// Keeps a notification until the server can be told. The oldest goes first.
    pub(super) fn hold_notice(&mut self, method: &str, params: Option<&str>, limit: usize) {
        if self.notices.len() >= limit {
            self.notices.pop_front();
        }
        self.notices
            .push_back((method.into(), params.map(Box::from)));
    }
}

impl Upstream {
    /// Which resources are to be subscribed to from now on: all of them. Connects where that is needed.
    pub(in crate::manager) fn set_subscriptions(
        &mut self,
        turn: &mut Turn<'_>,
        uris: &BTreeSet<String>,
    ) {
        if self.wishes.uris() == *uris || self.state == State::Closed || self.retired {
            return;
        }
        let known = &mut self.wishes.subscriptions;
        known.retain(|uri, _| uris.contains(uri));
        for uri in uris {
            known.entry(uri.clone()).or_insert(false);
        }
        let told = match &mut self.line {
            Some(line) => line.peer.set_subscriptions(turn.now, uris),
            None => Ok(()),
        };
        if let Err(fault) = told {
            let error = explain::call(&self.config, "", &fault);
            self.fail_subscriptions(&error);
        }
        self.wake(turn.now);
        match self.state {
            State::Idle if self.wishes.has_subscriptions() => self.begin(turn),
            State::Resting(until, false) => {
                let left = until.since(turn.now.up);
                let error = explain::resting(&self.config, self.last_error.as_ref(), left);
                self.fail_subscriptions(&error);
            }
            State::Idle | State::Opening | State::Ready | State::Resting(..) | State::Closed => {}
        }
        self.drain(turn);
    }

    /// Whether anything is wanted beside answers.
    pub(in crate::manager) fn has_wishes(&self) -> bool {
        let wishes = &self.wishes;
        wishes.has_subscriptions() || wishes.log_level.is_some() || wishes.log_floor.is_some()
    }

    /// Whether the server has granted this subscription.
    pub(in crate::manager) fn is_subscribed(&self, uri: &str) -> bool {
        self.wishes.subscriptions.get(uri) == Some(&true)
    }

    /// From which severity on log messages are wanted, by all and, of a session, at least.
    pub(in crate::manager) fn set_log_level(
        &mut self,
        turn: &mut Turn<'_>,
        level: Option<LogLevel>,
        floor: Option<LogLevel>,
    ) {
        self.wishes.log_level = level;
        self.wishes.log_floor = floor;
        if let Some(line) = &mut self.line {
            line.peer.set_log_level(turn.now, level);
            line.peer.set_log_floor(turn.now, floor);
            self.drain(turn);
        }
    }

    /// Sends what was to be told while the server was connected to.
    pub(super) fn send_notices(&mut self, turn: &mut Turn<'_>) {
        for (method, params) in std::mem::take(&mut self.wishes.notices) {
            self.notify(turn, &method, params.as_deref());
        }
    }

    pub(super) fn handle_subscribed(&mut self, uri: Box<str>, outcome: Result<(), CallFault>) {
        let Some(granted) = self.wishes.subscriptions.get_mut(&*uri) else {
            return;
        };
        match outcome {
            Ok(()) if *granted => {
                let mut params = JsonObject::new();
                params.text("uri", &uri);
                self.outputs.push_back(UpstreamOutput::Notification {
                    method: "notifications/resources/updated".into(),
                    params: Some(params.end().into()),
                    ticket: None,
                });
            }
            Ok(()) => {
                *granted = true;
                let outcome = Ok(());
                self.outputs
                    .push_back(UpstreamOutput::Subscribed { uri, outcome });
            }
            // It was granted before, and is asked for again by and by.
            Err(_) if *granted => {}
            Err(fault) => {
                let outcome = Err(explain::call(&self.config, self.stderr_tail(), &fault));
                self.outputs
                    .push_back(UpstreamOutput::Subscribed { uri, outcome });
            }
        }
    }

    /// What was asked for and is not granted yet will not be.
    pub(super) fn fail_subscriptions(&mut self, error: &UpstreamError) {
        for (uri, _) in self.wishes.subscriptions.iter().filter(|(_, ok)| !**ok) {
            self.outputs.push_back(UpstreamOutput::Subscribed {
                uri: uri.as_str().into(),
                outcome: Err(error.clone()),
            });
        }
    }
}
