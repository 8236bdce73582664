//! Codex's servers (`mcp_servers` of its `config.toml`) as entries of ours.
//!
//! | Codex | ours |
//! |-------|------|
//! | `command`, `args`, `cwd`, `env`, `url`, `enabled` | the same |
//! | `env_vars` | `inheritEnv` |
//! | `http_headers`, `env_http_headers` | `headers`, the latter as `${NAME}` |
//! | `bearer_token_env_var` | `headers.Authorization`, `Bearer ${NAME}` |
//! | `startup_timeout_sec`, `startup_timeout_ms` | `connectTimeout`, `connectionTimeoutMs` |
//! | `tool_timeout_sec` | `timeout` |
//! | `enabled_tools`, `disabled_tools` | `toolFilter.include`, `toolFilter.exclude` |
//!
//! Everything else is kept as it is. Codex has no placeholders, so what looks like one is text.

use serde_json::Value;

use super::document::Document;
use crate::manager::placeholder::escape;

/// Members that only have another name here.
const RENAMED: [(&str, &str); 4] = [
    ("env_vars", "inheritEnv"),
    ("startup_timeout_sec", "connectTimeout"),
    ("startup_timeout_ms", "connectionTimeoutMs"),
    ("tool_timeout_sec", "timeout"),
];

/// The whole file with `mcp_servers` as `mcpServers`.
pub(super) fn translated(mut file: Document) -> Document {
    file.each_text(&|text| text.contains("${").then(|| escape(text)));
    let servers = match file.get("mcp_servers") {
        Some(Document::Object(servers)) => servers
            .iter()
            .map(|(key, entry)| (key.clone(), translated_entry(entry)))
            .collect(),
        Some(_) | None => Vec::new(),
    };
    let servers = Document::Object(servers);
    Document::Object(vec![("mcpServers".to_owned(), servers)])
}

fn translated_entry(entry: &Document) -> Document {
    let Some(members) = entry.members() else {
        return entry.clone();
    };
    let mut out: Vec<(String, Document)> = Vec::new();
    let mut headers = Vec::new();
    let mut filter = Vec::new();
    for (name, value) in members {
        match name.as_str() {
            "bearer_token_env_var" => {
                let bearer = variable(value, "Bearer ");
                headers.extend(bearer.map(|bearer| ("Authorization".to_owned(), bearer)));
            }
            "env_http_headers" => {
                for (header, name) in value.members().unwrap_or_default() {
                    headers.extend(variable(name, "").map(|value| (header.clone(), value)));
                }
            }
            "http_headers" => headers.extend_from_slice(value.members().unwrap_or_default()),
            "enabled_tools" => filter.push(("include".to_owned(), value.clone())),
            "disabled_tools" => filter.push(("exclude".to_owned(), value.clone())),
            other => {
                let renamed = RENAMED.iter().find(|(codex, _)| *codex == other);
                let name = renamed.map_or(other, |(_, ours)| ours);
                out.push((name.to_owned(), value.clone()));
            }
        }
    }
    for (name, members) in [("headers", headers), ("toolFilter", filter)] {
        if !members.is_empty() {
            out.push((name.to_owned(), Document::Object(members)));
        }
    }
    Document::Object(out)
}

/// The value of the variable that `name` names.
fn variable(name: &Document, start: &str) -> Option<Document> {
    match name {
        Document::Scalar(Value::String(name)) => {
            let text = format!("{start}${{env:{name}}}");
            Some(Document::Scalar(text.into()))
        }
        Document::Scalar(_) | Document::Object(_) | Document::Array(_) => None,
    }
}
