//! What passes between a client and a server behind us: subscriptions that only that server can grant, and
//! notifications as it has written them.
//!
//! | listen stream | input                                  | next  | what leaves                              |
//! |---------------|----------------------------------------|-------|------------------------------------------|
//! | –             | `subscriptions/listen` with topics     | asked | [`ServerEvent::Listens`]                 |
//! | asked         | a list, a resource or a task changed   | asked | nothing: it is held                      |
//! | asked         | [`ServerPeer::begin_listening`]        | begun | the acknowledgment, then what was held   |
//! | begun         | a list, a resource or a task changed   | begun | the notification                         |
//!
//! An update is held once for each topic, the last one of it; so no more are held than one stream may
//! subscribe to.
//!
//! Source: Spec 2025-11-25 server/resources, 2026-07-28 basic/patterns/subscriptions and
//! server/utilities/logging; extension io.modelcontextprotocol/tasks.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::modern::{granted, subscription_params};
use super::own::place_of;
use super::{Facts, List, Open, RequestKey, Scope, Served, ServerEvent, ServerPeer};
use crate::codec::jsonrpc::{self, RequestId};
use crate::codec::scan::members;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{LogLevel, META_SUBSCRIPTION_ID, member};
use crate::protocol::revision::Revision;
use crate::protocol::topic::Topic;
use crate::protocol::{Lane, MessageSink};

const UPDATED: &str = "notifications/resources/updated";
const TASKS: &str = "notifications/tasks";

impl ServerPeer {
    /// Whether a legacy client may subscribe to one more resource.
    pub(super) fn check_subscription(&self, uri: &str) -> Result<(), RpcError> {
        let limit = self.config.limits.resource_subscriptions_max;
        if self.resources.len() < limit || self.resources.contains(uri) {
            return Ok(());
        }
        Err(RpcError::new(
            ErrorCode::InternalError,
            format!(
                "busy: {limit} resources are subscribed, limit {limit} (resource_subscriptions_max)"
            ),
        ))
    }

    /// Asks whoever can grant it.
    pub(super) fn relay_subscription(
        &mut self,
        facts: Facts<'_>,
        uri: String,
        on: bool,
    ) -> Result<Served, RpcError> {
        self.check_room(facts.scope)?;
        let revision = self.negotiated.unwrap_or(Revision::V2025_11_25);
        let key = self.remember(facts, revision, None, None);
        self.events
            .push_back(ServerEvent::Subscribes { key, uri, on });
        Ok(Served::Later)
    }

    /// The legacy client is subscribed to this resource from now on, or no more. More than
    /// `resource_subscriptions_max` are not kept.
    pub fn set_subscribed(&mut self, uri: &str, on: bool) {
        if !on {
            self.resources.remove(uri);
        } else if self.check_subscription(uri).is_ok() {
            self.resources.insert(uri.to_owned());
        }
    }

    /// From which severity on the session is told log messages: a request for that was granted elsewhere.
    pub const fn set_log_level(&mut self, level: LogLevel) {
        self.log_level = Some(level);
    }

    /// Everything that is subscribed to, by the session or by a stream that has begun.
    #[must_use]
    pub fn subscribed(&self) -> BTreeSet<Topic> {
        let streams = self.open.iter().filter_map(|open| open.listening.as_ref());
        let streams = streams.filter(|listening| listening.begun);
        let of_streams = streams.clone().flat_map(|listening| &listening.resources);
        let resources = self.resources.iter().chain(of_streams);
        let tasks = streams.flat_map(|listening| &listening.tasks);
        let resources = resources.cloned().map(Topic::Resource);
        resources.chain(tasks.cloned().map(Topic::Task)).collect()
    }

    /// Begins a listen stream that tells of these topics, of those that it asked for.
    pub fn begin_listening(
        &mut self,
        key: RequestKey,
        granted: &BTreeSet<Topic>,
        sink: &mut dyn MessageSink,
    ) {
        let open = self.open.iter_mut().find(|open| open.key == key);
        let Some(listening) = open.and_then(|open| open.listening.as_mut()) else {
            return;
        };
        if !listening.begun {
            let has = |topic| granted.contains(&topic);
            let (resources, tasks) = (&mut listening.resources, &mut listening.tasks);
            resources.retain(|uri| has(Topic::Resource(uri.clone())));
            tasks.retain(|task| has(Topic::Task(task.clone())));
            self.acknowledge(key, sink);
        }
    }

    /// A listen stream that was asked for before it was known what the server has.
    pub(super) fn narrow_listening(&mut self, key: RequestKey, sink: &mut dyn MessageSink) {
        let open = self.open.iter_mut().find(|open| open.key == key);
        let Some(listening) = open.and_then(|open| open.listening.as_mut()) else {
            return;
        };
        let (lists, can) = (&mut listening.lists, self.config.changing);
        lists.tools &= can.tools;
        lists.prompts &= can.prompts;
        lists.resources &= can.resources;
        if !self.config.resource_updates {
            listening.resources.clear();
        }
        if !self.config.task_updates {
            listening.tasks.clear();
        }
        self.grant_topics(key, sink);
    }

    /// The first message of a listen stream, and what was held until then.
    pub(super) fn acknowledge(&mut self, key: RequestKey, sink: &mut dyn MessageSink) {
        let Some(open) = self.open.iter_mut().find(|open| open.key == key) else {
            return;
        };
        let Some(listening) = &mut open.listening else {
            return;
        };
        listening.begun = true;
        let member = format!(r#","notifications":{}"#, granted(listening));
        let method = "notifications/subscriptions/acknowledged";
        let params = subscription_params(&open.id, &member);
        tell(sink, Lane::Request(key), method, Some(&params));
        for list in std::mem::take(&mut listening.lists_held) {
            let params = subscription_params(&open.id, "");
            tell(sink, Lane::Request(key), list.method(), Some(&params));
        }
        for (uri, params) in std::mem::take(&mut listening.updates_held) {
            if covers(&listening.resources, &uri) {
                let params = restamp(&params, Some(&open.id));
                tell(sink, Lane::Request(key), UPDATED, Some(&params));
            }
        }
        for (task, params) in std::mem::take(&mut listening.tasks_held) {
            if listening.tasks.contains(&task) {
                let params = restamp(&params, Some(&open.id));
                tell(sink, Lane::Request(key), TASKS, Some(&params));
            }
        }
    }

    /// A list changed: what a listen stream that has not begun is told later. Says whether it has begun.
    pub(super) fn hold_list_changed(open: &mut Open, list: List) -> bool {
        let Some(listening) = &mut open.listening else {
            return false;
        };
        if !listening.begun && list.of(listening.lists) && !listening.lists_held.contains(&list) {
            listening.lists_held.push(list);
        }
        listening.begun && list.of(listening.lists)
    }

    /// Passes on that a resource was updated, `params` as the server has written them: to the session if it is
    /// subscribed to it or to what it is a part of, or if it may hear of it `unasked`, and to each listen
    /// stream that is but those in `stuck`, whose clients do not read. Spec: 2025-11-25 server/resources (the
    /// resource may be a part of the one subscribed to).
    pub fn pass_resource_updated(
        &mut self,
        uri: &str,
        params: &str,
        unasked: bool,
        stuck: &[RequestKey],
        sink: &mut dyn MessageSink,
    ) {
        if self.negotiated.is_some() && (unasked || covers(&self.resources, uri)) {
            let params = restamp(params, None).into_owned();
            self.tell_session(UPDATED.into(), Some(params), sink);
        }
        let limit = self.config.limits.resource_subscriptions_max;
        for open in &mut self.open {
            let Some(listening) = &mut open.listening else {
                continue;
            };
            if stuck.contains(&open.key) || !covers(&listening.resources, uri) {
                continue;
            }
            if listening.begun {
                let params = restamp(params, Some(&open.id));
                tell(sink, Lane::Request(open.key), UPDATED, Some(&params));
                continue;
            }
            listening.updates_held.retain(|(held, _)| held != uri);
            if listening.updates_held.len() >= limit {
                listening.updates_held.pop_front();
            }
            listening
                .updates_held
                .push_back((uri.to_owned(), params.into()));
        }
    }

    /// Tells a listen stream what has become of a task that it was granted: `params` as a server has written them,
    /// or the state as `tasks/get` gives it.
    pub fn task_changed(
        &mut self,
        key: RequestKey,
        task: &str,
        params: &str,
        sink: &mut dyn MessageSink,
    ) {
        let Some(open) = self.open.iter_mut().find(|open| open.key == key) else {
            return;
        };
        let Some(listening) = &mut open.listening else {
            return;
        };
        if !listening.begun {
            listening.tasks_held.insert(task.to_owned(), params.into());
            return;
        }
        let params = restamp(params, Some(&open.id));
        tell(sink, Lane::Request(key), TASKS, Some(&params));
    }

    /// Passes on a log message, `params` as the server has written them. Of a request, where `key` tells which,
    /// on its stream. By the level that was asked for: by that request in the stateless era, by the session
    /// else; a session that asked for none gets what the server says by itself.
    pub fn pass_log(
        &mut self,
        key: Option<RequestKey>,
        level: LogLevel,
        params: &str,
        sink: &mut dyn MessageSink,
    ) {
        const METHOD: &str = "notifications/message";
        let session_wants = self.log_level.is_none_or(|wanted| level >= wanted);
        if let Some(open) = key.and_then(|key| self.open.iter().find(|open| open.key == key)) {
            let wants = match open.revision.is_stateless() {
                true => open.log_level.is_some_and(|wanted| level >= wanted),
                false => session_wants,
            };
            if wants {
                tell(sink, Lane::Request(open.key), METHOD, Some(params));
            }
            return;
        }
        if self.negotiated.is_some() || !self.speaks_modern {
            if session_wants {
                self.tell_session(METHOD.into(), Some(params.to_owned()), sink);
            }
        } else if let Some(key) = self.logs_to(level) {
            tell(sink, Lane::Request(key), METHOD, Some(params));
        }
    }

    /// The stateless request that a log message is of which does not say so: the only one that wants it. On a
    /// line, which is one stream for all, any.
    fn logs_to(&self, level: LogLevel) -> Option<RequestKey> {
        let mut wanting = self
            .open
            .iter()
            .filter(|open| open.log_level.is_some_and(|wanted| level >= wanted));
        let first = wanting.next()?;
        let clear = first.scope == Scope::default() || wanting.next().is_none();
        clear.then_some(first.key)
    }

    /// Passes on a notification that is not the protocol's own business, byte for byte: on the stream of the
    /// request that it is of, where `key` tells, else to the session. Stateless clients over HTTP have no
    /// stream but those of their requests.
    pub fn pass_notification(
        &mut self,
        key: Option<RequestKey>,
        method: &str,
        params: Option<&str>,
        sink: &mut dyn MessageSink,
    ) {
        match key.filter(|key| self.open.iter().any(|open| open.key == *key)) {
            Some(key) => tell(sink, Lane::Request(key), method, params),
            None if self.negotiated.is_none() && self.speaks_modern => {
                tell(sink, Lane::Session, method, params);
            }
            None => {
                let method = Cow::Owned(method.to_owned());
                self.tell_session(method, params.map(str::to_owned), sink);
            }
        }
    }

    /// Sends a notification of the session; before the client has finished its handshake it is held, up to
    /// `notifications_held_max`; the oldest goes first.
    pub(super) fn tell_session(
        &mut self,
        method: Cow<'static, str>,
        params: Option<String>,
        sink: &mut dyn MessageSink,
    ) {
        if self.initialized {
            return tell(sink, Lane::Session, &method, params.as_deref());
        }
        if self.held.len() >= self.config.limits.notifications_held_max {
            self.held.pop_front();
            self.tally.notifications_dropped += 1;
        }
        self.held.push_back((method, params));
    }
}

fn tell(sink: &mut dyn MessageSink, lane: Lane, method: &str, params: Option<&str>) {
    jsonrpc::write_notification(sink.begin(lane), method, params);
    sink.commit();
}

/// Whether a resource is one of these, or a part of one.
fn covers(subscribed: &BTreeSet<String>, uri: &str) -> bool {
    let is_part = |of: &String| {
        let rest = uri.strip_prefix(of.as_str());
        rest.is_some_and(|rest| of.ends_with('/') || rest.starts_with(['/', '?', '#']))
    };
    subscribed.contains(uri) || subscribed.iter().any(is_part)
}

/// `params` of a notification of changes with this subscription in its `_meta`, or with none; every other byte
/// of it stays.
fn restamp<'a>(params: &'a str, id: Option<&RequestId>) -> Cow<'a, str> {
    let params = params.trim();
    let meta = member(params, "_meta");
    let stamped = meta.is_some_and(|meta| member(meta, META_SUBSCRIPTION_ID).is_some());
    if id.is_none() && !stamped {
        return Cow::Borrowed(params);
    }
    let mut new = String::from("{");
    let mut push = |name: &str, value: &str| {
        new.push_str(if new.len() > 1 { "," } else { "" });
        new.push_str(&format!("\"{name}\":{value}"));
    };
    for (name, value) in meta.into_iter().flat_map(members) {
        if !name.is(META_SUBSCRIPTION_ID) {
            push(name.raw(), value);
        }
    }
    if let Some(id) = id {
        push(META_SUBSCRIPTION_ID, id.raw());
    }
    new.push('}');
    if let Some((begin, end)) = meta.and_then(|meta| place_of(params, meta)) {
        return format!("{}{new}{}", &params[..begin], &params[end..]).into();
    }
    let rest = params.strip_prefix('{').unwrap_or("}").trim_start();
    let between = if rest.starts_with('}') { "" } else { "," };
    format!("{{\"_meta\":{new}{between}{rest}").into()
}
