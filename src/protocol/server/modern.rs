//! The stateless era: discovery, listen streams, what every request must and every result does carry.
//!
//! Source: Spec 2026-07-28 basic/index, server/discover, basic/patterns/subscriptions.

use std::collections::BTreeSet;

use super::own::{Own, around, place_of};
use super::{Changing, Facts, Listening, Open, RequestKey, Served, ServerEvent, ServerPeer};
use crate::codec::json_text::{append_string, write_string};
use crate::codec::jsonrpc::{self, RequestId, append_raw};
use crate::codec::scan::{Text, elements};
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::{
    LogLevel, META_CLIENT_CAPABILITIES, META_PROTOCOL_VERSION, META_SERVER_INFO,
    META_SUBSCRIPTION_ID, RequestMeta, member,
};
use crate::protocol::revision::Revision;
use crate::protocol::topic::Topic;
use crate::protocol::{Lane, MessageSink};
use crate::secret::Quoted;

/// Methods that 2026-07-28 no longer has. Spec: 2026-07-28 changelog.
pub(super) const REMOVED: [&str; 5] = [
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
];

/// A result of the stateless era, in the making.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModernResult<'a> {
    /// `resultType`, unless the result has its own.
    pub(super) kind: &'a str,
    /// A raw object.
    pub(super) result: &'a str,
    pub(super) own: Own<'a>,
    /// Of what a client may keep: for how long.
    pub(super) ttl_ms: Option<u64>,
}

impl ServerPeer {
    pub(super) fn modern_request(
        &mut self,
        facts: Facts<'_>,
        sink: &mut dyn MessageSink,
    ) -> Result<Served, RpcError> {
        let meta = &facts.envelope.request_meta;
        let revision = check_modern_meta(meta)?;
        self.speaks_modern = true;
        match facts.method {
            "server/discover" if self.config.awaits_introduction => {
                self.check_room(facts.scope)?;
                let key = self.remember(facts, revision, None, None);
                self.events.push_back(ServerEvent::Opens(key));
                Ok(Served::Later)
            }
            "server/discover" => Ok(Served::Modern(
                self.discovery(),
                Some(self.config.cache_ttl_ms),
            )),
            "subscriptions/listen" => self.listen(facts, revision, sink),
            method if REMOVED.contains(&method) => {
                let mut error = RpcError::method_not_found(method);
                error.message.push_str(&format!(" (removed in {revision})"));
                if method == "initialize" {
                    let versions = Revision::NEWEST_FIRST.map(Revision::as_str).join(", ");
                    error
                        .message
                        .push_str(&format!("; supported versions: {versions}"));
                }
                Err(error)
            }
            _ => {
                let level = meta.log_level.map(|raw| LogLevel::read(Some(raw)));
                self.forward(facts, revision, level.transpose()?, sink)
            }
        }
    }

    fn listen(
        &mut self,
        facts: Facts<'_>,
        revision: Revision,
        sink: &mut dyn MessageSink,
    ) -> Result<Served, RpcError> {
        let limit = self.config.limits.subscriptions_open_max;
        let of_scope = |open: &&Open| open.listening.is_some() && open.scope == facts.scope;
        if self.open.iter().filter(of_scope).count() >= limit {
            return Err(RpcError::new(
                ErrorCode::InternalError,
                format!(
                    "busy: {limit} listen streams are open, limit {limit} (subscriptions_open_max)"
                ),
            ));
        }
        let envelope = facts.envelope;
        let filter = envelope
            .params
            .and_then(|params| member(params, "notifications"));
        let Some(filter) = filter.filter(|raw| raw.starts_with('{')) else {
            return Err(RpcError::new(
                ErrorCode::InvalidParams,
                "params.notifications must be an object",
            ));
        };
        let mut asked = self.read_filter(filter)?;
        asked.client_capabilities = envelope
            .request_meta
            .client_capabilities
            .unwrap_or("{}")
            .into();
        let key = self.remember(facts, revision, None, Some(Box::new(asked)));
        if self.config.awaits_introduction {
            self.events.push_back(ServerEvent::Opens(key));
        } else {
            self.grant_topics(key, sink);
        }
        Ok(Served::Later)
    }

    /// Begins a listen stream, or asks the owner first of which of its topics it may tell.
    pub(super) fn grant_topics(&mut self, key: RequestKey, sink: &mut dyn MessageSink) {
        let open = self.open.iter().find(|open| open.key == key);
        let Some(listening) = open.and_then(|open| open.listening.as_deref()) else {
            return;
        };
        let tasks = listening.tasks.clone();
        let client_capabilities = listening.client_capabilities.clone();
        if self.config.relays_subscriptions {
            let resources = listening.resources.iter().cloned().map(Topic::Resource);
            let tasks = tasks.into_iter().map(Topic::Task);
            let topics: BTreeSet<Topic> = resources.chain(tasks).collect();
            if !topics.is_empty() {
                let event = ServerEvent::Listens {
                    key,
                    topics,
                    client_capabilities,
                };
                return self.events.push_back(event);
            }
        } else if !tasks.is_empty() {
            let event = ServerEvent::ListenTasks {
                key,
                tasks,
                client_capabilities,
            };
            return self.events.push_back(event);
        }
        self.acknowledge(key, sink);
    }

    /// Begins a listen stream that tells of these tasks beside what else it was granted.
    pub fn listen_to_tasks(
        &mut self,
        key: RequestKey,
        tasks: BTreeSet<String>,
        sink: &mut dyn MessageSink,
    ) {
        let Some(open) = self.open.iter_mut().find(|open| open.key == key) else {
            return;
        };
        let Some(listening) = &mut open.listening else {
            return;
        };
        listening.tasks = tasks;
        self.acknowledge(key, sink);
    }

    /// The listen streams that tell of this task.
    pub fn listening_to_task(&self, task: &str) -> impl Iterator<Item = RequestKey> {
        let tells = |open: &&Open| {
            let listening = open.listening.as_ref();
            listening.is_some_and(|listening| listening.tasks.contains(task))
        };
        self.open.iter().filter(tells).map(|open| open.key)
    }

    /// What of a filter we can honour. Spec: 2026-07-28 basic/patterns/subscriptions (Notification Filter).
    fn read_filter(&self, filter: &str) -> Result<Listening, RpcError> {
        let wants = |name| member(filter, name) == Some("true");
        let config = &self.config;
        let limits = &config.limits;
        // Of a server yet to be met all is possible; it is looked at again then.
        let unmet = config.awaits_introduction;
        let changing = if unmet {
            Changing::ALL
        } else {
            config.changing
        };
        let texts = |name, offered: bool, what, limit| match member(filter, name) {
            Some(list) if offered && list.starts_with('[') => read_texts(list, what, limit),
            Some(_) | None => Ok(BTreeSet::new()),
        };
        let resources = texts(
            "resourceSubscriptions",
            config.resource_updates || unmet,
            "resource",
            limits.resource_subscriptions_max,
        )?;
        let tasks = texts(
            "taskIds",
            config.task_updates || unmet,
            "task",
            limits.task_subscriptions_max,
        )?;
        Ok(Listening {
            lists: Changing {
                tools: wants("toolsListChanged") && changing.tools,
                prompts: wants("promptsListChanged") && changing.prompts,
                resources: wants("resourcesListChanged") && changing.resources,
            },
            resources,
            tasks,
            ..Listening::default()
        })
    }

    /// Ends every listen stream from our side: says so by a cancellation and by the result.
    /// Spec: 2026-07-28 basic/patterns/subscriptions (graceful closure) and cancellation.
    pub fn end_subscriptions(&mut self, sink: &mut dyn MessageSink) {
        let all = std::mem::take(&mut self.open);
        let (ending, open) = all.into_iter().partition(|open| open.listening.is_some());
        self.open = open;
        for Open { id, key, .. } in ending {
            let params = format!(
                r#"{{"requestId":{},"reason":"server is shutting down"}}"#,
                id.raw()
            );
            let out = sink.begin(Lane::Request(key));
            jsonrpc::write_notification(out, "notifications/cancelled", Some(&params));
            sink.commit();
            let result = format!(
                r#"{{"resultType":"complete","_meta":{{"{META_SUBSCRIPTION_ID}":{}}}}}"#,
                id.raw()
            );
            jsonrpc::write_result(sink.begin(Lane::Answer(key)), id.raw(), &result);
            sink.commit();
        }
    }

    /// Keys of the listen streams that are open.
    pub fn listening(&self) -> impl Iterator<Item = RequestKey> {
        self.open
            .iter()
            .filter(|open| open.listening.is_some())
            .map(|open| open.key)
    }

    /// Writes a result with what the era adds, in place: the payload is copied once. What the result says
    /// itself of that stays, and its own `_meta` gets our member beside its own.
    pub(super) fn emit_modern(
        &self,
        lane: Lane,
        id: &str,
        result: ModernResult<'_>,
        sink: &mut dyn MessageSink,
    ) {
        let ModernResult {
            kind,
            result,
            own,
            ttl_ms,
        } = result;
        let trimmed = result.trim();
        let inner = trimmed
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'));
        let inner = inner.unwrap_or("").trim();
        let out = sink.begin(lane);
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        out.extend_from_slice(id.as_bytes());
        out.extend_from_slice(br#","result":{"#);
        let mut between = "";
        if !own.result_type {
            out.extend_from_slice(br#""resultType":"#);
            append_string(out, kind);
            between = ",";
        }
        if !inner.is_empty() {
            out.extend_from_slice(between.as_bytes());
            self.append_inner(out, inner, own.meta);
            between = ",";
        }
        if let (Some(ttl_ms), false) = (ttl_ms, own.ttl) {
            out.extend_from_slice(format!(r#"{between}"ttlMs":{ttl_ms}"#).as_bytes());
            between = ",";
        }
        if ttl_ms.is_some() && !own.scope {
            out.extend_from_slice(between.as_bytes());
            out.extend_from_slice(br#""cacheScope":"private""#);
            between = ",";
        }
        if own.meta.is_none() {
            out.extend_from_slice(between.as_bytes());
            out.extend_from_slice(br#""_meta":{"#);
            self.append_server_info(out);
            out.push(b'}');
        }
        out.extend_from_slice(b"}}");
        sink.commit();
    }

    /// A result that is complete, and whose members `write` appends.
    pub(super) fn emit_modern_in_place(
        &self,
        open: &Open,
        sink: &mut dyn MessageSink,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let out = sink.begin(Lane::Answer(open.key));
        jsonrpc::begin_result(out, open.id.as_bytes());
        out.extend_from_slice(br#"{"resultType":"complete","#);
        write(out);
        out.extend_from_slice(br#","_meta":{"#);
        self.append_server_info(out);
        out.extend_from_slice(b"}}}");
        sink.commit();
    }

    /// The members of a result, with ours in its `_meta`, where it has one.
    fn append_inner(&self, out: &mut Vec<u8>, inner: &str, meta: Option<&str>) {
        let added = meta.and_then(|meta| Some((place_of(inner, meta)?, around(meta)?)));
        let Some(((begin, end), (before, behind))) = added else {
            return append_raw(out, inner);
        };
        append_raw(out, &inner[..begin]);
        append_raw(out, before);
        if !before[1..].trim_ascii().is_empty() {
            out.push(b',');
        }
        self.append_server_info(out);
        append_raw(out, behind);
        append_raw(out, &inner[end..]);
    }

    fn append_server_info(&self, out: &mut Vec<u8>) {
        out.push(b'"');
        out.extend_from_slice(META_SERVER_INFO.as_bytes());
        out.extend_from_slice(br#"":"#);
        out.extend_from_slice(self.config.server_info.as_bytes());
    }
}

/// Checks what every modern request must carry. Spec: 2026-07-28 basic/index (`_meta`).
///
/// # Errors
/// -32602 for what is missing or of the wrong type, -32022 for a revision we do not speak.
pub fn check_modern_meta(meta: &RequestMeta<'_>) -> Result<Revision, RpcError> {
    let wrong = |key: &str, what: &str| {
        RpcError::new(
            ErrorCode::InvalidParams,
            format!("params._meta[\"{key}\"] {what}"),
        )
    };
    let version = meta
        .protocol_version
        .ok_or_else(|| wrong(META_PROTOCOL_VERSION, "is missing"))?;
    let Some(version) = Text::of_value(version) else {
        let what = format!("must be a string (found {})", Quoted(version));
        return Err(wrong(META_PROTOCOL_VERSION, &what));
    };
    let version = version.decode();
    let revision = Revision::parse(&version)
        .filter(|revision| revision.is_stateless())
        .ok_or_else(|| RpcError::unsupported_version(&version))?;
    let capabilities = meta
        .client_capabilities
        .ok_or_else(|| wrong(META_CLIENT_CAPABILITIES, "is missing"))?;
    if !capabilities.starts_with('{') {
        let what = format!("must be an object (found {})", Quoted(capabilities));
        return Err(wrong(META_CLIENT_CAPABILITIES, &what));
    }
    Ok(revision)
}

/// The `params` of a notification on a listen stream; `more` are further raw members, with a comma first.
pub(super) fn subscription_params(id: &RequestId, more: &str) -> String {
    format!(
        r#"{{"_meta":{{"{META_SUBSCRIPTION_ID}":{}}}{more}}}"#,
        id.raw()
    )
}

/// The texts of a list in a filter, each once.
fn read_texts(list: &str, what: &str, limit: usize) -> Result<BTreeSet<String>, RpcError> {
    let invalid = |text| RpcError::new(ErrorCode::InvalidParams, text);
    let mut texts = BTreeSet::new();
    for raw in elements(list) {
        let Some(text) = Text::of_value(raw) else {
            let found = Quoted(raw);
            return Err(invalid(format!(
                "a {what} subscription is a string (found {found})"
            )));
        };
        texts.insert(text.decode().into_owned());
        if texts.len() > limit {
            return Err(invalid(format!(
                "more than {limit} {what} subscriptions, limit {limit} ({what}_subscriptions_max)"
            )));
        }
    }
    Ok(texts)
}

/// The part of the filter that is honoured, as a raw object.
pub(super) fn granted(asked: &Listening) -> String {
    let lists = [
        (asked.lists.tools, "toolsListChanged"),
        (asked.lists.prompts, "promptsListChanged"),
        (asked.lists.resources, "resourcesListChanged"),
    ];
    let mut members = Vec::new();
    for (_, name) in lists.into_iter().filter(|(granted, _)| *granted) {
        members.push(format!(r#""{name}":true"#));
    }
    for (name, granted) in [
        ("resourceSubscriptions", &asked.resources),
        ("taskIds", &asked.tasks),
    ] {
        if granted.is_empty() {
            continue;
        }
        let mut texts = String::new();
        for text in granted {
            texts.push_str(if texts.is_empty() { "" } else { "," });
            write_string(&mut texts, text);
        }
        members.push(format!(r#""{name}":[{texts}]"#));
    }
    format!("{{{}}}", members.join(","))
}
