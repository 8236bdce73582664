//! What a server offers: tools, resources, resource templates and prompts.
//!
//! Definitions are raw JSON, checked once when they are added and given out as they are ever after. Lists
//! come in the order of adding. The program is asked for nothing but what it added.

use std::sync::Arc;

use crate::codec::scan::Text;
use crate::local::feature::TASKS_EXTENSION;
use crate::local::offer::{
    Item, OfPrompt, OfResource, OfTemplate, OfTool, Prompt, RegistryError, Resource, TaskSupport,
    Template, Tool,
};
use crate::local::shelf::{Entry, Shelf};
use crate::local::template;
use crate::protocol::message::member;
use crate::protocol::server::Changing;
use crate::secret::Quoted;

/// Everything a server offers.
#[derive(Debug)]
pub struct Registry {
    pub(super) tools: Shelf<Item<OfTool>>,
    pub(super) resources: Shelf<Item<OfResource>>,
    pub(super) templates: Shelf<Item<OfTemplate>>,
    pub(super) prompts: Shelf<Item<OfPrompt>>,
    changing: Changing,
    resource_updates: bool,
    pub(super) completions: bool,
    logging: bool,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            tools: Shelf::new("tools"),
            resources: Shelf::new("resources"),
            templates: Shelf::new("resourceTemplates"),
            prompts: Shelf::new("prompts"),
            changing: Changing {
                tools: false,
                prompts: false,
                resources: false,
            },
            resource_updates: false,
            completions: false,
            logging: false,
        }
    }

    /// Declares which lists may change while the server runs.
    pub const fn declare_changing(&mut self, changing: Changing) {
        self.changing = changing;
    }

    /// Declares that clients may subscribe to resources.
    pub const fn declare_resource_updates(&mut self) {
        self.resource_updates = true;
    }

    /// Declares that arguments of prompts and templates can be completed; the program is asked.
    pub const fn declare_completions(&mut self) {
        self.completions = true;
    }

    /// Declares that tools send log messages.
    pub const fn declare_logging(&mut self) {
        self.logging = true;
    }

    /// Adds a tool at the end of the list.
    ///
    /// # Errors
    /// A name that is taken or not 1 to 128 of `[A-Za-z0-9_.-]`; a raw member of the wrong kind.
    pub fn add_tool(&mut self, tool: Tool) -> Result<(), RegistryError> {
        const WHAT: &str = "tool";
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let tool = tool.finish(WHAT, |name| {
            (1..=128).contains(&name.len()) && name.bytes().all(legal)
        })?;
        add(&mut self.tools, WHAT, tool)
    }

    /// Adds a resource at the end of the list.
    ///
    /// # Errors
    /// A URI that is taken or has no scheme; a raw member of the wrong kind.
    pub fn add_resource(&mut self, resource: Resource) -> Result<(), RegistryError> {
        const WHAT: &str = "resource";
        add(
            &mut self.resources,
            WHAT,
            resource.finish(WHAT, has_scheme)?,
        )
    }

    /// Adds a resource template at the end of the list. Of several that match a URI the first one counts,
    /// and a listed resource before all of them.
    ///
    /// # Errors
    /// A template that is taken or not understood; a raw member of the wrong kind.
    pub fn add_template(&mut self, template: Template) -> Result<(), RegistryError> {
        const WHAT: &str = "resource template";
        let template =
            template.finish(WHAT, |name| has_scheme(name) && template::is_template(name))?;
        add(&mut self.templates, WHAT, template)
    }

    /// Adds a prompt at the end of the list.
    ///
    /// # Errors
    /// A name that is taken, empty or has control characters; a raw member of the wrong kind.
    pub fn add_prompt(&mut self, prompt: Prompt) -> Result<(), RegistryError> {
        const WHAT: &str = "prompt";
        let prompt = prompt.close_arguments().finish(WHAT, |name| {
            !name.is_empty() && !name.chars().any(char::is_control)
        })?;
        add(&mut self.prompts, WHAT, prompt)
    }

    /// Takes a tool away. Whether there was one.
    pub fn remove_tool(&mut self, name: &str) -> bool {
        self.tools.remove(name).is_some()
    }

    /// Takes a resource away. Whether there was one.
    pub fn remove_resource(&mut self, uri: &str) -> bool {
        self.resources.remove(uri).is_some()
    }

    /// Takes a resource template away. Whether there was one.
    pub fn remove_template(&mut self, uri_template: &str) -> bool {
        self.templates.remove(uri_template).is_some()
    }

    /// Takes a prompt away. Whether there was one.
    pub fn remove_prompt(&mut self, name: &str) -> bool {
        self.prompts.remove(name).is_some()
    }

    /// The definitions of the tools, raw objects, in order.
    pub fn tool_definitions(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(Entry::json)
    }

    /// The names of the tools, in alphabetical order.
    pub fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.tools.names()
    }

    /// The names of the prompts, in alphabetical order.
    pub fn prompt_names(&self) -> impl Iterator<Item = &str> {
        self.prompts.names()
    }

    /// The entries of the list that this method asks for, in order: each with a number that no later one gets,
    /// its name or URI, and its definition.
    pub(crate) fn numbered(
        &self,
        method: &str,
    ) -> Box<dyn Iterator<Item = (u64, &str, &str)> + '_> {
        fn each<K>(shelf: &Shelf<Item<K>>) -> Box<dyn Iterator<Item = (u64, &str, &str)> + '_> {
            let entries = shelf.numbered();
            Box::new(entries.map(|(number, item)| (number, &*item.name, item.json())))
        }
        match method {
            "tools/list" => each(&self.tools),
            "prompts/list" => each(&self.prompts),
            "resources/list" => each(&self.resources),
            "resources/templates/list" => each(&self.templates),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// Whether a request that is no tool call concerns something that is offered here; `params` as they came.
    pub(crate) fn concerns(&self, method: &str, params: Option<&str>) -> bool {
        let value = |name| params.and_then(|params| member(params, name));
        let text = |name| {
            value(name)
                .and_then(Text::of_value)
                .map(|text| text.decode())
        };
        match method {
            "prompts/get" => text("name").is_some_and(|name| self.prompts.find(&name).is_some()),
            "resources/read" => text("uri").is_some_and(|uri| {
                self.resources.find(&uri).is_some() || self.template_of(&uri).is_some()
            }),
            "completion/complete" => {
                value("ref").is_some_and(|reference| self.knows_reference(reference).is_ok())
            }
            _ => method.starts_with("tasks/") && self.has_tasks(),
        }
    }

    /// Whether there is an entry of this name or URI in the list that this method asks for.
    pub(crate) fn lists(&self, method: &str, name: &str) -> bool {
        match method {
            "tools/list" => self.tools.find(name).is_some(),
            "prompts/list" => self.prompts.find(name).is_some(),
            "resources/list" => self.resources.find(name).is_some(),
            "resources/templates/list" => self.templates.find(name).is_some(),
            _ => false,
        }
    }

    /// The input schema of one tool, a raw object.
    #[must_use]
    pub fn input_schema(&self, tool: &str) -> Option<&str> {
        member(self.tools.find(tool)?.1.json(), "inputSchema")
    }

    /// What the server's capabilities have to say of this registry.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        let changing = self.changing;
        let flag = |on: bool, name: &str| match on {
            true => format!(r#""{name}":true"#),
            false => String::new(),
        };
        let mut members = Vec::new();
        if self.has_tools() {
            let inner = flag(changing.tools, "listChanged");
            members.push(format!(r#""tools":{{{inner}}}"#));
        }
        if self.has_resources() {
            let mut inner = flag(self.resource_updates, "subscribe");
            if self.resource_updates && changing.resources {
                inner.push(',');
            }
            inner.push_str(&flag(changing.resources, "listChanged"));
            members.push(format!(r#""resources":{{{inner}}}"#));
        }
        if self.has_prompts() {
            let inner = flag(changing.prompts, "listChanged");
            members.push(format!(r#""prompts":{{{inner}}}"#));
        }
        if self.completions {
            members.push(r#""completions":{}"#.to_owned());
        }
        if self.logging {
            members.push(r#""logging":{}"#.to_owned());
        }
        let legacy = members.join(",");
        if self.has_tasks() {
            members.push(format!(r#""extensions":{{"{TASKS_EXTENSION}":{{}}}}"#));
        }
        Capabilities {
            legacy,
            modern: members.join(","),
            changing,
            resource_updates: self.resource_updates,
            task_updates: self.has_tasks(),
        }
    }

    pub(super) fn has_tools(&self) -> bool {
        !self.tools.is_empty() || self.changing.tools
    }

    pub(super) fn has_resources(&self) -> bool {
        let any = !self.resources.is_empty() || !self.templates.is_empty();
        any || self.changing.resources || self.resource_updates
    }

    pub(super) fn has_prompts(&self) -> bool {
        !self.prompts.is_empty() || self.changing.prompts
    }

    /// Whether some tool may go on as a task.
    pub(super) fn has_tasks(&self) -> bool {
        self.tools
            .iter()
            .any(|tool| tool.kind.tasks != TaskSupport::Never)
    }

    /// The first template that a URI matches.
    pub(super) fn template_of(&self, uri: &str) -> Option<&Arc<str>> {
        let mut names = self.templates.iter().map(|template| &template.name);
        names.find(|name| template::match_template(name, uri).is_some())
    }

    /// Whether a raw `ref` of `completion/complete` names something of ours, and how it does not.
    pub(super) fn knows_reference(&self, reference: &str) -> Result<(), String> {
        let text = |name| Some(Text::of_value(member(reference, name)?)?.decode());
        let kind = text("type").unwrap_or_default();
        match (&*kind, text("name"), text("uri")) {
            ("ref/prompt", Some(name), _) if self.prompts.find(&name).is_some() => Ok(()),
            ("ref/prompt", Some(name), _) => Err(format!("Unknown prompt: {}", Quoted(&name))),
            ("ref/resource", _, Some(uri))
                if self.templates.find(&uri).is_some() || self.resources.find(&uri).is_some() =>
            {
                Ok(())
            }
            ("ref/resource", _, Some(uri)) => {
                Err(format!("Unknown resource template: {}", Quoted(&uri)))
            }
            _ => Err(format!(
                "params.ref must name a prompt or a resource template (found {})",
                Quoted(reference)
            )),
        }
    }
}

/// What goes into the server's capabilities, for [`ServerConfig`](crate::protocol::server::ServerConfig).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Members of `capabilities` of the handshake era, without braces; may be empty.
    pub legacy: String,
    /// The same for 2026-07-28.
    pub modern: String,
    /// Lists that may change.
    pub changing: Changing,
    /// Whether clients may subscribe to resources.
    pub resource_updates: bool,
    /// Whether there are tasks to listen to.
    pub task_updates: bool,
}

fn add<K>(
    shelf: &mut Shelf<Item<K>>,
    what: &'static str,
    item: Item<K>,
) -> Result<(), RegistryError> {
    let added = shelf.add(item.name.clone(), item);
    added.map_err(|item| RegistryError::Duplicate {
        what,
        name: item.name.to_string(),
    })
}

/// Source: RFC 3986 §3.1.
fn has_scheme(uri: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    uri.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(legal)
            && !rest.is_empty()
            && !uri.chars().any(|c| c.is_control() || c == ' ')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: &str = r#"{"type":"object"}"#;

    fn definitions(registry: &Registry) -> Vec<&str> {
        registry.tool_definitions().collect()
    }

    #[test]
    fn definitions_are_given_out_as_they_were_given() {
        let mut registry = Registry::new();
        let tool = Tool::new("b", "say \"b\"", r#" {"type" : "object","x":1.0} "#)
            .title("B")
            .icons(r#"[{"src":"data:,"}]"#)
            .annotations(r#"{"readOnlyHint":true}"#)
            .output_schema(OBJECT)
            .meta(r#"{"k":1e2}"#);
        registry.add_tool(tool).expect("a good tool");
        registry
            .add_tool(Tool::new("a", "", OBJECT))
            .expect("a good tool");
        assert_eq!(
            definitions(&registry),
            [
                concat!(
                    r#"{"name":"b","description":"say \"b\"","inputSchema":{"type" : "object","x":1.0},"#,
                    r#""title":"B","icons":[{"src":"data:,"}],"annotations":{"readOnlyHint":true},"#,
                    r#""outputSchema":{"type":"object"},"_meta":{"k":1e2}}"#
                ),
                r#"{"name":"a","description":"","inputSchema":{"type":"object"}}"#
            ]
        );
        assert_eq!(registry.input_schema("a"), Some(OBJECT));
        assert_eq!(registry.input_schema("c"), None);
    }

    #[test]
    fn what_no_client_would_take_is_refused() {
        let mut registry = Registry::new();
        registry
            .add_tool(Tool::new("a", "", OBJECT))
            .expect("a good tool");
        let long = "x".repeat(129);
        for (tool, wanted) in [
            (Tool::new("a", "", OBJECT), "already a tool called a"),
            (Tool::new("", "", OBJECT), "must be 1 to 128"),
            (Tool::new("a b", "", OBJECT), "(found \"a b\")"),
            (Tool::new(&long, "", OBJECT), "must be 1 to 128"),
            (
                Tool::new("b", "", "{"),
                "inputSchema of b must be a JSON object",
            ),
            (Tool::new("b", "", "[]"), "inputSchema of b must be"),
            (
                Tool::new("b", "", r#"{"type":"string"}"#),
                "an object schema",
            ),
            (
                Tool::new("b", "", r#"{"type":"object"},"x":1"#),
                "inputSchema of b",
            ),
            (
                Tool::new("b", "", OBJECT).icons("{}"),
                "icons of b must be a JSON array",
            ),
            (
                Tool::new("b", "", OBJECT).meta("1"),
                "_meta of b must be a JSON object",
            ),
        ] {
            let error = registry.add_tool(tool).expect_err(wanted).to_string();
            assert!(error.contains(wanted), "{error}");
        }
        assert_eq!(definitions(&registry).len(), 1);
        for uri in ["b", ":b", "a:", "1a:b", "a b:c", "a:b c", "a:\n"] {
            assert!(
                registry.add_resource(Resource::new(uri, "r")).is_err(),
                "{uri}"
            );
        }
        for template in ["a", "a:{", "a:{?q}"] {
            assert!(registry.add_template(Template::new(template, "t")).is_err());
        }
        for name in ["", "a\tb"] {
            assert!(registry.add_prompt(Prompt::new(name, "p")).is_err());
        }
    }

    #[test]
    fn everything_can_be_taken_away_and_put_back() {
        let mut registry = Registry::new();
        registry.add_tool(Tool::new("a", "", OBJECT)).expect("new");
        registry
            .add_resource(Resource::new("a:b", "r").size(7))
            .expect("new");
        registry
            .add_template(Template::new("a:{b}", "t"))
            .expect("new");
        registry.add_prompt(Prompt::new("a", "p")).expect("new");
        for _ in 0..2 {
            let taken = [
                registry.remove_tool("a"),
                registry.remove_resource("a:b"),
                registry.remove_template("a:{b}"),
                registry.remove_prompt("a"),
            ];
            assert!(taken == [true; 4] || taken == [false; 4]);
        }
        assert_eq!(registry.capabilities().legacy, "");
        registry
            .add_tool(Tool::new("a", "", OBJECT))
            .expect("free again");
    }

    #[test]
    fn capabilities_name_what_there_is() {
        let mut registry = Registry::new();
        registry.add_tool(Tool::new("a", "", OBJECT)).expect("new");
        assert_eq!(registry.capabilities().legacy, r#""tools":{}"#);
        assert_eq!(registry.capabilities().modern, r#""tools":{}"#);
        let slow = Tool::new("b", "", OBJECT).tasks(TaskSupport::Optional);
        registry.add_tool(slow).expect("new");
        registry
            .add_template(Template::new("a:{b}", "t"))
            .expect("new");
        registry.declare_resource_updates();
        let found = registry.capabilities();
        assert_eq!(found.legacy, r#""tools":{},"resources":{"subscribe":true}"#);
        assert_eq!(
            found.modern,
            r#""tools":{},"resources":{"subscribe":true},"extensions":{"io.modelcontextprotocol/tasks":{}}"#
        );
    }

    #[test]
    fn the_first_template_that_fits_counts() {
        let mut registry = Registry::new();
        for template in ["a:{x}/c", "a:{+y}"] {
            registry
                .add_template(Template::new(template, "t"))
                .expect("new");
        }
        let found = |uri| registry.template_of(uri).map(|name| &**name);
        assert_eq!(found("a:b/c"), Some("a:{x}/c"));
        assert_eq!(found("a:b/d"), Some("a:{+y}"));
        assert_eq!(found("b:b"), None);
    }

    #[test]
    fn arguments_of_prompts_are_listed() {
        let mut registry = Registry::new();
        let prompt = Prompt::new("p", "d")
            .argument("a", "first", true)
            .argument("b", "second", false);
        registry.add_prompt(prompt.title("P")).expect("new");
        let entry = registry.prompts.find("p").expect("it").1;
        assert_eq!(
            entry.json(),
            concat!(
                r#"{"name":"p","description":"d","title":"P","arguments":["#,
                r#"{"name":"a","description":"first","required":true},"#,
                r#"{"name":"b","description":"second","required":false}]}"#
            )
        );
        assert_eq!(entry.kind.required, ["a"]);
    }
}
