//! Definitions in the making: what a program says of a tool, a resource, a template or a prompt.

use std::fmt;
use std::sync::Arc;

use crate::codec::json_text::write_string;
use crate::codec::scan::{Text, validate};
use crate::limits::Limits;
use crate::local::call::{LocalReply, LocalRequest};
use crate::local::in_place::{InPlace, InPlaceCall, TextAnswer};
use crate::local::shelf::Entry;
use crate::protocol::message::member;
use crate::secret::Quoted;

/// Why something cannot be added to a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegistryError {
    /// There is one of this name already.
    Duplicate {
        /// What kind of thing.
        what: &'static str,
        /// Its name or URI.
        name: String,
    },
    /// The name is not one that every client takes.
    Name {
        /// What kind of thing.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A raw member is not JSON, or not of the kind it has to be.
    Member {
        /// Whose member.
        name: String,
        /// Which member.
        member: &'static str,
        /// What it has to be.
        wanted: &'static str,
    },
}

impl fmt::Display for RegistryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate { what, name } => {
                write!(f, "there is already a {what} called {}", Quoted(name))
            }
            Self::Name { what, name } => {
                let (rule, found) = (name_rule(what), Quoted(name));
                write!(f, "the name of a {what} must be {rule} (found \"{found}\")")
            }
            Self::Member {
                name,
                member,
                wanted,
            } => write!(f, "{member} of {} must be {wanted}", Quoted(name)),
        }
    }
}

impl std::error::Error for RegistryError {}

fn name_rule(what: &str) -> &'static str {
    match what {
        "tool" => "1 to 128 of A-Z, a-z, 0-9, '_', '-' and '.'",
        "resource template" => "a URI template of literals and {name}, {+name} or {name*}",
        "resource" => "a URI with a scheme",
        _ => "some text without control characters",
    }
}

/// Whether and when a tool's call may go on as a task. Spec: extension io.modelcontextprotocol/tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskSupport {
    /// Never.
    #[default]
    Never,
    /// When the client takes tasks and the tool wants to.
    Optional,
    /// The tool cannot do without: a client that takes no tasks gets an error.
    Required,
}

/// A closure that answers at once. What takes time is answered by polling instead.
pub(super) struct Handler(Box<dyn FnMut(&LocalRequest) -> LocalReply>);

impl Handler {
    pub(super) fn answer(&mut self, request: &LocalRequest) -> LocalReply {
        (self.0)(request)
    }
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

/// A tool. Spec: 2025-11-25 server/tools (Tool).
pub type Tool = Offer<OfTool>;
/// A resource. Spec: 2025-11-25 server/resources (Resource).
pub type Resource = Offer<OfResource>;
/// A resource template. Spec: 2025-11-25 server/resources (Resource Templates).
pub type Template = Offer<OfTemplate>;
/// A prompt. Spec: 2025-11-25 server/prompts (Prompt).
pub type Prompt = Offer<OfPrompt>;

/// Something to offer to clients: a definition in the making, which is checked when it is added to a
/// [`Registry`](super::Registry). `K` is what only one kind of thing has.
#[derive(Debug)]
#[must_use = "an offer does nothing before it is added to a registry"]
pub struct Offer<K> {
    name: String,
    /// A raw object that is not closed yet.
    json: String,
    fault: Option<RegistryError>,
    handler: Option<Handler>,
    kind: K,
}

/// What only tools have.
#[derive(Debug)]
pub struct OfTool {
    pub(super) tasks: TaskSupport,
    pub(super) in_place: Option<InPlace>,
}

/// What only resources have.
#[derive(Debug)]
pub struct OfResource(());

/// What only templates have.
#[derive(Debug)]
pub struct OfTemplate(());

/// What only prompts have.
#[derive(Debug)]
pub struct OfPrompt {
    /// A raw array that is not closed yet; empty without arguments.
    arguments: String,
    pub(super) required: Vec<String>,
}

impl<K> Offer<K> {
    fn begin(key: &str, name: &str, kind: K) -> Self {
        let mut json = format!(r#"{{"{key}":"#);
        write_string(&mut json, name);
        Self {
            name: name.to_owned(),
            json,
            fault: None,
            handler: None,
            kind,
        }
    }

    /// The name that people see.
    pub fn title(self, title: &str) -> Self {
        self.text("title", title)
    }

    /// Icons: a raw array of icon objects.
    pub fn icons(self, icons: &str) -> Self {
        self.raw("icons", icons, '[')
    }

    /// Hints for the client, of the kind its definition has: a raw object. Prompts have none.
    pub fn annotations(self, annotations: &str) -> Self {
        self.raw("annotations", annotations, '{')
    }

    /// `_meta`: a raw object.
    pub fn meta(self, meta: &str) -> Self {
        self.raw("_meta", meta, '{')
    }

    /// Has a closure answer every request, within the turn in which it comes: for what is known at once.
    /// It cannot start a task. Without it the program is asked.
    pub fn answered_by(
        mut self,
        answer: impl FnMut(&LocalRequest) -> LocalReply + 'static,
    ) -> Self {
        self.handler = Some(Handler(Box::new(answer)));
        self
    }

    fn text(mut self, key: &str, text: &str) -> Self {
        self.json.push_str(&format!(r#","{key}":"#));
        write_string(&mut self.json, text);
        self
    }

    /// A raw member that must be an object or an array, as `opening` says.
    fn raw(mut self, key: &'static str, raw: &str, opening: char) -> Self {
        let raw = raw.trim();
        let is_json = validate(raw.as_bytes(), Limits::DEFAULT.json_depth_max).is_ok();
        if !is_json || !raw.starts_with(opening) {
            let wanted = if opening == '[' {
                "a JSON array"
            } else {
                "a JSON object"
            };
            self.wrong(key, wanted);
        }
        self.json.push_str(&format!(r#","{key}":{raw}"#));
        self
    }

    fn wrong(&mut self, member: &'static str, wanted: &'static str) {
        let name = self.name.clone();
        self.fault.get_or_insert(RegistryError::Member {
            name,
            member,
            wanted,
        });
    }

    /// Checks the name by `legal`, and everything that was said.
    pub(super) fn finish(
        mut self,
        what: &'static str,
        legal: impl Fn(&str) -> bool,
    ) -> Result<Item<K>, RegistryError> {
        if !legal(&self.name) {
            let name = self.name;
            return Err(RegistryError::Name { what, name });
        }
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        self.json.push('}');
        Ok(Item {
            name: self.name.into(),
            json: self.json,
            handler: self.handler,
            kind: self.kind,
        })
    }
}

impl Tool {
    /// A tool; `input_schema` is a raw object schema of arguments. It is not checked against: that is the
    /// tool's business.
    pub fn new(name: &str, description: &str, input_schema: &str) -> Self {
        let kind = OfTool {
            tasks: TaskSupport::Never,
            in_place: None,
        };
        let mut tool = Self::begin("name", name, kind)
            .text("description", description)
            .raw("inputSchema", input_schema, '{');
        let kind = member(input_schema, "type").and_then(Text::of_value);
        if !kind.is_some_and(|kind| kind.is("object")) {
            tool.wrong("inputSchema", "an object schema, \"type\":\"object\"");
        }
        tool
    }

    /// The schema of `structuredContent`: a raw object.
    pub fn output_schema(self, schema: &str) -> Self {
        self.raw("outputSchema", schema, '{')
    }

    /// Has a closure write the answer of every call where it leaves from, see [`InPlaceCall`]. It goes before
    /// [`answered_by`](Self::answered_by), and what a client brings back of an earlier round is not read.
    pub fn answered_in_place(
        mut self,
        answer: impl FnMut(InPlaceCall<'_>, &mut TextAnswer<'_>) + 'static,
    ) -> Self {
        self.kind.in_place = Some(InPlace::new(answer));
        self
    }

    /// Has a closure answer every call with anything, from the raw object of arguments, within the turn in which
    /// the call comes. What it gives is [coerced](LocalReply::coerced): JSON of any kind, or plain text. An error
    /// is a result that says so.
    ///
    /// ```
    /// use drawspan::local::{Registry, RegistryError, Tool};
    /// use drawspan::protocol::message::member;
    ///
    /// # fn main() -> Result<(), RegistryError> {
    /// let count = Tool::new("count", "counts what it was given", r#"{"type":"object"}"#)
    ///     .answered_with(|arguments| match member(arguments, "text") {
    ///         Some(text) => Ok(format!(r#"{{"bytes":{}}}"#, text.len() - 2)),
    ///         None => Err("text is missing".to_owned()),
    ///     });
    /// let mut registry = Registry::new();
    /// registry.add_tool(count)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn answered_with(
        self,
        mut answer: impl FnMut(&str) -> Result<String, String> + 'static,
    ) -> Self {
        self.answered_by(move |request| match answer(request.kind.arguments()) {
            Ok(given) => LocalReply::coerced(given.as_bytes()),
            Err(why) => LocalReply::failed(&format!("Tool error: {why}")),
        })
    }

    /// Whether a call may go on as a task.
    pub const fn tasks(mut self, tasks: TaskSupport) -> Self {
        self.kind.tasks = tasks;
        self
    }
}

impl Resource {
    /// A resource.
    pub fn new(uri: &str, name: &str) -> Self {
        Self::begin("uri", uri, OfResource(())).text("name", name)
    }

    /// What it is.
    pub fn description(self, description: &str) -> Self {
        self.text("description", description)
    }

    /// Its media type.
    pub fn mime_type(self, mime_type: &str) -> Self {
        self.text("mimeType", mime_type)
    }

    /// Its length in bytes.
    pub fn size(mut self, bytes: u64) -> Self {
        self.json.push_str(&format!(r#","size":{bytes}"#));
        self
    }
}

impl Template {
    /// Every resource whose URI matches; see [`match_template`](super::match_template) for the grammar.
    pub fn new(uri_template: &str, name: &str) -> Self {
        Self::begin("uriTemplate", uri_template, OfTemplate(())).text("name", name)
    }

    /// What they are.
    pub fn description(self, description: &str) -> Self {
        self.text("description", description)
    }

    /// Their media type.
    pub fn mime_type(self, mime_type: &str) -> Self {
        self.text("mimeType", mime_type)
    }
}

impl Prompt {
    /// A prompt without arguments.
    pub fn new(name: &str, description: &str) -> Self {
        let kind = OfPrompt {
            arguments: String::new(),
            required: Vec::new(),
        };
        Self::begin("name", name, kind).text("description", description)
    }

    /// One more argument. A request without a required one is refused before the program sees it.
    pub fn argument(mut self, name: &str, description: &str, required: bool) -> Self {
        let json = &mut self.kind.arguments;
        json.push_str(if json.is_empty() { "[" } else { "," });
        json.push_str(r#"{"name":"#);
        write_string(json, name);
        json.push_str(r#","description":"#);
        write_string(json, description);
        json.push_str(&format!(r#","required":{required}}}"#));
        if required {
            self.kind.required.push(name.to_owned());
        }
        self
    }

    /// Writes the arguments: nothing comes after it.
    pub(super) fn close_arguments(mut self) -> Self {
        let mut arguments = std::mem::take(&mut self.kind.arguments);
        if arguments.is_empty() {
            return self;
        }
        arguments.push(']');
        self.raw("arguments", &arguments, '[')
    }
}

/// A checked definition.
#[derive(Debug)]
pub(super) struct Item<K> {
    pub(super) name: Arc<str>,
    json: String,
    pub(super) handler: Option<Handler>,
    pub(super) kind: K,
}

impl<K> Entry for Item<K> {
    fn json(&self) -> &str {
        &self.json
    }
}
