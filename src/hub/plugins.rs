//! Tools that are commands: a call starts the program, which reads the arguments and prints the result.
//!
//! They are tools of the local registry, so that lists, the gate and the ledger treat them as all others;
//! here is who answers for them.
//!
//! | a call is | input                          | next    | output                                     |
//! |-----------|--------------------------------|---------|--------------------------------------------|
//! | –         | asked, room                    | Running | the program, with its arguments            |
//! | –         | asked, `plugin_runs_max` run   | –       | an error, "busy"                           |
//! | –         | asked, arguments do not fit    | –       | a result that says so, marked `isError`    |
//! | Running   | exit 0                         | –       | the result, see [`LocalReply::coerced`]    |
//! | Running   | other exit, time, output limit | –       | a result that says so, marked `isError`    |
//! | Running   | cancelled, end of the hub      | –       | the process group is killed                |
//!
//! Source: openclaw-serve §4, with errors marked as errors and everything bounded.

use std::collections::BTreeMap;

use super::local_side::{LocalConfig, LocalSide};
use super::{Hub, Owner};
use crate::bridge::Bridge;
use crate::clock::{Deadline, Now};
use crate::diagnostic::{Diagnostic, Level, Subject};
use crate::ids::{CallId, WireId};
use crate::limits::Limits;
use crate::link::command::{Bounds, CommandRun};
use crate::local::{LocalKind, LocalReply, LocalRequest, Registry, Tool};
use crate::manager::entry::PluginTool;
use crate::protocol::error::{ErrorCode, RpcError};
use crate::protocol::schema::{Schema, SchemaError};
use crate::protocol::server::List;
use crate::secret::Quoted;

/// One tool, and the checks of its arguments where they are asked for.
#[derive(Debug)]
struct Plugin {
    tool: PluginTool,
    check: Option<Schema>,
}

impl Plugin {
    fn new(tool: PluginTool, limits: &Limits) -> Result<Self, SchemaError> {
        let compile = || Schema::compile(&tool.input_schema, limits);
        let check = tool.validate.then(compile).transpose()?;
        Ok(Self { tool, check })
    }

    /// What is wrong with the arguments.
    fn check(&self, arguments: &str) -> Result<(), String> {
        let Some(schema) = &self.check else {
            return Ok(());
        };
        schema.check(arguments).map_err(|lines| {
            let name = Quoted(&self.tool.name);
            format!(
                "arguments do not fit the schema of {name}: {}",
                lines.join("; ")
            )
        })
    }

    fn bounds(&self, limits: &Limits) -> Bounds {
        let time = (limits.plugin_timeout, "plugin_timeout_ms");
        let output = (limits.plugin_output_bytes_max, "plugin_output_bytes_max");
        Bounds {
            timeout: self.tool.timeout.map_or(time, |own| (own, "timeoutMs")),
            output_bytes_max: self
                .tool
                .output_bytes_max
                .map_or(output, |own| (own, "maxOutputBytes")),
        }
    }
}

/// See the module page.
#[derive(Debug, Default)]
pub(super) struct Plugins {
    /// By name: those that are offered.
    tools: BTreeMap<String, Plugin>,
    /// Each with the name of its tool.
    runs: BTreeMap<CallId, (String, CommandRun)>,
    runs_peak: usize,
}

impl Plugins {
    /// Whether this is a call that is answered here.
    pub(super) fn owns(&self, kind: &LocalKind) -> bool {
        matches!(kind, LocalKind::Tool { name, .. } if self.tools.contains_key(&**name))
    }

    /// Whether a command of theirs runs.
    pub(super) fn are_running(&self) -> bool {
        !self.runs.is_empty()
    }

    pub(super) fn run_mut(&mut self, call: CallId) -> Option<&mut CommandRun> {
        self.runs.get_mut(&call).map(|(_, run)| run)
    }

    pub(super) fn handle_timeout(&mut self, now: Now) {
        for (_, run) in self.runs.values_mut() {
            run.handle_timeout(now);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Deadline> {
        let runs = self.runs.values().map(|(_, run)| run.next_deadline());
        runs.fold(None, Deadline::earlier)
    }

    /// How many run, and the most that ever did at once.
    pub(super) fn usage(&self) -> (usize, usize) {
        (self.runs.len(), self.runs_peak)
    }
}

impl Hub {
    /// The tools that are commands, from now on: what a configuration says that was read again. Those that are
    /// the same stay, and so do calls that run. Clients are told when anything has changed.
    pub fn set_plugin_tools(&mut self, now: Now, tools: Vec<PluginTool>) {
        if self.offer_plugins(tools) {
            self.reserve_names(now);
            if let Some(side) = &mut self.upstream {
                // An only server is alone no more.
                side.servers_changed(now);
            }
            if let Some(local) = &mut self.local {
                local.desk.list_changed(List::Tools);
            }
        }
        self.choose_server();
        self.settle(now);
    }

    /// Puts the tools into the registry, and takes those out that are no more. Says whether anything moved.
    pub(super) fn offer_plugins(&mut self, tools: Vec<PluginTool>) -> bool {
        if self.local.is_none() && tools.is_empty() {
            return false;
        }
        let local = self.local.get_or_insert_with(|| {
            let mut state_key = [0; 32];
            self.entropy.fill(&mut state_key);
            let registry = Registry::new();
            let config = LocalConfig {
                registry,
                state_key,
            };
            LocalSide::new(config, &self.limits)
        });
        let mut before = std::mem::take(&mut self.plugins.tools);
        let (mut kept, mut new) = (BTreeMap::new(), Vec::new());
        for tool in tools {
            match before.remove(&tool.name) {
                Some(same) if same.tool == tool => {
                    kept.insert(tool.name, same);
                }
                Some(other) => {
                    before.insert(other.tool.name.clone(), other);
                    new.push(tool);
                }
                None => new.push(tool),
            }
        }
        let registry = local.desk.registry_mut();
        let mut moved = !before.is_empty();
        for gone in before.keys() {
            registry.remove_tool(gone);
        }
        self.plugins.tools = kept;
        let mut left_out = Vec::new();
        for tool in new {
            let name = tool.name.clone();
            // The channel tools are those of OpenClaw: nothing stands in their place.
            let taken = self.gateway.is_some() && Bridge::owns(&name);
            let offered = if taken {
                Err("a channel tool has that name".to_owned())
            } else {
                offer(registry, tool, &self.limits)
            };
            match offered {
                Ok(plugin) => {
                    self.plugins.tools.insert(name, plugin);
                    moved = true;
                }
                Err(why) => {
                    left_out.push(format!("plugin tool {} is left out: {why}", Quoted(&name)))
                }
            }
        }
        let _ = local.desk.take_registry_lent();
        local.read_headers();
        for message in left_out {
            self.diagnose(Diagnostic::new(Level::Warning, Subject::Plugin, message));
        }
        moved
    }

    /// A call of one of these tools has passed the gate and the desk.
    pub(super) fn run_plugin(&mut self, now: Now, request: LocalRequest) {
        let call = request.call;
        let limit = self.limits.plugin_runs_max;
        let refused = match (&request.kind, self.plugins.tools.get(request.kind.name())) {
            (LocalKind::Tool { arguments, .. }, Some(plugin)) => match plugin.check(arguments) {
                Err(why) => LocalReply::failed(&why),
                Ok(()) if self.plugins.runs.len() >= limit => {
                    let text = format!(
                        "busy: {limit} commands are running, limit {limit} (plugin_runs_max)"
                    );
                    LocalReply::Error(RpcError::new(ErrorCode::InternalError, text))
                }
                Ok(()) => {
                    let (spec, bounds) = (plugin.tool.program.spec(), plugin.bounds(&self.limits));
                    let name = plugin.tool.name.clone();
                    let wire = self.mint_wire();
                    let run = CommandRun::new(wire, spec, &format!("{arguments}\n"), bounds, now);
                    self.wires.insert(wire, Owner::Plugin(call));
                    let plugins = &mut self.plugins;
                    plugins.runs.insert(call, (name, run));
                    plugins.runs_peak = plugins.runs_peak.max(plugins.runs.len());
                    return;
                }
            },
            // It was taken back while the gate had the call.
            (kind, _) => {
                let text = format!("Unknown tool: {}", Quoted(kind.name()));
                LocalReply::Error(RpcError::new(ErrorCode::InvalidParams, text))
            }
        };
        self.reply(now, call, refused);
    }

    fn reply(&mut self, now: Now, call: CallId, reply: LocalReply) {
        if let Some(local) = &mut self.local {
            local.desk.resolve(now, call, reply, &mut *self.entropy);
        }
    }

    #[inline(never)]
    pub(super) fn step_plugins(&mut self, now: Now) -> bool {
        let mut over = Vec::new();
        for (call, (_, run)) in &mut self.plugins.runs {
            while let Some(request) = run.poll_io() {
                self.io.push_back(request);
            }
            if let Some(outcome) = run.poll_outcome() {
                over.push((*call, outcome));
            }
        }
        let moved = !over.is_empty();
        for (call, outcome) in over {
            let tool = self.forget_run(call).unwrap_or_default();
            let reply = match outcome {
                Ok(printed) => LocalReply::coerced(&printed),
                Err(why) => LocalReply::failed(&format!("tool {} failed: {why}", Quoted(&tool))),
            };
            self.reply(now, call, reply);
        }
        moved
    }

    /// Nobody wants the answer of this call any more. Whether it was one of ours.
    pub(super) fn drop_plugin(&mut self, call: CallId) -> bool {
        let Some(run) = self.plugins.run_mut(call) else {
            return false;
        };
        run.abandon();
        while let Some(request) = run.poll_io() {
            self.io.push_back(request);
        }
        self.forget_run(call).is_some()
    }

    /// A run is over; gives the name of its tool.
    fn forget_run(&mut self, call: CallId) -> Option<String> {
        let (tool, run) = self.plugins.runs.remove(&call)?;
        let wire: WireId = run.wire();
        self.wires.remove(&wire);
        Some(tool)
    }
}

/// Adds a tool to the registry.
///
/// # Errors
/// Why it cannot be offered.
fn offer(registry: &mut Registry, tool: PluginTool, limits: &Limits) -> Result<Plugin, String> {
    let plugin = Plugin::new(tool, limits).map_err(|error| error.to_string())?;
    let tool = &plugin.tool;
    let offer = Tool::new(&tool.name, &tool.description, &tool.input_schema);
    registry
        .add_tool(offer)
        .map_err(|error| error.to_string())?;
    Ok(plugin)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    use crate::clock::Uptime;
    use crate::entropy::Seeded;
    use crate::hub::{HubConfig, HubEvent};

    use crate::link::{Driven, ExitReport, IoEvent, IoRequest, OpenSpec, Signal};
    use crate::manager::server_config::StdioTransport;

    fn at(ms: u64) -> Now {
        Now {
            up: Uptime::from_millis(ms),
            unix_ms: 0,
        }
    }

    fn tool(name: &str, program: &str) -> PluginTool {
        PluginTool {
            name: name.to_owned(),
            description: String::new(),
            input_schema: r#"{"type":"object","required":["n"]}"#.to_owned(),
            program: StdioTransport {
                command: program.to_owned(),
                args: Vec::new(),
                env: BTreeMap::new(),
                cwd: None,
            },
            timeout: (name == "quick").then_some(Duration::from_millis(50)),
            output_bytes_max: None,
            validate: name == "checked",
        }
    }

    /// A hub with one client and these tools, two of which may run.
    fn hub(tools: Vec<PluginTool>) -> (Hub, WireId) {
        let config = HubConfig {
            limits: Limits {
                plugin_runs_max: 2,
                ..Limits::default()
            },
            plugins: tools,
            ..HubConfig::default()
        };
        let mut hub = Hub::new(config, Box::new(Seeded::new(1)), at(0));
        let client = hub.serve_adopted(at(0));
        assert_eq!(requests(&mut hub), "");
        (hub, client)
    }

    /// What the loop is asked for: programs by name, and what becomes of their wires.
    fn requests(hub: &mut Hub) -> String {
        let mut asked = Vec::new();
        while let Some(request) = hub.poll_io() {
            match request {
                IoRequest::Open(_, OpenSpec::Child(spec)) => {
                    asked.push(format!("start {}", spec.program));
                }
                IoRequest::Signal(_, Signal::Kill) => asked.push("kill".to_owned()),
                IoRequest::Close(_) => asked.push("close".to_owned()),
                IoRequest::Open(..)
                | IoRequest::Signal(..)
                | IoRequest::Flush(_)
                | IoRequest::CloseWrite(_)
                | IoRequest::Finish(_)
                | IoRequest::PauseReads(..)
                | IoRequest::Append(_) => {}
            }
        }
        asked.join(" ")
    }

    fn call(hub: &mut Hub, client: WireId, id: u64, tool: &str, arguments: &str) {
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        );
        hub.handle_io(
            at(0),
            client,
            IoEvent::Bytes(format!("{line}\n").as_bytes()),
        );
    }

    /// What the client is told.
    fn take(hub: &mut Hub, client: WireId) -> String {
        let out = hub.outgoing(client).expect("the client's wire");
        let text = String::from_utf8(out.pending().to_vec()).expect("UTF-8");
        out.advance(text.len());
        text
    }

    /// The wire of a program that was started last.
    fn newest(hub: &Hub) -> WireId {
        let owners = hub.wires.iter();
        let of_plugins = owners.filter(|(_, owner)| matches!(owner, Owner::Plugin(_)));
        *of_plugins.last().expect("a program runs").0
    }

    #[test]
    fn a_call_is_a_run() {
        let (mut hub, client) = hub(vec![tool("a", "prog")]);
        call(&mut hub, client, 1, "a", r#"{"big":1.0, "x":[]}"#);
        assert_eq!(requests(&mut hub), "start prog");
        let wire = newest(&hub);
        hub.handle_io(at(1), wire, IoEvent::Opened);
        let out = hub.outgoing(wire).expect("its wire");
        assert_eq!(out.pending(), b"{\"big\":1.0, \"x\":[]}\n");
        hub.handle_io(at(2), wire, IoEvent::Bytes(b"4"));
        hub.handle_io(at(3), wire, IoEvent::Bytes(b"2\n"));
        hub.handle_io(at(4), wire, IoEvent::Eof);
        assert_eq!(take(&mut hub, client), "");
        hub.handle_io(at(5), wire, IoEvent::Exited(ExitReport::Code(0)));
        assert_eq!(
            take(&mut hub, client),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"42\"}]}}\n"
        );
        assert_eq!(requests(&mut hub), "close");
        assert!(hub.outgoing(wire).is_none());
        assert_eq!((hub.open_calls(), hub.plugins.usage()), (0, (0, 1)));
    }

    #[test]
    fn time_and_number_are_bounded() {
        let (mut hub, client) = hub(vec![tool("a", "prog"), tool("quick", "prog")]);
        call(&mut hub, client, 1, "quick", "{}");
        call(&mut hub, client, 2, "a", "{}");
        call(&mut hub, client, 3, "a", "{}");
        assert_eq!(requests(&mut hub), "start prog start prog");
        assert!(take(&mut hub, client).contains("limit 2 (plugin_runs_max)"));
        let due = hub.next_deadline().map(|deadline| deadline.at);
        assert_eq!(due, Some(Uptime::from_millis(50)));
        hub.handle_timeout(at(49));
        assert_eq!(requests(&mut hub), "");
        hub.handle_timeout(at(50));
        assert_eq!(requests(&mut hub), "kill close");
        let said = take(&mut hub, client);
        assert!(said.contains("limit 50 ms (timeoutMs)") && said.contains(r#""isError":true"#));
        hub.handle_timeout(at(60_000));
        assert_eq!(requests(&mut hub), "kill close");
        assert!(take(&mut hub, client).contains("limit 60000 ms (plugin_timeout_ms)"));
        assert_eq!(hub.open_calls(), 0);
    }

    #[test]
    fn arguments_are_checked_where_that_is_asked_for() {
        let (mut hub, client) = hub(vec![tool("a", "prog"), tool("checked", "prog")]);
        call(&mut hub, client, 1, "checked", "{}");
        assert_eq!(requests(&mut hub), "");
        let said = take(&mut hub, client);
        assert!(said.contains("do not fit the schema of checked") && said.contains("isError"));
        call(&mut hub, client, 2, "checked", r#"{"n":1}"#);
        call(&mut hub, client, 3, "a", "{}");
        assert_eq!(requests(&mut hub), "start prog start prog");
    }

    #[test]
    fn whoever_goes_first_the_program_ends() {
        let cancel =
            br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        let ends: [fn(&mut Hub, WireId, &[u8]); 3] = [
            |hub, client, cancel| {
                hub.handle_io(at(1), client, IoEvent::Bytes(&[cancel, b"\n"].concat()));
            },
            |hub, client, _| hub.handle_io(at(1), client, IoEvent::WriteClosed),
            |hub, _, _| hub.shutdown(at(1)),
        ];
        for end in ends {
            let (mut hub, client) = hub(vec![tool("a", "prog")]);
            call(&mut hub, client, 1, "a", "{}");
            assert_eq!(requests(&mut hub), "start prog");
            end(&mut hub, client, cancel);
            assert!(requests(&mut hub).contains("kill close"));
            assert_eq!((hub.open_calls(), hub.plugins.usage().0), (0, 0));
            while let Some(event) = hub.poll_event() {
                assert!(!matches!(event, HubEvent::LocalCancelled(_)), "{event:?}");
            }
        }
    }

    #[test]
    fn what_is_the_same_stays_and_what_runs_goes_on() {
        let (mut hub, client) = hub(vec![tool("a", "one"), tool("b", "one")]);
        call(&mut hub, client, 1, "b", "{}");
        assert_eq!(requests(&mut hub), "start one");
        let wire = newest(&hub);
        let mut spoilt = tool("c", "one");
        spoilt.input_schema = "[]".to_owned();
        hub.set_plugin_tools(at(0), vec![tool("a", "two"), tool("a", "three"), spoilt]);
        let told: Vec<String> = std::iter::from_fn(|| hub.poll_event())
            .map(|event| format!("{event:?}"))
            .collect();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("already a tool called a") && told[1].contains("inputSchema"));
        assert_eq!(requests(&mut hub), "", "the run goes on");
        call(&mut hub, client, 2, "a", "{}");
        assert_eq!(requests(&mut hub), "start two");
        call(&mut hub, client, 3, "b", "{}");
        assert!(take(&mut hub, client).contains("Unknown tool: b"));
        hub.handle_io(at(1), wire, IoEvent::Eof);
        hub.handle_io(at(1), wire, IoEvent::Exited(ExitReport::Code(0)));
        assert!(take(&mut hub, client).contains(r#""id":1,"result""#));
    }
}
