//! When two records of one server are the same.
//!
//! SHA-256 over the resolved record: other spellings folded, defaults filled in, placeholders expanded, members
//! in byte order at every level. Members of the entry that mean nothing to us are part of it. So the order of
//! members, an alias or a default written out changes nothing, and every other change does, for that
//! server alone. OpenClaw: createCatalogFingerprint, which hashes all servers as they were spelled.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::codec::json_object::JsonObject;
use crate::codec::json_text::write_string;
use crate::codec::scan::{Text, elements, members};
use crate::crypto::{hex, sha256};
use crate::manager::server_config::{
    HttpTransport, Isolation, ServerConfig, StdioTransport, Transport,
};
use crate::protocol::client::peer::EraChoice;

/// The fingerprint of a record, whose own field of that name is not looked at. `unknown` are the members
/// of its entry that are not read.
#[must_use]
pub fn fingerprint(config: &ServerConfig, unknown: &BTreeMap<&String, &Value>) -> String {
    let mut record = JsonObject::new();
    record.text("key", config.key.as_str());
    match &config.transport {
        Transport::Stdio(stdio) => record.raw("stdio", &program(stdio)),
        Transport::Http(http) => record.raw("http", &url(http)),
        Transport::Unix { path } => record.text("unix", &path.to_string_lossy()),
    }
    let protocol = match config.protocol {
        EraChoice::Auto => "auto",
        EraChoice::Legacy => "legacy",
        EraChoice::Modern => "modern",
        EraChoice::Only(revision) => revision.as_str(),
    };
    record.text("protocol", protocol);
    let times = &config.times;
    for (name, time) in [
        ("connect", Some(times.connect)),
        ("discover", Some(times.discover)),
        ("list", Some(times.list)),
        ("request", Some(times.request)),
        ("total", times.total),
        ("pause", Some(config.pause.1)),
    ] {
        record.count(name, time.map(millis));
    }
    for (name, count) in [
        ("pauseAfter", config.pause.0),
        ("messageBytes", config.bounds.message_bytes_max),
        ("outBytes", config.bounds.out_bytes_max),
        ("resumeAttempts", config.bounds.resume_attempts_max),
    ] {
        record.count(name, u64::try_from(count).ok());
    }
    record.flag("parallel", config.parallel);
    record.flag("serial", config.serial);
    record.flag("validateCalls", config.validate_calls);
    record.flag("shared", config.isolation == Isolation::Shared);
    record.raw("include", &list(config.filter.include.iter()));
    record.raw("exclude", &list(config.filter.exclude.iter()));
    for (name, value) in unknown {
        let mut text = String::new();
        canonical(&mut text, value);
        record.raw(&format!("unknown.{name}"), &text);
    }
    hex(&sha256(record.end().as_bytes()))
}

fn program(stdio: &StdioTransport) -> String {
    let mut out = JsonObject::new();
    out.text("command", &stdio.command);
    out.raw("args", &list(stdio.args.iter()));
    let cwd = stdio.cwd.as_ref().map(|cwd| cwd.to_string_lossy());
    out.maybe_text("cwd", cwd.as_deref());
    let mut env = JsonObject::new();
    for (name, value) in &stdio.env {
        env.text(name, value.expose());
    }
    out.raw("env", &env.end());
    out.end()
}

fn url(http: &HttpTransport) -> String {
    let mut out = JsonObject::new();
    out.text("url", http.text.expose());
    out.text("kind", http.kind.as_str());
    let mut headers = JsonObject::new();
    for (name, value) in &http.headers {
        headers.text(name, value.expose());
    }
    out.raw("headers", &headers.end());
    out.flag("insecure", http.tls.insecure);
    let client = http.tls.client.as_ref();
    for (name, path) in [
        ("caFile", http.tls.ca_file.as_ref()),
        ("clientCert", client.map(|(cert, _)| cert)),
        ("clientKey", client.map(|(_, key)| key)),
    ] {
        out.maybe_text(name, path.map(|path| path.to_string_lossy()).as_deref());
    }
    if let Some(oauth) = &http.oauth {
        let mut settings = JsonObject::new();
        settings.maybe_text("scope", oauth.scope.as_deref());
        settings.maybe_text("redirectUrl", oauth.redirect_url.as_deref());
        settings.maybe_text("clientMetadataUrl", oauth.client_metadata_url.as_deref());
        out.raw("oauth", &settings.end());
    }
    if let Some(proxy) = &http.proxy {
        out.text("proxy", &format!("{}:{}", proxy.host, proxy.port));
        let credentials = proxy.credentials.as_ref();
        out.maybe_text("proxyCredentials", credentials.map(|c| c.expose().as_str()));
    }
    out.end()
}

/// Appends JSON with members in byte order, whatever order the parser kept.
fn canonical(out: &mut String, value: &Value) {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<&String, &Value> = members.iter().collect();
            let mut object = JsonObject::new();
            for (name, member) in members {
                let mut text = String::new();
                canonical(&mut text, member);
                object.raw(name, &text);
            }
            out.push_str(&object.end());
        }
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                canonical(out, item);
            }
            out.push(']');
        }
        Value::String(text) => write_string(out, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

/// Appends a valid raw value without white space, its members in the order of their names; of members with one
/// name none is left out. Numbers stay as spelled, strings are spelled in one way.
pub(super) fn canonical_raw(out: &mut String, raw: &str) {
    let raw = raw.trim();
    match raw.as_bytes().first() {
        Some(b'{') => {
            let mut all: Vec<_> = members(raw)
                .map(|(name, value)| (name.decode(), value))
                .collect();
            // Those with one name stay in their order.
            all.sort_by(|(a, _), (b, _)| a.cmp(b));
            out.push('{');
            for (i, (name, value)) in all.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(out, name);
                out.push(':');
                canonical_raw(out, value);
            }
            out.push('}');
        }
        Some(b'[') => {
            out.push('[');
            for (i, value) in elements(raw).enumerate() {
                if i > 0 {
                    out.push(',');
                }
                canonical_raw(out, value);
            }
            out.push(']');
        }
        _ => match Text::of_value(raw) {
            Some(text) => write_string(out, &text.decode()),
            None => out.push_str(raw),
        },
    }
}

fn list<'a>(items: impl Iterator<Item = &'a String>) -> String {
    let items: Value = items.cloned().collect();
    items.to_string()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
