//! One tool of a server: read, judged and, where a little is missing, repaired.
//!
//! A tool that cannot be used costs nothing but itself. The one repair is to an `inputSchema` that is missing
//! or says nothing of its type: it gains `"type":"object"`, and `"properties":{}` where there are none. Nothing
//! else of the server's object is touched. Source: the command line's contract (`list --json`).

use std::ops::Range;
use std::sync::OnceLock;

use crate::codec::scan::{Text, members};
use crate::crypto::sha256;
use crate::diagnostic::Level;
use crate::limits::Limits;
use crate::link::http_rules::{ParamHeader, ParamKind, param_headers};
use crate::protocol::message::member;
use crate::protocol::schema::{Schema, SchemaError};
use crate::secret::Quoted;

/// What is put in place of a missing schema, and into one without a type.
const TYPE: &str = r#""type":"object""#;
const PROPERTIES: &str = r#""properties":{}"#;

/// A tool that can be called.
pub struct Tool {
    name: Box<str>,
    raw: Box<str>,
    input: Range<usize>,
    output: Option<Range<usize>>,
    headers: Box<[ParamHeader]>,
    mirrored: bool,
    digest: [u8; 32],
    input_check: Check,
    output_check: Check,
}

type Check = OnceLock<Result<Schema, SchemaError>>;

/// Something to be said of one entry of a list of tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// How much it matters.
    pub level: Level,
    /// A word for scripts.
    pub code: &'static str,
    /// The tool's name, when it has one that can be shown.
    pub tool: Option<String>,
    /// One line.
    pub message: String,
}

impl std::fmt::Debug for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tool").field(&self.name).finish()
    }
}

impl Tool {
    /// Reads one entry, a valid raw value. `mirrored`: calls go by Streamable HTTP of 2026-07-28, where
    /// arguments travel in headers too. Spec: 2026-07-28 streamable-http (Custom Headers).
    ///
    /// The second half is what is to be said of it whether it can be used or not.
    #[must_use]
    pub fn read(raw: &str, mirrored: bool, limits: &Limits) -> (Option<Self>, Vec<Remark>) {
        let mut remarks = Vec::new();
        let tool = match Parts::read(raw, limits) {
            Ok(parts) => parts.judge(raw, mirrored, limits, &mut remarks),
            Err(message) => {
                remarks.push(Remark {
                    level: Level::Warning,
                    code: "tool-left-out",
                    tool: None,
                    message: format!("a tool is left out: {message}"),
                });
                None
            }
        };
        (tool, remarks)
    }

    /// The server's own name for it, exactly.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server's object, its `inputSchema` repaired.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// The raw input schema.
    #[must_use]
    pub fn input_schema(&self) -> &str {
        &self.raw[self.input.clone()]
    }

    /// The raw output schema, when it is an object.
    #[must_use]
    pub fn output_schema(&self) -> Option<&str> {
        self.output.clone().map(|range| &self.raw[range])
    }

    /// Arguments that travel in headers too, from clients of Streamable HTTP of 2026-07-28.
    #[must_use]
    pub fn headers(&self) -> &[ParamHeader] {
        &self.headers
    }

    /// The headers of one call to the server, name and unencoded value; none where calls do not go that way. An argument that is absent, `null` or not of its
    /// declared type has none; the server then refuses the call with the reason.
    #[must_use]
    pub fn header_values(&self, arguments_raw: Option<&str>) -> Vec<(Box<str>, Box<str>)> {
        let Some(arguments) = arguments_raw.filter(|_| self.mirrored) else {
            return Vec::new();
        };
        self.headers
            .iter()
            .filter_map(|header| {
                let mut value = arguments;
                for name in &header.path {
                    value = member(value, name)?;
                }
                let value: Box<str> = match header.kind {
                    ParamKind::String => Text::of_value(value)?.decode().into(),
                    ParamKind::Integer => value.parse::<i64>().ok()?.to_string().into(),
                    ParamKind::Boolean => {
                        matches!(value, "true" | "false").then(|| value.into())?
                    }
                };
                Some((header.header.as_str().into(), value))
            })
            .collect()
    }

    /// SHA-256 over description and schemas: what a person agreed to when they allowed the tool.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The compiled input schema; compiled when first asked for.
    ///
    /// # Errors
    /// Why arguments are not checked.
    pub fn input_check(&self, limits: &Limits) -> Result<&Schema, &SchemaError> {
        let compile = || Schema::compile(self.input_schema(), limits);
        self.input_check.get_or_init(compile).as_ref()
    }

    /// The compiled output schema, when there is one; compiled when first asked for.
    ///
    /// # Errors
    /// Why results are not checked.
    pub fn output_check(&self, limits: &Limits) -> Option<Result<&Schema, &SchemaError>> {
        let raw = self.output_schema()?;
        let compile = || Schema::compile(raw, limits);
        Some(self.output_check.get_or_init(compile).as_ref())
    }

    /// What cannot be checked of this tool's calls, one remark for each schema. Compiles both: for a person
    /// who asks, not for a catalog that may never be used.
    #[must_use]
    pub fn unchecked(&self, limits: &Limits) -> Vec<Remark> {
        let checks = [
            ("inputSchema", Some(self.input_check(limits))),
            ("outputSchema", self.output_check(limits)),
        ];
        let why = checks.into_iter().filter_map(|(what, check)| {
            let why = match check? {
                Ok(schema) => schema.note()?.to_owned(),
                Err(error) => format!("{error}; nothing is checked against it"),
            };
            let message = format!("{what} of tool {}: {why}", Quoted(&self.name));
            Some(remark(
                &self.name,
                Level::Warning,
                "schema-unusable",
                message,
            ))
        });
        why.collect()
    }
}

fn remark(tool: &str, level: Level, code: &'static str, message: String) -> Remark {
    Remark {
        level,
        code,
        tool: Some(Quoted(tool).to_string()),
        message,
    }
}

/// The members of an entry that matter here.
struct Parts<'a> {
    name: Box<str>,
    description: Option<&'a str>,
    input: Option<&'a str>,
    output: Option<&'a str>,
    task_only: bool,
}

impl<'a> Parts<'a> {
    fn read(raw: &'a str, limits: &Limits) -> Result<Self, String> {
        if !raw.starts_with('{') {
            return Err(format!("it is no object (found {})", Quoted(raw)));
        }
        let (mut name, mut description, mut input, mut output) = (None, None, None, None);
        let mut task_only = false;
        for (key, value) in members(raw) {
            if key.is("name") {
                name = Some(value);
            } else if key.is("description") {
                description = Some(value);
            } else if key.is("inputSchema") {
                input = Some(value);
            } else if key.is("outputSchema") {
                output = Some(value);
            } else if key.is("execution") {
                let support = member(value, "taskSupport").and_then(Text::of_value);
                task_only = support.is_some_and(|support| support.is("required"));
            }
        }
        let name = match name.map(|raw| (raw, Text::of_value(raw))) {
            None => return Err("it has no name".to_owned()),
            Some((raw, None)) => {
                return Err(format!("its name is no string (found {})", Quoted(raw)));
            }
            Some((_, Some(text))) => text.decode(),
        };
        if name.trim().is_empty() {
            return Err("its name is blank".to_owned());
        }
        if name.len() > limits.tool_name_bytes_max {
            return Err(format!(
                "its name is {} bytes long, limit {}: {}",
                name.len(),
                limits.tool_name_bytes_max,
                Quoted(&name)
            ));
        }
        Ok(Self {
            name: name.into(),
            description,
            input,
            output: output.filter(|raw| *raw != "null"),
            task_only,
        })
    }

    fn judge(
        self,
        raw: &str,
        mirrored: bool,
        limits: &Limits,
        remarks: &mut Vec<Remark>,
    ) -> Option<Tool> {
        let shown = Quoted(&self.name).to_string();
        if self.task_only {
            let message = format!("tool {shown} is left out: it can only be called as a task");
            remarks.push(remark(&self.name, Level::Info, "task-only", message));
            return None;
        }
        let headers = match self.faults(mirrored, limits) {
            Ok(headers) => headers,
            Err(why) => {
                let message = format!("tool {shown} is left out: {why}");
                remarks.push(remark(&self.name, Level::Warning, "tool-left-out", message));
                return None;
            }
        };
        let output = self.output.filter(|schema| {
            let usable = schema.starts_with('{');
            if !usable {
                let message = format!(
                    "outputSchema of tool {shown} is no object (found {}); results are not checked",
                    Quoted(schema)
                );
                remarks.push(remark(
                    &self.name,
                    Level::Warning,
                    "schema-unusable",
                    message,
                ));
            }
            usable
        });
        let (raw, input, repair) = repaired(raw, self.input);
        if let Some(repair) = repair {
            let message = format!("inputSchema of tool {shown} {repair}");
            remarks.push(remark(&self.name, Level::Warning, "tool-repaired", message));
        }
        // The repair never stands before the output schema without moving it: look it up again.
        let output = output.and_then(|_| {
            let found = members(&raw).filter(|(name, _)| name.is("outputSchema"));
            found.last().map(|(_, schema)| range_in(&raw, schema))
        });
        let digest = digest(self.description, &raw[input.clone()], self.output);
        Some(Tool {
            name: self.name,
            raw,
            input,
            output,
            headers,
            mirrored,
            digest,
            input_check: OnceLock::new(),
            output_check: OnceLock::new(),
        })
    }

    /// Why the tool cannot be used, or its headers.
    fn faults(&self, mirrored: bool, limits: &Limits) -> Result<Box<[ParamHeader]>, String> {
        let within = |what: &str, raw: Option<&str>, limit: usize| match raw {
            Some(raw) if raw.len() > limit => Err(format!(
                "{what} too large: {} bytes, limit {limit}",
                raw.len()
            )),
            Some(_) | None => Ok(()),
        };
        // Without its quotes.
        let text = self.description.and_then(|raw| raw.get(1..raw.len() - 1));
        within("description", text, limits.tool_description_bytes_max)?;
        within("inputSchema", self.input, limits.tool_schema_bytes_max)?;
        within("outputSchema", self.output, limits.tool_schema_bytes_max)?;
        if let Some(raw) = self.description {
            if raw != "null" && !raw.starts_with('"') {
                return Err(format!("description is no string (found {})", Quoted(raw)));
            }
        }
        let Some(schema) = self.input else {
            return Ok(Box::default());
        };
        if !schema.starts_with('{') {
            return Err(format!(
                "inputSchema is no object (found {})",
                Quoted(schema)
            ));
        }
        let kind = members(schema).filter(|(name, _)| name.is("type")).last();
        if let Some((_, kind)) = kind {
            if !Text::of_value(kind).is_some_and(|kind| kind.is("object")) {
                let found = Quoted(kind);
                return Err(format!(
                    "inputSchema must be of type object (found {found})"
                ));
            }
        }
        let headers = param_headers(schema, limits.param_headers_max);
        match headers {
            // Elsewhere nothing of this is sent, so nothing of it is wrong.
            Err(_) if !mirrored => Ok(Box::default()),
            headers => headers.map(Vec::into_boxed_slice),
        }
    }
}

/// The object with a usable input schema, where that stands, and what was done to it. `schema` is the value in
/// `raw`, an object, without a type or with the right one.
fn repaired(raw: &str, schema: Option<&str>) -> (Box<str>, Range<usize>, Option<String>) {
    let Some(schema) = schema else {
        let last = raw.len() - 1;
        let comma = if members(raw).next().is_some() {
            ","
        } else {
            ""
        };
        let head = format!("{}{comma}\"inputSchema\":", &raw[..last]);
        let whole = format!("{head}{{{TYPE},{PROPERTIES}}}}}");
        let range = head.len()..whole.len() - 1;
        let what = "was missing: an object without properties is assumed".to_owned();
        return (whole.into(), range, Some(what));
    };
    let range = range_in(raw, schema);
    if member(schema, "type").is_some() {
        return (raw.into(), range, None);
    }
    let mut added = TYPE.to_owned();
    let mut what = String::from("had no type: \"type\":\"object\"");
    if member(schema, "properties").is_none() {
        added.push(',');
        added.push_str(PROPERTIES);
        what.push_str(" and \"properties\":{}");
    }
    what.push_str(" added");
    let comma = if members(schema).next().is_some() {
        ","
    } else {
        ""
    };
    let inside = range.start + 1;
    let whole = format!("{}{added}{comma}{}", &raw[..inside], &raw[inside..]);
    let range = range.start..range.end + added.len() + comma.len();
    (whole.into(), range, Some(what))
}

/// Where `part`, a piece of `whole`, stands in it.
fn range_in(whole: &str, part: &str) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    start..start + part.len()
}

fn digest(description: Option<&str>, input: &str, output: Option<&str>) -> [u8; 32] {
    let mut bytes = Vec::new();
    for part in [description, Some(input), output] {
        let part = part.unwrap_or("");
        bytes.extend_from_slice(part.len().to_string().as_bytes());
        bytes.push(b':');
        bytes.extend_from_slice(part.as_bytes());
    }
    sha256(&bytes)
}

/// The tools of a finished walk: each name once, the first one counts.
#[derive(Debug, Default)]
pub struct ToolSet {
    /// Tools that can be used, in the server's order.
    pub tools: Vec<Tool>,
    /// What is to be said of the others, and of those that were repaired.
    pub remarks: Vec<Remark>,
}

impl ToolSet {
    /// Reads the entries of a walk.
    #[must_use]
    pub fn read(entries: &[Box<str>], mirrored: bool, limits: &Limits) -> Self {
        let mut set = Self::default();
        let mut first: std::collections::BTreeMap<Box<str>, &str> =
            std::collections::BTreeMap::new();
        let mut again = 0;
        for raw in entries {
            let (tool, remarks) = Tool::read(raw, mirrored, limits);
            let name = tool.as_ref().map(|tool| tool.name.clone());
            match name.as_ref().and_then(|name| first.get(name)) {
                Some(same) if *same == &**raw => again += 1,
                Some(_) => {
                    let name = name.unwrap_or_default();
                    let message = format!(
                        "tool {} is left out: there is another one of this name before it",
                        Quoted(&name)
                    );
                    let level = Level::Warning;
                    set.remarks
                        .push(remark(&name, level, "tool-left-out", message));
                }
                None => {
                    set.remarks.extend(remarks);
                    if let (Some(tool), Some(name)) = (tool, name) {
                        first.insert(name, raw);
                        set.tools.push(tool);
                    }
                }
            }
        }
        if again > 0 {
            set.remarks.push(Remark {
                level: Level::Info,
                code: "tools-repeated",
                tool: None,
                message: format!("{again} entries are repetitions of earlier ones"),
            });
        }
        set
    }
}
