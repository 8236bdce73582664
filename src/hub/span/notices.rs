//! What servers tell without being asked, and what clients tell them.
//!
//! | of a server                       | client of the handshake revisions          | stateless client                      |
//! |-----------------------------------|--------------------------------------------|---------------------------------------|
//! | `notifications/message`           | from the level of its session on           | by the level of the request, on its stream |
//! | `notifications/resources/updated` | if it may be meant for it                  | on listen streams that asked for it   |
//! | `notifications/tasks`, stateless  | –                                          | on listen streams that asked for it   |
//! | anything else                     | on the stream of its request, or the session's | on the stream of its request      |
//!
//! A server that does not say which request a message belongs to leaves that open: on a line it does not
//! matter, over HTTP such a message reaches the one request that may be meant, or nobody.
//!
//! A client that does not read gets no notification, which are counted as those of ours are.
//!
//! `logging/setLevel` of a client with one server that is its own is that server's to answer; else it is
//! answered by us, and the servers are told.
//!
//! What a client tells goes to each of its servers that it is connected to, byte for byte.

use crate::clock::Now;
use crate::codec::scan::Text;
use crate::hub::Hub;
use crate::ids::{CallId, PeerId, RuntimeId, TicketId};
use crate::manager::server_config::ServerKey;
use crate::protocol::message::{LogLevel, member};
use crate::protocol::server::{Answer, ServerPeer, ServerRequest};

/// One notification of a server.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) runtime: RuntimeId,
    pub(super) server: ServerKey,
    pub(super) method: Box<str>,
    /// Raw.
    pub(super) params: Option<Box<str>>,
    /// For which piece of work, when that is known.
    pub(super) ticket: Option<TicketId>,
}

impl Hub {
    pub(super) fn route_notice(&mut self, now: Now, notice: Notice) {
        let Some(side) = &self.upstream else {
            return;
        };
        let Some(peer) = side.clients.get(&notice.runtime).copied() else {
            return;
        };
        let call = notice
            .ticket
            .and_then(|ticket| side.tickets.get(&ticket).copied());
        let key = call
            .and_then(|call| self.ledger.entry(call))
            .map(|entry| entry.key);
        let params = notice.params.as_deref();
        let object = params.unwrap_or("{}");
        let shared = side.is_shared(&notice.server);
        if self.leaves_out(peer, key) {
            return;
        }
        match &*notice.method {
            "notifications/message" => {
                // A level that nobody knows is passed on to those who want all.
                let level = LogLevel::read(member(object, "level")).unwrap_or(LogLevel::Debug);
                self.with_peer(now, peer, |peer, sink| {
                    peer.pass_log(key, level, object, sink);
                });
            }
            "notifications/resources/updated" => {
                let uri = member(object, "uri").and_then(Text::of_value);
                let uri = uri.map(|uri| uri.decode()).unwrap_or_default();
                let listening = self.peer(peer).into_iter().flat_map(ServerPeer::listening);
                let stuck: Vec<_> = listening
                    .filter(|key| self.http.is_backed_up(peer, *key))
                    .collect();
                self.with_peer(now, peer, |peer, sink| {
                    peer.pass_resource_updated(&uri, object, !shared, &stuck, sink);
                });
            }
            "notifications/tasks" if self.is_stateless(&notice) => {
                self.route_task(now, peer, &notice);
            }
            method => {
                self.with_peer(now, peer, |peer, sink| {
                    peer.pass_notification(key, method, params, sink);
                });
            }
        }
    }

    fn is_stateless(&self, notice: &Notice) -> bool {
        let side = self.upstream.as_ref();
        let facts = side.and_then(|side| side.manager.facts(notice.runtime, &notice.server));
        facts.is_some_and(|facts| facts.revision.is_stateless())
    }

    /// A server tells what has become of a task: those hear it who listen to this server's.
    fn route_task(&mut self, now: Now, peer: PeerId, notice: &Notice) {
        let params = notice.params.as_deref().unwrap_or("{}");
        let Some(id) = member(params, "taskId").and_then(Text::of_value) else {
            return;
        };
        let id = id.decode();
        let side = self.upstream.as_ref();
        let server = side.and_then(|side| side.subscriptions.server_of_task(notice.runtime, &id));
        if server != Some(&notice.server) {
            return;
        }
        for key in self.listening_to_task(peer, &id) {
            self.with_peer(now, peer, |peer, sink| {
                peer.task_changed(key, &id, params, sink);
            });
        }
    }

    /// Tells the servers of a client what it has said.
    pub(in crate::hub) fn tell_servers(
        &mut self,
        now: Now,
        peer: PeerId,
        method: &str,
        params: Option<&str>,
    ) {
        if matches!(
            method,
            "notifications/roots/list_changed" | "notifications/progress"
        ) {
            return self.tell_those_who_ask(now, peer, method, params);
        }
        let Some(side) = &mut self.upstream else {
            return;
        };
        let Some(runtime) = side.runtimes.get(&peer).copied() else {
            return;
        };
        let servers = side.manager.servers().map(|config| config.key.clone());
        for key in servers.collect::<Vec<_>>() {
            side.manager.notify(now, runtime, &key, method, params);
        }
    }

    /// A server has answered `logging/setLevel` of its one client: a level that it has granted is kept, for
    /// its next connection too.
    pub(super) fn level_answered(&mut self, now: Now, call: CallId, peer: PeerId, granted: bool) {
        let Some(side) = &mut self.upstream else {
            return;
        };
        let level = side.levels.remove(&call).filter(|_| granted);
        let runtime = side.runtimes.get(&peer).copied();
        if let (Some(level), Some(runtime)) = (level, runtime) {
            side.manager.adopt_log_level(now, runtime, level);
            self.with_peer(now, peer, |peer, _| peer.set_log_level(level));
        }
    }

    /// `logging/setLevel` of a client whose server was the only one when it was met, and is not any more.
    pub(in crate::hub) fn set_own_level(&mut self, now: Now, peer: PeerId, asked: &ServerRequest) {
        let params = asked.params.as_deref();
        match LogLevel::read(params.and_then(|params| member(params, "level"))) {
            Ok(level) => {
                self.with_peer(now, peer, |peer, _| peer.set_log_level(level));
                self.route_log_level(now, peer, level);
                self.respond(now, peer, asked.key, Answer::Plain("{}"));
            }
            Err(error) => self.respond(now, peer, asked.key, Answer::Error(&error)),
        }
    }

    /// A client of the handshake era wants log messages of its servers, too.
    pub(in crate::hub) fn route_log_level(&mut self, now: Now, peer: PeerId, level: LogLevel) {
        self.declare_client(peer);
        let Some(side) = &mut self.upstream else {
            return;
        };
        // Without room for a runtime there is nobody to hear of.
        if let Ok(runtime) = side.runtime_of(now, peer) {
            side.manager.set_log_level(now, runtime, level);
        }
    }
}
