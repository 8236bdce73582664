//! What is to hold for every connection to a server, also for the next one: subscriptions, and which log
//! messages are wanted.
//!
//! | topic        | input                                | next       | output                                  |
//! |--------------|--------------------------------------|------------|-----------------------------------------|
//! | –            | [`Upstream::set_subscriptions`]      | asked      | the server is told; connected to if idle |
//! | asked        | the server grants it                 | subscribed | Subscribed                              |
//! | asked        | it refuses, or cannot be reached     | asked      | Subscribed, with the reason             |
//! | subscribed   | the connection or its stream is lost | subscribed | the server is connected to and told again |
//! | subscribed   | the server grants it again           | subscribed | an update: some may have been missed    |
//! | any          | no longer among the subscriptions    | –          | the server is told                      |
//!
//! An update of a task is its whole state, which the server is asked for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{State, Turn, Upstream, UpstreamOutput};
use crate::clock::Now;
use crate::codec::json_object::JsonObject;
use crate::codec::scan::members;
use crate::manager::error::UpstreamError;
use crate::manager::explain;
use crate::manager::job::{Job, Options, Work};
use crate::protocol::client::peer::{CallFault, ClientPeer, KNOWS_TASKS};
use crate::protocol::message::LogLevel;
use crate::protocol::topic::Topic;

/// See the module page.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// Topics, and whether the server has granted them.
    subscriptions: BTreeMap<Topic, bool>,
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

    pub(super) fn want_no_topics(&mut self) {
        self.subscriptions.clear();
    }

    fn topics(&self) -> BTreeSet<Topic> {
        self.subscriptions.keys().cloned().collect()
    }

    /// Tells a new connection.
    pub(super) fn tell(&self, now: Now, peer: &mut ClientPeer) {
        peer.set_log_level(now, self.log_level);
        peer.set_log_floor(now, self.log_floor);
        if self.has_subscriptions() && peer.set_subscriptions(now, &self.topics()).is_err() {
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
    /// What is to be subscribed to from now on: all of it. Connects where that is needed.
    pub(in crate::manager) fn set_subscriptions(
        &mut self,
        turn: &mut Turn<'_>,
        topics: &BTreeSet<Topic>,
    ) {
        if self.wishes.topics() == *topics || self.state == State::Closed || self.retired {
            return;
        }
        let known = &mut self.wishes.subscriptions;
        known.retain(|topic, _| topics.contains(topic));
        for topic in topics {
            known.entry(topic.clone()).or_insert(false);
        }
        let told = match &mut self.line {
            Some(line) => line.peer.set_subscriptions(turn.now, topics),
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
    pub(in crate::manager) fn is_subscribed(&self, topic: &Topic) -> bool {
        self.wishes.subscriptions.get(topic) == Some(&true)
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

    /// The server was told this level by a request that was passed on.
    pub(in crate::manager) fn adopt_log_level(&mut self, turn: &mut Turn<'_>, level: LogLevel) {
        self.wishes.log_level = Some(level);
        if let Some(line) = &mut self.line {
            line.peer.adopt_log_level(turn.now, level);
            self.drain(turn);
        }
    }

    /// Sends what was to be told while the server was connected to.
    pub(super) fn send_notices(&mut self, turn: &mut Turn<'_>) {
        for (method, params) in std::mem::take(&mut self.wishes.notices) {
            self.notify(turn, &method, params.as_deref());
        }
    }

    pub(super) fn handle_subscribed(
        &mut self,
        turn: &mut Turn<'_>,
        topic: Topic,
        outcome: Result<(), CallFault>,
    ) {
        let Some(granted) = self.wishes.subscriptions.get_mut(&topic) else {
            return;
        };
        match outcome {
            Ok(()) if *granted => match &topic {
                Topic::Resource(uri) => {
                    let mut params = JsonObject::new();
                    params.text("uri", uri);
                    let params = params.end();
                    self.notified("notifications/resources/updated", params);
                }
                Topic::Task(id) => self.ask_for_task(turn, id),
            },
            Ok(()) => {
                *granted = true;
                let outcome = Ok(());
                self.outputs
                    .push_back(UpstreamOutput::Subscribed { topic, outcome });
            }
            // It was granted before, and is asked for again by and by.
            Err(_) if *granted => {}
            Err(fault) => {
                let outcome = Err(explain::call(&self.config, self.stderr_tail(), &fault));
                self.outputs
                    .push_back(UpstreamOutput::Subscribed { topic, outcome });
            }
        }
    }

    /// Asks what has become of a task: those who listen to it may not have been told.
    pub(in crate::manager) fn ask_for_task(&mut self, turn: &mut Turn<'_>, id: &str) {
        let mut params = JsonObject::new();
        params.text("taskId", id);
        let work = Work::Task {
            params: params.end(),
        };
        let options = Options {
            capabilities: Some(KNOWS_TASKS.into()),
            ..Options::default()
        };
        self.waiting.push_back(Job::new(None, work, options));
        self.pump(turn);
    }

    /// What has become of a task, as its server gives it when it is asked: told as if it had told us.
    pub(super) fn handle_task(&mut self, task: &str) {
        let mut params = JsonObject::new();
        for (name, value) in members(task) {
            if !name.is("resultType") && !name.is("_meta") {
                params.raw(&name.decode(), value);
            }
        }
        self.notified("notifications/tasks", params.end());
    }

    fn notified(&mut self, method: &str, params: String) {
        self.outputs.push_back(UpstreamOutput::Notification {
            method: method.into(),
            params: Some(params.into()),
            ticket: None,
        });
    }

    /// What was asked for and is not granted yet will not be.
    pub(super) fn fail_subscriptions(&mut self, error: &UpstreamError) {
        for (topic, _) in self.wishes.subscriptions.iter().filter(|(_, ok)| !**ok) {
            self.outputs.push_back(UpstreamOutput::Subscribed {
                topic: topic.clone(),
                outcome: Err(error.clone()),
            });
        }
    }
}
