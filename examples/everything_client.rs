//! A client of one MCP server that does what the official conformance suite wants of a client, on the
//! library's public API alone.
//!
//! `everything_client URL`; what to do and which revision to speak come from the environment, as the suite
//! sets it: `MCP_CONFORMANCE_SCENARIO`, `MCP_CONFORMANCE_PROTOCOL_VERSION`, `MCP_CONFORMANCE_CONTEXT`.
//! Without a scenario it lists the tools.
//!
//! It is also the shortest way through [`drawspan::manager`]: a loop, a manager, a runtime, and a closure
//! that waits for one ticket at a time.

#![expect(
    clippy::print_stderr,
    reason = "a program that tells people what went wrong"
)]

use std::collections::BTreeMap;
use std::process::ExitCode;

use drawspan::codec::json_object::JsonObject;
use drawspan::codec::scan::{Text, elements, members};
use drawspan::gate::{Gate, Passage, Policy, ToolCall};
use drawspan::ids::{CallId, RuntimeId, TicketId, WireId};
use drawspan::io::EventLoop;
use drawspan::io::system::OsEntropy;
use drawspan::limits::Limits;
use drawspan::manager::Prefix;
use drawspan::manager::catalog::PagedList;
use drawspan::manager::entry::read_servers;
use drawspan::manager::server_config::{ServerConfig, ServerKey};
use drawspan::manager::{Manager, ManagerOutput, Options, Settings};
use drawspan::protocol::error::RpcError;
use drawspan::protocol::message::member;
use drawspan::protocol::revision::Revision;

type Outcome<T> = Result<T, String>;

fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("usage: everything_client URL");
        return ExitCode::from(2);
    };
    match run(&url) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(url: &str) -> Outcome<()> {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let revision = variable("MCP_CONFORMANCE_PROTOCOL_VERSION");
    let context = variable("MCP_CONFORMANCE_CONTEXT");
    let mut client = Client::new(url, &revision)?;
    let scenario = variable("MCP_CONFORMANCE_SCENARIO");
    let outcome = client
        .connect()
        .and_then(|()| client.expect_era(&revision))
        .and_then(|()| play(&mut client, &scenario, &context));
    client.end();
    outcome
}

/// What each scenario asks for beyond connecting and listing the tools.
fn play(client: &mut Client, scenario: &str, context: &str) -> Outcome<()> {
    match scenario {
        "tools_call" => drop(client.call("add_numbers", r#"{"a":5,"b":3}"#)?),
        "elicitation-sep1034-client-defaults" => {
            drop(client.call("test_client_elicitation_defaults", "{}")?);
        }
        "sse-retry" => drop(client.call("test_reconnection", "{}")?),
        "http-standard-headers" => client.visit_everything()?,
        "http-custom-headers" => {
            for call in elements(member(context, "toolCalls").unwrap_or("[]")) {
                let name = text(call, "name").ok_or("a call has no name")?;
                drop(client.call(&name, member(call, "arguments").unwrap_or("{}"))?);
            }
        }
        "json-schema-2020-12-preservation" => {
            let schema = client
                .input_schema("json_schema_2020_12_tool")
                .ok_or("json_schema_2020_12_tool is not listed")?;
            drop(client.call("json_schema_echo", &format!(r#"{{"schema":{schema}}}"#))?);
        }
        "sep-2322-client-request-state" | "http-invalid-tool-headers" => {
            for tool in client.tool_names() {
                drop(client.call(&tool, "{}")?);
            }
        }
        _ => {}
    }
    Ok(())
}

/// One server, and the loop that drives the manager in front of it.
struct Client {
    events: EventLoop,
    manager: Manager,
    gate: Gate,
    runtime: RuntimeId,
    server: ServerKey,
    calls: CallId,
}

impl Client {
    fn new(url: &str, revision: &str) -> Outcome<Self> {
        let limits = Limits::default();
        let events = EventLoop::new(&limits).map_err(|error| error.to_string())?;
        let now = events.now();
        let settings = Settings {
            identity: r#"{"name":"everything-client","version":"1.0.0"}"#.to_owned(),
            capabilities:
                r#"{"elicitation":{"form":{"applyDefaults":true}},"sampling":{},"roots":{}}"#
                    .to_owned(),
            limits: limits.clone(),
        };
        let server = server(url, revision, &limits)?;
        let key = server.key.clone();
        let mut manager = Manager::new(settings, Box::new(OsEntropy::new()), WireId(0));
        manager.set_servers(now, vec![server]);
        let runtime = manager
            .open_runtime(now, Prefix::Never)
            .map_err(|limit| format!("too many runtimes, limit {limit}"))?;
        Ok(Self {
            events,
            manager,
            gate: Gate::new(Policy::Open, &limits),
            runtime,
            server: key,
            calls: CallId(1),
        })
    }

    /// Connects and fetches the tools.
    fn connect(&mut self) -> Outcome<()> {
        self.manager.connect(self.events.now(), self.runtime);
        while !self.manager.is_settled(self.runtime) {
            self.turn(None)?;
        }
        match self.manager.state(self.runtime, &self.server).1 {
            Some(error) => Err(error.to_string()),
            None => Ok(()),
        }
    }

    /// Fails when what was found is of another era than `revision`.
    fn expect_era(&self, revision: &str) -> Outcome<()> {
        let facts = self.manager.facts(self.runtime, &self.server);
        let found = facts.ok_or("nothing is known of the server")?.revision;
        match Revision::parse(revision) {
            Some(wanted) if wanted.is_stateless() != found.is_stateless() => Err(format!(
                "the server speaks {}, not {revision}",
                found.as_str()
            )),
            Some(_) | None => Ok(()),
        }
    }

    fn tool_names(&self) -> Vec<String> {
        let catalog = self.manager.catalog(self.runtime);
        let tools = catalog.into_iter().flat_map(|catalog| catalog.tools());
        tools
            .map(|(_, found)| found.tool.name().to_owned())
            .collect()
    }

    fn input_schema(&self, tool: &str) -> Option<String> {
        let found = self.manager.catalog(self.runtime)?.find(tool)?;
        Some(found.tool.input_schema().to_owned())
    }

    /// Calls a tool; every call passes a gate, here an open one.
    fn call(&mut self, tool: &str, arguments: &str) -> Outcome<Box<str>> {
        let call = ToolCall {
            id: self.calls,
            tool: tool.into(),
            arguments: arguments.into(),
            caller: "everything_client".into(),
            wants_progress: false,
            ..ToolCall::default()
        };
        self.calls = self.calls.next();
        let Passage::Open(call) = self.gate.admit(self.events.now(), call) else {
            return Err("an open gate lets every call pass".to_owned());
        };
        let now = self.events.now();
        let ticket = self
            .manager
            .call(now, self.runtime, call, Options::default());
        self.wait(ticket)
    }

    fn list(&mut self, list: PagedList) -> Outcome<Box<str>> {
        let now = self.events.now();
        let ticket = self.manager.list(now, self.runtime, &self.server, list);
        self.wait(ticket)
    }

    fn request(&mut self, method: &str, params: &str) -> Outcome<Box<str>> {
        let now = self.events.now();
        let asked = (method, Some(params));
        let ticket =
            self.manager
                .request(now, self.runtime, &self.server, asked, Options::default());
        self.wait(ticket)
    }

    /// Calls every tool, reads every resource, gets every prompt.
    fn visit_everything(&mut self) -> Outcome<()> {
        for tool in self.tool_names() {
            drop(self.call(&tool, "{}")?);
        }
        let resources = self.list(PagedList::Resources)?;
        for uri in elements(&resources).filter_map(|one| member(one, "uri")) {
            drop(self.request("resources/read", &format!(r#"{{"uri":{uri}}}"#))?);
        }
        let prompts = self.list(PagedList::Prompts)?;
        for name in elements(&prompts).filter_map(|one| member(one, "name")) {
            drop(self.request("prompts/get", &format!(r#"{{"name":{name}}}"#))?);
        }
        Ok(())
    }

    fn wait(&mut self, ticket: TicketId) -> Outcome<Box<str>> {
        loop {
            if let Some(outcome) = self.turn(Some(ticket))? {
                return outcome;
            }
        }
    }

    /// One turn of the loop; the outcome of `ticket` when it has come.
    fn turn(&mut self, ticket: Option<TicketId>) -> Outcome<Option<Outcome<Box<str>>>> {
        self.events
            .turn(&mut [&mut self.manager])
            .map_err(|error| error.to_string())?;
        let mut answer = None;
        while let Some(output) = self.manager.poll_output() {
            match output {
                ManagerOutput::Answer {
                    ticket: of,
                    outcome,
                } if Some(of) == ticket => {
                    let outcome = outcome.map(|result| Box::from(&*result));
                    answer = Some(outcome.map_err(|error| error.to_string()));
                }
                ManagerOutput::Question {
                    id, method, params, ..
                } => {
                    let answer = reply(&method, params.as_deref());
                    let answer = answer.as_deref().map_err(|error| error.clone());
                    self.manager.answer(self.events.now(), id, answer);
                }
                ManagerOutput::Diagnostic { diagnostic, .. } => {
                    eprintln!("{}: {}", diagnostic.level.as_str(), diagnostic.message);
                }
                ManagerOutput::Answer { .. }
                | ManagerOutput::Progress { .. }
                | ManagerOutput::Notification { .. }
                | ManagerOutput::QuestionGone(_)
                | ManagerOutput::CatalogChanged(_)
                | ManagerOutput::ListChanged { .. }
                | ManagerOutput::Subscribed { .. }
                | ManagerOutput::StateChanged { .. } => {}
            }
        }
        Ok(answer)
    }

    /// Ends the connection in good order.
    fn end(mut self) {
        self.manager.close(self.events.now());
        while !self.manager.is_gone() {
            if self.events.turn(&mut [&mut self.manager]).is_err() {
                return;
            }
        }
    }
}

/// What a model and a person would say.
fn reply(method: &str, params: Option<&str>) -> Result<String, RpcError> {
    let answer = match method {
        "elicitation/create" => filled_in(params),
        "sampling/createMessage" => {
            let content = r#"{"type":"text","text":"Paris"}"#;
            format!(r#"{{"role":"assistant","model":"none","content":{content}}}"#)
        }
        "roots/list" => r#"{"roots":[{"uri":"file:///tmp","name":"tmp"}]}"#.to_owned(),
        _ => return Err(RpcError::method_not_found(method)),
    };
    Ok(answer)
}

/// Accepts a form with the defaults of its fields; a yes, a number, a word where there is none.
fn filled_in(params: Option<&str>) -> String {
    let schema = params.and_then(|params| member(params, "requestedSchema"));
    let properties = schema.and_then(|schema| member(schema, "properties"));
    let mut content = JsonObject::new();
    for (name, property) in members(properties.unwrap_or("{}")) {
        let value = member(property, "default").unwrap_or_else(|| match member(property, "type") {
            Some("\"boolean\"") => "true",
            Some("\"integer\"" | "\"number\"") => "1",
            _ => "\"Alice\"",
        });
        content.raw(&name.decode(), value);
    }
    let content = content.end();
    format!(r#"{{"action":"accept","content":{content}}}"#)
}

/// The record of the server, as a configuration file would hold it.
fn server(url: &str, revision: &str, limits: &Limits) -> Outcome<ServerConfig> {
    // The client finds out what the server speaks; only an old revision has to be asked for by its date.
    let protocol = match revision {
        "" | "2026-07-28" | "2025-11-25" => "auto",
        older => older,
    };
    let record = format!(
        r#"{{"url":{url:?},"transport":"streamable-http","protocol":"{protocol}","supportsParallelToolCalls":true}}"#
    );
    let servers = [("server".to_owned(), record)];
    let configured = read_servers(&servers, &BTreeMap::new(), limits)
        .into_iter()
        .next();
    let configured = configured.ok_or("there is no server")?;
    configured.outcome.map_err(|issues| {
        let lines: Vec<String> = issues.into_iter().map(|issue| issue.message).collect();
        lines.join("; ")
    })
}

fn text(object: &str, name: &str) -> Option<String> {
    let text = member(object, name).and_then(Text::of_value)?;
    Some(text.decode().into_owned())
}
