//! Requests from their arrival to their answer: those of the client and ours.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{AskKey, Changing, Facts, List, RequestKey, Scope, ServerEvent, ServerPeer};
use crate::codec::jsonrpc::RequestId;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{LogLevel, member};
use crate::protocol::revision::Revision;
use crate::protocol::{Lane, MessageSink};

/// A request of the client that is not answered yet.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) key: RequestKey,
    pub(super) scope: Scope,
    pub(super) id: RequestId,
    pub(super) revision: Revision,
    pub(super) progress_token: Option<Box<str>>,
    /// The last progress told.
    pub(super) progress: Option<u64>,
    /// How often it was told that the request waits, before there was any progress.
    pub(super) waits: u32,
    /// Of a modern request that wants log messages.
    pub(super) log_level: Option<LogLevel>,
    pub(super) batch: Option<u32>,
    /// Boxed, for most requests are none of these.
    pub(super) listening: Option<Box<Listening>>,
}

/// What a listen stream was granted.
#[derive(Debug, Default)]
pub(super) struct Listening {
    pub(super) lists: Changing,
    pub(super) resources: BTreeSet<String>,
    pub(super) tasks: BTreeSet<String>,
    /// `clientCapabilities` of its request, a raw object.
    pub(super) client_capabilities: Box<str>,
    /// It was acknowledged, which comes before everything else.
    pub(super) begun: bool,
    /// What happened before it had begun: lists that changed, updates of resources and what has become of tasks,
    /// both with their raw params.
    pub(super) lists_held: Vec<List>,
    pub(super) updates_held: VecDeque<(String, Box<str>)>,
    pub(super) tasks_held: BTreeMap<String, Box<str>>,
}

/// A request of ours that the client has not answered.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) key: AskKey,
    /// The client's request in whose service it is.
    pub(super) of: Option<RequestKey>,
}

impl ServerPeer {
    /// Whether one more request may be open in a scope.
    pub(super) fn check_room(&self, scope: Scope) -> Result<(), RpcError> {
        let limit = self.config.limits.requests_open_max;
        let of_scope = |open: &&Open| open.listening.is_none() && open.scope == scope;
        if self.open.iter().filter(of_scope).count() < limit {
            return Ok(());
        }
        Err(RpcError::new(
            ErrorCode::InternalError,
            format!("busy: {limit} requests are open, limit {limit} (requests_open_max)"),
        ))
    }

    /// A request is open from now on.
    pub(super) fn remember(
        &mut self,
        facts: Facts<'_>,
        revision: Revision,
        log_level: Option<LogLevel>,
        listening: Option<Box<Listening>>,
    ) -> RequestKey {
        let key = RequestKey(self.next_key);
        self.next_key += 1;
        let meta = &facts.envelope.request_meta;
        let token = meta
            .progress_token
            .filter(|token| token.len() <= self.config.limits.id_bytes_max)
            .filter(|token| is_progress_token(token));
        self.open.push(Open {
            key,
            scope: facts.scope,
            id: RequestId::from_raw(facts.id),
            revision,
            progress_token: token.map(Box::from),
            progress: None,
            waits: 0,
            log_level,
            batch: facts.batch,
            listening,
        });
        if let Some(batch) = self.batch(facts.batch) {
            batch.expect_one_more();
        }
        key
    }

    /// How many requests wait for an answer, listen streams left out.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        self.open
            .iter()
            .filter(|open| open.listening.is_none())
            .count()
    }

    /// How many requests and listen streams the scope with the most of each has open, and how many resources
    /// one client or stream is subscribed to.
    #[must_use]
    pub fn open_of_fullest_scope(&self) -> (usize, usize, usize) {
        let mut scopes: BTreeMap<Scope, (usize, usize)> = BTreeMap::new();
        let mut subscribed = self.resources.len();
        for open in &self.open {
            let (requests, listens) = scopes.entry(open.scope).or_default();
            match &open.listening {
                Some(listening) => {
                    *listens += 1;
                    subscribed = subscribed.max(listening.resources.len());
                }
                None => *requests += 1,
            }
        }
        let most = |of: fn(&(usize, usize)) -> usize| scopes.values().map(of).max().unwrap_or(0);
        (most(|of| of.0), most(|of| of.1), subscribed)
    }

    /// `notifications/cancelled`: nobody waits for this answer.
    pub(super) fn cancel(
        &mut self,
        scope: Scope,
        params: Option<&str>,
        sink: &mut dyn MessageSink,
    ) {
        let Some(raw) = params.and_then(|params| member(params, "requestId")) else {
            return;
        };
        let id = RequestId::from_raw(raw);
        let this = |open: &Open| open.scope == scope && open.id == id;
        let Some(at) = self.open.iter().position(this) else {
            return;
        };
        let open = self.open.swap_remove(at);
        self.forget(&open);
        self.batch_answered(open.batch, Lane::Answer(open.key), sink);
    }

    /// The exchange of this scope is gone, and with it everything that was open there. Spec: 2026-07-28
    /// basic/transports/streamable-http (a disconnect cancels).
    pub fn abandon(&mut self, scope: Scope) {
        let (gone, open) = std::mem::take(&mut self.open)
            .into_iter()
            .partition(|open| open.scope == scope);
        self.open = open;
        for open in gone {
            self.forget(&open);
        }
    }

    /// An open request is gone without an answer.
    fn forget(&mut self, open: &Open) {
        self.asked.retain(|asked| asked.of != Some(open.key));
        // The one behind us never knew of a listen stream, but the transport may.
        self.events.push_back(ServerEvent::Cancelled(open.key));
    }
}

/// A progress token is a string or a number that we echo; anything else is no token.
fn is_progress_token(raw: &str) -> bool {
    raw.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
}
