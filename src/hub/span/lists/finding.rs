//! Whose a tool, a prompt or a resource is, and requests on their way there.
//!
//! | what                    | goes to                                                                             |
//! |-------------------------|-------------------------------------------------------------------------------------|
//! | a tool                  | channel, the program, the server that shows this name                               |
//! | a prompt                | the program, the first server that shows this name, under its own name              |
//! | a resource              | the program, the first server that lists the URI, then the one it was read from before, then the first with a template that it matches |
//! | a resource of nobody's  | the only server with resources; of several each in turn, by key, until one has it   |
//! | a completion            | as its prompt or its resource                                                       |
//! | a task                  | see `tasks`                                                                         |
//!
//! A resource need not be listed to be read (Spec: 2025-11-25 server/tools, resource links), so several
//! servers are asked for one that is in no list; an error says how many were. A prompt that nobody shows is
//! looked for once more in the lists of servers that do not tell of changes.

use std::collections::VecDeque;

use super::waiting::Parked;
use super::{Bridge, PagedList, RESOURCES};
use crate::clock::Now;
use crate::codec::json_text::write_string;
use crate::codec::scan::Text;
use crate::codec::shared_text::SharedText;
use crate::codec::splice::with_member;
use crate::hub::Hub;
use crate::hub::ledger;
use crate::hub::span::UpstreamSide;
use crate::hub::span::tasks::{is_for_task, unknown_task};
use crate::ids::{CallId, PeerId, RuntimeId};
use crate::local::{match_template, unknown_resource};
use crate::manager::error::UpstreamError;
use crate::manager::server_config::ServerKey;
use crate::protocol::client::peer::ListKind;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::message::member;
use crate::protocol::server::{Answer, ServerRequest};
use crate::protocol::topic::Topic;
use crate::secret::Quoted;

/// What a request wants of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Tool(String),
    Prompt(String),
    /// A resource, or a template as it is listed.
    Resource(String),
    Nothing,
}

impl Wanted {
    pub(super) fn of(request: &ServerRequest) -> Self {
        let value = |name| member(request.params.as_deref()?, name);
        let text = |raw| Some(Text::of_value(raw?)?.decode().into_owned());
        let found = match &*request.method {
            "tools/call" => request.name.as_deref().map(str::to_owned).map(Self::Tool),
            "prompts/get" => text(value("name")).map(Self::Prompt),
            "resources/read" => text(value("uri")).map(Self::Resource),
            "completion/complete" => value("ref").and_then(|reference| {
                let prompt = text(member(reference, "name")).map(Self::Prompt);
                prompt.or_else(|| text(member(reference, "uri")).map(Self::Resource))
            }),
            _ => None,
        };
        found.unwrap_or(Self::Nothing)
    }

    pub(super) const fn is_prompt(&self) -> bool {
        matches!(self, Self::Prompt(_))
    }
}

/// A server, and its own name for what was looked for where that is another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) server: ServerKey,
    pub(super) own_name: Option<String>,
}

/// What looking for something has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Found(Place),
    /// Some server that could have it has not said what it has.
    Unsure,
    Nowhere,
}

/// A request for a resource that is in no list, or for a task of nobody that is known, on its way from one
/// server to the next.
#[derive(Debug)]
pub(in crate::hub::span) struct Search {
    request: ServerRequest,
    runtime: RuntimeId,
    what: Topic,
    left: VecDeque<ServerKey>,
    /// Who is being asked.
    at: ServerKey,
    asked: usize,
    /// Why one that may have the task did not say so.
    doubt: Option<UpstreamError>,
}

impl UpstreamSide {
    /// Whether a request of a client with one server and nothing beside it goes there as it is.
    pub(super) fn passes(&mut self, runtime: RuntimeId, request: &ServerRequest) -> bool {
        let Some(key) = self.only_server().filter(|_| self.alone) else {
            return false;
        };
        match &*request.method {
            "tools/list" | "tools/call" => {
                self.leaves_tools() && !self.manager.prefixes(runtime, &key)
            }
            "prompts/list" | "prompts/get" => !self.manager.prefixes(runtime, &key),
            "completion/complete" if Wanted::of(request).is_prompt() => {
                !self.manager.prefixes(runtime, &key)
            }
            _ => true,
        }
    }

    /// Whose something is, as far as that is known.
    pub(super) fn look(&self, runtime: RuntimeId, wanted: &Wanted) -> Look {
        match wanted {
            Wanted::Tool(name) => {
                let catalog = self.manager.catalog(runtime);
                let found = catalog.and_then(|catalog| catalog.find(name));
                found.map_or(Look::Nowhere, |found| place(found.server))
            }
            Wanted::Prompt(name) => self.look_for_prompt(runtime, name),
            Wanted::Resource(uri) => self.look_for_resource(runtime, uri),
            Wanted::Nothing => Look::Nowhere,
        }
    }

    fn look_for_prompt(&self, runtime: RuntimeId, shown: &str) -> Look {
        let Some(known) = self.lists.get(runtime) else {
            return Look::Nowhere;
        };
        let mut unsure = false;
        for config in self.manager.servers() {
            let key = &config.key;
            let held = known.parts.get(&(PagedList::Prompts, key.clone()));
            if let Some(own) = held.and_then(|held| held.part.own_name(shown)) {
                let renamed = own != shown;
                // A name with its server's in front is nobody else's.
                if unsure && !renamed {
                    return Look::Unsure;
                }
                return Look::Found(Place {
                    server: key.clone(),
                    own_name: renamed.then(|| own.to_owned()),
                });
            }
            unsure |= self.is_settling(runtime, PagedList::Prompts, key);
        }
        if unsure { Look::Unsure } else { Look::Nowhere }
    }

    fn look_for_resource(&self, runtime: RuntimeId, uri: &str) -> Look {
        let Some(known) = self.lists.get(runtime) else {
            return Look::Nowhere;
        };
        for config in self.manager.servers() {
            let key = &config.key;
            let has = |list: &PagedList| {
                let held = known.parts.get(&(*list, key.clone()));
                held.is_some_and(|held| held.part.has(uri))
            };
            if RESOURCES.iter().any(has) {
                return place(key);
            }
            let settling = |list: &PagedList| self.is_settling(runtime, *list, key);
            if RESOURCES.iter().any(settling) {
                return Look::Unsure;
            }
        }
        if let Some(key) = known.found.get(uri) {
            return place(key);
        }
        for config in self.manager.servers() {
            let held = known
                .parts
                .get(&(PagedList::ResourceTemplates, config.key.clone()));
            let mut templates = held.into_iter().flat_map(|held| held.part.entries());
            if templates.any(|(entry, _)| covers(&entry.id, uri)) {
                return place(&config.key);
            }
        }
        Look::Nowhere
    }

    /// The servers that may have resources.
    fn with_resources(&self, runtime: RuntimeId) -> VecDeque<ServerKey> {
        let may = |key: &ServerKey| {
            let facts = self.manager.facts(runtime, key);
            facts.is_none_or(|facts| {
                let mut kinds = ListKind::ALL.into_iter();
                facts.has(ListKind::Resources) || !kinds.any(|kind| facts.has(kind))
            })
        };
        self.keys().into_iter().filter(may).collect()
    }

    /// What was looked for is there.
    fn remember_found(&mut self, search: Search, limit: usize) {
        let uri = match search.what {
            Topic::Resource(uri) => uri,
            Topic::Task(id) => {
                self.tasks.remember(search.runtime, &id, search.at);
                return;
            }
        };
        let known = self.lists.known(search.runtime);
        if known.found.len() >= limit {
            known.found.clear();
        }
        known.found.insert(uri.into(), search.at);
    }
}

fn place(server: &ServerKey) -> Look {
    Look::Found(Place {
        server: server.clone(),
        own_name: None,
    })
}

/// Whether a URI may be one of a template's. Of a template with operators that we do not match, the text in
/// front of them decides.
fn covers(template: &str, uri: &str) -> bool {
    if match_template(template, uri).is_some() {
        return true;
    }
    let is_plain = |operator: char| operator.is_ascii_alphanumeric() || operator == '_';
    let operator = |at: usize| template[at + 1..].chars().next();
    let Some(at) = template.find('{') else {
        return false;
    };
    let mut expressions = template.match_indices('{');
    let has_operators = expressions.any(|(at, _)| {
        let operator = operator(at);
        operator.is_some_and(|operator| !is_plain(operator) && operator != '+')
    });
    has_operators && at > 0 && uri.starts_with(&template[..at])
}

impl Hub {
    /// Whether a request is for the channel or for the program, whatever the servers have.
    pub(super) fn is_ours(&self, peer: PeerId, request: &ServerRequest) -> bool {
        if is_for_task(request) {
            return self.is_for_own_task(peer, request);
        }
        let local = self.local.as_ref().map(|local| local.desk.registry());
        if &*request.method == "tools/call" {
            return request.name.as_deref().is_some_and(|name| {
                (self.gateway.is_some() && Bridge::owns(name))
                    || local.is_some_and(|local| local.lists("tools/list", name))
            });
        }
        let params = request.params.as_deref();
        local.is_some_and(|local| local.concerns(&request.method, params))
    }

    /// The server whose resource this is, where that can be known: it lists the URI or has a template for it,
    /// it was read there before, or no other server has resources.
    pub(in crate::hub) fn server_of_resource(&self, peer: PeerId, uri: &str) -> Option<ServerKey> {
        let side = self.upstream.as_ref()?;
        if let Some(only) = side.only_server() {
            return Some(only);
        }
        let runtime = side.runtimes.get(&peer).copied()?;
        match side.look_for_resource(runtime, uri) {
            Look::Found(place) => Some(place.server),
            Look::Unsure => None,
            Look::Nowhere => {
                let mut servers = side.with_resources(runtime).into_iter();
                servers.next().filter(|_| servers.next().is_none())
            }
        }
    }

    /// Sends a request for a prompt or a resource where it belongs.
    pub(super) fn serve_found(&mut self, now: Now, parked: Parked) {
        let wanted = Wanted::of(&parked.request);
        let (peer, key) = (parked.peer, parked.request.key);
        let Some(side) = &mut self.upstream else {
            return;
        };
        let Some(runtime) = side.runtimes.get(&peer).copied() else {
            return;
        };
        if let Look::Found(place) = side.look(runtime, &wanted) {
            let params = params_for(&parked.request, place.own_name.as_deref());
            self.ask_server(now, peer, runtime, &place.server, &parked.request, params);
            return;
        }
        let error = match wanted {
            Wanted::Prompt(name) => {
                if !parked.again {
                    side.want(now, runtime, PagedList::Prompts, true);
                    let again = Parked {
                        again: true,
                        ..parked
                    };
                    self.serve_or_park(now, again);
                    return;
                }
                let text = format!("Unknown prompt: {}", Quoted(&name));
                RpcError::new(ErrorCode::InvalidParams, text)
            }
            Wanted::Resource(uri) => {
                let what = Topic::Resource(uri);
                return self.search(now, peer, runtime, parked.request, what);
            }
            Wanted::Tool(_) | Wanted::Nothing => {
                let text = format!(
                    "params of {} name nothing (found {})",
                    parked.request.method,
                    Quoted(parked.request.params.as_deref().unwrap_or("none"))
                );
                RpcError::new(ErrorCode::InvalidParams, text)
            }
        };
        self.respond(now, peer, key, Answer::Error(&error));
    }

    /// Looks for a resource that is in no list, or for a task.
    pub(in crate::hub::span) fn search(
        &mut self,
        now: Now,
        peer: PeerId,
        runtime: RuntimeId,
        request: ServerRequest,
        what: Topic,
    ) {
        let Some(side) = &mut self.upstream else {
            return;
        };
        let mut left = match &what {
            Topic::Resource(_) => side.with_resources(runtime),
            Topic::Task(_) => side.with_tasks(runtime),
        };
        let Some(at) = left.pop_front() else {
            let error = unknown(&request, &what);
            return self.respond(now, peer, request.key, Answer::Error(&error));
        };
        let params = request.params.clone();
        let call = self.ask_server(now, peer, runtime, &at, &request, params);
        let (Some(call), Some(side)) = (call, &mut self.upstream) else {
            return;
        };
        // What the only one says goes back as it is.
        if !left.is_empty() {
            let search = Search {
                request,
                runtime,
                what,
                left,
                at,
                asked: 1,
                doubt: None,
            };
            side.searches.insert(call, search);
        }
    }

    /// A server had what is looked for, or had it not: then the next one is asked. Says whether one was.
    pub(in crate::hub::span) fn search_on(
        &mut self,
        now: Now,
        call: CallId,
        missing: Option<&UpstreamError>,
    ) -> bool {
        let limit = self.limits.resource_subscriptions_max;
        let Some(side) = &mut self.upstream else {
            return false;
        };
        let Some(mut search) = side.searches.remove(&call) else {
            return false;
        };
        let Some(missing) = missing else {
            side.remember_found(search, limit);
            return false;
        };
        // One that says anything but that it has no such task may have it.
        let is_answer = matches!(missing.code(), -32_602 | -32_601);
        if search.what.task().is_some() && !is_answer {
            search.doubt.get_or_insert_with(|| missing.clone());
        }
        let Some(next) = search.left.pop_front() else {
            if let Some(doubt) = search.doubt {
                self.conclude_failure(now, call, ledger::Place::UpstreamOther, &doubt);
                return true;
            }
            let mut error = unknown(&search.request, &search.what);
            error.message = format!("{}; {} servers were asked", error.message, search.asked);
            self.conclude(now, call, Answer::Error(&error));
            return true;
        };
        let request = &search.request;
        let (asked, params) = ((&next, request), request.params.as_deref());
        self.send_request(now, call, search.runtime, asked, params);
        search.at = next;
        search.asked += 1;
        if let Some(side) = &mut self.upstream {
            side.searches.insert(call, search);
        }
        true
    }
}

/// The error where nobody has it.
fn unknown(request: &ServerRequest, what: &Topic) -> RpcError {
    match what {
        Topic::Resource(uri) => unknown_resource(request.revision, uri),
        Topic::Task(id) => unknown_task(id),
    }
}

/// The params of a request, with the server's own name in place of the shown one.
fn params_for(request: &ServerRequest, own_name: Option<&str>) -> Option<SharedText> {
    let params = request.params.as_deref()?;
    let Some(own) = own_name else {
        return request.params.clone();
    };
    let mut quoted = String::with_capacity(own.len() + 2);
    write_string(&mut quoted, own);
    if &*request.method != "completion/complete" {
        return Some(with_member(params, "name", &quoted).into());
    }
    let reference = with_member(member(params, "ref")?, "name", &quoted);
    Some(with_member(params, "ref", &reference).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_covers_what_could_be_its_own() {
        for (template, uri, covered) in [
            ("file:///{path}", "file:///a", true),
            ("file:///{path}", "file:///a/b", false),
            ("file:///{+path}", "file:///a/b", true),
            ("db://t/{id}{?q,limit}", "db://t/7?q=x", true),
            ("db://t/{id}{?q,limit}", "db://u/7", false),
            ("{?q}", "db://u/7", false),
            ("plain:x", "plain:y", false),
        ] {
            assert_eq!(covers(template, uri), covered, "{template} {uri}");
        }
    }
}
