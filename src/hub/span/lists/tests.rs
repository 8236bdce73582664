//! Lists and routing through a whole hub, in virtual time, with servers that are functions.

mod pages;
mod parts;
mod routes;

use std::ops::{Deref, DerefMut};

use serde_json::{Value, json};

use crate::hub::rig::{Heard, INITIALIZE, INITIALIZED, META, Reply, World, records, span};
use crate::hub::{HubEvent, LocalConfig};
use crate::ids::WireId;
use crate::limits::Limits;
use crate::local::Registry;
use crate::manager::Prefix;

/// A server with what stands in these lists; everything else it answers with its own name.
pub(super) fn server(
    name: &'static str,
    lists: Value,
) -> impl FnMut(&str, &Value) -> Reply + 'static {
    move |method, params| offers(name, &lists, method, params)
}

pub(super) fn offers(name: &str, lists: &Value, method: &str, _params: &Value) -> Reply {
    let capabilities = json!({
        "tools": {"listChanged": true},
        "resources": {"listChanged": true},
        "prompts": {"listChanged": true},
    });
    match method {
        "server/discover" => Reply::Error(-32601),
        "initialize" => Reply::Result(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": {"name": name, "version": "1"},
        })),
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => {
            let member = match method {
                "resources/templates/list" => "resourceTemplates",
                other => other.split('/').next().expect("a word"),
            };
            let empty = json!([]);
            Reply::Result(json!({member: lists.get(member).unwrap_or(&empty)}))
        }
        _ => Reply::Result(json!({"by": name})),
    }
}

/// A world with one client, which asks for one thing after the other. It shakes hands before its first request,
/// when the servers are there.
pub(super) struct Listing {
    world: World,
    client: Option<WireId>,
    next_id: u64,
}

impl Deref for Listing {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for Listing {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

impl Listing {
    /// With these servers, each with more members of its record.
    pub(super) fn new(servers: &[(&str, Value)]) -> Self {
        Self::with(servers, Prefix::Auto, None, Limits::default())
    }

    pub(super) fn with(
        servers: &[(&str, Value)],
        prefix: Prefix,
        local: Option<Registry>,
        limits: Limits,
    ) -> Self {
        let mut config = span(servers, limits);
        config.local = local.map(|registry| LocalConfig {
            registry,
            state_key: [1; 32],
        });
        config.upstream.as_mut().expect("servers").prefix = prefix;
        Self {
            world: World::new(config),
            client: None,
            next_id: 1,
        }
    }

    pub(super) fn configure(&mut self, servers: &[(&str, Value)]) {
        let now = self.now;
        self.hub.set_servers(now, records(servers));
        self.settle();
    }

    /// A line of the client.
    fn write(&mut self, line: &str) {
        let client = self.client.unwrap_or_else(|| {
            let client = self.world.line();
            self.world.say(client, INITIALIZE);
            self.world.say(client, INITIALIZED);
            client
        });
        self.client = Some(client);
        self.say(client, line);
    }

    /// A request of the client, with raw params; gives its id.
    pub(super) fn begin(&mut self, method: &str, params: &str) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.write(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#
        ));
        id
    }

    /// The raw answer to a request, if it is there.
    pub(super) fn answer(&mut self, id: u64) -> Option<String> {
        let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"#);
        let of = |(_, line): &(WireId, String)| line.starts_with(&start);
        let at = self.said.iter().position(of)?;
        Some(self.said.remove(at).1)
    }

    /// The raw answer to a request that need not wait.
    #[track_caller]
    pub(super) fn ask_raw(&mut self, method: &str, params: &str) -> String {
        let id = self.begin(method, params);
        let answer = self.answer(id);
        answer.unwrap_or_else(|| panic!("{method} has no answer: {:?}", self.heard))
    }

    #[track_caller]
    pub(super) fn ask(&mut self, method: &str, params: &str) -> Value {
        serde_json::from_str(&self.ask_raw(method, params)).expect("JSON")
    }

    /// Names, URIs or templates of a list.
    #[track_caller]
    pub(super) fn list(&mut self, method: &str) -> Vec<String> {
        ids(&self.ask(method, "{}"))
    }

    /// How often the client was told this, since it was asked last.
    pub(super) fn told(&mut self, what: &str) -> usize {
        let before = self.said.len();
        self.said.retain(|(_, line)| !line.contains(what));
        before - self.said.len()
    }

    /// How often a server was asked this.
    pub(super) fn count(&self, name: &str, method: &str) -> usize {
        let of = |heard: &&Heard| heard.program == name && heard.message["method"] == method;
        self.heard.iter().filter(of).count()
    }

    /// The raw params of the last request of this method that a server got.
    #[track_caller]
    pub(super) fn last_params(&self, name: &str, method: &str) -> String {
        let of = |heard: &&Heard| heard.program == name && heard.message["method"] == method;
        let last = self.heard.iter().rev().find(of).expect("it was asked");
        let (_, params) = last.raw.split_once(r#""params":"#).expect("params");
        params
            .trim_end()
            .strip_suffix('}')
            .expect("an object")
            .to_owned()
    }
}

/// Names, URIs or templates in the answer to a list request.
pub(super) fn ids(answer: &Value) -> Vec<String> {
    let lists = answer["result"].as_object().expect("a result").values();
    let list = lists.filter_map(Value::as_array).next().expect("a list");
    let id = |entry: &Value| {
        let id = ["name", "uri", "uriTemplate"].iter();
        // A resource has a name too, its URI is what counts.
        let id = id.rev().find_map(|member| entry[member].as_str());
        id.expect("an id").to_owned()
    };
    list.iter().map(id).collect()
}

pub(super) fn tools(names: &[&str]) -> Value {
    let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
    names.iter().map(tool).collect()
}

pub(super) fn prompts(names: &[&str]) -> Value {
    names.iter().map(|name| json!({"name": name})).collect()
}

pub(super) fn resources(uris: &[&str]) -> Value {
    let resource = |uri: &&str| json!({"uri": uri, "name": "r"});
    uris.iter().map(resource).collect()
}

pub(super) fn templates(uris: &[&str]) -> Value {
    let template = |uri: &&str| json!({"uriTemplate": uri, "name": "t"});
    uris.iter().map(template).collect()
}
