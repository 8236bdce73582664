//! OpenClaw 2026.6.11 as an MCP client, function by function: 536 pairs of input and output taken from it
//! (`protocol-fixtures/openclaw-client/cases.json`).
//!
//! Each function has one reader here. What we do otherwise is in [`CHANGED`] with the reason, and such a case
//! fails when it stops being different. What belongs to other parts of the program is in [`ELSEWHERE`],
//! with the number of its cases, so that none is passed over unnoticed.

use std::collections::{BTreeMap, BTreeSet};

use drawspan::limits::Limits;
use drawspan::manager::entry::{
    Configured, fold_aliases, http_kind, is_literal, literal_secrets, read_servers,
};
use drawspan::manager::server_config::{ServerConfig, ToolFilter, Transport};
use drawspan::manager::{environment, filter, naming, placeholder};
use drawspan::secret::{is_secret_name, is_secret_parameter, mask_text, mask_url};
use serde_json::{Map, Value, json};

/// Functions whose cases are not about configuration, names or redaction: function, cases, who treats it.
const ELSEWHERE: &[(&str, usize, &str)] = &[
    (
        "absolutizeBundleMcpServer",
        5,
        "plugin bundles are OpenClaw's own; nothing here reads them",
    ),
    (
        "toCliBundleMcpServerConfig",
        5,
        "writes entries for other agents; nothing here does",
    ),
    (
        "withoutMcpAuthorizationHeader",
        4,
        "part of signing in by OAuth",
    ),
    ("buildOAuthClientMetadata", 2, "part of signing in by OAuth"),
    ("oauthStorePath(basename)", 2, "part of signing in by OAuth"),
    (
        "sanitizeMcpMetadataText",
        7,
        "descriptions pass unchanged: design",
    ),
    (
        "summarizeServerCapabilities",
        4,
        "capabilities stay raw: protocol/client",
    ),
    (
        "isMcpMethodNotFoundError",
        5,
        "errors keep their code: protocol/client, no guess from text",
    ),
    (
        "mcpContentBlockToToolResult",
        12,
        "results pass unchanged: design",
    ),
    ("toAgentToolResult", 8, "results pass unchanged: design"),
    (
        "optionalStringRecordArg",
        6,
        "resources and prompts are served as such, not as tools",
    ),
    (
        "createBundleMcpJsonSchemaValidator",
        20,
        "schema checks have tests of their own",
    ),
    (
        "validateToolArguments(normalizeToolParameterSchema)",
        17,
        "arguments are checked and never coerced: design",
    ),
    (
        "normalizeToolParameterSchema",
        11,
        "schemas pass unchanged: design",
    ),
    (
        "ssrfGuard",
        17,
        "addresses are judged where they are dialled, after the name is resolved",
    ),
    #[cfg(not(feature = "cli"))]
    (
        "resolveSessionMcpRuntimeIdleTtlMs",
        9,
        "files are read with the feature cli",
    ),
    #[cfg(not(feature = "cli"))]
    (
        "extractMcpServerMap",
        8,
        "files are read with the feature cli",
    ),
    #[cfg(not(feature = "cli"))]
    (
        "configSchema(mcp)",
        7,
        "files are read with the feature cli",
    ),
];

#[test]
fn every_case_is_kept_changed_on_purpose_or_treated_elsewhere() {
    let text = include_str!("../protocol-fixtures/openclaw-client/cases.json");
    let cases: Vec<Value> = serde_json::from_str(text).expect("the fixture is JSON");
    assert_eq!(cases.len(), 536);
    let mut elsewhere: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut kept, mut used, mut wrong) = (0, BTreeSet::new(), Vec::new());
    for case in &cases {
        let function = case["function"].as_str().expect("a name");
        let (input, output) = (&case["input"], &case["output"]);
        let Some(ours) = ours(function, input, output) else {
            *elsewhere.entry(function).or_default() += 1;
            continue;
        };
        let theirs = theirs(function, output);
        let row = CHANGED.iter().position(|row| {
            let wanted = json_of(row.1);
            row.0 == function && (wanted == *input || input.get("note") == Some(&wanted))
        });
        let Some(row) = row else {
            if ours == theirs {
                kept += 1;
            } else {
                wrong.push(format!("{function} {input}: {ours}, not {theirs}"));
            }
            continue;
        };
        used.insert(row);
        let expected = patched(&theirs, &json_of(CHANGED[row].2));
        if ours == theirs {
            wrong.push(format!(
                "{function} {input} is as it was, not: {}",
                CHANGED[row].3
            ));
        } else if ours != expected {
            wrong.push(format!("{function} {input}: {ours}, not {expected}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let rows: BTreeMap<&str, usize> = ELSEWHERE.iter().map(|row| (row.0, row.1)).collect();
    assert_eq!(elsewhere, rows);
    let changed =
        (0..CHANGED.len()).filter(|row| !ELSEWHERE.iter().any(|e| e.0 == CHANGED[*row].0));
    assert_eq!(used, changed.collect(), "rows of CHANGED that no case has");
    let total = kept + used.len() + elsewhere.values().sum::<usize>();
    assert_eq!(total, 536, "{kept} kept, {} changed", used.len());
    assert_eq!(used.len(), CHANGED_CASES, "{kept} kept");
}

/// An object with some members replaced; anything else as a whole.
fn patched(theirs: &Value, ours: &Value) -> Value {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            let mut out = theirs.clone();
            out.extend(ours.clone());
            Value::Object(out)
        }
        (_, ours) => ours.clone(),
    }
}

/// What our code gives for one case, in the shape of [`theirs`]; `None` when it is treated elsewhere.
fn ours(function: &str, input: &Value, output: &Value) -> Option<Value> {
    Some(match function {
        "sanitizeServerName" => server_names(input),
        "sanitizeToolName" => json!(naming::safe_tool_name(text(input))),
        "buildSafeToolName" => {
            let reserved = naming::reserved_names(texts(&input["reservedNames"]));
            let (server, tool) = (text(&input["serverName"]), text(&input["toolName"]));
            json!(naming::shown_tool_name(server, tool, |name| reserved.contains(name)))
        }
        "normalizeReservedToolNames" => json!(naming::reserved_names(texts(input))),
        "canonicalizeConfiguredMcpServer" => {
            let mut members = input.as_object().expect("an entry").clone();
            fold_aliases(&mut members);
            Value::Object(members)
        }
        "resolveOpenClawMcpTransportAlias" => match input.as_str().and_then(http_kind) {
            Some(kind) => json!(kind.as_str()),
            None => Value::Null,
        },
        "normalizeConfiguredMcpServers" => usable(&members(input)),
        "resolveMcpTransportConfig" => resolved(input),
        "getCatalogListTimeoutMs" => {
            let mut entry = input["server"].as_object().expect("an entry").clone();
            entry.insert("command".to_owned(), json!("x"));
            let config = read_one("srv", &entry.into()).outcome.expect("usable");
            json!(config.times.list.as_millis())
        }
        "isDangerousMcpStdioEnvVarName" => json!(environment::is_blocked(text(input))),
        "toMcpEnvRecord" => env_record(input),
        "toMcpStringArray" => {
            let config = read_one("srv", &json!({"command": "x", "args": input})).outcome;
            match config.map(|config| config.transport) {
                Ok(Transport::Stdio(stdio)) => json!(stdio.args),
                Ok(Transport::Http(_) | Transport::Unix { .. }) | Err(_) => json!("refused"),
            }
        }
        "createCatalogFingerprint" => match input.get("b") {
            None => json!(fingerprints(input)),
            Some(b) => json!(fingerprints(&input["a"]) == fingerprints(b)),
        },
        "resolveSessionMcpConfigSummary" => {
            let servers = &input["mcp"]["servers"];
            json!(
                usable(&members(servers))
                    .as_object()
                    .expect("a map")
                    .keys()
                    .collect::<Vec<_>>()
            )
        }
        "globMatches" => json!(filter::matches(
            text(&input["pattern"]),
            text(&input["value"])
        )),
        "shouldExposeMcpTool" => {
            let list = |name: &str| {
                texts(&input["selection"][name])
                    .map(str::to_owned)
                    .collect()
            };
            let (include, exclude) = (list("include"), list("exclude"));
            json!(ToolFilter { include, exclude }.shows(text(&input["tool"])))
        }
        "getMcpToolSelection" => {
            let entry = json!({"command": "x", "toolFilter": input.get("toolFilter")});
            read_one("srv", &entry)
                .outcome
                .map_or(json!("refused"), |c| selection(&c))
        }
        "serverAllowsUtilityTool" => {
            let entry = json!({"command": "x", "toolFilter": input["toolFilter"]});
            let config = read_one("srv", &entry).outcome.expect("usable");
            json!(config.filter.shows(text(&input["operation"])))
        }
        "redactSensitiveUrl" => json!(mask_url(text(input))),
        "redactSensitiveUrlLikeString" => json!(mask_text(text(input))),
        "isSensitiveUrlQueryParamName" => json!(is_secret_parameter(text(input))),
        "resolveConfigEnvVars(throwing)" | "resolveConfigEnvVars(onMissing)" => {
            placeholders(input, output)
        }
        "configSchema(mcp.servers.<name>)" => schema(input, output),
        "doctor.hasSensitiveKey" => {
            let entry = json!({"headers": {text(input): "hunter2"}}).to_string();
            let advised = !literal_secrets(&entry).is_empty();
            assert_eq!(advised, is_secret_name(text(input)));
            json!(advised)
        }
        "doctor.hasLiteralSensitiveValue" => json!(is_literal(input)),
        "cli.parseCsvList" => match filter::listed(text(input)) {
            list if list.is_empty() => Value::Null,
            list => json!(list),
        },
        "blockedEnvKeys(full list)" => blocked_names(output),
        #[cfg(feature = "cli")]
        other => return files::ours(other, input),
        #[cfg(not(feature = "cli"))]
        _ => return None,
    })
}

/// What of an output is compared: the whole of it, without texts that are prose and digests.
fn theirs(function: &str, output: &Value) -> Value {
    match function {
        "resolveMcpTransportConfig" => output["resolved"].clone(),
        "createCatalogFingerprint" => output.get("equal").cloned().unwrap_or(json!({})),
        "resolveSessionMcpConfigSummary" => output["serverNames"].clone(),
        "configSchema(mcp.servers.<name>)" | "configSchema(mcp)" => {
            json!(output.get("ok").and_then(Value::as_bool).unwrap_or(false))
        }
        "resolveConfigEnvVars(throwing)" => output.get("ok").cloned().unwrap_or(json!("missing")),
        "blockedEnvKeys(full list)" => json!(true),
        // No record and an empty one are the same to a child.
        "toMcpEnvRecord" if output["record"].is_null() => patched(output, &json!({"record": {}})),
        _ => output.clone(),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().map(text)
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn read_one(key: &str, entry: &Value) -> Configured {
    let map = [(key.to_owned(), entry.to_string())];
    let mut read = read_servers(&map, &BTreeMap::new(), &Limits::DEFAULT);
    read.pop().expect("one in, one out")
}

fn members(map: &Value) -> Vec<(String, Value)> {
    let members = map.as_object().cloned().unwrap_or_default();
    members.into_iter().collect()
}

/// The entries that would be started.
fn usable(entries: &[(String, Value)]) -> Value {
    let started = entries.iter().filter(|(key, entry)| {
        let read = read_one(key, entry);
        read.enabled && read.outcome.is_ok()
    });
    Value::Object(started.cloned().collect())
}

fn server_names(input: &Value) -> Value {
    let mut taken = BTreeSet::new();
    let names = texts(&input["names"]).map(|key| {
        let name = naming::safe_server_name(key, |name| taken.contains(name));
        taken.insert(name.to_ascii_lowercase());
        name
    });
    names.collect()
}

/// A record in the shape of OpenClaw's.
fn resolved(input: &Value) -> Value {
    let read = read_one(text(&input["serverName"]), &input["server"]);
    let Ok(config) = read.outcome else {
        return Value::Null;
    };
    let mut out = Map::new();
    let mut put = |name: &str, value: Value| {
        if !value.is_null() {
            out.insert(name.to_owned(), value);
        }
    };
    put("description", json!(config.launch));
    put(
        "connectionTimeoutMs",
        json!(config.times.connect.as_millis()),
    );
    put("requestTimeoutMs", json!(config.times.request.as_millis()));
    put("supportsParallelToolCalls", json!(config.parallel));
    match &config.transport {
        Transport::Stdio(stdio) => {
            let given = |name: &str| input["server"].get(name);
            put("kind", json!("stdio"));
            put("transportType", json!("stdio"));
            put("command", json!(stdio.command));
            put(
                "args",
                given("args").map_or(Value::Null, |_| json!(stdio.args)),
            );
            let env: BTreeMap<&String, &String> = stdio
                .env
                .iter()
                .map(|(name, value)| (name, value.expose()))
                .collect();
            let env_given = given("env").is_some_and(Value::is_object);
            put("env", if env_given { json!(env) } else { Value::Null });
            put("cwd", json!(stdio.cwd));
        }
        Transport::Http(http) => {
            put("kind", json!("http"));
            put("transportType", json!(http.kind.as_str()));
            put("url", json!(http.text.expose()));
            let headers: BTreeMap<&String, &String> = http
                .headers
                .iter()
                .map(|(name, value)| (name, value.expose()))
                .collect();
            put(
                "headers",
                if headers.is_empty() {
                    Value::Null
                } else {
                    json!(headers)
                },
            );
            if http.tls.insecure {
                put("sslVerify", json!(false));
            }
            if let Some((cert, key)) = &http.tls.client {
                put("clientCert", json!(cert));
                put("clientKey", json!(key));
            }
            if let Some(oauth) = &http.oauth {
                put("auth", json!("oauth"));
                put("oauth", json!({"scope": oauth.scope}));
            }
        }
        Transport::Unix { path } => put("unix", json!(path)),
    }
    Value::Object(out)
}

fn env_record(input: &Value) -> Value {
    let read = read_one("srv", &json!({"command": "x", "env": input}));
    let dropped: Vec<&str> = read
        .issues
        .iter()
        .filter_map(|issue| issue.message.strip_prefix("env.")?.split(' ').next())
        .collect();
    let config = read.outcome.expect("usable");
    let Transport::Stdio(stdio) = config.transport else {
        panic!("a command is a program");
    };
    let record: Map<String, Value> = stdio
        .env
        .into_iter()
        .map(|(name, value)| (name, json!(value.expose())))
        .collect();
    json!({"record": record, "dropped": dropped})
}

fn fingerprints(map: &Value) -> BTreeMap<String, String> {
    let read = members(map).into_iter().map(|(key, entry)| {
        let print = read_one(&key, &entry)
            .outcome
            .map_or(String::new(), |c| c.fingerprint);
        (key, print)
    });
    read.filter(|(_, print)| !print.is_empty()).collect()
}

fn selection(config: &ServerConfig) -> Value {
    let mut out = Map::new();
    for (name, list) in [
        ("include", &config.filter.include),
        ("exclude", &config.filter.exclude),
    ] {
        if !list.is_empty() {
            out.insert(name.to_owned(), json!(list));
        }
    }
    out.into()
}

fn placeholders(input: &Value, output: &Value) -> Value {
    let env = input["env"].as_object().expect("a map").iter();
    let env = env
        .map(|(name, value)| (name.clone(), text(value).to_owned()))
        .collect();
    let mut value = input["value"].clone();
    let mut missing = Vec::new();
    placeholder::expand(&mut value, "", &env, &mut missing);
    let missing = missing.into_iter();
    let missing: Vec<Value> = missing
        .map(|m| json!({"varName": m.name, "configPath": m.path}))
        .collect();
    match output.get("missing") {
        Some(_) => json!({"value": value, "missing": missing}),
        None if missing.is_empty() => value,
        None => json!("missing"),
    }
}

/// Whether an entry passes. OpenClaw has two layers, validation and reading; we have one. Where validation
/// finds fault, our issue must name the same member.
fn schema(input: &Value, output: &Value) -> Value {
    let read = read_one("srv", input);
    let errors = read.outcome.err().unwrap_or_default();
    let issues: Vec<&str> = errors
        .iter()
        .chain(&read.issues)
        .map(|issue| issue.message.as_str())
        .collect();
    let faults = output.get("issues").and_then(Value::as_array);
    for fault in faults.into_iter().flatten() {
        let member = text(&fault["path"]).trim_start_matches("mcp.servers.srv.");
        let top = member.split('.').next().unwrap_or("");
        let named = issues.iter().any(|issue| issue.contains(top));
        assert!(
            named || issues.is_empty(),
            "{input}: {issues:?} do not name {top}"
        );
    }
    json!(issues.is_empty())
}

fn blocked_names(output: &Value) -> Value {
    let prefixes: Vec<&str> = texts(&output["blockedPrefixes"]).collect();
    let names: Vec<&str> = texts(&output["blocked"])
        .filter(|name| !prefixes.contains(name))
        .collect();
    assert_eq!(names, environment::BLOCKED);
    let ours: BTreeSet<&str> = environment::BLOCKED_PREFIXES.into();
    assert_eq!(prefixes.into_iter().collect::<BTreeSet<_>>(), ours);
    for name in texts(&output["listedButAllowed"]) {
        assert!(!environment::is_blocked(name), "{name}");
    }
    json!(true)
}

/// What reads files is part of the command line.
#[cfg(feature = "cli")]
mod files {
    use drawspan::config::{Config, ServerMap};
    use drawspan::limits::Limits;
    use serde_json::{Value, json};

    fn servers(document: &Value) -> Option<ServerMap> {
        Some(Config::parse(&document.to_string()).ok()?.servers)
    }

    pub(super) fn ours(function: &str, input: &Value) -> Option<Value> {
        Some(match function {
            "resolveSessionMcpRuntimeIdleTtlMs" => {
                let ttl = servers(input).expect("an object").runtime_idle_ttl;
                match ttl {
                    None => json!(Limits::DEFAULT.runtime_idle_ttl.as_millis()),
                    Some(None) => json!(0),
                    Some(Some(ttl)) => json!(ttl.as_millis()),
                }
            }
            "extractMcpServerMap" => match servers(input) {
                Some(map) => {
                    let map = map.servers.into_iter();
                    let map = map.map(|(key, raw)| (key, super::json_of(&raw)));
                    Value::Object(map.collect())
                }
                None => json!("refused"),
            },
            "configSchema(mcp)" => {
                let map = servers(&json!({"mcp": input})).expect("an object");
                json!(map.notes.is_empty())
            }
            _ => return None,
        })
    }
}

const AUTO: &str = "without `transport` the newer transport is tried first: cli-json, design";
const LIST: &str = "1.5 s is too little for a big list: cli-json (listTimeoutMs)";
const PRINT: &str = "SHA-256 of the resolved record of one server: design";
const FILTER: &str = "with a filter that cannot be read more would be shown than was wanted";
const LAYER: &str = "OpenClaw skips the entry in its second layer; we have one";
const CODEX: &str = "settings of another program: kept, not judged";

/// How many rows of [`CHANGED`] have cases here.
const CHANGED_CASES: usize = if cfg!(feature = "cli") { 49 } else { 45 };

/// Function; its input, or the note in it; what we give instead, of an object the members that differ; why.
const CHANGED: &[(&str, &str, &str, &str)] = &[
    (
        "resolveMcpTransportConfig",
        r#""blank command with url""#,
        r#"{"transportType":"auto"}"#,
        AUTO,
    ),
    (
        "resolveMcpTransportConfig",
        r#""url defaults to sse""#,
        r#"{"transportType":"auto"}"#,
        AUTO,
    ),
    (
        "resolveMcpTransportConfig",
        r#""type stdio with url only""#,
        r#"{"transportType":"auto"}"#,
        AUTO,
    ),
    (
        "resolveMcpTransportConfig",
        r#""unknown type with url""#,
        r#"{"transportType":"auto"}"#,
        AUTO,
    ),
    (
        "resolveMcpTransportConfig",
        r#""url trimmed""#,
        r#"{"transportType":"auto"}"#,
        AUTO,
    ),
    (
        "resolveMcpTransportConfig",
        r#""headers coerced""#,
        r#"{"transportType":"auto"}"#,
        AUTO,
    ),
    (
        "resolveMcpTransportConfig",
        r#""headers malformed""#,
        r#"{"transportType":"auto"}"#,
        AUTO,
    ),
    (
        "resolveMcpTransportConfig",
        r#""headers null""#,
        r#"{"transportType":"auto"}"#,
        AUTO,
    ),
    (
        "resolveMcpTransportConfig",
        r#""headers empty""#,
        r#"{"transportType":"auto"}"#,
        AUTO,
    ),
    (
        "resolveMcpTransportConfig",
        r#""oauth other value ignored""#,
        r#"{"transportType":"auto"}"#,
        AUTO,
    ),
    (
        "resolveMcpTransportConfig",
        r#""tls""#,
        r#"{"transportType":"auto"}"#,
        AUTO,
    ),
    (
        "resolveMcpTransportConfig",
        r#""tls snake""#,
        r#"{"transportType":"auto"}"#,
        AUTO,
    ),
    (
        "resolveMcpTransportConfig",
        r#""transport http is not an alias""#,
        r#"{"kind":"http","transportType":"streamable-http","url":"https://e.example/mcp","description":"https://e.example/mcp","connectionTimeoutMs":30000,"requestTimeoutMs":60000,"supportsParallelToolCalls":false}"#,
        "people write it, and it can mean nothing else",
    ),
    (
        "resolveMcpTransportConfig",
        r#""sub-ms floors to 0""#,
        r#"{"requestTimeoutMs":1}"#,
        "a limit of 0 ms would fail every request",
    ),
    (
        "resolveMcpTransportConfig",
        r#""url with userinfo""#,
        r#"null"#,
        "refused with advice: it belongs into a header, and OpenClaw's own requests fail on it",
    ),
    (
        "resolveMcpTransportConfig",
        r#""args with secret are shown""#,
        r#"{"description":"npx -y srv --api-key *** (cwd=/srv/x)"}"#,
        "a secret in an argument must not reach a log or a model",
    ),
    (
        "resolveMcpTransportConfig",
        r#""args not array""#,
        r#"null"#,
        "refused with advice: the program would start without what it was to be told",
    ),
    (
        "getCatalogListTimeoutMs",
        r#"{"server":{},"requestTimeoutMs":60000}"#,
        r#"10000"#,
        LIST,
    ),
    (
        "getCatalogListTimeoutMs",
        r#"{"server":{"requestTimeoutMs":900},"requestTimeoutMs":900}"#,
        r#"10000"#,
        "a short limit for calls is none for lists",
    ),
    (
        "getCatalogListTimeoutMs",
        r#"{"server":{"timeout":"20"},"requestTimeoutMs":60000}"#,
        r#"10000"#,
        LIST,
    ),
    (
        "getCatalogListTimeoutMs",
        r#"{"server":{"timeout":0},"requestTimeoutMs":60000}"#,
        r#"10000"#,
        LIST,
    ),
    (
        "toMcpEnvRecord",
        r#"{"":"v"}"#,
        r#"{"record":{},"dropped":[""]}"#,
        "no process can have such a variable",
    ),
    (
        "toMcpStringArray",
        r#""a""#,
        r#""refused""#,
        "refused with advice, as above",
    ),
    (
        "toMcpStringArray",
        r#"null"#,
        r#"[]"#,
        "no list and an empty one start the same program",
    ),
    (
        "createCatalogFingerprint",
        r#""server order matters""#,
        r#"true"#,
        PRINT,
    ),
    (
        "createCatalogFingerprint",
        r#""field order matters""#,
        r#"true"#,
        PRINT,
    ),
    (
        "createCatalogFingerprint",
        r#""alias spelling matters""#,
        r#"true"#,
        PRINT,
    ),
    (
        "createCatalogFingerprint",
        r#""explicit default matters""#,
        r#"true"#,
        PRINT,
    ),
    (
        "resolveSessionMcpConfigSummary",
        r#"{"mcp":{"servers":{"z":"bad","a":{"command":"a"},"B":{"command":"b"}}}}"#,
        r#"["B","a"]"#,
        "names are sorted by bytes",
    ),
    (
        "getMcpToolSelection",
        r#"{"toolFilter":{"include":["a",1,"b"],"exclude":[]}}"#,
        r#""refused""#,
        FILTER,
    ),
    (
        "getMcpToolSelection",
        r#"{"toolFilter":["a"]}"#,
        r#""refused""#,
        FILTER,
    ),
    (
        "getMcpToolSelection",
        r#"{"toolFilter":{"include":"a"}}"#,
        r#""refused""#,
        FILTER,
    ),
    (
        "redactSensitiveUrl",
        r#""https://e.example/?tok%65n=abc""#,
        r#""https://e.example/?tok%65n=***""#,
        "what is no secret stays byte for byte",
    ),
    (
        "redactSensitiveUrlLikeString",
        r#""Error: connect failed https://u:p@e.example/mcp?token=abc&x=1""#,
        r#""Error: connect failed https://***:***@e.example/mcp?token=***&x=1""#,
        "OpenClaw takes the text for a URL with the scheme `error` and leaves the password",
    ),
    (
        "redactSensitiveUrlLikeString",
        r#""fetch https://e.example/?key=abc failed""#,
        r#""fetch https://e.example/?key=*** failed""#,
        "the prose behind a secret is no secret",
    ),
    (
        "redactSensitiveUrlLikeString",
        r#""Authorization: Bearer abc""#,
        r#""Authorization: Bearer ***""#,
        "a bearer token is a secret",
    ),
    (
        "redactSensitiveUrlLikeString",
        r#""Error: Streamable HTTP error: Error POSTing to endpoint: {\"token\":\"abc\"}""#,
        r#""Error: Streamable HTTP error: Error POSTing to endpoint: {\"token\":\"***\"}""#,
        "a token in a body is a secret",
    ),
    (
        "extractMcpServerMap",
        r#"{"mcpServers":{"a":"bad","b":{"url":"https://e.example"}}}"#,
        r#"{"a":"bad"}"#,
        "the entry is kept, so that its owner is told",
    ),
    (
        "extractMcpServerMap",
        r#"[1]"#,
        r#""refused""#,
        "a file that is no object is an error with a name, not an empty map",
    ),
    (
        "extractMcpServerMap",
        r#""x""#,
        r#""refused""#,
        "a file that is no object is an error with a name, not an empty map",
    ),
    (
        "configSchema(mcp.servers.<name>)",
        r#"{"command":""}"#,
        r#"false"#,
        LAYER,
    ),
    (
        "configSchema(mcp.servers.<name>)",
        r#"{}"#,
        r#"false"#,
        LAYER,
    ),
    (
        "configSchema(mcp.servers.<name>)",
        r#"{"transport":"http","url":"https://e.example"}"#,
        r#"true"#,
        "people write it, and it can mean nothing else",
    ),
    (
        "configSchema(mcp.servers.<name>)",
        r#"{"transport":"Streamable-HTTP","url":"https://e.example"}"#,
        r#"true"#,
        "as OpenClaw reads it at run time",
    ),
    (
        "configSchema(mcp.servers.<name>)",
        r#"{"command":"x","codex":{"agents":[]}}"#,
        r#"true"#,
        CODEX,
    ),
    (
        "configSchema(mcp.servers.<name>)",
        r#"{"command":"x","codex":{"agents":["-bad"]}}"#,
        r#"true"#,
        CODEX,
    ),
    (
        "configSchema(mcp.servers.<name>)",
        r#"{"command":"x","codex":{"defaultToolsApprovalMode":"never"}}"#,
        r#"true"#,
        CODEX,
    ),
    (
        "configSchema(mcp)",
        r#"{"other":1}"#,
        r#"true"#,
        "keys that are not known are skipped, as everywhere",
    ),
    (
        "doctor.hasSensitiveKey",
        r#""AWS_SECRET_ACCESS_KEY""#,
        r#"true"#,
        "it is one",
    ),
];
