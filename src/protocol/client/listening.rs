//! Hearing of changes: subscriptions to resources and tasks, and the listen stream of the stateless era.
//!
//! A server of the stateless era tells of changes only on a stream that was asked for. There is one, for all
//! lists that the server says may change and all topics that are subscribed to.
//!
//! | current | next   | input                          | what happens                                          |
//! |---------|--------|--------------------------------|-------------------------------------------------------|
//! | –       | –      | Ready, or other subscriptions  | `subscriptions/listen` leaves: it is next             |
//! | open    | –      | other subscriptions            | the same; current stays until next is acknowledged    |
//! | any     | asked  | other subscriptions            | next is taken back, another one is asked for          |
//! | any     | asked  | acknowledged                   | current is taken back, next becomes current           |
//! | –       | asked  | acknowledged after a gap       | the same; ListChanged for each list                   |
//! | any     | asked  | an error, its end, no answer in time | asked for again after a wait; not for ever      |
//! | any     | asked  | -32601                         | never asked for again                                 |
//! | open    | –      | a result, a cancellation, its end | asked for again after a wait                       |
//!
//! In the handshake revisions `resources/subscribe` and `resources/unsubscribe` are sent for what differs;
//! they have no tasks that can be subscribed to.
//!
//! Source: Spec 2026-07-28 basic/patterns/subscriptions and cancellation; 2025-11-25 server/resources;
//! extension io.modelcontextprotocol/tasks.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::fault::{CallFault, RemoteError};
use super::peer::{ClientPeer, ListKind, PeerOutput, read_id};
use super::pending::KNOWS_TASKS;
use super::{Carrier, RequestEnd};
use crate::clock::{Deadline, Now, Uptime};
use crate::codec::json_object::JsonObject;
use crate::codec::json_text::write_string;
use crate::codec::scan::{Text, elements};
use crate::ids::UpstreamRequestId;
use crate::protocol::error::ErrorCode;
use crate::protocol::message::{META_SUBSCRIPTION_ID, member};
use crate::protocol::topic::Topic;

const LISTEN: &str = "subscriptions/listen";

/// Listen streams in a row that no acknowledgment was heard of; then none is asked for any more. Waits
/// double from one to the next, so that this many take minutes. No limit of its own: it is the end of a habit, and bounds no
/// memory.
const UNACKNOWLEDGED_MAX: u32 = 8;

/// Former listen streams of which something may still come. No limit of its own: of an older one a late message is
/// noise, which nobody would set.
const PAST_STREAMS_MAX: usize = 8;

/// See the module page.
#[derive(Debug, Default)]
pub(super) struct Listening {
    /// What is subscribed to.
    topics: BTreeSet<Topic>,
    /// That of which the server has been told: in the handshake revisions by a request, in the stateless era by
    /// a stream that it has acknowledged.
    told: BTreeSet<Topic>,
    current: Option<Stream>,
    next: Option<Stream>,
    /// When a stream is asked for again.
    retry_at: Option<Uptime>,
    /// Waits in a row, without good service in between.
    waits: u32,
    unacknowledged: u32,
    /// Changes may have been missed.
    gap: bool,
    given_up: bool,
    past: VecDeque<UpstreamRequestId>,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    id: UpstreamRequestId,
    /// When it was asked for, later when it was acknowledged.
    since: Uptime,
}

impl Listening {
    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        self.retry_at.map(|at| Deadline::new(at, LISTEN))
    }

    fn is_open(&self, id: UpstreamRequestId) -> bool {
        [self.current, self.next]
            .into_iter()
            .flatten()
            .any(|stream| stream.id == id)
    }

    fn leave_behind(&mut self, id: UpstreamRequestId) {
        if self.past.len() >= PAST_STREAMS_MAX {
            self.past.pop_front();
        }
        self.past.push_back(id);
    }
}

impl ClientPeer {
    /// Says what is subscribed to from now on: all of it, not what changes. May be called before
    /// [`PeerOutput::Ready`].
    ///
    /// # Errors
    /// [`CallFault::Busy`] when there are more than `resource_subscriptions_max` resources or more than
    /// `task_subscriptions_max` tasks; nothing has changed then.
    pub fn set_subscriptions(
        &mut self,
        now: Now,
        topics: &BTreeSet<Topic>,
    ) -> Result<(), CallFault> {
        let limits = &self.config.limits;
        let resources = topics.iter().filter_map(Topic::resource).count();
        for (value, limit) in [
            (resources, limits.resource_subscriptions_max),
            (topics.len() - resources, limits.task_subscriptions_max),
        ] {
            if value > limit {
                return Err(CallFault::Busy { value, limit });
            }
        }
        if self.listening.topics != *topics {
            self.listening.topics.clone_from(topics);
            if self.is_ready() {
                self.listen_if_wanted(now);
            }
        }
        Ok(())
    }

    /// Asks for what is wanted now.
    pub(super) fn listen_if_wanted(&mut self, now: Now) {
        let facts = self.facts.as_ref();
        if !facts.is_some_and(|facts| facts.revision.has_listen_streams()) {
            return self.subscribe(now);
        }
        self.listening.told = &self.listening.told & &self.listening.topics;
        if self.listening.given_up {
            let fault = not_offered(LISTEN);
            return self.fail_subscriptions(&fault);
        }
        match self.filter() {
            Some(filter) => self.listen(now, &filter),
            None => {
                self.listening.retry_at = None;
                let streams = [self.listening.current.take(), self.listening.next.take()];
                for stream in streams.into_iter().flatten() {
                    self.leave(stream, "no longer wanted");
                }
            }
        }
    }

    /// Tells a server of the handshake revisions what differs, as many at a time as may be open.
    pub(super) fn subscribe(&mut self, now: Now) {
        let Some(facts) = self.facts.as_ref().filter(|_| self.is_ready()) else {
            return;
        };
        let resources = member(&facts.capabilities, "resources");
        let offered = resources.and_then(|resources| member(resources, "subscribe"));
        if facts.revision.has_listen_streams() {
            return;
        }
        let is_resource = |topic: &Topic| topic.resource().is_some();
        if offered != Some("true") {
            let fault = not_offered("resources/subscribe");
            return self.fail_subscriptions(&fault);
        }
        if !self.listening.topics.iter().all(is_resource) {
            let fault = not_offered("a subscription to a task");
            self.fail_subscriptions_to(&fault, |topic| !is_resource(topic));
        }
        while self.settings.len() < self.config.limits.upstream_requests_open_max {
            let Listening { topics, told, .. } = &mut self.listening;
            let old = told.difference(topics).next().cloned();
            let mut missing = topics.difference(told);
            let new = missing.find(|topic| is_resource(topic)).cloned();
            let (method, topic, subscribes) = match (old, new) {
                (Some(topic), _) => {
                    told.remove(&topic);
                    ("resources/unsubscribe", topic, None)
                }
                (None, Some(topic)) => {
                    told.insert(topic.clone());
                    ("resources/subscribe", topic.clone(), Some(topic))
                }
                (None, None) => return,
            };
            let mut params = JsonObject::new();
            params.text("uri", topic.resource().unwrap_or_default());
            self.send_setting(now, method, &params.end(), subscribes);
        }
    }

    /// A server of the handshake revisions has answered a `resources/subscribe`, or has not in time.
    pub(super) fn subscription_answered(&mut self, topic: Topic, outcome: Result<(), CallFault>) {
        let listening = &mut self.listening;
        if !listening.topics.contains(&topic) {
            return;
        }
        if let Err(CallFault::Remote(_)) = outcome {
            // There is nothing to take back.
            listening.topics.remove(&topic);
            listening.told.remove(&topic);
        }
        self.push(PeerOutput::Subscribed { topic, outcome });
    }

    /// Whether the server says that this list may change.
    fn may_change(&self, list: ListKind) -> bool {
        let capabilities = self.facts.as_ref().map(|facts| &*facts.capabilities);
        let feature = capabilities.and_then(|all| member(all, list.feature()));
        feature.and_then(|feature| member(feature, "listChanged")) == Some("true")
    }

    /// The raw filter of what is wanted; `None` when that is nothing.
    fn filter(&self) -> Option<String> {
        let mut filter = JsonObject::new();
        let mut any = false;
        for list in ListKind::ALL {
            if self.may_change(list) {
                filter.flag(wish(list), true);
                any = true;
            }
        }
        for (name, of) in TOPICS {
            let mut texts = String::from("[");
            for text in self.listening.topics.iter().filter_map(of) {
                texts.push_str(if texts.len() > 1 { "," } else { "" });
                write_string(&mut texts, text);
            }
            if texts.len() > 1 {
                texts.push(']');
                filter.raw(name, &texts);
                any = true;
            }
        }
        any.then(|| filter.end())
    }

    fn listen(&mut self, now: Now, filter: &str) {
        if let Some(stream) = self.listening.next.take() {
            self.leave(stream, "another one is asked for");
        }
        let Some(id) = self.own_id() else {
            self.listening.given_up = true;
            return self.noise("out of request ids: no listen stream", b"");
        };
        let since = now.up;
        self.listening.next = Some(Stream { id, since });
        self.listening.retry_at = Some(now.after(self.config.limits.request_timeout));
        let mut params = JsonObject::new();
        params.raw("notifications", filter);
        // Only who says that it knows tasks is told of them.
        let mut tasks = self.listening.topics.iter().filter_map(Topic::task);
        let declares = tasks.next().map(|_| KNOWS_TASKS);
        let (params, dialect) = (params.end(), self.dialect());
        self.send_own_request_as(id, LISTEN, Some(&params), dialect, declares);
    }

    /// Ends a stream from our side.
    fn leave(&mut self, stream: Stream, reason: &str) {
        self.listening.leave_behind(stream.id);
        self.take_back(stream.id, reason);
    }

    fn acknowledged(&mut self, now: Now, id: UpstreamRequestId, granted: Option<&str>) {
        let Some(stream) = self.listening.next.filter(|stream| stream.id == id) else {
            return;
        };
        let since = now.up;
        self.listening.next = None;
        self.listening.retry_at = None;
        self.listening.unacknowledged = 0;
        let old = self.listening.current.replace(Stream { since, ..stream });
        if let Some(old) = old {
            self.leave(old, "replaced by another one");
        }
        let grants = |name| granted.and_then(|granted| member(granted, name));
        let gap = std::mem::take(&mut self.listening.gap);
        for list in ListKind::ALL {
            if !self.may_change(list) {
                continue;
            }
            if grants(wish(list)) != Some("true") {
                let why = format!("server does not tell of changes: {}", list.feature());
                self.noise(&why, b"");
            }
            if gap {
                self.push(PeerOutput::ListChanged(list));
            }
        }
        let mut resources = self.listening.topics.iter().filter_map(Topic::resource);
        if resources.next().is_some() && grants("resourceSubscriptions").is_none() {
            self.noise("server does not tell of changes: single resources", b"");
        }
        let resources = texts(grants("resourceSubscriptions")).map(Topic::Resource);
        let tasks = texts(grants("taskIds")).map(Topic::Task);
        let granted: BTreeSet<Topic> = resources.chain(tasks).collect();
        let Listening { topics, told, .. } = &mut self.listening;
        let new: Vec<Topic> = topics.difference(told).cloned().collect();
        told.extend(topics.intersection(&granted).cloned());
        for topic in new {
            let outcome = match (granted.contains(&topic), &topic) {
                (true, _) => Ok(()),
                (false, Topic::Resource(_)) => Err(not_offered("a subscription to this resource")),
                (false, Topic::Task(_)) => Err(not_offered("a subscription to this task")),
            };
            self.push(PeerOutput::Subscribed { topic, outcome });
        }
    }

    /// Says of each topic that is not subscribed to why it is not.
    fn fail_subscriptions(&mut self, fault: &CallFault) {
        self.fail_subscriptions_to(fault, |_| true);
    }

    /// The same of those that `which` says.
    fn fail_subscriptions_to(&mut self, fault: &CallFault, which: impl Fn(&Topic) -> bool) {
        let Listening { topics, told, .. } = &self.listening;
        let missing = topics.difference(told).filter(|topic| which(topic));
        for topic in missing.cloned().collect::<Vec<_>>() {
            let outcome = Err(fault.clone());
            self.push(PeerOutput::Subscribed { topic, outcome });
        }
    }

    /// A notification of the stateless era: whether it is to be passed on.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn of_listen_stream(
        &mut self,
        now: Now,
        method: Text<'_>,
        params: Option<&str>,
        on: Option<UpstreamRequestId>,
    ) -> Result<bool, String> {
        let acknowledges = method.is("notifications/subscriptions/acknowledged");
        let is_change = method.is("notifications/resources/updated")
            || method.is("notifications/tasks")
            || ListKind::of_notification(method).is_some();
        if !acknowledges && !is_change {
            return Ok(true);
        }
        let meta = params.and_then(|params| member(params, "_meta"));
        let named = meta.and_then(|meta| member(meta, META_SUBSCRIPTION_ID));
        let id = match named {
            Some(raw) => read_id(raw).map(|(id, _)| id),
            None if self.config.carrier == Carrier::Http => on,
            None => self
                .listening
                .next
                .or(self.listening.current)
                .map(|stream| stream.id),
        };
        let Some(id) =
            id.filter(|id| self.listening.is_open(*id) || self.listening.past.contains(id))
        else {
            return Err("notification of no listen stream of ours".to_owned());
        };
        if acknowledges {
            let granted = params.and_then(|params| member(params, "notifications"));
            self.acknowledged(now, id, granted);
        }
        Ok(is_change)
    }

    /// An answer to a listen request, which ends it; `false` when it is to none.
    pub(super) fn listen_answered(
        &mut self,
        now: Now,
        id: UpstreamRequestId,
        outcome: &Result<&str, RemoteError>,
    ) -> bool {
        if self.listening.past.contains(&id) {
            return true;
        }
        if !self.listening.is_open(id) {
            return false;
        }
        match outcome {
            Ok(_) => self.stream_ended(now, id, "server ended it", false),
            Err(error) => self.stream_refused(now, id, error),
        }
        true
    }

    /// HTTP: the end of a listen stream without an answer; `false` when it is of none.
    pub(super) fn listen_end(&mut self, now: Now, id: UpstreamRequestId, end: &RequestEnd) -> bool {
        if !self.listening.is_open(id) {
            return self.listening.past.contains(&id);
        }
        let error = match end {
            RequestEnd::Status(status) => RemoteError::in_body(status, &self.scan_limits),
            RequestEnd::NotSent(_)
            | RequestEnd::SessionLost { .. }
            | RequestEnd::SessionDoubtful(_)
            | RequestEnd::NotReading { .. }
            | RequestEnd::Accepted
            | RequestEnd::ContentType { .. }
            | RequestEnd::Broken(_)
            | RequestEnd::TooLarge { .. }
            | RequestEnd::Redirect { .. } => None,
        };
        match error {
            Some(error) => self.stream_refused(now, id, &error),
            None => self.stream_ended(now, id, &end.to_string(), false),
        }
        true
    }

    /// The server takes a listen stream down; `false` when it is none of ours.
    pub(super) fn listen_cancelled(&mut self, now: Now, id: UpstreamRequestId) -> bool {
        if !self.listening.is_open(id) {
            return self.listening.past.contains(&id);
        }
        self.stream_ended(now, id, "server ended it", false);
        self.forget(id);
        true
    }

    fn stream_refused(&mut self, now: Now, id: UpstreamRequestId, error: &RemoteError) {
        let for_good = error.is_one_of(&[ErrorCode::MethodNotFound]);
        self.stream_ended(now, id, &error.to_string(), for_good);
    }

    fn stream_ended(&mut self, now: Now, id: UpstreamRequestId, why: &str, for_good: bool) {
        let limits = &self.config.limits;
        let (first, most) = (
            limits.reconnect_first_interval,
            limits.reconnect_most_interval,
        );
        let good = limits.reconnect_good_interval;
        let listening = &mut self.listening;
        listening.leave_behind(id);
        if let Some(stream) = listening.current.take_if(|stream| stream.id == id) {
            listening.gap = true;
            // Updates may be missed until the next stream, which says so.
            listening.told.clear();
            if now.up.since(stream.since) >= good {
                listening.waits = 0;
            }
        } else if listening.next.take_if(|stream| stream.id == id).is_some() {
            listening.unacknowledged += 1;
            let fault = CallFault::Closed(format!("{LISTEN}: {why}"));
            self.fail_subscriptions(&fault);
        }
        let listening = &mut self.listening;
        listening.given_up = for_good || listening.unacknowledged >= UNACKNOWLEDGED_MAX;
        if listening.given_up {
            listening.retry_at = None;
            // A server that has no such method says so in the words of the protocol: nothing is odd.
            if for_good {
                return;
            }
            return self.noise(&format!("no listen stream any more: {why}"), b"");
        }
        if listening.next.is_some() {
            return;
        }
        let wait = doubled(first, listening.waits).min(most);
        listening.waits = listening.waits.saturating_add(1);
        listening.retry_at = Some(now.after(wait));
        let wait = wait.as_millis();
        self.noise(
            &format!("listen stream ended: {why}; next try in {wait} ms"),
            b"",
        );
    }

    pub(super) fn listening_timeout(&mut self, now: Now) {
        if self.listening.retry_at.is_none_or(|at| at > now.up) {
            return;
        }
        self.listening.retry_at = None;
        match self.listening.next {
            Some(stream) => {
                self.take_back(stream.id, "not acknowledged in time");
                self.stream_ended(now, stream.id, "not acknowledged in time", false);
            }
            None => self.listen_if_wanted(now),
        }
    }
}

/// What a topic is called, where it is one of this kind.
type Naming = fn(&Topic) -> Option<&str>;

/// The members of a filter that name topics.
const TOPICS: [(&str, Naming); 2] = [
    ("resourceSubscriptions", Topic::resource),
    ("taskIds", Topic::task),
];

/// The texts of a raw list.
fn texts(list: Option<&str>) -> impl Iterator<Item = String> {
    let texts = list.into_iter().flat_map(elements);
    let texts = texts.filter_map(Text::of_value);
    texts.map(|text| text.decode().into_owned())
}

/// The server has no such thing.
fn not_offered(what: &str) -> CallFault {
    CallFault::Remote(RemoteError {
        code: ErrorCode::MethodNotFound.number().into(),
        message: format!("{what} is not offered"),
        data: None,
        raw: None,
    })
}

/// The member of a filter that asks for this list.
const fn wish(list: ListKind) -> &'static str {
    match list {
        ListKind::Tools => "toolsListChanged",
        ListKind::Resources => "resourcesListChanged",
        ListKind::Prompts => "promptsListChanged",
    }
}

fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(1_u32.checked_shl(times.min(16)).unwrap_or(u32::MAX))
}
