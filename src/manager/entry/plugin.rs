//! From an entry of `pluginTools` to a tool whose answers come from a command.
//!
//! A bad entry costs that tool, as with servers, and issues read the same. The program is found and its
//! environment made by the rules for servers; `${NAME}` works in what concerns the program, not in what
//! clients are shown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value};

use super::fields::{Fields, kind};
use super::rest::whole_millis;
use super::{Issue, enabled, object, stdio};
use crate::codec::scan::{Text, members, validate};
use crate::diagnostic::Level;
use crate::limits::Limits;
use crate::manager::placeholder;
use crate::manager::server_config::StdioTransport;
use crate::protocol::schema::Schema;
use crate::secret::Quoted;

/// The schema of a tool that says nothing usable about its arguments. Source: openclaw-serve §4.
const ANYTHING: &str = r#"{"type":"object","properties":{}}"#;

/// A tool that is a command: its arguments go to the stdin of a program, which prints the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginTool {
    /// What clients call it.
    pub name: String,
    /// What it is for; may be empty.
    pub description: String,
    /// What its arguments are, a raw object schema.
    pub input_schema: String,
    /// The program. It is started for each call.
    pub program: StdioTransport,
    /// How long one call may take; `None` means [`Limits::plugin_timeout`].
    pub timeout: Option<Duration>,
    /// Bytes that one call may print; `None` means [`Limits::plugin_output_bytes_max`].
    pub output_bytes_max: Option<usize>,
    /// Whether arguments are checked against the schema before the program is started.
    pub validate: bool,
}

/// One tool of the configuration, usable or not, offered or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfiguredPlugin {
    /// Its key, byte for byte.
    pub name: String,
    /// Whether it is to be offered: neither `enabled: false` nor `disabled: true`.
    pub enabled: bool,
    /// The tool, or the errors that keep it from being one; never empty then.
    pub outcome: Result<PluginTool, Vec<Issue>>,
    /// What was left out or does not fit.
    pub issues: Vec<Issue>,
}

/// Members of an entry that mean something. The others are told of: the entry is ours, nobody else's.
const KNOWN: [&str; 13] = [
    "args",
    "command",
    "cwd",
    "description",
    "disabled",
    "enabled",
    "env",
    "inheritEnv",
    "inputSchema",
    "maxOutputBytes",
    "timeoutMs",
    "validate",
    "workingDirectory",
];

/// Reads `pluginTools`, in its order. Each pair is a name and its entry as raw JSON; `env` is our own environment.
#[must_use]
pub fn read_plugins(
    map: &[(String, String)],
    env: &BTreeMap<String, String>,
    limits: &Limits,
) -> Vec<ConfiguredPlugin> {
    let mut seen = BTreeSet::new();
    let read = |(name, raw): &(String, String)| {
        if !seen.insert(name.clone()) {
            return refused(name, "the name is there twice; only the first entry counts");
        }
        match object(raw) {
            Ok(entry) => read_plugin(name, raw, entry, env, limits),
            Err(message) => refused(name, message),
        }
    };
    map.iter().map(read).collect()
}

fn refused(name: &str, message: impl Into<String>) -> ConfiguredPlugin {
    let issue = Issue {
        level: Level::Error,
        message: message.into(),
    };
    ConfiguredPlugin {
        name: name.to_owned(),
        enabled: true,
        outcome: Err(vec![issue]),
        issues: Vec::new(),
    }
}

fn read_plugin(
    name: &str,
    raw: &str,
    entry: Map<String, Value>,
    env: &BTreeMap<String, String>,
    limits: &Limits,
) -> ConfiguredPlugin {
    let mut missing = Vec::new();
    let expand = |(key, mut value): (String, Value)| {
        if key != "description" && key != "inputSchema" && KNOWN.contains(&key.as_str()) {
            placeholder::expand(&mut value, &key, env, &mut missing);
        }
        (key, value)
    };
    let entry: Map<String, Value> = entry.into_iter().map(expand).collect();
    let mut fields = Fields::new(&entry);
    for missing in missing {
        let (path, name) = (Quoted(&missing.path), Quoted(&missing.name));
        fields.fail(format!(
            "{path} needs the variable {name}, which is not set or empty"
        ));
    }
    for (key, _) in fields.members() {
        if !KNOWN.contains(&key.as_str()) {
            fields.warn(format!("{} is not known and was ignored", Quoted(key)));
        }
    }
    let enabled = enabled(&mut fields);
    let program = program(&mut fields, env);
    let validates = fields.flag("validate").unwrap_or(false);
    let schema = input_schema(&mut fields, raw);
    if let Some(schema) = schema.as_deref().filter(|_| validates) {
        if let Err(error) = Schema::compile(schema, limits) {
            fields.fail(format!("inputSchema cannot be checked against: {error}"));
        }
    }
    let description = description(&mut fields);
    let timeout = fields.positive("timeoutMs").map(whole_millis);
    let output = fields.whole("maxOutputBytes", 1);
    let tool = program.zip(schema).map(|(program, schema)| PluginTool {
        name: name.to_owned(),
        description,
        input_schema: schema,
        program,
        timeout,
        output_bytes_max: output.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        validate: validates,
    });
    let (errors, issues) = fields.into_issues();
    let outcome = match tool {
        Some(tool) if errors.is_empty() => Ok(tool),
        Some(_) | None => Err(errors),
    };
    ConfiguredPlugin {
        name: name.to_owned(),
        enabled,
        outcome,
        issues,
    }
}

/// `command` alone or with `args`, or an array that begins with the program.
fn program(fields: &mut Fields<'_>, env: &BTreeMap<String, String>) -> Option<StdioTransport> {
    const MUST: &str = "command must be a program, or an array of strings that begins with one";
    let (command, first) = match fields.get("command") {
        None => {
            fields.fail("command is missing: it is the program that answers");
            return None;
        }
        Some(Value::String(text)) => (text.as_str(), Some(Vec::new())),
        Some(Value::Array(items)) => {
            let words: Option<Vec<String>> = items
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect();
            let command = items.first().and_then(Value::as_str).unwrap_or_default();
            (
                command,
                words.map(|words| words[1.min(words.len())..].to_vec()),
            )
        }
        Some(other) => {
            fields.fail(format!("{MUST} (found {})", kind(other)));
            return None;
        }
    };
    let command = command.trim();
    let Some(mut args) = first.filter(|_| !command.is_empty()) else {
        let found = fields.get("command").map_or("nothing", kind);
        fields.fail(format!("{MUST} (found {found})"));
        return None;
    };
    let mut program = stdio::read(fields, command, env)?;
    if args.iter().any(|arg| arg.contains('\0')) {
        fields.fail("command must not hold a NUL byte");
        return None;
    }
    args.append(&mut program.args);
    program.args = args;
    Some(program)
}

/// The schema with its bytes, when it is an object with `type`. Source: openclaw-serve §4.
fn input_schema(fields: &mut Fields<'_>, raw: &str) -> Option<String> {
    let found = members(raw).filter(|(name, _)| name.is("inputSchema"));
    let schema = found.last().map_or("null", |(_, value)| value);
    let kind = members(schema)
        .filter(|(name, _)| name.is("type"))
        .last()
        .map(|(_, value)| value);
    let Some(kind) = kind else {
        if schema != "null" {
            fields.warn("inputSchema must be an object with type and was ignored");
        }
        return Some(ANYTHING.to_owned());
    };
    if !Text::of_value(kind).is_some_and(|kind| kind.is("object")) {
        fields.fail(format!(
            "inputSchema must be of type object (found {})",
            Quoted(kind)
        ));
        return None;
    }
    if validate(schema.as_bytes(), Limits::DEFAULT.json_depth_max).is_err() {
        fields.fail("inputSchema is nested too deeply");
        return None;
    }
    Some(schema.to_owned())
}

/// As it is written: blanks too.
fn description(fields: &mut Fields<'_>) -> String {
    match fields.get("description") {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => {
            fields.ignore("description", "a string", other);
            String::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env() -> BTreeMap<String, String> {
        [
            ("PATH", "/bin"),
            ("HOME", "/home/me"),
            ("KEY", "k"),
            ("SECRET", "s"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    fn read(entries: &[(&str, &str)]) -> Vec<ConfiguredPlugin> {
        let own = |(name, raw): &(&str, &str)| ((*name).to_owned(), (*raw).to_owned());
        let map: Vec<(String, String)> = entries.iter().map(own).collect();
        read_plugins(&map, &env(), &Limits::default())
    }

    #[track_caller]
    fn one(raw: &str) -> ConfiguredPlugin {
        read(&[("t", raw)]).remove(0)
    }

    #[track_caller]
    fn tool(raw: &str) -> PluginTool {
        let read = one(raw);
        assert_eq!(read.issues, [], "{raw}");
        read.outcome.unwrap_or_else(|why| panic!("{raw}: {why:?}"))
    }

    #[test]
    fn an_entry_is_read_whole() {
        let found = tool(
            r#"{"command":["~/bin/x","-a"],"args":["b","${KEY}"],"cwd":"~/w","env":{"A":"${SECRET}"},
                "description":" says ${KEY} ","inputSchema":{"type" : "object","x":1.0},"timeoutMs":1500.5,
                "maxOutputBytes":7,"validate":true}"#,
        );
        assert_eq!(found.program.command, "/home/me/bin/x");
        assert_eq!(found.program.args, ["-a", "b", "k"]);
        let cwd = found.program.cwd.as_deref();
        assert_eq!(cwd, Some(std::path::Path::new("/home/me/w")));
        let names: Vec<&str> = found.program.env.keys().map(String::as_str).collect();
        assert_eq!(names, ["A", "HOME", "PATH"], "and nothing else of ours");
        assert_eq!(found.program.env["A"].expose(), "s");
        assert_eq!(found.description, " says ${KEY} ");
        assert_eq!(found.input_schema, r#"{"type" : "object","x":1.0}"#);
        assert_eq!(found.timeout, Some(Duration::from_millis(1_500)));
        assert_eq!((found.output_bytes_max, found.validate), (Some(7), true));
        assert!(!format!("{found:?}").contains("\"s\""), "{found:?}");
    }

    #[test]
    fn little_is_needed() {
        let found = tool(r#"{"command":"x"}"#);
        assert_eq!(
            (found.program.command.as_str(), found.description.as_str()),
            ("x", "")
        );
        assert_eq!(found.input_schema, ANYTHING);
        assert_eq!((found.timeout, found.output_bytes_max), (None, None));
        assert!(!found.validate);
        for schema in ["{}", "[]", "5", r#"{"properties":{}}"#] {
            let found = one(&format!(r#"{{"command":"x","inputSchema":{schema}}}"#));
            assert_eq!(found.outcome.expect("usable").input_schema, ANYTHING);
            assert_eq!(found.issues.len(), 1, "{schema}");
        }
    }

    #[test]
    fn what_cannot_be_used_says_why() {
        for (raw, wanted) in [
            ("5", "must be an object (found a number)"),
            ("{}", "command is missing"),
            (r#"{"command":7}"#, "command must be a program"),
            (r#"{"command":" "}"#, "(found an empty string)"),
            (r#"{"command":[]}"#, "(found an empty array)"),
            (r#"{"command":["x",1]}"#, "an array of strings"),
            (r#"{"command":["x","\u0000"]}"#, "NUL byte"),
            (r#"{"command":"x","args":"-a"}"#, "args must be an array"),
            (
                r#"{"command":"${NOPE}"}"#,
                "command needs the variable NOPE",
            ),
            (
                r#"{"command":"x","inputSchema":{"type":"string"}}"#,
                "inputSchema must be of type object (found \"string\")",
            ),
            (
                r##"{"command":"x","validate":true,"inputSchema":{"type":"object","$ref":"#/nowhere"}}"##,
                "inputSchema cannot be checked against",
            ),
            (
                r#"{"command":"x","enabled":"no"}"#,
                "enabled must be true or false",
            ),
        ] {
            let why = one(raw).outcome.expect_err(raw);
            assert_eq!(why.len(), 1, "{raw}: {why:?}");
            assert!(why[0].message.contains(wanted), "{raw}: {why:?}");
        }
        let twice = read(&[("t", r#"{"command":"x"}"#), ("t", r#"{"command":"y"}"#)]);
        assert!(twice[0].outcome.is_ok() && twice[1].outcome.is_err());
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let found = one(
            r#"{"command":"x","env":{"LD_PRELOAD":"/x.so","GOOD":1},"timeoutMs":-1,"maxOutputBytes":0,
                "validate":"yes","description":5,"tiemout":1,"disabled":true}"#,
        );
        assert!(!found.enabled);
        let said: Vec<&str> = found
            .issues
            .iter()
            .map(|issue| issue.message.as_str())
            .collect();
        let said = said.join("\n");
        for word in [
            "LD_PRELOAD is blocked",
            "timeoutMs",
            "maxOutputBytes",
            "validate",
            "description",
            "tiemout",
        ] {
            assert!(said.contains(word), "no {word} in {said}");
        }
        let tool = found.outcome.expect("usable");
        assert!(!tool.program.env.contains_key("LD_PRELOAD"));
        assert!(tool.program.env.contains_key("GOOD"));
    }
}
