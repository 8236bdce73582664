//! The welcome of a client. Source: openclaw-serve §1.3.

use std::time::Duration;

use super::connect::{Client, PROTOCOL};
use super::rpc;
use super::store::Store;
use super::views::Object;
use crate::clock::Now;
use crate::limits::Limits;

/// The payload that welcomes `client`.
pub(super) fn hello(
    store: &Store,
    client: &Client,
    conn_id: &str,
    tick_interval: Duration,
    limits: &Limits,
    now: Now,
) -> String {
    let server = Object::new()
        .text("version", env!("CARGO_PKG_VERSION"))
        .text("connId", conn_id)
        .end();
    let names = |names: Vec<&str>| serde_json::to_string(&names).expect("strings are JSON");
    let features = Object::new()
        .raw("methods", &names(rpc::method_names().collect()))
        .raw("events", &names(rpc::EVENTS.to_vec()))
        .end();
    let snapshot = Object::new()
        .raw("presence", "[]")
        .raw("health", "{}")
        .raw("stateVersion", r#"{"presence":0,"health":0}"#)
        .int("uptimeMs", now.up.as_millis())
        .raw(
            "sessionDefaults",
            r#"{"defaultAgentId":"main","mainKey":"main","mainSessionKey":"agent:main:main","scope":"per-sender"}"#,
        )
        .end();
    let tick_ms = u64::try_from(tick_interval.as_millis()).unwrap_or(u64::MAX);
    let policy = Object::new()
        .raw("maxPayload", &limits.gateway_message_bytes_max.to_string())
        .raw(
            "maxBufferedBytes",
            &limits.gateway_out_bytes_max.to_string(),
        )
        .int("tickIntervalMs", tick_ms)
        .end();
    let auth = Object::new().text("role", "operator");
    let auth = match store.device(&client.device) {
        Some(device) => auth
            .raw(
                "scopes",
                &names(device.scopes.iter().map(String::as_str).collect()),
            )
            .text("deviceToken", device.token.expose())
            .int("issuedAtMs", device.at_ms),
        None => auth.raw("scopes", "[]"),
    };
    Object::new()
        .text("type", "hello-ok")
        .int("protocol", PROTOCOL)
        .raw("server", &server)
        .raw("features", &features)
        .raw("snapshot", &snapshot)
        .raw("auth", &auth.end())
        .raw("policy", &policy)
        .end()
}
