//! Subscriptions to resources of servers, for clients of either era to servers of either era, and to tasks,
//! within the stateless era.
//!
//! | a client's                              | input                                | what happens                         |
//! |-----------------------------------------|--------------------------------------|--------------------------------------|
//! | `resources/subscribe`, a listen stream  | –                                    | its server is told, once per runtime |
//! | a listen stream, a task                 | others of the runtime listen to it   | granted; its server is asked for it  |
//! | the same, of nobody that is known       | what the servers have is known       | its server is told, or it is refused |
//! | the same, waiting                       | the server grants it, or will not    | the answer, or the acknowledgment    |
//! | the same, waiting                       | an update                            | held until then                      |
//! | `resources/unsubscribe`                 | –                                    | answered; told when no other wants it |
//! | listen stream, session                  | it ends                              | the same                             |
//!
//! An answer waits until the server has said that it tells of updates from then on: by its own answer to
//! `resources/subscribe`, or by the acknowledgment of a listen stream. So none is lost between.
//!
//! How many there may be of one client is `resource_subscriptions_max` and `task_subscriptions_max`; what a
//! runtime is subscribed to is what its client is, all streams together.

use std::collections::{BTreeMap, BTreeSet};

use super::opening::failed;
use crate::clock::Now;
use crate::codec::json_object::JsonObject;
use crate::hub::Hub;
use crate::ids::{PeerId, RuntimeId};
use crate::local::{Feature, declares};
use crate::manager::error::{FailureKind, UpstreamError};
use crate::manager::server_config::ServerKey;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::server::{Answer, RequestKey};
use crate::protocol::topic::Topic;

/// What waits for servers to grant it. Bounded by the requests that clients may have open.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    pending: Vec<Pending>,
    /// Which server each topic of a runtime is asked of.
    routes: BTreeMap<(RuntimeId, Topic), ServerKey>,
}

#[derive(Debug)]
struct Pending {
    peer: PeerId,
    key: RequestKey,
    runtime: RuntimeId,
    /// Topics that nobody has answered for.
    open: BTreeSet<Topic>,
    granted: BTreeSet<Topic>,
    /// Resources of which it is not known yet whose they are.
    unplaced: BTreeSet<Topic>,
    /// It is a listen stream: what is not granted is left out of it.
    listens: bool,
}

/// A request of a client of the handshake era.
#[derive(Debug)]
pub(in crate::hub) struct Subscribing {
    pub(in crate::hub) key: RequestKey,
    pub(in crate::hub) uri: String,
}

impl Subscriptions {
    fn forget(&mut self, peer: PeerId, key: RequestKey) {
        self.pending
            .retain(|one| one.peer != peer || one.key != key);
    }

    pub(super) fn close_client(&mut self, peer: PeerId, runtime: Option<RuntimeId>) {
        self.pending.retain(|one| one.peer != peer);
        self.routes.retain(|(of, _), _| Some(*of) != runtime);
    }

    /// Which server a task is listened to at.
    pub(super) fn server_of_task(&self, runtime: RuntimeId, id: &str) -> Option<&ServerKey> {
        let route = (runtime, Topic::Task(id.to_owned()));
        self.routes.get(&route)
    }

    /// Everything that a runtime wants and has not got.
    fn wanted(&self, runtime: RuntimeId) -> impl Iterator<Item = &Topic> {
        let of = self
            .pending
            .iter()
            .filter(move |one| one.runtime == runtime);
        of.flat_map(|one| one.open.iter().chain(&one.granted))
    }
}

impl Hub {
    /// A client of the handshake era subscribes to a resource, or takes that back.
    pub(in crate::hub) fn route_subscription(
        &mut self,
        now: Now,
        peer: PeerId,
        asked: Subscribing,
        on: bool,
    ) {
        let Subscribing { key, uri } = asked;
        if on {
            let topics = BTreeSet::from([Topic::Resource(uri)]);
            return self.subscribe(now, peer, key, topics, false);
        }
        self.with_peer(now, peer, |peer, sink| {
            peer.set_subscribed(&uri, false);
            peer.respond(key, Answer::Plain("{}"), sink);
        });
        self.renew_subscriptions(now, peer);
    }

    /// A listen stream is to tell of resources and tasks.
    pub(in crate::hub) fn route_listening(
        &mut self,
        now: Now,
        peer: PeerId,
        key: RequestKey,
        topics: BTreeSet<Topic>,
        client_capabilities: &str,
    ) {
        let names_tasks = topics.iter().any(|topic| topic.task().is_some());
        if names_tasks && !declares(client_capabilities, Feature::Tasks) {
            let error = Feature::Tasks.missing();
            return self.respond(now, peer, key, Answer::Error(&error));
        }
        self.subscribe(now, peer, key, topics, true);
    }

    fn subscribe(
        &mut self,
        now: Now,
        peer: PeerId,
        key: RequestKey,
        topics: BTreeSet<Topic>,
        listens: bool,
    ) {
        self.declare_client(peer);
        let Some(side) = &mut self.upstream else {
            return;
        };
        let runtime = match side.runtime_of(now, peer) {
            Ok(runtime) => runtime,
            Err(error) => return self.respond(now, peer, key, Answer::Error(&error)),
        };
        let mut one = Pending {
            peer,
            key,
            runtime,
            open: BTreeSet::new(),
            granted: BTreeSet::new(),
            unplaced: BTreeSet::new(),
            listens,
        };
        for topic in topics {
            match self.is_of_program(peer, &topic) {
                true => one.granted.insert(topic),
                false => one.unplaced.insert(topic),
            };
        }
        let mut uris = one.unplaced.iter().filter_map(Topic::resource);
        if uris.any(|uri| self.server_of_resource(peer, uri).is_none()) {
            if let Some(side) = &mut self.upstream {
                side.learn_resources(now, runtime);
            }
        }
        let waits = !self.place(now, &mut one);
        if one.open.is_empty() && !waits {
            return self.conclude_subscription(now, one, None);
        }
        if let Some(side) = &mut self.upstream {
            side.subscriptions.pending.push(one);
        }
        self.renew_subscriptions(now, peer);
    }

    /// Finds the servers of the topics that a request is for. Says whether it is known of all of them; what
    /// nobody has is then left out.
    fn place(&mut self, now: Now, one: &mut Pending) -> bool {
        let had = self.peer(one.peer).map(|peer| peer.subscribed());
        let had = had.unwrap_or_default();
        for topic in std::mem::take(&mut one.unplaced) {
            let server = match &topic {
                Topic::Resource(uri) => self.server_of_resource(one.peer, uri),
                Topic::Task(id) => self.server_of_task(one.runtime, id),
            };
            let (Some(server), Some(side)) = (server, &mut self.upstream) else {
                // Nothing more will be known of a task.
                if topic.resource().is_some() {
                    one.unplaced.insert(topic);
                }
                continue;
            };
            let routes = &mut side.subscriptions.routes;
            routes.insert((one.runtime, topic.clone()), server.clone());
            // What the client has already is granted at once: the server will not say so again.
            if !had.contains(&topic) {
                one.open.insert(topic);
                continue;
            }
            if let Topic::Task(id) = &topic {
                // Nor would it tell of a task again that is over.
                side.manager.ask_for_task(now, one.runtime, &server, id);
            }
            one.granted.insert(topic);
        }
        let side = self.upstream.as_ref();
        let unsure = side.is_some_and(|side| side.is_learning_resources(one.runtime));
        if !unsure {
            one.unplaced.clear();
        }
        one.unplaced.is_empty()
    }

    /// Goes on with requests whose servers are known by now. Says whether there were any.
    pub(super) fn place_subscriptions(&mut self, now: Now) -> bool {
        let Some(side) = &mut self.upstream else {
            return false;
        };
        let waits = |one: &Pending| !one.unplaced.is_empty();
        if !side.subscriptions.pending.iter().any(waits) {
            return false;
        }
        let (waiting, others) = std::mem::take(&mut side.subscriptions.pending)
            .into_iter()
            .partition::<Vec<_>, _>(waits);
        side.subscriptions.pending = others;
        let mut moved = false;
        for mut one in waiting {
            let before = one.unplaced.len();
            self.place(now, &mut one);
            let placed = one.unplaced.len() != before;
            moved |= placed;
            let peer = one.peer;
            if one.open.is_empty() && one.unplaced.is_empty() {
                self.conclude_subscription(now, one, None);
                continue;
            }
            if let Some(side) = &mut self.upstream {
                side.subscriptions.pending.push(one);
            }
            if placed {
                self.renew_subscriptions(now, peer);
            }
        }
        moved
    }

    /// Whether a topic is one of the program, which tells of it without being asked.
    fn is_of_program(&self, peer: PeerId, topic: &Topic) -> bool {
        let uri = match topic {
            Topic::Task(id) => return self.is_own_task(peer, id),
            Topic::Resource(uri) => uri,
        };
        let Some(local) = &self.local else {
            return false;
        };
        let mut params = JsonObject::new();
        params.text("uri", uri);
        let params = params.end();
        let registry = local.desk.registry();
        registry.concerns("resources/read", Some(&params))
    }

    /// Tells the servers of a client what it is subscribed to now.
    pub(in crate::hub) fn renew_subscriptions(&mut self, now: Now, peer: PeerId) {
        let had = self.peer(peer).map(|peer| peer.subscribed());
        let Some(side) = &mut self.upstream else {
            return;
        };
        let Some(runtime) = side.runtimes.get(&peer).copied() else {
            return;
        };
        let subscriptions = &mut side.subscriptions;
        let mut wanted: BTreeSet<Topic> = subscriptions.wanted(runtime).cloned().collect();
        wanted.extend(had.unwrap_or_default());
        let mut of_servers: BTreeMap<ServerKey, BTreeSet<Topic>> = BTreeMap::new();
        subscriptions.routes.retain(|(of, topic), server| {
            if *of != runtime {
                return true;
            }
            let topics = of_servers.entry(server.clone()).or_default();
            let keeps = wanted.contains(topic);
            if keeps {
                topics.insert(topic.clone());
            }
            keeps
        });
        for (server, topics) in of_servers {
            let manager = &mut side.manager;
            manager.set_subscriptions(now, runtime, &server, topics);
        }
    }

    /// A request of a client is taken back, or its listen stream has ended.
    pub(in crate::hub) fn subscription_gone(&mut self, now: Now, peer: PeerId, key: RequestKey) {
        let Some(side) = &mut self.upstream else {
            return;
        };
        side.subscriptions.forget(peer, key);
        if !side.subscriptions.routes.is_empty() {
            self.renew_subscriptions(now, peer);
        }
    }

    /// A server has said whether it tells of a topic.
    pub(super) fn subscribed(
        &mut self,
        now: Now,
        runtime: RuntimeId,
        server: &ServerKey,
        topic: &Topic,
        outcome: Result<(), Box<UpstreamError>>,
    ) {
        let Some(side) = &mut self.upstream else {
            return;
        };
        let subscriptions = &mut side.subscriptions;
        let route = (runtime, topic.clone());
        if subscriptions.routes.get(&route) != Some(server) {
            return;
        }
        if outcome.is_err() {
            subscriptions.routes.remove(&route);
        }
        for one in &mut subscriptions.pending {
            if one.runtime == runtime && one.open.remove(topic) && outcome.is_ok() {
                one.granted.insert(topic.clone());
            }
        }
        let done = |one: &Pending| one.open.is_empty() && one.unplaced.is_empty();
        let (over, pending) = std::mem::take(&mut subscriptions.pending)
            .into_iter()
            .partition(done);
        subscriptions.pending = pending;
        let over: Vec<Pending> = over;
        for one in over {
            let error = outcome.as_ref().err().map(|error| &**error);
            self.conclude_subscription(now, one, error);
        }
    }

    /// Everybody has answered for the topics of a request.
    fn conclude_subscription(&mut self, now: Now, one: Pending, error: Option<&UpstreamError>) {
        if one.listens {
            self.with_peer(now, one.peer, |peer, sink| {
                peer.begin_listening(one.key, &one.granted, sink);
            });
            let tasks = one.granted.iter().filter_map(Topic::task);
            return self.tell_of_ended_tasks(now, one.peer, one.key, tasks);
        }
        let Some(uri) = one.granted.first().and_then(Topic::resource) else {
            return match error {
                Some(error) => {
                    let raw = error.facts.rpc.as_ref().and_then(|rpc| rpc.raw.as_deref());
                    let passed = raw.filter(|_| error.kind == FailureKind::Remote);
                    let own = failed(error);
                    let answer = passed.map_or(Answer::Error(&own), Answer::Passed);
                    self.respond(now, one.peer, one.key, answer);
                }
                None => {
                    let text = "no server is known to have this resource";
                    let error = RpcError::new(ErrorCode::ResourceNotFound, text);
                    self.respond(now, one.peer, one.key, Answer::Error(&error));
                }
            };
        };
        self.with_peer(now, one.peer, |peer, sink| {
            peer.set_subscribed(uri, true);
            peer.respond(one.key, Answer::Plain("{}"), sink);
        });
    }
}
